/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - writes one JSON document.
 *
 * All text is ASCII: whatever a terminal could not show, or an editor would
 * reorder, is an escape. Nothing is cut. Sizes are integers, in bytes. Bytes
 * that are no UTF-8 (only a path can hold them) become U+FFFD.
 */
#ifndef BERTH_TOOLS_JSON_H
#define BERTH_TOOLS_JSON_H

#include "tools/output.h"

typedef struct json_writer {
    output *out;
    unsigned depth;
    bool is_first;   /* nothing yet in the innermost container */
    bool is_on_line; /* one line for the whole document */
} json_writer;

/* `is_on_line`: no line breaks, for streams of one object a line. */
void json_begin(json_writer *w, output *out, bool is_on_line);
/* Ends the document with a line feed. */
void json_end(json_writer *w);

/* `key` is NULL within an array. */
void json_object_begin(json_writer *w, const char *key);
void json_object_end(json_writer *w);
void json_array_begin(json_writer *w, const char *key);
void json_array_end(json_writer *w);
void json_text(json_writer *w, const char *key, const char *text);
void json_bytes(json_writer *w, const char *key, const char *bytes, size_t length);
/* The key, too, comes from a file. */
void json_pair(json_writer *w, const char *key, size_t key_length, const char *value,
               size_t value_length);
void json_number(json_writer *w, const char *key, uint64_t number);
/* UINT64_MAX is what berth does not know: null. */
void json_known(json_writer *w, const char *key, uint64_t number);
void json_signed(json_writer *w, const char *key, int64_t number);
/* Three decimals; null where the value is not finite. */
void json_real(json_writer *w, const char *key, double number);
/* Six digits, whatever the magnitude; null where the value is not finite. */
void json_scientific(json_writer *w, const char *key, double number);
void json_bool(json_writer *w, const char *key, bool value);
void json_null(json_writer *w, const char *key);
/* An array on one line. */
void json_numbers(json_writer *w, const char *key, const uint64_t *numbers, size_t count);

#endif
