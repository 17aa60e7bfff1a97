/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_all.cu - what reading alone can reach: 16 bytes a lane, 8 of them on their way at
 * once, nothing written but a sum a CTA.
 *
 * As many CTAs as the GPU holds, each with its share: one atomic addition for each of them
 * is nothing, one for each of a grid that covers a gigabyte takes as long as reading it.
 */
#include <cstdint>

#define LOADS 8u
#define THREADS 256u

__global__ static void __launch_bounds__(THREADS, 6)
read_all_kernel(const uint4 *words, uint64_t count, uint32_t *sum)
{
    __shared__ uint32_t warps[THREADS / 32];
    const uint64_t step = (uint64_t)THREADS * LOADS;
    uint32_t own = 0;

    for (uint64_t begin = blockIdx.x * step; begin < count; begin += gridDim.x * step) {
        uint4 found[LOADS];

#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            const uint64_t at = begin + i * THREADS + threadIdx.x;

            found[i] = at < count ? __ldcs(words + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++)
            own += found[i].x ^ found[i].y ^ found[i].z ^ found[i].w;
    }
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2)
        own += __shfl_xor_sync(0xFFFFFFFFu, own, lanes);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t i = 1; i < THREADS / 32; i++)
            own += warps[i];
        atomicAdd(sum, own);
    }
}

extern "C" int
gpu_read_all(const void *memory, uint64_t bytes, uint32_t *sum, void *stream)
{
    const uint64_t count = bytes / sizeof(uint4);
    const uint64_t most = (count + THREADS * LOADS - 1) / (THREADS * LOADS);
    int device = 0;
    int processors = 0;
    int resident = 0;
    cudaError_t code = cudaGetDevice(&device);

    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (code == cudaSuccess)
        code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, read_all_kernel, THREADS,
                                                             0);
    if (code != cudaSuccess || most == 0)
        return (int)code;
    const uint64_t ctas = (uint64_t)processors * (uint64_t)resident;

    read_all_kernel<<<(unsigned)(ctas < most ? ctas : most), THREADS, 0, (cudaStream_t)stream>>>(
        (const uint4 *)memory, count, sum);
    return (int)cudaGetLastError();
}
