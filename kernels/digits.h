/* SPDX-License-Identifier: Apache-2.0 */
/* digits.h - plain digits as numbers, without a sign: one loop, one guard against overflow. */
#ifndef BERTH_KERNELS_DIGITS_H
#define BERTH_KERNELS_DIGITS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The number that all `length` characters are the decimal digits of, with any zeros before it.
 * False, and *out as it was, for no digits, another character, or a number above `most`.
 */
bool berthi_digits_can_parse(const char *text, uint64_t length, uint64_t most,
                             uint64_t *out);

/* The number that *text begins with before `end`; *text moves behind it, unless false. */
bool berthi_digits_can_take(const char **text, const char *end, uint64_t most,
                            uint64_t *out);

/* The number that eight hexadecimal digits, small letters, are. False: other characters. */
#define BERTHI_HEX32_DIGITS 8u
bool berthi_hex32_can_parse(const char *text, uint32_t *out);

#endif
