/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c - `berth bench`: what the links of this machine give, and what a plan gets. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/bench_print.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/load_refuse.h"
#include "tools/save.h"

typedef struct bench_arguments {
    cli_common common;
    model_arguments model;
    const char *devices;
    const char *plan;
    const char *disk;
    const char *links;
    bool may_overwrite;
    uint32_t seconds;
    const char *offload_dir;
    const char *optimizer;
    uint64_t memory_bytes;
    uint64_t file_bytes;
    int32_t io;
    uint32_t jobs;
    bool wants_json;
    bool is_quiet;
} bench_arguments;

static const cli_option bench_options[] = {
    { "devices", 'd', CLI_ENTRIES, offsetof(bench_arguments, devices), "WORDS", NULL, NULL,
      "measure copies of these, too; they play the plan's GPUs; without this, it is those "
      "that the plan names; see berth-devices(5)" },
    { "plan", 'p', CLI_INPUT, offsetof(bench_arguments, plan), "FILE", NULL, NULL,
      "load MODEL as this plan says, and run through its layers; berth-plan(5)" },
    { "offload-dir", '\0', CLI_TEXT, offsetof(bench_arguments, offload_dir), "DIR", NULL,
      NULL, "with --plan: as in berth-load(1)" },
    { "disk", '\0', CLI_TEXT, offsetof(bench_arguments, disk), "DIR", NULL, NULL,
      "without MODEL: read a file that is made here, without a name, and gone after it" },
    { "write-links", 'o', CLI_TEXT, offsetof(bench_arguments, links), "FILE", NULL, NULL,
      "write what was measured for `berth plan --link-file`; berth-links(5); -: print "
      "nothing else" },
    { "force", 'f', CLI_FLAG, offsetof(bench_arguments, may_overwrite), NULL, NULL, NULL,
      "replace FILE if it is there" },
    { "optimizer", '\0', CLI_TEXT, offsetof(bench_arguments, optimizer), "NAME", NULL, NULL,
      "measure updates, too: adam, adamw, ademamix, lion, momentum, rmsprop or adagrad, "
      "with states of 8 bits" },
    { "seconds", '\0', CLI_NUMBER, offsetof(bench_arguments, seconds), "N", NULL, "4",
      "for all measurements together; what is slow takes longer" },
    { "memory", '\0', CLI_SIZE, offsetof(bench_arguments, memory_bytes), "SIZE", NULL,
      "256MiB", "host memory to copy in, beside 64 MiB to read into" },
    { "file", '\0', CLI_SIZE, offsetof(bench_arguments, file_bytes), "SIZE", NULL, "256MiB",
      "the file that --disk makes" },
    IO_OPTION(bench_arguments, io),
    { "jobs", 'j', CLI_NUMBER, offsetof(bench_arguments, jobs), "N", NULL, NULL,
      "threads that read; without it, what the machine suggests" },
    { "json", '\0', CLI_FLAG, offsetof(bench_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object" },
    { "quiet", 'q', CLI_FLAG, offsetof(bench_arguments, is_quiet), NULL, NULL, NULL,
      "print errors only" },
    MODEL_OPTIONS(bench_arguments),
};

static const cli_example bench_examples[] = {
    { "berth bench --disk /data -o links.json", "disk and memory of this machine ..." },
    { "berth plan ./model -m 0=20GiB,cpu=64GiB --link-file links.json -o plan.json",
      "... and a plan that predicts with them" },
    { "berth bench ./model --plan plan.json --devices 'sim:24GiB,h2d=25GB/s'",
      "what the plan predicts, and what is achieved" },
};

static const char *const bench_description[] = {
    "Measures what loads and passes are bound by: reads of MODEL's files, cold and from "
    "the page cache, with the requests and the ring of a load; copies within host memory "
    "with one thread to all; quantizing; copies to, from and within each device, with "
    "memory that is pinned and memory that is not. Everything is measured twice, before "
    "and after, and how far the two are apart is shown.",
    "With --plan MODEL is loaded in between and its layers are acquired and released, pass "
    "after pass: seconds by the clock of the devices, beside those that the plan "
    "predicts. Simulated devices compute for as long as the plan takes computing to be; "
    "others do not compute.",
    "A load that does not fit is refused as berth-load(1) does it, and with --json what fails "
    "prints the same object.",
    "Nothing is written beside MODEL. What is read is dropped from the page cache before. "
    "What simulated devices give is no measurement, and marked everywhere.",
    NULL,
};

/* What a run owns. */
typedef struct benching {
    session *s;
    const bench_arguments *a;
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    berth_devices *devices;
    berth_bench *before;
    berth_bench *after;
    bench_facts facts;
    bool is_load; /* that failed, and not what comes behind it */
} benching;

/* ------------------------------------------------------------------------- checks */

#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)
#define SECONDS_MOST 3600

static berth_status
check_size(const cli_call *call, const char *option, uint64_t bytes)
{
    char size[BERTH_SIZE_CAPACITY];

    if (bytes >= MIB && bytes <= TIB)
        return BERTH_OK;
    return cli_usage_error(call->command, "--%s: %s is not from 1 MiB to 1 TiB", option,
                           berth_size_format(bytes, size));
}

static berth_status
check_optimizer(const cli_call *call, const char *name)
{
    const char *known;
    char names[256] = "";
    char shown[128];
    size_t n = 0;

    for (int32_t kind = 0; (known = berth_update_name(kind)) != NULL; kind++) {
        if (strcmp(known, name) == 0)
            return BERTH_OK;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? "|" : "", known);
    }
    berth_text_escape(name, strlen(name), shown, sizeof shown);
    return cli_usage_error(call->command, "--optimizer: `%s` is not one of %s", shown, names);
}

/* As the library has them, which does not know what options are called. */
static berth_status
check_values(const cli_call *call)
{
    const bench_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if (a->optimizer != NULL)
        status = check_optimizer(call, a->optimizer);
    if (status == BERTH_OK)
        status = check_size(call, "memory", a->memory_bytes);
    if (status == BERTH_OK)
        status = check_size(call, "file", a->file_bytes);
    if (status == BERTH_OK && a->seconds > SECONDS_MOST)
        status = cli_usage_error(call->command, "--seconds: %u is not from 1 to %d",
                                 a->seconds, SECONDS_MOST);
    return status;
}

static berth_status
check_arguments(const cli_call *call)
{
    const bench_arguments *const a = call->arguments;
    const bool has_model = a->common.operand_count > 0;
    berth_status status = BERTH_OK;

    if (!has_model)
        status = cli_refuse(call, "plan", "without MODEL");
    else
        status = cli_refuse(call, "disk", "with MODEL");
    if (status == BERTH_OK && a->plan == NULL)
        status = cli_refuse(call, "offload-dir", "without --plan");
    if (status == BERTH_OK && a->disk == NULL)
        status = cli_refuse(call, "file", "without --disk");
    if (status == BERTH_OK && a->disk == NULL && !has_model)
        status = cli_refuse(call, "io", "without MODEL or --disk");
    if (status == BERTH_OK && a->disk == NULL && !has_model)
        status = cli_refuse(call, "jobs", "without MODEL or --disk");
    if (status == BERTH_OK && a->links == NULL)
        status = cli_refuse(call, "force", "without --write-links");
    if (status == BERTH_OK && a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    if (status == BERTH_OK && input_is_standard(a->links))
        status = cli_refuse(call, "json", "with --write-links=-");
    if (status == BERTH_OK)
        status = input_spare(call, "write-links", a->links);
    return status == BERTH_OK ? check_values(call) : status;
}

/* A file that cannot be made is said before anything is measured. */
static berth_status
check_links(const benching *b)
{
    struct stat found;
    berth_status status;
    save v;

    if (b->a->links == NULL
        || (stat(b->a->links, &found) == 0 && !S_ISREG(found.st_mode)))
        return BERTH_OK;
    status = save_begin(&v, b->s->call->command, b->a->links, b->a->may_overwrite);
    if (status == BERTH_OK)
        (void)save_end(&v, BERTH_ECANCELLED);
    return status;
}

/* -------------------------------------------------------------------------- steps */

#define WORDS_CAPACITY 2048 /* of 64 GPUs, the most that a plan has */

/* What -d would say of the plan's own GPUs: "cuda:0;cuda:2"; "": it has none. */
static void
name_gpus(const berth_plan *plan, char words[WORDS_CAPACITY])
{
    berth_plan_tier tier;
    size_t used = 0;

    words[0] = '\0';
    for (uint32_t i = 0; berth_plan_get_tier(plan, i, &tier) == BERTH_OK; i++)
        if (tier.kind == BERTH_TIER_GPU && used < WORDS_CAPACITY)
            used += (size_t)snprintf(words + used, WORDS_CAPACITY - used, "%s%s",
                                     used > 0 ? ";" : "", tier.name);
}

/* Those that are named, or those of the plan: copies to a device that only the load knew could
 * not be waited for. */
static berth_status
open_devices(benching *b, berth_error *error)
{
    char words[WORDS_CAPACITY] = "";

    if (b->a->devices == NULL && b->plan != NULL)
        name_gpus(b->plan, words);
    if (b->a->devices == NULL && words[0] == '\0')
        return BERTH_OK;
    return berth_devices_open(b->s->context, b->a->devices != NULL ? b->a->devices : words,
                              &b->devices, error);
}

static berth_status
open_all(benching *b)
{
    const bench_arguments *const a = b->a;
    berth_error error;
    berth_status status = BERTH_OK;

    if (a->common.operand_count > 0)
        status = session_open_model(b->s, &a->model, &b->checkpoint);
    if (status != BERTH_OK)
        return status;
    if (a->plan != NULL)
        status = berth_plan_open(b->s->context, a->plan, &b->plan, &error);
    if (status == BERTH_OK && b->plan != NULL) /* before anything is measured */
        status = berth_plan_check(b->plan, b->s->context, b->checkpoint, "",
                                  session_finding, b->s, &error);
    if (status == BERTH_OK)
        status = open_devices(b, &error);
    return session_tell(b->s, status, &error);
}

/* Half of the time. */
static berth_status
measure(benching *b, const berth_bench *earlier, berth_bench **out)
{
    const bench_arguments *const a = b->a;
    berth_bench_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    berth_bench_options_init(&options);
    options.checkpoint = b->checkpoint;
    options.folder = a->disk;
    options.devices = b->devices;
    options.seconds = a->seconds / 2.0;
    options.memory_bytes = a->memory_bytes;
    options.file_bytes = a->file_bytes;
    options.io = a->io;
    options.readers = a->jobs;
    options.optimizer = a->optimizer;
    options.earlier = earlier;
    interrupt_job_begin();
    status = berth_bench_start(b->s->context, &options, &job, &error);
    if (status == BERTH_OK) {
        session_watch(b->s, job);
        status = berth_bench_finish(job, out, &error);
    }
    interrupt_job_end();
    return session_tell(b->s, status, &error);
}

static berth_status
load(benching *b, berth_model **out_model, berth_error *error)
{
    berth_load_options options;
    berth_job *job = NULL;
    berth_status status;

    berth_load_options_init(&options);
    options.devices = b->devices;
    options.io = b->a->io;
    options.readers = b->a->jobs;
    options.offload_dir = b->a->offload_dir;
    options.report = &b->facts.load;
    status = berth_load_start(b->s->context, b->checkpoint, b->plan, &options, &job, error);
    return status == BERTH_OK ? session_see_loaded(b->s, job, out_model, error) : status;
}

static berth_status
run_plan(benching *b)
{
    const pass_options options = { .seconds = b->a->seconds / 2.0,
                                   .wait_seconds = 60,
                                   .is_cancelled = interrupt_is_wanted };
    berth_model *model = NULL;
    berth_error error;
    berth_status status;

    if (b->plan == NULL)
        return BERTH_OK;
    interrupt_job_begin();
    status = load(b, &model, &error);
    b->is_load = status != BERTH_OK;
    if (status == BERTH_OK)
        status = pass_run(model, b->plan, b->devices, &options, &b->facts.pass, &error);
    berth_model_destroy(model);
    interrupt_job_end();
    return session_tell(b->s, status, &error);
}

static berth_status
save_links(const benching *b)
{
    berth_status status;
    save v;

    if (b->a->links == NULL)
        return BERTH_OK;
    status = save_begin(&v, b->s->call->command, b->a->links, b->a->may_overwrite);
    if (status != BERTH_OK)
        return status;
    output_text(&v.out, berth_bench_links(b->after));
    return save_end(&v, BERTH_OK);
}

static berth_status
measure_all(benching *b)
{
    berth_status status = open_all(b);

    if (status == BERTH_OK)
        status = measure(b, NULL, &b->before);
    if (status == BERTH_OK)
        status = run_plan(b);
    if (status == BERTH_OK)
        status = measure(b, b->before, &b->after);
    return status;
}

/* The line is told. */
static void
tell_failure(const benching *b, berth_status status)
{
    const load_failure failure = {
        .context = b->s->context,
        .checkpoint = b->checkpoint,
        .plan = b->plan,
        .devices = b->devices,
        .ring_bytes = b->facts.load.ring_bytes,
        .error = cli_told(),
    };
    const bool is_refused = b->is_load && load_is_refused(status);
    load_advice advice;

    if (is_refused) {
        load_advise(&failure, &advice);
        load_refuse(&failure, &advice);
    }
    if (b->a->wants_json)
        load_refuse_json(&b->s->out, status, &failure, is_refused ? &advice : NULL);
}

static berth_status
go(benching *b)
{
    berth_status status = check_links(b);

    if (status != BERTH_OK)
        return status;
    status = measure_all(b);
    if (status != BERTH_OK) {
        tell_failure(b, status);
        return status;
    }
    status = save_links(b);
    if (status != BERTH_OK)
        return status;
    b->facts.bench = b->after;
    b->facts.devices = b->devices;
    b->facts.plan = b->plan;
    berth_context_memory(b->s->context, &b->facts.memory);
    if (b->a->wants_json)
        bench_print_json(&b->s->out, &b->facts);
    else if (!b->a->is_quiet && !input_is_standard(b->a->links))
        bench_print(b->s, &b->facts);
    return BERTH_OK;
}

static berth_status
run_bench(session *s)
{
    benching b = { .s = s, .a = s->call->arguments };
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);
    if (status != BERTH_OK)
        return status;
    s->is_quiet = b.a->is_quiet;
    status = go(&b);
    berth_bench_destroy(b.before);
    berth_bench_destroy(b.after);
    berth_devices_close(b.devices);
    berth_plan_destroy(b.plan);
    berth_checkpoint_close(b.checkpoint);
    return status;
}

const cli_command bench_command = {
    .name = "bench",
    .help = "measure disk, copies and devices, and a plan against them",
    .description = bench_description,
    .operand = "[MODEL]",
    CLI_OPTIONS(bench_options, bench_arguments),
    .examples = bench_examples,
    .example_count = sizeof bench_examples / sizeof bench_examples[0],
    .settle = model_settle,
    .run = run_bench,
};
