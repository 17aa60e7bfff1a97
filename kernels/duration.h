/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h - times in words: "10us". */
#ifndef BERTH_KERNELS_DURATION_H
#define BERTH_KERNELS_DURATION_H

#include <stdbool.h>
#include <stdint.h>

/* Digits and one of ns, us, ms, s behind them; nothing else, and at most `limit_ns`. */
bool berthi_duration_can_parse(const char *text, uint64_t limit_ns, uint64_t *out_ns);

#endif
