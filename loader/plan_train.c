/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_train.c - what is trained of a checkpoint, and what training keeps in each layer,
 * for the planner; formulas are those of estimates (train.h).
 */
#include <string.h>

#include "kernels/number.h"
#include "kernels/sys.h"
#include "loader/estimate_weight.h"
#include "loader/plan_input.h"
#include "loader/recipe_weight.h"
#include "placement/estimate_lines.h"
#include "placement/slab.h"
#include "placement/train_lines.h"
#include "quant/format.h"

/* What is found out on the way. */
typedef struct training {
    berthi_plan_source *source;
    berth_train_options given;
    berthi_train_options options;
    berthi_weight *weights;    /* of the recipe's */
    berthi_weight *merged;     /* the same, alike ones as one */
    uint32_t *weight_of;       /* of tensors */
    berthi_estimate_model model;
    berthi_trainable trainable;
    berthi_estimate estimate;
    berthi_trained *trained;
    uint32_t count;
} training;

/* ----------------------------------------------------------------------- options */

bool
berthi_plan_is_cast(const berth_plan_options *options)
{
    return options->train != NULL && options->train->method == BERTH_TRAIN_FULL
           && options->train->precision == BERTH_TRAIN_AUTOCAST;
}

berth_status
berthi_plan_check_training(const berth_plan_options *options, berth_error *error)
{
    berth_train_options given;
    const berth_status status =
        berthi_options_take(&given, sizeof given, offsetof(berth_train_options, reserved32),
                            options->train, "train", error);

    if (status != BERTH_OK)
        return status;
    if (options->mode != NULL)
        return berthi_fail_argument(error, "train",
                                    "is not for imitated maps, which have no place for it: "
                                    "leave mode out, or give a device map");
    if (options->ranks > 1)
        return berthi_fail_argument(error, "train", "is not planned for ranks");
    if (options->context == 0)
        return berthi_fail_argument(error, "train", "needs a context");
    if (given.is_packed != 0)
        return berthi_fail_argument(error, "is_packed",
                                    "is for estimates, which know lengths");
    return BERTH_OK;
}

static int32_t
type_of(const berth_plan_options *given)
{
    const bool is_double = given->double_quant != 0;

    switch (given->type) {
    case BERTH_ENCODING_NF4: return is_double ? BERTHI_TYPE_NF4_DOUBLE : BERTHI_TYPE_NF4;
    case BERTH_ENCODING_FP4: return is_double ? BERTHI_TYPE_FP4_DOUBLE : BERTHI_TYPE_FP4;
    case BERTH_ENCODING_INT8: return BERTHI_TYPE_INT8;
    default: return BERTHI_TYPE_NATIVE;
    }
}

static berth_status
take_options(training *t, berth_error *error)
{
    const berthi_plan_source *const source = t->source;
    const berth_plan_options *const given = source->options;
    berthi_train_options *const options = &t->options;
    berth_status status = berthi_options_take(&t->given, sizeof t->given,
                                              offsetof(berth_train_options, reserved32),
                                              given->train, "train", error);

    if (status != BERTH_OK)
        return status;
    berthi_train_options_init(options, source->shape);
    berthi_train_fill(options, &t->given);
    if (t->given.optimizer == NULL)
        options->optimizer = BERTHI_PLAN_OPTIMIZER;
    options->base.type = type_of(given);
    options->base.dtype = berthi_plan_is_cast(given)
                              ? given->dtype >= 0 ? given->dtype : source->shape->dtype
                              : source->recipe.dtype;
    options->base.context = given->context;
    options->base.batch = given->batch;
    options->base.block_size = given->block_size > 0 ? given->block_size : 64;
    return BERTH_OK;
}

/* As estimates have it, where berth's own optimizer has such. */
static berth_status
take_optimizer(training *t, berth_error *error)
{
    const berthi_optimizer *const optimizer = berthi_optimizer_find(t->options.optimizer);
    const bool is_lora = t->options.method == BERTHI_METHOD_LORA;
    const bool is_f32 = berthi_train_master_bytes(&t->options) == 4;
    berth_plan_training *const about = &t->source->train.about;

    about->kind = berthi_optimizer_kind(optimizer);
    if (about->kind < 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%s is no optimizer that berth has: see berth-optimizer(5)",
                           optimizer->name);
    if (optimizer->bits == BERTHI_STATES_AS_PARAMETER && !is_f32)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%s has 16-bit states here, which berth does not: choose "
                           "%s%s, or another precision",
                           optimizer->name, optimizer->smaller,
                           about->kind == BERTH_UPDATE_ADAMW ? ", adamw_32bit" : "");
    about->method = t->given.method;
    about->precision = t->given.precision;
    about->optimizer = optimizer->name;
    about->targets = is_lora ? t->options.targets : "";
    about->rank = is_lora ? t->options.rank : 0;
    about->bits = optimizer->bits == BERTHI_STATES_8 ? 8 : 32;
    about->has_master = t->options.precision == BERTHI_PRECISION_MASTER;
    about->accumulates_f32 = t->options.accumulates_f32;
    about->page_bytes = berthi_sys_page_bytes();
    t->source->train.may_leave = optimizer->is_paged && t->source->options->no_offload == 0;
    t->source->train.checkpoint_every = t->options.checkpoint_every;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- weights */

static berth_status
describe(training *t, berthi_rules *rules, berth_error *error)
{
    berthi_plan_source *const source = t->source;
    const berthi_recipe *const recipe = &source->recipe;
    berthi_weight_source of = { .architecture = recipe->architecture,
                                .numbers = source->shape,
                                .texts = &source->arena };

    for (uint32_t w = 0; w < recipe->weight_count; w++) {
        const berthi_decision decision = berthi_rules_decide(rules, w);
        berthi_model_tensor tensor;

        berthi_recipe_get_tensor(&source->recipe, w, &tensor);
        if (!berthi_weight_can_describe(&of, &tensor, w, &decision, &t->weights[w]))
            return berthi_fail_memory(error, "what is trained");
        if (berthi_weight_is_second(recipe->architecture->parameter_of[w], w))
            t->weights[w].count = 0;
        t->weight_of[source->tensor_of[w]] = w;
    }
    return BERTH_OK;
}

static berth_status
list_weights(training *t, berth_error *error)
{
    berthi_plan_source *const source = t->source;
    const uint64_t count = source->recipe.weight_count + UINT64_C(1);
    const berthi_model_source model = { &source->recipe, source->recipe.weight_count,
                                        berthi_recipe_get_tensor };
    const berthi_rules_options options = berthi_weight_rules(source->shape->dtype);
    berthi_rules *rules = NULL;
    berth_status status;

    t->weights = berthi_arena_alloc(&source->arena, count * sizeof *t->weights, 8);
    t->merged = berthi_arena_alloc(&source->arena, count * sizeof *t->merged, 8);
    t->weight_of = berthi_arena_alloc(&source->arena, count * sizeof *t->weight_of, 4);
    t->trained = berthi_arena_alloc(&source->arena, 2 * count * sizeof *t->trained, 8);
    if (t->weights == NULL || t->merged == NULL || t->weight_of == NULL
        || t->trained == NULL)
        return berthi_fail_memory(error, "what is trained");
    status = berthi_rules_create(source->context, &options, source->recipe.architecture,
                                 &model, &rules, error);
    if (status == BERTH_OK)
        status = describe(t, rules, error);
    berthi_rules_destroy(rules);
    if (status != BERTH_OK)
        return status;
    memcpy(t->merged, t->weights, source->recipe.weight_count * sizeof *t->merged);
    t->model = (berthi_estimate_model){
        .shape = source->shape,
        .weights = t->merged,
        .weight_count = berthi_weight_merge(t->merged, source->recipe.weight_count),
        .has_headers = true,
    };
    return BERTH_OK;
}

/* -------------------------------------------------------------------- parameters */

static berth_status
fail_tensor(const berthi_plan_tensor *tensor, berth_reason reason, const char *why,
            berth_error *error)
{
    return berthi_fail(error, reason,
                       &(berthi_about){ .tensor = tensor->name,
                                        .tensor_length = tensor->name_length },
                       "%s", why);
}

static void
add(training *t, uint32_t tensor, uint8_t part, int32_t dtype, uint64_t rows,
    uint64_t columns)
{
    t->trained[t->count++] = (berthi_trained){ .rows = rows,
                                               .columns = columns,
                                               .berth = tensor,
                                               .part = part,
                                               .dtype = (int8_t)dtype };
}

/* The tensor itself, which stays where it is computed then. */
static berth_status
add_whole(training *t, uint32_t number, const berthi_recipe_weight *weight,
          berth_error *error)
{
    berthi_plan_tensor *const tensor = &t->source->tensors[number];
    const uint64_t rows = weight->rank > 0 ? weight->shape[0] : 1;

    if (tensor->encoding != BERTH_ENCODING_NATIVE)
        return fail_tensor(tensor, BERTH_REASON_ARGUMENT,
                           "is quantized: such weights are trained with adapters", error);
    if (weight->elements == 0 || !berthi_is_number(tensor->dtype))
        return BERTH_OK;
    tensor->reads =
        tensor->kind == BERTHI_PIECE_IDLE ? BERTHI_READS_ROWS : BERTHI_READS_ALL;
    tensor->kind = BERTHI_PIECE_FIXED;
    add(t, number, BERTHI_TRAINED_WHOLE, tensor->dtype, rows, weight->elements / rows);
    return BERTH_OK;
}

static berth_status
add_adapters(training *t, uint32_t number, uint32_t w, berth_error *error)
{
    const berthi_recipe *const recipe = &t->source->recipe;
    const berthi_weight *const weight = &t->weights[w];
    const uint64_t *const shape = recipe->weights[w].shape;
    const uint32_t inputs = berthi_recipe_has_inputs_first(recipe, w) ? 0 : 1;
    const uint64_t rank = t->options.rank;
    const int32_t dtype = berthi_train_kept_bytes(&t->options) == 4 ? BERTH_F32
                                                                   : t->options.base.dtype;

    if (!berthi_train_adapts(&t->options, weight))
        return BERTH_OK;
    if (weight->stack > 0)
        return fail_tensor(&t->source->tensors[number], BERTH_REASON_UNSUPPORTED,
                           "holds several experts: adapters for such are not planned",
                           error);
    add(t, number, BERTHI_TRAINED_LORA_A, dtype, rank, shape[inputs]);
    add(t, number, BERTHI_TRAINED_LORA_B, dtype, shape[1 - inputs], rank);
    return BERTH_OK;
}

/* No sum of theirs is beyond what is counted. */
static berth_status
check_size(const training *t, const berthi_trained *trained, berth_error *error)
{
    uint64_t elements;

    if (berthi_can_mul(trained->rows, trained->columns, &elements)
        && elements <= BERTHI_TRAINED_ELEMENTS)
        return BERTH_OK;
    return fail_tensor(&t->source->tensors[trained->berth], BERTH_REASON_ARGUMENT,
                       "has more elements trained than can be planned", error);
}

static berth_status
list_trained(training *t, berth_error *error)
{
    const berthi_plan_source *const source = t->source;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < source->input.tensor_count && status == BERTH_OK; i++) {
        const uint32_t w = t->weight_of[i];

        /* Gradients go through the values of all weights, and adapters have their shape. */
        status = berthi_recipe_check_decoder(&source->recipe, &source->recipe.weights[w],
                                             error);
        if (status != BERTH_OK || source->tensors[i].tie != BERTHI_NO_TIE)
            continue;
        if (t->options.method == BERTHI_METHOD_FULL)
            status = add_whole(t, i, &source->recipe.weights[w], error);
        else
            status = add_adapters(t, i, w, error);
    }
    for (uint32_t i = 0; i < t->count && status == BERTH_OK; i++)
        status = check_size(t, &t->trained[i], error);
    if (status == BERTH_OK && t->count == 0)
        return berthi_fail_argument(error, "train",
                                    t->options.method == BERTHI_METHOD_FULL
                                        ? "finds no tensor of bf16, f16 or f32 to train"
                                        : "finds no linear layer that adapters could be for");
    return status;
}

/* ---------------------------------------------------------------------------- use */

/* The kind of the model's layer that a layer of the plan is; NO_LAYER: none. */
static uint32_t
kind_of(const training *t, uint32_t layer)
{
    const berthi_plan_input *const input = &t->source->input;

    for (uint32_t i = 0; i < input->tensor_count; i++)
        if (input->tensors[i].layer == layer
            && t->weights[t->weight_of[i]].layer != BERTHI_NO_LAYER)
            return t->weights[t->weight_of[i]].layer;
    return BERTHI_NO_LAYER;
}

/* For the backward pass: all, or the input of every k-th layer. */
static void
keep_activations(training *t)
{
    berthi_plan_source *const source = t->source;
    const uint64_t tokens = berthi_train_tokens(&t->options);
    const uint64_t every = t->options.checkpoint_every;
    const uint64_t row =
        source->shape->hidden * berthi_dtype_bytes(t->options.base.dtype);
    uint64_t number = 0;

    for (uint32_t l = 0; l < source->input.layer_count; l++) {
        const uint32_t kind = kind_of(t, l);
        uint64_t bytes;

        if (kind == BERTHI_NO_LAYER)
            continue;
        bytes = every == 0 ? berthi_trainable_layer(source->shape, &t->options,
                                                    &t->trainable, kind)
                : number % every == 0 ? row
                                      : 0;
        source->layers[l].cache = berthi_slab_round(bytes * tokens);
        source->layers[l].is_again = every > 0;
        number++;
    }
}

/* Weights that autocast casts stay so until the pass ends. */
static void
keep_casts(training *t)
{
    const uint64_t bytes = berthi_dtype_bytes(t->options.base.dtype);

    if (t->options.precision != BERTHI_PRECISION_AUTOCAST || bytes == 4)
        return;
    for (uint32_t i = 0; i < t->count; i++) {
        const berthi_trained *const trained = &t->trained[i];
        const berthi_plan_tensor *const tensor = &t->source->tensors[trained->berth];
        const berthi_weight *const weight = &t->weights[t->weight_of[trained->berth]];

        if (trained->part != BERTHI_TRAINED_WHOLE
            || (weight->rank == 2 && weight->role != BERTHI_WEIGHT_EMBEDDING))
            t->source->layers[tensor->layer].cache +=
                berthi_slab_round(trained->rows * trained->columns * bytes);
    }
}

static void
measure(training *t)
{
    static const int32_t parts[] = { BERTHI_PART_RECOMPUTED, BERTHI_PART_FINAL_NORM,
                                     BERTHI_PART_LOSS, BERTHI_PART_DEQUANTIZED,
                                     BERTHI_PART_BATCHES };
    berthi_plan_input *const input = &t->source->input;
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        bytes += berthi_estimate_bytes(&t->estimate, parts[i]);
    input->activations = berthi_slab_round(bytes);
    input->runtime = BERTHI_CONTEXT_BYTES + BERTHI_WORKSPACE_BYTES
                     + berthi_estimate_bytes(&t->estimate, BERTHI_PART_FRAGMENTATION);
    keep_activations(t);
    keep_casts(t);
}

/* -------------------------------------------------------------------------- calls */

static berth_status
take(training *t, berth_error *error)
{
    berth_status status = take_options(t, error);

    if (status == BERTH_OK)
        status = list_weights(t, error);
    if (status == BERTH_OK)
        status = berthi_train_estimate(&t->model, &t->options, &t->estimate, error);
    if (status == BERTH_OK)
        status = take_optimizer(t, error);
    if (status == BERTH_OK)
        status = list_trained(t, error);
    if (status != BERTH_OK)
        return status;
    berthi_trainable_sum(&t->model, &t->options, &t->trainable);
    measure(t);
    t->source->train.trained = t->trained;
    t->source->train.count = t->count;
    t->source->input.train = &t->source->train;
    return BERTH_OK;
}

berth_status
berthi_plan_take_training(berthi_plan_source *source, berth_error *error)
{
    training *t;

    t = berthi_arena_alloc(&source->arena, sizeof *t, 16); /* an estimate is large */
    if (t == NULL)
        return berthi_fail_memory(error, "what is trained");
    memset(t, 0, sizeof *t);
    t->source = source;
    return take(t, error);
}

berth_status
berthi_plan_check_trained(const berthi_plan_source *source, berth_error *error)
{
    for (uint32_t i = 0; i < source->train.count; i++) {
        const berthi_trained *const trained = &source->train.trained[i];
        const berthi_plan_tensor *const tensor = &source->tensors[trained->berth];

        if (trained->part == BERTHI_TRAINED_WHOLE && tensor->tier != BERTHI_NO_TIER
            && !berthi_plan_is_device(&source->input, tensor->tier))
            return fail_tensor(tensor, BERTH_REASON_ARGUMENT,
                               source->has_map
                                   ? "is trained, and the map puts it where nothing is "
                                     "computed"
                                   : "is trained, and cannot be pinned where nothing is "
                                     "computed",
                               error);
    }
    return BERTH_OK;
}
