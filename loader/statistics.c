/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.c - companions one behind the other, each from a multiple of 64 on. */
#include "loader/statistics.h"

#define COMPANIONS 8u
#define ALIGNMENT UINT64_C(64)

static uint64_t
number_of(const berth_checkpoint *c, const berthi_quantized *record, uint32_t companion)
{
    return c->table.by_name[record->companions[companion]];
}

static uint64_t
bytes_of(const berth_checkpoint *c, uint64_t number)
{
    return c->table.entries[number].end - c->table.entries[number].begin;
}

uint64_t
berthi_statistics_bytes(const berth_checkpoint *checkpoint, const berthi_quantized *record,
                        const berthi_decoder *decoder)
{
    uint64_t bytes = 0;

    if (record == NULL)
        return 0;
    for (uint32_t i = 0; i < berthi_decoder_companions(decoder); i++)
        bytes += berthi_round_up(bytes_of(checkpoint, number_of(checkpoint, record, i)),
                                 ALIGNMENT);
    return bytes + berthi_round_up(berthi_decoder_statistics_bytes(decoder), ALIGNMENT);
}

berth_status
berthi_statistics_read(const berth_checkpoint *checkpoint, const berthi_quantized *record,
                       berthi_decoder *decoder, uint8_t *memory, uint64_t *out_read,
                       berth_error *error)
{
    berthi_companion companions[COMPANIONS];
    uint8_t *next = memory;
    uint64_t total = 0;

    if (out_read != NULL)
        *out_read = 0;
    if (record == NULL)
        return BERTH_OK;
    for (uint32_t i = 0; i < berthi_decoder_companions(decoder); i++) {
        const uint64_t number = number_of(checkpoint, record, i);
        const uint64_t bytes = bytes_of(checkpoint, number);
        const berth_status status =
            berthi_checkpoint_read(checkpoint, number, 0, next, bytes,
                                   "reading the statistics of a weight", error);

        if (status != BERTH_OK)
            return status;
        companions[i] =
            (berthi_companion){ next, bytes, checkpoint->table.entries[number].dtype };
        next += berthi_round_up(bytes, ALIGNMENT);
        total += bytes;
    }
    if (out_read != NULL)
        *out_read = total;
    if (!berthi_decoder_can_prepare(decoder, companions, next)) {
        const berthi_about where = berthi_checkpoint_about(
            checkpoint, checkpoint->table.by_name[record->weight]);

        return berthi_fail(error, BERTH_REASON_COMPANION_MISMATCH, &where,
                           "its statistics are not those of such a weight");
    }
    return BERTH_OK;
}

bool
berthi_statistics_has(const berth_checkpoint *checkpoint, const berthi_quantized *record,
                      const berthi_decoder *decoder, const uint8_t *memory,
                      uint32_t number, uint64_t *out_tensor, const uint8_t **out_bytes)
{
    if (record == NULL || number >= berthi_decoder_companions(decoder))
        return false;
    for (uint32_t i = 0; i < number; i++)
        memory += berthi_round_up(bytes_of(checkpoint, number_of(checkpoint, record, i)),
                                  ALIGNMENT);
    *out_tensor = number_of(checkpoint, record, number);
    *out_bytes = memory;
    return true;
}
