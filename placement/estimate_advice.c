/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_advice.c - what to do when inference does not fit; see estimate.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "placement/estimate_lines.h"

#define SLOTS 2u /* one is read while the other is filled */

/* ---------------------------------------------------------------------- the list */

uint64_t
berthi_advice_now(const berthi_advice_list *list)
{
    return list->count > 0 ? list->items[list->count - 1].bytes : list->bytes;
}

bool
berthi_advice_add(berthi_advice_list *list, uint64_t bytes, const char *cost,
                  const char *format, ...)
{
    const uint64_t before = berthi_advice_now(list);
    berthi_advice *advice;
    va_list arguments;

    if (bytes >= before || list->count == BERTHI_ADVICE_CAPACITY)
        return false;
    advice = &list->items[list->count++];
    advice->saved = before - bytes;
    advice->bytes = bytes;
    advice->cost = cost;
    advice->fits = list->fits = bytes <= list->usable;
    va_start(arguments, format);
    vsnprintf(advice->what, sizeof advice->what, format, arguments);
    va_end(arguments);
    return true;
}

void
berthi_advice_stream(berthi_advice_list *list, const berthi_streamed *streamed)
{
    const uint64_t now = berthi_advice_now(list);
    const uint64_t slots = berthi_times(SLOTS, streamed->slot);
    uint64_t needed;
    uint64_t layers;
    uint64_t on_host;

    if (list->fits || streamed->each == 0)
        return;
    needed = berthi_add_capped(now > list->usable ? now - list->usable : 0, slots);
    layers = berthi_min_u64(berthi_divided(needed, streamed->each), streamed->layers);
    if (layers * streamed->each <= slots)
        return;
    on_host = berthi_min_u64(layers, streamed->host / streamed->each);
    if (on_host * streamed->each <= slots) /* the slots would take what they free */
        on_host = 0;
    if (on_host > 0)
        berthi_advice_add(list, now - on_host * streamed->each + slots,
                          "link time: their bytes cross the link for every token or step",
                          "%" PRIu64 " of %" PRIu64 " layers on the host, two slots here",
                          on_host, streamed->layers);
    if (on_host < layers)
        berthi_advice_add(list, now - layers * streamed->each + slots,
                          "disk time: their bytes are read for every token or step",
                          "%" PRIu64 " of %" PRIu64 " layers on the disk",
                          layers - on_host, streamed->layers);
}

/* --------------------------------------------------------------------- inference */

typedef struct advising {
    const berthi_estimate_model *model;
    berthi_estimate_options options; /* with the advice so far */
    const berthi_fit_budget *budget;
    berthi_advice_list *list;
} advising;

static uint64_t
bytes_of(const advising *a, const berthi_estimate_options *options)
{
    berthi_estimate estimate;

    if (berthi_estimate_inference(a->model, options, &estimate, NULL) != BERTH_OK)
        return BERTHI_BEYOND;
    return estimate.device_bytes;
}

/* Takes the options whose advice was added. Several devices take whole layers only. */
static void
take(advising *a, const berthi_estimate_options *tried)
{
    berthi_weight_sums sums;

    a->options = *tried;
    if (a->budget->more_count == 0)
        return;
    berthi_estimate_weights(a->model, tried, &sums);
    a->list->fits = berthi_fit_is_held(a->model, &sums, tried, a->budget);
    a->list->items[a->list->count - 1].fits = a->list->fits;
}

static void
try_cache(advising *a, int32_t cache_type)
{
    berthi_estimate_options tried = a->options;

    tried.cache_type = cache_type;
    if (!a->list->fits
        && berthi_advice_add(a->list, bytes_of(a, &tried),
                             "a little accuracy over long contexts", "a KV cache of %s",
                             berthi_cache_type_name(cache_type)))
        take(a, &tried);
}

/* A shorter context; `is_enough`: only where nothing else is needed then. */
static void
try_context(advising *a, bool is_enough)
{
    berthi_estimate_options tried = a->options;
    berthi_weight_sums sums;

    if (a->list->fits || tried.context <= BERTHI_ADVICE_CONTEXT)
        return;
    berthi_estimate_weights(a->model, &tried, &sums);
    tried.context = berthi_fit_context(a->model, &sums, &tried, a->budget, tried.context);
    if (is_enough && tried.context < BERTHI_ADVICE_CONTEXT)
        return;
    tried.context = berthi_max_u64(tried.context, BERTHI_ADVICE_CONTEXT);
    if (berthi_advice_add(a->list, bytes_of(a, &tried), "shorter conversations",
                          "a context of %" PRIu64 " tokens", tried.context))
        take(a, &tried);
}

static void
try_type(advising *a, int32_t type)
{
    berthi_estimate_options tried = a->options;

    tried.type = type;
    if (!a->list->fits && !a->model->is_foreign
        && berthi_advice_add(a->list, bytes_of(a, &tried),
                             "accuracy: measure it with your own evaluation",
                             "weights of %s", berthi_type_name(type)))
        take(a, &tried);
}

static void
try_host(advising *a)
{
    const berthi_shape *const shape = a->model->shape;
    const uint64_t host = a->budget->host_bytes;
    berthi_streamed streamed = { .layers = shape->layers,
                                 .host = host > 0 ? host : UINT64_MAX };
    berthi_weight_sums sums;

    berthi_estimate_weights(a->model, &a->options, &sums);
    streamed.each = sums.linears / shape->layers;
    for (uint32_t i = 0; i < shape->kind_count; i++)
        streamed.slot = berthi_max_u64(streamed.slot, sums.layers[i]);
    /* Each device has slots of its own. */
    streamed.slot = berthi_times(streamed.slot, UINT64_C(1) + a->budget->more_count);
    berthi_advice_stream(a->list, &streamed);
}

/* Instead of the host: what one device holds when the fewest share it evenly. */
static void
try_devices(advising *a)
{
    berthi_weight_sums sums;
    uint32_t devices;

    if (a->list->fits || a->budget->more_count > 0)
        return;
    berthi_estimate_weights(a->model, &a->options, &sums);
    devices = berthi_fit_devices(a->model, &sums, &a->options, a->list->usable);
    if (devices >= 2)
        berthi_advice_add(a->list, a->list->usable, "their price",
                          "%" PRIu32 " such devices, whole layers on each", devices);
}

/* Of all devices, less what each but one needs beside what an estimate counts. */
static uint64_t
usable_by(const advising *a, const berthi_estimate *estimate)
{
    const uint64_t usable = berthi_fit_usable_all(a->budget);
    const uint64_t more = berthi_times(berthi_fit_own(estimate), a->budget->more_count);

    return usable > more ? usable - more : 0;
}

berth_status
berthi_estimate_advise(const berthi_estimate_model *model,
                       const berthi_estimate_options *options,
                       const berthi_fit_budget *budget, berthi_advice_list *out,
                       berth_error *error)
{
    advising a = { .model = model, .options = *options, .budget = budget, .list = out };
    berthi_estimate estimate;
    berthi_weight_sums sums;
    berth_status status;

    memset(out, 0, sizeof *out);
    status = berthi_fit_check(options, budget, error);
    if (status == BERTH_OK)
        status = berthi_estimate_inference(model, options, &estimate, error);
    if (status != BERTH_OK)
        return status;
    berthi_estimate_weights(model, options, &sums);
    out->usable = usable_by(&a, &estimate);
    out->bytes = estimate.device_bytes;
    out->fits = berthi_fit_is_held(model, &sums, options, budget);
    try_cache(&a, BERTHI_CACHE_INT8);
    try_cache(&a, BERTHI_CACHE_INT4);
    try_context(&a, true);
    try_type(&a, BERTHI_TYPE_NF4);
    try_context(&a, true);
    try_type(&a, BERTHI_TYPE_NF4_DOUBLE);
    try_context(&a, false);
    try_host(&a);
    try_devices(&a);
    return BERTH_OK;
}
