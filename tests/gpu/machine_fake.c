/* SPDX-License-Identifier: Apache-2.0 */
/* machine_fake.c - see machine.h */
#include <stdlib.h>

#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/gpu/machine.h"
#include "tests/simt.h"

typedef struct reading {
    const uint32_t *words;
    uint64_t count;
    uint32_t *sum;
} reading;

static void
stamp_now(void *stamp)
{
    *(uint64_t *)stamp = berthi_sys_now_ns();
}

static int
stamp_create(void **out)
{
    *out = calloc(1, sizeof(uint64_t));
    return *out != NULL ? BERTHI_CUDA_OK : BERTHI_CUDA_NO_MEMORY;
}

static int
stamp_destroy(void *stamp)
{
    free(stamp);
    return BERTHI_CUDA_OK;
}

static int
stamp_record(void *stamp, void *stream)
{
    return fake_cuda_push(stamp_now, stamp, stream);
}

/* Never nothing: speeds are divided by it. */
static int
elapsed_ms(float *out, void *begin, void *end)
{
    *out = (float)(*(uint64_t *)end - *(uint64_t *)begin + 1) * 1e-6f;
    return BERTHI_CUDA_OK;
}

static void
read_words(void *user)
{
    reading *const r = user;
    uint32_t sum = 0;

    for (uint64_t i = 0; i < r->count; i++)
        sum += r->words[i];
    *r->sum = sum;
    free(r);
}

static int
read_all(const void *memory, uint64_t bytes, uint32_t *sum, void *stream)
{
    reading *const r = malloc(sizeof *r);

    if (r == NULL)
        return BERTHI_CUDA_NO_MEMORY;
    *r = (reading){ memory, bytes / sizeof(uint32_t), sum };
    return fake_cuda_push(read_words, r, stream);
}

static int
describe(uint64_t *cache_bytes, uint32_t *clock, uint32_t *memory_clock)
{
    *cache_bytes = 0;
    *clock = 0;
    *memory_clock = 0;
    return BERTHI_CUDA_OK;
}

const gpu_machine *
gpu_machine_fake(const char **out_why)
{
    static const fake_cuda_machine with = { .count = 1, .driver = 13000, .architecture = 90,
                                            .memory_bytes = UINT64_C(1) << 30,
                                            .is_late = true };
    static gpu_machine machine = { .is_simulated = true,
                                   .stamp_create = stamp_create,
                                   .stamp_destroy = stamp_destroy,
                                   .stamp_record = stamp_record,
                                   .elapsed_ms = elapsed_ms,
                                   .read_all = read_all,
                                   .describe = describe };

    *out_why = "no fibers on this processor";
    if (!simt_has_fibers())
        return NULL;
    fake_gemm_begin();
    fake_cuda_begin(&with);
    machine.calls = fake_cuda_calls();
    return &machine;
}
