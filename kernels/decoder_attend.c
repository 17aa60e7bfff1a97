/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_attend.c - attention, and the choice of experts, by plain loops. */
#include "kernels/decoder_lanes.h"

#define TILE BERTHI_ATTEND_TILE
#define GROUPS BERTHI_ATTEND_GROUPS

/* ----------------------------------------------------------------- attention */

/* What a group of tiles has come to. */
typedef struct group {
    float largest; /* of the scores */
    float shares;
    float values[BERTHI_HEAD_WIDTH];
} group;

/* One query of one head. */
typedef struct task {
    const berth_attend *step;
    float query[BERTHI_HEAD_WIDTH];
    uint64_t cache_first; /* of the caches' elements: the head's position 0 */
    uint64_t begin;       /* of positions */
    uint64_t end;
} task;

static float
score_tile(const task *t, uint64_t first, uint32_t count, float *scores)
{
    const berth_attend *const s = t->step;
    float largest = berthi_core_least_score();

    for (uint32_t j = 0; j < count; j++) {
        float key[BERTHI_HEAD_WIDTH];

        widen(s->key_cache, s->cache_dtype, t->cache_first + (first + j) * s->width, s->width,
              key);
        scores[j] = berthi_core_score(sum_products(t->query, key, s->width), s->width);
        largest = berthi_core_larger(largest, scores[j]);
    }
    return largest;
}

static void
take_tile(const task *t, uint64_t first, uint32_t count, group *g)
{
    const berth_attend *const s = t->step;
    float scores[TILE];
    float shares[TILE] = { 0.0f };
    float lanes[TILE];
    const float largest =
        berthi_core_larger(g->largest, score_tile(t, first, count, scores));
    const float scale = berthi_core_share(g->largest, largest);

    for (uint32_t j = 0; j < count; j++)
        shares[j] = berthi_core_share(scores[j], largest);
    memcpy(lanes, shares, sizeof lanes);
    g->largest = largest;
    g->shares =
        berthi_core_add(berthi_core_multiply(g->shares, scale), join_lanes(lanes, LANES));
    for (uint32_t k = 0; k < s->width; k++)
        g->values[k] = berthi_core_multiply(g->values[k], scale);
    for (uint32_t j = 0; j < count; j++) {
        float values[BERTHI_HEAD_WIDTH];

        widen(s->value_cache, s->cache_dtype, t->cache_first + (first + j) * s->width,
              s->width, values);
        for (uint32_t k = 0; k < s->width; k++)
            g->values[k] = berthi_core_add_product(g->values[k], shares[j], values[k]);
    }
}

static void
join_groups(const task *t, const group *groups, uint64_t output)
{
    const berth_attend *const s = t->step;
    float largest = groups[0].largest;
    float sums[BERTHI_HEAD_WIDTH] = { 0.0f };
    float shares = 0.0f;

    for (uint32_t i = 1; i < GROUPS; i++)
        largest = berthi_core_larger(largest, groups[i].largest);
    for (uint32_t i = 0; i < GROUPS; i++) {
        const float scale = berthi_core_share(groups[i].largest, largest);

        shares = berthi_core_add_product(shares, groups[i].shares, scale);
        for (uint32_t k = 0; k < s->width; k++)
            sums[k] = berthi_core_add_product(sums[k], groups[i].values[k], scale);
    }
    for (uint32_t k = 0; k < s->width; k++)
        berthi_core_put(s->outputs, s->dtype, output + k,
                        berthi_core_divide(sums[k], shares));
}

/* Token i's query of that head. */
static void
attend_head(const berth_attend *s, uint32_t i, uint32_t number)
{
    const uint64_t position = s->position + i;
    const uint64_t query = ((uint64_t)i * s->heads + number) * s->width;
    const uint32_t kv_head = number / (s->heads / s->kv_heads);
    group groups[GROUPS];
    task t = { .step = s,
               .cache_first = kv_head * s->capacity * s->width,
               .begin = berthi_core_first_seen(position, s->window),
               .end = position + 1 };
    uint32_t turn = 0;

    widen(s->queries, s->dtype, query, s->width, t.query);
    memset(groups, 0, sizeof groups);
    for (uint32_t g = 0; g < GROUPS; g++)
        groups[g].largest = berthi_core_least_score();
    for (uint64_t first = t.begin; first < t.end; first += TILE, turn++) {
        const uint64_t left = t.end - first;

        take_tile(&t, first, left < TILE ? (uint32_t)left : TILE, &groups[turn % GROUPS]);
    }
    join_groups(&t, groups, query);
}

void
berthi_attend_run(const berth_attend *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t number = 0; number < s->heads; number++)
            attend_head(s, i, number);
}

/* ------------------------------------------------------------------- choices */

/* The one that is chosen next, behind `last`. */
static berthi_core_expert
choose_next(const berth_choose *s, const float *logits, const berthi_core_expert *last)
{
    berthi_core_expert next = { .number = UINT32_MAX };

    for (uint32_t e = 0; e < s->experts; e++) {
        const berthi_core_expert it = { logits[e], e };

        if ((last == NULL || berthi_core_is_before(*last, it))
            && (next.number == UINT32_MAX || berthi_core_is_before(it, next)))
            next = it;
    }
    return next;
}

static void
choose_of_token(const berth_choose *s, uint32_t token)
{
    const uint64_t first = (uint64_t)token * s->experts;
    uint64_t out = (uint64_t)token * s->used;
    float logits[BERTHI_CHOOSE_EXPERTS] = { 0.0f }; /* compilers do not see that one is used */
    float lanes[LANES] = { 0.0f };
    berthi_core_expert best;
    berthi_core_expert last;
    float sum;

    for (uint32_t e = 0; e < s->experts; e++)
        logits[e] = berthi_core_logit(s->logits, s->dtype, first + e);
    best = last = choose_next(s, logits, NULL);
    for (uint32_t i = 1; i < s->used; i++)
        last = choose_next(s, logits, &last);
    for (uint32_t e = 0; e < s->experts; e++)
        if (!s->is_renormalised
            || !berthi_core_is_before(last, (berthi_core_expert){ logits[e], e }))
            lanes[e % LANES] = berthi_core_add(lanes[e % LANES],
                                               berthi_core_share(logits[e], best.logit));
    sum = join_lanes(lanes, LANES);
    for (uint32_t e = 0; e < s->experts; e++)
        if (!berthi_core_is_before(last, (berthi_core_expert){ logits[e], e })) {
            s->numbers[out] = e;
            s->weights[out++] = berthi_core_one_nan(
                berthi_core_divide(berthi_core_share(logits[e], best.logit), sum));
        }
}

void
berthi_choose_run(const berth_choose *s)
{
    for (uint32_t token = 0; token < s->count; token++)
        choose_of_token(s, token);
}

void
berthi_largest_run(const berth_largest *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t first = (uint64_t)i * s->columns;
        berthi_core_expert best = { berthi_core_logit(s->values, s->dtype, first), 0 };

        for (uint32_t k = 1; k < s->columns; k++) {
            const berthi_core_expert it = { berthi_core_logit(s->values, s->dtype, first + k), k };

            if (berthi_core_is_before(it, best))
                best = it;
        }
        s->numbers[i] = best.number;
    }
}
