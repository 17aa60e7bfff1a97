/* SPDX-License-Identifier: Apache-2.0 */
/* load_memory.h - berth's accounts of memory, as text and as JSON. */
#ifndef BERTH_TOOLS_LOAD_MEMORY_H
#define BERTH_TOOLS_LOAD_MEMORY_H

#include "loader/berth.h"
#include "tools/json.h"

/* berth_memory_print(), whole. */
void load_memory_print(output *out, const berth_context *context);
/* An array "memory" of the same accounts. */
void load_memory_write(json_writer *w, const berth_context *context);
/* The account of all that is in the memory of this name; zeros: there is none. */
berth_memory load_memory_find(const berth_context *context, const char *tier);

#endif
