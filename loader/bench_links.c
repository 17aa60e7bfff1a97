/* SPDX-License-Identifier: Apache-2.0 */
/* bench_links.c - what was measured, as a file of links: berth-links(5). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/bench.h"
#include "placement/link.h"

/* ---------------------------------------------------------------------------- rates */

/* The rate that a line has; not for lines that were skipped. */
static void
take_rate(berthi_rate *rate, const berth_bench_line *line, const char *words)
{
    rate->bytes = line->rate;
    rate->source = BERTHI_RATE_MEASURED;
    snprintf(rate->words, sizeof rate->words, "%.31s", words);
}

static const char *
words_of(const berth_bench_line *line)
{
    if (line->is_simulated)
        return line->kind == BERTH_BENCH_TO_DEVICE_SHARED ? "simulated, all at once"
                                                          : "simulated";
    return line->kind == BERTH_BENCH_TO_DEVICE_SHARED ? "all at once"
           : line->kind == BERTH_BENCH_TO_DEVICE && !line->is_pinned ? "not pinned"
                                                                      : "";
}

/* Others take a part of the link away, and not just what little a measurement is off. */
static bool
is_shared(const berth_bench_line *line, const berthi_rate *alone)
{
    return line->kind == BERTH_BENCH_TO_DEVICE_SHARED
           && line->rate < alone->bytes - alone->bytes / 20;
}

/* Pinned copies come first, those of all devices at once last. */
static void
take_device(berthi_links *links, const berth_bench_line *line)
{
    const berthi_tier tier = { .kind = BERTHI_TIER_GPU, .number = line->device };
    berthi_link *const link = line->rate > 0 ? berthi_links_place(links, &tier) : NULL;

    if (link == NULL)
        return;
    if (line->kind == BERTH_BENCH_DEVICE_MEMORY)
        take_rate(&link->memory, line, words_of(line));
    else if (line->kind == BERTH_BENCH_OPERATION)
        link->operation = (berthi_delay){ berthi_max_u64(BERTHI_DELAY_LIMIT / line->rate, 1),
                                          BERTHI_RATE_MEASURED };
    else if (link->feed.bytes == 0 || is_shared(line, &link->feed))
        take_rate(&link->feed, line, words_of(line));
}

static void
take_host(berthi_links *links, const berth_bench_line *line)
{
    static const berthi_tier cpu = { .kind = BERTHI_TIER_CPU };
    static const berthi_tier disk = { .kind = BERTHI_TIER_DISK };
    const bool is_disk = line->kind == BERTH_BENCH_READ_COLD;
    berthi_link *const link =
        line->rate > 0 ? berthi_links_place(links, is_disk ? &disk : &cpu) : NULL;
    char words[BERTHI_RATE_WORDS];

    if (link == NULL)
        return;
    snprintf(words, sizeof words, "%" PRIu32 " thread%s", line->threads,
             line->threads == 1 ? "" : "s");
    if (is_disk)
        take_rate(&link->feed, line, line->words);
    else if (line->kind == BERTH_BENCH_HOST_MEMORY)
        take_rate(&link->memory, line, words);
    else if (line->rate > link->feed.bytes)
        take_rate(&link->feed, line, words);
}

static void
take_line(berthi_links *links, const berth_bench_line *line)
{
    switch (line->kind) {
    case BERTH_BENCH_READ_COLD:
    case BERTH_BENCH_COPY:
    case BERTH_BENCH_HOST_MEMORY:
        take_host(links, line);
        break;
    case BERTH_BENCH_TO_DEVICE:
    case BERTH_BENCH_DEVICE_MEMORY:
    case BERTH_BENCH_OPERATION:
    case BERTH_BENCH_TO_DEVICE_SHARED:
        take_device(links, line);
        break;
    default:
        break;
    }
}

/* ---------------------------------------------------------------------- fingerprint */

static uint32_t
mix(uint32_t hash, const void *bytes, size_t count)
{
    const uint8_t *const b = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ b[i]) * UINT32_C(16777619);
    return hash;
}

/* Processor, memory, devices and file system; names are for people, the rest is mixed. */
static void
print_fingerprint(const berthi_bench *b, char out[BERTHI_FINGERPRINT])
{
    const uint32_t devices =
        b->options.devices != NULL ? berthi_devices_count(b->options.devices) : 0;
    berthi_device_properties first = { .name = "no device" };
    uint32_t hash = UINT32_C(2166136261);
    berthi_host_process process;
    berth_host host;

    berthi_host_process_get(&process);
    berthi_host_read("/", &process, &host);
    hash = mix(hash, host.cpu_name, strlen(host.cpu_name));
    hash = mix(hash, &host.memory_total, sizeof host.memory_total);
    hash = mix(hash, &b->file_system, sizeof b->file_system);
    for (uint32_t d = devices; d-- > 0;) {
        berthi_device *const device = berthi_devices_at(b->options.devices, d);

        device->table->describe(device, &first);
        hash = mix(hash, first.description, strlen(first.description));
    }
    snprintf(out, BERTHI_FINGERPRINT,
             "%.24s, %" PRIu32 " cores, %.10s*%" PRIu32 ", %08" PRIx32, host.cpu_name,
             b->cores, first.name, devices, hash);
    for (char *c = out; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7F)
            *c = '?';
}

/* ------------------------------------------------------------------------- printing */

berth_status
berthi_bench_print_links(const berthi_bench *b, berth_error *error)
{
    berth_bench *const result = b->result;
    berthi_links links = { .count = 0 };
    uint64_t bytes;
    berth_status status;

    for (uint32_t i = 0; i < result->line_count; i++)
        take_line(&links, &result->lines[i]);
    print_fingerprint(b, links.fingerprint);
    status = berthi_links_print(&links, NULL, NULL, &bytes, error);
    if (status != BERTH_OK)
        return status;
    result->links = berthi_memory_alloc(b->context, BERTHI_PURPOSE_DOCUMENT, bytes + 1);
    if (result->links == NULL)
        return berthi_fail_memory(error, "printing links");
    result->links_bytes = bytes + 1;
    status = berthi_links_print(&links, berthi_json_put_memory, result->links, NULL, error);
    result->links[bytes] = '\0';
    return status;
}
