/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_session.c - the log, the end of a run, and the places of the hub cache. */
#define _POSIX_C_SOURCE 200809L

#include "tools/session.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "tests/caught.h"
#include "tests/fixture.h"
#include "tests/t.h"

typedef struct arguments {
    cli_common common;
    model_arguments model;
} arguments;

static const cli_option options[] = { MODEL_OPTIONS(arguments) };

static const cli_command command = {
    .name = "try",
    CLI_OPTIONS(options, arguments),
    .settle = model_settle,
};

/* ----------------------------------------------------------------------- tests */

static cli_call call;
static arguments parsed;
static session s;

/* Parses these words, up to three; NULL: no more. */
static berth_status
parse(const char *a, const char *b, const char *c)
{
    const char *const words[] = { a, b, c };
    char *argv[3];
    int count = 0;

    for (; count < 3 && words[count] != NULL; count++)
        argv[count] = (char *)(uintptr_t)words[count];
    return cli_parse(&command, caught_environment, count, argv, &parsed, &call);
}

static const char *
logged(const char *a, const char *b, const char *c)
{
    CHECK_EQ(parse(a, b, c), BERTH_OK);
    session_init(&s, &call, caught_environment);
    caught_begin();
    CHECK_EQ(session_start(&s, STDERR_FILENO, PROGRESS_NEVER), BERTH_OK);
    berthi_log(s.context, BERTH_LOG_DEBUG, "one");
    berthi_log(s.context, BERTH_LOG_INFO, "two");
    berthi_log(s.context, BERTH_LOG_WARNING, "three");
    CHECK_EQ(session_end(&s, BERTH_OK), BERTH_OK);
    return caught_end();
}

static void
test_log(void)
{
    caught_variables = NULL;
    CHECK_STR(logged(NULL, NULL, NULL), "berth: warning: three\n");
    CHECK_STR(logged("-v", NULL, NULL), "berth: warning: three\n");
    CHECK_STR(logged("--log", "none", NULL), "");
    CHECK_STR(logged("--log=info", NULL, NULL), "berth: info: two\nberth: warning: three\n");
    CHECK_STR(logged("--log=debug", NULL, NULL),
              "berth: debug: one\nberth: info: two\nberth: warning: three\n");
    CHECK_STR(logged("-vv", "--log", "none"),
              "berth: debug: one\nberth: info: two\nberth: warning: three\n");
    CHECK_STR(logged("-vvv", NULL, NULL),
              "berth: debug: one\nberth: info: two\nberth: warning: three\n");
}

/* A line of the log takes the place of the bar. */
static void
test_log_beside_a_bar(void)
{
    const berth_progress now = { .phase = "read", .file = "", .total = 1 };

    caught_variables = NULL;
    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
    session_init(&s, &call, caught_environment);
    caught_begin();
    CHECK_EQ(session_start(&s, STDERR_FILENO, PROGRESS_ALWAYS), BERTH_OK);
    CHECK_EQ(session_progress(&s, &now), 0);
    berthi_log(s.context, BERTH_LOG_WARNING, "line");
    CHECK_EQ(session_progress(&s, &now), 0);
    CHECK_EQ(session_end(&s, BERTH_OK), BERTH_OK);
    CHECK_CONTAINS(caught_end(), "0 B/s\033[K\r\033[Kberth: warning: line\n\rread  ");
}

/* The first error is what programs get; others change nothing of it. */
static void
test_findings(void)
{
    static const int32_t severities[] = { BERTH_SEVERITY_NOTE, BERTH_SEVERITY_ERROR,
                                          BERTH_SEVERITY_WARNING, BERTH_SEVERITY_ERROR };
    berth_error details = { .status = BERTH_EFORMAT, .message = "0" };
    const char *text;

    caught_variables = NULL;
    for (int is_quiet = 0; is_quiet < 2; is_quiet++) {
        CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
        session_init(&s, &call, caught_environment);
        s.is_quiet = is_quiet != 0;
        caught_begin();
        for (uint32_t i = 0; i < 4; i++) {
            const berth_finding finding = { .severity = severities[i], .details = &details };

            details.message[0] = (char)('0' + i);
            session_finding(&s, &finding);
        }
        details.message[0] = '4';
        CHECK_EQ(session_tell(&s, BERTH_OK, NULL), BERTH_OK);
        CHECK_EQ(session_tell(&s, BERTH_EFORMAT, &details), BERTH_EFORMAT);
        text = caught_end();
        CHECK_EQ(strstr(text, "note: 0") == NULL, is_quiet != 0);
        CHECK_CONTAINS(text, "error: 1");
        CHECK_EQ(strstr(text, "warning: 2") == NULL, is_quiet != 0);
        CHECK_CONTAINS(text, "error: 3");
        CHECK(strstr(text, "4") == NULL);
        CHECK_STR(cli_told()->message, "1");
    }
}

/* What no finding has told is told, and what the tool itself refuses has a reason, too. */
static void
test_tell(void)
{
    const berth_error error = { .status = BERTH_EIO,
                                .reason = BERTH_REASON_IO,
                                .message = "gone" };
    const char *text;

    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
    session_init(&s, &call, caught_environment);
    caught_begin();
    CHECK_EQ(session_tell(&s, BERTH_EIO, &error), BERTH_EIO);
    CHECK_STR(cli_told()->message, "gone");
    CHECK_EQ(cli_usage_error(&command, "%s", "wrong"), BERTH_EINVAL);
    CHECK_STR(cli_told()->message, "wrong");
    CHECK_EQ(cli_told()->reason, BERTH_REASON_ARGUMENT);
    CHECK_EQ(cli_failure(&command, BERTH_ENOMEM, "%s", "none"), BERTH_ENOMEM);
    CHECK_EQ(cli_told()->reason, BERTH_REASON_NO_MEMORY);
    text = caught_end();
    CHECK_CONTAINS(text, "berth try: gone [io]");
    CHECK_CONTAINS(text, "\nberth try: wrong (see `berth try --help`)\nberth try: none\n");
}

/* What could not be written is an error, unless nobody reads or there is another. */
static void
test_end(void)
{
    static const struct {
        int system_error;
        berth_status status;
        berth_status expected;
        const char *words;
    } cases[] = {
        { 0, BERTH_OK, BERTH_OK, "" },
        { EPIPE, BERTH_OK, BERTH_OK, "" },
        { ENOSPC, BERTH_OK, BERTH_EIO, "berth try: standard output: No space left on device; " },
        /* Standard output may have been to tell of the failure, too. */
        { ENOSPC, BERTH_EFORMAT, BERTH_EFORMAT,
          "berth try: standard output: No space left on device; " },
        { EPIPE, BERTH_EFORMAT, BERTH_EFORMAT, "" },
        { 0, BERTH_EFORMAT, BERTH_EFORMAT, "" },
    };

    caught_variables = NULL;
    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text;

        session_init(&s, &call, caught_environment);
        s.out.system_error = cases[i].system_error;
        caught_begin();
        CHECK_EQ(session_end(&s, cases[i].status), cases[i].expected);
        text = caught_end();
        CHECK_EQ(strncmp(text, cases[i].words, strlen(cases[i].words)), 0);
        CHECK_EQ(text[0] == '\0', cases[i].words[0] == '\0');
    }
}

/* ----------------------------------------------------------------------- places */

static void
check_place(const char *const *pairs, const char *place, const char *origin)
{
    caught_variables = pairs;
    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
    CHECK_STR(parsed.model.hub_cache, place);
    CHECK_STR(*cli_origin(&call, "hub-cache"), origin);
}

static void
test_places(void)
{
    static const char *const none[] = { NULL };
    static const char *const home[] = { "HOME", "/h", NULL };
    static const char *const xdg[] = { "HOME", "/h", "XDG_CACHE_HOME", "/x", NULL };
    static const char *const hf[] = { "XDG_CACHE_HOME", "/x", "HF_HOME", "/f", NULL };
    static const char *const old[] = { "HF_HOME", "/f", "HUGGINGFACE_HUB_CACHE", "/o", NULL };
    static const char *const new[] = { "HUGGINGFACE_HUB_CACHE", "/o", "HF_HUB_CACHE", "/n", NULL };
    static const char *const empty[] = { "HF_HUB_CACHE", "", "HF_HOME", "", "HOME", "/h", NULL };
    static const char *const tilde[] = { "HF_HUB_CACHE", "~", "HOME", "/h", NULL };
    static const char *const below[] = { "HF_HUB_CACHE", "~/n", "HOME", "/h", NULL };
    static const char *const user[] = { "HF_HUB_CACHE", "~me/n", "HOME", "/h", NULL };
    static const char *const within[] = { "HF_HUB_CACHE", "a~/n", "HOME", "/h", NULL };
    static const char *const homeless[] = { "HF_HUB_CACHE", "~/n", NULL };

    check_place(none, NULL, NULL);
    check_place(home, "/h/.cache/huggingface/hub", "HOME");
    check_place(xdg, "/x/huggingface/hub", "XDG_CACHE_HOME");
    check_place(hf, "/f/hub", "HF_HOME");
    check_place(old, "/o", "HUGGINGFACE_HUB_CACHE");
    check_place(new, "/n", "HF_HUB_CACHE");
    check_place(empty, "/h/.cache/huggingface/hub", "HOME");
    check_place(tilde, "/h", "HF_HUB_CACHE");
    check_place(below, "/h/n", "HF_HUB_CACHE");
    check_place(user, "~me/n", "HF_HUB_CACHE");
    check_place(within, "a~/n", "HF_HUB_CACHE");
    check_place(homeless, "~/n", "HF_HUB_CACHE");
    caught_variables = below;
    CHECK_EQ(parse("--hub-cache", "~/mine", NULL), BERTH_OK);
    CHECK_STR(parsed.model.hub_cache, "~/mine");
    CHECK_STR(*cli_origin(&call, "hub-cache"), CLI_GIVEN);
}

/* A place has MODEL_PATH_CAPACITY characters, its end included. */
static void
test_long_places(void)
{
    char value[MODEL_PATH_CAPACITY + 1];
    const char *const old[] = { "HUGGINGFACE_HUB_CACHE", value, NULL };
    const char *const new[] = { "HF_HUB_CACHE", value, NULL };

    memset(value, 'x', sizeof value);
    value[MODEL_PATH_CAPACITY - 1] = '\0';
    check_place(old, value, "HUGGINGFACE_HUB_CACHE");
    value[MODEL_PATH_CAPACITY - 1] = 'x';
    value[MODEL_PATH_CAPACITY] = '\0';
    check_place(new, value, "HF_HUB_CACHE"); /* as it was given: the library refuses it */
    caught_variables = old;
    caught_begin();
    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_EINVAL);
    CHECK_STR(caught_end(), "berth try: HUGGINGFACE_HUB_CACHE is too long "
                        "(see `berth try --help`)\n");
}

static void
test_open_options(void)
{
    berth_open_options open_options;

    caught_variables = NULL;
    berth_open_options_init(&open_options);
    CHECK_EQ(parse("--variant=fp16", "--all", "--hub-cache=x"), BERTH_OK);
    model_options_fill(&open_options, &parsed.model);
    CHECK_STR(open_options.variant, "fp16");
    CHECK_STR(open_options.hub_cache, "x");
    CHECK_EQ(open_options.all_files, 1);
    CHECK_EQ(parse(NULL, NULL, NULL), BERTH_OK);
    model_options_fill(&open_options, &parsed.model);
    CHECK(open_options.variant == NULL && open_options.hub_cache == NULL);
    CHECK_EQ(open_options.all_files, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_log);
    T_RUN(test_log_beside_a_bar);
    T_RUN(test_findings);
    T_RUN(test_tell);
    T_RUN(test_end);
    T_RUN(test_places);
    T_RUN(test_long_places);
    T_RUN(test_open_options);
    T_MAIN_END;
}
