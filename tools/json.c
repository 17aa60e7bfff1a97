/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the writer behind every --json. */
#include "tools/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void
json_begin(json_writer *w, output *out, bool is_on_line)
{
    w->out = out;
    w->depth = 0;
    w->is_first = true;
    w->is_on_line = is_on_line;
}

void
json_end(json_writer *w)
{
    output_text(w->out, "\n");
}

static void
new_line(json_writer *w)
{
    if (w->is_on_line)
        return;
    output_text(w->out, "\n");
    output_repeat(w->out, "  ", w->depth);
}

/* ---------------------------------------------------------------- characters */

/* The character at `u` and its bytes; of what is none, one byte. */
static size_t
decode(const unsigned char *u, size_t left, uint32_t *out_point)
{
    static const uint32_t smallest[] = { 0, 0, 0, 0x800, 0x10000 };
    const size_t n = u[0] < 0x80   ? 1
                     : u[0] < 0xC2 ? 0
                     : u[0] < 0xE0 ? 2
                     : u[0] < 0xF0 ? 3
                     : u[0] < 0xF8 ? 4
                                   : 0;
    uint32_t point = n == 1 ? u[0] : u[0] & (0x7Fu >> n);

    *out_point = 0xFFFD;
    if (n == 0 || n > left)
        return 1;
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return 1;
        point = point << 6 | (u[i] & 0x3F);
    }
    if (point < smallest[n] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
        return 1;
    *out_point = point;
    return n;
}

static void
write_point(output *out, uint32_t point)
{
    static const char *const brief[] = { [8] = "\\b",  [9] = "\\t",  [10] = "\\n",
                                         [12] = "\\f", [13] = "\\r", [34] = "\\\"",
                                         [92] = "\\\\" };

    if (point < sizeof brief / sizeof brief[0] && brief[point] != NULL)
        output_text(out, brief[point]);
    else if (point < 0x10000)
        output_format(out, "\\u%04x", point);
    else
        output_format(out, "\\u%04x\\u%04x", 0xD7C0 + (point >> 10),
                      0xDC00 + (point & 0x3FF));
}

/* Bytes at the front that stand for themselves: mostly all of them. */
static size_t
plain_length(const unsigned char *u, size_t length)
{
    size_t n = 0;

    while (n < length && u[n] >= 0x20 && u[n] < 0x7F && u[n] != '"' && u[n] != '\\')
        n++;
    return n;
}

static void
write_string(output *out, const char *bytes, size_t length)
{
    const unsigned char *const u = (const unsigned char *)bytes;

    output_text(out, "\"");
    for (size_t i = 0; i < length;) {
        const size_t plain = plain_length(u + i, length - i);
        uint32_t point;

        output_bytes(out, bytes + i, plain);
        i += plain;
        if (i == length)
            break;
        i += decode(u + i, length - i, &point);
        write_point(out, point);
    }
    output_text(out, "\"");
}

/* -------------------------------------------------------------------- values */

static void
begin_bytes(json_writer *w, const char *key, size_t key_length)
{
    if (!w->is_first)
        output_text(w->out, ",");
    if (w->depth > 0)
        new_line(w);
    w->is_first = false;
    if (key == NULL)
        return;
    write_string(w->out, key, key_length);
    output_text(w->out, w->is_on_line ? ":" : ": ");
}

static void
begin(json_writer *w, const char *key)
{
    begin_bytes(w, key, key != NULL ? strlen(key) : 0);
}

static void
open_container(json_writer *w, const char *key, const char *bracket)
{
    begin(w, key);
    output_text(w->out, bracket);
    w->depth++;
    w->is_first = true;
}

static void
close_container(json_writer *w, const char *bracket)
{
    w->depth--;
    if (!w->is_first)
        new_line(w);
    output_text(w->out, bracket);
    w->is_first = false;
}

void
json_object_begin(json_writer *w, const char *key)
{
    open_container(w, key, "{");
}

void
json_object_end(json_writer *w)
{
    close_container(w, "}");
}

void
json_array_begin(json_writer *w, const char *key)
{
    open_container(w, key, "[");
}

void
json_array_end(json_writer *w)
{
    close_container(w, "]");
}

void
json_bytes(json_writer *w, const char *key, const char *bytes, size_t length)
{
    begin(w, key);
    write_string(w->out, bytes, length);
}

void
json_text(json_writer *w, const char *key, const char *text)
{
    json_bytes(w, key, text, strlen(text));
}

void
json_pair(json_writer *w, const char *key, size_t key_length, const char *value,
          size_t value_length)
{
    begin_bytes(w, key, key_length);
    write_string(w->out, value, value_length);
}

void
json_number(json_writer *w, const char *key, uint64_t number)
{
    begin(w, key);
    output_format(w->out, "%" PRIu64, number);
}

void
json_known(json_writer *w, const char *key, uint64_t number)
{
    if (number == UINT64_MAX)
        json_null(w, key);
    else
        json_number(w, key, number);
}

void
json_signed(json_writer *w, const char *key, int64_t number)
{
    begin(w, key);
    output_format(w->out, "%" PRId64, number);
}

void
json_real(json_writer *w, const char *key, double number)
{
    if (!isfinite(number)) {
        json_null(w, key);
        return;
    }
    begin(w, key);
    output_format(w->out, "%.3f", number);
}

void
json_scientific(json_writer *w, const char *key, double number)
{
    if (!isfinite(number)) {
        json_null(w, key);
        return;
    }
    begin(w, key);
    output_format(w->out, "%.5e", number);
}

void
json_bool(json_writer *w, const char *key, bool value)
{
    begin(w, key);
    output_text(w->out, value ? "true" : "false");
}

void
json_null(json_writer *w, const char *key)
{
    begin(w, key);
    output_text(w->out, "null");
}

void
json_numbers(json_writer *w, const char *key, const uint64_t *numbers, size_t count)
{
    begin(w, key);
    output_text(w->out, "[");
    for (size_t i = 0; i < count; i++)
        output_format(w->out, "%s%" PRIu64, i > 0 ? ", " : "", numbers[i]);
    output_text(w->out, "]");
}
