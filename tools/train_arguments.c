/* SPDX-License-Identifier: Apache-2.0 */
/* train_arguments.c - see train_arguments.h. */
#include "tools/train_arguments.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_CAPACITY 128

const char *const train_option_names[] =
    { "optimizer",        "lora-rank",      "lora-targets", "precision",
      "checkpoint-every", "accumulate-f32", "fused-norms",  "loss-chunk", NULL };

bool
train_is_qlora(const train_arguments *a)
{
    return a->method != NULL && strcmp(a->method, "qlora") == 0;
}

static bool
is_known_optimizer(const char *name)
{
    const char *known;

    for (uint32_t i = 0; (known = berth_optimizer_name(i)) != NULL; i++)
        if (strcmp(known, name) == 0)
            return true;
    return false;
}

#define NAMES_MOST 128

/* All of them, where none is near. */
static berth_status
unknown_optimizer(const cli_call *call, const char *name)
{
    const char *names[NAMES_MOST];
    const char *nearest;
    char shown[SHOWN_CAPACITY];
    char list[768] = "";
    uint32_t count = 0;
    size_t n = 0;

    while (count < NAMES_MOST && (names[count] = berth_optimizer_name(count)) != NULL)
        count++;
    nearest = cli_nearest(name, names, count, sizeof names[0]);
    berth_text_escape(name, strlen(name), shown, sizeof shown);
    if (nearest != NULL)
        return cli_usage_error(call->command,
                               "--optimizer: `%s` is not known; did you mean `%s`?", shown,
                               nearest);
    for (uint32_t i = 0; i < count && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? "|" : "", names[i]);
    return cli_usage_error(call->command, "--optimizer: `%s` is not one of %s", shown, list);
}

/* QLoRA is LoRA on 4 bits. */
static berth_status
take_method(const cli_call *call, const train_arguments *a, berth_train_options *out)
{
    const char *const word = a->method;
    const bool has_adapters =
        cli_is_given(call, "lora-rank") || cli_is_given(call, "lora-targets");
    const bool is_lora = strcmp(word, "lora") == 0 || train_is_qlora(a);

    if (word[0] != '\0' && !is_lora && strcmp(word, "full") != 0)
        return cli_bad_value(call, "train", word, strlen(word), "one of full|lora|qlora");
    if (has_adapters && strcmp(word, "full") == 0)
        return cli_usage_error(call->command,
                               "--train=full has no adapters: no --lora-rank "
                               "and --lora-targets");
    out->method = is_lora || (word[0] == '\0' && has_adapters) ? BERTH_TRAIN_LORA
                                                               : BERTH_TRAIN_FULL;
    return BERTH_OK;
}

berth_status
train_fill(const cli_call *call, const train_arguments *a, berth_train_options *out)
{
    if (!is_known_optimizer(a->optimizer))
        return unknown_optimizer(call, a->optimizer);
    out->optimizer = a->optimizer;
    out->lora_targets = a->lora_targets;
    out->lora_rank = a->lora_rank;
    out->precision = a->precision; /* in the order of TRAIN_PRECISIONS */
    out->checkpoint_every = a->checkpoint_every;
    out->accumulates_f32 = a->accumulates_f32;
    out->has_fused_norms = a->has_fused_norms;
    out->loss_chunk = a->loss_chunk;
    return take_method(call, a, out);
}
