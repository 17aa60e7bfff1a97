/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - rows and columns in bytes; see cut.h. */
#include "loader/cut.h"

#include <string.h>

uint64_t
berthi_cut_place(const berthi_cut *cut, uint64_t at)
{
    return cut->rows == 1 ? cut->first + at
                          : cut->first + at / cut->width * cut->stride + at % cut->width;
}

uint64_t
berthi_cut_together(const berthi_cut *cut, uint64_t at, uint64_t left)
{
    return cut->rows == 1 ? left : berthi_min_u64(left, cut->width - at % cut->width);
}

berthi_stretch
berthi_cut_stretch(const berthi_cut *cut, uint64_t at, uint64_t bytes)
{
    berthi_stretch stretch = { .bytes = 0 };

    if (bytes == 0)
        return stretch;
    stretch.begin = berthi_cut_place(cut, at);
    stretch.bytes = berthi_cut_place(cut, at + bytes - 1) + 1 - stretch.begin;
    return stretch;
}

uint64_t
berthi_cut_fit(const berthi_cut *cut, uint64_t at, uint64_t left, uint64_t most)
{
    uint64_t column;

    if (cut->rows == 1)
        return berthi_min_u64(left, most);
    column = at % cut->width;
    if (column == 0 && most >= cut->stride)
        return berthi_min_u64(left, most / cut->stride * cut->width);
    return berthi_min_u64(left, berthi_min_u64(most, cut->width - column));
}

void
berthi_cut_gather(const berthi_cut *cut, uint64_t at, uint64_t bytes,
                  const uint8_t *stretch, uint8_t *out)
{
    const uint64_t begin = berthi_cut_place(cut, at);

    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = berthi_cut_together(cut, at + done, bytes - done);
        memcpy(out + done, stretch + (berthi_cut_place(cut, at + done) - begin), piece);
    }
}
