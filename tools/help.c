/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - examples first, then the rest. */
#include "tools/help.h"

#include <stdio.h>
#include <string.h>

#include "tools/table.h"

const help_exit_code help_exit_codes[] = {
    { 0, "success" },
    { 1, "internal error: please report it" },
    { 2, "usage: fix the command" },
    { 3, "model not found or not readable: fix the path" },
    { 4, "checkpoint incomplete or malformed: download again" },
    { 5, "integrity mismatch: quarantine the file" },
    { 6, "does not fit: change the budget" },
    { 7, "out of memory at run time" },
    { 8, "no usable device or driver" },
    { 9, "I/O error or disk full" },
    { 10, "unsupported format or dtype: convert" },
    { 11, "a policy that was asked for (--strict, --min-coverage, ...) is violated" },
    { 130, "stopped by Ctrl-C, SIGTERM or SIGHUP, nothing half-written is left" },
};
const size_t help_exit_code_count = sizeof help_exit_codes / sizeof help_exit_codes[0];

static void
heading(output *out, const screen *s, const char *text)
{
    output_format(out, "%s%s%s\n", colour_begin(s, COLOUR_HEADING), text,
                  colour_end(s, COLOUR_HEADING));
}

void
help_overview(output *out, const screen *s, const cli_command *const *commands)
{
    heading(out, s, "berth - open, plan, load and quantize checkpoints of large language models");
    output_text(out, "\n");
    heading(out, s, "Examples");
    for (size_t i = 0; commands[i] != NULL; i++)
        output_format(out, "  %s\n", commands[i]->examples[0].command);
    output_text(out, "\n");
    heading(out, s, "Commands");
    for (size_t i = 0; commands[i] != NULL; i++)
        output_format(out, "  %-12s%s\n", commands[i]->name, commands[i]->help);
    output_text(out, "  help        show the help of a command\n\n");
    heading(out, s, "Options");
    output_text(out, "  -h, --help     show this, or the help of a command\n"
                     "  -V, --version  show the version\n\n"
                     "Each command has its own: `berth help COMMAND`.\n");
}

const char *
help_option_text(const cli_option *option, char text[HELP_OPTION_CAPACITY])
{
    int n = option->letter != '\0'
                ? snprintf(text, HELP_OPTION_CAPACITY, "-%c, --%s", option->letter,
                           option->name)
                : snprintf(text, HELP_OPTION_CAPACITY, "    --%s", option->name);

    if (option->value != NULL)
        snprintf(text + n, HELP_OPTION_CAPACITY - (size_t)n, "%s%s%s",
                 option->kind == CLI_OPTIONAL ? "[=" : " ",
                 option->kind == CLI_CHOICE ? "WORD" : option->value,
                 option->kind == CLI_OPTIONAL ? "]" : "");
    return text;
}

/* Words of `text` from column `indent` on, broken before column 80. */
static void
print_wrapped(output *out, const char *text, size_t indent, size_t *column)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");

        if (*column > indent && *column + 1 + length > 79) {
            output_text(out, "\n");
            output_repeat(out, " ", indent);
            *column = indent;
        } else if (*column > indent) {
            output_text(out, " ");
            ++*column;
        }
        output_bytes(out, text, length);
        *column += length;
        text += length;
        text += strspn(text, " ");
    }
}

static void
print_option(output *out, const cli_option *option, size_t indent)
{
    char text[HELP_OPTION_CAPACITY];
    size_t column = indent;
    char words[160] = "";
    char remark[96] = "";

    output_format(out, "  %-*s", (int)indent - 2, help_option_text(option, text));
    print_wrapped(out, option->help, indent, &column);
    if (option->kind == CLI_CHOICE) {
        snprintf(words, sizeof words, "(%s)", option->value);
        for (char *bar = strchr(words, '|'); bar != NULL; bar = strchr(bar, '|'))
            *bar = '/';
        print_wrapped(out, words, indent, &column);
    }
    if (option->fallback != NULL)
        snprintf(remark, sizeof remark, "[%s]", option->fallback);
    if (option->environment != NULL)
        snprintf(remark + strlen(remark), sizeof remark - strlen(remark), "[$%s]",
                 option->environment);
    print_wrapped(out, remark, indent, &column);
    output_text(out, "\n");
}

static size_t
option_indent(const cli_command *command)
{
    const cli_option *option;
    size_t width = 0;

    for (size_t i = 0; (option = cli_option_at(command, i)) != NULL; i++) {
        char text[HELP_OPTION_CAPACITY];
        const size_t n = strlen(help_option_text(option, text));

        width = n > width ? n : width;
    }
    return width + 4;
}

static void
print_examples(output *out, const cli_command *command)
{
    for (size_t i = 0; i < command->example_count; i++)
        output_format(out, "  %s\n      %s\n", command->examples[i].command,
                      command->examples[i].what);
}

bool
help_inputs_text(const cli_command *command, char text[HELP_INPUTS_CAPACITY])
{
    const char *between = "The FILE of";
    const cli_option *option;
    int n = 0;

    for (size_t i = 0; (option = cli_option_at(command, i)) != NULL; i++)
        if (option->kind == CLI_INPUT) {
            n += snprintf(text + n, HELP_INPUTS_CAPACITY - (size_t)n, "%s --%s", between,
                          option->name);
            between = " or";
        }
    snprintf(text + n, HELP_INPUTS_CAPACITY - (size_t)n,
             " may be -, for standard input, or a pipe.");
    return n > 0;
}

static void
print_inputs(output *out, const cli_command *command)
{
    char text[HELP_INPUTS_CAPACITY];
    size_t column = 0;

    if (!help_inputs_text(command, text))
        return;
    output_text(out, "\n");
    print_wrapped(out, text, 0, &column);
    output_text(out, "\n");
}

void
help_command(output *out, const screen *s, const cli_command *command)
{
    const size_t indent = option_indent(command);
    const cli_option *option;

    output_format(out, "%sberth %s%s - %s\n\n", colour_begin(s, COLOUR_HEADING),
                  command->name, colour_end(s, COLOUR_HEADING), command->help);
    heading(out, s, "Examples");
    print_examples(out, command);
    output_text(out, "\n");
    heading(out, s, "Usage");
    output_format(out, "  berth %s [OPTION]...%s%s\n\n", command->name,
                  command->operand != NULL ? " " : "",
                  command->operand != NULL ? command->operand : "");
    for (size_t i = 0; command->description[i] != NULL; i++) {
        size_t column = 0;

        print_wrapped(out, command->description[i], 0, &column);
        output_text(out, "\n\n");
    }
    heading(out, s, "Options");
    for (size_t i = 0; (option = cli_option_at(command, i)) != NULL; i++)
        print_option(out, option, indent);
    print_inputs(out, command);
    output_text(out, "\n");
    heading(out, s, "Exit codes");
    for (size_t i = 0; i < help_exit_code_count; i++)
        output_format(out, "  %3d  %s\n", help_exit_codes[i].code,
                      help_exit_codes[i].meaning);
}

/* -------------------------------------------------------------------- config */

/* "a, b", escaped, cut. */
static void
list_text(const cli_list *list, char *text, size_t capacity)
{
    size_t used = 0;

    snprintf(text, capacity, "-");
    for (uint32_t i = 0; i < list->count && used + 3 < capacity; i++) {
        if (i > 0) {
            memcpy(text + used, ", ", 3);
            used += 2;
        }
        berth_text_escape(list->items[i], strlen(list->items[i]), text + used,
                          capacity - used);
        used += strlen(text + used);
    }
}

/* The value of an option as its user would write it, escaped. */
static void
value_text(const cli_call *call, const cli_option *option, char *text, size_t capacity)
{
    const void *const field = (const char *)call->arguments + option->offset;
    const char *word;
    size_t length;

    switch (option->kind) {
    case CLI_FLAG: snprintf(text, capacity, "%s", *(const bool *)field ? "yes" : "no"); break;
    case CLI_COUNTER:
    case CLI_NUMBER: {
        const uint32_t number = *(const uint32_t *)field;

        snprintf(text, capacity, number > 0 || option->kind == CLI_COUNTER ? "%u" : "auto",
                 number);
        break;
    }
    case CLI_SIZE: berth_size_format(*(const uint64_t *)field, text); break;
    case CLI_TEXT:
    case CLI_ENTRIES:
    case CLI_INPUT:
    case CLI_OPTIONAL:
        word = *(const char *const *)field;
        if (word != NULL && word[0] == '\0')
            snprintf(text, capacity, "%s", option->kind == CLI_OPTIONAL ? "yes" : "''");
        else if (word != NULL)
            berth_text_escape(word, strlen(word), text, capacity);
        else
            snprintf(text, capacity, "-");
        break;
    case CLI_LIST: list_text(field, text, capacity); break;
    case CLI_CHOICE:
        word = cli_choice_word(option->value, *(const int32_t *)field, &length);
        snprintf(text, capacity, "%.*s", (int)length, word);
        break;
    }
}

static bool
is_question(const cli_option *option)
{
    return strcmp(option->name, "help") == 0 || strcmp(option->name, "print-config") == 0;
}

void
help_config(output *out, const screen *s, const cli_call *call)
{
    const cli_option *option;
    table t = { 0 };

    table_column_add(&t, "option", TABLE_LEFT);
    table_column_add(&t, "value", TABLE_LEFT);
    table_column_add(&t, "from", TABLE_LEFT);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            table_begin_rows(&t, out, s);
        for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
            char value[4096];
            const char *const origin = call->origins[i];
            const table_cell cells[] = {
                { option->name, COLOUR_NONE },
                { value, COLOUR_NONE },
                { origin != NULL ? origin : "default", COLOUR_DIM },
            };

            if (is_question(option))
                continue;
            value_text(call, option, value, sizeof value);
            table_row(&t, out, s, cells);
        }
    }
}
