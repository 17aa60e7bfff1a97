/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_verify.c - a conversion's source is what the manifest beside it says, or
 * nothing is published: told as a load tells it, whoever has read the bytes, and when.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/verified.h"

#define UP   "model.layers.0.mlp.up_proj.weight"
#define NORM "model.norm.weight"
#define TENSORS 13u /* of a model of one layer */

static const char *
out(void)
{
    return fixture_format("%s/out", fixture_folder());
}

/* What is asked for, beside what is usual. */
typedef struct wish {
    int32_t type;
    int32_t verify;
    const char *manifest;
} wish;

static void
begin(converted *c, const char *output, const wish *w)
{
    converted_begin(c, output, w->type);
    c->options.verify = w->verify;
    c->options.manifest = w->manifest;
    c->is_bare = true; /* the source may be damaged */
    converted_shrink(c, 700);
}

static berth_status
convert(converted *c, const char *model, const wish *w)
{
    begin(c, out(), w);
    return converted_run(c, model);
}

/* ----------------------------------------------------------------------------- good */

static void
check_good(const char *model, const wish *w, uint64_t tensors)
{
    converted c;

    if (!CHECK_EQ(convert(&c, model, w), BERTH_OK))
        T_NOTE("%s: %s", c.error.tensor, c.error.message);
    CHECK_EQ(c.report.verified_tensors, tensors);
    CHECK_EQ(c.report.unverified_tensors, 0);
    CHECK_EQ(c.report.mismatches, 0);
    if (tensors > 0)
        CHECK_GE((int64_t)c.report.bytes_read, (int64_t)c.report.verified_bytes);
    CHECK_GE((int64_t)c.report.planned_memory, (int64_t)c.peak);
}

/* All that is stored is read, and held against what is promised of it. */
static void
test_good(void)
{
    static const int32_t modes[] = { BERTH_LOAD_VERIFY_AUTO, BERTH_LOAD_VERIFY_REQUIRE,
                                     BERTH_LOAD_VERIFY_WARN };
    const char *const model = loaded_llama(1, "BF16", 1);

    (void)loaded_manifest(model);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        check_good(model, &(wish){ .type = BERTH_ENCODING_NF4, .verify = modes[i] }, TENSORS);
        check_good(model, &(wish){ .type = BERTH_ENCODING_INT8, .verify = modes[i] },
                   TENSORS);
        check_good(model, &(wish){ .type = BERTH_ENCODING_NATIVE, .verify = modes[i] },
                   TENSORS);
    }
    check_good(model,
               &(wish){ .type = BERTH_ENCODING_NF4, .verify = BERTH_LOAD_VERIFY_NONE }, 0);
}

static void
test_without_manifest(void)
{
    const char *const model = loaded_llama(1, "BF16", 1);
    wish w = { .type = BERTH_ENCODING_NF4 };
    converted c;

    check_good(model, &w, 0);
    w.verify = BERTH_LOAD_VERIFY_WARN;
    check_good(model, &w, 0);
    w.verify = BERTH_LOAD_VERIFY_REQUIRE;
    CHECK_EQ(convert(&c, model, &w), BERTH_ENOENT);
    CHECK_CONTAINS(c.error.file, "berth.manifest.json");
    CHECK_CONTAINS(c.error.message, "there is no manifest to verify with");
    CHECK(access(c.options.output, F_OK) != 0);
    w = (wish){ .type = BERTH_ENCODING_NF4, .manifest = "/nonexistent/m.json" };
    CHECK_EQ(convert(&c, model, &w), BERTH_ENOENT);
}

static void
test_options(void)
{
    const char *const model = loaded_llama(1, "BF16", 1);
    converted c;

    CHECK_EQ(convert(&c, model, &(wish){ .verify = -1 }), BERTH_EINVAL);
    CHECK_EQ(convert(&c, model, &(wish){ .verify = BERTH_LOAD_VERIFY_NONE + 1 }),
             BERTH_EINVAL);
}

/* --------------------------------------------------------------------------- damage */

/* Nothing is there afterwards. */
static void
check_found(const char *model, const wish *w, const char *tensor)
{
    converted c;

    CHECK_EQ(convert(&c, model, w), BERTH_EINTEGRITY);
    CHECK_EQ(c.error.reason, BERTH_REASON_DIGEST);
    CHECK_STR(c.error.tensor, tensor);
    CHECK_CONTAINS(c.error.file, ".safetensors");
    CHECK_CONTAINS(c.error.message, "another crc32 than the manifest says");
    CHECK(c.error.expected != c.error.actual);
    CHECK(access(c.options.output, F_OK) != 0);
}

static void
check_passes(const char *model, const wish *w, uint64_t mismatches)
{
    converted c;

    CHECK_EQ(convert(&c, model, w), BERTH_OK);
    CHECK_EQ(c.report.mismatches, mismatches);
}

/* What is encoded, what is only copied: the first byte, the last, one between. */
static void
test_damaged(void)
{
    static const char *const names[] = { UP, NORM };
    static const int64_t places[] = { 0, -1, 17 };
    const char *const model = loaded_llama(1, "BF16", 1);

    (void)loaded_manifest(model);
    for (size_t i = 0; i < sizeof names / sizeof names[0] * 3; i++) {
        const char *const name = names[i / 3];
        wish w = { .type = BERTH_ENCODING_NF4 };

        verified_damage(model, name, places[i % 3]);
        check_found(model, &w, name);
        w.type = BERTH_ENCODING_NATIVE;
        check_found(model, &w, name);
        w.verify = BERTH_LOAD_VERIFY_REQUIRE;
        check_found(model, &w, name);
        w.verify = BERTH_LOAD_VERIFY_WARN;
        check_passes(model, &w, 1);
        w.verify = BERTH_LOAD_VERIFY_NONE;
        check_passes(model, &w, 0);
        verified_damage(model, name, places[i % 3]); /* whole again */
        check_passes(model, &(wish){ .type = BERTH_ENCODING_NF4 }, 0);
    }
}

/* What is encoded is held against the manifest when it has been read, not in the end. */
static void
test_ends_early(void)
{
    const char *const model = loaded_llama(2, "BF16", 1);
    uint64_t written = 0;

    (void)loaded_manifest(model);
    for (int i = 0; i < 2; i++) {
        converted c;

        begin(&c, out(), &(wish){ .type = BERTH_ENCODING_NF4 });
        c.options.workers = 1;
        CHECK_EQ(converted_run(&c, model), i == 0 ? BERTH_OK : BERTH_EINTEGRITY);
        if (i == 0)
            written = c.report.bytes_written;
        else
            CHECK_LT(c.report.bytes_written, written - written / 4);
        verified_damage(model, UP, 0);
    }
}

/* Read beside the weights: to decode them, or to be copied with them. */
static void
test_damaged_statistics(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_INT8 };
    static const char *const names[] = { UP ".absmax", UP ".quant_map", UP };
    berth_plan_options options = loaded_options("cpu=1GiB");
    const char *model;

    options.type = BERTH_ENCODING_NF4;
    model = loaded_quantized(loaded_llama(1, "BF16", 1), &options);
    for (size_t i = 0; i < 9; i++) {
        verified_damage(model, names[i / 3], -1);
        check_found(model, &(wish){ .type = types[i % 3] }, names[i / 3]);
        verified_damage(model, names[i / 3], -1);
    }
}

/* The same bytes as other numbers; and padding, which is the header's. */
static void
test_damaged_header(void)
{
    static const char *const changes[][2] = { { "\"BF16\"", "\"F16\" " },
                                              { "}} ", "}}\n" } };

    for (size_t i = 0; i < 2; i++) {
        const char *const model = loaded_llama(1, "BF16", 1);
        const wish w = { .type = BERTH_ENCODING_NF4 };
        converted c;

        (void)loaded_manifest(model);
        fixture_swap(fixture_format("%s/model.safetensors", model), changes[i][0],
                     changes[i][1]);
        check_found(model, &w, "");
        CHECK_EQ(convert(&c, model, &w), BERTH_EINTEGRITY);
        CHECK_CONTAINS(c.error.message, "the header has another crc32");
    }
}

/* ------------------------------------------------------------------- other manifests */

static void
test_other_model(void)
{
    const char *const model = loaded_llama(1, "BF16", 1);
    const char *const other = loaded_manifest(loaded_llama(2, "BF16", 1));
    wish w = { .type = BERTH_ENCODING_NF4, .manifest = other };
    converted c;

    CHECK_EQ(convert(&c, model, &w), BERTH_EINTEGRITY);
    CHECK_EQ(c.error.reason, BERTH_REASON_MANIFEST_ENTRY);
    CHECK(access(c.options.output, F_OK) != 0);
    fixture_copy(other, fixture_format("%s/berth.manifest.json", model));
    w.manifest = NULL;
    CHECK_EQ(convert(&c, model, &w), BERTH_EINTEGRITY);
    CHECK_EQ(c.error.reason, BERTH_REASON_MANIFEST_ENTRY);
    fixture_text(fixture_format("%s/berth.manifest.json", model), "{");
    CHECK_EQ(convert(&c, model, &w), BERTH_EFORMAT);
}

typedef struct told {
    uint32_t count;
    berth_error last;
} told;

static void
note_entry(void *user, const berth_finding *finding)
{
    told *const t = user;

    if (finding->details->reason != BERTH_REASON_MANIFEST_ENTRY)
        return;
    t->count += finding->severity == BERTH_SEVERITY_WARNING;
    t->last = *finding->details;
}

/* Programs are told, too, that a manifest says nothing of some, and of how many. */
static void
test_manifest_of_some(void)
{
    const char *const model = loaded_llama(1, "BF16", 2);
    const char *const one = fixture_format("%s/model-00001-of-00002.safetensors", model);
    told t = { 0 };
    converted c;

    (void)loaded_manifest(model);
    for (uint32_t i = 0; i < 2; i++) {
        begin(&c, out(), &(wish){ .type = BERTH_ENCODING_NF4 });
        c.options.finding = note_entry;
        c.options.finding_user = &t;
        CHECK_EQ(converted_run(&c, i == 0 ? model : one), BERTH_OK);
        CHECK_EQ(t.count, i);
    }
    CHECK_CONTAINS(t.last.message, "the checkpoint has no file");
    CHECK_CONTAINS(t.last.message, "is not verified: 1 of files and tensors");
    CHECK_GT(c.report.verified_tensors, 0);
}

/* Nobody asks how a weight without values is decoded: of that nothing is said. */
static void
test_not_read(void)
{
    const char *const folder = fixture_folder();
    converted c;

    fixture_model(folder, "[model.safetensors]\nF8_E4M3 0x64 a.weight\n"
                          "F32 - a.weight_scale_inv\nBF16 2x2 b.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    (void)loaded_manifest(folder);
    CHECK_EQ(convert(&c, folder, &(wish){ .type = BERTH_ENCODING_NATIVE }), BERTH_OK);
    CHECK_EQ(c.report.verified_tensors, 2);
    CHECK_EQ(c.report.unverified_tensors, 1);
}

/* --------------------------------------------------------------------- what is noted */

/*
 * What matters is which of many shards are finished, not which piece of one was read: pieces
 * are larger than elsewhere, so that there are fewer calls to break a run off at.
 */
static void
begin_many_shards(converted *c, const char *output, const wish *w)
{
    begin(c, output, w);
    c->options.max_shard_bytes = 4096;
    converted_shrink(c, 5600);
}

/* Breaks a conversion that verifies nothing off at its nth system call. */
static bool
is_broken_off(const char *model, const char *output, uint64_t nth)
{
    const wish w = { .type = BERTH_ENCODING_NF4, .verify = BERTH_LOAD_VERIFY_NONE };
    bool is_over;
    converted c;

    begin_many_shards(&c, output, &w);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, true);
    (void)converted_run(&c, model);
    is_over = berthi_fault_failures(BERTHI_FAULT_SYSTEM) == 0;
    berthi_fault_disarm();
    return !is_over;
}

/*
 * Whatever an earlier run has finished, and however little it verified: what it noted is held
 * against the manifest. `damaged` NULL: all is well, and all is counted.
 */
static void
check_resumed(const char *model, const char *damaged)
{
    const wish w = { .type = BERTH_ENCODING_NF4 };
    const char *const output = out();
    uint32_t resumed = 0;
    berth_status status;
    converted c;

    for (uint64_t nth = 60; is_broken_off(model, output, nth); nth += 23) {
        begin_many_shards(&c, output, &w);
        c.options.resume = 1;
        status = converted_run(&c, model);
        if (status == BERTH_OK && c.report.bytes_read == 0) {
            CHECK_EQ(c.report.verified_tensors, 0); /* all was finished, and is left alone */
            fixture_remove(output);
            continue;
        }
        resumed += c.report.bytes_resumed > 0 || c.report.bytes_read == 0;
        CHECK_EQ(status, damaged != NULL ? BERTH_EINTEGRITY : BERTH_OK);
        CHECK_STR(c.error.tensor, damaged != NULL ? damaged : "");
        if (damaged == NULL)
            CHECK_EQ(c.report.verified_tensors, TENSORS);
        CHECK_EQ(access(fixture_format("%s/berth.manifest.json", output), F_OK) == 0,
                 damaged == NULL);
        fixture_remove(output);
    }
    CHECK_GT(resumed, 3);
    fixture_remove(output);
}

static void
test_resumed(void)
{
    static const char *const names[] = { "lm_head.weight", NORM };
    const char *const model = loaded_llama(1, "BF16", 1);

    (void)loaded_manifest(model);
    check_resumed(model, NULL);
    for (size_t i = 0; i < 2; i++) {
        verified_damage(model, names[i], 5);
        check_resumed(model, names[i]);
        verified_damage(model, names[i], 5);
    }
}

/* Shards that were finished before the damaged one are kept; that one is not. */
static void
test_nothing_damaged_is_kept(void)
{
    const wish w = { .type = BERTH_ENCODING_NF4 };
    const char *const model = loaded_llama(1, "BF16", 1);
    const char *const output = out();
    converted c;

    (void)loaded_manifest(model);
    verified_damage(model, NORM, 0);
    for (int32_t i = 0; i < 2; i++) {
        begin(&c, output, &w);
        c.options.max_shard_bytes = 4096;
        c.options.resume = i;
        CHECK_EQ(converted_run(&c, model), BERTH_EINTEGRITY);
        CHECK_STR(c.error.tensor, NORM);
        CHECK_EQ(c.report.bytes_resumed > 0, i > 0);
    }
    /* Whole again, with the times it had: what was kept is good. */
    verified_damage(model, NORM, 0);
    begin(&c, output, &w);
    c.options.max_shard_bytes = 4096;
    c.options.overwrite = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.verified_tensors, TENSORS);
}

/* One of two parts, and who joins them: part 0. */
static berth_status
run_part(converted *c, const char *model, const char *output, uint32_t part, int32_t verify)
{
    begin(c, output, &(wish){ .type = BERTH_ENCODING_NF4, .verify = verify });
    c->options.max_shard_bytes = 4096;
    c->options.part_count = 2;
    c->options.part = part;
    c->options.join = part == 0;
    c->options.resume = part == 0;
    return converted_run(c, model);
}

static void
test_parts(void)
{
    const char *const model = loaded_llama(1, "BF16", 1);
    const char *const output = out();
    converted c;

    (void)loaded_manifest(model);
    CHECK_EQ(run_part(&c, model, output, 1, BERTH_LOAD_VERIFY_AUTO), BERTH_OK);
    CHECK_GT(c.report.verified_tensors, 0);
    CHECK_LT(c.report.verified_tensors, TENSORS);
    CHECK_EQ(run_part(&c, model, output, 2, BERTH_LOAD_VERIFY_AUTO), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
    CHECK_EQ(c.report.verified_tensors, TENSORS);
}

/* The last part, which verifies, joins what others have made of damaged bytes. */
static void
test_damaged_parts(void)
{
    static const char *const names[] = { "lm_head.weight", UP, NORM };
    const char *const model = loaded_llama(1, "BF16", 1);

    (void)loaded_manifest(model);
    for (size_t i = 0; i < 6; i++) {
        const char *const output = out();
        const uint32_t first = (uint32_t)(i / 3 + 1);
        converted c;

        verified_damage(model, names[i % 3], 3);
        CHECK_EQ(run_part(&c, model, output, first, BERTH_LOAD_VERIFY_NONE), BERTH_OK);
        CHECK_EQ(run_part(&c, model, output, 3 - first, BERTH_LOAD_VERIFY_AUTO),
                 BERTH_EINTEGRITY);
        CHECK_STR(c.error.tensor, names[i % 3]);
        CHECK(access(fixture_format("%s/berth.manifest.json", output), F_OK) != 0);
        verified_damage(model, names[i % 3], 3);
    }
}

/* --------------------------------------------------------------------------- faults */

static berth_status
convert_once(void *user, berth_context *context, berth_error *error)
{
    converted c;
    berth_status status;

    begin(&c, out(), &(wish){ .type = BERTH_ENCODING_NF4,
                              .verify = BERTH_LOAD_VERIFY_REQUIRE });
    c.options.workers = 1;
    status = converted_run_in(&c, context, user);
    *error = c.error;
    return status;
}

static void
test_all_calls_can_fail(void)
{
    const char *const folder = fixture_folder();
    fault_counts counts;
    char *model = NULL;
    size_t length;

    fixture_model(folder, "[model.safetensors]\nBF16 8x64 model.layers.0.a.weight\n"
                          "F32 9 model.norm.weight\n");
    (void)loaded_manifest(folder);
    length = strlen(folder) + 1;
    model = malloc(length);
    T_REQUIRE(model != NULL);
    memcpy(model, folder, length);
    counts = fault_loop("verified conversion", convert_once, model);
    CHECK_GT(counts.memory, 60);
    CHECK_GT(counts.system, 60);
    free(model);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_good);
    T_RUN(test_without_manifest);
    T_RUN(test_options);
    T_RUN(test_damaged);
    T_RUN(test_ends_early);
    T_RUN(test_damaged_statistics);
    T_RUN(test_damaged_header);
    T_RUN(test_other_model);
    T_RUN(test_manifest_of_some);
    T_RUN(test_not_read);
    T_RUN(test_resumed);
    T_RUN(test_nothing_damaged_is_kept);
    T_RUN(test_parts);
    T_RUN(test_damaged_parts);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
