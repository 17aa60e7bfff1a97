/* SPDX-License-Identifier: Apache-2.0 */
/* llama_error.c - see llama_error.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/llama_error.h"

static int32_t
reason_of(berth_status status)
{
    switch (status) {
    case BERTH_EINVAL:
        return BERTH_REASON_ARGUMENT;
    case BERTH_EFORMAT:
        return BERTH_REASON_ARCHITECTURE;
    case BERTH_EUNSUPPORTED:
        return BERTH_REASON_UNSUPPORTED;
    case BERTH_ENOMEM:
        return BERTH_REASON_NO_MEMORY;
    case BERTH_EIO:
        return BERTH_REASON_IO;
    case BERTH_ENOENT:
        return BERTH_REASON_NOT_FOUND;
    default:
        return BERTH_REASON_INTERNAL;
    }
}

berth_status
llama_fail(berth_error *error, berth_status status, const char *subject,
           const char *format, ...)
{
    va_list arguments;

    if (error == NULL)
        return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->reason = reason_of(status);
    if (subject != NULL)
        berth_text_escape(subject, strlen(subject), error->tensor, sizeof error->tensor);
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

berth_status
llama_fail_file(berth_error *error, const char *path, int system_error)
{
    const bool is_taken = system_error == EEXIST;
    const bool is_nowhere = system_error == ENOENT || system_error == ENOTDIR
                            || system_error == EACCES;
    const berth_status status = is_taken                  ? BERTH_EINVAL
                                : is_nowhere              ? BERTH_ENOENT
                                : system_error == ENOMEM  ? BERTH_ENOMEM
                                                          : BERTH_EIO;

    llama_fail(error, status, NULL, "%s",
               is_taken ? "is there already" : strerror(system_error));
    if (error == NULL)
        return status;
    berth_text_escape(path, strlen(path), error->file, sizeof error->file);
    if (is_taken)
        error->reason = BERTH_REASON_EXISTS;
    return status;
}
