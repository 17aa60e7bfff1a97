/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passed.h - passes over a loaded model: every layer is leased, and its tensors are
 * looked at when and where the layer is computed.
 */
#ifndef BERTH_TESTS_PASSED_H
#define BERTH_TESTS_PASSED_H

#include <stdint.h>

#include "tests/loaded.h"

/*
 * All layers in their order, some times: what lies there has the digest of its berth.
 * Returns how many tensors were looked at in a pass.
 */
uint64_t passed(loaded *l, uint32_t passes);

#endif
