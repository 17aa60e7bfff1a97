/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_rank_stacks.c - experts that are stacked in one tensor, and projections that are
 * fused in one matrix, as ranks of tensor parallelism load them.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/sliced.h"
#include "tests/stacked.h"
#include "tests/t.h"
#include "tests/weights.h"

/* Halves, quarters and, of stored blocks of 64, whole ones of each are there. */
static const stacked_sizes small = { .layers = 1, .experts = 3, .hidden = 256, .inner = 256 };

/* ------------------------------------------------------------------------ expected */

/* What rank 1 of 2 has of a tensor. */
typedef struct due {
    const char *part; /* of its name */
    int32_t along;
    uint64_t first;
    uint64_t count;
    uint64_t parts;
} due;

static bool
is_due(const due *d, const berth_berth *berth)
{
    return berth->along == d->along && berth->first == d->first && berth->count == d->count
           && berth->parts == d->parts;
}

static void
check_plan(const char *folder, const due *dues, size_t count)
{
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    planned p;

    planned_begin(&p, folder, &options);
    if (!CHECK_EQ(p.status, BERTH_OK))
        t_note("%s: %s", p.error.tensor, p.error.message);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    for (size_t i = 0; i < count && p.status == BERTH_OK; i++) {
        bool is_there = false;

        for (uint64_t b = 0; b < p.summary.berth_count; b++) {
            berth_berth berth;
            char name[256];

            CHECK_EQ(berth_plan_get_berth(p.plan, b, &berth, name, sizeof name), BERTH_OK);
            if (strstr(name, dues[i].part) == NULL)
                continue;
            is_there = true;
            if (!CHECK(is_due(&dues[i], &berth)))
                t_note("%s: %d, from %d on %d", name, berth.along, (int)berth.first,
                       (int)berth.count);
        }
        if (!CHECK(is_there))
            t_note("%s", dues[i].part);
    }
    planned_end(&p);
}

/* ------------------------------------------------------------------------ gpt-oss */

static void
test_pairs(void)
{
    static const due dues[] = {
        { "experts.gate_up_proj_bias", BERTH_SLICING_COLUMNS, 256, 256, 0 },
        { "experts.down_proj", BERTH_SLICING_COLUMNS, 128, 128, 0 },
        { "self_attn.sinks", BERTH_SLICING_ROWS, 2, 2, 0 },
        { "q_proj.weight", BERTH_SLICING_ROWS, 128, 128, 0 },
    };
    const char *const folder = stacked_make(&small);

    check_plan(folder, dues, sizeof dues / sizeof *dues);
    for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
        sliced_check_ranks(folder, ranks, false);
        sliced_check_ranks(folder, ranks, true);
    }
}

/* Each rank makes of its part what a whole tensor of that would be. */
static void
test_encoded(void)
{
    const char *const folder = stacked_make(&small);

    for (uint32_t i = 0; i < 2; i++) {
        sliced_check_type(folder, BERTH_ENCODING_NF4, false, i == 1);
        sliced_check_type(folder, BERTH_ENCODING_NF4, true, i == 1);
        sliced_check_type(folder, BERTH_ENCODING_FP4, false, i == 1);
    }
}

/* What is stored in blocks is cut between them, with their statistics. */
static void
test_stored_blocks(void)
{
    const char *const folder = stacked_make(&small);
    berth_plan_options convert = loaded_options(NULL);
    const char *stored;

    convert.type = BERTH_ENCODING_NF4;
    convert.takes_experts = 1;
    stored = loaded_quantized(folder, &convert);
    for (uint32_t rank = 0; rank < 4; rank++) {
        sliced_check_stored(folder, stored, rank, NULL);
        sliced_check_stored(folder, stored, rank, "sim:64MiB");
    }
    sliced_refuse(stored, sliced_options("cpu=64MiB", 1, 16), BERTH_EUNSUPPORTED,
                  "is stored in blocks that run along its rows",
                  "model.layers.0.mlp.experts.gate_up_proj");
}

/* Of an expert a rank would have six rows and a half of block. */
static void
test_blocks_of_two_experts(void)
{
    const stacked_sizes odd = { .layers = 1, .experts = 3, .hidden = 32, .inner = 4 };
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 4);

    options.type = BERTH_ENCODING_NF4;
    options.takes_experts = 1;
    sliced_refuse(stacked_make(&odd), options, BERTH_EUNSUPPORTED,
                  "in blocks of which some hold values of two experts",
                  "model.layers.0.mlp.experts.down_proj");
}

/* --------------------------------------------------------------------------- MXFP4 */

static uint8_t *
read_whole(const loaded *l, const char *name, berth_tensor *tensor)
{
    const uint64_t number = berth_checkpoint_find(l->p.checkpoint, name, strlen(name));
    uint8_t *bytes;

    CHECK_NE(number, BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, number, tensor), BERTH_OK);
    bytes = weights_alloc(tensor->bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, number, 0, UINT64_MAX, bytes, tensor->bytes,
                                   NULL),
             BERTH_OK);
    return bytes;
}

/* The part is that half of each of so many stretches of what is stored. */
static void
check_halves(const loaded *l, const berth_model_part *part, const char *name, uint64_t outer,
             uint32_t rank)
{
    berth_tensor tensor;
    uint8_t *const whole = read_whole(l, name, &tensor);
    const uint8_t *const found = part->memory;
    const uint64_t bytes = tensor.bytes / outer / 2;

    CHECK_EQ(part->bytes, tensor.bytes / 2);
    for (uint64_t i = 0; i < outer; i++)
        if (!CHECK_MEM(found + i * bytes, whole + (2 * i + rank) * bytes, (size_t)bytes))
            t_note("%s", name);
    free(whole);
}

/* Outputs are rows of what is stored, and inputs the groups of each row. */
static void
check_mxfp4(const loaded *l, const char *name, uint64_t outer, uint32_t rank)
{
    const char *const blocks = fixture_format("%s_blocks", name);
    berth_model_tensor tensor;

    CHECK_EQ(berth_model_get_tensor(
                 l->model, berth_model_find(l->model, blocks, strlen(blocks)), &tensor),
             BERTH_OK);
    T_REQUIRE(tensor.part_count == 2);
    check_halves(l, &tensor.parts[0], blocks, outer, rank);
    check_halves(l, &tensor.parts[1], fixture_format("%s_scales", name), outer, rank);
}

static void
test_mxfp4(void)
{
    stacked_sizes sizes = small;
    const char *folder;

    sizes.is_mxfp4 = true;
    folder = stacked_make(&sizes);
    for (uint32_t rank = 0; rank < 2; rank++) {
        berth_plan_options options = sliced_options("cpu=64MiB", rank, 2);
        berth_check_report report;
        loaded l;

        loaded_begin(&l, folder, &options, NULL);
        if (!CHECK_EQ(l.p.status, BERTH_OK))
            t_note("%s: %s", l.p.error.tensor, l.p.error.message);
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s: %s", l.error.tensor, l.error.message);
        check_mxfp4(&l, "model.layers.0.mlp.experts.gate_up_proj", 3, rank);
        check_mxfp4(&l, "model.layers.0.mlp.experts.down_proj", UINT64_C(3) * 256, rank);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

/* A quarter of 320 inputs is two groups and a half. */
static void
test_groups_are_not_split(void)
{
    stacked_sizes sizes = small;

    sizes.is_mxfp4 = true;
    sizes.inner = 320;
    sliced_refuse(stacked_make(&sizes), sliced_options("cpu=64MiB", 1, 4), BERTH_EUNSUPPORTED,
                  "is stored in", "model.layers.0.mlp.experts.down_proj");
}

/* ------------------------------------------------------------------ other families */

/* Of a layer with these tensors: hidden 64, 4 heads with 2 of keys. */
static const char *
make_family(const char *class_name, const char *type, const char *tensors)
{
    const char *const folder = fixture_folder();

    (void)fixture_file(
        fixture_format("%s/model.safetensors", folder),
        fixture_format("BF16 40x64 model.embed_tokens.weight\n"
                       "BF16 64 model.norm.weight\n"
                       "BF16 40x64 lm_head.weight\n"
                       "BF16 64 model.layers.0.input_layernorm.weight\n"
                       "BF16 64x64 model.layers.0.self_attn.o_proj.weight\n%s",
                       tensors));
    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format("{\"architectures\": [\"%s\"], \"model_type\": \"%s\", "
                                "\"hidden_size\": 64, \"intermediate_size\": 96, "
                                "\"moe_intermediate_size\": 96, \"num_hidden_layers\": 1, "
                                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                                "\"head_dim\": 16, \"vocab_size\": 40, "
                                "\"num_local_experts\": 3, \"num_experts\": 3, "
                                "\"num_experts_per_tok\": 2, \"torch_dtype\": \"bfloat16\", "
                                "\"tie_word_embeddings\": false}",
                                class_name, type));
    return folder;
}

#define LAYER "model.layers.0."
#define QKV                                        \
    "BF16 64x64 " LAYER "self_attn.q_proj.weight\n" \
    "BF16 32x64 " LAYER "self_attn.k_proj.weight\n" \
    "BF16 32x64 " LAYER "self_attn.v_proj.weight\n"

static void
check_family(const char *folder, const due *dues, size_t count)
{
    check_plan(folder, dues, count);
    sliced_check_ranks(folder, 2, false);
    sliced_check_ranks(folder, 2, true);
}

/* Gate and up of an expert lie one behind the other, and so do its halves in a rank. */
static void
test_halves(void)
{
    static const due turned[] = {
        { "experts.gate_up_proj", BERTH_SLICING_DEPTHS, 48, 48, 2 },
        { "experts.down_proj", BERTH_SLICING_COLUMNS, 48, 48, 0 },
        { "router", BERTH_SLICING_NONE, 0, 0, 0 },
    };
    static const due stacked[] = {
        { "experts.gate_up_proj", BERTH_SLICING_COLUMNS, 48, 48, 2 },
        { "experts.down_proj", BERTH_SLICING_DEPTHS, 48, 48, 0 },
    };
    static const due shared[] = {
        { "moe.input_linear", BERTH_SLICING_COLUMNS, 48, 48, 2 },
        { "moe.output_linear", BERTH_SLICING_DEPTHS, 48, 48, 0 },
        { "shared_mlp.input_linear", BERTH_SLICING_ROWS, 40, 40, 2 },
        { "shared_mlp.output_linear", BERTH_SLICING_COLUMNS, 40, 40, 0 },
    };

    check_family(make_family("Llama4ForCausalLM", "llama4_text",
                             QKV "BF16 3x64x192 " LAYER "feed_forward.experts.gate_up_proj\n"
                                 "BF16 3x96x64 " LAYER "feed_forward.experts.down_proj\n"
                                 "BF16 3x64 " LAYER "feed_forward.router.weight\n"),
                 turned, 3);
    check_family(make_family("Qwen3MoeForCausalLM", "qwen3_moe",
                             QKV "BF16 3x192x64 " LAYER "mlp.experts.gate_up_proj\n"
                                 "BF16 3x64x96 " LAYER "mlp.experts.down_proj\n"
                                 "BF16 3x64 " LAYER "mlp.gate.weight\n"),
                 stacked, 2);
    check_family(
        make_family("GraniteMoeSharedForCausalLM", "granitemoeshared",
                    QKV "BF16 3x192x64 " LAYER "block_sparse_moe.input_linear.weight\n"
                        "BF16 3x64x96 " LAYER "block_sparse_moe.output_linear.weight\n"
                        "BF16 160x64 " LAYER "shared_mlp.input_linear.weight\n"
                        "BF16 64x80 " LAYER "shared_mlp.output_linear.weight\n"
                        "BF16 3x64 " LAYER "block_sparse_moe.router.layer.weight\n"),
        shared, 4);
}

/* Rows of a matrix of halves, which is stored in int8 with their maxima. */
static void
test_stored_halves(void)
{
    static const char name[] = LAYER "shared_mlp.input_linear.weight";
    fixture_builder *const b = fixture_begin();
    const char *const folder = make_family("GraniteMoeSharedForCausalLM", "granitemoeshared", QKV);

    fixture_add_int8(b, LAYER "shared_mlp.input_linear", 160, 64);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    for (uint32_t rank = 0; rank < 2; rank++) {
        berth_plan_options options = sliced_options("cpu=64MiB", rank, 2);
        berth_model_tensor tensor;
        loaded l;

        loaded_begin(&l, folder, &options, NULL);
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s: %s", l.error.tensor, l.error.message);
        CHECK_EQ(berth_model_get_tensor(l.model, berth_model_find(l.model, name, strlen(name)),
                                        &tensor),
                 BERTH_OK);
        T_REQUIRE(tensor.part_count == 2);
        check_halves(&l, &tensor.parts[0], name, 2, rank);
        check_halves(&l, &tensor.parts[1], LAYER "shared_mlp.input_linear.SCB", 2, rank);
        loaded_end(&l);
    }
}

/* What lies between halves of so many rows is not read into a stage. */
static void
check_far_halves(const char *dtype, uint64_t rows)
{
    const uint64_t shape[2] = { rows, 512 };
    const char *const folder =
        make_family("GraniteMoeSharedForCausalLM", "granitemoeshared", QKV);
    berth_plan_options options = sliced_options("cpu=256MiB", 1, 2);
    fixture_builder *const b = fixture_begin();
    loaded l;

    fixture_add_sparse(b, LAYER "shared_mlp.input_linear.weight", dtype, 2, shape);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    options.type = BERTH_ENCODING_NF4;
    options.dtype = BERTH_BF16;
    loaded_begin(&l, folder, &options, NULL);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s: %s", l.error.tensor, l.error.message);
    CHECK_EQ(l.report.quantized_bytes, rows / 2 * 512 / 2 + rows / 2 * 512 / 64 * 4);
    if (!CHECK_LT(l.report.stage_bytes, UINT64_C(8) << 20))
        t_note("%s", dtype);
    loaded_end(&l);
}

/* The time that a plan says is for what is read: of both halves the rank's. */
static void
test_time_of_far_halves(void)
{
    const uint64_t shape[2] = { 20480, 512 };
    const char *const folder =
        make_family("GraniteMoeSharedForCausalLM", "granitemoeshared", QKV);
    berth_plan_options of_all = sliced_options("cpu=256MiB", 0, 0);
    berth_plan_options of_rank = sliced_options("cpu=256MiB", 1, 2);
    fixture_builder *const b = fixture_begin();
    planned all;
    planned rank;

    fixture_add_sparse(b, LAYER "shared_mlp.input_linear.weight", "BF16", 2, shape);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    planned_begin(&all, folder, &of_all);
    planned_begin(&rank, folder, &of_rank);
    T_REQUIRE(all.status == BERTH_OK && rank.status == BERTH_OK);
    CHECK(rank.summary.load_seconds > 0.49 * all.summary.load_seconds);
    CHECK(rank.summary.load_seconds < 0.51 * all.summary.load_seconds);
    planned_end(&all);
    planned_end(&rank);
}

/* Stored larger or smaller than their values, too. */
static void
test_far_halves(void)
{
    check_far_halves("BF16", 20480);
    check_far_halves("F32", 8192);
    check_far_halves("F8_E4M3", 40960);
}

/* As it lies: of 128 rows for 4 heads and 2 of keys and of values each rank has 64. */
static void
test_fused(void)
{
    static const due dues[] = {
        { "self_attn.qkv_proj", BERTH_SLICING_ROWS, 64, 64, 0 },
        { "mlp.gate_up_proj", BERTH_SLICING_ROWS, 96, 96, 0 },
        { "self_attn.o_proj", BERTH_SLICING_COLUMNS, 32, 32, 0 },
        { "mlp.down_proj", BERTH_SLICING_COLUMNS, 48, 48, 0 },
    };

    check_family(make_family("Phi3ForCausalLM", "phi3",
                             "BF16 128x64 " LAYER "self_attn.qkv_proj.weight\n"
                             "BF16 192x64 " LAYER "mlp.gate_up_proj.weight\n"
                             "BF16 64x96 " LAYER "mlp.down_proj.weight\n"),
                 dues, 4);
}

/* -------------------------------------------------------------------- moved, edited */

/* They sleep, wake, and are streamed from where a move has written them. */
static void
check_moved(const char *folder)
{
    static const char *const away[] = { "model.layers.0.mlp.experts=disk" };
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
    options.pin_count = 1;
    moved_is_ok(&m, moved_move(&m, moved_plan(&m, &options)));
    moved_check(&m);
    CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    options.pin_count = 0;
    moved_is_ok(&m, moved_move(&m, moved_plan(&m, &options)));
    moved_check(&m);
    moved_free_plans();
    moved_end(&m);
}

static void
test_moved(void)
{
    stacked_sizes sizes = small;

    check_moved(stacked_make(&sizes));
    sizes.is_mxfp4 = true;
    check_moved(stacked_make(&sizes));
}

/* A plan of somebody's: parts are two or more, and those that the rank has. */
static void
test_plans_of_others(void)
{
    static const char parts[] = ", \"parts\": 2}";
    const char *const folder = make_family(
        "GraniteMoeForCausalLM", "granitemoe",
        QKV "BF16 3x192x64 " LAYER "block_sparse_moe.input_linear.weight\n"
            "BF16 3x64x96 " LAYER "block_sparse_moe.output_linear.weight\n"
            "BF16 3x64 " LAYER "block_sparse_moe.router.layer.weight\n");
    static const char *const wrong[] = { ", \"parts\": 0}", ", \"parts\": 1}",
                                         ", \"parts\": -2}", ", \"parts\": 4294967296}",
                                         ", \"parts\": true}", ", 5}" };
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    berth_error error;
    berth_plan *plan;
    planned p;

    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(stacked_parse(&p, parts, wrong[i], &plan, &error), BERTH_EFORMAT);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(stacked_parse(&p, parts, i == 0 ? "}" : ", \"parts\": 64}", &plan, &error),
                 BERTH_OK);
        CHECK_EQ(berth_plan_check(plan, p.context, p.checkpoint, "", NULL, NULL, &error),
                 BERTH_EINTEGRITY);
        CHECK_CONTAINS(error.message, "has a berth for another slice than its rank has");
        berth_plan_destroy(plan);
    }
    planned_end(&p);
}

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempt = { .folder = stacked_make(&small),
                               .max_memory = "0=64MiB,cpu=64MiB",
                               .words = "sim:64MiB",
                               .type = BERTH_ENCODING_NF4,
                               .rank = 1,
                               .ranks = 2 };

    CHECK_GT(fault_loop("load", loaded_once, &attempt).memory, 60);
    CHECK_GT(fault_loop_devices("load", loaded_once, &attempt).device, 10);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_pairs);
    T_RUN(test_encoded);
    T_RUN(test_stored_blocks);
    T_RUN(test_blocks_of_two_experts);
    T_RUN(test_mxfp4);
    T_RUN(test_groups_are_not_split);
    T_RUN(test_halves);
    T_RUN(test_stored_halves);
    T_RUN(test_time_of_far_halves);
    T_RUN(test_far_halves);
    T_RUN(test_fused);
    T_RUN(test_moved);
    T_RUN(test_plans_of_others);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
