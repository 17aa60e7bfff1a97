/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person types to the right file, in every layout. */
#define _XOPEN_SOURCE 700

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
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

/* A file with `count` tensors. */
static void
put(const char *folder, const char *name, int count)
{
    fixture_builder *builder = fixture_begin();
    const uint64_t shape = 2;

    for (int i = 0; i < count; i++)
        fixture_add(builder, fixture_format("%s.%d", name, i), "F32", 1, &shape, NULL);
    fixture_finish(builder, in(folder, name));
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

    put(folder, "model.safetensors", 3);
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

    put(folder, "whatever.bin", 2);
    put(folder, "other.safetensors", 1);
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

    put(folder, "m.safetensors", 2);
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
    T_REQUIRE(chdir(before) == 0);
}

static void
test_index_path(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_model(folder, TWO_SHARDS);
    put(folder, "model.safetensors", 1); /* the index was named: it counts */
    opened_begin(&o, in(folder, INDEX), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_EQ(o.summary.is_sharded, 1);
    CHECK_STR(o.summary.path, fixture_format("%s/", folder));
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
    CHECK_EQ(berth_checkpoint_open(context, NULL, NULL, &checkpoint, &error), BERTH_EINVAL);
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

static void
refuse_both_ways(const char *folder, const char *name, berth_reason reason,
                 const char *words)
{
    struct timespec begin;
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    opened_refuse(in(folder, name), NULL, reason, words);
    opened_refuse(folder, NULL, reason, words);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK_LT(end.tv_sec - begin.tv_sec, 2);
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

    /* a folder of that name is no weight file, but something else may be */
    fixture_make_folder(in(folder, "model.safetensors"));
    put(folder, "other.safetensors", 2);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 weight files");
    fixture_link("model.safetensors", in(folder, "linked.safetensors"));
    fixture_text(in(folder, INDEX), "{\"weight_map\": {\"a\": \"linked.safetensors\"}}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_REGULAR, "a directory");
}

/* In a child that is nobody, when this process may read everything. */
static void
test_unreadable(void)
{
    const char *folder = fixture_folder();
    const char *locked = in(folder, "model.safetensors");
    pid_t child;
    int state;

    put(folder, "model.safetensors", 1);
    T_REQUIRE(chmod(locked, 0) == 0 && chmod(folder, 0755) == 0);
    T_REQUIRE(chmod(fixture_format("%s/..", folder), 0755) == 0);
    child = fork();
    if (child == 0) {
        berth_context *context = NULL;
        berth_checkpoint *checkpoint = NULL;
        berth_error error;

        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(77);
        if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
            _exit(2);
        if (berth_checkpoint_open(context, folder, NULL, &checkpoint, &error)
            != BERTH_ENOENT)
            _exit(3);
        _exit(error.reason == BERTH_REASON_PERMISSION
                      && strcmp(error.file, locked) == 0
                  ? 0
                  : 4);
    }
    T_REQUIRE(waitpid(child, &state, 0) == child && WIFEXITED(state));
    if (WEXITSTATUS(state) == 77)
        T_SKIP("cannot become another user");
    CHECK_EQ(WEXITSTATUS(state), 0);
}

/* ---------------------------------------------------------- which file it is */

static void
test_both_forms(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_model(folder, TWO_SHARDS);
    CHECK_EQ(opened_accept(folder, NULL), 3);
    put(folder, "model.safetensors", 1);
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

    put(folder, "model.safetensors", 1);
    put(folder, "named.safetensors", 2);
    put(folder, "sub/deep.safetensors", 3);
    fixture_text(config, "{\"transformers_weights\": \"named.safetensors\"}");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    fixture_text(config, "{\"transformers_weights\": \"sub/deep.safetensors\"}");
    CHECK_EQ(opened_accept(folder, NULL), 3);
    fixture_text(config, "{\"transformers_weights\": \"gone.safetensors\"}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "config.json names these weights");
    fixture_text(config, "{\"transformers_weights\": \"sub\"}");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "sub: config.json names");
    fixture_text(in(folder, "w.bin"), "x");
    fixture_text(config, "{\"transformers_weights\": \"w.bin\"}");
    opened_refuse(folder, NULL, BERTH_REASON_PICKLE, "w.bin: config.json names a pickle");
    fixture_text(config, "{\"transformers_weights\": \"../x.safetensors\"}");
    opened_refuse(folder, NULL, BERTH_REASON_PATH, "config.json");
    fixture_index(in(folder, "n.safetensors.index.json"), 8,
                  "named.safetensors.0 named.safetensors\n"
                  "named.safetensors.1 named.safetensors\n");
    fixture_text(config, "{\"transformers_weights\": \"n.safetensors.index.json\"}");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    /* a file that was named knows better than what lies beside it */
    CHECK_EQ(opened_accept(in(folder, "model.safetensors"), NULL), 1);
}

static void
test_variants(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    put(folder, "model.safetensors", 1);
    put(folder, "model.fp16.safetensors", 2);
    put(folder, "model.bf16-00001-of-00001.safetensors", 3);
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
    opened_refuse(folder, &options, BERTH_REASON_NOT_FOUND, "none of the variant \"fp8\"");
    options.variant = "p16";
    opened_refuse(folder, &options, BERTH_REASON_NOT_FOUND, "none of the variant \"p16\"");
    options.variant = "";
    opened_refuse(folder, &options, BERTH_REASON_ARGUMENT, "`variant`");
    options.variant = "../x";
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

static void
test_variant_of_another_stem(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    put(folder, "diffusion_pytorch_model.fp16.safetensors", 2);
    put(folder, "diffusion_pytorch_model.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS,
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

    put(folder, "anything.safetensors", 2);
    CHECK_EQ(opened_accept(folder, NULL), 2);
    /* an adapter, another copy and an optimizer beside it change nothing */
    put(folder, "adapter_model.safetensors", 1);
    put(folder, "consolidated.00.safetensors", 1);
    put(folder, "optimizer.safetensors", 1);
    put(folder, "style.lora.safetensors", 1);
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

    put(folder, "adapter_model.safetensors", 2);
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

    put(folder, "consolidated-00001-of-00002.safetensors", 1);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 1); /* as there is nothing else */
    opened_end(&o);
    put(folder, "consolidated-00002-of-00002.safetensors", 1);
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 weight files and no index");
    fixture_model(folder, TWO_SHARDS);
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 2);
    opened_end(&o);
}

static void
test_other_index(void)
{
    const char *folder = fixture_folder();

    put(folder, "unet-00001-of-00001.safetensors", 2);
    fixture_index(in(folder, "unet.safetensors.index.json"), 16,
                  "unet-00001-of-00001.safetensors.0 unet-00001-of-00001.safetensors\n"
                  "unet-00001-of-00001.safetensors.1 unet-00001-of-00001.safetensors\n");
    CHECK_EQ(opened_accept(folder, NULL), 2);
    put(folder, "unet.safetensors", 1);
    CHECK_EQ(opened_accept(folder, NULL), 1);
    fixture_remove(in(folder, "unet.safetensors"));
    fixture_copy(in(folder, "unet.safetensors.index.json"),
                 in(folder, "b.safetensors.index.json"));
    opened_refuse(folder, NULL, BERTH_REASON_AMBIGUOUS, "2 indexes, none of them model");
    fixture_remove(in(folder, "unet.safetensors.index.json"));
    fixture_remove(in(folder, "b.safetensors.index.json"));
    put(folder, "unet-00001-of-00001.safetensors", 2);
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
    put(folder, "b.safetensors", 2);
    put(folder, "a.safetensors", 1);
    put(folder, "adapter_model.safetensors", 1);
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
        put(folder, fixture_format("m-0000%d-of-00004.safetensors", i), 1);
    CHECK_EQ(opened_accept(folder, &options), 4);
    fixture_remove(in(folder, "m-00004-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD,
                  "m-00004-of-00004.safetensors: the shards beside it are there");
    put(folder, "m-00004-of-00004.safetensors", 1);
    fixture_remove(in(folder, "m-00001-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "m-00001-of-00004");
    fixture_remove(in(folder, "m-00002-of-00004.safetensors"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "m-00002-of-00004");
    /* what only looks like a number is a name like any other */
    fixture_remove(in(folder, "m-00003-of-00004.safetensors"));
    fixture_remove(in(folder, "m-00004-of-00004.safetensors"));
    put(folder, "m-0000x-of-00004.safetensors", 1);
    put(folder, "m-00001-of-0000:.safetensors", 1);
    put(folder, "m-00001-Of-00004.safetensors", 1);
    put(folder, "m_00001-of-00004.safetensors", 1);
    put(folder, "m-00001-of-000040safetensors.safetensors", 1);
    CHECK_EQ(opened_accept(folder, &options), 5);
}

static void
test_nothing_usable(void)
{
    const char *folder = fixture_folder();

    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "no *.safetensors in this folder");
    fixture_text(in(folder, "training_args.bin"), "x");
    fixture_text(in(folder, "optimizer.pt"), "x");
    opened_refuse(folder, NULL, BERTH_REASON_NOT_FOUND, "no *.safetensors in this folder");
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
    static const char *const pickles[] = { "a.bin", "a.pt", "a.pth", "a.ckpt", "a.pkl" };
    static const char *const others[] = { "a.h5", "a.msgpack", "a.npz", "a.onnx",
                                          "a.tflite" };

    for (size_t i = 0; i < 5; i++) {
        const char *folder = fixture_folder();

        fixture_text(in(folder, others[i]), "x");
        opened_refuse(folder, NULL, BERTH_REASON_OTHER_FORMAT, others[i]);
        fixture_text(in(folder, pickles[i]), "x");
        opened_refuse(folder, NULL, BERTH_REASON_PICKLE, pickles[i]);
    }
}

/* ------------------------------------------------------------------ hub cache */

typedef struct cache {
    const char *path;
    const char *snapshot;
    const char *home;
} cache;

static cache
make_cache(const char *lines)
{
    const char *folder = fixture_folder();
    cache c;

    c.path = fixture_folder();
    fixture_model(folder, lines);
    fixture_text(in(folder, "config.json"), FIXTURE_CONFIG);
    c.snapshot = fixture_hub(c.path, "org/name", FIXTURE_COMMIT, folder);
    c.home = fixture_hub_repository(c.path, "org/name");
    return c;
}

static void
check_hub(const char *path, const cache *c)
{
    berth_open_options options = defaults();
    berth_shard shard;
    opened o;

    options.hub_cache = c->path;
    opened_begin(&o, path, &options);
    if (!CHECK(o.checkpoint != NULL)) {
        T_NOTE("%s: %s", path, o.error.message);
        opened_end(&o);
        return;
    }
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_STR(o.summary.revision, FIXTURE_COMMIT);
    CHECK_STR(o.summary.architecture, "LlamaForCausalLM");
    CHECK_STR(o.summary.path, c->snapshot);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 1, &shard), BERTH_OK);
    CHECK_STR(shard.file, "model-00002-of-00002.safetensors");
    CHECK_EQ(strlen(shard.blob_sha256), 64);
    CHECK_STR(shard.target, fixture_format("../../blobs/%s", shard.blob_sha256));
    CHECK_EQ(o.finding_count, 0);
    opened_end(&o);
}

static void
test_hub_layouts(void)
{
    const cache c = make_cache(TWO_SHARDS);

    check_hub("org/name", &c);
    check_hub("org/name@main", &c);
    check_hub("org/name@" FIXTURE_COMMIT, &c);
    fixture_hub_ref(c.path, "org/name", "refs/pr/1", FIXTURE_COMMIT "\n");
    check_hub("org/name@refs/pr/1", &c);
    check_hub(c.home, &c);
    check_hub(c.snapshot, &c);
    check_hub(fixture_format("%s/", c.home), &c);
}

/* Folders on the way are links, the cache lies on another volume, say. */
static void
test_hub_through_links(void)
{
    const cache c = make_cache(TWO_SHARDS);
    const char *elsewhere = fixture_folder();
    opened o;

    fixture_link(c.snapshot, in(elsewhere, "current"));
    opened_begin(&o, in(elsewhere, "current"), NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    CHECK_STR(o.summary.revision, FIXTURE_COMMIT);
    CHECK_STR(o.summary.path, in(elsewhere, "current"));
    opened_end(&o);
}

static void
test_hub_without_organisation(void)
{
    const char *folder = fixture_folder();
    const char *path = fixture_folder();
    berth_open_options options = defaults();

    options.hub_cache = path;
    put(folder, "model.safetensors", 2);
    fixture_hub(path, "gpt2", FIXTURE_COMMIT, folder);
    CHECK_EQ(opened_accept("gpt2", &options), 2);
    opened_refuse("gpt2", NULL, BERTH_REASON_NOT_FOUND, "gpt2: opening failed");
    options.hub_cache = "";
    opened_refuse("gpt2", &options, BERTH_REASON_NOT_FOUND, "gpt2: opening failed");
}

/* Plain files where links are off; blobs is then empty. */
static void
test_hub_copies(void)
{
    const cache c = make_cache("[model.safetensors]\nF32 2 a\n");
    char target[512];
    const ssize_t length = readlink(in(c.snapshot, "model.safetensors"), target, 511);
    berth_shard shard;
    opened o;

    T_REQUIRE(length > 0);
    target[length] = '\0';
    fixture_copy(in(c.snapshot, target), fixture_format("%s/copy", c.path));
    fixture_copy(fixture_format("%s/copy", c.path), in(c.snapshot, "model.safetensors"));
    opened_begin(&o, c.snapshot, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_STR(o.summary.revision, FIXTURE_COMMIT);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 0, &shard), BERTH_OK);
    CHECK_STR(shard.target, "");
    CHECK_STR(shard.blob_sha256, "");
    opened_end(&o);
    /* the blob itself, too, is a file that promises its digest */
    opened_begin(&o, in(c.snapshot, target), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 0, &shard), BERTH_OK);
    CHECK_STR(shard.blob_sha256, strrchr(target, '/') + 1);
    opened_end(&o);
}

static void
test_hub_refusals(void)
{
    const cache c = make_cache(TWO_SHARDS);
    berth_open_options options = defaults();

    options.hub_cache = c.path;
    opened_refuse("org/other", &options, BERTH_REASON_NOT_FOUND,
                  "org/other: neither a file nor a folder, nor a repository in the hub");
    opened_refuse("org/name@v2", &options, BERTH_REASON_NO_SNAPSHOT,
                  fixture_format("%s/refs/v2: the hub cache has no such revision", c.home));
    opened_refuse("org/name@" FIXTURE_COMMIT_2, &options, BERTH_REASON_NO_SNAPSHOT,
                  FIXTURE_COMMIT_2 ": the hub cache knows this revision but holds no files");
    fixture_hub_ref(c.path, "org/name", "gone", FIXTURE_COMMIT_2);
    opened_refuse("org/name@gone", &options, BERTH_REASON_NO_SNAPSHOT, FIXTURE_COMMIT_2);
    fixture_hub_ref(c.path, "org/name", "bad", "../../../etc");
    opened_refuse("org/name@bad", &options, BERTH_REASON_BAD_REF,
                  "refs/bad: the ref does not hold a commit of 40 hex digits");
    fixture_hub_ref(c.path, "org/name", "empty", "");
    opened_refuse("org/name@empty", &options, BERTH_REASON_BAD_REF, "refs/empty");
    opened_refuse("org/name@../x", &options, BERTH_REASON_ARGUMENT, "`path` has a revision");
    opened_refuse("org/name@-x", &options, BERTH_REASON_ARGUMENT, "`path` has a revision");
    opened_refuse("org/name@a//b", &options, BERTH_REASON_ARGUMENT, "an empty part");
    opened_refuse("org/../name", &options, BERTH_REASON_NOT_FOUND, "opening failed");
    opened_refuse("../name", &options, BERTH_REASON_NOT_FOUND, "opening failed");
    opened_refuse(c.path, &options, BERTH_REASON_NOT_FOUND, "a hub cache: name one of its");
}

static void
test_hub_strange_refs(void)
{
    const cache c = make_cache(TWO_SHARDS);
    berth_open_options options = defaults();
    char *large = malloc(4098);

    options.hub_cache = c.path;
    memset(large, ' ', 4097);
    memcpy(large, FIXTURE_COMMIT, 40);
    large[4096] = '\0';
    fixture_hub_ref(c.path, "org/name", "large", large);
    CHECK_EQ(opened_accept("org/name@large", &options), 3);
    large[4096] = ' ';
    large[4097] = '\0';
    fixture_hub_ref(c.path, "org/name", "large", large);
    opened_refuse("org/name@large", &options, BERTH_REASON_BAD_REF, "too large, found 4097");
    free(large);
    T_REQUIRE(mkfifo(in(c.home, "refs/pipe"), 0666) == 0);
    opened_refuse("org/name@pipe", &options, BERTH_REASON_NOT_REGULAR, "refs/pipe");
    opened_refuse("org/name@sub/x", &options, BERTH_REASON_NO_SNAPSHOT, "refs/sub/x");
    fixture_remove(in(c.home, "refs"));
    opened_refuse("org/name", &options, BERTH_REASON_NO_SNAPSHOT, "refs/main");
    fixture_remove(in(c.home, "snapshots"));
    opened_refuse("org/name@" FIXTURE_COMMIT, &options, BERTH_REASON_NO_SNAPSHOT,
                  "holds no files");
}

static void
test_read_only_cache(void)
{
    const cache c = make_cache(TWO_SHARDS);
    struct stat before;
    struct stat after;

    T_REQUIRE(chmod(in(c.home, "blobs"), 0555) == 0 && chmod(c.snapshot, 0555) == 0);
    T_REQUIRE(stat(in(c.home, "blobs"), &before) == 0);
    check_hub(c.home, &c);
    T_REQUIRE(stat(in(c.home, "blobs"), &after) == 0);
    CHECK_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    CHECK_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
}

/* -------------------------------------------------------- incomplete snapshots */

#define SHARD_1 "model-00001-of-00002.safetensors"

static void
test_dangling(void)
{
    const cache c = make_cache(TWO_SHARDS);
    char target[512];
    const ssize_t length = readlink(in(c.snapshot, SHARD_1), target, 511);

    T_REQUIRE(length > 0);
    target[length] = '\0';
    fixture_remove(in(c.snapshot, target));
    opened_refuse(c.home, NULL, BERTH_REASON_MISSING_BLOB,
                  fixture_format("%s/" SHARD_1 ": a link to %s, where there is nothing [",
                                 c.snapshot, strrchr(target, '/') + 1));
    fixture_text(in(c.home, "blobs/12.34.incomplete"), "x");
    opened_refuse(c.home, NULL, BERTH_REASON_MISSING_BLOB,
                  "nothing; the cache has unfinished downloads [");
}

static void
test_not_downloaded(void)
{
    const cache c = make_cache(TWO_SHARDS);

    fixture_hub_tree(c.path, "org/name", FIXTURE_COMMIT);
    fixture_remove(in(c.snapshot, SHARD_1));
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INDEX_SHARD,
                  SHARD_1 ": the index names this shard, but it is not there; it belongs to "
                          "this revision but was not downloaded, expected 72 [");
    fixture_text(in(c.home, "blobs/12.incomplete"), "x");
    fixture_text(in(c.home, "blobs/34.5678.incomplete"), "x");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INCOMPLETE,
                  "not there; 2 downloads are unfinished, expected 72 [");
    fixture_remove(in(c.home, "blobs/12.incomplete"));
    fixture_remove(in(c.home, "blobs/34.5678.incomplete"));
    fixture_text(fixture_format("%s/trees/" FIXTURE_COMMIT ".json", c.home),
                 "{\"format_version\":1,\"files\":{}}");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INDEX_SHARD, "but it is not there [");
    fixture_text(fixture_format("%s/trees/" FIXTURE_COMMIT ".json", c.home), "{");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INDEX_SHARD, "but it is not there [");
}

static void
test_weights_not_downloaded(void)
{
    const cache c = make_cache(TWO_SHARDS);
    opened o;

    fixture_hub_tree(c.path, "org/name", FIXTURE_COMMIT);
    fixture_remove(in(c.snapshot, "config.json"));
    opened_begin(&o, c.snapshot, NULL);
    CHECK_EQ(o.summary.tensor_count, 3);
    T_REQUIRE(o.finding_count == 1);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_INCOMPLETE);
    CHECK_CONTAINS(o.findings[0].details.message, "config.json belongs to this revision");
    opened_end(&o);
    fixture_remove(in(c.snapshot, SHARD_1));
    fixture_remove(in(c.snapshot, "model-00002-of-00002.safetensors"));
    fixture_remove(in(c.snapshot, INDEX));
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INCOMPLETE,
                  "the weights of this revision were not downloaded");
    fixture_text(in(c.home, "blobs/12.incomplete"), "x");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INCOMPLETE,
                  "no weights yet, but unfinished downloads");
}

static void
test_below_snapshot(void)
{
    const char *folder = fixture_folder();
    const char *path = fixture_folder();
    const char *snapshot;

    put(folder, "vae/model.safetensors", 2);
    snapshot = fixture_hub(path, "org/name", FIXTURE_COMMIT, folder);
    CHECK_EQ(opened_accept(in(snapshot, "vae"), NULL), 2);
    fixture_hub_tree(path, "org/name", FIXTURE_COMMIT);
    fixture_remove(in(snapshot, "vae/model.safetensors"));
    opened_refuse(in(snapshot, "vae"), NULL, BERTH_REASON_INCOMPLETE,
                  "the weights of this revision were not downloaded");
}

/* ------------------------------------------------------------- staying inside */

static void
test_inside_only(void)
{
    const char *outside = fixture_folder();
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    put(outside, "x.safetensors", 2);
    fixture_link(in(outside, "x.safetensors"), in(folder, "model.safetensors"));
    CHECK_EQ(opened_accept(folder, &options), 2);
    options.inside_only = 1;
    opened_refuse(folder, &options, BERTH_REASON_PATH, "a link leaves the model's directory");
    put(folder, "inside.safetensors", 3);
    fixture_link("inside.safetensors", in(folder, "model.safetensors"));
    CHECK_EQ(opened_accept(folder, &options), 3);
    fixture_link(in(outside, "x.safetensors"), in(folder, "config.json"));
    opened_refuse(folder, &options, BERTH_REASON_PATH, "config.json");
}

static void
test_inside_of_cache(void)
{
    const cache c = make_cache(TWO_SHARDS);
    const char *outside = fixture_folder();
    berth_open_options options = defaults();

    options.inside_only = 1;
    options.hub_cache = c.path;
    CHECK_EQ(opened_accept("org/name", &options), 3);
    CHECK_EQ(opened_accept(c.home, &options), 3);
    CHECK_EQ(opened_accept(c.snapshot, &options), 3);
    put(outside, "x.safetensors", 1);
    fixture_link(in(outside, "x.safetensors"), in(c.snapshot, SHARD_1));
    opened_refuse(c.snapshot, &options, BERTH_REASON_PATH, SHARD_1);
    fixture_link(in(outside, "ref"), in(c.home, "refs/main"));
    fixture_text(in(outside, "ref"), FIXTURE_COMMIT);
    opened_refuse("org/name", &options, BERTH_REASON_PATH, "refs/main");
}

/* Only a folder of the cache's own name may widen what is inside. */
static void
test_inside_of_lookalike(void)
{
    const char *outside = fixture_folder();
    const char *snapshot = fixture_format("%s/home/snapshots/" FIXTURE_COMMIT, outside);
    berth_open_options options = defaults();

    put(outside, "home/x.safetensors", 1);
    fixture_link("../../x.safetensors", in(snapshot, "model.safetensors"));
    CHECK_EQ(opened_accept(snapshot, &options), 1);
    options.inside_only = 1;
    opened_refuse(snapshot, &options, BERTH_REASON_PATH, "leaves the model's directory");
}

static void
test_nested_shards(void)
{
    const char *folder = fixture_folder();
    const char *other = fixture_folder();
    berth_open_options options = defaults();

    put(folder, "a/b/c/x.safetensors", 1);
    fixture_index(in(folder, INDEX), 8, "a/b/c/x.safetensors.0 a/b/c/x.safetensors\n");
    CHECK_EQ(opened_accept(folder, &options), 1);
    options.inside_only = 1;
    CHECK_EQ(opened_accept(folder, &options), 1);
    /* a folder on the way is a link */
    fixture_copy_folder(in(folder, "a/b"), in(other, "b"));
    fixture_remove(in(folder, "a/b"));
    fixture_link(in(other, "b"), in(folder, "a/b"));
    opened_refuse(folder, &options, BERTH_REASON_PATH, "a/b/c/x.safetensors");
    options.inside_only = 0;
    CHECK_EQ(opened_accept(folder, &options), 1);
    fixture_remove(in(folder, "a"));
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "a/b/c/x.safetensors");
    fixture_text(in(folder, "a"), "no folder");
    opened_refuse(folder, &options, BERTH_REASON_INDEX_SHARD, "a/b/c/x.safetensors");
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
    T_RUN(test_both_forms);
    T_RUN(test_named_by_config);
    T_RUN(test_variants);
    T_RUN(test_variant_of_another_stem);
    T_RUN(test_only_choice);
    T_RUN(test_adapter);
    T_RUN(test_consolidated);
    T_RUN(test_other_index);
    T_RUN(test_all_files);
    T_RUN(test_all_files_numbered);
    T_RUN(test_nothing_usable);
    T_RUN(test_other_kinds);
    T_RUN(test_hub_layouts);
    T_RUN(test_hub_through_links);
    T_RUN(test_hub_without_organisation);
    T_RUN(test_hub_copies);
    T_RUN(test_hub_refusals);
    T_RUN(test_hub_strange_refs);
    T_RUN(test_read_only_cache);
    T_RUN(test_dangling);
    T_RUN(test_not_downloaded);
    T_RUN(test_weights_not_downloaded);
    T_RUN(test_below_snapshot);
    T_RUN(test_inside_only);
    T_RUN(test_inside_of_cache);
    T_RUN(test_inside_of_lookalike);
    T_RUN(test_nested_shards);
    T_MAIN_END;
}
