/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_slices.c - models that are planned and loaded as the ranks of tensor
 * parallelism need them.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/sliced.h"
#include "tests/t.h"
#include "tests/weights.h"

#define MIB (UINT64_C(1) << 20)
#define NORM "model.norm.weight"

/* -------------------------------------------------------------------------- ranks */

static void
test_ranks_make_the_whole(void)
{
    const char *const dense = sliced_make(&sliced_small);
    const char *const experts = sliced_make(&sliced_mixture);

    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        sliced_check_ranks(dense, ranks, false);
        sliced_check_ranks(dense, ranks, true);
    }
    sliced_check_ranks(experts, 2, false);
    sliced_check_ranks(experts, 4, true);
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
        berth_plan_options options = sliced_options("cpu=256MiB", rank, 4);

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

/* What lies between columns is nothing that was placed, of a load that fails either. */
static void
test_placed_before_a_failure(void)
{
    const char *const folder = planned_llama(1, false);
    berth_plan_options options = sliced_options("cpu=256MiB", 0, 8);
    berth_tensor norm;
    uint64_t placed;
    loaded l;

    (void)loaded_manifest(folder);
    loaded_begin(&l, folder, &options, NULL);
    CHECK_EQ(berth_checkpoint_tensor(
                 l.p.checkpoint, berth_checkpoint_find(l.p.checkpoint, NORM, strlen(NORM)), &norm),
             BERTH_OK);
    loaded_end(&l);
    fixture_flip(fixture_format("%s/model.safetensors", folder), norm.file_offset, 1);
    loaded_begin(&l, folder, &options, NULL);
    l.options.ring_bytes = 16 * MIB;
    l.options.workers = 1;
    l.options.verify = BERTH_LOAD_VERIFY_NONE;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    placed = l.report.placed_bytes;
    loaded_unload(&l);
    l.options.verify = BERTH_LOAD_VERIFY_AUTO;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_STR(l.error.tensor, NORM);
    CHECK_GT(l.report.placed_bytes, placed / 2);
    CHECK_LT(l.report.placed_bytes, placed);
    loaded_end(&l);
}

/* ------------------------------------------------------------------------- encoded */

static void
test_slices_are_encoded(void)
{
    const char *const folder = sliced_make(&sliced_small);

    for (uint32_t i = 0; i < 2; i++) {
        sliced_check_type(folder, BERTH_ENCODING_NF4, false, i == 1);
        sliced_check_type(folder, BERTH_ENCODING_NF4, true, i == 1);
        sliced_check_type(folder, BERTH_ENCODING_FP4, false, i == 1);
        sliced_check_type(folder, BERTH_ENCODING_INT8, false, i == 1);
    }
}

/* Rows that begin with a block are encoded as they are in the whole weight. */
static void
test_rows_have_the_bits_of_the_whole(void)
{
    const uint64_t shape[2] = { 192, 128 };
    berth_plan_options options = sliced_options("cpu=64MiB", 3, 8);
    berth_values_options whole;
    berth_model_tensor tensor;
    uint64_t number;
    sliced_encoded e;
    loaded l;
    sliced_piece p;

    options.type = BERTH_ENCODING_NF4;
    loaded_begin(&l, sliced_make(&sliced_small), &options, NULL);
    loaded_load(&l);
    number = berth_model_find(l.model, "model.layers.0.self_attn.q_proj.weight", 38);
    CHECK_EQ(berth_model_get_tensor(l.model, number, &tensor), BERTH_OK);
    CHECK_EQ(tensor.shape[0], 24);
    CHECK_EQ(tensor.shape[1], 128);
    sliced_begin(&p, &l, number);
    CHECK_EQ(p.berth.first, 72);
    berth_values_options_init(&whole);
    whole.encoding = BERTH_ENCODING_NF4;
    whole.shape = shape;
    whole.rank = 2;
    sliced_encode(&e, l.p.context, &whole, p.whole, p.tensor.bytes);
    CHECK_MEM(tensor.parts[0].memory, sliced_part(&e, BERTH_ROLE_CODES) + 72 * 64, 24 * 64);
    CHECK_MEM(tensor.parts[1].memory, sliced_part(&e, BERTH_ROLE_ABSMAX) + 72 * 8, 24 * 8);
    sliced_encoded_end(&e);
    sliced_end(&p);
    loaded_end(&l);
}

/* ---------------------------------------------------------------- stored quantized */

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
    berth_plan_options options = sliced_options("cpu=64MiB", rank, 4);
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

/* Rows and columns of whole blocks. */
static void
test_stored_columns(void)
{
    const char *const source = sliced_make(&sliced_blocks);
    berth_plan_options convert = loaded_options(NULL);
    const char *folder;

    convert.type = BERTH_ENCODING_NF4;
    folder = loaded_quantized(source, &convert);
    for (uint32_t rank = 0; rank < 4; rank++) {
        sliced_check_stored(source, folder, rank, NULL);
        sliced_check_stored(source, folder, rank, "sim:64MiB");
    }
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
        folder = loaded_quantized(sliced_make(&sliced_blocks), &convert);
        for (uint32_t rank = 0; rank < 4; rank++)
            check_stored(folder, rank, is_double != 0);
    }
    convert.keep_count = 0;
    convert.double_quant = 0;
    finer = loaded_quantized(sliced_make(&sliced_blocks), &convert);
    sliced_refuse(finer, sliced_options("cpu=64MiB", 1, 8), BERTH_EUNSUPPORTED,
                  "is stored in blocks that run along its rows", NULL);
    /* What is stored is not encoded once more. */
    convert = sliced_options("cpu=64MiB", 1, 2);
    convert.type = BERTH_ENCODING_INT8;
    sliced_refuse(folder, convert, BERTH_EUNSUPPORTED,
                  "slices of it are neither decoded nor encoded anew", NULL);
}

/* Rows of int8 have their own maxima, and columns all of them. */
static void
test_stored_rows(void)
{
    berth_plan_options convert = loaded_options(NULL);
    const char *folder;

    convert.type = BERTH_ENCODING_INT8;
    folder = loaded_quantized(sliced_make(&sliced_blocks), &convert);
    for (uint32_t rank = 0; rank < 4; rank++) {
        berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB", rank, 4);
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

/* ----------------------------------------------------------------- plans of others */

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
see_refused(loaded *l, const char *from, const char *to, const char *words)
{
    berth_plan *const plan = changed(l, from, to);
    berth_plan *const before = l->p.plan;

    T_REQUIRE(plan != NULL);
    CHECK_EQ(berth_plan_check(plan, l->p.context, l->p.checkpoint, "", NULL, NULL,
                              &l->error),
             BERTH_EINTEGRITY);
    CHECK_CONTAINS(l->error.message, words);
    l->p.plan = plan;
    loaded_load(l);
    CHECK_EQ(l->status, BERTH_EINTEGRITY);
    CHECK_CONTAINS(l->error.message, words);
    l->p.plan = before;
    berth_plan_destroy(plan);
}

static void
test_plans_of_others(void)
{
    static const char other[] = "has a berth for another slice than its rank has";
    berth_plan_options options = sliced_options("cpu=64MiB", 1, 2);
    loaded l;

    loaded_begin(&l, sliced_make(&sliced_small), &options, NULL);
    see_refused(&l, "\"of\": \"rows\", \"first\": 176, \"count\": 176",
                "\"of\": \"rows\", \"first\": 177, \"count\": 176", other);
    see_refused(&l, "\"of\": \"rows\", \"first\": 176, \"count\": 176",
                "\"of\": \"rows\", \"first\": 0, \"count\": 175", other);
    see_refused(&l, "\"of\": \"columns\", \"first\": 176, \"count\": 176",
                "\"of\": \"columns\", \"first\": 353, \"count\": 0", other);
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 2, \"ranks\": 2") == NULL);
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 0, \"ranks\": 1") == NULL);
    CHECK(changed(&l, "\"rank\": 1, \"ranks\": 2", "\"rank\": 1, \"ranks\": 1025") == NULL);
    CHECK(changed(&l, "\"of\": \"rows\"", "\"of\": \"all\"") == NULL);
    CHECK(changed(&l, "\"of\": \"rows\"", "\"of\": \"some\"") == NULL);
    CHECK(changed(&l, "  \"parallel\": {\"rank\": 1, \"ranks\": 2},\n", "") == NULL);
    loaded_end(&l);
}

/* ---------------------------------------------------------------- everything fails */

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempts[] = {
        { .folder = sliced_make(&sliced_mixture),
          .max_memory = "cpu=64MiB",
          .type = BERTH_ENCODING_NF4,
          .rank = 1,
          .ranks = 2 },
        { .folder = sliced_make(&sliced_mixture),
          .max_memory = "0=64MiB,cpu=64MiB",
          .words = "sim:64MiB",
          .rank = 1,
          .ranks = 2 },
    };

    for (uint32_t i = 0; i < 2; i++)
        CHECK_GT(fault_loop("load", loaded_once, &attempts[i]).memory, 60);
    CHECK_GT(fault_loop_devices("load", loaded_once, &attempts[1]).device, 10);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ranks_make_the_whole);
    T_RUN(test_rows_are_read_once);
    T_RUN(test_placed_before_a_failure);
    T_RUN(test_slices_are_encoded);
    T_RUN(test_rows_have_the_bits_of_the_whole);
    T_RUN(test_stored_columns);
    T_RUN(test_stored_blocks);
    T_RUN(test_stored_rows);
    T_RUN(test_plans_of_others);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
