/* SPDX-License-Identifier: Apache-2.0 */
/* test_load_slices.c - models that are planned and loaded as the ranks of tensor
 * parallelism need them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/moved.h"
#include "tests/t.h"
#include "tests/weights.h"

#define MIB (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------- models */

typedef struct sizes {
    const char *type;
    uint32_t hidden;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t inner;
    uint32_t words;
    uint32_t experts; /* 0: a dense MLP */
    const char *extra; /* a tensor more */
} sizes;

static const sizes small = { .type = "llama",
                             .hidden = 128,
                             .heads = 8,
                             .kv_heads = 2,
                             .head_dim = 24,
                             .inner = 352,
                             .words = 515 };
static const sizes mixture = { .type = "mixtral",
                               .hidden = 64,
                               .heads = 4,
                               .kv_heads = 4,
                               .head_dim = 16,
                               .inner = 96,
                               .words = 64,
                               .experts = 3 };
/* 128 rows of it are 256 blocks of 64. */
static const sizes blocks = { .type = "llama",
                              .hidden = 256,
                              .heads = 8,
                              .kv_heads = 8,
                              .head_dim = 32,
                              .inner = 512,
                              .words = 64 };

static void
add(fixture_builder *b, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    const uint64_t count = rows * (columns == 0 ? 1 : columns);
    void *const values = weights_values(BERTH_BF16, count, strlen(name) + rows, false);

    fixture_add(b, name, "BF16", columns == 0 ? 1 : 2, shape, values);
    free(values);
}

static void
add_mlp(fixture_builder *b, const sizes *s, const char *prefix, const char *gate,
        const char *up, const char *down)
{
    add(b, fixture_format("%s.%s.weight", prefix, gate), s->inner, s->hidden);
    add(b, fixture_format("%s.%s.weight", prefix, up), s->inner, s->hidden);
    add(b, fixture_format("%s.%s.weight", prefix, down), s->hidden, s->inner);
}

static void
add_layer(fixture_builder *b, const sizes *s)
{
    const uint32_t inner = s->heads * s->head_dim;
    const uint32_t keys = s->kv_heads * s->head_dim;

    add(b, "model.layers.0.self_attn.q_proj.weight", inner, s->hidden);
    add(b, "model.layers.0.self_attn.k_proj.weight", keys, s->hidden);
    add(b, "model.layers.0.self_attn.v_proj.weight", keys, s->hidden);
    add(b, "model.layers.0.self_attn.o_proj.weight", s->hidden, inner);
    add(b, "model.layers.0.input_layernorm.weight", s->hidden, 0);
    if (s->experts == 0) {
        add(b, "model.layers.0.self_attn.q_proj.bias", inner, 0);
        add(b, "model.layers.0.self_attn.o_proj.bias", s->hidden, 0);
        add_mlp(b, s, "model.layers.0.mlp", "gate_proj", "up_proj", "down_proj");
        return;
    }
    add(b, "model.layers.0.block_sparse_moe.gate.weight", s->experts, s->hidden);
    for (uint32_t i = 0; i < s->experts; i++)
        add_mlp(b, s, fixture_format("model.layers.0.block_sparse_moe.experts.%u", i), "w1",
                "w3", "w2");
}

static const char *
make(const sizes *s)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    add(b, "model.embed_tokens.weight", s->words, s->hidden);
    add_layer(b, s);
    if (s->extra != NULL)
        add(b, s->extra, 64, 64);
    add(b, "model.norm.weight", s->hidden, 0);
    add(b, "lm_head.weight", s->words, s->hidden);
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

/* ------------------------------------------------------------------------ expected */

/* A stored tensor, and what the berth says that it holds of it. */
typedef struct piece {
    char name[128];
    berth_berth berth;
    berth_tensor tensor;
    uint8_t *whole;   /* its bytes */
    uint8_t *bytes;   /* those of the slice, */
    uint64_t size;    /* so many */
    uint64_t rows;    /* of all of it */
    uint64_t columns;
    uint64_t width;   /* of a value */
} piece;

/* Where value (row, column) of the slice is in the whole tensor. */
static uint64_t
place(const piece *p, uint64_t row, uint64_t column)
{
    const bool is_rows = p->berth.along == BERTH_SLICING_ROWS;
    const bool is_columns = p->berth.along == BERTH_SLICING_COLUMNS;

    return ((row + (is_rows ? p->berth.first : 0)) * p->columns + column
            + (is_columns ? p->berth.first : 0))
           * p->width;
}

static void
piece_begin(piece *p, const loaded *l, uint64_t number)
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
    p->columns = p->tensor.rank > 1 ? p->tensor.shape[1] : 1;
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

static void
piece_end(piece *p)
{
    free(p->whole);
    free(p->bytes);
}

/* Puts what was loaded back to where it is in the whole tensor. */
static void
put_back(const piece *p, const uint8_t *loaded_bytes, uint8_t *whole)
{
    const uint64_t columns =
        p->berth.along == BERTH_SLICING_COLUMNS ? p->berth.count : p->columns;

    for (uint64_t i = 0; i < p->size / p->width; i++)
        memcpy(whole + place(p, i / columns, i % columns), loaded_bytes + i * p->width,
               p->width);
}

/* -------------------------------------------------------------------------- ranks */

static berth_plan_options
options_of(const char *max_memory, uint32_t rank, uint32_t ranks)
{
    berth_plan_options options = loaded_options(max_memory);

    options.rank = rank;
    options.ranks = ranks;
    return options;
}

static bool
is_along(const piece *p, const char *part, int32_t along)
{
    return strstr(p->name, part) == NULL || p->berth.along == along;
}

/* What the model's layers are made of. */
static void
check_kind(const piece *p)
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

/* One berth of a rank: what it holds is what its slice is; into the whole with it. */
static uint64_t
check_berth(loaded *l, uint64_t number, uint32_t ranks, uint8_t *whole)
{
    berth_model_tensor tensor;
    uint32_t crc = 0;
    piece p;
    uint64_t size;

    piece_begin(&p, l, number);
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
    piece_end(&p);
    return size;
}

/* All ranks, one after the other: what they have is the whole model. */
static void
check_ranks(const char *folder, uint32_t ranks, bool is_device)
{
    const char *const memory = is_device ? "0=64MiB,cpu=64MiB" : "cpu=64MiB";
    uint8_t *whole[64] = { NULL };
    uint64_t count = 0;
    loaded l;

    for (uint32_t rank = 0; rank < ranks; rank++) {
        berth_plan_options options = options_of(memory, rank, ranks);
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
            bytes += check_berth(&l, i, ranks, whole[berth.tensor]);
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

static void
test_ranks_make_the_whole(void)
{
    const char *const dense = make(&small);
    const char *const experts = make(&mixture);

    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        check_ranks(dense, ranks, false);
        check_ranks(dense, ranks, true);
    }
    check_ranks(experts, 2, false);
    check_ranks(experts, 4, true);
}

/* Rows are read as ranges: all ranks together read them once. */
static void
test_rows_are_read_once(void)
{
    const char *const folder = planned_llama(1, false);
    uint64_t rows = 0;
    uint64_t others = 0; /* of one rank */
    uint64_t read = 0;
    uint64_t placed = 0;
    loaded l;

    for (uint32_t rank = 0; rank < 4; rank++) {
        berth_plan_options options = options_of("cpu=256MiB", rank, 4);

        others = 0;
        loaded_begin(&l, folder, &options, NULL);
        for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
            berth_tensor tensor;
            berth_berth berth;

            CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, NULL, 0), BERTH_OK);
            CHECK_EQ(berth_checkpoint_tensor(l.p.checkpoint, berth.tensor, &tensor),
                     BERTH_OK);
            if (berth.along == BERTH_SLICING_ROWS)
                rows += tensor.bytes / tensor.shape[0] * berth.count;
            else
                others += tensor.bytes;
        }
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_OK);
        read += l.report.bytes_read;
        placed += l.report.placed_bytes;
        loaded_end(&l);
    }
    /* q, k, v: 2 MiB each; gate, up: 5.5 MiB; embedding and head: 16 MiB. */
    CHECK_EQ(rows, 49 * MIB);
    CHECK_LT(placed, rows + 8 * MIB);
    CHECK_GE(read, rows + 4 * others * 9 / 10);
    CHECK_LT(read, rows + 4 * others + 8 * MIB); /* small gaps are read through */
}

/* ------------------------------------------------------------------------- encoded */

/* The values of a slice, as the API of values stores them. */
typedef struct encoded {
    berth_values_part parts[BERTH_VALUES_PARTS];
    uint32_t count;
    uint8_t *memory[BERTH_VALUES_PARTS];
    berth_values_buffers buffers;
} encoded;

static void
encode(encoded *e, berth_context *context, const berth_values_options *options,
       const void *values, uint64_t size)
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

static const uint8_t *
part_of(const encoded *e, int32_t role)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->parts[i].role == role)
            return e->memory[i];
    return NULL;
}

static void
encoded_end(encoded *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        free(e->memory[i]);
}

/* True where the berth holds what its values are encoded as. */
static void
check_encoded(const loaded *l, uint64_t number, int32_t type, bool is_double)
{
    berth_values_options options;
    berth_model_tensor tensor;
    encoded e;
    piece p;

    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    if (tensor.encoding == BERTH_ENCODING_NATIVE)
        return;
    CHECK_EQ(tensor.encoding, type);
    piece_begin(&p, l, number);
    berth_values_options_init(&options);
    options.encoding = type;
    options.shape = tensor.shape;
    options.rank = tensor.rank;
    options.double_quant = is_double;
    encode(&e, l->p.context, &options, p.bytes, p.size);
    for (uint32_t i = 0; i < tensor.part_count; i++)
        if (!CHECK_MEM(tensor.parts[i].memory, part_of(&e, tensor.parts[i].role),
                       (size_t)tensor.parts[i].bytes))
            t_note("%s, part %u", p.name, i);
    if (is_double)
        CHECK_MEM(&tensor.offset, &e.buffers.offset, sizeof tensor.offset);
    encoded_end(&e);
    piece_end(&p);
}

/* Each rank encodes its slice as if it was all there is. */
static void
check_type(const char *folder, int32_t type, bool is_double, bool is_device)
{
    for (uint32_t rank = 0; rank < 4; rank++) {
        berth_plan_options options =
            options_of(is_device ? "0=64MiB,cpu=64MiB" : "cpu=64MiB", rank, 4);
        berth_check_report report;
        loaded l;

        options.type = type;
        options.double_quant = is_double;
        loaded_begin(&l, folder, &options, is_device ? "sim:64MiB" : NULL);
        planned_check(&l.p);
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        for (uint64_t i = 0; !is_device && i < l.p.summary.berth_count; i++)
            check_encoded(&l, i, type, is_double);
        CHECK_GT(l.report.quantized_bytes, 10000);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

static void
test_slices_are_encoded(void)
{
    const char *const folder = make(&small);

    for (uint32_t i = 0; i < 2; i++) {
        check_type(folder, BERTH_ENCODING_NF4, false, i == 1);
        check_type(folder, BERTH_ENCODING_NF4, true, i == 1);
        check_type(folder, BERTH_ENCODING_FP4, false, i == 1);
        check_type(folder, BERTH_ENCODING_INT8, false, i == 1);
    }
}

/* Rows that begin with a block are encoded as they are in the whole weight. */
static void
test_rows_have_the_bits_of_the_whole(void)
{
    const uint64_t shape[2] = { 192, 128 };
    berth_plan_options options = options_of("cpu=64MiB", 3, 8);
    berth_values_options whole;
    berth_model_tensor tensor;
    uint64_t number;
    encoded e;
    loaded l;
    piece p;

    options.type = BERTH_ENCODING_NF4;
    loaded_begin(&l, make(&small), &options, NULL);
    loaded_load(&l);
    number = berth_model_find(l.model, "model.layers.0.self_attn.q_proj.weight", 38);
    CHECK_EQ(berth_model_get_tensor(l.model, number, &tensor), BERTH_OK);
    CHECK_EQ(tensor.shape[0], 24);
    CHECK_EQ(tensor.shape[1], 128);
    piece_begin(&p, &l, number);
    CHECK_EQ(p.berth.first, 72);
    berth_values_options_init(&whole);
    whole.encoding = BERTH_ENCODING_NF4;
    whole.shape = shape;
    whole.rank = 2;
    encode(&e, l.p.context, &whole, p.whole, p.tensor.bytes);
    CHECK_MEM(tensor.parts[0].memory, part_of(&e, BERTH_ROLE_CODES) + 72 * 64, 24 * 64);
    CHECK_MEM(tensor.parts[1].memory, part_of(&e, BERTH_ROLE_ABSMAX) + 72 * 8, 24 * 8);
    encoded_end(&e);
    piece_end(&p);
    loaded_end(&l);
}

/* ---------------------------------------------------------------- stored quantized */

static void
refused(const char *folder, berth_plan_options options, berth_status status,
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

/* A stored statistics tensor of `name`, whole. */
static uint8_t *
read_named(const loaded *l, const char *name, uint64_t *size)
{
    const uint64_t number = berth_checkpoint_find(l->p.checkpoint, name, strlen(name));
    berth_tensor tensor;
    uint8_t *bytes;

    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, number, &tensor), BERTH_OK);
    bytes = weights_alloc(tensor.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, number, 0, UINT64_MAX, bytes,
                                   tensor.bytes, NULL),
             BERTH_OK);
    *size = tensor.bytes;
    return bytes;
}

/* A part is the stretch of its stored tensor that its rank's rows are. */
static void
check_stretch(const loaded *l, const berth_model_part *part, const char *name,
              uint32_t rank, uint32_t ranks)
{
    uint64_t size;
    uint8_t *const bytes = read_named(l, name, &size);

    CHECK_EQ(part->bytes, size / ranks);
    CHECK_MEM(part->memory, bytes + size / ranks * rank, (size_t)part->bytes);
    free(bytes);
}

#define Q "model.layers.0.self_attn.q_proj.weight"

static void
check_stored(const char *folder, uint32_t rank, bool is_double)
{
    berth_plan_options options = options_of("cpu=64MiB", rank, 4);
    berth_check_report report;
    berth_model_tensor tensor;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    planned_check(&l.p);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    CHECK_EQ(berth_model_get_tensor(l.model, berth_model_find(l.model, Q, strlen(Q)),
                                    &tensor),
             BERTH_OK);
    CHECK_EQ(tensor.shape[0], 64);
    CHECK_EQ(tensor.shape[1], 256);
    CHECK_EQ(tensor.part_count, is_double ? 3 : 2);
    check_stretch(&l, &tensor.parts[0], Q, rank, 4);
    check_stretch(&l, &tensor.parts[1], Q ".absmax", rank, 4);
    if (is_double)
        check_stretch(&l, &tensor.parts[2], Q ".nested_absmax", rank, 4);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    loaded_end(&l);
}

static void
test_stored_blocks(void)
{
    const char *const keep[] = { "*o_proj*", "*down_proj*" };
    berth_plan_options convert = loaded_options(NULL);
    const char *folder;
    const char *finer;

    convert.type = BERTH_ENCODING_NF4;
    convert.keep = keep;
    convert.keep_count = 2;
    for (uint32_t is_double = 0; is_double < 2; is_double++) {
        convert.double_quant = (int32_t)is_double;
        folder = loaded_quantized(make(&blocks), &convert);
        for (uint32_t rank = 0; rank < 4; rank++)
            check_stored(folder, rank, is_double != 0);
    }
    /* An eighth of the rows is half of what a second level is for. */
    refused(folder, options_of("cpu=64MiB", 0, 8), BERTH_EUNSUPPORTED,
            "is stored in blocks that a cut here would split", NULL);
    convert.double_quant = 0;
    convert.keep_count = 0;
    finer = loaded_quantized(make(&blocks), &convert);
    refused(finer, options_of("cpu=64MiB", 1, 2), BERTH_EUNSUPPORTED,
            "is stored in blocks that run along its rows", NULL);
    /* What is stored is not encoded once more. */
    convert = options_of("cpu=64MiB", 1, 2);
    convert.type = BERTH_ENCODING_INT8;
    refused(folder, convert, BERTH_EUNSUPPORTED, "slices of it are not encoded anew", NULL);
}

/* Rows of int8 have their own maxima, and columns all of them. */
static void
test_stored_rows(void)
{
    berth_plan_options convert = loaded_options(NULL);
    const char *folder;

    convert.type = BERTH_ENCODING_INT8;
    folder = loaded_quantized(make(&blocks), &convert);
    for (uint32_t rank = 0; rank < 4; rank++) {
        berth_plan_options options = options_of("0=64MiB,cpu=64MiB", rank, 4);
        berth_check_report report;
        berth_model_tensor tensor;
        uint64_t number;
        loaded l;

        loaded_begin(&l, folder, &options, "sim:64MiB");
        planned_check(&l.p);
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        number = berth_model_find(l.model, "model.layers.0.mlp.down_proj.weight", 35);
        CHECK_EQ(berth_model_get_tensor(l.model, number, &tensor), BERTH_OK);
        CHECK_EQ(tensor.shape[1], 128);
        CHECK_EQ(tensor.parts[0].bytes, 256 * 128);
        CHECK_EQ(tensor.parts[1].bytes, 256 * 4);
        loaded_end(&l);
    }
}

/* ------------------------------------------------------------------------ refusals */

static void
test_refusals(void)
{
    const char *const folder = make(&small);
    berth_plan_options options;
    sizes other = small;

    refused(folder, options_of("cpu=64MiB", 0, 3), BERTH_EINVAL,
            "has 352 columns, which 3 ranks cannot share evenly",
            "model.layers.0.mlp.down_proj.weight");
    refused(folder, options_of("cpu=64MiB", 0, 16), BERTH_EINVAL,
            "has 192 columns of 8 heads, which 16 ranks cannot share evenly",
            "model.layers.0.self_attn.o_proj.weight");
    refused(folder, options_of("cpu=64MiB", 2, 2), BERTH_EINVAL, "is not below ranks",
            NULL);
    refused(folder, options_of("cpu=64MiB", 1, 0), BERTH_EINVAL, "is not below ranks",
            NULL);
    refused(folder, options_of("cpu=64MiB", 0, 1025), BERTH_EINVAL, "is more than 1024",
            NULL);
    options = options_of("cpu=64MiB", 0, 2);
    options.mode = "auto";
    refused(folder, options, BERTH_EINVAL, "is for whole models, not for a rank", NULL);
    refused(loaded_gpt2("BF16", 64, 1), options_of("cpu=64MiB", 0, 2), BERTH_EUNSUPPORTED,
            "how gpt2 is cut for tensor parallelism is not known", NULL);
    refused(loaded_llama(1, "BF16", 1), options_of("cpu=64MiB", 0, 2), BERTH_EUNSUPPORTED,
            "is no tensor of llama that berth knows how to cut", "model.layers.0.odd");
    other.inner = 350;
    refused(make(&other), options_of("cpu=64MiB", 0, 4), BERTH_EINVAL,
            "has 350 columns, which 4 ranks cannot share evenly",
            "model.layers.0.mlp.down_proj.weight");
    other = small;
    other.extra = "model.layers.0.self_attn.qkv_proj.weight";
    refused(make(&other), options_of("cpu=64MiB", 0, 4), BERTH_EUNSUPPORTED,
            "is no tensor of llama that berth knows how to cut",
            "model.layers.0.self_attn.qkv_proj.weight");
    (void)remove(fixture_format("%s/config.json", folder));
    refused(folder, options_of("cpu=64MiB", 0, 2), BERTH_EUNSUPPORTED,
            "how a model without config.json is cut", NULL);
}

/* A plan's text with one stretch in place of another, parsed. */
static berth_plan *
changed(const loaded *l, const char *from, const char *to)
{
    char *const text = planned_text(l->p.plan, NULL);
    char *const at = strstr(text, from);
    berth_plan *plan = NULL;
    berth_error error;

    if (CHECK(at != NULL)) {
        const char *const whole = fixture_format("%.*s%s%s", (int)(at - text), text, to,
                                                 at + strlen(from));

        if (berth_plan_parse(l->p.context, whole, strlen(whole), "changed", &plan, &error)
            != BERTH_OK)
            t_note("%s", error.message);
    }
    free(text);
    return plan;
}

static void
see_load_fail(loaded *l, const char *from, const char *to, berth_status check,
              berth_status load, const char *words)
{
    berth_plan *const plan = changed(l, from, to);
    berth_plan *const before = l->p.plan;

    T_REQUIRE(plan != NULL);
    CHECK_EQ(berth_plan_check(plan, l->p.context, l->p.checkpoint, "", NULL, NULL,
                              &l->error),
             check);
    l->p.plan = plan;
    loaded_load(l);
    CHECK_EQ(l->status, load);
    CHECK_CONTAINS(l->error.message, words);
    l->p.plan = before;
    berth_plan_destroy(plan);
}

static void
test_plans_of_others(void)
{
    berth_plan_options options = options_of("cpu=64MiB", 1, 2);
    loaded l;

    loaded_begin(&l, make(&small), &options, NULL);
    see_load_fail(&l, "\"of\": \"rows\", \"first\": 176, \"count\": 176",
                  "\"of\": \"rows\", \"first\": 177, \"count\": 176", BERTH_EFORMAT,
                  BERTH_EINTEGRITY, "has fewer rows or columns than the plan's slice");
    see_load_fail(&l, "\"of\": \"rows\", \"first\": 176, \"count\": 176",
                  "\"of\": \"rows\", \"first\": 0, \"count\": 175", BERTH_EFORMAT,
                  BERTH_EINTEGRITY, "has a berth of another size");
    see_load_fail(&l, "\"of\": \"columns\", \"first\": 176, \"count\": 176",
                  "\"of\": \"columns\", \"first\": 353, \"count\": 0", BERTH_EFORMAT,
                  BERTH_EINTEGRITY, "has fewer rows or columns than the plan's slice");
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 2, \"ranks\": 2") == NULL);
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 0, \"ranks\": 1") == NULL);
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 1, \"ranks\": 1025") == NULL);
    CHECK(changed(&l, "\"of\": \"rows\"", "\"of\": \"all\"") == NULL);
    CHECK(changed(&l, "\"of\": \"rows\"", "\"of\": \"some\"") == NULL);
    CHECK(changed(&l, "  \"parallel\": {\"rank\": 1, \"ranks\": 2},\n", "") == NULL);
    loaded_end(&l);
}

/* ------------------------------------------------------------- disk, moves, manifest */

/* The layer is brought to its device; all that it is made of is right there. */
static void
check_leased(loaded *l)
{
    const uint32_t layer = planned_layer(&l->p, "model.layers.0");

    CHECK_EQ(berth_layer_acquire(l->model, layer, NULL, &l->error), BERTH_OK);
    CHECK_EQ(berth_stream_wait(l->devices, 0, NULL, -1, NULL), BERTH_OK);
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        uint32_t crc = 0;
        piece p;

        piece_begin(&p, l, i);
        CHECK_EQ(berth_model_get_tensor(l->model, i, &tensor), BERTH_OK);
        if (tensor.encoding == BERTH_ENCODING_NATIVE) {
            CHECK_EQ(berth_model_digest(l->model, i, &crc, NULL), BERTH_OK);
            CHECK_EQ(crc, berthi_digest_crc32(0, p.bytes, (size_t)p.size));
            if (tensor.layer == layer && !tensor.is_resident)
                CHECK_MEM(tensor.parts[0].memory, p.bytes, (size_t)p.size);
        }
        piece_end(&p);
    }
    CHECK_EQ(berth_layer_release(l->model, layer, NULL, &l->error), BERTH_OK);
}

/* Rows are streamed from the files, columns from a folder. */
static void
test_disk(void)
{
    const char *const pins[] = { "model.layers.0.self_attn.q_proj=disk",
                                 "model.layers.0.mlp.up_proj=disk",
                                 "model.layers.0.mlp.down_proj=disk" };
    const char *const folder = make(&small);
    berth_plan_options options = options_of("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    berth_check_report report;
    loaded l;

    options.pins = pins;
    options.pin_count = 3;
    loaded_begin(&l, folder, &options, "sim:64MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.message, "by columns, which do not lie together there");
    CHECK_STR(l.error.tensor, "model.layers.0.mlp.down_proj.weight");
    loaded_end(&l);
    for (uint32_t i = 0; i < 3; i++) {
        options.pin_count = i == 0 ? 2 : 3;
        options.type = i == 2 ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
        loaded_begin(&l, folder, &options, "sim:64MiB");
        l.options.offload_dir = i > 0 ? fixture_folder() : NULL;
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        if (i == 1) /* columns alone */
            CHECK_EQ(l.report.offloaded_bytes, 128 * 88 * 2);
        check_leased(&l);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

/* Columns of int8 have statistics, which an offload does not take over. */
static void
test_disk_of_int8(void)
{
    const char *const pins[] = { "model.layers.0.mlp.down_proj=disk" };
    berth_plan_options options = loaded_options(NULL);
    const char *folder;
    loaded l;

    options.type = BERTH_ENCODING_INT8;
    folder = loaded_quantized(make(&blocks), &options);
    options = options_of("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&l, folder, &options, "sim:64MiB");
    l.options.offload_dir = fixture_folder();
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.message, "is stored quantized and cut by columns");
    loaded_end(&l);
}

static void
check_all(loaded *l)
{
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++)
        (void)check_berth(l, i, 4, NULL);
}

/* Asleep, what is stored is read again: rows; columns are held. */
static void
test_moves(void)
{
    const char *const pins[] = { "model.layers.0.mlp.up_proj=disk" };
    berth_plan_options options = options_of("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    berth_plan *away;
    berth_plan *other;
    moved m;

    moved_begin(&m, make(&small), &options, "sim:64MiB");
    options.finding = NULL;
    options.pins = pins;
    options.pin_count = 1;
    away = moved_plan(&m, &options);
    options.rank = 2;
    other = moved_plan(&m, &options);
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_GT(m.report.read_bytes, 0);
    check_all(&m.l);
    CHECK_EQ(moved_move(&m, away), BERTH_OK);
    CHECK_EQ(moved_move(&m, m.l.p.plan), BERTH_OK);
    CHECK_EQ(m.report.read_bytes, 88 * 128 * 2);
    check_all(&m.l);
    CHECK_EQ(moved_move(&m, other), BERTH_EINVAL);
    CHECK_CONTAINS(m.error.message, "has another berth in this plan");
    moved_free_plans();
    moved_end(&m);
}

/* What is whole is verified. */
static void
test_manifest(void)
{
    const char *const folder = make(&small);
    berth_plan_options options = options_of("cpu=64MiB", 1, 4);
    loaded l;

    (void)loaded_manifest(folder);
    loaded_begin(&l, folder, &options, NULL);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, 3); /* two norms and a bias */
    loaded_end(&l);
}

/* ---------------------------------------------------------------- everything fails */

typedef struct attempt {
    const char *folder;
    const char *words;
    int32_t type;
} attempt;

static berth_status
load_once(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    berth_plan_options options =
        options_of(a->words != NULL ? "0=64MiB,cpu=64MiB" : "cpu=64MiB", 1, 2);
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    options.type = a->type;
    berth_load_options_init(&load);
    load.workers = 2;
    load.ring_bytes = UINT64_C(16) << 20;
    status = berth_checkpoint_open(context, a->folder, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    if (status == BERTH_OK && a->words != NULL)
        status = berth_devices_open(context, a->words, &devices, error);
    load.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    berth_model_destroy(model);
    berth_devices_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_all_calls_can_fail(void)
{
    attempt attempts[] = { { make(&mixture), NULL, BERTH_ENCODING_NF4 },
                           { make(&mixture), "sim:64MiB", BERTH_ENCODING_NATIVE } };

    for (uint32_t i = 0; i < 2; i++)
        CHECK_GT(fault_loop("load", load_once, &attempts[i]).memory, 60);
    CHECK_GT(fault_loop_devices("load", load_once, &attempts[1]).device, 10);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ranks_make_the_whole);
    T_RUN(test_rows_are_read_once);
    T_RUN(test_slices_are_encoded);
    T_RUN(test_rows_have_the_bits_of_the_whole);
    T_RUN(test_stored_blocks);
    T_RUN(test_stored_rows);
    T_RUN(test_refusals);
    T_RUN(test_plans_of_others);
    T_RUN(test_disk);
    T_RUN(test_disk_of_int8);
    T_RUN(test_moves);
    T_RUN(test_manifest);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
