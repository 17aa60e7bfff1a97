/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_check.c - what a decoder's steps can be asked for; see decoder.h. */
#include "kernels/decoder.h"
#include "kernels/number.h"

/* The first member that is none. */
typedef struct checker {
    berth_error *error;
    berth_status status;
} checker;

static void
expect(checker *c, bool is_right, const char *name, const char *wrong)
{
    if (!is_right && c->status == BERTH_OK)
        c->status = berthi_fail_argument(c->error, name, wrong);
}

static void
expect_dtype(checker *c, int32_t dtype, const char *name)
{
    expect(c, berthi_is_number(dtype), name, "is none of BERTH_BF16, BERTH_F16, BERTH_F32");
}

/* Something of so many numbers. */
static void
expect_some(checker *c, const void *memory, uint64_t a, uint64_t b, uint64_t d,
            const char *name)
{
    uint64_t numbers;
    uint64_t bytes;
    const bool has_size = berthi_can_mul(a, b, &numbers) && berthi_can_mul(numbers, d, &numbers)
                          && berthi_can_mul(numbers, sizeof(float), &bytes);

    expect(c, has_size, name, "is larger than any memory");
    if (has_size && bytes > 0)
        expect(c, memory != NULL, name, "is NULL");
}

berth_status
berthi_take_check(const berth_take *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->table_dtype, "table_dtype");
    expect_dtype(&c, s->dtype, "dtype");
    if (s->count > 0)
        expect_some(&c, s->table, s->rows, s->columns, 1, "table");
    expect_some(&c, s->numbers, s->count, 1, 1, "numbers");
    expect_some(&c, s->outputs, s->count, s->columns, 1, "outputs");
    return c.status;
}

berth_status
berthi_norm_check(const berth_norm *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->sums != NULL ? s->added_dtype : s->inputs_dtype,
                 s->sums != NULL ? "added_dtype" : "inputs_dtype");
    expect_dtype(&c, s->weight_dtype, "weight_dtype");
    expect_dtype(&c, s->dtype, "dtype");
    expect_some(&c, s->sums != NULL ? s->added : s->inputs, s->count, s->columns, 1,
                s->sums != NULL ? "added" : "inputs");
    if (s->count > 0)
        expect_some(&c, s->weight, 1, s->columns, 1, "weight");
    expect_some(&c, s->outputs, s->count, s->columns, 1, "outputs");
    return c.status;
}

/* What rotate and attend have in common. */
static void
expect_heads(checker *c, uint32_t heads, uint32_t kv_heads, uint32_t width)
{
    expect(c, kv_heads > 0, "kv_heads", "is 0");
    expect(c, heads > 0, "heads", "is 0");
    expect(c, kv_heads == 0 || heads % kv_heads == 0, "kv_heads", "is no divisor of `heads`");
    expect(c, width % 2 == 0 && width >= 2 && width <= BERTHI_HEAD_WIDTH, "width",
           "is no even number from 2 to 256");
}

static void
expect_positions(checker *c, uint64_t position, uint32_t count, uint64_t capacity)
{
    expect(c, position <= capacity && count <= capacity - position, "capacity",
           "is less than `position` + `count`");
}

berth_status
berthi_rotate_check(const berth_rotate *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    if (s->query_norm != NULL || s->key_norm != NULL)
        expect_dtype(&c, s->norm_dtype, "norm_dtype");
    expect_dtype(&c, s->cache_dtype, "cache_dtype");
    expect_heads(&c, s->heads, s->kv_heads, s->width);
    expect_positions(&c, s->position, s->count, s->capacity);
    expect_some(&c, s->queries, s->count, s->heads, s->width, "queries");
    expect_some(&c, s->keys, s->count, s->kv_heads, s->width, "keys");
    expect_some(&c, s->values, s->count, s->kv_heads, s->width, "values");
    expect_some(&c, s->angles, s->count, s->width, 1, "angles");
    if (s->count > 0) {
        expect_some(&c, s->key_cache, s->kv_heads, s->capacity, s->width, "key_cache");
        expect_some(&c, s->value_cache, s->kv_heads, s->capacity, s->width, "value_cache");
    }
    return c.status;
}

berth_status
berthi_attend_check(const berth_attend *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    expect_dtype(&c, s->cache_dtype, "cache_dtype");
    expect_heads(&c, s->heads, s->kv_heads, s->width);
    expect_positions(&c, s->position, s->count, s->capacity);
    expect_some(&c, s->queries, s->count, s->heads, s->width, "queries");
    if (s->count > 0) {
        expect_some(&c, s->key_cache, s->kv_heads, s->capacity, s->width, "key_cache");
        expect_some(&c, s->value_cache, s->kv_heads, s->capacity, s->width, "value_cache");
    }
    expect_some(&c, s->outputs, s->count, s->heads, s->width, "outputs");
    return c.status;
}

berth_status
berthi_gate_check(const berth_gate *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    expect_some(&c, s->gate, s->elements, 1, 1, "gate");
    expect_some(&c, s->up, s->elements, 1, 1, "up");
    return c.status;
}

berth_status
berthi_add_check(const berth_add *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    expect_some(&c, s->values, s->count, s->columns, 1, "values");
    if (s->count > 0)
        expect_some(&c, s->sums, s->sum_rows, s->columns, 1, "sums");
    return c.status;
}

berth_status
berthi_choose_check(const berth_choose *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    expect(&c, s->experts >= 1 && s->experts <= BERTHI_CHOOSE_EXPERTS, "experts",
           "is no number from 1 to 1024");
    expect(&c, s->used >= 1 && s->used <= BERTHI_CHOOSE_USED && s->used <= s->experts, "used",
           "is no number from 1 to 64, or more than `experts`");
    expect_some(&c, s->logits, s->count, s->experts, 1, "logits");
    expect_some(&c, s->numbers, s->count, s->used, 1, "numbers");
    expect_some(&c, s->weights, s->count, s->used, 1, "weights");
    return c.status;
}

berth_status
berthi_largest_check(const berth_largest *s, berth_error *error)
{
    checker c = { error, BERTH_OK };

    expect_dtype(&c, s->dtype, "dtype");
    expect(&c, s->columns >= 1, "columns", "is 0");
    expect_some(&c, s->values, s->count, s->columns, 1, "values");
    expect_some(&c, s->numbers, s->count, 1, 1, "numbers");
    return c.status;
}
