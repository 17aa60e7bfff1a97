/* SPDX-License-Identifier: Apache-2.0 */
/* simt_bodies.c - launches on the machine of simt.h: all bodies of kernels, by number */
#include "kernels/attend.cuh"
#include "kernels/decoder.cuh"
#include "kernels/dequantize.cuh"
#include "kernels/encode_double.cuh"
#include "kernels/gradient.cuh"
#include "kernels/int8.cuh"
#include "kernels/int8_output.cuh"
#include "kernels/mean.cuh"
#include "kernels/optimizer.cuh"
#include "kernels/product.cuh"
#include "kernels/product_few.cuh"
#include "kernels/product_lanes.cuh"
#include "kernels/product_plain.cuh"
#include "kernels/product_ring.cuh"
#include "kernels/product_wide.cuh"
#include "kernels/quantize.cuh"
#include "kernels/write.cuh"
#include "tests/simt_level.h"
#include "tests/t.h"

static simt_order level_order;
static uint64_t level_seed;
static uint64_t level_first;
static const simt_memory *level_earlier;
static uint32_t level_earlier_count;

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

void
simt_level_set_earlier(const simt_memory *memory, uint32_t count)
{
    level_earlier = memory;
    level_earlier_count = count;
}

static bool
is_wide(berthi_kernel_id kernel)
{
    return kernel >= KERNEL_wide32_bf16 && kernel <= KERNEL_wide256_f16;
}

#define KERNEL_OF(name) [KERNEL_##name] = berthi_##name,

void
simt_level_launch(const berthi_launch *l)
{
    static void (*const kernels[KERNEL_COUNT])(const void *argument) =
        { BERTHI_KERNELS(KERNEL_OF) };
    const simt_launch on_machine = { .threads = l->threads, .ctas = l->ctas,
                                     .first_cta = level_first, .room_bytes = l->room_bytes,
                                     .order = level_order, .seed = level_seed,
                                     .is_ascending = is_wide(l->kernel),
                                     .earlier = level_earlier,
                                     .earlier_count = level_earlier_count };

    if (l->kernel != KERNEL_NONE)
        CHECK_STR(simt_run(&on_machine, kernels[l->kernel], &l->argument), NULL);
}
