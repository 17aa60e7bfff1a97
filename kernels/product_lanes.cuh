/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_lanes.cuh - the products of product.cuh without tensor cores: for f32,
 * for older devices, for any lengths and addresses.
 *
 * A warp has one row and 8 inputs, a lane 8 neighbours of each 256 columns; of odd
 * lengths and addresses every 32nd column. Their sums are added in a tree.
 *
 *   traffic   8 inputs with each pass over the weights; CTAs of the same rows are one
 *             after the other
 *   launch, bits, bounds   those of product.cuh
 */
#ifndef BERTH_KERNELS_PRODUCT_LANES_CUH
#define BERTH_KERNELS_PRODUCT_LANES_CUH

#include "kernels/core.h"
#include "kernels/product.cuh"
#include "kernels/product_arguments.h"
#include "kernels/simt.h"

/* The first of the CTA's inputs, and how many there are from it on. */
typedef struct product_inputs {
    uint32_t first;
    uint32_t count;
} product_inputs;

SIMT_INLINE product_inputs
product_find_inputs(const berthi_product_kernel *a, product_variant v,
                    const product_job *job)
{
    const uint32_t first =
        v.has_experts ? 0 : (uint32_t)(simt_cta() % a->groups) * PRODUCT_INPUTS;
    const product_inputs inputs = { first, job->count - first };

    return inputs;
}

/* ------------------------------------------------------------------- weights */

/* Values by code, of codes by byte, two each. */
SIMT_INLINE void
product_fill_values(const berthi_product_kernel *a, uint32_t *values)
{
    const uint32_t thread = simt_thread();

    values[2 * thread] = a->table[thread >> 4];
    values[2 * thread + 1] = a->table[thread & 15];
}

/* Of the block that number `at` of the weights is in. */
SIMT_INLINE float
product_absmax_at(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  uint64_t at, const uint32_t *map)
{
    const uint64_t block = at >> a->block_log2;

    return v.is_double ? berthi_core_absmax_recover(map, job->absmax_codes[block],
                                                    job->absmax[block / BERTHI_DOUBLE_BLOCK],
                                                    job->offset)
                       : job->absmax[block];
}

/* Eight neighbours of an input. */
SIMT_INLINE void
product_load_input(const void *from, int32_t dtype, float *x)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 2u : 1u); k++) {
        const simt_four four = simt_read16((const uint8_t *)from + 16 * k);

        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            if (dtype == BERTH_F32) {
                x[4 * k + j] = berthi_core_float(four.word[j]);
            } else if (dtype == BERTH_BF16) {
                x[2 * j] = berthi_core_float(four.word[j] << 16);
                x[2 * j + 1] = berthi_core_float(four.word[j] & 0xFFFF0000u);
            } else {
                x[2 * j] = berthi_core_from_fp16((uint16_t)four.word[j]);
                x[2 * j + 1] = berthi_core_from_fp16((uint16_t)(four.word[j] >> 16));
            }
    }
}

/* The values of eight codes. */
SIMT_INLINE void
product_look_up(const uint32_t *values, uint32_t codes, float *weights)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t at = simt_add_bytes(codes, 8u << 8 * k, 0);
        const simt_two pair = simt_shared_load8((const uint8_t *)values + at);

        weights[2 * k] = berthi_core_float(pair.word[0]);
        weights[2 * k + 1] = berthi_core_float(pair.word[1]);
    }
}

/* Eight columns from `column` on, for all inputs. */
SIMT_INLINE void
product_add_eight(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  product_inputs inputs, uint64_t column, const float *weights, float absmax,
                  float *sums)
{
    const uint32_t bytes = v.dtype == BERTH_F32 ? 4 : 2;
    const uint8_t *from =
        (const uint8_t *)job->inputs + (inputs.first * a->columns + column) * bytes;

    /* Addresses follow from each other: eight of them would take registers of two each. */
    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_INPUTS; i++) {
        const uint8_t *const its = from;
        float part = 0.0f;
        float x[8];

        if (i >= inputs.count)
            continue;
        from = simt_keep_address(from + a->columns * bytes);
        product_load_input(its, v.dtype, x);
        SIMT_UNROLL
        for (uint32_t k = 0; k < 8; k++)
            part = fmaf(weights[k], x[k], part);
        sums[i] = fmaf(absmax, part, sums[i]);
    }
}

/* Whole eights of columns at even addresses. */
SIMT_INLINE void
product_add_eights(const berthi_product_kernel *a, product_variant v, const product_job *job,
                   product_inputs inputs, uint64_t row, const uint32_t *values,
                   const uint32_t *map, float *sums)
{
    SIMT_NO_UNROLL
    for (uint64_t k = simt_thread() % SIMT_WARP * 8; k < a->columns; k += SIMT_WARP * 8) {
        const uint64_t at = row * a->columns + k;
        float weights[8];

        product_look_up(values, simt_load4(job->codes + at / 2), weights);
        product_add_eight(a, v, job, inputs, k, weights, product_absmax_at(a, v, job, at, map),
                          sums);
    }
}

/* Any columns, any addresses. */
SIMT_INLINE void
product_add_ones(const berthi_product_kernel *a, product_variant v, const product_job *job,
                 product_inputs inputs, uint64_t row, const uint32_t *map, float *sums)
{
    SIMT_NO_UNROLL
    for (uint64_t k = simt_thread() % SIMT_WARP; k < a->columns; k += SIMT_WARP) {
        const uint64_t at = row * a->columns + k;
        const uint32_t code = job->codes[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15;
        const float weight = berthi_core_multiply(berthi_core_float(a->table[code]),
                                                  product_absmax_at(a, v, job, at, map));

        SIMT_UNROLL
        for (uint32_t i = 0; i < PRODUCT_INPUTS; i++)
            if (i < inputs.count)
                sums[i] = fmaf(weight,
                               berthi_core_load(job->inputs, v.dtype,
                                                (inputs.first + i) * a->columns + k),
                               sums[i]);
    }
}

/* Over the warp, in the same order for all inputs; one lane stores. */
SIMT_INLINE void
product_join_lanes(product_variant v, const product_job *job, product_inputs inputs,
                   uint64_t row, const float *sums)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_INPUTS; i++) {
        float sum = sums[i];

        SIMT_UNROLL
        for (uint32_t step = SIMT_WARP / 2; step > 0; step /= 2)
            sum = berthi_core_add(sum, simt_shuffle_xor(sum, step));
        if (simt_thread() % SIMT_WARP == 0)
            product_store(v, job, inputs.first + i, row, sum);
    }
}

SIMT_INLINE void
product_by_lanes(const berthi_product_kernel *a, product_variant v, uint32_t *map)
{
    SIMT_SHARED(uint32_t, values, 512);
    const product_job job = product_find_job(a, v);
    const uint64_t cta = v.has_experts ? product_find_cta(a, v) : simt_cta() / a->groups;
    const uint64_t row = cta * PRODUCT_WARPS + simt_warp();
    const product_inputs inputs = product_find_inputs(a, v, &job);
    float sums[PRODUCT_INPUTS];

    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_INPUTS; i++)
        sums[i] = 0.0f;
    product_fill_values(a, values);
    product_fill_map(v, a->map, map); /* as constants: registers are few */
    simt_barrier();
    if (row >= a->rows || (v.has_experts && job.count == 0))
        return; /* all lanes of a warp */
    if (a->is_aligned != 0)
        product_add_eights(a, v, &job, inputs, row, values, map, sums);
    else
        product_add_ones(a, v, &job, inputs, row, map, sums);
    product_join_lanes(v, &job, inputs, row, sums);
}

/* ------------------------------------------------------------------- kernels */

#define PRODUCT_LANES_KERNELS(prefix, suffix, resident, is_double, has_experts)       \
    PRODUCT_KERNEL(prefix##_bf16##suffix, lanes, resident, BERTH_BF16, is_double, 0, 1, \
                   has_experts, false)                                                \
    PRODUCT_KERNEL(prefix##_f16##suffix, lanes, resident, BERTH_F16, is_double, 0, 1, \
                   has_experts, false)                                                \
    PRODUCT_KERNEL(prefix##_f32##suffix, lanes, resident, BERTH_F32, is_double, 0, 1, \
                   has_experts, false)

PRODUCT_LANES_KERNELS(berthi_product_lanes, , SIMT_RESIDENT, false, false)
PRODUCT_LANES_KERNELS(berthi_product_lanes, _double, SIMT_RESIDENT, true, false)
PRODUCT_LANES_KERNELS(berthi_experts_lanes, , SIMT_RESIDENT_WIDE, false, true)
PRODUCT_LANES_KERNELS(berthi_experts_lanes, _double, SIMT_RESIDENT_WIDE, true, true)

#endif
