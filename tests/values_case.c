/* SPDX-License-Identifier: Apache-2.0 */
/* values_case.c - see values_case.h. */
#include "tests/values_case.h"

#include <stdlib.h>
#include <string.h>

#include "tests/t.h"
#include "tests/weights.h"

#define GUARD_BYTES 64u

uint8_t *
values_guarded(uint64_t bytes)
{
    uint8_t *const memory = weights_alloc(bytes + 2 * GUARD_BYTES);

    memset(memory, VALUES_GUARD, bytes + 2 * GUARD_BYTES);
    return memory + GUARD_BYTES;
}

void
values_release(uint8_t *memory, uint64_t bytes)
{
    uint8_t *const begin = memory - GUARD_BYTES;

    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        CHECK_EQ(begin[i], VALUES_GUARD);
        CHECK_EQ(memory[bytes + i], VALUES_GUARD);
    }
    free(begin);
}

const berth_values_part *
values_part(const values_weight *w, int32_t role)
{
    for (uint32_t i = 0; i < w->part_count; i++)
        if (w->parts[i].role == role)
            return &w->parts[i];
    return NULL;
}

static uint64_t
part_bytes(const values_weight *w, int32_t role)
{
    return values_part(w, role) != NULL ? values_part(w, role)->bytes : 0;
}

void
values_begin(values_weight *w, int32_t encoding, int32_t dtype, uint64_t rows,
             uint64_t columns)
{
    berth_context_options options;

    memset(w, 0, sizeof *w);
    berth_context_options_init(&options);
    options.uses_tiles = 1;
    CHECK_EQ(berth_context_create(&options, &w->context, NULL), BERTH_OK);
    w->shape[0] = rows;
    w->shape[1] = columns;
    w->elements = rows * columns;
    berth_values_options_init(&w->options);
    w->options.encoding = encoding;
    w->options.dtype = dtype;
    w->options.shape = w->shape;
    w->options.rank = 2;
}

void
values_allocate(values_weight *w, uint64_t seed, bool is_odd)
{
    const int32_t first = w->options.encoding == BERTH_ENCODING_INT8
                              ? BERTH_ROLE_ROW_MAXIMUM
                              : BERTH_ROLE_ABSMAX;
    void *values;

    CHECK_EQ(berth_values_list(&w->options, w->parts, &w->part_count, &w->error), BERTH_OK);
    berth_values_buffers_init(&w->buffers);
    w->buffers.codes_bytes = part_bytes(w, BERTH_ROLE_CODES);
    w->buffers.codes = values_guarded(w->buffers.codes_bytes);
    w->buffers.absmax_bytes = part_bytes(w, first);
    w->buffers.absmax = values_guarded(w->buffers.absmax_bytes);
    w->buffers.absmax2_bytes = part_bytes(w, BERTH_ROLE_ABSMAX2);
    if (w->buffers.absmax2_bytes > 0)
        w->buffers.absmax2 = (float *)(void *)values_guarded(w->buffers.absmax2_bytes);
    w->values_bytes = w->elements * berth_dtype_bits(w->options.dtype) / 8;
    w->values = values_guarded(w->values_bytes);
    values = weights_values(w->options.dtype, w->elements, seed, is_odd);
    memcpy(w->values, values, w->values_bytes);
    free(values);
}

berth_status
values_quantize(values_weight *w)
{
    return berth_values_quantize(w->context, &w->options, w->values, w->values_bytes,
                                 &w->buffers, &w->error);
}

void
values_end(values_weight *w)
{
    berth_memory_summary memory;

    values_release(w->buffers.codes, w->buffers.codes_bytes);
    values_release(w->buffers.absmax, w->buffers.absmax_bytes);
    if (w->buffers.absmax2 != NULL)
        values_release((uint8_t *)w->buffers.absmax2, w->buffers.absmax2_bytes);
    values_release(w->values, w->values_bytes);
    berth_context_memory(w->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(w->context);
}

void
values_begin_product(values_factors *f, const values_weight *w, uint32_t count,
                     int32_t dtype)
{
    const uint64_t each = (uint64_t)count * berth_dtype_bits(dtype) / 8;
    void *values;

    berth_values_product_init(&f->product);
    f->product.count = count;
    f->product.dtype = dtype;
    f->product.inputs_bytes = w->shape[1] * each;
    f->product.outputs_bytes = w->shape[0] * each;
    f->inputs = values_guarded(f->product.inputs_bytes);
    f->outputs = values_guarded(f->product.outputs_bytes);
    values = weights_values(dtype, w->shape[1] * count, count + 77, false);
    memcpy(f->inputs, values, f->product.inputs_bytes);
    free(values);
    f->product.inputs = f->inputs;
    f->product.outputs = f->outputs;
}

void
values_end_product(values_factors *f)
{
    values_release(f->inputs, f->product.inputs_bytes);
    values_release(f->outputs, f->product.outputs_bytes);
}

berth_status
values_multiply(values_weight *w, const values_factors *f)
{
    return berth_values_multiply(w->context, &w->options, &w->buffers, &f->product,
                                 &w->error);
}
