/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - max_memory of transformers and accelerate; see budget.h. */
#include "placement/budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/text.h"
#include "quant/scan.h"

/* What bitsandbytes, and one GPU that nobody gave a budget, may use. */
#define SHARE_USED 0.90
/* Characters of a number: no double needs more, and no budget that many. */
#define NUMBER_LIMIT 320u

typedef struct unit {
    const char *name; /* in capitals */
    double bytes;
    bool has_bits;    /* a small b at the end means an eighth */
} unit;

/* Tried in this order. */
static const unit units[] = {
    { "GIB", 1073741824.0, false }, { "MIB", 1048576.0, false }, { "KIB", 1024.0, false },
    { "GB", 1e9, true },            { "MB", 1e6, true },         { "KB", 1e3, true },
};

static const char *const not_a_size =
    "is no size: a whole number of bytes, or a number with GiB, MiB, KiB, GB, MB or KB";
static const char *const is_negative_size = "is negative";
static const char *const is_infinite = "is beyond all memory";

/* ------------------------------------------------------------------ characters */

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What Python takes for white space in ASCII. */
static bool
is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static char
capital_of(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static berthi_text
trim(berthi_text text)
{
    while (text.length > 0 && is_blank(text.bytes[0])) {
        text.bytes++;
        text.length--;
    }
    while (text.length > 0 && is_blank(text.bytes[text.length - 1]))
        text.length--;
    return text;
}

static bool
has_end(berthi_text text, const char *end)
{
    const size_t length = strlen(end);

    if (text.length < length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (capital_of(text.bytes[text.length - length + i]) != end[i])
            return false;
    return true;
}

static bool
is_word(berthi_text text, const char *word)
{
    return text.length == strlen(word) && has_end(text, word);
}

/* --------------------------------------------------------------------- numbers */

/* A number of Python's rewritten to JSON's grammar. */
typedef struct rewriting {
    berthi_text rest;
    char text[NUMBER_LIMIT + 8];
    size_t length;
} rewriting;

static bool
has_next(rewriting *r, char small, char large)
{
    if (r->rest.length == 0 || (*r->rest.bytes != small && *r->rest.bytes != large))
        return false;
    r->rest.bytes++;
    r->rest.length--;
    return true;
}

/*
 * Digits with single underscores between them; without `has_zeros`, leading
 * zeros are left out but the last. False when there are none, or an underscore
 * stands at an end.
 */
static bool
can_copy_digits(rewriting *r, bool has_zeros)
{
    const size_t begin = r->length;
    bool is_after_digit = false;
    bool has_digit = false;

    for (; r->rest.length > 0; r->rest.bytes++, r->rest.length--) {
        const char c = *r->rest.bytes;

        if (c == '_' && is_after_digit) {
            is_after_digit = false;
            continue;
        }
        if (!is_digit(c))
            break;
        is_after_digit = true;
        has_digit = true;
        if (!has_zeros && r->length == begin + 1 && r->text[begin] == '0')
            r->length = begin;
        r->text[r->length++] = c;
    }
    return has_digit && is_after_digit;
}

/* Digits, point, digits; one side may be empty. */
static bool
can_copy_mantissa(rewriting *r)
{
    const bool has_whole = r->rest.length > 0 && *r->rest.bytes != '.';

    if (has_whole && !can_copy_digits(r, false))
        return false;
    if (!has_whole)
        r->text[r->length++] = '0';
    if (!has_next(r, '.', '.'))
        return has_whole;
    r->text[r->length++] = '.';
    if (r->rest.length > 0 && (is_digit(*r->rest.bytes) || *r->rest.bytes == '_'))
        return can_copy_digits(r, true);
    r->text[r->length++] = '0';
    return has_whole;
}

static bool
can_copy_exponent(rewriting *r)
{
    r->text[r->length++] = 'e';
    if (has_next(r, '-', '-'))
        r->text[r->length++] = '-';
    else
        has_next(r, '+', '+');
    return can_copy_digits(r, true);
}

/* What Python's float() reads; NULL, or what is wrong. */
static const char *
read_number(berthi_text text, double *out)
{
    rewriting r = { .rest = trim(text), .length = 0 };
    berthi_scan scan;

    if (r.rest.length > NUMBER_LIMIT)
        return not_a_size;
    if (has_next(&r, '-', '-'))
        r.text[r.length++] = '-';
    else
        has_next(&r, '+', '+');
    if (is_word(r.rest, "INF") || is_word(r.rest, "INFINITY"))
        return is_infinite;
    if (!can_copy_mantissa(&r) || (has_next(&r, 'e', 'E') && !can_copy_exponent(&r))
        || r.rest.length > 0)
        return not_a_size;
    berthi_scan_init(&scan, r.text, r.length, 0);
    return berthi_scan_can_read_double(&scan, out) ? NULL : is_infinite;
}

/* A whole number of bytes, as Python writes integers. */
static bool
is_integer(berthi_text text)
{
    if (text.length > 0 && (*text.bytes == '-' || *text.bytes == '+')) {
        text.bytes++;
        text.length--;
    }
    for (size_t i = 0; i < text.length; i++)
        if (!is_digit(text.bytes[i]) && text.bytes[i] != '_')
            return false;
    return text.length > 0;
}

static const char *
read_size(berthi_text text, double *out)
{
    const unit *u = units;
    const char *problem;
    bool is_bits;
    double value;

    if (is_integer(text)) {
        problem = read_number(text, &value);
        if (problem == NULL && value < 0)
            problem = is_negative_size;
        *out = problem == NULL ? fabs(value) : 0;
        return problem;
    }
    while (u < units + sizeof units / sizeof *units && !has_end(text, u->name))
        u++;
    if (u == units + sizeof units / sizeof *units)
        return not_a_size;
    is_bits = u->has_bits && text.bytes[text.length - 1] == 'b';
    problem = read_number((berthi_text){ text.bytes, text.length - strlen(u->name) }, &value);
    if (problem != NULL)
        return problem;
    value = trunc(value * u->bytes);
    if (is_bits)
        value = floor(value / 8);
    if (!isfinite(value))
        return is_infinite;
    if (value < 0)
        return is_negative_size;
    *out = fabs(value); /* -0 is 0 */
    return NULL;
}

bool
berthi_budget_can_parse_size(const char *text, uint64_t length, double *out_bytes,
                             const char **problem)
{
    *out_bytes = 0;
    *problem = read_size((berthi_text){ text, (size_t)length }, out_bytes);
    return *problem == NULL;
}

/* --------------------------------------------------------------------- devices */

static bool
is_before(const berthi_budget *a, const berthi_budget *b)
{
    return a->kind != b->kind ? a->kind < b->kind : a->number < b->number;
}

bool
berthi_budgets_can_add(berthi_budgets *budgets, const berthi_budget *budget)
{
    uint32_t at = budgets->count;

    /* The last place is the disk's, which planners always add. */
    if (at == BERTHI_BUDGET_LIMIT
        || (at == BERTHI_BUDGET_LIMIT - 1 && budget->kind != BERTHI_BUDGET_DISK))
        return false;
    while (at > 0 && is_before(budget, &budgets->items[at - 1]))
        at--;
    if (at > 0 && !is_before(&budgets->items[at - 1], budget))
        return false;
    memmove(&budgets->items[at + 1], &budgets->items[at],
            (budgets->count - at) * sizeof *budgets->items);
    budgets->items[at] = *budget;
    budgets->count++;
    return true;
}

static bool
can_read_key(berthi_text text, berthi_budget *out)
{
    static const char *const words[] = { "mps", "cpu", "disk" };
    uint64_t magnitude;
    const bool is_negative = text.length > 0 && *text.bytes == '-';

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (text.length == strlen(words[i])
            && memcmp(text.bytes, words[i], text.length) == 0) {
            out->kind = (berthi_budget_kind)(BERTHI_BUDGET_MPS + (int)i);
            return true;
        }
    if (!berthi_digits_can_parse(text.bytes + is_negative, text.length - is_negative, INT64_MAX,
                                 &magnitude))
        return false;
    out->kind = BERTHI_BUDGET_GPU;
    out->number = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static berth_status
refuse(berth_error *error, berthi_text key, berthi_text size, const char *problem)
{
    char key_text[BERTH_NAME_CAPACITY];
    char size_text[BERTH_NAME_CAPACITY];

    berth_text_escape(key.bytes, key.length, key_text, sizeof key_text);
    berth_text_escape(size.bytes, size.length, size_text, sizeof size_text);
    if (size.length == 0)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "max_memory: \"%s\" %s",
                           key_text, problem);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                       "max_memory of device %s: \"%s\" %s", key_text, size_text, problem);
}

/* One "key=size". */
static berth_status
read_item(berthi_text item, berthi_budgets *budgets, berth_error *error)
{
    const berthi_text none = { "", 0 };
    const char *const sign = memchr(item.bytes, '=', item.length);
    berthi_budget budget = { BERTHI_BUDGET_GPU, 0, 0 };
    const char *problem;
    berthi_text key;
    berthi_text size;

    if (sign == NULL)
        return refuse(error, item, none, "is not written as device=size");
    key = trim((berthi_text){ item.bytes, (size_t)(sign - item.bytes) });
    size = (berthi_text){ sign + 1, item.length - (size_t)(sign + 1 - item.bytes) };
    if (size.length == 0)
        return refuse(error, key, none, "has no size");
    if (!berthi_budget_can_parse_size(size.bytes, size.length, &budget.bytes, &problem))
        return refuse(error, key, size, problem);
    if (!can_read_key(key, &budget))
        return refuse(error, key, none,
                      "is no device: they are integers (GPUs), mps, cpu and disk");
    if (!berthi_budgets_can_add(budgets, &budget))
        return refuse(error, key, none, "is there twice, or one of too many devices");
    return BERTH_OK;
}

berth_status
berthi_budgets_parse(const char *text, berthi_budgets *out, berth_error *error)
{
    berth_status status = BERTH_OK;

    memset(out, 0, sizeof *out);
    out->is_given = true;
    do {
        const size_t length = strcspn(text, ",");

        status = read_item((berthi_text){ text, length }, out, error);
        text += length;
    } while (*text++ == ',' && status == BERTH_OK);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}

/* -------------------------------------------------------------------- defaults */

void
berthi_budgets_default(berthi_era era, const berthi_budget_machine *machine,
                       berthi_budgets *out)
{
    const berthi_budget cpu = { BERTHI_BUDGET_CPU, 0,
                                (double)machine->host_available
                                    * (era == BERTHI_ERA_HF4 ? 1.0 : SHARE_USED) };

    memset(out, 0, sizeof *out);
    if (!machine->is_integrated)
        berthi_budgets_can_add(out, &cpu);
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        const berthi_budget gpu = { BERTHI_BUDGET_GPU, i, (double)machine->gpu_free[i] };

        berthi_budgets_can_add(out, &gpu);
    }
}

void
berthi_budgets_cut(berthi_budgets *budgets)
{
    for (uint32_t i = 0; i < budgets->count; i++)
        budgets->items[i].bytes *= SHARE_USED;
}

const char *
berthi_budget_name(const berthi_budget *budget, char *text)
{
    static const char *const words[] = { "", "mps", "cpu", "disk" };

    if (budget->kind == BERTHI_BUDGET_GPU)
        snprintf(text, BERTHI_BUDGET_NAME, "%" PRId64, budget->number);
    else
        snprintf(text, BERTHI_BUDGET_NAME, "%s", words[budget->kind]);
    return text;
}
