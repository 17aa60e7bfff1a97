/* SPDX-License-Identifier: Apache-2.0 */
/* colour.h - what a descriptor can show: colours, characters, columns. */
#ifndef BERTH_TOOLS_COLOUR_H
#define BERTH_TOOLS_COLOUR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct screen {
    bool is_terminal;
    bool can_redraw;  /* a terminal that is not dumb: a line can be cleared */
    bool has_colour;  /* a terminal that is not dumb, and nobody asked for none */
    bool has_unicode; /* the locale's characters are UTF-8 */
    unsigned columns; /* of a terminal; 0: no limit */
} screen;

/* Words for what a colour means, so that the choice of colours is made once. */
typedef enum colour {
    COLOUR_NONE,
    COLOUR_HEADING,
    COLOUR_DIM,
    COLOUR_ERROR,
    COLOUR_WARNING,
    COLOUR_NOTE,
    COLOUR_GOOD,
    COLOUR_WIDE,   /* 32-bit and larger values */
    COLOUR_HALF,   /* 16-bit values            */
    COLOUR_BYTE,   /* 8-bit values             */
    COLOUR_NIBBLE, /* below 8 bits             */
    COLOUR_COUNT
} colour;

typedef const char *(*screen_environment)(const char *name);

/* `environment` answers NO_COLOR and TERM. */
void screen_init(screen *s, int fd, screen_environment environment, bool wants_no_colour);

/* Columns of the terminal now: it may have been resized. 0: no limit. */
unsigned screen_columns(int fd);

/* The sequences that begin and end a colour; "" where colours are off. */
const char *colour_begin(const screen *s, colour c);
const char *colour_end(const screen *s, colour c);

#endif
