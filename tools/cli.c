/* SPDX-License-Identifier: Apache-2.0 */
/* cli.c - parses a command line by its option table; what is wrong: cli_tell.c. */
#include "tools/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/number.h"

#define SHOWN_CAPACITY 256

const cli_option cli_common_options[CLI_COMMON_OPTIONS] = {
    { "help", 'h', CLI_FLAG, offsetof(cli_common, wants_help), NULL, NULL, NULL,
      "show examples, options and exit codes, then end" },
    { "verbose", 'v', CLI_COUNTER, offsetof(cli_common, verbosity), NULL, NULL, NULL,
      "more detail; twice: also the library's own messages" },
    { "log", '\0', CLI_CHOICE, offsetof(cli_common, log_level),
      "debug|info|warning|none", "BERTH_LOG", "warning",
      "messages of the library on standard error, from this level up" },
    { "no-color", '\0', CLI_FLAG, offsetof(cli_common, wants_no_colour), NULL, NULL, NULL,
      "no colours, as with NO_COLOR or TERM=dumb" },
    { "print-config", '\0', CLI_FLAG, offsetof(cli_common, wants_config), NULL, NULL, NULL,
      "show each option's value and where it comes from, then end" },
};

/* What a user typed may hold anything, too. */
static const char *
shown(const char *text, char buffer[SHOWN_CAPACITY])
{
    berth_text_escape(text, strlen(text), buffer, SHOWN_CAPACITY);
    return buffer;
}

/* ------------------------------------------------------------------- nearest */

static size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits between two words, a swap of neighbours being one; 99 for long ones. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t rows[3][32];
    const size_t n = strlen(a);
    const size_t m = strlen(b);

    if (n > 31 || m > 31)
        return 99;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *const row = rows[i % 3];
        const size_t *const above = rows[(i + 2) % 3];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = smaller(smaller(above[j], row[j - 1]) + 1,
                             above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], rows[(i + 1) % 3][j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

static const char *
word_at(const void *words, size_t i, size_t stride)
{
    const char *word;

    memcpy(&word, (const char *)words + i * stride, sizeof word);
    return word;
}

/* A few letters begin many words by chance. */
static bool
is_beginning(const char *text, const char *word)
{
    const size_t length = strlen(text);

    return length >= 3 && strncmp(word, text, length) == 0;
}

const char *
cli_nearest(const char *text, const void *words, size_t count, size_t stride)
{
    const char *nearest = NULL;
    size_t best = strlen(text) / 3 + 1;
    size_t beginnings = 0;

    for (size_t i = 0; i < count; i++)
        if (is_beginning(text, word_at(words, i, stride)) && beginnings++ == 0)
            nearest = word_at(words, i, stride);
    if (beginnings == 1)
        return nearest;
    nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *const word = word_at(words, i, stride);
        const size_t distance = edit_distance(text, word);

        if (distance <= best && (beginnings == 0 || is_beginning(text, word))) {
            nearest = word;
            best = distance - (distance > 0);
        }
    }
    return nearest;
}

/* -------------------------------------------------------------------- tables */

const cli_option *
cli_option_at(const cli_command *command, size_t position)
{
    if (position < command->option_count)
        return &command->options[position];
    position -= command->option_count;
    return position < CLI_COMMON_OPTIONS ? &cli_common_options[position] : NULL;
}

static size_t
position_of_name(const cli_command *command, const char *name, size_t length)
{
    const cli_option *option;
    size_t i = 0;

    for (; (option = cli_option_at(command, i)) != NULL; i++)
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            break;
    return i;
}

static size_t
position_of_letter(const cli_command *command, char letter)
{
    const cli_option *option;
    size_t i = 0;

    for (; (option = cli_option_at(command, i)) != NULL; i++)
        if (option->letter == letter)
            break;
    return i;
}

const char **
cli_origin(cli_call *call, const char *name)
{
    return &call->origins[position_of_name(call->command, name, strlen(name))];
}

bool
cli_is_given(const cli_call *call, const char *name)
{
    const char *const origin =
        call->origins[position_of_name(call->command, name, strlen(name))];

    return origin != NULL && strcmp(origin, CLI_GIVEN) == 0;
}

const char *
cli_choice_word(const char *choices, int32_t position, size_t *length)
{
    for (; position > 0; position--) {
        choices = strchr(choices, '|');
        if (choices == NULL)
            return NULL;
        choices++;
    }
    *length = strcspn(choices, "|");
    return choices;
}

/* -------------------------------------------------------------------- values */

static bool
can_store_choice(const char *choices, const char *text, int32_t *out)
{
    const char *word;
    size_t length;

    for (int32_t i = 0; (word = cli_choice_word(choices, i, &length)) != NULL; i++)
        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            *out = i;
            return true;
        }
    return false;
}

#define NUMBER_MOST 999999999 /* as messages say it */

static bool
can_store_number(const char *text, uint32_t *out)
{
    uint64_t number;

    if (!number_can_parse(text, strlen(text), NUMBER_MOST, &number))
        return false;
    *out = (uint32_t)number;
    return number > 0;
}

static bool
can_add(const char *text, cli_list *list)
{
    if (list->count == CLI_MAX_ITEMS)
        return false;
    list->items[list->count++] = text;
    return true;
}

/* `source` names where the value stands: "--io" or "BERTH_IO". */
static berth_status
store_value(const cli_call *call, const cli_option *option, const char *source,
            const char *text)
{
    char *const field = (char *)call->arguments + option->offset;
    char buffer[SHOWN_CAPACITY];
    bool is_good = true;

    switch (option->kind) {
    case CLI_FLAG: *(bool *)(void *)field = true; break;
    case CLI_COUNTER: ++*(uint32_t *)(void *)field; break;
    case CLI_TEXT:
    case CLI_ENTRIES:
    case CLI_INPUT:
    case CLI_OPTIONAL: *(const char **)(void *)field = text; break;
    case CLI_NUMBER: is_good = can_store_number(text, (uint32_t *)(void *)field); break;
    case CLI_SIZE:
        is_good = berth_size_parse(text, (uint64_t *)(void *)field, NULL) == BERTH_OK;
        break;
    case CLI_LIST:
        if (can_add(text, (cli_list *)(void *)field))
            break;
        return cli_usage_error(call->command, "%s: given more than %d times", source,
                               CLI_MAX_ITEMS);
    case CLI_CHOICE:
        is_good = can_store_choice(option->value, text, (int32_t *)(void *)field);
        break;
    }
    if (is_good)
        return BERTH_OK;
    return cli_usage_error(call->command, "%s: `%s` is not %s%s", source,
                           shown(text, buffer),
                           option->kind == CLI_NUMBER ? "a number from 1 to 999999999"
                           : option->kind == CLI_SIZE ? "a size such as 64MiB, below 16 EiB"
                                                      : "one of ",
                           option->kind == CLI_CHOICE ? option->value : "");
}

static bool
has_value(const cli_option *option)
{
    return option->kind != CLI_FLAG && option->kind != CLI_COUNTER;
}

/* ------------------------------------------------------------------- parsing */

/* The words of a command line, read from front to back. */
typedef struct words {
    int count;
    char **word;
    int next;
} words;

static berth_status
store_option(cli_call *call, size_t position, const char *source, const char *value,
             words *w)
{
    const cli_option *const option = cli_option_at(call->command, position);

    if (!has_value(option) && value != NULL)
        return cli_usage_error(call->command, "%s takes no value", source);
    /* A variable that is not set: what was to be named is not what is meant without a name. */
    if (option->kind == CLI_OPTIONAL && value != NULL && value[0] == '\0')
        return cli_usage_error(call->command, "%s= needs a value: %s; or leave `=` out", source,
                               option->value);
    if (value == NULL && option->kind == CLI_OPTIONAL)
        value = "";
    if (value == NULL && has_value(option)) {
        if (w->next == w->count)
            return cli_usage_error(call->command, "%s needs a value: %s", source,
                                   option->value);
        value = w->word[w->next++];
    }
    /* The second one would take the place of the first, and what that says be lost unseen. */
    if (option->kind == CLI_ENTRIES && cli_is_given(call, option->name))
        return cli_usage_error(call->command,
                               "%s is given twice: all of its list goes into one", source);
    call->origins[position] = CLI_GIVEN;
    return store_value(call, option, source, value);
}

static berth_status
unknown_option(const cli_command *command, const char *name, size_t length)
{
    const char *nearest;
    char word[32];
    char buffer[SHOWN_CAPACITY];
    const char *names[CLI_MAX_OPTIONS];
    const cli_option *option;
    size_t count = 0;

    for (; (option = cli_option_at(command, count)) != NULL; count++)
        names[count] = option->name;
    snprintf(word, sizeof word, "%.*s", (int)smaller(length, sizeof word - 1), name);
    nearest = cli_nearest(word, names, count, sizeof names[0]);
    berth_text_escape(name, length, buffer, sizeof buffer);
    return cli_usage_error(command, "unknown option `--%s`%s%s%s", buffer,
                           nearest != NULL ? "; did you mean `--" : "",
                           nearest != NULL ? nearest : "", nearest != NULL ? "`?" : "");
}

static berth_status
parse_long(cli_call *call, const char *text, words *w)
{
    const size_t length = strcspn(text, "=");
    const size_t position = position_of_name(call->command, text, length);
    char source[SHOWN_CAPACITY];

    if (cli_option_at(call->command, position) == NULL)
        return unknown_option(call->command, text, length);
    snprintf(source, sizeof source, "--%.*s", (int)length, text);
    return store_option(call, position, source,
                        text[length] == '=' ? text + length + 1 : NULL, w);
}

/* "-vv", "-j4", "-j 4" */
static berth_status
parse_letters(cli_call *call, const char *letters, words *w)
{
    for (; *letters != '\0'; letters++) {
        const size_t position = position_of_letter(call->command, *letters);
        const cli_option *const option = cli_option_at(call->command, position);
        const char source[3] = { '-', *letters, '\0' };
        char buffer[SHOWN_CAPACITY];
        berth_status status;

        if (option == NULL)
            return cli_usage_error(call->command, "unknown option `%s`",
                                   shown(source, buffer));
        if (has_value(option) && letters[1] != '\0')
            return store_option(call, position, source, letters + 1, w);
        status = store_option(call, position, source, NULL, w);
        if (status != BERTH_OK)
            return status;
    }
    return BERTH_OK;
}

/* The n-th word of "IN OUT" and what follows it; NULL beyond the last. */
static const char *
operand_name(const cli_command *command, uint32_t position)
{
    const char *name = command->operand;

    for (; name != NULL && position > 0; position--) {
        name = strchr(name, ' ');
        name += name != NULL;
    }
    return name;
}

/* `--train lora`: the value of an option that may have one stands behind a `=`. */
static const cli_option *
option_without_value(const cli_call *call)
{
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
        const char *const field = (const char *)call->arguments + option->offset;

        if (option->kind == CLI_OPTIONAL && call->origins[i] != NULL
            && (*(const char *const *)(const void *)field)[0] == '\0')
            return option;
    }
    return NULL;
}

static berth_status
unexpected_operand(const cli_call *call, const char *text)
{
    const cli_option *const option = option_without_value(call);
    char buffer[SHOWN_CAPACITY];

    shown(text, buffer);
    if (option == NULL)
        return cli_usage_error(call->command, "unexpected argument `%s`", buffer);
    return cli_usage_error(call->command,
                           "unexpected argument `%s`; as the value of --%s write `--%s=%s`",
                           buffer, option->name, option->name, buffer);
}

static berth_status
store_operand(const cli_call *call, const char *text)
{
    cli_common *const common = call->arguments;

    if (operand_name(call->command, common->operand_count) == NULL)
        return unexpected_operand(call, text);
    common->operands[common->operand_count++] = text;
    return BERTH_OK;
}

static berth_status
parse_words(cli_call *call, words *w)
{
    berth_status status = BERTH_OK;
    bool is_over = false; /* `--` was seen */

    while (w->next < w->count && status == BERTH_OK) {
        const char *const word = w->word[w->next++];

        if (is_over || word[0] != '-' || word[1] == '\0')
            status = store_operand(call, word);
        else if (strcmp(word, "--") == 0)
            is_over = true;
        else if (word[1] == '-')
            status = parse_long(call, word + 2, w);
        else
            status = parse_letters(call, word + 1, w);
    }
    return status;
}

static berth_status
store_defaults(cli_call *call)
{
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++)
        if (option->fallback != NULL) {
            const berth_status status =
                store_value(call, option, option->name, option->fallback);

            if (status != BERTH_OK)
                return status;
        }
    return BERTH_OK;
}

static berth_status
store_environment(cli_call *call)
{
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
        const char *const text =
            option->environment != NULL && call->origins[i] == NULL
                ? call->environment(option->environment)
                : NULL;
        berth_status status;

        if (text == NULL || text[0] == '\0')
            continue;
        status = store_value(call, option, option->environment, text);
        if (status != BERTH_OK)
            return status;
        call->origins[i] = option->environment;
    }
    return BERTH_OK;
}

berth_status
cli_parse(const cli_command *command, cli_environment environment, int argc, char **argv,
          void *arguments, cli_call *call)
{
    cli_common *const common = arguments;
    words w = { argc, argv, 0 };
    const char *missing;
    berth_status status;

    memset(arguments, 0, command->arguments_size);
    memset(call, 0, sizeof *call);
    call->command = command;
    call->environment = environment;
    call->arguments = arguments;
    status = store_defaults(call);
    if (status == BERTH_OK)
        status = parse_words(call, &w);
    if (status == BERTH_OK)
        status = store_environment(call);
    if (status == BERTH_OK && command->settle != NULL)
        status = command->settle(call);
    if (status != BERTH_OK || common->wants_help || common->wants_config)
        return status;
    missing = operand_name(command, common->operand_count);
    if (missing != NULL && missing[0] != '[')
        return cli_usage_error(command, "missing %s", missing);
    return BERTH_OK;
}
