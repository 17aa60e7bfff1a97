/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch_ring.h - which products are by rings, or of few inputs by tiles, and their grids: what
 * launch_product.c leaves to launch_ring.c and launch_few.c, and the other way round. For these
 * files, and for reports that measure them.
 */
#ifndef BERTH_KERNELS_LAUNCH_RING_H
#define BERTH_KERNELS_LAUNCH_RING_H

#include "kernels/launch_grid.h"

bool berthi_launch_is_ring(berthi_kernel_id kernel);
/* Of a checked product, in place of any other kernel. */
bool berthi_launch_can_ring(const berthi_product_task *task);
/* `out` has the argument of a product, and becomes the launch. */
berth_status berthi_launch_ring(const berthi_product_task *task, size_t dtype,
                                berthi_launch *out, berth_error *error);
/* Of rings or by tiles: so many for the CTAs that processors hold at once. */
void berthi_launch_set_units(berthi_launch *launch, uint32_t units);

/* The same of those by tiles, in place of rings. */
bool berthi_launch_is_few(berthi_kernel_id kernel);
bool berthi_launch_can_few(const berthi_product_task *task);
berth_status berthi_launch_few(const berthi_product_task *task, size_t dtype, berthi_launch *out,
                               berth_error *error);
uint64_t berthi_launch_few_ctas(const berthi_product_kernel *kernel, uint32_t units);
/* The first one's matrices become those of all. */
void berthi_launch_join_few(berthi_launch *launches, uint32_t count);

/* `kernel` is the first one's; they are numbered by CTAs, of rings and by tiles by units. */
void berthi_launch_set_members(berthi_product_kernel *kernel, const berthi_launch *launches,
                               uint32_t count);

#endif
