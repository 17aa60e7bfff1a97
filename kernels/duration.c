/* SPDX-License-Identifier: Apache-2.0 */
/* duration.c - see duration.h. */
#include "kernels/duration.h"

#include <stddef.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/digits.h"

bool
berthi_duration_can_parse(const char *text, uint64_t limit_ns, uint64_t *out_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
    uint64_t number;

    if (!berthi_digits_can_take(&text, text + strlen(text), UINT64_MAX, &number))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text, units[i].name) == 0)
            return berthi_can_mul(number, units[i].ns, out_ns) && *out_ns <= limit_ns;
    return false;
}
