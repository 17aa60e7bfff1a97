/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_scaled.c - FP8 blocks, decoded and encoded on the way: on devices the same
 * bytes as in host memory, and those of a conversion.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/weights.h"

/* Rows and columns that end within a block; a matrix that is more than a piece. */
#define HIDDEN  512u
#define INNER   4200u
#define WORDS   64u
#define BLOCK   128u
#define BERTHS  32u
#define SOURCES 3u

typedef struct making {
    fixture_builder *builder;
    uint64_t seed;
    uint32_t scales; /* what they are stored as */
} making;

/* Numbers all of them: a NaN has many codes. */
static void
add_scaled(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    static const char *const dtypes[SOURCES] = {"F32", "BF16", "F8_E8M0"};
    static const int32_t numbers[SOURCES] = {BERTH_F32, BERTH_BF16, BERTH_BF16};
    const uint64_t shape[2] = {rows, columns};
    const uint64_t blocks[2] = {(rows + BLOCK - 1) / BLOCK,
                                (columns + BLOCK - 1) / BLOCK};
    const uint64_t count = blocks[0] * blocks[1];
    uint8_t *const codes = weights_alloc(rows * columns);
    uint8_t *const scales = weights_values(numbers[m->scales], count, ++m->seed, false);

    for (uint64_t i = 0; i < rows * columns; i++) {
        codes[i] = (uint8_t)(weights_random(&m->seed) >> 24);
        if ((codes[i] & 0x7F) == 0x7F)
            codes[i] ^= 1;
    }
    for (uint64_t i = 0; m->scales == 2 && i < count; i++)
        scales[i] = (uint8_t)(120 + i % 7); /* powers of two around 1/16 */
    fixture_add(m->builder, fixture_format("%s.weight", name), "F8_E4M3", 2, shape,
                codes);
    fixture_add(m->builder, fixture_format("%s.weight_scale_inv", name),
                dtypes[m->scales], 2, blocks, scales);
    free(codes);
    free(scales);
}

static void
add_plain(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    void *const values =
        weights_values(BERTH_BF16, rows * (columns == 0 ? 1 : columns), ++m->seed, false);

    fixture_add(m->builder, name, "BF16", columns == 0 ? 1 : 2, shape, values);
    free(values);
}

static const char *
make(uint32_t scales)
{
    static const char *const squares[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    const char *const folder = fixture_folder();
    making m = {.builder = fixture_begin(), .seed = 5 + scales, .scales = scales};

    add_plain(&m, "model.embed_tokens.weight", WORDS, HIDDEN);
    for (uint32_t i = 0; i < 4; i++)
        add_scaled(&m, fixture_format("model.layers.0.self_attn.%s", squares[i]), HIDDEN,
                   HIDDEN);
    add_scaled(&m, "model.layers.0.mlp.gate_proj", INNER, HIDDEN);
    add_scaled(&m, "model.layers.0.mlp.up_proj", INNER, HIDDEN);
    add_scaled(&m, "model.layers.0.mlp.down_proj", HIDDEN, INNER);
    add_plain(&m, "model.layers.0.input_layernorm.weight", HIDDEN, 0);
    add_plain(&m, "model.layers.0.post_attention_layernorm.weight", HIDDEN, 0);
    add_plain(&m, "model.norm.weight", HIDDEN, 0);
    add_plain(&m, "lm_head.weight", WORDS, HIDDEN);
    (void)fixture_finish(m.builder, fixture_format("%s/model.safetensors", folder));
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": "
                       "\"llama\", \"hidden_size\": %u, \"intermediate_size\": %u, "
                       "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
                       "\"num_key_value_heads\": 4, \"vocab_size\": %u, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false, "
                       "\"quantization_config\": {\"quant_method\": \"fp8\", "
                       "\"weight_block_size\": [%u, %u]}}",
                       HIDDEN, INNER, WORDS, BLOCK, BLOCK));
    return folder;
}

/* Digests of all berths in the order of the plan; returns how many. */
static uint64_t
load(const char *folder, berth_plan_options options, const char *memory,
     const char *words, const char *converted, uint32_t *digests)
{
    uint64_t count = 0;
    loaded l;

    options.max_memory = memory;
    loaded_begin(&l, folder, &options, words);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK && CHECK_LE(l.p.summary.berth_count, BERTHS)) {
        count = l.p.summary.berth_count;
        for (uint64_t i = 0; i < count; i++)
            CHECK_EQ(berth_model_digest(l.model, i, &digests[i], &l.error), BERTH_OK);
        if (converted != NULL)
            loaded_check(&l, converted);
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
    }
    loaded_end(&l);
    return count;
}

/* On one device, on two, and where copies and operations take their time. */
static void
check_devices(const char *folder, berth_plan_options options, const char *converted)
{
    static const char *const words[] = {"sim:64MiB", "sim:64MiB;sim:64MiB",
                                        "sim:64MiB,clock=real,pick=random,jitter=50%"};
    static const char *const memories[] = {"0=64MiB", "0=13MiB,1=64MiB,cpu=64MiB",
                                           "0=64MiB"};
    uint32_t host[BERTHS];
    uint32_t device[BERTHS];
    const uint64_t count = load(folder, options, "cpu=64MiB", NULL, converted, host);

    CHECK_EQ(count, 4 + 7 + 1);
    for (uint32_t i = 0; i < 3; i++) {
        memset(device, 0, sizeof device);
        if (CHECK_EQ(load(folder, options, memories[i], words[i], converted, device),
                     count))
            CHECK_MEM(device, host, count * sizeof *host);
    }
}

static void
test_encoded(void)
{
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_INT8,
                                    BERTH_ENCODING_NF4, BERTH_ENCODING_FP4};

    for (uint32_t i = 0; i < 4; i++) {
        const char *const folder = make(i % SOURCES);
        berth_plan_options options = loaded_options("cpu=64MiB");

        options.type = types[i];
        options.double_quant = i >= 2;
        check_devices(folder, options, loaded_quantized(folder, &options));
    }
}

/* Without an encoding of their own they are values. */
static void
test_decoded(void)
{
    for (uint32_t i = 0; i < SOURCES; i++)
        check_devices(make(i), loaded_options("cpu=64MiB"), NULL);
}

/* As the plain checkpoint that they are decoded to; half of it where they stay. */
static void
test_cast(void)
{
    static const int32_t dtypes[] = {BERTH_BF16, BERTH_F32, BERTH_F16};

    for (uint32_t i = 0; i < SOURCES; i++) {
        const char *const folder = make(i);
        berth_plan_options options = loaded_options("cpu=64MiB");

        options.dtype = dtypes[i];
        check_devices(folder, options, loaded_quantized(folder, &options));
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_encoded);
    T_RUN(test_decoded);
    T_RUN(test_cast);
    T_MAIN_END;
}
