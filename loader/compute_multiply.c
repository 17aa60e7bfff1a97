/* SPDX-License-Identifier: Apache-2.0 */
/* compute_multiply.c - products with tensors of a model where they lie, as berth.h has them. */
#include <string.h>

#include "loader/compute.h"
#include "loader/model.h"

/* Where they lie and what they need: all of it is known before the first is asked for. */
static berth_status
take_all(const berth_model *model, const uint64_t *berths, berthi_product *products, uint32_t count,
         berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        if (berthi_product_take(&products[i], model, berths[i]) != BERTH_OK)
            return berthi_fail_argument(error, "berth", "is not that of a tensor");
        status = berthi_product_check(&products[i], "berth", error);
        if (status == BERTH_OK && products[i].tensor.device != products[0].tensor.device)
            return berthi_fail_argument(error, "berths", "are of several devices");
    }
    return status;
}

static berth_status
multiply(berth_model *model, const uint64_t *berths, berthi_product *products, uint32_t count,
         void *stream, berth_error *error)
{
    const berth_status status = take_all(model, berths, products, count, error);

    return status == BERTH_OK
               ? berthi_products_launch(products, count,
                                        berthi_device_of(model, &products[0].tensor), stream,
                                        error)
               : status;
}

berth_status
berth_model_multiply_together(berth_model *model, const uint64_t *berths,
                              const berth_multiply *steps, uint32_t count, void *stream,
                              berth_error *error)
{
    berthi_product products[BERTH_MULTIPLY_TOGETHER];
    berth_status status;

    berthi_error_clear(error);
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    if (berths == NULL || steps == NULL)
        return berthi_fail_argument(error, steps == NULL ? "steps" : "berths", "is NULL");
    if (count == 0 || count > BERTH_MULTIPLY_TOGETHER)
        return berthi_fail_argument(error, "count", "is not from 1 to 4");
    memset(products, 0, count * sizeof *products);
    for (uint32_t i = 0; i < count; i++)
        products[i].step = steps[i];
    status = berthi_model_enter(model, error);
    if (status != BERTH_OK)
        return status;
    status = multiply(model, berths, products, count, stream, error);
    berthi_model_leave(model);
    return status;
}

berth_status
berth_model_multiply(berth_model *model, uint64_t berth, const berth_multiply *step,
                     void *stream, berth_error *error)
{
    if (model != NULL && step == NULL) {
        berthi_error_clear(error);
        return berthi_fail_argument(error, "step", "is NULL");
    }
    return berth_model_multiply_together(model, &berth, step, 1, stream, error);
}

uint64_t
berth_model_multiply_scratch(const berth_model *model, uint64_t berth, int32_t dtype,
                             uint32_t count)
{
    berthi_product p = { .step = { .dtype = dtype, .count = count } };

    return model != NULL ? berthi_product_measure(&p, model, berth) : 0;
}
