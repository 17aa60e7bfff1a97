/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_dequantize.c - values of a tensor of a model where it lies.
 *
 *   4-bit, INT8   one operation, which finds blocks, or rows, by the number of the first value
 *   plain         a copy
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/number.h"
#include "kernels/tables.h"
#include "loader/compute.h"
#include "loader/model.h"
#include "quant/format.h"

/* One call. */
typedef struct decoding {
    berth_model_tensor tensor; /* as it lies now */
    berth_dequantize step;
} decoding;

/* ---------------------------------------------------------------------- requests */

/* `element`: of a part that is there. */
static const void *
part_at(const decoding *d, int32_t role, uint64_t element, uint64_t bytes)
{
    return (const uint8_t *)berthi_part_of(&d->tensor, role) + element * bytes;
}

static berthi_request
ask_blocks(const decoding *d)
{
    const bool is_double = d->tensor.is_double != 0;
    const uint64_t block = d->step.first / d->tensor.block_size;

    return (berthi_request){
        .operation = d->tensor.encoding == BERTH_ENCODING_NF4 ? BERTHI_OPERATION_DECODE_NF4
                                                              : BERTHI_OPERATION_DECODE_FP4,
        .arguments.decode = {
            .codes = part_at(d, BERTH_ROLE_CODES, d->step.first / 2, 1),
            .absmax = is_double ? part_at(d, BERTH_ROLE_ABSMAX2, block / BERTHI_DOUBLE_BLOCK,
                                          sizeof(float))
                                : part_at(d, BERTH_ROLE_ABSMAX, block, sizeof(float)),
            .absmax_codes = is_double ? part_at(d, BERTH_ROLE_ABSMAX, block, 1) : NULL,
            .map = berthi_signed_map,
            .offset = d->tensor.offset,
            .block_size = d->tensor.block_size,
            .first = d->step.first,
            .count = d->step.count,
            .values = d->step.values,
            .dtype = d->step.dtype,
        },
    };
}

static berthi_request
ask_rows(const decoding *d)
{
    const uint64_t columns = d->tensor.shape[d->tensor.rank - 1];

    return (berthi_request){
        .operation = BERTHI_OPERATION_DECODE_ROWS,
        .arguments.decode_rows = {
            .codes = part_at(d, BERTH_ROLE_CODES, d->step.first, 1),
            .row_maximum = part_at(d, BERTH_ROLE_ROW_MAXIMUM, d->step.first / columns,
                                   sizeof(float)),
            .columns = columns,
            .first = d->step.first,
            .count = d->step.count,
            .values = d->step.values,
            .dtype = d->step.dtype,
        },
    };
}

static berthi_request
ask(const decoding *d)
{
    return d->tensor.encoding == BERTH_ENCODING_INT8 ? ask_rows(d) : ask_blocks(d);
}

static berth_status
copy_values(const decoding *d, berthi_device *device, void *stream, berth_error *error)
{
    const uint64_t bytes = berthi_number_bytes(d->step.dtype);
    const berthi_copy copy = {
        .kind = BERTHI_COPY_WITHIN,
        .to = d->step.values,
        .from = part_at(d, BERTH_ROLE_VALUES, d->step.first, bytes),
        .bytes = d->step.count * bytes,
    };

    return device->table->copy(device, &copy, stream, error);
}

/* ------------------------------------------------------------------------- checks */

static bool
is_plain(const decoding *d)
{
    return d->tensor.encoding == BERTH_ENCODING_NATIVE;
}

/* BERTH_OK, or UNSUPPORTED. */
static berth_status
check_encoding(const decoding *d, berth_error *error)
{
    const berthi_about about = { .tensor = d->tensor.name,
                                 .tensor_length = d->tensor.name_length };

    if (is_plain(d) && d->tensor.dtype != d->step.dtype)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                           "has plain numbers of %s: they are not made others of where they lie",
                           berth_dtype_name(d->tensor.dtype));
    if (!is_plain(d) && !berthi_format_is_4bit(d->tensor.encoding)
        && d->tensor.encoding != BERTH_ENCODING_INT8)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                           "is in an encoding that is not decoded where it lies");
    return BERTH_OK;
}

static berth_status
check_stretch(const decoding *d, berth_error *error)
{
    const berth_dequantize *const step = &d->step;

    if (step->count == 0)
        return berthi_fail_argument(error, "step", "has a count of 0");
    if (step->first >= d->tensor.elements
        || step->count > d->tensor.elements - step->first)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "argument `step` has values %" PRIu64 " to %" PRIu64
                           " of a tensor of %" PRIu64,
                           step->first, berthi_add_capped(step->first, step->count - 1),
                           d->tensor.elements);
    if (berthi_format_is_4bit(d->tensor.encoding) && step->first % 2 != 0)
        return berthi_fail_argument(error, "step",
                                    "has an odd `first`: two values of 4 bits share a byte");
    return BERTH_OK;
}

static berth_status
check_arguments(const decoding *d, berth_error *error)
{
    berth_status status;

    if (d->step.values == NULL)
        return berthi_fail_argument(error, "step", "has no values");
    if (!berthi_is_number(d->step.dtype))
        return berthi_fail_argument(error, "step",
                                    "has a dtype that is none of BF16, F16 and F32");
    status = check_encoding(d, error);
    if (status == BERTH_OK)
        status = check_stretch(d, error);
    if (status == BERTH_OK && d->tensor.parts[0].memory == NULL)
        return berthi_fail_argument(error, "berth",
                                    "is of a layer, or an expert, that is not leased");
    return status;
}

/* ---------------------------------------------------------------------- interface */

static berth_status
dequantize(const berth_model *model, uint64_t berth, decoding *d, void *stream,
           berth_error *error)
{
    berthi_device *device;
    berthi_request request;
    berth_status status;

    if (berth_model_get_tensor(model, berth, &d->tensor) != BERTH_OK)
        return berthi_fail_argument(error, "berth", "is not that of a tensor");
    status = check_arguments(d, error);
    if (status != BERTH_OK)
        return status;
    device = berthi_device_of(model, &d->tensor);
    if (is_plain(d))
        return copy_values(d, device, stream, error);
    request = ask(d);
    return berthi_launch_on(device, &request, stream, error);
}

berth_status
berth_model_dequantize(berth_model *model, uint64_t berth, const berth_dequantize *step,
                       void *stream, berth_error *error)
{
    decoding d;
    berth_status status;

    berthi_error_clear(error);
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    if (step == NULL)
        return berthi_fail_argument(error, "step", "is NULL");
    memset(&d, 0, sizeof d);
    d.step = *step;
    status = berthi_model_enter(model, error);
    if (status != BERTH_OK)
        return status;
    status = dequantize(model, berth, &d, stream, error);
    berthi_model_leave(model);
    return status;
}
