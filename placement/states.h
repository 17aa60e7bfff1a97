/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.h - how large an optimizer's states are, and how they lie in memory.
 *
 *   states of a parameter   [ page | page | ... | shorter page ]
 *   page                    [ f32 copy | state 1 | state 2 | ... ]             32 bits
 *                           [ f32 copy | absmax 1 | 2 | ... | codes 1 | 2 ... ]  8 bits
 *
 * A page is all that is kept of so many elements, in one piece, so that one
 * copy brings it where it is updated. Its elements begin at a multiple of
 * BERTHI_UPDATE_BLOCK, so pages know nothing of each other. What has four bytes lies
 * before codes: there is no padding, and the bytes of all pages are those of the states.
 */
#ifndef BERTH_PLACEMENT_STATES_H
#define BERTH_PLACEMENT_STATES_H

#include <stdbool.h>
#include <stdint.h>

#define BERTHI_STATES_MAX 3u                     /* that an optimizer keeps */
#define BERTHI_STATES_PAGE (UINT64_C(1) << 22)
#define BERTHI_STATES_PAGE_MAX (UINT64_C(1) << 28)
#define BERTHI_STATES_LEAST_8BIT UINT64_C(4096)
#define BERTHI_STATES_SLOTS 4u    /* of a device, unless a caller wants others */
#define BERTHI_STATES_BUFFERS 4u  /* in host memory, for pages from the disk */
#define BERTHI_STATES_COUNTER UINT64_C(256) /* of a device; its sums lie behind it */

/* What is kept of a parameter. */
typedef struct berthi_states {
    uint64_t elements;
    uint64_t page_elements; /* a multiple of BERTHI_UPDATE_BLOCK */
    uint32_t count;         /* states, 1 to BERTHI_STATES_MAX */
    int32_t bits;           /* 8 or 32 */
    bool has_master;        /* and an f32 copy of the values */
} berthi_states;

#define BERTHI_STATES_NOTHING UINT64_MAX /* an offset of what a page has not */

/* Offsets are bytes from the page's first one. */
typedef struct berthi_states_page {
    uint64_t first;    /* of its elements */
    uint64_t elements;
    uint64_t offset;   /* in the parameter's states */
    uint64_t bytes;
    uint64_t master;
    uint64_t values[BERTHI_STATES_MAX]; /* 32 bits */
    uint64_t absmax[BERTHI_STATES_MAX]; /* 8 bits */
    uint64_t codes[BERTHI_STATES_MAX];
} berthi_states_page;

/* Bytes of the states of so many elements; UINT64_MAX: more than there can be. */
uint64_t berthi_states_bytes(const berthi_states *states);
uint64_t berthi_states_page_count(const berthi_states *states);
/* Of the largest page. */
uint64_t berthi_states_page_bytes(const berthi_states *states);
/* What a page takes in a slot of a device, and in a buffer of whole pages of the system. */
uint64_t berthi_states_slot_bytes(uint64_t page_bytes);
uint64_t berthi_states_buffer_bytes(uint64_t page_bytes, uint64_t system_page);
/* What a GPU has of its own: a counter, and sums of a page of so many elements. */
uint64_t berthi_states_scratch_bytes(uint64_t page_elements);
/* Below the page count. */
berthi_states_page berthi_states_get_page(const berthi_states *states, uint64_t number);

#endif
