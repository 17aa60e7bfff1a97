/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - see machine.h. */
#include "tests/machine.h"

#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

static const char *tree; /* the one being described */

void
machine_put(const char *path, const char *text)
{
    const char *const whole = fixture_format("%s/%s", tree, path);

    fixture_remove(whole); /* it may be a folder: machine_put_unreadable() */
    fixture_text(whole, text);
}

void
machine_put_unreadable(const char *path)
{
    fixture_remove(fixture_format("%s/%s", tree, path));
    fixture_make_folder(fixture_format("%s/%s", tree, path));
}

void
machine_drop(const char *path)
{
    fixture_remove(fixture_format("%s/%s", tree, path));
}

void
machine_begin_empty(void)
{
    tree = fixture_folder();
}

const char *
machine_tree(void)
{
    return tree;
}

void
machine_begin(void)
{
    tree = fixture_folder();
    machine_put("proc/meminfo", "MemTotal:       16777216 kB\n"
                                "MemFree:         1048576 kB\n"
                                "MemAvailable:   10485760 kB\n");
    machine_put("proc/self/statm", "25600 100 50 10 0 12800 0\n");
    machine_put("proc/sys/kernel/ostype", "Linux\n");
    machine_put("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
    machine_put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 17\n"
                                "model name\t: EPYC 9004 (Genoa)\nprocessor\t: 1\n"
                                "model name\t: second\n");
    machine_put("sys/devices/system/cpu/online", "0-7\n");
    machine_put("sys/devices/system/node/online", "0-1\n");
    machine_put("sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:       12582912 kB\nNode 0 MemFree:  1 kB\n");
    machine_put("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:        4194304 kB\n");
}

void
machine_begin_v2(const char *name)
{
    machine_begin();
    machine_put("proc/self/cgroup", fixture_format("0::%s\n", name));
    machine_put("proc/self/mountinfo", OTHER_MOUNTS V2_MOUNT);
}

void
machine_begin_v1(const char *name)
{
    machine_begin();
    machine_put("proc/self/cgroup", fixture_format("9:name=systemd:/init\n4:memory:%s\n"
                                                   "3:cpu,cpuacct:%s\n",
                                                   name, name));
    machine_put("proc/self/mountinfo", OTHER_MOUNTS V1_MEMORY V1_CPU);
}

void
machine_put_v2(const char *level, const char *limit, uint64_t current, uint64_t cache)
{
    const char *const folder = fixture_format("sys/fs/cgroup%s", level);

    machine_put(fixture_format("%s/memory.max", folder), fixture_format("%s\n", limit));
    machine_put(fixture_format("%s/memory.current", folder),
                fixture_format("%llu\n", (unsigned long long)current));
    machine_put(fixture_format("%s/memory.stat", folder),
                fixture_format("anon 5\nfile 77\ninactive_anon 9\nactive_file 8\n"
                               "inactive_file %llu\nslab 3\n",
                               (unsigned long long)cache));
}

void
machine_put_v1(const char *level, const char *limit, uint64_t usage, uint64_t cache,
               const char *hierarchical)
{
    const char *const folder = fixture_format("sys/fs/cgroup/memory%s", level);

    machine_put(fixture_format("%s/memory.limit_in_bytes", folder), fixture_format("%s\n", limit));
    machine_put(fixture_format("%s/memory.usage_in_bytes", folder),
                fixture_format("%llu\n", (unsigned long long)usage));
    machine_put(fixture_format("%s/memory.stat", folder),
                fixture_format("inactive_file 1\nhierarchical_memory_limit %s\n"
                               "total_inactive_file %llu\n",
                               hierarchical, (unsigned long long)cache));
}

const berthi_host_process machine_process = {
    .cores = 6,
    .address = { BERTHI_READING_ABSENT, UNKNOWN },
    .data = { BERTHI_READING_ABSENT, UNKNOWN },
    .locked = { BERTHI_READING_ABSENT, UNKNOWN },
    .has_io_uring = true,
};

berth_host
machine_read(const berthi_host_process *process)
{
    berth_host host;

    memset(&host, 0xAA, sizeof host);
    berthi_host_read(tree, process, &host);
    return host;
}

void
machine_check_memory(int line, uint64_t limit, uint64_t used, const char *source)
{
    const berth_host host = machine_read(&machine_process);
    const uint64_t left = limit == UNKNOWN || used == UNKNOWN ? UNKNOWN
                          : used > limit                      ? 0
                                                              : limit - used;
    bool is_good = CHECK_EQ(host.memory_limit, limit);

    is_good &= CHECK_EQ(host.memory_used, used);
    is_good &= CHECK_EQ(host.memory_available, left);
    is_good &= CHECK_STR(host.memory_limit_source, source);
    is_good &= CHECK_EQ(host.memory_total, 16 * GIB);
    if (!is_good)
        T_NOTE("called in line %d", line);
}

uint32_t
machine_cores(void)
{
    return machine_read(&machine_process).cores;
}
