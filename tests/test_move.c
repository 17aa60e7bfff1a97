/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_move.c - models that sleep, wake, move to other plans and take turns: every byte
 * afterwards, on its tier and in its slot, and every byte of memory.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/passed.h"
#include "tests/t.h"

#define LAYERS 6u
#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)

/* Where threads are watched, the second sleep of a model meets those of the first. */
#define ROUNDS (T_HAS_THREADS_WATCHED ? 1u : 2u)

/* Layers in two files, made once: no test changes them. */
static const char *
large(void)
{
    static const char *folder;

    if (folder == NULL)
        folder = loaded_large(LAYERS, 2);
    return folder;
}

/* Slabs as planned, of tiers of one kind. */
static uint64_t
planned_bytes(const berth_plan *plan, int32_t kind)
{
    berth_plan_summary summary;
    uint64_t bytes = 0;

    berth_plan_get(plan, &summary);
    for (uint32_t t = 0; t < summary.tier_count; t++) {
        berth_plan_tier tier;

        CHECK_EQ(berth_plan_get_tier(plan, t, &tier), BERTH_OK);
        if (tier.kind == kind)
            bytes += tier.weights + tier.slots + tier.expert_slots + tier.scratch;
    }
    return bytes;
}

static uint64_t
planned_weights(const berth_plan *plan, int32_t kind)
{
    berth_plan_summary summary;
    uint64_t bytes = 0;

    berth_plan_get(plan, &summary);
    for (uint32_t t = 0; t < summary.tier_count; t++) {
        berth_plan_tier tier;

        CHECK_EQ(berth_plan_get_tier(plan, t, &tier), BERTH_OK);
        if (tier.kind == kind)
            bytes += tier.weights;
    }
    return bytes;
}

/* ----------------------------------------------------------------------------- sleep */

typedef struct machine {
    const char *memory;
    const char *words;
    int32_t type;
} machine;

static const machine machines[] = {
    {"0=64MiB,cpu=64MiB", "sim:64MiB,backing=sealed", BERTH_ENCODING_NATIVE},
    {"0=64MiB,cpu=64MiB", "cpu", BERTH_ENCODING_NF4},
    {"0=32MiB,cpu=64MiB", "sim:32MiB,h2d=5GB/s,clock=real", BERTH_ENCODING_NATIVE},
    {"0=32MiB,cpu=2MiB,disk=inf", "sim:32MiB", BERTH_ENCODING_NATIVE},
    {"0=22MiB,1=22MiB,cpu=64MiB", "sim:22MiB,backing=sealed;sim:22MiB,backing=sealed",
     BERTH_ENCODING_NATIVE},
    {"0=12MiB,1=12MiB,2=12MiB,3=12MiB,4=12MiB,5=12MiB,6=12MiB,7=12MiB,cpu=64MiB",
     "sim:12MiB*8", BERTH_ENCODING_NATIVE},
    {"cpu=32MiB,disk=inf", NULL, BERTH_ENCODING_NATIVE},
    {"cpu=64MiB", NULL, BERTH_ENCODING_NF4},
};

#define MACHINES (sizeof machines / sizeof machines[0])

/* What the plan has in host memory has stayed there. */
static void
check_places(const moved *m)
{
    for (uint64_t i = 0; i < m->l.p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        berth_plan_tier tier;

        CHECK_EQ(berth_model_get_tensor(m->l.model, i, &tensor), BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(m->l.p.plan, tensor.tier, &tier), BERTH_OK);
        CHECK_EQ(tensor.parts[0].memory != NULL,
                 tier.kind == BERTH_TIER_CPU && tensor.is_resident);
        CHECK_EQ(berth_model_get_host(m->l.model, i, &tensor),
                 tier.kind == BERTH_TIER_CPU ? BERTH_OK : BERTH_ENOENT);
    }
}

static void
check_asleep(moved *m, bool discards)
{
    const uint32_t count = m->l.devices != NULL ? berth_devices_count(m->l.devices) : 0;
    const uint64_t on_host = planned_bytes(m->l.p.plan, BERTH_TIER_CPU);
    berth_model_tensor tensor;
    berth_error error;
    uint32_t crc;

    CHECK_EQ(berth_model_get_state(m->l.model), BERTH_MODEL_ASLEEP);
    CHECK_EQ(berth_layer_acquire(m->l.model, 0, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_EQ(berth_layer_release(m->l.model, 0, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_EQ(berth_model_digest(m->l.model, 0, &crc, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_EQ(berth_model_get_tensor(m->l.model, 0, &tensor), BERTH_OK);
    if (!discards) {
        CHECK_EQ(m->report.slab_bytes, on_host);
        CHECK_EQ(m->report.carried_bytes,
                 planned_weights(m->l.p.plan, BERTH_TIER_GPU));
        check_places(m);
        CHECK_GE(m->report.held_bytes, m->report.carried_bytes);
        CHECK_LT(m->report.held_bytes, m->report.carried_bytes + count * 4 * KIB + 1);
    }
    CHECK_EQ(m->report.read_bytes, 0);
    CHECK_EQ(moved_sleep(m), BERTH_EINVAL);
    CHECK_EQ(m->error.reason, BERTH_REASON_ASLEEP);
}

/* What a job tells it has to do. */
static int
note_total(void *user, const berth_progress *progress)
{
    *(uint64_t *)user = progress->total;
    return 0;
}

static void
sleep_and_wake(const machine *a, bool discards)
{
    uint64_t total = 0;
    const char *const folder = large();
    berth_plan_options options = loaded_options(a->memory);
    berth_lease_summary before;
    berth_lease_summary after;
    moved m;

    options.type = a->type;
    options.double_quant = a->type == BERTH_ENCODING_NF4;
    moved_begin(&m, folder, &options, a->words);
    m.options.discards = discards;
    m.options.progress = note_total;
    m.options.progress_user = &total;
    CHECK_EQ(moved_wake(&m), BERTH_EINVAL);
    CHECK(strstr(m.error.message, "is awake") != NULL);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        berth_model_leases(m.l.model, &before);
        if (!moved_is_ok(&m, moved_sleep(&m)))
            break;
        CHECK_EQ(total, m.report.carried_bytes);
        check_asleep(&m, discards);
        berth_model_leases(m.l.model, &after);
        CHECK_EQ(before.acquired, after.acquired);
        if (!moved_is_ok(&m, moved_wake(&m)))
            break;
        if (!discards) /* what is read is not rounded up */
            CHECK_EQ(total, m.report.carried_bytes);
        CHECK_EQ(m.report.slab_bytes, planned_bytes(m.l.p.plan, BERTH_TIER_GPU)
                                          + planned_bytes(m.l.p.plan, BERTH_TIER_CPU));
        CHECK_EQ(m.report.held_bytes, 0);
        if (discards && a->type == BERTH_ENCODING_NATIVE)
            CHECK_EQ(m.report.carried_bytes, 0);
        else if (!discards)
            CHECK_EQ(m.report.read_bytes, 0);
        CHECK_EQ(moved_used(&m), m.memory);
        moved_check(&m);
        CHECK_EQ(passed(&m.l, 2), m.looked);
    }
    moved_end(&m);
}

static void
test_sleep(void)
{
    for (uint32_t i = 0; i < MACHINES; i++)
        sleep_and_wake(&machines[i], false);
}

static void
test_sleep_without_what_is_stored(void)
{
    for (uint32_t i = 0; i < MACHINES; i++)
        sleep_and_wake(&machines[i], true);
}

/* Host memory of which no file has anything is kept as it is: a hold would gain nothing. */
static void
test_sleep_of_what_no_file_has(void)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    moved m;

    options.dtype = BERTH_F32; /* stored as BF16 */
    moved_begin(&m, loaded_llama(2, "BF16", 1), &options, NULL);
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(m.report.carried_bytes, 0);
    CHECK_EQ(m.report.held_bytes, 0);
    CHECK_EQ(m.report.slab_bytes, planned_bytes(m.l.p.plan, BERTH_TIER_CPU));
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_EQ(m.report.carried_bytes, 0);
    CHECK_EQ(m.report.read_bytes, 0);
    moved_check(&m);
    moved_end(&m);
}

static void
test_sleep_to_its_end(void)
{
    berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB");
    moved m;

    moved_begin(&m, loaded_large(LAYERS, 1), &options, "sim:32MiB");
    CHECK_LT(moved_free(&m, 0), 32 * MIB);
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(moved_free(&m, 0), 32 * MIB);
    CHECK_GE(moved_used(&m), m.report.held_bytes);
    moved_end(&m); /* checks that nothing is left */
}

/* ------------------------------------------------------------------------------ move */

/* The model has this plan: its tensors lie where it says. */
static void
check_plan(moved *m, const berth_plan *plan)
{
    moved_check(m);
    for (uint64_t i = 0; i < m->l.p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        berth_berth berth;

        CHECK_EQ(berth_model_get_tensor(m->l.model, i, &tensor), BERTH_OK);
        CHECK_EQ(berth_plan_get_berth(plan, i, &berth, NULL, 0), BERTH_OK);
        CHECK_EQ(tensor.tier, berth.tier);
        CHECK_EQ(tensor.tensor, berth.tensor);
    }
    CHECK_EQ(m->report.slab_bytes, planned_bytes(plan, BERTH_TIER_GPU)
                                       + planned_bytes(plan, BERTH_TIER_CPU));
    CHECK_EQ(m->report.held_bytes, 0);
}

/* Passes read the plan that the model has. */
static void
pass_with(moved *m, berth_plan *plan)
{
    berth_plan *const first = m->l.p.plan;

    m->l.p.plan = plan;
    CHECK_GT(passed(&m->l, 2), LAYERS * 10);
    m->l.p.plan = first;
}

static void
test_promote_and_demote(void)
{
    static const char *const pins[] = {"model.layers.2=cpu", "model.layers.4=cpu"};
    berth_plan_options options = loaded_options("0=96MiB,cpu=96MiB");
    berth_plan *demoted;
    berth_plan *same;
    moved m;

    moved_begin(&m, large(), &options, "sim:256MiB");
    options.finding = NULL;
    same = moved_plan(&m, &options);
    options.pins = pins;
    options.pin_count = 2;
    demoted = moved_plan(&m, &options);
    for (uint32_t round = 0; round < 2; round++) {
        if (moved_is_ok(&m, moved_move(&m, demoted)))
            check_plan(&m, demoted);
        CHECK_EQ(m.report.read_bytes, 0);
        pass_with(&m, demoted);
        CHECK_GT(moved_free(&m, 0) + planned_bytes(demoted, BERTH_TIER_GPU),
                 253 * MIB);
        if (moved_is_ok(&m, moved_move(&m, same)))
            check_plan(&m, same);
        CHECK_EQ(m.report.read_bytes, 0);
        pass_with(&m, same);
    }
    /* Nothing is carried to where it is. */
    CHECK_EQ(moved_move(&m, m.l.p.plan), BERTH_OK);
    CHECK_EQ(m.report.carried_bytes, 0);
    check_plan(&m, m.l.p.plan);
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

/* The device holds one slab, never two: through host memory. */
static void
test_move_where_there_is_no_room(void)
{
    berth_plan_options options = loaded_options("0=32MiB,cpu=96MiB");
    berth_plan *smaller;
    moved m;

    moved_begin(&m, large(), &options, "sim:32MiB,h2d=5GB/s");
    options.max_memory = "0=30MiB,cpu=96MiB";
    options.finding = NULL;
    smaller = moved_plan(&m, &options);
    CHECK_GT(planned_bytes(smaller, BERTH_TIER_GPU), 16 * MIB);
    for (uint32_t round = 0; round < 2; round++) {
        if (moved_is_ok(&m, moved_move(&m, smaller)))
            check_plan(&m, smaller);
        pass_with(&m, smaller);
        if (moved_is_ok(&m, moved_move(&m, m.l.p.plan)))
            check_plan(&m, m.l.p.plan);
        CHECK_EQ(passed(&m.l, 1), m.looked);
    }
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

static void
test_move_to_the_disk_and_back(void)
{
    berth_plan_options options = loaded_options("0=32MiB,cpu=96MiB,disk=inf");
    berth_plan *low;
    moved m;

    moved_begin(&m, large(), &options, "sim:96MiB");
    options.max_memory = "0=32MiB,cpu=2MiB,disk=inf";
    options.finding = NULL;
    low = moved_plan(&m, &options);
    if (moved_is_ok(&m, moved_move(&m, low)))
        check_plan(&m, low);
    CHECK_EQ(m.report.read_bytes, 0);
    pass_with(&m, low);
    if (moved_is_ok(&m, moved_move(&m, m.l.p.plan)))
        check_plan(&m, m.l.p.plan);
    CHECK_GT(m.report.read_bytes, 20 * MIB);
    CHECK_EQ(passed(&m.l, 1), m.looked);
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

/* Layers change devices; a tier comes and goes. Less than `seconds` of the clock. */
static void
move_between(const char *words, double seconds)
{
    static const char *const pins[] = {"model.layers.0-2=cuda:1",
                                       "model.layers.3-5=cuda:0"};
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB");
    berth_plan *crossed;
    double begin;
    moved m;

    moved_begin(&m, large(), &options, words);
    options.finding = NULL;
    options.max_memory = "0=64MiB,1=64MiB,cpu=64MiB";
    options.pins = pins;
    options.pin_count = 2;
    crossed = moved_plan(&m, &options);
    for (uint32_t round = 0; round < 2; round++) {
        begin = berth_devices_seconds(m.l.devices);
        if (moved_is_ok(&m, moved_move(&m, crossed)))
            check_plan(&m, crossed);
        CHECK(berth_devices_seconds(m.l.devices) - begin < seconds);
        CHECK_GT(m.report.carried_bytes, 27 * MIB);
        pass_with(&m, crossed);
        if (moved_is_ok(&m, moved_move(&m, m.l.p.plan)))
            check_plan(&m, m.l.p.plan);
        CHECK_EQ(passed(&m.l, 1), m.looked);
    }
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

static void
test_move_between_devices(void)
{
    move_between("sim:128MiB;sim:128MiB", 10);
    /* 27 seconds by way of the host. */
    move_between("sim:128MiB,h2d=20GB/s,d2h=1MB/s,peers=50GB/s,backing=sealed*2", 2);
    move_between("sim:128MiB,jitter=100%,peers=50GB/s,backing=sealed,clock=real,"
                 "pick=random*2",
                 20);
}

/* ------------------------------------------------------------------------------ swap */

/* A plan that leaves the first device out is computed by the second one. */
static void
test_move_from_a_device(void)
{
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB");
    static const char *const pins[] = {"model.layers.0-2=cuda:0", "model.layers.3-5=cuda:1"};
    berth_plan *alone;
    uint64_t before;
    moved m;

    options.pins = pins;
    options.pin_count = 2;
    moved_begin(&m, large(), &options, "sim:128MiB*2");
    before = moved_free(&m, 1);
    options.finding = NULL;
    options.pin_count = 0;
    options.max_memory = "1=128MiB,cpu=64MiB";
    alone = moved_plan(&m, &options);
    for (uint32_t round = 0; round < 2; round++) {
        berth_model_tensor tensor;

        if (moved_is_ok(&m, moved_move(&m, alone)))
            check_plan(&m, alone);
        CHECK_EQ(moved_free(&m, 0), 128 * MIB);
        CHECK_LT(moved_free(&m, 1), before);
        CHECK_EQ(berth_model_get_tensor(m.l.model, 2, &tensor), BERTH_OK);
        CHECK_EQ(tensor.device, 1);
        if (moved_is_ok(&m, moved_move(&m, m.l.p.plan)))
            check_plan(&m, m.l.p.plan);
        CHECK_EQ(moved_free(&m, 1), before);
        CHECK_EQ(passed(&m.l, 1), m.looked);
    }
    /* One that it was not loaded onto. */
    options.max_memory = "2=128MiB,cpu=64MiB";
    CHECK_EQ(moved_move(&m, moved_plan(&m, &options)), BERTH_EINVAL);
    CHECK_CONTAINS(m.error.message, "has cuda:2, which the model was not loaded onto");
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

static void
test_swap(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    berth_plan_options options = loaded_options("0=6MiB,cpu=64MiB");
    berth_load_options load;
    berth_model *models[2] = {NULL, NULL};
    uint64_t peak = 0;
    uint64_t total = 0;
    uint32_t crc;
    moved m;

    moved_begin(&m, folder, &options, "sim:6MiB");
    models[0] = m.l.model;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    berth_load_options_init(&load);
    load.devices = m.l.devices;
    {
        berth_job *job;

        CHECK_EQ(berth_load_start(m.l.p.context, m.l.p.checkpoint, m.l.p.plan, &load,
                                  &job, NULL),
                 BERTH_OK);
        CHECK_EQ(berth_load_finish(job, &models[1], NULL), BERTH_OK);
    }
    T_REQUIRE(models[1] != NULL);
    m.options.progress = note_total;
    m.options.progress_user = &total;
    for (uint32_t round = 0; round < (T_IS_SANITIZED ? 20 : 100); round++) {
        berth_model *const awake = models[(round + 1) % 2];
        berth_model *const asleep = models[round % 2];
        berth_job *job;
        berth_status status =
            berth_model_swap_start(awake, asleep, &m.options, &job, &m.error);

        if (!moved_is_ok(&m, moved_finish(&m, status, job)))
            break;
        CHECK_EQ(total, m.report.carried_bytes); /* one out, one in */
        CHECK_EQ(berth_model_get_state(awake), BERTH_MODEL_ASLEEP);
        CHECK_EQ(berth_model_get_state(asleep), BERTH_MODEL_AWAKE);
        if (round == 1)
            peak = moved_used(&m);
        if (round > 1)
            CHECK_EQ(moved_used(&m), peak);
        for (uint64_t i = 0; i < m.l.p.summary.berth_count; i += 3) {
            CHECK_EQ(berth_model_digest(asleep, i, &crc, NULL), BERTH_OK);
            CHECK_EQ(crc, m.digests[i]);
        }
    }
    CHECK_EQ(berth_model_get_state(models[0]), BERTH_MODEL_ASLEEP);
    CHECK_EQ(berth_model_get_state(models[1]), BERTH_MODEL_AWAKE);
    berth_model_destroy(models[1]);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    moved_check(&m);
    CHECK_EQ(moved_used(&m), m.memory);
    moved_end(&m);
}

/* ---------------------------------------------------------------------------- random */

/* Any operation at any time: the test knows what it has to say. */
static void
test_random(void)
{
    static const char *const memories[] = {"0=32MiB,cpu=96MiB,disk=inf",
                                           "0=28MiB,cpu=96MiB,disk=inf",
                                           "0=32MiB,cpu=20MiB,disk=inf",
                                           "0=30MiB,cpu=2MiB,disk=inf"};
    berth_plan_options options = loaded_options(memories[0]);
    berth_plan *choices[4];
    uint32_t now = 0;
    bool is_asleep = false;
    uint64_t state = 42;
    moved m;

    moved_begin(&m, large(), &options, "sim:40MiB");
    options.finding = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        options.max_memory = memories[i];
        choices[i] = moved_plan(&m, &options);
    }
    for (uint32_t step = 0; step < (T_HAS_THREADS_WATCHED ? 24 : 60); step++) {
        uint32_t choice;

        state = state * 6364136223846793005u + 1442695040888963407u;
        choice = (uint32_t)(state >> 33) % 10;
        m.options.discards = (state >> 40) % 2 == 1;
        if (choice < 3) {
            CHECK_EQ(moved_sleep(&m), is_asleep ? BERTH_EINVAL : BERTH_OK);
            is_asleep = true;
        } else if (choice < 6) {
            CHECK_EQ(moved_wake(&m), is_asleep ? BERTH_OK : BERTH_EINVAL);
            is_asleep = false;
        } else {
            CHECK_EQ(moved_move(&m, choices[choice - 6]),
                     is_asleep ? BERTH_EINVAL : BERTH_OK);
            now = is_asleep ? now : choice - 6;
        }
        if (is_asleep)
            continue;
        moved_check(&m);
        if (step % 8 == 0)
            pass_with(&m, choices[now]);
    }
    if (is_asleep)
        CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_EQ(moved_move(&m, m.l.p.plan), BERTH_OK);
    moved_free_plans();
    CHECK_EQ(moved_used(&m), m.memory);
    CHECK_EQ(passed(&m.l, 1), m.looked);
    moved_end(&m);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_sleep);
    T_RUN(test_sleep_without_what_is_stored);
    T_RUN(test_sleep_of_what_no_file_has);
    T_RUN(test_sleep_to_its_end);
    T_RUN(test_promote_and_demote);
    T_RUN(test_move_where_there_is_no_room);
    T_RUN(test_move_to_the_disk_and_back);
    T_RUN(test_move_between_devices);
    T_RUN(test_move_from_a_device);
    T_RUN(test_swap);
    T_RUN(test_random);
    return t_end();
}
