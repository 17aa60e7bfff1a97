/* SPDX-License-Identifier: Apache-2.0 */
/* llama_math.c - see llama_math.h. */
#include <math.h>
#include <string.h>

#include "tools/llama_math.h"

#define LANES 16u   /* sums that are made side by side, then added pairwise */
#define TOGETHER 4u /* inputs that share the weights once taken */
#define AHEAD 2048  /* bytes: rows lie one behind the other */
#define PI 3.14159265358979323846

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

/* The compiler makes of them what the processor has; as arguments they are pointed to. */
typedef float lanes __attribute__((vector_size(64)));
typedef float eight_lanes __attribute__((vector_size(32)));
typedef float four_lanes __attribute__((vector_size(16)));
typedef uint32_t bit_lanes __attribute__((vector_size(64)));
typedef int32_t whole_lanes __attribute__((vector_size(64)));
typedef uint16_t short_lanes __attribute__((vector_size(32)));
typedef int16_t short_whole_lanes __attribute__((vector_size(32)));
typedef int8_t byte_lanes __attribute__((vector_size(16)));

/* ----------------------------------------------------------------- plain numbers */

static inline uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
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

/* Sixteen numbers as they are stored -> floats, exactly; `first` is one's index. */
typedef void take_lanes(const void *row, uint64_t first, lanes *out);

ALWAYS_INLINE void
take_f32(const void *row, uint64_t first, lanes *out)
{
    memcpy(out, (const float *)row + first, sizeof *out);
}

ALWAYS_INLINE void
take_bf16(const void *row, uint64_t first, lanes *out)
{
    short_lanes stored;

    memcpy(&stored, (const uint16_t *)row + first, sizeof stored);
    *out = (lanes)(__builtin_convertvector(stored, bit_lanes) << 16);
}

/* Exponent and fraction where a float has them, times 2^112; infinities stay. */
ALWAYS_INLINE void
take_f16(const void *row, uint64_t first, lanes *out)
{
    short_lanes stored;
    bit_lanes bits;
    bit_lanes rest;
    bit_lanes is_infinite; /* or no number */

    memcpy(&stored, (const uint16_t *)row + first, sizeof stored);
    bits = __builtin_convertvector(stored, bit_lanes);
    rest = (bits & 0x7FFFu) << 13;
    is_infinite = (bit_lanes)(rest >= 0x7C00u << 13);
    *out = (lanes)((bits & 0x8000u) << 16 | (bit_lanes)((lanes)rest * 0x1p112f)
                   | (is_infinite & 0x7F800000u));
}

ALWAYS_INLINE void
take_i8(const void *row, uint64_t first, lanes *out)
{
    byte_lanes stored;

    memcpy(&stored, (const int8_t *)row + first, sizeof stored);
    /* By way of 16 bits, which GCC has one instruction for. */
    *out = __builtin_convertvector(
        __builtin_convertvector(__builtin_convertvector(stored, short_whole_lanes), whole_lanes),
        lanes);
}

/* The last ones of `count`, zeros behind them; `width` are their bytes. */
ALWAYS_INLINE void
take_rest(const void *row, uint64_t count, uint32_t width, take_lanes *take, lanes *out)
{
    const uint64_t rest = count % LANES;
    char padded[sizeof *out] = { 0 };

    memcpy(padded, (const char *)row + (count - rest) * width, rest * width);
    take(padded, 0, out);
}

/* DO(take, width) for the dtype, which are constants there. */
#define FOR_DTYPE(dtype, DO)                                                               \
    switch (dtype) {                                                                       \
    case BERTH_BF16:                                                                       \
        DO(take_bf16, 2);                                                                  \
        break;                                                                             \
    case BERTH_F16:                                                                        \
        DO(take_f16, 2);                                                                   \
        break;                                                                             \
    case BERTH_I8:                                                                         \
        DO(take_i8, 1);                                                                    \
        break;                                                                             \
    default:                                                                               \
        DO(take_f32, 4);                                                                   \
    }

ALWAYS_INLINE void
widen_by(const void *values, uint64_t count, float *out, take_lanes *take, uint32_t width)
{
    const uint64_t whole = count - count % LANES;
    lanes taken;

    for (uint64_t i = 0; i < whole; i += LANES) {
        take(values, i, &taken);
        memcpy(out + i, &taken, sizeof taken);
    }
    take_rest(values, count, width, take, &taken);
    memcpy(out + whole, &taken, (count - whole) * sizeof *out);
}

void
llama_math_widen(int32_t dtype, const void *values, uint64_t count, float *out)
{
#define WIDEN(take, width) widen_by(values, count, out, take, width)
    FOR_DTYPE(dtype, WIDEN)
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

/* Added by halves. */
ALWAYS_INLINE float
add_lanes(const lanes *sums)
{
    eight_lanes eight[2];
    four_lanes four[2];

    memcpy(eight, sums, sizeof eight);
    eight[0] += eight[1];
    memcpy(four, eight, sizeof four);
    four[0] += four[1];
    return (four[0][0] + four[0][2]) + (four[0][1] + four[0][3]);
}

/*
 * One row times `inputs` vectors, which is a constant. Each lane adds up its own products, so that
 * sums are the same whatever the width of the processor's vectors is, and however many inputs.
 */
ALWAYS_INLINE void
dot_together(const void *row, const llama_math_inputs *x, uint32_t first, uint32_t inputs,
             float *out, take_lanes *take, uint32_t width)
{
    const float *const from = x->values + first * x->count;
    const uint64_t whole = x->count - x->count % LANES;
    lanes sums[TOGETHER] = { { 0 } };
    lanes weights = { 0 };

    for (uint64_t i = 0; i < whole; i += LANES) {
        __builtin_prefetch((const char *)row + i * width + AHEAD);
        take(row, i, &weights);
        UNROLL
        for (uint32_t k = 0; k < inputs; k++) {
            lanes values;

            memcpy(&values, from + k * x->count + i, sizeof values);
            sums[k] += weights * values;
        }
    }
    if (whole < x->count)
        take_rest(row, x->count, width, take, &weights);
    for (uint32_t k = 0; k < inputs; k++) {
        for (uint64_t i = whole; i < x->count; i++)
            sums[k][i - whole] += weights[i - whole] * from[k * x->count + i];
        out[first + k] = add_lanes(&sums[k]);
    }
}

ALWAYS_INLINE void
dot_by(const void *row, const llama_math_inputs *x, float *out, take_lanes *take,
       uint32_t width)
{
    uint32_t i = 0;

    for (; x->inputs - i >= TOGETHER; i += TOGETHER)
        dot_together(row, x, i, TOGETHER, out, take, width);
    for (; i < x->inputs; i++)
        dot_together(row, x, i, 1, out, take, width);
}

ALWAYS_INLINE void
add_scaled_by(const void *row, float scale, uint64_t count, float *out, take_lanes *take,
              uint32_t width)
{
    const uint64_t whole = count - count % LANES;
    lanes values;

    for (uint64_t i = 0; i < whole; i += LANES) {
        lanes sums;

        take(row, i, &values);
        memcpy(&sums, out + i, sizeof sums);
        sums += scale * values;
        memcpy(out + i, &sums, sizeof sums);
    }
    if (whole == count)
        return;
    take_rest(row, count, width, take, &values);
    for (uint64_t i = whole; i < count; i++)
        out[i] += scale * values[i - whole];
}

/* Both for vectors of one kind of processor. */
#define DOT(take, width) dot_by(row, x, out, take, width)
#define ADD_SCALED(take, width) add_scaled_by(row, scale, count, out, take, width)
#define DEFINE_LEVEL(level, attributes)                                                    \
    attributes static void dots_##level(int32_t dtype, const void *row,                    \
                                        const llama_math_inputs *x, float *out)            \
    {                                                                                      \
        FOR_DTYPE(dtype, DOT)                                                              \
    }                                                                                      \
    attributes static void add_##level(int32_t dtype, const void *row, float scale,        \
                                       uint64_t count, float *out)                         \
    {                                                                                      \
        FOR_DTYPE(dtype, ADD_SCALED)                                                       \
    }

DEFINE_LEVEL(anywhere, )
#ifdef __x86_64__
DEFINE_LEVEL(avx2, __attribute__((target("avx2"))))
DEFINE_LEVEL(avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

void
llama_math_dots(int32_t dtype, const void *row, const llama_math_inputs *x, float *out)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") != 0) {
        dots_avx512(dtype, row, x, out);
        return;
    }
    if (__builtin_cpu_supports("avx2") != 0) {
        dots_avx2(dtype, row, x, out);
        return;
    }
#endif
    dots_anywhere(dtype, row, x, out);
}

float
llama_math_dot(int32_t dtype, const void *row, const float *x, uint64_t count)
{
    float sum;

    llama_math_dots(dtype, row, &(llama_math_inputs){ x, count, 1 }, &sum);
    return sum;
}

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
