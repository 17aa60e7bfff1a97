/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel8_avx512.c - 8-bit codes with AVX-512: blocks by a map, LLM.int8() rows.
 *
 * A map's code is a binary search over 255 borders in eight levels; a level's
 * border is picked from registers by the code found so far.
 */
#include "kernels/avx512.h"

/* --------------------------------------------------------------- map search */

/*
 * Borders of each level of the search, strict: a value on a midpoint takes the
 * even neighbour, so where that is the upper one the border lies an ulp lower.
 */
typedef struct map_search {
    __m512 levels[4]; /* of 1, 2, 4, 8 entries */
    __m512 level16;
    __m512 level32[2];
    __m512 level64[4];
    __m512 level128[8];
} map_search;

static float
border_of(const uint32_t *map, uint32_t lower)
{
    const float sum = berthi_core_add(berthi_core_float(map[lower]),
                                      berthi_core_float(map[lower + 1]));
    const float midpoint = berthi_core_multiply(sum, 0.5f);

    return lower % 2 == 0 ? midpoint : nextafterf(midpoint, -INFINITY);
}

/* Entry i of a level of `count` is the border below code (2 i + 1) 128 / count. */
static void
fill_level(const uint32_t *map, uint32_t count, __m512 *out)
{
    float entries[128] = { 0 };

    for (uint32_t i = 0; i < count; i++)
        entries[i] = border_of(map, (2 * i + 1) * (128 / count) - 1);
    for (uint32_t i = 0; i < count; i += 16)
        out[i / 16] = _mm512_loadu_ps(entries + i);
}

static void
make_map_search(const uint32_t *map, map_search *s)
{
    for (uint32_t level = 0; level < 4; level++)
        fill_level(map, 1u << level, &s->levels[level]);
    fill_level(map, 16, &s->level16);
    fill_level(map, 32, s->level32);
    fill_level(map, 64, s->level64);
    fill_level(map, 128, s->level128);
}

ALWAYS_INLINE __m512i
append_bit(__m512i code, __m512 values, __m512 border)
{
    const __m512i twice = _mm512_add_epi32(code, code);

    return _mm512_mask_add_epi32(twice, _mm512_cmp_ps_mask(values, border, _CMP_GT_OQ), twice,
                                 _mm512_set1_epi32(1));
}

/* Entry `code` of 32, 64 or 128 in registers. */
ALWAYS_INLINE __m512
pick_32(const __m512 *table, __m512i code)
{
    return _mm512_permutex2var_ps(table[0], code, table[1]);
}

ALWAYS_INLINE __m512
pick_64(const __m512 *table, __m512i code)
{
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(code, _mm512_set1_epi32(32)),
                                pick_32(table, code), pick_32(table + 2, code));
}

ALWAYS_INLINE __m512
pick_128(const __m512 *table, __m512i code)
{
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(code, _mm512_set1_epi32(64)),
                                pick_64(table, code), pick_64(table + 4, code));
}

ALWAYS_INLINE __m512i
map_codes(const map_search *s, __m512 values)
{
    __m512i code = _mm512_setzero_si512();

    for (int level = 0; level < 4; level++)
        code = append_bit(code, values, _mm512_permutexvar_ps(code, s->levels[level]));
    code = append_bit(code, values, _mm512_permutexvar_ps(code, s->level16));
    code = append_bit(code, values, pick_32(s->level32, code));
    code = append_bit(code, values, pick_64(s->level64, code));
    return append_bit(code, values, pick_128(s->level128, code));
}

/* 16 elements, widened. */
ALWAYS_INLINE __m512
load_16(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return _mm512_loadu_ps((const float *)values + first);
    const __m256i half
        = _mm256_loadu_si256((const __m256i *)((const uint16_t *)values + first));

    if (dtype == BERTH_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE void
encode_map_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    const __m512 factor = _mm512_set1_ps(reciprocal);

    for (uint64_t i = first; i < first + a->block_size; i += 16) {
        const __m512 scaled = _mm512_mul_ps(load_16(a->values, dtype, i), factor);

        _mm_storeu_si128((__m128i *)(a->codes + i),
                         _mm512_cvtepi32_epi8(map_codes(tables, scaled)));
    }
}

void
berthi_avx512_encode_map(const berthi_encode_arguments *a)
{
    map_search s;

    if (a->block_size % 32 != 0) {
        berthi_scalar_operations.encode_map(a);
        return;
    }
    make_map_search(a->map, &s);
    encode_all(a, &s, find_absmax, encode_map_block, berthi_scalar_operations.encode_map);
}

void
berthi_avx512_encode_double(const berthi_double_arguments *a)
{
    berthi_encode_double_by(a, berthi_avx512_encode_map);
}

/* --------------------------------------------------------------- LLM.int8() */

/* What does not fill a register, with the scale of its row. */
static void
encode_row_end(const berthi_rows_arguments *a, uint64_t first, uint64_t end, float scale)
{
    for (uint64_t i = first; i < end; i++) {
        const float value = berthi_core_load(a->values, a->dtype, i);

        a->codes[i] = berthi_core_int8_code(
            berthi_core_from_fp16(berthi_core_to_fp16(value)), scale);
    }
}

/* NaN and overflow become 0x80000000, whose last byte is the code 0 they need. */
ALWAYS_INLINE void
encode_row(const berthi_rows_arguments *a, int32_t dtype, uint64_t first, float maximum)
{
    const float scale = berthi_core_int8_scale(maximum);
    const __m512 factor = _mm512_set1_ps(scale);
    const uint64_t end = first + a->columns;
    uint64_t i = first;

    for (; end - i >= 16; i += 16) {
        const __m512 values = load_16(a->values, dtype, i);
        const __m512 rounded
            = dtype == BERTH_F16 ? values
                                 : _mm512_cvtph_ps(round_to_16_bit(values, BERTH_F16));
        const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(rounded, factor));

        _mm_storeu_si128((__m128i *)(a->codes + i), _mm512_cvtepi32_epi8(codes));
    }
    encode_row_end(a, i, end, scale);
}

/* Rounding keeps order: the maximum is rounded instead of every value. */
ALWAYS_INLINE float
row_maximum(const berthi_rows_arguments *a, int32_t dtype, uint64_t first)
{
    const uint64_t whole = a->columns - a->columns % 32;
    float maximum = 0.0f;

    for (uint64_t i = 0; i < whole;) {
        const uint32_t count = whole - i > 1u << 20 ? 1u << 20 : (uint32_t)(whole - i);
        const float largest = find_absmax(a->values, dtype, first + i, count);

        if (!(largest <= LARGEST_FLOAT)) /* NaN is ignored, infinity is not: by the rules */
            return NAN;
        maximum = largest > maximum ? largest : maximum;
        i += count;
    }
    for (uint64_t i = first + whole; i < first + a->columns; i++)
        maximum = berthi_core_absmax_step(maximum, berthi_core_load(a->values, dtype, i));
    return berthi_core_from_fp16(berthi_core_to_fp16(maximum));
}

ALWAYS_INLINE void
encode_rows_typed(const berthi_rows_arguments *a, int32_t dtype)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        const float maximum = row_maximum(a, dtype, first);

        if (maximum <= LARGEST_FLOAT) {
            a->row_maximum[row] = maximum;
            encode_row(a, dtype, first, maximum);
        } else {
            berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
                (const uint8_t *)a->values + first * element_bytes(dtype), dtype, 1,
                a->columns, a->codes + first, a->row_maximum + row });
        }
    }
}

void
berthi_avx512_encode_rows(const berthi_rows_arguments *a)
{
    if (a->dtype == BERTH_BF16)
        encode_rows_typed(a, BERTH_BF16);
    else if (a->dtype == BERTH_F16)
        encode_rows_typed(a, BERTH_F16);
    else
        encode_rows_typed(a, BERTH_F32);
}

ALWAYS_INLINE void
decode_16(const berthi_rows_decode_arguments *a, uint64_t i, __m512 maximum)
{
    const __m512 codes = _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(a->codes + i))));
    const __m512 values
        = _mm512_mul_ps(_mm512_mul_ps(codes, maximum),
                        _mm512_set1_ps(berthi_core_float(BERTHI_INT8_INVERSE_BITS)));

    if (a->dtype == BERTH_F32)
        _mm512_storeu_ps((float *)a->values + i, values);
    else
        _mm256_storeu_si256((__m256i *)((uint16_t *)a->values + i),
                            round_to_16_bit(values, a->dtype));
}

void
berthi_avx512_decode_rows(const berthi_rows_decode_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        const float maximum = a->row_maximum[row];
        uint64_t done = 0;

        if (fabsf(maximum) <= LARGEST_FLOAT) /* infinity times zero is a NaN */
            for (; a->columns - done >= 16; done += 16)
                decode_16(a, first + done, _mm512_set1_ps(maximum));
        berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
            a->codes + first + done, a->row_maximum + row, 1, a->columns - done, a->dtype,
            (uint8_t *)a->values + (first + done) * element_bytes(a->dtype) });
    }
}
