/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted_oracle.c - what a conversion must give, the slow way: one tensor
 * after the other, each in one piece, one value after the other where values
 * are cast or turned. Which weights become what is the recipe's; how long
 * things are is known before anything is laid out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "loader/index_write.h"
#include "loader/recipe.h"
#include "quant/dequantize.h"
#include "quant/quantize.h"
#include "quant/state.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/laid.h"
#include "tests/t.h"
#include "tests/weights.h"

typedef struct oracle {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berthi_recipe recipe;
    uint8_t **data; /* one an output */
    int32_t changed;
} oracle;

static uint32_t
width_of(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

/* ------------------------------------------------------------------- the source */

/* The bytes of a tensor, to be freed; with a few behind them. */
static uint8_t *
read_tensor(const oracle *o, uint64_t number, uint64_t *out_bytes)
{
    const berth_checkpoint *const c = o->checkpoint;
    const berthi_entry *const entry = &c->table.entries[number];
    const berthi_shard *const shard = &c->shards[entry->shard];
    const uint64_t bytes = entry->end - entry->begin;
    uint8_t *const memory = weights_alloc(bytes + 16);
    FILE *const in = fopen(shard->file.path, "rb");
    const long at = (long)(8 + shard->header_bytes + entry->begin);

    if (in == NULL || fseek(in, at, SEEK_SET) != 0 || fread(memory, 1, bytes, in) != bytes)
        abort();
    fclose(in);
    *out_bytes = bytes;
    return memory;
}

static void *
decode_quantized(const oracle *o, const berthi_recipe_weight *weight, const void *codes)
{
    const berth_checkpoint *const c = o->checkpoint;
    const berthi_quantized *const record =
        berthi_classify_record(&c->quantized, weight->record);
    const int32_t dtype = weight->storage.dtype;
    void *const values = weights_alloc(weight->elements * width_of(dtype));
    berthi_companion companions[8];
    berthi_decoder decoder;
    void *statistics;
    uint32_t count;

    CHECK(berthi_decoder_can_init(&decoder, &berthi_scalar_operations, record));
    count = berthi_decoder_companions(&decoder);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t number = c->table.by_name[record->companions[i]];

        companions[i].dtype = c->table.entries[number].dtype;
        companions[i].bytes = read_tensor(o, number, &companions[i].size);
    }
    statistics = weights_alloc(berthi_decoder_statistics_bytes(&decoder));
    CHECK(berthi_decoder_can_prepare(&decoder, companions, statistics));
    berthi_decoder_decode(&decoder, 0, weight->elements, codes, dtype, values);
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)companions[i].bytes);
    free(statistics);
    return values;
}

static float
load_plain(const void *bytes, int32_t stored, uint64_t i)
{
    return stored == BERTH_F8_E4M3 ? berthi_core_from_e4m3(((const uint8_t *)bytes)[i])
                                   : berthi_core_load(bytes, stored, i);
}

static void *
decode_plain(const berthi_recipe_weight *weight, int32_t stored, const void *bytes)
{
    const int32_t dtype = weight->storage.dtype;
    void *const values = weights_alloc(weight->elements * width_of(dtype));

    if (stored == dtype) {
        memcpy(values, bytes, weight->elements * width_of(dtype));
        return values;
    }
    for (uint64_t i = 0; i < weight->elements; i++)
        berthi_core_store(values, dtype, i, load_plain(bytes, stored, i));
    return values;
}

static void *
turn(const berthi_recipe_weight *weight, void *values)
{
    const uint64_t rows = weight->shape[0];
    const uint64_t columns = weight->shape[1];
    const uint32_t width = width_of(weight->storage.dtype);
    uint8_t *const turned = weights_alloc(rows * columns * width);

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            memcpy(turned + (c * rows + r) * width,
                   (const uint8_t *)values + (r * columns + c) * width, width);
    free(values);
    return turned;
}

/* ------------------------------------------------------------------- the result */

static uint8_t **
place_of(oracle *o, const berthi_recipe_weight *weight, berthi_role role)
{
    for (uint32_t i = 0; i < weight->output_count; i++)
        if (o->recipe.outputs[weight->first_output + i].role == (int32_t)role)
            return &o->data[weight->first_output + i];
    return NULL;
}

static void
keep(oracle *o, const berthi_recipe_weight *weight, berthi_role role, const void *bytes,
     uint64_t size)
{
    uint8_t **const place = place_of(o, weight, role);

    if (place == NULL)
        return;
    *place = weights_alloc(size);
    if (size > 0)
        memcpy(*place, bytes, size);
    CHECK(o->recipe.tensors[place - o->data].is_late
          || o->recipe.tensors[place - o->data].bytes == size);
    o->recipe.tensors[place - o->data].bytes = size;
    o->recipe.tensors[place - o->data].is_late = false;
}

static float
keep_double(oracle *o, const berthi_recipe_weight *weight, const float *absmax,
            uint64_t blocks)
{
    const uint64_t outer = (blocks + 255) / 256;
    float *const partial = weights_alloc((berthi_mean_scratch(blocks, 0, 0) + 1) * 4);
    float *const scratch = weights_alloc(BERTHI_DOUBLE_SCRATCH * sizeof(float));
    float *const absmax2 = weights_alloc(outer * sizeof(float));
    uint8_t *const codes = weights_alloc(blocks);
    const float offset = berthi_mean(&(berthi_mean_arguments){
        .values = absmax, .count = blocks, .partial = partial });

    berthi_scalar_operations.encode_double(
        &(berthi_double_arguments){ .absmax = absmax, .count = blocks, .codes = codes,
                                    .absmax2 = absmax2, .offset = offset,
                                    .scratch = scratch });
    keep(o, weight, BERTHI_ROLE_ABSMAX, codes, blocks);
    keep(o, weight, BERTHI_ROLE_ABSMAX2, absmax2, outer * sizeof(float));
    free(partial);
    free(scratch);
    free(absmax2);
    free(codes);
    return offset;
}

static void
keep_4bit(oracle *o, const berthi_recipe_weight *weight, const void *values)
{
    const berthi_storage *const storage = &weight->storage;
    const uint64_t blocks =
        (weight->elements + storage->block_size - 1) / storage->block_size;
    const uint64_t code_bytes = (weight->elements + 1) / 2;
    uint8_t *const codes = weights_alloc(code_bytes);
    float *const absmax = weights_alloc(blocks * sizeof(float));
    const berthi_encode_arguments a = { .values = values,
                                        .dtype = storage->dtype,
                                        .block_size = storage->block_size,
                                        .count = weight->elements,
                                        .codes = codes,
                                        .absmax = absmax };
    const uint64_t turned[2] = { weight->shape[weight->rank > 1],
                                 weight->shape[0] };
    char text[BERTHI_STATE_TEXT_MAX];
    berthi_state state;
    float offset = 0;

    if (storage->encoding == BERTH_ENCODING_NF4)
        berthi_scalar_operations.encode_nf4(&a);
    else
        berthi_scalar_operations.encode_fp4(&a);
    keep(o, weight, BERTHI_ROLE_CODES, codes, code_bytes);
    if (storage->is_double)
        offset = keep_double(o, weight, absmax, blocks);
    else
        keep(o, weight, BERTHI_ROLE_ABSMAX, absmax, blocks * sizeof(float));
    berthi_stored_state(storage, weight->is_turned ? turned : weight->shape, weight->rank,
                        offset, &state);
    keep(o, weight, BERTHI_ROLE_STATE, text, berthi_state_print(&state, text, sizeof text));
    free(codes);
    free(absmax);
}

static void
keep_int8(oracle *o, const berthi_recipe_weight *weight, const void *values)
{
    const uint64_t rows = weight->shape[weight->is_turned ? 1 : 0];
    const uint64_t columns = weight->shape[weight->is_turned ? 0 : 1];
    int8_t *const codes = weights_alloc(rows * columns);
    float *const maxima = weights_alloc(rows * sizeof(float));

    berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
        values, weight->storage.dtype, rows, columns, codes, maxima });
    keep(o, weight, BERTHI_ROLE_CODES, codes, rows * columns);
    keep(o, weight, BERTHI_ROLE_ROW_MAXIMUM, maxima, rows * sizeof(float));
    free(codes);
    free(maxima);
}

static void
keep_constants(oracle *o, const berthi_recipe_weight *weight)
{
    uint8_t bytes[BERTHI_STORED_CONSTANT_MAX];

    for (int role = 0; role < BERTHI_ROLE_COUNT; role++) {
        const uint32_t size = berthi_stored_constant((berthi_role)role,
                                                     weight->storage.encoding, bytes);

        if (size > 0)
            keep(o, weight, (berthi_role)role, bytes, size);
    }
}

/* Stored so already: codes and statistics as they are, and a state like that of others. */
static void
keep_all(oracle *o, const berthi_recipe_weight *weight, const void *codes, uint64_t size)
{
    const berth_checkpoint *const c = o->checkpoint;
    const berthi_quantized *const record =
        berthi_classify_record(&c->quantized, weight->record);
    const bool is_int8 = weight->storage.encoding == BERTH_ENCODING_INT8;
    char text[BERTHI_STATE_TEXT_MAX];
    berthi_state state;

    keep(o, weight, BERTHI_ROLE_CODES, codes, size);
    for (uint32_t i = 0; i < (record->is_double ? 2u : 1u); i++) {
        const berthi_role role = is_int8  ? BERTHI_ROLE_ROW_MAXIMUM
                                 : i == 0 ? BERTHI_ROLE_ABSMAX
                                          : BERTHI_ROLE_ABSMAX2;
        uint64_t bytes;
        uint8_t *const statistics =
            read_tensor(o, c->table.by_name[record->companions[i]], &bytes);

        keep(o, weight, role, statistics, bytes);
        free(statistics);
    }
    berthi_stored_state(&weight->storage, weight->shape, weight->rank,
                        (float)record->offset, &state);
    if (!is_int8)
        keep(o, weight, BERTHI_ROLE_STATE, text,
             berthi_state_print(&state, text, sizeof text));
    keep_constants(o, weight);
}

static void
make_weight(oracle *o, const berthi_recipe_weight *weight)
{
    const int32_t encoding = weight->storage.encoding;
    const int32_t stored = o->checkpoint->table.entries[weight->tensor].dtype;
    uint64_t size;
    uint8_t *const bytes = read_tensor(o, weight->tensor, &size);
    void *values;

    if (weight->record == BERTHI_NO_RECORD && encoding == BERTH_ENCODING_NATIVE
        && stored == weight->storage.dtype && !weight->is_turned) {
        keep(o, weight, BERTHI_ROLE_VALUES, bytes, size);
        free(bytes);
        return;
    }
    if (weight->is_copied) {
        keep_all(o, weight, bytes, size);
        free(bytes);
        return;
    }
    o->changed++;
    values = weight->record != BERTHI_NO_RECORD ? decode_quantized(o, weight, bytes)
                                                : decode_plain(weight, stored, bytes);
    if (weight->is_turned)
        values = turn(weight, values);
    if (encoding == BERTH_ENCODING_NATIVE)
        keep(o, weight, BERTHI_ROLE_VALUES, values,
             weight->elements * width_of(weight->storage.dtype));
    else if (encoding == BERTH_ENCODING_INT8)
        keep_int8(o, weight, values);
    else
        keep_4bit(o, weight, values);
    keep_constants(o, weight);
    free(values);
    free(bytes);
}

/* -------------------------------------------------------------------- comparing */

static bool
is_file(const char *folder, const char *name, const laid_text *expected)
{
    char path[4096];
    size_t bytes;
    char *found;
    bool is_same;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    found = fixture_read(path, &bytes);
    is_same = CHECK_EQ(bytes, expected->length)
              && CHECK_MEM(found, expected->bytes, expected->length);
    free(found);
    if (!is_same)
        T_NOTE("%s differs", name);
    return is_same;
}

static bool
is_shard(oracle *o, const berthi_layout *layout, uint32_t number, const char *folder)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(layout, number);
    char name[BERTHI_LAYOUT_NAME];
    laid_text text = { .bytes = NULL };
    berth_error error;
    bool is_same;

    CHECK_EQ(berthi_layout_write_header(layout, number, laid_put, &text, &error), BERTH_OK);
    for (uint32_t i = 0; i < shard.tensor_count; i++) {
        const berthi_layout_tensor *const tensor = &o->recipe.tensors[shard.tensors[i]];

        if (tensor->bytes > 0)
            CHECK_EQ(laid_put(&text, (const char *)o->data[shard.tensors[i]],
                              tensor->bytes, text.length, &error),
                     BERTH_OK);
    }
    berthi_layout_shard_name(number, berthi_layout_shard_count(layout), name);
    is_same = is_file(folder, name, &text);
    free(text.bytes);
    return is_same;
}

static bool
is_index(const oracle *o, const berthi_layout *layout, const char *folder)
{
    laid_text text = { .bytes = NULL };
    bool is_same;

    CHECK_EQ(berthi_index_write(layout, o->recipe.parameters, laid_put, &text, NULL, NULL),
             BERTH_OK);
    is_same = is_file(folder, "model.safetensors.index.json", &text);
    free(text.bytes);
    return is_same;
}

static bool
is_output(oracle *o, const converted *c)
{
    const berthi_layout_options options = {
        .max_shard_bytes = c->options.max_shard_bytes > 0 ? c->options.max_shard_bytes
                                                          : UINT64_C(5000000000),
        .pairs = berthi_layout_format,
        .pair_count = 1,
    };
    berthi_layout *layout;
    berth_error error;
    bool is_same = true;

    if (!CHECK_EQ(berthi_layout_create(o->context, o->recipe.tensors,
                                       o->recipe.output_count, &options, &layout, &error),
                  BERTH_OK))
        return false;
    is_same = CHECK_EQ(c->report.shards, berthi_layout_shard_count(layout));
    for (uint32_t i = 0; is_same && i < berthi_layout_shard_count(layout); i++)
        is_same = is_shard(o, layout, i, c->options.output);
    if (is_same && berthi_layout_shard_count(layout) > 1)
        is_same = is_index(o, layout, c->options.output);
    berthi_layout_destroy(layout);
    return is_same;
}

int32_t
converted_matches_oracle(const converted *c, const char *path)
{
    berth_convert_options options = c->options;
    oracle o = { .changed = 0 };
    berth_error error;

    options.block_size = options.block_size > 0 ? options.block_size : 64;
    options.storage = options.storage >= 0 ? options.storage : BERTH_U8;
    CHECK_EQ(berth_context_create(NULL, &o.context, NULL), BERTH_OK);
    if (!CHECK_EQ(berth_checkpoint_open(o.context, path, NULL, &o.checkpoint, &error),
                  BERTH_OK)
        || !CHECK_EQ(berthi_recipe_init(&o.recipe, o.context, o.checkpoint, &options,
                                        &error),
                     BERTH_OK))
        return -1;
    o.data = calloc(o.recipe.output_count + 1, sizeof *o.data);
    if (o.data == NULL)
        abort();
    for (uint32_t i = 0; i < o.recipe.weight_count; i++)
        make_weight(&o, &o.recipe.weights[i]);
    if (!is_output(&o, c))
        o.changed = -1;
    for (uint32_t i = 0; i < o.recipe.output_count; i++)
        free(o.data[i]);
    free(o.data);
    berthi_recipe_fini(&o.recipe);
    berth_checkpoint_close(o.checkpoint);
    berth_context_destroy(o.context);
    return o.changed;
}
