/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_plan.h - how cuBLASLt computes a product, kept for the next one of its shape. Only
 * for gemm_lt.c.
 *
 * Results are statuses of the library. One thread at a time.
 */
#ifndef BERTH_KERNELS_GEMM_PLAN_H
#define BERTH_KERNELS_GEMM_PLAN_H

#include "kernels/gemm_calls.h"
#include "kernels/gemm_lt.h"

/* What decides how a product is computed. */
typedef struct berthi_gemm_shape {
    int32_t dtype;
    bool has_bias;
    uint32_t alignments[3]; /* of weight, inputs, outputs */
    uint32_t bias_alignment;
    uint64_t rows;
    uint64_t columns;
    uint64_t stride;
    uint64_t inputs; /* at most, above some, so that a plan serves many */
} berthi_gemm_shape;

typedef struct berthi_gemm_plan {
    berthi_gemm_shape shape;
    uint64_t used;   /* when; 0: there is none */
    uint64_t inputs; /* that the layouts are for */
    bool has_algorithm;
    void *operation;
    void *weight; /* layouts */
    void *input;
    void *output;
    berthi_gemm_algorithm algorithm;
} berthi_gemm_plan;

typedef struct berthi_gemm_plans {
    berthi_gemm_calls calls;
    void *handle; /* NULL: not opened so far */
    uint64_t workspace_bytes;
    uint64_t turn;
    berthi_gemm_plan at[BERTHI_GEMM_PLANS];
} berthi_gemm_plans;

berthi_gemm_shape berthi_gemm_shape_of(const berthi_gemm_task *task);
/* One that computes this very product; after a failure there is none of its shape. */
int berthi_gemm_plans_make(berthi_gemm_plans *plans, const berthi_gemm_shape *shape,
                           const berthi_gemm_task *task, berthi_gemm_plan **out);
void berthi_gemm_plans_clear(berthi_gemm_plans *plans);

#endif
