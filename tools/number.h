/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - counts as users write them, in digits: 4096, or 8k, 128k. */
#ifndef BERTH_TOOLS_NUMBER_H
#define BERTH_TOOLS_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits alone, one at least, up to `most`. False, and *out as it was: something else. */
bool number_can_parse(const char *text, size_t length, uint64_t most, uint64_t *out);

/* The same up to 2^40, perhaps with a k for 1024 behind them. */
#define NUMBER_MOST_TEXT "1099511627776"
bool number_can_parse_tokens(const char *text, size_t length, uint64_t *out);

#endif
