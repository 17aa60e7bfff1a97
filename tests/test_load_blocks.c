/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_blocks.c - a DeepSeek V3 in FP8, its experts in packed FP4, as ranks of tensor
 * parallelism load it: codes, and the scales of their blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/sliced.h"
#include "tests/t.h"
#include "tests/weights.h"

/*
 * Hidden 64, 4 heads with 24 + 8 numbers of keys and 16 of values, latents of 32, 96 in the MLP
 * and 64 in each expert. Of latents beside a rotary key, 40, the last block is half of one.
 */
#define BLOCK_ROWS 16u
#define BLOCK_COLUMNS 8u
#define GROUP 32u /* of packed FP4 */
#define QUERIES (4u * 32u)

/* ------------------------------------------------------------------------- the model */

/* Bytes of any value: nobody computes with them. */
static void
add_bytes(fixture_builder *b, const char *name, const char *dtype, uint64_t rows,
          uint64_t columns, uint64_t width)
{
    const uint64_t shape[2] = { rows, columns };
    const uint64_t count = rows * columns * width;
    uint64_t state = strlen(name) * 1000 + count;
    uint8_t *const bytes = weights_alloc(count);

    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(weights_random(&state) % 0x7F);
    fixture_add(b, name, dtype, 2, shape, bytes);
    free(bytes);
}

static uint64_t
blocks(uint64_t size, uint64_t block)
{
    return (size + block - 1) / block;
}

static void
add_float8(fixture_builder *b, const char *module, uint64_t rows, uint64_t columns)
{
    add_bytes(b, fixture_format("%s.weight", module), "F8_E4M3", rows, columns, 1);
    add_bytes(b, fixture_format("%s.weight_scale_inv", module), "F32", blocks(rows, BLOCK_ROWS),
              blocks(columns, BLOCK_COLUMNS), 4);
}

/* With a scale for each row, or one for all. */
static void
add_float8_of(fixture_builder *b, const char *module, uint64_t rows, uint64_t columns,
              uint64_t scales)
{
    add_bytes(b, fixture_format("%s.weight", module), "F8_E4M3", rows, columns, 1);
    add_bytes(b, fixture_format("%s.weight_scale", module), "F32", scales, 1, 4);
}

static void
add_float4(fixture_builder *b, const char *module, uint64_t rows, uint64_t columns)
{
    add_bytes(b, fixture_format("%s.weight", module), "I8", rows, columns / 2, 1);
    add_bytes(b, fixture_format("%s.scale", module), "F8_E8M0", rows, columns / GROUP, 1);
}

static void
add_mlp(fixture_builder *b, const char *prefix, uint64_t inner,
        void (*add)(fixture_builder *, const char *, uint64_t, uint64_t))
{
    add(b, fixture_format("%s.gate_proj", prefix), inner, 64);
    add(b, fixture_format("%s.up_proj", prefix), inner, 64);
    add(b, fixture_format("%s.down_proj", prefix), 64, inner);
}

static void
add_attention(fixture_builder *b, const char *layer, uint64_t hidden, uint64_t queries)
{
    add_float8(b, fixture_format("%s.self_attn.q_a_proj", layer), 32, hidden);
    sliced_add(b, fixture_format("%s.self_attn.q_a_layernorm.weight", layer), 32, 0);
    add_float8(b, fixture_format("%s.self_attn.q_b_proj", layer), queries, 32);
    add_float8(b, fixture_format("%s.self_attn.kv_a_proj_with_mqa", layer), 40, hidden);
    sliced_add(b, fixture_format("%s.self_attn.kv_a_layernorm.weight", layer), 32, 0);
    add_float8(b, fixture_format("%s.self_attn.kv_b_proj", layer), UINT64_C(4) * 40, 32);
    add_float8(b, fixture_format("%s.self_attn.o_proj", layer), hidden, UINT64_C(4) * 16);
    sliced_add(b, fixture_format("%s.input_layernorm.weight", layer), hidden, 0);
    sliced_add(b, fixture_format("%s.post_attention_layernorm.weight", layer), hidden, 0);
}

/* A layer with an MLP, one with experts, and one that predicts a word more. */
static const char *
make_model(uint64_t queries)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    sliced_add(b, "model.embed_tokens.weight", 50, 64);
    for (uint32_t i = 0; i < 3; i++)
        add_attention(b, fixture_format("model.layers.%u", i), 64, queries);
    add_mlp(b, "model.layers.0.mlp", 96, add_float8);
    for (uint32_t i = 1; i < 3; i++) {
        const char *const mlp = fixture_format("model.layers.%u.mlp", i);

        sliced_add(b, fixture_format("%s.gate.weight", mlp), 4, 64);
        sliced_add(b, fixture_format("%s.gate.e_score_correction_bias", mlp), 4, 0);
        if (i == 1)
            add_mlp(b, fixture_format("%s.shared_experts", mlp), 64, add_float8);
        for (uint32_t e = 0; e < 4; e++)
            add_mlp(b, fixture_format("%s.experts.%u", mlp, e), 64, add_float4);
    }
    sliced_add(b, "model.layers.2.enorm.weight", 64, 0);
    sliced_add(b, "model.layers.2.hnorm.weight", 64, 0);
    add_float8(b, "model.layers.2.eh_proj", 64, 128);
    add_float8_of(b, "model.layers.2.mlp.shared_experts.gate_proj", 64, 64, 64);
    add_float8_of(b, "model.layers.2.mlp.shared_experts.up_proj", 64, 64, 1);
    add_float8_of(b, "model.layers.2.mlp.shared_experts.down_proj", 64, 64, 64);
    sliced_add(b, "model.layers.2.shared_head.norm.weight", 64, 0);
    sliced_add(b, "model.layers.2.shared_head.head.weight", 50, 64);
    sliced_add(b, "model.norm.weight", 64, 0);
    sliced_add(b, "lm_head.weight", 50, 64);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"DeepseekV3ForCausalLM\"], "
                 "\"model_type\": \"deepseek_v3\", \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"moe_intermediate_size\": 64, "
                 "\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": 1, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                 "\"q_lora_rank\": 32, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 24, "
                 "\"qk_rope_head_dim\": 8, \"v_head_dim\": 16, \"n_routed_experts\": 4, "
                 "\"n_shared_experts\": 1, \"num_experts_per_tok\": 2, "
                 "\"first_k_dense_replace\": 1, \"vocab_size\": 50, "
                 "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false, "
                 "\"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [16, 8]}}");
    return folder;
}

/* -------------------------------------------------------------------------- expected */

/* A matrix as it is stored, `width` bytes a number. */
typedef struct matrix {
    uint8_t *bytes;
    uint64_t rows;
    uint64_t columns;
    uint64_t width;
} matrix;

static matrix
read_matrix(const loaded *l, const char *name)
{
    const uint64_t number = berth_checkpoint_find(l->p.checkpoint, name, strlen(name));
    berth_tensor tensor;
    matrix m;

    if (!CHECK(number != BERTH_NO_TENSOR))
        t_note("%s", name);
    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, number, &tensor), BERTH_OK);
    m.rows = tensor.shape[0];
    m.columns = tensor.rank > 1 ? tensor.shape[1] : 1;
    m.width = berth_dtype_bits(tensor.dtype) / 8;
    m.bytes = weights_alloc(tensor.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, number, 0, UINT64_MAX, m.bytes,
                                   tensor.bytes, NULL),
             BERTH_OK);
    return m;
}

/* The part is the matrix from that row and column on. */
static bool
is_corner(const berth_model_part *part, const matrix *m, uint64_t row, uint64_t column,
          uint64_t rows, uint64_t columns)
{
    const uint8_t *const found = part->memory;
    bool is_right = CHECK_EQ(part->bytes, rows * columns * m->width);

    for (uint64_t r = 0; r < rows && is_right; r++)
        is_right = CHECK_MEM(found + r * columns * m->width,
                             m->bytes + ((row + r) * m->columns + column) * m->width,
                             (size_t)(columns * m->width));
    return is_right;
}

/* What the slice has of the matrix, where a number stands for so many rows and columns. */
static bool
is_share(const berth_model_part *part, const matrix *m, const berth_berth *berth,
         uint64_t block_rows, uint64_t block_columns)
{
    if (berth->along == BERTH_SLICING_ROWS && m->rows > 1)
        return is_corner(part, m, berth->first / block_rows, 0,
                         blocks(berth->count, block_rows), m->columns);
    if (berth->along == BERTH_SLICING_COLUMNS && m->columns > 1)
        return is_corner(part, m, 0, berth->first / block_columns, m->rows,
                         blocks(berth->count, block_columns));
    return is_corner(part, m, 0, 0, m->rows, m->columns);
}

static bool
are_scales_right(const loaded *l, const char *name, const berth_berth *berth,
                 const berth_model_part *part)
{
    const int module = (int)(strlen(name) - strlen(".weight"));
    const bool is_float4 = strstr(name, ".experts.") != NULL;
    const bool has_blocks = strstr(name, ".2.mlp.shared") == NULL;
    const matrix scales =
        read_matrix(l, is_float4    ? fixture_format("%.*s.scale", module, name)
                       : has_blocks ? fixture_format("%s_scale_inv", name)
                                    : fixture_format("%s_scale", name));
    const bool is_right =
        is_float4    ? is_share(part, &scales, berth, 1, GROUP)
        : has_blocks ? is_share(part, &scales, berth, BLOCK_ROWS, BLOCK_COLUMNS)
                     : is_share(part, &scales, berth, 1, 1);

    free(scales.bytes);
    return is_right;
}

static bool
is_right(const loaded *l, const char *name, const berth_berth *berth,
         const berth_model_tensor *tensor)
{
    const uint64_t pair = strstr(name, ".experts.") != NULL ? 2 : 1;
    const matrix codes = read_matrix(l, name);
    const bool is_equal = is_share(&tensor->parts[0], &codes, berth, 1, pair);

    free(codes.bytes);
    return is_equal
           && (tensor->part_count == 1
               || are_scales_right(l, name, berth, &tensor->parts[1]));
}

/* How DeepSeek V3 is cut. */
static int32_t
along_of(const char *name)
{
    static const char *const rows[] = { "q_b_proj",  "kv_b_proj",    "gate_proj",
                                        "up_proj",   "embed_tokens", "lm_head",
                                        "shared_head.head" };
    static const char *const columns[] = { "o_proj", "down_proj" };

    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(name, rows[i]) != NULL)
            return BERTH_SLICING_ROWS;
    for (uint32_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strstr(name, columns[i]) != NULL)
            return BERTH_SLICING_COLUMNS;
    return BERTH_SLICING_NONE;
}

/* ----------------------------------------------------------------------------- tests */

static void
check_rank(const char *folder, uint32_t rank)
{
    berth_plan_options options = sliced_options("cpu=64MiB", rank, 2);
    berth_check_report report;
    uint64_t bytes = 0;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    planned_check(&l.p);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s: %s", l.error.tensor, l.error.message);
    for (uint64_t i = 0; l.model != NULL && i < l.p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        berth_berth berth;
        char name[256];

        CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, name, sizeof name), BERTH_OK);
        CHECK_EQ(berth_model_get_tensor(l.model, i, &tensor), BERTH_OK);
        for (uint32_t k = 0; k < tensor.part_count; k++)
            bytes += tensor.parts[k].bytes;
        if (!CHECK_EQ(berth.along, along_of(name)) || !is_right(&l, name, &berth, &tensor))
            t_note("%s", name);
    }
    CHECK_EQ(l.report.placed_bytes, bytes);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    loaded_end(&l);
}

static void
test_ranks_have_their_blocks(void)
{
    const char *const folder = make_model(QUERIES);

    check_rank(folder, 0);
    check_rank(folder, 1);
}

/* Nothing is shared out evenly, too. */
static void
test_nothing_to_cut(void)
{
    check_rank(make_model(0), 1);
}

/* A quarter of 96 rows is a block and a half. */
static void
test_blocks_are_not_split(void)
{
    sliced_refuse(make_model(QUERIES), sliced_options("cpu=64MiB", 1, 4), BERTH_EUNSUPPORTED,
                  "is stored in blocks that a cut here would split",
                  "model.layers.0.mlp.gate_proj.weight");
}

/* As many scales of inputs as rows, of which a rank would have half of one byte, too. */
static void
test_bytes_are_not_split(void)
{
    const char *const folder = fixture_folder();

    (void)fixture_file(fixture_format("%s/model.safetensors", folder),
                       "F8_E4M3 66x64 model.layers.0.mlp.gate_proj.weight\n"
                       "F32 66 model.layers.0.mlp.gate_proj.weight_scale\n"
                       "F4 66 model.layers.0.mlp.gate_proj.input_scale\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 64, \"intermediate_size\": 66, "
                 "\"num_attention_heads\": 4, \"num_hidden_layers\": 1, "
                 "\"vocab_size\": 8, \"quantization_config\": {\"quant_method\": "
                 "\"fp8\"}}");
    sliced_refuse(folder, sliced_options("cpu=64MiB", 1, 2), BERTH_EUNSUPPORTED,
                  "is stored in blocks that a cut here would split",
                  "model.layers.0.mlp.gate_proj.weight");
}

/* As many scales of inputs as there are rows: a rank needs all of them, or others. */
static void
test_activations_are_not_cut(void)
{
    static const char *const modules[] = { "gate_proj", "down_proj" };

    for (uint32_t i = 0; i < 2; i++) {
        const char *const folder = fixture_folder();

        (void)fixture_file(
            fixture_format("%s/model.safetensors", folder),
            fixture_format("F8_E4M3 64x64 model.layers.0.mlp.%s.weight\n"
                           "F32 64 model.layers.0.mlp.%s.weight_scale\n"
                           "F32 64 model.layers.0.mlp.%s.input_scale\n",
                           modules[i], modules[i], modules[i]));
        fixture_text(fixture_format("%s/config.json", folder),
                     "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                     "\"hidden_size\": 64, \"intermediate_size\": 64, "
                     "\"num_attention_heads\": 4, \"num_hidden_layers\": 1, "
                     "\"vocab_size\": 8, \"quantization_config\": {\"quant_method\": "
                     "\"fp8\"}}");
        sliced_refuse(folder, sliced_options("cpu=64MiB", 1, 2), BERTH_EUNSUPPORTED,
                      "is stored in blocks that a cut here would split", NULL);
    }
}

/* What is stored is not decoded, neither to be encoded anew nor as numbers of a dtype. */
static void
test_not_decoded(void)
{
    static const char why[] = "slices of it are neither decoded nor encoded anew";
    const char *const folder = make_model(QUERIES);
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);

    options.type = BERTH_ENCODING_NF4;
    sliced_refuse(folder, options, BERTH_EUNSUPPORTED, why, NULL);
    options.type = BERTH_ENCODING_NATIVE;
    options.dtype = BERTH_BF16;
    sliced_refuse(folder, options, BERTH_EUNSUPPORTED, why, NULL);
}

/* Nor in a plan of somebody's, though its berth has the bytes of INT8, too. */
static void
test_edited(void)
{
    static const char from[] = "\"fp8\"";
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    const char *edited;
    berth_plan *plan;
    char *text;
    const char *at;
    planned p;

    planned_begin(&p, make_model(QUERIES), &options);
    T_REQUIRE(p.status == BERTH_OK);
    text = planned_text(p.plan, NULL);
    at = strstr(text, "mlp.down_proj.weight");
    at = at != NULL ? strstr(at, from) : NULL;
    T_REQUIRE(at != NULL);
    edited = fixture_format("%.*s\"int8\"%s", (int)(at - text), text, at + sizeof from - 1);
    T_REQUIRE(berth_plan_parse(p.context, edited, strlen(edited), "edited", &plan, NULL)
              == BERTH_OK);
    CHECK_EQ(berth_plan_check(plan, p.context, p.checkpoint, "", NULL, NULL, &p.error),
             BERTH_EINTEGRITY);
    CHECK_CONTAINS(p.error.message, "that it cannot be loaded as");
    berth_plan_destroy(plan);
    free(text);
    planned_end(&p);
}

/*
 * Rows and their scales come from the files, columns from where a move has written them; what
 * is not read again is kept while the model sleeps.
 */
static void
test_moved(void)
{
    static const char *const away[] = { "model.layers.0.self_attn.q_b_proj=disk",
                                        "model.layers.0.mlp.down_proj=disk",
                                        "model.layers.1.mlp.experts=disk" };
    const char *const folder = make_model(QUERIES);
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 1, 2);
    berth_check_report report;
    moved m;

    moved_begin_with(&m, folder, &options, "sim:64MiB", fixture_folder());
    for (int32_t discards = 0; discards < 2; discards++) {
        m.options.discards = discards;
        moved_is_ok(&m, moved_sleep(&m));
        moved_is_ok(&m, moved_wake(&m));
        moved_check(&m);
    }
    options.pins = away;
    for (uint32_t pins = 1; pins <= 3; pins++) {
        options.pin_count = pins;
        moved_is_ok(&m, moved_move(&m, moved_plan(&m, &options)));
        moved_check(&m);
        CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        moved_is_ok(&m, moved_sleep(&m));
        moved_is_ok(&m, moved_wake(&m));
        moved_check(&m);
    }
    options.pin_count = 0;
    moved_is_ok(&m, moved_move(&m, moved_plan(&m, &options)));
    moved_check(&m);
    moved_free_plans();
    moved_end(&m);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ranks_have_their_blocks);
    T_RUN(test_nothing_to_cut);
    T_RUN(test_blocks_are_not_split);
    T_RUN(test_bytes_are_not_split);
    T_RUN(test_activations_are_not_cut);
    T_RUN(test_not_decoded);
    T_RUN(test_edited);
    T_RUN(test_moved);
    T_MAIN_END;
}
