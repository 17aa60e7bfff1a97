/* SPDX-License-Identifier: Apache-2.0 */
/* test_host.c - machines that are described by a few files. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/cgroup.h"
#include "kernels/cpu.h"
#include "kernels/fault.h"
#include "kernels/host.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define UNKNOWN UINT64_MAX

/* -------------------------------------------------------------------- trees */

static const char *tree; /* the one being described */

static void
put(const char *path, const char *text)
{
    const char *const whole = fixture_format("%s/%s", tree, path);

    fixture_remove(whole); /* it may be a folder: put_unreadable() */
    fixture_text(whole, text);
}

/* A file that opens and cannot be read: a folder in its place gives EISDIR. */
static void
put_unreadable(const char *path)
{
    fixture_remove(fixture_format("%s/%s", tree, path));
    fixture_make_folder(fixture_format("%s/%s", tree, path));
}

static void
drop(const char *path)
{
    fixture_remove(fixture_format("%s/%s", tree, path));
}

/* 16 GiB of which 10 are free, 8 processors, 2 nodes, no control groups. */
static void
begin_machine(void)
{
    tree = fixture_folder();
    put("proc/meminfo", "MemTotal:       16777216 kB\n"
                        "MemFree:         1048576 kB\n"
                        "MemAvailable:   10485760 kB\n");
    put("proc/self/statm", "25600 100 50 10 0 12800 0\n");
    put("proc/sys/kernel/ostype", "Linux\n");
    put("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
    put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 17\n"
                        "model name\t: EPYC 9004 (Genoa)\nprocessor\t: 1\n"
                        "model name\t: second\n");
    put("sys/devices/system/cpu/online", "0-7\n");
    put("sys/devices/system/node/online", "0-1\n");
    put("sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal:       12582912 kB\nNode 0 MemFree:  1 kB\n");
    put("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:        4194304 kB\n");
}

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define V1_MEMORY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V1_CPU "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHER_MOUNTS                                                                       \
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"                                      \
    "27 1 254:0 / / rw,relatime master:1 - ext4 /dev/vda rw,discard\n"

static void
begin_v2(const char *name)
{
    begin_machine();
    put("proc/self/cgroup", fixture_format("0::%s\n", name));
    put("proc/self/mountinfo", OTHER_MOUNTS V2_MOUNT);
}

static void
begin_v1(const char *name)
{
    begin_machine();
    put("proc/self/cgroup", fixture_format("9:name=systemd:/init\n4:memory:%s\n"
                                           "3:cpu,cpuacct:%s\n",
                                           name, name));
    put("proc/self/mountinfo", OTHER_MOUNTS V1_MEMORY V1_CPU);
}

/* One level of version 2: limit as text, use and droppable cache. */
static void
put_v2(const char *level, const char *limit, uint64_t current, uint64_t cache)
{
    const char *const folder = fixture_format("sys/fs/cgroup%s", level);

    put(fixture_format("%s/memory.max", folder), fixture_format("%s\n", limit));
    put(fixture_format("%s/memory.current", folder),
        fixture_format("%llu\n", (unsigned long long)current));
    put(fixture_format("%s/memory.stat", folder),
        fixture_format("anon 5\nfile 77\ninactive_anon 9\nactive_file 8\n"
                       "inactive_file %llu\nslab 3\n",
                       (unsigned long long)cache));
}

#define V1_NONE "9223372036854771712"

static void
put_v1(const char *level, const char *limit, uint64_t usage, uint64_t cache,
       const char *hierarchical)
{
    const char *const folder = fixture_format("sys/fs/cgroup/memory%s", level);

    put(fixture_format("%s/memory.limit_in_bytes", folder), fixture_format("%s\n", limit));
    put(fixture_format("%s/memory.usage_in_bytes", folder),
        fixture_format("%llu\n", (unsigned long long)usage));
    put(fixture_format("%s/memory.stat", folder),
        fixture_format("inactive_file 1\nhierarchical_memory_limit %s\n"
                       "total_inactive_file %llu\n",
                       hierarchical, (unsigned long long)cache));
}

static const berthi_host_process no_limits = {
    .cores = 6,
    .address = { BERTHI_READING_ABSENT, UNKNOWN },
    .data = { BERTHI_READING_ABSENT, UNKNOWN },
    .locked = { BERTHI_READING_ABSENT, UNKNOWN },
    .has_io_uring = true,
};

static berth_host
read_host(const berthi_host_process *process)
{
    berth_host host;

    memset(&host, 0xAA, sizeof host);
    berthi_host_read(tree, process, &host);
    return host;
}

static void
check_memory_at(int line, uint64_t limit, uint64_t used, const char *source)
{
    const berth_host host = read_host(&no_limits);
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
#define CHECK_MEMORY(...) check_memory_at(__LINE__, __VA_ARGS__)

static uint32_t
cores_now(void)
{
    return read_host(&no_limits).cores;
}

/* ------------------------------------------------------------- plain machine */

static void
test_machine(void)
{
    berth_host host;

    begin_machine();
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    host = read_host(&no_limits);
    CHECK_STR(host.cpu_name, "EPYC 9004 (Genoa)");
    CHECK_STR(host.cpu_level, berthi_cpu_level_name(berthi_cpu_best_level()));
    CHECK_STR(host.kernel, "Linux 6.1.0-13-amd64");
    CHECK_EQ(host.cores, 6);
    CHECK_EQ(host.cores_online, 8);
    CHECK_EQ(host.numa_node_count, 2);
    CHECK_EQ(host.numa_memory[0], 12 * GIB);
    CHECK_EQ(host.numa_memory[1], 4 * GIB);
    CHECK_EQ(host.numa_memory[2], 0);
    CHECK_EQ(host.has_io_uring, 1);
    CHECK_EQ(host.pinned_limit, UNKNOWN);
    CHECK_EQ(host.is_pinned_unlimited, 1);
    CHECK_EQ(host.has_libdeflate, 0);
    CHECK_EQ(host.has_libcrypto, 0);
    CHECK_EQ(host.gpu_supported, 0);
    for (size_t i = 0; i < sizeof host.reserved / sizeof host.reserved[0]; i++)
        CHECK_EQ(host.reserved[i], 0);
}

static void
test_nothing_there(void)
{
    berth_host host;

    tree = fixture_folder();
    host = read_host(&no_limits);
    CHECK_EQ(host.memory_total, UNKNOWN);
    CHECK_EQ(host.memory_available, UNKNOWN);
    CHECK_EQ(host.memory_limit, UNKNOWN);
    CHECK_EQ(host.memory_used, UNKNOWN);
    CHECK_STR(host.memory_limit_source, "machine");
    CHECK_EQ(host.cores, 6);
    CHECK_EQ(host.cores_online, UINT32_MAX);
    CHECK_EQ(host.numa_node_count, 1);
    CHECK_EQ(host.numa_memory[0], UNKNOWN);
    CHECK_STR(host.cpu_name, "");
    CHECK_STR(host.kernel, "");

    /* Not even a root: all is unknown, and an unknown group may have any limit. */
    berthi_host_read("/no/such/folder", &no_limits, &host);
    CHECK_EQ(host.memory_available, UNKNOWN);
    CHECK_EQ(host.cores, UINT32_MAX);
    CHECK_EQ(host.numa_node_count, 0);
}

static void
test_meminfo(void)
{
    begin_machine();
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 33554432 kB\n");
    CHECK_MEMORY(16 * GIB, 0, "machine");
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 5 kB\n");
    CHECK_MEMORY(16 * GIB, UNKNOWN, "machine");
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: lots kB\n");
    CHECK_MEMORY(16 * GIB, UNKNOWN, "machine");
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 0 kB\n");
    CHECK_MEMORY(16 * GIB, 16 * GIB, "machine");

    static const char *const bad[] = {
        "MemTotal: 16777216\n", "MemTotal: 16777216 MB\n", "MemTotal:\n",
        "MemTotal: -1 kB\n", "MemTotal: 18446744073709551616 kB\n",
        "MemTotal: 18014398509481984 kB\n", "", "\n", "memtotal: 5 kB\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("proc/meminfo", fixture_format("%sMemAvailable: 1 kB\n", bad[i]));
        CHECK_EQ(read_host(&no_limits).memory_total, UNKNOWN);
        CHECK_EQ(read_host(&no_limits).memory_available, UNKNOWN);
    }
    put("proc/meminfo", "MemTotal:\t18014398509481983 kB\nMemAvailable: 1 kB");
    CHECK_EQ(read_host(&no_limits).memory_total, UINT64_C(18014398509481983) * 1024);
    CHECK_EQ(read_host(&no_limits).memory_available, 1024);
    put_unreadable("proc/meminfo");
    CHECK_EQ(read_host(&no_limits).memory_total, UNKNOWN);
}

/* ---------------------------------------------------------------- version 2 */

static void
test_v2(void)
{
    begin_v2("/a/b");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine"); /* no memory controller */
    put_v2("/a/b", "max", 3 * GIB, GIB);
    put_v2("/a", "max", 3 * GIB, GIB);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    put_v2("/a/b", "8589934592", 3 * GIB, GIB);
    CHECK_MEMORY(8 * GIB, 2 * GIB, "cgroup v2 /a/b");
    put_v2("/a", "4294967296", 3 * GIB, GIB);
    CHECK_MEMORY(4 * GIB, 2 * GIB, "cgroup v2 /a");
    /* A wide ancestor that is nearly full binds more than a narrow empty group. */
    put_v2("/a", "12884901888", 12 * GIB, GIB / 2);
    CHECK_MEMORY(12 * GIB, 12 * GIB - GIB / 2, "cgroup v2 /a");
    /* Above the limit, and more cache than use: never below zero. */
    put_v2("/a", "1073741824", 3 * GIB, GIB);
    CHECK_MEMORY(GIB, 2 * GIB, "cgroup v2 /a");
    put_v2("/a", "1073741824", 3, 4);
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    put_v2("/a", "0", 0, 0);
    CHECK_MEMORY(0, 0, "cgroup v2 /a");
    /* The group at the mount has one too when this is a container. */
    put_v2("/a", "max", 0, 0);
    put_v2("", "2147483648", 0, 0);
    CHECK_MEMORY(2 * GIB, 0, "cgroup v2 /");
}

static void
test_v2_wider_than_the_machine(void)
{
    begin_v2("/a");
    put_v2("/a", "109951162777600", GIB, 0);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    /* The same headroom: the smaller limit is the one to name. */
    put_v2("/a", "10737418240", 0, 0);
    CHECK_MEMORY(10 * GIB, 0, "cgroup v2 /a");
    put_v2("/a", "17179869184", 6 * GIB, 0);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
}

static void
test_v2_numbers(void)
{
    static const struct {
        const char *text;
        uint64_t limit;
    } cases[] = {
        { "4611686018427387904", 16 * GIB }, /* 2^62 and above: none */
        { "18446744073709551615", 16 * GIB },
        { "18446744073709551616", UNKNOWN },
        { "99999999999999999999999", UNKNOWN },
        { "-1", UNKNOWN },
        { "", UNKNOWN },
        { " 5", UNKNOWN },
        { "5 ", UNKNOWN },
        { "5x", UNKNOWN },
        { "0x10", UNKNOWN },
        { "maximum", UNKNOWN },
        { "max ", UNKNOWN },
        { "1000\n2000", 1000 },
        { "00000000001000", 1000 },
    };

    begin_v2("/a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_v2("/a", cases[i].text, 0, 0);
        if (!CHECK_EQ(read_host(&no_limits).memory_limit, cases[i].limit))
            T_NOTE("memory.max is \"%s\"", cases[i].text);
        CHECK_EQ(read_host(&no_limits).memory_available == UNKNOWN,
                 cases[i].limit == UNKNOWN);
    }
    put_v2("/a", "4611686018427387903", 0, 0);
    CHECK_EQ(read_host(&no_limits).memory_limit, 16 * GIB);
    put("proc/meminfo", "MemTotal: 18014398509481983 kB\n"
                        "MemAvailable: 18014398509481983 kB\n");
    CHECK_EQ(read_host(&no_limits).memory_limit, UINT64_C(4611686018427387903));
}

static void
test_unreadable_is_unknown(void)
{
    begin_v2("/a/b");
    put_v2("/a/b", "max", 0, 0);
    put_v2("/a", "8589934592", 0, 0);
    CHECK_MEMORY(8 * GIB, 0, "cgroup v2 /a");
    /* Whatever else is known, an unknown limit may be lower. */
    put_unreadable("sys/fs/cgroup/a/b/memory.max");
    CHECK_MEMORY(UNKNOWN, 0, "cgroup v2 /a/b");
    put_v2("/a/b", "1073741824", 0, 0);
    put_unreadable("sys/fs/cgroup/a/memory.current");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    put_v2("/a", "8589934592", 0, 0);
    put_unreadable("sys/fs/cgroup/a/memory.stat");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    drop("sys/fs/cgroup/a/memory.stat");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    put("sys/fs/cgroup/a/memory.stat", "inactive_file many\n");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    put("sys/fs/cgroup/a/memory.stat", "inactive_file 5 kB\n");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    put("sys/fs/cgroup/a/memory.stat", "inactive_file_other 1\ninactive_file 4096\n");
    put("sys/fs/cgroup/a/memory.current", "8589934592\n");
    CHECK_MEMORY(8 * GIB, 8 * GIB - 4096, "cgroup v2 /a");
    drop("sys/fs/cgroup/a/memory.current");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    /* An unknown limit hides an unknown use, whichever is met first. */
    put_unreadable("sys/fs/cgroup/memory.max");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup v2 /");
    put_unreadable("sys/fs/cgroup/a/b/memory.max");
    drop("sys/fs/cgroup/memory.max");
    CHECK_MEMORY(UNKNOWN, 0, "cgroup v2 /a/b");
}

static void
test_membership_unreadable(void)
{
    static const char *const garbage[] = { "garbage\n", "0\n", "0:\n", "0::relative\n",
                                           "0::\n" };

    begin_v2("/a");
    put_v2("/a", "1073741824", 0, 0);
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        put("proc/self/cgroup", garbage[i]);
        CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
        CHECK_EQ(cores_now(), UINT32_MAX);
    }
    put("proc/self/cgroup", "");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    put("proc/self/cgroup", fixture_format("0::/%04095d\n", 0));
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    put_unreadable("proc/self/cgroup");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    CHECK_EQ(cores_now(), UINT32_MAX);
    drop("proc/self/cgroup");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    CHECK_EQ(cores_now(), 6);

    put("proc/self/cgroup", "0::/a\n");
    put_unreadable("proc/self/mountinfo");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    CHECK_EQ(cores_now(), UINT32_MAX);
}

static void
test_not_mounted(void)
{
    begin_v2("/a");
    put("proc/self/mountinfo", OTHER_MOUNTS);
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    drop("proc/self/mountinfo");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    /* The top of everything, and nobody mounted it: a machine without groups. */
    put("proc/self/cgroup", "0::/\n");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    CHECK_EQ(cores_now(), 6);
}

static void
test_container_with_own_namespace(void)
{
    begin_v2("/");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    put_v2("", "1073741824", 1000, 600);
    CHECK_MEMORY(GIB, 400, "cgroup v2 /");
    put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    CHECK_EQ(cores_now(), 3);
}

static void
test_container_with_the_hosts_namespace(void)
{
    begin_v2("/docker/5d41/job");
    put("proc/self/mountinfo",
        OTHER_MOUNTS
        "30 23 0:26 /docker/5d41 /sys/fs/cgroup ro shared:1 master:9 - cgroup2 none rw\n");
    put_v2("/job", "max", 1000, 600);
    put_v2("", "1073741824", 1000, 600);
    CHECK_MEMORY(GIB, 400, "cgroup v2 /docker/5d41");
    put_v2("/job", "1048576", 1000, 0);
    CHECK_MEMORY(MIB, 1000, "cgroup v2 /docker/5d41/job");
}

/* The group lies outside of what is mounted: the mount is the nearest visible. */
static void
test_group_outside_of_the_mount(void)
{
    static const char *const names[] = { "/../../outer", "/other", "/docker/5d412",
                                         "/docker", "/docker/5d41/../x" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        begin_v2(names[i]);
        put("proc/self/mountinfo",
            "30 23 0:26 /docker/5d41 /sys/fs/cgroup ro - cgroup2 none rw\n");
        put_v2("", "1073741824", 1000, 600);
        CHECK_MEMORY(GIB, 400, "cgroup v2 /");
    }
}

static void
test_choice_of_mount(void)
{
    static const char *const tables[] = {
        "30 23 0:26 /a /deep rw - cgroup2 c rw\n30 23 0:26 / /wide rw - cgroup2 c rw\n",
        "30 23 0:26 / /wide rw - cgroup2 c rw\n30 23 0:26 /a /deep rw - cgroup2 c rw\n",
        "30 23 0:26 /z /other rw - cgroup2 c rw\n30 23 0:26 / /wide rw - cgroup2 c rw\n",
        "30 23 0:26 / /wide rw - cgroup2 c rw\n30 23 0:26 /z /other rw - cgroup2 c rw\n",
        "30 23 0:26 / /wide rw - cgroup2 c rw\n30 23 0:26 / /deep rw - cgroup2 c rw\n",
    };

    begin_v2("/a/b");
    put("wide/memory.max", "1000\n");
    put("wide/memory.current", "1\n");
    put("wide/memory.stat", "inactive_file 0\n");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        put("proc/self/mountinfo", tables[i]);
        CHECK_MEMORY(1000, 1, "cgroup v2 /");
    }
}

static void
test_mount_lines(void)
{
    /* None of these is a mounted control group of version 2. */
    static const char *const lines[] = {
        "", "\n", "garbage\n", " - \n", " - cgroup2\n", "30 23 0:26 - cgroup2 c rw\n",
        "30 23 0:26 / - cgroup2 c rw\n", "30 23 0:26 /\n", "30 23\n", "30 - cgroup2 c\n",
        "30 23 0:26 / /sys/fs/cgroup rw cgroup2 c rw\n",
        "30 23 0:26 relative /sys/fs/cgroup rw - cgroup2 c rw\n",
        "30 23 0:26 / relative rw - cgroup2 c rw\n",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup c rw,memory\n",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup22 c rw\n",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2\n",
    };

    begin_v2("/a");
    put_v2("/a", "1073741824", 0, 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        put("proc/self/mountinfo", lines[i]);
        if (!CHECK_EQ(read_host(&no_limits).memory_limit, UNKNOWN))
            T_NOTE("mount table: %s", lines[i]);
    }
    /* Without its last newline, after an endless line, and without options. */
    put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw");
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c\n");
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    put("proc/self/mountinfo", fixture_format("%050000d\n%s", 0, V2_MOUNT));
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    put("proc/self/mountinfo", fixture_format("%s%050000d", V2_MOUNT, 0));
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
}

/* The mount table writes \040 for a blank and \134 for a backslash. */
static void
test_escaped_names(void)
{
    begin_v2("/x\\x2dy.slice/job");
    put("proc/self/mountinfo",
        "30 23 0:26 /x\\134x2dy.slice /my\\040groups\\011here rw - cgroup2 c rw\n");
    put("my groups\there/job/memory.max", "1000\n");
    put("my groups\there/job/memory.current", "7\n");
    put("my groups\there/job/memory.stat", "inactive_file 0\n");
    CHECK_MEMORY(1000, 7, "cgroup v2 /x\\\\x2dy.slice/job");
}

static void
test_escapes_at_their_borders(void)
{
    static const struct {
        const char *raw;  /* in the mount table */
        const char *name; /* what it means */
    } cases[] = {
        { "\\001", "\x01" },    { "\\077", "\x3F" },     { "\\101", "A" },
        { "\\170", "x" },       { "\\107", "G" },        { "\\377", "\xFF" },
        { "\\300", "\xC0" },    { "\\040\\040", "  " },  { "\\134040", "\\040" },
        { "\\1011", "A1" },     { "a\\1", "a\\1" },      { "a\\", "a\\" },
        { "\\400", "\\400" },   { "\\/77", "\\/77" },    { "\\081", "\\081" },
        { "\\0/1", "\\0/1" },   { "\\018", "\\018" },    { "\\01/", "\\01/" },
        { "\\04", "\\04" },     { "x101", "x101" },      { "\\z", "\\z" },
    };

    begin_v2("/");
    put("m/job/memory.max", "1000\n");
    put("m/job/memory.current", "7\n");
    put("m/job/memory.stat", "inactive_file 0\n");
    put("m/memory.max", "max\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Only when both files name the same group is its limit seen. */
        put("proc/self/cgroup", fixture_format("0::/%s/job\n", cases[i].name));
        put("proc/self/mountinfo",
            fixture_format("30 23 0:26 /%s /m rw - cgroup2 c rw\n", cases[i].raw));
        if (!CHECK_EQ(read_host(&no_limits).memory_limit, 1000))
            T_NOTE("escaped as %s", cases[i].raw);
    }
}

static void
test_long_and_hostile_names(void)
{
    char expected[256];
    berth_host host;

    begin_v2("/\x1b[2J");
    put_v2("/\x1b[2J", "1000", 7, 0);
    CHECK_MEMORY(1000, 7, "cgroup v2 /\\x1b[2J");
    begin_v2(fixture_format("/%0200d/%0200d", 0, 0));
    put_v2(fixture_format("/%0200d/%0200d", 0, 0), "1000", 7, 0);
    host = read_host(&no_limits);
    CHECK_EQ(host.memory_available, 993);
    snprintf(expected, sizeof expected, "cgroup v2 /%0200d/%043d", 0, 0);
    CHECK_STR(host.memory_limit_source, expected);
}

/* ---------------------------------------------------------------- version 1 */

static void
test_v1(void)
{
    begin_v1("/a/b");
    put_v1("/a/b", V1_NONE, 0, 0, V1_NONE);
    put_v1("/a", V1_NONE, 0, 0, V1_NONE);
    put_v1("", V1_NONE, 0, 0, V1_NONE);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    put_v1("/a", "4294967296", 3 * GIB, GIB, "4294967296");
    put_v1("/a/b", V1_NONE, 0, 0, "4294967296");
    CHECK_MEMORY(4 * GIB, 2 * GIB, "cgroup v1 /a");
    put_v1("/a/b", "1073741824", 1000, 600, "1073741824");
    CHECK_MEMORY(GIB, 400, "cgroup v1 /a/b");
    put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "-1\n");
    CHECK_MEMORY(UNKNOWN, 400, "cgroup v1 /a/b");
    /* With 64 KiB pages the largest number is another one. */
    put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854710272\n");
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854710272\n");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    drop("sys/fs/cgroup/memory");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
}

/* A limit above what the container shows: known, but its use is not. */
static void
test_v1_hidden_ancestor(void)
{
    begin_v1("/pod/c1");
    put("proc/self/mountinfo",
        "35 31 0:32 /pod/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" V1_CPU);
    put_v1("", "4294967296", 1000, 600, "4294967296");
    CHECK_MEMORY(4 * GIB, 400, "cgroup v1 /pod/c1");
    put_v1("", "4294967296", 1000, 600, "4294967295");
    CHECK_MEMORY(4 * GIB - 1, UNKNOWN, "cgroup v1, not visible");
    put_v1("", V1_NONE, 1000, 600, "2147483648");
    CHECK_MEMORY(2 * GIB, UNKNOWN, "cgroup v1, not visible");
    put_v1("", "1073741824", 1000, 600, "2147483648");
    CHECK_MEMORY(GIB, 400, "cgroup v1 /pod/c1");
    put_v1("", V1_NONE, 1000, 600, "4611686018427387904");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    put_v1("", V1_NONE, 1000, 600, "4611686018427387903");
    CHECK_MEMORY(UINT64_C(4611686018427387903), UNKNOWN, "cgroup v1, not visible");
}

static void
test_v1_controller_lists(void)
{
    static const char *const members[] = { "4:memory:/a\n", "4:cpu,memory:/a\n",
                                           "4:memory,cpu:/a\n", "4:x,memory,y:/a\n" };
    static const char *const others[] = { "4:memory2:/a\n", "4:xmemory:/a\n",
                                          "4:hugememory,memoryx:/a\n",
                                          "4:name=memory:/a\n" };

    begin_v1("/a");
    put_v1("/a", "1073741824", 0, 0, V1_NONE);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        put("proc/self/cgroup", members[i]);
        CHECK_MEMORY(GIB, 0, "cgroup v1 /a");
        put("proc/self/cgroup", others[i]);
        CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    }
    put("proc/self/cgroup", "4:memory:/a\n");
    put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup c rw,cpu\n");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup c\n");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
}

static void
test_hybrid(void)
{
    begin_v1("/a");
    put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/s\n0::/s\n");
    put("proc/self/mountinfo",
        V1_MEMORY V1_CPU
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put_v1("/a", "1073741824", 0, 0, V1_NONE);
    put("sys/fs/cgroup/unified/s/cgroup.procs", "1\n");
    CHECK_MEMORY(GIB, 0, "cgroup v1 /a");
    CHECK_EQ(cores_now(), 6);
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(cores_now(), 4);
    put("sys/fs/cgroup/unified/s/cpu.max", "200000 100000\n");
    CHECK_EQ(cores_now(), 2);
    put("sys/fs/cgroup/unified/s/memory.max", "1000\n");
    put("sys/fs/cgroup/unified/s/memory.current", "7\n");
    put("sys/fs/cgroup/unified/s/memory.stat", "inactive_file 0\n");
    CHECK_MEMORY(1000, 7, "cgroup v2 /s");
}

static uint64_t
calls_for_cores(void)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, tree);
    uint64_t calls;

    berthi_fault_disarm();
    CHECK_EQ(berthi_cgroup_cores(folder, 6), 6);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    berthi_sys_close(folder);
    return calls;
}

/* However many hierarchies there are: a longer table is longer once. */
static void
test_mounts_are_read_once(void)
{
    static char mounts[200 * 1000];
    uint64_t calls;
    size_t at = 0;

    begin_v1("/a");
    put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n0::/s\n");
    put("proc/self/mountinfo", V1_MEMORY V1_CPU V2_MOUNT);
    calls = calls_for_cores();
    while (at < sizeof mounts - 1000)
        at += (size_t)snprintf(mounts + at, sizeof mounts - at,
                               "50 27 0:9 / /run/c%zu rw - overlay overlay rw\n", at);
    (void)snprintf(mounts + at, sizeof mounts - at, "%s", V1_MEMORY V1_CPU V2_MOUNT);
    put("proc/self/mountinfo", mounts);
    CHECK_LE(calls_for_cores() - calls, strlen(mounts) / (BERTHI_PROCFS_LINE - 256) + 1);
}

/* -------------------------------------------------------------------- cores */

static void
test_cores_v2(void)
{
    static const struct {
        const char *text;
        uint32_t cores;
    } cases[] = {
        { "max 100000", 6 },       { "600000 100000", 6 },
        { "600001 100000", 6 },    { "500001 100000", 6 },
        { "500000 100000", 5 },    { "100000 100000", 1 },
        { "100001 100000", 2 },    { "1000 100000", 1 },
        { "0 100000", 1 },         { "18446744073709551615 1", 6 },
        { "1 18446744073709551615", 1 },
        { "max", UINT32_MAX },     { "100000", UINT32_MAX },
        { "100000 1", 6 },         { "100000 ", UINT32_MAX },
        { "100000 0", UINT32_MAX }, { "100000 x", UINT32_MAX },
        { "100000  100000", UINT32_MAX },
        { "100000 100000 1", UINT32_MAX },
        { "-1 100000", UINT32_MAX }, { "", UINT32_MAX },
        { "100000,100000", UINT32_MAX },
    };

    begin_v2("/a/b");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("sys/fs/cgroup/a/b/cpu.max", fixture_format("%s\n", cases[i].text));
        if (!CHECK_EQ(cores_now(), cases[i].cores))
            T_NOTE("cpu.max is \"%s\"", cases[i].text);
    }
    put("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "150000 50000\n");
    CHECK_EQ(cores_now(), 3);
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    CHECK_EQ(cores_now(), 2);
    put_unreadable("sys/fs/cgroup/a/cpu.max");
    CHECK_EQ(cores_now(), UINT32_MAX);
}

static void
test_cores_v1(void)
{
    static const struct {
        const char *quota;
        const char *period;
        uint32_t cores;
    } cases[] = {
        { "-1", "100000", 6 },         { "-1", "", 6 },
        { "200000", "100000", 2 },     { "200001", "100000", 3 },
        { "99999", "100000", 1 },      { "9999999", "1", 6 },
        { "200000", "0", UINT32_MAX }, { "200000", "", UINT32_MAX },
        { "200000", "x", UINT32_MAX }, { "200000", "5 5", UINT32_MAX },
        { "x", "100000", UINT32_MAX }, { "-2", "100000", UINT32_MAX },
        { "", "100000", UINT32_MAX },  { "max", "100000", 6 },
    };

    begin_v1("/a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", cases[i].quota);
        put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", cases[i].period);
        if (!CHECK_EQ(cores_now(), cases[i].cores))
            T_NOTE("quota \"%s\", period \"%s\"", cases[i].quota, cases[i].period);
    }
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000");
    drop("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us");
    CHECK_EQ(cores_now(), UINT32_MAX);
    put_unreadable("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us");
    CHECK_EQ(cores_now(), UINT32_MAX);
}

static void
test_cores_unknown(void)
{
    berthi_host_process process = no_limits;

    begin_v2("/a");
    process.cores = UINT32_MAX;
    CHECK_EQ(read_host(&process).cores, UINT32_MAX);
    put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    CHECK_EQ(read_host(&process).cores, UINT32_MAX);
}

static void
test_online_lists(void)
{
    static const struct {
        const char *text;
        uint32_t count;
    } cases[] = {
        { "0", 1 }, { "0-0", 1 }, { "0-1,4", 3 }, { "0,2,4-6", 5 }, { "7", 1 },
        { "0-4294967294", UINT32_MAX }, { "0-4294967293", UINT32_MAX - 1 },
        { "4294967295", UINT32_MAX }, { "0-4294967293,0-4294967293", UINT32_MAX },
        { "", UINT32_MAX }, { "a", UINT32_MAX }, { "0-", UINT32_MAX },
        { "-1", UINT32_MAX }, { "3-1", UINT32_MAX }, { "0,", UINT32_MAX },
        { "0 1", UINT32_MAX }, { "0-1-2", UINT32_MAX }, { ",0", UINT32_MAX },
    };

    begin_machine();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("sys/devices/system/cpu/online", fixture_format("%s\n", cases[i].text));
        if (!CHECK_EQ(read_host(&no_limits).cores_online, cases[i].count))
            T_NOTE("online is \"%s\"", cases[i].text);
    }
}

/* -------------------------------------------------------------------- nodes */

static void
test_nodes(void)
{
    berth_host host;

    begin_machine();
    put("sys/devices/system/node/online", "0,8,252-253\n");
    put("sys/devices/system/node/node8/meminfo", "Node 8 MemTotal: 0 kB\n");
    put("sys/devices/system/node/node252/meminfo", "Node 25 MemTotal: 1 kB\n");
    put_unreadable("sys/devices/system/node/node253/meminfo");
    host = read_host(&no_limits);
    CHECK_EQ(host.numa_node_count, 4);
    CHECK_EQ(host.numa_nodes[0], 0);
    CHECK_EQ(host.numa_nodes[1], 8);
    CHECK_EQ(host.numa_nodes[2], 252);
    CHECK_EQ(host.numa_nodes[3], 253);
    CHECK_EQ(host.numa_memory[0], 12 * GIB);
    CHECK_EQ(host.numa_memory[1], 0);
    CHECK_EQ(host.numa_memory[2], UNKNOWN);
    CHECK_EQ(host.numa_memory[3], UNKNOWN);

    put("sys/devices/system/node/online", "0-1023\n");
    host = read_host(&no_limits);
    CHECK_EQ(host.numa_node_count, BERTH_MAX_NUMA_NODES);
    CHECK_EQ(host.numa_memory[1], 4 * GIB);
    CHECK_EQ(host.numa_memory[BERTH_MAX_NUMA_NODES - 1], UNKNOWN);
    CHECK_EQ(host.memory_total, 16 * GIB);

    put("sys/devices/system/node/online", "nodes\n");
    CHECK_EQ(read_host(&no_limits).numa_node_count, 0);
    put_unreadable("sys/devices/system/node/online");
    CHECK_EQ(read_host(&no_limits).numa_node_count, 0);
    drop("sys/devices/system/node");
    host = read_host(&no_limits);
    CHECK_EQ(host.numa_node_count, 1);
    CHECK_EQ(host.numa_nodes[0], 0);
    CHECK_EQ(host.numa_memory[0], 16 * GIB);
}

/* ------------------------------------------------------------ process limits */

static void
test_process_limits(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_host_process process = no_limits;
    berth_host host;

    begin_machine();
    process.address = (berthi_host_limit){ BERTHI_READING_OK, GIB };
    host = read_host(&process);
    CHECK_EQ(host.memory_limit, GIB);
    CHECK_EQ(host.memory_used, 25600 * page);
    CHECK_EQ(host.memory_available, GIB - 25600 * page);
    CHECK_STR(host.memory_limit_source, "RLIMIT_AS");
    process.data = (berthi_host_limit){ BERTHI_READING_OK, GIB / 2 };
    host = read_host(&process);
    CHECK_EQ(host.memory_limit, GIB / 2);
    CHECK_EQ(host.memory_used, 12800 * page);
    CHECK_STR(host.memory_limit_source, "RLIMIT_DATA");
    process.data.bytes = 20 * GIB;
    process.address.bytes = 20 * GIB;
    CHECK_STR(read_host(&process).memory_limit_source, "machine");

    process.data = (berthi_host_limit){ BERTHI_READING_UNKNOWN, 0 };
    host = read_host(&process);
    CHECK_EQ(host.memory_limit, UNKNOWN);
    CHECK_EQ(host.memory_available, UNKNOWN);
    CHECK_STR(host.memory_limit_source, "RLIMIT_DATA");

    process = no_limits;
    process.locked = (berthi_host_limit){ BERTHI_READING_OK, 8 * MIB };
    host = read_host(&process);
    CHECK_EQ(host.pinned_limit, 8 * MIB);
    CHECK_EQ(host.is_pinned_unlimited, 0);
    CHECK_STR(host.memory_limit_source, "machine");
    process.locked = (berthi_host_limit){ BERTHI_READING_OK, 0 };
    CHECK_EQ(read_host(&process).pinned_limit, 0);
    process.locked = (berthi_host_limit){ BERTHI_READING_UNKNOWN, 5 };
    host = read_host(&process);
    CHECK_EQ(host.pinned_limit, UNKNOWN);
    CHECK_EQ(host.is_pinned_unlimited, 0);
    process.has_io_uring = false;
    CHECK_EQ(read_host(&process).has_io_uring, 0);
}

static void
test_statm(void)
{
    static const char *const bad[] = { "", "x", "1 2 3 4 5", "1 2 3 4 5 x", "1  2 3 4 5 6",
                                       " 1 2 3 4 5 6",
                                       "1 2 3 4 5 99999999999999999999",
                                       "1 2 3 4 5 18446744073709551615" };
    berthi_host_process process = no_limits;

    begin_machine();
    process.data = (berthi_host_limit){ BERTHI_READING_OK, GIB };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("proc/self/statm", fixture_format("%s\n", bad[i]));
        CHECK_EQ(read_host(&process).memory_used, UNKNOWN);
        CHECK_EQ(read_host(&process).memory_limit, GIB);
        CHECK_EQ(read_host(&process).memory_available, UNKNOWN);
    }
    put("proc/self/statm", "1 2 3 4 5 6");
    CHECK_EQ(read_host(&process).memory_used, 6 * berthi_sys_page_bytes());
    drop("proc/self/statm");
    CHECK_EQ(read_host(&process).memory_used, UNKNOWN);
}

/* -------------------------------------------------------------------- names */

static void
test_names(void)
{
    begin_machine();
    put("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
    CHECK_STR(read_host(&no_limits).kernel,
              "Linux 5.15.153.1-microsoft-standard-WSL2 (WSL)");
    put("proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n");
    CHECK_STR(read_host(&no_limits).kernel, "Linux 4.4.0-19041-Microsoft (WSL)");
    put("proc/sys/kernel/osrelease", "1\x1b[31m\n");
    CHECK_STR(read_host(&no_limits).kernel, "Linux 1\\x1b[31m");
    put("proc/sys/kernel/osrelease", fixture_format("%0200d\n", 0));
    CHECK_EQ(strlen(read_host(&no_limits).kernel), 63);
    drop("proc/sys/kernel/osrelease");
    CHECK_STR(read_host(&no_limits).kernel, "");
    put("proc/sys/kernel/osrelease", "6.1\n");
    drop("proc/sys/kernel/ostype");
    CHECK_STR(read_host(&no_limits).kernel, "");

    put("proc/cpuinfo", "model name\nmodel name\t:\nmodel name : x\n");
    CHECK_STR(read_host(&no_limits).cpu_name, "");
    put("proc/cpuinfo", "processor : 0\nCPU part : 0xd0c\n");
    CHECK_STR(read_host(&no_limits).cpu_name, "");
    put("proc/cpuinfo", fixture_format("model name :   %0200d\n", 0));
    CHECK_EQ(strlen(read_host(&no_limits).cpu_name), 63);
    put_unreadable("proc/cpuinfo");
    CHECK_STR(read_host(&no_limits).cpu_name, "");
}

/* ------------------------------------------------------------------- faults */

static bool
is_same_or_unknown(uint64_t actual, uint64_t truth)
{
    return actual == truth || actual == UINT64_MAX;
}

/* Whatever fails, a number is right or unknown, and no descriptor stays open. */
static void
check_under_fault(uint64_t nth, bool is_persistent, const berth_host *truth)
{
    const int before = fixture_open_fds();
    berth_host host;

    berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, is_persistent);
    host = read_host(&no_limits);
    berthi_fault_disarm();
    CHECK(is_same_or_unknown(host.memory_total, truth->memory_total));
    CHECK(is_same_or_unknown(host.memory_available, truth->memory_available));
    CHECK(host.memory_available == UNKNOWN || host.memory_limit == truth->memory_limit);
    CHECK(host.cores == truth->cores || host.cores == UINT32_MAX);
    CHECK(host.cores_online == truth->cores_online || host.cores_online == UINT32_MAX);
    CHECK(host.numa_node_count == truth->numa_node_count || host.numa_node_count == 0);
    for (uint32_t i = 0; i < host.numa_node_count; i++)
        CHECK(is_same_or_unknown(host.numa_memory[i], truth->numa_memory[i]));
    CHECK(host.kernel[0] == '\0' || strcmp(host.kernel, truth->kernel) == 0);
    CHECK(host.cpu_name[0] == '\0' || strcmp(host.cpu_name, truth->cpu_name) == 0);
    CHECK_EQ(fixture_open_fds(), before);
}

static void
test_faults(void)
{
    uint64_t calls;
    uint64_t unknown = 0;
    berth_host truth;

    begin_v1("/a/b");
    put("proc/self/cgroup", "4:memory:/a/b\n3:cpu,cpuacct:/a/b\n0::/s\n");
    put("proc/self/mountinfo", V1_MEMORY V1_CPU V2_MOUNT);
    put_v1("/a/b", V1_NONE, 0, 0, "1073741824");
    put_v1("/a", "1073741824", 1000, 600, "1073741824");
    put_v1("", V1_NONE, 0, 0, V1_NONE);
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    put_v2("/s", "2147483648", 1000, 600);
    put("sys/fs/cgroup/s/cpu.max", "300000 100000\n");

    berthi_fault_disarm();
    truth = read_host(&no_limits);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    CHECK_EQ(truth.memory_available, GIB - 400);
    CHECK_EQ(truth.cores, 2);
    CHECK_GT(calls, 50);
    for (uint64_t nth = 0; nth < calls; nth++) {
        check_under_fault(nth, false, &truth);
        check_under_fault(nth, true, &truth);
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    unknown = read_host(&no_limits).memory_available;
    berthi_fault_disarm();
    CHECK_EQ(unknown, UNKNOWN);
    T_NOTE("%llu system calls failed, once and from then on", (unsigned long long)calls);
}

/* --------------------------------------------------------------- this machine */

static void
test_this_process(void)
{
    berthi_host_process process;
    berth_host host;

    berthi_host_process_get(&process);
    CHECK_GE(process.cores, 1);
    CHECK_NE(process.cores, UINT32_MAX);
    berthi_host_read("/", &process, &host);
    CHECK_NE(host.memory_total, UNKNOWN);
    CHECK_GT(host.memory_total, 64 * MIB);
    CHECK(host.memory_available == UNKNOWN || host.memory_available <= host.memory_total);
    CHECK_LE(host.cores_online, 65536);
    CHECK_CONTAINS(host.kernel, "Linux ");
    CHECK_GE(berthi_host_worker_count(), 1);
    CHECK_LE(berthi_host_worker_count(), process.cores);

    for (uint64_t nth = 0; nth < 5; nth++) {
        berthi_host_process faulty;

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        berthi_host_process_get(&faulty);
        berthi_fault_disarm();
        CHECK_EQ(faulty.cores, nth == 0 ? UINT32_MAX : process.cores);
        CHECK_EQ(faulty.address.reading,
                 nth == 1 ? BERTHI_READING_UNKNOWN : process.address.reading);
        CHECK_EQ(faulty.data.reading,
                 nth == 2 ? BERTHI_READING_UNKNOWN : process.data.reading);
        CHECK_EQ(faulty.locked.reading,
                 nth == 3 ? BERTHI_READING_UNKNOWN : process.locked.reading);
        CHECK_EQ(faulty.has_io_uring, nth == 4 ? 0 : process.has_io_uring);
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(berthi_host_worker_count(), 1);
    berthi_fault_disarm();
}

/* Without a standard input 0 is a descriptor like any other, and is given back. */
static void
test_descriptor_zero(void)
{
    int status = -1;
    pid_t child;

    begin_v2("/a");
    put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    fflush(NULL);
    child = fork();
    if (child == 0) {
        berth_host host;
        int wrong = 0;

        close(0);
        host = read_host(&no_limits); /* the folder is 0 */
        wrong += host.cores != 2 || host.memory_total != 16 * GIB;
        wrong += dup(1) != 0;
        close(0);
        wrong += berthi_host_worker_count() < 1;
        wrong += dup(1) != 0;
        _exit(wrong);
    }
    T_REQUIRE(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    child = fork();
    if (child == 0) {
        char text[64];
        int wrong = 0;

        close(0); /* the file is 0 */
        wrong += berthi_procfs_line(BERTHI_SYS_AT_CWD, "/proc/self/statm", text,
                                    sizeof text) != BERTHI_READING_OK;
        wrong += dup(1) != 0;
        _exit(wrong);
    }
    T_REQUIRE(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_machine);
    T_RUN(test_nothing_there);
    T_RUN(test_meminfo);
    T_RUN(test_v2);
    T_RUN(test_v2_wider_than_the_machine);
    T_RUN(test_v2_numbers);
    T_RUN(test_unreadable_is_unknown);
    T_RUN(test_membership_unreadable);
    T_RUN(test_not_mounted);
    T_RUN(test_container_with_own_namespace);
    T_RUN(test_container_with_the_hosts_namespace);
    T_RUN(test_group_outside_of_the_mount);
    T_RUN(test_choice_of_mount);
    T_RUN(test_mount_lines);
    T_RUN(test_escaped_names);
    T_RUN(test_escapes_at_their_borders);
    T_RUN(test_long_and_hostile_names);
    T_RUN(test_v1);
    T_RUN(test_v1_hidden_ancestor);
    T_RUN(test_v1_controller_lists);
    T_RUN(test_hybrid);
    T_RUN(test_mounts_are_read_once);
    T_RUN(test_cores_v2);
    T_RUN(test_cores_v1);
    T_RUN(test_cores_unknown);
    T_RUN(test_online_lists);
    T_RUN(test_nodes);
    T_RUN(test_process_limits);
    T_RUN(test_statm);
    T_RUN(test_names);
    T_RUN(test_faults);
    T_RUN(test_descriptor_zero);
    T_RUN(test_this_process);
    T_MAIN_END;
}
