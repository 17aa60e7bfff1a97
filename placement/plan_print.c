/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_print.c - a plan as JSON. One line a berth, so that a person can change one
 * and ask whether it still holds.
 */
#include <string.h>

#include "placement/link.h"
#include "placement/plan_json.h"
#include "placement/plan_words.h"

typedef struct printer {
    berthi_json_text text;
    const berth_plan *plan;
} printer;

/* ------------------------------------------------------------------------- words */

static void
add(printer *p, const char *words)
{
    berthi_json_text_add_words(&p->text, words);
}

static void
add_text(printer *p, const char *key, const char *value)
{
    add(p, key);
    berthi_json_text_add_string(&p->text, value, strlen(value), BERTHI_JSON_ASCII);
}

static void
add_number(printer *p, const char *key, uint64_t value)
{
    add(p, key);
    berthi_json_text_add_number(&p->text, value);
}

static void
add_limit(printer *p, const char *key, uint64_t value)
{
    if (value != UINT64_MAX) {
        add_number(p, key, value);
        return;
    }
    add(p, key);
    add(p, "null");
}

static void
add_bool(printer *p, const char *key, bool value)
{
    add(p, key);
    add(p, value ? "true" : "false");
}

/* ------------------------------------------------------------------------- parts */

static void
print_head(printer *p)
{
    const berth_plan_summary *const s = &p->plan->summary;

    add_number(p, "{\n  \"schema_version\": ", BERTHI_PLAN_VERSION);
    add(p, ",\n  \"writer\": \"berth ");
    add(p, berth_version());
    add_number(p, "\",\n  \"checkpoint\": {\"digest\": ", s->digest);
    add_number(p, ", \"tensors\": ", s->berth_count);
    add_text(p, "},\n  \"weights\": {\"type\": ", berth_encoding_name(s->type));
    add_text(p, ", \"dtype\": ", berth_dtype_name(s->dtype));
    add_bool(p, ", \"double_quant\": ", s->double_quant != 0);
    add_number(p, ", \"block_size\": ", s->block_size);
    add_number(p, "},\n  \"use\": {\"context\": ", s->context);
    add_number(p, ", \"batch\": ", s->batch);
    add_text(p, ", \"cache_dtype\": ", berth_dtype_name(s->cache_dtype));
    add_bool(p, "},\n  \"planner\": {\"imitated\": ", s->is_imitated != 0);
    add_bool(p, ", \"proved\": ", s->is_proved != 0);
    if (s->stacks == BERTH_STACKS_APART)
        add(p, ", \"stacks_apart\": true");
    add(p, "},\n");
    if (s->ranks > 1) {
        add_number(p, "  \"parallel\": {\"rank\": ", s->rank);
        add_number(p, ", \"ranks\": ", s->ranks);
        add(p, "},\n");
    }
}

static void
print_tier(printer *p, const berth_plan_tier *tier)
{
    add_text(p, "    {\"name\": ", tier->name);
    add_limit(p, ", \"budget\": ", tier->budget);
    add_number(p, ", \"reserve\": ", tier->reserve);
    add_number(p, ", \"reserve_needed\": ", tier->reserve_needed);
    add_number(p, ",\n     \"weights\": ", tier->weights);
    add_number(p, ", \"cache\": ", tier->cache);
    add_number(p, ", \"activations\": ", tier->activations);
    add_number(p, ", \"slot_count\": ", tier->slot_count);
    add_number(p, ", \"slot_bytes\": ", tier->slot_bytes);
    add_number(p, ", \"expert_slots\": ", tier->expert_slots);
    if (tier->experts_away > 0) {
        add_number(p, ",\n     \"expert_slot_count\": ", tier->expert_slot_count);
        add_number(p, ", \"experts_away\": ", tier->experts_away);
        add_number(p, ", \"expert_hits\": ", tier->expert_hits);
        add_text(p, ", \"routing\": ", berthi_plan_routing_word(tier->routing));
    }
    add_number(p, ",\n     \"scratch\": ", tier->scratch);
    if (tier->turned > 0)
        add_number(p, ", \"turned\": ", tier->turned);
    add_number(p, ", \"staging\": ", tier->staging);
    add_limit(p, ", \"free\": ", tier->free);
    add_number(p, ",\n     \"link_bytes\": ", tier->link_bytes);
    add_number(p, ", \"link_rate\": ", tier->link_rate);
    add_text(p, ", \"link_source\": ", berthi_rate_source_name(tier->link_source));
    add_number(p, ", \"memory_rate\": ", tier->memory_rate);
    add_text(p, ", \"memory_source\": ", berthi_rate_source_name(tier->memory_source));
    if (tier->operation_ns > 0)
        add_number(p, ", \"operation_ns\": ", tier->operation_ns);
    add(p, "}");
}

static void
print_slice(printer *p, const berthi_slice *slice)
{
    if (slice->along == BERTH_SLICING_NONE)
        return;
    add_text(p, ", \"slice\": {\"of\": ", berthi_plan_slicing_word(slice->along));
    add_number(p, ", \"first\": ", slice->first);
    add_number(p, ", \"count\": ", slice->count);
    if (slice->parts > 1)
        add_number(p, ", \"parts\": ", slice->parts);
    add(p, "}");
}

static void
print_berth(printer *p, uint64_t number)
{
    const berthi_berth *const berth = &p->plan->berths[number];
    const berthi_slice slice = berthi_plan_slice(p->plan, number);

    add_text(p, "        {\"tensor\": ", p->plan->texts + berth->name);
    add_text(p, ", \"tier\": ", p->plan->tiers[berth->tier].name);
    add_number(p, ", \"offset\": ", berth->offset);
    add_number(p, ", \"bytes\": ", berth->bytes);
    add_text(p, ", \"encoding\": ", berth_encoding_name(berth->encoding));
    add_text(p, ", \"dtype\": ", berth_dtype_name(berth->dtype));
    add_number(p, ", \"number\": ", berth->number);
    print_slice(p, &slice);
    if (berth->is_expert)
        add(p, ", \"expert\": true");
    if (berth->is_tied)
        add(p, ", \"tied\": true");
    add(p, "}");
}

static void
print_layer(printer *p, uint32_t number)
{
    const berthi_plan_layer *const layer = &p->plan->layers[number];
    const berth_plan_layer *const out = &layer->out;
    char reason[256];

    berthi_plan_explain(p->plan, number, reason, sizeof reason);
    add_text(p, "    {\"name\": ", out->name);
    add_text(p, ", \"prefix\": ", layer->prefix);
    add_text(p, ", \"home\": ", p->plan->tiers[out->home].name);
    add_text(p, ", \"cause\": ", berthi_plan_cause_word(out->cause));
    add_number(p, ",\n     \"cache\": ", out->cache_bytes);
    add_number(p, ", \"link_bytes\": ", out->link_bytes);
    add_number(p, ", \"missing\": ", out->missing);
    add_text(p, ", \"reason\": ", reason);
    add(p, ",\n     \"berths\": [");
    for (uint64_t i = 0; i < out->berth_count; i++) {
        add(p, i > 0 ? ",\n" : "\n");
        print_berth(p, out->first_berth + i);
    }
    add(p, "]}");
}

static void
print_map(printer *p)
{
    const berth_plan *const plan = p->plan;

    add(p, "\n  ],\n  \"map\": [");
    for (uint32_t i = 0; i < plan->summary.map_count; i++) {
        add_text(p, i > 0 ? ",\n    {\"path\": " : "\n    {\"path\": ", plan->map[i].path);
        add_text(p, ", \"tier\": ", plan->tiers[plan->map[i].tier].name);
        add(p, "}");
    }
}

void
berthi_plan_print_time(berthi_json_text *text, const char *key, double seconds)
{
    const double most = 9007199254740991.0;
    const double nanoseconds = seconds * 1e9 + 0.5;

    berthi_json_text_add_words(text, key);
    berthi_json_text_add_number(text, (uint64_t)(nanoseconds < most ? nanoseconds : most));
}

static void
print_prediction(printer *p)
{
    const berth_plan_summary *const s = &p->plan->summary;

    add(p, "\n  ],\n");
    berthi_plan_print_training(&p->text, p->plan);
    berthi_plan_print_time(&p->text, "  \"predicted\": {\"nanoseconds\": ", s->seconds);
    berthi_plan_print_time(&p->text, ", \"first\": ", s->first_seconds);
    berthi_plan_print_time(&p->text, ", \"compute\": ", s->compute_seconds);
    berthi_plan_print_time(&p->text, ", \"link\": ", s->link_seconds);
    berthi_plan_print_time(&p->text, ", \"disk\": ", s->disk_seconds);
    berthi_plan_print_time(&p->text, ", \"load\": ", s->load_seconds);
    berthi_plan_print_time(&p->text, ", \"host\": ", s->host_seconds);
    add_text(p, ",\n    \"bound\": ", berthi_plan_bound_word(s->bound));
    add_text(p, ", \"bound_tier\": ", p->plan->tiers[s->bound_tier].name);
    add_number(p, ", \"link_bytes\": ", s->link_bytes);
    add_number(p, ", \"disk_bytes\": ", s->disk_bytes);
    add_text(p, ",\n    \"advice\": ", s->advice);
    add(p, "}\n}\n");
}

berth_status
berthi_plan_print(const berth_plan *plan, berthi_json_put put, void *user,
                  berth_error *error)
{
    printer p = { .plan = plan };

    berthi_json_text_begin(&p.text, put, user, error);
    print_head(&p);
    add(&p, "  \"tiers\": [");
    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        add(&p, t > 0 ? ",\n" : "\n");
        print_tier(&p, &plan->tiers[t]);
    }
    add(&p, "\n  ],\n  \"layers\": [");
    for (uint32_t l = 0; l < plan->summary.layer_count; l++) {
        add(&p, l > 0 ? ",\n" : "\n");
        print_layer(&p, l);
    }
    print_map(&p);
    print_prediction(&p);
    return berthi_json_text_end(&p.text, NULL);
}
