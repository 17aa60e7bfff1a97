/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h - the texts of a hub cache: what people type as a repository, what a
 * ref holds, what a revision's list of files says.
 *
 *   models--<org>--<name>/refs/<revision>        the commit: 40 hex digits, as text
 *                        /snapshots/<commit>/    the files, as a rule links to blobs
 *                        /blobs/<hash>           the bytes; 64 hex digits are their SHA-256
 *                        /trees/<commit>.json    all files and their sizes; may be missing
 *
 * No I/O. All of these come from users or from files that anybody may have
 * written: nothing becomes part of a path before it has been checked here.
 */
#ifndef BERTH_LOADER_HUB_H
#define BERTH_LOADER_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_HUB_COMMIT 40u     /* hex digits */
#define BERTHI_HUB_DIGEST 64u     /* hex digits of a blob's SHA-256 */
#define BERTHI_HUB_REF_LIMIT 4096u
#define BERTHI_HUB_TREE_LIMIT UINT64_C(16777216)

/* `org/name[@revision]`, taken apart: pieces of the given text. */
typedef struct berthi_hub_name {
    const char *organisation; /* NULL: none */
    uint32_t organisation_length;
    const char *name;
    uint32_t name_length;
    const char *revision; /* to the end of the text; "main" when none was given */
} berthi_hub_name;

/*
 * True when `text` has the form of a repository. False with *out_problem NULL:
 * it is something else, such as a path; otherwise what is wrong with the
 * revision behind a name that could be one.
 */
bool berthi_hub_is_name(const char *text, berthi_hub_name *out,
                        const char **out_problem);

/* True for exactly `digits` lower-case hex digits. */
bool berthi_hub_is_hex(const char *text, uint64_t length, uint64_t digits);

/* The commit in the text of a ref, white space trimmed; NULL when it is none. */
const char *berthi_hub_ref_commit(const char *text, uint64_t bytes);

/*
 * If `path` is `.../models--*` + `/snapshots/<commit>`, or below that, the length
 * of what stands before `/snapshots`; else 0. *out_commit is where the commit
 * begins, or NULL.
 */
uint64_t berthi_hub_home_length(const char *path, const char **out_commit);

/* The SHA-256 that a path promises as `.../blobs/<64 hex digits>`; NULL: none. */
const char *berthi_hub_blob_digest(const char *path);

/* What trees/<commit>.json says about one file. */
typedef struct berthi_hub_listed {
    bool is_readable; /* the text is such a list */
    bool is_listed;
    bool has_bytes;
    uint64_t bytes;
} berthi_hub_listed;

/* Looks for `path` in `bytes` of text, which are changed. Allocates nothing. */
void berthi_hub_tree_find(char *text, uint64_t bytes, const char *path,
                          berthi_hub_listed *out);

#endif
