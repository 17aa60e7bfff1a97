/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_draw.c - pictures of plans: cells and their widths, folding, words, and every
 * renderer against what it drew when a person looked at it (tests/data/map; with
 * UPDATE=1 in the environment what is drawn now is written there).
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/drawn.h"
#include "tests/fixture.h"
#include "tests/printed.h"
#include "tests/t.h"
#include "tools/draw_markup.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define NF4 BERTH_ENCODING_NF4
#define NATIVE BERTH_ENCODING_NATIVE

static const screen unicode = { .has_unicode = true };
static const screen ascii = { .has_unicode = false };
static const screen colourful = { .has_unicode = true, .has_colour = true };

/* --------------------------------------------------------------------- output */

static const char *path;
static output out;

static void
begin(void)
{
    path = printed_begin(&out);
}

/* What has been written since begin(). */
static const char *
written(size_t *length)
{
    return printed_end(&out, path, length);
}

static void
check_golden(const char *name)
{
    const char *const golden = fixture_format("tests/data/map/%s", name);
    const char *const text = written(NULL);
    char *expected;

    if (getenv("UPDATE") != NULL)
        fixture_text(golden, text);
    expected = fixture_read(golden, NULL);
    if (!CHECK(strcmp(text, expected) == 0))
        T_NOTE("%s differs", name);
    free(expected);
}

static size_t
count_of(const char *text, const char *word)
{
    size_t count = 0;

    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        count++;
    return count;
}

/* ---------------------------------------------------------------------- cells */

static void
check_cell(const draw_map *map, size_t tier, size_t number, draw_kind kind,
           form_class class, uint32_t layer, uint64_t bytes)
{
    const draw_tier *const t = &map->tiers[tier];
    const draw_cell *cell;

    T_REQUIRE(number < t->cell_count);
    cell = &map->cells[t->first_cell + number];
    if (!(CHECK_EQ(cell->kind, kind) && CHECK_EQ(cell->layer, layer)
          && CHECK_EQ(cell->bytes, bytes)
          && (layer == BERTH_NO_INDEX || CHECK_EQ(cell->class, class))
          && CHECK_EQ(cell->layer_count, layer == BERTH_NO_INDEX ? 0 : 1)))
        T_NOTE("tier %zu, cell %zu", tier, number);
}

static void
check_part(const draw_map *map, size_t tier, size_t number, draw_kind kind, uint64_t bytes)
{
    check_cell(map, tier, number, kind, FORM_HALF, BERTH_NO_INDEX, bytes);
}

static void
test_cells_of_a_full_device(void)
{
    draw_map map;

    drawn_dense(&map);
    T_REQUIRE(CHECK_EQ(map.tiers[0].cell_count, 13));
    check_cell(&map, 0, 0, DRAW_RESIDENT, FORM_HALF, 0, 500 * MIB);
    for (uint32_t i = 1; i <= 7; i++)
        check_cell(&map, 0, i, DRAW_RESIDENT, FORM_NIBBLE, i, 200 * MIB);
    check_part(&map, 0, 8, DRAW_CACHE, 96 * MIB);
    check_part(&map, 0, 9, DRAW_ACTIVATIONS, 40 * MIB);
    check_part(&map, 0, 10, DRAW_SCRATCH, 64 * MIB);
    check_part(&map, 0, 11, DRAW_RESERVE, 3 * GIB / 10);
    check_part(&map, 0, 12, DRAW_FREE, 3 * GIB - 2100 * MIB - 3 * GIB / 10);
    CHECK_EQ(map.tiers[0].drawn, 3 * GIB);
    CHECK_EQ(map.tiers[0].used, 2100 * MIB + 3 * GIB / 10);
    CHECK_EQ(map.tiers[0].absent, 0);
    CHECK_EQ(map.tiers[0].absent_cells, 0);
    CHECK(!map.tiers[0].is_cut);
    draw_map_fini(&map);
}

/* What is streamed stands where it lies and behind the edge of its home. */
static void
test_cells_of_streamed_layers(void)
{
    draw_map map;

    drawn_dense(&map);
    T_REQUIRE(CHECK_EQ(map.tiers[1].cell_count, 13));
    check_cell(&map, 1, 0, DRAW_RESIDENT, FORM_NIBBLE, 8, 200 * MIB);
    check_cell(&map, 1, 1, DRAW_RESIDENT, FORM_NIBBLE, 10, 200 * MIB);
    check_cell(&map, 1, 2, DRAW_RESIDENT, FORM_NIBBLE, 12, 200 * MIB);
    check_cell(&map, 1, 3, DRAW_RESIDENT, FORM_HALF, 13, MIB);
    check_cell(&map, 1, 4, DRAW_RESIDENT, FORM_HALF, 14, 500 * MIB);
    check_part(&map, 1, 5, DRAW_SLOTS, 400 * MIB);
    check_part(&map, 1, 9, DRAW_RESERVE, 2 * GIB / 10);
    check_cell(&map, 1, 11, DRAW_ABSENT, FORM_NIBBLE, 9, 200 * MIB);
    check_cell(&map, 1, 12, DRAW_ABSENT, FORM_NIBBLE, 11, 200 * MIB);
    CHECK_EQ(map.tiers[1].absent_cells, 2);
    CHECK_EQ(map.tiers[1].absent, 400 * MIB);
    CHECK_EQ(map.tiers[1].drawn, 2 * GIB + 400 * MIB);
    T_REQUIRE(CHECK_EQ(map.tiers[2].cell_count, 5));
    check_cell(&map, 2, 0, DRAW_LENT, FORM_NIBBLE, 9, 200 * MIB);
    check_cell(&map, 2, 1, DRAW_LENT, FORM_NIBBLE, 11, 200 * MIB);
    check_part(&map, 2, 2, DRAW_STAGING, 512 * MIB);
    /* No more of what is free than of the rest. */
    CHECK(map.tiers[2].is_cut);
    check_part(&map, 2, 4, DRAW_FREE, 400 * MIB + 512 * MIB + 64 * GIB / 10);
    draw_map_fini(&map);
}

static void
add_layer(draw_map *map, const char *name, uint32_t home, uint32_t tier, uint64_t bytes)
{
    drawn_layer(map, name, home, "why");
    drawn_tensor(map, fixture_format("%s.weight", name), tier, bytes, NATIVE, BERTH_F32,
                 false);
}

static void
test_cells_of_free_tiers(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cuda:0", 100);
    drawn_tier(&map, "cuda:1", 100);
    drawn_tier(&map, "cuda:2", 100);
    drawn_tier(&map, "disk", UINT64_MAX);
    drawn_tier(&map, "disk2", UINT64_MAX);
    add_layer(&map, "a", 0, 0, 50); /* half is free: all of it is drawn */
    add_layer(&map, "b", 1, 1, 49); /* more than that: not */
    add_layer(&map, "c", 3, 3, 7);
    map.tiers[0].facts.expert_slots = 0;
    drawn_finish(&map);
    check_part(&map, 0, 1, DRAW_FREE, 50);
    CHECK(!map.tiers[0].is_cut);
    check_part(&map, 1, 1, DRAW_FREE, 49);
    CHECK(map.tiers[1].is_cut);
    check_part(&map, 2, 0, DRAW_FREE, 100);
    CHECK(!map.tiers[2].is_cut);
    check_cell(&map, 3, 0, DRAW_RESIDENT, FORM_WIDE, 2, 7);
    check_part(&map, 3, 1, DRAW_FREE, 7);
    CHECK(map.tiers[3].is_cut);
    CHECK_EQ(map.tiers[4].cell_count, 1);
    CHECK_EQ(map.tiers[4].used, 0);
    draw_map_fini(&map);
}

/* A second arrangement is the same as the first. */
static void
test_cells_are_made_anew(void)
{
    draw_map map;
    size_t cells;

    drawn_dense(&map);
    cells = map.cell_count;
    CHECK(draw_map_arrange(&map));
    CHECK_EQ(map.cell_count, cells);
    CHECK_EQ(map.tiers[1].absent, 400 * MIB);
    CHECK_EQ(map.tiers[1].drawn, 2 * GIB + 400 * MIB);
    CHECK(map.tiers[2].is_cut);
    map.tiers[2].facts.free = 0;
    CHECK(draw_map_arrange(&map));
    CHECK(!map.tiers[2].is_cut);
    draw_map_fini(&map);
}

static void
test_cells_are_limited(void)
{
    draw_map map = { 0 };
    const draw_cell *last;

    drawn_tier(&map, "cuda:0", UINT64_C(1) << 40);
    drawn_tier(&map, "cpu", UINT64_C(1) << 40);
    for (unsigned i = 0; i < DRAW_MAX_LAYERS + 500; i++)
        add_layer(&map, fixture_format("layers.%u", i), 0, i >= DRAW_MAX_LAYERS + 300, 10);
    drawn_finish(&map);
    CHECK_EQ(map.tiers[0].cell_count, DRAW_MAX_LAYERS + 1 + 1 + 1);
    last = &map.cells[map.tiers[0].first_cell + DRAW_MAX_LAYERS];
    CHECK_EQ(last->layer, DRAW_MAX_LAYERS);
    CHECK_EQ(last->layer_count, 300);
    CHECK_EQ(last->bytes, 3000);
    CHECK_EQ(map.cells[map.tiers[0].first_cell + DRAW_MAX_LAYERS - 1].layer_count, 1);
    CHECK_EQ(map.tiers[0].absent_cells, 1);
    CHECK_EQ(map.tiers[0].absent, 2000);
    CHECK_EQ(map.tiers[0].used, (DRAW_MAX_LAYERS + 300) * 10);
    CHECK_EQ(map.cells[map.tiers[1].first_cell].kind, DRAW_LENT);
    CHECK_EQ(map.cells[map.tiers[1].first_cell].layer_count, 200);
    CHECK_EQ(map.layers[DRAW_MAX_LAYERS - 1].line_count, 1);
    CHECK_EQ(map.layers[DRAW_MAX_LAYERS].line_count, 0);
    begin();
    CHECK(draw_map_html(&out, &map));
    {
        size_t length;
        const char *const text = written(&length);

        CHECK_LT(length, 2000000);
        CHECK_EQ(count_of(text, "<article id=\"l1000\"><h3>500 layers from layers.1000 on"), 1);
        CHECK_EQ(count_of(text, "\"300 layers from layers.1000 on, 2.93 KiB\""), 1);
        CHECK_EQ(count_of(text, "<article id=\"l"), DRAW_MAX_LAYERS + 1);
        /* Wherever they begin: every part of a bar has a text. */
        CHECK_EQ(count_of(text, "<a href=\"#l1000\""), 3);
        CHECK_EQ(count_of(text, "<a href=\"#l1300\""), 0);
    }
    draw_map_fini(&map);
}

/* --------------------------------------------------------------------- widths */

static void
test_widths(void)
{
    draw_map map = { 0 };
    uint32_t ends[8];

    drawn_tier(&map, "cuda:0", 1000);
    add_layer(&map, "a", 0, 0, 100);
    add_layer(&map, "b", 0, 0, 300);
    add_layer(&map, "c", 0, 0, 600);
    drawn_finish(&map);
    draw_map_ends(&map, &map.tiers[0], 100, 0, ends);
    CHECK_EQ(ends[0], 10);
    CHECK_EQ(ends[1], 40);
    CHECK_EQ(ends[2], 100);
    draw_map_ends(&map, &map.tiers[0], 100, 10, ends); /* 70 are shared by bytes */
    CHECK_EQ(ends[0], 17);
    CHECK_EQ(ends[1], 48);
    CHECK_EQ(ends[2], 100);
    draw_map_ends(&map, &map.tiers[0], 30, 10, ends);
    CHECK_EQ(ends[0], 10);
    CHECK_EQ(ends[1], 20);
    CHECK_EQ(ends[2], 30);
    draw_map_ends(&map, &map.tiers[0], 29, 10, ends); /* no room for that */
    CHECK_EQ(ends[0], 3);
    CHECK_EQ(ends[1], 12);
    CHECK_EQ(ends[2], 29);
    draw_map_fini(&map);
}

static void
test_widths_make_up_the_bar(void)
{
    static const uint32_t units[] = { 1, 7, 40, 320, 1600, 11600, 100000 };
    draw_map map;

    drawn_experts(&map);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        for (size_t t = 0; t < map.tier_count; t++) {
            const draw_tier *const tier = &map.tiers[t];
            uint32_t ends[200];

            T_REQUIRE(CHECK_LE(tier->cell_count, 200));
            draw_map_ends(&map, tier, units[u], 1, ends);
            CHECK_EQ(ends[tier->cell_count - 1], units[u]);
            for (size_t i = 1; i < tier->cell_count; i++)
                if (units[u] >= tier->cell_count)
                    CHECK_LT(ends[i - 1], ends[i]);
                else
                    CHECK_LE(ends[i - 1], ends[i]);
        }
    draw_map_fini(&map);
}

/* ---------------------------------------------------------------------- lists */

static void
test_lists_fold_experts(void)
{
    draw_map map;
    const draw_layer *layer;
    const draw_line *lines;

    drawn_experts(&map);
    CHECK_EQ(map.summary.berth_count, 61 * 12 + 58 * 256 * 6);
    layer = &map.layers[3];
    lines = &map.lines[layer->first_line];
    T_REQUIRE(CHECK_EQ(layer->line_count, 16));
    CHECK_STR(lines[0].name, "self_attn.part_0.weight");
    CHECK_EQ(lines[0].bytes, 12 * MIB);
    CHECK_EQ(lines[0].tensors, 1);
    CHECK_EQ(lines[0].experts, 0);
    CHECK_EQ(lines[12].experts, 32);
    CHECK_EQ(lines[12].tensors, 96);
    CHECK_EQ(lines[12].bytes, 96 * 7 * MIB);
    CHECK_EQ(lines[12].tier, 0);
    CHECK_EQ(lines[12].encoding, NF4);
    CHECK(lines[12].name == NULL);
    CHECK_EQ(lines[13].encoding, NATIVE);
    CHECK_EQ(lines[13].bytes, 96 * 256);
    CHECK_EQ(lines[14].experts, 224);
    CHECK_EQ(lines[14].tensors, 672);
    CHECK_EQ(lines[14].tier, 2);
    CHECK_EQ(map.layers[0].line_count, 12);
    draw_map_fini(&map);
}

/* Only a number behind the word makes an expert one of many. */
static void
test_lists_know_experts(void)
{
    static const struct {
        const char *name;
        bool is_expert;
        uint64_t experts;
    } cases[] = {
        { "l.experts.0.w", true, 1 },  { "l.experts.0.w", false, 0 },
        { "l.experts.gate", true, 0 }, { "l.experts.7", true, 0 },
        { "l.experts.7x.w", true, 0 }, { "l.expert.7.w", true, 0 },
        { "l.experts.:.w", true, 0 },  { "l.experts.9.w", true, 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        draw_map map = { 0 };

        drawn_tier(&map, "cpu", 1000);
        drawn_layer(&map, "l", 0, "why");
        drawn_tensor(&map, cases[i].name, 0, 10, NF4, BERTH_BF16, cases[i].is_expert);
        T_REQUIRE(CHECK_EQ(map.line_count, 1));
        CHECK_EQ(map.lines[0].experts, cases[i].experts);
        CHECK_EQ(map.lines[0].name == NULL, cases[i].experts > 0);
        drawn_finish(&map);
        draw_map_fini(&map);
    }
}

static void
test_lists_keep_sorts_of_experts_apart(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "a", 1000);
    drawn_tier(&map, "b", 1000);
    drawn_layer(&map, "l", 0, "why");
    drawn_tensor(&map, "l.experts.0.w", 0, 1, NF4, BERTH_BF16, true);
    drawn_tensor(&map, "l.experts.0.v", 0, 2, NF4, BERTH_BF16, true);
    drawn_tensor(&map, "l.experts.1.w", 0, 4, NF4, BERTH_BF16, true);
    drawn_tensor(&map, "l.experts.2.w", 1, 8, NF4, BERTH_BF16, true);
    drawn_tensor(&map, "l.experts.3.w", 0, 16, NATIVE, BERTH_BF16, true);
    drawn_tensor(&map, "l.experts.4.w", 0, 32, NATIVE, BERTH_F32, true);
    drawn_tensor(&map, "l.experts.5.w", 0, 64, NF4, BERTH_BF16, true);
    T_REQUIRE(CHECK_EQ(map.line_count, 4));
    CHECK_EQ(map.lines[0].experts, 3);
    CHECK_EQ(map.lines[0].tensors, 4);
    CHECK_EQ(map.lines[0].bytes, 71);
    CHECK_EQ(map.lines[1].bytes, 8);
    CHECK_EQ(map.lines[2].bytes, 16);
    CHECK_EQ(map.lines[3].bytes, 32);
    drawn_finish(&map);
    draw_map_fini(&map);
}

static void
test_lists_are_limited(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cpu", UINT64_C(1) << 40);
    for (unsigned i = 0; i < 200; i++) {
        drawn_layer(&map, fixture_format("layers.%u", i), 0, "why");
        for (unsigned n = 0; n < 100; n++)
            drawn_tensor(&map, fixture_format("layers.%u.t%u", i, n), 0, 1, NATIVE,
                         BERTH_BF16, n == 99);
    }
    drawn_finish(&map);
    CHECK_EQ(map.layers[0].line_count, DRAW_MAX_LINES);
    CHECK_STR(map.lines[0].name, "t0");
    CHECK_STR(map.lines[DRAW_MAX_LINES - 2].name, "t46");
    CHECK(map.lines[DRAW_MAX_LINES - 1].name == NULL);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].tensors, 53);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].bytes, 53);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].experts, 0);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].tier, BERTH_NO_INDEX);
    CHECK_EQ(map.layers[124].line_count, DRAW_MAX_LINES);
    CHECK_EQ(map.layers[125].line_count, 1); /* 6000 are there */
    CHECK_EQ(map.lines[map.layers[199].first_line].tensors, 100);
    CHECK_EQ(map.line_count, 6000 + 75);
    draw_map_fini(&map);
}

/* Experts without a line of their own join what is left, and are no experts there. */
static void
test_lists_end_before_experts(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cpu", UINT64_C(1) << 40);
    drawn_layer(&map, "l", 0, "why");
    for (unsigned n = 0; n < DRAW_MAX_LINES - 1; n++)
        drawn_tensor(&map, fixture_format("l.t%u", n), 0, 1, NATIVE, BERTH_BF16, false);
    for (unsigned n = 0; n < 5; n++)
        drawn_tensor(&map, fixture_format("l.experts.%u.w", n), 0, 1, NF4, BERTH_BF16, true);
    drawn_tensor(&map, "l.z", 0, 1, NATIVE, BERTH_BF16, false);
    CHECK_EQ(map.line_count, DRAW_MAX_LINES);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].tensors, 6);
    CHECK_EQ(map.lines[DRAW_MAX_LINES - 1].experts, 0);
    drawn_finish(&map);
    draw_map_fini(&map);
}

static void
test_lists_shorten_names(void)
{
    char name[300] = "layers.1.";
    draw_map map = { 0 };

    memset(name + 9, 'x', 200);
    drawn_tier(&map, "cpu", 1000);
    drawn_layer(&map, "layers.1", 0, "why");
    drawn_tensor(&map, "layers.1.w", 0, 1, NATIVE, BERTH_BF16, false);
    drawn_tensor(&map, "layers.10.w", 0, 1, NATIVE, BERTH_BF16, false);
    drawn_tensor(&map, "other.w", 0, 1, NATIVE, BERTH_BF16, false);
    drawn_tensor(&map, "layers.1.a\033[31m\\", 0, 1, NATIVE, BERTH_BF16, false);
    drawn_tensor(&map, name, 0, 1, NATIVE, BERTH_BF16, false);
    CHECK_STR(map.lines[0].name, "w");
    CHECK_STR(map.lines[1].name, "layers.10.w");
    CHECK_STR(map.lines[2].name, "other.w");
    CHECK_STR(map.lines[3].name, "a\\x1b[31m\\\\");
    CHECK_EQ(text_width(map.lines[4].name), DRAW_NAME_WIDTH);
    drawn_finish(&map);
    draw_map_fini(&map);
}

static void
test_lists_only_where_wanted(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cpu", 1000);
    map.has_lines = false;
    add_layer(&map, "a", 0, 0, 10);
    CHECK_EQ(map.line_count, 0);
    CHECK_EQ(map.piece_count, 1);
    drawn_finish(&map);
    draw_map_fini(&map);
}

/* A piece has the class of most of its bytes, whatever comes last. */
static void
test_pieces(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "a", 1000);
    drawn_tier(&map, "b", 1000);
    drawn_layer(&map, "l", 1, "why");
    drawn_tensor(&map, "l.1", 0, 5, NATIVE, BERTH_F32, false);
    drawn_tensor(&map, "l.2", 0, 5, NF4, BERTH_BF16, false);
    drawn_tensor(&map, "l.3", 1, 3, BERTH_ENCODING_INT8, BERTH_BF16, false);
    drawn_tensor(&map, "l.4", 0, 1, NF4, BERTH_BF16, false);
    drawn_tensor(&map, "l.5", 0, 5, BERTH_ENCODING_STATISTICS, BERTH_BF16, false);
    T_REQUIRE(CHECK_EQ(map.piece_count, 2));
    CHECK_EQ(map.layers[0].piece_count, 2);
    CHECK_EQ(map.pieces[0].tier, 0);
    CHECK_EQ(map.pieces[0].bytes, 16);
    CHECK_EQ(map.pieces[0].class, FORM_NIBBLE);
    CHECK_EQ(map.pieces[1].tier, 1);
    CHECK_EQ(map.pieces[1].class, FORM_BYTE);
    CHECK_EQ(map.pieces[1].bytes, 3);
    drawn_layer(&map, "m", 0, "why");
    drawn_tensor(&map, "m.1", 0, 5, NATIVE, BERTH_F32, false);
    CHECK_EQ(map.layers[1].first_piece, 2);
    CHECK_EQ(map.pieces[2].layer, 1);
    drawn_finish(&map);
    draw_map_fini(&map);
}

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
        add_layer(&map, fixture_format("layers.%u", i), 0, 1, UINT64_C(1) << i);
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
    begin();
    CHECK(draw_map_terminal(&out, s, &map, columns));
    draw_map_fini(&map);
    check_golden(name);
}

static void
test_terminal(void)
{
    check_terminal(drawn_dense, &unicode, 40, "dense-40.txt");
    check_terminal(drawn_dense, &unicode, 80, "dense-80.txt");
    check_terminal(drawn_dense, &ascii, 59, "dense-ascii.txt");
    check_terminal(drawn_dense, &ascii, 60, "dense-60.txt");
    check_terminal(drawn_dense, &colourful, 100, "dense-colour.txt");
    check_terminal(drawn_experts, &unicode, 120, "experts-120.txt");
    check_terminal(drawn_experts, &colourful, 200, "experts-200.txt");
}

/* Where a cell is wide enough, it shows its end; one byte too much is too much. */
static void
test_terminal_separates_cells(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cuda:0", 18);
    drawn_tier(&map, "cpu", UINT64_MAX);
    add_layer(&map, "a", 0, 0, 2);
    add_layer(&map, "b", 0, 0, 3);
    add_layer(&map, "c", 0, 0, 2);
    add_layer(&map, "d", 0, 0, 4);
    add_layer(&map, "e", 0, 0, 7);
    drawn_finish(&map);
    begin();
    CHECK(draw_map_bar(&out, &colourful, &map, &map.tiers[0], 18));
    CHECK_STR(written(NULL), "\033[35m\u2588\u2588\u2588\u2588\u2589\u2588\u2588\u2588\u2588\u2588"
                             "\u2589\u2588\u2588\u2588\u2588\u2588\u2588\u2588\033[0m");
    add_layer(&map, "f", 0, 1, 1);
    CHECK(draw_map_arrange(&map));
    begin();
    CHECK(draw_map_terminal(&out, &colourful, &map, 80));
    CHECK_CONTAINS(written(NULL), "\033[33mshort of 1 B\033[0m");
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
        begin();
        CHECK(draw_map_terminal(&out, columns % 2 ? &unicode : &ascii, &map, columns));
        text = strdup(written(NULL));
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
    begin();
    CHECK(draw_map_difference(&out, &unicode, before, after, columns));
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
    check_golden("diff-same.txt");
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
        add_layer(&before, fixture_format("layers.%u", i), 0, i < 3 ? 0 : 1, 200);
    add_layer(&before, "norm", 0, 2, 8);
    add_layer(&before, "old.0", 0, 0, 50);
    add_layer(&before, "old.1", 0, 0, 50);
    drawn_finish(&before);
    drawn_tier(&after, "cuda:0", 1000);
    drawn_tier(&after, "cuda:1", 500);
    drawn_tier(&after, "cpu", 4000);
    for (unsigned i = 0; i < 6; i++)
        add_layer(&after, fixture_format("layers.%u", i), i >= 4, i < 4 ? 0 : 1, 200);
    drawn_layer(&after, "norm", 0, "why");
    drawn_tensor(&after, "norm.a", 0, 3, NATIVE, BERTH_BF16, false);
    drawn_tensor(&after, "norm.b", 2, 5, NATIVE, BERTH_BF16, false);
    add_layer(&after, "new", 1, 1, 7);
    drawn_finish(&after);
    draw_difference(&before, &after, 80);
    check_golden("diff-80.txt");
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
        add_layer(&maps[m], m == 0 ? "x.1" : "x.0", 0, m, 1);
        add_layer(&maps[m], m == 0 ? "x.0" : "x.1", 0, m, 1);
        drawn_finish(&maps[m]);
    }
    draw_difference(&maps[0], &maps[1], 80);
    check_golden("diff-shares.txt");
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
    add_layer(&before, "x.1", 0, 0, 500);
    add_layer(&before, "x.2", 1, 1, 100);
    add_layer(&before, "x.3", 0, 0, 100);
    add_layer(&after, "x.0", 0, 0, 100);
    add_layer(&after, "x.1", 0, 0, 500);
    add_layer(&after, "x.3", 0, 0, 100);
    drawn_finish(&before);
    drawn_finish(&after);
    draw_difference(&before, &after, 60);
    check_golden("diff-60.txt");
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
        add_layer(maps[i], "x.0", 1, 1, 500);
        drawn_finish(maps[i]);
    }
    draw_difference(&before, &after, 60);
    CHECK_CONTAINS(printed_take(&out), "\ncuda:0  0 B of weights, before 0 B\nbefore \n"
                                       "after  \n\ncpu  ");
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
    add_layer(&before, "a.rather.long.name.of.a.layer.that.does.not.fit", 0, 0, 900);
    add_layer(&after, "a.rather.long.name.of.a.layer.that.does.not.fit", 0, 1, 900);
    drawn_finish(&before);
    drawn_finish(&after);
    draw_difference(&before, &after, 44);
    check_golden("diff-44.txt");
}

/* ---------------------------------------------------------------- SVG and HTML */

static void
test_svg(void)
{
    draw_map map;

    drawn_dense(&map);
    begin();
    CHECK(draw_map_svg(&out, &map));
    draw_map_fini(&map);
    check_golden("dense.svg");
}

/* From the last words to the end of the picture. */
static double
space_below(const draw_map *map, uint32_t *out_texts)
{
    const char *at;
    double height = 0;
    double lowest = 0;

    begin();
    CHECK(draw_map_svg(&out, map));
    at = strstr(written(NULL), "viewBox=\"0 0 ");
    CHECK(at != NULL && sscanf(at, "viewBox=\"0 0 %*d %lf", &height) == 1);
    *out_texts = 0;
    while (at != NULL && (at = strstr(at, "<text ")) != NULL) {
        double y = 0;

        at = strstr(at, " y=\"");
        CHECK(at != NULL && sscanf(at, " y=\"%lf", &y) == 1);
        lowest = y > lowest ? y : lowest;
        ++*out_texts;
    }
    return height - lowest;
}

/* With any number of entries the legend ends above the edge, as far as with all. */
static void
test_legends(void)
{
    draw_map map;
    uint32_t before;
    double space;

    drawn_dense(&map);
    space = space_below(&map, &before);
    CHECK(space > 10);
    for (uint32_t part = 0; part < 6; part++) {
        uint32_t texts;

        for (size_t i = 0; i < map.tier_count; i++) {
            berth_plan_tier *const facts = &map.tiers[i].facts;
            uint64_t *const parts[] = { &facts->slots,   &facts->cache,   &facts->activations,
                                        &facts->scratch, &facts->staging, &facts->reserve };

            *parts[part] = 0;
        }
        CHECK(draw_map_arrange(&map));
        CHECK(space_below(&map, &texts) == space);
        CHECK_EQ(texts, before - 1);
        before = texts;
    }
    draw_map_fini(&map);
}

static void
test_html(void)
{
    draw_map map;

    drawn_dense(&map);
    begin();
    CHECK(draw_map_html(&out, &map));
    draw_map_fini(&map);
    check_golden("dense.html");
}

/* 91,991 tensors in a page that a phone can hold, with each layer in it. */
static void
test_html_of_experts(void)
{
    draw_map map;
    size_t length;
    const char *text;

    drawn_experts(&map);
    begin();
    CHECK(draw_map_html(&out, &map));
    text = written(&length);
    CHECK_LT(length, 200000);
    for (unsigned i = 0; i < 61; i++) {
        CHECK_EQ(count_of(text, fixture_format("<article id=\"l%u\">", i)), 1);
        CHECK_GE(count_of(text, fixture_format("href=\"#l%u\" class=\"resident", i)), 1);
        CHECK_EQ(count_of(text, fixture_format("href=\"#l%u\" class=\"absent", i)), i >= 3);
    }
    CHECK_EQ(count_of(text, ">224 experts, 672 tensors</td><td>nf4</td><td>cpu</td>"), 58);
    CHECK_EQ(count_of(text, "<tr>"), count_of(text, "</tr>"));
    CHECK_EQ(count_of(text, "<article"), count_of(text, "</article>"));
    CHECK_EQ(count_of(text, "<a "), count_of(text, "</a>"));
    CHECK_EQ(count_of(text, "<section"), 4);
    draw_map_fini(&map);
}

#define EVIL "</script><img src=x onerror='alert(1)'>\"&"

static void
make_evil(draw_map *map)
{
    memset(map, 0, sizeof *map);
    drawn_tier(map, "<b>", 1000);
    drawn_layer(map, EVIL, 0, EVIL);
    drawn_tensor(map, EVIL ".w", 0, 5, NF4, BERTH_BF16, false);
    drawn_finish(map);
}

static void
test_names_do_no_harm(void)
{
    static const char escaped[] = "&#60;/script&#62;&#60;img src=x onerror=&#39;alert(1)"
                                  "&#39;&#62;&#34;&#38;";
    draw_map map;
    const char *text;

    make_evil(&map);
    begin();
    CHECK(draw_map_html(&out, &map));
    text = written(NULL);
    CHECK_EQ(count_of(text, "<img"), 0);
    CHECK_EQ(count_of(text, "</script>"), 1);
    CHECK_EQ(count_of(text, "<b>"), 0);
    CHECK_EQ(count_of(text, escaped), 3); /* the cell, the head, the reason */
    CHECK_EQ(count_of(text, "http:") + count_of(text, "https:") + count_of(text, "src=\""), 0);
    begin();
    CHECK(draw_map_svg(&out, &map));
    text = written(NULL);
    CHECK_EQ(count_of(text, "<img"), 0);
    CHECK_EQ(count_of(text, escaped), 2);
    CHECK_EQ(count_of(text, "http"), 1); /* its name space */
    draw_map_fini(&map);
}

/* A device without a budget, one that is empty, one expert, two layers too many. */
static void
make_corners(draw_map *map)
{
    memset(map, 0, sizeof *map);
    drawn_tier(map, "cuda:0", 0);
    drawn_tier(map, "cuda:1", 1000);
    drawn_tier(map, "cpu", 1000000);
    drawn_layer(map, "a", 0, "why");
    drawn_tensor(map, "a.experts.3.w", 2, 500, NF4, BERTH_BF16, true);
    add_layer(map, "b", 1, 2, 1000);
    for (unsigned i = 2; i < DRAW_MAX_LAYERS + 2; i++)
        add_layer(map, fixture_format("layers.%u", i), 2, 2, 10);
    snprintf(map->summary.advice, sizeof map->summary.advice, "a GiB more");
    drawn_finish(map);
}

static void
test_corners(void)
{
    draw_map map;
    const char *text;

    make_corners(&map);
    begin();
    CHECK(draw_map_html(&out, &map));
    text = written(NULL);
    CHECK_EQ(count_of(text, "class=\"edge\""), 1);
    CHECK_EQ(count_of(text, "class=\"edge\" style=\"left:50.000%\""), 1);
    CHECK_EQ(count_of(text, "<td>1 expert, 1 tensor</td>"), 1);
    CHECK_EQ(count_of(text, "<p class=\"dim\">would help: a GiB more</p>"), 1);
    CHECK_EQ(count_of(text, "\"2 layers from layers.1000 on, 20 B\""), 1);
    CHECK_EQ(count_of(text, "<article id=\"l1000\"><h3>2 layers from layers.1000 on"), 1);
    CHECK_EQ(count_of(text, "computes 1 layer<"), 2);
    begin();
    CHECK(draw_map_svg(&out, &map));
    text = written(NULL);
    CHECK_EQ(count_of(text, "class=\"edge\" d=\"M20.0 "), 1);
    CHECK_EQ(count_of(text, "class=\"edge\" d=\"M600.0 "), 1);
    CHECK_EQ(count_of(text, "class=\"edge\""), 2);
    begin(); /* nothing is in the budget: its edge comes first */
    CHECK(draw_map_bar(&out, &ascii, &map, &map.tiers[0], 10));
    text = written(NULL);
    CHECK_EQ(text[0], '|');
    CHECK_EQ(count_of(text, "|"), 1);
    CHECK_EQ(strlen(text), 10);
    draw_map_fini(&map);
}

static void
test_legend_entries(void)
{
    markup_entry entries[MARKUP_MAX_ENTRIES];
    draw_map map;
    size_t count;

    drawn_dense(&map);
    count = markup_entries(&map, 1, 2, entries);
    T_REQUIRE(CHECK_EQ(count, 9));
    CHECK_STR(entries[0].label, "BF16");
    CHECK_EQ(entries[0].bytes, 501 * MIB);
    CHECK_STR(entries[1].label, "nf4");
    CHECK_EQ(entries[1].bytes, 600 * MIB);
    CHECK_STR(entries[2].label, "slots for streamed layers");
    CHECK_EQ(entries[2].cell.layer, BERTH_NO_INDEX);
    CHECK_STR(entries[7].label, "free");
    CHECK_STR(entries[8].label, "nf4, streamed to here");
    CHECK_EQ(entries[8].bytes, 400 * MIB);
    CHECK_EQ(markup_entries(&map, 0, 3, entries), 11);
    CHECK_EQ(markup_entries(&map, 2, 2, entries), 0);
    draw_map_fini(&map);
    drawn_tier(&map, "cpu", 7);
    add_layer(&map, "a", 0, 0, 7);
    drawn_finish(&map);
    CHECK_EQ(markup_entries(&map, 0, 1, entries), 1);
    CHECK_STR(entries[0].label, "F32");
    draw_map_fini(&map);
}

/* ------------------------------------------------------------------------ CSV */

static void
check_row(const char *layer, const char *tensor, const berth_berth *b, bool is_resident,
          const char *expected)
{
    const draw_row row = { layer, tensor, "cuda:0", is_resident, b };

    begin();
    draw_csv_row(&out, &row);
    CHECK_STR(written(NULL), expected);
}

static void
test_csv(void)
{
    const berth_berth b = { .offset = 256, .bytes = UINT64_C(5000000000),
                            .encoding = NF4, .dtype = BERTH_BF16 };
    const berth_berth native = { .encoding = NATIVE, .dtype = BERTH_F16 };

    const berth_berth expert = { .along = BERTH_SLICING_ROWS, .first = 3, .count = 1,
                                 .encoding = NATIVE, .dtype = BERTH_BF16 };
    const berth_berth columns = { .along = BERTH_SLICING_COLUMNS, .first = 64, .count = 64,
                                  .encoding = NATIVE, .dtype = BERTH_BF16 };

    begin();
    draw_csv_title(&out);
    CHECK_STR(written(NULL), "layer,tensor,tier,offset,bytes,encoding,resident,part\n");
    check_row("a.0", "a.0.w", &b, true, "a.0,a.0.w,cuda:0,256,5000000000,nf4,yes,\n");
    check_row("a", "x", &native, false, "a,x,cuda:0,0,0,F16,no,\n");
    check_row("a", "x,y", &native, false, "a,\"x,y\",cuda:0,0,0,F16,no,\n");
    check_row("a", "x y", &native, false, "a,\"x y\",cuda:0,0,0,F16,no,\n");
    check_row("a", "\"x\"", &native, false, "a,\"\"\"x\"\"\",cuda:0,0,0,F16,no,\n");
    check_row("=1+1", "+x", &native, false, "\"'=1+1\",\"'+x\",cuda:0,0,0,F16,no,\n");
    check_row("-1", "@x", &native, false, "\"'-1\",\"'@x\",cuda:0,0,0,F16,no,\n");
    check_row("a=1", "", &native, false, "a=1,,cuda:0,0,0,F16,no,\n");
    check_row("a\\x0a", "b\n\\", &native, false, "a\\x0a,b\\x0a\\\\,cuda:0,0,0,F16,no,\n");
    check_row("a", "x", &expert, true, "a,x,cuda:0,0,0,BF16,yes,rows 3 to 4\n");
    check_row("a", "x", &columns, true, "a,x,cuda:0,0,0,BF16,yes,columns 64 to 128\n");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_cells_of_a_full_device);
    T_RUN(test_cells_of_streamed_layers);
    T_RUN(test_cells_of_free_tiers);
    T_RUN(test_cells_are_made_anew);
    T_RUN(test_cells_are_limited);
    T_RUN(test_widths);
    T_RUN(test_widths_make_up_the_bar);
    T_RUN(test_lists_fold_experts);
    T_RUN(test_lists_know_experts);
    T_RUN(test_lists_keep_sorts_of_experts_apart);
    T_RUN(test_lists_are_limited);
    T_RUN(test_lists_end_before_experts);
    T_RUN(test_lists_shorten_names);
    T_RUN(test_lists_only_where_wanted);
    T_RUN(test_pieces);
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
    T_RUN(test_svg);
    T_RUN(test_legends);
    T_RUN(test_html);
    T_RUN(test_html_of_experts);
    T_RUN(test_names_do_no_harm);
    T_RUN(test_corners);
    T_RUN(test_legend_entries);
    T_RUN(test_csv);
    T_MAIN_END;
}
