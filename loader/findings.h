/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.h - what an opening tells its caller: remarks as they come, and
 * whether an error ends it or waits until all of them were found.
 */
#ifndef BERTH_LOADER_FINDINGS_H
#define BERTH_LOADER_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

typedef struct berthi_findings {
    berth_finding_function report; /* NULL: nobody listens */
    void *user;
    bool keep_going;
    bool is_strict;
    uint64_t errors;
    berth_error first; /* of the errors */
    berth_context *context;
    bool has_name; /* of the tensor that the error on its way is about, whole: */
    char *name;
    uint64_t name_length;
    uint64_t name_capacity;
} berthi_findings;

void berthi_findings_init(berthi_findings *findings, berth_context *context,
                          const berth_open_options *options);
void berthi_findings_fini(berthi_findings *findings);

/*
 * Keeps the whole name of the tensor that an error is about, which the error
 * itself shows escaped and cut, until that error is told. NULL: nothing to keep.
 * Without memory for a copy, what the error shows has to do.
 */
void berthi_findings_keep_name(berthi_findings *findings, const char *name,
                               uint64_t length);

/* A note or a warning. */
__attribute__((format(printf, 5, 6))) void
berthi_findings_remark(berthi_findings *findings, berth_severity severity,
                       berth_reason reason, const berthi_about *about,
                       const char *format, ...);

/* Tells a filled error at a severity of the caller's choice; it does not count. */
void berthi_findings_tell(berthi_findings *findings, berth_severity severity,
                          const berth_error *error);

/*
 * Takes note of a filled error. True when the opening is to go on looking: the
 * caller asked for all errors, and this is not one that makes looking futile.
 */
bool berthi_findings_note(berthi_findings *findings, const berth_error *error);

/* BERTH_OK, or the first error that was noted. */
berth_status berthi_findings_result(const berthi_findings *findings, berth_error *error);

/* Foreign bytes for the middle of a message: escaped, cut, in `text`. */
#define BERTHI_SHOWN_CAPACITY 132
const char *berthi_findings_shown(const char *bytes, uint64_t length,
                                  char text[BERTHI_SHOWN_CAPACITY]);

#endif
