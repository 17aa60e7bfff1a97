/* SPDX-License-Identifier: Apache-2.0 */
/* test_slice.c - rows and columns of tensors, as ranks of tensor parallelism read them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define PAGES UINT64_C(8192)

static const char *const lines = "[model-00001-of-00002.safetensors]\n"
                                 "F32 8x6 a.small\n"
                                 "BF16 1001x513 b.odd\n"
                                 "U8 5x7x11 c.cube\n"
                                 "F32 9 d.vector\n"
                                 "F32 0x4 e.empty\n"
                                 "F32 - f.scalar\n"
                                 "[model-00002-of-00002.safetensors]\n"
                                 "F32 3000x1100 g.large\n"
                                 "U8 100000x3 h.narrow\n"
                                 "F4 6x10 i.packed\n";

static const char *const names[] = {"a.small", "b.odd",   "c.cube",  "d.vector",
                                    "e.empty", "g.large", "h.narrow"};

#define NAMES (sizeof names / sizeof names[0])

typedef struct opened_model {
    berth_context *context;
    berth_checkpoint *checkpoint;
} opened_model;

static const char *
make_model(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, lines);
    return folder;
}

static bool
can_open(opened_model *m, const char *folder)
{
    *m = (opened_model){.context = NULL};
    return CHECK_EQ(berth_context_create(NULL, &m->context, NULL), BERTH_OK)
           && CHECK_EQ(berth_checkpoint_open(m->context, folder, NULL, &m->checkpoint, NULL),
                    BERTH_OK);
}

static void
close_model(opened_model *m)
{
    berth_checkpoint_close(m->checkpoint);
    berth_context_destroy(m->context);
}

static uint64_t
find(const opened_model *m, const char *name)
{
    return berth_checkpoint_find(m->checkpoint, name, strlen(name));
}

static void *
alloc(uint64_t bytes)
{
    uint8_t *const memory = malloc((size_t)bytes + 1);

    if (memory == NULL)
        abort();
    memset(memory, 0xEE, (size_t)bytes + 1);
    return memory;
}

/* What the slice is, byte for byte, by another way. */
static uint8_t *
expected_bytes(const opened_model *m, const berth_slice *s)
{
    berth_tensor t;
    uint64_t inner, outer = 1;
    uint8_t *whole;
    uint8_t *const out = alloc(s->bytes);

    berth_checkpoint_tensor(m->checkpoint, s->tensor, &t);
    whole = alloc(t.bytes);
    CHECK_EQ(berth_checkpoint_read(m->checkpoint, s->tensor, 0, UINT64_MAX, whole, t.bytes,
                                   NULL),
             BERTH_OK);
    inner = berth_dtype_bits(t.dtype) / 8;
    for (uint32_t i = 0; i < s->dimension; i++)
        outer *= t.shape[i];
    for (uint32_t i = s->dimension + 1; i < t.rank; i++)
        inner *= t.shape[i];
    for (uint64_t row = 0; row < outer; row++)
        memcpy(out + row * s->count * inner,
               whole + (row * t.shape[s->dimension] + s->first) * inner, s->count * inner);
    free(whole);
    return out;
}

static berth_status
read_slices(const opened_model *m, const berth_slice *slices, uint32_t count,
            uint32_t workers, berth_slices_report *report, berth_error *error)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_slices_options options;
    berth_job *job = NULL;
    berth_status status;

    berth_slices_options_init(&options);
    options.workers = workers;
    options.report = report;
    memset(report, 0, sizeof *report);
    status = berth_slices_start(m->context, m->checkpoint, slices, count, &options, &job,
                                error);
    CHECK((status == BERTH_OK) == (job != NULL));
    if (status == BERTH_OK)
        status = berth_job_finish(job, error);
    if (status == BERTH_OK) { /* from the start on, and no longer */
        CHECK(report->seconds > 0);
        CHECK(report->seconds <= 1e-9 * (double)(berthi_sys_now_ns() - begin_ns));
    }
    return status;
}

/* Reads them, compares them, frees their memory. Returns bytes that were read. */
static uint64_t
check_slices(const opened_model *m, berth_slice *slices, uint32_t count, uint32_t workers)
{
    berth_slices_report report;
    uint64_t bytes = 0;
    berth_error error;

    for (uint32_t i = 0; i < count; i++) {
        slices[i].memory = alloc(slices[i].bytes);
        bytes += slices[i].bytes;
    }
    if (!CHECK_EQ(read_slices(m, slices, count, workers, &report, &error), BERTH_OK))
        t_note("%s", error.message);
    CHECK_EQ(report.bytes, bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *const expected = expected_bytes(m, &slices[i]);

        CHECK_MEM(slices[i].memory, expected, (size_t)slices[i].bytes);
        CHECK_EQ(((uint8_t *)slices[i].memory)[slices[i].bytes], 0xEE);
        free(expected);
        free(slices[i].memory);
    }
    return report.bytes_read;
}

/* ----------------------------------------------------------------------------- parts */

/* Every dimension of every tensor, in 1 to 4 parts, which are together the whole. */
static void
test_parts(void)
{
    opened_model m;

    if (!can_open(&m, make_model()))
        return;
    for (size_t n = 0; n < NAMES; n++) {
        berth_tensor t;

        berth_checkpoint_tensor(m.checkpoint, find(&m, names[n]), &t);
        for (uint32_t d = 0; d < t.rank; d++)
            for (uint32_t parts = 1; parts <= 4; parts++) {
                uint64_t next = 0, bytes = 0;

                for (uint32_t part = 0; part < parts; part++) {
                    berth_slice s;

                    CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, names[n]), d, part,
                                                parts, &s, NULL),
                             BERTH_OK);
                    CHECK_EQ(s.first, t.shape[d] * part / parts);
                    CHECK_EQ(s.first, next);
                    next = s.first + s.count;
                    bytes += s.bytes;
                    check_slices(&m, &s, 1, parts);
                }
                CHECK_EQ(next, t.shape[d]);
                CHECK_EQ(bytes, t.bytes);
            }
    }
    close_model(&m);
}

/* What all weights of a rank take, in one pass and any order. */
static void
test_together(void)
{
    opened_model m;
    berth_slice s[2 * NAMES];
    uint32_t count = 0;

    if (!can_open(&m, make_model()))
        return;
    for (size_t n = 0; n < NAMES; n++)
        for (uint32_t part = 0; part < 2; part++)
            CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, names[NAMES - 1 - n]),
                                        n % 2 != 0 && names[NAMES - 1 - n][0] != 'd', part,
                                        2, &s[count++], NULL),
                     BERTH_OK);
    check_slices(&m, s, count, 3);
    CHECK_EQ(check_slices(&m, s, 0, 0), 0);
    close_model(&m);
}

/* --------------------------------------------------------------------- bytes that are read */

static void
test_rows_are_ranges(void)
{
    opened_model m;

    if (!can_open(&m, make_model()))
        return;
    for (uint32_t part = 0; part < 4; part++) {
        berth_slice s;
        uint64_t bytes;

        CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, "g.large"), 0, part, 4, &s, NULL),
                 BERTH_OK);
        CHECK_EQ(s.bytes, 750 * 1100 * 4);
        bytes = check_slices(&m, &s, 1, 2);
        CHECK_GE(bytes, s.bytes);
        CHECK_LE(bytes, s.bytes + PAGES);
    }
    close_model(&m);
}

/* Whole rows, once: for one share of the columns and for all of them together. */
static void
test_columns_are_read_once(void)
{
    const uint64_t whole = UINT64_C(3000) * 1100 * 4;
    opened_model m;
    berth_slice s[4];

    if (!can_open(&m, make_model()))
        return;
    for (uint32_t part = 0; part < 4; part++) {
        CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, "g.large"), 1, part, 4, &s[part],
                                    NULL),
                 BERTH_OK);
        CHECK_EQ(s[part].bytes, whole / 4);
    }
    CHECK_LE(check_slices(&m, &s[1], 1, 2), whole + PAGES);
    CHECK_LE(check_slices(&m, s, 4, 2), whole + PAGES);
    /* The same rows twice are read once, too. */
    s[1] = s[0];
    CHECK_LE(check_slices(&m, s, 2, 2), whole + PAGES);
    close_model(&m);
}

/* Ranges of the caller's choice: the first and the last row, one column. */
static void
test_ranges(void)
{
    static const struct {
        uint32_t dimension;
        uint64_t first;
        uint64_t count;
        uint64_t bytes;
    } ranges[] = {{0, 0, 1, 1026},   {0, 1000, 1, 1026}, {1, 0, 1, 2002},
                  {1, 512, 1, 2002}, {1, 3, 0, 0},       {0, 1001, 0, 0},
                  {1, 1, 511, 1022 * 1001}};
    opened_model m;

    if (!can_open(&m, make_model()))
        return;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        berth_slice s = {.tensor = find(&m, "b.odd"),
                         .dimension = ranges[i].dimension,
                         .first = ranges[i].first,
                         .count = ranges[i].count};

        CHECK_EQ(berth_slice_measure(m.checkpoint, &s, NULL), BERTH_OK);
        CHECK_EQ(s.bytes, ranges[i].bytes);
        check_slices(&m, &s, 1, 1);
    }
    close_model(&m);
}

/* Through the page cache and past it, with a ring of the smallest size. */
static void
test_ways_of_reading(void)
{
    static const int32_t ways[] = {BERTH_IO_BUFFERED, BERTH_IO_DIRECT};
    opened_model m;

    if (!can_open(&m, make_model()))
        return;
    for (uint32_t i = 0; i < 2; i++) {
        berth_slices_options options;
        berth_slices_report report;
        uint8_t *expected;
        berth_slice s;
        berth_job *job = NULL;

        CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, "g.large"), 1, i, 3, &s, NULL),
                 BERTH_OK);
        s.memory = alloc(s.bytes);
        berth_slices_options_init(&options);
        options.io = ways[i];
        options.no_uring = 1;
        options.readers = 2;
        options.ring_bytes = 1;
        options.report = &report;
        CHECK_EQ(berth_slices_start(m.context, m.checkpoint, &s, 1, &options, &job, NULL),
                 BERTH_OK);
        CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
        CHECK_CONTAINS(report.io_path, "threads");
        expected = expected_bytes(&m, &s);
        CHECK_MEM(s.memory, expected, (size_t)s.bytes);
        free(expected);
        free(s.memory);
    }
    close_model(&m);
}

/* ---------------------------------------------------------------------------- errors */

static void
check_refused(const opened_model *m, berth_slice s, const char *message)
{
    berth_slices_report report;
    berth_error error;
    uint8_t memory[64];

    s.memory = memory;
    CHECK_EQ(read_slices(m, &s, 1, 1, &report, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, message);
}

static void
test_errors(void)
{
    berth_slice s = {.count = 1};
    berth_slices_options options;
    berth_error error;
    opened_model m;
    berth_job *job;
    uint64_t small, packed;

    if (!can_open(&m, make_model()))
        return;
    small = find(&m, "a.small");
    packed = find(&m, "i.packed");
    check_refused(&m, (berth_slice){.tensor = 99, .count = 1}, "is of no tensor");
    check_refused(&m, (berth_slice){.tensor = small, .dimension = 2}, "no such dimension");
    check_refused(&m, (berth_slice){.tensor = find(&m, "f.scalar")}, "no such dimension");
    check_refused(&m, (berth_slice){.tensor = small, .first = 9}, "reach so far");
    check_refused(&m, (berth_slice){.tensor = small, .first = 1, .count = 8},
                  "reach so far");
    check_refused(&m, (berth_slice){.tensor = small, .count = UINT64_MAX}, "reach so far");
    check_refused(&m, (berth_slice){.tensor = small, .count = 1, .bytes = 25},
                  "of another size");
    check_refused(&m, (berth_slice){.tensor = packed, .dimension = 1, .count = 3},
                  "no whole bytes");
    CHECK_EQ(berth_slice_divide(m.checkpoint, packed, 1, 1, 5, &s, &error), BERTH_OK);
    CHECK_EQ(s.bytes, 6);
    CHECK_EQ(berth_slice_divide(m.checkpoint, small, 0, 2, 2, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_divide(m.checkpoint, small, 0, 0, 0, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_divide(m.checkpoint, 99, 0, 0, 1, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_divide(m.checkpoint, small, 2, 0, 1, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_divide(NULL, small, 0, 0, 1, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_divide(m.checkpoint, small, 0, 0, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_measure(NULL, &s, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slice_measure(m.checkpoint, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slices_start(NULL, m.checkpoint, &s, 0, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_slices_start(m.context, NULL, &s, 0, NULL, &job, &error), BERTH_EINVAL);
    CHECK_EQ(berth_slices_start(m.context, m.checkpoint, NULL, 1, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_slices_start(m.context, m.checkpoint, &s, 0, NULL, NULL, &error),
             BERTH_EINVAL);
    berth_slices_options_init(&options);
    options.io = 77;
    CHECK_EQ(berth_slices_start(m.context, m.checkpoint, &s, 0, &options, &job, &error),
             BERTH_EINVAL);
    CHECK(job == NULL);
    close_model(&m);
}

/* A file that has become shorter since it was opened. */
static void
test_truncated(void)
{
    const char *const folder = make_model();
    berth_slices_report report;
    berth_error error;
    opened_model m;
    berth_slice s;

    if (!can_open(&m, folder))
        return;
    CHECK_EQ(berth_slice_divide(m.checkpoint, find(&m, "g.large"), 1, 0, 2, &s, NULL),
             BERTH_OK);
    fixture_truncate(fixture_format("%s/model-00002-of-00002.safetensors", folder), 5000000);
    s.memory = alloc(s.bytes);
    CHECK_NE(read_slices(&m, &s, 1, 2, &report, &error), BERTH_OK);
    CHECK_CONTAINS(error.file, "model-00002-of-00002");
    free(s.memory);
    close_model(&m);
}

static berth_status
read_once(void *user, berth_context *context, berth_error *error)
{
    berth_checkpoint *checkpoint = NULL;
    berth_slice s[2];
    berth_job *job = NULL;
    berth_status status =
        berth_checkpoint_open(context, user, NULL, &checkpoint, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < 2; i++) {
        (void)berth_slice_divide(checkpoint, 6 * i, i, 1, 2, &s[i], NULL);
        s[i].memory = alloc(s[i].bytes);
    }
    status = berth_slices_start(context, checkpoint, s, 2, NULL, &job, error);
    if (status == BERTH_OK)
        status = berth_job_finish(job, error);
    free(s[0].memory);
    free(s[1].memory);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_all_calls_can_fail(void)
{
    const char *const folder = make_model();
    const fault_counts counts =
        fault_loop("slices", read_once, (void *)(uintptr_t)folder);

    CHECK_GT(counts.memory, 30);
    CHECK_GT(counts.system, 20);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_parts);
    T_RUN(test_together);
    T_RUN(test_rows_are_ranges);
    T_RUN(test_columns_are_read_once);
    T_RUN(test_ranges);
    T_RUN(test_ways_of_reading);
    T_RUN(test_errors);
    T_RUN(test_truncated);
    T_RUN(test_all_calls_can_fail);
    return t_end();
}
