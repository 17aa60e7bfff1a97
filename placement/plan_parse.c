/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_parse.c - a plan out of its JSON, but for its layers and what is about training.
 * The text may be anybody's: every number is checked against those that it has to agree
 * with, and sums are made anew.
 */
#include <string.h>

#include "placement/link.h"
#include "placement/plan_json.h"
#include "placement/plan_read.h"

#define TEXT_BLOCK 65536u

typedef struct parser {
    berthi_members members;
    berthi_arena arena;    /* texts that the plan does not keep */
    berth_plan *plan;
    berth_context *context;
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
    return can_read_tiers(p, &head) && berthi_plan_can_read_layers(m, p->plan)
           && can_read_map(p) && berthi_plan_can_read_training(m, p->plan)
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
    if (status == BERTH_OK && !berthi_plan_can_lay_read(&p.members, p.plan))
        status = p.members.status;
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
