/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - the rule of tune.h. */
#include "loader/tune.h"

#include "kernels/base.h"

#define PERIOD_NS UINT64_C(250000000)
#define STEP      4u
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
    tune->stages = (uint32_t)berthi_min_u64(tune->stages + (uint64_t)STEP, tune->most);
    tune->is_settled = tune->stages == tune->most;
}

uint32_t
berthi_tune_look(berthi_tune *tune, const berthi_tune_sample *sample)
{
    const uint64_t period_ns = sample->now_ns - tune->from.now_ns;
    const uint64_t idle_ns = sample->idle_ns - tune->from.idle_ns;
    const double rate = (double)(sample->bytes - tune->from.bytes) / (double)period_ns;

    if (tune->rate > 0 && rate < GAIN * tune->rate)
        tune->is_settled = true;
    else if (idle_ns > period_ns / IDLE_PART)
        step(tune, rate);
    tune->from = *sample;
    return tune->stages;
}
