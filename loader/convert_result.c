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
    bool is_other;    /* made by another job */
    bool is_broken;   /* not all shards are there, or not as they were */
    bool has_single;
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
    r->is_other = length < own || memcmp(text, mine, (size_t)own) != 0
                  || (length > own && r->convert->options.reject_nonfinite != 0);
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
check_shard(void *user, const berthi_manifest_shard *shard, berth_error *error)
{
    result *const r = user;
    char name[BERTHI_LAYOUT_NAME] = "";
    uint64_t bytes;

    (void)error;
    if (shard->file_length < sizeof name)
        memcpy(name, shard->file, (size_t)shard->file_length);
    r->is_broken = r->is_broken || !has_file(r, name, &bytes) || bytes != shard->bytes;
    r->has_single = r->has_single || strcmp(name, BERTHI_SINGLE_NAME) == 0;
    r->shards++;
    r->bytes += shard->bytes;
    return BERTH_OK;
}

/* True when everything is as the manifest that was read says. */
static bool
is_complete(const result *r)
{
    uint64_t bytes;

    if (r->is_other || r->is_broken || r->shards == 0
        || has_file(r, BERTHI_JOURNAL_NAME, &bytes))
        return false;
    return r->has_single ? r->shards == 1 : has_file(r, BERTHI_INDEX_NAME, &bytes);
}

berth_status
berthi_convert_find_result(berthi_convert *convert, bool *out_is_there,
                           berth_error *error)
{
    result r = { .convert = convert, .is_other = true };
    const berthi_manifest_visitor visitor = { .user = &r, .job = check_job,
                                              .shard = check_shard };
    const char *const path =
        berthi_path_join(&convert->texts, convert->options.output, BERTHI_MANIFEST_NAME);
    berth_error ignored;
    berth_status status;

    *out_is_there = false;
    if (path == NULL)
        return berthi_fail_memory(error, "a path");
    r.folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, convert->options.output);
    if (r.folder < 0)
        return BERTH_OK; /* whoever writes to it says what is wrong with it */
    status = berthi_manifest_read(convert->context, berthi_manifest_at(path),
                                  &visitor, &ignored);
    *out_is_there = status == BERTH_OK && is_complete(&r);
    if (*out_is_there)
        convert->report.bytes_resumed = r.bytes;
    berthi_sys_close(r.folder);
    return status == BERTH_ENOMEM ? berthi_fail_memory(error, "reading a manifest")
                                  : BERTH_OK;
}
