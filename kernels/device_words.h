/* SPDX-License-Identifier: Apache-2.0 */
/* device_words.h - what the words of all kinds of devices have in common. */
#ifndef BERTH_KERNELS_DEVICE_WORDS_H
#define BERTH_KERNELS_DEVICE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_DEVICES_LIMIT 64u

/* "" is 1, "*4" is 4, up to BERTHI_DEVICES_LIMIT; false for everything else. */
bool berthi_words_can_count(const char *text, size_t length, uint32_t *out);

/* ARGUMENT: "these words" `problem`. */
berth_status berthi_words_refuse(berth_error *error, const char *words, size_t length,
                                 const char *problem);

#endif
