/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - a set of new files in one folder that appear together.
 *
 *   open ──▶ create, write ..., finish ──▶ ... ──▶ publish ──▶ close
 *                    │ finished: durable, and listed in the journal
 *                    └─ crash, kill, full disk, cancel: finished files and the
 *                       journal stay, and open with `resume` knows them again
 *
 * Each file is written under a temporary name (temporary.h).
 * The journal, `.berth-journal.json` (berth-journal(5)), is replaced after each
 * finished file. publish renames everything, the commit file last: the index,
 * or the one file of a model without. A crash at any point leaves the old
 * model whole, or the new model whole, or a folder without commit point whose
 * journal lets `resume` go on.
 *
 * Several processes, on several machines, make one set as parts: writer_parts.h.
 *
 * Threads: any for all calls but open, publish and close, which come alone. One
 * file is created, finished, renamed or dropped while nobody else uses it.
 */
#ifndef BERTH_LOADER_WRITER_H
#define BERTH_LOADER_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

typedef struct berthi_writer berthi_writer;

/*
 * One file of the set. Owned by the writer; a caller reads `name`, `bytes`,
 * `notes`, `note_count` and `is_finished` and changes nothing.
 */
typedef struct berthi_writer_file berthi_writer_file;
struct berthi_writer_file {
    const char *name;      /* final, below the folder: "a.json", "b/c.txt" */
    uint64_t bytes;        /* as created; once finished the final size */
    const uint32_t *notes; /* what the caller gave to finish, in its order */
    uint64_t note_count;
    bool is_finished;

    /* The writer's own. */
    const char *path;       /* as the caller would write it */
    const char *temporary;  /* in the folder */
    int fd;                 /* -1: finished */
    bool is_published;      /* stands under its final name */
    bool is_listed;         /* in the list of the set; a shared one once it is finished */
    bool is_shared;         /* all parts write to it: it stays whoever drops it */
    _Atomic bool has_failed; /* what was written may be lost: it cannot be finished */
    _Atomic uint64_t written;
    _Atomic uint32_t *windows; /* bytes written of each; behind them, in the order in */
    uint64_t window_count;     /* which their write-back began, their numbers plus 1 */
    uint64_t window_bytes;     /* unless there are none */
    _Atomic uint64_t begun;    /* windows whose write-back has begun */
    _Atomic uint64_t left;     /* windows that a part has been through: looked at once more */
    berthi_writer_file *next;  /* names ascend */
};

typedef struct berthi_writer_options {
    /*
     * What identifies the same command on the same source, in lines; a resume
     * needs equality and names the first line that differs. UTF-8; copied.
     */
    const char *job;
    bool overwrite; /* the folder may hold something; a journal is begun anew */
    bool resume;    /* go on where the journal of the same job ends, if there is one */
    /*
     * 0: one process writes the whole set. Else the number of parts that do, and
     * which of them this one is, from 1; 0: the one that joins them.
     */
    uint32_t part_count;
    uint32_t part;
} berthi_writer_options;

/*
 * Opens the folder, which is made if it is missing (the last component only),
 * and takes its lock. Refused: a folder of the hub cache, one that is being
 * removed or cannot be written (NOT_FOUND, PERMISSION, ...), one that another
 * process writes to (BUSY), one that is not empty (EXISTS, unless `overwrite`)
 * or has a journal (EXISTS, unless `overwrite` or `resume`), the journal of
 * another job (ARGUMENT) or a broken one (JOURNAL) with `resume`. Removes
 * temporary files that no journal lists and whose owner is dead.
 *
 * Parts are let in together, and nobody else; each has a journal of its own, to
 * which the words above apply. The one that joins goes on with an earlier join.
 */
berth_status berthi_writer_open(berth_context *context, const char *folder,
                                const berthi_writer_options *options,
                                berthi_writer **out, berth_error *error);

/*
 * True when the run that is resumed had everything finished and had begun to
 * publish: nothing is left but berthi_writer_publish() with NULL as its name.
 */
bool berthi_writer_is_complete(const berthi_writer *writer);

/* A file of the set by its final name, finished or not; NULL: there is none. */
berthi_writer_file *berthi_writer_find(berthi_writer *writer, const char *name);

/* DISK_FULL unless `bytes` more fit on the file system: for the sum, at the start. */
berth_status berthi_writer_check_space(berthi_writer *writer, uint64_t bytes,
                                       berth_error *error);

/*
 * Begins a file of `bytes` bytes; their space is checked and reserved. `name`
 * obeys the path rule (paths.h), and the set has neither a file nor a folder of
 * that name (ARGUMENT). Its folders are made when it is published.
 */
berth_status berthi_writer_create(berthi_writer *writer, const char *name, uint64_t bytes,
                                  berthi_writer_file **out, berth_error *error);

/*
 * `size` bytes at `offset`, inside what was created; each byte is written at
 * least once. Several threads may write to one file. Pages on their way to the
 * disk are limited, and dropped from the cache behind the writers; that is why
 * a call may wait for the disk.
 */
berth_status berthi_writer_write(berthi_writer *writer, berthi_writer_file *file,
                                 const void *bytes, uint64_t size, uint64_t offset,
                                 berth_error *error);

/* Exactly `size` bytes at `offset`, of a finished file too. */
berth_status berthi_writer_read(berthi_writer *writer, berthi_writer_file *file,
                                void *buffer, uint64_t size, uint64_t offset,
                                berth_error *error);

/*
 * Moves `bytes` bytes inside an unfinished file, through a bounded buffer; the
 * file grows where the target lies behind its end. Nobody writes meanwhile.
 */
berth_status berthi_writer_move(berthi_writer *writer, berthi_writer_file *file,
                                uint64_t from, uint64_t to, uint64_t bytes,
                                berth_error *error);

/*
 * Cuts the file to `bytes`, makes it durable and lists it in the journal. The
 * notes are copied; a resume finds them again. After a failure the file can
 * only be dropped: what was not flushed once is not flushed by trying again.
 */
berth_status berthi_writer_finish(berthi_writer *writer, berthi_writer_file *file,
                                  uint64_t bytes, const uint32_t *notes,
                                  uint64_t note_count, berth_error *error);

/*
 * Another final name. The journal learns it when it is written next: a file is
 * found under its old name if the process dies before.
 */
berth_status berthi_writer_rename(berthi_writer *writer, berthi_writer_file *file,
                                  const char *name, berth_error *error);

/* Takes a file out of the set, finished or not, and removes it. NULL is allowed. */
void berthi_writer_drop(berthi_writer *writer, berthi_writer_file *file);
/* Does so with all but those that are `kept`. Alone. */
void berthi_writer_drop_others(berthi_writer *writer,
                               bool (*is_kept)(const void *user,
                                               const berthi_writer_file *file),
                               const void *user);

/*
 * Names that an older model's files have in the folder, strictly ascending; they
 * outlive the writer. What is none of the set's is removed when the set is published.
 */
berth_status berthi_writer_add_stale(berthi_writer *writer, const char *const *names,
                                     uint64_t count, berth_error *error);

/*
 * Gives every file its final name; all must be finished. `commit_name` is the
 * file that comes last and lies in no folder; NULL: as the journal says. With
 * `overwrite` the commit points of an old model go first, and afterwards the
 * shards that only its index named. On failure the journal stays: a resume publishes the rest.
 */
berth_status berthi_writer_publish(berthi_writer *writer, const char *commit_name,
                                   berth_error *error);

/* True when closing it now leaves something for a resume. */
bool berthi_writer_has_finished(const berthi_writer *writer);

/*
 * Removes what is unfinished. Finished files and the journal stay unless they
 * were published; without a finished file everything goes, and the folder too
 * if this writer made it. NULL is allowed.
 */
void berthi_writer_close(berthi_writer *writer);

#endif
