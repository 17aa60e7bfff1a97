/* SPDX-License-Identifier: Apache-2.0 */
/* test_parallel.c - which rows and columns a rank of tensor parallelism holds. */
#include "placement/parallel.h"

#include <stdio.h>
#include <string.h>

#include "placement/shape_family.h"
#include "tests/fixture.h"
#include "tests/sliced.h"
#include "tests/t.h"

/* --------------------------------------------------------------------- one tensor */

static const berthi_about nowhere = { .tensor = NULL };

/* One rank of a Llama with 8 heads, 2 of them of keys. */
static berthi_parallel
rank_of(uint32_t rank, uint32_t ranks)
{
    return (berthi_parallel){ .rank = rank,
                              .ranks = ranks,
                              .model_type = "llama",
                              .hidden = 128,
                              .heads = 8,
                              .kv_heads = 2 };
}

static berth_status
divide(const berthi_parallel *p, const char *name, uint64_t rows, uint64_t columns,
       berthi_slice *out, berth_error *error)
{
    const uint64_t shape[2] = { rows, columns };
    const berthi_parallel_tensor tensor = {
        .name = name,
        .name_length = strlen(name),
        .shape = shape,
        .rank = columns > 0 ? 2 : 1,
    };

    return berthi_parallel_divide(p, &tensor, &nowhere, out, error);
}

static void
check_slice(const char *name, uint64_t rows, uint64_t columns, uint32_t rank,
            uint32_t ranks, const berthi_slice *expected)
{
    const berthi_parallel p = rank_of(rank, ranks);
    berthi_slice slice = { .along = -1 };
    bool is_right;

    CHECK_EQ(divide(&p, name, rows, columns, &slice, NULL), BERTH_OK);
    is_right = CHECK_EQ(slice.along, expected->along);
    is_right &= CHECK_EQ(slice.first, expected->first);
    is_right &= CHECK_EQ(slice.count, expected->count);
    if (!is_right)
        t_note("%s, rank %u of %u", name, rank, ranks);
}

static void
check_refused(const char *name, uint64_t rows, uint64_t columns, uint32_t ranks,
              berth_status status, const char *words)
{
    const berthi_parallel p = rank_of(0, ranks);
    berthi_slice slice;
    berth_error error;

    berthi_error_clear(&error);
    CHECK_EQ(divide(&p, name, rows, columns, &slice, &error), status);
    CHECK_EQ(error.status, status);
    CHECK_CONTAINS(error.message, words);
}

#define ROWS(a, b) (&(berthi_slice){ .first = (a), .count = (b), .along = BERTH_SLICING_ROWS })
#define COLUMNS(a, b) \
    (&(berthi_slice){ .first = (a), .count = (b), .along = BERTH_SLICING_COLUMNS })
#define DEPTHS(a, b) \
    (&(berthi_slice){ .first = (a), .count = (b), .along = BERTH_SLICING_DEPTHS })
/* The same of each of two halves. */
#define HALVES(of, a, b)                                                       \
    (&(berthi_slice){ .first = (a), .count = (b), .along = BERTH_SLICING_##of, \
                      .parts = 2 })
#define WHOLE (&(berthi_slice){ .along = BERTH_SLICING_NONE })

static void
test_one_tensor(void)
{
    check_slice("l.q_proj.weight", 192, 128, 3, 4, ROWS(144, 48));
    check_slice("l.q_proj.bias", 192, 0, 1, 8, ROWS(24, 24));
    check_slice("l.o_proj.weight", 128, 192, 3, 4, COLUMNS(144, 48));
    check_slice("l.gate_proj.weight", 352, 128, 1, 4, ROWS(88, 88));
    check_slice("l.up_proj.weight", 352, 128, 0, 4, ROWS(0, 88));
    check_slice("l.down_proj.weight", 128, 352, 2, 4, COLUMNS(176, 88));
    check_slice("l.experts.1.w1.weight", 96, 64, 1, 2, ROWS(48, 48));
    check_slice("l.experts.1.w2.weight", 64, 96, 1, 2, COLUMNS(48, 48));
    check_slice("l.experts.1.w3.weight", 96, 64, 0, 2, ROWS(0, 48));
    /* On every rank. */
    check_slice("l.o_proj.bias", 128, 0, 1, 4, WHOLE);
    check_slice("l.down_proj.bias", 128, 0, 3, 4, WHOLE);
    check_slice("l.input_layernorm.weight", 128, 0, 1, 4, WHOLE);
    check_slice("l.gate.weight", 8, 128, 1, 4, WHOLE);
    check_slice("l.shared_expert_gate.weight", 1, 128, 1, 4, WHOLE);
    check_slice("l.rotary_emb.inv_freq", 64, 0, 1, 4, WHOLE);
}

/* Latents are the same on every rank, and what is made of them is cut between heads. */
static void
test_latents(void)
{
    check_slice("l.q_a_proj.weight", 96, 128, 1, 4, WHOLE);
    check_slice("l.q_a_layernorm.weight", 96, 0, 1, 4, WHOLE);
    check_slice("l.q_b_proj.weight", 192, 96, 1, 4, ROWS(48, 48));
    check_slice("l.kv_a_proj_with_mqa.weight", 40, 128, 1, 4, WHOLE);
    check_slice("l.kv_b_proj.weight", 160, 32, 3, 4, ROWS(120, 40));
    check_refused("l.kv_b_proj.weight", 160, 32, 16, BERTH_EINVAL, "of 8 heads");
    check_slice("l.indexer.wq_b.weight", 192, 96, 1, 4, WHOLE);
    check_slice("l.indexer.wk.weight", 24, 128, 1, 4, WHOLE);
    check_slice("l.indexer.weights_proj.weight", 8, 128, 1, 4, WHOLE);
    check_slice("l.eh_proj.weight", 128, 256, 1, 4, WHOLE);
    check_slice("l.shared_head.head.weight", 515, 128, 0, 4, ROWS(0, 128));
}

/* What other families call their matrices, and numbers that stand by themselves. */
static void
test_other_names(void)
{
    check_slice("l.self_attn.dense.weight", 128, 192, 3, 4, COLUMNS(144, 48));
    check_slice("l.self_attn.dense.bias", 128, 0, 3, 4, WHOLE);
    check_slice("l.mlp.fc1.bias", 352, 0, 1, 4, ROWS(88, 88));
    check_slice("l.mlp.fc2.weight", 128, 352, 2, 4, COLUMNS(176, 88));
    check_slice("l.mlp.c_fc.weight", 352, 128, 1, 4, ROWS(88, 88));
    check_slice("l.mlp.c_proj.weight", 128, 352, 2, 4, COLUMNS(176, 88));
    check_slice("l.mlp.router.weight", 8, 128, 1, 4, WHOLE);
    check_slice("l.mlp.gate.wg.weight", 8, 128, 1, 4, WHOLE);
    check_slice("l.mlp.act_fn.beta", 1, 0, 1, 4, WHOLE);
    check_slice("l.post_norm1.weight", 128, 0, 1, 4, WHOLE);
    check_slice("l.post_norm2.weight", 128, 0, 1, 4, WHOLE);
    check_slice("l.mlp.e_score_correction_bias", 8, 0, 1, 4, WHOLE);
    check_slice("l.moe_statics.e_score_correction_bias", 1, 8, 1, 4, WHOLE);
    check_slice("l.mlp.expert_bias", 8, 0, 1, 4, WHOLE);
    check_slice("l.self_attn.sinks", 8, 0, 1, 4, ROWS(2, 2));
    check_slice("sinks", 8, 0, 1, 4, ROWS(2, 2));
    check_refused("l.mlp.other_bias", 8, 0, 4, BERTH_EUNSUPPORTED, "is no tensor");
}

/* Fewer heads of keys than ranks: neighbours hold the same one. */
static void
test_heads_of_keys(void)
{
    static const char *const names[] = { "l.k_proj.weight", "l.v_proj.weight" };

    for (uint32_t i = 0; i < 2; i++) {
        check_slice(names[i], 48, 128, 0, 2, ROWS(0, 24));
        check_slice(names[i], 48, 128, 1, 2, ROWS(24, 24));
        for (uint32_t rank = 0; rank < 8; rank++)
            check_slice(names[i], 48, 128, rank, 8, ROWS(rank < 4 ? 0 : 24, 24));
    }
}

/* Words need not be even: what ranks have is next to each other, and all of it. */
static void
test_words(void)
{
    static const char *const names[] = { "model.embed_tokens.weight", "lm_head.weight" };

    for (uint32_t ranks = 1; ranks <= 9; ranks++) {
        uint64_t next = 0;

        for (uint32_t rank = 0; rank < ranks; rank++) {
            const berthi_parallel p = rank_of(rank, ranks);
            berthi_slice slice;

            CHECK_EQ(divide(&p, names[rank % 2], 515, 128, &slice, NULL), BERTH_OK);
            CHECK_EQ(slice.along, BERTH_SLICING_ROWS);
            CHECK_EQ(slice.first, next);
            CHECK_GE(slice.count, 515 / ranks);
            CHECK_LE(slice.count, 515 / ranks + 1);
            next += slice.count;
        }
        CHECK_EQ(next, 515);
    }
    /* The product of words and rank does not fit. */
    check_slice("lm_head.weight", UINT64_MAX, 2, 1023, 1024,
                ROWS(UINT64_MAX - (UINT64_C(1) << 54), UINT64_C(1) << 54));
}

static void
test_tensors_that_are_not_cut(void)
{
    const berthi_parallel p = rank_of(0, 2);
    const uint64_t cube[3] = { 8, 8, 8 };
    const berthi_parallel_tensor deep = {
        .name = "l.up_proj.weight", .name_length = 16, .shape = cube, .rank = 3
    };
    berthi_slice slice;

    check_refused("l.gate_proj.weight", 350, 128, 4, BERTH_EINVAL,
                  "has 350 rows, which 4 ranks cannot share evenly");
    check_refused("l.q_proj.weight", 190, 128, 2, BERTH_EINVAL,
                  "has 190 rows of 8 heads, which 2 ranks cannot share evenly");
    check_refused("l.k_proj.weight", 48, 128, 3, BERTH_EINVAL, "of 2 heads");
    /* Only heads of keys may be on several ranks. */
    check_refused("l.q_proj.weight", 192, 128, 16, BERTH_EINVAL, "of 8 heads");
    check_refused("l.gate_proj.weight", 2, 128, 4, BERTH_EINVAL, "has 2 rows");
    check_refused("l.qkv_proj.weight", 192, 128, 2, BERTH_EUNSUPPORTED,
                  "is no tensor of llama that berth knows how to cut");
    check_refused("l.aq_proj.weight", 192, 128, 2, BERTH_EUNSUPPORTED, "is no tensor");
    check_refused("weight", 192, 128, 2, BERTH_EUNSUPPORTED, "is no tensor");
    check_refused("", 192, 128, 2, BERTH_EUNSUPPORTED, "is no tensor");
    check_refused("l.input_layernorm.weight", 128, 2, 2, BERTH_EUNSUPPORTED, "is no tensor");
    check_refused("l.nor.weight", 128, 0, 2, BERTH_EUNSUPPORTED, "is no tensor");
    CHECK_EQ(berthi_parallel_divide(&p, &deep, &nowhere, &slice, NULL), BERTH_EUNSUPPORTED);
}

/* ------------------------------------------------------------------ fused, stacked */

/* What rank 1 of 4 has in a family. */
typedef struct fused {
    const char *family;
    const char *name;
    uint64_t shape[3];
    const berthi_slice *expected; /* NULL: refused as unknown */
} fused;

#define GATE_UP "l.mlp.experts.gate_up_proj"
#define DOWN    "l.mlp.experts.down_proj"

static uint32_t
rank_of_shape(const uint64_t shape[3])
{
    return shape[2] > 0 ? 3 : shape[1] > 0 ? 2 : 1;
}

static void
check_fused(const fused *f)
{
    berthi_parallel p = rank_of(1, 4);
    berthi_slice slice;
    const berthi_parallel_tensor tensor = { .name = f->name,
                                            .name_length = strlen(f->name),
                                            .shape = f->shape,
                                            .rank = rank_of_shape(f->shape) };

    p.model_type = f->family;
    CHECK_EQ(berthi_parallel_divide(&p, &tensor, &nowhere, &slice, NULL),
             f->expected != NULL ? BERTH_OK : BERTH_EUNSUPPORTED);
    if (f->expected != NULL && !CHECK(berthi_slice_is_same(&slice, f->expected)))
        t_note("%s of %s: %d, %d from %d on", f->name, f->family, slice.along,
               (int)slice.count, (int)slice.first);
}

/* As transformers has experts in memory: gate behind up, each a matrix as others are. */
static void
test_stacks_of_matrices(void)
{
    const fused rows[] = {
        { "qwen3_moe", GATE_UP, { 3, 192, 128 }, HALVES(COLUMNS, 24, 24) },
        { "qwen3_moe", DOWN, { 3, 128, 96 }, DEPTHS(24, 24) },
        { "granitemoe", "l.moe.input_linear.weight", { 3, 192, 128 }, HALVES(COLUMNS, 24, 24) },
        { "granitemoe", "l.moe.output_linear.weight", { 3, 128, 96 }, DEPTHS(24, 24) },
        { "granitemoe", "l.moe.router.layer.weight", { 3, 128 }, WHOLE },
        { "granitemoeshared", "l.shared_mlp.input_linear.weight", { 192, 128 },
          HALVES(ROWS, 24, 24) },
        { "granitemoeshared", "l.shared_mlp.output_linear.weight", { 128, 96 },
          COLUMNS(24, 24) },
        /* Turned, or of a matrix that is no stack. */
        { "qwen3_moe", GATE_UP, { 3, 128, 192 }, NULL },
        { "qwen3_moe", DOWN, { 3, 96, 128 }, NULL },
        { "qwen3_moe", GATE_UP, { 192 }, NULL },
        { "qwen3_moe", "l.mlp.gate_up_proj.weight", { 192, 128 }, NULL },
        { "granitemoe", "l.moe.input_linear.weight", { 3, 191, 128 }, NULL },
        { "llama", "l.moe.input_linear.weight", { 3, 192, 128 }, NULL },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_fused(&rows[i]);
}

/* Experts that lie turned: inputs are rows. */
static void
test_stacks_that_lie_turned(void)
{
    const fused rows[] = {
        { "llama4_text", GATE_UP, { 3, 128, 192 }, HALVES(DEPTHS, 24, 24) },
        { "llama4_text", DOWN, { 3, 96, 128 }, COLUMNS(24, 24) },
        { "llama4_text", "l.shared_expert.down_proj.weight", { 128, 96 }, COLUMNS(24, 24) },
        { "aria_text", "l.mlp.experts.fc1.weight", { 3, 128, 192 }, HALVES(DEPTHS, 24, 24) },
        { "aria_text", "l.mlp.experts.fc2.weight", { 3, 96, 128 }, COLUMNS(24, 24) },
        /* Gate and up alternate. */
        { "gpt_oss", GATE_UP, { 3, 128, 192 }, DEPTHS(48, 48) },
        { "gpt_oss", GATE_UP "_bias", { 3, 192 }, COLUMNS(48, 48) },
        { "gpt_oss", DOWN, { 3, 96, 128 }, COLUMNS(24, 24) },
        { "gpt_oss", DOWN "_bias", { 3, 128 }, WHOLE },
        { "gpt_oss", "l.self_attn.sinks", { 8 }, ROWS(2, 2) },
        { "llama4_text", GATE_UP, { 3, 192, 128 }, NULL },
        { "llama4_text", DOWN, { 3, 128, 96 }, NULL },
        { "llama4_text", GATE_UP, { 3, 128, 191 }, NULL },
        { "aria_text", "l.mlp.experts.fc1.weight", { 128, 192 }, NULL },
        { "gpt_oss", GATE_UP, { 3, 128, 191 }, NULL },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_fused(&rows[i]);
}

/* As they lie, not between heads, or between gate and up: what they give is gathered. */
static void
test_fused_as_it_lies(void)
{
    const fused rows[] = {
        { "phi3", "l.self_attn.qkv_proj.weight", { 280, 128 }, ROWS(70, 70) },
        { "phi3", "l.self_attn.o_proj.weight", { 128, 60 }, COLUMNS(15, 15) },
        { "phi3", "l.mlp.gate_up_proj.weight", { 204, 128 }, ROWS(51, 51) },
        { "glm", "l.mlp.gate_up_proj.weight", { 192, 128 }, ROWS(48, 48) },
        { "glm4", "l.mlp.gate_up_proj.weight", { 192, 128 }, ROWS(48, 48) },
        { "glm4", "l.mlp.down_proj.weight", { 128, 96 }, COLUMNS(24, 24) },
        { "glm4", "l.post_mlp_layernorm.weight", { 128 }, WHOLE },
        { "glm4", "l.self_attn.qkv_proj.weight", { 280, 128 }, NULL },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_fused(&rows[i]);
}

/* Three quarters of an expert, and pairs of gate and up that would be split. */
static void
test_stacks_that_are_not_even(void)
{
    const uint64_t shapes[2][3] = { { 3, 180, 128 }, { 3, 128, 180 } };
    const berthi_parallel_tensor halves = {
        .name = GATE_UP, .name_length = strlen(GATE_UP), .shape = shapes[0], .rank = 3
    };
    const berthi_parallel_tensor pairs = {
        .name = GATE_UP, .name_length = strlen(GATE_UP), .shape = shapes[1], .rank = 3
    };
    berthi_parallel p = rank_of(1, 4);
    berthi_slice slice;
    berth_error error;

    CHECK_EQ(berthi_parallel_divide(&p, &halves, &nowhere, &slice, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message,
                   "has 90 columns in each of 2 parts, which 4 ranks cannot share evenly");
    p.model_type = "gpt_oss";
    CHECK_EQ(berthi_parallel_divide(&p, &pairs, &nowhere, &slice, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message,
                   "has 180 depths of 90 pairs, which 4 ranks cannot share evenly");
}

/* --------------------------------------------------------------------- any slice */

static void
test_inside(void)
{
    uint64_t shape[3] = { 10, 6, 2 };

    CHECK(berthi_slice_is_inside(WHOLE, shape, 2));
    CHECK(berthi_slice_is_inside(WHOLE, shape, 0));
    CHECK(berthi_slice_is_inside(ROWS(4, 6), shape, 2));
    CHECK(berthi_slice_is_inside(ROWS(10, 0), shape, 1));
    CHECK(!berthi_slice_is_inside(ROWS(11, 0), shape, 1));
    CHECK(!berthi_slice_is_inside(ROWS(4, 7), shape, 2));
    CHECK(!berthi_slice_is_inside(ROWS(4, UINT64_MAX), shape, 2));
    CHECK(!berthi_slice_is_inside(ROWS(0, 1), shape, 0));
    CHECK(berthi_slice_is_inside(ROWS(9, 1), shape, 3));
    CHECK(!berthi_slice_is_inside(ROWS(9, 2), shape, 3));
    CHECK(berthi_slice_is_inside(COLUMNS(1, 5), shape, 3));
    CHECK(!berthi_slice_is_inside(COLUMNS(2, 5), shape, 3));
    CHECK(berthi_slice_is_inside(DEPTHS(1, 1), shape, 3));
    CHECK(!berthi_slice_is_inside(DEPTHS(1, 2), shape, 3));
    CHECK(!berthi_slice_is_inside(DEPTHS(0, 1), shape, 2));
    CHECK(berthi_slice_is_inside(HALVES(ROWS, 4, 1), shape, 3));
    CHECK(!berthi_slice_is_inside(HALVES(ROWS, 4, 2), shape, 3));
    CHECK(!berthi_slice_is_inside(HALVES(COLUMNS, 4, 1), shape, 2));
    shape[1] = 5; /* has no halves */
    CHECK(!berthi_slice_is_inside(HALVES(COLUMNS, 0, 1), shape, 2));
    shape[1] = 6;
    CHECK(berthi_slice_is_inside(COLUMNS(0, 6), shape, 2));
    CHECK(!berthi_slice_is_inside(COLUMNS(1, 6), shape, 2));
    CHECK(!berthi_slice_is_inside(COLUMNS(0, 1), shape, 1));
}

static void
test_shape(void)
{
    const uint64_t shape[2] = { 10, 6 };
    uint64_t out[2] = { 0, 0 };

    berthi_slice_shape(WHOLE, shape, 2, out);
    CHECK(out[0] == 10 && out[1] == 6);
    berthi_slice_shape(ROWS(2, 3), shape, 2, out);
    CHECK(out[0] == 3 && out[1] == 6);
    berthi_slice_shape(COLUMNS(2, 3), shape, 2, out);
    CHECK(out[0] == 10 && out[1] == 3);
    berthi_slice_shape(HALVES(COLUMNS, 1, 2), shape, 2, out);
    CHECK(out[0] == 10 && out[1] == 4);
}

static void
check_view(const berthi_slice *slice, uint64_t outer, uint64_t size, uint64_t inner)
{
    const uint64_t shape[3] = { 3, 10, 4 };
    const berthi_slice_view view = berthi_slice_look(slice, shape, 3);

    CHECK_EQ(view.outer, outer);
    CHECK_EQ(view.size, size);
    CHECK_EQ(view.inner, inner);
}

static void
test_views(void)
{
    check_view(ROWS(1, 1), 1, 3, 40);
    check_view(COLUMNS(1, 1), 3, 10, 4);
    check_view(HALVES(COLUMNS, 1, 1), 6, 5, 4);
    check_view(DEPTHS(1, 1), 30, 4, 1);
    check_view(HALVES(DEPTHS, 1, 1), 60, 2, 1);
}

static void
test_same(void)
{
    CHECK(berthi_slice_is_same(HALVES(ROWS, 1, 2), HALVES(ROWS, 1, 2)));
    CHECK(!berthi_slice_is_same(HALVES(ROWS, 1, 2), ROWS(1, 2)));
    CHECK(!berthi_slice_is_same(ROWS(1, 2), COLUMNS(1, 2)));
    CHECK(!berthi_slice_is_same(ROWS(1, 2), ROWS(2, 2)));
    CHECK(!berthi_slice_is_same(ROWS(1, 2), ROWS(1, 1)));
}

/* Bytes are whole where numbers of 4 bits are cut in pairs, or rows are. */
static void
test_whole_bytes(void)
{
    const uint64_t even[2] = { 8, 6 };
    const uint64_t odd[2] = { 8, 7 };

    CHECK(berthi_slice_refusal(WHOLE, odd, 2, BERTH_F4, NULL) == NULL);
    CHECK(berthi_slice_refusal(ROWS(1, 3), even, 2, BERTH_F4, NULL) == NULL);
    CHECK(berthi_slice_refusal(ROWS(2, 4), odd, 2, BERTH_F4, NULL) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(1, 2), odd, 2, BERTH_F4, NULL), "no whole");
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 1), odd, 2, BERTH_F4, NULL), "no whole");
    CHECK(berthi_slice_refusal(COLUMNS(2, 4), even, 2, BERTH_F4, NULL) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(1, 4), even, 2, BERTH_F4, NULL),
                   "no whole");
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(2, 3), even, 2, BERTH_F4, NULL),
                   "no whole");
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(2, 4), odd, 2, BERTH_F4, NULL),
                   "no whole");
    CHECK(berthi_slice_refusal(COLUMNS(1, 3), odd, 2, BERTH_BF16, NULL) == NULL);
    /* The second half begins behind four rows, or behind three numbers of each. */
    CHECK(berthi_slice_refusal(HALVES(ROWS, 2, 2), odd, 2, BERTH_F4, NULL) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(HALVES(ROWS, 1, 2), odd, 2, BERTH_F4, NULL),
                   "no whole");
    CHECK_CONTAINS(berthi_slice_refusal(HALVES(COLUMNS, 0, 2), even, 2, BERTH_F4, NULL),
                   "no whole");
}

/* Blocks of 64 run along rows of 96: every second row begins one. */
static void
test_blocks(void)
{
    const uint64_t shape[2] = { 7, 96 };
    const uint64_t wide[2] = { 7, 192 };
    const uint64_t of_eight[2] = { 8, 96 };
    const uint64_t of_six[2] = { 6, 96 };
    berthi_quantized record = {
        .encoding = BERTH_ENCODING_NF4, .block_size = 64, .elements = 7 * 96
    };

    CHECK(berthi_slice_refusal(ROWS(2, 2), shape, 2, BERTH_U8, &record) == NULL);
    CHECK(berthi_slice_refusal(ROWS(4, 3), shape, 2, BERTH_U8, &record) == NULL); /* end */
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(1, 1), shape, 2, BERTH_U8, &record),
                   "that a cut here would split");
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 1), shape, 2, BERTH_U8, &record),
                   "that a cut here would split");
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(0, 64), shape, 2, BERTH_U8, &record),
                   "that run along its rows");
    CHECK(berthi_slice_refusal(COLUMNS(64, 128), wide, 2, BERTH_U8, &record) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(32, 64), wide, 2, BERTH_U8, &record),
                   "that run along its rows");
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(64, 96), wide, 2, BERTH_U8, &record),
                   "that run along its rows");
    /* Halves of four rows are six blocks. */
    CHECK(berthi_slice_refusal(HALVES(ROWS, 2, 2), of_eight, 2, BERTH_U8, &record) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(HALVES(ROWS, 1, 2), of_eight, 2, BERTH_U8, &record),
                   "would split");
    CHECK_CONTAINS(berthi_slice_refusal(HALVES(ROWS, 2, 1), of_eight, 2, BERTH_U8, &record),
                   "would split");
    CHECK_CONTAINS(berthi_slice_refusal(HALVES(ROWS, 0, 2), of_six, 2, BERTH_U8, &record),
                   "would split");
    record.block_size = 0;
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 2), shape, 2, BERTH_U8, &record), "split");
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(0, 64), wide, 2, BERTH_U8, &record), "split");
    record.is_transposed_absmax = true;
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 2), shape, 2, BERTH_U8, &record),
                   "in an encoding that is not cut");
    record.is_transposed_absmax = false;
    record.is_nested_otherwise = true;
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 2), shape, 2, BERTH_U8, &record),
                   "in an encoding that is not cut");
    record.encoding = BERTH_ENCODING_INT8;
    CHECK(berthi_slice_refusal(ROWS(1, 1), shape, 2, BERTH_I8, &record) == NULL);
}

/* 256 blocks of 64 share a second level: rows of 64 do by 256, rows of 32768 by half a row. */
static void
test_second_levels(void)
{
    const uint64_t narrow[2] = { 1000, 64 };
    const uint64_t wide[2] = { 4, 32768 };
    const uint64_t odd[2] = { 4, 32832 };
    berthi_quantized record = {
        .encoding = BERTH_ENCODING_NF4, .block_size = 64, .is_double = true
    };

    CHECK(!berthi_slice_splits_levels(WHOLE, narrow, 2, &record));
    CHECK(!berthi_slice_splits_levels(ROWS(256, 512), narrow, 2, &record));
    CHECK(!berthi_slice_splits_levels(ROWS(768, 232), narrow, 2, &record)); /* end */
    CHECK(berthi_slice_splits_levels(ROWS(768, 231), narrow, 2, &record));
    CHECK(berthi_slice_splits_levels(ROWS(0, 255), narrow, 2, &record));
    CHECK(berthi_slice_splits_levels(ROWS(1, 256), narrow, 2, &record));
    CHECK(!berthi_slice_splits_levels(COLUMNS(16384, 16384), wide, 2, &record));
    CHECK(berthi_slice_splits_levels(COLUMNS(8192, 16384), wide, 2, &record));
    CHECK(berthi_slice_splits_levels(COLUMNS(16384, 8192), wide, 2, &record));
    CHECK(berthi_slice_splits_levels(COLUMNS(0, 16384), odd, 2, &record));
    CHECK(!berthi_slice_splits_levels(HALVES(ROWS, 1, 1), wide, 2, &record));
    CHECK(berthi_slice_splits_levels(HALVES(ROWS, 0, 256), narrow, 2, &record));
    /* Blocks are enough for a cut. */
    CHECK(berthi_slice_refusal(ROWS(1, 1), narrow, 2, BERTH_U8, &record) == NULL);
    CHECK(berthi_slice_refusal(COLUMNS(64, 128), wide, 2, BERTH_U8, &record) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(COLUMNS(32, 128), wide, 2, BERTH_U8, &record), "split");
    record.is_double = false;
    CHECK(!berthi_slice_splits_levels(ROWS(1, 1), narrow, 2, &record));
}

static void
check_taken(const berthi_slice *slice, uint64_t block, const uint64_t *dims, uint32_t rank,
            const berthi_slice *expected)
{
    const uint64_t shape[2] = { 40, 64 };
    berthi_slice found;

    CHECK_EQ(berthi_slice_can_take(slice, shape, block, dims, rank, &found), expected != NULL);
    if (expected != NULL) {
        CHECK_EQ(found.along, expected->along);
        CHECK_EQ(found.first, expected->first);
        CHECK_EQ(found.count, expected->count);
    }
}

/* Of a matrix of 40 rows and 64 columns: codes, and scales of blocks of 16 by 16. */
static void
test_tensors_of_a_matrix(void)
{
    const uint64_t codes[2] = { 40, 64 };
    const uint64_t pairs[2] = { 40, 32 };
    const uint64_t grid[2] = { 3, 4 };
    const uint64_t of_rows[2] = { 40, 1 };
    const uint64_t other[2] = { 4, 5 };

    check_taken(WHOLE, 16, grid, 2, WHOLE);
    check_taken(ROWS(3, 7), 1, codes, 2, ROWS(3, 7));
    check_taken(COLUMNS(3, 7), 1, codes, 2, COLUMNS(3, 7));
    /* Two columns in a byte. */
    check_taken(ROWS(3, 7), 1, pairs, 2, ROWS(3, 7));
    check_taken(COLUMNS(4, 6), 2, pairs, 2, COLUMNS(2, 3));
    check_taken(COLUMNS(3, 6), 2, pairs, 2, NULL);
    check_taken(COLUMNS(4, 5), 2, pairs, 2, NULL);
    /* The last rows are half a block. */
    check_taken(ROWS(16, 16), 16, grid, 2, ROWS(1, 1));
    check_taken(ROWS(16, 24), 16, grid, 2, ROWS(1, 2));
    check_taken(ROWS(32, 8), 16, grid, 2, ROWS(2, 1));
    check_taken(ROWS(8, 16), 16, grid, 2, NULL);
    check_taken(ROWS(16, 8), 16, grid, 2, NULL);
    check_taken(COLUMNS(16, 32), 16, grid, 2, COLUMNS(1, 2));
    check_taken(COLUMNS(8, 8), 16, grid, 2, NULL);
    /* A scale a row, and as many for all columns. */
    check_taken(ROWS(3, 7), 1, of_rows, 2, ROWS(3, 7));
    check_taken(ROWS(3, 7), 1, of_rows, 1, ROWS(3, 7));
    check_taken(COLUMNS(3, 7), 64, of_rows, 2, WHOLE);
    check_taken(COLUMNS(3, 7), 64, of_rows, 1, WHOLE);
    /* Of other blocks than are said, or of none. */
    check_taken(ROWS(16, 16), 16, other, 2, NULL);
    check_taken(COLUMNS(16, 16), 16, other, 2, NULL);
    check_taken(ROWS(16, 16), 0, grid, 2, NULL);
    /* Of halves each row has its own. */
    check_taken(HALVES(ROWS, 3, 7), 1, codes, 2, HALVES(ROWS, 3, 7));
    check_taken(HALVES(ROWS, 3, 7), 1, of_rows, 1, HALVES(ROWS, 3, 7));
    check_taken(HALVES(ROWS, 0, 16), 16, grid, 2, NULL);
}

/* Of a matrix of one column the scales of its rows, which have no columns, are for all. */
static void
test_scales_of_one_column(void)
{
    const uint64_t shape[2] = { 40, 1 };
    berthi_slice found;

    CHECK(berthi_slice_can_take(COLUMNS(0, 1), shape, 1, shape, 2, &found));
    CHECK(berthi_slice_is_same(&found, COLUMNS(0, 1)));
    CHECK(berthi_slice_can_take(COLUMNS(0, 1), shape, 1, shape, 1, &found));
    CHECK(berthi_slice_is_same(&found, WHOLE));
    CHECK(berthi_slice_can_take(ROWS(3, 7), shape, 1, shape, 1, &found));
    CHECK(berthi_slice_is_same(&found, ROWS(3, 7)));
}

/* A row of three dims is a matrix. */
static void
test_stacks(void)
{
    const uint64_t shape[3] = { 4, 8, 16 };
    const uint64_t odd[3] = { 4, 3, 5 };
    const uint64_t one = 7;
    uint64_t out[3];
    berthi_quantized record = {
        .encoding = BERTH_ENCODING_NF4, .block_size = 128, .elements = 4 * 128
    };

    CHECK_EQ(berthi_slice_look(ROWS(0, 1), shape, 3).inner, 128);
    CHECK_EQ(berthi_slice_look(ROWS(0, 1), odd, 2).inner, 3);
    CHECK_EQ(berthi_slice_look(ROWS(0, 1), &one, 1).inner, 1);
    berthi_slice_shape(ROWS(3, 1), shape, 3, out);
    CHECK(out[0] == 1 && out[1] == 8 && out[2] == 16);
    CHECK(berthi_slice_refusal(ROWS(3, 1), shape, 3, BERTH_F4, NULL) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(1, 1), odd, 3, BERTH_F4, NULL), "no whole");
    CHECK(berthi_slice_refusal(ROWS(1, 1), odd, 3, BERTH_BF16, NULL) == NULL);
    CHECK(berthi_slice_refusal(ROWS(1, 1), shape, 3, BERTH_U8, &record) == NULL);
    record.block_size = 256;
    CHECK(berthi_slice_refusal(ROWS(2, 2), shape, 3, BERTH_U8, &record) == NULL);
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(2, 1), shape, 3, BERTH_U8, &record), "split");
    CHECK_CONTAINS(berthi_slice_refusal(ROWS(1, 1), shape, 3, BERTH_U8, &record), "split");
}

/* ----------------------------------------------------------------------- in plans */

static void
test_plans_are_refused(void)
{
    const char *const folder = sliced_make(&sliced_small);
    berth_plan_options options;
    sliced_sizes other = sliced_small;

    sliced_refuse(folder, sliced_options("cpu=64MiB", 0, 3), BERTH_EINVAL,
                  "has 352 columns, which 3 ranks cannot share evenly",
                  "model.layers.0.mlp.down_proj.weight");
    sliced_refuse(folder, sliced_options("cpu=64MiB", 0, 16), BERTH_EINVAL,
                  "has 192 columns of 8 heads, which 16 ranks cannot share evenly",
                  "model.layers.0.self_attn.o_proj.weight");
    sliced_refuse(folder, sliced_options("cpu=64MiB", 2, 2), BERTH_EINVAL,
                  "is not below ranks", NULL);
    sliced_refuse(folder, sliced_options("cpu=64MiB", 1, 0), BERTH_EINVAL,
                  "is not below ranks", NULL);
    sliced_refuse(folder, sliced_options("cpu=64MiB", 0, 1025), BERTH_EINVAL,
                  "is more than 1024", NULL);
    options = sliced_options("cpu=64MiB", 0, 2);
    options.mode = "auto";
    sliced_refuse(folder, options, BERTH_EINVAL, "is for whole models, not for a rank", NULL);
    other.inner = 350;
    sliced_refuse(sliced_make(&other), sliced_options("cpu=64MiB", 0, 4), BERTH_EINVAL,
                  "has 350 columns, which 4 ranks cannot share evenly",
                  "model.layers.0.mlp.down_proj.weight");
}

/* What is not known of a family, nobody guesses. */
static void
test_families_that_are_not_known(void)
{
    const char *const folder = sliced_make(&sliced_small);
    const berth_plan_options options = sliced_options("cpu=64MiB", 0, 2);
    sliced_sizes other = sliced_small;

    sliced_refuse(loaded_gpt2("BF16", 64, 1), options, BERTH_EUNSUPPORTED,
                  "how gpt2 is cut for tensor parallelism is not known: berth-plan(5) lists "
                  "the types of which it is", NULL);
    sliced_refuse(loaded_llama(1, "BF16", 1), options, BERTH_EUNSUPPORTED,
                  "is no tensor of llama that berth knows how to cut",
                  "model.layers.0.odd");
    other.extra = "model.layers.0.self_attn.qkv_proj.weight";
    sliced_refuse(sliced_make(&other), options, BERTH_EUNSUPPORTED,
                  "is no tensor of llama that berth knows how to cut",
                  "model.layers.0.self_attn.qkv_proj.weight");
    (void)remove(fixture_format("%s/config.json", folder));
    sliced_refuse(folder, options, BERTH_EUNSUPPORTED,
                  "how a model without config.json that can be read is cut", NULL);
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"model_type\": \"llama\", \"hidden_size\": 128, "
                 "\"intermediate_size\": 352, \"num_attention_heads\": 8, "
                 "\"num_hidden_layers\": 1, \"vocab_size\": 515, \"vision_config\": {}}");
    sliced_refuse(folder, options, BERTH_EUNSUPPORTED,
                  "is not known where its layers differ, or beside a tower", NULL);
}

/* What one rank computes of it: at least one head of each kind. */
static void
test_shrink(void)
{
    const berthi_parallel p = rank_of(0, 4);
    berthi_shape shape = { .vocabulary = 515, .kind_count = 2 };

    shape.kinds[0] = (berthi_layer){ .heads = 8,
                                     .kv_heads = 2,
                                     .intermediate = 352,
                                     .expert_intermediate = 96,
                                     .shared_intermediate = 64 };
    shape.kinds[1] = (berthi_layer){ .heads = 2, .kv_heads = 4, .intermediate = 8 };
    berthi_parallel_shrink(&p, &shape);
    CHECK_EQ(shape.vocabulary, 129);
    CHECK_EQ(shape.kinds[0].heads, 2);
    CHECK_EQ(shape.kinds[0].kv_heads, 1);
    CHECK_EQ(shape.kinds[0].intermediate, 88);
    CHECK_EQ(shape.kinds[0].expert_intermediate, 24);
    CHECK_EQ(shape.kinds[0].shared_intermediate, 16);
    CHECK_EQ(shape.kinds[1].heads, 1);
    CHECK_EQ(shape.kinds[1].kv_heads, 1);
    CHECK_EQ(shape.kinds[1].intermediate, 2);
    shape.vocabulary = 0;
    berthi_parallel_shrink(&p, &shape);
    CHECK_EQ(shape.vocabulary, 1);
}

/* What fused projections give is brought together, and is all of it on every rank. */
static void
test_shrink_what_is_gathered(void)
{
    static const struct {
        const char *family;
        uint64_t heads;
        uint64_t intermediate;
    } rows[] = { { "phi3", 8, 352 }, { "glm", 2, 352 }, { "glm4", 2, 352 }, { "llama", 2, 88 } };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const berthi_family family = { .model_type = rows[i].family };
        berthi_shape shape = { .vocabulary = 512, .kind_count = 1, .is_known = true };
        berthi_parallel p;

        shape.kinds[0] = (berthi_layer){ .heads = 8, .kv_heads = 8, .intermediate = 352 };
        shape.family = &family;
        T_REQUIRE(berthi_parallel_init(&p, 1, 4, &shape, NULL) == BERTH_OK);
        berthi_parallel_shrink(&p, &shape);
        CHECK_EQ(shape.vocabulary, 128);
        CHECK_EQ(shape.kinds[0].heads, rows[i].heads);
        CHECK_EQ(shape.kinds[0].kv_heads, rows[i].heads);
        CHECK_EQ(shape.kinds[0].intermediate, rows[i].intermediate);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_one_tensor);
    T_RUN(test_latents);
    T_RUN(test_other_names);
    T_RUN(test_heads_of_keys);
    T_RUN(test_words);
    T_RUN(test_tensors_that_are_not_cut);
    T_RUN(test_stacks_of_matrices);
    T_RUN(test_stacks_that_lie_turned);
    T_RUN(test_fused_as_it_lies);
    T_RUN(test_stacks_that_are_not_even);
    T_RUN(test_inside);
    T_RUN(test_shape);
    T_RUN(test_views);
    T_RUN(test_same);
    T_RUN(test_whole_bytes);
    T_RUN(test_blocks);
    T_RUN(test_second_levels);
    T_RUN(test_tensors_of_a_matrix);
    T_RUN(test_scales_of_one_column);
    T_RUN(test_stacks);
    T_RUN(test_plans_are_refused);
    T_RUN(test_families_that_are_not_known);
    T_RUN(test_shrink);
    T_RUN(test_shrink_what_is_gathered);
    T_MAIN_END;
}
