/* SPDX-License-Identifier: Apache-2.0 */
/* test_gemm_faults.c - every call of cuBLASLt, and of the runtime below it, failed in turn. */
#include <inttypes.h>
#include <string.h>

#include "kernels/gemm_lt.h"
#include "kernels/sys.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/fault.h"
#include "tests/gpu_faults.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define LEAST_INJECTIONS 1000u
#define SLAB_BYTES (UINT64_C(256) << 10)
#define SIDE 16u

static const fake_cuda_machine late = { .count = 2, .driver = 13000, .architecture = 86,
                                        .memory_bytes = 16 * MIB, .is_late = true };

/* With and without bias, other numbers of inputs, integers; weights of 4 bits in three slabs. */
static berth_status
multiply_all(berthi_device *device, uint8_t *memory, berthi_stream *stream,
             berth_error *error)
{
    berthi_gemm_task task = { .weight = memory, .inputs = memory + 4096,
                              .bias = memory + 8192, .outputs = memory + 16384,
                              .dtype = BERTH_BF16, .rows = SIDE, .columns = SIDE,
                              .count = 66, .stride = SIDE };
    const berthi_gemm_4bit packed = {
        .codes = memory, .absmax = (float *)(void *)(memory + 65536),
        .values = berthi_nf4_values, .block_size = 64, .dtype = BERTH_BF16, .rows = 1030,
        .columns = 64, .count = 2, .inputs = memory + 131072, .outputs = memory + 163840
    };
    berth_status status = fake_gemm_multiply(device, &task, stream, error);

    task.count = 65;
    if (status == BERTH_OK)
        status = fake_gemm_multiply(device, &task, stream, error);
    task.bias = NULL;
    task.dtype = BERTH_I8;
    task.count = 3;
    if (status == BERTH_OK)
        status = fake_gemm_multiply(device, &task, NULL, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = fake_gemm_multiply_4bit(device, &packed, stream, error);
    return status;
}

/* From opening to closing. */
static berth_status
run_scene(void *user, berth_context *context, berth_error *error)
{
    berthi_devices *devices = NULL;
    berthi_stream *stream = NULL;
    void *memory = NULL;
    berth_status status =
        berthi_devices_open_cuda(context, fake_cuda_calls(), "cuda:1", &devices, error);
    berthi_device *device;

    (void)user;
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(devices, 0);
    status = device->table->alloc(device, SLAB_BYTES, &memory, error);
    if (status == BERTH_OK) {
        memset(memory, 0, SLAB_BYTES); /* the fake's memory is the host's */
        status = device->table->stream_create(device, &stream, error);
    }
    if (status == BERTH_OK)
        status = multiply_all(device, memory, stream, error);
    device->table->stream_destroy(device, stream);
    device->table->free(device, memory, SLAB_BYTES);
    berthi_devices_close(devices);
    return status;
}

static void
test_every_call_fails(void)
{
    static const int statuses[] = { 1, BERTHI_GEMM_NO_MEMORY, BERTHI_GEMM_INVALID,
                                    BERTHI_GEMM_MISMATCH, BERTHI_GEMM_EXECUTION, 14,
                                    BERTHI_GEMM_UNSUPPORTED };
    static const int codes[] = { 1, BERTHI_CUDA_NO_MEMORY, BERTHI_CUDA_ILLEGAL_ADDRESS, 999 };
    gpu_faults faults = { run_scene, &late, true, 1, 30 };
    gpu_tally of_gemm = { 0 };
    gpu_tally of_cuda = { 0 };

    gpu_fail_all(&faults, statuses, sizeof statuses / sizeof *statuses, &of_gemm);
    faults.is_of_gemm = false;
    faults.least = 40;
    gpu_fail_all(&faults, codes, sizeof codes / sizeof *codes, &of_cuda);
    T_NOTE("%" PRIu64 " injections into the library, %" PRIu64 " survived, %" PRIu64
           " refused",
           of_gemm.injections, of_gemm.survived, of_gemm.refused);
    T_NOTE("%" PRIu64 " into the runtime, %" PRIu64 " survived, %" PRIu64 " lost a device",
           of_cuda.injections, of_cuda.survived, of_cuda.lost);
    CHECK_GE(of_gemm.injections + of_cuda.injections, LEAST_INJECTIONS);
    CHECK_EQ(of_gemm.lost, 0);
    CHECK_GT(of_gemm.refused, 0);
    CHECK_GT(of_cuda.lost, 0);
    /* Giving back goes on whatever fails there, and a check that fails is a search. */
    CHECK_LT(of_gemm.survived, of_gemm.injections / 2);
}

/* Host memory that is refused. */
static void
test_memory_fails(void)
{
    fault_counts counts;

    fake_gemm_begin();
    fake_cuda_begin(&late);
    counts = fault_loop("products", run_scene, NULL);
    CHECK_GT(counts.memory, 3);
    CHECK_EQ(counts.survived, 0);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_call_fails);
    T_RUN(test_memory_fails);
    T_MAIN_END;
}
