/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room that optimizers make under way, by moving states, and files that states go to.
 *
 * The C library's pwrite stands here: it may write less than it is asked for; and what says
 * how much is free.
 */
#define _GNU_SOURCE

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/device.h"
#include "kernels/fault.h"
#include "kernels/sim.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX
#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s"

static const char *folder;
static _Atomic size_t most_written; /* at once; 0: all */
static _Atomic bool is_full;        /* no byte is taken, none is free */

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    const size_t most = atomic_load(&most_written);

    if (atomic_load(&is_full))
        return 0;
    return syscall(SYS_pwrite64, fd, bytes, most > 0 && size > most ? most : size, offset);
}

int
fstatvfs(int fd, struct statvfs *out)
{
    struct statfs state;

    if (fstatfs(fd, &state) != 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->f_blocks = 1;
    out->f_bavail = atomic_load(&is_full) ? 0 : state.f_bavail;
    out->f_frsize = (unsigned long)state.f_bsize;
    return 0;
}

/* ------------------------------------------------------------------------- making room */

/* A device that is full: what is asked for is given back, and the run goes on. */
static void
test_room_is_made_under_way(void)
{
    berth_optimizer_memory before;
    berth_optimizer_memory after;
    berth_context *context;
    berth_error error;
    uint64_t bytes;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, SIM, BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &before), BERTH_OK);
        berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_ENOMEM);
        berthi_fault_disarm();
        CHECK_EQ(error.status, BERTH_ENOMEM);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_OK);
        CHECK_EQ(error.status, BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
        CHECK_EQ(before.states[0] + before.slots - after.states[0] - after.slots, bytes);
        CHECK_GT(bytes, 0);
        CHECK_GT(after.states[BERTH_STATES_HOST], 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        /* All of it: small ones go, too. */
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, UINT64_MAX, &bytes, NULL),
                 BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
        CHECK_EQ(after.states[BERTH_STATES_DEVICE], 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        CHECK_EQ(berth_optimizer_make_room(NULL, 0, 1, &bytes, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 1, 1, &bytes, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, NULL, NULL), BERTH_EINVAL);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* States of 32 bits are larger than those of 8 of some more elements: they alone leave. */
static void
test_room_is_made_by_bytes(void)
{
    static const trained_parameter two[] = { { 120000, BERTH_BF16, BERTH_BF16, 0, 0 },
                                             { 100000, BERTH_BF16, BERTH_BF16, 1, 0 } };
    berth_optimizer_group groups[2] = { trained_group(BERTH_UPDATE_ADAMW, 8, 0),
                                        trained_group(BERTH_UPDATE_ADAMW, 32, 0) };
    berth_optimizer_options options = trained_optimizer(folder);
    berth_parameter_state state;
    berth_context *context;
    uint64_t bytes;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open(&t, context, &(trained_options){ .devices = SIM,
                                                      .groups = groups,
                                                      .group_count = 2,
                                                      .parameters = two,
                                                      .count = 2,
                                                      .optimizer = &options })) {
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 200000, &bytes, NULL), BERTH_OK);
        CHECK_GE(bytes, 200000);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 0, &state), BERTH_OK);
        CHECK_EQ(state.place, BERTH_STATES_DEVICE);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 1, &state), BERTH_OK);
        CHECK_EQ(state.place, BERTH_STATES_HOST);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Makes room while one allocation fails; where the largest states are then. */
static int32_t
make_room_without(const trained *t, uint64_t allocation)
{
    berth_parameter_state state;
    berth_error error;
    uint64_t bytes;
    berth_status status;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, allocation, false);
    status = berth_optimizer_make_room(t->optimizer, 0, 1, &bytes, &error);
    berthi_fault_disarm();
    CHECK_EQ(error.status, status);
    CHECK_EQ(bytes > 0, status == BERTH_OK);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    return state.place;
}

/* Where host memory has no room the disk has: the run goes on, and nothing is said. */
static void
test_room_is_made_on_the_disk(void)
{
    int32_t place = BERTH_STATES_DISK;
    uint64_t on_the_disk = 0;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, SIM, BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        /* The first one that fails is the host's own, sooner or later; then all succeed. */
        for (uint64_t i = 0; i < 50 && place != BERTH_STATES_HOST; i++) {
            place = make_room_without(&t, i);
            on_the_disk += place == BERTH_STATES_DISK;
            trained_check(&t);
            trained_step(&t, ALL, false);
            trained_check(&t);
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_DEVICE, NULL),
                     BERTH_OK);
        }
        CHECK_EQ(place, BERTH_STATES_HOST);
        CHECK_GT(on_the_disk, 0);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

#define SLOTS 4u /* where nothing else is said */

#define LARGE_PAGE 344064u /* elements: a little less than what a device's memory comes in */

/* Crowds take nearly all of it, and each of their bytes is written: no more than is needed. */
#define SMALL_SIM "sim:32MiB"

/* A parameter of so many elements, in large pages. */
static bool
open_pages(trained *t, berth_context *context, uint64_t elements)
{
    const trained_parameter large = { elements, BERTH_BF16, BERTH_BF16, 0, 0 };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = trained_optimizer(folder);

    options.page_elements = LARGE_PAGE;
    options.accumulates = 0;
    return trained_open(t, context,
                        &(trained_options){ .devices = SMALL_SIM,
                                            .groups = &g,
                                            .group_count = 1,
                                            .parameters = &large,
                                            .count = 1,
                                            .optimizer = &options });
}

/* Five of them. */
static bool
open_large(trained *t, berth_context *context)
{
    return open_pages(t, context, 1500000);
}

/* Leaves room for so many slots; to be given to leave(). */
typedef struct crowd {
    berthi_device *device;
    uint64_t bytes;
    void *memory;
} crowd;

static crowd
crowd_in(const trained *t, uint64_t slots)
{
    crowd c = { .device = berthi_devices_at(t->devices, 0) };
    berthi_device_properties properties;

    c.device->table->describe(c.device, &properties);
    c.bytes = properties.free_bytes - slots * BERTHI_SIM_GRANULE;
    CHECK_EQ(c.device->table->alloc(c.device, c.bytes, &c.memory, NULL), BERTH_OK);
    return c;
}

static void
leave(const crowd *c)
{
    c->device->table->free(c->device, c->memory, c->bytes);
}

/* States move with as many slots as there is room for; none: with those in their own place. */
static void
test_slots_are_as_many_as_fit(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint64_t room = 0; room <= SLOTS + 1; room++) {
        const uint64_t expected = room == 0 ? SLOTS : berthi_min_u64(room, SLOTS);
        berth_optimizer_memory memory;
        berth_error error;
        trained t;

        if (open_large(&t, context)) {
            const crowd c = crowd_in(&t, room);

            trained_step(&t, ALL, false);
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_HOST, &error), BERTH_OK);
            CHECK_EQ(error.status, BERTH_OK); /* whatever was tried before */
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &memory), BERTH_OK);
            CHECK_LE(memory.slots, expected * BERTHI_SIM_GRANULE);
            CHECK_GT(memory.slots, (expected - 1) * BERTHI_SIM_GRANULE);
            trained_step(&t, ALL, false);
            trained_check(&t);
            leave(&c);
        }
        trained_close(&t);
    }
    berth_context_destroy(context);
}

/* States of one page leave room for one slot where there was none. */
static void
test_one_slot_is_enough(void)
{
    berth_optimizer_memory memory;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_pages(&t, context, LARGE_PAGE)) {
        const crowd c = crowd_in(&t, 0);

        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_HOST, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &memory), BERTH_OK);
        CHECK_GT(memory.slots, 0);
        CHECK_LE(memory.slots, BERTHI_SIM_GRANULE);
        trained_step(&t, ALL, false);
        trained_check(&t);
        leave(&c);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Moves the states to host memory while an allocation fails; how many did. */
static uint64_t
move_without(trained *t, uint64_t nth)
{
    berth_parameter_state state;
    berth_optimizer_memory memory;
    berth_error error;
    berth_status status;
    uint64_t failures;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, false);
    status = berth_optimizer_move(t->optimizer, 0, BERTH_STATES_HOST, &error);
    failures = berthi_fault_failures(BERTHI_FAULT_MEMORY);
    berthi_fault_disarm();
    CHECK_EQ(error.status, status);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.place, status == BERTH_OK ? BERTH_STATES_HOST : BERTH_STATES_DEVICE);
    CHECK_EQ(berth_optimizer_get_memory(t->optimizer, 0, &memory), BERTH_OK);
    CHECK(status == BERTH_OK || memory.slots == 0);
    return failures;
}

/* States that stay where they are have taken nothing; those that have gone are visited. */
static void
test_a_move_is_made_or_not(void)
{
    for (uint64_t room = 0; room <= SLOTS; room += SLOTS) {
        uint64_t failures = 1;
        berth_context *context;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
            trained t;

            if (open_pages(&t, context, LARGE_PAGE)) {
                const crowd c = crowd_in(&t, room);

                failures = move_without(&t, nth);
                trained_step(&t, ALL, false);
                trained_check(&t);
                leave(&c);
            }
            trained_close(&t);
        }
        CHECK_EQ(failures, 0);
        berth_context_destroy(context);
    }
}

/* Moves all that is there to the disk; what is said, and where it is then. */
static void
check_stays(trained *t, berth_status expected)
{
    berth_parameter_state state;

    CHECK_EQ(berth_optimizer_move(t->optimizer, 0, BERTH_STATES_DISK, NULL), expected);
    berthi_fault_disarm();
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.place, BERTH_STATES_DEVICE);
    trained_step(t, ALL, false);
    trained_check(t);
}

/* Without buffers, or a folder, states stay where they are. */
static void
test_states_stay_where_the_disk_is_not(void)
{
    const char *const file = fixture_format("%s/no_folder", folder);
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = trained_optimizer(folder);
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    fixture_write(file, "", 0);
    options.states_dir = file;
    if (trained_open(&t, context, &(trained_options){ .groups = &g,
                                                      .group_count = 1,
                                                      .parameters = trained_three,
                                                      .count = 3,
                                                      .optimizer = &options })) {
        trained_step(&t, ALL, false);
        berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, false);
        check_stays(&t, BERTH_ENOMEM);
        check_stays(&t, BERTH_ENOENT);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Room for one more slot is none; of more pages as few slots are made as it takes. */
static void
test_room_is_not_taken(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint64_t pages = 1; pages <= SLOTS + 2; pages++) {
        berth_optimizer_memory before;
        berth_optimizer_memory after;
        berth_error error;
        uint64_t bytes;
        trained t;

        if (open_pages(&t, context, pages * LARGE_PAGE)) {
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &before), BERTH_OK);
            CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_OK);
            CHECK_EQ(error.status, BERTH_OK);
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
            CHECK_EQ(bytes > 0, pages > 1);
            CHECK_EQ(after.states[0] + after.slots + bytes, before.states[0]);
            CHECK_EQ(after.states[0] > 0, pages == 1);
            CHECK_LE(after.slots, SLOTS * BERTHI_SIM_GRANULE);
            trained_step(&t, ALL, false);
            trained_check(&t);
        }
        trained_close(&t);
    }
    berth_context_destroy(context);
}

/* What is given back of a full device can be had from it. */
static void
test_room_that_is_made_is_there(void)
{
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_large(&t, context)) {
        const crowd c = crowd_in(&t, 0);
        void *memory = NULL;
        uint64_t bytes;

        CHECK_EQ(c.device->table->alloc(c.device, 1, &memory, NULL), BERTH_ENOFIT);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, NULL), BERTH_OK);
        CHECK_GT(bytes, 0);
        if (CHECK_EQ(c.device->table->alloc(c.device, bytes, &memory, NULL), BERTH_OK))
            c.device->table->free(c.device, memory, bytes);
        trained_step(&t, ALL, false);
        trained_check(&t);
        leave(&c);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* An optimizer begins with all of its slots or not at all: so many were planned. */
static void
test_it_begins_with_all_slots(void)
{
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer *other = NULL;
    berth_parameter parameter;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    options.page_elements = LARGE_PAGE;
    options.accumulates = 0;
    if (open_large(&t, context)) {
        trained_list(&t, &parameter);
        options.devices = t.devices;
        for (uint64_t room = SLOTS - 1; room <= SLOTS; room++) {
            const crowd c = crowd_in(&t, room + 1); /* and what counts odd gradients */

            CHECK_EQ(berth_optimizer_create(context, &g, 1, &parameter, 1, &options, &other,
                                            NULL),
                     room < SLOTS ? BERTH_ENOFIT : BERTH_OK);
            berth_optimizer_destroy(other);
            other = NULL;
            leave(&c);
        }
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* A disk that takes a page in pieces. */
static void
test_short_writes_go_on(void)
{
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, "sim:256MiB", BERTH_STATES_DISK)) {
        atomic_store(&most_written, 4096);
        trained_step(&t, ALL, false);
        trained_step(&t, ALL, false);
        atomic_store(&most_written, 0);
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

static void
test_a_full_disk_says_what_is_missing(void)
{
    const uint32_t numbers = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    berth_gradient gradients[TRAINED_MAX];
    berth_context *context;
    berth_error error;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, "sim:256MiB", BERTH_STATES_DISK)) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        atomic_store(&is_full, true);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, &error), BERTH_EIO);
        atomic_store(&is_full, false);
        CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
        CHECK_EQ(error.has & numbers, numbers);
        CHECK_GT(error.expected, 0);
        CHECK_EQ(error.actual, 0);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

static _Atomic uint32_t signals;

static void
count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* Moves one more parameter to the disk, where it does not fit: what is said of it. */
static void
check_no_more_fits(trained *t, const char *words, uint64_t expected)
{
    berth_parameter_state state;
    berth_error error;

    CHECK_EQ(berth_optimizer_move(t->optimizer, 1, BERTH_STATES_DISK, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, words);
    CHECK_EQ(error.expected, expected);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 1, &state), BERTH_OK);
    CHECK_EQ(state.place, BERTH_STATES_DEVICE);
}

/* A file that there is grows as one is made: no signal ends the process, and what is missing is
 * said of what is added. */
static void
test_the_file_grows_as_it_began(void)
{
    void (*const before)(int) = signal(SIGXFSZ, count_signal);
    berth_parameter_state states[2];
    berth_context *context;
    struct rlimit limit;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    if (trained_open_at(&t, context, folder, NULL, BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(berth_optimizer_get(t.optimizer, i, &states[i]), BERTH_OK);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_DISK, NULL), BERTH_OK);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ states[0].bytes + states[1].bytes - 1,
                                                           limit.rlim_max }),
                 0);
        check_no_more_fits(&t, "larger than this process may write",
                           states[0].bytes + states[1].bytes);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        atomic_store(&is_full, true);
        check_no_more_fits(&t, "does not fit on the disk", states[1].bytes);
        atomic_store(&is_full, false);
        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 1, BERTH_STATES_DISK, NULL), BERTH_OK);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    CHECK_EQ(atomic_load(&signals), 0);
    trained_close(&t);
    berth_context_destroy(context);
    signal(SIGXFSZ, before);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_room_is_made_under_way);
    T_RUN(test_room_is_made_by_bytes);
    T_RUN(test_room_is_made_on_the_disk);
    T_RUN(test_slots_are_as_many_as_fit);
    T_RUN(test_one_slot_is_enough);
    T_RUN(test_a_move_is_made_or_not);
    T_RUN(test_states_stay_where_the_disk_is_not);
    T_RUN(test_room_is_not_taken);
    T_RUN(test_room_that_is_made_is_there);
    T_RUN(test_it_begins_with_all_slots);
    T_RUN(test_short_writes_go_on);
    T_RUN(test_a_full_disk_says_what_is_missing);
    T_RUN(test_the_file_grows_as_it_began);
    T_MAIN_END;
}
