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
    uint64_t share;  /* rows of a part; the last one is shorter */
    uint64_t parts;
    uint32_t threads;
    uint8_t *memory; /* what follows lies in it, where it is not the caller's */
    uint64_t memory_bytes;
    float *absmax;   /* doubly quantized: recovered */
    float *outputs;
    float *scratch;  /* one after the other for each thread */
    bool *is_arranged; /* for each thread: its scratch has the inputs */
    int8_t *codes;   /* INT8: of the inputs */
    float *input_maximum;
    uint8_t *is_outlier;
    int64_t *sums;
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
    if (m->values.storage.encoding == BERTH_ENCODING_INT8)
        return product->threshold >= 0 ? NULL : "has a threshold below 0";
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

static void
divide_4bit(multiplication *m, divider *d)
{
    const uint32_t count = m->product.count;

    if (m->values.storage.is_double)
        m->absmax = divide(d, m->values.blocks, sizeof(float));
    if (m->product.dtype != BERTH_F32)
        m->outputs = divide(d, m->rows * count, sizeof(float));
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
    m->sums = divide(d, m->rows * count, sizeof(int64_t));
}

static berth_status
allocate(multiplication *m, berth_context *context, berth_error *error)
{
    void (*const parts)(multiplication *, divider *) =
        m->values.storage.encoding == BERTH_ENCODING_INT8 ? divide_int8 : divide_4bit;
    divider d = { .memory = NULL };

    m->share = berthi_max_u64(BERTHI_VALUES_PIECE / m->columns / SHARE_ROWS, 1) * SHARE_ROWS;
    m->parts = berthi_divide_up(m->rows, m->share);
    m->threads = berthi_values_threads(m->values.threads, m->parts);
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

/* ---------------------------------------------------------------------- 4-bit */

static void
multiply_share(void *user, uint32_t worker, uint64_t part)
{
    const multiplication *const m = user;
    const uint64_t first = part * m->share;
    const berthi_product_arguments arguments = {
        .codes = m->buffers.codes,
        .absmax = m->absmax,
        .block_size = m->values.storage.block_size,
        .count = m->product.count,
        .rows = m->rows,
        .columns = m->columns,
        .first_row = first,
        .end_row = first + berthi_min_u64(m->share, m->rows - first),
        .inputs = m->product.inputs,
        .dtype = m->product.dtype,
        .outputs = m->outputs,
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

static berth_status
multiply_4bit(multiplication *m, berth_context *context, const berth_values_options *options,
              berth_error *error)
{
    const berth_values_product *const product = &m->product;
    const bool is_cast = product->dtype != BERTH_F32;
    berth_status status = BERTH_OK;

    if (m->values.storage.is_double)
        status = berth_values_recover(context, options, &m->buffers, m->absmax,
                                      m->values.blocks * sizeof(float), error);
    else
        m->absmax = m->buffers.absmax;
    if (status != BERTH_OK)
        return status;
    if (!is_cast)
        m->outputs = product->outputs;
    memset(m->is_arranged, 0, m->threads * sizeof *m->is_arranged);
    berthi_values_run(m->threads, m->parts, multiply_share, m);
    if (is_cast)
        berthi_quantize_cast(m->outputs, BERTH_F32, product->outputs, product->dtype,
                             m->rows * product->count);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- INT8 */

static void
dot_share(void *user, uint32_t worker, uint64_t part)
{
    const multiplication *const m = user;
    const uint64_t first = part * m->share;
    const berthi_dot_arguments dot = {
        .weights = m->buffers.codes,
        .inputs = m->codes,
        .rows = m->rows,
        .columns = m->columns,
        .first_row = first,
        .end_row = first + berthi_min_u64(m->share, m->rows - first),
        .count = m->product.count,
        .sums = m->sums,
    };

    (void)worker;
    m->operations.dot_int8(&dot);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot,
        .weight_maximum = m->buffers.absmax,
        .input_maximum = m->input_maximum,
        .bias = m->product.bias,
        .inputs = m->product.inputs,
        .is_outlier = m->is_outlier,
        .dtype = m->product.dtype,
        .outputs = m->product.outputs,
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
    berth_status status;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    status = take(&m, context, options, buffers, product, error);
    if (status == BERTH_OK)
        status = allocate(&m, context, error);
    if (status != BERTH_OK)
        return status;
    if (m.values.storage.encoding == BERTH_ENCODING_INT8)
        multiply_int8(&m);
    else
        status = multiply_4bit(&m, context, options, error);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, m.memory, m.memory_bytes,
                               ALIGNMENT);
    return status;
}
