/* SPDX-License-Identifier: Apache-2.0 */
/* test_writer.c - a set of files: its folder, what an earlier run left, publishing. */
#define _GNU_SOURCE

#include "loader/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/output.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/written.h"

#define INDEX "model.safetensors.index.json"
#define JOURNAL ".berth-journal.json"

static berth_context *context;

/* These stand before the C library's: what no test can bring about. */
static struct {
    int lock_error;            /* of the next flock                              */
    const char *lock_moves;    /* before the next flock this folder is renamed   */
    bool lock_remakes;         /* and another one makes it anew                  */
    const char *lock_taken;    /* before the next flock another one locks this   */
    const char *rename_refuses; /* renames to this name fail                     */
    const char *unlink_refuses; /* removing this fails                           */
    bool closes_input;         /* before a folder above is opened 0 is closed    */
    bool has_no_noreplace;     /* an old file system                             */
    ino_t flushed[16];         /* folders that were flushed, the latest ones     */
    uint32_t flushed_count;
} world;

int
flock(int fd, int operation)
{
    if (world.lock_moves != NULL) {
        CHECK_EQ(rename(world.lock_moves, fixture_format("%s-moved", world.lock_moves)),
                 0);
        if (world.lock_remakes)
            CHECK_EQ(mkdir(world.lock_moves, 0777), 0);
        world.lock_moves = NULL;
    }
    if (world.lock_taken != NULL) {
        const int other = open(world.lock_taken, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        CHECK_EQ(syscall(SYS_flock, other, operation), 0); /* for as long as this runs */
        world.lock_taken = NULL;
    }
    if (world.lock_error != 0) {
        errno = world.lock_error;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* The disk of these tests is not pulled out. */
int
fsync(int fd)
{
    struct stat state;

    if (fstat(fd, &state) != 0)
        return -1;
    if (S_ISDIR(state.st_mode))
        world.flushed[world.flushed_count++ % 16] = state.st_ino;
    return 0;
}

static bool
was_flushed(const char *folder)
{
    struct stat state;
    bool was = false;

    CHECK_EQ(stat(folder, &state), 0);
    for (uint32_t i = 0; i < 16 && i < world.flushed_count; i++)
        was = was || world.flushed[i] == state.st_ino;
    return was;
}

/* What succeeds may leave anything in errno: of these two what would matter most. */
int
openat(int folder, const char *name, int flags, ...)
{
    mode_t mode = 0;
    int fd;

    if ((flags & O_CREAT) != 0) {
        va_list arguments;

        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    if (world.closes_input && strcmp(name, "..") == 0)
        close(0);
    fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0)
        errno = ENOENT;
    return fd;
}

static int
rename_with(int folder, const char *from, const char *to, unsigned flags)
{
    if (world.rename_refuses != NULL && strcmp(to, world.rename_refuses) == 0) {
        errno = EACCES;
        return -1;
    }
    if (flags != 0 && world.has_no_noreplace) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, folder, from, folder, to, flags);
}

int
unlinkat(int folder, const char *name, int flags)
{
    if (world.unlink_refuses != NULL && strcmp(name, world.unlink_refuses) == 0) {
        errno = EACCES;
        return -1;
    }
    if (syscall(SYS_unlinkat, folder, name, flags) != 0)
        return -1;
    errno = EXDEV;
    return 0;
}

int
renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, 0);
}

int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, flags);
}

/* ------------------------------------------------------------------- helpers */

static berth_status
open_as(const char *folder, const char *job, bool overwrite, bool is_resume,
        berthi_writer **out, berth_error *error)
{
    const berthi_writer_options options = { .job = job,
                                            .overwrite = overwrite,
                                            .resume = is_resume };
    const berth_status status =
        berthi_writer_open(context, folder, &options, out, error);

    CHECK_EQ(*out != NULL, status == BERTH_OK);
    return status;
}

/* Refused for this reason; leaves nothing behind. */
static void
refuse(const char *folder, bool overwrite, bool is_resume, berth_reason reason,
       const char *message)
{
    berthi_writer *writer;
    berth_error error;
    const int fds = fixture_open_fds();

    CHECK_EQ(open_as(folder, "job", overwrite, is_resume, &writer, &error),
             berthi_reason_status((int32_t)reason));
    CHECK_EQ(error.reason, reason);
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_writer_close(writer);
}

static bool
is_there(const char *folder, const char *name)
{
    struct stat state;

    return lstat(fixture_format("%s/%s", folder, name), &state) == 0;
}

static void
check_content(const char *folder, const char *name, const char *expected)
{
    char *text;

    if (!CHECK(is_there(folder, name)))
        return;
    text = fixture_read(fixture_format("%s/%s", folder, name), NULL);
    CHECK_STR(text, expected);
    free(text);
}

/* A run of `job` that ends early, with finished files "a" and "b". */
static void
interrupt(const char *folder, const char *job, bool overwrite)
{
    berthi_writer *writer;

    if (!CHECK_EQ(open_as(folder, job, overwrite, false, &writer, NULL), BERTH_OK))
        return;
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b", "22", NULL), BERTH_OK);
    berthi_writer_close(writer);
}

/* The only temporary file of `name` in the folder. */
static const char *
temporary_of(berthi_writer *writer, const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, berthi_writer_find(writer, name)->temporary);
}

/* -------------------------------------------------------------------- folder */

static void
test_makes_the_folder(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    const mode_t mask = umask(0027);
    struct stat state;
    berthi_writer *writer;

    CHECK_EQ(open_as(fixture_format("%s//", folder), "job", false, false, &writer, NULL),
             BERTH_OK);
    umask(mask);
    CHECK_EQ(stat(folder, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0750);
    berthi_writer_close(writer);
    CHECK(!is_there(above, "out")); /* nothing was finished */

    CHECK_EQ(open_as(folder, "job", false, false, &writer, NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK(is_there(folder, JOURNAL));
    berthi_writer_drop(writer, berthi_writer_find(writer, "a"));
    berthi_writer_close(writer);
    CHECK(!is_there(above, "out")); /* nor is anything left of it */

    fixture_make_folder(folder);
    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(!berthi_writer_is_complete(writer));
    berthi_writer_close(writer);
    CHECK(is_there(above, "out")); /* it was there before */
    interrupt(folder, "job", false);
    CHECK(is_there(folder, JOURNAL));
    refuse(fixture_format("%s/no/out", above), false, false, BERTH_REASON_NOT_FOUND,
           "making the folder");
    fixture_text(fixture_format("%s/file", above), "x");
    refuse(fixture_format("%s/file", above), true, false, BERTH_REASON_NOT_FOUND,
           "opening the folder");
    refuse(fixture_format("%s/models--a--b/blobs", above), false, false,
           BERTH_REASON_NOT_FOUND, "");
    fixture_make_folder(fixture_format("%s/models--a--b", above));
    refuse(fixture_format("%s/models--a--b/blobs", above), false, false,
           BERTH_REASON_ARGUMENT, "hub cache");
    CHECK(!is_there(fixture_format("%s/models--a--b", above), "blobs"));
    CHECK_EQ(open_as(folder, "\xff", false, true, &writer, NULL), BERTH_EINVAL);
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
    if (open_as(folder, "job", true, false, &writer, NULL) != BERTH_OK)
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
        check_content(folder, "a", "1");
    }
}

/* The folder above one that is made can be it, too; nothing was finished. */
static int
make_without_input(const char *folder)
{
    const int fds = fixture_open_fds();
    berthi_writer *writer;

    world.closes_input = true;
    if (open_as(folder, "job", false, false, &writer, NULL) != BERTH_OK
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
    CHECK(!is_there(above, "out"));
}

static void
test_relative_folder(void)
{
    const char *const above = fixture_folder();
    char before[4096];

    T_REQUIRE(getcwd(before, sizeof before) != NULL && chdir(above) == 0);
    interrupt("out", "job", false);
    CHECK(is_there("out", JOURNAL));
    interrupt(".", "job", true);
    /* Made for nothing it goes again, wherever it lies. */
    fixture_make_folder("x");
    for (int i = 0; i < 2; i++) {
        const char *const made = i == 0 ? "made" : "x/made";
        berthi_writer *writer;

        CHECK_EQ(open_as(made, "job", false, false, &writer, NULL), BERTH_OK);
        CHECK(is_there(".", made));
        berthi_writer_close(writer);
        CHECK(!is_there(".", made));
    }
    CHECK_EQ(chdir(before), 0);
    CHECK(is_there(above, JOURNAL));
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
    CHECK_EQ(open_as(folder, "job", false, false, &writer, NULL), BERTH_OK);
    CHECK(!is_there(folder, ".x.berth-1-01234567.tmp"));
    CHECK(is_there(folder, ".y.berth-1-01234567.tmp"));
    CHECK(is_there(folder, ".z.berth-1-01234567.tmp")); /* no file of berth's */
    berthi_writer_close(writer);
    close(fd);
    fixture_text(fixture_format("%s/notes.txt", folder), "mine");
    refuse(folder, false, false, BERTH_REASON_EXISTS, "not empty");
    refuse(folder, false, true, BERTH_REASON_EXISTS, "not empty");
    CHECK_EQ(open_as(folder, "job", true, false, &writer, NULL), BERTH_OK);
    berthi_writer_close(writer);
    check_content(folder, "notes.txt", "mine");
}

static void
test_busy(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *first;
    berthi_writer *second;

    T_REQUIRE(open_as(folder, "job", false, false, &first, NULL) == BERTH_OK);
    refuse(folder, false, false, BERTH_REASON_BUSY, "another process");
    refuse(folder, true, true, BERTH_REASON_BUSY, "another process");
    /* Where locks mean nothing both come in, and both keep their files apart. */
    world.lock_error = ENOLCK;
    T_REQUIRE(open_as(folder, "job", false, false, &second, NULL) == BERTH_OK);
    world.lock_error = 0;
    CHECK_EQ(written_text(first, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(second, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(first, "a", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(second, "a", NULL), BERTH_EINVAL);
    berthi_writer_close(second);
    berthi_writer_close(first);
    check_content(folder, "a", "1");
}

/* The other one was faster with a folder that this one has made: it is not removed. */
static void
test_busy_with_a_new_folder(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    world.lock_taken = folder;
    CHECK_EQ(open_as(folder, "job", false, false, &writer, NULL), BERTH_EIO);
    CHECK(is_there(above, "out"));
}

/* Removed and made anew by another process between our opening and our lock. */
static void
test_folder_moves_away(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    world.lock_moves = folder;
    T_REQUIRE(open_as(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK(is_there(folder, JOURNAL));
    CHECK(!is_there(fixture_format("%s-moved", folder), JOURNAL));
    /* And gone altogether in the middle of the work. */
    fixture_remove(folder);
    CHECK_EQ(written_text(writer, "b", "1", NULL), BERTH_ENOENT);
    berthi_writer_close(writer);
    CHECK(!is_there(above, "out"));
}

/* One that another process has made is not removed, although we have made one, too. */
static void
test_folder_is_made_by_others(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/out", above);
    berthi_writer *writer;

    world.lock_moves = folder;
    world.lock_remakes = true;
    T_REQUIRE(open_as(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    world.lock_remakes = false;
    berthi_writer_close(writer);
    CHECK(is_there(above, "out"));
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
        if (open_as(folder, "job", false, false, &writer, &error) != BERTH_OK)
            _exit(1);
        if (written_text(writer, "a", "1", &error) != BERTH_EIO
            || error.system_error != EROFS)
            _exit(2);
        berthi_writer_close(writer);
        _exit(open_as(fixture_format("%s/out", folder), "job", false, false, &writer,
                      &error) == BERTH_EIO ? 0 : 3);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        T_SKIP("this process may not mount");
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* ------------------------------------------------------------------ resuming */

static void
test_resumes(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;

    interrupt(folder, "job", false);
    refuse(folder, false, false, BERTH_REASON_EXISTS, "--resume");
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK(!berthi_writer_is_complete(writer));
    CHECK(berthi_writer_find(writer, "a") != NULL);
    CHECK_EQ(berthi_writer_find(writer, "b")->bytes, 2);
    CHECK_EQ(written_text(writer, "c", "333", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK);
    berthi_writer_close(writer);
    check_content(folder, "a", "1");
    check_content(folder, "b", "22");
    check_content(folder, "c", "333");
    CHECK(!is_there(folder, JOURNAL));
}

/* Only what is there with its size counts as finished. */
static void
test_resumes_what_is_left(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *a;
    const char *b;
    berthi_writer *writer;

    interrupt(folder, "job", false);
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    a = temporary_of(writer, folder, "a");
    b = temporary_of(writer, folder, "b");
    berthi_writer_close(writer);
    fixture_text(a, "12"); /* another size */
    fixture_remove(b);
    fixture_link("/dev/null", b);
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") == NULL);
    CHECK(berthi_writer_find(writer, "b") == NULL);
    CHECK_EQ(access(a, F_OK), -1);
    berthi_writer_close(writer);
    CHECK(!is_there(folder, JOURNAL));
}

/* Of files that are read the line that differs says nothing to anybody, their name does. */
static void
test_another_source(void)
{
    static const char *const others[][2] = {
        { "source a\nbytes 1\nmodified 2\nsource b\nbytes 1\nmodified 3", "and \"b\" of the" },
        { "source a\nbytes 1\nmodified 1\nsource b\nbytes 1\nmodified 2", "and \"a\" of the" },
        { "source a\nbytes 1\nmodified 2\nsource b\nbytes 2\nmodified 2", "and \"b\" of the" },
        { "source a\nbytes 1\nmodified 2\nsource c\nbytes 1\nmodified 2",
          "there \"source b\", now \"source c\"" },
        { "source a\nbytes 1\nmodified 2\ndecisions 1",
          "there \"source b\", now \"decisions 1\"" },
        { "bytes of a shard 7", "there \"source a\", now \"bytes of a shard 7\"" },
    };
    const char *folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;
    berth_error error;

    interrupt(folder, "source a\nbytes 1\nmodified 2\nsource b\nbytes 1\nmodified 2", false);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_EQ(open_as(folder, others[i][0], false, true, &writer, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, others[i][1]);
    }
    /* An option that begins with the same word, and no file before it. */
    folder = fixture_format("%s/out", fixture_folder());
    interrupt(folder, "bytes of a shard 7", false);
    CHECK_EQ(open_as(folder, "bytes of a shard 8", false, true, &writer, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "now \"bytes of a shard 8\"");
}

static void
test_another_job(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;
    berth_error error;

    interrupt(folder, "quantize\nsource: m\ntype: nf4", false);
    CHECK_EQ(open_as(folder, "quantize\nsource: m\ntype: fp4\nx", false, true, &writer,
                     &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.message,
              "holds an interrupted run of another command: there \"type: nf4\", now "
              "\"type: fp4\"; give what was given then, or --force to begin anew");
    CHECK_STR(error.file, folder);
    CHECK_EQ(open_as(folder, "quantize\nsource: m", true, true, &writer, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "there \"source: m\", now \"source: m\"");
    CHECK_EQ(open_as(folder, "quantize\nsource: m\ntype: nf4", false, true, &writer,
                     &error),
             BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
    /* Begun anew nothing of it is left, and not before. */
    CHECK_EQ(open_as(folder, "other", true, false, &writer, &error), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") == NULL);
    berthi_writer_close(writer);
    CHECK(!is_there(folder, JOURNAL));
    CHECK_EQ(rmdir(folder), 0);
}

static void
test_broken_journal(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;

    fixture_text(fixture_format("%s/%s", folder, JOURNAL), "{");
    refuse(folder, false, true, BERTH_REASON_JOURNAL, "");
    refuse(folder, false, false, BERTH_REASON_EXISTS, "--force");
    CHECK_EQ(open_as(folder, "job", true, false, &writer, NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
    fixture_remove(fixture_format("%s/%s", folder, JOURNAL));
    fixture_make_folder(fixture_format("%s/%s", folder, JOURNAL));
    refuse(folder, true, true, BERTH_REASON_NOT_REGULAR, "directory");
    fixture_remove(fixture_format("%s/%s", folder, JOURNAL));
    fixture_link("nowhere", fixture_format("%s/%s", folder, JOURNAL));
    refuse(folder, false, false, BERTH_REASON_EXISTS, "--resume");
    /* What nobody can read must not be removed file by file. */
    fixture_remove(fixture_format("%s/%s", folder, JOURNAL));
    fixture_write(fixture_format("%s/%s", folder, JOURNAL), "", 0);
    CHECK_EQ(truncate(fixture_format("%s/%s", folder, JOURNAL), 1000000001), 0);
    refuse(folder, false, true, BERTH_REASON_JOURNAL, "too large");
}

/* A single output of another command leaves alone what a journal lists. */
static void
test_output_beside_a_journal(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_output output;
    berthi_writer *writer;

    interrupt(folder, "job", false);
    T_REQUIRE(berthi_output_open(context, fixture_format("%s/a", folder), 0, true,
                                 &output, NULL) == BERTH_OK);
    berthi_output_discard(&output);
    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
}

/* ---------------------------------------------------------------- publishing */

static void
test_publish_refuses(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer_file *file;
    berthi_writer *writer;
    berth_error error;

    T_REQUIRE(open_as(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_EINVAL);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_create(writer, "b", 1, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "not finished");
    berthi_writer_drop(writer, file);
    CHECK_EQ(berthi_writer_publish(writer, "b", &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "no file of the output");
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(written_text(writer, "c", "1", NULL), BERTH_OK);
    /* Somebody else puts a file there: not one of ours gets its name. */
    fixture_text(fixture_format("%s/c", folder), "theirs");
    CHECK_EQ(berthi_writer_publish(writer, "c", &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, fixture_format("%s/c", folder));
    CHECK(!is_there(folder, "a"));
    CHECK(!berthi_writer_is_complete(writer));
    fixture_remove(fixture_format("%s/c", folder));
    world.has_no_noreplace = true;
    CHECK_EQ(berthi_writer_publish(writer, "c", &error), BERTH_OK);
    world.has_no_noreplace = false;
    berthi_writer_close(writer);
    check_content(folder, "c", "1");
}

/* What cannot be replaced or removed is found before anything is. */
static void
test_publish_finds_a_folder(void)
{
    static const char *const names[] = { INDEX, "model.safetensors", "a" };

    for (size_t i = 0; i < 3; i++) {
        const char *const folder = fixture_folder();
        berthi_writer *writer;
        berth_error error;

        fixture_text(fixture_format("%s/%s", folder, names[i == 0]), "old");
        T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
        CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
        fixture_make_folder(fixture_format("%s/%s", folder, names[i]));
        CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_EQ(strncmp(error.file, folder, strlen(folder)), 0);
        CHECK(!berthi_writer_is_complete(writer));
        berthi_writer_close(writer);
        check_content(folder, names[i == 0], "old");
    }
}

/* Mode and owner of what is replaced; links are replaced, not followed. */
static void
test_takes_over(void)
{
    const char *const folder = fixture_folder();
    const char *const a = fixture_format("%s/a", folder);
    struct stat state;
    berthi_writer *writer;

    fixture_text(a, "old");
    CHECK_EQ(chmod(a, 0604), 0);
    fixture_text(fixture_format("%s/target", folder), "target");
    fixture_link("target", fixture_format("%s/b", folder));
    interrupt(folder, "job", true);
    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK); /* as it began */
    berthi_writer_close(writer);
    CHECK_EQ(stat(a, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0604);
    check_content(folder, "a", "1");
    CHECK_EQ(lstat(fixture_format("%s/b", folder), &state), 0);
    CHECK(S_ISREG(state.st_mode));
    check_content(folder, "b", "22");
    check_content(folder, "target", "target");
}

#define MAP(first, second) \
    "{\"weight_map\": {\"x\": \"" first "\", \"y\": \"" second "\"}}"

static void
publish_over(const char *folder, const char *shard, const char *commit)
{
    berthi_writer *writer;

    if (!CHECK_EQ(open_as(folder, "job", true, false, &writer, NULL), BERTH_OK))
        return;
    CHECK_EQ(written_text(writer, shard, "new", NULL), BERTH_OK);
    if (strcmp(shard, commit) != 0)
        CHECK_EQ(written_text(writer, commit, "{}", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, commit, NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(!is_there(folder, JOURNAL));
    check_content(folder, shard, "new");
}

/* What only the old index names goes, and the folder that is empty without it. */
static void
test_stale_shards(void)
{
    const char *const folder = fixture_folder();

    fixture_text(fixture_format("%s/%s", folder, INDEX),
                 MAP("s1.safetensors", "s2.safetensors"));
    fixture_text(fixture_format("%s/s1.safetensors", folder), "old");
    fixture_text(fixture_format("%s/s2.safetensors", folder), "old");
    fixture_text(fixture_format("%s/s3.safetensors", folder), "not named");
    publish_over(folder, "s2.safetensors", INDEX);
    CHECK(!is_there(folder, "s1.safetensors"));
    check_content(folder, "s3.safetensors", "not named");

    fixture_text(fixture_format("%s/%s", folder, INDEX),
                 MAP("s2.safetensors", "sub/s4.safetensors"));
    fixture_text(fixture_format("%s/sub/s4.safetensors", folder), "nested");
    publish_over(folder, "model.safetensors", "model.safetensors");
    CHECK(!is_there(folder, INDEX));
    CHECK(!is_there(folder, "s2.safetensors"));
    CHECK(!is_there(folder, "sub"));

    publish_over(folder, "s1.safetensors", INDEX);
    CHECK(!is_there(folder, "model.safetensors"));

    fixture_text(fixture_format("%s/%s", folder, INDEX), "no index");
    publish_over(folder, "s5.safetensors", INDEX);
    check_content(folder, "s1.safetensors", "new"); /* nobody knows whose it is */
}

/* Of stale shards in folders: nothing behind a link, and no folder that is in use. */
static void
test_stale_folders(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();

    fixture_text(fixture_format("%s/x.safetensors", other), "theirs");
    fixture_link(other, fixture_format("%s/away", folder));
    fixture_text(fixture_format("%s/a/b/y.safetensors", folder), "old");
    fixture_text(fixture_format("%s/a/readme", folder), "kept");
    fixture_text(fixture_format("%s/%s", folder, INDEX),
                 MAP("away/x.safetensors", "a/b/y.safetensors"));
    publish_over(folder, "s.safetensors", INDEX);
    check_content(other, "x.safetensors", "theirs");
    CHECK(is_there(folder, "away"));
    CHECK(!is_there(folder, "a/b"));
    check_content(folder, "a/readme", "kept");
}

/* ------------------------------------------------------------------- folders */

/* Made when their files get their names, or used as they are. */
static void
test_folders(void)
{
    const char *const folder = fixture_folder();
    const char *const old = fixture_format("%s/a/b/old.txt", folder);
    struct stat state;
    berthi_writer *writer;
    char bytes[8] = "";

    fixture_text(old, "old");
    CHECK_EQ(chmod(old, 0604), 0);
    fixture_text(fixture_format("%s/a/theirs", folder), "theirs");
    T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a/b/old.txt", "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "c/d/e/new.txt", "deep", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "model.safetensors", "m", NULL), BERTH_OK);
    CHECK(!is_there(folder, "c"));
    check_content(folder, "a/b/old.txt", "old");
    CHECK(strchr(berthi_writer_find(writer, "c/d/e/new.txt")->temporary, '/') == NULL);
    berthi_writer_close(writer);

    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "c/d/e/new.txt", NULL), BERTH_EINVAL);
    world.flushed_count = 0;
    CHECK_EQ(berthi_writer_publish(writer, "model.safetensors", NULL), BERTH_OK);
    CHECK(was_flushed(folder) && was_flushed(fixture_format("%s/c", folder)));
    CHECK(was_flushed(fixture_format("%s/c/d", folder)));
    CHECK(was_flushed(fixture_format("%s/c/d/e", folder)));
    CHECK(was_flushed(fixture_format("%s/a/b", folder)));
    CHECK_EQ(berthi_writer_read(writer, berthi_writer_find(writer, "c/d/e/new.txt"), bytes,
                                4, 0, NULL), BERTH_OK);
    CHECK_STR(bytes, "deep");
    berthi_writer_close(writer);
    check_content(folder, "a/b/old.txt", "new");
    CHECK_EQ(stat(old, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0604);
    check_content(folder, "a/theirs", "theirs");
    check_content(folder, "c/d/e/new.txt", "deep");
}

/* Nothing is written through a link, nor where a file stands. */
static void
test_folders_in_the_way(void)
{
    const char *const other = fixture_folder();

    for (int is_link = 0; is_link < 2; is_link++) {
        const char *const folder = fixture_folder();
        const char *const place = fixture_format("%s/a", folder);
        berthi_writer_file *file;
        berthi_writer *writer;
        berth_error error;

        T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
        CHECK_EQ(written_text(writer, "a/x.txt", "x", NULL), BERTH_OK);
        CHECK_EQ(written_text(writer, "z", "z", NULL), BERTH_OK);
        if (is_link)
            fixture_link(other, place);
        else
            fixture_text(place, "file");
        CHECK_EQ(berthi_writer_create(writer, "a/y.txt", 1, &file, &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_STR(error.file, fixture_format("%s/a/x.txt", folder));
        CHECK_STR(error.message, "lies in something that is no directory");
        CHECK(!berthi_writer_is_complete(writer));
        CHECK_EQ(unlink(place), 0);
        CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_OK);
        berthi_writer_close(writer);
        check_content(folder, "a/x.txt", "x");
        CHECK(!is_there(other, "x.txt"));
    }
}

/* Put in the way while publishing: found again by the run that goes on. */
static void
test_folders_in_the_way_late(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b/x.txt", "x", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "z", "z", NULL), BERTH_OK);
    world.rename_refuses = "a";
    CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_ENOENT);
    world.rename_refuses = NULL;
    berthi_writer_close(writer);
    fixture_link(other, fixture_format("%s/b", folder));
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    berthi_writer_close(writer);
    CHECK(!is_there(other, "x.txt"));
    CHECK(!is_there(folder, "z"));
    CHECK_EQ(unlink(fixture_format("%s/b", folder)), 0);
    /* A file there: what should be in it is in none, and not yet published. */
    fixture_text(fixture_format("%s/b", folder), "file");
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    berthi_writer_close(writer);
    fixture_remove(fixture_format("%s/b", folder));
    T_REQUIRE(open_as(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_OK);
    berthi_writer_close(writer);
    check_content(folder, "b/x.txt", "x");
}

/*
 * Broken off among the renames: what has its name keeps it, even one that looks
 * like an old commit point, and the next run needs nothing but to go on.
 */
static void
test_interrupted_publishing(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    fixture_text(fixture_format("%s/model.safetensors", folder), "old");
    T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "model.safetensors", "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "z.json", "{}", NULL), BERTH_OK);
    world.rename_refuses = "z.json";
    CHECK_EQ(berthi_writer_publish(writer, "z.json", &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_STR(error.file, fixture_format("%s/z.json", folder));
    world.rename_refuses = NULL;
    CHECK(berthi_writer_is_complete(writer));
    berthi_writer_close(writer);
    check_content(folder, "model.safetensors", "new");

    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_is_complete(writer));
    CHECK(berthi_writer_find(writer, "model.safetensors")->is_finished);
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    check_content(folder, "model.safetensors", "new");
    check_content(folder, "z.json", "{}");
    CHECK(!is_there(folder, JOURNAL));
}

/* An old index or the journal that cannot be removed: told, and done the next time. */
static void
test_publish_cannot_remove(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    fixture_text(fixture_format("%s/%s", folder, INDEX), "old");
    T_REQUIRE(open_as(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, INDEX, "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    world.unlink_refuses = INDEX;
    CHECK_EQ(berthi_writer_publish(writer, INDEX, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "removing the old index");
    check_content(folder, INDEX, "old");
    CHECK(!is_there(folder, "a"));
    world.unlink_refuses = JOURNAL;
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    CHECK_CONTAINS(error.message, "removing the journal");
    world.unlink_refuses = NULL;
    berthi_writer_close(writer);
    check_content(folder, INDEX, "new");
    CHECK_EQ(open_as(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_is_complete(writer));
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    check_content(folder, INDEX, "new");
    CHECK(!is_there(folder, JOURNAL));
}

/* Begun anew after that, shards which have their names are in nobody's way. */
static void
test_anew_after_publishing(void)
{
    const char *const folder = fixture_folder();
    const char *lost;
    berthi_writer *writer;

    T_REQUIRE(open_as(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a/b/c.txt", "c", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "s1.safetensors", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "t.json", "{}", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "u.json", "{}", NULL), BERTH_OK);
    world.rename_refuses = "u.json";
    CHECK_EQ(berthi_writer_publish(writer, "u.json", NULL), BERTH_ENOENT);
    world.rename_refuses = NULL;
    lost = temporary_of(writer, folder, "u.json");
    berthi_writer_close(writer);
    CHECK(is_there(folder, "s1.safetensors"));
    CHECK_EQ(unlink(fixture_format("%s/a/b/c.txt", folder)), 0); /* not there yet */

    CHECK_EQ(open_as(folder, "other", true, false, &writer, NULL), BERTH_OK);
    CHECK(!is_there(folder, "a"));
    berthi_writer_close(writer); /* nothing done: the journal is not its own */
    CHECK(is_there(folder, JOURNAL));
    CHECK_EQ(access(lost, F_OK), -1);
    refuse(folder, false, true, BERTH_REASON_JOURNAL, "has been lost");
    /* Both the journal and an index name it; the new journal names it once. */
    fixture_text(fixture_format("%s/%s", folder, INDEX),
                 MAP("s1.safetensors", "s3.safetensors"));
    fixture_text(fixture_format("%s/s3.safetensors", folder), "old");
    T_REQUIRE(open_as(folder, "other", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "s2.safetensors", "2", NULL), BERTH_OK);
    world.rename_refuses = "s2.safetensors";
    CHECK_EQ(berthi_writer_publish(writer, "s2.safetensors", NULL), BERTH_ENOENT);
    world.rename_refuses = NULL;
    berthi_writer_close(writer);
    CHECK(is_there(folder, "s1.safetensors"));
    T_REQUIRE(open_as(folder, "other", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(!is_there(folder, "s1.safetensors"));
    CHECK(!is_there(folder, "s3.safetensors"));
    check_content(folder, "s2.safetensors", "2");
    check_content(folder, "t.json", "{}");
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
        if (written_look(folder) == WRITTEN_NEW && !is_there(folder, JOURNAL))
            run.overwrite = true;
        CHECK_EQ(written_do(&run, context, &second), BERTH_OK);
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
    world.rename_refuses = "config.json";
    CHECK_EQ(written_do(&(written_run){ going_on.before, .overwrite = true }, context,
                        NULL), BERTH_ENOENT);
    world.rename_refuses = NULL;
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
        CHECK(access(folder, F_OK) != 0 || is_there(folder, JOURNAL)
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
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
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
    T_RUN(test_resumes);
    T_RUN(test_resumes_what_is_left);
    T_RUN(test_another_job);
    T_RUN(test_another_source);
    T_RUN(test_broken_journal);
    T_RUN(test_output_beside_a_journal);
    T_RUN(test_publish_refuses);
    T_RUN(test_publish_finds_a_folder);
    T_RUN(test_takes_over);
    T_RUN(test_stale_shards);
    T_RUN(test_stale_folders);
    T_RUN(test_folders);
    T_RUN(test_folders_in_the_way);
    T_RUN(test_folders_in_the_way_late);
    T_RUN(test_interrupted_publishing);
    T_RUN(test_publish_cannot_remove);
    T_RUN(test_anew_after_publishing);
    T_RUN(test_faults);
    T_RUN(test_faults_with_the_folder);
    berth_context_destroy(context);
    T_MAIN_END;
}
