/* SPDX-License-Identifier: Apache-2.0 */
/* operands.c - operands of operations on weights, of products and of optimizers; see operands.h. */
#include <inttypes.h>

#include "kernels/operands_add.h"
#include "kernels/product_arguments.h"

/* ------------------------------------------------------------------------ encodings */

static void
add_encode(const berthi_encode_arguments *a, berthi_operands *list)
{
    if (a->block_size == 0) {
        list->are_impossible = true;
        return;
    }
    add_read(list, "values", SLOT(encode.values), a->count, berthi_number_bytes(a->dtype));
    add_written(list, "codes", SLOT(encode.codes), berthi_divide_up(a->count, 2), 1);
    add_written(list, "maxima", SLOT(encode.absmax), berthi_divide_up(a->count, a->block_size),
                sizeof *a->absmax);
}

static void
add_rows(const berthi_rows_arguments *a, berthi_operands *list)
{
    uint64_t count;

    if (!berthi_can_mul(a->rows, a->columns, &count)) {
        list->are_impossible = true;
        return;
    }
    add_read(list, "values", SLOT(rows.values), count, berthi_number_bytes(a->dtype));
    add_written(list, "codes", SLOT(rows.codes), count, 1);
    add_written(list, "maxima", SLOT(rows.row_maximum), a->rows, sizeof *a->row_maximum);
}

static void
add_offset(const berthi_offset_arguments *a, berthi_operands *list)
{
    add_read(list, "values", SLOT(offset.absmax), a->count, sizeof *a->absmax);
    add_written(list, "codes", SLOT(offset.codes), a->count, 1);
    add_written(list, "maxima", SLOT(offset.absmax2),
                berthi_divide_up(a->count, BERTHI_DOUBLE_BLOCK), sizeof *a->absmax2);
    add_written(list, "offset", SLOT(offset.offset), 1, sizeof *a->offset);
    add_both(list, "scratch", SLOT(offset.scratch), berthi_offset_scratch(a->count),
             sizeof *a->scratch);
}

static void
add_decode(const berthi_decode_blocks_task *t, berthi_operands *list)
{
    const uint64_t blocks = berthi_decode_blocks_of(t);
    const bool is_double = t->absmax_codes != NULL;

    add_read(list, "codes", SLOT(decode.codes), berthi_divide_up(t->count, 2), 1);
    add_read(list, "maxima", SLOT(decode.absmax),
             is_double ? berthi_decode_absmax_blocks_of(t) : blocks, sizeof *t->absmax);
    add_read(list, "codes", SLOT(decode.absmax_codes), is_double ? blocks : 0, 1);
    add_written(list, "values", SLOT(decode.values), t->count, berthi_number_bytes(t->dtype));
}

static void
add_decode_rows(const berthi_decode_rows_task *t, berthi_operands *list)
{
    add_read(list, "codes", SLOT(decode_rows.codes), t->count, 1);
    add_read(list, "maxima", SLOT(decode_rows.row_maximum), berthi_decode_rows_of(t),
             sizeof *t->row_maximum);
    add_written(list, "values", SLOT(decode_rows.values), t->count,
                berthi_number_bytes(t->dtype));
}

/* ------------------------------------------------------------------------- products */

static void
add_product(const berthi_multiply_arguments *a, berthi_operands *list)
{
    const uint64_t weights = a->rows * a->columns;
    const uint64_t blocks = berthi_divide_up(weights, a->block_size);
    const bool is_double = a->absmax_codes != NULL;
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, "codes", SLOT(multiply.codes), berthi_divide_up(weights, 2), 1);
    add_read(list, "absmax", SLOT(multiply.absmax),
             is_double ? berthi_divide_up(blocks, BERTHI_DOUBLE_BLOCK) : blocks,
             sizeof *a->absmax);
    add_read(list, "absmax", SLOT(multiply.absmax_codes), is_double ? blocks : 0, 1);
    add_read(list, "inputs", SLOT(multiply.inputs), a->count * a->columns, width);
    add_read(list, "bias", SLOT(multiply.bias), a->bias != NULL ? a->rows : 0, width);
    add_written(list, "outputs", SLOT(multiply.outputs), a->count * a->rows, width);
    add_both(list, "scratch", SLOT(multiply.scratch), berthi_multiply_scratch(a),
             sizeof *a->scratch);
}

/* What experts' weights lie in stands in this memory: it is no argument. */
static void
add_experts(const berthi_experts_arguments *a, berthi_operands *list)
{
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, "experts", SLOT(experts.experts),
             a->expert_count * (sizeof *a->experts / sizeof(void *)), sizeof(void *));
    add_read(list, "ranges", SLOT(experts.ranges), a->expert_count + UINT64_C(1),
             sizeof *a->ranges);
    add_read(list, "inputs", SLOT(experts.inputs), a->count * a->columns, width);
    add_both(list, "outputs", SLOT(experts.outputs), a->count * a->rows, width);
    add_both(list, "scratch", SLOT(experts.scratch), berthi_experts_scratch(a),
             sizeof *a->scratch);
}

static void
add_plain(const berthi_multiply_plain_arguments *a, berthi_operands *list)
{
    const uint64_t width = berthi_number_bytes(a->dtype);

    add_read(list, "weight", SLOT(plain.weight), a->rows * a->columns,
             berthi_number_bytes(a->weight_dtype));
    add_read(list, "inputs", SLOT(plain.inputs), a->count * a->columns, width);
    add_read(list, "bias", SLOT(plain.bias), a->bias != NULL ? a->rows : 0, width);
    add_written(list, "outputs", SLOT(plain.outputs), a->count * a->rows, width);
}

static void
add_int8(const berthi_multiply_int8_arguments *a, berthi_operands *list)
{
    add_read(list, "weight", SLOT(int8.weights), a->rows * a->columns, 1);
    add_read(list, "inputs", SLOT(int8.inputs), a->count * a->columns, 1);
    add_written(list, "sums", SLOT(int8.sums), a->count * a->rows, sizeof *a->sums);
}

/* Of the room what is not written stays as it was. */
static void
add_int8_input(const berthi_int8_input_task *t, berthi_operands *list)
{
    const berthi_outlier_room *const room = &t->outliers;

    add_read(list, "values", SLOT(int8_input.inputs), t->count * t->columns,
             berthi_number_bytes(t->dtype));
    add_written(list, "codes", SLOT(int8_input.codes), t->count * t->columns, 1);
    add_written(list, "maxima", SLOT(int8_input.input_maximum), t->count,
                sizeof *t->input_maximum);
    if (!(t->threshold > 0.0f))
        return;
    add_both(list, "outliers", SLOT(int8_input.outliers.mask), berthi_outlier_words(t->columns),
             sizeof *room->mask);
    add_both(list, "outliers", SLOT(int8_input.outliers.list), room->capacity,
             sizeof *room->list);
    add_both(list, "outliers", SLOT(int8_input.outliers.count), 1, sizeof *room->count);
}

static void
add_int8_output(const berthi_int8_output_task *t, berthi_operands *list)
{
    const berthi_outlier_room *const room = &t->outliers;
    const uint64_t width = berthi_number_bytes(t->dtype);

    add_read(list, "sums", SLOT(int8_output.sums), t->count * t->rows, sizeof *t->sums);
    add_read(list, "maxima", SLOT(int8_output.input_maximum), t->count,
             sizeof *t->input_maximum);
    add_read(list, "maxima", SLOT(int8_output.weight_maximum), t->rows,
             sizeof *t->weight_maximum);
    add_read(list, "bias", SLOT(int8_output.bias), t->bias != NULL ? t->rows : 0,
             sizeof *t->bias);
    add_written(list, "outputs", SLOT(int8_output.outputs), t->count * t->rows, width);
    if (room->mask == NULL)
        return;
    add_read(list, "outliers", SLOT(int8_output.outliers.mask), berthi_outlier_words(t->columns),
             sizeof *room->mask);
    add_read(list, "outliers", SLOT(int8_output.outliers.list), room->capacity,
             sizeof *room->list);
    add_read(list, "outliers", SLOT(int8_output.outliers.count), 1, sizeof *room->count);
    add_read(list, "weight", SLOT(int8_output.weights), t->rows * t->columns, 1);
    add_read(list, "inputs", SLOT(int8_output.inputs), t->count * t->columns, width);
}

/* ----------------------------------------------------------------------- optimizers */

/* `slot` is that of the state. */
static void
add_state(const berthi_update_state *state, size_t slot, uint64_t count, berthi_operands *list)
{
    if (state->values != NULL) {
        add_both(list, "state", slot + offsetof(berthi_update_state, values), count,
                 sizeof *state->values);
        return;
    }
    add_both(list, "state", slot + offsetof(berthi_update_state, codes), count, 1);
    add_both(list, "maxima", slot + offsetof(berthi_update_state, absmax),
             berthi_update_absmax_bytes(count) / sizeof *state->absmax, sizeof *state->absmax);
}

static void
add_update(const berthi_update_request *u, berthi_operands *list)
{
    const berthi_update_arguments *const a = &u->arguments;
    const uint32_t states = berthi_update_states((berthi_update_kind)u->constants.kind);

    add_both(list, "parameter", SLOT(update.arguments.parameter), a->count,
             berthi_number_bytes(a->dtype));
    add_read(list, "gradient", SLOT(update.arguments.gradient), a->count,
             berthi_number_bytes(a->gradient_dtype));
    add_both(list, "master", SLOT(update.arguments.master), a->master != NULL ? a->count : 0,
             sizeof *a->master);
    for (uint32_t k = 0; k < states; k++)
        add_state(&a->state[k], SLOT(update.arguments.state) + k * sizeof a->state[k], a->count,
                  list);
    add_both(list, "count", SLOT(update.not_finite), 1, sizeof *u->not_finite);
}

static void
add_measure(const berthi_measure_arguments *a, berthi_operands *list)
{
    const uint64_t blocks = berthi_divide_up(a->count, BERTHI_GRADIENT_BLOCK);

    add_read(list, "gradient", SLOT(measure.gradient), a->count, berthi_number_bytes(a->dtype));
    add_written(list, "sums", SLOT(measure.sums), blocks * (sizeof *a->sums / sizeof(uint64_t)),
                sizeof(uint64_t));
}

static void
add_accumulate(const berthi_accumulate_arguments *a, berthi_operands *list)
{
    add_both(list, "sum", SLOT(accumulate.sum), a->count, berthi_number_bytes(a->sum_dtype));
    add_read(list, "gradient", SLOT(accumulate.gradient), a->count,
             berthi_number_bytes(a->dtype));
}

/* -------------------------------------------------------------------- all operations */

bool
berthi_operands_can_list(const berthi_request *request, berthi_operands *out)
{
    out->request = request;
    out->count = 0;
    out->are_impossible = false;
    switch (request->operation) {
    case BERTHI_OPERATION_ENCODE_NF4:
    case BERTHI_OPERATION_ENCODE_FP4: add_encode(&request->arguments.encode, out); break;
    case BERTHI_OPERATION_ENCODE_ROWS: add_rows(&request->arguments.rows, out); break;
    case BERTHI_OPERATION_ENCODE_DOUBLE: add_offset(&request->arguments.offset, out); break;
    case BERTHI_OPERATION_DECODE_NF4:
    case BERTHI_OPERATION_DECODE_FP4: add_decode(&request->arguments.decode, out); break;
    case BERTHI_OPERATION_DECODE_ROWS:
        add_decode_rows(&request->arguments.decode_rows, out);
        break;
    case BERTHI_OPERATION_MULTIPLY_NF4:
    case BERTHI_OPERATION_MULTIPLY_FP4: add_product(&request->arguments.multiply, out); break;
    case BERTHI_OPERATION_EXPERTS_NF4:
    case BERTHI_OPERATION_EXPERTS_FP4: add_experts(&request->arguments.experts, out); break;
    case BERTHI_OPERATION_MULTIPLY_PLAIN: add_plain(&request->arguments.plain, out); break;
    case BERTHI_OPERATION_MULTIPLY_INT8: add_int8(&request->arguments.int8, out); break;
    case BERTHI_OPERATION_INT8_INPUT:
        add_int8_input(&request->arguments.int8_input, out);
        break;
    case BERTHI_OPERATION_INT8_OUTPUT:
        add_int8_output(&request->arguments.int8_output, out);
        break;
    case BERTHI_OPERATION_UPDATE: add_update(&request->arguments.update, out); break;
    case BERTHI_OPERATION_MEASURE: add_measure(&request->arguments.measure, out); break;
    case BERTHI_OPERATION_ACCUMULATE:
        add_accumulate(&request->arguments.accumulate, out);
        break;
    default: berthi_operands_add_step(out); break;
    }
    return !out->are_impossible;
}

berth_status
berthi_operands_check_addresses(const berthi_operands *operands, berth_error *error)
{
    for (uint32_t i = 0; i < operands->count; i++) {
        const berthi_operand *const it = &operands->items[i];

        if ((uintptr_t)it->memory % it->unit != 0)
            return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                               "%s at an address that is no multiple of %" PRIu32, it->name,
                               it->unit);
    }
    return BERTH_OK;
}

/* Weights at most: whether an expert has inputs nobody knows yet. */
static double
experts_bytes(const berthi_experts_arguments *a)
{
    return (double)berthi_min_u64(a->expert_count, a->count)
           * (double)berthi_experts_weight_bytes(a);
}

/* Of the weight and the inputs only columns that are apart: few, and nobody knows yet which. */
static double
unread_of_int8_output(const berthi_int8_output_task *t)
{
    const uint64_t columns = t->outliers.mask != NULL ? t->columns : 0;

    return (double)columns
           * ((double)t->rows + (double)t->count * (double)berthi_number_bytes(t->dtype));
}

double
berthi_operands_moved(const berthi_operands *operands)
{
    const berthi_request *const request = operands->request;
    double bytes = 0;

    for (uint32_t i = 0; i < operands->count; i++)
        bytes += (double)operands->items[i].bytes;
    switch (request->operation) {
    case BERTHI_OPERATION_EXPERTS_NF4:
    case BERTHI_OPERATION_EXPERTS_FP4:
        return bytes + experts_bytes(&request->arguments.experts);
    case BERTHI_OPERATION_INT8_OUTPUT:
        return bytes - unread_of_int8_output(&request->arguments.int8_output);
    default: return bytes - berthi_operands_unread_of_step(request);
    }
}
