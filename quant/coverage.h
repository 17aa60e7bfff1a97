/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage.h - what share of a model is quantized, and what left out the rest.
 * berth_share_parse() of berth.h is implemented here.
 */
#ifndef BERTH_QUANT_COVERAGE_H
#define BERTH_QUANT_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/rules.h"

/* Sums over one model: none of them can pass 2^64. */
typedef struct berthi_coverage_line {
    uint64_t tensors;
    uint64_t parameters;
    uint64_t source_bytes; /* as values of the dtype that is loaded */
    uint64_t stored_bytes; /* as written, statistics included */
    uint64_t kept;         /* tensors that are stored so already */
} berthi_coverage_line;

/* What one rule, glob or entry of the skip list has decided, or a cause without. */
typedef struct berthi_coverage_detail {
    berthi_decision decision; /* the last one */
    berthi_coverage_line line;
} berthi_coverage_detail;

typedef struct berthi_coverage {
    berth_context *context;
    berthi_coverage_line all;
    berthi_coverage_line encodings[BERTH_ENCODING_INT8 + 1]; /* NATIVE, NF4, FP4, INT8 */
    uint32_t first[BERTHI_CAUSE_COUNT + 1]; /* of a cause, in `details` */
    berthi_coverage_detail *details;        /* by cause, then number */
} berthi_coverage;

/* A model without tensors. NO_MEMORY; `out` may be finished then, too. */
berth_status berthi_coverage_init(berthi_coverage *out, berth_context *context,
                                  const berthi_rules *rules, berth_error *error);
void berthi_coverage_fini(berthi_coverage *coverage);
void berthi_coverage_add(berthi_coverage *coverage, const berthi_model_tensor *tensor,
                         const berthi_decision *decision, uint64_t source_bytes,
                         uint64_t stored_bytes);
/* The tensor that was added with this decision is stored so already. */
void berthi_coverage_keep(berthi_coverage *coverage, const berthi_decision *decision);
/* Quantized parameters among all, in billionths, rounded down; none of none is all. */
uint64_t berthi_coverage_share(const berthi_coverage *coverage);
/*
 * MIN_COVERAGE, with the share and what left out most, when less than `minimum`
 * is quantized. `rules` are those of the coverage.
 */
berth_status berthi_coverage_check(const berthi_coverage *coverage,
                                   const berthi_rules *rules, uint64_t minimum,
                                   berth_error *error);
/* There are tensors, and all of them stay as they are. */
bool berthi_coverage_is_none(const berthi_coverage *coverage);

#endif
