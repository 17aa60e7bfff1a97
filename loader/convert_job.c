/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_job.c - the job of a conversion: from shard to shard, to what is there then.
 *
 *   for each shard   an earlier run has it ─▶ adopt
 *                    else convert ─▶ divide again with the lengths now known
 *                                      other tensors: once more
 *                                      the same: header, finish
 */
#include "loader/convert_job.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/listing.h"
#include "loader/part.h"
#include "loader/writer_parts.h"

/* So long somebody may have the folder who only looks into it, and so often that is tried. */
#define TAKEN_NS UINT64_C(2000000000)
#define TAKEN_POLL_NS UINT64_C(10000000)

/* ------------------------------------------------------------------ one shard */

/* As often as the lengths that are found out change what belongs to the shard. */
static berth_status
convert_anew(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    for (;;) {
        berthi_writer_file *file;
        uint64_t payload;
        uint32_t first;
        berth_status status =
            berthi_convert_shard(convert, shard, &file, &payload, error);

        if (status != BERTH_OK)
            return status;
        status = berthi_layout_divide(convert->layout, &first, error);
        if (status == BERTH_OK && first > shard)
            status = berthi_convert_complete(convert, shard, file, payload, error);
        if (status != BERTH_OK || first <= shard)
            berthi_writer_drop(convert->writer, file);
        if (status != BERTH_OK || first > shard)
            return status;
        berthi_log(convert->context, BERTH_LOG_DEBUG,
                   "shard %" PRIu32 " is converted once more: it gets other tensors",
                   shard + 1);
        berthi_convert_drop_parcels_from(convert, shard);
    }
}

berth_status
berthi_convert_reserve_done(berthi_convert *convert, uint32_t shards, berth_error *error)
{
    const uint32_t old = convert->done_capacity;
    const uint32_t capacity = shards + 63;
    berthi_convert_done *larger;

    if (shards <= old)
        return BERTH_OK;
    larger = berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT, capacity,
                                 sizeof *larger);
    if (larger == NULL)
        return berthi_fail_memory(error, "the list of finished shards");
    if (old > 0)
        memcpy(larger, convert->done, old * sizeof *larger);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, convert->done,
                       old * sizeof *larger);
    convert->done = larger;
    convert->done_capacity = capacity;
    return BERTH_OK;
}

static berth_status
make_shard(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berthi_writer_file *file;
    berth_status status = berthi_convert_reserve_done(convert, shard + 1, error);

    if (status != BERTH_OK)
        return status;
    file = berthi_convert_find_finished(convert, shard);
    if (file != NULL) {
        status = berthi_convert_adopt(convert, shard, file, error);
        if (status == BERTH_OK)
            status = berthi_convert_later(convert, shard, error);
        if (status == BERTH_OK)
            status = berthi_layout_divide(convert->layout, NULL, error);
    } else {
        status = convert_anew(convert, shard, error);
    }
    berthi_convert_drop_parcels_for(convert, shard);
    return status;
}

/* ------------------------------------------------------------------ the job */

static berth_status
make_shards(berthi_convert *convert, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0;
         i < berthi_layout_shard_count(convert->layout) && status == BERTH_OK; i++)
        status = make_shard(convert, i, error);
    return status;
}

/* How many there are is certain only now. */
static berth_status
name_shards(berthi_convert *convert, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        berthi_writer_file *const file = convert->done[i].file;
        char name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, count, name);
        if (strcmp(file->name, name) != 0)
            status = berthi_writer_rename(convert->writer, file, name, error);
    }
    return status;
}

/* `last`: the file that makes a checkpoint of the others; NULL: as was decided before. */
static berth_status
publish(berthi_convert *convert, const char *last, berth_error *error)
{
    /* What was there before is gone then: a cancel comes too late. */
    if (!berthi_job_commit(convert->job))
        return berthi_job_fail_cancelled(error);
    return berthi_writer_publish(convert->writer, last, error);
}

static berth_status
publish_shards(berthi_convert *convert, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    char single[BERTHI_LAYOUT_NAME];
    const berth_status status = name_shards(convert, error);

    berthi_layout_shard_name(0, 1, single);
    return status == BERTH_OK
               ? publish(convert, count == 1 ? single : BERTHI_INDEX_NAME, error)
               : status;
}

static berth_status
make_all_shards(berthi_convert *convert, berth_error *error)
{
    const berth_status status = berthi_writer_check_space(
        convert->writer, berthi_convert_missing_bytes(convert), error);

    return status == BERTH_OK ? make_shards(convert, error) : status;
}

static berth_status
write_everything(berthi_convert *convert, berth_error *error)
{
    berth_status status = convert->part_of != NULL ? berthi_part_join(convert, error)
                                                   : make_all_shards(convert, error);

    if (status == BERTH_OK)
        status = berthi_convert_add_files(convert, error);
    if (status == BERTH_OK)
        status = publish_shards(convert, error);
    return status;
}

static double
seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* Where the time went: whoever was never waited for has held up the others. */
static void
fill_report(berthi_convert *convert, uint64_t begin_ns)
{
    berth_convert_report *const report = &convert->report;
    const berthi_promises *const promises = &convert->sources.promises;
    const uint64_t all_ns = berthi_sys_now_ns() - begin_ns;
    const uint64_t write_ns = atomic_load(&convert->write_ns);

    report->seconds = seconds(all_ns);
    report->write_seconds = seconds(write_ns);
    report->convert_seconds =
        seconds(convert->work_ns - berthi_min_u64(write_ns, convert->work_ns));
    report->read_seconds =
        seconds(all_ns - berthi_min_u64(convert->wait_ns, all_ns));
    report->bottleneck = convert->wait_ns * 2 < all_ns ? BERTH_CONVERT_BY_READS
                         : report->convert_seconds >= report->write_seconds
                             ? BERTH_CONVERT_BY_ENCODING
                             : BERTH_CONVERT_BY_WRITES;
    report->bytes_read += atomic_load(&convert->companions_read);
    report->bytes_written = atomic_load(&convert->written);
    report->shards = berthi_layout_shard_count(convert->layout);
    report->tensors_written = berthi_layout_tensor_count(convert->layout);
    report->verified_tensors = atomic_load(&promises->tensors);
    report->verified_bytes = atomic_load(&promises->bytes);
    report->unverified_tensors = promises->unverified;
    report->mismatches = atomic_load(&promises->mismatches);
    if (convert->options.report != NULL)
        *convert->options.report = *report;
}

static berth_status
open_writer(berthi_convert *convert, uint32_t part, berth_error *error)
{
    const berthi_writer_options options = {
        .job = convert->identity,
        .overwrite = convert->options.overwrite != 0,
        .resume = convert->options.resume != 0,
        .part_count = convert->options.part_count,
        .part = part,
    };

    return berthi_writer_open(convert->context, convert->options.output, &options,
                              &convert->writer, error);
}

static void
close_writer(berthi_convert *convert)
{
    if (convert->writer != NULL)
        convert->has_kept = convert->has_kept || berthi_writer_has_finished(convert->writer);
    berthi_writer_close(convert->writer);
    convert->writer = NULL;
}

/* Goes on with what is there, if that is allowed, or begins; or joins parts. */
static berth_status
run_writer(berthi_convert *convert, berth_error *error)
{
    berth_status status = open_writer(convert, 0, error);

    if (status == BERTH_OK && berthi_writer_is_complete(convert->writer))
        status = publish(convert, NULL, error);
    else if (status == BERTH_OK)
        status = write_everything(convert, error);
    convert->report.is_joined = status == BERTH_OK && convert->part_of != NULL;
    close_writer(convert);
    return status;
}

/*
 * Lets go of the folder; *out_is_last: everything is finished. Whoever finished
 * while this part had the folder may have found it taken and gone: so this one
 * counts again. Where it counts more than before, others have joined meanwhile.
 */
static berth_status
leave(berthi_convert *convert, bool *out_is_last, berth_error *error)
{
    const berth_convert_report before = convert->report;
    berth_status status = BERTH_OK;

    *out_is_last = false;
    if (!berthi_writer_let_go(convert->writer))
        return BERTH_OK;
    if (before.parts_missing > 0)
        status = berthi_part_count(convert, error);
    if (status != BERTH_OK || convert->report.parts_missing > before.parts_missing)
        convert->report = before;
    *out_is_last = status == BERTH_OK && convert->report.parts_missing == 0;
    return status;
}

/*
 * All is finished, and somebody may have the folder who joins nothing: a part that was begun
 * twice, another command. He is refused, but had it when everybody else gave it back.
 */
static berth_status
run_writer_when_free(berthi_convert *convert, berth_error *error)
{
    const uint64_t late_ns = berthi_sys_now_ns() + TAKEN_NS;
    berth_status status = run_writer(convert, error);

    while (status != BERTH_OK && error->reason == BERTH_REASON_BUSY
           && berthi_sys_now_ns() < late_ns && !berthi_job_is_cancelled(convert->job)) {
        berthi_sys_sleep(TAKEN_POLL_NS);
        status = run_writer(convert, error);
    }
    return status;
}

/*
 * Joins, where this part was the last. Who finds the folder taken was not; of
 * those that were, one gets it first, and has done everything for who comes next.
 */
static berth_status
join_as_last(berthi_convert *convert, berth_error *error)
{
    const berth_convert_report before = convert->report;
    berth_error details;
    bool is_there = false;
    berth_status status = berthi_part_forget(convert, &details);

    if (status == BERTH_OK)
        status = run_writer_when_free(convert, &details);
    if (status == BERTH_OK)
        return BERTH_OK;
    if (details.reason == BERTH_REASON_EXISTS || details.reason == BERTH_REASON_PARTS)
        (void)berthi_convert_find_result(convert, &is_there, NULL);
    convert->report = before;
    if (is_there || details.reason == BERTH_REASON_BUSY)
        return BERTH_OK;
    *error = details;
    return status;
}

static berth_status
run_part(berthi_convert *convert, berth_error *error)
{
    bool is_last = false;
    berth_status status = open_writer(convert, convert->options.part, error);

    if (status == BERTH_OK && berthi_writer_is_joining(convert->writer)) {
        close_writer(convert);
        return run_writer(convert, error);
    }
    if (status == BERTH_OK)
        status = berthi_part_run(convert, error);
    if (status == BERTH_OK)
        status = berthi_part_count(convert, error);
    if (status == BERTH_OK)
        status = leave(convert, &is_last, error);
    close_writer(convert);
    return is_last ? join_as_last(convert, error) : status;
}

berth_status
berthi_convert_run(berth_job *job, void *user, berth_error *error)
{
    berthi_convert *const convert = user;
    const uint64_t begin_ns = berthi_sys_now_ns();
    bool is_there = false;
    berth_status status = BERTH_OK;

    convert->job = job;
    if (convert->options.resume != 0 || convert->options.join != 0)
        status = berthi_convert_find_result(convert, &is_there, error);
    if (status == BERTH_OK && !is_there && convert->options.join && convert->part_of == NULL)
        status = berthi_part_fail_none(convert, error); /* it was there a moment ago */
    if (status == BERTH_OK && !is_there)
        status = convert->options.part > 0 ? run_part(convert, error)
                                           : run_writer(convert, error);
    if (status == BERTH_OK && !berthi_job_commit(job))
        status = BERTH_ECANCELLED; /* a part is finished, and counts */
    if (status == BERTH_ECANCELLED)
        status = berthi_fail(error, BERTH_REASON_CANCELLED, NULL, "%s",
                             convert->has_kept
                                 ? "cancelled; finished shards are kept for --resume"
                                 : "cancelled before a shard was finished");
    fill_report(convert, begin_ns);
    return status;
}

/* Nothing is written: the report tells what would be. */
berth_status
berthi_convert_run_dry(berth_job *job, void *user, berth_error *error)
{
    berthi_convert *const convert = user;

    (void)job;
    (void)error;
    fill_report(convert, berthi_sys_now_ns());
    return BERTH_OK;
}
