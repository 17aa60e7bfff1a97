/* SPDX-License-Identifier: Apache-2.0 */
/* llama_attention.c - see llama_attention.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/llama_attention.h"
#include "tools/llama_error.h"
#include "tools/llama_math.h"

/* -------------------------------------------------------------------------- cache */

static uint64_t
row_bytes(const llama_cache *cache)
{
    return (uint64_t)cache->config->head_dim * berth_dtype_bits(cache->dtype) / 8;
}

berth_status
llama_cache_init(llama_cache *cache, const llama_config *config, int32_t dtype,
                 uint32_t capacity, const llama_pool *pool, berth_error *error)
{
    const uint64_t rows = (uint64_t)config->layers * config->kv_heads * capacity;
    const uint32_t half = config->head_dim / 2;

    *cache = (llama_cache){ .config = config, .dtype = dtype, .capacity = capacity };
    cache->keys = malloc(rows * row_bytes(cache));
    cache->values = malloc(rows * row_bytes(cache));
    cache->scores = malloc((uint64_t)llama_pool_threads(pool) * capacity * sizeof(float));
    cache->frequencies = malloc(half * sizeof(float));
    cache->angles = malloc((uint64_t)capacity * config->head_dim * sizeof(float));
    if (cache->keys == NULL || cache->values == NULL || cache->scores == NULL
        || cache->frequencies == NULL || cache->angles == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL,
                          "no memory for keys and values of %u positions",
                          (unsigned)capacity);
    llama_math_frequencies(config, cache->frequencies, &cache->angle_scale);
    for (uint32_t position = 0; position < capacity; position++)
        llama_math_angles(cache->frequencies, cache->angle_scale, half, position,
                          cache->angles + (uint64_t)position * config->head_dim);
    return BERTH_OK;
}

void
llama_cache_free(llama_cache *cache)
{
    free(cache->keys);
    free(cache->values);
    free(cache->scores);
    free(cache->frequencies);
    free(cache->angles);
    *cache = (llama_cache){ .config = NULL };
}

/* The first row of a head; its positions follow each other. */
static uint64_t
find_rows(const llama_cache *cache, uint32_t layer, uint32_t head)
{
    return ((uint64_t)layer * cache->config->kv_heads + head) * cache->capacity
           * row_bytes(cache);
}

/* ---------------------------------------------------------------------- positions */

static void
place_head(const llama_attention *a, float *x, const float *norm, const float *angles)
{
    const llama_config *const c = a->cache->config;

    if (norm != NULL)
        llama_math_norm(x, norm, c->norm_epsilon, c->head_dim, x);
    llama_math_rotate(x, angles, c->head_dim / 2);
}

/* Queries and keys of one token get their position; keys and values are stored. */
static void
place_token(void *user, uint32_t worker, uint32_t token)
{
    const llama_attention *const a = user;
    const llama_cache *const cache = a->cache;
    const llama_config *const c = cache->config;
    const uint64_t position = cache->length + token;
    const float *const angles = cache->angles + position * c->head_dim;

    (void)worker;
    for (uint32_t head = 0; head < c->heads; head++)
        place_head(a, a->queries + ((uint64_t)token * c->heads + head) * c->head_dim,
                   a->query_norm, angles);
    for (uint32_t head = 0; head < c->kv_heads; head++) {
        const uint64_t from = ((uint64_t)token * c->kv_heads + head) * c->head_dim;
        const uint64_t to = find_rows(cache, a->layer, head) + position * row_bytes(cache);

        place_head(a, a->keys + from, a->key_norm, angles);
        llama_math_narrow(cache->dtype, a->keys + from, c->head_dim, cache->keys + to);
        llama_math_narrow(cache->dtype, a->values + from, c->head_dim, cache->values + to);
    }
}

/* ---------------------------------------------------------------------- attention */

/* One head of queries at `position`, which sees those from `first` on. */
static void
attend(const llama_attention *a, const float *query, uint64_t rows, uint32_t first,
       uint32_t position, float *scores, float *out)
{
    const llama_cache *const cache = a->cache;
    const uint32_t width = cache->config->head_dim;
    const float scale = 1.0f / sqrtf((float)width);
    const uint64_t bytes = row_bytes(cache);
    const uint32_t count = position + 1 - first;

    for (uint32_t i = 0; i < count; i++)
        scores[i] = scale
                    * llama_math_dot(cache->dtype,
                                     cache->keys + rows + (first + i) * bytes, query, width);
    llama_math_softmax(scores, count);
    memset(out, 0, width * sizeof *out);
    for (uint32_t i = 0; i < count; i++)
        llama_math_add_scaled(cache->dtype, cache->values + rows + (first + i) * bytes,
                              scores[i], width, out);
}

/* The heads of queries of one token that share a head of keys. */
static void
attend_group(void *user, uint32_t worker, uint32_t part)
{
    const llama_attention *const a = user;
    const llama_cache *const cache = a->cache;
    const llama_config *const c = cache->config;
    const uint32_t token = part / c->kv_heads;
    const uint32_t kv_head = part % c->kv_heads;
    const uint32_t shared = c->heads / c->kv_heads;
    const uint32_t position = cache->length + token;
    const uint32_t first = c->slides[a->layer] && position >= c->window
                               ? position + 1 - c->window
                               : 0;
    const uint64_t rows = find_rows(cache, a->layer, kv_head);

    for (uint32_t i = 0; i < shared; i++) {
        const uint64_t at =
            ((uint64_t)token * c->heads + kv_head * shared + i) * c->head_dim;

        attend(a, a->queries + at, rows, first, position,
               cache->scores + (uint64_t)worker * cache->capacity, a->outputs + at);
    }
}

void
llama_attention_run(const llama_attention *attention, llama_pool *pool)
{
    llama_attention a = *attention;

    llama_pool_run(pool, a.count, place_token, &a);
    llama_pool_run(pool, a.count * a.cache->config->kv_heads, attend_group, &a);
}
