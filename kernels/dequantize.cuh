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
    bool is_64;     /* of the block size, which is the argument's otherwise */
    bool is_double; /* the absmax are codes themselves */
} decode_variant;

/* What a lane reads for a turn: its codes, and an absmax or how to recover it. */
typedef struct decode_input {
    uint32_t codes[2];
    float absmax;
    uint32_t absmax_code;
} decode_input;

/* --------------------------------------------------------------------- loads */

/*
 * Where the lane's absmax are counted from: of blocks of 64 its first one, since its turns are
 * known distances apart; of others the CTA's first. A CTA begins with a block, whatever its size.
 */
typedef struct decode_place {
    const uint8_t *absmax; /* double quantization: the second level */
    const uint8_t *codes;  /* double quantization: the first one */
} decode_place;

SIMT_INLINE decode_place
decode_find_place(const berthi_decode_kernel *a, decode_variant v, uint64_t begin)
{
    const uint64_t first = begin >> (v.is_64 ? 6 : a->block_log2);
    const uint64_t block = first + (v.is_64 ? simt_thread() * DECODE_LANE / 64 : 0);
    const decode_place place = {
        simt_keep_address((const uint8_t *)(a->absmax
                                            + (v.is_double ? first / BERTHI_DOUBLE_BLOCK : block))),
        v.is_double ? simt_keep_address(a->absmax_codes + block) : NULL,
    };

    return place;
}

/*
 * A CTA has 2^n blocks and begins with a multiple of them, so none or all of its borders between
 * second-level blocks lie at multiples of 256 from its begin; of blocks of 64 there is none.
 */
SIMT_INLINE void
decode_load_absmax(const berthi_decode_kernel *a, decode_variant v, const decode_place *place,
                   uint32_t t, decode_input *out)
{
    const uint32_t element =
        t % DECODE_PERIOD * DECODE_TURN + simt_thread() * DECODE_LANE;
    const uint32_t local = v.is_64 ? t * (DECODE_TURN / 64)
                                   : (element >> a->block_log2)
                                         + t / DECODE_PERIOD * (4096u >> a->block_log2);
    const bool is_one = v.is_64 && DECODE_CTA / 64 <= BERTHI_DOUBLE_BLOCK;
    const uint32_t second = is_one ? 0 : local / BERTHI_DOUBLE_BLOCK;

    out->absmax_code = v.is_double ? simt_read1(place->codes + local) : 0;
    out->absmax = berthi_core_float(
        simt_read4(place->absmax + sizeof(float) * (size_t)(v.is_double ? second : local)));
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

/*
 * A CTA's tables: values by code. Sixteen lie in as many banks of shared memory, so that lanes
 * never wait for each other; pairs of them by byte would be half as many reads, three times as
 * long.
 */
SIMT_INLINE void
decode_fill_tables(const berthi_decode_kernel *a, decode_variant v, uint32_t *table,
                   uint32_t *map)
{
    const uint32_t thread = simt_thread();

    if (thread < (v.is_map ? 256u : 16u))
        table[thread] = simt_argument(a->table)[thread];
    if (v.is_double && thread < 256)
        map[thread] = simt_argument(a->map)[thread];
}

/* Where the value of a code is; `codes` are four times as large, a byte each. */
SIMT_INLINE float
decode_value(const uint32_t *table, uint32_t codes, uint32_t k)
{
    return berthi_core_float(
        simt_shared_load4((const uint8_t *)table + simt_byte(codes, k)));
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
        const uint32_t first = input->codes[0] >> 2 & 0x3C3C3C3Cu; /* the high half of a byte */
        const uint32_t second = input->codes[0] << 2 & 0x3C3C3C3Cu;

        values[2 * k] = berthi_core_multiply_flush(decode_value(table, first, k), absmax);
        values[2 * k + 1] = berthi_core_multiply_flush(decode_value(table, second, k), absmax);
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
    const uint8_t *const codes = a->codes + first / (v.is_map ? 1 : 2);
    uint8_t *const to = (uint8_t *)a->values + first * bytes;
    const decode_place place = decode_find_place(a, v, begin);
    const float offset = decode_offset(a, v);
    decode_input inputs[DECODE_TURNS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < DECODE_TURNS; t++) {
        decode_load_whole(codes, v, t, &inputs[t]);
        decode_load_absmax(a, v, &place, t, &inputs[t]);
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
    const decode_place place = decode_find_place(a, v, begin);
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
        decode_load_absmax(a, v, &place, t, &input);
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

/* Lanes that a processor holds at once, where it holds so many and distances are known. */
#define DECODE_RESIDENT (SIMT_RESIDENT_MOST < 1536 ? SIMT_RESIDENT_MOST : 1536)

#define DECODE_KERNEL(name, dtype, is_map, is_64, is_double)                          \
    SIMT_INLINE void name##_body(const berthi_decode_kernel *a)                       \
    {                                                                                 \
        const decode_variant v = { dtype, is_map, is_64, is_double };                 \
        SIMT_SHARED(uint32_t, table, (is_map) ? 256 : 16);                            \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
                                                                                      \
        decode(a, v, table, map);                                                     \
    }                                                                                 \
    SIMT_KERNEL_OF(name, DECODE_THREADS, (is_64) ? DECODE_RESIDENT : SIMT_RESIDENT,   \
                   berthi_decode_kernel, name##_body(a))

#define DECODE_KERNELS(prefix, suffix, is_map, is_64, is_double)                      \
    DECODE_KERNEL(prefix##_bf16##suffix, BERTH_BF16, is_map, is_64, is_double)        \
    DECODE_KERNEL(prefix##_f16##suffix, BERTH_F16, is_map, is_64, is_double)          \
    DECODE_KERNEL(prefix##_f32##suffix, BERTH_F32, is_map, is_64, is_double)

DECODE_KERNELS(berthi_decode_4bit, _64, false, true, false)
DECODE_KERNELS(berthi_decode_4bit, _64_double, false, true, true)
DECODE_KERNELS(berthi_decode_4bit, , false, false, false)
DECODE_KERNELS(berthi_decode_4bit, _double, false, false, true)
DECODE_KERNELS(berthi_decode_map, , true, false, false)

#endif
