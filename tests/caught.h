/* SPDX-License-Identifier: Apache-2.0 */
/* caught.h - what a tool is told by its environment and tells on standard error. */
#ifndef BERTH_TESTS_CAUGHT_H
#define BERTH_TESTS_CAUGHT_H

/* Pairs of names and values, ending in NULL; NULL: there are none. */
extern const char *const *caught_variables;

/* The value of one of them, or NULL. */
const char *caught_environment(const char *name);

/* Standard error goes to a file from here on. */
void caught_begin(void);
/* All of it, until the program ends; standard error is as before. */
const char *caught_end(void);

#endif
