/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - which tensor of a new model goes into which shard, and where.
 *
 * Owns the division into shards, which is that of transformers, the order inside
 * a shard, the canonical header and the names of the shards. No I/O.
 *
 *   division  in fill order. A tensor larger than the limit gets a shard of its
 *             own, numbered before the one that is being filled; any other that
 *             does not fit there any more closes it and begins the next one
 *   order     by dtype as in BERTH_DTYPES, then by name, bytewise; no gaps
 *   header    __metadata__ first, then the tensors in their order, without blanks;
 *             blanks behind it fill it up to a multiple of 8 bytes
 *   names     model-00001-of-00002.safetensors; of a single shard model.safetensors
 *
 * Some lengths are guesses at first: a tensor is late until its length is set.
 * The place of a tensor is final once all tensors before it in its shard have
 * their length, and its shard once all before it in fill order have. Nothing is
 * locked: one thread at a time.
 */
#ifndef BERTH_LOADER_LAYOUT_H
#define BERTH_LOADER_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/json_text.h"

/*
 * One tensor. Names are never put together: `name` and `suffix` are compared
 * and printed one after the other. All texts and shapes are borrowed and stay
 * with the caller until the layout is destroyed.
 *
 * Tensors of one group are pieces of one tensor of the model: they go into one
 * shard, where their bytes count as those of a single tensor. They follow each
 * other in fill order (as they do with the same `fill_name`) and are not late.
 */
typedef struct berthi_layout_tensor {
    const char *name;      /* `name_length` bytes; need not end in NUL             */
    const char *suffix;    /* ends in NUL; NULL: none                              */
    const char *fill_name; /* counts instead of `name` in fill order; NULL: it does */
    const uint64_t *shape; /* NULL: one dim, `bytes`; of an 8-bit dtype only       */
    uint64_t bytes;
    uint32_t name_length;
    uint32_t fill_name_length;
    uint32_t rank;         /* means nothing with a NULL shape                      */
    uint32_t group;        /* from 1; 0: none                                      */
    int32_t dtype;
    bool is_late;          /* `bytes` is a guess; needs a NULL shape               */
    /* Filled by the layout: */
    uint32_t shard;        /* from 0                                               */
    uint32_t place;        /* among the tensors of the shard                       */
    uint32_t text_bytes;   /* of its header entry, without the numbers that change */
    uint64_t offset;       /* in the payload of the shard                          */
} berthi_layout_tensor;

/* A pair of __metadata__; texts end in NUL. */
typedef struct berthi_layout_pair {
    const char *key;
    const char *value;
} berthi_layout_pair;

typedef struct berthi_layout_options {
    uint64_t max_shard_bytes; /* of payload; 0: no limit */
    /* For every shard, in bytewise order of keys. NULL: no __metadata__ at all. */
    const berthi_layout_pair *pairs;
    uint32_t pair_count;
    /*
     * Shards are filled in the order given. Else in dot-natural order of names
     * (`fill_name`, then group, then `name`), as transformers does. Names are split at
     * dots. Parts of digits alone are compared as numbers and come before other parts,
     * which are compared bytewise; equal numbers are compared as text.
     */
    bool is_in_order;
} berthi_layout_options;

/* {"format":"pt"}: transformers 4 and accelerate refuse metadata without a format. */
extern const berthi_layout_pair berthi_layout_format[1];

typedef struct berthi_layout berthi_layout;

/*
 * Checks `count` tensors, which stay with the caller and are filled, and
 * divides them once. Refuses (reason) a name that no header can hold (NAME),
 * the same name twice (DUPLICATE), a shape of too many dims (RANK) or that
 * does not give `bytes` (SIZE_MISMATCH, SUBBYTE, OVERFLOW), a header that
 * readers would refuse for its length (UNSUPPORTED), and more than 2^31 - 1
 * tensors or 2^63 - 1 bytes (UNSUPPORTED). What the caller alone decides
 * (dtype, lateness, pairs) is his contract: INTERNAL. Free with
 * berthi_layout_destroy().
 *
 * Without tensors there is one shard, an empty one.
 */
berth_status berthi_layout_create(berth_context *context, berthi_layout_tensor *tensors,
                                  uint64_t count, const berthi_layout_options *options,
                                  berthi_layout **out_layout, berth_error *error);
/* NULL is allowed. */
void berthi_layout_destroy(berthi_layout *layout);

/*
 * The length of a late tensor is known now; it is late no more (one that was
 * not keeps its length). Places behind it in its shard that become final get
 * their offset at once. Which tensor belongs to which shard, and the sizes of
 * shards and headers, stay as they are until the next division.
 */
void berthi_layout_set_bytes(berthi_layout *layout, uint32_t tensor, uint32_t bytes);

/*
 * Divides again with the lengths known by now: linear in the number of tensors,
 * nothing when every length was guessed right. After a failure (NO_MEMORY, and
 * UNSUPPORTED as above) the layout can only be destroyed. *out_first (may be
 * NULL): the first shard that has other tensors than before; when none has, the
 * number of shards.
 */
berth_status berthi_layout_divide(berthi_layout *layout, uint32_t *out_first,
                                  berth_error *error);

/* True when `offset` of this tensor stays what it is while its shard does. */
bool berthi_layout_is_place_known(const berthi_layout *layout, uint32_t tensor);

/* ------------------------------------------------------------------- queries */

uint64_t berthi_layout_tensor_count(const berthi_layout *layout);
uint32_t berthi_layout_shard_count(const berthi_layout *layout);
/* Sum of `bytes` of all tensors, by the latest division. */
uint64_t berthi_layout_total_bytes(const berthi_layout *layout);

typedef struct berthi_layout_shard {
    const uint32_t *tensors; /* numbers, in the order of their bytes */
    uint32_t tensor_count;
    uint64_t header_bytes;  /* N: without the 8 bytes in front of the header */
    uint64_t payload_bytes; /* the file has 8 + header_bytes + payload_bytes */
} berthi_layout_shard;

/* Borrowed until the next division. */
berthi_layout_shard berthi_layout_shard_at(const berthi_layout *layout, uint32_t shard);

/* The caller's array. */
const berthi_layout_tensor *berthi_layout_tensors(const berthi_layout *layout);
/* Numbers of all tensors in the order in which shards are filled. */
const uint32_t *berthi_layout_fill_order(const berthi_layout *layout);
/* Numbers of all tensors in bytewise order of names. */
const uint32_t *berthi_layout_name_order(const berthi_layout *layout);

/* -------------------------------------------------------------------- output */

#define BERTHI_LAYOUT_NAME 64u

/* "model-00001-of-00002.safetensors", or "model.safetensors" of 1; ends in NUL. */
void berthi_layout_shard_name(uint32_t shard, uint32_t shard_count,
                              char out_name[BERTHI_LAYOUT_NAME]);

/*
 * The 8 bytes of length and the header of a shard, padded: 8 + header_bytes in
 * all. No tensor of it is late, and it was divided since the last length was
 * set; else INTERNAL. What `put` returns is returned.
 */
berth_status berthi_layout_write_header(const berthi_layout *layout, uint32_t shard,
                                        berthi_json_put put, void *user,
                                        berth_error *error);

#endif
