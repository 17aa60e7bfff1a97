/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fork.c - processes that a server begets while models are loaded: a child that begins
 * with a context of its own, and programs, which get none of berth's descriptors. And what
 * a child of any test has to find wrong, which its parent has to know.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define MEMORY "0=8MiB,cpu=64MiB,disk=inf"
#define DEVICE "sim:512MiB,h2d=2GB/s"

static const char *const pins[] = { "model.layers.0-1=disk", "model.layers.2=cpu" };

/* Streams from the disk and from host memory: threads, a ring, open shards. */
static void
begin(loaded *l, const char *folder)
{
    berth_plan_options options = loaded_options(MEMORY);

    options.pins = pins;
    options.pin_count = 2;
    loaded_begin(l, folder, &options, DEVICE);
    loaded_load(l);
}

/* Leases all layers, and holds what is resident against the files. */
static bool
is_usable(loaded *l)
{
    berth_check_report report;
    berth_error error;

    for (uint32_t i = 0; i < l->p.summary.layer_count; i++)
        if (berth_layer_acquire(l->model, i, NULL, &error) != BERTH_OK
            || berth_layer_release(l->model, i, NULL, &error) != BERTH_OK)
            return false;
    return loaded_see_checked(l, &report) == BERTH_OK;
}

/* Everything of its own, beside what it has a copy of and does not touch. */
static int
live_as_child(const char *folder)
{
    loaded own;

    begin(&own, folder);
    if (own.status != BERTH_OK || !is_usable(&own))
        return 1;
    loaded_end(&own);
    return 0;
}

static void
test_a_child_begins_anew(void)
{
    const char *const folder = leased_llama(4, 2);
    int status = -1;
    pid_t child;
    loaded l;

    if (T_HAS_THREADS_WATCHED)
        T_SKIP("the thread sanitizer ends children that start threads");
    begin(&l, folder);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK(is_usable(&l));
    fflush(NULL);
    child = fork();
    T_REQUIRE(child >= 0);
    if (child == 0)
        _exit(live_as_child(folder));
    CHECK(is_usable(&l)); /* whatever the child does */
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK(is_usable(&l));
    loaded_end(&l);
}

/* What a program that is executed finds open, one line for each. */
static void
list_inherited(char *text, size_t capacity)
{
    FILE *const list = popen("for fd in /proc/self/fd/*; do readlink \"$fd\"; done; :", "r");
    size_t length;

    T_REQUIRE(list != NULL);
    length = fread(text, 1, capacity - 1, list);
    text[length] = '\0';
    CHECK_EQ(pclose(list), 0);
}

static void
test_programs_inherit_nothing(void)
{
    const char *const folder = leased_llama(4, 2);
    char before[8192];
    char text[8192];
    berth_error error;
    berth_job *job;
    int descriptor;
    loaded l;

    list_inherited(before, sizeof before);
    begin(&l, folder);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(berth_verify_start(l.p.context, l.p.checkpoint, NULL, &job, &error), BERTH_OK);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_OK);
    list_inherited(text, sizeof text);
    CHECK(strstr(text, folder) == NULL);
    CHECK((strstr(text, "eventfd") == NULL) == (strstr(before, "eventfd") == NULL));
    CHECK((strstr(text, "io_uring") == NULL) == (strstr(before, "io_uring") == NULL));
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    loaded_end(&l);
}

/* ---------------------------------------------------------------------- the harness */

/* For the test below alone: a check fails, in a child that ends as if all were well. */
#define WRONG_IN_A_CHILD "wrong_in_a_child"

static void
wrong_in_a_child(void)
{
    const pid_t child = fork();

    T_REQUIRE(child >= 0);
    if (child == 0) {
        CHECK(false);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, NULL, 0), child);
}

static void
test_checks_of_children_are_counted(void)
{
    int status = -1;
    pid_t program;

    fflush(NULL);
    program = fork();
    T_REQUIRE(program >= 0);
    if (program == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);

        if (nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0)
            execl("/proc/self/exe", "test_fork", WRONG_IN_A_CHILD, (char *)NULL);
        _exit(77);
    }
    CHECK_EQ(waitpid(program, &status, 0), program);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 1);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    if (argc > 1 && strcmp(argv[1], WRONG_IN_A_CHILD) == 0)
        T_RUN(wrong_in_a_child);
    T_RUN(test_a_child_begins_anew);
    T_RUN(test_programs_inherit_nothing);
    T_RUN(test_checks_of_children_are_counted);
    return t_end();
}
