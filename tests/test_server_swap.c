/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_server_swap.c - the server of tests/server.c has two models in one budget: they
 * are swapped, and what befalls one of them does not touch the other.
 */
#define _DEFAULT_SOURCE

#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/limited.h"
#include "tests/t.h"
#include "tests/visit.h"

/* Both models have room at once, and each has the half of it. */
#define WIDE_DEVICE "sim:52MiB,h2d=2GB/s,clock=real"

/* ---------------------------------------------------------------------------- swap */

/* Seat 0 has `a`, asleep; seat 1, which is the seat, has `b`. One budget for both. */
static void
load_both(visit *v, const visit_models *m, visit_words *a, visit_words *b)
{
    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_HOST, m->a)), "ok");
    visit_note(v, a);
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_HOST, m->b)), "failed no_fit");
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    CHECK_STR(visit_ask(v, "sleep"), "ok");
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok");
    visit_note(v, b);
    CHECK(strcmp(a->passed, b->passed) != 0 && strcmp(a->digest, b->digest) != 0);
}

static void
unload_both(visit *v)
{
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    CHECK_STR(visit_ask(v, "unload"), "ok");
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    CHECK_STR(visit_ask(v, "unload"), "ok");
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
}

/* The seat is that of the model that is awake. */
static void
swap_models(visit *v, const visit_models *m)
{
    visit_words words[2];

    load_both(v, m, &words[0], &words[1]);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_STR(visit_ask(v, "swap\ndigest"), "busy");
        CHECK_STR(visit_hear(v), "ok");
        visit_check(v, &words[i % 2]);
    }
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    CHECK_CONTAINS(visit_ask(v, "pass 1"), "failed invalid asleep");
    CHECK_CONTAINS(visit_ask(v, "wake"), "failed no_fit");
    CHECK_CONTAINS(visit_ask(v, "swap"), "failed invalid asleep");
    CHECK_STR(visit_ask(v, "misuse"), "misused asleep asleep argument");
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    CHECK_STR(visit_ask(v, "misuse"), "misused lease lease argument");
    visit_check(v, &words[1]);
    CHECK_STR(visit_ask(v, "swap"), "ok");
    visit_check(v, &words[0]);
    unload_both(v);
    CHECK_CONTAINS(visit_ask(v, "swap"), "failed invalid argument");
}

/* Cancelled at any moment: either it came too late, or nothing has changed. */
static void
cancel_swaps(visit *v, const visit_models *m)
{
    visit_words words[2];
    uint32_t awake = 1;

    load_both(v, m, &words[0], &words[1]);
    for (uint32_t i = 0; i < 8; i++) {
        visit_say(v, i == 0 ? "swap\ncancel" : "swap");
        if (i > 0) {
            (void)usleep(i * 2000);
            visit_say(v, "cancel");
        }
        if (strcmp(visit_hear(v), "ok") == 0)
            awake = 1 - awake;
        else
            CHECK_STR(v->line, "failed cancelled cancelled -");
        visit_check(v, &words[awake]);
    }
    unload_both(v);
}

/* --------------------------------------------------------------------- calls that fail */

/* Whatever a fault has left, both models can be used again. */
static void
repair(visit *v, const visit_words *words)
{
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_STR(visit_ask(v, i == 0 ? "seat 0" : "seat 1"), "ok");
        if (strcmp(visit_ask(v, "pass 1"), "failed invalid asleep -") == 0)
            continue;
        visit_recover(v, &words[i]);
        CHECK_STR(visit_ask(v, "sleep"), "ok");
    }
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    CHECK_STR(visit_ask(v, "wake"), "ok");
    visit_check(v, &words[0]);
    CHECK_STR(visit_ask(v, "swap"), "ok");
    visit_check(v, &words[1]);
}

/*
 * Memory that is out once or from now on, a device that refuses one call: allocations,
 * copies, events. A swap then fails, or does not need it.
 */
static void
fail_swaps(visit *v, const visit_models *m)
{
    static const struct {
        berthi_fault_kind kind;
        bool is_for_ever;
        const char *status;
    } faults[] = {
        { BERTHI_FAULT_MEMORY, false, "failed no_memory " },
        { BERTHI_FAULT_MEMORY, true, "failed no_memory " },
        { BERTHI_FAULT_DEVICE, false, "failed " },
    };
    visit_words words[2];
    uint32_t failed = 0;

    load_both(v, m, &words[0], &words[1]);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
        for (uint64_t nth = 0; nth < 24; nth = nth * 4 + 1) {
            berthi_fault_arm(faults[k].kind, nth, faults[k].is_for_ever);
            if (strcmp(visit_ask(v, "swap"), "ok") != 0) {
                CHECK_CONTAINS(v->line, faults[k].status);
                failed++;
            }
            berthi_fault_disarm();
            repair(v, words);
        }
    CHECK_GE(failed, 6);
    T_NOTE("%u swaps failed", failed);
    unload_both(v);
}

/* ----------------------------------------------------------------------- one of two */

/* What happens to the model in seat 1; the one in seat 0 is awake meanwhile. */
typedef void (*trouble)(visit *v, const visit_models *m);

static void
fail_calls(visit *v, const visit_models *m)
{
    static const berthi_fault_kind kinds[] = { BERTHI_FAULT_MEMORY, BERTHI_FAULT_DEVICE };
    uint32_t failed = 0;

    for (uint32_t k = 0; k < 4; k++)
        for (uint64_t nth = 0; nth < 100; nth = nth * 4 + 1) {
            berthi_fault_arm(kinds[k / 2], nth, k % 2 == 1);
            if (strcmp(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok") == 0)
                (void)visit_ask(v, "pass 1");
            failed += strncmp(v->line, "failed ", 7) == 0;
            berthi_fault_disarm();
            CHECK_STR(visit_ask(v, "unload"), "ok");
        }
    CHECK_GE(failed, 8);
}

/* A disk that hangs while the layers of one come from it. */
static void
hang_disk(visit *v, const visit_models *m)
{
    visit_words b;

    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok");
    visit_note(v, &b);
    CHECK_STR(visit_ask(v, "unload"), "ok");
    haul_set((haul_tricks){ .hangs = false });
    atomic_store(&haul_reads, 0);
    atomic_store(&haul_is_hung, false);
    atomic_store(&berthi_reader_instead, &haul_reader);
    visit_load_impatient(v, VISIT_FROM_DISK, m->b);
    haul_set((haul_tricks){ .hangs = true, .hang_first = atomic_load(&haul_reads) });
    atomic_store(&haul_is_hung, true);
    CHECK_CONTAINS(visit_ask(v, "pass 20"), "failed io timeout ");
    CHECK_CONTAINS(v->line, m->b);
    atomic_store(&haul_is_hung, false);
    haul_set((haul_tricks){ .hangs = false });
    visit_recover(v, &b);
    CHECK_STR(visit_ask(v, "unload"), "ok");
    atomic_store(&berthi_reader_instead, NULL);
}

/* Another file in its place, and one that is gone: never other bytes than the model's. */
static void
replace_file(visit *v, const visit_models *m)
{
    const char *const shard = fixture_format("%s/model-00001-of-00002.safetensors", m->b);
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    const char *const other = fixture_format("%s/other", m->b);
    visit_words b;

    visit_try(v, VISIT_FROM_DISK, m->b, &b);
    fixture_copy(shard, whole);
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok");
    fixture_copy(fixture_format("%s/model.safetensors", m->a), other);
    CHECK_EQ(rename(other, shard), 0);
    if (strcmp(visit_ask(v, "pass 3"), b.passed) != 0) {
        CHECK_CONTAINS(v->line, "failed ");
        CHECK_CONTAINS(v->line, shard);
    }
    CHECK_STR(visit_ask(v, "unload"), "ok");
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "failed ");
    CHECK_EQ(unlink(shard), 0);
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "failed ");
    fixture_copy(whole, shard);
    visit_try(v, VISIT_FROM_DISK, m->b, &b);
}

/* The answer to what was asked under a limit of memory. True: it was done all the same. */
static bool
is_done(const visit *v, const char *right)
{
    if (strcmp(v->line, right) == 0)
        return true;
    CHECK_CONTAINS(v->line, "failed no_memory no_memory -");
    return false;
}

/* The one in seat 1 loads: under a limit from the beginning on, and under one that comes. */
static void
load_under_limit(visit *v, const visit_models *m)
{
    const char *const load = visit_load(VISIT_FROM_DISK, m->b);
    uint32_t done = 0;

    for (uint32_t i = 0; i < 8; i++) {
        limited_begin(i * i * (UINT64_C(2) << 20));
        (void)visit_ask(v, load);
        limited_end();
        done += is_done(v, "ok");
        CHECK_STR(visit_ask(v, "unload"), "ok");
    }
    CHECK_GT(done, 0);
    CHECK_LT(done, 8);
    for (uint32_t i = 0; i < 4; i++) {
        visit_say(v, load);
        (void)usleep(i * 4000);
        limited_begin(0);
        (void)visit_hear(v);
        limited_end();
        (void)is_done(v, "ok");
        CHECK_STR(visit_ask(v, "unload"), "ok");
    }
}

/* The same, and for the passes of the one in seat 0. */
static void
lower_limit(visit *v, const visit_models *m)
{
    visit_words a;

    load_under_limit(v, m);
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    visit_note(v, &a);
    for (uint32_t i = 0; i < 4; i++) {
        visit_say(v, "pass 20");
        (void)usleep(i * 4000);
        limited_begin(0);
        (void)visit_hear(v);
        limited_end();
        (void)is_done(v, a.passed);
        visit_recover(v, &a);
    }
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
}

/* The host pins nothing: said once, slower, and right. */
static void
check_unpinned(visit *v, const visit_models *m)
{
    visit_words a;
    visit_words b;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE ",pin=0"), "ok");
    visit_try(v, VISIT_FROM_HOST, m->a, &b);
    CHECK_STR(a.passed, b.passed);
    CHECK_STR(a.digest, b.digest);
}

static void
check_beside(visit *v, const visit_models *m, trouble happens)
{
    visit_words a;
    visit_words b;
    visit_words after;

    CHECK_STR(visit_ask(v, "devices " WIDE_DEVICE), "ok");
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_HOST, m->a)), "ok");
    visit_note(v, &a);
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    visit_try(v, VISIT_FROM_DISK, m->b, &b);
    happens(v, m);
    CHECK_STR(visit_ask(v, "seat 0"), "ok");
    visit_check(v, &a);
    CHECK_STR(visit_ask(v, "seat 1"), "ok");
    visit_try(v, VISIT_FROM_DISK, m->b, &after);
    CHECK_STR(after.passed, b.passed);
    CHECK_STR(after.digest, b.digest);
    unload_both(v);
}

static void
suffer(visit *v, const visit_models *m)
{
    check_beside(v, m, fail_calls);
    check_beside(v, m, hang_disk);
    check_beside(v, m, replace_file);
    check_unpinned(v, m);
}

/* Both are loaded, and swapped until one of these is told that the device is lost. */
static bool
is_lost(visit *v, const visit_models *m)
{
    const char *const beginning[] = { "seat 0", visit_load(VISIT_FROM_HOST, m->a), "sleep",
                                      "seat 1", visit_load(VISIT_FROM_DISK, m->b) };

    for (uint32_t i = 0; i < 60; i++) {
        const char *const request = i < 5 ? beginning[i] : i % 2 == 0 ? "swap" : "pass 1";
        const char *const said = visit_ask(v, request);

        if (strncmp(said, "failed ", 7) == 0)
            return CHECK_CONTAINS(said, "device_lost");
    }
    return false;
}

/* A device that is lost takes both with it; with another one all is well. */
static void
lose_both(visit *v, const visit_models *m)
{
    visit_words words[2];

    for (uint32_t at = 20; at <= 320; at += T_HAS_THREADS_WATCHED ? 150 : 60) {
        CHECK_STR(visit_ask(v, fixture_format("devices %s,lose=%u", VISIT_DEVICE, at)),
                  "ok");
        CHECK(is_lost(v, m));
        unload_both(v);
    }
    load_both(v, m, &words[0], &words[1]);
    CHECK_STR(visit_ask(v, "swap"), "ok");
    visit_check(v, &words[0]);
    unload_both(v);
}

static void
test_swaps(void)
{
    visit_play(swap_models);
}

static void
test_cancelled_swaps(void)
{
    visit_play(cancel_swaps);
}

static void
test_swaps_that_fail(void)
{
    visit_play(fail_swaps);
}

static void
test_trouble_beside_a_model(void)
{
    visit_play(suffer);
}

static void
suffer_limits(visit *v, const visit_models *m)
{
    check_beside(v, m, lower_limit);
}

static void
test_limits_of_memory(void)
{
    if (T_IS_SANITIZED)
        T_SKIP("sanitizers need memory of their own");
    visit_play(suffer_limits);
}

static void
test_lost_devices(void)
{
    visit_play(lose_both);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_swaps);
    T_RUN(test_cancelled_swaps);
    T_RUN(test_swaps_that_fail);
    T_RUN(test_trouble_beside_a_model);
    T_RUN(test_limits_of_memory);
    T_RUN(test_lost_devices);
    T_MAIN_END;
}
