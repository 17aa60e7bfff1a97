/* SPDX-License-Identifier: Apache-2.0 */
/* simt_level.c - see simt_level.h */
#include "tests/simt_level.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/dequantize.cuh"
#include "kernels/int8.cuh"
#include "kernels/mean.cuh"
#include "kernels/quantize.cuh"
#include "tests/t.h"

static simt_order level_order;
static uint64_t level_seed;
static uint64_t level_first;

void
simt_level_set_order(simt_order order, uint64_t seed)
{
    level_order = order;
    level_seed = seed;
}

void
simt_level_set_first(uint64_t first_cta)
{
    level_first = first_cta;
}

static void
launch(void (*kernel)(const void *), const void *argument, uint32_t threads, uint64_t ctas)
{
    const simt_launch l = { .threads = threads, .ctas = ctas, .first_cta = level_first,
                            .order = level_order, .seed = level_seed };

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

/* --------------------------------------------------------------- LLM.int8() */

static void
encode_int8(const berthi_activation_arguments *r, uint32_t *outliers)
{
#define SHAPES(dtype)                                                                 \
    { berthi_int8_encode_##dtype##_warp, berthi_int8_encode_##dtype##_cta,            \
      berthi_int8_encode_##dtype##_any }
    static kernel_function *const kernels[3][3] = { SHAPES(bf16), SHAPES(f16), SHAPES(f32) };
#undef SHAPES
    const berthi_int8_shape shape = berthi_int8_shape_of(
        r->columns, r->dtype, is_aligned(r->values, 16) && is_aligned(r->codes, 8));
    const berthi_int8_kernel k = {
        .values = r->values, .codes = r->codes, .row_maximum = r->row_maximum,
        .rows = r->rows, .columns = r->columns, .threshold = r->threshold,
        .maximum_limit = berthi_core_from_fp16(berthi_core_to_fp16(r->threshold)),
        .outliers = outliers,
    };

    launch(kernels[of_dtype(r->dtype)][shape], &k,
           shape == INT8_BY_WARP ? INT8_WARP_THREADS : INT8_THREADS,
           berthi_int8_ctas(r->rows, shape));
}

void
simt_encode_rows(const berthi_rows_arguments *r)
{
    encode_int8(&(berthi_activation_arguments){ r->values, r->dtype, r->rows, r->columns, 0.0f,
                                                r->codes, r->row_maximum, NULL },
                NULL);
}

/* The list, where it has room for them all, is the mask's columns. */
static void
check_list(const berthi_outlier_kernel *o, const uint8_t *is_outlier)
{
    uint32_t found = 0;

    for (uint64_t k = 0; k < o->columns; k++) {
        if (is_outlier[k] == 0)
            continue;
        if (found < o->capacity)
            CHECK_EQ(o->list[found], k);
        found++;
    }
    CHECK_EQ(*o->count, found);
}

void
simt_encode_activations(const berthi_activation_arguments *r, uint32_t capacity)
{
    const uint64_t words = (r->columns + 31) / 32;
    uint32_t *const outliers = calloc(words, sizeof *outliers);
    uint32_t *const list = malloc(capacity * sizeof *list + 1);
    uint32_t count = 0;
    const berthi_outlier_kernel o = { outliers, list,    &count,    capacity,
                                      r->codes, r->rows, r->columns };

    T_REQUIRE(outliers != NULL && list != NULL);
    encode_int8(r, outliers);
    if (r->threshold > 0.0f) {
        launch(berthi_outlier_collect, &o, OUTLIER_THREADS, 1);
        launch(berthi_outlier_clear, &o, OUTLIER_THREADS, berthi_int8_clear_ctas(r->rows));
        for (uint64_t k = 0; k < r->columns; k++)
            r->is_outlier[k] = outliers[k / 32] >> k % 32 & 1;
        check_list(&o, r->is_outlier);
    }
    free(outliers);
    free(list);
}

void
simt_decode_rows(const berthi_rows_decode_arguments *d)
{
    static kernel_function *const kernels[3] = {
        berthi_int8_decode_bf16, berthi_int8_decode_f16, berthi_int8_decode_f32,
    };
    const berthi_int8_decode_kernel k = {
        .codes = d->codes, .row_maximum = d->row_maximum, .values = d->values,
        .rows = d->rows, .columns = d->columns,
        .is_aligned = d->columns % INT8_LANE == 0 && is_aligned(d->codes, 8)
                      && is_aligned(d->values, 16),
    };

    launch(kernels[of_dtype(d->dtype)], &k, INT8_DECODE_THREADS,
           berthi_int8_decode_ctas(d->rows, d->columns));
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
