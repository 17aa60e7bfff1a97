/* SPDX-License-Identifier: Apache-2.0 */
/* llama_error.h - failures of the decoder itself, told as those of berth are. */
#ifndef BERTH_TOOLS_LLAMA_ERROR_H
#define BERTH_TOOLS_LLAMA_ERROR_H

#include "loader/berth.h"

/*
 * Fills `error` (NULL is allowed): `subject` is a tensor, a key of config.json or an
 * option, as it came; NULL: none. The reason is the plainest of the status. Returns
 * `status`.
 */
__attribute__((format(printf, 4, 5))) berth_status
llama_fail(berth_error *error, berth_status status, const char *subject,
           const char *format, ...);

/*
 * The same for a file that could not be opened or written: `system_error` is errno. The
 * status is BERTH_ENOENT where the path leads nowhere, BERTH_EINVAL where a file is there or a
 * folder is, BERTH_ENOMEM, else BERTH_EIO.
 */
berth_status llama_fail_file(berth_error *error, const char *path, int system_error);

#endif
