/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_order.c - a load with a worker that is late: weights take scratch in the order of
 * the files, whichever of them is come to first.
 */
#include <string.h>

#include "kernels/memory.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define MIB     (UINT64_C(1) << 20)
#define LATE_NS UINT64_C(200000000)
#define WAIT_MS 60000

/* In one stage: the norm, the small weight, a third of the large one. The rest is in others. */
#define TENSORS                                              \
    "BF16 2048 model.layers.0.input_layernorm.weight\n"      \
    "BF16 64x2048 model.layers.0.mlp.down_proj.weight\n"     \
    "BF16 2048x3072 model.layers.0.self_attn.v_proj.weight\n"

static const char *
make_model(void)
{
    const char *const folder = fixture_folder();

    (void)fixture_file(fixture_format("%s/model.safetensors", folder), TENSORS);
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"num_hidden_layers\": 1}");
    return folder;
}

/* Whoever has placed the norm sleeps; others begin with the large weight meanwhile. */
static void
be_late(void *user, const berth_trace_event *event)
{
    const uint64_t *const norm = user;

    if (event->kind == BERTH_TRACE_PLACE && event->tensor == *norm)
        berthi_sys_sleep(LATE_NS);
}

/* There is scratch for the large weight alone: it must not be taken ahead of the small one. */
static void
check_late_worker(const char *max_memory, const char *words)
{
    static const char norm_name[] = "model.layers.0.input_layernorm.weight";
    berth_plan_options options = loaded_options(max_memory);
    berth_job *job = NULL;
    uint64_t norm;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    loaded_begin(&l, make_model(), &options, words);
    norm = berth_checkpoint_find(l.p.checkpoint, norm_name, strlen(norm_name));
    l.p.context->trace = be_late;
    l.p.context->trace_user = &norm;
    l.options.ring_bytes = 32 * MIB;
    l.options.workers = 3;
    T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job,
                               &l.error)
              == BERTH_OK);
    T_REQUIRE(berth_job_wait(job, WAIT_MS) != BERTH_PENDING);
    CHECK_EQ(berth_load_finish(job, &l.model, &l.error), BERTH_OK);
    l.p.context->trace = NULL;
    loaded_end(&l);
}

static void
test_a_worker_is_late(void)
{
    check_late_worker("cpu=64MiB", NULL);
    check_late_worker("0=64MiB,cpu=64MiB", "sim:64MiB");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_a_worker_is_late);
    T_MAIN_END;
}
