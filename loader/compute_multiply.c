/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_multiply.c - products with a tensor of a model where it lies.
 *
 *   plain, 4-bit   one operation
 *   INT8           inputs ─▶ codes, row maxima, outliers ─▶ sums ─▶ outputs
 */
#include <string.h>

#include "kernels/number.h"
#include "kernels/tables.h"
#include "loader/compute.h"
#include "loader/model.h"
#include "quant/format.h"

/* One call, or the question what it needs. */
typedef struct product {
    berth_model_tensor tensor; /* as it lies now */
    berth_multiply step;
    uint64_t rows;
    uint64_t columns;
    /* In the scratch: */
    float *floats;        /* 4-bit */
    int8_t *codes;        /* INT8: of the inputs, as what follows */
    float *input_maximum;
    int32_t *sums;
    berthi_outlier_room outliers;
} product;

static bool
is_4bit(const product *p)
{
    return berthi_format_is_4bit(p->tensor.encoding);
}

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

static berthi_request
ask_4bit(const product *p)
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
    const berthi_request request = is_4bit(p) ? ask_4bit(p)
                                   : p->tensor.encoding == BERTH_ENCODING_INT8
                                       ? ask_sums(p)
                                       : ask_plain(p);
    const berthi_about about = { .tensor = p->tensor.name,
                                 .tensor_length = p->tensor.name_length };

    if (p->tensor.rank != 2
        || (!is_4bit(p) && p->tensor.encoding != BERTH_ENCODING_INT8
            && p->tensor.encoding != BERTH_ENCODING_NATIVE))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                           "is no matrix in an encoding that is multiplied where it lies");
    return berthi_operation_check("model", &request, error);
}

/* Of a tensor that is not leased, too: only that there are such codes is looked at. */
static uint64_t
count_floats(const product *p)
{
    static const uint8_t no_codes;
    berthi_request request = ask_4bit(p);

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

/* Sums up what is needed, or (with memory) divides it: one walk for both. Checked. */
static uint64_t
divide(product *p, uint8_t *memory)
{
    const uint64_t count = p->step.count;
    uint64_t used = 0;

    if (is_4bit(p)) {
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
    return is_4bit(p) ? ask_4bit(p) : ask_plain(p);
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
static berth_status
launch_all(const product *products, uint32_t count, berthi_device *device, void *stream,
           berth_error *error)
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

static bool
has_taken(product *p, const berth_model *model, uint64_t berth)
{
    if (berth_model_get_tensor(model, berth, &p->tensor) != BERTH_OK)
        return false;
    p->rows = p->tensor.shape[0];
    p->columns = p->tensor.shape[1];
    return true;
}

static berth_status
check_threshold(const product *p, berth_error *error)
{
    if (!(p->step.threshold >= 0.0f))
        return berthi_fail_argument(error, "step",
                                    "has a threshold that is below 0, or no number");
    if (has_outliers(p) && p->tensor.encoding != BERTH_ENCODING_INT8)
        return berthi_fail_argument(error, "step", "has a threshold, which only INT8 has");
    return BERTH_OK;
}

static berth_status
check_arguments(product *p, berth_error *error)
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
        return berthi_fail_argument(error, "berth",
                                    "is of a layer, or an expert, that is not leased");
    status = check_threshold(p, error);
    if (status == BERTH_OK)
        status = check(p, error);
    if (status != BERTH_OK)
        return status;
    if (step->scratch_bytes < divide(p, step->scratch))
        return berthi_fail_argument(error, "step", "has too little scratch");
    return BERTH_OK;
}

/* Where they lie and what they need: all of it is known before the first is asked for. */
static berth_status
take_all(const berth_model *model, const uint64_t *berths, product *products, uint32_t count,
         berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        if (!has_taken(&products[i], model, berths[i]))
            return berthi_fail_argument(error, "berth", "is not that of a tensor");
        status = check_arguments(&products[i], error);
        if (status == BERTH_OK && products[i].tensor.device != products[0].tensor.device)
            return berthi_fail_argument(error, "berths", "are of several devices");
    }
    return status;
}

static berth_status
multiply(berth_model *model, const uint64_t *berths, product *products, uint32_t count,
         void *stream, berth_error *error)
{
    const berth_status status = take_all(model, berths, products, count, error);

    if (status != BERTH_OK)
        return status;
    return launch_all(products, count, berthi_device_of(model, &products[0].tensor), stream,
                      error);
}

berth_status
berth_model_multiply_together(berth_model *model, const uint64_t *berths,
                              const berth_multiply *steps, uint32_t count, void *stream,
                              berth_error *error)
{
    product products[BERTH_MULTIPLY_TOGETHER];
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
    product p;

    memset(&p, 0, sizeof p);
    p.step.dtype = dtype;
    p.step.count = count;
    if (model == NULL || count == 0 || !berthi_is_number(dtype)
        || !has_taken(&p, model, berth) || check(&p, NULL) != BERTH_OK)
        return 0;
    return divide(&p, NULL);
}
