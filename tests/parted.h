/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parted.h - conversions by several parts, to be broken off anywhere and gone on
 * with: the files are those of one process, whatever has happened.
 */
#ifndef BERTH_TESTS_PARTED_H
#define BERTH_TESTS_PARTED_H

#include "tests/converted.h"

/* A conversion by parts, and what it gives by one process. */
typedef struct parted_scene {
    const char *name;
    uint32_t parts;
    int32_t double_quant;
    uint64_t shard_bytes;
    uint32_t shards; /* that there are */
    uint32_t copies; /* of them made by copying */
    const char *whole;
} parted_scene;

#define PARTED_SCENES 6u

extern parted_scene parted_scenes[PARTED_SCENES];
extern const char *parted_model;     /* what is converted */
extern const char *parted_old_model; /* what may stand in an output before */

/* Fills all of this; comes first. */
void parted_make_models(void);
/* The scene's conversion, as one process does it. */
void parted_begin(const parted_scene *s, converted *c, const char *output);

/* All parts, one after the other, of which some may be done. */
typedef struct parted_work {
    const parted_scene *scene;
    const char *folder;
    bool overwrite;
    bool resume; /* every part, not only this one: */
    uint32_t resumed;
    uint32_t *at; /* the part under way, known to children; the next run begins there */
    uint32_t copies; /* counted here */
    berth_error error;
} parted_work;

/* From the beginning, in an output that holds the old model or is not there. */
parted_work parted_prepare(const parted_scene *s, const char *folder, bool has_old);
/* One part; 0: the join. */
berth_status parted_run(parted_work *w, uint32_t part, bool resume,
                        uint32_t *out_missing);
berth_status parted_run_all(parted_work *w);
/* The same as crash.h wants it. */
bool parted_do(void *user);
converted_view parted_look(const parted_work *w);
/* Runs the part that was under way, alone; then those that had not been begun. */
bool parted_is_recovered(parted_work *w);
/* Where a loop of that step begins, so that scenes do not leave out the same. */
uint64_t parted_first(const parted_scene *s, uint64_t step);

#endif
