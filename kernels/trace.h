/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what was done when, for who wants to know: the events of berth.h.
 *
 *     const uint64_t begin_ns = berthi_trace_begin(context);
 *     ... work ...
 *     berthi_trace_end(context, KIND, "worker", begin_ns, bytes, of);
 *
 * Without a listener both are one comparison. Locks may be held: listeners do not call
 * back.
 */
#ifndef BERTH_KERNELS_TRACE_H
#define BERTH_KERNELS_TRACE_H

#include "kernels/memory.h"
#include "kernels/sys.h"

/* What an event is about. */
typedef struct berthi_trace_of {
    uint64_t tensor; /* of the checkpoint; BERTH_NO_TENSOR */
    uint32_t layer;  /* of the plan; BERTH_NO_INDEX */
    uint32_t shard;  /* the same */
} berthi_trace_of;

#define BERTHI_TRACE_NOTHING                                                               \
    ((berthi_trace_of){ BERTH_NO_TENSOR, BERTH_NO_INDEX, BERTH_NO_INDEX })

static inline bool
berthi_trace_is_on(const berth_context *context)
{
    return context->trace != NULL;
}

/* 0: nobody listens. */
static inline uint64_t
berthi_trace_begin(const berth_context *context)
{
    return berthi_trace_is_on(context) ? berthi_sys_now_ns() : 0;
}

/* To the listener, which is there. */
void berthi_trace_tell(berth_context *context, const berth_trace_event *event,
                       berthi_trace_of of);
/* On the lane of this thread, until now; `name` of the lane may be "": not known here. */
void berthi_trace_thread(berth_context *context, int32_t kind, const char *name,
                         uint64_t begin_ns, uint64_t bytes, berthi_trace_of of);

static inline void
berthi_trace_end(berth_context *context, int32_t kind, const char *name,
                 uint64_t begin_ns, uint64_t bytes, berthi_trace_of of)
{
    if (begin_ns != 0)
        berthi_trace_thread(context, kind, name, begin_ns, bytes, of);
}

#endif
