/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - for the tests of hosts: machines that are described by a few files. */
#ifndef BERTH_TESTS_MACHINE_H
#define BERTH_TESTS_MACHINE_H

#include <stdint.h>

#include "kernels/host.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define UNKNOWN UINT64_MAX

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define V1_MEMORY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V1_CPU "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHER_MOUNTS                                                                       \
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"                                      \
    "27 1 254:0 / / rw,relatime master:1 - ext4 /dev/vda rw,discard\n"
/* No limit, as version 1 writes it. */
#define V1_NONE "9223372036854771712"

/* Six cores, and no limits of the process. */
extern const berthi_host_process machine_process;

/* A machine without files; the next is another. */
void machine_begin_empty(void);
/* 16 GiB of which 10 are free, 8 processors, 2 nodes, no control groups. */
void machine_begin(void);
/* The same in this group, of which nothing else is known. */
void machine_begin_v2(const char *name);
void machine_begin_v1(const char *name);
/* The folder whose files they are. */
const char *machine_tree(void);

void machine_put(const char *path, const char *text);
/* A file that opens and cannot be read: a folder in its place gives EISDIR. */
void machine_put_unreadable(const char *path);
void machine_drop(const char *path);
/* One level of version 2: limit as text, use and droppable cache. */
void machine_put_v2(const char *level, const char *limit, uint64_t current, uint64_t cache);
void machine_put_v1(const char *level, const char *limit, uint64_t usage, uint64_t cache,
                    const char *hierarchical);

berth_host machine_read(const berthi_host_process *process);
uint32_t machine_cores(void);
/* The limit, what is used of it, and whose it is; UNKNOWN: not known. */
void machine_check_memory(int line, uint64_t limit, uint64_t used, const char *source);
#define CHECK_MEMORY(...) machine_check_memory(__LINE__, __VA_ARGS__)

#endif
