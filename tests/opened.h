/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened.h - opening a model in a test: context, findings, clean-up and the
 * checks that hold whatever is opened.
 */
#ifndef BERTH_TESTS_OPENED_H
#define BERTH_TESTS_OPENED_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define OPENED_FINDINGS 64

typedef struct opened_finding {
    int32_t severity;
    berth_error details;
} opened_finding;

typedef struct opened {
    berth_context *context;
    berth_checkpoint *checkpoint; /* NULL: it was refused */
    berth_status status;
    berth_error error;
    berth_checkpoint_summary summary;
    uint32_t finding_count; /* all; the first OPENED_FINDINGS are kept */
    opened_finding findings[OPENED_FINDINGS];
    int fds;
} opened;

/* What holds of every finding: its name is the one that its details show. */
void opened_check_finding(const berth_finding *finding);

/* Opens `path`; `options` may be NULL. The findings are collected here. */
void opened_begin(opened *o, const char *path, const berth_open_options *options);
/* Closes; memory and descriptors must be what they were. */
void opened_end(opened *o);

/* The n-th finding of this reason, or NULL. */
const opened_finding *opened_find(const opened *o, berth_reason reason, uint32_t n);
uint32_t opened_count(const opened *o, berth_reason reason);

/* Must be refused with this reason; `words` is part of the formatted error. */
void opened_refuse(const char *path, const berth_open_options *options,
                   berth_reason reason, const char *words);
/* Must open; returns the number of tensors. */
uint64_t opened_accept(const char *path, const berth_open_options *options);

#endif
