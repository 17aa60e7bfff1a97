/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence.h - a context whose blocks have a fence behind them, so that a write one
 * element too far is seen without a sanitizer. New blocks hold no zeros.
 */
#ifndef BERTH_TESTS_FENCE_H
#define BERTH_TESTS_FENCE_H

#include <stdint.h>

#include "loader/berth.h"

/* Destroyed by the caller; alignment is that of malloc(). */
berth_context *fence_context(void);
/* Bytes of fences that were found changed when their block was freed, ever. */
uint64_t fence_broken(void);

#endif
