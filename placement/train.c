/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - what training needs, line by line; formulas in train.h. */
#include "placement/train.h"

#include <inttypes.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "placement/train_lines.h"

#define RANK 16u
#define WORKERS 2u
#define PREFETCH_FACTOR 2u
#define BATCH_BYTES 24u /* ids, mask and labels of 8 bytes */

/* An estimate being made. */
typedef struct training {
    const berthi_estimate_model *model;
    const berthi_train_options *options;
    berthi_weight_sums sums;
    berthi_trainable trainable;
    uint64_t tokens; /* of a micro-batch */
    berthi_estimate *out;
} training;

void
berthi_train_options_init(berthi_train_options *options, const berthi_shape *shape)
{
    memset(options, 0, sizeof *options);
    berthi_estimate_options_init(&options->base, shape);
    options->optimizer = "adamw_torch";
    options->rank = RANK;
    options->targets = BERTHI_ALL_LINEAR;
    options->accumulation = 1;
    options->workers = WORKERS;
    options->prefetch_factor = PREFETCH_FACTOR;
}

static bool
is_full(const training *t)
{
    return t->options->method == BERTHI_METHOD_FULL;
}

static berthi_line_kind
on_device(int32_t part, int32_t basis, const char *dtype)
{
    return (berthi_line_kind){ part, BERTHI_PLACE_DEVICE, basis, dtype };
}

static berthi_line_kind
on_host(int32_t part, const char *dtype)
{
    return (berthi_line_kind){ part, BERTHI_PLACE_HOST, BERTHI_BASIS_FORMULA, dtype };
}

/* "f32" where four bytes are kept, or the dtype that is computed in. */
static const char *
word_of(const training *t, uint64_t bytes)
{
    return bytes == 4 ? "f32" : berthi_dtype_word(t->options->base.dtype);
}

/* ----------------------------------------------------------------------- weights */

/* All of what is trained has one dtype; a frozen base has its own type. */
static berthi_estimate_options
weights_as(const training *t)
{
    berthi_estimate_options as = t->options->base;

    if (!is_full(t))
        return as;
    if (berthi_train_kept_bytes(t->options) == 4)
        as.type = BERTHI_TYPE_F32;
    else
        as.type = as.dtype == BERTH_F16 ? BERTHI_TYPE_F16 : BERTHI_TYPE_BF16;
    return as;
}

static void
add_weights(training *t)
{
    const berthi_train_options *const options = t->options;
    const uint64_t trained = t->trainable.parameters;
    const uint64_t kept = berthi_train_kept_bytes(options);
    const berthi_estimate_options as = weights_as(t);
    const berthi_line_kind adapters =
        on_device(BERTHI_PART_ADAPTERS, BERTHI_BASIS_FORMULA, word_of(t, kept));
    const berthi_line_kind master =
        on_device(BERTHI_PART_MASTER, BERTHI_BASIS_FORMULA, "f32");
    const berthi_line_kind casts = on_device(BERTHI_PART_CASTS, BERTHI_BASIS_ESTIMATE,
                                             berthi_dtype_word(options->base.dtype));

    berthi_estimate_weights(t->model, &as, &t->sums);
    berthi_line_weights(t->out, t->model, &t->sums, &as);
    if (!is_full(t))
        berthi_line_add(t->out, &adapters, berthi_times(trained, kept),
                        "%" PRIu64 " parameters: rank %" PRIu64
                        " * (in + out) of %" PRIu64 " matrices",
                        trained, options->rank, t->trainable.adapted_total);
    if (options->precision == BERTHI_PRECISION_MASTER && options->base.dtype != BERTH_F32)
        berthi_line_add(t->out, &master, berthi_times(trained, 4),
                        "an f32 copy of %" PRIu64 " parameters", trained);
    if (options->precision == BERTHI_PRECISION_AUTOCAST
        && options->base.dtype != BERTH_F32)
        berthi_line_add(t->out, &casts,
                        berthi_times(t->trainable.matrices,
                                     berthi_dtype_bytes(options->base.dtype)),
                        "autocast keeps the casts of %" PRIu64
                        " trained weights until the pass ends: an upper bound",
                        t->trainable.matrices);
}

static void
add_gradients(training *t)
{
    const berthi_train_options *const options = t->options;
    const uint64_t kept = options->accumulates_f32 ? 4 : berthi_train_kept_bytes(options);
    const berthi_line_kind gradients =
        on_device(BERTHI_PART_GRADIENTS, BERTHI_BASIS_FORMULA, word_of(t, kept));

    berthi_line_add(t->out, &gradients, berthi_times(t->trainable.parameters, kept),
                    "%" PRIu64 " parameters * %" PRIu64
                    " B, kept over %" PRIu64 " micro-batches of a step",
                    t->trainable.parameters, kept, options->accumulation);
}

/* What of them is on the device, and why it is so much. */
static const char *
tell_states(const berthi_optimizer *optimizer)
{
    const bool is_8bit = optimizer->bits == BERTHI_STATES_8;

    if (optimizer->is_factored)
        return ", rows and columns only";
    if (optimizer->is_paged)
        return is_8bit ? "; of small tensors, and block maxima" : "; of small tensors";
    return is_8bit ? ", a byte and 1/64 for block maxima; f32 for tensors below 4096 elements"
                   : "";
}

static void
add_states(training *t)
{
    const berthi_optimizer *const optimizer =
        berthi_optimizer_find(t->options->optimizer);
    const berthi_optimizer_bytes *const states = &t->trainable.states;
    const uint64_t bytes = optimizer->bits == BERTHI_STATES_AS_PARAMETER
                               ? berthi_train_master_bytes(t->options)
                               : 4;
    const char *const word =
        optimizer->bits == BERTHI_STATES_8 ? "8-bit" : word_of(t, bytes);
    const berthi_line_kind device =
        on_device(BERTHI_PART_OPTIMIZER, BERTHI_BASIS_FORMULA, word);
    const berthi_line_kind host =
        on_host(BERTHI_PART_PAGED, word);
    const berthi_line_kind pages =
        on_device(BERTHI_PART_PAGES, BERTHI_BASIS_FORMULA, word);

    berthi_line_add(t->out, &device, states->device, "%s: %" PRIu32 " state%s%s",
                    optimizer->name, optimizer->states, optimizer->states == 1 ? "" : "s",
                    tell_states(optimizer));
    berthi_line_add(t->out, &host, states->host,
                    "%s: of tensors of 100000 elements and more", optimizer->name);
    berthi_line_add(t->out, &pages, states->pages,
                    "the largest tensor's, on the device while it is updated");
}

/* ------------------------------------------------------------------- activations */

uint64_t
berthi_trainable_layer(const berthi_shape *shape, const berthi_train_options *options,
                       const berthi_trainable *trainable, uint32_t kind)
{
    const uint64_t bytes = berthi_train_layer(shape, &shape->kinds[kind], options);
    const uint64_t inner = berthi_times(options->rank,
                                        berthi_dtype_bytes(options->base.dtype));

    return options->method == BERTHI_METHOD_FULL
               ? bytes
               : berthi_add_capped(bytes, berthi_times(trainable->adapted[kind], inner));
}

static uint64_t
layer_count(const berthi_shape *shape)
{
    return shape->layers + shape->encoder_layers;
}

/* Every k-th layer's input, and k layers in full while they are computed again. */
static void
add_checkpoints(training *t, uint64_t largest)
{
    const berthi_shape *const shape = t->model->shape;
    const uint64_t layers = layer_count(shape);
    const uint64_t every = berthi_min_u64(t->options->checkpoint_every, layers);
    const uint64_t row = shape->hidden * berthi_dtype_bytes(t->options->base.dtype);
    const char *const word = berthi_dtype_word(t->options->base.dtype);
    const berthi_line_kind kept =
        on_device(BERTHI_PART_CHECKPOINTS, BERTHI_BASIS_MEASURED, word);
    const berthi_line_kind again =
        on_device(BERTHI_PART_RECOMPUTED, berthi_train_layer_basis(shape, t->options),
                  word);
    const uint64_t points = berthi_divided(layers, every);

    berthi_line_add(t->out, &kept, berthi_times(t->tokens, berthi_times(row, points)),
                    "%" PRIu64 " tokens * %" PRIu64 " B * %" PRIu64
                    " inputs, one for every %" PRIu64 " layers",
                    t->tokens, row, points, every);
    berthi_line_add(t->out, &again,
                    berthi_times(t->tokens, berthi_times(largest, every)),
                    "%" PRIu64 " tokens * %" PRIu64 " B, %" PRIu64
                    " layers at a time for one more forward pass%s",
                    t->tokens, largest, every,
                    is_full(t) ? "" : "; upper bound where layers are frozen");
}

static void
add_activations(training *t)
{
    const berthi_shape *const shape = t->model->shape;
    const berthi_line_kind all =
        on_device(BERTHI_PART_ACTIVATIONS, berthi_train_layer_basis(shape, t->options),
                  berthi_dtype_word(t->options->base.dtype));
    uint64_t largest = 0;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < shape->kind_count; i++) {
        const uint64_t bytes = berthi_trainable_layer(shape, t->options, &t->trainable, i);

        largest = berthi_max_u64(largest, bytes);
        sum = berthi_add_capped(sum, berthi_times(bytes, shape->kinds[i].count));
    }
    if (t->options->checkpoint_every > 0)
        add_checkpoints(t, largest);
    else
        berthi_line_add(t->out, &all, berthi_times(t->tokens, sum),
                        "%" PRIu64 " tokens * %" PRIu64 " B of %" PRIu64 " layers, %s%s",
                        t->tokens, sum, layer_count(shape),
                        t->options->base.is_eager ? "eager attention" : "fused attention",
                        is_full(t) ? "" : "; upper bound where layers are frozen");
}

static void
add_head(training *t)
{
    const berthi_train_options *const options = t->options;
    const bool is_f32 = options->base.dtype == BERTH_F32;
    const berthi_line_kind norm = on_device(BERTHI_PART_FINAL_NORM, BERTHI_BASIS_ESTIMATE,
                                            berthi_dtype_word(options->base.dtype));
    const berthi_line_kind loss =
        on_device(BERTHI_PART_LOSS, BERTHI_BASIS_FORMULA, is_f32 ? "f32" : "16-bit, f32");
    const uint64_t logit = is_f32 ? 8 : 10;
    const uint64_t positions = options->loss_chunk > 0
                                   ? berthi_min_u64(options->loss_chunk, t->tokens)
                                   : t->tokens;

    berthi_line_add(t->out, &norm,
                    berthi_times(t->tokens, 8 * t->model->shape->hidden + 4),
                    is_f32 ? "two f32 copies" : "an f32 and two 16-bit copies");
    berthi_line_add(t->out, &loss,
                    berthi_times(positions,
                                 berthi_times(logit, t->model->shape->vocabulary)),
                    "%" PRIu64 " positions%s * %" PRIu64 " words * %" PRIu64
                    " B: logits, %stheir gradient",
                    positions, options->loss_chunk > 0 ? " of a chunk" : "",
                    t->model->shape->vocabulary, logit, is_f32 ? "" : "their f32 copy, ");
}

/* Of a quantized base, one weight at a time. */
static void
add_dequantized(training *t)
{
    const int32_t dtype = t->options->base.dtype;
    const berthi_line_kind one = on_device(BERTHI_PART_DEQUANTIZED, BERTHI_BASIS_FORMULA,
                                           berthi_dtype_word(dtype));

    if (!is_full(t) && berthi_type_is_quantized(t->options->base.type))
        berthi_line_add(t->out, &one,
                        berthi_times(t->sums.largest, berthi_dtype_bytes(dtype)),
                        "%" PRIu64 " values of the largest, forward and backward",
                        t->sums.largest);
}

/* ----------------------------------------------------------------------- batches */

static void
add_batches(training *t)
{
    const berthi_train_options *const options = t->options;
    const berthi_line_kind device =
        on_device(BERTHI_PART_BATCHES, BERTHI_BASIS_FORMULA, "int64");
    const berthi_line_kind host =
        on_host(BERTHI_PART_PINNED, "int64");
    const uint64_t batch = berthi_times(t->tokens, BATCH_BYTES);
    const uint64_t ready = berthi_times(options->workers, options->prefetch_factor);

    berthi_line_add(t->out, &device,
                    berthi_times(batch, berthi_add_capped(options->prefetch, 1)),
                    "%" PRIu64 " tokens * 24 B (ids, mask, labels), %" PRIu64
                    " batches ahead",
                    t->tokens, options->prefetch);
    berthi_line_add(t->out, &host, berthi_times(batch, ready),
                    "%" PRIu64 " tokens * 24 B * %" PRIu64 " workers * %" PRIu64
                    " batches",
                    t->tokens, options->workers, options->prefetch_factor);
}

/* What comes and goes in a step. */
static uint64_t
dynamic_bytes(const berthi_estimate *estimate)
{
    static const int32_t parts[] =
        { BERTHI_PART_CASTS,      BERTHI_PART_PAGES,       BERTHI_PART_ACTIVATIONS,
          BERTHI_PART_CHECKPOINTS, BERTHI_PART_RECOMPUTED, BERTHI_PART_FINAL_NORM,
          BERTHI_PART_LOSS,        BERTHI_PART_DEQUANTIZED };
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        bytes = berthi_add_capped(bytes, berthi_estimate_bytes(estimate, parts[i]));
    return bytes;
}

static void
add_notes(training *t)
{
    berthi_note_model(t->out, t->model, &t->options->base);
    if (!is_full(t) && t->options->precision == BERTHI_PRECISION_PURE
        && t->options->base.dtype != BERTH_F32)
        berthi_note_add(t->out, "PEFT keeps adapters in f32 unless told otherwise: twice "
                                "the adapters and gradients above, as with autocast");
    if (!is_full(t) && strcmp(t->options->targets, BERTHI_ALL_LINEAR) == 0
        && berthi_layer_has_experts(t->model->shape))
        berthi_note_add(t->out, "all-linear leaves experts and routers alone; name their "
                                "matrices to adapt them");
}

/* -------------------------------------------------------------------- everything */

berth_status
berthi_train_estimate(const berthi_estimate_model *model,
                      const berthi_train_options *options, berthi_estimate *out,
                      berth_error *error)
{
    training t = { .model = model, .options = options, .out = out };
    berth_status status;

    memset(out, 0, sizeof *out);
    berthi_error_clear(error);
    status = berthi_estimate_check(&options->base, error);
    if (status == BERTH_OK)
        status = berthi_train_check(options, error);
    if (status == BERTH_OK && options->method == BERTHI_METHOD_LORA)
        status = berthi_train_check_targets(model, options, error);
    if (status != BERTH_OK)
        return status;
    berthi_trainable_sum(model, options, &t.trainable);
    t.tokens = berthi_train_tokens(options);
    add_weights(&t);
    add_gradients(&t);
    add_states(&t);
    add_activations(&t);
    add_head(&t);
    add_dequantized(&t);
    add_batches(&t);
    berthi_line_runtime(out, &options->base, dynamic_bytes(out));
    add_notes(&t);
    status = berthi_lines_end(out, error);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}

uint64_t
berthi_train_measure(const void *user, uint64_t length, uint64_t batch)
{
    const berthi_train_measured *const measured = user;
    berthi_train_options options = *measured->options;
    berthi_estimate estimate;

    options.base.context = length;
    options.base.prompt = 0;
    options.base.batch = batch;
    options.is_packed = false;
    if (berthi_train_estimate(measured->model, &options, &estimate, NULL) != BERTH_OK)
        return BERTHI_BEYOND;
    return estimate.device_bytes;
}
