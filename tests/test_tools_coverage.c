/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_coverage.c - the coverage report: shares, bars, table, JSON. */
#include "tools/coverage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/printed.h"
#include "tests/t.h"

static session s;

static void
begin(unsigned columns, bool has_unicode)
{
    memset(&s, 0, sizeof s);
    output_init(&s.out, -1);
    s.screen.columns = columns;
    s.screen.has_unicode = has_unicode;
}

static void
add(coverage *c, const char *cause, int32_t encoding, uint64_t tensors, uint64_t parameters,
    uint64_t stored)
{
    const berth_coverage line = { .cause = cause,
                                  .encoding = encoding,
                                  .tensors = tensors,
                                  .parameters = parameters,
                                  .source_bytes = 2 * parameters,
                                  .stored_bytes = stored };

    coverage_add(c, &line);
}

/* The same, and so many of the tensors are kept. */
static void
add_kept(coverage *c, const char *cause, uint64_t kept)
{
    coverage_add(c, &(berth_coverage){ .cause = cause,
                                       .encoding = BERTH_ENCODING_NF4,
                                       .tensors = 7,
                                       .parameters = 70,
                                       .source_bytes = 140,
                                       .stored_bytes = 35,
                                       .kept = kept });
}

static coverage
llama(void)
{
    coverage c = { 0 };

    add(&c, "", BERTH_ENCODING_NATIVE, 67, 1050939392, UINT64_C(2101878784));
    add(&c, "", BERTH_ENCODING_NF4, 224, UINT64_C(6979321856), UINT64_C(3926126592));
    add(&c, "linear layer", BERTH_ENCODING_NF4, 224, UINT64_C(6979321856),
        UINT64_C(3926126592));
    add(&c, "skip list: lm_head (output head)", BERTH_ENCODING_NATIVE, 1, 525336576,
        UINT64_C(1050673152));
    add(&c, "no linear layer", BERTH_ENCODING_NATIVE, 66, 525602816, UINT64_C(1051205632));
    return c;
}

static void
test_people(void)
{
    coverage c = llama();

    begin(0, false);
    coverage_print(&s, &c);
    CHECK_STR(printed_take(&s.out),
              "encoding    parameters                              bytes\n"
              "native          1.05 B  ##............  13.0%    1.96 GiB  #####.........  34.8%\n"
              "nf4             6.98 B  ############|.  86.9%    3.66 GiB  #########|....  65.1%\n"
              "\n"
              "why                               becomes  tensors  parameters  share"
              "        bytes\n"
              "linear layer                      nf4          224      6.98 B  86.9%"
              "     3.66 GiB\n"
              "skip list: lm_head (output head)  native         1    525.34 M   6.5%"
              "  1002.00 MiB\n"
              "no linear layer                   native        66    525.60 M   6.5%"
              "  1002.51 MiB\n"
              "\n");
    coverage_fini(&c);
    CHECK(c.lines == NULL);
    CHECK_EQ(c.count, 0);
}

/* A column of its own, when there are some. */
static void
test_kept(void)
{
    coverage c = { 0 };

    add_kept(&c, "", 3);
    add_kept(&c, "linear layer", 3);
    begin(0, false);
    coverage_print(&s, &c);
    CHECK_CONTAINS(printed_take(&s.out),
                   "why           becomes  tensors  parameters  share  bytes  kept\n"
                   "linear layer  nf4            7          70   100%   35 B     3\n");
    coverage_fini(&c);
}

/* Narrow: the first column is cut in its middle. Wide: bars have a largest length. */
static void
test_terminal(void)
{
    coverage c = llama();

    begin(60, true);
    coverage_print(&s, &c);
    CHECK_STR(printed_take(&s.out),
              "encoding    parameters                    bytes\n"
              "native          1.05 B  \u258c\u2591\u2591\u2591  13.0%    1.96 GiB  "
              "\u2588\u258d\u2591\u2591  34.8%\n"
              "nf4             6.98 B  \u2588\u2588\u2588\u258c  86.9%    3.66 GiB  "
              "\u2588\u2588\u258b\u2591  65.1%\n"
              "\n"
              "why               becomes  tensors  parameters  share        bytes\n"
              "linear layer      nf4          224      6.98 B  86.9%     3.66 GiB\n"
              "skip li\u2026ut head)  native         1    525.34 M   6.5%  1002.00 MiB\n"
              "no linear layer   native        66    525.60 M   6.5%  1002.51 MiB\n"
              "\n");
    coverage_fini(&c);
    c = llama();
    begin(200, false);
    coverage_print(&s, &c);
    CHECK_CONTAINS(printed_take(&s.out), "1.05 B  ###|....................  13.0%");
    coverage_fini(&c);
}

static void
test_nothing(void)
{
    coverage c = { 0 };
    json_writer w;

    begin(0, false);
    coverage_print(&s, &c);
    CHECK_STR(printed_take(&s.out), "");
    json_begin(&w, &s.out, true);
    json_object_begin(&w, NULL);
    coverage_write_json(&w, &c);
    json_object_end(&w);
    json_end(&w);
    CHECK_STR(printed_take(&s.out), "{\"coverage\":null}\n");
    coverage_fini(&c);
}

static void
test_programs(void)
{
    coverage c = { 0 };
    json_writer w;

    add(&c, "", BERTH_ENCODING_NATIVE, 1, 10, 20);
    add(&c, "", BERTH_ENCODING_INT8, 2, 30, 40);
    add(&c, "", BERTH_ENCODING_FP4, 3, 50, 60);
    add(&c, "rule line 1: \"x\"", BERTH_ENCODING_FP4, 3, 50, 60);
    begin(0, false);
    json_begin(&w, &s.out, true);
    json_object_begin(&w, NULL);
    coverage_write_json(&w, &c);
    json_object_end(&w);
    json_end(&w);
    CHECK_STR(printed_take(&s.out),
              "{\"coverage\":{\"tensors\":6,\"parameters\":90,\"quantized_parameters\":80,"
              "\"source_bytes\":180,\"stored_bytes\":120,\"encodings\":["
              "{\"encoding\":\"native\",\"tensors\":1,\"parameters\":10,"
              "\"source_bytes\":20,\"stored_bytes\":20,\"kept\":0},"
              "{\"encoding\":\"int8\",\"tensors\":2,\"parameters\":30,"
              "\"source_bytes\":60,\"stored_bytes\":40,\"kept\":0},"
              "{\"encoding\":\"fp4\",\"tensors\":3,\"parameters\":50,"
              "\"source_bytes\":100,\"stored_bytes\":60,\"kept\":0}],\"causes\":["
              "{\"cause\":\"rule line 1: \\\"x\\\"\",\"encoding\":\"fp4\",\"tensors\":3,"
              "\"parameters\":50,\"source_bytes\":100,\"stored_bytes\":60,\"kept\":0}]}}\n");
    coverage_fini(&c);
}

static void
test_many(void)
{
    coverage c = { 0 };
    char cause[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(cause, sizeof cause, "rule line %d", i);
        add(&c, cause, BERTH_ENCODING_NF4, 1, (uint64_t)i, 0);
    }
    CHECK_EQ(c.count, 1000);
    CHECK_EQ(c.is_out_of_memory, false);
    for (int i = 0; i < 1000; i++) {
        snprintf(cause, sizeof cause, "rule line %d", i);
        CHECK_STR(c.lines[i].cause, cause);
        CHECK_EQ(c.lines[i].parameters, i);
    }
    coverage_fini(&c);
}

static void
test_shares(void)
{
    static const struct {
        uint64_t part;
        uint64_t whole;
        const char *text;
    } cases[] = {
        { 0, 10, "0.0%" },        { 10, 10, "100%" },         { 1, 2, "50.0%" },
        { 1, 3, "33.3%" },        { 2, 3, "66.6%" },          { 1, 1000, "0.1%" },
        { 1, 1001, "<0.1%" },     { 1, UINT64_MAX, "<0.1%" }, { 9999, 10000, "99.9%" },
        { UINT64_MAX - 1, UINT64_MAX, "99.9%" },              { 0, 0, "100%" },
        { UINT64_MAX, UINT64_MAX, "100%" },                   { 7, 1000, "0.7%" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[COVERAGE_SHARE_CAPACITY];

        CHECK_STR(coverage_share_text(cases[i].part, cases[i].whole, text), cases[i].text);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_people);
    T_RUN(test_kept);
    T_RUN(test_terminal);
    T_RUN(test_nothing);
    T_RUN(test_programs);
    T_RUN(test_many);
    T_RUN(test_shares);
    T_MAIN_END;
}
