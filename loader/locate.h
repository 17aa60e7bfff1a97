/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locate.h - from what a person typed to the folder in which a model lies, and
 * to the files in it.
 *
 * Owns the folder's descriptor, and that of the hub repository around it. All
 * files of a checkpoint are opened here, relative to those descriptors, so
 * that what was checked is what is used. The library reads no environment:
 * where the hub cache is comes from the caller.
 *
 * `error` is never NULL here: what failed decides what is looked at next.
 */
#ifndef BERTH_LOADER_LOCATE_H
#define BERTH_LOADER_LOCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/file.h"

typedef struct berthi_location {
    berth_context *context;
    berthi_arena arena; /* of all texts */
    int folder;         /* descriptor; -1: none */
    const char *folder_path; /* as the caller would write it; "": the working folder */
    const char *file;   /* the one file of the folder that was named; NULL: none */
    berthi_file_links links; /* INSIDE: they must not leave the folder, or the repository */
    bool may_start;     /* a thread to read a long text with; false at first */

    int home;                /* descriptor of models--org--name; -1: not in a cache */
    const char *home_path;   /* as the caller would write it, or absolute */
    const char *inside_home; /* way from home to the folder, "snapshots/..." */
    const char *commit;      /* "": not in a cache */
} berthi_location;

/*
 * Finds `path`: a folder, a file, a folder of the hub cache, or, when there is
 * nothing of that name and `hub_cache` is given, a repository in it.
 * On success fini it; on failure it is as after fini.
 */
berth_status berthi_location_init(berthi_location *location, berth_context *context,
                                  const char *path, const char *hub_cache,
                                  bool is_inside, berth_error *error);
/*
 * The same folder once more, with descriptors and texts of its own, wherever its path leads
 * by now; `file` is the one that was named in it, or NULL.
 */
berth_status berthi_location_init_again(berthi_location *location, berth_context *context,
                                        const berthi_location *other, const char *file,
                                        berth_error *error);
/* Closes the descriptors, which no open file needs, and frees the texts. All-zero is not
   allowed. */
void berthi_location_fini(berthi_location *location);

/* `name` below the folder as the caller would write it; NULL: out of memory. */
const char *berthi_location_path(berthi_location *location, const char *name);

/*
 * What stands under `name` in the folder, links not followed: *out_has false
 * when nothing does. A folder of that name counts as nothing.
 */
berth_status berthi_location_has(berthi_location *location, const char *name,
                                 bool *out_has, berth_error *error);

/*
 * Opens `name`, component by component. Missing files are explained: a link
 * whose target is gone is MISSING_BLOB, an unfinished download INCOMPLETE, and
 * anything else `missing` with `why`, a whole sentence.
 */
berth_status berthi_location_open(berthi_location *location, const char *name,
                                  berth_reason missing, const char *why,
                                  berthi_file *file, berth_error *error);

/*
 * Reads a whole text of at most `limit` bytes; larger is `reason`, and so are
 * files that are mistaken for texts. Free *out_text (*out_bytes of HEADER).
 */
berth_status berthi_location_read(berthi_location *location, const char *name,
                                  uint64_t limit, berth_reason reason, char **out_text,
                                  uint64_t *out_bytes, berth_error *error);

/*
 * Whether the list of the revision's files names `name`; false when there is
 * no such list. *out_bytes is its size there, 0 when the list does not say.
 */
bool berthi_location_is_listed(berthi_location *location, const char *name,
                               uint64_t *out_bytes);

/* Unfinished downloads around the folder; 0 when nothing is known of any. */
uint64_t berthi_location_unfinished(berthi_location *location, const char *name);

#endif
