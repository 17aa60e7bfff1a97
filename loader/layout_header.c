/* SPDX-License-Identifier: Apache-2.0 */
/* layout_header.c - prints the members of a canonical header. */
#include "loader/layout_header.h"

#include <string.h>

#include "loader/layout_name.h"

static void
add_shape(berthi_json_text *t, const berthi_layout_tensor *tensor)
{
    if (tensor->shape == NULL)
        berthi_json_text_add_number(t, tensor->bytes);
    for (uint32_t i = 0; tensor->shape != NULL && i < tensor->rank; i++) {
        if (i > 0)
            berthi_json_text_add(t, ",", 1);
        berthi_json_text_add_number(t, tensor->shape[i]);
    }
}

void
berthi_layout_header_add_entry(berthi_json_text *text, const berthi_layout_tensor *tensor)
{
    berthi_layout_name_add(text, tensor, BERTHI_JSON_RAW);
    berthi_json_text_add_words(text, ":{\"dtype\":\"");
    berthi_json_text_add_words(text, berth_dtype_name(tensor->dtype));
    berthi_json_text_add_words(text, "\",\"shape\":[");
    add_shape(text, tensor);
    berthi_json_text_add_words(text, "],\"data_offsets\":[");
    berthi_json_text_add_number(text, tensor->offset);
    berthi_json_text_add(text, ",", 1);
    berthi_json_text_add_number(text, tensor->offset + tensor->bytes);
    berthi_json_text_add_words(text, "]}");
}

uint64_t
berthi_layout_header_number_bytes(const berthi_layout_tensor *tensor)
{
    uint64_t bytes = berthi_json_text_digits(tensor->offset);

    bytes += berthi_json_text_digits(tensor->offset + tensor->bytes);
    if (tensor->shape == NULL)
        bytes += berthi_json_text_digits(tensor->bytes);
    return bytes;
}

uint64_t
berthi_layout_header_text_bytes(const berthi_layout_tensor *tensor)
{
    berthi_json_text text;
    uint64_t bytes;

    berthi_json_text_begin(&text, NULL, NULL, NULL);
    berthi_layout_header_add_entry(&text, tensor);
    berthi_json_text_end(&text, &bytes);
    return bytes - berthi_layout_header_number_bytes(tensor);
}

void
berthi_layout_header_add_pairs(berthi_json_text *text, const berthi_layout_pair *pairs,
                               uint32_t count)
{
    if (pairs == NULL)
        return;
    berthi_json_text_add_words(text, "\"__metadata__\":{");
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            berthi_json_text_add(text, ",", 1);
        berthi_json_text_add_string(text, pairs[i].key, strlen(pairs[i].key),
                                    BERTHI_JSON_RAW);
        berthi_json_text_add(text, ":", 1);
        berthi_json_text_add_string(text, pairs[i].value, strlen(pairs[i].value),
                                    BERTHI_JSON_RAW);
    }
    berthi_json_text_add(text, "}", 1);
}
