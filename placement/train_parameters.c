/* SPDX-License-Identifier: Apache-2.0 */
/* train_parameters.c - which parameters are trained, and their optimizer's states. */
#include <string.h>

#include "kernels/number.h"
#include "kernels/text.h"
#include "placement/estimate_lines.h"
#include "placement/train_lines.h"
#include "quant/stored.h"

/* ---------------------------------------------------------------------- targets */

/* Takes the next name of "a,b,c"; false at the end. */
static bool
has_name(const char **targets, berthi_text *name)
{
    if (**targets == '\0')
        return false;
    *name = (berthi_text){ *targets, strcspn(*targets, ",") };
    *targets += name->length;
    *targets += **targets == ',';
    return true;
}

/* To adapters all are linear layers that can be called so, to quantizers not. */
static bool
is_layer(const berthi_weight *weight)
{
    return weight->role == BERTHI_WEIGHT_LINEAR || weight->is_derived || weight->is_apart;
}

static bool
is_linear(const berthi_weight *weight)
{
    return weight->rank == 2 && (is_layer(weight) || weight->role == BERTHI_WEIGHT_EXPERT);
}

static bool
is_adapted(const berthi_weight *weight, const char *targets)
{
    berthi_text name;

    if (!is_linear(weight))
        return false;
    if (strcmp(targets, BERTHI_ALL_LINEAR) == 0)
        return is_layer(weight);
    while (has_name(&targets, &name))
        if (berthi_text_is(name, weight->module))
            return true;
    return false;
}

bool
berthi_train_adapts(const berthi_train_options *options, const berthi_weight *weight)
{
    return is_adapted(weight, options->targets);
}

static berth_status
fail_target(berthi_text name, berth_error *error)
{
    char text[BERTH_NAME_CAPACITY];

    berth_text_escape(name.bytes, (size_t)name.length, text, sizeof text);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                       "\"%s\" names no linear layer of the model", text);
}

berth_status
berthi_train_check_targets(const berthi_estimate_model *model,
                           const berthi_train_options *options, berth_error *error)
{
    const char *targets = options->targets;
    berthi_text name;

    if (strcmp(targets, BERTHI_ALL_LINEAR) == 0)
        return BERTH_OK;
    while (has_name(&targets, &name)) {
        bool is_found = false;

        for (uint32_t i = 0; i < model->weight_count && !is_found; i++)
            is_found = is_linear(&model->weights[i])
                       && berthi_text_is(name, model->weights[i].module);
        if (!is_found)
            return fail_target(name, error);
    }
    /* Behind the last comma there is no name, which has_name() does not give. */
    return berthi_text_ends(berthi_text_of(options->targets), ",")
               ? fail_target((berthi_text){ "", 0 }, error)
               : BERTH_OK;
}

/* ------------------------------------------------------------------------- sums */

typedef struct summing {
    const berthi_estimate_model *model;
    const berthi_train_options *options;
    const berthi_optimizer *optimizer;
    berthi_trainable *out;
} summing;

static void
add_tensors(summing *s, uint64_t rows, uint64_t columns, uint64_t count, bool is_cast)
{
    const uint64_t parameters = berthi_times(berthi_times(rows, columns), count);

    s->out->parameters = berthi_add_capped(s->out->parameters, parameters);
    if (is_cast)
        s->out->matrices = berthi_add_capped(s->out->matrices, parameters);
    berthi_optimizer_add(s->optimizer, rows, columns, count,
                         berthi_train_master_bytes(s->options), &s->out->states);
}

/* How many of a kind's matrices one token meets: experts only those it takes. */
static void
count_adapted(summing *s, const berthi_weight *weight)
{
    const berthi_shape *const shape = s->model->shape;
    const berthi_layer *layer;
    uint64_t met;

    s->out->adapted_total = berthi_add_capped(s->out->adapted_total, weight->count);
    if (weight->layer >= shape->kind_count)
        return;
    layer = &shape->kinds[weight->layer];
    met = berthi_divided(weight->count, layer->count);
    if (weight->role == BERTHI_WEIGHT_EXPERT)
        met = berthi_min_u64(met, layer->experts_used);
    s->out->adapted[weight->layer] = berthi_add_capped(s->out->adapted[weight->layer], met);
}

static void
add_weight(summing *s, const berthi_weight *weight)
{
    const berthi_train_options *const options = s->options;

    if (options->method == BERTHI_METHOD_FULL) {
        /* Embeddings are looked up and norms multiplied: autocast leaves them. */
        if (berthi_is_number(weight->dtype))
            add_tensors(s, weight->shape[0], weight->rank == 2 ? weight->shape[1] : 1,
                        weight->count,
                        weight->rank == 2 && weight->role != BERTHI_WEIGHT_EMBEDDING);
    } else if (is_adapted(weight, options->targets)) {
        add_tensors(s, options->rank, weight->shape[1], weight->count, true);
        add_tensors(s, weight->shape[0], options->rank, weight->count, true);
        count_adapted(s, weight);
    }
}

void
berthi_trainable_sum(const berthi_estimate_model *model,
                     const berthi_train_options *options, berthi_trainable *out)
{
    summing s = { .model = model, .options = options, .out = out,
                  .optimizer = berthi_optimizer_find(options->optimizer) };

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < model->weight_count; i++)
        add_weight(&s, &model->weights[i]);
}

uint64_t
berthi_train_parameters(const berthi_estimate_model *model,
                        const berthi_train_options *options)
{
    berthi_trainable trainable;

    if (berthi_train_check(options, NULL) != BERTH_OK)
        return 0;
    berthi_trainable_sum(model, options, &trainable);
    return trainable.parameters;
}

uint64_t
berthi_train_kept_bytes(const berthi_train_options *options)
{
    return options->precision == BERTHI_PRECISION_AUTOCAST
               ? 4
               : berthi_dtype_bytes(options->base.dtype);
}

uint64_t
berthi_train_master_bytes(const berthi_train_options *options)
{
    return options->precision == BERTHI_PRECISION_PURE
               ? berthi_dtype_bytes(options->base.dtype)
               : 4;
}

uint64_t
berthi_train_tokens(const berthi_train_options *options)
{
    return options->is_packed && options->packed_tokens > 0
               ? options->packed_tokens
               : berthi_times(options->base.batch, options->base.context);
}

/* ------------------------------------------------------------------------ checks */

static berth_status
check_lora(const berthi_train_options *options, berth_error *error)
{
    if (options->rank == 0)
        return berthi_fail_argument(error, "rank", "is 0");
    if (options->targets == NULL || options->targets[0] == '\0')
        return berthi_fail_argument(error, "targets",
                                   "are none: names of linear layers, or all-linear");
    return BERTH_OK;
}

berth_status
berthi_train_check(const berthi_train_options *options, berth_error *error)
{
    if (options->optimizer == NULL || berthi_optimizer_find(options->optimizer) == NULL)
        return berthi_fail_argument(error, "optimizer",
                                    "is no name of an optimizer that is known here");
    if (options->precision < 0 || options->precision > BERTHI_PRECISION_MASTER)
        return berthi_fail_argument(error, "precision",
                                   "is none of pure, autocast and master");
    if (options->accumulation == 0)
        return berthi_fail_argument(error, "accumulation", "is 0 micro-batches");
    if (options->method == BERTHI_METHOD_LORA)
        return check_lora(options, error);
    if (options->method != BERTHI_METHOD_FULL)
        return berthi_fail_argument(error, "method", "is none of full and LoRA");
    if (berthi_type_is_quantized(options->base.type))
        return berthi_fail_argument(error, "type",
                                    "is quantized: such weights are trained with adapters");
    return BERTH_OK;
}
