/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan_options.c - words and numbers of `berth plan`, checked; what the library gets. */
#include <stdio.h>
#include <string.h>

#include "tools/cmd_plan.h"
#include "tools/input.h"
#include "tools/number.h"

/* ----------------------------------------------------------------------- checks */

/* What makes a plan has no meaning for one that is there. */
static berth_status
check_of_check(const cli_call *call)
{
    static const char *const making[] =
        { "type", "double-quant", "block-size", "storage", "dtype", "skip-modules",
          "experts", "rules", "keep", "only", "context", "batch", "cache-dtype",
          "reserve-percent", "reserve", "pin", "no-offload", "slots", "expert-hits", "link",
          "link-file", "mode", "like", "cpu-offload", "offload-buffers", "device-map",
          "architectures", "tensor-parallel", "stacks", "train" };
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof making / sizeof making[0] && status == BERTH_OK; i++)
        status = cli_refuse(call, making[i], "with --check");
    return status;
}

/* Training has no KV cache, and is planned for whole models; no release has a map for it. */
static berth_status
check_training(const cli_call *call, const plan_arguments *a)
{
    static const char *const of_others[] = { "cache-dtype", "tensor-parallel", "mode",
                                             "like", NULL };
    const bool is_training = a->train.method != NULL;
    const char *const *const names = is_training ? of_others : train_option_names;
    berth_status status = BERTH_OK;

    for (size_t i = 0; names[i] != NULL && status == BERTH_OK; i++)
        status = cli_refuse(call, names[i], is_training ? "with --train" : "without --train");
    return status;
}

/* A map says where everything lies, and is followed to the brim; states of training are not in
 * it. */
static berth_status
check_mapped(const cli_call *call, const plan_arguments *a)
{
    static const char *const of_planning[] = { "pin", "reserve-percent", "reserve",
                                               "no-offload" };
    const char *const why =
        a->device_map != NULL ? "with --device-map" : "with --mode or --like";
    const size_t count =
        sizeof of_planning / sizeof of_planning[0] - (a->train.method != NULL);
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < count && status == BERTH_OK; i++)
        status = cli_refuse(call, of_planning[i], why);
    return status;
}

berth_status
plan_check_arguments(const cli_call *call)
{
    const plan_arguments *const a = call->arguments;
    const bool is_imitating = cli_is_given(call, "mode") || cli_is_given(call, "like");
    const char *const why_not = a->device_map != NULL ? "with --device-map"
                                : is_imitating        ? NULL
                                                      : "without --mode or --like";
    berth_status status = BERTH_OK;

    if (a->check != NULL)
        status = check_of_check(call);
    if (status == BERTH_OK)
        status = check_training(call, a);
    if (status == BERTH_OK && a->device_map != NULL)
        status = cli_refuse(call, "mode", "with --device-map");
    if (status == BERTH_OK && is_imitating && a->device_map == NULL)
        status = cli_refuse(call, "tensor-parallel", "with --mode or --like");
    if (status == BERTH_OK && (is_imitating || a->device_map != NULL))
        status = check_mapped(call, a);
    if (status == BERTH_OK && why_not != NULL)
        status = cli_refuse(call, "cpu-offload", why_not);
    if (status == BERTH_OK && why_not != NULL)
        status = cli_refuse(call, "offload-buffers", why_not);
    if (status == BERTH_OK && a->wants_map)
        status = cli_refuse(call, "json", "with --hf-map");
    if (status == BERTH_OK && (a->wants_map || a->wants_json))
        status = cli_refuse(call, "explain", a->wants_map ? "with --hf-map" : "with --json");
    if (status == BERTH_OK && a->output == NULL)
        status = cli_refuse(call, "force", "without --output");
    if (status == BERTH_OK && a->is_quiet)
        status = cli_refuse(call, "explain", "with --quiet");
    return status == BERTH_OK ? input_spare(call, "output", a->output) : status;
}

static berth_status
bad_value(const planning *p, const char *option, const char *text, const char *wanted)
{
    return cli_bad_value(p->s->call, option, text, strlen(text), wanted);
}

/* ---------------------------------------------------------------------- options */

/* Per cent, as the share that stays free. */
static berth_status
take_reserve(planning *p)
{
    const char *const given = p->a->reserve_percent;
    char text[32];
    uint64_t share = 0;

    if (!cli_is_given(p->s->call, "reserve-percent"))
        return BERTH_OK;
    snprintf(text, sizeof text, "%s%%", given);
    if (strlen(given) > 16 || strchr(given, '%') != NULL
        || berth_share_parse(text, &share, NULL) != BERTH_OK)
        return bad_value(p, "reserve-percent", given, "a number from 0 to 100");
    p->options.reserve_share = share > 0 ? share : BERTH_RESERVE_NONE;
    return BERTH_OK;
}

static berth_status
take_hits(planning *p)
{
    const char *const given = p->a->expert_hits;
    uint64_t share = 0;

    if (given == NULL)
        return BERTH_OK;
    if (berth_share_parse(given, &share, NULL) != BERTH_OK)
        return bad_value(p, "expert-hits", given, "a share such as 0.6 or 60%");
    p->options.expert_hits = share > 0 ? share : BERTH_HITS_NONE;
    return BERTH_OK;
}

/* "1/4" */
static berth_status
take_rank(planning *p)
{
    const char *const given = p->a->parallel;
    const char *const slash = given != NULL ? strchr(given, '/') : NULL;
    uint64_t rank = 0;
    uint64_t ranks = 0;

    if (given == NULL)
        return BERTH_OK;
    if (slash == NULL || !number_can_parse_tokens(given, (size_t)(slash - given), &rank)
        || !number_can_parse_tokens(slash + 1, strlen(slash + 1), &ranks) || ranks > 1024
        || rank >= ranks)
        return bad_value(p, "tensor-parallel", given,
                         "a rank, from 0 on, of at most 1024, as in 0/4");
    p->options.rank = (uint32_t)rank;
    p->options.ranks = (uint32_t)ranks;
    return BERTH_OK;
}

berth_status
plan_take_numbers(planning *p)
{
    const plan_arguments *const a = p->a;
    berth_status status;

    if (!number_can_parse_tokens(a->context, strlen(a->context), &p->options.context))
        return bad_value(p, "context", a->context,
                         "a number of tokens such as 4096 or 8k, up to " NUMBER_MOST_TEXT);
    if (p->options.context == 0 && a->train.method != NULL)
        return cli_usage_error(p->s->call->command, "--context: training needs one, not 0");
    if (!number_can_parse_tokens(a->batch, strlen(a->batch), &p->options.batch)
        || p->options.batch == 0)
        return bad_value(p, "batch", a->batch,
                         "a number of sequences from 1 to " NUMBER_MOST_TEXT);
    if (a->slots > 8)
        return cli_usage_error(p->s->call->command, "--slots: %u is not from 1 to 8", a->slots);
    status = take_rank(p);
    if (status == BERTH_OK)
        status = take_hits(p);
    return status == BERTH_OK ? take_reserve(p) : status;
}

/* A map is imitated where one of these was given, and none is in a file. */
static const char *
mode_of(const planning *p)
{
    /* In the order of PLAN_MODES. */
    static const char *const modes[] = { "auto", "balanced", "balanced_low_0",
                                         "sequential" };
    const cli_call *const call = p->s->call;

    if (cli_is_given(call, "mode"))
        return modes[p->a->mode];
    return cli_is_given(call, "like") && p->a->device_map == NULL ? "auto" : NULL;
}

void
plan_fill_options(planning *p, int32_t type)
{
    const plan_arguments *const a = p->a;
    const encoding_arguments *const e = &a->encoding;
    berth_plan_options *const options = &p->options;

    options->type = type;
    options->dtype = encoding_dtype(e->dtype);
    options->storage = encoding_dtype(e->storage);
    options->block_size = e->block_size;
    options->double_quant = e->is_double;
    options->takes_experts = e->takes_experts;
    options->like = encoding_era(e->like);
    options->skip_modules = p->skips.items;
    options->skip_count = p->skips.count;
    options->has_skips = e->skip_modules != NULL;
    options->reject_skips = cli_is_given(p->s->call, "skip-modules");
    options->keep = e->keep.items;
    options->keep_count = e->keep.count;
    options->only = e->only.items;
    options->only_count = e->only.count;
    options->rules = e->rules;
    options->max_memory = a->max_memory;
    options->reserve = a->reserve;
    options->pins = a->pins.items;
    options->pin_count = a->pins.count;
    options->no_offload = a->no_offload;
    options->stacks = a->stacks;
    options->mode = mode_of(p);
    options->device_map = a->device_map;
    options->cpu_offload = a->has_cpu_offload;
    options->buffer_offload = a->has_buffer_offload;
    options->architectures = a->architectures;
    options->train = a->train.method != NULL ? &p->train : NULL;
    options->cache_dtype = encoding_dtype(a->cache_dtype);
    options->slots = a->slots;
    options->link_file = a->link_file;
    options->links = a->links;
    if (a->link_file == NULL && a->links != NULL && a->links[0] != '\0'
        && strchr(a->links, '=') == NULL) {
        options->link_file = a->links;
        options->links = NULL;
    }
}
