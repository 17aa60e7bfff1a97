/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_cli.c - command lines parsed by a table that has an option of each kind. */
#include "tools/cli.h"

#include <stdio.h>
#include <string.h>

#include "tests/caught.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/help.h"

typedef struct arguments {
    cli_common common;
    bool flag;
    uint32_t counter;
    const char *text;
    const char *optional;
    uint32_t number;
    uint64_t size;
    cli_list list;
    const char *entries;
    int32_t choice;
} arguments;

#define AT(member) offsetof(arguments, member)

static const cli_option options[] = {
    { "flag", 'f', CLI_FLAG, AT(flag), NULL, NULL, NULL, "a flag" },
    { "counter", 'c', CLI_COUNTER, AT(counter), NULL, NULL, NULL, "a counter" },
    { "text", 't', CLI_TEXT, AT(text), "FILE", "TRY_TEXT", NULL, "a text" },
    { "optional", '\0', CLI_OPTIONAL, AT(optional), "FILE", NULL, NULL, "an optional text" },
    { "number", 'n', CLI_NUMBER, AT(number), "N", "TRY_NUMBER", NULL, "a number" },
    { "size", '\0', CLI_SIZE, AT(size), "SIZE", NULL, "1KiB", "a size" },
    { "list", 'l', CLI_LIST, AT(list), "WORD", NULL, NULL, "a list" },
    { "entries", 'e', CLI_ENTRIES, AT(entries), "A,B", "TRY_ENTRIES", NULL, "a list in a word" },
    { "choice", '\0', CLI_CHOICE, AT(choice), "one|two|three", "TRY_CHOICE", "two",
      "a choice" },
};

static const cli_example examples[] = { { "berth try a", "an example" } };
static const char *const description[] = { "First.", "Second.", NULL };

static const cli_command command = {
    .name = "try",
    .help = "a command of tests",
    .description = description,
    .operand = "IN OUT",
    CLI_OPTIONS(options, arguments),
    .examples = examples,
    .example_count = 1,
};

/* --------------------------------------------------------------------- parsing */

#define MOST_WORDS 80

static cli_call call;
static arguments a;

static berth_status
parse_words(const char *const *words)
{
    char *argv[MOST_WORDS];
    int count = 0;

    for (; words[count] != NULL; count++)
        argv[count] = (char *)(uintptr_t)words[count];
    return cli_parse(&command, caught_environment, count, argv, &a, &call);
}

#define PARSE(...) parse_words((const char *const[]){ __VA_ARGS__, NULL })

/* The message of a command line that is none; its status is BERTH_EINVAL. */
static const char *
refused(const char *const *words)
{
    static const char hint[] = " (see `berth try --help`)\n";
    const char *text;
    char *end;

    caught_begin();
    CHECK_EQ(parse_words(words), BERTH_EINVAL);
    text = caught_end();
    end = strstr(text, hint);
    CHECK_EQ(strncmp(text, "berth try: ", 11), 0);
    if (CHECK(end != NULL && end[sizeof hint - 1] == '\0'))
        *end = '\0';
    return text + 11;
}

#define REFUSED(...) refused((const char *const[]){ __VA_ARGS__, NULL })

static void
test_values(void)
{
    caught_variables = NULL;
    CHECK_EQ(PARSE("in", "-fcc", "--text", "x", "--optional=y", "-n4", "--size", "2KiB", "-l",
                   "p", "--list=q", "--choice", "three", "out", "-t", "z", "-c"),
             BERTH_OK);
    CHECK_EQ(a.flag, true);
    CHECK_EQ(a.counter, 3);
    CHECK_STR(a.text, "z");
    CHECK_STR(a.optional, "y");
    CHECK_EQ(a.number, 4);
    CHECK_EQ(a.size, 2048);
    CHECK_EQ(a.list.count, 2);
    CHECK_STR(a.list.items[0], "p");
    CHECK_STR(a.list.items[1], "q");
    CHECK_EQ(a.choice, 2);
    CHECK_EQ(a.common.operand_count, 2);
    CHECK_STR(a.common.operands[0], "in");
    CHECK_STR(a.common.operands[1], "out");
    CHECK(cli_is_given(&call, "flag") && cli_is_given(&call, "choice"));
    CHECK(!cli_is_given(&call, "log"));
}

static void
test_defaults(void)
{
    caught_variables = NULL;
    CHECK_EQ(PARSE("in", "out"), BERTH_OK);
    CHECK(!a.flag && a.text == NULL && a.optional == NULL);
    CHECK_EQ(a.counter, 0);
    CHECK_EQ(a.number, 0);
    CHECK_EQ(a.size, 1024);
    CHECK_EQ(a.list.count, 0);
    CHECK_EQ(a.choice, 1);
    CHECK_EQ(a.common.log_level, BERTH_LOG_WARNING);
    CHECK(!cli_is_given(&call, "size"));
    CHECK_EQ(PARSE("in", "--optional", "out"), BERTH_OK);
    CHECK_STR(a.optional, "");
    CHECK(cli_is_given(&call, "optional"));
}

static void
test_environment(void)
{
    static const char *const some[] = { "TRY_TEXT", "t", "TRY_NUMBER", "7",
                                        "TRY_CHOICE", "one", NULL };
    static const char *const empty[] = { "TRY_TEXT", "", "TRY_NUMBER", "", NULL };
    static const char *const wrong[] = { "TRY_NUMBER", "x", NULL };

    caught_variables = some;
    CHECK_EQ(PARSE("in", "out"), BERTH_OK);
    CHECK_STR(a.text, "t");
    CHECK_EQ(a.number, 7);
    CHECK_EQ(a.choice, 0);
    CHECK_STR(*cli_origin(&call, "text"), "TRY_TEXT");
    CHECK(!cli_is_given(&call, "text"));
    CHECK_EQ(PARSE("in", "out", "-n", "8"), BERTH_OK);
    CHECK_EQ(a.number, 8);
    CHECK_STR(*cli_origin(&call, "number"), CLI_GIVEN);
    caught_variables = empty;
    CHECK_EQ(PARSE("in", "out"), BERTH_OK);
    CHECK(a.text == NULL && *cli_origin(&call, "text") == NULL);
    caught_variables = wrong;
    CHECK_STR(REFUSED("in", "out"), "TRY_NUMBER: `x` is not a number from 1 to 999999999");
}

/* Of other options the last one counts; a list would lose what stands in the first. */
static void
test_given_again(void)
{
    static const char *const some[] = { "TRY_ENTRIES", "x,y", NULL };

    caught_variables = some;
    CHECK_EQ(PARSE("in", "out", "-e", "a,b", "-t", "s", "-t", "t"), BERTH_OK);
    CHECK_STR(a.entries, "a,b");
    CHECK_STR(a.text, "t");
    CHECK_STR(REFUSED("in", "out", "-e", "a", "-t", "t", "--entries=b"),
              "--entries is given twice: all of its list goes into one");
    caught_variables = NULL;
}

static void
test_operands(void)
{
    caught_variables = NULL;
    CHECK_EQ(PARSE("-", "--", "-f"), BERTH_OK);
    CHECK_STR(a.common.operands[0], "-");
    CHECK_STR(a.common.operands[1], "-f");
    CHECK(!a.flag);
    CHECK_EQ(PARSE("", ""), BERTH_OK);
    CHECK_STR(REFUSED("-f"), "missing IN OUT");
    CHECK_STR(REFUSED("in"), "missing OUT");
    CHECK_STR(REFUSED("in", "out", "x\n"), "unexpected argument `x\\x0a`");
    CHECK_STR(REFUSED("in", "out", "--", "--"), "unexpected argument `--`");
    CHECK_EQ(PARSE("--help"), BERTH_OK);
    CHECK_EQ(PARSE("--print-config"), BERTH_OK);
    CHECK(a.common.wants_config && !a.common.wants_help);
}

static void
test_refusals(void)
{
    caught_variables = NULL;
    CHECK_STR(REFUSED("--flag=x"), "--flag takes no value");
    CHECK_STR(REFUSED("--flag="), "--flag takes no value");
    CHECK_STR(REFUSED("--text"), "--text needs a value: FILE");
    CHECK_STR(REFUSED("-ft"), "-t needs a value: FILE");
    CHECK_STR(REFUSED("--optional="), "--optional= needs a value: FILE; or leave `=` out");
    CHECK_STR(REFUSED("--number=0"), "--number: `0` is not a number from 1 to 999999999");
    CHECK_STR(REFUSED("-n", ""), "-n: `` is not a number from 1 to 999999999");
    CHECK_STR(REFUSED("-n/"), "-n: `/` is not a number from 1 to 999999999");
    CHECK_STR(REFUSED("-n:"), "-n: `:` is not a number from 1 to 999999999");
    CHECK_STR(REFUSED("-n", "1000000000"), "-n: `1000000000` is not a number from 1 to 999999999");
    CHECK_STR(REFUSED("--size=x"), "--size: `x` is not a size such as 64MiB, below 16 EiB");
    CHECK_STR(REFUSED("--choice=o"), "--choice: `o` is not one of one|two|three");
    CHECK_STR(REFUSED("--choice=one|two"), "--choice: `one|two` is not one of one|two|three");
    CHECK_STR(REFUSED("-x"), "unknown option `-x`");
    CHECK_STR(REFUSED("-fx"), "unknown option `-x`");
    CHECK_STR(REFUSED("--nummer=3"), "unknown option `--nummer`; did you mean `--number`?");
    CHECK_STR(REFUSED("--flags"), "unknown option `--flags`; did you mean `--flag`?");
    CHECK_STR(REFUSED("--fla"), "unknown option `--fla`; did you mean `--flag`?");
    CHECK_STR(REFUSED("--something"), "unknown option `--something`");
    CHECK_STR(REFUSED("--hepl"), "unknown option `--hepl`; did you mean `--help`?");
    CHECK_STR(REFUSED("--an-option-of-more-than-thirty-one-characters"),
              "unknown option `--an-option-of-more-than-thirty-one-characters`");
    CHECK_EQ(PARSE("in", "out", "-n", "999999999"), BERTH_OK);
    CHECK_EQ(a.number, 999999999);
    CHECK_EQ(PARSE("in", "out", "-n", "1"), BERTH_OK);
    CHECK_EQ(a.number, 1);
    CHECK_EQ(PARSE("in", "out", "-n", "90"), BERTH_OK);
    CHECK_EQ(a.number, 90);
}

static void
test_long_lists(void)
{
    const char *words[CLI_MAX_ITEMS + 4] = { "in", "out" };

    caught_variables = NULL;
    for (size_t n = 0; n < CLI_MAX_ITEMS; n++)
        words[n + 2] = "-lx";
    CHECK_EQ(parse_words(words), BERTH_OK);
    CHECK_EQ(a.list.count, CLI_MAX_ITEMS);
    words[CLI_MAX_ITEMS + 2] = "-lx";
    CHECK_STR(refused(words), "-l: given more than 64 times");
}

static void
test_no_effect(void)
{
    static const char *const some[] = { "TRY_NUMBER", "7", NULL };
    const char *text;

    caught_variables = some;
    CHECK_EQ(PARSE("in", "out", "-f"), BERTH_OK);
    CHECK_EQ(cli_refuse(&call, "text", "here"), BERTH_OK);
    CHECK_EQ(cli_refuse(&call, "number", "here"), BERTH_OK);
    caught_begin();
    CHECK_EQ(cli_refuse(&call, "flag", "here"), BERTH_EINVAL);
    text = caught_end();
    CHECK_STR(text, "berth try: --flag has no effect here (see `berth try --help`)\n");
}

/* -------------------------------------------------------------------- messages */

/* The library refuses a value and does not know which option has it. */
static void
check_culprit(const char *argument, const char *message, const char *expected)
{
    berth_error error = { .status = BERTH_EINVAL, .reason = BERTH_REASON_ARGUMENT };
    char line[256];

    caught_variables = NULL;
    CHECK_EQ(PARSE("a", "b", "-tone=1;two=2", "-lx,yy", "-lzz"), BERTH_OK);
    snprintf(error.tensor, sizeof error.tensor, "%s", argument);
    snprintf(error.message, sizeof error.message, "%s", message);
    snprintf(line, sizeof line, "berth try: %s", expected);
    caught_begin();
    CHECK_EQ(cli_error(&call, &error), BERTH_EINVAL);
    CHECK_CONTAINS(caught_end(), line);
}

static void
test_culprits(void)
{
    check_culprit("", "\"one=1\" is none", "--text: \"one=1\" is none");
    check_culprit("", "\"two=2\" \"2\" is none", "--text: \"two=2\"");
    check_culprit("one=1;two=2", "is none", "--text: \"one=1;two=2\"");
    check_culprit("yy", "is none", "--list: \"yy\"");
    check_culprit("zz", "is none", "--list: \"zz\"");
    check_culprit("", "\"one\" is none", "\"one\" is none"); /* but a part of an entry */
    check_culprit("", "\"\" is none", "\"\" is none");
    check_culprit("z", "is none", "\"z\"");
}

static void
test_messages(void)
{
    berth_error error;

    memset(&error, 0, sizeof error);
    error.status = BERTH_EIO;
    memset(error.file, 'f', sizeof error.file - 1);
    memset(error.tensor, 't', sizeof error.tensor - 1);
    memset(error.message, 'm', sizeof error.message - 1);
    error.reason = BERTH_REASON_HEADER_JSON;
    caught_begin();
    CHECK_EQ(cli_error(&(cli_call){ .command = &command }, &error), BERTH_EIO);
    CHECK_CONTAINS(caught_end(), berth_reason_advice(error.reason));
    caught_begin();
    CHECK_EQ(cli_failure(NULL, BERTH_ENOMEM, "no %s", "room"), BERTH_ENOMEM);
    CHECK_STR(caught_end(), "berth: no room\n");
    caught_begin();
    CHECK_EQ(cli_usage_error(NULL, "bad"), BERTH_EINVAL);
    CHECK_STR(caught_end(), "berth: bad (see `berth --help`)\n");
}

static void
test_exit_codes(void)
{
    CHECK_EQ(cli_exit_code(BERTH_OK), 0);
    CHECK_EQ(cli_exit_code(1), 0);
    CHECK_EQ(cli_exit_code(BERTH_EINVAL), 2);
    CHECK_EQ(cli_exit_code(BERTH_ECANCELLED), 130);
}

static void
test_choice_words(void)
{
    size_t length = 99;

    CHECK_EQ(strncmp(cli_choice_word("ab|c", 0, &length), "ab|c", 4), 0);
    CHECK_EQ(length, 2);
    CHECK_STR(cli_choice_word("ab|c", 1, &length), "c");
    CHECK_EQ(length, 1);
    CHECK(cli_choice_word("ab|c", 2, &length) == NULL);
}

/* Distances: words of 31 characters are compared, one per three is forgiven. */
static void
test_nearest(void)
{
    static const struct {
        const char *text;
        const char *word;
        bool is_near;
    } cases[] = {
        { "a", "b", true },          { "a", "bc", false },
        { "ab", "cb", true },        { "ab", "cd", false },
        { "ab", "ba", true },        { "abc", "cab", true },
        { "abcd", "badc", true },    { "abcd", "dcba", false },
        { "abc", "", false },        { "", "a", true },
        { "abcdef", "abc", true },   { "abcde", "ab", false },
        { "abcdefghijklmnopqrstuvwxyz01234", "abcdefghijklmnopqrstuvwxyz01235", true },
        { "abcdefghijklmnopqrstuvwxyz012345", "abcdefghijklmnopqrstuvwxyz01234", false },
        { "abcdefghijklmnopqrstuvwxyz01235", "abcdefghijklmnopqrstuvwxyz012345", false },
    };
    static const char *const words[] = { "abce", "abcd", "abcd" };

    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        if (!CHECK_EQ(cli_nearest(cases[n].text, &cases[n].word, 1, sizeof(char *)) != NULL,
                      cases[n].is_near))
            T_NOTE("`%s` and `%s`", cases[n].text, cases[n].word);
    CHECK(cli_nearest("abcd", words, 3, sizeof words[0]) == words[1]);
    CHECK(cli_nearest("abcf", words, 3, sizeof words[0]) == words[0]);
}

/* The beginning of a word: of one alone, for more would be a guess. */
static void
test_beginning(void)
{
    static const char *const words[] = { "quantize", "double-quant", "dequantize", "devices",
                                         "develop" };
    const size_t count = sizeof words / sizeof words[0];

    CHECK(cli_nearest("quant", words, count, sizeof words[0]) == words[0]);
    CHECK(cli_nearest("double", words, count, sizeof words[0]) == words[1]);
    CHECK(cli_nearest("devi", words, count, sizeof words[0]) == words[3]);
    CHECK(cli_nearest("dev", words, count, sizeof words[0]) == NULL);
    CHECK(cli_nearest("d", words, count, sizeof words[0]) == NULL);
    CHECK(cli_nearest("do", words, 2, sizeof words[0]) == NULL);
}

/* Who writes the beginning of a word means none that has as many other letters. */
static void
test_beginning_and_nearly_the_same(void)
{
    static const char *const words[] = { "source", "double-quant", "ring", "print-config",
                                         "no-color", "log", "no-offload", "experts",
                                         "expert-hits", "keep" };
    const size_t count = sizeof words / sizeof words[0];

    CHECK_STR(cli_nearest("double", words, count, sizeof words[0]), "double-quant");
    CHECK_STR(cli_nearest("print", words, count, sizeof words[0]), "print-config");
    CHECK(cli_nearest("no-", words, count, sizeof words[0]) == NULL);
    CHECK(cli_nearest("exp", words, count, sizeof words[0]) == NULL);
    CHECK_STR(cli_nearest("expert", words, count, sizeof words[0]), "experts");
    CHECK_STR(cli_nearest("expert-", words, count, sizeof words[0]), "expert-hits");
    CHECK_STR(cli_nearest("duble-quant", words, count, sizeof words[0]), "double-quant");
}

/* ------------------------------------------------------------------------ help */

static const screen plain = { .has_unicode = true };
static output out;

/* What was printed; nothing is ever flushed. */
static const char *
printed(void)
{
    out.buffer[out.used] = '\0';
    return out.buffer;
}

static void
test_help(void)
{
    output_init(&out, -1);
    help_command(&out, &plain, &command);
    CHECK_CONTAINS(printed(),
                   "berth try - a command of tests\n\nExamples\n  berth try a\n"
                   "      an example\n\nUsage\n  berth try [OPTION]... IN OUT\n\nFirst.\n\n"
                   "Second.\n\nOptions\n"
                   "  -f, --flag             a flag\n"
                   "  -c, --counter          a counter\n"
                   "  -t, --text FILE        a text [$TRY_TEXT]\n"
                   "      --optional[=FILE]  an optional text\n"
                   "  -n, --number N         a number [$TRY_NUMBER]\n"
                   "      --size SIZE        a size [1KiB]\n"
                   "  -l, --list WORD        a list\n"
                   "  -e, --entries A,B      a list in a word [$TRY_ENTRIES]\n"
                   "      --choice WORD      a choice (one/two/three) [two][$TRY_CHOICE]\n"
                   "  -h, --help             show examples, options and exit codes, then end\n");
    CHECK_CONTAINS(printed(), "\nExit codes\n    0  success\n");
}

/* Lines have 79 characters at most. */
static void
test_wrapping(void)
{
    static char text[200];
    static const char *const paragraphs[] = { text, NULL };
    cli_command wide = command;

    wide.description = paragraphs;
    for (size_t length = 70; length < 90; length++) {
        const char *line;

        memset(text, 'x', length);
        strcpy(text + length, " y  z");
        output_init(&out, -1);
        help_command(&out, &plain, &wide);
        line = strstr(printed(), "\n\nxxx");
        if (!CHECK(line != NULL))
            continue;
        line += 2 + length;
        CHECK_EQ(strncmp(line, length <= 75   ? " y z\n\n"
                               : length <= 77 ? " y\nz\n\n"
                                              : "\ny z\n\n",
                         6),
                 0);
    }
}

static void
test_config(void)
{
    static const char *const some[] = { "TRY_NUMBER", "7", NULL };

    caught_variables = some;
    CHECK_EQ(PARSE("-fcc", "--optional", "--text=", "--list=a\n", "-l", "b", "--print-config"),
             BERTH_OK);
    output_init(&out, -1);
    help_config(&out, &plain, &call);
    CHECK_STR(printed(), "option    value     from\n"
                         "flag      yes       command line\n"
                         "counter   2         command line\n"
                         "text      ''        command line\n"
                         "optional  yes       command line\n"
                         "number    7         TRY_NUMBER\n"
                         "size      1.00 KiB  default\n"
                         "list      a\\x0a, b  command line\n"
                         "entries   -         default\n"
                         "choice    two       default\n"
                         "verbose   0         default\n"
                         "log       warning   default\n"
                         "no-color  no        default\n");
    caught_variables = NULL;
    CHECK_EQ(PARSE("in", "out", "--text=x\ny"), BERTH_OK);
    output_init(&out, -1);
    help_config(&out, &plain, &call);
    CHECK_CONTAINS(printed(), "\ntext      x\\x0ay    command line\n");
    CHECK_CONTAINS(printed(), "\nflag      no        default\n");
    CHECK_CONTAINS(printed(), "\ncounter   0         default\n");
    CHECK_CONTAINS(printed(), "\nnumber    auto      default\n");
    CHECK_CONTAINS(printed(), "\noptional  -         default\n");
    CHECK_CONTAINS(printed(), "\nlist      -         default\n");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_values);
    T_RUN(test_defaults);
    T_RUN(test_environment);
    T_RUN(test_given_again);
    T_RUN(test_operands);
    T_RUN(test_refusals);
    T_RUN(test_long_lists);
    T_RUN(test_no_effect);
    T_RUN(test_culprits);
    T_RUN(test_messages);
    T_RUN(test_exit_codes);
    T_RUN(test_choice_words);
    T_RUN(test_nearest);
    T_RUN(test_beginning);
    T_RUN(test_beginning_and_nearly_the_same);
    T_RUN(test_help);
    T_RUN(test_wrapping);
    T_RUN(test_config);
    T_MAIN_END;
}
