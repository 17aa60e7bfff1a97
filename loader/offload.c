/* SPDX-License-Identifier: Apache-2.0 */
/* offload.c - files of berths that loads and moves write: made, filled, digested, gone. */
#include "loader/offload.h"

#include <errno.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/nameless.h"
#include "loader/temporary.h"

#define WINDOW_BYTES (UINT64_C(16) << 20) /* on their way to the disk between two cancels */

/* ---------------------------------------------------------------------- the table */

static berthi_target
target_of(const berthi_offload *offload, int folder)
{
    return (berthi_target){ .folder = folder, .name = "", .path = offload->path };
}

static berth_status
fail_system(const berthi_offload *offload, const char *what, berth_error *error)
{
    return berthi_fail_system(error, errno, offload->path, what);
}

/* Which berths are written, and where. The model's plan has the same ones elsewhere. */
static berth_status
list_berths(berthi_offload *offload, const berth_model *model, const berth_plan *plan,
            berth_error *error)
{
    for (uint64_t i = 0; i < plan->berth_count; i++) {
        const berthi_berth *const berth = &plan->berths[i];
        berthi_cargo cargo;
        berth_status status;

        offload->offsets[i] = BERTHI_NOT_OFFLOADED;
        if (plan->tiers[berth->tier].kind != BERTH_TIER_DISK || berth->is_tied
            || berthi_offload_find(model->offload, i) != NULL)
            continue;
        status = berthi_model_cargo(model, i, &cargo, error);
        if (status != BERTH_OK)
            return status;
        if (berthi_cargo_is_stored(&cargo) || berth->bytes == 0)
            continue;
        offload->offsets[i] = offload->bytes;
        if (!berthi_can_add(offload->bytes, berth->bytes, &offload->bytes))
            return berthi_fail_memory(error, "the layers of a folder");
    }
    return BERTH_OK;
}

static berth_status
allocate(berthi_offload *offload, const char *folder, berth_error *error)
{
    berth_context *const context = offload->context;

    offload->path = berthi_memory_alloc(context, BERTHI_PURPOSE_OBJECT,
                                        offload->path_bytes);
    offload->offsets =
        berthi_memory_array(context, BERTHI_PURPOSE_TENSORS, offload->berth_count,
                            sizeof *offload->offsets);
    offload->crcs =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_TENSORS,
                             offload->berth_count * sizeof *offload->crcs);
    if (offload->path == NULL || offload->offsets == NULL || offload->crcs == NULL)
        return berthi_fail_memory(error, "the layers of a folder");
    memcpy(offload->path, folder, offload->path_bytes);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- the file */

berth_status
berthi_offload_create(const berth_model *model, const berth_plan *plan, const char *folder,
                      berthi_offload **out, berth_error *error)
{
    berthi_offload *const offload =
        berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *offload);
    berth_status status;

    *out = NULL;
    if (offload == NULL)
        return berthi_fail_memory(error, "the layers of a folder");
    offload->context = model->context;
    offload->number = model->offload != NULL ? model->offload->number + 1 : 0;
    offload->berth_count = plan->berth_count;
    offload->path_bytes = strlen(folder) + 1;
    offload->file.fd = -1;
    status = allocate(offload, folder, error);
    offload->file.path = offload->path;
    if (status == BERTH_OK)
        status = list_berths(offload, model, plan, error);
    if (status == BERTH_OK && offload->bytes > 0)
        status = berthi_nameless_create(&(berthi_nameless){ .folder = offload->path,
                                                            .contents = "its layers",
                                                            .bytes = offload->bytes },
                                        &offload->file.fd, error);
    if (status == BERTH_OK && offload->bytes > 0)
        *out = offload;
    else
        berthi_offload_destroy(offload);
    return status;
}

static void
destroy_one(berthi_offload *offload)
{
    berth_context *const context = offload->context;

    berthi_file_close(&offload->file);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, offload->crcs,
                       offload->berth_count * sizeof *offload->crcs);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, offload->offsets,
                       offload->berth_count * sizeof *offload->offsets);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, offload->path,
                       offload->path_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, offload, sizeof *offload);
}

void
berthi_offload_destroy(berthi_offload *offload)
{
    while (offload != NULL) {
        berthi_offload *const before = offload->before;

        destroy_one(offload);
        offload = before;
    }
}

/* -------------------------------------------------------------------------- all files */

void
berthi_offload_add(berth_model *model, berthi_offload *offload)
{
    if (offload == NULL)
        return;
    offload->before = model->offload;
    model->offload = offload;
}

void
berthi_offload_remove(berth_model *model, berthi_offload *offload)
{
    if (offload == NULL)
        return;
    model->offload = offload->before;
    offload->before = NULL;
}

const berthi_offload *
berthi_offload_find(const berthi_offload *newest, uint64_t berth)
{
    const berthi_offload *offload = newest;

    while (offload != NULL && offload->offsets[berth] == BERTHI_NOT_OFFLOADED)
        offload = offload->before;
    return offload;
}

/* ------------------------------------------------------------------------- writing */

/* Advice that failed is no failure, bytes that were lost are. */
static berth_status
check_advice(const berthi_offload *offload, int result, berth_error *error)
{
    if (result == 0 || (errno != EIO && errno != ENOSPC && errno != EDQUOT))
        return BERTH_OK;
    return fail_system(offload, "writing", error);
}

berth_status
berthi_offload_write(berthi_offload *offload, const berthi_offload_bytes *b,
                     berth_error *error)
{
    const berthi_target target = target_of(offload, offload->file.fd);
    const uint64_t offset = offload->offsets[b->berth] + b->offset;
    berth_status status = berthi_temporary_write(&target, offload->file.fd, b->bytes,
                                                 b->size, offset, error);

    if (status == BERTH_OK)
        status = check_advice(
            offload, berthi_sys_write_back(offload->file.fd, offset, b->size), error);
    atomic_fetch_xor(&offload->crcs[b->berth],
                     berthi_digest_shift(berthi_digest_crc32(0, b->bytes, b->size),
                                         b->behind));
    return status;
}

static berth_status
end_window(const berthi_offload *offload, uint64_t at, berth_error *error)
{
    const int fd = offload->file.fd;
    berth_status status =
        check_advice(offload, berthi_sys_write_back(fd, at, WINDOW_BYTES), error);

    if (status == BERTH_OK)
        status = check_advice(offload, berthi_sys_wait_back(fd, at, WINDOW_BYTES), error);
    (void)berthi_sys_drop_cache(fd, at, WINDOW_BYTES);
    return status;
}

berth_status
berthi_offload_end(berthi_offload *offload, berth_job *job, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t at = 0; at < offload->bytes && status == BERTH_OK; at += WINDOW_BYTES) {
        status = berthi_job_is_cancelled(job) ? berthi_job_fail_cancelled(error)
                                              : end_window(offload, at, error);
        berthi_job_touch(job);
    }
    /* A file that loses bytes later than this loses them for whoever reads it. */
    if (status == BERTH_OK && berthi_sys_fsync(offload->file.fd) != 0)
        status = fail_system(offload, "flushing", error);
    if (status == BERTH_OK
        && berthi_sys_fstat(offload->file.fd, &offload->file.identity) != 0)
        status = fail_system(offload, "looking at the file of its layers", error);
    return status;
}

/* ------------------------------------------------------------------------- reading */

uint32_t
berthi_offload_crc(const berthi_offload *newest, uint64_t berth, uint32_t otherwise)
{
    const berthi_offload *const offload = berthi_offload_find(newest, berth);

    return offload != NULL ? atomic_load(&offload->crcs[berth]) : otherwise;
}

static berth_status
digest_part(const berthi_offload *offload, uint64_t offset, uint64_t bytes,
            uint8_t *buffer, uint64_t buffer_bytes, uint32_t *crc, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t at = 0; at < bytes && status == BERTH_OK; at += buffer_bytes) {
        const uint64_t step = berthi_min_u64(buffer_bytes, bytes - at);

        status = berthi_file_read(&offload->file, buffer, step, offset + at,
                                  "reading a layer", error);
        if (status == BERTH_OK)
            *crc = berthi_digest_crc32(*crc, buffer, step);
    }
    return status;
}

berth_status
berthi_offload_digest(const berthi_offload *offload, uint64_t berth,
                      const berthi_cargo *cargo, uint32_t *out_crc, berth_error *error)
{
    const uint64_t buffer_bytes = berthi_cargo_digest_bytes(cargo);
    uint8_t *const buffer =
        berthi_memory_alloc(offload->context, BERTHI_PURPOSE_SCRATCH, buffer_bytes);
    berth_status status = BERTH_OK;

    if (buffer == NULL)
        return berthi_fail_memory(error, "the digest of a tensor");
    for (uint32_t i = 0; i < cargo->part_count && status == BERTH_OK; i++)
        status = digest_part(offload, offload->offsets[berth] + cargo->parts[i].offset,
                             cargo->parts[i].bytes, buffer, buffer_bytes, out_crc,
                             error);
    berthi_memory_free(offload->context, BERTHI_PURPOSE_SCRATCH, buffer, buffer_bytes);
    return status;
}
