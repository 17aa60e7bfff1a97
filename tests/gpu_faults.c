/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_faults.c - the n-th call of a GPU's libraries fails, for every n; see gpu_faults.h. */
#include "tests/gpu_faults.h"

#include "kernels/base.h"
#include "tests/fake_gemm.h"
#include "tests/t.h"
#include "tests/vacant.h"

typedef struct fault {
    int code;
    bool is_persistent;
} fault;

static void
check_given_back(const gpu_faults *faults, const fault *f)
{
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    if (faults->is_of_gemm || !f->is_persistent)
        CHECK_EQ(fake_cuda_current(), 0);
}

void
gpu_faults_arm(bool is_of_gemm, uint64_t nth, int code, bool is_persistent)
{
    if (is_of_gemm)
        fake_gemm_fail(nth, code, is_persistent);
    else
        fake_cuda_fail(nth, code, is_persistent);
}

uint64_t
gpu_faults_disarm(void)
{
    const uint64_t failures = fake_gemm_failures() + fake_cuda_failures();

    fake_gemm_disarm();
    fake_cuda_disarm();
    return failures;
}

/* As many runs as it counts for. */
static void
count_end(berth_status status, const berth_error *error, uint64_t runs, gpu_tally *count)
{
    const bool is_lost = status != BERTH_OK && error->reason == BERTH_REASON_DEVICE_LOST;

    count->injections += runs;
    count->survived += status == BERTH_OK ? runs : 0;
    count->refused += status == BERTH_EUNSUPPORTED || status == BERTH_ENOMEM ? runs : 0;
    count->lost += is_lost ? runs : 0;
    if (status == BERTH_OK)
        return;
    CHECK_NE(status, BERTH_EINTERNAL);
    CHECK_EQ(error->status, status);
    CHECK_EQ(berthi_reason_status(error->reason), status);
    CHECK_NE(error->message[0], '\0');
}

/* False: no call was left to fail. */
static bool
has_injected(const gpu_faults *faults, uint64_t nth, const fault *f, gpu_tally *count)
{
    berth_context *context;
    uint64_t failures;
    berth_status status;
    berth_error error;

    fake_gemm_begin();
    fake_cuda_begin(faults->machine);
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    berthi_error_clear(&error);
    gpu_faults_arm(faults->is_of_gemm, nth, f->code, f->is_persistent);
    status = faults->function(NULL, context, &error);
    failures = gpu_faults_disarm();
    vacant_check_memory(context);
    berth_context_destroy(context);
    check_given_back(faults, f);
    fake_gemm_begin();
    fake_cuda_end();
    if (failures == 0) {
        CHECK_EQ(status, BERTH_OK);
        return false;
    }
    count_end(status, &error, fault_step(nth), count);
    return true;
}

void
gpu_fail_all(const gpu_faults *faults, const int *codes, size_t code_count, gpu_tally *count)
{
    for (size_t i = 0; i < code_count; i++)
        for (int mode = 0; mode < 2; mode++) {
            const fault f = { codes[i], mode != 0 };
            uint64_t nth = (2 * i + (uint64_t)mode) % faults->stride; /* every call some time */

            while (has_injected(faults, nth, &f, count))
                nth += faults->stride * fault_step(nth);
            CHECK_GT(nth, faults->least);
        }
}
