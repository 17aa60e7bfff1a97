/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what berth did when, as files: for chrome://tracing and Perfetto, and as
 * JSON lines.
 *
 * Both are written as events come; nothing is kept but the names of lanes. In the file
 * for viewers threads, reads, links, engines and streams are processes with a row for
 * each lane. What has the clock of simulated devices has processes of its own, which
 * begin at 0.
 */
#ifndef BERTH_TOOLS_TRACE_H
#define BERTH_TOOLS_TRACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/save.h"

typedef struct trace_lane {
    int32_t lane;         /* berth_trace_lane */
    int32_t is_simulated;
    uint64_t number;
    bool has_name;
} trace_lane;

typedef struct trace {
    pthread_mutex_t lock;
    save chrome;
    save events;
    bool has_chrome;
    bool has_events;
    bool has_any;         /* event in `chrome` */
    uint64_t begin_ns;    /* monotonic time that is 0 in `chrome` */
    const berth_checkpoint *checkpoint; /* NULL: no names of tensors yet */
    const berth_plan *plan;
    trace_lane *lanes;
    uint32_t lane_count;
    uint32_t lane_capacity;
} trace;

/* Paths may be NULL. What fails is printed; trace_end() is to be called all the same. */
berth_status trace_begin(trace *t, const cli_command *command, const char *chrome,
                         const char *events, bool may_overwrite);
bool trace_is_on(const trace *t);
/* A berth_trace_function, `user` being the trace. */
void trace_event(void *user, const berth_trace_event *event);
/* From now on tensors and layers have names; NULL, NULL: no longer. */
void trace_name(trace *t, const berth_checkpoint *checkpoint, const berth_plan *plan);
/*
 * No event comes any more: the files appear, whatever `status` is, for a failure is what
 * one wants to look at. Returns `status`, or that of a write that failed, printed.
 */
berth_status trace_end(trace *t, berth_status status);

#endif
