/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_neon.c - 4-bit codes with the vectors that every AArch64 has.
 *
 * Encoding puts a scaled value into one of a few bins so narrow that none
 * holds two thresholds: the bin's entry is the threshold in it and the code
 * below that. Byte look-ups fetch both, the threshold in four pieces.
 * Decoding multiplies the 16 values by a block's absmax, rounds them once,
 * and then looks their bytes up.
 */
#include "kernels/neon.h"

#define STEP 32u /* elements of one turn: 16 packed bytes */

/* ------------------------------------------------------------------ loading */

/* Elements 0, 2, 4, ... and 1, 3, 5, ... of 32, widened: a pair is one byte. */
typedef struct pairs {
    float32x4_t even[4];
    float32x4_t odd[4];
} pairs;

ALWAYS_INLINE void
load_eight(const void *values, int32_t dtype, uint64_t first, float32x4_t *even,
           float32x4_t *odd)
{
    if (dtype == BERTH_F32) {
        const float32x4x2_t both = vld2q_f32((const float *)values + first);

        *even = both.val[0];
        *odd = both.val[1];
    } else if (dtype == BERTH_BF16) {
        const uint32x4_t both =
            vreinterpretq_u32_u16(vld1q_u16((const uint16_t *)values + first));

        *even = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
        *odd = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xFFFF0000)));
    } else {
        const uint16x4x2_t both = vld2_u16((const uint16_t *)values + first);

        *even = widen_fp16(both.val[0]);
        *odd = widen_fp16(both.val[1]);
    }
}

/* -------------------------------------------------------------- code search */

/* 31 bins of NF4, from the second entry, or 16 of FP4, of magnitudes. */
typedef struct search {
    uint8x16x2_t thresholds[4]; /* byte by byte; infinite where the bin has none */
    uint8x16x2_t below;         /* thresholds of lower bins */
    uint8x16_t codes;           /* FP4: step -> magnitude code */
} search;

/*
 * The bin of a scaled value, 1 + 1 ulp at most, is what its product with 15
 * and a number whose last bit is worth 1 leaves in the last byte. Thresholds
 * are 1/13 apart or more.
 */
#define BIN_SCALE 15.0f
#define NF4_SHIFTER (0x1.8p23f + 16.0f)
#define FP4_SHIFTER 0x1.8p23f

static search
make_search(const uint32_t *thresholds, uint32_t count, float shifter)
{
    float border[32];
    uint8_t below[32];
    uint8_t codes[16] = { 0 };
    uint32_t passed = 0;
    planes first;
    planes second;
    search s;

    for (uint32_t bin = 0; bin < 32; bin++) {
        border[bin] = INFINITY;
        below[bin] = (uint8_t)passed;
        if (passed < count) {
            const float threshold = berthi_core_float(thresholds[passed]);

            if ((berthi_core_bits(fmaf(threshold, BIN_SCALE, shifter)) & 0xFFu) == bin) {
                border[bin] = threshold;
                passed++;
            }
        }
    }
    memcpy(codes, berthi_fp4_codes, 8);
    first = make_planes(border);
    second = make_planes(border + 16);
    for (int k = 0; k < 4; k++)
        s.thresholds[k] = (uint8x16x2_t){ { first.at[k], second.at[k] } };
    s.below = (uint8x16x2_t){ { vld1q_u8(below), vld1q_u8(below + 16) } };
    s.codes = vld1q_u8(codes);
    return s;
}

/* below + (values > threshold): a true comparison is -1. */
ALWAYS_INLINE uint8x16_t
compare(uint8x16_t below, const planes *thresholds, const float32x4_t values[4])
{
    float32x4_t border[4];
    uint32x4_t above[4];

    join_planes(thresholds, border);
    UNROLL
    for (int k = 0; k < 4; k++)
        above[k] = vcgtq_f32(values[k], border[k]);
    return vsubq_u8(below, narrow(above));
}

ALWAYS_INLINE uint8x16_t
nf4_codes(const search *s, const float32x4_t values[4], float32x4_t reciprocal)
{
    const float32x4_t shifter = vdupq_n_f32(NF4_SHIFTER);
    float32x4_t scaled[4];
    uint32x4_t bins[4];
    planes thresholds;
    uint8x16_t bin;

    UNROLL
    for (int k = 0; k < 4; k++) {
        scaled[k] = vmulq_f32(values[k], reciprocal);
        bins[k] = vreinterpretq_u32_f32(
            vfmaq_f32(shifter, scaled[k], vdupq_n_f32(BIN_SCALE)));
    }
    bin = narrow(bins);
    UNROLL
    for (int k = 0; k < 4; k++)
        thresholds.at[k] = vqtbl2q_u8(s->thresholds[k], bin);
    return compare(vqtbl2q_u8(s->below, bin), &thresholds, scaled);
}

/* Sign and magnitude apart; what is flushed, before or after, has no sign. */
ALWAYS_INLINE uint8x16_t
fp4_codes(const search *s, const float32x4_t values[4], float32x4_t reciprocal)
{
    const float32x4_t shifter = vdupq_n_f32(FP4_SHIFTER);
    const float32x4_t smallest = vdupq_n_f32(SMALLEST_NORMAL);
    float32x4_t magnitude[4];
    uint32x4_t negative[4];
    uint32x4_t bins[4];
    planes thresholds;
    uint8x16_t bin;
    uint8x16_t code;

    UNROLL
    for (int k = 0; k < 4; k++) {
        const uint32x4_t product =
            vreinterpretq_u32_f32(vmulq_f32(values[k], reciprocal));
        const float32x4_t scaled = vreinterpretq_f32_u32(
            vandq_u32(product, vcageq_f32(values[k], smallest)));

        magnitude[k] = vabsq_f32(scaled);
        negative[k] = vcleq_f32(scaled, vnegq_f32(smallest));
        bins[k] = vreinterpretq_u32_f32(
            vfmaq_f32(shifter, magnitude[k], vdupq_n_f32(BIN_SCALE)));
    }
    bin = narrow(bins);
    UNROLL
    for (int k = 0; k < 4; k++)
        thresholds.at[k] = vqtbl1q_u8(s->thresholds[k].val[0], bin);
    code = vqtbl1q_u8(s->codes,
                      compare(vqtbl1q_u8(s->below.val[0], bin), &thresholds, magnitude));
    return vorrq_u8(code, vandq_u8(narrow(negative), vdupq_n_u8(8)));
}

/* ------------------------------------------------------------------- encode */

typedef uint8x16_t codes_function(const search *s, const float32x4_t values[4],
                                  float32x4_t reciprocal);

ALWAYS_INLINE void
encode_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
             uint64_t first, float reciprocal, codes_function *codes_of)
{
    const float32x4_t factor = vdupq_n_f32(reciprocal);

    for (uint64_t i = first; i < first + a->block_size; i += STEP) {
        pairs p;

        UNROLL
        for (unsigned k = 0; k < 4; k++)
            load_eight(a->values, dtype, i + 8 * k, &p.even[k], &p.odd[k]);
        /* The first of a pair is shifted into the upper half. */
        vst1q_u8(a->codes + i / 2, vsliq_n_u8(codes_of(tables, p.odd, factor),
                                              codes_of(tables, p.even, factor), 4));
    }
}

ALWAYS_INLINE void
encode_nf4_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    encode_block(a, tables, dtype, first, reciprocal, nf4_codes);
}

ALWAYS_INLINE void
encode_fp4_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    encode_block(a, tables, dtype, first, reciprocal, fp4_codes);
}

static void
encode_nf4(const berthi_encode_arguments *a)
{
    const search s = make_search(berthi_nf4_thresholds, 15, NF4_SHIFTER);

    encode_all(a, &s, find_absmax, encode_nf4_block, berthi_scalar_operations.encode_nf4);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    const search s = make_search(berthi_fp4_thresholds, 7, FP4_SHIFTER);

    encode_all(a, &s, find_absmax, encode_fp4_block, berthi_scalar_operations.encode_fp4);
}

/* ------------------------------------------------------------------- decode */

/* Four of the 16 values of a block: product rounded, then flushed. */
ALWAYS_INLINE float32x4_t
scale_values(const uint32_t *values, float absmax)
{
    const float32x4_t product =
        vmulq_n_f32(vreinterpretq_f32_u32(vld1q_u32(values)), absmax);
    const uint32x4_t tiny = vcaltq_f32(product, vdupq_n_f32(SMALLEST_NORMAL));
    const uint32x4_t lost = vandq_u32(tiny, vdupq_n_u32(0x7FFFFFFF));

    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(product), lost));
}

/* The codes of 32 elements, a byte each, in order. */
typedef struct ordered {
    uint8x16_t first;
    uint8x16_t second;
} ordered;

ALWAYS_INLINE ordered
load_codes(const uint8_t *codes)
{
    const uint8x16_t packed = vld1q_u8(codes);
    const uint8x16_t even = vshrq_n_u8(packed, 4);
    const uint8x16_t odd = vandq_u8(packed, vdupq_n_u8(15));

    return (ordered){ vzip1q_u8(even, odd), vzip2q_u8(even, odd) };
}

/* Stores that interleave the bytes put the values together. */
ALWAYS_INLINE void
put_16_bit(uint8x16_t low, uint8x16_t high, uint8x16_t codes, uint16_t *out)
{
    const uint8x16x2_t bytes = { { vqtbl1q_u8(low, codes), vqtbl1q_u8(high, codes) } };

    vst2q_u8((uint8_t *)out, bytes);
}

ALWAYS_INLINE void
put_32_bit(const planes *p, uint8x16_t codes, float *out)
{
    const uint8x16x4_t bytes = { { vqtbl1q_u8(p->at[0], codes), vqtbl1q_u8(p->at[1], codes),
                                   vqtbl1q_u8(p->at[2], codes), vqtbl1q_u8(p->at[3], codes) } };

    vst4q_u8((uint8_t *)out, bytes);
}

ALWAYS_INLINE void
decode_block_16(const uint8_t *codes, const float32x4_t scaled[4], int32_t dtype,
                uint16_t *out, uint32_t count)
{
    const uint8x16_t first =
        vreinterpretq_u8_u16(vcombine_u16(round_to_16_bit(scaled[0], dtype),
                                          round_to_16_bit(scaled[1], dtype)));
    const uint8x16_t second =
        vreinterpretq_u8_u16(vcombine_u16(round_to_16_bit(scaled[2], dtype),
                                          round_to_16_bit(scaled[3], dtype)));
    const uint8x16_t low = vuzp1q_u8(first, second);
    const uint8x16_t high = vuzp2q_u8(first, second);

    for (uint32_t i = 0; i < count; i += STEP) {
        const ordered code = load_codes(codes + i / 2);

        put_16_bit(low, high, code.first, out + i);
        put_16_bit(low, high, code.second, out + i + 16);
    }
}

ALWAYS_INLINE void
decode_block_32(const uint8_t *codes, const float32x4_t scaled[4], float *out,
                uint32_t count)
{
    float values[16];
    planes p;

    UNROLL
    for (int k = 0; k < 4; k++)
        vst1q_f32(values + 4 * k, scaled[k]);
    p = make_planes(values);
    for (uint32_t i = 0; i < count; i += STEP) {
        const ordered code = load_codes(codes + i / 2);

        put_32_bit(&p, code.first, out + i);
        put_32_bit(&p, code.second, out + i + 16);
    }
}

ALWAYS_INLINE void
decode_block(const berthi_decode_arguments *a, const uint32_t *values, uint64_t first,
             float absmax)
{
    const uint8_t *const codes = a->codes + first / 2;
    float32x4_t scaled[4];

    UNROLL
    for (int k = 0; k < 4; k++)
        scaled[k] = scale_values(values + 4 * k, absmax);
    if (a->dtype == BERTH_F32)
        decode_block_32(codes, scaled, (float *)a->values + first, a->block_size);
    else
        decode_block_16(codes, scaled, a->dtype, (uint16_t *)a->values + first,
                        a->block_size);
}

static void
decode_nf4(const berthi_decode_arguments *a)
{
    decode_all(a, berthi_nf4_values, decode_block, berthi_scalar_operations.decode_nf4);
}

static void
decode_fp4(const berthi_decode_arguments *a)
{
    decode_all(a, berthi_fp4_values, decode_block, berthi_scalar_operations.decode_fp4);
}

const berthi_operations berthi_neon_operations = {
    .level = "neon",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
    .encode_map = berthi_neon_encode_map,
    .encode_double = berthi_neon_encode_double,
    .encode_rows = berthi_neon_encode_rows,
    .decode_rows = berthi_neon_decode_rows,
    .encode_activations = berthi_neon_encode_activations,
    .multiply_nf4 = berthi_neon_multiply_nf4,
    .multiply_fp4 = berthi_neon_multiply_fp4,
    .dot_int8 = berthi_neon_dot_int8,
    .update = berthi_neon_update,
    .encode_state = berthi_neon_encode_state,
    .decode_state = berthi_neon_decode_state,
    .measure = berthi_neon_measure,
    .accumulate = berthi_neon_accumulate,
};
