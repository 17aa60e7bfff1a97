/* SPDX-License-Identifier: Apache-2.0 */
/* plan_input.c - everything that the planner is told, in order; see plan_input.h. */
#include "loader/plan_input.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/plan_map.h"
#include "quant/format.h"

#define ARENA_BLOCK 65536u /* lists of tensors get blocks of their own */
#define SHAPE_DIMS 64u /* the most that headers have */
#define SHAPE_BYTES (2u + 8u * SHAPE_DIMS)

/* ------------------------------------------------------------------------ recipe */

/* What is asked of quantizing, as the recipe takes it. */
static berth_status
make_recipe(berthi_plan_source *source, berth_error *error)
{
    const berth_plan_options *const given = source->options;
    berth_convert_options options;

    berth_convert_options_init(&options);
    options.type = given->type;
    options.dtype = berthi_plan_is_cast(given) ? BERTH_F32 : given->dtype;
    options.storage = given->storage >= 0 ? given->storage : BERTH_U8;
    options.block_size = given->block_size > 0 ? given->block_size : 64;
    options.double_quant = given->double_quant;
    options.takes_experts = given->takes_experts;
    options.like = given->like;
    options.skip_modules = given->skip_modules;
    options.keep = given->keep;
    options.only = given->only;
    options.skip_count = given->skip_count;
    options.keep_count = given->keep_count;
    options.only_count = given->only_count;
    options.has_skips = given->has_skips;
    options.reject_skips = given->reject_skips;
    options.rules = given->rules;
    return berthi_recipe_init_decided(&source->recipe, source->context,
                                        source->checkpoint, &options,
                                        given->architectures, error);
}

/* For training there is no plan without these numbers; else one without a KV cache. */
static berth_status
read_shape(berthi_plan_source *source, berth_error *error)
{
    const char *const path = source->checkpoint->config_path;
    const berthi_json *const config = source->recipe.config;
    const bool is_needed = source->options->train != NULL;
    berth_error problem;

    if (config == NULL && is_needed)
        return berthi_fail(error, BERTH_REASON_CONFIG_JSON, &(berthi_about){ .file = path },
                           "training is planned with the model's config.json, and there is "
                           "none");
    if (config == NULL) {
        berthi_plan_warn(source->options, BERTH_REASON_CONFIG_JSON,
                         "there is no config.json: the order of layers is guessed from the "
                         "names of tensors, and no room is kept for a KV cache");
        return BERTH_OK;
    }
    source->shape = berthi_arena_alloc(&source->arena, sizeof *source->shape, 16);
    if (source->shape == NULL)
        return berthi_fail_memory(error, "reading the model's shape");
    if (is_needed)
        return berthi_shape_read(berthi_json_root(config), path, source->shape, error);
    if (berthi_shape_read(berthi_json_root(config), "config.json", source->shape, &problem)
        == BERTH_OK)
        return BERTH_OK;
    source->shape = NULL;
    berthi_plan_warn(source->options, BERTH_REASON_CONFIG_JSON,
                     "config.json: %s; no room is kept for a KV cache", problem.message);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ digest */

/* Eight bytes, lowest first: one store, which compilers see only so. */
static void
spell_number(uint64_t number, uint8_t *out)
{
    out[0] = (uint8_t)number;
    out[1] = (uint8_t)(number >> 8);
    out[2] = (uint8_t)(number >> 16);
    out[3] = (uint8_t)(number >> 24);
    out[4] = (uint8_t)(number >> 32);
    out[5] = (uint8_t)(number >> 40);
    out[6] = (uint8_t)(number >> 48);
    out[7] = (uint8_t)(number >> 56);
}

/* A zero byte behind the name, the dtype, the dims as numbers. */
static size_t
spell_shape(const berthi_table *table, const berthi_entry *entry, uint8_t *out)
{
    uint64_t shape[SHAPE_DIMS];
    size_t size = 0;

    berthi_entry_shape(table->text, entry, shape);
    out[size++] = 0;
    out[size++] = entry->dtype;
    for (uint32_t d = 0; d < entry->rank; d++, size += 8)
        spell_number(shape[d], out + size);
    return size;
}

uint32_t
berthi_plan_digest(const berth_checkpoint *checkpoint)
{
    const berthi_table *const table = &checkpoint->table;
    uint8_t buffer[8192]; /* long pieces: a crc of a few bytes costs as much */
    size_t used = 0;
    uint32_t crc = 0;

    for (uint64_t i = 0; i < table->entry_count; i++) {
        const berthi_entry *const entry = &table->entries[table->by_name[i]];
        const char *const name = berthi_entry_name(table->text, entry);

        if (used + entry->name_length + SHAPE_BYTES > sizeof buffer) {
            crc = berthi_digest_crc32(crc, buffer, used);
            used = 0;
        }
        if (entry->name_length + SHAPE_BYTES > sizeof buffer) {
            crc = berthi_digest_crc32(crc, name, entry->name_length);
        } else {
            memcpy(buffer + used, name, entry->name_length);
            used += entry->name_length;
        }
        used += spell_shape(table, entry, buffer + used);
    }
    return berthi_digest_crc32(crc, buffer, used);
}

berth_status
berthi_plan_check_digest(const berth_plan *plan, const berth_checkpoint *checkpoint,
                         uint32_t digest, berth_error *error)
{
    if (digest == plan->summary.digest)
        return BERTH_OK;
    return berthi_fail(
        error, BERTH_REASON_PLAN_CHECKPOINT,
        &(berthi_about){ .file = checkpoint->path,
                        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_CRC32,
                        .expected = plan->summary.digest,
                        .actual = digest },
        "names, dtypes or shapes are not those that were planned");
}

/* ------------------------------------------------------------------------- calls */

void
berthi_plan_warn(const berth_plan_options *options, berth_reason reason,
                 const char *format, ...)
{
    berth_error details;
    const berth_finding finding = { .severity = BERTH_SEVERITY_WARNING,
                                    .details = &details };
    char message[BERTH_MESSAGE_CAPACITY];
    va_list arguments;

    if (options->finding == NULL)
        return;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    (void)berthi_fail(&details, reason, NULL, "%s", message);
    options->finding(options->finding_user, &finding);
}

berthi_tier
berthi_plan_mapped_tier(const berthi_plan_source *source, uint32_t weight)
{
    const berthi_parameter *const parameter =
        source->recipe.architecture->parameter_of[weight];
    const berthi_map_line *const line = berthi_device_map_find(
        &source->map, parameter->name, parameter->name_length);

    return line != NULL ? line->tier : (berthi_tier){ .kind = BERTHI_TIER_CPU };
}

/* A device map gives every tensor its tier. */
static void
follow_map(berthi_plan_source *source)
{
    for (uint32_t i = 0; i < source->recipe.weight_count; i++) {
        const berthi_tier tier = berthi_plan_mapped_tier(source, i);
        const uint32_t number = berthi_plan_find_tier(source, &tier);

        for (uint32_t k = 0; k < berthi_plan_tensor_count(source, i); k++)
            source->tensors[berthi_plan_tensor_of(source, i, k)].tier = number;
    }
    source->input.is_mapped = true;
}

static void
fill_summary(berthi_plan_source *source)
{
    const berth_plan_options *const options = source->options;
    berth_plan_summary *const summary = &source->input.summary;

    summary->type = options->type;
    summary->dtype = source->recipe.dtype;
    summary->double_quant = options->double_quant != 0;
    summary->block_size = options->block_size > 0 ? options->block_size : 64;
    summary->cache_dtype =
        options->cache_dtype >= 0 ? options->cache_dtype : source->recipe.dtype;
    summary->context = options->context;
    summary->batch = options->batch;
    summary->is_imitated = options->mode != NULL;
    summary->rank = options->ranks > 1 ? options->rank : 0;
    summary->ranks = options->ranks > 1 ? options->ranks : 1;
    summary->digest = berthi_plan_digest(source->checkpoint);
}

static berth_status
collect(berthi_plan_source *source, berth_error *error)
{
    const berth_plan_options *const options = source->options;
    berth_status status = BERTH_OK;

    if (options->type != BERTH_ENCODING_NATIVE)
        status = berthi_checkpoint_check_values(source->checkpoint, error);
    if (status == BERTH_OK)
        status = make_recipe(source, error);
    if (status == BERTH_OK) {
        if (source->recipe.config != NULL) /* else read_shape() says that, too */
            berthi_plan_remark_model(&source->recipe, options);
        berthi_plan_remark_skips(&source->recipe, options);
        status = read_shape(source, error);
    }
    if (status == BERTH_OK && (options->mode != NULL || options->device_map != NULL)) {
        status = berthi_plan_map(&source->recipe, options, &source->map, error);
        source->has_map = true;
    }
    if (status == BERTH_OK)
        status = berthi_plan_list_slices(source, error);
    if (status == BERTH_OK)
        status = berthi_plan_list_tensors(source, error);
    if (status == BERTH_OK)
        status = berthi_plan_list_tiers(source, error);
    if (status != BERTH_OK)
        return status;
    fill_summary(source);
    status = berthi_plan_measure_use(source, error);
    if (status == BERTH_OK && options->train != NULL)
        status = berthi_plan_take_training(source, error);
    if (status == BERTH_OK && source->has_map)
        follow_map(source);
    else if (status == BERTH_OK)
        status = berthi_plan_pin(source, error);
    if (status == BERTH_OK && options->train != NULL)
        status = berthi_plan_check_trained(source, error);
    return status;
}

berth_status
berthi_plan_source_init(berthi_plan_source *out, berth_context *context,
                        const berth_checkpoint *checkpoint,
                        const berth_plan_options *options, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    out->context = context;
    out->checkpoint = checkpoint;
    out->options = options;
    out->takes_apart = options->stacks == BERTH_STACKS_APART && options->ranks <= 1;
    out->input.summary.stacks = BERTH_STACKS_WHOLE;
    berthi_arena_init(&out->arena, context, BERTHI_PURPOSE_SCRATCH, ARENA_BLOCK);
    status = collect(out, error);
    if (status != BERTH_OK)
        berthi_plan_source_fini(out);
    return status;
}

void
berthi_plan_source_fini(berthi_plan_source *source)
{
    if (source->has_map)
        berthi_device_map_fini(&source->map);
    berthi_recipe_fini(&source->recipe);
    berthi_arena_fini(&source->arena);
}
