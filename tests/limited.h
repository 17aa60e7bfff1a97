/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited.h - this process may suddenly have hardly more memory than it has: as where whoever
 * runs it lowers RLIMIT_DATA. Not under sanitizers, which need memory of their own.
 */
#ifndef BERTH_TESTS_LIMITED_H
#define BERTH_TESTS_LIMITED_H

#include <stdint.h>

/* So much more from now on, and what the C library has at hand. Any thread. */
void limited_begin(uint64_t room);
/* As much as there is. */
void limited_end(void);

#endif
