/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_diff.c - differences of checkpoints: ranking, lines, histogram, JSON. */
#include "tools/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/printed.h"
#include "tests/t.h"

static session s;
static berth_diff_tensor tensor;
static berth_diff_report report;

static void
begin(unsigned columns)
{
    memset(&s, 0, sizeof s);
    memset(&tensor, 0, sizeof tensor);
    memset(&report, 0, sizeof report);
    output_init(&s.out, -1);
    s.screen.columns = columns;
}

/* A compared weight with this relative error. */
static void
set(const char *name, double relative)
{
    tensor.name = name;
    tensor.name_length = strlen(name);
    tensor.kind = BERTH_DIFF_COMPARED;
    tensor.has_values = 1;
    tensor.elements = 100;
    tensor.errors.count = 100;
    tensor.errors.different = relative > 0 ? 90 : 0;
    tensor.errors.maximum = relative * 4;
    tensor.errors.mean = relative / 2;
    tensor.errors.relative = relative;
    tensor.errors.snr = -20 * log10(relative);
}

/* The names of the ranking, one after the other. */
static const char *
names_of(const diff_ranking *r)
{
    static char names[256];

    names[0] = '\0';
    for (size_t i = 0; i < r->count; i++)
        strcat(names, r->worst[i].name);
    return names;
}

static void
test_ranking(void)
{
    diff_ranking r = { 0 };

    begin(0);
    set("a", 0.2);
    diff_rank(&r, &tensor);
    set("b", 0.5);
    diff_rank(&r, &tensor);
    set("c", 0.2); /* of equals the first stays in front */
    diff_rank(&r, &tensor);
    set("d", 0.1);
    diff_rank(&r, &tensor);
    CHECK_STR(names_of(&r), "bacd");
    set("e", 0);
    diff_rank(&r, &tensor);
    set("f", 9);
    tensor.has_values = 0;
    diff_rank(&r, &tensor);
    tensor.has_values = 1;
    tensor.kind = BERTH_DIFF_SHAPE;
    diff_rank(&r, &tensor);
    CHECK_STR(names_of(&r), "bacd");
    for (int i = 0; i < 26; i++) {
        const char name[] = { (char)('A' + i), '\0' };

        set(name, 1 + (i * 7 % 26));
        diff_rank(&r, &tensor);
    }
    CHECK_EQ(r.count, DIFF_WORST);
    for (size_t i = 0; i < r.count; i++) {
        CHECK_EQ((int)r.worst[i].relative, 26 - (int)i);
        CHECK_EQ((int)r.worst[i].maximum, 4 * (26 - (int)i));
    }
    set("late", 16.5);
    diff_rank(&r, &tensor);
    CHECK_EQ((int)r.worst[DIFF_WORST - 1].relative, 17);
    set("late", 17.5);
    diff_rank(&r, &tensor);
    CHECK_STR(r.worst[DIFF_WORST - 1].name, "late");
    CHECK_EQ(r.is_out_of_memory, false);
    diff_ranking_fini(&r);
    CHECK_EQ(r.count, 0);
}

/* ---------------------------------------------------------------------- lines */

static void
check_line(const char *expected)
{
    diff_print_tensor(&s, &tensor);
    CHECK_STR(printed_take(&s.out), expected);
}

static void
test_lines(void)
{
    begin(0);
    set("w", 0.0631);
    check_line("differs      max 2.52e-01  relative 6.31e-02   24.0 dB  w\n");
    tensor.errors.nonfinite = 1234;
    check_line("differs      max 2.52e-01  relative 6.31e-02   24.0 dB  "
               "1,234 NaN or infinite  w\n");
    tensor.errors.different = 0;
    check_line("differs      1,234 NaN or infinite  w\n");
    set("w", 0.0631);
    tensor.errors.nonfinite = 0;
    tensor.has_codes = 1;
    check_line("same codes   max 2.52e-01  relative 6.31e-02   24.0 dB  w\n");
    tensor.codes = 1;
    check_line("differs      max 2.52e-01  relative 6.31e-02   24.0 dB  w\n");
    set("w", 0);
    check_line("same values  w\n");
    tensor.errors.nonfinite = 1;
    check_line("differs      1 NaN or infinite  w\n");
    tensor.errors.nonfinite = 0;
    tensor.is_same = 1;
    check_line("same bytes   w\n");
    tensor.is_same = 0;
    tensor.has_values = 0;
    check_line("differs      w\n");
    tensor.kind = BERTH_DIFF_ONLY_A;
    check_line("only in A    w\n");
    tensor.kind = BERTH_DIFF_ONLY_B;
    check_line("only in B    w\n");
    tensor.kind = BERTH_DIFF_SHAPE;
    check_line("other shape  w\n");
    tensor.kind = BERTH_DIFF_DTYPE;
    tensor.name = "x\n";
    tensor.name_length = 2;
    check_line("other dtype  x\\x0a\n");
    set("z", 0.5);
    tensor.errors.relative = (double)INFINITY;
    tensor.errors.snr = -(double)INFINITY;
    tensor.has_codes = 0;
    check_line("differs      max 2.00e+00  relative      inf      lost  z\n");
}

/* ----------------------------------------------------------------------- sums */

static void
test_sums(void)
{
    diff_ranking r = { 0 };

    begin(60);
    set("model.layers.0.self_attn.q_proj.weight", 0.07);
    diff_rank(&r, &tensor);
    report.compared = 5;
    report.same = 2;
    report.equal = 3;
    report.only_a = 1;
    report.only_b = 1000;
    report.other_shape = 4;
    report.other_dtype = 5;
    report.rejected = 6;
    report.errors.count = 1234567;
    report.errors.different = 1000;
    report.errors.nonfinite = 3;
    report.errors.maximum = 0.5;
    report.errors.mean = 0.001;
    report.errors.relative = 0.07;
    report.errors.snr = 23.1;
    report.errors.histogram[0] = 400;
    report.errors.histogram[24] = 100;
    report.errors.histogram[26] = 200;
    diff_print(&s, &report, &r);
    CHECK_STR(printed_take(&s.out),
              "same bytes            2 weights\n"
              "same values           1 weight\n"
              "differ                2 weights\n"
              "other shape           4 weights\n"
              "other dtype           5 weights\n"
              "only in A             1 weight\n"
              "only in B         1,000 weights\n"
              "rejected              6 weights\n"
              "\n"
              "1,000 of 1,234,567 values differ: max 5.00e-01, mean 1.00e-03, "
              "relative 7.00e-02, 23.1 dB\n"
              "3 more are NaN or infinite, not the same on both sides; --tensors says where\n"
              "\n"
              "error, in units of the weight's root mean square\n"
              "     equal  ########################################  400\n"
              "      2^-2  ##########  100\n"
              "      2^-1  0\n"
              "       2^0  ####################  200\n"
              "\n"
              "differs most           max      mean  relative  signal/noise\n"
              "model.l~j.weight  2.80e-01  3.50e-02  7.00e-02       23.1 dB\n");
    diff_ranking_fini(&r);
}

static void
test_buckets_at_the_ends(void)
{
    diff_ranking r = { 0 };

    begin(0);
    report.compared = 1;
    report.errors.different = 2;
    report.errors.histogram[1] = 1;
    report.errors.histogram[BERTH_DIFF_BUCKETS - 1] = 1;
    diff_print(&s, &report, &r);
    CHECK_CONTAINS(s.out.buffer, "\n     equal  0\n   < 2^-24  #");
    CHECK_CONTAINS(s.out.buffer, "\n     2^-24  0\n");
    CHECK_CONTAINS(s.out.buffer, "\n    >= 2^5  #");
    (void)printed_take(&s.out);
}

static void
test_same(void)
{
    diff_ranking r = { 0 };

    begin(0);
    report.compared = 7;
    report.same = 7;
    report.equal = 6; /* one of them has no values that could be equal */
    diff_print(&s, &report, &r);
    CHECK_STR(printed_take(&s.out), "same bytes            7 weights\n");
}

/* ----------------------------------------------------------------------- JSON */

static const char *
as_json(bool of_tensor)
{
    json_writer w;

    json_begin(&w, &s.out, true);
    json_object_begin(&w, NULL);
    if (of_tensor) {
        json_array_begin(&w, "t");
        diff_write_tensor(&w, &tensor);
        json_array_end(&w);
    } else {
        diff_write(&w, &report);
    }
    json_object_end(&w);
    json_end(&w);
    return printed_take(&s.out);
}

#define ZEROS_31 "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, " \
                 "0, 0, 0, 0, 0, 0"

static void
test_json(void)
{
    begin(0);
    set("w", 0.5);
    tensor.has_codes = 1;
    tensor.codes = 3;
    tensor.is_rejected = 1;
    tensor.errors.snr = (double)INFINITY;
    tensor.errors.histogram[0] = 10;
    tensor.a.encoding = BERTH_ENCODING_NF4;
    tensor.a.dtype = BERTH_BF16;
    tensor.a.rank = 2;
    tensor.a.shape[0] = 4;
    tensor.a.shape[1] = 5;
    tensor.a.bytes = 20;
    tensor.b = tensor.a;
    tensor.b.nan = 1;
    tensor.b.infinite = 2;
    CHECK_STR(as_json(true),
              "{\"t\":[{\"name\":\"w\",\"verdict\":\"differs\",\"rejected\":true,"
              "\"a\":{\"encoding\":\"nf4\",\"dtype\":\"BF16\",\"shape\":[4, 5],"
              "\"bytes\":20,\"nan\":0,\"infinite\":0},"
              "\"b\":{\"encoding\":\"nf4\",\"dtype\":\"BF16\",\"shape\":[4, 5],"
              "\"bytes\":20,\"nan\":1,\"infinite\":2},\"codes_different\":3,"
              "\"errors\":{\"count\":100,\"different\":90,\"nonfinite\":0,"
              "\"maximum\":2.00000e+00,\"mean\":2.50000e-01,\"rms_a\":0.00000e+00,"
              "\"rms_error\":0.00000e+00,\"relative\":5.00000e-01,\"snr_db\":null,"
              "\"histogram\":[10, " ZEROS_31 "]}}]}\n");
    tensor.kind = BERTH_DIFF_ONLY_B;
    tensor.has_codes = 0;
    tensor.has_values = 0;
    CHECK_STR(as_json(true),
              "{\"t\":[{\"name\":\"w\",\"verdict\":\"only_b\",\"rejected\":true,"
              "\"b\":{\"encoding\":\"nf4\",\"dtype\":\"BF16\",\"shape\":[4, 5],"
              "\"bytes\":20,\"nan\":1,\"infinite\":2}}]}\n");
    tensor.kind = BERTH_DIFF_ONLY_A;
    CHECK_CONTAINS(as_json(true), "\"only_a\",\"rejected\":true,\"a\":{");
}

static void
test_json_of_sums(void)
{
    begin(0);
    report = (berth_diff_report){ .compared = 1,   .same = 2,        .equal = 3,
                                  .only_a = 4,     .only_b = 5,      .other_shape = 6,
                                  .other_dtype = 7, .rejected = 8,   .elements = 9,
                                  .codes = 10,     .nan_a = 11,      .nan_b = 12,
                                  .infinite_a = 13, .infinite_b = 14, .bytes_read = 15,
                                  .planned_memory = 16, .seconds = 0.5, .io_path = "x" };
    CHECK_STR(as_json(false),
              "{\"weights\":{\"compared\":1,\"same\":2,\"equal\":3,\"only_a\":4,"
              "\"only_b\":5,\"other_shape\":6,\"other_dtype\":7,\"rejected\":8},"
              "\"elements\":9,\"codes_different\":10,\"nan_a\":11,\"nan_b\":12,"
              "\"infinite_a\":13,\"infinite_b\":14,\"errors\":{\"count\":0,\"different\":0,"
              "\"nonfinite\":0,\"maximum\":0.00000e+00,\"mean\":0.00000e+00,"
              "\"rms_a\":0.00000e+00,\"rms_error\":0.00000e+00,\"relative\":0.00000e+00,"
              "\"snr_db\":0.00000e+00,\"histogram\":[0, " ZEROS_31 "]},"
              "\"bytes_read\":15,\"planned_memory\":16,\"seconds\":0.500,"
              "\"io_path\":\"x\"}\n");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ranking);
    T_RUN(test_lines);
    T_RUN(test_sums);
    T_RUN(test_buckets_at_the_ends);
    T_RUN(test_same);
    T_RUN(test_json);
    T_RUN(test_json_of_sums);
    T_MAIN_END;
}
