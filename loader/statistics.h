/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.h - what a quantized weight is decoded with, read from its files at once. */
#ifndef BERTH_LOADER_STATISTICS_H
#define BERTH_LOADER_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/checkpoint.h"
#include "quant/dequantize.h"

/* Memory for them, prepared ones included; 0 for plain numbers (`record` NULL). */
uint64_t berthi_statistics_bytes(const berth_checkpoint *checkpoint,
                                 const berthi_quantized *record,
                                 const berthi_decoder *decoder);
/*
 * Reads them into `memory`, which begins at a multiple of 64 and stays as long as the
 * decoder, and makes the decoder ready. *out_read (may be NULL): bytes of the files.
 * Fails as reading does, or with COMPANION_MISMATCH.
 */
berth_status berthi_statistics_read(const berth_checkpoint *checkpoint,
                                    const berthi_quantized *record,
                                    berthi_decoder *decoder, uint8_t *memory,
                                    uint64_t *out_read, berth_error *error);

/*
 * Companion `number` as it has been read into `memory`: which tensor, where. False: the
 * weight is not decoded with so many.
 */
bool berthi_statistics_has(const berth_checkpoint *checkpoint,
                           const berthi_quantized *record, const berthi_decoder *decoder,
                           const uint8_t *memory, uint32_t number, uint64_t *out_tensor,
                           const uint8_t **out_bytes);

#endif
