/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_job.h - where the texts of two jobs part: what an output was made with, and what it
 * is to be made with. They are lines, one for each option and file; what is found is not trusted.
 */
#ifndef BERTH_LOADER_WRITER_JOB_H
#define BERTH_LOADER_WRITER_JOB_H

#include <stdbool.h>
#include <stddef.h>

#define BERTHI_WRITER_LINE 160u /* of a job, in a message */

typedef struct berthi_writer_difference {
    bool is_of_source; /* the length of a file, or when it was written: `mine` is its name */
    char mine[BERTHI_WRITER_LINE];  /* the first lines that differ, printable and cut */
    char found[BERTHI_WRITER_LINE];
} berthi_writer_difference;

/* False, and nothing in `out`, where both are the same. */
bool berthi_writer_find_difference(const char *mine, const char *found, size_t length,
                                   berthi_writer_difference *out);

#endif
