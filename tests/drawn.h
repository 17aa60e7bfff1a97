/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drawn.h - for the tests of pictures: maps made by hand, without plan or checkpoint, and what is
 * drawn of them, against files of tests/data/map.
 */
#ifndef BERTH_TESTS_DRAWN_H
#define BERTH_TESTS_DRAWN_H

#include "tools/draw_map.h"

extern const screen drawn_unicode;
extern const screen drawn_ascii;
extern const screen drawn_colourful;

/* A tier of this budget; its parts and what is free are zero. Returns its number. */
uint32_t drawn_tier(draw_map *map, const char *name, uint64_t budget);
/* A layer without tensors. Returns its number. */
uint32_t drawn_layer(draw_map *map, const char *name, uint32_t home, const char *reason);
/* A tensor of the last layer. */
void drawn_tensor(draw_map *map, const char *name, uint32_t tier, uint64_t bytes,
                  int32_t encoding, int32_t dtype, bool is_expert);
/* A layer with one tensor of f32. */
void drawn_plain_layer(draw_map *map, const char *name, uint32_t home, uint32_t tier,
                       uint64_t bytes);
/* Sums, what is free, cells. */
void drawn_finish(draw_map *map);

/*
 * Twelve layers of a dense model on cuda:0 (full), cuda:1 (two of its layers are
 * streamed from cpu) and cpu; the sizes are round.
 */
void drawn_dense(draw_map *map);
/* DeepSeek-V3's shape: 61 layers, 256 experts in most of them, 91,991 tensors. */
void drawn_experts(draw_map *map);

/* What is printed from here on is kept. */
void drawn_begin(void);
output *drawn_out(void);
/* What has been written since drawn_begin(). */
const char *drawn_written(size_t *length);
/*
 * That this is tests/data/map/NAME; with UPDATE=1 in the environment it is written there, for a
 * person to look at.
 */
void drawn_check_golden(const char *name);
size_t drawn_count(const char *text, const char *word);

#endif
