/* SPDX-License-Identifier: Apache-2.0 */
/* simt_lanes.h - the words of simt.h for the lanes of tests/simt.c. By simt.h alone. */
#ifndef BERTH_KERNELS_SIMT_LANES_H
#define BERTH_KERNELS_SIMT_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/simt_types.h"

#define SIMT_IS_TIGHT 0
/* Not always_inline: each constant's variant anew is minutes of a compiler for sanitizers. */
#define SIMT_INLINE static inline __attribute__((unused))
#define SIMT_UNROLL
#define SIMT_NO_UNROLL
#define SIMT_UNROLL_BY(turns)
#define SIMT_RESIDENT_MOST 2048
#define SIMT_KERNEL_AHEAD(name, threads, resident, type, call)                           \
    static inline void name(const void *argument)                                     \
    {                                                                                 \
        const type *const a = (const type *)argument;                                 \
                                                                                      \
        call;                                                                         \
    }
#define SIMT_SHARED(type, name, count)                                                \
    type *const name = (type *)berthi_simt_shared(sizeof(type) * (count))
#define SIMT_ROOM(name, bytes) uint8_t *const name = (uint8_t *)berthi_simt_room(bytes)

uint32_t berthi_simt_thread(void);
uint64_t berthi_simt_cta(void);
uint64_t berthi_simt_ctas(void);
void *berthi_simt_shared(size_t bytes);
void *berthi_simt_room(size_t bytes);
void berthi_simt_barrier(void);
void berthi_simt_warp_barrier(void);
void berthi_simt_copy(void *to, const void *from, uint32_t bytes);
void berthi_simt_end_copies(void);
void berthi_simt_wait_copies(uint32_t count);
void berthi_simt_wait_for_earlier(void);
/* What lane `from` of the warp gave to the same shuffle. */
uint32_t berthi_simt_shuffle(uint32_t value, uint32_t from);
/* All of the warp's fragments, of bf16 or fp16, into the lane's four sums. */
void berthi_simt_multiply(float *sums, const uint32_t *rows, const uint32_t *columns,
                          bool is_bf16);
/* Remembers an address that hardware would refuse. */
void berthi_simt_access(const void *address, size_t bytes);

SIMT_INLINE uint32_t
simt_thread(void)
{
    return berthi_simt_thread();
}

SIMT_INLINE uint64_t
simt_cta(void)
{
    return berthi_simt_cta();
}

SIMT_INLINE uint64_t
simt_ctas(void)
{
    return berthi_simt_ctas();
}

SIMT_INLINE void
simt_barrier(void)
{
    berthi_simt_barrier();
}

SIMT_INLINE void
simt_warp_barrier(void)
{
    berthi_simt_warp_barrier();
}

SIMT_INLINE void
simt_copy16(void *to, const void *from)
{
    berthi_simt_copy(to, from, 16);
}

SIMT_INLINE void
simt_copy8(void *to, const void *from)
{
    berthi_simt_copy(to, from, 8);
}

SIMT_INLINE void
simt_copy4(void *to, const void *from)
{
    berthi_simt_copy(to, from, 4);
}

SIMT_INLINE void
simt_end_copies(void)
{
    berthi_simt_end_copies();
}

SIMT_INLINE void
simt_wait_copies(uint32_t count)
{
    berthi_simt_wait_copies(count);
}

/* The machine's launches are one after the other. */
SIMT_INLINE void
simt_let_later_come(void)
{
}

SIMT_INLINE void
simt_wait_for_earlier(void)
{
    berthi_simt_wait_for_earlier();
}

SIMT_INLINE float
simt_shuffle(float value, uint32_t from)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = berthi_simt_shuffle(bits, from);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

SIMT_INLINE float
simt_shuffle_xor(float value, uint32_t mask)
{
    return simt_shuffle(value, (simt_thread() % SIMT_WARP) ^ mask);
}

SIMT_INLINE float
simt_shuffle_down(float value, uint32_t distance)
{
    const uint32_t own = simt_thread() % SIMT_WARP;

    return simt_shuffle(value, own + distance < SIMT_WARP ? own + distance : own);
}

SIMT_INLINE uint32_t
simt_ballot(bool is)
{
    const uint32_t own = simt_thread() % SIMT_WARP;
    uint32_t bits = is ? 1u << own : 0;

    for (uint32_t half = SIMT_WARP / 2; half > 0; half /= 2)
        bits |= berthi_simt_shuffle(bits, own ^ half);
    return bits;
}

SIMT_INLINE bool
simt_all(bool is)
{
    return simt_ballot(is) == 0xFFFFFFFFu;
}

SIMT_INLINE uint32_t
simt_largest(uint32_t word)
{
    const uint32_t own = simt_thread() % SIMT_WARP;

    for (uint32_t step = 1; step < SIMT_WARP; step *= 2) {
        const uint32_t other = berthi_simt_shuffle(word, own ^ step);

        word = other > word ? other : word;
    }
    return word;
}

/* All of its lanes have to ask, as on a device. */
SIMT_INLINE uint32_t
simt_warp(void)
{
    return berthi_simt_shuffle(simt_thread() / SIMT_WARP, 0);
}

SIMT_INLINE float
simt_shuffle_quad(float value, uint32_t from)
{
    return simt_shuffle(value, simt_thread() % SIMT_WARP / 4 * 4 + from);
}

SIMT_INLINE void
simt_multiply_bf16(float *sums, const uint32_t *rows, const uint32_t *columns)
{
    berthi_simt_multiply(sums, rows, columns, true);
}

SIMT_INLINE void
simt_multiply_f16(float *sums, const uint32_t *rows, const uint32_t *columns)
{
    berthi_simt_multiply(sums, rows, columns, false);
}

SIMT_INLINE uint32_t
simt_load4(const void *from)
{
    uint32_t value;

    berthi_simt_access(from, sizeof value);
    memcpy(&value, from, sizeof value);
    return value;
}

SIMT_INLINE simt_two
simt_load8(const void *from)
{
    simt_two value;

    berthi_simt_access(from, sizeof value);
    memcpy(&value, from, sizeof value);
    return value;
}

SIMT_INLINE simt_four
simt_load16(const void *from)
{
    simt_four value;

    berthi_simt_access(from, sizeof value);
    memcpy(&value, from, sizeof value);
    return value;
}

SIMT_INLINE simt_four
simt_read16(const void *from)
{
    return simt_load16(from);
}

SIMT_INLINE simt_four
simt_fresh16(const void *from)
{
    return simt_load16(from);
}

SIMT_INLINE uint32_t
simt_read4(const void *from)
{
    return simt_load4(from);
}

SIMT_INLINE uint32_t
simt_read1(const uint8_t *from)
{
    return *from;
}

SIMT_INLINE void
simt_store8(void *to, simt_two value)
{
    berthi_simt_access(to, sizeof value);
    memcpy(to, &value, sizeof value);
}

SIMT_INLINE void
simt_store16(void *to, simt_four value)
{
    berthi_simt_access(to, sizeof value);
    memcpy(to, &value, sizeof value);
}

SIMT_INLINE void
simt_look_anew(uint32_t *word)
{
    (void)word;
}

SIMT_INLINE const uint8_t *
simt_keep_address(const uint8_t *address)
{
    return address;
}

SIMT_INLINE const uint32_t *
simt_argument(const uint32_t *table)
{
    return table;
}

SIMT_INLINE void
simt_atomic_or(uint32_t *word, uint32_t bits)
{
    (void)__atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

SIMT_INLINE void
simt_atomic_add(uint64_t *count, uint64_t more)
{
    berthi_simt_access(count, sizeof *count);
    (void)__atomic_fetch_add(count, more, __ATOMIC_RELAXED);
}

SIMT_INLINE uint32_t
simt_count_bits(uint32_t word)
{
    return (uint32_t)__builtin_popcount(word);
}

SIMT_INLINE uint32_t
simt_first_bit(uint32_t word)
{
    return (uint32_t)__builtin_ctz(word);
}

SIMT_INLINE uint32_t
simt_byte(uint32_t word, uint32_t k)
{
    return word >> (8 * k) & 0xFFu;
}

SIMT_INLINE uint32_t
simt_add_bytes(uint32_t a, uint32_t b, uint32_t sum)
{
    for (uint32_t shift = 0; shift < 32; shift += 8)
        sum += (a >> shift & 0xFF) * (b >> shift & 0xFF);
    return sum;
}

SIMT_INLINE uint32_t
simt_add_halves(uint32_t a, uint32_t b, uint32_t sum)
{
    return sum + (a & 0xFFFF) * (b & 0xFF) + (a >> 16) * (b >> 8 & 0xFF);
}

SIMT_INLINE int32_t
simt_add_signed_bytes(uint32_t a, uint32_t b, int32_t sum)
{
    for (uint32_t shift = 0; shift < 32; shift += 8)
        sum += (int8_t)(a >> shift) * (int8_t)(b >> shift);
    return sum;
}

SIMT_INLINE uint32_t
simt_join_sign(uint32_t half, float value)
{
    return half | (signbit(value) ? 0x00FF0000u : 0);
}

SIMT_INLINE uint32_t
simt_sign_bytes(const uint32_t *words)
{
    return (words[0] >> 16 & 0xFF) | (words[1] >> 16 & 0xFF) << 8 | (words[2] >> 16 & 0xFF) << 16
           | (words[3] >> 16 & 0xFF) << 24;
}

SIMT_INLINE uint32_t
simt_high_bytes(const uint32_t *words)
{
    return words[0] >> 24 | words[1] >> 24 << 8 | words[2] >> 24 << 16
           | (words[3] & 0xFF000000u);
}

/* Rounded correctly, which a GPU's is not always. */
SIMT_INLINE float
simt_inverse_root(float value)
{
    return (float)(1.0 / sqrt((double)value));
}

SIMT_INLINE int32_t
simt_shuffle_xor_int(int32_t value, uint32_t mask)
{
    return (int32_t)berthi_simt_shuffle((uint32_t)value,
                                        (simt_thread() % SIMT_WARP) ^ mask);
}

SIMT_INLINE uint32_t
simt_shared_load4(const void *from)
{
    return simt_load4(from);
}

SIMT_INLINE simt_two
simt_shared_load8(const void *from)
{
    return simt_load8(from);
}

#endif
