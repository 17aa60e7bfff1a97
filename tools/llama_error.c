/* SPDX-License-Identifier: Apache-2.0 */
/* llama_error.c - see llama_error.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/json_error.h"
#include "tools/llama_error.h"

berth_status
llama_fail(berth_error *error, berth_status status, const char *subject,
           const char *format, ...)
{
    va_list arguments;

    if (error == NULL)
        return status;
    *error = json_error_of(status);
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
    const bool is_folder = system_error == EISDIR;
    const bool is_nowhere = system_error == ENOENT || system_error == ENOTDIR
                            || system_error == EACCES;
    const berth_status status = is_taken || is_folder     ? BERTH_EINVAL
                                : is_nowhere              ? BERTH_ENOENT
                                : system_error == ENOMEM  ? BERTH_ENOMEM
                                                          : BERTH_EIO;

    llama_fail(error, status, NULL, "%s",
               is_taken    ? "is there already"
               : is_folder ? "is a folder; give the name of a file in it"
                           : strerror(system_error));
    if (error == NULL)
        return status;
    berth_text_escape(path, strlen(path), error->file, sizeof error->file);
    error->reason = json_reason_of_file(status, system_error);
    return status;
}
