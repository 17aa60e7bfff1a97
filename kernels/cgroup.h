/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h - what control groups, version 1 and 2, leave this process.
 *
 * A limit may be set on any ancestor, so every level from the process's group
 * up to the top of what is mounted counts. `root` is a folder descriptor that
 * stands for "/": tests give trees of their own.
 *
 *   no such file, "max"         no limit at this level
 *   unreadable, no number       unknown: neither 0 nor infinite
 *   group named, not mounted    unknown, except for the topmost group
 */
#ifndef BERTH_KERNELS_CGROUP_H
#define BERTH_KERNELS_CGROUP_H

#include <stdint.h>

/* Something that bounds the memory of this process; UINT64_MAX: unknown. */
typedef struct berthi_ceiling {
    uint64_t limit;
    uint64_t used;
    char source[256]; /* "machine", "cgroup v2 /a/b", "RLIMIT_AS" */
} berthi_ceiling;

/* Bytes below the ceiling that are free; UINT64_MAX: unknown. */
uint64_t berthi_ceiling_headroom(const berthi_ceiling *ceiling);

/*
 * Replaces `ceiling` by `other` when that leaves less: first a limit that is
 * unknown, then an unknown use, then the smaller headroom, then the smaller
 * limit. Of equals the first one stays.
 */
void berthi_ceiling_lower(berthi_ceiling *ceiling, const berthi_ceiling *other);

/* Lowers `ceiling` by each limit on memory, reclaimable cache left out of its use. */
void berthi_cgroup_memory(int root, berthi_ceiling *ceiling);

/* `cores`, or what quotas leave of them, rounded up; UINT32_MAX: unknown. */
uint32_t berthi_cgroup_cores(int root, uint32_t cores);

#endif
