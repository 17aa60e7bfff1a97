/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_writer_table.c - what parts tell each other: heard when it is whole and of this
 * job, and whether a part is at work.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/writer_parts.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define COUNT 2000u

static berth_context *context;
static berth_error error;

static berthi_writer *
open_part(const char *folder, const char *job, uint32_t part)
{
    const berthi_writer_options options = { .job = job, .part_count = 3, .part = part };
    berthi_writer *writer;

    CHECK_EQ(berthi_writer_open(context, folder, &options, &writer, &error), BERTH_OK);
    return writer;
}

typedef struct heard {
    uint32_t numbers[COUNT];
    uint32_t count;
} heard;

static void
take(void *user, uint32_t index, uint32_t number)
{
    heard *const h = user;

    CHECK_LT(index, COUNT);
    CHECK_GT(number, 0);
    h->numbers[index] = number;
    h->count++;
}

static heard
hear(berthi_writer *writer, uint32_t count)
{
    heard h = { .count = 0 };

    CHECK_EQ(berthi_writer_hear(writer, count, take, &h, &error), BERTH_OK);
    return h;
}

static void
test_told_and_heard(void)
{
    static const uint32_t indices[] = { 0, 1, 510, 511, 512, 513, 1024, 1999 };
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    berthi_writer *const b = open_part(folder, "job\n", 2);

    CHECK_EQ(hear(a, COUNT).count, 0);
    for (uint32_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        CHECK_EQ(berthi_writer_tell(i % 2 > 0 ? a : b, indices[i], 100 + i, &error),
                 BERTH_OK);
        CHECK_EQ(hear(a, COUNT).count, i + 1);
        CHECK_EQ(hear(b, COUNT).numbers[indices[i]], 100 + i);
        CHECK_EQ(hear(b, indices[i]).count, i);
        CHECK_EQ(hear(b, indices[i] + 1).count, i + 1);
    }
    CHECK_EQ(berthi_writer_tell(a, 511, 7, &error), BERTH_OK);
    CHECK_EQ(hear(b, COUNT).numbers[511], 7);
    CHECK_EQ(hear(b, COUNT).numbers[510], 102);
    berthi_writer_close(a);
    berthi_writer_close(b);
}

static void
test_damaged_slots(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    const char *table;
    char *text;

    CHECK_EQ(berthi_writer_tell(a, 0, 130, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_tell(a, 1, 131, &error), BERTH_OK);
    table = fixture_find(folder, "-table$");
    CHECK_EQ(fixture_size(table), 16);
    for (uint64_t at = 0; at < 8; at++) {
        heard h;

        fixture_flip(table, at, 1);
        h = hear(a, COUNT);
        CHECK_EQ(h.count, 1);
        CHECK_EQ(h.numbers[1], 131);
        fixture_flip(table, at, 1);
    }
    /* What stands at another index tells nothing. */
    text = fixture_read(table, NULL);
    fixture_write(table, text + 8, 8);
    CHECK_EQ(hear(a, COUNT).count, 0);
    fixture_write(table, text, 16);
    fixture_truncate(table, 1);
    CHECK_EQ(hear(a, COUNT).count, 1);
    CHECK_EQ(hear(a, COUNT).numbers[0], 130);
    fixture_truncate(table, 15);
    CHECK_EQ(hear(a, COUNT).count, 0);
    free(text);
    berthi_writer_close(a);
}

/* Of another command, under this one's name. */
static void
test_another_job(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const other = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    berthi_writer *const b = open_part(other, "bob\n", 1);

    CHECK_EQ(berthi_writer_tell(a, 3, 130, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_tell(b, 0, 131, &error), BERTH_OK);
    fixture_copy(fixture_find(folder, "-table$"), fixture_find(other, "-table$"));
    CHECK_EQ(hear(b, COUNT).count, 0);
    CHECK_EQ(hear(a, COUNT).count, 1);
    berthi_writer_close(a);
    berthi_writer_close(b);
}

static void
test_who_is_there(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    berthi_writer *const b = open_part(folder, "job\n", 2);

    CHECK(berthi_writer_is_part_there(a, 2));
    CHECK(berthi_writer_is_part_there(b, 1));
    CHECK(!berthi_writer_is_part_there(b, 3));
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false); /* no locks here */
    CHECK(!berthi_writer_is_part_there(a, 2));
    berthi_fault_disarm();
    CHECK(berthi_writer_is_part_there(a, 2));
    berthi_writer_close(b);
    CHECK(!berthi_writer_is_part_there(a, 2));
    berthi_writer_close(a);
}

/* Who looks whether a part is there has its lock for a moment. */
static void
test_begins_while_others_look(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const berthi_writer_options options = { .job = "job\n", .part_count = 3, .part = 2 };
    berthi_writer *a = open_part(folder, "job\n", 1);
    berthi_writer *b = open_part(folder, "job\n", 2);
    int lock;

    berthi_writer_close(b);
    lock = open(fixture_find(folder, "00002-of-00003.json.lock$"), O_RDONLY | O_CLOEXEC);
    T_REQUIRE(lock >= 0);
    CHECK_EQ(flock(lock, LOCK_SH), 0);
    CHECK_NE(berthi_writer_open(context, folder, &options, &b, &error), BERTH_OK);
    CHECK_EQ(error.reason, BERTH_REASON_BUSY);
    CHECK_STR(error.message, "another process is part 2 of 3");
    if (fork() == 0) {
        usleep(4000);
        _exit(flock(lock, LOCK_UN)); /* of both: they have it together */
    }
    b = open_part(folder, "job\n", 2);
    CHECK(berthi_writer_is_part_there(a, 2));
    CHECK_GT(wait(NULL), 0);
    close(lock);
    berthi_writer_close(b);
    berthi_writer_close(a);
}

/* Without a standard input 0 is a descriptor like others. */
static void
test_descriptor_zero(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    berthi_writer *const b = open_part(folder, "job\n", 2);
    const pid_t child = fork();
    int how = -1;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        heard h;

        close(0);
        if (berthi_writer_tell(a, 3, 130, &error) != BERTH_OK)
            _exit(1);
        h = hear(b, COUNT);
        if (h.count != 1 || h.numbers[3] != 130)
            _exit(2);
        if (!berthi_writer_is_part_there(a, 2) || berthi_writer_is_part_there(a, 3))
            _exit(3);
        _exit(open("/dev/null", O_RDONLY) == 0 ? 0 : 4); /* all were closed */
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    berthi_writer_close(b);
    berthi_writer_close(a);
}

static void
test_failures(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const a = open_part(folder, "job\n", 1);
    heard h = { .count = 0 };

    for (uint64_t nth = 0; nth < 2; nth++) {
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK_NE(berthi_writer_tell(a, 5, 6, &error), BERTH_OK);
        berthi_fault_disarm();
        CHECK_STR(error.file, folder);
        CHECK_EQ(hear(a, COUNT).count, 0);
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_NE(berthi_writer_tell(a, 5, 6, &error), BERTH_OK);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "opening the table of parts");
    CHECK_EQ(berthi_writer_tell(a, 5, 6, &error), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_NE(berthi_writer_hear(a, COUNT, take, &h, &error), BERTH_OK);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "opening the table of parts");
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK_NE(berthi_writer_hear(a, COUNT, take, &h, &error), BERTH_OK);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "reading the table of parts");
    CHECK_STR(error.file, folder);
    CHECK_EQ(h.count, 0);
    CHECK_EQ(hear(a, COUNT).count, 1);
    berthi_writer_close(a);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_told_and_heard);
    T_RUN(test_damaged_slots);
    T_RUN(test_another_job);
    T_RUN(test_who_is_there);
    T_RUN(test_begins_while_others_look);
    T_RUN(test_descriptor_zero);
    T_RUN(test_failures);
    berth_context_destroy(context);
    T_MAIN_END;
}
