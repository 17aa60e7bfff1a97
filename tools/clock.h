/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - how long something takes. */
#ifndef BERTH_TOOLS_CLOCK_H
#define BERTH_TOOLS_CLOCK_H

/* From some moment on that stays the same; nobody sets this clock. */
double clock_seconds(void);

#endif
