/* SPDX-License-Identifier: Apache-2.0 */
/* test_load_verify.c - what is loaded is what a manifest says, told in the same pass. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/sliced.h"
#include "tests/t.h"
#include "tests/verified.h"

#define UP "model.layers.0.mlp.up_proj.weight"

/* Replaces a text in a file once. */
static void
edit(const char *path, const char *from, const char *to)
{
    size_t length;
    char *const text = fixture_read(path, &length);
    char *const at = strstr(text, from);
    const char *made;

    T_REQUIRE(at != NULL);
    *at = '\0';
    made = fixture_format("%s%s", text, to);
    made = fixture_format("%s%s", made, at + strlen(from));
    fixture_text(path, made);
    free(text);
}

typedef struct wish {
    const char *max_memory;
    const char *words; /* devices */
    int32_t type;
    int32_t verify;
    const char *manifest;
    bool is_source;
    uint32_t workers;
    uint32_t ranks; /* 0: the whole model; else the second of so many */
} wish;

static void
load_as(loaded *l, const char *folder, const wish *w)
{
    berth_plan_options options =
        loaded_options(w->max_memory != NULL ? w->max_memory : "cpu=1GiB");

    options.type = w->type;
    options.double_quant = w->type == BERTH_ENCODING_NF4;
    if (w->ranks > 0) {
        options.rank = w->ranks - 1;
        options.ranks = w->ranks;
    }
    loaded_begin(l, folder, &options, w->words);
    l->options.verify = w->verify;
    l->options.manifest = w->manifest;
    l->options.is_source_of_manifest = w->is_source;
    l->options.workers = w->workers;
    l->options.ring_bytes = UINT64_C(16) << 20;
    loaded_load(l);
}

static berth_status
status_of(const char *folder, const wish *w)
{
    loaded l;

    load_as(&l, folder, w);
    loaded_end(&l);
    return l.status;
}

/* ----------------------------------------------------------------------------- good */

/* Every byte that is read is verified, whole and in parts, on one thread or several. */
static void
test_good(void)
{
    static const wish wishes[] = {
        {.workers = 1},
        {.workers = 4},
        {.workers = 3, .type = BERTH_ENCODING_NF4},
        {.workers = 3, .type = BERTH_ENCODING_INT8, .verify = BERTH_LOAD_VERIFY_REQUIRE},
        {.max_memory = "0=64MiB,cpu=64MiB", .words = "sim:64MiB", .workers = 2},
        {.verify = BERTH_LOAD_VERIFY_WARN}};
    const char *const folder = loaded_wide(2);

    (void)loaded_manifest(folder);
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        loaded l;

        load_as(&l, folder, &wishes[i]);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%zu: %s", i, l.error.message);
        CHECK_EQ(l.report.verified_bytes, l.report.placed_bytes);
        CHECK_EQ(l.report.verified_tensors, l.p.summary.berth_count);
        CHECK_EQ(l.report.mismatches, 0);
        loaded_end(&l);
    }
}

/* What a load that fails had encoded by then is not all that it was to encode. */
static void
test_encoded_before_a_failure(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    uint64_t encoded;
    loaded l;

    (void)loaded_manifest(folder);
    verified_damage(folder, UP, 0);
    load_as(&l, folder, &(wish){ .workers = 1, .type = BERTH_ENCODING_NF4,
                                 .verify = BERTH_LOAD_VERIFY_NONE });
    CHECK_EQ(l.status, BERTH_OK);
    encoded = l.report.quantized_bytes;
    loaded_end(&l);
    load_as(&l, folder, &(wish){ .workers = 1, .type = BERTH_ENCODING_NF4 });
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_LT(l.report.quantized_bytes, encoded);
    loaded_end(&l);
}

static void
test_without_manifest(void)
{
    static const int32_t modes[] = {BERTH_LOAD_VERIFY_AUTO, BERTH_LOAD_VERIFY_WARN,
                                    BERTH_LOAD_VERIFY_NONE};
    const char *const folder = loaded_llama(1, "BF16", 1);
    loaded l;

    for (size_t i = 0; i < 3; i++) {
        load_as(&l, folder, &(wish){.verify = modes[i]});
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_EQ(l.report.verified_bytes, 0);
        CHECK_EQ(l.report.verified_tensors, 0);
        loaded_end(&l);
    }
    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_REQUIRE});
    CHECK_EQ(l.status, BERTH_ENOENT);
    CHECK_CONTAINS(l.error.file, "berth.manifest.json");
    loaded_end(&l);
    CHECK_EQ(status_of(folder, &(wish){.manifest = "/nonexistent/m.json"}), BERTH_ENOENT);
    CHECK_EQ(status_of(folder, &(wish){.manifest = "/nonexistent/m.json",
                                       .verify = BERTH_LOAD_VERIFY_NONE}),
             BERTH_OK);
}

/* It is there: a load that skips it would look like one that was verified. */
static void
test_manifest_that_cannot_be_opened(void)
{
    static const int32_t modes[] = {BERTH_LOAD_VERIFY_AUTO, BERTH_LOAD_VERIFY_WARN,
                                    BERTH_LOAD_VERIFY_REQUIRE};
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *const manifest = fixture_format("%s/berth.manifest.json", folder);
    loaded l;

    for (int is_link = 0; is_link <= 1; is_link++) {
        T_REQUIRE((is_link ? symlink("berth.manifest.json", manifest)
                           : mkdir(manifest, 0700)) == 0);
        for (size_t i = 0; i < 3; i++) {
            load_as(&l, folder, &(wish){.verify = modes[i]});
            CHECK_EQ(l.status, BERTH_ENOENT);
            CHECK_EQ(l.error.reason, is_link ? BERTH_REASON_LINK_LOOP
                                             : BERTH_REASON_NOT_REGULAR);
            CHECK_CONTAINS(l.error.file, "berth.manifest.json");
            loaded_end(&l);
        }
        CHECK_EQ(status_of(folder, &(wish){.verify = BERTH_LOAD_VERIFY_NONE}), BERTH_OK);
        T_REQUIRE(remove(manifest) == 0);
    }
}

static void
test_options(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);

    CHECK_EQ(status_of(folder, &(wish){.verify = -1}), BERTH_EINVAL);
    CHECK_EQ(status_of(folder, &(wish){.verify = BERTH_LOAD_VERIFY_NONE + 1}),
             BERTH_EINVAL);
}

/* --------------------------------------------------------------------------- damage */

static void
check_found(const char *folder, const wish *w, const char *name)
{
    loaded l;

    load_as(&l, folder, w);
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_DIGEST);
    CHECK_STR(l.error.tensor, name);
    CHECK_CONTAINS(l.error.file, ".safetensors");
    CHECK_CONTAINS(l.error.message, "another crc32 than the manifest says");
    CHECK((l.error.has & BERTH_HAS_EXPECTED) != 0);
    CHECK((l.error.has & BERTH_HAS_ACTUAL) != 0);
    CHECK((l.error.has & BERTH_HAS_CRC32) != 0);
    CHECK(l.error.expected != l.error.actual);
    CHECK_EQ(l.report.mismatches, 1);
    loaded_end(&l);
}

/* The first, the last byte, one in the middle: whatever part it lies in. */
static void
test_damaged(void)
{
    static const int64_t places[] = {0, -1, 4500000};
    const char *const folder = loaded_wide(1);

    (void)loaded_manifest(folder);
    for (size_t i = 0; i < 3; i++) {
        loaded l;

        verified_damage(folder, UP, places[i]);
        check_found(folder, &(wish){.workers = 1}, UP);
        check_found(folder, &(wish){.workers = 4, .type = BERTH_ENCODING_NF4}, UP);
        check_found(folder, &(wish){.verify = BERTH_LOAD_VERIFY_REQUIRE}, UP);
        check_found(folder,
                    &(wish){.max_memory = "0=64MiB,cpu=64MiB", .words = "sim:64MiB"}, UP);
        load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_WARN});
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_EQ(l.report.mismatches, 1);
        CHECK_EQ(l.report.verified_tensors, l.p.summary.berth_count);
        loaded_end(&l);
        CHECK_EQ(status_of(folder, &(wish){.verify = BERTH_LOAD_VERIFY_NONE}), BERTH_OK);
        verified_damage(folder, UP, places[i]); /* whole again */
        CHECK_EQ(status_of(folder, &(wish){.workers = 0}), BERTH_OK);
    }
}

/* The same bytes as numbers of another dtype: a header that is whole, and another. */
static void
test_damaged_header(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *const shard = fixture_format("%s/model.safetensors", folder);
    loaded l;

    (void)loaded_manifest(folder);
    fixture_swap(shard, "\"BF16\"", "\"F16\" ");
    load_as(&l, folder, &(wish){.workers = 1});
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_DIGEST);
    CHECK_CONTAINS(l.error.file, "model.safetensors");
    CHECK_CONTAINS(l.error.message, "the header has another crc32");
    loaded_end(&l);
    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_WARN});
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.mismatches, 1);
    loaded_end(&l);
    CHECK_EQ(status_of(folder, &(wish){.verify = BERTH_LOAD_VERIFY_NONE}), BERTH_OK);
}

/* Statistics of what is encoded anew are read beside the conveyor. */
static void
test_damaged_statistics(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    berth_check_report report;
    const char *folder;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    folder = loaded_quantized(loaded_llama(1, "BF16", 1), &options);
    load_as(&l, folder, &(wish){.type = BERTH_ENCODING_INT8});
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_GT(l.report.verified_bytes, l.report.placed_bytes);
    /* A check reads the same once more, statistics too. */
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    CHECK_EQ(report.bytes_read, l.report.verified_bytes);
    loaded_end(&l);
    verified_damage(folder, UP ".absmax", -1);
    check_found(folder, &(wish){.type = BERTH_ENCODING_INT8}, UP ".absmax");
    /* Copied, they are parts like others. */
    check_found(folder, &(wish){.type = BERTH_ENCODING_NATIVE}, UP ".absmax");
}

/* The manifest of what was made from it promises the source's bytes, too. */
static void
test_source(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *manifest;
    wish w = {.is_source = true, .verify = BERTH_LOAD_VERIFY_REQUIRE};
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    manifest = fixture_format("%s/berth.manifest.json", loaded_quantized(folder, &options));
    w.manifest = manifest;
    load_as(&l, folder, &w);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    CHECK_EQ(l.report.verified_bytes, l.report.placed_bytes);
    loaded_end(&l);
    verified_damage(folder, UP, 7);
    check_found(folder, &w, UP);
}

/* -------------------------------------------------------------------------- entries */

/* What nobody promised is not checked; what was promised of another file is refused. */
static void
test_entries(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *const manifest = loaded_manifest(folder);
    const uint64_t bytes = fixture_size(fixture_format("%s/model.safetensors", folder));
    loaded l;

    edit(manifest, UP, "model.layers.0.mlp.up_proj.weighs");
    load_as(&l, folder, &(wish){.workers = 0});
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, l.p.summary.berth_count - 1);
    CHECK_EQ(l.report.mismatches, 0);
    loaded_end(&l);
    load_as(&l, folder, &(wish){.manifest = manifest}); /* the caller says that it belongs */
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_MANIFEST_ENTRY);
    loaded_end(&l);
    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_WARN, .manifest = manifest});
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.mismatches, 2); /* each side has one that the other lacks */
    loaded_end(&l);
    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_REQUIRE});
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_MANIFEST_ENTRY);
    loaded_end(&l);
    edit(manifest, fixture_format("%llu", (unsigned long long)bytes),
         fixture_format("%llu", (unsigned long long)bytes + 8));
    load_as(&l, folder, &(wish){.workers = 0});
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_MANIFEST_ENTRY);
    CHECK_EQ(l.error.expected, bytes + 8);
    CHECK_EQ(l.error.actual, bytes);
    loaded_end(&l);
    fixture_text(manifest, "{");
    CHECK_EQ(status_of(folder, &(wish){.workers = 0}), BERTH_EFORMAT);
}

/* A warning names what it is about. */
static void
keep_line(void *user, int32_t level, const char *line)
{
    char *const text = user;

    if (level == BERTH_LOG_WARNING)
        snprintf(text, 1024, "%s", line);
}

static void
check_warning(const char *folder, int32_t verify, uint32_t ranks, const char *expected)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    char text[1024] = "";
    const berth_context_options hooks = {
        .struct_size = sizeof hooks, .log = keep_line, .log_user = text};
    berth_checkpoint *checkpoint = NULL;
    berth_context *context = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan *plan = NULL;
    berth_job *job = NULL;

    if (ranks > 0)
        options.ranks = ranks;
    berth_load_options_init(&load);
    load.verify = verify;
    CHECK_EQ(berth_context_create(&hooks, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berth_plan_create(context, checkpoint, &options, &plan, NULL), BERTH_OK);
    CHECK_EQ(berth_load_start(context, checkpoint, plan, &load, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &model, NULL), BERTH_OK);
    if (expected == NULL) {
        CHECK_STR(text, "");
    } else {
        CHECK_CONTAINS(text, expected);
        if (ranks == 0) { /* of one tensor */
            CHECK_CONTAINS(text, UP);
            CHECK_CONTAINS(text, "model.safetensors");
        }
    }
    berth_model_destroy(model);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

static void
test_warnings(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *const manifest = loaded_manifest(folder);

    check_warning(folder, BERTH_LOAD_VERIFY_AUTO, 0, NULL);
    check_warning(folder, BERTH_LOAD_VERIFY_WARN, 0, NULL);
    verified_damage(folder, UP, 0);
    check_warning(folder, BERTH_LOAD_VERIFY_WARN, 0, "loaded all the same");
    edit(manifest, UP, UP "x");
    check_warning(folder, BERTH_LOAD_VERIFY_WARN, 0, "not verified: ");
    check_warning(folder, BERTH_LOAD_VERIFY_AUTO, 0, "not verified, as other");
}

static void
test_warnings_of_slices(void)
{
    const char *const folder = sliced_make(&sliced_small);

    (void)loaded_manifest(folder);
    check_warning(folder, BERTH_LOAD_VERIFY_AUTO, 4, NULL);
    check_warning(folder, BERTH_LOAD_VERIFY_WARN, 1, NULL);
    check_warning(folder, BERTH_LOAD_VERIFY_WARN, 4,
                  "stored tensors, of which parts are read");
}

/* --------------------------------------------------------------------------- slices */

#define ROWS "model.layers.0.self_attn.q_proj.weight"
#define NORM "model.norm.weight"

/* What is whole is verified, and the rest is counted. */
static void
check_sliced(const char *folder, int32_t verify, uint64_t verified_count, uint64_t unverified)
{
    loaded l;

    load_as(&l, folder, &(wish){.verify = verify, .ranks = 4});
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    CHECK_EQ(l.report.verified_tensors, verified_count);
    CHECK_EQ(l.report.unverified_tensors, unverified);
    CHECK_EQ(l.report.mismatches, 0);
    loaded_end(&l);
}

static void
check_slices_refused(const char *folder, const char *manifest)
{
    loaded l;

    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_REQUIRE,
                                .manifest = manifest,
                                .ranks = 4});
    CHECK_EQ(l.status, BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.message, "cannot be verified: a part of it is read");
    CHECK(l.error.tensor[0] != '\0');
    loaded_end(&l);
}

/* Two norms and a bias are whole, all others are cut. */
static void
test_slices(void)
{
    const char *const folder = sliced_make(&sliced_small);
    const char *manifest;
    loaded l;

    check_sliced(folder, BERTH_LOAD_VERIFY_AUTO, 0, 0); /* there is no manifest */
    check_slices_refused(folder, NULL);
    manifest = loaded_manifest(folder);
    check_sliced(folder, BERTH_LOAD_VERIFY_AUTO, 3, SLICED_SMALL_TENSORS - 3);
    check_sliced(folder, BERTH_LOAD_VERIFY_WARN, 3, SLICED_SMALL_TENSORS - 3);
    check_sliced(folder, BERTH_LOAD_VERIFY_NONE, 0, 0);
    check_slices_refused(folder, NULL);
    check_slices_refused(folder, manifest);
    /* One rank of one has all of it. */
    load_as(&l, folder, &(wish){.verify = BERTH_LOAD_VERIFY_REQUIRE, .ranks = 1});
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.verified_tensors, SLICED_SMALL_TENSORS);
    CHECK_EQ(l.report.unverified_tensors, 0);
    loaded_end(&l);
    /* Of what is cut nothing is said, right or wrong. */
    verified_damage(folder, ROWS, -1);
    check_sliced(folder, BERTH_LOAD_VERIFY_AUTO, 3, SLICED_SMALL_TENSORS - 3);
    verified_damage(folder, NORM, 0);
    check_found(folder, &(wish){.ranks = 4}, NORM);
}

/* Codes and statistics are stored tensors of their own. */
static void
test_slices_of_what_is_quantized(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    const char *folder;

    options.type = BERTH_ENCODING_INT8;
    folder = loaded_quantized(sliced_make(&sliced_blocks), &options); /* with a manifest */
    /* Seven projections have row maxima and a format; embedding, head, a bias are plain. */
    check_sliced(folder, BERTH_LOAD_VERIFY_AUTO, 3, 7 * 3 + 3);
    check_slices_refused(folder, NULL);
}

/* --------------------------------------------------------------------------- faults */

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempt = {.folder = loaded_llama(1, "BF16", 2),
                              .max_memory = "cpu=64MiB",
                              .verify = BERTH_LOAD_VERIFY_REQUIRE};
    fault_counts counts;

    (void)loaded_manifest(attempt.folder);
    counts = fault_loop("verified load", loaded_once, &attempt);
    CHECK_GT(counts.memory, 60);
    CHECK_GT(counts.system, 30);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_good);
    T_RUN(test_encoded_before_a_failure);
    T_RUN(test_without_manifest);
    T_RUN(test_manifest_that_cannot_be_opened);
    T_RUN(test_options);
    T_RUN(test_damaged);
    T_RUN(test_damaged_header);
    T_RUN(test_damaged_statistics);
    T_RUN(test_source);
    T_RUN(test_entries);
    T_RUN(test_warnings);
    T_RUN(test_warnings_of_slices);
    T_RUN(test_slices);
    T_RUN(test_slices_of_what_is_quantized);
    T_RUN(test_all_calls_can_fail);
    return t_end();
}
