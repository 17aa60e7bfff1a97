/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h - how much memory a refused plan says that a tier is short of, for tests. */
#ifndef BERTH_TESTS_CHANGES_H
#define BERTH_TESTS_CHANGES_H

#include <stdbool.h>

#include "loader/berth.h"

/* More than one tier has to grow, and all that do are told. */
bool changes_are_several(const berth_error *error);
/* By how much this one; at least that, because sizes are rounded. 0: it is not named. */
uint64_t changes_of(const berth_error *error, const char *tier);

#endif
