/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cancel.c - jobs of models that are cancelled at each of their moments: all is as before,
 * or as after, nothing is left, and the same call again does what it should.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "loader/model.h"
#include "tests/cancelled.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/moved.h"
#include "tests/passed.h"
#include "tests/t.h"

#define MOMENTS (T_HAS_THREADS_WATCHED ? 6u : T_IS_SANITIZED ? 12u : 24u)
#define LAYERS  3u

/* -------------------------------------------------------------------------- loads */

typedef struct loading {
    const char *folder;
    const char *loaded; /* what it is compared with */
    const char *max_memory;
    const char *words;
    const char *const *pins;
    uint32_t pin_count;
    int32_t type;
    int32_t verify;
    bool is_offloaded;
} loading;

static void
load_once(const loading *a, cancelled_moments *c, loaded *l)
{
    berth_job *job = NULL;

    l->status = berth_load_start(l->p.context, l->p.checkpoint, l->p.plan, &l->options, &job,
                                 &l->error);
    cancelled_await(c, l->status, job);
    if (l->status == BERTH_OK)
        l->status = berth_load_finish(job, &l->model, &l->error);
    (void)cancelled_check(c, l->status, &l->error);
    CHECK_EQ(l->model != NULL, l->status == BERTH_OK);
    if (l->model != NULL)
        loaded_check(l, a->loaded);
}

/* Descriptors and threads are what they were, and memory to the byte, by loaded_end(). */
static void
check_load(const loading *a, uint64_t seed)
{
    const char *const above = fixture_folder();
    const char *const offload_dir = fixture_format("%s/offloaded", above);
    cancelled_moments c;

    cancelled_begin(&c, MOMENTS, seed);
    while (cancelled_next(&c)) {
        const int fds = fixture_open_fds();
        const uint64_t threads = haul_threads();
        berth_plan_options options = loaded_options(a->max_memory);
        loaded l;

        options.type = a->type;
        options.double_quant = a->type == BERTH_ENCODING_NF4;
        options.pins = a->pins;
        options.pin_count = a->pin_count;
        loaded_begin(&l, a->folder, &options, a->words);
        l.options.verify = a->verify;
        l.options.workers = 2;
        l.options.offload_dir = a->is_offloaded ? offload_dir : NULL;
        load_once(a, &c, &l);
        if (l.model == NULL) { /* as if there had been no other */
            CHECK_EQ(fixture_count(above), 0);
            loaded_load(&l);
            if (CHECK_EQ(l.status, BERTH_OK))
                loaded_check(&l, a->loaded);
        }
        loaded_end(&l);
        CHECK_EQ(fixture_open_fds(), fds);
        CHECK_LE(haul_threads(), threads);
        CHECK_EQ(fixture_count(above), 0);
    }
    cancelled_end(&c);
}

static void
test_loads(void)
{
    static const char *const places[] = { "model.layers.0=cuda:0", "model.layers.1=cpu",
                                          "model.layers.2=disk" };
    const char *const folder = loaded_llama(LAYERS, "BF16", 2);
    berth_plan_options nf4 = loaded_options("cpu=64MiB");
    const char *quantized;

    nf4.type = BERTH_ENCODING_NF4;
    nf4.double_quant = 1;
    quantized = loaded_quantized(folder, &nf4);
    (void)loaded_manifest(folder);
    const loading loads[] = {
        { folder, folder, "cpu=64MiB", NULL, NULL, 0, BERTH_ENCODING_NATIVE,
          BERTH_LOAD_VERIFY_REQUIRE, false },
        { folder, folder, "0=16MiB,cpu=64MiB,disk=inf", "sim:16MiB", places, 3,
          BERTH_ENCODING_NATIVE, BERTH_LOAD_VERIFY_AUTO, false },
        { folder, folder, "0=16MiB,cpu=64MiB,disk=inf", "sim:16MiB,pin=0B,clock=real", places, 3,
          BERTH_ENCODING_NATIVE, BERTH_LOAD_VERIFY_NONE, false },
        { folder, quantized, "0=32MiB,cpu=64MiB,disk=inf", "sim:32MiB,clock=real,h2d=1GB/s",
          places, 3, BERTH_ENCODING_NF4, BERTH_LOAD_VERIFY_AUTO, true },
    };

    for (uint32_t i = 0; i < sizeof loads / sizeof *loads; i++)
        check_load(&loads[i], i + 1);
}

/* -------------------------------------------------------------------------- moves */

/* A model of one plan, which is awake, another one of it that is asleep, and another plan. */
typedef struct scene {
    moved m;
    berth_plan *other_plan;
    berth_model *other;
    const char *above; /* the folder of their files */
} scene;

typedef berth_status (*starter)(scene *s, berth_job **out_job, berth_error *error);

static berth_status
start_sleep(scene *s, berth_job **out_job, berth_error *error)
{
    return berth_model_sleep_start(s->m.l.model, &s->m.options, out_job, error);
}

static berth_status
start_wake(scene *s, berth_job **out_job, berth_error *error)
{
    return berth_model_wake_start(s->m.l.model, &s->m.options, out_job, error);
}

static berth_status
start_move(scene *s, berth_job **out_job, berth_error *error)
{
    return berth_model_move_start(s->m.l.model, s->other_plan, &s->m.options, out_job, error);
}

static berth_status
start_move_back(scene *s, berth_job **out_job, berth_error *error)
{
    return berth_model_move_start(s->m.l.model, s->m.l.p.plan, &s->m.options, out_job, error);
}

static berth_status
start_swap(scene *s, berth_job **out_job, berth_error *error)
{
    return berth_model_swap_start(s->m.l.model, s->other, &s->m.options, out_job, error);
}

/* What a job makes of both models, and what takes that back. */
typedef struct motion {
    starter start;
    starter back;/* NULL: berth_model_swap_start() the other way round */
    bool begins_asleep;
    bool ends_asleep;
    bool begins_moved; /* has the other plan */
    bool ends_moved;
    bool ends_swapped;
} motion;

static berth_status
run(scene *s, starter start)
{
    berth_job *job;
    const berth_status status = start(s, &job, &s->m.error);

    return moved_finish(&s->m, status, job);
}

/* Both models: which plan, asleep or not, with all their bytes where they can be asked for. */
static void
check_state(scene *s, bool is_asleep, bool has_moved, bool is_swapped)
{
    const berth_model *const model = s->m.l.model;

    CHECK(model->plan == (has_moved ? s->other_plan : s->m.l.p.plan));
    CHECK_EQ(berth_model_get_state(model), is_asleep ? BERTH_MODEL_ASLEEP : BERTH_MODEL_AWAKE);
    CHECK_EQ(berth_model_get_state(s->other),
             is_swapped ? BERTH_MODEL_AWAKE : BERTH_MODEL_ASLEEP);
    CHECK_EQ(atomic_load(&model->gate) & ~BERTHI_MODEL_ASLEEP, 0);
    CHECK_EQ(atomic_load(&model->stranded), 0);
    if (is_asleep || is_swapped)
        return;
    moved_check(&s->m);
    if (!has_moved)
        CHECK_EQ(passed(&s->m.l, 1), s->m.looked);
}

static void
swap_back(scene *s)
{
    berth_job *job;
    const berth_status status =
        berth_model_swap_start(s->other, s->m.l.model, &s->m.options, &job, &s->m.error);

    moved_is_ok(&s->m, moved_finish(&s->m, status, job));
}

/* What such a state takes of host memory, and leaves of the device's. */
typedef struct account {
    bool is_known;
    uint64_t used;
    uint64_t free;
} account;

static void
check_memory(const scene *s, account *known)
{
    const account now = { true, moved_used(&s->m), moved_free(&s->m, 0) };

    if (!known->is_known)
        *known = now;
    CHECK_EQ(now.used, known->used);
    CHECK_EQ(now.free, known->free);
}

static void
check_motion(scene *s, const motion *m, uint64_t seed)
{
    account before = { .is_known = false };
    account after = { .is_known = false };
    cancelled_moments c;

    cancelled_begin(&c, MOMENTS, seed);
    while (cancelled_next(&c)) {
        berth_job *job = NULL;
        berth_status status;

        check_memory(s, &before);
        status = m->start(s, &job, &s->m.error);
        cancelled_await(&c, status, job);
        status = moved_finish(&s->m, status, job);
        if (!cancelled_check(&c, status, &s->m.error))
            break;
        if (status != BERTH_OK) {
            check_state(s, m->begins_asleep, m->begins_moved, false);
            check_memory(s, &before);
            moved_is_ok(&s->m, run(s, m->start));
        }
        check_state(s, m->ends_asleep, m->ends_moved, m->ends_swapped);
        check_memory(s, &after);
        if (m->back != NULL)
            moved_is_ok(&s->m, run(s, m->back));
        else
            swap_back(s);
        check_state(s, m->begins_asleep, m->begins_moved, false);
        if (!c.is_watched) /* what sleeps may have had more, or less, the first time */
            before.is_known = false;
    }
    cancelled_end(&c);
}

static void
scene_begin(scene *s, const char *memory, const char *words, const char *const *pins,
            const char *const *other_pins, int32_t type)
{
    berth_plan_options options = loaded_options(memory);
    berth_load_options load;
    berth_job *job;

    memset(s, 0, sizeof *s);
    s->above = fixture_folder();
    options.type = type;
    options.pins = pins;
    options.pin_count = 3;
    moved_begin_with(&s->m, loaded_llama(LAYERS, "BF16", 2), &options, words,
                     fixture_format("%s/offloaded", s->above));
    options.finding = NULL;
    options.pins = other_pins;
    s->other_plan = moved_plan(&s->m, &options);
    moved_is_ok(&s->m, moved_sleep(&s->m));
    berth_load_options_init(&load);
    load.devices = s->m.l.devices;
    load.offload_dir = s->m.l.options.offload_dir;
    CHECK_EQ(berth_load_start(s->m.l.p.context, s->m.l.p.checkpoint, s->m.l.p.plan, &load, &job,
                              NULL),
             BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &s->other, NULL), BERTH_OK);
    if (s->other == NULL)
        abort();
    CHECK_EQ(berth_model_sleep_start(s->other, NULL, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    moved_is_ok(&s->m, moved_wake(&s->m));
}

static void
scene_end(scene *s)
{
    CHECK_EQ(fixture_count(s->above), 0);
    berth_model_destroy(s->other);
    berth_model_destroy(s->m.l.model);
    s->m.l.model = NULL;
    moved_free_plans();
    moved_end(&s->m);
}

/* Sleep with all bytes, and without what the files have; each move both ways. */
static void
check_motions(scene *s)
{
    static const motion motions[] = {
        { .start = start_sleep, .back = start_wake, .ends_asleep = true },
        { .start = start_move, .back = start_move_back, .ends_moved = true },
        { .start = start_swap, .ends_asleep = true, .ends_swapped = true },
    };
    static const motion wake = { .start = start_wake, .back = start_sleep,
                                 .begins_asleep = true };
    static const motion move_back = { .start = start_move_back, .back = start_move,
                                      .begins_moved = true };

    for (uint32_t discards = 0; discards < 2; discards++) {
        s->m.options.discards = (int32_t)discards;
        for (uint32_t i = 0; i < 3; i++)
            if (discards == 0 || motions[i].start != start_move)
                check_motion(s, &motions[i], 10 * discards + i);
        moved_is_ok(&s->m, moved_sleep(&s->m));
        check_motion(s, &wake, 20 + discards);
        moved_is_ok(&s->m, moved_wake(&s->m));
    }
    s->m.options.discards = 0;
    moved_is_ok(&s->m, moved_move(&s->m, s->other_plan));
    check_motion(s, &move_back, 30);
    moved_is_ok(&s->m, moved_move(&s->m, s->m.l.p.plan));
}

static const char *const pins[] = { "model.layers.0=cuda:0", "model.layers.1=cpu",
                                    "model.layers.2=disk" };
static const char *const other_pins[] = { "model.layers.0=disk", "model.layers.1=cuda:0",
                                          "model.layers.2=cpu" };

/* Room for the old slab and the new one; bytes that files have. */
static void
test_moves(void)
{
    scene s;

    scene_begin(&s, "0=6MiB,cpu=64MiB,disk=inf", "sim:24MiB", pins, other_pins,
                BERTH_ENCODING_NATIVE);
    check_motions(&s);
    scene_end(&s);
}

/* Room for one of them; bytes that were encoded, which are written when they go to the disk. */
static void
test_moves_without_room(void)
{
    scene s;

    scene_begin(&s, "0=6MiB,cpu=64MiB,disk=inf", "sim:6MiB,clock=real", pins, other_pins,
                BERTH_ENCODING_NF4);
    check_motions(&s);
    scene_end(&s);
}

/* -------------------------------------------------------------- jobs that read */

/* What such a job is about. */
typedef struct reading {
    loaded l;
    berth_checkpoint *other;
    const char *manifest;
} reading;

typedef berth_status (*reader)(reading *r, berth_job **out_job, berth_error *error);

static berth_status
start_check(reading *r, berth_job **out_job, berth_error *error)
{
    return berth_check_start(r->l.model, NULL, out_job, error);
}

static berth_status
start_diff(reading *r, berth_job **out_job, berth_error *error)
{
    return berth_diff_start(r->l.p.context, r->l.p.checkpoint, r->other, NULL, out_job, error);
}

static berth_status
verify(reading *r, int32_t mode, berth_job **out_job, berth_error *error)
{
    berth_verify_options options;

    berth_verify_options_init(&options);
    options.manifest_mode = mode;
    return berth_verify_start(r->l.p.context, r->l.p.checkpoint, &options, out_job, error);
}

static berth_status
start_writing(reading *r, berth_job **out_job, berth_error *error)
{
    return verify(r, BERTH_MANIFEST_WRITE, out_job, error);
}

static berth_status
start_comparing(reading *r, berth_job **out_job, berth_error *error)
{
    return verify(r, BERTH_MANIFEST_CHECK, out_job, error);
}

static void
run_whole(reading *r, reader start)
{
    berth_job *job;
    berth_status status = start(r, &job, &r->l.error);

    if (status == BERTH_OK)
        status = berth_job_finish(job, &r->l.error);
    if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s", r->l.error.message);
}

/* `writes`: a manifest, which is there or is not. */
static void
check_reading(reading *r, const char *folder, reader start, bool writes, uint64_t seed)
{
    const int files = fixture_count(folder);
    cancelled_moments c;

    cancelled_begin(&c, MOMENTS, seed);
    while (cancelled_next(&c)) {
        const uint64_t bytes = loaded_bytes(r->l.p.context);
        berth_job *job = NULL;
        berth_status status = start(r, &job, &r->l.error);

        cancelled_await(&c, status, job);
        status = berth_job_finish(job, &r->l.error);
        (void)cancelled_check(&c, status, &r->l.error);
        CHECK_EQ(loaded_bytes(r->l.p.context), bytes);
        CHECK_EQ(fixture_count(folder), files + (writes && status == BERTH_OK));
        if (status != BERTH_OK)
            run_whole(r, start);
        if (writes) {
            run_whole(r, start_comparing);
            fixture_remove(r->manifest);
        }
    }
    cancelled_end(&c);
}

static void
test_readers(void)
{
    const char *const folder = loaded_llama(LAYERS, "BF16", 2);
    berth_plan_options options = loaded_options("0=16MiB,cpu=64MiB");
    reading r = { .manifest = fixture_format("%s/berth.manifest.json", folder) };
    const char *quantized;

    options.type = BERTH_ENCODING_NF4;
    quantized = loaded_quantized(folder, &options);
    loaded_begin(&r.l, folder, &options, "sim:16MiB");
    CHECK_EQ(berth_checkpoint_open(r.l.p.context, quantized, NULL, &r.other, NULL), BERTH_OK);
    loaded_load(&r.l);
    T_REQUIRE(CHECK_EQ(r.l.status, BERTH_OK));
    check_reading(&r, folder, start_check, false, 1);
    check_reading(&r, folder, start_diff, false, 2);
    check_reading(&r, folder, start_writing, true, 3);
    berth_checkpoint_close(r.other);
    loaded_end(&r.l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_loads);
    T_RUN(test_readers);
    T_RUN(test_moves);
    T_RUN(test_moves_without_room);
    T_MAIN_END;
}
