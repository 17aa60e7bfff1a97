/* SPDX-License-Identifier: Apache-2.0 */
/* made.c - see made.h */
#include "tests/made.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/number.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

const int32_t made_dtypes[3] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

const uint64_t made_shapes[MADE_SHAPES][3] = {
    { 1, 1, 1 },  { 1, 1, 33 },   { 1, 3, 7 },   { 1, 91, 45 },
    { 3, 5, 41 }, { 1, 2, 4096 }, { 1, 64, 64 },
};

uint8_t *
made_bytes(uint64_t count, uint64_t seed)
{
    uint8_t *const bytes = weights_alloc(count);
    uint64_t state = seed;

    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)weights_random(&state);
    return bytes;
}

void
made_begin(made *m, int32_t encoding, uint32_t rank, const uint64_t *shape)
{
    memset(m, 0, sizeof *m);
    m->record.encoding = (int16_t)encoding;
    m->record.rank = (uint8_t)rank;
    m->record.shape = m->shape;
    m->record.elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        m->shape[i] = shape[i];
        m->record.elements *= shape[i];
    }
}

void
made_companion(made *m, uint32_t i, int32_t dtype, uint64_t count)
{
    const bool is_number = berthi_is_number(dtype);

    m->companions[i].dtype = dtype;
    m->companions[i].size = count * (berth_dtype_bits(dtype) / 8);
    m->companions[i].bytes = is_number ? weights_values(dtype, count, i + 5, false)
                                       : made_bytes(count, i + 5);
}

float
made_number(const berthi_companion *companion, uint64_t i)
{
    return berthi_core_load(companion->bytes, companion->dtype, i);
}

void
made_end(made *m)
{
    free(m->bytes);
    free(m->memory);
    for (int i = 0; i < 3; i++)
        free((void *)(uintptr_t)m->companions[i].bytes);
}

berthi_decoder
made_decoder(made *m, const berthi_operations *operations)
{
    berthi_decoder d;

    CHECK(berthi_decoder_can_init(&d, operations, &m->record));
    free(m->memory);
    m->memory = weights_alloc(berthi_decoder_statistics_bytes(&d));
    CHECK(berthi_decoder_can_prepare(&d, m->companions, m->memory));
    return d;
}

void
made_check(made *m, made_oracle *oracle)
{
    const uint64_t count = m->record.elements;

    for (uint32_t i = 0; weights_level(i) != NULL; i++)
        for (int k = 0; k < 3; k++) {
            const berthi_decoder d = made_decoder(m, weights_level(i));
            const uint64_t bytes = count * (berth_dtype_bits(made_dtypes[k]) / 8);
            void *const expected = weights_alloc(bytes);

            for (uint64_t at = 0; at < count; at++)
                berthi_core_store(expected, made_dtypes[k], at, oracle(m, at));
            for (uint64_t seed = 0; seed < 4; seed++) {
                void *const got = weights_decode(&d, m->bytes, made_dtypes[k], seed + i);

                if (!CHECK(vectors_are_same(got, expected, count, made_dtypes[k])))
                    T_NOTE("%s, encoding %d, shape %llux%llu", weights_level(i)->level,
                           m->record.encoding, (unsigned long long)m->shape[0],
                           (unsigned long long)m->shape[1]);
                free(got);
            }
            free(expected);
        }
}
