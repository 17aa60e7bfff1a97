/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_wide.cu - the bodies of wide products as kernels of sm_90a, which no other GPU runs. */
#include "kernels/product_wide.cuh"
