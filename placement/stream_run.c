/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_run.c - passes over streamed layers, step by step, until they repeat.
 *
 * Time is virtual and goes with the steps: copies and reads are dated when a step
 * asks for them. That gives the order of a machine, because a copy waits only for
 * copies of its own device, for the layer that leaves its slot, and for the disk,
 * which reads in the order of the steps: all of them dated before.
 */
#include "placement/stream.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Passes before those that alternate for ever are averaged, and of how many. */
#define PASSES_MAX 64u
#define PASSES_AVERAGED 32u
#define SAME 1e-12

typedef struct slot {
    double arrived;  /* its newest unit; */
    double released; /* end of the layer that used the one before */
} slot;

/* Units take the slots in turn, and the steps with bytes in turn. */
typedef struct line {
    double rate;
    double link_free;
    const uint32_t *units; /* steps with bytes, in order */
    uint32_t unit_count;
    uint32_t slot_count;
    uint32_t ahead;      /* units whose copy has a date, and whose layer was not computed */
    uint32_t next_unit;  /* the next to be copied: of `units`, in which pass, its slot */
    uint64_t next_pass;
    slot *next_slot;
    slot *used_slot;     /* of the oldest unit ahead */
    slot slots[BERTHI_STREAM_SLOTS_MAX];
} line;

/* A unit from the disk: bytes read before it, and when its copy began. */
typedef struct mark {
    double bytes;
    double time;
} mark;

typedef struct disk {
    double rate;
    double ring;
    double free;    /* end of the last read */
    double bytes;   /* read, over all passes */
    double debt;    /* seconds that experts have taken from it, and since when */
    double debt_begin;
    mark *marks;    /* a queue; a ring is never larger than a pass: that many are enough */
    uint32_t mark_count;
    uint64_t first; /* oldest of the queue */
    uint64_t next;  /* unit, over all passes, whose turn it is */
} disk;

typedef struct machine {
    const berthi_stream_passes *passes;
    line *lines;
    uint32_t *units;    /* steps with bytes, by line */
    uint32_t *ordinals; /* of a step with disk bytes, among these */
    disk disk;
    double now;
} machine;

static double
later(double a, double b)
{
    return a > b ? a : b;
}

static uint64_t
unit_bytes(const berthi_stream_step *step)
{
    return step->host_bytes + step->disk_bytes;
}

/* --------------------------------------------------------------------- copies */

/*
 * When a unit of the disk has been read whose copy begins at `begin`. A byte can be
 * read once the one `ring` bytes before it is being copied, and those in between
 * cannot be read faster than the disk goes.
 */
static double
read_unit(disk *d, double begin, uint64_t bytes)
{
    const double end = d->bytes + (double)bytes;
    double time = d->free + (double)bytes / d->rate;

    d->marks[d->next % d->mark_count] = (mark){ d->bytes, begin };
    while (d->first <= d->next && d->marks[d->first % d->mark_count].bytes <= end - d->ring) {
        const mark *const m = &d->marks[d->first++ % d->mark_count];

        time = later(time, m->time + (end - d->ring - m->bytes) / d->rate);
    }
    if (time > d->debt_begin) {
        time += d->debt;
        d->debt = 0;
    }
    d->free = time;
    d->bytes = end;
    d->next++;
    return time;
}

static slot *
slot_after(line *l, slot *of)
{
    return of + 1 == l->slots + l->slot_count ? l->slots : of + 1;
}

static slot *
slot_before(line *l, slot *of)
{
    return of == l->slots ? l->slots + l->slot_count - 1 : of - 1;
}

static double
next_begin(const line *l)
{
    return later(l->link_free, l->next_slot->released);
}

static void
start_copy(machine *m, line *l)
{
    const berthi_stream_step *const step = &m->passes->steps[l->units[l->next_unit]];
    const double begin = next_begin(l);
    double end = begin + (double)unit_bytes(step) / l->rate;

    if (step->disk_bytes > 0)
        end = later(end, read_unit(&m->disk, begin, step->disk_bytes));
    l->next_slot->arrived = end;
    l->link_free = end;
    l->next_slot = slot_after(l, l->next_slot);
    l->ahead++;
    if (++l->next_unit == l->unit_count) {
        l->next_unit = 0;
        l->next_pass++;
    }
}

/* Units of the disk come in the order of the steps, whatever their line. */
static bool
is_next_of_disk(const machine *m, const line *l)
{
    const uint32_t index = l->units[l->next_unit];

    return m->passes->steps[index].disk_bytes == 0
           || l->next_pass * m->disk.mark_count + m->ordinals[index] == m->disk.next;
}

/* ---------------------------------------------------------------------- steps */

/* Experts go before the units that are being copied and read ahead. */
static void
bring_experts(machine *m, line *l, const berthi_stream_step *step)
{
    const double copy = (double)(step->demand_host + step->demand_disk) / l->rate;
    const double read = (double)step->demand_disk / m->disk.rate;
    const double seconds = (double)step->demand_host / l->rate
                           + later(read, (double)step->demand_disk / l->rate);

    while (l->unit_count > 0 && l->ahead < l->slot_count && next_begin(l) < m->now
           && is_next_of_disk(m, l))
        start_copy(m, l);
    if (l->link_free > m->now) { /* the newest copy has begun: it goes on afterwards */
        slot_before(l, l->next_slot)->arrived += copy;
        l->link_free += copy;
    } else {
        l->link_free = m->now + seconds;
    }
    if (step->demand_disk > 0) {
        if (m->disk.debt <= 0)
            m->disk.debt_begin = m->now;
        m->disk.debt += read;
    }
    m->now += seconds;
}

static void
run_step(machine *m, const berthi_stream_step *step)
{
    line *const l = &m->lines[step->device];
    const bool has_unit = unit_bytes(step) > 0;

    if (has_unit) {
        if (l->ahead == 0)
            start_copy(m, l);
        m->now = later(m->now, l->used_slot->arrived);
    }
    if (step->demand_host > 0 || step->demand_disk > 0)
        bring_experts(m, l, step);
    m->now += step->compute;
    if (has_unit) {
        l->used_slot->released = m->now;
        l->used_slot = slot_after(l, l->used_slot);
        l->ahead--;
    }
}

static bool
is_same(double a, double b)
{
    return fabs(a - b) <= SAME * later(a, b);
}

static void
run(machine *m, berthi_stream_time *out)
{
    double ends[PASSES_MAX + 1] = { 0 };
    uint32_t pass = 0;

    while (pass < PASSES_MAX) {
        for (uint32_t i = 0; i < m->passes->step_count; i++)
            run_step(m, &m->passes->steps[i]);
        ends[++pass] = m->now;
        if (pass > 3 && is_same(ends[pass] - ends[pass - 1], ends[pass - 1] - ends[pass - 2])
            && is_same(ends[pass - 1] - ends[pass - 2], ends[pass - 2] - ends[pass - 3]))
            break;
    }
    out->first_seconds = ends[1];
    out->seconds = ends[pass] - ends[pass - 1];
    if (pass == PASSES_MAX)
        out->seconds = (ends[pass] - ends[pass - PASSES_AVERAGED]) / PASSES_AVERAGED;
}

/* ----------------------------------------------------------------- begin, end */

/* What the pass takes on each resource if nothing ever waits. */
static void
sum_up(const machine *m, berthi_stream_time *out)
{
    const berthi_stream_passes *const passes = m->passes;
    double largest;

    for (uint32_t i = 0; i < passes->line_count; i++) {
        double bytes = 0;

        for (uint32_t j = 0; j < passes->step_count; j++) {
            const berthi_stream_step *const step = &passes->steps[j];

            if (step->device == i)
                bytes += (double)unit_bytes(step) + (double)step->demand_host
                         + (double)step->demand_disk;
        }
        if (bytes / m->lines[i].rate > out->link_seconds) {
            out->link_seconds = bytes / m->lines[i].rate;
            out->busiest_line = i;
        }
    }
    for (uint32_t j = 0; j < passes->step_count; j++) {
        const berthi_stream_step *const step = &passes->steps[j];

        out->compute_seconds += step->compute;
        out->disk_seconds += ((double)step->disk_bytes + (double)step->demand_disk)
                             / m->disk.rate;
    }
    largest = later(out->link_seconds, out->disk_seconds);
    out->bound = largest <= out->compute_seconds ? BERTH_PLAN_BY_COMPUTING
                 : largest <= out->link_seconds  ? BERTH_PLAN_BY_LINK
                                                 : BERTH_PLAN_BY_DISK;
}

/* Tables of who streams what, and the disk's ring. */
static void
prepare(machine *m)
{
    const berthi_stream_passes *const passes = m->passes;
    uint32_t used = 0;
    uint64_t total = 0;
    uint64_t largest = 0;

    for (uint32_t i = 0; i < passes->line_count; i++) {
        line *const l = &m->lines[i];

        l->rate = (double)berthi_max_u64(passes->lines[i].rate, 1);
        l->slot_count = (uint32_t)berthi_max_u64(passes->lines[i].slots, 1);
        l->slot_count = (uint32_t)berthi_min_u64(l->slot_count, BERTHI_STREAM_SLOTS_MAX);
        l->next_slot = l->slots;
        l->used_slot = l->slots;
        l->units = m->units + used;
        for (uint32_t j = 0; j < passes->step_count; j++)
            if (passes->steps[j].device == i && unit_bytes(&passes->steps[j]) > 0)
                m->units[used + l->unit_count++] = j;
        used += l->unit_count;
    }
    for (uint32_t j = 0; j < passes->step_count; j++) {
        const uint64_t bytes = passes->steps[j].disk_bytes;

        m->ordinals[j] = m->disk.mark_count;
        m->disk.mark_count += bytes > 0;
        total += bytes;
        largest = berthi_max_u64(largest, bytes);
    }
    m->disk.rate = (double)berthi_max_u64(passes->disk_rate, 1);
    m->disk.ring = (double)(passes->ring_bytes == 0
                                ? largest
                                : berthi_min_u64(passes->ring_bytes, total));
}

berth_status
berthi_stream_run(berth_context *context, const berthi_stream_passes *passes,
                  berthi_stream_time *out, berth_error *error)
{
    const uint64_t step_bytes = (uint64_t)passes->step_count * sizeof(uint32_t);
    machine m = { .passes = passes };
    berthi_arena arena;
    berth_status status = BERTH_OK;

    memset(out, 0, sizeof *out);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT,
                      passes->line_count * sizeof *m.lines + 2 * step_bytes
                          + passes->step_count * sizeof(mark) + 64);
    m.lines = berthi_arena_alloc(&arena, passes->line_count * sizeof *m.lines, 8);
    m.units = berthi_arena_alloc(&arena, step_bytes, 4);
    m.ordinals = berthi_arena_alloc(&arena, step_bytes, 4);
    m.disk.marks = berthi_arena_alloc(&arena, passes->step_count * sizeof(mark), 8);
    if (m.lines == NULL || m.units == NULL || m.ordinals == NULL || m.disk.marks == NULL) {
        status = berthi_fail_memory(error, "running passes");
        goto end;
    }
    memset(m.lines, 0, passes->line_count * sizeof *m.lines);
    prepare(&m);
    run(&m, out);
    sum_up(&m, out);
end:
    berthi_arena_fini(&arena);
    return status;
}
