/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - see command.h */
#include "tests/gpu/command.h"

#include <stdlib.h>
#include <string.h>

#include "tests/gpu/page.h"
#include "tests/gpu/speed.h"
#include "tests/gpu/tool.h"

#define SKIPPED 77

static void
print_kernels(void)
{
#define PRINT_NAME(name) puts(#name);
    BERTHI_KERNELS(PRINT_NAME)
#undef PRINT_NAME
}

/* ROWS SECONDS [tiny] [PART] */
static int
measure(const gpu_machine *machine, char **argv)
{
    FILE *const rows = fopen(argv[0], "a");
    gpu_speed_request request = { .seconds = strtod(argv[1], NULL) };
    int status;

    if (rows == NULL) {
        perror(argv[0]);
        return 1;
    }
    request.is_tiny = argv[2] != NULL && strcmp(argv[2], "tiny") == 0;
    request.part = argv[2] == NULL ? NULL : argv[request.is_tiny ? 3 : 2];
    status = gpu_speed_run(machine, rows, &request);
    return fclose(rows) == 0 ? status : 1;
}

int
gpu_command(int argc, char **argv, const gpu_machine *(*open)(const char **out_why))
{
    const char *const command = argc > 1 ? argv[1] : "";
    const gpu_machine *machine;
    const char *why = NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(command, "kernels") == 0 && argc == 2) {
        print_kernels();
        return 0;
    }
    if (strcmp(command, "page") == 0 && argc == 5)
        return gpu_page_write(argv[2], argv[3], argv[4]);
    if (strcmp(command, "tool") == 0 && argc == 5)
        return gpu_tool_rows(argv[2], argv[3], argv[4]);
    if (strcmp(command, "load") == 0 && argc == 6)
        return gpu_tool_load(argv[2], argv[3],
                             &(gpu_tool_files){ .printed = argv[4], .bench = argv[5] });
    if (strcmp(command, "convert") == 0 && argc == 5)
        return gpu_tool_convert(argv[2], argv[3], &(gpu_tool_files){ .printed = argv[4] });
    if (strcmp(command, "tokens") == 0 && (argc == 5 || argc == 7))
        return gpu_tool_tokens(argv[2], argv[3],
                               &(gpu_tool_files){ .printed = argv[4],
                                                  .bench = argc == 7 ? argv[5] : NULL,
                                                  .plan = argc == 7 ? argv[6] : NULL });
    if (!(strcmp(command, "there") == 0 && argc == 2)
        && !(strcmp(command, "speed") == 0 && argc >= 4 && argc <= 6)) {
        fprintf(stderr, "usage: gpu_check there | kernels | speed ROWS SECONDS [tiny] [PART] | "
                        "tool ROWS NAME PRINTED | load ROWS NAME PRINTED BENCH | "
                        "convert ROWS NAME PRINTED | tokens ROWS NAME PRINTED [BENCH PLAN] | "
                        "page ROWS REPORT PAGE\n");
        return 2;
    }
    machine = open(&why);
    if (machine == NULL) {
        printf("%s\n", why);
        return SKIPPED;
    }
    return argc == 2 ? 0 : measure(machine, argv + 2);
}
