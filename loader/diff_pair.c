/* SPDX-License-Identifier: Apache-2.0 */
/* diff_pair.c - which weights belong together, and how each pair is cut. */
#include <string.h>

#include "kernels/base.h"
#include "loader/diff.h"
#include "loader/safetensors.h"
#include "loader/sort.h"
#include "quant/format.h"
#include "quant/stored.h"

/* Decoded at once: the largest experts of gpt-oss, and rows of anything. */
#define VALUES_MAX (UINT64_C(1) << 24)
#define BYTES_UNIT (UINT64_C(4) << 20)

/* --------------------------------------------------------------------- order */

static int
compare_names(const berthi_recipe_weight *a, const berthi_recipe_weight *b)
{
    return berthi_name_compare(a->name, a->name_length, b->name, b->name_length);
}

static int
compare_weights(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const berthi_recipe *const recipe = user;

    (void)shared;
    return compare_names(&recipe->weights[a], &recipe->weights[b]);
}

/* The recipes' order is that of stored names, MXFP4's with their suffix. */
berth_status
berthi_diff_sort(berthi_diff *diff, berth_error *error)
{
    for (uint32_t side = 0; side < 2; side++) {
        berthi_recipe *const recipe = &diff->recipes[side];
        const uint32_t count = recipe->weight_count;

        diff->order[side] = berthi_memory_array(diff->context, BERTHI_PURPOSE_TENSORS,
                                                count, sizeof *diff->order[side]);
        if (diff->order[side] == NULL)
            return berthi_fail_memory(error, "the list of weights");
        berthi_sort_number(diff->order[side], count);
        if (!berthi_sort_arrange(diff->context, diff->order[side], count,
                                 compare_weights, recipe))
            return berthi_fail_memory(error, "the list of weights");
    }
    return BERTH_OK;
}

/* --------------------------------------------------------------------- sides */

static void
describe_side(const berthi_diff *diff, uint32_t number, berthi_diff_side *side)
{
    const berth_checkpoint *const c = diff->checkpoints[number];
    const berthi_recipe_weight *const weight = side->weight;

    if (weight == NULL)
        return;
    side->entry = &c->table.entries[weight->tensor];
    if (weight->record != BERTHI_NO_RECORD)
        side->record = berthi_classify_record(&c->quantized, weight->record);
    side->file = side->entry->shard + (number == 0 ? 0 : diff->checkpoints[0]->shard_count);
    side->offset = berthi_checkpoint_offset(c, side->entry);
}

/* Of a shard by itself: the scales of small numbers may lie in another one. */
static bool
may_be_codes(const berthi_diff *diff, uint32_t number, const berthi_diff_side *side)
{
    return diff->checkpoints[number]->is_in_pieces
           && berth_dtype_bits(side->entry->dtype) <= 8;
}

static bool
can_decode(const berthi_diff *diff, uint32_t number, berthi_diff_side *side)
{
    if (side->record != NULL)
        return berthi_decoder_can_init(&side->decoder, &diff->operations, side->record);
    if (may_be_codes(diff, number, side))
        return false;
    if (!berthi_decoder_can_init_native(&side->decoder, side->entry->dtype,
                                        side->weight->elements))
        return false;
    side->decoder.operations = &diff->operations;
    return true;
}

static int32_t
encoding_of(const berthi_diff_side *side)
{
    return side->record != NULL ? side->record->encoding : BERTH_ENCODING_NATIVE;
}

static bool
is_bitsandbytes(const berthi_diff_side *side)
{
    const int32_t encoding = encoding_of(side);

    return berthi_format_is_4bit(encoding) || encoding == BERTH_ENCODING_INT8;
}

/* Both of bitsandbytes lie the same way, whatever their models say of Conv1D. */
static bool
is_turned(const berthi_diff_pair *pair)
{
    const berthi_diff_side *const sides = pair->sides;

    return sides[0].weight->is_turned != sides[1].weight->is_turned
           && !(is_bitsandbytes(&sides[0]) && is_bitsandbytes(&sides[1]));
}

static bool
is_same_shape(const berthi_diff_pair *pair, bool turned)
{
    const berthi_recipe_weight *const a = pair->sides[0].weight;
    const berthi_recipe_weight *const b = pair->sides[1].weight;

    if (a->rank != b->rank || a->elements != b->elements)
        return false;
    if (turned)
        return a->rank == 2 && a->shape[0] == b->shape[1] && a->shape[1] == b->shape[0];
    return a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* ------------------------------------------------------------------- cutting */

/* True when a unit's values are decoded all at once, and moved on the way. */
static bool
is_stepped(const berthi_diff_side *side)
{
    return berthi_decoder_step(&side->decoder) > 1;
}

static berth_status
fail_cut(const berthi_diff *diff, const berthi_diff_pair *pair, berth_error *error)
{
    const uint32_t side = pair->leader;
    const berthi_diff_side *const it = &pair->sides[side];
    const berthi_about about = {
        .file = diff->files[it->file].path,
        .tensor = it->weight->name,
        .tensor_length = it->weight->name_length,
    };

    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "has no pieces of at most %u million values that can be "
                       "compared by themselves",
                       (unsigned)(VALUES_MAX >> 20));
}

/* `step` values are decoded together: whole experts, or rows of the leader. */
static void
cut(berthi_diff_pair *pair, uint64_t step, uint64_t unit)
{
    if (step > 0 && pair->elements > 0)
        pair->unit = berthi_max_u64(unit / step, 1) * step;
    pair->unit = berthi_min_u64(pair->unit, pair->elements);
    if (pair->unit > 0)
        pair->unit_count = berthi_divide_up(pair->elements, pair->unit);
}

static berth_status
cut_values(const berthi_diff *diff, berthi_diff_pair *pair, bool turned,
           berth_error *error)
{
    berthi_diff_side *const sides = pair->sides;
    uint64_t step;

    pair->elements = sides[0].weight->elements;
    if (turned) {
        pair->mode = BERTHI_DIFF_TURNED;
        pair->leader = sides[0].weight->is_turned ? 1 : 0;
        step = sides[pair->leader].weight->shape[1];
    } else {
        pair->leader = is_stepped(&sides[0]) ? 0 : 1;
        step = berthi_decoder_step(&sides[pair->leader].decoder);
        pair->mode = is_stepped(&sides[0]) != is_stepped(&sides[1]) ? BERTHI_DIFF_LED
                                                                    : BERTHI_DIFF_PAIRED;
    }
    cut(pair, step, BERTHI_DIFF_UNIT);
    if (pair->unit > VALUES_MAX
        || berthi_decoder_lead_max(&sides[0].decoder) > VALUES_MAX
        || berthi_decoder_lead_max(&sides[1].decoder) > VALUES_MAX)
        return fail_cut(diff, pair, error);
    return BERTH_OK;
}

/* What nobody decodes has nothing in common but its bytes, where there are as many. */
static bool
is_stored_alike(const berthi_diff_pair *pair)
{
    const berthi_entry *const a = pair->sides[0].entry;
    const berthi_entry *const b = pair->sides[1].entry;

    return pair->has_codes && a->dtype == b->dtype && a->end - a->begin == b->end - b->begin;
}

static berth_status
describe_pair(const berthi_diff *diff, berthi_diff_pair *pair, berth_error *error)
{
    berthi_diff_side *const sides = pair->sides;
    const int32_t encoding = encoding_of(&sides[0]);
    const bool turned = is_turned(pair);
    const bool can_decode_both =
        can_decode(diff, 0, &sides[0]) && can_decode(diff, 1, &sides[1]);

    if (!is_same_shape(pair, turned)) {
        pair->kind = BERTH_DIFF_SHAPE;
        return BERTH_OK;
    }
    pair->has_codes = encoding == encoding_of(&sides[1])
                      && (encoding != BERTH_ENCODING_NATIVE
                          || sides[0].entry->dtype == sides[1].entry->dtype);
    if (can_decode_both)
        return cut_values(diff, pair, turned, error);
    if (!is_stored_alike(pair)) {
        pair->kind = BERTH_DIFF_DTYPE;
        return BERTH_OK;
    }
    pair->mode = BERTHI_DIFF_BYTES;
    pair->elements = sides[0].entry->end - sides[0].entry->begin;
    cut(pair, berthi_diff_has_sixes(pair) ? 3 : 1, BYTES_UNIT);
    return BERTH_OK;
}

bool
berthi_diff_has_sixes(const berthi_diff_pair *pair)
{
    return pair->mode == BERTHI_DIFF_BYTES
           && berth_dtype_bits(pair->sides[0].entry->dtype) == 6;
}

static const berthi_recipe_weight *
weight_at(const berthi_diff *diff, const berthi_diff_cursor *cursor, uint32_t side)
{
    const berthi_recipe *const recipe = &diff->recipes[side];

    return cursor->at[side] < recipe->weight_count
               ? &recipe->weights[diff->order[side][cursor->at[side]]]
               : NULL;
}

berth_status
berthi_diff_next(const berthi_diff *diff, berthi_diff_cursor *cursor,
                 berthi_diff_pair *out, bool *out_has, berth_error *error)
{
    const berthi_recipe_weight *const a = weight_at(diff, cursor, 0);
    const berthi_recipe_weight *const b = weight_at(diff, cursor, 1);
    int order = a == NULL ? 1 : -1;

    memset(out, 0, sizeof *out);
    *out_has = a != NULL || b != NULL;
    if (!*out_has)
        return BERTH_OK;
    if (a != NULL && b != NULL)
        order = compare_names(a, b);
    out->sides[0].weight = order <= 0 ? a : NULL;
    out->sides[1].weight = order >= 0 ? b : NULL;
    for (uint32_t side = 0; side < 2; side++) {
        cursor->at[side] += out->sides[side].weight != NULL ? 1 : 0;
        describe_side(diff, side, &out->sides[side]);
    }
    if (order == 0)
        return describe_pair(diff, out, error);
    out->kind = order < 0 ? BERTH_DIFF_ONLY_A : BERTH_DIFF_ONLY_B;
    return BERTH_OK;
}

/* --------------------------------------------------------------------- units */

berthi_decoder_span
berthi_diff_extent(const berthi_diff_pair *pair, uint32_t side, uint64_t first,
                   uint64_t count)
{
    if (pair->mode == BERTHI_DIFF_BYTES)
        return (berthi_decoder_span){ .begin = first, .bytes = count };
    return berthi_decoder_extent(&pair->sides[side].decoder, first, count);
}

bool
berthi_diff_is_carried(const berthi_diff_pair *pair, uint32_t side)
{
    return pair->mode == BERTHI_DIFF_BYTES || pair->mode == BERTHI_DIFF_PAIRED
           || side == pair->leader;
}

uint64_t
berthi_diff_unit_elements(const berthi_diff_pair *pair, uint64_t number)
{
    return berthi_min_u64(pair->unit, pair->elements - number * pair->unit);
}

static void
widen(uint64_t *need, uint64_t to)
{
    *need = berthi_max_u64(*need, to);
}

/* The other side's values, put where the leader has them. */
static void
add_turned_needs(const berthi_diff_pair *pair, berthi_diff_needs *needs)
{
    const uint32_t other = 1 - pair->leader;
    const uint64_t columns = pair->sides[pair->leader].weight->shape[1];
    const uint64_t rows = pair->unit / berthi_max_u64(columns, 1);

    widen(&needs->whole[other], pair->unit);
    widen(&needs->strip, pair->unit);
    widen(&needs->row, rows + berthi_decoder_lead_max(&pair->sides[other].decoder));
    widen(&needs->raw, rows * sizeof(float) + sizeof(float));
}

void
berthi_diff_add_needs(const berthi_diff_pair *pair, berthi_diff_needs *needs)
{
    for (uint32_t side = 0; side < 2; side++) {
        const berthi_decoder *const decoder = &pair->sides[side].decoder;
        const uint64_t lead = pair->mode == BERTHI_DIFF_BYTES
                                  ? 0
                                  : berthi_decoder_lead_max(decoder);
        /* A stretch that begins inside a group of values takes its lead, too. */
        const uint64_t bytes = berthi_diff_extent(pair, side, 0, pair->unit).bytes + lead;

        if (!berthi_diff_is_carried(pair, side)) {
            widen(&needs->raw, BERTHI_DIFF_UNIT * sizeof(float) + lead);
            continue;
        }
        widen(&needs->chunk, bytes);
        if (pair->mode == BERTHI_DIFF_BYTES || pair->mode == BERTHI_DIFF_PAIRED)
            widen(&needs->parked, bytes);
        if (pair->mode == BERTHI_DIFF_BYTES)
            continue;
        widen(&needs->tile, BERTHI_DIFF_TILE + lead);
        if (is_stepped(&pair->sides[side]))
            widen(&needs->whole[side], pair->unit);
    }
    if (pair->mode == BERTHI_DIFF_TURNED)
        add_turned_needs(pair, needs);
    else if (pair->mode == BERTHI_DIFF_LED)
        widen(&needs->tile, BERTHI_DIFF_TILE
                                + berthi_decoder_lead_max(
                                    &pair->sides[1 - pair->leader].decoder));
}
