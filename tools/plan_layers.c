/* SPDX-License-Identifier: Apache-2.0 */
/* plan_layers.c - layers of a plan, tensor by tensor; see plan_print.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw_map.h"
#include "tools/plan_print.h"

#define RANGE_CAPACITY 512

static void
print_berth(session *s, const berth_plan *plan, uint64_t number)
{
    char name[512];
    char bytes[BERTH_SIZE_CAPACITY];
    char slice[DRAW_TEXT_CAPACITY];
    berth_plan_tier tier;
    berth_berth berth;

    berth_plan_get_berth(plan, number, &berth, name, sizeof name);
    berth_plan_get_tier(plan, berth.tier, &tier);
    output_format(&s->out, "  %-8s  %-10s  at %" PRIu64 "  %s%s  ", tier.name,
                  berth_size_format(berth.bytes, bytes), berth.offset,
                  berth.encoding == BERTH_ENCODING_NATIVE
                      ? berth_dtype_name(berth.dtype)
                      : berth_encoding_name(berth.encoding),
                  berth.is_expert ? ", expert" : "");
    if (berth.along != BERTH_SLICING_NONE)
        output_format(&s->out, "%s of ", draw_slice_text(&berth, slice));
    output_name(&s->out, name, strlen(name));
    output_text(&s->out, "\n");
}

static void
print_layer(session *s, const berth_plan *plan, uint32_t layer)
{
    char text[PLAN_EXPLAIN_CAPACITY];
    char bytes[BERTH_SIZE_CAPACITY];
    char resident[BERTH_SIZE_CAPACITY];
    berth_plan_layer l;
    berth_plan_tier home;

    berth_plan_get_layer(plan, layer, &l);
    berth_plan_get_tier(plan, l.home, &home);
    berth_plan_explain(plan, layer, text, sizeof text);
    output_format(&s->out, "%s: %s\n", l.name, text);
    output_format(&s->out, "on %s: %s, %s resident", home.name,
                  berth_size_format(l.bytes, bytes),
                  berth_size_format(l.resident_bytes, resident));
    if (l.link_bytes > 0)
        output_format(&s->out, ", %s a token brought",
                      berth_size_format(l.link_bytes, bytes));
    if (l.cache_bytes > 0)
        output_format(&s->out, ", cache %s", berth_size_format(l.cache_bytes, bytes));
    output_text(&s->out, "\n");
    for (uint64_t i = 0; i < l.berth_count; i++)
        print_berth(s, plan, l.first_berth + i);
}

void
plan_print_layers(session *s, const berth_plan *plan, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last && !output_is_closed(&s->out); i++) {
        if (i > first)
            output_text(&s->out, "\n");
        print_layer(s, plan, i);
    }
}

/* The only layer that is called so, or ends so behind a dot. */
static bool
has_layer(const berth_plan *plan, const char *name, uint32_t *out_layer)
{
    const size_t length = strlen(name);
    berth_plan_summary p;
    berth_plan_layer l;
    uint32_t found = 0;

    berth_plan_get(plan, &p);
    for (uint32_t i = 0; i < p.layer_count; i++) {
        size_t whole;

        berth_plan_get_layer(plan, i, &l);
        whole = strlen(l.name);
        if (strcmp(l.name, name) == 0) {
            *out_layer = i;
            return true;
        }
        if (whole > length && l.name[whole - length - 1] == '.'
            && strcmp(l.name + whole - length, name) == 0) {
            *out_layer = i;
            found++;
        }
    }
    return found == 1;
}

/* "model.layers.3-17", as rows of the table are called: the names of its first and last layer. */
static bool
can_divide_range(const char *name, char first[RANGE_CAPACITY], char last[RANGE_CAPACITY])
{
    const char *const dash = strrchr(name, '-');
    size_t number;

    if (dash == NULL || dash == name || strlen(name) >= RANGE_CAPACITY || dash[1] == '\0'
        || dash[1 + strspn(dash + 1, "0123456789")] != '\0')
        return false;
    number = (size_t)(dash - name);
    while (number > 0 && name[number - 1] >= '0' && name[number - 1] <= '9')
        number--;
    if (name + number == dash)
        return false;
    snprintf(first, RANGE_CAPACITY, "%.*s", (int)(dash - name), name);
    snprintf(last, RANGE_CAPACITY, "%.*s%s", (int)number, name, dash + 1);
    return true;
}

bool
plan_has_layers(const berth_plan *plan, const char *name, uint32_t *out_first,
                uint32_t *out_last)
{
    char first[RANGE_CAPACITY];
    char last[RANGE_CAPACITY];

    if (has_layer(plan, name, out_first)) {
        *out_last = *out_first;
        return true;
    }
    return can_divide_range(name, first, last) && has_layer(plan, first, out_first)
           && has_layer(plan, last, out_last) && *out_first <= *out_last;
}
