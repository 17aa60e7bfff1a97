/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states_stay.h - which states stay in a memory that has no room for all of them.
 *
 * What leaves is brought in each step, at the same price a byte: as many bytes stay as
 * can. Of states that are alike the first ones stay. States come in few sizes, so that
 * all numbers of each that make sense are tried, the larger sizes and numbers first; a
 * search that would take too long ends with the best of what it has tried, which is at
 * least as good as taking the largest first.
 */
#ifndef BERTH_PLACEMENT_STATES_STAY_H
#define BERTH_PLACEMENT_STATES_STAY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"

/*
 * Sets stays[i] for each of the sizes. False: no memory. Memory of the arena is taken
 * for as long as that lives.
 */
bool berthi_states_can_choose(berthi_arena *arena, const uint64_t *bytes, uint32_t count,
                              uint64_t room, uint8_t *stays);

#endif
