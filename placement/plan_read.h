/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_read.h - values of a plan's JSON that more than one of its parts has: words,
 * types, tiers, times. Only for plan_parse*.c and plan_train_parse.c.
 */
#ifndef BERTH_PLACEMENT_PLAN_READ_H
#define BERTH_PLACEMENT_PLAN_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/plan.h"
#include "placement/plan_words.h"
#include "quant/members.h"

/* Key and value. */
bool berthi_plan_can_read_word(berthi_members *m, const char *key,
                               berthi_plan_words words, int32_t *out);
bool berthi_plan_can_read_dtype(berthi_members *m, const char *key, int32_t *out);
bool berthi_plan_can_read_encoding(berthi_members *m, const char *key, int32_t *out);
/* The name of a tier that has been listed. */
bool berthi_plan_can_read_tier(berthi_members *m, const berth_plan *plan, const char *key,
                               uint32_t *out);
bool berthi_plan_can_read_32(berthi_members *m, const char *key, uint32_t *out);
/* Bytes of which sums are made. */
bool berthi_plan_can_read_bytes(berthi_members *m, const char *key, uint64_t *out);
/* Nanoseconds, as seconds. */
bool berthi_plan_can_read_time(berthi_members *m, const char *key, double *out);
/* False where it is not there. */
bool berthi_plan_can_read_flag_if(berthi_members *m, const char *key, bool *out);

#endif
