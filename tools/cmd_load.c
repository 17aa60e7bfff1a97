/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_load.c - `berth load`: every tensor into its berth, timed, checked, given back. */
#include <string.h>

#include "tools/commands.h"
#include "tools/encoding.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/load_print.h"
#include "tools/load_refuse.h"
#include "tools/load_tier.h"
#include "tools/trace.h"
#include "tools/verify_choice.h"

typedef struct load_arguments {
    cli_common common;
    model_arguments model;
    const char *plan;
    const char *max_memory;
    int32_t type; /* in TYPES */
    bool is_double;
    int32_t dtype; /* in ENCODING_DTYPES */
    const char *devices;
    bool is_checked;
    bool has_to_verify;
    bool is_unverified;
    const char *manifest;
    uint32_t jobs;
    uint32_t workers;
    int32_t io;
    uint64_t ring_bytes;
    uint32_t stages;
    const char *offload_dir;
    bool wants_memory;
    const char *trace;
    const char *events;
    bool may_overwrite;
    bool wants_json;
    bool is_quiet;
    progress_arguments progress;
} load_arguments;

#define TYPES "none|nf4|fp4|int8"
#define TYPE_NF4 1
#define TYPE_FP4 2

static const cli_option load_options[] = {
    { "plan", 'p', CLI_INPUT, offsetof(load_arguments, plan), "FILE", NULL, NULL,
      "load as this plan says: berth-plan(5)" },
    { "max-memory", 'm', CLI_ENTRIES, offsetof(load_arguments, max_memory), "LIST", NULL, NULL,
      "plan first, for these memories: 0=20GiB,cpu=64GiB; without both, all of --devices, "
      "or host memory that is free here and the disk" },
    { "type", 't', CLI_CHOICE, offsetof(load_arguments, type), TYPES, NULL, "none",
      "plan first: how weights are stored; none: as they are" },
    { "double-quant", '\0', CLI_FLAG, offsetof(load_arguments, is_double), NULL, NULL, NULL,
      "plan first: nf4 and fp4 with their absmax as 8-bit codes" },
    { "dtype", '\0', CLI_CHOICE, offsetof(load_arguments, dtype), ENCODING_DTYPES, NULL,
      "model", "plan first: load as this dtype, decoded from 8-bit floats, packed FP4 and MXFP4; "
      "weights of bitsandbytes and of methods that are not decoded stay as they are" },
    { "devices", 'd', CLI_ENTRIES, offsetof(load_arguments, devices), "WORDS", NULL, NULL,
      "what plays the plan's GPUs, one each: sim:24GiB,h2d=25GB/s;sim:24GiB; see "
      "berth-devices(5)" },
    { "check", '\0', CLI_FLAG, offsetof(load_arguments, is_checked), NULL, NULL, NULL,
      "compare the digest of every tensor on its tier with one made anew from the files" },
    { "verify", '\0', CLI_FLAG, offsetof(load_arguments, has_to_verify), NULL, NULL, NULL,
      "there has to be a manifest, and all that is stored in it; without this, what a "
      "manifest has is verified" },
    { "no-verify", '\0', CLI_FLAG, offsetof(load_arguments, is_unverified), NULL, NULL,
      NULL, "leave a manifest alone" },
    { "manifest", '\0', CLI_INPUT, offsetof(load_arguments, manifest), "FILE", NULL, NULL,
      "verify with this one; without it, berth.manifest.json beside the model, or of a single "
      "file MODEL.berth.manifest.json where that is there" },
    { "jobs", 'j', CLI_NUMBER, offsetof(load_arguments, jobs), "N", NULL, NULL,
      "threads that read; without it, what the machine suggests" },
    { "workers", '\0', CLI_NUMBER, offsetof(load_arguments, workers), "N", NULL, NULL,
      "threads that copy and encode; without it, one a core, with GPUs 4 at least" },
    IO_OPTION(load_arguments, io),
    { "ring", '\0', CLI_SIZE, offsetof(load_arguments, ring_bytes), "SIZE", NULL, NULL,
      "memory for bytes in flight, 16MiB at least; without it, the plan's staging, or 64MiB, "
      "and a twentieth of what this process may have, at most" },
    { "stages", '\0', CLI_NUMBER, offsetof(load_arguments, stages), "N", NULL, NULL,
      "buffers of it that are filled at once; without it, 4 to 8, and more as long as that "
      "makes reads faster" },
    { "offload-dir", '\0', CLI_TEXT, offsetof(load_arguments, offload_dir), "DIR", NULL,
      NULL, "write what stays on the disk in another encoding than the files have it in "
            "below DIR, without a name, and stream it from there; without it, refused" },
    { "memory", '\0', CLI_FLAG, offsetof(load_arguments, wants_memory), NULL, NULL, NULL,
      "tell what each memory is used for: now, at most, in all" },
    { "trace", '\0', CLI_TEXT, offsetof(load_arguments, trace), "FILE", NULL, NULL,
      "write what was done when, a row for each thread, link and stream; open it with "
      "chrome://tracing or ui.perfetto.dev; -: print nothing else" },
    { "events", '\0', CLI_TEXT, offsetof(load_arguments, events), "FILE", NULL, NULL,
      "the same as JSON lines; -: print nothing else" },
    { "force", 'f', CLI_FLAG, offsetof(load_arguments, may_overwrite), NULL, NULL, NULL,
      "replace the FILE of --trace and --events" },
    { "json", '\0', CLI_FLAG, offsetof(load_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object" },
    { "quiet", 'q', CLI_FLAG, offsetof(load_arguments, is_quiet), NULL, NULL, NULL,
      "print errors only" },
    PROGRESS_OPTIONS(load_arguments, progress),
    MODEL_OPTIONS(load_arguments),
};

static const cli_example load_examples[] = {
    { "berth load ./model -m cpu=64GiB --type nf4 --double-quant --check",
      "quantized on the way into host memory; every byte compared" },
    { "berth plan ./model -m 0=20GiB,cpu=64GiB -o plan.json", "a plan ..." },
    { "berth load ./model --plan plan.json --devices 'sim:24GiB,h2d=25GB/s' --check",
      "... rehearsed on a GPU that is not there" },
    { "berth load ./model -m 0=8GiB,cpu=4GiB,disk=inf -t nf4 --offload-dir /nvme/layers",
      "quantized layers on the disk, of a checkpoint that is not" },
    { "berth load ./model --plan plan.json --trace load.json",
      "where the time went, for ui.perfetto.dev" },
};

static const char *const load_description[] = {
    "Puts every tensor of MODEL into its berth: one allocation for each memory, of "
    "exactly the plan's bytes, one pass over the files, what the plan wants encoded "
    "encoded on the way. Then says how long which stage took, how much of each memory was "
    "used at most, and what held it up: reads of the files, copies to which tier, or "
    "encoding by this machine. What a device encodes is among its copies. Then everything is "
    "given back.",
    "Where a manifest lies beside the model, each tensor is held against its crc32 in the "
    "same pass, and each file's header before it: see berth-manifest(5). Exit code 5 names the "
    "first that is another, and, of a manifest that --manifest names, what only one of the two "
    "has. What stays on the disk is not read, and not verified, and a manifest says nothing of "
    "the slices that a rank of tensor parallelism reads: they are counted, and --verify refuses "
    "them.",
    "With --check the checkpoint is read once more, and the digest of every tensor is "
    "compared with that of what lies on its tier; exit code 5 names the first that is "
    "another.",
    "What does not fit is refused with what each tier of the plan takes, the changes that "
    "would help, the shortest list of them first, and the account of all memory that berth "
    "held: more memory, a plan for what there is, weights in nf4 if they are not quantized "
    "yet, a tier on the disk. Plans that are named have been tried. --memory prints that "
    "account of a load that went well.",
    "With --json a load that fails prints an object, too: `status`, `exit_code`, `error` as "
    "in berth-json(5), `memory`; where it did not fit, `tiers` with what they "
    "take and what there is, and `changes`, each of which is `more` memory of tiers, or the "
    "options of a `plan`. The line for people is on standard error.",
    "With --trace a file is written that shows where the time went, thread by thread and "
    "link by link; where devices are simulated and their clock is, too, they have rows of "
    "their own that begin at 0.",
    "What a plan leaves on the disk is streamed from the model's own files where they have "
    "it as the plan wants it. What they have in another encoding or dtype is refused, "
    "unless --offload-dir names a folder: then it is encoded once, while the model loads, "
    "and written to one file there that has no name, that nobody else can open, and that is "
    "gone with the process, however it ends. Room for all of it is taken before anything is "
    "read. A folder that is not there is made, with mode 0700, and removed.",
    "Devices that are simulated hold real bytes and have the capacity they say; their "
    "rates are no measurement, and the report says so.",
    NULL,
};

/* What a run owns. */
typedef struct loading {
    session *s;
    const load_arguments *a;
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    berth_devices *devices;
    berth_model *model;
    berth_plan_options planned; /* what `plan` is made of, without --plan */
    char budgets[LOAD_BUDGETS_CAPACITY]; /* its max_memory, without --max-memory */
    load_facts facts;
} loading;

/* ------------------------------------------------------------------------- checks */

/* The trace, or its events, take standard output. */
static bool
is_traced_there(const load_arguments *a)
{
    return input_is_standard(a->trace) || input_is_standard(a->events);
}

static berth_status
check_trace(const cli_call *call)
{
    const load_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if (save_is_same(a->trace, a->events))
        return cli_usage_error(call->command, "--trace and --events name the same file");
    status = input_spare(call, "trace", a->trace);
    if (status == BERTH_OK)
        status = input_spare(call, "events", a->events);
    if (status == BERTH_OK && a->trace == NULL && a->events == NULL)
        status = cli_refuse(call, "force", "without --trace or --events");
    if (status == BERTH_OK && is_traced_there(a))
        status = cli_refuse(call, "json", "with --trace=- or --events=-");
    if (status == BERTH_OK && is_traced_there(a))
        status = cli_refuse(call, "memory", "with --trace=- or --events=-");
    return status;
}

static berth_status
check_arguments(const cli_call *call)
{
    static const char *const of_planning[] = { "max-memory", "type", "double-quant",
                                               "dtype" };
    const load_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof of_planning / sizeof of_planning[0]; i++)
        if (status == BERTH_OK && a->plan != NULL)
            status = cli_refuse(call, of_planning[i], "with --plan");
    if (status == BERTH_OK && a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    if (status == BERTH_OK && a->is_quiet)
        status = cli_refuse(call, "memory", "with --quiet");
    if (status == BERTH_OK)
        status = verify_choice_check(call, a->is_unverified);
    if (status == BERTH_OK && a->type != TYPE_NF4 && a->type != TYPE_FP4)
        status = cli_refuse(call, "double-quant", "without --type nf4 or fp4");
    if (status == BERTH_OK)
        status = check_trace(call);
    return status == BERTH_OK ? progress_check(call, &a->progress) : status;
}

/* -------------------------------------------------------------------------- steps */

static berth_status
make_plan(loading *l)
{
    /* In the order of TYPES. */
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_FP4, BERTH_ENCODING_INT8 };
    const load_arguments *const a = l->a;
    berth_plan_options *const options = &l->planned;
    berth_error error;
    berth_status status;

    if (a->plan != NULL) {
        status = berth_plan_open(l->s->context, a->plan, &l->plan, &error);
        return session_tell(l->s, status, &error);
    }
    berth_plan_options_init(options);
    options->type = types[a->type];
    options->double_quant = a->is_double;
    options->dtype = encoding_dtype(a->dtype);
    options->max_memory = a->max_memory;
    if (a->max_memory == NULL && l->devices != NULL)
        options->max_memory = load_budgets(l->s->context, l->devices, l->budgets);
    options->devices = l->devices;
    options->context = 0;
    options->finding = session_plan_finding;
    options->finding_user = l->s;
    status = berth_plan_create(l->s->context, l->checkpoint, options, &l->plan, &error);
    return session_tell(l->s, status, &error);
}

static berth_status
open_devices(loading *l)
{
    berth_error error;

    if (l->a->devices == NULL)
        return BERTH_OK;
    return session_tell(
        l->s, berth_devices_open(l->s->context, l->a->devices, &l->devices, &error), &error);
}

static berth_status
load(loading *l)
{
    const load_arguments *const a = l->a;
    berth_load_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    berth_load_options_init(&options);
    options.devices = l->devices;
    options.io = a->io;
    options.readers = a->jobs;
    options.workers = a->workers;
    options.ring_bytes = a->ring_bytes;
    options.stages = a->stages;
    options.verify = verify_choice(a->has_to_verify, a->is_unverified);
    options.manifest = a->manifest;
    options.offload_dir = a->offload_dir;
    options.progress = session_progress;
    options.progress_user = l->s;
    options.report = &l->facts.load;
    interrupt_job_begin();
    status = berth_load_start(l->s->context, l->checkpoint, l->plan, &options, &job, &error);
    if (status == BERTH_OK)
        status = session_see_loaded(l->s, job, &l->model, &error);
    interrupt_job_end();
    return session_tell(l->s, status, &error);
}

static berth_status
check_model(loading *l)
{
    berth_check_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    if (!l->a->is_checked)
        return BERTH_OK;
    berth_check_options_init(&options);
    options.progress = session_progress;
    options.progress_user = l->s;
    options.finding = session_finding;
    options.finding_user = l->s;
    options.report = &l->facts.check;
    interrupt_job_begin();
    status = berth_check_start(l->model, &options, &job, &error);
    if (status == BERTH_OK)
        status = session_see_through(l->s, job, &error);
    interrupt_job_end();
    l->facts.is_checked = true;
    return session_tell(l->s, status, &error);
}

static berth_status
make_model(loading *l)
{
    berth_status status = session_open_model(l->s, &l->a->model, &l->checkpoint);

    if (status == BERTH_OK)
        status = open_devices(l); /* budgets may be shares of them */
    if (status == BERTH_OK)
        status = make_plan(l);
    trace_name(&l->s->trace, l->checkpoint, l->plan);
    if (status == BERTH_OK)
        status = load(l);
    return status;
}

/* --------------------------------------------------------------------- the outcome */

static load_failure
failure_of(const loading *l)
{
    return (load_failure){
        .context = l->s->context,
        .checkpoint = l->checkpoint,
        .plan = l->plan,
        .asked = l->a->plan == NULL ? &l->planned : NULL,
        .devices = l->devices,
        .ring_bytes = l->facts.load.ring_bytes,
        .error = cli_told(),
    };
}

/* The line is told. */
static void
tell_failure(const loading *l, berth_status status)
{
    const load_failure failure = failure_of(l);
    const bool is_refused = load_is_refused(status);
    load_advice advice;

    if (is_refused) {
        load_advise(&failure, &advice);
        load_refuse(&failure, &advice);
    }
    if (l->a->wants_json)
        load_refuse_json(&l->s->out, status, &failure, is_refused ? &advice : NULL);
}

static berth_status
go(loading *l)
{
    berth_status status = make_model(l);
    load_failure failure;

    if (status != BERTH_OK) {
        tell_failure(l, status);
        return status;
    }
    l->facts.context = l->s->context;
    l->facts.plan = l->plan;
    l->facts.devices = l->devices;
    status = check_model(l);
    failure = failure_of(l);
    berth_context_memory(l->s->context, &l->facts.memory);
    l->facts.wants_memory = l->a->wants_memory;
    if (l->a->wants_json)
        load_print_json(&l->s->out, &l->facts, status != BERTH_OK ? &failure : NULL);
    else if (!l->a->is_quiet && !is_traced_there(l->a))
        load_print(l->s, &l->facts);
    return status;
}

static berth_status
run_load(session *s)
{
    loading l = { .s = s, .a = s->call->arguments };
    berth_status status = check_arguments(s->call);

    if (status != BERTH_OK)
        return status;
    status = trace_begin(&s->trace, s->call->command, l.a->trace, l.a->events,
                         l.a->may_overwrite);
    if (status == BERTH_OK)
        status = session_start_job(s, &l.a->progress, l.a->is_quiet);
    if (status == BERTH_OK)
        status = go(&l);
    berth_model_destroy(l.model);
    berth_devices_close(l.devices);
    trace_name(&s->trace, NULL, NULL);
    status = trace_end(&s->trace, status);
    berth_plan_destroy(l.plan);
    berth_checkpoint_close(l.checkpoint);
    return status;
}

const cli_command load_command = {
    .name = "load",
    .help = "put every tensor into its berth, timed and checked",
    .description = load_description,
    .operand = "MODEL",
    CLI_OPTIONS(load_options, load_arguments),
    .examples = load_examples,
    .example_count = sizeof load_examples / sizeof load_examples[0],
    .settle = model_settle,
    .run = run_load,
};
