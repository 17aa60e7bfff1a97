/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_api_shape.c - berth_shape: the files where they are all there, else
 * config.json, with the sum that an index gives.
 */
#include <string.h>

#include "kernels/utf8.h"
#include "loader/estimate_api.h"
#include "loader/estimate_stored.h"
#include "loader/file.h"
#include "loader/index.h"
#include "loader/listing.h"
#include "loader/paths.h"
#include "loader/sniff.h"

#define CONFIG_SUFFIX    ".json"
#define INDEX_SUFFIX     ".index.json"
#define TEXT_BLOCK_BYTES 4096u

/* One opening: what dies with the call. */
typedef struct opening {
    berth_shape *shape;
    berth_open_options options;
    berth_checkpoint *checkpoint; /* NULL: config.json alone */
    berthi_location location;     /* zero where there is none */
    berthi_json *config;
    berthi_config settings;  /* of it, where there is no checkpoint */
    bool is_config;          /* a config.json was named, no weights */
    const char *config_name; /* in its folder */
    const char *config_file; /* for messages */
    berth_error why;         /* there is no checkpoint */
} opening;

/* -------------------------------------------------------------------- the files */

/*
 * Begins as a JSON object does. The length that weights begin with may do so, too, but
 * holds a NUL. What cannot be read is no config.json: the weights' opening says why.
 */
static bool
is_object_file(const char *path)
{
    uint8_t head[BERTHI_SNIFF_BYTES];
    berthi_sniff sniff = { .reason = BERTH_REASON_NONE };
    berthi_file file;
    uint64_t bytes;

    if (berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, NULL)
        != BERTH_OK)
        return false;
    bytes = berthi_min_u64(file.identity.bytes, sizeof head);
    if (berthi_file_read(&file, head, bytes, 0, "looking at it", NULL) == BERTH_OK
        && memchr(head, '\0', (size_t)bytes) == NULL)
        berthi_sniff_look(head, bytes, &sniff);
    berthi_file_close(&file);
    return sniff.reason == BERTH_REASON_JSON_BODY;
}

/* config.json, whatever it is called; no name of weights, which may be an error's text. */
static bool
is_config_path(const char *path)
{
    if (berthi_path_has_suffix(path, INDEX_SUFFIX)
        || berthi_path_has_suffix(path, BERTHI_SINGLE_SUFFIX))
        return false;
    return berthi_path_has_suffix(path, CONFIG_SUFFIX) || is_object_file(path);
}

/* Weights that are there in part: worth a word where config.json alone is used. */
static bool
is_partial(const berth_error *error)
{
    return error->reason == BERTH_REASON_INDEX_SHARD
           || error->reason == BERTH_REASON_INCOMPLETE
           || error->reason == BERTH_REASON_MISSING_BLOB;
}

/*
 * Weights that are not there, all or some: config.json may say enough, but not of a
 * variant that somebody has asked for.
 */
static bool
is_absence(const opening *o)
{
    return is_partial(&o->why) || (o->why.reason == BERTH_REASON_NOT_FOUND
                                   && o->options.variant == NULL);
}

/* Opens the weights, if they are wanted and there, else the folder. */
static berth_status
open_files(opening *o, const char *path, berth_error *error)
{
    berth_context *const context = o->shape->context;
    berth_status status;

    o->is_config = is_config_path(path);
    if (!o->is_config) {
        status =
            berth_checkpoint_open(context, path, &o->options, &o->checkpoint, &o->why);
        if (status != BERTH_OK && !is_absence(o)) {
            if (error != NULL)
                *error = o->why;
            return status;
        }
    }
    if (o->checkpoint != NULL)
        return BERTH_OK;
    status = berthi_location_init(&o->location, context, path, o->options.hub_cache,
                                  o->options.inside_only != 0, error);
    if (status != BERTH_OK)
        memset(&o->location, 0, sizeof o->location);
    o->config_name = BERTHI_CONFIG_NAME;
    if (status == BERTH_OK && o->location.file != NULL && o->is_config)
        o->config_name = o->location.file;
    return status;
}

/* ------------------------------------------------------------------ config.json */

static berth_status
fail_config(const opening *o, berth_error *error)
{
    if (o->why.reason == BERTH_REASON_NOT_FOUND)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &(berthi_about){ .file = o->why.file },
                           "%s, and no config.json", o->why.message);
    if (o->why.status != BERTH_OK) {
        *error = o->why; /* neither: what was asked for first */
        return error->status;
    }
    return berthi_fail(error, BERTH_REASON_NOT_FOUND,
                       &(berthi_about){ .file = o->config_file },
                       "an estimate needs the model's config.json, and there is none");
}

/* How the files are quantized. One that says it badly has its numbers all the same. */
static berth_status
read_settings(opening *o, const char *text, uint64_t bytes, berth_error *error)
{
    berth_error ignored;

    return berthi_config_parse(o->shape->context, text, bytes, o->config_file, &o->settings,
                               &ignored)
                   == BERTH_ENOMEM
               ? berthi_fail_memory(error, "a model's numbers")
               : BERTH_OK;
}

/* Beside weights that are not opened. */
static berth_status
read_config(opening *o, berth_error *error)
{
    berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "" };
    berth_context *const context = o->shape->context;
    bool has_config;
    uint64_t bytes;
    char *text;
    berth_status status =
        berthi_location_has(&o->location, o->config_name, &has_config, error);

    if (status != BERTH_OK)
        return status;
    o->config_file = origin.file = berthi_location_path(&o->location, o->config_name);
    if (origin.file == NULL)
        return berthi_fail_memory(error, "a path");
    if (!has_config)
        return fail_config(o, error);
    status = berthi_location_read(&o->location, o->config_name, BERTHI_CONFIG_LIMIT,
                                  origin.reason, &text, &bytes, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_json_parse(context, text, bytes, BERTHI_JSON_NONFINITE, &origin,
                               &o->config, error);
    if (status == BERTH_OK)
        status = read_settings(o, text, bytes, error);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, text, bytes);
    return status;
}

/* Of weights, what was read with them. */
static berth_status
find_config(opening *o, berth_error *error)
{
    const berth_checkpoint *const checkpoint = o->checkpoint;
    berth_status status;

    if (checkpoint == NULL)
        return read_config(o, error);
    o->config_file = checkpoint->config_path;
    status = berthi_checkpoint_parse_config(checkpoint, o->shape->context, &o->config, error);
    return status == BERTH_OK && o->config == NULL ? fail_config(o, error) : status;
}

static const char *
keep_text(opening *o, const char *text)
{
    return berthi_arena_text(&o->shape->arena, text, strlen(text));
}

static berth_status
take_config(opening *o, berth_error *error)
{
    berth_shape *const shape = o->shape;
    const berthi_json_value *const root = berthi_json_root(o->config);
    const char *model_type = "";
    berth_status status = berthi_shape_read(root, o->config_file, &shape->numbers, error);

    if (status != BERTH_OK)
        return status;
    (void)berthi_json_can_read_string(berthi_json_get(root, "model_type"), &model_type);
    shape->model_type = keep_text(o, model_type);
    shape->path = keep_text(
        o, berthi_path_told(o->checkpoint != NULL      ? o->checkpoint->path
                            : o->location.file != NULL ? o->config_file
                                                       : o->location.folder_path));
    shape->model.shape = &shape->numbers;
    return shape->model_type != NULL && shape->path != NULL
               ? BERTH_OK
               : berthi_fail_memory(error, "a model's numbers");
}

/* ---------------------------------------------------------------------- weights */

/* What an index without its shards promises. A bad one is not worth a failure. */
static berth_status
read_index(opening *o, berth_error *error)
{
    berth_context *const context = o->shape->context;
    const char *const path = berthi_location_path(&o->location, BERTHI_INDEX_NAME);
    berthi_index index;
    berth_error ignored;
    bool has_index;
    uint64_t bytes;
    char *text;
    berth_status status =
        path == NULL ? berthi_fail_memory(error, "a path")
                     : berthi_location_has(&o->location, BERTHI_INDEX_NAME, &has_index, error);

    if (status != BERTH_OK || !has_index)
        return status;
    status = berthi_location_read(&o->location, BERTHI_INDEX_NAME, BERTHI_INDEX_LIMIT,
                                  BERTH_REASON_INDEX_JSON, &text, &bytes, &ignored);
    if (status == BERTH_OK) {
        status = berthi_index_parse(context, text, bytes, path, &index, &ignored);
        berthi_memory_free(context, BERTHI_PURPOSE_HEADER, text, bytes);
    }
    if (status == BERTH_ENOMEM)
        return berthi_fail_memory(error, "an index");
    if (status == BERTH_OK) {
        o->shape->tensor_bytes = index.has_total_size ? index.total_size : 0;
        berthi_index_fini(&index);
    }
    return BERTH_OK;
}

/* Notes are shorter than errors: what is cut stays whole characters. */
static berth_status
note_absence(opening *o, berth_error *error)
{
    const char *const slash = strrchr(o->why.file, '/');
    const char *const name = slash != NULL ? slash + 1 : o->why.file;
    const char *const text = berthi_arena_format(
        &o->shape->arena, "not all weights are there: %s: %s", name, o->why.message);
    size_t length;

    if (text == NULL)
        return berthi_fail_memory(error, "a note");
    length = berthi_min_u64(strlen(text), BERTHI_REASON_CAPACITY - 1);
    length = berthi_utf8_check((const unsigned char *)text, length);
    o->shape->absence = berthi_arena_text(&o->shape->arena, text, length);
    return o->shape->absence != NULL ? BERTH_OK : berthi_fail_memory(error, "a note");
}

/* Those of the model's class, by its numbers. */
static berth_status
count_weights(opening *o, berth_error *error)
{
    berth_shape *const shape = o->shape;
    berth_context *const context = shape->context;
    berthi_weight_list *const list =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_TENSORS, sizeof *list);

    if (list == NULL)
        return berthi_fail_memory(error, "the list of weights");
    berthi_shape_weights(&shape->numbers, list);
    if (list->is_cut) {
        berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, list, sizeof *list);
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = o->config_file },
                           "its layers have more different weights than are counted");
    }
    shape->weights = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS, list->count,
                                         sizeof *shape->weights);
    if (shape->weights != NULL) {
        shape->weight_capacity = list->count;
        memcpy(shape->weights, list->items, list->count * sizeof *shape->weights);
        shape->model.weights = shape->weights;
        shape->model.weight_count = list->count;
        berthi_shape_take_stored(shape, &o->settings);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, list, sizeof *list);
    if (shape->weights == NULL)
        return berthi_fail_memory(error, "the list of weights");
    return read_index(o, error);
}

static berth_status
take_weights(opening *o, berth_error *error)
{
    berth_shape *const shape = o->shape;
    berthi_estimate_options options;
    berthi_weight_sums sums;
    berth_status status;

    if (o->checkpoint != NULL && o->checkpoint->is_adapter)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = o->checkpoint->path },
                           "these are the weights of an adapter; name its base model");
    status =
        o->checkpoint != NULL
            ? berthi_shape_take_weights(shape, o->checkpoint, berthi_json_root(o->config),
                                        o->config_file, error)
            : count_weights(o, error);
    if (status != BERTH_OK)
        return status;
    berthi_estimate_options_init(&options, &shape->numbers);
    berthi_estimate_weights(&shape->model, &options, &sums);
    shape->parameters = sums.parameters;
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- calls */

static berth_status
run(opening *o, const char *path, berth_error *error)
{
    berth_status status = open_files(o, path, error);

    if (status == BERTH_OK)
        status = find_config(o, error);
    if (status == BERTH_OK)
        status = take_config(o, error);
    if (status == BERTH_OK)
        status = take_weights(o, error);
    if (status == BERTH_OK && is_partial(&o->why))
        status = note_absence(o, error);
    return status;
}

berth_status
berth_shape_open(berth_context *context, const char *path,
                 const berth_open_options *options, berth_shape **out_shape,
                 berth_error *error)
{
    opening o = { .checkpoint = NULL };
    berth_error unwanted;
    berth_status status;

    berthi_error_clear(error);
    berthi_config_init(&o.settings, context);
    if (error == NULL)
        error = &unwanted;
    if (out_shape == NULL)
        return berthi_fail_argument(error, "out_shape", "is NULL");
    *out_shape = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (path == NULL || path[0] == '\0')
        return berthi_fail_argument(error, "path", path == NULL ? "is NULL" : "is empty");
    status = berthi_options_take(&o.options, sizeof o.options,
                                 offsetof(berth_open_options, reserved32), options,
                                 "options", error);
    if (status != BERTH_OK)
        return status;
    o.options.struct_size = sizeof o.options; /* they are handed on */
    o.shape = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *o.shape);
    if (o.shape == NULL)
        return berthi_fail_memory(error, "a model's numbers");
    o.shape->context = context;
    berthi_arena_init(&o.shape->arena, context, BERTHI_PURPOSE_OBJECT, TEXT_BLOCK_BYTES);
    berthi_error_clear(&o.why);
    status = run(&o, path, error);
    berthi_json_destroy(o.config);
    berthi_config_fini(&o.settings);
    if (o.location.context != NULL)
        berthi_location_fini(&o.location);
    berth_checkpoint_close(o.checkpoint);
    if (status == BERTH_OK)
        *out_shape = o.shape;
    else
        berth_shape_close(o.shape);
    return status;
}

void
berth_shape_close(berth_shape *shape)
{
    berth_context *context;

    if (shape == NULL)
        return;
    context = shape->context;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, shape->weights,
                       shape->weight_capacity * sizeof *shape->weights);
    berthi_arena_fini(&shape->arena);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, shape, sizeof *shape);
}

void
berth_shape_get(const berth_shape *shape, berth_shape_summary *summary)
{
    const berthi_shape *const numbers = &shape->numbers;

    memset(summary, 0, sizeof *summary);
    summary->path = shape->path;
    summary->model_type = shape->model_type;
    summary->family = berthi_shape_family_name(numbers);
    summary->has_headers = shape->model.has_headers;
    summary->dtype = numbers->dtype;
    summary->parameters = shape->parameters;
    summary->layers = numbers->layers;
    summary->encoder_layers = numbers->encoder_layers;
    summary->hidden = numbers->hidden;
    summary->vocabulary = numbers->vocabulary;
    summary->positions = numbers->positions;
    summary->tensor_bytes = shape->tensor_bytes;
    for (uint32_t i = 0; i < numbers->kind_count; i++)
        if (numbers->kinds[i].experts > summary->experts) {
            summary->experts = numbers->kinds[i].experts;
            summary->experts_used = numbers->kinds[i].experts_used;
        }
}
