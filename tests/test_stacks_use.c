/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stacks_use.c - models whose stacked experts have berths of their own: loaded, leased,
 * verified and moved.
 */
#include <stdlib.h>
#include <string.h>

#include "placement/plan.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/stacked.h"
#include "tests/t.h"

#define EXPERTS 8u
#define MIB     (UINT64_C(1) << 20)

static const char gate_up[] = "model.layers.1.mlp.experts.gate_up_proj";
static const char down[] = "model.layers.1.mlp.experts.down_proj";

static void
require_loaded(loaded *l)
{
    loaded_load(l);
    if (!CHECK_EQ(l->status, BERTH_OK)) {
        t_note("%s: %s", l->error.tensor, l->error.message);
        abort();
    }
}

/* ------------------------------------------------------------------------- loading */

/* Together the experts are the stack, byte for byte, and each is read once. */
static void
check_loaded(const char *memory, const char *words)
{
    berth_plan_options options = stacked_options(memory, BERTH_STACKS_APART);
    uint8_t *const whole = calloc(1, EXPERTS * 64 * 128 * 2);
    berth_check_report report;
    uint64_t bytes = 0;
    loaded l;

    loaded_begin(&l, stacked_make(&stacked_small), &options, words);
    planned_check(&l.p);
    require_loaded(&l);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++)
        bytes += sliced_check(&l, i, 1, whole);
    CHECK_EQ(l.report.placed_bytes, bytes);
    CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
    CHECK_LT(l.report.bytes_read, bytes + 64 * 1024);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    loaded_end(&l);
    free(whole);
}

static int
note_total(void *user, const berth_progress *progress)
{
    *(uint64_t *)user = progress->total;
    return 0;
}

/* A check reads each stack once, and says so before. */
static void
test_checks_count_stacks_once(void)
{
    uint64_t totals[3] = { 0 };
    loaded l;

    for (int32_t stacks = BERTH_STACKS_WHOLE; stacks <= BERTH_STACKS_APART; stacks++) {
        berth_plan_options options = stacked_options("cpu=64MiB", stacks);
        berth_check_options check;
        berth_job *job;

        loaded_begin(&l, stacked_make(&stacked_small), &options, NULL);
        require_loaded(&l);
        berth_check_options_init(&check);
        check.progress = note_total;
        check.progress_user = &totals[stacks];
        CHECK_EQ(berth_check_start(l.model, &check, &job, NULL), BERTH_OK);
        CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
        loaded_end(&l);
    }
    CHECK_GT(totals[BERTH_STACKS_WHOLE], 0);
    CHECK_EQ(totals[BERTH_STACKS_APART], totals[BERTH_STACKS_WHOLE]);
}

static void
test_experts_are_loaded(void)
{
    check_loaded("cpu=64MiB", NULL);
    check_loaded("0=64MiB,cpu=64MiB", "sim:64MiB");
}

static void
test_experts_are_found(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    const size_t length = strlen(down);
    loaded l;

    loaded_begin(&l, stacked_make(&stacked_small), &options, NULL);
    require_loaded(&l);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        CHECK_EQ(berth_model_find_expert(l.model, down, length, e),
                 stacked_berth(&l.p, 1, "down_proj", e));
        CHECK_EQ(berth_model_find_expert(l.model, gate_up, strlen(gate_up), e),
                 stacked_berth(&l.p, 1, "gate_up_proj", e));
    }
    CHECK_EQ(berth_model_find(l.model, down, length), stacked_berth(&l.p, 1, "down_proj", 0));
    CHECK_EQ(berth_model_find_expert(l.model, down, length, EXPERTS), BERTH_NO_TENSOR);
    CHECK_EQ(berth_model_find_expert(l.model, down, length - 1, 0), BERTH_NO_TENSOR);
    CHECK_EQ(berth_model_find_expert(l.model, "model.norm.weight", 17, 0), BERTH_NO_TENSOR);
    loaded_end(&l);
    /* Whole, it is none of them; stored alone, the name says which it is. */
    options.stacks = BERTH_STACKS_WHOLE;
    loaded_begin(&l, stacked_make(&stacked_small), &options, NULL);
    require_loaded(&l);
    CHECK_EQ(berth_model_find_expert(l.model, down, length, 0), BERTH_NO_TENSOR);
    loaded_end(&l);
    options = sliced_options("cpu=64MiB", 0, 0);
    loaded_begin(&l, sliced_make(&sliced_mixture), &options, NULL);
    require_loaded(&l);
    CHECK_EQ(berth_model_find_expert(
                 l.model, "model.layers.0.block_sparse_moe.experts.2.w1.weight", 51, 2),
             berth_model_find(l.model,
                              "model.layers.0.block_sparse_moe.experts.2.w1.weight", 51));
    CHECK_EQ(berth_model_find_expert(
                 l.model, "model.layers.0.block_sparse_moe.experts.2.w1.weight", 51, 1),
             BERTH_NO_TENSOR);
    loaded_end(&l);
}

/* Each is encoded as if it were stored alone. */
static void
test_experts_are_encoded(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        const int32_t type = i == 2 ? BERTH_ENCODING_FP4 : BERTH_ENCODING_NF4;
        berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
        loaded l;

        options.type = type;
        options.double_quant = i == 1;
        options.takes_experts = 1;
        loaded_begin(&l, stacked_make(&stacked_small), &options, NULL);
        CHECK_EQ(l.p.summary.stacks, BERTH_STACKS_APART);
        require_loaded(&l);
        for (uint64_t k = 0; k < l.p.summary.berth_count; k++)
            sliced_check_encoded(&l, k, type, i == 1);
        CHECK_GT(l.report.quantized_bytes, 3 * EXPERTS * 6000);
        loaded_end(&l);
    }
}

/* ------------------------------------------------------------------ stored quantized */

#define STORED "model.layers.1.mlp.experts.up.weight"

/* A stack whose name allows to store it quantized, of experts of [rows, 128]. */
static const char *
make_stored(bool is_double, uint64_t rows)
{
    berth_plan_options convert = loaded_options(NULL);
    stacked_sizes sizes = stacked_small;

    sizes.extra = STORED;
    sizes.extra_shape[0] = EXPERTS;
    sizes.extra_shape[1] = rows;
    sizes.extra_shape[2] = 128;
    convert.type = BERTH_ENCODING_NF4;
    convert.double_quant = is_double;
    convert.takes_experts = 1;
    convert.only = (const char *const[]){ STORED };
    convert.only_count = 1;
    return loaded_quantized(stacked_make(&sizes), &convert);
}

/* The part of each expert is its share of the stored tensor. */
static void
check_part(const loaded *l, const berth_model_part *part, uint32_t expert, const char *name)
{
    const uint64_t number = berth_checkpoint_find(l->p.checkpoint, name, strlen(name));
    berth_tensor stored;
    uint8_t *bytes;

    CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, number, &stored), BERTH_OK);
    CHECK_EQ(part->bytes, stored.bytes / EXPERTS);
    bytes = malloc(stored.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, number, 0, UINT64_MAX, bytes,
                                   stored.bytes, NULL),
             BERTH_OK);
    if (CHECK(part->memory != NULL))
        CHECK_MEM(part->memory, bytes + expert * (size_t)part->bytes, (size_t)part->bytes);
    free(bytes);
}

/* With a second level where an expert is 256 whole blocks. */
static void
test_stored_stacks_are_cut_between_blocks(void)
{
    for (uint32_t is_double = 0; is_double < 2; is_double++) {
        const uint64_t rows = is_double ? 128 : 64;
        berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
        berth_check_report report;
        loaded l;

        loaded_begin(&l, make_stored(is_double, rows), &options, NULL);
        planned_check(&l.p);
        require_loaded(&l);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            const uint64_t number =
                berth_model_find_expert(l.model, STORED, strlen(STORED), e);
            berth_model_tensor tensor;

            CHECK_EQ(berth_model_get_tensor(l.model, number, &tensor), BERTH_OK);
            CHECK_EQ(tensor.encoding, BERTH_ENCODING_NF4);
            CHECK_EQ(tensor.rank, 3);
            CHECK_EQ(tensor.shape[0], 1);
            CHECK_EQ(tensor.part_count, is_double ? 3 : 2);
            check_part(&l, &tensor.parts[0], e, STORED);
            check_part(&l, &tensor.parts[1], e, STORED ".absmax");
            if (is_double)
                check_part(&l, &tensor.parts[2], e, STORED ".nested_absmax");
        }
        loaded_end(&l);
    }
}

/* The stack that cannot be cut is whole, beside others that are taken apart. */
static void
check_stays_whole(const char *folder, berth_plan_options *options)
{
    uint64_t count = 0;
    loaded l;

    loaded_begin(&l, folder, options, NULL);
    CHECK_EQ(l.p.summary.stacks, BERTH_STACKS_APART);
    planned_check(&l.p);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        berth_berth berth;
        char name[256];

        CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, name, sizeof name), BERTH_OK);
        if (strcmp(name, STORED) == 0) {
            CHECK_EQ(berth.along, BERTH_SLICING_NONE);
            count++;
        }
    }
    CHECK_EQ(count, 1);
    require_loaded(&l);
    CHECK_EQ(berth_model_find_expert(l.model, STORED, strlen(STORED), 0), BERTH_NO_TENSOR);
    CHECK(berth_model_find(l.model, STORED, strlen(STORED)) != BERTH_NO_TENSOR);
    loaded_end(&l);
}

static void
test_stored_stacks_that_stay_whole(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);

    /* An expert is half of what a second level is for. */
    check_stays_whole(make_stored(true, 64), &options);
    /* What is stored quantized is not encoded anew in parts. */
    options.type = BERTH_ENCODING_FP4;
    options.takes_experts = 1;
    check_stays_whole(make_stored(false, 64), &options);
}

/* Each part of an expert is its share of the tensor that holds it. */
static void
check_shares(const loaded *l, const char *name, uint32_t expert)
{
    static const char *const ends[] = { "_blocks", "_scales" };
    const char *const blocks = fixture_format("%s_blocks", name);
    const uint64_t number =
        berth_model_find_expert(l->model, blocks, strlen(blocks), expert);
    berth_model_tensor tensor;

    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    CHECK_EQ(tensor.encoding, BERTH_ENCODING_MXFP4);
    CHECK_EQ(tensor.shape[0], 1);
    CHECK_EQ(tensor.part_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        check_part(l, &tensor.parts[i], expert, fixture_format("%s%s", name, ends[i]));
}

/* gpt-oss as it is published: resident, on a device, from the disk. */
static void
check_mxfp4(const char *memory, const char *words)
{
    berth_plan_options options = stacked_options(memory, BERTH_STACKS_APART);
    stacked_sizes sizes = stacked_small;
    berth_check_report report;
    loaded l;

    sizes.is_mxfp4 = true;
    loaded_begin(&l, stacked_make(&sizes), &options, words);
    CHECK_EQ(l.p.summary.stacks, BERTH_STACKS_APART);
    CHECK_EQ(l.p.summary.berth_count, 3 + 3 * (8 + 2 * EXPERTS));
    CHECK_EQ(berth_plan_check(l.p.plan, l.p.context, l.p.checkpoint, memory, NULL, NULL,
                              NULL),
             BERTH_OK);
    require_loaded(&l);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.mismatches, 0);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        const uint32_t layer = planned_layer(&l.p, "model.layers.1");

        CHECK_EQ(berth_experts_acquire(l.model, layer, &e, 1, NULL, NULL), BERTH_OK);
        check_shares(&l, gate_up, e);
        check_shares(&l, down, e);
        CHECK_EQ(berth_experts_release(l.model, layer, &e, 1, NULL, NULL), BERTH_OK);
    }
    loaded_end(&l);
}

static void
test_experts_in_mxfp4(void)
{
    check_mxfp4("cpu=64MiB", NULL);
    check_mxfp4("0=200KiB,cpu=64MiB", "cpu");
    check_mxfp4("cpu=200KiB,disk=inf", NULL);
}

/* Scales that are none of each expert: the weight is no stack that can be cut. */
static void
test_scales_of_all_experts(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    const char *const folder = fixture_folder();
    planned p;

    (void)fixture_file(fixture_format("%s/model.safetensors", folder),
                       "F8_E4M3 8x64x128 model.layers.0.mlp.experts.up.weight\n"
                       "F32 1 model.layers.0.mlp.experts.up.weight_scale\n"
                       "F8_E4M3 8x256x128 model.layers.0.mlp.experts.down.weight\n"
                       "F32 8x2x1 model.layers.0.mlp.experts.down.weight_scale_inv\n"
                       "F8_E4M3 8x32x128 model.layers.0.mlp.experts.gate.weight\n"
                       "F32 - model.layers.0.mlp.experts.gate.weight_scale\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "
                 "\"num_hidden_layers\": 1, \"quantization_config\": {\"quant_method\": "
                 "\"fp8\"}}");
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.summary.berth_count, 1 + 8 + 1);
    planned_end(&p);
}

/* --------------------------------------------------------------------------- leases */

/* A leased expert's bytes in both stacks are those of the checkpoint. */
static void
check_expert(const loaded *l, uint32_t layer, uint32_t expert)
{
    static const char *const stacks[] = { "down_proj", "gate_up_proj" };

    for (uint32_t i = 0; i < 2; i++) {
        const char *const name =
            fixture_format("model.layers.%u.mlp.experts.%s", layer, stacks[i]);
        const uint64_t number =
            berth_model_find_expert(l->model, name, strlen(name), expert);
        berth_model_tensor tensor;
        sliced_piece p;

        CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
        sliced_begin(&p, l, number);
        CHECK_EQ(p.berth.first, expert);
        CHECK_EQ(tensor.parts[0].bytes, p.size);
        if (CHECK(tensor.parts[0].memory != NULL))
            CHECK_MEM(tensor.parts[0].memory, p.bytes, (size_t)p.size);
        sliced_end(&p);
    }
}

static void
lease_experts(const char *memory, const char *words)
{
    berth_plan_options options = stacked_options(memory, BERTH_STACKS_APART);
    berth_expert_counts counts;
    uint64_t random = 7;
    uint64_t away = 0;
    loaded l;

    loaded_begin(&l, stacked_make(&stacked_small), &options, words);
    CHECK_EQ(l.p.status, BERTH_OK);
    planned_check(&l.p);
    require_loaded(&l);
    for (uint32_t i = 0; i < 60; i++) {
        const uint32_t number = i % 3;
        const uint32_t layer =
            planned_layer(&l.p, fixture_format("model.layers.%u", number));
        uint32_t experts[2];
        berth_error error;

        random = random * 6364136223846793005u + 1442695040888963407u;
        experts[0] = (uint32_t)(random >> 40) % EXPERTS;
        experts[1] = (experts[0] + 1 + (uint32_t)(random >> 50) % (EXPERTS - 1)) % EXPERTS;
        CHECK_EQ(berth_experts_prefetch(l.model, layer, experts, 2, &error), BERTH_OK);
        if (!CHECK_EQ(berth_experts_acquire(l.model, layer, experts, 2, NULL, &error),
                      BERTH_OK)) {
            t_note("%s", error.message);
            break;
        }
        check_expert(&l, number, experts[0]);
        check_expert(&l, number, experts[1]);
        CHECK_EQ(berth_experts_release(l.model, layer, experts, 2, NULL, &error), BERTH_OK);
        experts[0] = EXPERTS;
        CHECK_EQ(berth_experts_acquire(l.model, layer, experts, 1, NULL, &error),
                 BERTH_EINVAL);
        berth_experts_count(l.model, layer, &counts);
        away += counts.away;
    }
    CHECK_GT(away, 0);
    loaded_end(&l);
}

static void
test_experts_are_leased(void)
{
    lease_experts("0=350KiB,cpu=64MiB", "cpu");
    lease_experts("cpu=400KiB,disk=inf", NULL);
}

/* ------------------------------------------------------------------------ verifying */

#define DIVIDED "0=350KiB,cpu=400KiB,disk=inf" /* experts of each stack */

static berth_status
load_verified(loaded *l, const char *folder, const char *memory, int32_t verify)
{
    berth_plan_options options = stacked_options(memory, BERTH_STACKS_APART);

    loaded_begin(l, folder, &options, memory[0] == '0' ? "cpu" : NULL);
    l->options.verify = verify;
    loaded_load(l);
    return l->status;
}

/* All experts of a stack are read: together they are what the manifest has a digest of. */
static void
test_stacks_are_verified(void)
{
    const char *const folder = stacked_make(&stacked_small);
    const char *const file = fixture_format("%s/model.safetensors", folder);
    uint64_t last = 0;
    loaded l;

    (void)loaded_manifest(folder);
    CHECK_EQ(load_verified(&l, folder, "cpu=64MiB", BERTH_LOAD_VERIFY_REQUIRE), BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, 3 + 3 * 10);
    loaded_end(&l);
    /* Some stay on the disk: what is read of the stack is not all that is promised. */
    CHECK_EQ(load_verified(&l, folder, DIVIDED, BERTH_LOAD_VERIFY_REQUIRE),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.tensor, "mlp.experts.");
    loaded_end(&l);
    CHECK_EQ(load_verified(&l, folder, DIVIDED, BERTH_LOAD_VERIFY_AUTO), BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, 3 + 3 * 8);
    CHECK_EQ(l.report.unverified_tensors, 3 * 2);
    loaded_end(&l);
    /* All of them stay there: nothing is read, nothing to be verified is left out. */
    CHECK_EQ(load_verified(&l, folder, "cpu=400KiB,disk=inf", BERTH_LOAD_VERIFY_REQUIRE),
             BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, 3 + 3 * 8);
    CHECK_EQ(l.report.unverified_tensors, 0);
    loaded_end(&l);
    CHECK_EQ(load_verified(&l, folder, "cpu=64MiB", BERTH_LOAD_VERIFY_REQUIRE), BERTH_OK);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        berth_berth berth;
        berth_tensor tensor;

        CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, NULL, 0), BERTH_OK);
        CHECK_EQ(berth_checkpoint_tensor(l.p.checkpoint, berth.tensor, &tensor), BERTH_OK);
        if (berth.is_expert && berth.first == EXPERTS - 1) /* its last byte */
            last = tensor.file_offset + tensor.bytes - 1;
    }
    loaded_end(&l);
    fixture_flip(file, last, 1);
    CHECK_EQ(load_verified(&l, folder, "cpu=64MiB", BERTH_LOAD_VERIFY_REQUIRE),
             BERTH_EINTEGRITY);
    CHECK_CONTAINS(l.error.tensor, "mlp.experts.");
    loaded_end(&l);
}

/* --------------------------------------------------------------------------- moving */

/* Bytes that are on the disk by one plan, and in memory by the other. */
static uint64_t
promoted_bytes(const berth_plan *from, const berth_plan *to)
{
    berth_plan_summary summary;
    uint64_t bytes = 0;

    berth_plan_get(from, &summary);
    for (uint64_t i = 0; i < summary.berth_count; i++) {
        berth_berth before, after;
        berth_plan_tier old, new;

        CHECK_EQ(berth_plan_get_berth(from, i, &before, NULL, 0), BERTH_OK);
        CHECK_EQ(berth_plan_get_berth(to, i, &after, NULL, 0), BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(from, before.tier, &old), BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(to, after.tier, &new), BERTH_OK);
        if (old.kind == BERTH_TIER_DISK && new.kind != BERTH_TIER_DISK)
            bytes += before.bytes;
    }
    return bytes;
}

/* To the disk and back, asleep and awake; every byte after each. */
static void
test_experts_move(void)
{
    static const char *const memories[] = {
        "cpu=400KiB,disk=inf", "cpu=64MiB,disk=inf", "cpu=500KiB,disk=inf",
        "cpu=64MiB,disk=inf"
    };
    berth_plan_options options = stacked_options("cpu=64MiB,disk=inf", BERTH_STACKS_APART);
    const berth_plan *before;
    berth_plan *plan;
    moved m;

    moved_begin(&m, stacked_make(&stacked_small), &options, NULL);
    moved_check(&m);
    before = m.l.p.plan;
    for (uint32_t i = 0; i < 4; i++) {
        options.max_memory = memories[i];
        plan = moved_plan(&m, &options);
        if (plan == NULL || !moved_is_ok(&m, moved_move(&m, plan)))
            break;
        CHECK_EQ(m.report.read_bytes, promoted_bytes(before, plan));
        CHECK_EQ(m.report.read_bytes > 0, i % 2 == 1);
        before = plan;
        moved_check(&m);
        if (moved_is_ok(&m, moved_sleep(&m)) && moved_is_ok(&m, moved_wake(&m)))
            moved_check(&m);
    }
    m.options.discards = true;
    if (moved_is_ok(&m, moved_sleep(&m)) && moved_is_ok(&m, moved_wake(&m)))
        moved_check(&m);
    CHECK_GT(m.report.read_bytes, 0);
    /* A stack that is apart does not become whole. */
    options.stacks = BERTH_STACKS_WHOLE;
    plan = moved_plan(&m, &options);
    CHECK_EQ(moved_move(&m, plan), BERTH_EINVAL);
    if (moved_is_ok(&m, moved_move(&m, m.l.p.plan)))
        moved_check(&m);
    moved_free_plans();
    moved_end(&m);
}

/* Nor does a plan that only says of them that they are apart. */
static void
test_stacks_do_not_change_by_a_word(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_WHOLE);
    berth_plan *plan = NULL;
    berth_error error;
    moved m;

    moved_begin(&m, stacked_make(&stacked_small), &options, NULL);
    CHECK_EQ(stacked_parse(&m.l.p, "\"proved\": true",
                           "\"proved\": true, \"stacks_apart\": true", &plan, &error),
             BERTH_OK);
    CHECK_EQ(moved_move(&m, plan), BERTH_EINVAL);
    CHECK_CONTAINS(m.error.message, "wants other encodings, layers or stacks");
    moved_check(&m);
    berth_plan_destroy(plan);
    moved_end(&m);
}

/* -------------------------------------------------------------------- plans of others */

#define SLICE "\"slice\": {\"of\": \"rows\", \"first\": "

/* How such a plan is loaded, whatever is verified. */
static berth_status
load_plan(const planned *p, const berth_plan *plan, berth_error *error)
{
    berth_model *model = NULL;
    berth_job *job = NULL;
    berth_status status =
        berth_load_start(p->context, p->checkpoint, plan, NULL, &job, error);

    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    berth_model_destroy(model);
    return status;
}

static void
test_plans_that_leave_experts_out(void)
{
    static const char twice[] = "is not the tensor that the plan gives a berth";
    static const char *const changes[][3] = {
        { SLICE "3", SLICE "2", twice },
        { SLICE "3", SLICE "4", twice },
        { SLICE "0", SLICE "1", twice },
        { SLICE "7", SLICE "8", twice },
        { SLICE "7", SLICE "6", twice },
        { SLICE "3, \"count\": 1}", SLICE "3, \"count\": 1}, \"tied\": true", "" },
        { SLICE "3, \"count\": 1}, \"expert\": true}",
          SLICE "3, \"count\": 1}, \"expert\": true, \"tied\": true}",
          "shares a berth in the plan, and not so in the model" },
    };
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    planned p;

    planned_begin(&p, stacked_make(&stacked_small), &options);
    for (uint32_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        berth_plan *plan = NULL;
        berth_error error;
        const berth_status status =
            stacked_parse(&p, changes[i][0], changes[i][1], &plan, &error);

        if (status != BERTH_OK) {
            CHECK_EQ(i, 5); /* "tied" before "expert" is no plan at all */
            continue;
        }
        CHECK_EQ(load_plan(&p, plan, &error), BERTH_EINTEGRITY);
        CHECK_CONTAINS(error.message, changes[i][2]);
        CHECK_CONTAINS(error.tensor, "mlp.experts.");
        berth_plan_destroy(plan);
    }
    planned_end(&p);
}

/* The number of a berth's tensor in the text, and the expert, exchanged with another's. */
static void
test_experts_of_one_stack_lie_in_one_layer(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    uint64_t one;
    uint64_t other;
    berthi_berth berth;
    berthi_slice slice;
    berth_error error;
    planned p;

    planned_begin(&p, stacked_make(&stacked_small), &options);
    one = stacked_berth(&p, 0, "down_proj", EXPERTS - 1);
    other = stacked_berth(&p, 1, "down_proj", 0);
    berth = p.plan->berths[one];
    slice = p.plan->slices[one];
    p.plan->berths[one].number = p.plan->berths[other].number;
    p.plan->slices[one] = p.plan->slices[other];
    p.plan->berths[other].number = berth.number;
    p.plan->slices[other] = slice;
    CHECK_EQ(load_plan(&p, p.plan, &error), BERTH_EINTEGRITY);
    CHECK_CONTAINS(error.message, "are not all of its experts in their order");
    planned_end(&p);
}

/* --------------------------------------------------------------------------- faults */

/* Whole they do not fit: the plan takes them apart. */
static void
test_every_call_can_fail(void)
{
    const uint32_t experts[2] = { 1, 6 };
    loaded_attempt attempt = { .folder = stacked_make(&stacked_small),
                               .max_memory = "0=350KiB,cpu=64MiB",
                               .words = "cpu",
                               .has_passes = true,
                               .experts = experts,
                               .expert_count = 2,
                               .no_uring = true };
    const fault_counts counts = fault_loop("stacks", loaded_once, &attempt);

    CHECK_GT(counts.memory, 50);
    CHECK_GT(counts.system, 10);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_experts_are_loaded);
    T_RUN(test_checks_count_stacks_once);
    T_RUN(test_experts_are_found);
    T_RUN(test_experts_are_encoded);
    T_RUN(test_stored_stacks_are_cut_between_blocks);
    T_RUN(test_stored_stacks_that_stay_whole);
    T_RUN(test_experts_in_mxfp4);
    T_RUN(test_scales_of_all_experts);
    T_RUN(test_experts_are_leased);
    T_RUN(test_stacks_are_verified);
    T_RUN(test_experts_move);
    T_RUN(test_stacks_do_not_change_by_a_word);
    T_RUN(test_plans_that_leave_experts_out);
    T_RUN(test_experts_of_one_stack_lie_in_one_layer);
    T_RUN(test_every_call_can_fail);
    T_MAIN_END;
}
