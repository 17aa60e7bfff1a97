/* SPDX-License-Identifier: Apache-2.0 */
/* sim_trace.c - the device's own stamps, for who listens; see sim.h. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/sim.h"
#include "kernels/trace.h"

static uint64_t
bytes_of(const berthi_sim_item *item)
{
    if (item->kind == BERTHI_SIM_COPY)
        return item->work.copy.bytes;
    return item->kind == BERTHI_SIM_CLEAR ? item->work.clear.bytes : 0;
}

static int32_t
kind_of(const berthi_sim_item *item)
{
    if (item->kind != BERTHI_SIM_LAUNCH)
        return BERTH_TRACE_COPY;
    return item->work.request.operation == BERTHI_OPERATION_CALL ? BERTH_TRACE_COMPUTE
                                                                : BERTH_TRACE_ENCODE;
}

static berthi_trace_of
about(const berthi_sim_item *item)
{
    berthi_trace_of of = BERTHI_TRACE_NOTHING;

    if (item->kind == BERTHI_SIM_COPY && item->work.copy.layer > 0)
        of.layer = item->work.copy.layer - 1;
    return of;
}

void
berthi_sim_trace_work(const berthi_sim_engine *engine)
{
    static const char *const what[] = { "to device", "to host", "to peers", "compute" };
    const berthi_sim *const sim = engine->sim;
    const berthi_sim_item *const item = engine->stream->head;
    const bool is_real = sim->words.machine.is_real;
    char name[48];

    if (!berthi_trace_is_on(sim->context)
        || engine->stream->device->reason != BERTH_REASON_NONE)
        return;
    snprintf(name, sizeof name, "sim:%" PRIu32 " %s", engine->device, what[engine->kind]);
    berthi_trace_tell(sim->context,
                      &(berth_trace_event){
                          .kind = kind_of(item),
                          .lane = engine->kind == BERTHI_SIM_COMPUTE ? BERTH_LANE_ENGINE
                                                                     : BERTH_LANE_LINK,
                          .number = (uint64_t)(engine - sim->engines),
                          .name = name,
                          .stream = engine->stream->number,
                          .begin_ns = item->begin_ns,
                          .end_ns = is_real ? berthi_sim_now(sim) : engine->end_ns,
                          .is_simulated = !is_real,
                          .bytes = bytes_of(item),
                      },
                      about(item));
}

void
berthi_sim_trace_wait(const berthi_stream *stream)
{
    const berthi_sim *const sim = stream->device->sim;
    const uint64_t now_ns = berthi_sim_now(sim);
    char name[48];

    if (!berthi_trace_is_on(sim->context) || now_ns == stream->head->begin_ns)
        return;
    snprintf(name, sizeof name, "%s stream %" PRIu64, stream->device->name,
             stream->number);
    berthi_trace_tell(sim->context,
                      &(berth_trace_event){ .kind = BERTH_TRACE_WAIT,
                                            .lane = BERTH_LANE_STREAM,
                                            .number = stream->number,
                                            .name = name,
                                            .begin_ns = stream->head->begin_ns,
                                            .end_ns = now_ns,
                                            .is_simulated =
                                                !sim->words.machine.is_real },
                      BERTHI_TRACE_NOTHING);
}
