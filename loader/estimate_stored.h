/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_stored.h - bytes of weights that are quantized already, where only config.json says
 * so. Only for estimate_api_shape.c.
 */
#ifndef BERTH_LOADER_ESTIMATE_STORED_H
#define BERTH_LOADER_ESTIMATE_STORED_H

#include "loader/estimate_api.h"
#include "quant/config.h"

/*
 * Gives the linear layers of a model without headers the bytes that they have as
 * quantization_config says: those of bitsandbytes, and what quant/scheme.h reads. Lists of
 * modules that are left out are not looked at. Of other methods nothing is known.
 */
void berthi_shape_take_stored(berth_shape *shape, const berthi_config *config);

#endif
