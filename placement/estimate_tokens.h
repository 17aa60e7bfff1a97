/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_tokens.h - the lengths of sequences really seen, and what they cost.
 *
 * A file has one length a line: digits, blanks around them allowed, empty lines
 * and lines that begin with # skipped. It is untrusted: other bytes, a length
 * beyond 2^40 and an empty list are errors that name the line.
 *
 *   percentile p  the smallest length of the list that at least p % of all lengths
 *                 do not exceed (nearest rank: the ceil(p * n / 100)-th of n in
 *                 ascending order; p = 0 is the first)
 *   padded        every sequence of a batch as long as the batch's longest; batches
 *                 of b in the order of the file, the last one shorter
 *   sorted        the same with the list in ascending order: what bucketing by
 *                 length would reach (its last, shorter batch is of the longest)
 *   packed        the sequences end to end: their sum
 *   packs         rows of a given capacity, each sequence in the newest row if it
 *                 fits there, else in a new one (next fit); a longer one is cut
 */
#ifndef BERTH_PLACEMENT_ESTIMATE_TOKENS_H
#define BERTH_PLACEMENT_ESTIMATE_TOKENS_H

#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "placement/estimate.h"

/* Lengths of sequences. */
typedef struct berthi_tokens {
    berth_context *context;
    uint64_t *lengths; /* as in the file */
    uint64_t *sorted;  /* ascending      */
    uint64_t count;
    uint64_t total;
} berthi_tokens;

/*
 * Parses `bytes` of text. `file` is for messages. Fails with ARGUMENT or NO_MEMORY.
 * End with berthi_tokens_fini(), which takes a zeroed struct too.
 */
berth_status berthi_tokens_parse(berth_context *context, const char *text, uint64_t bytes,
                                 const char *file, berthi_tokens *out,
                                 berth_error *error);
/* The same from numbers. */
berth_status berthi_tokens_init(berth_context *context, const uint64_t *lengths,
                                uint64_t count, berthi_tokens *out, berth_error *error);
void berthi_tokens_fini(berthi_tokens *tokens);

/* `percent` 0 to 100. */
uint64_t berthi_tokens_percentile(const berthi_tokens *tokens, uint32_t percent);
/* Tokens computed in batches of `batch` > 0; see above. */
uint64_t berthi_tokens_padded(const berthi_tokens *tokens, uint64_t batch);
uint64_t berthi_tokens_padded_sorted(const berthi_tokens *tokens, uint64_t batch);
uint64_t berthi_tokens_packs(const berthi_tokens *tokens, uint64_t capacity);

/* Device bytes for `batch` sequences of `length` tokens; UINT64_MAX: no estimate. */
typedef uint64_t (*berthi_tokens_measure)(const void *user, uint64_t length,
                                          uint64_t batch);

/* The largest batch, 0 to BERTHI_TOKENS_BATCH, that takes no more than `usable`. */
uint64_t berthi_tokens_batch(berthi_tokens_measure measure, const void *user,
                             uint64_t length, uint64_t usable);

#define BERTHI_TOKENS_BATCH (UINT64_C(1) << 24)
#define BERTHI_TOKENS_POINTS 4u

/* One length that matters, and the batch that fits at it. */
typedef struct berthi_tokens_point {
    const char *name; /* "p50", "p95", "p99", "max" */
    uint64_t length;
    uint64_t batch;   /* padded to this length; 0: not even one fits */
} berthi_tokens_point;

typedef struct berthi_tokens_summary {
    uint64_t count;
    uint64_t total;
    uint64_t least;
    uint64_t most;
    uint64_t mean;     /* rounded down */
    uint64_t batch;    /* that the next four are about */
    uint64_t padded;
    uint64_t sorted;
    uint64_t packed;   /* = total */
    uint64_t packs;    /* rows as long as the longest sequence */
    berthi_tokens_point points[BERTHI_TOKENS_POINTS];
} berthi_tokens_summary;

/* `measure` may be NULL: no batches are looked for. */
void berthi_tokens_summarize(const berthi_tokens *tokens, uint64_t batch,
                             berthi_tokens_measure measure, const void *user,
                             uint64_t usable, berthi_tokens_summary *out);

/* A measure of inference: `user` is a berthi_tokens_inference. */
typedef struct berthi_tokens_inference {
    const berthi_estimate_model *model;
    const berthi_estimate_options *options;
    const berthi_weight_sums *sums; /* made with these options */
    const berthi_fit_budget *budget; /* devices that have to hold it; NULL: nobody asks */
} berthi_tokens_inference;

uint64_t berthi_tokens_measure_inference(const void *user, uint64_t length,
                                         uint64_t batch);

#endif
