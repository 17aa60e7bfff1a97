/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_multiply.c - products: by cuBLASLt, by kernels of few or of many inputs; cuda_device.h. */
#include "kernels/base.h"
#include "kernels/cuda_device.h"
#include "kernels/gemm_lt.h"

_Static_assert(BERTHI_EXPERTS_INPUTS < BERTHI_GEMM_WIDE_LEAST
                   && BERTHI_EXPERTS_INPUTS <= BERTHI_MULTIPLY_INPUTS,
               "products of so many inputs have the bits of one, by kernels of few");

static bool
is_of_4bit(int32_t operation)
{
    return operation == BERTHI_OPERATION_MULTIPLY_NF4
           || operation == BERTHI_OPERATION_MULTIPLY_FP4;
}

bool
berthi_cuda_is_product(int32_t operation)
{
    return is_of_4bit(operation) || operation == BERTHI_OPERATION_MULTIPLY_PLAIN
           || operation == BERTHI_OPERATION_MULTIPLY_INT8;
}

/* --------------------------------------------------------------------- by cuBLASLt */

static const uint32_t *
values_of(int32_t operation)
{
    return operation == BERTHI_OPERATION_MULTIPLY_FP4 ? berthi_fp4_values : berthi_nf4_values;
}

static berth_status
ask_for_4bit(const berthi_cuda_call *call, const berthi_request *request,
             berthi_stream *stream)
{
    const berthi_multiply_arguments *const a = &request->arguments.multiply;
    const berthi_double_absmax twice = { .codes = a->absmax_codes, .absmax2 = a->absmax,
                                         .map = a->map, .offset_value = a->offset };
    const berthi_gemm_4bit task = {
        .codes = a->codes, .absmax = a->absmax,
        .double_absmax = a->absmax_codes != NULL ? &twice : NULL,
        .values = values_of(request->operation),
        .block_size = a->block_size, .dtype = a->dtype, .rows = a->rows,
        .columns = a->columns, .count = a->count, .inputs = a->inputs, .bias = a->bias,
        .outputs = a->outputs
    };

    return berthi_gemm_multiply_4bit(call, &task, stream);
}

static berth_status
ask_for_numbers(const berthi_cuda_call *call, const berthi_multiply_plain_arguments *a,
                berthi_stream *stream)
{
    const berthi_gemm_task task = { .weight = a->weight, .inputs = a->inputs,
                                    .bias = a->bias, .outputs = a->outputs,
                                    .dtype = a->dtype, .rows = a->rows,
                                    .columns = a->columns, .count = a->count,
                                    .stride = a->rows };

    return berthi_gemm_multiply(call, &task, stream);
}

static berth_status
ask_for_codes(const berthi_cuda_call *call, const berthi_multiply_int8_arguments *a,
              berthi_stream *stream)
{
    const berthi_gemm_task task = { .weight = a->weights, .inputs = a->inputs,
                                    .outputs = a->sums, .dtype = BERTH_I8,
                                    .rows = a->rows, .columns = a->columns,
                                    .count = a->count, .stride = a->rows };

    return berthi_gemm_multiply(call, &task, stream);
}

static berth_status
ask_library(const berthi_cuda_call *call, const berthi_request *request,
            berthi_stream *stream)
{
    switch (request->operation) {
    case BERTHI_OPERATION_MULTIPLY_PLAIN:
        return ask_for_numbers(call, &request->arguments.plain, stream);
    case BERTHI_OPERATION_MULTIPLY_INT8:
        return ask_for_codes(call, &request->arguments.int8, stream);
    default: return ask_for_4bit(call, request, stream);
    }
}

/* Also of what it can do at all: a weight and inputs of one dtype. */
static bool
is_for_library(const berthi_cuda_device *device, const berthi_request *request)
{
    const uint32_t capability =
        (uint32_t)(10 * device->properties.major + device->properties.minor);
    const berthi_multiply_arguments *const packed = &request->arguments.multiply;
    const berthi_multiply_plain_arguments *const plain = &request->arguments.plain;

    switch (request->operation) {
    case BERTHI_OPERATION_MULTIPLY_PLAIN:
        return plain->weight_dtype == plain->dtype
               && plain->count >= berthi_gemm_least_inputs(BERTHI_GEMM_OF_NUMBERS,
                                                           plain->dtype, capability);
    case BERTHI_OPERATION_MULTIPLY_INT8:
        return request->arguments.int8.count
               >= berthi_gemm_least_inputs(BERTHI_GEMM_OF_NUMBERS, BERTH_I8, capability);
    default:
        return packed->count
               >= berthi_gemm_least_inputs(BERTHI_GEMM_OF_4BIT, packed->dtype, capability);
    }
}

/* --------------------------------------------------- by kernels that have many inputs */

static bool
is_for_wide(const berthi_cuda_call *call, const berthi_request *request)
{
    return is_of_4bit(request->operation)
           && berthi_gemm_is_wide(call, &request->arguments.multiply);
}

static berth_status
ask_wide(const berthi_cuda_call *call, const berthi_request *request, berthi_stream *stream)
{
    return berthi_gemm_multiply_wide(call, &request->arguments.multiply,
                                     values_of(request->operation), stream);
}

/* ---------------------------------------------------------------------- by kernels */

/* The first of the requests that kernels serve one after the other; all of most products. */
static berthi_request
first_group(const berthi_request *request)
{
    berthi_request group = *request;

    if (is_of_4bit(request->operation))
        group.arguments.multiply = berthi_multiply_group(&request->arguments.multiply, 0);
    return group;
}

static berth_status
launch_groups(const berthi_cuda_call *call, const berthi_request *request,
              berthi_stream *stream)
{
    const berthi_multiply_arguments *const a = &request->arguments.multiply;
    berthi_request group = *request;
    berth_status status = BERTH_OK;

    if (!is_of_4bit(request->operation))
        return berthi_cuda_launch(call, request, stream);
    for (uint64_t i = 0; i < a->count && status == BERTH_OK; i += BERTHI_MULTIPLY_INPUTS) {
        group.arguments.multiply = berthi_multiply_group(a, (uint32_t)i);
        status = berthi_cuda_launch(call, &group, stream);
    }
    return status;
}

/* ------------------------------------------------------------------------- all ways */

typedef berth_status way(const berthi_cuda_call *call, const berthi_request *request,
                         berthi_stream *stream);

/* Those that there are for a product of many inputs, the fastest first; how many. */
static uint32_t
find_ways(const berthi_cuda_call *call, const berthi_request *request, way *out[2])
{
    uint32_t count = 0;

    if (is_for_library(call->device, request))
        out[count++] = ask_library;
    if (!is_for_wide(call, request))
        return count;
    if (count == 0 || !berthi_gemm_is_wide_first(call, &request->arguments.multiply)) {
        out[count++] = ask_wide;
        return count;
    }
    out[count++] = out[0];
    out[0] = ask_wide;
    return count;
}

/*
 * What kernels refuse, odd addresses among it, the library is not asked for either: it
 * would not see what is odd about a weight that is decoded first.
 */
berth_status
berthi_cuda_multiply(const berthi_cuda_call *call, const berthi_request *request,
                     berthi_stream *stream)
{
    const berthi_request first = first_group(request);
    berthi_launch launches[BERTHI_CUDA_LAUNCHES];
    way *ways[2];
    uint32_t count;
    berth_status status =
        berthi_cuda_plan_launches(call->device, &first, launches, call->error);

    if (status != BERTH_OK)
        return status;
    count = find_ways(call, request, ways);
    for (uint32_t i = 0; i < count; i++) {
        status = ways[i](call, request, stream);
        if (status != BERTH_EUNSUPPORTED && status != BERTH_ENOMEM)
            return status;
        berthi_error_clear(call->error);
    }
    return launch_groups(call, request, stream);
}

/* ----------------------------------------------------------------- several together */

static bool
are_for_kernels(const berthi_cuda_call *call, const berthi_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!is_of_4bit(requests[i].operation)
            || requests[i].arguments.multiply.count > BERTHI_MULTIPLY_INPUTS
            || is_for_library(call->device, &requests[i]) || is_for_wide(call, &requests[i]))
            return false;
    return count <= PRODUCT_TOGETHER;
}

/* Of products that kernels do: whether they were one launch, which is then asked for. */
static berth_status
launch_joined(const berthi_cuda_call *call, const berthi_request *requests, uint32_t count,
              berthi_stream *stream, bool *out_is_one)
{
    /* A product is the first launch of its request; where the others would be is the next one. */
    berthi_launch launches[PRODUCT_TOGETHER + BERTHI_CUDA_LAUNCHES - 1];
    berth_status status = BERTH_OK;

    *out_is_one = false;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = berthi_cuda_plan_launches(call->device, &requests[i], &launches[i],
                                           call->error);
    if (status != BERTH_OK || !berthi_launch_join_products(launches, count))
        return status;
    *out_is_one = true;
    return berthi_cuda_start(call, &launches[0], stream);
}

berth_status
berthi_cuda_multiply_together(const berthi_cuda_call *call, const berthi_request *requests,
                              uint32_t count, berthi_stream *stream)
{
    bool is_one = false;
    berth_status status = BERTH_OK;

    if (are_for_kernels(call, requests, count))
        status = launch_joined(call, requests, count, stream, &is_one);
    for (uint32_t i = 0; i < count && status == BERTH_OK && !is_one; i++)
        status = berthi_cuda_multiply(call, &requests[i], stream);
    return status;
}
