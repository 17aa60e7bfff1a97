/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_matrix.c - see llama_matrix.h.
 *
 * Threads that are there already multiply by shares of a weight's rows, each with a
 * call of berth_values_multiply() that starts none.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/llama_error.h"
#include "tools/llama_math.h"
#include "tools/llama_matrix.h"

#define SHARE_VALUES (UINT64_C(1) << 18) /* so many are worth a turn */
#define SHARE_ROWS 512u /* of more inputs than a call takes: codes are still near for the next */
#define LAST_PART 10u   /* of the rows: for whoever is done first */
#define PLAIN_INPUTS 32u /* of plain numbers, that meet a row one after the other */
#define DOUBLE_BLOCK 256u /* statistics that share a second level */
#define BLOCK_MIN 32u
#define BLOCK_MAX 4096u

struct llama_multiplier {
    berth_context *context;
    llama_pool *pool;
    bool has_int8_inputs;
    float int8_threshold;
    /* the call under way */
    const llama_product *products;
    uint32_t count;
    _Atomic int32_t status; /* of the first that failed */
};

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* ------------------------------------------------------------------------ matrices */

static const berth_model_part *
find_part(const berth_model_tensor *tensor, int32_t role)
{
    for (uint32_t i = 0; i < tensor->part_count; i++)
        if (tensor->parts[i].role == role)
            return &tensor->parts[i];
    return NULL;
}

/* The part's memory; NULL, and BERTH_EINTERNAL, where it is not there as it should be. */
static const void *
take_part(const berth_model_tensor *tensor, int32_t role, uint64_t bytes,
          berth_status *status, berth_error *error)
{
    const berth_model_part *const part = find_part(tensor, role);

    if (*status != BERTH_OK)
        return NULL;
    if (part == NULL || part->memory == NULL || part->bytes < bytes) {
        *status = llama_fail(error, BERTH_EINTERNAL, tensor->name,
                             "is not in memory as its shape says");
        return NULL;
    }
    return part->memory;
}

static uint64_t
count_blocks(const llama_matrix *m)
{
    return divide_up(m->rows * m->columns, m->block_size);
}

static berth_status
take_4bit(const berth_model_tensor *tensor, llama_matrix *m, berth_error *error)
{
    const uint64_t blocks = count_blocks(m);
    berth_status status = BERTH_OK;

    m->is_double = tensor->is_double != 0;
    m->offset = tensor->offset;
    m->codes = take_part(tensor, BERTH_ROLE_CODES, divide_up(m->rows * m->columns, 2),
                         &status, error);
    m->absmax = take_part(tensor, BERTH_ROLE_ABSMAX, m->is_double ? blocks : blocks * 4,
                          &status, error);
    if (m->is_double)
        m->absmax2 = take_part(tensor, BERTH_ROLE_ABSMAX2,
                               divide_up(blocks, DOUBLE_BLOCK) * 4, &status, error);
    return status;
}

berth_status
llama_matrix_take(const berth_model_tensor *tensor, llama_matrix *out, berth_error *error)
{
    const bool is_4bit = tensor->encoding == BERTH_ENCODING_NF4
                         || tensor->encoding == BERTH_ENCODING_FP4;
    const uint64_t width = berth_dtype_bits(tensor->dtype) / 8;
    berth_status status = BERTH_OK;

    memset(out, 0, sizeof *out);
    out->encoding = tensor->encoding;
    out->dtype = tensor->dtype;
    out->block_size = tensor->block_size;
    if (tensor->rank < 1 || tensor->rank > 2 || !llama_math_has_dtype(tensor->dtype)
        || (is_4bit
            && (tensor->block_size < BLOCK_MIN || tensor->block_size > BLOCK_MAX))
        || (!is_4bit && tensor->encoding != BERTH_ENCODING_NATIVE
            && tensor->encoding != BERTH_ENCODING_INT8))
        return llama_fail(error, BERTH_EUNSUPPORTED, tensor->name,
                          "is stored as %s %s, which the decoder does not multiply by",
                          berth_dtype_name(tensor->dtype),
                          berth_encoding_name(tensor->encoding));
    out->rows = tensor->rank == 2 ? tensor->shape[0] : 1;
    out->columns = tensor->shape[tensor->rank - 1];
    if (is_4bit)
        return take_4bit(tensor, out, error);
    if (tensor->encoding == BERTH_ENCODING_NATIVE) {
        out->codes = take_part(tensor, BERTH_ROLE_VALUES, tensor->elements * width, &status,
                               error);
        return status;
    }
    out->codes = take_part(tensor, BERTH_ROLE_CODES, tensor->elements, &status, error);
    out->absmax = take_part(tensor, BERTH_ROLE_ROW_MAXIMUM, out->rows * 4, &status, error);
    return status;
}

/* ---------------------------------------------------------------------- multiplier */

berth_status
llama_multiplier_create(berth_context *context, llama_pool *pool,
                        const llama_multiplier_options *options, llama_multiplier **out,
                        berth_error *error)
{
    llama_multiplier *const m = malloc(sizeof *m);

    *out = m;
    if (m == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for products");
    *m = (llama_multiplier){ .context = context, .pool = pool,
                             .has_int8_inputs = options->has_int8_inputs,
                             .int8_threshold = options->int8_threshold };
    return BERTH_OK;
}

void
llama_multiplier_destroy(llama_multiplier *multiplier)
{
    free(multiplier);
}

/* ---------------------------------------------------------------------- shares */

static bool
is_4bit(const llama_matrix *m)
{
    return m->encoding == BERTH_ENCODING_NF4 || m->encoding == BERTH_ENCODING_FP4;
}

/* How the rows of a product are shared out: large shares first, then small ones. */
typedef struct division {
    uint64_t large; /* rows */
    uint64_t small;
    uint32_t large_count;
    uint32_t count; /* of both; the last one has what is left */
} division;

/*
 * A share each for all threads: to begin one costs as much as some rows. The last product
 * keeps a part back in small shares, which a thread that is late has fewer of.
 */
static division
divide_rows(const llama_multiplier *multiplier, const llama_product *product, bool is_last)
{
    const llama_matrix *const m = product->matrix;
    const uint64_t most = product->count > BERTH_VALUES_INPUTS ? SHARE_ROWS : UINT64_MAX;
    const uint64_t least = smaller(divide_up(SHARE_VALUES, m->columns), most);
    const uint64_t first = m->rows - (is_last ? m->rows / LAST_PART : 0);
    const uint64_t even = divide_up(first, llama_pool_threads(multiplier->pool));
    division d = { .large = smaller(even < least ? least : even, most), .small = least };

    d.large_count = (uint32_t)divide_up(first, d.large);
    d.count = d.large_count
              + (uint32_t)divide_up(m->rows - smaller(d.large_count * d.large, m->rows),
                                    d.small);
    return d;
}

/* One share of one product, on one thread. */
typedef struct share {
    const llama_multiplier *multiplier;
    const llama_product *product;
    const llama_matrix *matrix;
    uint64_t first; /* row */
    uint64_t rows;
} share;

/* The stored bytes of the whole weight. */
static void
find_buffers(const llama_matrix *m, berth_values_buffers *buffers)
{
    const uint64_t blocks = is_4bit(m) ? count_blocks(m) : m->rows;

    berth_values_buffers_init(buffers);
    buffers->codes = (void *)(uintptr_t)m->codes;
    buffers->codes_bytes =
        is_4bit(m) ? divide_up(m->rows * m->columns, 2) : m->rows * m->columns;
    buffers->absmax = (void *)(uintptr_t)m->absmax;
    buffers->absmax_bytes = m->is_double ? blocks : blocks * sizeof(float);
    buffers->absmax2 = (float *)(uintptr_t)m->absmax2;
    buffers->absmax2_bytes =
        m->is_double ? divide_up(blocks, DOUBLE_BLOCK) * sizeof(float) : 0;
    buffers->offset = m->offset;
}

/* By berth: `count` inputs from `first_input` on. */
static berth_status
multiply_encoded(const share *s, const berth_values_options *options,
                 const berth_values_buffers *buffers, uint32_t first_input, uint32_t count)
{
    const llama_matrix *const m = s->matrix;
    berth_values_product product;

    berth_values_product_init(&product);
    product.inputs = s->product->inputs + first_input * m->columns;
    product.inputs_bytes = count * m->columns * sizeof(float);
    product.outputs = s->product->outputs + first_input * m->rows;
    product.outputs_bytes = count * m->rows * sizeof(float);
    product.count = count;
    product.dtype = BERTH_F32;
    product.first_row = s->first;
    product.row_count = s->rows;
    if (m->encoding == BERTH_ENCODING_INT8)
        product.threshold = s->multiplier->int8_threshold;
    return berth_values_multiply(s->multiplier->context, options, buffers, &product, NULL);
}

static berth_status
multiply_share(const share *s)
{
    const llama_matrix *const m = s->matrix;
    const uint64_t shape[2] = { m->rows, m->columns };
    berth_status status = BERTH_OK;
    berth_values_options options;
    berth_values_buffers buffers;

    berth_values_options_init(&options);
    options.encoding = m->encoding;
    options.dtype = m->dtype;
    options.block_size = m->block_size;
    options.double_quant = m->is_double;
    options.shape = shape;
    options.rank = 2;
    options.threads = 1;
    find_buffers(m, &buffers);
    for (uint32_t i = 0; i < s->product->count && status == BERTH_OK;
         i += BERTH_VALUES_INPUTS)
        status = multiply_encoded(
            s, &options, &buffers, i,
            (uint32_t)smaller(s->product->count - i, BERTH_VALUES_INPUTS));
    return status;
}

/*
 * Plain numbers, or codes of INT8 with a scale a row: inputs stay floats. All rows meet so many
 * inputs as the processor's own memory holds before they meet the next.
 */
static void
multiply_plain(const share *s)
{
    const llama_matrix *const m = s->matrix;
    const bool is_int8 = m->encoding == BERTH_ENCODING_INT8;
    const int32_t dtype = is_int8 ? BERTH_I8 : m->dtype;
    const uint64_t row_bytes = m->columns * berth_dtype_bits(dtype) / 8;
    llama_math_inputs x = { .count = m->columns };

    for (uint32_t first = 0; first < s->product->count; first += x.inputs) {
        x.values = s->product->inputs + first * m->columns;
        x.inputs = (uint32_t)smaller(s->product->count - first, PLAIN_INPUTS);
        for (uint64_t row = s->first; row < s->first + s->rows; row++) {
            const float scale =
                is_int8 ? ((const float *)m->absmax)[row] * (1.0f / 127.0f) : 1.0f;
            float sums[PLAIN_INPUTS];

            llama_math_dots(dtype, (const char *)m->codes + row * row_bytes, &x, sums);
            for (uint32_t i = 0; i < x.inputs; i++)
                s->product->outputs[(first + i) * m->rows + row] = scale * sums[i];
        }
    }
}

static void
add_bias(const share *s)
{
    const llama_matrix *const m = s->matrix;
    const char *const bias = m->bias;
    const uint64_t width = berth_dtype_bits(m->bias_dtype) / 8;

    for (uint32_t i = 0; i < s->product->count && bias != NULL; i++)
        llama_math_add_scaled(m->bias_dtype, bias + s->first * width, 1.0f, s->rows,
                              s->product->outputs + i * m->rows + s->first);
}

/* ------------------------------------------------------------------------- product */

static division
divide_product(const llama_multiplier *m, uint32_t product)
{
    return divide_rows(m, &m->products[product], product + 1 == m->count);
}

/* Which rows of which product the part is. */
static void
find_share(const llama_multiplier *m, uint64_t part, share *out)
{
    uint32_t product = 0;
    division d;

    for (; part >= (d = divide_product(m, product)).count; product++)
        part -= d.count;
    out->product = &m->products[product];
    out->matrix = out->product->matrix;
    out->first = part < d.large_count
                     ? part * d.large
                     : d.large_count * d.large + (part - d.large_count) * d.small;
    out->rows = smaller(part < d.large_count ? d.large : d.small,
                        out->matrix->rows - out->first);
}

static void
do_share(void *user, uint32_t worker, uint32_t part)
{
    llama_multiplier *const m = user;
    share s = { .multiplier = m };
    berth_status status = BERTH_OK;

    (void)worker;
    find_share(m, part, &s);
    if (is_4bit(s.matrix)
        || (s.matrix->encoding == BERTH_ENCODING_INT8 && m->has_int8_inputs))
        status = multiply_share(&s);
    else
        multiply_plain(&s);
    add_bias(&s);
    if (status != BERTH_OK)
        atomic_store(&m->status, status);
}

berth_status
llama_matrix_multiply(llama_multiplier *multiplier, const llama_product *products,
                      uint32_t count, berth_error *error)
{
    uint32_t shares = 0;
    berth_status status;

    multiplier->products = products;
    multiplier->count = count;
    for (uint32_t i = 0; i < count; i++)
        shares += divide_product(multiplier, i).count;
    atomic_store(&multiplier->status, BERTH_OK);
    llama_pool_run(multiplier->pool, shares, do_share, multiplier);
    status = atomic_load(&multiplier->status);
    return status == BERTH_OK
               ? BERTH_OK
               : llama_fail(error, status, NULL, "a product with a weight failed");
}
