/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cuda.cu - the bodies as kernels of a GPU. */
#include "kernels/attend.cuh"
#include "kernels/decoder.cuh"
#include "kernels/dequantize.cuh"
#include "kernels/gradient.cuh"
#include "kernels/int8.cuh"
#include "kernels/int8_output.cuh"
#include "kernels/mean.cuh"
#include "kernels/optimizer.cuh"
#include "kernels/product.cuh"
#include "kernels/product_lanes.cuh"
#include "kernels/product_plain.cuh"
#include "kernels/quantize.cuh"
