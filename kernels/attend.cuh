/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.cuh - attention, and choices of experts and of the largest, on a GPU: plain kernels
 * with the bits of decoder.h.
 *
 * Attention: a CTA has a head of a token, a warp one of the groups of tiles, a lane every
 * 32nd column of the query and of the sum of values, and of a tile one position's score. A tile
 * is what a warp asks memory for at once, column by column, then its values some positions at a
 * time: a short sequence takes as long as memory takes to answer.
 * Choices: a warp has a token.
 *
 *   traffic   keys and values that a query sees are read once for each head and token
 *   launch    STEP_THREADS; count * heads CTAs, and a CTA for eight tokens; of the largest
 *             LARGEST_THREADS, a CTA for a row
 */
#ifndef BERTH_KERNELS_ATTEND_CUH
#define BERTH_KERNELS_ATTEND_CUH

#include "kernels/decoder.cuh"

/* ----------------------------------------------------------------- attention */

/* A group; the values are the CTA's memory, of which a lane of the warp has its columns. */
typedef struct attend_group {
    float largest;
    float shares;
    float *values;
} attend_group;

/* A tile: where it begins in both caches, and its positions. */
typedef struct attend_place {
    uint64_t first;
    uint32_t count;
} attend_place;

/* A column of all positions of a tile; 0 where there is none. */
SIMT_INLINE void
attend_load(const berth_attend *a, const void *cache, int32_t cache_dtype, attend_place tile,
            uint32_t column, float *out)
{
    const uint32_t count = column < a->width ? tile.count : 0;

    SIMT_UNROLL
    for (uint32_t j = 0; j < BERTHI_ATTEND_TILE; j++)
        out[j] = j < count ? berthi_core_load(cache, cache_dtype,
                                              tile.first + (uint64_t)j * a->width + column)
                           : 0.0f;
}

/* Sums of twice `half` positions: a lane keeps half of them, with what a lane `half` away has. */
SIMT_INLINE void
attend_halve(float *sums, uint32_t half)
{
    const bool is_upper = (simt_thread() & half) != 0;

    SIMT_UNROLL
    for (uint32_t j = 0; j < half; j++) {
        const float own = is_upper ? sums[j + half] : sums[j];
        const float others = is_upper ? sums[j] : sums[j + half];

        sums[j] = berthi_core_add(own, simt_shuffle_xor(others, half));
    }
}

/*
 * A lane has a part of each position's sum: it gets all of its own position's, lanes joined in
 * the order of step_join_warp().
 */
SIMT_INLINE float
attend_join_products(float sums[BERTHI_ATTEND_TILE])
{
    attend_halve(sums, 16);
    attend_halve(sums, 8);
    attend_halve(sums, 4);
    attend_halve(sums, 2);
    attend_halve(sums, 1);
    return sums[0];
}

/* The score of the lane's own position of the tile; beyond its end none is lower. */
SIMT_INLINE float
attend_score(const berth_attend *a, int32_t cache_dtype, attend_place tile, const float *query)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    float sums[BERTHI_ATTEND_TILE];
    float product;

    SIMT_UNROLL
    for (uint32_t j = 0; j < BERTHI_ATTEND_TILE; j++)
        sums[j] = 0.0f;
    SIMT_NO_UNROLL
    for (uint32_t k = 0; k < a->width; k += SIMT_WARP) {
        const float its = query[k + lane];
        float keys[BERTHI_ATTEND_TILE];

        attend_load(a, a->key_cache, cache_dtype, tile, k + lane, keys);
        SIMT_UNROLL
        for (uint32_t j = 0; j < BERTHI_ATTEND_TILE; j++)
            sums[j] = berthi_core_add_product(sums[j], its, keys[j]);
    }
    product = attend_join_products(sums);
    return lane < tile.count ? berthi_core_score(product, a->width) : berthi_core_least_score();
}

/* A column's sum so far times `scale`, and each position's value times its share, a lane's own. */
SIMT_INLINE float
attend_add_values(const berth_attend *a, int32_t cache_dtype, attend_place tile, uint32_t column,
                  float sum, float scale, float share)
{
    float values[BERTHI_ATTEND_TILE];

    attend_load(a, a->value_cache, cache_dtype, tile, column, values);
    sum = berthi_core_multiply(sum, scale);
    SIMT_UNROLL
    for (uint32_t j = 0; j < BERTHI_ATTEND_TILE; j++) {
        const float its = simt_shuffle(share, j);

        if (j < tile.count)
            sum = berthi_core_add_product(sum, its, values[j]);
    }
    return sum;
}

SIMT_INLINE void
attend_tile(const berth_attend *a, int32_t cache_dtype, attend_place tile, const float *query,
            attend_group *g)
{
    const float score = attend_score(a, cache_dtype, tile, query);
    const uint32_t lane = simt_thread() % SIMT_WARP;
    float largest = score;
    float share;
    float scale;

    SIMT_UNROLL
    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2)
        largest = berthi_core_larger(largest, simt_shuffle_xor(largest, half));
    largest = berthi_core_larger(g->largest, largest);
    scale = berthi_core_share(g->largest, largest);
    share = lane < tile.count ? berthi_core_share(score, largest) : 0.0f;
    g->largest = largest;
    g->shares =
        berthi_core_add(berthi_core_multiply(g->shares, scale), step_join_warp(share));
    SIMT_NO_UNROLL
    for (uint32_t k = 0; k < a->width; k += SIMT_WARP)
        g->values[k + lane] = attend_add_values(a, cache_dtype, tile, k + lane,
                                                g->values[k + lane], scale, share);
}

/* All tiles of a warp's group. */
SIMT_INLINE void
attend_tiles(const berth_attend *a, int32_t cache_dtype, uint64_t position, uint64_t cache,
             const float *query, attend_group *g)
{
    const uint64_t begin = berthi_core_first_seen(position, a->window);

    SIMT_NO_UNROLL
    for (uint64_t first = begin + simt_warp() * BERTHI_ATTEND_TILE; first <= position;
         first += BERTHI_ATTEND_GROUPS * BERTHI_ATTEND_TILE) {
        const uint64_t left = position + 1 - first;
        const attend_place tile =
            { cache + first * a->width,
              left < BERTHI_ATTEND_TILE ? (uint32_t)left : BERTHI_ATTEND_TILE };

        attend_tile(a, cache_dtype, tile, query, g);
    }
}

/* What all groups have come to, as they left it in the CTA's memory: of the lane's column. */
SIMT_INLINE float
attend_join(const float *largest, const float *shares, const float *values)
{
    float most = largest[0];
    float share = 0.0f;
    float sum = 0.0f;
    float scales;

    SIMT_UNROLL
    for (uint32_t i = 1; i < BERTHI_ATTEND_GROUPS; i++)
        most = berthi_core_larger(most, largest[i]);
    /* One a lane. */
    scales = berthi_core_share(largest[simt_thread() % BERTHI_ATTEND_GROUPS], most);
    SIMT_UNROLL
    for (uint32_t i = 0; i < BERTHI_ATTEND_GROUPS; i++) {
        const float scale = simt_shuffle(scales, i);

        share = berthi_core_add_product(share, shares[i], scale);
        sum = berthi_core_add_product(sum, values[i * BERTHI_HEAD_WIDTH], scale);
    }
    return berthi_core_divide(sum, share);
}

/* The head's query as floats, and what groups begin with; columns that it has not are 0. */
SIMT_INLINE void
attend_begin(const berth_attend *a, float *query, float *values)
{
    const uint32_t thread = simt_thread();

    query[thread] = thread < a->width ? berthi_core_load(a->queries, a->dtype,
                                                         simt_cta() * a->width + thread)
                                      : 0.0f;
    SIMT_UNROLL
    for (uint32_t i = 0; i < BERTHI_ATTEND_GROUPS; i++)
        values[i * BERTHI_HEAD_WIDTH + thread] = 0.0f;
    simt_barrier();
}

SIMT_INLINE void
attend(const berth_attend *a, int32_t cache_dtype)
{
    SIMT_SHARED(float, values, BERTHI_ATTEND_GROUPS * BERTHI_HEAD_WIDTH);
    SIMT_SHARED(float, query, BERTHI_HEAD_WIDTH);
    SIMT_SHARED(float, largest, BERTHI_ATTEND_GROUPS);
    SIMT_SHARED(float, shares, BERTHI_ATTEND_GROUPS);
    const uint32_t warp = simt_warp();
    const uint64_t token = simt_cta() / a->heads;
    const uint32_t head = (uint32_t)(simt_cta() % a->heads);
    const uint64_t kv_head = head / (a->heads / a->kv_heads);
    attend_group g = { berthi_core_least_score(), 0.0f, values + warp * BERTHI_HEAD_WIDTH };
    float output;

    attend_begin(a, query, values);
    attend_tiles(a, cache_dtype, a->position + token, kv_head * a->capacity * a->width, query,
                 &g);
    if (simt_thread() % SIMT_WARP == 0) {
        largest[warp] = g.largest;
        shares[warp] = g.shares;
    }
    simt_barrier();
    output = attend_join(largest, shares, values + simt_thread());
    if (simt_thread() < a->width)
        berthi_core_put(a->outputs, a->dtype, simt_cta() * a->width + simt_thread(), output);
}

/* ------------------------------------------------------------------- choices */

#define CHOOSE_NONE 0xFFFFFFFFu /* no expert's number */

SIMT_INLINE uint32_t
choose_shuffle_word(uint32_t word, uint32_t mask)
{
    return berthi_core_bits(simt_shuffle_xor(berthi_core_float(word), mask));
}

SIMT_INLINE berthi_core_expert
choose_better(berthi_core_expert a, berthi_core_expert b)
{
    if (b.number == CHOOSE_NONE)
        return a;
    return a.number == CHOOSE_NONE || berthi_core_is_before(b, a) ? b : a;
}

/* Of all lanes of the warp. */
SIMT_INLINE berthi_core_expert
choose_best_of_warp(berthi_core_expert best)
{
    SIMT_UNROLL
    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2) {
        berthi_core_expert other;

        other.logit = simt_shuffle_xor(best.logit, half);
        other.number = choose_shuffle_word(best.number, half);
        best = choose_better(best, other);
    }
    return best;
}

/* The one that is chosen next, behind `last` (of CHOOSE_NONE: the first), for all lanes. */
SIMT_INLINE berthi_core_expert
choose_next(const berth_choose *a, uint64_t first, berthi_core_expert last)
{
    berthi_core_expert next = { 0.0f, CHOOSE_NONE };

    SIMT_NO_UNROLL
    for (uint32_t e = simt_thread() % SIMT_WARP; e < a->experts; e += SIMT_WARP) {
        const berthi_core_expert it = { berthi_core_logit(a->logits, a->dtype, first + e), e };

        if (last.number == CHOOSE_NONE || berthi_core_is_before(last, it))
            next = choose_better(next, it);
    }
    return choose_best_of_warp(next);
}

/* The sum of what logits count for, of those up to `last` or of all. */
SIMT_INLINE float
choose_sum(const berth_choose *a, uint64_t first, float largest, berthi_core_expert last)
{
    float sum = 0.0f;

    SIMT_NO_UNROLL
    for (uint32_t e = simt_thread() % SIMT_WARP; e < a->experts; e += SIMT_WARP) {
        const berthi_core_expert it = { berthi_core_logit(a->logits, a->dtype, first + e), e };

        if (a->is_renormalised == 0 || !berthi_core_is_before(last, it))
            sum = berthi_core_add(sum, berthi_core_share(it.logit, largest));
    }
    return step_join_warp(sum);
}

SIMT_INLINE void
choose(const berth_choose *a)
{
    const uint64_t token = simt_cta() * STEP_WARPS + simt_warp();
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint64_t first = token * a->experts;
    uint64_t out = token * a->used;
    const berthi_core_expert none = { 0.0f, CHOOSE_NONE };
    berthi_core_expert best;
    berthi_core_expert last;
    float sum;

    if (token >= a->count) /* the whole warp */
        return;
    best = choose_next(a, first, none);
    last = best;
    SIMT_NO_UNROLL
    for (uint32_t i = 1; i < a->used; i++)
        last = choose_next(a, first, last);
    sum = choose_sum(a, first, best.logit, last);
    SIMT_NO_UNROLL
    for (uint32_t base = 0; base < a->experts; base += SIMT_WARP) {
        berthi_core_expert it = { 0.0f, base + lane };
        bool is_chosen = false;
        uint32_t chosen;

        if (it.number < a->experts) {
            it.logit = berthi_core_logit(a->logits, a->dtype, first + it.number);
            is_chosen = !berthi_core_is_before(last, it);
        }
        chosen = simt_ballot(is_chosen);
        if (is_chosen) {
            const uint64_t its = out + simt_count_bits(chosen & ((1u << lane) - 1));

            a->numbers[its] = it.number;
            a->weights[its] = berthi_core_one_nan(
                berthi_core_divide(berthi_core_share(it.logit, best.logit), sum));
        }
        out += simt_count_bits(chosen);
    }
}

/* ------------------------------------------------------------------- largest */

#define LARGEST_WARPS (LARGEST_THREADS / SIMT_WARP)
#define LARGEST_TURNS 32u /* columns of a lane that are on their way at once */

/* Of a lane's columns. */
SIMT_INLINE berthi_core_expert
largest_of_lane(const berth_largest *a)
{
    const uint64_t row = simt_cta() * a->columns;
    berthi_core_expert best = { 0.0f, CHOOSE_NONE };

    SIMT_NO_UNROLL
    for (uint32_t first = simt_thread(); first < a->columns;
         first += LARGEST_TURNS * LARGEST_THREADS) {
        float values[LARGEST_TURNS];

        step_load(a->values, a->dtype, row + first, row + a->columns, LARGEST_THREADS,
                  LARGEST_TURNS, values);
        SIMT_UNROLL
        for (uint32_t k = 0; k < LARGEST_TURNS; k++) {
            const uint32_t column = first + k * LARGEST_THREADS;
            const berthi_core_expert it =
                { values[k] == values[k] ? values[k] : berthi_core_float(0xFF800000u),
                  column < a->columns ? column : CHOOSE_NONE };

            best = choose_better(best, it);
        }
    }
    return best;
}

SIMT_INLINE void
largest(const berth_largest *a)
{
    SIMT_SHARED(float, logits, LARGEST_WARPS);
    SIMT_SHARED(uint32_t, numbers, LARGEST_WARPS);
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t warp = simt_warp();
    berthi_core_expert best = choose_best_of_warp(largest_of_lane(a));

    if (lane == 0) {
        logits[warp] = best.logit;
        numbers[warp] = best.number;
    }
    simt_barrier();
    best.logit = logits[lane % LARGEST_WARPS];
    best.number = numbers[lane % LARGEST_WARPS];
    best = choose_best_of_warp(best);
    if (simt_thread() == 0)
        a->numbers[simt_cta()] = best.number;
}

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL_OF(berthi_attend_bf16, STEP_THREADS, SIMT_RESIDENT_WIDE, berth_attend,
               attend(a, BERTH_BF16))
SIMT_KERNEL_OF(berthi_attend_f16, STEP_THREADS, SIMT_RESIDENT_WIDE, berth_attend,
               attend(a, BERTH_F16))
SIMT_KERNEL_OF(berthi_attend_f32, STEP_THREADS, SIMT_RESIDENT_WIDE, berth_attend,
               attend(a, BERTH_F32))
SIMT_KERNEL(berthi_choose, STEP_THREADS, berth_choose, choose(a))
SIMT_KERNEL(berthi_largest, LARGEST_THREADS, berth_largest, largest(a))

#endif
