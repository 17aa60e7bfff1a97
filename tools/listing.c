/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - natural order. */
#include "tools/listing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t
digits(const char *text, size_t length)
{
    size_t n = 0;

    while (n < length && is_digit(text[n]))
        n++;
    return n;
}

/* Runs of digits by value; of equal values the one with fewer zeros first. */
static int
compare_digits(const char *a, size_t a_count, const char *b, size_t b_count)
{
    size_t a_zeros = 0;
    size_t b_zeros = 0;
    int order;

    while (a_zeros < a_count && a[a_zeros] == '0')
        a_zeros++;
    while (b_zeros < b_count && b[b_zeros] == '0')
        b_zeros++;
    if (a_count - a_zeros != b_count - b_zeros)
        return a_count - a_zeros < b_count - b_zeros ? -1 : 1;
    order = memcmp(a + a_zeros, b + b_zeros, a_count - a_zeros);
    if (order != 0)
        return order;
    return a_zeros < b_zeros ? -1 : a_zeros > b_zeros;
}

/* A component's end sorts before everything that could go on instead. */
static int
rank(char c)
{
    return c == '.' ? -1 : (unsigned char)c;
}

int
listing_compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t i = 0;
    size_t j = 0;

    while (i < a_length && j < b_length) {
        if (is_digit(a[i]) && is_digit(b[j])) {
            const size_t m = digits(a + i, a_length - i);
            const size_t n = digits(b + j, b_length - j);
            const int order = compare_digits(a + i, m, b + j, n);

            if (order != 0)
                return order;
            i += m;
            j += n;
        } else if (a[i] != b[j]) {
            return rank(a[i]) - rank(b[j]);
        } else {
            i++;
            j++;
        }
    }
    return i < a_length ? 1 : j < b_length ? -1 : 0;
}

static int
compare_entries(const void *a, const void *b)
{
    const listing_entry *const x = a;
    const listing_entry *const y = b;

    return listing_compare(x->name, x->name_length, y->name, y->name_length);
}

berth_status
listing_init(listing *l, const berth_checkpoint *checkpoint)
{
    berth_checkpoint_summary summary;

    berth_checkpoint_get(checkpoint, &summary);
    l->count = (size_t)summary.tensor_count;
    l->entries = malloc((l->count + 1) * sizeof *l->entries);
    if (l->entries == NULL)
        return BERTH_ENOMEM;
    for (size_t i = 0; i < l->count; i++) {
        berth_tensor tensor;

        berth_checkpoint_tensor(checkpoint, i, &tensor);
        l->entries[i] = (listing_entry){ tensor.name, tensor.name_length, i };
    }
    qsort(l->entries, l->count, sizeof *l->entries, compare_entries);
    return BERTH_OK;
}

void
listing_fini(listing *l)
{
    free(l->entries);
    l->entries = NULL;
}
