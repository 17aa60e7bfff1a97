/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_gemm.h - cuBLASLt's calls without a GPU, for the machine of fake_cuda.h: products
 * are work of its streams.
 *
 * The library's rules are held: sizes of attributes, what turned and which layouts, what
 * was preferred before a search, an algorithm for the very shape and workspace it was
 * found for. What breaks one is a misuse, and fails.
 */
#ifndef BERTH_TESTS_FAKE_GEMM_H
#define BERTH_TESTS_FAKE_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gemm_calls.h"
#include "kernels/gemm_lt.h"

/* Forgets everything: failures, what was never given back. */
void fake_gemm_begin(void);
/* What cuda_calls.h has for it. */
bool fake_gemm_open(berthi_gemm_calls *out, char why[BERTHI_GEMM_WHY_CAPACITY]);

/* The library is not there. */
void fake_gemm_hide(bool is_hidden);
/* As fake_cuda_fail(), of this library's calls. */
void fake_gemm_fail(uint64_t nth, int status, bool is_persistent);
void fake_gemm_disarm(void);
uint64_t fake_gemm_failures(void);
/* Searches find nothing; no algorithm is for another number of inputs. */
void fake_gemm_find_nothing(bool finds_nothing);
void fake_gemm_refuse_checks(bool refuses);

typedef struct fake_gemm_books {
    uint64_t handles; /* there now, and descriptors of all kinds */
    uint64_t descriptors;
    uint64_t opened;  /* so often */
    uint64_t searches;
    uint64_t checks;
    uint64_t products;
    uint64_t misuses;
    const void *workspace; /* of the product that was asked for last */
} fake_gemm_books;

fake_gemm_books fake_gemm_read(void);
/* Checks that everything was given back, and nothing misused. */
void fake_gemm_check_empty(void);

/* Products within a call of the device, as its own are. */
berth_status fake_gemm_multiply(berthi_device *device, const berthi_gemm_task *task,
                                berthi_stream *stream, berth_error *error);
berth_status fake_gemm_multiply_4bit(berthi_device *device, const berthi_gemm_4bit *task,
                                     berthi_stream *stream, berth_error *error);

/* values[i] of a product's dtype, and back; as every product here rounds. */
double fake_gemm_value(const void *values, int type, uint64_t i);
void fake_gemm_set(void *values, int type, uint64_t i, double value);

#endif
