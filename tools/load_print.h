/* SPDX-License-Identifier: Apache-2.0 */
/* load_print.h - what a load did, as text and as JSON. */
#ifndef BERTH_TOOLS_LOAD_PRINT_H
#define BERTH_TOOLS_LOAD_PRINT_H

#include "tools/json.h"
#include "tools/load_refuse.h"
#include "tools/session.h"

typedef struct load_facts {
    const berth_context *context;
    const berth_plan *plan;
    const berth_devices *devices; /* NULL: the plan has no GPUs, or names its own */
    berth_load_report load;
    berth_check_report check;
    bool is_checked;
    bool wants_memory; /* all accounts */
    berth_memory_summary memory; /* of the host, while the model is there */
} load_facts;

void load_print(session *s, const load_facts *facts);
/* `failure`: of the check; NULL: none. */
void load_print_json(output *out, const load_facts *facts, const load_failure *failure);

#endif
