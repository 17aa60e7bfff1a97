/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person types to the right file, in every layout. */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define INDEX "model.safetensors.index.json"
#define TWO_SHARDS                                                              \
    "[model-00001-of-00002.safetensors]\nF32 2 a\n"                             \
    "[model-00002-of-00002.safetensors]\nF32 3 b\nF32 4 c\n"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static berth_open_options
defaults(void)
{
    berth_open_options options;

    berth_open_options_init(&options);
    return options;
}

/* --------------------------------------------------------------- given paths */

static void
test_folder(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_tensors(folder, "model.safetensors", 3);
    opened_begin(&o, fixture_format("%s//", folder), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_STR(o.summary.path, folder);
    CHECK_STR(o.summary.revision, "");
    CHECK_EQ(o.summary.is_sharded, 0);
    CHECK_EQ(o.summary.shard_count, 1);
    CHECK_EQ(o.finding_count, 0);
    opened_end(&o);
}

static void
test_file(void)
{
    const char *folder = fixture_folder();
    const char *path = in(folder, "whatever.bin");
    berth_shard shard;
    opened o;

    fixture_tensors(folder, "whatever.bin", 2);
    fixture_tensors(folder, "other.safetensors", 1);
    opened_begin(&o, path, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    CHECK_STR(o.summary.path, path);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 0, &shard), BERTH_OK);
    CHECK_STR(shard.file, "whatever.bin");
    CHECK_STR(shard.target, "");
    CHECK_STR(shard.blob_sha256, "");
    CHECK_EQ(o.finding_count, 0); /* what lies beside is nobody's business */
    opened_end(&o);
}

static void
test_working_folder(void)
{
    const char *folder = fixture_folder();
    char before[4096];
    opened o;

    fixture_tensors(folder, "m.safetensors", 2);
    T_REQUIRE(getcwd(before, sizeof before) != NULL);
    T_REQUIRE(chdir(folder) == 0);
    opened_begin(&o, "m.safetensors", NULL);
    if (CHECK(o.checkpoint != NULL))
        CHECK_STR(o.summary.path, "m.safetensors");
    opened_end(&o);
    opened_begin(&o, ".", NULL);
    if (CHECK(o.checkpoint != NULL))
        CHECK_STR(o.summary.path, ".");
    opened_end(&o);
    opened_refuse("gone.safetensors", NULL, BERTH_REASON_NOT_FOUND,
                  "gone.safetensors: opening failed");
    /* The folder of an index that is named without one. */
    fixture_model(".", TWO_SHARDS);
    opened_begin(&o, "model.safetensors.index.json", NULL);
    if (CHECK(o.checkpoint != NULL))
        CHECK_STR(o.summary.path, ".");
    opened_end(&o);
    T_REQUIRE(chdir(before) == 0);
}

static void
test_index_path(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_model(folder, TWO_SHARDS);
    fixture_tensors(folder, "model.safetensors", 1); /* the index was named: it counts */
    opened_begin(&o, in(folder, INDEX), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_EQ(o.summary.is_sharded, 1);
    CHECK_STR(o.summary.path, folder);
    opened_end(&o);
}

static void
test_arguments(void)
{
    berth_open_options options = defaults();
    berth_checkpoint *checkpoint = (berth_checkpoint *)&options;
    berth_context *context;
    berth_error error;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, NULL, NULL, &checkpoint, &error),
             BERTH_EINVAL);
    CHECK(checkpoint == NULL);
    CHECK_CONTAINS(error.message, "`path` is NULL");
    checkpoint = (berth_checkpoint *)&options;
    CHECK_EQ(berth_checkpoint_open(NULL, "x", NULL, &checkpoint, &error), BERTH_EINVAL);
    CHECK(checkpoint == NULL);
    CHECK_CONTAINS(error.message, "`context` is NULL");
    CHECK_EQ(berth_checkpoint_open(context, "x", NULL, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`out_checkpoint` is NULL");
    CHECK_EQ(berth_checkpoint_open(context, "", NULL, &checkpoint, NULL), BERTH_EINVAL);
    options.struct_size = 3;
    CHECK_EQ(berth_checkpoint_open(context, "x", &options, &checkpoint, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "options");
    berth_context_destroy(context);
    opened_refuse("", NULL, BERTH_REASON_ARGUMENT, "`path` is empty");
}

/* ---------------------------------------------------------- what is no file */

/* Nobody writes to that pipe, ever: whoever waited for it would not come back. */
static void
refuse_both_ways(const char *folder, const char *name, berth_reason reason,
                 const char *words)
{
    opened_refuse(in(folder, name), NULL, reason, words);
    opened_refuse(folder, NULL, reason, words);
    fixture_remove(in(folder, name));
}

static void
test_no_file(void)
{
    const char *folder = fixture_folder();
    const char *name = "model.safetensors";
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);

    T_REQUIRE(mkfifo(in(folder, name), 0666) == 0);
    refuse_both_ways(folder, name, BERTH_REASON_NOT_REGULAR, "pipe, socket or device");
    strcpy(address.sun_path, in(folder, name));
    CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    refuse_both_ways(folder, name, BERTH_REASON_NOT_REGULAR, "pipe, socket or device");
    close(listener);
    fixture_link("/dev/zero", in(folder, name));
    refuse_both_ways(folder, name, BERTH_REASON_NOT_REGULAR, "pipe, socket or device");
    fixture_link(name, in(folder, name));
    refuse_both_ways(folder, name, BERTH_REASON_LINK_LOOP, name);
    fixture_link("nowhere", in(folder, name));
    refuse_both_ways(folder, name, BERTH_REASON_MISSING_BLOB,
                     "a link to nowhere, where there is nothing");
    opened_refuse("/dev/null", NULL, BERTH_REASON_NOT_REGULAR, "/dev/null");
}

static void
test_folder_as_file(void)
{
    const char *folder = fixture_folder();

    fixture_make_folder(in(folder, "model.safetensors"));
    opened_refuse(folder, NULL, BERTH_REASON_NOT_REGULAR,
                  "model.safetensors: a directory, not a regular file");
    /* a folder of that name is no weight file, but something else may be */
    fixture_tensors(folder, "other.safetensors", 2);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 weight files");
    fixture_link("model.safetensors", in(folder, "linked.safetensors"));
    fixture_text(in(folder, INDEX), "{\"weight_map\": {\"a\": \"linked.safetensors\"}}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_REGULAR, "a directory");
}

static void
ignore_finding(void *user, const berth_finding *finding)
{
    (void)user;
    (void)finding;
}

/*
 * How nobody fares with it, in a child, as this process may read everything: the
 * reason, or 0, and the file that the error is about. -1: nobody cannot be had.
 */
static int
open_as_nobody(const char *path, const char *expected_file)
{
    const pid_t child = fork();
    int state;

    if (child == 0) {
        berth_context *context = NULL;
        berth_open_options options = defaults();
        berth_checkpoint *checkpoint = NULL;
        berth_error error;

        options.finding = ignore_finding;
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(77);
        if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
            _exit(78);
        (void)berth_checkpoint_open(context, path, &options, &checkpoint, &error);
        _exit(strcmp(error.file, expected_file) == 0 ? (int)error.reason : 79);
    }
    if (!CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state)))
        return 0;
    return WEXITSTATUS(state) == 77 ? -1 : WEXITSTATUS(state);
}

static void
test_unreadable(void)
{
    const char *folder = fixture_folder();
    const char *locked = in(folder, "model.safetensors");
    int reason;

    fixture_tensors(folder, "model.safetensors", 1);
    T_REQUIRE(chmod(locked, 0) == 0 && chmod(folder, 0755) == 0);
    T_REQUIRE(chmod(fixture_format("%s/..", folder), 0755) == 0);
    reason = open_as_nobody(folder, locked);
    if (reason < 0)
        T_SKIP("cannot become another user");
    CHECK_EQ(reason, BERTH_REASON_PERMISSION);
}

/* One may enter it, and read what one knows the name of. */
static void
test_folder_that_cannot_be_listed(void)
{
    const char *folder = fixture_folder();
    const char *inner = in(folder, "inner");
    const char *path = in(inner, "model.safetensors");
    int reason;

    if (geteuid() != 0)
        T_SKIP("cannot become another user"); /* and an owner may list it */
    fixture_tensors(inner, "model.safetensors", 1);
    T_REQUIRE(chmod(inner, 0711) == 0 && chmod(folder, 0755) == 0);
    T_REQUIRE(chmod(fixture_format("%s/..", folder), 0755) == 0);
    reason = open_as_nobody(path, "");
    if (reason < 0)
        T_SKIP("cannot become another user");
    CHECK_EQ(reason, 0);
    CHECK_EQ(open_as_nobody(inner, ""), 0);
    T_REQUIRE(rename(path, in(inner, "x.safetensors")) == 0);
    CHECK_EQ(open_as_nobody(inner, inner), BERTH_REASON_PERMISSION);
    T_REQUIRE(rename(in(inner, "x.safetensors"), path) == 0);
    fixture_text(in(folder, "x.safetensors.index.json"),
                 "{\"weight_map\": {\"model.safetensors.0\": \"inner/model.safetensors\"}}");
    CHECK_EQ(open_as_nobody(folder, ""), 0);
    T_REQUIRE(chmod(inner, 0) == 0);
    CHECK_EQ(open_as_nobody(path, path), BERTH_REASON_PERMISSION);
    CHECK_EQ(open_as_nobody(inner, inner), BERTH_REASON_PERMISSION);
}

/* ---------------------------------------------------------- which file it is */

static void
test_both_forms(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_model(folder, TWO_SHARDS);
    CHECK_EQ(opened_accept(folder, NULL), 3);
    fixture_tensors(folder, "model.safetensors", 1);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 1);
    T_REQUIRE(opened_count(&o, BERTH_REASON_BOTH_FORMS) == 1);
    CHECK_EQ(opened_find(&o, BERTH_REASON_BOTH_FORMS, 0)->severity,
             BERTH_SEVERITY_WARNING);
    CHECK_STR(opened_find(&o, BERTH_REASON_BOTH_FORMS, 0)->details.file,
              in(folder, INDEX));
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 2);
    CHECK_STR(opened_find(&o, BERTH_REASON_STRAY_SHARD, 0)->details.file,
              in(folder, "model-00001-of-00002.safetensors"));
    CHECK_EQ(opened_find(&o, BERTH_REASON_STRAY_SHARD, 1)->severity, BERTH_SEVERITY_NOTE);
    opened_end(&o);
}

static void
test_named_by_config(void)
{
    const char *folder = fixture_folder();
    const char *config = in(folder, "config.json");

    fixture_tensors(folder, "model.safetensors", 1);
    fixture_tensors(folder, "named.safetensors", 2);
    fixture_tensors(folder, "sub/deep.safetensors", 3);
    fixture_text(config, "{\"transformers_weights\": \"named.safetensors\"}");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    fixture_text(config, "{\"transformers_weights\": \"sub/deep.safetensors\"}");
    CHECK_EQ(opened_accept(folder, NULL), 3);
    fixture_text(config, "{\"transformers_weights\": \"gone.safetensors\"}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND,
                  "config.json names these weights");
    fixture_make_folder(in(folder, "sub/is.safetensors"));
    fixture_text(config, "{\"transformers_weights\": \"sub/is.safetensors\"}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND,
                  "sub/is.safetensors: config.json names");
    fixture_index(in(folder, "n.safetensors.index.json"), 8,
                  "named.safetensors.0 named.safetensors\n"
                  "named.safetensors.1 named.safetensors\n");
    fixture_text(config, "{\"transformers_weights\": \"n.safetensors.index.json\"}");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    /* a file that was named knows better than what lies beside it */
    CHECK_EQ(opened_accept(in(folder, "model.safetensors"), NULL), 1);
}

/* The path rule holds for what config.json names as for what an index names. */
static void
test_named_by_config_badly(void)
{
    static const struct {
        const char *name; /* as in JSON */
        const char *words;
    } cases[] = {
        { "/x.safetensors", "is \"/x.safetensors\", which is an absolute path" },
        { "../x.safetensors", "which has a component `.` or `..`" },
        { "a/../x.safetensors", "which has a component `.` or `..`" },
        { "./x.safetensors", "which has a component `.` or `..`" },
        { "a//x.safetensors", "which has an empty component" },
        { "x.safetensors/", "which has an empty component" },
        { "a\\\\x.safetensors", "which contains a backslash or a colon" },
        { "c:x.safetensors", "which contains a backslash or a colon" },
        { "a\\u001b[31m.safetensors",
          "is \"a\\x1b[31m.safetensors\", which contains a control character" },
        { "a/b/c/d/x.safetensors", "which has more than 4 components" },
        { "sub", "which does not end in .safetensors" },
        { "x.gguf", "which does not end in .safetensors" },
        { "index.json", "which does not end in .safetensors" },
        { "x.index.json", "which does not end in .safetensors" },
        { "../x.safetensors.index.json", "which has a component `.` or `..`" },
        { ".index.json", "which is not 1 to 1024 bytes long" },
    };
    const char *const folder = fixture_folder();
    const char *const config = in(folder, "config.json");
    char name[1100];

    fixture_tensors(folder, "model.safetensors", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_text(config, fixture_format("{\"transformers_weights\": \"%s\"}",
                                            cases[i].name));
        opened_refuse(folder, NULL, BERTH_REASON_PATH,
                      fixture_format("%s: \"transformers_weights\" is \"", config));
        opened_refuse(folder, NULL, BERTH_REASON_PATH, cases[i].words);
    }
    memset(name, 'x', sizeof name);
    strcpy(name + 244, ".safetensors");
    fixture_text(config, fixture_format("{\"transformers_weights\": \"%s\"}", name));
    opened_refuse(folder, NULL, BERTH_REASON_PATH, "a component of more than 255 bytes");
    memset(name, 'x', sizeof name);
    strcpy(name + 1013, ".safetensors");
    fixture_text(config, fixture_format("{\"transformers_weights\": \"%s\"}", name));
    opened_refuse(folder, NULL, BERTH_REASON_PATH, "which is not 1 to 1024 bytes long");
    /* Whether it is there or not, inside or outside. */
    fixture_text(config, "{\"transformers_weights\": \"../w.bin\"}");
    opened_refuse(folder, NULL, BERTH_REASON_PICKLE,
                  "config.json: \"transformers_weights\" is \"../w.bin\", a pickle");
}

static void
test_variants(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    fixture_tensors(folder, "model.safetensors", 1);
    fixture_tensors(folder, "model.fp16.safetensors", 2);
    fixture_tensors(folder, "model.bf16-00001-of-00001.safetensors", 3);
    fixture_index(in(folder, "model.safetensors.index.bf16.json"), 24,
                  "model.bf16-00001-of-00001.safetensors.0 "
                  "model.bf16-00001-of-00001.safetensors\n"
                  "model.bf16-00001-of-00001.safetensors.1 "
                  "model.bf16-00001-of-00001.safetensors\n"
                  "model.bf16-00001-of-00001.safetensors.2 "
                  "model.bf16-00001-of-00001.safetensors\n");
    CHECK_EQ(opened_accept(folder, &options), 1);
    options.variant = "fp16";
    CHECK_EQ(opened_accept(folder, &options), 2);
    options.variant = "bf16";
    CHECK_EQ(opened_accept(folder, &options), 3);
    options.variant = "fp8";
    opened_refuse(folder, &options, BERTH_REASON_NOT_FOUND,
                  "none of the variant \"fp8\"");
    options.variant = "p16";
    opened_refuse(folder, &options, BERTH_REASON_NOT_FOUND,
                  "none of the variant \"p16\"");
    options.variant = "";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "../x";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "/b";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "a/b";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "a b";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "a%s";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "a\x7f";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "-a";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "x2345678901234567890123456789012345678901234567890123456789012345";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "x234567890123456789012345678901234567890123456789012345678901~!4";
    opened_refuse(folder, &options, BERTH_REASON_NOT_FOUND, "none of the variant");
}

/* What a download of *.safetensors leaves: all that is missing is told at once. */
static void
test_shards_without_an_index(void)
{
    const char *folder = fixture_folder();

    fixture_tensors(folder, "model-00001-of-00003.safetensors", 1);
    fixture_tensors(folder, "model-00003-of-00003.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD,
                  "model-00002-of-00003.safetensors: a shard beside it is there");
    fixture_tensors(folder, "model-00002-of-00003.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS,
                  "3 shards, and their index is missing: model-00001-of-00003.safetensors, "
                  "model-00002-of-00003.safetensors, ... [");
    fixture_tensors(folder, "other.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "4 weight files and no index");
    fixture_remove(in(folder, "other.safetensors"));
    fixture_tensors(folder, "other-00001-of-00001.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "4 weight files and no index");
}

static void
test_variant_of_another_stem(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    fixture_tensors(folder, "diffusion_pytorch_model.fp16.safetensors", 2);
    fixture_tensors(folder, "diffusion_pytorch_model.safetensors", 1);
    opened_refuse(
        folder, NULL, BERTH_REASON_AMBIGUOUS,
        "2 weight files and no index: diffusion_pytorch_model.fp16.safetensors, "
        "diffusion_pytorch_model.safetensors [");
    options.variant = "fp16";
    CHECK_EQ(opened_accept(folder, &options), 2);
}

static void
test_only_choice(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_tensors(folder, "anything.safetensors", 2);
    CHECK_EQ(opened_accept(folder, NULL), 2);
    /* an adapter, another copy and an optimizer beside it change nothing */
    fixture_tensors(folder, "adapter_model.safetensors", 1);
    fixture_tensors(folder, "consolidated.00.safetensors", 1);
    fixture_tensors(folder, "optimizer.safetensors", 1);
    fixture_tensors(folder, "style.lora.safetensors", 1);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    CHECK_EQ(o.summary.is_adapter, 0);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 4);
    CHECK_CONTAINS(opened_find(&o, BERTH_REASON_STRAY_SHARD, 0)->details.message,
                   "an adapter, or the same weights again");
    opened_end(&o);
}

static void
test_adapter(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_tensors(folder, "adapter_model.safetensors", 2);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    CHECK_EQ(o.summary.is_adapter, 1);
    opened_end(&o);
    opened_begin(&o, in(folder, "adapter_model.safetensors"), NULL);
    CHECK_EQ(o.summary.is_adapter, 1);
    opened_end(&o);
}

static void
test_consolidated(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_tensors(folder, "consolidated-00001-of-00001.safetensors", 1);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 1); /* as there is nothing else */
    opened_end(&o);
    fixture_remove(in(folder, "consolidated-00001-of-00001.safetensors"));
    fixture_tensors(folder, "consolidated-00001-of-00002.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD,
                  "consolidated-00002-of-00002.safetensors: a shard beside it is there");
    fixture_tensors(folder, "consolidated-00002-of-00002.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 shards, and their index is missing");
    fixture_model(folder, TWO_SHARDS);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 2);
    opened_end(&o);
}

/* Such files lie in archives and on disks that a Mac has written. */
static void
test_notes_of_macos(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_tensors(folder, "unet.safetensors", 2);
    fixture_text(in(folder, "._unet.safetensors"), "a note");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    fixture_remove(in(folder, "unet.safetensors"));
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "no ");
    fixture_tensors(folder, "unet-00001-of-00001.safetensors", 2);
    fixture_index(in(folder, "unet.safetensors.index.json"), 16,
                  "unet-00001-of-00001.safetensors.0 unet-00001-of-00001.safetensors\n"
                  "unet-00001-of-00001.safetensors.1 unet-00001-of-00001.safetensors\n");
    fixture_text(in(folder, "._unet.safetensors.index.json"), "a note");
    fixture_text(in(folder, "._unet-00001-of-00001.safetensors"), "a note");
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 0);
    opened_end(&o);
}

static void
test_other_index(void)
{
    const char *folder = fixture_folder();

    fixture_tensors(folder, "unet-00001-of-00001.safetensors", 2);
    fixture_index(in(folder, "unet.safetensors.index.json"), 16,
                  "unet-00001-of-00001.safetensors.0 unet-00001-of-00001.safetensors\n"
                  "unet-00001-of-00001.safetensors.1 unet-00001-of-00001.safetensors\n");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    fixture_tensors(folder, "unet.safetensors", 1);
    CHECK_EQ(opened_accept(folder, NULL), 1);
    fixture_remove(in(folder, "unet.safetensors"));
    fixture_copy(in(folder, "unet.safetensors.index.json"),
                 in(folder, "b.safetensors.index.json"));
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 indexes, none of them model");
    fixture_remove(in(folder, "unet.safetensors.index.json"));
    fixture_remove(in(folder, "b.safetensors.index.json"));
    fixture_tensors(folder, "unet-00001-of-00001.safetensors", 2);
    fixture_index(in(folder, "unet.safetensors.index.fp16.json"), 16,
                  "unet-00001-of-00001.safetensors.0 unet-00001-of-00001.safetensors\n"
                  "unet-00001-of-00001.safetensors.1 unet-00001-of-00001.safetensors\n");
    CHECK_EQ(opened_accept(folder, NULL), 2);
}

static void
test_all_files(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();
    opened o;

    options.all_files = 1;
    fixture_tensors(folder, "b.safetensors", 2);
    fixture_tensors(folder, "a.safetensors", 1);
    fixture_tensors(folder, "adapter_model.safetensors", 1);
    opened_begin(&o, folder, &options);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_EQ(o.summary.shard_count, 2);
    CHECK_EQ(o.summary.is_sharded, 0);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 1);
    CHECK_NE(berth_checkpoint_find(o.checkpoint, "b.safetensors.1", 15), BERTH_NO_TENSOR);
    opened_end(&o);
    /* names must be disjoint */
    fixture_copy(in(folder, "a.safetensors"), in(folder, "c.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_DUPLICATE,
                  "c.safetensors: tensor \"a.safetensors.0\": also in a.safetensors");
}

static void
test_all_files_numbered(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    options.all_files = 1;
    for (int i = 1; i <= 4; i++)
        fixture_tensors(folder, fixture_format("m-0000%d-of-00004.safetensors", i), 1);
    CHECK_EQ(opened_accept(folder, &options), 4);
    fixture_remove(in(folder, "m-00004-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD,
                  "m-00004-of-00004.safetensors: a shard beside it is there");
    fixture_tensors(folder, "m-00004-of-00004.safetensors", 1);
    fixture_remove(in(folder, "m-00001-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "m-00001-of-00004");
    fixture_remove(in(folder, "m-00002-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "m-00002-of-00004");
    /* what only looks like a number is a name like any other */
    fixture_remove(in(folder, "m-00003-of-00004.safetensors"));
    fixture_remove(in(folder, "m-00004-of-00004.safetensors"));
    fixture_tensors(folder, "m-0000x-of-00004.safetensors", 1);
    fixture_tensors(folder, "m-00001-of-0000:.safetensors", 1);
    fixture_tensors(folder, "m-00001-Of-00004.safetensors", 1);
    fixture_tensors(folder, "m_00001-of-00004.safetensors", 1);
    fixture_tensors(folder, "m-00001-of-000040safetensors.safetensors", 1);
    CHECK_EQ(opened_accept(folder, &options), 5);
}

/* What is left of a download without its index is no model; a file that is named is one. */
static void
test_one_of_several(void)
{
    const char *folder = fixture_folder();

    fixture_tensors(folder, "model-00002-of-00003.safetensors", 2);
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD,
                  "model-00001-of-00003.safetensors: a shard beside it is there");
    CHECK_EQ(opened_accept(in(folder, "model-00002-of-00003.safetensors"), NULL), 2);
    fixture_tensors(folder, "adapter_model.safetensors", 1); /* changes nothing */
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD, "model-00001-of-00003");
    fixture_remove(in(folder, "model-00002-of-00003.safetensors"));
    fixture_remove(in(folder, "adapter_model.safetensors"));
    fixture_tensors(folder, "model-00001-of-00001.safetensors", 3);
    CHECK_EQ(opened_accept(folder, NULL), 3);
}

/* What a run was broken off in is no model before its commit file is there. */
static void
test_interrupted(void)
{
    static const char why[] =
        "an interrupted run of berth lies here: repeat that command with --resume";
    const char *folder = fixture_folder();
    berth_open_options options = defaults();
    opened o;

    fixture_text(in(folder, ".berth-journal.json"), "{}");
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
    fixture_tensors(folder, "model-00002-of-00002.safetensors", 2);
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
    options.all_files = 1;
    opened_refuse(folder, &options, BERTH_REASON_INCOMPLETE, why);
    fixture_text(in(folder, "config.json"),
                 "{\"transformers_weights\": \"model-00002-of-00002.safetensors\"}");
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
    fixture_remove(in(folder, "config.json"));
    fixture_tensors(folder, "model.fp16.safetensors", 1);
    options = defaults();
    options.variant = "fp16";
    opened_refuse(folder, &options, BERTH_REASON_INCOMPLETE, why);
    fixture_remove(in(folder, "model.fp16.safetensors"));

    /* A file that is named is nothing but that file. */
    opened_begin(&o, in(folder, "model-00002-of-00002.safetensors"), NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    opened_end(&o);
    fixture_tensors(folder, "model.safetensors", 3);
    CHECK_EQ(opened_accept(folder, NULL), 3);
    fixture_remove(in(folder, "model.safetensors"));
    fixture_model(folder, TWO_SHARDS);
    CHECK_EQ(opened_accept(folder, NULL), 3);
    fixture_remove(in(folder, INDEX));
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
}

/* What parts of a conversion share has the names of weights, and is none. */
static void
test_unfinished_parts(void)
{
    static const char why[] = "unfinished parts of a conversion lie here: run the parts that "
                              "are missing, or put them together with --join";
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    fixture_text(in(folder, ".berth-part-1a2b3c4d-00001-of-00003.json.lock"), "");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "no *.safetensors in this folder");
    fixture_tensors(folder, ".berth-part-1a2b3c4d-model-00001.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
    fixture_tensors(folder, ".berth-part-1a2b3c4d-model-00002.safetensors", 2);
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, why);
    options.all_files = 1;
    opened_refuse(folder, &options, BERTH_REASON_INCOMPLETE, why);
    options = defaults();
    options.variant = "fp16";
    opened_refuse(folder, &options, BERTH_REASON_INCOMPLETE, why);
    fixture_tensors(folder, "other.safetensors", 3);
    CHECK_EQ(opened_accept(folder, NULL), 3);
}

static void
test_nothing_usable(void)
{
    const char *folder = fixture_folder();

    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND,
                  "no *.safetensors in this folder");
    fixture_text(in(folder, "training_args.bin"), "x");
    fixture_text(in(folder, "optimizer.pt"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND,
                  "no *.safetensors in this folder");
    fixture_make_folder(in(folder, "models--org--name"));
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "a hub cache");
    fixture_text(in(folder, "model_index.json"), "{}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "a pipeline");
    fixture_text(in(folder, "flax_model.msgpack"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_OTHER_FORMAT, "flax_model.msgpack");
    fixture_text(in(folder, "q.gguf"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_GGUF, "q.gguf: the only weights here are");
    fixture_text(in(folder, "pytorch_model-00002-of-00002.bin"), "x");
    fixture_text(in(folder, "pytorch_model-00001-of-00002.bin"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_PICKLE, "pytorch_model-00001-of-00002.bin");
    fixture_text(in(folder, "model.safetensors.part"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, "unfinished downloads");
    fixture_remove(in(folder, "model.safetensors.part"));
    fixture_text(in(folder, ".cache/huggingface/download/abc.incomplete"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, "unfinished downloads");
}

static void
test_other_kinds(void)
{
    static const char *const pickles[] = { "a.bin",  "a.pt",  "a.pth",
                                           "a.ckpt", "a.pkl", "a.pickle" };
    static const char *const others[] = {
        "a.h5",   "a.hdf5",     "a.keras", "a.msgpack",   "a.npz",      "a.onnx",
        "a.ggml", "a.onnx_data", "a.ot",   "a.tflite",    "a.pdparams", "a.mlmodel",
        "a.nemo", "a.distcp",   "a.pte",   "a.llamafile", "a.engine",
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *folder = fixture_folder();
        const char *const pickle = pickles[i % (sizeof pickles / sizeof *pickles)];

        fixture_text(in(folder, others[i]), "x");
        opened_refuse(folder, NULL, BERTH_REASON_OTHER_FORMAT, others[i]);
        fixture_text(in(folder, pickle), "x");
        opened_refuse(folder, NULL, BERTH_REASON_PICKLE, pickle);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_folder);
    T_RUN(test_file);
    T_RUN(test_working_folder);
    T_RUN(test_index_path);
    T_RUN(test_arguments);
    T_RUN(test_no_file);
    T_RUN(test_folder_as_file);
    T_RUN(test_unreadable);
    T_RUN(test_folder_that_cannot_be_listed);
    T_RUN(test_both_forms);
    T_RUN(test_named_by_config);
    T_RUN(test_named_by_config_badly);
    T_RUN(test_variants);
    T_RUN(test_shards_without_an_index);
    T_RUN(test_variant_of_another_stem);
    T_RUN(test_only_choice);
    T_RUN(test_adapter);
    T_RUN(test_consolidated);
    T_RUN(test_notes_of_macos);
    T_RUN(test_other_index);
    T_RUN(test_all_files);
    T_RUN(test_all_files_numbered);
    T_RUN(test_one_of_several);
    T_RUN(test_interrupted);
    T_RUN(test_unfinished_parts);
    T_RUN(test_nothing_usable);
    T_RUN(test_other_kinds);
    T_MAIN_END;
}
