/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h - a conversion that several processes share, and putting together what
 * they have made. Only for convert*.c and part*.c.
 *
 * All parts lay out the same shards from the same headers, and divide the
 * weights by the same rule. Where there are as many shards as parts or more, a
 * shard is one part's; else parts have stretches of the weights in the order in
 * which shards are filled, or take turns where some lengths are late.
 *
 * Places in a shared file. A part knows the late lengths of its own weights
 * when it has converted them. In a shard that is its own from beginning to end
 * everything comes to its final place; so it does where parts take turns, and tell
 * each other (part_lengths.h). Other mixed ones, of which a part has some tensors at
 * an end, have room for the most that any length can be. Whoever joins knows all: a
 * shard in which everything stands where it belongs gets its header and is done;
 * any other is copied into a new file, tensor by tensor.
 */
#ifndef BERTH_LOADER_PART_H
#define BERTH_LOADER_PART_H

#include "loader/convert_job.h"
#include "loader/journal.h"

/* ------------------------------------------------------------------ part_divide.c */

/*
 * Fills what a conversion by parts has: part_of, shares, guesses, lengths, is_mixed.
 * There are a layout and an identity; a join may leave it to the files in the
 * output how many parts there are. PARTS: there are none of this command. Where they
 * have been joined before it fills nothing: berthi_convert_find_result() finds that.
 */
berth_status berthi_part_assign(berthi_convert *convert, berth_error *error);
/* Fails with that PARTS. */
berth_status berthi_part_fail_none(const berthi_convert *convert, berth_error *error);

/* NULL tables are allowed. */
void berthi_part_free(berthi_convert *convert);

/* True when a part converts something with this shard. */
bool berthi_part_has_shard(const berthi_convert *convert, uint32_t part, uint32_t shard);

/* Length of a shared file: room for the longest lengths. By the first division. */
uint64_t berthi_part_file_bytes(const berthi_convert *convert, uint32_t shard);
/* The most that a tensor takes, whatever its length turns out to be. */
uint64_t berthi_part_most_bytes(const berthi_convert *convert, uint32_t output);

/* ------------------------------------------------------------------------- part.c */

/* Of the files that parts share what nobody has begun: for all others there is room. */
berth_status berthi_part_missing_bytes(const berthi_convert *convert,
                                       berthi_writer *writer, uint64_t *out_bytes,
                                       berth_error *error);

/* Converts what is this part's; the writer was opened for it. */
berth_status berthi_part_run(berthi_convert *convert, berth_error *error);
/* As before it began: the first division, and no length known. */
berth_status berthi_part_forget(berthi_convert *convert, berth_error *error);

/* ---------------------------------------------------------------- convert_notes.c */

/* Words in the journal of a part about what it converts with a shard. */
berth_status berthi_part_make_notes(berthi_convert *convert, uint32_t shard,
                                    berthi_convert_notes *out, berth_error *error);
/* Takes them: lengths, checksums. JOURNAL: they are none of this part. */
berth_status berthi_part_take_notes(berthi_convert *convert, uint32_t part,
                                    uint32_t shard, const berthi_journal_file *file,
                                    berth_error *error);

/* -------------------------------------------------------------------- part_join.c */

/* report.parts_finished and parts_missing, by what all journals say. */
berth_status berthi_part_count(berthi_convert *convert, berth_error *error);

/*
 * Makes the shards out of what all parts have finished; files beside them and
 * publishing are the caller's. The writer was opened for joining. PARTS: some
 * are missing.
 */
berth_status berthi_part_join(berthi_convert *convert, berth_error *error);

#endif
