/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - natural order. */
#include "tools/listing.h"

#include <stdlib.h>
#include <string.h>

/* How many characters from the front on are those from `lowest` to `highest`. */
static size_t
run_length(const char *text, size_t length, char lowest, char highest)
{
    size_t n = 0;

    while (n < length && text[n] >= lowest && text[n] <= highest)
        n++;
    return n;
}

static int
compare_sizes(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

/* Runs of digits by value; of equal values the one with fewer zeros first. */
static int
compare_digits(const char *a, size_t a_count, const char *b, size_t b_count)
{
    const size_t a_zeros = run_length(a, a_count, '0', '0');
    const size_t b_zeros = run_length(b, b_count, '0', '0');
    int order = compare_sizes(a_count - a_zeros, b_count - b_zeros);

    if (order == 0)
        order = memcmp(a + a_zeros, b + b_zeros, a_count - a_zeros);
    return order != 0 ? order : compare_sizes(a_zeros, b_zeros);
}

/* A component's end sorts before everything that could go on instead. */
static int
rank(char c)
{
    return c == '.' ? -1 : (unsigned char)c;
}

/* Names of one model are alike for long: only what follows their common beginning is judged. */
int
listing_compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const size_t shorter = a_length < b_length ? a_length : b_length;
    size_t at = 0;
    size_t m;
    size_t n;

    while (at < shorter && a[at] == b[at])
        at++;
    /* A number is judged from its first digit on. */
    while (at > 0 && a[at - 1] >= '0' && a[at - 1] <= '9')
        at--;
    m = run_length(a + at, a_length - at, '0', '9');
    n = run_length(b + at, b_length - at, '0', '9');
    if (m > 0 && n > 0) {
        const int order = compare_digits(a + at, m, b + at, n);

        if (order != 0)
            return order;
        at += m;
    }
    if (at < shorter)
        return rank(a[at]) - rank(b[at]);
    return compare_sizes(a_length, b_length);
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
