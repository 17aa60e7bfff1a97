/* SPDX-License-Identifier: Apache-2.0 */
/* part_join.c - shards out of what all parts have finished. */
#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/part.h"
#include "loader/part_lengths.h"
#include "loader/paths.h"
#include "loader/writer_parts.h"

#define COPY_BYTES (UINT64_C(4) << 20)

/* Where a part has put a tensor. */
typedef struct home {
    uint64_t offset; /* in the shared file */
    uint32_t shard;
} home;

typedef struct join {
    berthi_convert *convert;
    uint32_t shared_count; /* files that parts share */
    uint64_t *sizes;       /* of them */
    home *homes;           /* one an output */
    uint8_t *buffer;
    berthi_writer_file *from; /* the shared file that is open */
    uint32_t from_shard;
} join;

/* --------------------------------------------------------------- what there is */

static const berthi_journal_file *
find_file(const berthi_writer_part *part, const char *name)
{
    for (uint64_t i = 0; i < part->file_count; i++)
        if (strcmp(part->files[i].name, name) == 0)
            return &part->files[i];
    return NULL;
}

static berth_status
fail_record(const berthi_convert *convert, uint32_t part, berth_error *error)
{
    const berthi_about about = { .file = convert->options.output };

    return berthi_fail(error, BERTH_REASON_JOURNAL, &about,
                       "the journal of part %" PRIu32 " is not what this command makes",
                       part);
}

/*
 * Whether a part has finished all that is its own. With `j` the lengths and
 * checksums in its notes are taken.
 */
static berth_status
look_at_part(berthi_convert *convert, uint32_t part, join *j, bool *out_is_finished,
             berth_error *error)
{
    berthi_writer_part record;
    berth_status status =
        berthi_writer_read_part(convert->writer, part, &record, error);

    *out_is_finished = record.is_there;
    for (uint32_t i = 0; i < convert->share_count && status == BERTH_OK; i++) {
        const berthi_part_share *const share = &convert->shares[i];
        const berthi_journal_file *file;
        char name[BERTHI_LAYOUT_NAME];

        if (share->part != part)
            continue;
        berthi_convert_name_shard(share->shard, name);
        file = find_file(&record, name);
        if (file == NULL)
            *out_is_finished = false;
        else if (file->bytes != berthi_part_file_bytes(convert, share->shard))
            status = fail_record(convert, part, error);
        else if (j != NULL)
            status = berthi_part_take_notes(convert, part, share->shard, file, error);
    }
    return status;
}

/* "part 3 of 8 is", "parts 2, 5 and 7 of 8 are"; the longest lists are cut. */
static const char *
name_missing(berthi_convert *convert, const uint32_t *missing, uint32_t count)
{
    berthi_arena *const texts = &convert->texts;
    const uint32_t shown = count < 20 ? count : 20;
    const char *list = "";

    for (uint32_t i = 0; i < shown && list != NULL; i++) {
        const char *const before = i == 0                          ? ""
                                   : i + 1 < shown || count > shown ? ", "
                                                                    : " and ";

        list = berthi_arena_format(texts, "%s%s%" PRIu32, list, before, missing[i]);
    }
    if (list != NULL && count > shown)
        list = berthi_arena_format(texts, "%s and %" PRIu32 " more", list, count - shown);
    if (list == NULL)
        return NULL;
    return berthi_arena_format(texts, "part%s %s of %" PRIu32 " %s", count > 1 ? "s" : "",
                               list, convert->options.part_count,
                               count > 1 ? "are" : "is");
}

/* Looks at all parts. *out_text: those that are missing, as words; NULL: none. */
static berth_status
look_at_parts(berthi_convert *convert, join *j, const char **out_text, berth_error *error)
{
    const uint32_t part_count = convert->options.part_count;
    uint32_t *const missing = berthi_memory_array(
        convert->context, BERTHI_PURPOSE_DOCUMENT, part_count, sizeof *missing);
    uint32_t count = 0;
    berth_status status = BERTH_OK;

    *out_text = NULL;
    if (missing == NULL)
        return berthi_fail_memory(error, "looking at what parts have finished");
    for (uint32_t part = 1; part <= part_count && status == BERTH_OK; part++) {
        bool is_finished;

        status = look_at_part(convert, part, j, &is_finished, error);
        if (!is_finished)
            missing[count++] = part;
    }
    convert->report.parts_missing = count;
    convert->report.parts_finished = part_count - count;
    if (status == BERTH_OK && count > 0) {
        *out_text = name_missing(convert, missing, count);
        if (*out_text == NULL)
            status = berthi_fail_memory(error, "looking at what parts have finished");
    }
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, missing,
                       part_count * sizeof *missing);
    return status;
}

berth_status
berthi_part_count(berthi_convert *convert, berth_error *error)
{
    const char *missing;

    return look_at_parts(convert, NULL, &missing, error);
}

/* ----------------------------------------------------------------------- places */

/* Where the tensors of a shard were put: leave_room() of part.c has a mixed one. */
static void
find_homes(join *j, uint32_t shard)
{
    const berthi_convert *const convert = j->convert;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    uint64_t offset = BERTHI_HEADER_PREFIX + what.header_bytes;

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t output = what.tensors[i];

        j->homes[output] = (home){ offset, shard };
        offset += convert->guesses[output] > 0 && !convert->is_mixed[shard]
                      ? convert->lengths[output]
                      : berthi_part_most_bytes(convert, output);
    }
}

/* Fails unless all parts have gone by the lengths that were told, which are the same for all. */
static berth_status
check_lengths(const join *j, berth_error *error)
{
    const berthi_convert *const convert = j->convert;

    for (uint32_t i = 0; i < convert->share_count; i++) {
        const berthi_part_share *const share = &convert->shares[i];

        if (share->places_crc
            != berthi_part_places_crc(convert, share->part, share->shard))
            return fail_record(convert, share->part, error);
    }
    return BERTH_OK;
}

/* Places as they were written, then the final ones. */
static berth_status
find_places(join *j, berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const berth_status status =
        convert->is_exchanging ? check_lengths(j, error) : BERTH_OK;

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < j->shared_count; i++) {
        j->sizes[i] = berthi_part_file_bytes(convert, i);
        find_homes(j, i);
    }
    for (uint32_t i = 0; i < convert->recipe.output_count; i++)
        if (convert->guesses[i] > 0)
            berthi_layout_set_bytes(convert->layout, i, convert->lengths[i]);
    return berthi_layout_divide(convert->layout, NULL, error);
}

/* True when everything of a shard stands where it belongs in the shared file, which is
   there: without tensors, no part has made one. */
static bool
is_in_place(const join *j, uint32_t shard)
{
    const berthi_layout_shard what = berthi_layout_shard_at(j->convert->layout, shard);
    const uint64_t payload = BERTHI_HEADER_PREFIX + what.header_bytes;

    if (shard >= j->shared_count || what.tensor_count == 0
        || payload + what.payload_bytes > j->sizes[shard])
        return false;
    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const home *const h = &j->homes[what.tensors[i]];
        const uint64_t place =
            payload + j->convert->recipe.tensors[what.tensors[i]].offset;

        if (h->shard != shard || h->offset != place)
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------------- copying */

/* `cut`: its other length, where an earlier join may have come as far as cutting it. */
static berth_status
take_shared(join *j, uint32_t shard, uint64_t cut, berthi_writer_file **out,
            berth_error *error)
{
    const berthi_about about = { .file = j->convert->options.output };
    char name[BERTHI_LAYOUT_NAME];
    bool is_there;
    berth_status status;

    *out = NULL;
    berthi_convert_name_shard(shard, name);
    status = berthi_writer_has_shared(j->convert->writer, name, j->sizes[shard],
                                      &is_there, error);
    if (status == BERTH_OK && !is_there)
        status = berthi_writer_has_shared(j->convert->writer, name, cut, &is_there, error);
    if (status == BERTH_OK && !is_there)
        return berthi_fail(error, BERTH_REASON_JOURNAL, &about,
                           "%s was finished by parts, and has been lost since", name);
    return status == BERTH_OK
               ? berthi_writer_take(j->convert->writer, name, j->sizes[shard], out, error)
               : status;
}

/* Tensors of one shard come from one file, but for some at its ends. */
static berth_status
open_home(join *j, uint32_t shard, berth_error *error)
{
    if (j->from != NULL && j->from_shard == shard)
        return BERTH_OK;
    berthi_writer_drop(j->convert->writer, j->from);
    j->from_shard = shard;
    return take_shared(j, shard, j->sizes[shard], &j->from, error);
}

static berth_status
fail_checksum(const join *j, uint32_t output, berth_error *error)
{
    const berthi_layout_tensor *const tensor = &j->convert->recipe.tensors[output];
    const berthi_about about = { .file = j->convert->options.output,
                                 .tensor = tensor->name,
                                 .tensor_length = tensor->name_length };

    return berthi_fail(error, BERTH_REASON_JOURNAL, &about,
                       "%s%s is not what part %" PRIu32 " has written",
                       tensor->suffix != NULL ? "its " : "its bytes",
                       tensor->suffix != NULL ? tensor->suffix : "",
                       j->convert->part_of[j->convert->recipe.outputs[output].weight]);
}

static berth_status
copy_tensor(join *j, berthi_writer_file *to, uint64_t payload, uint32_t output,
            berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const berthi_layout_tensor *const tensor = &convert->recipe.tensors[output];
    const home *const h = &j->homes[output];
    uint32_t crc = 0;
    berth_status status = open_home(j, h->shard, error);

    for (uint64_t done = 0; done < tensor->bytes && status == BERTH_OK;) {
        const uint64_t piece = berthi_min_u64(tensor->bytes - done, COPY_BYTES);

        status = berthi_writer_read(convert->writer, j->from, j->buffer, piece,
                                    h->offset + done, error);
        if (status == BERTH_OK)
            status = berthi_writer_write(convert->writer, to, j->buffer, piece,
                                         payload + tensor->offset + done, error);
        crc = berthi_digest_crc32(crc, j->buffer, (size_t)piece);
        atomic_fetch_add(&convert->written, piece);
        done += piece;
        if (status == BERTH_OK && berthi_job_is_cancelled(convert->job))
            status = berthi_job_fail_cancelled(error);
    }
    if (status == BERTH_OK && crc != atomic_load(&convert->crcs[output]))
        status = fail_checksum(j, output, error);
    return status;
}

static berth_status
copy_shard(join *j, uint32_t shard, berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    const uint64_t payload = BERTHI_HEADER_PREFIX + what.header_bytes;
    berthi_writer_file *to;
    char name[BERTHI_LAYOUT_NAME];
    berth_status status;

    berthi_convert_name_shard(shard, name);
    berthi_log(convert->context, BERTH_LOG_DEBUG,
               "shard %" PRIu32 " is copied: its parts could not know all places",
               shard + 1);
    status = berthi_writer_create(convert->writer, name, payload + what.payload_bytes, &to,
                                  error);
    for (uint32_t i = 0; i < what.tensor_count && status == BERTH_OK; i++)
        status = copy_tensor(j, to, payload, what.tensors[i], error);
    if (status == BERTH_OK)
        status = berthi_convert_complete(convert, shard, to, payload, error);
    if (status != BERTH_OK)
        berthi_writer_drop(convert->writer, to);
    return status;
}

static berth_status
complete_in_place(join *j, uint32_t shard, berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    const uint64_t payload = BERTHI_HEADER_PREFIX + what.header_bytes;
    berthi_writer_file *file;
    berth_status status =
        take_shared(j, shard, payload + what.payload_bytes, &file, error);

    if (status == BERTH_OK)
        status = berthi_convert_complete(convert, shard, file, payload, error);
    if (status != BERTH_OK)
        berthi_writer_drop(convert->writer, file);
    return status;
}

/* -------------------------------------------------------------------------- all */

/*
 * Copies come first: a shared file that is completed in place is cut to its
 * length, and may have held a tensor that belongs to another shard.
 */
static berth_status
make_shards(join *j, berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    berth_status status = berthi_convert_reserve_done(convert, count, error);

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        berthi_writer_file *const file = berthi_convert_find_finished(convert, i);

        if (file != NULL)
            status = berthi_convert_adopt(convert, i, file, error);
        else if (!is_in_place(j, i))
            status = copy_shard(j, i, error);
    }
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        if (berthi_convert_find_finished(convert, i) == NULL)
            status = complete_in_place(j, i, error);
    return status;
}

static berth_status
join_parts(join *j, berth_error *error)
{
    berthi_convert *const convert = j->convert;
    const berthi_about about = { .file = convert->options.output };
    const char *missing;
    berth_status status = look_at_parts(convert, j, &missing, error);

    if (status != BERTH_OK)
        return status;
    if (missing != NULL)
        return berthi_fail(error, BERTH_REASON_PARTS, &about, "%s not finished", missing);
    status = find_places(j, error);
    return status == BERTH_OK ? make_shards(j, error) : status;
}

berth_status
berthi_part_join(berthi_convert *convert, berth_error *error)
{
    berth_context *const context = convert->context;
    const uint64_t outputs = convert->recipe.output_count;
    join j = { .convert = convert,
               .shared_count = berthi_layout_shard_count(convert->layout) };
    berth_status status;

    j.sizes = berthi_memory_array(context, BERTHI_PURPOSE_DOCUMENT, j.shared_count,
                                  sizeof *j.sizes);
    j.homes = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS, outputs,
                                  sizeof *j.homes);
    j.buffer = berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH, COPY_BYTES, 4096);
    if (j.sizes != NULL && j.homes != NULL && j.buffer != NULL)
        status = join_parts(&j, error);
    else
        status = berthi_fail_memory(error, "joining parts");
    berthi_writer_drop(convert->writer, j.from);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, j.buffer, COPY_BYTES, 4096);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, j.homes, outputs * sizeof *j.homes);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, j.sizes,
                       j.shared_count * sizeof *j.sizes);
    return status;
}
