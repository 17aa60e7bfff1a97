/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_draw_words.c - pictures of plans as text: words, terminals of all widths, and what
 * differs, against what was drawn when a person looked at it; see drawn.h.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/drawn.h"
#include "tests/fixture.h"
#include "tests/printed.h"
#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)
#define NF4 BERTH_ENCODING_NF4
#define NATIVE BERTH_ENCODING_NATIVE

/* ---------------------------------------------------------------------- words */

static void
test_types(void)
{
    char text[DRAW_TEXT_CAPACITY];
    draw_map map = { 0 };

    drawn_tier(&map, "a", 100000);
    drawn_layer(&map, "l", 0, "why");
    drawn_tensor(&map, "l.1", 0, 10, NF4, BERTH_BF16, false);
    drawn_tensor(&map, "l.2", 0, 30, BERTH_ENCODING_FP4, BERTH_BF16, false);
    drawn_tensor(&map, "l.3", 0, 5, NF4, BERTH_F16, false);
    drawn_tensor(&map, "l.4", 0, 7, NATIVE, BERTH_F16, false);
    drawn_tensor(&map, "l.5", 0, 7, NATIVE, BERTH_BF16, false);
    drawn_tensor(&map, "l.6", 0, 9, BERTH_ENCODING_STATISTICS, BERTH_BF16, false);
    CHECK_STR(draw_types_text(&map, FORM_NIBBLE, text), "fp4, nf4");
    CHECK_STR(draw_types_text(&map, FORM_HALF, text), "BF16, F16");
    CHECK_STR(draw_types_text(&map, FORM_BYTE, text), "");
    drawn_tensor(&map, "l.7", 0, 25, NF4, BERTH_F32, false);
    drawn_tensor(&map, "l.8", 0, 5, NF4, BERTH_F32, false); /* as many as fp4: it was first */
    CHECK_STR(draw_types_text(&map, FORM_NIBBLE, text), "fp4, nf4");
    drawn_tensor(&map, "l.9", 0, 1, NF4, BERTH_F32, false);
    CHECK_STR(draw_types_text(&map, FORM_NIBBLE, text), "nf4, fp4");
    CHECK_STR(draw_type_name(BERTH_ENCODING_INT8, BERTH_BF16), "int8");
    CHECK_STR(draw_type_name(BERTH_ENCODING_STATISTICS, BERTH_F32), "F32");
    for (int32_t d = 0; d < 40; d++)
        drawn_tensor(&map, "l.x", 0, 1, NATIVE, d % 20, false);
    CHECK_EQ(map.type_count, DRAW_MAX_TYPES);
    drawn_finish(&map);
    draw_map_fini(&map);
}

static void
test_names_that_follow(void)
{
    CHECK(draw_is_next_name("layers.4", "layers.5"));
    CHECK(draw_is_next_name("layers.9", "layers.10"));
    CHECK(draw_is_next_name("h.0.x", "h.1.x"));
    CHECK(!draw_is_next_name("layers.4", "layers.6"));
    CHECK(!draw_is_next_name("layers.5", "layers.4"));
    CHECK(!draw_is_next_name("layers.4", "lavers.5"));
    CHECK(!draw_is_next_name("layers.4", "mylayers.5"));
    CHECK(!draw_is_next_name("h.0.x", "h.1.y"));
    CHECK(!draw_is_next_name("norm", "norm"));
    CHECK(!draw_is_next_name("layers.4", "norm"));
    CHECK(!draw_is_next_name("", ""));
    CHECK(draw_is_next_name("a10000000000000000", "a10000000000000001"));
    CHECK(!draw_is_next_name("a100000000000000000", "a100000000000000001"));
}

static void
test_runs(void)
{
    char text[DRAW_TEXT_CAPACITY];
    draw_map map;

    drawn_dense(&map);
    CHECK_EQ(draw_map_run(&map, 0), 1);
    CHECK_EQ(draw_map_run(&map, 1), 7); /* then another home */
    CHECK_EQ(draw_map_run(&map, 8), 5); /* streamed ones among them */
    CHECK_EQ(draw_map_run(&map, 13), 1);
    CHECK_EQ(draw_map_run(&map, 14), 1);
    map.layers[4].cause = BERTH_PLAN_PINNED;
    CHECK_EQ(draw_map_run(&map, 1), 3);
    CHECK_EQ(draw_map_run(&map, 4), 1);
    map.layers[5].cause = BERTH_PLAN_PINNED;
    CHECK_EQ(draw_map_run(&map, 4), 2);
    CHECK_STR(draw_run_text(&map, 1, 7, text), "model.layers.0-6");
    CHECK_STR(draw_run_text(&map, 1, 1, text), "model.layers.0");
    CHECK_STR(draw_run_text(&map, 13, 1, text), "model.norm");
    CHECK_STR(draw_where_text(&map, 0, text), "cuda:0");
    CHECK_STR(draw_where_text(&map, 9, text), "cpu");
    draw_map_fini(&map);
    drawn_experts(&map);
    CHECK_STR(draw_where_text(&map, 60, text), "cuda:1+cpu");
    draw_map_fini(&map);
}

static void
test_title(void)
{
    char text[DRAW_TEXT_CAPACITY];
    draw_map map = { 0 };

    map.summary.layer_count = 1;
    map.summary.bytes = 3 * GIB;
    map.summary.dtype = BERTH_BF16;
    CHECK_STR(draw_title_text(&map, text), "1 layer, 3.00 GiB, BF16");
    map.type_count = 2;
    map.types[0] = (draw_type){ NATIVE, BERTH_F16, 5 };
    map.types[1] = (draw_type){ BERTH_ENCODING_FP8_BLOCK, BERTH_BF16, 5 };
    CHECK_STR(draw_title_text(&map, text), "1 layer, 3.00 GiB, F16");
    map.types[1].bytes = 6;
    CHECK_STR(draw_title_text(&map, text), "1 layer, 3.00 GiB, fp8");
    map.summary.layer_count = 2;
    map.summary.type = NF4;
    map.summary.context = 1;
    map.summary.batch = 3;
    CHECK_STR(draw_title_text(&map, text), "2 layers, 3.00 GiB, nf4, 3 x 1 tokens of context");
    map.summary.double_quant = 1;
    CHECK_CONTAINS(draw_title_text(&map, text), "nf4 with double quantization, 3 x");
    CHECK_STR(draw_speed_text(&map, text), "");
    map.summary.tokens_per_second = 99.94;
    CHECK_STR(draw_speed_text(&map, text), "99.9 tokens per second predicted");
    map.summary.tokens_per_second = 100;
    CHECK_STR(draw_speed_text(&map, text), "100 tokens per second predicted");
    map.summary.link_bytes = 1;
    CHECK_STR(draw_speed_text(&map, text),
              "100 tokens per second predicted; 1 B brought to devices for each token");
    map.summary.disk_bytes = 1;
    CHECK_CONTAINS(draw_speed_text(&map, text), "for each token, 1 B of it from the disk");
}

static void
test_advice(void)
{
    char text[DRAW_TEXT_CAPACITY];
    draw_map map = { 0 };

    CHECK_STR(draw_advice_text(&map, text), "");
    snprintf(map.summary.advice, sizeof map.summary.advice, "1 GiB more");
    CHECK_STR(draw_advice_text(&map, text), "would help: 1 GiB more");
}

/* Only what is short of room counts as that; rows of an embedding stay where they are. */
static void
test_absence_has_causes(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cuda:0", 1000);
    drawn_tier(&map, "cpu", 1000);
    for (unsigned i = 0; i < 5; i++)
        drawn_plain_layer(&map, fixture_format("layers.%u", i), 0, 1, UINT64_C(1) << i);
    map.layers[0].cause = BERTH_PLAN_ROWS;
    map.layers[1].cause = BERTH_PLAN_PINNED;
    map.layers[2].cause = BERTH_PLAN_SHORT;
    map.layers[3].cause = BERTH_PLAN_MAPPED;
    map.layers[4].cause = BERTH_PLAN_SHORT;
    drawn_finish(&map);
    CHECK_EQ(map.tiers[0].absent_cells, 4);
    CHECK_EQ(map.tiers[0].absent, 4 + 16);
    CHECK_EQ(map.tiers[0].drawn, 1000 + 2 + 4 + 8 + 16);
    CHECK_EQ(map.tiers[1].absent_cells, 0);
    CHECK_EQ(map.tiers[1].used, 31);
    draw_map_fini(&map);
}

static void
test_verdicts(void)
{
    draw_tier tier = { .used = GIB };
    char text[DRAW_TEXT_CAPACITY];

    tier.facts.budget = 2 * GIB;
    tier.facts.free = GIB;
    CHECK_STR(draw_verdict_text(&tier, text), "1.00 GiB free");
    CHECK_STR(draw_use_text(&tier, text), "1.00 GiB of 2.00 GiB");
    tier.facts.budget = UINT64_MAX;
    CHECK_STR(draw_verdict_text(&tier, text), "no limit");
    CHECK_STR(draw_use_text(&tier, text), "1.00 GiB used");
    tier.absent = 1;
    CHECK_STR(draw_verdict_text(&tier, text), "short of 1 B");
}

/* ------------------------------------------------------------------- terminal */

static void
check_terminal(void (*make)(draw_map *), const screen *s, size_t columns, const char *name)
{
    draw_map map;

    make(&map);
    drawn_begin();
    CHECK(draw_map_terminal(drawn_out(), s, &map, columns));
    draw_map_fini(&map);
    drawn_check_golden(name);
}

static void
test_terminal(void)
{
    check_terminal(drawn_dense, &drawn_unicode, 40, "dense-40.txt");
    check_terminal(drawn_dense, &drawn_unicode, 80, "dense-80.txt");
    check_terminal(drawn_dense, &drawn_ascii, 59, "dense-ascii.txt");
    check_terminal(drawn_dense, &drawn_ascii, 60, "dense-60.txt");
    check_terminal(drawn_dense, &drawn_colourful, 100, "dense-colour.txt");
    check_terminal(drawn_experts, &drawn_unicode, 120, "experts-120.txt");
    check_terminal(drawn_experts, &drawn_colourful, 200, "experts-200.txt");
}

/* Where a cell is wide enough, it shows its end; one byte too much is too much. */
static void
test_terminal_separates_cells(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cuda:0", 18);
    drawn_tier(&map, "cpu", UINT64_MAX);
    drawn_plain_layer(&map, "a", 0, 0, 2);
    drawn_plain_layer(&map, "b", 0, 0, 3);
    drawn_plain_layer(&map, "c", 0, 0, 2);
    drawn_plain_layer(&map, "d", 0, 0, 4);
    drawn_plain_layer(&map, "e", 0, 0, 7);
    drawn_finish(&map);
    drawn_begin();
    CHECK(draw_map_bar(drawn_out(), &drawn_colourful, &map, &map.tiers[0], 18));
    CHECK_STR(drawn_written(NULL),
              "\033[35m\u2588\u2588\u2588\u2588\u2589\u2588\u2588\u2588\u2588\u2588"
              "\u2589\u2588\u2588\u2588\u2588\u2588\u2588\u2588\033[0m");
    drawn_plain_layer(&map, "f", 0, 1, 1);
    CHECK(draw_map_arrange(&map));
    drawn_begin();
    CHECK(draw_map_terminal(drawn_out(), &drawn_colourful, &map, 80));
    CHECK_CONTAINS(drawn_written(NULL), "\033[33mshort of 1 B\033[0m");
    draw_map_fini(&map);
}

/* Nothing is wider than what was asked for, but names of devices and sizes. */
static void
test_terminal_keeps_width(void)
{
    for (size_t columns = 40; columns <= 200; columns++) {
        draw_map map;
        char *text;

        drawn_dense(&map);
        drawn_begin();
        CHECK(draw_map_terminal(drawn_out(), columns % 2 ? &drawn_unicode : &drawn_ascii,
                                &map, columns));
        text = strdup(drawn_written(NULL));
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (!CHECK_LE(text_width(line), columns))
                T_NOTE("%zu columns: %s", columns, line);
        free(text);
        draw_map_fini(&map);
    }
}

/* ----------------------------------------------------------------------- diff */

static void
draw_difference(draw_map *before, draw_map *after, size_t columns)
{
    drawn_begin();
    CHECK(draw_map_difference(drawn_out(), &drawn_unicode, before, after, columns));
    draw_map_fini(before);
    draw_map_fini(after);
}

static void
test_difference_of_the_same(void)
{
    draw_map before;
    draw_map after;

    drawn_dense(&before);
    drawn_dense(&after);
    draw_difference(&before, &after, 80);
    drawn_check_golden("diff-same.txt");
}

/* One more device, one less, layers that come, go and move in part. */
static void
test_difference(void)
{
    draw_map before = { 0 };
    draw_map after = { 0 };

    drawn_tier(&before, "cuda:0", 1000);
    drawn_tier(&before, "cpu", 4000);
    drawn_tier(&before, "disk", UINT64_MAX);
    for (unsigned i = 0; i < 6; i++)
        drawn_plain_layer(&before, fixture_format("layers.%u", i), 0, i < 3 ? 0 : 1, 200);
    drawn_plain_layer(&before, "norm", 0, 2, 8);
    drawn_plain_layer(&before, "old.0", 0, 0, 50);
    drawn_plain_layer(&before, "old.1", 0, 0, 50);
    drawn_finish(&before);
    drawn_tier(&after, "cuda:0", 1000);
    drawn_tier(&after, "cuda:1", 500);
    drawn_tier(&after, "cpu", 4000);
    for (unsigned i = 0; i < 6; i++)
        drawn_plain_layer(&after, fixture_format("layers.%u", i), i >= 4, i < 4 ? 0 : 1, 200);
    drawn_layer(&after, "norm", 0, "why");
    drawn_tensor(&after, "norm.a", 0, 3, NATIVE, BERTH_BF16, false);
    drawn_tensor(&after, "norm.b", 2, 5, NATIVE, BERTH_BF16, false);
    drawn_plain_layer(&after, "new", 1, 1, 7);
    drawn_finish(&after);
    draw_difference(&before, &after, 80);
    drawn_check_golden("diff-80.txt");
}

/* Runs whose shares differ are one move, with the share of all of them. */
static void
test_difference_in_shares(void)
{
    draw_map maps[2];

    memset(maps, 0, sizeof maps);
    for (unsigned m = 0; m < 2; m++) {
        drawn_tier(&maps[m], "cuda:0", 1000);
        drawn_tier(&maps[m], "cpu", 1000);
        for (unsigned i = 0; i < 4; i++) {
            drawn_layer(&maps[m], fixture_format("layers.%u", i), 0, "why");
            for (unsigned n = 0; n < 10; n++)
                drawn_tensor(&maps[m], fixture_format("layers.%u.%u", i, n),
                             n < (m == 0 ? 3 : i == 2 ? 3 : i + 1), 10, NATIVE, BERTH_BF16,
                             false);
        }
        /* The same layers, in another order before. */
        drawn_plain_layer(&maps[m], m == 0 ? "x.1" : "x.0", 0, m, 1);
        drawn_plain_layer(&maps[m], m == 0 ? "x.0" : "x.1", 0, m, 1);
        drawn_finish(&maps[m]);
    }
    draw_difference(&maps[0], &maps[1], 80);
    drawn_check_golden("diff-shares.txt");
}

/* A device less, a layer more before one that moved. */
static void
test_difference_of_devices(void)
{
    draw_map before = { 0 };
    draw_map after = { 0 };

    drawn_tier(&before, "cuda:7", 1000);
    drawn_tier(&before, "cpu", 1000);
    drawn_tier(&after, "cpu", 1000);
    drawn_plain_layer(&before, "x.1", 0, 0, 500);
    drawn_plain_layer(&before, "x.2", 1, 1, 100);
    drawn_plain_layer(&before, "x.3", 0, 0, 100);
    drawn_plain_layer(&after, "x.0", 0, 0, 100);
    drawn_plain_layer(&after, "x.1", 0, 0, 500);
    drawn_plain_layer(&after, "x.3", 0, 0, 100);
    drawn_finish(&before);
    drawn_finish(&after);
    draw_difference(&before, &after, 60);
    drawn_check_golden("diff-60.txt");
}

/* A tier without memory, on which nothing is, has no scale: a bar without parts. */
static void
test_difference_of_nothing(void)
{
    draw_map before = { 0 };
    draw_map after = { 0 };
    draw_map *const maps[] = { &before, &after };

    for (int i = 0; i < 2; i++) {
        drawn_tier(maps[i], "cuda:0", 0);
        drawn_tier(maps[i], "cpu", 1000);
        drawn_plain_layer(maps[i], "x.0", 1, 1, 500);
        drawn_finish(maps[i]);
    }
    draw_difference(&before, &after, 60);
    CHECK_CONTAINS(printed_take(drawn_out()),
                   "\ncuda:0  0 B of weights, before 0 B\nbefore \nafter  \n\ncpu  ");
}

static void
test_difference_of_one(void)
{
    draw_map before = { 0 };
    draw_map after = { 0 };

    drawn_tier(&before, "cuda:0", 1000);
    drawn_tier(&before, "cpu", 1000);
    drawn_tier(&after, "cuda:0", 1000);
    drawn_tier(&after, "cpu", 1000);
    drawn_plain_layer(&before, "a.rather.long.name.of.a.layer.that.does.not.fit", 0, 0, 900);
    drawn_plain_layer(&after, "a.rather.long.name.of.a.layer.that.does.not.fit", 0, 1, 900);
    drawn_finish(&before);
    drawn_finish(&after);
    draw_difference(&before, &after, 44);
    drawn_check_golden("diff-44.txt");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_types);
    T_RUN(test_names_that_follow);
    T_RUN(test_runs);
    T_RUN(test_title);
    T_RUN(test_advice);
    T_RUN(test_absence_has_causes);
    T_RUN(test_verdicts);
    T_RUN(test_terminal);
    T_RUN(test_terminal_separates_cells);
    T_RUN(test_terminal_keeps_width);
    T_RUN(test_difference_of_the_same);
    T_RUN(test_difference);
    T_RUN(test_difference_in_shares);
    T_RUN(test_difference_of_devices);
    T_RUN(test_difference_of_nothing);
    T_RUN(test_difference_of_one);
    T_MAIN_END;
}
