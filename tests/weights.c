/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - see weights.h */
#include "tests/weights.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/t.h"

#define PIECES 12u

const berthi_operations *
weights_level(uint32_t i)
{
    static berthi_operations levels[BERTHI_CPU_LEVEL_COUNT];
    uint32_t count = 0;

    for (int level = 0; level < BERTHI_CPU_LEVEL_COUNT; level++)
        if (berthi_cpu_has_level((berthi_cpu_level)level))
            levels[count++] = berthi_level_operations((berthi_cpu_level)level);
    return i < count ? &levels[i] : NULL;
}

/* SplitMix64: neighbouring seeds have nothing in common. */
uint64_t
weights_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void *
weights_alloc(uint64_t bytes)
{
    void *const memory = malloc(bytes > 0 ? bytes : 1);

    if (memory == NULL)
        abort();
    return memory;
}

static float
odd_value(uint64_t random)
{
    static const uint32_t bits[] = { 0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000,
                                     0,          0x80000000, 1,          0x7F7FFFFF };
    const uint32_t kind = (uint32_t)random % 16;

    return berthi_core_float(kind < 8 ? bits[kind] : (uint32_t)(random >> 5));
}

void *
weights_values(int32_t dtype, uint64_t count, uint64_t seed, bool is_odd)
{
    void *const values = weights_alloc(count * berth_dtype_bits(dtype) / 8);
    uint64_t state = seed;

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t random = weights_random(&state);
        float value = 0.0f;

        for (int k = 0; k < 3; k++) /* a sum of three: rather like a bell */
            value += (float)(random >> (16 * k) & 0xFFFF) / 65536.0f - 0.5f;
        value *= 0.03f;
        berthi_core_store(values, dtype, i,
                          is_odd && random % 8 == 0 ? odd_value(random >> 3) : value);
    }
    return values;
}

/* -------------------------------------------------------------------- pieces */

typedef struct cut {
    uint64_t first;
    uint64_t count;
} cut;

/* A random division of `count` at multiples of `step`, in random order. */
static uint32_t
make_cuts(uint64_t count, uint64_t step, uint64_t seed, cut cuts[PIECES])
{
    uint64_t state = seed;
    uint64_t first = 0;
    uint32_t pieces = 0;

    while (first < count) {
        const uint64_t steps = (count - first + step - 1) / step;
        uint64_t taken = steps;

        if (pieces + 1 < PIECES && weights_random(&state) % 4 != 0)
            taken = 1 + weights_random(&state) % steps;
        cuts[pieces].first = first;
        cuts[pieces].count = berthi_min_u64(taken * step, count - first);
        first += cuts[pieces++].count;
    }
    for (uint32_t i = pieces; i > 1; i--) {
        const uint32_t other = (uint32_t)(weights_random(&state) % i);
        const cut swapped = cuts[i - 1];

        cuts[i - 1] = cuts[other];
        cuts[other] = swapped;
    }
    return pieces;
}

static void *
copy(const void *bytes, uint64_t size)
{
    void *const memory = weights_alloc(size);

    memcpy(memory, bytes, size);
    return memory;
}

static void
encode_piece(const berthi_quantizer *q, const void *values, const cut *c, uint8_t *codes,
             float *absmax)
{
    const uint64_t bits = berth_dtype_bits(q->storage.dtype);
    const berthi_quantized_part part = berthi_quantizer_part(q, c->first, c->count);
    void *const from = copy((const uint8_t *)values + c->first * bits / 8,
                            c->count * bits / 8);
    uint8_t *const piece_codes = weights_alloc(part.bytes);
    float *const piece_absmax = weights_alloc(part.maxima * sizeof(float));

    berthi_quantizer_encode(q, from, c->count, piece_codes, piece_absmax);
    memcpy(codes + part.begin, piece_codes, part.bytes);
    if (part.maxima > 0)
        memcpy(absmax + part.first_maximum, piece_absmax, part.maxima * sizeof(float));
    free(from);
    free(piece_codes);
    free(piece_absmax);
}

void
weights_encode(const berthi_quantizer *q, const void *values, uint8_t *codes,
               float *absmax, uint64_t seed)
{
    cut cuts[PIECES];
    const uint32_t pieces = make_cuts(q->elements, berthi_quantizer_step(q), seed, cuts);

    for (uint32_t i = 0; i < pieces; i++)
        encode_piece(q, values, &cuts[i], codes, absmax);
}

static void
decode_piece(const berthi_decoder *d, const void *bytes, const cut *c, int32_t dtype,
             uint8_t *values)
{
    const uint64_t size = berth_dtype_bits(dtype) / 8;
    const berthi_decoder_span span = berthi_decoder_extent(d, c->first, c->count);
    void *const from = copy((const uint8_t *)bytes + span.begin, span.bytes);
    uint8_t *const piece = weights_alloc((span.lead + c->count) * size);

    CHECK_LE(span.lead, berthi_decoder_lead_max(d));
    berthi_decoder_decode(d, c->first, c->count, from, dtype, piece);
    memcpy(values + c->first * size, piece + span.lead * size, c->count * size);
    free(from);
    free(piece);
}

void *
weights_decode(const berthi_decoder *d, const void *bytes, int32_t dtype, uint64_t seed)
{
    uint8_t *const values = weights_alloc(d->elements * (berth_dtype_bits(dtype) / 8));
    cut cuts[PIECES];
    const uint32_t pieces = make_cuts(d->elements, berthi_decoder_step(d), seed, cuts);

    for (uint32_t i = 0; i < pieces; i++)
        decode_piece(d, bytes, &cuts[i], dtype, values);
    return values;
}
