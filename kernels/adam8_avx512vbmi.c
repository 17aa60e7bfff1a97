/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adam8_avx512vbmi.c - Adam with states in 8 bits, of blocks in which nothing is out of
 * the ordinary: what is stepped through in memory, read and written once each.
 *
 * A block is gone through twice. First its means are made and stay in f32, and nothing is
 * stored; their maxima, which a code needs anyway, tell whether all numbers are usual
 * ones. If so, no vector has to be asked for NaN or infinity after that: parameters are
 * stepped and means become codes. If not, the block is left to optimizer_avx512.c as it
 * was. One block is finished while the means of the next are made: neither waits for its
 * maxima.
 *
 *   bits      core_optimizer.h
 *   bounds    whole blocks; the end of a tensor goes to optimizer_avx512.c
 */
#include "kernels/map_bytes512.h"

#ifdef __AVX512VBMI__

#include "kernels/core_optimizer.h"
#include "kernels/optimizer_fetch.h"

#define BLOCK BERTHI_UPDATE_BLOCK

/*
 * Usual numbers. A state's largest is 0, which leaves its block to the others, or so
 * large that it has a normal reciprocal; quotients by LEAST_DIVISOR of it are finite.
 */
#define LEAST_USUAL_BITS 0x00800000u
#define MOST_USUAL_BITS ((127u + 60u) << MANTISSA)
#define LEAST_DIVISOR 0x1p-60f

/* ------------------------------------------------------------------- numbers */

/* 32 elements as two vectors: one half after the other, bf16 even and odd ones. */
ALWAYS_INLINE void
load_two(const void *values, int32_t dtype, uint64_t first, __m512 out[2])
{
    if (dtype == BERTH_BF16) {
        const __m512i bits = _mm512_loadu_si512((const uint16_t *)values + first);

        out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
        out[1] = _mm512_castsi512_ps(
            _mm512_and_si512(bits, _mm512_set1_epi32((int32_t)0xFFFF0000)));
    } else {
        out[0] = load_16(values, dtype, first);
        out[1] = load_16(values, dtype, first + LANES);
    }
}

/* To nearest even: the upper halves are bf16. No NaN comes here. */
ALWAYS_INLINE __m512i
round_upper_half(__m512 a)
{
    const __m512i up =
        _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
    const __mmask16 tie = _mm512_testn_epi32_mask(up, _mm512_set1_epi32(0xFFFF));

    return _mm512_mask_and_epi32(up, tie, up, _mm512_set1_epi32((int32_t)0xFFFE0000));
}

/* As it is when it has been stored. */
ALWAYS_INLINE __m512
rounded(__m512 a, int32_t dtype)
{
    if (dtype == BERTH_F32)
        return a;
    if (dtype == BERTH_F16)
        return _mm512_cvtph_ps(round_to_16_bit(a, BERTH_F16));
    return _mm512_castsi512_ps(
        _mm512_and_si512(round_upper_half(a), _mm512_set1_epi32((int32_t)0xFFFF0000)));
}

ALWAYS_INLINE void
store_two(void *values, int32_t dtype, uint64_t first, const __m512 a[2])
{
    if (dtype == BERTH_BF16) {
        _mm512_storeu_si512((uint16_t *)values + first,
                            join_halves(_mm512_srli_epi32(round_upper_half(a[0]), 16),
                                        round_upper_half(a[1])));
        return;
    }
    for (uint32_t k = 0; k < 2; k++) {
        const uint64_t at = first + k * LANES;

        if (dtype == BERTH_F32)
            _mm512_storeu_ps((float *)values + at, a[k]);
        else
            _mm256_storeu_si256((__m256i *)((uint16_t *)values + at),
                                round_to_16_bit(a[k], BERTH_F16));
    }
}

/* The largest magnitudes so far, as bits of the dtype: those are in their order. */
ALWAYS_INLINE __m512i
largest_of_two(__m512i largest, const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32) {
        const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
        const uint32_t *const from = (const uint32_t *)values + first;

        largest = _mm512_max_epu32(largest,
                                   _mm512_and_si512(_mm512_loadu_si512(from), magnitude));
        return _mm512_max_epu32(
            largest, _mm512_and_si512(_mm512_loadu_si512(from + LANES), magnitude));
    }
    return _mm512_max_epu16(
        largest, _mm512_and_si512(_mm512_loadu_si512((const uint16_t *)values + first),
                                  _mm512_set1_epi16(INT16_MAX)));
}

/* Neither NaN nor infinity. */
ALWAYS_INLINE bool
are_finite(__m512i largest, int32_t dtype)
{
    const __m512i infinity = dtype == BERTH_F32    ? _mm512_set1_epi32(0x7F800000)
                             : dtype == BERTH_BF16 ? _mm512_set1_epi16(0x7F80)
                                                   : _mm512_set1_epi16(0x7C00);

    return dtype == BERTH_F32 ? _mm512_cmpge_epu32_mask(largest, infinity) == 0
                              : _mm512_cmpge_epu16_mask(largest, infinity) == 0;
}

/* --------------------------------------------------------------------- means */

/* A block on its way: its means, in the order of vectors, and what is known of it. */
typedef struct means {
    _Alignas(64) float state1[BLOCK];
    _Alignas(64) float state2[BLOCK];
    float absmax1;
    float absmax2;
    bool is_usual;
} means;

/* The largest so far. */
typedef struct maxima {
    __m512 state1;
    __m512i state2;
    __m512i parameters;
} maxima;

ALWAYS_INLINE maxima
no_maxima(void)
{
    return (maxima){ _mm512_setzero_ps(), _mm512_setzero_si512(), _mm512_setzero_si512() };
}

/* The means of a group. */
ALWAYS_INLINE void
make_means(const berthi_update_arguments *a, const berthi_update_constants *c,
           const byte_tables *t, int32_t dtype, uint64_t first, uint32_t i, means *out,
           maxima *m)
{
    const __m512 absmax1 = _mm512_set1_ps(a->state[0].absmax[first / BLOCK]);
    const __m512 absmax2 = _mm512_set1_ps(a->state[1].absmax[first / BLOCK]);
    __m512 gradient[ABREAST];
    __m512 state1[ABREAST];
    __m512 state2[ABREAST];

    decode_signed(t, a->state[0].codes + first + i, state1);
    decode_unsigned(t, a->state[1].codes + first + i, state2);
    load_two(a->gradient, dtype, first + i, gradient);
    load_two(a->gradient, dtype, first + i + 2 * LANES, gradient + 2);
    UNROLL
    for (uint32_t k = 0; k < ABREAST; k++) {
        const __m512 g = gradient[k] * _mm512_set1_ps(c->scale);
        const __m512 square = g * (_mm512_set1_ps(c->rest2) * g);
        const __m512 mean2 =
            _mm512_fmadd_ps(state2[k] * absmax2, _mm512_set1_ps(c->beta2), square);
        const __m512 mean1 =
            _mm512_fmadd_ps(_mm512_set1_ps(c->rest1), g,
                            (state1[k] * absmax1) * _mm512_set1_ps(c->beta1));

        _mm512_store_ps(out->state1 + i + LANES * k, mean1);
        _mm512_store_ps(out->state2 + i + LANES * k, mean2);
        m->state1 = _mm512_range_ps(m->state1, mean1, 0x0B); /* magnitudes */
        m->state2 = _mm512_max_epu32(m->state2, _mm512_castps_si512(mean2));
    }
    UNROLL
    for (uint32_t k = 0; k < ABREAST; k += 2)
        m->parameters =
            largest_of_two(m->parameters, a->parameter, dtype, first + i + k * LANES);
}

ALWAYS_INLINE bool
is_usual_maximum(uint32_t bits)
{
    return bits >= LEAST_USUAL_BITS && bits <= MOST_USUAL_BITS;
}

/* NaN and infinities of a gradient are in the mean of squares; what was kept may be any. */
ALWAYS_INLINE void
judge_means(const berthi_update_arguments *a, int32_t dtype, uint64_t first,
            const maxima *m, means *out)
{
    const uint32_t largest1 = _mm512_reduce_max_epu32(_mm512_castps_si512(m->state1));
    const uint32_t largest2 = _mm512_reduce_max_epu32(m->state2);

    out->absmax1 = berthi_core_float(largest1);
    out->absmax2 = berthi_core_float(largest2);
    out->is_usual =
        is_usual_maximum(largest1) && is_usual_maximum(largest2)
        && are_finite(m->parameters, dtype)
        && berthi_core_bits(a->state[0].absmax[first / BLOCK]) <= MOST_USUAL_BITS
        && berthi_core_bits(a->state[1].absmax[first / BLOCK]) <= MOST_USUAL_BITS;
}

/* -------------------------------------------------------------------- blocks */

/* Begun long before they are needed: root and quotient take their time. */
ALWAYS_INLINE void
find_divisors(const berthi_update_constants *c, uint32_t i, const means *m,
              __m512 divisor[ABREAST])
{
    UNROLL
    for (uint32_t k = 0; k < ABREAST; k++)
        divisor[k] =
            _mm512_fmadd_ps(_mm512_set1_ps(c->correction), _mm512_set1_ps(c->epsilon),
                            _mm512_sqrt_ps(_mm512_load_ps(m->state2 + i + k * LANES)));
}

ALWAYS_INLINE void
find_quotients(uint32_t i, const means *m, const __m512 divisor[ABREAST],
               __m512 quotient[ABREAST])
{
    UNROLL
    for (uint32_t k = 0; k < ABREAST; k++)
        quotient[k] =
            _mm512_div_ps(_mm512_load_ps(m->state1 + i + k * LANES), divisor[k]);
}

ALWAYS_INLINE void
step_parameters(const berthi_update_arguments *a, const berthi_update_constants *c,
                int32_t dtype, uint64_t first, const __m512 quotient[ABREAST])
{
    UNROLL
    for (uint32_t k = 0; k < ABREAST; k += 2) {
        __m512 parameter[2];

        load_two(a->parameter, dtype, first + k * LANES, parameter);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            parameter[half] = _mm512_fmadd_ps(_mm512_set1_ps(c->eta), quotient[k + half],
                                              parameter[half]);
            if (c->is_shrunk)
                parameter[half] =
                    rounded(parameter[half], dtype) * _mm512_set1_ps(c->shrink);
        }
        store_two(a->parameter, dtype, first + k * LANES, parameter);
    }
}

/* The block's groups again, exactly: one block in twenty. */
static __attribute__((noinline)) void
correct_codes(const byte_tables *t, bool is_signed, const float *values, float reciprocal,
              uint8_t *codes)
{
    __m512i least = _mm512_setzero_si512();

    for (uint32_t i = 0; i < BLOCK; i += GROUP)
        if (is_signed)
            encode_group(t, true, true, values + i, reciprocal, codes + i, &least);
        else
            encode_group(t, false, true, values + i, reciprocal, codes + i, &least);
}

/* The block at `first`, whose means are in `m`; the means of the next one, if there is one. */
ALWAYS_INLINE void
finish_block(const berthi_update_arguments *a, const berthi_update_constants *c,
             const byte_tables *t, int32_t dtype, uint64_t first, const means *m,
             bool has_next, means *next)
{
    const float reciprocal1 = 1.0f / m->absmax1;
    const float reciprocal2 = 1.0f / m->absmax2;
    uint8_t *const codes1 = a->state[0].codes + first;
    uint8_t *const codes2 = a->state[1].codes + first;
    __m512i least1 = _mm512_set1_epi32(-1);
    __m512i least2 = _mm512_set1_epi32(-1);
    maxima largest = no_maxima();

    for (uint32_t i = 0; i < BLOCK; i += GROUP) {
        __m512 divisor[ABREAST];
        __m512 quotient[ABREAST];

        find_divisors(c, i, m, divisor);
        if (has_next)
            make_means(a, c, t, dtype, first + BLOCK, i, next, &largest);
        find_quotients(i, m, divisor, quotient);
        encode_group(t, true, false, m->state1 + i, reciprocal1, codes1 + i, &least1);
        encode_group(t, false, false, m->state2 + i, reciprocal2, codes2 + i, &least2);
        step_parameters(a, c, dtype, first + i, quotient);
    }
    if (has_next)
        judge_means(a, dtype, first + BLOCK, &largest, next);
    if (is_unsure(true, least1))
        correct_codes(t, true, m->state1, reciprocal1, codes1);
    if (is_unsure(false, least2))
        correct_codes(t, false, m->state2, reciprocal2, codes2);
    a->state[0].absmax[first / BLOCK] = m->absmax1;
    a->state[1].absmax[first / BLOCK] = m->absmax2;
}

ALWAYS_INLINE void
begin_block(const berthi_update_arguments *a, const berthi_update_constants *c,
            const byte_tables *t, int32_t dtype, uint64_t first, means *out)
{
    maxima largest = no_maxima();

    for (uint32_t i = 0; i < BLOCK; i += GROUP)
        make_means(a, c, t, dtype, first, i, out, &largest);
    judge_means(a, dtype, first, &largest, out);
}

static __attribute__((noinline)) uint64_t
update_unusual(const berthi_update_arguments *a, const berthi_update_constants *c,
               uint64_t first, uint64_t count)
{
    const berthi_update_arguments share = berthi_update_share(a, first, count);

    return berthi_avx512_update(&share, c);
}

/* `dtype` is a constant. */
ALWAYS_INLINE uint64_t
update_as(const berthi_update_arguments *a, const berthi_update_constants *c,
          int32_t dtype)
{
    const byte_tables t = make_byte_tables(dtype == BERTH_BF16);
    const berthi_update_constants own = *c; /* what is stored cannot have changed them */
    const uint64_t whole = a->count - a->count % BLOCK;
    uint64_t dropped = 0;
    means blocks[2];

    if (whole > 0)
        begin_block(a, &own, &t, dtype, 0, &blocks[0]);
    for (uint64_t first = 0; first < whole; first += BLOCK) {
        const bool has_next = whole - first > BLOCK;
        const uint32_t turn = first / BLOCK % 2;

        fetch_update_ahead(a, 2, first);
        if (blocks[turn].is_usual && has_next) {
            finish_block(a, &own, &t, dtype, first, &blocks[turn], true, &blocks[1 - turn]);
        } else if (blocks[turn].is_usual) {
            finish_block(a, &own, &t, dtype, first, &blocks[turn], false, NULL);
        } else {
            dropped += update_unusual(a, &own, first, BLOCK);
            if (has_next)
                begin_block(a, &own, &t, dtype, first + BLOCK, &blocks[1 - turn]);
        }
    }
    return dropped + update_unusual(a, &own, whole, a->count - whole);
}

static bool
is_usual_step(const berthi_update_arguments *a, const berthi_update_constants *c)
{
    return (c->kind == BERTHI_UPDATE_ADAM || c->kind == BERTHI_UPDATE_ADAMW)
           && a->dtype == a->gradient_dtype && a->master == NULL && !c->is_coupled
           && a->state[0].values == NULL && a->state[1].values == NULL
           && c->correction * c->epsilon >= LEAST_DIVISOR && fabsf(c->eta) < 1e30f
           && (!c->is_shrunk || (isfinite(c->shrink) && c->shrink != 0.0f));
}

static uint64_t
update(const berthi_update_arguments *a, const berthi_update_constants *c)
{
    if (!is_usual_step(a, c))
        return berthi_avx512_update(a, c);
    if (a->dtype == BERTH_BF16)
        return update_as(a, c, BERTH_BF16);
    if (a->dtype == BERTH_F16)
        return update_as(a, c, BERTH_F16);
    return update_as(a, c, BERTH_F32);
}

/* The rest is of the level below. */
const berthi_operations berthi_avx512vbmi_operations = {
    .level = "avx512vbmi",
    .update = update,
};

#endif
