/* SPDX-License-Identifier: Apache-2.0 */
/* train_advice.c - what to do when training does not fit, in order; see train.h. */
#include <inttypes.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "placement/train_lines.h"

#define SMALL_RANK 8u
#define FEW_TARGETS "q_proj,v_proj"
#define LONGEST_STRETCH 64u /* layers between checkpoints that are tried */
#define MOST_PARTS 65536u   /* of a micro-batch that are tried, beside one for each sequence */

typedef struct advising {
    const berthi_estimate_model *model;
    berthi_train_options options; /* with the advice so far */
    berthi_advice_list *list;
} advising;

static uint64_t
bytes_of(const advising *a, const berthi_train_options *options)
{
    berthi_estimate estimate;

    if (berthi_train_estimate(a->model, options, &estimate, NULL) != BERTH_OK)
        return BERTHI_BEYOND;
    return estimate.device_bytes;
}

/* ----------------------------------------------------------------- free of accuracy */

static void
try_fused(advising *a)
{
    berthi_train_options tried = a->options;

    tried.base.is_eager = false;
    if (!a->list->fits
        && berthi_advice_add(a->list, bytes_of(a, &tried), "none: it is faster, too",
                             "fused attention"))
        a->options = tried;
}

static void
try_packed(advising *a)
{
    berthi_train_options tried = a->options;

    if (a->list->fits || tried.packed_tokens == 0
        || tried.packed_tokens >= berthi_train_tokens(&tried))
        return;
    tried.is_packed = true;
    if (berthi_advice_add(a->list, bytes_of(a, &tried),
                          "attention has to know where sequences end",
                          "packed batches: %" PRIu64 " tokens instead of %" PRIu64,
                          tried.packed_tokens, berthi_train_tokens(&a->options)))
        a->options = tried;
}

/* The micro-batch in so many parts, which divide it: a step is of the same sequences. */
static berthi_train_options
in_parts(const advising *a, uint64_t parts)
{
    berthi_train_options to = a->options;

    to.base.batch /= parts;
    to.accumulation = berthi_times(to.accumulation, parts);
    to.packed_tokens = berthi_divided(to.packed_tokens, parts);
    return to;
}

static void
try_batch(advising *a)
{
    const uint64_t batch = a->options.base.batch;
    berthi_train_options tried = a->options;
    uint64_t bytes = BERTHI_BEYOND;

    if (a->list->fits || batch == 1)
        return;
    for (uint64_t parts = 2; parts < batch && parts <= MOST_PARTS; parts++) {
        if (batch % parts != 0)
            continue;
        tried = in_parts(a, parts);
        bytes = bytes_of(a, &tried);
        if (bytes <= a->list->usable)
            break;
    }
    if (bytes > a->list->usable)
        tried = in_parts(a, batch);
    if (berthi_advice_add(a->list, bytes_of(a, &tried),
                          "the same result; more launches a step",
                          "micro-batches of %" PRIu64 ", %" PRIu64 " of them a step",
                          tried.base.batch, tried.accumulation))
        a->options = tried;
}

static void
try_checkpoints(advising *a)
{
    berthi_train_options tried = a->options;
    uint64_t best = BERTHI_BEYOND;
    uint64_t every = 0;

    if (a->list->fits)
        return;
    for (uint64_t k = 1; k <= LONGEST_STRETCH; k++) {
        uint64_t bytes;

        tried.checkpoint_every = k;
        bytes = bytes_of(a, &tried);
        if (bytes < best) {
            best = bytes;
            every = k;
        }
    }
    tried.checkpoint_every = every;
    if (every > 0
        && berthi_advice_add(a->list, best,
                             "one more forward pass: a third of a step's arithmetic",
                             "gradient checkpointing every %" PRIu64 " layers", every))
        a->options = tried;
}

/* --------------------------------------------------------------------- optimizer */

static void
try_optimizer(advising *a, const char *name, const char *cost)
{
    berthi_train_options tried = a->options;

    if (a->list->fits || name == NULL)
        return;
    tried.optimizer = name;
    if (berthi_advice_add(a->list, bytes_of(a, &tried), cost, "optimizer %s", name))
        a->options = tried;
}

static void
try_smaller(advising *a)
{
    try_optimizer(a, berthi_optimizer_find(a->options.optimizer)->smaller,
                  "hardly any: states of a byte follow those of four");
}

static void
try_paged(advising *a)
{
    try_optimizer(a, berthi_optimizer_find(a->options.optimizer)->paged,
                  "link time: states cross the link twice a step");
}

/* ---------------------------------------------------------------------- adapters */

static void
try_base(advising *a, int32_t type)
{
    berthi_train_options tried = a->options;

    tried.method = BERTHI_METHOD_LORA;
    tried.base.type = type;
    if (!a->list->fits && !a->model->is_foreign
        && berthi_advice_add(a->list, bytes_of(a, &tried),
                             "adapters are trained, not the weights; a slower forward pass",
                             "LoRA of rank %" PRIu64 " on a base of %s", tried.rank,
                             berthi_type_name(type)))
        a->options = tried;
}

static void
try_double(advising *a)
{
    berthi_train_options tried = a->options;

    if (a->list->fits || tried.base.type != BERTHI_TYPE_NF4)
        return;
    tried.base.type = BERTHI_TYPE_NF4_DOUBLE;
    if (berthi_advice_add(a->list, bytes_of(a, &tried), "hardly any",
                          "double quantization"))
        a->options = tried;
}

static void
try_rank(advising *a)
{
    berthi_train_options tried = a->options;

    if (a->list->fits || tried.method != BERTHI_METHOD_LORA || tried.rank <= SMALL_RANK)
        return;
    tried.rank = SMALL_RANK;
    if (berthi_advice_add(a->list, bytes_of(a, &tried), "adapters that can learn less",
                          "rank %" PRIu64, tried.rank))
        a->options = tried;
}

static void
try_targets(advising *a)
{
    berthi_train_options tried = a->options;

    if (a->list->fits || tried.method != BERTHI_METHOD_LORA)
        return;
    tried.targets = FEW_TARGETS;
    if (berthi_advice_add(a->list, bytes_of(a, &tried), "adapters that can learn less",
                          "adapters on " FEW_TARGETS " alone"))
        a->options = tried;
}

/* ------------------------------------------------------------------------- tiers */

static void
try_host(advising *a, uint64_t host_bytes)
{
    const berthi_shape *const shape = a->model->shape;
    const uint64_t layers = shape->layers + shape->encoder_layers;
    berthi_streamed streamed = { .layers = layers,
                                 .host = host_bytes > 0 ? host_bytes : UINT64_MAX };
    berthi_estimate estimate;

    if (a->list->fits
        || berthi_train_estimate(a->model, &a->options, &estimate, NULL) != BERTH_OK)
        return;
    streamed.each = berthi_estimate_bytes(&estimate, BERTHI_PART_LINEARS) / layers;
    streamed.slot = streamed.each;
    berthi_advice_stream(a->list, &streamed);
}

berth_status
berthi_train_advise(const berthi_estimate_model *model,
                    const berthi_train_options *options, const berthi_fit_budget *budget,
                    berthi_advice_list *out, berth_error *error)
{
    advising a = { .model = model, .options = *options, .list = out };
    berthi_estimate estimate;
    berth_status status;

    memset(out, 0, sizeof *out);
    status = berthi_fit_check(&options->base, budget, error);
    if (status == BERTH_OK)
        status = berthi_train_estimate(model, options, &estimate, error);
    if (status != BERTH_OK)
        return status;
    out->usable = berthi_fit_usable(budget);
    out->bytes = estimate.device_bytes;
    out->fits = out->bytes <= out->usable;
    try_fused(&a);
    try_packed(&a);
    try_batch(&a);
    try_checkpoints(&a);
    try_smaller(&a);
    try_paged(&a);
    try_base(&a, BERTHI_TYPE_INT8);
    try_base(&a, BERTHI_TYPE_NF4);
    try_double(&a);
    try_rank(&a);
    try_targets(&a);
    try_host(&a, budget->host_bytes);
    return BERTH_OK;
}
