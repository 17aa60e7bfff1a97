/* SPDX-License-Identifier: Apache-2.0 */
/* layout_check.c - refuses before anything is written. */
#include "loader/layout_check.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/layout_header.h"
#include "loader/layout_name.h"
#include "loader/safetensors.h"
#include "quant/format.h"

/* A NULL shape is one dim of `bytes` bytes, so nothing of it can be wrong. */
static berth_status
check_shape(const berthi_layout_tensor *tensor, berth_error *error)
{
    uint64_t elements;
    uint64_t bits;

    if (tensor->shape == NULL)
        return BERTH_OK;
    if (tensor->rank > BERTHI_MAX_RANK)
        return berthi_layout_name_fail(error, BERTH_REASON_RANK, tensor,
                                       "it has too many dimensions");
    if (!berthi_format_can_count(tensor->shape, tensor->rank, &elements)
        || !berthi_can_mul(elements, berth_dtype_bits(tensor->dtype), &bits))
        return berthi_layout_name_fail(error, BERTH_REASON_OVERFLOW, tensor,
                                       "its size in bits does not fit 64 bits");
    if (bits % 8 != 0)
        return berthi_layout_name_fail(error, BERTH_REASON_SUBBYTE, tensor,
                                       "its bits do not fill whole bytes");
    if (bits / 8 != tensor->bytes)
        return berthi_layout_name_fail(error, BERTH_REASON_SIZE_MISMATCH, tensor,
                                       "dtype and shape need another number of bytes");
    return BERTH_OK;
}

static berth_status
check_contract(const berthi_layout_tensor *tensor, berth_error *error)
{
    const uint32_t bits = berth_dtype_bits(tensor->dtype);

    if ((tensor->shape == NULL ? bits == 8 : bits > 0 && !tensor->is_late)
        && (tensor->group == 0 || !tensor->is_late))
        return BERTH_OK;
    return berthi_layout_name_fail(error, BERTH_REASON_INTERNAL, tensor,
                                   "a layout cannot hold such a tensor");
}

static berth_status
check_name(berthi_layout_tensor *tensor, berth_error *error)
{
    const char *const problem = berthi_layout_name_problem(tensor);
    uint64_t bytes;

    if (problem != NULL)
        return berthi_layout_name_fail(error, BERTH_REASON_NAME, tensor, problem);
    bytes = berthi_layout_header_text_bytes(tensor);
    if (bytes > BERTHI_HEADER_LIMIT)
        return berthi_layout_name_fail(error, BERTH_REASON_UNSUPPORTED, tensor,
                                       "the name is too long for any header");
    tensor->text_bytes = (uint32_t)bytes;
    return BERTH_OK;
}

static berth_status
check_tensor(berthi_layout_tensor *tensor, berth_error *error)
{
    berth_status status = check_contract(tensor, error);

    if (status == BERTH_OK)
        status = check_shape(tensor, error);
    tensor->shard = 0;
    tensor->offset = 0;
    if (status == BERTH_OK)
        status = check_name(tensor, error);
    return status;
}

berth_status
berthi_layout_check_tensors(berthi_layout_tensor *tensors, uint64_t count,
                            berth_error *error)
{
    uint64_t left = BERTHI_LAYOUT_MAX_BYTES;

    if (count > BERTHI_LAYOUT_MAX_TENSORS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%" PRIu64 " tensors are too many for one model", count);
    for (uint64_t i = 0; i < count; i++) {
        const berth_status status = check_tensor(&tensors[i], error);

        if (status != BERTH_OK)
            return status;
        if (tensors[i].bytes > left)
            return berthi_layout_name_fail(error, BERTH_REASON_UNSUPPORTED, &tensors[i],
                                           "with it the model is larger than any disk");
        left -= tensors[i].bytes;
    }
    return BERTH_OK;
}

static bool
is_text(const char *text)
{
    const size_t length = strlen(text);

    return berthi_utf8_check((const unsigned char *)text, length) == length;
}

berth_status
berthi_layout_check_options(const berthi_layout_options *options, berth_error *error)
{
    for (uint32_t i = 0; i < options->pair_count; i++) {
        const berthi_layout_pair *const pair = &options->pairs[i];

        if (!is_text(pair->key) || !is_text(pair->value)
            || (i > 0 && strcmp(pair[-1].key, pair->key) >= 0))
            return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                               "metadata of a layout is not in order or not UTF-8");
    }
    return BERTH_OK;
}

berth_status
berthi_layout_check_header(uint64_t bytes, berth_error *error)
{
    const berthi_about about = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                        | BERTH_HAS_BYTES,
                                 .expected = BERTHI_HEADER_LIMIT,
                                 .actual = bytes };

    if (bytes <= BERTHI_HEADER_LIMIT)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "a shard would hold so many tensors that no reader takes its "
                       "header: choose smaller shards");
}
