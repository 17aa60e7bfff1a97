/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_map.c - plain device maps: read, asked, held against a model,
 * shortened.
 */
#include "placement/device_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/shorten.h"
#include "tests/fault.h"
#include "tests/mapped.h"
#include "tests/models.h"
#include "tests/t.h"

static berth_context *context;

/* --------------------------------------------------------------------- writing */

typedef struct written {
    char text[8192];
    size_t length;
} written;

static berth_status
put(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    written *const w = user;

    (void)error;
    CHECK_EQ(offset, w->length);
    if (CHECK_LT(w->length + size, sizeof w->text)) {
        memcpy(w->text + w->length, bytes, (size_t)size);
        w->length += (size_t)size;
    }
    w->text[w->length] = '\0';
    return BERTH_OK;
}

/* In static memory. */
static const char *
print(const berthi_device_map *map)
{
    static written w;

    w.length = 0;
    CHECK_EQ(mapped_print(map, put, &w), BERTH_OK);
    return w.text;
}

static berth_status
parse_bytes(const char *text, size_t bytes, berthi_device_map *out, berth_error *error)
{
    char *const copy = malloc(bytes + 1); /* changed, and without a NUL */
    berth_status status;

    memcpy(copy, text, bytes);
    status = berthi_device_map_parse(context, copy, bytes, "map.json", out, error);
    memset(copy, 'x', bytes);
    free(copy);
    return status;
}

static berthi_device_map
parse(const char *text)
{
    berthi_device_map map;
    berth_error error;

    if (!CHECK_EQ(parse_bytes(text, strlen(text), &map, &error), BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return map;
}

static void
check_print(const char *text, const char *expected)
{
    berthi_device_map map = parse(text);

    CHECK_STR(print(&map), expected);
    for (uint32_t i = 1; i < map.count; i++)
        CHECK(map.by_path[i - 1] != map.by_path[i]);
    berthi_device_map_fini(&map);
    berthi_device_map_fini(&map);
}

/* --------------------------------------------------------------------- reading */

static void
test_read(void)
{
    check_print("{}", "{}\n");
    check_print(" { \"\" : 0 } ", "{\n  \"\": 0\n}\n");
    check_print("{\"a\":\"cuda:3\",\"c\":\"cuda\",\"b\":\"7\",\"d\":\"cpu\",\"e\":\"disk\"}",
                "{\n  \"a\": 3,\n  \"c\": 0,\n  \"b\": 7,\n  \"d\": \"cpu\",\n"
                "  \"e\": \"disk\"\n}\n");
    check_print("{\"a\": 4294967295}", "{\n  \"a\": 4294967295\n}\n");
    check_print("{\"\\u00e4\\n\\\"\": \"cp\\u0075\"}", "{\n  \"\\u00e4\\n\\\"\": \"cpu\"\n}\n");
}

static void
check_refused(const char *text, int64_t position, const char *path, const char *message)
{
    berthi_device_map map;
    berth_error error = { .status = BERTH_OK };

    CHECK_EQ(parse_bytes(text, strlen(text), &map, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE_MAP);
    CHECK_STR(error.file, "map.json");
    CHECK_STR(error.tensor, path);
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ((error.has & BERTH_HAS_POSITION) != 0, position >= 0);
    if (position >= 0 && !CHECK_EQ(error.position, position))
        T_NOTE("%s: %s", text, error.message);
    CHECK_EQ(map.count, 0);
    CHECK(map.lines == NULL && map.by_path == NULL);
    berthi_device_map_fini(&map);
}

static void
test_refused(void)
{
    static const char wrong[] = ", which is no device: a whole number from 0 on, "
                                "\"cuda:0\", \"cpu\" or \"disk\"";
    char message[256];

    check_refused("", 0, "", "");
    check_refused("[]", 0, "", "");
    check_refused("{\"a\": 0", 7, "", "");
    check_refused("{\"a\": 0} x", 9, "", "");
    check_refused("{\"a\" 0}", 5, "", "");
    check_refused("{\"a\": \"cpu}", 11, "", "");
    check_refused("{\"a\": 01}", 7, "", "");
    check_refused("{\"a\xff\": 0}", 3, "", "not UTF-8");
    check_refused("{\"a\\u0000b\": 0}", 12, "", "the name of a module holds a NUL");
    check_refused("{\"a\": null}", 6, "", "the next value is no device");
    check_refused("{\"a\": true}", 6, "", "the next value is no device");
    check_refused("{\"a\": {\"b\": 0}}", 6, "", "the next value is no device");
    check_refused("{\"a\": [0]}", 6, "", "the next value is no device");
    check_refused("{\"a\": }", 6, "", "the next value is no device");
    snprintf(message, sizeof message, "is put on -1%s", wrong);
    check_refused("{\"x\": 0, \"a\": -1}", 14, "a", message);
    snprintf(message, sizeof message, "is put on 1.0%s", wrong);
    check_refused("{\"a.b\": 1.0}", 8, "a.b", message);
    snprintf(message, sizeof message, "is put on 4294967296%s", wrong);
    check_refused("{\"a\": 4294967296}", 6, "a", message);
    snprintf(message, sizeof message, "is put on mps%s", wrong);
    check_refused("{\"a\": \"mps\"}", 6, "a", message);
    snprintf(message, sizeof message, "is put on %s", wrong);
    check_refused("{\"a\": \"\"}", 6, "a", message);
    check_refused("{\"a\": 0, \"b\": 1, \"\\u0061\": 0}", -1, "a",
                  "is in the device map twice");
    check_refused("{\"\": 0, \"\": \"cpu\"}", -1, "", "is in the device map twice");
}

static void
test_many_lines(void)
{
    char *const text = malloc(100000);
    size_t length = (size_t)sprintf(text, "{");
    berthi_device_map map;

    for (int i = 0; i < 1000; i++) /* out of order, so that sorting has work */
        length += (size_t)sprintf(text + length, "%s\"m.%d\": %d", i > 0 ? "," : "",
                                  i * 7 % 1000, i * 7 % 1000);
    sprintf(text + length, "}");
    map = parse(text);
    CHECK_EQ(map.count, 1000);
    for (uint32_t i = 0; i < map.count; i++) {
        char name[32];
        const berthi_map_line *line;

        CHECK_EQ(map.lines[i].tier.number, i * 7 % 1000);
        sprintf(name, "m.%u.weight", (unsigned)i);
        line = berthi_device_map_find(&map, name, strlen(name));
        if (CHECK(line != NULL))
            CHECK_EQ(line->tier.number, i);
        if (i > 0) {
            const berthi_map_line *const a = &map.lines[map.by_path[i - 1]];
            const berthi_map_line *const b = &map.lines[map.by_path[i]];

            CHECK_LT(strcmp(a->path, b->path), 0);
            CHECK_EQ(strlen(a->path), a->path_length);
        }
    }
    berthi_device_map_fini(&map);
    free(text);
}

/* ---------------------------------------------------------------------- asking */

static void
check_find(const berthi_device_map *map, const char *name, const char *expected)
{
    const berthi_map_line *const line =
        berthi_device_map_find(map, name, strlen(name));

    if (!CHECK_STR(line != NULL ? line->path : NULL, expected))
        T_NOTE("%s", name);
}

static void
test_find(void)
{
    berthi_device_map map = parse("{\"model.layers.1\": 0, \"model.layers.10\": 1, "
                                  "\"model\": 2, \"head.weight\": 3, \"a..b\": 4}");

    check_find(&map, "model.layers.1", "model.layers.1");
    check_find(&map, "model.layers.1.mlp.weight", "model.layers.1");
    check_find(&map, "model.layers.10.mlp.weight", "model.layers.10");
    check_find(&map, "model.layers.11.mlp.weight", "model");
    check_find(&map, "model.layers.", "model");
    check_find(&map, "model", "model");
    check_find(&map, "mode", NULL);
    check_find(&map, "models.x", NULL);
    check_find(&map, "head.weight", "head.weight");
    check_find(&map, "head.weights", NULL);
    check_find(&map, "head", NULL);
    check_find(&map, "a..b.c", "a..b");
    check_find(&map, "a.", NULL);
    check_find(&map, "", NULL);
    berthi_device_map_fini(&map);
    map = parse("{\"\": 0, \"b\": 1}");
    check_find(&map, "", "");
    check_find(&map, "a.x", "");
    check_find(&map, "b.x", "b");
    check_find(&map, "x", "");
    berthi_device_map_fini(&map);
    map = parse("{}");
    check_find(&map, "", NULL);
    check_find(&map, "a.b", NULL);
    berthi_device_map_fini(&map);
}

/* ---------------------------------------------------------------------- models */

/* Tables in front that no checkpoint holds, blocks with a buffer that is held. */
static const char description[] =
    "{\"architectures\": {\"X\": {\"base\": \"\", \"no_split\": [\"L\"], "
    "\"tie_default\": true, \"tied\": {\"head.weight\": \"body.embed.weight\"}, "
    "\"no_placement\": [\"big\"], \"tree\": ["
    "{\"n\": \"rotary\", \"k\": \"np\", \"b\": [[\"t\", \"float32\", [4], false]]}, "
    "{\"n\": \"body\", \"ch\": [\"embed\", {\"n\": \"layers\", \"list\": [\"L\"], "
    "\"ub\": [[\"bias\", \"float32\", [4], true]], \"len\": \"n\"}, \"norm\", "
    "{\"n\": \"drop\", \"k\": \"0\"}]}, \"head\"]}}}";
static const char tensors[] =
    "config {\"n\": 3}\ndtype bfloat16\n"
    "BF16 8x4 body.embed.weight\n"
    "BF16 4 body.layers.0.bias\nBF16 4x4 body.layers.0.mlp.up.weight\n"
    "BF16 4x4 body.layers.0.mlp.down.weight\nBF16 4 body.layers.0.norm.weight\n"
    "BF16 4 body.layers.1.bias\nBF16 4x4 body.layers.1.mlp.up.weight\n"
    "BF16 4x4 body.layers.1.mlp.down.weight\nBF16 4 body.layers.1.norm.weight\n"
    "BF16 4 body.layers.2.bias\nBF16 4x4 body.layers.2.mlp.up.weight\n"
    "BF16 4 body.layers.2.big\nBF16 4 body.layers.2.norm.weight\n"
    "BF16 4 body.norm.weight\nBF16 4 body.norm.bias\n";
static const char with_head[] = "BF16 8x4 head.weight\n";

typedef struct laid_out {
    model m;
    berthi_catalogue *catalogue;
    berthi_architecture *model;
} laid_out;

static void
lay_out(laid_out *l, const char *lines)
{
    berthi_architecture_options options;

    CHECK_EQ(berthi_catalogue_create(context, description, strlen(description), "x.json",
                                     &l->catalogue, NULL),
             BERTH_OK);
    CHECK(model_read(context, &lines, &l->m));
    snprintf(l->m.class_name, sizeof l->m.class_name, "X");
    options = model_options(&l->m, BERTHI_ERA_HF5);
    options.catalogue = l->catalogue;
    CHECK_EQ(berthi_architecture_create(context, &options, &l->m.source, &l->model, NULL),
             BERTH_OK);
}

static void
put_away(laid_out *l)
{
    berthi_architecture_destroy(l->model);
    berthi_catalogue_destroy(context, l->catalogue);
    model_fini(&l->m);
}

/* -------------------------------------------------------------------- checking */

/* "path: problem; " for each. */
static void
note_stray(void *user, const char *path, uint64_t length, const char *problem)
{
    written *const w = user;

    w->length += (size_t)snprintf(w->text + w->length, sizeof w->text - w->length,
                                  "%.*s: %.14s; ", (int)length, path, problem);
}

/* `missing`: the name the error is about; NULL: there is none. */
static void
check_model(const laid_out *l, const char *text, const char *missing, const char *message,
            const char *strays)
{
    berthi_device_map map = parse(text);
    written w = { .length = 0 };
    berth_error error = { .status = BERTH_OK };

    CHECK_EQ(berthi_device_map_check(&map, l->model, "map.json", note_stray, &w, &error),
             missing != NULL ? BERTH_EINVAL : BERTH_OK);
    if (missing != NULL) {
        CHECK_EQ(error.reason, BERTH_REASON_DEVICE_MAP);
        CHECK_STR(error.file, "map.json");
        CHECK_STR(error.tensor, missing);
        CHECK_STR(error.message, message);
    }
    if (!CHECK_STR(w.text, strays))
        T_NOTE("%s", text);
    berthi_device_map_fini(&map);
}

#define REST "; a line \"\" takes all that others do not"

static void
test_check(void)
{
    laid_out l;

    lay_out(&l, tensors);
    check_model(&l, "{\"\": 0}", NULL, "", "");
    check_model(&l, "{\"body\": 0, \"head\": 0}", NULL, "", "");
    check_model(&l, "{\"body\": 0, \"head\": 0, \"rotary\": \"cpu\", \"body.drop\": 1}", NULL,
                "", "");
    check_model(&l, "{\"body\": 0, \"head\": \"cpu\"}", NULL, "",
                "head.weight: shares its mem; ");
    check_model(&l, "{\"body\": 0, \"head\": 1}", NULL, "", "head.weight: shares its mem; ");
    check_model(&l, "{\"\": 0, \"body.layers.1.mlp.up\": 1, "
                    "\"body.layers.1.mlp.up.weight\": 1, \"rotary.t\": 0, "
                    "\"body.layers.1.bias\": 0}",
                NULL, "", "");
    check_model(&l, "{\"body.embed\": 0, \"body.layers\": 0, \"body.norm.weight\": 0, "
                    "\"head\": 0}",
                "body.norm.bias", "has no line in the device map" REST, "");
    check_model(&l, "{\"body.embed\": 0, \"body.layers\": 0}", "body.norm.bias",
                "has no line in the device map, nor have body.norm.weight, "
                "head.weight" REST, "");
    check_model(&l, "{\"body.embed\": 0, \"body.layers\": 0, \"head\": 0}",
                "body.norm.bias",
                "has no line in the device map, nor have body.norm.weight" REST, "");
    check_model(&l, "{\"body.embed\": 0, \"body.layers.0\": 0, \"head\": 0}",
                "body.layers.1.bias",
                "has no line in the device map, nor have body.layers.1.mlp.down.weight, "
                "body.layers.1.mlp.up.weight and 6 more" REST, "");
    check_model(&l, "{}", "body.embed.weight",
                "has no line in the device map, nor have body.layers.0.bias, "
                "body.layers.0.mlp.down.weight and 12 more" REST, "");
    /* What its class leaves out of maps needs none. */
    check_model(&l, "{\"body.embed\": 0, \"body.layers.0\": 0, \"body.layers.1\": 0, "
                    "\"body.layers.2.mlp\": 0, \"body.layers.2.norm\": 0, "
                    "\"body.layers.2.bias\": 0, \"body.norm\": 0, \"head\": 0}",
                NULL, "", "");
    /* A buffer that checkpoints hold does. */
    check_model(&l, "{\"body.embed\": 0, \"body.layers.0\": 0, \"body.layers.1\": 0, "
                    "\"body.layers.2.mlp\": 0, \"body.layers.2.norm\": 0, "
                    "\"body.norm\": 0, \"head\": 0}",
                "body.layers.2.bias", "has no line in the device map" REST, "");
    put_away(&l);
}

/* What names nothing is refused, before what is missing. */
static void
test_stray(void)
{
    static const char *const strays[] = { "body.layers.3", "bod", "body.layers.1.mlp.u",
                                          "body.layers.1x", "body.", "x" };
    char text[64];
    laid_out l;

    lay_out(&l, tensors);
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) {
        snprintf(text, sizeof text, "{\"head\": 0, \"%s\": 1}", strays[i]);
        check_model(&l, text, strays[i], "names nothing in the model", "");
    }
    put_away(&l);
}

/* In a model that is guessed, in parts or as a whole, it is left out. */
static void
test_stray_of_guess(void)
{
    berthi_device_map map =
        parse("{\"x\": 1, \"body.norm\": 2, \"\": 0, \"a\": 3, \"extra\": 4, \"z\": 5}");
    written w = { .length = 0 };
    char lines[2048];
    laid_out l;

    snprintf(lines, sizeof lines, "%sBF16 4 extra.weight\n", tensors);
    lay_out(&l, lines);
    CHECK_EQ(berthi_device_map_check(&map, l.model, "map.json", note_stray, &w, NULL),
             BERTH_OK);
    CHECK_STR(w.text, "x: names nothing ; a: names nothing ; z: names nothing ; ");
    CHECK_STR(print(&map), "{\n  \"body.norm\": 2,\n  \"\": 0,\n  \"extra\": 4\n}\n");
    check_find(&map, "body.norm.weight", "body.norm");
    check_find(&map, "extra.weight", "extra");
    check_find(&map, "x", "");
    berthi_device_map_fini(&map);
    check_model(&l, "{\"x\": 0}", "body.embed.weight",
                "has no line in the device map, nor have body.layers.0.bias, "
                "body.layers.0.mlp.down.weight and 13 more" REST, "x: names nothing ; ");
    put_away(&l);
}

/* ------------------------------------------------------------------ shortening */

/* "prefix=tier prefix=tier": the longest prefix of a name counts. */
static berthi_tier
tier_of(void *user, const berthi_parameter *what)
{
    const berthi_map_line *const line =
        berthi_device_map_find(user, what->name, what->name_length);

    CHECK_GT(what->piece_count, 0); /* only what the checkpoint holds is asked for */
    CHECK(line != NULL);
    return line->tier;
}

static void
check_clean(const laid_out *l, const char *text, const char *expected)
{
    berthi_device_map from = parse(text);
    berthi_device_map map;
    berth_error error;

    CHECK_EQ(berthi_device_map_clean(context, l->model, tier_of, &from, &map, &error),
             BERTH_OK);
    if (!CHECK_STR(print(&map), expected))
        T_NOTE("%s", text);
    if (map.count > 0)
        CHECK_EQ(berthi_device_map_check(&map, l->model, "", note_stray,
                                         &(written){ .length = 0 }, NULL),
                 BERTH_OK);
    berthi_device_map_fini(&map);
    berthi_device_map_fini(&from);
}

static void
test_clean(void)
{
    char lines[2048];
    laid_out l;

    lay_out(&l, tensors);
    check_clean(&l, "{\"\": 0, \"head\": 1}", "{\n  \"\": 0\n}\n"); /* tied */
    put_away(&l);
    snprintf(lines, sizeof lines, "%s%s", tensors, with_head);
    lay_out(&l, lines);
    check_clean(&l, "{\"\": 0}", "{\n  \"\": 0\n}\n");
    check_clean(&l, "{\"\": \"disk\"}", "{\n  \"\": \"disk\"\n}\n");
    check_clean(&l, "{\"\": 0, \"head\": \"cpu\"}",
                "{\n  \"rotary\": 0,\n  \"body\": 0,\n  \"head\": \"cpu\"\n}\n");
    check_clean(&l, "{\"\": 3, \"body.layers\": 1, \"head\": 4294967295}",
                "{\n  \"rotary\": 3,\n  \"body.embed\": 3,\n  \"body.layers\": 1,\n"
                "  \"body.norm\": 3,\n  \"body.drop\": 3,\n  \"head\": 4294967295\n}\n");
    check_clean(&l, "{\"\": 0, \"body.layers.2\": 1, \"body.norm\": 1, \"head\": 1}",
                "{\n  \"rotary\": 0,\n  \"body.embed\": 0,\n  \"body.layers.0\": 0,\n"
                "  \"body.layers.1\": 0,\n  \"body.layers.2\": 1,\n  \"body.norm\": 1,\n"
                "  \"body.drop\": 1,\n  \"head\": 1\n}\n");
    /* A block and a leaf that are divided. */
    check_clean(&l, "{\"\": 0, \"body.layers.1.mlp\": \"cpu\", \"body.norm.bias\": 1}",
                "{\n  \"rotary\": 0,\n  \"body.embed\": 0,\n  \"body.layers.0\": 0,\n"
                "  \"body.layers.1.mlp\": \"cpu\",\n  \"body.layers.1.norm\": 0,\n"
                "  \"body.layers.1.bias\": 0,\n  \"body.layers.2\": 0,\n"
                "  \"body.norm.bias\": 1,\n  \"body.norm.weight\": 0,\n"
                "  \"body.drop\": 0,\n  \"head\": 0\n}\n");
    check_clean(&l, "{\"\": 0, \"body.layers.0.bias\": 1}",
                "{\n  \"rotary\": 0,\n  \"body.embed\": 0,\n  \"body.layers.0.mlp\": 0,\n"
                "  \"body.layers.0.norm\": 0,\n  \"body.layers.0.bias\": 1,\n"
                "  \"body.layers.1\": 0,\n  \"body.layers.2\": 0,\n  \"body.norm\": 0,\n"
                "  \"body.drop\": 0,\n  \"head\": 0\n}\n");
    put_away(&l);
}

/* A list of one, and nothing at all. */
static void
test_clean_ends(void)
{
    laid_out l;

    lay_out(&l, "config {\"n\": 1}\ndtype bfloat16\nBF16 4 body.layers.0.a\n");
    check_clean(&l, "{\"\": 0}", "{\n  \"\": 0\n}\n");
    put_away(&l);
    lay_out(&l, "config {\"n\": 1}\ndtype bfloat16\n");
    CHECK_EQ(l.model->parameter_count, 0);
    check_clean(&l, "{\"\": 0}", "{}\n");
    put_away(&l);
}

typedef struct cleaned {
    const laid_out *laid_out;
    berthi_device_map *from;
    uint32_t count;
} cleaned;

static berth_status
clean_once(void *user, berth_context *faulty, berth_error *error)
{
    const cleaned *const c = user;
    berthi_device_map map;
    const berth_status status = berthi_device_map_clean(faulty, c->laid_out->model, tier_of,
                                                        c->from, &map, error);

    CHECK_EQ(map.count, status == BERTH_OK ? c->count : 0);
    berthi_device_map_fini(&map);
    return status;
}

/* Many nodes, so that the lists grow: layers by turns on two tiers. */
static void
test_clean_grows(void)
{
    static const uint32_t layers = 700;
    fault_counts counts;
    char *const lines = malloc(1 << 16);
    size_t length = (size_t)sprintf(lines, "config {\"n\": %u}\ndtype bfloat16\n",
                                    (unsigned)layers);
    char from_text[4096] = "{\"\": 0";
    size_t from_length = strlen(from_text);
    berthi_device_map from;
    berthi_device_map map;
    laid_out l;

    for (uint32_t i = 0; i < layers; i++)
        length += (size_t)sprintf(lines + length, "BF16 4 body.layers.%u.a\n", (unsigned)i);
    for (uint32_t i = 1; i < 100; i += 2)
        from_length += (size_t)sprintf(from_text + from_length, ",\"body.layers.%u\": 1",
                                       (unsigned)i);
    sprintf(from_text + from_length, "}");
    lay_out(&l, lines);
    from = parse(from_text);
    CHECK_EQ(berthi_device_map_clean(context, l.model, tier_of, &from, &map, NULL),
             BERTH_OK);
    CHECK_EQ(map.count, layers + 3); /* rotary, drop, head */
    for (uint32_t i = 1; i <= layers; i++)
        CHECK_EQ(map.lines[i].tier.number, i <= 100 && i % 2 == 0);
    berthi_device_map_fini(&map);
    counts = fault_loop("growing lists", clean_once,
                        &(cleaned){ &l, &from, layers + 3 });
    CHECK_GE(counts.memory, 12);
    CHECK_EQ(counts.survived, 0);
    berthi_device_map_fini(&from);
    put_away(&l);
    free(lines);
}

/* The rule by itself: root(0: a(1: 2 3) b(4: 5) 6). */
static void
test_shorten(void)
{
    static const berthi_shorten_node tree[] = {
        { .parent = 0, .end = 7 }, { .parent = 0, .end = 4 }, { .parent = 1, .end = 3 },
        { .parent = 1, .end = 4 }, { .parent = 0, .end = 6 }, { .parent = 4, .end = 6 },
        { .parent = 0, .end = 7 },
    };
    static const struct {
        const char *before; /* a place for each node; '-': no line */
        const char *after;
    } cases[] = {
        { "-------", "-------" }, { "--0----", "--0----" }, { "--00---", "0------" },
        { "--00-1-", "-0---1-" }, { "--01-0-", "--01-0-" }, { "--00-00", "0------" },
        { "--00-01", "-0---01" }, { "-----00", "0------" }, { "-----0-", "-----0-" },
        { "-----01", "-----01" }, { "0------", "0------" }, { "-0--1--", "-0--1--" },
        { "-0--0--", "0------" }, { "--11-0-", "-1---0-" }, { "--0---1", "--0---1" },
        { "-1---11", "1------" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_shorten_node nodes[7];
        char after[8] = "-------";

        memcpy(nodes, tree, sizeof tree);
        for (int k = 0; k < 7; k++) {
            nodes[k].is_line = cases[i].before[k] != '-';
            nodes[k].place = (uint64_t)cases[i].before[k];
            nodes[k].below = 77;
        }
        berthi_shorten(nodes, 7);
        for (int k = 0; k < 7; k++)
            if (nodes[k].is_line)
                after[k] = (char)nodes[k].place;
        if (!CHECK_STR(after, cases[i].after))
            T_NOTE("%s", cases[i].before);
    }
}

/* -------------------------------------------------------------------- failures */

static berth_status
use_once(void *user, berth_context *faulty, berth_error *error)
{
    const laid_out *const l = user;
    char text[4096] = "{\"\": 0, \"body.layers.1.mlp\": \"cpu\"";
    size_t length = strlen(text);
    berthi_device_map from;
    berthi_device_map map;
    berth_status status;

    for (int i = 0; i < 70; i++)
        length += (size_t)sprintf(text + length, ", \"x.%d\": 1", i);
    length += (size_t)sprintf(text + length, "}");
    status = berthi_device_map_parse(faulty, text, length, "map", &from, error);
    if (status == BERTH_OK)
        status = berthi_device_map_clean(faulty, l->model, tier_of, &from, &map, error);
    if (status == BERTH_OK) {
        CHECK_EQ(map.count, 10);
        berthi_device_map_fini(&map);
    }
    berthi_device_map_fini(&from);
    return status;
}

/* Paths and lists that take a block of memory each. */
static berth_status
use_large(void *user, berth_context *faulty, berth_error *error)
{
    const size_t size = 32768;
    char *const text = malloc(size);
    size_t length = (size_t)sprintf(text, "{\"%05000d\": 0", 0);
    berthi_device_map from;
    berthi_device_map map;
    berth_status status;

    (void)user;
    for (int i = 0; i < 1200; i++)
        length += (size_t)sprintf(text + length, ",\"x.%d\":1", i);
    length += (size_t)sprintf(text + length, "}");
    CHECK_LT(length, size);
    status = berthi_device_map_parse(faulty, text, length, "map", &from, error);
    CHECK(status == BERTH_OK || from.count == 0);
    free(text);
    if (status == BERTH_OK) {
        status = berthi_device_map_make(faulty, from.lines, from.count, &map, error);
        CHECK_EQ(map.count, status == BERTH_OK ? from.count : 0);
        berthi_device_map_fini(&map);
    }
    berthi_device_map_fini(&from);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts;
    laid_out l;

    lay_out(&l, tensors);
    counts = fault_loop("device map", use_once, &l);
    CHECK_GE(counts.memory, 6);
    CHECK_EQ(counts.survived, 0);
    put_away(&l);
    counts = fault_loop("large device map", use_large, NULL);
    CHECK_GE(counts.memory, 20);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 99;
    T_RUN(test_read);
    T_RUN(test_refused);
    T_RUN(test_many_lines);
    T_RUN(test_find);
    T_RUN(test_check);
    T_RUN(test_stray);
    T_RUN(test_stray_of_guess);
    T_RUN(test_clean);
    T_RUN(test_clean_ends);
    T_RUN(test_clean_grows);
    T_RUN(test_shorten);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
