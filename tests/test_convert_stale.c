/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_stale.c - files of an older model in an output that is replaced: those
 * that berth wrote go, what anybody else wrote or has changed stays.
 */
#define _XOPEN_SOURCE 700

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define MANIFEST "berth.manifest.json"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static bool
exists(const char *folder, const char *name)
{
    struct stat state;

    return lstat(in(folder, name), &state) == 0;
}

/* A model with these files beside it, each with its name as contents. */
static const char *
make(const char *const *names)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model.safetensors]\nF32 32x64 " A " = 1\nF32 8x64 " B " = 1\n");
    for (; *names != NULL; names++)
        fixture_text(in(folder, *names), strcmp(*names, "config.json") == 0 ? "{}" : *names);
    return folder;
}

static const char *const rich[] = { "config.json", "a.json", "merges.txt", "sub/one.jinja",
                                    "sub/deep/two.jinja", "z.bpe", NULL };
static const char *const poor[] = { "a.json", NULL };

static void
convert(converted *c, const char *model, const char *output)
{
    converted_begin(c, output, BERTH_ENCODING_NF4);
    c->options.overwrite = 1;
    if (!CHECK_EQ(converted_run(c, model), BERTH_OK))
        T_NOTE("%s: %s", c->error.file, c->error.message);
    CHECK(converted_is_verified(output));
    CHECK(!exists(output, ".berth-journal.json"));
}

/* What berth wrote for a model that is no longer there. */
static void
test_written_files_go(void)
{
    const char *const out = in(fixture_folder(), "out");
    converted c;

    convert(&c, make(rich), out);
    for (int i = 0; rich[i] != NULL; i++)
        CHECK(exists(out, rich[i]));
    convert(&c, make(poor), out);
    CHECK_EQ(c.findings, 1); /* that there is no config.json */
    CHECK_EQ(c.finding.reason, BERTH_REASON_CONFIG_JSON);
    CHECK(exists(out, "a.json"));
    CHECK_EQ(fixture_count(out), 3); /* with weights and manifest */
    /* And the other way round. */
    convert(&c, make(rich), out);
    CHECK_EQ(c.findings, 0);
    for (int i = 0; rich[i] != NULL; i++)
        CHECK(exists(out, rich[i]));
}

/* Changed by one byte, made longer, replaced by a link or a folder, or added. */
static void
test_others_stay(void)
{
    const char *const out = in(fixture_folder(), "out");
    const char *const outside = fixture_folder();
    converted c;

    convert(&c, make(rich), out);
    fixture_flip(in(out, "merges.txt"), 0, 1);
    fixture_text(in(out, "z.bpe"), "z.bpe and more");
    fixture_text(in(out, "mine.json"), "mine");
    fixture_text(in(out, "sub/mine"), "mine");
    fixture_text(in(outside, "config"), "{}\n");
    fixture_remove(in(out, "config.json"));
    fixture_link(in(outside, "config"), in(out, "config.json"));
    convert(&c, make(poor), out);
    CHECK(exists(out, "merges.txt"));
    CHECK(exists(out, "z.bpe"));
    CHECK(exists(out, "mine.json"));
    CHECK(exists(out, "sub/mine"));
    CHECK(exists(out, "config.json"));
    CHECK(exists(outside, "config"));
    CHECK(!exists(out, "sub/one.jinja"));
    CHECK(!exists(out, "sub/deep"));
    /* Of those that loaders may read the first is named. */
    CHECK_EQ(c.findings, 2);
    CHECK_EQ(c.finding.reason, BERTH_REASON_STRAY_FILE);
    CHECK_STR(c.finding.file, in(out, "config.json"));
    CHECK_STR(c.finding.message,
              "stays beside the new model, and is not of it; so do 2 more");
}

static void
test_no_manifest(void)
{
    const char *const out = in(fixture_folder(), "out");
    const char *const model = make(poor);
    converted c;

    convert(&c, make(rich), out);
    fixture_remove(in(out, MANIFEST));
    convert(&c, model, out);
    CHECK(exists(out, "merges.txt"));
    CHECK(exists(out, "config.json"));
    CHECK_EQ(c.findings, 2);
    CHECK_STR(c.finding.file, in(out, "config.json"));
    CHECK_STR(c.finding.message,
              "stays beside the new model, and is not of it; so do 1 more");
    fixture_remove(in(out, "merges.txt"));
    convert(&c, model, out);
    CHECK_STR(c.finding.message, "stays beside the new model, and is not of it");
}

/* A manifest that names what it should not, and one that ends early. */
static void
test_strange_manifests(void)
{
#define HEAD "{\"schema_version\": 1, \"writer\": \"w\", \"shards\": [], \"files\": ["
    static const char *const names[] = { "../outside.json", "/etc/passwd", "a/../b",
                                         ".berth-journal.json", "", "sub" };
    const char *const model = make(poor);
    converted c;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const above = fixture_folder();
        const char *const out = in(above, "out");

        fixture_text(in(above, "outside.json"), "");
        fixture_text(in(out, "sub/x"), "x");
        fixture_text(in(out, "b"), "");
        fixture_text(in(out, MANIFEST),
                     fixture_format(HEAD "{\"file\": \"%s\", \"bytes\": 0, \"crc32\": "
                                         "\"00000000\"}]}",
                                    names[i]));
        convert(&c, model, out);
        CHECK(exists(above, "outside.json"));
        CHECK(exists(out, "sub/x"));
        CHECK(exists(out, "b"));
    }
    {
        const char *const out = fixture_folder();

        fixture_text(in(out, "old.txt"), "");
        fixture_text(in(out, MANIFEST),
                     HEAD "{\"file\": \"old.txt\", \"bytes\": 0, \"crc32\": \"00000000\"}");
        convert(&c, model, out);
        CHECK(exists(out, "old.txt"));
        fixture_text(in(out, MANIFEST),
                     HEAD "{\"file\": \"old.txt\", \"bytes\": 0, \"crc32\": "
                          "\"00000000\"}]}");
        convert(&c, model, out);
        CHECK(!exists(out, "old.txt"));
    }
}

/* Nothing is looked for in an output that replaces nothing. */
static void
test_new_output(void)
{
    const char *const out = in(fixture_folder(), "out");
    converted c;

    converted_begin(&c, out, BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, make(rich)), BERTH_OK);
    CHECK_EQ(c.findings, 0);
}

/* Whatever fails, a model is there, or a resumed run makes it so. */
typedef struct replacing {
    const char *rich;
    const char *poor;
    const char *output;
} replacing;

/* The manifest of the source, which the caller names, where a file of the output will be. */
static void
check_named_manifest(const char *name, bool is_replaced)
{
    const char *const model = make(rich);
    const char *const manifest = loaded_manifest(model);
    const char *const out = fixture_folder();
    converted c;

    fixture_copy(manifest, in(out, name));
    converted_begin(&c, out, BERTH_ENCODING_NF4);
    c.options.overwrite = 1;
    c.options.manifest = in(out, name);
    for (int dry = 1; dry >= 0; dry--) {
        c.options.dry_run = dry;
        CHECK_EQ(converted_run(&c, model), is_replaced ? BERTH_EINVAL : BERTH_OK);
        if (is_replaced) {
            CHECK_EQ(c.error.reason, BERTH_REASON_ARGUMENT);
            CHECK_STR(c.error.file, in(out, name));
            CHECK_CONTAINS(c.error.message, "is the manifest that is read");
        }
        CHECK(fixture_is_same_file(manifest, in(out, name)));
    }
    /* Where nothing is verified with it nothing is read. */
    c.options.verify = BERTH_LOAD_VERIFY_NONE;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
}

static void
test_named_manifests(void)
{
    check_named_manifest(MANIFEST, true);
    check_named_manifest("a.json", true); /* the source has one, too, which goes along */
    check_named_manifest("mine.json", false);
}

static berth_status
replace(void *user, berth_context *context, berth_error *error)
{
    const replacing *const r = user;
    converted c;
    berth_status status;

    converted_begin(&c, r->output, BERTH_ENCODING_NF4);
    c.options.overwrite = 1;
    status = converted_run_in(&c, context, r->poor);
    *error = c.error;
    return status;
}

static void
test_faults(void)
{
    const char *const old = in(fixture_folder(), "old");
    replacing r = { .rich = make(rich), .poor = make(poor) };
    converted c;
    fault_counts counts;

    convert(&c, r.rich, old);
    r.output = fixture_folder();
    fixture_copy_folder(old, r.output);
    counts = fault_loop("files of an older model", replace, &r);
    CHECK_GT(counts.memory, 20);
    CHECK_GT(counts.system, 60);
    convert(&c, r.poor, r.output);
    CHECK(!exists(r.output, "merges.txt") || counts.survived > 0);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_written_files_go);
    T_RUN(test_others_stay);
    T_RUN(test_no_manifest);
    T_RUN(test_strange_manifests);
    T_RUN(test_new_output);
    T_RUN(test_named_manifests);
    T_RUN(test_faults);
    T_MAIN_END;
}
