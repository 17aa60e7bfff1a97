/* SPDX-License-Identifier: Apache-2.0 */
/* digits.c - see digits.h. */
#include "kernels/digits.h"

#include "kernels/base.h"

bool
berthi_digits_can_take(const char **text, const char *end, uint64_t most, uint64_t *out)
{
    const char *at = *text;
    uint64_t value = 0;

    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (!berthi_can_mul(value, 10, &value)
            || !berthi_can_add(value, (uint64_t)(*at - '0'), &value) || value > most)
            return false;
    if (at == *text)
        return false;
    *text = at;
    *out = value;
    return true;
}

bool
berthi_digits_can_parse(const char *text, uint64_t length, uint64_t most, uint64_t *out)
{
    const char *const end = text + length;
    uint64_t value;

    if (!berthi_digits_can_take(&text, end, most, &value) || text != end)
        return false;
    *out = value;
    return true;
}

bool
berthi_hex32_can_parse(const char *text, uint32_t *out)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < BERTHI_HEX32_DIGITS; i++) {
        const char c = text[i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint32_t)(c - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}
