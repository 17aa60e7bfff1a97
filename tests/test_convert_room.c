/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_room.c - how much room a conversion asks for on a disk that has only so
 * much: all of it, and after an interruption the rest.
 *
 * The C library's fstatvfs stands here: the disk has what a test says.
 */
#include <string.h>
#include <sys/statvfs.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

static uint64_t free_bytes;

int
fstatvfs(int fd, struct statvfs *out)
{
    (void)fd;
    memset(out, 0, sizeof *out);
    out->f_frsize = 1;
    out->f_blocks = UINT64_C(1) << 50;
    out->f_bavail = free_bytes;
    return 0;
}

static void
begin(converted *c, const char *output, bool resumes)
{
    converted_begin(c, output, BERTH_ENCODING_NF4);
    c->options.max_shard_bytes = 4096;
    c->options.resume = resumes;
    converted_shrink(c, 700);
    c->is_bare = true;
}

/* The bytes that the conversion misses; 0: nothing has to be written any more. */
static uint64_t
missing_bytes(converted *c, const char *model)
{
    free_bytes = 0;
    if (converted_run(c, model) == BERTH_OK)
        return 0;
    CHECK_EQ(c->error.reason, BERTH_REASON_DISK_FULL);
    CHECK_STR(c->error.file, c->options.output);
    CHECK_EQ(c->error.actual, 0);
    return c->error.expected;
}

/* What is only tried asks for the same, and leaves everything as it is. */
static void
check_tried(const char *model, const char *output, uint64_t bytes)
{
    const int files = fixture_count(output);
    converted c;

    begin(&c, output, true);
    c.options.dry_run = 1;
    free_bytes = bytes;
    if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
        T_NOTE("%s", c.error.message);
    free_bytes = bytes - 1;
    if (bytes > 0 && CHECK_NE(converted_run(&c, model), BERTH_OK)) {
        CHECK_EQ(c.error.reason, BERTH_REASON_DISK_FULL);
        CHECK_EQ(c.error.expected, bytes);
    }
    CHECK_EQ(fixture_count(output), files);
}

static const char *
make_model(void)
{
    const char *const model = fixture_folder();

    fixture_model(model, "[model.safetensors]\nBF16 41x64 model.layers.0.a.weight\n"
                         "BF16 41x65 model.layers.1.a.weight\n"
                         "BF16 41x66 model.layers.2.a.weight\n"
                         "BF16 33x41 model.layers.3.a.weight\nF32 9 model.norm.weight\n");
    fixture_text(fixture_format("%s/config.json", model), FIXTURE_CONFIG);
    return model;
}

/* All of the output: with a byte less it does not begin. */
static void
test_all_of_it(void)
{
    const char *const model = make_model();
    uint64_t bytes;
    converted c;

    begin(&c, fixture_format("%s/out", fixture_folder()), false);
    bytes = missing_bytes(&c, model);
    CHECK_EQ(bytes, c.report.output_bytes);
    free_bytes = bytes - 1;
    CHECK_NE(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(c.error.expected, bytes);
    CHECK_EQ(c.error.actual, bytes - 1);
    free_bytes = bytes;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    check_tried(model, c.options.output, 0); /* it is there */
}

/* Breaks the conversion off at its nth system call. False: it came to its end. */
static bool
is_broken_off(const char *model, const char *output, uint64_t nth)
{
    berth_status status;
    converted c;

    begin(&c, output, false);
    free_bytes = UINT64_C(1) << 40;
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, true);
    status = converted_run(&c, model);
    berthi_fault_disarm();
    return status != BERTH_OK;
}

/* What an earlier run has finished is there already. */
static void
check_rest(bool is_tried_first)
{
    const char *const model = make_model();
    const char *const output = fixture_format("%s/out", fixture_folder());
    uint32_t resumed = 0;

    for (uint64_t nth = 0; is_broken_off(model, output, nth); nth += 17) {
        uint64_t bytes;
        converted c;

        begin(&c, output, true);
        c.options.dry_run = is_tried_first;
        bytes = missing_bytes(&c, model);
        c.options.dry_run = 0;
        check_tried(model, output, bytes);
        if (bytes == 0)
            break; /* the end had begun: all files are there, only their names are not */
        free_bytes = bytes;
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
            T_NOTE("after %d calls: %s %s", (int)nth, c.error.file, c.error.message);
        CHECK_LE(bytes, c.report.output_bytes - c.report.bytes_resumed);
        resumed += c.report.bytes_resumed > 0;
        fixture_remove(output);
    }
    CHECK_GT(resumed, 3);
    T_NOTE("%u of them with finished shards", resumed);
}

static void
test_the_rest(void)
{
    check_rest(false);
    check_rest(true);
}

/* A part needs the room of its own shards; together they need that of all. */
static void
test_parts(void)
{
    enum { PARTS = 3 };
    const char *const model = fixture_folder();
    const char *const output = fixture_format("%s/out", fixture_folder());
    uint64_t bytes = 0;
    uint64_t total = 0;
    converted c;

    fixture_model(model, "[model.safetensors]\nBF16 99x64 model.layers.0.a.weight\n"
                         "BF16 99x65 model.layers.1.a.weight\n"
                         "BF16 99x66 model.layers.2.a.weight\n"
                         "BF16 99x67 model.layers.3.a.weight\n");
    begin(&c, output, false);
    c.options.part_count = PARTS;
    for (uint32_t i = 1; i <= PARTS; i++) {
        c.options.part = i;
        bytes = missing_bytes(&c, model);
        total += bytes;
        free_bytes = bytes - 1;
        CHECK_NE(converted_run(&c, model), BERTH_OK);
        free_bytes = i < PARTS ? bytes : UINT64_C(1) << 40; /* the last one joins, too */
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
    }
    CHECK_EQ(c.report.is_joined, 1);
    CHECK_GE(c.report.shards, PARTS);
    for (uint32_t i = 1; i <= c.report.shards; i++)
        total -= fixture_size(fixture_format("%s/model-%05u-of-%05u.safetensors", output, i,
                                             c.report.shards));
    CHECK_EQ(total, 0);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_all_of_it);
    T_RUN(test_the_rest);
    T_RUN(test_parts);
    T_MAIN_END;
}
