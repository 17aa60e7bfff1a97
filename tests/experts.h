/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - a model whose experts have slots, with the calls a test makes of them
 * shortened, and what an expert has to hold while it is leased.
 */
#ifndef BERTH_TESTS_EXPERTS_H
#define BERTH_TESTS_EXPERTS_H

#include <stdint.h>

#include "tests/leased.h"

#define EXPERTS_LAYERS 4u
#define EXPERTS_COUNT  16u /* of a layer */
#define EXPERTS_MOST   32u /* of one request */

/* 3 KiB an expert; 146 KiB are not experts. So many slots, of 2 * batch at most. */
void experts_begin_with(leased *l, const char *memory, uint32_t slots,
                        const char *devices);
/* No more slots than these, however many the plan has. */
void experts_limit_slots(leased *l, uint32_t slots);
/* leased_start(); ends the test's program where that fails. */
void experts_start(leased *l);
/* Both, with one device. */
void experts_begin(leased *l, uint32_t slots);

berth_lease_summary experts_summary(const leased *l);
/* The decoder layer of this number. */
uint32_t experts_layer(const leased *l, uint32_t number);
uint32_t experts_home(const leased *l, uint32_t layer);
/* Numbers of the experts of a layer that are away; how many they are. */
uint32_t experts_list_away(const leased *l, uint32_t layer,
                           uint32_t numbers[EXPERTS_COUNT]);

/* The next of a row of numbers below 2^31. */
uint64_t experts_draw(uint64_t *random);
/* Some different experts of a layer, resident ones, too. */
uint32_t experts_draw_some(uint64_t *random, uint32_t most,
                           uint32_t numbers[EXPERTS_MOST]);

berth_status experts_acquire(leased *l, uint32_t layer, const uint32_t *numbers,
                             uint32_t count, berthi_stream *stream, berth_error *error);
berth_status experts_release(leased *l, uint32_t layer, const uint32_t *numbers,
                             uint32_t count, berthi_stream *stream, berth_error *error);
berth_status experts_prefetch(leased *l, uint32_t layer, const uint32_t *numbers,
                              uint32_t count);
/* Asks the stream to compare an expert that is leased, `seconds` after what it does. */
berth_status experts_look_at(leased *l, uint32_t layer, uint32_t number,
                             berthi_stream *stream, double seconds, berth_error *error);
/* Acquires, compares when a use begins and when it ends, releases. */
berth_status experts_use(leased *l, uint32_t layer, const uint32_t *numbers,
                         uint32_t count, berthi_stream *stream, double seconds,
                         berth_error *error);

#endif
