/* SPDX-License-Identifier: Apache-2.0 */
/* simt_level.c - see simt_level.h */
#include "tests/simt_level.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/dequantize.cuh"
#include "kernels/int8.cuh"
#include "kernels/int8_output.cuh"
#include "kernels/launch.h"
#include "kernels/mean.cuh"
#include "kernels/product.cuh"
#include "kernels/product_lanes.cuh"
#include "kernels/quantize.cuh"
#include "tests/t.h"

static simt_order level_order;
static uint64_t level_seed;
static uint64_t level_first;

void
simt_level_set_order(simt_order order, uint64_t seed)
{
    level_order = order;
    level_seed = seed;
}

void
simt_level_set_first(uint64_t first_cta)
{
    level_first = first_cta;
}

#define KERNEL_OF(name) [KERNEL_##name] = berthi_##name,

void
simt_level_launch(const berthi_launch *l)
{
    static void (*const kernels[KERNEL_COUNT])(const void *argument)
        = { BERTHI_KERNELS(KERNEL_OF) };
    const simt_launch on_machine = { .threads = l->threads, .ctas = l->ctas,
                                     .first_cta = level_first, .order = level_order,
                                     .seed = level_seed };

    if (l->kernel != KERNEL_NONE)
        CHECK_STR(simt_run(&on_machine, kernels[l->kernel], &l->argument), NULL);
}

/* ------------------------------------------------------------------- encode */

void
simt_encode_nf4(const berthi_encode_arguments *e)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_encode_nf4(e, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_encode_fp4(const berthi_encode_arguments *e)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_encode_fp4(e, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_encode_map(const berthi_encode_arguments *e)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_encode_map(e, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_encode_double(const berthi_double_arguments *d)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_encode_double(d, &d->offset, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

/* --------------------------------------------------------------------- mean */

float
simt_mean(const berthi_mean_arguments *m)
{
    berthi_launch l[2];
    float mean = 0.0f;

    CHECK_EQ(berthi_launch_mean(m, &mean, l, NULL), BERTH_OK);
    simt_level_launch(&l[0]);
    simt_level_launch(&l[1]);
    return mean;
}

/* ------------------------------------------------------------------- decode */

void
simt_decode_nf4(const berthi_decode_arguments *d)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_4bit(d, berthi_nf4_values, NULL, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_decode_fp4(const berthi_decode_arguments *d)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_4bit(d, berthi_fp4_values, NULL, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_decode_map(const berthi_decode_arguments *d)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_map(d, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_decode_double(const berthi_decode_arguments *d, const uint32_t *values,
                   const simt_double_absmax *absmax)
{
    const berthi_double_absmax as
        = { absmax->codes, absmax->absmax2, absmax->map, &absmax->offset };
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_4bit(d, values, &as, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

/* --------------------------------------------------------------- LLM.int8() */

void
simt_encode_rows(const berthi_rows_arguments *r)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_encode_rows(r, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

/* The list, where it has room for them all, is the mask's columns. */
static void
check_list(const berthi_outlier_kernel *o, const uint8_t *is_outlier)
{
    uint32_t found = 0;

    for (uint64_t k = 0; k < o->columns; k++) {
        if (is_outlier[k] == 0)
            continue;
        if (found < o->capacity)
            CHECK_EQ(o->list[found], k);
        found++;
    }
    CHECK_EQ(*o->count, found);
}

void
simt_encode_activations(const berthi_activation_arguments *r, uint32_t capacity)
{
    const uint64_t words = (r->columns + 31) / 32;
    uint32_t count = 0;
    const berthi_outlier_room room = { calloc(words, sizeof(uint32_t)),
                                       malloc(capacity * sizeof(uint32_t) + 1), &count,
                                       capacity };
    berthi_launch l[3];

    T_REQUIRE(room.mask != NULL && room.list != NULL);
    CHECK_EQ(berthi_launch_encode_activations(r, &room, l, NULL), BERTH_OK);
    for (int i = 0; i < 3; i++)
        simt_level_launch(&l[i]);
    if (r->threshold > 0.0f) {
        for (uint64_t k = 0; k < r->columns; k++)
            r->is_outlier[k] = room.mask[k / 32] >> k % 32 & 1;
        check_list(&l[1].argument.outlier, r->is_outlier);
    }
    free(room.mask);
    free(room.list);
}

void
simt_decode_rows(const berthi_rows_decode_arguments *d)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_rows(d, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_int8_output(const berthi_int8_output_task *t)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_int8_output(t, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

/* ----------------------------------------------------------------- products */

void
simt_multiply(const berthi_product_task *t)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_product(t, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

void
simt_multiply_experts(const berthi_experts_task *t)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_experts(t, &l, NULL), BERTH_OK);
    simt_level_launch(&l);
}

/* -------------------------------------------------------------- parts of grids */

void
simt_level_encode_from(const berthi_encode_kernel *kernel, uint64_t first_cta)
{
    const simt_launch l = { .threads = ENCODE_THREADS,
                            .ctas = berthi_encode_ctas(kernel->count),
                            .first_cta = first_cta };

    CHECK_STR(simt_run(&l, berthi_encode_nf4_bf16_64, kernel), NULL);
}

void
simt_level_decode_from(const uint8_t *codes, const float *absmax, uint64_t count,
                       void *values, uint64_t first_cta)
{
    const simt_launch l = { .threads = DECODE_THREADS, .ctas = berthi_decode_ctas(count),
                            .first_cta = first_cta };
    berthi_decode_kernel k = { .codes = codes, .values = values, .absmax = absmax,
                               .count = count, .block_log2 = 6, .is_aligned = 1 };

    memcpy(k.table, berthi_nf4_values, sizeof berthi_nf4_values);
    CHECK_STR(simt_run(&l, berthi_decode_4bit_bf16, &k), NULL);
}
