/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - the one definition of well-formed UTF-8 (Unicode, table 3-7). */
#ifndef BERTH_KERNELS_UTF8_H
#define BERTH_KERNELS_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * Decodes the character at bytes[0], left > 0. Returns its length, 1 to 4, and
 * the code point; or 0 when no well-formed character begins there: overlong
 * forms, surrogates, values above U+10FFFF and sequences that are cut off.
 */
size_t berthi_utf8_decode(const unsigned char *bytes, size_t left, uint32_t *out_point);

/*
 * Position of the first byte that does not begin a well-formed character, or
 * `length` when all of it is well-formed.
 */
size_t berthi_utf8_check(const unsigned char *bytes, size_t length);

/* Writes a code point (not a surrogate, at most U+10FFFF); returns 1 to 4. */
size_t berthi_utf8_encode(uint32_t point, unsigned char *bytes);

#endif
