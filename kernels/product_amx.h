/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_amx.h - the sums of the level that multiplies tiles, in the order of
 * its instruction, so that an input gives the same bits alone, by vectors, and
 * among others, by tiles. Included by the two files that do.
 *
 * Order     32 columns are two chains of 16, one column's product after the
 *           other added to what the columns before gave, from 0; then the two
 *           chains' sums, and this to what the columns before gave. A unit of 64
 *           columns, which lie within one block, starts from 0; times the
 *           block's absmax it is added to the total. Products are exact, sums
 *           fp32, and subnormals count as 0.
 * Codes     of 32 columns are eight words of 16 bits, of which one chain has the
 *           even ones and one the odd ones: the lowest four bits of each word,
 *           then the next ones. So they come apart by shifts alone, by lanes.
 */
#ifndef BERTH_KERNELS_PRODUCT_AMX_H
#define BERTH_KERNELS_PRODUCT_AMX_H

/* A file without the level's flags sees nothing; older clangs say it the second way. */
#if defined __AMX_TILE__ || defined __AMXTILE__

#include "kernels/avx512.h"
#include "kernels/product.h"

#define CHAIN 16u
#define UNIT 64u

typedef struct product_plan {
    const berthi_product_arguments *a;
    const uint8_t *arranged; /* inputs, each way its own */
    int block_shift;
} product_plan;

/* Of 32 columns; the second of each two is in the lower four bits of its byte. */
ALWAYS_INLINE uint32_t
link_column(uint32_t link, uint32_t chain)
{
    return 4 * (2 * (link % 4) + chain) + (link / 4 ^ 1u);
}

/* Of `units`, those of the `most` from `first` on that are there. */
ALWAYS_INLINE uint64_t
units_here(uint64_t units, uint64_t first, uint64_t most)
{
    return units - first < most ? units - first : most;
}

/* What a compiler may not know: that instructions read all of what is there, or its mode. */
#define IS_READ(from) __asm__ volatile("" ::"r"(from) : "memory")

/* product_chains_amx.c: up to BERTHI_CHAINS_INPUTS inputs. */
#define BERTHI_CHAINS_INPUTS 3u
void berthi_amx_multiply_chains(const berthi_product_arguments *arguments,
                                const uint32_t *value_bits);

#endif
#endif
