/* SPDX-License-Identifier: Apache-2.0 */
/*
 * form.h - what a tensor is apart from its name: dtype, encoding, shape.
 *
 * Each distinct form is kept once; two tensors are alike exactly when the
 * numbers of their forms are equal.
 */
#ifndef BERTH_TOOLS_FORM_H
#define BERTH_TOOLS_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/colour.h"

#define FORM_NONE UINT32_MAX

/* Shares of a bar: values of how many bits. */
typedef enum form_class { FORM_WIDE, FORM_HALF, FORM_BYTE, FORM_NIBBLE, FORM_CLASSES } form_class;

typedef struct form {
    int32_t dtype;    /* as stored */
    int32_t encoding;
    uint32_t block_size;
    uint32_t block_columns;
    uint32_t is_double;
    uint32_t rank;
    size_t shape; /* where the dimensions of the values are: form_shape() */
} form;

typedef struct form_table {
    form *forms;
    size_t count;
    size_t capacity;
    uint64_t *dimensions;
    size_t dimension_count;
    size_t dimension_capacity;
    uint32_t *slots; /* open addressing; FORM_NONE: free */
    size_t slot_count;
} form_table;

/* A table filled with zeros is empty. */
void form_table_fini(form_table *t);
/* The number of the tensor's form; FORM_NONE when memory is out. */
uint32_t form_intern(form_table *t, const berth_tensor *tensor,
                     const berth_quantized *quantized);
const uint64_t *form_shape(const form_table *t, const form *f);

/* Values of a dtype of their own: not codes that stand for others. */
bool form_is_plain(int32_t encoding);
form_class form_class_of(const form *f);
form_class form_class_of_type(int32_t encoding, int32_t dtype);
form_class form_class_of_dtype(int32_t dtype);
form_class form_class_of_encoding(int32_t encoding);
colour form_class_colour(form_class c);

#define FORM_TYPE_CAPACITY 48
/* "BF16", "nf4 dq": what stands in a column. Returns `text`. */
const char *form_type_text(const form *f, char text[FORM_TYPE_CAPACITY]);
#define FORM_SHAPE_CAPACITY 160
/* "[4096, 14336]", cut after eight dimensions. Returns `text`. */
const char *form_shape_text(const uint64_t *shape, uint32_t rank,
                            char text[FORM_SHAPE_CAPACITY]);

#endif
