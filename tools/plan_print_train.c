/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print_train.c - what a plan for training says beside its weights. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/plan_print.h"
#include "tools/table.h"

#define COLUMNS 7

/* "adapters of rank 16 on q_proj,v_proj: 448 tensors, 8388608 parameters" */
static void
print_trained(session *s, const berth_plan_training *t)
{
    if (t->method == BERTH_TRAIN_LORA)
        output_format(&s->out, "adapters of rank %" PRIu64 " on %s", t->rank, t->targets);
    else
        output_text(&s->out, "all weights");
    output_format(&s->out, ": %" PRIu64 " tensors, %" PRIu64 " parameters; %s",
                  t->parameter_count, t->elements, t->optimizer);
    output_text(&s->out, t->has_master != 0 ? ", f32 copies\n" : "\n");
}

static void
fill_tier(const berth_plan *plan, uint32_t number, char texts[][PLAN_CELL],
          table_cell *cells)
{
    berth_plan_training_tier t;
    berth_plan_tier tier;
    uint64_t parts[COLUMNS - 1];

    berth_plan_get_tier(plan, number, &tier);
    berth_plan_get_training_tier(plan, number, &t);
    parts[0] = t.adapters;
    parts[1] = t.gradients;
    parts[2] = t.states;
    parts[3] = t.slots;
    parts[4] = t.scratch + t.staging;
    parts[5] = tier.kind == BERTH_TIER_GPU ? t.link_bytes : 0;
    snprintf(texts[0], PLAN_CELL, "%s", tier.name);
    cells[0].text = texts[0];
    for (int i = 0; i < COLUMNS - 1; i++)
        cells[i + 1].text = plan_size_text(parts[i], texts[i + 1]);
}

static void
print_tiers(session *s, const berth_plan *plan)
{
    static const char *const titles[COLUMNS] = { "tier",  "adapters", "gradients", "states",
                                                 "slots", "other",    "brought a step" };
    char texts[COLUMNS][PLAN_CELL];
    table_cell cells[COLUMNS] = { { .text = "" } };
    table t = { .count = 0 };
    berth_plan_summary summary;

    berth_plan_get(plan, &summary);
    for (size_t i = 0; i < COLUMNS; i++)
        table_column_add(&t, titles[i], i > 0 ? TABLE_RIGHT : TABLE_LEFT);
    for (uint32_t i = 0; i < summary.tier_count; i++) {
        fill_tier(plan, i, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; i < summary.tier_count; i++) {
        fill_tier(plan, i, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
}

/* "bound by the link to cuda:0": 0 a memory, 1 a link, 2 the disk. */
static void
print_bound(session *s, const berth_plan *plan, int32_t bound, uint32_t number)
{
    berth_plan_tier tier;

    berth_plan_get_tier(plan, number, &tier);
    output_text(&s->out, ", bound by ");
    if (bound == BERTH_PLAN_BY_DISK)
        output_text(&s->out, "the disk\n");
    else
        output_format(&s->out,
                      bound == BERTH_PLAN_BY_LINK ? "the link to %s\n" : "the memory of %s\n",
                      tier.name);
}

/* What is known of them: multiplying takes its own time. */
static void
print_passes(session *s, const berth_plan *plan, const berth_plan_training *t)
{
    char text[PLAN_CELL];
    char size[BERTH_SIZE_CAPACITY];

    output_format(&s->out, "forward %s", plan_time_text(t->forward_seconds, text));
    output_format(&s->out, ", backward %s, multiplying not counted",
                  plan_time_text(t->backward_seconds, text));
    print_bound(s, plan, t->pass_bound, t->pass_bound_tier);
    if (t->pass_link_bytes > 0)
        output_format(&s->out, "  %s of weights to devices\n",
                      berth_size_format(t->pass_link_bytes, size));
    if (t->pass_disk_bytes > 0)
        output_format(&s->out, "  %s of weights from the disk\n",
                      berth_size_format(t->pass_disk_bytes, size));
}

static void
print_step(session *s, const berth_plan *plan, const berth_plan_training *t)
{
    char text[PLAN_CELL];
    char size[BERTH_SIZE_CAPACITY];

    output_format(&s->out, "updates of a step %s", plan_time_text(t->seconds, text));
    print_bound(s, plan, t->bound, t->bound_tier);
    output_format(&s->out, "  reading and writing in memory %s\n",
                  plan_time_text(t->update_seconds, text));
    if (t->link_bytes > 0)
        output_format(&s->out, "  %s to devices while as much goes back, %s\n",
                      berth_size_format(t->link_bytes, size),
                      plan_time_text(t->link_seconds, text));
    if (t->disk_bytes > 0)
        output_format(&s->out, "  %s read from the disk and written, %s\n",
                      berth_size_format(t->disk_bytes, size),
                      plan_time_text(t->disk_seconds, text));
}

void
plan_print_training(session *s, const berth_plan *plan)
{
    berth_plan_training t;

    if (berth_plan_get_training(plan, &t) != BERTH_OK)
        return;
    session_print_heading(s, "training");
    print_trained(s, &t);
    print_tiers(s, plan);
    print_passes(s, plan, &t);
    print_step(s, plan, &t);
}
