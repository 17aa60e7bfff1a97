/* SPDX-License-Identifier: Apache-2.0 */
/* traced.c - see traced.h. */
#include "tests/traced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "tests/t.h"

static void
keep(void *user, const berth_trace_event *event)
{
    traced *const t = user;

    pthread_mutex_lock(&t->lock);
    if (t->count == TRACED_EVENTS) {
        t->lost++;
    } else {
        snprintf(t->names[t->count], sizeof t->names[0], "%s", event->name);
        t->events[t->count++] = *event;
    }
    pthread_mutex_unlock(&t->lock);
}

traced *
traced_begin(berth_context *context)
{
    traced *const t = calloc(1, sizeof *t);

    if (t == NULL)
        exit(1);
    t->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->trace = keep;
    context->trace_user = t;
    return t;
}

void
traced_forget(traced *t)
{
    pthread_mutex_lock(&t->lock);
    t->count = t->lost = 0;
    pthread_mutex_unlock(&t->lock);
}

void
traced_end(traced *t)
{
    CHECK_EQ(t->lost, 0);
    free(t);
}

/* By lane, then begin; what contains comes before what is contained. */
static int
compare(const void *left, const void *right)
{
    const berth_trace_event *const a = left;
    const berth_trace_event *const b = right;

    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    return a->end_ns == b->end_ns ? 0 : a->end_ns > b->end_ns ? -1 : 1;
}

void
traced_check_lanes(traced *t)
{
    const berth_trace_event *open[64];
    uint32_t depth = 0;

    qsort(t->events, t->count, sizeof t->events[0], compare);
    for (uint32_t i = 0; i < t->count; i++) {
        const berth_trace_event *const e = &t->events[i];

        CHECK_LE(e->begin_ns, e->end_ns);
        if (i > 0 && (e->lane != e[-1].lane || e->number != e[-1].number))
            depth = 0;
        while (depth > 0 && open[depth - 1]->end_ns <= e->begin_ns)
            depth--;
        if (depth > 0 && !CHECK_LE(e->end_ns, open[depth - 1]->end_ns))
            t_note("%s in %s", berth_trace_kind_name(e->kind),
                   berth_trace_kind_name(open[depth - 1]->kind));
        if (e->lane != BERTH_LANE_THREAD)
            CHECK_EQ(depth, 0);
        if (depth < 64)
            open[depth++] = e;
    }
}

uint32_t
traced_seen(traced *t)
{
    uint32_t count;

    pthread_mutex_lock(&t->lock);
    count = t->count;
    pthread_mutex_unlock(&t->lock);
    return count;
}

static bool
is_such(const berth_trace_event *event, int32_t kind, int32_t lane)
{
    return event->kind == kind && (lane < 0 || event->lane == lane);
}

/* What is found of such events, while others may still come. */
typedef struct found {
    const berth_trace_event *first; /* NULL: there is none */
    uint64_t count;
    uint64_t bytes;
} found;

static found
find(traced *t, int32_t kind, int32_t lane)
{
    found f = { 0 };

    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->count; i++) {
        const berth_trace_event *const e = &t->events[i];

        if (!is_such(e, kind, lane))
            continue;
        f.first = f.first == NULL ? e : f.first;
        f.count++;
        f.bytes += e->bytes;
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

uint64_t
traced_bytes(traced *t, int32_t kind, int32_t lane)
{
    return find(t, kind, lane).bytes;
}

uint64_t
traced_count(traced *t, int32_t kind, int32_t lane)
{
    return find(t, kind, lane).count;
}

const berth_trace_event *
traced_find(traced *t, int32_t kind, int32_t lane)
{
    return find(t, kind, lane).first;
}
