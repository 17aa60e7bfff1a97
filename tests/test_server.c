/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_server.c - the server of tests/server.c with one model at a time is driven through
 * bad luck: cancelled loads, reads that fail, a file that is cut, a lost device, too little
 * memory. Its loop is never away for long.
 */
#define _DEFAULT_SOURCE

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"
#include "tests/visit.h"

/* ------------------------------------------------------------------------- scenes */

/* Two models in turns; requests while the server is at one. */
static void
take_turns(visit *v, const visit_models *m)
{
    visit_words a;
    visit_words b;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
    visit_try(v, VISIT_FROM_DISK, m->b, &b);
    CHECK(strcmp(a.passed, b.passed) != 0 && strcmp(a.digest, b.digest) != 0);
    for (uint32_t i = 0; i < 2; i++) {
        const char *const memory = i == 0 ? VISIT_FROM_DISK : VISIT_FROM_HOST;

        CHECK_STR(visit_ask(v, visit_load(memory, m->a)), "ok");
        CHECK_STR(visit_ask(v, "pass 3\ndigest"), "busy");
        CHECK_STR(visit_hear(v), a.passed);
        CHECK_STR(visit_ask(v, "digest"), a.digest);
        CHECK_STR(visit_ask(v, "unload"), "ok");
        CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok");
        CHECK_STR(visit_ask(v, "pass 1"), b.passed);
        CHECK_STR(visit_ask(v, "unload"), "ok");
    }
}

/* Cancelled at any moment: either it came too late, or nothing is left. */
static void
cancel_loads(visit *v, const visit_models *m)
{
    visit_words a;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
    for (uint32_t i = 0; i < 6; i++) {
        visit_say(v, visit_load(VISIT_FROM_HOST, m->a));
        (void)usleep(i * 5000);
        visit_say(v, "cancel");
        if (strcmp(visit_hear(v), "ok") != 0)
            CHECK_STR(v->line, "failed cancelled cancelled -");
        CHECK_STR(visit_ask(v, "unload"), "ok");
    }
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
}

/* Reads that fail, in a load and in a pass: said with their file, then all is well. */
static void
fail_reads(visit *v, const visit_models *m)
{
    visit_words b;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_DISK, m->b, &b);
    haul_set((haul_tricks){.failure = 5, .failure_first = 1, .failure_count = 1});
    atomic_store(&haul_reads, 0);
    atomic_store(&berthi_reader_instead, &haul_reader);
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "failed io ");
    CHECK_CONTAINS(v->line, m->b);
    haul_set((haul_tricks){.hangs = true, .hang_first = 1});
    atomic_store(&haul_reads, 0);
    atomic_store(&haul_is_hung, true);
    CHECK_STR(visit_ask(v, VISIT_IMPATIENT), "ok");
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "timeout");
    CHECK_CONTAINS(v->line, m->b);
    CHECK_STR(visit_ask(v, VISIT_PATIENT), "ok");
    atomic_store(&haul_is_hung, false);
    haul_set((haul_tricks){.hangs = false});
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->b)), "ok");
    CHECK_STR(visit_ask(v, "pass 1"), b.passed);
    haul_set((haul_tricks){
        .failure = 5, .failure_first = atomic_load(&haul_reads), .failure_count = 1000000});
    CHECK_CONTAINS(visit_ask(v, "pass 20"), "failed io ");
    CHECK_CONTAINS(v->line, m->b);
    haul_set((haul_tricks){.hangs = false});
    visit_recover(v, &b);
    CHECK_STR(visit_ask(v, "unload"), "ok");
    atomic_store(&berthi_reader_instead, NULL);
}

/* A file that is cut behind the server's back, and then mended. */
static void
cut_a_file(visit *v, const visit_models *m)
{
    const char *const shard = fixture_format("%s/model.safetensors", m->a);
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    visit_words a;

    fixture_copy(shard, whole);
    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_DISK, m->a, &a);
    CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_DISK, m->a)), "ok");
    fixture_truncate(shard, fixture_size(shard) / 2);
    CHECK_CONTAINS(visit_ask(v, "pass 20"), "failed io ");
    CHECK_CONTAINS(v->line, shard);
    CHECK_STR(visit_ask(v, "unload"), "ok");
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_DISK, m->a)), "failed ");
    fixture_copy(whole, shard);
    visit_try(v, VISIT_FROM_DISK, m->a, &a);
}

/* A device that is lost stays so, until the server opens devices anew. */
static void
lose_devices(visit *v, const visit_models *m)
{
    visit_words a;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
    for (uint32_t at = 20; at <= 260; at += 80) {
        CHECK_STR(visit_ask(v, fixture_format("devices %s,lose=%u", VISIT_DEVICE, at)), "ok");
        if (strcmp(visit_ask(v, visit_load(VISIT_FROM_HOST, m->a)), "ok") == 0) {
            (void)visit_ask(v, "pass 50");
            CHECK_CONTAINS(v->line, "device_lost");
            CHECK_CONTAINS(visit_ask(v, "pass 1"), "device_lost");
        } else {
            CHECK_CONTAINS(v->line, "device_lost");
            CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_HOST, m->a)), "device_lost");
        }
        CHECK_STR(visit_ask(v, "unload"), "ok");
        CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
        CHECK_STR(visit_ask(v, visit_load(VISIT_FROM_HOST, m->a)), "ok");
        CHECK_STR(visit_ask(v, "pass 1"), a.passed);
        CHECK_STR(visit_ask(v, "unload"), "ok");
    }
}

/* More than the device has: said, and the next one that fits is served. */
static void
refuse(visit *v, const visit_models *m)
{
    visit_words a;

    CHECK_STR(visit_ask(v, "devices " VISIT_DEVICE), "ok");
    CHECK_CONTAINS(visit_ask(v, visit_load("0=1GiB,cpu=64MiB", m->a)), "failed no_fit");
    CHECK_CONTAINS(visit_ask(v, visit_load("0=26MiB", m->a)), "failed no_fit");
    CHECK_CONTAINS(visit_ask(v, visit_load(VISIT_FROM_HOST, "/nowhere")), "failed ");
    CHECK_CONTAINS(visit_ask(v, "pass 1"), "failed not_found");
    visit_try(v, VISIT_FROM_HOST, m->a, &a);
}

static void
test_models_in_turns(void)
{
    visit_play(take_turns);
}

static void
test_cancelled_loads(void)
{
    visit_play(cancel_loads);
}

static void
test_reads_that_fail(void)
{
    visit_play(fail_reads);
}

static void
test_a_file_that_is_cut(void)
{
    visit_play(cut_a_file);
}

static void
test_lost_devices(void)
{
    visit_play(lose_devices);
}

static void
test_what_does_not_fit(void)
{
    visit_play(refuse);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_models_in_turns);
    T_RUN(test_cancelled_loads);
    T_RUN(test_reads_that_fail);
    T_RUN(test_a_file_that_is_cut);
    T_RUN(test_lost_devices);
    T_RUN(test_what_does_not_fit);
    T_MAIN_END;
}
