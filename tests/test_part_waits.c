/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_waits.c - whose lengths a part waits for, and how long: beside parts that
 * do what the test tells them, by a clock that moves only when somebody sleeps.
 */
#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "loader/convert_batch.h"
#include "loader/job.h"
#include "loader/part.h"
#include "loader/part_lengths.h"
#include "loader/writer_parts.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define COUNT 8u
#define IN_SHARD 4u
#define BYTES 100u
#define MS UINT64_C(1000000)
#define ALWAYS UINT64_MAX

static berth_context *context;
static berth_error error;

/* On the thread that has set it, time is what it says. */
static _Thread_local struct {
    bool is_set;
    uint64_t now;
    uint32_t sleeps;
    void (*act)(uint32_t sleeps); /* after each of them */
} world;

int
clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!world.is_set || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    out->tv_sec = (time_t)(world.now / 1000000000u);
    out->tv_nsec = (long)(world.now % 1000000000u);
    return 0;
}

int
nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!world.is_set)
        return (int)syscall(SYS_nanosleep, time, left);
    world.now += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
    world.sleeps++;
    if (world.act != NULL)
        world.act(world.sleeps);
    return 0;
}

/* ------------------------------------------------------------------------ scene */

/* One tensor a weight, in two shards; what conversions know of them. */
static struct scene {
    berthi_layout_tensor tensors[COUNT];
    berthi_recipe_output outputs[COUNT];
    berthi_recipe_weight weights[COUNT];
    berthi_entry entries[COUNT];
    berth_checkpoint checkpoint;
    uint32_t part_of[COUNT];
    uint32_t guesses[COUNT];
    uint32_t lengths[COUNT];
    berthi_convert convert;
    const char *folder;
    berthi_writer *others[4]; /* by part */
} scene;

/* `owners`: of each tensor the part; `late`: 'x' where its length is. */
static void
begin(const char *owners, const char *late, uint32_t own)
{
    static const char *const names[COUNT] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    const berthi_layout_options options = { .max_shard_bytes = IN_SHARD * BYTES };
    berthi_convert *const c = &scene.convert;

    memset(&scene, 0, sizeof scene);
    for (uint32_t i = 0; i < COUNT; i++) {
        scene.tensors[i] = (berthi_layout_tensor){ .name = names[i],
                                                   .name_length = 1,
                                                   .dtype = BERTH_U8,
                                                   .bytes = BYTES,
                                                   .is_late = late[i] == 'x' };
        scene.outputs[i].weight = i;
        scene.weights[i].tensor = i;
        scene.part_of[i] = (uint32_t)(owners[i] - '0');
        scene.guesses[i] = late[i] == 'x' ? BYTES : 0;
    }
    scene.checkpoint.table.entries = scene.entries;
    c->context = context;
    c->checkpoint = &scene.checkpoint;
    c->recipe.tensors = scene.tensors;
    c->recipe.outputs = scene.outputs;
    c->recipe.weights = scene.weights;
    c->recipe.output_count = COUNT;
    c->recipe.weight_count = COUNT;
    c->part_of = scene.part_of;
    c->guesses = scene.guesses;
    c->lengths = scene.lengths;
    c->options.part = own;
    c->options.part_count = 3;
    c->is_exchanging = true;
    CHECK_EQ(berthi_layout_create(context, scene.tensors, COUNT, &options, &c->layout,
                                  &error),
             BERTH_OK);
    CHECK_EQ(berthi_layout_shard_count(c->layout), COUNT / IN_SHARD);
}

static void
come(uint32_t part)
{
    const berthi_writer_options options = { .job = "job\n",
                                            .part_count = 3,
                                            .part = part };

    CHECK_EQ(berthi_writer_open(context, scene.folder, &options, &scene.others[part],
                                &error),
             BERTH_OK);
}

static void
leave(uint32_t part)
{
    berthi_writer_close(scene.others[part]);
    scene.others[part] = NULL;
}

static void
tell(uint32_t part, uint32_t output, uint32_t bytes)
{
    CHECK_EQ(berthi_writer_tell(scene.others[part], output, bytes, &error), BERTH_OK);
}

/* With a folder in which this part is at work. */
static void
begin_at_work(const char *owners, const char *late, uint32_t own)
{
    begin(owners, late, own);
    scene.folder = fixture_format("%s/out", fixture_folder());
    come(own);
    scene.convert.writer = scene.others[own];
    scene.convert.options.output = scene.folder;
}

static void
end(void)
{
    for (uint32_t part = 1; part <= 3; part++)
        leave(part);
    berthi_layout_destroy(scene.convert.layout);
}

/* On the thread of a job, where the clock is ours. */
static berth_status
run_body(berth_job *job, void *user, berth_error *unused)
{
    void (*const *const body)(void) = user;

    (void)unused;
    scene.convert.job = job;
    memset(&world, 0, sizeof world);
    world.is_set = true;
    world.now = 1000 * MS;
    scene.convert.begun_ns = world.now;
    scene.convert.heard_ns = world.now;
    (*body)();
    world.is_set = false;
    return BERTH_OK;
}

static void
run_by_our_clock(void (*body)(void))
{
    const berthi_job_work work = { .run = run_body, .user = &body, .phase = "waiting" };
    berth_error unused; /* the job's thread has the other one */
    berth_job *job;

    T_REQUIRE(berthi_job_start(context, &work, &job, &error) == BERTH_OK);
    (void)berth_job_finish(job, &unused);
}

/* ------------------------------------------------------------- whose turn it is */

/* The part whose length is the first that is missing in a shard; 0: none is. */
static uint32_t
first_missing(const char *owners, const char *late, uint32_t shard)
{
    for (uint32_t i = shard * IN_SHARD; i < (shard + 1) * IN_SHARD; i++)
        if (late[i] == 'x')
            return (uint32_t)(owners[i] - '0');
    return 0;
}

/*
 * There is one first for all: whose it is does not wait, all others do, and nobody
 * where none is missing.
 */
static void
test_first_never_waits(void)
{
    uint64_t state = 1;

    for (int round = 0; round < 400; round++) {
        char owners[COUNT + 1] = "";
        char late[COUNT + 1] = "";

        for (uint32_t i = 0; i < COUNT; i++) {
            owners[i] = (char)('1' + weights_random(&state) % 3);
            late[i] = weights_random(&state) % 3 > 0 ? '.' : 'x';
        }
        for (uint32_t own = 1; own <= 3; own++) {
            begin(owners, late, own);
            for (uint32_t shard = 0; shard < COUNT / IN_SHARD; shard++) {
                const uint32_t first = first_missing(owners, late, shard);
                const bool has_to_wait = first != 0 && first != own;

                if (!CHECK_EQ(berthi_part_is_awaiting(&scene.convert, shard),
                              has_to_wait))
                    T_NOTE("%s %s part %u", owners, late, own);
                /* Nobody is there, and there is no time: who need not wait goes on. */
                if (!has_to_wait)
                    CHECK_EQ(berthi_part_await(&scene.convert, shard, &error), BERTH_OK);
            }
            for (uint32_t i = 0; i < COUNT; i++)
                for (uint32_t part = 1; part <= 3; part++)
                    CHECK_EQ(berthi_part_is_unknown(&scene.convert, i, part),
                             late[i] == 'x' && owners[i] == (char)('0' + part));
            end();
        }
    }
}

/* While a part is there and its time is not over it is waited for. */
static void
wait_for_another(void)
{
    berthi_convert *const c = &scene.convert;

    c->sizes.patience_ns = 5 * MS;
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_ENOENT); /* not at work */
    CHECK_EQ(error.reason, BERTH_REASON_PARTS);
    CHECK_STR(error.message, "another part does not go on");
    CHECK_STR(error.file, scene.folder);
    come(3);
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_ENOENT); /* that is not the next */
    come(1);
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_OK);
    world.now += 5 * MS - 1;
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_OK);
    world.now++;
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_ENOENT);
    c->heard_ns++;
    CHECK_EQ(berthi_part_await(c, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_part_await(c, 1, &error), BERTH_OK); /* its own is first there */
    CHECK_EQ(world.sleeps, 0);
}

static void
test_is_waited_for(void)
{
    begin_at_work("21132113", ".xxxx.x.", 2);
    run_by_our_clock(wait_for_another);
    end();
}

/* ---------------------------------------------------------------- telling, hearing */

static void
test_tell(void)
{
    berthi_convert *const c = &scene.convert;

    begin_at_work("22112211", "xxxx....", 2);
    CHECK_EQ(berthi_part_tell(c, 0, 130, &error), BERTH_OK);
    CHECK_EQ(fixture_size(fixture_find(scene.folder, "-table$")), 8);
    scene.lengths[1] = 90;
    CHECK_EQ(berthi_part_tell(c, 1, 91, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_JOURNAL);
    CHECK_STR(error.message, "its state has 91 bytes, and parts have reckoned with 90: "
                             "all have to be begun anew");
    CHECK_STR(error.tensor, "b");
    CHECK_STR(error.file, scene.folder);
    CHECK_EQ(fixture_size(fixture_find(scene.folder, "-table$")), 8);
    CHECK_EQ(berthi_part_tell(c, 1, 90, &error), BERTH_OK); /* once more */
    CHECK_EQ(fixture_size(fixture_find(scene.folder, "-table$")), 16);
    scene.lengths[4] = 77; /* known, and all know it: not told again */
    CHECK_EQ(berthi_part_tell(c, 4, 77, &error), BERTH_OK);
    CHECK_EQ(fixture_size(fixture_find(scene.folder, "-table$")), 16);
    CHECK_EQ(berthi_part_tell(c, 4, 78, &error), BERTH_EFORMAT);
    end();
}

/* Lengths that can be are taken, once; those heard of later count as news. */
static void
hear_others(void)
{
    berthi_convert *const c = &scene.convert;
    const uint32_t most = BYTES + BERTHI_CONVERT_LATE_SLACK;

    come(1);
    tell(1, 0, most);
    tell(1, 1, most + 1); /* no length that there can be */
    tell(1, 4, 50);       /* is not late */
    c->asked_ns = world.now;
    c->heard_ns = 1;
    CHECK_EQ(berthi_part_learn(c, &error), BERTH_OK); /* has just asked */
    CHECK_EQ(scene.lengths[0], 0);
    world.now += BERTHI_PART_POLL_NS / 2 - 1;
    CHECK_EQ(berthi_part_learn(c, &error), BERTH_OK);
    CHECK_EQ(scene.lengths[0], 0);
    CHECK_EQ(c->heard_ns, 1);
    world.now++;
    CHECK_EQ(berthi_part_learn(c, &error), BERTH_OK);
    CHECK_EQ(c->asked_ns, world.now);
    CHECK_EQ(c->heard_ns, world.now);
    CHECK_EQ(scene.lengths[0], most);
    CHECK_EQ(scene.tensors[0].bytes, most);
    CHECK(!scene.tensors[0].is_late);
    CHECK(berthi_layout_is_place_known(c->layout, 1));
    CHECK_EQ(scene.lengths[1], 0);
    CHECK(scene.tensors[1].is_late);
    CHECK_EQ(scene.lengths[4], 0);
    CHECK_EQ(scene.tensors[4].bytes, BYTES);
    world.now += MS;
    CHECK_EQ(berthi_part_learn(c, &error), BERTH_OK); /* nothing new */
    CHECK_EQ(c->heard_ns, world.now - MS);
    tell(1, COUNT - 1, 1);
    world.now += MS;
    CHECK_EQ(berthi_part_learn(c, &error), BERTH_OK);
    CHECK_EQ(c->heard_ns, world.now);
    CHECK_EQ(scene.lengths[COUNT - 1], 1);
}

static void
test_learn(void)
{
    begin_at_work("11111111", "xx.....x", 2);
    run_by_our_clock(hear_others);
    end();
}

/* ------------------------------------------------------- who is not at work yet */

/* Bytes that have to be read for each tensor. */
static void
set_sources(const uint64_t *bytes)
{
    uint64_t at = 12345;

    for (uint32_t i = 0; i < COUNT; i++) {
        scene.entries[i].begin = at;
        at += bytes[i];
        scene.entries[i].end = at;
    }
}

/* Gathers; what would be measured then fails at once, and is seen by that. */
static bool
is_measured_in_gather(uint32_t shard)
{
    berth_status status;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
    status = berthi_part_gather(&scene.convert, shard, &error);
    berthi_fault_disarm();
    CHECK(status == BERTH_OK || status == BERTH_ENOMEM || status == BERTH_ECANCELLED);
    CHECK_EQ(scene.convert.heard_ns, world.now);
    return status == BERTH_ENOMEM;
}

/* An absent part has the time in which its weights could be read, 2 s at most. */
static void
gather_absent(void)
{
    static const uint64_t bytes[COUNT] = { 3 * MS, 70 * MS, 5 * MS, 90 * MS,
                                           MS,     MS,      MS,     MS };
    static const uint64_t many[COUNT] = { 2000 * MS, 0, 2000 * MS - 2, 0, 4000 * MS + 1, 9 };

    set_sources(bytes);
    CHECK(is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 4); /* for 8 MB */
    CHECK(is_measured_in_gather(0)); /* that was enough for ever */
    CHECK_EQ(world.sleeps, 4);
    world.sleeps = 0;
    world.now = scene.convert.begun_ns;
    set_sources(many);
    CHECK(is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 2000);
    world.now = scene.convert.begun_ns + 1999 * MS + 1;
    CHECK(is_measured_in_gather(1));
    CHECK_EQ(world.sleeps, 2001);
}

static void
test_absent_are_measured(void)
{
    begin_at_work("12121212", "x.x.xx..", 2);
    run_by_our_clock(gather_absent);
    end();
}

/* Beside a call of which every allocation fails. */
static void
come_meanwhile(uint32_t part)
{
    berthi_fault_disarm();
    come(part);
    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
}

static void
come_at_third(uint32_t sleeps)
{
    if (sleeps == 3)
        come_meanwhile(1);
}

static void
tell_and_leave_at_fifth(uint32_t sleeps)
{
    if (sleeps != 5)
        return;
    come_meanwhile(1);
    tell(1, 0, 99);
    tell(1, 2, 101);
    leave(1);
}

static void
cancel_at_second(uint32_t sleeps)
{
    if (sleeps == 2)
        berth_job_cancel(scene.convert.job);
}

static void
gather_others(void)
{
    static const uint64_t bytes[COUNT] = { 100 * MS, 0, 100 * MS };

    set_sources(bytes);
    world.act = come_at_third;
    CHECK(!is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 3);
    CHECK(berthi_part_is_awaiting(&scene.convert, 0)); /* at work, and has told nothing */
    leave(1);
    world.sleeps = 0;
    world.act = tell_and_leave_at_fifth;
    CHECK(!is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 5);
    CHECK_EQ(scene.lengths[0], 99);
    CHECK_EQ(scene.lengths[2], 101);
    CHECK(!is_measured_in_gather(0)); /* nobody knows more than we do */
    CHECK_EQ(world.sleeps, 5);
    world.sleeps = 0;
    world.act = cancel_at_second;
    scene.convert.begun_ns = world.now;
    set_sources((const uint64_t[COUNT]){ [7] = 100 * MS });
    CHECK(!is_measured_in_gather(1));
    CHECK_EQ(error.status, BERTH_ECANCELLED);
    CHECK_EQ(world.sleeps, 2);
}

static void
test_others_come(void)
{
    begin_at_work("12121221", "x.x....x", 2);
    run_by_our_clock(gather_others);
    end();
}

/* Of several the first that is not there is looked at; its own lengths alone count. */
static void
gather_one_of_two(void)
{
    static const uint64_t bytes[COUNT] = { 50 * MS, 50 * MS, 4 * MS, 6 * MS };

    set_sources(bytes);
    come(1);
    CHECK(is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 5); /* for 10 MB of part 3 */
    leave(1);
    world.now = scene.convert.begun_ns;
    world.sleeps = 0;
    come(3);
    CHECK(is_measured_in_gather(0));
    CHECK_EQ(world.sleeps, 25);
}

static void
test_one_of_two_is_absent(void)
{
    begin_at_work("12331111", "xxxx....", 2);
    run_by_our_clock(gather_one_of_two);
    end();
}

/* ------------------------------------------------------------- what is kept */

static uint8_t kept[BYTES + 1];

/* `size` bytes of a weight of its own, whose place is not known when it is asked. */
static const berthi_convert_parcel *
keep(berthi_batch *batch, uint32_t output, uint64_t size)
{
    const berthi_run run = { .weight = &scene.weights[output] };

    batch->runs = (berthi_run *)&run; /* it is the first of all */
    CHECK_EQ(berthi_batch_put(batch, &run, BERTHI_ROLE_VALUES, 0, kept, size, &error),
             BERTH_OK);
    return scene.convert.parcels;
}

/* What has found its place makes room for the next bytes, unless they are far fewer. */
static void
keep_again(void)
{
    berthi_convert *const c = &scene.convert;
    berthi_batch batch = { .convert = c };
    const berthi_convert_parcel *first;

    CHECK_EQ(pthread_mutex_init(&batch.lock, NULL), 0);
    CHECK_EQ(pthread_cond_init(&batch.has_changed, NULL), 0);
    CHECK_EQ(berthi_writer_share(c->writer, "a", IN_SHARD * BYTES, &batch.file, &error),
             BERTH_OK);
    first = keep(&batch, 1, BYTES);
    T_REQUIRE(first != NULL);
    CHECK_EQ(c->spare_bytes, 0);
    come(1);
    tell(1, 0, 99);
    world.now += MS;
    CHECK_EQ(keep(&batch, 3, 50)->size, 50); /* it waits for that of output 2 */
    CHECK(c->parcels != first && c->parcels->next == NULL);
    CHECK(c->spare_parcels == first);
    CHECK_EQ(c->spare_bytes, BYTES);
    CHECK(keep(&batch, 3, BYTES - 10) == first);
    CHECK_EQ(first->size, BYTES - 10);
    CHECK_EQ(first->capacity, BYTES);
    CHECK(c->spare_parcels == NULL);
    CHECK_EQ(c->spare_bytes, 0);
    berthi_convert_drop_parcels_from(c, 0);
    CHECK(c->parcels == NULL);
    CHECK_EQ(c->spare_bytes, BYTES + 50);
    CHECK(keep(&batch, 3, BYTES + 1) != NULL); /* more than any takes */
    CHECK_EQ(c->spare_bytes, BYTES + 50);
    c->is_exchanging = false; /* nothing else would be kept */
    berthi_convert_drop_parcels_from(c, 0);
    CHECK_EQ(c->spare_bytes, BYTES + 50);
    berthi_convert_drop_all_parcels(c);
    CHECK(c->spare_parcels == NULL);
    CHECK_EQ(c->spare_bytes, 0);
    berthi_writer_drop(c->writer, batch.file);
    pthread_cond_destroy(&batch.has_changed);
    pthread_mutex_destroy(&batch.lock);
}

static void
test_kept_again(void)
{
    static _Atomic uint32_t crcs[COUNT];

    begin_at_work("12121212", "x.x.....", 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        scene.weights[i].first_output = i;
        scene.weights[i].output_count = 1;
    }
    scene.convert.crcs = crcs;
    scene.convert.sizes.parcels = 1 << 20;
    run_by_our_clock(keep_again);
    end();
}

/* --------------------------------------------------------------- until the end */

static void
tell_at_fifth(uint32_t sleeps)
{
    if (sleeps == 5)
        tell(1, 0, 99);
}

static void
find_own_at_third(uint32_t sleeps)
{
    if (sleeps == 3)
        berthi_layout_set_bytes(scene.convert.layout, 0, 98);
}

static bool
is_measured_in_settle(uint32_t shard)
{
    berth_status status;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
    status = berthi_part_settle(&scene.convert, shard, &error);
    berthi_fault_disarm();
    CHECK(status == BERTH_OK || status == BERTH_ENOMEM || status == BERTH_ECANCELLED);
    return status == BERTH_ENOMEM;
}

/* A parcel for the last place of the first shard. */
static void
settle_beside_another(void)
{
    berthi_convert *const c = &scene.convert;
    berthi_convert_parcel parcel = { .output = 3 };

    c->parcels = &parcel;
    c->sizes.patience_ns = 10 * MS;
    CHECK(is_measured_in_settle(0)); /* not at work */
    CHECK_EQ(world.sleeps, 0);
    CHECK(!is_measured_in_settle(1)); /* no parcel is for that one */
    come(1);
    c->heard_ns = world.now;
    world.act = tell_at_fifth;
    CHECK(is_measured_in_settle(0));
    CHECK_EQ(world.sleeps, 15); /* 5 and 10: what it told was news */
    CHECK_EQ(scene.lengths[0], 99);
    tell(1, 2, 7);
    world.now += MS;
    CHECK(!is_measured_in_settle(0));
    CHECK_EQ(world.sleeps, 15);
    CHECK_EQ(scene.tensors[3].offset, 99 + 100 + 7);
    c->parcels = NULL;
}

static void
test_settle(void)
{
    begin_at_work("12121212", "x.x.....", 2);
    run_by_our_clock(settle_beside_another);
    end();
}

/* Its own length is first: whoever is not there, nobody reads his weights for that. */
static void
settle_own_first(void)
{
    berthi_convert *const c = &scene.convert;
    berthi_convert_parcel parcel = { .output = 3 };

    c->parcels = &parcel;
    world.act = find_own_at_third;
    CHECK(is_measured_in_settle(0));
    CHECK_EQ(world.sleeps, 3);
    world.sleeps = 0;
    c->sizes.patience_ns = ALWAYS;
    come(1);
    world.act = cancel_at_second;
    CHECK(!is_measured_in_settle(0));
    CHECK_EQ(error.status, BERTH_ECANCELLED);
    CHECK_EQ(world.sleeps, 2);
    c->parcels = NULL;
}

static void
test_settle_own_first(void)
{
    begin_at_work("21222222", "xx......", 2);
    run_by_our_clock(settle_own_first);
    end();
}

/* Nothing is found out where the next length is one's own, or none is missing. */
static void
test_measure_next(void)
{
    begin("21112222", "xxx..x..", 2);
    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
    CHECK_EQ(berthi_part_measure_next(&scene.convert, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_part_measure_next(&scene.convert, 1, &error), BERTH_OK);
    berthi_layout_set_bytes(scene.convert.layout, 0, 98);
    CHECK_EQ(berthi_part_measure_next(&scene.convert, 0, &error), BERTH_ENOMEM);
    berthi_fault_disarm();
    end();
}

/* --------------------------------------------------------------------- proving */

/* Of the lengths before the last place of a part in a shard. */
static void
test_places_crc(void)
{
    static const uint32_t lengths[COUNT] = { 11, 22, 33, 44, 55, 66, 77, 88 };

    begin("12123213", "........", 2);
    memcpy(scene.lengths, lengths, sizeof lengths);
    CHECK_EQ(berthi_part_places_crc(&scene.convert, 1, 0),
             berthi_digest_crc32(0, lengths, 2 * sizeof *lengths));
    CHECK_EQ(berthi_part_places_crc(&scene.convert, 2, 0),
             berthi_digest_crc32(0, lengths, 3 * sizeof *lengths));
    CHECK_EQ(berthi_part_places_crc(&scene.convert, 3, 0), 0);
    CHECK_EQ(berthi_part_places_crc(&scene.convert, 3, 1),
             berthi_digest_crc32(0, lengths + 4, 3 * sizeof *lengths));
    CHECK_EQ(berthi_part_places_crc(&scene.convert, 1, 1),
             berthi_digest_crc32(0, lengths + 4, 2 * sizeof *lengths));
    end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_first_never_waits);
    T_RUN(test_is_waited_for);
    T_RUN(test_tell);
    T_RUN(test_learn);
    T_RUN(test_absent_are_measured);
    T_RUN(test_others_come);
    T_RUN(test_one_of_two_is_absent);
    T_RUN(test_kept_again);
    T_RUN(test_settle);
    T_RUN(test_settle_own_first);
    T_RUN(test_measure_next);
    T_RUN(test_places_crc);
    berth_context_destroy(context);
    T_MAIN_END;
}
