/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_types.c - types of weights and caches, parts, places: their words. */
#include <string.h>

#include "placement/estimate_lines.h"
#include "quant/format.h"

static const char *const type_names[] = {
#define TYPE_NAME(identifier, word) word,
    BERTHI_TYPES(TYPE_NAME)
#undef TYPE_NAME
};

static const char *const cache_names[] = {
#define CACHE_NAME(identifier, word) word,
    BERTHI_CACHE_TYPES(CACHE_NAME)
#undef CACHE_NAME
};

static const char *const part_keys[] = {
#define PART_KEY(identifier, key, words) key,
    BERTHI_PARTS(PART_KEY)
#undef PART_KEY
};

static const char *const part_names[] = {
#define PART_NAME(identifier, key, words) words,
    BERTHI_PARTS(PART_NAME)
#undef PART_NAME
};

static const char *const basis_names[] = { "exact", "formula", "measured", "estimate" };

#define COUNT(names) ((int32_t)(sizeof names / sizeof *names))

static const char *
name_of(const char *const *names, int32_t count, int32_t number)
{
    return number >= 0 && number < count ? names[number] : "unknown";
}

static int32_t
find(const char *const *names, int32_t count, const char *word)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

const char *
berthi_type_name(int32_t type)
{
    return name_of(type_names, COUNT(type_names), type);
}

const char *
berthi_cache_type_name(int32_t type)
{
    return name_of(cache_names, COUNT(cache_names), type);
}

const char *
berthi_part_key(int32_t part)
{
    return name_of(part_keys, COUNT(part_keys), part);
}

const char *
berthi_part_name(int32_t part)
{
    return name_of(part_names, COUNT(part_names), part);
}

const char *
berthi_basis_name(int32_t basis)
{
    return name_of(basis_names, COUNT(basis_names), basis);
}

int32_t
berthi_type_find(const char *word)
{
    switch (berthi_format_dtype_word(word)) {
    case BERTH_F32: return BERTHI_TYPE_F32;
    case BERTH_BF16: return BERTHI_TYPE_BF16;
    case BERTH_F16: return BERTHI_TYPE_F16;
    default: return find(type_names, COUNT(type_names), word);
    }
}

int32_t
berthi_cache_type_find(const char *word)
{
    switch (berthi_format_dtype_word(word)) {
    case BERTH_F32: return BERTHI_CACHE_F32;
    case BERTH_BF16: return BERTHI_CACHE_BF16;
    case BERTH_F16: return BERTHI_CACHE_F16;
    default: break;
    }
    return strcmp(word, "e4m3") == 0 ? BERTHI_CACHE_FP8
                                     : find(cache_names, COUNT(cache_names), word);
}

bool
berthi_type_is_quantized(int32_t type)
{
    return type >= BERTHI_TYPE_INT8 && type < BERTHI_TYPE_COUNT;
}

uint64_t
berthi_dtype_bytes(int32_t dtype)
{
    switch (dtype) {
    case BERTH_F32:
    case BERTH_BF16:
    case BERTH_F16: return berthi_format_element_bytes(dtype);
    default: return 0;
    }
}

const char *
berthi_dtype_word(int32_t dtype)
{
    switch (dtype) {
    case BERTH_F32: return "f32";
    case BERTH_F16: return "f16";
    default: return "bf16";
    }
}
