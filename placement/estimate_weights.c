/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_weights.c - bytes of weights as a type; sizes come from quant/stored. */
#include <string.h>

#include "kernels/number.h"
#include "placement/estimate_lines.h"
#include "quant/stored.h"

/* Of one weight. */
typedef struct weight_bytes {
    uint64_t values;
    uint64_t statistics;
    uint64_t tables;
} weight_bytes;

static uint64_t
elements_of(const berthi_weight *weight)
{
    return weight->rank == 2 ? berthi_times(weight->shape[0], weight->shape[1])
                             : weight->shape[0];
}

static bool
is_linear(const berthi_weight *weight)
{
    return weight->role == BERTHI_WEIGHT_LINEAR || weight->role == BERTHI_WEIGHT_EXPERT;
}

static bool
is_quantized(const berthi_weight *weight, const berthi_estimate_options *options)
{
    return berthi_type_is_quantized(options->type) && is_linear(weight)
           && !(weight->role == BERTHI_WEIGHT_EXPERT && options->keeps_experts
                && !weight->is_apart);
}

/*
 * Of what is cast. Classes name weights that stay f32 beside quantized ones, such as T5's
 * last matrices in f16: plans and conversions keep to that.
 */
static int32_t
cast_dtype(const berthi_weight *weight, const berthi_estimate_options *options,
           int32_t dtype)
{
    const bool is_kept = (dtype == BERTH_F16 && weight->is_f32_in_f16)
                         || (dtype == BERTH_BF16 && weight->is_f32_in_bf16);

    if (weight->is_f32 || (is_kept && berthi_type_is_quantized(options->type)))
        return BERTH_F32;
    return dtype;
}

static berthi_storage
storage_of(const berthi_weight *weight, const berthi_estimate_options *options)
{
    berthi_storage storage = { .encoding = BERTH_ENCODING_NATIVE,
                               .dtype = weight->dtype,
                               .storage = BERTH_U8,
                               .block_size = options->block_size };

    if (options->type == BERTHI_TYPE_NATIVE || !berthi_is_number(weight->dtype))
        return storage;
    storage.dtype = options->type == BERTHI_TYPE_F32    ? BERTH_F32
                    : options->type == BERTHI_TYPE_BF16 ? BERTH_BF16
                    : options->type == BERTHI_TYPE_F16  ? BERTH_F16
                                                        : options->dtype;
    if (!is_quantized(weight, options)) {
        storage.dtype = cast_dtype(weight, options, storage.dtype);
        return storage;
    }
    switch (options->type) {
    case BERTHI_TYPE_INT8: storage.encoding = BERTH_ENCODING_INT8; break;
    case BERTHI_TYPE_NF4: storage.encoding = BERTH_ENCODING_NF4; break;
    case BERTHI_TYPE_FP4: storage.encoding = BERTH_ENCODING_FP4; break;
    case BERTHI_TYPE_NF4_DOUBLE:
        storage.encoding = BERTH_ENCODING_NF4;
        storage.is_double = true;
        break;
    default:
        storage.encoding = BERTH_ENCODING_FP4;
        storage.is_double = true;
        break;
    }
    return storage;
}

/*
 * Of one tensor. What cannot be quantized (a block size that is none is refused
 * before) stays plain.
 */
static weight_bytes
bytes_of(const berthi_weight *weight, const berthi_estimate_options *options)
{
    const weight_bytes beyond = { BERTHI_BEYOND, BERTHI_BEYOND, BERTHI_BEYOND };
    const uint64_t stacked[] = { weight->stack, weight->shape[0], weight->shape[1] };
    const uint64_t *const shape = weight->stack > 1 ? stacked : weight->shape;
    const uint32_t rank = weight->stack > 1 ? 3 : weight->rank;
    berthi_storage storage = storage_of(weight, options);
    berthi_stored parts[BERTHI_STORED_MAX];
    weight_bytes bytes = { 0, 0, 0 };
    uint32_t count;

    if (options->type == BERTHI_TYPE_NATIVE && weight->stored > 0)
        return (weight_bytes){ weight->stored, 0, 0 };
    if (berthi_stored_refusal(&storage, shape, rank) != NULL)
        storage.encoding = BERTH_ENCODING_NATIVE;
    if (berthi_stored_refusal(&storage, shape, rank) != NULL)
        return beyond;
    count = berthi_stored_list(&storage, shape, rank, parts);
    for (uint32_t i = 0; i < count; i++) {
        switch (parts[i].role) {
        case BERTHI_ROLE_VALUES:
        case BERTHI_ROLE_CODES: bytes.values += parts[i].bytes; break;
        case BERTHI_ROLE_ABSMAX:
        case BERTHI_ROLE_ABSMAX2:
        case BERTHI_ROLE_ROW_MAXIMUM: bytes.statistics += parts[i].bytes; break;
        default: bytes.tables += parts[i].bytes; break;
        }
    }
    return bytes;
}

static uint64_t
total_of(const weight_bytes *bytes)
{
    return berthi_add_capped(berthi_add_capped(bytes->values, bytes->statistics),
                             bytes->tables);
}

static void
add(uint64_t *sum, uint64_t bytes)
{
    *sum = berthi_add_capped(*sum, bytes);
}

/* Experts of the decoder that one token does not take: their share of the weights. */
static uint64_t
idle_share(const berthi_shape *shape, const berthi_weight *weight, uint64_t bytes)
{
    const berthi_layer *layer;

    if (weight->role != BERTHI_WEIGHT_EXPERT || weight->layer >= shape->kind_count)
        return 0;
    layer = &shape->kinds[weight->layer];
    if (layer->experts == 0 || layer->is_encoder || bytes == BERTHI_BEYOND)
        return 0;
    return bytes / layer->experts * (layer->experts - layer->experts_used);
}

static void
add_weight(const berthi_estimate_model *model, const berthi_weight *weight,
           const berthi_estimate_options *options, berthi_weight_sums *out)
{
    const weight_bytes one = bytes_of(weight, options);
    const uint64_t tensors = weight->count / berthi_max_u64(weight->stack, 1);
    const uint64_t bytes = berthi_times(total_of(&one), tensors);
    const uint64_t elements = elements_of(weight);

    add(&out->parameters, berthi_times(elements, weight->count));
    add(&out->values, berthi_times(one.values, tensors));
    add(&out->statistics, berthi_times(one.statistics, tensors));
    add(&out->tables, berthi_times(one.tables, tensors));
    add(&out->total, bytes);
    if (is_linear(weight)) {
        add(&out->linears, bytes);
        out->largest = berthi_max_u64(out->largest, elements);
    }
    if (one.tables > 0) /* only what is quantized has any */
        add(&out->quantized, berthi_times(elements, weight->count));
    add(&out->idle, idle_share(model->shape, weight, bytes));
    if (weight->layer < model->shape->kind_count)
        add(&out->layers[weight->layer], bytes);
    else
        add(weight->role == BERTHI_WEIGHT_EMBEDDING ? &out->first : &out->last, bytes);
}

void
berthi_estimate_weights(const berthi_estimate_model *model,
                        const berthi_estimate_options *options, berthi_weight_sums *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < model->weight_count; i++)
        add_weight(model, &model->weights[i], options, out);
    for (uint32_t i = 0; i < model->shape->kind_count; i++)
        out->layers[i] = berthi_divided(out->layers[i], model->shape->kinds[i].count);
}
