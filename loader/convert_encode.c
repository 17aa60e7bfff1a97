/* SPDX-License-Identifier: Apache-2.0 */
/* convert_encode.c - values, of a unit or of a strip, to what is written of them. */
#include "loader/convert_batch.h"
#include "quant/format.h"

#include <string.h>

float *
berthi_packed_maxima(uint8_t *packed, const berthi_quantized_part *part)
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

/* What was brought back goes where the processor would have written it at once. */
static berth_status
pack(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
     const berthi_convert_piece *piece, float *maxima, berth_error *error)
{
    const float *const brought = berthi_packed_maxima(scratch->packed, &piece->part);
    berth_status status;

    if (run->plan.scratch.device == 0) {
        berthi_quantizer_encode(&run->quantizer, piece->values, piece->count,
                                scratch->packed, maxima);
        return BERTH_OK;
    }
    status = berthi_line_encode(batch, run, scratch, piece, error);
    if (status == BERTH_OK && brought != maxima)
        memcpy(maxima, brought, piece->part.maxima * sizeof *maxima);
    return status;
}

static berth_status
encode_piece(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
             const uint8_t *values, uint64_t first, uint64_t count, berth_error *error)
{
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, first, count);
    const berthi_convert_piece piece = { values, count, part };
    float *const maxima = run->absmax != NULL ? run->absmax + part.first_maximum
                                              : berthi_packed_maxima(scratch->packed, &part);
    berth_status status;

    if (run->weight->storage.encoding == BERTH_ENCODING_NATIVE)
        return berthi_batch_put(batch, run, BERTHI_ROLE_VALUES, part.begin, values,
                                part.bytes, error);
    status = pack(batch, run, scratch, &piece, maxima, error);
    return status == BERTH_OK
               ? put_packed(batch, run, &part, scratch->packed, maxima, error)
               : status;
}

berth_status
berthi_values_encode(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
                     const uint8_t *values, uint64_t first, uint64_t count,
                     berth_error *error)
{
    const uint32_t width = berthi_format_element_bytes(run->weight->storage.dtype);
    const uint64_t piece = run->plan.piece;
    berth_status status = BERTH_OK;

    for (uint64_t at = 0; at < count && status == BERTH_OK; at += piece)
        status = encode_piece(batch, run, scratch, values + at * width, first + at,
                              berthi_min_u64(piece, count - at), error);
    return status;
}
