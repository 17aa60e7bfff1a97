/* SPDX-License-Identifier: Apache-2.0 */
/* speed_weight.c - see speed_weight.h */
#include "tests/gpu/speed_weight.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/core.h"

#define LEAST_BLOCK 64u
#define OFFSET 0.04f /* of absmax that are codes */

/* ---------------------------------------------------------------------------- memory */

static uint64_t
absmax_count(const gpu_weight *w)
{
    return w->rows * w->columns / LEAST_BLOCK;
}

static uint64_t
bytes_of_turn(const gpu_weight *w)
{
    return w->rows * w->columns / 2 + absmax_count(w) * 5;
}

gpu_weight
gpu_weight_of(const gpu_speed *s, gpu_shape shape)
{
    const gpu_shape made = gpu_made(s, shape);
    gpu_weight w = { .shape = shape, .rows = made.rows, .columns = made.columns };

    w.turns = gpu_turns(s, bytes_of_turn(&w));
    return w;
}

uint64_t
gpu_weight_bytes(const gpu_weight *w)
{
    return w->turns * bytes_of_turn(w)
           + (w->rows + GPU_DTYPES * w->columns) * 2 * GPU_MOST_FEW;
}

/* Any codes; absmax, and their codes, as those of weights are. */
void
gpu_weight_begin(gpu_speed *s, gpu_weight *w)
{
    const uint64_t count = absmax_count(w);
    const uint64_t weights = w->rows * w->columns;
    float *const absmax = gpu_host_alloc(count * sizeof *absmax);

    for (uint64_t i = 0; i < count; i++)
        absmax[i] = 0.03f + 0.02f * fabsf(berthi_core_from_bf16(s->normal[i % s->normal_count]));
    w->codes = gpu_alloc(s, w->turns * weights / 2);
    w->absmax = gpu_alloc(s, w->turns * count * sizeof *absmax);
    w->absmax_codes = gpu_alloc(s, w->turns * count);
    for (uint32_t i = 0; i < w->turns; i++) {
        gpu_fill_normal(s, w->codes + i * weights / 2, BERTH_BF16, weights / 4, i);
        gpu_put(s, w->absmax + i * count, absmax, count * sizeof *absmax);
        gpu_fill_normal(s, w->absmax_codes + i * count, BERTH_BF16, count / 2, i + 7);
    }
    for (uint32_t i = 0; i < GPU_DTYPES; i++) {
        w->inputs[i] = gpu_alloc(s, GPU_MOST_FEW * w->columns * 2);
        gpu_fill_normal(s, w->inputs[i], i == 0 ? BERTH_BF16 : BERTH_F16,
                        GPU_MOST_FEW * w->columns, 3);
    }
    w->outputs = gpu_alloc(s, GPU_MOST_FEW * w->rows * 2);
    free(absmax);
}

void
gpu_weight_end(gpu_speed *s, gpu_weight *w)
{
    gpu_free(s, w->codes);
    gpu_free(s, w->absmax);
    gpu_free(s, w->absmax_codes);
    for (uint32_t i = 0; i < GPU_DTYPES; i++)
        gpu_free(s, w->inputs[i]);
    gpu_free(s, w->outputs);
}

/* -------------------------------------------------------------------------- products */

berthi_multiply_arguments
gpu_product_arguments(const gpu_product *p, uint32_t turn)
{
    const gpu_weight *const w = p->its;
    const uint64_t i = turn % w->turns;
    const uint32_t dtype = gpu_dtype_at(p->how.dtype);

    return (berthi_multiply_arguments){
        .codes = w->codes + i * (w->rows * w->columns / 2),
        .absmax = w->absmax + i * absmax_count(w),
        .absmax_codes = p->how.is_double ? w->absmax_codes + i * absmax_count(w) : NULL,
        .map = berthi_signed_map, .offset = OFFSET, .block_size = p->how.block_size,
        .count = p->count, .rows = w->rows, .columns = w->columns,
        .inputs = p->inputs != NULL ? p->inputs[dtype] : w->inputs[dtype],
        .outputs = w->outputs, .dtype = p->how.dtype, .is_settled = true
    };
}

berthi_launch
gpu_product_launch(gpu_speed *s, const gpu_product *p, uint32_t turn)
{
    const berthi_multiply_arguments a = gpu_product_arguments(p, turn);
    const berthi_product_task task = { .what = &a, .values = berthi_nf4_values,
                                       .capability = s->capability,
                                       .processors = s->processors,
                                       .room_bytes = s->room_bytes, .has_tiles = s->tiles != NULL };
    berthi_launch l;

    gpu_require_ok(berthi_launch_product(&task, &l, NULL), NULL);
    return l;
}

double
gpu_product_bytes(const gpu_product *p)
{
    const double weights = (double)p->its->rows * (double)p->its->columns;
    const double absmax = p->how.is_double ? 1.0 + 4.0 / BERTHI_DOUBLE_BLOCK : 4.0;

    return weights * (0.5 + absmax / p->how.block_size)
           + 2.0 * p->count * ((double)p->its->rows + (double)p->its->columns);
}

/* ------------------------------------------------------------------------- what is right */

/* Of the row's blocks, from `first` on, as they are after double quantization. */
static void
fetch_double(gpu_speed *s, const gpu_weight *w, uint64_t first, uint64_t count, float *absmax)
{
    const uint64_t begin = first / BERTHI_DOUBLE_BLOCK;
    const uint64_t blocks = (first + count - 1) / BERTHI_DOUBLE_BLOCK - begin + 1;
    uint8_t *const codes = gpu_host_alloc(count);
    float *const second = gpu_host_alloc(blocks * sizeof *second);

    gpu_fetch(s, codes, w->absmax_codes + first, count);
    gpu_fetch(s, second, w->absmax + begin, blocks * sizeof *second);
    for (uint64_t i = 0; i < count; i++)
        absmax[i] = berthi_core_float(berthi_signed_map[codes[i]])
                        * second[(first + i) / BERTHI_DOUBLE_BLOCK - begin]
                    + OFFSET;
    free(codes);
    free(second);
}

/* What a code stands for, as inputs of this dtype meet it. */
static double
code_value(int32_t dtype, uint32_t code)
{
    const float value = berthi_core_float(berthi_nf4_values[code]);

    return gpu_value(dtype, dtype == BERTH_F16 ? berthi_core_to_fp16(value)
                                               : berthi_core_to_bf16(value));
}

bool
gpu_product_is_right(gpu_speed *s, const gpu_product *p, const uint16_t *input, uint64_t row,
                     uint16_t output)
{
    const gpu_weight *const w = p->its;
    const int32_t dtype = p->how.dtype;
    const uint64_t blocks = w->columns / p->how.block_size;
    uint8_t *const codes = gpu_host_alloc(w->columns / 2);
    float *const absmax = gpu_host_alloc(blocks * sizeof *absmax);
    double sum = 0.0;
    double size = 0.0;

    gpu_fetch(s, codes, w->codes + row * w->columns / 2, w->columns / 2);
    if (p->how.is_double)
        fetch_double(s, w, row * blocks, blocks, absmax);
    else
        gpu_fetch(s, absmax, w->absmax + row * blocks, blocks * sizeof *absmax);
    for (uint64_t k = 0; k < w->columns; k++) {
        const uint32_t code = k % 2 == 0 ? codes[k / 2] >> 4 : codes[k / 2] & 15u;
        const double term = code_value(dtype, code) * (double)absmax[k / p->how.block_size]
                            * gpu_value(dtype, input[k]);

        sum += term;
        size += fabs(term);
    }
    free(codes);
    free(absmax);
    return fabs(gpu_value(dtype, output) - sum)
           <= gpu_rounding(dtype) * fabs(sum) + 0x1p-18 * size;
}
