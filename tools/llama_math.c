/* SPDX-License-Identifier: Apache-2.0 */
/* llama_math.c - see llama_math.h. */
#include <math.h>
#include <string.h>

#include "tools/llama_math.h"

#define LANES 16u  /* sums that are made side by side, then added pairwise */
#define AHEAD 2048 /* bytes: rows lie one behind the other */
#define PI 3.14159265358979323846

/* ----------------------------------------------------------------- plain numbers */

static inline float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float
widen_bf16(uint16_t value)
{
    return float_of((uint32_t)value << 16);
}

/* Exponent and fraction where a float has them, times 2^112; infinities stay. */
static inline float
widen_f16(uint16_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(value & 0x7FFFu) << 13;
    const uint32_t is_infinite = rest >= 0x7C00u << 13; /* or no number */

    return float_of(sign | bits_of(float_of(rest) * 0x1p112f)
                    | (0x7F800000u & (0u - is_infinite)));
}

static uint16_t
narrow_bf16(float value)
{
    const uint32_t bits = bits_of(value);

    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t
narrow_f16(float value)
{
    const uint32_t sign = bits_of(value) >> 16 & 0x8000u;
    const float magnitude = fabsf(value);
    uint32_t bits;

    if (isnan(value))
        return (uint16_t)(sign | 0x7E00u);
    if (magnitude >= 65520.0f)
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x1p-14f) /* the addition rounds to multiples of 2^-24 */
        return (uint16_t)(sign | (bits_of(magnitude + 0.5f) - bits_of(0.5f)));
    bits = bits_of(magnitude);
    return (uint16_t)(sign | (((bits + 0xFFF + (bits >> 13 & 1)) >> 13) - (112u << 10)));
}

bool
llama_math_has_dtype(int32_t dtype)
{
    return dtype == BERTH_F32 || dtype == BERTH_BF16 || dtype == BERTH_F16
           || dtype == BERTH_I8;
}

/* Loops over `row` of each dtype: `each` uses value(i). */
#define FOR_DTYPE(dtype, row, EACH)                                                        \
    switch (dtype) {                                                                       \
    case BERTH_BF16: {                                                                     \
        const uint16_t *const r = row;                                                     \
        EACH(widen_bf16);                                                                  \
    } break;                                                                               \
    case BERTH_F16: {                                                                      \
        const uint16_t *const r = row;                                                     \
        EACH(widen_f16);                                                                   \
    } break;                                                                               \
    case BERTH_I8: {                                                                       \
        const int8_t *const r = row;                                                       \
        EACH((float));                                                                     \
    } break;                                                                               \
    default: {                                                                             \
        const float *const r = row;                                                        \
        EACH();                                                                            \
    }                                                                                      \
    }

void
llama_math_widen(int32_t dtype, const void *values, uint64_t count, float *out)
{
#define WIDEN(value)                                                                       \
    for (uint64_t i = 0; i < count; i++)                                                   \
    out[i] = value(r[i])
    FOR_DTYPE(dtype, values, WIDEN)
#undef WIDEN
}

void
llama_math_narrow(int32_t dtype, const float *values, uint64_t count, void *out)
{
    uint16_t *const to = out;

    if (dtype == BERTH_F32)
        memcpy(out, values, count * sizeof *values);
    else if (dtype == BERTH_BF16)
        for (uint64_t i = 0; i < count; i++)
            to[i] = narrow_bf16(values[i]);
    else
        for (uint64_t i = 0; i < count; i++)
            to[i] = narrow_f16(values[i]);
}

static inline float
add_lanes(float sums[LANES])
{
    for (uint32_t width = LANES / 2; width > 0; width /= 2)
        for (uint32_t lane = 0; lane < width; lane++)
            sums[lane] += sums[lane + width];
    return sums[0];
}

/* The same sums whatever the width of vectors is: each lane adds up its own products. */
#define DEFINE_DOT(name, attributes)                                                       \
    attributes static float name(int32_t dtype, const void *row, const float *x,           \
                                 uint64_t count)                                           \
    {                                                                                      \
        const uint64_t whole = count - count % LANES;                                      \
        float sums[LANES] = { 0 };                                                         \
                                                                                           \
        FOR_DTYPE(dtype, row, ADD_PRODUCTS)                                                \
        return add_lanes(sums);                                                            \
    }
#define ADD_PRODUCTS(value)                                                                \
    for (uint64_t i = 0; i < whole; i += LANES) {                                          \
        __builtin_prefetch((const void *)((uintptr_t)(r + i) + AHEAD));                    \
        for (uint32_t lane = 0; lane < LANES; lane++)                                      \
            sums[lane] += value(r[i + lane]) * x[i + lane];                                \
    }                                                                                      \
    for (uint64_t i = whole; i < count; i++)                                               \
    sums[i - whole] += value(r[i]) * x[i]

DEFINE_DOT(dot_anywhere, )
#ifdef __x86_64__
DEFINE_DOT(dot_avx2, __attribute__((target("avx2"))))
DEFINE_DOT(dot_avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

float
llama_math_dot(int32_t dtype, const void *row, const float *x, uint64_t count)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") != 0)
        return dot_avx512(dtype, row, x, count);
    if (__builtin_cpu_supports("avx2") != 0)
        return dot_avx2(dtype, row, x, count);
#endif
    return dot_anywhere(dtype, row, x, count);
}

#define DEFINE_ADD(name, attributes)                                                       \
    attributes static void name(int32_t dtype, const void *row, float scale,               \
                                uint64_t count, float *restrict out)                       \
    {                                                                                      \
        const uint64_t whole = count - count % LANES;                                      \
                                                                                           \
        FOR_DTYPE(dtype, row, ADD_SCALED)                                                  \
    }
#define ADD_SCALED(value)                                                                  \
    for (uint64_t i = 0; i < whole; i += LANES)                                            \
        for (uint32_t lane = 0; lane < LANES; lane++)                                      \
            out[i + lane] += scale * value(r[i + lane]);                                   \
    for (uint64_t i = whole; i < count; i++)                                               \
    out[i] += scale * value(r[i])

DEFINE_ADD(add_anywhere, )
#ifdef __x86_64__
DEFINE_ADD(add_avx2, __attribute__((target("avx2"))))
DEFINE_ADD(add_avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

void
llama_math_add_scaled(int32_t dtype, const void *row, float scale, uint64_t count,
                      float *out)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") != 0) {
        add_avx512(dtype, row, scale, count, out);
        return;
    }
    if (__builtin_cpu_supports("avx2") != 0) {
        add_avx2(dtype, row, scale, count, out);
        return;
    }
#endif
    add_anywhere(dtype, row, scale, count, out);
}

/* ------------------------------------------------------------------------- steps */

void
llama_math_norm(const float *x, const float *weight, float epsilon, uint64_t count,
                float *out)
{
    const float squares = llama_math_dot(BERTH_F32, x, x, count);
    const float scale = 1.0f / sqrtf(squares / (float)count + epsilon);

    for (uint64_t i = 0; i < count; i++)
        out[i] = weight[i] * (x[i] * scale);
}

void
llama_math_swiglu(float *gate, const float *up, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void
llama_math_softmax(float *x, uint64_t count)
{
    float largest = -INFINITY;
    float sum = 0;

    for (uint64_t i = 0; i < count; i++)
        largest = fmaxf(largest, x[i]);
    for (uint64_t i = 0; i < count; i++) {
        x[i] = expf(x[i] - largest);
        sum += x[i];
    }
    for (uint64_t i = 0; i < count; i++)
        x[i] /= sum;
}

uint32_t
llama_math_largest(const float *x, uint32_t count)
{
    uint32_t largest = 0;

    for (uint32_t i = 1; i < count; i++)
        if (x[i] > x[largest] || (isnan(x[largest]) && x[i] > -INFINITY))
            largest = i;
    return largest;
}

void
llama_math_choose(float *logits, uint32_t count, uint32_t used, bool is_renormalised,
                  uint32_t *numbers, float *weights)
{
    uint32_t chosen = 0;
    float sum = 0;

    llama_math_softmax(logits, count);
    for (uint32_t i = 0; i < count && chosen < used; i++) {
        uint32_t before = 0; /* larger ones, and equal ones of lower numbers */

        for (uint32_t k = 0; k < count; k++)
            before += logits[k] > logits[i] || (k < i && logits[k] == logits[i]);
        if (before >= used)
            continue;
        numbers[chosen] = i;
        weights[chosen++] = logits[i];
        sum += logits[i];
    }
    for (uint32_t i = 0; i < chosen && is_renormalised; i++)
        weights[i] /= sum;
}

/* -------------------------------------------------------------- rotary positions */

/* The dimension that turns `rotations` times within the positions of the training. */
static double
find_dimension(const llama_rope *rope, double rotations, uint32_t head_dim)
{
    return head_dim * log(rope->positions / (rotations * 2 * PI)) / (2 * log(rope->theta));
}

/* Slow turns are slowed down by `factor`, fast ones stay, in between a line. */
static double
scale_yarn(const llama_rope *rope, uint32_t head_dim, uint32_t i, double frequency)
{
    double low = find_dimension(rope, rope->beta_fast, head_dim);
    double high = find_dimension(rope, rope->beta_slow, head_dim);
    double share;

    if (rope->is_truncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, head_dim - 1);
    share = (i - low) / (high == low ? 0.001 : high - low);
    share = fmin(fmax(share, 0), 1);
    return frequency / rope->factor * share + frequency * (1 - share);
}

static double
scale_llama3(const llama_rope *rope, double frequency)
{
    const double length = 2 * PI / frequency;
    const double share = (rope->positions / length - rope->low_factor)
                         / (rope->high_factor - rope->low_factor);

    if (length > rope->positions / rope->low_factor)
        return frequency / rope->factor;
    if (length < rope->positions / rope->high_factor)
        return frequency;
    return (1 - share) * frequency / rope->factor + share * frequency;
}

void
llama_math_frequencies(const llama_config *config, float *out, float *out_scale)
{
    const llama_rope *const rope = &config->rope;

    *out_scale = (float)rope->attention;
    for (uint32_t i = 0; i < config->head_dim / 2; i++) {
        double frequency = pow(rope->theta, -2.0 * i / config->head_dim);

        if (rope->scaling == LLAMA_SCALING_LINEAR)
            frequency /= rope->factor;
        else if (rope->scaling == LLAMA_SCALING_LLAMA3)
            frequency = scale_llama3(rope, frequency);
        else if (rope->scaling == LLAMA_SCALING_YARN)
            frequency = scale_yarn(rope, config->head_dim, i, frequency);
        out[i] = (float)frequency;
    }
}

void
llama_math_angles(const float *frequencies, float scale, uint32_t half, uint64_t position,
                  float *out)
{
    for (uint32_t i = 0; i < half; i++) {
        const float angle = frequencies[i] * (float)position;

        out[i] = cosf(angle) * scale;
        out[half + i] = sinf(angle) * scale;
    }
}

void
llama_math_rotate(float *x, const float *angles, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        const float first = x[i];
        const float second = x[half + i];

        x[i] = first * angles[i] - second * angles[half + i];
        x[half + i] = second * angles[i] + first * angles[half + i];
    }
}
