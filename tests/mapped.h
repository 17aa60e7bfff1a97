/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.h - device maps as text, to compare them and to read them again. */
#ifndef BERTH_TESTS_MAPPED_H
#define BERTH_TESTS_MAPPED_H

#include "placement/device_map.h"
#include "quant/json_text.h"

/* {"model.layers.0": 0, "lm_head": "cpu"}, one line each. */
berth_status mapped_print(const berthi_device_map *map, berthi_json_put put, void *user);

#endif
