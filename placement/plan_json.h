/* SPDX-License-Identifier: Apache-2.0 */
/* plan_json.h - a plan as text, berth-plan(5), both ways. No I/O. */
#ifndef BERTH_PLACEMENT_PLAN_JSON_H
#define BERTH_PLACEMENT_PLAN_JSON_H

#include "placement/plan.h"
#include "quant/members.h"
#include "quant/json_text.h"

#define BERTHI_PLAN_VERSION 1u
#define BERTHI_PLAN_TEXT_LIMIT UINT64_C(1000000000) /* bytes */

/* What is read back is the same plan, and printed again the same text. */
berth_status berthi_plan_print(const berth_plan *plan, berthi_json_put put, void *user,
                               berth_error *error);
/*
 * `text` is changed. Sums of tiers and layers are made anew from the berths. Fails with
 * PLAN_JSON and a position, UNSUPPORTED or NO_MEMORY; free with berthi_plan_free().
 */
berth_status berthi_plan_parse(berth_context *context, char *text, uint64_t bytes,
                               const char *file, berth_plan **out, berth_error *error);

/* ------------------------------------------------- between the files of this text */

/*
 * Whole nanoseconds: what is read back is the same. Rates may be anybody's: a time longer
 * than these numbers go is cut.
 */
void berthi_plan_print_time(berthi_json_text *text, const char *key, double seconds);
/* "layers"; the head and the tiers have been read. */
bool berthi_plan_can_read_layers(berthi_members *m, berth_plan *plan);
/*
 * All has been read: berths without an offset get one, and none may overlap another of
 * its tier.
 */
bool berthi_plan_can_lay_read(berthi_members *m, berth_plan *plan);
/* "training" with its comma, if the plan is for that. */
void berthi_plan_print_training(berthi_json_text *text, const berth_plan *plan);
/* The same, if it is there; layers and tiers have been read. */
bool berthi_plan_can_read_training(berthi_members *m, berth_plan *plan);

#endif
