/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup_find.h - which control groups this process is in, and where they can be seen.
 *
 * Both hierarchies come out of one look at each of the kernel's two files: of these the
 * mount table is long where containers are, and the kernel writes it anew for each reader.
 */
#ifndef BERTH_KERNELS_CGROUP_FIND_H
#define BERTH_KERNELS_CGROUP_FIND_H

#include "kernels/procfs.h"

#define BERTHI_CGROUP_PATH 4096
#define BERTHI_CGROUPS 2u

/* The process's group of one hierarchy. */
typedef struct berthi_cgroup {
    const char *controller; /* NULL: version 2 */
    berthi_reading reading; /* OK: everything below is there */
    bool is_mounted;
    bool is_above;                  /* what is mounted shows the group */
    char mount[BERTHI_CGROUP_PATH]; /* where that is, relative to the root */
    char base[BERTHI_CGROUP_PATH];  /* which group it shows, "" for the top */
    char path[BERTHI_CGROUP_PATH];  /* the process's below it, "" for base itself */
} berthi_cgroup;

/* That of a controller of version 1, and that of version 2. */
void berthi_cgroup_find(int root, const char *controller,
                        berthi_cgroup groups[BERTHI_CGROUPS]);

#endif
