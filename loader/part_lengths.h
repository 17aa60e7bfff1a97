/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_lengths.h - late lengths that parts tell each other, so that all places are
 * known where several write to a shard. Only for convert*.c and part*.c.
 *
 * There are fewer shards than parts: the weights of a shard are dealt out in the
 * order of their places, so that parts come forward side by side. Each tells its
 * lengths (writer_parts.h has the table) as soon as it has converted a weight, and
 * keeps what has no place yet; so it lags behind the others by little.
 *
 * Who keeps too much waits, but only while the first length that is missing in the
 * shard is another part's: whose it is goes on, so not all wait. Whoever is not at
 * work, or says nothing for too long, is not waited for: its weights are read, only to
 * know their lengths. A length depends on the weight alone, so it is no matter who
 * tells it, when, and how often.
 */
#ifndef BERTH_LOADER_PART_LENGTHS_H
#define BERTH_LOADER_PART_LENGTHS_H

#include "loader/convert_job.h"

#define BERTHI_PART_POLL_NS UINT64_C(1000000)

/* True for a length of a weight of this part that nobody has told. */
bool berthi_part_is_unknown(const berthi_convert *convert, uint32_t output, uint32_t part);

/* JOURNAL: others have been told another length. */
berth_status berthi_part_tell(berthi_convert *convert, uint32_t output, uint32_t bytes,
                              berth_error *error);
/* Takes what others have told, unless it just has: the layout knows more places. */
berth_status berthi_part_learn(berthi_convert *convert, berth_error *error);

/*
 * Before a shard is converted: all parts whose lengths in it are unknown are at work.
 * Those of others were found out.
 */
berth_status berthi_part_gather(berthi_convert *convert, uint32_t shard,
                                berth_error *error);
/* True while the first length that is missing in a shard is another part's. */
bool berthi_part_is_awaiting(const berthi_convert *convert, uint32_t shard);
/* Amid converting: PARTS when the next length is not worth waiting for. */
berth_status berthi_part_await(berthi_convert *convert, uint32_t shard,
                               berth_error *error);
/* Finds out what the part would tell next. After PARTS. */
berth_status berthi_part_measure_next(berthi_convert *convert, uint32_t shard,
                                      berth_error *error);
/* Afterwards no parcel for the shard is without a place. */
berth_status berthi_part_settle(berthi_convert *convert, uint32_t shard,
                                berth_error *error);

/*
 * A checksum of the lengths that decide where a part's tensors in a shard stand. All
 * of them are in `convert->lengths`.
 */
uint32_t berthi_part_places_crc(const berthi_convert *convert, uint32_t part,
                                uint32_t shard);

#endif
