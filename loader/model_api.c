/* SPDX-License-Identifier: Apache-2.0 */
/* model_api.c - what berth.h says of a model: tensors, where they lie, their digests. */
#include <string.h>

#include "kernels/digest.h"
#include "loader/lease.h"
#include "loader/model.h"
#include "loader/offload.h"


/* ------------------------------------------------------------------------ tensors */

/* The berth that has the bytes: another one where this is tied, whose place it is. */
static uint64_t
owner_of(const berth_plan *plan, uint64_t number)
{
    const berthi_berth *const tied = &plan->berths[number];
    uint64_t owner = 0;

    if (!tied->is_tied)
        return number;
    while (owner < plan->berth_count
           && (plan->berths[owner].is_tied || plan->berths[owner].bytes == 0
               || plan->berths[owner].tier != tied->tier
               || plan->berths[owner].offset != tied->offset))
        owner++;
    return owner < plan->berth_count ? owner : number;
}

/* Its layer's home, but where a map has put it onto another device: that computes it there. */
static uint32_t
device_of(const berth_model *model, const berthi_berth *berth)
{
    const bool is_on_device = model->tiers[berth->tier].kind == BERTH_TIER_GPU;
    const uint32_t tier =
        is_on_device ? berth->tier : model->plan->layers[berth->layer].out.home;

    return model->tiers[tier].number == BERTHI_NO_DEVICE ? BERTH_NO_INDEX
                                                         : model->tiers[tier].number;
}

/* `place`: of the berth that has the bytes. */
static void
describe(const berth_model *model, const berthi_berth *berth, const berthi_berth *place,
         const berthi_cargo *cargo, berth_model_tensor *out)
{
    const berthi_table *const table = &model->checkpoint->table;

    memset(out, 0, sizeof *out);
    out->name = berthi_table_name(table, berth->number);
    out->name_length = table->entries[berth->number].name_length;
    out->tensor = berth->number;
    out->layer = place->layer;
    out->tier = place->tier;
    out->device = device_of(model, place);
    out->is_resident = place->is_resident;
    out->is_expert = berth->is_expert;
    out->encoding = cargo->storage.encoding;
    out->dtype = cargo->storage.dtype;
    out->block_size = cargo->storage.block_size;
    out->is_double = cargo->storage.is_double;
    out->rank = cargo->rank;
    memcpy(out->shape, cargo->shape, cargo->rank * sizeof *out->shape);
    out->elements = cargo->elements;
    out->part_count = cargo->part_count;
}

/* `memory`: of the berth, whose bytes `owner` has; NULL: it is not there now. */
static berth_status
describe_at(const berth_model *model, uint64_t number, uint64_t owner, const uint8_t *memory,
            berth_model_tensor *out)
{
    const berthi_berth *const berths = model->plan->berths;
    berthi_cargo cargo;
    const berth_status status = berthi_model_cargo(model, number, &cargo, NULL);

    memset(out, 0, sizeof *out);
    if (status != BERTH_OK)
        return status;
    describe(model, &berths[number], &berths[owner], &cargo, out);
    if (!cargo.is_flat)
        out->offset = cargo.is_copied && cargo.record != NULL ? (float)cargo.record->offset
                                                              : model->offsets[owner];
    for (uint32_t i = 0; i < cargo.part_count; i++)
        out->parts[i] = (berth_model_part){
            .memory = memory != NULL ? memory + cargo.parts[i].offset : NULL,
            .bytes = cargo.parts[i].bytes,
            .role = cargo.parts[i].role,
            .dtype = cargo.parts[i].dtype,
            .tensor = cargo.parts[i].role == BERTH_ROLE_COMPANION ? cargo.parts[i].entry
                                                                  : BERTH_NO_TENSOR,
        };
    return BERTH_OK;
}

berth_status
berth_model_get_tensor(const berth_model *model, uint64_t berth, berth_model_tensor *out)
{
    const uint8_t *memory = NULL;
    uint64_t owner;

    memset(out, 0, sizeof *out);
    if (berth >= model->plan->berth_count)
        return BERTH_EINVAL;
    owner = owner_of(model->plan, berth);
    if (model->plan->berths[owner].is_resident)
        memory = berthi_model_place(model, owner);
    else if (model->leases != NULL)
        memory = berthi_leases_find(model->leases, owner);
    return describe_at(model, berth, owner, memory, out);
}

berth_status
berth_model_get_host(const berth_model *model, uint64_t berth, berth_model_tensor *out)
{
    const berthi_model_tier *tier;

    memset(out, 0, sizeof *out);
    if (berth >= model->plan->berth_count)
        return BERTH_EINVAL;
    tier = &model->tiers[model->plan->berths[berth].tier];
    if (tier->kind != BERTH_TIER_CPU || (tier->slab == NULL && tier->bytes > 0))
        return BERTH_ENOENT;
    return describe_at(model, berth, owner_of(model->plan, berth),
                       berthi_model_place(model, berth), out);
}

uint64_t
berth_model_find(const berth_model *model, const char *name, size_t name_length)
{
    const uint64_t tensor = berth_checkpoint_find(model->checkpoint, name, name_length);

    if (tensor == BERTH_NO_TENSOR || model->berth_of[tensor] == BERTHI_NO_BERTH)
        return BERTH_NO_TENSOR;
    return model->berth_of[tensor];
}

uint64_t
berth_model_find_expert(const berth_model *model, const char *name, size_t name_length,
                        uint32_t expert)
{
    const uint64_t tensor = berth_checkpoint_find(model->checkpoint, name, name_length);
    const uint32_t first =
        tensor != BERTH_NO_TENSOR ? model->berth_of[tensor] : BERTHI_NO_BERTH;

    for (uint32_t berth = first; berth != BERTHI_NO_BERTH && expert != BERTHI_NO_EXPERT;
         berth = berthi_model_next(model, berth))
        if (model->plan->berths[berth].is_expert
            && berthi_plan_expert_of(model->plan, berth, name, name_length) == expert)
            return berth;
    return BERTH_NO_TENSOR;
}

/* ------------------------------------------------------------------------ digests */

static berth_status
digest_file(const berth_model *model, const berthi_cargo_part *part, uint8_t *buffer,
            uint64_t buffer_bytes, uint32_t *crc, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t at = 0; at < part->bytes && status == BERTH_OK; at += buffer_bytes) {
        const uint64_t bytes = berthi_min_u64(buffer_bytes, part->bytes - at);

        /* What lies on the disk is no columns: berth_load_start() refuses them. */
        status = berthi_checkpoint_read(model->checkpoint, part->entry,
                                        part->cut.first + at, buffer, bytes,
                                        "reading a tensor", error);
        if (status == BERTH_OK)
            *crc = berthi_digest_crc32(*crc, buffer, bytes);
    }
    return status;
}

static berth_status
digest_disk(const berth_model *model, uint64_t berth, const berthi_cargo *cargo,
            uint32_t *out_crc, berth_error *error)
{
    const berthi_offload *const offload = berthi_offload_find(model->offload, berth);
    const uint64_t buffer_bytes = berthi_cargo_digest_bytes(cargo);
    uint8_t *buffer;
    berth_status status = BERTH_OK;

    if (offload != NULL)
        return berthi_offload_digest(offload, berth, cargo, out_crc, error);
    buffer = berthi_memory_alloc(model->context, BERTHI_PURPOSE_SCRATCH, buffer_bytes);
    if (buffer == NULL)
        return berthi_fail_memory(error, "the digest of a tensor");
    for (uint32_t i = 0; i < cargo->part_count && status == BERTH_OK; i++)
        status = digest_file(model, &cargo->parts[i], buffer, buffer_bytes, out_crc,
                             error);
    berthi_memory_free(model->context, BERTHI_PURPOSE_SCRATCH, buffer, buffer_bytes);
    return status;
}

/* A device that is known to hang would be waited for without an end. */
static berth_status
digest_memory(berth_model *model, uint64_t berth, const berthi_cargo *cargo,
              uint32_t *out_crc, berth_error *error)
{
    berthi_device *const device =
        model->tiers[model->plan->berths[berth].tier].device;
    const uint8_t *const memory = berthi_model_place(model, berth);
    berth_status status = BERTH_OK;

    if (device != model->host && berthi_model_is_stranded(model))
        return berthi_model_fail_stranded(error);
    for (uint32_t i = 0; i < cargo->part_count && status == BERTH_OK; i++) {
        uint32_t crc = 0;

        if (cargo->parts[i].bytes == 0)
            continue;
        status = device->table->digest(device, memory + cargo->parts[i].offset,
                                       cargo->parts[i].bytes, &crc, error);
        *out_crc = berthi_digest_combine(*out_crc, crc, cargo->parts[i].bytes);
    }
    return status;
}

berth_status
berth_model_digest(berth_model *model, uint64_t berth, uint32_t *out_crc,
                   berth_error *error)
{
    berthi_cargo cargo;
    uint64_t owner;
    berth_status status;

    berthi_error_clear(error);
    if (out_crc == NULL)
        return berthi_fail_argument(error, "out_crc", "is NULL");
    *out_crc = 0;
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    if (berth >= model->berth_count)
        return berthi_fail_argument(error, "berth", "is not that of a tensor");
    status = berthi_model_enter(model, error);
    if (status != BERTH_OK)
        return status;
    owner = owner_of(model->plan, berth);
    status = berthi_model_cargo(model, owner, &cargo, error);
    if (status == BERTH_OK)
        status = model->tiers[model->plan->berths[owner].tier].device == NULL
                     ? digest_disk(model, owner, &cargo, out_crc, error)
                     : digest_memory(model, owner, &cargo, out_crc, error);
    berthi_model_leave(model);
    return status;
}
