/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.h - a file that a command makes: there when it is complete, not before.
 *
 *     save_begin(&v, command, path, may_overwrite)
 *     output_text(&v.out, ...) ...
 *     save_end(&v, status)
 */
#ifndef BERTH_TOOLS_SAVE_H
#define BERTH_TOOLS_SAVE_H

#include "tools/cli.h"
#include "tools/draft.h"
#include "tools/output.h"

typedef struct save {
    const cli_command *command;
    const char *path;
    draft draft;      /* in place: standard output, too */
    bool is_standard; /* output */
    output out;
} save;

/*
 * Are both one file, where the second would take the place of the first? Pipes and devices
 * hold both. NULL: no file.
 */
bool save_is_same(const char *a, const char *b);
/* BERTH_EINVAL, which is printed, for a safetensors file: nothing takes the place of weights. */
berth_status save_refuse_weights(const cli_command *command, const char *path);
/*
 * Begins a file beside `path`, which save_end() puts in its place. What fails is
 * printed: a file that is there and may not be replaced, as weights never may, or a folder
 * that is not. Of hub caches input_spare() knows. A file that is replaced passes on its mode, and
 * owner and group where they can be given. What is there and no regular file is written to as it
 * is. "-" is standard output, whose reader may leave early.
 */
berth_status save_begin(save *v, const cli_command *command, const char *path,
                        bool may_overwrite);
/*
 * Makes the file appear, if `status` is BERTH_OK, or leaves nothing behind.
 * Returns `status`, or that of a write that failed, which is printed.
 */
berth_status save_end(save *v, berth_status status);

#endif
