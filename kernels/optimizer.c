/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - kinds of optimizers, and what an update's elements have in common. */
#include "kernels/optimizer.h"
#include "kernels/number.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* -------------------------------------------------------------------- kinds */

typedef struct kind_facts {
    const char *name;
    uint32_t states;
    berthi_update_settings defaults;
} kind_facts;

static const kind_facts kinds[BERTHI_UPDATE_KIND_COUNT] = {
#define KIND(identifier, name, states, is_coupled, rate, beta1, beta2, epsilon, decay,     \
             beta3, alpha)                                                                 \
    { name,                                                                                \
      states,                                                                              \
      { BERTHI_UPDATE_##identifier, is_coupled, rate, beta1, beta2, epsilon, decay, 1.0f,  \
        beta3, alpha, 0, 0 } },
    BERTHI_UPDATE_KINDS(KIND)
#undef KIND
};

berthi_update_settings
berthi_update_defaults(berthi_update_kind kind)
{
    return kinds[kind].defaults;
}

const char *
berthi_update_name(berthi_update_kind kind)
{
    return (unsigned)kind < BERTHI_UPDATE_KIND_COUNT ? kinds[kind].name : "unknown";
}

uint32_t
berthi_update_states(berthi_update_kind kind)
{
    return kinds[kind].states;
}

bool
berthi_update_is_signed(uint32_t state)
{
    return state != 1;
}

/* ---------------------------------------------------------------- constants */

/* By squaring: of no library, so the same everywhere; good to some 50 bits. */
static double
power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent != 0; exponent >>= 1) {
        if (exponent % 2 == 1)
            result *= base;
        base *= base;
    }
    return result;
}

/*
 * beta3 on its way from beta1, so that the time after which a gradient counts half grows
 * by the same amount with every step; beta1 of 0 is no time at all. (Of the C library's
 * functions: their last bits are gone in a float.)
 */
static float
beta3_of(const berthi_update_settings *s, uint64_t step)
{
    if (step >= s->beta3_steps) /* so it is with none */
        return s->beta3;
    const double first = log((double)s->beta1);
    const double last = log((double)s->beta3);
    const double share = (double)step / (double)s->beta3_steps;

    if (s->beta1 == 0.0f)
        return fminf((float)exp(last / share), s->beta3);
    return fminf((float)exp(first * last / ((1.0 - share) * last + share * first)), s->beta3);
}

static float
alpha_of(const berthi_update_settings *s, uint64_t step)
{
    if (step >= s->alpha_steps)
        return s->alpha;
    return (float)((double)s->alpha * (double)step / (double)s->alpha_steps);
}

static void
fill_ademamix(const berthi_update_settings *s, uint64_t step, berthi_update_constants *c)
{
    c->correction = (float)sqrt(1.0 - power((double)s->beta2, step));
    c->correction1 = (float)(1.0 - power((double)s->beta1, step));
    c->beta3 = beta3_of(s, step);
    c->rest3 = 1.0f - c->beta3;
    c->alpha = alpha_of(s, step);
}

berthi_update_constants
berthi_update_constants_of(const berthi_update_settings *s, uint64_t step)
{
    const bool has_decay = s->decay > 0.0f;
    berthi_update_constants c = {
        .kind = s->kind,
        .is_first = step == 1,
        .is_coupled = has_decay && s->is_coupled,
        .is_shrunk = has_decay && !s->is_coupled,
        .scale = s->scale,
        .rate = s->rate,
        .decay = s->decay,
        .shrink = fmaf(-s->rate, s->decay, 1.0f),
        .beta1 = s->beta1,
        .beta2 = s->beta2,
        .rest1 = 1.0f - s->beta1,
        .rest2 = 1.0f - s->beta2,
        .epsilon = s->epsilon,
    };

    if (s->kind == BERTHI_UPDATE_ADAM || s->kind == BERTHI_UPDATE_ADAMW) {
        c.correction = (float)sqrt(1.0 - power((double)s->beta2, step));
        c.eta = -(c.correction * s->rate) / (float)(1.0 - power((double)s->beta1, step));
    }
    if (s->kind == BERTHI_UPDATE_ADEMAMIX)
        fill_ademamix(s, step, &c);
    return c;
}

/* ------------------------------------------------------------------- shares */

berthi_update_arguments
berthi_update_share(const berthi_update_arguments *a, uint64_t first, uint64_t count)
{
    berthi_update_arguments share = *a;

    share.count = count;
    share.parameter = (uint8_t *)a->parameter + first * berthi_number_bytes(a->dtype);
    share.gradient =
        (const uint8_t *)a->gradient + first * berthi_number_bytes(a->gradient_dtype);
    if (a->master != NULL)
        share.master = a->master + first;
    for (uint32_t k = 0; k < BERTHI_UPDATE_STATES; k++) {
        if (a->state[k].values != NULL)
            share.state[k].values = a->state[k].values + first;
        if (a->state[k].codes == NULL)
            continue;
        share.state[k].codes = a->state[k].codes + first;
        share.state[k].absmax = a->state[k].absmax + first / BERTHI_UPDATE_BLOCK;
    }
    return share;
}

/* ------------------------------------------------------------------- checks */

berth_status
berthi_update_check(const berthi_update_arguments *a, const berthi_update_constants *c,
                    berth_error *error)
{
    if ((uint32_t)c->kind >= BERTHI_UPDATE_KIND_COUNT)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "an update has no kind %" PRId32, c->kind);
    if (!berthi_is_number(a->dtype) || !berthi_is_number(a->gradient_dtype))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "an update of dtype %" PRId32 " by gradients of dtype %" PRId32,
                           a->dtype, a->gradient_dtype);
    for (uint32_t k = 0; k < berthi_update_states((berthi_update_kind)c->kind); k++) {
        const berthi_update_state *const s = &a->state[k];

        if (s->values == NULL && (s->codes == NULL || s->absmax == NULL))
            return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                               "an update without state %" PRIu32, k + 1);
    }
    return BERTH_OK;
}
