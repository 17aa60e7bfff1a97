/* SPDX-License-Identifier: Apache-2.0 */
/* descriptors.h - which descriptors a program finds when it starts, and how many it may have. */
#ifndef BERTH_TOOLS_DESCRIPTORS_H
#define BERTH_TOOLS_DESCRIPTORS_H

/*
 * At the start of a program: no file that is opened becomes a standard stream that is closed,
 * and as many may be open as the system lets this process have. A model has all of its shards
 * open, and what a shell allows at first, often 1024, is meant for programs that select().
 */
void descriptors_init(void);

#endif
