/* SPDX-License-Identifier: Apache-2.0 */
/* llama_embedding.c - see llama_embedding.h. */
#include <stdlib.h>

#include "tools/llama_embedding.h"
#include "tools/llama_error.h"
#include "tools/llama_math.h"
#include "tools/llama_matrix.h"

static berth_status
fail_gone(berth_status status, berth_error *error)
{
    return llama_fail(error, status, NULL, "the embedding cannot be found again");
}

berth_status
llama_embedding_init(llama_embedding *embedding, const llama_run_options *options,
                     uint64_t berth, berth_error *error)
{
    berth_model_tensor tensor;
    berth_tensor stored;
    berth_status status = berth_model_get_tensor(options->model, berth, &tensor);

    *embedding = (llama_embedding){ .options = options, .berth = berth };
    if (status == BERTH_OK)
        status = berth_checkpoint_tensor(options->checkpoint, tensor.tensor, &stored);
    if (status != BERTH_OK)
        return fail_gone(status, error);
    if (tensor.encoding != BERTH_ENCODING_NATIVE || !llama_math_has_dtype(tensor.dtype)
        || !llama_math_has_dtype(stored.dtype))
        return llama_fail(error, BERTH_EUNSUPPORTED, tensor.name,
                          "is an embedding that is no plain numbers");
    embedding->row_bytes =
        (uint64_t)options->config->hidden * berth_dtype_bits(stored.dtype) / 8;
    embedding->row = malloc(options->config->hidden * sizeof(float)); /* whatever the dtype */
    return embedding->row != NULL
               ? BERTH_OK
               : llama_fail(error, BERTH_ENOMEM, NULL, "no memory for a row");
}

void
llama_embedding_free(llama_embedding *embedding)
{
    free(embedding->row);
    *embedding = (llama_embedding){ .options = NULL };
}

berth_status
llama_embedding_find(const llama_embedding *embedding, berth_model_tensor *tensor,
                     bool *out_is_away, berth_error *error)
{
    const berth_model *const model = embedding->options->model;
    berth_status status;

    *out_is_away = false;
    if (berth_model_get_host(model, embedding->berth, tensor) == BERTH_OK)
        return BERTH_OK;
    status = berth_model_get_tensor(model, embedding->berth, tensor);
    if (status != BERTH_OK)
        return fail_gone(status, error);
    *out_is_away = tensor->is_resident != 0;
    return BERTH_OK;
}

static berth_status
gather(const berth_model_tensor *tensor, const uint32_t *tokens, uint32_t count,
       uint64_t hidden, float *out, berth_error *error)
{
    llama_matrix matrix;
    const berth_status status = llama_matrix_take(tensor, &matrix, error);
    const uint64_t bytes = hidden * berth_dtype_bits(tensor->dtype) / 8;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        llama_math_widen(matrix.dtype, (const char *)matrix.codes + tokens[i] * bytes, hidden,
                         out + i * hidden);
    return status;
}

berth_status
llama_embedding_fetch(const llama_embedding *embedding, const uint32_t *tokens,
                      uint32_t count, float *out, berth_error *error)
{
    const llama_run_options *const o = embedding->options;
    const uint64_t hidden = o->config->hidden;
    berth_model_tensor tensor;
    berth_tensor stored;
    berth_status status;

    if (berth_model_get_host(o->model, embedding->berth, &tensor) == BERTH_OK)
        return gather(&tensor, tokens, count, hidden, out, error);
    status = berth_model_get_tensor(o->model, embedding->berth, &tensor);
    if (status == BERTH_OK)
        status = berth_checkpoint_tensor(o->checkpoint, tensor.tensor, &stored);
    if (status != BERTH_OK)
        return fail_gone(status, error);
    for (uint32_t i = 0; i < count; i++, out += hidden) {
        status = berth_checkpoint_read(o->checkpoint, tensor.tensor, tokens[i], 1,
                                       embedding->row, embedding->row_bytes, error);
        if (status != BERTH_OK)
            return status;
        llama_math_widen(stored.dtype, embedding->row, hidden, out);
        if (tensor.dtype != stored.dtype && tensor.dtype != BERTH_F32) {
            llama_math_narrow(tensor.dtype, out, hidden, embedding->row);
            llama_math_widen(tensor.dtype, embedding->row, hidden, out);
        }
    }
    return BERTH_OK;
}
