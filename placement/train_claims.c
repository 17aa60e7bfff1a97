/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_claims.c - figures that users' guides quote, and why they are others.
 *
 * Each says of which model and training it speaks. An estimate of the same kind gets
 * it beside its own number, with what lies between the two.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "placement/train_lines.h"

#define MB UINT64_C(1000000)
#define TOLERANCE_PERCENT 3u

typedef struct claiming {
    const berthi_estimate_model *model;
    const berthi_estimate_options *base;
    const berthi_train_options *options; /* NULL: inference */
    const berthi_estimate *estimate;
    uint64_t parameters;
    berthi_claim *out;
    uint32_t count;
} claiming;

/* ------------------------------------------------------------------------ adding */

/* Adds a row; its reason is written by the caller. */
static char *
add(claiming *c, const char *table, const char *what, uint64_t claimed_mb, uint64_t ours)
{
    berthi_claim *const claim = &c->out[c->count++];

    claim->table = table;
    claim->what = what;
    claim->claimed = claimed_mb * MB;
    claim->ours = ours;
    return claim->reason;
}

__attribute__((format(printf, 2, 3))) static void
say(char *reason, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, BERTHI_REASON_CAPACITY, format, arguments);
    va_end(arguments);
}

static uint64_t
sum_of(const claiming *c, const int32_t *parts, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += berthi_estimate_bytes(c->estimate, parts[i]);
    return bytes;
}

static uint64_t
activations(const claiming *c)
{
    static const int32_t parts[] = { BERTHI_PART_ACTIVATIONS, BERTHI_PART_CHECKPOINTS,
                                     BERTHI_PART_RECOMPUTED };

    return sum_of(c, parts, 3);
}

static uint64_t
weights(const claiming *c)
{
    static const int32_t parts[] = { BERTHI_PART_LINEARS, BERTHI_PART_OTHERS };

    return sum_of(c, parts, 2);
}

static uint64_t
states(const claiming *c)
{
    static const int32_t parts[] = { BERTHI_PART_OPTIMIZER, BERTHI_PART_PAGED };

    return sum_of(c, parts, 2);
}

static bool
is_about(const claiming *c, uint64_t billions)
{
    const uint64_t wanted = billions * 1000 * MB;

    return c->parameters >= wanted / 100 * (100 - TOLERANCE_PERCENT)
           && c->parameters <= wanted / 100 * (100 + TOLERANCE_PERCENT);
}

/* ------------------------------------------------------------------------ tables */

static void
claim_adamw_70b(claiming *c, const berthi_optimizer *optimizer)
{
    static const char table[] = "AdamW of a 70B model";

    if (optimizer->bits == BERTHI_STATES_8)
        say(add(c, table, "optimizer, 8-bit", 140000, states(c)),
            "2 bytes times 70 * 10^9; here %" PRIu64
            " parameters, 1/64 more for block maxima, and f32 for small tensors",
            c->parameters);
    else
        say(add(c, table, "optimizer", 560000, states(c)),
            "8 bytes times 70 * 10^9; here %" PRIu64 " parameters%s", c->parameters,
            states(c) / 6 < c->parameters ? " with states in the dtype of the weights" : "");
}

static void
claim_13b(claiming *c)
{
    static const char table[] = "Llama-2 13B, full";
    const bool is_checkpointed = c->options->checkpoint_every > 0;
    const uint64_t tokens = berthi_train_tokens(c->options);
    const uint64_t kept = activations(c);

    say(add(c, table, "weights", 26000, weights(c)),
        "2 bytes times 13 * 10^9; here %" PRIu64 " parameters", c->parameters);
    say(add(c, table, "gradients", 26000,
            berthi_estimate_bytes(c->estimate, BERTHI_PART_GRADIENTS)),
        "in 16 bits; f32 where they are accumulated so");
    say(add(c, table, "optimizer", 52000, states(c)),
        "two states in bf16; in f32 they are 104 GB, and the totals 168 and 159");
    say(add(c, table, "activations", is_checkpointed ? 3000 : 12000, kept),
        is_checkpointed
            ? "checkpointing at a few thousand tokens; here %" PRIu64 " tokens of %" PRIu64
              " B"
            : "about 1280 tokens with a fused kernel; here %" PRIu64 " tokens of %" PRIu64
              " B",
        tokens, kept / tokens);
    say(add(c, table, "total", is_checkpointed ? 107000 : 116000,
            c->estimate->device_bytes),
        "the sum of the four; head and loss, batches and runtime come on top here");
}

static void
claim_qlora_70b(claiming *c)
{
    static const char table[] = "70B QLoRA on one 80 GB card";
    static const int32_t batch[] = { BERTHI_PART_LOSS, BERTHI_PART_BATCHES };
    static const int32_t overhead[] =
        { BERTHI_PART_CONTEXT, BERTHI_PART_WORKSPACE, BERTHI_PART_FRAGMENTATION,
          BERTHI_PART_DEQUANTIZED, BERTHI_PART_FINAL_NORM };

    say(add(c, table, "model", 35000, weights(c)),
        "half a byte for everything; embeddings and head stay in 16 bits, and blocks "
        "have their maxima: 36.4 GB doubly quantized, 39.6 without (Llama 3: 39.5, 42.7)");
    say(add(c, table, "LoRA", 500,
            berthi_estimate_bytes(c->estimate, BERTHI_PART_ADAPTERS)),
        "rank 16 on all linear layers is 207093760 parameters: 0.41 GB in bf16, 0.83 in "
        "f32");
    say(add(c, table, "activations", 8000, activations(c)),
        "7.0 GB with checkpointing at 4096 tokens: 5.4 of inputs, 1.6 of one layer; here "
        "%" PRIu64 " tokens%s",
        berthi_train_tokens(c->options),
        c->options->checkpoint_every > 0 ? "" : " without checkpointing");
    say(add(c, table, "gradients", 500,
            berthi_estimate_bytes(c->estimate, BERTHI_PART_GRADIENTS)),
        "of the adapters alone");
    say(add(c, table, "optimizer", 1000, states(c)),
        "8-bit states of the adapters are 0.42 GB, f32 ones 1.66");
    say(add(c, table, "batch", 10000, sum_of(c, batch, 2)),
        "logits and loss: 32000 words * 4096 tokens * 10 B are 1.3 GB (128256 words: "
        "5.3), so 10 is generous");
    say(add(c, table, "overhead", 5000, sum_of(c, overhead, 5)),
        "context, workspace, one weight dequantized, final norm and fragmentation");
    say(add(c, table, "total", 75000, c->estimate->device_bytes),
        "the parts quoted add up to 60 GB; with 5 GB of overhead ours are 51 to 54 at "
        "4096 tokens of Llama 2");
}

static void
claim_405b(claiming *c)
{
    static const char table[] = "405B in 4 bits";

    say(add(c, table, "model", 200000, weights(c)),
        "half a byte for everything; 215.6 GB doubly quantized, 234.3 without. Four "
        "devices of 70 GB less a tenth hold 252");
}

/* Its share of the activations without it, from the same formula. */
static void
claim_checkpointing(claiming *c)
{
    berthi_train_options without = *c->options;
    berthi_estimate estimate;
    uint64_t all;
    char *reason;

    without.checkpoint_every = 0;
    if (berthi_train_estimate(c->model, &without, &estimate, NULL) != BERTH_OK)
        return;
    all = berthi_estimate_bytes(&estimate, BERTHI_PART_ACTIVATIONS);
    if (all == 0)
        return;
    reason = add(c, "checkpointing saves 30 to 50 %", "activations", 0, activations(c));
    c->out[c->count - 1].claimed = all / 2;
    say(reason,
        "of %" PRIu64 " B without it %" PRIu64
        " %% are left, for a third of a step's arithmetic; 30 to 50 %% is selective "
        "checkpointing",
        all, activations(c) / (all / 100 + 1));
}

/* ------------------------------------------------------------------------- which */

static bool
is_4bit(int32_t type)
{
    return type >= BERTHI_TYPE_NF4 && type < BERTHI_TYPE_COUNT;
}

static void
claim_full(claiming *c)
{
    const berthi_optimizer *const optimizer =
        berthi_optimizer_find(c->options->optimizer);

    if (optimizer->states != 2)
        return;
    if (is_about(c, 70))
        claim_adamw_70b(c, optimizer);
    if (is_about(c, 13))
        claim_13b(c);
}

uint32_t
berthi_train_claims(const berthi_estimate_model *model,
                    const berthi_estimate_options *base,
                    const berthi_train_options *options, const berthi_estimate *estimate,
                    berthi_claim out[BERTHI_CLAIMS])
{
    claiming c = { .model = model, .base = base, .options = options,
                   .estimate = estimate, .out = out };
    berthi_weight_sums sums;

    berthi_estimate_weights(model, base, &sums);
    c.parameters = sums.parameters;
    if (options != NULL && options->method == BERTHI_METHOD_FULL)
        claim_full(&c);
    if (options != NULL && options->method == BERTHI_METHOD_LORA && is_about(&c, 70)
        && is_4bit(base->type))
        claim_qlora_70b(&c);
    if (is_about(&c, 405) && is_4bit(base->type))
        claim_405b(&c);
    if (options != NULL && options->checkpoint_every > 0)
        claim_checkpointing(&c);
    return c.count;
}
