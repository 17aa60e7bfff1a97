/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_kept.c - weights that are stored already as they are asked for:
 * their bytes go through, whatever lies around them; those that only look so are
 * decoded and encoded anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tables.h"
#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define OTHERS "BF16 9 model.norm.weight\nI64 3 model.ids\n"
#define STATE_NF4 ".quant_state.bitsandbytes__nf4"

static const char *
out(void)
{
    return fixture_format("%s/out", fixture_folder());
}

/* How something is quantized. */
typedef struct way {
    int32_t type;
    int32_t is_double;
    int32_t storage;
    uint32_t block_size;
} way;

static const way ways[] = {
    { BERTH_ENCODING_NF4, 0, -1, 0 },         { BERTH_ENCODING_NF4, 1, -1, 0 },
    { BERTH_ENCODING_FP4, 0, -1, 256 },       { BERTH_ENCODING_FP4, 1, -1, 0 },
    { BERTH_ENCODING_NF4, 1, BERTH_F32, 32 }, { BERTH_ENCODING_FP4, 0, BERTH_BF16, 0 },
    { BERTH_ENCODING_INT8, 0, -1, 0 },
};

#define WAYS (sizeof ways / sizeof ways[0])

static void
begin(converted *c, const char *output, const way *w)
{
    converted_begin(c, output, w->type);
    c->options.double_quant = w->is_double;
    c->options.storage = w->storage;
    c->options.block_size = w->block_size;
}

static bool
has_run(converted *c, const char *model)
{
    if (CHECK_EQ(converted_run(c, model), BERTH_OK))
        return CHECK_GE((int64_t)c->report.planned_memory, (int64_t)c->peak);
    T_NOTE("%s: %s %s", model, c->error.tensor, c->error.message);
    return false;
}

static bool
is_same_file(const char *a, const char *b, const char *name)
{
    size_t a_bytes;
    size_t b_bytes;
    char *const a_text = fixture_read(fixture_format("%s/%s", a, name), &a_bytes);
    char *const b_text = fixture_read(fixture_format("%s/%s", b, name), &b_bytes);
    const bool is_same =
        CHECK_EQ(a_bytes, b_bytes) && CHECK(memcmp(a_text, b_text, a_bytes) == 0);

    free(a_text);
    free(b_text);
    if (!is_same)
        T_NOTE("%s differs", name);
    return is_same;
}

/* Of BF16 weights of several sizes. */
static const char *
make_plain(void)
{
    static const uint64_t shapes[][2] = { { 40, 64 }, { 8, 2560 }, { 72, 136 }, { 320, 2 },
                                          { 16, 16 } };
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        void *const values =
            weights_values(BERTH_BF16, shapes[i][0] * shapes[i][1], i + 1, false);

        fixture_add(b, fixture_format("model.layers.%d.a.weight", (int)i), "BF16", 2,
                    shapes[i], values);
        free(values);
    }
    fixture_add_lines(b, OTHERS "@format pt\n");
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), FIXTURE_CONFIG);
    return folder;
}

/* ----------------------------------------------------------------- all are kept */

/* In pieces of this size and into shards: with what the whole has in each. */
static void
check_again(const char *model, const way *w, uint64_t unit_values, uint64_t shard_bytes)
{
    const char *const first = out();
    const char *const second = out();
    converted c;

    begin(&c, first, w);
    c.options.max_shard_bytes = shard_bytes;
    T_REQUIRE(has_run(&c, model));
    CHECK_EQ(c.report.kept, 0);
    begin(&c, second, w);
    c.options.max_shard_bytes = shard_bytes;
    converted_shrink(&c, unit_values);
    T_REQUIRE(has_run(&c, first));
    CHECK_EQ(c.report.kept, 5);
    CHECK_EQ(c.report.quantized, 5);
    CHECK_EQ(converted_matches_oracle(&c, first), 0); /* nothing is encoded */
    CHECK(is_same_file(first, second, "config.json"));
    if (shard_bytes == 0) {
        CHECK(is_same_file(first, second, "model.safetensors"));
        return;
    }
    CHECK_GT(c.report.shards, 2);
    CHECK(is_same_file(first, second, "model.safetensors.index.json"));
    for (uint32_t i = 0; i < c.report.shards; i++)
        CHECK(is_same_file(first, second,
                           fixture_format("model-%05u-of-%05u.safetensors", i + 1,
                                          c.report.shards)));
}

static void
test_all_bytes_go_through(void)
{
    const char *const model = make_plain();

    for (size_t i = 0; i < WAYS; i++) {
        check_again(model, &ways[i], 4096, 0);
        check_again(model, &ways[i], 350, 0);
        check_again(model, &ways[i], 350, 4096);
    }
}

/* In FP4 and doubly quantized another pass would have given other bytes. */
static void
test_they_would_change(void)
{
    const char *const model = make_plain();
    const char *const first = out();
    const char *const plain = out();
    const char *const second = out();
    const way w = { BERTH_ENCODING_FP4, 1, -1, 0 };
    char *before;
    char *after;
    size_t bytes;
    converted c;

    begin(&c, first, &w);
    T_REQUIRE(has_run(&c, model));
    begin(&c, plain, &(way){ BERTH_ENCODING_NATIVE, 0, -1, 0 });
    T_REQUIRE(has_run(&c, first));
    begin(&c, second, &w);
    T_REQUIRE(has_run(&c, plain));
    before = fixture_read(fixture_format("%s/model.safetensors", first), &bytes);
    after = fixture_read(fixture_format("%s/model.safetensors", second), &bytes);
    CHECK(memcmp(before, after, bytes) != 0);
    free(before);
    free(after);
}

/* ------------------------------------------------------------------ some are kept */

static void
count_kept(void *user, const berth_coverage *line)
{
    uint64_t *const sums = user; /* of the encodings, of the causes */

    sums[line->cause[0] != '\0'] += line->kept;
    CHECK_GE(line->tensors, line->kept);
}

/* From this way to another: so many of the five are kept. */
static void
check_kept(const char *model, const way *from, const way *to, const char *rules,
           uint64_t expected)
{
    const char *const first = out();
    uint64_t sums[2] = { 0, 0 };
    converted c;

    begin(&c, first, from);
    c.options.rules = rules;
    T_REQUIRE(has_run(&c, model));
    begin(&c, out(), to);
    c.options.coverage = count_kept;
    c.options.coverage_user = sums;
    T_REQUIRE(has_run(&c, first));
    if (!CHECK_EQ(c.report.kept, expected))
        T_NOTE("%s", berth_encoding_name(to->type));
    CHECK_EQ(sums[0], expected);
    CHECK_EQ(sums[1], expected);
    CHECK_EQ(c.report.quantized, 5);
    CHECK_EQ(converted_matches_oracle(&c, first), (int64_t)(5 - expected));
    CHECK(converted_is_verified(c.options.output));
}

static void
test_only_the_same_is_kept(void)
{
    const char *const model = make_plain();
    const way nf4 = { BERTH_ENCODING_NF4, 0, -1, 0 };
    const way nf4_double = { BERTH_ENCODING_NF4, 1, -1, 0 };
    const way int8 = { BERTH_ENCODING_INT8, 0, -1, 0 };

    check_kept(model, &nf4, &nf4_double, NULL, 0);
    check_kept(model, &nf4_double, &nf4, NULL, 0);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_NF4, 0, BERTH_F16, 0 }, NULL, 0);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_NF4, 0, BERTH_I8, 0 }, NULL, 0);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_NF4, 0, -1, 128 }, NULL, 0);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_FP4, 0, -1, 0 }, NULL, 0);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_NF4, 0, BERTH_U8, 64 }, NULL, 5);
    check_kept(model, &nf4, &int8, NULL, 0);
    check_kept(model, &int8, &nf4, NULL, 0);
    /* What has no say in int8 does not matter for it. */
    check_kept(model, &int8, &(way){ BERTH_ENCODING_INT8, 0, BERTH_BF16, 128 }, NULL, 5);
}

static void
test_some_are_kept(void)
{
    const char *const model = make_plain();
    const char *const rules = fixture_format("%s/rules", fixture_folder());
    const way nf4 = { BERTH_ENCODING_NF4, 1, -1, 0 };

    fixture_text(rules, "fp4 model.layers.1.*\nint8 model.layers.2.*\nkeep *.3.a.weight\n");
    check_kept(model, &nf4, &nf4, rules, 2);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_FP4, 1, -1, 0 }, rules, 1);
    check_kept(model, &nf4, &(way){ BERTH_ENCODING_INT8, 0, -1, 0 }, rules, 1);
}

/* The state names the dtype of the values: another one is another weight. */
static void
test_dtypes(void)
{
    const char *const model = make_plain();
    const char *const first = out();
    const way nf4 = { BERTH_ENCODING_NF4, 0, -1, 0 };
    converted c;

    begin(&c, first, &nf4);
    T_REQUIRE(has_run(&c, model));
    begin(&c, out(), &nf4);
    c.options.dtype = BERTH_F16;
    T_REQUIRE(has_run(&c, first));
    CHECK_EQ(c.report.kept, 0);
    begin(&c, out(), &nf4);
    c.options.dtype = BERTH_BF16;
    T_REQUIRE(has_run(&c, first));
    CHECK_EQ(c.report.kept, 5);
    begin(&c, out(), &nf4);
    c.options.like = "hf4"; /* loads as float16 */
    T_REQUIRE(has_run(&c, first));
    CHECK_EQ(c.report.kept, 0);
    begin(&c, out(), &nf4);
    c.options.dry_run = 1;
    T_REQUIRE(has_run(&c, first));
    CHECK_EQ(c.report.kept, 5);
}

/* -------------------------------------------------------------- malformed forms */

typedef struct form {
    uint64_t packed[2];
    const char *absmax_dtype;
    uint64_t absmax[2];
    uint32_t absmax_rank;
    const char *state;
    uint32_t nested_first; /* bits of the first value of the second-level table */
    bool is_double;
} form;

/* [4, 64] in blocks of 64. */
static const char *
make_form(const form *f)
{
    const char *const folder = fixture_folder();
    const uint64_t values = 256;
    const uint64_t one = 1;
    const uint64_t codes = 16;
    const uint64_t length = strlen(f->state);
    const float ones[4] = { 1.0f, 2.0f, 0.5f, 4.0f };
    uint32_t nested[256];
    fixture_builder *const b = fixture_begin();

    memcpy(nested, berthi_signed_map, sizeof nested);
    nested[0] = f->nested_first != 0 ? f->nested_first : nested[0];
    fixture_add(b, A, "U8", 2, f->packed, NULL);
    fixture_add(b, A ".absmax", f->absmax_dtype, f->absmax_rank, f->absmax,
                f->is_double || strcmp(f->absmax_dtype, "F32") != 0 ? NULL : ones);
    fixture_add(b, A ".quant_map", "F32", 1, &codes, NULL); /* not the published one */
    if (f->is_double) {
        fixture_add(b, A ".nested_absmax", "F32", 1, &one, ones);
        fixture_add(b, A ".nested_quant_map", "F32", 1, &values, nested);
    }
    fixture_add(b, A STATE_NF4, "U8", 1, &length, f->state);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

#define HEAD "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
#define SHAPE "\"shape\": [4, 64]"
#define NESTED(dtype)                                                                      \
    ", \"nested_blocksize\": 256, \"nested_dtype\": \"" dtype                              \
    "\", \"nested_offset\": 0.25"

static void
check_form(const form *f, uint64_t expected)
{
    const char *const folder = make_form(f);
    converted c;

    begin(&c, out(), &(way){ BERTH_ENCODING_NF4, f->is_double, -1, 0 });
    T_REQUIRE(has_run(&c, folder));
    if (!CHECK_EQ(c.report.kept, expected))
        T_NOTE("%s", f->state);
    CHECK_EQ(converted_matches_oracle(&c, folder), (int64_t)(1 - expected));
}

static void
test_malformed_forms(void)
{
    static const form forms[] = {
        { { 128, 1 }, "F32", { 4 }, 1, HEAD SHAPE "}", 0, false },
        { { 1, 128 }, "F32", { 4 }, 1, HEAD SHAPE "}", 0, false },
        { { 128, 1 }, "F32", { 4 }, 1,
          "{" SHAPE ",\n\"dtype\":\"bfloat16\", \"blocksize\": 64,\"quant_type\":\"nf4\"} ",
          0, false },
        { { 128, 1 }, "U8", { 4 }, 1, HEAD SHAPE NESTED("float32") "}", 0, true },
        { { 128, 1 }, "U8", { 4 }, 1, HEAD SHAPE NESTED("bfloat16") "}", 0, true },
        { { 128, 1 }, "U8", { 4 }, 1, HEAD SHAPE NESTED("float32") "}", 0xBF800000, true },
        { { 128, 1 }, "BF16", { 1, 4 }, 2, HEAD SHAPE "}", 0, false },
    };
    static const uint64_t kept[] = { 1, 1, 1, 1, 0, 0, 0 };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        check_form(&forms[i], kept[i]);
}

/* Old files do not say how rows lie. */
static void
test_int8_without_a_format(void)
{
    const char *const folder = fixture_folder();
    const uint64_t shape[2] = { 65, 3 };
    fixture_builder *const b = fixture_begin();
    converted c;
    char *text;

    fixture_add(b, "model.layers.0.a.weight", "I8", 2, shape, NULL);
    fixture_add(b, "model.layers.0.a.SCB", "F32", 1, shape, NULL);
    fixture_add_int8(b, "model.layers.1.a", 300, 1); /* more statistics than codes */
    fixture_add_lines(b, OTHERS);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    begin(&c, out(), &(way){ BERTH_ENCODING_INT8, 0, -1, 0 });
    converted_shrink(&c, 64);
    T_REQUIRE(has_run(&c, folder));
    CHECK_EQ(c.report.kept, 2);
    CHECK_EQ(converted_matches_oracle(&c, folder), 0);
    text = fixture_read(fixture_format("%s/model.safetensors", c.options.output), NULL);
    CHECK(strstr(text + 8, "model.layers.0.a.weight_format") != NULL);
    free(text);
}

/* ------------------------------------------------------------------- non-finite */

static const char *
make_nonfinite(void)
{
    const char *const folder = fixture_folder();
    const uint64_t shape[2] = { 4, 8 };
    const uint32_t maxima[4] = { 0x7F800000, 0x3F800000, 0x7FC00000, 0xFF800000 };
    const uint8_t format = 0;
    fixture_builder *const b = fixture_begin();

    fixture_add(b, A, "I8", 2, shape, NULL);
    fixture_add(b, "model.layers.0.a.SCB", "F32", 1, shape, maxima);
    fixture_add(b, "model.layers.0.a.weight_format", "U8", 0, NULL, &format);
    fixture_add_int8(b, "model.layers.1.b", 3, 700);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

static void
test_nonfinite_statistics(void)
{
    const char *const folder = make_nonfinite();
    converted c;

    begin(&c, out(), &(way){ BERTH_ENCODING_INT8, 0, -1, 0 });
    T_REQUIRE(has_run(&c, folder));
    CHECK_EQ(c.report.kept, 2);
    CHECK_EQ(c.report.nonfinite_tensors, 1);
    CHECK_EQ(c.report.nonfinite_values, 3);
    CHECK_CONTAINS(c.finding.message,
                   "1 NaN and 2 infinite values among its statistics");
    begin(&c, out(), &(way){ BERTH_ENCODING_INT8, 0, -1, 0 });
    c.options.reject_nonfinite = 1;
    CHECK(converted_run(&c, folder) != BERTH_OK);
    CHECK_EQ(c.error.reason, BERTH_REASON_NONFINITE);
    CHECK_STR(c.error.tensor, A);
}

/* An offset that is none makes every value one. */
static void
test_nonfinite_offset(void)
{
    const form forms[] = {
        { { 128, 1 }, "U8", { 4 }, 1,
          HEAD SHAPE ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
                     "\"nested_offset\": NaN}", 0, true },
        { { 128, 1 }, "U8", { 4 }, 1,
          HEAD SHAPE ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
                     "\"nested_offset\": -Infinity}", 0, true },
    };

    for (int i = 0; i < 2; i++) {
        converted c;

        begin(&c, out(), &(way){ BERTH_ENCODING_NF4, 1, -1, 0 });
        T_REQUIRE(has_run(&c, make_form(&forms[i])));
        CHECK_EQ(c.report.kept, 1);
        CHECK_EQ(c.report.nonfinite_values, 1);
        CHECK_CONTAINS(c.finding.message, i == 0 ? "1 NaN and 0" : "0 NaN and 1");
    }
}

/* ----------------------------------------------------------------------- faults */

typedef struct again {
    converted *c;
    const char *model;
} again;

static berth_status
convert_again(void *user, berth_context *context, berth_error *error)
{
    const again *const a = user;
    const berth_status status = converted_run_in(a->c, context, a->model);

    *error = a->c->error;
    fixture_remove(a->c->options.output);
    return status;
}

static void
test_faults(void)
{
    const form f = { { 128, 1 }, "U8", { 4 }, 1, HEAD SHAPE NESTED("float32") "}", 0,
                     true };
    converted c;
    again a = { &c, make_form(&f) };

    begin(&c, out(), &ways[1]);
    c.options.workers = 1;
    converted_shrink(&c, 64);
    CHECK_GT(fault_loop("kept", convert_again, &a).memory, 50);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_all_bytes_go_through);
    T_RUN(test_they_would_change);
    T_RUN(test_only_the_same_is_kept);
    T_RUN(test_some_are_kept);
    T_RUN(test_dtypes);
    T_RUN(test_malformed_forms);
    T_RUN(test_int8_without_a_format);
    T_RUN(test_nonfinite_statistics);
    T_RUN(test_nonfinite_offset);
    T_RUN(test_faults);
    T_MAIN_END;
}
