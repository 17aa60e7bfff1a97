/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_write.h - the text of model.safetensors.index.json.
 *
 * As transformers 5 writes it, byte for byte: two spaces a level, keys in
 * order, everything beyond ASCII escaped, a newline at the end. No I/O; memory
 * does not grow with the number of tensors.
 */
#ifndef BERTH_LOADER_INDEX_WRITE_H
#define BERTH_LOADER_INDEX_WRITE_H

#include <stdint.h>

#include "kernels/base.h"
#include "loader/layout.h"

/*
 * Hands the index of a layout to `put` (NULL: only counts). `parameters` is the
 * number of parameters of the model, as transformers counts them. *out_bytes
 * (may be NULL): size of the text. What `put` returns is returned.
 */
berth_status berthi_index_write(const berthi_layout *layout, uint64_t parameters,
                                berthi_json_put put, void *user, uint64_t *out_bytes,
                                berth_error *error);

#endif
