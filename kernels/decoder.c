/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - a decoder's steps by plain loops, but for attention and choices. */
#include "kernels/decoder_lanes.h"

/* ---------------------------------------------------------------------- rows */

void
berthi_take_run(const berth_take *s)
{
    const uint32_t share = s->share != 0 ? s->share : 1;

    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t row = s->numbers[i] / share;

        for (uint64_t k = 0; k < s->columns; k++)
            berthi_core_put(s->outputs, s->dtype, i * s->columns + k,
                            row < s->rows ? berthi_core_load(s->table, s->table_dtype,
                                                             row * s->columns + k)
                                          : 0.0f);
    }
}

static void
add_first(const berth_norm *s)
{
    for (uint64_t i = 0; i < s->count * s->columns; i++)
        s->sums[i] = berthi_core_one_nan(berthi_core_add_product(
            s->sums[i], 1.0f, berthi_core_load(s->added, s->added_dtype, i)));
}

void
berthi_norm_run(const berth_norm *s)
{
    const void *const inputs = s->sums != NULL ? s->sums : s->inputs;
    const int32_t inputs_dtype = s->sums != NULL ? BERTH_F32 : s->inputs_dtype;

    if (s->sums != NULL)
        add_first(s);
    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t first = i * s->columns;
        const float squares = sum_squares(inputs, inputs_dtype, first, s->columns);
        const float divisor = berthi_core_norm_divisor(squares, s->columns, s->epsilon);

        for (uint64_t k = 0; k < s->columns; k++) {
            const float value = berthi_core_load(inputs, inputs_dtype, first + k);
            const float weight = berthi_core_load(s->weight, s->weight_dtype, k);

            berthi_core_put(s->outputs, s->dtype, first + k,
                            berthi_core_norm(value, divisor, weight));
        }
    }
}

/* --------------------------------------------------------------------- heads */

/* One head, and where it goes. */
typedef struct head {
    const void *from;
    uint64_t from_first;
    void *to;
    int32_t to_dtype;
    uint64_t to_first;
    const void *norm; /* NULL: none */
    const float *angles;
} head;

static void
rotate_head(const berth_rotate *s, const head *h)
{
    const uint32_t half = s->width / 2;
    float values[BERTHI_HEAD_WIDTH];

    widen(h->from, s->dtype, h->from_first, s->width, values);
    if (h->norm != NULL) {
        const float squares = sum_products(values, values, s->width);
        const float divisor = berthi_core_norm_divisor(squares, s->width, s->epsilon);

        for (uint32_t i = 0; i < s->width; i++)
            values[i] = berthi_core_norm(values[i], divisor,
                                         berthi_core_load(h->norm, s->norm_dtype, i));
    }
    for (uint32_t i = 0; i < half; i++)
        berthi_core_turn(&values[i], &values[half + i], h->angles[i], h->angles[half + i]);
    for (uint32_t i = 0; i < s->width; i++)
        berthi_core_put(h->to, h->to_dtype, h->to_first + i, values[i]);
}

/* Token i's key and value of that head into the caches. */
static void
cache_head(const berth_rotate *s, uint32_t i, uint32_t number)
{
    const uint64_t from = ((uint64_t)i * s->kv_heads + number) * s->width;
    const uint64_t to = (number * s->capacity + s->position + i) * s->width;

    rotate_head(s, &(head){ .from = s->keys,
                            .from_first = from,
                            .to = s->key_cache,
                            .to_dtype = s->cache_dtype,
                            .to_first = to,
                            .norm = s->key_norm,
                            .angles = s->angles + (uint64_t)i * s->width });
    for (uint32_t k = 0; k < s->width; k++)
        berthi_core_put(s->value_cache, s->cache_dtype, to + k,
                        berthi_core_load(s->values, s->dtype, from + k));
}

void
berthi_rotate_run(const berth_rotate *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        for (uint32_t number = 0; number < s->heads; number++) {
            const uint64_t first = ((uint64_t)i * s->heads + number) * s->width;

            rotate_head(s, &(head){ .from = s->queries,
                                    .from_first = first,
                                    .to = s->queries,
                                    .to_dtype = s->dtype,
                                    .to_first = first,
                                    .norm = s->query_norm,
                                    .angles = s->angles + (uint64_t)i * s->width });
        }
        for (uint32_t number = 0; number < s->kv_heads; number++)
            cache_head(s, i, number);
    }
}

/* ------------------------------------------------------------------ elements */

void
berthi_gate_run(const berth_gate *s)
{
    for (uint64_t i = 0; i < s->elements; i++)
        berthi_core_put(s->gate, s->dtype, i,
                        berthi_core_gate(berthi_core_load(s->gate, s->dtype, i),
                                         berthi_core_load(s->up, s->dtype, i)));
}

void
berthi_add_run(const berth_add *s)
{
    const uint32_t share = s->share != 0 ? s->share : 1;

    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t number = s->rows != NULL ? s->rows[i] : i;
        const uint64_t row = number / share;
        float weight;

        if (row >= s->sum_rows)
            continue;
        weight = s->weights != NULL ? s->weights[number] : 1.0f;
        for (uint64_t k = 0; k < s->columns; k++) {
            const float value = berthi_core_load(s->values, s->dtype, i * s->columns + k);
            float *const sum = &s->sums[row * s->columns + k];

            *sum = berthi_core_one_nan(berthi_core_add_product(*sum, weight, value));
        }
    }
}
