/* SPDX-License-Identifier: Apache-2.0 */
/* test_output_dead.c - what writers that died have left, and writers beside each other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/journal.h"
#include "loader/output.h"
#include "tests/emitted.h"
#include "tests/fixture.h"
#include "tests/output_calls.h"
#include "tests/t.h"

static berth_context *context;

/* Left behind by a killed process: gone. Held by a live one, or other: stays. */
static void
test_removes_what_the_dead_left(void)
{
    static const char *const others[] = {
        ".out.berth-12-0123456.tmp",  ".out.berth-12-012345678.tmp",
        ".out.berth-x-01234567.tmp",  ".out.berth-12-0123456g.tmp",
        "out.berth-12-01234567.tmp",  ".other.berth-12-01234567.tmp",
        ".out.berth-12-01234567.tmp2", ".out.north-12-01234567.tmp",
        ".out.berth-12_01234567.tmp",
    };
    const char *const folder = fixture_folder();
    const char *const held = fixture_format("%s/.out.berth-1-aaaaaaaa.tmp", folder);
    const size_t count = sizeof others / sizeof others[0];
    const int fds = fixture_open_fds();
    int fd;

    for (size_t i = 0; i < count; i++)
        fixture_text(fixture_format("%s/%s", folder, others[i]), "x");
    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(fixture_format("%s/.out.berth-99999-89abcdef.tmp", folder), "x");
    fixture_text(held, "x");
    fixture_make_folder(fixture_format("%s/.out.berth-1-bbbbbbbb.tmp", folder));
    fd = open(held, O_RDWR | O_CLOEXEC);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(emitted_text(context, fixture_format("%s/out", folder), "x", false, NULL),
             BERTH_OK);
    close(fd);
    CHECK_EQ(fixture_open_fds(), fds);
    CHECK_EQ(access(held, F_OK), 0);
    /* The others, the held one, the folder, and the output itself. */
    CHECK_EQ(emitted_entries(folder, NULL), count + 3);
    CHECK_EQ(access(fixture_format("%s/.out.berth-12-01234567.tmp", folder), F_OK), -1);
}

/* Where locks are those of a server. */
static void
test_removes_what_the_dead_left_on_nfs(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const char *const held = fixture_format("%s/.out.berth-1-aaaaaaaa.tmp", folder);
    int fd;

    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(held, "x");
    fd = open(held, O_RDWR | O_CLOEXEC);
    world.has_server_locks = true;
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(emitted_text(context, path, "x", false, NULL), BERTH_OK);
    CHECK_EQ(access(held, F_OK), 0);
    CHECK_EQ(emitted_entries(folder, NULL), 2);
    close(fd);
    CHECK_EQ(emitted_text(context, path, "x", true, NULL), BERTH_OK);
    world.has_server_locks = false;
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

/* What cannot be looked at stays, and only that: stat, open and lock of each. */
static void
test_removes_the_other_dead(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    int kept_one = 0;
    int kept_all = 0;

    for (uint64_t nth = 0; nth < 60; nth++) {
        berth_status status;
        int kept = -1; /* the output itself */

        for (int i = 0; i < 3; i++)
            fixture_text(fixture_format("%s/.out.berth-1-0123456%d.tmp", folder, i), "x");
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        status = emitted_text(context, path, "x", true, NULL);
        berthi_fault_disarm();
        kept += emitted_entries(folder, NULL);
        kept_one += status == BERTH_OK && kept == 1;
        kept_all += status == BERTH_OK && kept == 3;
    }
    CHECK_EQ(kept_one, 3 * 3);
    /* Nobody knows of a journal; the folder was not opened, or not read. */
    CHECK_EQ(kept_all, 3);
}

/* In a folder that the caller holds, which stays open. */
static void
test_in_a_folder_that_is_held(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    berthi_target target = { .folder = at, .name = "out", .path = "shown/out" };
    const int fds = fixture_open_fds();
    berth_error error;
    berthi_output output;

    CHECK_EQ(berthi_output_open_at(context, &target, 3, &output, &error), BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 1);
    CHECK_EQ(berthi_output_write(&output, "new", 3, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&output, &error), BERTH_OK);
    CHECK(output.context == NULL);
    emitted_check(fixture_format("%s/out", folder), "new");
    CHECK_EQ(berthi_output_open_at(context, &target, 3, &output, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, "shown/out");
    CHECK(output.context == NULL);
    target.overwrite = true;
    CHECK_EQ(berthi_output_open_at(context, &target, UINT64_C(1) << 60, &output, &error),
             BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(emitted_entries(folder, NULL), 1);
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_sys_close(at);
}

/* A resumed run comes back for what stands beside a journal. */
static void
test_keeps_what_a_journal_lists(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);

    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(fixture_format("%s/" BERTHI_JOURNAL_NAME, folder), "{}");
    CHECK_EQ(emitted_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 3);
    fixture_link("nowhere", fixture_format("%s/" BERTHI_JOURNAL_NAME, folder));
    CHECK_EQ(emitted_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 3); /* a link in its place is one, too */
    fixture_remove(fixture_format("%s/" BERTHI_JOURNAL_NAME, folder));
    CHECK_EQ(emitted_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

/* Two at once for one name: neither takes the other's file for a dead one's. */
static void
test_two_writers(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berthi_output first;
    berthi_output second;
    berth_error error;

    T_REQUIRE(berthi_output_open(context, path, 1, false, &first, NULL) == BERTH_OK);
    T_REQUIRE(berthi_output_open(context, path, 1, false, &second, NULL) == BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 2);
    CHECK_EQ(berthi_output_write(&first, "1", 1, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_write(&second, "2", 1, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&second, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&first, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    emitted_check(path, "2");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

/* Killed at any moment: the old file or the new one, never a part. */
static void
test_kill(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const size_t bytes = 20000;
    char *const text = malloc(bytes + 1);
    int written = 0;

    T_REQUIRE(text != NULL);
    for (int round = 0; round < 40; round++) {
        const pid_t child = fork();
        char *found;

        memset(text, 'a' + round % 26, bytes);
        text[bytes] = '\0';
        T_REQUIRE(child >= 0); /* kill(-1) would be everybody's end */
        if (child == 0) {
            for (;;)
                if (emitted_text(context, path, text, true, NULL) != BERTH_OK)
                    _exit(1);
        }
        usleep((useconds_t)(round * 211 % 4000));
        CHECK_EQ(kill(child, SIGKILL), 0);
        CHECK_EQ(waitpid(child, NULL, 0), child);
        if (access(path, F_OK) != 0)
            continue;
        written++;
        found = fixture_read(path, NULL);
        CHECK_EQ(strspn(found, (char[]){ found[0], '\0' }), bytes);
        CHECK_EQ(strlen(found), bytes);
        free(found);
    }
    CHECK_EQ(emitted_text(context, path, "end", true, NULL), BERTH_OK);
    CHECK_EQ(emitted_entries(folder, NULL), 1);
    T_NOTE("killed 40 times, a file was there %d times", written);
    free(text);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_removes_what_the_dead_left);
    T_RUN(test_removes_what_the_dead_left_on_nfs);
    T_RUN(test_removes_the_other_dead);
    T_RUN(test_in_a_folder_that_is_held);
    T_RUN(test_keeps_what_a_journal_lists);
    T_RUN(test_two_writers);
    T_RUN(test_kill);
    berth_context_destroy(context);
    T_MAIN_END;
}
