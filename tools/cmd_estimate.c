/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_estimate.c - `berth estimate`: will it fit, before loading or downloading. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cmd_estimate.h"
#include "tools/commands.h"
#include "tools/estimate_print.h"
#include "tools/input.h"
#include "tools/save.h"

#define TOKENS_LIMIT   ((size_t)256 << 20)
#define SHOWN_CAPACITY 128

static const cli_option estimate_options[] = {
    { "type", 't', CLI_CHOICE, offsetof(estimate_arguments, type), ESTIMATE_TYPES, NULL,
     "native", "how the weights of linear layers are stored; native: as they are" },
    { "double-quant", '\0', CLI_FLAG, offsetof(estimate_arguments, is_double), NULL, NULL,
     NULL, "4-bit: the block maxima as 8-bit codes, too" },
    { "block-size", '\0', CLI_NUMBER, offsetof(estimate_arguments, block_size), "N", NULL,
     "64", "4-bit: elements that share a maximum, 32 to 4096, a power of two" },
    { "dtype", '\0', CLI_CHOICE, offsetof(estimate_arguments, dtype), ENCODING_DTYPES,
     NULL, "model", "what is computed in; native weights are cast to it" },
    { "keep-experts", '\0', CLI_FLAG, offsetof(estimate_arguments, keeps_experts), NULL,
     NULL, NULL, "experts stay unquantized, as transformers 5 leaves fused ones" },
    { "context", 'c', CLI_ENTRIES, offsetof(estimate_arguments, contexts), "N[,N...]", NULL,
     NULL, "tokens of a sequence, or several for a table; 4096, 8k, 128k" },
    { "prompt", '\0', CLI_TEXT, offsetof(estimate_arguments, prompt), "N", NULL, NULL,
     "tokens computed at once, when chunked; without it, or in a shorter context, all" },
    { "source", '\0', CLI_TEXT, offsetof(estimate_arguments, source), "N", NULL, NULL,
     "encoder-decoder models: tokens of the encoder's input; without it, as the context, or "
     "the positions it has" },
    { "batch", 'b', CLI_TEXT, offsetof(estimate_arguments, batch), "N", NULL, "1",
     "sequences at a time; training: of a micro-batch" },
    { "cache-type", '\0', CLI_CHOICE, offsetof(estimate_arguments, cache_type),
     ESTIMATE_CACHE_TYPES, NULL, "dtype",
     "how the KV cache is kept; dtype: as computed in" },
    { "expand-latents", '\0', CLI_FLAG, offsetof(estimate_arguments, expands_latents),
     NULL, NULL, NULL, "MLA: keys and values in full, as transformers keeps them" },
    { "eager", '\0', CLI_FLAG, offsetof(estimate_arguments, is_eager), NULL, NULL, NULL,
     "attention without a fused kernel" },
    { "all-logits", '\0', CLI_FLAG, offsetof(estimate_arguments, has_all_logits), NULL,
     NULL, NULL, "logits of every position of the prompt" },
    { "fit", '\0', CLI_ENTRIES, offsetof(estimate_arguments, budgets), "SIZE[,SIZE...]", NULL,
     NULL, "memory of each device: what fits, and what to do if it does not" },
    { "reserve-percent", '\0', CLI_TEXT, offsetof(estimate_arguments, reserve), "N", NULL,
     "10", "of each device kept free" },
    { "host-memory", '\0', CLI_SIZE, offsetof(estimate_arguments, host_bytes), "SIZE",
     NULL, NULL, "for layers that leave the device; without it, as much as needed" },
    { "tokens", '\0', CLI_TEXT, offsetof(estimate_arguments, tokens), "FILE", NULL, NULL,
     "plan for these lengths, one a line; - for standard input" },
    TRAIN_OPTIONS(estimate_arguments, train, "adamw_torch"),
    { "accumulate", '\0', CLI_NUMBER, offsetof(estimate_arguments, accumulation), "N",
     NULL, "1", "micro-batches a step" },
    TRAIN_GRADIENT_OPTIONS(estimate_arguments, train),
    { "packed", '\0', CLI_FLAG, offsetof(estimate_arguments, is_packed), NULL, NULL, NULL,
     "batches without padding; needs --tokens" },
    TRAIN_LOSS_OPTION(estimate_arguments, train),
    { "prefetch", '\0', CLI_TEXT, offsetof(estimate_arguments, prefetch), "N", NULL, "0",
     "batches uploaded ahead of time" },
    { "workers", '\0', CLI_TEXT, offsetof(estimate_arguments, workers), "N", NULL, "2",
     "of the data loader, with pinned buffers" },
    { "prefetch-factor", '\0', CLI_NUMBER, offsetof(estimate_arguments, prefetch_factor),
     "N", NULL, "2", "batches that each worker prepares" },
    { "runtime", '\0', CLI_SIZE, offsetof(estimate_arguments, runtime_bytes), "SIZE", NULL,
     "512MiB", "context of the runtime on a device; measure yours" },
    { "workspace", '\0', CLI_SIZE, offsetof(estimate_arguments, workspace_bytes), "SIZE",
     NULL, "32MiB", "of matrix products" },
    { "fragmentation", '\0', CLI_TEXT, offsetof(estimate_arguments, fragmentation), "N",
     NULL, "5", "percent that an allocator loses of what comes and goes" },
    { "svg", '\0', CLI_TEXT, offsetof(estimate_arguments, svg), "FILE", NULL, NULL,
     "the breakdown as a picture, too; -: print nothing else" },
    { "force", 'f', CLI_FLAG, offsetof(estimate_arguments, may_overwrite), NULL, NULL,
     NULL, "replace a file that exists" },
    { "json", '\0', CLI_FLAG, offsetof(estimate_arguments, wants_json), NULL, NULL, NULL,
     "one JSON object: berth-estimate(5)" },
    MODEL_OPTIONS(estimate_arguments),
};

static const cli_example estimate_examples[] = {
    { "berth estimate org/name --type nf4 --double-quant --context 8k,32k,128k",
     "what it needs, for all types and three contexts" },
    { "berth estimate ./config.json --fit 24GiB",
     "nothing downloaded yet: the best type, the longest context, the fewest GPUs" },
    { "berth estimate ./model --fit 24GiB,24GiB --context 32k",
     "whole layers over two devices" },
    { "berth estimate ./model --train=qlora --optimizer paged_adamw_8bit "
     "--checkpoint-every 1 --fit 80GB",
     "fine-tuning on one card, with advice when it does not fit" },
    { "berth estimate ./model --tokens lengths.txt --fit 24GiB",
     "batches of the sequences really seen: padded, packed, the largest that fit" },
    { "berth estimate ./model --train --svg breakdown.svg", "the breakdown as a picture" },
};

static const char *const estimate_description[] = {
    "Says what a model needs, line by line: weights in an encoding, KV cache, "
    "activations, "
    "the runtime; with --train gradients, optimizer states, what the backward pass "
    "keeps. "
    "Each line says how it was found: exact (sizes of tensors), formula, measured (a "
    "formula equal to measurements) or estimate. With -v it says how it was computed.",
    "MODEL is what other commands take, or a folder with nothing but config.json (and an "
    "index), or a config.json, whatever it is called. Where there are weights, their "
    "headers count; nothing else "
    "of them is read.",
    "With --fit the answer goes backwards: which types fit, the longest context of each, "
    "the fewest devices; and when it does not fit, what to do, in the order of what "
    "saves "
    "most at least cost, until it fits. Exit code 6: none of that helps.",
    "Formulas, their sources and limits, and the JSON are in berth-estimate(5). Figures "
    "that guides publish for such a model are shown beside berth's own, with what lies "
    "between them.",
    NULL,
};

/* -------------------------------------------------------------------------- files */

static bool
is_folder(int fd)
{
    struct stat found;

    return fstat(fd, &found) == 0 && S_ISDIR(found.st_mode);
}

static berth_status
read_tokens(estimate_call *r)
{
    const char *const path = r->a->tokens;
    const bool is_input = input_is_standard(path);
    char shown[SHOWN_CAPACITY];
    size_t bytes = 0;
    berth_status status;
    int fd;

    if (path == NULL)
        return BERTH_OK;
    if (path[0] == '\0')
        return cli_usage_error(r->s->call->command,
                               "--tokens: the name of the file is empty; give one");
    fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const char *const why = strerror(errno);

        berth_text_escape(path, strlen(path), shown, sizeof shown);
        return cli_failure(r->s->call->command, BERTH_ENOENT, "--tokens: %s: %s", shown,
                           why);
    }
    if (!is_input && is_folder(fd)) {
        close(fd);
        berth_text_escape(path, strlen(path), shown, sizeof shown);
        return cli_failure(r->s->call->command, BERTH_EINVAL,
                           "--tokens: %s: is a folder; name a file of lengths in it", shown);
    }
    status = input_read(r->s->call->command, "--tokens", fd, TOKENS_LIMIT, &r->tokens, &bytes);
    if (!is_input)
        close(fd);
    r->options.tokens = r->tokens;
    r->options.tokens_bytes = bytes;
    r->options.tokens_file = is_input ? INPUT_NAME : path;
    return status;
}

static berth_status
write_svg(const estimate_call *r, const estimation *e)
{
    berth_status status;
    save v;

    if (r->a->svg == NULL)
        return BERTH_OK;
    status = save_begin(&v, r->s->call->command, r->a->svg, r->a->may_overwrite);
    if (status != BERTH_OK)
        return status;
    estimate_write_svg(&v.out, e);
    return save_end(&v, BERTH_OK);
}

/* ----------------------------------------------------------------------- running */

static const char *
shown_dtype(int32_t dtype)
{
    return dtype == BERTH_F32 ? "f32" : dtype == BERTH_F16 ? "f16" : "bf16";
}

/* As the library has decided. */
static void
name_types(const estimate_call *r, estimation *e)
{
    const berth_estimate_options *const o = &r->options;
    const char *const type = o->type != NULL ? o->type : "native";
    const bool is_plain =
        strcmp(type, "f32") == 0 || strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0;

    e->dtype = o->dtype >= 0 ? shown_dtype(o->dtype)
               : is_plain    ? type
                             : shown_dtype(e->model.dtype);
    e->type = o->type == NULL && o->dtype >= 0 ? e->dtype : type;
    if (o->double_quant)
        e->type = strcmp(type, "nf4") == 0 ? "nf4+double-quant" : "fp4+double-quant";
}

static berth_status
show(estimate_call *r)
{
    estimation e = { .shape = r->shape, .estimate = r->estimate, .options = &r->options };
    berth_status status;

    berth_shape_get(r->shape, &e.model);
    berth_estimate_get(r->estimate, &e.summary);
    name_types(r, &e);
    status = write_svg(r, &e); /* before anything says that all is well */
    if (status != BERTH_OK)
        return status;
    status = e.summary.has_budget && !e.summary.can_fit ? BERTH_ENOFIT : BERTH_OK;
    if (r->a->wants_json)
        estimate_write_json(r->s, &e, status);
    else if (!input_is_standard(r->a->svg)) /* which takes nothing else */
        estimate_print(r->s, &e);
    output_flush(&r->s->out);
    if (status != BERTH_OK)
        cli_failure(r->s->call->command, status,
                    "it does not fit, and nothing that is known here helps; give more "
                    "memory, or choose a smaller model");
    return status;
}

static berth_status
estimate_model(estimate_call *r)
{
    berth_open_options options;
    berth_error error;
    berth_status status;

    berth_open_options_init(&options);
    model_options_fill(&options, &r->a->model);
    status = berth_shape_open(r->s->context, r->a->common.operands[0], &options,
                              &r->shape, &error);
    if (status == BERTH_OK)
        status = berth_estimate_create(r->s->context, r->shape, &r->options, &r->estimate,
                                       &error);
    if (status == BERTH_OK)
        return show(r);
    return cli_error(r->s->call, &error);
}

static berth_status
estimate_run(session *s)
{
    estimate_call r = { .s = s, .a = s->call->arguments };
    berth_status status;

    status = estimate_take_arguments(&r);
    if (status == BERTH_OK)
        status = read_tokens(&r);
    if (status == BERTH_OK)
        status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);
    if (status == BERTH_OK)
        status = estimate_model(&r);
    berth_estimate_destroy(r.estimate);
    berth_shape_close(r.shape);
    free(r.tokens);
    return status;
}

const cli_command estimate_command = {
    .name = "estimate",
    .help = "what a model needs, and what fits, before it is loaded",
    .description = estimate_description,
    .operand = "MODEL",
    CLI_OPTIONS(estimate_options, estimate_arguments),
    .examples = estimate_examples,
    .example_count = sizeof estimate_examples / sizeof estimate_examples[0],
    .settle = model_settle,
    .run = estimate_run,
};
