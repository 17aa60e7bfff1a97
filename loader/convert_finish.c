/* SPDX-License-Identifier: Apache-2.0 */
/* convert_finish.c - shards that are complete: their headers, and taking them over. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/convert_job.h"

/* --------------------------------------------------------------------- names */

void
berthi_convert_name_shard(uint32_t shard, char out_name[BERTHI_LAYOUT_NAME])
{
    snprintf(out_name, BERTHI_LAYOUT_NAME, "model-%05" PRIu32 ".safetensors", shard + 1);
}

berthi_writer_file *
berthi_convert_find_finished(const berthi_convert *convert, uint32_t shard)
{
    char name[BERTHI_LAYOUT_NAME];
    berthi_writer_file *file;

    berthi_convert_name_shard(shard, name);
    file = berthi_writer_find(convert->writer, name);
    return file != NULL && file->is_finished ? file : NULL;
}

/* -------------------------------------------------------------------- header */

/* The header of a shard, checked against a file or written into it. */
typedef struct header_copy {
    berthi_convert *convert;
    berthi_writer_file *file;
    bool is_check;
    bool is_other; /* than what the file holds */
    uint32_t crc;
} header_copy;

static berth_status
put_header(void *user, const char *bytes, uint64_t size, uint64_t offset,
           berth_error *error)
{
    header_copy *const copy = user;
    char found[BERTHI_JSON_TEXT_BUFFER];
    uint64_t done = 0;
    berth_status status = BERTH_OK;

    copy->crc = berthi_digest_crc32(copy->crc, bytes, (size_t)size);
    if (!copy->is_check)
        return berthi_writer_write(copy->convert->writer, copy->file, bytes, size, offset,
                                   error);
    while (done < size && status == BERTH_OK) {
        const uint64_t part = berthi_min_u64(size - done, sizeof found);

        status = berthi_writer_read(copy->convert->writer, copy->file, found, part,
                                    offset + done, error);
        if (status == BERTH_OK && memcmp(found, bytes + done, part) != 0)
            copy->is_other = true;
        done += part;
    }
    return status;
}

/* ----------------------------------------------------------------- completing */

berth_status
berthi_convert_complete(berthi_convert *convert, uint32_t number,
                        berthi_writer_file *file, uint64_t payload, berth_error *error)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);
    const uint64_t begin = BERTHI_HEADER_PREFIX + shard.header_bytes;
    header_copy copy = { .convert = convert, .file = file };
    berthi_convert_notes notes;
    berth_status status = BERTH_OK;

    if (begin != payload) {
        berthi_log(convert->context, BERTH_LOG_DEBUG,
                   "shard %" PRIu32 " is moved: its header has %" PRIu64
                   " bytes instead of %" PRIu64,
                   number + 1, begin, payload);
        status = berthi_writer_move(convert->writer, file, payload, begin,
                                    shard.payload_bytes, error);
    }
    if (status == BERTH_OK)
        status = berthi_layout_write_header(convert->layout, number, put_header, &copy,
                                            error);
    if (status != BERTH_OK)
        return status;
    convert->done[number] = (berthi_convert_done){ file, copy.crc };
    status = berthi_convert_make_notes(convert, number, &notes, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_writer_finish(convert->writer, file, begin + shard.payload_bytes,
                                  notes.words, notes.count, error);
    berthi_convert_free_notes(convert, &notes);
    return status;
}

/* ---------------------------------------------------------------- taking over */

berth_status
berthi_convert_fail_adoption(const char *file, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_JOURNAL, &(berthi_about){ .file = file },
                       "is not what the journal of the interrupted run says");
}

berth_status
berthi_convert_adopt(berthi_convert *convert, uint32_t number, berthi_writer_file *file,
                     berth_error *error)
{
    header_copy copy = { .convert = convert, .file = file, .is_check = true };
    berthi_layout_shard shard;
    berth_status status = berthi_convert_take_notes(convert, number, file, error);

    if (status != BERTH_OK)
        return status;
    shard = berthi_layout_shard_at(convert->layout, number);
    if (file->bytes != BERTHI_HEADER_PREFIX + shard.header_bytes + shard.payload_bytes)
        return berthi_convert_fail_adoption(file->name, error);
    status = berthi_layout_write_header(convert->layout, number, put_header, &copy, error);
    if (status != BERTH_OK)
        return status;
    if (copy.is_other)
        return berthi_convert_fail_adoption(file->name, error);
    convert->done[number] = (berthi_convert_done){ file, copy.crc };
    convert->report.bytes_resumed += file->bytes;
    return BERTH_OK;
}
