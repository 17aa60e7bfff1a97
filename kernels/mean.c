/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.c - the offset of double quantization, in one fixed order of additions.
 *
 * The grid of a GPU reduction, walked by one thread: `width` lanes a block,
 * `blocks` blocks, four accumulators a lane, a tree over the lanes, and for
 * several blocks the same again over their sums. Stored offsets depend on it,
 * so nothing here may be reassociated.
 */
#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/kernel.h"

#define ROW BERTHI_MEAN_ROW /* of the widest: a known count makes vectors of a loop */
#define ROWS 4u             /* added at once */
#define WARP 32u

static uint64_t
floor_power_of_two(uint64_t value)
{
    uint64_t power = 1;

    while (power <= value / 2)
        power *= 2;
    return power;
}

berthi_mean_grid
berthi_mean_plan(const berthi_mean_arguments *a)
{
    const uint64_t processors = a->processors != 0 ? a->processors : 132;
    const uint64_t threads = a->threads_per_processor != 0 ? a->threads_per_processor
                                                           : 2048;
    berthi_mean_grid g = { .blocks = 1 };
    uint64_t lanes;
    uint64_t turns;

    g.is_vector = a->is_old_order ? a->count > 128 : a->count >= 128;
    lanes = floor_power_of_two(g.is_vector ? a->count / 4 : a->count);
    g.width = (uint32_t)(lanes < BERTHI_MEAN_LANES ? lanes : BERTHI_MEAN_LANES);
    turns = berthi_divide_up(a->count, g.width);
    if (turns >= 256) {
        const uint64_t resident = processors * (threads / g.width);
        const uint64_t wanted = berthi_divide_up(turns, 16);
        const uint64_t least = berthi_divide_up(turns, 256);

        g.blocks = resident < wanted ? resident : wanted;
        if (g.blocks < least)
            g.blocks = least;
    }
    return g;
}

uint64_t
berthi_mean_scratch(uint64_t count, uint32_t processors, uint32_t threads_per_processor)
{
    const berthi_mean_arguments a = { .count = count,
                                      .processors = processors,
                                      .threads_per_processor = threads_per_processor };

    return berthi_mean_plan(&a).blocks;
}

/* The upper half of the lanes onto the lower one; inlined with a constant where it pays. */
static inline __attribute__((always_inline)) void
fold_lanes(float *lane, uint32_t half)
{
    for (uint32_t k = 0; k < half; k++)
        lane[k] = berthi_core_add(lane[k], lane[k + half]);
}

/* Sum over the lanes of one block; `lane` is consumed. */
static float
sum_lanes(float *lane, uint32_t width, int is_old_order)
{
    uint32_t half = width;

    if (width == BERTHI_MEAN_LANES) {
        fold_lanes(lane, 256);
        fold_lanes(lane, 128);
        fold_lanes(lane, 64);
        half = 64;
    }
    while (half > WARP) {
        half /= 2;
        fold_lanes(lane, half);
    }
    /* Within a warp every lane adds at once; one without a partner adds itself. */
    for (uint32_t step = 1; step < half; step *= 2) {
        const uint32_t offset = is_old_order ? step : half / 2 / step;
        float before[WARP];

        memcpy(before, lane, half * sizeof before[0]);
        for (uint32_t k = 0; k < half; k++)
            lane[k] = berthi_core_add(before[k], before[k + offset < half ? k + offset : k]);
    }
    return lane[0];
}

/* A lane's four accumulators, in their order. */
static inline __attribute__((always_inline)) void
add_fours(const float *restrict sums, float *restrict lane, uint32_t width)
{
    for (uint32_t k = 0; k < width; k++)
        lane[k] = berthi_core_add(
            berthi_core_add(berthi_core_add(sums[4 * k], sums[4 * k + 1]), sums[4 * k + 2]),
            sums[4 * k + 3]);
}

static inline __attribute__((always_inline)) void
add_rows(float *restrict sums, const float *restrict values, uint64_t stride, bool is_first)
{
    for (uint32_t j = 0; j < ROW; j++) {
        const float sum = is_first ? 0.0f : sums[j];
        const float two = berthi_core_add(berthi_core_add(sum, values[j]), values[j + stride]);

        sums[j] = berthi_core_add(berthi_core_add(two, values[j + 2 * stride]),
                                  values[j + 3 * stride]);
    }
}

static berthi_extremes
find_extremes(const float *values)
{
    uint32_t largest = 0;
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < BERTHI_DOUBLE_BLOCK; i++) {
        const uint32_t bits = berthi_core_bits(values[i]);

        largest = bits > largest ? bits : largest;
        least = bits < least ? bits : least;
    }
    return (berthi_extremes){ berthi_core_float(largest), berthi_core_float(least) };
}

void
berthi_add_mean_rows_plainly(const berthi_mean_rows_arguments *a)
{
    if (a->is_first)
        add_rows(a->sums, a->values, a->stride, true);
    else
        add_rows(a->sums, a->values, a->stride, false);
    if (a->lanes != NULL)
        add_fours(a->sums, a->lanes, BERTHI_MEAN_LANES);
    for (uint64_t row = 0; a->extremes != NULL && row < ROWS; row++)
        for (uint64_t at = row * a->stride; at < row * a->stride + ROW;
             at += BERTHI_DOUBLE_BLOCK)
            a->extremes[at / BERTHI_DOUBLE_BLOCK] = find_extremes(a->values + at);
}

static bool
has_four_rows(uint64_t tail, uint64_t first, uint64_t row, uint64_t stride)
{
    return row == ROW && first < tail && tail - first >= (ROWS - 1) * stride + ROW;
}

/* Values in fours of rows that all blocks have: where blocks are narrower there are none. */
static uint64_t
count_in_fours(uint64_t count, const berthi_mean_grid *g)
{
    const uint64_t four = ROWS * (uint64_t)ROW * g->blocks;

    return count / four * four;
}

uint64_t
berthi_mean_extremes(const berthi_mean_arguments *a)
{
    const berthi_mean_grid g = berthi_mean_plan(a);

    return count_in_fours(a->count, &g) / BERTHI_DOUBLE_BLOCK;
}

/* The rows from `first` that are not four, or not whole, one by one. */
static void
add_rest(const berthi_mean_arguments *a, uint64_t row, uint64_t stride, uint64_t first,
         float *sums)
{
    const uint64_t tail = a->count - a->count % 4;

    for (; first < tail; first += stride) {
        const uint64_t count = tail - first < row ? tail - first : row;

        for (uint64_t j = 0; j < count; j++)
            sums[j] = berthi_core_add(sums[j], a->values[first + j]);
    }
}

/*
 * The four accumulators of every lane, lane by lane, are one row of the input:
 * row after row is added, so memory is read in order. Then the lanes' sums.
 */
static void
gather_rows(const berthi_mean_arguments *a, const berthi_mean_grid *g, uint64_t c, float *lanes)
{
    float sums[ROW];
    const uint64_t row = 4 * (uint64_t)g->width;
    const uint64_t stride = row * g->blocks;
    const uint64_t tail = a->count - a->count % 4;
    const uint64_t singles = c == 0 ? a->count - tail : 0;
    const uint64_t measured = a->extremes != NULL ? count_in_fours(a->count, g) : 0;
    uint64_t first = c * row;

    if (!has_four_rows(tail, first, row, stride))
        memset(sums, 0, row * sizeof sums[0]);
    for (; has_four_rows(tail, first, row, stride); first += ROWS * stride) {
        const bool is_last = first + ROWS * stride >= tail && singles == 0;

        a->add_rows(&(berthi_mean_rows_arguments){
            .values = a->values + first,
            .stride = stride,
            .sums = sums,
            .is_first = first == c * row,
            .lanes = is_last ? lanes : NULL,
            .extremes = first < measured ? a->extremes + first / BERTHI_DOUBLE_BLOCK : NULL });
        if (is_last)
            return;
    }
    add_rest(a, row, stride, first, sums);
    for (uint64_t k = 0; k < singles; k++)
        sums[4 * k] = berthi_core_add(sums[4 * k], a->values[tail + k]);
    if (g->width == BERTHI_MEAN_LANES)
        add_fours(sums, lanes, BERTHI_MEAN_LANES);
    else
        add_fours(sums, lanes, g->width);
}

/* Fewer than a vector's worth: one block; of single values a lane has one or two. */
static void
gather_singles(const berthi_mean_arguments *a, const berthi_mean_grid *g, float *lanes)
{
    float sums[ROW];

    memset(sums, 0, 4 * g->width * sizeof sums[0]);
    for (uint64_t i = 0; i < a->count; i++) {
        const uint64_t at = i % g->width * 4 + i / g->width;

        sums[at] = berthi_core_add(sums[at], a->values[i]);
    }
    add_fours(sums, lanes, g->width);
}

static float
sum_block(const berthi_mean_arguments *a, const berthi_mean_grid *g, uint64_t c)
{
    float lanes[BERTHI_MEAN_LANES];

    if (g->is_vector)
        gather_rows(a, g, c, lanes);
    else
        gather_singles(a, g, lanes);
    return sum_lanes(lanes, g->width, a->is_old_order);
}

static float
sum_blocks(const berthi_mean_arguments *a, const berthi_mean_grid *g)
{
    float lane[BERTHI_MEAN_LANES];

    for (uint32_t k = 0; k < g->width; k++) {
        lane[k] = 0.0f;
        for (uint64_t c = k; c < g->blocks; c += g->width)
            lane[k] = berthi_core_add(lane[k], a->partial[c]);
    }
    return sum_lanes(lane, g->width, a->is_old_order);
}

float
berthi_mean(const berthi_mean_arguments *arguments)
{
    berthi_mean_arguments with_rows = *arguments;
    const berthi_mean_arguments *const a = &with_rows;
    const berthi_mean_grid g = berthi_mean_plan(a);
    float sum;

    if (a->add_rows == NULL)
        with_rows.add_rows = berthi_add_mean_rows_plainly;
    for (uint64_t c = 0; c < g.blocks; c++)
        a->partial[c] = sum_block(a, &g, c);
    sum = g.blocks == 1 ? a->partial[0] : sum_blocks(a, &g);
    /* The reduction multiplies by the reciprocal: not the same as a division. */
    return berthi_core_settle(berthi_core_multiply(sum, 1.0f / (float)a->count));
}
