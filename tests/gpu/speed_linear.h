/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_linear.h - a weight of random values in 16 bits, and the same encoded, several times over;
 * inputs that stay. Outputs of every way are held against the values.
 */
#ifndef BERTH_TESTS_GPU_SPEED_LINEAR_H
#define BERTH_TESTS_GPU_SPEED_LINEAR_H

#include "tests/gpu/speed.h"

#define GPU_BLOCKS 2u /* sizes: 64 and 128 */

/* A weight of 4-bit codes, all turns one behind the other. */
typedef struct gpu_packed {
    uint8_t *codes;
    float *absmax;
    uint8_t *absmax_codes;
    float *absmax2;
    float offsets[GPU_TURNS];
} gpu_packed;

typedef struct gpu_linear {
    gpu_shape shape; /* as it is called */
    uint64_t rows;
    uint64_t columns;
    uint64_t most;   /* inputs that there is room for */
    int32_t dtype;
    bool has_4bit;   /* else int8 alone */
    uint32_t turns;
    uint16_t *weights;
    gpu_packed packed[GPU_BLOCKS];
    int8_t *int8;
    float *weight_maximum;
    uint16_t *inputs;
    int8_t *input_codes;
    float *input_maximum;
    int32_t *sums;
    uint16_t *outputs;
    berthi_outlier_room outliers;
} gpu_linear;

/* A layer with so many inputs. */
typedef struct gpu_layer {
    const gpu_linear *its;
    gpu_case how;
    uint64_t count;
    bool has_outliers; /* LLM.int8(): columns of its inputs may be some */
    bool is_decoded;   /* 4 bits: as the library needs them, whatever kernels there are */
} gpu_layer;

gpu_linear gpu_linear_of(const gpu_speed *s, gpu_shape shape, int32_t dtype, uint64_t most,
                         bool has_4bit);
uint64_t gpu_linear_bytes(const gpu_linear *l);
void gpu_linear_begin(gpu_speed *s, gpu_linear *l);
/* What was never begun has nothing. */
void gpu_linear_end(gpu_speed *s, gpu_linear *l);

/* NULL: cuBLASLt multiplies; else why not. */
const char *gpu_linear_refusal(gpu_speed *s);

/* Work for gpu_time(), of a layer: by cuBLASLt, with codes of 4 bits, and all of LLM.int8(). */
void gpu_ask_plain(gpu_speed *s, void *layer, uint32_t turn);
void gpu_ask_4bit(gpu_speed *s, void *layer, uint32_t turn);
void gpu_ask_int8(gpu_speed *s, void *layer, uint32_t turn);

/*
 * Asks, and holds some outputs against those of the weight: `noise` is what codes may be off, as a
 * share of the sum of squares.
 */
bool gpu_layer_is_right(gpu_speed *s, const char *name, gpu_layer *y,
                        void (*ask)(gpu_speed *s, void *layer, uint32_t turn), double noise);

#endif
