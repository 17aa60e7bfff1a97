/* SPDX-License-Identifier: Apache-2.0 */
/* llama_lease.c - see llama_lease.h. */
#include "tools/llama_lease.h"

berth_status
llama_lease_acquire(berth_model *model, const uint32_t *layers, uint32_t count,
                    void *stream, berth_error *error)
{
    berth_status status = BERTH_OK;
    uint32_t held = 0;

    while (held < count
           && (status = berth_layer_acquire(model, layers[held], stream, error)) == BERTH_OK)
        held++;
    while (status != BERTH_OK && held > 0)
        berth_layer_release(model, layers[--held], stream, NULL);
    return status;
}

berth_status
llama_lease_release(berth_model *model, const uint32_t *layers, uint32_t count,
                    void *stream, berth_status before, berth_error *error)
{
    for (uint32_t i = count; i-- > 0;) {
        const berth_status status = berth_layer_release(model, layers[i], stream,
                                                        before == BERTH_OK ? error : NULL);

        if (before == BERTH_OK)
            before = status;
    }
    return before;
}
