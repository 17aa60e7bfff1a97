/* SPDX-License-Identifier: Apache-2.0 */
/* compared.h - for the tests of differences: small models, what is told of two, naive sums. */
#ifndef BERTH_TESTS_COMPARED_H
#define BERTH_TESTS_COMPARED_H

#include "loader/berth.h"
#include "tests/fixture.h"

#define COMPARED_TENSORS 64

typedef struct compared {
    berth_diff_options options; /* compared_begin() fills it */
    berth_diff_report report;
    berth_error error;
    uint32_t count;
    berth_diff_tensor tensors[COMPARED_TENSORS]; /* names as `names` */
    char names[COMPARED_TENSORS][128];
} compared;

void compared_begin(compared *c);
berth_status compared_run_in(compared *c, berth_context *context, const char *a, const char *b);
/* The same in a context of its own, of which nothing may be left. */
berth_status compared_run(compared *c, const char *a, const char *b);
const berth_diff_tensor *compared_find(const compared *c, const char *name);
/*
 * Compares two models; returns how many weights with values were. What their numbers are is not
 * asked where threads are watched: decoding both and adding up takes most of the time there.
 */
uint32_t compared_check(compared *c, const char *a, const char *b);

/* A folder, and the file that is made in it. */
typedef struct compared_model {
    const char *folder;
    fixture_builder *builder;
} compared_model;

compared_model compared_model_begin(const char *config);
void compared_model_add(const compared_model *m, const char *name, int32_t dtype, uint64_t rows,
                        uint64_t columns, const void *values);
const char *compared_model_end(const compared_model *m);
/* The model in this type; the folder. */
const char *compared_quantize(const char *path, int32_t type, bool is_double);
/* Its weights as plain F32, by a conversion; the folder. */
const char *compared_decode(const char *path);
/* Two models of a weight of each size, B a little beside A. */
void compared_make_near(int32_t a_dtype, int32_t b_dtype, bool is_odd, const char **a,
                        const char **b);

#endif
