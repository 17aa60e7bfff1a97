/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - what `berth devices` says of a machine, whichever it is. */
#ifndef BERTH_TOOLS_DEVICES_H
#define BERTH_TOOLS_DEVICES_H

#include "tools/session.h"

#define DEVICES_LIMIT 64

typedef struct devices_gpus {
    uint32_t count;
    berth_device at[DEVICES_LIMIT];
    char why[BERTH_MESSAGE_CAPACITY]; /* there are none; "": there are */
} devices_gpus;

/* Those that the driver has for this process. */
void devices_find_gpus(session *s, const berth_host *host, devices_gpus *out);

void devices_print(session *s, const berth_host *host, const devices_gpus *gpus);
void devices_write_json(session *s, const berth_host *host, const devices_gpus *gpus);

#endif
