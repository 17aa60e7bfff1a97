/* SPDX-License-Identifier: Apache-2.0 */
/* sim_printed.h - the way back of berthi_sim_words_parse(), to compare what was read. */
#ifndef BERTH_TESTS_SIM_PRINTED_H
#define BERTH_TESTS_SIM_PRINTED_H

#include <stddef.h>

#include "kernels/sim_words.h"

/* Of the longest words that are printed, with their NUL. */
#define SIM_WORDS_CAPACITY (BERTHI_DEVICES_LIMIT * 464u)

/*
 * Words that parse to the same, every key given. At most `capacity` bytes with their
 * NUL; returns the length that all of it needs without it.
 */
size_t sim_words_print(const berthi_sim_words *words, char *text, size_t capacity);

#endif
