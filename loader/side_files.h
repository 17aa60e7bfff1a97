/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_files.h - what lies beside the weights and goes along when they are
 * written anew: tokenizer, templates, code, licence, subfolders of such files.
 *
 * Everything in the model's folder does, except
 *   weights of any kind, their indexes, and subfolders that hold some: those are
 *     another model or another form of this one
 *   config.json, which is rewritten; configurations of a quantizer or an adapter
 *     that would describe the new weights wrongly; berth's manifests
 *   what is hidden (.git, .cache, .gitattributes, temporary files of berth and its
 *     journal), `original`, `__pycache__`, unfinished downloads
 *   names that the path rule (paths.h) does not allow
 *   links that lead out of the folder: into a hub cache they are followed, others
 *     could bring along any file of the person who converts a model
 * A model that is one file has such files only where config.json lies beside it.
 */
#ifndef BERTH_LOADER_SIDE_FILES_H
#define BERTH_LOADER_SIDE_FILES_H

#include <stdint.h>

#include "kernels/base.h"
#include "kernels/sys.h"
#include "loader/findings.h"
#include "loader/locate.h"

typedef struct berthi_side_file {
    const char *name;         /* below the folder: "vocab.json", "a/b.jinja"; UTF-8 */
    berthi_sys_stat identity; /* of the file, links followed; its size is in here  */
} berthi_side_file;

/* In bytewise order of their names. All memory belongs to the location's arena. */
typedef struct berthi_side_files {
    const berthi_side_file *files;
    uint32_t count;
    uint64_t bytes; /* of all */
} berthi_side_files;

/*
 * Finds them, and opens each once. The location is open, `error` is not NULL.
 * What is left out though its name says nothing against it is a warning, and so is
 * a folder that is called like a file of a model. Fails with MISSING_BLOB for a
 * link to nowhere, as the system did (PERMISSION, ...), or with NO_MEMORY; *out is
 * then empty.
 */
berth_status berthi_side_files_find(berthi_location *location, berthi_findings *findings,
                                    berthi_side_files *out, berth_error *error);

/* Takes `size` bytes that belong at `offset`; they come in order. */
typedef berth_status (*berthi_side_files_put)(void *user, const void *bytes,
                                              uint64_t size, uint64_t offset,
                                              berth_error *error);

/*
 * Hands all bytes of one of them to `put`, whose failure ends it. CHANGED when
 * it is no longer the file that was found. `error` is not NULL.
 */
berth_status berthi_side_files_read(berthi_location *location,
                                    const berthi_side_file *file,
                                    berthi_side_files_put put, void *user,
                                    berth_error *error);

#endif
