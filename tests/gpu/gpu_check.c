/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check.c - command.h with the first GPU of this machine */
#include "tests/gpu/command.h"

int
main(int argc, char **argv)
{
    return gpu_command(argc, argv, gpu_machine_cuda);
}
