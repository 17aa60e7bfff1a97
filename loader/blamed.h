/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blamed.h - the whole name that a parser's error shows cut, for who keeps findings by name.
 *
 * While a text is parsed the name lies in it, or in the tables made of it; once a parser has
 * failed it lies at the begin of the text, which outlives the tables.
 */
#ifndef BERTH_LOADER_BLAMED_H
#define BERTH_LOADER_BLAMED_H

#include <stdint.h>

#include "kernels/base.h"

typedef struct berthi_blamed {
    const char *name; /* not ended by a NUL; NULL: none is to blame */
    uint64_t length;
} berthi_blamed;

/* Fails because of the tensor or key that `about` names. */
berth_status berthi_blamed_fail(berthi_blamed *blamed, berth_reason reason,
                                const berthi_about *about, const char *what,
                                berth_error *error);

/* Moves the name to the begin of `text`, before the tables are given up. */
berthi_blamed berthi_blamed_move(berthi_blamed blamed, char *text);

#endif
