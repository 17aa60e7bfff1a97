/* SPDX-License-Identifier: Apache-2.0 */
/* rules_file.c - reading the user's rules; the grammar is in rules_file.h. */
#include "quant/rules_file.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/text.h"
#include "kernels/utf8.h"
#include "quant/format.h"
#include "quant/glob.h"

#define ARENA_BLOCK 4096u
#define RANK_LIMIT 31u /* ranks are bits */

typedef struct reading {
    berthi_rules_file *file;
    const char *begin;
    const char *end;
    const char *at;     /* what comes next */
    const char *where;  /* the word being looked at */
    const char *problem;
    berthi_rule *rules;
    uint32_t line;
    bool has_memory;
} reading;

static const struct {
    const char *word;
    berthi_action action;
} actions[] = {
    { "nf4", BERTHI_ACTION_NF4 },           { "fp4", BERTHI_ACTION_FP4 },
    { "int8", BERTHI_ACTION_INT8 },         { "quantize", BERTHI_ACTION_QUANTIZE },
    { "keep", BERTHI_ACTION_KEEP },         { "auto", BERTHI_ACTION_AUTO },
};

static bool
refuse(reading *r, const char *problem)
{
    r->problem = problem;
    return false;
}

static bool
lack_memory(reading *r)
{
    r->has_memory = false;
    return false;
}

/* ------------------------------------------------------------------- words */

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static bool
is_line_end(const reading *r, const char *at)
{
    return at == r->end || *at == '\n';
}

/* The next word of this line; false at its end. */
static bool
has_word(reading *r, berthi_text *out)
{
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
    r->where = r->at;
    if (is_line_end(r, r->at) || *r->at == '#')
        return false;
    out->bytes = r->at;
    while (!is_line_end(r, r->at) && !is_blank(*r->at))
        r->at++;
    out->length = (uint64_t)(r->at - out->bytes);
    return true;
}

static void
skip_line(reading *r)
{
    while (r->at < r->end && *r->at != '\n')
        r->at++;
    if (r->at < r->end)
        r->at++;
}

/* Plain digits; what follows them stays in `w`. */
static bool
has_number(berthi_text *w, uint64_t *out)
{
    const char *const end = w->bytes + w->length;
    const bool is_there = berthi_digits_can_take(&w->bytes, end, UINT64_MAX, out);

    w->length = (uint64_t)(end - w->bytes);
    return is_there;
}

/* Takes `separator` off the beginning; true as well when nothing is left. */
static bool
can_separate(berthi_text *w, char separator, bool *out_is_end)
{
    *out_is_end = w->length == 0;
    if (*out_is_end)
        return true;
    if (*w->bytes != separator)
        return false;
    w->bytes++;
    w->length--;
    return true;
}

/* -------------------------------------------------------------- conditions */

static bool
can_read_ranks(reading *r, berthi_text w, berthi_rule *rule)
{
    bool is_end = false;

    if (rule->ranks != 0)
        return refuse(r, "a second rank=");
    while (!is_end) {
        uint64_t rank;

        if (!has_number(&w, &rank) || rank > RANK_LIMIT || !can_separate(&w, ',', &is_end))
            return refuse(r, "rank= wants numbers up to 31 with commas between them");
        rule->ranks |= UINT32_C(1) << rank;
    }
    return true;
}

static bool
can_read_axis(berthi_text *w, berthi_axis *axis)
{
    uint64_t size;

    if (w->length > 0 && *w->bytes == '*') {
        w->bytes++;
        w->length--;
        *axis = (berthi_axis){ 0, UINT64_MAX };
        return true;
    }
    if (!has_number(w, &size))
        return false;
    *axis = (berthi_axis){ size, size };
    if (w->length > 0 && *w->bytes == '+') {
        w->bytes++;
        w->length--;
        axis->maximum = UINT64_MAX;
    }
    return true;
}

static bool
can_read_shape(reading *r, berthi_text w, berthi_rule *rule)
{
    bool is_end = false;

    if (rule->axis_count != 0)
        return refuse(r, "a second shape=");
    while (!is_end) {
        if (rule->axis_count == BERTHI_RULES_AXES)
            return refuse(r, "shape= with more than 8 axes");
        if (!can_read_axis(&w, &rule->axes[rule->axis_count++])
            || !can_separate(&w, 'x', &is_end))
            return refuse(r, "shape= wants axes (4096, 1024+ or *) with x between them");
    }
    return true;
}

static bool
can_read_dtypes(reading *r, berthi_text w, berthi_rule *rule)
{
    static const char wrong[] = "dtype= wants dtypes such as bf16 with commas between them";
    bool is_end = false;

    if (rule->dtypes != 0)
        return refuse(r, "a second dtype=");
    while (!is_end) {
        char name[32];
        uint64_t length = 0;
        int32_t dtype;

        while (length < w.length && w.bytes[length] != ',')
            length++;
        if (length >= sizeof name)
            return refuse(r, wrong);
        memcpy(name, w.bytes, (size_t)length);
        name[length] = '\0';
        dtype = berthi_format_dtype_word(name);
        if (dtype == BERTHI_NO_DTYPE)
            return refuse(r, wrong);
        rule->dtypes |= UINT32_C(1) << dtype;
        w.bytes += length;
        w.length -= length;
        if (!can_separate(&w, ',', &is_end))
            return refuse(r, wrong);
    }
    return true;
}

/* What stands behind "name=" in the word. */
static bool
has_value(berthi_text w, const char *name, berthi_text *out)
{
    const size_t length = strlen(name);

    if (w.length < length || memcmp(w.bytes, name, length) != 0)
        return false;
    *out = (berthi_text){ w.bytes + length, w.length - length };
    return true;
}

static bool
can_read_condition(reading *r, berthi_text w, berthi_rule *rule)
{
    berthi_text value;

    if (has_value(w, "rank=", &value))
        return can_read_ranks(r, value, rule);
    if (has_value(w, "shape=", &value))
        return can_read_shape(r, value, rule);
    if (has_value(w, "dtype=", &value))
        return can_read_dtypes(r, value, rule);
    if (!berthi_text_is(w, "optional"))
        return refuse(r, "a condition that is none of rank=, shape=, dtype=, optional");
    rule->is_optional = true;
    return true;
}

/* -------------------------------------------------------------------- lines */

static bool
can_read_action(reading *r, berthi_text w, berthi_rule *rule)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (berthi_text_is(w, actions[i].word)) {
            rule->action = actions[i].action;
            return true;
        }
    return refuse(r, "an action that is none of nf4, fp4, int8, quantize, keep, auto");
}

static bool
can_read_glob(reading *r, berthi_rule *rule)
{
    const char *problem;
    berthi_text w;

    if (!has_word(r, &w))
        return refuse(r, "an action without a pattern");
    rule->glob = berthi_arena_text(&r->file->arena, w.bytes, w.length);
    if (rule->glob == NULL)
        return lack_memory(r);
    problem = berthi_glob_check(rule->glob);
    return problem == NULL || refuse(r, problem);
}

/* The words from `begin` to here with one blank between them. */
static bool
can_keep_text(reading *r, const char *begin, berthi_rule *rule)
{
    char *const text = berthi_arena_text(&r->file->arena, begin,
                                         (uint64_t)(r->where - begin));
    size_t length = 0;

    if (text == NULL)
        return lack_memory(r);
    rule->text = text;
    for (const char *at = text; *at != '\0'; at++)
        if (!is_blank(*at))
            text[length++] = *at;
        else if (!is_blank(at[1]) && at[1] != '\0')
            text[length++] = ' ';
    text[length] = '\0';
    return true;
}

/* A line, with a rule or without. */
static bool
can_read_line(reading *r)
{
    berthi_rule rule;
    const char *begin;
    berthi_text w;

    memset(&rule, 0, sizeof rule);
    if (!has_word(r, &w))
        return true;
    begin = w.bytes;
    rule.line = r->line;
    if (!can_read_action(r, w, &rule) || !can_read_glob(r, &rule))
        return false;
    while (has_word(r, &w))
        if (!can_read_condition(r, w, &rule))
            return false;
    if (!can_keep_text(r, begin, &rule))
        return false;
    r->rules[r->file->count++] = rule;
    return true;
}

/* At most: the shortest rule is "nf4 *" and a line break. */
static bool
can_read_lines(reading *r)
{
    const uint64_t rules = (uint64_t)(r->end - r->begin) / 6 + 1;

    r->rules = berthi_arena_alloc(&r->file->arena, rules * sizeof *r->rules, 8);
    if (r->rules == NULL)
        return lack_memory(r);
    r->file->rules = r->rules;
    for (r->line = 1; r->at < r->end; r->line++) {
        if (!can_read_line(r))
            return false;
        skip_line(r);
    }
    return true;
}

/* What no line may hold. */
static bool
is_text(reading *r)
{
    static const char mark[] = "\xef\xbb\xbf"; /* as some editors begin a file with */
    const uint64_t bytes = (uint64_t)(r->end - r->begin);
    const uint64_t good = berthi_utf8_check((const unsigned char *)r->begin, (size_t)bytes);
    const char *const zero = bytes > 0 ? memchr(r->begin, 0, (size_t)bytes) : NULL;

    r->where = r->begin + good;
    if (good != bytes)
        return refuse(r, "not UTF-8");
    r->where = r->begin;
    if (bytes >= sizeof mark - 1 && memcmp(r->begin, mark, sizeof mark - 1) == 0)
        return refuse(r, "a byte order mark: save the file without it");
    r->where = zero;
    return zero == NULL || refuse(r, "a NUL");
}

static berth_status
fail(const reading *r, const char *name, berth_error *error)
{
    if (!r->has_memory)
        return berthi_fail_memory(error, "reading rules");
    return berthi_fail(error, BERTH_REASON_RULES,
                       &(berthi_about){ .file = name,
                                        .has = BERTH_HAS_POSITION,
                                        .position = (uint64_t)(r->where - r->begin) },
                       "line %" PRIu32 ": %s", r->line, r->problem);
}

berth_status
berthi_rules_file_parse(berth_context *context, const char *text, uint64_t bytes,
                        const char *name, berthi_rules_file *out, berth_error *error)
{
    reading r = { .file = out, .begin = text, .end = text + bytes, .at = text,
                  .has_memory = true, .line = 1 };
    berth_status status = BERTH_OK;

    memset(out, 0, sizeof *out);
    if (bytes > BERTHI_RULES_LIMIT)
        return berthi_fail(error, BERTH_REASON_RULES,
                           &(berthi_about){ .file = name,
                                            .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
                                            .expected = BERTHI_RULES_LIMIT,
                                            .actual = bytes },
                           "larger than a file of rules may be");
    berthi_arena_init(&out->arena, context, BERTHI_PURPOSE_DOCUMENT, ARENA_BLOCK);
    out->name = berthi_arena_text(&out->arena, name, strlen(name));
    if (out->name == NULL)
        status = berthi_fail_memory(error, "reading rules");
    else if (!is_text(&r) || !can_read_lines(&r))
        status = fail(&r, name, error);
    if (status != BERTH_OK) {
        berthi_rules_file_fini(out);
        memset(out, 0, sizeof *out);
    }
    return status;
}

void
berthi_rules_file_fini(berthi_rules_file *file)
{
    if (file->arena.context != NULL)
        berthi_arena_fini(&file->arena);
}
