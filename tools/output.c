/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - buffered text to a descriptor; widths and cuts of escaped text. */
#define _POSIX_C_SOURCE 200809L

#include "tools/output.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/berth.h"
#include "tools/interrupt.h"

#define PATIENCE_MS 200
#define PIPE_BYTES 4096 /* that a pipe takes without waiting, once it is ready */

void
output_init(output *o, int fd)
{
    o->fd = fd;
    o->system_error = 0;
    o->is_begun = false;
    o->used = 0;
}

bool
output_is_empty(const output *o)
{
    return o->used == 0 && !o->is_begun;
}

/*
 * False: nobody takes it, and the user has had enough. While a job runs a signal is a wish, which
 * a write that waits for a reader would not hear of.
 */
static bool
can_write(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLOUT, .revents = 0 };
    int ready;

    do
        ready = poll(&poll_fd, 1, PATIENCE_MS);
    while (ready == 0 ? !interrupt_is_wanted() : ready < 0 && errno == EINTR);
    return ready != 0; /* where poll() fails, write() says why */
}

void
output_flush(output *o)
{
    size_t written = 0;

    o->is_begun = o->is_begun || o->used > 0;
    while (written < o->used && o->system_error == 0) {
        const size_t left = o->used - written;
        ssize_t n;

        if (!can_write(o->fd)) {
            o->system_error = EPIPE; /* as if the reader had gone */
            break;
        }
        n = write(o->fd, o->buffer + written, left < PIPE_BYTES ? left : PIPE_BYTES);
        if (n >= 0)
            written += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR) /* somebody made our stdout non-blocking */
            o->system_error = errno;
    }
    o->used = 0;
}

const char *
output_advice(int system_error)
{
    return system_error == EFBIG   ? "raise the limit of a file's size, see `ulimit -f`"
           : system_error == EBADF ? "it is closed: open it, on /dev/null if nobody reads it"
                                   : "free space, or write elsewhere";
}

bool
output_is_closed(const output *o)
{
    return o->system_error != 0;
}

void
output_bytes(output *o, const char *bytes, size_t length)
{
    while (length > 0) {
        const size_t space = OUTPUT_CAPACITY - o->used;
        const size_t n = length < space ? length : space;

        memcpy(o->buffer + o->used, bytes, n);
        o->used += n;
        bytes += n;
        length -= n;
        if (o->used == OUTPUT_CAPACITY)
            output_flush(o);
    }
}

void
output_text(output *o, const char *text)
{
    output_bytes(o, text, strlen(text));
}

/* False if the buffer has no room for it. */
static bool
is_formatted(output *o, const char *format, va_list arguments)
{
    const size_t space = OUTPUT_CAPACITY - o->used;
    const int n = vsnprintf(o->buffer + o->used, space, format, arguments);

    if (n < 0 || (size_t)n >= space)
        return false;
    o->used += (size_t)n;
    return true;
}

void
output_format(output *o, const char *format, ...)
{
    va_list arguments;
    va_list again;

    va_start(arguments, format);
    va_copy(again, arguments);
    if (!is_formatted(o, format, arguments)) {
        output_flush(o); /* an empty buffer holds it */
        is_formatted(o, format, again);
    }
    va_end(again);
    va_end(arguments);
}

void
output_repeat(output *o, const char *text, size_t count)
{
    while (count-- > 0)
        output_text(o, text);
}

static bool
is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Bytes of the next piece of at most `most` bytes that splits no character. */
static size_t
piece_length(const char *bytes, size_t length, size_t most)
{
    size_t n = most;

    if (length <= most)
        return length;
    while (n > most - 4 && is_continuation(bytes[n]))
        n--;
    return n;
}

void
output_name(output *o, const char *bytes, size_t length)
{
    while (length > 0) {
        char text[1024]; /* a byte becomes at most four, a character ten */
        const size_t n = piece_length(bytes, length, 96);

        berth_text_escape(bytes, n, text, sizeof text);
        output_text(o, text);
        bytes += n;
        length -= n;
    }
}

/* A quote is the only character that must be doubled. */
static void
output_csv_quoted(output *o, const char *bytes, size_t length)
{
    output_text(o, "\"");
    while (length > 0) {
        const char *const quote = memchr(bytes, '"', length);
        const size_t n = quote != NULL ? (size_t)(quote - bytes) + 1 : length;

        output_name(o, bytes, n);
        if (quote != NULL)
            output_text(o, "\"");
        bytes += n;
        length -= n;
    }
    output_text(o, "\"");
}

void
output_csv(output *o, const char *bytes, size_t length)
{
    const bool must_quote = memchr(bytes, ',', length) != NULL
                            || memchr(bytes, '"', length) != NULL
                            || (length > 0 && (bytes[0] == ' ' || bytes[length - 1] == ' '));

    if (must_quote)
        output_csv_quoted(o, bytes, length);
    else
        output_name(o, bytes, length);
}

/* ------------------------------------------------------------------- texts */

/* Stands for each character from there on: only its width matters, and all are wide. */
#define BEYOND_FIRST_PLANE 0x10000

static uint32_t
code_point(const char *text)
{
    const unsigned char *const u = (const unsigned char *)text;

    if (u[0] < 0xE0)
        return u[0] < 0x80 ? u[0] : (uint32_t)(u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    if (u[0] < 0xF0)
        return (uint32_t)(u[0] & 0x0F) << 12 | (uint32_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    return BEYOND_FIRST_PLANE;
}

/* Wide East Asian blocks and symbols; combining marks take no column. */
static size_t
character_width(const char *text)
{
    static const struct {
        uint32_t first;
        uint32_t last;
        size_t width;
    } blocks[] = {
        { 0x300, 0x36F, 0 },     { 0x1100, 0x115F, 2 }, { 0x2E80, 0xA4CF, 2 },
        { 0xAC00, 0xD7A3, 2 },   { 0xF900, 0xFAFF, 2 }, { 0xFE30, 0xFE6F, 2 },
        { 0xFF00, 0xFF60, 2 },   { BEYOND_FIRST_PLANE, BEYOND_FIRST_PLANE, 2 },
    };
    const uint32_t point = code_point(text);

    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (point >= blocks[i].first && point <= blocks[i].last)
            return blocks[i].width;
    return 1;
}

size_t
text_width(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++)
        if (!is_continuation(*text))
            width += character_width(text);
    return width;
}

/* Bytes of the longest start of `text` that takes at most `width` columns. */
static size_t
bytes_of_width(const char *text, size_t width)
{
    size_t i = 0;

    while (text[i] != '\0') {
        const size_t w = character_width(text + i);

        if (w > width)
            break;
        width -= w;
        for (i++; is_continuation(text[i]); i++)
            continue;
    }
    return i;
}

void
text_cut(char *text, size_t width, bool has_unicode)
{
    const char *const mark = has_unicode ? "\xE2\x80\xA6" : "~";
    const size_t full = text_width(text);
    size_t head;
    size_t tail;

    if (full <= width || width < 3)
        return;
    head = bytes_of_width(text, (width - 1) / 2);
    tail = bytes_of_width(text, full - (width - 1 - (width - 1) / 2));
    if (text_width(text + tail) > width - 1 - (width - 1) / 2)
        tail += bytes_of_width(text + tail, 2); /* a wide character, half of it too much */
    /* The mark has more bytes than what it replaces. */
    while (tail < head + strlen(mark) && text[tail] != '\0')
        tail += bytes_of_width(text + tail, character_width(text + tail));
    if (tail < head + strlen(mark))
        return;
    memcpy(text + head, mark, strlen(mark));
    memmove(text + head + strlen(mark), text + tail, strlen(text + tail) + 1);
}

char *
text_whole(char *text)
{
    const size_t length = strlen(text);
    size_t begin = length;
    unsigned char first;

    while (begin > 0 && is_continuation(text[begin - 1]))
        begin--;
    if (begin == 0)
        return text;
    first = (unsigned char)text[--begin];
    if (length - begin < (first < 0x80 ? 1u : first < 0xE0 ? 2u : first < 0xF0 ? 3u : 4u))
        text[begin] = '\0';
    return text;
}

char *
text_escaped(const char *bytes, size_t length)
{
    const size_t capacity = berth_text_escape(bytes, length, NULL, 0) + 1;
    char *const text = malloc(capacity);

    if (text != NULL)
        berth_text_escape(bytes, length, text, capacity);
    return text;
}

const char *
text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

const char *
text_number(uint64_t number, char text[TEXT_NUMBER_CAPACITY])
{
    char digits[TEXT_NUMBER_CAPACITY];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t out = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

const char *
text_count(uint64_t number, char text[TEXT_NUMBER_CAPACITY])
{
    static const char units[] = " KMBT";
    double value = (double)number;
    size_t unit = 0;

    while (value >= 999.995 && unit + 2 < sizeof units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(text, TEXT_NUMBER_CAPACITY, "%" PRIu64, number);
    else
        snprintf(text, TEXT_NUMBER_CAPACITY, "%.2f %c", value, units[unit]);
    return text;
}
