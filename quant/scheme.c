/* SPDX-License-Identifier: Apache-2.0 */
/* scheme.c - see scheme.h. Names and defaults are those of the methods' own configurations. */
#include "quant/scheme.h"

#include <string.h>

#define FP8_BLOCK   128u
#define MX_GROUP    32u /* values that share a power of two      */
#define NV_GROUP    16u /* and those that share an 8-bit float   */
#define GROUP       128u
#define F16_BYTES   2u
#define F32_BYTES   4u
#define SHAPE_BYTES 16u /* weight_shape: two 64-bit integers     */

static const berthi_scheme unknown = { .bits = 0 };

static const char *
text_of(const berthi_json_value *object, const char *member)
{
    const char *text = "";

    (void)berthi_json_can_read_string(berthi_json_get(object, member), &text);
    return text;
}

/* The value of a member that is there, and fits; else `absent`. */
static uint32_t
number_of(const berthi_json_value *object, const char *member, uint32_t absent)
{
    uint64_t number;

    return berthi_json_can_read_unsigned(berthi_json_get(object, member), &number)
                   && number <= UINT32_MAX
               ? (uint32_t)number
               : absent;
}

/* Columns of a group: -1, or null, stands for all of a row. */
static uint32_t
group_of(const berthi_json_value *object, const char *member)
{
    return berthi_json_get(object, member) == NULL ? GROUP : number_of(object, member, 0);
}

static bool
is_false(const berthi_json_value *object, const char *member)
{
    bool is_true;

    return berthi_json_can_read_bool(berthi_json_get(object, member), &is_true) && !is_true;
}

/* [rows, columns] of a block, where these are two numbers. */
static void
take_block(berthi_scheme *scheme, const berthi_json_value *block)
{
    const berthi_json_value *const first = berthi_json_first(block);
    uint64_t rows;
    uint64_t columns;

    if (berthi_json_can_read_unsigned(first, &rows) && rows <= UINT32_MAX
        && berthi_json_can_read_unsigned(berthi_json_next(first), &columns)
        && columns <= UINT32_MAX) {
        scheme->rows = (uint32_t)rows;
        scheme->columns = (uint32_t)columns;
    }
}

/* ------------------------------------------------------------------------- methods */

/* Blocks of weight_block_size, where it is null the whole matrix. */
static berthi_scheme
read_fp8(const berthi_json_value *object)
{
    const berthi_json_value *const block = berthi_json_get(object, "weight_block_size");
    berthi_scheme scheme = { .bits = 8,
                             .word_bits = 8,
                             .rows = FP8_BLOCK,
                             .columns = FP8_BLOCK,
                             .scale_bytes = F32_BYTES };

    if (block != NULL && berthi_json_kind_of(block) != BERTHI_JSON_ARRAY) {
        scheme.rows = 0;
        scheme.columns = 0;
    }
    take_block(&scheme, block);
    return scheme;
}

static berthi_scheme
read_gptq(const berthi_json_value *object)
{
    const uint32_t bits = number_of(object, "bits", 0);

    return (berthi_scheme){ .bits = bits <= 8 ? bits : 0,
                            .word_bits = 32,
                            .rows = 1,
                            .columns = group_of(object, "group_size"),
                            .scale_bytes = F16_BYTES,
                            .has_zeros = true,
                            .has_order = true };
}

/* AutoAWQ's own files have other names than those that transformers writes. */
static berthi_scheme
read_awq(const berthi_json_value *object)
{
    const bool is_own = berthi_json_get(object, "w_bit") != NULL;
    const uint32_t bits = number_of(object, is_own ? "w_bit" : "bits", 4);

    return (berthi_scheme){ .bits = bits <= 8 ? bits : 0,
                            .word_bits = 32,
                            .rows = 1,
                            .columns = group_of(object, is_own ? "q_group_size" : "group_size"),
                            .scale_bytes = F16_BYTES,
                            .packs_rows = true,
                            .has_zeros = true };
}

/* ------------------------------------------------------------- groups of layers */

/* Which values share a scale: "tensor", "channel", "group", "block". */
static void
take_strategy(berthi_scheme *scheme, const berthi_json_value *weights)
{
    const char *const strategy = text_of(weights, "strategy");

    scheme->rows = strcmp(strategy, "tensor") == 0 ? 0 : 1;
    scheme->columns = strcmp(strategy, "tensor") == 0 || strcmp(strategy, "channel") == 0
                          ? 0
                          : number_of(weights, "group_size", 0);
    if (strcmp(strategy, "block") == 0)
        take_block(scheme, berthi_json_get(weights, "block_structure"));
}

/* Whether the file has a scale of what the matrix is multiplied with, too. */
static bool
has_input_scale(const berthi_json_value *group)
{
    const berthi_json_value *const inputs = berthi_json_find(group, "input_activations");
    bool is_dynamic = false;

    (void)berthi_json_can_read_bool(berthi_json_get(inputs, "dynamic"), &is_dynamic);
    return inputs != NULL && !is_dynamic;
}

/*
 * Codes go on in the next word, as present releases have it; earlier ones began one with a whole
 * code, which of 3, 5, 6 and 7 bits takes some per cent more.
 */
static berthi_scheme
make_packed(berthi_scheme scheme, const berthi_json_value *weights)
{
    const char *const order = text_of(weights, "actorder"); /* "weight", "static": there is none */

    scheme.word_bits = 32;
    scheme.fixed_bytes = SHAPE_BYTES;
    scheme.has_zeros = is_false(weights, "symmetric");
    scheme.has_order = strcmp(order, "group") == 0 || strcmp(order, "dynamic") == 0;
    return scheme;
}

/* Of the first group of layers: which are in others only names of modules would tell. */
static berthi_scheme
read_compressed(const berthi_json_value *object)
{
    const berthi_json_value *const group =
        berthi_json_first(berthi_json_get(object, "config_groups"));
    const berthi_json_value *const weights = berthi_json_get(group, "weights");
    const char *const own = text_of(group, "format");
    const char *const format = own[0] != '\0' ? own : text_of(object, "format");
    const uint32_t bits = number_of(weights, "num_bits", 0);
    berthi_scheme scheme = { .bits = bits <= 8 ? bits : 0, .word_bits = 8 };

    take_strategy(&scheme, weights);
    if (strcmp(format, "pack-quantized") == 0)
        return make_packed(scheme, weights);
    if (strcmp(format, "nvfp4-pack-quantized") == 0) {
        scheme.scale_bytes = 1;
        scheme.fixed_bytes = F32_BYTES * (has_input_scale(group) ? 2 : 1);
        return scheme;
    }
    if (strcmp(format, "mxfp4-pack-quantized") == 0) {
        scheme.scale_bytes = 1;
        return scheme;
    }
    return bits == 8 && strstr(format, "-quantized") != NULL ? scheme : unknown;
}

/* ModelOpt: one scale of f32 for a matrix and one for its inputs. */
static berthi_scheme
read_modelopt(const berthi_json_value *object)
{
    const char *const algorithm = text_of(object, "quant_algo");
    berthi_scheme scheme = { .bits = 8, .word_bits = 8, .scale_bytes = F32_BYTES,
                             .fixed_bytes = F32_BYTES };

    if (strcmp(algorithm, "FP8") == 0)
        return scheme;
    if (strcmp(algorithm, "NVFP4") != 0)
        return unknown;
    scheme = (berthi_scheme){ .bits = 4, .word_bits = 8, .rows = 1, .columns = NV_GROUP,
                              .scale_bytes = 1, .fixed_bytes = 2 * F32_BYTES };
    return scheme;
}

/* ------------------------------------------------------------------------- entry */

berthi_scheme
berthi_scheme_fp4(void)
{
    return (berthi_scheme){ .bits = 4, .word_bits = 8, .rows = 1, .columns = MX_GROUP,
                            .scale_bytes = 1 };
}

berthi_scheme
berthi_scheme_read(const berthi_json_value *object, const char *method)
{
    if (strcmp(method, "fp8") == 0)
        return read_fp8(object);
    if (strcmp(method, "mxfp4") == 0)
        return berthi_scheme_fp4();
    if (strcmp(method, "gptq") == 0)
        return read_gptq(object);
    if (strcmp(method, "awq") == 0)
        return read_awq(object);
    if (strcmp(method, "compressed-tensors") == 0)
        return read_compressed(object);
    if (strcmp(method, "modelopt") == 0)
        return read_modelopt(object);
    return unknown;
}
