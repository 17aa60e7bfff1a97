/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_draft.c - the JSON of a header -> packed records. */
#include "loader/safetensors_draft.h"

#include <string.h>

#include "kernels/word.h"
#include "loader/varint.h"
#include "quant/format.h"

#define SEEN_DTYPE 1u
#define SEEN_SHAPE 2u
#define SEEN_OFFSETS 4u
#define SEEN_ALL 7u

/* The members of a tensor. */
typedef struct members {
    int32_t dtype;
    uint32_t seen;
    uint64_t dtype_at; /* of one that is unknown, in the text */
    uint64_t rank;
    uint64_t begin;
    uint64_t end;
    uint64_t dims_bytes;
    char dims[BERTHI_MAX_RANK * BERTHI_VARINT_CAPACITY]; /* base 128 */
} members;

static void
clear_members(members *m)
{
    m->seen = 0;
    m->rank = 0;
    m->dims_bytes = 0;
}

/* Dims beyond the limit are counted, but not kept: the tensor will be refused. */
static inline void
add_dim(members *m, uint64_t dim)
{
    if (m->rank < BERTHI_MAX_RANK)
        m->dims_bytes =
            (uint64_t)(berthi_varint_write(m->dims + m->dims_bytes, dim) - m->dims);
    m->rank++;
}

/* ------------------------------------------------------------------ records */

/* `name` lies in a record: its place in the JSON may be written over. */
static void
refuse_later(berthi_draft_refusal *refusal, const berthi_scan_text *name, uint64_t position,
             uint64_t actual)
{
    if (!refusal->is_set)
        *refusal = (berthi_draft_refusal){ true, name->bytes, name->length, position, actual };
}

/* The tensor that was read becomes a record, and its name part of it. */
static void
add_record(berthi_draft *draft, const members *m)
{
    const uint64_t name_length = draft->tensor.length;
    const berthi_record head = {
        .begin = m->begin,
        .end = m->end,
        .name_length = (uint32_t)name_length,
        .dims_bytes = (uint16_t)m->dims_bytes,
        .dtype = (uint8_t)m->dtype,
        .rank = (uint8_t)berthi_min_u64(m->rank, BERTHI_MAX_RANK),
    };
    char *const begin = draft->scan.text + draft->bytes;
    char *out = begin + sizeof head;

    /* The name first: both may overlap where the name came from. */
    memmove(out, draft->tensor.bytes, (size_t)name_length);
    memcpy(begin, &head, sizeof head);
    draft->tensor.bytes = out;
    out += name_length;
    *out++ = '\0';
    memcpy(out, m->dims, (size_t)m->dims_bytes);
    out += m->dims_bytes;
    draft->bytes = (uint64_t)(out - draft->scan.text);
    draft->entry_text += name_length + 1 + m->dims_bytes;
    draft->entry_count++;
}

static void
add_pair(berthi_draft *draft, const berthi_scan_text *key, const berthi_scan_text *value)
{
    const uint64_t position = (uint64_t)(key->bytes - draft->scan.text);
    const berthi_scan_text moved = { draft->scan.text + draft->bytes, key->length,
                                     key->has_nul };
    char *out = draft->scan.text + draft->bytes;

    memmove(out, key->bytes, (size_t)key->length);
    if (key->has_nul)
        refuse_later(&draft->name, &moved, position, 0);
    out += key->length;
    *out++ = '\0';
    out = berthi_varint_write(out, value->length);
    memmove(out, value->bytes, (size_t)value->length);
    out += value->length;
    *out++ = '\0';
    draft->bytes = (uint64_t)(out - draft->scan.text);
    draft->pair_count++;
}

/* --------------------------------------------------- tensors as berth writes */

typedef struct cursor {
    const char *at;
    const char *end;
} cursor;

static inline bool
has_literal(cursor *c, const char *literal, size_t length)
{
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, literal, length) != 0)
        return false;
    c->at += length;
    return true;
}
#define HAS_LITERAL(c, literal) has_literal(c, literal, sizeof literal - 1)

/* True when eight digits stand at `at`, which `value` then ends in. */
static inline bool
has_eight_digits(const char *at, uint64_t *value)
{
    uint64_t digits = berthi_word_load(at) ^ BERTHI_WORD_OF('0');

    /* Above 9: the top bit is set, or is once 0x76 is added. */
    if (((digits | (digits + BERTHI_WORD_OF(0x76))) & BERTHI_WORD_OF(0x80)) != 0)
        return false;
    /* Neighbours become numbers of 2, then of 4, then of 8 digits. */
    digits = digits * 10 + (digits >> 8);
    digits = (digits & UINT64_C(0x00ff00ff00ff00ff)) * 100
             + (digits >> 16 & UINT64_C(0x00ff00ff00ff00ff));
    digits = (digits & UINT64_C(0x0000ffff0000ffff)) * 10000
             + (digits >> 32 & UINT64_C(0x0000ffff0000ffff));
    *value = (uint32_t)digits;
    return true;
}

/* 1 to 19 digits, which cannot overflow; longer ones are left to the scanner. */
static inline bool
has_integer(cursor *c, uint64_t *out)
{
    const char *const begin = c->at;
    uint64_t value = 0;

    if (c->end - begin >= 8 && has_eight_digits(begin, &value))
        c->at += 8;
    while (c->at < c->end && (unsigned char)(*c->at - '0') <= 9)
        value = value * 10 + (uint64_t)(*c->at++ - '0');
    *out = value;
    return c->at > begin && c->at - begin <= 19 && (*begin != '0' || c->at - begin == 1);
}

static bool
has_other_dtype(berthi_draft *draft, cursor *c, int32_t *dtype)
{
    const char *const begin = c->at;
    const char *const quote = memchr(begin, '"', (size_t)(c->end - begin));

    if (quote == NULL)
        return false;
    *dtype = berthi_format_dtype(begin, (uint64_t)(quote - begin));
    c->at = quote;
    if (*dtype == BERTHI_NO_DTYPE)
        return false;
    if (quote - begin < 8 && c->end - begin >= 8) {
        draft->dtypes[1] = draft->dtypes[0];
        draft->dtypes[0] = (berthi_draft_dtype){ berthi_word_load(begin), *dtype,
                                                (uint32_t)(quote - begin) };
    }
    return true;
}

/* Up to the quote behind it. */
static inline bool
has_dtype(berthi_draft *draft, cursor *c, int32_t *dtype)
{
    if (c->end - c->at >= 8) {
        const uint64_t word = berthi_word_load(c->at);

        for (size_t i = 0; i < 2; i++)
            if (word == draft->dtypes[i].word) {
                *dtype = draft->dtypes[i].dtype;
                c->at += draft->dtypes[i].length;
                return true;
            }
    }
    return has_other_dtype(draft, c, dtype);
}

static inline bool
has_dims(cursor *c, members *m)
{
    uint64_t dim;

    if (HAS_LITERAL(c, "]"))
        return true;
    do {
        if (!has_integer(c, &dim))
            return false;
        add_dim(m, dim);
    } while (HAS_LITERAL(c, ","));
    return HAS_LITERAL(c, "]");
}

/*
 * The members as every common writer puts them, in one go. False when they are
 * written in another way; nothing is read then.
 */
static bool
has_usual_members(berthi_draft *draft, members *m)
{
    berthi_scan *const scan = &draft->scan;
    cursor c = { scan->text + scan->position, scan->text + scan->length };

    clear_members(m);
    if (!HAS_LITERAL(&c, "{\"dtype\":\"") || !has_dtype(draft, &c, &m->dtype)
        || !HAS_LITERAL(&c, "\",\"shape\":[") || !has_dims(&c, m)
        || !HAS_LITERAL(&c, ",\"data_offsets\":[") || !has_integer(&c, &m->begin)
        || !HAS_LITERAL(&c, ",") || !has_integer(&c, &m->end) || !HAS_LITERAL(&c, "]}"))
        return false;
    scan->position = (uint64_t)(c.at - scan->text);
    return true;
}

/* -------------------------------------------------------- tensors as JSON is */

/*
 * The scanner's first problem stays and makes all later calls fail: nothing
 * below looks before the end whether something has failed.
 */

/* The first unknown one is kept for the message: records may write over its place. */
static void
read_dtype(berthi_draft *draft, members *m)
{
    berthi_scan_text name;

    if (!berthi_scan_can_read_string(&draft->scan, &name))
        return;
    m->dtype = berthi_format_dtype(name.bytes, name.length);
    m->dtype_at = (uint64_t)(name.bytes - draft->scan.text);
    if (m->dtype == BERTHI_NO_DTYPE && !draft->dtype.is_set)
        berthi_findings_shown(name.bytes, name.length, draft->dtype_shown);
}

static void
read_shape(berthi_scan *scan, members *m)
{
    uint64_t dim;

    berthi_scan_can_enter_array(scan);
    while (berthi_scan_has_next_element(scan))
        if (berthi_scan_can_read_unsigned(scan, &dim))
            add_dim(m, dim);
}

static void
read_offsets(berthi_scan *scan, members *m)
{
    uint64_t *const values[] = { &m->begin, &m->end };

    berthi_scan_can_enter_array(scan);
    for (size_t i = 0; i < 2; i++) {
        if (!berthi_scan_has_next_element(scan))
            berthi_scan_refuse(scan, "data_offsets are not two numbers");
        berthi_scan_can_read_unsigned(scan, values[i]);
    }
    if (berthi_scan_has_next_element(scan))
        berthi_scan_refuse(scan, "data_offsets are not two numbers");
}

static uint32_t
member_bit(const berthi_scan_text *key)
{
    if (berthi_scan_text_is(key, "dtype"))
        return SEEN_DTYPE;
    if (berthi_scan_text_is(key, "shape"))
        return SEEN_SHAPE;
    return berthi_scan_text_is(key, "data_offsets") ? SEEN_OFFSETS : 0;
}

static void
read_member(berthi_draft *draft, const berthi_scan_text *key, members *m)
{
    berthi_scan *const scan = &draft->scan;
    const uint32_t bit = member_bit(key);

    if ((m->seen & bit) != 0)
        berthi_scan_refuse(scan, "dtype, shape or data_offsets a second time");
    m->seen |= bit;
    switch (bit) {
    case SEEN_DTYPE: read_dtype(draft, m); break;
    case SEEN_SHAPE: read_shape(scan, m); break;
    case SEEN_OFFSETS: read_offsets(scan, m); break;
    default: draft->has_unknown_member = true; berthi_scan_can_skip(scan);
    }
}

static bool
can_read_members(berthi_draft *draft, members *m)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;

    clear_members(m);
    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &key))
        read_member(draft, &key, m);
    if (m->seen != SEEN_ALL)
        berthi_scan_refuse(scan, "a tensor without dtype, shape or data_offsets");
    return scan->problem == NULL;
}

static void
read_tensor(berthi_draft *draft, const berthi_scan_text *name)
{
    const uint64_t position = (uint64_t)(name->bytes - draft->scan.text);
    members m;

    draft->tensor = *name;
    if (!has_usual_members(draft, &m) && !can_read_members(draft, &m))
        return;
    if (m.begin < draft->last_begin
        || (m.begin == draft->last_begin && m.end < draft->last_end))
        draft->is_out_of_order = true;
    draft->last_begin = m.begin;
    draft->last_end = m.end;
    add_record(draft, &m);
    if (name->has_nul)
        refuse_later(&draft->name, &draft->tensor, position, 0);
    if (m.rank > BERTHI_MAX_RANK)
        refuse_later(&draft->rank, &draft->tensor, position, m.rank);
    if (m.dtype == BERTHI_NO_DTYPE)
        refuse_later(&draft->dtype, &draft->tensor, m.dtype_at, 0);
    draft->tensor.bytes = NULL;
}

/* --------------------------------------------------------------------- root */

static void
read_pairs(berthi_draft *draft)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;
    berthi_scan_text value;

    berthi_scan_can_enter_object(scan);
    draft->pair_begin = draft->bytes;
    while (berthi_scan_has_next_member(scan, &key))
        if (berthi_scan_can_read_string(scan, &value))
            add_pair(draft, &key, &value);
    draft->pair_end = draft->bytes;
}

static void
read_metadata(berthi_draft *draft)
{
    berthi_scan *const scan = &draft->scan;

    if (draft->has_metadata)
        berthi_scan_refuse(scan, "a second __metadata__");
    draft->has_metadata = true;
    draft->has_null_metadata = berthi_scan_peek(scan) == BERTHI_SCAN_NULL;
    if (draft->has_null_metadata)
        berthi_scan_can_read_null(scan);
    else
        read_pairs(draft);
}

static bool
has_only_spaces(const berthi_scan *scan)
{
    for (uint64_t i = scan->position; i < scan->length; i++)
        if (scan->text[i] != ' ')
            return false;
    return true;
}

bool
berthi_draft_can_read(berthi_draft *draft, char *text, uint64_t bytes)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;

    memset(draft, 0, sizeof *draft);
    berthi_scan_init(scan, text, bytes, 0);
    draft->has_leading_space = bytes > 0 && text[0] != '{';
    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &key)) {
        if (berthi_scan_text_is(&key, "__metadata__"))
            read_metadata(draft);
        else
            read_tensor(draft, &key);
    }
    draft->has_other_trailing = !has_only_spaces(scan);
    return berthi_scan_can_finish(scan);
}
