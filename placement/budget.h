/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - max_memory as transformers and accelerate take it: which devices,
 * in which order, how many bytes each.
 *
 * Sizes here are Python's: doubles, because fractions of a byte are left by the cut
 * of ten percent, and they decide. berth's own planner takes its budgets in whole
 * bytes (tier.h).
 * Nothing allocates.
 */
#ifndef BERTH_PLACEMENT_BUDGET_H
#define BERTH_PLACEMENT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "quant/era.h"

/* Devices of one machine; the last place is kept for the disk. */
#define BERTHI_BUDGET_LIMIT 128u
/* Bytes for the name of a device, its NUL included: "-9223372036854775808". */
#define BERTHI_BUDGET_NAME 24u

/* In the order in which devices are filled. */
typedef enum berthi_budget_kind {
    BERTHI_BUDGET_GPU,
    BERTHI_BUDGET_MPS,
    BERTHI_BUDGET_CPU,
    BERTHI_BUDGET_DISK
} berthi_budget_kind;

typedef struct berthi_budget {
    berthi_budget_kind kind;
    int64_t number; /* of a GPU; otherwise 0 */
    double bytes;   /* finite and not negative; of the disk it is never asked */
} berthi_budget;

/* GPUs by ascending number, then mps, cpu, disk; each at most once. Zero: none. */
typedef struct berthi_budgets {
    berthi_budget items[BERTHI_BUDGET_LIMIT];
    uint32_t count;
    bool is_given; /* by the user, not found on the machine */
} berthi_budgets;

/*
 * "0=10GB,1=20GiB,cpu=30000000000": keys are integers, mps, cpu and disk; a size
 * is a whole number of bytes, or any number that Python's float() reads with
 * GiB, MiB, KiB, GB, MB or KB in any case. A decimal unit that ends in a small b
 * counts bits: "5Gb" is 625 MB. Fails with ARGUMENT, naming key and size.
 */
berth_status berthi_budgets_parse(const char *text, berthi_budgets *out,
                                  berth_error *error);
/* One size of such a text; false, and `problem` says why. */
bool berthi_budget_can_parse_size(const char *text, uint64_t length, double *out_bytes,
                                  const char **problem);
/* Takes its place in the order; false when the device is there or none is free. */
bool berthi_budgets_can_add(berthi_budgets *budgets, const berthi_budget *budget);

/* What a machine has when nobody has given budgets. */
typedef struct berthi_budget_machine {
    const uint64_t *gpu_free; /* bytes, by number; 0 too is a GPU */
    uint32_t gpu_count;
    uint64_t host_available;
    bool is_integrated;       /* a GPU that shares the host's memory */
} berthi_budget_machine;

/*
 * The budgets of that release without max_memory: what is free on each GPU, and on the
 * host what is available, from 5.0 on nine tenths of it, and nothing where a GPU shares
 * the host's memory. GPUs beyond the limit are left out.
 */
void berthi_budgets_default(berthi_era era, const berthi_budget_machine *machine,
                            berthi_budgets *out);
/* Nine tenths of every budget, the disk's too: what quantizers of bitsandbytes leave. */
void berthi_budgets_cut(berthi_budgets *budgets);
/* "0", "cpu"; `text` holds BERTHI_BUDGET_NAME bytes. Returns it. */
const char *berthi_budget_name(const berthi_budget *budget, char *text);

#endif
