/* SPDX-License-Identifier: Apache-2.0 */
/* llama_embedding.h - rows of the embedding as floats, from where they lie. */
#ifndef BERTH_TOOLS_LLAMA_EMBEDDING_H
#define BERTH_TOOLS_LLAMA_EMBEDDING_H

#include <stdbool.h>

#include "tools/llama_run.h"

typedef struct llama_embedding {
    const llama_run_options *options;
    uint64_t berth;
    char *row;          /* as the checkpoint has it */
    uint64_t row_bytes;
} llama_embedding;

/*
 * The options must outlive it. Free it with llama_embedding_free(), also after a failure.
 * BERTH_EUNSUPPORTED: it is encoded, or no numbers; BERTH_ENOMEM.
 */
berth_status llama_embedding_init(llama_embedding *embedding,
                                  const llama_run_options *options, uint64_t berth,
                                  berth_error *error);
void llama_embedding_free(llama_embedding *embedding);

/* True: it lies on the device that computes it, which is not host memory. `tensor` says where. */
berth_status llama_embedding_find(const llama_embedding *embedding,
                                  berth_model_tensor *tensor, bool *out_is_away,
                                  berth_error *error);
/* count x hidden floats: from host memory, or row by row from the files, rounded as planned. */
berth_status llama_embedding_fetch(const llama_embedding *embedding, const uint32_t *tokens,
                                   uint32_t count, float *out, berth_error *error);

#endif
