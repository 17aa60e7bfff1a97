/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_qlora.c - QLoRA with AdamW: states of 8 bits that are paged, on a simulated GPU or
 * in a file, against states of 32 bits beside their adapters.
 *
 * 8 bits do not follow the same path to the last digit. How far they may be is said twice:
 *
 *   published   50 steps from the same values by the same gradients: fewer than 20 elements
 *               of a state outside 3e-3 + 0.1 %, values 6e-5 apart in the mean. These are
 *               bounds of bitsandbytes' own tests; as there, values are made the same again
 *               after each step, because the two runs would soon part
 *   whole run   the losses are a quarter as far apart as those of two runs with 32 bits
 *               that begin with other random numbers, at most; the last ones differ by 2 %
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tuned.h"

/* Whoever watches threads or memory has seen them all by then; and is slow. */
#define STEPS (T_IS_SANITIZED ? 12u : 200u)
/* Of the first loss, that is left at the end. */
#define LEFT (T_IS_SANITIZED ? 0.5 : 0.01)

static berth_context *context;
static const char *base;

static tuned_setup
on_the_processor(int32_t bits, uint32_t seed)
{
    return (tuned_setup){ .base = base, .bits = bits, .place = BERTH_STATES_DEVICE,
                            .seed = seed };
}

/* ---------------------------------------------------------------------- whole runs */

/* What the optimizer has kept of each adapter: asked of berth, not assumed. */
static void
check_states(const tuned *run, int32_t bits, int32_t place)
{
    uint64_t elements = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < run->parameter_count; i++) {
        const berth_parameter_state *const state = &run->states[i];

        CHECK_EQ(state->kind, BERTH_UPDATE_ADAMW);
        CHECK_EQ(state->states, 2);
        CHECK_EQ(state->bits, bits);
        CHECK_EQ(state->place, place);
        CHECK_EQ(state->step, run->steps);
        elements += state->elements;
        bytes += state->bytes;
    }
    CHECK_EQ(elements, run->elements);
    CHECK_EQ(run->memory.elements, run->elements);
    CHECK_EQ(run->memory.elements_8bit, bits == 8 ? run->elements : 0);
    for (int p = 0; p < BERTH_STATES_PLACE_COUNT; p++)
        CHECK_EQ(run->memory.states[p] >= bytes, p == place);
    if (bits == 8)
        CHECK(bytes <= (uint64_t)(2.04 * (double)elements));
    else
        CHECK_EQ(bytes, 8 * elements);
}

static void
check_learned(const tuned *run)
{
    CHECK(run->losses[0] > 5); /* 160 words, of which it knows nothing: log(160), and more */
    CHECK(run->losses[run->steps] <= LEFT * run->losses[0]);
}

static void
check_same(const tuned *a, const tuned *b)
{
    CHECK_MEM(a->losses, b->losses, (a->steps + 1) * sizeof *a->losses);
    CHECK_MEM(a->learned, b->learned, a->elements * sizeof *a->learned);
}

static void
test_paged_8bit_learns_as_32bit_does(void)
{
    const tuned_setup on_a_gpu = { .base = base, .devices = "sim:64MiB", .bits = 8,
                                     .place = BERTH_STATES_HOST, .seed = 1 };
    const tuned_setup in_a_file = { .base = base, .states_dir = fixture_folder(),
                                      .bits = 8, .place = BERTH_STATES_DISK, .seed = 1 };
    const tuned_setup plain = on_the_processor(32, 1);
    const tuned_setup otherwise = on_the_processor(32, 2);
    tuned full, other, paged, filed;
    double last;

    tuned_run(&full, context, &plain, STEPS, NULL);
    tuned_run(&other, context, &otherwise, STEPS, NULL);
    tuned_run(&paged, context, &on_a_gpu, STEPS, NULL);
    tuned_run(&filed, context, &in_a_file, STEPS, NULL);
    check_states(&full, 32, BERTH_STATES_DEVICE);
    check_states(&paged, 8, BERTH_STATES_HOST);
    check_states(&filed, 8, BERTH_STATES_DISK);
    check_learned(&full);
    check_learned(&paged);
    check_same(&paged, &filed);
    last = paged.losses[STEPS] / full.losses[STEPS];
    CHECK(tuned_distance(&paged, &full) > 0);
    CHECK(tuned_distance(&paged, &full) <= tuned_distance(&other, &full) / 4);
    CHECK(fabs(last - 1) <= 0.02);
    T_NOTE("loss %.3f -> %.4f (8 bits), %.4f (32); %.4f apart, other seeds %.4f",
           full.losses[0], paged.losses[STEPS], full.losses[STEPS],
           tuned_distance(&paged, &full), tuned_distance(&other, &full));
    tuned_free(&full);
    tuned_free(&other);
    tuned_free(&paged);
    tuned_free(&filed);
}

/* ------------------------------------------------------------- published tolerance */

#define KEPT_TOGETHER (T_IS_SANITIZED ? 10u : 50u)
#define GRADIENT 0.01 /* as large as there, at the first step: bounds are no shares */

static double
root_mean_square(const float *x, uint64_t count)
{
    double squares = 0;

    for (uint64_t i = 0; i < count; i++)
        squares += (double)x[i] * x[i];
    return sqrt(squares / (double)count);
}

/* Elements of a parameter's state that are not close. */
static uint64_t
count_outliers(tuner *a, tuner *b, uint64_t parameter, uint32_t state)
{
    const uint64_t count = a->model.parameters[parameter].elements;
    float *const x = malloc(count * sizeof *x);
    float *const y = malloc(count * sizeof *y);
    uint64_t outliers = 0;

    CHECK_EQ(berth_optimizer_read(a->optimizer, parameter, state, 0, count, x, NULL),
             BERTH_OK);
    CHECK_EQ(berth_optimizer_read(b->optimizer, parameter, state, 0, count, y, NULL),
             BERTH_OK);
    for (uint64_t i = 0; i < count; i++)
        outliers += !(fabsf(x[i] - y[i]) <= 3e-3f + 1e-3f * fabsf(x[i]));
    free(x);
    free(y);
    return outliers;
}

static void
test_8bit_is_within_the_published_tolerance(void)
{
    const tuned_setup full_setup = on_the_processor(32, 1);
    const tuned_setup small_setup = on_the_processor(8, 1);
    uint64_t outliers = 0;
    double largest = 0;
    double scale = 1;
    tuner full, small;

    tuner_open(&full, context, &full_setup);
    tuner_open(&small, context, &small_setup);
    for (uint32_t step = 0; step < KEPT_TOGETHER; step++) {
        const uint64_t elements = small.model.elements;
        double sum = 0;

        tuner_measure(&small);
        if (step == 0)
            scale = GRADIENT / root_mean_square(small.model.gradients, elements);
        for (uint64_t i = 0; i < elements; i++)
            small.model.gradients[i] = (float)(scale * small.model.gradients[i]);
        memcpy(full.model.learned, small.model.learned, elements * sizeof(float));
        memcpy(full.model.gradients, small.model.gradients, elements * sizeof(float));
        tuner_update(&full);
        tuner_update(&small);
        for (uint64_t i = 0; i < elements; i++)
            sum += fabs((double)full.model.learned[i] - (double)small.model.learned[i]);
        largest = fmax(largest, sum / (double)elements);
        for (uint32_t i = 0; i < small.model.parameter_count; i++)
            for (uint32_t state = 0; state < 2; state++) {
                const uint64_t found = count_outliers(&full, &small, i, state);

                CHECK_LT(found, 20);
                outliers = found > outliers ? found : outliers;
            }
    }
    CHECK(largest < 6e-5);
    T_NOTE("values %.1e apart in the mean, %u elements of a state are not close", largest,
           (unsigned)outliers);
    tuner_close(&full);
    tuner_close(&small);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    base = fixture_folder();
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return 1;
    adapt_write_base(context, base);
    T_RUN(test_paged_8bit_learns_as_32bit_does);
    T_RUN(test_8bit_is_within_the_published_tolerance);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
