/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - small documents (config.json, later plans) as a tree to ask.
 *
 * The tree is cJSON's, behind an opaque type: json.c is the only file that sees
 * it. What cJSON is lax or inexact about never reaches it: berth's own scanner
 * has read the whole text before (grammar, depth, UTF-8, trailing text), keys
 * are unique after unescaping, and numbers travel as their text, so that
 * integers are exact and no locale is asked. cJSON recurses once per level of
 * nesting; the scanner's depth limit bounds that. Texts hold no NUL: a string
 * with \u0000 is refused.
 *
 * cJSON allocates with the allocator the process has set in it (malloc unless
 * somebody called cJSON_InitHooks), so the tree is outside the context's
 * ledger; its limits below are what bounds it. berth never sets those hooks.
 */
#ifndef BERTH_QUANT_JSON_H
#define BERTH_QUANT_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_JSON_LIMIT UINT64_C(16777216) /* bytes of text */
#define BERTHI_JSON_VALUES UINT64_C(262144)  /* of all kinds: 25 MiB of tree */

/* Flags: NaN, Infinity and -Infinity are numbers, as Python writes them. */
#define BERTHI_JSON_NONFINITE 1u

typedef enum berthi_json_kind {
    BERTHI_JSON_ABSENT, /* of a NULL value: the member is not there */
    BERTHI_JSON_OBJECT,
    BERTHI_JSON_ARRAY,
    BERTHI_JSON_STRING,
    BERTHI_JSON_NUMBER,
    BERTHI_JSON_BOOL,
    BERTHI_JSON_NULL
} berthi_json_kind;

typedef struct berthi_json berthi_json;
typedef struct berthi_json_value berthi_json_value; /* borrowed from its document */

/* What failures are told as. */
typedef struct berthi_json_origin {
    berth_reason reason;
    const char *file;
} berthi_json_origin;

/*
 * Parses `bytes` of text, which are not changed and not needed afterwards.
 * Fails with the origin's reason, naming its file and the byte position, or
 * with NO_MEMORY.
 * On success *out is a document to be freed with berthi_json_destroy().
 */
berth_status berthi_json_parse(berth_context *context, const char *text, uint64_t bytes,
                               uint32_t flags, const berthi_json_origin *origin,
                               berthi_json **out, berth_error *error);
/* NULL is allowed. */
void berthi_json_destroy(berthi_json *document);

const berthi_json_value *berthi_json_root(const berthi_json *document);

/* Every call below takes NULL for `value`: it is ABSENT, has nothing, reads false. */

berthi_json_kind berthi_json_kind_of(const berthi_json_value *value);
/* The member of exactly this name; NULL when there is none or this is no object. */
const berthi_json_value *berthi_json_get(const berthi_json_value *value, const char *key);
/* The same; NULL when the member is null, too. */
const berthi_json_value *berthi_json_find(const berthi_json_value *value, const char *key);
/* Members or elements in the order of the text: for (v = first; v; v = next(v)). */
const berthi_json_value *berthi_json_first(const berthi_json_value *value);
const berthi_json_value *berthi_json_next(const berthi_json_value *value);
/* How many of them. */
uint32_t berthi_json_count(const berthi_json_value *value);
/* The name of a member; NULL for an element or the root. */
const char *berthi_json_key(const berthi_json_value *value);

/* These return false, and change nothing, when the value is of another kind. */
bool berthi_json_can_read_string(const berthi_json_value *value, const char **out);
/* Plain digits, 0 to 2^64 - 1. */
bool berthi_json_can_read_unsigned(const berthi_json_value *value, uint64_t *out);
bool berthi_json_can_read_double(const berthi_json_value *value, double *out);
bool berthi_json_can_read_bool(const berthi_json_value *value, bool *out);
/* Any number, as it stands in the text. */
bool berthi_json_can_read_number(const berthi_json_value *value, const char **out);

#endif
