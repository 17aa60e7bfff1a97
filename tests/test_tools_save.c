/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_save.c - files that appear when they are complete; counts in words. */
#define _DEFAULT_SOURCE /* setgroups() */

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/interrupt.h"
#include "tools/number.h"
#include "tools/save.h"

static const cli_command command = { .name = "test" };

static void
check_text(const char *path, const char *expected)
{
    char *const text = fixture_read(path, NULL);

    CHECK_STR(text, expected);
    free(text);
}

/* What programs get of the failure that was told last. */
static void
check_told(const char *file, int32_t reason, int system_error)
{
    CHECK_STR(cli_told()->file, file);
    CHECK_EQ(cli_told()->reason, reason);
    CHECK_EQ(cli_told()->system_error, system_error);
}

static void
test_appears(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    save v;

    CHECK_EQ(save_begin(&v, &command, path, false), BERTH_OK);
    output_text(&v.out, "one");
    output_flush(&v.out);
    CHECK(access(path, F_OK) != 0); /* not before it is complete */
    CHECK_EQ(fixture_count(folder), 1);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    check_text(path, "one");
    CHECK_EQ(fixture_count(folder), 1);
}

static uint32_t
mode_of(const char *path)
{
    struct stat state;

    return stat(path, &state) == 0 ? (uint32_t)state.st_mode & 0777 : 0;
}

/* Who may not read what is replaced may not read the new one, either, also while it is made. */
static void
test_mode_stays(void)
{
    static const mode_t modes[] = { 0600, 0640, 0444, 0666 };
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    const mode_t mask = umask(022);
    save v;

    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(mode_of(path), 0644);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CHECK_EQ(chmod(path, modes[i]), 0);
        CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
        CHECK_EQ(mode_of(v.draft.temporary), modes[i]);
        output_text(&v.out, "new");
        CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
        check_text(path, "new");
        CHECK_EQ(mode_of(path), modes[i]);
    }
    CHECK_EQ(fixture_count(folder), 1);
    umask(mask);
}

/* Who may give files away gives it to whom it was. */
static void
test_owner_stays(void)
{
    const char *const path = fixture_format("%s/plan.json", fixture_folder());
    struct stat found;
    save v;

    if (geteuid() != 0)
        T_SKIP("only root may give files away");
    fixture_text(path, "old");
    CHECK_EQ(chown(path, 12345, 23456), 0);
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(stat(path, &found), 0);
    CHECK_EQ(found.st_uid, 12345);
    CHECK_EQ(found.st_gid, 23456);
}

/* Who may not gives it to the group at least. */
static void
test_group_stays(void)
{
    const char *const folder = fixture_folder();
    const gid_t group = 23456;
    struct stat found;
    int status = 0;
    pid_t child;

    if (geteuid() != 0)
        T_SKIP("only root may become somebody else");
    fixture_text(fixture_format("%s/plan.json", folder), "old");
    CHECK_EQ(chown(fixture_format("%s/plan.json", folder), 12345, group), 0);
    CHECK_EQ(chmod(folder, 0777), 0);
    child = fork();
    if (child == 0) {
        save v;

        if (chdir(folder) != 0 || setgroups(1, &group) != 0 || setgid(12346) != 0
            || setuid(12346) != 0)
            _exit(1);
        if (save_begin(&v, &command, "plan.json", true) != BERTH_OK)
            _exit(2);
        _exit(save_end(&v, BERTH_OK) == BERTH_OK ? 0 : 3);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK_EQ(stat(fixture_format("%s/plan.json", folder), &found), 0);
    CHECK_EQ(found.st_uid, 12346);
    CHECK_EQ(found.st_gid, group);
}

/* Not even where what is there may be replaced; what only begins like weights is none. */
static void
test_weights(void)
{
    static const char header[] = "{}";
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/a.safetensors", folder);
    char longer[0x180];
    save v;

    fixture_raw(path, 2, header, 2, 0);
    CHECK_EQ(save_begin(&v, &command, path, false), BERTH_EINVAL);
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_EINVAL);
    CHECK_EQ(save_end(&v, BERTH_EINVAL), BERTH_EINVAL);
    CHECK_EQ(fixture_count(folder), 1);
    fixture_raw(path, 3, header, 2, 0); /* its header ends behind the file */
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(save_refuse_weights(&command, path), BERTH_OK);
    fixture_raw(path, 2, "[]", 2, 0);
    CHECK_EQ(save_refuse_weights(&command, path), BERTH_OK);
    memset(longer, ' ', sizeof longer);
    longer[0] = '{';
    fixture_raw(path, sizeof longer, longer, sizeof longer, 0); /* its length has two bytes */
    CHECK_EQ(save_refuse_weights(&command, path), BERTH_EINVAL);
    fixture_raw(path, sizeof longer + 1, longer, sizeof longer, 0);
    CHECK_EQ(save_refuse_weights(&command, path), BERTH_OK);
    CHECK_EQ(save_refuse_weights(&command, folder), BERTH_OK);
}

static void
test_keeps(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    save v;

    fixture_text(path, "old");
    CHECK_EQ(save_begin(&v, &command, path, false), BERTH_EINVAL);
    check_told(path, BERTH_REASON_EXISTS, EEXIST);
    CHECK_EQ(save_end(&v, BERTH_EINVAL), BERTH_EINVAL); /* nothing was begun */
    check_text(path, "old");
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    output_text(&v.out, "half");
    CHECK_EQ(save_end(&v, BERTH_ENOMEM), BERTH_ENOMEM);
    check_text(path, "old");
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    output_text(&v.out, "new");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    check_text(path, "new");
    CHECK_EQ(fixture_count(folder), 1);
}

/* A link that leads nowhere is there, too. */
static void
test_link_to_nothing(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    save v;

    fixture_link("nowhere", path);
    CHECK_EQ(save_begin(&v, &command, path, false), BERTH_EINVAL);
    check_told(path, BERTH_REASON_EXISTS, EEXIST);
    CHECK_EQ(fixture_count(folder), 1);
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    output_text(&v.out, "new");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    check_text(path, "new");
    CHECK_EQ(fixture_count(folder), 1);
}

/* Somebody else makes a file of this name meanwhile. */
static void
test_meets_another(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    save v;

    CHECK_EQ(save_begin(&v, &command, path, false), BERTH_OK);
    output_text(&v.out, "mine");
    fixture_text(path, "theirs");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_EINVAL);
    check_text(path, "theirs");
    CHECK_EQ(fixture_count(folder), 1);
}

/* The temporary name is taken: as a trap, or by a process of the same number elsewhere. */
static void
test_temporary_name_is_taken(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/plan.json", folder);
    const char *const victim = fixture_format("%s/victim", folder);
    save v;
    save w;

    fixture_text(victim, "precious");
    fixture_link("victim", fixture_format("%s/.plan.json.berth-%ld.tmp", folder, (long)getpid()));
    CHECK_EQ(save_begin(&v, &command, path, true), BERTH_OK);
    CHECK_EQ(save_begin(&w, &command, path, true), BERTH_OK);
    output_text(&v.out, "one");
    output_text(&w.out, "the other");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    check_text(path, "one");
    CHECK_EQ(save_end(&w, BERTH_OK), BERTH_OK);
    check_text(path, "the other");
    check_text(victim, "precious");
    CHECK_EQ(fixture_count(folder), 3); /* the link is not ours to remove */
}

/* Of a name as long as names can be its end is taken, whole characters of it. */
static void
test_long_name(void)
{
    const char *const folder = fixture_folder();
    char name[256] = "";
    char begun[512];
    save v;

    for (int i = 0; i < 125; i++)
        strcat(name, "\xC3\xA9");
    strcat(name, ".json"); /* 255 bytes: the last 200 begin within a character */
    CHECK_EQ(save_begin(&v, &command, fixture_format("%s/%s", folder, name), false),
             BERTH_OK);
    snprintf(begun, sizeof begun, "%s/.%s.berth-%ld.tmp", folder, name + 56, (long)getpid());
    CHECK_EQ(access(begun, F_OK), 0);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(fixture_count(folder), 1);
    CHECK_EQ(save_end(&v, BERTH_EINVAL), BERTH_EINVAL); /* nothing is left to end */
    CHECK_EQ(access(fixture_format("%s/%s", folder, name), F_OK), 0);
}

/* One that ends the process takes with it what is not complete, and nothing else. */
static void
test_signal(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_format("%s/other.json", folder);
    const char *const path = fixture_format("%s/plan.json", folder);
    const pid_t child = fork();
    int status = 0;
    save done;
    save v;

    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        interrupt_init();
        /* What is complete is forgotten: more than there is room for. */
        for (int i = 0; i < 5; i++)
            if (save_begin(&done, &command, other, true) != BERTH_OK
                || save_end(&done, BERTH_OK) != BERTH_OK)
                _exit(1);
        if (save_begin(&done, &command, other, true) != BERTH_OK
            || save_begin(&v, &command, path, false) != BERTH_OK
            || save_end(&done, BERTH_OK) != BERTH_OK)
            _exit(1);
        /* The name that was ours is somebody else's now. */
        fixture_text(fixture_format("%s/.other.json.berth-%ld.tmp", folder, (long)getpid()), "");
        output_text(&v.out, "half");
        output_flush(&v.out);
        raise(SIGTERM);
        _exit(2);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 130);
    CHECK_EQ(access(other, F_OK), 0);
    CHECK_EQ(fixture_count(folder), 2);
}

static void
test_places(void)
{
    const char *const folder = fixture_folder();
    save v;

    CHECK_EQ(save_begin(&v, &command, fixture_format("%s/none/a", folder), false),
             BERTH_ENOENT);
    check_told(fixture_format("%s/none/a", folder), BERTH_REASON_NOT_FOUND, ENOENT);
    fixture_text(fixture_format("%s/file", folder), "");
    CHECK_EQ(save_begin(&v, &command, fixture_format("%s/file/a", folder), true),
             BERTH_ENOENT);
    CHECK_EQ(save_begin(&v, &command, folder, true), BERTH_EINVAL); /* a folder is there */
    CHECK_EQ(save_begin(&v, &command, "", true), BERTH_EINVAL);
    CHECK_EQ(fixture_count(folder), 1);
    CHECK_EQ(chdir(folder), 0);
    CHECK_EQ(save_begin(&v, &command, "plain", false), BERTH_OK);
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    check_text(fixture_format("%s/plain", folder), "");
}

/* What comes out of a descriptor, and what a write to it says when nobody reads any more. */
static void
test_standard_output(void)
{
    const int old = dup(STDOUT_FILENO);
    char text[4] = "";
    int ends[2];
    save v;

    T_REQUIRE(CHECK_EQ(pipe(ends), 0));
    CHECK_GE(dup2(ends[1], STDOUT_FILENO), 0);
    CHECK_EQ(save_begin(&v, &command, "-", false), BERTH_OK);
    output_text(&v.out, "one");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(read(ends[0], text, 3), 3);
    CHECK_STR(text, "one");
    CHECK_EQ(save_begin(&v, &command, "-", false), BERTH_OK);
    v.out.system_error = EPIPE;
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(save_begin(&v, &command, "-", false), BERTH_OK);
    v.out.system_error = ENOSPC;
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_EIO);
    CHECK_STR(cli_told()->message, "standard output: No space left on device; free space, or "
                                   "write elsewhere");
    dup2(old, STDOUT_FILENO);
    close(old);
    close(ends[0]);
    close(ends[1]);
    CHECK(access("-", F_OK) != 0);
}

static void
test_same(void)
{
    const char *const folder = fixture_folder();
    const char *const there = fixture_format("%s/there", folder);
    const char *const other = fixture_format("%s/./there", folder);

    fixture_text(there, "");
    CHECK(save_is_same(there, other));
    CHECK(save_is_same("nowhere", "nowhere"));
    CHECK(!save_is_same("nowhere", there));
    CHECK(!save_is_same(there, NULL));
    CHECK(!save_is_same("/dev/null", "/dev/null"));
}

/* A device is no file to be replaced. */
static void
test_in_place(void)
{
    save v;

    CHECK_EQ(save_begin(&v, &command, "/dev/null", false), BERTH_OK);
    output_text(&v.out, "gone");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_OK);
    CHECK_EQ(access("/dev/null", W_OK), 0);
    if (access("/dev/full", W_OK) != 0)
        T_SKIP("no /dev/full");
    CHECK_EQ(save_begin(&v, &command, "/dev/full", false), BERTH_OK);
    output_text(&v.out, "too much");
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_EIO);
}

static void
test_full(void)
{
    save v;

    CHECK_EQ(save_begin(&v, &command, fixture_format("%s/a", fixture_folder()), false),
             BERTH_OK);
    v.out.system_error = ENOSPC; /* a write has failed */
    CHECK_EQ(save_end(&v, BERTH_OK), BERTH_EIO);
    check_told(v.path, BERTH_REASON_DISK_FULL, ENOSPC);
    CHECK(access(v.path, F_OK) != 0);
}

static void
test_numbers(void)
{
    static const struct {
        const char *text;
        bool is_read;
        uint64_t number;
    } cases[] = {
        { "0", true, 0 },           { "7", true, 7 },         { "4096", true, 4096 },
        { "8k", true, 8192 },       { "8K", true, 8192 },     { "128k", true, 131072 },
        { "0k", true, 0 },          { "007", true, 7 },       { "", false, 0 },
        { "k", false, 0 },          { "1kk", false, 0 },      { "1M", false, 0 },
        { "-1", false, 0 },         { "+1", false, 0 },       { "1 ", false, 0 },
        { "1.5k", false, 0 },       { "/", false, 0 },        { ":", false, 0 },
        { "1099511627776", true, UINT64_C(1099511627776) },
        { "1099511627777", false, 0 },
        { "1073741824k", true, UINT64_C(1099511627776) },
        { "1073741825k", false, 0 },
        { "1099511627777k", false, 0 },
        { "10995116277761", false, 0 },
        { "99999999999999999999999999", false, 0 },
        { "18014398509481984k", false, 0 }, /* 2^64 bytes */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t number;
        const bool is_read =
            number_can_parse_tokens(cases[i].text, strlen(cases[i].text), &number);

        if (!CHECK_EQ(is_read, cases[i].is_read)
            || (is_read && !CHECK_EQ(number, cases[i].number)))
            T_NOTE("\"%s\"", cases[i].text);
    }
}

/* Digits alone: as far as wanted, and no further than 64 bits. */
static void
test_digits(void)
{
    static const struct {
        const char *text;
        uint64_t most;
        bool is_number;
    } cases[] = {
        { "0", 0, true },       { "1", 0, false },     { "9", 9, true },
        { "10", 9, false },     { "007", 7, true },    { "8k", UINT64_MAX, false },
        { "", 9, false },       { "-1", 9, false },    { "1/", 99, false },
        { ":", UINT64_MAX, false },
        { "18446744073709551615", UINT64_MAX, true },
        { "18446744073709551615", UINT64_MAX - 1, false },
        { "18446744073709551616", UINT64_MAX, false },
        { "184467440737095516150", UINT64_MAX, false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t number = 5;

        if (!CHECK_EQ(number_can_parse(cases[i].text, strlen(cases[i].text), cases[i].most,
                                       &number), cases[i].is_number)
            || !CHECK_EQ(number, cases[i].is_number ? strtoull(cases[i].text, NULL, 10) : 5))
            T_NOTE("\"%s\"", cases[i].text);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_appears);
    T_RUN(test_keeps);
    T_RUN(test_mode_stays);
    T_RUN(test_owner_stays);
    T_RUN(test_group_stays);
    T_RUN(test_weights);
    T_RUN(test_link_to_nothing);
    T_RUN(test_meets_another);
    T_RUN(test_temporary_name_is_taken);
    T_RUN(test_long_name);
    T_RUN(test_signal);
    T_RUN(test_places);
    T_RUN(test_standard_output);
    T_RUN(test_same);
    T_RUN(test_in_place);
    T_RUN(test_full);
    T_RUN(test_numbers);
    T_RUN(test_digits);
    T_MAIN_END;
}
