/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sim_random.c - random programs on simulated devices, against a schedule that is
 * made nanosecond by nanosecond, from arrays.
 */
#include <string.h>

#include "kernels/sim.h"
#include "tests/rig.h"
#include "tests/t.h"

#define PROGRAMS 1000
#define DEVICES 3u
#define STREAMS 3u /* a device */
#define LINES (DEVICES * STREAMS)
#define EVENTS 4u
#define LENGTH 40u

typedef enum kind { COMPUTE, TO_DEVICE, TO_HOST, RECORD, WAIT, KINDS } kind;

typedef struct action {
    kind kind;
    uint32_t line; /* device and stream */
    uint32_t time; /* nanoseconds, or bytes */
    uint32_t event;
    int waits_for; /* of a WAIT: the number of the RECORD; -1: never recorded */
    int begin;     /* -1: not yet */
    int end;
} action;

typedef struct program {
    action actions[LENGTH];
    uint32_t count;
    bool is_shared[DEVICES]; /* whether the device hangs on the shared root */
} program;

static uint32_t
draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

static void
make_program(program *p, uint64_t seed)
{
    int recorded[EVENTS];
    uint64_t state = seed;

    memset(p, 0, sizeof *p);
    memset(recorded, -1, sizeof recorded);
    p->count = 1 + draw(&state, LENGTH);
    for (uint32_t d = 0; d < DEVICES; d++)
        p->is_shared[d] = draw(&state, 2) == 1;
    for (uint32_t i = 0; i < p->count; i++) {
        action *const a = &p->actions[i];

        a->kind = (kind)draw(&state, KINDS);
        a->line = draw(&state, LINES);
        a->time = draw(&state, 4) == 0 ? 1 : 1 + draw(&state, 50);
        if (a->kind == COMPUTE && draw(&state, 5) == 0)
            a->time = 0;
        a->event = draw(&state, EVENTS);
        a->waits_for = a->kind == WAIT ? recorded[a->event] : -1;
        a->begin = a->end = -1;
        if (a->kind == RECORD)
            recorded[a->event] = (int)i;
    }
}

/* ------------------------------------------------------------------------- the oracle */

/* Whether everything of its stream before `i` is over by `now`. */
static bool
is_head(const program *p, uint32_t i, int now)
{
    for (uint32_t k = 0; k < i; k++)
        if (p->actions[k].line == p->actions[i].line
            && (p->actions[k].end < 0 || p->actions[k].end > now))
            return false;
    return true;
}

/* Which engine an action needs: one number for each there is. */
static uint32_t
engine_of(const program *p, const action *a)
{
    const uint32_t device = a->line / STREAMS;

    if (a->kind == COMPUTE || !p->is_shared[device])
        return device * 3 + (uint32_t)a->kind;
    return 100 + (uint32_t)a->kind;
}

static bool
is_busy(const program *p, uint32_t engine, int now)
{
    for (uint32_t k = 0; k < p->count; k++)
        if (p->actions[k].kind <= TO_HOST && p->actions[k].begin >= 0
            && engine_of(p, &p->actions[k]) == engine && p->actions[k].end > now)
            return true;
    return false;
}

/* Records and waits that are over at `now`; true if there were any. */
static bool
has_passed(program *p, int now)
{
    bool has_any = false;

    for (uint32_t i = 0; i < p->count; i++) {
        action *const a = &p->actions[i];
        const int other = a->waits_for;

        if (a->kind < RECORD || a->end >= 0 || !is_head(p, i, now))
            continue;
        if (a->kind == WAIT && other >= 0 && p->actions[other].end < 0)
            continue;
        a->end = now;
        has_any = true;
    }
    return has_any;
}

/*
 * What begins at `now`: of each engine the first that is ready, all at once. True if
 * some of it takes no time, and is over, too.
 */
static bool
has_begun(program *p, int now)
{
    bool begins[LENGTH] = { false };
    bool is_again = false;

    for (uint32_t i = 0; i < p->count; i++) {
        const action *const a = &p->actions[i];
        bool is_first = a->kind <= TO_HOST && a->begin < 0 && is_head(p, i, now)
                        && !is_busy(p, engine_of(p, a), now);

        for (uint32_t k = 0; k < i && is_first; k++)
            if (begins[k] && engine_of(p, &p->actions[k]) == engine_of(p, a))
                is_first = false;
        begins[i] = is_first;
    }
    for (uint32_t i = 0; i < p->count; i++)
        if (begins[i]) {
            p->actions[i].begin = now;
            p->actions[i].end = now + (int)p->actions[i].time;
            is_again = is_again || p->actions[i].time == 0;
        }
    return is_again;
}

static void
schedule(program *p)
{
    for (int now = 0; now < 4000; now++) {
        bool is_again = true;

        while (is_again) {
            while (has_passed(p, now))
                continue;
            is_again = has_begun(p, now);
        }
    }
}

/* --------------------------------------------------------------------- the simulation */

typedef struct machine {
    rig r;
    uint8_t *host;
    uint8_t *memory[DEVICES];
    berthi_stream *streams[LINES];
    berthi_event *events[EVENTS];
    berthi_event *ends[LINES];
} machine;

static berthi_device *
device_of(const machine *m, uint32_t line)
{
    return rig_at(&m->r, line / STREAMS);
}

static bool
open_machine(machine *m, const program *p)
{
    static const char *const words[] = {
        "sim:64MiB,h2d=1GB/s,latency=0ns,touch=random;",
        "sim:64MiB,h2d=1GB/s,latency=0ns,touch=random,root=7;"
    };
    char text[256] = "";

    for (uint32_t d = 0; d < DEVICES; d++)
        strcat(text, words[p->is_shared[d]]);
    text[strlen(text) - 1] = '\0';
    if (!rig_open(&m->r, text))
        return false;
    m->host = rig_pinned(&m->r, 4096, 1);
    for (uint32_t d = 0; d < DEVICES; d++)
        m->memory[d] = rig_alloc(rig_at(&m->r, d), 4096);
    for (uint32_t l = 0; l < LINES; l++) {
        m->streams[l] = rig_stream(device_of(m, l));
        m->ends[l] = rig_event(device_of(m, l));
    }
    for (uint32_t e = 0; e < EVENTS; e++)
        m->events[e] = rig_event(m->r.device);
    return true;
}

static void
close_machine(machine *m)
{
    for (uint32_t l = 0; l < LINES; l++) {
        berthi_device *const device = device_of(m, l);

        device->table->event_destroy(device, m->ends[l]);
        device->table->stream_destroy(device, m->streams[l]);
    }
    for (uint32_t e = 0; e < EVENTS; e++)
        m->r.device->table->event_destroy(m->r.device, m->events[e]);
    rig_unpinned(&m->r, m->host, 4096);
    for (uint32_t d = 0; d < DEVICES; d++)
        rig_at(&m->r, d)->table->free(rig_at(&m->r, d), m->memory[d], 4096);
    rig_close(&m->r);
}

static void
perform(machine *m, const action *a)
{
    berthi_device *const device = device_of(m, a->line);
    berthi_stream *const stream = m->streams[a->line];
    uint8_t *const memory = m->memory[a->line / STREAMS];

    switch (a->kind) {
    case COMPUTE: rig_compute(device, a->time, stream); break;
    case TO_DEVICE: rig_to_device(device, memory, m->host, a->time, stream); break;
    case TO_HOST: rig_to_host(device, m->host, memory, a->time, stream); break;
    case RECORD: rig_record(device, m->events[a->event], stream); break;
    default: rig_wait(device, stream, m->events[a->event]); break;
    }
}

/* When the line has done everything. */
static int
end_of(const program *p, uint32_t line)
{
    int end = 0;

    for (uint32_t i = 0; i < p->count; i++)
        if (p->actions[i].line == line && p->actions[i].end > end)
            end = p->actions[i].end;
    return end;
}

/* Waits for the lines in the order in which they should end. */
static bool
is_on_time(machine *m, const program *p)
{
    bool is_done[LINES] = { false };
    bool is_right = true;

    for (uint32_t turn = 0; turn < LINES; turn++) {
        uint32_t next = LINES;

        for (uint32_t l = 0; l < LINES; l++)
            if (!is_done[l] && (next == LINES || end_of(p, l) < end_of(p, next)))
                next = l;
        is_done[next] = true;
        rig_await(device_of(m, next), m->ends[next]);
        is_right = is_right && rig_now(&m->r) == (uint64_t)end_of(p, next);
    }
    return is_right;
}

static void
test_random_programs(void)
{
    uint64_t total = 0;
    int wrong = 0;

    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        program p;
        machine m;

        make_program(&p, seed);
        schedule(&p);
        T_REQUIRE(open_machine(&m, &p));
        for (uint32_t i = 0; i < p.count; i++)
            perform(&m, &p.actions[i]);
        for (uint32_t l = 0; l < LINES; l++)
            rig_record(device_of(&m, l), m.ends[l], m.streams[l]);
        if (!is_on_time(&m, &p)) {
            T_NOTE("program %d is not on time", (int)seed);
            wrong++;
        }
        total += rig_now(&m.r);
        close_machine(&m);
    }
    CHECK_EQ(wrong, 0);
    CHECK_GT(total, PROGRAMS * UINT64_C(50)); /* something did happen */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_random_programs);
    T_MAIN_END;
}
