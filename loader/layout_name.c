/* SPDX-License-Identifier: Apache-2.0 */
/* layout_name.c - comparing, checking and printing of names in two pieces. */
#include "loader/layout_name.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/utf8.h"

#define RESERVED "__metadata__"
/* More than an error shows of a name, whatever it consists of. */
#define SHOWN_CAPACITY 256u

/* A name with its length, for reading at any position. */
typedef struct spelled {
    const char *name;
    const char *suffix;
    uint64_t name_length;
    uint64_t length; /* of both */
} spelled;

static spelled
spell(const berthi_layout_tensor *tensor)
{
    spelled s = { .name = tensor->name, .suffix = tensor->suffix,
                  .name_length = tensor->name_length };

    if (s.suffix == NULL)
        s.suffix = "";
    s.length = s.name_length + strlen(s.suffix);
    return s;
}

/* As it counts in fill order. */
static spelled
spell_for_fill(const berthi_layout_tensor *tensor)
{
    spelled s = spell(tensor);

    if (tensor->fill_name != NULL) {
        s.name = tensor->fill_name;
        s.length += tensor->fill_name_length - s.name_length;
        s.name_length = tensor->fill_name_length;
    }
    return s;
}

static unsigned char
byte_at(const spelled *s, uint64_t at)
{
    return (unsigned char)(at < s->name_length ? s->name[at]
                                               : s->suffix[at - s->name_length]);
}

/* ---------------------------------------------------------------- bytewise order */

/*
 * Position of the first difference, which is not before `at`; the length of the
 * shorter if there is none.
 */
static uint64_t
find_difference(const spelled *a, const spelled *b, uint64_t at)
{
    const uint64_t names = berthi_min_u64(a->name_length, b->name_length);
    const uint64_t both = berthi_min_u64(a->length, b->length);

    while (at < names && a->name[at] == b->name[at])
        at++;
    if (at < names)
        return at;
    while (at < both && byte_at(a, at) == byte_at(b, at))
        at++;
    return at;
}

static int
compare_at(const spelled *a, const spelled *b, uint64_t difference)
{
    if (difference == a->length || difference == b->length)
        return (a->length > b->length) - (a->length < b->length);
    return byte_at(a, difference) - byte_at(b, difference);
}

int
berthi_layout_name_compare(const berthi_layout_tensor *a, const berthi_layout_tensor *b,
                           uint64_t *shared)
{
    const spelled x = spell(a);
    const spelled y = spell(b);

    *shared = find_difference(&x, &y, *shared);
    return compare_at(&x, &y, *shared);
}

/* ------------------------------------------------------------- dot-natural order */

/* What lies between two dots. */
typedef struct part {
    const spelled *of;
    uint64_t begin; /* of a number: behind leading zeros */
    uint64_t end;
    bool is_number;
} part;

static part
part_from(const spelled *s, uint64_t begin)
{
    part p = { .of = s, .begin = begin, .end = begin, .is_number = true };

    for (; p.end < s->length && byte_at(s, p.end) != '.'; p.end++)
        if (byte_at(s, p.end) < '0' || byte_at(s, p.end) > '9')
            p.is_number = false;
    if (p.end == begin)
        p.is_number = false;
    while (p.is_number && p.begin < p.end && byte_at(s, p.begin) == '0')
        p.begin++;
    return p;
}

static int
compare_part(const part *a, const part *b)
{
    const uint64_t a_length = a->end - a->begin;
    const uint64_t b_length = b->end - b->begin;
    const int by_length = (a_length > b_length) - (a_length < b_length);
    const uint64_t both = berthi_min_u64(a_length, b_length);

    if (a->is_number != b->is_number)
        return a->is_number ? -1 : 1;
    if (a->is_number && by_length != 0)
        return by_length;
    for (uint64_t i = 0; i < both; i++) {
        const int order = byte_at(a->of, a->begin + i) - byte_at(b->of, b->begin + i);

        if (order != 0)
            return order;
    }
    return by_length;
}

static int
compare_parts(const spelled *x, const spelled *y)
{
    const uint64_t difference = find_difference(x, y, 0);
    uint64_t begin = difference;
    part p;
    part q;

    /* Whole parts in front of the difference are the same. */
    while (begin > 0 && byte_at(x, begin - 1) != '.')
        begin--;
    p = part_from(x, begin);
    q = part_from(y, begin);
    for (;;) {
        const bool is_last = p.end == x->length;
        const int order = compare_part(&p, &q);

        if (order != 0)
            return order;
        if (is_last != (q.end == y->length))
            return is_last ? -1 : 1;
        if (is_last)
            return compare_at(x, y, difference);
        p = part_from(x, p.end + 1);
        q = part_from(y, q.end + 1);
    }
}

int
berthi_layout_name_compare_fill(const berthi_layout_tensor *a,
                                const berthi_layout_tensor *b)
{
    spelled x = spell_for_fill(a);
    spelled y = spell_for_fill(b);
    const int order = compare_parts(&x, &y);

    if (order != 0)
        return order;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    x = spell(a);
    y = spell(b);
    return compare_parts(&x, &y);
}

/* ---------------------------------------------------------- checking, printing */

const char *
berthi_layout_name_problem(const berthi_layout_tensor *tensor)
{
    static const berthi_layout_tensor reserved = { .name = RESERVED,
                                                   .name_length = sizeof RESERVED - 1 };
    const spelled s = spell(tensor);
    const uint64_t suffix_length = s.length - s.name_length;
    uint64_t shared = 0;

    if (memchr(s.name, '\0', (size_t)s.name_length) != NULL)
        return "the name contains U+0000";
    if (berthi_utf8_check((const unsigned char *)s.name, (size_t)s.name_length)
            < s.name_length
        || berthi_utf8_check((const unsigned char *)s.suffix, (size_t)suffix_length)
               < suffix_length)
        return "the name is not UTF-8";
    if (berthi_layout_name_compare(tensor, &reserved, &shared) == 0)
        return "the name has a meaning of its own in safetensors";
    return NULL;
}

void
berthi_layout_name_add(berthi_json_text *text, const berthi_layout_tensor *tensor,
                       berthi_json_style style)
{
    const spelled s = spell(tensor);

    berthi_json_text_add(text, "\"", 1);
    berthi_json_text_add_escaped(text, s.name, s.name_length, style);
    berthi_json_text_add_escaped(text, s.suffix, s.length - s.name_length, style);
    berthi_json_text_add(text, "\"", 1);
}

berth_status
berthi_layout_name_fail(berth_error *error, berth_reason reason,
                        const berthi_layout_tensor *tensor, const char *message)
{
    const spelled s = spell(tensor);
    const size_t shown = (size_t)berthi_min_u64(s.length, SHOWN_CAPACITY);
    char name[SHOWN_CAPACITY];

    for (size_t i = 0; i < shown; i++)
        name[i] = (char)byte_at(&s, i);
    return berthi_fail(error, reason,
                       &(berthi_about){ .tensor = name, .tensor_length = shown }, "%s",
                       message);
}
