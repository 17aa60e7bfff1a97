/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacked.h - models in a test whose experts are stacked: one tensor of three dims for all
 * of a layer.
 */
#ifndef BERTH_TESTS_STACKED_H
#define BERTH_TESTS_STACKED_H

#include <stdint.h>

#include "tests/sliced.h"

/* A gpt-oss in BF16 of which a token takes two experts; a multiple of 8 in its MLP. */
typedef struct stacked_sizes {
    uint32_t layers;
    uint32_t experts;
    uint32_t hidden;
    uint32_t inner;
    const char *extra;       /* a tensor more, */
    uint64_t extra_shape[3]; /* of three dims */
    bool is_sparse;          /* zeros, as holes */
    bool is_mxfp4;           /* stacks in groups of 32 values: _blocks and _scales */
} stacked_sizes;

/* 24 KiB an expert, of which there are eight in each of three layers. */
extern const stacked_sizes stacked_small;
/* 3 MiB an expert, as holes: matrices that are streamed, eight in each of four layers. */
extern const stacked_sizes stacked_large;

#define STACKED_TENSORS 2u /* stacks of a layer */

/* Returns the folder. */
const char *stacked_make(const stacked_sizes *s);

/* As sliced_options(), without ranks. */
berth_plan_options stacked_options(const char *max_memory, int32_t stacks);

/* The number of the berth of an expert of "model.layers.LAYER.mlp.experts.STACK". */
uint64_t stacked_berth(const planned *p, uint32_t layer, const char *stack,
                       uint32_t expert);

/* The plan's text with `to` in place of the first `from`, parsed. */
berth_status stacked_parse(const planned *p, const char *from, const char *to,
                           berth_plan **out, berth_error *error);

#endif
