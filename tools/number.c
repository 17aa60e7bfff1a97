/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - see number.h. */
#include "tools/number.h"

#define LARGEST (UINT64_C(1) << 40)

bool
number_is_read(const char *text, size_t length, uint64_t *out)
{
    const bool has_k = length > 1 && (text[length - 1] == 'k' || text[length - 1] == 'K');
    const size_t digits = has_k ? length - 1 : length;

    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9' || *out > LARGEST)
            return false;
        *out = *out * 10 + (uint64_t)(text[i] - '0');
    }
    if (has_k && *out <= LARGEST)
        *out <<= 10;
    return length > 0 && *out <= LARGEST;
}
