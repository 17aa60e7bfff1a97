/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - every tensor of a checkpoint, its decision, its new tensors. */
#include "loader/recipe_weight.h"

#include <string.h>

#include "quant/dequantize.h"

#define CONFIG_NAME "config.json"
#define TEXT_BLOCK_BYTES 65536u
#define BLOCKS_SUFFIX "_blocks" /* of MXFP4: its values are called without it */

/* ------------------------------------------------------------------ the source */

void
berthi_recipe_get_tensor(void *user, uint32_t position, berthi_model_tensor *out)
{
    const berthi_recipe *const recipe = user;
    const berthi_recipe_weight *const weight = &recipe->weights[position];

    *out = (berthi_model_tensor){
        .name = weight->name,
        .name_length = weight->name_length,
        .shape = weight->shape,
        .elements = weight->elements,
        .rank = weight->rank,
        .dtype = berthi_recipe_values_dtype(recipe, weight),
    };
}

static berth_status
fail_encoding(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
              const berthi_quantized *record, berth_error *error)
{
    const berthi_about about = berthi_recipe_about(recipe, weight);

    return berthi_fail(error, BERTH_REASON_QUANT_METHOD, &about,
                       "is quantized as %s, which berth does not decode",
                       record->method);
}

/* A plain tensor keeps its shape in the table's packed text. */
static berth_status
describe_native(berthi_recipe *recipe, berthi_recipe_weight *weight, berth_error *error)
{
    const char *const text = recipe->checkpoint->table.text;
    const berthi_entry *const entry = berthi_recipe_entry(recipe, weight);
    uint64_t *const shape =
        berthi_arena_alloc(&recipe->arena, entry->rank * sizeof *shape, sizeof *shape);

    if (shape == NULL)
        return berthi_fail_memory(error, "the list of weights");
    berthi_entry_shape(text, entry, shape);
    weight->shape = shape;
    weight->rank = entry->rank;
    weight->elements = berthi_entry_elements(text, entry);
    weight->record = BERTHI_NO_RECORD;
    return BERTH_OK;
}

static berth_status
describe_quantized(berthi_recipe *recipe, berthi_recipe_weight *weight,
                   berth_error *error)
{
    const size_t suffix = strlen(BLOCKS_SUFFIX);
    const berthi_quantized *record;
    berthi_decoder decoder;

    weight->record = berthi_recipe_entry(recipe, weight)->owner;
    record = berthi_recipe_record(recipe, weight);
    weight->shape = record->shape;
    weight->rank = record->rank;
    weight->elements = record->elements;
    if (record->encoding == BERTH_ENCODING_MXFP4 && weight->name_length > suffix)
        weight->name_length -= (uint32_t)suffix;
    if (!berthi_decoder_can_init(&decoder, NULL, record))
        return fail_encoding(recipe, weight, record, error);
    return BERTH_OK;
}

/* Every tensor that is not somebody's statistics, in bytewise order of names. */
static berth_status
list_weights(berthi_recipe *recipe, berth_error *error)
{
    const berthi_table *const table = &recipe->checkpoint->table;
    berth_status status = BERTH_OK;

    recipe->weight_capacity = (uint32_t)table->entry_count; /* below 2^32: classify */
    recipe->weights =
        berthi_memory_zalloc(recipe->context, BERTHI_PURPOSE_TENSORS,
                             recipe->weight_capacity * sizeof *recipe->weights);
    if (recipe->weights == NULL)
        return berthi_fail_memory(error, "the list of weights");
    for (uint64_t i = 0; i < table->entry_count && status == BERTH_OK; i++) {
        const berthi_entry *const entry = &table->entries[table->by_name[i]];
        berthi_recipe_weight *const weight = &recipe->weights[recipe->weight_count];

        if (entry->flags == BERTH_ENCODING_STATISTICS)
            continue;
        weight->tensor = table->by_name[i];
        weight->name = berthi_entry_name(table->text, entry);
        weight->name_length = entry->name_length;
        recipe->weight_count++;
        status = entry->flags == BERTH_ENCODING_NATIVE
                     ? describe_native(recipe, weight, error)
                     : describe_quantized(recipe, weight, error);
    }
    return status;
}

/* ------------------------------------------------------------------- the model */

static berth_status
read_config(berthi_recipe *recipe, berthi_json_origin *origin, berth_error *error)
{
    berthi_location *const location = &recipe->location;
    bool has_config;
    berth_status status = berthi_location_has(location, CONFIG_NAME, &has_config, error);

    if (status != BERTH_OK || !has_config)
        return status;
    origin->file = berthi_location_path(location, CONFIG_NAME);
    if (origin->file == NULL)
        return berthi_fail_memory(error, "a path");
    status = berthi_location_read(location, CONFIG_NAME, BERTHI_CONFIG_LIMIT,
                                  origin->reason, &recipe->config_text,
                                  &recipe->config_bytes, error);
    if (status != BERTH_OK)
        return status;
    return berthi_json_parse(recipe->context, recipe->config_text, recipe->config_bytes,
                             BERTHI_JSON_NONFINITE, origin, &recipe->config, error);
}

/* What the first plain floats are stored as; BF16 when there are none. */
static int32_t
first_dtype(const berthi_recipe *recipe)
{
    for (uint32_t i = 0; i < recipe->weight_count; i++) {
        const berthi_recipe_weight *const weight = &recipe->weights[i];
        const int32_t dtype = berthi_recipe_entry(recipe, weight)->dtype;

        if (weight->record == BERTHI_NO_RECORD && berthi_recipe_is_floating(dtype))
            return dtype;
    }
    return BERTH_BF16;
}

/* Asked for, configured, or found; 4.x takes float16 whatever there is. */
static int32_t
choose_dtype(const berthi_recipe *recipe, int32_t wanted)
{
    const int32_t configured = recipe->checkpoint->config.dtype;

    if (wanted >= 0)
        return wanted;
    if (recipe->era == BERTHI_ERA_HF4)
        return BERTH_F16;
    return berthi_recipe_is_floating(configured) ? configured : first_dtype(recipe);
}

static berth_status
lay_out_model(berthi_recipe *recipe, const berthi_model_source *source,
              const char *config_file, berth_error *error)
{
    const berthi_config *const config = &recipe->checkpoint->config;
    const berthi_architecture_options options = {
        .class_name = config->architecture,
        .model_type = config->model_type,
        .config = recipe->config != NULL ? berthi_json_root(recipe->config) : NULL,
        .config_file = config_file,
        .era = recipe->era,
        .dtype = recipe->dtype,
    };

    return berthi_architecture_create(recipe->context, &options, source,
                                      &recipe->architecture, error);
}

/* ------------------------------------------------------------------ new tensors */

/* Rows and columns of what is stored. */
static const uint64_t *
stored_shape(berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    uint64_t *turned;

    if (!weight->is_turned)
        return weight->shape;
    turned = berthi_arena_alloc(&recipe->arena, 2 * sizeof *turned, sizeof *turned);
    if (turned != NULL) {
        turned[0] = weight->shape[1];
        turned[1] = weight->shape[0];
    }
    return turned;
}

static bool
can_add_output(berthi_recipe *recipe, uint32_t number, const berthi_stored *stored,
               const uint64_t *weight_shape)
{
    const berthi_recipe_weight *const weight = &recipe->weights[number];
    const berthi_stored_name name = berthi_stored_name_of(
        weight->name, weight->name_length, stored->role, weight->storage.encoding);
    const uint64_t *shape = berthi_stored_shape(stored, weight_shape);

    if (shape != weight_shape) {
        uint64_t *dims = NULL;

        /* Of bytes in one dimension their number tells. */
        if (stored->rank != 1 || berth_dtype_bits(stored->dtype) != 8) {
            dims = berthi_arena_alloc(&recipe->arena, stored->rank * sizeof *dims,
                                      sizeof *dims);
            if (dims == NULL)
                return false;
            memcpy(dims, shape, stored->rank * sizeof *dims);
        }
        shape = dims;
    }
    recipe->tensors[recipe->output_count] = (berthi_layout_tensor){
        .name = weight->name,
        .name_length = (uint32_t)name.kept,
        .suffix = name.suffix,
        .shape = shape,
        .bytes = stored->bytes,
        .rank = stored->rank,
        .dtype = stored->dtype,
        .is_late = stored->is_late,
    };
    recipe->outputs[recipe->output_count++] =
        (berthi_recipe_output){ .weight = number, .role = (int32_t)stored->role };
    return true;
}

static berth_status
add_outputs(berthi_recipe *recipe, uint32_t number, berth_error *error)
{
    berthi_recipe_weight *const weight = &recipe->weights[number];
    const uint64_t *const shape = stored_shape(recipe, weight);
    berthi_stored stored[BERTHI_STORED_MAX];

    weight->first_output = recipe->output_count;
    if (shape == NULL)
        return berthi_fail_memory(error, "the list of new tensors");
    (void)berthi_stored_list(&weight->storage, shape, weight->rank, stored);
    for (uint32_t i = 0; i < weight->output_count; i++)
        if (!can_add_output(recipe, number, &stored[i], shape))
            return berthi_fail_memory(error, "the list of new tensors");
    return BERTH_OK;
}

static berth_status
list_outputs(berthi_recipe *recipe, berth_error *error)
{
    const uint64_t capacity = recipe->output_capacity;
    berth_status status = BERTH_OK;

    recipe->tensors = berthi_memory_array(recipe->context, BERTHI_PURPOSE_TENSORS,
                                          capacity, sizeof *recipe->tensors);
    recipe->outputs = berthi_memory_array(recipe->context, BERTHI_PURPOSE_TENSORS,
                                          capacity, sizeof *recipe->outputs);
    if (recipe->tensors == NULL || recipe->outputs == NULL)
        return berthi_fail_memory(error, "the list of new tensors");
    for (uint32_t i = 0; i < recipe->weight_count && status == BERTH_OK; i++)
        status = add_outputs(recipe, i, error);
    return status;
}

/* ----------------------------------------------------------------------- calls */

static berth_status
make(berthi_recipe *recipe, const berth_convert_options *options, berth_error *error)
{
    const berthi_model_source source = { recipe, recipe->weight_count,
                                         berthi_recipe_get_tensor };
    berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "" };
    berth_status status = read_config(recipe, &origin, error);

    recipe->dtype = choose_dtype(recipe, options->dtype);
    if (status == BERTH_OK)
        status = lay_out_model(recipe, &source, origin.file, error);
    if (status == BERTH_OK)
        status = berthi_recipe_decide(recipe, &source, options, error);
    if (status == BERTH_OK)
        status = list_outputs(recipe, error);
    return status;
}

berth_status
berthi_recipe_init(berthi_recipe *recipe, berth_context *context,
                   const berth_checkpoint *checkpoint,
                   const berth_convert_options *options, berth_error *error)
{
    berth_status status;

    memset(recipe, 0, sizeof *recipe);
    recipe->era = BERTHI_ERA_HF5;
    if (options->like != NULL && !berthi_era_can_parse(options->like, &recipe->era))
        return berthi_fail_argument(error, "like",
                                    "is none of hf5, hf5.14, hf5.0 and hf4");
    status = berthi_location_init(&recipe->location, context, checkpoint->path, NULL,
                                  checkpoint->location.is_inside, error);
    if (status != BERTH_OK)
        return status;
    recipe->context = context;
    recipe->checkpoint = checkpoint;
    berthi_arena_init(&recipe->arena, context, BERTHI_PURPOSE_TENSORS, TEXT_BLOCK_BYTES);
    status = list_weights(recipe, error);
    if (status == BERTH_OK)
        status = make(recipe, options, error);
    if (status != BERTH_OK)
        berthi_recipe_fini(recipe);
    return status;
}

void
berthi_recipe_fini(berthi_recipe *recipe)
{
    berth_context *const context = recipe->context;

    if (context == NULL)
        return;
    berthi_coverage_fini(&recipe->coverage);
    berthi_rules_destroy(recipe->rules);
    berthi_rules_file_fini(&recipe->rules_file);
    berthi_architecture_destroy(recipe->architecture);
    berthi_json_destroy(recipe->config);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, recipe->config_text,
                       recipe->config_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->weights,
                       recipe->weight_capacity * sizeof *recipe->weights);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->tensors,
                       recipe->output_capacity * sizeof *recipe->tensors);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->outputs,
                       recipe->output_capacity * sizeof *recipe->outputs);
    berthi_arena_fini(&recipe->arena);
    berthi_location_fini(&recipe->location);
    memset(recipe, 0, sizeof *recipe);
}
