/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sliced.h - models in a test that are cut for the ranks of tensor parallelism: made,
 * planned, and what each berth of a rank has to hold.
 */
#ifndef BERTH_TESTS_SLICED_H
#define BERTH_TESTS_SLICED_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/fixture.h"
#include "tests/loaded.h"

typedef struct sliced_sizes {
    const char *type;
    uint32_t hidden;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t inner;
    uint32_t words;
    uint32_t experts; /* 0: a dense MLP */
    const char *extra; /* a tensor more */
} sliced_sizes;

/* Of one layer, BF16. Words of the first are shared unevenly by any ranks. */
extern const sliced_sizes sliced_small;
#define SLICED_SMALL_TENSORS 13u /* in all: three are whole on every rank */
extern const sliced_sizes sliced_mixture;
/* 128 rows of it are 256 blocks of 64. */
extern const sliced_sizes sliced_blocks;

/* A tensor of BF16, some values or other; `columns` 0: of one dimension. */
void sliced_add(fixture_builder *b, const char *name, uint64_t rows, uint64_t columns);
/* Returns the folder. */
const char *sliced_make(const sliced_sizes *s);

/* Of a plan without reserve and KV cache, for these memories. */
berth_plan_options sliced_options(const char *max_memory, uint32_t rank, uint32_t ranks);
/* There is no such plan: why, and of which tensor; NULL: of none. */
void sliced_refuse(const char *folder, berth_plan_options options, berth_status status,
                   const char *words, const char *tensor);

/* A stored tensor, and what the berth says that it holds of it. */
typedef struct sliced_piece {
    char name[128];
    berth_berth berth;
    berth_tensor tensor;
    uint8_t *whole;   /* its bytes */
    uint8_t *bytes;   /* those of the slice, */
    uint64_t size;    /* so many */
    uint64_t width;   /* of a value */
} sliced_piece;

void sliced_begin(sliced_piece *p, const loaded *l, uint64_t number);
void sliced_end(sliced_piece *p);

/*
 * One berth of plain numbers holds what its slice is, and is cut as a tensor of its name
 * is; in host memory it goes into the `whole` tensor. Returns its bytes.
 */
uint64_t sliced_check(loaded *l, uint64_t number, uint32_t ranks, uint8_t *whole);

/* All ranks, one after the other: what they have is the whole model, of plain numbers. */
void sliced_check_ranks(const char *folder, uint32_t ranks, bool is_device);
/* Each of four ranks encodes its slice as if it was all there is. */
void sliced_check_type(const char *folder, int32_t type, bool is_double, bool is_device);
/*
 * Of what was encoded before it is cut, a rank of four has what it encodes of the source
 * itself. `words` NULL: in host memory.
 */
void sliced_check_stored(const char *source, const char *folder, uint32_t rank,
                         const char *words);

/* The values of a slice, as the API of values stores them. */
typedef struct sliced_encoded {
    berth_values_part parts[BERTH_VALUES_PARTS];
    uint32_t count;
    uint8_t *memory[BERTH_VALUES_PARTS];
    berth_values_buffers buffers;
} sliced_encoded;

void sliced_encode(sliced_encoded *e, berth_context *context,
                   const berth_values_options *options, const void *values, uint64_t size);
const uint8_t *sliced_part(const sliced_encoded *e, int32_t role);
void sliced_encoded_end(sliced_encoded *e);

/* A berth in host memory holds what its values are encoded as, unless they are plain. */
void sliced_check_encoded(const loaded *l, uint64_t number, int32_t type, bool is_double);

#endif
