/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - completions for bash, zsh and fish. */
#define _POSIX_C_SOURCE 200809L

#include "tools/generate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"

berth_status
generate_file(const char *folder, const char *name,
              void (*write_content)(output *out, const void *user), const void *user)
{
    char path[4096];
    output out;
    int system_error;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = n > 0 && (size_t)n < sizeof path
                       ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                       : -1;

    if (fd < 0)
        return cli_failure(NULL, BERTH_EIO, "%s: %s", name, strerror(errno));
    output_init(&out, fd);
    write_content(&out, user);
    output_flush(&out);
    system_error = out.system_error;
    if (close(fd) != 0 && system_error == 0)
        system_error = errno;
    if (system_error != 0)
        return cli_failure(NULL, BERTH_EIO, "%s: %s", name, strerror(system_error));
    return BERTH_OK;
}

/*
 * `text` within single quotes of a shell's script: a backslash before each
 * character of `special`, and quotes by leaving the quotes for a moment.
 */
static void
write_quoted(output *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            output_text(out, "'\\''");
        else
            output_format(out, "%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
    }
}

/* The value, where there is one, is one of these words. */
static bool
has_words(const cli_option *option)
{
    return option->value != NULL && strchr(option->value, '|') != NULL;
}

/* The words of a choice, blanks between them. */
static void
write_words(output *out, const char *choices)
{
    for (; *choices != '\0'; choices++)
        output_bytes(out, *choices == '|' ? " " : choices, 1);
}

/* What a shell completes a value with: `file`, `folder` or `other`. */
static const char *
choose_action(const cli_option *option, const char *file, const char *folder,
              const char *other)
{
    return strcmp(option->value, "FILE") == 0  ? file
           : strcmp(option->value, "DIR") == 0 ? folder
                                               : other;
}

/* ---------------------------------------------------------------------- bash */

static void
write_bash_values(output *out, const cli_command *command)
{
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(command, i)) != NULL; i++) {
        if (option->value == NULL)
            continue;
        output_text(out, "    ");
        /* Where a value may be left out, the next word is none. */
        if (option->kind != CLI_OPTIONAL)
            output_format(out, "%s/--%s|", command->name, option->name);
        output_format(out, "%s/--%s=", command->name, option->name);
        if (option->letter != '\0')
            output_format(out, "|%s/-%c", command->name, option->letter);
        output_text(out, ") ");
        if (has_words(option)) {
            output_text(out, "words='");
            write_words(out, option->value);
            output_text(out, "'");
        } else {
            output_format(out, "files=%s words=",
                          choose_action(option, "-f", "-d", ""));
        }
        output_text(out, " ;;\n");
    }
}

static void
write_bash_options(output *out, const cli_command *command)
{
    const cli_option *option;

    output_format(out, "    %s/*) words='", command->name);
    for (size_t i = 0; (option = cli_option_at(command, i)) != NULL; i++) {
        output_format(out, "%s--%s", i > 0 ? " " : "", option->name);
        if (option->kind == CLI_OPTIONAL)
            output_format(out, " --%s=", option->name);
    }
    output_format(out, "' files=%s ;;\n", command->operand != NULL ? "-f" : "");
}

/* bash makes words of their own of `=` and what stands behind it. */
static void
write_bash(output *out, const void *user)
{
    (void)user;
    output_text(out, "# bash completion for berth, generated from its option tables\n"
                     "_berth()\n{\n"
                     "    local current=${COMP_WORDS[COMP_CWORD]} words= files= option\n"
                     "    local previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
                     "    if [[ $current == = ]]; then\n"
                     "        option=$previous= current=\n"
                     "    elif [[ $previous == = && $COMP_CWORD -gt 2 ]]; then\n"
                     "        option=${COMP_WORDS[COMP_CWORD - 2]}=\n"
                     "    else\n"
                     "        option=$previous\n"
                     "    fi\n"
                     "    local commands='");
    for (size_t i = 0; all_commands[i] != NULL; i++)
        output_format(out, "%s ", all_commands[i]->name);
    output_text(out, "help'\n"
                     "    case $COMP_CWORD/${COMP_WORDS[1]} in\n"
                     "    1/*) words=\"$commands --help --version\" ;;\n"
                     "    */help) words=$commands ;;\n"
                     "    *) case ${COMP_WORDS[1]}/$option in\n");
    for (size_t i = 0; all_commands[i] != NULL; i++)
        write_bash_values(out, all_commands[i]);
    for (size_t i = 0; all_commands[i] != NULL; i++)
        write_bash_options(out, all_commands[i]);
    output_text(out,
                "    esac ;;\n    esac\n"
                "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                "    if [[ -n $files && $current != -* ]]; then\n"
                "        compopt -o filenames\n"
                "        mapfile -t COMPREPLY < <(compgen \"$files\" -- \"$current\")\n"
                "    elif [[ ${COMPREPLY[*]} == *= ]]; then\n"
                "        compopt -o nospace\n"
                "    fi\n}\n"
                "complete -F _berth berth\n");
}

/* ----------------------------------------------------------------------- zsh */

/* The value may stand behind `=`; one that may be left out stands nowhere else. */
static void
write_zsh_option(output *out, const cli_option *option)
{
    const char *const sign = option->kind == CLI_OPTIONAL ? "=-"
                             : option->value != NULL      ? "="
                                                          : "";

    output_text(out, " \\\n            ");
    if (option->kind == CLI_COUNTER || option->kind == CLI_LIST)
        output_text(out, "'*'");
    else if (option->letter != '\0')
        output_format(out, "'(-%c --%s)'", option->letter, option->name);
    if (option->letter != '\0')
        output_format(out, "{-%c%s,--%s%s}'[", option->letter,
                      option->value != NULL ? "+" : "", option->name, sign);
    else
        output_format(out, "'--%s%s[", option->name, sign);
    write_quoted(out, option->help, "[]:\\");
    output_text(out, "]");
    if (has_words(option)) {
        output_text(out, option->kind == CLI_OPTIONAL ? "::word:(" : ":word:(");
        write_words(out, option->value);
        output_text(out, ")");
    } else if (option->value != NULL) {
        output_format(out, "%s:%s:%s", option->kind == CLI_OPTIONAL ? ":" : "",
                      option->value, choose_action(option, "_files", "_files -/", ""));
    }
    output_text(out, "'");
}

/* "IN OUT": each word is one, "[MODEL]" may be left out; NULL: there is none. */
static void
write_zsh_operands(output *out, const char *names)
{
    for (int i = 1; names != NULL && names[0] != '\0'; i++) {
        const int length = (int)strcspn(names, " ");
        const int brackets = names[0] == '[';

        output_format(out, " \\\n            '%d:%s%.*s:_files'", i, brackets ? ":" : "",
                      length - 2 * brackets, names + brackets);
        names += length + (names[length] == ' ');
    }
}

static void
write_zsh(output *out, const void *user)
{
    (void)user;
    output_text(out, "#compdef berth\n"
                     "# zsh completion for berth, generated from its option tables\n"
                     "_berth() {\n"
                     "    local curcontext=$curcontext context state line\n"
                     "    typeset -A opt_args\n"
                     "    local -a commands=(\n");
    for (size_t i = 0; all_commands[i] != NULL; i++) {
        output_format(out, "        '%s:", all_commands[i]->name);
        write_quoted(out, all_commands[i]->help, ":\\");
        output_text(out, "'\n");
    }
    output_text(out, "        'help:show the help of a command'\n    )\n"
                     "    _arguments -C '(-h --help)'{-h,--help}'[show help]' \\\n"
                     "        '(-V --version)'{-V,--version}'[show the version]' \\\n"
                     "        '1:command:->command' '*::argument:->argument'\n"
                     "    case $state in\n"
                     "    command) _describe command commands ;;\n"
                     "    argument)\n"
                     "        case $words[1] in\n"
                     "        help) _describe command commands ;;\n");
    for (size_t i = 0; all_commands[i] != NULL; i++) {
        const cli_option *option;

        output_format(out, "        %s) _arguments", all_commands[i]->name);
        for (size_t n = 0; (option = cli_option_at(all_commands[i], n)) != NULL; n++)
            write_zsh_option(out, option);
        write_zsh_operands(out, all_commands[i]->operand);
        output_text(out, " ;;\n");
    }
    /* Loaded by its name it is called at once; read by `source`, it is registered. */
    output_text(out, "        esac ;;\n    esac\n}\n"
                     "if [[ ${funcstack[1]} == _berth ]]; then\n    _berth \"$@\"\n"
                     "else\n    compdef _berth berth\nfi\n");
}

/* ---------------------------------------------------------------------- fish */

static void
write_fish_option(output *out, const cli_command *command, const cli_option *option)
{
    output_format(out, "complete -c berth -n '__fish_seen_subcommand_from %s' -l %s",
                  command->name, option->name);
    if (option->letter != '\0')
        output_format(out, " -s %c", option->letter);
    if (has_words(option)) {
        output_text(out, option->kind == CLI_OPTIONAL ? " -f -a '" : " -x -a '");
        write_words(out, option->value);
        output_text(out, "'");
    } else if (option->value != NULL && option->kind != CLI_OPTIONAL) {
        output_text(out, choose_action(option, " -r -F",
                                       " -x -a '(__fish_complete_directories)'", " -x"));
    }
    output_text(out, " -d '");
    write_quoted(out, option->help, "\\");
    output_text(out, "'\n");
}

static void
write_fish(output *out, const void *user)
{
    (void)user;
    output_text(out, "# fish completion for berth, generated from its option tables\n"
                     "complete -c berth -n __fish_use_subcommand -f\n"
                     "complete -c berth -n __fish_use_subcommand -s h -l help "
                     "-d 'show help'\n"
                     "complete -c berth -n __fish_use_subcommand -s V -l version "
                     "-d 'show the version'\n"
                     "complete -c berth -n __fish_use_subcommand -a help "
                     "-d 'show the help of a command'\n"
                     "complete -c berth -n '__fish_seen_subcommand_from help' -f -a '");
    for (size_t i = 0; all_commands[i] != NULL; i++)
        output_format(out, "%s%s", i > 0 ? " " : "", all_commands[i]->name);
    output_text(out, "'\n");
    for (size_t i = 0; all_commands[i] != NULL; i++) {
        const cli_option *option;

        output_format(out, "complete -c berth -n __fish_use_subcommand -a %s -d '",
                      all_commands[i]->name);
        write_quoted(out, all_commands[i]->help, "\\");
        output_text(out, "'\n");
        if (all_commands[i]->operand == NULL)
            output_format(out, "complete -c berth -n '__fish_seen_subcommand_from %s' -f\n",
                          all_commands[i]->name);
        for (size_t n = 0; (option = cli_option_at(all_commands[i], n)) != NULL; n++)
            write_fish_option(out, all_commands[i], option);
    }
}

berth_status
generate_completions(const char *folder)
{
    berth_status status = generate_file(folder, "berth.bash", write_bash, NULL);

    if (status == BERTH_OK)
        status = generate_file(folder, "_berth", write_zsh, NULL);
    if (status == BERTH_OK)
        status = generate_file(folder, "berth.fish", write_fish, NULL);
    return status;
}
