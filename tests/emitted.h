/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emitted.h - files that are to appear complete or not at all: what is in a folder, in tests.
 */
#ifndef BERTH_TESTS_EMITTED_H
#define BERTH_TESTS_EMITTED_H

#include <stdbool.h>

#include "loader/berth.h"

/* Entries of a folder; the last one's name goes into `name` (256 bytes) if set. */
int emitted_entries(const char *folder, char *name);
void emitted_check(const char *path, const char *expected);

/* Opens, writes and commits `text`; returns the first failure. */
berth_status emitted_text(berth_context *with, const char *path, const char *text,
                          bool overwrite, berth_error *error);

#endif
