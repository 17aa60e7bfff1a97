/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_launch.c - operations as launches of kernels; see cuda_device.h. */
#include "kernels/cuda_address.h"
#include "kernels/cuda_device.h"
#include "kernels/number.h"

static berth_status
check_values(const void *values, int32_t dtype, const float *maxima, berth_error *error)
{
    const berth_status status =
        check_address("values", values, berthi_number_bytes(dtype), error);

    return status == BERTH_OK ? check_address("maxima", maxima, sizeof *maxima, error)
                              : status;
}

static berth_status
plan_rows(const berthi_rows_arguments *a, berthi_launch *out, berth_error *error)
{
    const berth_status status = check_values(a->values, a->dtype, a->row_maximum, error);

    return status == BERTH_OK ? berthi_launch_encode_rows(a, out, error) : status;
}

/* The mean in the published order, one CTA's sums or two passes, and the codes. */
static berth_status
plan_double(const berthi_offset_arguments *a, berthi_launch out[BERTHI_CUDA_LAUNCHES],
            berth_error *error)
{
    const berthi_mean_arguments mean = { .values = a->absmax, .count = a->count,
                                         .partial = a->scratch };
    const berthi_double_arguments codes = { .absmax = a->absmax, .count = a->count,
                                            .codes = a->codes, .absmax2 = a->absmax2 };
    berth_status status = check_values(a->absmax, BERTH_F32, a->absmax2, error);

    if (status == BERTH_OK)
        status = check_address("scratch", a->scratch, sizeof *a->scratch, error);
    if (status == BERTH_OK)
        status = check_address("offset", a->offset, sizeof *a->offset, error);
    if (status == BERTH_OK && a->count == 0)
        status = berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                             "double quantization of no absmax: they have no mean");
    if (status == BERTH_OK)
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
    berth_status status = check_values(t->values, t->dtype, t->absmax, error);
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
    berth_status status = check_values(t->values, t->dtype, t->row_maximum, error);
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
    const uint64_t width = berthi_number_bytes(a->dtype);
    const berthi_product_task task = {
        .what = a, .values = values, .capability = device->capability,
        .processors = (uint32_t)device->properties.processors,
        .room_bytes = device->properties.room_bytes,
        .has_tiles = device->machine->tiles != NULL
    };
    berth_status status = check_address("absmax", a->absmax, sizeof *a->absmax, error);

    if (status == BERTH_OK)
        status = check_address("inputs", a->inputs, width, error);
    if (status == BERTH_OK)
        status = check_address("bias", a->bias, width, error);
    if (status == BERTH_OK)
        status = check_address("outputs", a->outputs, width, error);
    return status == BERTH_OK ? berthi_launch_product(&task, out, error) : status;
}

static berth_status
check_values_alone(const char *name, const void *values, int32_t dtype, berth_error *error)
{
    return check_address(name, values, berthi_number_bytes(dtype), error);
}

static berth_status
plan_update(const berthi_update_request *r, berthi_launch *out, berth_error *error)
{
    const berthi_update_arguments *const a = &r->arguments;
    const uint32_t states = berthi_update_states((berthi_update_kind)r->constants.kind);
    berth_status status = check_values_alone("parameter", a->parameter, a->dtype, error);

    if (status == BERTH_OK)
        status = check_values_alone("gradient", a->gradient, a->gradient_dtype, error);
    if (status == BERTH_OK)
        status = check_values_alone("master", a->master, BERTH_F32, error);
    if (status == BERTH_OK)
        status = check_address("count", r->not_finite, sizeof *r->not_finite, error);
    for (uint32_t k = 0; k < states && status == BERTH_OK; k++) {
        status = check_values_alone("state", a->state[k].values, BERTH_F32, error);
        if (status == BERTH_OK)
            status = check_values_alone("maxima", a->state[k].absmax, BERTH_F32, error);
    }
    return status == BERTH_OK ? berthi_launch_update(r, out, error) : status;
}

static berth_status
plan_measure(const berthi_measure_arguments *a, berthi_launch *out, berth_error *error)
{
    berth_status status = check_values_alone("gradient", a->gradient, a->dtype, error);

    if (status == BERTH_OK)
        status = check_address("sums", a->sums, sizeof(uint64_t), error);
    return status == BERTH_OK ? berthi_launch_measure(a, out, error) : status;
}

static berth_status
plan_sum(const berthi_accumulate_arguments *a, berthi_launch *out, berth_error *error)
{
    berth_status status = check_values_alone("sum", a->sum, a->sum_dtype, error);

    if (status == BERTH_OK)
        status = check_values_alone("gradient", a->gradient, a->dtype, error);
    return status == BERTH_OK ? berthi_launch_accumulate(a, out, error) : status;
}

/* Their addresses stand in the GPU's memory: whoever wrote them has seen to that. */
static berth_status
plan_experts(const berthi_cuda_device *device, const berthi_experts_arguments *a,
             const uint32_t *values, berthi_launch *out, berth_error *error)
{
    const uint64_t width = berthi_number_bytes(a->dtype);
    const berthi_experts_task task = {
        .what = a, .values = values, .capability = device->capability
    };
    berth_status status = check_address("experts", a->experts, sizeof(void *), error);

    if (status == BERTH_OK)
        status = check_address("ranges", a->ranges, sizeof *a->ranges, error);
    if (status == BERTH_OK)
        status = check_address("inputs", a->inputs, width, error);
    if (status == BERTH_OK)
        status = check_address("outputs", a->outputs, width, error);
    return status == BERTH_OK ? berthi_launch_experts(&task, out, error) : status;
}

bool
berthi_cuda_groups_experts(const berthi_cuda_device *device, const berthi_experts_arguments *a)
{
    const berthi_experts_task task = { .what = a, .capability = device->capability };

    return !berthi_launch_experts_have_rings(&task, (uint32_t)device->properties.processors,
                                             device->properties.room_bytes);
}

static berth_status
check_room(const berthi_outlier_room *room, berth_error *error)
{
    berth_status status = check_address("outliers", room->mask, sizeof *room->mask, error);

    if (status == BERTH_OK)
        status = check_address("outliers", room->list, sizeof *room->list, error);
    return status == BERTH_OK
               ? check_address("outliers", room->count, sizeof *room->count, error)
               : status;
}

static berth_status
plan_int8_input(const berthi_int8_input_task *t, berthi_launch *out, berth_error *error)
{
    berth_status status = check_values(t->inputs, t->dtype, t->input_maximum, error);

    if (status == BERTH_OK && t->threshold > 0.0f)
        status = check_room(&t->outliers, error);
    return status == BERTH_OK ? berthi_launch_int8_input(t, out, error) : status;
}

static berth_status
plan_int8_output(const berthi_int8_output_task *t, berthi_launch *out, berth_error *error)
{
    const uint64_t width = berthi_number_bytes(t->dtype);
    const struct {
        const char *name;
        const void *address;
        uint64_t unit;
    } addresses[] = { { "sums", t->sums, sizeof *t->sums },
                      { "maxima", t->input_maximum, sizeof *t->input_maximum },
                      { "maxima", t->weight_maximum, sizeof *t->weight_maximum },
                      { "bias", t->bias, sizeof *t->bias },
                      { "outputs", t->outputs, width },
                      { "inputs", t->inputs, width } };
    berth_status status = check_room(&t->outliers, error);

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses && status == BERTH_OK; i++)
        status = check_address(addresses[i].name, addresses[i].address, addresses[i].unit,
                               error);
    return status == BERTH_OK ? berthi_launch_int8_output(t, out, error) : status;
}

static berth_status
plan_plain(const berthi_multiply_plain_arguments *a, berthi_launch *out, berth_error *error)
{
    berth_status status = check_values_alone("weight", a->weight, a->weight_dtype, error);

    if (status == BERTH_OK)
        status = check_values_alone("inputs", a->inputs, a->dtype, error);
    if (status == BERTH_OK)
        status = check_values_alone("bias", a->bias, a->dtype, error);
    if (status == BERTH_OK)
        status = check_values_alone("outputs", a->outputs, a->dtype, error);
    return status == BERTH_OK ? berthi_launch_plain(a, out, error) : status;
}

static berth_status
plan_int8(const berthi_multiply_int8_arguments *a, berthi_launch *out, berth_error *error)
{
    const berth_status status = check_address("sums", a->sums, sizeof *a->sums, error);

    return status == BERTH_OK ? berthi_launch_int8_sums(a, out, error) : status;
}

berth_status
berthi_cuda_plan_launches(const berthi_cuda_device *device, const berthi_request *request,
                          berthi_launch out[BERTHI_CUDA_LAUNCHES], berth_error *error)
{
    const berthi_encode_arguments *const encode = &request->arguments.encode;
    const bool is_encode = request->operation == BERTHI_OPERATION_ENCODE_NF4
                           || request->operation == BERTHI_OPERATION_ENCODE_FP4;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < BERTHI_CUDA_LAUNCHES; i++)
        out[i].kernel = KERNEL_NONE;
    if (is_encode)
        status = check_values(encode->values, encode->dtype, encode->absmax, error);
    if (status != BERTH_OK)
        return status;
    switch (request->operation) {
    case BERTHI_OPERATION_ENCODE_NF4: return berthi_launch_encode_nf4(encode, out, error);
    case BERTHI_OPERATION_ENCODE_FP4: return berthi_launch_encode_fp4(encode, out, error);
    case BERTHI_OPERATION_ENCODE_ROWS: return plan_rows(&request->arguments.rows, out, error);
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
        return plan_plain(&request->arguments.plain, out, error);
    case BERTHI_OPERATION_MULTIPLY_INT8:
        return plan_int8(&request->arguments.int8, out, error);
    case BERTHI_OPERATION_INT8_INPUT:
        return plan_int8_input(&request->arguments.int8_input, out, error);
    case BERTHI_OPERATION_INT8_OUTPUT:
        return plan_int8_output(&request->arguments.int8_output, out, error);
    case BERTHI_OPERATION_UPDATE: return plan_update(&request->arguments.update, out, error);
    case BERTHI_OPERATION_MEASURE:
        return plan_measure(&request->arguments.measure, out, error);
    case BERTHI_OPERATION_ACCUMULATE:
        return plan_sum(&request->arguments.accumulate, out, error);
    default: return berthi_cuda_plan_step(request, out, error);
    }
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
        code = call->calls->set_device(call->device->ordinal);
    return berthi_cuda_judge(call, code);
}

berth_status
berthi_cuda_start(const berthi_cuda_call *call, const berthi_launch *launch,
                  berthi_stream *stream)
{
    const bool overlaps = berthi_launch_overlaps(call->device->capability);
    berthi_cuda_tiles *const tiles = call->device->machine->tiles;
    _Atomic bool *const may_have_room = &call->device->may_have_room[launch->kernel];
    berth_status status = BERTH_OK;

    if (launch->room_bytes > 0 && !*may_have_room) {
        status = berthi_cuda_judge(call, call->calls->allow_room(launch->kernel,
                                                                 launch->room_bytes));
        *may_have_room = status == BERTH_OK;
    }
    if (status == BERTH_OK && launch->matrices > 0)
        status = bring_context(call);
    return status == BERTH_OK
               ? berthi_cuda_judge(call, call->calls->launch(launch, tiles, overlaps, stream))
               : status;
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
