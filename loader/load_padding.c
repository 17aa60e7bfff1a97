/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_padding.c - what no part of a berth fills is zeroed: slabs hold what others have
 * left there, and nobody is to see that.
 */
#include "loader/load_job.h"

/* Behind each part, up to the next one. The tier's stream has nothing of it to wait for. */
static berth_status
clear_behind_parts(const berthi_load *load, const berthi_berth *berth,
                   const berthi_cargo *cargo, berth_error *error)
{
    const berthi_model_tier *const tier = &load->model->tiers[berth->tier];
    uint8_t *const memory = tier->slab + berth->offset;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < cargo->part_count && status == BERTH_OK; i++) {
        const uint64_t end = cargo->parts[i].offset + cargo->parts[i].bytes;
        const uint64_t next =
            i + 1 < cargo->part_count ? cargo->parts[i + 1].offset : berth->bytes;

        if (end < next)
            status = tier->device->table->clear(tier->device, memory + end, next - end,
                                                load->tiers[berth->tier].stream, error);
    }
    return status;
}

berth_status
berthi_load_clear_padding(berthi_load *load, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < load->plan->berth_count && status == BERTH_OK; i++) {
        const berthi_berth *const berth = &load->plan->berths[i];
        berthi_cargo cargo;

        if (berth->is_tied || load->model->tiers[berth->tier].slab == NULL)
            continue;
        status = berthi_model_cargo(load->model, i, &cargo, error);
        if (status == BERTH_OK)
            status = clear_behind_parts(load, berth, &cargo, error);
    }
    return status;
}
