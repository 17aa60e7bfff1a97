/* SPDX-License-Identifier: Apache-2.0 */
/* sliced.c - models that are cut for the ranks of tensor parallelism; see sliced.h. */
#include "tests/sliced.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

/* ------------------------------------------------------------------------- models */

const sliced_sizes sliced_small = {
    .type = "llama",
    .hidden = 128,
    .heads = 8,
    .kv_heads = 2,
    .head_dim = 24,
    .inner = 352,
    .words = 515,
};
const sliced_sizes sliced_mixture = {
    .type = "mixtral",
    .hidden = 64,
    .heads = 4,
    .kv_heads = 4,
    .head_dim = 16,
    .inner = 96,
    .words = 64,
    .experts = 3,
};
const sliced_sizes sliced_blocks = {
    .type = "llama",
    .hidden = 256,
    .heads = 8,
    .kv_heads = 8,
    .head_dim = 32,
    .inner = 512,
    .words = 64,
};

void
sliced_add(fixture_builder *b, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    const uint64_t count = rows * (columns == 0 ? 1 : columns);
    void *const values = weights_values(BERTH_BF16, count, strlen(name) + rows, false);

    fixture_add(b, name, "BF16", columns == 0 ? 1 : 2, shape, values);
    free(values);
}

static void
add_mlp(fixture_builder *b, const sliced_sizes *s, const char *prefix, const char *gate,
        const char *up, const char *down)
{
    sliced_add(b, fixture_format("%s.%s.weight", prefix, gate), s->inner, s->hidden);
    sliced_add(b, fixture_format("%s.%s.weight", prefix, up), s->inner, s->hidden);
    sliced_add(b, fixture_format("%s.%s.weight", prefix, down), s->hidden, s->inner);
}

static void
add_layer(fixture_builder *b, const sliced_sizes *s)
{
    const uint32_t inner = s->heads * s->head_dim;
    const uint32_t keys = s->kv_heads * s->head_dim;

    sliced_add(b, "model.layers.0.self_attn.q_proj.weight", inner, s->hidden);
    sliced_add(b, "model.layers.0.self_attn.k_proj.weight", keys, s->hidden);
    sliced_add(b, "model.layers.0.self_attn.v_proj.weight", keys, s->hidden);
    sliced_add(b, "model.layers.0.self_attn.o_proj.weight", s->hidden, inner);
    sliced_add(b, "model.layers.0.input_layernorm.weight", s->hidden, 0);
    if (s->experts == 0) {
        sliced_add(b, "model.layers.0.self_attn.q_proj.bias", inner, 0);
        sliced_add(b, "model.layers.0.self_attn.o_proj.bias", s->hidden, 0);
        add_mlp(b, s, "model.layers.0.mlp", "gate_proj", "up_proj", "down_proj");
        return;
    }
    sliced_add(b, "model.layers.0.block_sparse_moe.gate.weight", s->experts, s->hidden);
    for (uint32_t i = 0; i < s->experts; i++)
        add_mlp(b, s, fixture_format("model.layers.0.block_sparse_moe.experts.%u", i), "w1",
                "w3", "w2");
}

const char *
sliced_make(const sliced_sizes *s)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    sliced_add(b, "model.embed_tokens.weight", s->words, s->hidden);
    add_layer(b, s);
    if (s->extra != NULL)
        sliced_add(b, s->extra, 64, 64);
    sliced_add(b, "model.norm.weight", s->hidden, 0);
    sliced_add(b, "lm_head.weight", s->words, s->hidden);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"%s\"], \"model_type\": \"%s\", "
                       "\"hidden_size\": %u, \"intermediate_size\": %u, "
                       "\"num_hidden_layers\": 1, \"num_attention_heads\": %u, "
                       "\"num_key_value_heads\": %u, \"head_dim\": %u, \"vocab_size\": %u, "
                       "\"num_local_experts\": %u, \"num_experts_per_tok\": 2, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}",
                       s->experts > 0 ? "MixtralForCausalLM" : "LlamaForCausalLM", s->type,
                       s->hidden, s->inner, s->heads, s->kv_heads, s->head_dim, s->words,
                       s->experts));
    return folder;
}

berth_plan_options
sliced_options(const char *max_memory, uint32_t rank, uint32_t ranks)
{
    berth_plan_options options = loaded_options(max_memory);

    options.rank = rank;
    options.ranks = ranks;
    return options;
}

void
sliced_refuse(const char *folder, berth_plan_options options, berth_status status,
              const char *words, const char *tensor)
{
    planned p;

    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, status);
    CHECK_CONTAINS(p.error.message, words);
    if (tensor != NULL)
        CHECK_STR(p.error.tensor, tensor);
    planned_end(&p);
}

/* ------------------------------------------------------------------------ expected */

/* Where value (row, column) of the slice is in the whole tensor. */
static uint64_t
place(const sliced_piece *p, uint64_t row, uint64_t column)
{
    const bool is_rows = p->berth.along == BERTH_SLICING_ROWS;
    const bool is_columns = p->berth.along == BERTH_SLICING_COLUMNS;

    return ((row + (is_rows ? p->berth.first : 0)) * p->columns + column
            + (is_columns ? p->berth.first : 0))
           * p->width;
}

void
sliced_begin(sliced_piece *p, const loaded *l, uint64_t number)
{
    uint64_t rows;
    uint64_t columns;

    CHECK_EQ(berth_plan_get_berth(l->p.plan, number, &p->berth, p->name, sizeof p->name),
             BERTH_OK);
    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, p->berth.tensor, &p->tensor),
             BERTH_OK);
    p->whole = weights_alloc(p->tensor.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, p->berth.tensor, 0, UINT64_MAX,
                                   p->whole, p->tensor.bytes, NULL),
             BERTH_OK);
    p->rows = p->tensor.shape[0];
    p->columns = 1;
    for (uint32_t i = 1; i < p->tensor.rank; i++)
        p->columns *= p->tensor.shape[i];
    p->width = berth_dtype_bits(p->tensor.dtype) / 8;
    rows = p->berth.along == BERTH_SLICING_ROWS ? p->berth.count : p->rows;
    columns = p->berth.along == BERTH_SLICING_COLUMNS ? p->berth.count : p->columns;
    p->size = rows * columns * p->width;
    p->bytes = weights_alloc(p->size);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            memcpy(p->bytes + (r * columns + c) * p->width, p->whole + place(p, r, c),
                   p->width);
}

void
sliced_end(sliced_piece *p)
{
    free(p->whole);
    free(p->bytes);
}

/* Puts what was loaded back to where it is in the whole tensor. */
static void
put_back(const sliced_piece *p, const uint8_t *loaded_bytes, uint8_t *whole)
{
    const uint64_t columns =
        p->berth.along == BERTH_SLICING_COLUMNS ? p->berth.count : p->columns;

    for (uint64_t i = 0; i < p->size / p->width; i++)
        memcpy(whole + place(p, i / columns, i % columns), loaded_bytes + i * p->width,
               p->width);
}

static bool
is_along(const sliced_piece *p, const char *part, int32_t along)
{
    return strstr(p->name, part) == NULL || p->berth.along == along;
}

/* What the model's layers are made of. */
static void
check_kind(const sliced_piece *p)
{
    static const char *const rows[] = { "q_proj",  "k_proj", "v_proj",       "gate_proj",
                                        "up_proj", ".w1",    "embed_tokens", "lm_head" };
    static const char *const columns[] = { "o_proj.weight", "down_proj", ".w2" };
    static const char *const whole[] = { "norm", ".gate.", "o_proj.bias" };
    bool is_right = true;

    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        is_right &= is_along(p, rows[i], BERTH_SLICING_ROWS);
    for (uint32_t i = 0; i < sizeof columns / sizeof *columns; i++)
        is_right &= is_along(p, columns[i], BERTH_SLICING_COLUMNS);
    for (uint32_t i = 0; i < sizeof whole / sizeof *whole; i++)
        is_right &= is_along(p, whole[i], BERTH_SLICING_NONE);
    if (!CHECK(is_right))
        t_note("%s", p->name);
}

uint64_t
sliced_check(loaded *l, uint64_t number, uint32_t ranks, uint8_t *whole)
{
    berth_model_tensor tensor;
    uint32_t crc = 0;
    sliced_piece p;
    uint64_t size;

    sliced_begin(&p, l, number);
    size = p.size;
    if (ranks > 1)
        check_kind(&p);
    CHECK_EQ(berth_model_digest(l->model, number, &crc, NULL), BERTH_OK);
    if (!CHECK_EQ(crc, berthi_digest_crc32(0, p.bytes, (size_t)p.size)))
        t_note("%s", p.name);
    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    CHECK_EQ(tensor.part_count, 1);
    CHECK_EQ(tensor.parts[0].bytes, p.size);
    CHECK_EQ(tensor.elements, p.size / p.width);
    CHECK_EQ(p.berth.bytes, (p.size + 255) / 256 * 256);
    if (l->devices == NULL) {
        CHECK_MEM(tensor.parts[0].memory, p.bytes, (size_t)p.size);
        put_back(&p, tensor.parts[0].memory, whole);
    }
    sliced_end(&p);
    return size;
}

/* ------------------------------------------------------------------------- encoded */

void
sliced_encode(sliced_encoded *e, berth_context *context,
              const berth_values_options *options, const void *values, uint64_t size)
{
    CHECK_EQ(berth_values_list(options, e->parts, &e->count, NULL), BERTH_OK);
    berth_values_buffers_init(&e->buffers);
    for (uint32_t i = 0; i < e->count; i++) {
        const uint64_t bytes = e->parts[i].bytes;

        e->memory[i] = weights_alloc(bytes);
        if (e->parts[i].role == BERTH_ROLE_CODES) {
            e->buffers.codes = e->memory[i];
            e->buffers.codes_bytes = bytes;
        } else if (e->parts[i].role == BERTH_ROLE_ABSMAX
                   || e->parts[i].role == BERTH_ROLE_ROW_MAXIMUM) {
            e->buffers.absmax = e->memory[i];
            e->buffers.absmax_bytes = bytes;
        } else if (e->parts[i].role == BERTH_ROLE_ABSMAX2) {
            e->buffers.absmax2 = (float *)(void *)e->memory[i];
            e->buffers.absmax2_bytes = bytes;
        }
    }
    CHECK_EQ(berth_values_quantize(context, options, values, size, &e->buffers, NULL),
             BERTH_OK);
}

const uint8_t *
sliced_part(const sliced_encoded *e, int32_t role)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->parts[i].role == role)
            return e->memory[i];
    return NULL;
}

void
sliced_encoded_end(sliced_encoded *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        free(e->memory[i]);
}

void
sliced_check_encoded(const loaded *l, uint64_t number, int32_t type, bool is_double)
{
    berth_values_options options;
    berth_model_tensor tensor;
    sliced_encoded e;
    sliced_piece p;

    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    if (tensor.encoding == BERTH_ENCODING_NATIVE)
        return;
    CHECK_EQ(tensor.encoding, type);
    sliced_begin(&p, l, number);
    berth_values_options_init(&options);
    options.encoding = type;
    options.shape = tensor.shape;
    options.rank = tensor.rank;
    options.double_quant = is_double;
    sliced_encode(&e, l->p.context, &options, p.bytes, p.size);
    for (uint32_t i = 0; i < tensor.part_count; i++)
        if (!CHECK_MEM(tensor.parts[i].memory, sliced_part(&e, tensor.parts[i].role),
                       (size_t)tensor.parts[i].bytes))
            t_note("%s, part %u", p.name, i);
    if (is_double)
        CHECK_MEM(&tensor.offset, &e.buffers.offset, sizeof tensor.offset);
    sliced_encoded_end(&e);
    sliced_end(&p);
}
