/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.cuh - a decoder's steps on a GPU, but for attention and choices (attend.cuh):
 * plain kernels with the bits of decoder.h.
 *
 *   launch    CTAs of STEP_THREADS: a part of a row (take), a row (norm), eight heads
 *             (rotate), STEP_ELEMENTS elements (gate), eight parts of a sum (add)
 *   traffic   what is named is read and written once; a norm reads its row twice, sums of
 *             rows that are given by number read all numbers for every ADD_COLUMNS columns
 */
#ifndef BERTH_KERNELS_DECODER_CUH
#define BERTH_KERNELS_DECODER_CUH

#include "kernels/core_decoder.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* The sum over a warp as over lanes of decoder.h; all lanes get it. */
SIMT_INLINE float
step_join_warp(float sum)
{
    SIMT_UNROLL
    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2)
        sum = berthi_core_add(sum, simt_shuffle_xor(sum, half));
    return sum;
}

SIMT_INLINE void
step_take(const berth_take *a)
{
    const uint64_t ctas_of_row = berthi_take_ctas_of_row(a->columns);
    const uint64_t i = simt_cta() / ctas_of_row;
    const uint64_t first = simt_cta() % ctas_of_row * STEP_ELEMENTS + simt_thread();
    const uint64_t row = a->numbers[i] / a->share;

    SIMT_UNROLL
    for (uint32_t k = 0; k < STEP_ELEMENTS; k += STEP_THREADS) {
        const uint64_t column = first + k;

        if (column < a->columns)
            berthi_core_put(a->outputs, a->dtype, i * a->columns + column,
                            row < a->rows ? berthi_core_load(a->table, a->table_dtype,
                                                             row * a->columns + column)
                                          : 0.0f);
    }
}

/* ---------------------------------------------------------------------- norm */

/* The sum over a CTA as over lanes of decoder.h; `lanes` is the CTA's. */
SIMT_INLINE float
step_join_cta(float sum, float *lanes)
{
    const uint32_t thread = simt_thread();

    lanes[thread] = sum;
    SIMT_UNROLL
    for (uint32_t half = STEP_THREADS / 2; half >= SIMT_WARP; half /= 2) {
        simt_barrier();
        if (thread < half)
            lanes[thread] = berthi_core_add(lanes[thread], lanes[thread + half]);
    }
    simt_barrier();
    return step_join_warp(lanes[thread % SIMT_WARP]);
}

/* What is read may be written: a lane writes what it alone has read. */
SIMT_INLINE void
step_norm(const berth_norm *a)
{
    SIMT_SHARED(float, lanes, STEP_THREADS);
    const uint64_t first = simt_cta() * a->columns;
    float sum = 0.0f;
    float divisor;

    for (uint64_t k = simt_thread(); k < a->columns; k += STEP_THREADS) {
        const float value = berthi_core_load(a->inputs, a->inputs_dtype, first + k);

        sum = berthi_core_add_product(sum, value, value);
    }
    divisor = berthi_core_norm_divisor(step_join_cta(sum, lanes), a->columns, a->epsilon);
    for (uint64_t k = simt_thread(); k < a->columns; k += STEP_THREADS) {
        const float value = berthi_core_load(a->inputs, a->inputs_dtype, first + k);
        const float weight = berthi_core_load(a->weight, a->weight_dtype, k);

        berthi_core_put(a->outputs, a->dtype, first + k,
                        berthi_core_norm(value, divisor, weight));
    }
}

/* -------------------------------------------------------------------- rotate */

/* One head of a warp: read in the dtype of queries and keys, written in its own. */
typedef struct step_head {
    const void *from;
    uint64_t from_first;
    void *to;
    uint64_t to_first;
    const void *norm; /* NULL: none */
    const float *angles;
    int32_t dtype;
} step_head;

SIMT_INLINE float
step_head_divisor(const berth_rotate *a, const step_head *h)
{
    float sum = 0.0f;

    for (uint32_t i = simt_thread() % SIMT_WARP; i < a->width; i += SIMT_WARP) {
        const float value = berthi_core_load(h->from, a->dtype, h->from_first + i);

        sum = berthi_core_add_product(sum, value, value);
    }
    return berthi_core_norm_divisor(step_join_warp(sum), a->width, a->epsilon);
}

/* Its own place is written only when all lanes have read it: shuffles part the two. */
SIMT_INLINE void
step_rotate_head(const berth_rotate *a, const step_head *h)
{
    const uint32_t half = a->width / 2;
    const bool is_normed = h->norm != NULL;
    const float divisor = is_normed ? step_head_divisor(a, h) : 1.0f;

    for (uint32_t i = simt_thread() % SIMT_WARP; i < half; i += SIMT_WARP) {
        float first = berthi_core_load(h->from, a->dtype, h->from_first + i);
        float second = berthi_core_load(h->from, a->dtype, h->from_first + half + i);

        if (is_normed) {
            first = berthi_core_norm(first, divisor,
                                     berthi_core_load(h->norm, a->norm_dtype, i));
            second = berthi_core_norm(second, divisor,
                                      berthi_core_load(h->norm, a->norm_dtype, half + i));
        }
        berthi_core_turn(&first, &second, h->angles[i], h->angles[half + i]);
        berthi_core_put(h->to, h->dtype, h->to_first + i, first);
        berthi_core_put(h->to, h->dtype, h->to_first + half + i, second);
    }
}

SIMT_INLINE void
step_rotate(const berth_rotate *a)
{
    const uint64_t unit = simt_cta() * STEP_WARPS + simt_warp();
    const uint64_t heads = (uint64_t)a->heads + a->kv_heads;
    const uint64_t token = unit / heads;
    const uint64_t number = unit % heads;
    step_head h = { a->queries, (token * a->heads + number) * a->width,
                    a->queries, (token * a->heads + number) * a->width,
                    a->query_norm, a->angles + token * a->width, a->dtype };

    if (token >= a->count) /* the whole warp */
        return;
    if (number >= a->heads) {
        const uint64_t kv_head = number - a->heads;

        h.from = a->keys;
        h.from_first = (token * a->kv_heads + kv_head) * a->width;
        h.to = a->key_cache;
        h.to_first = (kv_head * a->capacity + a->position + token) * a->width;
        h.norm = a->key_norm;
        h.dtype = a->cache_dtype;
        for (uint32_t i = simt_thread() % SIMT_WARP; i < a->width; i += SIMT_WARP)
            berthi_core_put(a->value_cache, a->cache_dtype, h.to_first + i,
                            berthi_core_load(a->values, a->dtype, h.from_first + i));
    }
    step_rotate_head(a, &h);
}

/* ------------------------------------------------------------------ elements */

SIMT_INLINE void
step_gate(const berth_gate *a)
{
    const uint64_t first = simt_cta() * STEP_ELEMENTS + simt_thread();

    SIMT_UNROLL
    for (uint32_t k = 0; k < STEP_ELEMENTS; k += STEP_THREADS) {
        const uint64_t i = first + k;

        if (i < a->elements)
            berthi_core_put(a->gate, a->dtype, i,
                            berthi_core_gate(berthi_core_load(a->gate, a->dtype, i),
                                             berthi_core_load(a->up, a->dtype, i)));
    }
}

/* Value `i` to a lane's part of its sum. */
SIMT_INLINE void
step_add_one(const berth_add *a, uint64_t i, uint64_t first, float *sums)
{
    const uint64_t number = a->rows != NULL ? a->rows[i] : i;
    const float weight = a->weights != NULL ? a->weights[number] : 1.0f;

    SIMT_UNROLL
    for (uint32_t k = 0; k < ADD_COLUMNS / SIMT_WARP; k++) {
        const uint64_t column = first + k * SIMT_WARP;

        if (column < a->columns)
            sums[k] = berthi_core_add_product(
                sums[k], weight, berthi_core_load(a->values, a->dtype, i * a->columns + column));
    }
}

/* All that this row of sums is to get, a lane having some columns; whether it gets any. */
SIMT_INLINE bool
step_add_row(const berth_add *a, uint64_t row, uint64_t first, float *sums)
{
    const uint64_t begin = a->rows != NULL ? 0 : row * a->share;
    const uint64_t end
        = a->rows != NULL || a->count < begin + a->share ? a->count : begin + a->share;
    bool has_any = false;

    SIMT_NO_UNROLL
    for (uint64_t base = begin; base < end; base += SIMT_WARP) {
        const uint64_t own = base + simt_thread() % SIMT_WARP;
        uint32_t its = simt_ballot(own < end
                                   && (a->rows == NULL || a->rows[own] / a->share == row));

        SIMT_NO_UNROLL
        for (; its != 0; its &= its - 1) {
            step_add_one(a, base + simt_first_bit(its), first, sums);
            has_any = true;
        }
    }
    return has_any;
}

SIMT_INLINE void
step_add(const berth_add *a)
{
    const uint64_t unit = simt_cta() * STEP_WARPS + simt_warp();
    const uint64_t parts = berthi_add_parts_of_row(a->columns);
    const uint64_t row = unit / parts;
    const uint64_t first = unit % parts * ADD_COLUMNS + simt_thread() % SIMT_WARP;
    float sums[ADD_COLUMNS / SIMT_WARP];

    if (row >= a->sum_rows) /* the whole warp */
        return;
    SIMT_UNROLL
    for (uint32_t k = 0; k < ADD_COLUMNS / SIMT_WARP; k++)
        sums[k] = first + k * SIMT_WARP < a->columns
                      ? a->sums[row * a->columns + first + k * SIMT_WARP]
                      : 0.0f;
    if (!step_add_row(a, row, first, sums))
        return;
    SIMT_UNROLL
    for (uint32_t k = 0; k < ADD_COLUMNS / SIMT_WARP; k++)
        if (first + k * SIMT_WARP < a->columns)
            a->sums[row * a->columns + first + k * SIMT_WARP] = berthi_core_one_nan(sums[k]);
}

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL(berthi_take, STEP_THREADS, berth_take, step_take(a))
SIMT_KERNEL(berthi_norm, STEP_THREADS, berth_norm, step_norm(a))
SIMT_KERNEL(berthi_rotate, STEP_THREADS, berth_rotate, step_rotate(a))
SIMT_KERNEL(berthi_gate, STEP_THREADS, berth_gate, step_gate(a))
SIMT_KERNEL(berthi_add, STEP_THREADS, berth_add, step_add(a))

#endif
