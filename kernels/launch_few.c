/* SPDX-License-Identifier: Apache-2.0 */
/* launch_few.c - products of few inputs whose codes come as tiles, see launch_ring.h */
#include "kernels/launch_ring.h"

#include "kernels/base.h"
#include "kernels/number.h"

_Static_assert(offsetof(berthi_few_kernel, tiles) % 64 == 0, "where a GPU finds matrices");
_Static_assert(sizeof(berthi_few_kernel) % 64 == 0, "a GPU's argument ends at such a one");
_Static_assert(offsetof(berthi_few_kernel, product) == 0, "a product, for who joins them");
_Static_assert(sizeof(berthi_few_kernel) <= 4096, "as much as an argument may have");
/* A processor has 228 KiB; of each CTA the driver takes one. */
_Static_assert(2 * (FEW_ROOM_BYTES + 1024) <= 228 * 1024, "two CTAs have room");
_Static_assert(FEW_STAGES == 2, "the one and the other");

#define TILES_CAPABILITY 90u /* later GPUs have no registers for two CTAs of some of them */
#define MOST_ROWS (UINT64_C(1) << 31)
#define LONG_ROW 8192u /* columns */

bool
berthi_launch_is_few(berthi_kernel_id kernel)
{
    return kernel >= KERNEL_few_bf16 && kernel <= KERNEL_few_f16_double;
}

bool
berthi_launch_can_few(const berthi_product_task *t)
{
    const berthi_multiply_arguments *const a = t->what;
    const bool is_double = a->absmax_codes != NULL;

    return t->has_tiles && t->capability == TILES_CAPABILITY && a->count <= FEW_INPUTS
           && a->rows < MOST_ROWS && berthi_launch_can_ring(t)
           && (!is_double
               || (a->columns % FEW_CODES_COLUMNS == 0 && berthi_is_aligned(a->absmax_codes, 16)));
}

/*
 * Two a processor, where they have more than half a tile each, or rows are long. With less than
 * that half a processor's lanes would be idle, and the next launch's CTAs have no place meanwhile.
 * H200: 4096 x 4096 5.2 us for 5.8; 6144 x 4096 7.5 for 7.6, 4096 x 14336 11.6 for 12.5.
 */
uint64_t
berthi_launch_few_ctas(const berthi_product_kernel *k, uint32_t units)
{
    const uint64_t twice = 2 * (uint64_t)k->processors;

    return units > twice || k->columns >= LONG_ROW ? twice : k->processors;
}

void
berthi_launch_join_few(berthi_launch *launches, uint32_t count)
{
    berthi_few_kernel *const k = &launches[0].argument.few;

    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = 0; j < 2; j++)
            k->tiles[2 * i + j] = launches[i].argument.few.tiles[j];
    launches[0].matrices = 2 * count;
}

berth_status
berthi_launch_few(const berthi_product_task *t, size_t dtype, berthi_launch *out,
                  berth_error *error)
{
    static const berthi_kernel_id kernels[2][2] =
        { { KERNEL_few_bf16, KERNEL_few_f16 },
          { KERNEL_few_bf16_double, KERNEL_few_f16_double } };
    const berthi_multiply_arguments *const a = t->what;
    const bool is_double = a->absmax_codes != NULL;
    const uint64_t blocks = a->columns / RING_BLOCK;
    const berth_status status =
        berthi_launch_set_grid(out, kernels[is_double][dtype], PRODUCT_THREADS,
                               a->count != 0 ? berthi_ring_units(a->rows) : 0, error);

    if (status != BERTH_OK || out->kernel == KERNEL_NONE)
        return status;
    out->room_bytes = FEW_ROOM_BYTES;
    out->matrices = 2;
    out->matrices_at = offsetof(berthi_few_kernel, tiles);
    out->argument.few.tiles[0] =
        berthi_tiles_of(a->codes, a->columns / 2, a->rows, RING_LINE / 2, RING_UNIT_ROWS);
    out->argument.few.tiles[1] =
        berthi_tiles_of(is_double ? (const void *)a->absmax_codes : a->absmax,
                        is_double ? blocks : blocks * sizeof(float), a->rows, 16, RING_UNIT_ROWS);
    out->argument.product.processors = t->processors;
    out->argument.product.is_settled = a->is_settled;
    berthi_launch_set_units(out, out->ctas);
    berthi_launch_set_members(&out->argument.product, out, 1);
    return BERTH_OK;
}
