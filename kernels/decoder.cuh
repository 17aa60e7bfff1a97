/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.cuh - a decoder's steps on a GPU, but for attention and choices (attend.cuh):
 * plain kernels with the bits of decoder.h.
 *
 *   launch    CTAs of STEP_THREADS: a part of a row (take), eight heads (rotate),
 *             STEP_ELEMENTS elements (gate), eight parts of a sum (add); of NORM_THREADS, a
 *             row (norm)
 *   traffic   what is named is read and written once; a norm reads what of its row is beyond
 *             NORM_COLUMNS twice, sums of rows that are given by number read all numbers for
 *             every ADD_COLUMNS columns
 */
#ifndef BERTH_KERNELS_DECODER_CUH
#define BERTH_KERNELS_DECODER_CUH

#include "kernels/core_decoder.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/*
 * Memory answers late, so a lane asks for many values before it uses the first: so many of
 * these, `apart` from each other from `first` on; those from `end` on are 0. All but the array
 * and where are constants.
 */
SIMT_INLINE void
step_load_as(const void *values, int32_t dtype, uint64_t first, uint64_t end, uint32_t apart,
             uint32_t turns, float *out)
{
    const uint8_t *const at = (const uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);
    const uint64_t there = first < end ? end - first : 0;
    const uint32_t left = there < turns * apart ? (uint32_t)there : turns * apart;

    SIMT_UNROLL
    for (uint32_t k = 0; k < turns; k++)
        out[k] = k * apart < left ? berthi_core_load(at, dtype, k * apart) : 0.0f;
}

/* Of a dtype that only the argument tells. */
SIMT_INLINE void
step_load(const void *values, int32_t dtype, uint64_t first, uint64_t end, uint32_t apart,
          uint32_t turns, float *out)
{
    if (dtype == BERTH_F32)
        step_load_as(values, BERTH_F32, first, end, apart, turns, out);
    else if (dtype == BERTH_BF16)
        step_load_as(values, BERTH_BF16, first, end, apart, turns, out);
    else
        step_load_as(values, BERTH_F16, first, end, apart, turns, out);
}

/* The other way round. */
SIMT_INLINE void
step_put_as(void *values, int32_t dtype, uint64_t first, uint64_t end, uint32_t apart,
            uint32_t turns, const float *from)
{
    uint8_t *const at = (uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);
    const uint64_t there = first < end ? end - first : 0;
    const uint32_t left = there < turns * apart ? (uint32_t)there : turns * apart;

    SIMT_UNROLL
    for (uint32_t k = 0; k < turns; k++)
        if (k * apart < left)
            berthi_core_put(at, dtype, k * apart, from[k]);
}

SIMT_INLINE void
step_put(void *values, int32_t dtype, uint64_t first, uint64_t end, uint32_t apart,
         uint32_t turns, const float *from)
{
    if (dtype == BERTH_F32)
        step_put_as(values, BERTH_F32, first, end, apart, turns, from);
    else if (dtype == BERTH_BF16)
        step_put_as(values, BERTH_BF16, first, end, apart, turns, from);
    else
        step_put_as(values, BERTH_F16, first, end, apart, turns, from);
}

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

/*
 * A row is one CTA's, whose lanes are many and have few columns: that is less code for each, and a
 * kernel of so little work waits for its code as long as for its row. Squares are added up as by
 * the lanes of decoder.h, by as many lanes as those are; values come to them by shared memory.
 */
#define NORM_TURNS (NORM_COLUMNS / NORM_THREADS) /* a lane's columns that are on their way */
#define NORM_ADDS (NORM_COLUMNS / BERTHI_NORM_LANES)

/* The sum over lanes of decoder.h, which the CTA's first ones have; all lanes get it. */
SIMT_INLINE float
step_join_cta(float sum, float *lanes)
{
    const uint32_t thread = simt_thread();

    if (thread < BERTHI_NORM_LANES)
        lanes[thread] = sum;
    SIMT_UNROLL
    for (uint32_t half = BERTHI_NORM_LANES / 2; half >= SIMT_WARP; half /= 2) {
        simt_barrier();
        if (thread < half)
            lanes[thread] = berthi_core_add(lanes[thread], lanes[thread + half]);
    }
    simt_barrier();
    return step_join_warp(lanes[thread % SIMT_WARP]);
}

/* Those of a lane from `base` on. */
SIMT_INLINE void
step_load_row(const berth_norm *a, uint64_t base, float *values)
{
    const uint64_t row = simt_cta() * a->columns;
    const uint64_t first = row + base + simt_thread();

    if (a->sums != NULL)
        step_load_as(a->sums, BERTH_F32, first, row + a->columns, NORM_THREADS, NORM_TURNS,
                     values);
    else
        step_load(a->inputs, a->inputs_dtype, first, row + a->columns, NORM_THREADS,
                  NORM_TURNS, values);
}

SIMT_INLINE void
step_load_weight(const berth_norm *a, uint64_t base, float *weights)
{
    step_load(a->weight, a->weight_dtype, base + simt_thread(), a->columns, NORM_THREADS,
              NORM_TURNS, weights);
}

/* What is added to them first; then they are the sums. */
SIMT_INLINE void
step_add_to_row(const berth_norm *a, uint64_t base, float *values)
{
    const uint64_t row = simt_cta() * a->columns;
    const uint64_t first = row + base + simt_thread();
    float added[NORM_TURNS];

    if (a->sums == NULL)
        return;
    step_load(a->added, a->added_dtype, first, row + a->columns, NORM_THREADS, NORM_TURNS,
              added);
    SIMT_UNROLL
    for (uint32_t k = 0; k < NORM_TURNS; k++)
        values[k] = berthi_core_one_nan(berthi_core_add_product(values[k], 1.0f, added[k]));
    step_put_as(a->sums, BERTH_F32, first, row + a->columns, NORM_THREADS, NORM_TURNS, values);
}

/*
 * What is behind the row's end adds 0 to a sum that has begun with 0, and is no other then. Ends
 * with a barrier.
 */
SIMT_INLINE float
step_add_squares(float sum, const float *values, float *row)
{
    const uint32_t thread = simt_thread();

    SIMT_UNROLL
    for (uint32_t k = 0; k < NORM_TURNS; k++)
        row[k * NORM_THREADS + thread] = values[k];
    simt_barrier();
    if (thread < BERTHI_NORM_LANES) {
        SIMT_UNROLL
        for (uint32_t k = 0; k < NORM_ADDS; k++) {
            const float value = row[k * BERTHI_NORM_LANES + thread];

            sum = berthi_core_add_product(sum, value, value);
        }
    }
    simt_barrier();
    return sum;
}

/* Overwrites the values. */
SIMT_INLINE void
step_put_norm(const berth_norm *a, uint64_t base, float divisor, float *values,
              const float *weights)
{
    const uint64_t row = simt_cta() * a->columns;

    SIMT_UNROLL
    for (uint32_t k = 0; k < NORM_TURNS; k++)
        values[k] = berthi_core_norm(values[k], divisor, weights[k]);
    step_put(a->outputs, a->dtype, row + base + simt_thread(), row + a->columns, NORM_THREADS,
             NORM_TURNS, values);
}

/*
 * The first columns, which often are all, stay in registers. What is read may be written: a
 * lane writes what it alone has read.
 */
SIMT_INLINE void
step_norm(const berth_norm *a)
{
    SIMT_SHARED(float, lanes, BERTHI_NORM_LANES);
    SIMT_SHARED(float, row, NORM_COLUMNS);
    float values[NORM_TURNS];
    float weights[NORM_TURNS];
    float more[NORM_TURNS];
    uint64_t base = 0;
    float divisor;
    float sum;

    step_load_row(a, 0, values);
    step_load_weight(a, 0, weights);
    step_add_to_row(a, 0, values);
    sum = step_add_squares(0.0f, values, row);
    SIMT_NO_UNROLL
    for (base = NORM_COLUMNS; base < a->columns; base += NORM_COLUMNS) {
        step_load_row(a, base, more);
        step_add_to_row(a, base, more);
        sum = step_add_squares(sum, more, row);
    }
    divisor = berthi_core_norm_divisor(step_join_cta(sum, lanes), a->columns, a->epsilon);
    SIMT_NO_UNROLL
    for (base = 0; base < a->columns; base += NORM_COLUMNS) {
        if (base > 0) {
            step_load_row(a, base, values);
            step_load_weight(a, base, weights);
        }
        step_put_norm(a, base, divisor, values, weights);
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

#define HEAD_TURNS (BERTHI_HEAD_WIDTH / SIMT_WARP) /* columns of a lane */
#define HEAD_PAIRS (HEAD_TURNS / 2)

SIMT_INLINE float
step_head_divisor(const berth_rotate *a, const step_head *h)
{
    float values[HEAD_TURNS];
    float sum = 0.0f;

    step_load(h->from, a->dtype, h->from_first + simt_thread() % SIMT_WARP,
              h->from_first + a->width, SIMT_WARP, HEAD_TURNS, values);
    SIMT_UNROLL
    for (uint32_t k = 0; k < HEAD_TURNS; k++)
        sum = berthi_core_add_product(sum, values[k], values[k]);
    return berthi_core_norm_divisor(step_join_warp(sum), a->width, a->epsilon);
}

/* A lane's columns of half a head, which begins there. */
SIMT_INLINE void
step_load_half(const void *values, int32_t dtype, uint64_t first, uint32_t half, float *out)
{
    step_load(values, dtype, first + simt_thread() % SIMT_WARP, first + half, SIMT_WARP,
              HEAD_PAIRS, out);
}

SIMT_INLINE void
step_put_half(void *values, int32_t dtype, uint64_t first, uint32_t half, const float *from)
{
    step_put(values, dtype, first + simt_thread() % SIMT_WARP, first + half, SIMT_WARP,
             HEAD_PAIRS, from);
}

SIMT_INLINE void
step_norm_half(const berth_rotate *a, const step_head *h, uint64_t first, float divisor,
               float *values)
{
    float weights[HEAD_PAIRS];

    step_load_half(h->norm, a->norm_dtype, first, a->width / 2, weights);
    SIMT_UNROLL
    for (uint32_t k = 0; k < HEAD_PAIRS; k++)
        values[k] = berthi_core_norm(values[k], divisor, weights[k]);
}

/*
 * Its own place is written only when all lanes have read it: they meet between the two. Without
 * a norm a lane writes what it alone has read.
 */
SIMT_INLINE void
step_rotate_head(const berth_rotate *a, const step_head *h)
{
    const uint32_t half = a->width / 2;
    float first[HEAD_PAIRS];
    float second[HEAD_PAIRS];
    float cosines[HEAD_PAIRS];
    float sines[HEAD_PAIRS];

    step_load_half(h->from, a->dtype, h->from_first, half, first);
    step_load_half(h->from, a->dtype, h->from_first + half, half, second);
    step_load_half(h->angles, BERTH_F32, 0, half, cosines);
    step_load_half(h->angles, BERTH_F32, half, half, sines);
    if (h->norm != NULL) {
        const float divisor = step_head_divisor(a, h);

        step_norm_half(a, h, 0, divisor, first);
        step_norm_half(a, h, half, divisor, second);
        simt_warp_barrier();
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < HEAD_PAIRS; k++)
        berthi_core_turn(&first[k], &second[k], cosines[k], sines[k]);
    step_put_half(h->to, h->dtype, h->to_first, half, first);
    step_put_half(h->to, h->dtype, h->to_first + half, half, second);
}

/* A value as it is, from where the head's key lies to where it goes. */
SIMT_INLINE void
step_cache_value(const berth_rotate *a, const step_head *h)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    float values[HEAD_TURNS];

    step_load(a->values, a->dtype, h->from_first + lane, h->from_first + a->width, SIMT_WARP,
              HEAD_TURNS, values);
    step_put(a->value_cache, a->cache_dtype, h->to_first + lane, h->to_first + a->width,
             SIMT_WARP, HEAD_TURNS, values);
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
        step_cache_value(a, &h);
    }
    step_rotate_head(a, &h);
}

/* ------------------------------------------------------------------ elements */

#define STEP_TURNS (STEP_ELEMENTS / STEP_THREADS)

SIMT_INLINE void
step_gate(const berth_gate *a)
{
    const uint64_t first = simt_cta() * STEP_ELEMENTS + simt_thread();
    float gates[STEP_TURNS];
    float ups[STEP_TURNS];

    step_load(a->gate, a->dtype, first, a->elements, STEP_THREADS, STEP_TURNS, gates);
    step_load(a->up, a->dtype, first, a->elements, STEP_THREADS, STEP_TURNS, ups);
    SIMT_UNROLL
    for (uint32_t k = 0; k < STEP_TURNS; k++)
        gates[k] = berthi_core_gate(gates[k], ups[k]);
    step_put(a->gate, a->dtype, first, a->elements, STEP_THREADS, STEP_TURNS, gates);
}

#define ADD_TURNS (ADD_COLUMNS / SIMT_WARP) /* columns of a lane */

/* Value `i` to a lane's part of its sum. */
SIMT_INLINE void
step_add_one(const berth_add *a, uint64_t i, uint64_t first, float *sums)
{
    const uint64_t number = a->rows != NULL ? a->rows[i] : i;
    const float weight = a->weights != NULL ? a->weights[number] : 1.0f;
    float values[ADD_TURNS];

    step_load(a->values, a->dtype, i * a->columns + first, (i + 1) * a->columns, SIMT_WARP,
              ADD_TURNS, values);
    SIMT_UNROLL
    for (uint32_t k = 0; k < ADD_TURNS; k++)
        sums[k] = berthi_core_add_product(sums[k], weight, values[k]);
}

/* All that this row of sums is to get, a lane having some columns; whether it gets any. */
SIMT_INLINE bool
step_add_row(const berth_add *a, uint64_t row, uint64_t first, float *sums)
{
    const uint64_t begin = a->rows != NULL ? 0 : row * a->share;
    const uint64_t end =
        a->rows != NULL || a->count < begin + a->share ? a->count : begin + a->share;
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
    const uint64_t at = row * a->columns + first;
    const uint64_t end = (row + 1) * a->columns;
    float sums[ADD_TURNS];

    if (row >= a->sum_rows) /* the whole warp */
        return;
    step_load_as(a->sums, BERTH_F32, at, end, SIMT_WARP, ADD_TURNS, sums);
    if (step_add_row(a, row, first, sums))
        step_put_as(a->sums, BERTH_F32, at, end, SIMT_WARP, ADD_TURNS, sums);
}

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL(berthi_take, STEP_THREADS, berth_take, step_take(a))
SIMT_KERNEL_OF(berthi_norm, NORM_THREADS, SIMT_RESIDENT, berth_norm, step_norm(a))
SIMT_KERNEL(berthi_rotate, STEP_THREADS, berth_rotate, step_rotate(a))
SIMT_KERNEL(berthi_gate, STEP_THREADS, berth_gate, step_gate(a))
SIMT_KERNEL(berthi_add, STEP_THREADS, berth_add, step_add(a))

#endif
