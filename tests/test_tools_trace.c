/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_trace.c - traces as files: what a viewer gets of a load, and JSON lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "quant/json.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tools/trace.h"

#define ROWS  128u
#define BOXES 8192u

static const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "trace" };
static const cli_command command = { .name = "test" };

static uint64_t
number_of(const berthi_json_value *object, const char *key)
{
    uint64_t number = UINT64_MAX;

    (void)berthi_json_can_read_unsigned(berthi_json_get(object, key), &number);
    return number;
}

static double
real_of(const berthi_json_value *object, const char *key)
{
    double number = -1;

    CHECK(berthi_json_can_read_double(berthi_json_get(object, key), &number));
    return number;
}

static const char *
text_of(const berthi_json_value *object, const char *key)
{
    const char *text = "";

    (void)berthi_json_can_read_string(berthi_json_get(object, key), &text);
    return text;
}

/* ------------------------------------------------------------------------- viewers */

/* In nanoseconds: the file has three places behind the microseconds. */
typedef struct box {
    uint64_t row;
    int64_t begin;
    int64_t end;
} box;

typedef struct chart {
    box drawn[BOXES];
    uint64_t pids[ROWS]; /* of rows, by their number */
    char names[ROWS][96];
    char processes[32][48];
    uint64_t boxes;
    uint64_t bytes[BERTH_TRACE_KIND_COUNT]; /* of kinds, streams left out */
} chart;

static void
take_name(chart *c, const berthi_json_value *e)
{
    const uint64_t pid = number_of(e, "pid");
    const uint64_t tid = number_of(e, "tid");
    const char *const name = text_of(berthi_json_get(e, "args"), "name");

    if (strcmp(text_of(e, "name"), "process_name") == 0) {
        CHECK_EQ(tid, UINT64_MAX);
        if (CHECK_LT(pid, 32)) {
            CHECK_STR(c->processes[pid], "");
            snprintf(c->processes[pid], sizeof c->processes[pid], "%s", name);
        }
        return;
    }
    CHECK_STR(text_of(e, "name"), "thread_name");
    if (CHECK_LT(tid, ROWS)) {
        CHECK(c->pids[tid] == 0 || c->pids[tid] == pid);
        c->pids[tid] = pid;
        snprintf(c->names[tid], sizeof c->names[tid], "%s", name);
    }
}

static int64_t
nanoseconds_of(const berthi_json_value *e, const char *key)
{
    return (int64_t)(real_of(e, key) * 1e3 + 0.5);
}

static int
compare_boxes(const void *a, const void *b)
{
    const box *const one = a;
    const box *const other = b;

    if (one->row != other->row)
        return one->row < other->row ? -1 : 1;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    return one->end > other->end ? -1 : one->end < other->end;
}

/* What a viewer draws into one row lies in what is around it, or behind what was before. */
static void
check_rows(chart *c)
{
    const box *around[32];
    uint32_t depth = 0;

    CHECK_LE(c->boxes, BOXES);
    qsort(c->drawn, c->boxes, sizeof *c->drawn, compare_boxes);
    for (uint64_t i = 0; i < c->boxes; i++) {
        const box *const b = &c->drawn[i];

        while (depth > 0
               && (around[depth - 1]->row != b->row || around[depth - 1]->end <= b->begin))
            depth--;
        if (depth > 0 && !CHECK_LE(b->end, around[depth - 1]->end))
            T_NOTE("in row %s", c->names[b->row]);
        if (CHECK_LT(depth, 32))
            around[depth++] = b;
    }
}

static void
take_box(chart *c, const berthi_json_value *e)
{
    const uint64_t tid = number_of(e, "tid");
    const uint64_t bytes = number_of(berthi_json_get(e, "args"), "bytes");

    CHECK_STR(text_of(e, "ph"), "X");
    CHECK(real_of(e, "ts") >= 0);
    CHECK(real_of(e, "dur") >= 0);
    CHECK_CONTAINS(text_of(e, "name"), text_of(e, "cat"));
    if (CHECK_LT(tid, ROWS)) {
        CHECK_EQ(c->pids[tid], number_of(e, "pid"));
        CHECK(c->names[tid][0] != '\0');
    }
    if (c->boxes < BOXES)
        c->drawn[c->boxes] =
            (box){ tid, nanoseconds_of(e, "ts"),
                   nanoseconds_of(e, "ts") + nanoseconds_of(e, "dur") };
    c->boxes++;
    for (int32_t k = 0; k < BERTH_TRACE_KIND_COUNT; k++)
        if (strcmp(text_of(e, "cat"), berth_trace_kind_name(k)) == 0 && bytes != UINT64_MAX
            && number_of(e, "pid") % 10 != BERTH_LANE_STREAM + 1)
            c->bytes[k] += bytes;
}

static void
read_chart(const char *path, berth_context *context, chart *c)
{
    char *const text = fixture_read(path, NULL);
    const berthi_json_value *e;
    berthi_json *document;
    berth_error error;

    memset(c, 0, sizeof *c);
    T_REQUIRE(berthi_json_parse(context, text, strlen(text), 0, &origin, &document, &error)
              == BERTH_OK);
    e = berthi_json_first(berthi_json_get(berthi_json_root(document), "traceEvents"));
    for (; e != NULL; e = berthi_json_next(e))
        if (strcmp(text_of(e, "ph"), "M") == 0)
            take_name(c, e);
        else
            take_box(c, e);
    berthi_json_destroy(document);
    free(text);
    check_rows(c);
}

static uint64_t
count_lines(const char *path, berth_context *context, uint64_t *read_bytes)
{
    char *const text = fixture_read(path, NULL);
    uint64_t lines = 0;

    *read_bytes = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const berthi_json_value *e;
        berthi_json *document;

        lines++;
        if (!CHECK_EQ(berthi_json_parse(context, line, strlen(line), 0, &origin, &document,
                                        NULL),
                      BERTH_OK))
            continue;
        e = berthi_json_root(document);
        CHECK_LE(number_of(e, "begin_ns"), number_of(e, "end_ns"));
        if (strcmp(text_of(e, "kind"), "read") == 0) {
            CHECK_STR(text_of(e, "lane"), "read");
            *read_bytes += number_of(e, "bytes");
        }
        berthi_json_destroy(document);
    }
    free(text);
    return lines;
}

/* A load on two simulated devices: every row has a name, sums are those of the report. */
static void
test_load(void)
{
    const char *const folder = fixture_folder();
    const char *const chrome = fixture_format("%s/trace.json", folder);
    const char *const events = fixture_format("%s/events.jsonl", folder);
    berth_plan_options options = loaded_options("0=24MiB,1=24MiB,cpu=1GiB");
    static chart c;
    uint64_t read_bytes;
    uint64_t lines;
    loaded l;
    trace t;

    T_REQUIRE(trace_begin(&t, &command, chrome, events, false) == BERTH_OK);
    CHECK(trace_is_on(&t));
    loaded_begin(&l, loaded_large(4, 2), &options, "sim:32MiB*2");
    l.p.context->trace = trace_event;
    l.p.context->trace_user = &t;
    trace_name(&t, l.p.checkpoint, l.p.plan);
    loaded_load(&l);
    loaded_unload(&l);
    l.p.context->trace = NULL;
    trace_name(&t, NULL, NULL);
    CHECK_EQ(trace_end(&t, BERTH_OK), BERTH_OK);
    read_chart(chrome, l.p.context, &c);
    lines = count_lines(events, l.p.context, &read_bytes);
    CHECK_EQ(c.bytes[BERTH_TRACE_READ], l.report.bytes_read);
    CHECK_EQ(c.bytes[BERTH_TRACE_PLACE], l.report.placed_bytes);
    CHECK_EQ(read_bytes, l.report.bytes_read);
    CHECK_GT(c.boxes, lines); /* work of streams is drawn twice */
    CHECK_STR(c.processes[BERTH_LANE_THREAD + 1], "threads");
    CHECK_STR(c.processes[BERTH_LANE_READ + 1], "reads in flight");
    CHECK_STR(c.processes[BERTH_LANE_LINK + 11], "links, simulated time");
    CHECK_STR(c.processes[BERTH_LANE_STREAM + 11], "streams, simulated time");
    loaded_end(&l);
}

/* ------------------------------------------------------------------------ by hand */

static berth_trace_event
event_of(int32_t kind, int32_t lane, uint64_t number, const char *name)
{
    return (berth_trace_event){ .kind = kind,
                                .lane = lane,
                                .number = number,
                                .name = name,
                                .is_simulated = 1,
                                .begin_ns = 1500,
                                .end_ns = 4001,
                                .tensor = BERTH_NO_TENSOR,
                                .layer = BERTH_NO_INDEX,
                                .shard = BERTH_NO_INDEX };
}

static void
test_text(void)
{
    static const char expected_chrome[] =
        "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":13,\"args\":{\"name\":\"links, "
        "simulated time\"}}\n"
        ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":13,\"tid\":1,\"args\":{\"name\":"
        "\"sim:0 to device\"}}\n"
        ",{\"name\":\"copy\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":13,\"tid\":1,\"ts\":1.500,"
        "\"dur\":2.501,\"args\":{\"bytes\":7,\"stream\":2}}\n"
        ",{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":15,\"args\":{\"name\":\"streams, "
        "simulated time\"}}\n"
        ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":15,\"tid\":2,\"args\":{\"name\":"
        "\"stream 2\"}}\n"
        ",{\"name\":\"copy\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":15,\"tid\":2,\"ts\":1.500,"
        "\"dur\":2.501,\"args\":{\"bytes\":7,\"stream\":2}}\n"
        "]}\n";
    static const char expected_events[] =
        "{\"kind\":\"copy\",\"lane\":\"link\",\"number\":4,\"name\":\"sim:0 to device\","
        "\"is_simulated\":true,\"begin_ns\":1500,\"end_ns\":4001,\"bytes\":7,\"stream\":2}\n";
    const char *const folder = fixture_folder();
    const char *const chrome = fixture_format("%s/trace.json", folder);
    const char *const events = fixture_format("%s/events.jsonl", folder);
    berth_trace_event e = event_of(BERTH_TRACE_COPY, BERTH_LANE_LINK, 4, "sim:0 to device");
    char *text;
    trace t;

    T_REQUIRE(trace_begin(&t, &command, chrome, events, false) == BERTH_OK);
    e.bytes = 7;
    e.stream = 2;
    trace_event(&t, &e);
    e.lane = BERTH_LANE_COUNT; /* of a later library: left away */
    trace_event(&t, &e);
    CHECK_EQ(trace_end(&t, BERTH_EIO), BERTH_EIO);
    text = fixture_read(chrome, NULL);
    CHECK_STR(text, expected_chrome);
    free(text);
    text = fixture_read(events, NULL);
    CHECK_STR(text, expected_events);
    free(text);
}

/* The name of a thread may come later than its first event. */
static void
test_late_name(void)
{
    const char *const path = fixture_format("%s/trace.json", fixture_folder());
    berth_context *context;
    static chart c;
    trace t;

    T_REQUIRE(trace_begin(&t, &command, path, NULL, false) == BERTH_OK);
    for (uint32_t i = 0; i < 100; i++) {
        const berth_trace_event e = event_of(BERTH_TRACE_FILL, BERTH_LANE_THREAD, i, "");

        trace_event(&t, &e);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const berth_trace_event e =
            event_of(BERTH_TRACE_CHUNK, BERTH_LANE_THREAD, 7, i == 0 ? "" : "worker");

        trace_event(&t, &e);
    }
    CHECK_EQ(trace_end(&t, BERTH_OK), BERTH_OK);
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    read_chart(path, context, &c);
    CHECK_EQ(c.boxes, 103);
    CHECK_STR(c.names[1], "thread 0");
    CHECK_STR(c.names[8], "worker 7");
    CHECK_STR(c.names[100], "thread 99");
    berth_context_destroy(context);
}

static void
test_files(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/trace.json", folder);
    char *text;
    trace t;

    CHECK_EQ(trace_begin(&t, &command, NULL, NULL, false), BERTH_OK);
    CHECK(!trace_is_on(&t));
    CHECK_EQ(trace_end(&t, BERTH_EINVAL), BERTH_EINVAL);
    fixture_text(path, "mine");
    CHECK_EQ(trace_begin(&t, &command, path, NULL, false), BERTH_EINVAL);
    CHECK(!trace_is_on(&t));
    CHECK_EQ(trace_end(&t, BERTH_EINVAL), BERTH_EINVAL);
    CHECK_EQ(trace_begin(&t, &command, NULL, path, false), BERTH_EINVAL);
    CHECK_EQ(trace_end(&t, BERTH_EINVAL), BERTH_EINVAL);
    text = fixture_read(path, NULL);
    CHECK_STR(text, "mine");
    free(text);
    CHECK_EQ(trace_begin(&t, &command, path, NULL, true), BERTH_OK);
    CHECK_EQ(trace_end(&t, BERTH_OK), BERTH_OK);
    text = fixture_read(path, NULL);
    CHECK_STR(text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n]}\n");
    free(text);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_load);
    T_RUN(test_text);
    T_RUN(test_late_name);
    T_RUN(test_files);
    T_MAIN_END;
}
