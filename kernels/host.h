/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - what this machine is and how much of it this process may use.
 *
 * Everything that lies in files is read below a root folder and everything
 * else comes in as a struct, so that tests can describe any machine.
 */
#ifndef BERTH_KERNELS_HOST_H
#define BERTH_KERNELS_HOST_H

#include <stdint.h>

#include "kernels/procfs.h"
#include "loader/berth.h"

typedef struct berthi_host_limit {
    berthi_reading reading; /* ABSENT: there is no limit */
    uint64_t bytes;
} berthi_host_limit;

/* What only system calls can tell. */
typedef struct berthi_host_process {
    uint32_t cores; /* affinity; UINT32_MAX: unknown */
    berthi_host_limit address; /* RLIMIT_AS */
    berthi_host_limit data;    /* RLIMIT_DATA */
    berthi_host_limit locked;  /* RLIMIT_MEMLOCK */
    bool has_io_uring;
} berthi_host_process;

void berthi_host_process_get(berthi_host_process *process);

/*
 * Fills all of `host` but what higher layers know (libraries, GPUs). Allocates
 * nothing and cannot fail: what cannot be read is unknown.
 */
void berthi_host_read(const char *root, const berthi_host_process *process,
                      berth_host *host);

/* Of the ceiling that leaves this process least; UINT64_MAX: unknown. */
uint64_t berthi_host_memory_limit(const char *root);

/* Nodes of the machine that are online; 1: memory is memory; 0: unknown. */
uint32_t berthi_host_node_count(const char *root);

/* Threads worth starting for work that computes: at least 1, never unknown. */
uint32_t berthi_host_worker_count(void);

#endif
