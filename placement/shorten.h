/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shorten.h - the one home of the rule that makes device maps short: where a module has
 * two lines or more and all of them name the same place, the module stands for them. A
 * single line stays as long as it is.
 */
#ifndef BERTH_PLACEMENT_SHORTEN_H
#define BERTH_PLACEMENT_SHORTEN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Modules and tensors in the order of registration, the root first: what lies below
 * a node is the stretch [node + 1, end). A node with a line has none below it.
 */
typedef struct berthi_shorten_node {
    uint64_t place;  /* of its line; any numbers but UINT64_MAX */
    uint32_t parent; /* of the root: its own number */
    uint32_t end;
    uint32_t below;  /* lines below it: worked out here */
    bool is_line;    /* in: before; out: of the short map */
} berthi_shorten_node;

void berthi_shorten(berthi_shorten_node *nodes, uint32_t count);

#endif
