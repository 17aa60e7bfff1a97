/* SPDX-License-Identifier: Apache-2.0 */
/* recorded.c - see recorded.h */
#include "tests/recorded.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "kernels/core.h"
#include "tests/t.h"

#define BYTES (1u << 21)

uint8_t *
recorded_open(void)
{
    gzFile const file = gzopen(RECORDED_FOLDER "rcp23.bin.gz", "rb");
    uint8_t *const deltas = malloc(BYTES);

    if (file == NULL || deltas == NULL || gzread(file, deltas, BYTES) != (int)BYTES)
        abort();
    gzclose(file);
    return deltas;
}

float
recorded_reciprocal(const uint8_t *deltas, float value)
{
    static const int32_t ulps[4] = { 0, 1, -1, INT32_MIN }; /* the last is never there */
    const uint32_t mantissa = berthi_core_bits(value) & 0x007FFFFFu;
    const uint32_t delta = deltas[mantissa / 4] >> mantissa % 4 * 2 & 3u;

    return berthi_core_float(berthi_core_bits(1.0f / value) + (uint32_t)ulps[delta]);
}

/* ------------------------------------------------------------------------ codes */

static float
value_of(const recorded_weight *w, uint64_t i)
{
    const float value = berthi_core_load(w->values, w->dtype, i);

    return w->map == NULL && w->encoding == BERTH_ENCODING_INT8
               ? berthi_core_from_fp16(berthi_core_to_fp16(value))
               : value;
}

uint8_t
recorded_code(const recorded_weight *w, float value, float reciprocal)
{
    const float scaled = berthi_core_multiply_flush(value, reciprocal);

    if (w->map != NULL)
        return (uint8_t)berthi_core_map_code(w->map, scaled);
    if (w->encoding == BERTH_ENCODING_INT8)
        return (uint8_t)berthi_core_int8_code(
            value, berthi_core_multiply_flush(127.0f, reciprocal));
    return (uint8_t)(w->encoding == BERTH_ENCODING_FP4 ? berthi_core_fp4_code(scaled)
                                                       : berthi_core_nf4_code(scaled));
}

static bool
is_packed(const recorded_weight *w)
{
    return w->map == NULL && w->encoding != BERTH_ENCODING_INT8;
}

static uint32_t
code_at(const recorded_weight *w, const uint8_t *codes, uint64_t i)
{
    const uint32_t byte = codes[is_packed(w) ? i / 2 : i];

    return !is_packed(w) ? byte : i % 2 == 0 ? byte >> 4 : byte & 15u;
}

/* Code `i`, exchanged for one that must be another. */
static void
exchange(const recorded_weight *w, uint8_t *codes, uint64_t i, uint8_t was, uint8_t is)
{
    uint8_t *const at = &codes[is_packed(w) ? i / 2 : i];
    const uint32_t shift = is_packed(w) && i % 2 == 0 ? 4 : 0;
    const uint32_t mask = is_packed(w) ? 15u : 255u;

    CHECK_EQ(code_at(w, codes, i), was);
    *at = (uint8_t)((*at & ~(mask << shift)) | (uint32_t)is << shift);
}

static uint64_t
repair_block(const recorded_weight *w, const uint8_t *deltas, uint64_t first, uint64_t end,
             uint8_t *codes)
{
    float largest = 0.0f;
    uint64_t changed = 0;
    float was;
    float is;

    for (uint64_t i = first; i < end; i++)
        largest = berthi_core_absmax_step(largest, value_of(w, i));
    if (largest < 0x1p-126f || largest > 0x1p126f)
        return 0; /* one infinity or zero is as good as another */
    was = 1.0f / largest;
    is = recorded_reciprocal(deltas, largest);
    for (uint64_t i = first; i < end && berthi_core_bits(was) != berthi_core_bits(is); i++) {
        const uint8_t before = recorded_code(w, value_of(w, i), was);
        const uint8_t after = recorded_code(w, value_of(w, i), is);

        if (before == after)
            continue;
        exchange(w, codes, i, before, after);
        changed++;
    }
    return changed;
}

uint64_t
recorded_repair(const uint8_t *deltas, const recorded_weight *w, uint8_t *codes)
{
    uint64_t changed = 0;

    for (uint64_t first = 0; first < w->count; first += w->block_size)
        changed += repair_block(w, deltas, first,
                                w->count - first < w->block_size ? w->count
                                                                 : first + w->block_size,
                                codes);
    return changed;
}

/* ---------------------------------------------------------------------- vectors */

static void
check_is_sensitive(const vectors *v, const char *prefix, uint64_t i)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "rcp_sensitive");
    const int64_t *at;
    uint64_t k = 0;

    if (entry == NULL)
        return; /* not told of 8-bit blocks */
    at = vectors_data(v, entry);
    while (k < berthi_entry_elements(v->header.text, entry) && at[k] != (int64_t)i)
        k++;
    if (!CHECK_LT(k, berthi_entry_elements(v->header.text, entry)))
        T_NOTE("%s: element %llu", prefix, (unsigned long long)i);
}

uint8_t *
recorded_vector(const uint8_t *deltas, const vectors *v, const char *prefix,
                const recorded_weight *w, const uint8_t *codes, uint64_t *changed)
{
    const uint64_t bytes = is_packed(w) ? (w->count + 1) / 2 : w->count;
    uint8_t *const own = malloc(bytes + 1);

    if (own == NULL)
        abort();
    memcpy(own, codes, bytes);
    *changed += recorded_repair(deltas, w, own);
    for (uint64_t i = 0; i < w->count; i++)
        if (code_at(w, own, i) != code_at(w, codes, i))
            check_is_sensitive(v, prefix, i);
    return own;
}
