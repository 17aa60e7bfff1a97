/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described.h - models laid out by tests: what must hold of each of them, and
 * descriptions that stand in no catalogue but a test's own.
 */
#ifndef BERTH_TESTS_DESCRIBED_H
#define BERTH_TESTS_DESCRIBED_H

#include "quant/architecture.h"
#include "tests/models.h"

/* A model in lines; see models.h. */
model described_read(berth_context *context, const char *text);

/* Whatever the model: each tensor is in one place, and found there. */
void described_check(const berthi_architecture *a, const model *m);
/* What the model calls a tensor of the checkpoint; `out` has 256 bytes. */
const char *described_name(const berthi_architecture *a, const model *m, const char *name,
                           char *out);
const berthi_parameter *described_find(const berthi_architecture *a, const char *name);

/* A description of class X, and a model of it; ended in any case. */
berth_status described_lay_out(berth_context *context, const char *description,
                               const char *lines, model *m, berthi_catalogue **catalogue,
                               berthi_architecture **out, berth_error *error);
void described_end(berth_context *context, model *m, berthi_catalogue *catalogue,
                   berthi_architecture *a);

#endif
