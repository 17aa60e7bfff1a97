/* SPDX-License-Identifier: Apache-2.0 */
/* decode_weight.c - see decode_weight.h */
#include "kernels/decode_weight.h"

#include <inttypes.h>

#include "kernels/base.h"
#include "kernels/number.h"

/* Absmax that are recovered at once: a few kilobytes of the stack. */
#define RECOVERED_BLOCKS (4 * BERTHI_DOUBLE_BLOCK)

/* ------------------------------------------------------------------------- checks */

/* What is in a stretch can be numbered, and so can the bytes of its values. */
static berth_status
check_stretch(uint64_t first, uint64_t count, int32_t dtype, berth_error *error)
{
    uint64_t end;

    if (!berthi_is_number(dtype))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no weight is decoded to values of dtype %" PRId32, dtype);
    if (!berthi_can_add(first, count, &end) || end > UINT64_MAX / sizeof(float))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no weight has %" PRIu64 " values from number %" PRIu64 " on", count,
                           first);
    return BERTH_OK;
}

berth_status
berthi_decode_blocks_check(const berthi_decode_blocks_task *t, berth_error *error)
{
    const bool is_power = t->block_size != 0 && (t->block_size & (t->block_size - 1)) == 0;

    if (!is_power || t->block_size < 32 || t->block_size > 4096)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no weight is decoded in blocks of %" PRIu32
                           ": they are 32 to 4096, a power of two",
                           t->block_size);
    if (t->first % 2 != 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no decoding of 4-bit codes begins with value %" PRIu64
                           ": two share a byte, so the number is even",
                           t->first);
    return check_stretch(t->first, t->count, t->dtype, error);
}

berth_status
berthi_decode_rows_check(const berthi_decode_rows_task *t, berth_error *error)
{
    if (t->columns > UINT32_MAX / 2 || (t->columns == 0 && t->count > 0))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no weight is decoded in rows of %" PRIu64 " columns", t->columns);
    return check_stretch(t->first, t->count, t->dtype, error);
}

/* ------------------------------------------------------------------------- counts */

/* Of so many values each, those that a stretch is in. */
static uint64_t
count_units(uint64_t unit, uint64_t first, uint64_t count)
{
    return count > 0 ? (first + count - 1) / unit - first / unit + 1 : 0;
}

/* Values that share an absmax2. */
static uint64_t
span_of(const berthi_decode_blocks_task *t)
{
    return (uint64_t)t->block_size * BERTHI_DOUBLE_BLOCK;
}

uint64_t
berthi_decode_blocks_of(const berthi_decode_blocks_task *t)
{
    return count_units(t->block_size, t->first, t->count);
}

uint64_t
berthi_decode_absmax_blocks_of(const berthi_decode_blocks_task *t)
{
    return count_units(span_of(t), t->first, t->count);
}

uint64_t
berthi_decode_rows_of(const berthi_decode_rows_task *t)
{
    return count_units(t->columns, t->first, t->count);
}

/* -------------------------------------------------------------------------- parts */

/* The task from value `done` on, `count` of them. */
static berthi_decode_blocks_task
cut_blocks(const berthi_decode_blocks_task *t, uint64_t done, uint64_t count)
{
    const uint64_t at = t->first + done;
    const uint64_t block = at / t->block_size - t->first / t->block_size;
    berthi_decode_blocks_task part = *t;

    part.codes += done / 2;
    part.absmax += t->absmax_codes != NULL ? at / span_of(t) - t->first / span_of(t) : block;
    if (t->absmax_codes != NULL)
        part.absmax_codes += block;
    part.values = (uint8_t *)t->values + done * berthi_number_bytes(t->dtype);
    part.first = at;
    part.count = count;
    return part;
}

berthi_decode_blocks_task
berthi_decode_blocks_part(const berthi_decode_blocks_task *t, uint64_t done)
{
    const uint64_t inside_block = (t->first + done) % t->block_size;
    const uint64_t inside_span =
        t->absmax_codes != NULL ? (t->first + done) % span_of(t) : 0;
    const uint64_t left = t->count - done;

    if (inside_block > 0)
        return cut_blocks(t, done, berthi_min_u64(t->block_size - inside_block, left));
    if (inside_span > 0)
        return cut_blocks(t, done, berthi_min_u64(span_of(t) - inside_span, left));
    return cut_blocks(t, done, left);
}

berthi_rows_decode_arguments
berthi_decode_rows_part(const berthi_decode_rows_task *t, uint64_t done)
{
    const uint64_t row = (t->first + done) / t->columns - t->first / t->columns;
    const uint64_t column = (t->first + done) % t->columns;
    const uint64_t left = t->count - done;
    const bool is_whole = column == 0 && left >= t->columns;

    return (berthi_rows_decode_arguments){
        .codes = t->codes + done,
        .row_maximum = t->row_maximum + row,
        .rows = is_whole ? left / t->columns : 1,
        .columns = is_whole ? t->columns : berthi_min_u64(t->columns - column, left),
        .dtype = t->dtype,
        .values = (uint8_t *)t->values + done * berthi_number_bytes(t->dtype),
    };
}

/* ------------------------------------------------------------------ on host memory */

static void
decode_plainly(const berthi_decode_blocks_task *t, const float *absmax,
               void (*decode)(const berthi_decode_arguments *part))
{
    decode(&(berthi_decode_arguments){ .codes = t->codes, .absmax = absmax, .count = t->count,
                                       .block_size = t->block_size, .dtype = t->dtype,
                                       .values = t->values });
}

/* A part: at first some absmax, then the values of their blocks. */
static void
decode_doubly(const berthi_decode_blocks_task *t, const berthi_operations *operations,
              void (*decode)(const berthi_decode_arguments *part))
{
    const uint64_t step = (uint64_t)t->block_size * RECOVERED_BLOCKS;
    float absmax[RECOVERED_BLOCKS];

    for (uint64_t done = 0; done < t->count; done += step) {
        const berthi_decode_blocks_task some =
            cut_blocks(t, done, berthi_min_u64(step, t->count - done));

        operations->decode_double(
            &(berthi_double_arguments){
                .codes = (uint8_t *)(uintptr_t)some.absmax_codes,
                .absmax2 = (float *)(uintptr_t)some.absmax,
                .count = berthi_decode_blocks_of(&some),
                .offset = t->offset,
                .map = t->map },
            absmax);
        decode_plainly(&some, absmax, decode);
    }
}

void
berthi_decode_blocks_run(const berthi_decode_blocks_task *t,
                         const berthi_operations *operations,
                         void (*decode)(const berthi_decode_arguments *part))
{
    for (uint64_t done = 0; done < t->count;) {
        const berthi_decode_blocks_task part = berthi_decode_blocks_part(t, done);

        if (part.absmax_codes != NULL)
            decode_doubly(&part, operations, decode);
        else
            decode_plainly(&part, part.absmax, decode);
        done += part.count;
    }
}

void
berthi_decode_rows_run(const berthi_decode_rows_task *t, const berthi_operations *operations)
{
    for (uint64_t done = 0; done < t->count;) {
        const berthi_rows_decode_arguments part = berthi_decode_rows_part(t, done);

        operations->decode_rows(&part);
        done += part.rows * part.columns;
    }
}
