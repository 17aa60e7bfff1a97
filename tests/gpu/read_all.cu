/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_all.cu - what reading alone can reach: 16 bytes a lane, 8 of them on their way at
 * once, nothing written but a sum.
 */
#include <cstdint>

#define LOADS 8u
#define THREADS 256u

__global__ static void
read_all_kernel(const uint4 *words, uint64_t count, uint32_t *sum)
{
    const uint64_t first = (uint64_t)blockIdx.x * THREADS * LOADS + threadIdx.x;
    uint4 found[LOADS];
    uint32_t own = 0;

#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        const uint64_t at = first + i * THREADS;

        found[i] = at < count ? __ldcs(words + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++)
        own += found[i].x ^ found[i].y ^ found[i].z ^ found[i].w;
    for (uint32_t step = 16; step > 0; step /= 2)
        own += __shfl_xor_sync(0xFFFFFFFFu, own, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, own);
}

extern "C" int
gpu_read_all(const void *memory, uint64_t bytes, uint32_t *sum, void *stream)
{
    const uint64_t count = bytes / sizeof(uint4);
    const uint64_t ctas = (count + THREADS * LOADS - 1) / (THREADS * LOADS);

    read_all_kernel<<<(unsigned)ctas, THREADS, 0, (cudaStream_t)stream>>>(
        (const uint4 *)memory, count, sum);
    return (int)cudaGetLastError();
}
