/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look-up of kernels/map_entries.cuh against the search, for every number: a bin's
 * entry makes one step, the search is monotone, so that where both agree on a bin's first
 * and last number and on both sides of its step they agree on all of it.
 */
#include <math.h>

#include "kernels/core.h"
#include "kernels/core_optimizer.h"
#include "kernels/map_entries.cuh"
#include "tests/t.h"

typedef struct side {
    const uint32_t *map;
    uint32_t from;
    uint32_t bits; /* of a mantissa */
} side;

static uint32_t edges[MAP_EDGES];
static uint32_t entries[MAP_SIGNED_ENTRIES]; /* more than the unsigned map has */

static void
fill(const side *s, uint32_t *out)
{
    const uint32_t bins = MAP_BINADES << s->bits;

    for (uint32_t i = 0; i < MAP_EDGES; i++)
        edges[i] = map_edge(s->map, s->from, i);
    for (uint32_t first = 0; first < bins; first += 12)
        map_fill(edges, s->from, s->bits, first, 12, out);
}

/* Of a magnitude, on this side. */
static void
check_one(const side *s, uint32_t magnitude)
{
    const bool is_below = s->from >= MAP_FROM_BELOW;
    const float value = berthi_core_float(magnitude | (is_below ? 0x80000000u : 0));
    uint32_t expected = berthi_core_map_code(s->map, value);
    uint32_t actual;

    if (s->from == MAP_FROM_SIGN)
        expected = berthi_core_keep_sign(expected, value);
    actual = s->from == MAP_FROM_ZERO ? map_find_unsigned(value, entries) >> 24
                                      : map_find_signed(value, entries);
    if (!CHECK_EQ(actual, expected))
        T_NOTE("number %08x, from %u", berthi_core_bits(value), s->from);
}

static void
check_side(const side *s)
{
    const uint32_t width = 1u << (23 - s->bits);

    for (uint32_t bin = 0; bin < MAP_BINADES << s->bits; bin++) {
        const uint32_t first = MAP_LOWEST + bin * width;
        uint32_t found = 0;

        check_one(s, first);
        check_one(s, first + width - 1);
        for (uint32_t i = 0; i < MAP_EDGES; i++) {
            if (edges[i] < first || edges[i] >= first + width)
                continue;
            check_one(s, edges[i]);
            check_one(s, edges[i] + 1);
            found++;
        }
        CHECK_LE(found, 1);
    }
    /* What is below the bins, to where they begin. */
    check_one(s, 0);
    check_one(s, 1);
    check_one(s, 0x00800000);
    check_one(s, MAP_LOWEST - 1);
}

static void
test_unsigned_map(void)
{
    const side s = { berthi_unsigned_map, MAP_FROM_ZERO, MAP_UNSIGNED_BITS };

    fill(&s, entries);
    check_side(&s);
    CHECK_EQ(map_find_unsigned(-0.0f, entries) >> 24, 0);
    CHECK_EQ(map_find_unsigned(-1.0f, entries) >> 24, 0);
}

/* Codes that keep signs, and codes that do not. */
static void
test_signed_map(void)
{
    for (uint32_t from = MAP_FROM_BELOW; from <= MAP_FROM_SIGN; from++) {
        const side above = { berthi_signed_map, MAP_FROM_ABOVE, MAP_SIGNED_BITS };
        const side below = { berthi_signed_map, from, MAP_SIGNED_BITS };

        fill(&below, entries + MAP_SIGNED_SIDE);
        fill(&above, entries);
        check_side(&above);
        fill(&below, entries + MAP_SIGNED_SIDE);
        check_side(&below);
    }
}

/* Each of four has its own sign. */
static void
test_four_at_once(void)
{
    const side above = { berthi_signed_map, MAP_FROM_ABOVE, MAP_SIGNED_BITS };
    const side below = { berthi_signed_map, MAP_FROM_BELOW, MAP_SIGNED_BITS };
    static const float magnitudes[4] = { 0.9f, 0.0f, 0.01f, 3e-6f };

    fill(&above, entries);
    fill(&below, entries + MAP_SIGNED_SIDE);
    for (uint32_t signs = 0; signs < 16; signs++) {
        float values[4];
        uint32_t expected = 0;

        for (uint32_t k = 0; k < 4; k++) {
            values[k] = (signs >> k & 1) != 0 ? -magnitudes[k] : magnitudes[k];
            expected |= berthi_core_map_code(berthi_signed_map, values[k]) << (8 * k);
        }
        CHECK_EQ(map_find_four_signed(values, entries), expected);
    }
}

/* NaN has a bin, too: what is made of it is the caller's, but nothing else is read. */
static void
test_nan_stays_among_the_bins(void)
{
    const float nan = berthi_core_float(0xFFFFFFFFu);

    CHECK_EQ(map_find_unsigned(nan, entries),
             map_find_unsigned(berthi_core_float(MAP_LOWEST), entries));
    CHECK_LE(map_find_signed(nan, entries), 255);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_unsigned_map);
    T_RUN(test_signed_map);
    T_RUN(test_four_at_once);
    T_RUN(test_nan_stays_among_the_bins);
    T_MAIN_END;
}
