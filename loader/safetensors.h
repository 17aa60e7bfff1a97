/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - bytes of a header -> checked tensor descriptions.
 *
 * No I/O. The parser is the gate: extents, sizes, dtypes and shapes that leave
 * it were validated together, and nobody downstream recomputes one of them.
 *
 * Verdicts and their order: length prefix, UTF-8, JSON, then name, rank and
 * duplicate (berth's own), then the tensors in order of (begin, end, name):
 * offset, overflow, subbyte, size_mismatch; last coverage.
 */
#ifndef BERTH_LOADER_SAFETENSORS_H
#define BERTH_LOADER_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/blamed.h"

#define BERTHI_HEADER_PREFIX 8u
#define BERTHI_HEADER_LIMIT UINT64_C(100000000)
#define BERTHI_MAX_RANK 64u

/* One tensor: 40 bytes, and its name and shape in the table's text. */
typedef struct berthi_entry {
    uint64_t text;        /* offset in the table's text: name, NUL, then the dims
                             as base-128 numbers, lowest bits first              */
    uint64_t begin;       /* of the data section */
    uint64_t end;
    uint32_t name_length;
    uint32_t shard;       /* 0 here; set by the checkpoint */
    uint8_t dtype;
    uint8_t rank;
    uint16_t flags;       /* for the owner of the table; 0 here */
    uint32_t owner;       /* for the owner of the table; 0 here */
} berthi_entry;

/*
 * What a header says. `entries` are in order of (begin, end, name); `by_name`
 * holds their numbers in bytewise order of names, memcmp then length.
 * Everything is in four allocations of the exact size.
 */
typedef struct berthi_header {
    berth_context *context;
    char *text;
    uint64_t text_bytes;
    berthi_entry *entries;
    uint32_t *by_name;
    uint64_t entry_count;
    uint32_t *pairs; /* __metadata__: places in `text`, bytewise order of keys */
    uint64_t pair_count;
    uint64_t tensor_bytes;
    /* What strict mode asks about; false for everything berth writes. */
    bool has_leading_space;
    bool has_other_trailing; /* other than 0x20 */
    bool has_unknown_member;
    bool has_null_metadata;
    bool is_out_of_order;    /* members not in order of offsets */
    bool is_as_listed; /* its names are those of the list, and by_name is in its order */
    berthi_blamed blamed; /* after a failure */
} berthi_header;

/*
 * The length prefix against the size of the file. `prefix` holds the first
 * min(8, file_bytes) bytes. On success *out_bytes is N.
 */
berth_status berthi_header_length(const uint8_t *prefix, uint64_t file_bytes,
                                  const char *file, uint64_t *out_bytes,
                                  berth_error *error);

/*
 * Parses `bytes` of header text, which are changed, with `data_bytes` of data
 * section behind them (file size - 8 - bytes). `text` must stay valid during
 * the call only. `file` is for messages. Positions in errors count from the
 * start of the file. On success `out` is filled; free it with
 * berthi_header_fini(). On failure it is all zero, but for the name that is to
 * blame, which then lies in `text`; NULL when there is none.
 */
berth_status berthi_header_parse(berth_context *context, char *text, uint64_t bytes,
                                 uint64_t data_bytes, const char *file,
                                 berthi_header *out, berth_error *error);

/* Different names, as somebody else lists them for a header. */
typedef struct berthi_name_list {
    const char *text; /* each name ends in NUL */
    uint64_t text_bytes;
    const uint32_t *names; /* offsets */
    uint64_t count;
} berthi_name_list;

/* The same; names that are those of the list, in order of extents, are not sorted. */
berth_status berthi_header_parse_listed(berth_context *context, char *text,
                                        uint64_t bytes, uint64_t data_bytes,
                                        const berthi_name_list *list, const char *file,
                                        berthi_header *out, berth_error *error);
/* All-zero is allowed. */
void berthi_header_fini(berthi_header *header);

/* A pair of __metadata__, borrowed from the header. Both end in NUL. */
typedef struct berthi_pair {
    const char *key;
    const char *value; /* may contain NUL */
    uint64_t key_length;
    uint64_t value_length;
} berthi_pair;

/* The pair at `number` < pair_count. */
berthi_pair berthi_header_pair(const berthi_header *header, uint64_t number);

/* Name of an entry of a table with this text; ends in NUL. */
static inline const char *
berthi_entry_name(const char *text, const berthi_entry *entry)
{
    return text + entry->text;
}

/* Writes the entry's `rank` dims. */
void berthi_entry_shape(const char *text, const berthi_entry *entry, uint64_t *shape);
/* Product of the dims: checked by the parser, so it cannot overflow here. */
uint64_t berthi_entry_elements(const char *text, const berthi_entry *entry);

/* Bytewise, shorter first: the one order of names. */
int berthi_name_compare(const char *a, uint64_t a_length, const char *b,
                        uint64_t b_length);
/*
 * The same for names that begin with *shared same bytes: reads them behind
 * these. *shared ends as the number of all they have in common.
 */
int berthi_name_compare_behind(const char *a, uint64_t a_length, const char *b,
                               uint64_t b_length, uint64_t *shared);

#endif
