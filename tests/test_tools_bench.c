/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_bench.c - what `berth bench` prints of what was measured; passes of a plan. */
#include <string.h>

#include "loader/bench.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/printed.h"
#include "tests/t.h"
#include "tools/bench_pass.h"
#include "tools/bench_print.h"

#define GIB       (UINT64_C(1) << 30)
#define MAX_LINES 8u

static berth_bench_line lines[MAX_LINES];
static uint32_t line_count;

/* A measurement of this machine that was so far from the one before. */
static berth_bench_line *
add(int32_t kind, uint64_t rate, double drift)
{
    berth_bench_line *const line = &lines[line_count++];

    *line = (berth_bench_line){.kind = kind,
                               .device = BERTH_NO_INDEX,
                               .threads = 2,
                               .rate = rate,
                               .own_rate = rate,
                               .earlier_rate = rate,
                               .drift = drift};
    return line;
}

/* What is printed of the lines so far, which are forgotten. */
static const char *
printed(bool is_json)
{
    const berth_bench bench = {.lines = lines, .line_count = line_count};
    const bench_facts facts = {.bench = &bench, .memory = {.peak_bytes = GIB}};
    const char *path;
    session s;

    memset(&s, 0, sizeof s);
    path = printed_begin(&s.out);
    if (is_json)
        bench_print_json(&s.out, &facts);
    else
        bench_print(&s, &facts);
    line_count = 0;
    return printed_end(&s.out, path, NULL);
}

/* Two of them: one more than 5% away, and one that was not far enough. */
static void
add_drifting(void)
{
    add(BERTH_BENCH_READ_COLD, 2 * GIB, 0.06);
    add(BERTH_BENCH_COPY, 8 * GIB, BENCH_DRIFT);
    add(BERTH_BENCH_TO_DEVICE, 25 * GIB, 0.5)->is_simulated = 1;
}

static void
test_lines(void)
{
    add_drifting();
    add(BERTH_BENCH_READ_WARM, 3 * GIB, 0)->earlier_rate = 0;
    add(BERTH_BENCH_HOST_MEMORY, 4 * GIB, 0)->own_rate = 0;
    *add(BERTH_BENCH_NF4, 0, 0) = (berth_bench_line){
        .kind = BERTH_BENCH_NF4, .device = BERTH_NO_INDEX, .words = "no memory"};
    CHECK_STR(
        printed(false),
        "measured                  rate  drift  how\n"
        "disk, cold          2.00 GiB/s     6%  2 threads\n"
        "host to host        8.00 GiB/s     5%  2 threads\n"
        "host to device     25.00 GiB/s    50%  2 threads\n"
        "disk, cached        3.00 GiB/s      -  2 threads\n"
        "host memory, read   4.00 GiB/s      -  2 threads\n"
        "nf4                          -      -  no memory\n"
        "\nio  1.00 GiB of host memory at most; 1 limit drifted by more than 5%: the "
        "machine is busy, measure again\n");
}

static void
test_drifts_are_counted(void)
{
    add_drifting();
    CHECK_CONTAINS(printed(true), "\"drifted\": 1,");
    add_drifting();
    CHECK_CONTAINS(printed(false),
                   "\nio  1.00 GiB of host memory at most; 1 limit drifted by more than "
                   "5%: the machine is busy, measure again\n");
    add(BERTH_BENCH_COPY, 8 * GIB, 0);
    CHECK_CONTAINS(printed(false),
                   "\nio  1.00 GiB of host memory at most; before and after agree\n");
    add(BERTH_BENCH_COPY, 8 * GIB, 0.051);
    add(BERTH_BENCH_COPY, 8 * GIB, 0.9);
    CHECK_CONTAINS(printed(false), "at most; 2 limits drifted by more than 5%");
}

/* ------------------------------------------------------------------------- passes */

static bool
is_never(void)
{
    return false;
}

/* All layers are asked for at once: who waits for them sees that they come. */
static void
test_slow_pass(void)
{
    static const char *const pins[] = { "model.layers=cpu" };
    const pass_options slow = { .wait_seconds = 1.2, .is_cancelled = is_never };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    pass_facts facts;
    berth_error error;
    loaded l;

    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&l, loaded_llama(5, "BF16", 1), &options,
                 "sim:64MiB,clock=real,h2d=4MB/s");
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    if (!CHECK_EQ(pass_run(l.model, l.p.plan, l.devices, &slow, &facts, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    CHECK(facts.seconds > slow.wait_seconds);
    CHECK_EQ(facts.copied_bytes, facts.planned_bytes);
    loaded_unload(&l);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lines);
    T_RUN(test_drifts_are_counted);
    T_RUN(test_slow_pass);
    T_MAIN_END;
}
