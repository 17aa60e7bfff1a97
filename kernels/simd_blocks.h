/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simd_blocks.h - what the instruction-set levels share: whole blocks of
 * ordinary numbers go to the level's own code, everything rare to the
 * reference loops, so that its rules are written once.
 *
 * Rare: a block with a NaN or an infinity, or whose maximum is below 2^-64 (its
 * subnormals would count) or above 2^126 (its reciprocal is flushed), and the
 * short block at the end.
 *
 * Included by one file per level; the level's functions are inlined into the
 * drivers, one copy per dtype.
 */
#ifndef BERTH_KERNELS_SIMD_BLOCKS_H
#define BERTH_KERNELS_SIMD_BLOCKS_H

#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/number.h"

#if defined __SANITIZE_ADDRESS__
#define IS_WATCHED
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define IS_WATCHED
#endif
#endif

#ifdef IS_WATCHED /* with every access looked at, all in one is minutes of a compiler's work */
#define ALWAYS_INLINE static inline
#define UNROLL
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Vectors of an array stay in registers only when the loops over them are gone. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#endif

#define LARGEST_FLOAT 0x1.fffffep127f
#define SMALLEST_NORMAL 0x1p-126f

typedef void encode_function(const berthi_encode_arguments *arguments);
typedef void decode_function(const berthi_decode_arguments *arguments);

/* Largest magnitude of `count` elements; NaN or infinity when one is there. */
typedef float absmax_function(const void *values, int32_t dtype, uint64_t first,
                              uint32_t count);
/*
 * The block at `first`, whole and ordinary; `tables` are the level's own, and
 * `factor` is the reciprocal of absmax, or absmax itself for those who asked.
 */
typedef void encode_block_function(const berthi_encode_arguments *a, const void *tables,
                                   int32_t dtype, uint64_t first, float factor);
/* The block at `first`, whole; `absmax` is finite. */
typedef void decode_block_function(const berthi_decode_arguments *a, const uint32_t *values,
                                   uint64_t first, float absmax);

/* Bytes of the codes of `count` elements: a map means 8 bits, none 4. */
ALWAYS_INLINE uint64_t
code_bytes(const uint32_t *map, uint64_t count)
{
    return map != NULL ? count : count / 2;
}

/* `count` elements from `first`, a block border, by the reference. */
ALWAYS_INLINE void
encode_plainly(const berthi_encode_arguments *a, encode_function *reference,
               uint64_t first, uint64_t count)
{
    berthi_encode_arguments part = *a;

    part.values = (const uint8_t *)a->values + first * berthi_number_bytes(a->dtype);
    part.count = count;
    part.codes = a->codes + code_bytes(a->map, first);
    part.absmax = a->absmax + first / a->block_size;
    reference(&part);
}

/*
 * Asks for so many bytes some way behind those at `first`: processors that read ahead by
 * themselves stop at the end of a page. What lies behind the last is never touched. Half
 * a page: with a whole one each line is of a page that nothing has been read of yet.
 */
#define FETCHED_AHEAD 2048u

ALWAYS_INLINE void
fetch_bytes_ahead(const void *bytes, uint64_t first, uint64_t count)
{
    const uintptr_t from = (uintptr_t)bytes + first + FETCHED_AHEAD;

    for (uint64_t k = 0; k < count; k += 64)
        __builtin_prefetch((const void *)(from + k));
}

ALWAYS_INLINE void
fetch_ahead(const void *values, int32_t dtype, uint64_t first, uint64_t count)
{
    const uint64_t size = berthi_number_bytes(dtype);

    fetch_bytes_ahead(values, size * first, size * count);
}

ALWAYS_INLINE bool
is_ordinary(float absmax)
{
    return absmax >= 0x1p-64f && absmax <= 0x1p126f;
}

/* Blocks whose maxima are found, and inverted, one after the other. */
#define BATCH 16u
#define BATCH_VALUES 2048u /* they stay in the first cache meanwhile */

/*
 * Reciprocals of `count` ordinary numbers, as many as a constant says; of others anything.
 * Pieces are fetched apart, so that vectors are made of the rest.
 */
ALWAYS_INLINE void
invert(const float *values, uint32_t count, float *restrict out)
{
    uint32_t constant[BATCH];
    uint32_t shape[BATCH];

    for (uint32_t k = 0; k < count; k++) {
        const berthi_reciprocal_piece *const piece =
            berthi_reciprocal_piece_of(berthi_core_bits(values[k]));

        constant[k] = piece->constant;
        shape[k] = piece->shape;
    }
    for (uint32_t k = 0; k < count; k++)
        out[k] = berthi_core_float(
            berthi_reciprocal_bits(berthi_core_bits(values[k]), constant[k], shape[k]));
}

/* Largest magnitudes of `count` blocks, and their reciprocals. */
ALWAYS_INLINE void
prepare_blocks(const berthi_encode_arguments *a, int32_t dtype, uint64_t first,
               uint32_t count, absmax_function *find_absmax, float *absmax,
               float *reciprocal)
{
    for (uint32_t b = 0; b < BATCH; b++)
        absmax[b] = 1.0f;
    for (uint32_t b = 0; b < count; b++)
        absmax[b] = find_absmax(a->values, dtype, first + (uint64_t)b * a->block_size,
                                a->block_size);
    invert(absmax, BATCH, reciprocal);
}

/* The whole block at `first`, the `block`th, whatever its largest magnitude is. */
ALWAYS_INLINE void
encode_any(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
           uint64_t first, uint64_t block, float absmax, float factor,
           encode_block_function *encode_block, encode_function *reference)
{
    if (absmax == 0.0f) { /* pruned and padded weights have many */
        memset(a->codes + code_bytes(a->map, first), 0,
               code_bytes(a->map, a->block_size));
        a->absmax[block] = 0.0f;
    } else if (!is_ordinary(absmax)) {
        encode_plainly(a, reference, first, a->block_size);
    } else {
        a->absmax[block] = absmax;
        encode_block(a, tables, dtype, first, factor);
    }
}

/* With reciprocals; `dtype` is a constant. */
ALWAYS_INLINE void
encode_typed(const berthi_encode_arguments *arguments, const void *tables, int32_t dtype,
             absmax_function *find_absmax, encode_block_function *encode_block,
             encode_function *reference)
{
    /* Ours alone: what is stored to `codes` cannot have changed it. */
    const berthi_encode_arguments own = *arguments;
    const berthi_encode_arguments *const a = &own;
    const uint64_t whole = a->count - a->count % a->block_size;
    const uint32_t most = a->block_size >= BATCH_VALUES ? 1 : BATCH_VALUES / a->block_size;
    const uint32_t batch = (uint32_t)(most < BATCH ? most : BATCH) * a->block_size;
    uint64_t block = 0; /* counted: a division takes longer than some blocks */
    float absmax[BATCH];
    float reciprocal[BATCH];

    for (uint64_t first = 0; first < whole;) {
        const uint64_t end = whole - first < batch ? whole : first + batch;

        prepare_blocks(a, dtype, first, (uint32_t)(end - first) / a->block_size,
                       find_absmax, absmax, reciprocal);
        for (uint32_t b = 0; first < end; b++, block++, first += a->block_size) {
            fetch_ahead(a->values, dtype, first, a->block_size);
            encode_any(a, tables, dtype, first, block, absmax[b], reciprocal[b],
                       encode_block, reference);
        }
    }
    if (whole < a->count)
        encode_plainly(a, reference, whole, a->count - whole);
}

/*
 * By the largest magnitudes themselves, of which nothing has to be made: the next block's
 * is looked for while this one is encoded, and stays in a register. (Through memory, as
 * above, one process in four was slower by half on a Zen 4.) `dtype` and, where one is
 * worth code of its own, `block_size` are constants.
 */
ALWAYS_INLINE void
encode_by_absmax(const berthi_encode_arguments *arguments, const void *tables,
                 int32_t dtype, uint32_t block_size, absmax_function *find_absmax,
                 encode_block_function *encode_block, encode_function *reference)
{
    berthi_encode_arguments own = *arguments;
    own.block_size = block_size;
    const uint64_t whole = own.count - own.count % block_size;

    float next = whole > 0 ? find_absmax(own.values, dtype, 0, block_size) : 0.0f;
    uint64_t block = 0;

    for (uint64_t first = 0; first < whole; first += block_size, block++) {
        const float absmax = next;

        fetch_ahead(own.values, dtype, first, block_size);
        if (first + block_size < whole)
            next = find_absmax(own.values, dtype, first + block_size, block_size);
        encode_any(&own, tables, dtype, first, block, absmax, absmax, encode_block,
                   reference);
    }
    if (whole < own.count)
        encode_plainly(&own, reference, whole, own.count - whole);
}

/* One copy per dtype, so that the loads carry no branch. */
ALWAYS_INLINE void
encode_all(const berthi_encode_arguments *a, const void *tables,
           absmax_function *find_absmax, encode_block_function *encode_block,
           encode_function *reference)
{
    if (a->dtype == BERTH_BF16)
        encode_typed(a, tables, BERTH_BF16, find_absmax, encode_block,
                     reference);
    else if (a->dtype == BERTH_F16)
        encode_typed(a, tables, BERTH_F16, find_absmax, encode_block,
                     reference);
    else
        encode_typed(a, tables, BERTH_F32, find_absmax, encode_block,
                     reference);
}

ALWAYS_INLINE void
decode_plainly(const berthi_decode_arguments *a, decode_function *reference,
               uint64_t first, uint64_t count)
{
    berthi_decode_arguments part = *a;

    part.codes = a->codes + first / 2;
    part.absmax = a->absmax + first / a->block_size;
    part.count = count;
    part.values = (uint8_t *)a->values + first * berthi_number_bytes(a->dtype);
    reference(&part);
}

ALWAYS_INLINE void
decode_all(const berthi_decode_arguments *a, const uint32_t *values,
           decode_block_function *decode_block, decode_function *reference)
{
    uint64_t first = 0;

    for (; a->count - first >= a->block_size; first += a->block_size) {
        const float absmax = a->absmax[first / a->block_size];

        if (fabsf(absmax) <= LARGEST_FLOAT) /* infinity times zero is a NaN */
            decode_block(a, values, first, berthi_core_flush(absmax));
        else
            decode_plainly(a, reference, first, a->block_size);
    }
    if (first < a->count)
        decode_plainly(a, reference, first, a->count - first);
}

#endif
