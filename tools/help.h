/* SPDX-License-Identifier: Apache-2.0 */
/* help.h - what --help and --print-config show, from the option tables. */
#ifndef BERTH_TOOLS_HELP_H
#define BERTH_TOOLS_HELP_H

#include "tools/cli.h"
#include "tools/output.h"

typedef struct help_exit_code {
    int code;
    const char *meaning;
} help_exit_code;

/* All codes the tool ends with, ascending. */
extern const help_exit_code help_exit_codes[];
extern const size_t help_exit_code_count;

/* `commands`: all of them, ending in NULL. */
void help_overview(output *out, const screen *s, const cli_command *const *commands);
void help_command(output *out, const screen *s, const cli_command *command);
void help_config(output *out, const screen *s, const cli_call *call);

/*
 * "The FILE of --rules or --check may be -, for standard input, or a pipe.", into `text`; false:
 * the command reads no such file.
 */
#define HELP_INPUTS_CAPACITY 256
bool help_inputs_text(const cli_command *command, char text[HELP_INPUTS_CAPACITY]);

/* "-j, --jobs=N" without indentation, into `text`. */
#define HELP_OPTION_CAPACITY 96
const char *help_option_text(const cli_option *option, char text[HELP_OPTION_CAPACITY]);

#endif
