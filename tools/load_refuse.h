/* SPDX-License-Identifier: Apache-2.0 */
/* load_refuse.h - a load that did not fit: what takes what, and what would help. */
#ifndef BERTH_TOOLS_LOAD_REFUSE_H
#define BERTH_TOOLS_LOAD_REFUSE_H

#include "tools/load_print.h"

/*
 * To standard error: what each tier of the plan takes and has, the changes that would
 * help (a plan for what there is is made, to see whether it can be), and all memory that
 * berth holds or held. `facts->plan` may be NULL: it was the plan that did not fit, and
 * its refusal has named the change.
 */
void load_refuse(session *s, const load_facts *facts, berth_checkpoint *checkpoint);
/* berth_memory_print(), whole. */
void load_print_memory(output *out, const berth_context *context);

#endif
