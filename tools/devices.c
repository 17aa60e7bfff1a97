/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - a machine, for people and for programs. */
#include "tools/devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/json.h"

#define COUNT_CAPACITY 16

/* -------------------------------------------------------------------- people */

static const char *
known_size(uint64_t bytes, char text[BERTH_SIZE_CAPACITY])
{
    return bytes == UINT64_MAX ? "unknown" : berth_size_format(bytes, text);
}

/* Unknown 32-bit numbers of berth_host are UINT32_MAX. */
static uint64_t
widen(uint32_t number)
{
    return number == UINT32_MAX ? UINT64_MAX : number;
}

static const char *
known_count(uint32_t number, char text[COUNT_CAPACITY])
{
    snprintf(text, COUNT_CAPACITY, "%" PRIu32, number);
    return number == UINT32_MAX ? "unknown" : text;
}

static void
print_label(session *s, const char *label)
{
    output_format(&s->out, "%s%-10s%s", colour_begin(&s->screen, COLOUR_HEADING), label,
                  colour_end(&s->screen, COLOUR_HEADING));
}

static void
print_processor(session *s, const berth_host *host)
{
    char cores[COUNT_CAPACITY];
    char online[COUNT_CAPACITY];

    print_label(s, "CPU");
    output_name(&s->out, host->cpu_name, strlen(host->cpu_name));
    output_format(&s->out, "%s%s in use\n", host->cpu_name[0] != '\0' ? ", " : "",
                  host->cpu_level);
    print_label(s, "cores");
    output_format(&s->out, "%s usable of %s\n", known_count(host->cores, cores),
                  known_count(host->cores_online, online));
    print_label(s, "NUMA");
    if (host->numa_node_count == 0)
        output_text(&s->out, "unknown");
    else
        output_format(&s->out, "%" PRIu32 " node%s", host->numa_node_count,
                      text_plural(host->numa_node_count));
    for (uint32_t i = 0; i < host->numa_node_count && i < BERTH_MAX_NUMA_NODES; i++) {
        char size[BERTH_SIZE_CAPACITY];

        output_text(&s->out, i == 0 ? ": " : ", ");
        if (host->numa_nodes[i] != i)
            output_format(&s->out, "node %" PRIu32 " ", host->numa_nodes[i]);
        output_text(&s->out, known_size(host->numa_memory[i], size));
    }
    output_text(&s->out, "\n");
}

static void
print_memory(session *s, const berth_host *host)
{
    char total[BERTH_SIZE_CAPACITY];
    char available[BERTH_SIZE_CAPACITY];
    char limit[BERTH_SIZE_CAPACITY];
    char used[BERTH_SIZE_CAPACITY];
    char pinned[BERTH_SIZE_CAPACITY];

    print_label(s, "memory");
    output_format(&s->out, "%s available of %s\n",
                  known_size(host->memory_available, available),
                  known_size(host->memory_total, total));
    print_label(s, "limit");
    output_format(&s->out, "%s by %s, %s used\n", known_size(host->memory_limit, limit),
                  host->memory_limit_source, known_size(host->memory_used, used));
    print_label(s, "locked");
    if (host->is_pinned_unlimited)
        output_text(&s->out, "no limit (RLIMIT_MEMLOCK)\n");
    else
        output_format(&s->out, "up to %s (RLIMIT_MEMLOCK)\n",
                      known_size(host->pinned_limit, pinned));
}

static const char *
yes_or_no(int32_t value)
{
    return value ? "yes" : "no";
}

/* "PCIe 5.0 x16", of which nothing may be known. */
static void
print_link(session *s, uint32_t generation, uint32_t width)
{
    output_text(&s->out, "PCIe");
    if (generation != 0)
        output_format(&s->out, " %" PRIu32 ".0", generation);
    if (width != 0)
        output_format(&s->out, " x%" PRIu32, width);
    if (generation == 0 && width == 0)
        output_text(&s->out, " of unknown speed");
}

/* "NVLink 4.0 x18, 26.6 GB/s a link", of which all but how many may be unknown. */
static void
print_nvlink(session *s, const berth_device *gpu)
{
    output_text(&s->out, "NVLink");
    if (gpu->nvlink_version != 0)
        output_format(&s->out, " %d.%d", gpu->nvlink_version / 10, gpu->nvlink_version % 10);
    output_format(&s->out, " x%d", gpu->nvlink_links);
    if (gpu->nvlink_mb_per_s != 0)
        output_format(&s->out, ", %.1f GB/s a link", gpu->nvlink_mb_per_s / 1e3);
}

/* A line of its own for what few machines have, or tell. */
static void
print_more(session *s, const berth_device *gpu)
{
    if (gpu->nvlink_links != 0)
        print_nvlink(s, gpu);
    if (gpu->copy_engines != 0)
        output_format(&s->out, "%s%" PRIu32 " copy engine%s", gpu->nvlink_links != 0 ? "; " : "",
                      gpu->copy_engines, text_plural(gpu->copy_engines));
    output_text(&s->out, "\n");
}

/* What copies from the host take. */
static void
print_host_link(session *s, const berth_device *gpu)
{
    if (gpu->c2c_mb_per_s != 0) {
        output_format(&s->out, "NVLink-C2C %.0f GB/s", gpu->c2c_mb_per_s / 1e3);
        return;
    }
    print_link(s, gpu->pcie_generation, gpu->pcie_width);
    if (gpu->pcie_most_generation == gpu->pcie_generation
        && gpu->pcie_most_width == gpu->pcie_width)
        return;
    output_text(&s->out, " now, could be ");
    print_link(s, gpu->pcie_most_generation, gpu->pcie_most_width);
}

/* Two lines or three, all below the label. */
static void
print_gpu(session *s, const berth_device *gpu, bool is_first)
{
    char free_text[BERTH_SIZE_CAPACITY];
    char total[BERTH_SIZE_CAPACITY];

    if (is_first)
        print_label(s, "GPU");
    else
        output_format(&s->out, "%-10s", "");
    output_format(&s->out, "%s, ", gpu->name);
    output_name(&s->out, gpu->description, strlen(gpu->description));
    output_format(&s->out, "\n%-10s%s free of %s, ", "", known_size(gpu->free_bytes, free_text),
                  known_size(gpu->memory_bytes, total));
    print_host_link(s, gpu);
    if (gpu->numa_node >= 0)
        output_format(&s->out, ", node %" PRId32, gpu->numa_node);
    output_text(&s->out, "\n");
    if (gpu->nvlink_links == 0 && gpu->copy_engines == 0)
        return;
    output_format(&s->out, "%-10s", "");
    print_more(s, gpu);
}

static void
print_gpus(session *s, const berth_host *host, const devices_gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        print_gpu(s, &gpus->at[i], i == 0);
    if (gpus->count == 0) {
        print_label(s, "GPU");
        output_text(&s->out, "none: ");
        output_name(&s->out, gpus->why, strlen(gpus->why));
        output_text(&s->out, "\n");
    }
    if (host->gpu_supported)
        output_format(&s->out, "%-10sbuilt with kernels for %s\n", "",
                      host->gpu_architectures);
}

void
devices_find_gpus(session *s, const berth_host *host, devices_gpus *out)
{
    berth_devices *devices;
    berth_error error;

    *out = (devices_gpus){ .count = 0 };
    if (!host->gpu_supported) {
        snprintf(out->why, sizeof out->why, "this build supports no GPU");
        return;
    }
    if (berth_devices_open(s->context, "cuda", &devices, &error) != BERTH_OK) {
        memcpy(out->why, error.message, sizeof out->why);
        return;
    }
    while (out->count < DEVICES_LIMIT
           && berth_devices_get(devices, out->count, &out->at[out->count]) == BERTH_OK)
        out->count++;
    berth_devices_close(devices);
}

void
devices_print(session *s, const berth_host *host, const devices_gpus *gpus)
{
    print_processor(s, host);
    print_memory(s, host);
    print_label(s, "system");
    output_name(&s->out, host->kernel, strlen(host->kernel));
    output_format(&s->out, ", io_uring: %s\n", yes_or_no(host->has_io_uring));
    print_label(s, "digests");
    output_format(&s->out, "libdeflate: %s, libcrypto: %s\n",
                  yes_or_no(host->has_libdeflate), yes_or_no(host->has_libcrypto));
    print_label(s, "codes");
    output_text(&s->out, host->has_reciprocals
                             ? "reciprocals as recorded on a GPU\n"
                             : "reciprocals correctly rounded: none recorded on a GPU\n");
    print_gpus(s, host, gpus);
}

/* ------------------------------------------------------------------ programs */

static void
write_json_memory(json_writer *w, const berth_host *host)
{
    json_object_begin(w, "memory");
    json_known(w, "total", host->memory_total);
    json_known(w, "available", host->memory_available);
    json_known(w, "limit", host->memory_limit);
    json_known(w, "used", host->memory_used);
    json_text(w, "limit_source", host->memory_limit_source);
    json_known(w, "locked_limit", host->pinned_limit);
    json_bool(w, "locked_unlimited", host->is_pinned_unlimited != 0);
    json_object_end(w);
}

static void
write_json_processor(json_writer *w, const berth_host *host)
{
    json_object_begin(w, "cpu");
    json_text(w, "name", host->cpu_name);
    json_text(w, "level", host->cpu_level);
    json_known(w, "cores", widen(host->cores));
    json_known(w, "cores_online", widen(host->cores_online));
    json_object_end(w);
    json_array_begin(w, "numa_nodes");
    for (uint32_t i = 0; i < host->numa_node_count && i < BERTH_MAX_NUMA_NODES; i++) {
        json_object_begin(w, NULL);
        json_number(w, "node", host->numa_nodes[i]);
        json_known(w, "memory", host->numa_memory[i]);
        json_object_end(w);
    }
    json_array_end(w);
}

/* 0 is unknown there. */
static void
write_json_count(json_writer *w, const char *key, uint32_t number)
{
    json_known(w, key, number != 0 ? number : UINT64_MAX);
}

static void
write_json_rate(json_writer *w, const char *key, uint32_t mb_per_s)
{
    json_known(w, key, mb_per_s != 0 ? UINT64_C(1000000) * mb_per_s : UINT64_MAX);
}

static void
write_json_links(json_writer *w, const berth_device *gpu)
{
    char version[8];

    snprintf(version, sizeof version, "%d.%d", gpu->nvlink_version / 10 % 100,
             gpu->nvlink_version % 10);
    write_json_count(w, "pcie_generation", gpu->pcie_generation);
    write_json_count(w, "pcie_width", gpu->pcie_width);
    write_json_count(w, "pcie_most_generation", gpu->pcie_most_generation);
    write_json_count(w, "pcie_most_width", gpu->pcie_most_width);
    write_json_count(w, "nvlink_links", gpu->nvlink_links);
    if (gpu->nvlink_version != 0)
        json_text(w, "nvlink_version", version);
    else
        json_null(w, "nvlink_version");
    write_json_rate(w, "nvlink_bytes_per_second", gpu->nvlink_mb_per_s);
    write_json_rate(w, "c2c_bytes_per_second", gpu->c2c_mb_per_s);
}

static void
write_json_gpus(json_writer *w, const devices_gpus *gpus)
{
    json_array_begin(w, "gpus");
    for (uint32_t i = 0; i < gpus->count; i++) {
        const berth_device *const gpu = &gpus->at[i];

        json_object_begin(w, NULL);
        json_text(w, "name", gpu->name);
        json_text(w, "description", gpu->description);
        json_known(w, "memory", gpu->memory_bytes);
        json_known(w, "free", gpu->free_bytes);
        json_known(w, "numa_node", gpu->numa_node >= 0 ? (uint64_t)gpu->numa_node : UINT64_MAX);
        write_json_links(w, gpu);
        write_json_count(w, "copy_engines", gpu->copy_engines);
        json_object_end(w);
    }
    json_array_end(w);
    if (gpus->count == 0)
        json_text(w, "no_gpus", gpus->why);
    else
        json_null(w, "no_gpus");
}

void
devices_write_json(session *s, const berth_host *host, const devices_gpus *gpus)
{
    json_writer w;

    json_begin(&w, &s->out, false);
    json_object_begin(&w, NULL);
    json_number(&w, "schema_version", 1);
    json_text(&w, "berth_version", berth_version());
    write_json_processor(&w, host);
    write_json_memory(&w, host);
    json_text(&w, "kernel", host->kernel);
    json_bool(&w, "io_uring", host->has_io_uring != 0);
    json_bool(&w, "libdeflate", host->has_libdeflate != 0);
    json_bool(&w, "libcrypto", host->has_libcrypto != 0);
    json_bool(&w, "gpu_supported", host->gpu_supported != 0);
    json_bool(&w, "recorded_reciprocals", host->has_reciprocals != 0);
    json_text(&w, "gpu_architectures", host->gpu_architectures);
    write_json_gpus(&w, gpus);
    json_object_end(&w);
    json_end(&w);
}
