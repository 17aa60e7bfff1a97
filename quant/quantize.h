/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.h - values -> stored bytes, piece by piece.
 *
 * Pieces of a weight may be encoded in any order and on any threads: the bytes
 * are those of the whole weight at once. A doubly quantized weight ends with
 * berthi_quantizer_finish(), when all its first-level absmax are known.
 *
 * Pure: no allocation, no failure once a quantizer exists.
 */
#ifndef BERTH_QUANT_QUANTIZE_H
#define BERTH_QUANT_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "quant/stored.h"

typedef struct berthi_quantizer {
    const berthi_operations *operations; /* borrowed, every entry present */
    berthi_storage storage;
    uint64_t elements;
    uint64_t rows;    /* INT8                      */
    uint64_t columns; /* INT8                      */
    uint64_t blocks;  /* 4-bit: first-level absmax */
} berthi_quantizer;

/* False where berthi_stored_refusal() has a reason. */
bool berthi_quantizer_can_init(berthi_quantizer *quantizer,
                               const berthi_operations *operations,
                               const berthi_storage *storage, const uint64_t *shape,
                               uint32_t rank);

/*
 * Pieces begin and end at multiples of so many elements; the last one ends with
 * the weight. 4-bit: a block; INT8: a row; NATIVE: what fills whole bytes.
 */
uint64_t berthi_quantizer_step(const berthi_quantizer *quantizer);

/*
 * Where the results of elements [first, first + count) lie: bytes of the
 * weight's tensor, and first-level absmax or row maxima (none for NATIVE).
 */
typedef struct berthi_quantized_part {
    uint64_t begin;
    uint64_t bytes;
    uint64_t first_maximum;
    uint64_t maxima;
} berthi_quantized_part;

berthi_quantized_part berthi_quantizer_part(const berthi_quantizer *quantizer,
                                            uint64_t first, uint64_t count);

/*
 * Encodes a piece of `count` values, wherever it begins. `values` are the
 * piece's, of storage.dtype; `codes` and `absmax` get what
 * berthi_quantizer_part() says, from their beginnings on. `absmax` are INT8's
 * row maxima; NATIVE copies and leaves it alone. All aligned as their types.
 */
void berthi_quantizer_encode(const berthi_quantizer *quantizer, const void *values,
                             uint64_t count, void *codes, float *absmax);

/*
 * The same asked of a device: the pointers are its memory. Of a weight that is encoded:
 * NATIVE has nothing to be computed.
 */
void berthi_quantizer_request(const berthi_quantizer *quantizer, const void *values,
                              uint64_t count, void *codes, float *absmax,
                              berthi_request *out);

/* Values of scratch that berthi_quantizer_finish() needs; some thousand. */
uint64_t berthi_quantizer_scratch(const berthi_quantizer *quantizer);

/*
 * Doubly quantized: all first-level absmax of the weight -> their 8-bit codes
 * (`blocks` of them) and the second-level absmax, one per 256. Returns the
 * offset, the mean that the state blob holds.
 */
float berthi_quantizer_finish(const berthi_quantizer *quantizer, const float *absmax,
                              uint8_t *codes, float *absmax2, float *scratch);

/* ------------------------------------------------------- values to values */

/*
 * Values of one of BF16, F16, F32 as another: widened exactly, rounded once to
 * nearest even. Any NaN that changes its dtype to a narrow one is 0x7FFF. No
 * overlap. `from` may lie anywhere, as in a file; `to` is aligned as its type.
 */
void berthi_quantize_cast(const void *from, int32_t from_dtype, void *to,
                          int32_t to_dtype, uint64_t count);

typedef struct berthi_nonfinite {
    uint64_t nan;
    uint64_t infinite;
} berthi_nonfinite;

/* Of values of BF16, F16 or F32; none of another dtype. */
berthi_nonfinite berthi_quantize_nonfinite(const void *values, int32_t dtype,
                                           uint64_t count);
/* What they will be once they have been rounded to F16, as INT8 is made of them. */
berthi_nonfinite berthi_quantize_nonfinite_as_fp16(const void *values, int32_t dtype,
                                                   uint64_t count);

/* A matrix of 2- or 4-byte elements inside a larger one; strides in elements. */
typedef struct berthi_matrix {
    const void *from;     /* rows x columns */
    uint64_t from_stride; /* from one row to the next */
    void *to;             /* columns x rows, no overlap */
    uint64_t to_stride;
    uint64_t rows;
    uint64_t columns;
    uint32_t element_bytes;
} berthi_matrix;

/* to[c][r] = from[r][c] */
void berthi_quantize_transpose(const berthi_matrix *matrix);

/* A weight that is read as [rows, columns] and stored as [columns, rows]. */
typedef struct berthi_turning {
    uint64_t rows;
    uint64_t columns;
    uint32_t element_bytes;
} berthi_turning;

/*
 * Brings `row_count` rows as they are read, from `first_row` on, to their places in a
 * strip: `column_count` rows of what is stored, from `first_column` on. Rows may come
 * in any order and from any thread.
 */
void berthi_quantize_turn(const berthi_turning *turning, const void *values,
                          uint64_t first_row, uint64_t row_count, uint64_t first_column,
                          uint64_t column_count, void *strip);

#endif
