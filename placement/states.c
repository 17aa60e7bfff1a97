/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - sizes and layout of what an optimizer keeps. */
#include "placement/states.h"

#include "kernels/base.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"

#define SLOT_ALIGNMENT UINT64_C(256)

/* Of so many elements, in one page or in all: both are sums of the same parts. */
static uint64_t
bytes_of(const berthi_states *states, uint64_t elements)
{
    const uint64_t f32 = sizeof(float);
    uint64_t state;
    uint64_t bytes;
    uint64_t master = 0;

    if (states->bits == 8) {
        if (!berthi_can_add(elements, berthi_update_absmax_bytes(elements), &state))
            return UINT64_MAX;
    } else if (!berthi_can_mul(elements, f32, &state)) {
        return UINT64_MAX;
    }
    if (!berthi_can_mul(state, states->count, &bytes)
        || (states->has_master && !berthi_can_mul(elements, f32, &master))
        || !berthi_can_add(bytes, master, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t
berthi_states_bytes(const berthi_states *states)
{
    return bytes_of(states, states->elements);
}

uint64_t
berthi_states_page_count(const berthi_states *states)
{
    return berthi_divide_up(states->elements, states->page_elements);
}

uint64_t
berthi_states_page_bytes(const berthi_states *states)
{
    return bytes_of(states, berthi_min_u64(states->elements, states->page_elements));
}

uint64_t
berthi_states_slot_bytes(uint64_t page_bytes)
{
    return berthi_round_down(page_bytes + SLOT_ALIGNMENT - 1, SLOT_ALIGNMENT);
}

uint64_t
berthi_states_buffer_bytes(uint64_t page_bytes, uint64_t system_page)
{
    return berthi_round_down(page_bytes + system_page - 1, system_page);
}

uint64_t
berthi_states_scratch_bytes(uint64_t page_elements)
{
    const uint64_t blocks = berthi_divide_up(page_elements, BERTHI_GRADIENT_BLOCK);

    return BERTHI_STATES_COUNTER + blocks * sizeof(berthi_gradient_sum);
}

berthi_states_page
berthi_states_get_page(const berthi_states *states, uint64_t number)
{
    const uint64_t first = number * states->page_elements;
    berthi_states_page page = {
        .first = first,
        .elements = berthi_min_u64(states->elements - first, states->page_elements),
        .offset = bytes_of(states, first),
        .master = BERTHI_STATES_NOTHING,
    };
    const uint64_t absmax = berthi_update_absmax_bytes(page.elements);

    page.bytes = bytes_of(states, page.elements);
    for (uint32_t k = 0; k < BERTHI_STATES_MAX; k++)
        page.values[k] = page.absmax[k] = page.codes[k] = BERTHI_STATES_NOTHING;
    if (states->has_master)
        page.master = 0;
    for (uint32_t k = 0; k < states->count; k++) {
        const uint64_t begin = states->has_master ? page.elements * sizeof(float) : 0;
        const uint64_t codes = begin + states->count * absmax;

        if (states->bits == 8) {
            page.absmax[k] = begin + k * absmax;
            page.codes[k] = codes + k * page.elements;
        } else {
            page.values[k] = begin + k * page.elements * sizeof(float);
        }
    }
    return page;
}
