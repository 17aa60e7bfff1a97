/* SPDX-License-Identifier: Apache-2.0 */
/* promises.c - a manifest, and what of a checkpoint is not as it says. */
#include "loader/promises.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loader/checkpoint.h"
#include "loader/findings.h"

/* ------------------------------------------------------------------------- object */

berth_status
berthi_promises_init(berthi_promises *p, berth_context *context,
                     const berth_checkpoint *checkpoint,
                     const berthi_promises_options *options, berth_error *error)
{
    berth_status status = BERTH_OK;

    memset(p, 0, sizeof *p);
    p->context = context;
    p->checkpoint = checkpoint;
    p->options = *options;
    berthi_arena_init(&p->texts, context, BERTHI_PURPOSE_OBJECT, 256);
    if (options->mode != BERTH_LOAD_VERIFY_NONE)
        status = berthi_crcs_find_manifest(checkpoint, options->manifest, &p->texts,
                                           &p->place, error);
    p->options.manifest = options->manifest != NULL ? p->place.path : NULL;
    if (status != BERTH_OK)
        berthi_promises_fini(p);
    return status;
}

void
berthi_promises_fini(berthi_promises *p)
{
    if (p->context == NULL)
        return;
    berthi_memory_free(p->context, BERTHI_PURPOSE_TENSORS, p->is_held,
                       p->crcs.tensor_count * sizeof *p->is_held);
    berthi_crcs_fini(&p->crcs);
    berthi_arena_fini(&p->texts);
    p->is_held = NULL;
    p->context = NULL;
}

/* ------------------------------------------------------------------------ entries */

/* `what` it means, then file, tensor, the two numbers. */
static void
warn(const berthi_promises *p, const char *what, const berth_error *details)
{
    char line[BERTH_FILE_CAPACITY + BERTH_MESSAGE_CAPACITY];

    berth_error_format(details, line, sizeof line);
    berthi_log(p->context, BERTH_LOG_WARNING, "%s: %s", what, line);
}

/* Manifest and checkpoint do not have the same files or tensors. */
static void
note_entry(void *user, const berth_finding *finding)
{
    berthi_promises *const p = user;
    const bool is_other_file = (finding->details->has & BERTH_HAS_ACTUAL) != 0;

    if (p->entries++ == 0 || (is_other_file && !p->is_other_file))
        p->first = *finding->details;
    p->is_other_file = p->is_other_file || is_other_file;
    if (p->options.mode == BERTH_LOAD_VERIFY_WARN)
        warn(p, "not verified", finding->details);
}

/* That they do not, and are taken all the same: the first entry stands for all. */
static void
tell_entries(const berthi_promises *p)
{
    const berth_open_options options = { .finding = p->options.finding,
                                         .finding_user = p->options.finding_user };
    berth_error told = p->first;
    const size_t length = strlen(told.message);
    berthi_findings findings;

    if (options.finding == NULL) {
        warn(p, "not verified, as other entries may be", &p->first);
        return;
    }
    snprintf(told.message + length, sizeof told.message - length,
             "; what only one of the two has is not verified: %" PRIu64
             " of files and tensors",
             p->entries);
    berthi_findings_init(&findings, p->context, &options);
    berthi_findings_tell(&findings, BERTH_SEVERITY_WARNING, &told);
    berthi_findings_fini(&findings);
}

/*
 * A file of another size is not what was promised; one that nobody promised may be, unless
 * the caller says that this is its manifest.
 */
static berth_status
check_entries(const berthi_promises *p, berth_error *error)
{
    const int32_t mode = p->options.mode;

    if (p->entries == 0 || mode == BERTH_LOAD_VERIFY_WARN)
        return BERTH_OK;
    if (mode == BERTH_LOAD_VERIFY_REQUIRE || p->options.manifest != NULL
        || p->is_other_file) {
        if (error != NULL)
            *error = p->first;
        return p->first.status;
    }
    tell_entries(p);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ reading */

/* *out_is_on: there is one. One that is there and cannot be opened is never taken for none. */
static berth_status
read_manifest(berthi_promises *p, bool *out_is_on, berth_error *error)
{
    const bool is_named = p->options.manifest != NULL;
    const berth_status status =
        p->options.is_of_source
            ? berthi_crcs_read_sources(&p->crcs, p->place, note_entry, p, error)
            : berthi_crcs_read(&p->crcs, p->place, note_entry, p, error);
    const bool is_absent =
        status == BERTH_ENOENT && error->reason == BERTH_REASON_NOT_FOUND;

    *out_is_on = status == BERTH_OK;
    if (!is_absent || is_named)
        return status;
    if (p->options.mode == BERTH_LOAD_VERIFY_REQUIRE)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND,
                           &(berthi_about){ .file = p->place.path },
                           "there is no manifest to verify with; `berth verify "
                           "--write-manifest` makes one");
    berthi_error_clear(error);
    return BERTH_OK;
}

static berth_status
pass_mismatch(berthi_promises *p, const berth_error *details, berth_error *error)
{
    atomic_fetch_add(&p->mismatches, 1);
    if (p->options.mode == BERTH_LOAD_VERIFY_WARN) {
        warn(p, p->options.let_pass, details);
        return BERTH_OK;
    }
    if (error != NULL)
        *error = *details;
    return details->status;
}

/* In the order of the shards, whatever the order of their bytes was. */
static berth_status
compare_headers(berthi_promises *p, const uint32_t *actual, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < p->crcs.shard_count && status == BERTH_OK; i++) {
        const berthi_about about = { .file = p->checkpoint->shards[i].file.path };
        berth_error details;

        if (p->crcs.has_header[i]
            && berthi_crcs_compare(&about, atomic_load(&p->crcs.headers[i]), actual[i],
                                   &details)
                   != BERTH_OK)
            status = pass_mismatch(p, &details, error);
    }
    return status;
}

/* A header that is another gives the same bytes other names, shapes or dtypes. */
static berth_status
check_headers(berthi_promises *p, const berthi_header_reads *reads, berth_error *error)
{
    const uint64_t bytes = p->crcs.shard_count * sizeof(uint32_t);
    uint32_t *const actual = berthi_memory_alloc(p->context, BERTHI_PURPOSE_SCRATCH, bytes);
    berth_status status;

    if (actual == NULL)
        return berthi_fail_memory(error, "verifying headers");
    status = berthi_header_digest(p->context, p->checkpoint, p->crcs.has_header, reads, actual,
                                  error);
    if (status == BERTH_OK)
        status = compare_headers(p, actual, error);
    berthi_memory_free(p->context, BERTHI_PURPOSE_SCRATCH, actual, bytes);
    return status;
}

static berth_status
alloc_held(berthi_promises *p, berth_error *error)
{
    const uint64_t count = p->crcs.tensor_count;

    p->is_held = berthi_memory_array(p->context, BERTHI_PURPOSE_TENSORS, count,
                                     sizeof *p->is_held);
    if (p->is_held == NULL)
        return berthi_fail_memory(error, "the table of digests");
    for (uint64_t i = 0; i < count; i++)
        atomic_init(&p->is_held[i], false);
    return BERTH_OK;
}

/* What reading leaves behind where there is no manifest is of no use. */
static berth_status
read_all(berthi_promises *p, const berthi_header_reads *reads, berth_error *error)
{
    bool is_there = false;
    berth_status status = read_manifest(p, &is_there, error);

    if (status == BERTH_OK && !is_there) {
        berthi_crcs_fini(&p->crcs);
        return BERTH_OK;
    }
    if (status == BERTH_OK)
        status = check_entries(p, error);
    if (p->options.mode == BERTH_LOAD_VERIFY_WARN)
        atomic_store(&p->mismatches, p->entries);
    if (status == BERTH_OK)
        status = check_headers(p, reads, error);
    if (status == BERTH_OK)
        status = alloc_held(p, error);
    p->is_on = status == BERTH_OK;
    return status;
}

berth_status
berthi_promises_read(berthi_promises *p, const berthi_header_reads *reads,
                     berth_error *error)
{
    berth_status status;

    if (p->options.mode == BERTH_LOAD_VERIFY_NONE)
        return BERTH_OK;
    status = berthi_crcs_init(&p->crcs, p->context, p->checkpoint, error);
    return status == BERTH_OK ? read_all(p, reads, error) : status;
}

/* ---------------------------------------------------------------------- comparing */

void
berthi_promises_leave(berthi_promises *p, uint64_t tensor)
{
    p->unverified += berthi_promises_has(p, tensor);
}

bool
berthi_promises_has(const berthi_promises *p, uint64_t tensor)
{
    return p->is_on && p->crcs.has_tensor[tensor];
}

berth_status
berthi_promises_compare(berthi_promises *p, const berthi_crcs *actual, uint64_t tensor,
                        berth_error *error)
{
    const berthi_entry *entry;
    berth_error details;
    bool is_first;
    berth_status status;

    if (!berthi_promises_has(p, tensor))
        return BERTH_OK;
    entry = &p->checkpoint->table.entries[tensor];
    is_first = !atomic_exchange(&p->is_held[tensor], true);
    if (is_first) {
        atomic_fetch_add(&p->tensors, 1);
        atomic_fetch_add(&p->bytes, entry->end - entry->begin);
    }
    status = berthi_crcs_compare_tensor(&p->crcs, actual, tensor, &details);
    if (status == BERTH_OK
        || (!is_first && p->options.mode == BERTH_LOAD_VERIFY_WARN)) /* it was told */
        return BERTH_OK;
    return pass_mismatch(p, &details, error);
}
