/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored.h - the tensors that one weight is stored as: which, how they are
 * called, their dtypes, shapes and bytes, and those whose bytes never change. They
 * are listed at the head of classify_bnb.c, which reads them.
 *
 * Sizes come from quant/format. Nothing allocates, nothing is kept.
 */
#ifndef BERTH_QUANT_STORED_H
#define BERTH_QUANT_STORED_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/state.h"

/* How a weight is to be stored. Members that the encoding has not are ignored. */
typedef struct berthi_storage {
    int32_t encoding;    /* NATIVE, NF4, FP4 or INT8                                 */
    int32_t dtype;       /* of the values: BF16, F16 or F32; NATIVE: any             */
    int32_t storage;     /* 4-bit: of the codes: U8, I8, BF16, F16, F32 or F64       */
    uint32_t block_size; /* 4-bit                                                    */
    bool is_double;      /* 4-bit: double quantization                               */
} berthi_storage;

typedef enum berthi_role {
    BERTHI_ROLE_VALUES,      /* NATIVE: plain numbers in the weight's own shape      */
    BERTHI_ROLE_CODES,       /* 4-bit, INT8                                          */
    BERTHI_ROLE_ABSMAX,      /* 4-bit: F32, or U8 codes when doubly quantized        */
    BERTHI_ROLE_ABSMAX2,     /* second level                                         */
    BERTHI_ROLE_MAP2,        /* constant                                             */
    BERTHI_ROLE_MAP,         /* constant                                             */
    BERTHI_ROLE_STATE,       /* the text of berthi_state_print()                     */
    BERTHI_ROLE_ROW_MAXIMUM, /* INT8                                                 */
    BERTHI_ROLE_ROW_FORMAT,  /* INT8: constant                                       */
    BERTHI_ROLE_COUNT
} berthi_role;

typedef struct berthi_stored {
    berthi_role role;
    int32_t dtype;
    uint32_t rank;
    uint64_t dims[2]; /* ask berthi_stored_shape(): VALUES have the weight's shape */
    uint64_t bytes;
    bool is_late;     /* `bytes` is a guess: the blob's length hangs on the offset */
} berthi_stored;

#define BERTHI_STORED_MAX 6u

/* True when its absmax are stored as 8-bit codes: only 4-bit codes have such. */
bool berthi_stored_is_double(const berthi_storage *storage);

/*
 * NULL, or why a weight of this shape cannot be stored so: for 4-bit no values
 * or no dims, codes that do not fill whole elements of a wider `storage`; for
 * INT8 a rank other than 2; a dtype or block size that is none; overflow.
 */
const char *berthi_stored_refusal(const berthi_storage *storage, const uint64_t *shape,
                                  uint32_t rank);

/*
 * The tensors, the weight's own first: returns how many, 0 where
 * berthi_stored_refusal() has a reason. Weights without values and 4-bit ones without
 * dims, which others quantize and berth does not, are listed all the same.
 */
uint32_t berthi_stored_list(const berthi_storage *storage, const uint64_t *shape,
                            uint32_t rank, berthi_stored out[BERTHI_STORED_MAX]);

/* `stored->rank` dims, in `stored` or `weight_shape`, whichever has them. */
const uint64_t *berthi_stored_shape(const berthi_stored *stored,
                                    const uint64_t *weight_shape);

/*
 * A stored tensor is called as the first `kept` bytes of the weight's name and
 * then `suffix`, a constant text: "M.weight" + ROW_MAXIMUM is "M." + "SCB".
 */
typedef struct berthi_stored_name {
    uint64_t kept;
    const char *suffix;
} berthi_stored_name;

berthi_stored_name berthi_stored_name_of(const char *name, uint64_t length,
                                         berthi_role role, int32_t encoding);

/* False for INT8 and a name whose last part is not "weight": its row maxima have none. */
bool berthi_stored_can_name(const char *name, uint64_t length, int32_t encoding);

#define BERTHI_STORED_CONSTANT_MAX 1024u

/*
 * The bytes of MAP, MAP2 and ROW_FORMAT, which no weight changes; returns how
 * many, 0 for the other roles.
 */
uint32_t berthi_stored_constant(berthi_role role, int32_t encoding,
                                uint8_t out[BERTHI_STORED_CONSTANT_MAX]);

/*
 * The state of a 4-bit weight, to be printed. `offset` counts only when doubly
 * quantized. The list exists, so shape and rank are in bounds.
 */
void berthi_stored_state(const berthi_storage *storage, const uint64_t *shape,
                         uint32_t rank, float offset, berthi_state *out);

#endif
