/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fenced.h - inputs and outputs of kernels at any address: inputs end where their
 * memory does, outputs too, with a fence before them and no byte known beforehand.
 */
#ifndef BERTH_TESTS_FENCED_H
#define BERTH_TESTS_FENCED_H

#include <stddef.h>
#include <stdint.h>

typedef struct fenced_output {
    uint8_t *memory; /* the fence's; to be freed */
    uint8_t *bytes;
    size_t count;
} fenced_output;

/* `count` bytes, `odd` bytes after an even address. */
fenced_output fenced_begin(size_t count, size_t odd);
/* Checks that the fence is whole and both hold the same bytes; frees both. */
void fenced_end(fenced_output *tested, fenced_output *expected, const char *what);
/* A copy `odd` bytes after an even address; *out_memory is to be freed. */
uint8_t *fenced_copy(const void *bytes, size_t count, size_t odd, uint8_t **out_memory);

#endif
