/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - all of standard input, or of a file that may be no regular one. */
#ifndef BERTH_TOOLS_INPUT_H
#define BERTH_TOOLS_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli.h"

/* Of a manifest beside a model, and behind "MODEL." of one beside a file. */
#define MANIFEST_NAME "berth.manifest.json"

/* What messages call it, and findings, which the library names after a file. */
#define INPUT_NAME "standard input"

/* True for "-"; NULL: no file. */
bool input_is_standard(const char *path);
/* Something like <(command) of a shell: the library would refuse it, as no regular file. */
bool input_is_pipe(const char *path);

/*
 * Reads to the end of it. `what` names it in messages, which have been printed when this
 * fails. More than `limit` bytes are refused. free(*out); NULL after failures.
 */
berth_status input_read(const cli_command *command, const char *what, int fd, size_t limit,
                        char **out, size_t *out_bytes);
/* The same of a pipe with a name, which it waits for. */
berth_status input_read_pipe(const cli_command *command, const char *path, size_t limit,
                             char **out, size_t *out_bytes);

/*
 * Where an option of the kind CLI_INPUT is "-", or a pipe: reads it into a file without a name,
 * for the library reads files only, and puts its path there. What fails is printed, and so is a
 * name that is empty.
 */
berth_status input_take(const cli_call *call);
/*
 * BERTH_EINVAL, which is printed, where the file that `option` writes to would lie in a repository
 * of a hub cache, or is one that the command reads: what an option of that kind or an operand
 * names, a configuration or an index beside the model's weights, its own manifest where one is
 * looked for. NULL and "-": BERTH_OK.
 */
berth_status input_spare(const cli_call *call, const char *option, const char *path);
/* What to call the file: INPUT_NAME, or the pipe's own name, in place of that path. */
const char *input_name(const char *path);
/* The error, with that name. */
berth_error input_named(const berth_error *error);

#endif
