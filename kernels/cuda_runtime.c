/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.c - the calls of cuda_calls.h by the toolkit's static runtime, which finds
 * the driver at run time: without one every call says so.
 *
 * Nothing here decides anything: what can be is tested with another table.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<nvml.h>)
#include <nvml.h>
#endif
#include <stdio.h>
#include <string.h>

#include "kernels/cuda_calls.h"

/* What nvcc was told, from the build file: BERTH_CUDA_ARCHITECTURES is 75, 80, ... */
static const int32_t architectures[] = { BERTH_CUDA_ARCHITECTURES };
static const int32_t ptx[] = { BERTH_CUDA_PTX };

/* A kernel is known to the runtime by the address of what nvcc makes of it for the host. */
#define DECLARE_KERNEL(name) void berthi_##name(void);
#define KERNEL_OF(name) [KERNEL_##name] = berthi_##name,
BERTHI_COMMON_KERNELS(DECLARE_KERNEL)
#ifdef BERTH_CUDA_WIDE
BERTHI_WIDE_KERNELS(DECLARE_KERNEL)
static void (*const kernels[KERNEL_COUNT])(void) = { BERTHI_KERNELS(KERNEL_OF) };
#else
static void (*const kernels[KERNEL_COUNT])(void) = { BERTHI_COMMON_KERNELS(KERNEL_OF) };
#endif

#if defined BERTH_CUDA_WIDE && CUDART_VERSION >= BERTHI_CUDA_TILES_VERSION
#define WIDE_ARCHITECTURE BERTH_CUDA_WIDE
#else
#define WIDE_ARCHITECTURE 0
#endif

/* --------------------------------------------------------------------------- the machine */

static const char *
error_words(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

static int
last_error(void)
{
    return (int)cudaGetLastError();
}

static int
driver_version(int *out)
{
    return (int)cudaDriverGetVersion(out);
}

static int
device_count(int *out)
{
    return (int)cudaGetDeviceCount(out);
}

static int
device_properties(int device, berthi_cuda_properties *out)
{
    struct cudaDeviceProp p;
    const cudaError_t code = cudaGetDeviceProperties(&p, device);
    int node = -1;

    memset(out, 0, sizeof *out);
    if (code != cudaSuccess)
        return (int)code;
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    memcpy(out->uuid, p.uuid.bytes, sizeof out->uuid);
    out->pci_domain = p.pciDomainID;
    out->pci_bus = p.pciBusID;
    out->pci_device = p.pciDeviceID;
    out->major = p.major;
    out->minor = p.minor;
    out->processors = p.multiProcessorCount;
    out->copy_engines = p.asyncEngineCount;
    out->room_bytes = (uint32_t)p.sharedMemPerBlockOptin;
    out->memory_bytes = p.totalGlobalMem;
#if CUDART_VERSION >= 12020
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess) {
        (void)cudaGetLastError();
        node = -1;
    }
#endif
    out->numa_node = node;
    return BERTHI_CUDA_OK;
}

static int
get_device(int *out)
{
    return (int)cudaGetDevice(out);
}

static int
set_device(int device)
{
    return (int)cudaSetDevice(device);
}

static int
synchronize(void)
{
    return (int)cudaDeviceSynchronize();
}

/* --------------------------------------------------------------------------------- memory */

static int
memory_info(uint64_t *out_free, uint64_t *out_total)
{
    size_t free_bytes = 0;
    size_t total = 0;
    const cudaError_t code = cudaMemGetInfo(&free_bytes, &total);

    *out_free = free_bytes;
    *out_total = total;
    return (int)code;
}

static int
alloc_memory(void **out, uint64_t bytes)
{
    return (int)cudaMalloc(out, bytes);
}

static int
free_memory(void *memory)
{
    return (int)cudaFree(memory);
}

static int
pin(void *memory, uint64_t bytes)
{
    return (int)cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
}

static int
unpin(void *memory)
{
    return (int)cudaHostUnregister(memory);
}

/* ---------------------------------------------------------------------- streams and events */

static int
stream_create(void **out)
{
    cudaStream_t stream = NULL;
    const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    *out = stream;
    return (int)code;
}

static int
stream_destroy(void *stream)
{
    return (int)cudaStreamDestroy(stream);
}

static int
stream_query(void *stream)
{
    return (int)cudaStreamQuery(stream);
}

static int
stream_wait(void *stream, void *event)
{
    return (int)cudaStreamWaitEvent(stream, event, 0);
}

static int
stream_is_capturing(bool *out, void *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream, &status);

    *out = status != cudaStreamCaptureStatusNone;
    return (int)code;
}

static int
capture_mode(int *mode)
{
    enum cudaStreamCaptureMode its = (enum cudaStreamCaptureMode)*mode;
    const cudaError_t code = cudaThreadExchangeStreamCaptureMode(&its);

    *mode = (int)its;
    return (int)code;
}

#if CUDART_VERSION >= 12000
static int
stream_number(uint64_t *out, void *stream)
{
    unsigned long long number = 0;
    const cudaError_t code = cudaStreamGetId(stream, &number);

    *out = number;
    return (int)code;
}
#endif

static int
event_create(void **out)
{
    cudaEvent_t event = NULL;
    const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);

    *out = event;
    return (int)code;
}

static int
event_destroy(void *event)
{
    return (int)cudaEventDestroy(event);
}

static int
event_record(void *event, void *stream)
{
    return (int)cudaEventRecord(event, stream);
}

static int
event_query(void *event)
{
    return (int)cudaEventQuery(event);
}

/* ------------------------------------------------------------------------------------ work */

static int
copy(void *to, const void *from, uint64_t bytes, int32_t kind, void *stream)
{
    static const enum cudaMemcpyKind kinds[] = {
        [BERTHI_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [BERTHI_COPY_TO_HOST] = cudaMemcpyDeviceToHost,
        [BERTHI_COPY_WITHIN] = cudaMemcpyDeviceToDevice,
    };

    return (int)cudaMemcpyAsync(to, from, bytes, kinds[kind], stream);
}

static int
peer_can(int *out, int device, int peer)
{
    return (int)cudaDeviceCanAccessPeer(out, device, peer);
}

static int
peer_enable(int peer)
{
    return (int)cudaDeviceEnablePeerAccess(peer, 0);
}

static int
peer_copy(void *to, int to_device, const void *from, int from_device, uint64_t bytes,
          void *stream)
{
    return (int)cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

static int
clear(void *memory, uint64_t bytes, void *stream)
{
    return (int)cudaMemsetAsync(memory, 0, bytes, stream);
}

#if CUDART_VERSION >= BERTHI_CUDA_TILES_VERSION
typedef CUresult encode_tiles(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                              void *memory, const cuuint64_t *sizes, const cuuint64_t *strides,
                              const cuuint32_t *box, const cuuint32_t *steps,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/*
 * Bytes, in two dimensions, in place of what they are. What is asked for is a line of 128 bytes or
 * a part of one: the second cache is to bring no more, which takes a twentieth longer on an H200.
 */
static CUresult
encode(encode_tiles *call, berthi_tiles *tiles)
{
    const cuuint64_t sizes[2] = { tiles->of.row_bytes, tiles->of.rows };
    const cuuint64_t strides[1] = { tiles->of.row_bytes };
    const cuuint32_t box[2] = { tiles->of.tile_bytes, tiles->of.tile_rows };
    const cuuint32_t steps[2] = { 1, 1 };
    CUtensorMap map;
    const CUresult code =
        call(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)(uintptr_t)tiles->of.from, sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             tiles->of.is_turned != 0 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    _Static_assert(sizeof map == sizeof tiles->hardware, "a matrix has the place of its own");
    if (code == CUDA_SUCCESS)
        memcpy(tiles->hardware, &map, sizeof map);
    return code;
}
#endif

/* The argument's matrices become what hardware makes of them. */
static cudaError_t
encode_matrices(berthi_launch *its, berthi_cuda_tiles *tiles)
{
#if CUDART_VERSION >= BERTHI_CUDA_TILES_VERSION
    uint8_t *const first = (uint8_t *)&its->argument + its->matrices_at;
    CUresult code = tiles != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

    for (uint32_t i = 0; i < its->matrices && code == CUDA_SUCCESS; i++)
        code = encode((encode_tiles *)tiles,
                      (berthi_tiles *)(void *)(first + i * sizeof(berthi_tiles)));
    return (cudaError_t)code; /* the runtime has the driver's numbers */
#else
    (void)its;
    (void)tiles;
    return cudaErrorNotSupported;
#endif
}

static int
launch_as_it_is(const berthi_launch *its, bool overlaps, void *stream)
{
    const void *const kernel = (const void *)kernels[its->kernel];
    /* The argument's bytes are taken before this returns, as many as the kernel has. */
    void *arguments[] = { (void *)(uintptr_t)&its->argument };
    cudaLaunchAttribute attribute = { .id = cudaLaunchAttributeProgrammaticStreamSerialization };
    cudaLaunchConfig_t config = { .gridDim = { its->ctas, 1, 1 },
                                  .blockDim = { its->threads, 1, 1 },
                                  .dynamicSmemBytes = its->room_bytes,
                                  .stream = stream,
                                  .attrs = &attribute };

    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = overlaps;
    return (int)cudaLaunchKernelExC(&config, kernel, arguments);
}

static int
launch(const berthi_launch *its, berthi_cuda_tiles *tiles, bool overlaps, void *stream)
{
    berthi_launch own;
    cudaError_t code;

    if (its->matrices == 0)
        return launch_as_it_is(its, overlaps, stream);
    own = *its;
    code = encode_matrices(&own, tiles);
    return code == cudaSuccess ? launch_as_it_is(&own, overlaps, stream) : (int)code;
}

/*
 * Where a processor holds two CTAs if the first cache gives up for that what it can, it is to: the
 * second one may be of the launch behind.
 */
static int
allow_room(berthi_kernel_id kernel, uint32_t bytes)
{
    const void *const its = (const void *)kernels[kernel];
    struct cudaFuncAttributes attributes;
    int ctas = 0;
    cudaError_t code = cudaFuncSetAttribute(its, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)bytes);

    if (code == cudaSuccess)
        code = cudaFuncGetAttributes(&attributes, its);
    if (code == cudaSuccess)
        code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &ctas, its, attributes.maxThreadsPerBlock, bytes);
    if (code == cudaSuccess && ctas > 1)
        code = cudaFuncSetAttribute(its, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared);
    return (int)code;
}

static int
call_host(void (*call)(void *user), void *user, void *stream)
{
    return (int)cudaLaunchHostFunc(stream, call, user);
}

/* --------------------------------------------------------------------------------- cuBLASLt */

/* The numbers of gemm_calls.h are those of the library, where its header is there to ask. */
#define SAME(own, its) _Static_assert((int)(own) == (int)(its), #own " is " #its)
SAME(BERTHI_CUDA_APART, cudaStreamCaptureModeRelaxed);
#if __has_include(<cublasLt.h>)
SAME(BERTHI_GEMM_OK, CUBLAS_STATUS_SUCCESS);
SAME(BERTHI_GEMM_NO_MEMORY, CUBLAS_STATUS_ALLOC_FAILED);
SAME(BERTHI_GEMM_INVALID, CUBLAS_STATUS_INVALID_VALUE);
SAME(BERTHI_GEMM_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH);
SAME(BERTHI_GEMM_EXECUTION, CUBLAS_STATUS_EXECUTION_FAILED);
SAME(BERTHI_GEMM_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(BERTHI_GEMM_F32, CUDA_R_32F);
SAME(BERTHI_GEMM_F16, CUDA_R_16F);
SAME(BERTHI_GEMM_BF16, CUDA_R_16BF);
SAME(BERTHI_GEMM_I8, CUDA_R_8I);
SAME(BERTHI_GEMM_I32, CUDA_R_32I);
SAME(BERTHI_GEMM_SUM_F32, CUBLAS_COMPUTE_32F);
SAME(BERTHI_GEMM_SUM_I32, CUBLAS_COMPUTE_32I);
SAME(BERTHI_GEMM_TURN_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(BERTHI_GEMM_TURNED, CUBLAS_OP_T);
SAME(BERTHI_GEMM_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(BERTHI_GEMM_ADD_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(BERTHI_GEMM_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(BERTHI_GEMM_COLUMNS, CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(BERTHI_GEMM_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(BERTHI_GEMM_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(BERTHI_GEMM_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(BERTHI_GEMM_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(BERTHI_GEMM_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(sizeof(berthi_gemm_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(berthi_gemm_result), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(berthi_gemm_result, workspace_bytes),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(berthi_gemm_result, status), offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

/* Those of nvml_calls.h too. */
#if __has_include(<nvml.h>)
SAME(BERTHI_NVML_OK, NVML_SUCCESS);
SAME(BERTHI_NVML_UP, NVML_FEATURE_ENABLED);
SAME(BERTHI_NVML_LINK_SPEED_OF_ALL, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON);
SAME(BERTHI_NVML_LINK_COUNT, NVML_FI_DEV_NVLINK_LINK_COUNT);
#ifdef NVML_FI_DEV_C2C_LINK_GET_MAX_BW /* since CUDA 12 */
SAME(BERTHI_NVML_LINK_SPEED, NVML_FI_DEV_NVLINK_GET_SPEED);
SAME(BERTHI_NVML_LINK_STATE, NVML_FI_DEV_NVLINK_GET_STATE);
SAME(BERTHI_NVML_C2C_COUNT, NVML_FI_DEV_C2C_LINK_COUNT);
SAME(BERTHI_NVML_C2C_STATE, NVML_FI_DEV_C2C_LINK_GET_STATUS);
SAME(BERTHI_NVML_C2C_SPEED, NVML_FI_DEV_C2C_LINK_GET_MAX_BW);
#endif
SAME(BERTHI_NVML_U32, NVML_VALUE_TYPE_UNSIGNED_INT);
SAME(BERTHI_NVML_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG);
SAME(BERTHI_NVML_U64, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
SAME(sizeof(int), sizeof(nvmlEnableState_t));
SAME(sizeof(berthi_nvml_field), sizeof(nvmlFieldValue_t));
SAME(offsetof(berthi_nvml_field, scope), offsetof(nvmlFieldValue_t, scopeId));
SAME(offsetof(berthi_nvml_field, type), offsetof(nvmlFieldValue_t, valueType));
SAME(offsetof(berthi_nvml_field, status), offsetof(nvmlFieldValue_t, nvmlReturn));
SAME(offsetof(berthi_nvml_field, value), offsetof(nvmlFieldValue_t, value));
#endif
#undef SAME

static bool
open_gemm(berthi_gemm_calls *out, char why[BERTHI_GEMM_WHY_CAPACITY])
{
    return berthi_gemm_open(CUDART_VERSION / 1000, out, why);
}

static bool
find_tiles(berthi_cuda_tiles **out)
{
    *out = NULL;
    return CUDART_VERSION >= BERTHI_CUDA_TILES_VERSION && berthi_cuda_find_tiles(out);
}

const berthi_cuda_calls *
berthi_cuda_runtime(void)
{
    static const berthi_cuda_calls calls = {
        .runtime_version = CUDART_VERSION,
        .architectures = architectures,
        .architecture_count = sizeof architectures / sizeof *architectures,
        .ptx = ptx,
        .ptx_count = sizeof ptx / sizeof *ptx,
        .wide = WIDE_ARCHITECTURE,
        .error_words = error_words,
        .last_error = last_error,
        .driver_version = driver_version,
        .device_count = device_count,
        .device_properties = device_properties,
        .get_device = get_device,
        .set_device = set_device,
        .find_contexts = berthi_cuda_find_contexts,
        .find_tiles = find_tiles,
        .synchronize = synchronize,
        .memory_info = memory_info,
        .alloc = alloc_memory,
        .free = free_memory,
        .pin = pin,
        .unpin = unpin,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_query = stream_query,
        .stream_wait = stream_wait,
        .stream_is_capturing = stream_is_capturing,
        .capture_mode = capture_mode,
#if CUDART_VERSION >= 12000
        .stream_number = stream_number,
#endif
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_query = event_query,
        .copy = copy,
        .peer_can = peer_can,
        .peer_enable = peer_enable,
        .peer_copy = peer_copy,
        .clear = clear,
        .launch = launch,
        .allow_room = allow_room,
        .call = call_host,
        .open_gemm = open_gemm,
        .open_nvml = berthi_nvml_open,
    };

    return &calls;
}
