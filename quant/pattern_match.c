/* SPDX-License-Identifier: Apache-2.0 */
/* pattern_match.c - a name is matched by walking all states at once. See pattern_states.h. */
#include "quant/pattern_states.h"

#include <string.h>

#include "kernels/utf8.h"

/* Where in the name a set of states is entered. */
typedef struct spot {
    const char *name;
    uint64_t length;
    uint64_t at;
    uint32_t step; /* for the marks */
} spot;

static bool
is_at_end(const spot *s)
{
    return s->at == s->length || (s->at + 1 == s->length && s->name[s->at] == '\n');
}

/*
 * Enters a state and all that follow without a character; appends those that
 * want one to `list`. True when the match is among them.
 */
static bool
can_reach_match(berthi_pattern *pattern, uint32_t first, const spot *s, uint32_t *list,
                uint32_t *count)
{
    bool is_match = false;
    uint32_t depth = 0;

    pattern->stack[depth++] = first;
    while (depth > 0) {
        const uint32_t index = pattern->stack[--depth];
        const pattern_state *const at = &pattern->states[index];

        if (pattern->marks[index] == s->step)
            continue;
        pattern->marks[index] = s->step;
        switch ((pattern_kind)at->kind) {
        case STATE_SPLIT:
            pattern->stack[depth++] = at->other;
            pattern->stack[depth++] = at->next;
            break;
        case STATE_BEGIN:
            if (s->at == 0)
                pattern->stack[depth++] = at->next;
            break;
        case STATE_END:
            if (is_at_end(s))
                pattern->stack[depth++] = at->next;
            break;
        case STATE_EMPTY: pattern->stack[depth++] = at->next; break;
        case STATE_MATCH: is_match = true; break;
        case STATE_POINT:
        case STATE_ANY:
        case STATE_SET: list[(*count)++] = index; break;
        }
    }
    return is_match;
}

static bool
is_taken(const pattern_state *at, uint32_t point)
{
    if (at->kind == STATE_POINT)
        return at->point == point;
    return at->kind == STATE_ANY ? point != '\n' : pattern_set_has(&at->set, point);
}

/* A match that ends here counts. */
static bool
is_good_end(const spot *s, berthi_pattern_mode mode)
{
    return mode != BERTHI_PATTERN_WHOLE || s->at == s->length || s->name[s->at] == '.'
           || (s->at > 0 && s->name[s->at - 1] == '.');
}

bool
berthi_pattern_is_match(berthi_pattern *pattern, const char *name, uint64_t length,
                        berthi_pattern_mode mode)
{
    spot s = { name, length, 0, 1 };
    uint32_t count = 0;

    memset(pattern->marks, 0, pattern->state_count * sizeof *pattern->marks);
    if (can_reach_match(pattern, pattern->start, &s, pattern->now, &count)
        && is_good_end(&s, mode))
        return true;
    while (s.at < length && (count > 0 || mode == BERTHI_PATTERN_SEARCH)) {
        uint32_t *const now = pattern->now;
        uint32_t point = 0;
        uint32_t later_count = 0;
        bool is_match = false;
        const size_t taken = berthi_utf8_decode((const unsigned char *)name + s.at,
                                                (size_t)(length - s.at), &point);

        if (taken == 0)
            return false;
        s.at += taken;
        s.step++;
        for (uint32_t i = 0; i < count; i++)
            if (is_taken(&pattern->states[now[i]], point))
                is_match |= can_reach_match(pattern, pattern->states[now[i]].next, &s,
                                            pattern->later, &later_count);
        if (mode == BERTHI_PATTERN_SEARCH)
            is_match |= can_reach_match(pattern, pattern->start, &s, pattern->later,
                                        &later_count);
        if (is_match && is_good_end(&s, mode))
            return true;
        pattern->now = pattern->later;
        pattern->later = now;
        count = later_count;
    }
    return false;
}
