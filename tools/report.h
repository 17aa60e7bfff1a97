/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - findings and the verdict of `berth verify`, written as they come
 * so that memory does not grow with their number.
 */
#ifndef BERTH_TOOLS_REPORT_H
#define BERTH_TOOLS_REPORT_H

#include "tools/json.h"
#include "tools/session.h"

typedef struct report {
    session *s;
    bool is_json;
    bool is_quiet; /* errors only, no verdict */
    json_writer w;
    uint64_t counts[BERTH_SEVERITY_ERROR + 1];
    berth_error first_error; /* of the errors among the findings */
} report;

/* What the verdict is about; members are zero or NULL where not known. */
typedef struct report_facts {
    const berth_checkpoint *checkpoint;
    const berth_verify_report *digest; /* NULL: bytes were not read */
    int32_t manifest_mode;
    const char *manifest;
} report_facts;

/* `model` is what the user named. */
void report_begin(report *r, session *s, const char *model, bool is_json, bool is_quiet);
/* A berth_finding_function; `user` is the report. */
void report_finding(void *user, const berth_finding *finding);
/* The end of the findings and what they come to: the first half of the verdict. */
void report_write_status(report *r, berth_status status);
/* The error a call returned, unless it is the finding that was shown first. */
void report_error(report *r, const berth_error *error);
void report_end(report *r, berth_status status, const report_facts *facts);

#endif
