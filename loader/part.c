/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - one part's way through its shards. */
#include "loader/part.h"

#include "kernels/sys.h"
#include "loader/part_lengths.h"
#include "loader/writer_parts.h"

/*
 * Where several parts write, nobody knows all lengths: there is room for the
 * longest, so that all places are known from the beginning and none overlap.
 */
static void
leave_room(berthi_convert *convert)
{
    const berthi_recipe *const recipe = &convert->recipe;

    for (uint32_t i = 0; i < recipe->output_count; i++)
        if (convert->guesses[i] > 0 && convert->is_mixed[recipe->tensors[i].shard])
            berthi_layout_set_bytes(convert->layout, i,
                                    (uint32_t)berthi_part_most_bytes(convert, i));
}

berth_status
berthi_part_missing_bytes(const berthi_convert *convert, berthi_writer *writer,
                          uint64_t *out_bytes, berth_error *error)
{
    berth_status status = BERTH_OK;

    *out_bytes = 0;
    for (uint32_t i = 0; i < convert->share_count && status == BERTH_OK; i++) {
        const uint32_t shard = convert->shares[i].shard;
        const uint64_t size = berthi_part_file_bytes(convert, shard);
        char name[BERTHI_LAYOUT_NAME];
        bool is_there;

        if (convert->shares[i].part != convert->options.part)
            continue;
        berthi_convert_name_shard(shard, name);
        status = berthi_writer_has_shared(writer, name, size, &is_there, error);
        if (status == BERTH_OK && !is_there)
            *out_bytes += size;
    }
    return status;
}

static berth_status
check_space(berthi_convert *convert, berth_error *error)
{
    uint64_t bytes;
    const berth_status status =
        berthi_part_missing_bytes(convert, convert->writer, &bytes, error);

    return status == BERTH_OK ? berthi_writer_check_space(convert->writer, bytes, error)
                              : status;
}

static berth_status
finish_share(berthi_convert *convert, uint32_t shard, berthi_writer_file *file,
             berth_error *error)
{
    berthi_convert_notes notes;
    berth_status status = berthi_part_make_notes(convert, shard, &notes, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_writer_finish(convert->writer, file, file->bytes, notes.words,
                                  notes.count, error);
    berthi_convert_free_notes(convert, &notes);
    return status;
}

/* Takes over what an earlier run of this part has finished of a shard. */
static berth_status
adopt_share(berthi_convert *convert, uint32_t shard, const berthi_writer_file *file,
            berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    const berthi_journal_file noted = { .name = file->name,
                                        .notes = file->notes,
                                        .note_count = file->note_count };

    for (uint32_t i = 0; i < what.tensor_count; i++)
        if (berthi_convert_is_mine(convert, recipe->outputs[what.tensors[i]].weight))
            convert->report.bytes_resumed += recipe->tensors[what.tensors[i]].bytes;
    return berthi_part_take_notes(convert, convert->options.part, shard, &noted, error);
}

/* Others may not have heard of what an earlier run of this part has converted. */
static berth_status
tell_again(berthi_convert *convert, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < recipe->output_count && status == BERTH_OK; i++)
        if (convert->lengths[i] > 0
            && berthi_part_is_unknown(convert, i, convert->options.part))
            status = berthi_part_tell(convert, i, convert->lengths[i], error);
    return status;
}

/* Converts a shard; once more, where another part stops and has left too much open. */
static berth_status
convert_share(berthi_convert *convert, uint32_t shard, bool is_finished,
              berthi_writer_file **out_file, berth_error *error)
{
    uint64_t payload;
    berth_error details;
    berth_status status = BERTH_OK;

    *out_file = NULL;
    for (;;) {
        if (convert->is_exchanging && !is_finished)
            status = berthi_part_gather(convert, shard, error);
        if (status != BERTH_OK)
            return status;
        status = is_finished
                     ? berthi_convert_later(convert, shard, &details)
                     : berthi_convert_shard(convert, shard, out_file, &payload, &details);
        if (status == BERTH_OK)
            return BERTH_OK;
        if (details.reason != BERTH_REASON_PARTS) {
            *error = details;
            return status;
        }
        berthi_convert_drop_parcels_from(convert, shard);
        status = berthi_part_measure_next(convert, shard, error);
    }
}

/*
 * What this part converts with a shard. What its weights have in later shards is
 * kept until this part comes there, and sent at once where it never does.
 */
static berth_status
make_share(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berthi_writer_file *const found = berthi_convert_find_finished(convert, shard);
    berthi_writer_file *file = NULL;
    berth_status status = BERTH_OK;

    if (found != NULL)
        status = adopt_share(convert, shard, found, error);
    if (status == BERTH_OK && found != NULL && convert->is_exchanging)
        status = tell_again(convert, error);
    if (status == BERTH_OK)
        status = convert_share(convert, shard, found != NULL, &file, error);
    if (status == BERTH_OK)
        status = berthi_convert_send_parcels(convert, error);
    if (status == BERTH_OK && found == NULL)
        status = finish_share(convert, shard, file, error);
    if (status != BERTH_OK)
        berthi_writer_drop(convert->writer, file);
    berthi_convert_drop_parcels_for(convert, shard);
    return status;
}

berth_status
berthi_part_run(berthi_convert *convert, berth_error *error)
{
    bool has_share = false;
    berth_status status = check_space(convert, error);

    convert->begun_ns = berthi_sys_now_ns();
    leave_room(convert);
    for (uint32_t i = 0; i < convert->share_count && status == BERTH_OK; i++)
        if (convert->shares[i].part == convert->options.part) {
            has_share = true;
            status = make_share(convert, convert->shares[i].shard, error);
        }
    return status == BERTH_OK && !has_share
               ? berthi_writer_record(convert->writer, error)
               : status;
}

berth_status
berthi_part_forget(berthi_convert *convert, berth_error *error)
{
    berthi_recipe *const recipe = &convert->recipe;

    berthi_convert_drop_all_parcels(convert);
    for (uint32_t i = 0; i < recipe->output_count; i++)
        if (convert->guesses[i] > 0) {
            recipe->tensors[i].bytes = convert->guesses[i];
            recipe->tensors[i].is_late = true;
            convert->lengths[i] = 0;
        }
    return berthi_convert_divide_anew(convert, error);
}
