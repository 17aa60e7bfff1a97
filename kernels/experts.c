/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - see experts.h */
#include "kernels/experts.h"

#include <inttypes.h>

#include "kernels/base.h"
#include "kernels/multiply.h"
#include "kernels/number.h"
#include "kernels/product_arguments.h"

/* Its product with `count` inputs; of no expert where the weight does not matter. */
static berthi_multiply_arguments
product_of(const berthi_experts_arguments *a, const berthi_product_expert *expert,
           uint32_t count)
{
    static const uint8_t no_codes;
    berthi_multiply_arguments product = {
        .absmax_codes = a->is_double ? &no_codes : NULL, .map = a->map,
        .block_size = a->block_size, .count = count, .rows = a->rows, .columns = a->columns,
        .dtype = a->dtype, .scratch = a->scratch
    };

    if (expert == NULL)
        return product;
    product.codes = expert->codes;
    product.absmax = expert->absmax;
    product.absmax_codes = a->is_double ? expert->absmax_codes : NULL;
    product.offset = expert->offset;
    product.bias = expert->bias;
    return product;
}

berth_status
berthi_experts_check(const berthi_experts_arguments *a, berth_error *error)
{
    const berthi_multiply_arguments product = product_of(a, NULL, 1);

    if (a->codes_alignment == 0 || (a->codes_alignment & (a->codes_alignment - 1)) != 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "codes of experts at multiples of %" PRIu32
                           ": it has to be a power of two",
                           a->codes_alignment);
    return berthi_multiply_check(&product, error);
}

uint64_t
berthi_experts_scratch(const berthi_experts_arguments *a)
{
    const berthi_multiply_arguments product = product_of(a, NULL, BERTHI_MULTIPLY_INPUTS);

    return berthi_multiply_scratch(&product);
}

uint64_t
berthi_experts_weight_bytes(const berthi_experts_arguments *a)
{
    const uint64_t weights = a->rows * a->columns;
    const uint64_t blocks = berthi_divide_up(weights, a->block_size);

    return weights / 2 + weights % 2
           + (a->is_double ? blocks + berthi_divide_up(blocks, BERTHI_DOUBLE_BLOCK) * 4
                           : blocks * 4);
}

void
berthi_experts_run(const berthi_experts_arguments *a, const berthi_operations *operations,
                   void (*multiply)(const berthi_product_arguments *part))
{
    const uint64_t width = berthi_number_bytes(a->dtype);
    const uint64_t most = ((uint64_t)a->most_inputs + 7) / 8 * 8;

    for (uint32_t e = 0; e < a->expert_count; e++) {
        const uint64_t last = berthi_min_u64(a->ranges[e + 1], a->ranges[e] + most);

        for (uint64_t i = a->ranges[e]; i < last; i += BERTHI_MULTIPLY_INPUTS) {
            const uint64_t now = berthi_min_u64(BERTHI_MULTIPLY_INPUTS, last - i);
            berthi_multiply_arguments product =
                product_of(a, &a->experts[e], (uint32_t)now);

            product.inputs = (const uint8_t *)a->inputs + i * a->columns * width;
            product.outputs = (uint8_t *)a->outputs + i * a->rows * width;
            berthi_multiply_run(&product, operations, multiply);
        }
    }
}
