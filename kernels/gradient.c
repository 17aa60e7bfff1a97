/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - gradients measured and added up by plain loops. */
#include "kernels/gradient.h"

#include <inttypes.h>

#include "kernels/core_optimizer.h"
#include "kernels/number.h"

#define BLOCK BERTHI_GRADIENT_BLOCK
#define LANES_OF_BLOCK BERTHI_GRADIENT_LANES

/* ------------------------------------------------------------------ measures */

static berthi_gradient_sum
measure_block(const berthi_measure_arguments *a, uint64_t first, uint32_t count)
{
    double lanes[LANES_OF_BLOCK] = { 0.0 };
    uint64_t not_finite = 0;

    for (uint32_t i = 0; i < count; i++) {
        const float value = berthi_core_load(a->gradient, a->dtype, first + i);

        if (berthi_core_is_finite(value))
            lanes[i % LANES_OF_BLOCK] += (double)value * (double)value;
        else
            not_finite++;
    }
    return (berthi_gradient_sum){ berthi_core_join_squares(lanes), not_finite };
}

void
berthi_measure_plainly(const berthi_measure_arguments *a)
{
    for (uint64_t first = 0; first < a->count; first += BLOCK) {
        const uint64_t left = a->count - first;

        a->sums[first / BLOCK] =
            measure_block(a, first, (uint32_t)(left < BLOCK ? left : BLOCK));
    }
}

berthi_gradient_sum
berthi_gradient_total(const berthi_gradient_sum *sums, uint64_t count)
{
    berthi_gradient_sum total = { 0.0, 0 };

    for (uint64_t i = 0; i < count; i++) {
        total.squares += sums[i].squares;
        total.not_finite += sums[i].not_finite;
    }
    return total;
}

/* ---------------------------------------------------------------------- sums */

void
berthi_accumulate_plainly(const berthi_accumulate_arguments *a)
{
    for (uint64_t i = 0; i < a->count; i++) {
        const float sum = berthi_core_load(a->sum, a->sum_dtype, i);
        const float gradient = berthi_core_load(a->gradient, a->dtype, i);

        berthi_core_store(a->sum, a->sum_dtype, i,
                          berthi_core_one_nan(berthi_core_add(
                              sum, berthi_core_multiply(a->scale, gradient))));
    }
}

/* -------------------------------------------------------------------- checks */

static berth_status
check_dtype(int32_t dtype, berth_error *error)
{
    if (berthi_is_number(dtype))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "no gradient is of dtype %" PRId32, dtype);
}

berth_status
berthi_measure_check(const berthi_measure_arguments *a, berth_error *error)
{
    return check_dtype(a->dtype, error);
}

berth_status
berthi_accumulate_check(const berthi_accumulate_arguments *a, berth_error *error)
{
    const berth_status status = check_dtype(a->sum_dtype, error);

    return status == BERTH_OK ? check_dtype(a->dtype, error) : status;
}
