/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/json.h"

#define LABEL_CAPACITY 256
#define SIMULATED_PROCESSES 10 /* their numbers come behind those of the others */

static const char *const lane_words[] = { "thread", "read", "link", "engine", "stream" };
static const char *const process_words[] = { "threads", "reads in flight", "links",
                                             "engines", "streams" };

/* The clock of the library's events. */
static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

berth_status
trace_begin(trace *t, const cli_command *command, const char *chrome, const char *events,
            bool may_overwrite)
{
    berth_status status = BERTH_OK;

    *t = (trace){ .lock = PTHREAD_MUTEX_INITIALIZER, .begin_ns = now_ns() };
    if (chrome != NULL)
        status = save_begin(&t->chrome, command, chrome, may_overwrite);
    t->has_chrome = chrome != NULL && status == BERTH_OK;
    if (status == BERTH_OK && events != NULL) {
        status = save_begin(&t->events, command, events, may_overwrite);
        t->has_events = status == BERTH_OK;
    }
    if (t->has_chrome && status != BERTH_OK) { /* nothing happens that it could be of */
        (void)save_end(&t->chrome, status);
        t->has_chrome = false;
    }
    if (t->has_chrome)
        output_text(&t->chrome.out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    return status;
}

bool
trace_is_on(const trace *t)
{
    return t->has_chrome || t->has_events;
}

void
trace_name(trace *t, const berth_checkpoint *checkpoint, const berth_plan *plan)
{
    pthread_mutex_lock(&t->lock);
    t->checkpoint = checkpoint;
    t->plan = plan;
    pthread_mutex_unlock(&t->lock);
}

/* -------------------------------------------------------------------------- names */

static bool
has_tensor(const trace *t, const berth_trace_event *event, berth_tensor *out)
{
    return t->checkpoint != NULL && event->tensor != BERTH_NO_TENSOR
           && berth_checkpoint_tensor(t->checkpoint, event->tensor, out) == BERTH_OK;
}

static bool
has_layer(const trace *t, const berth_trace_event *event, berth_plan_layer *out)
{
    return t->plan != NULL && event->layer != BERTH_NO_INDEX
           && berth_plan_get_layer(t->plan, event->layer, out) == BERTH_OK;
}

/* "place model.norm.weight": what a person reads first. */
static void
label(const trace *t, const berth_trace_event *event, char text[LABEL_CAPACITY])
{
    const char *const kind = berth_trace_kind_name(event->kind);
    char name[LABEL_CAPACITY];
    berth_plan_layer layer;
    berth_tensor tensor;

    if (has_tensor(t, event, &tensor)) {
        berth_text_escape(tensor.name, tensor.name_length, name, sizeof name);
        snprintf(text, LABEL_CAPACITY, "%s %.200s", kind, name);
    } else if (has_layer(t, event, &layer)) {
        snprintf(text, LABEL_CAPACITY, "%s %.200s", kind, layer.name);
    } else {
        snprintf(text, LABEL_CAPACITY, "%s", kind);
    }
}

/* -------------------------------------------------------------------------- lines */

static void
write_facts(const trace *t, json_writer *w, const berth_trace_event *event)
{
    berth_plan_layer layer;
    berth_tensor tensor;

    if (event->bytes > 0)
        json_number(w, "bytes", event->bytes);
    if (has_tensor(t, event, &tensor))
        json_bytes(w, "tensor", tensor.name, tensor.name_length);
    if (has_layer(t, event, &layer))
        json_text(w, "layer", layer.name);
    if (event->shard != BERTH_NO_INDEX)
        json_number(w, "shard", event->shard);
    if (event->stream != 0)
        json_number(w, "stream", event->stream);
}

static void
write_line(trace *t, const berth_trace_event *event)
{
    json_writer w;

    json_begin(&w, &t->events.out, true);
    json_object_begin(&w, NULL);
    json_text(&w, "kind", berth_trace_kind_name(event->kind));
    json_text(&w, "lane", lane_words[event->lane]);
    json_number(&w, "number", event->number);
    if (event->name[0] != '\0')
        json_text(&w, "name", event->name);
    json_bool(&w, "is_simulated", event->is_simulated != 0);
    json_number(&w, "begin_ns", event->begin_ns);
    json_number(&w, "end_ns", event->end_ns);
    write_facts(t, &w, event);
    json_object_end(&w);
    json_end(&w);
}

/* ------------------------------------------------------------------------- viewers */

static void
begin_chrome(trace *t, json_writer *w)
{
    if (t->has_any)
        output_text(&t->chrome.out, ",");
    t->has_any = true;
    json_begin(w, &t->chrome.out, true);
    json_object_begin(w, NULL);
}

static void
end_chrome(json_writer *w)
{
    json_object_end(w);
    json_end(w);
}

static uint32_t
process_of(int32_t lane, int32_t is_simulated)
{
    return (uint32_t)lane + 1 + (is_simulated ? SIMULATED_PROCESSES : 0);
}

/* What a process (row 0) or a row of it is called. */
static void
write_name(trace *t, uint32_t process, uint32_t row, const char *name)
{
    json_writer w;

    begin_chrome(t, &w);
    json_text(&w, "name", row == 0 ? "process_name" : "thread_name");
    json_text(&w, "ph", "M");
    json_number(&w, "pid", process);
    if (row > 0)
        json_number(&w, "tid", row);
    json_object_begin(&w, "args");
    json_text(&w, "name", name);
    json_object_end(&w);
    end_chrome(&w);
}

static void
name_process(trace *t, int32_t lane, int32_t is_simulated)
{
    char name[64];

    for (uint32_t i = 0; i + 1 < t->lane_count; i++)
        if (t->lanes[i].lane == lane && t->lanes[i].is_simulated == is_simulated)
            return;
    snprintf(name, sizeof name, "%s%s", process_words[lane],
             is_simulated ? ", simulated time" : "");
    write_name(t, process_of(lane, is_simulated), 0, name);
}

static void
name_row(trace *t, uint32_t row, const char *name)
{
    trace_lane *const lane = &t->lanes[row - 1];
    char text[96];

    lane->has_name = name[0] != '\0';
    if (lane->lane == BERTH_LANE_THREAD)
        snprintf(text, sizeof text, "%s %" PRIu64, lane->has_name ? name : "thread",
                 lane->number);
    else if (lane->lane == BERTH_LANE_STREAM)
        snprintf(text, sizeof text, "stream %" PRIu64, lane->number);
    else if (lane->lane == BERTH_LANE_READ)
        snprintf(text, sizeof text, "read %" PRIu64, lane->number & 0xFFFF);
    else
        snprintf(text, sizeof text, "%s", name);
    write_name(t, process_of(lane->lane, lane->is_simulated), row, text);
}

/* Its number from 1 on; 0: memory is out, and the event is left away. */
static uint32_t
find_row(trace *t, int32_t lane, int32_t is_simulated, uint64_t number, const char *name)
{
    for (uint32_t i = 0; i < t->lane_count; i++)
        if (t->lanes[i].lane == lane && t->lanes[i].number == number
            && t->lanes[i].is_simulated == is_simulated) {
            if (!t->lanes[i].has_name && name[0] != '\0')
                name_row(t, i + 1, name);
            return i + 1;
        }
    if (t->lane_count == t->lane_capacity) {
        const uint32_t capacity = t->lane_capacity * 2 + 32;
        trace_lane *const lanes = realloc(t->lanes, capacity * sizeof *lanes);

        if (lanes == NULL)
            return 0;
        t->lanes = lanes;
        t->lane_capacity = capacity;
    }
    t->lanes[t->lane_count++] = (trace_lane){ lane, is_simulated, number, false };
    name_process(t, lane, is_simulated);
    name_row(t, t->lane_count, name);
    return t->lane_count;
}

static void
write_box(trace *t, const berth_trace_event *event, int32_t lane, uint64_t number,
          const char *name)
{
    const uint64_t zero_ns = event->is_simulated ? 0 : t->begin_ns;
    const uint32_t row = find_row(t, lane, event->is_simulated, number, name);
    char text[LABEL_CAPACITY];
    json_writer w;

    if (row == 0)
        return;
    label(t, event, text);
    begin_chrome(t, &w);
    json_text(&w, "name", text);
    json_text(&w, "cat", berth_trace_kind_name(event->kind));
    json_text(&w, "ph", "X");
    json_number(&w, "pid", process_of(lane, event->is_simulated));
    json_number(&w, "tid", row);
    json_real(&w, "ts", ((double)event->begin_ns - (double)zero_ns) * 1e-3);
    json_real(&w, "dur", (double)(event->end_ns - event->begin_ns) * 1e-3);
    json_object_begin(&w, "args");
    write_facts(t, &w, event);
    json_object_end(&w);
    end_chrome(&w);
}

void
trace_event(void *user, const berth_trace_event *event)
{
    trace *const t = user;

    if (event->lane < 0 || event->lane >= BERTH_LANE_COUNT)
        return;
    pthread_mutex_lock(&t->lock);
    if (t->has_events)
        write_line(t, event);
    if (t->has_chrome) {
        write_box(t, event, event->lane, event->number, event->name);
        if (event->stream != 0)
            write_box(t, event, BERTH_LANE_STREAM, event->stream, "");
    }
    pthread_mutex_unlock(&t->lock);
}

berth_status
trace_end(trace *t, berth_status status)
{
    berth_status saved = BERTH_OK;

    if (t->has_chrome) {
        output_text(&t->chrome.out, "]}\n");
        saved = save_end(&t->chrome, BERTH_OK);
        status = status == BERTH_OK ? saved : status;
    }
    if (t->has_events) {
        saved = save_end(&t->events, BERTH_OK);
        status = status == BERTH_OK ? saved : status;
    }
    t->has_chrome = false;
    t->has_events = false;
    free(t->lanes);
    t->lanes = NULL;
    pthread_mutex_destroy(&t->lock);
    return status;
}
