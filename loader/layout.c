/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - sorts the tensors once, prints headers, and answers. */
#include "loader/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loader/layout_check.h"
#include "loader/layout_divide.h"
#include "loader/layout_header.h"
#include "loader/layout_name.h"
#include "loader/listing.h"
#include "loader/safetensors.h"
#include "loader/sort.h"

const berthi_layout_pair berthi_layout_format[1] = { { "format", "pt" } };

/* -------------------------------------------------------------------- creating */

/* For the sorts; `twin` is set when two names are the same. */
typedef struct order {
    const berthi_layout_tensor *tensors;
    const berthi_layout_tensor *twin;
} order;

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    order *const o = user;
    const int result = berthi_layout_name_compare(&o->tensors[a], &o->tensors[b], shared);

    if (result == 0)
        o->twin = &o->tensors[b];
    return result;
}

static int
compare_fill(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const order *const o = user;

    (void)shared; /* the order of numbers is not that of their bytes */
    return berthi_layout_name_compare_fill(&o->tensors[a], &o->tensors[b]);
}

/* From order of names: equal dtypes stay as they are. */
static void
sort_by_content(berthi_layout *layout)
{
    uint32_t next[BERTH_DTYPE_COUNT + 1] = { 0 };

    for (uint32_t i = 0; i < layout->count; i++)
        next[layout->tensors[i].dtype + 1]++;
    for (uint32_t i = 0; i < BERTH_DTYPE_COUNT; i++)
        next[i + 1] += next[i];
    for (uint32_t i = 0; i < layout->count; i++) {
        const uint32_t number = layout->by_name[i];

        layout->by_content[next[layout->tensors[number].dtype]++] = number;
    }
}

static berth_status
sort_tensors(berthi_layout *layout, bool is_in_order, berth_error *error)
{
    order o = { .tensors = layout->tensors };

    berthi_sort_number(layout->by_name, layout->count);
    if (!berthi_sort_arrange(layout->context, layout->by_name, layout->count,
                             compare_names, &o))
        return berthi_fail_memory(error, "sorting the names of tensors");
    if (o.twin != NULL)
        return berthi_layout_name_fail(error, BERTH_REASON_DUPLICATE, o.twin,
                                       "two tensors would have this name");
    sort_by_content(layout);
    if (is_in_order) {
        berthi_sort_number(layout->by_fill, layout->count);
        return BERTH_OK;
    }
    /* Nearly the same order. */
    memcpy(layout->by_fill, layout->by_name, layout->count * sizeof *layout->by_fill);
    if (!berthi_sort_arrange(layout->context, layout->by_fill, layout->count,
                             compare_fill, &o))
        return berthi_fail_memory(error, "sorting the names of tensors");
    return BERTH_OK;
}

/* An empty map without tensors is left out: some writers break the file there. */
static void
take_pairs(berthi_layout *layout, const berthi_layout_options *options)
{
    berthi_json_text text;

    layout->pair_count = options->pair_count;
    if (options->pair_count > 0 || layout->count > 0)
        layout->pairs = options->pairs;
    berthi_json_text_begin(&text, NULL, NULL, NULL);
    berthi_layout_header_add_pairs(&text, layout->pairs, layout->pair_count);
    berthi_json_text_end(&text, &layout->frame_bytes);
    layout->frame_bytes += 2; /* the braces */
}

/* False: out of memory. */
static bool
alloc_orders(berthi_layout *layout)
{
    const uint64_t count = layout->count;

    layout->by_name = berthi_memory_array(layout->context, BERTHI_PURPOSE_TENSORS,
                                          4 * count, sizeof *layout->by_name);
    if (layout->by_name == NULL)
        return false;
    layout->by_fill = layout->by_name + count;
    layout->by_content = layout->by_fill + count;
    layout->places = layout->by_content + count;
    return true;
}

berth_status
berthi_layout_create(berth_context *context, berthi_layout_tensor *tensors,
                     uint64_t count, const berthi_layout_options *options,
                     berthi_layout **out_layout, berth_error *error)
{
    berthi_layout *layout;
    berth_status status = berthi_layout_check_options(options, error);

    *out_layout = NULL;
    if (status == BERTH_OK)
        status = berthi_layout_check_tensors(tensors, count, error);
    if (status != BERTH_OK)
        return status;
    layout = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *layout);
    if (layout == NULL)
        return berthi_fail_memory(error, "laying out the shards");
    layout->context = context;
    layout->tensors = tensors;
    layout->count = (uint32_t)count;
    layout->max_shard_bytes =
        options->max_shard_bytes > 0 ? options->max_shard_bytes : UINT64_MAX;
    take_pairs(layout, options);
    if (!alloc_orders(layout)) {
        status = berthi_fail_memory(error, "laying out the shards");
        goto fail;
    }
    status = sort_tensors(layout, options->is_in_order, error);
    if (status == BERTH_OK)
        status = berthi_layout_divide_changed(layout, NULL, error);
    if (status != BERTH_OK)
        goto fail;
    *out_layout = layout;
    return BERTH_OK;

fail:
    berthi_layout_destroy(layout);
    return status;
}

void
berthi_layout_destroy(berthi_layout *layout)
{
    if (layout == NULL)
        return;
    berthi_memory_free(layout->context, BERTHI_PURPOSE_TENSORS, layout->by_name,
                       (uint64_t)layout->count * 4 * sizeof *layout->by_name);
    berthi_memory_free(layout->context, BERTHI_PURPOSE_TENSORS, layout->shards,
                       layout->shard_capacity * sizeof *layout->shards);
    berthi_memory_free(layout->context, BERTHI_PURPOSE_OBJECT, layout, sizeof *layout);
}

/* --------------------------------------------------------------------- queries */

uint64_t
berthi_layout_tensor_count(const berthi_layout *layout)
{
    return layout->count;
}

uint32_t
berthi_layout_shard_count(const berthi_layout *layout)
{
    return layout->shard_count;
}

uint64_t
berthi_layout_total_bytes(const berthi_layout *layout)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < layout->shard_count; i++)
        total += layout->shards[i].payload_bytes;
    return total;
}

berthi_layout_shard
berthi_layout_shard_at(const berthi_layout *layout, uint32_t shard_number)
{
    const berthi_layout_part *const part = &layout->shards[shard_number];

    return (berthi_layout_shard){ .tensors = layout->places + part->first,
                                  .tensor_count = part->count,
                                  .header_bytes = part->header_bytes,
                                  .payload_bytes = part->payload_bytes };
}

const berthi_layout_tensor *
berthi_layout_tensors(const berthi_layout *layout)
{
    return layout->tensors;
}

const uint32_t *
berthi_layout_fill_order(const berthi_layout *layout)
{
    return layout->by_fill;
}

const uint32_t *
berthi_layout_name_order(const berthi_layout *layout)
{
    return layout->by_name;
}

/* ---------------------------------------------------------------------- output */

void
berthi_layout_shard_name(uint32_t shard_number, uint32_t shard_count,
                         char out_name[BERTHI_LAYOUT_NAME])
{
    if (shard_count == 1)
        snprintf(out_name, BERTHI_LAYOUT_NAME, BERTHI_SINGLE_NAME);
    else
        snprintf(out_name, BERTHI_LAYOUT_NAME,
                 "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", shard_number + 1,
                 shard_count);
}

/* Nothing was guessed, and nothing has changed since it was measured. */
static bool
is_final(const berthi_layout *layout, const berthi_layout_part *part)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < part->count; i++) {
        const berthi_layout_tensor *const tensor =
            berthi_layout_part_tensor(layout, part, i);

        if (tensor->is_late || tensor->offset != end)
            return false;
        end += tensor->bytes;
    }
    return end == part->payload_bytes;
}

static void
add_length(berthi_json_text *text, uint64_t length)
{
    char bytes[BERTHI_HEADER_PREFIX];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(unsigned char)(length >> 8 * i);
    berthi_json_text_add(text, bytes, sizeof bytes);
}

berth_status
berthi_layout_write_header(const berthi_layout *layout, uint32_t shard_number,
                           berthi_json_put put, void *user, berth_error *error)
{
    const berthi_layout_part *const part = &layout->shards[shard_number];
    uint64_t padding = part->header_bytes - berthi_layout_part_text_bytes(layout, part);
    berthi_json_text text;

    if (!is_final(layout, part) || padding >= BERTHI_LAYOUT_ALIGNMENT)
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "a header is wanted while lengths are guessed");
    berthi_json_text_begin(&text, put, user, error);
    add_length(&text, part->header_bytes);
    berthi_json_text_add(&text, "{", 1);
    berthi_layout_header_add_pairs(&text, layout->pairs, layout->pair_count);
    for (uint32_t i = 0; i < part->count; i++) {
        if (i > 0 || layout->pairs != NULL)
            berthi_json_text_add(&text, ",", 1);
        berthi_layout_header_add_entry(&text, berthi_layout_part_tensor(layout, part, i));
    }
    berthi_json_text_add(&text, "}", 1);
    for (; padding > 0; padding--)
        berthi_json_text_add(&text, " ", 1);
    return berthi_json_text_end(&text, NULL);
}
