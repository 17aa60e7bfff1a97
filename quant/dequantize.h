/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.h - a stored weight -> values, piece by piece.
 *
 *     berthi_decoder_can_init()     from the record that classify made
 *     berthi_decoder_companions()   how many companions must be read
 *     berthi_decoder_statistics_bytes(), berthi_decoder_can_prepare()
 *     berthi_decoder_extent()       which stored bytes a piece of values needs
 *     berthi_decoder_decode()       any piece, any order, any thread
 *
 * The values are those of the whole weight at once, whatever the pieces. Pure:
 * no allocation. What the arithmetic does not know cannot be initialized; there
 * is no guess.
 */
#ifndef BERTH_QUANT_DEQUANTIZE_H
#define BERTH_QUANT_DEQUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "quant/classify.h"
#include "quant/quantize.h"

/* One companion as it lies in the file, aligned as its dtype. */
typedef struct berthi_companion {
    const void *bytes;
    uint64_t size;
    int32_t dtype;
} berthi_companion;

typedef struct berthi_decoder {
    const berthi_operations *operations; /* borrowed, every entry present */
    int32_t encoding;
    int32_t stored_dtype; /* NATIVE */
    uint64_t elements;    /* values of the weight */
    /* As stored: `matrices` of rows x columns. */
    uint64_t matrices;
    uint64_t rows;
    uint64_t columns;
    /* 4-bit: values that share an absmax. Scaled: values that share a scale. */
    uint64_t block_rows;
    uint64_t block_columns;
    /* 4-bit: what preparing needs to know. */
    uint64_t blocks;
    float offset;
    int32_t nested_dtype;
    bool is_double;
    bool is_transposed_absmax;
    /* Set by preparing; borrowed. */
    const float *absmax;  /* 4-bit, INT8 */
    const void *scales;   /* scaled      */
    int32_t scale_dtype;
    bool is_single_scale; /* one scale for all matrices */
    uint64_t scale_columns;
    uint64_t scale_count; /* of one matrix */
} berthi_decoder;

/* False when the record's encoding cannot be decoded, and for FOREIGN always. */
bool berthi_decoder_is_there(const berthi_quantized *record);
/* The same, and the decoder. `operations` may be NULL when only its numbers are wanted. */
bool berthi_decoder_can_init(berthi_decoder *decoder, const berthi_operations *operations,
                             const berthi_quantized *record);

/*
 * Plain numbers of BF16, F16, F32, and F8_E4M3 without scales; false for other
 * dtypes. Needs no preparing.
 */
bool berthi_decoder_can_init_native(berthi_decoder *decoder, int32_t dtype,
                                    uint64_t elements);

/* How many of the record's companions, from the first on, are decoded with. */
uint32_t berthi_decoder_companions(const berthi_decoder *decoder);

/* Memory that the prepared statistics need beside the companions; often 0. */
uint64_t berthi_decoder_statistics_bytes(const berthi_decoder *decoder);

/*
 * Makes the statistics ready: `companions` are berthi_decoder_companions() of
 * them, `memory` is aligned as float. Double: both levels -> absmax, with the
 * stored table; transposed BF16 absmax: back in order. Companions that serve as
 * they are stay where they are: keep them as long as the decoder, the others
 * may go. False when sizes or dtypes are not those of the record.
 */
bool berthi_decoder_can_prepare(berthi_decoder *decoder,
                                const berthi_companion *companions, void *memory);

/*
 * Absmax of `count` blocks from number `first` on, of what is doubly quantized as berth makes it:
 * `codes` are theirs, `absmax2` begins with the one that the first of them has.
 */
void berthi_decoder_recover(const berthi_operations *operations, float offset, uint64_t first,
                            uint64_t count, const uint8_t *codes, const float *absmax2,
                            float *absmax);

/*
 * Pieces begin and end at multiples of so many values. 1, but for MXFP4: its
 * values are transposed against its bytes, so a piece is whole experts.
 */
uint64_t berthi_decoder_step(const berthi_decoder *decoder);

/* Bytes of the weight's own tensor that hold a piece of its values. */
typedef struct berthi_decoder_span {
    uint64_t begin;
    uint64_t bytes;
    uint64_t lead; /* values that are decoded before the first one wanted */
} berthi_decoder_span;

berthi_decoder_span berthi_decoder_extent(const berthi_decoder *decoder, uint64_t first,
                                          uint64_t count);

/* The largest `lead` of any piece: 1 for 4-bit encodings, mostly 0 for others. */
uint64_t berthi_decoder_lead_max(const berthi_decoder *decoder);

/*
 * `bytes` are those of the piece's extent; writes lead + count values of
 * `dtype`, one of BF16, F16, F32.
 */
void berthi_decoder_decode(const berthi_decoder *decoder, uint64_t first, uint64_t count,
                           const void *bytes, int32_t dtype, void *values);

/* ------------------------------------------------------------------- devices */

/* Whether decoding is something that devices are asked for: of 4-bit encodings and INT8. */
bool berthi_decoder_has_request(const berthi_decoder *decoder);

/*
 * What a piece is decoded from: its extent, and of prepared absmax, or row maxima, those that
 * it needs. Of such encodings, as what follows.
 */
berthi_quantized_part berthi_decoder_part(const berthi_decoder *decoder, uint64_t first,
                                          uint64_t count);
/* So many bytes and maxima at most, of any piece of `count` values. */
berthi_quantized_part berthi_decoder_most(const berthi_decoder *decoder, uint64_t count);

/*
 * berthi_decoder_decode() asked of a device: the pointers are its memory, where `codes` and
 * `absmax` hold what berthi_decoder_part() says, from their beginnings on.
 */
void berthi_decoder_request(const berthi_decoder *decoder, uint64_t first, uint64_t count,
                            const void *codes, const float *absmax, int32_t dtype,
                            void *values, berthi_request *out);

#endif
