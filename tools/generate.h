/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - man pages and completions, from the option tables. */
#ifndef BERTH_TOOLS_GENERATE_H
#define BERTH_TOOLS_GENERATE_H

#include "loader/berth.h"
#include "tools/output.h"

/*
 * berth.1, berth-COMMAND.1 and, when `header` names berth.h, berth.3 with its
 * comments. What fails is printed.
 */
berth_status generate_man(const char *folder, const char *header);
/* berth.bash, _berth (zsh) and berth.fish. */
berth_status generate_completions(const char *folder);

/* Writes the file `name` in `folder` with what `write_content` puts out. */
berth_status generate_file(const char *folder, const char *name,
                           void (*write_content)(output *out, const void *user),
                           const void *user);

#endif
