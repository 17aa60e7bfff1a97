/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_write.c - what another plan wants on the disk and no file has: from its slab to a
 * file of its own, below the folder that the load was given.
 *
 *   slab ──▶ [ bounce ] ──▶ file      part by part, as a slot wants the berth
 *
 * It is written before anything else is done: a disk that is full costs a model no more
 * than its leases, which begin anew. Files written before are left as they are, and read
 * together with the new one.
 */
#include "loader/move.h"
#include "loader/offload.h"

/* `from`: where the part lies. */
static berth_status
write_part(berthi_replan *replan, berthi_carrier *carrier, berthi_spot from,
           const berthi_offload_bytes *part, berth_error *error)
{
    const uint64_t end = part->offset + part->size;
    berthi_offload_bytes piece = *part;
    berth_status status = BERTH_OK;

    for (; piece.offset < end && status == BERTH_OK; piece.offset += piece.size) {
        berthi_spot at;

        if (berthi_carrier_is_cancelled(carrier))
            return berthi_job_fail_cancelled(error);
        piece.size = berthi_min_u64(BERTHI_CARRY_BYTES, end - piece.offset);
        piece.behind = part->behind + (end - piece.offset - piece.size);
        status = berthi_carrier_fetch(carrier, &from, piece.size, &at, error);
        if (status != BERTH_OK)
            return status;
        piece.bytes = at.memory;
        status = berthi_offload_write(replan->offload, &piece, error);
        from.memory += piece.size;
        carrier->written_bytes += piece.size;
        berthi_job_advance(carrier->job, piece.size);
    }
    return status;
}

/* Padding behind its parts is zero in a new file, as it is in a slab. */
static berth_status
write_berth(berthi_replan *replan, berthi_carrier *carrier, uint64_t berth,
            berth_error *error)
{
    const berth_model *const model = replan->model;
    const berthi_berth *const b = &model->plan->berths[berth];
    berthi_offload_bytes part = { .berth = berth };
    berthi_cargo cargo;
    berth_status status = berthi_model_cargo(model, berth, &cargo, error);

    for (uint32_t i = 0; i < cargo.part_count && status == BERTH_OK; i++)
        part.behind += cargo.parts[i].bytes;
    for (uint32_t i = 0; i < cargo.part_count && status == BERTH_OK; i++) {
        part.offset = cargo.parts[i].offset;
        part.size = cargo.parts[i].bytes;
        part.behind -= part.size;
        status =
            write_part(replan, carrier,
                       berthi_move_spot(&model->tiers[b->tier], b->offset + part.offset),
                       &part, error);
    }
    return status;
}

berth_status
berthi_replan_write(berthi_replan *replan, berthi_carrier *carrier, berth_error *error)
{
    const berth_model *const model = replan->model;
    berth_status status;

    if (model->offload_dir == NULL)
        return BERTH_OK;
    status = berthi_offload_create(model, replan->plan, model->offload_dir,
                                   &replan->offload, error);
    if (status != BERTH_OK || replan->offload == NULL)
        return status;
    for (uint64_t i = 0; i < replan->plan->berth_count && status == BERTH_OK; i++)
        if (replan->offload->offsets[i] != BERTHI_NOT_OFFLOADED)
            status = write_berth(replan, carrier, i, error);
    return status == BERTH_OK ? berthi_offload_end(replan->offload, carrier->job, error)
                              : status;
}
