/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_result.c - an output that is complete already: what its manifest says
 * of the job that made it.
 *
 * So a command that is repeated with `resume` until it succeeds, as batch systems
 * do, does succeed once more when it has.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/convert_job.h"
#include "loader/journal.h"
#include "loader/listing.h"
#include "loader/manifest.h"
#include "loader/paths.h"
#include "loader/writer_job.h"

const char *
berthi_convert_job_text(berthi_convert *convert)
{
    uint32_t count = 0;

    for (const berthi_convert_nonfinite *f = convert->nonfinite; f != NULL; f = f->next)
        count++;
    if (count == 0)
        return convert->identity;
    return berthi_arena_format(&convert->texts, "%snonfinite weights %" PRIu32 "\n",
                               convert->identity, count);
}

typedef struct result {
    berthi_convert *convert;
    int folder;
    bool is_other;    /* made by another job, or by nobody knows what */
    bool has_other;   /* known, and that is how they differ */
    bool is_nonfinite; /* the same job, but for non-finite values, which are refused now */
    bool is_broken;   /* not all shards are there, or not as they were */
    char broken[BERTHI_WRITER_LINE]; /* the first of them, printable */
    bool has_single;
    berthi_writer_difference difference;
    berthi_convert_copied copied;
    uint64_t shards;
    uint64_t bytes;   /* of them */
} result;

/* The same job; one that refuses non-finite values made none with some. */
static berth_status
check_job(void *user, const char *text, uint64_t length, berth_error *error)
{
    result *const r = user;
    const char *const mine = r->convert->identity;
    const uint64_t own = strlen(mine);

    (void)error;
    r->is_other = length < own || memcmp(text, mine, (size_t)own) != 0;
    r->is_nonfinite =
        !r->is_other && length > own && r->convert->options.reject_nonfinite != 0;
    r->has_other = r->is_other
                   && berthi_writer_find_difference(mine, text, (size_t)length,
                                                    &r->difference);
    return BERTH_OK;
}

static bool
has_file(const result *r, const char *name, uint64_t *out_bytes)
{
    berthi_sys_stat state;

    if (berthi_sys_stat_at(r->folder, name, BERTHI_SYS_FOLLOW, &state) != 0
        || state.kind != BERTHI_SYS_REGULAR)
        return false;
    *out_bytes = state.bytes;
    return true;
}

static berth_status
note_file(void *user, const berthi_manifest_file *file, berth_error *error)
{
    result *const r = user;

    (void)error;
    berthi_convert_note_copied(&r->copied, file);
    return BERTH_OK;
}

static void
note_broken(result *r, const char *name, size_t length)
{
    if (!r->is_broken)
        berth_text_escape(name, length, r->broken, sizeof r->broken);
    r->is_broken = true;
}

static berth_status
check_shard(void *user, const berthi_manifest_shard *shard, berth_error *error)
{
    result *const r = user;
    char name[BERTHI_LAYOUT_NAME] = "";
    uint64_t bytes;

    (void)error;
    if (shard->file_length < sizeof name)
        memcpy(name, shard->file, (size_t)shard->file_length);
    if (!has_file(r, name, &bytes) || bytes != shard->bytes)
        note_broken(r, shard->file, (size_t)shard->file_length);
    r->has_single = r->has_single || strcmp(name, BERTHI_SINGLE_NAME) == 0;
    r->shards++;
    r->bytes += shard->bytes;
    return BERTH_OK;
}

/* True when everything is as the manifest that was read says, whoever made it. */
static bool
check_complete(result *r)
{
    uint64_t bytes;

    if (!r->has_single && r->shards > 0 && !has_file(r, BERTHI_INDEX_NAME, &bytes))
        note_broken(r, BERTHI_INDEX_NAME, strlen(BERTHI_INDEX_NAME));
    return !r->is_broken && r->shards > 0 && (!r->has_single || r->shards == 1);
}

/* By itself: parts may have begun with the leave to replace what is there. */
static bool
goes_on(const berthi_convert *convert)
{
    const berth_convert_options *const options = &convert->options;

    return options->resume != 0 && options->overwrite == 0 && options->part_count == 0
           && options->join == 0;
}

/*
 * Who goes on learns why a model that was finished is not his, or not whole: the folder would be
 * refused in any case, as one that is not empty.
 */
static bool
has_reason(const result *r)
{
    return goes_on(r->convert)
           && (r->has_other || (!r->is_other && (r->is_nonfinite || r->is_broken)));
}

static berth_status
refuse(const result *r, berth_error *error)
{
    const berthi_about about = { .file = r->convert->options.output };
    const berthi_writer_difference *const d = &r->difference;

    if (r->has_other && d->is_of_source)
        return berthi_fail(error, BERTH_REASON_EXISTS, &about,
                           "holds a finished model, and \"%s\" is not what that was made "
                           "from: it was written since, or is another model's",
                           d->mine);
    if (r->has_other)
        return berthi_fail(error, BERTH_REASON_EXISTS, &about,
                           "holds a finished model of another command: there \"%s\", now "
                           "\"%s\"",
                           d->found, d->mine);
    if (r->is_broken)
        return berthi_fail(error, BERTH_REASON_EXISTS, &about,
                           "holds a model that this command has finished, but \"%s\" is not "
                           "there any more, or not as it was",
                           r->broken);
    return berthi_fail(error, BERTH_REASON_EXISTS, &about,
                       "holds a finished model with values that are not finite, which are "
                       "refused now");
}

berth_status
berthi_convert_find_result(berthi_convert *convert, bool *out_is_there,
                           berth_error *error)
{
    result r = { .convert = convert, .is_other = true };
    const berthi_manifest_visitor visitor = { .user = &r, .job = check_job,
                                              .shard = check_shard, .file = note_file };
    const char *const path =
        berthi_path_join(&convert->texts, convert->options.output, BERTHI_MANIFEST_NAME);
    berth_error ignored;
    berth_status status;
    uint64_t bytes;
    bool is_finished; /* nothing was broken off there */
    bool is_whole;

    *out_is_there = false;
    if (path == NULL)
        return berthi_fail_memory(error, "a path");
    status = berthi_convert_begin_copied(convert, &r.copied, error);
    if (status != BERTH_OK)
        return status;
    r.folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, convert->options.output);
    if (r.folder < 0)
        return BERTH_OK; /* whoever writes to it says what is wrong with it */
    status = berthi_manifest_read(convert->context, berthi_manifest_at(path),
                                  &visitor, &ignored);
    is_finished = status == BERTH_OK && !has_file(&r, BERTHI_JOURNAL_NAME, &bytes);
    is_whole = is_finished && check_complete(&r);
    berthi_sys_close(r.folder);
    if (status == BERTH_ENOMEM)
        return berthi_fail_memory(error, "reading a manifest");
    if (is_finished && has_reason(&r))
        return refuse(&r, error);
    *out_is_there = is_whole && !r.is_other && !r.is_nonfinite;
    if (!*out_is_there)
        return BERTH_OK;
    convert->report.bytes_resumed = r.bytes;
    return goes_on(convert) ? berthi_convert_compare_copied(&r.copied, error) : BERTH_OK;
}
