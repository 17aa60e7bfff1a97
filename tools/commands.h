/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h - the command table's entries, one file each. */
#ifndef BERTH_TOOLS_COMMANDS_H
#define BERTH_TOOLS_COMMANDS_H

#include "tools/cli.h"

extern const cli_command inspect_command;
extern const cli_command verify_command;
extern const cli_command quantize_command;
extern const cli_command dequantize_command;
extern const cli_command diff_command;
extern const cli_command plan_command;
extern const cli_command load_command;
extern const cli_command bench_command;
extern const cli_command estimate_command;
extern const cli_command map_command;
extern const cli_command devices_command;

/* All of them in the order of help, ending in NULL. */
extern const cli_command *const all_commands[];

#endif
