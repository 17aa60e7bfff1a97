/* SPDX-License-Identifier: Apache-2.0 */
/* operands_add.h - what operands.c and operands_decoder.c list operands by. For these alone. */
#ifndef BERTH_KERNELS_OPERANDS_ADD_H
#define BERTH_KERNELS_OPERANDS_ADD_H

#include <string.h>

#include "kernels/number.h"
#include "kernels/operands.h"

#define SLOT(member) offsetof(berthi_request, arguments.member)

/* `count` of `unit` bytes each; of none it is no operand. */
static inline void
add_operand(berthi_operands *list, berthi_operand operand, uint64_t count, uint64_t unit)
{
    if (!berthi_can_mul(count, unit, &operand.bytes))
        list->are_impossible = true;
    if (operand.bytes == 0)
        return;
    operand.unit = (uint32_t)unit;
    memcpy(&operand.memory, (const char *)list->request + operand.slot, sizeof operand.memory);
    list->items[list->count++] = operand;
}

static inline void
add_read(berthi_operands *list, const char *name, size_t slot, uint64_t count, uint64_t unit)
{
    const berthi_operand operand = { .name = name, .slot = slot, .is_read = true };

    add_operand(list, operand, count, unit);
}

static inline void
add_written(berthi_operands *list, const char *name, size_t slot, uint64_t count, uint64_t unit)
{
    const berthi_operand operand = { .name = name, .slot = slot, .is_written = true };

    add_operand(list, operand, count, unit);
}

/* Also what is written in parts, of which the rest stays. */
static inline void
add_both(berthi_operands *list, const char *name, size_t slot, uint64_t count, uint64_t unit)
{
    const berthi_operand operand = {
        .name = name, .slot = slot, .is_read = true, .is_written = true
    };

    add_operand(list, operand, count, unit);
}

#endif
