/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_state.h - what the files of the writer share: writer_open.c (folder,
 * lock), writer_resume.c (an old journal), writer.c (files), writer_bytes.c (their bytes),
 * writer_parts.c (several processes), writer_table.c (what they tell each other),
 * writer_folders.c (folders on the way to a file) and writer_publish.c.
 */
#ifndef BERTH_LOADER_WRITER_STATE_H
#define BERTH_LOADER_WRITER_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/journal.h"
#include "loader/temporary.h"
#include "loader/writer.h"

#define BERTHI_WRITER_NAME 128u /* of what a part has for itself; ends in NUL */

struct berthi_writer {
    berth_context *context;
    const char *path; /* of the folder, without slashes at its end */
    const char *journal_name; /* in the folder */
    const char *journal_path;
    const char *job;
    const char *prefix; /* of what parts share; NULL: there are none */
    const char *set_job; /* with parts: of the whole set */
    uint32_t seed;        /* with parts: of the checks in their table */
    uint32_t part_count;
    uint32_t part;      /* 0: all, or the one that joins */
    int part_lock;      /* descriptor; -1: not open */
    bool is_locked;     /* the file system has let us lock the folder */
    bool is_joining;    /* a part finds that its set was being joined */
    bool is_recorded;   /* the journal stays even if it lists no file */
    int folder;       /* descriptor, locked; -1: not open */
    int parent;       /* that of the folder around one that was made here; or -1 */
    bool overwrite;
    bool has_made_folder;
    bool has_lock;      /* the mutex below exists */
    bool has_journal;   /* a journal of this job stands in the folder */
    bool is_publishing; /* all was finished, and `commit` is known */
    const char *commit;
    const char **stale; /* shards that go at the end; strictly ascending */
    uint64_t stale_count;

    pthread_mutex_t lock; /* over what follows, while files are written */
    berthi_arena texts;
    berthi_writer_file *files; /* names ascend */
};

/* ------------------------------------------------------------- writer_parts.c */

/* The name of a part's journal. */
void berthi_writer_name_journal(const berthi_writer *writer, uint32_t part,
                                char out[BERTHI_WRITER_NAME]);
/* The names of what parts share; job and journal_name become this part's. */
berth_status berthi_writer_name_parts(berthi_writer *writer, berth_error *error);
/* The journal's name and path, and for a part the names above. Behind path, job and parts. */
berth_status berthi_writer_place_journal(berthi_writer *writer, berth_error *error);
/* BUSY: another process is this part. */
berth_status berthi_writer_lock_part(berthi_writer *writer, berth_error *error);
/* True for files of parts: *out_is_own: of this job's. */
bool berthi_writer_is_of_parts(const berthi_writer *writer, const char *name,
                               bool *out_is_own);
/* Removes the files of parts, those of this job only unless `overwrite`. */
berth_status berthi_writer_remove_parts(berthi_writer *writer, berth_error *error);

/* Where a file is to appear; borrows from both. */
berthi_target berthi_writer_target(const berthi_writer *writer,
                                   const berthi_writer_file *file);

/* ------------------------------------------------------------ writer_resume.c */

/*
 * Looks for an earlier run in the folder, which is locked: a whole set, a part and whoever
 * joins go on with it, begin anew or refuse, each by its own rules.
 */
berth_status berthi_writer_look_around(berthi_writer *writer, bool is_resume,
                                       berth_error *error);
/*
 * Takes what the journal says is finished, and changes nothing in the folder. JOURNAL; ARGUMENT:
 * it is of another job.
 */
berth_status berthi_writer_resume(berthi_writer *writer, berth_error *error);
/* EXISTS when the folder may not be touched without being asked to. */
berth_status berthi_writer_check_contents(const berthi_writer *writer, bool has_journal,
                                          berth_error *error);
/*
 * Whether a part has a journal, and EXISTS when it may neither go on nor begin anew. One that goes
 * on was let into the folder before, and its journal says whether it replaces what is there.
 */
berth_status berthi_writer_check_part(const berthi_writer *writer, bool has_journal,
                                      bool is_resume, bool *out_has_own,
                                      berth_error *error);

/* Parses the journal `name`; texts belong to the writer. */
berth_status berthi_writer_read_journal(berthi_writer *writer, const char *name,
                                        const char *path, berthi_journal *out,
                                        berth_error *error);
/* Whether `name` stands in the folder as a file of exactly `bytes` bytes. */
berth_status berthi_writer_has_whole(const berthi_writer *writer, const char *name,
                                     uint64_t bytes, bool *out_has, berth_error *error);
/* The text of a file in the folder; free it as DOCUMENT. A larger one is `reason`. */
berth_status berthi_writer_read_text(berthi_writer *writer, const char *name,
                                     const char *path, uint64_t limit,
                                     berth_reason reason, char **out_text,
                                     uint64_t *out_bytes, berth_error *error);

/* ----------------------------------------------------------- writer_folders.c */

/* EXISTS, NOT_REGULAR, ...: what stands in the way of a file; nothing is changed. */
berth_status berthi_writer_check_target(const berthi_writer *writer, const char *name,
                                        const char *path, berth_error *error);
/* The folders that `name` lies in: all of them are there afterwards. */
berth_status berthi_writer_make_folders(const berthi_writer *writer, const char *name,
                                        const char *path, berth_error *error);
/* Makes the names in them durable, but for the output's own. */
berth_status berthi_writer_flush_folders(const berthi_writer *writer, const char *name,
                                         berth_error *error);
/*
 * Removes a file, if `is_file`, and those of its folders that are empty then. What
 * cannot be removed stays; what lies behind a link is not looked at.
 */
berth_status berthi_writer_remove_stale(const berthi_writer *writer, const char *name,
                                        bool is_file, berth_error *error);

/* --------------------------------------------------------------------- files */

/* Counters of what is written; NULL is freed, too. */
berth_status berthi_writer_make_windows(const berthi_writer *writer,
                                        berthi_writer_file *file, berth_error *error);
void berthi_writer_free_windows(const berthi_writer *writer, berthi_writer_file *file);
/* Puts a file into the list by its name. */
void berthi_writer_insert(berthi_writer *writer, berthi_writer_file *file);
/* A zeroed file of that name, not in the list; NULL: out of memory. */
berthi_writer_file *berthi_writer_make_file(berthi_writer *writer, const char *name);

/*
 * Two lists of names, each strictly ascending, as one. `b` may hold anything:
 * only what is a shard's name and no file of the set is taken from it.
 */
berth_status berthi_writer_merge_stale(berthi_writer *writer, const char *const *b,
                                       uint64_t b_count, berth_error *error);

/* Replaces the journal by one that says what is finished now. */
berth_status berthi_writer_save(berthi_writer *writer, berth_error *error);

#endif
