/* SPDX-License-Identifier: Apache-2.0 */
/* simt_cuda.cuh - the words of simt.h as nvcc has them. By simt.h alone. */
#ifndef BERTH_KERNELS_SIMT_CUDA_CUH
#define BERTH_KERNELS_SIMT_CUDA_CUH

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/simt_types.h"

#define SIMT_INLINE static __device__ __forceinline__
/* As many as a processor holds at all; most hold 2048. */
#if __CUDA_ARCH__ == 750
#define SIMT_RESIDENT_MOST 1024
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1100
#define SIMT_RESIDENT_MOST 1536
#else
#define SIMT_RESIDENT_MOST 2048
#endif
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_NO_UNROLL _Pragma("unroll 1")
#define SIMT_PRAGMA(text) _Pragma(#text)
#define SIMT_UNROLL_BY(turns) SIMT_PRAGMA(unroll turns)
#define SIMT_KERNEL_AHEAD(name, threads, resident, type, call)                        \
    extern "C" __global__ void __launch_bounds__(threads, (resident) / (threads))     \
        name(const __grid_constant__ type argument)                                   \
    {                                                                                 \
        const type *const a = &argument;                                              \
                                                                                      \
        call;                                                                         \
    }
#define SIMT_SHARED(type, name, count)                                                \
    __shared__ __align__(16) type name##_memory[count];                               \
    type *const name = name##_memory

#define SIMT_ROOM(name, bytes)                                                        \
    extern __shared__ __align__(1024) uint8_t simt_room[];                            \
    uint8_t *const name = simt_room

/*
 * Since Hopper a launch may say that its CTAs come while the kernel before them in the stream ends
 * (berthi_launch_overlaps()): then nobody but they themselves waits for what that one has written
 * or still reads. When all CTAs of a kernel are here, the next one's may come, and wait in turn.
 */
SIMT_INLINE void
simt_let_later_come(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

SIMT_INLINE void
simt_wait_for_earlier(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
    simt_let_later_come();
}

SIMT_INLINE uint32_t
simt_thread(void)
{
    return threadIdx.x;
}

SIMT_INLINE uint64_t
simt_cta(void)
{
    return blockIdx.x;
}

SIMT_INLINE uint64_t
simt_ctas(void)
{
    return gridDim.x;
}

SIMT_INLINE void
simt_barrier(void)
{
    __syncthreads();
}

SIMT_INLINE void
simt_warp_barrier(void)
{
    __syncwarp();
}

/* Through no register and not by the first cache; where there is no such copy, at once. */
SIMT_INLINE void
simt_copy16(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}

/* 1: made for GPUs from 10.0 on, for which the compiler keeps more in registers than for others. */
#if __CUDA_ARCH__ >= 1000
#define SIMT_IS_TIGHT 1
#else
#define SIMT_IS_TIGHT 0
#endif

/* Fewer bytes come by the first cache, where neighbours may be found later. */
SIMT_INLINE void
simt_copy8(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *(uint2 *)to = *(const uint2 *)from;
#endif
}

SIMT_INLINE void
simt_copy4(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *(uint32_t *)to = *(const uint32_t *)from;
#endif
}

SIMT_INLINE void
simt_end_copies(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/* `count` is a constant. */
#if __CUDA_ARCH__ >= 800
#define simt_wait_copies(count)                                                       \
    asm volatile("cp.async.wait_group %0;" : : "n"(count) : "memory")
#else
#define simt_wait_copies(count) ((void)(count))
#endif

/* The value of the lane whose number differs in the bits of `mask`. */
SIMT_INLINE float
simt_shuffle_xor(float value, uint32_t mask)
{
    return __shfl_xor_sync(0xFFFFFFFFu, value, (int)mask);
}

/* The value of the lane `distance` further on; beyond the warp, one's own. */
SIMT_INLINE float
simt_shuffle_down(float value, uint32_t distance)
{
    return __shfl_down_sync(0xFFFFFFFFu, value, distance);
}

/* The number of the warp in its CTA, of which the compiler then knows that all lanes agree. */
SIMT_INLINE uint32_t
simt_warp(void)
{
    return __shfl_sync(0xFFFFFFFFu, threadIdx.x / SIMT_WARP, 0);
}

/* The value of lane `from` of the warp. */
SIMT_INLINE float
simt_shuffle(float value, uint32_t from)
{
    return __shfl_sync(0xFFFFFFFFu, value, (int)from);
}

/* A bit for each lane of the warp: whether its own is. */
SIMT_INLINE uint32_t
simt_ballot(bool is)
{
    return __ballot_sync(0xFFFFFFFFu, is);
}

SIMT_INLINE bool
simt_all(bool is)
{
    return __all_sync(0xFFFFFFFFu, is) != 0;
}

/* Of a word of each lane; by one instruction where there is one. */
SIMT_INLINE uint32_t
simt_largest(uint32_t word)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, word);
#else
    SIMT_UNROLL
    for (int step = 1; step < 32; step *= 2)
        word = max(word, __shfl_xor_sync(0xFFFFFFFFu, word, step));
    return word;
#endif
}

/* The value of number `from` of the four neighbours that a lane is among. */
SIMT_INLINE float
simt_shuffle_quad(float value, uint32_t from)
{
    return __shfl_sync(0xFFFFFFFFu, value, (int)from, 4);
}

/*
 * sums += rows * columns, 16 x 16 times 16 x 8, in the fragments of m16n8k16: two
 * numbers a word. Before capability 80 there is none; no launch asks for it.
 */
#if __CUDA_ARCH__ >= 800
#define SIMT_MULTIPLY(name, type)                                                     \
    SIMT_INLINE void name(float *sums, const uint32_t *rows, const uint32_t *columns) \
    {                                                                                 \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "   \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                 \
                     "{%10, %11, %12, %13};"                                          \
                     : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])     \
                     : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]),        \
                       "r"(columns[0]), "r"(columns[1]), "f"(sums[0]), "f"(sums[1]),  \
                       "f"(sums[2]), "f"(sums[3]));                                   \
    }
#else
#define SIMT_MULTIPLY(name, type)                                                     \
    SIMT_INLINE void name(float *sums, const uint32_t *rows, const uint32_t *columns) \
    {                                                                                 \
        (void)sums, (void)rows, (void)columns;                                        \
        __trap();                                                                     \
    }
#endif
SIMT_MULTIPLY(simt_multiply_bf16, "bf16")
SIMT_MULTIPLY(simt_multiply_f16, "f16")

/* Memory that is read once: first to leave the cache. */
SIMT_INLINE uint32_t
simt_load4(const void *from)
{
    return __ldcs((const unsigned int *)from);
}

SIMT_INLINE simt_two
simt_load8(const void *from)
{
    const uint2 v = __ldcs((const uint2 *)from);
    const simt_two two = { { v.x, v.y } };

    return two;
}

SIMT_INLINE simt_four
simt_load16(const void *from)
{
    const uint4 v = __ldcs((const uint4 *)from);
    const simt_four four = { { v.x, v.y, v.z, v.w } };

    return four;
}

/* Memory that others read, too, and nobody writes: it may stay in the cache. */
SIMT_INLINE simt_four
simt_read16(const void *from)
{
    const uint4 v = __ldg((const uint4 *)from);
    const simt_four four = { { v.x, v.y, v.z, v.w } };

    return four;
}

SIMT_INLINE uint32_t
simt_read4(const void *from)
{
    return __ldg((const unsigned int *)from);
}

SIMT_INLINE uint32_t
simt_read1(const uint8_t *from)
{
    return __ldg(from);
}

/* What earlier work in the stream may write until simt_wait_for_earlier(). */
SIMT_INLINE simt_four
simt_fresh16(const void *from)
{
    const uint4 v = *(const uint4 *)from;
    const simt_four four = { { v.x, v.y, v.z, v.w } };

    return four;
}

SIMT_INLINE void
simt_store8(void *to, simt_two value)
{
    *(uint2 *)to = make_uint2(value.word[0], value.word[1]);
}

SIMT_INLINE void
simt_store16(void *to, simt_four value)
{
    *(uint4 *)to = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
}

/* What the compiler knows of a word, and has made of it, is forgotten. */
SIMT_INLINE void
simt_look_anew(uint32_t *word)
{
    asm volatile("" : "+r"(*word));
}

/* The same of an address, which is then worked out once and stays in registers. */
SIMT_INLINE const uint8_t *
simt_keep_address(const uint8_t *address)
{
    asm volatile("" : "+l"(address));
    return address;
}

/*
 * A table among the kernel's arguments, for lanes that read it at different places: as constants,
 * which arguments are, each place is a read of its own, one after the other; as memory that a
 * pointer leads to all are one.
 */
SIMT_INLINE const uint32_t *
simt_argument(const uint32_t *table)
{
    asm("" : "+l"(table));
    return table;
}

/* Sets bits in global memory, whoever else does. */
SIMT_INLINE void
simt_atomic_or(uint32_t *word, uint32_t bits)
{
    atomicOr(word, bits);
}

SIMT_INLINE void
simt_atomic_add(uint64_t *count, uint64_t more)
{
    atomicAdd((unsigned long long *)count, (unsigned long long)more);
}

SIMT_INLINE uint32_t
simt_count_bits(uint32_t word)
{
    return (uint32_t)__popc(word);
}

/* The number of the lowest bit that is set; there is one. */
SIMT_INLINE uint32_t
simt_first_bit(uint32_t word)
{
    return (uint32_t)__ffs((int)word) - 1;
}

/* Byte k of a word, k a constant. */
SIMT_INLINE uint32_t
simt_byte(uint32_t word, uint32_t k)
{
    return __byte_perm(word, 0, 0x4440u | k);
}

/* The products of four bytes each, added to `sum`. */
SIMT_INLINE uint32_t
simt_add_bytes(uint32_t a, uint32_t b, uint32_t sum)
{
    return __dp4a(a, b, sum);
}

/* The products of two halves and the lowest two bytes, added to `sum`. */
SIMT_INLINE uint32_t
simt_add_halves(uint32_t a, uint32_t b, uint32_t sum)
{
    return __dp2a_lo(a, b, sum);
}

/* The same of signed bytes. */
SIMT_INLINE int32_t
simt_add_signed_bytes(uint32_t a, uint32_t b, int32_t sum)
{
    return __dp4a((int)a, (int)b, sum);
}

/* A half word; in the half above it 255 if the value has a sign, else 0. */
SIMT_INLINE uint32_t
simt_join_sign(uint32_t half, float value)
{
    uint32_t word;

    asm("prmt.b32 %0, %1, %2, 0x3F10;" : "=r"(word) : "r"(half), "f"(value));
    return word;
}

/* The bytes that signs are in, of four such words. */
SIMT_INLINE uint32_t
simt_sign_bytes(const uint32_t *words)
{
    return __byte_perm(__byte_perm(words[0], words[1], 0x0062),
                       __byte_perm(words[2], words[3], 0x0062), 0x5410);
}

/* The highest bytes of four words, that of the first one lowest. */
SIMT_INLINE uint32_t
simt_high_bytes(const uint32_t *words)
{
    return __byte_perm(__byte_perm(words[0], words[1], 0x0073),
                       __byte_perm(words[2], words[3], 0x0073), 0x5410);
}

/* About 1 / sqrt(value), as quick as it gets. */
SIMT_INLINE float
simt_inverse_root(float value)
{
    float root;

    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(value));
    return root;
}

SIMT_INLINE int32_t
simt_shuffle_xor_int(int32_t value, uint32_t mask)
{
    return __shfl_xor_sync(0xFFFFFFFFu, value, (int)mask);
}

/* From shared memory. */
SIMT_INLINE uint32_t
simt_shared_load4(const void *from)
{
    return *(const uint32_t *)from;
}

SIMT_INLINE simt_two
simt_shared_load8(const void *from)
{
    const uint2 v = *(const uint2 *)from;
    const simt_two two = { { v.x, v.y } };

    return two;
}

#endif
