/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_levels.c - slices of what is doubly quantized that split what shares a second level: out of
 * both stored levels comes one, absmax as they are, with the values of the whole.
 */
#include "kernels/kernel.h"
#include "loader/load_job.h"

/* Numbers of second levels that so many codes from `begin` on have. */
static uint64_t
count_second(uint64_t begin, uint64_t codes)
{
    return berthi_divide_up(begin + codes, BERTHI_DOUBLE_BLOCK) - begin / BERTHI_DOUBLE_BLOCK;
}

uint64_t
berthi_load_levels_bytes(const berthi_cut *cut, uint64_t at, uint64_t count)
{
    const berthi_stretch stretch = berthi_cut_stretch(cut, at, count);

    return (count + count_second(stretch.begin, stretch.bytes)) * sizeof(float);
}

berth_status
berthi_load_levels(const berthi_load *load, const berthi_load_unit *unit, const uint8_t *codes,
                   float *absmax, berth_error *error)
{
    const berthi_load_columns *const columns = &load->columns[unit->columns];
    const berthi_quantized *const record = columns->record;
    const uint64_t at = (unit->first - columns->place) / sizeof(float);
    const uint64_t count = unit->count / sizeof(float);
    const berthi_stretch stretch = berthi_cut_stretch(&columns->cut, at, count);
    const uint64_t first = stretch.begin / BERTHI_DOUBLE_BLOCK;
    float *const second = absmax + count;
    const berth_status status = berthi_checkpoint_read(
        load->checkpoint, load->checkpoint->table.by_name[record->companions[1]],
        first * sizeof *second, second,
        count_second(stretch.begin, stretch.bytes) * sizeof *second,
        "reading the statistics of a weight", error);

    if (status != BERTH_OK)
        return status;
    for (uint64_t done = 0, piece; done < count; done += piece) {
        const uint64_t place = berthi_cut_place(&columns->cut, at + done);

        piece = berthi_cut_together(&columns->cut, at + done, count - done);
        berthi_decoder_recover(&load->operations, (float)record->offset, place, piece,
                               codes + (place - stretch.begin),
                               second + (place / BERTHI_DOUBLE_BLOCK - first), absmax + done);
    }
    return BERTH_OK;
}
