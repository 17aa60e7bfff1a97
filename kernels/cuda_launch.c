/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_launch.c - operations as launches of kernels; see cuda_device.h. */
#include <inttypes.h>

#include "kernels/cuda_device.h"
#include "kernels/operands.h"

/* The mean in the published order, one CTA's sums or two passes, and the codes. */
static berth_status
plan_double(const berthi_offset_arguments *a, berthi_launch out[BERTHI_CUDA_LAUNCHES],
            berth_error *error)
{
    const berthi_mean_arguments mean = { .values = a->absmax, .count = a->count,
                                         .partial = a->scratch };
    const berthi_double_arguments codes = { .absmax = a->absmax, .count = a->count,
                                            .codes = a->codes, .absmax2 = a->absmax2 };
    berth_status status;

    if (a->count == 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "double quantization of no absmax: they have no mean");
    status = berthi_launch_mean(&mean, a->offset, out, error);
    if (status == BERTH_OK)
        status = berthi_launch_encode_double(&codes, a->offset, &out[2], error);
    if (status == BERTH_OK)
        berthi_launch_join_mean(&out[1], &out[2]);
    return status;
}

/* A launch for each part. */
static berth_status
plan_decode(const berthi_decode_blocks_task *t, const uint32_t *values,
            berthi_launch out[BERTHI_CUDA_LAUNCHES], berth_error *error)
{
    berth_status status = BERTH_OK;
    uint64_t done = 0;

    for (uint32_t i = 0; done < t->count && status == BERTH_OK; i++) {
        const berthi_decode_blocks_task part = berthi_decode_blocks_part(t, done);
        const berthi_decode_arguments arguments = {
            .codes = part.codes, .absmax = part.absmax, .count = part.count,
            .block_size = part.block_size, .dtype = part.dtype, .values = part.values
        };
        const berthi_double_absmax absmax = { .codes = part.absmax_codes,
                                              .absmax2 = part.absmax, .map = part.map,
                                              .offset_value = part.offset };

        status = berthi_launch_decode_4bit(&arguments, values,
                                           part.absmax_codes != NULL ? &absmax : NULL, &out[i],
                                           error);
        done += part.count;
    }
    return status;
}

static berth_status
plan_decode_rows(const berthi_decode_rows_task *t, berthi_launch out[BERTHI_CUDA_LAUNCHES],
                 berth_error *error)
{
    berth_status status = BERTH_OK;
    uint64_t done = 0;

    for (uint32_t i = 0; done < t->count && status == BERTH_OK; i++) {
        const berthi_rows_decode_arguments part = berthi_decode_rows_part(t, done);

        status = berthi_launch_decode_rows(&part, &out[i], error);
        done += part.rows * part.columns;
    }
    return status;
}

_Static_assert(BERTHI_DECODE_PARTS <= BERTHI_CUDA_LAUNCHES, "each part is a launch");

/* By tensor cores where the kernels that run here have them. */
static berth_status
plan_product(const berthi_cuda_device *device, const berthi_multiply_arguments *a,
             const uint32_t *values, berthi_launch *out, berth_error *error)
{
    const berthi_product_task task = {
        .what = a, .values = values, .capability = device->capability,
        .processors = (uint32_t)device->properties.processors,
        .room_bytes = device->properties.room_bytes,
        .has_tiles = device->machine->tiles != NULL
    };

    return berthi_launch_product(&task, out, error);
}

/* Their addresses stand in the GPU's memory: whoever wrote them has seen to that. */
static berth_status
plan_experts(const berthi_cuda_device *device, const berthi_experts_arguments *a,
             const uint32_t *values, berthi_launch *out, berth_error *error)
{
    const berthi_experts_task task = {
        .what = a, .values = values, .capability = device->capability
    };

    return berthi_launch_experts(&task, out, error);
}

bool
berthi_cuda_groups_experts(const berthi_cuda_device *device, const berthi_experts_arguments *a)
{
    const berthi_experts_task task = { .what = a, .capability = device->capability };

    return !berthi_launch_experts_have_rings(&task, (uint32_t)device->properties.processors,
                                             device->properties.room_bytes);
}

/* Of a decoder, one launch. */
static berth_status
plan_step(const berthi_request *request, berthi_launch *out, berth_error *error)
{
    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: return berthi_launch_take(&request->arguments.take, out, error);
    case BERTHI_OPERATION_NORM: return berthi_launch_norm(&request->arguments.norm, out, error);
    case BERTHI_OPERATION_ROTATE:
        return berthi_launch_rotate(&request->arguments.rotate, out, error);
    case BERTHI_OPERATION_ATTEND:
        return berthi_launch_attend(&request->arguments.attend, out, error);
    case BERTHI_OPERATION_GATE: return berthi_launch_gate(&request->arguments.gate, out, error);
    case BERTHI_OPERATION_ADD: return berthi_launch_add(&request->arguments.add, out, error);
    case BERTHI_OPERATION_CHOOSE:
        return berthi_launch_choose(&request->arguments.choose, out, error);
    case BERTHI_OPERATION_LARGEST:
        return berthi_launch_largest(&request->arguments.largest, out, error);
    default:
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no kernels are operation %" PRId32, request->operation);
    }
}

static berth_status
plan(const berthi_cuda_device *device, const berthi_request *request,
     berthi_launch out[BERTHI_CUDA_LAUNCHES], berth_error *error)
{
    switch (request->operation) {
    case BERTHI_OPERATION_ENCODE_NF4:
        return berthi_launch_encode_nf4(&request->arguments.encode, out, error);
    case BERTHI_OPERATION_ENCODE_FP4:
        return berthi_launch_encode_fp4(&request->arguments.encode, out, error);
    case BERTHI_OPERATION_ENCODE_ROWS:
        return berthi_launch_encode_rows(&request->arguments.rows, out, error);
    case BERTHI_OPERATION_ENCODE_DOUBLE:
        return plan_double(&request->arguments.offset, out, error);
    case BERTHI_OPERATION_DECODE_NF4:
        return plan_decode(&request->arguments.decode, berthi_nf4_values, out, error);
    case BERTHI_OPERATION_DECODE_FP4:
        return plan_decode(&request->arguments.decode, berthi_fp4_values, out, error);
    case BERTHI_OPERATION_DECODE_ROWS:
        return plan_decode_rows(&request->arguments.decode_rows, out, error);
    case BERTHI_OPERATION_MULTIPLY_NF4:
        return plan_product(device, &request->arguments.multiply, berthi_nf4_values, out,
                            error);
    case BERTHI_OPERATION_MULTIPLY_FP4:
        return plan_product(device, &request->arguments.multiply, berthi_fp4_values, out,
                            error);
    case BERTHI_OPERATION_EXPERTS_NF4:
        return plan_experts(device, &request->arguments.experts, berthi_nf4_values, out,
                            error);
    case BERTHI_OPERATION_EXPERTS_FP4:
        return plan_experts(device, &request->arguments.experts, berthi_fp4_values, out,
                            error);
    case BERTHI_OPERATION_MULTIPLY_PLAIN:
        return berthi_launch_plain(&request->arguments.plain, out, error);
    case BERTHI_OPERATION_MULTIPLY_INT8:
        return berthi_launch_int8_sums(&request->arguments.int8, out, error);
    case BERTHI_OPERATION_INT8_INPUT:
        return berthi_launch_int8_input(&request->arguments.int8_input, out, error);
    case BERTHI_OPERATION_INT8_OUTPUT:
        return berthi_launch_int8_output(&request->arguments.int8_output, out, error);
    case BERTHI_OPERATION_UPDATE:
        return berthi_launch_update(&request->arguments.update, out, error);
    case BERTHI_OPERATION_MEASURE:
        return berthi_launch_measure(&request->arguments.measure, out, error);
    case BERTHI_OPERATION_ACCUMULATE:
        return berthi_launch_accumulate(&request->arguments.accumulate, out, error);
    default: return plan_step(request, out, error);
    }
}

berth_status
berthi_cuda_plan_launches(const berthi_cuda_device *device, const berthi_request *request,
                          berthi_launch out[BERTHI_CUDA_LAUNCHES], berth_error *error)
{
    berthi_operands operands;
    berth_status status;

    for (uint32_t i = 0; i < BERTHI_CUDA_LAUNCHES; i++)
        out[i].kernel = KERNEL_NONE;
    status = plan(device, request, out, error);
    if (status == BERTH_OK && !berthi_operands_can_list(request, &operands))
        status = berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "sizes that no memory has");
    return status == BERTH_OK ? berthi_operands_check_addresses(&operands, error) : status;
}

/*
 * Where a thread has no context the runtime begins one; the driver, which describes matrices, does
 * not. It stays, as the runtime's does.
 */
static berth_status
bring_context(const berthi_cuda_call *call)
{
    const berthi_cuda *const machine = call->device->machine;
    void *context;
    int code;

    if (!machine->has_contexts)
        return BERTH_OK;
    code = machine->contexts.current(&context);
    if (code == BERTHI_CUDA_OK && context == NULL)
        code = call->calls->set_device(call->device->base.ordinal);
    return berthi_cuda_judge(call, code);
}

berth_status
berthi_cuda_start(const berthi_cuda_call *call, const berthi_launch *launch,
                  berthi_stream *stream)
{
    const berthi_cuda *const machine = call->device->machine;
    const bool overlaps =
        machine->may_overlap && berthi_launch_overlaps(call->device->capability);
    _Atomic bool *const may_have_room = &call->device->may_have_room[launch->kernel];
    berth_status status = BERTH_OK;

    if (launch->room_bytes > 0 && !*may_have_room) {
        status = berthi_cuda_judge(call, call->calls->allow_room(launch->kernel,
                                                                 launch->room_bytes));
        *may_have_room = status == BERTH_OK;
    }
    if (status == BERTH_OK && launch->matrices > 0)
        status = bring_context(call);
    if (status != BERTH_OK)
        return status;
    return berthi_cuda_judge(call,
                             call->calls->launch(launch, machine->tiles, overlaps, stream));
}

berth_status
berthi_cuda_launch(const berthi_cuda_call *call, const berthi_request *request,
                   berthi_stream *stream)
{
    berthi_launch launches[BERTHI_CUDA_LAUNCHES];
    berth_status status =
        berthi_cuda_plan_launches(call->device, request, launches, call->error);

    for (uint32_t i = 0; i < BERTHI_CUDA_LAUNCHES && status == BERTH_OK; i++)
        if (launches[i].kernel != KERNEL_NONE)
            status = berthi_cuda_start(call, &launches[i], stream);
    return status;
}
