/* SPDX-License-Identifier: Apache-2.0 */
/* test_paths.c - texts of paths, and the rule that keeps them inside a folder. */
#include "loader/paths.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/t.h"

static berth_context *context;

static void
test_join(void)
{
    berthi_arena arena;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 64);
    CHECK_STR(berthi_path_join(&arena, "a/b", "c"), "a/b/c");
    CHECK_STR(berthi_path_join(&arena, "", "c"), "c");
    CHECK_STR(berthi_path_join(&arena, "/", "c"), "/c");
    CHECK_STR(berthi_path_join(&arena, "a/", "c"), "a/c");
    CHECK_STR(berthi_arena_format(&arena, "%s-%d", "x", 7), "x-7");
    /* What cannot be printed in this locale. */
    CHECK(berthi_arena_format(&arena, "%ls", L"\x100") == NULL);
    berthi_arena_fini(&arena);
}

static void
test_ends(void)
{
    CHECK(berthi_path_has_suffix("a.json", ".json"));
    CHECK(berthi_path_has_suffix(".json", ".json"));
    CHECK(!berthi_path_has_suffix("json", ".json"));
    CHECK(!berthi_path_has_suffix("a.jsom", ".json"));
    CHECK(berthi_path_has_prefix("model.x", "model"));
    CHECK(berthi_path_has_prefix("model", "model"));
    CHECK(!berthi_path_has_prefix("mode", "model"));
}

static void
check(const char *path, const char *problem)
{
    const char *const found = berthi_path_problem(path, strlen(path));

    if (problem == NULL)
        CHECK(found == NULL);
    else if (CHECK(found != NULL))
        CHECK_STR(found, problem);
}

static void
test_rule(void)
{
    static const char dots[] = "has a component `.` or `..`";
    char path[1026] = "";

    check("a", NULL);
    check("config.json", NULL);
    check(".hidden", NULL);
    check("...", NULL);
    check("..a/.b", NULL);
    check("a/b/c/d", NULL);
    check("\xc3\xa9/\xf0\x9f\x98\x80 x", NULL);
    check("\x7f", NULL);
    check("", "is not 1 to 1024 bytes long");
    check("/a", "is an absolute path");
    check("/", "is an absolute path");
    check("a//b", "has an empty component");
    check("a/", "has an empty component");
    check(".", dots);
    check("..", dots);
    check("a/../b", dots);
    check("a/.", dots);
    check("./a", dots);
    check("a/b/c/d/e", "has more than 4 components");
    check("a\\b", "contains a backslash or a colon");
    check("c:a", "contains a backslash or a colon");
    check("a\nb", "contains a control character");
    check("a\x1f", "contains a control character");
    check("a\xff", "is not UTF-8");
    CHECK_STR(berthi_path_problem("a\0b", 3), "contains a control character");

    memset(path, 'x', sizeof path - 1);
    CHECK(berthi_path_problem(path, 255) == NULL);
    CHECK_STR(berthi_path_problem(path, 256), "has a component of more than 255 bytes");
    path[255] = path[511] = path[767] = '/';
    path[1023] = '\0';
    check(path, NULL);
    path[1023] = 'x';
    CHECK_STR(berthi_path_problem(path, 1024), "has a component of more than 255 bytes");
    path[767] = 'x';
    CHECK_STR(berthi_path_problem(path, 768), "has a component of more than 255 bytes");
    CHECK_STR(berthi_path_problem(path, 1025), "is not 1 to 1024 bytes long");
}

static berth_status
join_once(void *user, berth_context *with, berth_error *error)
{
    berthi_arena arena;
    berth_status status = BERTH_OK;

    (void)user;
    berthi_arena_init(&arena, with, BERTHI_PURPOSE_OBJECT, 64);
    if (berthi_path_join(&arena, "a", "b") == NULL)
        status = berthi_fail_memory(error, "a path");
    berthi_arena_fini(&arena);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("a path", join_once, NULL);

    CHECK_EQ(counts.memory, 2); /* once, and from then on */
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_join);
    T_RUN(test_ends);
    T_RUN(test_rule);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
