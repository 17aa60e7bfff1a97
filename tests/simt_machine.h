/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_machine.h - what the files of the machine of simt.h share: simt.c has its lanes, their turns
 * and shared memory, simt_wide.c what four warps do together and what goes on beside lanes.
 */
#ifndef BERTH_TESTS_SIMT_MACHINE_H
#define BERTH_TESTS_SIMT_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/simt.h"
#include "tests/simt_race.h"

typedef enum simt_waiting {
    WAITS_FOR_NOTHING,
    WAITS_AT_BARRIER,
    WAITS_AT_SHUFFLE,
    WAITS_FOR_EARLIER, /* work in the stream */
    WAITS_AT_GROUP, /* a barrier of four warps; simt_wide.c, as the next one */
    WAITS_AT_GATE,
    HAS_ENDED
} simt_waiting;

/* How often all have come, and how many have come since. */
typedef struct simt_meeting {
    uint64_t complete;
    uint32_t arrived;
    simt_told told[2]; /* in turn: a fast lane is one ahead */
} simt_meeting;

/* ------------------------------------------------------------------------ of simt.c */

/* The first one is kept. */
void simt_complain(const char *what);
uint32_t simt_current(void);
simt_order simt_order_of_launch(void);
uint64_t simt_draw(void);
void simt_give_up_turn(simt_waiting waits);
void simt_arrive(simt_meeting *meeting, uint32_t expected);
/* The lane's meeting of this number, of so many lanes: what each did before all know behind it. */
void simt_meet(simt_meeting *meeting, uint32_t expected, uint64_t number, simt_waiting waits);
/* All of the lane's warp meet. */
void simt_meet_warp(void);
/* The CTA's shared memory, declared or not. */
uint8_t *simt_shared(size_t *bytes);

/* ------------------------------------------------------------------- of simt_wide.c */

void simt_wide_begin_cta(void);
void simt_wide_begin_lane(uint32_t lane);
/* Of a lane that waits at one of its two. */
bool simt_wide_can_run(uint32_t lane, simt_waiting waits);
/* One of the tiles that are on their way comes; false: there is none. */
bool simt_wide_let_come(void);
void simt_wide_check_ended(uint32_t threads);

#endif
