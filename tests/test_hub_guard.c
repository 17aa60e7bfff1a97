/* SPDX-License-Identifier: Apache-2.0 */
/* test_hub_guard.c - which paths lie in a repository of the hub cache. */
#define _GNU_SOURCE

#include "loader/hub_guard.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/berth.h"
#include "tests/fixture.h"
#include "tests/t.h"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static void
check_guard(const char *path, bool is_guarded)
{
    if (!CHECK_EQ(berthi_hub_guards(path), is_guarded))
        T_NOTE("%s", path);
}

static void
test_named_repositories(void)
{
    static const char *const homes[] = { "models--org--name", "models--name",
                                         "datasets--org--name", "spaces--org--name" };
    static const char *const parts[] = { "snapshots", "blobs", "refs", "trees", ".no_exist" };

    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++)
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            const char *const cache = fixture_folder();
            const char *const home = in(cache, homes[i]);

            fixture_make_folder(in(home, parts[k]));
            check_guard(home, true);
            check_guard(in(home, "file"), true);
            check_guard(in(home, "none/such"), true);
            check_guard(in(home, parts[k]), true);
            check_guard(in(in(home, parts[k]), "a/b"), true);
            check_guard(cache, false);
            check_guard(in(cache, "file"), false);
            check_guard(in(cache, "folder/models"), false);
        }
}

/* The names alone are anybody's, but for a name beside such folders. */
static void
test_names(void)
{
    static const char *const names[] = { "models--org--name", "blobs/models--n",
                                         "models--n/blob", "models--n/blobs2", "x/models-/refs",
                                         "xmodels--n/blobs", "spaces-/blobs", "datasets--/blobs",
                                         "snapshots/0123", "blobs", "refs", "models/snapshots" };
    const char *const folder = fixture_folder();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture_make_folder(in(folder, names[i]));
        check_guard(in(folder, names[i]), false);
        check_guard(in(in(folder, names[i]), "out"), false);
    }
    check_guard(in(folder, "models--org--new"), false);
    fixture_make_folder(in(folder, "models--org--name/refs"));
    check_guard(in(folder, "models--org--new"), true);
    check_guard(in(folder, "models--org--new/out"), true);
    check_guard(in(folder, "models/snapshots"), false);
    check_guard("", false);
    check_guard("/", false);
}

/* Whoever renames a repository still has one. */
static void
test_renamed(void)
{
    const char *const folder = fixture_folder();
    const char *const home = in(folder, "mine");

    fixture_make_folder(in(home, "snapshots/run-1"));
    fixture_make_folder(in(home, "blobs"));
    check_guard(in(home, "out"), false);
    fixture_make_folder(in(home, "snapshots/" FIXTURE_COMMIT));
    check_guard(home, true);
    check_guard(in(home, "out"), true);
    check_guard(in(home, "blobs/x"), true);
    check_guard(in(home, "snapshots/" FIXTURE_COMMIT "/config.json"), true);
    check_guard(in(folder, "out"), false);
}

static void
check_call(const char *path, berth_status status)
{
    berth_error error;

    if (!CHECK_EQ(berth_hub_check(path, &error), status))
        T_NOTE("%s", path);
    if (status != BERTH_OK) {
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "hub cache");
        CHECK_STR(error.file, path);
    }
}

static void
test_links(void)
{
    const char *const folder = fixture_folder();
    const char *const snapshot = in(folder, "hub/models--o--n/snapshots/" FIXTURE_COMMIT);
    berth_error error;

    fixture_make_folder(snapshot);
    fixture_text(in(snapshot, "config.json"), "{}");
    fixture_text(in(folder, "plain"), "");
    fixture_link(snapshot, in(folder, "way"));
    fixture_link(in(snapshot, "config.json"), in(folder, "config"));
    fixture_link(in(folder, "plain"), in(snapshot, "away"));
    fixture_link(in(folder, "nowhere"), in(folder, "broken"));
    check_call(in(folder, "way/out"), BERTH_EINVAL);
    check_call(in(folder, "way/none/out"), BERTH_OK); /* nothing can be made there */
    check_call(in(folder, "config"), BERTH_EINVAL);
    check_call(in(snapshot, "away"), BERTH_EINVAL);
    check_call(in(folder, "plain"), BERTH_OK);
    check_call(in(folder, "broken"), BERTH_OK);
    check_call("/dev/null", BERTH_OK);
    check_call("/berth-test", BERTH_OK);
    check_call("", BERTH_OK);
    CHECK_EQ(berth_hub_check(NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_hub_check(NULL, NULL), BERTH_EINVAL);
}

/* From within a repository nothing of its name is in a path. */
static void
test_relative(void)
{
    const char *const home = in(fixture_folder(), "models--o--n");

    fixture_make_folder(in(home, "refs"));
    T_REQUIRE(CHECK_EQ(chdir(home), 0));
    check_call("out", BERTH_EINVAL);
    check_call("refs/main", BERTH_EINVAL);
    check_call("../out", BERTH_OK);
    check_call("", BERTH_OK);
    T_REQUIRE(CHECK_EQ(chdir("/"), 0));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_named_repositories);
    T_RUN(test_names);
    T_RUN(test_renamed);
    T_RUN(test_links);
    T_RUN(test_relative);
    T_MAIN_END;
}
