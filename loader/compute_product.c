/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_product.c - one product with a tensor of a model where it lies: what it is as
 * operations of a device, what it needs, and whether it can be; see compute.h.
 *
 *   plain, 4-bit   one operation
 *   INT8           inputs ─▶ codes, row maxima, outliers ─▶ sums ─▶ outputs
 */
#include <math.h>

#include "kernels/number.h"
#include "kernels/tables.h"
#include "loader/compute.h"
#include "loader/model.h"

typedef berthi_product product;

/* They may be. */
static bool
has_outliers(const product *p)
{
    return p->step.threshold > 0.0f;
}

static const void *
part_of(const product *p, int32_t role)
{
    return berthi_part_of(&p->tensor, role);
}

/* ---------------------------------------------------------------------- requests */

berthi_request
berthi_product_ask_4bit(const product *p)
{
    const bool is_double = p->tensor.is_double != 0;
    const void *const absmax = part_of(p, BERTH_ROLE_ABSMAX);

    return (berthi_request){
        .operation = p->tensor.encoding == BERTH_ENCODING_NF4
                         ? BERTHI_OPERATION_MULTIPLY_NF4
                         : BERTHI_OPERATION_MULTIPLY_FP4,
        .arguments.multiply = {
            .codes = part_of(p, BERTH_ROLE_CODES),
            .absmax = is_double ? part_of(p, BERTH_ROLE_ABSMAX2) : absmax,
            .absmax_codes = is_double ? absmax : NULL,
            .map = berthi_signed_map,
            .offset = p->tensor.offset,
            .block_size = p->tensor.block_size,
            .count = p->step.count,
            .rows = p->rows,
            .columns = p->columns,
            .inputs = p->step.inputs,
            .bias = p->step.bias,
            .outputs = p->step.outputs,
            .dtype = p->step.dtype,
            .scratch = p->floats,
            /* Loads and moves have ended; the copies of a lease, no kernel, are waited for. */
            .is_settled = true,
        },
    };
}

static berthi_request
ask_plain(const product *p)
{
    return (berthi_request){
        .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
        .arguments.plain = {
            .weight = part_of(p, BERTH_ROLE_VALUES),
            .inputs = p->step.inputs,
            .bias = p->step.bias,
            .outputs = p->step.outputs,
            .weight_dtype = p->tensor.dtype,
            .dtype = p->step.dtype,
            .count = p->step.count,
            .rows = p->rows,
            .columns = p->columns,
        },
    };
}

static berthi_request
ask_codes(const product *p)
{
    return (berthi_request){
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = {
            .inputs = p->step.inputs,
            .dtype = p->step.dtype,
            .threshold = p->step.threshold,
            .count = p->step.count,
            .columns = p->columns,
            .codes = p->codes,
            .input_maximum = p->input_maximum,
            .outliers = p->outliers,
        },
    };
}

static berthi_request
ask_sums(const product *p)
{
    return (berthi_request){
        .operation = BERTHI_OPERATION_MULTIPLY_INT8,
        .arguments.int8 = {
            .weights = part_of(p, BERTH_ROLE_CODES),
            .inputs = p->codes,
            .sums = p->sums,
            .count = p->step.count,
            .rows = p->rows,
            .columns = p->columns,
        },
    };
}

static berthi_request
ask_outputs(const product *p)
{
    return (berthi_request){
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = {
            .sums = p->sums,
            .input_maximum = p->input_maximum,
            .weight_maximum = part_of(p, BERTH_ROLE_ROW_MAXIMUM),
            .bias = p->step.bias,
            .outputs = p->step.outputs,
            .dtype = p->step.dtype,
            .count = p->step.count,
            .rows = p->rows,
            .outliers = has_outliers(p) ? p->outliers : (berthi_outlier_room){ .mask = NULL },
            .weights = part_of(p, BERTH_ROLE_CODES),
            .inputs = p->step.inputs,
            .columns = p->columns,
        },
    };
}

/* ------------------------------------------------------------------------ asking */

/* BERTH_OK, or UNSUPPORTED. What is checked has sizes that can be counted. */
static berth_status
check(const product *p, berth_error *error)
{
    const berthi_request request = berthi_product_is_4bit(p) ? berthi_product_ask_4bit(p)
                                   : p->tensor.encoding == BERTH_ENCODING_INT8
                                       ? ask_sums(p)
                                       : ask_plain(p);
    const berthi_about about = { .tensor = p->tensor.name,
                                 .tensor_length = p->tensor.name_length };

    if (p->tensor.rank != 2
        || (!berthi_product_is_4bit(p) && p->tensor.encoding != BERTH_ENCODING_INT8
            && p->tensor.encoding != BERTH_ENCODING_NATIVE))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                           "is no matrix in an encoding that is multiplied where it lies");
    return berthi_operation_check("model", &request, error);
}

/* Scratch of the product. The tensor need not be leased: whether there are codes counts alone. */
static uint64_t
count_floats(const product *p)
{
    static const uint8_t no_codes;
    berthi_request request = berthi_product_ask_4bit(p);

    if (p->tensor.is_double)
        request.arguments.multiply.absmax_codes = &no_codes;
    return berthi_multiply_scratch(&request.arguments.multiply);
}

/* The next piece: where it begins, or (without memory) nothing but its size. */
static void *
take(uint8_t *memory, uint64_t *used, uint64_t bytes)
{
    void *const at = memory != NULL ? memory + *used : NULL;

    *used += berthi_slab_round(bytes);
    return at;
}

/* Sums up what is needed, or (with memory) divides it: one walk for both. */
uint64_t
berthi_product_divide(product *p, uint8_t *memory)
{
    const uint64_t count = p->step.count;
    uint64_t used = 0;

    if (berthi_product_is_4bit(p)) {
        p->floats = (float *)(void *)memory;
        return count_floats(p) * sizeof(float);
    }
    if (p->tensor.encoding != BERTH_ENCODING_INT8)
        return 0;
    p->outliers.capacity = (uint32_t)berthi_outlier_capacity(p->columns);
    p->codes = take(memory, &used, count * p->columns);
    p->input_maximum = take(memory, &used, count * sizeof *p->input_maximum);
    p->sums = take(memory, &used, count * p->rows * sizeof *p->sums);
    p->outliers.mask = take(memory, &used,
                            berthi_outlier_words(p->columns) * sizeof *p->outliers.mask);
    p->outliers.list = take(memory, &used,
                            p->outliers.capacity * sizeof *p->outliers.list);
    p->outliers.count = take(memory, &used, sizeof *p->outliers.count);
    return used;
}

/* All bits of the mask are 0 before inputs are encoded. */
static berth_status
clear_mask(const product *p, berthi_device *device, void *stream, berth_error *error)
{
    return device->table->clear(device, p->outliers.mask,
                                berthi_outlier_words(p->columns) * sizeof *p->outliers.mask,
                                stream, error);
}

static berth_status
launch_int8(const product *p, berthi_device *device, void *stream, berth_error *error)
{
    const berthi_request requests[] = { ask_codes(p), ask_sums(p), ask_outputs(p) };
    berth_status status =
        has_outliers(p) ? clear_mask(p, device, stream, error) : BERTH_OK;

    for (uint32_t i = 0; i < 3 && status == BERTH_OK; i++)
        status = berthi_launch_on(device, &requests[i], stream, error);
    return status;
}

static berthi_request
ask(const product *p)
{
    return berthi_product_is_4bit(p) ? berthi_product_ask_4bit(p) : ask_plain(p);
}

static berth_status
launch(const product *p, berthi_device *device, void *stream, berth_error *error)
{
    const berthi_request request = ask(p);

    if (p->tensor.encoding == BERTH_ENCODING_INT8)
        return launch_int8(p, device, stream, error);
    return berthi_launch_on(device, &request, stream, error);
}

/* INT8 is several operations a product, which share its scratch: one after the other. */
berth_status
berthi_products_launch(const product *products, uint32_t count, berthi_device *device,
                       void *stream, berth_error *error)
{
    berthi_request requests[BERTH_MULTIPLY_TOGETHER];
    bool are_one_each = true;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count; i++)
        are_one_each = are_one_each && products[i].tensor.encoding != BERTH_ENCODING_INT8;
    for (uint32_t i = 0; i < count && are_one_each; i++)
        requests[i] = ask(&products[i]);
    if (are_one_each)
        return berthi_launch_together_on(device, requests, count, stream, error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = launch(&products[i], device, stream, error);
    return status;
}

/* ---------------------------------------------------------------------- interface */

berth_status
berthi_product_take(product *p, const berth_model *model, uint64_t berth)
{
    const berth_status status = berth_model_get_tensor(model, berth, &p->tensor);

    p->rows = p->tensor.shape[0];
    p->columns = p->tensor.shape[1];
    return status;
}

static berth_status
check_threshold(const product *p, berth_error *error)
{
    if (!isgreaterequal(p->step.threshold, 0.0f))
        return berthi_fail_argument(error, "step",
                                    "has a threshold that is below 0, or no number");
    if (has_outliers(p) && p->tensor.encoding != BERTH_ENCODING_INT8)
        return berthi_fail_argument(error, "step", "has a threshold, which only INT8 has");
    return BERTH_OK;
}

berth_status
berthi_scratch_check(const void *scratch, uint64_t bytes, uint64_t needed, berth_error *error)
{
    if (bytes < needed)
        return berthi_fail_argument(error, "step", "has too little scratch");
    if (needed > 0 && scratch == NULL)
        return berthi_fail_argument(error, "step", "has scratch_bytes, and no scratch");
    if (needed > 0 && (uintptr_t)scratch % BERTHI_SLAB_ALIGNMENT != 0)
        return berthi_fail_argument(error, "step", "has scratch at no multiple of 256");
    return BERTH_OK;
}

berth_status
berthi_product_check(product *p, const char *name, berth_error *error)
{
    const berth_multiply *const step = &p->step;
    berth_status status;

    if (step->inputs == NULL || step->outputs == NULL)
        return berthi_fail_argument(error, "step", "has no inputs or outputs");
    if (step->count == 0)
        return berthi_fail_argument(error, "step", "has a count of 0");
    if (!berthi_is_number(step->dtype))
        return berthi_fail_argument(error, "step",
                                    "has a dtype that is none of BF16, F16 and F32");
    if (p->tensor.parts[0].memory == NULL)
        return berthi_fail_argument(error, name,
                                    "is of a layer, or an expert, that is not leased");
    status = check_threshold(p, error);
    if (status == BERTH_OK)
        status = check(p, error);
    if (status != BERTH_OK)
        return status;
    return berthi_scratch_check(step->scratch, step->scratch_bytes,
                                berthi_product_divide(p, step->scratch), error);
}

uint64_t
berthi_product_measure(product *p, const berth_model *model, uint64_t berth)
{
    if (p->step.count == 0 || !berthi_is_number(p->step.dtype)
        || berthi_product_take(p, model, berth) != BERTH_OK || check(p, NULL) != BERTH_OK)
        return 0;
    return berthi_product_divide(p, NULL);
}

