/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_architecture.c - models laid out: against trees that the executable
 * description of architectures.json made (tests/data/models/trees.txt), every
 * class there is, and small descriptions of our own.
 */
#include "quant/architecture.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/described.h"
#include "tests/fault.h"
#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* ----------------------------------------------------------------------- trees */

typedef struct report {
    char *lines[4096];
    uint32_t count;
} report;

__attribute__((format(printf, 2, 3))) static void
say(report *r, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    T_REQUIRE(CHECK_LT(r->count, 4096));
    r->lines[r->count] = malloc(strlen(line) + 1);
    T_REQUIRE(CHECK(r->lines[r->count] != NULL));
    strcpy(r->lines[r->count++], line);
}

static void
end_report(report *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->lines[i]);
    r->count = 0;
}

static const char *
word_or_dash(const char *text)
{
    return *text != '\0' ? text : "-";
}

/* In 4.x a tied parameter is its source: whether it is linear means nothing. */
static void
report_tensor(report *r, const berthi_architecture *a, const berthi_parameter *p)
{
    const bool is_shared = p->tie != NULL;

    say(r, "%c %.*s %s %" PRIu64 " %s %s%.*s", p->is_buffer ? 'B' : 'P',
        (int)p->name_length, p->name, berthi_format_torch_name(p->dtype), p->elements,
        is_shared && a->era == BERTHI_ERA_HF4 ? "x" : p->is_linear ? "1" : "0",
        is_shared ? "tie:" : "-", is_shared ? (int)p->tie->name_length : 0,
        is_shared ? p->tie->name : "");
}

static int
compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Modules as they are registered, then everything else sorted. */
static void
report_architecture(report *r, const berthi_architecture *a)
{
    uint32_t modules;

    r->count = 0;
    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at))
        if (at->kind != BERTHI_MODULE_INNER
            && (at->class_name == NULL || strcmp(at->class_name, "?") != 0))
            say(r, "M %.*s %s %d", at->path_length > 0 ? (int)at->path_length : 1,
                at->path_length > 0 ? at->path : "-",
                at->class_name != NULL ? at->class_name : "-", at->is_never_split);
    modules = r->count;
    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at)) {
        for (const berthi_parameter *p = at->parameters; p != NULL; p = p->next)
            report_tensor(r, a, p);
        for (const berthi_parameter *p = at->buffers; p != NULL; p = p->next)
            report_tensor(r, a, p);
    }
    for (uint32_t i = 0; i < a->tie_count; i++)
        say(r, "T %s %s", a->ties[i].target, a->ties[i].source);
    say(r, "H %s", word_or_dash(a->head));
    say(r, "L %s", word_or_dash(a->last_name));
    qsort(r->lines + modules, r->count - modules, sizeof *r->lines, compare_lines);
}

/* The first line of the expectations is the era; the rest as reported, sorted alike. */
static void
check_tree(const model *m)
{
    static report r;
    berthi_architecture *a;
    berthi_era era = BERTHI_ERA_HF5;
    uint32_t modules = 1;

    T_REQUIRE(m->line_count > 1 && strncmp(m->lines[0], "era ", 4) == 0);
    CHECK(berthi_era_can_parse(m->lines[0] + 4, &era));
    while (modules < m->line_count && m->lines[modules][0] == 'M')
        modules++;
    qsort(m->lines + modules, m->line_count - modules, sizeof *m->lines, compare_lines);
    a = model_architecture(context, m, era);
    described_check(a, m);
    CHECK(a->is_named);
    report_architecture(&r, a);
    CHECK_EQ(r.count, m->line_count - 1);
    for (uint32_t i = 0; i < r.count && i + 1 < m->line_count; i++)
        if (!CHECK_STR(r.lines[i], m->lines[i + 1])) {
            T_NOTE("%s %s", m->class_name, m->lines[0]);
            break;
        }
    end_report(&r);
    berthi_architecture_destroy(a);
}

static void
test_trees(void)
{
    char *const text = model_file("trees.txt");
    const char *at = text;
    uint32_t trees = 0;
    model m;

    while (model_read(context, &at, &m)) {
        check_tree(&m);
        model_fini(&m);
        trees++;
    }
    CHECK_EQ(trees, 29);
    free(text);
}

/* ----------------------------------------------------------------- every class */

static char *
class_text(const berthi_catalogue_entry *entry)
{
    static char lines[65536];
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    const berthi_json_origin origin = { BERTH_REASON_ARCHITECTURES_JSON, "" };
    const berthi_json_value *at;
    berthi_json *document;
    berth_error error;
    size_t length = (size_t)snprintf(lines, sizeof lines, "class %.*s\n",
                                     (int)entry->name_length, c->text + entry->name);

    CHECK_EQ(berthi_json_parse(context, c->text + entry->body, entry->body_length, 0,
                               &origin, &document, &error), BERTH_OK);
    at = berthi_json_first(berthi_json_get(berthi_json_root(document), "not_linear"));
    for (; at != NULL; at = berthi_json_next(at)) {
        const char *name = "";

        CHECK(berthi_json_can_read_string(at, &name));
        length += (size_t)snprintf(lines + length, sizeof lines - length, "BF16 4x4 ");
        for (; *name != '\0'; name++)
            lines[length++] = *name == '*' ? '2' : *name;
        lines[length++] = '\n';
    }
    lines[length] = '\0';
    berthi_json_destroy(document);
    return lines;
}

/* Without a tensor, and with all that its description names. */
static void
test_every_class(void)
{
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    uint64_t modules = 0;

    for (uint32_t i = 0; i < c->class_count; i++) {
        model m = described_read(context, class_text(&c->entries[i]));
        const uint32_t count = m.tensor_count;

        for (int era = 0; era < 2 * BERTHI_ERA_COUNT; era++) {
            berthi_architecture *a;

            m.tensor_count = era % 2 == 0 ? count : 0;
            m.source.count = m.tensor_count;
            a = model_architecture(context, &m, (berthi_era)(era / 2));
            CHECK_STR(a->class_name, m.class_name);
            described_check(a, &m);
            for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at))
                modules++;
            berthi_architecture_destroy(a);
        }
        m.tensor_count = count;
        model_fini(&m);
    }
    T_NOTE("%" PRIu32 " classes, %" PRIu64 " modules", c->class_count, modules);
}

/* ------------------------------------------------------ descriptions of our own */

/* Elements of the buffer "r.t" whose size is the expression. */
static uint64_t
buffer_size(const char *expression, const char *defaults, const char *config)
{
    char description[1024];
    char lines[1024];
    berthi_catalogue *catalogue;
    const berthi_parameter *t = NULL;
    berthi_architecture *a;
    uint64_t size = UINT64_MAX;
    berth_error error;
    model m;

    snprintf(description, sizeof description,
             "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"r\", \"k\": \"np\", "
             "\"b\": [[\"t\", \"float32\", [7], false]]}], \"dims\": {\"r.t\": [\"%s\"]}, "
             "\"defaults\": %s}", expression, defaults);
    snprintf(lines, sizeof lines, "config %s\n", config);
    if (CHECK_EQ(described_lay_out(context, description, lines,
                                   &m, &catalogue, &a, &error), BERTH_OK))
        t = berthi_architecture_find(a, "r.t", 3);
    if (CHECK(t != NULL))
        size = t->elements;
    described_end(context, &m, catalogue, a);
    return size;
}

/* The paths of the tree in registration order. */
static void
check_paths(const char *description, const char *lines, const char *paths)
{
    char found[256] = "";
    size_t length = 0;
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    if (CHECK_EQ(described_lay_out(context, description, lines,
                                   &m, &catalogue, &a, &error), BERTH_OK))
        for (const berthi_module *at = a->root->children; at != NULL;
             at = berthi_module_after(at))
            length += (size_t)snprintf(found + length, sizeof found - length, " %.*s",
                                       (int)at->path_length, at->path);
    CHECK_STR(found, paths);
    described_end(context, &m, catalogue, a);
}

/* An order tells where optional children are; it need not have all the others. */
static void
test_order_with_gaps(void)
{
    static const char lines[] = "config {}\nF32 4 r.a.weight\nF32 4 r.b.weight\n"
                                "F32 4 r.c.weight\nF32 4 r.d.weight\nF32 4 r.o.weight\n";
    static const struct {
        const char *order;
        const char *paths;
    } cases[] = {
        { "\"a\", \"o\", \"b\", \"c\", \"d\"", " r r.a r.o r.b r.c r.d" },
        { "\"a\", \"o\", \"c\", \"d\"", " r r.a r.b r.o r.c r.d" },
        { "\"o\", \"d\"", " r r.a r.b r.c r.o r.d" },
        { "\"c\", \"o\"", " r r.a r.b r.c r.d r.o" },
        { "\"o\"", " r r.a r.b r.c r.d r.o" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char description[512];

        snprintf(description, sizeof description,
                 "{\"tree\": [{\"n\": \"r\", \"ch\": [\"a\", \"b\", \"c\", \"d\"]}], "
                 "\"optional\": {\"r\": {\"order\": [%s], \"only_sometimes\": [\"o\"]}}}",
                 cases[i].order);
        check_paths(description, lines, cases[i].paths);
    }
}

/* A module of modules without tensors is there, one whose tensors are missing is not. */
static void
test_bare_modules(void)
{
    check_paths("{\"tree\": [{\"n\": \"r\", \"ch\": [{\"n\": \"pool\", \"k\": \"0\"}, "
                "{\"n\": \"s\", \"ch\": [{\"n\": \"rot\", \"k\": \"np\"}]}]}, "
                "{\"n\": \"w\", \"ch\": [\"a\", {\"n\": \"act\", \"k\": \"0\"}]}, "
                "{\"n\": \"p\", \"p\": [\"t\"], \"ch\": [{\"n\": \"act\", \"k\": \"0\"}]}, "
                "{\"n\": \"e\", \"ch\": []}, \"h\"]}",
                "config {}\nF32 4 h.weight\n", " r r.pool r.s r.s.rot h");
}

/* Elements of a list are counted by whole numbers, of parameters that are elements, too. */
static void
test_counted_elements(void)
{
    static const char list[] =
        "{\"tree\": [{\"n\": \"a\", \"list\": [\"A\"], \"len\": \"n\"}]}";

    check_paths(list, "config {}\nF32 4 a.1.w\nF32 4 a.7x.w\n", " a a.0 a.1 a.7x");
    check_paths(list, "config {}\nF32 4 a.0.w\nF32 4 a.2\n", " a a.0 a.1 a.2");
    check_paths(list, "config {\"n\": 3}\nF32 4 a.0.w\n", " a a.0");
}

static void
test_expressions(void)
{
    static const struct {
        const char *expression;
        const char *defaults;
        const char *config;
        uint64_t size; /* 7: not known */
    } cases[] = {
        { "a", "{}", "{\"a\": 5}", 5 },
        { "a", "{}", "{}", 7 },
        { "a", "{}", "{\"a\": null}", 7 },
        { "a", "{\"a\": 9}", "{}", 9 },
        { "a", "{\"a\": 9}", "{\"a\": 5}", 5 },
        { "a*0.5", "{}", "{\"a\": 5}", 3 },
        { "a/b", "{}", "{\"a\": 9, \"b\": 2}", 5 },
        { "a/b*4", "{}", "{\"a\": 6, \"b\": 3}", 8 },
        { "2*3", "{}", "{}", 6 },
        { "a+2", "{}", "{\"a\": 5}", 7 },
        { "a+12", "{}", "{\"a\": 5}", 17 },
        { "a+10", "{}", "{\"a\": 5}", 15 },
        { "a-1", "{}", "{\"a\": 5}", 4 },
        { "a-9", "{}", "{\"a\": 5}", 7 },
        { "a/b", "{}", "{\"a\": 6, \"b\": 0}", 7 },
        { "a*b", "{\"b\": \"c*2\", \"c\": 3}", "{\"a\": 2}", 12 },
        { "a", "{\"a\": \"b\", \"b\": \"a\"}", "{}", 7 },
        { "a", "{\"a\": \"a*a\"}", "{}", 7 },
        { "a", "{}", "{\"a\": \"b\", \"b\": 4}", 4 },
        { "a", "{}", "{\"a\": true}", 1 },
        { "a", "{}", "{\"a\": [1]}", 7 },
        { "a", "{}", "{\"a\": -1}", 7 },
        { "a", "{}", "{\"a\": NaN}", 7 },
        { "a", "{}", "{\"a\": 1e300}", 7 },
        { "a", "{}", "{\"a\": 9007199254740992}", UINT64_C(9007199254740992) },
        { "a*2", "{}", "{\"a\": 9007199254740992}", 7 },
        { "a", "{}", "{\"a\": 0}", 0 },
        { "s.a", "{}", "{\"s\": {\"a\": 5}}", 5 },
        { "s.a", "{}", "{\"a\": 5}", 7 },
        { "s.a", "{\"s.a\": 3}", "{\"s\": 1}", 3 },
        { "text_config.a", "{}", "{\"a\": 5}", 5 },
        { "text_config.a", "{}", "{\"a\": 5, \"text_config\": {}}", 7 },
        { "x.text_config.a", "{}", "{\"x\": {\"a\": 5}}", 5 },
        { "a", "{}", "{\"rope_parameters\": {\"a\": 5}, \"rope_scaling\": {\"a\": 4}}", 5 },
        { "a", "{}", "{\"rope_scaling\": {\"a\": 4}}", 4 },
        { "partial_rotary_factor*8", "{}", "{\"rotary_pct\": 0.25}", 2 },
        { "partial_rotary_factor*8", "{}",
          "{\"rotary_pct\": 0.25, \"partial_rotary_factor\": 0.5}", 4 },
        { "", "{}", "{}", 7 },
        { "*", "{}", "{}", 7 },
        { "a*", "{}", "{\"a\": 5}", 7 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!CHECK_EQ(buffer_size(cases[i].expression, cases[i].defaults, cases[i].config),
                      cases[i].size))
            T_NOTE("%s %s %s", cases[i].expression, cases[i].defaults, cases[i].config);
}

/* ----------------------------------------------------------------------- fused */

/* Each parameter and, behind a colon, the tensors that it is made of. */
static void
check_fused(const char *description, const char *tensors, const char *expected)
{
    char lines[2048] = "config {}\n";
    char names[64][64];
    char found[2048] = "";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    size_t used = strlen(lines);
    uint32_t count = 0;
    int length;
    model m;

    for (; sscanf(tensors, "%63s%n", names[count], &length) == 1; tensors += length)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "BF16 2x4 %s\n",
                                 names[count++]);
    CHECK_EQ(described_lay_out(context, description, lines, &m, &catalogue, &a, &error),
             BERTH_OK);
    T_REQUIRE(a != NULL);
    used = 0;
    for (uint32_t i = 0; i < a->parameter_count; i++) {
        const berthi_parameter *const p = a->parameters[i];

        used += (size_t)snprintf(found + used, sizeof found - used, "%s%.*s:",
                                 i > 0 ? " " : "", (int)p->name_length, p->name);
        for (uint32_t k = p->first_piece; k != BERTHI_NO_POSITION; k = a->next_piece[k]) {
            CHECK(a->parameter_of[k] == p);
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%s",
                                     k != p->first_piece ? "," : "", names[k]);
        }
        CHECK_EQ(p->elements, 8 * p->piece_count);
    }
    CHECK_STR(found, expected);
    described_end(context, &m, catalogue, a);
}

/* Tensors whose names differ in an index that the model drops are one parameter. */
static void
test_fused(void)
{
    static const char two[] = "{\"names\": [[\"e.*.w\", \"e.w\"], [\"e.*.u\", \"e.w\"], "
                              "[\"e.*.v\", \"e.v\"]]}";

    check_fused(two, "e.0.u e.0.v e.0.w e.1.u e.1.v e.1.w e.10.v",
                "e.v:e.0.v,e.1.v,e.10.v e.w:e.0.u,e.0.w,e.1.u,e.1.w");
    /* No index, more than one, what stands beside it. */
    check_fused(two, "e..w e.0.w e.1.w e.1.w.b e.1.0.w e.x.w e.1x.w f.1.w e.2.w",
                "e..w:e..w e.1.0.w:e.1.0.w e.1x.w:e.1x.w e.w:e.0.w,e.1.w,e.2.w "
                "e.w.b:e.1.w.b e.x.w:e.x.w f.1.w:f.1.w");
    /* Indices that stay. */
    check_fused("{\"names\": [[\"l.*.e.*.w\", \"m.*.w\"]]}",
                "l.0.e.0.w l.0.e.1.w l.1.e.0.w l.1.e.1.w l.10.e.0.w",
                "m.0.w:l.0.e.0.w,l.0.e.1.w m.1.w:l.1.e.0.w,l.1.e.1.w m.10.w:l.10.e.0.w");
    check_fused("{\"names\": [[\"l.*.w\", \"m.*.w\"]]}", "l.0.w l.1.w",
                "m.0.w:l.0.w m.1.w:l.1.w");
    /* Parts of a component are no indices. */
    check_fused("{\"names\": [[\"l.*.e_*.w\", \"l.w\"]]}", "l.0.e_0.w l.0.e_1.w l.1.e_0.w",
                "l.w:l.0.e_0.w,l.0.e_1.w,l.1.e_0.w");
    check_fused("{\"names\": [[\"l.*.e_*\", \"m.e_*\"]]}", "l.0.e_0 l.0.e_1 l.1.e_0",
                "m.e_*:l.0.e_0,l.0.e_1,l.1.e_0");
    /* One index is called otherwise. */
    check_fused("{\"names\": [[\"e.1.w\", \"z\"], [\"e.*.w\", \"y\"]]}",
                "e.0.w e.1.w e.2.w", "y:e.0.w,e.2.w z:e.1.w");
    /* Names without the prefix of the whole model. */
    check_fused("{\"base\": \"m\", \"tree\": [{\"n\": \"m\", \"ch\": [\"e\"]}], "
                "\"names\": [[\"m.e.*.w\", \"m.e.w\"]]}",
                "e.0.w e.1.w e.12.w", "m.e.w:e.0.w,e.1.w,e.12.w");
}

/* More kinds of tensors than are kept in mind, and the same ones again. */
static void
test_fused_kinds(void)
{
    check_fused("{\"names\": [[\"e.*.a\", \"a\"], [\"e.*.b\", \"b\"], [\"e.*.c\", \"c\"], "
                "[\"e.*.d\", \"d\"], [\"e.*.e\", \"e\"], [\"e.*.f\", \"f\"], [\"e.*.g\", "
                "\"g\"], [\"e.*.h\", \"h\"], [\"e.*.i\", \"a\"], [\"e.*.j\", \"j\"]]}",
                "e.0.a e.0.b e.0.c e.0.d e.0.e e.0.f e.0.g e.0.h e.0.i e.0.j e.1.a e.1.b "
                "e.1.c e.1.d e.1.e e.1.f e.1.g e.1.h e.1.i e.1.j e.2.a",
                "a:e.0.a,e.0.i,e.1.a,e.1.i,e.2.a b:e.0.b,e.1.b c:e.0.c,e.1.c d:e.0.d,e.1.d "
                "e:e.0.e,e.1.e f:e.0.f,e.1.f g:e.0.g,e.1.g h:e.0.h,e.1.h j:e.0.j,e.1.j");
}

static void
check_refused(const char *description, const char *lines, berth_reason reason,
              const char *why)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    CHECK_EQ(described_lay_out(context, description, lines, &m, &catalogue, &a, &error),
             BERTH_EFORMAT);
    CHECK(a == NULL);
    CHECK_EQ(error.reason, reason);
    if (!CHECK_CONTAINS(error.message, why))
        T_NOTE("%s", description);
    described_end(context, &m, catalogue, a);
}

static void
test_bad_descriptions(void)
{
    static const struct {
        const char *description;
        const char *why;
    } cases[] = {
        { "{\"tree\": [{\"n\": \"a\", \"k\": \"np\", \"b\": [[\"t\"]]}]}", "a buffer is not" },
        { "{\"buffers\": [[\"t\", \"float32\", [1], 0]]}", "a buffer is not" },
        { "{\"buffers\": [[\"t\", \"float33\", [1], false]]}", "of no dtype" },
        { "{\"buffers\": [[\"t\", \"float32\", [-1], false]]}", "a buffer's shape" },
        { "{\"tree\": [{\"n\": \"a\", \"list\": [], \"len\": 1}]}", "without a class" },
        { "{\"tree\": [{\"n\": \"a\", \"list\": [1], \"len\": 1}]}", "without a class" },
        { "{\"tied\": {\"a\": 1}}", "no text" },
        { "{\"no_split\": \"Layer\"}",
          "the description of X makes no sense: \"no_split\" is no list of classes" },
        { "{\"no_split\": [\"Layer\", 1]}", "\"no_split\" is no list of classes" },
        { "{\"base\": \"a\", \"tree\": [\"a\"], \"names\": [[\"a\"]]}", "no pair" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].description, "config {}\nBF16 4 b.c\n",
                      BERTH_REASON_ARCHITECTURES_JSON, cases[i].why);
}

static void
test_impossible_models(void)
{
    static const char list[] =
        "{\"tree\": [{\"n\": \"a\", \"list\": [\"A\"], \"len\": \"n\"}]}";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    CHECK_EQ(described_lay_out(context, list, "config {\"n\": 16384}\n",
                               &m, &catalogue, &a, &error), BERTH_OK);
    described_end(context, &m, catalogue, a);
    check_refused(list, "config {\"n\": 16385}\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {\"n\": 18446744073709551615}\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {}\nBF16 4 a.16384.x\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {}\nBF16 4 a.99999999999999999999999.x\n",
                  BERTH_REASON_ARCHITECTURE, "more elements than a list");
    CHECK_EQ(described_lay_out(context, list, "config {}\nBF16 4 a.16383.x\n",
                               &m, &catalogue, &a, &error), BERTH_OK);
    described_end(context, &m, catalogue, a);
    check_refused("{\"buffers\": [[\"t\", \"int8\", [9007199254740992, 4096], false]]}",
                  "config {}\n", BERTH_REASON_ARCHITECTURE, "impossible size");
    /* A number that is none is no length. */
    CHECK_EQ(described_lay_out(context, list, "config {\"n\": \"x\"}\n",
                               &m, &catalogue, &a, &error), BERTH_OK);
    CHECK(a->root->children != NULL && a->root->children->children == NULL);
    described_end(context, &m, catalogue, a);
}

/* A sub-model that config.json says holds one of its type, and so on. */
static void
test_endless_model(void)
{
    static const char text[] =
        "{\"architectures\": {\"X\": {\"model_types\": [\"t\"], \"base\": \"a\", \"no_split\": "
        "[], \"tree\": [{\"n\": \"a\", \"sub\": \"s\", \"sub_type\": \"other\", \"ch\": "
        "[{\"n\": \"a\", \"sub\": \"s\", \"sub_type\": \"other\", \"ch\": [\"b\"]}]}]}}}";
    char lines[4096] = "class X\nconfig ";
    berthi_architecture_options options;
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    for (int i = 0; i < 80; i++)
        strcat(lines, "{\"model_type\": \"t\", \"s\": ");
    strcat(lines, "{}");
    for (int i = 0; i < 80; i++)
        strcat(lines, "}");
    strcat(lines, "\nBF16 4 a");
    for (int i = 0; i < 80; i++)
        strcat(lines, ".a");
    strcat(lines, ".b\n");
    CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x", &catalogue, &error),
             BERTH_OK);
    m = described_read(context, lines);
    options = model_options(&m, BERTHI_ERA_HF5);
    options.catalogue = catalogue;
    CHECK_EQ(berthi_architecture_create(context, &options, &m.source, &a, &error),
             BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, "without end");
    CHECK_STR(error.file, "config.json");
    described_end(context, &m, catalogue, a);
}

/* ---------------------------------------------------------------------- faults */

static berth_status
create_once(void *user, berth_context *fresh, berth_error *error)
{
    const model *const m = user;
    const berthi_architecture_options options = model_options(m, BERTHI_ERA_HF5);
    berthi_architecture *a;
    const berth_status status =
        berthi_architecture_create(fresh, &options, &m->source, &a, error);

    CHECK_EQ(status == BERTH_OK, a != NULL);
    berthi_architecture_destroy(a);
    return status;
}

static void
test_faults(void)
{
    char *const text = model_file("trees.txt");
    const char *at = text;
    model m;

    while (model_read(context, &at, &m)) {
        if (strcmp(m.class_name, "LlavaForConditionalGeneration") == 0
            || strcmp(m.class_name, "Qwen4ExpForCausalLM") == 0
            || strcmp(m.class_name, "DiffusionGemmaForBlockDiffusion") == 0)
            CHECK_EQ(fault_loop(m.class_name, create_once, &m).survived, 0);
        model_fini(&m);
    }
    free(text);
    berthi_architecture_destroy(NULL);
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
    T_RUN(test_trees);
    T_RUN(test_every_class);
    T_RUN(test_order_with_gaps);
    T_RUN(test_bare_modules);
    T_RUN(test_counted_elements);
    T_RUN(test_expressions);
    T_RUN(test_fused);
    T_RUN(test_fused_kinds);
    T_RUN(test_bad_descriptions);
    T_RUN(test_impossible_models);
    T_RUN(test_endless_model);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
