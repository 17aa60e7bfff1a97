/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_fit.c - estimates asked backwards, and as a table; see estimate.h. */
#include "placement/estimate_lines.h"

/* From the most exact to the smallest. */
static const int32_t ranked_types[] = { BERTHI_TYPE_NATIVE, BERTHI_TYPE_BF16,
                                        BERTHI_TYPE_INT8, BERTHI_TYPE_NF4,
                                        BERTHI_TYPE_NF4_DOUBLE };

#define RANKED (sizeof ranked_types / sizeof *ranked_types)

static uint64_t
less_reserve(uint64_t bytes, uint32_t percent)
{
    const uint64_t kept = berthi_percent(bytes, percent);

    /* Beyond 2^64 / 100 the product is not exact: a hundredth at a time, then. */
    return kept == BERTHI_BEYOND ? bytes / 100 * (100 - percent) : bytes - kept;
}

/* Of the device of this number; 0 behind the last. */
static uint64_t
usable_of(const berthi_fit_budget *budget, uint32_t number)
{
    if (number == 0)
        return less_reserve(budget->bytes, budget->reserve_percent);
    if (number > budget->more_count)
        return 0;
    return less_reserve(budget->more[number - 1], budget->reserve_percent);
}

uint64_t
berthi_fit_usable(const berthi_fit_budget *budget)
{
    return usable_of(budget, 0);
}

uint64_t
berthi_fit_usable_all(const berthi_fit_budget *budget)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i <= budget->more_count; i++)
        bytes = berthi_add_capped(bytes, usable_of(budget, i));
    return bytes;
}

berth_status
berthi_fit_check(const berthi_estimate_options *options, const berthi_fit_budget *budget,
                 berth_error *error)
{
    berthi_error_clear(error);
    if (budget->bytes == 0)
        return berthi_fail_argument(error, "budget", "is 0 bytes");
    for (uint32_t i = 0; i < budget->more_count; i++)
        if (budget->more[i] == 0)
            return berthi_fail_argument(error, "budget", "is 0 bytes");
    if (budget->reserve_percent > 100)
        return berthi_fail_argument(error, "reserve_percent", "is more than 100");
    return berthi_estimate_check(options, error);
}

/* ----------------------------------------------------------------- one estimate */

/* Bytes on the device; beyond 2^64 they are UINT64_MAX, which never fits. */
static uint64_t
device_bytes(const berthi_estimate_model *model, const berthi_weight_sums *sums,
             const berthi_estimate_options *options)
{
    berthi_estimate estimate;

    if (berthi_estimate_with(model, sums, options, &estimate, NULL) != BERTH_OK)
        return BERTHI_BEYOND;
    return estimate.device_bytes;
}

/* -------------------------------------------------------------------- many devices */

/* Devices being filled one after the other. */
typedef struct packing {
    const berthi_fit_budget *budget; /* NULL: as many as there must be, all alike */
    uint64_t usable;                 /* then: of each */
    uint64_t own;  /* what each needs besides weights and cache */
    uint64_t left; /* of the newest */
    uint32_t devices;
} packing;

/* False: there is no further device. One without room for its own needs has none. */
static bool
can_open_device(packing *p)
{
    const uint32_t most = p->budget != NULL ? p->budget->more_count + 1
                                            : BERTHI_FIT_DEVICES;
    uint64_t usable;

    if (p->devices == most)
        return false;
    usable = p->budget != NULL ? usable_of(p->budget, p->devices) : p->usable;
    p->left = usable > p->own ? usable - p->own : 0;
    p->devices++;
    return true;
}

/* `count` pieces of `bytes` each, in order. False: a piece finds no room. */
static bool
can_pack(packing *p, uint64_t bytes, uint64_t count)
{
    while (count > 0) {
        const uint64_t room = bytes > 0 ? p->left / bytes : count;
        const uint64_t taken = berthi_min_u64(room, count);

        p->left -= taken * bytes;
        count -= taken;
        if (count > 0 && !can_open_device(p))
            return false;
    }
    return true;
}

uint64_t
berthi_fit_own(const berthi_estimate *estimate)
{
    static const int32_t parts[] = { BERTHI_PART_ACTIVATIONS, BERTHI_PART_SCORES,
                                     BERTHI_PART_CONTEXT, BERTHI_PART_WORKSPACE,
                                     BERTHI_PART_FRAGMENTATION };
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        bytes += berthi_estimate_bytes(estimate, parts[i]);
    return bytes;
}

uint64_t
berthi_layer_keeps(const berthi_shape *shape, const berthi_layer *layer,
                   const berthi_estimate_options *options)
{
    const uint64_t cache = berthi_cache_layer(shape, layer, options, options->context);
    const uint64_t cross =
        layer->has_cross ? berthi_cache_layer(shape, layer, options,
                                              berthi_estimate_source(options))
                         : 0;
    const uint64_t states =
        berthi_add_capped(berthi_times(layer->state_elements, 4),
                          berthi_times(layer->convolution_elements,
                                       berthi_dtype_bytes(options->dtype)));

    return berthi_times(options->batch,
                        berthi_add_capped(berthi_add_capped(cache, cross), states));
}

/* Whole layers, in order, the embeddings before and the head behind them. */
static bool
can_pack_model(packing *p, const berthi_estimate_model *model,
               const berthi_weight_sums *sums, const berthi_estimate_options *options)
{
    const berthi_shape *const shape = model->shape;
    berthi_estimate estimate;

    if (berthi_estimate_with(model, sums, options, &estimate, NULL) != BERTH_OK)
        return false;
    p->own = berthi_fit_own(&estimate);
    if (!can_open_device(p) || !can_pack(p, sums->first, 1))
        return false;
    for (uint32_t i = 0; i < shape->kind_count; i++) {
        const berthi_layer *const layer = &shape->kinds[i];

        if (!can_pack(p,
                      berthi_add_capped(sums->layers[i],
                                        berthi_layer_keeps(shape, layer, options)),
                      layer->count))
            return false;
    }
    return can_pack(p,
                    berthi_add_capped(sums->last,
                                      berthi_estimate_bytes(&estimate, BERTHI_PART_LOGITS)),
                    1);
}

uint32_t
berthi_fit_devices(const berthi_estimate_model *model, const berthi_weight_sums *sums,
                   const berthi_estimate_options *options, uint64_t usable)
{
    packing p = { .usable = usable };

    return can_pack_model(&p, model, sums, options) && p.own <= usable ? p.devices : 0;
}

bool
berthi_fit_is_held(const berthi_estimate_model *model, const berthi_weight_sums *sums,
                   const berthi_estimate_options *options,
                   const berthi_fit_budget *budget)
{
    packing p = { .budget = budget };

    /* One device has no layers to round to. */
    if (budget->more_count == 0)
        return device_bytes(model, sums, options) <= usable_of(budget, 0);
    return can_pack_model(&p, model, sums, options);
}

/* ------------------------------------------------------------------------- contexts */

static bool
can_fit_context(const berthi_estimate_model *model, const berthi_weight_sums *sums,
                berthi_estimate_options options, const berthi_fit_budget *budget,
                uint64_t context)
{
    options.context = context;
    return berthi_fit_is_held(model, sums, &options, budget);
}

/* Bytes never fall as the context grows: halving finds the border. */
uint64_t
berthi_fit_context(const berthi_estimate_model *model, const berthi_weight_sums *sums,
                   const berthi_estimate_options *options,
                   const berthi_fit_budget *budget, uint64_t most)
{
    uint64_t fits = 0;
    uint64_t fails = most + 1;

    while (fails - fits > 1) {
        const uint64_t middle = fits + (fails - fits) / 2;

        if (can_fit_context(model, sums, *options, budget, middle))
            fits = middle;
        else
            fails = middle;
    }
    return fits;
}

/* ------------------------------------------------------------------------ answers */

/* The row's type says which; the rest of it is filled. */
static void
fit_type(const berthi_estimate_model *model, const berthi_estimate_options *options,
         const berthi_fit_budget *budget, berthi_fit_type *row)
{
    const uint64_t most = model->shape->positions > 0 ? model->shape->positions
                                                      : BERTHI_FIT_CONTEXT;
    berthi_estimate_options tried = *options;
    berthi_weight_sums sums;

    tried.type = row->type;
    berthi_estimate_weights(model, &tried, &sums);
    row->bytes = device_bytes(model, &sums, &tried);
    row->fits = berthi_fit_is_held(model, &sums, &tried, budget);
    row->context = berthi_fit_context(model, &sums, &tried, budget, most);
    row->is_capped = row->context == most;
    row->devices = berthi_fit_devices(model, &sums, &tried, usable_of(budget, 0));
}

uint32_t
berthi_fit_types(const berthi_estimate_model *model, int32_t asked,
                 int32_t out[BERTHI_TYPE_COUNT])
{
    uint32_t count = 0;
    bool has_asked = false;

    for (size_t i = 0; i < (model->is_foreign ? 1 : RANKED); i++) {
        out[count++] = ranked_types[i];
        has_asked = has_asked || ranked_types[i] == asked;
    }
    if (!has_asked)
        out[count++] = asked;
    return count;
}

int32_t
berthi_estimate_fit(const berthi_estimate_model *model,
                    const berthi_estimate_options *options,
                    const berthi_fit_budget *budget, berthi_fit_type *rows,
                    uint32_t count)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < count; i++) {
        fit_type(model, options, budget, &rows[i]);
        if (rows[i].fits && best < 0)
            best = (int32_t)i;
    }
    return best;
}

berth_status
berthi_estimate_table(const berthi_estimate_model *model,
                      const berthi_estimate_options *options,
                      const berthi_estimate_cells *cells, berth_error *error)
{
    berthi_estimate_options cell = *options;
    uint64_t *bytes = cells->bytes;
    berthi_weight_sums sums;
    berthi_estimate estimate;
    berth_status status = BERTH_OK;

    berthi_error_clear(error);
    for (uint32_t row = 0; row < cells->type_count; row++) {
        cell.type = cells->types[row];
        cell.context = options->context;
        status = berthi_estimate_check(&cell, error);
        if (status != BERTH_OK)
            return status;
        berthi_estimate_weights(model, &cell, &sums);
        for (uint32_t column = 0; column < cells->context_count; column++) {
            cell.context = cells->contexts[column];
            status = berthi_estimate_with(model, &sums, &cell, &estimate, error);
            if (status != BERTH_OK)
                return status;
            *bytes++ = estimate.device_bytes;
        }
    }
    return status;
}
