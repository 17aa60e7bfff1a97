/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_estimate_options.c - numbers, lists and words of `berth estimate`, checked. */
#include <string.h>

#include "tools/cmd_estimate.h"
#include "tools/input.h"
#include "tools/number.h"

/* ----------------------------------------------------------------------- numbers */

static berth_status
bad_value(const estimate_call *r, const char *option, const char *text, size_t length,
          const char *wanted)
{
    return cli_bad_value(r->s->call, option, text, length, wanted);
}

/* NULL leaves *out as it is. */
static berth_status
take_number(const estimate_call *r, const char *option, const char *text, uint64_t least,
            uint64_t most, const char *wanted, uint64_t *out)
{
    uint64_t number;

    if (text == NULL)
        return BERTH_OK;
    if (!number_can_parse_tokens(text, strlen(text), &number) || number < least || number > most)
        return bad_value(r, option, text, strlen(text), wanted);
    *out = number;
    return BERTH_OK;
}

/* An entry of a list; `is_size`: bytes, else tokens. */
static bool
is_entry(const char *text, size_t length, bool is_size, uint64_t *out)
{
    char entry[64];

    if (!is_size)
        return number_can_parse_tokens(text, length, out) && *out > 0;
    if (length >= sizeof entry)
        return false;
    memcpy(entry, text, length);
    entry[length] = '\0';
    return berth_size_parse(entry, out, NULL) == BERTH_OK && *out > 0;
}

static berth_status
take_list(const estimate_call *r, const char *option, const char *text, bool is_size,
          uint64_t *list, uint32_t *out_count)
{
    *out_count = 0;
    while (text != NULL) {
        const size_t length = strcspn(text, ",");

        if (*out_count == ESTIMATE_MAX_LIST)
            return cli_usage_error(r->s->call->command, "--%s: more than %d entries",
                                   option, ESTIMATE_MAX_LIST);
        if (!is_entry(text, length, is_size, &list[*out_count]))
            return bad_value(r, option, text, length,
                             is_size ? "a size such as 24GiB, below 16 EiB"
                                     : "a number of tokens such as 4096 or 8k, "
                                       "up to " NUMBER_MOST_TEXT);
        ++*out_count;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- checks */

static berth_status
refuse_all(const estimate_call *r, const char *const *names, const char *why)
{
    berth_status status = BERTH_OK;

    for (; *names != NULL && status == BERTH_OK; names++)
        status = cli_refuse(r->s->call, *names, why);
    return status;
}

static berth_status
check_arguments(const estimate_call *r)
{
    static const char *const of_estimates[] = { "accumulate", "packed", "prefetch",
                                                "workers", "prefetch-factor", NULL };
    static const char *const of_inference[] = {
        "prompt", "source", "cache-type", "expand-latents", "all-logits", NULL };
    static const char *const of_fit[] = { "reserve-percent", "host-memory", NULL };
    const bool is_training = r->a->train.method != NULL;
    berth_status status = is_training
                              ? refuse_all(r, of_inference, "with --train")
                              : refuse_all(r, train_option_names, "without --train");

    if (status == BERTH_OK && !is_training)
        status = refuse_all(r, of_estimates, "without --train");
    if (status == BERTH_OK && input_is_standard(r->a->svg))
        status = cli_refuse(r->s->call, "json", "with --svg=-");
    if (status == BERTH_OK && r->a->budgets == NULL)
        status = refuse_all(r, of_fit, "without --fit");
    if (status == BERTH_OK && r->a->svg == NULL)
        status = cli_refuse(r->s->call, "force", "without --svg");
    if (status == BERTH_OK)
        status = input_spare(r->s->call, "svg", r->a->svg);
    if (status == BERTH_OK && r->a->is_packed && r->a->tokens == NULL)
        status = cli_usage_error(r->s->call->command, "--packed needs --tokens");
    if (status == BERTH_OK && r->a->block_size != 0)
        status = encoding_check_block(r->s->call, r->a->block_size);
    return status;
}

/* ------------------------------------------------------------------------ options */

/* Words of the library for those of ESTIMATE_TYPES; NULL: as the weights are. */
static const char *
type_word(int32_t position)
{
    static const char *const words[] = { NULL,   NULL,  "int8", "nf4",  "fp4",
                                        "bf16", "f16", "f32",  "bf16", "f16",
                                        "f32",  "f16", "f32" };

    return words[position];
}

static const char *
cache_word(int32_t position)
{
    static const char *const words[] = { NULL,  "fp8",  "int8", "int4", "bf16", "f16",
                                        "f32", "bf16", "f16",  "f32",  "f16",  "f32" };

    return words[position];
}

static void
take_weights(estimate_call *r)
{
    berth_estimate_options *const options = &r->options;
    const char *const type = type_word(r->a->type);

    options->type = type;
    options->dtype = encoding_dtype(r->a->dtype);
    options->cache_type = cache_word(r->a->cache_type);
    options->double_quant = r->a->is_double;
    options->block_size = r->a->block_size;
    options->keeps_experts = r->a->keeps_experts;
    options->expands_latents = r->a->expands_latents;
    options->is_eager = r->a->is_eager;
    options->has_all_logits = r->a->has_all_logits;
}

/* After --train, which may have chosen the type. */
static berth_status
check_weights(const estimate_call *r)
{
    const char *const type = r->options.type;
    const bool is_4bit =
        type != NULL && (strcmp(type, "nf4") == 0 || strcmp(type, "fp4") == 0);

    if (is_4bit)
        return BERTH_OK;
    if (r->a->is_double)
        return cli_usage_error(r->s->call->command,
                               "--double-quant needs --type nf4 or fp4");
    return cli_refuse(r->s->call, "block-size", "without --type nf4 or fp4");
}

static berth_status
take_lengths(estimate_call *r)
{
    static const char tokens[] = "a number of tokens from 1 to " NUMBER_MOST_TEXT;
    const estimate_arguments *const a = r->a;
    berth_estimate_options *const options = &r->options;
    berth_status status =
        take_list(r, "context", a->contexts, false, r->contexts, &options->context_count);

    if (status == BERTH_OK && options->context_count > 1 && a->train.method != NULL)
        status = cli_usage_error(r->s->call->command,
                                 "--context: training is planned for one length");
    if (status == BERTH_OK && options->context_count > 0) {
        options->context = r->contexts[0];
        options->contexts = r->contexts;
    }
    if (status == BERTH_OK)
        status = take_number(r, "prompt", a->prompt, 1, UINT64_MAX, tokens, &options->prompt);
    if (status == BERTH_OK)
        status = take_number(r, "source", a->source, 1, UINT64_MAX, tokens, &options->source);
    if (status == BERTH_OK)
        status = take_number(r, "batch", a->batch, 1, UINT32_MAX,
                             "a number of sequences from 1 to 4294967295", &options->batch);
    return status;
}

static berth_status
take_memory(estimate_call *r)
{
    static const char percents[] = "a number from 0 to 100";
    const estimate_arguments *const a = r->a;
    berth_estimate_options *const options = &r->options;
    uint64_t percent = 10;
    uint64_t lost = 5;
    berth_status status =
        take_list(r, "fit", a->budgets, true, r->budgets, &options->budget_count);

    if (status == BERTH_OK)
        status = take_number(r, "reserve-percent", a->reserve, 0, 100, percents, &percent);
    if (status == BERTH_OK)
        status = take_number(r, "fragmentation", a->fragmentation, 0, 100, percents, &lost);
    if (status == BERTH_OK && options->budget_count > 1 && a->train.method != NULL)
        status = cli_usage_error(r->s->call->command,
                                 "--fit: training is planned for one device");
    options->budgets = options->budget_count > 0 ? r->budgets : NULL;
    options->reserve_percent = (uint32_t)percent;
    options->fragmentation_percent = (uint32_t)lost;
    /* None: 0 is as much as needed to the library, and one byte holds no layer. */
    options->host_bytes =
        a->host_bytes == 0 && cli_is_given(r->s->call, "host-memory") ? 1 : a->host_bytes;
    options->runtime_bytes = a->runtime_bytes;
    options->workspace_bytes = a->workspace_bytes;
    return status;
}

/* After --train: adapters are on 4 bits, or all weights are numbers. */
static berth_status
take_trained_type(estimate_call *r)
{
    if (train_is_qlora(&r->a->train) && !cli_is_given(r->s->call, "type"))
        r->options.type = "nf4";
    if (r->train.method == BERTH_TRAIN_FULL && r->options.type != NULL
        && r->options.type[0] != 'b' && strcmp(r->options.type, "f16") != 0
        && strcmp(r->options.type, "f32") != 0)
        return cli_usage_error(r->s->call->command,
                               "--type %s: such weights are trained with "
                               "adapters; see --train=lora",
                               r->options.type);
    return BERTH_OK;
}

static berth_status
take_training(estimate_call *r)
{
    const estimate_arguments *const a = r->a;
    berth_train_options *const train = &r->train;
    berth_status status;

    if (a->train.method == NULL)
        return BERTH_OK;
    r->options.train = train;
    status = train_fill(r->s->call, &a->train, train);
    train->accumulation = a->accumulation;
    train->is_packed = a->is_packed;
    train->prefetch_factor = a->prefetch_factor;
    if (status == BERTH_OK)
        status = take_number(r, "prefetch", a->prefetch, 0, UINT32_MAX,
                             "a number from 0 to 4294967295", &train->prefetch);
    if (status == BERTH_OK)
        status = take_number(r, "workers", a->workers, 0, UINT32_MAX,
                             "a number from 0 to 4294967295", &train->workers);
    if (status == BERTH_OK && train->workers == 0)
        status = cli_refuse(r->s->call, "prefetch-factor", "with --workers 0");
    return status == BERTH_OK ? take_trained_type(r) : status;
}

berth_status
estimate_take_arguments(estimate_call *r)
{
    berth_status status;

    berth_estimate_options_init(&r->options);
    berth_train_options_init(&r->train);
    take_weights(r);
    status = check_arguments(r);
    if (status == BERTH_OK)
        status = take_lengths(r);
    if (status == BERTH_OK)
        status = take_memory(r);
    if (status == BERTH_OK)
        status = take_training(r);
    return status == BERTH_OK ? check_weights(r) : status;
}
