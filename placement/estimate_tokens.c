/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_tokens.c - lists of sequence lengths; see estimate_tokens.h. */
#include "placement/estimate_tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/text.h"
#include "placement/estimate_lines.h"

#define LENGTH_MAX (UINT64_C(1) << 40)

/* --------------------------------------------------------------------- the list */

static int
compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static berth_status
allocate(berthi_tokens *tokens, berth_context *context, uint64_t count,
         berth_error *error)
{
    memset(tokens, 0, sizeof *tokens);
    tokens->context = context;
    tokens->count = count;
    tokens->lengths = berthi_memory_array(context, BERTHI_PURPOSE_OBJECT, count,
                                          sizeof *tokens->lengths);
    tokens->sorted = berthi_memory_array(context, BERTHI_PURPOSE_OBJECT, count,
                                         sizeof *tokens->sorted);
    if (tokens->lengths != NULL && tokens->sorted != NULL)
        return BERTH_OK;
    berthi_tokens_fini(tokens);
    return berthi_fail_memory(error, "a list of lengths");
}

static berth_status
finish(berthi_tokens *tokens, berth_error *error)
{
    memcpy(tokens->sorted, tokens->lengths, tokens->count * sizeof *tokens->sorted);
    qsort(tokens->sorted, tokens->count, sizeof *tokens->sorted, compare);
    for (uint64_t i = 0; i < tokens->count; i++)
        tokens->total = berthi_add_capped(tokens->total, tokens->lengths[i]);
    /* Padding multiplies the longest: that has to stay below 2^64, too. */
    if (berthi_times(tokens->count, tokens->sorted[tokens->count - 1]) != BERTHI_BEYOND)
        return BERTH_OK;
    berthi_tokens_fini(tokens);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                       "the lengths add up to 2^64 tokens or more");
}

berth_status
berthi_tokens_init(berth_context *context, const uint64_t *lengths, uint64_t count,
                   berthi_tokens *out, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    berthi_error_clear(error);
    if (count == 0)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "there are no lengths");
    status = allocate(out, context, count, error);
    if (status != BERTH_OK)
        return status;
    memcpy(out->lengths, lengths, count * sizeof *lengths);
    return finish(out, error);
}

void
berthi_tokens_fini(berthi_tokens *tokens)
{
    const uint64_t bytes = tokens->count * sizeof *tokens->lengths;

    if (tokens->context == NULL)
        return;
    berthi_memory_free(tokens->context, BERTHI_PURPOSE_OBJECT, tokens->sorted, bytes);
    berthi_memory_free(tokens->context, BERTHI_PURPOSE_OBJECT, tokens->lengths, bytes);
    memset(tokens, 0, sizeof *tokens);
}

/* --------------------------------------------------------------------- its text */

typedef struct lines {
    const char *at;
    const char *end;
    uint64_t number; /* of the line taken last, from 1 */
} lines;

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next line that says something, without blanks around it. */
static bool
has_line(lines *l, berthi_text *out)
{
    while (l->at < l->end) {
        const char *first = l->at;
        const char *last = memchr(first, '\n', (size_t)(l->end - first));

        last = last != NULL ? last : l->end;
        l->at = last < l->end ? last + 1 : last;
        l->number++;
        while (first < last && is_blank(*first))
            first++;
        while (last > first && is_blank(last[-1]))
            last--;
        if (first == last || *first == '#')
            continue;
        out->bytes = first;
        out->length = (uint64_t)(last - first);
        return true;
    }
    return false;
}

static berth_status
fail_line(const lines *l, const berthi_text *bad, const char *file, berth_error *error)
{
    char text[BERTH_NAME_CAPACITY];

    berth_text_escape(bad->bytes, bad->length, text, sizeof text);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &(berthi_about){ .file = file },
                       "line %" PRIu64 " is \"%s\", no whole number of tokens up to 2^40",
                       l->number, text);
}

berth_status
berthi_tokens_parse(berth_context *context, const char *text, uint64_t bytes,
                    const char *file, berthi_tokens *out, berth_error *error)
{
    const lines begin = { .at = text, .end = text + bytes };
    uint64_t count = 0;
    lines l = begin;
    berth_status status;
    berthi_text next;

    memset(out, 0, sizeof *out);
    berthi_error_clear(error);
    while (has_line(&l, &next)) {
        uint64_t unused;

        if (!berthi_digits_can_parse(next.bytes, next.length, LENGTH_MAX, &unused))
            return fail_line(&l, &next, file, error);
        count++;
    }
    if (count == 0)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &(berthi_about){ .file = file },
                           "no line has a length");
    status = allocate(out, context, count, error);
    if (status != BERTH_OK)
        return status;
    l = begin;
    for (uint64_t i = 0; i < count && has_line(&l, &next); i++)
        (void)berthi_digits_can_parse(next.bytes, next.length, LENGTH_MAX, &out->lengths[i]);
    return finish(out, error);
}

/* -------------------------------------------------------------------- questions */

uint64_t
berthi_tokens_percentile(const berthi_tokens *tokens, uint32_t percent)
{
    const uint64_t rank = berthi_percent(tokens->count, percent);

    return tokens->sorted[rank > 0 ? rank - 1 : 0];
}

static uint64_t
padded(const uint64_t *lengths, uint64_t count, uint64_t batch)
{
    uint64_t tokens = 0;

    for (uint64_t first = 0; first < count;) {
        const uint64_t size = berthi_min_u64(batch, count - first);
        uint64_t longest = 0;

        for (uint64_t i = 0; i < size; i++)
            longest = berthi_max_u64(longest, lengths[first + i]);
        tokens += longest * size;
        first += size;
    }
    return tokens;
}

uint64_t
berthi_tokens_padded(const berthi_tokens *tokens, uint64_t batch)
{
    return padded(tokens->lengths, tokens->count, batch);
}

uint64_t
berthi_tokens_padded_sorted(const berthi_tokens *tokens, uint64_t batch)
{
    return padded(tokens->sorted, tokens->count, batch);
}

uint64_t
berthi_tokens_packs(const berthi_tokens *tokens, uint64_t capacity)
{
    uint64_t left = 0;
    uint64_t packs = 0;

    for (uint64_t i = 0; i < tokens->count; i++) {
        const uint64_t length = berthi_min_u64(tokens->lengths[i], capacity);

        if (length == 0)
            continue;
        if (length > left) {
            packs++;
            left = capacity;
        }
        left -= length;
    }
    return packs;
}

/* Bytes never fall as the batch grows. */
uint64_t
berthi_tokens_batch(berthi_tokens_measure measure, const void *user, uint64_t length,
                    uint64_t usable)
{
    uint64_t fits = 0;
    uint64_t fails = BERTHI_TOKENS_BATCH + 1;

    while (fails - fits > 1) {
        const uint64_t middle = fits + (fails - fits) / 2;

        if (measure(user, length, middle) <= usable)
            fits = middle;
        else
            fails = middle;
    }
    return fits;
}

void
berthi_tokens_summarize(const berthi_tokens *tokens, uint64_t batch,
                        berthi_tokens_measure measure, const void *user, uint64_t usable,
                        berthi_tokens_summary *out)
{
    static const struct {
        const char *name;
        uint32_t percent;
    } points[BERTHI_TOKENS_POINTS] =
        { { "p50", 50 }, { "p95", 95 }, { "p99", 99 }, { "max", 100 } };

    memset(out, 0, sizeof *out);
    out->count = tokens->count;
    out->total = tokens->total;
    out->least = tokens->sorted[0];
    out->most = tokens->sorted[tokens->count - 1];
    out->mean = tokens->total / tokens->count;
    out->batch = batch;
    out->padded = berthi_tokens_padded(tokens, batch);
    out->sorted = berthi_tokens_padded_sorted(tokens, batch);
    out->packed = tokens->total;
    out->packs = berthi_tokens_packs(tokens, out->most);
    for (size_t i = 0; i < BERTHI_TOKENS_POINTS; i++) {
        berthi_tokens_point *const point = &out->points[i];

        point->name = points[i].name;
        point->length = berthi_tokens_percentile(tokens, points[i].percent);
        if (measure != NULL)
            point->batch = berthi_tokens_batch(measure, user,
                                               berthi_max_u64(point->length, 1), usable);
    }
}

uint64_t
berthi_tokens_measure_inference(const void *user, uint64_t length, uint64_t batch)
{
    const berthi_tokens_inference *const inference = user;
    berthi_estimate_options options = *inference->options;
    berthi_estimate estimate;

    options.context = length;
    options.batch = batch;
    if (inference->budget != NULL
        && !berthi_fit_is_held(inference->model, inference->sums, &options,
                               inference->budget))
        return BERTHI_BEYOND;
    if (berthi_estimate_with(inference->model, inference->sums, &options, &estimate, NULL)
        != BERTH_OK)
        return BERTHI_BEYOND;
    return estimate.device_bytes;
}
