/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - text to a descriptor, with the first failure remembered.
 *
 * Unlike stdio it keeps the errno of the write that failed, and a reader that
 * went away (EPIPE) is an end, not an error. Names from files come in through
 * output_name() only, which escapes them.
 */
#ifndef BERTH_TOOLS_OUTPUT_H
#define BERTH_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_CAPACITY 16384

typedef struct output {
    int fd;
    int system_error; /* errno of the first write that failed, or 0 */
    bool is_begun;    /* something was flushed */
    size_t used;
    char buffer[OUTPUT_CAPACITY];
} output;

void output_init(output *o, int fd);
void output_bytes(output *o, const char *bytes, size_t length);
void output_text(output *o, const char *text);
/* At most OUTPUT_CAPACITY characters a call. */
__attribute__((format(printf, 2, 3))) void output_format(output *o, const char *format, ...);
void output_repeat(output *o, const char *text, size_t count);
/* Bytes of unknown origin, escaped, never cut. */
void output_name(output *o, const char *bytes, size_t length);
/* A field of a CSV line, escaped, quoted where it must be. */
void output_csv(output *o, const char *bytes, size_t length);
/* Has nothing been put into it? */
bool output_is_empty(const output *o);
/* Writes what is buffered. Nothing more is written after a failure. */
void output_flush(output *o);
/* True when further output cannot arrive: long loops stop early. */
bool output_is_closed(const output *o);
/* What somebody can do whose standard output does not take what is written. */
const char *output_advice(int system_error);

/* ------------------------------------------------------------------- texts */

/* Columns that escaped text takes on a terminal. */
size_t text_width(const char *text);
/*
 * Cuts escaped text to `width` columns, in place, with a mark in its middle:
 * both ends of a tensor's name matter.
 */
void text_cut(char *text, size_t width, bool has_unicode);
/* Leaves away the character at the end of which snprintf() had no room for all. Returns `text`. */
char *text_whole(char *text);
/* Escaped copy, to be freed; NULL when memory is out. */
char *text_escaped(const char *bytes, size_t length);
/* "s", or nothing behind "1 tensor". */
const char *text_plural(uint64_t count);
/* "70,553,706,496" in `text`. Returns `text`. */
#define TEXT_NUMBER_CAPACITY 32
const char *text_number(uint64_t number, char text[TEXT_NUMBER_CAPACITY]);
/* "70.55 B" for people; parameters are counted in powers of ten. */
const char *text_count(uint64_t number, char text[TEXT_NUMBER_CAPACITY]);

#endif
