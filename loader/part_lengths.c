/* SPDX-License-Identifier: Apache-2.0 */
/* part_lengths.c - late lengths: told, heard, waited for, found out. */
#include "loader/part_lengths.h"

#include <inttypes.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "loader/part.h"
#include "loader/writer_parts.h"

/* A part that has not begun yet is worth the time in which its weights could be read. */
#define BYTES_PER_NS 2u
#define LONGEST_BEGINNING_NS UINT64_C(2000000000)

/* --------------------------------------------------------------- telling, hearing */

bool
berthi_part_is_unknown(const berthi_convert *convert, uint32_t output, uint32_t part)
{
    const berthi_recipe *const recipe = &convert->recipe;

    return recipe->tensors[output].is_late
           && convert->part_of[recipe->outputs[output].weight] == part;
}

static berth_status
fail_length(const berthi_convert *convert, uint32_t output, uint32_t bytes,
            berth_error *error)
{
    const berthi_layout_tensor *const tensor = &convert->recipe.tensors[output];
    const berthi_about about = { .file = convert->options.output,
                                 .tensor = tensor->name,
                                 .tensor_length = tensor->name_length };

    return berthi_fail(error, BERTH_REASON_JOURNAL, &about,
                       "its state has %" PRIu32 " bytes, and parts have reckoned with "
                       "%" PRIu32 ": all have to be begun anew",
                       bytes, convert->lengths[output]);
}

berth_status
berthi_part_tell(berthi_convert *convert, uint32_t output, uint32_t bytes,
                 berth_error *error)
{
    if (convert->lengths[output] == bytes && !convert->recipe.tensors[output].is_late)
        return BERTH_OK;
    if (convert->lengths[output] > 0 && convert->lengths[output] != bytes)
        return fail_length(convert, output, bytes, error);
    return berthi_writer_tell(convert->writer, output, bytes, error);
}

static void
take_length(void *user, uint32_t output, uint32_t bytes)
{
    berthi_convert *const convert = user;

    if (!convert->recipe.tensors[output].is_late
        || bytes > berthi_part_most_bytes(convert, output))
        return;
    convert->lengths[output] = bytes;
    convert->heard_ns = berthi_sys_now_ns();
    berthi_layout_set_bytes(convert->layout, output, bytes);
}

berth_status
berthi_part_learn(berthi_convert *convert, berth_error *error)
{
    const uint64_t now = berthi_sys_now_ns();

    if (now - convert->asked_ns < BERTHI_PART_POLL_NS / 2)
        return BERTH_OK;
    convert->asked_ns = now;
    return berthi_writer_hear(convert->writer, (uint32_t)convert->recipe.output_count,
                              take_length, convert, error);
}

/* ------------------------------------------------------------------------ waiting */

static uint32_t
part_of(const berthi_convert *convert, uint32_t output)
{
    return convert->part_of[convert->recipe.outputs[output].weight];
}

/*
 * The other part whose length is the first that is missing in a shard; 0: it is this
 * part's, or none is. There is one first for all: whose it is does not wait.
 */
static uint32_t
find_next(const berthi_convert *convert, uint32_t shard)
{
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t part = part_of(convert, what.tensors[i]);

        if (berthi_part_is_unknown(convert, what.tensors[i], part))
            return part != convert->options.part ? part : 0;
    }
    return 0;
}

bool
berthi_part_is_awaiting(const berthi_convert *convert, uint32_t shard)
{
    return find_next(convert, shard) > 0;
}

/* One of those that are not at work; 0: none. */
static uint32_t
find_absent(berthi_convert *convert, uint32_t shard)
{
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    uint32_t there = convert->options.part;

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t part = part_of(convert, what.tensors[i]);

        if (part == there || part == convert->options.part
            || !berthi_part_is_unknown(convert, what.tensors[i], part))
            continue;
        if (!berthi_writer_is_part_there(convert->writer, part))
            return part;
        there = part;
    }
    return 0;
}

/* Bytes to be read for the lengths of a part in a shard. */
static uint64_t
unknown_bytes(const berthi_convert *convert, uint32_t shard, uint32_t part)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < what.tensor_count; i++)
        if (berthi_part_is_unknown(convert, what.tensors[i], part)) {
            const berthi_recipe_weight *const weight =
                &recipe->weights[recipe->outputs[what.tensors[i]].weight];
            const berthi_entry *const entry =
                &convert->checkpoint->table.entries[weight->tensor];

            bytes += entry->end - entry->begin;
        }
    return bytes;
}

static berth_status
measure(berthi_convert *convert, uint32_t shard, uint32_t part, berth_error *error)
{
    berth_status status;

    berthi_log(convert->context, BERTH_LOG_DEBUG,
               "shard %" PRIu32 ": part %" PRIu32 " is not at work, its weights are "
               "measured",
               shard + 1, part);
    status = berthi_convert_measure_states(convert, shard, part, error);
    convert->heard_ns = berthi_sys_now_ns();
    return status;
}

berth_status
berthi_part_gather(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berth_status status = berthi_part_learn(convert, error);

    while (status == BERTH_OK) {
        const uint32_t part = find_absent(convert, shard);

        if (part == 0)
            break;
        if (berthi_sys_now_ns() - convert->begun_ns
            >= berthi_min_u64(unknown_bytes(convert, shard, part) / BYTES_PER_NS,
                              LONGEST_BEGINNING_NS))
            status = measure(convert, shard, part, error);
        else if (berthi_job_is_cancelled(convert->job))
            status = berthi_job_fail_cancelled(error);
        else
            berthi_sys_sleep(BERTHI_PART_POLL_NS);
        if (status == BERTH_OK)
            status = berthi_part_learn(convert, error);
    }
    convert->heard_ns = berthi_sys_now_ns();
    return status;
}

/* True when the length that is missing first may still be told. */
static bool
is_worth_waiting(berthi_convert *convert, uint32_t shard)
{
    const uint32_t part = find_next(convert, shard);

    return part == 0
           || (berthi_sys_now_ns() - convert->heard_ns < convert->sizes.patience_ns
               && berthi_writer_is_part_there(convert->writer, part));
}

berth_status
berthi_part_await(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    const berthi_about about = { .file = convert->options.output };

    if (is_worth_waiting(convert, shard))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_PARTS, &about, "another part does not go on");
}

berth_status
berthi_part_measure_next(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    const uint32_t part = find_next(convert, shard);

    return part > 0 ? measure(convert, shard, part, error) : BERTH_OK;
}

berth_status
berthi_part_settle(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berth_status status = berthi_part_learn(convert, error);

    while (status == BERTH_OK && berthi_convert_has_unplaced(convert, shard)) {
        if (berthi_job_is_cancelled(convert->job))
            return berthi_job_fail_cancelled(error);
        if (is_worth_waiting(convert, shard))
            berthi_sys_sleep(BERTHI_PART_POLL_NS);
        else
            status = berthi_part_measure_next(convert, shard, error);
        if (status == BERTH_OK)
            status = berthi_part_learn(convert, error);
    }
    return status;
}

/* ------------------------------------------------------------------------ proving */

uint32_t
berthi_part_places_crc(const berthi_convert *convert, uint32_t part, uint32_t shard)
{
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    uint32_t last = 0; /* the part's */
    uint32_t crc = 0;

    for (uint32_t i = 0; i < what.tensor_count; i++)
        if (part_of(convert, what.tensors[i]) == part)
            last = i;
    for (uint32_t i = 0; i < last; i++)
        crc = berthi_digest_crc32(crc, &convert->lengths[what.tensors[i]],
                                  sizeof *convert->lengths);
    return crc;
}
