/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - opening, exact reads and the identity of files. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "loader/file.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* Opens `name` below `folder` and expects a failure; returns the error's reason. */
static int32_t
refused(const char *folder, const char *name, berthi_file_links links, berth_error *error)
{
    const int fd = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    berthi_file file;
    berth_status status;

    berthi_error_clear(error);
    status = berthi_file_open(&file, fd, name, name, links, error);
    CHECK_NE(status, BERTH_OK);
    CHECK_EQ(file.fd, -1);
    CHECK_EQ(error->status, status);
    berthi_file_close(&file);
    berthi_sys_close(fd);
    return error->reason;
}

static void
test_opens_and_takes_the_identity(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    struct stat state;
    berth_error error;
    berthi_file file;

    fixture_write(path, "0123456789", 10);
    T_REQUIRE(stat(path, &state) == 0);
    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, "shown", BERTHI_FILE_ANYWHERE, &error)
        == 0);
    CHECK_GE(file.fd, 0);
    CHECK_STR(file.path, "shown");
    CHECK_EQ(file.identity.bytes, 10);
    CHECK_EQ(file.identity.inode, (uint64_t)state.st_ino);
    CHECK_EQ(file.identity.device, (uint64_t)state.st_dev);
    CHECK_EQ(file.identity.mtime_ns,
             (int64_t)state.st_mtim.tv_sec * 1000000000 + state.st_mtim.tv_nsec);
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_OK);
    berthi_file_close(&file);
    CHECK_EQ(file.fd, -1);
    berthi_file_close(&file);
    CHECK_EQ(file.fd, -1);
}

static void
test_refuses_what_is_no_file(void)
{
    const char *const folder = fixture_folder();
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    berth_error error;

    fixture_make_folder(fixture_format("%s/folder", folder));
    T_REQUIRE(mkfifo(fixture_format("%s/fifo", folder), 0600) == 0);
    strcpy(address.sun_path, fixture_format("%s/socket", folder));
    T_REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    fixture_link("loop", fixture_format("%s/loop", folder));
    fixture_link("/dev/zero", fixture_format("%s/device", folder));

    CHECK_EQ(refused(folder, "folder", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_NOT_REGULAR);
    CHECK_STR(error.file, "folder");
    CHECK_CONTAINS(error.message, "a directory");
    CHECK_EQ(refused(folder, "fifo", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "pipe, socket or device");
    CHECK_EQ(refused(folder, "socket", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_NOT_REGULAR);
    CHECK_EQ(refused(folder, "device", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_NOT_REGULAR);
    CHECK_EQ(refused(folder, "loop", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_LINK_LOOP);
    CHECK_EQ(error.system_error, ELOOP);
    CHECK_CONTAINS(error.message, "opening");
    CHECK_EQ(refused(folder, "absent", BERTHI_FILE_ANYWHERE, &error), BERTH_REASON_NOT_FOUND);
    CHECK_EQ(refused(folder, "fifo/below", BERTHI_FILE_ANYWHERE, &error),
             BERTH_REASON_NOT_FOUND);
    CHECK_EQ(error.system_error, ENOTDIR);
    close(listener);
}

static void
test_stays_inside(void)
{
    const char *const folder = fixture_folder();
    const char *const inner = fixture_format("%s/inner", folder);
    const int fd = (fixture_make_folder(inner), open(inner, O_RDONLY | O_DIRECTORY));
    berth_error error;
    berthi_file file;

    fixture_text(fixture_format("%s/outside", folder), "x");
    fixture_text(fixture_format("%s/file", inner), "y");
    fixture_link("../outside", fixture_format("%s/leaving", inner));
    fixture_link("file", fixture_format("%s/staying", inner));

    CHECK_EQ(refused(inner, "leaving", BERTHI_FILE_INSIDE, &error), BERTH_REASON_PATH);
    CHECK_EQ(error.status, BERTH_EFORMAT);
    CHECK_EQ(error.system_error, EXDEV);
    CHECK_STR(error.file, "leaving");
    CHECK_EQ(refused(inner, "../outside", BERTHI_FILE_INSIDE, &error), BERTH_REASON_PATH);
    /* Another failure is not a link that leaves; 0 is the look before. */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK_EQ(berthi_file_open(&file, fd, "staying", "p", BERTHI_FILE_INSIDE, &error),
             BERTH_EIO);
    berthi_fault_disarm();
    CHECK_EQ(error.reason, BERTH_REASON_IO);
    CHECK_EQ(berthi_file_open(&file, fd, "leaving", "", BERTHI_FILE_ANYWHERE, &error),
             BERTH_OK);
    berthi_file_close(&file);
    CHECK_EQ(berthi_file_open(&file, fd, "staying", "", BERTHI_FILE_INSIDE, &error), BERTH_OK);
    CHECK_EQ(file.identity.bytes, 1);
    berthi_file_close(&file);
    close(fd);
}

static void
test_reads_exactly(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    char bytes[16] = "";
    berth_error error;
    berthi_file file;

    fixture_write(path, "0123456789", 10);
    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, "p", BERTHI_FILE_ANYWHERE, &error)
        == 0);
    CHECK_EQ(berthi_file_read(&file, bytes, 4, 3, "reading", &error), BERTH_OK);
    CHECK_MEM(bytes, "3456\0", 5);
    CHECK_EQ(berthi_file_read(&file, bytes, 10, 0, "reading", &error), BERTH_OK);
    CHECK_MEM(bytes, "0123456789", 10);
    CHECK_EQ(berthi_file_read(&file, bytes, 0, 77, "reading", &error), BERTH_OK);

    CHECK_EQ(berthi_file_read(&file, bytes, 5, 8, "looking for more", &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TRUNCATED);
    CHECK_EQ(error.has, BERTH_HAS_POSITION | BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.position, 10);
    CHECK_EQ(error.expected, 13);
    CHECK_EQ(error.actual, 10);
    CHECK_STR(error.file, "p");
    CHECK_CONTAINS(error.message, "looking for more: the file ended early");

    /* The 0th system call is the read. */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_EQ(berthi_file_read(&file, bytes, 5, 2, "trying", &error), BERTH_EIO);
    berthi_fault_disarm();
    CHECK_EQ(error.reason, BERTH_REASON_IO);
    CHECK_EQ(error.system_error, EIO);
    CHECK_EQ(error.has, BERTH_HAS_POSITION);
    CHECK_EQ(error.position, 2);
    CHECK_CONTAINS(error.message, "trying failed");
    /* The second read of what the first one gave only a part of. */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK_EQ(berthi_file_read(&file, bytes, 5, 8, "trying", &error), BERTH_EIO);
    berthi_fault_disarm();
    CHECK_EQ(error.position, 10);
    CHECK_EQ(berthi_file_fail_read(&file, EIO, 2, "trying", NULL), BERTH_EIO);
    berthi_file_close(&file);
}

/* Two threads read what one does, and what one cannot say is said as if there were one. */
static void
test_reads_long(void)
{
    const uint64_t length = BERTHI_FILE_LONG + 4100;
    const char *const path = fixture_format("%s/a", fixture_folder());
    char *const written = malloc(length);
    char *const bytes = malloc(length + 9);
    berth_error errors[2];
    berthi_file file;

    T_REQUIRE(written != NULL && bytes != NULL);
    fixture_payload("long", 0, written, length);
    fixture_write(path, written, length);
    T_REQUIRE(berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, "p", BERTHI_FILE_ANYWHERE, NULL)
              == 0);
    memset(bytes, 0, length);
    berthi_fault_disarm();
    /* an odd number of them */
    CHECK_EQ(berthi_file_read_long(&file, bytes, length - 1, 1, "reading", NULL), BERTH_OK);
    CHECK_EQ(berthi_fault_calls(BERTHI_FAULT_SYSTEM), 3); /* a thread, two halves */
    CHECK_MEM(bytes, written + 1, length - 1);
    berthi_fault_disarm();
    CHECK_EQ(berthi_file_read_long(&file, bytes, BERTHI_FILE_LONG - 1, 0, "reading", NULL),
             BERTH_OK);
    CHECK_EQ(berthi_fault_calls(BERTHI_FAULT_SYSTEM), 1);
    CHECK_MEM(bytes, written, BERTHI_FILE_LONG - 1);

    memset(errors, 0, sizeof errors);
    CHECK_EQ(berthi_file_read(&file, bytes, length + 9, 0, "more", &errors[0]), BERTH_EIO);
    CHECK_EQ(berthi_file_read_long(&file, bytes, length + 9, 0, "more", &errors[1]),
             BERTH_EIO);
    CHECK_EQ(errors[1].position, length);
    CHECK_EQ(errors[1].expected, length + 9);
    CHECK_STR(errors[1].message, errors[0].message);
    /* The thread, either half: one failure is survived. */
    for (uint64_t nth = 0; nth < 3; nth++) {
        memset(bytes, 0, length);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK_EQ(berthi_file_read_long(&file, bytes, length, 0, "trying", NULL), BERTH_OK);
        berthi_fault_disarm();
        CHECK_MEM(bytes, written, length);
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(berthi_file_read_long(&file, bytes, length, 0, "trying", &errors[0]), BERTH_EIO);
    berthi_fault_disarm();
    CHECK_EQ(errors[0].position, 0);
    CHECK_CONTAINS(errors[0].message, "trying failed");
    berthi_file_close(&file);
    free(bytes);
    free(written);
}

static void
test_notices_changes(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    const struct timespec times[2] = { { 1, 0 }, { 1000, 0 } };
    berth_error error;
    berthi_file file;

    fixture_write(path, "0123456789", 10);
    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, "p", BERTHI_FILE_ANYWHERE, &error)
        == 0);
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_OK);
    fixture_extend(path, 2);
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_CHANGED);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 10);
    CHECK_EQ(error.actual, 12);
    CHECK_STR(error.file, "p");
    berthi_file_close(&file);

    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, "p", BERTHI_FILE_ANYWHERE, &error)
        == 0);
    T_REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0);
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_CHANGED);
    CHECK_EQ(error.has, 0);
    CHECK_CONTAINS(error.message, "written to");
    berthi_file_close(&file);
}

/* Each of the times and the inode alone is enough. */
static void
test_compares_each_part_of_the_identity(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    berth_error error;
    berthi_file file;

    fixture_write(path, "0123456789", 10);
    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, &error)
        == 0);
    file.identity.mtime_ns++;
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "written to");
    file.identity.mtime_ns--;
    file.identity.ctime_ns--;
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_CHANGED);
    CHECK_CONTAINS(error.message, "its name, links, permissions or content");
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_OK);
    file.identity.mtime_ns++;
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "written to");
    file.identity.mtime_ns--;
    file.identity.bytes++;
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "size changed");
    file.identity.bytes--;
    file.identity.ctime_ns++;
    file.identity.inode++;
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "written to");
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_EIO);
    file.identity.inode--;
    CHECK_EQ(berthi_file_check(&file, NULL), BERTH_OK);
    berthi_file_close(&file);
}

/* What befalls a file that is open, and none of its bytes; and another in its place. */
static void
test_compares_content(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    const char *const link_path = fixture_format("%s.b", path);
    berth_error error;
    berthi_file file;

    fixture_write(path, "0123456789", 10);
    T_REQUIRE(
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, &error)
        == 0);
    fixture_tick(path);
    CHECK_EQ(link(path, link_path), 0);
    CHECK_EQ(berthi_file_check(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "links");
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_OK);
    CHECK_EQ(chmod(path, 0400), 0);
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_OK);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_OK);
    fixture_write(path, "0123456789", 10);
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_CHANGED);
    CHECK_CONTAINS(error.message, "replaced by another");
    CHECK_EQ(rename(link_path, path), 0); /* it is back */
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_OK);
    CHECK_EQ(chmod(path, 0600), 0); /* only root may write to it without */
    fixture_truncate(path, 5);
    CHECK_EQ(berthi_file_check_content(&file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "size changed");
    berthi_file_close(&file);
}

static berth_status
use_once(void *user, berth_context *context, berth_error *error)
{
    const char *const path = user;
    char bytes[10];
    berthi_file file;
    berth_status status;

    (void)context;
    status =
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, error);
    CHECK_EQ(file.fd >= 0, status == BERTH_OK);
    if (status == BERTH_OK)
        status = berthi_file_read(&file, bytes, 10, 0, "reading", error);
    if (status == BERTH_OK)
        status = berthi_file_check(&file, error);
    berthi_file_close(&file);
    return status;
}

static void
test_every_call_can_fail(void)
{
    const char *const path = fixture_format("%s/a", fixture_folder());
    fault_counts counts;

    fixture_write(path, "0123456789", 10);
    counts = fault_loop("file", use_once, (void *)(uintptr_t)path);
    CHECK_EQ(counts.memory, 0);
    CHECK_EQ(counts.system, 2 * 5);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_opens_and_takes_the_identity);
    T_RUN(test_refuses_what_is_no_file);
    T_RUN(test_stays_inside);
    T_RUN(test_reads_exactly);
    T_RUN(test_reads_long);
    T_RUN(test_notices_changes);
    T_RUN(test_compares_each_part_of_the_identity);
    T_RUN(test_compares_content);
    T_RUN(test_every_call_can_fail);
    T_MAIN_END;
}
