/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_train_storm.c - optimizers that are used at random, on devices with little room, with
 * calls, allocations and system calls that fail: after each failure things are as it is
 * written, and all go on with the bits of the plain loops.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"
#include "tests/vacant.h"

#define TURNS 24u
#define GROUPS 3u

static const char *folder;

/* What a parameter was when states were saved. */
typedef struct kept {
    void *values;
    float *master;
    void *state[3];
    uint64_t step;
} kept;

typedef struct storm {
    trained t;
    float *sums[TRAINED_MAX]; /* what has been added up */
    bool has_sum[TRAINED_MAX];
    kept saved[TRAINED_MAX];
    bool is_saved;
    uint64_t step; /* that the optimizer counts, and did when it was saved */
    uint64_t saved_step;
    uint64_t failures;
    uint64_t torn;
} storm;

static const char *
path_of(void)
{
    return fixture_format("%s/storm.safetensors", folder);
}

static uint64_t
bytes_of_value(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ----------------------------------------------------------------------- failures */

static void
arm(storm *s)
{
    const uint64_t kind = trained_random(&s->t, 5);

    if (kind < BERTHI_FAULT_KIND_COUNT)
        berthi_fault_arm((berthi_fault_kind)kind, trained_random(&s->t, 60),
                         trained_random(&s->t, 4) == 0);
}

/* Whether what was armed failed, before it is put aside. */
static bool
disarm(void)
{
    bool has_failed = false;

    for (int kind = 0; kind < BERTHI_FAULT_KIND_COUNT; kind++)
        has_failed |= berthi_fault_failures((berthi_fault_kind)kind) > 0;
    berthi_fault_disarm();
    return has_failed;
}

/* A status that may be: what is not OK has a reason. */
static void
check_status(storm *s, const char *what, berth_status status, bool has_failed,
             const berth_error *error)
{
    s->failures += status != BERTH_OK;
    if (!CHECK(status == BERTH_OK || has_failed || status == BERTH_ENOFIT))
        T_NOTE("%s: %s", what, error->message);
    if (status != BERTH_OK)
        CHECK(error->message[0] != '\0');
}

/* --------------------------------------------------------------------- what is kept */

static void
keep(void **out, const void *from, uint64_t bytes)
{
    free(*out);
    *out = NULL;
    if (from == NULL)
        return;
    *out = malloc(bytes);
    memcpy(*out, from, bytes);
}

static uint64_t
state_bytes(const trained_twin *twin, uint32_t k, uint64_t count)
{
    return twin->state[k].values != NULL ? count * 4 : count + (count / 256 + 1) * 4;
}

static void
keep_states(storm *s)
{
    for (uint32_t i = 0; i < s->t.count; i++) {
        const uint64_t count = s->t.parameters[i].count;
        trained_twin *const twin = &s->t.twins[i];
        kept *const to = &s->saved[i];

        keep(&to->values, twin->expected, count * bytes_of_value(s->t.parameters[i].dtype));
        keep((void **)&to->master, twin->master, count * 4);
        for (uint32_t k = 0; k < 3; k++) {
            free(to->state[k]);
            to->state[k] = NULL;
            if (twin->state[k].values == NULL && twin->state[k].codes == NULL)
                continue;
            to->state[k] = malloc(state_bytes(twin, k, count));
            if (twin->state[k].values != NULL) {
                memcpy(to->state[k], twin->state[k].values, count * 4);
            } else {
                memcpy(to->state[k], twin->state[k].absmax, (count / 256 + 1) * 4);
                memcpy((uint8_t *)to->state[k] + (count / 256 + 1) * 4, twin->state[k].codes,
                       count);
            }
        }
        to->step = twin->step;
    }
    s->is_saved = true;
    s->saved_step = s->step;
}

static void
take_states_back(storm *s)
{
    for (uint32_t i = 0; i < s->t.count; i++) {
        const uint64_t count = s->t.parameters[i].count;
        trained_twin *const twin = &s->t.twins[i];
        const kept *const from = &s->saved[i];

        memcpy(twin->expected, from->values,
               count * bytes_of_value(s->t.parameters[i].dtype));
        if (twin->master != NULL)
            memcpy(twin->master, from->master, count * 4);
        for (uint32_t k = 0; k < 3; k++) {
            if (twin->state[k].values != NULL) {
                memcpy(twin->state[k].values, from->state[k], count * 4);
            } else if (twin->state[k].codes != NULL) {
                memcpy(twin->state[k].absmax, from->state[k], (count / 256 + 1) * 4);
                memcpy(twin->state[k].codes,
                       (uint8_t *)from->state[k] + (count / 256 + 1) * 4, count);
            }
        }
        twin->step = from->step;
    }
    s->step = s->saved_step;
}

static void
forget_sums(storm *s)
{
    memset(s->has_sum, 0, sizeof s->has_sum);
}

/* -------------------------------------------------------------------------- what is done */

static void
do_save(storm *s)
{
    berth_error error;
    berth_status status;

    arm(s);
    status = berth_optimizer_save(s->t.optimizer, path_of(), 1, &error);
    check_status(s, "save", status, disarm(), &error);
    /* Then the file has its name already. */
    if (status == BERTH_OK || strcmp(error.message, "flushing the folder failed") == 0)
        keep_states(s);
}

/* True when it is loaded; torn otherwise, or as before. */
static bool
load(storm *s, bool can_fail)
{
    berth_error error;
    berth_status status;

    if (can_fail)
        arm(s);
    status = berth_optimizer_load(s->t.optimizer, path_of(), &error);
    check_status(s, "load", status, disarm(), &error);
    if (status != BERTH_OK)
        return false;
    take_states_back(s);
    trained_put_values(&s->t);
    forget_sums(s);
    return true;
}

static bool
is_torn(storm *s)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_error error;
    berth_status status;

    trained_gradients(&s->t, 0, gradients);
    status = berth_optimizer_step(s->t.optimizer, gradients, NULL, &error);
    CHECK(status == BERTH_OK || status == BERTH_EINVAL || status == BERTH_ENOFIT);
    s->step += status == BERTH_OK;
    return status == BERTH_EINVAL;
}

static void
do_load(storm *s)
{
    if (!s->is_saved)
        return;
    if (load(s, true))
        return;
    if (is_torn(s)) {
        s->torn++;
        CHECK(load(s, false));
    }
}

/* Sums in place of gradients, while something is expected. */
static void
expect_sums(storm *s, uint32_t mask, float scale)
{
    void *own[TRAINED_MAX];
    int32_t dtypes[TRAINED_MAX];

    for (uint32_t i = 0; i < s->t.count; i++) {
        own[i] = s->t.twins[i].host_gradient;
        dtypes[i] = s->t.parameters[i].gradient_dtype;
        s->t.twins[i].host_gradient = s->sums[i];
        s->t.parameters[i].gradient_dtype = BERTH_F32;
    }
    trained_expect(&s->t, mask, scale);
    for (uint32_t i = 0; i < s->t.count; i++) {
        s->t.twins[i].host_gradient = own[i];
        s->t.parameters[i].gradient_dtype = dtypes[i];
    }
}

/* Those that a step is to update, by its gradients or by sums. */
static uint32_t
due_of(const storm *s, uint32_t mask, bool is_sum)
{
    uint32_t due = is_sum ? 0 : mask;

    for (uint32_t i = 0; i < s->t.count && is_sum; i++)
        due |= (s->has_sum[i] ? 1u : 0u) << i;
    return due;
}

static uint32_t
count_bits(uint32_t mask)
{
    uint32_t count = 0;

    for (; mask != 0; mask >>= 1)
        count += mask & 1u;
    return count;
}

/* False: it is torn. */
static bool
do_step(storm *s)
{
    const bool is_sum = trained_random(&s->t, 3) == 0;
    const bool has_report = trained_random(&s->t, 4) != 0;
    const uint32_t mask = (uint32_t)trained_random(&s->t, 1u << s->t.count);
    const uint32_t due = due_of(s, mask, is_sum);
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;
    berth_step_report report = { .clip = 1.0f };
    berth_error error;
    berth_status status;

    trained_draw(&s->t, mask, trained_random(&s->t, 3) == 0);
    trained_gradients(&s->t, mask, gradients);
    berth_step_options_init(&options);
    options.scale = trained_random(&s->t, 2) == 0 ? 1.0f : 0.25f;
    if (has_report) {
        options.report = &report;
        options.max_norm = trained_random(&s->t, 2) == 0 ? 0.0f : 1.5f;
        options.skips_non_finite = trained_random(&s->t, 3) == 0;
        arm(s);
    }
    status = berth_optimizer_step(s->t.optimizer, is_sum ? NULL : gradients, &options, &error);
    check_status(s, "step", status, disarm(), &error);
    if (!has_report && status != BERTH_OK)
        return !is_torn(s);
    if (has_report)
        CHECK_EQ(report.step, s->step + 1);
    if (report.is_skipped) {
        CHECK_EQ(report.updated, 0);
        if (is_sum)
            forget_sums(s);
        return true;
    }
    if (status != BERTH_OK && report.updated == 0)
        return true;
    if (has_report)
        CHECK_EQ(report.updated, count_bits(due));
    if (is_sum && status != BERTH_OK)
        forget_sums(s);
    if (status != BERTH_OK) {
        CHECK(is_torn(s));
        return false;
    }
    s->step++;
    if (is_sum)
        expect_sums(s, due, options.scale * report.clip);
    else
        trained_expect(&s->t, due, options.scale * report.clip);
    if (is_sum)
        forget_sums(s);
    return true;
}

static void
do_add(storm *s)
{
    const uint32_t mask = (uint32_t)trained_random(&s->t, 1u << s->t.count);
    berth_gradient gradients[TRAINED_MAX];
    berth_error error;
    berth_status status;

    trained_draw(&s->t, mask, false);
    trained_gradients(&s->t, mask, gradients);
    arm(s);
    status = berth_optimizer_accumulate(s->t.optimizer, gradients, NULL, &error);
    check_status(s, "accumulate", status, disarm(), &error);
    if (status != BERTH_OK) {
        forget_sums(s);
        return;
    }
    for (uint32_t i = 0; i < s->t.count; i++) {
        const trained_parameter *const p = &s->t.parameters[i];

        if ((mask >> i & 1u) == 0)
            continue;
        if (!s->has_sum[i])
            memset(s->sums[i], 0, p->count * 4);
        s->has_sum[i] = true;
        for (uint64_t k = 0; k < p->count; k++)
            s->sums[i][k] += berthi_core_load(s->t.twins[i].host_gradient, p->gradient_dtype, k);
    }
}

static void
do_move(storm *s)
{
    const uint64_t parameter = trained_random(&s->t, s->t.count);
    const int32_t place = (int32_t)trained_random(&s->t, BERTH_STATES_PLACE_COUNT);
    berth_parameter_state before;
    berth_parameter_state after;
    berth_error error;
    berth_status status;

    CHECK_EQ(berth_optimizer_get(s->t.optimizer, parameter, &before), BERTH_OK);
    arm(s);
    status = berth_optimizer_move(s->t.optimizer, parameter, place, &error);
    check_status(s, "move", status, disarm(), &error);
    CHECK_EQ(berth_optimizer_get(s->t.optimizer, parameter, &after), BERTH_OK);
    CHECK_EQ(after.place, status == BERTH_OK ? place : before.place);
}

static void
do_make_room(storm *s)
{
    uint64_t bytes = 0;
    berth_error error;
    berth_status status;

    arm(s);
    status = berth_optimizer_make_room(s->t.optimizer, 0, trained_random(&s->t, 100000), &bytes,
                                       &error);
    check_status(s, "make_room", status, disarm(), &error);
}

static void
do_set_group(storm *s)
{
    const uint32_t number = (uint32_t)trained_random(&s->t, GROUPS);
    berth_optimizer_group g = s->t.groups[number];

    g.rate *= 0.5f;
    g.decay = trained_random(&s->t, 2) == 0 ? 0.0f : 0.02f;
    g.is_coupled = (int32_t)trained_random(&s->t, 2);
    g.beta1 = 0.8f;
    CHECK_EQ(berth_optimizer_set_group(s->t.optimizer, number, &g, NULL), BERTH_OK);
    s->t.groups[number] = g;
}

/* False: it cannot go on. */
static bool
do_something(storm *s)
{
    bool is_whole = true;

    switch (trained_random(&s->t, 10)) {
    case 0: do_save(s); break;
    case 1: do_load(s); break;
    case 2: do_add(s); break;
    case 3: do_move(s); break;
    case 4: do_make_room(s); break;
    case 5: do_set_group(s); break;
    default: is_whole = do_step(s); break;
    }
    if (is_whole)
        return true;
    s->torn++;
    return s->is_saved && load(s, false);
}

/* ----------------------------------------------------------------------------- runs */

static const char *const machines[] = {
    "sim:256MiB,h2d=1GB/s,d2h=2GB/s,pick=random,touch=random,backing=sealed",
    "sim:56MiB,h2d=2GB/s,d2h=1GB/s,pick=last,touch=begin",
    "sim:56MiB,h2d=1GB/s,d2h=1GB/s,pin=0B;sim:56MiB,h2d=1GB/s,d2h=1GB/s,pick=random",
};

static void
choose(trained *random, uint32_t devices, trained_parameter *p)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

    p->count = 1 + trained_random(random, trained_random(random, 3) == 0 ? 14000 : 5000);
    p->dtype = dtypes[trained_random(random, 3)];
    p->gradient_dtype = dtypes[trained_random(random, 3)];
    p->group = (uint32_t)trained_random(random, GROUPS);
    p->device = (uint32_t)trained_random(random, devices);
}

static void
finish(storm *s)
{
    trained_close(&s->t);
    for (uint32_t i = 0; i < TRAINED_MAX; i++) {
        free(s->sums[i]);
        free(s->saved[i].values);
        free(s->saved[i].master);
        for (uint32_t k = 0; k < 3; k++)
            free(s->saved[i].state[k]);
    }
}

static void
run(berth_context *context, uint64_t seed, storm *s)
{
    trained random = { .random = seed + 987654321 };
    const uint64_t machine = trained_random(&random, sizeof machines / sizeof *machines);
    const uint32_t count = 1 + (uint32_t)trained_random(&random, 6);
    berth_optimizer_group groups[GROUPS];
    trained_parameter parameters[TRAINED_MAX];
    berth_optimizer_options options;

    for (uint32_t i = 0; i < GROUPS; i++) {
        groups[i] = trained_group((int32_t)trained_random(&random, 7),
                                  trained_random(&random, 3) == 0 ? 32 : 8,
                                  BERTH_STATES_HOST + (int32_t)trained_random(&random, 2));
        groups[i].has_master = trained_random(&random, 3) == 0;
    }
    for (uint32_t i = 0; i < count; i++)
        choose(&random, machine == 2 ? 2 : 1, &parameters[i]);
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.slots = 1 + (uint32_t)trained_random(&random, 3);
    options.page_elements = 4096;
    options.accumulates = 1;
    if (trained_open(&s->t, context, &(trained_options){ .devices = machines[machine],
                                                         .groups = groups,
                                                         .group_count = GROUPS,
                                                         .parameters = parameters,
                                                         .count = count,
                                                         .optimizer = &options,
                                                         .seed = seed })) {
        for (uint32_t i = 0; i < count; i++)
            s->sums[i] = calloc(parameters[i].count, 4);
        for (uint32_t i = 0; i < TURNS && do_something(s); i++)
            if (i % 4 == 3)
                trained_check(&s->t);
    }
    finish(s);
    vacant_check_memory(context);
}

static void
test_random_use(void)
{
    const uint32_t runs = getenv("T_THOROUGH") != NULL ? 3000 : T_IS_SANITIZED ? 30 : 120;
    berth_context *context;
    uint64_t failures = 0;
    uint64_t torn = 0;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    fixture_write(path_of(), "", 0); /* whatever a save makes replaces something */
    for (uint32_t i = 0; i < runs; i++) {
        storm s = { .step = 0 };

        run(context, i, &s);
        failures += s.failures;
        torn += s.torn;
    }
    CHECK_GT(failures, runs / 2);
    CHECK_GT(torn, runs / 20);
    T_NOTE("%u runs, %u calls failed, %u steps and loads were torn", runs, (unsigned)failures,
           (unsigned)torn);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_random_use);
    T_MAIN_END;
}
