/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nvml.h - NVML's calls without a driver: GPUs and their links.
 *
 * The library's rules are held: nothing is asked for before a start or after the last end, and
 * of no GPU or link that is not there. What breaks one is a misuse, and fails.
 */
#ifndef BERTH_TESTS_FAKE_NVML_H
#define BERTH_TESTS_FAKE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/nvml_calls.h"

typedef struct fake_nvml_gpu {
    const char *address; /* as the driver writes it */
    uint32_t links;      /* NVLinks that it has */
    uint64_t down;       /* a bit for each that is */
    uint32_t version;    /* the library's number */
    uint32_t mb_per_s;
    bool is_old;         /* before Hopper: no fields of single links */
    bool is_uncounted;   /* by a driver that does not tell how many there are */
    uint32_t c2c_links;
    uint64_t c2c_down;
    uint32_t c2c_mb_per_s; /* of one */
    int32_t type;          /* of its values: berthi_nvml_type; 0: U32 */
} fake_nvml_gpu;

/* Borrowed until the next call. 0 GPUs: the library is not on this machine. */
void fake_nvml_begin(const fake_nvml_gpu *gpus, uint32_t count);
/* What cuda_calls.h has for it. */
bool fake_nvml_open(berthi_nvml_calls *out);
/* The `nth` call from now fails (0 = the next); `is_persistent`: all later ones, too. */
void fake_nvml_fail(uint64_t nth, bool is_persistent);
void fake_nvml_disarm(void);

typedef struct fake_nvml_books {
    uint64_t opened;
    uint64_t starts;
    uint64_t started; /* without an end so far */
    uint64_t misuses;
    uint64_t calls;   /* since begin or fail */
    uint64_t failures;
} fake_nvml_books;

fake_nvml_books fake_nvml_read(void);

#endif
