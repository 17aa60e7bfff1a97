/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - `berth verify`: is the checkpoint whole, and unharmed? */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/report.h"
#include "tools/save.h"
#include "tools/session.h"

typedef struct verify_arguments {
    cli_common common;
    model_arguments model;
    bool wants_digest;
    bool is_strict;
    bool wants_json;
    bool is_quiet;
    bool may_overwrite;
    const char *manifest;
    const char *source_of;
    const char *write_manifest;
    uint32_t jobs;
    int32_t io;
    progress_arguments progress;
    uint64_t ring_bytes;
} verify_arguments;

static const cli_option verify_options[] = {
    { "digest", '\0', CLI_FLAG, offsetof(verify_arguments, wants_digest), NULL, NULL, NULL,
      "read every byte; compare with the model's manifest, if it has one, and hub blobs "
      "with their SHA-256" },
    { "manifest", '\0', CLI_INPUT, offsetof(verify_arguments, manifest), "FILE", NULL, NULL,
      "as --digest, with this manifest" },
    { "source-of", '\0', CLI_INPUT, offsetof(verify_arguments, source_of), "FILE", NULL,
      NULL,
      "as --digest, with what the manifest of a checkpoint made from MODEL says of it" },
    { "write-manifest", '\0', CLI_OPTIONAL, offsetof(verify_arguments, write_manifest),
      "FILE", NULL, NULL,
      "read every byte and write a manifest, by default " MANIFEST_NAME
      " beside the model, of a single file MODEL." MANIFEST_NAME },
    { "force", 'f', CLI_FLAG, offsetof(verify_arguments, may_overwrite), NULL, NULL, NULL,
      "replace a manifest that exists" },
    { "strict", '\0', CLI_FLAG, offsetof(verify_arguments, is_strict), NULL, NULL, NULL,
      "what berth itself would not write is an error" },
    { "jobs", 'j', CLI_NUMBER, offsetof(verify_arguments, jobs), "N", NULL, NULL,
      "threads that read; without it, what the machine suggests" },
    IO_OPTION(verify_arguments, io),
    { "ring", '\0', CLI_SIZE, offsetof(verify_arguments, ring_bytes), "SIZE", NULL,
      "32MiB", "memory for bytes in flight" },
    { "json", '\0', CLI_FLAG, offsetof(verify_arguments, wants_json), NULL, NULL, NULL,
      "one JSON object: findings, then the verdict" },
    { "quiet", 'q', CLI_FLAG, offsetof(verify_arguments, is_quiet), NULL, NULL, NULL,
      "print errors only" },
    PROGRESS_OPTIONS(verify_arguments, progress),
    MODEL_OPTIONS(verify_arguments),
};

static const cli_example verify_examples[] = {
    { "berth verify ./model", "structure only: every file, header and extent, in seconds" },
    { "berth verify ./model --write-manifest",
      "read every byte and note a digest of each tensor" },
    { "berth verify ./model --digest", "later: are these still the same bytes?" },
    { "berth verify ./model --source-of out/" MANIFEST_NAME,
      "are these the bytes that out was quantized from?" },
    { "berth verify org/name --digest", "a hub model against the SHA-256 of its blobs" },
    { "berth verify ./model --json | jq -r '.findings[].reason'", "for programs" },
};

static const char *const verify_description[] = {
    "Checks that a checkpoint is whole: every file of the index exists, headers are well "
    "formed, each byte of each file belongs to exactly one tensor, no path leaves the "
    "directory, and quantized tensors have their statistics. Every problem is a line: "
    "file, tensor, reason, numbers, next step.",
    "With --digest it also reads every byte, at the speed of the disk and without pushing "
    "other files out of memory, and compares a crc32 of each tensor with the manifest. Of files "
    "that were written beside the weights those that have changed since are warnings.",
    "The exit code says what to do next; notes and warnings do not change it.",
    NULL,
};

/* ----------------------------------------------------------------- arguments */

static bool
is_reading(const verify_arguments *a)
{
    return a->wants_digest || a->manifest != NULL || a->source_of != NULL
           || a->write_manifest != NULL;
}

static berth_status
check_arguments(const cli_call *call)
{
    static const char *const of_reading[] = { "jobs", "io", "ring", "progress",
                                              "progress-fd" };
    const verify_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if ((a->manifest != NULL) + (a->source_of != NULL) + (a->write_manifest != NULL) > 1)
        return cli_usage_error(
            call->command,
            "--manifest, --source-of and --write-manifest exclude each other");
    for (size_t i = 0; i < sizeof of_reading / sizeof of_reading[0] && !is_reading(a); i++)
        if (status == BERTH_OK)
            status = cli_refuse(call, of_reading[i],
                                "without --digest, --manifest, --source-of or "
                                "--write-manifest");
    if (status == BERTH_OK && input_is_standard(a->write_manifest))
        status = cli_usage_error(call->command, "--write-manifest: a manifest is written as "
                                                "a file, not to standard output; name one, "
                                                "or ./- where it is to be called so");
    if (status == BERTH_OK && a->write_manifest == NULL)
        status = cli_refuse(call, "force", "without --write-manifest");
    if (status == BERTH_OK && a->wants_json)
        status = cli_refuse(call, "quiet", "with --json");
    return status == BERTH_OK ? progress_check(call, &a->progress) : status;
}

/* ------------------------------------------------------------------ manifest */

/* Where the model's own manifest is; "" if the path is too long. */
static void
own_manifest(const berth_checkpoint_summary *m, char path[MODEL_PATH_CAPACITY])
{
    struct stat status;
    const bool is_folder = stat(m->path, &status) == 0 && S_ISDIR(status.st_mode);
    const int n = snprintf(path, MODEL_PATH_CAPACITY, "%s%s" MANIFEST_NAME, m->path,
                           is_folder ? "/" : ".");

    if (n < 0 || n >= MODEL_PATH_CAPACITY)
        path[0] = '\0';
}

/* One that is there and cannot be opened says so when it is. */
static bool
is_there(const char *path)
{
    return path[0] != '\0' && (access(path, F_OK) == 0 || errno == ELOOP || errno == EACCES);
}

/* Which manifest, and what to do with it. `path` is where its name may be kept. */
static berth_status
choose_manifest(const session *s, const berth_checkpoint *checkpoint,
                berth_verify_options *options, char path[MODEL_PATH_CAPACITY])
{
    const verify_arguments *const a = s->call->arguments;
    const bool is_writing = a->write_manifest != NULL;
    const char *const given = is_writing               ? a->write_manifest
                              : a->source_of != NULL ? a->source_of
                                                     : a->manifest;
    berth_checkpoint_summary m;

    options->overwrite = a->may_overwrite;
    options->manifest_mode = is_writing               ? BERTH_MANIFEST_WRITE
                             : a->source_of != NULL ? BERTH_MANIFEST_SOURCE
                                                    : BERTH_MANIFEST_CHECK;
    if (is_writing
        && (save_refuse_weights(s->call->command, given) != BERTH_OK
            || input_spare(s->call, "write-manifest", given) != BERTH_OK))
        return BERTH_EINVAL;
    if (given != NULL && given[0] != '\0') {
        options->manifest = given;
        return BERTH_OK;
    }
    berth_checkpoint_get(checkpoint, &m);
    if (is_writing && m.revision[0] != '\0')
        return cli_usage_error(s->call->command, "the hub cache is never written: say where, "
                                                 "--write-manifest=FILE");
    own_manifest(&m, path);
    if (!is_writing && !is_there(path))
        options->manifest_mode = BERTH_MANIFEST_NONE;
    else
        options->manifest = path;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- job */

static berth_status
read_everything(session *s, berth_checkpoint *checkpoint, report *r, report_facts *facts,
                berth_verify_options *options)
{
    const verify_arguments *const a = s->call->arguments;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    options->io = a->io;
    options->threads = a->jobs;
    options->ring_bytes = a->ring_bytes;
    options->progress = session_progress;
    options->progress_user = s;
    options->finding = report_finding;
    options->finding_user = r;
    interrupt_job_begin();
    status = berth_verify_start(s->context, checkpoint, options, &job, &error);
    if (status == BERTH_OK)
        status = session_see_through(s, job, &error);
    interrupt_job_end();
    facts->digest = options->report;
    facts->manifest_mode = options->manifest_mode;
    facts->manifest = options->manifest;
    if (status != BERTH_OK && status != BERTH_ECANCELLED)
        report_error(r, &error);
    return status;
}

/* ------------------------------------------------------------------- command */

static berth_status
open_model(session *s, report *r, berth_checkpoint **out_checkpoint)
{
    const verify_arguments *const a = s->call->arguments;
    berth_open_options options;
    berth_error error;
    berth_status status;

    berth_open_options_init(&options);
    model_options_fill(&options, &a->model);
    options.finding = report_finding;
    options.finding_user = r;
    options.keep_going = 1;
    options.strict = a->is_strict;
    status = berth_checkpoint_open(s->context, a->common.operands[0], &options,
                                   out_checkpoint, &error);
    if (status != BERTH_OK)
        report_error(r, &error);
    return status;
}

static berth_status
verify_run(session *s)
{
    const verify_arguments *const a = s->call->arguments;
    berth_checkpoint *checkpoint = NULL;
    berth_verify_report digest = { 0 };
    berth_verify_options options;
    report_facts facts = { 0 };
    char path[MODEL_PATH_CAPACITY];
    report r;
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = session_start_job(s, &a->progress, a->is_quiet);
    if (status != BERTH_OK)
        return status;
    berth_verify_options_init(&options);
    options.report = &digest;
    report_begin(&r, s, a->common.operands[0], a->wants_json, a->is_quiet);
    status = open_model(s, &r, &checkpoint);
    facts.checkpoint = checkpoint;
    if (status == BERTH_OK && is_reading(a)) {
        status = choose_manifest(s, checkpoint, &options, path);
        if (status == BERTH_OK)
            status = read_everything(s, checkpoint, &r, &facts, &options);
    }
    report_end(&r, status, &facts);
    berth_checkpoint_close(checkpoint);
    return status;
}

const cli_command verify_command = {
    .name = "verify",
    .help = "is a checkpoint whole, and are its bytes the right ones?",
    .description = verify_description,
    .operand = "MODEL",
    CLI_OPTIONS(verify_options, verify_arguments),
    .examples = verify_examples,
    .example_count = sizeof verify_examples / sizeof verify_examples[0],
    .settle = model_settle,
    .run = verify_run,
};
