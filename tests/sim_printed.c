/* SPDX-License-Identifier: Apache-2.0 */
/* sim_printed.c - simulated devices as words; see sim_printed.h. */
#include "tests/sim_printed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* As snprintf() behind `length` bytes of which the text has as many as fit. */
__attribute__((format(printf, 4, 5))) static size_t
print_behind(char *text, size_t capacity, size_t length, const char *format, ...)
{
    const size_t at = length < capacity ? length : capacity;
    va_list arguments;
    int more;

    va_start(arguments, format);
    more = vsnprintf(text + at, capacity - at, format, arguments);
    va_end(arguments);
    return length + (size_t)more;
}

static size_t
print_device(const berthi_sim_words *words, uint32_t number, char *text, size_t capacity,
             size_t length)
{
    static const char *const backings[] = { "memory", "digest", "sealed" };
    const berthi_sim_device_words *const d = &words->devices[number];

    length = print_behind(text, capacity, length,
                          "%ssim:%" PRIu64 ",h2d=%" PRIu64 "/s,d2h=%" PRIu64
                          "/s,memory=%" PRIu64 "/s,latency=%" PRIu64 "ns,jitter=%" PRIu32
                          "%%,root=%" PRIu32 ",backing=%s",
                          number > 0 ? ";" : "", d->memory_bytes, d->rate_to_device,
                          d->rate_to_host, d->rate_memory, d->latency_ns, d->jitter,
                          d->root, backings[d->is_sealed ? 2 : d->keeps_digests]);
    if (d->rate_to_peer > 0)
        length = print_behind(text, capacity, length, ",peers=%" PRIu64 "/s", d->rate_to_peer);
    if (d->operation_ns > 0)
        length = print_behind(text, capacity, length, ",operation=%" PRIu64 "ns",
                              d->operation_ns);
    if (d->pin_bytes != UINT64_MAX)
        length = print_behind(text, capacity, length, ",pin=%" PRIu64, d->pin_bytes);
    if (d->numa_node >= 0)
        length =
            print_behind(text, capacity, length, ",numa=%" PRIi32, d->numa_node);
    length = print_behind(text, capacity, length,
                          ",lose=%" PRIu64 ",stall=%" PRIu64 ",hang=%" PRIu64
                          ",steal=%" PRIu64,
                          d->lose, d->stall, d->hang, d->steal_bytes);
    return length;
}

size_t
sim_words_print(const berthi_sim_words *words, char *text, size_t capacity)
{
    static const char *const picks[] = { "first", "last", "random" };
    static const char *const touches[] = { "random", "begin", "end" };
    const berthi_sim_machine_words *const m = &words->machine;
    size_t length = 0;

    for (uint32_t i = 0; i < words->count; i++) {
        length = print_device(words, i, text, capacity, length);
        length = print_behind(text, capacity, length,
                              ",clock=%s,pick=%s,touch=%s,seed=%" PRIu64,
                              m->is_real ? "real" : "virtual", picks[m->pick], touches[m->touch],
                              m->seed);
    }
    return length;
}
