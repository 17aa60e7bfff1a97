/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layout.c - orders, divisions, late lengths and refusals of layouts.
 * Headers as the reference writes them are in test_layout_header.c.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "loader/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/layout_name.h"
#include "tests/fault.h"
#include "tests/laid.h"
#include "tests/t.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MANY 64u

static berth_context *context;

/* ------------------------------------------------------------------- helpers */

static uint32_t
random_below(uint32_t *state, uint32_t limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 8) * limit >> 24);
}

/* A vector of bytes; `text` is cut into name and suffix at the character at `cut`. */
static berthi_layout_tensor
tensor_of(const char *text, uint64_t bytes, uint32_t cut)
{
    const uint32_t length = (uint32_t)strlen(text);
    berthi_layout_tensor tensor = { .name = text, .dtype = BERTH_U8, .bytes = bytes };

    while (cut < length && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    tensor.name_length = cut < length ? cut : length;
    tensor.suffix = cut < length ? text + cut : NULL;
    return tensor;
}

static berthi_layout *
create(berthi_layout_tensor *tensors, uint64_t count, uint64_t limit)
{
    const berthi_layout_options options = { .max_shard_bytes = limit,
                                            .pairs = berthi_layout_format,
                                            .pair_count = 1 };
    berthi_layout *layout = NULL;
    berth_error error;

    CHECK_EQ(berthi_layout_create(context, tensors, count, &options, &layout, &error),
             BERTH_OK);
    return layout;
}

/* "a b|c" are the names of two shards, each in the order of its bytes. */
static const char *
describe(const berthi_layout *layout)
{
    static char text[4096];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < berthi_layout_shard_count(layout); i++) {
        const berthi_layout_shard shard = berthi_layout_shard_at(layout, i);

        for (uint32_t j = 0; j < shard.tensor_count; j++)
            length += (size_t)snprintf(
                text + length, sizeof text - length, "%s%s",
                j > 0 ? " " : i > 0 ? "|" : "",
                laid_name(&berthi_layout_tensors(layout)[shard.tensors[j]]));
    }
    return text;
}

static void
check_division(const char *sizes, uint64_t limit, const char *expected)
{
    berthi_layout_tensor tensors[26];
    char names[26][2];
    uint32_t count = 0;
    berthi_layout *layout;

    for (const char *at = sizes; *at != '\0'; at += strspn(at, " "), count++) {
        char *end;

        names[count][0] = (char)('a' + count);
        names[count][1] = '\0';
        tensors[count] = tensor_of(names[count], strtoull(at, &end, 10), 1);
        at = end;
    }
    layout = create(tensors, count, limit);
    T_REQUIRE(layout != NULL);
    CHECK_STR(describe(layout), expected);
    CHECK_STR(laid_problem(layout, limit), NULL);
    berthi_layout_destroy(layout);
}

/* -------------------------------------------------------------------- names */

static void
test_shard_names(void)
{
    char name[BERTHI_LAYOUT_NAME];

    berthi_layout_shard_name(0, 1, name);
    CHECK_STR(name, "model.safetensors");
    berthi_layout_shard_name(0, 2, name);
    CHECK_STR(name, "model-00001-of-00002.safetensors");
    berthi_layout_shard_name(1, 2, name);
    CHECK_STR(name, "model-00002-of-00002.safetensors");
    berthi_layout_shard_name(9, 163, name);
    CHECK_STR(name, "model-00010-of-00163.safetensors");
    berthi_layout_shard_name(99999, 100000, name);
    CHECK_STR(name, "model-100000-of-100000.safetensors");
    berthi_layout_shard_name(UINT32_MAX - 1, UINT32_MAX, name);
    CHECK_STR(name, "model-4294967295-of-4294967295.safetensors");
}

/* In dot-natural order; by Python's key (0, int(part)) or (1, part), then as text. */
static const char *const natural[] = {
    "0", "1", "1.0", "1.00", "1.000", "1.", "1..", "1.a", "02", "2", "2.a", "0010", "10",
    "18446744073709551615", "18446744073709551616", "99999999999999999999999999999999",
    "", ".0", ".1", ".01.b", ".1.b", ".", "..", ".a", "-1", "1a", "a", "a.0.b", "a.00.b",
    "a.0.c", "a.1", "a.2", "a.2.weight", "a.02.x", "a.10", "a.10.b", "a.", "a..", "a..b",
    "a.-1", "a.1a", "a.b", "a.b.0", "a.b.c", "a.bc", "a0", "a10", "a2", "ab",
    "lm_head.weight", "model.embed_tokens.weight",
    "model.layers.2.input_layernorm.weight", "model.layers.2.mlp.down_proj.SCB",
    "model.layers.2.mlp.down_proj.weight", "model.layers.2.mlp.down_proj.weight.absmax",
    "model.layers.2.mlp.down_proj.weight.nested_absmax",
    "model.layers.2.mlp.down_proj.weight.quant_state.bitsandbytes__nf4",
    "model.layers.10.input_layernorm.weight", "model.norm.weight", "x\x7f", "x\xc3\xa9",
    "x\xe2\x82\xac", "x\xf0\x9f\x98\x80",
};

static int
sign(int value)
{
    return (value > 0) - (value < 0);
}

/* Every pair, both ways round, cut at several places each. */
static void
test_natural_pairs(void)
{
    static const uint32_t cuts[] = { 0, 1, 3, 6, 1000 };

    for (size_t i = 0; i < COUNT(natural); i++)
        for (size_t j = 0; j < COUNT(natural); j++)
            for (size_t k = 0; k < COUNT(cuts) * COUNT(cuts); k++) {
                const berthi_layout_tensor a =
                    tensor_of(natural[i], 0, cuts[k / COUNT(cuts)]);
                const berthi_layout_tensor b =
                    tensor_of(natural[j], 0, cuts[k % COUNT(cuts)]);
                uint64_t shared = 0;

                if (!CHECK_EQ(sign(berthi_layout_name_compare_fill(&a, &b)),
                              (i > j) - (i < j))
                    || !CHECK_EQ(sign(berthi_layout_name_compare(&a, &b, &shared)),
                                 sign(strcmp(natural[i], natural[j])))) {
                    T_NOTE("`%s` and `%s`", natural[i], natural[j]);
                    return;
                }
                CHECK_LE(shared, strlen(natural[i]));
                CHECK_EQ(strncmp(natural[i], natural[j], shared), 0);
                CHECK(i == j || natural[i][shared] != natural[j][shared]);
            }
}

/* Shuffled input comes out in both orders; in order, it stays as it is. */
static void
test_orders(void)
{
    berthi_layout_tensor tensors[COUNT(natural)];
    uint32_t state = 7;

    for (int round = 0; round < 50; round++) {
        const berthi_layout_options in_order = { .is_in_order = true };
        const char *names[COUNT(natural)];
        berthi_layout *layout;

        memcpy(names, natural, sizeof names);
        for (uint32_t i = COUNT(natural) - 1; i > 0; i--) {
            const uint32_t j = random_below(&state, i + 1);
            const char *const held = names[i];

            names[i] = names[j];
            names[j] = held;
        }
        for (uint32_t i = 0; i < COUNT(natural); i++)
            tensors[i] = tensor_of(names[i], 1, random_below(&state, 40));
        layout = create(tensors, COUNT(natural), 0);
        T_REQUIRE(layout != NULL);
        for (uint32_t i = 0; i < COUNT(natural); i++)
            CHECK_STR(laid_name(&tensors[berthi_layout_fill_order(layout)[i]]),
                      natural[i]);
        for (uint32_t i = 1; i < COUNT(natural); i++)
            CHECK(strcmp(laid_name(&tensors[berthi_layout_name_order(layout)[i - 1]]),
                         laid_name(&tensors[berthi_layout_name_order(layout)[i]]))
                  < 0);
        CHECK_STR(laid_problem(layout, 0), NULL);
        berthi_layout_destroy(layout);
        CHECK_EQ(berthi_layout_create(context, tensors, COUNT(natural), &in_order,
                                      &layout, NULL),
                 BERTH_OK);
        for (uint32_t i = 0; i < COUNT(natural); i++)
            CHECK_EQ(berthi_layout_fill_order(layout)[i], i);
        berthi_layout_destroy(layout);
    }
}

/* ---------------------------------------------------------------- divisions */

static void
test_divisions(void)
{
    check_division("", 10, "");
    check_division("0", 10, "a");
    check_division("10", 10, "a");
    check_division("11", 10, "a");
    check_division("3 3 3", 10, "a b c");
    check_division("3 3 4", 10, "a b c");
    check_division("3 3 5", 10, "a b|c");
    check_division("10 10 10", 10, "a|b|c");
    check_division("5 6 5 5 1", 10, "a|b|c d|e");
    /* No bin packing: c would fit beside a. */
    check_division("9 9 1", 10, "a|b c");
    /* Too large: at once, in front of what is being filled. */
    check_division("11 1", 10, "a|b");
    check_division("1 11", 10, "b|a");
    check_division("1 11 2", 10, "b|a c");
    check_division("1 11 12 2 9 1", 10, "b|c|a d|e f");
    check_division("1 11 9 13 1", 10, "b|d|a c|e");
    check_division("11 12", 10, "a|b");
    check_division("1 1 1", 1, "a|b|c");
    check_division("0 2 0", 1, "b|a c");
    check_division("10 0 0 1 0", 10, "a b c|d e");
    check_division("1 2 3 100", 0, "a b c d");
    check_division("18446744073709551 1000000 1", UINT64_MAX, "a b c");
}

static void
test_empty(void)
{
    berthi_layout *const layout = create(NULL, 0, 5);
    uint32_t first = 7;

    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_layout_tensor_count(layout), 0);
    CHECK_EQ(berthi_layout_shard_count(layout), 1);
    CHECK_EQ(berthi_layout_total_bytes(layout), 0);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).tensor_count, 0);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).header_bytes, 32);
    CHECK_EQ(berthi_layout_divide(layout, &first, NULL), BERTH_OK);
    CHECK_EQ(first, 1);
    berthi_layout_destroy(layout);
    berthi_layout_destroy(NULL);
}

/* Pieces of one tensor: in the place of their common name, in one shard. */
static void
test_groups(void)
{
    static const struct {
        uint64_t limit;
        const char *shards;
    } cases[] = {
        { 0, "a.x b.0.down b.0.up b.1.down b.1.up c.y" },
        { 8, "b.0.down b.1.down|b.0.up b.1.up|a.x c.y" }, /* each larger than a shard */
        { 10, "a.x|b.0.down b.1.down|b.0.up b.1.up|c.y" },
        { 13, "a.x b.0.down b.1.down|b.0.up b.1.up c.y" },
        { 23, "a.x b.0.down b.0.up b.1.down b.1.up|c.y" },
    };
    berthi_layout_tensor tensors[] = {
        tensor_of("b.0.down", 5, 99), tensor_of("b.0.up", 5, 99),
        tensor_of("b.1.down", 5, 99), tensor_of("b.1.up", 5, 99),
        tensor_of("a.x", 3, 99),      tensor_of("c.y", 3, 99),
    };
    const berthi_layout_options options = { .max_shard_bytes = 8 };
    berthi_layout *layout;
    berth_error error;

    for (size_t i = 0; i < 4; i++) {
        tensors[i].fill_name = "b.all";
        tensors[i].fill_name_length = 5;
        tensors[i].group = 1 + i % 2;
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        layout = create(tensors, COUNT(tensors), cases[i].limit);
        if (!CHECK_STR(describe(layout), cases[i].shards))
            T_NOTE("limit %zu", (size_t)cases[i].limit);
        CHECK_EQ(berthi_layout_total_bytes(layout), 26);
        berthi_layout_destroy(layout);
    }
    /* The common name counts: now behind c.y. */
    for (size_t i = 0; i < 4; i++)
        tensors[i].fill_name = "d.all";
    layout = create(tensors, COUNT(tensors), 10);
    CHECK_STR(describe(layout), "a.x c.y|b.0.down b.1.down|b.0.up b.1.up");
    berthi_layout_destroy(layout);
    tensors[1].is_late = true;
    CHECK(berthi_layout_create(context, tensors, COUNT(tensors), &options, &layout, &error)
          != BERTH_OK);
    CHECK_EQ(error.reason, BERTH_REASON_INTERNAL);
    CHECK(layout == NULL);
}

/* A tensor is small, a lot of them many; what is measured is the promise. */
static void
test_tensor_size(void)
{
    CHECK_LE(sizeof(berthi_layout_tensor), 96);
}

/* -------------------------------------------------------------- late lengths */

/* Tensors of a weight that is stored with a late blob, as they will be in a file. */
typedef struct model {
    berthi_layout_tensor tensors[MANY];
    char names[MANY][32];
    uint64_t shapes[MANY][2];
    uint32_t lengths[MANY]; /* real ones of late tensors */
    uint32_t count;
    uint64_t limit;
} model;

static void
make_model(model *m, uint32_t *state)
{
    static const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_U8, BERTH_F4 };
    static const uint32_t bits[] = { 32, 16, 8, 4 };
    const uint32_t scale = random_below(state, 2) > 0 ? 8 : 400;

    m->count = 1 + random_below(state, MANY);
    m->limit = random_below(state, 8) > 0 ? 1 + random_below(state, 4 * scale) : 0;
    for (uint32_t i = 0; i < m->count; i++) {
        berthi_layout_tensor *const tensor = &m->tensors[i];
        const uint32_t kind = random_below(state, 4);

        snprintf(m->names[i], sizeof m->names[i], "m.%u.%s%u", random_below(state, 12),
                 random_below(state, 2) > 0 ? "w" : "w.", i);
        *tensor = tensor_of(m->names[i], 0, random_below(state, 10));
        if (random_below(state, 3) == 0) {
            m->lengths[i] = random_below(state, scale);
            tensor->is_late = true;
            tensor->bytes =
                random_below(state, 3) > 0 ? m->lengths[i] : random_below(state, scale);
            continue;
        }
        m->shapes[i][0] = 2 * random_below(state, 4);
        m->shapes[i][1] = random_below(state, scale / 4);
        tensor->shape = m->shapes[i];
        tensor->rank = 2;
        tensor->dtype = dtypes[kind];
        tensor->bytes = m->shapes[i][0] * m->shapes[i][1] * bits[kind] / 8;
    }
}

/* What is_place_known() promises, counted from the front of each shard. */
static bool
are_places_right(const berthi_layout *layout)
{
    const berthi_layout_tensor *const tensors = berthi_layout_tensors(layout);

    for (uint32_t i = 0; i < berthi_layout_shard_count(layout); i++) {
        const berthi_layout_shard shard = berthi_layout_shard_at(layout, i);
        bool is_known = true;
        uint64_t offset = 0;

        for (uint32_t j = 0; j < shard.tensor_count; j++) {
            const uint32_t number = shard.tensors[j];

            if (!CHECK_EQ(berthi_layout_is_place_known(layout, number), is_known)
                || (is_known && !CHECK_EQ(tensors[number].offset, offset)))
                return false;
            is_known = is_known && !tensors[number].is_late;
            offset += tensors[number].bytes;
        }
    }
    return true;
}

/* Sets some lengths, divides, and compares with a layout made of these lengths. */
static bool
check_step(model *m, berthi_layout *layout, uint32_t *state)
{
    berthi_layout_tensor copies[MANY];
    berthi_layout *fresh;
    uint32_t shards[MANY];
    uint32_t lowest = UINT32_MAX;
    uint32_t first;
    bool is_same = true;

    for (uint32_t i = 0; i < m->count; i++) {
        shards[i] = m->tensors[i].shard;
        if (!m->tensors[i].is_late || random_below(state, 3) > 0)
            continue;
        berthi_layout_set_bytes(layout, i, m->lengths[i]);
        is_same = CHECK_EQ(m->tensors[i].bytes, m->lengths[i])
                  && CHECK(!m->tensors[i].is_late) && are_places_right(layout) && is_same;
    }
    CHECK_EQ(berthi_layout_divide(layout, &first, NULL), BERTH_OK);
    CHECK_STR(laid_problem(layout, m->limit), NULL);
    is_same = are_places_right(layout) && is_same;
    memcpy(copies, m->tensors, sizeof copies);
    fresh = create(copies, m->count, m->limit);
    is_same = CHECK(fresh != NULL) && is_same;
    for (uint32_t i = 0; is_same && i < m->count; i++) {
        is_same = CHECK_EQ(copies[i].shard, m->tensors[i].shard)
                  && CHECK_EQ(copies[i].offset, m->tensors[i].offset)
                  && CHECK_EQ(copies[i].place, m->tensors[i].place);
        if (m->tensors[i].shard != shards[i]) {
            lowest = m->tensors[i].shard < lowest ? m->tensors[i].shard : lowest;
            lowest = shards[i] < lowest ? shards[i] : lowest;
        }
    }
    for (uint32_t i = 0; is_same && i < berthi_layout_shard_count(layout); i++)
        is_same = CHECK_EQ(berthi_layout_shard_at(layout, i).header_bytes,
                           berthi_layout_shard_at(fresh, i).header_bytes);
    berthi_layout_destroy(fresh);
    if (lowest == UINT32_MAX)
        lowest = berthi_layout_shard_count(layout);
    return is_same && CHECK_EQ(first, lowest);
}

static void
test_late(void)
{
    static model m;
    uint32_t state = 1;

    for (int round = 0; round < 3000; round++) {
        const berthi_layout_options options = { .pairs = berthi_layout_format,
                                                .pair_count = 1 };
        berthi_layout *layout;

        make_model(&m, &state);
        layout = create(m.tensors, m.count, m.limit);
        T_REQUIRE(layout != NULL);
        CHECK_STR(laid_problem(layout, m.limit), NULL);
        CHECK(are_places_right(layout));
        for (int step = 0; step < 4; step++)
            if (!check_step(&m, layout, &state)) {
                T_NOTE("round %d, step %d, limit %llu", round, step,
                       (unsigned long long)m.limit);
                berthi_layout_destroy(layout);
                return;
            }
        for (uint32_t i = 0; i < m.count; i++)
            berthi_layout_set_bytes(layout, i, m.lengths[i]);
        CHECK_EQ(berthi_layout_divide(layout, NULL, NULL), BERTH_OK);
        for (uint32_t i = 0; i < berthi_layout_shard_count(layout); i++)
            CHECK_STR(laid_header_problem(context, layout, i, &options), NULL);
        berthi_layout_destroy(layout);
    }
}

/* A length that was not late is not touched; a right guess changes nothing. */
static void
test_set_bytes(void)
{
    berthi_layout_tensor tensors[3];
    berthi_layout *layout;
    uint32_t first = 9;

    tensors[0] = tensor_of("a", 4, 1);
    tensors[1] = tensor_of("b", 5, 1);
    tensors[2] = tensor_of("c", 6, 1);
    tensors[1].is_late = true;
    layout = create(tensors, 3, 0);
    T_REQUIRE(layout != NULL);
    CHECK(berthi_layout_is_place_known(layout, 0));
    CHECK(berthi_layout_is_place_known(layout, 1));
    CHECK(!berthi_layout_is_place_known(layout, 2));
    berthi_layout_set_bytes(layout, 0, 100);
    CHECK_EQ(tensors[0].bytes, 4);
    CHECK(!berthi_layout_is_place_known(layout, 2));
    CHECK_EQ(berthi_layout_shard_at(layout, 0).payload_bytes, 15);
    berthi_layout_set_bytes(layout, 1, 7);
    CHECK(berthi_layout_is_place_known(layout, 2));
    CHECK_EQ(tensors[2].offset, 11);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).payload_bytes, 15);
    CHECK_EQ(berthi_layout_divide(layout, &first, NULL), BERTH_OK);
    CHECK_EQ(first, 1);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).payload_bytes, 17);
    berthi_layout_set_bytes(layout, 1, 8);
    CHECK_EQ(tensors[1].bytes, 7);
    berthi_layout_destroy(layout);
}

/* No header is written while a length is guessed or has changed since. */
static void
test_unfinished_header(void)
{
    berthi_layout_tensor tensors[2];
    berthi_layout *layout;
    laid_text text = { 0 };
    berth_error error;

    tensors[0] = tensor_of("a", 9, 1);
    tensors[1] = tensor_of("b", 5, 1);
    tensors[0].is_late = true;
    layout = create(tensors, 2, 0);
    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_layout_write_header(layout, 0, laid_put, &text, &error),
             BERTH_EINTERNAL);
    CHECK_EQ(error.reason, BERTH_REASON_INTERNAL);
    CHECK_CONTAINS(error.message, "lengths are guessed");
    berthi_layout_set_bytes(layout, 0, 10);
    CHECK_EQ(berthi_layout_write_header(layout, 0, laid_put, &text, &error),
             BERTH_EINTERNAL);
    CHECK_EQ(text.calls, 0);
    CHECK_EQ(berthi_layout_divide(layout, NULL, NULL), BERTH_OK);
    CHECK_EQ(berthi_layout_write_header(layout, 0, laid_put, &text, &error), BERTH_OK);
    CHECK_CONTAINS(text.bytes + 8, "\"a\":{\"dtype\":\"U8\",\"shape\":[10],"
                                   "\"data_offsets\":[0,10]}");
    text.calls = 0;
    text.fails_at = 1;
    CHECK_EQ(berthi_layout_write_header(layout, 0, laid_put, &text, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    free(text.bytes);
    berthi_layout_destroy(layout);
}

/* ----------------------------------------------------------------- refusals */

static void
check_refused(berthi_layout_tensor *tensors, uint64_t count, berth_reason reason,
              const char *name, const char *message)
{
    const berthi_layout_options options = { .max_shard_bytes = 0 };
    berthi_layout *layout = (berthi_layout *)&options;
    berth_error error;

    CHECK_EQ(berthi_layout_create(context, tensors, count, &options, &layout, &error),
             berthi_reason_status((int32_t)reason));
    CHECK(layout == NULL);
    CHECK_EQ(error.reason, reason);
    CHECK_STR(error.tensor, name);
    CHECK_CONTAINS(error.message, message);
}

static void
test_names_refused(void)
{
    static char longest[300];
    berthi_layout_tensor tensors[3];

    for (uint32_t cut = 0; cut <= 12; cut++) {
        tensors[0] = tensor_of("a", 1, 1);
        tensors[1] = tensor_of("__metadata__", 1, cut);
        check_refused(tensors, 2, BERTH_REASON_NAME, "__metadata__",
                      "a meaning of its own");
        tensors[1] = tensor_of("a", 1, cut % 2);
        check_refused(tensors, 2, BERTH_REASON_DUPLICATE, "a", "would have this name");
    }
    tensors[1] = tensor_of("__metadata_", 1, 3);
    tensors[2] = tensor_of("__metadata__x", 1, 3);
    berthi_layout_destroy(create(tensors, 3, 0));
    tensors[1].name = "x\0y";
    tensors[1].name_length = 3;
    tensors[1].suffix = ".z";
    check_refused(tensors, 2, BERTH_REASON_NAME, "x\\x00y.z", "U+0000");
    tensors[1] = tensor_of("a\xff", 1, 9);
    check_refused(tensors, 2, BERTH_REASON_NAME, "a\\xff", "not UTF-8");
    tensors[1] = tensor_of("ab\xc3", 1, 1);
    check_refused(tensors, 2, BERTH_REASON_NAME, "ab\\xc3", "not UTF-8");
    tensors[1] = tensor_of("b\xc3\xa9", 1, 2);
    tensors[1].name_length = 2; /* inside a character */
    tensors[1].suffix = "\xa9";
    check_refused(tensors, 2, BERTH_REASON_NAME, "b\xc3\xa9", "not UTF-8");
    memset(longest, 'n', sizeof longest - 1);
    tensors[0] = tensor_of(longest, 1, 100);
    tensors[1] = tensor_of(longest, 1, 290);
    check_refused(tensors, 2, BERTH_REASON_DUPLICATE,
                  "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
                  "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...",
                  "would have this name");
}

/* Of different dtypes, far apart in every order: still the same name. */
static void
test_twins(void)
{
    static const uint64_t shape[1] = { 1 };
    berthi_layout_tensor tensors[COUNT(natural) + 1];

    for (size_t i = 0; i < COUNT(natural); i++) {
        for (size_t j = 0; j < COUNT(natural); j++)
            tensors[j] = tensor_of(natural[j], 1, (uint32_t)(i + j) % 9);
        tensors[COUNT(natural)] = tensor_of(natural[i], 8, (uint32_t)i % 7);
        tensors[COUNT(natural)].shape = shape;
        tensors[COUNT(natural)].rank = 1;
        tensors[COUNT(natural)].dtype = BERTH_I64;
        check_refused(tensors, COUNT(tensors), BERTH_REASON_DUPLICATE,
                      strcmp(natural[i], "x\x7f") == 0 ? "x\\x7f" : natural[i],
                      "two tensors");
    }
}

static void
check_shape(int32_t dtype, uint32_t rank, uint64_t a, uint64_t b, uint64_t bytes,
            berth_reason reason, const char *message)
{
    const uint64_t shape[2] = { a, b };
    berthi_layout_tensor tensor = tensor_of("t", bytes, 1);

    tensor.shape = shape;
    tensor.rank = rank;
    tensor.dtype = dtype;
    if (reason != BERTH_REASON_NONE)
        check_refused(&tensor, 1, reason, "t", message);
    else
        berthi_layout_destroy(create(&tensor, 1, 0));
}

static void
test_shapes_refused(void)
{
    static const uint64_t ones[65] = { 0 };
    berthi_layout_tensor tensor = tensor_of("t", 0, 1);
    const uint64_t half = UINT64_C(1) << 63;

    check_shape(BERTH_F32, 2, 3, 5, 60, BERTH_REASON_NONE, "");
    check_shape(BERTH_F32, 2, 3, 5, 59, BERTH_REASON_SIZE_MISMATCH, "another number");
    check_shape(BERTH_F32, 2, 3, 5, 64, BERTH_REASON_SIZE_MISMATCH, "another number");
    check_shape(BERTH_F32, 0, 0, 0, 4, BERTH_REASON_NONE, "");
    check_shape(BERTH_F32, 0, 0, 0, 0, BERTH_REASON_SIZE_MISMATCH, "another number");
    check_shape(BERTH_F4, 2, 3, 2, 3, BERTH_REASON_NONE, "");
    check_shape(BERTH_F4, 2, 3, 1, 2, BERTH_REASON_SUBBYTE, "whole bytes");
    check_shape(BERTH_F6_E2M3, 1, 4, 0, 3, BERTH_REASON_NONE, "");
    check_shape(BERTH_U8, 2, half, 2, 0, BERTH_REASON_OVERFLOW, "64 bits");
    check_shape(BERTH_U8, 1, half >> 2, 0, 0, BERTH_REASON_OVERFLOW, "64 bits");
    check_shape(BERTH_U8, 1, (half >> 2) - 1, 0, (half >> 2) - 1, BERTH_REASON_NONE, "");
    check_shape(-1, 1, 1, 0, 1, BERTH_REASON_INTERNAL, "cannot hold");
    check_shape(BERTH_DTYPE_COUNT, 1, 1, 0, 1, BERTH_REASON_INTERNAL, "cannot hold");
    tensor.shape = ones;
    tensor.rank = 65;
    check_refused(&tensor, 1, BERTH_REASON_RANK, "t", "too many dimensions");
    tensor.rank = 64;
    berthi_layout_destroy(create(&tensor, 1, 0));
    tensor.is_late = true;
    check_refused(&tensor, 1, BERTH_REASON_INTERNAL, "t", "cannot hold");
    tensor.shape = NULL;
    tensor.dtype = BERTH_I8;
    tensor.bytes = 12;
    berthi_layout_destroy(create(&tensor, 1, 0));
    tensor.dtype = BERTH_F32;
    check_refused(&tensor, 1, BERTH_REASON_INTERNAL, "t", "cannot hold");
}

static void
test_amounts_refused(void)
{
    const uint64_t most = UINT64_C(0x7FFFFFFFFFFFFFFF);
    berthi_layout_tensor tensors[2];

    tensors[0] = tensor_of("a", most, 1);
    tensors[1] = tensor_of("b", 1, 1);
    check_refused(tensors, 2, BERTH_REASON_UNSUPPORTED, "b", "larger than any disk");
    tensors[0].bytes--;
    berthi_layout_destroy(create(tensors, 2, 0));
    check_refused(NULL, UINT64_C(0x80000000), BERTH_REASON_UNSUPPORTED, "",
                  "2147483648 tensors are too many");
}

static void
test_options_refused(void)
{
    static const berthi_layout_pair pairs[][2] = {
        { { "b", "1" }, { "a", "2" } },
        { { "a", "1" }, { "a", "2" } },
        { { "a", "\xff" }, { "b", "2" } },
        { { "a", "1" }, { "b\xc3", "2" } },
    };

    for (size_t i = 0; i < COUNT(pairs); i++) {
        const berthi_layout_options options = { .pairs = pairs[i], .pair_count = 2 };
        berthi_layout *layout = (berthi_layout *)&options;
        berth_error error;

        CHECK_EQ(berthi_layout_create(context, NULL, 0, &options, &layout, &error),
                 BERTH_EINTERNAL);
        CHECK_CONTAINS(error.message, "not in order or not UTF-8");
        CHECK(layout == NULL);
    }
}

/* Without __metadata__, also where that leaves no member at all. */
static void
test_headers_without_pairs(void)
{
    const berthi_layout_options options = { .pairs = NULL };
    char name[24];

    for (uint32_t length = 0; length < sizeof name; length++) {
        berthi_layout_tensor tensors[2];
        berthi_layout *layout;

        memset(name, 'n', sizeof name);
        name[length] = '\0';
        tensors[0] = tensor_of(name, 5, 1);
        tensors[1] = tensor_of("z", 6, 1);
        for (uint64_t count = 0; count <= 2; count++) {
            T_REQUIRE(berthi_layout_create(context, tensors, count, &options, &layout, NULL)
                      == BERTH_OK);
            CHECK_STR(laid_header_problem(context, layout, 0, &options), NULL);
            if (count == 0)
                CHECK_EQ(berthi_layout_shard_at(layout, 0).header_bytes, 8);
            berthi_layout_destroy(layout);
        }
    }
}

/* ------------------------------------------------------------------- failures */

static berth_status
run_all(void *user, berth_context *faulty, berth_error *error)
{
    static model m;
    const berthi_layout_options options = { .max_shard_bytes = 30 };
    uint32_t state = 3;
    berthi_layout *layout;
    berth_status status;

    (void)user;
    do
        make_model(&m, &state);
    while (m.count < 60);
    status = berthi_layout_create(faulty, m.tensors, m.count, &options, &layout, error);
    if (status != BERTH_OK) {
        CHECK(layout == NULL);
        return status;
    }
    for (uint32_t i = 0; i < m.count; i++)
        berthi_layout_set_bytes(layout, i, 31); /* each a shard of its own */
    status = berthi_layout_divide(layout, NULL, error);
    if (status == BERTH_OK)
        CHECK_STR(laid_problem(layout, 30), NULL);
    berthi_layout_destroy(layout);
    return status;
}

/* Many of one size, each a shard of its own: within the limit, or larger. */
static berth_status
run_even(void *user, berth_context *faulty, berth_error *error)
{
    const berthi_layout_options options = { .max_shard_bytes = *(const uint64_t *)user };
    berthi_layout_tensor tensors[26];
    char names[COUNT(tensors)][2];
    berthi_layout *layout;
    berth_status status;

    for (uint32_t i = 0; i < COUNT(tensors); i++) {
        names[i][0] = (char)('a' + i);
        names[i][1] = '\0';
        tensors[i] = tensor_of(names[i], 31, 1);
    }
    status = berthi_layout_create(faulty, tensors, COUNT(tensors), &options, &layout, error);
    if (status == BERTH_OK)
        CHECK_EQ(berthi_layout_shard_count(layout), COUNT(tensors));
    berthi_layout_destroy(layout);
    return status;
}

static void
test_faults(void)
{
    uint64_t limit = 30;
    fault_counts counts = fault_loop("layout", run_all, NULL);

    CHECK_GE(counts.memory, 8);
    CHECK_EQ(counts.survived, 0);
    for (; limit <= 31; limit++) {
        counts = fault_loop("layout of tensors of one size", run_even, &limit);
        CHECK_GE(counts.memory, 4);
        CHECK_EQ(counts.survived, 0);
    }
}

/* ---------------------------------------------------------------------- load */

static double
seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* 300,000 tensors in 75 shards, every one with a late blob, divided shard by shard. */
static void
test_load(void)
{
    static const char *const suffixes[] = { ".weight", ".weight.absmax",
                                            ".weight.nested_absmax", ".weight.quant_map",
                                            ".weight.quant_state.bitsandbytes__nf4" };
    static const uint64_t sizes[] = { 4000, 250, 4, 64, 173 };
    const uint32_t weights = 60000;
    const uint32_t count = weights * 5;
    berthi_layout_tensor *const tensors = calloc(count, sizeof *tensors);
    char(*const names)[48] = calloc(weights, sizeof *names);
    berthi_layout *layout;
    double begin;
    double created;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t weight = i / 5;

        snprintf(names[weight], sizeof *names, "model.layers.%u.mlp.experts.%u.up_proj",
                 weight / 1000, weight % 1000);
        tensors[i] = tensor_of(names[weight], sizes[i % 5], 100);
        tensors[i].suffix = suffixes[i % 5];
        tensors[i].is_late = i % 5 == 4;
    }
    begin = seconds();
    layout = create(tensors, count, UINT64_C(60000) * 4491 / 75 + 4000);
    T_REQUIRE(layout != NULL);
    created = seconds() - begin;
    CHECK_EQ(berthi_layout_shard_count(layout), 75);
    begin = seconds();
    for (uint32_t i = 0; i < berthi_layout_shard_count(layout); i++) {
        const berthi_layout_shard shard = berthi_layout_shard_at(layout, i);

        for (uint32_t j = 0; j < shard.tensor_count; j++)
            if (tensors[shard.tensors[j]].is_late)
                berthi_layout_set_bytes(layout, shard.tensors[j],
                                        170 + shard.tensors[j] % 7);
        CHECK_EQ(berthi_layout_divide(layout, NULL, NULL), BERTH_OK);
    }
    T_NOTE("300,000 tensors laid out in %.0f ms, divided anew for every shard in %.0f ms",
           created * 1e3, (seconds() - begin) * 1e3);
    CHECK_STR(laid_problem(layout, UINT64_C(60000) * 4491 / 75 + 4000), NULL);
    berthi_layout_destroy(layout);
    free(tensors);
    free(names);
}

int
main(int argc, char **argv)
{
    int result;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_shard_names);
    T_RUN(test_natural_pairs);
    T_RUN(test_orders);
    T_RUN(test_divisions);
    T_RUN(test_empty);
    T_RUN(test_groups);
    T_RUN(test_tensor_size);
    T_RUN(test_late);
    T_RUN(test_set_bytes);
    T_RUN(test_unfinished_header);
    T_RUN(test_names_refused);
    T_RUN(test_twins);
    T_RUN(test_shapes_refused);
    T_RUN(test_amounts_refused);
    T_RUN(test_options_refused);
    T_RUN(test_headers_without_pairs);
    T_RUN(test_faults);
    T_RUN(test_load);
    result = t_end();
    berth_context_destroy(context);
    return result;
}
