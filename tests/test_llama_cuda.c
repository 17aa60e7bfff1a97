/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_llama_cuda.c - the decoder on a GPU of fake_cuda.h: what a token asks the runtime for,
 * and that its logits are those of the plain loops, or near where products have tensor cores.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/decoded.h"
#include "tests/fake_cuda.h"
#include "tests/fixture.h"
#include "tests/simt.h"
#include "tests/t.h"
#include "tools/llama_math.h"

#define VOCAB 160u
#define LAYERS 2u
#define PROMPT 3u

static const fake_cuda_machine gpu = { .count = 1, .driver = 13000, .architecture = 90,
                                       .memory_bytes = UINT64_C(64) << 20 };

/* A model, and a run of it on the GPU, or (words NULL) on the processor. */
typedef struct scene {
    llama_run_options options;
    llama_config config;
    berth_plan *plan;
    llama_run *run;
} scene;

static scene *
begin_model(const char *model, const char *words, int32_t activations)
{
    const decoded_setup s = { .model = model,
                              .type = BERTH_ENCODING_NF4,
                              .double_quant = 1,
                              .takes_experts = true,
                              .max_memory = words != NULL ? "0=32MiB,cpu=1GiB" : NULL };
    scene *const c = calloc(1, sizeof *c);
    llama_run_options *const o = &c->options;

    *o = (llama_run_options){ .config = &c->config, .capacity = 16, .cache_dtype = BERTH_F32,
                              .compute = LLAMA_COMPUTE_DEVICE, .activations = activations };
    CHECK_EQ(berth_context_create(NULL, &o->context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(o->context, fixture_format(DECODED_DATA "%s", model), NULL,
                                   &o->checkpoint, NULL),
             BERTH_OK);
    CHECK_EQ(llama_config_read(o->context, o->checkpoint, &c->config, NULL), BERTH_OK);
    if (words != NULL)
        CHECK_EQ(berthi_devices_open_cuda(o->context, fake_cuda_calls(), words, &o->devices,
                                          NULL),
                 BERTH_OK);
    CHECK_EQ(decoded_load(&s, o->context, o->checkpoint, o->devices, &c->plan, &o->model, NULL),
             BERTH_OK);
    o->plan = c->plan;
    CHECK_EQ(llama_run_create(o, &c->run, NULL), BERTH_OK);
    return c;
}

static scene *
begin(const char *words, int32_t activations)
{
    return begin_model("llama", words, activations);
}

static void
end(scene *c)
{
    llama_run_options *const o = &c->options;

    llama_run_destroy(c->run);
    berth_model_destroy(o->model);
    berth_plan_destroy(c->plan);
    berth_devices_close(o->devices);
    berth_checkpoint_close(o->checkpoint);
    berth_context_destroy(o->context);
    free(c);
}

/*
 * The token's row; of a layer a norm, queries, keys and values, turning, attention, the output, a
 * norm, gate and up, both joined, down; behind the layers a norm, logits, the largest of them.
 */
#define LAUNCHES (1 + 9 * LAYERS + 3)

static void
test_a_token(void)
{
    static const uint32_t prompt[PROMPT] = { 5, 6, 7 };
    float logits[VOCAB];
    fake_cuda_books before;
    fake_cuda_books books;
    uint64_t calls;
    uint32_t next = VOCAB;
    scene *c;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this processor");
    fake_cuda_begin(&gpu);
    c = begin("cuda", BERTH_BF16);
    CHECK_EQ(llama_run_feed(c->run, prompt, PROMPT, false, logits, NULL), BERTH_OK);
    before = fake_cuda_read();
    calls = fake_cuda_called();
    CHECK_EQ(llama_run_step(c->run, 9, logits, &next, NULL), BERTH_OK);
    calls = fake_cuda_called() - calls;
    books = fake_cuda_read();
    CHECK_LT(next, VOCAB);
    CHECK_EQ(books.launches - before.launches, LAUNCHES);
    CHECK_EQ(books.overlapping - before.overlapping, LAUNCHES);
    CHECK_EQ(books.launched[KERNEL_together_64_bf16_double]
                 - before.launched[KERNEL_together_64_bf16_double],
             2 * LAYERS);
    CHECK_EQ(books.launched[KERNEL_add] - before.launched[KERNEL_add], 0);
    CHECK_EQ(books.switches - before.switches, 0);
    /* Each asks for the current device; the rest are two small copies, and waiting for them. */
    CHECK_LE(calls, 2 * LAUNCHES + 16);
    end(c);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/*
 * Two experts of a layer, in one grid by each of their weights: that has tensor cores where
 * columns are whole chunks, which those of `down` are not.
 */
static void
test_a_token_by_experts(void)
{
    static const uint32_t prompt[1] = { 5 };
    float logits[VOCAB];
    fake_cuda_books before;
    fake_cuda_books books;
    uint32_t next = VOCAB;
    scene *c;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this processor");
    fake_cuda_begin(&gpu);
    c = begin_model("mixtral", "cuda", BERTH_BF16);
    CHECK_EQ(llama_run_feed(c->run, prompt, 1, false, logits, NULL), BERTH_OK);
    before = fake_cuda_read();
    CHECK_EQ(llama_run_step(c->run, 9, logits, &next, NULL), BERTH_OK);
    books = fake_cuda_read();
    CHECK_LT(next, VOCAB);
    CHECK_EQ(books.launched[KERNEL_experts_64_bf16_double]
                 - before.launched[KERNEL_experts_64_bf16_double],
             2 * LAYERS);
    CHECK_EQ(books.launched[KERNEL_experts_lanes_bf16_double]
                 - before.launched[KERNEL_experts_lanes_bf16_double],
             LAYERS);
    CHECK_EQ(books.launched[KERNEL_write_words] - before.launched[KERNEL_write_words],
             3 * LAYERS);
    CHECK_EQ(books.launched[KERNEL_gate] - before.launched[KERNEL_gate], LAYERS);
    end(c);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* Of 32-bit floats: as near as sums in another order are. */
static void
test_logits(void)
{
    static const uint32_t prompt[PROMPT] = { 5, 6, 7 };
    float here[VOCAB];
    float there[VOCAB];
    scene *c;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this processor");
    fake_cuda_begin(&gpu);
    for (int32_t is_gpu = 0; is_gpu < 2; is_gpu++) {
        float *const logits = is_gpu != 0 ? there : here;
        uint32_t next = VOCAB;

        c = begin(is_gpu != 0 ? "cuda" : NULL, BERTH_F32);
        CHECK_EQ(llama_run_feed(c->run, prompt, PROMPT, false, logits, NULL), BERTH_OK);
        CHECK_EQ(llama_run_step(c->run, 9, logits, &next, NULL), BERTH_OK);
        CHECK_EQ(llama_run_feed(c->run, &next, 1, false, logits, NULL), BERTH_OK);
        end(c);
    }
    CHECK(decoded_distance_of(here, there, VOCAB).largest < 1e-4);
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_a_token);
    T_RUN(test_a_token_by_experts);
    T_RUN(test_logits);
    T_MAIN_END;
}
