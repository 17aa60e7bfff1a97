/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members.h - reading a JSON document whose members have one order: what berth's own
 * files are.
 *
 * A call that returns false has failed, the scanner's or one of these, and is the last
 * but berthi_members_end(), which returns its status. They may be chained with &&.
 */
#ifndef BERTH_QUANT_MEMBERS_H
#define BERTH_QUANT_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/scan.h"

typedef struct berthi_members {
    berthi_scan scan;
    const char *file;     /* for messages */
    berth_reason reason;  /* of what is wrong with the text */
    const char *what;     /* "a plan" */
    berthi_arena *arena;  /* of texts */
    berth_error *error;
    berth_status status;  /* of what the scanner does not know about */
    bool has_key;         /* one has been read and is not what was looked for */
    bool has_ended;       /* the object has: looked for a key behind the last one */
    berthi_scan_text key;
    uint64_t key_at;
} berthi_members;

/* `text` is changed. Members from `file` to `error` have been set, the others are 0. */
bool berthi_members_can_begin(berthi_members *m, char *text, uint64_t bytes);
/* The text is at its end; returns the status of all of it. */
berth_status berthi_members_end(berthi_members *m);

/* Records what is wrong at the current position. Returns false. */
bool berthi_members_stop(berthi_members *m, const char *message);
bool berthi_members_stop_memory(berthi_members *m);
/* The next member is called `key`; its value comes next. */
bool berthi_members_can_read_key(berthi_members *m, const char *key);
/* The same, if it is there; *out_is_there says so. False only after a failure. */
bool berthi_members_can_find_key(berthi_members *m, const char *key, bool *out_is_there);
/* The object has no member more. */
bool berthi_members_is_at_end(berthi_members *m);
/* "schema_version": 1 to `version`; a later one is UNSUPPORTED. */
bool berthi_members_can_read_version(berthi_members *m, uint64_t version);

/* The value that comes next; see below. */
bool berthi_members_can_take_text(berthi_members *m, const char **out);

/* Key and value. Texts end in a NUL, hold no other, and belong to the arena. */
bool berthi_members_can_read_text(berthi_members *m, const char *key, const char **out);
bool berthi_members_can_read_number(berthi_members *m, const char *key, uint64_t *out);
/* The same; null is UINT64_MAX. */
bool berthi_members_can_read_limit(berthi_members *m, const char *key, uint64_t *out);
bool berthi_members_can_read_below(berthi_members *m, const char *key, uint64_t limit,
                                   uint64_t *out);
bool berthi_members_can_read_bool(berthi_members *m, const char *key, bool *out);
/* Elements of the array that has been entered, without reading them. */
uint64_t berthi_members_count(const berthi_members *m);
/* Key and an array: enters it, and counts its elements. */
bool berthi_members_can_enter_array(berthi_members *m, const char *key,
                                    uint64_t *out_count);

#endif
