/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_level.h - the bodies of the GPU's kernels as operations of kernel.h: what
 * a launcher does, with the machine of simt.h in place of a device. A complaint
 * of that machine is a failed check. What a kernel reads and writes, but for codes and
 * absmax of weights that are settled, is memory of earlier work for it (simt.h): in none
 * of it is anything constant.
 *
 * With T_DEVICE (simt_device.h) a device runs them instead, where orders of lanes and
 * parts of grids are not for the asking.
 */
#ifndef BERTH_TESTS_SIMT_LEVEL_H
#define BERTH_TESTS_SIMT_LEVEL_H

#include <stdbool.h>

#include "kernels/device.h"
#include "kernels/kernel.h"
#include "kernels/kernel_arguments.h"
#include "kernels/launch.h"
#include "tests/simt.h"

/* Else `*out_why` there is nothing that runs them. */
bool simt_level_is_there(const char **out_why);
/* The test to run then, which is skipped. */
void simt_level_test_nothing(void);
/* simt_level_set_first() can be asked for. */
bool simt_level_runs_parts(void);
/* Kernels of sm_90a are among those that can be run; else `*out_why`. */
bool simt_level_is_wide(const char **out_why);
/* Products by tensor cores are. */
bool simt_level_has_tensor_cores(void);
/* The same of products by rings; else `*out_why`. */
bool simt_level_has_rings(const char **out_why);
/* The same of products of few inputs by tiles. */
bool simt_level_has_tiles(const char **out_why);
/* For so many bytes of stand-ins. */
bool simt_level_has_room(uint64_t bytes);

/* How the launches from now on are run. */
void simt_level_set_order(simt_order order, uint64_t seed);
/* Of their grids only the CTAs from this one on. */
void simt_level_set_first(uint64_t first_cta);

/* What work before them may be writing, until there is none any more: NULL, 0. */
void simt_level_set_earlier(const simt_memory *memory, uint32_t count);

/* By the machine of simt.h; a launch that was not refused; of none there is nothing to do. */
void simt_level_launch(const berthi_launch *launch);

/* Words that come along with the launch. */
void simt_write(void *to, const void *from, uint64_t bytes);
void simt_encode_nf4(const berthi_encode_arguments *arguments);
void simt_encode_fp4(const berthi_encode_arguments *arguments);
void simt_encode_map(const berthi_encode_arguments *arguments); /* blocks of 32 to 4096 */
void simt_decode_nf4(const berthi_decode_arguments *arguments);
void simt_decode_fp4(const berthi_decode_arguments *arguments);
void simt_decode_map(const berthi_decode_arguments *arguments);

/* Double quantized absmax, decoded within the kernel; `map` as it is stored. */
typedef struct simt_double_absmax {
    const uint8_t *codes;
    const float *absmax2;
    const uint32_t *map;
    float offset;
} simt_double_absmax;

/* `arguments->absmax` is not looked at. */
void simt_decode_double(const berthi_decode_arguments *arguments, const uint32_t *values,
                        const simt_double_absmax *absmax);
float simt_mean(const berthi_mean_arguments *arguments);
/* Offset given: the statistics alone. */
void simt_encode_double(const berthi_double_arguments *arguments);
/* By the mean of the same absmax, which is returned: its last pass is the codes' launch. */
float simt_encode_double_joined(const berthi_double_arguments *arguments,
                                const berthi_mean_arguments *mean);

void simt_encode_rows(const berthi_rows_arguments *arguments);
/* With room for `capacity` outlier columns in the list. */
void simt_encode_activations(const berthi_activation_arguments *arguments, uint32_t capacity);
void simt_decode_rows(const berthi_rows_decode_arguments *arguments);
void simt_int8_output(const berthi_int8_output_task *task);

/* Blocks of a warp of an update, which else are many in large tensors alone; 0: as usual. */
void simt_level_set_turns(uint32_t turns);
uint64_t simt_update(const berthi_update_arguments *arguments,
                     const berthi_update_constants *constants);
void simt_measure(const berthi_measure_arguments *arguments);
void simt_accumulate(const berthi_accumulate_arguments *arguments);

/* A decoder's, checked. */
void simt_step(const berthi_request *request);

void simt_multiply(const berthi_product_task *task);
#define SIMT_TOGETHER 8u /* at most */
/* Of the first one's inputs; whether they were one launch. */
bool simt_multiply_together(const berthi_product_task *tasks, uint32_t count);
/* Of many inputs; with memory for parts and flags of its own, which are down behind it. */
void simt_multiply_wide_product(const berthi_wide_task *task);
void simt_multiply_plain(const berthi_multiply_plain_arguments *arguments);
void simt_multiply_int8(const berthi_multiply_int8_arguments *arguments);
void simt_multiply_experts(const berthi_experts_task *task);

/*
 * The CTAs from `first_cta` on of a large grid: NF4 of bf16 in blocks of 64. The
 * pointers are those of whole tensors.
 */
void simt_level_encode_from(const berthi_encode_kernel *kernel, uint64_t first_cta);
void simt_level_decode_from(const uint8_t *codes, const float *absmax, uint64_t count,
                            void *values, uint64_t first_cta);

#endif
