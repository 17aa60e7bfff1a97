/* SPDX-License-Identifier: Apache-2.0 */
/* test_cut.c - rows and columns in bytes, against a tensor that is walked byte by byte. */
#include "loader/cut.h"

#include <stdlib.h>
#include <string.h>

#include "tests/t.h"
#include "tests/weights.h"

/* Where byte `at` of the cut is, the slow way. */
static uint64_t
place(const berthi_cut *cut, uint64_t at)
{
    uint64_t row = 0;

    if (cut->rows == 1)
        return cut->first + at;
    for (; at >= cut->width; at -= cut->width)
        row++;
    return cut->first + row * cut->stride + at;
}

static uint64_t
bytes_of(const berthi_cut *cut, uint64_t together)
{
    return cut->rows == 1 ? together : cut->rows * cut->width;
}

/* Any part of the cut: what is read for it begins and ends with a byte of it. */
static void
check_part(const berthi_cut *cut, const uint8_t *tensor, uint64_t at, uint64_t bytes)
{
    const berthi_stretch stretch = berthi_cut_stretch(cut, at, bytes);
    uint8_t *const out = weights_alloc(bytes);
    uint8_t *const read = weights_alloc(stretch.bytes); /* exactly what has to be there */
    uint64_t wrong = 0;

    CHECK_EQ(stretch.begin, place(cut, at));
    CHECK_EQ(stretch.begin + stretch.bytes, place(cut, at + bytes - 1) + 1);
    memcpy(read, tensor + stretch.begin, (size_t)stretch.bytes);
    memset(out, 0xEE, (size_t)bytes);
    berthi_cut_gather(cut, at, bytes, read, out);
    for (uint64_t i = 0; i < bytes; i++)
        wrong += out[i] != tensor[place(cut, at + i)];
    if (!CHECK_EQ(wrong, 0))
        t_note("%llu bytes from %llu on", (unsigned long long)bytes,
               (unsigned long long)at);
    free(read);
    free(out);
}

static const berthi_cut cuts[] = {
    { .first = 0, .rows = 1 },
    { .first = 37, .rows = 1 },
    { .first = 0, .rows = 9, .width = 6, .stride = 20 },
    { .first = 14, .rows = 9, .width = 6, .stride = 20 }, /* the last columns */
    { .first = 3, .rows = 2, .width = 1, .stride = 90 },
    { .first = 5, .rows = 12, .width = 15, .stride = 15 }, /* all columns */
};

#define TENSOR   256u
#define TOGETHER 64u

static void
fill(uint8_t tensor[TENSOR])
{
    for (uint32_t i = 0; i < TENSOR; i++)
        tensor[i] = (uint8_t)i;
}

static void
test_any_part(void)
{
    uint8_t tensor[TENSOR];

    fill(tensor);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const uint64_t all = bytes_of(&cuts[i], TOGETHER);

        for (uint64_t at = 0; at < all; at++)
            for (uint64_t bytes = 1; bytes <= all - at; bytes++)
                check_part(&cuts[i], tensor, at, bytes);
    }
}

/* Of nothing nothing is read. */
static void
test_nothing(void)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        CHECK_EQ(berthi_cut_stretch(&cuts[i], 0, 0).bytes, 0);
        CHECK_EQ(berthi_cut_stretch(&cuts[i], 2, 0).begin, 0);
        berthi_cut_gather(&cuts[i], 0, 0, NULL, NULL);
    }
    CHECK_EQ(berthi_cut_whole(7).first, 7);
    CHECK_EQ(berthi_cut_whole(7).rows, 1);
}

/* Piece after piece, each as large as fits: all bytes once, no stretch above the limit. */
static void
check_pieces(const berthi_cut *cut, uint64_t most)
{
    const uint64_t all = bytes_of(cut, TOGETHER);
    uint64_t at = 0;

    while (at < all) {
        const uint64_t bytes = berthi_cut_fit(cut, at, all - at, most);
        const uint64_t next = at + bytes;

        if (!CHECK(bytes > 0 && bytes <= all - at))
            return;
        CHECK_LE(berthi_cut_stretch(cut, at, bytes).bytes, most);
        if (cut->rows == 1)
            CHECK(next == all || bytes == most);
        else if (next < all && at % cut->width == 0 && most >= cut->stride)
            CHECK_EQ(bytes, most / cut->stride * cut->width); /* whole rows, all that fit */
        else if (next < all)
            CHECK(next % cut->width == 0 || bytes == most); /* to the end of its row */
        at = next;
    }
    CHECK_EQ(at, all);
}

static void
test_pieces(void)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (uint64_t most = 1; most <= TENSOR; most++)
            check_pieces(&cuts[i], most);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_any_part);
    T_RUN(test_nothing);
    T_RUN(test_pieces);
    T_MAIN_END;
}
