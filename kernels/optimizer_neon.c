/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_neon.c - optimizer updates, and what they need of gradients, with NEON. */
#include "kernels/neon.h"

#ifdef __aarch64__

#include "kernels/map_bins.h"

/* ------------------------------------------------------------------ vectors */

#define LANES 4u
typedef float32x4_t lanes;
typedef uint32x4_t lanes_bits;
typedef uint32x4_t lanes_mask;
#define lanes_every (vdupq_n_u32(UINT32_MAX))
#define lanes_none (vdupq_n_u32(0))

typedef struct level_tables {
    map_bins bins[2]; /* of the signed map, of the unsigned one */
} level_tables;

ALWAYS_INLINE lanes
lanes_all(float value)
{
    return vdupq_n_f32(value);
}

ALWAYS_INLINE lanes
lanes_load(const float *from)
{
    return vld1q_f32(from);
}

ALWAYS_INLINE void
lanes_save(float *to, lanes value)
{
    vst1q_f32(to, value);
}

ALWAYS_INLINE lanes
lanes_fma(lanes a, lanes b, lanes c)
{
    return vfmaq_f32(c, a, b);
}

ALWAYS_INLINE lanes
lanes_root(lanes a)
{
    return vsqrtq_f32(a);
}

ALWAYS_INLINE lanes
widen(uint16x4_t values, int32_t dtype)
{
    return dtype == BERTH_BF16 ? widen_bf16(values) : widen_fp16(values);
}

ALWAYS_INLINE lanes
lanes_widen(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return vld1q_f32((const float *)values + first);
    return widen(vld1_u16((const uint16_t *)values + first), dtype);
}

/* As they are stored; there is one NaN. */
ALWAYS_INLINE uint16x4_t
to_16_bit(lanes a, int32_t dtype)
{
    return vbsl_u16(vmovn_u32(vceqq_f32(a, a)), round_to_16_bit(a, dtype),
                    vdup_n_u16(0x7FFF));
}

ALWAYS_INLINE lanes
lanes_round(lanes a, int32_t dtype)
{
    return dtype == BERTH_F32 ? a : widen(to_16_bit(a, dtype), dtype);
}

ALWAYS_INLINE void
lanes_put(void *values, int32_t dtype, uint64_t first, lanes a, lanes_mask keep)
{
    if (dtype == BERTH_F32) {
        float *const at = (float *)values + first;
        const lanes one_nan = vbslq_f32(vceqq_f32(a, a), a,
                                        vreinterpretq_f32_u32(vdupq_n_u32(0x7FFFFFFF)));

        vst1q_f32(at, vbslq_f32(keep, one_nan, vld1q_f32(at)));
    } else {
        uint16_t *const at = (uint16_t *)values + first;

        vst1_u16(at, vbsl_u16(vmovn_u32(keep), to_16_bit(a, dtype), vld1_u16(at)));
    }
}

ALWAYS_INLINE lanes
lanes_sign(lanes a, float size)
{
    const uint32x4_t above =
        vandq_u32(vcgtzq_f32(a), vreinterpretq_u32_f32(lanes_all(size)));
    const uint32x4_t below =
        vandq_u32(vcltzq_f32(a), vreinterpretq_u32_f32(lanes_all(-size)));

    return vreinterpretq_f32_u32(vorrq_u32(above, below));
}

ALWAYS_INLINE uint32x4_t
magnitude_bits(lanes a)
{
    return vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x7FFFFFFF));
}

ALWAYS_INLINE lanes_mask
lanes_finite(lanes a)
{
    return vcltq_u32(magnitude_bits(a), vdupq_n_u32(0x7F800000));
}

ALWAYS_INLINE lanes
lanes_keep(lanes_mask keep, lanes a)
{
    return vreinterpretq_f32_u32(vandq_u32(keep, vreinterpretq_u32_f32(a)));
}

ALWAYS_INLINE uint32_t
lanes_dropped(lanes_mask keep)
{
    return LANES - vaddvq_u32(vshrq_n_u32(keep, 31));
}

ALWAYS_INLINE lanes_bits
lanes_largest(lanes_bits largest, lanes a)
{
    return vmaxq_u32(largest, magnitude_bits(a));
}

ALWAYS_INLINE uint32_t
lanes_top(lanes_bits largest)
{
    return vmaxvq_u32(largest);
}

/* -------------------------------------------------------------------- codes */

ALWAYS_INLINE lanes
lanes_decode(const level_tables *t, bool is_signed, const uint8_t *codes)
{
    const uint32_t *const map = is_signed ? berthi_signed_map : berthi_unsigned_map;
    const uint32x4_t bits = { map[codes[0]], map[codes[1]], map[codes[2]], map[codes[3]] };

    (void)t;
    return vreinterpretq_f32_u32(bits);
}

ALWAYS_INLINE void
encode_codes(const level_tables *t, bool is_signed, const float *values, float reciprocal,
             uint8_t *codes)
{
    encode_map_states(&t->bins[is_signed ? 0 : 1], is_signed, values, reciprocal, codes);
}

/* ------------------------------------------------------------------ squares */

typedef struct lane_squares {
    float64x2_t part[BERTHI_GRADIENT_LANES / 2];
} lane_squares;

ALWAYS_INLINE lane_squares
squares_none(void)
{
    return (lane_squares){ { vdupq_n_f64(0.0) } };
}

ALWAYS_INLINE void
squares_add(lane_squares *s, uint32_t k, lanes a)
{
    const float64x2_t low = vcvt_f64_f32(vget_low_f32(a));
    const float64x2_t high = vcvt_high_f64_f32(a);

    s->part[2 * k] = vfmaq_f64(s->part[2 * k], low, low);
    s->part[2 * k + 1] = vfmaq_f64(s->part[2 * k + 1], high, high);
}

ALWAYS_INLINE void
squares_save(const lane_squares *s, double *to)
{
    for (uint32_t k = 0; k < BERTHI_GRADIENT_LANES / 2; k++)
        vst1q_f64(to + 2 * k, s->part[k]);
}

static bool
can_make_tables(level_tables *t, bool encodes)
{
    return !encodes
           || (map_bins_can_make(berthi_signed_map, &t->bins[0])
               && map_bins_can_make(berthi_unsigned_map, &t->bins[1]));
}

#define LEVEL(name) berthi_neon_##name
#include "kernels/gradient_lanes.h"
#include "kernels/optimizer_lanes.h"

#endif
