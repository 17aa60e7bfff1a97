/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - the option tables of the commands and the parser that obeys them.
 *
 * One table per command is the only place that knows its options: parsing,
 * --help, --print-config, completions and man pages all read the same entry.
 * Order of precedence: command line, environment, default.
 */
#ifndef BERTH_TOOLS_CLI_H
#define BERTH_TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/colour.h"

#define CLI_MAX_OPERANDS 2
#define CLI_MAX_OPTIONS 64 /* of a command, with the common ones */
#define CLI_COMMON_OPTIONS 5
#define CLI_MAX_ITEMS 64
#define CLI_ARGUMENTS_CAPACITY 8192

/* What an option takes, and the type of the field it is stored in. */
typedef enum cli_kind {
    CLI_FLAG,     /* bool                                                          */
    CLI_COUNTER,  /* uint32_t: how often it was given                              */
    CLI_TEXT,     /* const char *, borrowed; NULL when absent                      */
    CLI_ENTRIES,  /* the same: a list in one word, which is not given twice        */
    CLI_INPUT,    /* the same: a file that is read as text; "-": see input_take()  */
    CLI_OPTIONAL, /* const char *, borrowed; "" when given without `=VALUE`        */
    CLI_NUMBER,   /* uint32_t, from 1 to 999999999                                  */
    CLI_SIZE,     /* uint64_t, bytes                                               */
    CLI_LIST,     /* cli_list: one more each time it is given                      */
    CLI_CHOICE    /* int32_t: position in `value`, a list such as "auto|direct"    */
} cli_kind;

/* The values of an option that may be given several times, borrowed. */
typedef struct cli_list {
    uint32_t count;
    const char *items[CLI_MAX_ITEMS];
} cli_list;

typedef struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* '\0': none */
    cli_kind kind;
    size_t offset;           /* of the field in the command's arguments */
    const char *value;       /* "FILE", or the words of a choice; NULL for flags */
    const char *environment; /* variable that speaks when the option is absent */
    const char *fallback;    /* default, as a user would write it; NULL: none */
    const char *help;        /* one line, lower case, no full stop */
} cli_option;

typedef struct cli_example {
    const char *command;
    const char *what;
} cli_example;

/* The arguments of each command start with this. */
typedef struct cli_common {
    bool wants_help;
    bool wants_config;
    bool wants_no_colour;
    uint32_t verbosity;
    int32_t log_level; /* berth_log_level, or one more: nothing */
    uint32_t operand_count;
    const char *operands[CLI_MAX_OPERANDS];
} cli_common;

struct cli_call;
struct session;

typedef struct cli_command {
    const char *name;
    const char *help; /* one line for the list of commands */
    const char *const *description; /* paragraphs, ends with NULL */
    const char *operand; /* "MODEL", "IN OUT", "[MODEL]": may be left out; NULL: none */
    const cli_option *options;
    size_t option_count;
    const cli_example *examples;
    size_t example_count;
    size_t arguments_size;
    /* Fills what no option and no single variable says. May be NULL. */
    berth_status (*settle)(struct cli_call *call);
    berth_status (*run)(struct session *s);
} cli_command;

typedef const char *(*cli_environment)(const char *name);

/* The origin of what stood on the command line. */
#define CLI_GIVEN "command line"

/* One parsed command line. */
typedef struct cli_call {
    const cli_command *command;
    cli_environment environment;
    void *arguments; /* cli_common first */
    /* By position, see cli_option_at(): NULL (default), CLI_GIVEN or a variable. */
    const char *origins[CLI_MAX_OPTIONS];
} cli_call;

extern const cli_option cli_common_options[CLI_COMMON_OPTIONS];

/* A command's options, and the type they are stored in; compiled where there is room for both. */
#define CLI_OPTIONS(table, type)                                                          \
    .options = table, .option_count = sizeof table / sizeof table[0],                     \
    .arguments_size = sizeof(type) + 0 * sizeof(struct {                                  \
        char nothing;                                                                     \
        _Static_assert(sizeof table / sizeof table[0] + CLI_COMMON_OPTIONS                \
                           <= CLI_MAX_OPTIONS,                                            \
                       "more options than there is room for");                            \
        _Static_assert(sizeof(type) <= CLI_ARGUMENTS_CAPACITY,                            \
                       "more values than there is room for");                             \
    })

/* The command's own options, then the common ones; NULL beyond the last. */
const cli_option *cli_option_at(const cli_command *command, size_t position);

/*
 * cli_parse() fills `arguments` (arguments_size bytes, aligned for any type)
 * and `call`. argv[0] is the first word after the command's name. What is wrong
 * is printed to stderr. Returns BERTH_OK or BERTH_EINVAL.
 */
berth_status cli_parse(const cli_command *command, cli_environment environment, int argc,
                       char **argv, void *arguments, cli_call *call);

/* Was the option on the command line? `name` is one of the command's. */
bool cli_is_given(const cli_call *call, const char *name);
/* Where the option's position keeps its origin. */
const char **cli_origin(cli_call *call, const char *name);

/* BERTH_EINVAL with a message if `name` was given although it has no effect here. */
berth_status cli_refuse(const cli_call *call, const char *name, const char *why);
/* "--NAME: `TEXT` is not WANTED", of text that may hold anything. Returns BERTH_EINVAL. */
berth_status cli_bad_value(const cli_call *call, const char *name, const char *text,
                           size_t length, const char *wanted);

/*
 * The word of `words` that was probably meant: the only one that begins so; of several that do,
 * or else of all, one that is nearly the same; or NULL. `words` are `stride` bytes apart, each
 * beginning with a const char *.
 */
const char *cli_nearest(const char *text, const void *words, size_t count, size_t stride);

/* "berth verify: MESSAGE (see `berth verify --help`)". Returns BERTH_EINVAL. */
__attribute__((format(printf, 2, 3))) berth_status
cli_usage_error(const cli_command *command, const char *format, ...);

/*
 * "berth verify: error: ..." from an error of the library, with the option in front whose value on
 * the command line it is about. Returns its status.
 */
berth_status cli_error(const cli_call *call, const berth_error *error);

/* A failure of the tool itself. Returns `status`. */
__attribute__((format(printf, 3, 4))) berth_status
cli_failure(const cli_command *command, berth_status status, const char *format, ...);

/* Programs get this error, which a finding has told; what is above remembers its own. */
void cli_remember(const berth_error *error);
/* What was told or remembered last; the status is BERTH_OK where nothing was. */
const berth_error *cli_told(void);
/* It was about this file, which could not be made or written; returns its status. */
berth_status cli_told_of_file(const char *file, int system_error);

/* The exit code of a status. */
int cli_exit_code(berth_status status);

/* The n-th word of "a|b|c" and its length; NULL beyond the last. */
const char *cli_choice_word(const char *choices, int32_t position, size_t *length);

#endif
