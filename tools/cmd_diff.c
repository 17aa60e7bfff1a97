/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_diff.c - `berth diff`: how far apart two checkpoints are, weight by weight. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/diff.h"
#include "tools/interrupt.h"
#include "tools/json_error.h"

typedef struct diff_arguments {
    cli_common common;
    model_arguments model;
    const char *min_snr;
    const char *max_relative;
    bool wants_tensors;
    bool is_strict;
    bool allows_missing;
    bool wants_json;
    bool is_quiet;
    uint32_t jobs;
    int32_t io;
    progress_arguments progress;
    uint64_t ring_bytes;
} diff_arguments;

static const cli_option diff_options[] = {
    { "tensors", '\0', CLI_FLAG, offsetof(diff_arguments, wants_tensors), NULL, NULL, NULL,
      "one line a weight, those that are the same, too" },
    { "strict", '\0', CLI_FLAG, offsetof(diff_arguments, is_strict), NULL, NULL, NULL,
      "exit code 11 unless every weight is stored as the same bytes" },
    { "min-snr", '\0', CLI_TEXT, offsetof(diff_arguments, min_snr), "DB", NULL, NULL,
      "exit code 11 when a weight has less signal to noise, in decibels" },
    { "max-relative", '\0', CLI_TEXT, offsetof(diff_arguments, max_relative), "X", NULL,
      NULL, "exit code 11 when a weight's relative error is larger; 0: equal values" },
    { "allow-missing", '\0', CLI_FLAG, offsetof(diff_arguments, allows_missing), NULL,
      NULL, NULL, "the three above say nothing of weights that only one side has" },
    { "jobs", 'j', CLI_NUMBER, offsetof(diff_arguments, jobs), "N", NULL, NULL,
      "threads that compare; without it, one a core" },
    IO_OPTION(diff_arguments, io),
    { "ring", '\0', CLI_SIZE, offsetof(diff_arguments, ring_bytes), "SIZE", NULL, "64MiB",
      "memory for bytes in flight, 12MiB at least" },
    { "json", '\0', CLI_FLAG, offsetof(diff_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object; with --tensors also one a weight" },
    { "quiet", 'q', CLI_FLAG, offsetof(diff_arguments, is_quiet), NULL, NULL, NULL,
      "print errors only: the exit code is the answer" },
    PROGRESS_OPTIONS(diff_arguments, progress),
    MODEL_OPTIONS(diff_arguments),
};

static const cli_example diff_examples[] = {
    { "berth diff ./model ./model-nf4", "what quantizing has cost, and where it cost most" },
    { "berth diff ./a ./b --tensors", "every weight on a line" },
    { "berth diff ./a ./b --strict --quiet && echo same", "for scripts" },
    { "berth diff ./model ./model-nf4 --min-snr 15",
      "exit code 11 when a weight has lost more than that" },
    { "berth diff ./model ./model-int8 --json | jq .errors.snr_db", "for programs" },
};

static const char *const diff_description[] = {
    "Compares the weights of two checkpoints, whatever they are stored as: by bytes, and "
    "where those differ by the values they stand for; what berth does not decode, such as "
    "GPTQ and AWQ, by bytes alone. Shows how many are the same, the largest and the mean "
    "error, the error relative to the values, the ratio of signal to noise, a histogram "
    "of the errors, and the weights that differ most.",
    "A difference is no failure unless one of --strict, --min-snr and --max-relative says "
    "so. A weight is what its values are called, so that the same model may be stored in "
    "other encodings and other shards.",
    "With --json a comparison that fails has `error`, too, as in berth-json(5).",
    NULL,
};

/* One run. */
typedef struct comparison {
    session *s;
    const diff_arguments *a;
    berth_diff_options options;
    berth_diff_report report;
    diff_ranking ranking;
    json_writer w;
} comparison;

/* ----------------------------------------------------------------- arguments */

/* A finite number, all of the text: as people write it, neither in hex nor behind blanks. */
static berth_status
parse_number(const cli_call *call, const char *option, const char *text, double *out)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && strspn(text, "+-.0123456789eE") == strlen(text)
        && errno == 0 && *out - *out == 0)
        return BERTH_OK;
    return cli_bad_value(call, option, text, strlen(text), "a number");
}

static berth_status
fill_limits(comparison *c)
{
    const cli_call *const call = c->s->call;
    berth_diff_options *const options = &c->options;
    berth_status status = BERTH_OK;

    options->requires_same = c->a->is_strict;
    options->allows_missing = c->a->allows_missing;
    options->has_min_snr = c->a->min_snr != NULL;
    options->has_max_relative = c->a->max_relative != NULL;
    if (options->has_min_snr)
        status = parse_number(call, "min-snr", c->a->min_snr, &options->min_snr);
    if (status == BERTH_OK && options->has_max_relative)
        status = parse_number(call, "max-relative", c->a->max_relative,
                              &options->max_relative);
    if (status == BERTH_OK && options->has_max_relative && options->max_relative < 0)
        status = cli_usage_error(call->command, "--max-relative: `%s` is below 0",
                                 c->a->max_relative);
    if (status == BERTH_OK && !options->requires_same && !options->has_min_snr
        && !options->has_max_relative)
        status = cli_refuse(call, "allow-missing",
                            "without --strict, --min-snr or --max-relative");
    return status;
}

static berth_status
check_arguments(const cli_call *call)
{
    const diff_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if (a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    if (status == BERTH_OK && a->is_quiet)
        status = cli_refuse(call, "tensors", "with --quiet");
    return status == BERTH_OK ? progress_check(call, &a->progress) : status;
}

/* ----------------------------------------------------------------------- job */

static void
on_tensor(void *user, const berth_diff_tensor *tensor)
{
    comparison *const c = user;

    diff_rank(&c->ranking, tensor);
    if (!c->a->wants_tensors)
        return;
    progress_hide(&c->s->progress);
    if (c->a->wants_json)
        diff_write_tensor(&c->w, tensor);
    else
        diff_print_tensor(c->s, tensor);
    output_flush(&c->s->out);
    progress_show(&c->s->progress);
}

static berth_status
compare(comparison *c, berth_checkpoint *a, berth_checkpoint *b, berth_error *error)
{
    berth_diff_options *const options = &c->options;
    berth_job *job = NULL;
    berth_status status;

    options->io = c->a->io;
    options->workers = c->a->jobs;
    options->ring_bytes = c->a->ring_bytes;
    options->progress = session_progress;
    options->progress_user = c->s;
    options->tensor = on_tensor;
    options->tensor_user = c;
    options->report = &c->report;
    interrupt_job_begin();
    status = berth_diff_start(c->s->context, a, b, options, &job, error);
    if (status == BERTH_OK)
        status = session_see_through(c->s, job, error);
    interrupt_job_end();
    return status;
}

static berth_status
open_model(const comparison *c, const char *path, berth_checkpoint **out,
           berth_error *error)
{
    berth_open_options options;

    berth_open_options_init(&options);
    model_options_fill(&options, &c->a->model);
    return berth_checkpoint_open(c->s->context, path, &options, out, error);
}

static void
begin(comparison *c)
{
    if (!c->a->wants_json)
        return;
    json_begin(&c->w, &c->s->out, false);
    json_object_begin(&c->w, NULL);
    json_number(&c->w, "schema_version", 1);
    json_text(&c->w, "a", c->a->common.operands[0]);
    json_text(&c->w, "b", c->a->common.operands[1]);
    if (c->a->wants_tensors)
        json_array_begin(&c->w, "tensors");
}

/* Sums are shown of a comparison that came to its end. */
static void
end(comparison *c, berth_status status, const berth_error *error)
{
    const bool is_whole = status == BERTH_OK || status == BERTH_EPOLICY;

    if (c->a->wants_json) {
        if (c->a->wants_tensors)
            json_array_end(&c->w);
        json_text(&c->w, "status", berth_status_name(status));
        json_number(&c->w, "exit_code", (uint64_t)cli_exit_code(status));
        if (status != BERTH_OK)
            json_error_object(&c->w, error);
        if (is_whole)
            diff_write(&c->w, &c->report);
        json_object_end(&c->w);
        json_end(&c->w);
    } else if (is_whole && !c->a->is_quiet) {
        if (c->a->wants_tensors)
            output_text(&c->s->out, "\n");
        diff_print(c->s, &c->report, &c->ranking);
    }
    output_flush(&c->s->out);
}

static berth_status
run(comparison *c)
{
    berth_checkpoint *a = NULL;
    berth_checkpoint *b = NULL;
    berth_error error;
    berth_status status;

    begin(c);
    status = open_model(c, c->a->common.operands[0], &a, &error);
    if (status == BERTH_OK)
        status = open_model(c, c->a->common.operands[1], &b, &error);
    if (status == BERTH_OK)
        status = compare(c, a, b, &error);
    berth_checkpoint_close(a);
    berth_checkpoint_close(b);
    end(c, status, &error);
    if (status != BERTH_OK)
        return cli_error(c->s->call, &error);
    if (c->ranking.is_out_of_memory)
        return cli_failure(c->s->call->command, BERTH_ENOMEM, "out of memory");
    return BERTH_OK;
}

static berth_status
diff_run(session *s)
{
    const diff_arguments *const a = s->call->arguments;
    comparison c = { .s = s, .a = a };
    berth_status status = check_arguments(s->call);

    berth_diff_options_init(&c.options);
    if (status == BERTH_OK)
        status = fill_limits(&c);
    if (status == BERTH_OK)
        status = session_start_job(s, &a->progress, a->is_quiet);
    if (status == BERTH_OK)
        status = run(&c);
    diff_ranking_fini(&c.ranking);
    return status;
}

const cli_command diff_command = {
    .name = "diff",
    .help = "how far apart the weights of two checkpoints are",
    .description = diff_description,
    .operand = "A B",
    CLI_OPTIONS(diff_options, diff_arguments),
    .examples = diff_examples,
    .example_count = sizeof diff_examples / sizeof diff_examples[0],
    .settle = model_settle,
    .run = diff_run,
};
