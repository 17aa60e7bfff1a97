/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_lines.h - making a breakdown, for estimate.c and train.c: arithmetic
 * that stays at UINT64_MAX once it is there, and lines that say so at the end.
 */
#ifndef BERTH_PLACEMENT_ESTIMATE_LINES_H
#define BERTH_PLACEMENT_ESTIMATE_LINES_H

#include <stdint.h>

#include "placement/estimate.h"

#define BERTHI_BEYOND UINT64_MAX

static inline uint64_t
berthi_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return berthi_can_mul(a, b, &product) ? product : BERTHI_BEYOND;
}

/* Rounded up; what is beyond stays beyond. */
static inline uint64_t
berthi_divided(uint64_t value, uint64_t by)
{
    return value == BERTHI_BEYOND ? value : berthi_divide_up(value, by);
}

/* value * percent / 100, rounded up. */
static inline uint64_t
berthi_percent(uint64_t value, uint64_t percent)
{
    return berthi_divided(berthi_times(value, percent), 100);
}

/* What a line is, besides its bytes. */
typedef struct berthi_line_kind {
    int32_t part;
    int32_t place;
    int32_t basis;
    const char *dtype;
} berthi_line_kind;

/* Adds a line, unless it has 0 bytes. */
__attribute__((format(printf, 4, 5))) void
berthi_line_add(berthi_estimate *out, const berthi_line_kind *kind, uint64_t bytes,
                const char *format, ...);
__attribute__((format(printf, 2, 3))) void berthi_note_add(berthi_estimate *out,
                                                           const char *format, ...);
/* Sums up; ARGUMENT when a line or the sum is beyond. */
berth_status berthi_lines_end(berthi_estimate *out, berth_error *error);

/* The same lines begin and end an estimate of inference and of training. */
void berthi_line_weights(berthi_estimate *out, const berthi_estimate_model *model,
                         const berthi_weight_sums *sums,
                         const berthi_estimate_options *options);
void berthi_line_runtime(berthi_estimate *out, const berthi_estimate_options *options,
                         uint64_t dynamic_bytes);
void berthi_note_model(berthi_estimate *out, const berthi_estimate_model *model,
                       const berthi_estimate_options *options);
/* What numbers of quantized weights say of experts, where there are some. */
void berthi_note_experts(berthi_estimate *out, const berthi_estimate_model *model,
                         const berthi_estimate_options *options);

bool berthi_layer_has_experts(const berthi_shape *shape);
/* Elements a layer's attention has for a token: queries, keys, values and output. */
uint64_t berthi_layer_attention_width(const berthi_shape *shape,
                                      const berthi_layer *layer);
/* i of the MLP, or of the experts that one token takes. */
uint64_t berthi_layer_mlp_width(const berthi_layer *layer);

/* Bytes of BF16, F16 or F32; 0 for another. */
uint64_t berthi_dtype_bytes(int32_t dtype);
/* "bf16", "f16", "f32" */
const char *berthi_dtype_word(int32_t dtype);
/* Ranges of everything that both kinds of estimate use. */
berth_status berthi_estimate_check(const berthi_estimate_options *options,
                                   berth_error *error);

/* ----------------------------------------------------------------------- advice */

/* Bytes on the device after the advice so far. */
uint64_t berthi_advice_now(const berthi_advice_list *list);
/*
 * Adds advice that leaves `bytes` on the device, unless that saves nothing; true
 * when it was added. Sets `fits`.
 */
__attribute__((format(printf, 4, 5))) bool berthi_advice_add(berthi_advice_list *list,
                                                             uint64_t bytes,
                                                             const char *cost,
                                                             const char *format, ...);

/* Bytes of an estimate that each of several devices needs. */
uint64_t berthi_fit_own(const berthi_estimate *estimate);

/* Layers that leave the device for good and come back in two slots. */
typedef struct berthi_streamed {
    uint64_t layers; /* how many there are             */
    uint64_t each;   /* bytes of one, on the average   */
    uint64_t slot;   /* bytes of the largest           */
    uint64_t host;   /* that the host has room for; UINT64_MAX: enough */
} berthi_streamed;

/* Host tier for as many layers as are needed, the disk for what the host cannot hold. */
void berthi_advice_stream(berthi_advice_list *list, const berthi_streamed *streamed);

#endif
