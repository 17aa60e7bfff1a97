/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - the tensors of a checkpoint that exists in a few lines only, for
 * the tests of quant/classify.
 *
 *     BF16 2x3 model.norm.weight           dtype, dims ("-": a scalar), name
 *     U8 * w.quant_state.bitsandbytes__nf4 {"quant_type": ...}   bytes of a text
 *     F32 16 w.quant_map nf4               the published table (nf4 or fp4)
 *     U8 - m.weight_format \1              one byte
 *     > nf4 64x272 model.w                 expected: encoding and logical shape
 *
 * Bytes that are not given are zero. Lines may come in any order.
 */
#ifndef BERTH_TESTS_TENSORS_H
#define BERTH_TESTS_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/classify.h"

#define TENSORS_MAX_RANK 8u

typedef struct tensors_one {
    char *name;
    int32_t dtype;
    uint32_t rank;
    uint64_t shape[TENSORS_MAX_RANK];
    uint64_t elements;
    uint64_t bytes;
    uint8_t *data; /* NULL: zeros */
    int32_t encoding;
    uint32_t record;
    uint32_t marks;
} tensors_one;

typedef struct tensors_expected {
    char *name;
    char *encoding;
    uint32_t rank;
    uint64_t shape[TENSORS_MAX_RANK];
} tensors_expected;

#define TENSORS_FINDINGS 16u

typedef struct tensors {
    tensors_one *all;
    uint32_t count;
    tensors_expected *expected;
    uint32_t expected_count;
    uint64_t gets;       /* calls of get, shape and read */
    uint64_t shapes;
    uint64_t reads;
    uint32_t unreadable; /* position that cannot be read; UINT32_MAX: none */
    /* of the last run */
    berth_status status;
    berth_error error;
    uint32_t finding_count;
    int32_t severities[TENSORS_FINDINGS];
    berth_error findings[TENSORS_FINDINGS];
    berthi_classify_result result;
} tensors;

tensors *tensors_create(const char *lines);
void tensors_add(tensors *t, const char *lines);
/* `data` may be NULL. */
void tensors_add_one(tensors *t, const char *name, int32_t dtype, uint32_t rank,
                     const uint64_t *shape, const void *data);
/* Weight and statistics as bitsandbytes writes them, bfloat16, blocks of 64. */
void tensors_add_4bit(tensors *t, const char *name, const char *type, uint64_t rows,
                      uint64_t columns, bool is_double);
/* `module`.weight, .SCB, .weight_format. */
void tensors_add_int8(tensors *t, const char *module, uint64_t rows, uint64_t columns);
void tensors_remove(tensors *t, const char *name);
tensors_one *tensors_find(tensors *t, const char *name);
void tensors_destroy(tensors *t);

/*
 * Sorts and classifies; the same tensors may be run again. `config` is the text
 * of a config.json or NULL. The result is freed with the tensors or by the next run.
 */
berth_status tensors_run(tensors *t, berth_context *context, const char *config,
                         bool keep_going);
/* The record of the weight of this name; NULL when it has none. */
const berthi_quantized *tensors_record(tensors *t, const char *name);
/* "64x272" of a record; valid until the next call. */
const char *tensors_shape(const berthi_quantized *record);

#endif
