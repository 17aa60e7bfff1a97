/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c - a regular expression becomes states, each with at most two ways
 * on. See pattern_states.h.
 *
 * A piece of the expression is a fragment: a first state and a last one, which
 * is EMPTY and leads nowhere yet. Joining two sets where it leads.
 */
#include "quant/pattern_states.h"

#include <string.h>

#include "kernels/utf8.h"

/* Each byte of the pattern makes at most two states, a group's end two more. */
#define STATES_PER_BYTE 4u
#define STATES_MORE 8u
#define NO_STATE UINT32_MAX

/* --------------------------------------------------------------------- sets */

static void
set_add(pattern_set *s, uint32_t first, uint32_t last)
{
    for (uint32_t c = first; c <= last && c < 128; c++)
        s->bits[c / 64] |= UINT64_C(1) << c % 64;
}

static void
set_turn(pattern_set *s)
{
    s->bits[0] = ~s->bits[0];
    s->bits[1] = ~s->bits[1];
    s->has_others = !s->has_others;
}

/* The set that \d, \w, \s and their capitals stand for; false for other letters. */
static bool
has_class(char letter, pattern_set *out)
{
    memset(out, 0, sizeof *out);
    switch (letter | 0x20) {
    case 'd': set_add(out, '0', '9'); break;
    case 'w':
        set_add(out, '0', '9');
        set_add(out, 'A', 'Z');
        set_add(out, 'a', 'z');
        set_add(out, '_', '_');
        out->has_others = true;
        break;
    case 's':
        set_add(out, '\t', '\r');
        set_add(out, 0x1c, ' ');
        break;
    default: return false;
    }
    if ((letter & 0x20) == 0)
        set_turn(out);
    return true;
}

/* ---------------------------------------------------------------- compiling */

typedef struct fragment {
    uint32_t first; /* NO_STATE: nothing */
    uint32_t last;
} fragment;

static const fragment nothing = { NO_STATE, NO_STATE };

/* A group that is open, or the whole. */
typedef struct group {
    fragment choices;  /* alternatives before the last '|' */
    fragment sequence; /* what stands behind it, without the last piece */
    fragment piece;    /* the last piece: what an operator repeats */
    bool is_repeated;  /* the piece has an operator already */
    bool is_lazy;      /* and '?' behind it */
} group;

typedef struct compiling {
    berthi_pattern *pattern;
    const char *text;
    const char *at;
    const char *problem;
    group groups[BERTHI_PATTERN_DEPTH];
    uint32_t depth; /* groups open beyond the whole */
} compiling;

static bool
refuse(compiling *c, const char *problem)
{
    c->problem = problem;
    return false;
}

static uint32_t
add_state(compiling *c, pattern_kind kind, uint32_t next, uint32_t other)
{
    berthi_pattern *const pattern = c->pattern;
    pattern_state *const made = &pattern->states[pattern->state_count];

    *made = (pattern_state){ .kind = (uint8_t)kind, .next = next, .other = other };
    return pattern->state_count++;
}

static uint32_t
add_end(compiling *c)
{
    return add_state(c, STATE_EMPTY, NO_STATE, NO_STATE);
}

static void
lead(compiling *c, uint32_t from, uint32_t to)
{
    c->pattern->states[from].next = to;
}

static fragment
join(compiling *c, fragment a, fragment b)
{
    if (a.first == NO_STATE)
        return b;
    if (b.first == NO_STATE)
        return a;
    lead(c, a.last, b.first);
    return (fragment){ a.first, b.last };
}

/* The sequence with its last piece; an empty one is a state that asks nothing. */
static fragment
close_sequence(compiling *c, group *g)
{
    fragment whole = join(c, g->sequence, g->piece);

    if (whole.first == NO_STATE) {
        whole.first = add_end(c);
        whole.last = whole.first;
    }
    g->sequence = nothing;
    g->piece = nothing;
    return whole;
}

static fragment
close_choices(compiling *c, group *g)
{
    const fragment last = close_sequence(c, g);
    const fragment before = g->choices;
    fragment whole;

    if (before.first == NO_STATE)
        return last;
    whole.first = add_state(c, STATE_SPLIT, before.first, last.first);
    whole.last = add_end(c);
    lead(c, before.last, whole.last);
    lead(c, last.last, whole.last);
    return whole;
}

/* A new last piece. */
static void
add_piece(compiling *c, fragment piece)
{
    group *const g = &c->groups[c->depth];

    g->sequence = join(c, g->sequence, g->piece);
    g->piece = piece;
    g->is_repeated = false;
    g->is_lazy = false;
}

static pattern_state *
add_simple(compiling *c, pattern_kind kind)
{
    const uint32_t last = add_end(c);
    const uint32_t first = add_state(c, kind, last, NO_STATE);

    add_piece(c, (fragment){ first, last });
    return &c->pattern->states[first];
}

/* '^' and '$' cannot be repeated. */
static void
add_anchor(compiling *c, pattern_kind kind)
{
    add_simple(c, kind);
    c->groups[c->depth].is_repeated = true;
    c->groups[c->depth].is_lazy = true;
}

static bool
can_repeat(compiling *c, char operation)
{
    group *const g = &c->groups[c->depth];
    uint32_t split;
    uint32_t last;

    if (g->piece.first == NO_STATE)
        return refuse(c, "nothing to repeat");
    if (g->is_repeated) {
        if (operation != '?' || g->is_lazy)
            return refuse(c, "something is repeated twice");
        g->is_lazy = true;
        return true;
    }
    last = add_end(c);
    split = add_state(c, STATE_SPLIT, g->piece.first, last);
    lead(c, g->piece.last, operation == '?' ? last : split);
    if (operation != '+')
        g->piece.first = split;
    g->piece.last = last;
    g->is_repeated = true;
    return true;
}

static bool
can_open(compiling *c)
{
    if (c->at[0] == '?') {
        if (c->at[1] != ':')
            return refuse(c, "(? with something else than : is not supported");
        c->at += 2;
    }
    if (c->depth + 1 == BERTHI_PATTERN_DEPTH)
        return refuse(c, "too many groups inside each other");
    c->depth++;
    c->groups[c->depth] = (group){ .choices = nothing, .sequence = nothing,
                                   .piece = nothing };
    return true;
}

static bool
can_close(compiling *c)
{
    fragment whole;

    if (c->depth == 0)
        return refuse(c, "a ) without (");
    whole = close_choices(c, &c->groups[c->depth]);
    c->depth--;
    add_piece(c, whole);
    return true;
}

static bool
is_letter_or_digit(char byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

/* Behind '\': a class of characters, or a character for itself. */
static bool
can_escape(compiling *c, pattern_set *out_class, bool *out_is_class)
{
    *out_is_class = has_class(*c->at, out_class);
    if (*c->at == '\0')
        return refuse(c, "nothing follows the last \\");
    if (!*out_is_class && is_letter_or_digit(*c->at))
        return refuse(c, "this escape is not supported");
    return true;
}

/* One member of a set, or the end of a range in it. */
static bool
can_read_member(compiling *c, pattern_set *out_class, bool *out_is_class, unsigned char *out)
{
    *out_is_class = false;
    if (*c->at == '\\') {
        c->at++;
        if (!can_escape(c, out_class, out_is_class))
            return false;
    }
    *out = (unsigned char)*c->at;
    if (*out == '\0')
        return refuse(c, "a [ without ]");
    if (*out >= 128)
        return refuse(c, "a set of characters beyond ASCII is not supported");
    c->at++;
    return true;
}

static bool
can_add_member(compiling *c, pattern_set *whole)
{
    pattern_set class;
    bool is_class;
    unsigned char low;
    unsigned char high;

    if (!can_read_member(c, &class, &is_class, &low))
        return false;
    if (is_class) {
        whole->bits[0] |= class.bits[0];
        whole->bits[1] |= class.bits[1];
        whole->has_others = whole->has_others || class.has_others;
        return true;
    }
    high = low;
    if (c->at[0] == '-' && c->at[1] != ']') {
        c->at++;
        if (!can_read_member(c, &class, &is_class, &high))
            return false;
        if (is_class || high < low)
            return refuse(c, "a range that is none");
    }
    set_add(whole, low, high);
    return true;
}

static bool
can_add_set(compiling *c)
{
    const bool is_turned = *c->at == '^';
    const char *first;
    pattern_set whole;

    memset(&whole, 0, sizeof whole);
    c->at += is_turned;
    first = c->at;
    while (*c->at != ']' || c->at == first)
        if (!can_add_member(c, &whole))
            return false;
    c->at++;
    if (is_turned)
        set_turn(&whole);
    add_simple(c, STATE_SET)->set = whole;
    return true;
}

static bool
can_add_point(compiling *c)
{
    uint32_t point;
    const size_t length = berthi_utf8_decode((const unsigned char *)c->at,
                                             strlen(c->at), &point);

    if (length == 0)
        return refuse(c, "not UTF-8");
    c->at += length;
    add_simple(c, STATE_POINT)->point = point;
    return true;
}

static bool
can_add_escape(compiling *c)
{
    pattern_set class;
    bool is_class;

    if (!can_escape(c, &class, &is_class))
        return false;
    if (!is_class)
        return can_add_point(c);
    c->at++;
    add_simple(c, STATE_SET)->set = class;
    return true;
}

/* What begins at `at`, which moves behind it. */
static bool
can_add_next(compiling *c)
{
    group *const g = &c->groups[c->depth];

    switch (*c->at++) {
    case '.': add_simple(c, STATE_ANY); return true;
    case '^': add_anchor(c, STATE_BEGIN); return true;
    case '$': add_anchor(c, STATE_END); return true;
    case '*': return can_repeat(c, '*');
    case '+': return can_repeat(c, '+');
    case '?': return can_repeat(c, '?');
    case '(': return can_open(c);
    case ')': return can_close(c);
    case '[': return can_add_set(c);
    case '{': return refuse(c, "{ is not supported");
    case '|':
        g->choices = close_choices(c, g);
        return true;
    case '\\': return can_add_escape(c);
    default:
        c->at--;
        return can_add_point(c);
    }
}

static bool
can_compile(compiling *c)
{
    fragment whole;

    c->groups[0] = (group){ .choices = nothing, .sequence = nothing, .piece = nothing };
    while (*c->at != '\0')
        if (!can_add_next(c))
            return false;
    if (c->depth > 0)
        return refuse(c, "a ( without )");
    whole = close_choices(c, &c->groups[0]);
    lead(c, whole.last, add_state(c, STATE_MATCH, NO_STATE, NO_STATE));
    c->pattern->start = whole.first;
    return true;
}

/* One allocation: the pattern, its states, four lists of states. */
static berthi_pattern *
alloc_pattern(berth_context *context, size_t length)
{
    const uint64_t states = STATES_PER_BYTE * (uint64_t)length + STATES_MORE;
    /* A state on the stack pushes at most two. */
    const uint64_t stack = 2 * states;
    const uint64_t bytes = sizeof(berthi_pattern) + states * sizeof(pattern_state)
                           + (3 * states + stack) * sizeof(uint32_t);
    berthi_pattern *const made =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, bytes);

    if (made == NULL)
        return NULL;
    made->context = context;
    made->bytes = bytes;
    made->states = (pattern_state *)(made + 1);
    made->now = (uint32_t *)(made->states + states);
    made->later = made->now + states;
    made->marks = made->later + states;
    made->stack = made->marks + states;
    return made;
}

berth_status
berthi_pattern_create(berth_context *context, const char *text, berthi_pattern **out,
                      berth_error *error)
{
    const size_t length = strlen(text);
    berthi_about about = { .tensor = text, .tensor_length = length };
    compiling c = { .text = text, .at = text };
    berthi_pattern *made;

    *out = NULL;
    if (length > BERTHI_PATTERN_LIMIT) {
        about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
        about.expected = BERTHI_PATTERN_LIMIT;
        about.actual = length;
        return berthi_fail(error, BERTH_REASON_RULES, &about,
                           "longer than a pattern may be");
    }
    made = alloc_pattern(context, length);
    if (made == NULL)
        return berthi_fail_memory(error, "reading a pattern");
    c.pattern = made;
    if (!can_compile(&c)) {
        about.has = BERTH_HAS_POSITION;
        about.position = (uint64_t)(c.at - text);
        berthi_pattern_destroy(made);
        return berthi_fail(error, BERTH_REASON_RULES, &about,
                           "no pattern that can be matched here: %s", c.problem);
    }
    *out = made;
    return BERTH_OK;
}

void
berthi_pattern_destroy(berthi_pattern *pattern)
{
    if (pattern != NULL)
        berthi_memory_free(pattern->context, BERTHI_PURPOSE_OBJECT, pattern,
                           pattern->bytes);
}
