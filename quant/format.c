/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - names, bits and exact sizes; see format.h. */
#include "quant/format.h"

#include <string.h>

#include "kernels/kernel.h"

#define BLOCK_SIZE_MIN 32u
#define BLOCK_SIZE_MAX 4096u
#define F32_BYTES 4u
#define QUANT_MAP_BYTES (16u * F32_BYTES)
#define NESTED_QUANT_MAP_BYTES (256u * F32_BYTES)

typedef struct dtype_row {
    const char *name;
    const char *torch; /* NULL: torch has none */
    uint32_t length;   /* of `name` */
    uint32_t bits;
} dtype_row;

/* Names and bits come from the public list; torch's names stand beside it. */
#define TORCH_U64 "uint64"
#define TORCH_I64 "int64"
#define TORCH_F64 "float64"
#define TORCH_C64 "complex64"
#define TORCH_F32 "float32"
#define TORCH_U32 "uint32"
#define TORCH_I32 "int32"
#define TORCH_BF16 "bfloat16"
#define TORCH_F16 "float16"
#define TORCH_U16 "uint16"
#define TORCH_I16 "int16"
#define TORCH_F8_E5M2FNUZ "float8_e5m2fnuz"
#define TORCH_F8_E4M3FNUZ "float8_e4m3fnuz"
#define TORCH_F8_E8M0 "float8_e8m0fnu"
#define TORCH_F8_E4M3 "float8_e4m3fn"
#define TORCH_F8_E5M2 "float8_e5m2"
#define TORCH_I8 "int8"
#define TORCH_U8 "uint8"
#define TORCH_F6_E3M2 NULL
#define TORCH_F6_E2M3 NULL
#define TORCH_F4 NULL
#define TORCH_BOOL "bool"

static const dtype_row dtypes[BERTH_DTYPE_COUNT] = {
#define DTYPE_ROW(identifier, name, bits) \
    { name, TORCH_##identifier, sizeof name - 1, bits },
    BERTH_DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

typedef struct word_row {
    const char *word;
    int32_t dtype;
} word_row;

static const word_row words[] = {
    { "bf16", BERTH_BF16 },   { "bfloat16", BERTH_BF16 }, { "fp16", BERTH_F16 },
    { "f16", BERTH_F16 },     { "float16", BERTH_F16 },   { "f32", BERTH_F32 },
    { "fp32", BERTH_F32 },    { "float32", BERTH_F32 },
};

static bool
is_word(const char *word, const char *text, uint64_t length)
{
    return word != NULL && strlen(word) == length && memcmp(word, text, length) == 0;
}

/* -------------------------------------------------------------------- names */

static bool
is_dtype(int32_t dtype)
{
    return dtype >= 0 && dtype < BERTH_DTYPE_COUNT;
}

const char *
berth_dtype_name(int32_t dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "unknown";
}

uint32_t
berth_dtype_bits(int32_t dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bits : 0;
}

const char *
berth_encoding_name(int32_t encoding)
{
    switch (encoding) {
    case BERTH_ENCODING_NATIVE: return "native";
    case BERTH_ENCODING_NF4: return "nf4";
    case BERTH_ENCODING_FP4: return "fp4";
    case BERTH_ENCODING_INT8: return "int8";
    case BERTH_ENCODING_FP8_BLOCK: return "fp8";
    case BERTH_ENCODING_FP4_PACKED: return "fp4 packed";
    case BERTH_ENCODING_MXFP4: return "mxfp4";
    case BERTH_ENCODING_FOREIGN: return "foreign";
    case BERTH_ENCODING_STATISTICS: return "statistics";
    default: return "unknown";
    }
}

int32_t
berthi_format_dtype(const char *name, uint64_t length)
{
    /* Most of the same length end in another byte. */
    for (int32_t i = 0; i < BERTH_DTYPE_COUNT; i++)
        if (dtypes[i].length == length && dtypes[i].name[length - 1] == name[length - 1]
            && memcmp(dtypes[i].name, name, length) == 0)
            return i;
    return BERTHI_NO_DTYPE;
}

int32_t
berthi_format_torch_dtype(const char *name, uint64_t length)
{
    for (int32_t i = 0; i < BERTH_DTYPE_COUNT; i++)
        if (is_word(dtypes[i].torch, name, length))
            return i;
    return BERTHI_NO_DTYPE;
}

const char *
berthi_format_torch_name(int32_t dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].torch : NULL;
}

int32_t
berthi_format_dtype_word(const char *word)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0)
            return words[i].dtype;
    return BERTHI_NO_DTYPE;
}

/* -------------------------------------------------------------------- sizes */

bool
berthi_format_can_count(const uint64_t *shape, uint32_t rank, uint64_t *out_elements)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < rank; i++)
        if (!berthi_can_mul(elements, shape[i], &elements))
            return false;
    *out_elements = elements;
    return true;
}

bool
berthi_format_can_size(int32_t dtype, uint64_t elements, uint64_t *out_bytes)
{
    uint64_t bits;

    if (!is_dtype(dtype) || !berthi_can_mul(elements, dtypes[dtype].bits, &bits))
        return false;
    *out_bytes = bits / 8;
    return bits % 8 == 0;
}

const char *
berthi_format_slice(int32_t dtype, const uint64_t *shape, uint32_t rank, uint64_t first,
                    uint64_t count, uint64_t *out_offset, uint64_t *out_bytes)
{
    const uint64_t rows = rank > 0 ? shape[0] : 1;
    uint64_t row_elements = 1;
    uint64_t row_bits;
    uint64_t begin;
    uint64_t bits;

    *out_offset = 0;
    *out_bytes = 0;
    if (first > rows)
        return "begins behind the last row";
    if (count == UINT64_MAX)
        count = rows - first;
    if (count > rows - first)
        return "ends behind the last row";
    if (count == 0) /* also of a tensor whose other dims would overflow */
        return NULL;
    if (rank > 0 && !berthi_format_can_count(shape + 1, rank - 1, &row_elements))
        return "has rows of impossible size";
    if (!berthi_can_mul(row_elements, berth_dtype_bits(dtype), &row_bits)
        || !berthi_can_mul(row_bits, first, &begin)
        || !berthi_can_mul(row_bits, count, &bits))
        return "has rows of impossible size";
    if (begin % 8 != 0)
        return "begins inside a byte";
    if (bits % 8 != 0)
        return "ends inside a byte";
    *out_offset = begin / 8;
    *out_bytes = bits / 8;
    return NULL;
}

bool
berthi_format_is_block_size(uint64_t block_size)
{
    return block_size >= BLOCK_SIZE_MIN && block_size <= BLOCK_SIZE_MAX
           && (block_size & (block_size - 1)) == 0;
}

/* Packed codes, absmax of every block, and what a second level adds. */
static bool
can_plan_4bit(const berthi_format_plan *plan, berthi_format_bytes *out)
{
    if (!berthi_format_is_block_size(plan->block_size))
        return false;
    out->blocks = berthi_divide_up(out->elements, plan->block_size);
    out->packed = berthi_divide_up(out->elements, 2);
    out->absmax = out->blocks;
    out->tables = QUANT_MAP_BYTES;
    if (plan->is_double) {
        /* 256 blocks of 32 elements or more: far from 2^64. */
        out->absmax2 = berthi_divide_up(out->blocks, BERTHI_DOUBLE_BLOCK) * F32_BYTES;
        out->tables += NESTED_QUANT_MAP_BYTES;
    } else {
        out->absmax *= F32_BYTES; /* at least 32 elements a block: no overflow */
    }
    out->state = plan->state_bytes;
    return true;
}

/* One code a value, one F32 a row, and the byte that says how rows lie. */
static bool
can_plan_int8(const uint64_t *shape, uint32_t rank, berthi_format_bytes *out)
{
    if (rank != 2)
        return false;
    out->packed = out->elements;
    out->state = 1;
    return berthi_can_mul(shape[0], F32_BYTES, &out->absmax);
}

bool
berthi_format_can_plan(const berthi_format_plan *plan, const uint64_t *shape,
                       uint32_t rank, berthi_format_bytes *out)
{
    memset(out, 0, sizeof *out);
    if (!berthi_format_can_count(shape, rank, &out->elements))
        return false;
    switch (plan->encoding) {
    case BERTH_ENCODING_NATIVE:
        if (!berthi_format_can_size(plan->dtype, out->elements, &out->packed))
            return false;
        break;
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4:
        if (!can_plan_4bit(plan, out))
            return false;
        break;
    case BERTH_ENCODING_INT8:
        if (!can_plan_int8(shape, rank, out))
            return false;
        break;
    default: return false;
    }
    return berthi_can_add(out->packed, out->absmax, &out->total)
           && berthi_can_add(out->total, out->absmax2, &out->total)
           && berthi_can_add(out->total, out->tables, &out->total)
           && berthi_can_add(out->total, out->state, &out->total);
}
