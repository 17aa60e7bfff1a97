/* SPDX-License-Identifier: Apache-2.0 */
/* Models in the hub's cache: layouts, revisions, incomplete snapshots, links. */
#define _XOPEN_SOURCE 700

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    fixture_tensors(folder, "model.safetensors", 2);
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
    opened_refuse(
        "org/name@v2", &options, BERTH_REASON_NO_SNAPSHOT,
        fixture_format("%s/refs/v2: the hub cache has no such revision", c.home));
    opened_refuse("org/name@" FIXTURE_COMMIT_2, &options, BERTH_REASON_NO_SNAPSHOT,
                  FIXTURE_COMMIT_2
                  ": the hub cache knows this revision but holds no files");
    fixture_hub_ref(c.path, "org/name", "gone", FIXTURE_COMMIT_2);
    opened_refuse("org/name@gone", &options, BERTH_REASON_NO_SNAPSHOT, FIXTURE_COMMIT_2);
    fixture_hub_ref(c.path, "org/name", "bad", "../../../etc");
    opened_refuse("org/name@bad", &options, BERTH_REASON_BAD_REF,
                  "refs/bad: the ref does not hold a commit of 40 hex digits");
    fixture_hub_ref(c.path, "org/name", "empty", "");
    opened_refuse("org/name@empty", &options, BERTH_REASON_BAD_REF, "refs/empty");
    opened_refuse("org/name@../x", &options, BERTH_REASON_ARGUMENT,
                  "`path` has a revision");
    opened_refuse("org/name@-x", &options, BERTH_REASON_ARGUMENT,
                  "`path` has a revision");
    opened_refuse("org/name@a//b", &options, BERTH_REASON_ARGUMENT, "an empty part");
    opened_refuse("org/../name", &options, BERTH_REASON_NOT_FOUND, "opening failed");
    opened_refuse("../name", &options, BERTH_REASON_NOT_FOUND, "opening failed");
    opened_refuse(c.path, &options, BERTH_REASON_NOT_FOUND,
                  "a hub cache: name one of its");
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
    opened_refuse("org/name@large", &options, BERTH_REASON_BAD_REF,
                  "too large (found 4097 bytes)");
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
                  SHARD_1
                  ": the index names this shard, but it is not there; it belongs to "
                  "this revision but was not downloaded (expected 72 bytes) [");
    fixture_text(in(c.home, "blobs/12.incomplete"), "x");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INCOMPLETE,
                  "not there; 1 downloads are unfinished (expected 72 bytes) [");
    fixture_text(in(c.home, "blobs/34.5678.incomplete"), "x");
    opened_refuse(c.snapshot, NULL, BERTH_REASON_INCOMPLETE,
                  "not there; 2 downloads are unfinished (expected 72 bytes) [");
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

    fixture_tensors(folder, "vae/model.safetensors", 2);
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

    fixture_tensors(outside, "x.safetensors", 2);
    fixture_link(in(outside, "x.safetensors"), in(folder, "model.safetensors"));
    CHECK_EQ(opened_accept(folder, &options), 2);
    options.inside_only = 1;
    opened_refuse(folder, &options, BERTH_REASON_PATH,
                  "a link leaves the model's directory");
    fixture_tensors(folder, "inside.safetensors", 3);
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
    fixture_tensors(outside, "x.safetensors", 1);
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

    fixture_tensors(outside, "home/x.safetensors", 1);
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

    fixture_tensors(folder, "a/b/c/x.safetensors", 1);
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

/* A process without standard input gets 0 for a descriptor like any other. */
static void
test_without_standard_input(void)
{
    const int saved = dup(0);

    T_REQUIRE(saved > 0 && close(0) == 0);
    test_hub_layouts();
    test_dangling();
    test_not_downloaded();
    test_weights_not_downloaded();
    test_inside_of_cache();
    CHECK_EQ(dup2(saved, 0), 0);
    close(saved);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
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
    T_RUN(test_without_standard_input);
    T_RUN(test_nested_shards);
    T_MAIN_END;
}
