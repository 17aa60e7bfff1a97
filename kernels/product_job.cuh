/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_job.cuh - what a CTA of a product has to do: whose weight and inputs it
 * multiplies, with or without tensor cores, and where its sums go.
 */
#ifndef BERTH_KERNELS_PRODUCT_JOB_CUH
#define BERTH_KERNELS_PRODUCT_JOB_CUH

#include "kernels/core.h"
#include "kernels/product_arguments.h"
#include "kernels/simt.h"

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct product_variant {
    int32_t dtype;       /* of inputs, bias and outputs */
    bool is_double;      /* the absmax are codes themselves */
    uint32_t chunk_log2; /* with tensor cores: 6 or 7 */
    uint32_t fragments;  /* the same: of inputs, 1, 2 or 4 */
    uint32_t tiles;      /* the same: of rows, at most PRODUCT_TILES */
    bool has_experts;
    bool has_members;    /* several weights have the same inputs */
    bool is_tall;        /* of rings: tiles of RING_TALL_UNITS, as far as there are rows */
} product_variant;

/* What a CTA multiplies. */
typedef struct product_job {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *absmax_codes;
    const void *inputs;
    const void *bias;
    uint8_t *outputs;
    uint64_t rows;
    float offset;
    uint32_t count; /* of inputs; 0: nothing */
} product_job;

/* Eight inputs of an expert; CTAs behind its last one have nothing to do. */
SIMT_INLINE product_job
product_find_expert_job(const berthi_product_kernel *a, product_variant v)
{
    const uint32_t group = (uint32_t)simt_cta() / a->ctas_of_group;
    const uint32_t number = group / a->groups;
    const berthi_product_expert *const e = &a->experts[number];
    const uint64_t first =
        a->ranges[number] + (uint64_t)(group % a->groups) * PRODUCT_INPUTS;
    const uint64_t end = a->ranges[number + 1];
    const uint32_t width = v.dtype == BERTH_F32 ? 4 : 2;
    const uint64_t left = first < end ? end - first : 0;
    const product_job job = {
        e->codes,
        e->absmax,
        e->absmax_codes,
        (const uint8_t *)a->inputs + first * a->columns * width,
        e->bias,
        (uint8_t *)a->outputs + first * a->rows * width,
        a->rows,
        e->offset,
        left < PRODUCT_INPUTS ? (uint32_t)left : PRODUCT_INPUTS,
    };

    return job;
}

/* Whose a part is, by the number that members are counted by: a CTA, of rings a tile. */
SIMT_INLINE const berthi_product_member *
product_find_member(const berthi_product_kernel *a, uint32_t part)
{
    uint32_t number = 0;

    SIMT_UNROLL
    for (uint32_t i = 1; i < PRODUCT_TOGETHER; i++)
        number += part >= a->members[i].first;
    return &a->members[number];
}

SIMT_INLINE product_job
product_member_job(const berthi_product_kernel *a, const berthi_product_member *m)
{
    const product_job job = { m->codes, m->absmax, m->absmax_codes,
                              a->inputs, m->bias,  (uint8_t *)m->outputs,
                              m->rows,  m->offset, a->count };

    return job;
}

SIMT_INLINE product_job
product_find_job(const berthi_product_kernel *a, product_variant v)
{
    const product_job job = { a->codes, a->absmax, a->absmax_codes,
                              a->inputs, a->bias,  (uint8_t *)a->outputs,
                              a->rows,  a->offset, a->count };

    if (v.has_members)
        return product_member_job(a, product_find_member(a, (uint32_t)simt_cta()));
    return v.has_experts ? product_find_expert_job(a, v) : job;
}

/* Among those that have the same inputs and weight. */
SIMT_INLINE uint64_t
product_find_cta(const berthi_product_kernel *a, product_variant v)
{
    if (v.has_members)
        return simt_cta() - product_find_member(a, (uint32_t)simt_cta())->first;
    return v.has_experts ? (uint32_t)simt_cta() % a->ctas_of_group : simt_cta();
}

/* `from` is the argument's, as constants or as memory. */
SIMT_INLINE void
product_fill_map(product_variant v, const uint32_t *from, uint32_t *map)
{
    if (v.is_double)
        map[simt_thread()] = from[simt_thread()];
}

SIMT_INLINE void
product_store(product_variant v, const product_job *job, uint32_t input, uint64_t row,
              float sum)
{
    if (input >= job->count || row >= job->rows)
        return;
    if (job->bias != NULL)
        sum = berthi_core_add(sum, berthi_core_load(job->bias, v.dtype, row));
    berthi_core_store(job->outputs, v.dtype, input * job->rows + row, sum);
}

#endif
