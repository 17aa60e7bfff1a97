/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h - regular expressions as the entries of skip lists use them.
 *
 * transformers 5 matches entries with Python's re.match. Understood here: plain
 * text, '.', sets "[a-z]", groups "()" and "(?:)", '|', '*', '+', '?' (also
 * followed by '?': what is asked is only whether there is a match), '^', '$',
 * \d \w \s and their capitals, and '\' before anything that is no letter or
 * digit. Anything else is refused by name: better than a guess that quantizes
 * the wrong layers. \d and \s are those of ASCII; every character beyond ASCII
 * counts as \w.
 *
 * Matching simulates all paths at once (Thompson): time is the length of the
 * name times that of the pattern, whatever they are.
 */
#ifndef BERTH_QUANT_PATTERN_H
#define BERTH_QUANT_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_PATTERN_LIMIT 4096u /* bytes */
#define BERTHI_PATTERN_DEPTH 32u   /* groups inside each other */

typedef struct berthi_pattern berthi_pattern;

typedef enum berthi_pattern_mode {
    BERTHI_PATTERN_BEGIN,  /* a match at the beginning, of any length */
    BERTHI_PATTERN_WHOLE,  /* ... that ends at the end, before '.' or behind '.' */
    BERTHI_PATTERN_SEARCH  /* a match anywhere */
} berthi_pattern_mode;

/*
 * Compiles `text`, which ends in NUL and is well-formed UTF-8. Fails with RULES,
 * naming the pattern and the position in it, or NO_MEMORY.
 * On success free *out with berthi_pattern_destroy().
 */
berth_status berthi_pattern_create(berth_context *context, const char *text,
                                   berthi_pattern **out, berth_error *error);
/* NULL is allowed. */
void berthi_pattern_destroy(berthi_pattern *pattern);
/* Uses memory of the pattern: one thread at a time. The name is UTF-8. */
bool berthi_pattern_is_match(berthi_pattern *pattern, const char *name, uint64_t length,
                             berthi_pattern_mode mode);

#endif
