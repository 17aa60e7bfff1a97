/* SPDX-License-Identifier: Apache-2.0 */
/* shorten.c - see shorten.h. */
#include "placement/shorten.h"

/* Of the lines below a node: there are several. */
#define MIXED UINT64_MAX

/* From the last node to the first: what is below comes before what holds it. */
static void
count_lines(berthi_shorten_node *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        nodes[i].below = 0;
    for (uint32_t i = count; i-- > 1;) {
        berthi_shorten_node *const parent = &nodes[nodes[i].parent];
        const uint32_t lines = nodes[i].is_line ? 1 : nodes[i].below;

        if (lines == 0)
            continue;
        if (parent->below == 0)
            parent->place = nodes[i].place;
        else if (parent->place != nodes[i].place)
            parent->place = MIXED;
        parent->below += lines;
    }
}

void
berthi_shorten(berthi_shorten_node *nodes, uint32_t count)
{
    uint32_t at = 0;

    count_lines(nodes, count);
    while (at < count)
        if (nodes[at].below >= 2 && nodes[at].place != MIXED) {
            nodes[at].is_line = true;
            for (uint32_t i = at + 1; i < nodes[at].end; i++)
                nodes[i].is_line = false;
            at = nodes[at].end;
        } else {
            at++;
        }
}
