/* SPDX-License-Identifier: Apache-2.0 */
/* llama_file.h - token ids and plans from texts, logits into a safetensors file. */
#ifndef BERTH_TOOLS_LLAMA_FILE_H
#define BERTH_TOOLS_LLAMA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"

typedef struct llama_tokens {
    uint32_t *ids;
    uint32_t count;
    uint32_t capacity;
} llama_tokens;

void llama_tokens_free(llama_tokens *tokens);
/* BERTH_ENOMEM. */
berth_status llama_tokens_add(llama_tokens *tokens, uint32_t id, berth_error *error);
/* Whole numbers with commas, blanks, brackets between them. BERTH_EINVAL, BERTH_ENOMEM. */
berth_status llama_tokens_parse(llama_tokens *tokens, const char *text, size_t length,
                                berth_error *error);
/* The same from a file; "-": standard input. Also BERTH_ENOENT, BERTH_EIO. */
berth_status llama_tokens_read(llama_tokens *tokens, const char *path, berth_error *error);

/*
 * All of a file; "-": standard input. free(*out_text); NULL after BERTH_ENOENT, BERTH_EIO,
 * BERTH_ENOMEM.
 */
berth_status llama_file_read(const char *path, char **out_text, size_t *out_length,
                             berth_error *error);

/*
 * A plan from a file; "-": standard input. It may be a pipe, too, which the library takes for no
 * file. Also what berth_plan_open() returns.
 */
berth_status llama_plan_open(berth_context *context, const char *path, berth_plan **out_plan,
                             berth_error *error);

/*
 * Before anything is loaded: BERTH_EINVAL, if `path` is there and may not be replaced, or
 * is a folder; BERTH_ENOENT, BERTH_EIO, BERTH_ENOMEM, if no file can be made there.
 */
berth_status llama_logits_check(const char *path, bool may_overwrite, berth_error *error);

/* What the program reads, by name; NULL: nothing. */
typedef struct llama_inputs {
    const char *model; /* a folder, or a file: its config.json, too, and its index */
    const char *plan;
    const char *tokens;
} llama_inputs;

/* Before anything is opened: BERTH_EINVAL, if `path` is one of them, or the model's config. */
berth_status llama_logits_spare_inputs(const llama_inputs *inputs, const char *path,
                                       berth_error *error);
/* BERTH_EINVAL, if `path` is a file of the model's weights, whether it may be replaced or not. */
berth_status llama_logits_spare(const berth_checkpoint *checkpoint, const char *path,
                                berth_error *error);
/*
 * Writes input_ids [1, count] as I64 and logits [1, count, vocab] as F32 beside `path`,
 * which they replace when they are complete; what is no regular file is written to as it
 * is. BERTH_EINVAL, as above, BERTH_ENOENT, BERTH_EIO, BERTH_ENOMEM.
 */
berth_status llama_logits_write(const char *path, bool may_overwrite, const uint32_t *ids,
                                uint32_t count, const float *logits, uint32_t vocab,
                                berth_error *error);

#endif
