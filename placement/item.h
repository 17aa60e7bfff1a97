/* SPDX-License-Identifier: Apache-2.0 */
/* item.h - one item of a list that a user has typed: tiers, links. */
#ifndef BERTH_PLACEMENT_ITEM_H
#define BERTH_PLACEMENT_ITEM_H

#include <stdint.h>

/* Not ended by a NUL. */
typedef struct berthi_item {
    const char *bytes;
    uint64_t length;
} berthi_item;

/* Without blanks around it. */
static inline berthi_item
berthi_item_trim(berthi_item text)
{
    while (text.length > 0 && text.bytes[0] == ' ') {
        text.bytes++;
        text.length--;
    }
    while (text.length > 0 && text.bytes[text.length - 1] == ' ')
        text.length--;
    return text;
}

#endif
