/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_cache.c - KV caches; formulas in estimate.h. */
#include "placement/estimate_lines.h"

/* Elements of a quantized cache that share a scale and a minimum, f16 both. */
#define GROUP 32u
#define GROUP_BYTES 4u

uint64_t
berthi_cache_size(int32_t cache_type, uint64_t elements)
{
    const uint64_t groups = berthi_times(berthi_divided(elements, GROUP), GROUP_BYTES);

    switch (cache_type) {
    case BERTHI_CACHE_F32: return berthi_times(elements, 4);
    case BERTHI_CACHE_BF16:
    case BERTHI_CACHE_F16: return berthi_times(elements, 2);
    case BERTHI_CACHE_FP8: return elements;
    case BERTHI_CACHE_INT8: return berthi_add_capped(elements, groups);
    default: return berthi_add_capped(berthi_divided(elements, 2), groups);
    }
}

uint64_t
berthi_estimate_source(const berthi_estimate_options *options)
{
    return options->source > 0 ? options->source : options->context;
}

/* That one token adds to a layer. */
static uint64_t
token_elements(const berthi_shape *shape, const berthi_layer *layer, bool is_expanded)
{
    switch (layer->attention) {
    case BERTHI_ATTENTION_HEADS:
        if (layer->shares_cache)
            return 0;
        if (shape->compression.groups > 0) /* keys are values, and kept once */
            return layer->key_dim;
        return layer->kv_heads * (layer->key_dim + layer->value_dim)
               + (layer->has_index ? shape->index_dim : 0);
    case BERTHI_ATTENTION_LATENT:
        return (layer->has_index ? shape->index_dim : 0)
               + (is_expanded ? layer->heads * (layer->key_dim + layer->value_dim)
                              : shape->latent_rank + shape->rope_dim);
    default: return 0;
    }
}

/* Behind the window; those of an index have keys beside them. */
static uint64_t
entries_size(const berthi_shape *shape, const berthi_layer *layer, int32_t cache_type,
             uint64_t tokens)
{
    const uint64_t elements = layer->key_dim + (layer->has_index ? shape->index_dim : 0);

    return layer->entry_tokens > 0 ? berthi_times(tokens / layer->entry_tokens,
                                                  berthi_cache_size(cache_type, elements))
                                   : 0;
}

uint64_t
berthi_cache_layer(const berthi_shape *shape, const berthi_layer *layer,
                   const berthi_estimate_options *options, uint64_t tokens)
{
    const uint64_t kept = layer->window > 0 ? berthi_min_u64(tokens, layer->window)
                                            : tokens;

    return berthi_add_capped(
        berthi_times(kept, berthi_cache_size(options->cache_type,
                                             token_elements(shape, layer,
                                                            options->expands_latents))),
        entries_size(shape, layer, options->cache_type, tokens));
}

uint64_t
berthi_cache_sequence(const berthi_shape *shape, const berthi_estimate_options *options,
                      uint64_t tokens)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++) {
        const berthi_layer *const layer = &shape->kinds[i];

        bytes = berthi_add_capped(bytes,
                                  berthi_times(layer->count,
                                               berthi_cache_layer(shape, layer, options,
                                                                  tokens)));
    }
    return bytes;
}
