/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - what `berth devices` says of a machine, whichever it is. */
#ifndef BERTH_TOOLS_DEVICES_H
#define BERTH_TOOLS_DEVICES_H

#include "tools/session.h"

void devices_print(session *s, const berth_host *host);
void devices_write_json(session *s, const berth_host *host);

#endif
