/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_scalar.c - plain loops over core.h: the oracle of every other level. */
#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/product.h"

/* ------------------------------------------------------------------- encode */

static float
find_absmax(const berthi_encode_arguments *a, uint64_t first, uint64_t end)
{
    float maximum = berthi_core_absmax_seed(end - first == a->block_size);

    for (uint64_t i = first; i < end; i++)
        maximum = berthi_core_absmax_step(maximum, berthi_core_load(a->values, a->dtype, i));
    return maximum;
}

typedef uint32_t code_function(const uint32_t *map, float scaled);

static uint32_t
nf4_code(const uint32_t *map, float scaled)
{
    (void)map;
    return berthi_core_nf4_code(scaled);
}

static uint32_t
fp4_code(const uint32_t *map, float scaled)
{
    (void)map;
    return berthi_core_fp4_code(scaled);
}

static void
put_nibble(uint8_t *codes, uint64_t i, uint32_t code)
{
    if (i % 2 == 0)
        codes[i / 2] = (uint8_t)(code << 4); /* the first of a pair is the high one */
    else
        codes[i / 2] = (uint8_t)(codes[i / 2] | code);
}

static void
encode_blocks(const berthi_encode_arguments *a, code_function *code_of, bool is_packed)
{
    for (uint64_t first = 0; first < a->count; first += a->block_size) {
        const uint64_t left = a->count - first;
        const uint64_t end = first + (left < a->block_size ? left : a->block_size);
        const float absmax = find_absmax(a, first, end);
        const float reciprocal = berthi_core_reciprocal(absmax);

        a->absmax[first / a->block_size] = absmax;
        for (uint64_t i = first; i < end; i++) {
            const float value = berthi_core_load(a->values, a->dtype, i);
            const float scaled = berthi_core_multiply_flush(value, reciprocal);
            const uint32_t code = code_of(a->map, scaled);

            if (is_packed)
                put_nibble(a->codes, i, code);
            else
                a->codes[i] = (uint8_t)code;
        }
        /* An odd tensor is padded with a zero, scaled like its last block. */
        if (is_packed && end == a->count && end % 2 == 1)
            put_nibble(a->codes, end,
                       code_of(a->map, berthi_core_multiply_flush(0.0f, reciprocal)));
    }
}

static void
encode_nf4(const berthi_encode_arguments *a)
{
    encode_blocks(a, nf4_code, true);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    encode_blocks(a, fp4_code, true);
}

static void
encode_map(const berthi_encode_arguments *a)
{
    encode_blocks(a, berthi_core_map_code, false);
}

/* ------------------------------------------------------------------- decode */

static uint32_t
get_nibble(const uint8_t *codes, uint64_t i)
{
    return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15u;
}

static void
decode_nf4(const berthi_decode_arguments *a)
{
    for (uint64_t i = 0; i < a->count; i++)
        berthi_core_store(
            a->values, a->dtype, i,
            berthi_core_nf4_value(get_nibble(a->codes, i), a->absmax[i / a->block_size]));
}

static void
decode_fp4(const berthi_decode_arguments *a)
{
    for (uint64_t i = 0; i < a->count; i++)
        berthi_core_store(
            a->values, a->dtype, i,
            berthi_core_fp4_value(get_nibble(a->codes, i), a->absmax[i / a->block_size]));
}

static void
decode_map(const berthi_decode_arguments *a)
{
    for (uint64_t i = 0; i < a->count; i++)
        berthi_core_store(
            a->values, a->dtype, i,
            berthi_core_map_decode(a->map, a->codes[i], a->absmax[i / a->block_size]));
}

/* ------------------------------------------------------ double quantization */

/* An ordinary subtraction: subnormals stay. A known count makes vectors of it. */
static inline __attribute__((always_inline)) void
subtract(const float *restrict absmax, float offset, uint64_t count, float *restrict out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = berthi_core_add(absmax[i], -offset);
}

void
berthi_encode_double_by(const berthi_double_arguments *a,
                        void (*encode_codes)(const berthi_encode_arguments *arguments,
                                             const void *tables),
                        const void *tables)
{
    for (uint64_t first = 0; first < a->count; first += BERTHI_DOUBLE_SCRATCH) {
        const uint64_t left = a->count - first;
        const uint64_t count = left < BERTHI_DOUBLE_SCRATCH ? left : BERTHI_DOUBLE_SCRATCH;

        if (count == BERTHI_DOUBLE_SCRATCH)
            subtract(a->absmax + first, a->offset, BERTHI_DOUBLE_SCRATCH, a->scratch);
        else
            subtract(a->absmax + first, a->offset, count, a->scratch);
        encode_codes(
            &(berthi_encode_arguments){
                .values = a->scratch,
                .dtype = BERTH_F32,
                .block_size = BERTHI_DOUBLE_BLOCK,
                .count = count,
                .map = berthi_signed_map,
                .codes = a->codes + first,
                .absmax = a->absmax2 + first / BERTHI_DOUBLE_BLOCK,
            },
            tables);
    }
}

static void
encode_map_plainly(const berthi_encode_arguments *a, const void *tables)
{
    (void)tables;
    encode_map(a);
}

static void
encode_double(const berthi_double_arguments *a)
{
    berthi_encode_double_by(a, encode_map_plainly, NULL);
}

static void
decode_double(const berthi_double_arguments *a, float *out_absmax)
{
    for (uint64_t i = 0; i < a->count; i++)
        out_absmax[i] = berthi_core_absmax_recover(a->map, a->codes[i],
                                                   a->absmax2[i / BERTHI_DOUBLE_BLOCK],
                                                   a->offset);
}

/* --------------------------------------------------------------- LLM.int8() */

/* Rows are cast to fp16 first, whatever their dtype. */
static void
encode_rows(const berthi_rows_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        float maximum = BERTHI_CORE_ROW_SEED;
        float scale;

        for (uint64_t i = first; i < first + a->columns; i++)
            maximum = berthi_core_absmax_step(
                maximum, berthi_core_load_fp16(a->values, a->dtype, i));
        scale = berthi_core_int8_scale(maximum);
        a->row_maximum[row] = maximum;
        for (uint64_t i = first; i < first + a->columns; i++)
            a->codes[i] = berthi_core_int8_code(
                berthi_core_load_fp16(a->values, a->dtype, i), scale);
    }
}

static void
decode_rows(const berthi_rows_decode_arguments *a)
{
    for (uint64_t i = 0; i < a->rows * a->columns; i++)
        berthi_core_store(a->values, a->dtype, i,
                    berthi_core_int8_value(a->codes[i], a->row_maximum[i / a->columns]));
}

/* ----------------------------------------------------------------- products */

/* Sums in double: what the other levels are measured against. */
static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    float values[16];

    berthi_product_values(value_bits, a->dtype, values);
    for (uint64_t row = a->first_row; row < a->end_row; row++)
        for (uint32_t i = 0; i < a->count; i++) {
            double sum = 0.0;

            for (uint64_t k = 0; k < a->columns; k++) {
                const uint64_t at = row * a->columns + k;
                const float weight = berthi_core_multiply_flush(
                    values[get_nibble(a->codes, at)], a->absmax[at / a->block_size]);

                sum += (double)weight
                       * (double)berthi_core_load(a->inputs, a->dtype, i * a->columns + k);
            }
            a->outputs[i * a->rows + row] = (float)sum;
        }
}

static void
multiply_nf4(const berthi_product_arguments *a)
{
    multiply(a, berthi_nf4_values);
}

static void
multiply_fp4(const berthi_product_arguments *a)
{
    multiply(a, berthi_fp4_values);
}

static void
dot_int8(const berthi_dot_arguments *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint64_t row = a->first_row; row < a->end_row; row++) {
            const int8_t *const x = a->inputs + i * a->columns;
            const int8_t *const w = a->weights + row * a->columns;
            int64_t sum = 0;

            for (uint64_t k = 0; k < a->columns; k++)
                sum += (int32_t)x[k] * (int32_t)w[k];
            a->sums[i * a->rows + row] = sum;
        }
}

const berthi_operations berthi_scalar_operations = {
    .level = "scalar",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .encode_map = encode_map,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
    .decode_map = decode_map,
    .encode_double = encode_double,
    .decode_double = decode_double,
    .add_mean_rows = berthi_add_mean_rows_plainly,
    .encode_rows = encode_rows,
    .decode_rows = decode_rows,
    .encode_activations = berthi_encode_activations,
    .decode_e2m1 = berthi_decode_e2m1,
    .decode_mxfp4 = berthi_decode_mxfp4,
    .multiply_nf4 = multiply_nf4,
    .multiply_fp4 = multiply_fp4,
    .dot_int8 = dot_int8,
    .update = berthi_update_plainly,
    .encode_state = berthi_encode_state_plainly,
    .decode_state = berthi_decode_state_plainly,
    .measure = berthi_measure_plainly,
    .accumulate = berthi_accumulate_plainly,
};
