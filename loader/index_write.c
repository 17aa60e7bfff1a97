/* SPDX-License-Identifier: Apache-2.0 */
/* index_write.c - prints the index of a layout, a tensor a line. */
#include "loader/index_write.h"

#include "loader/layout_name.h"

static void
add_head(berthi_json_text *text, const berthi_layout *layout, uint64_t parameters)
{
    berthi_json_text_add_words(text, "{\n  \"metadata\": {\n    \"total_parameters\": ");
    berthi_json_text_add_number(text, parameters);
    berthi_json_text_add_words(text, ",\n    \"total_size\": ");
    berthi_json_text_add_number(text, berthi_layout_total_bytes(layout));
    berthi_json_text_add_words(text, "\n  },\n  \"weight_map\": {");
}

static void
add_tensor(berthi_json_text *text, const berthi_layout_tensor *tensor,
           uint32_t shard_count)
{
    char file[BERTHI_LAYOUT_NAME];

    berthi_layout_shard_name(tensor->shard, shard_count, file);
    berthi_json_text_add_words(text, "\n    ");
    berthi_layout_name_add(text, tensor, BERTHI_JSON_ASCII);
    berthi_json_text_add_words(text, ": \"");
    berthi_json_text_add_words(text, file);
    berthi_json_text_add_words(text, "\"");
}

berth_status
berthi_index_write(const berthi_layout *layout, uint64_t parameters, berthi_json_put put,
                   void *user, uint64_t *out_bytes, berth_error *error)
{
    const berthi_layout_tensor *const tensors = berthi_layout_tensors(layout);
    const uint32_t *const order = berthi_layout_name_order(layout);
    const uint64_t count = berthi_layout_tensor_count(layout);
    const uint32_t shard_count = berthi_layout_shard_count(layout);
    berthi_json_text text;

    berthi_json_text_begin(&text, put, user, error);
    add_head(&text, layout, parameters);
    for (uint64_t i = 0; i < count; i++) {
        berthi_json_text_add_words(&text, i > 0 ? "," : "");
        add_tensor(&text, &tensors[order[i]], shard_count);
    }
    berthi_json_text_add_words(&text, count > 0 ? "\n  }\n}\n" : "}\n}\n");
    return berthi_json_text_end(&text, out_bytes);
}
