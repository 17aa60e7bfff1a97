/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.c - what inference needs, line by line; formulas in estimate.h. */
#include "placement/estimate.h"

#include <inttypes.h>
#include <string.h>

#include "placement/estimate_lines.h"

#define CONTEXT_TOKENS 4096u
#define BLOCK_SIZE 64u
#define STATE_BYTES 4u /* recurrent states are kept in f32 */
#define LOGIT_BYTES 4u

void
berthi_estimate_options_init(berthi_estimate_options *options, const berthi_shape *shape)
{
    memset(options, 0, sizeof *options);
    options->type = BERTHI_TYPE_NATIVE;
    options->dtype = shape->dtype;
    options->cache_type = shape->dtype == BERTH_F32   ? BERTHI_CACHE_F32
                          : shape->dtype == BERTH_F16 ? BERTHI_CACHE_F16
                                                      : BERTHI_CACHE_BF16;
    options->block_size = BLOCK_SIZE;
    options->context = CONTEXT_TOKENS;
    options->source = shape->encoder_positions;
    options->batch = 1;
    options->context_bytes = BERTHI_CONTEXT_BYTES;
    options->workspace_bytes = BERTHI_WORKSPACE_BYTES;
    options->fragmentation_percent = BERTHI_FRAGMENTATION_PERCENT;
}

/* ------------------------------------------------------------------------ caches */

static bool
has_windows(const berthi_shape *shape)
{
    for (uint32_t i = 0; i < shape->kind_count; i++)
        if (shape->kinds[i].window > 0)
            return true;
    return false;
}

static const char *
cache_form(const berthi_estimate_model *model, const berthi_estimate_options *options)
{
    if (model->shape->latent_rank > 0)
        return options->expands_latents ? "; latents expanded, as transformers keeps them"
                                        : "; latents, as dedicated servers keep them";
    return has_windows(model->shape) ? "; windows keep no more than their tokens" : "";
}

static void
add_caches(berthi_estimate *out, const berthi_estimate_model *model,
           const berthi_estimate_options *options)
{
    const berthi_line_kind cache = { BERTHI_PART_CACHE, BERTHI_PLACE_DEVICE,
                                     BERTHI_BASIS_FORMULA,
                                     berthi_cache_type_name(options->cache_type) };
    const uint64_t first = berthi_cache_sequence(model->shape, options, 1);
    const uint64_t all = berthi_cache_sequence(model->shape, options, options->context);

    berthi_line_add(out, &cache, berthi_times(options->batch, all),
                    "%" PRIu64 " B for the first token; %" PRIu64 " sequence%s of %" PRIu64
                    " tokens%s",
                    first, options->batch, options->batch == 1 ? "" : "s", options->context,
                    cache_form(model, options));
}

static void
add_states(berthi_estimate *out, const berthi_shape *shape,
           const berthi_estimate_options *options)
{
    const berthi_line_kind states = { BERTHI_PART_STATES, BERTHI_PLACE_DEVICE,
                                      BERTHI_BASIS_FORMULA, "f32" };
    uint64_t elements = 0;
    uint64_t windows = 0;
    uint64_t bytes;

    for (uint32_t i = 0; i < shape->kind_count; i++) {
        const berthi_layer *const layer = &shape->kinds[i];

        elements =
            berthi_add_capped(elements, berthi_times(layer->count, layer->state_elements));
        windows = berthi_add_capped(windows,
                                    berthi_times(layer->count, layer->convolution_elements));
    }
    bytes = berthi_add_capped(berthi_times(elements, STATE_BYTES),
                              berthi_times(windows, berthi_dtype_bytes(options->dtype)));
    berthi_line_add(out, &states, berthi_times(options->batch, bytes),
                    "%" PRIu64 " sequence%s of any length: %" PRIu64
                    " elements of state in f32, %" PRIu64 " of convolutions in %s",
                    options->batch, options->batch == 1 ? "" : "s", elements, windows,
                    berthi_dtype_word(options->dtype));
}

/* Once for an input: its keys and values in every layer that reads them. */
static void
add_cross(berthi_estimate *out, const berthi_shape *shape,
          const berthi_estimate_options *options)
{
    const berthi_line_kind cross = { BERTHI_PART_CROSS, BERTHI_PLACE_DEVICE,
                                     BERTHI_BASIS_FORMULA,
                                     berthi_cache_type_name(options->cache_type) };
    const uint64_t source = berthi_estimate_source(options);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++) {
        const berthi_layer *const layer = &shape->kinds[i];

        if (layer->has_cross)
            bytes = berthi_add_capped(bytes,
                                      berthi_times(layer->count,
                                                   berthi_cache_layer(shape, layer, options,
                                                                      source)));
    }
    berthi_line_add(out, &cross, berthi_times(options->batch, bytes),
                    "keys and values of %" PRIu64 " tokens of input, once", source);
}

/* -------------------------------------------------------------------- activations */

/* Elements for one token at the peak inside one layer. */
static uint64_t
layer_peak(const berthi_shape *shape, const berthi_layer *layer)
{
    const uint64_t hidden = shape->hidden;
    const uint64_t copies = layer->experts > 0 ? layer->experts_used : 1;
    const uint64_t attention = hidden + berthi_layer_attention_width(shape, layer);
    const uint64_t mlp = berthi_add_capped(berthi_times(copies, hidden),
                                           berthi_times(shape->mlp_matrices,
                                                        berthi_layer_mlp_width(layer)));

    return berthi_add_capped(2 * hidden, berthi_max_u64(attention, mlp));
}

/* Of the decoder's layers, or of the encoder's; 0: there are none. */
static uint64_t
largest_peak(const berthi_shape *shape, bool is_encoder)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++)
        if (shape->kinds[i].is_encoder == is_encoder)
            largest = berthi_max_u64(largest, layer_peak(shape, &shape->kinds[i]));
    return largest;
}

static uint64_t
most_heads(const berthi_shape *shape)
{
    uint64_t heads = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++)
        heads = berthi_max_u64(heads, shape->kinds[i].heads);
    return heads;
}

/* Of a sequence, at once: all of a context that is shorter. */
static uint64_t
prompt_tokens(const berthi_estimate_options *options)
{
    return options->prompt > 0 ? berthi_min_u64(options->prompt, options->context)
                               : options->context;
}

/* What is computed at once: the input of an encoder comes first, and may take more. */
typedef struct pass {
    const char *what;
    uint64_t tokens; /* of a sequence */
    uint64_t seen;   /* by each of them, at most */
    uint64_t peak;   /* elements a token in the largest layer */
} pass;

static pass
largest_pass(const berthi_shape *shape, const berthi_estimate_options *options)
{
    const uint64_t source = berthi_estimate_source(options);
    const pass input = { "input", source, source, largest_peak(shape, true) };
    const pass prefill = { "prefill", prompt_tokens(options), options->context,
                           largest_peak(shape, false) };

    return berthi_times(input.tokens, input.peak)
                   > berthi_times(prefill.tokens, prefill.peak)
               ? input
               : prefill;
}

/* Returns what comes and goes. */
static uint64_t
add_activations(berthi_estimate *out, const berthi_shape *shape,
                const berthi_estimate_options *options)
{
    const uint64_t bytes = berthi_dtype_bytes(options->dtype);
    const char *const word = berthi_dtype_word(options->dtype);
    const berthi_line_kind activations = { BERTHI_PART_ACTIVATIONS, BERTHI_PLACE_DEVICE,
                                           BERTHI_BASIS_ESTIMATE, word };
    const berthi_line_kind scores = { BERTHI_PART_SCORES, BERTHI_PLACE_DEVICE,
                                      BERTHI_BASIS_FORMULA, word };
    const berthi_line_kind logits = { BERTHI_PART_LOGITS, BERTHI_PLACE_DEVICE,
                                      BERTHI_BASIS_FORMULA, "f32" };
    const pass largest = largest_pass(shape, options);
    const uint64_t tokens = berthi_times(options->batch, largest.tokens);
    const uint64_t heads = options->is_eager ? most_heads(shape) : 0;
    const uint64_t pairs = berthi_times(tokens, largest.seen);
    const uint64_t rows =
        options->has_all_logits
            ? berthi_times(options->batch, prompt_tokens(options))
            : options->batch;

    berthi_line_add(out, &activations,
                    berthi_times(tokens, berthi_times(largest.peak, bytes)),
                    "%s of %" PRIu64 " tokens at once: %" PRIu64
                    " elements a token in the largest layer, within 10 %%",
                    largest.what, tokens, largest.peak);
    berthi_line_add(out, &scores,
                    berthi_times(berthi_times(heads, pairs), bytes + LOGIT_BYTES),
                    "no fused kernel: %" PRIu64 " heads * %" PRIu64 " tokens * %" PRIu64
                    " of context, in %s and in f32",
                    heads, tokens, largest.seen, word);
    berthi_line_add(out, &logits,
                    berthi_times(rows, berthi_times(shape->vocabulary, LOGIT_BYTES)),
                    "%" PRIu64 " positions * %" PRIu64 " words", rows, shape->vocabulary);
    return berthi_add_capped(
        berthi_estimate_bytes(out, BERTHI_PART_ACTIVATIONS),
        berthi_add_capped(berthi_estimate_bytes(out, BERTHI_PART_SCORES),
                          berthi_estimate_bytes(out, BERTHI_PART_LOGITS)));
}

/* Of all its layers. */
static uint64_t
encoder_bytes(const berthi_shape *shape, const berthi_weight_sums *sums)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++)
        if (shape->kinds[i].is_encoder)
            bytes += sums->layers[i] * shape->kinds[i].count;
    return bytes;
}

/* What one token then costs: not memory of its own. */
static void
add_decode(berthi_estimate *out, const berthi_shape *shape,
           const berthi_weight_sums *sums, const berthi_estimate_options *options)
{
    const berthi_line_kind decode = { BERTHI_PART_DECODE, BERTHI_PLACE_NOWHERE,
                                      BERTHI_BASIS_ESTIMATE,
                                      berthi_dtype_word(options->dtype) };
    const berthi_line_kind cache = { BERTHI_PART_CACHE_READ, BERTHI_PLACE_NOWHERE,
                                     BERTHI_BASIS_FORMULA,
                                     berthi_cache_type_name(options->cache_type) };
    const berthi_line_kind weights = { BERTHI_PART_WEIGHT_READ, BERTHI_PLACE_NOWHERE,
                                       BERTHI_BASIS_FORMULA,
                                       berthi_type_name(options->type) };
    const uint64_t bytes = berthi_dtype_bytes(options->dtype);
    const uint64_t skipped =
        sums->idle + (shape->ties_embeddings ? 0 : sums->first) + encoder_bytes(shape, sums);

    berthi_line_add(out, &decode,
                    berthi_times(options->batch,
                                 berthi_times(largest_peak(shape, false), bytes)),
                    "one token of each sequence, in the activations above");
    berthi_line_add(out, &cache,
                    berthi_times(options->batch,
                                 berthi_cache_sequence(shape, options, options->context)),
                    "the whole cache at the end of the context");
    if (sums->total != BERTHI_BEYOND)
        berthi_line_add(out, &weights, sums->total - skipped,
                        "all but embeddings that are only looked up%s",
                        sums->idle > 0 ? " and experts that a token does not take" : "");
}

/* -------------------------------------------------------------------- everything */

berth_status
berthi_estimate_with(const berthi_estimate_model *model, const berthi_weight_sums *sums,
                     const berthi_estimate_options *options, berthi_estimate *out,
                     berth_error *error)
{
    uint64_t dynamic_bytes;
    berth_status status;

    memset(out, 0, sizeof *out);
    berthi_error_clear(error);
    status = berthi_estimate_check(options, error);
    if (status != BERTH_OK)
        return status;
    berthi_line_weights(out, model, sums, options);
    add_caches(out, model, options);
    add_states(out, model->shape, options);
    add_cross(out, model->shape, options);
    dynamic_bytes = add_activations(out, model->shape, options);
    berthi_line_runtime(out, options, dynamic_bytes);
    add_decode(out, model->shape, sums, options);
    berthi_note_model(out, model, options);
    status = berthi_lines_end(out, error);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}

berth_status
berthi_estimate_inference(const berthi_estimate_model *model,
                          const berthi_estimate_options *options, berthi_estimate *out,
                          berth_error *error)
{
    berthi_weight_sums sums;
    berth_status status;

    memset(out, 0, sizeof *out);
    status = berthi_estimate_check(options, error); /* before the sums rely on them */
    if (status != BERTH_OK)
        return status;
    berthi_estimate_weights(model, options, &sums);
    return berthi_estimate_with(model, &sums, options, out, error);
}
