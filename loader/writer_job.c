/* SPDX-License-Identifier: Apache-2.0 */
/* writer_job.c - see writer_job.h. */
#include "loader/writer_job.h"

#include <string.h>

#include "loader/berth.h"

typedef struct text {
    const char *bytes;
    size_t length;
} text;

/* The line that begins at `at`, printable and cut. */
static void
show_line(text t, size_t at, char *out)
{
    const char *const begin = t.bytes + at;
    const char *const end = memchr(begin, '\n', t.length - at);

    berth_text_escape(begin, end != NULL ? (size_t)(end - begin) : t.length - at, out,
                      BERTHI_WRITER_LINE);
}

static bool
begins_with(text t, size_t at, const char *word)
{
    const size_t length = strlen(word);

    return t.length - at >= length && memcmp(t.bytes + at, word, length) == 0;
}

/*
 * The name of the file, where the line of a job is one of those that follow `source` and its
 * name: how large that was, and when it was written.
 */
static bool
show_source(text t, size_t at, char *out)
{
    if (!begins_with(t, at, "bytes ") && !begins_with(t, at, "modified "))
        return false;
    while (at > 0) {
        for (at--; at > 0 && t.bytes[at - 1] != '\n'; at--)
            ;
        if (begins_with(t, at, "source ")) {
            show_line(t, at + strlen("source "), out);
            return true;
        }
    }
    return false;
}

bool
berthi_writer_find_difference(const char *mine, const char *found, size_t length,
                              berthi_writer_difference *out)
{
    const text own = { mine, strlen(mine) };
    const text other = { found, length };
    const size_t shorter = own.length < other.length ? own.length : other.length;
    size_t line = 0; /* where the first line begins that differs */
    size_t i = 0;

    for (; i < shorter && mine[i] == found[i]; i++)
        if (mine[i] == '\n')
            line = i + 1;
    if (i == own.length && i == other.length)
        return false;
    out->is_of_source =
        show_source(own, line, out->mine) && show_source(other, line, out->found);
    if (out->is_of_source)
        return true;
    show_line(own, line, out->mine);
    show_line(other, line, out->found);
    return true;
}
