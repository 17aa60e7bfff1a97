/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h - a file under a temporary name until it is complete: there then, not before.
 *
 *     draft_begin(&d, path, may_overwrite)
 *     write(d.fd, ...) ...
 *     draft_end(&d, is_complete)
 *
 * A signal that ends the process takes what is not complete with it: interrupt.h.
 */
#ifndef BERTH_TOOLS_DRAFT_H
#define BERTH_TOOLS_DRAFT_H

#include <stdbool.h>

typedef struct draft {
    const char *path;
    char *temporary;  /* beside it; NULL: nothing was begun, or in place */
    bool is_in_place; /* a pipe or a device: nothing to complete */
    bool may_overwrite;
    int fd;
} draft;

/*
 * Begins a file beside `path`, which draft_end() puts in its place. A file that is replaced
 * passes on its mode, and owner and group where they can be given. What is there and no
 * regular file is written to as it is. Returns 0, or errno: EEXIST where a file is there that
 * may not be replaced, EISDIR of a folder, ENOENT of no name, too.
 */
int draft_begin(draft *d, const char *path, bool may_overwrite);
/*
 * Makes the file appear, on the disk, if it is complete, or leaves nothing behind; also where
 * nothing was begun. Returns 0, or errno of what failed: EEXIST, as above, if it has come
 * meanwhile.
 */
int draft_end(draft *d, bool is_complete);

#endif
