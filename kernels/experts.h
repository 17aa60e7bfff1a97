/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - inputs times the weights of several experts, as any device is asked for it:
 * each expert's own, with the bits of multiply.h where a device says that it groups them.
 *
 * Weights have one shape and encoding. Where they lie and whose inputs are whose stands in
 * the device's memory, where a router may have written it: the host knows no more than a
 * bound. Nothing is written for inputs that are nobody's.
 */
#ifndef BERTH_KERNELS_EXPERTS_H
#define BERTH_KERNELS_EXPERTS_H

#include "kernels/kernel.h"

struct berthi_product_expert; /* kernel_arguments.h */

/*
 * Of one expert. A product of more may be by kernels that have many inputs, or by a library, with
 * bits of its own: see multiply.h.
 */
#define BERTHI_EXPERTS_INPUTS 16u

/* Experts of an operation at most: what of them goes to the device is one write. */
#define BERTHI_EXPERTS_GROUP 46u

/*
 * What is asked for to multiply by one weight of each of so many experts, where they are grouped:
 * a write and a product for each group, and one product with an expert that is left alone.
 */
static inline uint64_t
berthi_experts_operations(uint64_t experts)
{
    const uint64_t rest = experts % BERTHI_EXPERTS_GROUP;

    return 2 * (experts / BERTHI_EXPERTS_GROUP) + (rest > 2 ? 2 : rest);
}

/*
 * Whether products with such weights are by rings on some GPU, which groups no experts then: see
 * multiply.h. Of what no GPU has rings for all devices group them.
 */
bool berthi_experts_may_have_rings(uint32_t block_size, uint64_t columns);

/* Pointers are the device's memory, but for the map. */
typedef struct berthi_experts_arguments {
    const struct berthi_product_expert *experts; /* expert_count of them */
    const uint32_t *ranges;   /* expert_count + 1, ascending to `count` at most: inputs from
                                 ranges[e] up to the next are e's */
    uint32_t expert_count;
    uint32_t most_inputs;     /* that an expert has: of more the first ones, in eights */
    uint32_t codes_alignment; /* bytes, a power of two, that all codes are aligned to */
    uint32_t block_size;      /* 32 to 4096, a power of two */
    bool is_double;
    const uint32_t *map;      /* with is_double, as it is stored; the host's */
    uint64_t rows;            /* of each weight */
    uint64_t columns;
    uint32_t count;           /* of inputs: those of all, and of nobody */
    const void *inputs;       /* count x columns */
    void *outputs;            /* count x rows */
    int32_t dtype;            /* BERTH_BF16, F16, F32 */
    float *scratch;           /* berthi_experts_scratch() values; not looked at by GPUs */
} berthi_experts_arguments;

/* BERTH_OK, or UNSUPPORTED: what no device does. */
berth_status berthi_experts_check(const berthi_experts_arguments *arguments,
                                  berth_error *error);
/* Of checked arguments. */
uint64_t berthi_experts_scratch(const berthi_experts_arguments *arguments);
/* Bytes of one weight, statistics included. */
uint64_t berthi_experts_weight_bytes(const berthi_experts_arguments *arguments);
/* Checked, on host memory, with one of the operations' products. */
void berthi_experts_run(const berthi_experts_arguments *arguments,
                        const berthi_operations *operations,
                        void (*multiply)(const berthi_product_arguments *part));

#endif
