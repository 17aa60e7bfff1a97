/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - what was found, a line of JSON each, in the order it was found in: by programs
 * here, and with the same keys by check.sh.
 *
 *   {"kind":"fact","name":"GPU","value":"NVIDIA H200"}
 *   {"kind":"stage","name":"build","seconds":41.2,"status":"done"}
 *   {"kind":"tests","name":"test_simt_int8","passed":8,"failed":0,"skipped":1,"seconds":2}
 *   {"kind":"speed","group":"quantize","name":"NF4 ...","value":0.87,"unit":"of copy",
 *    "target":0.85,"relation":">=","met":true,"us":161,"us_low":160,"us_high":163,
 *    "samples":50,"launches":20,"gbps":3730}
 *   {"kind":"skipped","name":"sanitizer","reason":"..."}
 *
 * A value without a target has no relation and no "met"; neither has any simulated one. Where the
 * limits have moved meanwhile, the report says "void":true in place of "met".
 */
#ifndef BERTH_TESTS_GPU_ROWS_H
#define BERTH_TESTS_GPU_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Of one launch, in microseconds: the median, the 10th and the 90th percentile. */
typedef struct gpu_timing {
    double us;
    double low;
    double high;
    uint32_t samples;
    uint32_t launches; /* of a sample, back to back */
} gpu_timing;

typedef struct gpu_row {
    const char *group;
    const char *name;
    double value;
    const char *unit;
    const char *relation; /* ">=", "<="; NULL: nothing is to be reached */
    double target;
    const gpu_timing *timing; /* NULL: the value is made of other rows */
    double gbps;              /* of counted bytes; 0: not to be told */
} gpu_row;

void gpu_rows_fact(FILE *rows, const char *name, const char *value);
void gpu_rows_skip(FILE *rows, const char *name, const char *reason);
/* `is_simulated`: nothing is met or missed. */
void gpu_rows_speed(FILE *rows, const gpu_row *row, bool is_simulated);
/* A text of JSON, in quotes. */
void gpu_rows_text(FILE *rows, const char *text);

#endif
