/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - the rule of tune.h. */
#include "loader/tune.h"

#include "kernels/base.h"

#define PERIOD_NS UINT64_C(250000000)
#define IDLE_PART 50u /* 2 % of a period */
#define GAIN      1.03

void
berthi_tune_begin(berthi_tune *tune, uint32_t stages, uint32_t most, uint64_t now_ns)
{
    *tune = (berthi_tune){ .stages = stages < most ? stages : most,
                           .most = most,
                           .is_settled = stages >= most,
                           .from = { .now_ns = now_ns } };
}

bool
berthi_tune_is_due(const berthi_tune *tune, uint64_t now_ns)
{
    return !tune->is_settled && now_ns - tune->from.now_ns >= PERIOD_NS;
}

static void
step(berthi_tune *tune, double rate)
{
    tune->rate = rate;
    tune->before = tune->stages;
    tune->stages = (uint32_t)berthi_min_u64(UINT64_C(2) * tune->stages, tune->most);
}

static void
settle(berthi_tune *tune, uint32_t stages)
{
    tune->stages = stages;
    tune->is_settled = true;
}

uint32_t
berthi_tune_look(berthi_tune *tune, const berthi_tune_sample *sample)
{
    const uint64_t period_ns = sample->now_ns - tune->from.now_ns;
    const uint64_t idle_ns = sample->idle_ns - tune->from.idle_ns;
    const double rate = (double)(sample->bytes - tune->from.bytes) / (double)period_ns;

    tune->from = *sample;
    if (idle_ns <= period_ns / IDLE_PART)
        return tune->stages;
    if (rate < GAIN * tune->rate)
        settle(tune, tune->before);
    else if (tune->stages == tune->most)
        settle(tune, tune->most);
    else
        step(tune, rate);
    return tune->stages;
}
