/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw_html.c - a map as one page that refers to nothing outside itself.
 *
 * All that can be shown is in the page as HTML; without its script a link to a part
 * still shows it. Names come from files: they are written by markup_text() alone,
 * and never into the script or the style.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw_markup.h"

#define BAR_UNITS 100000 /* thousandths of a percent */
#define LEAST_UNITS 100

static const char style[] =
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0 auto;padding:20px;max-width:1360px;background:var(--paper);"
    "color:var(--ink);font:15px/1.45 system-ui,-apple-system,'Segoe UI','DejaVu Sans',"
    "sans-serif}\n"
    "h1{font-size:20px;margin:0 0 4px;line-height:1.25}\n"
    "h2{font-size:15px;margin:0}h3{font-size:15px;margin:0 0 6px;overflow-wrap:anywhere}\n"
    "p{margin:0 0 6px}p:empty{display:none}.dim{color:var(--dim)}"
    ".good{color:var(--good)}.bad{color:var(--bad)}\n"
    "main{display:grid;grid-template-columns:minmax(0,1fr);gap:24px;margin-top:18px}\n"
    ".tier{margin-bottom:24px}\n"
    ".head{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;margin-bottom:6px}\n"
    ".head b{margin-left:auto;font-weight:600}\n"
    ".bar{position:relative;height:44px;border-radius:6px;background:var(--card);"
    "overflow:hidden;touch-action:pan-y}\n"
    ".bar::after{content:'';position:absolute;inset:0;border-radius:6px;z-index:1;"
    "box-shadow:inset 0 0 0 1px var(--line);pointer-events:none}\n"
    ".bar a{position:absolute;top:0;bottom:0;background-color:var(--c);outline:0;"
    "-webkit-tap-highlight-color:transparent}\n"
    ".bar a.odd{background-image:linear-gradient(rgba(255,255,255,.16),"
    "rgba(255,255,255,.16))}\n"
    ".bar a.lent{opacity:.72}\n"
    ".bar a.absent,i.absent{background:repeating-linear-gradient(45deg,var(--c) 0 3px,"
    "transparent 3px 8px)}\n"
    ".bar a.absent{border-bottom:3px solid var(--c)}\n"
    ".bar a.now{z-index:2;opacity:1;box-shadow:inset 0 0 0 2px var(--ink)}\n"
    ".bar a:focus-visible{z-index:3;box-shadow:inset 0 0 0 3px var(--ink)}\n"
    ".bar .edge{position:absolute;top:0;bottom:0;width:2px;margin-left:-1px;"
    "background:var(--ink);z-index:1}\n"
    ".bar a.cut{border-right:3px dotted var(--dim)}\n"
    "ul{list-style:none;margin:8px 0 0;padding:0;display:flex;flex-wrap:wrap;"
    "gap:2px 16px;font-size:13px}\n"
    "i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;"
    "background:var(--c);box-shadow:inset 0 0 0 1px var(--line)}\n"
    "aside{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:14px 16px}\n"
    "article{display:none}article:target,article.on{display:block}\n"
    "aside.script article:target:not(.on){display:none}\n"
    "aside.some .hint{display:none}\n"
    "table{width:100%;border-collapse:collapse;font-size:13px}\n"
    "th{text-align:left;font-weight:400;color:var(--dim)}\n"
    "td,th{padding:3px 8px 3px 0;vertical-align:top;border-bottom:1px solid var(--line)}\n"
    "td:first-child{overflow-wrap:anywhere}\n"
    "td:last-child,th:last-child{text-align:right;padding-right:0;white-space:nowrap}\n"
    "nav{display:none;float:right;gap:4px;margin:-4px -6px 4px 8px}\n"
    "aside.some nav{display:flex}\n"
    "button{font:inherit;min-width:36px;min-height:36px;border:1px solid var(--line);"
    "border-radius:6px;background:var(--paper);color:var(--ink);cursor:pointer;"
    "-webkit-tap-highlight-color:transparent}\n"
    "@media(min-width:900px){main{grid-template-columns:minmax(0,1fr) 400px}"
    "aside{position:sticky;top:20px;align-self:start;max-height:calc(100vh - 40px);"
    "overflow:auto}}\n"
    "@media(max-width:599px){.head span{order:1;width:100%}}\n"
    "@media(max-width:899px){body{padding:14px}"
    "aside.script{position:fixed;left:0;right:0;bottom:0;border-radius:12px 12px 0 0;"
    "border-width:1px 0 0;max-height:46vh;overflow:auto;box-shadow:0 -4px 18px "
    "rgba(0,0,0,.25);z-index:9}\n"
    "body{padding-bottom:50vh}}\n";

static const char script[] =
    "(function(){'use strict';\n"
    "var d=document,panel=d.querySelector('aside'),cell=null,pinned=false;\n"
    "panel.classList.add('script');\n"
    "function mark(link,is){d.querySelectorAll('.bar a[href=\"'+link.getAttribute('href')"
    "+'\"]').forEach(function(a){a.classList.toggle('now',is)})}\n"
    "function text(link){return d.getElementById(link.getAttribute('href').slice(1))}\n"
    "function clear(){if(cell){mark(cell,false);text(cell).classList.remove('on')}cell=null;"
    "pinned=false;panel.classList.remove('some')}\n"
    "function show(link){if(link===cell)return;var p=pinned;clear();pinned=p;cell=link;"
    "mark(link,true);text(link).classList.add('on');panel.classList.add('some');"
    "panel.scrollTop=0}\n"
    "function uncover(bar){var b=bar.getBoundingClientRect().bottom+10,"
    "p=panel.getBoundingClientRect();if(getComputedStyle(panel).position==='fixed'&&b>p.top)"
    "scrollBy(0,b-p.top)}\n"
    "function near(step){var a=Array.prototype.slice.call(cell.parentNode.querySelectorAll"
    "('a'));var to=a[a.indexOf(cell)+step];if(to){show(to);pinned=true;"
    "uncover(to.parentNode)}}\n"
    "d.querySelectorAll('.bar').forEach(function(bar){\n"
    "function at(e){var x=d.elementFromPoint(e.clientX,e.clientY);"
    "return x&&x.closest?x.closest('.bar a'):null}\n"
    "bar.addEventListener('pointermove',function(e){var a=at(e);"
    "if(a&&(!pinned||e.pointerType==='touch'))show(a)});\n"
    "bar.addEventListener('click',function(e){e.preventDefault();var a=at(e)||"
    "e.target.closest('a');if(!a)return;if(a===cell&&pinned){clear()}else{show(a);"
    "pinned=true;uncover(bar)}});\n"
    "bar.addEventListener('focusin',function(e){if(e.target.matches(':focus-visible'))"
    "show(e.target)});\n"
    "bar.addEventListener('keydown',function(e){var a=e.target,to=e.key==='ArrowRight'?"
    "a.nextElementSibling:e.key==='ArrowLeft'?a.previousElementSibling:null;"
    "while(to&&to.tagName!=='A')to=e.key==='ArrowRight'?to.nextElementSibling:"
    "to.previousElementSibling;if(to){e.preventDefault();a.tabIndex=-1;to.tabIndex=0;"
    "to.focus()}});\n"
    "});\n"
    "d.addEventListener('keydown',function(e){if(e.key==='Escape')clear()});\n"
    "d.getElementById('before').onclick=function(){near(-1)};\n"
    "d.getElementById('after').onclick=function(){near(1)};\n"
    "d.getElementById('close').onclick=clear;\n"
    "})();\n";

/* ---------------------------------------------------------------------- bars */

/* Layers beyond the last that has a list of its own share one text. */
static void
write_target(output *out, const draw_cell *cell, size_t tier)
{
    if (cell->layer != BERTH_NO_INDEX)
        output_format(out, "l%u",
                      cell->layer < DRAW_MAX_LAYERS ? cell->layer : DRAW_MAX_LAYERS);
    else
        output_format(out, "t%zu-%d", tier, (int)cell->kind);
}

static void
write_cell(output *out, const draw_map *map, size_t tier, const draw_cell *cell,
           const uint32_t *ends, size_t number)
{
    const uint32_t begin = number > 0 ? ends[number - 1] : 0;
    const uint32_t width = ends[number] - begin;
    const bool is_odd = cell->layer != BERTH_NO_INDEX && number % 2 != 0;
    const bool is_cut = cell->kind == DRAW_FREE && map->tiers[tier].is_cut;
    char text[DRAW_TEXT_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];

    output_text(out, "<a href=\"#");
    write_target(out, cell, tier);
    output_format(out, "\" class=\"%s%s%s\" tabindex=\"%d\" style=\"--c:var(--%s);"
                  "left:%u.%03u%%;width:%u.%03u%%\" aria-label=\"",
                  markup_class(cell), is_odd ? " odd" : "", is_cut ? " cut" : "",
                  number == 0 ? 0 : -1, markup_colour(cell), begin / 1000, begin % 1000,
                  width / 1000, width % 1000);
    markup_text(out, markup_cell_text(map, cell, text));
    output_format(out, ", %s\"></a>\n", berth_size_format(cell->bytes, size));
}

static bool
write_bar(output *out, const draw_map *map, size_t number)
{
    const draw_tier *const tier = &map->tiers[number];
    const size_t in_budget = tier->cell_count - tier->absent_cells;
    uint32_t *const ends = calloc(tier->cell_count + 1, sizeof *ends);

    if (ends == NULL)
        return false;
    draw_map_ends(map, tier, BAR_UNITS, LEAST_UNITS, ends);
    output_text(out, "<div class=\"bar\">\n");
    for (size_t i = 0; i < tier->cell_count; i++) {
        if (i == in_budget && i > 0)
            output_format(out, "<span class=\"edge\" style=\"left:%u.%03u%%\"></span>\n",
                          ends[i - 1] / 1000, ends[i - 1] % 1000);
        write_cell(out, map, number, &map->cells[tier->first_cell + i], ends, i);
    }
    output_text(out, "</div>\n");
    free(ends);
    return true;
}

static void
write_entries(output *out, const draw_map *map, size_t number)
{
    const draw_tier *const tier = &map->tiers[number];
    markup_entry entries[MARKUP_MAX_ENTRIES];
    const size_t count = markup_entries(map, number, number + 1, entries);
    char size[BERTH_SIZE_CAPACITY];

    output_text(out, "<ul>\n");
    for (size_t i = 0; i < count; i++) {
        const draw_cell *const cell = &entries[i].cell;
        const uint64_t bytes = cell->kind == DRAW_FREE ? tier->facts.free : entries[i].bytes;

        output_format(out, "<li><i class=\"%s\" style=\"--c:var(--%s)\"></i>",
                      markup_class(cell), markup_colour(cell));
        markup_text(out, entries[i].label);
        if (bytes != UINT64_MAX)
            output_format(out, " <span class=\"dim\">%s</span>", berth_size_format(bytes, size));
        output_text(out, "</li>\n");
    }
    output_text(out, "</ul>\n");
}

static bool
write_tier(output *out, const draw_map *map, size_t number)
{
    const draw_tier *const tier = &map->tiers[number];
    char text[DRAW_TEXT_CAPACITY];

    output_text(out, "<section class=\"tier\"><div class=\"head\"><h2>");
    markup_text(out, tier->facts.name);
    output_text(out, "</h2><span class=\"dim\">");
    markup_text(out, draw_use_text(tier, text));
    if (tier->facts.layers > 0)
        output_format(out, ", computes %u layer%s", tier->facts.layers,
                      text_plural(tier->facts.layers));
    output_format(out, "</span><b class=\"%s\">", tier->absent > 0 ? "bad" : "good");
    markup_text(out, draw_verdict_text(tier, text));
    output_text(out, "</b></div>\n");
    if (!write_bar(out, map, number))
        return false;
    write_entries(out, map, number);
    output_text(out, "</section>\n");
    return true;
}

/* ------------------------------------------------------------------- details */

/* A name, which may be broken behind its dots. */
static void
write_name(output *out, const char *name)
{
    char part[DRAW_TEXT_CAPACITY];

    while (*name != '\0') {
        const size_t length = strcspn(name, ".");
        const size_t n = length + (name[length] == '.');

        snprintf(part, sizeof part, "%.*s", (int)n, name);
        markup_text(out, part);
        name += n;
        output_text(out, *name != '\0' ? "<wbr>" : "");
    }
}

static void
write_line(output *out, const draw_map *map, const draw_line *line)
{
    char number[TEXT_NUMBER_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];
    const bool is_rest = line->tier == BERTH_NO_INDEX;

    output_text(out, "<tr><td>");
    if (line->name != NULL)
        write_name(out, line->name);
    else if (line->experts > 0)
        output_format(out, "%" PRIu64 " expert%s, %" PRIu64 " tensor%s", line->experts,
                      text_plural(line->experts), line->tensors,
                      text_plural(line->tensors));
    else
        output_format(out, "%s more tensor%s", text_number(line->tensors, number),
                      text_plural(line->tensors));
    output_text(out, "</td><td>");
    if (!is_rest)
        markup_text(out, draw_type_name(line->encoding, line->dtype));
    output_text(out, "</td><td>");
    if (!is_rest)
        markup_text(out, map->tiers[line->tier].facts.name);
    output_format(out, "</td><td>%s</td></tr>\n", berth_size_format(line->bytes, size));
}

static void
write_layer(output *out, const draw_map *map, uint32_t number)
{
    const draw_layer *const layer = &map->layers[number];
    char text[DRAW_TEXT_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];

    output_format(out, "<article id=\"l%u\"><h3>", number);
    markup_text(out, layer->name);
    output_text(out, "</h3>\n<p>");
    markup_text(out, layer->reason);
    output_format(out, "</p>\n<p class=\"dim\">%s, computed on ",
                  berth_size_format(layer->bytes, size));
    markup_text(out, map->tiers[layer->home].facts.name);
    output_text(out, ", kept on ");
    markup_text(out, draw_where_text(map, number, text));
    if (layer->link_bytes > 0)
        output_format(out, "; %s brought for each token",
                      berth_size_format(layer->link_bytes, size));
    output_text(out, "</p>\n<table><tr><th>tensor</th><th>type</th><th>on</th>"
                     "<th>size</th></tr>\n");
    for (size_t i = 0; i < layer->line_count; i++)
        write_line(out, map, &map->lines[layer->first_line + i]);
    output_text(out, "</table></article>\n");
}

/* Layers beyond the last that has a list of its own. */
static void
write_folded(output *out, const draw_map *map)
{
    output_format(out, "<article id=\"l%u\"><h3>%zu layers from ", DRAW_MAX_LAYERS,
                  map->layer_count - DRAW_MAX_LAYERS);
    markup_text(out, map->layers[DRAW_MAX_LAYERS].name);
    output_text(out, " on</h3><p>Too many to be listed: see --csv.</p></article>\n");
}

static void
write_part(output *out, const draw_tier *tier, size_t number, const draw_cell *cell)
{
    static const char *const meanings[DRAW_KINDS] = {
        [DRAW_SLOTS] = "Buffers that streamed layers take turns in.",
        [DRAW_CACHE] = "Keys and values of the tokens that are kept.",
        [DRAW_KEPT] = "What layers keep of a batch until they are differentiated.",
        [DRAW_TRAINING] = "What an optimizer keeps, and what its updates need.",
        [DRAW_ACTIVATIONS] = "What one layer hands to the next.",
        [DRAW_SCRATCH] = "Needed while weights are quantized, free afterwards.",
        [DRAW_STAGING] = "Pinned host memory that feeds the devices.",
        [DRAW_RESERVE] = "Kept free for the runtime and its libraries.",
        [DRAW_FREE] = "Nothing is placed here.",
    };
    const bool is_free = cell->kind == DRAW_FREE;
    const uint64_t bytes = is_free ? tier->facts.free : cell->bytes;
    char size[BERTH_SIZE_CAPACITY];

    output_format(out, "<article id=\"t%zu-%d\"><h3>", number, (int)cell->kind);
    markup_text(out, tier->facts.name);
    output_format(out, ": %s</h3>\n<p>%s</p>\n<p class=\"dim\">%s%s</p></article>\n",
                  draw_kind_name(cell->kind), meanings[cell->kind],
                  bytes == UINT64_MAX ? "no limit" : berth_size_format(bytes, size),
                  is_free && tier->is_cut ? ", not all of it drawn" : "");
}

static void
write_details(output *out, const draw_map *map)
{
    output_text(out, "<aside aria-live=\"polite\"><nav><button id=\"before\" "
                     "aria-label=\"part before\">&#8249;</button><button id=\"after\" "
                     "aria-label=\"part after\">&#8250;</button><button id=\"close\" "
                     "aria-label=\"close\">&#215;</button></nav>\n"
                     "<p class=\"hint dim\">Point at a part of a bar, or tap it: its "
                     "tensors are listed here, and why they are where they are.</p>\n");
    for (uint32_t i = 0; i < map->layer_count && i < DRAW_MAX_LAYERS; i++)
        write_layer(out, map, i);
    if (map->layer_count > DRAW_MAX_LAYERS)
        write_folded(out, map);
    for (size_t t = 0; t < map->tier_count; t++)
        for (size_t i = 0; i < map->tiers[t].cell_count; i++) {
            const draw_cell *const cell = &map->cells[map->tiers[t].first_cell + i];

            if (cell->layer == BERTH_NO_INDEX)
                write_part(out, &map->tiers[t], t, cell);
        }
    output_text(out, "</aside>\n");
}

/* ---------------------------------------------------------------------- page */

static void
write_head(output *out, const draw_map *map)
{
    char text[DRAW_TEXT_CAPACITY];

    output_text(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width,"
                     "initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                     "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                     "<title>berth map</title>\n<style>\n:root{color-scheme:light dark;");
    output_text(out, markup_light);
    output_text(out, "}\n@media(prefers-color-scheme:dark){:root{");
    output_text(out, markup_dark);
    output_text(out, "}}\n");
    output_text(out, style);
    output_text(out, "</style></head>\n<body>\n<header><h1>");
    markup_text(out, draw_title_text(map, text));
    output_text(out, "</h1>\n<p class=\"dim\">");
    markup_text(out, draw_speed_text(map, text));
    output_text(out, "</p>\n<p class=\"dim\">");
    markup_text(out, draw_advice_text(map, text));
    output_text(out, "</p></header>\n<main><div>\n");
}

bool
draw_map_html(output *out, const draw_map *map)
{
    write_head(out, map);
    for (size_t i = 0; i < map->tier_count; i++)
        if (!write_tier(out, map, i))
            return false;
    output_text(out, "</div>\n");
    write_details(out, map);
    output_text(out, "</main>\n<script>\n");
    output_text(out, script);
    output_text(out, "</script>\n</body></html>\n");
    return true;
}
