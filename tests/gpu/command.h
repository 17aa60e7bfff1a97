/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h - the program of check.sh, on this machine's GPU (gpu_check.c) or on the fake one
 * (make_gpu_check.c).
 *
 *   there                       ends with 77 and the reason where there is no GPU
 *   kernels                     prints the names of all kernels
 *   speed ROWS SECONDS [tiny] [PART]
 *                               measures all or one part, and adds rows to a file
 *   tool ROWS NAME PRINTED      adds what another program has printed: tool.h
 *   load ROWS NAME PRINTED BENCH
 *                               adds a load from the page cache, beside limits of `berth bench`
 *   tokens ROWS NAME PRINTED [BENCH PLAN]
 *                               adds what berth-llama has printed, beside limits and a plan
 *   page ROWS REPORT PAGE       makes a document of JSON and a page of the rows
 */
#ifndef BERTH_TESTS_GPU_COMMAND_H
#define BERTH_TESTS_GPU_COMMAND_H

#include "tests/gpu/machine.h"

int gpu_command(int argc, char **argv, const gpu_machine *(*open)(const char **out_why));

#endif
