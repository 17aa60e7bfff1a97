/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - which devices exist, and what operations are on host memory. */
#include "kernels/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda_calls.h"
#include "kernels/device_words.h"
#include "kernels/float_mode.h"
#include "kernels/visits.h"

/* -------------------------------------------------------------------- operations */

uint64_t
berthi_offset_scratch(uint64_t count)
{
    return berthi_max_u64(BERTHI_DOUBLE_SCRATCH, berthi_mean_scratch(count, 0, 0))
           + count / BERTHI_DOUBLE_BLOCK * (sizeof(berthi_extremes) / sizeof(float));
}

void
berthi_encode_offset(const berthi_operations *operations,
                     const berthi_offset_arguments *arguments)
{
    const uint64_t blocks = arguments->count / BERTHI_DOUBLE_BLOCK;
    berthi_extremes *const extremes =
        (berthi_extremes *)(void *)(arguments->scratch
                                    + berthi_offset_scratch(arguments->count))
        - blocks;
    const berthi_mean_arguments mean = {
        .values = arguments->absmax,
        .count = arguments->count,
        .partial = arguments->scratch,
        .add_rows = operations->add_mean_rows,
        .extremes = operations->uses_extremes ? extremes : NULL,
    };
    const float offset = berthi_mean(&mean);

    operations->encode_double(&(berthi_double_arguments){
        .absmax = arguments->absmax,
        .count = arguments->count,
        .codes = arguments->codes,
        .absmax2 = arguments->absmax2,
        .offset = offset,
        .scratch = arguments->scratch,
        .extremes = mean.extremes,
        .extremes_count = mean.extremes != NULL ? berthi_mean_extremes(&mean) : 0,
    });
    *arguments->offset = offset;
}

bool
berthi_operation_is_known(int32_t operation)
{
    return operation >= 0 && operation < BERTHI_OPERATION_COUNT;
}

/* Of a decoder's; what else is known takes everything. */
static berth_status
check_step(const char *device, const berthi_request *request, berth_error *error)
{
    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: return berthi_take_check(&request->arguments.take, error);
    case BERTHI_OPERATION_NORM: return berthi_norm_check(&request->arguments.norm, error);
    case BERTHI_OPERATION_ROTATE: return berthi_rotate_check(&request->arguments.rotate, error);
    case BERTHI_OPERATION_ATTEND: return berthi_attend_check(&request->arguments.attend, error);
    case BERTHI_OPERATION_GATE: return berthi_gate_check(&request->arguments.gate, error);
    case BERTHI_OPERATION_ADD: return berthi_add_check(&request->arguments.add, error);
    case BERTHI_OPERATION_CHOOSE: return berthi_choose_check(&request->arguments.choose, error);
    case BERTHI_OPERATION_LARGEST:
        return berthi_largest_check(&request->arguments.largest, error);
    default: break;
    }
    if (berthi_operation_is_known(request->operation))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s: has no operation %" PRId32, device, request->operation);
}

berth_status
berthi_operation_check(const char *device, const berthi_request *request,
                       berth_error *error)
{
    switch (request->operation) {
    case BERTHI_OPERATION_DECODE_NF4:
    case BERTHI_OPERATION_DECODE_FP4:
        return berthi_decode_blocks_check(&request->arguments.decode, error);
    case BERTHI_OPERATION_DECODE_ROWS:
        return berthi_decode_rows_check(&request->arguments.decode_rows, error);
    case BERTHI_OPERATION_MULTIPLY_NF4:
    case BERTHI_OPERATION_MULTIPLY_FP4:
        return berthi_multiply_check(&request->arguments.multiply, error);
    case BERTHI_OPERATION_EXPERTS_NF4:
    case BERTHI_OPERATION_EXPERTS_FP4:
        return berthi_experts_check(&request->arguments.experts, error);
    case BERTHI_OPERATION_MULTIPLY_PLAIN:
        return berthi_multiply_plain_check(&request->arguments.plain, error);
    case BERTHI_OPERATION_INT8_INPUT:
        return berthi_int8_input_check(&request->arguments.int8_input, error);
    case BERTHI_OPERATION_MULTIPLY_INT8:
        return berthi_multiply_int8_check(&request->arguments.int8, error);
    case BERTHI_OPERATION_INT8_OUTPUT:
        return berthi_int8_output_check(&request->arguments.int8_output, error);
    case BERTHI_OPERATION_UPDATE:
        return berthi_update_check(&request->arguments.update.arguments,
                                   &request->arguments.update.constants, error);
    case BERTHI_OPERATION_MEASURE:
        return berthi_measure_check(&request->arguments.measure, error);
    case BERTHI_OPERATION_ACCUMULATE:
        return berthi_accumulate_check(&request->arguments.accumulate, error);
    default: return check_step(device, request, error);
    }
}

static void
run_update(const berthi_operations *operations, const berthi_update_request *request)
{
    *request->not_finite += operations->update(&request->arguments, &request->constants);
}

static void
run_step(const berthi_request *request)
{
    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: berthi_take_run(&request->arguments.take); break;
    case BERTHI_OPERATION_NORM: berthi_norm_run(&request->arguments.norm); break;
    case BERTHI_OPERATION_ROTATE: berthi_rotate_run(&request->arguments.rotate); break;
    case BERTHI_OPERATION_ATTEND: berthi_attend_run(&request->arguments.attend); break;
    case BERTHI_OPERATION_GATE: berthi_gate_run(&request->arguments.gate); break;
    case BERTHI_OPERATION_ADD: berthi_add_run(&request->arguments.add); break;
    case BERTHI_OPERATION_CHOOSE: berthi_choose_run(&request->arguments.choose); break;
    case BERTHI_OPERATION_LARGEST: berthi_largest_run(&request->arguments.largest); break;
    default: request->arguments.call.call(request->arguments.call.user); break;
    }
}

static void
run_operation(const berthi_operations *operations, const berthi_request *request)
{
    switch (request->operation) {
    case BERTHI_OPERATION_ENCODE_NF4:
        operations->encode_nf4(&request->arguments.encode);
        break;
    case BERTHI_OPERATION_ENCODE_FP4:
        operations->encode_fp4(&request->arguments.encode);
        break;
    case BERTHI_OPERATION_ENCODE_ROWS:
        operations->encode_rows(&request->arguments.rows);
        break;
    case BERTHI_OPERATION_ENCODE_DOUBLE:
        berthi_encode_offset(operations, &request->arguments.offset);
        break;
    case BERTHI_OPERATION_DECODE_NF4:
        berthi_decode_blocks_run(&request->arguments.decode, operations,
                                 operations->decode_nf4);
        break;
    case BERTHI_OPERATION_DECODE_FP4:
        berthi_decode_blocks_run(&request->arguments.decode, operations,
                                 operations->decode_fp4);
        break;
    case BERTHI_OPERATION_DECODE_ROWS:
        berthi_decode_rows_run(&request->arguments.decode_rows, operations);
        break;
    case BERTHI_OPERATION_MULTIPLY_NF4:
        berthi_multiply_run(&request->arguments.multiply, operations,
                            operations->multiply_nf4);
        break;
    case BERTHI_OPERATION_MULTIPLY_FP4:
        berthi_multiply_run(&request->arguments.multiply, operations,
                            operations->multiply_fp4);
        break;
    case BERTHI_OPERATION_EXPERTS_NF4:
        berthi_experts_run(&request->arguments.experts, operations,
                           operations->multiply_nf4);
        break;
    case BERTHI_OPERATION_EXPERTS_FP4:
        berthi_experts_run(&request->arguments.experts, operations,
                           operations->multiply_fp4);
        break;
    case BERTHI_OPERATION_MULTIPLY_PLAIN:
        berthi_multiply_plain_run(&request->arguments.plain);
        break;
    case BERTHI_OPERATION_INT8_INPUT:
        berthi_int8_input_run(operations, &request->arguments.int8_input);
        break;
    case BERTHI_OPERATION_MULTIPLY_INT8:
        berthi_multiply_int8_run(&request->arguments.int8, operations->dot_int8);
        break;
    case BERTHI_OPERATION_INT8_OUTPUT:
        berthi_int8_output_run(&request->arguments.int8_output);
        break;
    case BERTHI_OPERATION_UPDATE:
        run_update(operations, &request->arguments.update);
        break;
    case BERTHI_OPERATION_MEASURE: operations->measure(&request->arguments.measure); break;
    case BERTHI_OPERATION_ACCUMULATE:
        operations->accumulate(&request->arguments.accumulate);
        break;
    default: run_step(request); break;
    }
}

void
berthi_operation_run(const berthi_operations *operations, const berthi_request *request)
{
    fenv_t mode;

    berthi_float_mode_begin(&mode);
    run_operation(operations, request);
    berthi_float_mode_end(&mode);
}

/* -------------------------------------------------------------------- asking a device */

berth_status
berthi_device_write(berthi_device *device, void *to, const void *from, uint64_t bytes,
                    berthi_stream *stream, berth_error *error)
{
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .to = to, .from = from,
                               .bytes = bytes };

    return device->table->write != NULL
               ? device->table->write(device, to, from, bytes, stream, error)
               : device->table->copy(device, &copy, stream, error);
}

bool
berthi_device_groups_experts(const berthi_device *device, const berthi_request *request)
{
    return device->table->has_operation(device, request->operation)
           && (device->table->groups_experts == NULL
               || device->table->groups_experts(device, request));
}

/* ------------------------------------------------------------------------ memory */

berthi_book *
berthi_device_book(berthi_device *device)
{
    berthi_device_properties properties;

    device->table->describe(device, &properties);
    return berthi_books_find(&device->context->ledger.books, properties.name);
}

void
berthi_device_note_unpinned(berth_context *context, const berth_error *error)
{
    if (!atomic_exchange(&context->is_pin_refused, true))
        berthi_log(context, BERTH_LOG_WARNING,
                   "host memory is not pinned, copies to devices are slower: %s",
                   error->message);
}

/* ----------------------------------------------------------------------- devices */

struct berth_devices {
    berth_context *context;
    berthi_visits visits; /* of other contexts, which have things on them */
    uint64_t opened_ns; /* by the devices' clock */
    berthi_sim *sim;    /* NULL, and `cuda`, too: processors */
    berthi_cuda *cuda;
    uint32_t count;
    berthi_device *processors[BERTHI_DEVICES_LIMIT]; /* NULL beyond `count` */
};

static berth_status
open_processors(berthi_devices *devices, uint32_t count, berth_error *error)
{
    while (devices->count < count) {
        const uint32_t number = devices->count;
        const berth_status status = berthi_device_cpu_open(
            devices->context, &devices->processors[number], error);

        if (status != BERTH_OK)
            return status;
        devices->processors[number]->number = number;
        devices->count++;
    }
    return BERTH_OK;
}

static bool
has_kind(const char *words, const char *kind)
{
    const size_t length = strlen(kind);

    return strncmp(words, kind, length) == 0
           && (words[length] == '\0' || strchr(":*;", words[length]) != NULL);
}

static berth_status
open_simulated(berthi_devices *devices, const char *words, berth_error *error)
{
    const berth_status status =
        berthi_sim_open(devices->context, words, &devices->sim, error);

    if (status == BERTH_OK)
        devices->count = berthi_sim_count(devices->sim);
    return status;
}

const berthi_cuda_calls *
berthi_devices_cuda(void)
{
#ifdef BERTH_HAVE_CUDA
    return berthi_cuda_runtime();
#else
    return NULL;
#endif
}

/* Behind `used` characters; returns how many there are then, or would be. */
static size_t
append_architectures(const int32_t *architectures, uint32_t count, const char *before,
                     char *out, size_t capacity, size_t used)
{
    for (uint32_t i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%" PRId32,
                                 i > 0 ? " " : before, architectures[i]);
    return used;
}

void
berthi_devices_architectures(const berthi_cuda_calls *calls, char *out, size_t capacity)
{
    size_t used;

    out[0] = '\0';
    if (calls == NULL)
        return;
    used = append_architectures(calls->architectures, calls->architecture_count, "", out,
                                capacity, 0);
    (void)append_architectures(calls->ptx, calls->ptx_count, used > 0 ? ", PTX " : "PTX ", out,
                               capacity, used);
}

static berth_status
open_cuda(berthi_devices *devices, const berthi_cuda_calls *calls, const char *words,
          berth_error *error)
{
    berth_status status;

    if (calls == NULL)
        return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                           "this build has no CUDA devices");
    status = berthi_cuda_open(devices->context, calls, words, &devices->cuda, error);
    if (status == BERTH_OK)
        devices->count = berthi_cuda_count(devices->cuda);
    return status;
}

static berth_status
open_words(berthi_devices *devices, const berthi_cuda_calls *calls, const char *words,
           berth_error *error)
{
    uint32_t count;

    if (has_kind(words, "cuda") || strncmp(words, "GPU-", strlen("GPU-")) == 0
        || strncmp(words, "MIG-", strlen("MIG-")) == 0)
        return open_cuda(devices, calls, words, error);
    if (has_kind(words, "sim"))
        return open_simulated(devices, words, error);
    if (!has_kind(words, "cpu"))
        return berthi_words_refuse(error, words, strlen(words),
                                   "is none of cpu, sim:... and cuda");
    if (!berthi_words_can_count(words + strlen("cpu"), strlen(words) - strlen("cpu"),
                                &count))
        return berthi_words_refuse(error, words, strlen(words),
                                   "is neither cpu nor cpu*2, cpu*3, ... cpu*64");
    return open_processors(devices, count, error);
}

static uint64_t
now_ns(const berthi_devices *devices)
{
    berthi_device *const first = berthi_devices_at(devices, 0);

    return first->table->now_ns(first);
}

berth_status
berthi_devices_open_cuda(berth_context *context, const berthi_cuda_calls *calls,
                         const char *words, berthi_devices **out, berth_error *error)
{
    berthi_devices *const devices =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *devices);
    berth_status status;

    *out = NULL;
    if (devices == NULL)
        return berthi_fail_memory(error, "opening devices");
    devices->context = context;
    berthi_visits_init(&devices->visits, context);
    status = open_words(devices, calls, words, error);
    if (status != BERTH_OK) {
        berthi_devices_close(devices);
        return status;
    }
    devices->opened_ns = now_ns(devices);
    *out = devices;
    return BERTH_OK;
}

berth_status
berthi_devices_open(berth_context *context, const char *words, berthi_devices **out,
                    berth_error *error)
{
    return berthi_devices_open_cuda(context, berthi_devices_cuda(), words, out, error);
}

berth_status
berthi_devices_visit(berthi_devices *devices, berth_context *context, berth_error *error)
{
    return devices != NULL ? berthi_visits_add(&devices->visits, context, error) : BERTH_OK;
}

void
berthi_devices_stop(berthi_devices *devices)
{
    for (uint32_t i = 0; devices != NULL && i < devices->count; i++) {
        berthi_device *const device = berthi_devices_at(devices, i);

        if (device->table->stop != NULL)
            device->table->stop(device);
    }
}

void
berthi_devices_close(berthi_devices *devices)
{
    if (devices == NULL)
        return;
    berthi_devices_stop(devices);
    berthi_context_sweep_all(devices->context);
    berthi_visits_fini(&devices->visits);
    for (uint32_t i = 0; i < BERTHI_DEVICES_LIMIT; i++)
        berthi_device_cpu_close(devices->processors[i]);
    berthi_sim_close(devices->sim);
    berthi_cuda_close(devices->cuda);
    berthi_memory_free(devices->context, BERTHI_PURPOSE_OBJECT, devices,
                       sizeof *devices);
}

uint32_t
berthi_devices_count(const berthi_devices *devices)
{
    return devices->count;
}

berthi_device *
berthi_devices_at(const berthi_devices *devices, uint32_t number)
{
    if (devices->cuda != NULL)
        return berthi_cuda_at(devices->cuda, number);
    return devices->sim != NULL ? berthi_sim_at(devices->sim, number)
                                : devices->processors[number];
}

uint64_t
berthi_devices_elapsed_ns(const berthi_devices *devices)
{
    return now_ns(devices) - devices->opened_ns;
}
