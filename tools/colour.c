/* SPDX-License-Identifier: Apache-2.0 */
/* colour.c - colours only where a person looks at a terminal that has them. */
#define _DEFAULT_SOURCE /* struct winsize */

#include "tools/colour.h"

#include <langinfo.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

unsigned
screen_columns(int fd)
{
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col > 0 ? size.ws_col : 80; /* a terminal that does not know */
}

void
screen_init(screen *s, int fd, screen_environment environment, bool wants_no_colour)
{
    const char *const no_color = environment("NO_COLOR");
    const char *const term = environment("TERM");
    const bool is_dumb = term == NULL || strcmp(term, "dumb") == 0 || term[0] == '\0';

    s->is_terminal = isatty(fd) == 1;
    s->can_redraw = s->is_terminal && !is_dumb;
    s->columns = s->is_terminal ? screen_columns(fd) : 0;
    s->has_unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    s->has_colour = s->can_redraw && !wants_no_colour
                    && (no_color == NULL || no_color[0] == '\0');
}

/* The sixteen colours every terminal has, so that a user's theme applies. */
static const char *const sequences[COLOUR_COUNT] = {
    [COLOUR_NONE] = "",           [COLOUR_HEADING] = "\033[1m",
    [COLOUR_DIM] = "\033[2m",     [COLOUR_ERROR] = "\033[1;31m",
    [COLOUR_WARNING] = "\033[33m", [COLOUR_NOTE] = "\033[36m",
    [COLOUR_GOOD] = "\033[1;32m", [COLOUR_WIDE] = "\033[35m",
    [COLOUR_HALF] = "\033[34m",   [COLOUR_BYTE] = "\033[36m",
    [COLOUR_NIBBLE] = "\033[32m",
};

const char *
colour_begin(const screen *s, colour c)
{
    return s->has_colour ? sequences[c] : "";
}

const char *
colour_end(const screen *s, colour c)
{
    return s->has_colour && c != COLOUR_NONE ? "\033[0m" : "";
}
