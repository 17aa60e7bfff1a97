/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap.h - calls on a thread whose process a NaN ends that is compared or computed with, where
 * the machine has such threads.
 */
#ifndef BERTH_TESTS_TRAP_H
#define BERTH_TESTS_TRAP_H

#include <fenv.h>

/* From here on; *out_before is what the thread was. */
void trap_begin(fenv_t *out_before);
void trap_end(const fenv_t *before);

#endif
