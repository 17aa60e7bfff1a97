/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_disk_faults.c - files, reads and devices that fail or are late for layers. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/lease.h"
#include "loader/reader.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/mixed.h"
#include "tests/t.h"

#define LAYERS 8u
#define KIB UINT64_C(1024)
#define SECOND_NS UINT64_C(1000000000)
#define LATE_NS (5 * SECOND_NS)

static uint32_t
layer_of(const leased *l, uint32_t number)
{
    return planned_layer(&l->planned, fixture_format("model.layers.%u", number));
}

/* ------------------------------------------------------------------------- faults */

/* Uses layers in order until one fails; how many went well. */
static uint32_t
use_until_failure(leased *l, uint32_t limit, berth_error *error, berth_status *status)
{
    uint32_t used = 0;

    *status = BERTH_OK;
    while (used < limit) {
        *status = leased_use(l, used % leased_layers(l), NULL, 0, error);
        if (*status != BERTH_OK)
            break;
        used++;
    }
    return used;
}

typedef enum damage { DAMAGE_TRUNCATED, DAMAGE_REPLACED, DAMAGE_TOUCHED } damage;

/* To a file, from the byte at `place` on. */
static void
do_damage(damage kind, const char *path, uint64_t place)
{
    const char *const other = fixture_format("%s.new", path);

    switch (kind) {
    case DAMAGE_TRUNCATED: fixture_truncate(path, fixture_size(path) - place); break;
    case DAMAGE_REPLACED:
        fixture_copy(path, other);
        fixture_flip(other, place, 1);
        CHECK_EQ(rename(other, path), 0);
        break;
    case DAMAGE_TOUCHED: fixture_flip(path, place, 1); break;
    }
}

/* Between two passes; what the next ones say of it. */
static void
check_damage(damage kind, uint32_t shard, uint64_t part, uint64_t parts)
{
    const leased_options options = mixed_options(MIXED_DISK, 2, NULL);
    const char *const folder = leased_llama(3, 2);
    const char *const path =
        fixture_format("%s/model-%05u-of-00002.safetensors", folder, shard);
    berth_status status;
    berth_error error;
    leased l;

    leased_begin(&l, folder, &options);
    T_REQUIRE(mixed_start(&l, 64 * KIB));
    mixed_passes(&l, 1);
    fixture_tick(path);
    do_damage(kind, path, fixture_size(path) * part / parts);
    for (uint32_t again = 0; again < 2; again++) { /* it stays so */
        CHECK_LT(use_until_failure(&l, 4 * leased_layers(&l), &error, &status),
                 4 * leased_layers(&l));
        CHECK_EQ(status, BERTH_EIO);
        CHECK(error.reason == BERTH_REASON_CHANGED
              || error.reason == BERTH_REASON_TRUNCATED);
        CHECK_STR(error.file, path);
    }
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

static void
unlink_all(const char *folder)
{
    for (uint32_t shard = 1; shard <= 2; shard++)
        CHECK_EQ(unlink(fixture_format("%s/model-%05u-of-00002.safetensors", folder, shard)), 0);
}

/* Shards that are linked, made unreadable or removed have the bytes they had: all goes on. */
static void
test_files_that_go(void)
{
    const leased_options options = mixed_options(MIXED_DISK, 2, NULL);
    const char *const folder = leased_llama(3, 2);
    const char *const path = fixture_format("%s/model-00001-of-00002.safetensors", folder);
    leased l;

    leased_begin(&l, folder, &options);
    T_REQUIRE(mixed_start(&l, 64 * KIB));
    mixed_passes(&l, 1);
    fixture_tick(path);
    CHECK_EQ(link(path, fixture_format("%s.linked", path)), 0);
    mixed_passes(&l, 2);
    CHECK_EQ(chmod(path, 0), 0);
    mixed_passes(&l, 2);
    unlink_all(folder);
    mixed_passes(&l, 2);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* A shard that is cut, replaced or written to, anywhere: said, and never used. */
static void
test_files_that_change(void)
{
    for (int kind = DAMAGE_TRUNCATED; kind <= DAMAGE_TOUCHED; kind++)
        for (uint32_t shard = 1; shard <= 2; shard++)
            for (uint32_t part = 0; part < 11; part++)
                check_damage((damage)kind, shard, part, 11);
}

/* Every system call of the feeder fails in turn, once: said, or got over; then on. */
static void
test_reads_that_fail(void)
{
    const leased_options options = mixed_options(MIXED_BOTH, 2, NULL);
    uint32_t said = 0;
    uint32_t runs = 0;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    l.options = (berthi_lease_options){ .io = BERTH_IO_BUFFERED,
                                        .no_uring = true,
                                        .readers = 1 };
    for (uint64_t nth = 0; nth < 64; nth++) {
        berth_status status;
        berth_error error;
        uint32_t used;

        T_REQUIRE(mixed_start(&l, 64 * KIB));
        mixed_passes(&l, 1);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        used = use_until_failure(&l, 3 * leased_layers(&l), &error, &status);
        berthi_fault_disarm();
        runs++;
        if (status != BERTH_OK) {
            said++;
            CHECK_LT(used, 3 * leased_layers(&l));
            CHECK_EQ(error.status, status);
            CHECK_EQ(status, BERTH_EIO);
            CHECK_NE(error.message[0], '\0');
        }
        /* Asked for again it is read again: at most one more has failed meanwhile. */
        (void)use_until_failure(&l, leased_layers(&l), &error, &status);
        mixed_passes(&l, 2);
        CHECK_EQ(l.wrong, 0);
        leased_stop(&l);
    }
    CHECK_GT(said, 10);
    T_NOTE("feeder: %u of %u failed calls were an acquire's", said, runs);
    leased_end(&l);
}

/* Who asks for a layer, on a thread. */
typedef struct asker {
    leased *leased;
    uint32_t layer;
    berth_status status;
    berth_error error;
    _Atomic bool has_answer;
} asker;

static void *
ask(void *user)
{
    asker *const a = user;

    a->status = berthi_leases_acquire(a->leased->leases, a->layer, NULL, &a->error);
    atomic_store(&a->has_answer, true);
    return NULL;
}

/*
 * The only slot has failed, which the one who waited for it has not seen yet: nobody is going
 * to lease it, so that another one waits for it, too.
 */
static void
test_a_slot_that_has_failed_is_free_soon(void)
{
    const leased_options options = mixed_options(MIXED_DISK, 1, NULL);
    asker other = { .status = BERTH_PENDING };
    berthi_lease_line *line;
    pthread_t thread;
    uint64_t waits;
    berth_error error;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    T_REQUIRE(mixed_start(&l, 64 * KIB));
    line = &l.leases->lines[0];
    CHECK_EQ(line->slot_count, 1);
    T_REQUIRE(berthi_leases_acquire(l.leases, layer_of(&l, 0), NULL, &error) == BERTH_OK);
    pthread_mutex_lock(&line->lock);
    line->slots[0].leases = 0;
    line->slots[0].waiters = 1;
    line->slots[0].fill = BERTHI_LEASE_FAILED;
    pthread_mutex_unlock(&line->lock);
    waits = mixed_summary(&l).host_waits;
    other.leased = &l;
    other.layer = layer_of(&l, 1);
    T_REQUIRE(pthread_create(&thread, NULL, ask, &other) == 0);
    while (mixed_summary(&l).host_waits == waits && !atomic_load(&other.has_answer))
        berthi_sys_sleep(UINT64_C(1000000));
    berthi_sys_sleep(UINT64_C(50000000)); /* what it waits for does not come */
    CHECK(!atomic_load(&other.has_answer));
    CHECK_EQ(mixed_summary(&l).host_waits, waits + 1);
    pthread_mutex_lock(&line->lock);
    line->slots[0].waiters = 0;
    (void)berthi_lease_await_feeder(l.leases, line, &line->slots[0], 0, &error);
    pthread_mutex_unlock(&line->lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    if (CHECK_EQ(other.status, BERTH_OK))
        CHECK_EQ(berthi_leases_release(l.leases, other.layer, NULL, &error), BERTH_OK);
    else
        T_NOTE("%s", other.error.message);
    mixed_passes(&l, 1);
    CHECK_EQ(l.wrong, 0);
    leased_stop(&l);
    leased_end(&l);
}

static void
test_every_call_can_fail(void)
{
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        const leased_options options = mixed_options(MIXED_PARTS, 2, NULL);
        fault_counts counts;
        leased l;

        leased_begin(&l, leased_llama(3, 1), &options);
        l.options = (berthi_lease_options){
            .ring_bytes = 64 * KIB, .no_uring = no_uring != 0, .readers = 2
        };
        counts = fault_loop("leases from the disk", leased_use_all, &l);
        CHECK_GT(counts.memory, 20);
        CHECK_GT(counts.system, 20);
        l.model.context = l.planned.context;
        leased_end(&l);
    }
}

/*
 * Any call of the device: told by somebody's acquire, and afterwards all is well. The
 * feeder brings the next pass while this one is used: it may be that one that is told.
 */
static void
test_device_faults(void)
{
    const leased_options options = mixed_options(MIXED_PARTS, 2, NULL);
    uint32_t said = 0;
    uint64_t nth = 0;
    leased l;

    leased_begin(&l, leased_llama(3, 1), &options);
    for (bool is_over = false; !is_over && nth < 2000; nth++) {
        berth_status status;
        berth_error error;

        l.options.ring_bytes = 64 * KIB;
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        status = leased_start(&l, &error);
        if (status == BERTH_OK)
            status = leased_pass(&l, NULL, &error);
        berthi_fault_disarm();
        is_over = berthi_fault_failures(BERTHI_FAULT_DEVICE) == 0;
        if (l.leases != NULL && status == BERTH_OK)
            (void)use_until_failure(&l, leased_layers(&l), &error, &status);
        if (status != BERTH_OK) {
            said++;
            CHECK(!is_over);
            CHECK_EQ(status, BERTH_ENODEV);
            CHECK_EQ(error.status, status);
        }
        if (l.leases != NULL) {
            mixed_passes(&l, 1);
            CHECK_EQ(l.wrong, 0);
        }
        leased_stop(&l);
    }
    CHECK_GT(said, 30);
    T_NOTE("leases from the disk: %llu device calls failed, %u were told",
           (unsigned long long)nth, said);
    leased_end(&l);
}

/* A device that is lost says so for ever; everything is given back all the same. */
static void
test_a_device_is_lost(void)
{
    for (uint32_t call = 30; call < 400; call += 23) {
        const leased_options options = mixed_options(
            (mixed)(call % 3), 2,
            fixture_format("sim:64MiB,h2d=500MB/s,lose=%u", call + 200));
        berth_error error;
        berth_status status;
        leased l;

        leased_begin(&l, leased_llama(LAYERS, 1), &options);
        l.options.ring_bytes = 64 * KIB;
        status = leased_start(&l, &error);
        if (status == BERTH_OK)
            (void)use_until_failure(&l, 400, &error, &status);
        CHECK_EQ(status, BERTH_ENODEV);
        CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        if (l.leases != NULL) {
            (void)use_until_failure(&l, 400, &error, &status);
            CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        }
        CHECK_EQ(l.wrong, 0);
        leased_end(&l);
    }
}

/* ------------------------------------------------------------------------ waiting */

/* The reason why one of two layers did not come; NONE. All takes so many times as long. */
static int32_t
use_slow_copies(uint32_t times)
{
    leased_options options = mixed_options(
        MIXED_DISK, 1, fixture_format("sim:64MiB,h2d=%uKB/s,clock=real,pin=0B", 10000 / times));
    int32_t reason = BERTH_REASON_NONE;
    berth_error error;
    leased l;

    options.is_empty = true;
    leased_begin(&l, leased_wide(LAYERS), &options);
    l.model.wait_ns = times * UINT64_C(400000000);
    if (!mixed_start(&l, 8192 * KIB)) /* each of its buffers takes 0.2 s, a layer 0.8 */
        return -1;
    for (uint32_t i = 0; i < 2 && reason == BERTH_REASON_NONE; i++) {
        if (berthi_leases_acquire(l.leases, layer_of(&l, i), NULL, &error) != BERTH_OK)
            reason = error.reason;
        else
            CHECK_EQ(berthi_leases_release(l.leases, layer_of(&l, i), NULL, &error), BERTH_OK);
    }
    leased_stop(&l);
    leased_end(&l);
    return reason;
}

/*
 * Copies that are not pinned, each of which the driver keeps its caller for: a layer of many
 * takes longer than a device is waited for, and it moves all the while. A machine that is busy
 * for longer than that itself gets copies, and patience, of twice the time, and again.
 */
static void
test_copies_that_are_slow(void)
{
    int32_t reason = BERTH_REASON_TIMEOUT;

    for (uint32_t times = 1; times <= 32 && reason == BERTH_REASON_TIMEOUT; times *= 2)
        reason = use_slow_copies(times);
    CHECK_EQ(reason, BERTH_REASON_NONE);
}

/* The ring stays full: how long it takes until an acquire is told. */
static uint64_t
stand_still(void)
{
    const leased_options options =
        mixed_options(MIXED_DISK, 1, "sim:64MiB,h2d=500MB/s,clock=real,stall=4");
    berth_status status;
    berth_error error;
    uint64_t begin;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    l.model.wait_ns = UINT64_C(100000000);
    if (!mixed_start(&l, 64 * KIB))
        return 0;
    begin = berthi_sys_now_ns();
    (void)use_until_failure(&l, 100, &error, &status);
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error.tensor, "model.layers.");
    begin = berthi_sys_now_ns() - begin;
    CHECK_GE(begin, l.model.wait_ns);
    leased_end(&l);
    return begin;
}

/* A device that does: in time; a busy machine may be later once, and gets more tries. */
static void
test_a_device_stands_still(void)
{
    uint64_t took_ns = UINT64_MAX;

    for (int tries = 0; tries < T_CANCEL_TRIES && took_ns >= LATE_NS; tries++)
        took_ns = stand_still();
    CHECK_LT(took_ns, LATE_NS);
}

/*
 * Who comes back long after the time was over was not there when the feeder was: it waits once
 * more. Else only what the feeder has moved since puts the time off.
 */
static void
test_who_was_away_waits_once_more(void)
{
    berth_model model = { .wait_ns = SECOND_NS };
    berthi_leases leases = { .model = &model };
    berthi_lease_line line = { .passed_ns = 0 };
    const uint64_t now_ns = berthi_sys_now_ns();
    uint64_t deadline_ns = now_ns + 100 * SECOND_NS;

    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_EQ(deadline_ns, now_ns + 100 * SECOND_NS);
    deadline_ns = now_ns - SECOND_NS / 2;
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + model.wait_ns);
    CHECK_LT(deadline_ns, now_ns + LATE_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    atomic_store(&leases.read_ns, now_ns + 100 * SECOND_NS);
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    line.copying = 1; /* what others have moved does not count */
    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    atomic_store(&leases.is_behind, true); /* but where nobody looks at its copies */
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    line.written = 1; /* who writes without the lock does */
    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    line.passed_ns = now_ns + 100 * SECOND_NS;
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
}

/* How long the end takes that comes while the feeder reads, waits for a slot, or copies. */
static uint64_t
destroy_at_once(uint32_t i)
{
    const leased_options options = mixed_options(
        (mixed)(i % 4), 1 + i % 2, i % 8 == 0 ? "sim:64MiB,h2d=50MB/s,clock=real" : NULL);
    uint64_t begin_ns = 0;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    if (mixed_start(&l, 64 * KIB)) {
        if (i % 3 == 0)
            CHECK_EQ(berthi_leases_acquire(l.leases, layer_of(&l, 0), NULL, NULL), BERTH_OK);
        if (i % 3 == 1)
            (void)usleep(100 * i);
        begin_ns = berthi_sys_now_ns();
        leased_stop(&l);
        begin_ns = berthi_sys_now_ns() - begin_ns;
    }
    leased_end(&l);
    return begin_ns;
}

/* A busy machine may be later once, and gets more tries of the same. */
static void
test_destroyed_at_any_time(void)
{
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t ns = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && ns >= SECOND_NS; tries++)
            ns = destroy_at_once(i);
        CHECK_LT(ns, SECOND_NS);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_files_that_go);
    T_RUN(test_files_that_change);
    T_RUN(test_reads_that_fail);
    T_RUN(test_a_slot_that_has_failed_is_free_soon);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_device_faults);
    T_RUN(test_a_device_is_lost);
    T_RUN(test_copies_that_are_slow);
    T_RUN(test_a_device_stands_still);
    T_RUN(test_who_was_away_waits_once_more);
    T_RUN(test_destroyed_at_any_time);
    T_MAIN_END;
}
