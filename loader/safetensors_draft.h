/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_draft.h - between the two halves of the header's parser: the
 * JSON, read once from front to back, and the tables built from it.
 *
 * The first half knows no sizes beforehand and allocates nothing. It packs what
 * it reads into records at the front of the text it has already read:
 *
 *   tensor   a berthi_record (not aligned), name, NUL, dims (base 128)
 *   pair     key, NUL, value length (base 128), value, NUL
 *
 * A record is never longer than its text. A tensor's text has 45 characters
 * besides its name, dtype and digits, more than the berthi_record and the NUL
 * take, and a number in base 128 is no longer than its digits. A pair's text
 * has 6, `"":"",`, as many as two NULs and the length of a value below 2^28;
 * the last pair lacks the comma, but `{"__metadata__":{` stands before.
 */
#ifndef BERTH_LOADER_SAFETENSORS_DRAFT_H
#define BERTH_LOADER_SAFETENSORS_DRAFT_H

#include <string.h>

#include "loader/findings.h"
#include "loader/safetensors.h"
#include "quant/scan.h"

/* Something to refuse once the whole text has proved to be JSON. */
typedef struct berthi_draft_refusal {
    bool is_set;
    const char *name; /* of a tensor or a pair, in its record */
    uint64_t name_length;
    uint64_t position; /* in the text */
    uint64_t actual;
} berthi_draft_refusal;

/* A dtype whose name ends within the eight bytes that it was read from. */
typedef struct berthi_draft_dtype {
    uint64_t word; /* 0: none yet */
    int32_t dtype;
    uint32_t length;
} berthi_draft_dtype;

typedef struct berthi_draft {
    berthi_scan scan;
    berthi_draft_dtype dtypes[2]; /* the last two: weights and scales alternate */
    uint64_t bytes; /* of records */
    uint64_t entry_count;
    uint64_t entry_text; /* bytes of names, NULs and dims */
    uint64_t pair_count;
    uint64_t pair_begin; /* the pairs lie together, between tensors */
    uint64_t pair_end;
    uint64_t last_begin; /* extent of the tensor before */
    uint64_t last_end;
    berthi_scan_text tensor; /* being read; bytes NULL: none */
    berthi_draft_refusal name;     /* U+0000 in a name or key */
    berthi_draft_refusal rank;
    berthi_draft_refusal dtype;    /* one that berth does not know */
    char dtype_shown[BERTHI_SHOWN_CAPACITY];
    bool has_metadata;
    bool has_null_metadata;
    bool has_leading_space;
    bool has_other_trailing;
    bool has_unknown_member;
    bool is_out_of_order;
} berthi_draft;

/* What a tensor's record begins with. */
typedef struct berthi_record {
    uint64_t begin;
    uint64_t end;
    uint32_t name_length;
    uint16_t dims_bytes;
    uint8_t dtype;
    uint8_t rank; /* BERTHI_MAX_RANK at most: with more, the tensor is refused */
} berthi_record;

/*
 * Reads well-formed UTF-8 into records. False when it is not the JSON of a
 * header; draft->scan then knows what is wrong and where.
 */
bool berthi_draft_can_read(berthi_draft *draft, char *text, uint64_t bytes);

/* The record at *at, which moves behind it: to name, NUL and dims. */
static inline berthi_record
berthi_draft_record(const char **at)
{
    berthi_record record;

    memcpy(&record, *at, sizeof record);
    *at += sizeof record;
    return record;
}

#endif
