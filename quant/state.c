/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - the state blob, key by key; see state.h. */
#include "quant/state.h"

#include <string.h>

#include "kernels/float_mode.h"
#include "kernels/kernel.h"
#include "kernels/utf8.h"
#include "quant/format.h"
#include "quant/scan.h"

/* Keys in the order in which upstream writes them; bits of a set. */
enum {
    KEY_QUANT_TYPE = 1u << 0,
    KEY_BLOCKSIZE = 1u << 1,
    KEY_DTYPE = 1u << 2,
    KEY_SHAPE = 1u << 3,
    KEY_NESTED_BLOCKSIZE = 1u << 4,
    KEY_NESTED_DTYPE = 1u << 5,
    KEY_NESTED_OFFSET = 1u << 6,
    KEYS_ALWAYS = 0x0f,
    KEYS_NESTED = 0x70
};

static const char *const key_names[] = {
    "quant_type",       "blocksize",    "dtype",        "shape",
    "nested_blocksize", "nested_dtype", "nested_offset"
};

#define KEY_COUNT (sizeof key_names / sizeof *key_names)

/* The key's bit, or 0. */
static unsigned
key_of(const berthi_scan_text *text)
{
    for (unsigned i = 0; i < KEY_COUNT; i++)
        if (berthi_scan_text_is(text, key_names[i]))
            return 1u << i;
    return 0;
}

/*
 * The readers below return nothing: the scanner keeps the first problem, and
 * after it every call on it fails.
 */

static void
read_quant_type(berthi_scan *scan, berthi_state *out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(scan, &text))
        return;
    if (berthi_scan_text_is(&text, "nf4"))
        out->encoding = BERTH_ENCODING_NF4;
    else if (berthi_scan_text_is(&text, "fp4"))
        out->encoding = BERTH_ENCODING_FP4;
    else
        berthi_scan_refuse(scan, "quant_type is neither nf4 nor fp4");
}

static void
read_block_size(berthi_scan *scan, berthi_state *out)
{
    uint64_t size;

    if (!berthi_scan_can_read_unsigned(scan, &size))
        return;
    if (!berthi_format_is_block_size(size))
        berthi_scan_refuse(scan, "blocksize is no power of two from 32 to 4096");
    out->block_size = (uint32_t)size;
}

/* The name of a dtype that 4-bit values are decoded to. */
static void
read_dtype(berthi_scan *scan, int32_t *out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(scan, &text))
        return;
    *out = berthi_format_torch_dtype(text.bytes, text.length);
    if (*out != BERTH_F16 && *out != BERTH_BF16 && *out != BERTH_F32)
        berthi_scan_refuse(scan, "a dtype is none of float16, bfloat16, float32");
}

static void
read_shape(berthi_scan *scan, berthi_state *out)
{
    berthi_scan_can_enter_array(scan);
    while (berthi_scan_has_next_element(scan)) {
        if (out->rank == BERTH_MAX_RANK)
            berthi_scan_refuse(scan, "shape has more than 64 dims");
        else if (berthi_scan_can_read_unsigned(scan, &out->shape[out->rank]))
            out->rank++;
    }
    if (!berthi_format_can_count(out->shape, out->rank, &out->elements))
        berthi_scan_refuse(scan, "shape has more than 2^64 elements");
}

static void
read_nested_block_size(berthi_scan *scan)
{
    uint64_t size;

    if (berthi_scan_can_read_unsigned(scan, &size) && size != BERTHI_DOUBLE_BLOCK)
        berthi_scan_refuse(scan, "nested_blocksize is not 256");
}

static void
read_offset(berthi_scan *scan, berthi_state *out)
{
    double offset;
    fenv_t mode;

    if (!berthi_scan_can_read_double(scan, &offset))
        return;
    berthi_float_mode_begin(&mode);
    out->offset = (float)offset; /* exact for what upstream writes */
    berthi_float_mode_end(&mode);
}

static void
read_value(berthi_scan *scan, unsigned key, berthi_state *out)
{
    switch (key) {
    case KEY_QUANT_TYPE: read_quant_type(scan, out); break;
    case KEY_BLOCKSIZE: read_block_size(scan, out); break;
    case KEY_DTYPE: read_dtype(scan, &out->dtype); break;
    case KEY_SHAPE: read_shape(scan, out); break;
    case KEY_NESTED_BLOCKSIZE: read_nested_block_size(scan); break;
    case KEY_NESTED_DTYPE: read_dtype(scan, &out->nested_dtype); break;
    case KEY_NESTED_OFFSET: read_offset(scan, out); break;
    default: berthi_scan_refuse(scan, "an unknown key"); break;
    }
}

/* What a finished blob lacks, or NULL. */
static const char *
missing_key(unsigned seen)
{
    const unsigned wanted = seen & KEYS_NESTED ? KEYS_ALWAYS | KEYS_NESTED : KEYS_ALWAYS;

    for (unsigned i = 0; i < KEY_COUNT; i++)
        if (wanted & ~seen & 1u << i)
            return key_names[i];
    return NULL;
}

/* All members; returns the set of their keys. */
static unsigned
read_members(berthi_scan *scan, berthi_state *out)
{
    berthi_scan_text name;
    unsigned seen = 0;

    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &name)) {
        const unsigned key = key_of(&name);

        if (seen & key)
            berthi_scan_refuse(scan, "a key stands twice");
        read_value(scan, key, out);
        seen |= key;
    }
    berthi_scan_can_finish(scan);
    return seen;
}

static berth_status
refuse(berth_error *error, const berthi_about *about, uint64_t position,
       const char *problem, const char *key)
{
    berthi_about where = *about;

    where.has |= BERTH_HAS_POSITION;
    where.position = position;
    return berthi_fail(error, BERTH_REASON_STATE_JSON, &where,
                       "the quantization state is unusable: %s%s", problem, key);
}

/*
 * True where another state begins behind a whole one: transformers 5 saves what it has
 * divided, and each of it quantized, joined again, states too. It does not load that.
 */
static bool
is_joined(const char *text, uint64_t bytes, const berthi_scan *scan)
{
    return scan->depth == 0 && scan->problem_at > 0 && scan->problem_at < bytes
           && text[scan->problem_at] == '{';
}

berth_status
berthi_state_parse(char *text, uint64_t bytes, const berthi_about *about,
                   berthi_state *out, berth_error *error)
{
    const uint64_t well_formed =
        berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    const char *missing;
    unsigned seen;
    berthi_scan scan;

    memset(out, 0, sizeof *out);
    if (well_formed != bytes)
        return refuse(error, about, well_formed, "not UTF-8", "");
    berthi_scan_init(&scan, text, bytes, BERTHI_SCAN_NONFINITE);
    seen = read_members(&scan, out);
    if (scan.problem != NULL && is_joined(text, bytes, &scan))
        return refuse(error, about, scan.problem_at,
                      "those of several weights are joined in it, as transformers saves, and "
                      "does not load, what it divides", "");
    if (scan.problem != NULL)
        return refuse(error, about, scan.problem_at, scan.problem, "");
    missing = missing_key(seen);
    if (missing != NULL)
        return refuse(error, about, bytes, "it lacks ", missing);
    out->is_double = (seen & KEYS_NESTED) != 0;
    return BERTH_OK;
}
