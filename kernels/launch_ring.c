/* SPDX-License-Identifier: Apache-2.0 */
/* launch_ring.c - see launch_ring.h */
#include "kernels/launch_ring.h"

#include "kernels/base.h"
#include "kernels/number.h"

_Static_assert(RING_STAGES == 2, "the one and the other");

bool
berthi_launch_is_ring(berthi_kernel_id kernel)
{
    return kernel >= KERNEL_ring_bf16 && kernel <= KERNEL_ring32_f16_double;
}

/* With what the kernels declare: absmax of codes have their map there. */
#define LEAST_ROOM_BYTES (RING_ROOM_BYTES + 256u * 4u)

/*
 * 163 KiB of shared memory for a CTA, or 227; others have 99 at most. What the code was made for
 * does not tell: sm_86 runs that of sm_80, and any later GPU its PTX.
 */
static bool
has_room(const berthi_product_task *t)
{
    return t->capability >= 80 && t->room_bytes >= LEAST_ROOM_BYTES;
}

bool
berthi_experts_may_have_rings(uint32_t block_size, uint64_t columns)
{
    return block_size == RING_BLOCK && columns % RING_LINE == 0
           && columns >= RING_LEAST_COLUMNS && columns < PRODUCT_MOST_COLUMNS;
}

bool
berthi_launch_can_ring(const berthi_product_task *t)
{
    const berthi_multiply_arguments *const a = t->what;
    const bool is_double = a->absmax_codes != NULL;

    return t->processors > 0 && has_room(t) && a->dtype != BERTH_F32
           && berthi_experts_may_have_rings(a->block_size, a->columns)
           && a->rows > 0 && a->rows * a->columns < PRODUCT_MOST_WEIGHTS
           && berthi_is_aligned(a->inputs, 16) && berthi_is_aligned(a->codes, 16)
           && berthi_is_aligned(is_double ? (const void *)a->absmax_codes : a->absmax,
                                is_double ? 4 : 16);
}

void
berthi_launch_set_units(berthi_launch *l, uint32_t units)
{
    berthi_product_kernel *const k = &l->argument.product;
    const uint64_t most =
        berthi_launch_is_few(l->kernel) ? berthi_launch_few_ctas(k, units) : k->processors;

    k->units = units;
    l->ctas = units < most ? units : (uint32_t)most;
}

berth_status
berthi_launch_ring(const berthi_product_task *t, size_t dtype, berthi_launch *out,
                   berth_error *error)
{
    static const berthi_kernel_id kernels[3][2][2] = {
        { { KERNEL_ring_bf16, KERNEL_ring_f16 },
          { KERNEL_ring_bf16_double, KERNEL_ring_f16_double } },
        { { KERNEL_ring16_bf16, KERNEL_ring16_f16 },
          { KERNEL_ring16_bf16_double, KERNEL_ring16_f16_double } },
        { { KERNEL_ring32_bf16, KERNEL_ring32_f16 },
          { KERNEL_ring32_bf16_double, KERNEL_ring32_f16_double } },
    };
    const berthi_multiply_arguments *const a = t->what;
    const bool is_double = a->absmax_codes != NULL;
    const berth_status status = berthi_launch_set_grid(
        out, kernels[berthi_product_fragments(a->count) / 2][is_double][dtype], PRODUCT_THREADS,
        a->count != 0 ? berthi_ring_units(a->rows) : 0, error);

    if (status != BERTH_OK || out->kernel == KERNEL_NONE)
        return status;
    out->room_bytes = RING_ROOM_BYTES;
    out->argument.product.processors = t->processors;
    out->argument.product.is_settled = a->is_settled;
    out->argument.product.has_pairs =
        is_double && a->columns % (2 * RING_LINE) == 0
        && berthi_is_aligned(a->absmax_codes, 2 * RING_LINE_BLOCKS);
    berthi_launch_set_units(out, out->ctas);
    berthi_launch_set_members(&out->argument.product, out, 1);
    return BERTH_OK;
}
