/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what a tensor is: its dtype by every name it has, and its exact
 * bytes under each encoding. The one home of these sizes: planner, loader and
 * writer ask here.
 *
 * berth_dtype_name(), berth_dtype_bits() and berth_encoding_name() of berth.h
 * are implemented here. All arithmetic is checked; nothing allocates or fails
 * with text.
 */
#ifndef BERTH_QUANT_FORMAT_H
#define BERTH_QUANT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_NO_DTYPE (-1)

/* safetensors' name ("BF16"), exact case; BERTHI_NO_DTYPE when it is none. */
int32_t berthi_format_dtype(const char *name, uint64_t length);
/* What people type on options: bf16, bfloat16, fp16, f16, float16, f32, ... */
int32_t berthi_format_dtype_word(const char *word);
/* torch's name without "torch.", as in config.json and state blobs. */
int32_t berthi_format_torch_dtype(const char *name, uint64_t length);
/* The other way round: "bfloat16"; NULL where torch has no such dtype. */
const char *berthi_format_torch_name(int32_t dtype);

/* Of those that take whole bytes; 0 for others, and for what is no dtype. */
static inline uint32_t
berthi_format_element_bytes(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

/* Product of the dims (1 for a scalar); false on overflow. */
bool berthi_format_can_count(const uint64_t *shape, uint32_t rank,
                             uint64_t *out_elements);
/* Bytes of plain numbers; false on overflow or when they end inside a byte. */
bool berthi_format_can_size(int32_t dtype, uint64_t elements, uint64_t *out_bytes);

/*
 * Rows [first, first + count) of a tensor as bytes from its beginning; a scalar
 * has one row, `count` UINT64_MAX is the rest. Returns NULL, or what is wrong:
 * the rows do not exist, or begin or end inside a byte. The shape is one that
 * the header's parser has passed.
 */
const char *berthi_format_slice(int32_t dtype, const uint64_t *shape, uint32_t rank,
                                uint64_t first, uint64_t count, uint64_t *out_offset,
                                uint64_t *out_bytes);

/* Those of bitsandbytes: codes of half a byte in blocks, with an absmax each. */
static inline bool
berthi_format_is_4bit(int32_t encoding)
{
    return encoding == BERTH_ENCODING_NF4 || encoding == BERTH_ENCODING_FP4;
}

/* True for 32, 64, ... 4096: the block sizes of 4-bit encodings. */
bool berthi_format_is_block_size(uint64_t block_size);

/* How a weight is to be stored. */
typedef struct berthi_format_plan {
    int32_t encoding;     /* NATIVE, NF4, FP4 or INT8                          */
    int32_t dtype;        /* NATIVE: of the values                             */
    uint32_t block_size;  /* NF4, FP4                                          */
    bool is_double;       /* NF4, FP4                                          */
    uint64_t state_bytes; /* NF4, FP4: length of the state blob's text         */
} berthi_format_plan;

/* Its bytes, part by part, as they lie in a file. Parts that are not there: 0. */
typedef struct berthi_format_bytes {
    uint64_t elements;
    uint64_t blocks;   /* NF4, FP4                                             */
    uint64_t packed;   /* the weight's own bytes                               */
    uint64_t absmax;   /* NF4, FP4; INT8: row maxima                           */
    uint64_t absmax2;  /* second level                                         */
    uint64_t tables;   /* quant_map and nested_quant_map                       */
    uint64_t state;    /* state blob; INT8: weight_format                      */
    uint64_t total;
} berthi_format_bytes;

/* False on overflow, on a block size that is none, on INT8 of other rank than 2. */
bool berthi_format_can_plan(const berthi_format_plan *plan, const uint64_t *shape,
                            uint32_t rank, berthi_format_bytes *out);

#endif
