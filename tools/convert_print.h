/* SPDX-License-Identifier: Apache-2.0 */
/* convert_print.h - one conversion of the tool, and what is said of it at its end. */
#ifndef BERTH_TOOLS_CONVERT_PRINT_H
#define BERTH_TOOLS_CONVERT_PRINT_H

#include "tools/convert.h"
#include "tools/coverage.h"
#include "tools/part.h"
#include "tools/report.h"

/* One run. */
typedef struct conversion {
    session *s;
    const convert_arguments *a;
    int32_t type;
    berth_checkpoint *checkpoint;
    berth_devices *devices; /* one; NULL: the processor */
    berth_device device;    /* of it */
    berth_convert_report result;
    berth_verify_report blobs; /* with --verify-blobs */
    bool has_started; /* `result` says something */
    coverage coverage;
    report report; /* JSON; its counts in text, too */
    encoding_skips skips;
    uint64_t min_coverage;
    part_share share;
} conversion;

/* For people, on standard output; nothing where an error was printed. */
void convert_print_end(const conversion *c, berth_status status);
/* The end of the JSON object that began with the findings. */
void convert_write_end(conversion *c, berth_status status);

#endif
