/* SPDX-License-Identifier: Apache-2.0 */
/*
 * written.h - one output of the writer with everything in it, to be broken off
 * anywhere and run again: the new model is the same whatever happened before.
 *
 * New model: three shards, config.json, a template two folders deep,
 * berth.manifest.json and the index. One shard is moved inside its file, all
 * shards get other names at the end, one file is dropped. Old model: an index, a
 * shard under a name that the new model has too, a shard in a folder of its own,
 * config.json; README.md is nobody's.
 */
#ifndef BERTH_TESTS_WRITTEN_H
#define BERTH_TESTS_WRITTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/writer.h"

#define WRITTEN_JOB "quantize\nsource: a model\ntype: nf4"
#define WRITTEN_FILES 7u
#define WRITTEN_FOLDERS 2u
#define WRITTEN_BYTES 8192u /* more than any of the files has */

/* What somebody sees who opens the folder as a model. */
typedef enum written_view {
    WRITTEN_NOTHING, /* no index and no model.safetensors */
    WRITTEN_OLD,     /* whole */
    WRITTEN_NEW,     /* whole */
    WRITTEN_BROKEN   /* an index, and not all that belongs to it */
} written_view;

typedef struct written_run {
    const char *folder;
    bool overwrite;
    bool resume;
    uint64_t created; /* files that had to be written */
    uint64_t found;   /* files that were finished before */
} written_run;

/* The old model in an empty folder. */
void written_make_old(const char *folder);

/* Everything from open to close; the first failure. Checks what is found. */
berth_status written_do(written_run *run, berth_context *context, berth_error *error);

written_view written_look(const char *folder);
/* The new model, README.md if there was an old one, and nothing else. */
bool written_is_clean(const char *folder, bool had_old);

/* One file, for tests of single calls: all of `text`, finished. */
berth_status written_text(berthi_writer *writer, const char *name, const char *text,
                          berth_error *error);

#endif
