/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.h - names by pattern, as a shell matches them, over the whole name.
 *
 *   *      any characters, dots too, or none
 *   ?      one character
 *   [a-z]  one of these; [!a-z] one that is none of them. ASCII only
 *   \x     x itself
 */
#ifndef BERTH_QUANT_GLOB_H
#define BERTH_QUANT_GLOB_H

#include <stdbool.h>
#include <stdint.h>

/* NULL, or what is wrong with the pattern, which ends in NUL. */
const char *berthi_glob_check(const char *pattern);
/* The pattern has passed the check; the name is well-formed UTF-8. */
bool berthi_glob_is_match(const char *pattern, const char *name, uint64_t length);

#endif
