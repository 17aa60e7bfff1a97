/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pin_pieces.c - large host memory is pinned piece by piece: all of it or nothing, heard
 * of in between, and copied from as if it were one.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/model.h"
#include "tests/fake_cuda.h"
#include "tests/moved.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB   UINT64_C(1048576)
#define PAGE  UINT64_C(4096)
#define PIECE BERTHI_PIN_PIECE

/* ------------------------------------------------------------------------------ cuts */

static void
test_cuts(void)
{
    static const uint64_t begins[] = { 0, PAGE, PIECE - PAGE, PIECE, 5 * PIECE + 3 * PAGE };
    static const uint64_t sizes[] = { 1, PAGE, PIECE, PIECE + PAGE, 9 * PIECE + 7 * PAGE };

    for (uint32_t i = 0; i < 25; i++) {
        uint64_t at = (64 * PIECE) + begins[i / 5];
        const uint64_t end = at + sizes[i % 5];
        uint32_t count = 0;

        while (at < end) {
            const uint64_t piece = berthi_pin_piece((const void *)(uintptr_t)at, end - at);

            T_REQUIRE(piece > 0 && piece <= PIECE && piece <= end - at);
            at += piece;
            CHECK(at == end || at % PIECE == 0);
            count++;
        }
        if (sizes[i % 5] <= PIECE)
            CHECK_EQ(count, 1); /* also where a border lies in it */
    }
}

/* ---------------------------------------------------------------------------- devices */

/* Memory of which the first piece is one page, and the last one, too. */
typedef struct stretch {
    uint8_t *block;
    uint8_t *memory;
    uint64_t bytes;
} stretch;

static stretch
stretch_alloc(void)
{
    stretch s = { .bytes = PIECE + 2 * PAGE };

    s.block = aligned_alloc((size_t)PIECE, (size_t)(3 * PIECE));
    if (s.block == NULL)
        abort();
    s.memory = s.block + PIECE - PAGE;
    return s;
}

/* Ends it with the `last`th piece. */
typedef struct watched {
    uint32_t pieces;
    uint32_t last;
    uint64_t bytes;
} watched;

static berth_status
note_pinned(void *user, uint64_t bytes, berth_error *error)
{
    watched *const w = user;

    w->bytes += bytes;
    return ++w->pieces == w->last ? berthi_fail_memory(error, "going on") : BERTH_OK;
}

/* True when nothing of it is pinned: a page can be pinned once. */
static bool
is_free(berthi_device *device, const stretch *s)
{
    if (device->table->pin(device, s->memory, s->bytes, NULL) != BERTH_OK)
        return false;
    device->table->unpin(device, s->memory, s->bytes);
    return true;
}

static void
test_all_or_nothing(void)
{
    stretch s = stretch_alloc();
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    for (uint32_t last = 1; last <= 4; last++) {
        watched w = { .last = last };
        const berthi_pin_watch watch = { &w, note_pinned };
        berth_error error;

        CHECK_EQ(berthi_device_pin(r.device, s.memory, s.bytes, &watch, &error),
                 last < 4 ? BERTH_ENOMEM : BERTH_OK);
        CHECK_EQ(w.pieces, last < 4 ? last : 3);
        if (last == 4) {
            CHECK_EQ(w.bytes, s.bytes);
            CHECK(!is_free(r.device, &s));
            berthi_device_unpin(r.device, s.memory, s.bytes);
        }
        CHECK(is_free(r.device, &s));
    }
    for (uint32_t nth = 0; nth < 3; nth++) {
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        CHECK(berthi_device_pin(r.device, s.memory, s.bytes, NULL, NULL) != BERTH_OK);
        berthi_fault_disarm();
        CHECK(is_free(r.device, &s));
    }
    rig_close(&r);
    T_REQUIRE(rig_open(&r, "sim:64MiB,pin=128MiB"));
    CHECK_EQ(berthi_device_pin(r.device, s.memory, s.bytes, NULL, NULL), BERTH_ENOMEM);
    CHECK_EQ(r.device->table->pin(r.device, s.memory, PIECE, NULL), BERTH_OK);
    r.device->table->unpin(r.device, s.memory, PIECE);
    rig_close(&r);
    free(s.block);
}

/* From one piece into the next, to the device and back. */
static void
copy_across(const rig *r, const stretch *s)
{
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = rig_alloc(r->device, 4 * PAGE);
    uint64_t same = 0;

    memset(s->memory, 7, 3 * PAGE);
    rig_to_device(r->device, memory, s->memory, 3 * PAGE, stream);
    rig_sync(r->device, stream);
    memset(s->memory, 1, 3 * PAGE);
    rig_to_host(r->device, s->memory + 1, memory + 1, 2 * PAGE, stream);
    rig_sync(r->device, stream);
    for (uint64_t i = 0; i < 3 * PAGE; i++)
        same += s->memory[i] == (i > 0 && i <= 2 * PAGE ? 7 : 1);
    CHECK_EQ(same, 3 * PAGE);
    r->device->table->free(r->device, memory, 4 * PAGE);
    r->device->table->stream_destroy(r->device, stream);
}

static void
test_copies_in_a_simulation(void)
{
    stretch s = stretch_alloc();
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    CHECK_EQ(berthi_device_pin(r.device, s.memory, s.bytes, NULL, NULL), BERTH_OK);
    copy_across(&r, &s);
    berthi_device_unpin(r.device, s.memory, s.bytes);
    rig_close(&r);
    free(s.block);
}

/* The fake runtime refuses a copy of two registrations, as the driver does. */
static void
test_copies_of_a_driver(void)
{
    static const fake_cuda_machine machine = { .count = 2, .driver = 13000, .architecture = 90,
                                               .memory_bytes = 64 * MIB, .is_late = true };
    stretch s = stretch_alloc();
    rig r;

    fake_cuda_begin(&machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berthi_device_pin(rig_at(&r, i), s.memory, s.bytes, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().pins, 3);
    copy_across(&r, &s);
    for (uint32_t i = 0; i < 2; i++)
        berthi_device_unpin(rig_at(&r, i), s.memory, s.bytes);
    CHECK_EQ(fake_cuda_read().pins, 0);
    /* In memory of which one page is registered, behind another that is not. */
    CHECK_EQ(r.device->table->pin(r.device, s.memory + PAGE, PAGE, NULL), BERTH_OK);
    copy_across(&r, &s);
    r.device->table->unpin(r.device, s.memory + PAGE, PAGE);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free(s.block);
}

/* ------------------------------------------------------------------------------ models */

#define BLOCKS 8u

/* A device whose calls about slabs and holds in host memory are looked at. */
typedef struct spy {
    berthi_device_table table;
    const berthi_device_table *own;
    stretch blocks[BLOCKS]; /* `block` NULL: none */
    uint32_t pins;          /* of pieces of them, that are there */
    uint32_t asked;         /* the same, so far */
    uint32_t refused;       /* number of the one that is; UINT32_MAX: none */
    uint32_t cancels;       /* after so many; UINT32_MAX: never */
    uint64_t cancelled_ns;  /* when */
    _Atomic(berth_job *) job;
    berth_progress progress; /* after the first of them */
    _Atomic uint32_t notices;
} spy;

static spy now;

static bool
is_of_blocks(const uint8_t *memory)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (now.blocks[i].block != NULL && memory >= now.blocks[i].memory
            && memory < now.blocks[i].memory + now.blocks[i].bytes)
            return true;
    return false;
}

static berth_status
spy_pin(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    berth_status status;

    if (!is_of_blocks(memory))
        return now.own->pin(device, memory, bytes, error);
    CHECK_LE(bytes, PIECE);
    while (atomic_load(&now.job) == NULL) /* who started it says so in a moment */
        berthi_sys_sleep(100000);
    if (now.asked == 1)
        berth_job_poll(now.job, &now.progress);
    if (now.asked++ == now.refused)
        return berthi_fail_memory(error, "this piece");
    status = now.own->pin(device, memory, bytes, error);
    now.pins += status == BERTH_OK;
    if (now.asked == now.cancels) {
        now.cancelled_ns = berthi_sys_now_ns();
        berth_job_cancel(now.job);
    }
    return status;
}

static void
spy_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    now.pins -= is_of_blocks(memory);
    now.own->unpin(device, memory, bytes);
}

/* Host memory begins a page before a border. */
static void *
take(void *user, uint32_t device, uint64_t bytes, uint64_t alignment, const char *purpose)
{
    const loaded *const l = user;
    uint32_t i = 0;
    void *memory = NULL;

    (void)purpose;
    if (device != BERTH_NO_INDEX) {
        berthi_device *const owner = berthi_devices_at(l->devices, device);

        return owner->table->alloc(owner, bytes, &memory, NULL) == BERTH_OK ? memory : NULL;
    }
    CHECK_EQ(alignment, PAGE);
    while (i < BLOCKS - 1 && now.blocks[i].block != NULL)
        i++;
    now.blocks[i].block = aligned_alloc(
        (size_t)PIECE, (size_t)((bytes + 2 * PIECE - 1) / PIECE * PIECE));
    if (now.blocks[i].block == NULL)
        abort();
    now.blocks[i].bytes = bytes;
    now.blocks[i].memory = now.blocks[i].block + PIECE - PAGE;
    return now.blocks[i].memory;
}

static void
give(void *user, uint32_t device, void *memory, uint64_t bytes, uint64_t alignment,
     const char *purpose)
{
    const loaded *const l = user;

    (void)alignment;
    (void)purpose;
    if (device != BERTH_NO_INDEX) {
        berthi_device *const owner = berthi_devices_at(l->devices, device);

        owner->table->free(owner, memory, bytes);
        return;
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (now.blocks[i].block != NULL && now.blocks[i].memory == memory) {
            free(now.blocks[i].block);
            now.blocks[i].block = NULL;
        }
}

static void
note(void *user, int32_t level, const char *line)
{
    (void)user;
    (void)level;
    if (strstr(line, "is not pinned") != NULL)
        atomic_fetch_add(&now.notices, 1);
}

/* Of 163 MiB, layers 147 of them: in host memory, or in that of the device. */
static void
begin(loaded *l, berth_slab_memory *memory, bool is_on_host)
{
    static const char *const pins[] = { "model.layers=cpu" };
    berth_plan_options options = loaded_options("0=224MiB,cpu=256MiB");
    berthi_device *device;

    options.pins = pins;
    options.pin_count = is_on_host;
    memset(&now, 0, sizeof now);
    loaded_begin(l, planned_llama(6, true), &options, "sim:512MiB");
    l->p.context->log = note;
    device = berthi_devices_at(l->devices, 0);
    now.own = device->table;
    now.table = *device->table;
    now.table.pin = spy_pin;
    now.table.unpin = spy_unpin;
    now.refused = UINT32_MAX;
    now.cancels = UINT32_MAX;
    device->table = &now.table;
    *memory = (berth_slab_memory){ .user = l, .alloc = take, .free = give };
    l->options.slab_memory = memory;
}

static void
end(loaded *l)
{
    loaded_unload(l);
    CHECK_EQ(now.pins, 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        CHECK(now.blocks[i].block == NULL);
    loaded_end(l);
}

/* Another attempt: nothing of the one before is pinned. */
static void
again(uint32_t refused, uint32_t cancels)
{
    now.asked = 0;
    now.refused = refused;
    now.cancels = cancels;
    atomic_store(&now.job, NULL);
}

static void
load(loaded *l)
{
    berth_job *job = NULL;

    l->status = berth_load_start(l->p.context, l->p.checkpoint, l->p.plan, &l->options, &job,
                                 &l->error);
    T_REQUIRE(l->status == BERTH_OK);
    atomic_store(&now.job, job);
    l->status = berth_load_finish(job, &l->model, &l->error);
}

static void
test_load_in_pieces(void)
{
    berth_slab_memory memory;
    loaded l;

    begin(&l, &memory, true);
    load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(now.asked, 3);
    CHECK_EQ(now.pins, 3);
    CHECK_STR(now.progress.phase, "pin");
    CHECK_EQ(now.progress.done, PAGE);
    CHECK_GT(now.progress.total, l.report.placed_bytes);
    CHECK_EQ(now.progress.total, l.report.placed_bytes + now.blocks[0].bytes);
    CHECK(l.model->tiers[1].is_pinned);
    CHECK_EQ(now.notices, 0);
    end(&l);
}

/* Whichever piece is refused, none is pinned, and all is loaded. */
static void
test_load_with_a_piece_refused(void)
{
    berth_slab_memory memory;
    loaded l;

    begin(&l, &memory, true);
    for (uint32_t refused = 0; refused < 3; refused++) {
        again(refused, UINT32_MAX);
        load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_EQ(now.asked, refused + 1);
        CHECK_EQ(now.pins, 0);
        CHECK(!l.model->tiers[1].is_pinned);
        CHECK_EQ(now.notices, 1); /* of this context */
        loaded_unload(&l);
    }
    end(&l);
}

/* Returns how long it takes. */
static uint64_t
cancel_load(loaded *l, uint32_t pieces)
{
    again(UINT32_MAX, pieces);
    load(l);
    now.cancelled_ns = berthi_sys_now_ns() - now.cancelled_ns;
    CHECK_EQ(l->status, BERTH_ECANCELLED);
    CHECK_EQ(l->error.reason, BERTH_REASON_CANCELLED);
    CHECK_EQ(now.asked, pieces);
    CHECK_EQ(now.pins, 0);
    CHECK_EQ(now.notices, 0);
    return now.cancelled_ns;
}

static void
test_load_cancelled_between_pieces(void)
{
    berth_slab_memory memory;
    loaded l;

    begin(&l, &memory, true);
    for (uint32_t pieces = 1; pieces <= 3; pieces++) {
        uint64_t ns = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && ns > T_CANCEL_NS; tries++)
            ns = cancel_load(&l, pieces);
        CHECK_LE(ns, T_CANCEL_NS);
    }
    end(&l);
}

/* ------------------------------------------------------------------------------ moves */

typedef berth_status (*starter)(berth_model *model, const berth_move_options *options,
                                berth_job **out_job, berth_error *error);

static berth_plan *target;

static berth_status
start_move(berth_model *model, const berth_move_options *options, berth_job **out_job,
           berth_error *error)
{
    return berth_model_move_start(model, target, options, out_job, error);
}

static berth_status
run(loaded *l, starter start, bool discards)
{
    berth_move_options options;
    berth_job *job;

    berth_move_options_init(&options);
    options.discards = discards;
    CHECK_EQ(start(l->model, &options, &job, &l->error), BERTH_OK);
    atomic_store(&now.job, job);
    return berth_job_finish(job, &l->error);
}

/* Cancelled after each of its pieces it leaves the model as it is; then it is done. */
static void
check_moves(loaded *l, starter start, bool discards, uint32_t pieces)
{
    const int32_t state = berth_model_get_state(l->model);
    const uint32_t before = now.pins;

    for (uint32_t after = 1; after <= pieces; after++) {
        again(UINT32_MAX, after);
        CHECK_EQ(run(l, start, discards), BERTH_ECANCELLED);
        CHECK_EQ(now.asked, after);
        CHECK_EQ(now.pins, before);
        CHECK_EQ(berth_model_get_state(l->model), state);
    }
    again(UINT32_MAX, UINT32_MAX);
    if (!CHECK_EQ(run(l, start, discards), BERTH_OK))
        t_note("%s", l->error.message);
    CHECK_EQ(now.asked, pieces);
}

/* What sleeps lies in a hold; awake again, that is given back. */
static void
test_holds(void)
{
    berth_slab_memory memory;
    loaded l;

    begin(&l, &memory, false);
    load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(now.asked, 0);
    check_moves(&l, berth_model_sleep_start, false, 3);
    CHECK_EQ(now.pins, 3);
    check_moves(&l, berth_model_wake_start, false, 0);
    CHECK_EQ(now.pins, 0);
    again(1, UINT32_MAX);
    CHECK_EQ(run(&l, berth_model_sleep_start, false), BERTH_OK);
    CHECK_EQ(now.pins, 0);
    CHECK_EQ(now.notices, 1);
    CHECK_EQ(run(&l, berth_model_wake_start, false), BERTH_OK);
    end(&l);
}

static void
test_slabs_of_moves(void)
{
    static const char *const pins[] = { "model.layers=cpu" };
    berth_plan_options options = loaded_options("0=224MiB,cpu=256MiB");
    berth_plan *first = NULL;
    berth_slab_memory memory;
    loaded l;

    begin(&l, &memory, true);
    load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    /* What lies in the checkpoint goes; the slab comes again. */
    again(UINT32_MAX, UINT32_MAX);
    CHECK_EQ(run(&l, berth_model_sleep_start, true), BERTH_OK);
    CHECK_EQ(now.pins, 0);
    check_moves(&l, berth_model_wake_start, false, 3);
    CHECK_EQ(now.pins, 3);
    /* To a plan without that slab, and back. */
    CHECK_EQ(berth_plan_create(l.p.context, l.p.checkpoint, &options, &target, &l.error),
             BERTH_OK);
    check_moves(&l, start_move, false, 0);
    CHECK_EQ(now.pins, 0);
    first = target;
    options.pins = pins;
    options.pin_count = 1;
    CHECK_EQ(berth_plan_create(l.p.context, l.p.checkpoint, &options, &target, &l.error),
             BERTH_OK);
    check_moves(&l, start_move, false, 3);
    CHECK_EQ(now.pins, 3);
    loaded_unload(&l);
    berth_plan_destroy(first);
    berth_plan_destroy(target);
    end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_cuts);
    T_RUN(test_all_or_nothing);
    T_RUN(test_copies_in_a_simulation);
    T_RUN(test_copies_of_a_driver);
    T_RUN(test_load_in_pieces);
    T_RUN(test_load_with_a_piece_refused);
    T_RUN(test_load_cancelled_between_pieces);
    T_RUN(test_holds);
    T_RUN(test_slabs_of_moves);
    T_MAIN_END;
}
