/* SPDX-License-Identifier: Apache-2.0 */
/* form.c - a hash table of forms. */
#include "tools/form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/grow.h"

#define SHOWN_DIMENSIONS 8

void
form_table_fini(form_table *t)
{
    free(t->forms);
    free(t->dimensions);
    free(t->slots);
}

const uint64_t *
form_shape(const form_table *t, const form *f)
{
    return t->dimensions + f->shape;
}

static uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Hashes what tells forms of most models apart; is_same() looks at the rest. */
static uint64_t
hash_of(const form *f, const uint64_t *shape)
{
    uint64_t hash = mix((uint32_t)f->dtype, f->rank);

    for (uint32_t i = 0; i < f->rank; i++)
        hash = mix(hash, shape[i]);
    return hash;
}

static bool
is_same(const form_table *t, const form *a, const form *b, const uint64_t *b_shape)
{
    return a->dtype == b->dtype && a->encoding == b->encoding
           && a->block_size == b->block_size && a->block_columns == b->block_columns
           && a->is_double == b->is_double && a->rank == b->rank
           && (a->rank == 0
               || memcmp(form_shape(t, a), b_shape, a->rank * sizeof *b_shape) == 0);
}

/* The slot that holds the form, or the free one where it belongs. */
static size_t
slot_of(const form_table *t, const form *f, const uint64_t *shape)
{
    size_t slot = (size_t)hash_of(f, shape) & (t->slot_count - 1);

    while (t->slots[slot] != FORM_NONE
           && !is_same(t, &t->forms[t->slots[slot]], f, shape))
        slot = (slot + 1) & (t->slot_count - 1);
    return slot;
}

/* Room for one more form and its dimensions. */
static bool
has_room(form_table *t, size_t dimensions)
{
    form *const forms = grow(t->forms, &t->capacity, t->count, 1, sizeof *forms);
    uint64_t *shapes;

    if (forms == NULL)
        return false;
    t->forms = forms;
    shapes = grow(t->dimensions, &t->dimension_capacity, t->dimension_count, dimensions,
                  sizeof *shapes);
    if (shapes == NULL)
        return false;
    t->dimensions = shapes;
    return true;
}

/* Twice the slots when they are half full. */
static bool
has_slots(form_table *t)
{
    const size_t wanted = t->slot_count == 0 ? 128 : t->slot_count * 2;
    uint32_t *slots;

    if (t->count * 2 < t->slot_count)
        return true;
    slots = malloc(wanted * sizeof *slots);
    if (slots == NULL)
        return false;
    free(t->slots);
    t->slots = slots;
    t->slot_count = wanted;
    memset(slots, 0xFF, wanted * sizeof *slots);
    for (size_t i = 0; i < t->count; i++)
        slots[slot_of(t, &t->forms[i], form_shape(t, &t->forms[i]))] = (uint32_t)i;
    return true;
}

uint32_t
form_intern(form_table *t, const berth_tensor *tensor, const berth_quantized *quantized)
{
    const uint64_t *const shape = quantized != NULL ? quantized->shape : tensor->shape;
    form f = { .dtype = tensor->dtype, .encoding = tensor->encoding, .rank = tensor->rank };
    size_t slot;

    if (quantized != NULL) {
        f.rank = quantized->rank;
        f.block_size = quantized->block_size;
        f.block_columns = quantized->block_columns;
        f.is_double = quantized->is_double != 0;
    }
    if (!has_slots(t) || !has_room(t, f.rank))
        return FORM_NONE;
    slot = slot_of(t, &f, shape);
    if (t->slots[slot] != FORM_NONE)
        return t->slots[slot];
    f.shape = t->dimension_count;
    if (f.rank > 0)
        memcpy(t->dimensions + f.shape, shape, f.rank * sizeof *shape);
    t->dimension_count += f.rank;
    t->forms[t->count] = f;
    t->slots[slot] = (uint32_t)t->count;
    return (uint32_t)t->count++;
}

/* -------------------------------------------------------------------- classes */

form_class
form_class_of_dtype(int32_t dtype)
{
    const uint32_t bits = berth_dtype_bits(dtype);

    return bits >= 32 ? FORM_WIDE : bits == 16 ? FORM_HALF : bits == 8 ? FORM_BYTE : FORM_NIBBLE;
}

form_class
form_class_of_encoding(int32_t encoding)
{
    switch (encoding) {
    case BERTH_ENCODING_NATIVE: return FORM_HALF; /* what most models are */
    case BERTH_ENCODING_STATISTICS: return FORM_WIDE;
    case BERTH_ENCODING_INT8:
    case BERTH_ENCODING_FP8_BLOCK: return FORM_BYTE;
    default: return FORM_NIBBLE;
    }
}

bool
form_is_plain(int32_t encoding)
{
    return encoding == BERTH_ENCODING_NATIVE || encoding == BERTH_ENCODING_STATISTICS;
}

form_class
form_class_of_type(int32_t encoding, int32_t dtype)
{
    return form_is_plain(encoding) ? form_class_of_dtype(dtype)
                                   : form_class_of_encoding(encoding);
}

form_class
form_class_of(const form *f)
{
    return form_class_of_type(f->encoding, f->dtype);
}

colour
form_class_colour(form_class c)
{
    static const colour colours[FORM_CLASSES] = { COLOUR_WIDE, COLOUR_HALF, COLOUR_BYTE,
                                                  COLOUR_NIBBLE };

    return colours[c];
}

/* ---------------------------------------------------------------------- texts */

const char *
form_type_text(const form *f, char text[FORM_TYPE_CAPACITY])
{
    if (form_is_plain(f->encoding))
        snprintf(text, FORM_TYPE_CAPACITY, "%s", berth_dtype_name(f->dtype));
    else
        snprintf(text, FORM_TYPE_CAPACITY, "%s%s", berth_encoding_name(f->encoding),
                 f->is_double ? " dq" : "");
    return text;
}

const char *
form_shape_text(const uint64_t *shape, uint32_t rank, char text[FORM_SHAPE_CAPACITY])
{
    size_t length = 1;

    memcpy(text, "[", 2);
    for (uint32_t i = 0; i < rank && i < SHOWN_DIMENSIONS; i++)
        length += (size_t)snprintf(text + length, FORM_SHAPE_CAPACITY - length,
                                   "%s%" PRIu64, i > 0 ? "," : "", shape[i]);
    snprintf(text + length, FORM_SHAPE_CAPACITY - length, "%s]",
             rank > SHOWN_DIMENSIONS ? ",..." : "");
    return text;
}
