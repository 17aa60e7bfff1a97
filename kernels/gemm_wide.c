/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_wide.c - weights of 4 bits times many inputs by kernels of sm_90a; see gemm_lt.h. */
#include "kernels/gemm_room.h"

_Static_assert((uint64_t)WIDE_MOST_CTAS * WIDE_MOST_PART_BYTES <= BERTHI_GEMM_WORKSPACE_BYTES,
               "parts of tiles have the workspace");

bool
berthi_gemm_is_wide(const berthi_cuda_call *call, const berthi_multiply_arguments *a)
{
    const berthi_cuda_properties *const p = &call->device->properties;

    return call->device->machine->tiles != NULL && call->calls->wide != 0
           && call->calls->wide == 10 * p->major + p->minor
           && a->count >= BERTHI_GEMM_WIDE_LEAST
           && berthi_launch_can_wide(a, (uint32_t)p->processors);
}

berth_status
berthi_gemm_multiply_wide(const berthi_cuda_call *call, const berthi_multiply_arguments *a,
                          const uint32_t *values, berthi_stream *stream)
{
    berthi_wide_task task = { .what = a, .values = values,
                              .processors = (uint32_t)call->device->properties.processors };
    berthi_gemm *g;
    berthi_gemm_room *r;
    berthi_launch launch;
    berth_status status = berthi_gemm_begin(call, stream, BERTHI_GEMM_NEEDS_FLAGS, &g, &r);

    if (status != BERTH_OK)
        return status;
    task.parts = r->workspace;
    task.flags = r->flags;
    status = berthi_launch_wide(&task, &launch, call->error);
    if (status == BERTH_OK)
        status = berthi_cuda_start(call, &launch, stream);
    return berthi_gemm_end(g, call, r, status);
}
