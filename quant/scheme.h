/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheme.h - how a matrix is stored by a method that is not berth's, as far as
 * quantization_config tells: codes, scales and zero points as numbers, which give its bytes.
 *
 * Of FP8 (DeepSeek), MXFP4, GPTQ, AWQ, compressed-tensors and ModelOpt. Which modules their
 * lists leave out is not read. What the members of another method mean nobody knows: it has no
 * scheme.
 */
#ifndef BERTH_QUANT_SCHEME_H
#define BERTH_QUANT_SCHEME_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/json.h"

typedef struct berthi_scheme {
    uint32_t bits;        /* of a code; 0: nothing is known                          */
    uint32_t word_bits;   /* 8 or 32: codes of a row, or column, fill whole words    */
    uint32_t rows;        /* (outputs) that share a scale; 0: all                    */
    uint32_t columns;     /* (inputs) that share it; 0: all                          */
    uint32_t scale_bytes; /* 0: it has the dtype of the model                        */
    uint32_t fixed_bytes; /* of each matrix: scales of all of it, its shape          */
    bool packs_rows;      /* AWQ: words hold codes of one column                     */
    bool has_zeros;       /* packed as codes, one for each row and group of columns  */
    bool has_order;       /* GPTQ: four bytes for each column                        */
} berthi_scheme;

/* `object` is quantization_config, an object; members of other types count as absent. */
berthi_scheme berthi_scheme_read(const berthi_json_value *object, const char *method);

/* A nibble a value and a byte for each 32: MXFP4, and experts of FP8 models that say so. */
berthi_scheme berthi_scheme_fp4(void);

#endif
