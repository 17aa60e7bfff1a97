/* SPDX-License-Identifier: Apache-2.0 */
/* test_train.c - training line by line: numbers measured, worked out, and published. */
#include "placement/train.h"

#include <string.h>

#include "tests/estimated.h"
#include "tests/t.h"

#define GB UINT64_C(1000000000)

static berthi_train_options
options_of(const estimated *e)
{
    berthi_train_options options;

    berthi_train_options_init(&options, &e->shape);
    options.base.dtype = BERTH_BF16;
    return options;
}

static berthi_estimate
estimate(const estimated *e, const berthi_train_options *options)
{
    berthi_estimate out;
    berth_error error;

    if (!CHECK_EQ(berthi_train_estimate(&e->model, options, &out, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    return out;
}

static uint64_t
mb_of(const berthi_estimate *out, int32_t part)
{
    return estimated_mb(berthi_estimate_bytes(out, part));
}

/* -------------------------------------------------------------------- activations */

/* Measured with transformers 5.23 and torch 2.15: bytes a token and layer. */
static void
test_measured(void)
{
    static const struct {
        uint64_t h, i, nq, nkv, d, s, fused, eager;
    } rows[] = {
        { 256, 704, 4, 2, 64, 128, 11288, 14856 },
        { 256, 704, 4, 4, 64, 128, 11800, 14856 },
        { 512, 704, 8, 2, 64, 128, 16424, 24072 },
        { 256, 1408, 4, 2, 64, 128, 16920, 20488 },
        { 256, 704, 8, 2, 64, 128, 12328, 19976 },
        { 256, 704, 4, 2, 32, 128, 10520, 13832 },
        { 320, 1000, 5, 5, 64, 192, 15708, 21448 },
    };
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berthi_shape shape = e->shape;
        berthi_layer layer = shape.kinds[0];

        shape.hidden = rows[i].h;
        layer.intermediate = rows[i].i;
        layer.heads = rows[i].nq;
        layer.kv_heads = rows[i].nkv;
        layer.key_dim = layer.value_dim = rows[i].d;
        options.base.context = rows[i].s;
        options.base.is_eager = false;
        CHECK_EQ(berthi_train_layer(&shape, &layer, &options), rows[i].fused);
        options.base.is_eager = true;
        CHECK_EQ(berthi_train_layer(&shape, &layer, &options), rows[i].eager);
        options.has_fused_norms = true;
        CHECK_EQ(berthi_train_layer(&shape, &layer, &options),
                 rows[i].eager - 6 * rows[i].h);
        options.has_fused_norms = false;
        options.base.dtype = BERTH_F32;
        CHECK_EQ(berthi_train_layer(&shape, &layer, &options), 2 * rows[i].eager);
        options.base.dtype = BERTH_BF16;
    }
}

/* 34 h + 5 nq s, and without the scores. */
static void
test_classic(void)
{
    const estimated *const e = estimated_config("gpt2");
    berthi_train_options options = options_of(e);
    berthi_estimate out;

    options.base.context = 1024;
    options.base.is_eager = true;
    CHECK_EQ(berthi_train_layer(&e->shape, &e->shape.kinds[0], &options),
             34 * 768 + 5 * 12 * 1024);
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_FORMULA);
    options.base.is_eager = false;
    CHECK_EQ(berthi_train_layer(&e->shape, &e->shape.kinds[0], &options),
             34 * 768 + 4 * 12);
}

/* Other layers: the same sum. */
static void
test_other_layers(void)
{
    const estimated *e = estimated_config("gemma-2-9b");
    berthi_train_options options = options_of(e);
    berthi_estimate out;

    CHECK_EQ(berthi_train_layer(&e->shape, &e->shape.kinds[0], &options),
             4 * (8 * 3584 + 4) + 2 * (2 * 16 + 2 * 8) * 256 + 4 * 16 + 8 * 14336);
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_ESTIMATE);
    e = estimated_config("deepseek-v3");
    CHECK_EQ(berthi_train_layer(&e->shape, &e->shape.kinds[1], &options),
             2 * (8 * 7168 + 4) + 2 * 2 * 128 * 320 + 4 * 128 + 10 * (1536 + 512)
                 + 8 * (8 * 2048 + 2048) + 4 * 7168 * 8);
    e = estimated_config("qwen3-next-80b-a3b");
    CHECK_EQ(berthi_train_layer(&e->shape, &e->shape.kinds[0], &options),
             2 * (8 * 2048 + 4) + 2 * (8192 + 2 * 4096) + 8 * (10 * 512 + 512)
                 + 4 * 2048 * 10);
    e = estimated_config("mixtral-8x7b-v0.1");
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_ESTIMATE);
    e = estimated_config("llama-3-8b");
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_MEASURED);
}

static void
test_checkpoints(void)
{
    const estimated *const e = estimated_config("llama-3-70b");
    berthi_train_options options = options_of(e);
    const uint64_t full = berthi_train_layer(&e->shape, &e->shape.kinds[0], &options);
    static const struct {
        uint64_t every, points, layers;
    } rows[] = { { 1, 80, 1 }, { 3, 27, 3 }, { 80, 1, 80 }, { 1000, 1, 80 } };

    /* 2 h a checkpointed layer: 512 for h = 256, 1024 for 512 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berthi_estimate out;

        options.checkpoint_every = rows[i].every;
        out = estimate(e, &options);
        CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CHECKPOINTS),
                 4096 * 2 * 8192 * rows[i].points);
        CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_RECOMPUTED),
                 4096 * full * rows[i].layers);
        CHECK(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS) == NULL);
    }
}

/* ----------------------------------------------------------------------- adapters */

/* r (in + out) for each linear layer of the blocks: of rank 16, and four times that of 64. */
static void
test_adapters(void)
{
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = { { "llama-2-7b", 39976960 },    { "llama-2-13b", 62586880 },
                 { "llama-2-70b", 207093760 },  { "llama-3-70b", 207093760 },
                 { "llama-3-8b", 41943040 },    { "llama-3.1-405b", 623443968 } };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_config(rows[i].name);
        berthi_train_options options = options_of(e);

        options.method = BERTHI_METHOD_LORA;
        CHECK_EQ(berthi_train_parameters(&e->model, &options), rows[i].parameters);
        options.rank = 64;
        CHECK_EQ(berthi_train_parameters(&e->model, &options), 4 * rows[i].parameters);
    }
}

/* What is computed in f32 has no copies in f32 beside it. */
static void
test_head(void)
{
    const estimated *e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    const uint64_t positions = 4096;
    berthi_estimate out = estimate(e, &options);

    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_FINAL_NORM)->reason,
              "an f32 and two 16-bit copies");
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_LOSS)->reason,
                   "10 B: logits, their f32 copy, their gradient");
    options.base.dtype = BERTH_F32;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), positions * 128256 * 8);
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_FINAL_NORM)->reason, "two f32 copies");
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_LOSS)->reason,
                   "8 B: logits, their gradient");
}

static void
test_targets(void)
{
    const estimated *e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    berthi_estimate out;
    berth_error error;

    options.method = BERTHI_METHOD_LORA;
    options.targets = "q_proj,v_proj";
    CHECK_EQ(berthi_train_parameters(&e->model, &options),
             16 * 32 * (4096 + 4096 + 4096 + 1024));
    out = estimate(e, &options);
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_ADAPTERS)->reason,
                   "rank 16 * (in + out) of 64 matrices");
    /* Two adapted matrices a layer, of 2 * 16 bytes a token each. */
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS),
             4096 * 32 * (berthi_train_layer(&e->shape, &e->shape.kinds[0], &options) + 64));
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_GRADIENTS),
             2 * berthi_train_parameters(&e->model, &options));
    CHECK_EQ(out.note_count, 1);
    CHECK_CONTAINS(out.notes[0], "PEFT keeps adapters in f32");
    options.targets = "q_proj,nonesuch";
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "\"nonesuch\" names no linear layer of the model");
    options.targets = "q_proj,,v_proj";
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "\"\" names no linear layer");
    options.targets = "q_proj,";
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "\"\" names no linear layer");
    options.targets = "norm"; /* there, but no matrix */
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, &error), BERTH_EINVAL);
    options.targets = "q_pro";
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, &error), BERTH_EINVAL);
    e = estimated_config("mixtral-8x7b-v0.1");
    options.targets = BERTHI_ALL_LINEAR; /* no experts */
    CHECK_EQ(berthi_train_parameters(&e->model, &options),
             16 * 32 * (4 * 4096 + 2 * 4096 + 2 * 1024));
    out = estimate(e, &options);
    CHECK_EQ(out.note_count, 2);
    CHECK_CONTAINS(out.notes[1], "all-linear leaves experts and routers alone");
    options.targets = "w1";
    CHECK_EQ(berthi_train_parameters(&e->model, &options), 16 * 32 * 8 * (4096 + 14336));
    out = estimate(e, &options); /* a token meets two of the eight */
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS),
             4096 * 32 * (berthi_train_layer(&e->shape, &e->shape.kinds[0], &options) + 64));
}

/* -------------------------------------------------------------------- the three ways */

static void
test_precisions(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const uint64_t n = 8030261248;
    berthi_train_options options = options_of(e);
    berthi_estimate out = estimate(e, &options);

    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LINEARS)
                 + berthi_estimate_bytes(&out, BERTHI_PART_OTHERS), 2 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_GRADIENTS), 2 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_OPTIMIZER), 4 * n);
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_OPTIMIZER)->dtype, "bf16");
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_MASTER), 0);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CASTS), 0);
    options.accumulates_f32 = true;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_GRADIENTS), 4 * n);
    options.accumulates_f32 = false;
    options.precision = BERTHI_PRECISION_AUTOCAST;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LINEARS)
                 + berthi_estimate_bytes(&out, BERTHI_PART_OTHERS), 4 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_GRADIENTS), 4 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_OPTIMIZER), 8 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_MASTER), 0);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CASTS),
             2 * (6979321856 + UINT64_C(128256) * 4096));
    options.precision = BERTHI_PRECISION_MASTER;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LINEARS)
                 + berthi_estimate_bytes(&out, BERTHI_PART_OTHERS), 2 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_MASTER), 4 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_GRADIENTS), 2 * n);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_OPTIMIZER), 8 * n);
    options.base.dtype = BERTH_F32;
    options.precision = BERTHI_PRECISION_AUTOCAST;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CASTS), 0);
    options.precision = BERTHI_PRECISION_MASTER; /* f32 is its own copy */
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_MASTER), 0);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_OPTIMIZER), 8 * n);
    options.base.dtype = BERTH_F16;
    options.precision = BERTHI_PRECISION_PURE;
    out = estimate(e, &options);
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_LINEARS)->dtype, "f16");
}

/* ----------------------------------------------------------------- head and batches */

static void
test_head_and_batches(void)
{
    const estimated *const e = estimated_config("llama-2-7b");
    berthi_train_options options = options_of(e);
    berthi_estimate out;

    options.base.batch = 3;
    options.base.context = 100;
    options.prefetch = 2;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), 10 * 300 * 32000);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_FINAL_NORM), 300 * (8 * 4096 + 4));
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_BATCHES), 300 * 24 * 3);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_PINNED), 300 * 24 * 2 * 2);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_PINNED)->place, BERTHI_PLACE_HOST);
    CHECK_EQ(out.host_bytes, 300 * 24 * 4);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_FRAGMENTATION),
             ((berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS) + 10 * 300 * 32000
               + 300 * (8 * 4096 + 4)) * 5 + 99) / 100);
    options.loss_chunk = 70;
    options.workers = 0;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), 10 * 70 * 32000);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_PINNED), 0);
    options.loss_chunk = 301;
    options.packed_tokens = 200;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), 10 * 300 * 32000);
    options.is_packed = true;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), 10 * 200 * 32000);
    options.base.dtype = BERTH_F32;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOSS), 8 * 200 * 32000);
}

/* --------------------------------------------------------------- published tables */

static const berthi_claim *
claim_of(const berthi_claim *claims, uint32_t count, const char *what)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(claims[i].what, what) == 0)
            return &claims[i];
    return NULL;
}

static void
check_claim(const berthi_claim *claims, uint32_t count, const char *what, uint64_t claimed,
            uint64_t ours_mb)
{
    const berthi_claim *const claim = claim_of(claims, count, what);

    T_REQUIRE(claim != NULL);
    if (!CHECK_EQ(claim->claimed, claimed) || !CHECK_EQ(estimated_mb(claim->ours), ours_mb)
        || !CHECK(claim->reason[0] != '\0'))
        T_NOTE("%s: %s", what, claim->reason);
}

/* AdamW of 70B: 560 GB, 8-bit 140; exact 551.8 and 140.1 with the block maxima. */
static void
test_adamw_70b(void)
{
    const estimated *const e = estimated_config("llama-2-70b");
    berthi_train_options options = options_of(e);
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_estimate out;
    uint32_t count;

    options.optimizer = "adamw_32bit";
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_OPTIMIZER), 551813);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    CHECK_EQ(count, 1);
    check_claim(claims, count, "optimizer", 560 * GB, 551813);
    CHECK_STR(claims[0].reason,
              "8 bytes times 70 * 10^9; here 68976648192 parameters");
    options.optimizer = "adamw_8bit";
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_OPTIMIZER), 140109);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    check_claim(claims, count, "optimizer, 8-bit", 140 * GB, 140109);
    options.optimizer = "adamw_torch";
    out = estimate(e, &options);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    CHECK_CONTAINS(claims[0].reason, "with states in the dtype of the weights");
    options.optimizer = "lion";
    out = estimate(e, &options);
    CHECK_EQ(berthi_train_claims(&e->model, &options.base, &options, &out, claims), 0);
}

/* Block maxima are those of 8 bits, and one state is no plural. */
static void
test_states_are_told(void)
{
    static const char *const told[][2] = {
        { "lion_32bit", "lion_32bit: 1 state" },
        { "paged_lion_32bit", "paged_lion_32bit: 1 state; of small tensors" },
        { "paged_lion_8bit", "paged_lion_8bit: 1 state; of small tensors, and block maxima" },
        { "paged_adamw_32bit", "paged_adamw_32bit: 2 states; of small tensors" },
        { "adamw_8bit", "adamw_8bit: 2 states, a byte and 1/64 for block maxima; f32 for tensors "
                        "below 4096 elements" },
    };
    const estimated *const e = estimated_config("llama-2-70b");
    berthi_train_options options = options_of(e);

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        berthi_estimate out;

        options.optimizer = told[i][0];
        out = estimate(e, &options);
        CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_OPTIMIZER)->reason, told[i][1]);
    }
}

/* Llama-2 13B: 26, 26, 52, 12 or 3; with f32 states 104, 168 and 159. */
static void
test_13b(void)
{
    const estimated *const e = estimated_config("llama-2-13b");
    berthi_train_options options = options_of(e);
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_estimate out;
    uint32_t count;

    options.base.context = 1280;
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_GRADIENTS), 26032);
    CHECK_EQ(mb_of(&out, BERTHI_PART_OPTIMIZER), 52063);
    /* 9.35 MB a token */
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS) / 1280, 9345600);
    CHECK_EQ(mb_of(&out, BERTHI_PART_ACTIVATIONS), 11962);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    CHECK_EQ(count, 5);
    check_claim(claims, count, "weights", 26 * GB, 26032);
    check_claim(claims, count, "gradients", 26 * GB, 26032);
    check_claim(claims, count, "optimizer", 52 * GB, 52063);
    check_claim(claims, count, "activations", 12 * GB, 11962);
    check_claim(claims, count, "total", 116 * GB, estimated_mb(out.device_bytes));
    CHECK_CONTAINS(claim_of(claims, count, "activations")->reason,
                   "here 1280 tokens of 9345600 B");
    /* The parts quoted: 116. */
    CHECK_EQ(estimated_mb(claims[0].ours + claims[1].ours + claims[2].ours
                          + claims[3].ours), 116089);
    options.optimizer = "adamw_32bit";
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_OPTIMIZER), 104127);
    options.checkpoint_every = 1;
    options.base.context = 4096;
    out = estimate(e, &options);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    CHECK_EQ(count, 6);
    check_claim(claims, 5, "activations", 3 * GB, 2635);
    check_claim(claims, count, "total", 107 * GB, estimated_mb(out.device_bytes));
    /* Checkpointing every layer saves about 95 % of 38.3 GB. */
    CHECK_CONTAINS(claims[5].table, "checkpointing saves 30 to 50 %");
    CHECK_EQ(estimated_mb(claims[5].claimed), 19140);
    CHECK_CONTAINS(claims[5].reason, "6 % are left");
}

/* The stack on one 80 GB card: with 5 of overhead 51 to 54. */
static void
test_qlora_70b(void)
{
    const estimated *const e = estimated_config("llama-2-70b");
    berthi_train_options options = options_of(e);
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_estimate out;
    uint32_t count;
    uint64_t parts;

    options.method = BERTHI_METHOD_LORA;
    options.base.type = BERTHI_TYPE_NF4_DOUBLE;
    options.base.context = 4096;
    options.optimizer = "adamw_8bit";
    options.checkpoint_every = 1;
    options.base.context_bytes = 5 * GB;
    options.base.workspace_bytes = 0;
    options.base.fragmentation_percent = 0;
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_ADAPTERS), 414);
    CHECK_EQ(mb_of(&out, BERTHI_PART_GRADIENTS), 414);
    CHECK_EQ(mb_of(&out, BERTHI_PART_OPTIMIZER), 421);
    CHECK_EQ(mb_of(&out, BERTHI_PART_CHECKPOINTS), 5369);
    CHECK_EQ(mb_of(&out, BERTHI_PART_RECOMPUTED), 1629);
    CHECK_EQ(mb_of(&out, BERTHI_PART_LOSS), 1311);
    CHECK_EQ(mb_of(&out, BERTHI_PART_DEQUANTIZED), 470);
    CHECK_EQ(mb_of(&out, BERTHI_PART_FINAL_NORM), 268);
    count = berthi_train_claims(&e->model, &options.base, &options, &out, claims);
    CHECK_EQ(count, 9);
    check_claim(claims, count, "model", 35 * GB, 36364);
    check_claim(claims, count, "LoRA", GB / 2, 414);
    check_claim(claims, count, "activations", 8 * GB, 6998);
    T_REQUIRE(claim_of(claims, count, "activations") != NULL);
    CHECK_EQ(claim_of(claims, count, "activations")->ours,
             berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS)
                 + berthi_estimate_bytes(&out, BERTHI_PART_CHECKPOINTS)
                 + berthi_estimate_bytes(&out, BERTHI_PART_RECOMPUTED));
    check_claim(claims, count, "gradients", GB / 2, 414);
    check_claim(claims, count, "optimizer", GB, 421);
    check_claim(claims, count, "batch", 10 * GB, 1311);
    check_claim(claims, count, "overhead", 5 * GB, 5738);
    check_claim(claims, count, "total", 75 * GB, estimated_mb(out.device_bytes));
    parts = out.device_bytes - berthi_estimate_bytes(&out, BERTHI_PART_DEQUANTIZED)
            - berthi_estimate_bytes(&out, BERTHI_PART_FINAL_NORM);
    CHECK_EQ(estimated_mb(parts), 50922);
    options.base.type = BERTHI_TYPE_NF4;
    out = estimate(e, &options);
    CHECK_EQ(mb_of(&out, BERTHI_PART_LINEARS) + mb_of(&out, BERTHI_PART_OTHERS), 39555);
    parts = out.device_bytes - berthi_estimate_bytes(&out, BERTHI_PART_DEQUANTIZED)
            - berthi_estimate_bytes(&out, BERTHI_PART_FINAL_NORM);
    CHECK_EQ(estimated_mb(parts), 54113);
}

static void
test_405b(void)
{
    const estimated *e = estimated_config("llama-3.1-405b");
    berthi_estimate_options options;
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_estimate out;

    berthi_estimate_options_init(&options, &e->shape);
    options.type = BERTHI_TYPE_NF4_DOUBLE;
    CHECK_EQ(berthi_estimate_inference(&e->model, &options, &out, NULL), BERTH_OK);
    CHECK_EQ(berthi_train_claims(&e->model, &options, NULL, &out, claims), 1);
    check_claim(claims, 1, "model", 200 * GB, 215612);
    options.type = BERTHI_TYPE_INT8;
    CHECK_EQ(berthi_train_claims(&e->model, &options, NULL, &out, claims), 0);
    e = estimated_config("llama-3-8b");
    options.type = BERTHI_TYPE_NF4;
    CHECK_EQ(berthi_train_claims(&e->model, &options, NULL, &out, claims), 0);
}

/* How many claims there are of a model with so many parameters, in the dtype asked. */
static uint32_t
count_claims(const char *name, uint64_t parameters, int32_t type, bool is_trained)
{
    static berthi_weight weights[BERTHI_WEIGHT_KINDS + 1];
    const estimated *const e = estimated_config(name);
    berthi_train_options options = options_of(e);
    berthi_estimate_model model = e->model;
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_weight_sums sums;
    berthi_estimate out;

    options.optimizer = "adamw_32bit";
    options.base.type = type;
    CHECK_EQ(berthi_estimate_inference(&e->model, &options.base, &out, NULL), BERTH_OK);
    berthi_estimate_weights(&model, &options.base, &sums);
    memcpy(weights, model.weights, model.weight_count * sizeof *weights);
    weights[model.weight_count++] = (berthi_weight){
        .module = "more", .role = BERTHI_WEIGHT_OTHER, .dtype = BERTH_BF16,
        .layer = BERTHI_NO_LAYER, .rank = 1, .shape = { parameters - sums.parameters, 0 },
        .count = 1,
    };
    model.weights = weights;
    return berthi_train_claims(&model, &options.base, is_trained ? &options : NULL, &out,
                               claims);
}

/* What is said of 70B is said of models three per cent smaller or larger. */
static void
test_about(void)
{
    const uint64_t bottom = 67900 * (GB / 1000);
    const uint64_t top = 72100 * (GB / 1000);

    CHECK_EQ(count_claims("llama-2-13b", bottom - 1, BERTHI_TYPE_BF16, true), 0);
    CHECK_EQ(count_claims("llama-2-13b", bottom, BERTHI_TYPE_BF16, true), 1);
    CHECK_EQ(count_claims("llama-2-13b", top, BERTHI_TYPE_BF16, true), 1);
    CHECK_EQ(count_claims("llama-2-13b", top + 1, BERTHI_TYPE_BF16, true), 0);
    CHECK_EQ(count_claims("llama-2-7b", 12610 * (GB / 1000) - 1, BERTHI_TYPE_BF16, true), 0);
    CHECK_GT(count_claims("llama-2-7b", 12610 * (GB / 1000), BERTHI_TYPE_BF16, true), 0);
    CHECK_GT(count_claims("llama-2-7b", 13390 * (GB / 1000), BERTHI_TYPE_BF16, true), 0);
    CHECK_EQ(count_claims("llama-2-7b", 13390 * (GB / 1000) + 1, BERTHI_TYPE_BF16, true), 0);
    CHECK_EQ(count_claims("llama-2-70b", 392850 * (GB / 1000) - 1, BERTHI_TYPE_NF4, false),
             0);
    CHECK_EQ(count_claims("llama-2-70b", 392850 * (GB / 1000), BERTHI_TYPE_NF4, false), 1);
    CHECK_EQ(count_claims("llama-2-70b", 417150 * (GB / 1000), BERTHI_TYPE_FP4_DOUBLE,
                          false), 1);
    CHECK_EQ(count_claims("llama-2-70b", 417150 * (GB / 1000) + 1, BERTHI_TYPE_NF4, false),
             0);
}

/* ---------------------------------------------------------------------- refusals */

static void
check_refused(const berthi_train_options *options, const char *why)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_estimate out;
    berth_error error;

    CHECK_EQ(berthi_train_estimate(&e->model, options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, why);
    CHECK_EQ(out.line_count, 0);
    CHECK_EQ(berthi_train_parameters(&e->model, options), 0);
}

static void
test_refusals(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const berthi_train_options good = options_of(e);
    berthi_train_options bad = good;
    berthi_estimate out;
    berth_error error;

    bad.optimizer = "adamx";
    check_refused(&bad, "`optimizer` is no name");
    bad.optimizer = NULL;
    check_refused(&bad, "`optimizer` is no name");
    bad = good;
    bad.precision = BERTHI_PRECISION_MASTER + 1;
    check_refused(&bad, "`precision` is none of pure, autocast and master");
    bad.precision = -1;
    check_refused(&bad, "`precision` is none of pure, autocast and master");
    bad = good;
    bad.accumulation = 0;
    check_refused(&bad, "`accumulation` is 0 micro-batches");
    bad = good;
    bad.method = BERTHI_METHOD_LORA + 1;
    check_refused(&bad, "`method` is none of full and LoRA");
    bad = good;
    bad.base.type = BERTHI_TYPE_NF4;
    check_refused(&bad, "`type` is quantized: such weights are trained with adapters");
    bad.method = BERTHI_METHOD_LORA;
    bad.rank = 0;
    check_refused(&bad, "`rank` is 0");
    bad.rank = 1;
    bad.targets = "";
    check_refused(&bad, "`targets` are none: names of linear layers");
    bad.targets = NULL;
    check_refused(&bad, "`targets` are none: names of linear layers");
    bad = good;
    bad.base.batch = UINT64_C(1) << 50;
    CHECK_EQ(berthi_train_estimate(&e->model, &bad, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "with activations the estimate is beyond 2^64 bytes");
    bad.base.batch = 0;
    CHECK_EQ(berthi_train_estimate(&e->model, &bad, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "batch");
}

static void
test_measure(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    const berthi_train_measured user = { &e->model, &options };
    berthi_estimate out;

    options.is_packed = true;
    options.packed_tokens = 5;
    options.base.prompt = 4096;
    options.base.context = 4096;
    CHECK_EQ(berthi_train_measure(&user, 0, 1), UINT64_MAX);
    options.is_packed = false;
    options.base.batch = 2;
    options.base.context = 300;
    options.base.prompt = 0;
    out = estimate(e, &options);
    CHECK_EQ(berthi_train_measure(&user, 300, 2), out.device_bytes);
    options.is_packed = true;
    CHECK_EQ(berthi_train_measure(&user, 300, 2), out.device_bytes);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_measured);
    T_RUN(test_classic);
    T_RUN(test_other_layers);
    T_RUN(test_checkpoints);
    T_RUN(test_adapters);
    T_RUN(test_head);
    T_RUN(test_targets);
    T_RUN(test_precisions);
    T_RUN(test_head_and_batches);
    T_RUN(test_adamw_70b);
    T_RUN(test_states_are_told);
    T_RUN(test_13b);
    T_RUN(test_qlora_70b);
    T_RUN(test_405b);
    T_RUN(test_about);
    T_RUN(test_refusals);
    T_RUN(test_measure);
    T_MAIN_END;
}
