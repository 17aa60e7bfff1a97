/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted.h - berth_convert_start() in a test: a model in, a folder out, and
 * everything given back afterwards.
 */
#ifndef BERTH_TESTS_CONVERTED_H
#define BERTH_TESTS_CONVERTED_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

typedef struct converted {
    berth_convert_options options; /* converted_begin() fills it; `report` is ours */
    berth_convert_report report;
    berth_error error;
    uint32_t findings;
    berth_error finding; /* the last one */
    uint32_t lines;      /* of coverage */
} converted;

/* To `output` in this encoding, everything else as it is by itself. */
void converted_begin(converted *c, const char *output, int32_t type);
/* Opens `path`, converts, closes; no memory and no descriptor is left. */
berth_status converted_run(converted *c, const char *path);
/* The same in a context of the caller's. */
berth_status converted_run_in(converted *c, berth_context *context, const char *path);

#endif
