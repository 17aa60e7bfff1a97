/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - how two checkpoints differ, for people and for programs. Weights are
 * shown as they come; kept are the few that differ most.
 */
#ifndef BERTH_TOOLS_DIFF_H
#define BERTH_TOOLS_DIFF_H

#include "tools/json.h"
#include "tools/session.h"

#define DIFF_WORST 10

/* One of those that differ most, by relative error. */
typedef struct diff_worst {
    char *name; /* escaped, owned */
    double maximum;
    double mean;
    double relative;
    double snr;
} diff_worst;

/* Filled with zeros there is none yet. */
typedef struct diff_ranking {
    diff_worst worst[DIFF_WORST]; /* descending */
    size_t count;
    bool is_out_of_memory; /* one that belongs here is missing */
} diff_ranking;

void diff_rank(diff_ranking *r, const berth_diff_tensor *tensor);
void diff_ranking_fini(diff_ranking *r);

/* A line of --tensors. */
void diff_print_tensor(session *s, const berth_diff_tensor *tensor);
/* Counts, errors, histogram, the worst; cuts their names to the terminal's width. */
void diff_print(session *s, const berth_diff_report *report, diff_ranking *r);
/* An element of the open array. */
void diff_write_tensor(json_writer *w, const berth_diff_tensor *tensor);
/* Members of the open object. */
void diff_write(json_writer *w, const berth_diff_report *report);

#endif
