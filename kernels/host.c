/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the machine's description from /proc, /sys and the process's limits. */
#include "kernels/host.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/cgroup.h"
#include "kernels/cpu.h"
#include "kernels/sys.h"

_Static_assert(sizeof((berth_host *)0)->memory_limit_source
                   == sizeof((berthi_ceiling *)0)->source,
               "a source is copied whole");

/* ---------------------------------------------------------- what calls tell */

static void
get_limit(berthi_sys_limit_kind kind, berthi_host_limit *limit)
{
    limit->bytes = UINT64_MAX;
    if (berthi_sys_limit(kind, &limit->bytes) != 0)
        limit->reading = BERTHI_READING_UNKNOWN;
    else
        limit->reading =
            limit->bytes == UINT64_MAX ? BERTHI_READING_ABSENT : BERTHI_READING_OK;
}

static void
get_limits(berthi_host_process *process)
{
    get_limit(BERTHI_SYS_LIMIT_ADDRESS, &process->address);
    get_limit(BERTHI_SYS_LIMIT_DATA, &process->data);
    get_limit(BERTHI_SYS_LIMIT_LOCKED, &process->locked);
}

void
berthi_host_process_get(berthi_host_process *process)
{
    if (berthi_sys_affinity(&process->cores) != 0)
        process->cores = UINT32_MAX;
    get_limits(process);
    process->has_io_uring = berthi_sys_probe_uring() == 0;
}

/* ------------------------------------------------------------------- memory */

/* A field of the kernel's memory tables, in bytes; UINT64_MAX: unknown. */
static uint64_t
kilobytes(int root, const char *path, const char *key)
{
    uint64_t number;
    uint64_t bytes;

    if (berthi_procfs_field(root, path, key, " kB", &number) != BERTHI_READING_OK
        || !berthi_can_mul(number, 1024, &bytes))
        return BERTHI_PROCFS_UNKNOWN;
    return bytes;
}

/* The n-th number (from 0) of /proc/self/statm, pages, in bytes. */
static uint64_t
own_pages(int root, int n)
{
    char line[256];
    const char *at = line;
    uint64_t pages = 0;
    uint64_t bytes;

    if (berthi_procfs_line(root, "proc/self/statm", line, sizeof line)
        != BERTHI_READING_OK)
        return BERTHI_PROCFS_UNKNOWN;
    for (int i = 0; i <= n; i++) {
        at = berthi_procfs_digits(at + (i > 0 && at[0] == ' '), &pages);
        if (at == NULL)
            return BERTHI_PROCFS_UNKNOWN;
    }
    return berthi_can_mul(pages, berthi_sys_page_bytes(), &bytes) ? bytes
                                                                   : BERTHI_PROCFS_UNKNOWN;
}

static void
lower_by_limit(int root, const berthi_host_limit *limit, const char *source,
               int statm_field, berthi_ceiling *ceiling)
{
    berthi_ceiling other = { limit->bytes, 0, "" };

    if (limit->reading == BERTHI_READING_ABSENT)
        return;
    if (limit->reading == BERTHI_READING_UNKNOWN)
        other.limit = BERTHI_PROCFS_UNKNOWN;
    other.used = own_pages(root, statm_field);
    snprintf(other.source, sizeof other.source, "%s", source);
    berthi_ceiling_lower(ceiling, &other);
}

static void
read_memory(int root, const berthi_host_process *process, berth_host *host)
{
    const uint64_t total = kilobytes(root, "proc/meminfo", "MemTotal:");
    const uint64_t available = kilobytes(root, "proc/meminfo", "MemAvailable:");
    berthi_ceiling ceiling = { total, BERTHI_PROCFS_UNKNOWN, "machine" };

    if (total != BERTHI_PROCFS_UNKNOWN && available != BERTHI_PROCFS_UNKNOWN)
        ceiling.used = total - berthi_min_u64(total, available);
    berthi_cgroup_memory(root, &ceiling);
    lower_by_limit(root, &process->address, "RLIMIT_AS", 0, &ceiling);
    lower_by_limit(root, &process->data, "RLIMIT_DATA", 5, &ceiling);

    host->memory_total = total;
    host->memory_available = berthi_ceiling_headroom(&ceiling);
    host->memory_limit = ceiling.limit;
    host->memory_used = ceiling.used;
    memcpy(host->memory_limit_source, ceiling.source, sizeof ceiling.source);
    host->pinned_limit = process->locked.reading == BERTHI_READING_OK
                             ? process->locked.bytes
                             : UINT64_MAX;
    host->is_pinned_unlimited = process->locked.reading == BERTHI_READING_ABSENT;
}

/* -------------------------------------------------------- processors, nodes */

/*
 * Numbers of a list such as "0-3,8,10-11": the first `capacity` of them go to
 * `numbers`. Returns how many there are, or UINT64_MAX: not such a list.
 */
static uint64_t
parse_list(const char *text, uint32_t *numbers, size_t capacity)
{
    uint64_t count = 0;

    for (;;) {
        uint64_t first;
        uint64_t last;

        text = berthi_procfs_digits(text, &first);
        last = first;
        if (text != NULL && text[0] == '-')
            text = berthi_procfs_digits(text + 1, &last);
        if (text == NULL || last < first || last >= UINT32_MAX)
            return UINT64_MAX;
        for (uint64_t i = first; i <= last && count + (i - first) < capacity; i++)
            numbers[count + (i - first)] = (uint32_t)i;
        count += last - first + 1;
        if (text[0] == '\0')
            return count;
        if (text++[0] != ',')
            return UINT64_MAX;
    }
}

static void
read_cores(int root, const berthi_host_process *process, berth_host *host)
{
    char list[4096];
    uint64_t online = UINT64_MAX;

    if (berthi_procfs_line(root, "sys/devices/system/cpu/online", list, sizeof list)
        == BERTHI_READING_OK)
        online = parse_list(list, NULL, 0);
    host->cores_online = (uint32_t)berthi_min_u64(online, UINT32_MAX);
    host->cores = berthi_cgroup_cores(root, process->cores);
}

/* As parse_list(), of nodes. ABSENT: a kernel built for one. */
static berthi_reading
list_nodes(int root, uint32_t *nodes, size_t capacity, uint64_t *count)
{
    char list[4096];
    const berthi_reading reading = berthi_procfs_line(
        root, "sys/devices/system/node/online", list, sizeof list);

    *count = reading == BERTHI_READING_OK ? parse_list(list, nodes, capacity) : UINT64_MAX;
    return reading;
}

static void
read_nodes(int root, berth_host *host)
{
    uint32_t *const nodes = host->numa_nodes;
    uint64_t count;

    if (list_nodes(root, nodes, BERTH_MAX_NUMA_NODES, &count) == BERTHI_READING_ABSENT) {
        host->numa_node_count = 1;
        host->numa_memory[0] = host->memory_total;
        return;
    }
    if (count == UINT64_MAX)
        return;
    host->numa_node_count = (uint32_t)berthi_min_u64(count, BERTH_MAX_NUMA_NODES);
    for (uint32_t i = 0; i < host->numa_node_count; i++) {
        char path[80];
        char key[48];

        snprintf(path, sizeof path, "sys/devices/system/node/node%u/meminfo", nodes[i]);
        snprintf(key, sizeof key, "Node %u MemTotal:", nodes[i]);
        host->numa_memory[i] = kilobytes(root, path, key);
    }
}

/* ------------------------------------------------------------------- names */

static void
read_cpu_name(int root, berth_host *host)
{
    static const char key[] = "model name";
    berthi_procfs file;
    const char *line;

    berthi_procfs_open(&file, root, "proc/cpuinfo");
    while ((line = berthi_procfs_next(&file)) != NULL) {
        const char *const colon = strchr(line, ':');

        if (colon != NULL && strncmp(line, key, sizeof key - 1) == 0) {
            const char *const name = colon + 1 + strspn(colon + 1, " ");

            berth_text_escape(name, strlen(name), host->cpu_name, sizeof host->cpu_name);
            break;
        }
    }
    berthi_procfs_close(&file);
}

static void
read_kernel_name(int root, berth_host *host)
{
    char type[32];
    char release[96];
    char text[160];

    if (berthi_procfs_line(root, "proc/sys/kernel/ostype", type, sizeof type)
            != BERTHI_READING_OK
        || berthi_procfs_line(root, "proc/sys/kernel/osrelease", release, sizeof release)
               != BERTHI_READING_OK)
        return;
    /* WSL's own kernels: "5.15.153.1-microsoft-standard-WSL2", "4.4.0-19041-Microsoft". */
    snprintf(text, sizeof text, "%s %s%s", type, release,
             strstr(release, "icrosoft") != NULL ? " (WSL)" : "");
    berth_text_escape(text, strlen(text), host->kernel, sizeof host->kernel);
}

/* ---------------------------------------------------------------- the whole */

void
berthi_host_read(const char *root, const berthi_host_process *process, berth_host *host)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, root);

    memset(host, 0, sizeof *host);
    snprintf(host->cpu_level, sizeof host->cpu_level, "%s",
             berthi_cpu_level_name(berthi_cpu_best_level()));
    read_memory(folder, process, host);
    read_cores(folder, process, host);
    read_nodes(folder, host);
    read_cpu_name(folder, host);
    read_kernel_name(folder, host);
    host->has_io_uring = process->has_io_uring;
    if (folder >= 0)
        berthi_sys_close(folder);
}

uint64_t
berthi_host_memory_limit(const char *root)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, root);
    berthi_host_process process;
    berth_host host;

    memset(&host, 0, sizeof host);
    get_limits(&process); /* a ring is not made for this */
    read_memory(folder, &process, &host);
    if (folder >= 0)
        berthi_sys_close(folder);
    return host.memory_limit;
}

uint32_t
berthi_host_node_count(const char *root)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, root);
    uint64_t count;
    const berthi_reading reading = list_nodes(folder, NULL, 0, &count);

    if (folder >= 0)
        berthi_sys_close(folder);
    if (reading == BERTHI_READING_ABSENT)
        return folder >= 0; /* else nobody has looked */
    return count < UINT32_MAX ? (uint32_t)count : 0;
}

uint32_t
berthi_host_worker_count(void)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, "/");
    uint32_t affinity;
    uint32_t cores;

    if (berthi_sys_affinity(&affinity) != 0)
        affinity = 1;
    cores = berthi_cgroup_cores(folder, affinity);
    if (folder >= 0)
        berthi_sys_close(folder);
    return cores == UINT32_MAX ? affinity : cores;
}
