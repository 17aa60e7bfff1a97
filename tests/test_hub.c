/* SPDX-License-Identifier: Apache-2.0 */
/* test_hub.c - names, refs, paths and lists of files of a hub cache, as texts. */
#include <stdlib.h>
#include <string.h>

#include "loader/hub.h"
#include "loader/paths.h"
#include "tests/t.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define DIGEST COMMIT "0123456789abcdef01234567"
#define LONG_32 "abcdefghijklmnopqrstuvwxyzABCDEF"
#define LONG_96 LONG_32 LONG_32 LONG_32

/* ----------------------------------------------------------------------- names */

typedef struct name_case {
    const char *text;
    const char *organisation; /* NULL: none */
    const char *name;         /* NULL: no repository */
    const char *revision;     /* without a name: part of the problem, or NULL */
} name_case;

static const name_case names[] = {
    { "org/name", "org", "name", "main" },
    { "gpt2", NULL, "gpt2", "main" },
    { "org/name@v1.0", "org", "name", "v1.0" },
    { "org/name@refs/pr/1", "org", "name", "refs/pr/1" },
    { "gpt2@" COMMIT, NULL, "gpt2", COMMIT },
    { "A-b_c.9/x", "A-b_c.9", "x", "main" },
    { "0/z", "0", "z", "main" },
    { "Z/a-", "Z", "a-", "main" },
    { LONG_96, NULL, LONG_96, "main" },
    { "o/n@a.b..", NULL, NULL, "`..`" },
    /* paths, and nothing that a repository could be called */
    { "", NULL, NULL, NULL },
    { "/", NULL, NULL, NULL },
    { "a/", NULL, NULL, NULL },
    { "/a", NULL, NULL, NULL },
    { "a/b/c", NULL, NULL, NULL },
    { "..", NULL, NULL, NULL },
    { "../a", NULL, NULL, NULL },
    { "./a@main", NULL, NULL, NULL },
    { "a/..", NULL, NULL, NULL },
    { "a/-b", NULL, NULL, NULL },
    { "-a/b", NULL, NULL, NULL },
    { ".a/b", NULL, NULL, NULL },
    { "a/b..c", NULL, NULL, NULL },
    { "a/b--c", NULL, NULL, NULL },
    { "a--b", NULL, NULL, NULL },
    { "a b", NULL, NULL, NULL },
    { "a\nb", NULL, NULL, NULL },
    { "a`b", NULL, NULL, NULL },
    { "a{b", NULL, NULL, NULL },
    { "a@@b", NULL, "a", "@b" },
    { "a[b", NULL, NULL, NULL },
    { "\xc3\xa9", NULL, NULL, NULL },
    { LONG_96 "a", NULL, NULL, NULL },
    { LONG_96 "a/b", NULL, NULL, NULL },
    /* names with revisions that are refused */
    { "org/name@", NULL, NULL, "empty part" },
    { "org/name@a/", NULL, NULL, "empty part" },
    { "org/name@/a", NULL, NULL, "empty part" },
    { "org/name@a//b", NULL, NULL, "empty part" },
    { "org/name@-a", NULL, NULL, "begins with" },
    { "org/name@a/-b", NULL, NULL, "begins with" },
    { "org/name@..", NULL, NULL, "`" },
    { "org/name@a/../b", NULL, NULL, "`" },
    { "org/name@.git", NULL, NULL, "begins with" },
    { "org/name@a b", NULL, NULL, "character" },
    { "org/name@a\x01", NULL, NULL, "character" },
    { "org/name@a\x7f", NULL, NULL, "character" },
    { "org/name@a\\b", NULL, NULL, "character" },
    { "org/name@a:b", NULL, NULL, "character" },
};

static void
test_names(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const name_case *const c = &names[i];
        const char *problem;
        berthi_hub_name name;

        if (!CHECK_EQ(berthi_hub_is_name(c->text, &name, &problem), c->name != NULL))
            T_NOTE("case %zu: %s", i, c->text);
        if (c->name == NULL) {
            if (!CHECK_EQ(problem != NULL, c->revision != NULL))
                T_NOTE("case %zu: %s", i, c->text);
            if (problem != NULL && c->revision != NULL)
                CHECK_CONTAINS(problem, c->revision);
            continue;
        }
        CHECK(problem == NULL);
        CHECK_EQ(name.name_length, strlen(c->name));
        CHECK_MEM(name.name, c->name, strlen(c->name));
        CHECK_STR(name.revision, c->revision);
        CHECK_EQ(name.organisation != NULL, c->organisation != NULL);
        if (c->organisation == NULL)
            continue;
        CHECK_EQ(name.organisation_length, strlen(c->organisation));
        CHECK_MEM(name.organisation, c->organisation, strlen(c->organisation));
    }
}

static void
test_long_revision(void)
{
    char text[300] = "a@";
    const char *problem;
    berthi_hub_name name;

    memset(text + 2, 'r', 255);
    CHECK(berthi_hub_is_name(text, &name, &problem));
    text[2 + 255] = 'r';
    CHECK(!berthi_hub_is_name(text, &name, &problem));
    CHECK_CONTAINS(problem, "255");
}

/* ---------------------------------------------------------------- hex and refs */

static void
test_hex(void)
{
    CHECK(berthi_hub_is_hex(COMMIT, 40, 40));
    CHECK(!berthi_hub_is_hex(COMMIT, 40, 39));
    CHECK(!berthi_hub_is_hex(COMMIT, 39, 40));
    CHECK(berthi_hub_is_hex("09af", 4, 4));
    CHECK(!berthi_hub_is_hex("0g", 2, 2));
    CHECK(!berthi_hub_is_hex("A0", 2, 2));
    CHECK(!berthi_hub_is_hex("0/", 2, 2));
    CHECK(!berthi_hub_is_hex("0:", 2, 2));
    CHECK(!berthi_hub_is_hex("0`", 2, 2));
}

static const char *
commit_of(const char *text)
{
    return berthi_hub_ref_commit(text, strlen(text));
}

static void
test_refs(void)
{
    static const char spaced[] = " \t\r\n" COMMIT " \t\r\n";

    CHECK_STR(commit_of(COMMIT), COMMIT);
    CHECK(berthi_hub_ref_commit(spaced, sizeof spaced - 1) == spaced + 4);
    CHECK(commit_of("") == NULL);
    CHECK(commit_of("   ") == NULL);
    CHECK(commit_of(COMMIT "0") == NULL);
    CHECK(commit_of("0123") == NULL);
    CHECK(commit_of("ref: refs/heads/main") == NULL);
    CHECK(commit_of(COMMIT "\v") == NULL);
    CHECK(commit_of("../../../../../../../../../../etc/passwd") == NULL);
}

/* ----------------------------------------------------------------------- paths */

static void
check_home(const char *path, const char *home)
{
    const char *commit;
    const uint64_t length = berthi_hub_home_length(path, &commit);

    CHECK_EQ(length, home == NULL ? 0 : strlen(home));
    CHECK_EQ(commit != NULL, home != NULL);
    if (home == NULL || commit == NULL)
        return;
    CHECK_MEM(path, home, length);
    CHECK_MEM(commit, COMMIT, 40);
}

static void
test_homes(void)
{
    check_home("/c/models--a--b/snapshots/" COMMIT, "/c/models--a--b");
    check_home("/c/models--a--b/snapshots/" COMMIT "/vae", "/c/models--a--b");
    check_home("models--a/snapshots/" COMMIT "/", "models--a");
    check_home("/c/models--a/snapshots/" COMMIT "/models--b/snapshots/" COMMIT,
               "/c/models--a/snapshots/" COMMIT "/models--b");
    check_home("/c/models--a/snapshots/x/snapshots/" COMMIT, NULL);
    check_home("/c/models--a--b/snapshots/" COMMIT "0", NULL);
    check_home("/c/models--a--b/snapshots/main", NULL);
    check_home("/c/models--a--b/snapshots", NULL);
    check_home("/c/models--/snapshots/" COMMIT, NULL);
    check_home("/home/user/snapshots/" COMMIT, NULL);
    check_home("/snapshots/" COMMIT, NULL);
    check_home("/c/models--a--b/" COMMIT, NULL);
    check_home("", NULL);
}

static void
test_blob_digests(void)
{
    CHECK_STR(berthi_hub_blob_digest("/c/models--a/blobs/" DIGEST), DIGEST);
    CHECK_STR(berthi_hub_blob_digest("/blobs/" DIGEST), DIGEST);
    CHECK(berthi_hub_blob_digest("blobs/" DIGEST) == NULL);
    CHECK(berthi_hub_blob_digest("/c/blobs/" COMMIT) == NULL);
    CHECK(berthi_hub_blob_digest("/c/blobs/0" DIGEST) == NULL);
    CHECK(berthi_hub_blob_digest("/c/blob/" DIGEST) == NULL);
    CHECK(berthi_hub_blob_digest("/c/blobs/G" DIGEST) == NULL);
    CHECK(berthi_hub_blob_digest("") == NULL);
}

/* ------------------------------------------------------------------------ tree */

static berthi_hub_listed
find_in(const char *text, const char *path)
{
    const size_t length = strlen(text);
    char *copy = malloc(length + 1);
    berthi_hub_listed listed;

    memcpy(copy, text, length);
    berthi_hub_tree_find(copy, length, path, &listed);
    free(copy);
    return listed;
}

static void
check_unreadable(const char *text)
{
    const berthi_hub_listed listed = find_in(text, "a");

    if (!CHECK(!listed.is_readable && !listed.is_listed && !listed.has_bytes
               && listed.bytes == 0))
        T_NOTE("%s", text);
}

static void
test_tree(void)
{
    static const char tree[] =
        "{\"format_version\": 1, \"files\": {\"a\": {\"blob_id\": \"x\", \"size\": 12},"
        " \"vae/b\": {\"size\": 0, \"lfs_sha256\": null}, \"c\": {}}, \"more\": [1, {}]}";
    berthi_hub_listed listed = find_in(tree, "a");

    CHECK(listed.is_readable && listed.is_listed && listed.has_bytes);
    CHECK_EQ(listed.bytes, 12);
    listed = find_in(tree, "vae/b");
    CHECK(listed.is_readable && listed.is_listed && listed.has_bytes);
    CHECK_EQ(listed.bytes, 0);
    listed = find_in(tree, "c");
    CHECK(listed.is_readable && listed.is_listed && !listed.has_bytes);
    listed = find_in(tree, "b");
    CHECK(listed.is_readable && !listed.is_listed && !listed.has_bytes);
    listed = find_in("{\"files\": {}}", "a");
    CHECK(listed.is_readable && !listed.is_listed);
}

static void
test_unreadable_tree(void)
{
    check_unreadable("");
    check_unreadable("[]");
    check_unreadable("{}");
    check_unreadable("{\"files\": [\"a\"]}");
    check_unreadable("{\"files\": {\"a\": 5}}");
    check_unreadable("{\"files\": {\"a\": {\"size\": -1}}}");
    check_unreadable("{\"files\": {\"a\": {\"size\": 1}}");
    check_unreadable("{\"files\": {\"a\": {\"size\": 1}}} x");
    check_unreadable("{\"files\": {\"a\": {\"size\": 1}, \"\xff\": {}}}");
    check_unreadable("{\"files\": {\"a\": {\"size\": 1}, b}}");
    check_unreadable("{\"files\": {\"a\": {\"size\": 1, \"x\": }}}");
    check_unreadable("{\"other\": , \"files\": {\"a\": {}}}");
}

/* ---------------------------------------------------------------------- paths.h */

static void
test_path_texts(void)
{
    berth_context *context;
    berthi_arena arena;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 64);
    CHECK_STR(berthi_arena_format(&arena, "%s", ""), "");
    CHECK_STR(berthi_arena_format(&arena, "%d-%s", 5, "x"), "5-x");
    CHECK_STR(berthi_path_join(&arena, "a", "b"), "a/b");
    CHECK_STR(berthi_path_join(&arena, "a/", "b"), "a/b");
    CHECK_STR(berthi_path_join(&arena, "/", "b"), "/b");
    CHECK_STR(berthi_path_join(&arena, "", "b"), "b");
    CHECK(berthi_path_has_suffix("a.json", ".json"));
    CHECK(berthi_path_has_suffix(".json", ".json"));
    CHECK(!berthi_path_has_suffix("json", ".json"));
    CHECK(!berthi_path_has_suffix("a.jsox", ".json"));
    CHECK(berthi_path_has_prefix("model", "model"));
    CHECK(berthi_path_has_prefix("models", "model"));
    CHECK(!berthi_path_has_prefix("mode", "model"));
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_names);
    T_RUN(test_long_revision);
    T_RUN(test_hex);
    T_RUN(test_refs);
    T_RUN(test_homes);
    T_RUN(test_blob_digests);
    T_RUN(test_tree);
    T_RUN(test_unreadable_tree);
    T_RUN(test_path_texts);
    T_MAIN_END;
}
