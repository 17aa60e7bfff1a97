/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_input.c - reading to the end of pipes and files. */
#include "tools/input.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"

static const cli_command command = { .name = "test" };

/* A file of `bytes`, in turn "a" to "z"; its descriptor. */
static int
open_file(size_t bytes)
{
    const char *const path = fixture_format("%s/file", fixture_folder());
    char *const text = malloc(bytes + 1);
    int fd;

    if (text == NULL)
        abort();
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)('a' + i % 26);
    text[bytes] = '\0';
    fixture_text(path, text);
    free(text);
    fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    return fd;
}

static void
check_read(size_t bytes, size_t limit, berth_status expected)
{
    const int fd = open_file(bytes);
    char *text = NULL;
    size_t length = 1;
    size_t right = 0;

    CHECK_EQ(input_read(&command, "it", fd, limit, &text, &length), expected);
    if (expected == BERTH_OK) {
        CHECK_EQ(length, bytes);
        while (right < length && text[right] == (char)('a' + right % 26))
            right++;
        CHECK_EQ(right, bytes);
    } else {
        CHECK_EQ(length, 0);
    }
    free(text);
    close(fd);
}

static void
test_sizes(void)
{
    static const size_t sizes[] = { 0, 1, 65535, 65536, 65537, 131072, 300001 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_read(sizes[i], SIZE_MAX, BERTH_OK);
        check_read(sizes[i], sizes[i], BERTH_OK);
        if (sizes[i] > 0)
            check_read(sizes[i], sizes[i] - 1, BERTH_EINVAL);
    }
}

/* What comes in pieces is read on. */
static void
test_pipe(void)
{
    char *text = NULL;
    size_t length;
    int ends[2];

    T_REQUIRE(CHECK_EQ(pipe(ends), 0));
    CHECK_EQ(write(ends[1], "one ", 4), 4);
    CHECK_EQ(write(ends[1], "two", 3), 3);
    close(ends[1]);
    CHECK_EQ(input_read(&command, "it", ends[0], 7, &text, &length), BERTH_OK);
    CHECK_EQ(length, 7);
    CHECK_MEM(text, "one two", 7);
    free(text);
    close(ends[0]);
}

static void
test_failures(void)
{
    const int folder = open(fixture_folder(), O_RDONLY);
    char *text;
    size_t length;

    CHECK_EQ(input_read(&command, "it", folder, 7, &text, &length), BERTH_EIO);
    free(text);
    close(folder);
    CHECK_EQ(input_read(&command, "it", -1, 7, &text, &length), BERTH_EIO);
    CHECK_EQ(length, 0);
    free(text);
    CHECK(input_is_standard("-"));
    CHECK(!input_is_standard("--"));
    CHECK(!input_is_standard(""));
}

typedef struct take_arguments {
    cli_common common;
    const char *plan;
    const char *rules;
    const char *name;
} take_arguments;

static const cli_option take_options[] = {
    { "plan", '\0', CLI_INPUT, offsetof(take_arguments, plan), "FILE", NULL, NULL, "one" },
    { "rules", '\0', CLI_INPUT, offsetof(take_arguments, rules), "FILE", NULL, NULL, "two" },
    { "name", '\0', CLI_TEXT, offsetof(take_arguments, name), "NAME", NULL, NULL, "no file" },
};

static const cli_command take_command = { .name = "test",
                                          CLI_OPTIONS(take_options, take_arguments) };

/* Standard input, whose text this is, as a file that the library can open. */
static void
test_take(void)
{
    take_arguments a = { .plan = "plan.json", .rules = "-", .name = "-" };
    const cli_call call = { .command = &take_command, .arguments = &a };
    berth_error error = { .file = "plan.json" };
    const int old = dup(STDIN_FILENO);
    const int fd = open_file(100000);
    char *text;
    size_t bytes = 0;

    CHECK_GE(dup2(fd, STDIN_FILENO), 0);
    CHECK_EQ(input_take(&call), BERTH_OK);
    CHECK_STR(a.plan, "plan.json");
    CHECK_STR(a.name, "-");
    text = fixture_read(a.rules, &bytes);
    CHECK_EQ(bytes, 100000);
    free(text);
    CHECK_STR(input_named(&error).file, "plan.json");
    strcpy(error.file, a.rules);
    CHECK_STR(input_named(&error).file, INPUT_NAME);
    a.plan = a.rules = "-";
    CHECK_EQ(input_take(&call), BERTH_EINVAL);
    a.plan = a.rules = NULL;
    CHECK_EQ(input_take(&call), BERTH_OK);
    dup2(old, STDIN_FILENO);
    close(old);
    close(fd);
}

/* A pipe with a name that has this text, as a shell makes one of <(command). */
static const char *
open_pipe(const char *text)
{
    int ends[2];

    if (pipe(ends) != 0)
        abort();
    CHECK_EQ(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
    close(ends[1]);
    return fixture_format("/dev/fd/%d", ends[0]);
}

static void
check_taken(const char *path, const char *text, const char *name)
{
    berth_error error = { .status = BERTH_EFORMAT };
    size_t bytes = 0;
    char *const found = fixture_read(path, &bytes);

    CHECK_EQ(bytes, strlen(text));
    CHECK_MEM(found, text, strlen(text));
    free(found);
    snprintf(error.file, sizeof error.file, "%s", path);
    CHECK_STR(input_named(&error).file, name);
    CHECK_STR(input_name(path), name);
}

/* Pipes as files that the library can open; each is still called as it was. */
static void
test_take_pipes(void)
{
    const char *const one = open_pipe("one");
    const char *const two = open_pipe("two");
    take_arguments a = { .plan = one, .rules = two };
    const cli_call call = { .command = &take_command, .arguments = &a };

    CHECK(input_is_pipe(one));
    CHECK(!input_is_pipe("/dev/null"));
    CHECK(!input_is_pipe(fixture_folder()));
    CHECK(!input_is_pipe("-"));
    CHECK(!input_is_pipe(NULL));
    CHECK_EQ(input_take(&call), BERTH_OK);
    check_taken(a.plan, "one", one);
    check_taken(a.rules, "two", two);
    /* What is no pipe stays. */
    a.plan = "/dev/null";
    a.rules = NULL;
    CHECK_EQ(input_take(&call), BERTH_OK);
    CHECK_STR(a.plan, "/dev/null");
    CHECK(a.rules == NULL);
}

/* A folder is none. */
static void
test_take_fails(void)
{
    take_arguments a = { .plan = "-" };
    const cli_call call = { .command = &take_command, .arguments = &a };
    const int old = dup(STDIN_FILENO);
    const int fd = open(fixture_folder(), O_RDONLY);

    CHECK_GE(dup2(fd, STDIN_FILENO), 0);
    CHECK_EQ(input_take(&call), BERTH_EIO);
    dup2(old, STDIN_FILENO);
    close(old);
    close(fd);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_sizes);
    T_RUN(test_pipe);
    T_RUN(test_failures);
    T_RUN(test_take);
    T_RUN(test_take_pipes);
    T_RUN(test_take_fails);
    T_MAIN_END;
}
