/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_arguments.h - how a model is trained: the arguments and options that `berth
 * estimate` and `berth plan` share.
 */
#ifndef BERTH_TOOLS_TRAIN_ARGUMENTS_H
#define BERTH_TOOLS_TRAIN_ARGUMENTS_H

#include "loader/berth.h"
#include "tools/cli.h"

#define TRAIN_PRECISIONS "pure|autocast|master"

typedef struct train_arguments {
    const char *method; /* NULL: inference */
    const char *optimizer;
    uint32_t lora_rank;
    const char *lora_targets;
    int32_t precision;  /* in TRAIN_PRECISIONS */
    uint32_t checkpoint_every;
    bool accumulates_f32;
    bool has_fused_norms;
    uint32_t loss_chunk;
} train_arguments;

/* Rows of an option table; `member` is the train_arguments of struct `type`. */
#define TRAIN_OPTIONS(type, member, name)                                                  \
    { "train", '\0', CLI_OPTIONAL, offsetof(type, member.method), "full|lora|qlora",      \
      NULL, NULL, "training instead of inference; lora where a --lora option is given" }, \
    { "optimizer", '\0', CLI_TEXT, offsetof(type, member.optimizer), "NAME", NULL, name,  \
      "by its usual name: adamw_8bit, paged_adamw_32bit, lion, sgd_8bit, ..." },          \
    { "lora-rank", '\0', CLI_NUMBER, offsetof(type, member.lora_rank), "N", NULL, "16",   \
      "of the adapters" },                                                                 \
    { "lora-targets", '\0', CLI_ENTRIES, offsetof(type, member.lora_targets), "A,B", NULL,   \
      "all-linear", "adapted modules, such as q_proj,v_proj" },                            \
    { "precision", '\0', CLI_CHOICE, offsetof(type, member.precision), TRAIN_PRECISIONS,  \
      NULL, "pure", "everything in the dtype; f32 weights cast for use; an f32 copy" },   \
    { "checkpoint-every", '\0', CLI_NUMBER, offsetof(type, member.checkpoint_every), "N", \
      NULL, NULL, "gradient checkpointing every N layers; without it, none" }
#define TRAIN_GRADIENT_OPTIONS(type, member)                                               \
    { "accumulate-f32", '\0', CLI_FLAG, offsetof(type, member.accumulates_f32), NULL,     \
      NULL, NULL, "gradients in f32" },                                                    \
    { "fused-norms", '\0', CLI_FLAG, offsetof(type, member.has_fused_norms), NULL, NULL,  \
      NULL, "norms that keep their input only (Liger and the like)" }
#define TRAIN_LOSS_OPTION(type, member)                                                    \
    { "loss-chunk", '\0', CLI_NUMBER, offsetof(type, member.loss_chunk), "N", NULL, NULL, \
      "positions whose logits are there at a time; without it, all" }

/* Their names, ended by NULL. */
extern const char *const train_option_names[];

/* Whether --train=qlora was given: on 4 bits, unless another type is. */
bool train_is_qlora(const train_arguments *arguments);
/* The library's options; what is wrong is printed. There is a method. */
berth_status train_fill(const cli_call *call, const train_arguments *arguments,
                        berth_train_options *out);

#endif
