/* SPDX-License-Identifier: Apache-2.0 */
/* multiply_plain.c - see multiply_plain.h */
#include "kernels/multiply_plain.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/multiply.h"
#include "kernels/number.h"

#define SUMS BERTHI_PLAIN_SUMS
#define TILE_ROWS 4u /* a value is widened once for so many rows, or inputs */
#define TILE_INPUTS 4u
#define EIGHT 8u
#define LANES (SUMS / EIGHT)

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ------------------------------------------------------------------------ refusals */

berth_status
berthi_multiply_plain_check(const berthi_multiply_plain_arguments *a, berth_error *error)
{
    if (!berthi_is_number(a->dtype))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no product has inputs of dtype %" PRId32, a->dtype);
    if (!berthi_is_number(a->weight_dtype))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no product has a weight of dtype %" PRId32, a->weight_dtype);
    return berthi_multiply_check_sizes(a->rows, a->columns, a->count, error);
}

berth_status
berthi_multiply_int8_check(const berthi_multiply_int8_arguments *a, berth_error *error)
{
    if (a->columns > BERTHI_INT8_COLUMNS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no sum of 32 bits is that of %" PRIu64 " columns of codes: %" PRIu64
                           " at most",
                           a->columns, BERTHI_INT8_COLUMNS);
    return berthi_multiply_check_sizes(a->rows, a->columns, a->count, error);
}

/* ------------------------------------------------------------------------- numbers */

/* Some rows and inputs, and a row of sums for each pair of them. */
typedef struct tile {
    uint64_t row;
    uint32_t input;
    uint32_t rows;
    uint32_t inputs;
    float sums[TILE_INPUTS][TILE_ROWS][SUMS];
} tile;

ALWAYS_INLINE void
widen(const void *values, int32_t dtype, uint64_t first, uint32_t count, float *out)
{
    if (dtype == BERTH_F32)
        for (uint32_t k = 0; k < count; k++)
            out[k] = berthi_core_load(values, BERTH_F32, first + k);
    else if (dtype == BERTH_BF16)
        for (uint32_t k = 0; k < count; k++)
            out[k] = berthi_core_load(values, BERTH_BF16, first + k);
    else
        for (uint32_t k = 0; k < count; k++)
            out[k] = berthi_core_load(values, BERTH_F16, first + k);
}

/* Columns from `column` on, at most one for each sum. */
ALWAYS_INLINE void
add_turn(const berthi_multiply_plain_arguments *a, tile *t, uint64_t column, uint32_t count)
{
    float weights[TILE_ROWS][SUMS];
    float inputs[SUMS];

    for (uint32_t r = 0; r < t->rows; r++)
        widen(a->weight, a->weight_dtype, (t->row + r) * a->columns + column, count,
              weights[r]);
    for (uint32_t i = 0; i < t->inputs; i++) {
        widen(a->inputs, a->dtype, (uint64_t)(t->input + i) * a->columns + column, count,
              inputs);
        for (uint32_t r = 0; r < t->rows; r++)
            for (uint32_t k = 0; k < count; k++)
                t->sums[i][r][k] = berthi_core_add(
                    t->sums[i][r][k], berthi_core_multiply(weights[r][k], inputs[k]));
    }
}

/* Within eights of neighbours, then over them. */
static float
join_sums(float *sums)
{
    for (uint32_t step = EIGHT / 2; step > 0; step /= 2)
        for (uint32_t k = 0; k < SUMS; k++)
            if (k % EIGHT < step)
                sums[k] = berthi_core_add(sums[k], sums[k + step]);
    for (uint32_t step = LANES / 2; step > 0; step /= 2)
        for (uint32_t k = 0; k < step; k++)
            sums[k * EIGHT] = berthi_core_add(sums[k * EIGHT], sums[(k + step) * EIGHT]);
    return sums[0];
}

static void
store_tile(const berthi_multiply_plain_arguments *a, tile *t)
{
    for (uint32_t i = 0; i < t->inputs; i++)
        for (uint32_t r = 0; r < t->rows; r++) {
            const uint64_t row = t->row + r;
            float sum = join_sums(t->sums[i][r]);

            if (a->bias != NULL)
                sum = berthi_core_add(sum, berthi_core_load(a->bias, a->dtype, row));
            berthi_core_store(a->outputs, a->dtype, (t->input + i) * a->rows + row, sum);
        }
}

/* Of whole turns the compiler knows the length: it makes vectors of them. */
static void
multiply_tile(const berthi_multiply_plain_arguments *a, tile *t)
{
    uint64_t column = 0;

    memset(t->sums, 0, sizeof t->sums);
    for (; a->columns - column >= SUMS; column += SUMS)
        add_turn(a, t, column, SUMS);
    if (column < a->columns)
        add_turn(a, t, column, (uint32_t)(a->columns - column));
    store_tile(a, t);
}

void
berthi_multiply_plain_run(const berthi_multiply_plain_arguments *a)
{
    tile t;

    for (t.row = 0; t.row < a->rows; t.row += TILE_ROWS)
        for (uint64_t i = 0; i < a->count; i += TILE_INPUTS) {
            t.input = (uint32_t)i;
            t.rows = (uint32_t)berthi_min_u64(TILE_ROWS, a->rows - t.row);
            t.inputs = (uint32_t)berthi_min_u64(TILE_INPUTS, a->count - i);
            multiply_tile(a, &t);
        }
}

/* --------------------------------------------------------------------------- codes */

#define PART_ROWS 64u /* weights that stay in the cache while all inputs meet them */
#define PART_INPUTS 8u

void
berthi_multiply_int8_run(const berthi_multiply_int8_arguments *a,
                         void (*dot)(const berthi_dot_arguments *part))
{
    int64_t sums[PART_INPUTS * PART_ROWS];

    for (uint64_t row = 0; row < a->rows; row += PART_ROWS)
        for (uint64_t i = 0; i < a->count; i += PART_INPUTS) {
            const uint64_t rows = berthi_min_u64(PART_ROWS, a->rows - row);
            const uint64_t inputs = berthi_min_u64(PART_INPUTS, a->count - i);

            dot(&(berthi_dot_arguments){
                .weights = a->weights + row * a->columns, .inputs = a->inputs + i * a->columns,
                .rows = rows, .columns = a->columns, .end_row = rows,
                .count = (uint32_t)inputs, .sums = sums });
            for (uint64_t k = 0; k < inputs * rows; k++)
                a->sums[(i + k / rows) * a->rows + row + k % rows] = (int32_t)sums[k];
        }
}
