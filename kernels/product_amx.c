/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_amx.c - 4-bit weights times bf16 vectors where the processor
 * multiplies tiles of them: 16 rows, up to 16 inputs, 32 columns
 * (product_amx.h). Few inputs have a way of their own; inputs of other dtypes
 * are the lower level's.
 *
 * Steps     two units, a whole cache line of each row: rows that lie a page
 *           apart would drive it out before the second. While one is
 *           multiplied, the next is looked up and the last one's sums are added.
 */
#include "kernels/product_amx.h"

#ifdef __clang__
#define UNROLL_16 _Pragma("unroll")
#else
#define UNROLL_16 _Pragma("GCC unroll 16")
#endif

#define STEP_UNITS 2u
#define TILE_ROWS 16u
#define TILE_INPUTS 16u
#define GROUPS_MAX 2u /* of inputs: all that a call may have */

/*
 * Tiles by their numbers, which instructions have as they are written: of each unit two of sums,
 * one a group, and one of weights; of each group one of inputs.
 */
#define TILE_SUMS(unit, group) (GROUPS_MAX * (unit) + (group))
#define TILE_WEIGHTS 4
#define TILE_INPUTS_OF 6

typedef struct tile_shapes {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Of a step and of the one before or after. */
typedef struct workspace {
    _Alignas(64) uint8_t weights[2][STEP_UNITS][2][TILE_ROWS * 64];
    _Alignas(64) float sums[2][STEP_UNITS][GROUPS_MAX][TILE_ROWS * TILE_INPUTS];
    uint32_t group_inputs[GROUPS_MAX];
} workspace;

/* Sixteen rows: those behind `last` are that one once more. */
typedef struct tile {
    const uint8_t *codes;
    const float *absmax;
    uint64_t row_bytes;
    uint64_t row_blocks;
    uint64_t last;
} tile;

/* ------------------------------------------------------------ inputs of tiles */

/* [32 columns][group][link of the chains][input][chain]: rows of tiles are links of both chains. */
static uint8_t *
arrange_inputs(const berthi_product_arguments *a)
{
    const __m512i lane =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    uint8_t *const arranged = berthi_product_aligned(a);
    uint8_t *out = arranged;
    uint16_t order[2 * CHAIN];

    if (a->is_arranged)
        return arranged;
    for (uint32_t k = 0; k < 2 * CHAIN; k++)
        order[k] = (uint16_t)link_column(k / 2, k % 2);
    for (uint64_t k = 0; k < a->columns; k += 2 * CHAIN)
        for (uint32_t first = 0; first < a->count; first += TILE_INPUTS) {
            const uint32_t count =
                a->count - first < TILE_INPUTS ? a->count - first : TILE_INPUTS;
            const __m512i places =
                _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)count));

            for (uint32_t i = 0; i < count; i++)
                _mm512_i32scatter_epi32(
                    out + i * 4, places,
                    _mm512_permutexvar_epi16(
                        _mm512_loadu_si512(order),
                        _mm512_loadu_si512((const uint16_t *)a->inputs
                                           + (first + i) * a->columns + k)),
                    4);
            out += (uint64_t)count * 64;
        }
    return arranged;
}

/* ------------------------------------------------------------------ steps of tiles */

ALWAYS_INLINE uint64_t
tile_row(const tile *t, uint64_t r)
{
    return r < t->last ? r : t->last;
}

/* Each four codes of 16 bytes go to four lanes, of which each has one of them. */
ALWAYS_INLINE void
look_up_units(const tile *t, __m512i table, workspace *w, uint64_t step, uint64_t units)
{
    const __m512i shifts = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi16(4), _mm_setzero_si128())),
        _mm256_set_m128i(_mm_set1_epi16(12), _mm_set1_epi16(8)), 1);
    const uint8_t *const codes = t->codes + step * (STEP_UNITS * UNIT / 2);

    UNROLL_16
    for (uint64_t r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (uint64_t half = 0; half < 2 * units; half++) {
            const __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128(
                (const __m128i *)(const void *)(codes + tile_row(t, r) * t->row_bytes
                                                + half * CHAIN)));

            _mm512_store_si512(
                w->weights[step % 2][half / 2][half % 2] + r * 64,
                _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, shifts), table));
        }
    }
}

/* For compilers numbers of units are constants. */
ALWAYS_INLINE void
look_up_step(const tile *t, __m512i table, workspace *w, uint64_t step, uint64_t units)
{
    if (units == STEP_UNITS)
        look_up_units(t, table, w, step, STEP_UNITS);
    else
        look_up_units(t, table, w, step, 1);
}

/* Of one group of inputs: its tile of sums gets the weights times the inputs. */
#define MULTIPLY_GROUP(sums_, weights_, inputs_, group, at)                                \
    do {                                                                                   \
        _tile_loadd(inputs_, (at) + (group) * TILE_INPUTS * 64,                            \
                    (int64_t)w->group_inputs[group] * 4);                                  \
        _tile_dpbf16ps(sums_, weights_, inputs_);                                          \
    } while (0)

#define MULTIPLY_HALF(unit, half, weights_, sums_0, sums_1)                                \
    do {                                                                                   \
        const uint8_t *const at = inputs + (2 * (unit) + (half)) * half_bytes;             \
                                                                                           \
        _tile_loadd(weights_, w->weights[step % 2][unit][half], 64);                       \
        MULTIPLY_GROUP(sums_0, weights_, 6, 0, at);                                        \
        if (groups > 1)                                                                    \
            MULTIPLY_GROUP(sums_1, weights_, 7, 1, at);                                    \
    } while (0)

#define STORE_UNIT(unit, sums_0, sums_1)                                                   \
    do {                                                                                   \
        _tile_stored(sums_0, w->sums[step % 2][unit][0], 64);                              \
        if (groups > 1)                                                                    \
            _tile_stored(sums_1, w->sums[step % 2][unit][1], 64);                          \
    } while (0)

/* The sums of a step's units, whose halves take turns: each waits for the one before. */
ALWAYS_INLINE void
multiply_step(const product_plan *p, workspace *w, uint64_t step, uint64_t units, int groups)
{
    const uint64_t half_bytes = (uint64_t)p->a->count * 64;
    const uint8_t *const inputs = p->arranged + step * STEP_UNITS * 2 * half_bytes;

    IS_READ(w);
    _tile_zero(0);
    if (groups > 1)
        _tile_zero(1);
    if (units > 1) {
        _tile_zero(2);
        if (groups > 1)
            _tile_zero(3);
    }
    MULTIPLY_HALF(0, 0, 4, 0, 1);
    if (units > 1)
        MULTIPLY_HALF(1, 0, 5, 2, 3);
    MULTIPLY_HALF(0, 1, 4, 0, 1);
    if (units > 1)
        MULTIPLY_HALF(1, 1, 5, 2, 3);
    STORE_UNIT(0, 0, 1);
    if (units > 1)
        STORE_UNIT(1, 2, 3);
}

/* Sums behind a group's last input stay what the workspace began with. */
ALWAYS_INLINE void
add_units(const product_plan *p, const tile *t, const workspace *w, uint64_t step,
          uint64_t units, int groups, __m512 totals[GROUPS_MAX][TILE_ROWS])
{
    UNROLL
    for (uint64_t u = 0; u < units; u++) {
        const float *const absmax =
            t->absmax + ((step * STEP_UNITS + u) * UNIT >> p->block_shift);

        UNROLL_16
        for (uint64_t r = 0; r < TILE_ROWS; r++) {
            const __m512 scale = _mm512_set1_ps(absmax[tile_row(t, r) * t->row_blocks]);

            UNROLL
            for (int g = 0; g < groups; g++)
                totals[g][r] = _mm512_fmadd_ps(
                    _mm512_load_ps(w->sums[step % 2][u][g] + r * TILE_INPUTS), scale,
                    totals[g][r]);
        }
    }
}

ALWAYS_INLINE void
add_step(const product_plan *p, const tile *t, const workspace *w, uint64_t step,
         uint64_t units, int groups, __m512 totals[GROUPS_MAX][TILE_ROWS])
{
    if (units == STEP_UNITS)
        add_units(p, t, w, step, STEP_UNITS, groups, totals);
    else
        add_units(p, t, w, step, 1, groups, totals);
}

/* ------------------------------------------------------------------ rows of tiles */

/* Rows of tiles are weights' rows: inputs lie side by side. */
ALWAYS_INLINE void
put_totals(const berthi_product_arguments *a, uint64_t row, const tile *t, uint32_t first,
           uint32_t count, const __m512 totals[TILE_ROWS])
{
    float values[TILE_ROWS][TILE_INPUTS];

    UNROLL_16
    for (uint32_t r = 0; r < TILE_ROWS; r++)
        _mm512_storeu_ps(values[r], totals[r]);
    for (uint64_t r = 0; r <= t->last; r++)
        for (uint32_t i = 0; i < count; i++)
            a->outputs[(first + i) * a->rows + row + r] = values[r][i];
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, __m512i table, workspace *w, uint64_t row, uint64_t last,
              int groups)
{
    const uint64_t units = p->a->columns / UNIT;
    const uint64_t row_bytes = p->a->columns / 2;
    const uint64_t row_blocks = p->a->columns >> p->block_shift;
    const tile t = { p->a->codes + row * row_bytes, p->a->absmax + row * row_blocks, row_bytes,
                     row_blocks, last };
    __m512 totals[GROUPS_MAX][TILE_ROWS];

    UNROLL
    for (int g = 0; g < groups; g++) {
        UNROLL_16
        for (uint32_t r = 0; r < TILE_ROWS; r++)
            totals[g][r] = _mm512_setzero_ps();
    }
    look_up_step(&t, table, w, 0, units_here(units, 0, STEP_UNITS));
    for (uint64_t step = 0; step * STEP_UNITS < units; step++) {
        const uint64_t here = units_here(units, step * STEP_UNITS, STEP_UNITS);
        const uint64_t next = (step + 1) * STEP_UNITS;

        multiply_step(p, w, step, here, groups);
        if (step > 0)
            add_step(p, &t, w, step - 1, STEP_UNITS, groups, totals);
        if (next < units)
            look_up_step(&t, table, w, step + 1, units_here(units, next, STEP_UNITS));
        else
            add_step(p, &t, w, step, here, groups, totals);
    }
    UNROLL
    for (int g = 0; g < groups; g++)
        put_totals(p->a, row, &t, (uint32_t)g * TILE_INPUTS, w->group_inputs[g], totals[g]);
}

ALWAYS_INLINE void
multiply_rows(const product_plan *p, __m512i table, workspace *w, int groups)
{
    const berthi_product_arguments *const a = p->a;
    uint64_t row = a->first_row;

    for (; a->end_row - row >= TILE_ROWS; row += TILE_ROWS)
        multiply_tile(p, table, w, row, TILE_ROWS - 1, groups);
    if (row < a->end_row)
        multiply_tile(p, table, w, row, a->end_row - row - 1, groups);
}

/* Shapes of tiles are of the thread, until the product is done. */
static void
shape_tiles(const workspace *w)
{
    tile_shapes shapes = { .palette = 1 };

    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        const uint32_t tiles[3] = { TILE_SUMS(0, g), TILE_SUMS(1, g), TILE_INPUTS_OF + g };

        shapes.rows[TILE_WEIGHTS + g] = TILE_ROWS;
        shapes.row_bytes[TILE_WEIGHTS + g] = 64;
        for (uint32_t i = 0; i < 3 && w->group_inputs[g] > 0; i++) {
            shapes.rows[tiles[i]] = TILE_ROWS;
            shapes.row_bytes[tiles[i]] = (uint16_t)(w->group_inputs[g] * 4);
        }
    }
    IS_READ(&shapes);
    _tile_loadconfig(&shapes);
}

static void
multiply_tiles(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    const product_plan p = { a, arrange_inputs(a), __builtin_ctz(a->block_size) };
    uint16_t values[32];
    __m512i table;
    workspace w;

    for (uint32_t i = 0; i < 32; i++)
        values[i] = berthi_core_to_bf16(berthi_core_float(value_bits[i % 16]));
    table = _mm512_loadu_si512(values);
    w.group_inputs[0] = a->count < TILE_INPUTS ? a->count : TILE_INPUTS;
    w.group_inputs[1] = a->count - w.group_inputs[0];
    memset(w.sums, 0, sizeof w.sums);
    shape_tiles(&w);
    if (w.group_inputs[1] == 0)
        multiply_rows(&p, table, &w, 1);
    else
        multiply_rows(&p, table, &w, 2);
    _tile_release();
}

/* ----------------------------------------------------------------------- entries */

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    if (a->count <= BERTHI_CHAINS_INPUTS)
        berthi_amx_multiply_chains(a, value_bits);
    else
        multiply_tiles(a, value_bits);
}

/* Blocks of 32 are less than a unit. */
static bool
is_mine(const berthi_product_arguments *a)
{
    return a->dtype == BERTH_BF16 && a->block_size >= UNIT && berthi_product_has_whole_rows(a);
}

static void
multiply_nf4(const berthi_product_arguments *a)
{
    if (is_mine(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_avx512bf16_operations.multiply_nf4(a);
}

static void
multiply_fp4(const berthi_product_arguments *a)
{
    if (is_mine(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_avx512bf16_operations.multiply_fp4(a);
}

/* The rest is of the level below. */
const berthi_operations berthi_amx_operations = {
    .level = "amx",
    .multiply_nf4 = multiply_nf4,
    .multiply_fp4 = multiply_fp4,
};
