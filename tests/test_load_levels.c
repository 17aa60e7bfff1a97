/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_levels.c - ranks of a model that is stored doubly quantized: slices of whole second
 * levels have both, others absmax that were recovered, and all of them the values of the whole.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/tables.h"
#include "placement/plan.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/sliced.h"
#include "tests/stacked.h"
#include "tests/t.h"
#include "tests/weights.h"

/* Of eight heads of 32 of it, 64 rows are half of what shares a second level. */
static const sliced_sizes narrow = {
    .type = "llama",
    .hidden = 128,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 64,
    .inner = 1024,
    .words = 64,
};

/* Half of its inner columns are whole second levels, row by row. */
static const sliced_sizes wide = {
    .type = "llama",
    .hidden = 128,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 64,
    .inner = 32768,
    .words = 64,
};

/* Of four ranks, 96 rows of keys are three quarters of what shares a second level. */
static const sliced_sizes quarters = {
    .type = "llama",
    .hidden = 128,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 96,
    .inner = 1024,
    .words = 64,
};

#define DOWN "model.layers.0.mlp.down_proj.weight"

static const char *
make(const sliced_sizes *sizes, int32_t encoding, uint32_t block_size)
{
    berth_plan_options options = loaded_options(NULL);

    options.type = encoding;
    options.double_quant = 1;
    options.block_size = block_size;
    return loaded_quantized(sliced_make(sizes), &options);
}

/* ------------------------------------------------------------------------- values */

/* What a berth has, decoded by what it says of itself; to be freed. */
static float *
values_of(const loaded *l, const berth_model_tensor *tensor)
{
    float *const values = weights_alloc(tensor->elements * sizeof(float));
    berth_values_options options;
    berth_values_buffers buffers;

    berth_values_options_init(&options);
    options.encoding = tensor->encoding;
    options.dtype = BERTH_F32;
    options.block_size = tensor->block_size;
    options.double_quant = tensor->is_double;
    options.shape = tensor->shape;
    options.rank = tensor->rank;
    berth_values_buffers_init(&buffers);
    buffers.codes = (void *)(uintptr_t)tensor->parts[0].memory;
    buffers.codes_bytes = tensor->parts[0].bytes;
    buffers.absmax = (void *)(uintptr_t)tensor->parts[1].memory;
    buffers.absmax_bytes = tensor->parts[1].bytes;
    buffers.offset = tensor->offset;
    if (tensor->is_double) {
        buffers.absmax2 = (void *)(uintptr_t)tensor->parts[2].memory;
        buffers.absmax2_bytes = tensor->parts[2].bytes;
    }
    CHECK_EQ(berth_values_dequantize(l->p.context, &options, &buffers, values,
                                     tensor->elements * sizeof(float), NULL),
             BERTH_OK);
    return values;
}

/* The slice's values are the whole's; returns how many levels it has. */
static uint32_t
check_values(const loaded *l, const loaded *whole, uint64_t number)
{
    berth_model_tensor tensor;
    berth_model_tensor all;
    berth_berth berth;
    char name[128];
    float *mine;
    float *its;

    CHECK_EQ(berth_plan_get_berth(l->p.plan, number, &berth, name, sizeof name), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    if (tensor.encoding == BERTH_ENCODING_NATIVE)
        return 0;
    CHECK_EQ(tensor.part_count, tensor.is_double ? 3 : 2);
    CHECK_EQ(tensor.parts[1].dtype, tensor.is_double ? BERTH_U8 : BERTH_F32);
    if (!tensor.is_double)
        CHECK(tensor.offset == 0);
    CHECK_EQ(berth_model_get_tensor(whole->model,
                                    berth_model_find(whole->model, name, strlen(name)), &all),
             BERTH_OK);
    CHECK_EQ(all.is_double, 1);
    mine = values_of(l, &tensor);
    its = values_of(whole, &all);
    for (uint64_t row = 0; row < tensor.shape[0]; row++) {
        const bool has_rows = berth.along == BERTH_SLICING_ROWS;
        const uint64_t at = has_rows ? (berth.first + row) * all.shape[1]
                                     : row * all.shape[1] + berth.first;

        if (!CHECK_MEM(mine + row * tensor.shape[1], its + at, tensor.shape[1] * sizeof(float))) {
            t_note("%s, row %d", name, (int)row);
            break;
        }
    }
    free(mine);
    free(its);
    return tensor.is_double ? 2 : 1;
}

/* Slices with so many levels, of one rank. */
typedef struct levels {
    uint32_t with[3];
} levels;

static levels
check_rank(const char *folder, uint32_t rank, uint32_t ranks, const loaded *whole)
{
    berth_plan_options options = sliced_options("cpu=64MiB", rank, ranks);
    levels found = { .with = { 0 } };
    berth_check_report report;
    loaded on_device;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    planned_check(&l.p);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s: %s", l.error.tensor, l.error.message);
    if (l.status != BERTH_OK) {
        loaded_end(&l);
        return found;
    }
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    options.max_memory = "0=64MiB,cpu=64MiB";
    loaded_begin(&on_device, folder, &options, "sim:64MiB");
    loaded_load(&on_device);
    CHECK_EQ(on_device.status, BERTH_OK);
    CHECK_EQ(loaded_see_checked(&on_device, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    CHECK_EQ(l.report.placed_bytes, on_device.report.placed_bytes);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        uint32_t here = 0;
        uint32_t there = 1;

        found.with[check_values(&l, whole, i)]++;
        CHECK_EQ(berth_model_digest(l.model, i, &here, NULL), BERTH_OK);
        CHECK_EQ(berth_model_digest(on_device.model, i, &there, NULL), BERTH_OK);
        CHECK_EQ(here, there);
    }
    loaded_end(&on_device);
    loaded_end(&l);
    return found;
}

static void
check_ranks(const char *folder, uint32_t ranks, uint32_t flat, uint32_t doubly)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    loaded whole;

    loaded_begin(&whole, folder, &options, NULL);
    loaded_load(&whole);
    T_REQUIRE(whole.status == BERTH_OK);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const levels found = check_rank(folder, rank, ranks, &whole);

        CHECK_EQ(found.with[1], flat);
        CHECK_EQ(found.with[2], doubly);
    }
    loaded_end(&whole);
}

/* Columns of two projections; rows of five are whole second levels. */
static void
test_columns(void)
{
    check_ranks(make(&sliced_blocks, BERTH_ENCODING_NF4, 64), 2, 2, 5);
    check_ranks(make(&sliced_blocks, BERTH_ENCODING_FP4, 64), 4, 2, 5);
    check_ranks(make(&narrow, BERTH_ENCODING_NF4, 128), 4, 5, 2);
}

/* What shares a second level lies together in columns, too: both levels are cut. */
static void
test_columns_of_whole_levels(void)
{
    check_ranks(make(&wide, BERTH_ENCODING_NF4, 64), 2, 4, 3);
}

/* Rows of keys and values are half of a second level, of queries and up a whole one. */
static void
test_rows(void)
{
    check_ranks(make(&narrow, BERTH_ENCODING_NF4, 64), 4, 4, 3);
    /* From the middle of one second level into the middle of the next one. */
    check_ranks(make(&quarters, BERTH_ENCODING_NF4, 64), 4, 5, 2);
}

/* What is asked for is what is stored: kept, for slices with one level, too. */
static void
test_asked_for(void)
{
    const char *const folder = make(&sliced_blocks, BERTH_ENCODING_NF4, 64);
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    berth_check_report report;
    berth_model_tensor tensor;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    loaded_begin(&l, folder, &options, NULL);
    planned_check(&l.p);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s: %s", l.error.tensor, l.error.message);
    CHECK_EQ(berth_model_get_tensor(l.model, berth_model_find(l.model, DOWN, strlen(DOWN)),
                                    &tensor),
             BERTH_OK);
    CHECK_EQ(tensor.is_double, 0);
    CHECK_EQ(tensor.parts[1].bytes, 256 * 256 / 64 * 4);
    CHECK_EQ(berth_plan_check(l.p.plan, l.p.context, l.p.checkpoint, "", NULL, NULL, &l.error),
             BERTH_OK);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    /* And a byte that is not what it should be is seen. */
    ((uint8_t *)(uintptr_t)tensor.parts[1].memory)[tensor.parts[1].bytes - 1] ^= 1;
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_EINTEGRITY);
    CHECK_EQ(report.mismatches, 1);
    loaded_end(&l);
    sliced_refuse(folder, sliced_options("cpu=64MiB", 1, 16), BERTH_EUNSUPPORTED,
                  "is stored in blocks that run along its rows", NULL);
}

/* A berth of the size that both levels of a flat slice would have: no load can fill it. */
static void
test_edited(void)
{
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    berthi_berth *berth;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    loaded_begin(&l, make(&sliced_blocks, BERTH_ENCODING_NF4, 64), &options, NULL);
    T_REQUIRE(l.p.plan != NULL);
    berth = &l.p.plan->berths[2]; /* of down_proj */
    CHECK_EQ(berth->bytes, 256 * 256 / 2 + 256 * 256 / 64 * 4);
    berth->bytes = 256 * 256 / 2 + 256 * 256 / 64 + 256;
    CHECK_EQ(berth_plan_check(l.p.plan, l.p.context, l.p.checkpoint, "", NULL, NULL, &l.error),
             BERTH_EINTEGRITY);
    CHECK_CONTAINS(l.error.message, "has a berth of another size");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    loaded_end(&l);
}

/* ---------------------------------------------------------------------------- size */

#define ROWS   UINT64_C(1024)
#define INNER  UINT64_C(65792)
#define BLOCKS (ROWS * INNER / 64)

/* A projection of so many blocks that a buffer of the ring has not the codes of all of them. */
static const char *
make_large(void)
{
    static const char state[] =
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
        "\"shape\": [1024, 65792], \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
        "\"nested_offset\": 0.25}";
    const uint64_t packed[2] = { ROWS * INNER / 2, 1 };
    const uint64_t blocks = BLOCKS;
    const uint64_t groups = BLOCKS / 256;
    const uint64_t codes = 16;
    const uint64_t map = 256;
    const uint64_t length = sizeof state - 1;
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    uint8_t *const absmax = weights_alloc(blocks);
    float *const absmax2 = weights_alloc(groups * sizeof *absmax2);
    uint64_t seed = 7;

    for (uint64_t i = 0; i < blocks; i++)
        absmax[i] = (uint8_t)weights_random(&seed);
    for (uint64_t i = 0; i < groups; i++)
        absmax2[i] = 0.5f + (float)i;
    fixture_add(b, DOWN, "U8", 2, packed, NULL);
    fixture_add(b, DOWN ".absmax", "U8", 1, &blocks, absmax);
    fixture_add(b, DOWN ".nested_absmax", "F32", 1, &groups, absmax2);
    fixture_add(b, DOWN ".nested_quant_map", "F32", 1, &map, berthi_signed_map);
    fixture_add(b, DOWN ".quant_map", "F32", 1, &codes, berthi_nf4_values);
    fixture_add(b, DOWN ".quant_state.bitsandbytes__nf4", "U8", 1, &length, state);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 65792, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": 8, \"vocab_size\": 64}");
    free(absmax);
    free(absmax2);
    return folder;
}

static void
test_pieces(void)
{
    const char *const folder = make_large();
    berth_plan_options options = sliced_options("cpu=1GiB", 1, 2);
    berth_check_report report;
    berth_model_tensor tensor;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    planned_check(&l.p);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s: %s", l.error.tensor, l.error.message);
    CHECK_EQ(l.report.placed_bytes, ROWS * INNER / 4 + BLOCKS / 2);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    /* Rows of codes, nearly whole, are not all: both levels are, too. */
    CHECK_GT(report.bytes_read, ROWS * INNER / 2);
    CHECK_EQ(berth_model_get_tensor(l.model, 0, &tensor), BERTH_OK);
    CHECK_EQ(tensor.parts[1].bytes, BLOCKS / 2 * 4);
    loaded_end(&l);
}

/* -------------------------------------------------------------------------- places */

/* What is recovered is not streamed from the disk; whole second levels are. */
static void
test_disk(void)
{
    const char *const pins[] = { "model.layers.0.mlp.up_proj=disk",
                                 "model.layers.0.self_attn.k_proj=disk" };
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    const char *const folder = make(&narrow, BERTH_ENCODING_NF4, 64);
    loaded l;

    options.pins = pins;
    for (options.pin_count = 1; options.pin_count <= 2; options.pin_count++) {
        loaded_begin(&l, folder, &options, "sim:64MiB");
        l.options.offload_dir = fixture_folder();
        loaded_load(&l);
        CHECK_EQ(l.status, options.pin_count == 1 ? BERTH_OK : BERTH_EUNSUPPORTED);
        if (options.pin_count == 2) {
            CHECK_CONTAINS(l.error.message, "cut where blocks share a second level");
            CHECK_STR(l.error.tensor, "model.layers.0.self_attn.k_proj.weight");
        }
        loaded_end(&l);
    }
}

/* Experts of a stack, each half of a second level, stay together: the disk has no other form. */
static void
test_stacks(void)
{
    const char *const source = stacked_make(&stacked_small);

    for (int32_t is_double = 0; is_double < 2; is_double++) {
        berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
        berth_plan_options convert = loaded_options(NULL);
        planned p;

        convert.type = BERTH_ENCODING_NF4;
        convert.takes_experts = 1;
        convert.double_quant = is_double;
        planned_begin(&p, loaded_quantized(source, &convert), &options);
        CHECK_EQ(p.status, BERTH_OK);
        CHECK_EQ(p.summary.stacks, is_double ? BERTH_STACKS_WHOLE : BERTH_STACKS_APART);
        planned_end(&p);
    }
}

/* Asleep, they are held: the file has them otherwise. */
static void
test_sleep(void)
{
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB", 1, 4);
    berth_check_report report;
    moved m;

    moved_begin(&m, make(&narrow, BERTH_ENCODING_NF4, 64), &options, "sim:64MiB");
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_GT(m.report.read_bytes, 0);
    CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    moved_end(&m);
}

/* ---------------------------------------------------------------- everything fails */

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempt = { .folder = make(&narrow, BERTH_ENCODING_NF4, 64),
                               .max_memory = "0=64MiB,cpu=64MiB",
                               .words = "sim:64MiB",
                               .rank = 1,
                               .ranks = 4 };

    CHECK_GT(fault_loop("load", loaded_once, &attempt).system, 20);
    CHECK_GT(fault_loop_devices("load", loaded_once, &attempt).device, 10);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_columns);
    T_RUN(test_columns_of_whole_levels);
    T_RUN(test_rows);
    T_RUN(test_asked_for);
    T_RUN(test_edited);
    T_RUN(test_pieces);
    T_RUN(test_disk);
    T_RUN(test_stacks);
    T_RUN(test_sleep);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
