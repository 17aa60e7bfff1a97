/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_stored.c - see estimate_stored.h; the layouts are those of quant/classify*.c. */
#include "loader/estimate_stored.h"

#include <stdlib.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "quant/stored.h"

#define FP8_BLOCK      128u /* rows and columns, where config.json has no other ones */
#define FP4_GROUP      32u  /* values that share a scale of one byte */
#define BNB_BLOCK_SIZE 64u

/* How the files are quantized, as far as config.json says. */
typedef struct stored_as {
    const berthi_config *config;
    int32_t encoding; /* berth_encoding; NATIVE: in no way that is known here */
} stored_as;

static bool
is_method(const berthi_config *config, const char *name)
{
    return strcmp(config->quant_method, name) == 0;
}

static int32_t
encoding_of(const berthi_config *config)
{
    if (is_method(config, "fp8"))
        return BERTH_ENCODING_FP8_BLOCK;
    if (is_method(config, "mxfp4"))
        return BERTH_ENCODING_MXFP4;
    if (!is_method(config, "bitsandbytes"))
        return BERTH_ENCODING_NATIVE;
    if (config->loads_4bit)
        return strcmp(config->quant_type, "nf4") == 0 ? BERTH_ENCODING_NF4
                                                      : BERTH_ENCODING_FP4;
    return config->loads_8bit ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NATIVE;
}

/* A matrix of one byte a value, with a scale of four for each block, or for all of it. */
static uint64_t
fp8_bytes(const berthi_config *config, const uint64_t shape[2])
{
    const uint64_t rows = config->block_rows > 0 ? config->block_rows : FP8_BLOCK;
    const uint64_t columns = config->block_columns > 0 ? config->block_columns : FP8_BLOCK;
    const uint64_t scales =
        config->has_no_block
            ? 1
            : berthi_times(berthi_divide_up(shape[0], rows), berthi_divide_up(shape[1], columns));

    return berthi_add_capped(berthi_times(shape[0], shape[1]), berthi_times(scales, 4));
}

/* Two values a byte, and a byte for each group of a row. */
static uint64_t
fp4_bytes(const uint64_t shape[2])
{
    return berthi_times(shape[0],
                        berthi_times(berthi_divide_up(shape[1], FP4_GROUP), FP4_GROUP / 2 + 1));
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

    if (weight->rank != 2 || (weight->role != BERTHI_WEIGHT_LINEAR && !is_expert))
        return 0;
    switch (as->encoding) {
    case BERTH_ENCODING_MXFP4: return is_expert ? fp4_bytes(weight->shape) : 0;
    case BERTH_ENCODING_FP8_BLOCK:
        return is_expert && strcmp(as->config->expert_dtype, "fp4") == 0
                   ? fp4_bytes(weight->shape)
                   : fp8_bytes(as->config, weight->shape);
    default:
        return is_expert && !has_linear_experts(as, weight)
                   ? 0
                   : bnb_bytes(as, weight->shape, weight->dtype);
    }
}

void
berthi_shape_take_stored(berth_shape *shape, const berthi_config *config)
{
    const stored_as as = { config, encoding_of(config) };

    if (as.encoding == BERTH_ENCODING_NATIVE)
        return;
    shape->model.knows_stored = true;
    for (uint32_t i = 0; i < shape->model.weight_count; i++) {
        berthi_weight *const weight = &shape->weights[i];

        weight->stored = berthi_times(matrix_bytes(&as, weight),
                                      berthi_max_u64(weight->stack, 1));
    }
}
