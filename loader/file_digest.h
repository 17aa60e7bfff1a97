/* SPDX-License-Identifier: Apache-2.0 */
/* file_digest.h - the crc32 of a whole file, some KiB of memory at a time. */
#ifndef BERTH_LOADER_FILE_DIGEST_H
#define BERTH_LOADER_FILE_DIGEST_H

#include "kernels/memory.h"
#include "loader/file.h"
#include "loader/job.h"

/* As many bytes as it had when it was opened. `job` NULL: nothing cancels it. */
berth_status berthi_file_digest(const berthi_file *file, berth_context *context,
                                const berth_job *job, uint32_t *out_crc, berth_error *error);

#endif
