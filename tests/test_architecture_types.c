/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_architecture_types.c - sub-models of other types than a class's own: what
 * their descriptions say holds where they stand.
 */
#include "quant/architecture.h"

#include <stdio.h>
#include <string.h>

#include "quant/architecture_build.h"
#include "tests/described.h"
#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* ------------------------------------------------------- sub-models of other types */

/* A class with a tower and a base model of text. */
static const char with_base[] =
    "{\"base\": \"m\", \"no_split\": [\"AL\"], \"tie_default\": false, \"tie_from\": \"t\", "
    "\"tied\": {\"h.weight\": \"m.t.e.weight\", \"m.t.x.weight\": \"m.t.e.weight\"}, "
    "\"head\": \"h\", \"last\": [\"h.weight\", \"m.t.z.weight\"], \"fp32\": [\"u\"], "
    "\"names\": [[\"t.b\", \"m.t\"], [\"v\", \"m.v\"], [\"m.t.e.old\", \"m.t.e.new\"]], "
    "\"not_linear\": [\"m.t.e.weight\", \"m.t.l.*.x.weight\"], \"tree\": [{\"n\": \"m\", \"ch\": "
    "[{\"n\": \"v\", \"sub\": \"v\", \"sub_type\": \"va\", \"ch\": [\"a\"]}, "
    "{\"n\": \"t\", \"sub\": \"t\", \"sub_type\": \"ta\", \"ch\": [\"e\", {\"n\": \"l\", "
    "\"list\": [\"AL\"], \"len\": \"t.n\"}, \"z\"]}]}, \"h\"]}";

/* One that has a model of text with its head. */
static const char with_head[] =
    "{\"base\": \"\", \"no_split\": [], \"head\": \"d.h\", \"last\": [\"d.h.weight\", null], "
    "\"tree\": [{\"n\": \"d\", \"sub\": \"t\", \"sub_type\": \"ta\", \"ch\": "
    "[{\"n\": \"a\", \"ch\": [\"e\"]}, \"h\"]}]}";

/* Classes of text by type, and a tower. */
static const char others[] =
    "\"A\": {\"model_types\": [\"ta\"], \"group\": \"causal-lm\", \"base\": \"a\", "
    "\"no_split\": [], \"tree\": [{\"n\": \"a\", \"ch\": [\"e\"]}, \"h\"]}, "

    "\"B\": {\"model_types\": [\"tb\"], \"group\": \"causal-lm\", \"base\": \"b\", "
    "\"no_split\": [\"BL\"], \"tie_default\": true, \"fp32\": [\"g\", \"w\"], "
    "\"tied\": {\"hb.weight\": \"b.e.weight\", \"b.y.weight\": \"b.e.weight\"}, "
    "\"head\": \"hb\", \"last\": [\"hb.weight\", \"b.g.weight\"], "
    "\"names\": [[\"b.l.*.x.*.w\", \"b.l.*.x.w\"], [\"b.e.older\", \"b.e.newer\"]], "
    "\"not_linear\": [\"b.e.weight\", \"b.l.*.gate.weight\"], "
    "\"dtypes\": {\"b.g.weight\": \"float32\"}, \"dims\": {\"b.r.f\": [\"d*2\"]}, "
    "\"defaults\": {\"d\": \"n+1\"}, \"unit_order\": [\"q.weight\", \"gate.weight\"], "
    "\"optional\": {\"b\": {\"order\": [\"e\", \"o\", \"g\", \"l\", \"r\"], "
    "\"only_sometimes\": [\"o\"]}}, "
    "\"tree\": [{\"n\": \"b\", \"ch\": [\"e\", \"g\", {\"n\": \"l\", \"list\": [\"BL\"], "
    "\"len\": \"n\"}, {\"n\": \"r\", \"k\": \"np\", \"b\": [[\"f\", \"float32\", [7], "
    "false]]}]}, \"hb\"]}, "

    "\"C\": {\"model_types\": [\"tc\"], \"group\": \"encoder\", \"base\": \"c\", "
    "\"no_split\": [], \"not_linear\": [\"e.weight\"], \"tree\": [\"z\", \"e\"]}}, "

    "\"towers\": {\"vb\": {\"class\": \"V\", \"no_split\": [\"VL\"], \"params\": [\"p\"], "
    "\"buffers\": [[\"s\", \"int64\", [3], false]], \"not_linear\": [\"k.weight\"], "
    "\"optional\": {\"\": {\"order\": [\"k\", \"o\", \"d\"], \"only_sometimes\": [\"o\"]}}, "
    "\"tree\": [\"k\", \"d\"]}";

/* A model of the class with these sub-models. */
static void
lay_out_others(const char *description, const char *lines, berthi_era era, model *m,
               berthi_catalogue **catalogue, berthi_architecture **out)
{
    char text[8192];
    berthi_architecture_options options;
    berth_error error;

    *out = NULL;
    snprintf(text, sizeof text, "{\"architectures\": {\"X\": %s, %s}}", description, others);
    T_REQUIRE(CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x.json",
                                               catalogue, &error), BERTH_OK));
    *m = described_read(context, lines);
    options = model_options(m, era);
    options.class_name = "X";
    options.catalogue = *catalogue;
    CHECK_EQ(berthi_architecture_create(context, &options, &m->source, out, &error),
             BERTH_OK);
    T_REQUIRE(*out != NULL);
    described_check(*out, m);
}

/* The paths of modules in registration order, those inside of blocks too. */
static void
check_order(const berthi_architecture *a, const char *paths)
{
    char found[512] = "";
    size_t length = 0;

    for (const berthi_module *at = a->root->children; at != NULL; at = berthi_module_after(at))
        length += (size_t)snprintf(found + length, sizeof found - length, " %.*s",
                                   (int)at->path_length, at->path);
    CHECK_STR(found, paths);
}

static bool
has_text(berthi_words words, const char *text)
{
    while (*words != NULL && strcmp(*words, text) != 0)
        words++;
    return *words != NULL;
}

/* All that the descriptions of the other types say holds where these stand. */
static void
test_other_types(void)
{
    static const char lines[] =
        "config {\"n\": 9, \"t\": {\"model_type\": \"tb\", \"n\": 2}, "
        "\"v\": {\"model_type\": \"vb\"}}\n"
        "BF16 4x4 h.weight\nBF16 4x4 t.b.e.weight\nBF16 4 t.b.e.older\n"
        "BF16 4 m.t.e.old\nBF16 4 t.b.g.weight\n"
        "BF16 2x4 t.b.l.0.x.0.w\nBF16 2x4 t.b.l.0.x.1.w\nBF16 4x4 t.b.l.0.gate.weight\n"
        "BF16 4x4 t.b.l.0.q.weight\nBF16 4x4 t.b.l.1.x.weight\nBF16 4x4 t.b.o.weight\n"
        "BF16 4x4 v.k.weight\nBF16 4x4 v.d.weight\nBF16 4x4 v.o.weight\nBF16 4 v.p\n";
    berthi_catalogue *catalogue;
    const berthi_parameter *p;
    berthi_architecture *a;
    char name[256];
    model m;

    lay_out_others(with_base, lines, BERTHI_ERA_HF5, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK(!a->is_approximate);
    check_order(a, " m m.v m.v.k m.v.o m.v.d m.t m.t.e m.t.o m.t.g m.t.l m.t.l.0 m.t.l.0.q "
                   "m.t.l.0.gate m.t.l.0.x m.t.l.1 m.t.l.1.x m.t.r m.t.y h");
    CHECK_STR(described_name(a, &m, "t.b.e.older", name), "m.t.e.newer");
    CHECK_STR(described_name(a, &m, "m.t.e.old", name), "m.t.e.old"); /* the usual type's */
    CHECK_STR(described_name(a, &m, "t.b.l.0.x.1.w", name), "m.t.l.0.x.w");
    CHECK_EQ(a->parameter_of[model_position(&m, "t.b.l.0.x.1.w")]->piece_count, 2);
    CHECK(!a->parameter_of[model_position(&m, "t.b.e.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "t.b.l.0.gate.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "t.b.l.0.q.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "t.b.l.1.x.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "v.k.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "v.d.weight")]->is_linear);
    CHECK_EQ(a->parameter_of[model_position(&m, "t.b.g.weight")]->dtype, BERTH_F32);
    p = described_find(a, "m.t.r.f");
    if (CHECK(p != NULL))
        CHECK_EQ(p->elements, 6);
    p = described_find(a, "m.v.s");
    if (CHECK(p != NULL))
        CHECK_EQ(p->elements, 3);
    CHECK(berthi_module_block(described_find(a, "m.t.l.1.x.weight")->module)->is_never_split);
    CHECK(has_text(a->fp32, "u") && has_text(a->fp32, "g") && has_text(a->fp32, "w"));
    CHECK_STR(a->head, "h");
    CHECK_STR(a->last_name, "h.weight");
    CHECK_EQ(a->tie_count, 2); /* by the default of the type that is there */
    CHECK(described_find(a, "h.weight")->tie == described_find(a, "m.t.e.weight"));
    CHECK(described_find(a, "m.t.y.weight")->tie == described_find(a, "m.t.e.weight"));
    CHECK(described_find(a, "m.t.x.weight") == NULL);
    described_end(context, &m, catalogue, a);
    lay_out_others(with_base, lines, BERTHI_ERA_HF4, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK_STR(a->last_name, "m.t.g.weight");
    described_end(context, &m, catalogue, a);
}

/* Not tied, where the part says so; as many layers as that says. */
static void
test_other_settings(void)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    model m;

    lay_out_others(
        with_base,
        "config {\"n\": 9, \"t\": {\"model_type\": \"tb\", \"n\": 2, "
        "\"tie_word_embeddings\": false}}\nBF16 4x4 h.weight\nBF16 4x4 m.t.e.weight\n",
        BERTHI_ERA_HF5, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK_EQ(a->tie_count, 0);
    check_order(a, " m m.t m.t.e m.t.l m.t.l.0 m.t.l.1 m.t.r h");
    described_end(context, &m, catalogue, a);
}

/* As a class with its head; of a group of base models; of a type that nobody describes. */
static void
test_other_kinds(void)
{
    static const struct {
        const char *description;
        const char *lines;
        const char *paths;
        const char *head;
        const char *last;
        uint32_t ties;
        bool is_approximate;
    } cases[] = {
        { with_head, "config {\"t\": {\"model_type\": \"tb\", \"n\": 1}}\n"
          "BF16 4x4 d.b.e.weight\nBF16 4x4 d.b.l.0.gate.weight\nBF16 4x4 d.hb.weight\n",
          " d d.b d.b.e d.b.l d.b.l.0 d.b.l.0.gate d.b.r d.b.y d.hb", "d.hb", "d.hb.weight", 2,
          false },
        { with_head, "config {\"t\": {\"model_type\": \"tc\"}}\n"
          "BF16 4x4 d.e.weight\nBF16 4x4 d.z.weight\n",
          " d d.z d.e", "", "d.e.weight", 0, false },
        { with_base, "config {\"t\": {\"model_type\": \"tc\"}}\n"
          "BF16 4x4 m.t.e.weight\nBF16 4x4 m.t.z.weight\nBF16 4x4 h.weight\n",
          " m m.t m.t.z m.t.e h", "h", "h.weight", 0, false },
        { with_base, "config {\"t\": {\"model_type\": \"td\"}}\n"
          "BF16 4x4 m.t.e.weight\nBF16 4x4 m.t.q.weight\nBF16 4x4 h.weight\n",
          " m m.t m.t.e m.t.l m.t.q h", "h", "h.weight", 0, true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        model m;

        lay_out_others(cases[i].description, cases[i].lines, BERTHI_ERA_HF5, &m, &catalogue,
                       &a);
        T_REQUIRE(a != NULL);
        check_order(a, cases[i].paths);
        CHECK_STR(a->head, cases[i].head);
        CHECK_STR(a->last_name, cases[i].last);
        CHECK_EQ(a->tie_count, cases[i].ties);
        CHECK_EQ(a->is_approximate, cases[i].is_approximate);
        described_end(context, &m, catalogue, a);
    }
}

static void
test_renames(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"n\", \"ch\": [\"x\"]}], "
        "\"names\": [[\"a\", \"n.x\"], [\"a.*.c\", \"n.*.d.*.e\"], [\"a.*.c.f\", \"g\"], "
        "[\"b*\", \"h\"]]}";
    static const char *const expected[][2] = {
        { "a", "n.x" },           { "a.q", "n.x.q" },      { "ab.q", "ab.q" },
        { "a.7.c", "n.7.d.0.e" }, { "a.12.c.w", "n.12.d.0.e.w" },
        { "a.12.cc", "n.x.12.cc" }, { "a.1.c.f.w", "g.w" }, { "b5.k", "h.k" },
        { "bx.k", "bx.k" },
    };
    char lines[1024] = "config {}\n";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    char name[256];
    model m;

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        strcat(lines, "BF16 4 ");
        strcat(lines, expected[i][0]);
        strcat(lines, "\n");
    }
    T_REQUIRE(CHECK_EQ(described_lay_out(context, description, lines,
                                         &m, &catalogue, &a, &error), BERTH_OK));
    described_check(a, &m);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK_STR(described_name(a, &m, expected[i][0], name), expected[i][1]);
    described_end(context, &m, catalogue, a);
}

/* A child that a flag of config.json switches on or off. */
static void
test_flags(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"a\", \"ch\": [\"b\", "
        "{\"n\": \"on\", \"k\": \"0\"}]}], \"optional\": {\"a\": {\"order\": [\"off\", "
        "\"on\", \"b\"], \"only_sometimes\": [\"off\", \"on\"], \"when\": {\"on\": "
        "\"f\", \"off\": \"!f\"}}}}";
    static const struct {
        const char *lines;
        const char *children; /* of "a", in order */
    } cases[] = {
        { "config {\"f\": true}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": 1}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": false}\nBF16 4 a.b.weight\n", "off b" },
        { "config {\"f\": 0}\nBF16 4 a.b.weight\n", "off b" },
        { "config {}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": true}\nBF16 4 a.b.weight\nBF16 4 a.off.weight\n", "off on b" },
        { "config {\"f\": false}\nBF16 4 a.b.weight\nBF16 4 a.on.weight\n", "off on b" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        char children[64] = "";
        berth_error error;
        model m;

        T_REQUIRE(CHECK_EQ(described_lay_out(context, description, cases[i].lines,
                                             &m, &catalogue, &a, &error), BERTH_OK));
        T_REQUIRE(CHECK(a->root->children != NULL));
        for (const berthi_module *at = a->root->children->children; at != NULL; at = at->next)
            snprintf(children + strlen(children), sizeof children - strlen(children), "%s%.*s",
                     children[0] != '\0' ? " " : "", (int)at->name_length, at->name);
        if (!CHECK_STR(children, cases[i].children))
            T_NOTE("%s", cases[i].lines);
        described_end(context, &m, catalogue, a);
    }
}

/* Kinds of elements by their marks: class and buffers. */
static void
test_kinds(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [\"B\"], \"tree\": [{\"n\": \"l\", \"list\": "
        "[\"A\", \"B\", \"C\"], \"len\": \"n\", \"marks\": [null, \"x.*.w\", \"y.w\"], "
        "\"ub_kinds\": [[\"y.w\", [[\"t\", \"float32\", [3], false]]], [null, "
        "[[\"t\", \"bool\", [5], false]]]]}]}";
    static const char *const classes[] = { "A", "B", "C" };
    static const uint64_t sizes[] = { 5, 5, 3 };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    const berthi_module *at;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(described_lay_out(context, description,
                                         "config {}\nBF16 4 l.0.z.w\nBF16 4 l.1.x.7.w\n"
                                         "BF16 4 l.1.y.ww\nBF16 4 l.2.y.w\n",
                                         &m, &catalogue, &a, &error), BERTH_OK));
    described_check(a, &m);
    at = a->root->children->children;
    for (size_t i = 0; i < 3; i++, at = at->next) {
        T_REQUIRE(CHECK(at != NULL && at->buffers != NULL));
        CHECK_STR(at->class_name, classes[i]);
        CHECK_EQ(at->is_never_split, i == 1);
        CHECK_EQ(at->buffers->elements, sizes[i]);
        CHECK_EQ(at->buffers->dtype, i == 2 ? BERTH_F32 : BERTH_BOOL);
    }
    CHECK(at == NULL);
    described_end(context, &m, catalogue, a);
    /* Without marks: by the sequence, then the first one. */
    T_REQUIRE(CHECK_EQ(described_lay_out(context,
                                         "{\"tree\": [{\"n\": \"l\", \"list\": "
                                         "[\"A\", \"B\"], \"len\": 3, \"seq\": [1, 0]}]}",
                                         "config {}\n", &m, &catalogue, &a, &error),
                       BERTH_OK));
    at = a->root->children->children;
    CHECK_STR(at->class_name, "B");
    CHECK_STR(at->next->class_name, "A");
    CHECK_STR(at->next->next->class_name, "A");
    described_end(context, &m, catalogue, a);
}

/* How much of a name a pattern takes; all of the pattern must be there. */
static void
test_match(void)
{
    static const struct {
        const char *pattern;
        const char *name;
        uint64_t length; /* UINT64_MAX: no match */
    } cases[] = {
        { "", "", 0 },           { "", "a", 0 },
        { "a.*.b", "a.1.b", 5 }, { "a.*.b", "a.123.b.c", 7 },
        { "a.*", "a.12", 4 },    { "a.*.b", "a.1", UINT64_MAX },
        { "a.*", "a.", UINT64_MAX }, { "a", "", UINT64_MAX },
        { "a.*", "a.x", UINT64_MAX }, { "a.*.b", "a.1.c", UINT64_MAX },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!CHECK_EQ(berthi_build_match(cases[i].pattern, cases[i].name,
                                         strlen(cases[i].name)), cases[i].length))
            T_NOTE("%s: %s", cases[i].pattern, cases[i].name);
}

/* Sizes of buffers in elements of a list stand once: a component of digits is a star. */
static void
test_star_sizes(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], "
        "\"tree\": [{\"n\": \"l\", \"list\": [\"A\"], \"len\": 12, "
        "\"ub\": [[\"inv_freq\", \"float32\", [7], false], "
        "[\"2b\", \"float32\", [7], false], "
        "[\"original_inv_freq\", \"float32\", [7], false]]}], "
        "\"dims\": {\"l.*.inv_freq\": [\"n\"], \"l.*.2b\": [\"n+1\"], \"l.*.*\": [\"n+2\"]}}";
    static const struct {
        const char *name;
        uint64_t elements;
    } buffers[] = {
        { "l.0.inv_freq", 5 }, { "l.9.inv_freq", 5 }, { "l.11.inv_freq", 5 }, { "l.11.2b", 6 },
        { "l.10.original_inv_freq", 5 }, /* an unchanged copy is as large as the table itself */
    };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(described_lay_out(context, description, "config {\"n\": 5}\n",
                                         &m, &catalogue, &a, &error), BERTH_OK));
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        const char *const name = buffers[i].name;
        const berthi_parameter *const p = berthi_architecture_find(a, name, strlen(name));

        if (!CHECK(p != NULL) || !CHECK_EQ(p->elements, buffers[i].elements))
            T_NOTE("%s", name);
    }
    described_end(context, &m, catalogue, a);
}

/* Who says that the head is tied: the top level, else the sub-model that is named. */
static void
test_tie_flags(void)
{
    static const struct {
        const char *from;
        const char *config;
        uint32_t ties;
    } cases[] = {
        { "", "{}", 0 },
        { "", "{\"tie_word_embeddings\": true}", 1 },
        { "", "{\"text_config\": {\"tie_word_embeddings\": true}}", 0 },
        { ", \"tie_from\": \"text_config\"", "{}", 0 },
        { ", \"tie_from\": \"text_config\"",
          "{\"text_config\": {\"tie_word_embeddings\": true}}", 1 },
        { ", \"tie_from\": \"text_config\"",
          "{\"vision_config\": {\"tie_word_embeddings\": true}}", 0 },
        { ", \"tie_from\": \"text_config\"",
          "{\"tie_word_embeddings\": false, "
          "\"text_config\": {\"tie_word_embeddings\": true}}", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        berth_error error;
        char description[512];
        char lines[512];
        model m;

        snprintf(description, sizeof description,
                 "{\"base\": \"\", \"no_split\": [], \"tie_default\": false, \"tree\": [], "
                 "\"tied\": {\"head.weight\": \"embed.weight\"}%s}", cases[i].from);
        snprintf(lines, sizeof lines, "config %s\nBF16 4x4 embed.weight\n", cases[i].config);
        T_REQUIRE(CHECK_EQ(described_lay_out(context, description, lines,
                                             &m, &catalogue, &a, &error), BERTH_OK));
        if (!CHECK_EQ(a->tie_count, cases[i].ties))
            T_NOTE("%s%s", cases[i].config, cases[i].from);
        described_end(context, &m, catalogue, a);
    }
}

/* Ties over indices: all alike to the lowest number; each to that of its number. */
static void
test_star_ties(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tie_default\": true, \"tree\": [], \"tied\": "
        "{\"m.*.s.*.w\": \"m.*.s.*.w\", \"t.*.x.*.v\": \"m.*.s.*.v\"}}";
    static const char lines[] =
        "config {}\nBF16 4x4 m.10.s.1.w\nBF16 4x4 m.9.s.11.w\nBF16 4x4 m.9.s.2.w\n"
        "BF16 4x4 m.10.s.0.w\nBF16 4x4 m.3.s.45.v\n";
    static const char *const tied[] = { "m.10.s.1.w", "m.9.s.11.w", "m.10.s.0.w" };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    const berthi_parameter *p;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(described_lay_out(context, description, lines,
                                         &m, &catalogue, &a, &error), BERTH_OK));
    described_check(a, &m);
    CHECK_EQ(a->tie_count, 4);
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
        p = berthi_architecture_find(a, tied[i], strlen(tied[i]));
        T_REQUIRE(CHECK(p != NULL && p->tie != NULL));
        CHECK(p->tie == a->parameter_of[2]); /* m.9.s.2.w */
    }
    CHECK(a->parameter_of[2]->tie == NULL);
    CHECK(a->parameter_of[2]->is_tie_source);
    p = berthi_architecture_find(a, "t.3.x.45.v", 10);
    T_REQUIRE(CHECK(p != NULL));
    CHECK(p->tie == a->parameter_of[4]);
    CHECK_EQ(p->elements, 16);
    CHECK(!berthi_architecture_find(a, "m.3.s.45.v", 10)->is_buffer);
    described_end(context, &m, catalogue, a);
}

/* Layers from 0 to `layers` that share what those from 0 to `copies` hold `each` of. */
static berth_status
lay_out_shared(uint32_t layers, uint32_t copies, uint32_t each, model *m,
               berthi_catalogue **catalogue, berthi_architecture **a, berth_error *error)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tie_default\": true, \"tree\": [], \"tied\": "
        "{\"m.*.s.*.w\": \"m.*.s.*.w\"}}";
    char lines[8192] = "config {}\n";
    size_t length = strlen(lines);

    for (uint32_t i = 0; i < layers; i++)
        length += (size_t)snprintf(lines + length, sizeof lines - length,
                                   "BF16 4x4 m.%u.linear.weight\n", i);
    for (uint32_t i = 0; i < copies * each; i++)
        length += (size_t)snprintf(lines + length, sizeof lines - length,
                                   "BF16 4x4 m.%u.s.%u.w\n", i / each, i % each);
    return described_lay_out(context, description, lines, m, catalogue, a, error);
}

/* Each of what many layers share is a name for each of them: no model has so many. */
static void
test_too_many_ties(void)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    CHECK_EQ(lay_out_shared(80, 1, 80, &m, &catalogue, &a, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_ARCHITECTURE);
    CHECK_EQ(error.actual, 80 * 79 + 1); /* with the line itself */
    described_end(context, &m, catalogue, a);
}

/* A file that has all copies of what is shared, though those of one layer were enough. */
static void
test_ties_of_all_copies(void)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    const berthi_parameter *p;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(lay_out_shared(40, 40, 3, &m, &catalogue, &a, &error), BERTH_OK));
    CHECK_EQ(a->tie_count, 39 * 3);
    p = berthi_architecture_find(a, "m.39.s.2.w", 10);
    T_REQUIRE(CHECK(p != NULL));
    CHECK(p->tie == berthi_architecture_find(a, "m.0.s.2.w", 9));
    described_end(context, &m, catalogue, a);
}

/* The last parameter by a pattern: the highest numbers, and a bias where there is one. */
static void
test_last(void)
{
    static const struct {
        const char *last;
        const char *expected;
    } cases[] = {
        { "\"l.*.b.*.w\"", "l.10.b.9.w" },
        { "\"h.weight\"", "h.bias" },
        { "\"l.*.nothing\"", "l.*.nothing" },
        { "\"k.weight\"", "k.weight" },
        { "null", "h.weight" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char description[512];
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        berth_error error;
        model m;

        snprintf(description, sizeof description,
                 "{\"base\": \"\", \"tree\": [{\"n\": \"l\", \"list\": [\"A\"], "
                 "\"len\": 1}, \"k\", \"h\"], \"last\": [%s, null]}", cases[i].last);
        T_REQUIRE(CHECK_EQ(described_lay_out(context, description,
                                             "config {}\nBF16 4 l.9.b.10.w\n"
                                             "BF16 4 l.10.b.9.w\nBF16 4 l.10.b.3.w\n"
                                             "BF16 4 h.weight\nBF16 4 h.bias\n"
                                             "BF16 4 k.weight\n",
                                             &m, &catalogue, &a, &error), BERTH_OK));
        CHECK_STR(a->last_name, cases[i].expected);
        described_end(context, &m, catalogue, a);
    }
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_other_types);
    T_RUN(test_other_settings);
    T_RUN(test_other_kinds);
    T_RUN(test_renames);
    T_RUN(test_flags);
    T_RUN(test_kinds);
    T_RUN(test_match);
    T_RUN(test_star_sizes);
    T_RUN(test_tie_flags);
    T_RUN(test_star_ties);
    T_RUN(test_too_many_ties);
    T_RUN(test_ties_of_all_copies);
    T_RUN(test_last);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
