/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_groups.c - what control groups of both versions leave of a machine. */
#include <stdio.h>
#include <string.h>

#include "kernels/cgroup.h"
#include "kernels/fault.h"
#include "kernels/host.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/machine.h"
#include "tests/t.h"

/* ---------------------------------------------------------------- version 2 */

static void
test_v2(void)
{
    machine_begin_v2("/a/b");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine"); /* no memory controller */
    machine_put_v2("/a/b", "max", 3 * GIB, GIB);
    machine_put_v2("/a", "max", 3 * GIB, GIB);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_put_v2("/a/b", "8589934592", 3 * GIB, GIB);
    CHECK_MEMORY(8 * GIB, 2 * GIB, "cgroup v2 /a/b");
    machine_put_v2("/a", "4294967296", 3 * GIB, GIB);
    CHECK_MEMORY(4 * GIB, 2 * GIB, "cgroup v2 /a");
    /* A wide ancestor that is nearly full binds more than a narrow empty group. */
    machine_put_v2("/a", "12884901888", 12 * GIB, GIB / 2);
    CHECK_MEMORY(12 * GIB, 12 * GIB - GIB / 2, "cgroup v2 /a");
    /* Above the limit, and more cache than use: never below zero. */
    machine_put_v2("/a", "1073741824", 3 * GIB, GIB);
    CHECK_MEMORY(GIB, 2 * GIB, "cgroup v2 /a");
    machine_put_v2("/a", "1073741824", 3, 4);
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    machine_put_v2("/a", "0", 0, 0);
    CHECK_MEMORY(0, 0, "cgroup v2 /a");
    /* The group at the mount has one too when this is a container. */
    machine_put_v2("/a", "max", 0, 0);
    machine_put_v2("", "2147483648", 0, 0);
    CHECK_MEMORY(2 * GIB, 0, "cgroup v2 /");
}

static void
test_v2_wider_than_the_machine(void)
{
    machine_begin_v2("/a");
    machine_put_v2("/a", "109951162777600", GIB, 0);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    /* The same headroom: the smaller limit is the one to name. */
    machine_put_v2("/a", "10737418240", 0, 0);
    CHECK_MEMORY(10 * GIB, 0, "cgroup v2 /a");
    machine_put_v2("/a", "17179869184", 6 * GIB, 0);
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

    machine_begin_v2("/a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine_put_v2("/a", cases[i].text, 0, 0);
        if (!CHECK_EQ(machine_read(&machine_process).memory_limit, cases[i].limit))
            T_NOTE("memory.max is \"%s\"", cases[i].text);
        CHECK_EQ(machine_read(&machine_process).memory_available == UNKNOWN,
                 cases[i].limit == UNKNOWN);
    }
    machine_put_v2("/a", "4611686018427387903", 0, 0);
    CHECK_EQ(machine_read(&machine_process).memory_limit, 16 * GIB);
    machine_put("proc/meminfo", "MemTotal: 18014398509481983 kB\n"
                                "MemAvailable: 18014398509481983 kB\n");
    CHECK_EQ(machine_read(&machine_process).memory_limit, UINT64_C(4611686018427387903));
}

static void
test_unreadable_is_unknown(void)
{
    machine_begin_v2("/a/b");
    machine_put_v2("/a/b", "max", 0, 0);
    machine_put_v2("/a", "8589934592", 0, 0);
    CHECK_MEMORY(8 * GIB, 0, "cgroup v2 /a");
    /* Whatever else is known, an unknown limit may be lower. */
    machine_put_unreadable("sys/fs/cgroup/a/b/memory.max");
    CHECK_MEMORY(UNKNOWN, 0, "cgroup v2 /a/b");
    machine_put_v2("/a/b", "1073741824", 0, 0);
    machine_put_unreadable("sys/fs/cgroup/a/memory.current");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    machine_put_v2("/a", "8589934592", 0, 0);
    machine_put_unreadable("sys/fs/cgroup/a/memory.stat");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    machine_drop("sys/fs/cgroup/a/memory.stat");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    machine_put("sys/fs/cgroup/a/memory.stat", "inactive_file many\n");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    machine_put("sys/fs/cgroup/a/memory.stat", "inactive_file 5 kB\n");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    machine_put("sys/fs/cgroup/a/memory.stat", "inactive_file_other 1\ninactive_file 4096\n");
    machine_put("sys/fs/cgroup/a/memory.current", "8589934592\n");
    CHECK_MEMORY(8 * GIB, 8 * GIB - 4096, "cgroup v2 /a");
    machine_drop("sys/fs/cgroup/a/memory.current");
    CHECK_MEMORY(8 * GIB, UNKNOWN, "cgroup v2 /a");
    /* An unknown limit hides an unknown use, whichever is met first. */
    machine_put_unreadable("sys/fs/cgroup/memory.max");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup v2 /");
    machine_put_unreadable("sys/fs/cgroup/a/b/memory.max");
    machine_drop("sys/fs/cgroup/memory.max");
    CHECK_MEMORY(UNKNOWN, 0, "cgroup v2 /a/b");
}

static void
test_membership_unreadable(void)
{
    static const char *const garbage[] = { "garbage\n", "0\n", "0:\n", "0::relative\n",
                                           "0::\n" };

    machine_begin_v2("/a");
    machine_put_v2("/a", "1073741824", 0, 0);
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        machine_put("proc/self/cgroup", garbage[i]);
        CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
        CHECK_EQ(machine_cores(), UINT32_MAX);
    }
    machine_put("proc/self/cgroup", "");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_put("proc/self/cgroup", fixture_format("0::/%04095d\n", 0));
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    machine_put_unreadable("proc/self/cgroup");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    CHECK_EQ(machine_cores(), UINT32_MAX);
    machine_drop("proc/self/cgroup");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    CHECK_EQ(machine_cores(), 6);

    machine_put("proc/self/cgroup", "0::/a\n");
    machine_put_unreadable("proc/self/mountinfo");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    CHECK_EQ(machine_cores(), UINT32_MAX);
}

static void
test_not_mounted(void)
{
    machine_begin_v2("/a");
    machine_put("proc/self/mountinfo", OTHER_MOUNTS);
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    machine_drop("proc/self/mountinfo");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    /* The top of everything, and nobody mounted it: a machine without groups. */
    machine_put("proc/self/cgroup", "0::/\n");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    CHECK_EQ(machine_cores(), 6);
}

static void
test_container_with_own_namespace(void)
{
    machine_begin_v2("/");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_put_v2("", "1073741824", 1000, 600);
    CHECK_MEMORY(GIB, 400, "cgroup v2 /");
    machine_put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    CHECK_EQ(machine_cores(), 3);
}

static void
test_container_with_the_hosts_namespace(void)
{
    machine_begin_v2("/docker/5d41/job");
    machine_put("proc/self/mountinfo",
                OTHER_MOUNTS
                "30 23 0:26 /docker/5d41 /sys/fs/cgroup ro shared:1 master:9 - cgroup2 none rw\n");
    machine_put_v2("/job", "max", 1000, 600);
    machine_put_v2("", "1073741824", 1000, 600);
    CHECK_MEMORY(GIB, 400, "cgroup v2 /docker/5d41");
    machine_put_v2("/job", "1048576", 1000, 0);
    CHECK_MEMORY(MIB, 1000, "cgroup v2 /docker/5d41/job");
}

/* The group lies outside of what is mounted: the mount is the nearest visible. */
static void
test_group_outside_of_the_mount(void)
{
    static const char *const names[] = { "/../../outer", "/other", "/docker/5d412",
                                         "/docker", "/docker/5d41/../x" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        machine_begin_v2(names[i]);
        machine_put("proc/self/mountinfo",
                    "30 23 0:26 /docker/5d41 /sys/fs/cgroup ro - cgroup2 none rw\n");
        machine_put_v2("", "1073741824", 1000, 600);
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

    machine_begin_v2("/a/b");
    machine_put("wide/memory.max", "1000\n");
    machine_put("wide/memory.current", "1\n");
    machine_put("wide/memory.stat", "inactive_file 0\n");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        machine_put("proc/self/mountinfo", tables[i]);
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

    machine_begin_v2("/a");
    machine_put_v2("/a", "1073741824", 0, 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        machine_put("proc/self/mountinfo", lines[i]);
        if (!CHECK_EQ(machine_read(&machine_process).memory_limit, UNKNOWN))
            T_NOTE("mount table: %s", lines[i]);
    }
    /* Without its last newline, after an endless line, and without options. */
    machine_put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw");
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    machine_put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c\n");
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    machine_put("proc/self/mountinfo", fixture_format("%050000d\n%s", 0, V2_MOUNT));
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
    machine_put("proc/self/mountinfo", fixture_format("%s%050000d", V2_MOUNT, 0));
    CHECK_MEMORY(GIB, 0, "cgroup v2 /a");
}

/* The mount table writes \040 for a blank and \134 for a backslash. */
static void
test_escaped_names(void)
{
    machine_begin_v2("/x\\x2dy.slice/job");
    machine_put("proc/self/mountinfo",
                "30 23 0:26 /x\\134x2dy.slice /my\\040groups\\011here rw - cgroup2 c rw\n");
    machine_put("my groups\there/job/memory.max", "1000\n");
    machine_put("my groups\there/job/memory.current", "7\n");
    machine_put("my groups\there/job/memory.stat", "inactive_file 0\n");
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

    machine_begin_v2("/");
    machine_put("m/job/memory.max", "1000\n");
    machine_put("m/job/memory.current", "7\n");
    machine_put("m/job/memory.stat", "inactive_file 0\n");
    machine_put("m/memory.max", "max\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Only when both files name the same group is its limit seen. */
        machine_put("proc/self/cgroup", fixture_format("0::/%s/job\n", cases[i].name));
        machine_put("proc/self/mountinfo",
                    fixture_format("30 23 0:26 /%s /m rw - cgroup2 c rw\n", cases[i].raw));
        if (!CHECK_EQ(machine_read(&machine_process).memory_limit, 1000))
            T_NOTE("escaped as %s", cases[i].raw);
    }
}

static void
test_long_and_hostile_names(void)
{
    char expected[256];
    berth_host host;

    machine_begin_v2("/\x1b[2J");
    machine_put_v2("/\x1b[2J", "1000", 7, 0);
    CHECK_MEMORY(1000, 7, "cgroup v2 /\\x1b[2J");
    machine_begin_v2(fixture_format("/%0200d/%0200d", 0, 0));
    machine_put_v2(fixture_format("/%0200d/%0200d", 0, 0), "1000", 7, 0);
    host = machine_read(&machine_process);
    CHECK_EQ(host.memory_available, 993);
    snprintf(expected, sizeof expected, "cgroup v2 /%0200d/%043d", 0, 0);
    CHECK_STR(host.memory_limit_source, expected);
}

/* ---------------------------------------------------------------- version 1 */

static void
test_v1(void)
{
    machine_begin_v1("/a/b");
    machine_put_v1("/a/b", V1_NONE, 0, 0, V1_NONE);
    machine_put_v1("/a", V1_NONE, 0, 0, V1_NONE);
    machine_put_v1("", V1_NONE, 0, 0, V1_NONE);
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_put_v1("/a", "4294967296", 3 * GIB, GIB, "4294967296");
    machine_put_v1("/a/b", V1_NONE, 0, 0, "4294967296");
    CHECK_MEMORY(4 * GIB, 2 * GIB, "cgroup v1 /a");
    machine_put_v1("/a/b", "1073741824", 1000, 600, "1073741824");
    CHECK_MEMORY(GIB, 400, "cgroup v1 /a/b");
    machine_put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "-1\n");
    CHECK_MEMORY(UNKNOWN, 400, "cgroup v1 /a/b");
    /* With 64 KiB pages the largest number is another one. */
    machine_put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854710272\n");
    machine_put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854710272\n");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_drop("sys/fs/cgroup/memory");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
}

/* A limit above what the container shows: known, but its use is not. */
static void
test_v1_hidden_ancestor(void)
{
    machine_begin_v1("/pod/c1");
    machine_put("proc/self/mountinfo",
                "35 31 0:32 /pod/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" V1_CPU);
    machine_put_v1("", "4294967296", 1000, 600, "4294967296");
    CHECK_MEMORY(4 * GIB, 400, "cgroup v1 /pod/c1");
    machine_put_v1("", "4294967296", 1000, 600, "4294967295");
    CHECK_MEMORY(4 * GIB - 1, UNKNOWN, "cgroup v1, not visible");
    machine_put_v1("", V1_NONE, 1000, 600, "2147483648");
    CHECK_MEMORY(2 * GIB, UNKNOWN, "cgroup v1, not visible");
    machine_put_v1("", "1073741824", 1000, 600, "2147483648");
    CHECK_MEMORY(GIB, 400, "cgroup v1 /pod/c1");
    machine_put_v1("", V1_NONE, 1000, 600, "4611686018427387904");
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    machine_put_v1("", V1_NONE, 1000, 600, "4611686018427387903");
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

    machine_begin_v1("/a");
    machine_put_v1("/a", "1073741824", 0, 0, V1_NONE);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        machine_put("proc/self/cgroup", members[i]);
        CHECK_MEMORY(GIB, 0, "cgroup v1 /a");
        machine_put("proc/self/cgroup", others[i]);
        CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    }
    machine_put("proc/self/cgroup", "4:memory:/a\n");
    machine_put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup c rw,cpu\n");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
    machine_put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup c\n");
    CHECK_MEMORY(UNKNOWN, UNKNOWN, "cgroup");
}

static void
test_hybrid(void)
{
    machine_begin_v1("/a");
    machine_put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/s\n0::/s\n");
    machine_put("proc/self/mountinfo",
                V1_MEMORY V1_CPU
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    machine_put_v1("/a", "1073741824", 0, 0, V1_NONE);
    machine_put("sys/fs/cgroup/unified/s/cgroup.procs", "1\n");
    CHECK_MEMORY(GIB, 0, "cgroup v1 /a");
    CHECK_EQ(machine_cores(), 6);
    machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
    machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(machine_cores(), 4);
    machine_put("sys/fs/cgroup/unified/s/cpu.max", "200000 100000\n");
    CHECK_EQ(machine_cores(), 2);
    machine_put("sys/fs/cgroup/unified/s/memory.max", "1000\n");
    machine_put("sys/fs/cgroup/unified/s/memory.current", "7\n");
    machine_put("sys/fs/cgroup/unified/s/memory.stat", "inactive_file 0\n");
    CHECK_MEMORY(1000, 7, "cgroup v2 /s");
}

static uint64_t
calls_for_cores(void)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, machine_tree());
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

    machine_begin_v1("/a");
    machine_put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n0::/s\n");
    machine_put("proc/self/mountinfo", V1_MEMORY V1_CPU V2_MOUNT);
    calls = calls_for_cores();
    while (at < sizeof mounts - 1000)
        at += (size_t)snprintf(mounts + at, sizeof mounts - at,
                               "50 27 0:9 / /run/c%zu rw - overlay overlay rw\n", at);
    (void)snprintf(mounts + at, sizeof mounts - at, "%s", V1_MEMORY V1_CPU V2_MOUNT);
    machine_put("proc/self/mountinfo", mounts);
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

    machine_begin_v2("/a/b");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine_put("sys/fs/cgroup/a/b/cpu.max", fixture_format("%s\n", cases[i].text));
        if (!CHECK_EQ(machine_cores(), cases[i].cores))
            T_NOTE("cpu.max is \"%s\"", cases[i].text);
    }
    machine_put("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    machine_put("sys/fs/cgroup/a/cpu.max", "150000 50000\n");
    CHECK_EQ(machine_cores(), 3);
    machine_put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    CHECK_EQ(machine_cores(), 2);
    machine_put_unreadable("sys/fs/cgroup/a/cpu.max");
    CHECK_EQ(machine_cores(), UINT32_MAX);
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

    machine_begin_v1("/a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", cases[i].quota);
        machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", cases[i].period);
        if (!CHECK_EQ(machine_cores(), cases[i].cores))
            T_NOTE("quota \"%s\", period \"%s\"", cases[i].quota, cases[i].period);
    }
    machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000");
    machine_drop("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us");
    CHECK_EQ(machine_cores(), UINT32_MAX);
    machine_put_unreadable("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us");
    CHECK_EQ(machine_cores(), UINT32_MAX);
}

static void
test_cores_unknown(void)
{
    berthi_host_process process = machine_process;

    machine_begin_v2("/a");
    process.cores = UINT32_MAX;
    CHECK_EQ(machine_read(&process).cores, UINT32_MAX);
    machine_put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    CHECK_EQ(machine_read(&process).cores, UINT32_MAX);
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

    machine_begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine_put("sys/devices/system/cpu/online", fixture_format("%s\n", cases[i].text));
        if (!CHECK_EQ(machine_read(&machine_process).cores_online, cases[i].count))
            T_NOTE("online is \"%s\"", cases[i].text);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
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
    T_MAIN_END;
}
