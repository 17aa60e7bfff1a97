/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_parts.h - one set of files written by several processes, on one
 * machine or on many that share a file system.
 *
 *   part 1 ─ open, share, write, finish, close ─┐
 *   part 2 ─ open, share, write, finish, close ─┼─▶ join: open, read_part,
 *   ...                                         │   take or create, finish, publish
 *
 * Files that parts share are called `.berth-part-<job>-<final name>`: all of
 * them write to one, each at places of its own. What a part has finished stands
 * in its journal, `.berth-part-<job>-<part>-of-<count>.json`. <job> is a
 * checksum of the job, so that another command does not mix with it. What parts tell
 * each other on the way stands in `.berth-part-<job>-table`. A part
 * holds a shared lock on the folder and the lock of `...json.lock`; who joins
 * holds the exclusive one, and removes all of this at the end.
 *
 * Nothing is moved inside a shared file: it stays as the parts' journals say
 * until the whole set has its final names, so that a join that was killed can
 * begin again.
 */
#ifndef BERTH_LOADER_WRITER_PARTS_H
#define BERTH_LOADER_WRITER_PARTS_H

#include "loader/journal.h"
#include "loader/writer.h"

#define BERTHI_WRITER_PARTS_MAX 10000u

/*
 * Opens, and makes if it is missing, the file of `bytes` bytes that parts share
 * under the final name `name`. Every part says the same length. End it with
 * berthi_writer_finish(), which flushes it and notes it in this part's journal,
 * with berthi_writer_release(), or with berthi_writer_drop(); the file stays.
 */
berth_status berthi_writer_share(berthi_writer *writer, const char *name, uint64_t bytes,
                                 berthi_writer_file **out, berth_error *error);

/* Flushes a shared file that this part does not note, and closes it. */
berth_status berthi_writer_release(berthi_writer *writer, berthi_writer_file *file,
                                   berth_error *error);

/*
 * How many parts have been at work on a job in a folder, by the names that they
 * have left there; 0: none, or no folder.
 */
berth_status berthi_writer_find_parts(const char *folder, const char *job,
                                      uint32_t *out_count, berth_error *error);

/* Notes that this part has come to its end, also where it had no file to finish. */
berth_status berthi_writer_record(berthi_writer *writer, berth_error *error);

/* What a part has finished. Texts and notes belong to the writer. */
typedef struct berthi_writer_part {
    bool is_there; /* it has a journal */
    const berthi_journal_file *files; /* names ascend */
    uint64_t file_count;
} berthi_writer_part;

/*
 * A table of numbers that parts tell each other while they are at work: a number
 * above 0 for each index. It is no record: what was told may be gone after power was
 * lost, and then is told by nobody. What stands there is of this job, and complete.
 */
berth_status berthi_writer_tell(berthi_writer *writer, uint32_t index, uint32_t number,
                                berth_error *error);
/* Hands over all numbers below `count` that were told. */
berth_status berthi_writer_hear(berthi_writer *writer, uint32_t count,
                                void (*take)(void *user, uint32_t index, uint32_t number),
                                void *user, berth_error *error);
/* True when a process is known to be this part, which is not this writer's. */
bool berthi_writer_is_part_there(berthi_writer *writer, uint32_t part);

/* Reads the journal of a part; nothing is finished where there is none. */
berth_status berthi_writer_read_part(berthi_writer *writer, uint32_t part,
                                     berthi_writer_part *out, berth_error *error);

/*
 * While joining: the shared file becomes a file of the set, to be written to and
 * finished, which cuts it to its final length.
 */
berth_status berthi_writer_take(berthi_writer *writer, const char *name, uint64_t bytes,
                                berthi_writer_file **out, berth_error *error);

/* Whether the shared file of that name is there, of `bytes` bytes. */
berth_status berthi_writer_has_shared(berthi_writer *writer, const char *name,
                                      uint64_t bytes, bool *out_is_there,
                                      berth_error *error);

/*
 * True for a part that goes on (`resume`) with a set that was being joined: its
 * share is finished, and so are all others.
 */
bool berthi_writer_is_joining(const berthi_writer *writer);

/*
 * Gives the folder's lock back: others may join, while this part, which has come
 * to its end, reads on. False when locks do not work here: then no part knows
 * whether it is the last.
 */
bool berthi_writer_let_go(berthi_writer *writer);

#endif
