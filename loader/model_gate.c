/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_gate.c - who may use a model: calls about its layers, any number at once, or one
 * job that moves it.
 */
#include <inttypes.h>

#include "kernels/sys.h"
#include "loader/job.h"
#include "loader/lease.h"
#include "loader/model.h"
#include "loader/stranded.h"

#define STATES  (BERTHI_MODEL_MOVING | BERTHI_MODEL_ASLEEP | BERTHI_MODEL_TAKEN)
#define NAP_NS  UINT64_C(50000)

static berth_status
refuse(uint32_t gate, const char *called, berth_error *error)
{
    if ((gate & BERTHI_MODEL_MOVING) != 0)
        return berthi_fail(error, BERTH_REASON_MOVING, NULL, "%s is being moved", called);
    return berthi_fail(error, BERTH_REASON_ASLEEP, NULL, "%s is asleep", called);
}

static berth_status
enter(berth_model *model, uint32_t closed, berth_error *error)
{
    const uint32_t gate = atomic_fetch_add(&model->gate, 1);

    if ((gate & closed) == 0)
        return BERTH_OK;
    berthi_model_leave(model);
    return refuse(gate, "the model", error);
}

berth_status
berthi_model_enter(berth_model *model, berth_error *error)
{
    return enter(model, STATES, error);
}

berth_status
berthi_model_enter_to_release(berth_model *model, berth_error *error)
{
    return enter(model, BERTHI_MODEL_ASLEEP | BERTHI_MODEL_TAKEN, error);
}

void
berthi_model_leave(berth_model *model)
{
    atomic_fetch_sub(&model->gate, 1);
}

berth_status
berthi_model_begin_move(berth_model *model, bool is_asleep, const char *called,
                        berth_error *error)
{
    const uint32_t wanted = is_asleep ? BERTHI_MODEL_ASLEEP : 0;
    uint32_t gate = atomic_load(&model->gate);
    bool is_stranded;

    do {
        if ((gate & BERTHI_MODEL_MOVING) != 0
            || ((gate & BERTHI_MODEL_ASLEEP) != 0 && !is_asleep))
            return refuse(gate, called, error);
        if ((gate & BERTHI_MODEL_ASLEEP) != wanted)
            return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "%s is awake", called);
    } while (!atomic_compare_exchange_weak(&model->gate, &gate,
                                           gate | BERTHI_MODEL_MOVING));
    is_stranded = berthi_model_is_stranded(model);
    if (atomic_load(&model->exports) == 0 && !is_stranded)
        return BERTH_OK;
    atomic_fetch_and(&model->gate, ~BERTHI_MODEL_MOVING);
    if (is_stranded)
        return berthi_model_fail_stranded(error);
    return berthi_fail(error, BERTH_REASON_EXPORTED, NULL,
                       "others use tensors of %s", called);
}

/* One call may read and copy more than once: as long as that moves it is waited for. */
static berth_status
await_calls(berth_model *model, const berth_job *job, berth_error *error)
{
    berthi_watch watch = berthi_watch_begin(model->wait_ns, NAP_NS);
    uint64_t moved_ns = berthi_leases_moved_ns(model->leases);

    while ((atomic_load(&model->gate) & ~STATES) != 0) {
        const uint64_t now_moved_ns = berthi_leases_moved_ns(model->leases);

        if (now_moved_ns != moved_ns)
            watch = berthi_watch_begin(model->wait_ns, NAP_NS);
        moved_ns = now_moved_ns;
        if (berthi_watch_is_over(&watch))
            return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                               "calls that use the model's layers do not end");
        if (berthi_job_is_cancelled(job))
            return berthi_job_fail_cancelled(error);
        berthi_sys_sleep(NAP_NS);
    }
    return BERTH_OK;
}

/* Layers of which nothing is streamed. */
static berth_status
check_held(const berth_model *model, berth_error *error)
{
    for (uint32_t l = 0; l < model->layer_count; l++)
        if (atomic_load(&model->held[l]) > 0)
            return berthi_fail(error, BERTH_REASON_LEASED, NULL,
                               "layer %" PRIu32 " is leased", l);
    return BERTH_OK;
}

/*
 * A lease that is out ends the move, so nothing is leased when releases are shut out: those
 * that are under way then are of nothing, but look at the slots.
 */
berth_status
berthi_model_take(berth_model *model, const berth_job *job, berth_error *error)
{
    berth_status status = await_calls(model, job, error);

    if (status == BERTH_OK)
        status = check_held(model, error);
    if (status == BERTH_OK && model->leases != NULL)
        status = berthi_leases_settle(model->leases, job, error);
    if (status != BERTH_OK)
        return status;
    atomic_fetch_or(&model->gate, BERTHI_MODEL_TAKEN);
    return await_calls(model, job, error);
}

void
berthi_model_end_move(berth_model *model, bool is_asleep)
{
    if (is_asleep)
        atomic_fetch_or(&model->gate, BERTHI_MODEL_ASLEEP);
    else
        atomic_fetch_and(&model->gate, ~BERTHI_MODEL_ASLEEP);
    atomic_fetch_and(&model->gate, ~(BERTHI_MODEL_MOVING | BERTHI_MODEL_TAKEN));
}

int32_t
berth_model_get_state(const berth_model *model)
{
    const uint32_t gate = atomic_load(&model->gate);

    if ((gate & BERTHI_MODEL_MOVING) != 0)
        return BERTH_MODEL_MOVING;
    return (gate & BERTHI_MODEL_ASLEEP) != 0 ? BERTH_MODEL_ASLEEP : BERTH_MODEL_AWAKE;
}
