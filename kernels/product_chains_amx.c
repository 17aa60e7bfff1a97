/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_chains_amx.c - 4-bit weights times so few bf16 vectors that they are
 * there when their weights have arrived: sixteen chains are the lanes of a
 * register, in fp32 (product_amx.h). Three rows share the loads of the inputs.
 */
#include "kernels/product_amx.h"

#define TURN_UNITS 4u
#define TURN_COLUMNS (TURN_UNITS * UNIT)
#define MOST_ROWS 3
#define MOST_INPUTS 2
#define WORDS 4 /* of a chain */

/* Subnormals are 0, as operands and as results. */
#define FLUSHING 0x8040u

/* [turn][link][input][chain], in fp32; 0 behind the last column. Two columns lie in 32 bits. */
static uint8_t *
arrange_inputs(const berthi_product_arguments *a)
{
    const __m512i places =
        _mm512_set_epi32(114, 112, 98, 96, 82, 80, 66, 64, 50, 48, 34, 32, 18, 16, 2, 0);
    float *const arranged = berthi_product_aligned(a);
    float *out = arranged;

    if (a->is_arranged)
        return (uint8_t *)arranged;
    for (uint64_t k = 0; k < a->columns; k += TURN_COLUMNS, out += TURN_COLUMNS * a->count) {
        const uint64_t chains = units_here(a->columns, k, TURN_COLUMNS) / CHAIN;
        const __mmask16 is_there = (__mmask16)((1u << chains) - 1);

        for (uint32_t i = 0; i < a->count; i++)
            for (uint32_t link = 0; link < CHAIN; link += link % 4 == 3 ? 5 : 1) {
                /* The one before it is 4 links later. */
                const __m512i pairs = _mm512_mask_i32gather_epi32(
                    _mm512_setzero_si512(), is_there, places,
                    (const uint16_t *)a->inputs + i * a->columns + k + link_column(link, 0) - 1,
                    4);
                float *const at = out + (link * a->count + i) * 16;

                _mm512_store_si512(at, _mm512_and_si512(
                                           pairs, _mm512_set1_epi32(-65536)));
                _mm512_store_si512(at + 4 * a->count * 16, _mm512_slli_epi32(pairs, 16));
            }
    }
    return (uint8_t *)arranged;
}

/* The codes of a turn's chains: of each its four words, one after the other. */
ALWAYS_INLINE void
load_chains(const uint8_t *codes, uint64_t columns, __m512i chains[WORDS])
{
    const __m512i from = _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
    const __m512i shifts = _mm512_set1_epi64(INT64_C(16) << 32);
    const uint64_t words = columns / 8;
    const __m512i first = _mm512_maskz_loadu_epi32(
        (__mmask16)(words >= 16 ? 0xFFFFu : (1u << words) - 1), codes);
    const __m512i second =
        words <= 16 ? _mm512_setzero_si512()
                    : _mm512_maskz_loadu_epi32(
                          (__mmask16)(words >= 32 ? 0xFFFFu : (1u << (words - 16)) - 1),
                          codes + 64);

    UNROLL
    for (int i = 0; i < WORDS; i++)
        chains[i] = _mm512_srlv_epi32(
            _mm512_permutex2var_epi32(first, _mm512_add_epi32(from, _mm512_set1_epi32(i)),
                                      second),
            shifts);
}

/* Of each unit the sum of its chains, times its block's absmax, to the total. */
ALWAYS_INLINE float
add_units(__m512 sums, const float *absmax, uint64_t units, int block_shift, uint64_t unit,
          float total)
{
    _Alignas(64) float of_units[16];
    __m512 pairs = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0xB1));

    pairs = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0x4E));
    _mm512_store_ps(of_units, pairs);
    UNROLL
    for (uint64_t u = 0; u < TURN_UNITS; u++)
        if (u < units)
            total = __builtin_fmaf(of_units[4 * u], absmax[(unit + u) * UNIT >> block_shift],
                                   total);
    return total;
}

/* One turn of a tile; `units`, `rows` and `inputs` are constants but for the last turn's units. */
ALWAYS_INLINE void
add_turn(const product_plan *p, __m512i table, const uint8_t *codes, const float *absmax,
         const uint8_t *arranged, uint64_t unit, uint64_t units, uint64_t ahead, int rows,
         int inputs, float totals[MOST_ROWS][MOST_INPUTS])
{
    const uint64_t row_bytes = p->a->columns / 2;
    const uint64_t row_blocks = p->a->columns >> p->block_shift;
    __m512 sums[MOST_ROWS][MOST_INPUTS];
    __m512i chains[MOST_ROWS][WORDS];

    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *const from = codes + (uint64_t)r * row_bytes;

        load_chains(from, units * UNIT, chains[r]);
        _mm_prefetch((const char *)from + ahead, _MM_HINT_T1);
        _mm_prefetch((const char *)from + ahead + 64, _MM_HINT_T1);
        UNROLL
        for (int i = 0; i < inputs; i++)
            sums[r][i] = _mm512_setzero_ps();
    }
    UNROLL
    for (uint32_t n = 0; n < CHAIN / WORDS; n++) {
        UNROLL
        for (int word = 0; word < WORDS; word++) {
            UNROLL
            for (int r = 0; r < rows; r++) {
                const __m512 weights = _mm512_castsi512_ps(
                    _mm512_permutexvar_epi32(chains[r][word], table));

                chains[r][word] = _mm512_srli_epi32(chains[r][word], 4);
                UNROLL
                for (int i = 0; i < inputs; i++)
                    sums[r][i] = _mm512_fmadd_ps(
                        weights, _mm512_load_ps(arranged + (uint64_t)i * 64), sums[r][i]);
            }
            arranged += p->a->count * 64;
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            totals[r][i] = add_units(sums[r][i], absmax + (uint64_t)r * row_blocks, units,
                                     p->block_shift, unit, totals[r][i]);
    }
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, __m512i table, uint64_t row, uint32_t first, int rows,
              int inputs)
{
    const berthi_product_arguments *const a = p->a;
    const uint64_t row_bytes = a->columns / 2;
    const uint64_t units = a->columns / UNIT;
    const uint64_t ahead = berthi_product_ahead(row_bytes, (uint64_t)rows);
    const uint8_t *codes = a->codes + row * row_bytes;
    const float *const absmax = a->absmax + row * (a->columns >> p->block_shift);
    const uint8_t *arranged = p->arranged + first * 64;
    float totals[MOST_ROWS][MOST_INPUTS] = { { 0 } };
    uint64_t unit = 0;

    for (; units - unit >= TURN_UNITS; unit += TURN_UNITS) {
        add_turn(p, table, codes, absmax, arranged, unit, TURN_UNITS, ahead, rows, inputs, totals);
        codes += TURN_COLUMNS / 2;
        arranged += TURN_COLUMNS * sizeof(float) * a->count;
    }
    if (unit < units)
        add_turn(p, table, codes, absmax, arranged, unit, units - unit, ahead, rows, inputs,
                 totals);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < inputs; i++)
            a->outputs[(first + (uint32_t)i) * a->rows + row + (uint64_t)r] = totals[r][i];
}

/* All inputs: two, one, or both. */
ALWAYS_INLINE void
multiply_row(const product_plan *p, __m512i table, uint64_t row, int rows)
{
    if (p->a->count >= 2)
        multiply_tile(p, table, row, 0, rows, 2);
    if (p->a->count != 2)
        multiply_tile(p, table, row, p->a->count - 1, rows, 1);
}

void
berthi_amx_multiply_chains(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    const product_plan plan = { a, arrange_inputs(a), __builtin_ctz(a->block_size) };
    const product_plan *const p = &plan;
    const uint32_t mode = _mm_getcsr();
    uint64_t row = a->first_row;
    float values[16];
    __m512i table;

    berthi_product_values(value_bits, BERTH_BF16, values);
    table = _mm512_loadu_si512(values);
    _mm_setcsr(mode | FLUSHING);
    IS_READ(p);
    for (; a->end_row - row >= MOST_ROWS; row += MOST_ROWS)
        multiply_row(p, table, row, MOST_ROWS);
    for (; row < a->end_row; row++)
        multiply_row(p, table, row, 1);
    _mm_setcsr(mode);
}
