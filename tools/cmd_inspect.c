/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c - `berth inspect`: what is there and where its bytes are. */
#include <unistd.h>

#include "tools/commands.h"
#include "tools/inspect.h"
#include "tools/session.h"

typedef struct inspect_arguments {
    cli_common common;
    model_arguments model;
    bool wants_tensors;
    bool wants_json;
    bool wants_csv;
    uint32_t depth;
} inspect_arguments;

static const cli_option inspect_options[] = {
    { "tensors", '\0', CLI_FLAG, offsetof(inspect_arguments, wants_tensors), NULL, NULL,
      NULL, "list every tensor as it is stored" },
    { "depth", '\0', CLI_NUMBER, offsetof(inspect_arguments, depth), "N", NULL, NULL,
      "show N levels of modules; without it, as many as fit a screen" },
    { "json", '\0', CLI_FLAG, offsetof(inspect_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object; with --tensors also the list of tensors" },
    { "csv", '\0', CLI_FLAG, offsetof(inspect_arguments, wants_csv), NULL, NULL, NULL,
      "every tensor as a line of comma-separated values" },
    MODEL_OPTIONS(inspect_arguments),
};

static const cli_example inspect_examples[] = {
    { "berth inspect ./model", "modules, sizes, dtypes; repeated layers as one" },
    { "berth inspect org/name@main --depth 2", "a model of the hub cache, two levels" },
    { "berth inspect ./model --tensors | less", "every tensor, layer 2 before layer 10" },
    { "berth inspect ./model --json | jq .parameters", "for programs: sizes are bytes" },
};

static const char *const inspect_description[] = {
    "Shows what is in a checkpoint and where its bytes are: architecture, parameters, "
    "quantization, and a tree of modules with the share of each. Layers that are alike "
    "are one row. Nothing but headers is read.",
    "MODEL is a directory with model.safetensors or an index and shards, a single file, "
    "or `org/name` or `org/name@revision` of the hub cache, which is never written.",
    "With --json a model that cannot be read is an object, too: `status`, `exit_code`, "
    "`error`, as in berth-json(5).",
    NULL,
};

static void
count_finding(void *user, const berth_finding *finding)
{
    inspection *const i = user;

    if (finding->severity == BERTH_SEVERITY_WARNING)
        i->warnings++;
    else if (finding->severity == BERTH_SEVERITY_NOTE)
        i->notes++;
}

static berth_status
check_arguments(const cli_call *call)
{
    const inspect_arguments *const arguments = call->arguments;

    if (arguments->wants_json && arguments->wants_csv)
        return cli_usage_error(call->command, "--json and --csv exclude each other");
    if (!arguments->wants_tensors && !arguments->wants_json && !arguments->wants_csv)
        return BERTH_OK;
    return cli_refuse(call, "depth", "on --tensors, --json and --csv");
}

static berth_status
show_people(session *s, const inspection *i)
{
    const inspect_arguments *const arguments = s->call->arguments;
    berth_status status = BERTH_OK;

    if (arguments->wants_tensors)
        status = inspect_print_tensors(s, i);
    else
        inspect_print(s, i, arguments->depth);
    if (status == BERTH_OK && arguments->common.verbosity > 0)
        inspect_print_shards(s, i);
    return status;
}

static berth_status
show(session *s, const inspection *i)
{
    const inspect_arguments *const arguments = s->call->arguments;

    if (arguments->wants_json)
        inspect_write_json(s, i, arguments->wants_tensors);
    else if (arguments->wants_csv)
        inspect_print_csv(s, i);
    else
        return show_people(s, i);
    return BERTH_OK;
}

static berth_status
inspect_run(session *s)
{
    const inspect_arguments *const arguments = s->call->arguments;
    berth_checkpoint *checkpoint = NULL;
    inspection i = { 0 };
    berth_open_options options;
    berth_error error;
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);
    if (status != BERTH_OK)
        return status;
    berth_open_options_init(&options);
    model_options_fill(&options, &arguments->model);
    options.finding = count_finding;
    options.finding_user = &i;
    status = berth_checkpoint_open(s->context, arguments->common.operands[0], &options,
                                   &checkpoint, &error);
    if (status != BERTH_OK)
        return cli_error(s->call, &error);
    status = inspect_gather(&i, checkpoint);
    if (status == BERTH_OK)
        status = show(s, &i);
    if (status != BERTH_OK)
        cli_failure(s->call->command, status, "out of memory; free memory or raise the limit");
    inspect_fini(&i);
    berth_checkpoint_close(checkpoint);
    return status;
}

const cli_command inspect_command = {
    .name = "inspect",
    .help = "what is in a checkpoint, and where its bytes are",
    .description = inspect_description,
    .operand = "MODEL",
    CLI_OPTIONS(inspect_options, inspect_arguments),
    .examples = inspect_examples,
    .example_count = sizeof inspect_examples / sizeof inspect_examples[0],
    .settle = model_settle,
    .run = inspect_run,
};
