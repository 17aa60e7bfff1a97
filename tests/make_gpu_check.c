/* SPDX-License-Identifier: Apache-2.0 */
/* make_gpu_check.c - tests/gpu/command.h with a GPU that is not there: fake_cuda.h */
#include "tests/gpu/command.h"

int
main(int argc, char **argv)
{
    return gpu_command(argc, argv, gpu_machine_fake);
}
