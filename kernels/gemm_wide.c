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

/*
 * On an H200. 256 to 1024 inputs of a weight of 1024 x 8192 take the library 0.78 to 0.89 of these
 * kernels' time, and those of 4096 x 4096 1.09 to 1.43 times that; larger weights more. Up to 2048
 * is not measured: 256 inputs should take what those before them take, 1.03 to 1.13 times 16 bits'
 * time, for which the library takes 1.13 to 1.23. Of more inputs decoding is a small part.
 */
#define SMALL_WEIGHT  (UINT64_C(12) << 20)
#define SURE_INPUTS   1024u
#define LIKELY_INPUTS 2048u /* where each processor has a tile */

bool
berthi_gemm_is_wide_first(const berthi_cuda_call *call, const berthi_multiply_arguments *a)
{
    static const berthi_wide_shape largest = WIDE_SHAPE_256;
    const uint64_t tiles = berthi_divide_up(a->rows, largest.fours * WIDE_ROWS)
                           * berthi_divide_up(a->count, largest.inputs);

    if (a->rows * a->columns < SMALL_WEIGHT || a->count > LIKELY_INPUTS)
        return false;
    return a->count <= SURE_INPUTS || tiles >= (uint64_t)call->device->properties.processors;
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
