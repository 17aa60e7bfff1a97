/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fold.c - see plan_fold.h. */
#include "tools/plan_fold.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/output.h"

/* A layer's name up to the number at its end; false: there is none. */
static bool
has_number(const char *name, size_t *out_length, uint32_t *out_number)
{
    size_t at = strlen(name);

    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    if (name[at] == '\0' || strlen(name + at) > 9)
        return false;
    *out_length = at;
    *out_number = (uint32_t)strtoul(name + at, NULL, 10);
    return true;
}

/* The first tier besides its home that a berth of the layer lies on. */
static uint32_t
find_away(const berth_plan *plan, const berth_plan_layer *l)
{
    berth_berth berth;

    for (uint64_t i = 0; i < l->berth_count && l->resident_bytes < l->bytes; i++) {
        berth_plan_get_berth(plan, l->first_berth + i, &berth, NULL, 0);
        if (berth.tier != l->home)
            return berth.tier;
    }
    return BERTH_NO_INDEX;
}

static void
take_layer(const berth_plan *plan, uint32_t number, plan_fold *out)
{
    berth_plan_layer l;

    berth_plan_get_layer(plan, number, &l);
    snprintf(out->name, sizeof out->name, "%s", l.name);
    text_whole(out->name);
    out->first = number;
    out->count = 1;
    out->home = l.home;
    out->away = find_away(plan, &l);
    out->cause = l.cause;
    out->bytes = l.bytes;
    out->resident_bytes = l.resident_bytes;
    out->link_bytes = l.link_bytes;
}

/* Part of them or nothing is resident: a line says one or the other. */
static bool
is_alike(const plan_fold *a, const plan_fold *b)
{
    return a->home == b->home && a->away == b->away && a->cause == b->cause
           && (a->resident_bytes == 0) == (b->resident_bytes == 0);
}

bool
plan_fold_has_next(const berth_plan *plan, uint32_t count, uint32_t *at, plan_fold *out)
{
    plan_fold next;
    size_t length;
    size_t next_length;
    uint32_t first;
    uint32_t number;

    if (*at >= count)
        return false;
    take_layer(plan, (*at)++, out);
    if (!has_number(out->name, &length, &first))
        return true;
    for (; *at < count; ++*at) {
        take_layer(plan, *at, &next);
        if (!is_alike(out, &next) || !has_number(next.name, &next_length, &number)
            || next_length != length || memcmp(next.name, out->name, length) != 0
            || number != first + out->count)
            break;
        out->count++;
        out->bytes += next.bytes;
        out->resident_bytes += next.resident_bytes;
        out->link_bytes += next.link_bytes;
    }
    if (out->count > 1)
        snprintf(out->name + length, sizeof out->name - length, "%" PRIu32 "-%" PRIu32,
                 first, first + out->count - 1);
    return true;
}

uint32_t
plan_gpu_number(const berth_plan_tier *tier)
{
    const char *const colon = strchr(tier->name, ':');

    return colon != NULL ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
}
