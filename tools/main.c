/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - berth: global options, the table of commands, the exit code. */
#define _POSIX_C_SOURCE 200809L

#include <locale.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/allocator.h"
#include "tools/commands.h"
#include "tools/descriptors.h"
#include "tools/generate.h"
#include "tools/help.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/json_error.h"
#include "tools/session.h"

const cli_command *const all_commands[] = {
    &inspect_command,
    &verify_command,
    &quantize_command,
    &dequantize_command,
    &diff_command,
    &plan_command,
    &estimate_command,
    &map_command,
    &load_command,
    &bench_command,
    &devices_command,
    NULL,
};

/* A service may have no HOME: its user has one all the same, where the hub's library looks. */
static const char *
environment(const char *name)
{
    const char *const value = getenv(name);
    const struct passwd *const user =
        value == NULL && strcmp(name, "HOME") == 0 ? getpwuid(getuid()) : NULL;

    return user != NULL ? user->pw_dir : value;
}

static const cli_command *
find_command(const char *name)
{
    for (size_t i = 0; all_commands[i] != NULL; i++)
        if (strcmp(all_commands[i]->name, name) == 0)
            return all_commands[i];
    return NULL;
}

static berth_status
unknown_command(const char *name)
{
    const char *names[sizeof all_commands / sizeof all_commands[0]];
    const char *nearest;
    char shown[256];
    size_t count = 0;

    if (name[0] == '-') {
        names[count++] = "--help";
        names[count++] = "--version";
    } else {
        for (; all_commands[count] != NULL; count++)
            names[count] = all_commands[count]->name;
        names[count++] = "help";
    }
    nearest = cli_nearest(name, names, count, sizeof names[0]);
    berth_text_escape(name, strlen(name), shown, sizeof shown);
    return cli_usage_error(NULL, "unknown %s `%s`%s%s%s",
                           name[0] == '-' ? "option" : "command", shown,
                           nearest != NULL ? "; did you mean `" : "",
                           nearest != NULL ? nearest : "", nearest != NULL ? "`?" : "");
}

/* The help of `help` is the overview. */
static bool
is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
}

/* One run of the program. */
typedef struct program {
    _Alignas(max_align_t) char arguments[CLI_ARGUMENTS_CAPACITY];
    cli_call call;
    session s;
} program;

/* `berth --help`, `berth help`, `berth help COMMAND`; NULL: the overview. */
static berth_status
show_help(session *s, const char *name)
{
    const cli_command *const command = name != NULL ? find_command(name) : NULL;
    char shown[256];

    if (name != NULL && name[0] == '-' && !is_help(name)) {
        berth_text_escape(name, strlen(name), shown, sizeof shown);
        return cli_usage_error(NULL, "`berth help` takes the name of a command, not `%s`",
                               shown);
    }
    if (name != NULL && command == NULL && !is_help(name))
        return unknown_command(name);
    if (command != NULL)
        help_command(&s->out, &s->screen, command);
    else
        help_overview(&s->out, &s->screen, all_commands);
    return BERTH_OK;
}

/* What the command line asks for: the command, or something about it. */
static berth_status
obey(session *s)
{
    const cli_command *const command = s->call->command;
    berth_status status;

    if (s->common->wants_help) {
        help_command(&s->out, &s->screen, command);
        return BERTH_OK;
    }
    if (s->common->wants_config) {
        help_config(&s->out, &s->screen, s->call);
        return BERTH_OK;
    }
    status = input_take(s->call);
    return status == BERTH_OK ? command->run(s) : status;
}

static berth_status
run_command(program *p, const cli_command *command, int argc, char **argv)
{
    const berth_status status =
        cli_parse(command, environment, argc, argv, p->arguments, &p->call);

    session_init(&p->s, &p->call, environment);
    return status == BERTH_OK ? obey(&p->s) : status;
}

/* `berth -v verify MODEL`: options that stand before the command go behind it. */
static void
bring_command_forward(int argc, char **argv)
{
    int at = 1;
    char *command;

    while (at < argc && argv[at][0] == '-')
        at++;
    if (at == argc || at == 1)
        return;
    command = argv[at];
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    argv[1] = command;
}

static berth_status
run(program *p, int argc, char **argv)
{
    const char *const word = argc > 1 ? argv[1] : NULL;
    const cli_command *command;

    if (word == NULL)
        return cli_usage_error(NULL, "missing command");
    if (is_help(word))
        return show_help(&p->s, strcmp(word, "help") == 0 && argc > 2 ? argv[2] : NULL);
    if (strcmp(word, "-V") == 0 || strcmp(word, "--version") == 0) {
        output_format(&p->s.out, "berth %s\n", berth_version());
        return BERTH_OK;
    }
    if (strcmp(word, "--generate-man") == 0 && (argc == 3 || argc == 4))
        return generate_man(argv[2], argc == 4 ? argv[3] : NULL);
    if (strcmp(word, "--generate-completions") == 0 && argc == 3)
        return generate_completions(argv[2]);
    bring_command_forward(argc, argv);
    command = find_command(argv[1]);
    if (command == NULL)
        return unknown_command(argv[1]);
    return run_command(p, command, argc - 2, argv + 2);
}

/* Whoever wrote --json, wherever, reads standard output, whatever it is that failed. */
static void
tell_programs(program *p, berth_status status, int argc, char **argv)
{
    if (status != BERTH_OK && json_is_asked(argc, argv)
        && output_is_empty(&p->s.out))
        json_failure(&p->s.out, status, cli_told());
}

int
main(int argc, char **argv)
{
    program p = { .call = { .command = NULL } };
    berth_status status;

    allocator_spare_addresses();
    descriptors_init();
    setlocale(LC_CTYPE, ""); /* which characters the terminal has; nothing else */
    interrupt_init();
    session_init(&p.s, NULL, environment);
    status = run(&p, argc, argv);
    tell_programs(&p, status, argc, argv);
    return cli_exit_code(session_end(&p.s, status));
}
