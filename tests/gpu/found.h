/* SPDX-License-Identifier: Apache-2.0 */
/* found.h - what rows.h has written, read again: a document of JSON a line. */
#ifndef BERTH_TESTS_GPU_FOUND_H
#define BERTH_TESTS_GPU_FOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/json.h"

typedef struct gpu_found {
    berth_context *context;
    char *text; /* of the file */
    uint64_t bytes;
    berthi_json **documents;
    uint64_t count;
} gpu_found;

/* False, and said why, when the file is not there or a line is no JSON. To be closed anyway. */
bool gpu_found_open(gpu_found *found, const char *path);
void gpu_found_close(gpu_found *found);
const berthi_json_value *gpu_found_at(const gpu_found *found, uint64_t i);
/* The first speed of this name; NULL: there is none. */
const berthi_json_value *gpu_found_speed(const gpu_found *found, const char *name);

/* A member; "" and 0 where there is none. */
const char *gpu_text_of(const berthi_json_value *value, const char *key);
double gpu_number_of(const berthi_json_value *value, const char *key);
bool gpu_is_kind(const berthi_json_value *row, const char *kind);

#endif
