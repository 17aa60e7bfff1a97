/* SPDX-License-Identifier: Apache-2.0 */
/* lease_api.c - leases as berth.h has them, of layers that are streamed and of others. */
#include <inttypes.h>
#include <string.h>

#include "kernels/trace.h"
#include "loader/lease.h"

typedef berth_status (*gate_call)(berth_model *model, berth_error *error);

static berth_status
enter(berth_model *model, uint32_t layer, gate_call gate, berth_error *error)
{
    berthi_error_clear(error);
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    if (layer >= model->layer_count)
        return berthi_fail_argument(error, "layer", "is none of the plan's");
    return gate(model, error);
}

static gate_call
gate_of(int32_t event)
{
    return event == BERTH_TRACE_RELEASE ? berthi_model_enter_to_release : berthi_model_enter;
}

/* What is done with a layer, while the model stays as it is. */
typedef struct layer_call {
    berth_status (*streamed)(berthi_leases *leases, uint32_t layer, berthi_stream *stream,
                             berth_error *error);
    berth_status (*resident)(berth_model *model, uint32_t layer, berth_error *error);
    int32_t event;
} layer_call;

static berth_status
call_layer(berth_model *model, uint32_t layer, berthi_stream *stream,
           const layer_call *call, berth_error *error)
{
    berth_status status = enter(model, layer, gate_of(call->event), error);
    uint64_t begin_ns;

    if (status != BERTH_OK)
        return status;
    begin_ns = berthi_trace_begin(model->context);
    if (berthi_leases_stream(model->leases, layer))
        status = call->streamed(model->leases, layer, stream, error);
    else if (call->resident != NULL)
        status = call->resident(model, layer, error);
    berthi_trace_end(model->context, call->event, "caller", begin_ns, 0,
                     (berthi_trace_of){ BERTH_NO_TENSOR, layer, BERTH_NO_INDEX });
    berthi_model_leave(model);
    return status;
}

static berth_status
acquire_resident(berth_model *model, uint32_t layer, berth_error *error)
{
    (void)error;
    atomic_fetch_add(&model->held[layer], 1);
    return BERTH_OK;
}

static berth_status
release_resident(berth_model *model, uint32_t layer, berth_error *error)
{
    uint32_t held = atomic_load(&model->held[layer]);

    do {
        if (held == 0)
            return berthi_fail(error, BERTH_REASON_LEASE, NULL,
                               "layer %" PRIu32 " is not leased", layer);
    } while (!atomic_compare_exchange_weak(&model->held[layer], &held, held - 1));
    return BERTH_OK;
}

berth_status
berth_layer_acquire(berth_model *model, uint32_t layer, void *stream, berth_error *error)
{
    static const layer_call acquire = { berthi_leases_acquire, acquire_resident,
                                        BERTH_TRACE_ACQUIRE };

    return call_layer(model, layer, stream, &acquire, error);
}

berth_status
berth_layer_release(berth_model *model, uint32_t layer, void *stream, berth_error *error)
{
    static const layer_call release = { berthi_leases_release, release_resident,
                                        BERTH_TRACE_RELEASE };

    return call_layer(model, layer, stream, &release, error);
}

static berth_status
prefetch_layer(berthi_leases *leases, uint32_t layer, berthi_stream *stream,
               berth_error *error)
{
    (void)stream;
    return berthi_leases_prefetch(leases, layer, error);
}

berth_status
berth_layer_prefetch(berth_model *model, uint32_t layer, berth_error *error)
{
    static const layer_call prefetch = { prefetch_layer, NULL, BERTH_TRACE_ACQUIRE };

    return call_layer(model, layer, NULL, &prefetch, error);
}

/* ------------------------------------------------------------------------ experts */

/* What is done with them, while the model stays as it is. */
typedef berth_status (*expert_call)(berthi_leases *leases, const berthi_expert_list *list,
                                    berthi_stream *stream, berth_error *error);

static berth_status
prefetch_experts(berthi_leases *leases, const berthi_expert_list *list,
                 berthi_stream *stream, berth_error *error)
{
    (void)stream;
    return berthi_experts_prefetch(leases, list, error);
}

static berth_status
call_some(const berth_model *model, const berthi_expert_list *list, berthi_stream *stream,
          expert_call call, berth_error *error)
{
    if (list->numbers == NULL)
        return berthi_fail_argument(error, "experts", "is NULL");
    if (model->leases == NULL)
        return berthi_fail_argument(error, "experts", "the layer has none");
    return call(model->leases, list, stream, error);
}

static berth_status
call_experts(berth_model *model, const berthi_expert_list *list, berthi_stream *stream,
             expert_call call, int32_t event, berth_error *error)
{
    berth_status status = enter(model, list->layer, gate_of(event), error);
    uint64_t begin_ns;

    if (status != BERTH_OK)
        return status;
    begin_ns = berthi_trace_begin(model->context);
    if (list->count > 0)
        status = call_some(model, list, stream, call, error);
    berthi_trace_end(model->context, event, "caller", begin_ns, 0,
                     (berthi_trace_of){ BERTH_NO_TENSOR, list->layer, BERTH_NO_INDEX });
    berthi_model_leave(model);
    return status;
}

berth_status
berth_experts_acquire(berth_model *model, uint32_t layer, const uint32_t *experts,
                      uint32_t count, void *stream, berth_error *error)
{
    return call_experts(model, &(berthi_expert_list){ layer, count, experts }, stream,
                        berthi_experts_acquire, BERTH_TRACE_ACQUIRE, error);
}

berth_status
berth_experts_release(berth_model *model, uint32_t layer, const uint32_t *experts,
                      uint32_t count, void *stream, berth_error *error)
{
    return call_experts(model, &(berthi_expert_list){ layer, count, experts }, stream,
                        berthi_experts_release, BERTH_TRACE_RELEASE, error);
}

berth_status
berth_experts_prefetch(berth_model *model, uint32_t layer, const uint32_t *experts,
                       uint32_t count, berth_error *error)
{
    return call_experts(model, &(berthi_expert_list){ layer, count, experts }, NULL,
                        prefetch_experts, BERTH_TRACE_ACQUIRE, error);
}

uint32_t
berth_experts_slots(const berth_model *model, uint32_t layer)
{
    if (layer >= model->layer_count)
        return UINT32_MAX;
    if (model->leases != NULL)
        return berthi_experts_slots(model->leases, layer);
    return berth_model_get_state(model) == BERTH_MODEL_ASLEEP ? model->expert_slots[layer]
                                                              : UINT32_MAX;
}

void
berth_experts_count(const berth_model *model, uint32_t layer, berth_expert_counts *out)
{
    memset(out, 0, sizeof *out);
    if (model->leases != NULL && layer < model->plan->summary.layer_count)
        berthi_experts_count(model->leases, layer, out);
}

/* ------------------------------------------------------------------------- asking */

void
berth_model_leases(const berth_model *model, berth_lease_summary *out)
{
    pthread_mutex_t *const lock = (pthread_mutex_t *)(uintptr_t)&model->lease_lock;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(lock);
    if (model->leases != NULL)
        berthi_leases_summary(model->leases, out);
    berthi_leases_add(out, &model->leased);
    pthread_mutex_unlock(lock);
}
