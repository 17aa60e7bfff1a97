/* SPDX-License-Identifier: Apache-2.0 */
/* bench_print.h - what `berth bench` measured, as text and as JSON. */
#ifndef BERTH_TOOLS_BENCH_PRINT_H
#define BERTH_TOOLS_BENCH_PRINT_H

#include "tools/bench_pass.h"
#include "tools/session.h"

typedef struct bench_facts {
    const berth_bench *bench;
    const berth_devices *devices; /* NULL: none                  */
    const berth_plan *plan;       /* NULL: nothing was loaded    */
    berth_load_report load;
    pass_facts pass;
    berth_memory_summary memory;
} bench_facts;

/* Between a measurement and the one before: the limit was not the same throughout. */
#define BENCH_DRIFT 0.05

void bench_print(session *s, const bench_facts *facts);
void bench_print_json(output *out, const bench_facts *facts);

#endif
