/* SPDX-License-Identifier: Apache-2.0 */
/* plan_words.h - what a plan calls causes, bounds, slices, routings; its sentences' numbers. */
#ifndef BERTH_PLACEMENT_PLAN_WORDS_H
#define BERTH_PLACEMENT_PLAN_WORDS_H

#include <stdbool.h>
#include <stdint.h>

/* "resident", "short", "pinned", "mapped", "tied", "rows"; NULL: no such number. */
const char *berthi_plan_cause_word(int32_t cause);
/* "compute", "link", "disk" */
const char *berthi_plan_bound_word(int32_t bound);
/* "all", "rows", "columns", "depths" */
const char *berthi_plan_slicing_word(int32_t slicing);
/* "uniform", "given" */
const char *berthi_plan_routing_word(int32_t routing);
/* Of training: "full", "lora" */
const char *berthi_plan_method_word(int32_t method);
/* "pure", "autocast", "master" */
const char *berthi_plan_precision_word(int32_t precision);
/* "whole", "lora_A", "lora_B" */
const char *berthi_plan_part_word(int32_t part);
/* "device", "host", "disk" */
const char *berthi_plan_place_word(int32_t place);

#define BERTHI_REAL_CAPACITY 32u
/* A number not below 0 with three significant digits; the same whatever the locale. */
const char *berthi_real_text(double value, char text[BERTHI_REAL_CAPACITY]);

typedef const char *(*berthi_plan_words)(int32_t number);
/* The number that `words` has for a text; of rates, berthi_rate_source_name. */
bool berthi_plan_can_find_word(berthi_plan_words words, const char *text, int32_t *out);

#endif
