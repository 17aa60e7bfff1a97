/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_parse.c - a plan out of its JSON. The text may be anybody's: every number is
 * checked against those that it has to agree with, sums are made anew, and berths of
 * one tier may not overlap.
 */
#include <string.h>

#include "placement/link.h"
#include "placement/plan_json.h"
#include "placement/plan_names.h"
#include "placement/plan_read.h"
#include "placement/slab.h"
#include "quant/format.h"
#include "quant/heapsort.h"
#include "quant/members.h"

#define NO_OFFSET UINT64_MAX
#define TEXT_BLOCK 65536u

typedef struct parser {
    berthi_members members;
    berthi_arena arena;    /* texts that the plan does not keep */
    berth_plan *plan;
    berth_context *context;
    berthi_plan_names names;
    uint64_t berths;       /* read so far */
    uint64_t bytes;        /* of these */
    uint64_t caches;       /* of the layers read so far */
} parser;

/* -------------------------------------------------------------------------- head */

static bool
can_read_flag(parser *p, const char *key, int32_t *out)
{
    bool value;

    if (!berthi_members_can_read_bool(&p->members, key, &value))
        return false;
    *out = value;
    return true;
}

static bool
can_enter(parser *p, const char *key)
{
    return berthi_members_can_read_key(&p->members, key)
           && berthi_scan_can_enter_object(&p->members.scan);
}

/* Which rank it is for; without it, all of the model. */
static bool
can_read_parallel(parser *p, berth_plan_summary *s)
{
    berthi_members *const m = &p->members;
    bool is_there;

    s->ranks = 1;
    if (!berthi_members_can_find_key(m, "parallel", &is_there))
        return false;
    if (!is_there)
        return true;
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_plan_can_read_32(m, "rank", &s->rank)
        || !berthi_plan_can_read_32(m, "ranks", &s->ranks))
        return false;
    if (s->ranks < 2 || s->ranks > BERTHI_PARALLEL_RANKS || s->rank >= s->ranks)
        return berthi_members_stop(m, "there are 2 to 1024 ranks, counted from 0");
    if (s->stacks == BERTH_STACKS_APART)
        return berthi_members_stop(m, "stacks stay whole for ranks");
    return berthi_members_is_at_end(m);
}

/* Whether stacks are taken apart; without it, they are not. */
static bool
can_read_stacks(parser *p, berth_plan_summary *s)
{
    bool is_apart;

    if (!berthi_plan_can_read_flag_if(&p->members, "stacks_apart", &is_apart))
        return false;
    s->stacks = is_apart ? BERTH_STACKS_APART : BERTH_STACKS_WHOLE;
    return true;
}

static bool
can_read_head(parser *p, berth_plan_summary *s)
{
    berthi_members *const m = &p->members;
    const char *writer;

    return berthi_members_can_read_version(m, BERTHI_PLAN_VERSION)
           && berthi_members_can_read_text(m, "writer", &writer)
           && can_enter(p, "checkpoint")
           && berthi_plan_can_read_32(m, "digest", &s->digest)
           && berthi_members_can_read_number(m, "tensors", &s->berth_count)
           && berthi_members_is_at_end(m) && can_enter(p, "weights")
           && berthi_plan_can_read_encoding(m, "type", &s->type)
           && berthi_plan_can_read_dtype(m, "dtype", &s->dtype)
           && can_read_flag(p, "double_quant", &s->double_quant)
           && berthi_plan_can_read_32(m, "block_size", &s->block_size)
           && berthi_members_is_at_end(m) && can_enter(p, "use")
           && berthi_members_can_read_number(m, "context", &s->context)
           && berthi_members_can_read_number(m, "batch", &s->batch)
           && berthi_plan_can_read_dtype(m, "cache_dtype", &s->cache_dtype)
           && berthi_members_is_at_end(m) && can_enter(p, "planner")
           && can_read_flag(p, "imitated", &s->is_imitated)
           && can_read_flag(p, "proved", &s->is_proved) && can_read_stacks(p, s)
           && berthi_members_is_at_end(m) && can_read_parallel(p, s);
}

/* ------------------------------------------------------------------------- tiers */

static bool
can_read_name(parser *p, uint32_t number, berth_plan_tier *tier)
{
    berthi_tier before;
    berthi_tier parsed;
    const char *text;

    if (!berthi_members_can_read_text(&p->members, "name", &text))
        return false;
    if (!berthi_tier_can_parse(text, strlen(text), &parsed))
        return berthi_members_stop(&p->members, "not the name of a tier");
    (void)berthi_tier_name(&parsed, tier->name);
    tier->kind = parsed.kind;
    if (strcmp(text, tier->name) != 0)
        return berthi_members_stop(&p->members, "tiers are called \"cuda:0\", \"cpu\", "
                                                "\"disk\"");
    if (number == 0)
        return true;
    (void)berthi_tier_can_parse(tier[-1].name, strlen(tier[-1].name), &before);
    if (berthi_tier_compare(&before, &parsed) >= 0)
        return berthi_members_stop(&p->members, "tiers are out of order");
    return true;
}

/* *sum: of all that have been read under this key. */
static bool
can_sum_bytes(parser *p, const char *key, uint64_t *out, uint64_t *sum)
{
    if (!berthi_plan_can_read_bytes(&p->members, key, out))
        return false;
    *sum += *out;
    if (*sum >= BERTHI_PLAN_PART)
        return berthi_members_stop(&p->members, "the sum is too large");
    return true;
}

/* Of devices whose layers have experts elsewhere. */
static bool
can_read_experts(parser *p, berth_plan_tier *tier)
{
    berthi_members *const m = &p->members;
    bool has_experts;
    uint64_t slots;

    if (!berthi_members_can_find_key(m, "expert_slot_count", &has_experts))
        return false;
    if (!has_experts)
        return true;
    if (!berthi_scan_can_read_unsigned(&m->scan, &slots)
        || !berthi_members_can_read_below(m, "experts_away", UINT32_MAX,
                                          &tier->experts_away)
        || !berthi_members_can_read_below(m, "expert_hits", UINT64_C(1000000001),
                                          &tier->expert_hits)
        || !berthi_plan_can_read_word(m, "routing", berthi_plan_routing_word,
                                      &tier->routing))
        return false;
    if (slots > tier->experts_away)
        return berthi_members_stop(m, "more slots than experts");
    tier->expert_slot_count = (uint32_t)slots;
    return true;
}

static bool
can_read_operation(parser *p, berth_plan_tier *tier)
{
    berthi_members *const m = &p->members;
    bool is_there;

    if (!berthi_members_can_find_key(m, "operation_ns", &is_there)
        || (is_there && !berthi_scan_can_read_unsigned(&m->scan, &tier->operation_ns)))
        return false;
    if (tier->operation_ns > BERTHI_DELAY_LIMIT)
        return berthi_members_stop(m, "the number is too large");
    return true;
}

static bool
can_read_turned(parser *p, berth_plan_tier *tier)
{
    berthi_members *const m = &p->members;
    bool has_turned;

    if (tier->kind != BERTH_TIER_CPU)
        return true;
    if (!berthi_members_can_find_key(m, "turned", &has_turned))
        return false;
    if (has_turned && !berthi_scan_can_read_unsigned(&m->scan, &tier->turned))
        return false;
    if (tier->turned >= BERTHI_PLAN_PART)
        return berthi_members_stop(m, "the number is too large");
    return true;
}

static bool
can_read_tier_line(parser *p, uint32_t number)
{
    berthi_members *const m = &p->members;
    berth_plan_tier *const tier = &p->plan->tiers[number];
    uint64_t slots;
    uint64_t sum; /* made anew */

    if (!berthi_scan_can_enter_object(&m->scan) || !can_read_name(p, number, tier)
        || !berthi_members_can_read_limit(m, "budget", &tier->budget)
        || !berthi_members_can_read_number(m, "reserve", &tier->reserve)
        || !berthi_plan_can_read_bytes(m, "reserve_needed", &tier->reserve_needed)
        || !berthi_members_can_read_number(m, "weights", &sum)
        || !berthi_plan_can_read_bytes(m, "cache", &sum)
        || !berthi_plan_can_read_bytes(m, "activations", &tier->activations)
        || !berthi_members_can_read_below(m, "slot_count", BERTHI_STREAM_SLOTS_MAX + 1,
                                          &slots)
        || !berthi_plan_can_read_bytes(m, "slot_bytes", &tier->slot_bytes)
        || !berthi_plan_can_read_bytes(m, "expert_slots", &tier->expert_slots)
        || !can_read_experts(p, tier)
        || !berthi_plan_can_read_bytes(m, "scratch", &tier->scratch)
        || !can_read_turned(p, tier)
        || !berthi_plan_can_read_bytes(m, "staging", &tier->staging))
        return false;
    tier->slot_count = (uint32_t)slots;
    return berthi_members_can_read_limit(m, "free", &sum)
           && berthi_members_can_read_number(m, "link_bytes", &tier->link_bytes)
           && berthi_members_can_read_number(m, "link_rate", &tier->link_rate)
           && berthi_plan_can_read_word(m, "link_source", berthi_rate_source_name,
                                        &tier->link_source)
           && berthi_members_can_read_number(m, "memory_rate", &tier->memory_rate)
           && berthi_plan_can_read_word(m, "memory_source", berthi_rate_source_name,
                                        &tier->memory_source)
           && can_read_operation(p, tier) && berthi_members_is_at_end(m);
}

static bool
can_read_tiers(parser *p, berth_plan_summary *head)
{
    berthi_members *const m = &p->members;
    uint64_t count;
    uint32_t read = 0;

    if (!berthi_members_can_enter_array(m, "tiers", &count))
        return false;
    if (count == 0 || count > BERTHI_TIER_LIMIT)
        return berthi_members_stop(m, "there are 1 to 66 tiers");
    if (berthi_plan_alloc(p->context, (uint32_t)count, 0, head->berth_count, &p->plan,
                          m->error)
        != BERTH_OK)
        return berthi_members_stop_memory(m);
    head->tier_count = (uint32_t)count;
    p->plan->summary = *head;
    if (berthi_plan_has_slices(head) && !berthi_plan_can_slice(p->plan))
        return berthi_members_stop_memory(m);
    while (berthi_scan_has_next_element(&m->scan) && can_read_tier_line(p, read))
        read++;
    return m->status == BERTH_OK && m->scan.problem == NULL;
}

/* ------------------------------------------------------------------------ berths */

static bool
can_read_place(parser *p, berthi_berth *berth)
{
    berthi_members *const m = &p->members;
    uint32_t tier;
    bool has_offset;

    berth->offset = NO_OFFSET;
    if (!berthi_plan_can_read_tier(m, p->plan, "tier", &tier)
        || !berthi_members_can_find_key(m, "offset", &has_offset))
        return false;
    berth->tier = (uint8_t)tier;
    if (has_offset && !berthi_scan_can_read_unsigned(&m->scan, &berth->offset))
        return false;
    if (has_offset
        && (berth->offset >= BERTHI_PLAN_PART
            || berth->offset % BERTHI_SLAB_ALIGNMENT != 0))
        return berthi_members_stop(m, "an offset is a multiple of 256 below 2^56");
    if (!can_sum_bytes(p, "bytes", &berth->bytes, &p->bytes))
        return false;
    if (berth->bytes % BERTHI_SLAB_ALIGNMENT != 0)
        return berthi_members_stop(m, "a berth's bytes are a multiple of 256");
    return true;
}

/* What the berth holds; without it, all of the tensor. */
static bool
can_read_slice(parser *p, uint64_t number)
{
    berthi_members *const m = &p->members;
    berthi_slice slice = { .along = BERTH_SLICING_NONE };
    bool is_there;

    if (!berthi_members_can_find_key(m, "slice", &is_there))
        return false;
    if (!is_there)
        return true;
    if (p->plan->slices == NULL)
        return berthi_members_stop(m, "a slice without ranks or stacks");
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_plan_can_read_word(m, "of", berthi_plan_slicing_word, &slice.along)
        || !berthi_plan_can_read_bytes(m, "first", &slice.first)
        || !berthi_plan_can_read_bytes(m, "count", &slice.count))
        return false;
    if (slice.along == BERTH_SLICING_NONE)
        return berthi_members_stop(m, "a slice is of rows or columns");
    p->plan->slices[number] = slice;
    return berthi_members_is_at_end(m);
}

/* Without ranks, berths hold all of their tensors, or one expert. */
static bool
is_slice_due(const parser *p, uint64_t number)
{
    const berthi_slice slice = berthi_plan_slice(p->plan, number);

    return p->plan->summary.ranks > 1 || slice.along == BERTH_SLICING_NONE
           || (slice.along == BERTH_SLICING_ROWS && slice.count == 1
               && p->plan->berths[number].is_expert);
}

static bool
can_read_berth(parser *p, uint32_t layer)
{
    berthi_members *const m = &p->members;
    berthi_berth *const berth = &p->plan->berths[p->berths];
    int32_t encoding;
    int32_t dtype;
    const char *name;

    if (p->berths == p->plan->summary.berth_count)
        return berthi_members_stop(m, "more berths than tensors");
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_members_can_read_text(m, "tensor", &name) || !can_read_place(p, berth)
        || !berthi_plan_can_read_encoding(m, "encoding", &encoding)
        || !berthi_plan_can_read_dtype(m, "dtype", &dtype)
        || !berthi_plan_can_read_32(m, "number", &berth->number)
        || !can_read_slice(p, p->berths)
        || !berthi_plan_can_read_flag_if(m, "expert", &berth->is_expert)
        || !berthi_plan_can_read_flag_if(m, "tied", &berth->is_tied)
        || !berthi_members_is_at_end(m))
        return false;
    if (!is_slice_due(p, p->berths))
        return berthi_members_stop(m, "a slice that is no expert of a stack");
    berth->name = berthi_plan_names_keep(&p->names, name, strlen(name));
    berth->layer = (uint16_t)layer;
    berth->encoding = (int8_t)encoding;
    berth->dtype = (int8_t)dtype;
    p->berths++;
    return true;
}

static bool
can_read_layer(parser *p, uint32_t number)
{
    berthi_members *const m = &p->members;
    berthi_plan_layer *const layer = &p->plan->layers[number];
    berth_plan_layer *const out = &layer->out;
    const char *reason;
    uint64_t count;

    m->arena = &p->plan->arena; /* these two stay */
    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_members_can_read_text(m, "name", &out->name)
        || !berthi_members_can_read_text(m, "prefix", &layer->prefix))
        return false;
    m->arena = &p->arena;
    if (!berthi_plan_can_read_tier(m, p->plan, "home", &out->home)
        || !berthi_plan_can_read_word(m, "cause", berthi_plan_cause_word, &out->cause)
        || !can_sum_bytes(p, "cache", &out->cache_bytes, &p->caches)
        || !berthi_members_can_read_number(m, "link_bytes", &out->link_bytes)
        || !berthi_members_can_read_number(m, "missing", &out->missing)
        || !berthi_members_can_read_text(m, "reason", &reason)
        || !berthi_members_can_enter_array(m, "berths", &count))
        return false;
    if (p->plan->tiers[out->home].kind == BERTH_TIER_DISK)
        return berthi_members_stop(m, "a disk computes no layer");
    layer->prefix_length = (uint32_t)strlen(layer->prefix);
    out->first_berth = p->berths;
    while (berthi_scan_has_next_element(&m->scan))
        if (!can_read_berth(p, number))
            return false;
    out->berth_count = p->berths - out->first_berth;
    return berthi_members_is_at_end(m);
}

static bool
can_read_layers(parser *p)
{
    berthi_members *const m = &p->members;
    berth_plan *const plan = p->plan;
    uint64_t count;

    if (!berthi_members_can_enter_array(m, "layers", &count))
        return false;
    if (count == 0 || count > BERTHI_PLAN_LAYERS)
        return berthi_members_stop(m, "there are 1 to 65535 layers");
    plan->layers = berthi_arena_alloc(&plan->arena, count * sizeof *plan->layers, 16);
    if (plan->layers == NULL)
        return berthi_members_stop_memory(m);
    berthi_plan_names_init(&p->names, &p->arena);
    memset(plan->layers, 0, count * sizeof *plan->layers);
    while (berthi_scan_has_next_element(&m->scan)) {
        if (!can_read_layer(p, plan->summary.layer_count))
            return false;
        plan->summary.layer_count++;
    }
    if (m->scan.problem != NULL)
        return false;
    if (p->berths != plan->summary.berth_count)
        return berthi_members_stop(m, "fewer berths than tensors");
    if (!berthi_plan_names_can_finish(&p->names, plan))
        return berthi_members_stop_memory(m);
    return true;
}

/* --------------------------------------------------------------------------- end */

static bool
can_read_map(parser *p)
{
    berthi_members *const m = &p->members;
    berth_plan *const plan = p->plan;
    uint64_t count;

    if (!berthi_members_can_enter_array(m, "map", &count))
        return false;
    plan->map = berthi_arena_alloc(&plan->arena, (count + 1) * sizeof *plan->map, 8);
    if (plan->map == NULL)
        return berthi_members_stop_memory(m);
    while (berthi_scan_has_next_element(&m->scan)) {
        berth_map_line *const line = &plan->map[plan->summary.map_count];

        memset(line, 0, sizeof *line);
        m->arena = &plan->arena;
        if (!berthi_scan_can_enter_object(&m->scan)
            || !berthi_members_can_read_text(m, "path", &line->path))
            return false;
        m->arena = &p->arena;
        if (!berthi_plan_can_read_tier(m, p->plan, "tier", &line->tier)
            || !berthi_members_is_at_end(m))
            return false;
        plan->summary.map_count++;
    }
    return m->scan.problem == NULL;
}

static bool
can_read_prediction(parser *p, berth_plan_summary *s)
{
    berthi_members *const m = &p->members;
    const char *advice;

    if (!can_enter(p, "predicted")
        || !berthi_plan_can_read_time(m, "nanoseconds", &s->seconds)
        || !berthi_plan_can_read_time(m, "first", &s->first_seconds)
        || !berthi_plan_can_read_time(m, "compute", &s->compute_seconds)
        || !berthi_plan_can_read_time(m, "link", &s->link_seconds)
        || !berthi_plan_can_read_time(m, "disk", &s->disk_seconds)
        || !berthi_plan_can_read_time(m, "load", &s->load_seconds)
        || !berthi_plan_can_read_time(m, "host", &s->host_seconds)
        || !berthi_plan_can_read_word(m, "bound", berthi_plan_bound_word, &s->bound)
        || !berthi_plan_can_read_tier(m, p->plan, "bound_tier", &s->bound_tier)
        || !berthi_members_can_read_number(m, "link_bytes", &s->link_bytes)
        || !berthi_members_can_read_number(m, "disk_bytes", &s->disk_bytes)
        || !berthi_members_can_read_text(m, "advice", &advice)
        || !berthi_members_is_at_end(m))
        return false;
    if (strlen(advice) >= sizeof s->advice)
        return berthi_members_stop(m, "the advice is too long");
    memcpy(s->advice, advice, strlen(advice) + 1);
    if (s->seconds > 0)
        s->tokens_per_second = (double)(s->batch > 0 ? s->batch : 1) / s->seconds;
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
static void
check_apart(parser *p)
{
    berth_plan *const plan = p->plan;
    const uint64_t bytes = plan->summary.berth_count * sizeof(berthi_berth *);
    const berthi_berth **const sorted = berthi_arena_alloc(&p->arena, bytes + 8, 8);
    uint64_t count = 0;

    if (sorted == NULL) {
        (void)berthi_members_stop_memory(&p->members);
        return;
    }
    for (uint64_t i = 0; i < plan->summary.berth_count; i++)
        if (!plan->berths[i].is_tied && plan->berths[i].bytes > 0)
            sorted[count++] = &plan->berths[i];
    berthi_heapsort(sorted, count, sizeof *sorted, compare_places);
    for (uint64_t i = 1; i < count; i++)
        if (sorted[i]->tier == sorted[i - 1]->tier
            && sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes) {
            (void)berthi_members_stop(&p->members, "two berths overlap");
            break;
        }
}

/* -------------------------------------------------------------------------- call */

/* A berth's line has at least so many bytes: no memory is taken for fewer. */
#define LINE_BYTES 64u

static bool
can_read(parser *p, char *text, uint64_t bytes)
{
    berthi_members *const m = &p->members;
    berth_plan_summary head = { .tier_count = 0 };

    if (!berthi_members_can_begin(m, text, bytes) || !can_read_head(p, &head))
        return false;
    if (head.berth_count > bytes / LINE_BYTES)
        return berthi_members_stop(m, "more tensors than there is text for");
    return can_read_tiers(p, &head) && can_read_layers(p) && can_read_map(p)
           && berthi_plan_can_read_training(m, p->plan)
           && can_read_prediction(p, &p->plan->summary) && berthi_members_is_at_end(m);
}

berth_status
berthi_plan_parse(berth_context *context, char *text, uint64_t bytes, const char *file,
                  berth_plan **out, berth_error *error)
{
    parser p = { .context = context,
                 .members = { .file = file,
                              .reason = BERTH_REASON_PLAN_JSON,
                              .what = "reading a plan",
                              .arena = &p.arena,
                              .error = error } };
    berth_status status;

    *out = NULL;
    berthi_arena_init(&p.arena, context, BERTHI_PURPOSE_SCRATCH, TEXT_BLOCK);
    (void)can_read(&p, text, bytes);
    status = berthi_members_end(&p.members);
    if (status == BERTH_OK) {
        append(p.plan);
        check_apart(&p);
        status = p.members.status;
    }
    if (status == BERTH_OK) {
        berthi_plan_sum(p.plan);
        p.plan->is_read = true;
    }
    berthi_arena_fini(&p.arena);
    if (status == BERTH_OK)
        *out = p.plan;
    else
        berthi_plan_free(p.plan);
    return status;
}
