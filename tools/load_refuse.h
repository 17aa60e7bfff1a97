/* SPDX-License-Identifier: Apache-2.0 */
/* load_refuse.h - a load that failed: what takes what, and what would help. */
#ifndef BERTH_TOOLS_LOAD_REFUSE_H
#define BERTH_TOOLS_LOAD_REFUSE_H

#include "tools/json.h"
#include "tools/load_advice.h"

/* Too little memory, of a device or of this machine: what the rest is for. */
bool load_is_refused(berth_status status);
/*
 * To standard error: what each tier of the plan takes and has, the changes that would
 * help, and all memory that berth holds or held.
 */
void load_refuse(const load_failure *failure, const load_advice *advice);
/*
 * Members of an object, of any failure: its error, tiers and changes where it was for memory
 * (`advice` is NULL elsewhere), all accounts of memory.
 */
void load_refuse_write(json_writer *w, const load_failure *failure,
                       const load_advice *advice);
/* The whole object, in place of what a command that failed with `status` would have told. */
void load_refuse_json(output *out, berth_status status, const load_failure *failure,
                      const load_advice *advice);

#endif
