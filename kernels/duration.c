/* SPDX-License-Identifier: Apache-2.0 */
/* duration.c - see duration.h. */
#include "kernels/duration.h"

#include <stddef.h>
#include <string.h>

#include "kernels/base.h"

bool
berthi_duration_can_parse(const char *text, uint64_t limit_ns, uint64_t *out_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
    const size_t digits = strspn(text, "0123456789");
    uint64_t number = 0;

    if (digits == 0)
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!berthi_can_mul(number, 10, &number)
            || !berthi_can_add(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + digits, units[i].name) == 0)
            return berthi_can_mul(number, units[i].ns, out_ns) && *out_ns <= limit_ns;
    return false;
}
