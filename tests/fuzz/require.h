/* SPDX-License-Identifier: Apache-2.0 */
/* require.h - what holds for all inputs; a target that finds it broken says where, and traps. */
#ifndef BERTH_TESTS_FUZZ_REQUIRE_H
#define BERTH_TESTS_FUZZ_REQUIRE_H

#include <stdio.h>

#define REQUIRE(condition)                                                                \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
            __builtin_trap();                                                             \
        }                                                                                 \
    } while (0)

#endif
