/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header_case.h - a header or a whole file, its verdict, and what must hold of
 * every verdict: exact-size buffers, a filled error, nothing kept, tables that
 * are dense, ordered and unique.
 */
#ifndef BERTH_TESTS_HEADER_CASE_H
#define BERTH_TESTS_HEADER_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/safetensors.h"

/* Header text and zero data behind it; `id` is for the report. */
void header_case_check(const char *id, const char *header, uint64_t length,
                       uint64_t data_bytes, berth_reason reason);
/* A whole file, length prefix included. */
void header_case_check_file(const char *id, const char *bytes, uint64_t length,
                            berth_reason reason);
/* One tensor; the name as it is, the others as JSON. */
void header_case_check_entry(const char *id, const char *name, uint64_t name_length,
                             const char *dtype, const char *shape, const char *offsets,
                             uint64_t data_bytes, berth_reason reason);

/*
 * Verdict on a file as the library reaches it: length, then text. The header
 * is copied to a buffer of exactly its size. `out` must be finished.
 */
berth_status header_case_parse(berth_context *context, const char *bytes,
                               uint64_t length, berthi_header *out, berth_error *error);

/* Whether the name to blame lies in the text and is the one that the error shows. */
bool header_case_is_shown(const char *text, uint64_t bytes, const char *blamed,
                          uint64_t blamed_length, const berth_error *error);

/* NULL, or the first thing wrong with the tables of an accepted header. */
const char *header_case_table_problem(const berthi_header *header, uint64_t data_bytes);

/* Large headers, most of them near the limit of 100 MB and as costly as any of that size. */
typedef enum header_load {
    HEADER_LOAD_X01,      /* 200,000 tensors of a byte                       */
    HEADER_LOAD_X02,      /* 1,200,000 empty tensors                         */
    HEADER_LOAD_R1,       /* an unknown member of 50 million zeros           */
    HEADER_LOAD_R2,       /* the same of 25 million arrays                   */
    HEADER_LOAD_R3,       /* a shape of 50 million dims                      */
    HEADER_LOAD_R4,       /* 1,720,000 empty tensors                         */
    HEADER_LOAD_R6,       /* one name, 1,850,000 times                       */
    HEADER_LOAD_R7,       /* 5,000,000 pairs of metadata                     */
    HEADER_LOAD_L09,      /* blanks behind the usual header, up to the limit */
    HEADER_LOAD_M22,      /* a pair of metadata with a value of 50 MB        */
    HEADER_LOAD_SHUFFLED, /* names and extents in no order                   */
    HEADER_LOAD_PAIRS,    /* as many pairs of metadata as fit                */
    HEADER_LOAD_COUNT
} header_load;

const char *header_load_name(header_load load);
/* The text, with its counts divided by `divisor`; free() it. */
char *header_load_create(header_load load, uint64_t divisor, uint64_t *out_length,
                         uint64_t *out_data_bytes);

#endif
