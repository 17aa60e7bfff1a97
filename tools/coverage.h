/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage.h - what became of a model's parameters, and why: for people as bars
 * and a table, for programs as JSON. Keeps the lines as they come.
 */
#ifndef BERTH_TOOLS_COVERAGE_H
#define BERTH_TOOLS_COVERAGE_H

#include "tools/json.h"
#include "tools/session.h"

typedef struct coverage_line {
    char *cause; /* as in berth_coverage, owned */
    int32_t encoding;
    uint64_t tensors;
    uint64_t parameters;
    uint64_t source_bytes;
    uint64_t stored_bytes;
    uint64_t kept;
} coverage_line;

/* Filled with zeros it is empty. */
typedef struct coverage {
    coverage_line *lines; /* first one an encoding, then one a cause */
    size_t count;
    size_t capacity;
    bool is_out_of_memory; /* lines are missing */
} coverage;

/* A berth_coverage_function; `user` is the coverage. */
void coverage_add(void *user, const berth_coverage *line);
void coverage_fini(coverage *c);

/* Prints nothing where there is nothing; cuts causes to the terminal's width. */
void coverage_print(session *s, coverage *c);
/* A member "coverage" of the open object; null where there is nothing. */
void coverage_write_json(json_writer *w, const coverage *c);

#define COVERAGE_SHARE_CAPACITY 16
/* "86.9%", "<0.1%", "100%": cut, so that 100% is all. Returns `text`. */
const char *coverage_share_text(uint64_t part, uint64_t whole,
                                char text[COVERAGE_SHARE_CAPACITY]);

#endif
