/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - a strict JSON scanner: pulls one value after the other out of a
 * text of known length, without recursion and without allocating.
 *
 * RFC 8259 and nothing else: no comments, no trailing commas, control
 * characters escaped, surrogates paired, numbers within the double's range.
 * Nesting of more than BERTHI_SCAN_DEPTH open containers is an error.
 * The caller has checked that the text is well-formed UTF-8.
 *
 * The text is changed: strings are unescaped in place (they only get shorter),
 * so what a string call returns stays valid as long as the text does.
 *
 * Calls return false when they failed or, for the two `has_next` calls, when
 * the container has ended; `problem` tells the two apart. After the first
 * problem every call returns false and the problem stays.
 */
#ifndef BERTH_QUANT_SCAN_H
#define BERTH_QUANT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BERTHI_SCAN_DEPTH 127u

typedef enum berthi_scan_kind {
    BERTHI_SCAN_NONE, /* end of text, or no value begins here */
    BERTHI_SCAN_OBJECT,
    BERTHI_SCAN_ARRAY,
    BERTHI_SCAN_STRING,
    BERTHI_SCAN_NUMBER,
    BERTHI_SCAN_TRUE,
    BERTHI_SCAN_FALSE,
    BERTHI_SCAN_NULL
} berthi_scan_kind;

/* Flags of berthi_scan_init(). */
#define BERTHI_SCAN_NONFINITE 1u /* NaN, Infinity, -Infinity are numbers: Python's JSON */

typedef struct berthi_scan {
    char *text;
    uint64_t length;
    uint64_t position;
    const char *problem;   /* NULL while all is well; a constant text */
    uint64_t problem_at;   /* byte position of the problem */
    uint64_t is_object[2]; /* a bit per open container */
    uint32_t flags;
    uint32_t depth;        /* open containers */
    bool has_member;       /* the innermost container has had one: a comma is due */
} berthi_scan;

/* A string, unescaped, borrowed from the text; no NUL at its end. */
typedef struct berthi_scan_text {
    const char *bytes;
    uint64_t length;
    bool has_nul; /* U+0000 is in it: only an escape can bring it */
} berthi_scan_text;

void berthi_scan_init(berthi_scan *scan, char *text, uint64_t length, uint32_t flags);

/* What comes next, after white space; reads nothing. */
berthi_scan_kind berthi_scan_peek(berthi_scan *scan);

/* Enters the object or array that comes next; anything else is a problem. */
bool berthi_scan_can_enter_object(berthi_scan *scan);
bool berthi_scan_can_enter_array(berthi_scan *scan);
/* Next member's key (its value comes next), or false at the end of the object. */
bool berthi_scan_has_next_member(berthi_scan *scan, berthi_scan_text *key);
/* True when another element comes next, false at the end of the array. */
bool berthi_scan_has_next_element(berthi_scan *scan);

bool berthi_scan_can_read_string(berthi_scan *scan, berthi_scan_text *out);
/*
 * True when the string that comes next is written just as `plain` is, which holds
 * nothing that must be escaped. Anything else is left where it is: no problem.
 */
bool berthi_scan_has_plain(berthi_scan *scan, const berthi_scan_text *plain);
/* Plain digits, 0 to 2^64-1; any other number is a problem. */
bool berthi_scan_can_read_unsigned(berthi_scan *scan, uint64_t *out);
/* Any number, as its text. */
bool berthi_scan_can_read_number(berthi_scan *scan, berthi_scan_text *out);
/* Any number, rounded to the nearest double, independently of the locale. */
bool berthi_scan_can_read_double(berthi_scan *scan, double *out);
bool berthi_scan_can_read_bool(berthi_scan *scan, bool *out);
bool berthi_scan_can_read_null(berthi_scan *scan);
/* Any value, checked in full. Changes nothing in the text. */
bool berthi_scan_can_skip(berthi_scan *scan);
/* True when only white space is left and no container is open. */
bool berthi_scan_can_finish(berthi_scan *scan);

/* Records a problem at the current position, unless there is one. Returns false. */
bool berthi_scan_refuse(berthi_scan *scan, const char *problem);

/* True when `text` is exactly the NUL-terminated `word`. */
static inline bool
berthi_scan_text_is(const berthi_scan_text *text, const char *word)
{
    const size_t length = strlen(word);

    return text->length == length && memcmp(text->bytes, word, length) == 0;
}

#endif
