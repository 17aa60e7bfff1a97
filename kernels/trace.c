/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. */
#include "kernels/trace.h"

static const char *const kind_names[] = {
    [BERTH_TRACE_READ] = "read",       [BERTH_TRACE_CHUNK] = "chunk",
    [BERTH_TRACE_PLACE] = "place",     [BERTH_TRACE_ENCODE] = "encode",
    [BERTH_TRACE_COPY] = "copy",       [BERTH_TRACE_COMPUTE] = "compute",
    [BERTH_TRACE_WAIT] = "wait",       [BERTH_TRACE_FILL] = "fill",
    [BERTH_TRACE_ACQUIRE] = "acquire", [BERTH_TRACE_RELEASE] = "release",
};

const char *
berth_trace_kind_name(int32_t kind)
{
    return kind >= 0 && kind < BERTH_TRACE_KIND_COUNT ? kind_names[kind] : "unknown";
}

void
berthi_trace_tell(berth_context *context, const berth_trace_event *event,
                  berthi_trace_of of)
{
    berth_trace_event told = *event;

    told.tensor = of.tensor;
    told.layer = of.layer;
    told.shard = of.shard;
    context->trace(context->trace_user, &told);
}

void
berthi_trace_thread(berth_context *context, int32_t kind, const char *name,
                    uint64_t begin_ns, uint64_t bytes, berthi_trace_of of)
{
    const berth_trace_event event = { .kind = kind,
                                      .lane = BERTH_LANE_THREAD,
                                      .number = berthi_sys_thread_id(),
                                      .name = name,
                                      .begin_ns = begin_ns,
                                      .end_ns = berthi_sys_now_ns(),
                                      .bytes = bytes };

    berthi_trace_tell(context, &event, of);
}
