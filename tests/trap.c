/* SPDX-License-Identifier: Apache-2.0 */
/* trap.c - see trap.h. */
#define _GNU_SOURCE
#include "tests/trap.h"

void
trap_begin(fenv_t *out_before)
{
    fegetenv(out_before);
#if defined __x86_64__
    (void)feenableexcept(FE_INVALID);
#endif
}

void
trap_end(const fenv_t *before)
{
    fesetenv(before);
}
