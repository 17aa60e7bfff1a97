/* SPDX-License-Identifier: Apache-2.0 */
/*
 * published.h - sets of files that are opened, refused, left and published, in tests.
 */
#ifndef BERTH_TESTS_PUBLISHED_H
#define BERTH_TESTS_PUBLISHED_H

#include <stdbool.h>

#include "loader/writer.h"

#define PUBLISHED_INDEX "model.safetensors.index.json"
#define PUBLISHED_JOURNAL ".berth-journal.json"

extern berth_context *published_context;

berth_status published_open(const char *folder, const char *job, bool overwrite,
                            bool is_resume, berthi_writer **out, berth_error *error);

/* Refused for this reason; leaves nothing behind. */
void published_refuse(const char *folder, bool overwrite, bool is_resume,
                      berth_reason reason, const char *message);
bool published_has(const char *folder, const char *name);
void published_check(const char *folder, const char *name, const char *expected);

/* A run of `job` that ends early, with finished files "a" and "b". */
void published_interrupt(const char *folder, const char *job, bool overwrite);

/* The only temporary file of `name` in the folder. */
const char *published_temporary(berthi_writer *writer, const char *folder,
                                const char *name);

#define PUBLISHED_MAP(first, second) \
    "{\"weight_map\": {\"x\": \"" first "\", \"y\": \"" second "\"}}"

void published_over(const char *folder, const char *shard, const char *commit);

#endif
