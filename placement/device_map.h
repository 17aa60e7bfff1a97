/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_map.h - the plain device map of transformers: {"model.layers.0": 0, ...},
 * read, checked, asked and made.
 *
 * A key is a module's path, a tensor's name, or "" for all. A tensor belongs to the
 * longest key that is its name or ends before a dot of it. Values: a whole number,
 * "0", "cuda:0", "cuda", "cpu", "disk". No I/O.
 */
#ifndef BERTH_PLACEMENT_DEVICE_MAP_H
#define BERTH_PLACEMENT_DEVICE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "placement/tier.h"
#include "quant/architecture.h"

typedef struct berthi_map_line {
    const char *path;
    uint64_t path_length;
    berthi_tier tier;
} berthi_map_line;

/* `lines` in the order of the file; `by_path` sorted bytewise. */
typedef struct berthi_device_map {
    berthi_arena arena;
    berthi_map_line *lines;
    uint32_t *by_path;
    uint32_t count;
} berthi_device_map;

/*
 * Parses one JSON object; `text` is changed, names are copied. Fails with DEVICE_MAP
 * (a position; a key twice; a value that is no device, a negative number) or
 * NO_MEMORY. Free with berthi_device_map_fini(), after failures, too.
 */
berth_status berthi_device_map_parse(berth_context *context, char *text, uint64_t bytes,
                                     const char *file, berthi_device_map *out,
                                     berth_error *error);
/* From lines; paths are copied. Fails with NO_MEMORY. */
berth_status berthi_device_map_make(berth_context *context, const berthi_map_line *lines,
                                    uint32_t count, berthi_device_map *out,
                                    berth_error *error);
void berthi_device_map_fini(berthi_device_map *map);

/* The line that a tensor or module of this name belongs to; NULL: none. */
const berthi_map_line *berthi_device_map_find(const berthi_device_map *map,
                                              const char *name, uint64_t length);

/*
 * Every line names something in the model, and every parameter and persistent buffer
 * of the model has a line, else DEVICE_MAP naming the first ones and how many. Where
 * the model is a guess, lines that name nothing are left out instead: they may name
 * what headers do not show. Calls `stray` for each of these, and for tied names on
 * different tiers.
 */
berth_status berthi_device_map_check(berthi_device_map *map,
                                     const berthi_architecture *model, const char *file,
                                     void (*stray)(void *user, const char *path,
                                                   uint64_t length, const char *problem),
                                     void *user, berth_error *error);

/*
 * The shortest map (shorten.h) that gives each parameter of the model what `tier_of`
 * says, in the order of its modules. `tier_of` is asked about what the checkpoint
 * holds; a tied name goes with its source, the rest with its neighbours. Fails with
 * NO_MEMORY.
 */
berth_status berthi_device_map_clean(berth_context *context,
                                     const berthi_architecture *model,
                                     berthi_tier (*tier_of)(void *user,
                                                            const berthi_parameter *what),
                                     void *user, berthi_device_map *out,
                                     berth_error *error);

#endif
