/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_shared.c - copies to several devices at once: which of them share a link, and what each
 * gets of it.
 */
#include "loader/bench.h"

#define SHARED_BYTES (UINT64_C(64) << 20) /* of all devices */
#define SHARED_COUNT 2u

/* Copies to all sides that are asked, and how long until the last is over. */
static berth_status
time_asked(berthi_bench *b, const berthi_bench_side *sides, uint32_t count,
           uint64_t *out_ns, berth_error *error)
{
    static const berth_bench_line line = { .kind = BERTH_BENCH_TO_DEVICE_SHARED,
                                           .is_pinned = 1 };
    const uint64_t begin_ns = sides[0].device->table->now_ns(sides[0].device);
    berth_status status = berthi_bench_check(b, error);

    for (uint32_t k = 0; k < SHARED_COUNT; k++)
        for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
            if (sides[i].is_asked)
                status = berthi_bench_ask_copy(b, &sides[i], &line, sides[i].piece, error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        if (sides[i].is_asked)
            status = berthi_bench_await_side(b, &sides[i], error);
    *out_ns = sides[0].device->table->now_ns(sides[0].device) - begin_ns;
    return status;
}

/* Those of one group, or one and another. */
static berth_status
time_pair(berthi_bench *b, berthi_bench_side *sides, uint32_t count, uint32_t one,
          uint32_t other, uint64_t *out_ns, berth_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        sides[i].is_asked = i == one || i == other;
    return time_asked(b, sides, count, out_ns, error);
}

static berth_status
time_group(berthi_bench *b, berthi_bench_side *sides, uint32_t count, uint32_t group,
           uint64_t *out_ns, berth_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        sides[i].is_asked = sides[i].group == group;
    return time_asked(b, sides, count, out_ns, error);
}

/* Is the one held up by the other? */
static bool
is_sharing(uint64_t together_ns, uint64_t one_ns, uint64_t other_ns)
{
    const uint64_t alone_ns = berthi_max_u64(one_ns, other_ns);

    return together_ns > alone_ns + alone_ns / 5;
}

/*
 * Groups are named after their first device. Each device is compared with the first of
 * every group before it.
 */
static berth_status
find_groups(berthi_bench *b, berthi_bench_side *sides, uint32_t count, berth_error *error)
{
    uint64_t ns;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = time_pair(b, sides, count, i, i, &sides[i].alone_ns, error);
    for (uint32_t i = 0; i < count; i++) {
        sides[i].group = i;
        for (uint32_t k = 0; k < i && sides[i].group == i && status == BERTH_OK; k++) {
            if (sides[k].group != k)
                continue;
            status = time_pair(b, sides, count, k, i, &ns, error);
            if (is_sharing(ns, sides[k].alone_ns, sides[i].alone_ns))
                sides[i].group = k;
        }
    }
    return status;
}

static berth_status
time_groups(berthi_bench *b, berthi_bench_side *sides, berth_bench_line *lines,
            uint32_t count, berth_error *error)
{
    uint64_t ns;
    berth_status status = find_groups(b, sides, count, error);

    for (uint32_t group = 0; group < count && status == BERTH_OK; group++) {
        if (sides[group].group != group)
            continue;
        status = time_group(b, sides, count, group, &ns, error);
        for (uint32_t i = group; i < count && status == BERTH_OK; i++) {
            berthi_bench_samples samples = { .count = 0 };

            if (sides[i].group != group)
                continue;
            (void)berthi_bench_sample(b, &lines[i], &samples,
                                      SHARED_COUNT * sides[i].piece, ns);
            berthi_bench_settle(&lines[i], &samples);
        }
    }
    return status;
}

static berth_status
open_sides(berthi_bench *b, berthi_bench_side *sides, uint32_t count, const char **out_why,
           berth_error *error)
{
    /* Many devices make many pairs. */
    const uint64_t limit = berthi_max_u64(SHARED_BYTES / count, BERTHI_BENCH_FIRST_BYTES);
    berth_status status = BERTH_OK;

    *out_why = NULL;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        status = berthi_bench_open_side(b, i, limit, &sides[i], error);
        if (status == BERTH_OK && sides[i].piece == 0)
            *out_why = "no room on one of the devices";
        else if (status == BERTH_OK && !sides[i].is_pinned)
            *out_why = "a device refuses pinned memory";
    }
    return status;
}

berth_status
berthi_bench_shared(berthi_bench *b, berth_bench_line *lines, berth_error *error)
{
    const uint32_t count = berthi_devices_count(b->options.devices);
    berthi_bench_side *const sides = berthi_memory_zalloc(
        b->context, BERTHI_PURPOSE_OBJECT, count * sizeof *sides);
    const char *why;
    berth_status status;

    if (sides == NULL)
        return berthi_fail_memory(error, "measuring devices");
    status = open_sides(b, sides, count, &why, error);
    if (status == BERTH_OK && why == NULL)
        status = time_groups(b, sides, lines, count, error);
    for (uint32_t i = 0; i < count && why != NULL; i++)
        berthi_bench_skip(&lines[i], why);
    for (uint32_t i = 0; i < count; i++)
        berthi_bench_close_side(b, &sides[i]);
    berthi_memory_free(b->context, BERTHI_PURPOSE_OBJECT, sides, count * sizeof *sides);
    return status;
}
