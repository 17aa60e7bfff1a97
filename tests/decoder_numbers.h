/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_numbers.h - numbers for the tests of a decoder's steps, and how near they are. */
#ifndef BERTH_TESTS_DECODER_NUMBERS_H
#define BERTH_TESTS_DECODER_NUMBERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core_decoder.h"
#include "tests/random.h"
#include "tests/t.h"

#define MOST 40000u
#define QNAN 0x7FFFFFFFu

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0x2545F4914F6CDD1Du;

/* From -1 to 1. */
static inline float
next_number(void)
{
    return (float)(int32_t)(random_next(&state) >> 16) * 0x1p-31f;
}

/* As much as a value of that dtype is rounded by at most, relatively. */
static inline double
rounding_of(int32_t dtype)
{
    return dtype == BERTH_BF16 ? 0x1p-8 : dtype == BERTH_F16 ? 0x1p-11 : 0x1p-24;
}

/* Room for numbers of any dtype. */
typedef struct room {
    _Alignas(16) uint8_t bytes[MOST * 4];
} room;

static inline void
fill(room *r, int32_t dtype, uint32_t count, float scale)
{
    CHECK(count <= MOST);
    for (uint32_t i = 0; i < count; i++)
        berthi_core_store(r->bytes, dtype, i, next_number() * scale);
}

static inline double
number_of(const room *r, int32_t dtype, uint64_t i)
{
    return (double)berthi_core_load(r->bytes, dtype, i);
}

/* `slack` beside the rounding, of numbers about as large as `size`. */
static inline void
check_near(double actual, double expected, int32_t dtype, double slack, double size)
{
    const double smallest = dtype == BERTH_F16 ? 0x1p-24 : 0x1p-149;
    const double bound = fabs(expected) * rounding_of(dtype) + slack * size + smallest;

    if (!(fabs(actual - expected) <= bound))
        CHECK_EQ((int64_t)(actual * 1e9), (int64_t)(expected * 1e9));
}

#endif
