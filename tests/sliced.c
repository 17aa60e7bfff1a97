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

/* `size` stretches, of which the slice has some, `outer` times. */
typedef struct view {
    uint64_t outer;
    uint64_t size;
    uint64_t first;
    uint64_t count;
    uint64_t bytes; /* of a stretch */
} view;

static view
look(const sliced_piece *p)
{
    const uint32_t at = p->berth.along > 0 ? (uint32_t)p->berth.along - 1 : 0;
    const uint64_t parts = p->berth.parts > 0 ? p->berth.parts : 1;
    view v = { parts, p->tensor.shape[at] / parts, p->berth.first, p->berth.count, p->width };

    for (uint32_t i = 0; i < at; i++)
        v.outer *= p->tensor.shape[i];
    for (uint32_t i = at + 1; i < p->tensor.rank; i++)
        v.bytes *= p->tensor.shape[i];
    if (p->berth.along == BERTH_SLICING_NONE)
        v.count = v.size;
    return v;
}

void
sliced_begin(sliced_piece *p, const loaded *l, uint64_t number)
{
    view v;

    CHECK_EQ(berth_plan_get_berth(l->p.plan, number, &p->berth, p->name, sizeof p->name),
             BERTH_OK);
    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, p->berth.tensor, &p->tensor),
             BERTH_OK);
    p->whole = weights_alloc(p->tensor.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, p->berth.tensor, 0, UINT64_MAX,
                                   p->whole, p->tensor.bytes, NULL),
             BERTH_OK);
    p->width = berth_dtype_bits(p->tensor.dtype) / 8;
    v = look(p);
    p->size = v.outer * v.count * v.bytes;
    p->bytes = weights_alloc(p->size);
    for (uint64_t i = 0; i < v.outer; i++)
        memcpy(p->bytes + i * v.count * v.bytes, p->whole + (i * v.size + v.first) * v.bytes,
               (size_t)(v.count * v.bytes));
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
    const view v = look(p);

    for (uint64_t i = 0; i < v.outer; i++)
        memcpy(whole + (i * v.size + v.first) * v.bytes, loaded_bytes + i * v.count * v.bytes,
               (size_t)(v.count * v.bytes));
}

static bool
is_along(const sliced_piece *p, const char *part, int32_t along)
{
    return strstr(p->name, part) == NULL || p->berth.along == along;
}

/* What the model's layers are made of, where no experts are stacked. */
static void
check_kind(const sliced_piece *p)
{
    static const char *const rows[] = { "q_proj",  "k_proj", "v_proj",       "gate_proj",
                                        "up_proj", ".w1",    "embed_tokens", "lm_head" };
    static const char *const columns[] = { "o_proj.weight", "down_proj", ".w2" };
    static const char *const whole[] = { "norm", ".gate.", "o_proj.bias" };
    bool is_right = true;

    if (p->tensor.rank > 2 || strstr(p->name, "_proj_bias") != NULL)
        return;
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

void
sliced_check_ranks(const char *folder, uint32_t ranks, bool is_device)
{
    const char *const memory = is_device ? "0=64MiB,cpu=64MiB" : "cpu=64MiB";
    uint8_t *whole[64] = { NULL };
    uint64_t count = 0;
    loaded l;

    for (uint32_t rank = 0; rank < ranks; rank++) {
        berth_plan_options options = sliced_options(memory, rank, ranks);
        berth_check_report report;
        uint64_t bytes = 0;

        loaded_begin(&l, folder, &options, is_device ? "sim:64MiB" : NULL);
        CHECK_EQ(l.p.summary.rank, rank);
        CHECK_EQ(l.p.summary.ranks, ranks);
        planned_check(&l.p);
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        count = l.p.summary.berth_count;
        for (uint64_t i = 0; l.model != NULL && i < count; i++) {
            berth_tensor tensor;

            CHECK_EQ(berth_checkpoint_tensor(l.p.checkpoint, i, &tensor), BERTH_OK);
            if (whole[i] == NULL)
                whole[i] = weights_alloc(tensor.bytes);
            if (rank == 0)
                memset(whole[i], 0xEE, (size_t)tensor.bytes);
        }
        for (uint64_t i = 0; l.model != NULL && i < count; i++) {
            berth_berth berth;

            CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, NULL, 0), BERTH_OK);
            bytes += sliced_check(&l, i, ranks, whole[berth.tensor]);
        }
        CHECK_EQ(l.report.placed_bytes, bytes);
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        for (uint64_t i = 0; rank + 1 == ranks && !is_device && i < count; i++) {
            berth_tensor tensor;
            uint8_t *bytes_of;

            CHECK_EQ(berth_checkpoint_tensor(l.p.checkpoint, i, &tensor), BERTH_OK);
            bytes_of = weights_alloc(tensor.bytes);
            CHECK_EQ(berth_checkpoint_read(l.p.checkpoint, i, 0, UINT64_MAX, bytes_of,
                                           tensor.bytes, NULL),
                     BERTH_OK);
            CHECK_MEM(whole[i], bytes_of, (size_t)tensor.bytes);
            free(bytes_of);
        }
        loaded_end(&l);
    }
    for (uint64_t i = 0; i < count; i++)
        free(whole[i]);
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

void
sliced_check_type(const char *folder, int32_t type, bool is_double, bool is_device)
{
    for (uint32_t rank = 0; rank < 4; rank++) {
        berth_plan_options options =
            sliced_options(is_device ? "0=64MiB,cpu=64MiB" : "cpu=64MiB", rank, 4);
        berth_check_report report;
        loaded l;

        options.type = type;
        options.double_quant = is_double;
        options.takes_experts = 1;
        loaded_begin(&l, folder, &options, is_device ? "sim:64MiB" : NULL);
        planned_check(&l.p);
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        for (uint64_t i = 0; !is_device && i < l.p.summary.berth_count; i++)
            sliced_check_encoded(&l, i, type, is_double);
        CHECK_GT(l.report.quantized_bytes, 10000);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

void
sliced_check_stored(const char *source, const char *folder, uint32_t rank,
                    const char *words)
{
    berth_plan_options options =
        sliced_options(words == NULL ? "cpu=64MiB" : "0=64MiB,cpu=64MiB", rank, 4);
    berth_check_report report;
    loaded encoded;
    loaded stored;

    loaded_begin(&stored, folder, &options, words);
    planned_check(&stored.p);
    loaded_load(&stored);
    if (!CHECK_EQ(stored.status, BERTH_OK))
        t_note("%s: %s", stored.error.tensor, stored.error.message);
    CHECK_EQ(loaded_see_checked(&stored, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    options.type = BERTH_ENCODING_NF4;
    options.takes_experts = 1;
    loaded_begin(&encoded, source, &options, words);
    loaded_load(&encoded);
    CHECK_EQ(encoded.p.summary.berth_count, stored.p.summary.berth_count);
    for (uint64_t i = 0; i < encoded.p.summary.berth_count; i++) {
        uint32_t expected = 0;
        uint32_t found = 0;
        berth_berth berth;
        char name[256];
        uint64_t other;

        CHECK_EQ(berth_plan_get_berth(encoded.p.plan, i, &berth, name, sizeof name),
                 BERTH_OK);
        other = berth_model_find(stored.model, name, strlen(name));
        CHECK_EQ(berth_model_digest(encoded.model, i, &expected, NULL), BERTH_OK);
        CHECK_EQ(berth_model_digest(stored.model, other, &found, NULL), BERTH_OK);
        if (!CHECK_EQ(found, expected))
            t_note("%s, rank %u", name, rank);
    }
    loaded_end(&encoded);
    loaded_end(&stored);
}
