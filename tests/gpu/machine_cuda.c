/* SPDX-License-Identifier: Apache-2.0 */
/* machine_cuda.c - see machine.h */
#include <cuda_runtime_api.h>

#include "tests/gpu/machine.h"

int gpu_read_all(const void *memory, uint64_t bytes, uint32_t *sum, void *stream);

static int
stamp_create(void **out)
{
    cudaEvent_t event = NULL;
    const cudaError_t code = cudaEventCreate(&event);

    *out = event;
    return (int)code;
}

static int
stamp_destroy(void *stamp)
{
    return (int)cudaEventDestroy(stamp);
}

static int
stamp_record(void *stamp, void *stream)
{
    return (int)cudaEventRecord(stamp, stream);
}

static int
elapsed_ms(float *out, void *begin, void *end)
{
    return (int)cudaEventElapsedTime(out, begin, end);
}

/* What a release of the toolkit does not tell is 0. */
static int
describe(uint64_t *cache_bytes, uint32_t *clock, uint32_t *memory_clock)
{
    int value = 0;

    *cache_bytes = 0;
    *clock = 0;
    *memory_clock = 0;
    if (cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 0) == cudaSuccess)
        *cache_bytes = (uint64_t)value;
    if (cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0) == cudaSuccess)
        *clock = (uint32_t)value / 1000;
    if (cudaDeviceGetAttribute(&value, cudaDevAttrMemoryClockRate, 0) == cudaSuccess)
        *memory_clock = (uint32_t)value / 1000;
    (void)cudaGetLastError();
    return BERTHI_CUDA_OK;
}

/* As users are told; NULL: there are GPUs. */
static const char *
refusal(const berthi_cuda_calls *calls)
{
    static berth_error error;
    berthi_devices *devices = NULL;
    berth_context *context = NULL;
    berth_status status = berth_context_create(NULL, &context, &error);

    if (status == BERTH_OK)
        status = berthi_devices_open_cuda(context, calls, "cuda", &devices, &error);
    berthi_devices_close(devices);
    berth_context_destroy(context);
    return status == BERTH_OK ? NULL : error.message;
}

const gpu_machine *
gpu_machine_cuda(const char **out_why)
{
    static gpu_machine machine = { .stamp_create = stamp_create,
                                   .stamp_destroy = stamp_destroy,
                                   .stamp_record = stamp_record,
                                   .elapsed_ms = elapsed_ms,
                                   .read_all = gpu_read_all,
                                   .describe = describe };

    machine.calls = berthi_devices_cuda();
    *out_why = refusal(machine.calls);
    return *out_why == NULL ? &machine : NULL;
}
