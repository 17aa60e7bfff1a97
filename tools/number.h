/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - counts as users write them: 4096, 8k, 128k. */
#ifndef BERTH_TOOLS_NUMBER_H
#define BERTH_TOOLS_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits, then perhaps a k for 1024; up to 2^40. False: something else. */
#define NUMBER_MOST_TEXT "1099511627776"
bool number_is_read(const char *text, size_t length, uint64_t *out);

#endif
