/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_server.c - the server of tests/server.c is driven through everything that section
 * 13 of the specification calls bad luck; its loop is never away for long.
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/loaded.h"
#include "tests/server.h"
#include "tests/t.h"

/* 5 ms are promised; sanitizers make everything ten times slower. */
#define LONGEST_NS (UINT64_C(5000000) * (T_IS_SANITIZED ? 10 : 1))

#define DEVICE "sim:26MiB,h2d=2GB/s,clock=real"
/* Layers are streamed, from host memory or from the disk. */
#define FROM_HOST "0=26MiB,cpu=64MiB"
#define FROM_DISK "0=26MiB,cpu=2MiB,disk=inf"

typedef struct visit {
    int descriptors[2]; /* the test's, the server's */
    pthread_t thread;
    FILE *answers;
    char line[1024];
} visit;

static void *
run_server(void *argument)
{
    const visit *const v = argument;

    CHECK_EQ(server_run(v->descriptors[1], v->descriptors[1]), 0);
    return NULL;
}

static bool
has_begun(visit *v)
{
    memset(v, 0, sizeof *v);
    if (!CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, v->descriptors), 0))
        return false;
    v->answers = fdopen(dup(v->descriptors[0]), "r");
    return CHECK(v->answers != NULL)
           && CHECK_EQ(pthread_create(&v->thread, NULL, run_server, v), 0);
}

static void
say(visit *v, const char *request)
{
    CHECK_EQ(dprintf(v->descriptors[0], "%s\n", request), (int)strlen(request) + 1);
}

/* The next line, without its end. */
static const char *
hear(visit *v)
{
    if (!CHECK(fgets(v->line, sizeof v->line, v->answers) != NULL))
        v->line[0] = '\0';
    v->line[strcspn(v->line, "\n")] = '\0';
    return v->line;
}

static const char *
ask(visit *v, const char *request)
{
    say(v, request);
    return hear(v);
}

static const char *
load(const char *memory, const char *folder)
{
    return fixture_format("load %s %s", memory, folder);
}

/* Ends the server: nothing of its context is left, and its longest step. */
static uint64_t
leave(visit *v)
{
    const char *const last = ask(v, "quit");
    uint64_t longest_ns = UINT64_MAX;

    CHECK_CONTAINS(last, " 0 bytes kept");
    if (CHECK(strncmp(last, "longest ", 8) == 0))
        longest_ns = strtoull(last + 8, NULL, 10);
    if (longest_ns > LONGEST_NS)
        T_NOTE("%s", last);
    CHECK_EQ(pthread_join(v->thread, NULL), 0);
    fclose(v->answers);
    (void)close(v->descriptors[0]);
    (void)close(v->descriptors[1]);
    return longest_ns;
}

/* ------------------------------------------------------------------------- scenes */

typedef struct models {
    const char *a;
    const char *b;
} models;

/* What models say when all is well: sums of passes, digests. */
typedef struct words {
    char passed[64];
    char digest[64];
} words;

static void
note(visit *v, const char *memory, const char *folder, words *out)
{
    CHECK_STR(ask(v, load(memory, folder)), "ok");
    (void)snprintf(out->passed, sizeof out->passed, "%s", ask(v, "pass 2"));
    (void)snprintf(out->digest, sizeof out->digest, "%s", ask(v, "digest"));
    CHECK_CONTAINS(out->passed, "passed ");
    CHECK_CONTAINS(out->digest, "digest ");
    CHECK_STR(ask(v, "pass 1"), out->passed);
    CHECK_STR(ask(v, "unload"), "ok");
}

/* Two models in one budget, in turns; requests while the server is at one. */
static void
swap_models(visit *v, const models *m)
{
    words a;
    words b;

    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    note(v, FROM_HOST, m->a, &a);
    note(v, FROM_DISK, m->b, &b);
    CHECK(strcmp(a.passed, b.passed) != 0 && strcmp(a.digest, b.digest) != 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_STR(ask(v, load(i == 0 ? FROM_DISK : FROM_HOST, m->a)), "ok");
        say(v, "pass 3");
        CHECK_STR(ask(v, "digest"), "busy");
        CHECK_STR(hear(v), a.passed);
        CHECK_STR(ask(v, "digest"), a.digest);
        CHECK_STR(ask(v, "unload"), "ok");
        CHECK_STR(ask(v, load(FROM_DISK, m->b)), "ok");
        CHECK_STR(ask(v, "pass 1"), b.passed);
        CHECK_STR(ask(v, "unload"), "ok");
    }
}

/* Cancelled at any moment: either it came too late, or nothing is left. */
static void
cancel_loads(visit *v, const models *m)
{
    words a;

    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    note(v, FROM_HOST, m->a, &a);
    for (uint32_t i = 0; i < 6; i++) {
        say(v, load(FROM_HOST, m->a));
        (void)usleep(i * 5000);
        say(v, "cancel");
        if (strcmp(hear(v), "ok") != 0)
            CHECK_STR(v->line, "failed cancelled cancelled -");
        CHECK_STR(ask(v, "unload"), "ok");
    }
    note(v, FROM_HOST, m->a, &a);
}

/* Reads that fail, in a load and in a pass: said with their file, then all is well. */
static void
fail_reads(visit *v, const models *m)
{
    words b;

    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    note(v, FROM_DISK, m->b, &b);
    haul_set((haul_tricks){.failure = 5, .failure_first = 1, .failure_count = 1});
    atomic_store(&haul_reads, 0);
    atomic_store(&berthi_reader_instead, &haul_reader);
    CHECK_CONTAINS(ask(v, load(FROM_DISK, m->b)), "failed io ");
    CHECK_CONTAINS(v->line, m->b);
    haul_set((haul_tricks){.hangs = true, .hang_first = 1});
    atomic_store(&haul_reads, 0);
    atomic_store(&haul_is_hung, true);
    CHECK_CONTAINS(ask(v, load(FROM_DISK, m->b)), "timeout");
    CHECK_CONTAINS(v->line, m->b);
    atomic_store(&haul_is_hung, false);
    haul_set((haul_tricks){.hangs = false});
    CHECK_STR(ask(v, load(FROM_DISK, m->b)), "ok");
    CHECK_STR(ask(v, "pass 1"), b.passed);
    haul_set((haul_tricks){
        .failure = 5, .failure_first = atomic_load(&haul_reads), .failure_count = 1000000});
    CHECK_CONTAINS(ask(v, "pass 20"), "failed io ");
    CHECK_CONTAINS(v->line, m->b);
    haul_set((haul_tricks){.hangs = false});
    for (uint32_t i = 0; i < 50 && strcmp(ask(v, "pass 1"), b.passed) != 0; i++)
        (void)usleep(1000);
    CHECK_STR(ask(v, "pass 2"), b.passed);
    CHECK_STR(ask(v, "digest"), b.digest);
    CHECK_STR(ask(v, "unload"), "ok");
    atomic_store(&berthi_reader_instead, NULL);
}

/* A file that is cut behind the server's back, and then mended. */
static void
cut_a_file(visit *v, const models *m)
{
    const char *const shard = fixture_format("%s/model.safetensors", m->a);
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    words a;

    fixture_copy(shard, whole);
    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    note(v, FROM_DISK, m->a, &a);
    CHECK_STR(ask(v, load(FROM_DISK, m->a)), "ok");
    fixture_truncate(shard, fixture_size(shard) / 2);
    CHECK_CONTAINS(ask(v, "pass 20"), "failed io ");
    CHECK_CONTAINS(v->line, shard);
    CHECK_STR(ask(v, "unload"), "ok");
    CHECK_CONTAINS(ask(v, load(FROM_DISK, m->a)), "failed ");
    fixture_copy(whole, shard);
    note(v, FROM_DISK, m->a, &a);
}

/* A device that is lost stays so, until the server opens devices anew. */
static void
lose_devices(visit *v, const models *m)
{
    words a;

    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    note(v, FROM_HOST, m->a, &a);
    for (uint32_t at = 20; at <= 260; at += 80) {
        CHECK_STR(ask(v, fixture_format("devices %s,lose=%u", DEVICE, at)), "ok");
        if (strcmp(ask(v, load(FROM_HOST, m->a)), "ok") == 0) {
            (void)ask(v, "pass 50");
            CHECK_CONTAINS(v->line, "device_lost");
            CHECK_CONTAINS(ask(v, "pass 1"), "device_lost");
        } else {
            CHECK_CONTAINS(v->line, "device_lost");
            CHECK_CONTAINS(ask(v, load(FROM_HOST, m->a)), "device_lost");
        }
        CHECK_STR(ask(v, "unload"), "ok");
        CHECK_STR(ask(v, "devices " DEVICE), "ok");
        CHECK_STR(ask(v, load(FROM_HOST, m->a)), "ok");
        CHECK_STR(ask(v, "pass 1"), a.passed);
        CHECK_STR(ask(v, "unload"), "ok");
    }
}

/* More than the device has: said, and the next one that fits is served. */
static void
refuse(visit *v, const models *m)
{
    words a;

    CHECK_STR(ask(v, "devices " DEVICE), "ok");
    CHECK_CONTAINS(ask(v, load("0=1GiB,cpu=64MiB", m->a)), "failed no_fit");
    CHECK_CONTAINS(ask(v, load("0=26MiB", m->a)), "failed no_fit");
    CHECK_CONTAINS(ask(v, load(FROM_HOST, "/nowhere")), "failed ");
    CHECK_CONTAINS(ask(v, "pass 1"), "failed not_found");
    note(v, FROM_HOST, m->a, &a);
}

/*
 * Once more where a step took too long: what waits by itself does so each time, what a
 * loaded machine does to the server it does not do eight times.
 */
static void
play(void (*scene)(visit *v, const models *m))
{
    const models m = {loaded_large(4, 1), loaded_large(5, 2)};
    uint64_t longest_ns = UINT64_MAX;

    for (uint32_t i = 0; i < 8 && longest_ns > LONGEST_NS; i++) {
        visit v;

        T_REQUIRE(has_begun(&v));
        scene(&v, &m);
        longest_ns = leave(&v);
    }
    CHECK_LE(longest_ns, LONGEST_NS);
    T_NOTE("the longest step of the loop: %llu us",
           (unsigned long long)(longest_ns / 1000));
}

static void
test_two_models_in_one_budget(void)
{
    play(swap_models);
}

static void
test_cancelled_loads(void)
{
    play(cancel_loads);
}

static void
test_reads_that_fail(void)
{
    play(fail_reads);
}

static void
test_a_file_that_is_cut(void)
{
    play(cut_a_file);
}

static void
test_lost_devices(void)
{
    play(lose_devices);
}

static void
test_what_does_not_fit(void)
{
    play(refuse);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_two_models_in_one_budget);
    T_RUN(test_cancelled_loads);
    T_RUN(test_reads_that_fail);
    T_RUN(test_a_file_that_is_cut);
    T_RUN(test_lost_devices);
    T_RUN(test_what_does_not_fit);
    return t_end();
}
