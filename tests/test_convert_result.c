/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_result.c - an output that is complete already: the same command
 * with `resume` has nothing to do, any other one is refused.
 */
#define _XOPEN_SOURCE 700

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MANIFEST "berth.manifest.json"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static bool
exists(const char *path)
{
    struct stat state;

    return lstat(path, &state) == 0;
}

/* NF4 into a new folder; `shard_bytes`: 0 for one shard. */
static const char *
convert(converted *c, const char *model, uint64_t shard_bytes)
{
    const char *const out = in(fixture_folder(), "out");

    converted_begin(c, out, BERTH_ENCODING_NF4);
    c->options.max_shard_bytes = shard_bytes;
    if (!CHECK_EQ(converted_run(c, model), BERTH_OK))
        T_NOTE("%s", c->error.message);
    return out;
}

/* Nothing is read, nothing is written, and all files are the same ones. */
static void
check_done(converted *c, const char *model, const char *file)
{
    const char *const path = in(c->options.output, file);
    struct stat before;
    struct stat after;

    CHECK_EQ(stat(path, &before), 0);
    c->options.resume = 1;
    if (!CHECK_EQ(converted_run(c, model), BERTH_OK))
        T_NOTE("%s", c->error.message);
    CHECK_EQ(c->report.bytes_read, 0);
    CHECK_EQ(c->report.bytes_written, 0);
    CHECK_EQ(stat(path, &after), 0);
    CHECK_EQ(before.st_ino, after.st_ino);
    c->options.resume = 0;
}

static void
check_refused(converted *c, const char *model, const char *why)
{
    c->options.resume = 1;
    CHECK_EQ(converted_run(c, model), BERTH_EINVAL);
    CHECK_EQ(c->error.reason, BERTH_REASON_EXISTS);
    CHECK_CONTAINS(c->error.message, why);
    c->options.resume = 0;
}

static void
test_one_shard(void)
{
    const char *const model = converted_make_model(1, 2, false, false);
    converted c;
    const char *const out = convert(&c, model, 0);

    check_done(&c, model, "model.safetensors");
    CHECK_EQ(c.report.bytes_resumed, fixture_size(in(out, "model.safetensors")));
    CHECK_EQ(c.report.shards, 1);
    CHECK(converted_is_verified(out));
    /* Without `resume` it is there already. */
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_EXISTS);
}

static void
test_shards(void)
{
    const char *const model = converted_make_model(2, 3, false, false);
    const char *const index = "model.safetensors.index.json";
    const char *shard = NULL;
    converted c;
    const char *const out = convert(&c, model, 4096);

    T_REQUIRE(c.report.shards > 1);
    shard = fixture_format("model-00001-of-%05u.safetensors", c.report.shards);
    check_done(&c, model, shard);
    /* What is not complete is not done. */
    CHECK_EQ(rename(in(out, index), in(out, "away")), 0);
    check_refused(&c, model,
                  "finished, but \"model.safetensors.index.json\" is not there any more");
    CHECK_EQ(rename(in(out, "away"), in(out, index)), 0);
    check_done(&c, model, index);
    CHECK_EQ(rename(in(out, shard), in(out, "away")), 0);
    check_refused(&c, model, shard);
    fixture_make_folder(in(out, shard));
    check_refused(&c, model, shard);
    fixture_remove(in(out, shard));
    CHECK_EQ(rename(in(out, "away"), in(out, shard)), 0);
    CHECK_EQ(truncate(in(out, shard), 100), 0);
    check_refused(&c, model, shard);
}

/* Nothing has to be written, so it may be read-only, for what is tried, too. */
static void
test_read_only(void)
{
    const mode_t mask = umask(022); /* so that others can read what is made */
    const char *const model = converted_make_model(1, 2, false, false);
    const bool is_root = geteuid() == 0; /* who may write anywhere */
    converted c;
    const char *const out = convert(&c, model, 0);

    CHECK_EQ(chmod(in(out, "../.."), 0711), 0);
    CHECK_EQ(chmod(in(out, ".."), 0755), 0);
    CHECK_EQ(chmod(model, 0755), 0);
    CHECK_EQ(chmod(out, 0555), 0);
    CHECK_EQ(is_root ? seteuid(65534) : 0, 0);
    check_done(&c, model, "model.safetensors");
    c.options.dry_run = 1;
    check_done(&c, model, "model.safetensors");
    CHECK_EQ(is_root ? seteuid(0) : 0, 0);
    CHECK_EQ(chmod(out, 0755), 0);
    (void)umask(mask);
}

/* The journal of a run that was broken off at its very end goes first. */
static void
test_with_a_journal(void)
{
    const char *const model = converted_make_model(3, 1, false, false);
    converted c;
    const char *const out = convert(&c, model, 0);

    fixture_text(in(out, ".berth-journal.json"), "no journal");
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_EFORMAT);
    CHECK_EQ(c.error.reason, BERTH_REASON_JOURNAL);
}

static void
test_another_job(void)
{
    const char *const model = fixture_folder();
    const struct timespec times[2] = { { 7, 7 }, { 7, 7 } };
    converted c;

    fixture_model(model, "[model.safetensors]\nBF16 32x64 model.layers.0.a.weight\n");
    convert(&c, model, 0);
    c.options.type = BERTH_ENCODING_FP4;
    check_refused(&c, model, "of another command: there \"type nf4\", now \"type fp4\"");
    c.options.type = BERTH_ENCODING_NF4;
    c.options.double_quant = 1;
    check_refused(&c, model,
                  "there \"double quantization 0\", now \"double quantization 1\"");
    c.options.double_quant = 0;
    c.options.max_shard_bytes = 4096;
    check_refused(&c, model,
                  "there \"bytes of a shard 5000000000\", now \"bytes of a shard 4096\"");
    c.options.max_shard_bytes = 0;
    check_done(&c, model, MANIFEST);
    /* A source that was written since then. */
    CHECK_EQ(utimensat(AT_FDCWD, in(model, "model.safetensors"), times, 0), 0);
    check_refused(&c, model,
                  "\"model.safetensors\" is not what that was made from: it was "
                  "written since");
}

/* No manifest, a broken one, one that tells of no job or of more than is there. */
static void
test_manifests(void)
{
    const char *const model = converted_make_model(5, 1, false, false);
    converted c;
    const char *const out = convert(&c, model, 0);
    const char *const path = in(out, MANIFEST);
    char *const text = fixture_read(path, NULL);
    const char *const job = strstr(text, "\"job\"");
    const char *const shards = strstr(text, "\"shards\"");

    T_REQUIRE(job != NULL && shards != NULL);
    CHECK_CONTAINS(text, "\"job\": \"type nf4\\ndtype of the model\\nblock size 64\\n");
    fixture_remove(path);
    check_refused(&c, model, "is there already and not empty");
    fixture_text(path, "{");
    check_refused(&c, model, "is there already and not empty");
    fixture_text(path, fixture_format("%.*s%s", (int)(job - text), text, shards));
    check_refused(&c, model, "is there already and not empty");
    fixture_text(path,
                 fixture_format("%.*s\"shards\": []}\n", (int)(shards - text), text));
    check_refused(&c, model, "is there already and not empty");
    fixture_text(path, text);
    check_done(&c, model, MANIFEST);
    free(text);
}

/* Who refuses NaN is not content with a result that has some. */
static void
test_nonfinite(void)
{
    const char *const model = converted_make_model(6, 2, true, false);
    converted c;
    const char *const out = convert(&c, model, 0);
    char *const text = fixture_read(in(out, MANIFEST), NULL);

    T_REQUIRE(c.findings > 0);
    CHECK_CONTAINS(text, "nonfinite weights ");
    free(text);
    check_done(&c, model, MANIFEST);
    c.options.reject_nonfinite = 1;
    check_refused(&c, model, "holds a finished model with values that are not finite");
}

/* Stands in the way of the last file, when everything has been checked. */
static const char *obstacle;

static void
put_obstacle(void *user, const berth_coverage *line)
{
    (void)user;
    (void)line;
    if (obstacle != NULL)
        fixture_make_folder(obstacle);
    obstacle = NULL;
}

/* Beside the source something else lies when a run goes on that had all but the names. */
static void
test_side_files_that_are_gone(void)
{
    const char *const model = converted_make_model(8, 2, false, false);
    const char *const out = fixture_folder();
    const char *const single = in(out, "model.safetensors");
    converted c;

    fixture_text(in(model, "gone.json"), "{}");
    fixture_text(in(model, "templates"), "a file");
    converted_begin(&c, out, BERTH_ENCODING_NF4);
    c.options.max_shard_bytes = 0;
    c.options.overwrite = 1;
    c.options.coverage = put_obstacle;
    obstacle = single;
    CHECK_NE(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.error.reason, BERTH_REASON_NOT_REGULAR);
    T_REQUIRE(exists(in(out, ".berth-journal.json")));
    fixture_remove(single);
    fixture_remove(in(model, "gone.json"));
    fixture_remove(in(model, "templates"));
    fixture_text(in(model, "templates/a.jinja"), "a file in a folder");
    c.options.coverage = NULL;
    c.options.resume = 1;
    if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
        T_NOTE("%s", c.error.message);
    CHECK_EQ(c.report.bytes_resumed, fixture_size(single));
    CHECK(!exists(in(out, "gone.json")));
    CHECK(exists(in(out, "templates/a.jinja")));
    CHECK(converted_is_verified(out));
}

/* Goes on with a finished output: done, and this said of files beside the weights. */
static void
check_told(converted *c, const char *model, const char *name, const char *words)
{
    check_done(c, model, MANIFEST);
    if (!CHECK_EQ(c->findings, name == NULL ? 0 : 1) || name == NULL)
        return;
    CHECK_STR(c->finding.file, in(model, name));
    CHECK_CONTAINS(c->finding.message, words);
}

/* A new chat template, say: weights need not be converted again, but somebody has to know. */
static void
test_side_files_that_are_others(void)
{
    const char *const model = converted_make_model(9, 1, false, false);
    converted c;

    fixture_text(in(model, "a.json"), "{}");
    fixture_text(in(model, "config.json"), "{\"torch_dtype\": \"bfloat16\"}");
    fixture_text(in(model, "d.json"), "{}");
    convert(&c, model, 0);
    check_told(&c, model, NULL, NULL);
    fixture_text(in(model, "d.json"), "[]");
    check_told(&c, model, "d.json", "is not what went into the output");
    fixture_text(in(model, "d.json"), "{}");
    check_told(&c, model, NULL, NULL);
    fixture_text(in(model, "b/c.json"), "{}");
    check_told(&c, model, "b/c.json", "is not what went into the output");
    fixture_text(in(model, "a.json"), "{ }");
    check_told(&c, model, "a.json", "one of 2 such files");
    fixture_text(in(model, "a.json"), "{}");
    fixture_remove(in(model, "b/c.json"));
    fixture_remove(in(model, "d.json")); /* it is still there in the output */
    fixture_text(in(model, "config.json"), "{\"torch_dtype\": \"bfloat16\", \"a\": 1}");
    check_told(&c, model, "config.json", "is not what went into the output");
}

typedef struct again {
    converted *c;
    const char *model;
} again;

static berth_status
resume_once(void *user, berth_context *with, berth_error *error)
{
    const again *const a = user;
    const berth_status status = converted_run_in(a->c, with, a->model);

    *error = a->c->error;
    return status;
}

static void
test_faults(void)
{
    const char *const model = converted_make_model(7, 1, false, false);
    converted c;
    again a = { &c, model };

    fixture_text(in(model, "config.json"), "{}");
    fixture_text(in(model, "tokenizer.json"), "{}");
    convert(&c, model, 0);
    fixture_text(in(model, "tokenizer.json"), "[]"); /* which is told */
    c.options.resume = 1;
    /* What cannot be read is not there: then the output exists. */
    CHECK_GT(fault_loop("a result that is there", resume_once, &a).system, 3);
    CHECK(converted_is_verified(c.options.output));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_one_shard);
    T_RUN(test_shards);
    T_RUN(test_read_only);
    T_RUN(test_with_a_journal);
    T_RUN(test_another_job);
    T_RUN(test_manifests);
    T_RUN(test_nonfinite);
    T_RUN(test_side_files_that_are_gone);
    T_RUN(test_side_files_that_are_others);
    T_RUN(test_faults);
    T_MAIN_END;
}
