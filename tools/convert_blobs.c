/* SPDX-License-Identifier: Apache-2.0 */
/* convert_blobs.c - hub blobs that a conversion compares first; see convert_blobs.h. */
#include "tools/convert_blobs.h"

#include <inttypes.h>
#include <string.h>

#include "tools/interrupt.h"

/* Who asks for it wants all of it: a file that promises nothing is not what was asked for. */
static berth_status
check_names(const conversion *c)
{
    const cli_command *const command = c->s->call->command;
    berth_checkpoint_summary m;
    berth_shard first = { .file = "" };
    char shown[BERTH_FILE_CAPACITY];
    uint32_t nameless = 0;

    berth_checkpoint_get(c->checkpoint, &m);
    for (uint32_t i = 0; i < m.shard_count; i++) {
        berth_shard shard;

        (void)berth_checkpoint_shard(c->checkpoint, i, &shard);
        if (shard.blob_sha256[0] != '\0')
            continue;
        if (nameless++ == 0)
            first = shard;
    }
    if (nameless == 0)
        return BERTH_OK;
    if (nameless == m.shard_count)
        return cli_failure(command, BERTH_ENOENT,
                           "--verify-blobs: no file of IN is a blob of the hub's cache that is "
                           "called by its SHA-256");
    berth_text_escape(first.file, strlen(first.file), shown, sizeof shown);
    if (nameless == 1)
        return cli_failure(command, BERTH_ENOENT,
                           "--verify-blobs: \"%s\" is no blob of the hub's cache that is called by "
                           "its SHA-256; `berth verify --digest` compares the others",
                           shown);
    return cli_failure(command, BERTH_ENOENT,
                       "--verify-blobs: %" PRIu32 " of %" PRIu32 " files, \"%s\" the first, are no "
                       "blobs of the hub's cache that are called by their SHA-256; `berth verify "
                       "--digest` compares the others",
                       nameless, m.shard_count, shown);
}

static berth_status
fail_uncomputed(const conversion *c)
{
    return cli_failure(c->s->call->command, BERTH_EUNSUPPORTED,
                       "--verify-blobs: libcrypto is not there, which computes SHA-256");
}

berth_status
convert_blobs_check(const conversion *c)
{
    berth_host host;
    berth_error error;
    const berth_status status = check_names(c);

    if (status != BERTH_OK)
        return status;
    if (berth_host_get(c->s->context, &host, &error) != BERTH_OK)
        return cli_error(c->s->call, &error);
    return host.has_libcrypto != 0 ? BERTH_OK : fail_uncomputed(c);
}

/* The first one is the job's error, too, and is told by then. */
static void
tell_error(conversion *c, const berth_error *error)
{
    if (c->a->wants_json)
        report_error(&c->report, error);
    else if (!c->s->has_error || error->reason != BERTH_REASON_BLOB_DIGEST)
        cli_error(c->s->call, error);
}

/* A SHA-256 takes files as a whole and in their order, which no conversion reads them in. */
berth_status
convert_blobs_verify(conversion *c)
{
    berth_verify_options options;
    berth_job *job = NULL;
    berth_error error;
    berth_status status;

    berth_verify_options_init(&options);
    options.io = c->a->io;
    options.progress = session_progress;
    options.progress_user = c->s;
    options.finding = c->a->wants_json ? report_finding : session_finding;
    options.finding_user = c->a->wants_json ? (void *)&c->report : (void *)c->s;
    options.report = &c->blobs;
    interrupt_job_begin();
    status = berth_verify_start(c->s->context, c->checkpoint, &options, &job, &error);
    if (status == BERTH_OK)
        status = session_see_through(c->s, job, &error);
    interrupt_job_end();
    if (status != BERTH_OK)
        tell_error(c, &error);
    else if (c->blobs.blobs_unchecked > 0) /* it was there before */
        status = fail_uncomputed(c);
    return status;
}
