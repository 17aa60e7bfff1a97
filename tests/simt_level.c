/* SPDX-License-Identifier: Apache-2.0 */
/* simt_level.c - see simt_level.h */
#include "tests/simt_level.h"

#include <string.h>

#include "kernels/dequantize.cuh"
#include "kernels/mean.cuh"
#include "kernels/quantize.cuh"
#include "tests/t.h"

static simt_order level_order;
static uint64_t level_seed;

void
simt_level_set_order(simt_order order, uint64_t seed)
{
    level_order = order;
    level_seed = seed;
}

static void
launch(void (*kernel)(const void *), const void *argument, uint32_t threads, uint64_t ctas)
{
    const simt_launch l = { .threads = threads, .ctas = ctas, .order = level_order,
                            .seed = level_seed };

    CHECK_STR(simt_run(&l, kernel, argument), NULL);
}

static bool
is_aligned(const void *address, uintptr_t bytes)
{
    return (uintptr_t)address % bytes == 0;
}

static uint32_t
log2_of(uint32_t power)
{
    uint32_t log2 = 0;

    while (power >> log2 != 1)
        log2++;
    return log2;
}

/* Of BERTH_BF16, BERTH_F16 and BERTH_F32. */
static int
of_dtype(int32_t dtype)
{
    return dtype == BERTH_BF16 ? 0 : dtype == BERTH_F16 ? 1 : 2;
}

/* ------------------------------------------------------------------- encode */

typedef void kernel_function(const void *argument);

static void
encode_by(const berthi_encode_arguments *e, berthi_encode_kernel *k, kernel_function *kernel)
{
    k->values = e->values;
    k->codes = e->codes;
    k->absmax = e->absmax;
    k->count = e->count;
    k->block_log2 = log2_of(e->block_size);
    k->is_aligned = is_aligned(e->values, 16) && is_aligned(e->codes, 16);
    launch(kernel, k, ENCODE_THREADS, berthi_encode_ctas(e->count));
}

void
simt_encode_nf4(const berthi_encode_arguments *e)
{
    static kernel_function *const kernels[2][3] = {
        { berthi_encode_nf4_bf16, berthi_encode_nf4_f16, berthi_encode_nf4_f32 },
        { berthi_encode_nf4_bf16_64, berthi_encode_nf4_f16_64, berthi_encode_nf4_f32_64 },
    };
    berthi_encode_kernel k = { .offset = NULL };

    berthi_fill_nf4_bins(k.table);
    encode_by(e, &k, kernels[e->block_size == 64][of_dtype(e->dtype)]);
}

void
simt_encode_fp4(const berthi_encode_arguments *e)
{
    static kernel_function *const kernels[2][3] = {
        { berthi_encode_fp4_bf16, berthi_encode_fp4_f16, berthi_encode_fp4_f32 },
        { berthi_encode_fp4_bf16_64, berthi_encode_fp4_f16_64, berthi_encode_fp4_f32_64 },
    };
    berthi_encode_kernel k = { .offset = NULL };

    berthi_fill_fp4_bins(k.table);
    encode_by(e, &k, kernels[e->block_size == 64][of_dtype(e->dtype)]);
}

void
simt_encode_map(const berthi_encode_arguments *e)
{
    static kernel_function *const kernels[3] = {
        berthi_encode_map_bf16, berthi_encode_map_f16, berthi_encode_map_f32,
    };
    berthi_encode_kernel k = { .offset = NULL };

    berthi_fill_borders(k.table, e->map);
    encode_by(e, &k, kernels[of_dtype(e->dtype)]);
}

void
simt_encode_double(const berthi_double_arguments *d)
{
    berthi_encode_kernel k = { .offset = &d->offset };

    berthi_fill_borders(k.table, berthi_signed_map);
    encode_by(&(berthi_encode_arguments){ d->absmax, BERTH_F32, BERTHI_DOUBLE_BLOCK, d->count,
                                          berthi_signed_map, d->codes, d->absmax2 },
              &k, berthi_encode_double);
}

/* --------------------------------------------------------------------- mean */

float
simt_mean(const berthi_mean_arguments *m)
{
    const berthi_mean_grid grid = berthi_mean_plan(m);
    const uint32_t threads = grid.width < SIMT_WARP ? SIMT_WARP : grid.width;
    const float factor = 1.0f / (float)m->count;
    float mean = 0.0f;
    berthi_mean_kernel k = {
        .values = m->values, .count = m->count, .width = grid.width,
        .sums = grid.blocks > 1 ? m->partial : &mean,
        .factor = grid.blocks > 1 ? 1.0f : factor, .is_vector = grid.is_vector,
        .is_aligned = is_aligned(m->values, 16), .is_old_order = m->is_old_order != 0,
    };

    launch(berthi_mean_sum, &k, threads, grid.blocks);
    if (grid.blocks > 1) {
        k.values = m->partial;
        k.count = grid.blocks;
        k.sums = &mean;
        k.factor = factor;
        launch(berthi_mean_join, &k, threads, 1);
    }
    return mean;
}

/* ------------------------------------------------------------------- decode */

static void
decode_by(const berthi_decode_arguments *d, berthi_decode_kernel *k, kernel_function *kernel)
{
    k->codes = d->codes;
    k->values = d->values;
    k->count = d->count;
    k->block_log2 = log2_of(d->block_size);
    k->is_aligned = is_aligned(d->codes, 8) && is_aligned(d->values, 16);
    launch(kernel, k, DECODE_THREADS, berthi_decode_ctas(d->count));
}

static void
decode_4bit(const berthi_decode_arguments *d, const uint32_t *values)
{
    static kernel_function *const kernels[3] = {
        berthi_decode_4bit_bf16, berthi_decode_4bit_f16, berthi_decode_4bit_f32,
    };
    berthi_decode_kernel k = { .absmax = d->absmax };

    memcpy(k.table, values, 16 * sizeof values[0]);
    decode_by(d, &k, kernels[of_dtype(d->dtype)]);
}

void
simt_decode_nf4(const berthi_decode_arguments *d)
{
    decode_4bit(d, berthi_nf4_values);
}

void
simt_decode_fp4(const berthi_decode_arguments *d)
{
    decode_4bit(d, berthi_fp4_values);
}

void
simt_decode_map(const berthi_decode_arguments *d)
{
    static kernel_function *const kernels[3] = {
        berthi_decode_map_bf16, berthi_decode_map_f16, berthi_decode_map_f32,
    };
    berthi_decode_kernel k = { .absmax = d->absmax };

    memcpy(k.table, d->map, sizeof k.table);
    decode_by(d, &k, kernels[of_dtype(d->dtype)]);
}

void
simt_decode_double(const berthi_decode_arguments *d, const uint32_t *values,
                   const simt_double_absmax *absmax)
{
    static kernel_function *const kernels[3] = {
        berthi_decode_4bit_bf16_double, berthi_decode_4bit_f16_double,
        berthi_decode_4bit_f32_double,
    };
    berthi_decode_kernel k = { .absmax = absmax->absmax2, .absmax_codes = absmax->codes,
                               .offset = &absmax->offset };

    memcpy(k.table, values, 16 * sizeof values[0]);
    memcpy(k.map, absmax->map, sizeof k.map);
    decode_by(d, &k, kernels[of_dtype(d->dtype)]);
}

/* -------------------------------------------------------------- parts of grids */

void
simt_level_encode_from(const berthi_encode_kernel *kernel, uint64_t first_cta)
{
    const simt_launch l = { .threads = ENCODE_THREADS,
                            .ctas = berthi_encode_ctas(kernel->count),
                            .first_cta = first_cta };

    CHECK_STR(simt_run(&l, berthi_encode_nf4_bf16_64, kernel), NULL);
}

void
simt_level_decode_from(const uint8_t *codes, const float *absmax, uint64_t count,
                       void *values, uint64_t first_cta)
{
    const simt_launch l = { .threads = DECODE_THREADS, .ctas = berthi_decode_ctas(count),
                            .first_cta = first_cta };
    berthi_decode_kernel k = { .codes = codes, .values = values, .absmax = absmax,
                               .count = count, .block_log2 = 6, .is_aligned = 1 };

    memcpy(k.table, berthi_nf4_values, sizeof berthi_nf4_values);
    CHECK_STR(simt_run(&l, berthi_decode_4bit_bf16, &k), NULL);
}
