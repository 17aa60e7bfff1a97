/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.cuh - attention and the choice of experts on a GPU: plain kernels with the bits
 * of decoder.h.
 *
 * Attention: a CTA has a head of a token, a warp one of the groups of tiles, a lane every
 * 32nd column of the query and of the sum of values, and of a tile one position's score.
 * Choices: a warp has a token.
 *
 *   traffic   keys and values that a query sees are read once for each head and token
 *   launch    STEP_THREADS; count * heads CTAs, and a CTA for eight tokens
 */
#ifndef BERTH_KERNELS_ATTEND_CUH
#define BERTH_KERNELS_ATTEND_CUH

#include "kernels/decoder.cuh"

/* ----------------------------------------------------------------- attention */

#define ATTEND_COLUMNS (BERTHI_HEAD_WIDTH / SIMT_WARP) /* of a lane */

/* A group, as a lane of its warp has it. */
typedef struct attend_group {
    float largest;
    float shares;
    float query[ATTEND_COLUMNS];
    float values[ATTEND_COLUMNS];
} attend_group;

/* The product of the query and the key at `key`, for all lanes. */
SIMT_INLINE float
attend_product(const berth_attend *a, int32_t cache_dtype, uint64_t key, const attend_group *g)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    float sum = 0.0f;

    SIMT_UNROLL
    for (uint32_t k = 0; k < ATTEND_COLUMNS; k++)
        if (lane + k * SIMT_WARP < a->width)
            sum = berthi_core_add_product(
                sum, g->query[k],
                berthi_core_load(a->key_cache, cache_dtype, key + lane + k * SIMT_WARP));
    return step_join_warp(sum);
}

/* The score of the lane's own position of the tile; beyond `count` none is lower. */
SIMT_INLINE float
attend_scores(const berth_attend *a, int32_t cache_dtype, uint64_t key, uint32_t count,
              const attend_group *g)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    float own = 0.0f;

    for (uint32_t j = 0; j < count; j++) {
        const float product
            = attend_product(a, cache_dtype, key + (uint64_t)j * a->width, g);

        if (j == lane)
            own = product;
    }
    return lane < count ? berthi_core_score(own, a->width) : berthi_core_least_score();
}

/* `cache` is where the tile begins in both caches. */
SIMT_INLINE void
attend_tile(const berth_attend *a, int32_t cache_dtype, uint64_t cache, uint32_t count,
            attend_group *g)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const float score = attend_scores(a, cache_dtype, cache, count, g);
    float largest = score;
    float share;
    float scale;

    SIMT_UNROLL
    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2)
        largest = berthi_core_larger(largest, simt_shuffle_xor(largest, half));
    largest = berthi_core_larger(g->largest, largest);
    scale = berthi_core_share(g->largest, largest);
    share = lane < count ? berthi_core_share(score, largest) : 0.0f;
    g->largest = largest;
    g->shares
        = berthi_core_add(berthi_core_multiply(g->shares, scale), step_join_warp(share));
    SIMT_UNROLL
    for (uint32_t k = 0; k < ATTEND_COLUMNS; k++)
        g->values[k] = berthi_core_multiply(g->values[k], scale);
    for (uint32_t j = 0; j < count; j++) {
        const uint64_t value = cache + (uint64_t)j * a->width + lane;
        const float its = simt_shuffle(share, j);

        SIMT_UNROLL
        for (uint32_t k = 0; k < ATTEND_COLUMNS; k++)
            if (lane + k * SIMT_WARP < a->width)
                g->values[k] = berthi_core_add_product(
                    g->values[k], its,
                    berthi_core_load(a->value_cache, cache_dtype, value + k * SIMT_WARP));
    }
}

/* What all groups have come to, of one column, as they left it in the CTA's memory. */
SIMT_INLINE float
attend_join(const float *largest, const float *shares, const float *values)
{
    float most = largest[0];
    float share = 0.0f;
    float sum = 0.0f;

    SIMT_UNROLL
    for (uint32_t i = 1; i < BERTHI_ATTEND_GROUPS; i++)
        most = berthi_core_larger(most, largest[i]);
    SIMT_NO_UNROLL
    for (uint32_t i = 0; i < BERTHI_ATTEND_GROUPS; i++) {
        const float scale = berthi_core_share(largest[i], most);

        share = berthi_core_add_product(share, shares[i], scale);
        sum = berthi_core_add_product(sum, values[i * BERTHI_HEAD_WIDTH], scale);
    }
    return berthi_core_divide(sum, share);
}

/* All tiles of a warp's group. */
SIMT_INLINE void
attend_tiles(const berth_attend *a, int32_t cache_dtype, uint64_t position, uint64_t cache,
             attend_group *g)
{
    const uint64_t begin = berthi_core_first_seen(position, a->window);

    SIMT_NO_UNROLL
    for (uint64_t first = begin + simt_warp() * BERTHI_ATTEND_TILE; first <= position;
         first += BERTHI_ATTEND_GROUPS * BERTHI_ATTEND_TILE) {
        const uint64_t left = position + 1 - first;

        attend_tile(a, cache_dtype, cache + first * a->width,
                    left < BERTHI_ATTEND_TILE ? (uint32_t)left : BERTHI_ATTEND_TILE, g);
    }
}

SIMT_INLINE void
attend(const berth_attend *a, int32_t cache_dtype)
{
    SIMT_SHARED(float, values, BERTHI_ATTEND_GROUPS * BERTHI_HEAD_WIDTH);
    SIMT_SHARED(float, largest, BERTHI_ATTEND_GROUPS);
    SIMT_SHARED(float, shares, BERTHI_ATTEND_GROUPS);
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t warp = simt_warp();
    const uint64_t token = simt_cta() / a->heads;
    const uint32_t head = (uint32_t)(simt_cta() % a->heads);
    const uint64_t kv_head = head / (a->heads / a->kv_heads);
    const uint64_t query = simt_cta() * a->width;
    attend_group g;

    g.largest = berthi_core_least_score();
    g.shares = 0.0f;
    SIMT_UNROLL
    for (uint32_t k = 0; k < ATTEND_COLUMNS; k++) {
        const uint32_t column = lane + k * SIMT_WARP;

        g.values[k] = 0.0f;
        g.query[k]
            = column < a->width ? berthi_core_load(a->queries, a->dtype, query + column) : 0.0f;
    }
    attend_tiles(a, cache_dtype, a->position + token, kv_head * a->capacity * a->width, &g);
    SIMT_UNROLL
    for (uint32_t k = 0; k < ATTEND_COLUMNS; k++)
        values[warp * BERTHI_HEAD_WIDTH + lane + k * SIMT_WARP] = g.values[k];
    if (lane == 0) {
        largest[warp] = g.largest;
        shares[warp] = g.shares;
    }
    simt_barrier();
    if (simt_thread() < a->width)
        berthi_core_put(a->outputs, a->dtype, query + simt_thread(),
                        attend_join(largest, shares, values + simt_thread()));
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

/* The one that is chosen next, behind `last` (of CHOOSE_NONE: the first), for all lanes. */
SIMT_INLINE berthi_core_expert
choose_next(const berth_choose *a, uint64_t first, berthi_core_expert last)
{
    berthi_core_expert next = { 0.0f, CHOOSE_NONE };

    SIMT_NO_UNROLL
    for (uint32_t e = simt_thread() % SIMT_WARP; e < a->experts; e += SIMT_WARP) {
        const berthi_core_expert it
            = { berthi_core_logit(a->logits, a->dtype, first + e), e };

        if (last.number == CHOOSE_NONE || berthi_core_is_before(last, it))
            next = choose_better(next, it);
    }
    SIMT_UNROLL
    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2) {
        berthi_core_expert other;

        other.logit = simt_shuffle_xor(next.logit, half);
        other.number = choose_shuffle_word(next.number, half);
        next = choose_better(next, other);
    }
    return next;
}

/* The sum of what logits count for, of those up to `last` or of all. */
SIMT_INLINE float
choose_sum(const berth_choose *a, uint64_t first, float largest, berthi_core_expert last)
{
    float sum = 0.0f;

    SIMT_NO_UNROLL
    for (uint32_t e = simt_thread() % SIMT_WARP; e < a->experts; e += SIMT_WARP) {
        const berthi_core_expert it
            = { berthi_core_logit(a->logits, a->dtype, first + e), e };

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

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL(berthi_attend_bf16, STEP_THREADS, berth_attend, attend(a, BERTH_BF16))
SIMT_KERNEL(berthi_attend_f16, STEP_THREADS, berth_attend, attend(a, BERTH_F16))
SIMT_KERNEL(berthi_attend_f32, STEP_THREADS, berth_attend, attend(a, BERTH_F32))
SIMT_KERNEL(berthi_choose, STEP_THREADS, berth_choose, choose(a))

#endif
