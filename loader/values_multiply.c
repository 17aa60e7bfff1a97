/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values_multiply.c - vectors times a weight in the caller's memory.
 *
 *   4-bit   inputs ─▶ sums as floats, a share of the rows at a time ─▶ dtype
 *   INT8    inputs ─▶ codes, row maxima, outliers ─▶ sums ─▶ scaled, the same way
 */
#include <math.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/float_mode.h"
#include "kernels/multiply.h"
#include "kernels/number.h"
#include "loader/values.h"
#include "quant/format.h"
#include "quant/quantize.h"

#define ALIGNMENT 64u
/* Rows of a share are a multiple of so many: levels have up to 16 of them side by side. */
#define SHARE_ROWS 32u

/* One call under way. */
typedef struct multiplication {
    berthi_values values;
    berth_values_buffers buffers;
    berth_values_product product;
    berthi_operations operations;
    uint64_t rows;
    uint64_t columns;
    uint64_t first_row; /* of those that are multiplied */
    uint64_t end_row;
    uint64_t share;  /* rows of a part; the last one is shorter */
    uint64_t parts;
    uint32_t threads;
    uint8_t *memory; /* what follows lies in it, where it is not the caller's */
    uint64_t memory_bytes;
    uint64_t period; /* 4-bit: of rows that begin with a block */
    uint64_t base;   /* the last of those that is no later than the first row */
    uint64_t stride; /* of outputs, from those of an input to those of the next */
    uint64_t absmax_count; /* doubly quantized: of a share, at most */
    uint32_t map2[BERTHI_STORED_CONSTANT_MAX / sizeof(uint32_t)];
    float *absmax;   /* one after the other for each thread, as scratch and sums */
    float *outputs;  /* 4-bit: from those of the base on */
    float *scratch;
    bool *is_arranged; /* for each thread: its scratch has the inputs */
    int8_t *codes;   /* INT8: of the inputs */
    float *input_maximum;
    uint8_t *is_outlier;
    int64_t *sums;   /* of a share */
} multiplication;

/* ----------------------------------------------------------------- arguments */

static const char *
find_mistake(const multiplication *m)
{
    const berth_values_product *const product = &m->product;

    if (product->count < 1 || product->count > BERTH_VALUES_INPUTS)
        return "has a count that is not from 1 to 32";
    if (!berthi_is_number(product->dtype))
        return "has a dtype that is none of BF16, F16 and F32";
    if (product->first_row >= m->rows
        || product->row_count > m->rows - product->first_row)
        return "has rows that the weight does not have";
    if (m->values.storage.encoding == BERTH_ENCODING_INT8)
        return isgreaterequal(product->threshold, 0.0f) ? NULL : "has a threshold below 0";
    if (product->threshold != 0)
        return "has a threshold, which only INT8 has";
    if (product->bias != NULL || product->bias_bytes != 0)
        return "has a bias, which only INT8 takes";
    return NULL;
}

static berth_status
check_ranges(const multiplication *m, berthi_values_range *ranges, uint32_t count,
             berth_error *error)
{
    const berth_values_product *const product = &m->product;
    const uint32_t width = berthi_format_element_bytes(product->dtype);
    const uint64_t each = (uint64_t)width * product->count;

    /* No overflow: rows and columns are far below what berthi_values_take() allows. */
    ranges[count++] = (berthi_values_range){ "inputs", product->inputs,
                                             product->inputs_bytes, m->columns * each,
                                             width, false };
    ranges[count++] = (berthi_values_range){ "outputs", product->outputs,
                                             product->outputs_bytes, m->rows * each,
                                             width, true };
    if (product->bias != NULL || product->bias_bytes != 0)
        ranges[count++] = (berthi_values_range){ "bias", product->bias,
                                                 product->bias_bytes, m->rows * 2, 2,
                                                 false };
    return berthi_values_check(ranges, count, error);
}

static berth_status
take(multiplication *m, const berth_context *context,
     const berth_values_options *options, const berth_values_buffers *buffers,
     const berth_values_product *product, berth_error *error)
{
    berthi_values_range ranges[BERTHI_VALUES_RANGES];
    const char *mistake;
    uint32_t count;
    berth_status status;

    memset(m, 0, sizeof *m);
    if (product == NULL)
        return berthi_fail_argument(error, "product", "is NULL");
    status = berthi_values_take(options, &m->values, error);
    if (status == BERTH_OK && m->values.rank != 2)
        status = berthi_fail_argument(error, "options", "has a shape that is no matrix");
    if (status == BERTH_OK)
        status = berthi_options_take(&m->product, sizeof m->product, sizeof m->product,
                                     product, "product", error);
    if (status == BERTH_OK)
        status = berthi_options_check(m->product.reserved32, "product", error);
    if (status == BERTH_OK)
        status = berthi_values_take_buffers(&m->values, buffers, false, &m->buffers,
                                            ranges, &count, error);
    if (status != BERTH_OK)
        return status;
    m->rows = m->values.shape[0];
    m->columns = m->values.shape[1];
    m->operations = berthi_level_operations(context->level);
    mistake = find_mistake(m);
    if (mistake != NULL)
        return berthi_fail_argument(error, "product", mistake);
    m->first_row = m->product.first_row;
    m->end_row = m->product.row_count > 0 ? m->first_row + m->product.row_count : m->rows;
    return check_ranges(m, ranges, count, error);
}

/* -------------------------------------------------------------------- memory */

/* Sums up what is needed, or (with memory) divides it: one walk for both. */
typedef struct divider {
    uint8_t *memory;
    uint64_t used;
    bool is_too_large;
} divider;

static void *
divide(divider *d, uint64_t count, uint64_t size)
{
    void *const at = d->memory != NULL ? d->memory + d->used : NULL;
    uint64_t bytes;

    if (!berthi_can_mul(count, size, &bytes)
        || !berthi_can_round_up(bytes, ALIGNMENT, &bytes)
        || !berthi_can_add(d->used, bytes, &d->used))
        d->is_too_large = true;
    return at;
}

/* Sums of 4-bit weights are floats, which are the outputs themselves or become those. */
static bool
is_cast(const multiplication *m)
{
    return m->product.dtype != BERTH_F32;
}

static void
divide_4bit(multiplication *m, divider *d)
{
    const uint32_t count = m->product.count;

    if (m->values.storage.is_double)
        m->absmax = divide(d, m->absmax_count, sizeof(float) * m->threads);
    if (is_cast(m))
        m->outputs = divide(d, m->stride * count, sizeof(float));
    m->scratch = divide(d, berthi_product_scratch(m->columns, count),
                        sizeof(float) * m->threads);
    m->is_arranged = divide(d, m->threads, sizeof *m->is_arranged);
}

static void
divide_int8(multiplication *m, divider *d)
{
    const uint32_t count = m->product.count;

    m->codes = divide(d, m->columns * count, 1);
    m->input_maximum = divide(d, count, sizeof(float));
    if (m->product.threshold > 0)
        m->is_outlier = divide(d, m->columns, 1);
    m->sums = divide(d, m->share * count, sizeof(int64_t) * m->threads);
}

/* Where rows are counted from, for codes, absmax and outputs. */
static void
choose_base(multiplication *m)
{
    const uint32_t block_size = m->values.storage.block_size;

    m->period = berthi_multiply_period(m->columns, block_size);
    m->base = m->first_row / m->period * m->period;
    m->stride = is_cast(m) ? m->end_row - m->base : m->rows;
    if (!m->values.storage.is_double)
        return;
    m->absmax_count = berthi_min_u64(
        berthi_divide_up((m->period + m->share) * m->columns, block_size), m->values.blocks);
    (void)berthi_stored_constant(BERTHI_ROLE_MAP2, m->values.storage.encoding,
                                 (uint8_t *)m->map2);
}

static berth_status
allocate(multiplication *m, berth_context *context, berth_error *error)
{
    void (*const parts)(multiplication *, divider *) =
        m->values.storage.encoding == BERTH_ENCODING_INT8 ? divide_int8 : divide_4bit;
    divider d = { .memory = NULL };

    m->share = berthi_max_u64(BERTHI_VALUES_PIECE / m->columns / SHARE_ROWS, 1) * SHARE_ROWS;
    m->share = berthi_min_u64(m->share, m->end_row - m->first_row);
    m->parts = berthi_divide_up(m->end_row - m->first_row, m->share);
    m->threads = berthi_values_threads(m->values.threads, m->parts);
    if (m->values.storage.encoding != BERTH_ENCODING_INT8)
        choose_base(m);
    parts(m, &d);
    if (!d.is_too_large)
        m->memory = berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH, d.used,
                                          ALIGNMENT);
    if (m->memory == NULL)
        return berthi_fail_memory(error, "multiplying by a weight");
    m->memory_bytes = d.used;
    d = (divider){ .memory = m->memory };
    parts(m, &d);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- rows */

static uint64_t
first_of(const multiplication *m, uint64_t part)
{
    return m->first_row + part * m->share;
}

static uint64_t
end_of(const multiplication *m, uint64_t part)
{
    return first_of(m, part) + berthi_min_u64(m->share, m->end_row - first_of(m, part));
}

/* ---------------------------------------------------------------------- 4-bit */

/* Absmax of a share's blocks, from the first row's on; NULL `recovered`: they are plain. */
static const float *
find_absmax(const multiplication *m, uint64_t first, uint64_t end, float *recovered)
{
    const uint32_t block_size = m->values.storage.block_size;
    const uint64_t block = first * m->columns / block_size;

    if (recovered == NULL)
        return (const float *)m->buffers.absmax + block;
    berthi_multiply_recover(
        &(berthi_double_arguments){ .codes = m->buffers.absmax,
                                    .absmax2 = m->buffers.absmax2,
                                    .offset = m->buffers.offset,
                                    .map = m->map2 },
        &m->operations, block, berthi_divide_up(end * m->columns, block_size) - block,
        recovered);
    return recovered;
}

/* As a weight by itself, from the last row on that begins with a block. */
static void
multiply_share(void *user, uint32_t worker, uint64_t part)
{
    const multiplication *const m = user;
    const uint64_t before = first_of(m, part) / m->period * m->period;
    const uint64_t end = end_of(m, part);
    const berthi_product_arguments arguments = {
        .codes = (const uint8_t *)m->buffers.codes + before * m->columns / 2,
        .absmax = find_absmax(m, before, end,
                              m->values.storage.is_double
                                  ? m->absmax + worker * m->absmax_count
                                  : NULL),
        .block_size = m->values.storage.block_size,
        .count = m->product.count,
        .rows = m->stride,
        .columns = m->columns,
        .first_row = first_of(m, part) - before,
        .end_row = end - before,
        .inputs = m->product.inputs,
        .dtype = m->product.dtype,
        .outputs = m->outputs + (before - m->base),
        .scratch = m->scratch
                   + worker * berthi_product_scratch(m->columns, m->product.count),
        .is_arranged = m->is_arranged[worker],
    };

    if (m->values.storage.encoding == BERTH_ENCODING_NF4)
        m->operations.multiply_nf4(&arguments);
    else
        m->operations.multiply_fp4(&arguments);
    m->is_arranged[worker] = true;
}

/* Of each input the outputs of the rows. */
static void
cast_outputs(const multiplication *m)
{
    const berth_values_product *const product = &m->product;
    const uint32_t width = berthi_format_element_bytes(product->dtype);

    for (uint64_t i = 0; i < product->count; i++)
        berthi_quantize_cast(m->outputs + i * m->stride + (m->first_row - m->base), BERTH_F32,
                             (uint8_t *)product->outputs
                                 + (i * m->rows + m->first_row) * width,
                             product->dtype, m->end_row - m->first_row);
}

static void
multiply_4bit(multiplication *m)
{
    if (!is_cast(m))
        m->outputs = (float *)m->product.outputs + m->base;
    memset(m->is_arranged, 0, m->threads * sizeof *m->is_arranged);
    berthi_values_run(m->threads, m->parts, multiply_share, m);
    if (is_cast(m))
        cast_outputs(m);
}

/* ----------------------------------------------------------------------- INT8 */

/* As a weight by itself. */
static void
dot_share(void *user, uint32_t worker, uint64_t part)
{
    const multiplication *const m = user;
    const uint64_t first = first_of(m, part);
    const uint64_t rows = end_of(m, part) - first;
    const berthi_dot_arguments dot = {
        .weights = (const int8_t *)m->buffers.codes + first * m->columns,
        .inputs = m->codes,
        .rows = rows,
        .columns = m->columns,
        .end_row = rows,
        .count = m->product.count,
        .sums = m->sums + worker * m->share * m->product.count,
    };

    m->operations.dot_int8(&dot);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot,
        .weight_maximum = (const float *)m->buffers.absmax + first,
        .input_maximum = m->input_maximum,
        .bias = m->product.bias != NULL ? m->product.bias + first : NULL,
        .inputs = m->product.inputs,
        .is_outlier = m->is_outlier,
        .dtype = m->product.dtype,
        .outputs = (uint8_t *)m->product.outputs
                   + first * berthi_format_element_bytes(m->product.dtype),
        .stride = m->rows,
    });
}

static void
multiply_int8(multiplication *m)
{
    m->operations.encode_activations(&(berthi_activation_arguments){
        .values = m->product.inputs,
        .dtype = m->product.dtype,
        .rows = m->product.count,
        .columns = m->columns,
        .threshold = m->product.threshold,
        .codes = m->codes,
        .row_maximum = m->input_maximum,
        .is_outlier = m->is_outlier,
    });
    berthi_values_run(m->threads, m->parts, dot_share, m);
}

/* ------------------------------------------------------------------ interface */

berth_status
berth_values_multiply(berth_context *context, const berth_values_options *options,
                      const berth_values_buffers *buffers,
                      const berth_values_product *product, berth_error *error)
{
    multiplication m;
    fenv_t mode;
    berth_status status;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    status = take(&m, context, options, buffers, product, error);
    if (status == BERTH_OK)
        status = allocate(&m, context, error);
    if (status != BERTH_OK)
        return status;
    berthi_float_mode_begin(&mode);
    if (m.values.storage.encoding == BERTH_ENCODING_INT8)
        multiply_int8(&m);
    else
        multiply_4bit(&m);
    berthi_float_mode_end(&mode);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, m.memory, m.memory_bytes,
                               ALIGNMENT);
    return status;
}
