/* SPDX-License-Identifier: Apache-2.0 */
/* convert_encode.c - values, of a unit or of a strip, to what is written of them. */
#include "loader/convert_batch.h"

/* Codes of a piece, and behind them its maxima. */
static float *
maxima_behind(uint8_t *packed, const berthi_quantized_part *part)
{
    return (float *)(void *)(packed + berthi_scratch_round(part->bytes));
}

uint64_t
berthi_packed_bytes(const berthi_quantized_part *part)
{
    return berthi_scratch_round(part->bytes) + part->maxima * sizeof(float);
}

static berth_status
put_packed(berthi_batch *batch, const berthi_run *run, const berthi_quantized_part *part,
           const uint8_t *codes, const float *maxima, berth_error *error)
{
    const berthi_role role = run->weight->storage.encoding == BERTH_ENCODING_INT8
                                 ? BERTHI_ROLE_ROW_MAXIMUM
                                 : BERTHI_ROLE_ABSMAX;
    const berth_status status = berthi_batch_put(batch, run, BERTHI_ROLE_CODES, part->begin,
                                                 codes, part->bytes, error);

    if (status != BERTH_OK || run->absmax != NULL) /* doubly quantized: at the end of all */
        return status;
    return berthi_batch_put(batch, run, role, part->first_maximum * sizeof(float), maxima,
                            part->maxima * sizeof(float), error);
}

static berth_status
encode_piece(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
             const uint8_t *values, uint64_t first, uint64_t count, berth_error *error)
{
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, first, count);
    float *const maxima = run->absmax != NULL ? run->absmax + part.first_maximum
                                              : maxima_behind(scratch->packed, &part);

    if (run->weight->storage.encoding == BERTH_ENCODING_NATIVE)
        return berthi_batch_put(batch, run, BERTHI_ROLE_VALUES, part.begin, values,
                                part.bytes, error);
    berthi_quantizer_encode(&run->quantizer, values, count, scratch->packed, maxima);
    return put_packed(batch, run, &part, scratch->packed, maxima, error);
}

berth_status
berthi_values_encode(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
                     const uint8_t *values, uint64_t first, uint64_t count,
                     berth_error *error)
{
    const uint32_t width = berth_dtype_bits(run->weight->storage.dtype) / 8;
    const uint64_t piece = run->plan.piece;
    berth_status status = BERTH_OK;

    for (uint64_t at = 0; at < count && status == BERTH_OK; at += piece)
        status = encode_piece(batch, run, scratch, values + at * width, first + at,
                              berthi_min_u64(piece, count - at), error);
    return status;
}
