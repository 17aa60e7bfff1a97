/* SPDX-License-Identifier: Apache-2.0 */
/* sim_work.c - what work touches, and how long it takes; see sim.h. */
#include <string.h>

#include "kernels/base.h"
#include "kernels/kernel_arguments.h"
#include "kernels/number.h"
#include "kernels/sim_regions.h"

#define NS_OF_SECOND 1e9

/* ---------------------------------------------------------------------- regions */

static bool
can_list_blocks(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_encode_arguments *const a = &request->arguments.encode;
    const uint64_t blocks = a->block_size > 0
                                ? berthi_divide_up(a->count, a->block_size)
                                : 0;
    uint64_t bytes;

    if (a->block_size == 0
        || !berthi_can_mul(a->count, berthi_number_bytes(a->dtype), &bytes))
        return false;
    add_read(list, request, SLOT(encode.values), bytes);
    add_written(list, request, SLOT(encode.codes), a->count / 2 + a->count % 2);
    add_written(list, request, SLOT(encode.absmax), blocks * sizeof *a->absmax);
    return true;
}

static bool
can_list_rows(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_rows_arguments *const a = &request->arguments.rows;
    uint64_t count;
    uint64_t bytes;
    uint64_t maxima;

    if (!berthi_can_mul(a->rows, a->columns, &count)
        || !berthi_can_mul(count, berthi_number_bytes(a->dtype), &bytes)
        || !berthi_can_mul(a->rows, sizeof *a->row_maximum, &maxima))
        return false;
    add_read(list, request, SLOT(rows.values), bytes);
    add_written(list, request, SLOT(rows.codes), count);
    add_written(list, request, SLOT(rows.row_maximum), maxima);
    return true;
}

static bool
can_list_offset(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_offset_arguments *const a = &request->arguments.offset;
    const uint64_t blocks = berthi_divide_up(a->count, BERTHI_DOUBLE_BLOCK);
    uint64_t bytes;

    if (!berthi_can_mul(a->count, sizeof *a->absmax, &bytes))
        return false;
    add_read(list, request, SLOT(offset.absmax), bytes);
    add_written(list, request, SLOT(offset.codes), a->count);
    add_written(list, request, SLOT(offset.absmax2), blocks * sizeof *a->absmax2);
    add_written(list, request, SLOT(offset.offset), sizeof *a->offset);
    add_both(list, request, SLOT(offset.scratch),
             berthi_offset_scratch(a->count) * sizeof *a->scratch);
    return true;
}

/* Checked, and so what follows: no product of these sizes overflows. */
static bool
can_list_decode(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_decode_blocks_task *const t = &request->arguments.decode;
    const uint64_t blocks = berthi_decode_blocks_of(t);
    const bool is_double = t->absmax_codes != NULL;

    add_read(list, request, SLOT(decode.codes), t->count / 2 + t->count % 2);
    add_read(list, request, SLOT(decode.absmax),
             (is_double ? berthi_decode_absmax_blocks_of(t) : blocks) * sizeof *t->absmax);
    add_read(list, request, SLOT(decode.absmax_codes), is_double ? blocks : 0);
    add_written(list, request, SLOT(decode.values), t->count * berthi_number_bytes(t->dtype));
    return true;
}

static bool
can_list_decode_rows(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_decode_rows_task *const t = &request->arguments.decode_rows;

    add_read(list, request, SLOT(decode_rows.codes), t->count);
    add_read(list, request, SLOT(decode_rows.row_maximum),
             berthi_decode_rows_of(t) * sizeof *t->row_maximum);
    add_written(list, request, SLOT(decode_rows.values),
                t->count * berthi_number_bytes(t->dtype));
    return true;
}

static bool
can_list_product(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_multiply_arguments *const a = &request->arguments.multiply;
    const uint64_t weights = a->rows * a->columns;
    const uint64_t blocks = berthi_divide_up(weights, a->block_size);
    const uint64_t second = berthi_divide_up(blocks, BERTHI_DOUBLE_BLOCK);
    const bool is_double = a->absmax_codes != NULL;
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, request, SLOT(multiply.codes), weights / 2 + weights % 2);
    add_read(list, request, SLOT(multiply.absmax),
             (is_double ? second : blocks) * sizeof *a->absmax);
    add_read(list, request, SLOT(multiply.absmax_codes), is_double ? blocks : 0);
    add_read(list, request, SLOT(multiply.inputs), a->count * a->columns * width);
    add_read(list, request, SLOT(multiply.bias), a->bias != NULL ? a->rows * width : 0);
    add_written(list, request, SLOT(multiply.outputs), a->count * a->rows * width);
    add_both(list, request, SLOT(multiply.scratch),
             berthi_multiply_scratch(a) * sizeof *a->scratch);
    return true;
}

static bool
can_list_plain(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_multiply_plain_arguments *const a = &request->arguments.plain;
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, request, SLOT(plain.weight),
             a->rows * a->columns * berthi_number_bytes(a->weight_dtype));
    add_read(list, request, SLOT(plain.inputs), a->count * a->columns * width);
    add_read(list, request, SLOT(plain.bias), a->bias != NULL ? a->rows * width : 0);
    add_written(list, request, SLOT(plain.outputs), a->count * a->rows * width);
    return true;
}

static bool
can_list_int8(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_multiply_int8_arguments *const a = &request->arguments.int8;

    add_read(list, request, SLOT(int8.weights), a->rows * a->columns);
    add_read(list, request, SLOT(int8.inputs), a->count * a->columns);
    add_written(list, request, SLOT(int8.sums), a->count * a->rows * sizeof *a->sums);
    return true;
}

/* `slot` is that of the state. */
static bool
can_add_state(const berthi_request *request, const berthi_update_state *state, size_t slot,
              uint64_t count, berthi_sim_regions *list)
{
    uint64_t bytes;

    if (!berthi_can_mul(count, sizeof *state->values, &bytes))
        return false;
    if (state->values != NULL) {
        add_both(list, request, slot + offsetof(berthi_update_state, values), bytes);
        return true;
    }
    add_both(list, request, slot + offsetof(berthi_update_state, codes), count);
    add_both(list, request, slot + offsetof(berthi_update_state, absmax),
             berthi_update_absmax_bytes(count));
    return true;
}

/* Checked: its kind has states, and they are there. */
static bool
can_list_update(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_update_request *const u = &request->arguments.update;
    const berthi_update_arguments *const a = &u->arguments;
    uint64_t bytes;
    uint64_t gradient_bytes;

    if (!berthi_can_mul(a->count, berthi_number_bytes(a->dtype), &bytes)
        || !berthi_can_mul(a->count, berthi_number_bytes(a->gradient_dtype), &gradient_bytes))
        return false;
    add_both(list, request, SLOT(update.arguments.parameter), bytes);
    add_read(list, request, SLOT(update.arguments.gradient), gradient_bytes);
    if (a->master != NULL) {
        if (!berthi_can_mul(a->count, sizeof *a->master, &bytes))
            return false;
        add_both(list, request, SLOT(update.arguments.master), bytes);
    }
    for (uint32_t k = 0; k < berthi_update_states((berthi_update_kind)u->constants.kind); k++)
        if (!can_add_state(request, &a->state[k],
                           SLOT(update.arguments.state) + k * sizeof a->state[k], a->count,
                           list))
            return false;
    add_both(list, request, SLOT(update.not_finite), sizeof *u->not_finite);
    return true;
}

static bool
can_list_measure(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_measure_arguments *const a = &request->arguments.measure;
    const uint64_t blocks = berthi_divide_up(a->count, BERTHI_GRADIENT_BLOCK);
    uint64_t bytes;

    if (!berthi_can_mul(a->count, berthi_number_bytes(a->dtype), &bytes))
        return false;
    add_read(list, request, SLOT(measure.gradient), bytes);
    add_written(list, request, SLOT(measure.sums), blocks * sizeof *a->sums);
    return true;
}

static bool
can_list_sum(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_accumulate_arguments *const a = &request->arguments.accumulate;
    uint64_t bytes;
    uint64_t gradient_bytes;

    if (!berthi_can_mul(a->count, berthi_number_bytes(a->sum_dtype), &bytes)
        || !berthi_can_mul(a->count, berthi_number_bytes(a->dtype), &gradient_bytes))
        return false;
    add_both(list, request, SLOT(accumulate.sum), bytes);
    add_read(list, request, SLOT(accumulate.gradient), gradient_bytes);
    return true;
}

/* What experts' weights lie in stands in this memory: it is no argument. */
static bool
can_list_experts(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_experts_arguments *const a = &request->arguments.experts;
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, request, SLOT(experts.experts),
             a->expert_count * (uint64_t)sizeof(berthi_product_expert));
    add_read(list, request, SLOT(experts.ranges),
             (a->expert_count + UINT64_C(1)) * sizeof *a->ranges);
    add_read(list, request, SLOT(experts.inputs), a->count * a->columns * width);
    add_both(list, request, SLOT(experts.outputs), a->count * a->rows * width);
    add_both(list, request, SLOT(experts.scratch),
             berthi_experts_scratch(a) * sizeof *a->scratch);
    return true;
}

/* Of the room what is not written stays as it was. */
static bool
can_list_int8_input(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_int8_input_task *const t = &request->arguments.int8_input;
    const berthi_outlier_room *const room = &t->outliers;

    add_read(list, request, SLOT(int8_input.inputs),
             t->count * t->columns * berthi_number_bytes(t->dtype));
    add_written(list, request, SLOT(int8_input.codes), t->count * t->columns);
    add_written(list, request, SLOT(int8_input.input_maximum),
                t->count * sizeof *t->input_maximum);
    if (!(t->threshold > 0.0f))
        return true;
    add_both(list, request, SLOT(int8_input.outliers.mask),
             berthi_outlier_words(t->columns) * sizeof *room->mask);
    add_both(list, request, SLOT(int8_input.outliers.list), room->capacity * sizeof *room->list);
    add_both(list, request, SLOT(int8_input.outliers.count), sizeof *room->count);
    return true;
}

static bool
can_list_int8_output(const berthi_request *request, berthi_sim_regions *list)
{
    const berthi_int8_output_task *const t = &request->arguments.int8_output;
    const uint64_t width = berthi_number_bytes(t->dtype);
    const uint64_t columns = t->outliers.mask != NULL ? t->columns : 0;

    add_read(list, request, SLOT(int8_output.sums), t->count * t->rows * sizeof *t->sums);
    add_read(list, request, SLOT(int8_output.input_maximum), t->count * sizeof *t->input_maximum);
    add_read(list, request, SLOT(int8_output.weight_maximum),
             t->rows * sizeof *t->weight_maximum);
    add_read(list, request, SLOT(int8_output.bias),
             t->bias != NULL ? t->rows * sizeof *t->bias : 0);
    add_written(list, request, SLOT(int8_output.outputs), t->count * t->rows * width);
    if (t->outliers.mask == NULL)
        return true;
    add_read(list, request, SLOT(int8_output.outliers.mask),
             berthi_outlier_words(columns) * sizeof *t->outliers.mask);
    add_read(list, request, SLOT(int8_output.outliers.list),
             t->outliers.capacity * sizeof *t->outliers.list);
    add_read(list, request, SLOT(int8_output.outliers.count), sizeof *t->outliers.count);
    add_read(list, request, SLOT(int8_output.weights), t->rows * columns);
    add_read(list, request, SLOT(int8_output.inputs), t->count * columns * width);
    return true;
}

static void
list_copy(const berthi_copy *copy, berthi_sim_regions *list)
{
    const berthi_sim_region to = { .memory = copy->to,
                                   .bytes = copy->bytes,
                                   .is_written = true,
                                   .is_of_peer = copy->kind == BERTHI_COPY_TO_PEER };
    const berthi_sim_region from = { .memory = (void *)(uintptr_t)copy->from,
                                     .bytes = copy->bytes,
                                     .is_read = true };

    if (copy->kind != BERTHI_COPY_TO_HOST)
        add_region(list, &to);
    if (copy->kind != BERTHI_COPY_TO_DEVICE)
        add_region(list, &from);
}

bool
berthi_sim_work_can_list(const berthi_sim_item *item, berthi_sim_regions *out)
{
    const berthi_request *const request = &item->work.request;
    const berthi_sim_region cleared = { .memory = item->work.clear.memory,
                                        .bytes = item->work.clear.bytes,
                                        .is_written = true };

    out->count = 0;
    if (item->kind == BERTHI_SIM_COPY)
        list_copy(&item->work.copy, out);
    if (item->kind == BERTHI_SIM_CLEAR)
        add_region(out, &cleared);
    if (item->kind != BERTHI_SIM_LAUNCH)
        return true;
    switch (request->operation) {
    case BERTHI_OPERATION_ENCODE_NF4:
    case BERTHI_OPERATION_ENCODE_FP4: return can_list_blocks(request, out);
    case BERTHI_OPERATION_ENCODE_ROWS: return can_list_rows(request, out);
    case BERTHI_OPERATION_ENCODE_DOUBLE: return can_list_offset(request, out);
    case BERTHI_OPERATION_DECODE_NF4:
    case BERTHI_OPERATION_DECODE_FP4: return can_list_decode(request, out);
    case BERTHI_OPERATION_DECODE_ROWS: return can_list_decode_rows(request, out);
    case BERTHI_OPERATION_MULTIPLY_NF4:
    case BERTHI_OPERATION_MULTIPLY_FP4: return can_list_product(request, out);
    case BERTHI_OPERATION_EXPERTS_NF4:
    case BERTHI_OPERATION_EXPERTS_FP4: return can_list_experts(request, out);
    case BERTHI_OPERATION_MULTIPLY_PLAIN: return can_list_plain(request, out);
    case BERTHI_OPERATION_MULTIPLY_INT8: return can_list_int8(request, out);
    case BERTHI_OPERATION_INT8_INPUT: return can_list_int8_input(request, out);
    case BERTHI_OPERATION_INT8_OUTPUT: return can_list_int8_output(request, out);
    case BERTHI_OPERATION_UPDATE: return can_list_update(request, out);
    case BERTHI_OPERATION_MEASURE: return can_list_measure(request, out);
    case BERTHI_OPERATION_ACCUMULATE: return can_list_sum(request, out);
    default: berthi_sim_list_step(request, out); return true;
    }
}

static bool
is_of_experts(const berthi_sim_item *item)
{
    return item->kind == BERTHI_SIM_LAUNCH
           && (item->work.request.operation == BERTHI_OPERATION_EXPERTS_NF4
               || item->work.request.operation == BERTHI_OPERATION_EXPERTS_FP4);
}

berthi_sim_device *
berthi_sim_peer_of(const berthi_sim_item *item)
{
    return item->kind == BERTHI_SIM_COPY && item->work.copy.kind == BERTHI_COPY_TO_PEER
               ? (berthi_sim_device *)item->work.copy.peer
               : NULL;
}

bool
berthi_sim_reaches(const berthi_sim_device *device, const berthi_sim_device *other)
{
    return device != other && device->words.rate_to_peer > 0 && other->words.rate_to_peer > 0;
}

/* ---------------------------------------------------------------------- refusals */

static const char *
refuse_region(const berthi_sim_device *device, const berthi_sim_region *region,
              berth_reason *reason)
{
    const berthi_sim_allocation *const a =
        berthi_sim_memory_find(&device->memory, region->memory, region->bytes);

    if (a == NULL)
        return "lies outside of memory that is allocated";
    if (region->is_read
        && !berthi_sim_allocation_has_bytes(a, region->memory, region->bytes)) {
        *reason = BERTH_REASON_UNSUPPORTED;
        return "reads memory of which digests are kept, not bytes";
    }
    return NULL;
}

/* One that is lost gets nothing: its memory may have been given back. */
static const char *
refuse_peer(const berthi_sim_device *peer, const berthi_sim_region *region,
            berth_reason *reason)
{
    return peer->reason == BERTH_REASON_NONE ? refuse_region(peer, region, reason) : NULL;
}

/* The host's side of a copy. */
static const char *
refuse_host(const berthi_sim_device *device, const berthi_copy *copy)
{
    const void *const host =
        copy->kind == BERTHI_COPY_TO_DEVICE ? copy->from : copy->to;

    if (copy->kind == BERTHI_COPY_WITHIN || copy->kind == BERTHI_COPY_TO_PEER
        || !copy->is_pinned)
        return NULL;
    return berthi_sim_memory_is_pinned(&device->memory, host, copy->bytes)
               ? NULL
               : "is said to be pinned, and is not";
}

const char *
berthi_sim_work_refusal(const berthi_sim_device *device, const berthi_sim_item *item,
                        berth_reason *reason)
{
    const berthi_sim_device *const peer = berthi_sim_peer_of(item);
    berthi_sim_regions regions;
    const char *problem = NULL;

    *reason = BERTH_REASON_INTERNAL;
    if (!berthi_sim_work_can_list(item, &regions))
        return "has sizes that no memory has";
    if (is_of_experts(item) && device->memory.keeps_digests) {
        *reason = BERTH_REASON_UNSUPPORTED;
        return "reads weights wherever they lie, and digests may be kept of them";
    }
    if (peer != NULL && !berthi_sim_reaches(device, peer))
        return "is for a device that this one does not reach";
    for (uint32_t i = 0; i < regions.count && problem == NULL; i++)
        problem = regions.items[i].is_of_peer
                      ? refuse_peer(peer, &regions.items[i], reason)
                      : refuse_region(device, &regions.items[i], reason);
    if (problem == NULL && item->kind == BERTHI_SIM_COPY)
        problem = refuse_host(device, &item->work.copy);
    return problem;
}

/* ---------------------------------------------------------------------- duration */

/* Weights at most: whether an expert has inputs nobody knows yet. */
static double
experts_bytes(const berthi_experts_arguments *a)
{
    return (double)berthi_min_u64(a->expert_count, a->count)
           * (double)berthi_experts_weight_bytes(a);
}

/* Of the weight and the inputs only columns that are apart: few, and nobody knows yet which. */
static double
unread_bytes(const berthi_int8_output_task *t)
{
    const uint64_t columns = t->outliers.mask != NULL ? t->columns : 0;

    return (double)columns
           * ((double)t->rows + (double)t->count * (double)berthi_number_bytes(t->dtype));
}

static double
touched_bytes(const berthi_sim_item *item)
{
    berthi_sim_regions regions;
    double bytes = 0;

    (void)berthi_sim_work_can_list(item, &regions);
    for (uint32_t i = 0; i < regions.count; i++)
        bytes += (double)regions.items[i].bytes;
    if (is_of_experts(item))
        bytes += experts_bytes(&item->work.request.arguments.experts);
    if (item->kind == BERTHI_SIM_LAUNCH)
        bytes -= item->work.request.operation == BERTHI_OPERATION_INT8_OUTPUT
                     ? unread_bytes(&item->work.request.arguments.int8_output)
                     : berthi_sim_step_spares(&item->work.request);
    return bytes;
}

/* A copy that is not pinned goes through a buffer of the driver, at half the rate. */
static double
link_ns(const berthi_sim_device *device, const berthi_copy *copy, uint64_t rate)
{
    const double passes = copy->is_pinned ? 1 : 2;

    return (double)device->words.latency_ns
           + passes * (double)copy->bytes * NS_OF_SECOND / (double)rate;
}

/* The slower of the two. */
static double
peer_ns(const berthi_sim_device *device, const berthi_sim_item *item)
{
    const uint64_t rate = berthi_min_u64(device->words.rate_to_peer,
                                         berthi_sim_peer_of(item)->words.rate_to_peer);

    return (double)device->words.latency_ns
           + (double)item->work.copy.bytes * NS_OF_SECOND / (double)rate;
}

void
berthi_sim_work_measure(berthi_sim_device *device, berthi_sim_item *item)
{
    const berthi_sim_device_words *const words = &device->words;
    double ns;

    item->engine = BERTHI_SIM_COMPUTE;
    if (berthi_sim_peer_of(item) != NULL) {
        item->engine = BERTHI_SIM_TO_PEER;
        ns = peer_ns(device, item);
    } else if (item->kind == BERTHI_SIM_COPY
               && item->work.copy.kind != BERTHI_COPY_WITHIN) {
        const bool is_to_device = item->work.copy.kind == BERTHI_COPY_TO_DEVICE;

        item->engine = is_to_device ? BERTHI_SIM_TO_DEVICE : BERTHI_SIM_TO_HOST;
        ns = link_ns(device, &item->work.copy,
                     is_to_device ? words->rate_to_device : words->rate_to_host);
    } else if (item->kind == BERTHI_SIM_LAUNCH
               && item->work.request.operation == BERTHI_OPERATION_CALL) {
        ns = item->work.request.arguments.call.seconds * NS_OF_SECOND;
    } else {
        ns = touched_bytes(item) * NS_OF_SECOND / (double)words->rate_memory;
        if (item->kind == BERTHI_SIM_LAUNCH && !item->is_joined)
            ns += (double)words->operation_ns;
    }
    if (words->jitter > 0)
        ns += ns * (words->jitter / 100.0)
              * ((double)(berthi_sim_random(device->sim) >> 11) * 0x1p-53);
    item->duration_ns = ns < (double)(UINT64_C(1) << 62) ? (uint64_t)(ns + 0.5)
                                                         : UINT64_C(1) << 62;
}
