/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print.h - a plan for people: tables, the plain map, one layer. */
#ifndef BERTH_TOOLS_PLAN_PRINT_H
#define BERTH_TOOLS_PLAN_PRINT_H

#include "tools/session.h"

#define PLAN_CELL 64
#define PLAN_EXPLAIN_CAPACITY 512 /* why a layer is where it is */

/* "-" for nothing, "no limit"; a time in its unit. */
const char *plan_size_text(uint64_t bytes, char text[PLAN_CELL]);
const char *plan_time_text(double seconds, char text[PLAN_CELL]);

/* What is trained, where its states are, what updates cost; nothing of other plans. */
void plan_print_training(session *s, const berth_plan *plan);

/* Tiers, layers (ranges of equal ones in a line), predictions, reasons. */
void plan_print(session *s, const berth_plan *plan);
/* {"model.layers.0": 0, ...}: one JSON object. */
void plan_print_map(output *out, const berth_plan *plan);
/*
 * Where layers lie, why, and their tensors. `name` is all of a layer's path, its number,
 * or a range of numbers, as "model.layers.3-17" or "3-17". False when no layer or more than
 * one is called so; nothing is printed.
 */
bool plan_has_layers(const berth_plan *plan, const char *name, uint32_t *out_first,
                     uint32_t *out_last);
void plan_print_layers(session *s, const berth_plan *plan, uint32_t first, uint32_t last);

#endif
