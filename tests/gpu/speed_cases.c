/* SPDX-License-Identifier: Apache-2.0 */
/* speed_cases.c - what is measured; see speed.h */
#include <inttypes.h>

#include "kernels/core.h"
#include "tests/gpu/speed.h"

/*
 * Linear layers of models of 8 and 70 billion parameters, also those that are multiplied together:
 * query, key and value (10240 x 8192), gate and up (57344 x 8192).
 */
const gpu_shape gpu_shapes[GPU_SHAPES] =
    { { 8192, 28672 }, { 28672, 8192 }, { 8192, 8192 }, { 10240, 8192 },
      { 57344, 8192 }, { 1024, 8192 },  { 4096, 4096 }, { 14336, 4096 } };

const uint32_t gpu_counts[GPU_COUNTS] =
    { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192 };

gpu_case
gpu_case_at(gpu_shape shape, uint32_t i)
{
    return (gpu_case){ .shape = shape, .is_double = i % 2 != 0,
                       .block_size = i / 2 % 2 == 0 ? 64 : 128,
                       .dtype = i / 4 == 0 ? BERTH_BF16 : BERTH_F16 };
}

bool
gpu_is_usual(const gpu_case *c)
{
    return c->dtype == BERTH_BF16 && c->block_size == 64;
}

/* What rings and kernels of many inputs take, too. */
gpu_shape
gpu_made(const gpu_speed *s, gpu_shape shape)
{
    return s->is_tiny ? (gpu_shape){ 32, 256 } : shape;
}

const char *
gpu_shape_refusal(gpu_speed *s, gpu_shape shape, uint64_t bytes)
{
    if (s->is_tiny
        && (shape.rows != gpu_shapes[0].rows || shape.columns != gpu_shapes[0].columns))
        return "small shapes are all alike";
    return gpu_refusal(s, bytes);
}

/* More than kernels of few have at once. */
uint32_t
gpu_made_inputs(const gpu_speed *s, uint32_t count)
{
    return s->is_tiny && count > GPU_MOST_FEW ? GPU_MOST_FEW + 8 : count;
}

void
gpu_describe(char out[GPU_NAME], const char *what, const gpu_case *c, uint32_t count)
{
    char inputs[24] = "";

    if (count > 0)
        snprintf(inputs, sizeof inputs, ", m = %" PRIu32, count);
    snprintf(out, GPU_NAME, "%s, %" PRIu64 " x %" PRIu64 "%s%s%s%s", what, c->shape.rows,
             c->shape.columns, c->block_size == 128 ? ", block 128" : "",
             c->dtype == BERTH_F16 ? ", f16" : "", c->is_double ? ", double" : "", inputs);
}

uint32_t
gpu_dtype_at(int32_t dtype)
{
    return dtype == BERTH_F16;
}

double
gpu_value(int32_t dtype, uint16_t stored)
{
    return (double)(dtype == BERTH_F16 ? berthi_core_from_fp16(stored)
                                       : berthi_core_from_bf16(stored));
}

double
gpu_rounding(int32_t dtype)
{
    return dtype == BERTH_F16 ? 0x1p-11 : 0x1p-8;
}
