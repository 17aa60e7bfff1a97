/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - see launch.h */
#include "kernels/launch.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"

#define OF_DTYPES(prefix, suffix)                                                     \
    { KERNEL_##prefix##_bf16##suffix, KERNEL_##prefix##_f16##suffix,                  \
      KERNEL_##prefix##_f32##suffix }

/* ------------------------------------------------------------------- helpers */

/* The place of a dtype in OF_DTYPES, or a refusal. */
static berth_status
find_dtype(int32_t dtype, size_t *out, berth_error *error)
{
    *out = dtype == BERTH_BF16 ? 0 : dtype == BERTH_F16 ? 1 : 2;
    if (dtype == BERTH_BF16 || dtype == BERTH_F16 || dtype == BERTH_F32)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "no kernel has values of dtype %d",
                       (int)dtype);
}

static berth_status
find_block_log2(uint32_t block_size, uint32_t *out, berth_error *error)
{
    for (*out = 5; *out <= 12; ++*out)
        if (block_size == 1u << *out)
            return BERTH_OK;
    *out = 0;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "no kernel has blocks of %" PRIu32 ": they are 32 to 4096, a power of two",
                       block_size);
}

static bool
is_aligned(const void *address, uintptr_t bytes)
{
    return (uintptr_t)address % bytes == 0;
}

/* The last step: no CTA is no launch, and more than a grid holds a refusal. */
static berth_status
set_grid(berthi_launch *out, berthi_kernel_id kernel, uint32_t threads, uint64_t ctas,
         berth_error *error)
{
    out->kernel = KERNEL_NONE;
    out->threads = threads;
    out->ctas = 0;
    if (ctas > BERTHI_MOST_CTAS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "a grid of %" PRIu64 " CTAs, of which a GPU holds %" PRIu32, ctas,
                           BERTHI_MOST_CTAS);
    out->ctas = (uint32_t)ctas;
    if (ctas != 0)
        out->kernel = kernel;
    return BERTH_OK;
}

/* rows * columns, or a refusal. */
static berth_status
check_matrix(uint64_t rows, uint64_t columns, berth_error *error)
{
    if (columns != 0 && rows > UINT64_MAX / 4 / columns)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "a matrix of %" PRIu64 " x %" PRIu64, rows, columns);
    if (columns > UINT32_MAX / 2)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "rows of %" PRIu64 " columns",
                           columns);
    return BERTH_OK;
}

/* ------------------------------------------------------------------ encoding */

/* But for the table. */
static berth_status
fill_encode(const berthi_encode_arguments *a, berthi_encode_kernel *k, size_t *out_dtype,
            berth_error *error)
{
    const berth_status status = find_dtype(a->dtype, out_dtype, error);

    *k = (berthi_encode_kernel){
        .values = a->values, .codes = a->codes, .absmax = a->absmax, .count = a->count,
        .is_aligned = is_aligned(a->values, 16) && is_aligned(a->codes, 16),
    };
    return status == BERTH_OK ? find_block_log2(a->block_size, &k->block_log2, error) : status;
}

static berth_status
launch_encode(const berthi_encode_arguments *a, const berthi_kernel_id kernels[2][3],
              void (*fill_table)(uint32_t *table), berthi_launch *out, berth_error *error)
{
    berthi_encode_kernel *const k = &out->argument.encode;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = fill_encode(a, k, &dtype, error);
    if (status != BERTH_OK)
        return status;
    fill_table(k->table);
    return set_grid(out, kernels[a->block_size == 64][dtype], ENCODE_THREADS,
                    berthi_encode_ctas(a->count), error);
}

berth_status
berthi_launch_encode_nf4(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[2][3]
        = { OF_DTYPES(encode_nf4, ), OF_DTYPES(encode_nf4, _64) };

    return launch_encode(a, kernels, berthi_fill_nf4_bins, out, error);
}

berth_status
berthi_launch_encode_fp4(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[2][3]
        = { OF_DTYPES(encode_fp4, ), OF_DTYPES(encode_fp4, _64) };

    return launch_encode(a, kernels, berthi_fill_fp4_bins, out, error);
}

berth_status
berthi_launch_encode_map(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(encode_map, );
    berthi_encode_kernel *const k = &out->argument.encode;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = fill_encode(a, k, &dtype, error);
    if (status != BERTH_OK)
        return status;
    berthi_fill_borders(k->table, a->map);
    return set_grid(out, kernels[dtype], ENCODE_THREADS, berthi_encode_ctas(a->count), error);
}

/* ------------------------------------------------------------------ decoding */

static berth_status
fill_decode(const berthi_decode_arguments *a, berthi_decode_kernel *k, size_t *out_dtype,
            berth_error *error)
{
    const berth_status status = find_dtype(a->dtype, out_dtype, error);

    *k = (berthi_decode_kernel){
        .codes = a->codes, .values = a->values, .absmax = a->absmax, .count = a->count,
        .is_aligned = is_aligned(a->codes, 8) && is_aligned(a->values, 16),
    };
    return status == BERTH_OK ? find_block_log2(a->block_size, &k->block_log2, error) : status;
}

berth_status
berthi_launch_decode_4bit(const berthi_decode_arguments *a, const uint32_t *values,
                          const berthi_double_absmax *absmax, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[2][3]
        = { OF_DTYPES(decode_4bit, ), OF_DTYPES(decode_4bit, _double) };
    berthi_decode_kernel *const k = &out->argument.decode;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = fill_decode(a, k, &dtype, error);
    if (status != BERTH_OK)
        return status;
    memcpy(k->table, values, 16 * sizeof values[0]);
    if (absmax != NULL) {
        k->absmax = absmax->absmax2;
        k->absmax_codes = absmax->codes;
        k->offset = absmax->offset;
        memcpy(k->map, absmax->map, sizeof k->map);
    }
    return set_grid(out, kernels[absmax != NULL][dtype], DECODE_THREADS,
                    berthi_decode_ctas(a->count), error);
}

berth_status
berthi_launch_decode_map(const berthi_decode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(decode_map, );
    berthi_decode_kernel *const k = &out->argument.decode;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = fill_decode(a, k, &dtype, error);
    if (status != BERTH_OK)
        return status;
    memcpy(k->table, a->map, sizeof k->table);
    return set_grid(out, kernels[dtype], DECODE_THREADS, berthi_decode_ctas(a->count), error);
}

/* ------------------------------------------------------- double quantization */

berth_status
berthi_launch_mean(const berthi_mean_arguments *m, float *mean, berthi_launch out[2],
                   berth_error *error)
{
    const uint32_t warp = 32;
    berthi_mean_grid grid;
    berth_status status;
    float factor;

    out[0].kernel = KERNEL_NONE;
    out[1].kernel = KERNEL_NONE;
    if (m->count == 0)
        return BERTH_OK;
    grid = berthi_mean_plan(m);
    factor = 1.0f / (float)m->count;
    out[0].argument.mean = (berthi_mean_kernel){
        .values = m->values, .count = m->count, .width = grid.width,
        .sums = grid.blocks > 1 ? m->partial : mean,
        .factor = grid.blocks > 1 ? 1.0f : factor, .is_vector = grid.is_vector,
        .is_aligned = is_aligned(m->values, 16), .is_old_order = m->is_old_order != 0,
    };
    status = set_grid(&out[0], KERNEL_mean_sum, grid.width < warp ? warp : grid.width,
                      grid.blocks, error);
    if (status != BERTH_OK || grid.blocks == 1)
        return status;
    out[1].argument.mean = out[0].argument.mean;
    out[1].argument.mean.values = m->partial;
    out[1].argument.mean.count = grid.blocks;
    out[1].argument.mean.sums = mean;
    out[1].argument.mean.factor = factor;
    return set_grid(&out[1], KERNEL_mean_join, out[0].threads, 1, error);
}

berth_status
berthi_launch_encode_double(const berthi_double_arguments *a, const float *offset,
                            berthi_launch *out, berth_error *error)
{
    const berthi_encode_arguments as_codes
        = { a->absmax, BERTH_F32, BERTHI_DOUBLE_BLOCK, a->count, berthi_signed_map, a->codes,
            a->absmax2 };
    const berth_status status = berthi_launch_encode_map(&as_codes, out, error);

    out->argument.encode.offset = offset;
    if (out->kernel != KERNEL_NONE)
        out->kernel = KERNEL_encode_double;
    return status;
}

/* --------------------------------------------------------------- LLM.int8() */

static berth_status
launch_rows(const berthi_activation_arguments *a, uint32_t *mask, berthi_launch *out,
            berth_error *error)
{
    static const berthi_kernel_id kernels[3][3]
        = { OF_DTYPES(int8_encode, _warp), OF_DTYPES(int8_encode, _cta),
            OF_DTYPES(int8_encode, _any) };
    const berthi_int8_shape shape = berthi_int8_shape_of(
        a->columns, a->dtype, is_aligned(a->values, 16) && is_aligned(a->codes, 8));
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = find_dtype(a->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(a->rows, a->columns, error);
    if (status != BERTH_OK)
        return status;
    out->argument.int8 = (berthi_int8_kernel){
        .values = a->values, .codes = a->codes, .row_maximum = a->row_maximum,
        .rows = a->rows, .columns = a->columns, .threshold = a->threshold,
        .maximum_limit = berthi_core_from_fp16(berthi_core_to_fp16(a->threshold)),
        .outliers = mask,
    };
    return set_grid(out, kernels[shape][dtype],
                    shape == INT8_BY_WARP ? INT8_WARP_THREADS : INT8_THREADS,
                    berthi_int8_ctas(a->rows, shape), error);
}

berth_status
berthi_launch_encode_rows(const berthi_rows_arguments *a, berthi_launch *out,
                          berth_error *error)
{
    const berthi_activation_arguments as_activations
        = { a->values, a->dtype, a->rows, a->columns, 0.0f, a->codes, a->row_maximum, NULL };

    return launch_rows(&as_activations, NULL, out, error);
}

berth_status
berthi_launch_encode_activations(const berthi_activation_arguments *a,
                                 const berthi_outlier_room *room, berthi_launch out[3],
                                 berth_error *error)
{
    const bool has_outliers = a->threshold > 0.0f;
    berth_status status;

    out[1].kernel = KERNEL_NONE;
    out[2].kernel = KERNEL_NONE;
    status = launch_rows(a, has_outliers ? room->mask : NULL, &out[0], error);
    if (status != BERTH_OK || !has_outliers || out[0].kernel == KERNEL_NONE)
        return status;
    out[1].argument.outlier
        = (berthi_outlier_kernel){ room->mask,     room->list, room->count, room->capacity,
                                   a->codes,       a->rows,    a->columns };
    out[2].argument.outlier = out[1].argument.outlier;
    status = set_grid(&out[1], KERNEL_outlier_collect, OUTLIER_THREADS, 1, error);
    if (status != BERTH_OK)
        return status;
    return set_grid(&out[2], KERNEL_outlier_clear, OUTLIER_THREADS,
                    berthi_int8_clear_ctas(a->rows), error);
}

berth_status
berthi_launch_decode_rows(const berthi_rows_decode_arguments *a, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(int8_decode, );
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = find_dtype(a->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(a->rows, a->columns, error);
    if (status != BERTH_OK)
        return status;
    out->argument.int8_decode = (berthi_int8_decode_kernel){
        .codes = a->codes, .row_maximum = a->row_maximum, .values = a->values,
        .rows = a->rows, .columns = a->columns,
        .is_aligned = a->columns % INT8_LANE == 0 && is_aligned(a->codes, 8)
                      && is_aligned(a->values, 16),
    };
    return set_grid(out, kernels[dtype], INT8_DECODE_THREADS,
                    berthi_int8_decode_ctas(a->rows, a->columns), error);
}

berth_status
berthi_launch_int8_output(const berthi_int8_output_task *t, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[2][3]
        = { OF_DTYPES(int8_output, ), OF_DTYPES(int8_output, _outliers) };
    const berthi_outlier_room *const o = t->outliers;
    berthi_int8_output_kernel *const k = &out->argument.int8_output;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = find_dtype(t->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(t->count, t->rows, error);
    if (status == BERTH_OK && o != NULL)
        status = check_matrix(t->rows, t->columns, error);
    if (status != BERTH_OK)
        return status;
    *k = (berthi_int8_output_kernel){
        .sums = t->sums, .input_maximum = t->input_maximum,
        .weight_maximum = t->weight_maximum, .bias = t->bias, .outputs = t->outputs,
        .count = t->count, .rows = t->rows,
        .is_aligned = t->rows % INT8_OUTPUT_LANE == 0 && is_aligned(t->sums, 16)
                      && is_aligned(t->weight_maximum, 16) && is_aligned(t->bias, 8)
                      && is_aligned(t->outputs, t->dtype == BERTH_F32 ? 16 : 8),
    };
    if (o != NULL) {
        k->capacity = o->capacity;
        k->outliers = o->mask;
        k->list = o->list;
        k->outlier_count = o->count;
        k->weights = t->weights;
        k->inputs = t->inputs;
        k->columns = t->columns;
    }
    return set_grid(out, kernels[o != NULL][dtype], INT8_OUTPUT_THREADS,
                    berthi_int8_output_ctas(t->count, t->rows), error);
}

/* ------------------------------------------------------------------ products */

/* Columns of a chunk that tensor cores multiply at once; 0: they cannot. */
static uint32_t
find_chunk(const berthi_product_task *t)
{
    const berthi_multiply_arguments *const a = t->what;

    if (t->capability < 80 || a->dtype == BERTH_F32 || !is_aligned(a->inputs, 16)
        || a->columns == 0 || a->columns >= PRODUCT_MOST_COLUMNS
        || a->rows * a->columns >= PRODUCT_MOST_WEIGHTS)
        return 0;
    if (a->block_size >= 128 && a->columns % 128 == 0 && is_aligned(a->codes, 16))
        return 128;
    return a->block_size >= 64 && a->columns % 64 == 0 && is_aligned(a->codes, 8) ? 64 : 0;
}

#define OF_CHUNKS(prefix)                                                             \
    { { { KERNEL_##prefix##_64_bf16, KERNEL_##prefix##_64_f16 },                      \
        { KERNEL_##prefix##_64_bf16_double, KERNEL_##prefix##_64_f16_double } },      \
      { { KERNEL_##prefix##_128_bf16, KERNEL_##prefix##_128_f16 },                    \
        { KERNEL_##prefix##_128_bf16_double, KERNEL_##prefix##_128_f16_double } } }

/* Of one weight, by the number of inputs, or of experts. */
typedef enum product_kind { ONE_FOR_8, ONE_FOR_16, ONE_FOR_32, EXPERTS } product_kind;

static berthi_kernel_id
find_product_kernel(uint32_t chunk, size_t dtype, bool is_double, product_kind kind)
{
    static const berthi_kernel_id lanes[2][2][3]
        = { { OF_DTYPES(product_lanes, ), OF_DTYPES(product_lanes, _double) },
            { OF_DTYPES(experts_lanes, ), OF_DTYPES(experts_lanes, _double) } };
    static const berthi_kernel_id tensor_cores[4][2][2][2]
        = { OF_CHUNKS(product), OF_CHUNKS(product16), OF_CHUNKS(product32),
            OF_CHUNKS(experts) };

    if (chunk == 0)
        return lanes[kind == EXPERTS][is_double][dtype];
    return tensor_cores[kind][chunk == 128][is_double][dtype];
}

/* The values as inputs of this dtype meet them. */
static void
fill_product_table(const berthi_product_task *t, uint32_t *table)
{
    for (uint32_t code = 0; code < 16; code++) {
        float value = berthi_core_float(t->values[code]);

        if (t->what->dtype == BERTH_BF16)
            value = berthi_core_from_bf16(berthi_core_to_bf16(value));
        if (t->what->dtype == BERTH_F16)
            value = berthi_core_from_fp16(berthi_core_to_fp16(value));
        table[code] = berthi_core_bits(value);
    }
}

static void
fill_product(const berthi_product_task *t, uint32_t chunk, berthi_product_kernel *k)
{
    const berthi_multiply_arguments *const a = t->what;

    *k = (berthi_product_kernel){
        .codes = a->codes, .absmax = a->absmax, .absmax_codes = a->absmax_codes,
        .inputs = a->inputs, .bias = a->bias, .outputs = a->outputs, .rows = a->rows,
        .columns = a->columns, .offset = a->offset, .count = a->count,
        .groups = chunk != 0 ? a->count != 0
                             : a->count / PRODUCT_INPUTS + (a->count % PRODUCT_INPUTS != 0),
        .slices = chunk != 0 ? berthi_product_slices(a->rows, a->columns, t->processors) : 1,
        .is_aligned = a->columns % 8 == 0 && is_aligned(a->codes, 4)
                      && is_aligned(a->inputs, 16),
    };
    fill_product_table(t, k->table);
    if (a->absmax_codes != NULL)
        memcpy(k->map, a->map, sizeof k->map);
}

berth_status
berthi_launch_product(const berthi_product_task *t, berthi_launch *out, berth_error *error)
{
    const berthi_multiply_arguments *const a = t->what;
    berthi_product_kernel *const k = &out->argument.product;
    const uint32_t chunk = find_chunk(t);
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_multiply_check(a, error);
    if (status == BERTH_OK)
        status = find_dtype(a->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    fill_product(t, chunk, k);
    status = find_block_log2(a->block_size, &k->block_log2, error);
    if (status != BERTH_OK)
        return status;
    return set_grid(out,
                    find_product_kernel(chunk, dtype, a->absmax_codes != NULL,
                                        (product_kind)(berthi_product_fragments(a->count) / 2)),
                    PRODUCT_THREADS,
                    berthi_product_ctas(a->rows, chunk != 0 ? PRODUCT_TILE_ROWS : 1,
                                        k->slices, k->groups),
                    error);
}

/* As a product of one of them, with so many inputs that all products have. */
berth_status
berthi_launch_experts(const berthi_experts_task *t, berthi_launch *out, berth_error *error)
{
    const berthi_multiply_arguments one = {
        /* An address that is aligned as all of them are; nothing is read there. */
        .codes = (const uint8_t *)(uintptr_t)t->codes_alignment,
        .absmax_codes = t->is_double ? (const uint8_t *)t->experts : NULL, .map = t->map,
        .block_size = t->block_size, .count = 1, .rows = t->rows, .columns = t->columns,
        .inputs = t->inputs, .outputs = t->outputs, .dtype = t->dtype,
    };
    const berthi_product_task as_one = { .what = &one, .values = t->values,
                                         .capability = t->capability,
                                         .processors = t->processors };
    berthi_product_kernel *const k = &out->argument.product;
    const uint32_t chunk = find_chunk(&as_one);
    const uint32_t groups
        = t->most_inputs / PRODUCT_INPUTS + (t->most_inputs % PRODUCT_INPUTS != 0);
    uint64_t ctas;
    size_t dtype;
    berth_status status = berthi_launch_product(&as_one, out, error);

    if (status == BERTH_OK)
        status = find_dtype(t->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    k->codes = NULL;
    k->absmax_codes = NULL;
    k->experts = t->experts;
    k->ranges = t->ranges;
    k->groups = groups;
    k->ctas_of_group = out->ctas;
    if (!berthi_can_mul((uint64_t)t->expert_count * groups, out->ctas, &ctas))
        ctas = UINT64_MAX;
    return set_grid(out, find_product_kernel(chunk, dtype, t->is_double, EXPERTS),
                    PRODUCT_THREADS, ctas, error);
}
