/* SPDX-License-Identifier: Apache-2.0 */
/* convert_finish.c - shards that are complete: headers, notes, and taking them over. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loader/convert_job.h"
#include "loader/digest.h"

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

/* --------------------------------------------------------------------- notes */

/*
 * Notes of a finished shard, 32 bits each:
 *   how many lengths, then each as output and bytes: those of the late tensors
 *     in it, and of those in later shards that its weights have
 *   how many weights with NaN or infinities are converted with this shard, then
 *     each as its number and two counts of 64 bits, the lower half first
 *   the crc32 of each tensor in the order of their bytes
 */
#define LATE_NOTES 2u
#define NONFINITE_NOTES 5u

typedef struct notes {
    uint32_t *words;
    uint64_t capacity;
    uint64_t count;
} notes;

static void
note(notes *n, uint64_t word)
{
    n->words[n->count++] = (uint32_t)word;
}

/* The output that holds a weight's state; UINT32_MAX: none. */
static uint32_t
find_state(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    for (uint32_t i = 0; i < weight->output_count; i++)
        if (recipe->outputs[weight->first_output + i].role == BERTHI_ROLE_STATE)
            return weight->first_output + i;
    return UINT32_MAX;
}

/* The late tensor that is noted when this one's turn comes; UINT32_MAX: none. */
static uint32_t
late_of(const berthi_recipe *recipe, uint32_t output)
{
    const berthi_recipe_output *const what = &recipe->outputs[output];
    const berthi_recipe_weight *const weight = &recipe->weights[what->weight];
    uint32_t state;

    if (what->role == BERTHI_ROLE_STATE)
        return output;
    if (output != weight->first_output)
        return UINT32_MAX;
    state = find_state(recipe, weight);
    if (state == UINT32_MAX
        || recipe->tensors[state].shard <= recipe->tensors[output].shard)
        return UINT32_MAX;
    return state;
}

static void
note_lates(notes *n, const berthi_recipe *recipe, const berthi_layout_shard *shard)
{
    const uint64_t place = n->count++;

    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const uint32_t late = late_of(recipe, shard->tensors[i]);

        if (late == UINT32_MAX)
            continue;
        note(n, late);
        note(n, recipe->tensors[late].bytes);
    }
    n->words[place] = (uint32_t)((n->count - place - 1) / LATE_NOTES);
}

static void
note_nonfinite(notes *n, const berthi_convert *convert, uint32_t number)
{
    const uint64_t place = n->count++;

    for (const berthi_convert_nonfinite *f = convert->nonfinite; f != NULL; f = f->next) {
        uint32_t first;
        uint32_t last;

        berthi_convert_find_shards(convert, &convert->recipe.weights[f->weight], &first,
                                   &last);
        if (first != number)
            continue;
        note(n, f->weight);
        note(n, f->nan);
        note(n, f->nan >> 32);
        note(n, f->infinite);
        note(n, f->infinite >> 32);
    }
    n->words[place] = (uint32_t)((n->count - place - 1) / NONFINITE_NOTES);
}

/* False: out of memory. */
static bool
can_make_notes(const berthi_convert *convert, uint32_t number,
               const berthi_layout_shard *shard, notes *out)
{
    uint64_t nonfinite = 0;

    for (const berthi_convert_nonfinite *f = convert->nonfinite; f != NULL; f = f->next)
        nonfinite++;
    out->count = 0;
    out->capacity = 2 + (uint64_t)shard->tensor_count * (LATE_NOTES + 1)
                    + nonfinite * NONFINITE_NOTES;
    out->words = berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT,
                                     out->capacity, sizeof *out->words);
    if (out->words == NULL)
        return false;
    note_lates(out, &convert->recipe, shard);
    note_nonfinite(out, convert, number);
    for (uint32_t i = 0; i < shard->tensor_count; i++)
        note(out, atomic_load(&convert->crcs[shard->tensors[i]]));
    return true;
}

/* ----------------------------------------------------------------- completing */

berth_status
berthi_convert_complete(berthi_convert *convert, uint32_t number,
                        berthi_writer_file *file, uint64_t payload, berth_error *error)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);
    const uint64_t begin = BERTHI_HEADER_PREFIX + shard.header_bytes;
    header_copy copy = { .convert = convert, .file = file };
    notes n;
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
    if (!can_make_notes(convert, number, &shard, &n))
        return berthi_fail_memory(error, "finishing a shard");
    status = berthi_writer_finish(convert->writer, file, begin + shard.payload_bytes,
                                  n.words, n.count, error);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, n.words,
                       n.capacity * sizeof *n.words);
    return status;
}

/* ---------------------------------------------------------------- taking over */

static berth_status
fail_adoption(const berthi_writer_file *file, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_JOURNAL, &(berthi_about){ .file = file->name },
                       "is not what the journal of the interrupted run says");
}

/* What is left of the notes; 0 where there is nothing more. */
typedef struct note_reader {
    const uint32_t *words;
    uint64_t left;
} note_reader;

static uint32_t
next_note(note_reader *r)
{
    if (r->left == 0)
        return 0;
    r->left--;
    return *r->words++;
}

static uint64_t
next_long_note(note_reader *r)
{
    const uint64_t low = next_note(r);

    return low | (uint64_t)next_note(r) << 32;
}

/* False when they are none. */
static bool
can_take_lates(berthi_convert *convert, note_reader *r)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint64_t count = next_note(r);

    if (count > r->left / LATE_NOTES)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t output = next_note(r);
        const uint32_t bytes = next_note(r);

        if (output >= recipe->output_count
            || recipe->outputs[output].role != BERTHI_ROLE_STATE)
            return false;
        berthi_layout_set_bytes(convert->layout, output, bytes);
    }
    return true;
}

static berth_status
take_nonfinite(berthi_convert *convert, note_reader *r, const berthi_writer_file *file,
               berth_error *error)
{
    const uint64_t count = next_note(r);
    berth_status status = BERTH_OK;

    if (count > r->left / NONFINITE_NOTES)
        return fail_adoption(file, error);
    for (uint64_t i = 0; i < count && status == BERTH_OK; i++) {
        const uint32_t weight = next_note(r);
        const uint64_t nan = next_long_note(r);
        const uint64_t infinite = next_long_note(r);

        status = weight < convert->recipe.weight_count
                     ? berthi_convert_note_nonfinite(convert, weight, nan, infinite, error)
                     : fail_adoption(file, error);
    }
    return status;
}

berth_status
berthi_convert_adopt(berthi_convert *convert, uint32_t number, berthi_writer_file *file,
                     berth_error *error)
{
    note_reader r = { file->notes, file->note_count };
    header_copy copy = { .convert = convert, .file = file, .is_check = true };
    berthi_layout_shard shard;
    berth_status status;

    if (!can_take_lates(convert, &r))
        return fail_adoption(file, error);
    status = berthi_layout_divide(convert->layout, NULL, error);
    if (status != BERTH_OK)
        return status;
    if (number >= berthi_layout_shard_count(convert->layout))
        return fail_adoption(file, error);
    status = take_nonfinite(convert, &r, file, error);
    if (status != BERTH_OK)
        return status;
    shard = berthi_layout_shard_at(convert->layout, number);
    if (r.left != shard.tensor_count
        || file->bytes != BERTHI_HEADER_PREFIX + shard.header_bytes + shard.payload_bytes)
        return fail_adoption(file, error);
    status = berthi_layout_write_header(convert->layout, number, put_header, &copy, error);
    if (status != BERTH_OK)
        return status;
    if (copy.is_other)
        return fail_adoption(file, error);
    for (uint32_t i = 0; i < shard.tensor_count; i++)
        atomic_store(&convert->crcs[shard.tensors[i]], next_note(&r));
    convert->done[number] = (berthi_convert_done){ file, copy.crc };
    convert->report.bytes_resumed += file->bytes;
    return BERTH_OK;
}
