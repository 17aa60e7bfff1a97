/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - memories with a budget by name: the one place that knows "cuda:0".
 * Sizes are those of berth_size_parse().
 *
 * Implemented in tier_list.c. What transformers takes for
 * max_memory is budget.h.
 */
#ifndef BERTH_PLACEMENT_TIER_H
#define BERTH_PLACEMENT_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

/* In the order in which tiers are listed. */
typedef enum berthi_tier_kind {
    BERTHI_TIER_GPU,
    BERTHI_TIER_CPU,
    BERTHI_TIER_DISK
} berthi_tier_kind;

typedef struct berthi_tier {
    int32_t kind;    /* berthi_tier_kind */
    uint32_t number; /* of a GPU; otherwise 0 */
} berthi_tier;

/* "cuda:4294967295" and its NUL. */
#define BERTHI_TIER_NAME 24u

/* "0", "cuda:0" and "cuda" (0), "cpu", "disk". */
bool berthi_tier_can_parse(const char *text, uint64_t length, berthi_tier *out);
/* "cuda:0", "cpu", "disk" into `text` of BERTHI_TIER_NAME bytes. Returns it. */
const char *berthi_tier_name(const berthi_tier *tier, char *text);
/* Below, at, or above 0 as `a` is listed before, is, or is listed behind `b`. */
int berthi_tier_compare(const berthi_tier *a, const berthi_tier *b);

/* 64 GPUs, cpu and disk. */
#define BERTHI_TIER_LIMIT 66u

/* Bytes of a tier that may be used, or that are to stay free. */
typedef struct berthi_tier_bytes {
    berthi_tier tier;
    uint64_t bytes; /* UINT64_MAX: "inf" */
    uint64_t share; /* "90%": billionths of what the tier has; 0: `bytes` counts */
} berthi_tier_bytes;

/* GPUs by number, then cpu, then disk; each at most once. Zero: none. */
typedef struct berthi_tier_list {
    berthi_tier_bytes items[BERTHI_TIER_LIMIT];
    uint32_t count;
} berthi_tier_list;

/* No budget is so small: "cpu=64" is of GiB, and its unit was left out. */
static inline bool
berthi_tier_lacks_unit(uint64_t budget)
{
    return budget < 1024;
}

/*
 * "0=20GiB,cuda:1=90%,cpu=64GiB,disk=inf", in any order, each tier once. Sizes are
 * those of berth_size_parse(), a share in per cent, or "inf". Fails with ARGUMENT,
 * naming the tier and its size.
 */
berth_status berthi_tier_list_parse(const char *text, berthi_tier_list *out,
                                    berth_error *error);
/* NULL when there is none. */
const berthi_tier_bytes *berthi_tier_list_find(const berthi_tier_list *list,
                                               const berthi_tier *tier);
/* Takes its place in the order; false when the tier is there or no place is left. */
bool berthi_tier_list_can_add(berthi_tier_list *list, const berthi_tier_bytes *item);

#endif
