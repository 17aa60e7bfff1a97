/* SPDX-License-Identifier: Apache-2.0 */
/* traced.h - a listener that keeps what it is told, and what has to hold of all of it. */
#ifndef BERTH_TESTS_TRACED_H
#define BERTH_TESTS_TRACED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define TRACED_EVENTS 20000u

typedef struct traced {
    pthread_mutex_t lock;
    berth_trace_event events[TRACED_EVENTS];
    char names[TRACED_EVENTS][32]; /* of their lanes */
    uint32_t count;
    uint32_t lost;
} traced;

/*
 * Listens to the context from now on, before which nothing may run in it; to be freed with
 * traced_end().
 */
traced *traced_begin(berth_context *context);
/* What has been heard does not count; others may still come. */
void traced_forget(traced *t);
void traced_end(traced *t);

/*
 * Lanes are lanes: nothing overlaps but what lies within something else. For when nothing
 * listens any more: it sorts.
 */
void traced_check_lanes(traced *t);
/* So many events are there and stay as they are, while others may still come. */
uint32_t traced_seen(traced *t);
/* Of this kind, and on such a lane (-1: any); others may still come. */
uint64_t traced_bytes(traced *t, int32_t kind, int32_t lane);
uint64_t traced_count(traced *t, int32_t kind, int32_t lane);
/* The first; NULL: there is none. */
const berth_trace_event *traced_find(traced *t, int32_t kind, int32_t lane);

#endif
