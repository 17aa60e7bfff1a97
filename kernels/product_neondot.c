/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_neondot.c - 8-bit weights times 8-bit vectors where the processor
 * adds four products to a sum at once. The rest is of the level below.
 */
#include "kernels/neon.h"
#include "kernels/product.h"

static int64_t
dot(const int8_t *x, const int8_t *w, uint64_t columns)
{
    int32x4_t first = vdupq_n_s32(0);
    int32x4_t second = first;
    uint64_t k = 0;
    int64_t sum;

    for (; columns - k >= 32; k += 32) {
        first = vdotq_s32(first, vld1q_s8(x + k), vld1q_s8(w + k));
        second = vdotq_s32(second, vld1q_s8(x + k + 16), vld1q_s8(w + k + 16));
    }
    sum = vaddvq_s32(vaddq_s32(first, second));
    for (; k < columns; k++)
        sum += (int32_t)x[k] * (int32_t)w[k];
    return sum;
}

static void
dot_int8(const berthi_dot_arguments *a)
{
    berthi_product_dot_rows(a, dot);
}

const berthi_operations berthi_neondot_operations = {
    .level = "neondot",
    .dot_int8 = dot_int8,
};
