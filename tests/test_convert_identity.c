/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_identity.c - an interrupted run goes on with the same command only,
 * and the message names the option that is another.
 */
#define _XOPEN_SOURCE 700

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define C "model.layers.2.c.weight"
#define JOURNAL ".berth-journal.json"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static const char *
make(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model.safetensors]\nF32 32x64 " A " = 1\nF32 8x64 " B
                          " = 1\nF32 8x64 " C " = 1\nF32 9 model.norm.weight\n");
    return folder;
}

/*
 * A folder as a run of this job leaves it that was interrupted before its first
 * shard was finished: nothing but a journal.
 */
static const char *
interrupt(const converted *like, const char *model)
{
    const char *const folder = fixture_folder();
    converted c = *like;
    char *manifest;
    char *job;

    c.options.output = in(fixture_folder(), "out");
    c.options.report = NULL;
    c.options.finding_user = &c;
    c.options.coverage_user = &c;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    manifest = fixture_read(in(c.options.output, "berth.manifest.json"), NULL);
    job = strstr(manifest, "\"job\": ");
    if (!CHECK(job != NULL))
        abort();
    *strchr(job, '\n') = '\0';
    fixture_text(in(folder, JOURNAL),
                 fixture_format("{\n\"schema_version\": 1,\n\"writer\": \"berth\",\n%s\n"
                                "\"state\": \"writing\",\n\"overwrite\": false,\n"
                                "\"commit\": \"\",\n\"stale\": [],\n\"files\": []\n}\n",
                                job));
    free(manifest);
    return folder;
}

typedef void (*change_function)(berth_convert_options *options);

static void
check_named(int32_t type, change_function before, change_function after,
            const char *there, const char *now)
{
    const char *const model = make();
    converted c;

    converted_begin(&c, NULL, type);
    if (before != NULL)
        before(&c.options);
    c.options.output = interrupt(&c, model);
    converted_begin(&c, c.options.output, type);
    if (after != NULL)
        after(&c.options);
    c.options.resume = 1;
    for (int dry = 1; dry >= 0; dry--) {
        c.options.dry_run = dry;
        CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
        CHECK_EQ(c.error.reason, BERTH_REASON_ARGUMENT);
        CHECK_STR(c.error.file, c.options.output);
        CHECK_STR(c.error.message,
                  fixture_format("holds an interrupted run of another command: there \"%s\", "
                                 "now \"%s\"; give what was given then, or --force to begin "
                                 "anew",
                                 there, now));
        CHECK_EQ(fixture_count(c.options.output), 1);
    }
    /* The same command goes on. */
    converted_begin(&c, c.options.output, type);
    if (before != NULL)
        before(&c.options);
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK(converted_is_verified(c.options.output));
}

#define CHANGE(name, change)                      \
    static void name(berth_convert_options *o)    \
    {                                             \
        change;                                   \
    }

static const char *const a_glob[] = { A };
static const char *const b_glob[] = { B };
static const char *const ab_globs[] = { A, B };
static const char *const a_module[] = { "model.layers.0" };
static const char *rules_of_a;
static const char *rules_of_b;
static const char *rules_of_nf4;

CHANGE(take_fp4, o->type = BERTH_ENCODING_FP4)
CHANGE(take_f16, o->dtype = BERTH_F16)
CHANGE(take_blocks, o->block_size = 128)
CHANGE(take_double, o->double_quant = 1)
CHANGE(take_storage, o->storage = BERTH_BF16)
CHANGE(take_hf5_14, o->like = "hf5.14")
CHANGE(take_hf5, o->like = "hf5")
CHANGE(take_experts, o->takes_experts = 1)
CHANGE(take_no_skips, o->has_skips = 1)
CHANGE(take_skip, (o->has_skips = 1, o->skip_count = 1, o->skip_modules = a_module))
CHANGE(keep_a, (o->keep = a_glob, o->keep_count = 1))
CHANGE(keep_b, (o->keep = b_glob, o->keep_count = 1))
CHANGE(keep_both, (o->keep = ab_globs, o->keep_count = 2))
CHANGE(only_a, (o->only = a_glob, o->only_count = 1))
CHANGE(only_b, (o->only = b_glob, o->only_count = 1))
CHANGE(rule_a, o->rules = rules_of_a)
CHANGE(rule_b, o->rules = rules_of_b)
CHANGE(rule_nf4, o->rules = rules_of_nf4)
CHANGE(rule_nf4_blocks, (o->rules = rules_of_nf4, o->block_size = 128))
CHANGE(compute_bf16, o->compute_dtype = "bfloat16")
CHANGE(compute_f32, o->compute_dtype = "float32")
CHANGE(small_shards, o->max_shard_bytes = 4096)

static void
test_options(void)
{
    const int nf4 = BERTH_ENCODING_NF4;

    rules_of_a = in(fixture_folder(), "rules");
    rules_of_b = in(fixture_folder(), "rules");
    fixture_text(rules_of_a, "keep " A "\n");
    fixture_text(rules_of_b, "# the other\nkeep   " B "\n");
    check_named(nf4, NULL, take_fp4, "type nf4", "type fp4");
    check_named(nf4, NULL, take_f16, "dtype of the model", "dtype F16");
    check_named(nf4, take_blocks, NULL, "block size 128", "block size 64");
    check_named(nf4, take_double, NULL, "double quantization 1", "double quantization 0");
    check_named(nf4, NULL, take_storage, "storage U8", "storage BF16");
    check_named(nf4, NULL, take_hf5_14, "like hf5", "like hf5.14");
    check_named(nf4, take_experts, NULL, "experts 1", "experts 0");
    check_named(nf4, NULL, take_no_skips, "modules to skip automatic",
                "modules to skip 0");
    check_named(nf4, take_skip, take_no_skips, "modules to skip 1", "modules to skip 0");
    check_named(nf4, NULL, keep_a, "globs to keep 0", "globs to keep 1");
    check_named(nf4, keep_b, keep_a, "keep " B, "keep " A);
    check_named(nf4, keep_both, keep_a, "globs to keep 2", "globs to keep 1");
    check_named(nf4, only_a, NULL, "globs of the only ones 1", "globs of the only ones 0");
    check_named(nf4, only_a, only_b, "only " A, "only " B);
    check_named(nf4, NULL, rule_a, "rules 0", "rules 1");
    check_named(nf4, rule_b, rule_a, "rule keep " B, "rule keep " A);
    check_named(nf4, compute_bf16, NULL, "compute dtype bfloat16",
                "compute dtype float32");
    check_named(nf4, NULL, small_shards, "bytes of a shard 5000000000",
                "bytes of a shard 4096");
}

static void
test_other_types(void)
{
    check_named(BERTH_ENCODING_INT8, NULL, take_experts, "experts 0", "experts 1");
    check_named(BERTH_ENCODING_INT8, NULL, take_fp4, "type int8", "type fp4");
    /* Rules may ask for 4-bit weights beside those of 8 bits. */
    rules_of_nf4 = in(fixture_folder(), "rules");
    fixture_text(rules_of_nf4, "nf4 " A "\n");
    check_named(BERTH_ENCODING_INT8, rule_nf4, rule_nf4_blocks, "block size 64",
                "block size 128");
    check_named(BERTH_ENCODING_NATIVE, NULL, take_f16, "dtype of the model", "dtype F16");
    check_named(BERTH_ENCODING_NATIVE, NULL, small_shards, "bytes of a shard 5000000000",
                "bytes of a shard 4096");
}

/* Options that change nothing, and defaults that are spelled out. */
static void
test_same_job(void)
{
    const char *const model = make();
    converted c;

    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.output = interrupt(&c, model);
    converted_begin(&c, c.options.output, BERTH_ENCODING_NF4);
    take_hf5(&c.options);
    compute_f32(&c.options);
    c.options.block_size = 64;
    c.options.storage = BERTH_U8;
    c.options.workers = 3;
    c.options.io = BERTH_IO_BUFFERED;
    c.options.max_shard_bytes = 5000000000;
    c.options.min_coverage = 1;
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
}

static void
check_source(void (*change)(const char *shard))
{
    const char *const model = make();
    converted c;

    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.output = interrupt(&c, model);
    change(in(model, "model.safetensors"));
    converted_begin(&c, c.options.output, BERTH_ENCODING_NF4);
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(c.error.message, "holds an interrupted run, and \"model.safetensors\" of the "
                               "model is not what it read: it was written since, or is another "
                               "model's; --force begins anew");
}

static void
touch(const char *shard)
{
    const struct timespec times[2] = { { 7, 7 }, { 7, 7 } };

    CHECK_EQ(utimensat(AT_FDCWD, shard, times, 0), 0);
}

static void
make_longer(const char *shard)
{
    fixture_file(shard, "F32 32x64 " A "\nF32 8x64 " B "\nF32 8x65 " C
                        "\nF32 9 model.norm.weight\n");
}

static void
test_source(void)
{
    check_source(touch);
    check_source(make_longer);
}

/* What no other line tells. */
static void
test_decisions(void)
{
    const char *const model = make();
    converted c;

    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.output = interrupt(&c, model);
    {
        char *const journal = fixture_read(in(c.options.output, JOURNAL), NULL);
        char *const decisions = strstr(journal, "decisions ");

        T_REQUIRE(decisions != NULL);
        /* The last line. */
        CHECK(strstr(decisions, "\\n") != NULL && strstr(decisions, "\\n")[2] == '"');
        decisions[strlen("decisions ")] ^= 1;
        fixture_text(in(c.options.output, JOURNAL), journal);
        free(journal);
    }
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK_CONTAINS(c.error.message, "there \"decisions ");
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_options);
    T_RUN(test_other_types);
    T_RUN(test_same_job);
    T_RUN(test_source);
    T_RUN(test_decisions);
    T_MAIN_END;
}
