/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - runs a job that writes a checkpoint anew, and reports on it. */
#include "tools/convert.h"

#include <string.h>

#include "tools/convert_blobs.h"
#include "tools/convert_print.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/verify_choice.h"

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
    if (input_is_standard(a->common.operands[1]))
        return cli_usage_error(call->command, "OUT is a folder, not standard output; name one, or "
                                              "./- where it is to be called so");
    if (a->max_shard_bytes < CONVERT_MIN_SHARD)
        return cli_usage_error(call->command, "--max-shard-size: less than %d bytes",
                               CONVERT_MIN_SHARD);
    if (a->is_dry)
        status = cli_refuse(call, "resume", "with --dry-run");
    if (status == BERTH_OK && a->is_dry)
        status = cli_refuse(call, "join", "with --dry-run");
    if (status == BERTH_OK && a->is_dry)
        status = cli_refuse(call, "verify-blobs", "with --dry-run");
    if (status == BERTH_OK && a->is_joining)
        status = cli_refuse(call, "verify-blobs", "with --join");
    if (status == BERTH_OK)
        status = verify_choice_check(call, a->is_unverified);
    if (status == BERTH_OK && a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    return status == BERTH_OK ? progress_check(call, &a->progress) : status;
}

static berth_status
parse_coverage(conversion *c)
{
    const char *const text = c->a->min_coverage;

    if (text == NULL || berth_share_parse(text, &c->min_coverage, NULL) == BERTH_OK)
        return BERTH_OK;
    return cli_bad_value(c->s->call, "min-coverage", text, strlen(text),
                         "a share such as 95% or 0.95");
}

static berth_status
read_share(conversion *c)
{
    const char *const text = c->a->part;
    const cli_call *const call = c->s->call;
    char why[PART_WHY_CAPACITY];

    if (text == NULL
        || (c->a->is_joining ? part_can_read_to_join : part_can_read)(
            text, call->environment, &c->share, why))
        return BERTH_OK;
    return cli_usage_error(call->command, "--part: %s", why);
}

static const char *
torch_name(int32_t dtype)
{
    return dtype == BERTH_BF16  ? "bfloat16"
           : dtype == BERTH_F16 ? "float16"
                                : "float32";
}

/* ------------------------------------------------------------------ findings */

static void
on_finding(void *user, const berth_finding *finding)
{
    conversion *const c = user;

    if (c->a->wants_json)
        report_finding(&c->report, finding);
    else if (finding->severity > BERTH_SEVERITY_NOTE && !c->a->is_quiet)
        session_print_finding(c->s, finding);
}

static void
tell_error(conversion *c, const berth_error *error)
{
    if (c->a->wants_json)
        report_error(&c->report, error);
    else
        cli_error(c->s->call, error);
}

/* ----------------------------------------------------------------------- job */

static void
fill_options(conversion *c, berth_convert_options *options)
{
    const convert_arguments *const a = c->a;
    const encoding_arguments *const e = &a->encoding;

    berth_convert_options_init(options);
    options->output = a->common.operands[1];
    options->type = c->type;
    options->dtype = encoding_dtype(e->dtype);
    options->max_shard_bytes = a->max_shard_bytes;
    options->overwrite = a->may_overwrite;
    options->resume = a->is_resuming;
    options->dry_run = a->is_dry;
    options->part_count = c->share.count;
    options->part = c->share.part;
    options->join = a->is_joining;
    options->verify = verify_choice(a->has_to_verify, a->is_unverified);
    options->manifest = a->manifest;
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
    options->devices = c->devices;
    if (c->type == BERTH_ENCODING_NATIVE)
        return;
    options->storage = encoding_dtype(e->storage);
    options->like = encoding_era(e->like);
    options->block_size = e->block_size;
    options->double_quant = e->is_double;
    options->takes_experts = e->takes_experts;
    options->reject_nonfinite = a->rejects_nonfinite;
    options->skip_modules = c->skips.items;
    options->skip_count = c->skips.count;
    options->has_skips = e->skip_modules != NULL;
    options->reject_skips = cli_is_given(c->s->call, "skip-modules");
    options->keep = e->keep.items;
    options->keep_count = e->keep.count;
    options->only = e->only.items;
    options->only_count = e->only.count;
    options->rules = e->rules;
    options->min_coverage = c->min_coverage;
    if (a->compute_dtype > 0)
        options->compute_dtype = torch_name(encoding_dtype(a->compute_dtype));
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

/* Words may stand for several devices: for all GPUs, or for what else they describe. */
static berth_status
open_device(conversion *c)
{
    const char *const words = c->a->device;
    char shown[256];
    berth_error error;
    berth_status status;

    if (words == NULL)
        return BERTH_OK;
    status = berth_devices_open(c->s->context, words, &c->devices, &error);
    if (status != BERTH_OK) {
        tell_error(c, &error);
        return status;
    }
    (void)berth_devices_get(c->devices, 0, &c->device);
    if (berth_devices_count(c->devices) == 1)
        return BERTH_OK;
    berth_text_escape(words, strlen(words), shown, sizeof shown);
    return cli_usage_error(c->s->call->command,
                           "--device: `%s` stands for %u devices, and one is asked: name it",
                           shown, (unsigned)berth_devices_count(c->devices));
}

/*
 * Once for all parts: they may share a terminal. The job's threads may have something
 * to say while it is printed.
 */
static void
show_coverage(conversion *c)
{
    if (c->a->wants_json || c->a->is_quiet || c->type == BERTH_ENCODING_NATIVE
        || c->share.part > 1)
        return;
    progress_hide(&c->s->progress);
    coverage_print(c->s, &c->coverage);
    output_flush(&c->s->out);
    progress_show(&c->s->progress);
}

/*
 * The same job, as far as it gets without a byte of weights or of output: what it refuses is told
 * before files are read for gigabytes. Nothing else is, as the job itself will say it.
 */
static berth_status
rehearse(conversion *c)
{
    berth_convert_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    fill_options(c, &options);
    options.dry_run = 1;
    options.progress = NULL;
    options.finding = NULL;
    options.coverage = NULL;
    options.report = NULL;
    c->s->is_silent = true;
    status = berth_convert_start(c->s->context, c->checkpoint, &options, &job, &error);
    if (status == BERTH_OK)
        status = berth_job_finish(job, &error);
    c->s->is_silent = false;
    /* Where parts are being put together only the job itself knows what has its room. */
    if (error.reason == BERTH_REASON_DISK_FULL && c->a->is_resuming && c->share.count > 0)
        return BERTH_OK;
    if (status != BERTH_OK)
        tell_error(c, &error);
    return status;
}

/* What is cheap to refuse comes first. */
static berth_status
verify_blobs(conversion *c)
{
    berth_status status;

    if (!c->a->verifies_blobs)
        return BERTH_OK;
    status = convert_blobs_check(c);
    if (status == BERTH_OK)
        status = rehearse(c);
    return status == BERTH_OK ? convert_blobs_verify(c) : status;
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
        status = open_device(c);
    if (status == BERTH_OK)
        status = verify_blobs(c);
    if (status == BERTH_OK)
        status = run_job(c);
    if (c->coverage.is_out_of_memory && status == BERTH_OK)
        status = cli_failure(c->s->call->command, BERTH_ENOMEM,
                             "out of memory; the coverage report is incomplete");
    if (a->wants_json)
        convert_write_end(c, status);
    else
        convert_print_end(c, status);
    return status;
}

berth_status
convert_run(session *s, int32_t type)
{
    const convert_arguments *const a = s->call->arguments;
    conversion c = { .s = s, .a = a, .type = type };
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = read_share(&c);
    if (status == BERTH_OK)
        status = parse_coverage(&c);
    if (status == BERTH_OK)
        status = encoding_skips_init(&c.skips, s->call, a->encoding.skip_modules);
    if (status == BERTH_OK)
        status = session_start_job(s, &a->progress, a->is_quiet);
    if (status == BERTH_OK)
        status = run(&c);
    berth_devices_close(c.devices);
    berth_checkpoint_close(c.checkpoint);
    coverage_fini(&c.coverage);
    encoding_skips_fini(&c.skips);
    return status;
}
