/* SPDX-License-Identifier: Apache-2.0 */
/* drawn.h - maps for the tests of pictures, made by hand: no plan, no checkpoint. */
#ifndef BERTH_TESTS_DRAWN_H
#define BERTH_TESTS_DRAWN_H

#include "tools/draw_map.h"

/* A tier of this budget; its parts and what is free are zero. Returns its number. */
uint32_t drawn_tier(draw_map *map, const char *name, uint64_t budget);
/* A layer without tensors. Returns its number. */
uint32_t drawn_layer(draw_map *map, const char *name, uint32_t home, const char *reason);
/* A tensor of the last layer. */
void drawn_tensor(draw_map *map, const char *name, uint32_t tier, uint64_t bytes,
                  int32_t encoding, int32_t dtype, bool is_expert);
/* Sums, what is free, cells. */
void drawn_finish(draw_map *map);

/*
 * Twelve layers of a dense model on cuda:0 (full), cuda:1 (two of its layers are
 * streamed from cpu) and cpu; the sizes are round.
 */
void drawn_dense(draw_map *map);
/* DeepSeek-V3's shape: 61 layers, 256 experts in most of them, 91,991 tensors. */
void drawn_experts(draw_map *map);

#endif
