/* SPDX-License-Identifier: Apache-2.0 */
/* plan_train_print.c - the part of a plan's JSON that is about training. */
#include <string.h>

#include "placement/plan_json.h"
#include "placement/plan_train.h"
#include "placement/plan_words.h"

#define NAME_BYTES 4096u /* longer ones are cut: they are for readers */

static void
add(berthi_json_text *text, const char *words)
{
    berthi_json_text_add_words(text, words);
}

static void
add_text(berthi_json_text *text, const char *key, const char *value)
{
    add(text, key);
    berthi_json_text_add_string(text, value, strlen(value), BERTHI_JSON_ASCII);
}

static void
add_number(berthi_json_text *text, const char *key, uint64_t value)
{
    add(text, key);
    berthi_json_text_add_number(text, value);
}

static void
print_head(berthi_json_text *text, const berth_plan_training *about)
{
    add_text(text, "  \"training\": {\"method\": ", berthi_plan_method_word(about->method));
    add_text(text, ", \"precision\": ", berthi_plan_precision_word(about->precision));
    add_text(text, ", \"optimizer\": ", about->optimizer);
    add_number(text, ", \"rank\": ", about->rank);
    add_text(text, ", \"targets\": ", about->targets);
    add(text, ",\n    \"accumulate_f32\": ");
    add(text, about->accumulates_f32 != 0 ? "true" : "false");
    add_number(text, ", \"page_bytes\": ", about->page_bytes);
}

static void
print_tier(berthi_json_text *text, const char *name, const berth_plan_training_tier *tier)
{
    add_text(text, "      {\"name\": ", name);
    add_number(text, ", \"adapters\": ", tier->adapters);
    add_number(text, ", \"gradients\": ", tier->gradients);
    add_number(text, ", \"states\": ", tier->states);
    add_number(text, ", \"slots\": ", tier->slots);
    add_number(text, ",\n       \"scratch\": ", tier->scratch);
    add_number(text, ", \"staging\": ", tier->staging);
    add_number(text, ", \"link_bytes\": ", tier->link_bytes);
    add_number(text, ", \"update_bytes\": ", tier->update_bytes);
    add(text, "}");
}

static void
print_parameter(berthi_json_text *text, const berth_plan *plan,
                const berthi_trained *trained)
{
    char name[NAME_BYTES];

    berthi_trained_name(plan, trained, name, sizeof name);
    add_number(text, "      {\"berth\": ", trained->berth);
    add_text(text, ", \"part\": ", berthi_plan_part_word(trained->part));
    add_text(text, ", \"name\": ", name);
    add_number(text, ", \"rows\": ", trained->rows);
    add_number(text, ", \"columns\": ", trained->columns);
    add_text(text, ", \"dtype\": ", berth_dtype_name(trained->dtype));
    add_text(text, ", \"states\": ", berthi_plan_place_word(trained->place));
    add(text, "}");
}

static void
print_prediction(berthi_json_text *text, const berth_plan *plan,
                 const berth_plan_training *about)
{
    berthi_plan_print_time(text, "\n    ],\n    \"predicted\": {\"nanoseconds\": ",
                           about->seconds);
    berthi_plan_print_time(text, ", \"update\": ", about->update_seconds);
    berthi_plan_print_time(text, ", \"link\": ", about->link_seconds);
    berthi_plan_print_time(text, ", \"disk\": ", about->disk_seconds);
    add_text(text, ", \"bound\": ", berthi_plan_bound_word(about->bound));
    add_text(text, ", \"bound_tier\": ", plan->tiers[about->bound_tier].name);
    add_number(text, ",\n      \"link_bytes\": ", about->link_bytes);
    add_number(text, ", \"disk_bytes\": ", about->disk_bytes);
    add(text, "},\n");
}

static void
print_passes(berthi_json_text *text, const berth_plan *plan,
             const berth_plan_training *about)
{
    berthi_plan_print_time(text, "    \"passes\": {\"forward\": ", about->forward_seconds);
    berthi_plan_print_time(text, ", \"backward\": ", about->backward_seconds);
    add_text(text, ", \"bound\": ", berthi_plan_bound_word(about->pass_bound));
    add_text(text, ", \"bound_tier\": ", plan->tiers[about->pass_bound_tier].name);
    add_number(text, ",\n      \"link_bytes\": ", about->pass_link_bytes);
    add_number(text, ", \"disk_bytes\": ", about->pass_disk_bytes);
    add(text, "}},\n");
}

void
berthi_plan_print_training(berthi_json_text *text, const berth_plan *plan)
{
    const berthi_plan_training *const training = plan->training;

    if (training == NULL)
        return;
    print_head(text, &training->about);
    add(text, ",\n    \"tiers\": [");
    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        add(text, t > 0 ? ",\n" : "\n");
        print_tier(text, plan->tiers[t].name, &training->tiers[t]);
    }
    add(text, "\n    ],\n    \"parameters\": [");
    for (uint64_t i = 0; i < training->about.parameter_count; i++) {
        add(text, i > 0 ? ",\n" : "\n");
        print_parameter(text, plan, &training->trained[i]);
    }
    print_prediction(text, plan, &training->about);
    print_passes(text, plan, &training->about);
}
