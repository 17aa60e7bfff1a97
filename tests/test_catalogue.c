/* SPDX-License-Identifier: Apache-2.0 */
/* test_catalogue.c - what is compiled in, and reading another architectures.json. */
#include "quant/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/json.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

static bool
is_text(const berthi_catalogue *c, uint32_t at, uint32_t length, const char *word)
{
    return strlen(word) == length && memcmp(c->text + at, word, length) == 0;
}

static void
check_same(const berthi_catalogue *a, const berthi_catalogue *b)
{
    T_REQUIRE(CHECK_EQ(a->bytes, b->bytes) && CHECK_EQ(a->class_count, b->class_count)
              && CHECK_EQ(a->tower_count, b->tower_count)
              && CHECK_EQ(a->type_count, b->type_count));
    CHECK_MEM(a->text, b->text, (size_t)a->bytes);
    CHECK_MEM(a->entries, b->entries,
              (a->class_count + a->tower_count) * sizeof *a->entries);
    CHECK_MEM(a->types, b->types, a->type_count * sizeof *a->types);
}

/* The compiled copy is the file of the tree. */
static void
check_file(const char *path)
{
    const berthi_catalogue *const builtin = berthi_catalogue_builtin();
    berthi_catalogue *loaded;
    berth_error error;
    size_t bytes;
    char *const text = fixture_read(path, &bytes);

    CHECK_EQ(bytes, builtin->bytes);
    CHECK(bytes == builtin->bytes && memcmp(text, builtin->text, bytes) == 0);
    T_REQUIRE(CHECK_EQ(berthi_catalogue_create(context, text, bytes, path, &loaded, &error),
                       BERTH_OK));
    check_same(loaded, builtin);
    berthi_catalogue_destroy(context, loaded);
    free(text);
}

static void
test_builtin(void)
{
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    const berthi_catalogue_entry *entry;

    CHECK_EQ(c->class_count, 375);
    CHECK_EQ(c->tower_count, 95);
    check_file("quant/architectures.json");
    entry = berthi_catalogue_class(c, "LlamaForCausalLM");
    T_REQUIRE(CHECK(entry != NULL));
    CHECK(is_text(c, entry->name, entry->name_length, "LlamaForCausalLM"));
    CHECK_EQ(c->text[entry->body], '{');
    CHECK_EQ(c->text[entry->body + entry->body_length - 1], '}');
    CHECK(berthi_catalogue_type_class(c, "iquestcoder", NULL) == entry);
    CHECK(berthi_catalogue_type_class(c, "iquestcoder", entry) == NULL);
    CHECK(berthi_catalogue_class(c, "LlamaForCausalL") == NULL);
    CHECK(berthi_catalogue_class(c, "siglip_vision_model") == NULL);
    entry = berthi_catalogue_tower(c, "siglip_vision_model");
    CHECK(entry != NULL && entry >= c->entries + c->class_count);
    CHECK(berthi_catalogue_tower(c, "LlamaForCausalLM") == NULL);
    CHECK(berthi_catalogue_type_class(c, "", NULL) == NULL);
}

/* Where the file lies that the tree's was made from: they differ in "_meta" alone. */
static void
test_origin(void)
{
    static const char path[] = "../shared/spec/architectures.json";
    static const char begin[] = "\n\"architectures\": {\n";
    const berthi_catalogue *const builtin = berthi_catalogue_builtin();
    FILE *const file = fopen(path, "r");
    const char *theirs;
    const char *ours;
    size_t bytes;
    char *text;

    if (file == NULL)
        T_SKIP("its origin is not here");
    fclose(file);
    text = fixture_read(path, &bytes);
    theirs = strstr(text, begin);
    ours = strstr(builtin->text, begin);
    if (CHECK(theirs != NULL && ours != NULL))
        CHECK(strcmp(theirs, ours) == 0);
    free(text);
}

/* Every description is JSON, and its model types lead to it. */
static void
test_descriptions(void)
{
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    const berthi_json_origin origin = { BERTH_REASON_ARCHITECTURES_JSON, "" };
    uint32_t types = 0;

    for (uint32_t i = 0; i < c->class_count + c->tower_count; i++) {
        const berthi_catalogue_entry *const entry = &c->entries[i];
        const berthi_json_value *at;
        berthi_json *document;
        berth_error error;

        T_REQUIRE(CHECK_EQ(berthi_json_parse(context, c->text + entry->body,
                                             entry->body_length, 0, &origin, &document,
                                             &error), BERTH_OK));
        CHECK(berthi_json_get(berthi_json_root(document), "tree") != NULL);
        at = berthi_json_first(berthi_json_get(berthi_json_root(document), "model_types"));
        for (; at != NULL; at = berthi_json_next(at), types++) {
            const berthi_catalogue_entry *found = NULL;
            const char *type = "";

            CHECK(berthi_json_can_read_string(at, &type));
            do
                found = berthi_catalogue_type_class(c, type, found);
            while (found != NULL && found != entry);
            CHECK(found == entry);
        }
        berthi_json_destroy(document);
    }
    CHECK_EQ(types, c->type_count);
}

/* ------------------------------------------------------------ another file */

static void
test_another(void)
{
    static const char text[] =
        " {\"_meta\": {\"a\\u0041\": [1]}, \"architectures\": {\"A\": {\"model_types\": "
        "[\"x\", \"y\"], \"tree\": []} , \"B\":{\"tree\":[\"\\\"\"],\"model_types\":[\"y\"]}},"
        "\"towers\": {\"t\": {} }} ";
    const size_t bytes = sizeof text - 1;
    char *const copy = malloc(bytes);
    const berthi_catalogue_entry *a;
    const berthi_catalogue_entry *b;
    berthi_catalogue *c;
    berth_error error;

    T_REQUIRE(CHECK(copy != NULL));
    memcpy(copy, text, bytes);
    T_REQUIRE(CHECK_EQ(berthi_catalogue_create(context, copy, bytes, "f", &c, &error),
                       BERTH_OK));
    memset(copy, 0, bytes);
    free(copy);
    CHECK_MEM(c->text, text, bytes);
    CHECK_EQ(c->class_count, 2);
    CHECK_EQ(c->tower_count, 1);
    CHECK_EQ(c->type_count, 3);
    a = berthi_catalogue_class(c, "A");
    b = berthi_catalogue_class(c, "B");
    T_REQUIRE(CHECK(a != NULL && b != NULL));
    CHECK(is_text(c, a->body, a->body_length, "{\"model_types\": [\"x\", \"y\"], \"tree\": []}"));
    CHECK(is_text(c, b->body, b->body_length,
                  "{\"tree\":[\"\\\"\"],\"model_types\":[\"y\"]}"));
    CHECK(berthi_catalogue_type_class(c, "x", NULL) == a);
    CHECK(berthi_catalogue_type_class(c, "y", NULL) == a);
    CHECK(berthi_catalogue_type_class(c, "y", a) == b);
    CHECK(berthi_catalogue_type_class(c, "y", b) == NULL);
    CHECK(berthi_catalogue_tower(c, "t") == &c->entries[2]);
    berthi_catalogue_destroy(context, c);
    berthi_catalogue_destroy(context, NULL);
}

static void
test_refused(void)
{
    static const struct {
        const char *text;
        const char *why;
        uint64_t at;
    } cases[] = {
        { "", "", 0 },
        { "[]", "", 0 },
        { "{}", "no \"architectures\"", 2 },
        { "{\"towers\": {}}", "no \"architectures\"", 14 },
        { "{\"towers\": {\"t\": {}}, \"architectures\": {}}", "after", 38 },
        { "{\"architectures\": {}, \"architectures\": {}}", "after", 38 },
        { "{\"architectures\": []}", "", 18 },
        { "{\"architectures\": {\"A\": []}}", "", 24 },
        { "{\"architectures\": {\"A\": {\"model_types\": {}}}}", "", 40 },
        { "{\"architectures\": {\"A\": {\"model_types\": [1]}}}", "", 41 },
        { "{\"architectures\": {\"A\": {\"model_types\": [\"\\u0041\"]}}}", "escape", 49 },
        { "{\"architectures\": {\"\\\"\": {}}}", "escape", 24 },
        { "{\"archi\\u0074ectures\": {}}", "escape", 22 },
        { "{\"architectures\": {\"A\": {\"tr\\u0065e\": 1}}}", "escape", 37 },
        { "{\"architectures\": {\"A\": {\"tree\": [}}}", "", 34 },
        { "{\"architectures\": {}} x", "behind the end", 22 },
        { "{\"architectures\": {\xff}}", "UTF-8", 19 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t length = strlen(cases[i].text);
        berthi_catalogue *c = (berthi_catalogue *)&context;
        berth_error error;

        CHECK_EQ(berthi_catalogue_create(context, cases[i].text, length, "a.json", &c, &error),
                 BERTH_EFORMAT);
        CHECK(c == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_ARCHITECTURES_JSON);
        CHECK_STR(error.file, "a.json");
        CHECK_CONTAINS(error.message, cases[i].why);
        if (!CHECK_EQ(error.position, cases[i].at))
            T_NOTE("%s: %s", cases[i].text, error.message);
    }
}

static void
test_too_large(void)
{
    const uint64_t bytes = BERTHI_CATALOGUE_LIMIT + 1;
    char *const text = malloc(bytes);
    berthi_catalogue *c;
    berth_error error;

    T_REQUIRE(CHECK(text != NULL));
    memset(text, ' ', bytes);
    memcpy(text, "{\"architectures\":{}}", 20);
    CHECK_EQ(berthi_catalogue_create(context, text, bytes, "f", &c, &error), BERTH_EFORMAT);
    CHECK_EQ(error.expected, BERTHI_CATALOGUE_LIMIT);
    CHECK_EQ(error.actual, bytes);
    CHECK_EQ(berthi_catalogue_create(context, text, bytes - 1, "f", &c, &error), BERTH_OK);
    berthi_catalogue_destroy(context, c);
    free(text);
}

static berth_status
create_once(void *user, berth_context *fresh, berth_error *error)
{
    static const char text[] = "{\"architectures\": {\"A\": {}}}";
    berthi_catalogue *c;
    const berth_status status =
        berthi_catalogue_create(fresh, text, sizeof text - 1, "f", &c, error);

    (void)user;
    CHECK_EQ(status == BERTH_OK, c != NULL);
    berthi_catalogue_destroy(fresh, c);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("catalogue", create_once, NULL);

    CHECK_EQ(counts.memory, 4);
    CHECK_EQ(counts.survived, 0);
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
    T_RUN(test_builtin);
    T_RUN(test_origin);
    T_RUN(test_descriptions);
    T_RUN(test_another);
    T_RUN(test_refused);
    T_RUN(test_too_large);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
