/* SPDX-License-Identifier: Apache-2.0 */
/* given.c - the planner on a few tensors; see given.h. */
#include "tests/given.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/t.h"

berth_context *given_context;

void
given_start(void)
{
    if (!CHECK_EQ(berth_context_create(NULL, &given_context, NULL), BERTH_OK))
        exit(1);
}

void
given_end(void)
{
    berth_context_destroy(given_context);
}

/* ------------------------------------------------------------------------ inputs */

static void
read_mark(berthi_plan_tensor *tensor, const char *mark)
{
    const uint32_t number = (uint32_t)strtoul(mark + 1, NULL, 10);

    switch (*mark) {
    case '#': tensor->expert = number; break;
    case '@': tensor->tier = number; break;
    case '*': tensor->is_grouped = true; break;
    case '=': tensor->tie = number; break;
    default: tensor->scratch = number * GIVEN_UNIT; break;
    }
}

/* One line of a model. */
static void
read_line(given *g, char *line)
{
    static const char kinds[] = "fdei"; /* fixed, dense, expert, idle */
    berthi_plan_input *const input = &g->input;
    char *const name = strtok(line, " ");
    char *const second = strtok(NULL, " ");
    char *const third = strtok(NULL, " ");
    char *mark;

    if (strcmp(name, "layer") == 0) {
        mark = strtok(NULL, " ");
        snprintf(g->names[input->layer_count], sizeof g->names[0], "%s", second);
        g->layers[input->layer_count] = (berthi_plan_layer_input){
            .name = g->names[input->layer_count],
            .name_length = strlen(second),
            .cache = strtoull(third, NULL, 10) * GIVEN_UNIT,
            .is_tied = mark != NULL,
        };
        input->layer_count++;
        return;
    }
    snprintf(g->names[GIVEN_LIMIT + input->tensor_count], sizeof g->names[0], "%s", name);
    g->tensors[input->tensor_count] = (berthi_plan_tensor){
        .name = g->names[GIVEN_LIMIT + input->tensor_count],
        .name_length = (uint32_t)strlen(name),
        .bytes = strtoull(second, NULL, 10) * GIVEN_UNIT,
        .stored = strtoull(second, NULL, 10) * GIVEN_UNIT,
        .number = 100 + input->tensor_count,
        .layer = input->layer_count - 1,
        .tie = BERTHI_NO_TIE,
        .tier = BERTHI_NO_TIER,
        .kind = (uint8_t)(strchr(kinds, *third) - kinds),
        .encoding = (int8_t)BERTH_ENCODING_NF4,
        .dtype = BERTH_BF16,
        .expert = BERTHI_NO_EXPERT,
    };
    while ((mark = strtok(NULL, " ")) != NULL)
        read_mark(&g->tensors[input->tensor_count], mark);
    input->tensor_count++;
}

void
given_begin(given *g, const char *model)
{
    char text[4096];
    char *rest = text;

    memset(g, 0, sizeof *g);
    g->input = (berthi_plan_input){ .tensors = g->tensors,
                                    .layers = g->layers,
                                    .tiers = g->tiers,
                                    .disk_rate = GIVEN_RATE,
                                    .tokens = 1 };
    snprintf(text, sizeof text, "%s", model);
    while (*rest != '\0') {
        char *const line = rest;

        rest += strcspn(rest, "\n");
        if (*rest != '\0')
            *rest++ = '\0';
        read_line(g, line);
    }
}

void
given_tier(given *g, int32_t kind, uint64_t budget, uint64_t reserve, uint64_t link,
           uint64_t memory)
{
    g->tiers[g->input.tier_count] = (berthi_plan_tier_input){
        .tier = { kind, kind == BERTHI_TIER_GPU ? g->input.tier_count : 0 },
        .budget = budget == GIVEN_NONE ? GIVEN_NONE : budget * GIVEN_UNIT,
        .reserve_bytes = reserve * GIVEN_UNIT,
        .link_rate = GIVEN_RATE * link,
        .memory_rate = GIVEN_RATE * memory,
        .link_source = BERTH_RATE_GIVEN,
        .memory_source = BERTH_RATE_MEASURED,
    };
    g->input.tier_count++;
}

/* ------------------------------------------------------------------------- plans */

typedef struct said {
    char text[8192];
    size_t used;
} said;

__attribute__((format(printf, 2, 3))) static void
say(said *s, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    s->used += (size_t)vsnprintf(s->text + s->used, sizeof s->text - s->used, format,
                                 arguments);
    va_end(arguments);
    if (s->used >= sizeof s->text)
        abort();
}

static void
say_size(said *s, const char *what, uint64_t bytes)
{
    if (bytes == GIVEN_NONE)
        say(s, " %s inf", what);
    else if (bytes % GIVEN_UNIT != 0)
        say(s, " %s %" PRIu64 "B", what, bytes);
    else if (bytes > 0)
        say(s, " %s %" PRIu64, what, bytes / GIVEN_UNIT);
}

static void
say_time(said *s, const char *what, double seconds)
{
    if (seconds != 0)
        say(s, " %s %.6g", what, 1e3 * seconds);
}

static void
say_tier(said *s, const berth_plan_tier *tier)
{
    say(s, "%s:", tier->name);
    say_size(s, "reserve", tier->reserve);
    say_size(s, "needed", tier->reserve_needed);
    say_size(s, "weights", tier->weights);
    say_size(s, "cache", tier->cache);
    say_size(s, "activations", tier->activations);
    if (tier->slot_count > 0)
        say(s, " slots %" PRIu32 "x", tier->slot_count);
    say_size(s, "of", tier->slot_bytes);
    say_size(s, "expert", tier->expert_slots);
    say_size(s, "scratch", tier->scratch);
    say_size(s, "turned", tier->turned);
    say_size(s, "staging", tier->staging);
    say_size(s, "free", tier->free);
    say_size(s, "link", tier->link_bytes);
    say(s, " layers %" PRIu32 " berths %" PRIu64 "\n", tier->layers, tier->berths);
}

static void
say_berth(said *s, const berth_plan *plan, uint64_t i)
{
    const berthi_berth *const b = &plan->berths[i];
    char name[64];

    (void)berthi_plan_name(plan, i, name, sizeof name);
    say(s, " %s%s%" PRIu32 "@%" PRIu64 "+%" PRIu64 " %s", b->is_tied ? "=" : "",
        b->is_expert ? "e" : "", (uint32_t)b->tier, b->offset / GIVEN_UNIT,
        b->bytes / GIVEN_UNIT, name);
    CHECK_EQ(b->number, 100 + i);
    CHECK_EQ(b->encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(b->dtype, BERTH_BF16);
}

/* Less room for a reason: its begin, and nothing behind that. */
static void
check_cut(const berth_plan *plan, uint32_t number, const char *whole)
{
    for (size_t capacity = 0; capacity <= strlen(whole) + 1; capacity++) {
        char text[260];

        memset(text, '?', sizeof text);
        berthi_plan_explain(plan, number, text, capacity);
        CHECK_EQ(text[capacity], '?');
        if (capacity > 0 && CHECK_EQ(text[capacity - 1], '\0'))
            CHECK(strncmp(text, whole, capacity - 1) == 0);
    }
}

static void
say_layer(said *s, const berth_plan *plan, uint32_t number)
{
    const berth_plan_layer *const layer = &plan->layers[number].out;
    char why[256];

    berthi_plan_explain(plan, number, why, sizeof why);
    check_cut(plan, number, why);
    say(s, "%s: home %" PRIu32 ", ", layer->name, layer->home);
    say_size(s, "bytes", layer->bytes);
    say_size(s, "resident", layer->resident_bytes);
    say_size(s, "link", layer->link_bytes);
    say_size(s, "cache", layer->cache_bytes);
    say_size(s, "missing", layer->missing);
    say(s, "; %s\n ", why);
    for (uint64_t i = 0; i < layer->berth_count; i++)
        say_berth(s, plan, layer->first_berth + i);
    say(s, "\n");
}

static void
say_plan(said *s, const berth_plan *plan)
{
    const berth_plan_summary *const m = &plan->summary;

    for (uint32_t t = 0; t < m->tier_count; t++)
        say_tier(s, &plan->tiers[t]);
    for (uint32_t l = 0; l < m->layer_count; l++)
        say_layer(s, plan, l);
    say(s, "all:");
    say_size(s, "bytes", m->bytes);
    say_size(s, "resident", m->resident_bytes);
    say_size(s, "streamed", m->streamed_bytes);
    say_size(s, "link", m->link_bytes);
    say_size(s, "disk", m->disk_bytes);
    say(s, " cuts %" PRIu32 " bound %" PRId32 " of %" PRIu32 "\ntimes:", m->cuts, m->bound,
        m->bound_tier);
    say_time(s, "pass", m->seconds);
    say_time(s, "first", m->first_seconds);
    say_time(s, "compute", m->compute_seconds);
    say_time(s, "link", m->link_seconds);
    say_time(s, "disk", m->disk_seconds);
    say_time(s, "load", m->load_seconds);
    say_time(s, "host", m->host_seconds);
    say(s, " tokens %.6g a second\n%s", m->tokens_per_second, m->advice);
}

void
given_plan(given *g, const char *expected)
{
    static said s;
    static said again;
    berth_plan *plan;
    berth_error error;

    s.used = 0;
    s.text[0] = '\0';
    if (berthi_plan_make(given_context, &g->input, &plan, &error) == BERTH_OK) {
        for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
            CHECK_EQ(plan->tiers[t].budget, g->tiers[t].budget);
            CHECK_EQ(plan->tiers[t].link_rate, g->tiers[t].link_rate);
            CHECK_EQ(plan->tiers[t].memory_rate, g->tiers[t].memory_rate);
            CHECK_EQ(plan->tiers[t].link_source, BERTH_RATE_GIVEN);
            CHECK_EQ(plan->tiers[t].memory_source, BERTH_RATE_MEASURED);
            CHECK_EQ(plan->tiers[t].kind, g->tiers[t].tier.kind);
        }
        say_plan(&s, plan);
        berthi_plan_sum(plan); /* what is summed anew is the same */
        again.used = 0;
        say_plan(&again, plan);
        CHECK_STR(again.text, s.text);
    } else {
        CHECK(plan == NULL);
        say(&s, "%s", error.message);
        if (error.has & BERTH_HAS_EXPECTED)
            say_size(&s, ";", error.expected);
    }
    CHECK_STR(s.text, expected);
    berthi_plan_free(plan);
}
