/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_stored.c - see estimate_stored.h; the layouts are those of quant/classify*.c. */
#include "loader/estimate_stored.h"

#include <stdlib.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "quant/stored.h"

#define BNB_BLOCK_SIZE 64u

/* How the files are quantized, as far as config.json says. */
typedef struct stored_as {
    const berthi_config *config;
    int32_t encoding; /* berth_encoding of bitsandbytes; NATIVE: as the scheme says */
} stored_as;

static bool
is_method(const berthi_config *config, const char *name)
{
    return strcmp(config->quant_method, name) == 0;
}

static int32_t
encoding_of(const berthi_config *config)
{
    if (!is_method(config, "bitsandbytes"))
        return BERTH_ENCODING_NATIVE;
    if (config->loads_4bit)
        return strcmp(config->quant_type, "nf4") == 0 ? BERTH_ENCODING_NF4
                                                      : BERTH_ENCODING_FP4;
    return config->loads_8bit ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NATIVE;
}

/* Words of codes, `count` to a line. */
static uint64_t
words_bytes(const berthi_scheme *scheme, uint64_t lines, uint64_t count)
{
    const uint64_t words = berthi_divided(berthi_times(count, scheme->bits), scheme->word_bits);

    return berthi_times(lines, berthi_times(words, scheme->word_bits / 8));
}

static uint64_t
scheme_bytes(const berthi_scheme *scheme, const berthi_weight *weight)
{
    const uint64_t rows = weight->shape[0];
    const uint64_t columns = weight->shape[1];
    const uint64_t row_groups = scheme->rows == 0 ? 1 : berthi_divide_up(rows, scheme->rows);
    const uint64_t groups =
        scheme->columns == 0 ? 1 : berthi_divide_up(columns, scheme->columns);
    const uint64_t scale_bytes = scheme->scale_bytes > 0
                                     ? scheme->scale_bytes
                                     : berth_dtype_bits(weight->dtype) / 8;
    uint64_t bytes = scheme->packs_rows ? words_bytes(scheme, columns, rows)
                                        : words_bytes(scheme, rows, columns);

    bytes = berthi_add_capped(
        bytes, berthi_times(berthi_times(row_groups, groups), scale_bytes));
    if (scheme->has_zeros)
        bytes = berthi_add_capped(bytes, words_bytes(scheme, groups, rows));
    if (scheme->has_order)
        bytes = berthi_add_capped(bytes, berthi_times(columns, sizeof(int32_t)));
    return berthi_add_capped(bytes, scheme->fixed_bytes);
}

/* As berth writes it, and bitsandbytes. */
static uint64_t
bnb_bytes(const stored_as *as, const uint64_t shape[2], int32_t dtype)
{
    const berthi_storage storage = { .encoding = as->encoding,
                                     .dtype = dtype,
                                     .storage = BERTH_U8,
                                     .block_size = BNB_BLOCK_SIZE,
                                     .is_double = as->config->uses_double };
    berthi_stored parts[BERTHI_STORED_MAX];
    uint64_t bytes = 0;
    uint32_t count;

    if (berthi_stored_refusal(&storage, shape, 2) != NULL)
        return 0;
    count = berthi_stored_list(&storage, shape, 2, parts);
    for (uint32_t i = 0; i < count; i++)
        bytes = berthi_add_capped(bytes, parts[i].bytes);
    return bytes;
}

/* transformers 5 makes tensors of them, which bitsandbytes leaves as they are. */
static bool
has_linear_experts(const stored_as *as, const berthi_weight *weight)
{
    const char *const version = as->config->transformers_version;

    return weight->stack <= 1
           && (weight->is_apart || version[0] == '\0' || strtoul(version, NULL, 10) < 5);
}

/* Of one matrix; 0: it is stored as the values it has. */
static uint64_t
matrix_bytes(const stored_as *as, const berthi_weight *weight)
{
    const bool is_expert = weight->role == BERTHI_WEIGHT_EXPERT;
    berthi_scheme scheme = as->config->scheme;

    if (weight->rank != 2 || (weight->role != BERTHI_WEIGHT_LINEAR && !is_expert))
        return 0;
    if (as->encoding != BERTH_ENCODING_NATIVE)
        return is_expert && !has_linear_experts(as, weight)
                   ? 0
                   : bnb_bytes(as, weight->shape, weight->dtype);
    if (is_method(as->config, "mxfp4") && !is_expert)
        return 0;
    if (is_method(as->config, "fp8") && is_expert && strcmp(as->config->expert_dtype, "fp4") == 0)
        scheme = berthi_scheme_fp4();
    return scheme_bytes(&scheme, weight);
}

void
berthi_shape_take_stored(berth_shape *shape, const berthi_config *config)
{
    const stored_as as = { config, encoding_of(config) };

    if (as.encoding == BERTH_ENCODING_NATIVE && config->scheme.bits == 0)
        return;
    shape->model.knows_stored = true;
    for (uint32_t i = 0; i < shape->model.weight_count; i++) {
        berthi_weight *const weight = &shape->weights[i];

        weight->stored = berthi_times(matrix_bytes(&as, weight),
                                      berthi_max_u64(weight->stack, 1));
    }
}
