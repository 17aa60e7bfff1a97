/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sniff.h - files mistaken for weights: what the first bytes show, and what to
 * do about it.
 *
 * No I/O. Asked only after a file was refused: a recognised look-alike replaces
 * the reason and the message, the refusal itself stays.
 */
#ifndef BERTH_LOADER_SNIFF_H
#define BERTH_LOADER_SNIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

/* First bytes that are looked at. */
#define BERTHI_SNIFF_BYTES 4096u

/* What a file is. NONE: nothing that is known. */
typedef struct berthi_sniff {
    berth_reason reason;       /* BERTH_REASON_NONE, or LFS_POINTER ... ZERO_FILLED */
    const char *what;          /* "a git-lfs pointer", ...; a constant              */
    bool has_promised_bytes;   /* git-lfs: size of the weights                      */
    uint64_t promised_bytes;
    char promised_sha256[65];  /* git-lfs: 64 hex digits, or ""                     */
} berthi_sniff;

/* `head` holds the first min(BERTHI_SNIFF_BYTES, file_bytes) bytes. */
void berthi_sniff_look(const uint8_t *head, uint64_t head_bytes, berthi_sniff *out);

/*
 * Rewrites `error`, with which the header's parser refused `file` of
 * `file_bytes`, when the first bytes show a look-alike; COVERAGE of a file that
 * is too short becomes INCOMPLETE. Returns the status of `error`.
 */
berth_status berthi_sniff_explain(const uint8_t *head, uint64_t head_bytes,
                                  uint64_t file_bytes, const char *file,
                                  berth_error *error);

/*
 * The same for a text (index, config.json) that should begin with `{` and does
 * not: true when `error` was filled.
 */
bool berthi_sniff_has_refused_text(const char *text, uint64_t bytes, const char *file,
                                   berth_error *error);

#endif
