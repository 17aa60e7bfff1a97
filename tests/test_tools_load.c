/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_load.c - what `berth load` and `berth bench` print of a load's report. */
#include <string.h>

#include "loader/bench.h"
#include "tests/fixture.h"
#include "tests/planned.h"
#include "tests/printed.h"
#include "tests/t.h"
#include "tools/bench_print.h"
#include "tools/load_print.h"

#define MIB (UINT64_C(1) << 20)

/* Tiers 0 to 2: cuda:0, cuda:1, cpu. */
static planned model;

static void
begin(void)
{
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = "0=256MiB,1=256MiB,cpu=1GiB";
    planned_begin(&model, planned_llama(2, false), &options);
    CHECK_EQ(model.status, BERTH_OK);
}

static berth_load_report
report_of(int32_t bottleneck, uint32_t tier)
{
    return (berth_load_report){ .bytes_read = 100 * MIB,
                                .ring_bytes = 64 * MIB,
                                .stages = 8,
                                .stage_bytes = 8 * MIB,
                                .seconds = 2,
                                .first_seconds = 0.25,
                                .read_seconds = 0.5,
                                .wait_seconds = 1.5,
                                .place_seconds = 3,
                                .encode_seconds = 1.25,
                                .bottleneck = bottleneck,
                                .bottleneck_tier = tier };
}

typedef enum printing { LOAD_TEXT, LOAD_JSON, BENCH_TEXT, BENCH_JSON } printing;

static void
print(session *s, const berth_load_report *report, printing which)
{
    const berth_bench bench = { .line_count = 0 };
    const bench_facts measured = { .bench = &bench, .plan = model.plan, .load = *report };
    const load_facts loaded = { .context = model.context,
                                .plan = model.plan,
                                .load = *report,
                                .memory = { .peak_bytes = 96 * MIB } };

    switch (which) {
    case LOAD_TEXT:
        load_print(s, &loaded);
        break;
    case LOAD_JSON:
        load_print_json(&s->out, &loaded, NULL);
        break;
    case BENCH_TEXT:
        bench_print(s, &measured);
        break;
    case BENCH_JSON:
        bench_print_json(&s->out, &measured);
        break;
    }
}

static const char *
printed(int32_t bottleneck, uint32_t tier, printing which)
{
    const berth_load_report report = report_of(bottleneck, tier);
    const char *path;
    session s;

    memset(&s, 0, sizeof s);
    path = printed_begin(&s.out);
    print(&s, &report, which);
    return printed_end(&s.out, path, NULL);
}

static void
test_text(void)
{
    begin();
    CHECK_CONTAINS(
        printed(BERTH_LOAD_BY_COPIES, 1, LOAD_TEXT),
        "\nio  100.00 MiB read in 2.00 s, 50.00 MiB/s, first bytes after 0.25 s; 96.00 MiB of "
        "host memory at most; staging 8 x 8.00 MiB of 64.00 MiB; slowest: copies to "
        "cuda:1\n"
        "io  0.50 s waiting for reads, 1.50 s for copies; 3.00 s copying and encoding, 1.25 s "
        "of it encoding, summed over threads\n");
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_COPIES, 2, LOAD_TEXT), "; slowest: copies to cpu\n");
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_READS, BERTH_NO_INDEX, LOAD_TEXT),
                   "; slowest: reads of the files\n");
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_ENCODING, BERTH_NO_INDEX, LOAD_TEXT),
                   "; slowest: encoding\n");
    planned_end(&model);
}

static void
test_json(void)
{
    static const printing both[] = { LOAD_JSON, BENCH_JSON };

    begin();
    for (int i = 0; i < 2; i++) {
        const char *const pad = i == 0 ? "  " : "    ";

        CHECK_CONTAINS(printed(BERTH_LOAD_BY_COPIES, 1, both[i]),
                       fixture_format("%s\"bottleneck\": \"copy\",\n%s\"bottleneck_tier\": "
                                      "\"cuda:1\",\n",
                                      pad, pad));
        CHECK_CONTAINS(printed(BERTH_LOAD_BY_READS, BERTH_NO_INDEX, both[i]),
                       fixture_format("%s\"bottleneck\": \"read\",\n%s\"bottleneck_tier\": "
                                      "null,\n",
                                      pad, pad));
        CHECK_CONTAINS(printed(BERTH_LOAD_BY_ENCODING, BERTH_NO_INDEX, both[i]),
                       fixture_format("%s\"bottleneck\": \"encode\",\n%s\"bottleneck_tier\": "
                                      "null,\n",
                                      pad, pad));
    }
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_ENCODING, BERTH_NO_INDEX, LOAD_JSON),
                   "\"encode_seconds\": 1.250,\n");
    planned_end(&model);
}

static void
test_bench(void)
{
    begin();
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_COPIES, 0, BENCH_TEXT), "; slowest: copies to cuda:0\n");
    CHECK_CONTAINS(printed(BERTH_LOAD_BY_ENCODING, BERTH_NO_INDEX, BENCH_TEXT),
                   "; slowest: encoding\n");
    planned_end(&model);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_text);
    T_RUN(test_json);
    T_RUN(test_bench);
    T_MAIN_END;
}
