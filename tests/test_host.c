/* SPDX-License-Identifier: Apache-2.0 */
/* test_host.c - machines that are described by a few files. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu.h"
#include "kernels/fault.h"
#include "kernels/host.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/machine.h"
#include "tests/t.h"

/* ------------------------------------------------------------- plain machine */

static void
test_machine(void)
{
    berth_host host;

    machine_begin();
    CHECK_MEMORY(16 * GIB, 6 * GIB, "machine");
    host = machine_read(&machine_process);
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

    machine_begin_empty();
    host = machine_read(&machine_process);
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
    berthi_host_read("/no/such/folder", &machine_process, &host);
    CHECK_EQ(host.memory_available, UNKNOWN);
    CHECK_EQ(host.cores, UINT32_MAX);
    CHECK_EQ(host.numa_node_count, 0);
}

static void
test_meminfo(void)
{
    machine_begin();
    machine_put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 33554432 kB\n");
    CHECK_MEMORY(16 * GIB, 0, "machine");
    machine_put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 5 kB\n");
    CHECK_MEMORY(16 * GIB, UNKNOWN, "machine");
    machine_put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: lots kB\n");
    CHECK_MEMORY(16 * GIB, UNKNOWN, "machine");
    machine_put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 0 kB\n");
    CHECK_MEMORY(16 * GIB, 16 * GIB, "machine");

    static const char *const bad[] = {
        "MemTotal: 16777216\n", "MemTotal: 16777216 MB\n", "MemTotal:\n",
        "MemTotal: -1 kB\n", "MemTotal: 18446744073709551616 kB\n",
        "MemTotal: 18014398509481984 kB\n", "", "\n", "memtotal: 5 kB\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        machine_put("proc/meminfo", fixture_format("%sMemAvailable: 1 kB\n", bad[i]));
        CHECK_EQ(machine_read(&machine_process).memory_total, UNKNOWN);
        CHECK_EQ(machine_read(&machine_process).memory_available, UNKNOWN);
    }
    machine_put("proc/meminfo", "MemTotal:\t18014398509481983 kB\nMemAvailable: 1 kB");
    CHECK_EQ(machine_read(&machine_process).memory_total, UINT64_C(18014398509481983) * 1024);
    CHECK_EQ(machine_read(&machine_process).memory_available, 1024);
    machine_put_unreadable("proc/meminfo");
    CHECK_EQ(machine_read(&machine_process).memory_total, UNKNOWN);
}

/* -------------------------------------------------------------------- nodes */

static void
test_nodes(void)
{
    berth_host host;

    machine_begin();
    machine_put("sys/devices/system/node/online", "0,8,252-253\n");
    machine_put("sys/devices/system/node/node8/meminfo", "Node 8 MemTotal: 0 kB\n");
    machine_put("sys/devices/system/node/node252/meminfo", "Node 25 MemTotal: 1 kB\n");
    machine_put_unreadable("sys/devices/system/node/node253/meminfo");
    host = machine_read(&machine_process);
    CHECK_EQ(host.numa_node_count, 4);
    CHECK_EQ(host.numa_nodes[0], 0);
    CHECK_EQ(host.numa_nodes[1], 8);
    CHECK_EQ(host.numa_nodes[2], 252);
    CHECK_EQ(host.numa_nodes[3], 253);
    CHECK_EQ(host.numa_memory[0], 12 * GIB);
    CHECK_EQ(host.numa_memory[1], 0);
    CHECK_EQ(host.numa_memory[2], UNKNOWN);
    CHECK_EQ(host.numa_memory[3], UNKNOWN);

    machine_put("sys/devices/system/node/online", "0-1023\n");
    host = machine_read(&machine_process);
    CHECK_EQ(host.numa_node_count, BERTH_MAX_NUMA_NODES);
    CHECK_EQ(host.numa_memory[1], 4 * GIB);
    CHECK_EQ(host.numa_memory[BERTH_MAX_NUMA_NODES - 1], UNKNOWN);
    CHECK_EQ(host.memory_total, 16 * GIB);

    machine_put("sys/devices/system/node/online", "nodes\n");
    CHECK_EQ(machine_read(&machine_process).numa_node_count, 0);
    machine_put_unreadable("sys/devices/system/node/online");
    CHECK_EQ(machine_read(&machine_process).numa_node_count, 0);
    machine_drop("sys/devices/system/node");
    host = machine_read(&machine_process);
    CHECK_EQ(host.numa_node_count, 1);
    CHECK_EQ(host.numa_nodes[0], 0);
    CHECK_EQ(host.numa_memory[0], 16 * GIB);
}

/* ------------------------------------------------------------ process limits */

static void
test_process_limits(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_host_process process = machine_process;
    berth_host host;

    machine_begin();
    process.address = (berthi_host_limit){ BERTHI_READING_OK, GIB };
    host = machine_read(&process);
    CHECK_EQ(host.memory_limit, GIB);
    CHECK_EQ(host.memory_used, 25600 * page);
    CHECK_EQ(host.memory_available, GIB - 25600 * page);
    CHECK_STR(host.memory_limit_source, "RLIMIT_AS");
    process.data = (berthi_host_limit){ BERTHI_READING_OK, GIB / 2 };
    host = machine_read(&process);
    CHECK_EQ(host.memory_limit, GIB / 2);
    CHECK_EQ(host.memory_used, 12800 * page);
    CHECK_STR(host.memory_limit_source, "RLIMIT_DATA");
    process.data.bytes = 20 * GIB;
    process.address.bytes = 20 * GIB;
    CHECK_STR(machine_read(&process).memory_limit_source, "machine");

    process.data = (berthi_host_limit){ BERTHI_READING_UNKNOWN, 0 };
    host = machine_read(&process);
    CHECK_EQ(host.memory_limit, UNKNOWN);
    CHECK_EQ(host.memory_available, UNKNOWN);
    CHECK_STR(host.memory_limit_source, "RLIMIT_DATA");

    process = machine_process;
    process.locked = (berthi_host_limit){ BERTHI_READING_OK, 8 * MIB };
    host = machine_read(&process);
    CHECK_EQ(host.pinned_limit, 8 * MIB);
    CHECK_EQ(host.is_pinned_unlimited, 0);
    CHECK_STR(host.memory_limit_source, "machine");
    process.locked = (berthi_host_limit){ BERTHI_READING_OK, 0 };
    CHECK_EQ(machine_read(&process).pinned_limit, 0);
    process.locked = (berthi_host_limit){ BERTHI_READING_UNKNOWN, 5 };
    host = machine_read(&process);
    CHECK_EQ(host.pinned_limit, UNKNOWN);
    CHECK_EQ(host.is_pinned_unlimited, 0);
    process.has_io_uring = false;
    CHECK_EQ(machine_read(&process).has_io_uring, 0);
}

static void
test_statm(void)
{
    static const char *const bad[] = { "", "x", "1 2 3 4 5", "1 2 3 4 5 x", "1  2 3 4 5 6",
                                       " 1 2 3 4 5 6",
                                       "1 2 3 4 5 99999999999999999999",
                                       "1 2 3 4 5 18446744073709551615" };
    berthi_host_process process = machine_process;

    machine_begin();
    process.data = (berthi_host_limit){ BERTHI_READING_OK, GIB };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        machine_put("proc/self/statm", fixture_format("%s\n", bad[i]));
        CHECK_EQ(machine_read(&process).memory_used, UNKNOWN);
        CHECK_EQ(machine_read(&process).memory_limit, GIB);
        CHECK_EQ(machine_read(&process).memory_available, UNKNOWN);
    }
    machine_put("proc/self/statm", "1 2 3 4 5 6");
    CHECK_EQ(machine_read(&process).memory_used, 6 * berthi_sys_page_bytes());
    machine_drop("proc/self/statm");
    CHECK_EQ(machine_read(&process).memory_used, UNKNOWN);
}

/* -------------------------------------------------------------------- names */

static void
test_names(void)
{
    machine_begin();
    machine_put("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
    CHECK_STR(machine_read(&machine_process).kernel,
              "Linux 5.15.153.1-microsoft-standard-WSL2 (WSL)");
    machine_put("proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n");
    CHECK_STR(machine_read(&machine_process).kernel, "Linux 4.4.0-19041-Microsoft (WSL)");
    machine_put("proc/sys/kernel/osrelease", "1\x1b[31m\n");
    CHECK_STR(machine_read(&machine_process).kernel, "Linux 1\\x1b[31m");
    machine_put("proc/sys/kernel/osrelease", fixture_format("%0200d\n", 0));
    CHECK_EQ(strlen(machine_read(&machine_process).kernel), 63);
    machine_drop("proc/sys/kernel/osrelease");
    CHECK_STR(machine_read(&machine_process).kernel, "");
    machine_put("proc/sys/kernel/osrelease", "6.1\n");
    machine_drop("proc/sys/kernel/ostype");
    CHECK_STR(machine_read(&machine_process).kernel, "");

    machine_put("proc/cpuinfo", "model name\nmodel name\t:\nmodel name : x\n");
    CHECK_STR(machine_read(&machine_process).cpu_name, "");
    machine_put("proc/cpuinfo", "processor : 0\nCPU part : 0xd0c\n");
    CHECK_STR(machine_read(&machine_process).cpu_name, "");
    machine_put("proc/cpuinfo", fixture_format("model name :   %0200d\n", 0));
    CHECK_EQ(strlen(machine_read(&machine_process).cpu_name), 63);
    machine_put_unreadable("proc/cpuinfo");
    CHECK_STR(machine_read(&machine_process).cpu_name, "");
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
    host = machine_read(&machine_process);
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

    machine_begin_v1("/a/b");
    machine_put("proc/self/cgroup", "4:memory:/a/b\n3:cpu,cpuacct:/a/b\n0::/s\n");
    machine_put("proc/self/mountinfo", V1_MEMORY V1_CPU V2_MOUNT);
    machine_put_v1("/a/b", V1_NONE, 0, 0, "1073741824");
    machine_put_v1("/a", "1073741824", 1000, 600, "1073741824");
    machine_put_v1("", V1_NONE, 0, 0, V1_NONE);
    machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
    machine_put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    machine_put_v2("/s", "2147483648", 1000, 600);
    machine_put("sys/fs/cgroup/s/cpu.max", "300000 100000\n");

    berthi_fault_disarm();
    truth = machine_read(&machine_process);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    CHECK_EQ(truth.memory_available, GIB - 400);
    CHECK_EQ(truth.cores, 2);
    CHECK_GT(calls, 50);
    for (uint64_t nth = 0; nth < calls; nth++) {
        check_under_fault(nth, false, &truth);
        check_under_fault(nth, true, &truth);
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    unknown = machine_read(&machine_process).memory_available;
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

    machine_begin_v2("/a");
    machine_put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    fflush(NULL);
    child = fork();
    if (child == 0) {
        berth_host host;
        int wrong = 0;

        close(0);
        host = machine_read(&machine_process); /* the folder is 0 */
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
    T_RUN(test_nodes);
    T_RUN(test_process_limits);
    T_RUN(test_statm);
    T_RUN(test_names);
    T_RUN(test_faults);
    T_RUN(test_descriptor_zero);
    T_RUN(test_this_process);
    T_MAIN_END;
}
