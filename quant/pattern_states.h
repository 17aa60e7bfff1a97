/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern_states.h - what a pattern is when it has been compiled. Only for pattern.c, which
 * makes it, and pattern_match.c.
 */
#ifndef BERTH_QUANT_PATTERN_STATES_H
#define BERTH_QUANT_PATTERN_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/pattern.h"

typedef enum pattern_kind {
    STATE_EMPTY, /* on to `next` */
    STATE_SPLIT, /* on to `next` and to `other` */
    STATE_BEGIN, /* on to `next` at the beginning */
    STATE_END,   /* on to `next` at the end */
    STATE_POINT, /* one character: `point` */
    STATE_ANY,   /* one character that is no line break */
    STATE_SET,   /* one character of `set` */
    STATE_MATCH
} pattern_kind;

/* Characters: a bit for each of ASCII, one for all others. */
typedef struct pattern_set {
    uint64_t bits[2];
    bool has_others;
} pattern_set;

typedef struct pattern_state {
    pattern_set set;
    uint32_t point;
    uint32_t next;
    uint32_t other;
    uint8_t kind; /* pattern_kind */
} pattern_state;

struct berthi_pattern {
    berth_context *context;
    uint64_t bytes; /* of this allocation */
    pattern_state *states;
    uint32_t *now;   /* states at this character */
    uint32_t *later; /* at the next one */
    uint32_t *stack; /* still to be followed */
    uint32_t *marks; /* the step in which a state was entered last */
    uint32_t state_count;
    uint32_t start;
};

static inline bool
pattern_set_has(const pattern_set *s, uint32_t point)
{
    if (point >= 128)
        return s->has_others;
    return (s->bits[point / 64] >> point % 64 & 1) != 0;
}

#endif
