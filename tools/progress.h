/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - how far a job is: one bar, or lines, or objects.
 *
 * On a terminal the last line is a bar; it is cleared before anything else is
 * printed there and at the end. Elsewhere a line every five seconds. All calls
 * may come from several threads.
 */
#ifndef BERTH_TOOLS_PROGRESS_H
#define BERTH_TOOLS_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>

#include "loader/berth.h"
#include "tools/colour.h"

typedef enum progress_mode {
    PROGRESS_AUTO,   /* bar on a terminal, lines elsewhere */
    PROGRESS_ALWAYS, /* a bar everywhere                   */
    PROGRESS_NEVER,
    PROGRESS_JSON    /* an object a line, at every report  */
} progress_mode;
#define PROGRESS_WORDS "auto|always|never|json"

typedef struct progress {
    pthread_mutex_t lock;
    screen screen;
    int fd;
    progress_mode mode;
    bool is_bar;
    bool is_shown;       /* a bar stands on the last line */
    double next_line;    /* seconds since the job's start */
} progress;

/* `s` describes `fd`. Returns false if the system has no lock left. */
bool progress_init(progress *p, int fd, const screen *s, progress_mode mode);
void progress_fini(progress *p);
/* What the job reports. */
void progress_update(progress *p, const berth_progress *report);
/* The last report: clears the bar; an object in JSON. */
void progress_end(progress *p, const berth_progress *report);

/* Between the two the terminal belongs to the caller. */
void progress_hide(progress *p);
void progress_show(progress *p);

#endif
