/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_parse_layers.c - the layers of a plan's JSON and their berths. Those of one tier
 * may not overlap.
 */
#include <string.h>

#include "placement/plan_json.h"
#include "placement/plan_names.h"
#include "placement/plan_read.h"
#include "placement/slab.h"
#include "quant/heapsort.h"

#define NO_OFFSET UINT64_MAX

typedef struct reader {
    berthi_members *members;
    berthi_arena *scratch; /* of texts that the plan does not keep */
    berth_plan *plan;
    berthi_plan_names names;
    uint64_t berths; /* read so far */
    uint64_t bytes;  /* of these */
    uint64_t caches; /* of the layers read so far */
} reader;

/* *sum: of all that have been read under this key. */
static bool
can_sum_bytes(reader *r, const char *key, uint64_t *out, uint64_t *sum)
{
    if (!berthi_plan_can_read_bytes(r->members, key, out))
        return false;
    *sum += *out;
    if (*sum >= BERTHI_PLAN_PART)
        return berthi_members_stop(r->members, "the sum is too large");
    return true;
}

/* ------------------------------------------------------------------------ berths */

static bool
can_read_place(reader *r, berthi_berth *berth)
{
    berthi_members *const m = r->members;
    uint32_t tier;
    bool has_offset;

    berth->offset = NO_OFFSET;
    if (!berthi_plan_can_read_tier(m, r->plan, "tier", &tier)
        || !berthi_members_can_find_key(m, "offset", &has_offset))
        return false;
    berth->tier = (uint8_t)tier;
    if (has_offset && !berthi_scan_can_read_unsigned(&m->scan, &berth->offset))
        return false;
    if (has_offset
        && (berth->offset >= BERTHI_PLAN_PART
            || berth->offset % BERTHI_SLAB_ALIGNMENT != 0))
        return berthi_members_stop(m, "an offset is a multiple of 256 below 2^56");
    if (!can_sum_bytes(r, "bytes", &berth->bytes, &r->bytes))
        return false;
    if (berth->bytes % BERTHI_SLAB_ALIGNMENT != 0)
        return berthi_members_stop(m, "a berth's bytes are a multiple of 256");
    return true;
}

/* Of each of several parts; without it the dimension is one. */
static bool
can_read_parts(berthi_members *m, uint32_t *out)
{
    uint64_t parts = 0;
    bool is_there;

    if (!berthi_members_can_find_key(m, "parts", &is_there)
        || (is_there && !berthi_scan_can_read_unsigned(&m->scan, &parts)))
        return false;
    if (is_there && (parts < 2 || parts > UINT32_MAX))
        return berthi_members_stop(m, "a slice is of two parts or more");
    *out = (uint32_t)parts;
    return true;
}

/* What the berth holds; without it, all of the tensor. */
static bool
can_read_slice(reader *r, uint64_t number)
{
    berthi_members *const m = r->members;
    berthi_slice slice = { .along = BERTH_SLICING_NONE };
    bool is_there;

    if (!berthi_members_can_find_key(m, "slice", &is_there))
        return false;
    if (!is_there)
        return true;
    if (r->plan->slices == NULL)
        return berthi_members_stop(m, "a slice without ranks or stacks");
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_plan_can_read_word(m, "of", berthi_plan_slicing_word, &slice.along)
        || !berthi_plan_can_read_bytes(m, "first", &slice.first)
        || !berthi_plan_can_read_bytes(m, "count", &slice.count)
        || !can_read_parts(m, &slice.parts))
        return false;
    if (slice.along == BERTH_SLICING_NONE)
        return berthi_members_stop(m, "a slice is of rows, columns or depths");
    r->plan->slices[number] = slice;
    return berthi_members_is_at_end(m);
}

/* Without ranks, berths hold all of their tensors, or one expert. */
static bool
is_slice_due(const reader *r, uint64_t number)
{
    const berthi_slice slice = berthi_plan_slice(r->plan, number);

    return r->plan->summary.ranks > 1 || slice.along == BERTH_SLICING_NONE
           || (slice.along == BERTH_SLICING_ROWS && slice.count == 1 && slice.parts == 0
               && r->plan->berths[number].is_expert);
}

static bool
can_read_berth(reader *r, uint32_t layer)
{
    berthi_members *const m = r->members;
    berthi_berth *const berth = &r->plan->berths[r->berths];
    int32_t encoding;
    int32_t dtype;
    const char *name;

    if (r->berths == r->plan->summary.berth_count)
        return berthi_members_stop(m, "more berths than tensors");
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_members_can_read_text(m, "tensor", &name) || !can_read_place(r, berth)
        || !berthi_plan_can_read_encoding(m, "encoding", &encoding)
        || !berthi_plan_can_read_dtype(m, "dtype", &dtype)
        || !berthi_plan_can_read_32(m, "number", &berth->number)
        || !can_read_slice(r, r->berths)
        || !berthi_plan_can_read_flag_if(m, "expert", &berth->is_expert)
        || !berthi_plan_can_read_flag_if(m, "tied", &berth->is_tied)
        || !berthi_members_is_at_end(m))
        return false;
    if (!is_slice_due(r, r->berths))
        return berthi_members_stop(m, "a slice that is no expert of a stack");
    berth->name = berthi_plan_names_keep(&r->names, name, strlen(name));
    berth->layer = (uint16_t)layer;
    berth->encoding = (int8_t)encoding;
    berth->dtype = (int8_t)dtype;
    r->berths++;
    return true;
}

/* Nothing in it drives a terminal: it is told as it is. */
static bool
is_escaped(const char *name)
{
    size_t backslashes = 0;

    for (const char *at = strchr(name, '\\'); at != NULL; at = strchr(at + 1, '\\'))
        backslashes++;
    return berth_text_escape(name, strlen(name), NULL, 0) == strlen(name) + backslashes;
}

static bool
can_read_layer(reader *r, uint32_t number)
{
    berthi_members *const m = r->members;
    berthi_plan_layer *const layer = &r->plan->layers[number];
    berth_plan_layer *const out = &layer->out;
    const char *reason;
    uint64_t count;

    m->arena = &r->plan->arena; /* these two stay */
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_members_can_read_text(m, "name", &out->name)
        || !berthi_members_can_read_text(m, "prefix", &layer->prefix))
        return false;
    if (!is_escaped(out->name))
        return berthi_members_stop(m, "the name of a layer is not escaped");
    m->arena = r->scratch;
    if (!berthi_plan_can_read_tier(m, r->plan, "home", &out->home)
        || !berthi_plan_can_read_word(m, "cause", berthi_plan_cause_word, &out->cause)
        || !can_sum_bytes(r, "cache", &out->cache_bytes, &r->caches)
        || !berthi_members_can_read_number(m, "link_bytes", &out->link_bytes)
        || !berthi_members_can_read_number(m, "missing", &out->missing)
        || !berthi_members_can_read_text(m, "reason", &reason)
        || !berthi_members_can_enter_array(m, "berths", &count))
        return false;
    if (r->plan->tiers[out->home].kind == BERTH_TIER_DISK)
        return berthi_members_stop(m, "a disk computes no layer");
    layer->prefix_length = (uint32_t)strlen(layer->prefix);
    out->first_berth = r->berths;
    while (berthi_scan_has_next_element(&m->scan))
        if (!can_read_berth(r, number))
            return false;
    out->berth_count = r->berths - out->first_berth;
    return berthi_members_is_at_end(m);
}

bool
berthi_plan_can_read_layers(berthi_members *m, berth_plan *plan)
{
    reader r = { .members = m, .scratch = m->arena, .plan = plan };
    uint64_t count;

    if (!berthi_members_can_enter_array(m, "layers", &count))
        return false;
    if (count == 0 || count > BERTHI_PLAN_LAYERS)
        return berthi_members_stop(m, "there are 1 to 65535 layers");
    plan->layers = berthi_arena_alloc(&plan->arena, count * sizeof *plan->layers, 16);
    if (plan->layers == NULL)
        return berthi_members_stop_memory(m);
    berthi_plan_names_init(&r.names, r.scratch);
    memset(plan->layers, 0, count * sizeof *plan->layers);
    while (berthi_scan_has_next_element(&m->scan)) {
        if (!can_read_layer(&r, plan->summary.layer_count))
            return false;
        plan->summary.layer_count++;
    }
    if (m->scan.problem != NULL)
        return false;
    if (r.berths != plan->summary.berth_count)
        return berthi_members_stop(m, "fewer berths than tensors");
    if (!berthi_plan_names_can_finish(&r.names, plan))
        return berthi_members_stop_memory(m);
    return true;
}

/* ----------------------------------------------------------------------- offsets */

/* Berths without an offset go behind the others of their tier; tied ones to theirs. */
static void
append(berth_plan *plan)
{
    for (uint64_t i = 0; i < plan->summary.berth_count; i++) {
        berthi_berth *const berth = &plan->berths[i];

        if (berth->offset != NO_OFFSET)
            plan->tiers[berth->tier].weights = berthi_max_u64(
                plan->tiers[berth->tier].weights, berth->offset + berth->bytes);
    }
    for (uint64_t i = 0; i < plan->summary.berth_count; i++) {
        berthi_berth *const berth = &plan->berths[i];

        if (berth->offset != NO_OFFSET)
            continue;
        berth->offset = plan->tiers[berth->tier].weights;
        plan->tiers[berth->tier].weights += berth->bytes;
    }
}

/* By tier and offset. */
static int
compare_places(const void *a, const void *b)
{
    const berthi_berth *const left = *(const berthi_berth *const *)a;
    const berthi_berth *const right = *(const berthi_berth *const *)b;

    if (left->tier != right->tier)
        return left->tier < right->tier ? -1 : 1;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Berths that hold bytes are apart; a tied one is the place of another, as a whole. */
static bool
are_apart(berthi_members *m, const berth_plan *plan)
{
    const uint64_t bytes = plan->summary.berth_count * sizeof(berthi_berth *);
    const berthi_berth **const sorted = berthi_arena_alloc(m->arena, bytes + 8, 8);
    uint64_t count = 0;

    if (sorted == NULL)
        return berthi_members_stop_memory(m);
    for (uint64_t i = 0; i < plan->summary.berth_count; i++)
        if (!plan->berths[i].is_tied && plan->berths[i].bytes > 0)
            sorted[count++] = &plan->berths[i];
    berthi_heapsort(sorted, count, sizeof *sorted, compare_places);
    for (uint64_t i = 1; i < count; i++)
        if (sorted[i]->tier == sorted[i - 1]->tier
            && sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes)
            return berthi_members_stop(m, "two berths overlap");
    return true;
}

bool
berthi_plan_can_lay_read(berthi_members *m, berth_plan *plan)
{
    append(plan);
    return are_apart(m, plan);
}
