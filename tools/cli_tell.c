/* SPDX-License-Identifier: Apache-2.0 */
/* cli_tell.c - what a command tells on standard error, and keeps for programs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"
#include "tools/input.h"
#include "tools/json_error.h"
#include "tools/output.h"

/* The failure that was told last. */
static berth_error told;

void
cli_remember(const berth_error *error)
{
    told = input_named(error);
}

const berth_error *
cli_told(void)
{
    return &told;
}

berth_status
cli_told_of_file(const char *file, int system_error)
{
    berth_text_escape(file, strlen(file), told.file, sizeof told.file);
    told.reason = json_reason_of_file(told.status, system_error);
    told.system_error = system_error;
    return told.status;
}

static void
remember_message(berth_status status, const char *message)
{
    told = json_error_of(status);
    snprintf(told.message, sizeof told.message, "%.*s", (int)sizeof told.message - 1,
             message);
}

static void
print_message(const cli_command *command, const char *message, const char *hint)
{
    output out;

    output_init(&out, STDERR_FILENO);
    output_text(&out, "berth");
    if (command != NULL)
        output_format(&out, " %s", command->name);
    output_format(&out, ": %s%s\n", message, hint);
    output_flush(&out);
}

berth_status
cli_usage_error(const cli_command *command, const char *format, ...)
{
    char message[1024];
    char hint[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    snprintf(hint, sizeof hint, " (see `berth %s%s--help`)",
             command != NULL ? command->name : "", command != NULL ? " " : "");
    remember_message(BERTH_EINVAL, message);
    print_message(command, message, hint);
    return BERTH_EINVAL;
}

berth_status
cli_failure(const cli_command *command, berth_status status, const char *format, ...)
{
    char message[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    remember_message(status, message);
    print_message(command, message, "");
    return status;
}

berth_status
cli_refuse(const cli_call *call, const char *name, const char *why)
{
    if (!cli_is_given(call, name))
        return BERTH_OK;
    return cli_usage_error(call->command, "--%s has no effect %s", name, why);
}

berth_status
cli_bad_value(const cli_call *call, const char *name, const char *text, size_t length,
              const char *wanted)
{
    char shown[128];

    berth_text_escape(text, length, shown, sizeof shown);
    return cli_usage_error(call->command, "--%s: `%s` is not %s", name, shown, wanted);
}

int
cli_exit_code(berth_status status)
{
    return status < 0 ? -status : 0;
}

/* ------------------------------------------------------------------- culprits */

/*
 * Is `word` all of the value, or one entry of "0=8GiB,cpu=4GiB" or "sim:1GiB;sim:2GiB"? NULL: what
 * was given meant standard input or output.
 */
static bool
has_entry(const char *value, const char *word)
{
    const size_t length = strlen(word);

    if (value == NULL)
        return false;
    if (strcmp(value, word) == 0)
        return true;
    for (const char *entry = value;; entry++) {
        const size_t n = strcspn(entry, ",;");

        if (n == length && memcmp(entry, word, n) == 0)
            return true;
        entry += n;
        if (*entry == '\0')
            return false;
    }
}

static bool
has_value_with(const cli_call *call, const cli_option *option, const char *word)
{
    const void *const field = (const char *)call->arguments + option->offset;
    const cli_list *const list = field;

    if (option->kind == CLI_TEXT || option->kind == CLI_ENTRIES)
        return has_entry(*(const char *const *)field, word);
    for (uint32_t i = 0; option->kind == CLI_LIST && i < list->count; i++)
        if (has_entry(list->items[i], word))
            return true;
    return false;
}

/*
 * What an error is about: its argument, or what its message quotes in the first place, be it an
 * entry that is empty. False: neither.
 */
static bool
has_subject(const berth_error *error, char subject[BERTH_NAME_CAPACITY])
{
    const bool is_quoted = error->tensor[0] == '\0' && error->message[0] == '"';
    const char *const text = is_quoted ? error->message + 1 : error->tensor;
    const size_t length = is_quoted ? strcspn(text, "\"") : strlen(text);
    const size_t most = BERTH_NAME_CAPACITY - 1;

    snprintf(subject, BERTH_NAME_CAPACITY, "%.*s", (int)(length < most ? length : most), text);
    return is_quoted || length > 0;
}

/* The option that the library refuses a value of, which does not know its name; NULL: none. */
static const cli_option *
find_culprit(const cli_call *call, const berth_error *error)
{
    char subject[BERTH_NAME_CAPACITY];
    const cli_option *option;

    if (error->reason != BERTH_REASON_ARGUMENT || !has_subject(error, subject))
        return NULL;
    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++)
        if (call->origins[i] != NULL && strcmp(call->origins[i], CLI_GIVEN) == 0
            && has_value_with(call, option, subject))
            return option;
    return NULL;
}

/* "max_memory" as the library has it is the option "max-memory". */
static bool
is_named_so(const cli_option *option, const char *field, size_t length)
{
    if (strlen(option->name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (option->name[i] != (field[i] == '_' ? '-' : field[i]))
            return false;
    return true;
}

/* An argument of the library that has the name of an option is called by that. */
static void
name_option(const cli_call *call, berth_error *error)
{
    static const char begin[] = "argument `";
    const char *const field = error->message + sizeof begin - 1;
    const cli_option *option;
    char message[sizeof error->message];
    size_t length;

    if (error->reason != BERTH_REASON_ARGUMENT
        || strncmp(error->message, begin, sizeof begin - 1) != 0)
        return;
    length = strcspn(field, "`");
    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
        if (!is_named_so(option, field, length))
            continue;
        snprintf(message, sizeof message, "--%s%s", option->name,
                 field + length + (field[length] == '`'));
        memcpy(error->message, message, sizeof message);
        return;
    }
}

berth_status
cli_error(const cli_call *call, const berth_error *error)
{
    const cli_option *const culprit = find_culprit(call, error);
    char message[sizeof *error + 512]; /* all of its texts, numbers and advice */
    int n = 0;

    cli_remember(error);
    name_option(call, &told);
    if (culprit != NULL)
        n = snprintf(message, sizeof message, "--%s: ", culprit->name);
    berth_error_format(&told, message + n, sizeof message - (size_t)n);
    print_message(call->command, message, "");
    return error->status;
}
