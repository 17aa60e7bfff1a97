/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_train_refused.c - plans for training that are refused, and what would help. */
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/planned_train.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ----------------------------------------------------------------------- refusals */

static void
check_refused(const char *folder, const berth_plan_options *asked, berth_status status,
              const char *words)
{
    berth_plan_options options = *asked;
    planned p;

    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, status);
    if (!CHECK(strstr(p.error.message, words) != NULL))
        T_NOTE("%s", p.error.message);
    planned_end(&p);
}

static void
check_fits(const char *folder, const berth_plan_options *asked)
{
    berth_plan_options options = *asked;
    planned p;

    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    if (p.status == BERTH_OK)
        planned_check(&p);
    planned_end(&p);
}

/* With so much more memory as the message says it fits, and with 64 KiB less not. */
static void
check_change_beside(const char *folder, const berth_train_options *train, uint64_t device,
                    uint64_t host, const char *more)
{
    char max_memory[96];
    berth_plan_options options;
    uint64_t missing;
    uint64_t now;
    bool is_host;
    planned p;

    for (int turn = 0; turn < 3; turn++) {
        (void)snprintf(max_memory, sizeof max_memory, "0=%llu,cpu=%llu%s",
                       (unsigned long long)device, (unsigned long long)host, more);
        options = planned_train_options(train, max_memory);
        planned_begin(&p, folder, &options);
        if (!CHECK_EQ(p.status, turn == 1 ? BERTH_OK : BERTH_ENOFIT))
            T_NOTE("%s: %s", max_memory, p.error.message);
        if (turn == 0) {
            is_host = strcmp(p.error.tensor, "cpu") == 0;
            now = p.error.actual;
            missing = p.error.expected - now;
            CHECK_EQ(now, is_host ? host : device);
            *(is_host ? &host : &device) += missing;
        } else if (turn == 1) {
            *(is_host ? &host : &device) -= 65536;
        }
        planned_end(&p);
    }
}

static void
check_change(const char *folder, const berth_train_options *train, uint64_t device,
             uint64_t host)
{
    check_change_beside(folder, train, device, host, "");
}

/* A streamed base leaves room for pages of states on their visit. */
static void
check_slots(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");

    train.lora_rank = 512;
    check_change(planned_llama(1, true), &train, 60 * MIB, 4096 * MIB);
}

/* States that may leave, and have nowhere to go, are those that stay. */
static void
check_nowhere(const char *folder, const char *max_memory)
{
    static const char *const names[] = { "adamw_8bit", "paged_adamw_8bit" };
    berth_error errors[2];

    for (size_t i = 0; i < 2; i++) {
        const berth_train_options train =
            planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_MASTER, names[i]);
        berth_plan_options options = planned_train_options(&train, max_memory);
        planned p;

        planned_begin(&p, folder, &options);
        if (!CHECK_EQ(p.status, BERTH_ENOFIT))
            T_NOTE("%s", max_memory);
        errors[i] = p.error;
        planned_end(&p);
    }
    CHECK_STR(errors[1].message, errors[0].message);
    CHECK_STR(errors[1].tensor, errors[0].tensor);
    CHECK_EQ(errors[1].expected, errors[0].expected);
}

static void
test_refusals(void)
{
    const char *const folder = planned_llama(2, false);
    berth_train_options train = planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=200MiB,cpu=4GiB");
    const char *pin = "lm_head=cpu";

    check_refused(folder, &options, BERTH_ENOFIT, "the smallest change that would do");
    check_change(folder, &train, 200 * MIB, 4096 * MIB);
    train.optimizer = "paged_adamw_8bit";
    check_change(folder, &train, 225 * MIB, 10 * MIB);
    check_slots();
    check_nowhere(folder, "0=80MiB,1=290MiB");
    check_nowhere(folder, "0=140MiB,1=290MiB");
    check_nowhere(folder, "0=140MiB,1=260MiB");
    check_nowhere(folder, "0=170MiB");
    check_nowhere(folder, "cpu=150MiB");
    /* Pages pass through host memory, of which rings of GPUs have their share. */
    train.optimizer = "paged_adamw_32bit";
    check_change_beside(folder, &train, 400 * MIB, 5 * MIB, ",disk=4GiB");
    check_change_beside(folder, &train, 400 * MIB, 80 * MIB, ",disk=4GiB");
    /* States that have to stay are part of the change. */
    train.optimizer = "paged_adamw_32bit";
    check_change(planned_llama(1, true), &train, 60 * MIB, 100 * MIB);
    train.optimizer = "paged_adamw_8bit";
    options = planned_train_options(&train, "0=206MiB,cpu=60MiB,disk=1MiB");
    check_refused(folder, &options, BERTH_ENOFIT, "for states of");
    options = planned_train_options(&train, "0=200MiB,cpu=4GiB");
    options.no_offload = 1;
    check_refused(folder, &options, BERTH_ENOFIT, "the smallest change that would do");
    options = planned_train_options(&train, "0=4GiB,cpu=4GiB");
    options.pins = &pin;
    options.pin_count = 1;
    check_refused(folder, &options, BERTH_EINVAL, "is trained");
    options.max_memory = "cpu=4GiB,disk=inf"; /* the processor trains it, not the disk */
    check_fits(folder, &options);
    pin = "lm_head=disk";
    check_refused(folder, &options, BERTH_EINVAL, "is trained");
    options = planned_train_options(&train, "0=4GiB,cpu=4GiB");
    options.type = BERTH_ENCODING_NF4;
    check_refused(folder, &options, BERTH_EINVAL, "adapters");
    options.type = BERTH_ENCODING_NATIVE;
    options.ranks = 2;
    check_refused(folder, &options, BERTH_EINVAL, "is not planned for ranks");
    options.ranks = 1; /* that is all of them */
    check_fits(folder, &options);
    options.ranks = 0;
    options.mode = "auto";
    check_refused(folder, &options, BERTH_EINVAL, "is not for imitated maps");
    options.mode = NULL;
    train.optimizer = "adafactor";
    check_refused(folder, &options, BERTH_EUNSUPPORTED, "adafactor is no optimizer");
    train.optimizer = "sgd";
    check_refused(folder, &options, BERTH_EUNSUPPORTED, "sgd is no optimizer");
    train.optimizer = "adamw_torch";
    check_refused(folder, &options, BERTH_EUNSUPPORTED,
                  "16-bit states here, which berth does not: choose adamw_8bit, adamw_32bit,");
    train.optimizer = "sgd_momentum";
    check_refused(folder, &options, BERTH_EUNSUPPORTED, "choose sgd_8bit, or another");
    train.optimizer = "rmsprop";
    check_refused(folder, &options, BERTH_EUNSUPPORTED, "choose rmsprop_bnb_8bit, or another");
    train.optimizer = "adamw_9bit";
    check_refused(folder, &options, BERTH_EINVAL, "optimizer");
    train = planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_8bit");
    train.lora_targets = "x_proj";
    check_refused(folder, &options, BERTH_EINVAL, "x_proj");
    train.is_packed = 1;
    check_refused(folder, &options, BERTH_EINVAL, "is_packed");
    train.is_packed = 0;
    options.context = 0;
    check_refused(folder, &options, BERTH_EINVAL, "needs a context");
}

/* What is wrong with config.json is the error itself: there is no plan to warn beside. */
static void
test_config_that_cannot_be_read(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=4GiB,cpu=4GiB");
    const char *const folder = planned_llama(1, true);
    const char *const config = fixture_format("%s/config.json", folder);
    planned p;

    fixture_text(config, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": "
                         "\"llama\", \"num_attention_heads\": \"x\"}");
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_EFORMAT);
    CHECK_EQ(p.error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_STR(p.error.file, config);
    CHECK_CONTAINS(p.error.message, "\"num_attention_heads\" is not a whole number");
    CHECK_EQ(p.finding_count, 0);
    planned_end(&p);
    CHECK_EQ(remove(config), 0);
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_EFORMAT);
    CHECK_EQ(p.error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_STR(p.error.file, config);
    CHECK_CONTAINS(p.error.message, "the model's config.json, and there is none");
    CHECK_EQ(p.finding_count, 0);
    planned_end(&p);
}

static void
add(fixture_builder *b, const char *name, uint32_t rank, uint64_t first, uint64_t second,
    uint64_t third)
{
    const uint64_t shape[] = { first, second, third };

    fixture_add_sparse(b, name, "BF16", rank, shape);
}

/* GPT-OSS with one layer, whose experts are two tensors. */
static const char *
stacked(void)
{
    static const char *const projections[] = { "q", "k", "v", "o" };
    static const char layer[] = "model.layers.0";
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    add(b, "model.embed_tokens.weight", 2, 8192, 1024, 0);
    add(b, "model.norm.weight", 1, 1024, 0, 0);
    add(b, "lm_head.weight", 2, 8192, 1024, 0);
    add(b, fixture_format("%s.input_layernorm.weight", layer), 1, 1024, 0, 0);
    add(b, fixture_format("%s.post_attention_layernorm.weight", layer), 1, 1024, 0, 0);
    add(b, fixture_format("%s.self_attn.sinks", layer), 1, 8, 0, 0);
    for (int i = 0; i < 4; i++) {
        add(b, fixture_format("%s.self_attn.%s_proj.weight", layer, projections[i]), 2, 1024,
            1024, 0);
        add(b, fixture_format("%s.self_attn.%s_proj.bias", layer, projections[i]), 1, 1024, 0,
            0);
    }
    add(b, fixture_format("%s.mlp.router.weight", layer), 2, 4, 1024, 0);
    add(b, fixture_format("%s.mlp.router.bias", layer), 1, 4, 0, 0);
    add(b, fixture_format("%s.mlp.experts.gate_up_proj", layer), 3, 4, 1024, 1024);
    add(b, fixture_format("%s.mlp.experts.gate_up_proj_bias", layer), 2, 4, 1024, 0);
    add(b, fixture_format("%s.mlp.experts.down_proj", layer), 3, 4, 512, 1024);
    add(b, fixture_format("%s.mlp.experts.down_proj_bias", layer), 2, 4, 1024, 0);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 512, \"num_hidden_layers\": 1, "
                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"head_dim\": 128, "
                 "\"vocab_size\": 8192, \"num_local_experts\": 4, "
                 "\"num_experts_per_tok\": 2, \"torch_dtype\": \"bfloat16\", "
                 "\"tie_word_embeddings\": false}");
    return folder;
}

/* A Llama of one layer whose tensors are no numbers that can be trained. */
static const char *
whole_numbers(void)
{
    static const char *const matrices[] = { "self_attn.q", "self_attn.k", "self_attn.v",
                                            "self_attn.o", "mlp.gate",    "mlp.up",
                                            "mlp.down" };
    static const char *const norms[] = { "norm", "layers.0.input_layernorm",
                                         "layers.0.post_attention_layernorm" };
    static const uint64_t table[] = { 8192, 1024 };
    static const uint64_t matrix[] = { 1024, 1024 };
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_add_sparse(b, "model.embed_tokens.weight", "I32", 2, table);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        fixture_add_sparse(b, fixture_format("model.%s.weight", norms[i]), "I32", 1, matrix);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        fixture_add_sparse(b, fixture_format("model.layers.0.%s_proj.weight", matrices[i]),
                           "I32", 2, matrix);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 1024, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                 "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": true}");
    return folder;
}

/* A Llama of which nothing is there but the embeddings and the last norm. */
static const char *
without_layers(void)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    add(b, "model.embed_tokens.weight", 2, 8192, 1024, 0);
    add(b, "model.norm.weight", 1, 1024, 0, 0);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 1024, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                 "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": true}");
    return folder;
}

static void
test_what_cannot_be_trained(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=4GiB,cpu=4GiB");

    train.lora_targets = "q_proj,gate_up_proj";
    check_refused(stacked(), &options, BERTH_EUNSUPPORTED, "holds several experts");
    train.lora_targets = "q_proj";
    check_fits(stacked(), &options);
    train.method = BERTH_TRAIN_FULL;
    check_refused(whole_numbers(), &options, BERTH_EINVAL,
                  "`train` finds no tensor of bf16, f16 or f32 to train");
    train.method = BERTH_TRAIN_LORA;
    train.lora_targets = NULL;
    check_refused(without_layers(), &options, BERTH_EINVAL,
                  "`train` finds no linear layer that adapters could be for");
    train.lora_targets = "q_proj";
    check_refused(without_layers(), &options, BERTH_EINVAL, "\"q_proj\" names no");
    train.lora_rank = UINT64_C(1) << 25;
    check_refused(planned_llama(1, false), &options, BERTH_EINVAL,
                  "has more elements trained than can be planned");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_refusals);
    T_RUN(test_config_that_cannot_be_read);
    T_RUN(test_what_cannot_be_trained);
    T_MAIN_END;
}
