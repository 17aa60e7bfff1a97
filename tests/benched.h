/* SPDX-License-Identifier: Apache-2.0 */
/* benched.h - a bench in a test: little memory, no time. */
#ifndef BERTH_TESTS_BENCHED_H
#define BERTH_TESTS_BENCHED_H

#include "loader/berth.h"

typedef struct benched {
    berth_context *context;
    berth_devices *devices;
    berth_bench_options options;
    berth_bench *bench;
    berth_error error;
} benched;

/* `words`: devices; NULL: none. */
void benched_begin(benched *b, const char *words);
/* `*out` is NULL unless BERTH_OK. */
berth_status benched_measure(benched *b, berth_bench **out);
/* Destroys `b->bench`, too; nothing has been kept. */
void benched_end(benched *b);

#endif
