/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_faults.h - something done on the stand-in for a GPU, with the n-th call of its runtime,
 * or of cuBLASLt, failing, for n = 0, 1, 2 ... until it got through without a failure: once
 * with that single failure, once with all later calls failing too.
 *
 * Checked here: statuses and errors agree, and everything is given back.
 */
#ifndef BERTH_TESTS_GPU_FAULTS_H
#define BERTH_TESTS_GPU_FAULTS_H

#include "tests/fake_cuda.h"
#include "tests/fault.h"

/* What a loop has counted. */
typedef struct gpu_tally {
    uint64_t injections; /* runs in which a call failed */
    uint64_t survived;   /* runs that succeeded all the same */
    uint64_t refused;    /* that ended with what sends a product another way */
    uint64_t lost;       /* with a lost device */
} gpu_tally;

typedef struct gpu_faults {
    fault_function function; /* does the whole thing; `user` is NULL */
    const fake_cuda_machine *machine;
    bool is_of_gemm;          /* else calls of the runtime */
    uint64_t stride;          /* every n-th call alone, another n-th by the next code */
    uint64_t least;           /* calls there are */
} gpu_faults;

/* The n-th call from now on fails, of cuBLASLt or of the runtime. */
void gpu_faults_arm(bool is_of_gemm, uint64_t nth, int code, bool is_persistent);
/* None fails any more; how many calls have failed. */
uint64_t gpu_faults_disarm(void);

/* With each of these codes. */
void gpu_fail_all(const gpu_faults *faults, const int *codes, size_t code_count,
                  gpu_tally *count);

#endif
