/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h - what other programs have printed as JSON, as rows of rows.h: `berth bench --json` of
 * a load and of passes; record_bnb.py of bitsandbytes, beside the speeds that are there.
 */
#ifndef BERTH_TESTS_GPU_TOOL_H
#define BERTH_TESTS_GPU_TOOL_H

/*
 * `name` says what of: "bitsandbytes", or what was loaded how. 0, or 1 when a file cannot be
 * understood; that is printed.
 */
int gpu_tool_rows(const char *rows, const char *name, const char *printed);

#endif
