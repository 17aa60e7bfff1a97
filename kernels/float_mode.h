/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_mode.h - how a thread computes with floating-point numbers.
 *
 * Rounding, what becomes of subnormal numbers, and which exceptions end the process are the
 * thread's, and a program may have changed them: torch.set_flush_denormal(), libraries built
 * with -ffast-math, feenableexcept(). What is stored has the bits of the default mode, and a NaN
 * that somebody hands in is no reason to die. So whoever computes on a thread of the caller's
 * does it between these two, and threads of the library begin in the default mode.
 */
#ifndef BERTH_KERNELS_FLOAT_MODE_H
#define BERTH_KERNELS_FLOAT_MODE_H

#include <fenv.h>

/* The default mode from here on; *out_before is the caller's. */
static inline void
berthi_float_mode_begin(fenv_t *out_before)
{
    fegetenv(out_before);
    fesetenv(FE_DFL_ENV);
}

/* The caller's mode again; it learns of no exception in between. */
static inline void
berthi_float_mode_end(const fenv_t *before)
{
    fesetenv(before);
}

#endif
