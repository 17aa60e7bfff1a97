/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_devices.c - `berth devices`: the machine as berth sees it. */
#include <unistd.h>

#include "tools/commands.h"
#include "tools/devices.h"

typedef struct devices_arguments {
    cli_common common;
    bool wants_json;
} devices_arguments;

static const cli_option devices_options[] = {
    { "json", '\0', CLI_FLAG, offsetof(devices_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object; sizes in bytes, null where unknown" },
};

static const cli_example devices_examples[] = {
    { "berth devices", "processor, memory and the limit that binds, I/O" },
    { "berth devices --json | jq .memory.available",
      "how many bytes this process could still take" },
};

static const char *const devices_description[] = {
    "Shows the processor and the instruction-set level in use, NUMA nodes, host memory "
    "with the limit that binds this process (control groups v1 and v2, nested, and "
    "resource limits), how much may be locked, and what reading and digests can use.",
    "GPUs are shown with the memory that is free, the PCIe link as it is now (one that has "
    "nothing to do may have slowed down) and as it could be, and the architectures that this "
    "build has kernels for; or with the reason why there are none. Where the driver tells them, "
    "there are also the NVLinks that are up, with their version and what one carries in one "
    "direction, the NVLink-C2C that a GPU has to its host instead of PCIe, and how many copy "
    "engines it has.",
    NULL,
};

static berth_status
devices_run(session *s)
{
    const devices_arguments *const arguments = s->call->arguments;
    devices_gpus gpus;
    berth_host host;
    berth_error error;
    berth_status status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);

    if (status != BERTH_OK)
        return status;
    status = berth_host_get(s->context, &host, &error);
    if (status != BERTH_OK)
        return cli_error(s->call, &error);
    devices_find_gpus(s, &host, &gpus);
    if (arguments->wants_json)
        devices_write_json(s, &host, &gpus);
    else
        devices_print(s, &host, &gpus);
    return BERTH_OK;
}

const cli_command devices_command = {
    .name = "devices",
    .help = "processor, memory, limits and devices of this machine",
    .description = devices_description,
    .operand = NULL,
    CLI_OPTIONS(devices_options, devices_arguments),
    .examples = devices_examples,
    .example_count = sizeof devices_examples / sizeof devices_examples[0],
    .run = devices_run,
};
