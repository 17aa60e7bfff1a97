/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.c - see multiply.h
 *
 *   a part's absmax ─▶ recovered ─┐
 *   inputs ───────────────────────┴▶ sums as floats ─▶ bias ─▶ dtype
 *
 * Levels multiply by a weight with plain absmax, and have sums as floats: so a weight is
 * gone through in parts that begin with a block of their own, each a weight by itself.
 */
#include "kernels/multiply.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/number.h"

/* Of a part, at least: its weights stay in the cache while all inputs meet them. */
#define PART_ROWS 64u

berth_status
berthi_multiply_check_sizes(uint64_t rows, uint64_t columns, uint64_t count,
                            berth_error *error)
{
    const uint64_t most = UINT64_MAX / 4; /* values, of 4 bytes at most */

    if (columns <= UINT32_MAX / 2 && (columns == 0 || rows <= most / columns)
        && (count == 0 || (rows <= most / count && columns <= most / count)))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "no product has a weight of %" PRIu64 " x %" PRIu64 " and %" PRIu64
                       " inputs",
                       rows, columns, count);
}

berth_status
berthi_multiply_check(const berthi_multiply_arguments *a, berth_error *error)
{
    const bool is_power = a->block_size != 0 && (a->block_size & (a->block_size - 1)) == 0;

    if (a->dtype != BERTH_BF16 && a->dtype != BERTH_F16 && a->dtype != BERTH_F32)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no product has inputs of dtype %" PRId32, a->dtype);
    if (!is_power || a->block_size < 32 || a->block_size > 4096)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no product has blocks of %" PRIu32
                           ": they are 32 to 4096, a power of two",
                           a->block_size);
    return berthi_multiply_check_sizes(
        a->rows, a->columns, berthi_max_u64(a->count, BERTHI_MULTIPLY_INPUTS), error);
}

berthi_multiply_arguments
berthi_multiply_group(const berthi_multiply_arguments *a, uint32_t first)
{
    const uint64_t width = berthi_number_bytes(a->dtype);
    berthi_multiply_arguments group = *a;

    group.count = (uint32_t)berthi_min_u64(BERTHI_MULTIPLY_INPUTS, a->count - first);
    group.inputs = (const uint8_t *)a->inputs + first * a->columns * width;
    group.outputs = (uint8_t *)a->outputs + first * a->rows * width;
    return group;
}

uint64_t
berthi_multiply_period(uint64_t columns, uint32_t block_size)
{
    const uint64_t shared = columns & (0 - columns); /* 0 of none */

    return shared == 0 || shared >= block_size ? 1 : block_size / shared;
}

/* As many as begin on a block's border again and again; both are powers of two. */
static uint64_t
rows_of_part(const berthi_multiply_arguments *a)
{
    const uint64_t period = berthi_multiply_period(a->columns, a->block_size);

    return berthi_min_u64(berthi_max_u64(period, PART_ROWS), a->rows);
}

static uint64_t
blocks_of(const berthi_multiply_arguments *a, uint64_t rows)
{
    const uint64_t weights = rows * a->columns;

    return berthi_divide_up(weights, a->block_size);
}

uint64_t
berthi_multiply_scratch(const berthi_multiply_arguments *a)
{
    const uint32_t count = (uint32_t)berthi_min_u64(BERTHI_MULTIPLY_INPUTS, a->count);
    const uint64_t rows = rows_of_part(a);

    return rows * count + (a->absmax_codes != NULL ? blocks_of(a, rows) : 0)
           + berthi_product_scratch(a->columns, count);
}

/* What is left of a block of the second level, then the rest. */
void
berthi_multiply_recover(const berthi_double_arguments *weight,
                        const berthi_operations *operations, uint64_t first, uint64_t count,
                        float *out)
{
    while (count > 0) {
        const uint64_t left = BERTHI_DOUBLE_BLOCK - first % BERTHI_DOUBLE_BLOCK;
        berthi_double_arguments part = *weight;

        part.codes += first;
        part.absmax2 += first / BERTHI_DOUBLE_BLOCK;
        part.count = left < BERTHI_DOUBLE_BLOCK && left < count ? left : count;
        operations->decode_double(&part, out);
        first += part.count;
        count -= part.count;
        out += part.count;
    }
}

/* Of rows from `first` on; `sums` has them side by side for each input. */
static void
store_outputs(const berthi_multiply_arguments *a, uint64_t first, uint64_t rows,
              const float *sums)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint64_t row = 0; row < rows; row++) {
            float sum = sums[i * rows + row];

            if (a->bias != NULL)
                sum = berthi_core_add(sum, berthi_core_load(a->bias, a->dtype, first + row));
            berthi_core_store(a->outputs, a->dtype, i * a->rows + first + row, sum);
        }
}

static void
multiply_part(const berthi_multiply_arguments *a, const berthi_operations *operations,
              uint64_t first, uint64_t rows, bool is_arranged,
              void (*multiply)(const berthi_product_arguments *part))
{
    const uint64_t begin = first * a->columns;
    const uint64_t block = begin / a->block_size;
    const uint64_t blocks = a->absmax_codes != NULL ? blocks_of(a, rows) : 0;
    float *const sums = a->scratch + berthi_product_scratch(a->columns, a->count);
    float *const absmax = sums + rows * a->count;

    if (a->absmax_codes != NULL)
        berthi_multiply_recover(
            &(berthi_double_arguments){ .codes = (uint8_t *)(uintptr_t)a->absmax_codes,
                                        .absmax2 = (float *)(uintptr_t)a->absmax,
                                        .offset = a->offset,
                                        .map = a->map },
            operations, block, blocks, absmax);
    if (a->columns == 0)
        memset(sums, 0, rows * a->count * sizeof *sums);
    else
        multiply(&(berthi_product_arguments){
            .codes = a->codes + begin / 2,
            .absmax = a->absmax_codes != NULL ? absmax : a->absmax + block,
            .block_size = a->block_size,
            .count = a->count,
            .rows = rows,
            .columns = a->columns,
            .end_row = rows,
            .inputs = a->inputs,
            .dtype = a->dtype,
            .outputs = sums,
            .scratch = a->scratch,
            .is_arranged = is_arranged,
        });
    store_outputs(a, first, rows, sums);
}

void
berthi_multiply_run(const berthi_multiply_arguments *a, const berthi_operations *operations,
                    void (*multiply)(const berthi_product_arguments *part))
{
    const uint64_t part = rows_of_part(a);
    const bool is_one_group = a->count <= BERTHI_MULTIPLY_INPUTS;

    for (uint64_t row = 0; row < a->rows; row += part)
        for (uint64_t i = 0; i < a->count; i += BERTHI_MULTIPLY_INPUTS) {
            const berthi_multiply_arguments group = berthi_multiply_group(a, (uint32_t)i);

            multiply_part(&group, operations, row, berthi_min_u64(part, a->rows - row),
                          is_one_group && row > 0, multiply);
        }
}
