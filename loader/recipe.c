/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - every tensor of a checkpoint, its decision, its new tensors. */
#include "loader/recipe_weight.h"

#include <string.h>

#include "loader/document.h"
#include "quant/dequantize.h"

#define ARENA_BLOCK 65536u
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

berth_status
berthi_recipe_check_decoder(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
                            berth_error *error)
{
    const berthi_quantized *const record = berthi_recipe_record(recipe, weight);
    const berthi_about about = berthi_recipe_about(recipe, weight);

    if (record == NULL || berthi_decoder_is_there(record))
        return BERTH_OK;
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

    weight->record = berthi_recipe_entry(recipe, weight)->owner;
    record = berthi_recipe_record(recipe, weight);
    weight->shape = record->shape;
    weight->rank = record->rank;
    weight->elements = record->elements;
    if (record->encoding == BERTH_ENCODING_MXFP4 && weight->name_length > suffix)
        weight->name_length -= (uint32_t)suffix;
    return recipe->keeps_foreign ? BERTH_OK
                                 : berthi_recipe_check_decoder(recipe, weight, error);
}

/* Every tensor that is not somebody's statistics, in bytewise order of names. */
static berth_status
list_weights(berthi_recipe *recipe, berth_error *error)
{
    const berthi_table *const table = &recipe->checkpoint->table;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < table->entry_count; i++) /* below 2^32: classify */
        recipe->weight_capacity += table->entries[i].flags != BERTH_ENCODING_STATISTICS;
    recipe->weights =
        berthi_memory_array(recipe->context, BERTHI_PURPOSE_TENSORS,
                            recipe->weight_capacity, sizeof *recipe->weights);
    if (recipe->weights == NULL)
        return berthi_fail_memory(error, "the list of weights");
    for (uint64_t i = 0; i < table->entry_count && status == BERTH_OK; i++) {
        const berthi_entry *const entry = &table->entries[table->by_name[i]];
        berthi_recipe_weight *const weight = &recipe->weights[recipe->weight_count];

        if (entry->flags == BERTH_ENCODING_STATISTICS)
            continue;
        *weight = (berthi_recipe_weight){
            .tensor = table->by_name[i],
            .name = berthi_entry_name(table->text, entry),
            .name_length = entry->name_length,
        };
        recipe->weight_count++;
        status = entry->flags == BERTH_ENCODING_NATIVE
                     ? describe_native(recipe, weight, error)
                     : describe_quantized(recipe, weight, error);
    }
    return status;
}

/* ------------------------------------------------------------------- the model */

/*
 * Asked for, or the model's; 4.x takes float32 whatever there is, and float16 for what is
 * quantized.
 */
static int32_t
choose_dtype(const berthi_recipe *recipe, const berth_convert_options *options)
{
    const berthi_config *const config = &recipe->checkpoint->config;

    if (options->dtype >= 0)
        return options->dtype;
    if (recipe->era == BERTHI_ERA_HF4)
        return options->type == BERTH_ENCODING_NATIVE && !config->has_quantization
                   ? BERTH_F32
                   : BERTH_F16;
    return berthi_checkpoint_dtype(recipe->checkpoint);
}

static berth_status
lay_out_model(berthi_recipe *recipe, const berthi_model_source *source,
              const berthi_catalogue *catalogue, const char *config_file,
              berth_error *error)
{
    const berthi_config *const config = &recipe->checkpoint->config;
    const berthi_architecture_options options = {
        .catalogue = catalogue,
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

/* The same, as long as the recipe is there. */
static const uint64_t *
stored_shape(berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    uint64_t *turned;

    if (!weight->is_turned)
        return weight->shape;
    turned = berthi_arena_alloc(&recipe->arena, 2 * sizeof *turned, sizeof *turned);
    return turned != NULL ? berthi_recipe_stored_shape(weight, turned) : NULL;
}

/* The part of a name that begins at `at`; its end is after the dot. */
static uint32_t
part_end(const berthi_recipe_weight *weight, uint32_t at, bool *out_is_number)
{
    const uint32_t begin = at;

    *out_is_number = true;
    for (; at < weight->name_length && weight->name[at] != '.'; at++)
        if (weight->name[at] < '0' || weight->name[at] > '9')
            *out_is_number = false;
    *out_is_number = *out_is_number && at > begin;
    return at + (at < weight->name_length);
}

/* True when two names differ in parts that are numbers only. */
static bool
is_called_alike(const berthi_recipe_weight *a, const berthi_recipe_weight *b)
{
    uint32_t i = 0;
    uint32_t k = 0;

    while (i < a->name_length && k < b->name_length) {
        bool is_number_a;
        bool is_number_b;
        const uint32_t i_end = part_end(a, i, &is_number_a);
        const uint32_t k_end = part_end(b, k, &is_number_b);

        if (is_number_a != is_number_b
            || (!is_number_a
                && (i_end - i != k_end - k
                    || memcmp(a->name + i, b->name + k, i_end - i) != 0)))
            return false;
        i = i_end;
        k = k_end;
    }
    return i == a->name_length && k == b->name_length;
}

/* As what the model calls it, it is put into a shard; less what is cut off. */
static void
name_for_fill(const berthi_recipe *recipe, uint32_t number, berthi_layout_tensor *tensor)
{
    const berthi_recipe_weight *const weight = &recipe->weights[number];
    const berthi_parameter *const parameter = recipe->architecture->parameter_of[number];
    const uint32_t cut = weight->name_length - tensor->name_length;

    if (parameter->name_length <= cut || parameter->name_length > UINT32_MAX)
        return;
    tensor->fill_name = parameter->name;
    tensor->fill_name_length = (uint32_t)parameter->name_length - cut;
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

        /* Bytes in one dimension have no other shape than their number. */
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
        .group = weight->group,
        .dtype = stored->dtype,
        .is_late = stored->is_late,
    };
    name_for_fill(recipe, number, &recipe->tensors[recipe->output_count]);
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
    for (uint32_t i = 0; i < weight->output_count; i++) {
        berthi_recipe_finish_state(recipe, weight, &stored[i]);
        if (!can_add_output(recipe, number, &stored[i], shape))
            return berthi_fail_memory(error, "the list of new tensors");
    }
    return BERTH_OK;
}

/* Kinds of pieces that a parameter consists of: gates and ups of experts are two. */
#define PIECE_KINDS 8u

/*
 * Pieces of a parameter that transformers fuses. It writes them as views of one
 * memory, which it does not divide: experts those of all that are called alike,
 * "experts.*.up_proj.weight"; others all.
 */
static void
group_pieces(berthi_recipe *recipe, const berthi_parameter *parameter, uint32_t *groups)
{
    const uint32_t *const next = recipe->architecture->next_piece;
    const berthi_recipe_weight *kinds[PIECE_KINDS];
    uint32_t count = 0;

    for (uint32_t i = parameter->first_piece; i != BERTHI_NO_POSITION; i = next[i]) {
        berthi_recipe_weight *const weight = &recipe->weights[i];
        uint32_t kind = 0;

        if (weight->storage.encoding != BERTH_ENCODING_NATIVE)
            continue;
        while (kind < count && parameter->is_experts
               && !is_called_alike(weight, kinds[kind]))
            kind++;
        if (kind == PIECE_KINDS)
            continue;
        if (kind == count) {
            kinds[count++] = weight;
            weight->group = ++*groups;
        } else {
            weight->group = kinds[kind]->group;
        }
    }
}

static void
find_groups(berthi_recipe *recipe)
{
    const berthi_architecture *const architecture = recipe->architecture;
    uint32_t groups = 0;

    for (uint32_t i = 0; i < architecture->parameter_count; i++)
        if (architecture->parameters[i]->piece_count > 1)
            group_pieces(recipe, architecture->parameters[i], &groups);
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
    find_groups(recipe);
    for (uint32_t i = 0; i < recipe->weight_count && status == BERTH_OK; i++)
        status = add_outputs(recipe, i, error);
    return status;
}

/* ----------------------------------------------------------------------- calls */

/* *out is to be destroyed; NULL without a path: the one that is built in. */
static berth_status
read_catalogue(berth_context *context, const char *path, berthi_catalogue **out,
               berth_error *error)
{
    berthi_document document;
    berth_status status;

    *out = NULL;
    if (path == NULL)
        return BERTH_OK;
    status = berthi_document_read(context, path, BERTHI_CATALOGUE_LIMIT,
                                  BERTH_REASON_ARCHITECTURES_JSON,
                                  "a file of model classes", &document, error);
    if (status == BERTH_OK)
        status = berthi_catalogue_create(context, document.text, document.bytes, path, out,
                                         error);
    berthi_document_fini(&document);
    return status;
}

static berth_status
make(berthi_recipe *recipe, const berth_convert_options *options,
     const char *architectures, berth_error *error)
{
    const berthi_model_source source = { recipe, recipe->weight_count,
                                         berthi_recipe_get_tensor };
    const berth_checkpoint *const checkpoint = recipe->checkpoint;
    berthi_catalogue *catalogue = NULL;
    berth_status status = berthi_checkpoint_parse_config(checkpoint, recipe->context,
                                                         &recipe->config, error);

    recipe->dtype = choose_dtype(recipe, options);
    if (status == BERTH_OK)
        status = read_catalogue(recipe->context, architectures, &catalogue, error);
    if (status == BERTH_OK)
        status = lay_out_model(recipe, &source, catalogue,
                               recipe->config != NULL ? checkpoint->config_path : "", error);
    berthi_catalogue_destroy(recipe->context, catalogue);
    if (status == BERTH_OK)
        status = berthi_recipe_decide(recipe, &source, options, error);
    return status;
}

static berth_status
init(berthi_recipe *recipe, berth_context *context, const berth_checkpoint *checkpoint,
     const berth_convert_options *options, const char *architectures, bool is_written,
     berth_error *error)
{
    berth_status status;

    memset(recipe, 0, sizeof *recipe);
    recipe->era = BERTHI_ERA_HF5;
    if (options->like != NULL && !berthi_era_can_parse(options->like, &recipe->era))
        return berthi_fail_argument(error, "like",
                                    "is none of hf5, hf5.14, hf5.0 and hf4");
    recipe->context = context;
    recipe->checkpoint = checkpoint;
    recipe->is_written = is_written;
    recipe->keeps_foreign = !is_written && options->type == BERTH_ENCODING_NATIVE;
    berthi_arena_init(&recipe->arena, context, BERTHI_PURPOSE_TENSORS, ARENA_BLOCK);
    status = list_weights(recipe, error);
    if (status == BERTH_OK)
        status = make(recipe, options, architectures, error);
    if (status == BERTH_OK && is_written)
        status = list_outputs(recipe, error);
    if (status != BERTH_OK)
        berthi_recipe_fini(recipe);
    return status;
}

berth_status
berthi_recipe_init(berthi_recipe *recipe, berth_context *context,
                   const berth_checkpoint *checkpoint,
                   const berth_convert_options *options, berth_error *error)
{
    return init(recipe, context, checkpoint, options, NULL, true, error);
}

berth_status
berthi_recipe_init_decided(berthi_recipe *recipe, berth_context *context,
                           const berth_checkpoint *checkpoint,
                           const berth_convert_options *options,
                           const char *architectures, berth_error *error)
{
    return init(recipe, context, checkpoint, options, architectures, false, error);
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
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->weights,
                       recipe->weight_capacity * sizeof *recipe->weights);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->tensors,
                       recipe->output_capacity * sizeof *recipe->tensors);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, recipe->outputs,
                       recipe->output_capacity * sizeof *recipe->outputs);
    berthi_arena_fini(&recipe->arena);
    memset(recipe, 0, sizeof *recipe);
}
