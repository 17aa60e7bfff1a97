/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - see launch.h: encoding and decoding; products are in launch_product.c */
#include "kernels/launch.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/launch_grid.h"

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
launch_encode(const berthi_encode_arguments *a, const berthi_kernel_id kernels[3],
              berthi_launch *out, berth_error *error)
{
    berthi_encode_kernel *const k = &out->argument.encode;
    size_t dtype;
    berth_status status = berthi_launch_find_dtype(a->dtype, &dtype, error);

    out->kernel = KERNEL_NONE;
    *k = (berthi_encode_kernel){
        .values = a->values, .codes = a->codes, .absmax = a->absmax, .count = a->count,
        .is_aligned = berthi_is_aligned(a->values, 16) && berthi_is_aligned(a->codes, 16),
    };
    if (status == BERTH_OK)
        status = berthi_launch_find_block(a->block_size, &k->block_log2, error);
    return status == BERTH_OK
               ? berthi_launch_set_grid(out, kernels[dtype], ENCODE_THREADS,
                                        berthi_encode_ctas(a->count), error)
               : status;
}

berth_status
berthi_launch_encode_nf4(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[2][3] =
        { OF_DTYPES(encode_nf4, ), OF_DTYPES(encode_nf4, _64) };
    const berth_status status = launch_encode(a, kernels[a->block_size == 64], out, error);

    berthi_fill_nf4_bins(out->argument.encode.table);
    return status;
}

berth_status
berthi_launch_encode_fp4(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[2][3] =
        { OF_DTYPES(encode_fp4, ), OF_DTYPES(encode_fp4, _64) };
    const berth_status status = launch_encode(a, kernels[a->block_size == 64], out, error);

    berthi_fill_fp4_bins(out->argument.encode.table);
    return status;
}

berth_status
berthi_launch_encode_map(const berthi_encode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(encode_map, );
    const berth_status status = launch_encode(a, kernels, out, error);

    berthi_fill_borders(out->argument.encode.table, a->map);
    return status;
}

/* ------------------------------------------------------------------ decoding */

/* But for the table, and for double quantized absmax. */
static berth_status
launch_decode(const berthi_decode_arguments *a, const berthi_kernel_id kernels[3],
              berthi_launch *out, berth_error *error)
{
    berthi_decode_kernel *const k = &out->argument.decode;
    size_t dtype;
    berth_status status = berthi_launch_find_dtype(a->dtype, &dtype, error);

    out->kernel = KERNEL_NONE;
    *k = (berthi_decode_kernel){
        .codes = a->codes, .values = a->values, .absmax = a->absmax, .count = a->count,
        .is_aligned = berthi_is_aligned(a->codes, 8) && berthi_is_aligned(a->values, 16),
    };
    if (status == BERTH_OK)
        status = berthi_launch_find_block(a->block_size, &k->block_log2, error);
    return status == BERTH_OK
               ? berthi_launch_set_grid(out, kernels[dtype], DECODE_THREADS,
                                        berthi_decode_ctas(a->count), error)
               : status;
}

berth_status
berthi_launch_decode_4bit(const berthi_decode_arguments *a, const uint32_t *values,
                          const berthi_double_absmax *absmax, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[2][2][3] =
        { { OF_DTYPES(decode_4bit, ), OF_DTYPES(decode_4bit, _double) },
          { OF_DTYPES(decode_4bit, _64), OF_DTYPES(decode_4bit, _64_double) } };
    berthi_decode_kernel *const k = &out->argument.decode;
    const berth_status status =
        launch_decode(a, kernels[a->block_size == 64][absmax != NULL], out, error);

    memcpy(k->table, values, 16 * sizeof values[0]);
    if (absmax != NULL) {
        k->absmax = absmax->absmax2;
        k->absmax_codes = absmax->codes;
        k->offset = absmax->offset;
        k->offset_value = absmax->offset_value;
        memcpy(k->map, absmax->map, sizeof k->map);
    }
    return status;
}

berth_status
berthi_launch_decode_map(const berthi_decode_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(decode_map, );
    const berth_status status = launch_decode(a, kernels, out, error);

    memcpy(out->argument.decode.table, a->map, sizeof out->argument.decode.table);
    return status;
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
        .is_aligned = berthi_is_aligned(m->values, 16),
        .is_old_order = m->is_old_order != 0,
    };
    status = berthi_launch_set_grid(&out[0], KERNEL_mean_sum,
                                    grid.width < warp ? warp : grid.width, grid.blocks, error);
    if (status != BERTH_OK || grid.blocks == 1)
        return status;
    out[1].argument.mean = out[0].argument.mean;
    out[1].argument.mean.values = m->partial;
    out[1].argument.mean.count = grid.blocks;
    out[1].argument.mean.sums = mean;
    out[1].argument.mean.factor = factor;
    return berthi_launch_set_grid(&out[1], KERNEL_mean_join, out[0].threads, 1, error);
}

berth_status
berthi_launch_encode_double(const berthi_double_arguments *a, const float *offset,
                            berthi_launch *out, berth_error *error)
{
    berthi_double_kernel *const k = &out->argument.twice;

    *k = (berthi_double_kernel){
        .values = a->absmax, .codes = a->codes, .absmax = a->absmax2, .offset = offset,
        .count = a->count,
        .is_aligned = berthi_is_aligned(a->absmax, 16) && berthi_is_aligned(a->codes, 16),
    };
    memcpy(k->map, berthi_signed_map, sizeof k->map);
    return berthi_launch_set_grid(out, KERNEL_encode_double, DOUBLE_THREADS,
                                  berthi_double_ctas(a->count), error);
}

void
berthi_launch_join_mean(berthi_launch *join, berthi_launch *codes)
{
    if (join->kernel == KERNEL_NONE || codes->kernel == KERNEL_NONE)
        return;
    codes->argument.twice.join = join->argument.mean;
    join->kernel = KERNEL_NONE;
}

/* --------------------------------------------------------------- LLM.int8() */

static berth_status
launch_rows(const berthi_int8_input_task *t, berthi_launch *out, berth_error *error)
{
    static const berthi_kernel_id kernels[3][3] =
        { OF_DTYPES(int8_encode, _warp), OF_DTYPES(int8_encode, _cta),
          OF_DTYPES(int8_encode, _any) };
    const berthi_int8_shape shape = berthi_int8_shape_of(
        t->columns, t->dtype,
        berthi_is_aligned(t->inputs, 16) && berthi_is_aligned(t->codes, 8));
    const uint32_t threads = berthi_int8_threads(t->columns, t->dtype, shape);
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(t->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(t->count, t->columns, error);
    if (status != BERTH_OK)
        return status;
    out->argument.int8 = (berthi_int8_kernel){
        .values = t->inputs, .codes = t->codes, .row_maximum = t->input_maximum,
        .rows = t->count, .columns = t->columns, .lanes = threads, .threshold = t->threshold,
        .maximum_limit = berthi_core_from_fp16(berthi_core_to_fp16(t->threshold)),
        .outliers = t->threshold > 0.0f ? t->outliers.mask : NULL,
    };
    return berthi_launch_set_grid(out, kernels[shape][dtype], threads,
                                  berthi_int8_ctas(t->count, shape), error);
}

berth_status
berthi_launch_encode_rows(const berthi_rows_arguments *a, berthi_launch *out,
                          berth_error *error)
{
    const berthi_int8_input_task as_inputs =
        { .inputs = a->values, .dtype = a->dtype, .count = a->rows, .columns = a->columns,
          .codes = a->codes, .input_maximum = a->row_maximum };

    return launch_rows(&as_inputs, out, error);
}

berth_status
berthi_launch_int8_input(const berthi_int8_input_task *t, berthi_launch out[3],
                         berth_error *error)
{
    const berthi_outlier_room *const o = &t->outliers;
    berth_status status;

    out[1].kernel = KERNEL_NONE;
    out[2].kernel = KERNEL_NONE;
    status = launch_rows(t, &out[0], error);
    if (status != BERTH_OK || !(t->threshold > 0.0f) || out[0].kernel == KERNEL_NONE)
        return status;
    out[1].argument.outlier = (berthi_outlier_kernel){
        .outliers = o->mask, .list = o->list, .count = o->count, .capacity = o->capacity,
        .codes = t->codes, .rows = t->count, .columns = t->columns,
    };
    out[2].argument.outlier = out[1].argument.outlier;
    status = berthi_launch_set_grid(&out[1], KERNEL_outlier_collect, OUTLIER_THREADS, 1,
                                    error);
    if (status != BERTH_OK || t->count == 1)
        return status;
    return berthi_launch_set_grid(&out[2], KERNEL_outlier_clear, OUTLIER_THREADS,
                                  berthi_int8_clear_ctas(t->count), error);
}

berth_status
berthi_launch_decode_rows(const berthi_rows_decode_arguments *a, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(int8_decode, );
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(a->rows, a->columns, error);
    if (status != BERTH_OK)
        return status;
    out->argument.int8_decode = (berthi_int8_decode_kernel){
        .codes = a->codes, .row_maximum = a->row_maximum, .values = a->values,
        .rows = a->rows, .columns = a->columns,
        .is_aligned = a->columns % INT8_LANE == 0 && berthi_is_aligned(a->codes, 8)
                      && berthi_is_aligned(a->values, 16),
    };
    return berthi_launch_set_grid(out, kernels[dtype], INT8_DECODE_THREADS,
                                  berthi_int8_decode_ctas(a->rows, a->columns), error);
}

berth_status
berthi_launch_int8_output(const berthi_int8_output_task *t, berthi_launch *out,
                          berth_error *error)
{
    static const berthi_kernel_id kernels[2][3] =
        { OF_DTYPES(int8_output, ), OF_DTYPES(int8_output, _outliers) };
    const berthi_outlier_room *const o = &t->outliers;
    const bool has_outliers = o->mask != NULL;
    berthi_int8_output_kernel *const k = &out->argument.int8_output;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(t->dtype, &dtype, error);
    if (status == BERTH_OK)
        status = check_matrix(t->count, t->rows, error);
    if (status == BERTH_OK && has_outliers)
        status = check_matrix(t->rows, t->columns, error);
    if (status != BERTH_OK)
        return status;
    *k = (berthi_int8_output_kernel){
        .sums = t->sums, .input_maximum = t->input_maximum,
        .weight_maximum = t->weight_maximum, .bias = t->bias, .outputs = t->outputs,
        .count = t->count, .rows = t->rows,
        .is_aligned = t->rows % INT8_OUTPUT_LANE == 0 && berthi_is_aligned(t->sums, 16)
                      && berthi_is_aligned(t->weight_maximum, 16)
                      && berthi_is_aligned(t->bias, 8)
                      && berthi_is_aligned(t->outputs, t->dtype == BERTH_F32 ? 16 : 8),
    };
    if (has_outliers) {
        k->capacity = o->capacity;
        k->outliers = o->mask;
        k->list = o->list;
        k->outlier_count = o->count;
        k->weights = t->weights;
        k->inputs = t->inputs;
        k->columns = t->columns;
    }
    return berthi_launch_set_grid(out, kernels[has_outliers][dtype], INT8_OUTPUT_THREADS,
                                  berthi_int8_output_ctas(t->count, t->rows), error);
}
