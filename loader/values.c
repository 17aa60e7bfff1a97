/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - how a weight is stored, by query; arguments of all calls checked. */
#include "loader/values.h"

#include <string.h>

#include "quant/format.h"
#include "quant/state.h"

#define DEFAULT_BLOCK_SIZE 64u
#define MEMORY_MAX (UINT64_C(1) << 56) /* no address space is larger */
#define NAME "weight" /* a weight's name, to ask what its parts are called */

/* ------------------------------------------------------------------- options */

static berthi_storage
storage_of(const berth_values_options *options)
{
    berthi_storage storage = { .encoding = options->encoding, .dtype = options->dtype };

    if (!berthi_format_is_4bit(options->encoding))
        return storage;
    storage.storage = options->storage == -1 ? BERTH_U8 : options->storage;
    storage.block_size = options->block_size > 0 ? options->block_size : DEFAULT_BLOCK_SIZE;
    storage.is_double = options->double_quant != 0;
    return storage;
}

static const char *
find_mistake(const berth_values_options *options)
{
    if (!berthi_format_is_4bit(options->encoding) && options->encoding != BERTH_ENCODING_INT8)
        return "has an encoding that is none of nf4, fp4 and int8";
    if (options->double_quant != 0 && !berthi_format_is_4bit(options->encoding))
        return "has double_quant, which is for nf4 and fp4";
    if (options->rank > BERTH_MAX_RANK)
        return "has more dims than a tensor can have";
    if (options->rank > 0 && options->shape == NULL)
        return "has no shape";
    return NULL;
}

berth_status
berthi_values_take(const berth_values_options *options, berthi_values *out,
                   berth_error *error)
{
    berth_values_options mine;
    const char *mistake;
    berth_status status;

    memset(out, 0, sizeof *out);
    if (options == NULL)
        return berthi_fail_argument(error, "options", "is NULL");
    status = berthi_options_take(&mine, sizeof mine,
                                 offsetof(berth_values_options, reserved32), options,
                                 "options", error);
    if (status != BERTH_OK)
        return status;
    mistake = find_mistake(&mine);
    if (mistake != NULL)
        return berthi_fail_argument(error, "options", mistake);
    out->storage = storage_of(&mine);
    out->shape = mine.shape;
    out->rank = mine.rank;
    out->threads = mine.threads;
    mistake = berthi_stored_refusal(&out->storage, out->shape, out->rank);
    if (mistake != NULL)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "argument `options` has a weight that cannot be stored: %s",
                           mistake);
    (void)berthi_format_can_count(out->shape, out->rank, &out->elements);
    if (!berthi_can_mul(out->elements, berthi_format_element_bytes(mine.dtype),
                        &out->value_bytes)
        || out->value_bytes > MEMORY_MAX)
        return berthi_fail_argument(error, "options", "has more values than memory holds");
    out->blocks = berthi_format_is_4bit(mine.encoding)
                      ? berthi_divide_up(out->elements, out->storage.block_size)
                      : out->shape[0];
    out->part_count =
        berthi_stored_list(&out->storage, out->shape, out->rank, out->parts);
    return BERTH_OK;
}

/* ------------------------------------------------------------------- queries */

static const berthi_stored *
find_part(const berthi_values *values, berthi_role role)
{
    for (uint32_t i = 0; i < values->part_count; i++)
        if (values->parts[i].role == role)
            return &values->parts[i];
    return NULL;
}

static berth_values_part
describe_part(const berthi_values *values, const berthi_stored *stored)
{
    const size_t length = strlen(NAME);
    const berthi_stored_name name =
        berthi_stored_name_of(NAME, length, stored->role, values->storage.encoding);
    berth_values_part part = {
        .role = (int32_t)stored->role,
        .dtype = stored->dtype,
        .rank = stored->rank,
        .is_late = stored->is_late,
        .bytes = stored->bytes,
        .cut = length - name.kept,
        .suffix = name.suffix,
    };

    memcpy(part.shape, stored->dims, stored->rank * sizeof *part.shape);
    return part;
}

berth_status
berth_values_list(const berth_values_options *options,
                  berth_values_part parts[BERTH_VALUES_PARTS], uint32_t *out_count,
                  berth_error *error)
{
    berthi_values values;
    berth_status status;

    berthi_error_clear(error);
    if (out_count == NULL)
        return berthi_fail_argument(error, "out_count", "is NULL");
    *out_count = 0;
    if (parts == NULL)
        return berthi_fail_argument(error, "parts", "is NULL");
    status = berthi_values_take(options, &values, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < values.part_count; i++)
        parts[i] = describe_part(&values, &values.parts[i]);
    *out_count = values.part_count;
    return BERTH_OK;
}

berth_status
berth_values_constant(const berth_values_options *options, int32_t role, void *buffer,
                      uint64_t size, berth_error *error)
{
    uint8_t bytes[BERTHI_STORED_CONSTANT_MAX];
    const berthi_stored *stored;
    berthi_values values;
    berth_status status;

    berthi_error_clear(error);
    status = berthi_values_take(options, &values, error);
    if (status != BERTH_OK)
        return status;
    if (role != BERTH_ROLE_MAP && role != BERTH_ROLE_MAP2 && role != BERTH_ROLE_ROW_FORMAT)
        return berthi_fail_argument(error, "role", "is not the same for all weights");
    stored = find_part(&values, (berthi_role)role);
    if (stored == NULL)
        return berthi_fail_argument(error, "role", "is none of such a weight's parts");
    status = berthi_values_check(
        &(berthi_values_range){ "buffer", buffer, size, stored->bytes, 1, true }, 1, error);
    if (status != BERTH_OK)
        return status;
    size = berthi_stored_constant(stored->role, values.storage.encoding, bytes);
    memcpy(buffer, bytes, size);
    return BERTH_OK;
}

berth_status
berth_values_state(const berth_values_options *options, float offset, char *text,
                   size_t capacity, size_t *out_length, berth_error *error)
{
    char whole[BERTHI_STATE_TEXT_MAX];
    berthi_values values;
    berthi_state state;
    berth_status status;
    size_t length;

    berthi_error_clear(error);
    if (out_length == NULL)
        return berthi_fail_argument(error, "out_length", "is NULL");
    *out_length = 0;
    if (text == NULL && capacity > 0)
        return berthi_fail_argument(error, "text", "is NULL");
    status = berthi_values_take(options, &values, error);
    if (status != BERTH_OK)
        return status;
    if (!berthi_format_is_4bit(values.storage.encoding))
        return berthi_fail_argument(error, "options", "has an encoding without a state");
    berthi_stored_state(&values.storage, values.shape, values.rank, offset, &state);
    length = berthi_state_print(&state, whole, sizeof whole);
    if (length >= sizeof whole)
        return berthi_fail_argument(error, "options", "has a shape too long for a state");
    if (capacity > 0)
        memcpy(text, whole, length < capacity ? length : capacity);
    *out_length = length;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- ranges */

static const char *
find_range_mistake(const berthi_values_range *range)
{
    if (range->bytes != range->wanted)
        return "has another size than such a weight takes";
    if (range->bytes == 0)
        return range->memory == NULL ? NULL : "is not NULL, where there is nothing";
    if (range->memory == NULL)
        return "is NULL";
    if ((uintptr_t)range->memory % range->alignment != 0)
        return "is not aligned as its elements";
    if (range->bytes > UINTPTR_MAX - (uintptr_t)range->memory)
        return "ends beyond the end of memory";
    return NULL;
}

static bool
do_overlap(const berthi_values_range *a, const berthi_values_range *b)
{
    const uintptr_t a_begin = (uintptr_t)a->memory;
    const uintptr_t b_begin = (uintptr_t)b->memory;

    return a->bytes > 0 && b->bytes > 0 && a_begin < b_begin + b->bytes
           && b_begin < a_begin + a->bytes;
}

berth_status
berthi_values_check(const berthi_values_range *ranges, uint32_t count, berth_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        const berthi_values_range *const range = &ranges[i];
        const char *const mistake = find_range_mistake(range);

        if (mistake != NULL)
            return berthi_fail(error, BERTH_REASON_ARGUMENT,
                               &(berthi_about){ .has = BERTH_HAS_EXPECTED
                                                       | BERTH_HAS_ACTUAL
                                                       | BERTH_HAS_BYTES,
                                                .expected = range->wanted,
                                                .actual = range->bytes },
                               "argument `%s` %s", range->name, mistake);
        for (uint32_t k = 0; k < i; k++)
            if ((range->is_written || ranges[k].is_written)
                && do_overlap(range, &ranges[k]))
                return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                                   "argument `%s` overlaps `%s`", range->name,
                                   ranges[k].name);
    }
    return BERTH_OK;
}

static uint64_t
bytes_of(const berthi_values *values, berthi_role role)
{
    const berthi_stored *const stored = find_part(values, role);

    return stored != NULL ? stored->bytes : 0;
}

berth_status
berthi_values_take_buffers(const berthi_values *values,
                           const berth_values_buffers *buffers, bool is_written,
                           berth_values_buffers *mine, berthi_values_range *ranges,
                           uint32_t *count, berth_error *error)
{
    const berthi_role first = values->storage.encoding == BERTH_ENCODING_INT8
                                  ? BERTHI_ROLE_ROW_MAXIMUM
                                  : BERTHI_ROLE_ABSMAX;
    berth_status status;

    *count = 0;
    if (buffers == NULL)
        return berthi_fail_argument(error, "buffers", "is NULL");
    status = berthi_options_take(mine, sizeof *mine,
                                 offsetof(berth_values_buffers, reserved32), buffers,
                                 "buffers", error);
    if (status != BERTH_OK)
        return status;
    mine->struct_size = sizeof *mine;
    ranges[0] = (berthi_values_range){ "codes", mine->codes, mine->codes_bytes,
                                       bytes_of(values, BERTHI_ROLE_CODES), 1, is_written };
    ranges[1] = (berthi_values_range){ "absmax", mine->absmax, mine->absmax_bytes,
                                       bytes_of(values, first),
                                       values->storage.is_double ? 1 : sizeof(float),
                                       is_written };
    ranges[2] = (berthi_values_range){ "absmax2", mine->absmax2, mine->absmax2_bytes,
                                       bytes_of(values, BERTHI_ROLE_ABSMAX2),
                                       sizeof(float), is_written };
    *count = 3;
    return BERTH_OK;
}
