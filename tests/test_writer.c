/* SPDX-License-Identifier: Apache-2.0 */
/* test_writer.c - the folder of a set of files: made, found, busy, refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/writer.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/published.h"
#include "tests/t.h"
#include "tests/writer_calls.h"
#include "tests/written.h"

/* -------------------------------------------------------------------- folder */

static void
test_makes_the_folder(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    const mode_t mask = umask(0027);
    struct stat state;
    berthi_writer *writer;

    CHECK_EQ(published_open(fixture_format("%s//", folder), "job", false, false, &writer, NULL),
             BERTH_OK);
    umask(mask);
    CHECK_EQ(stat(folder, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0750);
    berthi_writer_close(writer);
    CHECK(!published_has(above, "out")); /* nothing was finished */

    CHECK_EQ(published_open(folder, "job", false, false, &writer, NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK(published_has(folder, PUBLISHED_JOURNAL));
    berthi_writer_drop(writer, berthi_writer_find(writer, "a"));
    berthi_writer_close(writer);
    CHECK(!published_has(above, "out")); /* nor is anything left of it */

    fixture_make_folder(folder);
    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(!berthi_writer_is_complete(writer));
    berthi_writer_close(writer);
    CHECK(published_has(above, "out")); /* it was there before */
    published_interrupt(folder, "job", false);
    CHECK(published_has(folder, PUBLISHED_JOURNAL));
    published_refuse(fixture_format("%s/no/out", above), false, false, BERTH_REASON_NOT_FOUND,
                     "making the folder");
    fixture_text(fixture_format("%s/file", above), "x");
    published_refuse(fixture_format("%s/file", above), true, false, BERTH_REASON_NOT_FOUND,
                     "opening the folder");
    published_refuse(fixture_format("%s/models--a--b/blobs", above), false, false,
                     BERTH_REASON_NOT_FOUND, "");
    fixture_make_folder(fixture_format("%s/models--a--b", above));
    published_refuse(fixture_format("%s/models--a--b/blobs", above), false, false,
                     BERTH_REASON_ARGUMENT, "hub cache");
    CHECK(!published_has(fixture_format("%s/models--a--b", above), "blobs"));
    CHECK_EQ(published_open(folder, "\xff", false, true, &writer, NULL), BERTH_EINVAL);
}

/* Without a standard input 0 is the folder, or a file that is opened once more. */
static int
write_without_input(const char *folder, bool is_later)
{
    berthi_writer_file *dropped;
    berthi_writer *writer;
    char byte;
    int fds;

    if (!is_later)
        close(0);
    fds = fixture_open_fds();
    if (published_open(folder, "job", true, false, &writer, NULL) != BERTH_OK)
        return 1;
    if (written_text(writer, "a", "1", NULL) != BERTH_OK)
        return 2;
    if (is_later)
        close(0);
    if (berthi_writer_read(writer, berthi_writer_find(writer, "a"), &byte, 1, 0, NULL)
            != BERTH_OK
        || byte != '1')
        return 3;
    if (berthi_writer_create(writer, "c", 1, &dropped, NULL) != BERTH_OK)
        return 6;
    berthi_writer_drop(writer, dropped);
    if (written_text(writer, "sub/b", "2", NULL) != BERTH_OK
        || berthi_writer_publish(writer, "a", NULL) != BERTH_OK)
        return 4;
    berthi_writer_close(writer);
    return fixture_open_fds() == fds - is_later ? 0 : 5;
}

static void
test_descriptor_zero(void)
{
    const char *const folder = fixture_folder();

    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        int how;

        T_REQUIRE(child >= 0);
        if (child == 0) {
            fixture_text(fixture_format("%s/a", folder), "old");
            if (fcntl(0, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != 0)
                _exit(77);
            _exit(write_without_input(folder, i == 1));
        }
        CHECK_EQ(waitpid(child, &how, 0), child);
        CHECK(WIFEXITED(how));
        CHECK_EQ(WEXITSTATUS(how), 0);
        published_check(folder, "a", "1");
    }
}

/* The folder above one that is made can be it, too; nothing was finished. */
static int
make_without_input(const char *folder)
{
    const int fds = fixture_open_fds();
    berthi_writer *writer;

    forced.closes_input = true;
    if (published_open(folder, "job", false, false, &writer, NULL) != BERTH_OK
        || fcntl(0, F_GETFD) < 0)
        return 1;
    berthi_writer_close(writer);
    return fixture_open_fds() == fds - 1 ? 0 : 2;
}

static void
test_descriptor_zero_above(void)
{
    const char *const above = fixture_folder();
    const pid_t child = fork();
    int how;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        if (fcntl(0, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != 0)
            _exit(77);
        _exit(make_without_input(fixture_format("%s/out", above)));
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK_EQ(how, 0);
    CHECK(!published_has(above, "out"));
}

static void
test_relative_folder(void)
{
    const char *const above = fixture_folder();
    char before[4096];

    T_REQUIRE(getcwd(before, sizeof before) != NULL && chdir(above) == 0);
    published_interrupt("out", "job", false);
    CHECK(published_has("out", PUBLISHED_JOURNAL));
    published_interrupt(".", "job", true);
    /* Made for nothing it goes again, wherever it lies. */
    fixture_make_folder("x");
    for (int i = 0; i < 2; i++) {
        const char *const made = i == 0 ? "made" : "x/made";
        berthi_writer *writer;

        CHECK_EQ(published_open(made, "job", false, false, &writer, NULL), BERTH_OK);
        CHECK(published_has(".", made));
        berthi_writer_close(writer);
        CHECK(!published_has(".", made));
    }
    CHECK_EQ(chdir(before), 0);
    CHECK(published_has(above, PUBLISHED_JOURNAL));
}

static void
test_refuses_what_is_not_empty(void)
{
    const char *const folder = fixture_folder();
    const char *const held = fixture_format("%s/.y.berth-1-01234567.tmp", folder);
    berthi_writer *writer;
    int fd;

    fixture_text(fixture_format("%s/.x.berth-1-01234567.tmp", folder), "dead");
    fixture_text(held, "alive");
    fixture_link("/etc/passwd", fixture_format("%s/.z.berth-1-01234567.tmp", folder));
    fd = open(held, O_RDONLY | O_CLOEXEC);
    CHECK_EQ(syscall(SYS_flock, fd, LOCK_EX), 0);
    CHECK_EQ(published_open(folder, "job", false, false, &writer, NULL), BERTH_OK);
    CHECK(!published_has(folder, ".x.berth-1-01234567.tmp"));
    CHECK(published_has(folder, ".y.berth-1-01234567.tmp"));
    CHECK(published_has(folder, ".z.berth-1-01234567.tmp")); /* no file of berth's */
    berthi_writer_close(writer);
    close(fd);
    fixture_text(fixture_format("%s/notes.txt", folder), "mine");
    published_refuse(folder, false, false, BERTH_REASON_EXISTS, "not empty");
    published_refuse(folder, false, true, BERTH_REASON_EXISTS, "not empty");
    CHECK_EQ(published_open(folder, "job", true, false, &writer, NULL), BERTH_OK);
    berthi_writer_close(writer);
    published_check(folder, "notes.txt", "mine");
}

static void
test_busy(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *first;
    berthi_writer *second;

    T_REQUIRE(published_open(folder, "job", false, false, &first, NULL) == BERTH_OK);
    published_refuse(folder, false, false, BERTH_REASON_BUSY, "another process");
    published_refuse(folder, true, true, BERTH_REASON_BUSY, "another process");
    /* Where locks mean nothing both come in, and both keep their files apart. */
    forced.lock_error = ENOLCK;
    T_REQUIRE(published_open(folder, "job", false, false, &second, NULL) == BERTH_OK);
    forced.lock_error = 0;
    CHECK_EQ(written_text(first, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(second, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(first, "a", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(second, "a", NULL), BERTH_EINVAL);
    berthi_writer_close(second);
    berthi_writer_close(first);
    published_check(folder, "a", "1");
}

/* The other one was faster with a folder that this one has made: it is not removed. */
static void
test_busy_with_a_new_folder(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    forced.lock_taken = folder;
    CHECK_EQ(published_open(folder, "job", false, false, &writer, NULL), BERTH_EIO);
    CHECK(published_has(above, "out"));
}

/* Removed and made anew by another process between our opening and our lock. */
static void
test_folder_moves_away(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    forced.lock_moves = folder;
    T_REQUIRE(published_open(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK(published_has(folder, PUBLISHED_JOURNAL));
    CHECK(!published_has(fixture_format("%s-moved", folder), PUBLISHED_JOURNAL));
    /* And gone altogether in the middle of the work. */
    fixture_remove(folder);
    CHECK_EQ(written_text(writer, "b", "1", NULL), BERTH_ENOENT);
    berthi_writer_close(writer);
    CHECK(!published_has(above, "out"));
}

/* One that another process has made is not removed, although we have made one, too. */
static void
test_folder_is_made_by_others(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    forced.lock_moves = folder;
    forced.lock_remakes = true;
    T_REQUIRE(published_open(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    forced.lock_remakes = false;
    berthi_writer_close(writer);
    CHECK(published_has(above, "out"));
}

static void
test_read_only(void)
{
    const char *const folder = fixture_folder();
    const pid_t child = fork();
    int how;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        berthi_writer *writer;
        berth_error error;

        if (unshare(CLONE_NEWNS) != 0
            || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
            || mount("none", folder, "tmpfs", MS_RDONLY, "size=64k") != 0)
            _exit(77);
        if (published_open(folder, "job", false, false, &writer, &error) != BERTH_OK)
            _exit(1);
        if (written_text(writer, "a", "1", &error) != BERTH_EIO
            || error.system_error != EROFS)
            _exit(2);
        berthi_writer_close(writer);
        _exit(published_open(fixture_format("%s/out", folder), "job", false, false, &writer,
                             &error) == BERTH_EIO ? 0 : 3);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        T_SKIP("this process may not mount");
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* -------------------------------------------------------------------- faults */

typedef struct fault_case {
    const char *before; /* a folder as it is before the run with the failure */
    bool had_old;
    bool resume;
} fault_case;

/* With the failure, and once more without it. */
static berth_status
run_twice(void *user, berth_context *with, berth_error *error)
{
    static unsigned number;
    const fault_case *const c = user;
    char folder[8192];
    written_run run = { folder, .overwrite = c->had_old, .resume = c->resume };
    berth_status status;
    berth_error second;

    snprintf(folder, sizeof folder, "%s-%u", c->before, number++);
    fixture_copy_folder(c->before, folder);
    status = written_do(&run, with, error);
    CHECK_NE(written_look(folder), WRITTEN_BROKEN);
    if (status != BERTH_OK) {
        berthi_fault_disarm();
        run.resume = true;
        /* Where only the last flush failed a new run has nothing to go on with. */
        if (written_look(folder) == WRITTEN_NEW && !published_has(folder, PUBLISHED_JOURNAL))
            run.overwrite = true;
        CHECK_EQ(written_do(&run, published_context, &second), BERTH_OK);
    }
    CHECK(written_is_clean(folder, c->had_old));
    fixture_remove(folder);
    return status;
}

static void
test_faults(void)
{
    fault_case fresh = { .before = fixture_folder() };
    fault_case replacing = { .before = fixture_folder(), .had_old = true };
    fault_case going_on = { .before = fixture_folder(), .had_old = true, .resume = true };
    fault_counts counts;

    written_make_old(replacing.before);
    counts = fault_loop("a new output", run_twice, &fresh);
    CHECK_GE(counts.system, 300);
    CHECK_GE(counts.memory, 20);
    CHECK_GE(fault_loop("one that replaces", run_twice, &replacing).system, 300);

    written_make_old(going_on.before);
    forced.rename_refuses = "config.json";
    CHECK_EQ(written_do(&(written_run){ going_on.before, .overwrite = true }, published_context,
                        NULL), BERTH_ENOENT);
    forced.rename_refuses = NULL;
    CHECK_GE(fault_loop("one that is being published", run_twice, &going_on).system, 50);
}

/* The folder is made and removed again in these. */
static berth_status
run_in_new_folder(void *user, berth_context *with, berth_error *error)
{
    const char *const folder = user;
    written_run run = { .folder = folder };
    const berth_status status = written_do(&run, with, error);

    berthi_fault_disarm();
    if (status == BERTH_OK)
        CHECK(written_is_clean(folder, false));
    else
        CHECK(access(folder, F_OK) != 0 || published_has(folder, PUBLISHED_JOURNAL)
              || written_look(folder) == WRITTEN_NEW);
    fixture_remove(folder);
    return status;
}

static void
test_faults_with_the_folder(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const fault_counts counts =
        fault_loop("with its folder", run_in_new_folder, (void *)(uintptr_t)folder);

    CHECK_GE(counts.system, 300);
}

int
main(int argc, char **argv)
{
    /* Renames that replace wait for the disk on some file systems. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &published_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_makes_the_folder);
    T_RUN(test_descriptor_zero);
    T_RUN(test_descriptor_zero_above);
    T_RUN(test_relative_folder);
    T_RUN(test_refuses_what_is_not_empty);
    T_RUN(test_busy);
    T_RUN(test_busy_with_a_new_folder);
    T_RUN(test_folder_moves_away);
    T_RUN(test_folder_is_made_by_others);
    T_RUN(test_read_only);
    T_RUN(test_faults);
    T_RUN(test_faults_with_the_folder);
    berth_context_destroy(published_context);
    T_MAIN_END;
}
