/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - runs a job that writes a checkpoint anew, and reports on it. */
#define _POSIX_C_SOURCE 200809L

#include "tools/convert.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/coverage.h"
#include "tools/interrupt.h"
#include "tools/report.h"

/* One run. */
typedef struct conversion {
    session *s;
    const convert_arguments *a;
    int32_t type;
    berth_checkpoint *checkpoint;
    berth_convert_report result;
    bool has_started; /* `result` says something */
    coverage coverage;
    report report; /* JSON; its counts in text, too */
    const char *skips[CONVERT_MAX_SKIPS];
    uint32_t skip_count;
    char *skip_text; /* that `skips` point into */
    uint64_t min_coverage;
} conversion;

/* ----------------------------------------------------------------- arguments */

static berth_status
check_arguments(const cli_call *call)
{
    const convert_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if (a->is_resuming && a->may_overwrite)
        return cli_usage_error(call->command, "--resume and --force exclude each other: "
                                              "go on, or begin anew");
    if (a->common.operands[1][0] == '\0')
        return cli_usage_error(call->command, "OUT is empty");
    if (a->max_shard_bytes < CONVERT_MIN_SHARD)
        return cli_usage_error(call->command, "--max-shard-size: less than %d bytes",
                               CONVERT_MIN_SHARD);
    if (a->is_dry)
        status = cli_refuse(call, "resume", "with --dry-run");
    if (status == BERTH_OK && a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    if (status == BERTH_OK && fcntl((int)a->progress_fd, F_GETFD) < 0)
        status = cli_usage_error(call->command, "--progress-fd: descriptor %u is not open",
                                 a->progress_fd);
    return status;
}

/* "a,b" as two entries, "" as none at all. */
static berth_status
split_skips(conversion *c)
{
    const char *const given = c->a->skip_modules;
    const cli_command *const command = c->s->call->command;
    char *at;

    if (given == NULL || given[0] == '\0')
        return BERTH_OK;
    c->skip_text = malloc(strlen(given) + 1);
    if (c->skip_text == NULL)
        return cli_failure(command, BERTH_ENOMEM, "out of memory");
    at = strcpy(c->skip_text, given);
    while (at != NULL) {
        char *const comma = strchr(at, ',');

        if (comma != NULL)
            *comma = '\0';
        if (at[0] == '\0')
            return cli_usage_error(command, "--skip-modules: an entry is empty");
        if (c->skip_count == CONVERT_MAX_SKIPS)
            return cli_usage_error(command, "--skip-modules: more than %d entries",
                                   CONVERT_MAX_SKIPS);
        c->skips[c->skip_count++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
    return BERTH_OK;
}

static berth_status
parse_coverage(conversion *c)
{
    const char *const text = c->a->min_coverage;
    char shown[64];

    if (text == NULL || berth_share_parse(text, &c->min_coverage, NULL) == BERTH_OK)
        return BERTH_OK;
    berth_text_escape(text, strlen(text), shown, sizeof shown);
    return cli_usage_error(c->s->call->command,
                           "--min-coverage: `%s` is not a share such as 95%% or 0.95",
                           shown);
}

/* Position in CONVERT_DTYPES or CONVERT_STORAGES as a dtype; -1: the first word. */
static int32_t
dtype_of(int32_t position)
{
    static const int32_t dtypes[] = { -1,        BERTH_BF16, BERTH_F16,
                                      BERTH_F32, BERTH_BF16, BERTH_F16,
                                      BERTH_F32, BERTH_F16,  BERTH_F32 };

    return dtypes[position];
}

static const char *
torch_name(int32_t dtype)
{
    return dtype == BERTH_BF16  ? "bfloat16"
           : dtype == BERTH_F16 ? "float16"
                                : "float32";
}

/* ------------------------------------------------------------------ findings */

/* A line on standard error that does not run into the bar. */
static void
print_finding(conversion *c, const berth_finding *finding)
{
    static const char *const words[] = { "note", "warning", "error" };
    char line[sizeof *finding->details + 512]; /* all of its texts, numbers and advice */
    output out;

    berth_error_format(finding->details, line, sizeof line);
    progress_hide(&c->s->progress);
    output_init(&out, STDERR_FILENO);
    output_format(&out, "berth %s: %s: ", c->s->call->command->name,
                  words[finding->severity]);
    output_text(&out, line);
    output_text(&out, "\n");
    output_flush(&out);
    progress_show(&c->s->progress);
}

static void
on_finding(void *user, const berth_finding *finding)
{
    conversion *const c = user;

    if (c->a->wants_json)
        report_finding(&c->report, finding);
    else if (finding->severity > BERTH_SEVERITY_NOTE && !c->a->is_quiet)
        print_finding(c, finding);
}

static void
tell_error(conversion *c, const berth_error *error)
{
    if (c->a->wants_json)
        report_error(&c->report, error);
    else
        cli_error(c->s->call->command, error);
}

/* ----------------------------------------------------------------------- job */

static void
fill_options(conversion *c, berth_convert_options *options)
{
    /* In the order of CONVERT_ERAS. */
    static const char *const eras[] = { "hf5", "hf5.14", "hf5.0", "hf4" };
    const convert_arguments *const a = c->a;

    berth_convert_options_init(options);
    options->output = a->common.operands[1];
    options->type = c->type;
    options->dtype = dtype_of(a->dtype);
    options->max_shard_bytes = a->max_shard_bytes;
    options->overwrite = a->may_overwrite;
    options->resume = a->is_resuming;
    options->dry_run = a->is_dry;
    options->io = a->io;
    options->workers = a->jobs;
    options->ring_bytes = a->ring_bytes;
    options->progress = session_progress;
    options->progress_user = c->s;
    options->finding = on_finding;
    options->finding_user = c;
    options->coverage = coverage_add;
    options->coverage_user = &c->coverage;
    options->report = &c->result;
    if (c->type == BERTH_ENCODING_NATIVE)
        return;
    options->storage = dtype_of(a->storage);
    options->like = eras[a->like];
    options->block_size = a->block_size;
    options->double_quant = a->is_double;
    options->takes_experts = a->takes_experts;
    options->reject_nonfinite = a->rejects_nonfinite;
    options->skip_modules = c->skips;
    options->skip_count = c->skip_count;
    options->has_skips = a->skip_modules != NULL;
    options->keep = a->keep.items;
    options->keep_count = a->keep.count;
    options->only = a->only.items;
    options->only_count = a->only.count;
    options->rules = a->rules;
    options->min_coverage = c->min_coverage;
    options->compute_dtype = torch_name(dtype_of(a->compute_dtype + 1));
}

static berth_status
open_model(conversion *c)
{
    const char *const path = c->a->common.operands[0];
    berth_open_options options;
    berth_error error;
    berth_status status;

    berth_open_options_init(&options);
    model_options_fill(&options, &c->a->model);
    options.finding = on_finding;
    options.finding_user = c;
    status = berth_checkpoint_open(c->s->context, path, &options, &c->checkpoint, &error);
    if (status != BERTH_OK)
        tell_error(c, &error);
    return status;
}

/* The job's threads may have something to say while it is printed. */
static void
show_coverage(conversion *c)
{
    if (c->a->wants_json || c->a->is_quiet || c->type == BERTH_ENCODING_NATIVE)
        return;
    progress_hide(&c->s->progress);
    coverage_print(c->s, &c->coverage);
    output_flush(&c->s->out);
    progress_show(&c->s->progress);
}

static berth_status
run_job(conversion *c)
{
    berth_convert_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    fill_options(c, &options);
    interrupt_job_begin();
    status = berth_convert_start(c->s->context, c->checkpoint, &options, &job, &error);
    show_coverage(c);
    if (status == BERTH_OK) {
        c->has_started = true;
        status = session_see_through(c->s, job, &error);
    }
    interrupt_job_end();
    if (status != BERTH_OK)
        tell_error(c, &error);
    return status;
}

/* -------------------------------------------------------------------- people */

static const char *
bottleneck_name(int32_t bottleneck)
{
    return bottleneck == 0   ? "read"
           : bottleneck == 1 ? "convert"
           : bottleneck == 2 ? "write"
                             : "unknown";
}

/* "s" unless there is one. */
static const char *
plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void
print_word(session *s, const char *word, colour style)
{
    output_format(&s->out, "%s%s%s  ", colour_begin(&s->screen, style), word,
                  colour_end(&s->screen, style));
}

/* What is there now, or would be. */
static void
print_output(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    const char *const path = c->a->common.operands[1];
    session *const s = c->s;
    char bytes[BERTH_SIZE_CAPACITY];
    char number[TEXT_NUMBER_CAPACITY];
    char share[COVERAGE_SHARE_CAPACITY];

    print_word(s, c->a->is_dry ? "dry run" : "ok", COLOUR_GOOD);
    output_name(&s->out, path, strlen(path));
    output_format(&s->out, ": %s in %" PRIu32 " %s%s, ",
                  berth_size_format(r->planned_bytes, bytes), r->shards, "shard",
                  plural(r->shards));
    if (c->type != BERTH_ENCODING_NATIVE)
        output_format(&s->out, "%s weight%s quantized, %s of the parameters",
                      text_number(r->quantized, number), plural(r->quantized),
                      coverage_share_text(r->coverage, 1000000000, share));
    else
        output_format(&s->out, "%s parameters", text_count(r->parameters, number));
    if (c->a->is_dry)
        output_format(&s->out, "; %s of memory",
                      berth_size_format(r->planned_memory, bytes));
    output_text(&s->out, "\n");
}

/* What it took: bytes, time, rate, and what everything else waited for. */
static void
print_effort(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char read[BERTH_SIZE_CAPACITY];
    char written[BERTH_SIZE_CAPACITY];
    char resumed[BERTH_SIZE_CAPACITY];
    char rate[BERTH_SIZE_CAPACITY];
    const double speed = r->seconds > 0 ? (double)r->bytes_read / r->seconds : 0;

    print_word(s, "io", COLOUR_DIM);
    output_format(&s->out, "%s read, %s written in %.1f s, %s/s; slowest: %s",
                  berth_size_format(r->bytes_read, read),
                  berth_size_format(r->bytes_written, written), r->seconds,
                  berth_size_format((uint64_t)speed, rate),
                  bottleneck_name(r->bottleneck));
    if (r->bytes_resumed > 0)
        output_format(&s->out, "; %s of an earlier run kept",
                      berth_size_format(r->bytes_resumed, resumed));
    output_text(&s->out, "\n");
    if (s->common->verbosity == 0)
        return;
    print_word(s, "io", COLOUR_DIM);
    output_format(&s->out, "%s; waited %.3f s for reads, converted %.3f s, wrote %.3f s\n",
                  r->io_path, r->read_seconds, r->convert_seconds, r->write_seconds);
}

static void
print_nonfinite(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char values[TEXT_NUMBER_CAPACITY];
    char tensors[TEXT_NUMBER_CAPACITY];

    if (r->nonfinite_values == 0)
        return;
    print_word(s, "warning", COLOUR_WARNING);
    output_format(&s->out, "%s value%s in %s tensor%s: NaN or infinite\n",
                  text_number(r->nonfinite_values, values), plural(r->nonfinite_values),
                  text_number(r->nonfinite_tensors, tensors),
                  plural(r->nonfinite_tensors));
}

static void
print_end(const conversion *c, berth_status status)
{
    if (c->a->is_quiet || status != BERTH_OK)
        return;
    print_output(c);
    if (!c->a->is_dry)
        print_effort(c);
    print_nonfinite(c);
}

/* ------------------------------------------------------------------ programs */

static void
write_result(json_writer *w, const berth_convert_report *r)
{
    json_object_begin(w, "result");
    json_number(w, "shards", r->shards);
    json_number(w, "planned_bytes", r->planned_bytes);
    json_number(w, "planned_memory", r->planned_memory);
    json_number(w, "bytes_read", r->bytes_read);
    json_number(w, "bytes_written", r->bytes_written);
    json_number(w, "bytes_resumed", r->bytes_resumed);
    json_number(w, "tensors_written", r->tensors_written);
    json_number(w, "parameters", r->parameters);
    json_number(w, "quantized_weights", r->quantized);
    json_number(w, "nonfinite_values", r->nonfinite_values);
    json_number(w, "nonfinite_tensors", r->nonfinite_tensors);
    json_text(w, "bottleneck", bottleneck_name(r->bottleneck));
    json_real(w, "read_seconds", r->read_seconds);
    json_real(w, "convert_seconds", r->convert_seconds);
    json_real(w, "write_seconds", r->write_seconds);
    json_real(w, "seconds", r->seconds);
    json_text(w, "io_path", r->io_path);
    json_object_end(w);
}

static void
write_end(conversion *c, berth_status status)
{
    json_writer *const w = &c->report.w;

    report_write_status(&c->report, status);
    json_text(w, "output", c->a->common.operands[1]);
    json_text(w, "encoding", berth_encoding_name(c->type));
    json_bool(w, "dry_run", c->a->is_dry);
    coverage_write_json(w, &c->coverage);
    if (c->has_started)
        write_result(w, &c->result);
    else
        json_null(w, "result");
    json_object_end(w);
    json_end(w);
}

/* ------------------------------------------------------------------- command */

static berth_status
run(conversion *c)
{
    const convert_arguments *const a = c->a;
    berth_status status;

    if (a->wants_json)
        report_begin(&c->report, c->s, a->common.operands[0], true, false);
    status = open_model(c);
    if (status == BERTH_OK)
        status = run_job(c);
    if (c->coverage.is_out_of_memory && status == BERTH_OK)
        status = cli_failure(c->s->call->command, BERTH_ENOMEM,
                             "out of memory; the coverage report is incomplete");
    if (a->wants_json)
        write_end(c, status);
    else
        print_end(c, status);
    return status;
}

berth_status
convert_run(session *s, int32_t type)
{
    const convert_arguments *const a = s->call->arguments;
    const bool is_silent = a->is_quiet && a->progress == PROGRESS_AUTO;
    conversion c = { .s = s, .a = a, .type = type };
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = parse_coverage(&c);
    if (status == BERTH_OK)
        status = split_skips(&c);
    if (status == BERTH_OK)
        status = session_start(s, (int)a->progress_fd,
                               is_silent ? PROGRESS_NEVER : (progress_mode)a->progress);
    if (status == BERTH_OK)
        status = run(&c);
    berth_checkpoint_close(c.checkpoint);
    coverage_fini(&c.coverage);
    free(c.skip_text);
    return status;
}

berth_status
convert_settle(cli_call *call)
{
    convert_arguments *const arguments = call->arguments;

    return model_settle(call, &arguments->model);
}
