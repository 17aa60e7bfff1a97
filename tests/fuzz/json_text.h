/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.h - a growing text for the fuzz targets that print what they parsed. */
#ifndef BERTH_TESTS_FUZZ_JSON_TEXT_H
#define BERTH_TESTS_FUZZ_JSON_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"

/* Zero-initialised; free(bytes). */
typedef struct json_text {
    char *bytes;
    size_t length;
    size_t capacity;
} json_text;

static inline void
json_put(json_text *t, const char *bytes, size_t length)
{
    if (t->length + length > t->capacity) {
        t->capacity = (t->length + length) * 2;
        t->bytes = realloc(t->bytes, t->capacity);
        if (t->bytes == NULL)
            exit(1);
    }
    if (length > 0)
        memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
}

/* A berthi_json_put whose `user` is a json_text; pieces come one behind the other. */
static inline berth_status
json_put_piece(void *user, const char *bytes, uint64_t size, uint64_t offset,
               berth_error *error)
{
    json_text *const t = user;

    (void)error;
    if (offset != t->length)
        __builtin_trap();
    json_put(t, bytes, (size_t)size);
    return BERTH_OK;
}

static inline void
json_put_text(json_text *t, const char *text)
{
    json_put(t, text, strlen(text));
}

static inline void
json_put_unsigned(json_text *t, uint64_t value)
{
    char digits[24];

    json_put(t, digits, (size_t)sprintf(digits, "%llu", (unsigned long long)value));
}

/* A quoted string, escaped as the format's writers do. */
static inline void
json_put_string(json_text *t, const char *bytes, size_t length)
{
    json_put_text(t, "\"");
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        char escape[8];

        if (byte == '"' || byte == '\\')
            json_put(t, escape, (size_t)sprintf(escape, "\\%c", byte));
        else if (byte < 0x20)
            json_put(t, escape, (size_t)sprintf(escape, "\\u%04x", byte));
        else
            json_put(t, bytes + i, 1);
    }
    json_put_text(t, "\"");
}

#endif
