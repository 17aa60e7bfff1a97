/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - see number.h. */
#include "tools/number.h"

#define TOKENS_MOST (UINT64_C(1) << 40)

bool
number_can_parse(const char *text, size_t length, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;

    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, 10, &number)
            || __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number)
            || number > most)
            return false;
    if (length > 0)
        *out = number;
    return length > 0;
}

bool
number_can_parse_tokens(const char *text, size_t length, uint64_t *out)
{
    const bool has_k = length > 1 && (text[length - 1] == 'k' || text[length - 1] == 'K');

    if (!has_k)
        return number_can_parse(text, length, TOKENS_MOST, out);
    if (!number_can_parse(text, length - 1, TOKENS_MOST >> 10, out))
        return false;
    *out <<= 10;
    return true;
}
