/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_api_options.c - what users ask for, checked, in the words of placement/. */
#include <string.h>

#include "loader/estimate_api.h"
#include "loader/estimate_weight.h"
#include "placement/estimate_lines.h"

#define DEFAULT_CONTEXT 4096u
#define DEFAULT_RANK    16u
#define DEFAULT_BLOCK   64u
#define MAX_CONTEXTS    64u
#define MAX_BUDGETS     1024u

static int32_t
type_of_dtype(int32_t dtype)
{
    switch (dtype) {
    case BERTH_F32:
        return BERTHI_TYPE_F32;
    case BERTH_F16:
        return BERTHI_TYPE_F16;
    default:
        return BERTHI_TYPE_BF16;
    }
}

/* A plain type is also what is computed in, and a dtype what plain weights become. */
static berth_status
take_type(berthi_estimating *m)
{
    const berth_estimate_options *const options = &m->options;
    berthi_estimate_options *const base = &m->train.base;

    if (options->type != NULL)
        base->type = berthi_type_find(options->type);
    if (base->type < 0)
        return berthi_fail_argument(
            m->error, "type", "is none of native, f32, bf16, f16, int8, nf4 and fp4");
    if (options->dtype >= 0)
        base->dtype = options->dtype;
    else if (base->type == BERTHI_TYPE_F32 || base->type == BERTHI_TYPE_F16
             || base->type == BERTHI_TYPE_BF16)
        base->dtype = base->type == BERTHI_TYPE_F32   ? BERTH_F32
                      : base->type == BERTHI_TYPE_F16 ? BERTH_F16
                                                      : BERTH_BF16;
    if (base->type == BERTHI_TYPE_NATIVE && options->dtype >= 0)
        base->type = type_of_dtype(options->dtype);
    if (options->double_quant != 0 && base->type == BERTHI_TYPE_NF4)
        base->type = BERTHI_TYPE_NF4_DOUBLE;
    else if (options->double_quant != 0 && base->type == BERTHI_TYPE_FP4)
        base->type = BERTHI_TYPE_FP4_DOUBLE;
    else if (options->double_quant != 0 && base->type != BERTHI_TYPE_NF4_DOUBLE
             && base->type != BERTHI_TYPE_FP4_DOUBLE)
        return berthi_fail_argument(m->error, "double_quant", "needs type nf4 or fp4");
    if (!m->shape->model.is_foreign || base->type == BERTHI_TYPE_NATIVE)
        return BERTH_OK;
    return berthi_fail(m->error, BERTH_REASON_QUANT_METHOD,
                       &(berthi_about){ .file = m->shape->path },
                       "is quantized in a way that berth does not decode: only type "
                       "native can be estimated");
}

static berth_status
take_cache(berthi_estimating *m)
{
    berthi_estimate_options *const base = &m->train.base;

    base->cache_type = m->options.cache_type != NULL
                           ? berthi_cache_type_find(m->options.cache_type)
                       : base->dtype == BERTH_F32 ? BERTHI_CACHE_F32
                       : base->dtype == BERTH_F16 ? BERTHI_CACHE_F16
                                                  : BERTHI_CACHE_BF16;
    if (base->cache_type >= 0)
        return BERTH_OK;
    return berthi_fail_argument(m->error, "cache_type",
                                "is none of f32, bf16, f16, fp8, int8 and int4");
}

/* No longer than the model is made for, unless that is asked for. */
static uint64_t
default_context(const berthi_estimating *m)
{
    const uint64_t positions = m->shape->numbers.positions;

    if (m->tokens.count > 0)
        return berthi_max_u64(m->tokens.sorted[m->tokens.count - 1], 1);
    return positions > 0 ? berthi_min_u64(positions, DEFAULT_CONTEXT) : DEFAULT_CONTEXT;
}

/* Of several contexts the longest: shorter ones are computed at once. */
static berth_status
check_prompt(const berthi_estimating *m)
{
    const berth_estimate_options *const options = &m->options;
    uint64_t longest = m->train.base.context;

    for (uint32_t i = 0; i < options->context_count; i++)
        longest = berthi_max_u64(longest, options->contexts[i]);
    return options->prompt <= longest
               ? BERTH_OK
               : berthi_fail_argument(m->error, "prompt", "is longer than the context");
}

static berth_status
take_sizes(berthi_estimating *m)
{
    const berth_estimate_options *const options = &m->options;
    berthi_estimate_options *const base = &m->train.base;
    berth_status status;

    base->block_size = options->block_size > 0 ? options->block_size : DEFAULT_BLOCK;
    base->keeps_experts = options->keeps_experts != 0;
    base->expands_latents = options->expands_latents != 0;
    base->is_eager = options->is_eager != 0;
    base->has_all_logits = options->has_all_logits != 0;
    base->context = options->context > 0 ? options->context : default_context(m);
    base->prompt = options->prompt;
    if (options->source > 0)
        base->source = options->source;
    base->batch = options->batch > 0 ? options->batch : 1;
    base->context_bytes = options->runtime_bytes;
    base->workspace_bytes = options->workspace_bytes;
    base->fragmentation_percent = options->fragmentation_percent;
    if (options->context_count > MAX_CONTEXTS)
        return berthi_fail_argument(m->error, "contexts", "are more than 64");
    if (options->context_count > 0 && options->contexts == NULL)
        return berthi_fail_argument(m->error, "contexts", "is NULL");
    for (uint32_t i = 0; i < options->context_count; i++)
        if (options->contexts[i] == 0)
            return berthi_fail_argument(m->error, "contexts", "has one of 0 tokens");
    status = berthi_estimate_check(base, m->error);
    return status == BERTH_OK ? check_prompt(m) : status;
}

static berth_status
take_budgets(berthi_estimating *m)
{
    const berth_estimate_options *const options = &m->options;

    if (options->budget_count == 0)
        return BERTH_OK;
    if (options->budgets == NULL)
        return berthi_fail_argument(m->error, "budgets", "is NULL");
    if (options->budget_count > MAX_BUDGETS)
        return berthi_fail_argument(m->error, "budgets", "are more than 1024");
    if (m->is_training && options->budget_count > 1)
        return berthi_fail_argument(m->error, "budgets",
                                    "are several: training is planned for one device");
    m->budget.bytes = options->budgets[0];
    m->budget.more = options->budgets + 1;
    m->budget.more_count = options->budget_count - 1;
    m->budget.reserve_percent = options->reserve_percent;
    m->budget.host_bytes = options->host_bytes;
    return berthi_fit_check(&m->train.base, &m->budget, m->error);
}

static berth_status
take_tokens(berthi_estimating *m)
{
    const berth_estimate_options *const options = &m->options;

    if (options->tokens == NULL)
        return BERTH_OK;
    return berthi_tokens_parse(m->e->context, options->tokens, options->tokens_bytes,
                               options->tokens_file != NULL ? options->tokens_file : "",
                               &m->tokens, m->error);
}

/* What a micro-batch has without padding, on the average. */
static uint64_t
packed_tokens(const berthi_estimating *m)
{
    if (m->tokens.count == 0)
        return 0;
    return berthi_divided(berthi_times(m->tokens.total, m->train.base.batch),
                          m->tokens.count);
}

void
berthi_train_fill(berthi_train_options *to, const berth_train_options *from)
{
    to->method = from->method == BERTH_TRAIN_FULL   ? BERTHI_METHOD_FULL
                 : from->method == BERTH_TRAIN_LORA ? BERTHI_METHOD_LORA
                                                    : -1;
    to->precision = from->precision == BERTH_TRAIN_PURE       ? BERTHI_PRECISION_PURE
                    : from->precision == BERTH_TRAIN_AUTOCAST ? BERTHI_PRECISION_AUTOCAST
                    : from->precision == BERTH_TRAIN_MASTER   ? BERTHI_PRECISION_MASTER
                                                              : -1;
    if (from->optimizer != NULL)
        to->optimizer = from->optimizer;
    if (from->lora_targets != NULL)
        to->targets = from->lora_targets;
    to->rank = from->lora_rank > 0 ? from->lora_rank : DEFAULT_RANK;
    to->checkpoint_every = from->checkpoint_every;
    to->accumulation = from->accumulation > 0 ? from->accumulation : 1;
    to->accumulates_f32 = from->accumulates_f32 != 0;
    to->has_fused_norms = from->has_fused_norms != 0;
    to->loss_chunk = from->loss_chunk;
    to->prefetch = from->prefetch;
    to->workers = from->workers;
    to->prefetch_factor = from->prefetch_factor;
}

static berth_status
take_training(berthi_estimating *m)
{
    const berth_train_options *const from = &m->train_options;
    berthi_train_options *const to = &m->train;

    if (from->is_packed != 0 && m->tokens.count == 0)
        return berthi_fail_argument(m->error, "is_packed",
                                    "needs the lengths of `tokens`");
    berthi_train_fill(to, from);
    to->is_packed = from->is_packed != 0;
    to->packed_tokens = packed_tokens(m);
    return BERTH_OK;
}

berth_status
berthi_estimate_take_options(berthi_estimating *m)
{
    berth_status status;

    berthi_train_options_init(&m->train, &m->shape->numbers);
    status = take_tokens(m);
    if (status == BERTH_OK)
        status = take_type(m);
    if (status == BERTH_OK)
        status = take_cache(m);
    if (status == BERTH_OK)
        status = take_sizes(m);
    if (status == BERTH_OK && m->is_training)
        status = take_training(m);
    if (status == BERTH_OK)
        status = take_budgets(m);
    return status;
}
