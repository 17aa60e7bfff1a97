/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h - what other programs have printed as JSON, as rows of rows.h: `berth bench --json` of
 * a load and of passes, `berth load --json`, `berth quantize --json`, `berth-llama --json`;
 * peer_kernels.py, peer_load.py and peer_update.py, of bitsandbytes, beside the speeds that are
 * there.
 *
 * All return 0, or 1 when a file cannot be understood; that is printed.
 */
#ifndef BERTH_TESTS_GPU_TOOL_H
#define BERTH_TESTS_GPU_TOOL_H

typedef struct gpu_tool_files {
    const char *printed;
    const char *bench; /* `berth bench --json`: the limits; NULL: there is none */
    const char *plan;  /* of the same weights, with the links that were measured; NULL: none */
} gpu_tool_files;

/* `name` says what of: "bitsandbytes" (kernels, loads), "update", or what was loaded how. */
int gpu_tool_rows(const char *rows, const char *name, const char *printed);
/* A load of files that are in the page cache. */
int gpu_tool_load(const char *rows, const char *name, const gpu_tool_files *files);
/* A conversion: what it has read in its time. */
int gpu_tool_convert(const char *rows, const char *name, const gpu_tool_files *files);
int gpu_tool_tokens(const char *rows, const char *name, const gpu_tool_files *files);

#endif
