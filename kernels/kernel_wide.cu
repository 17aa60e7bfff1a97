/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_wide.cu - the bodies of wide products as kernels of sm_90a, which no other GPU runs. */
#include "kernels/product_wide.cuh"

static_assert(alignof(berthi_wide_kernel) == 64, "where hardware finds what is made of matrices");
