/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - forward, loss, backward; see adapt.h. Sums over tokens run in their order. */
#include "tests/adapt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/llama_math.h"

/* ------------------------------------------------------------------------- pieces */

static inline float
dot(const float *a, const float *b, uint64_t count)
{
    return llama_math_dot(BERTH_F32, a, b, count);
}

static inline void
add_scaled(const float *from, float scale, uint64_t count, float *to)
{
    llama_math_add_scaled(BERTH_F32, from, scale, count, to);
}

static void
dequantize(const adapted *m, const adapt_linear *l)
{
    berth_values_options options;
    berth_values_buffers buffers;

    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_NF4;
    options.dtype = BERTH_F32;
    options.shape = l->shape;
    options.rank = 2;
    options.threads = 1;
    berth_values_buffers_init(&buffers);
    buffers.codes = l->codes;
    buffers.codes_bytes = l->codes_bytes;
    buffers.absmax = l->absmax;
    buffers.absmax_bytes = l->absmax_bytes;
    if (berth_values_dequantize(m->context, &options, &buffers, m->weight,
                                l->shape[0] * l->shape[1] * sizeof(float), NULL)
        != BERTH_OK)
        abort();
}

static float
scale_of(const adapted *m)
{
    return m->alpha / (float)m->rank;
}

/* y = W x + scale B (A x) */
static void
linear(const adapted *m, uint32_t layer, adapt_projection p, uint32_t count, const float *x,
       float *y)
{
    const adapt_linear *const l = &m->layers[layer].linears[p];
    const uint64_t rows = l->shape[0];
    const uint64_t columns = l->shape[1];
    const float *const a = m->learned + m->parameters[l->a].first;
    const float *const b = m->learned + m->parameters[l->b].first;

    dequantize(m, l);
    for (uint32_t t = 0; t < count; t++, x += columns, y += rows) {
        float *const low = m->layers[layer].low[p] + (uint64_t)t * m->rank;

        for (uint32_t r = 0; r < m->rank; r++)
            low[r] = dot(a + r * columns, x, columns);
        for (uint64_t o = 0; o < rows; o++)
            y[o] = dot(m->weight + o * columns, x, columns)
                   + scale_of(m) * dot(b + o * m->rank, low, m->rank);
    }
}

/* Adds to the gradients of A and B, and to that of x: dx. */
static void
linear_back(adapted *m, uint32_t layer, adapt_projection p, uint32_t count, const float *x,
            const float *dy, float *dx)
{
    const adapt_linear *const l = &m->layers[layer].linears[p];
    const uint64_t rows = l->shape[0];
    const uint64_t columns = l->shape[1];
    const float *const a = m->learned + m->parameters[l->a].first;
    const float *const b = m->learned + m->parameters[l->b].first;
    float *const da = m->gradients + m->parameters[l->a].first;
    float *const db = m->gradients + m->parameters[l->b].first;

    dequantize(m, l);
    for (uint32_t t = 0; t < count; t++, x += columns, dx += columns, dy += rows) {
        const float *const low = m->layers[layer].low[p] + (uint64_t)t * m->rank;
        float dlow[ADAPT_RANK_MAX] = { 0 };

        for (uint64_t o = 0; o < rows; o++) {
            const float scaled = scale_of(m) * dy[o];

            add_scaled(m->weight + o * columns, dy[o], columns, dx);
            add_scaled(b + o * m->rank, scaled, m->rank, dlow);
            add_scaled(low, scaled, m->rank, db + o * m->rank);
        }
        for (uint32_t r = 0; r < m->rank; r++) {
            add_scaled(a + r * columns, dlow[r], columns, dx);
            add_scaled(x, dlow[r], columns, da + r * columns);
        }
    }
}

static void
norm(const adapted *m, uint32_t count, const float *x, const float *weight, float *y)
{
    const uint64_t width = m->config.hidden;

    for (uint32_t t = 0; t < count; t++)
        llama_math_norm(x + t * width, weight, m->config.norm_epsilon, width,
                        y + t * width);
}

/*
 * y = w x s, s = (mean of x^2 + epsilon)^-1/2, and so ds/dx = -s^3 x / n. Adds to dx,
 * which may not be dy.
 */
static void
norm_back(const adapted *m, uint32_t count, const float *x, const float *weight,
          const float *dy, float *dx)
{
    const uint64_t width = m->config.hidden;

    for (uint32_t t = 0; t < count; t++, x += width, dy += width, dx += width) {
        const float mean = dot(x, x, width) / (float)width;
        const float s = 1.0f / sqrtf(mean + m->config.norm_epsilon);
        float along = 0;

        for (uint64_t i = 0; i < width; i++)
            along += dy[i] * weight[i] * x[i];
        along *= s * s * s / (float)width;
        for (uint64_t i = 0; i < width; i++)
            dx[i] += dy[i] * weight[i] * s - along * x[i];
    }
}

/* Turns all heads of each token; back, where `is_back`. */
static void
rotate(const adapted *m, uint32_t count, uint32_t heads, bool is_back, float *x)
{
    const uint32_t width = m->config.head_dim;
    float angles[ADAPT_HEAD_MAX];

    for (uint32_t t = 0; t < count; t++) {
        memcpy(angles, m->angles + (uint64_t)t * width, width * sizeof *angles);
        for (uint32_t i = width / 2; is_back && i < width; i++)
            angles[i] = -angles[i];
        for (uint32_t h = 0; h < heads; h++, x += width)
            llama_math_rotate(x, angles, width / 2);
    }
}

/* ---------------------------------------------------------------------- attention */

/* Rows of one head: token t has its own at [t * step]. */
typedef struct head {
    uint64_t query;      /* of its first row: queries, attended */
    uint64_t query_step;
    uint64_t key;        /* keys, values */
    uint64_t key_step;
    float *shares;       /* [token][token] */
} head;

static head
head_of(const adapted *m, const adapt_layer *l, uint32_t number)
{
    const llama_config *const c = &m->config;
    const uint32_t shared = c->heads / c->kv_heads;

    return (head){
        .query = (uint64_t)number * c->head_dim,
        .query_step = (uint64_t)c->heads * c->head_dim,
        .key = (uint64_t)(number / shared) * c->head_dim,
        .key_step = (uint64_t)c->kv_heads * c->head_dim,
        .shares = l->shares + (uint64_t)number * m->capacity * m->capacity,
    };
}

static void
attend(const adapted *m, adapt_layer *l, uint32_t count)
{
    const uint32_t width = m->config.head_dim;
    const float scale = 1.0f / sqrtf((float)width);

    for (uint32_t number = 0; number < m->config.heads; number++) {
        const head h = head_of(m, l, number);

        for (uint32_t t = 0; t < count; t++) {
            const float *const query = l->queries + h.query + t * h.query_step;
            float *const shares = h.shares + (uint64_t)t * m->capacity;
            float *const out = l->attended + h.query + t * h.query_step;

            for (uint32_t s = 0; s <= t; s++)
                shares[s] = scale * dot(l->keys + h.key + s * h.key_step, query, width);
            llama_math_softmax(shares, t + 1);
            memset(out, 0, width * sizeof *out);
            for (uint32_t s = 0; s <= t; s++)
                add_scaled(l->values + h.key + s * h.key_step, shares[s], width, out);
        }
    }
}

/* From the gradient of `attended` to those of queries, keys and values, which are added to. */
static void
attend_back(const adapted *m, const adapt_layer *l, uint32_t count, const float *dout,
            float *dqueries, float *dkeys, float *dvalues)
{
    const uint32_t width = m->config.head_dim;
    const float scale = 1.0f / sqrtf((float)width);
    float dshares[ADAPT_TOKENS_MAX];

    for (uint32_t number = 0; number < m->config.heads; number++) {
        const head h = head_of(m, l, number);

        for (uint32_t t = 0; t < count; t++) {
            const float *const shares = h.shares + (uint64_t)t * m->capacity;
            const uint64_t at = h.query + t * h.query_step;
            float mean = 0;

            for (uint32_t s = 0; s <= t; s++) {
                dshares[s] = dot(l->values + h.key + s * h.key_step, dout + at, width);
                mean += shares[s] * dshares[s];
                add_scaled(dout + at, shares[s], width, dvalues + h.key + s * h.key_step);
            }
            for (uint32_t s = 0; s <= t; s++) {
                const float dscore = scale * shares[s] * (dshares[s] - mean);
                const uint64_t key = h.key + s * h.key_step;

                add_scaled(l->keys + key, dscore, width, dqueries + at);
                add_scaled(l->queries + at, dscore, width, dkeys + key);
            }
        }
    }
}

/* ------------------------------------------------------------------------ forward */

static float
sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void
layer_forward(adapted *m, uint32_t number, uint32_t count)
{
    adapt_layer *const l = &m->layers[number];
    const llama_config *const c = &m->config;
    const uint64_t hidden = (uint64_t)count * c->hidden;
    const uint64_t inner = (uint64_t)count * c->inner;

    memcpy(l->input, m->hidden, hidden * sizeof(float));
    norm(m, count, l->input, l->attention_norm, l->normed);
    linear(m, number, ADAPT_QUERY, count, l->normed, l->queries);
    linear(m, number, ADAPT_KEY, count, l->normed, l->keys);
    linear(m, number, ADAPT_VALUE, count, l->normed, l->values);
    rotate(m, count, c->heads, false, l->queries);
    rotate(m, count, c->kv_heads, false, l->keys);
    attend(m, l, count);
    linear(m, number, ADAPT_OUTPUT, count, l->attended, l->middle);
    for (uint64_t i = 0; i < hidden; i++)
        l->middle[i] += l->input[i];

    norm(m, count, l->middle, l->mlp_norm, l->mlp_normed);
    linear(m, number, ADAPT_GATE, count, l->mlp_normed, l->gate);
    linear(m, number, ADAPT_UP, count, l->mlp_normed, l->up);
    for (uint64_t i = 0; i < inner; i++)
        l->product[i] = l->gate[i] * sigmoid(l->gate[i]) * l->up[i];
    linear(m, number, ADAPT_DOWN, count, l->product, m->hidden);
    for (uint64_t i = 0; i < hidden; i++)
        m->hidden[i] += l->middle[i];
}

void
adapt_forward(adapted *m, const uint32_t *ids, uint32_t count)
{
    const uint64_t width = m->config.hidden;
    const uint64_t vocab = m->config.vocab;

    if (count > m->capacity)
        abort();
    for (uint32_t t = 0; t < count; t++)
        memcpy(m->hidden + t * width, m->embedding + ids[t] * width, width * sizeof(float));
    for (uint32_t number = 0; number < m->config.layers; number++)
        layer_forward(m, number, count);
    norm(m, count, m->hidden, m->final_norm, m->normed);
    for (uint32_t t = 0; t < count; t++)
        for (uint64_t v = 0; v < vocab; v++)
            m->logits[t * vocab + v] = dot(m->head + v * width, m->normed + t * width, width);
}

double
adapt_loss(adapted *m, const uint32_t *text, uint32_t count)
{
    const uint64_t vocab = m->config.vocab;
    double loss = 0;

    adapt_forward(m, text, count);
    for (uint32_t t = 0; t < count; t++) {
        float *const row = m->logits + t * vocab;
        double largest = -INFINITY;
        double sum = 0;

        for (uint64_t v = 0; v < vocab; v++)
            largest = fmax(largest, row[v]);
        for (uint64_t v = 0; v < vocab; v++)
            sum += exp(row[v] - largest);
        loss += log(sum) + largest - row[text[t + 1]];
        for (uint64_t v = 0; v < vocab; v++)
            row[v] = (float)((exp(row[v] - largest) / sum - (v == text[t + 1])) / count);
    }
    return loss / count;
}

/* ----------------------------------------------------------------------- backward */

/* Gradients of what a layer computes, a row a token; all of them in m->slopes. */
typedef struct slopes {
    float *hidden;  /* of what goes from layer to layer */
    float *normed;
    float *queries;
    float *keys;
    float *values;
    float *attended;
    float *gate;
    float *up;
    float *product;
} slopes;

static slopes
slopes_of(const adapted *m)
{
    const llama_config *const c = &m->config;
    const uint64_t hidden = (uint64_t)m->capacity * c->hidden;
    const uint64_t queries = (uint64_t)m->capacity * c->heads * c->head_dim;
    const uint64_t keys = (uint64_t)m->capacity * c->kv_heads * c->head_dim;
    const uint64_t inner = (uint64_t)m->capacity * c->inner;
    slopes s = { .hidden = m->slopes };

    s.normed = s.hidden + hidden;
    s.queries = s.normed + hidden;
    s.keys = s.queries + queries;
    s.values = s.keys + keys;
    s.attended = s.values + keys;
    s.gate = s.attended + queries;
    s.up = s.gate + inner;
    s.product = s.up + inner;
    return s;
}

/* s->hidden holds the gradient of what comes out, then of `middle`. */
static void
mlp_back(adapted *m, uint32_t number, uint32_t count, const slopes *s)
{
    const adapt_layer *const l = &m->layers[number];
    const uint64_t hidden = (uint64_t)count * m->config.hidden;
    const uint64_t inner = (uint64_t)count * m->config.inner;

    memset(s->product, 0, inner * sizeof(float));
    linear_back(m, number, ADAPT_DOWN, count, l->product, s->hidden, s->product);
    for (uint64_t i = 0; i < inner; i++) {
        const float share = sigmoid(l->gate[i]);
        const float swish = l->gate[i] * share;

        s->up[i] = s->product[i] * swish;
        s->gate[i] = s->product[i] * l->up[i] * (share + swish * (1.0f - share));
    }
    memset(s->normed, 0, hidden * sizeof(float));
    linear_back(m, number, ADAPT_GATE, count, l->mlp_normed, s->gate, s->normed);
    linear_back(m, number, ADAPT_UP, count, l->mlp_normed, s->up, s->normed);
    norm_back(m, count, l->middle, l->mlp_norm, s->normed, s->hidden);
}

/* s->hidden holds the gradient of `middle`, then of what went in. */
static void
attention_back(adapted *m, uint32_t number, uint32_t count, const slopes *s)
{
    const adapt_layer *const l = &m->layers[number];
    const llama_config *const c = &m->config;
    const uint64_t hidden = (uint64_t)count * c->hidden;
    const uint64_t queries = (uint64_t)count * c->heads * c->head_dim;
    const uint64_t keys = (uint64_t)count * c->kv_heads * c->head_dim;

    memset(s->attended, 0, queries * sizeof(float));
    linear_back(m, number, ADAPT_OUTPUT, count, l->attended, s->hidden, s->attended);
    memset(s->queries, 0, queries * sizeof(float));
    memset(s->keys, 0, keys * sizeof(float));
    memset(s->values, 0, keys * sizeof(float));
    attend_back(m, l, count, s->attended, s->queries, s->keys, s->values);
    rotate(m, count, c->heads, true, s->queries);
    rotate(m, count, c->kv_heads, true, s->keys);
    memset(s->normed, 0, hidden * sizeof(float));
    linear_back(m, number, ADAPT_QUERY, count, l->normed, s->queries, s->normed);
    linear_back(m, number, ADAPT_KEY, count, l->normed, s->keys, s->normed);
    linear_back(m, number, ADAPT_VALUE, count, l->normed, s->values, s->normed);
    norm_back(m, count, l->input, l->attention_norm, s->normed, s->hidden);
}

void
adapt_backward(adapted *m, uint32_t count)
{
    const uint64_t width = m->config.hidden;
    const uint64_t vocab = m->config.vocab;
    const slopes s = slopes_of(m);

    memset(m->gradients, 0, m->elements * sizeof(float));
    memset(s.normed, 0, count * width * sizeof(float));
    for (uint32_t t = 0; t < count; t++)
        for (uint64_t v = 0; v < vocab; v++)
            add_scaled(m->head + v * width, m->logits[t * vocab + v], width,
                       s.normed + t * width);
    memset(s.hidden, 0, count * width * sizeof(float));
    norm_back(m, count, m->hidden, m->final_norm, s.normed, s.hidden);
    for (uint32_t number = m->config.layers; number-- > 0;) {
        mlp_back(m, number, count, &s);
        attention_back(m, number, count, &s);
    }
}
