/* SPDX-License-Identifier: Apache-2.0 */
/* simt_types.h - what both kinds of simt.h's words are about. */
#ifndef BERTH_KERNELS_SIMT_TYPES_H
#define BERTH_KERNELS_SIMT_TYPES_H

#include <stdint.h>

#define SIMT_WARP 32u

/* 8 and 16 bytes that move at once. */
typedef struct simt_two {
    uint32_t word[2];
} simt_two;

typedef struct simt_four {
    uint32_t word[4];
} simt_four;

#endif
