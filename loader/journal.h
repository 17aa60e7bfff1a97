/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - the record of an output that is being written: which files are
 * finished, and how far publishing has come. berth-journal(5) describes it.
 *
 * Parses and prints the text; what it means for files is the writer's business
 * (writer.h). No I/O.
 */
#ifndef BERTH_LOADER_JOURNAL_H
#define BERTH_LOADER_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/json_text.h"

#define BERTHI_JOURNAL_NAME ".berth-journal.json"
/* What the files begin with that several processes share (writer_parts.h). */
#define BERTHI_JOURNAL_PARTS ".berth-part-"
#define BERTHI_JOURNAL_LOCK_END ".lock" /* behind the name of a part's journal */
#define BERTHI_JOURNAL_VERSION 1u
#define BERTHI_JOURNAL_LIMIT UINT64_C(1000000000) /* bytes of text */

/* A finished file; texts end in NUL. */
typedef struct berthi_journal_file {
    const char *name;      /* final; may lie in folders */
    const char *temporary; /* or shared: where it is until it is published; in no folder */
    uint64_t bytes;
    const uint32_t *notes;
    uint64_t note_count;
} berthi_journal_file;

typedef struct berthi_journal {
    const char *job;
    bool overwrite;
    bool is_publishing;
    const char *commit;  /* while publishing one of the files' names, else "" */
    const char **stale;  /* to be removed at the end; strictly ascending */
    uint64_t stale_count;
    berthi_journal_file *files; /* names strictly ascending */
    uint64_t file_count;
} berthi_journal;

/* A file that several processes share; and one that is more than a lock, which nobody made. */
bool berthi_journal_is_of_parts(const char *name);
bool berthi_journal_is_made_by_parts(const char *name);

/*
 * Parses `bytes` of text, which are changed. Everything in `out` belongs to
 * `arena`. Fails with JOURNAL and a position, UNSUPPORTED for a later version,
 * or NO_MEMORY; `out` is then all zero. `file` is for messages.
 */
berth_status berthi_journal_parse(char *text, uint64_t bytes, const char *file,
                                  berthi_arena *arena, berthi_journal *out,
                                  berth_error *error);

/*
 * Hands the text to `put` (NULL: only counts). Reads it back as it was when
 * the rules of the parser hold for it. *out_bytes may be NULL.
 */
berth_status berthi_journal_print(const berthi_journal *journal, berthi_json_put put,
                                  void *user, uint64_t *out_bytes, berth_error *error);

/*
 * What is wrong with a name of the set, as the end of a sentence: NULL when
 * nothing is. It is the path rule, and the journal's own name is taken.
 */
const char *berthi_journal_name_problem(const char *name, uint64_t length);

#endif
