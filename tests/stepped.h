/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepped.h - optimizers of two parameters whose steps are looked at, in tests.
 */
#ifndef BERTH_TESTS_STEPPED_H
#define BERTH_TESTS_STEPPED_H

#include <stdbool.h>

#include "tests/trained.h"

extern const trained_parameter stepped_two[];

extern berth_context *stepped_context;

bool stepped_open_sums(trained *t, const char *machine,
                       const berth_optimizer_options *options, bool has_sums);
bool stepped_open(trained *t, const char *machine,
                  const berth_optimizer_options *options);

/* In another order than the library's: doubles of f32 squares leave room for that. */
double stepped_norm(const trained *t, double scale);

#endif
