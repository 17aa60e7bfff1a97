/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_generate.c - completions and man pages of commands that do not exist. */
#include "tools/generate.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/commands.h"

static const cli_option options[] = {
    { "flag", 'f', CLI_FLAG, 0, NULL, NULL, NULL, "a 'flag' [so: 1\\2]" },
    { "counter", 'c', CLI_COUNTER, 0, NULL, NULL, NULL, "a counter" },
    { "text", 't', CLI_TEXT, 0, "FILE", "TRY_TEXT", NULL, ".a text" },
    { "optional", '\0', CLI_OPTIONAL, 0, "FILE", NULL, NULL, "an optional text" },
    { "number", 'n', CLI_NUMBER, 0, "N", NULL, "4", "'a number" },
    { "folder", '\0', CLI_TEXT, 0, "DIR", NULL, NULL, "a folder" },
    { "list", '\0', CLI_LIST, 0, "WORD", NULL, NULL, "a list" },
    { "choice", '\0', CLI_CHOICE, 0, "one|two", NULL, NULL, "a choice" },
    { "words", '\0', CLI_OPTIONAL, 0, "three|four", NULL, NULL, "a word" },
};
static const cli_example examples[] = { { "berth try -f", "a\\b" }, { "berth try", "-" } };
static const char *const description[] = { "First.", "Second.", NULL };

static const cli_command try_command = {
    .name = "try",
    .help = "one's command: all",
    .description = description,
    .operand = "IN OUT",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples = examples,
    .example_count = 2,
};
static const cli_command bare_command = {
    .name = "bare",
    .help = "nothing",
    .description = description,
};

/* In the place of the tool's own table. */
const cli_command *const all_commands[] = { &try_command, &bare_command, NULL };

static const char *folder;

/* What was written, with the word VERSION in the place of the version. */
static const char *
file(const char *name)
{
    char *const bytes = fixture_read(fixture_format("%s/%s", folder, name), NULL);
    const char *const version = strstr(bytes, berth_version());
    const size_t before = version != NULL ? (size_t)(version - bytes) : strlen(bytes);
    const char *const text =
        fixture_format("%.*s%s%s", (int)before, bytes, version != NULL ? "VERSION" : "",
                       version != NULL ? version + strlen(berth_version()) : "");

    free(bytes);
    return text;
}

static void
test_bash(void)
{
    folder = fixture_folder();
    CHECK_EQ(generate_completions(folder), BERTH_OK);
    CHECK_CONTAINS(file("berth.bash"),
                   "    local commands='try bare help'\n");
    CHECK_CONTAINS(file("berth.bash"),
                   "    *) case ${COMP_WORDS[1]}/$option in\n"
                   "    try/--text|try/--text=|try/-t) files=-f words= ;;\n"
                   "    try/--optional=) files=-f words= ;;\n"
                   "    try/--number|try/--number=|try/-n) files= words= ;;\n"
                   "    try/--folder|try/--folder=) files=-d words= ;;\n"
                   "    try/--list|try/--list=) files= words= ;;\n"
                   "    try/--choice|try/--choice=) words='one two' ;;\n"
                   "    try/--words=) words='three four' ;;\n"
                   "    try/--log|try/--log=) words='debug info warning none' "
                   ";;\n"
                   "    bare/--log|bare/--log=) words='debug info warning "
                   "none' ;;\n"
                   "    try/*) words='--flag --counter --text --optional --optional= "
                   "--number --folder --list --choice --words --words= --help --verbose "
                   "--log --no-color --print-config' files=-f ;;\n"
                   "    bare/*) words='--help --verbose --log --no-color "
                   "--print-config' files= ;;\n"
                   "    esac ;;\n"
                   "    esac\n");
}

static void
test_zsh(void)
{
    folder = fixture_folder();
    CHECK_EQ(generate_completions(folder), BERTH_OK);
    CHECK_CONTAINS(file("_berth"),
                   "    local -a commands=(\n"
                   "        'try:one'\\''s command\\: all'\n"
                   "        'bare:nothing'\n"
                   "        'help:show the help of a command'\n"
                   "    )\n");
    CHECK_CONTAINS(file("_berth"),
                   "        try) _arguments \\\n"
                   "            '(-f --flag)'{-f,--flag}'[a '\\''flag'\\'' "
                   "\\[so\\: 1\\\\2\\]]' \\\n"
                   "            '*'{-c,--counter}'[a counter]' \\\n"
                   "            '(-t --text)'{-t+,--text=}'[.a "
                   "text]:FILE:_files' \\\n"
                   "            '--optional=-[an optional text]::FILE:_files' "
                   "\\\n"
                   "            '(-n --number)'{-n+,--number=}'['\\''a "
                   "number]:N:' \\\n"
                   "            '--folder=[a folder]:DIR:_files -/' \\\n"
                   "            '*''--list=[a list]:WORD:' \\\n"
                   "            '--choice=[a choice]:word:(one two)' \\\n"
                   "            '--words=-[a word]::word:(three four)' \\\n");
    CHECK_CONTAINS(file("_berth"),
                   "            '--print-config[show each option'\\''s value "
                   "and where it comes from, then end]' \\\n"
                   "            '1:IN:_files' \\\n"
                   "            '2:OUT:_files' ;;\n"
                   "        bare");
    CHECK_CONTAINS(file("_berth"),
                   "then end]' ;;\n"
                   "        esac ;;\n"
                   "    esac\n"
                   "}\n");
}

static void
test_fish(void)
{
    folder = fixture_folder();
    CHECK_EQ(generate_completions(folder), BERTH_OK);
    CHECK_CONTAINS(file("berth.fish"),
                   "complete -c berth -n '__fish_seen_subcommand_from help' "
                   "-f -a 'try bare'\n"
                   "complete -c berth -n __fish_use_subcommand -a try -d "
                   "'one'\\''s command: all'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "flag -s f -d 'a '\\''flag'\\'' [so: 1\\\\2]'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "counter -s c -d 'a counter'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "text -s t -r -F -d '.a text'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "optional -d 'an optional text'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "number -s n -x -d ''\\''a number'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "folder -x -a '(__fish_complete_directories)' -d 'a "
                   "folder'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "list -x -d 'a list'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "choice -x -a 'one two' -d 'a choice'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from try' -l "
                   "words -f -a 'three four' -d 'a word'\n");
    CHECK_CONTAINS(file("berth.fish"),
                   "complete -c berth -n __fish_use_subcommand -a bare -d "
                   "'nothing'\n"
                   "complete -c berth -n '__fish_seen_subcommand_from bare' "
                   "-f\n"
                   "complete -c berth -n '__fish_seen_subcommand_from bare' "
                   "-l help -s h -d 'show examples, options and exit codes, "
                   "then end'\n");
}

static void
test_man(void)
{
    folder = fixture_folder();
    CHECK_EQ(generate_man(folder, NULL), BERTH_OK);
    CHECK_CONTAINS(file("berth-try.1"),
                   ".TH BERTH-TRY 1 \"\" \"berth VERSION\" \"User Commands\"\n"
                   ".SH NAME\n"
                   "berth\\-try \\- one's command: all\n"
                   ".SH SYNOPSIS\n"
                   ".B berth try\n"
                   "[\\fIOPTION\\fR]... \\fIIN OUT\\fR\n"
                   ".SH EXAMPLES\n"
                   ".TP\n"
                   ".B berth try \\-f\n"
                   "a\\eb\n"
                   ".TP\n"
                   ".B berth try\n"
                   "\\-\n"
                   ".SH DESCRIPTION\n"
                   "First.\n"
                   ".PP\n"
                   "Second.\n"
                   ".SH OPTIONS\n"
                   ".TP\n"
                   ".B \\-f, \\-\\-flag\n"
                   "a 'flag' [so: 1\\e2]\n"
                   ".TP\n"
                   ".B \\-c, \\-\\-counter\n"
                   "a counter\n"
                   ".TP\n"
                   ".B \\-t, \\-\\-text FILE\n"
                   "\\&.a text\n"
                   ".br\n"
                   "Environment:\n"
                   ".BR TRY_TEXT .\n"
                   ".TP\n"
                   ".B \\-\\-optional[=FILE]\n"
                   "an optional text\n"
                   ".TP\n"
                   ".B \\-n, \\-\\-number N\n"
                   "\\&'a number\n"
                   ".br\n"
                   "Default: 4.\n"
                   ".TP\n"
                   ".B \\-\\-folder DIR\n"
                   "a folder\n"
                   ".TP\n"
                   ".B \\-\\-list WORD\n"
                   "a list\n"
                   ".TP\n"
                   ".B \\-\\-choice WORD\n"
                   "a choice; one of\n"
                   ".B one two\n");
    CHECK_CONTAINS(file("berth-try.1"),
                   ".TP\n"
                   ".B \\-\\-log WORD\n"
                   "messages of the library on standard error, from this "
                   "level up; one of\n"
                   ".B debug info warning none\n"
                   ".br\n"
                   "Default: warning.\n"
                   "Environment:\n"
                   ".BR BERTH_LOG .\n"
                   ".TP\n"
                   ".B \\-\\-no\\-color\n"
                   "no colours, as with NO_COLOR or TERM=dumb\n"
                   ".TP\n"
                   ".B \\-\\-print\\-config\n"
                   "show each option's value and where it comes from, then "
                   "end\n"
                   ".SH EXIT STATUS\n"
                   ".TP\n"
                   ".B 0\n"
                   "success\n");
    CHECK_CONTAINS(file("berth-bare.1"),
                   ".TH BERTH-BARE 1 \"\" \"berth VERSION\" \"User "
                   "Commands\"\n"
                   ".SH NAME\n"
                   "berth\\-bare \\- nothing\n"
                   ".SH SYNOPSIS\n"
                   ".B berth bare\n"
                   "[\\fIOPTION\\fR]...\n"
                   ".SH EXAMPLES\n"
                   ".SH DESCRIPTION\n"
                   "First.\n");
    CHECK_CONTAINS(file("berth.1"),
                   ".TH BERTH 1 \"\" \"berth VERSION\" \"User Commands\"\n"
                   ".SH NAME\n"
                   "berth \\- open, plan, load and quantize checkpoints "
                   "of large language models\n"
                   ".SH SYNOPSIS\n"
                   ".B berth\n"
                   "\\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]\n"
                   ".SH COMMANDS\n"
                   ".TP\n"
                   ".BR berth\\-try (1)\n"
                   "one's command: all\n"
                   ".TP\n"
                   ".BR berth\\-bare (1)\n"
                   "nothing\n");
    CHECK_CONTAINS(file("berth.1"),
                   ".SH SEE ALSO\n"
                   ".BR berth (3),\n"
                   ".BR berth\\-try (1),\n"
                   ".BR berth\\-bare (1),\n"
                   ".BR berth\\-llama (1),\n"
                   ".BR berth\\-json (5)\n");
}

static void
test_header(void)
{
    static const char header[] = "/* SPDX-License-Identifier: X */\n"
                                 "/*\n * title\n *\n *  \n *   indented - text  \n */\n"
                                 "#ifndef BERTH_LOADER_BERTH_H\n"
                                 "#define BERTH_LOADER_BERTH_H\n"
                                 "#include <stddef.h>\n\n\n"
                                 "#ifdef __cplusplus\nhidden\n#endif\n"
                                 "#if defined(__GNUC__)\nhidden too\n#endif\n"
                                 "/* ------------ a section */\n\n"
                                 "/* One line. */\n"
                                 "#define BERTH_NUMBER 3\n"
                                 "/* Two\n   lines. */\n"
                                 "BERTH_API int berth_one(void);\n"
                                 "    .indented = 'x',\n"
                                 "/**/\n"
                                 "#endif\n";
    const char *const path = fixture_format("%s/h", fixture_folder());

    folder = fixture_folder();
    fixture_text(path, header);
    CHECK_EQ(generate_man(folder, path), BERTH_OK);
    CHECK_CONTAINS(file("berth.3"),
                   ".TH BERTH 3 \"\" \"berth VERSION\" \"Library Functions\"\n"
                   ".SH NAME\n"
                   "berth \\- the library's interface\n"
                   ".SH SYNOPSIS\n"
                   ".B #include <berth.h>\n"
                   ".PP\n"
                   "Link with the output of\n"
                   ".BR \"pkg\\-config \\-\\-libs berth\" .\n"
                   ".SH DESCRIPTION\n"
                   ".PP\n"
                   ".nf\n"
                   "\n"
                   "title\n"
                   "\n"
                   "  indented \\- text\n"
                   "\n"
                   ".fi\n"
                   ".SH \"A SECTION\"\n"
                   ".PP\n"
                   ".nf\n"
                   "One line.\n"
                   "\\fB#define BERTH_NUMBER 3\\fR\n"
                   "Two\n"
                   "lines.\n"
                   "\\fBint berth_one(void);\\fR\n"
                   "\\fB    .indented = 'x',\\fR\n"
                   ".fi\n"
                   ".SH SEE ALSO\n"
                   ".BR berth (1)\n");
}

static void
write_nothing(output *out, const void *user)
{
    (void)out;
    (void)user;
}

static void
write_something(output *out, const void *user)
{
    (void)user;
    output_text(out, "x");
}

static void
test_no_folder(void)
{
    const char *const nowhere = fixture_format("%s/nowhere", fixture_folder());

    CHECK_EQ(generate_completions(nowhere), BERTH_EIO);
    CHECK_EQ(generate_man(nowhere, NULL), BERTH_EIO);
    CHECK_EQ(generate_man(fixture_folder(), nowhere), BERTH_ENOENT);
}

/* A path has 4095 characters; a file that could not be written is a failure. */
static void
test_paths(void)
{
    const char *const place = fixture_folder();
    char path[4200];
    char name[256];

    memset(path, '/', sizeof path);
    memcpy(path, place, strlen(place));
    strcpy(name, "berth.bash");
    path[4095 - 1 - strlen(name)] = '\0';
    CHECK_EQ(generate_file(path, name, write_nothing, NULL), BERTH_OK);
    memset(path, '/', sizeof path);
    memcpy(path, place, strlen(place));
    path[4095 - strlen(name)] = '\0';
    CHECK_EQ(generate_file(path, name, write_nothing, NULL), BERTH_EIO);
    CHECK_EQ(generate_file("/dev", "full", write_nothing, NULL), BERTH_OK);
    CHECK_EQ(generate_file("/dev", "full", write_something, NULL), BERTH_EIO);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_bash);
    T_RUN(test_zsh);
    T_RUN(test_fish);
    T_RUN(test_man);
    T_RUN(test_header);
    T_RUN(test_no_folder);
    T_RUN(test_paths);
    T_MAIN_END;
}
