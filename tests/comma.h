/* SPDX-License-Identifier: Apache-2.0 */
/* comma.h - a locale that writes one and a half as 1,5. */
#ifndef BERTH_TESTS_COMMA_H
#define BERTH_TESTS_COMMA_H

#include <stdbool.h>

/*
 * Sets it: one that is installed, else one that is compiled with the system's
 * character sets into a temporary folder. False where neither can be had; the
 * locale is then unchanged. End with setlocale(LC_NUMERIC, "C").
 */
bool comma_is_set(void);

#endif
