/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_draw_pages.c - pictures of plans as SVG, HTML and CSV, against what was drawn when a
 * person looked at it; see drawn.h. Names do no harm in any of them.
 */
#include <stdio.h>
#include <string.h>

#include "tests/drawn.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/draw_markup.h"

#define MIB (UINT64_C(1) << 20)
#define NF4 BERTH_ENCODING_NF4
#define NATIVE BERTH_ENCODING_NATIVE

/* ---------------------------------------------------------------- SVG and HTML */

static void
test_svg(void)
{
    draw_map map;

    drawn_dense(&map);
    drawn_begin();
    CHECK(draw_map_svg(drawn_out(), &map));
    draw_map_fini(&map);
    drawn_check_golden("dense.svg");
}

/* From the last words to the end of the picture. */
static double
space_below(const draw_map *map, uint32_t *out_texts)
{
    const char *at;
    double height = 0;
    double lowest = 0;

    drawn_begin();
    CHECK(draw_map_svg(drawn_out(), map));
    at = strstr(drawn_written(NULL), "viewBox=\"0 0 ");
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
    drawn_begin();
    CHECK(draw_map_html(drawn_out(), &map));
    draw_map_fini(&map);
    drawn_check_golden("dense.html");
}

/* 91,991 tensors in a page that a phone can hold, with each layer in it. */
static void
test_html_of_experts(void)
{
    draw_map map;
    size_t length;
    const char *text;

    drawn_experts(&map);
    drawn_begin();
    CHECK(draw_map_html(drawn_out(), &map));
    text = drawn_written(&length);
    CHECK_LT(length, 200000);
    for (unsigned i = 0; i < 61; i++) {
        CHECK_EQ(drawn_count(text, fixture_format("<article id=\"l%u\">", i)), 1);
        CHECK_GE(drawn_count(text, fixture_format("href=\"#l%u\" class=\"resident", i)), 1);
        CHECK_EQ(drawn_count(text, fixture_format("href=\"#l%u\" class=\"absent", i)), i >= 3);
    }
    CHECK_EQ(drawn_count(text, ">224 experts, 672 tensors</td><td>nf4</td><td>cpu</td>"), 58);
    CHECK_EQ(drawn_count(text, "<tr>"), drawn_count(text, "</tr>"));
    CHECK_EQ(drawn_count(text, "<article"), drawn_count(text, "</article>"));
    CHECK_EQ(drawn_count(text, "<a "), drawn_count(text, "</a>"));
    CHECK_EQ(drawn_count(text, "<section"), 4);
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
    drawn_begin();
    CHECK(draw_map_html(drawn_out(), &map));
    text = drawn_written(NULL);
    CHECK_EQ(drawn_count(text, "<img"), 0);
    CHECK_EQ(drawn_count(text, "</script>"), 1);
    CHECK_EQ(drawn_count(text, "<b>"), 0);
    CHECK_EQ(drawn_count(text, escaped), 3); /* the cell, the head, the reason */
    CHECK_EQ(drawn_count(text, "http:"), 0);
    CHECK_EQ(drawn_count(text, "https:"), 0);
    CHECK_EQ(drawn_count(text, "src=\""), 0);
    drawn_begin();
    CHECK(draw_map_svg(drawn_out(), &map));
    text = drawn_written(NULL);
    CHECK_EQ(drawn_count(text, "<img"), 0);
    CHECK_EQ(drawn_count(text, escaped), 2);
    CHECK_EQ(drawn_count(text, "http"), 1); /* its name space */
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
    drawn_plain_layer(map, "b", 1, 2, 1000);
    for (unsigned i = 2; i < DRAW_MAX_LAYERS + 2; i++)
        drawn_plain_layer(map, fixture_format("layers.%u", i), 2, 2, 10);
    snprintf(map->summary.advice, sizeof map->summary.advice, "a GiB more");
    drawn_finish(map);
}

static void
test_corners(void)
{
    draw_map map;
    const char *text;

    make_corners(&map);
    drawn_begin();
    CHECK(draw_map_html(drawn_out(), &map));
    text = drawn_written(NULL);
    CHECK_EQ(drawn_count(text, "class=\"edge\""), 1);
    CHECK_EQ(drawn_count(text, "class=\"edge\" style=\"left:50.000%\""), 1);
    CHECK_EQ(drawn_count(text, "<td>1 expert, 1 tensor</td>"), 1);
    CHECK_EQ(drawn_count(text, "<p class=\"dim\">would help: a GiB more</p>"), 1);
    CHECK_EQ(drawn_count(text, "\"2 layers from layers.1000 on, 20 B\""), 1);
    CHECK_EQ(drawn_count(text, "<article id=\"l1000\"><h3>2 layers from layers.1000 on"), 1);
    CHECK_EQ(drawn_count(text, "computes 1 layer<"), 2);
    drawn_begin();
    CHECK(draw_map_svg(drawn_out(), &map));
    text = drawn_written(NULL);
    CHECK_EQ(drawn_count(text, "class=\"edge\" d=\"M20.0 "), 1);
    CHECK_EQ(drawn_count(text, "class=\"edge\" d=\"M600.0 "), 1);
    CHECK_EQ(drawn_count(text, "class=\"edge\""), 2);
    drawn_begin(); /* nothing is in the budget: its edge comes first */
    CHECK(draw_map_bar(drawn_out(), &drawn_ascii, &map, &map.tiers[0], 10));
    text = drawn_written(NULL);
    CHECK_EQ(text[0], '|');
    CHECK_EQ(drawn_count(text, "|"), 1);
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
    drawn_plain_layer(&map, "a", 0, 0, 7);
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

    drawn_begin();
    draw_csv_row(drawn_out(), &row);
    CHECK_STR(drawn_written(NULL), expected);
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

    drawn_begin();
    draw_csv_title(drawn_out());
    CHECK_STR(drawn_written(NULL), "layer,tensor,tier,offset,bytes,encoding,resident,part\n");
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
