/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_race.h - the lanes of simt.h as threads of the thread sanitizer, which then sees what two of
 * them touch without having met. Without it everything here does nothing.
 *
 * The files of the machine are not watched: only bodies of kernels are, and what the machine copies
 * for them. All that a CTA does is behind what the one before did, and before what the next one
 * does.
 */
#ifndef BERTH_TESTS_SIMT_RACE_H
#define BERTH_TESTS_SIMT_RACE_H

#include <stdbool.h>
#include <stdint.h>

/* What lanes tell each other by; its address is all there is of it. */
typedef struct simt_told {
    uint8_t unused;
} simt_told;

/* Of a launch. What is known to race is not told but by a complaint. */
void simt_race_begin(bool is_racy);
/* Whether there was a race: the sanitizer may be blind to memory from the first one there on. */
bool simt_race_end(void);
/* Of a CTA: all begin before the first one is entered, and end when none is any more. */
void simt_race_begin_lane(uint32_t lane);
void simt_race_end_lane(uint32_t lane, bool has_ended);
/* Just before the machine goes on with a lane, and before a lane gives its turn back. */
void simt_race_enter_lane(uint32_t lane);
void simt_race_leave_lane(void);

/* What the lane has done so far, to whoever learns of it later. */
void simt_race_tell(simt_told *told);
void simt_race_learn(simt_told *told);
/* As if the lane wrote it. */
void simt_race_write(void *memory, uint32_t bytes);

#endif
