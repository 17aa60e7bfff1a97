/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - all of standard input, or of a file that may be no regular one. */
#ifndef BERTH_TOOLS_INPUT_H
#define BERTH_TOOLS_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli.h"

/* What messages call it. */
#define INPUT_NAME "standard input"

/* True for "-". */
bool input_is_standard(const char *path);

/*
 * Reads to the end of it. `what` names it in messages, which have been printed when this
 * fails. More than `limit` bytes are refused. free(*out); NULL after failures.
 */
berth_status input_read(const cli_command *command, const char *what, int fd, size_t limit,
                        char **out, size_t *out_bytes);

#endif
