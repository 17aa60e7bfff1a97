/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_inspect.c - the views of `berth inspect`, of models that were never files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/printed.h"
#include "tests/t.h"
#include "tools/inspect.h"

static session s;
static inspection i;
static char names[4096]; /* of the tensors, which a tree borrows */
static size_t names_length;

static void
begin(unsigned columns)
{
    memset(&s, 0, sizeof s);
    memset(&i, 0, sizeof i);
    output_init(&s.out, -1);
    s.screen.columns = columns;
    names_length = 0;
    i.summary.path = "m";
    i.summary.revision = "";
    i.summary.architecture = "";
    i.summary.model_type = "";
    i.summary.dtype = "";
    i.summary.quant_method = "";
    CHECK(tree_init(&i.tree));
}

static void
end(void)
{
    inspect_fini(&i);
}

/* A vector of bytes of this name. */
static void
add(const char *name, uint64_t bytes)
{
    berth_tensor tensor;
    tree_sums sums = { .tensors = 1, .parameters = bytes, .bytes = bytes };

    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = BERTH_U8;
    tensor.rank = 1;
    tensor.shape[0] = bytes;
    sums.class_bytes[FORM_BYTE] = bytes;
    T_REQUIRE(names_length + strlen(name) < sizeof names);
    memcpy(names + names_length, name, strlen(name));
    CHECK(tree_add(&i.tree, names + names_length, strlen(name),
                   form_intern(&i.forms, &tensor, NULL), &sums));
    names_length += strlen(name);
    i.listing.count++;
    i.dtypes[BERTH_U8].tensors++;
    i.dtypes[BERTH_U8].bytes += bytes;
    i.summary.tensor_bytes += bytes;
}

/* The tree alone, without head and totals. */
static const char *
view(uint32_t depth)
{
    static char text[OUTPUT_CAPACITY];
    const char *from;
    char *to;

    CHECK(tree_fold(&i.tree));
    inspect_print(&s, &i, depth);
    from = strstr(printed_take(&s.out), "\n\n");
    snprintf(text, sizeof text, "%s", from != NULL ? from + 2 : "");
    to = strstr(text, "\nby dtype");
    if (to != NULL)
        *to = '\0';
    return text;
}

/* ----------------------------------------------------------------------- head */

static void
test_head_of_nothing(void)
{
    begin(0);
    inspect_print_head(&s, &i);
    CHECK_STR(printed_take(&s.out), "m\n"
                         "  architecture  not said\n"
                         "  parameters    0\n"
                         "  size          0 B\n"
                         "  tensors       0 in 0 files\n"
                         "  quantization  none\n");
    end();
}

static void
test_head_of_much(void)
{
    begin(0);
    i.summary.revision = "0123\n";
    i.summary.architecture = "A";
    i.summary.model_type = "b";
    i.summary.dtype = "bfloat16";
    i.summary.ties_embeddings = 1;
    i.summary.is_adapter = 1;
    i.summary.is_sharded = 1;
    i.summary.shard_count = 1;
    i.summary.parameter_count = 1000;
    i.summary.tensor_bytes = 1024;
    i.summary.quant_method = "x";
    i.warnings = 1;
    i.method_count = 3;
    i.methods[0] = (inspect_method){ "one", 0, 0, 0, 1 };
    i.methods[1] = (inspect_method){ "two", 1, 0, 1, 2 };
    i.methods[2] = (inspect_method){ "three", 128, 1, 0, 1000 };
    inspect_print_head(&s, &i);
    CHECK_STR(printed_take(&s.out), "m\n"
                         "  revision      0123\\x0a\n"
                         "  architecture  A, bfloat16, embeddings tied, an adapter: not a "
                         "model by itself\n"
                         "  parameters    1.00 K (1,000)\n"
                         "  size          1.00 KiB (1,024 bytes), 8.19 bits a parameter\n"
                         "  tensors       0 in 1 shard\n"
                         "  quantization  one: 1 weight\n"
                         "                two, block 1, double quantized: 2 weights\n"
                         "                three, block 128x1: 1,000 weights\n"
                         "  warnings      1: `berth verify` shows them\n");
    end();
}

static void
test_head_without_words(void)
{
    begin(0);
    i.summary.model_type = "b";
    i.summary.ties_embeddings = -1;
    i.summary.parameter_count = 1;
    i.summary.tensor_bytes = 1023;
    i.summary.shard_count = 2;
    i.summary.quant_method = "gptq";
    inspect_print_head(&s, &i);
    CHECK_STR(printed_take(&s.out), "m\n"
                         "  architecture  b\n"
                         "  parameters    1\n"
                         "  size          1023 B, 8184.00 bits a parameter\n"
                         "  tensors       0 in 2 files\n"
                         "  quantization  none seen, though config.json says gptq\n");
    end();
}

/* ----------------------------------------------------------------------- tree */

static void
test_tree_rows(void)
{
    begin(0);
    add("a.b.c", 1);
    add("a.b.d.e", 2);
    add("h.0.w", 3);
    add("h.1.w", 3);
    add("h.3.w", 3);
    add("h.4.x.y", 1);
    add("h.4.x.z", 1);
    add("x", 9986);
    CHECK_STR(view(1), "a.b                      3 B   <0.1%  |\n"
                       "h                       11 B    0.1%  |\n"
                       "x    U8  [9986]     9.75 KiB   99.9%  ################################\n");
    inspect_print(&s, &i, 2);
    CHECK_CONTAINS(printed_take(&s.out),
                   "\n\na.b                                3 B   <0.1%  |\n"
                   "  c            U8  [1]             1 B   <0.1%  |\n"
                   "  d.e          U8  [2]             2 B   <0.1%  |\n"
                   "h                                 11 B    0.1%  |\n"
                   "  0-1,3.w x 3  U8  [3]             9 B    0.1%  |\n"
                   "  4.x                              2 B   <0.1%  |\n"
                   "x              U8  [9986]     9.75 KiB   99.9%  "
                   "################################\n\nby dtype\n");
    inspect_print(&s, &i, 99);
    CHECK_CONTAINS(printed_take(&s.out),
                   "  4.x                              2 B   <0.1%  |\n"
                   "    y          U8  [1]             1 B   <0.1%  |\n"
                   "    z          U8  [1]             1 B   <0.1%  |\n"
                   "x              U8  [9986]     9.75 KiB   99.9%  "
                   "################################\n\nby dtype\n");
    end();
    begin(0);
    add("x", 0);
    CHECK_STR(view(1), "x   U8  [0]       0 B  0.0%\n");
    end();
}

static void
test_ranges_are_cut(void)
{
    static const struct {
        uint32_t ranges;
        const char *label;
    } cases[] = {
        { 2, "h.0,2.w x 2" },
        { 5, "h.0,2,4,6,8.w x 5" },
        { 6, "h.0,2,4,6,..,10.w x 6" },
    };

    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        begin(0);
        for (uint32_t k = 0; k < cases[n].ranges; k++) {
            char name[32];

            snprintf(name, sizeof name, "h.%" PRIu32 ".w", 2 * k);
            add(name, 4);
        }
        CHECK_CONTAINS(view(0), cases[n].label);
        end();
    }
}

static size_t
lines_of(const char *text)
{
    size_t lines = 0;

    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* As many levels as fit 44 rows, and a word about the next one. */
static void
test_depth_is_chosen(void)
{
    for (int most = 43; most <= 45; most++) {
        char name[32];

        begin(0);
        for (int n = 2; n < most; n++) {
            snprintf(name, sizeof name, "a.x%d", n);
            add(name, (uint64_t)n);
        }
        add("b", 1);
        if (most <= 44) {
            CHECK_EQ(lines_of(view(0)), most);
        } else {
            const char *const text = view(0);

            CHECK_EQ(lines_of(text), 3);
            CHECK_CONTAINS(text, "\ndeeper: --depth 2\n");
        }
        end();
    }
}

/* Of many rows on the first level the largest are shown. */
static void
test_largest_rows(void)
{
    for (int count = 44; count <= 46; count++) {
        const char *text;
        char name[32];

        begin(0);
        for (int n = 1; n <= count; n++) {
            snprintf(name, sizeof name, "x%d", n);
            add(name, (uint64_t)n * 10);
        }
        text = view(0);
        CHECK_EQ(lines_of(text), count == 44 ? 44 : 45);
        if (count == 44)
            CHECK(strstr(text, "more") == NULL);
        else
            CHECK_CONTAINS(text, count == 45
                                     ? "\n1 more                       10 B    0.1%  |\n"
                                     : "\n2 more                       30 B    0.3%  |\n");
        CHECK_EQ(strncmp(text, "x1 ", 3) == 0, count == 44);
        CHECK_EQ(strncmp(text, "x2 ", 3) == 0, count == 45);
        CHECK_EQ(strncmp(text, "x3 ", 3) == 0, count == 46);
        end();
        begin(0); /* all of one size: the first ones */
        for (int n = 1; n <= count; n++) {
            snprintf(name, sizeof name, "x%d", n);
            add(name, 10);
        }
        text = view(0);
        CHECK_EQ(lines_of(text), count == 44 ? 44 : 45);
        CHECK_CONTAINS(text, "x44 ");
        CHECK(strstr(text, "x45 ") == NULL);
        end();
    }
}

static const char *
view_on(unsigned columns)
{
    const char *text;

    begin(columns);
    add("a name of some length.to be cut", 100);
    add("b", 50);
    text = view(0);
    end();
    return text;
}

/* Names give way first, then the bar; nothing is wider than the terminal. */
static void
test_widths(void)
{
    CHECK_STR(view_on(0), "a name of some length.to be cut  U8  [100]      100 B   66.7%  "
                          "#####################|\n"
                          "b                                U8  [50]        50 B   33.3%  "
                          "###########\n");
    CHECK_STR(view_on(72), "a name of some length.to be cut  U8  [100]      100 B   66.7%  "
                           "######\n"
                           "b                                U8  [50]        50 B   33.3%  "
                           "###\n");
    CHECK_STR(view_on(71), "a name of some length.to be cut  U8  100 B   66.7%  "
                           "#############\n"
                           "b                                U8   50 B   33.3%  ######|\n");
    CHECK_CONTAINS(view_on(10), "a name ~o be cut  U8  100 B   66.7%\n");
    for (unsigned columns = 38; columns < 160; columns++) {
        const char *const text = view_on(columns);
        const size_t width = strcspn(text, "\n");

        CHECK_LE(width, columns);
        CHECK_EQ(strchr(text, '[') != NULL, columns >= 72);
        CHECK_EQ(strchr(text, '#') != NULL, columns >= 45);
        CHECK_EQ(strchr(text, '~') != NULL, columns < 60);
    }
}

/* ----------------------------------------------------------------------- json */

static void
test_json_ranges(void)
{
    const char *text;

    begin(0);
    add("h.0", 4);
    add("h.1", 4);
    add("h.3", 4);
    CHECK(tree_fold(&i.tree));
    inspect_write_json(&s, &i, false);
    text = printed_take(&s.out);
    CHECK_CONTAINS(text, "\"repeat\": 3,\n");
    CHECK_CONTAINS(text, "\"numbers\": [\n            [0, 1],\n            [3, 3]\n"
                         "          ],\n");
    end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_head_of_nothing);
    T_RUN(test_head_of_much);
    T_RUN(test_head_without_words);
    T_RUN(test_tree_rows);
    T_RUN(test_ranges_are_cut);
    T_RUN(test_depth_is_chosen);
    T_RUN(test_largest_rows);
    T_RUN(test_widths);
    T_RUN(test_json_ranges);
    T_MAIN_END;
}
