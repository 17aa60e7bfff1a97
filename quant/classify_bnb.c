/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify_bnb.c - weights of bitsandbytes, and the malformed ones that exist.
 *
 *   4-bit       P                                  codes; U8 or another dtype, by bytes
 *               P.absmax                           F32, one a block; doubly quantized: U8
 *               P.quant_map                        F32 [16], the code table
 *               P.nested_absmax                    F32, one for 256 blocks
 *               P.nested_quant_map                 F32 [256], the second level's table
 *               P.quant_state.bitsandbytes__nf4    U8, JSON (state.h); or __fp4
 *   LLM.int8()  M.weight                           I8 [N, K]
 *               M.SCB                              F32 [N], row maxima
 *               M.weight_format                    U8, 0: row after row; may be missing
 */
#include <math.h>
#include <string.h>

#include "kernels/kernel.h"
#include "kernels/tables.h"
#include "quant/classify_walk.h"
#include "quant/format.h"
#include "quant/state.h"

#define MAP_VALUES 16u
#define NESTED_MAP_VALUES 256u

/* A 4-bit weight and everything that may stand beside it. */
typedef struct four_bit {
    berthi_member weight;
    berthi_member state;
    berthi_member absmax;
    berthi_member quant_map;
    berthi_member nested_absmax;
    berthi_member nested_quant_map;
    uint64_t blocks; /* that the state promises */
} four_bit;

static four_bit
find_four_bit(const berthi_walk *walk, const berthi_member *state, berthi_text owner)
{
    const uint32_t near = state->position;
    const four_bit found = {
        .weight = berthi_walk_find(walk, near, owner, ""),
        .state = *state,
        .absmax = berthi_walk_find(walk, near, owner, ".absmax"),
        .quant_map = berthi_walk_find(walk, near, owner, ".quant_map"),
        .nested_absmax = berthi_walk_find(walk, near, owner, ".nested_absmax"),
        .nested_quant_map = berthi_walk_find(walk, near, owner, ".nested_quant_map"),
    };

    return found;
}

static void
claim_four_bit(berthi_walk *walk, const four_bit *w, berthi_group *group)
{
    berthi_walk_group(walk, &w->weight, group);
    berthi_walk_collect(walk, group, &w->absmax);
    berthi_walk_collect(walk, group, &w->nested_absmax);
    berthi_walk_collect(walk, group, &w->nested_quant_map);
    berthi_walk_collect(walk, group, &w->quant_map);
    berthi_walk_collect(walk, group, &w->state);
}

/* ----------------------------------------------------------- 4-bit: checking */

/* False when the tensor is no vector of `count` values of this dtype. */
static bool
is_vector(berthi_walk *walk, const berthi_member *member, int32_t dtype, uint64_t count,
          const char *what)
{
    if (member->tensor.dtype != dtype) {
        berthi_walk_tell_dtype(walk, member, berth_dtype_name(dtype));
        return false;
    }
    if (member->tensor.rank != 1 || member->tensor.elements != count) {
        berthi_walk_tell_mismatch(walk, member, count, member->tensor.elements, what);
        return false;
    }
    return true;
}

/* All companions of a nested or plain state, and none of the other kind. */
static bool
is_complete(berthi_walk *walk, const four_bit *w, bool is_double)
{
    const char *missing = NULL;

    if (!w->absmax.is_there)
        missing = "absmax";
    else if (!w->quant_map.is_there)
        missing = "quant_map";
    else if (is_double && !w->nested_absmax.is_there)
        missing = "nested_absmax";
    else if (is_double && !w->nested_quant_map.is_there)
        missing = "nested_quant_map";
    if (missing != NULL) {
        berthi_walk_tell_missing(walk, &w->weight, missing);
        return false;
    }
    if (!is_double && (w->nested_absmax.is_there || w->nested_quant_map.is_there)) {
        const berthi_member *const extra =
            w->nested_absmax.is_there ? &w->nested_absmax : &w->nested_quant_map;
        const berthi_about about = berthi_walk_about(walk, extra);
        berth_error details;

        berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                    "the quantization state says that nothing is nested");
        berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
        return false;
    }
    return true;
}

/*
 * Saved after inference on AVX512-BF16: absmax as BF16 [K/B, N]. Usable, but
 * its accuracy is lost, so it is a warning.
 */
static bool
is_transposed(berthi_walk *walk, const four_bit *w, const berthi_state *state)
{
    uint64_t shape[BERTH_MAX_RANK];

    if (state->is_double || w->absmax.tensor.dtype != BERTH_BF16
        || w->absmax.tensor.rank != 2 || state->rank != 2)
        return false;
    berthi_walk_shape(walk, &w->absmax, shape);
    return shape[0] == state->shape[1] / state->block_size && shape[1] == state->shape[0]
           && state->shape[1] % state->block_size == 0;
}

static void
warn_transposed(berthi_walk *walk, const berthi_member *absmax)
{
    const berthi_about about = berthi_walk_about(walk, absmax);
    berth_error details;

    berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                "was saved as BF16 and transposed, after inference on a CPU: "
                "the weight has lost accuracy");
    berthi_walk_tell(walk, BERTH_SEVERITY_WARNING, &about, &details);
}

/* Bytes of any storage dtype that upstream has; the shape does not matter. */
static bool
is_packed(berthi_walk *walk, const berthi_member *weight, uint64_t elements)
{
    const uint64_t bytes = elements / 2 + elements % 2;

    switch (weight->tensor.dtype) {
    case BERTH_U8:
    case BERTH_I8:
    case BERTH_F16:
    case BERTH_BF16:
    case BERTH_F32:
    case BERTH_F64: break;
    default:
        berthi_walk_tell_dtype(walk, weight, "one that 4-bit codes are stored as");
        return false;
    }
    if (weight->tensor.bytes != bytes) {
        berthi_walk_tell_mismatch(walk, weight, bytes, weight->tensor.bytes,
                                  "bytes of packed codes do not fit the shape");
        return false;
    }
    return true;
}

static bool
is_consistent(berthi_walk *walk, const four_bit *w, const berthi_state *state,
              bool is_absmax_transposed)
{
    const uint64_t groups = berthi_divide_up(w->blocks, BERTHI_DOUBLE_BLOCK);

    if (!is_packed(walk, &w->weight, state->elements)
        || !is_vector(walk, &w->quant_map, BERTH_F32, MAP_VALUES,
                      "values of the code table"))
        return false;
    if (!is_absmax_transposed
        && !is_vector(walk, &w->absmax, state->is_double ? BERTH_U8 : BERTH_F32,
                      w->blocks, "absmax values do not fit shape and block size"))
        return false;
    return !state->is_double
           || (is_vector(walk, &w->nested_absmax, BERTH_F32, groups,
                         "second-level absmax values do not fit the blocks")
               && is_vector(walk, &w->nested_quant_map, BERTH_F32, NESTED_MAP_VALUES,
                            "values of the second-level code table"));
}

/* ------------------------------------------------------------ 4-bit: reading */

/* Parses the blob and compares it with the name it has. */
static bool
has_state(berthi_walk *walk, const berthi_member *member, berth_encoding encoding,
          berthi_state *out)
{
    const berthi_about about = berthi_walk_about(walk, member);
    berth_error details;
    char *text;

    if (member->tensor.dtype != BERTH_U8 || member->tensor.rank != 1) {
        berthi_walk_tell_dtype(walk, member, "a vector of U8");
        return false;
    }
    if (member->tensor.bytes == 0 || member->tensor.bytes > BERTHI_COMPANION_LIMIT) {
        berthi_fail(&details, BERTH_REASON_STATE_JSON, &about,
                    "the quantization state is empty or too large");
        berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
        return false;
    }
    text = berthi_walk_read(walk, member);
    if (text == NULL)
        return false;
    if (berthi_state_parse(text, member->tensor.bytes, &about, out, &details)
        != BERTH_OK) {
        berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
        return false;
    }
    if (out->encoding != (int32_t)encoding) {
        berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                    "its name and its quant_type disagree");
        berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
        return false;
    }
    return true;
}

/* The stored table against the published one; +0 and -0 are the same entry. */
static bool
is_published_map(const char *stored, const uint32_t *published, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, stored + i * sizeof bits, sizeof bits);
        if (bits != published[i] && ((bits | published[i]) << 1) != 0)
            return false;
    }
    return true;
}

/* Decoding uses the published table: a file with another one deserves a word. */
static void
check_map(berthi_walk *walk, const berthi_member *map, berth_encoding encoding)
{
    const uint32_t *const published =
        encoding == BERTH_ENCODING_NF4 ? berthi_nf4_values : berthi_fp4_values;
    const char *const stored = berthi_walk_read(walk, map);

    if (stored != NULL && !is_published_map(stored, published, MAP_VALUES)) {
        const berthi_about about = berthi_walk_about(walk, map);
        berth_error details;

        berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                    "is not the published table of %s, which is the one that decodes",
                    berth_encoding_name((int32_t)encoding));
        berthi_walk_tell(walk, BERTH_SEVERITY_WARNING, &about, &details);
    }
}

static void
note_nested(berthi_walk *walk, const berthi_member *member, const char *what)
{
    const berthi_about about = berthi_walk_about(walk, member);
    berth_error details;

    berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                "%s: it counts, and the weight is encoded anew where it is loaded", what);
    berthi_walk_tell(walk, BERTH_SEVERITY_NOTE, &about, &details);
}

/*
 * True where a second level decodes by something else than what berth writes: the files of
 * old CPU versions have -1 first in its table, those saved after inference on a CPU another
 * dtype. Nothing but codes has a place in memory: who keeps these has to ask.
 */
static bool
is_nested_otherwise(berthi_walk *walk, const four_bit *w, const berthi_state *state)
{
    const bool is_rounded = state->is_double && state->nested_dtype != BERTH_F32;
    const char *stored;
    bool is_published;

    if (!state->is_double)
        return false;
    stored = berthi_walk_read(walk, &w->nested_quant_map);
    if (stored == NULL)
        return false;
    is_published = is_published_map(stored, berthi_signed_map, NESTED_MAP_VALUES);
    if (!is_published)
        note_nested(walk, &w->nested_quant_map, "is not the published second-level table");
    if (is_rounded)
        note_nested(walk, &w->state, "has a nested_dtype that is not float32");
    return is_rounded || !is_published;
}

/* Names below the weight's that no published layout has. */
static void
tell_unknown_children(berthi_walk *walk, const four_bit *w, int step)
{
    const berthi_text owner = berthi_walk_name(&w->weight);

    for (int64_t at = (int64_t)w->state.position + step;
         at >= 0 && at < (int64_t)walk->source->count && !walk->is_stopped; at += step) {
        berthi_member child;

        berthi_walk_get(walk, (uint32_t)at, &child);
        if (child.tensor.name_length <= owner.length
            || memcmp(child.tensor.name, owner.bytes, (size_t)owner.length) != 0
            || child.tensor.name[owner.length] != '.')
            return;
        if (!berthi_walk_is_claimed(walk, child.position)) {
            const berthi_about about = berthi_walk_about(walk, &child);
            berth_error details;

            berthi_fail(&details, BERTH_REASON_COMPANION_UNKNOWN, &about,
                        "no companion of a 4-bit weight is called so");
            berthi_walk_claim(walk, &child);
            berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
        }
    }
}

void
berthi_classify_4bit(berthi_walk *walk, const berthi_member *state, berthi_text owner,
                     berth_encoding encoding)
{
    four_bit w = find_four_bit(walk, state, owner);
    berthi_quantized *record;
    berthi_state parsed;
    berthi_group group;
    bool is_absmax_transposed;
    bool is_otherwise;

    walk->has_4bit = true;
    claim_four_bit(walk, &w, &group);
    if (!w.weight.is_there) {
        berthi_walk_tell_orphan(walk, state, owner, "");
        return;
    }
    if (!has_state(walk, state, encoding, &parsed)
        || !is_complete(walk, &w, parsed.is_double))
        return;
    w.blocks = berthi_divide_up(parsed.elements, parsed.block_size);
    is_absmax_transposed = is_transposed(walk, &w, &parsed);
    if (!is_consistent(walk, &w, &parsed, is_absmax_transposed))
        return;
    if (is_absmax_transposed)
        warn_transposed(walk, &w.absmax);
    check_map(walk, &w.quant_map, encoding);
    is_otherwise = !walk->is_stopped && is_nested_otherwise(walk, &w, &parsed);
    tell_unknown_children(walk, &w, -1);
    tell_unknown_children(walk, &w, +1);
    if (walk->is_stopped)
        return;
    record = berthi_walk_add(walk, &group, encoding, parsed.shape, parsed.rank);
    if (record == NULL)
        return;
    record->method = encoding == BERTH_ENCODING_NF4 ? "bitsandbytes nf4"
                                                    : "bitsandbytes fp4";
    record->dtype = (int16_t)parsed.dtype;
    record->block_size = parsed.block_size;
    record->is_double = parsed.is_double;
    record->nested_dtype = (int16_t)parsed.nested_dtype;
    record->offset = parsed.is_double ? (double)parsed.offset : 0.0;
    record->is_transposed_absmax = is_absmax_transposed;
    record->is_nested_otherwise = is_otherwise;
}

/*
 * One of absmax, quant_map, nested_... that no state has claimed. Beside a
 * weight the state is missing; without one, two of them are no coincidence.
 */
void
berthi_classify_lone_statistic(berthi_walk *walk, const berthi_member *member,
                               berthi_text owner)
{
    const four_bit w = find_four_bit(walk, member, owner);
    const unsigned words = (unsigned)w.absmax.is_there + (unsigned)w.quant_map.is_there
                           + (unsigned)w.nested_absmax.is_there
                           + (unsigned)w.nested_quant_map.is_there;
    berthi_group group;

    if (!w.weight.is_there && words < 2)
        return;
    claim_four_bit(walk, &w, &group);
    if (w.weight.is_there)
        berthi_walk_tell_missing(walk, &w.weight,
                                 "quant_state.bitsandbytes__nf4 or __fp4");
    else
        berthi_walk_tell_orphan(walk, member, owner, "");
}

/* -------------------------------------------------------------- LLM.int8() */

/* How the rows lie: 0 as in memory, others belong to old kernels. */
static const char *const layouts[] = { "bitsandbytes int8", "bitsandbytes int8 (col32)",
                                       "bitsandbytes int8 (col_turing)",
                                       "bitsandbytes int8 (col_ampere)" };

/* The name of the stored layout, that of rows without one; NULL when told. */
static const char *
read_layout(berthi_walk *walk, const berthi_member *format)
{
    const char *byte;
    unsigned layout;

    if (!format->is_there)
        return layouts[0];
    if (format->tensor.dtype != BERTH_U8 || format->tensor.elements != 1) {
        berthi_walk_tell_dtype(walk, format, "one U8");
        return NULL;
    }
    byte = berthi_walk_read(walk, format);
    if (byte == NULL)
        return NULL;
    layout = (unsigned char)*byte;
    if (layout < sizeof layouts / sizeof *layouts)
        return layouts[layout];
    berthi_walk_tell_mismatch(walk, format, 0, layout, "no layout has this number");
    return NULL;
}

static bool
is_int8(berthi_walk *walk, const berthi_member *weight, const berthi_member *scb,
        uint64_t *shape)
{
    if (weight->tensor.dtype != BERTH_I8) {
        berthi_walk_tell_dtype(walk, weight, "I8 as its companion \"SCB\" promises");
        return false;
    }
    if (weight->tensor.rank != 2) {
        berthi_walk_tell_mismatch(walk, weight, 2, weight->tensor.rank,
                                  "rank of an int8 weight");
        return false;
    }
    berthi_walk_shape(walk, weight, shape);
    return is_vector(walk, scb, BERTH_F32, shape[0], "row maxima do not fit the rows");
}

void
berthi_classify_int8(berthi_walk *walk, const berthi_member *scb)
{
    const berthi_text module = berthi_walk_module(scb);
    const berthi_member weight = berthi_walk_find(walk, scb->position, module, "weight");
    const berthi_member format =
        berthi_walk_find(walk, scb->position, module, "weight_format");
    uint64_t shape[BERTH_MAX_RANK];
    berthi_quantized *record;
    berthi_group group;
    const char *layout;
    bool is_rows;

    berthi_walk_group(walk, &weight, &group);
    berthi_walk_collect(walk, &group, scb);
    berthi_walk_collect(walk, &group, &format);
    if (!weight.is_there) {
        berthi_walk_tell_orphan(walk, scb, module, "weight");
        return;
    }
    if (!is_int8(walk, &weight, scb, shape))
        return;
    layout = read_layout(walk, &format);
    if (layout == NULL)
        return;
    is_rows = layout == layouts[0];
    record = berthi_walk_add(walk, &group,
                             is_rows ? BERTH_ENCODING_INT8 : BERTH_ENCODING_FOREIGN,
                             shape, 2);
    if (record == NULL)
        return;
    record->method = layout;
    if (is_rows)
        return;
    walk->foreign++;
    if (walk->foreign_method == NULL)
        walk->foreign_method = layout;
}

/* weight_format that no SCB has claimed. */
void
berthi_classify_lone_format(berthi_walk *walk, const berthi_member *member)
{
    const berthi_text module = berthi_walk_module(member);
    const berthi_member weight =
        berthi_walk_find(walk, member->position, module, "weight");

    if (member->tensor.dtype != BERTH_U8 || member->tensor.elements != 1
        || (weight.is_there && berthi_walk_is_claimed(walk, weight.position)))
        return; /* another layout's, or told already */
    if (weight.is_there)
        berthi_walk_tell_missing(walk, &weight, "SCB");
    else
        berthi_walk_tell_orphan(walk, member, module, "weight");
}
