/* SPDX-License-Identifier: Apache-2.0 */
/* visit.c - see visit.h. */
#define _DEFAULT_SOURCE

#include "tests/visit.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/server.h"
#include "tests/t.h"

/* 5 ms are promised; sanitizers make everything ten times slower. */
#define LONGEST_NS (UINT64_C(5000000) * (T_IS_SANITIZED ? 10 : 1))
#define TRIES 20u
#define RECOVERY_PASSES 1000u

/* --------------------------------------------------------------------------- words */

void
visit_say(visit *v, const char *requests)
{
    const char *const text = fixture_format("%s\n", requests);

    CHECK_EQ(write(v->descriptors[0], text, strlen(text)), (ssize_t)strlen(text));
}

const char *
visit_hear(visit *v)
{
    if (!CHECK(fgets(v->line, sizeof v->line, v->answers) != NULL))
        v->line[0] = '\0';
    v->line[strcspn(v->line, "\n")] = '\0';
    return v->line;
}

const char *
visit_ask(visit *v, const char *request)
{
    visit_say(v, request);
    return visit_hear(v);
}

const char *
visit_load(const char *memory, const char *folder)
{
    return fixture_format("load %s %s", memory, folder);
}

void
visit_load_impatient(visit *v, const char *memory, const char *folder)
{
    CHECK_STR(visit_ask(v, VISIT_IMPATIENT), "ok");
    for (uint32_t i = 0; i < TRIES; i++)
        if (strstr(visit_ask(v, visit_load(memory, folder)), " timeout ") == NULL)
            break;
    CHECK_STR(v->line, "ok");
    CHECK_STR(visit_ask(v, VISIT_PATIENT), "ok");
}

void
visit_note(visit *v, visit_words *out)
{
    (void)snprintf(out->passed, sizeof out->passed, "%.63s", visit_ask(v, "pass 2"));
    (void)snprintf(out->digest, sizeof out->digest, "%.63s", visit_ask(v, "digest"));
    CHECK_CONTAINS(out->passed, "passed ");
    CHECK_CONTAINS(out->digest, "digest ");
    CHECK_STR(visit_ask(v, "pass 1"), out->passed);
}

void
visit_check(visit *v, const visit_words *words)
{
    CHECK_STR(visit_ask(v, "pass 1"), words->passed);
    CHECK_STR(visit_ask(v, "digest"), words->digest);
}

void
visit_try(visit *v, const char *memory, const char *folder, visit_words *out)
{
    CHECK_STR(visit_ask(v, visit_load(memory, folder)), "ok");
    visit_note(v, out);
    CHECK_STR(visit_ask(v, "unload"), "ok");
}

void
visit_recover(visit *v, const visit_words *words)
{
    for (uint32_t i = 0; i < RECOVERY_PASSES; i++) {
        if (strcmp(visit_ask(v, "pass 1"), words->passed) == 0)
            break;
        (void)usleep(1000);
    }
    visit_check(v, words);
}

/* -------------------------------------------------------------------------- scenes */

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

/* Ends the server: nothing of its context is left, and its longest step. */
static uint64_t
leave(visit *v)
{
    const char *const last = visit_ask(v, "quit");
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

void
visit_play(visit_scene scene)
{
    static visit_models m; /* of all scenes: they are large */
    uint64_t longest_ns = UINT64_MAX;

    if (m.a == NULL)
        m = (visit_models){ loaded_large(4, 1), loaded_large(5, 2) };
    for (uint32_t i = 0; i < TRIES && longest_ns > LONGEST_NS; i++) {
        visit v;

        T_REQUIRE(has_begun(&v));
        scene(&v, &m);
        longest_ns = leave(&v);
    }
    CHECK_LE(longest_ns, LONGEST_NS);
    T_NOTE("the longest step of the loop: %llu us",
           (unsigned long long)(longest_ns / 1000));
}
