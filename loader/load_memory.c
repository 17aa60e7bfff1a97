/* SPDX-License-Identifier: Apache-2.0 */
/* load_memory.c - host memory of a load's own that devices copy from. */
#include "loader/load_job.h"
#include "loader/stage.h"

bool
berthi_load_memory_take(berthi_load *load, uint64_t bytes, bool is_copied,
                        berthi_load_memory *memory)
{
    memory->bytes = berthi_round_up(bytes, BERTHI_STAGE_ALIGNMENT);
    memory->at = berthi_memory_aligned(load->context, BERTHI_PURPOSE_SCRATCH,
                                       memory->bytes, BERTHI_STAGE_ALIGNMENT);
    memory->is_pinned = memory->at != NULL && is_copied
                        && berthi_model_pin_stage(load->model, memory->at, memory->bytes);
    return memory->at != NULL;
}

void
berthi_load_memory_give(berthi_load *load, berthi_load_memory *memory)
{
    if (memory->is_pinned)
        berthi_model_unpin(load->model, memory->at, memory->bytes);
    berthi_memory_free_aligned(load->context, BERTHI_PURPOSE_SCRATCH, memory->at,
                               memory->bytes, BERTHI_STAGE_ALIGNMENT);
    *memory = (berthi_load_memory){ .at = NULL };
}
