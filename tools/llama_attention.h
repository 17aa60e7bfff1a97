/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_attention.h - keys and values of the positions so far, and what a query makes
 * of them. Several heads of queries share one of keys and values.
 */
#ifndef BERTH_TOOLS_LLAMA_ATTENTION_H
#define BERTH_TOOLS_LLAMA_ATTENTION_H

#include <stdint.h>

#include "tools/llama_config.h"
#include "tools/llama_pool.h"

typedef struct llama_cache {
    const llama_config *config;
    int32_t dtype;      /* BERTH_F32, _BF16 or _F16 */
    uint32_t capacity;  /* positions */
    uint32_t length;    /* of them in use */
    char *keys;         /* [layer][head][position][head_dim] */
    char *values;
    float *scores;      /* [thread][position] */
    float *frequencies; /* of positions, see llama_math_frequencies() */
    float angle_scale;
    float *angles;      /* [position]: cosines, sines */
} llama_cache;

/*
 * For sequences of up to `capacity` tokens, computed by the pool's threads. The
 * configuration must outlive it. Free it with llama_cache_free(), also after a failure.
 * BERTH_ENOMEM.
 */
berth_status llama_cache_init(llama_cache *cache, const llama_config *config,
                              int32_t dtype, uint32_t capacity, const llama_pool *pool,
                              berth_error *error);
void llama_cache_free(llama_cache *cache);

/* One layer's work for `count` tokens that come behind cache->length others. */
typedef struct llama_attention {
    llama_cache *cache;
    uint32_t layer;
    uint32_t count;
    float *queries;          /* count x heads x head_dim */
    float *keys;             /* count x kv_heads x head_dim */
    const float *values;     /* the same */
    const float *query_norm; /* head_dim; NULL: the model has none */
    const float *key_norm;
    float *outputs;          /* as queries */
} llama_attention;

/*
 * Normalises and turns queries and keys where they are, stores keys and values, fills
 * `outputs`. The cache's length stays: every layer stores behind it.
 */
void llama_attention_run(const llama_attention *attention, llama_pool *pool);

#endif
