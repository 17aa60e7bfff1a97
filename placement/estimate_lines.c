/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_lines.c - lines, sums and what both kinds of estimate share. */
#include "placement/estimate_lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "quant/format.h"

/* ----------------------------------------------------------------------- lines */

void
berthi_line_add(berthi_estimate *out, const berthi_line_kind *kind, uint64_t bytes,
                const char *format, ...)
{
    berthi_estimate_line *line;
    va_list arguments;

    if (bytes == 0)
        return;
    line = &out->lines[out->line_count++]; /* each part comes once: there is room */
    line->part = kind->part;
    line->place = kind->place;
    line->basis = kind->basis;
    line->dtype = kind->dtype;
    line->bytes = bytes;
    va_start(arguments, format);
    vsnprintf(line->reason, sizeof line->reason, format, arguments);
    va_end(arguments);
}

void
berthi_note_add(berthi_estimate *out, const char *format, ...)
{
    va_list arguments;

    if (out->note_count == BERTHI_ESTIMATE_NOTES)
        return;
    va_start(arguments, format);
    vsnprintf(out->notes[out->note_count++], BERTHI_REASON_CAPACITY, format, arguments);
    va_end(arguments);
}

berth_status
berthi_lines_end(berthi_estimate *out, berth_error *error)
{
    for (uint32_t i = 0; i < out->line_count; i++) {
        const berthi_estimate_line *const line = &out->lines[i];
        uint64_t *sum = NULL;
        uint64_t unused = 0;

        if (line->place == BERTHI_PLACE_DEVICE)
            sum = &out->device_bytes;
        else if (line->place == BERTHI_PLACE_HOST)
            sum = &out->host_bytes;
        else
            sum = &unused;
        if (line->bytes == BERTHI_BEYOND
            || (*sum = berthi_add_capped(*sum, line->bytes)) == BERTHI_BEYOND)
            return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                               "with %s the estimate is beyond 2^64 bytes",
                               berthi_part_name(line->part));
    }
    return BERTH_OK;
}

const berthi_estimate_line *
berthi_estimate_find(const berthi_estimate *estimate, int32_t part)
{
    for (uint32_t i = 0; i < estimate->line_count; i++)
        if (estimate->lines[i].part == part)
            return &estimate->lines[i];
    return NULL;
}

uint64_t
berthi_estimate_bytes(const berthi_estimate *estimate, int32_t part)
{
    const berthi_estimate_line *const line = berthi_estimate_find(estimate, part);

    return line != NULL ? line->bytes : 0;
}

/* ---------------------------------------------------------- weights and runtime */

/*
 * Headers know; so does a class that has a row, of values that are stored as it computes them,
 * where nothing stands beside it.
 */
static int32_t
weights_basis(const berthi_estimate_model *model, bool is_quantized)
{
    const berthi_shape *const shape = model->shape;
    const bool is_whole = !shape->has_tower && !shape->is_inner && !shape->is_other_class;
    const bool is_exact = shape->is_known && is_whole && !shape->has_unknown_layers
                          && (is_quantized || !shape->is_quantized);

    return model->has_headers || is_exact ? BERTHI_BASIS_EXACT : BERTHI_BASIS_ESTIMATE;
}

void
berthi_line_weights(berthi_estimate *out, const berthi_estimate_model *model,
                    const berthi_weight_sums *sums, const berthi_estimate_options *options)
{
    const bool is_quantized = berthi_type_is_quantized(options->type);
    const int32_t basis = weights_basis(model, is_quantized);
    const berthi_line_kind linears = { BERTHI_PART_LINEARS, BERTHI_PLACE_DEVICE, basis,
                                       berthi_type_name(options->type) };
    const berthi_line_kind others = { BERTHI_PART_OTHERS, BERTHI_PLACE_DEVICE, basis,
                                      is_quantized ? berthi_dtype_word(options->dtype)
                                                   : berthi_type_name(options->type) };

    if (is_quantized)
        berthi_line_add(out, &linears, sums->linears,
                        "%" PRIu64 " weights quantized; %" PRIu64
                        " B of it are statistics, %" PRIu64
                        " B code tables and state blobs",
                        sums->quantized, sums->statistics, sums->tables);
    else
        berthi_line_add(out, &linears, sums->linears, "matrices inside the layers");
    berthi_line_add(out, &others, sums->total - sums->linears,
                    "%" PRIu64 " parameters in all; these are never quantized",
                    sums->parameters);
}

void
berthi_line_runtime(berthi_estimate *out, const berthi_estimate_options *options,
                    uint64_t dynamic_bytes)
{
    static const berthi_line_kind context = { BERTHI_PART_CONTEXT, BERTHI_PLACE_DEVICE,
                                              BERTHI_BASIS_ESTIMATE, "" };
    static const berthi_line_kind workspace = { BERTHI_PART_WORKSPACE,
                                                BERTHI_PLACE_DEVICE,
                                                BERTHI_BASIS_ESTIMATE, "" };
    static const berthi_line_kind lost = { BERTHI_PART_FRAGMENTATION,
                                           BERTHI_PLACE_DEVICE, BERTHI_BASIS_ESTIMATE,
                                           "" };

    berthi_line_add(out, &context, options->context_bytes,
                    "0.3 to 0.8 GB a device, by driver and toolkit; measure it where "
                    "you can");
    berthi_line_add(out, &workspace, options->workspace_bytes,
                    "cuBLASLt: 32 MiB a stream on Hopper");
    berthi_line_add(out, &lost,
                    berthi_percent(dynamic_bytes, options->fragmentation_percent),
                    "%" PRIu32 " %% of the %" PRIu64
                    " B that come and go (3 to 10 are usual); nothing of what stays",
                    options->fragmentation_percent, dynamic_bytes);
}

void
berthi_note_model(berthi_estimate *out, const berthi_estimate_model *model,
                  const berthi_estimate_options *options)
{
    const berthi_shape *const shape = model->shape;

    if (!shape->is_known && !model->has_headers)
        berthi_note_add(out, "this model_type is not known here: its weights are guessed, as "
                             "those of a gated decoder, and may be far off; the "
                             "checkpoint's headers have its own");
    if (shape->has_unknown_layers)
        berthi_note_add(out, "layer_types or widths have what is not known here: such layers "
                             "are counted as full attention, of the largest width");
    if ((shape->has_tower || shape->is_inner) && !model->has_headers)
        berthi_note_add(out, "only the language model is counted, no tower, projector or head "
                             "around it: their bytes need the checkpoint's headers");
    if (shape->is_other_class && !model->has_headers)
        berthi_note_add(out, "architectures names another class than the one that predicts "
                             "words: it is counted %s, which may be more or less than it has",
                        shape->has_head ? "as that one" : "without a head");
    if (model->knows_stored)
        berthi_note_add(out, "config.json says how the files are quantized already: native is "
                             "counted so; their own bytes need headers");
    else if (shape->is_quantized && !model->has_headers)
        berthi_note_add(out, "config.json says that the files are quantized already: "
                             "native is counted as %s values; their own bytes need headers",
                        berthi_dtype_word(shape->dtype));
    if (berthi_type_is_quantized(options->type))
        berthi_note_experts(out, model, options);
}

void
berthi_note_experts(berthi_estimate *out, const berthi_estimate_model *model,
                    const berthi_estimate_options *options)
{
    if (!options->keeps_experts && berthi_layer_has_experts(model->shape))
        berthi_note_add(out, "quantized experts are counted one by one, as `berth quantize "
                             "--experts` makes them; transformers 5 fuses them and leaves "
                             "them unquantized: --keep-experts");
}

/* ------------------------------------------------------------------------ widths */

bool
berthi_layer_has_experts(const berthi_shape *shape)
{
    for (uint32_t i = 0; i < shape->kind_count; i++)
        if (shape->kinds[i].experts > 0)
            return true;
    return false;
}

/* Of a state: what its linear layers make of a token, but for a gate and the output. */
static uint64_t
state_channels(const berthi_state_layer *state, const berthi_layer *layer)
{
    switch (state->kind) {
    case BERTHI_STATE_LIGHTNING:
        return 3 * state->inner;
    case BERTHI_STATE_MEMORY:
        return 2 * state->step_rank + state->inner + 2 * state->value_heads;
    case BERTHI_STATE_MIXED: /* what is kept is the token before, not what is made of it */
        return 2 * state->inner;
    default: /* the rest have a convolution of all of it, which a window is kept for */
        return state->kernel > 0 ? layer->convolution_elements / state->kernel : 0;
    }
}

uint64_t
berthi_layer_attention_width(const berthi_shape *shape, const berthi_layer *layer)
{
    const berthi_state_layer *const state = &shape->state;
    const bool has_state = layer->state_elements + layer->convolution_elements > 0;
    const uint64_t of_state =
        has_state ? state_channels(state, layer) + 2 * state->inner : 0;

    return of_state + layer->heads * (layer->key_dim + layer->value_dim)
           + layer->kv_heads * (layer->key_dim + layer->value_dim);
}

uint64_t
berthi_layer_mlp_width(const berthi_layer *layer)
{
    return layer->experts > 0 ? layer->experts_used * layer->expert_intermediate
                                    + layer->shared_intermediate
                              : layer->intermediate;
}

/* ------------------------------------------------------------------------ checks */

static berth_status
fail_option(berth_error *error, const char *name, const char *wrong)
{
    return berthi_fail_argument(error, name, wrong);
}

berth_status
berthi_estimate_check(const berthi_estimate_options *options, berth_error *error)
{
    if (options->type < 0 || options->type >= BERTHI_TYPE_COUNT)
        return fail_option(error, "type", "is no type of weights");
    if (options->cache_type < 0 || options->cache_type >= BERTHI_CACHE_COUNT)
        return fail_option(error, "cache_type", "is no type of a cache");
    if (berthi_dtype_bytes(options->dtype) == 0)
        return fail_option(error, "dtype", "is not bf16, f16 or f32");
    if (!berthi_format_is_block_size(options->block_size))
        return fail_option(error, "block_size", "is no power of two from 32 to 4096");
    if (options->context == 0)
        return fail_option(error, "context", "is 0 tokens");
    if (options->batch == 0)
        return fail_option(error, "batch", "is 0 sequences");
    if (options->fragmentation_percent > 100)
        return fail_option(error, "fragmentation_percent", "is more than 100");
    return BERTH_OK;
}
