/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_errors.c - what cannot be converted, and what the output may not
 * be: said before anything is written, and nothing is left.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define TWO "BF16 33x70 " A "\nBF16 8x64 " B "\nF32 9 model.norm.weight\n"

static const char *
make(const char *lines)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s", lines));
    return folder;
}

static const char *
out(void)
{
    return fixture_format("%s/out", fixture_folder());
}

static bool
exists(const char *path)
{
    struct stat state;

    return lstat(path, &state) == 0;
}

/* Fails so, and leaves nothing. */
static void
check_failure(converted *c, const char *model, berth_status status, berth_reason reason,
              const char *tensor, const char *words)
{
    const bool was_there = exists(c->options.output);
    const int files = fixture_count(c->options.output);

    CHECK_EQ(converted_run(c, model), status);
    CHECK_STR(berth_reason_name(c->error.reason), berth_reason_name((int32_t)reason));
    CHECK_STR(c->error.tensor, tensor);
    CHECK_CONTAINS(c->error.message, words);
    CHECK_EQ(exists(c->options.output), was_there);
    CHECK_EQ(fixture_count(c->options.output), files);
}

/* -------------------------------------------------------------------- arguments */

static void
check_argument(const berth_convert_options *options, const char *words)
{
    const char *const model = make(TWO);
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_job *job = (berth_job *)&job;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, model, NULL, &checkpoint, &error), BERTH_OK);
    CHECK_EQ(berth_convert_start(context, checkpoint, options, &job, &error), BERTH_EINVAL);
    CHECK(job == NULL);
    CHECK_CONTAINS(error.message, words);
    CHECK_EQ(berth_convert_start(context, checkpoint, options, &job, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_convert_start(context, checkpoint, options, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_job");
    CHECK_EQ(berth_convert_start(NULL, checkpoint, options, &job, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "context");
    CHECK_EQ(berth_convert_start(context, NULL, options, &job, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "checkpoint");
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

static void
test_arguments(void)
{
    converted c;

#define CHECK_ARGUMENT(member, value, words)              \
    do {                                                  \
        converted_begin(&c, out(), BERTH_ENCODING_NF4);   \
        c.options.member = value;                         \
        check_argument(&c.options, words);                \
    } while (0)
    CHECK_ARGUMENT(output, NULL, "has no output");
    CHECK_ARGUMENT(output, "", "has no output");
    CHECK_ARGUMENT(type, BERTH_ENCODING_NATIVE - 1, "has a type");
    CHECK_ARGUMENT(type, BERTH_ENCODING_INT8 + 1, "has a type");
    CHECK_ARGUMENT(dtype, BERTH_I32, "has a dtype");
    CHECK_ARGUMENT(dtype, -2, "has a dtype");
    CHECK_ARGUMENT(keep_count, 1, "NULL");
    CHECK_ARGUMENT(only_count, 1, "NULL");
    CHECK_ARGUMENT(skip_count, 1, "NULL");
    CHECK_ARGUMENT(block_size, 48, "has a block_size");
    CHECK_ARGUMENT(block_size, 16, "has a block_size");
    CHECK_ARGUMENT(block_size, 8192, "has a block_size");
    for (int32_t type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++)
        if (type != BERTH_ENCODING_NF4 && type != BERTH_ENCODING_FP4)
            CHECK_ARGUMENT(double_quant, (c.options.type = type, 1), "is for nf4 and fp4");
    CHECK_ARGUMENT(max_shard_bytes, 4095, "has shards of less");
    CHECK_ARGUMENT(min_coverage, 1000000001, "has a min_coverage of more than all");
    CHECK_ARGUMENT(io, 3, "has an unknown io");
    CHECK_ARGUMENT(io, -1, "has an unknown io");
    CHECK_ARGUMENT(like, "hf3", "is none of");
    CHECK_ARGUMENT(reserved32, 1, "that this library does not know");
    CHECK_ARGUMENT(struct_size, 3, "");
}

/* Without an error to fill, too. */
static void
test_no_error_wanted(void)
{
    const char *const model = make(TWO);
    converted c;
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_job *job;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, model, NULL, &checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berth_convert_start(context, checkpoint, &c.options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    fixture_remove(c.options.output);
    fixture_truncate(fixture_format("%s/model.safetensors", model), 1);
    CHECK_EQ(berth_convert_start(context, checkpoint, &c.options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_EIO);
    CHECK(!exists(c.options.output));
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------ the output */

static void
check_output(const char *model, const char *output, const char *words)
{
    converted c;

    converted_begin(&c, output, BERTH_ENCODING_NF4);
    c.options.overwrite = 1;
    check_failure(&c, model, BERTH_EINVAL, BERTH_REASON_ARGUMENT, "", words);
    CHECK_STR(c.error.file, output);
}

static void
test_output_and_source(void)
{
    const char *const above = fixture_folder();
    const char *const model = fixture_format("%s/models/a", above);
    const char *const link = fixture_format("%s/link", above);
    converted c;
    char *before;
    char *after;
    size_t bytes;

    fixture_model(model, "[model.safetensors]\n" TWO);
    fixture_make_folder(fixture_format("%s/sub/deep", model));
    fixture_link(model, link);
    before = fixture_read(fixture_format("%s/model.safetensors", model), &bytes);
    check_output(model, model, "is the folder of the model");
    check_output(model, fixture_format("%s/", model), "is the folder of the model");
    check_output(model, link, "is the folder of the model");
    check_output(link, model, "is the folder of the model");
    check_output(model, fixture_format("%s/sub", model), "lies in the folder");
    check_output(model, fixture_format("%s/sub/deep", model), "lies in the folder");
    check_output(model, fixture_format("%s/new", model), "lies in the folder");
    check_output(model, fixture_format("%s/new//", model), "lies in the folder");
    check_output(model, fixture_format("%s/sub/deep/new", link), "lies in the folder");
    check_output(model, fixture_format("%s/models", above), "holds the folder");
    check_output(model, above, "holds the folder");
    check_output(model, "/", "holds the folder");
    after = fixture_read(fixture_format("%s/model.safetensors", model), NULL);
    CHECK_MEM(after, before, bytes);
    free(before);
    free(after);
    /* Beside a file that was named there may be anything. */
    converted_begin(&c, fixture_format("%s/new", model), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, fixture_format("%s/model.safetensors", model)), BERTH_OK);
    check_output(fixture_format("%s/model.safetensors", model), model,
                 "is the folder of the model");
    converted_begin(&c, fixture_format("%s/models/b", above), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
}

/* Only links bring them into the model's folder: what replaces an older model would be theirs. */
static void
test_source_behind_links(void)
{
    static const char *const names[] = { "model.safetensors.index.json",
                                         "model-1.safetensors", "model-2.safetensors" };
    const char *const above = fixture_folder();
    const char *const real = fixture_format("%s/real/a", above);
    const char *const farm = fixture_format("%s/farm", above);
    const char *const link = fixture_format("%s/x.safetensors", above);
    char *before;
    char *after;
    size_t bytes;
    converted c;

    fixture_model(real, "[model-1.safetensors]\n" TWO "[model-2.safetensors]\nBF16 4 c\n");
    fixture_make_folder(farm);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        fixture_link(fixture_format("%s/%s", real, names[i]),
                     fixture_format("%s/%s", farm, names[i]));
    fixture_link(fixture_format("%s/%s", real, names[2]), link);
    before = fixture_read(fixture_format("%s/%s", real, names[2]), &bytes);
    check_output(farm, real, "holds files of the model");
    check_output(farm, fixture_format("%s/real", above), "holds files of the model");
    check_output(link, real, "holds files of the model");
    after = fixture_read(fixture_format("%s/%s", real, names[2]), NULL);
    CHECK_MEM(after, before, bytes);
    free(before);
    free(after);
    /* They stay as they are beside what is made elsewhere. */
    converted_begin(&c, fixture_format("%s/real/new", above), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, farm), BERTH_OK);
}

/* What describes the weights would describe others' from then on. */
static void
test_description_behind_links(void)
{
    static const char *const names[] = { "config.json", "model.safetensors.index.json",
                                         "berth.manifest.json" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const above = fixture_folder();
        const char *const base = fixture_format("%s/base", above);
        const char *const model = fixture_format("%s/model", above);

        fixture_model(base, "[model-1.safetensors]\n" TWO "[model-2.safetensors]\nBF16 4 c\n");
        fixture_model(model, "[model-1.safetensors]\n" TWO "[model-2.safetensors]\nBF16 4 c\n");
        fixture_text(fixture_format("%s/config.json", base), "{}");
        (void)loaded_manifest(base);
        (void)loaded_manifest(model);
        fixture_remove(fixture_format("%s/%s", model, names[i]));
        fixture_link(fixture_format("%s/%s", base, names[i]),
                     fixture_format("%s/%s", model, names[i]));
        check_output(model, base, "holds files of the model");
    }
}

static void
test_output_that_is_there(void)
{
    const char *const model = make(TWO);
    const char *const output = fixture_folder();
    converted c;

    converted_begin(&c, output, BERTH_ENCODING_NF4);
    fixture_text(fixture_format("%s/notes", output), "mine");
    check_failure(&c, model, BERTH_EINVAL, BERTH_REASON_EXISTS, "", "not empty");
    c.options.overwrite = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK(exists(fixture_format("%s/notes", output)));
    CHECK(exists(fixture_format("%s/model.safetensors", output)));

    converted_begin(&c, fixture_format("%s/notes", output), BERTH_ENCODING_NF4);
    CHECK_NE(converted_run(&c, model), BERTH_OK);
    CHECK_CONTAINS(c.error.file, "notes");
    converted_begin(&c, fixture_format("%s/no/such", output), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_ENOENT);
    CHECK(!exists(fixture_format("%s/no", output)));
}

static void
test_output_in_the_hub_cache(void)
{
    const char *const cache = fixture_folder();
    const char *const model = make(TWO);
    const char *const other = fixture_folder();
    const char *snapshot;
    converted c;

    fixture_model(other, "[model.safetensors]\n" TWO);
    snapshot = fixture_hub(cache, "org/name", FIXTURE_COMMIT, other);
    converted_begin(&c, snapshot, BERTH_ENCODING_NF4);
    c.options.overwrite = 1;
    CHECK_NE(converted_run(&c, model), BERTH_OK);
    CHECK_CONTAINS(c.error.message, "cache");
}

static void
test_dry_run_writes_nothing(void)
{
    const char *const model = make(TWO);
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.dry_run = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK(!exists(c.options.output));
    CHECK_EQ(c.report.shards, 1);
    CHECK_EQ(c.report.bytes_written, 0);
    CHECK_EQ(c.report.bytes_read, 0);
    CHECK_GT(c.report.planned_bytes, 0);
    CHECK_GT(c.report.planned_memory, 0);
    CHECK_EQ(c.report.quantized, 2);
    CHECK_GE(c.lines, 2);
}

/* ------------------------------------------------------------------- the source */

static void
test_foreign_methods(void)
{
    const char *const model = make("I32 8x64 model.layers.0.a.qweight\n"
                                   "I32 1x8 model.layers.0.a.qzeros\n"
                                   "F16 1x64 model.layers.0.a.scales\n"
                                   "I32 64 model.layers.0.a.g_idx\n" TWO);
    converted c;

    fixture_text(fixture_format("%s/config.json", model),
                 "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                 "\"group_size\": 64}}");
    for (int type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
        converted_begin(&c, out(), type);
        check_failure(&c, model, BERTH_EUNSUPPORTED, BERTH_REASON_QUANT_METHOD,
                      "model.layers.0.a.qweight", "gptq");
    }
}

/* Methods whose weights no name or shape tells: what is left of others is a plain model. */
static void
test_unknown_methods(void)
{
    const char *const model = make("I64 64 model.layers.0.a.dense_weights\n" TWO);
    converted c;

    fixture_text(fixture_format("%s/config.json", model),
                 "{\"quantization_config\": {\"quant_method\": \"spqr\"}}");
    for (int type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
        converted_begin(&c, out(), type);
        check_failure(&c, model, BERTH_EUNSUPPORTED, BERTH_REASON_QUANT_METHOD,
                      "model.layers.0.a.dense_weights", "quantized by \"spqr\"");
    }
    fixture_file(fixture_format("%s/model.safetensors", model),
                 "I64 1x64 model.embeddings.position_ids\nI64 - model.n.num_batches_tracked\n"
                 "BOOL 4 model.mask\n" TWO);
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.quantized, 2);
}

/* What its weights are decoded with lies elsewhere: their codes are no numbers. */
static void
check_in_pieces(const char *path)
{
    converted c;

    for (int type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
        converted_begin(&c, out(), type);
        check_failure(&c, path, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED, "",
                      "is one of several shards, and what its weights are decoded with");
    }
}

static void
test_shard_in_pieces(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/model-00001-of-00002.safetensors", folder);

    fixture_file(path, "U8 32x1 w.weight\nF32 1 w.weight.absmax\nBF16 4x4 a.weight\n");
    check_in_pieces(path);
    /* The last one: everything else of it begins the next shard. */
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
                 "\"load_in_4bit\": true}}");
    fixture_file(path, "U8 32x1 w.weight\nBF16 4x4 a.weight\n");
    check_in_pieces(path);
}

static void
test_adapters(void)
{
    const char *const folder = fixture_folder();
    converted c;

    fixture_file(fixture_format("%s/adapter_model.safetensors", folder),
                 "F32 4x8 base_model.model.a.lora_A.weight\n");
    fixture_text(fixture_format("%s/adapter_config.json", folder), "{}");
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    check_failure(&c, folder, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED, "", "adapter");
}

static void
test_nonfinite_values(void)
{
    const char *const model =
        make("F32 3x4 " A " = 1 nan 2 inf -inf 3 nan 0\nF32 2x2 " B " = 1 2\n"
             "F32 3 model.norm.weight = nan inf 1\nF32 1x1 model.layers.2.c.weight = 1\n");
    converted c;

    fixture_text(fixture_format("%s/config.json", model), "{}");
    for (int type = BERTH_ENCODING_NF4; type <= BERTH_ENCODING_INT8; type++) {
        converted_begin(&c, out(), type);
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.nonfinite_tensors, 1);
        CHECK_EQ(c.report.nonfinite_values, 4);
        CHECK_EQ(c.findings, 1);
        CHECK_EQ(c.finding.reason, BERTH_REASON_NONFINITE);
        CHECK_STR(c.finding.tensor, A);
        CHECK_CONTAINS(c.finding.message, "has 2 NaN and 2 infinite values");
        converted_begin(&c, out(), type);
        c.options.reject_nonfinite = 1;
        check_failure(&c, model, BERTH_EPOLICY, BERTH_REASON_NONFINITE, A,
                      "has 2 NaN and 2 infinite values");
        CHECK_CONTAINS(c.error.file, "model.safetensors");
    }
    /* Nothing is quantized: nothing is counted. */
    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    c.options.reject_nonfinite = 1;
    c.options.dtype = BERTH_BF16;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.findings, 0);
}

/* INT8 casts to F16 first: what that makes infinite would make its row NaN. */
static void
test_values_too_large_for_int8(void)
{
    const char *const model = make("F32 2x2 " A " = 65519 1 2 3\n"
                                   "F32 2x2 " B " = 65520 1 -1e30 3\n");
    converted c;

    fixture_text(fixture_format("%s/config.json", model), "{}");
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.findings, 0);
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.nonfinite_tensors, 1);
    CHECK_EQ(c.report.nonfinite_values, 2);
    CHECK_EQ(c.findings, 1);
    CHECK_STR(c.finding.tensor, B);
    CHECK_CONTAINS(c.finding.message, "has 0 NaN and 2 infinite values when it is cast to F16");
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    c.options.reject_nonfinite = 1;
    check_failure(&c, model, BERTH_EPOLICY, BERTH_REASON_NONFINITE, B,
                  "has 0 NaN and 2 infinite values when it is cast to F16");
    /* BF16 has neither 65519 nor 65520: both become 65536. */
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    c.options.dtype = BERTH_BF16;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.nonfinite_tensors, 2);
    CHECK_EQ(c.report.nonfinite_values, 3);
}

/* Something that happens to the source when everything has been planned. */
static void (*disaster)(const char *path);
static const char *disaster_path;

static void
strike(void *user, const berth_coverage *line)
{
    (void)user;
    (void)line;
    if (disaster != NULL)
        disaster(disaster_path);
    disaster = NULL;
}

static void
cut(const char *path)
{
    fixture_truncate(path, 100);
}

static void
touch(const char *path)
{
    fixture_flip(path, fixture_size(path) - 1, 1);
}

static void
check_disaster(const char *lines, void (*what)(const char *path), int32_t type)
{
    const char *const model = make(lines);
    converted c;

    converted_begin(&c, out(), type);
    c.options.coverage = strike;
    disaster = what;
    disaster_path = fixture_format("%s/model.safetensors", model);
    CHECK_EQ(converted_run(&c, model), BERTH_EIO);
    CHECK_STR(c.error.file, disaster_path);
    CHECK(!exists(c.options.output));
}

static void
test_source_that_changes(void)
{
    static const char *const lines = "F8_E4M3 192x200 " A "\nF32 2x2 " A
                                     "_scale_inv\nBF16 9x9 " B "\n"
                                     "BF16 3x3 model.layers.2.c.weight\n";

    for (int type = BERTH_ENCODING_NF4; type <= BERTH_ENCODING_INT8; type++) {
        check_disaster(TWO, cut, type);
        check_disaster(TWO, touch, type);
        check_disaster(lines, cut, type);
        check_disaster(lines, touch, type);
    }
}

static void
test_companions_that_do_not_fit(void)
{
    const char *const model = make("I8 5x7 " A "\nF32 4 model.layers.0.a.SCB\n"
                                   "U8 - model.layers.0.a.weight_format = 0\n" TWO);
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_EFORMAT);
    CHECK(!exists(c.options.output));
}

/* ------------------------------------------------------------- rules and limits */

static void
test_rules(void)
{
    static const char *const skips[] = { "nothing.of.that" };
    static const char *const globs[] = { "*.nothing" };
    const char *const model = make(TWO);
    const char *const rules = fixture_format("%s/rules", fixture_folder());
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.min_coverage = 999999999;
    check_failure(&c, model, BERTH_EPOLICY, BERTH_REASON_MIN_COVERAGE, "", "");
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.keep = globs;
    c.options.keep_count = 1;
    check_failure(&c, model, BERTH_EINVAL, BERTH_REASON_RULE_UNUSED, "*.nothing",
                  "matches no tensor");
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.only = globs;
    c.options.only_count = 1;
    check_failure(&c, model, BERTH_EINVAL, BERTH_REASON_RULE_UNUSED, "*.nothing",
                  "matches no tensor");
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.rules = rules;
    CHECK_EQ(converted_run(&c, model), BERTH_ENOENT);
    fixture_text(rules, "what is this\n");
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_RULES);
    CHECK(!exists(c.options.output));
    /* A list of modules to skip replaces the automatic one, whatever is in it. */
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.has_skips = 1;
    c.options.skip_modules = skips;
    c.options.skip_count = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.quantized, 2);
    /* It is worth a note, unless its caller says that each of them is meant. */
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.has_skips = 1;
    c.options.skip_modules = skips;
    c.options.skip_count = 1;
    c.options.dry_run = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.finding.reason, BERTH_REASON_RULE_UNUSED);
    CHECK_STR(c.finding.tensor, "nothing.of.that");
    c.options.reject_skips = 1;
    check_failure(&c, model, BERTH_EINVAL, BERTH_REASON_RULE_UNUSED, "nothing.of.that",
                  "the model has no such module to skip");
}

static void
test_pieces_that_are_too_large(void)
{
    const char *const wide = make("BF16 2x700 " A "\nBF16 3x3 " B "\n");
    const char *const experts =
        make("U8 2x48x3x16 model.layers.0.experts.x_blocks\n"
             "U8 2x48x3 model.layers.0.experts.x_scales\nBF16 3x3 " B "\n");
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    c.sizes.unit_values_max = 699;
    check_failure(&c, wide, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED, A, "no pieces");
    c.sizes.unit_values_max = 700;
    c.sizes.unit_values = 1;
    CHECK_EQ(converted_run(&c, wide), BERTH_OK);
    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    c.sizes.unit_values_max = 96 * 48 - 1;
    check_failure(&c, experts, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED,
                  "model.layers.0.experts.x", "no pieces");
    c.sizes.unit_values_max = 96 * 48;
    CHECK_EQ(converted_run(&c, experts), BERTH_OK);
}

static void
test_storage_that_does_not_fit(void)
{
    const char *const model = make("BF16 3x5 " A "\nBF16 3x3 " B "\n");
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.storage = BERTH_F32;
    check_failure(&c, model, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED, A,
                  "cannot be stored as nf4");
}

/* Row maxima have the name of the module, which only a "weight" tells. */
static void
test_name_without_weight(void)
{
    static const char name[] = "vision_model.transformer.resblocks.0.attn.in_proj_weight";
    const char *const model = make(fixture_format("BF16 192x64 %s\n", name));
    const char *const rules = fixture_format("%s/rules", fixture_folder());
    converted c;

    fixture_text(fixture_format("%s/config.json", model),
                 "{\"architectures\": [\"Step3p7ForConditionalGeneration\"]}");
    fixture_text(rules, "int8 *in_proj_weight\n");
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    c.options.rules = rules;
    check_failure(&c, model, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED, name,
                  "the last part of its name is not \"weight\"");
    /* Without a rule it stays plain, which is no reason to refuse the model. */
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.quantized, 0);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_arguments);
    T_RUN(test_no_error_wanted);
    T_RUN(test_output_and_source);
    T_RUN(test_source_behind_links);
    T_RUN(test_description_behind_links);
    T_RUN(test_output_that_is_there);
    T_RUN(test_output_in_the_hub_cache);
    T_RUN(test_dry_run_writes_nothing);
    T_RUN(test_foreign_methods);
    T_RUN(test_adapters);
    T_RUN(test_unknown_methods);
    T_RUN(test_shard_in_pieces);
    T_RUN(test_nonfinite_values);
    T_RUN(test_values_too_large_for_int8);
    T_RUN(test_source_that_changes);
    T_RUN(test_companions_that_do_not_fit);
    T_RUN(test_rules);
    T_RUN(test_pieces_that_are_too_large);
    T_RUN(test_storage_that_does_not_fit);
    T_RUN(test_name_without_weight);
    T_MAIN_END;
}
