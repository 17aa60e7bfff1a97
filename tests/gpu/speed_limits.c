/* SPDX-License-Identifier: Apache-2.0 */
/* speed_limits.c - what this GPU reaches without berth; see speed.h */
#include <math.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/gpu/speed.h"

#define DRIFT 0.05 /* of a limit, from before all speeds to after them */

typedef struct moving {
    void *to;
    void *from;
    uint64_t bytes;
    int32_t kind;
} moving;

static void
ask_copy(gpu_speed *s, void *user, uint32_t turn)
{
    const moving *const m = user;

    (void)turn;
    gpu_require(s, s->calls->copy(m->to, m->from, m->bytes, m->kind, s->stream), "a copy");
}

static void
ask_read(gpu_speed *s, void *user, uint32_t turn)
{
    const moving *const m = user;

    (void)turn;
    gpu_require(s, s->machine->read_all(m->from, m->bytes, m->to, s->stream), "a read");
}

/* GB/s, told as a row of the limits. */
static double
tell_limit(gpu_speed *s, const char *name, const gpu_timing *t, double bytes)
{
    const gpu_row row = { .group = "limits", .name = name, .timing = t, .unit = "GB/s",
                          .value = bytes / t->us / 1000.0, .gbps = bytes / t->us / 1000.0 };

    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
    return row.value;
}

/* Whatever time it is: without limits before and after nothing can be told. */
static bool
has_room(gpu_speed *s, const char *name, uint64_t bytes)
{
    uint64_t free_bytes;
    uint64_t total;

    gpu_require(s, s->calls->memory_info(&free_bytes, &total), "asking for free memory");
    if (bytes > free_bytes)
        gpu_rows_skip(s->rows, name, "there is no room for its buffers");
    return bytes <= free_bytes;
}

typedef struct memory_limits {
    double copy_gbps;
    double read_gbps;
} memory_limits;

/* Called by `when`; none where there is no room for the buffers. */
static memory_limits
measure_memory(gpu_speed *s, const char *when)
{
    const uint64_t bytes = s->is_tiny ? 4096 : UINT64_C(1) << 30;
    memory_limits found = { 0 };
    moving m[2] = { { .bytes = bytes, .kind = BERTHI_COPY_WITHIN }, { .bytes = bytes } };
    const gpu_work works[2] = { { ask_copy, &m[0] }, { ask_read, &m[1] } };
    char names[2][GPU_NAME];
    gpu_timing t[2];
    uint32_t *sum;

    snprintf(names[0], sizeof names[0], "copy within its memory, read and written%s", when);
    snprintf(names[1], sizeof names[1], "reading of its memory%s", when);
    if (!has_room(s, names[0], 2 * bytes))
        return found;
    m[0].from = gpu_alloc(s, bytes);
    m[0].to = gpu_alloc(s, bytes);
    m[1].from = m[0].from;
    sum = gpu_alloc(s, sizeof *sum);
    m[1].to = sum;
    gpu_fill_normal(s, m[0].from, BERTH_BF16, bytes / 2, 1);
    gpu_require(s, s->calls->clear(sum, sizeof *sum, s->stream), "clearing");
    gpu_time(s, works, 2, t);
    found.copy_gbps = tell_limit(s, names[0], &t[0], 2.0 * (double)bytes);
    found.read_gbps = tell_limit(s, names[1], &t[1], (double)bytes);
    gpu_free(s, m[0].from);
    gpu_free(s, m[0].to);
    gpu_free(s, sum);
    return found;
}

/* Of pinned memory of the host, there and back. */
static void
measure_links(gpu_speed *s)
{
    const uint64_t bytes = s->is_tiny ? 65536 : UINT64_C(256) << 20;
    const uint64_t page = berthi_sys_page_bytes();
    void *const host =
        berthi_memory_aligned(s->context, BERTHI_PURPOSE_RING, bytes, page);
    moving m[2] = { { .bytes = bytes, .kind = BERTHI_COPY_TO_DEVICE, .from = host },
                    { .bytes = bytes, .kind = BERTHI_COPY_TO_HOST, .to = host } };
    const gpu_work works[2] = { { ask_copy, &m[0] }, { ask_copy, &m[1] } };
    gpu_timing t[2];

    if (host == NULL || !gpu_can_begin(s, "copies from and to the host", bytes))
        return;
    memset(host, 1, bytes);
    gpu_require(s, s->calls->pin(host, bytes), "pinning");
    m[0].to = gpu_alloc(s, bytes);
    m[1].from = m[0].to;
    gpu_time(s, works, 2, t);
    (void)tell_limit(s, "copies from the host, pinned", &t[0], (double)bytes);
    (void)tell_limit(s, "copies to the host, pinned", &t[1], (double)bytes);
    gpu_free(s, m[0].to);
    gpu_require(s, s->calls->unpin(host), "pinning");
    berthi_memory_free_aligned(s->context, BERTHI_PURPOSE_RING, host, bytes, page);
}

void
gpu_speed_limits(gpu_speed *s)
{
    const memory_limits before = measure_memory(s, "");

    s->copy_gbps = before.copy_gbps;
    s->read_gbps = before.read_gbps;
    measure_links(s);
}

/* Slower or faster, both say that what lies between was measured on another machine. */
static void
tell_drift(gpu_speed *s, const char *what, double before, double after)
{
    char name[GPU_NAME];
    const gpu_row row = { .group = "limits", .name = name, .unit = "of before",
                          .value = fabs(after / before - 1.0), .relation = "<=",
                          .target = DRIFT };

    snprintf(name, sizeof name, "drift of %s; more, and all speeds are void", what);
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

void
gpu_speed_limits_again(gpu_speed *s)
{
    memory_limits after;

    if (s->copy_gbps <= 0.0)
        return;
    s->pass = GPU_JUDGED;
    after = measure_memory(s, ", after");
    if (after.copy_gbps <= 0.0)
        return;
    tell_drift(s, "copies", s->copy_gbps, after.copy_gbps);
    tell_drift(s, "reading", s->read_gbps, after.read_gbps);
}
