/* SPDX-License-Identifier: Apache-2.0 */
/* heapsort.c - see heapsort.h. */
#include "quant/heapsort.h"

#include <string.h>

typedef struct heap {
    unsigned char *elements;
    size_t bytes; /* of one */
    int (*compare)(const void *a, const void *b);
} heap;

static void *
element(const heap *h, uint64_t number)
{
    return h->elements + number * h->bytes;
}

/* Puts `moved` where it belongs, at `at` or below; what was there is not looked at. */
static void
sift_down(const heap *h, uint64_t count, uint64_t at, const void *moved)
{
    uint64_t child;

    while ((child = 2 * at + 1) < count) {
        if (child + 1 < count && h->compare(element(h, child), element(h, child + 1)) < 0)
            child++;
        if (h->compare(moved, element(h, child)) >= 0)
            break;
        memcpy(element(h, at), element(h, child), h->bytes);
        at = child;
    }
    memcpy(element(h, at), moved, h->bytes);
}

void
berthi_heapsort(void *elements, uint64_t count, size_t bytes,
                int (*compare)(const void *a, const void *b))
{
    const heap h = { elements, bytes, compare };
    _Alignas(max_align_t) unsigned char moved[BERTHI_HEAPSORT_ELEMENT];

    for (uint64_t at = count / 2; at-- > 0;) {
        memcpy(moved, element(&h, at), bytes);
        sift_down(&h, count, at, moved);
    }
    for (uint64_t last = count; last-- > 1;) {
        memcpy(moved, element(&h, last), bytes);
        memcpy(element(&h, last), element(&h, 0), bytes);
        sift_down(&h, last, 0, moved);
    }
}
