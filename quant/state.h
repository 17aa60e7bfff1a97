/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the state blob of bitsandbytes' 4-bit weights: the JSON in the
 * tensor P.quant_state.bitsandbytes__nf4, or __fp4.
 *
 *   {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [4096, 4096],
 *    "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.044628698378801346}
 *
 * As upstream, this refuses keys that it does not know, and a blob that lacks one. The
 * three nested ones come together or not at all.
 */
#ifndef BERTH_QUANT_STATE_H
#define BERTH_QUANT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base.h"

typedef struct berthi_state {
    int32_t encoding;     /* BERTH_ENCODING_NF4 or _FP4 */
    int32_t dtype;        /* of the values: BERTH_F16, BERTH_BF16 or BERTH_F32 */
    uint32_t block_size;
    uint32_t rank;
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t elements;
    bool is_double;       /* the rest counts only when set */
    int32_t nested_dtype; /* BERTH_F32; another one in files saved on a CPU */
    float offset;         /* any value, NaN and the infinities included */
} berthi_state;

/*
 * Parses the `bytes` of a blob, which are changed. `about` is where it lies:
 * file and tensor, for messages. Fails with STATE_JSON; `position` is then the
 * byte in the blob.
 */
berth_status berthi_state_parse(char *text, uint64_t bytes, const berthi_about *about,
                                berthi_state *out, berth_error *error);

/* As many bytes as any state prints, and the NUL. */
#define BERTHI_STATE_TEXT_MAX 2048u

/*
 * The blob as upstream writes it, byte for byte. Returns its length; the text
 * is cut at `capacity` - 1 and ends in a NUL, as with snprintf.
 */
size_t berthi_state_print(const berthi_state *state, char *text, size_t capacity);

/*
 * The length before the offset is known: exact without one, else that with an
 * offset of 20 characters, the usual number (18 to 22 occur).
 */
size_t berthi_state_guess(const berthi_state *state);

#endif
