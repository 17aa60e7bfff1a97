/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.h - where the bytes of rows or columns of a stored tensor lie in it, and how
 * they are brought together.
 *
 *   rows      one stretch
 *   columns   `rows` stretches of `width` bytes, `stride` from one to the next: what lies
 *             between them is read with them and left out, never read in pieces of a
 *             few KiB
 */
#ifndef BERTH_LOADER_CUT_H
#define BERTH_LOADER_CUT_H

#include <stdint.h>

#include "kernels/base.h"

typedef struct berthi_cut {
    uint64_t first;  /* in the tensor's bytes */
    uint64_t rows;   /* 1: all of it lies together, `width` and `stride` say nothing */
    uint64_t width;
    uint64_t stride;
} berthi_cut;

/* Bytes of the tensor. */
typedef struct berthi_stretch {
    uint64_t begin;
    uint64_t bytes;
} berthi_stretch;

/* All of a tensor, or all behind the first bytes. */
static inline berthi_cut
berthi_cut_whole(uint64_t first)
{
    return (berthi_cut){ .first = first, .rows = 1 };
}

/* Where byte `at` of the cut lies in the tensor's. */
uint64_t berthi_cut_place(const berthi_cut *cut, uint64_t at);
/* How many of the `left` bytes from there on lie together. */
uint64_t berthi_cut_together(const berthi_cut *cut, uint64_t at, uint64_t left);
/* What has to be read for `bytes` of the cut from `at` on. */
berthi_stretch berthi_cut_stretch(const berthi_cut *cut, uint64_t at, uint64_t bytes);
/*
 * How many of the `left` bytes of the cut from `at` on are read in a stretch of at most `most`
 * bytes: whole rows, or what lies together. At least one of either.
 */
uint64_t berthi_cut_fit(const berthi_cut *cut, uint64_t at, uint64_t left, uint64_t most);
/* Brings `bytes` together that were read as their stretch; no overlap. */
void berthi_cut_gather(const berthi_cut *cut, uint64_t at, uint64_t bytes,
                       const uint8_t *stretch, uint8_t *out);

#endif
