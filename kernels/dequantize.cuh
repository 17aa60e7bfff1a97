/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.cuh - codes and absmax -> values: 4-bit codes and 8-bit maps, with
 * plain or double quantized absmax.
 *
 * A lane turns 8 neighbours at a time; they share a block. All turns' loads come
 * before the first use. Product and conversion are rounded separately, and so
 * are product and sum where an absmax is recovered.
 *
 *   traffic   per element 0.5 B (8-bit: 1 B) and 4 B a block read (double
 *             quantized: 1 B), 2 B (f32: 4 B) written
 *   launch    berthi_decode_ctas() CTAs of DECODE_THREADS lanes
 *   bits      core.h; the order of lanes cannot matter
 *   bounds    writes exactly `count` values; reads no code behind them
 */
#ifndef BERTH_KERNELS_DEQUANTIZE_CUH
#define BERTH_KERNELS_DEQUANTIZE_CUH

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct decode_variant {
    int32_t dtype;
    bool is_map;    /* 8-bit codes, or two 4-bit ones a byte */
    bool is_double; /* the absmax are codes themselves */
} decode_variant;

/* What a lane reads for a turn: its codes, and an absmax or how to recover it. */
typedef struct decode_input {
    uint32_t codes[2];
    float absmax;
    uint32_t absmax_code;
} decode_input;

/* --------------------------------------------------------------------- loads */

/* The first block of the CTA, the lane's among them, and blocks from turn to turn. */
typedef struct decode_blocks {
    uint64_t begin;
    uint32_t own;
    uint32_t stride;
} decode_blocks;

SIMT_INLINE decode_blocks
decode_find_blocks(const berthi_decode_kernel *a, uint64_t begin)
{
    /* A CTA begins with a block, whatever its size. */
    const decode_blocks blocks = {
        begin >> a->block_log2,
        simt_thread() * DECODE_LANE >> a->block_log2,
        DECODE_TURN >> a->block_log2,
    };

    return blocks;
}

/*
 * A CTA has 2^n blocks and begins with a multiple of them, so none or all of its
 * borders between second-level blocks lie at multiples of 256 from its begin.
 */
SIMT_INLINE void
decode_load_absmax(const berthi_decode_kernel *a, decode_variant v, decode_blocks blocks,
                   uint32_t t, decode_input *out)
{
    const uint32_t local = blocks.own + t * blocks.stride;

    if (v.is_double) {
        out->absmax_code = (a->absmax_codes + blocks.begin)[local];
        out->absmax = (a->absmax + blocks.begin / BERTHI_DOUBLE_BLOCK)
            [local / BERTHI_DOUBLE_BLOCK];
    } else {
        out->absmax_code = 0;
        out->absmax = (a->absmax + blocks.begin)[local];
    }
}

/* `own` are the lane's codes in the first turn. */
SIMT_INLINE void
decode_load_whole(const uint8_t *own, decode_variant v, uint32_t t, decode_input *out)
{
    if (v.is_map) {
        const simt_two two = simt_load8(own + t * DECODE_TURN);

        out->codes[0] = two.word[0];
        out->codes[1] = two.word[1];
    } else {
        out->codes[0] = simt_load4(own + t * (DECODE_TURN / 2));
        out->codes[1] = 0;
    }
}

/* Bytes that are there; the others are 0. */
SIMT_INLINE void
decode_load_some(const berthi_decode_kernel *a, decode_variant v, uint64_t first,
                 decode_input *out)
{
    const uint32_t in_byte = v.is_map ? 1 : 2;

    out->codes[0] = 0;
    out->codes[1] = 0;
    SIMT_UNROLL
    for (uint32_t k = 0; k < DECODE_LANE / in_byte; k++)
        if (first + k * in_byte < a->count)
            out->codes[k / 4] |= (uint32_t)a->codes[first / in_byte + k] << (k % 4 * 8);
}

/* -------------------------------------------------------------------- values */

/* A CTA's tables: values by code, of 4-bit codes by byte, two each. */
SIMT_INLINE void
decode_fill_tables(const berthi_decode_kernel *a, decode_variant v, uint32_t *table,
                   uint32_t *map)
{
    const uint32_t thread = simt_thread();

    if (thread >= 256)
        return;
    if (v.is_map) {
        table[thread] = a->table[thread];
    } else {
        table[2 * thread] = a->table[thread >> 4];
        table[2 * thread + 1] = a->table[thread & 15];
    }
    if (v.is_double)
        map[thread] = a->map[thread];
}

/* Eight times the byte, without a shift of its own. */
SIMT_INLINE uint32_t
decode_byte_offset(uint32_t word, uint32_t k)
{
    return (k == 0 ? word << 3 : word >> (8 * k - 3)) & 0x7F8u;
}

SIMT_INLINE void
decode_values(const decode_input *input, decode_variant v, float absmax,
              const uint32_t *table, float *values)
{
    if (v.is_map) {
        SIMT_UNROLL
        for (uint32_t k = 0; k < DECODE_LANE; k++)
            values[k] = berthi_core_map_decode(
                table, input->codes[k / 4] >> (k % 4 * 8) & 0xFF, absmax);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < DECODE_LANE / 2; k++) {
        const simt_two pair = simt_shared_load8(
            (const uint8_t *)table + decode_byte_offset(input->codes[0], k));

        values[2 * k]
            = berthi_core_multiply_flush(berthi_core_float(pair.word[0]), absmax);
        values[2 * k + 1]
            = berthi_core_multiply_flush(berthi_core_float(pair.word[1]), absmax);
    }
}

SIMT_INLINE void
decode_store_whole(uint8_t *to, decode_variant v, const float *values)
{
    simt_four four;

    if (v.dtype == BERTH_F32) {
        SIMT_UNROLL
        for (uint32_t k = 0; k < DECODE_LANE; k += 4) {
            SIMT_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                four.word[j] = berthi_core_bits(values[k + j]);
            simt_store16(to + 4 * k, four);
        }
        return;
    }
    SIMT_UNROLL
    for (uint32_t j = 0; j < 4; j++)
        four.word[j] = v.dtype == BERTH_BF16
                           ? berthi_core_to_bf16_pair(values[2 * j], values[2 * j + 1])
                           : berthi_core_to_fp16_pair(values[2 * j], values[2 * j + 1]);
    simt_store16(to, four);
}

SIMT_INLINE void
decode_store_some(const berthi_decode_kernel *a, decode_variant v, uint64_t first,
                  const float *values)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < DECODE_LANE; k++)
        if (first + k < a->count)
            berthi_core_store(a->values, v.dtype, first + k, values[k]);
}

/* --------------------------------------------------------------------- turns */

/* Where it is kept with the codes it is read there, else the host knows it. */
SIMT_INLINE float
decode_offset(const berthi_decode_kernel *a, decode_variant v)
{
    if (!v.is_double)
        return 0.0f;
    return a->offset != NULL ? *a->offset : a->offset_value;
}

SIMT_INLINE float
decode_absmax(const decode_input *input, decode_variant v, const uint32_t *map,
              float offset)
{
    return v.is_double ? berthi_core_absmax_recover(map, input->absmax_code, input->absmax,
                                                    offset)
                       : input->absmax;
}

SIMT_INLINE void
decode_whole_cta(const berthi_decode_kernel *a, decode_variant v, uint64_t begin,
                 uint32_t *table, uint32_t *map)
{
    const uint64_t first = begin + simt_thread() * DECODE_LANE;
    const uint32_t bytes = v.dtype == BERTH_F32 ? 4 : 2;
    const decode_blocks blocks = decode_find_blocks(a, begin);
    const uint8_t *const codes = a->codes + first / (v.is_map ? 1 : 2);
    uint8_t *const to = (uint8_t *)a->values + first * bytes;
    const float offset = decode_offset(a, v);
    decode_input inputs[DECODE_TURNS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < DECODE_TURNS; t++) {
        decode_load_whole(codes, v, t, &inputs[t]);
        decode_load_absmax(a, v, blocks, t, &inputs[t]);
    }
    decode_fill_tables(a, v, table, map);
    simt_barrier();
    SIMT_UNROLL
    for (uint32_t t = 0; t < DECODE_TURNS; t++) {
        float values[DECODE_LANE];

        decode_values(&inputs[t], v, decode_absmax(&inputs[t], v, map, offset), table,
                      values);
        decode_store_whole(to + t * (DECODE_TURN * bytes), v, values);
    }
}

/* The last CTA, or any where addresses are odd. */
SIMT_INLINE void
decode_some(const berthi_decode_kernel *a, decode_variant v, uint64_t begin,
            uint32_t *table, uint32_t *map)
{
    const decode_blocks blocks = decode_find_blocks(a, begin);
    const float offset = decode_offset(a, v);

    decode_fill_tables(a, v, table, map);
    simt_barrier();
    SIMT_NO_UNROLL
    for (uint32_t t = 0; t < DECODE_TURNS; t++) {
        const uint64_t first = begin + t * DECODE_TURN + simt_thread() * DECODE_LANE;
        decode_input input;
        float values[DECODE_LANE];

        if (first >= a->count)
            return;
        decode_load_some(a, v, first, &input);
        decode_load_absmax(a, v, blocks, t, &input);
        decode_values(&input, v, decode_absmax(&input, v, map, offset), table, values);
        decode_store_some(a, v, first, values);
    }
}

SIMT_INLINE void
decode(const berthi_decode_kernel *a, decode_variant v, uint32_t *table, uint32_t *map)
{
    const uint64_t begin = simt_cta() * DECODE_CTA;

    if (a->is_aligned != 0 && a->count - begin >= DECODE_CTA)
        decode_whole_cta(a, v, begin, table, map);
    else
        decode_some(a, v, begin, table, map);
}

/* ------------------------------------------------------------------- kernels */

#define DECODE_KERNEL(name, dtype, is_map, is_double)                                 \
    SIMT_INLINE void name##_body(const berthi_decode_kernel *a)                       \
    {                                                                                 \
        const decode_variant v = { dtype, is_map, is_double };                        \
        SIMT_SHARED(uint32_t, table, (is_map) ? 256 : 512);                           \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
                                                                                      \
        decode(a, v, table, map);                                                     \
    }                                                                                 \
    SIMT_KERNEL(name, DECODE_THREADS, berthi_decode_kernel, name##_body(a))

DECODE_KERNEL(berthi_decode_4bit_bf16, BERTH_BF16, false, false)
DECODE_KERNEL(berthi_decode_4bit_f16, BERTH_F16, false, false)
DECODE_KERNEL(berthi_decode_4bit_f32, BERTH_F32, false, false)
DECODE_KERNEL(berthi_decode_4bit_bf16_double, BERTH_BF16, false, true)
DECODE_KERNEL(berthi_decode_4bit_f16_double, BERTH_F16, false, true)
DECODE_KERNEL(berthi_decode_4bit_f32_double, BERTH_F32, false, true)
DECODE_KERNEL(berthi_decode_map_bf16, BERTH_BF16, true, false)
DECODE_KERNEL(berthi_decode_map_f16, BERTH_F16, true, false)
DECODE_KERNEL(berthi_decode_map_f32, BERTH_F32, true, false)

#endif
