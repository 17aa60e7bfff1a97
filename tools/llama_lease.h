/* SPDX-License-Identifier: Apache-2.0 */
/* llama_lease.h - layers of a plan, leased and given back together. */
#ifndef BERTH_TOOLS_LLAMA_LEASE_H
#define BERTH_TOOLS_LLAMA_LEASE_H

#include "loader/berth.h"

/* All layers, or none. */
berth_status llama_lease_acquire(berth_model *model, const uint32_t *layers, uint32_t count,
                                 void *stream, berth_error *error);
/* All; the first failure counts unless something failed `before`, which is returned then. */
berth_status llama_lease_release(berth_model *model, const uint32_t *layers, uint32_t count,
                                 void *stream, berth_status before, berth_error *error);

#endif
