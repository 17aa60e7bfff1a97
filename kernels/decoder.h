/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.h - the steps of a decoder's layer but for its products, as any device is asked
 * for them; what they are stands in berth.h.
 *
 * Bits   The same on every device. All numbers are 32-bit floats, every operation is
 *        rounded on its own, and nothing is fused (core_decoder.h).
 *
 *   a sum over columns   (of squares, of products of a query and a key, of shares): column
 *       i belongs to the lane i modulo 32, in a row that is normalised whole 256; a lane
 *       adds its own in ascending order, beginning with 0. Then lane k adds lane k + half,
 *       for all k below half, which is first half the lanes, then a quarter and so on:
 *       lane 0 is the sum.
 *   attention   The positions that a query sees, the first one first, are cut into tiles of
 *       BERTHI_ATTEND_TILE; tile i belongs to the group i modulo BERTHI_ATTEND_GROUPS. A
 *       group has the largest score so far (at first the lowest finite number; a NaN is
 *       never the largest), a sum of shares and a sum of values (0). It takes its tiles in
 *       ascending order: where the tile's largest score is larger than its own it becomes
 *       that; both sums are multiplied by e^(largest before - largest now), a tile's
 *       e^(score - largest) are added up as columns are (those missing in the last tile
 *       are 0) and then to the sum of shares; each times its values is added to the sum of
 *       values, in ascending order. In the end every group's two sums are multiplied by
 *       e^(its largest - the largest of all groups) and added up in ascending order,
 *       beginning with 0; then values are divided by shares.
 *   choices   e^(logit - largest), of those that count, are added up over experts as over
 *       columns, what does not count being 0; each is divided by the sum.
 */
#ifndef BERTH_KERNELS_DECODER_H
#define BERTH_KERNELS_DECODER_H

#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_DECODER_LANES 32u
#define BERTHI_NORM_LANES 256u /* of a row that is normalised whole */
#define BERTHI_HEAD_WIDTH 256u /* at most */
#define BERTHI_ATTEND_TILE BERTHI_DECODER_LANES
#define BERTHI_ATTEND_GROUPS 8u
#define BERTHI_CHOOSE_EXPERTS 1024u /* at most, to choose from */
#define BERTHI_CHOOSE_USED 64u /* at most, chosen */

/* BERTH_OK, or EINVAL: what no device does. No size of checked ones overflows. */
berth_status berthi_take_check(const berth_take *step, berth_error *error);
berth_status berthi_norm_check(const berth_norm *step, berth_error *error);
berth_status berthi_rotate_check(const berth_rotate *step, berth_error *error);
berth_status berthi_attend_check(const berth_attend *step, berth_error *error);
berth_status berthi_gate_check(const berth_gate *step, berth_error *error);
berth_status berthi_add_check(const berth_add *step, berth_error *error);
berth_status berthi_choose_check(const berth_choose *step, berth_error *error);
berth_status berthi_largest_check(const berth_largest *step, berth_error *error);

/* Checked, on host memory, by plain loops. */
void berthi_take_run(const berth_take *step);
void berthi_norm_run(const berth_norm *step);
void berthi_rotate_run(const berth_rotate *step);
void berthi_attend_run(const berth_attend *step);
void berthi_gate_run(const berth_gate *step);
void berthi_add_run(const berth_add *step);
void berthi_choose_run(const berth_choose *step);
void berthi_largest_run(const berth_largest *step);

#endif
