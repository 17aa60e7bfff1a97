/* SPDX-License-Identifier: Apache-2.0 */
/* file_digest.c - the crc32 of a whole file; see file_digest.h. */
#include "loader/file_digest.h"

#include "kernels/digest.h"

#define READ_BYTES UINT64_C(65536)

berth_status
berthi_file_digest(const berthi_file *file, berth_context *context, const berth_job *job,
                   uint32_t *out_crc, berth_error *error)
{
    const uint64_t bytes = file->identity.bytes;
    const uint64_t capacity = berthi_min_u64(bytes, READ_BYTES);
    char *const buffer = berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, capacity);
    berth_status status = BERTH_OK;

    *out_crc = 0;
    if (buffer == NULL)
        return berthi_fail_memory(error, "the digest of a file");
    for (uint64_t at = 0; at < bytes && status == BERTH_OK; at += capacity) {
        const uint64_t size = berthi_min_u64(bytes - at, capacity);

        status = job != NULL && berthi_job_is_cancelled(job)
                     ? berthi_job_fail_cancelled(error)
                     : berthi_file_read(file, buffer, size, at, "reading", error);
        if (status == BERTH_OK)
            *out_crc = berthi_digest_crc32(*out_crc, buffer, size);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, buffer, capacity);
    return status;
}
