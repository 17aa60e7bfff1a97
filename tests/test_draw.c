/* SPDX-License-Identifier: Apache-2.0 */
/* test_draw.c - pictures of plans: cells and their widths, and what lists fold. */
#include <string.h>

#include "tests/drawn.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define NF4 BERTH_ENCODING_NF4
#define NATIVE BERTH_ENCODING_NATIVE

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
test_cells_of_free_tiers(void)
{
    draw_map map = { 0 };

    drawn_tier(&map, "cuda:0", 100);
    drawn_tier(&map, "cuda:1", 100);
    drawn_tier(&map, "cuda:2", 100);
    drawn_tier(&map, "disk", UINT64_MAX);
    drawn_tier(&map, "disk2", UINT64_MAX);
    drawn_plain_layer(&map, "a", 0, 0, 50); /* half is free: all of it is drawn */
    drawn_plain_layer(&map, "b", 1, 1, 49); /* more than that: not */
    drawn_plain_layer(&map, "c", 3, 3, 7);
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
        drawn_plain_layer(&map, fixture_format("layers.%u", i), 0, i >= DRAW_MAX_LAYERS + 300, 10);
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
    drawn_begin();
    CHECK(draw_map_html(drawn_out(), &map));
    {
        size_t length;
        const char *const text = drawn_written(&length);

        CHECK_LT(length, 2000000);
        CHECK_EQ(drawn_count(text, "<article id=\"l1000\"><h3>500 layers from layers.1000 on"), 1);
        CHECK_EQ(drawn_count(text, "\"300 layers from layers.1000 on, 2.93 KiB\""), 1);
        CHECK_EQ(drawn_count(text, "<article id=\"l"), DRAW_MAX_LAYERS + 1);
        /* Wherever they begin: every part of a bar has a text. */
        CHECK_EQ(drawn_count(text, "<a href=\"#l1000\""), 3);
        CHECK_EQ(drawn_count(text, "<a href=\"#l1300\""), 0);
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
    drawn_plain_layer(&map, "a", 0, 0, 100);
    drawn_plain_layer(&map, "b", 0, 0, 300);
    drawn_plain_layer(&map, "c", 0, 0, 600);
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
    drawn_plain_layer(&map, "a", 0, 0, 10);
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
    T_MAIN_END;
}
