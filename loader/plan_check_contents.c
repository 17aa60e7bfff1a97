/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check_contents.c - berths and caches held against the checkpoint's tensors. */
#include <stdio.h>
#include <string.h>

#include "kernels/number.h"
#include "loader/lease.h"
#include "loader/plan_checking.h"
#include "loader/recipe_weight.h"
#include "placement/slab.h"
#include "quant/dequantize.h"
#include "quant/format.h"
#include "quant/stored.h"

static berthi_about
about_weight(const berthi_recipe_weight *weight)
{
    return (berthi_about){ .tensor = weight->name, .tensor_length = weight->name_length };
}

/* ------------------------------------------------------------------------ requirements */

/* As what a berth says that its weight lies there. */
static berthi_storage
storage_of(const checking *c, const berthi_berth *berth)
{
    return (berthi_storage){ .encoding = berth->encoding,
                             .dtype = berth->dtype,
                             .storage = BERTH_U8,
                             .block_size = c->plan->summary.block_size,
                             .is_double = c->plan->summary.double_quant != 0 };
}

/*
 * A load copies what is stored, or decodes it to numbers, which it may encode: to anything else
 * a decoder would write as if it were numbers, whatever room that has. Codes are decoded whole.
 */
static bool
can_make(const checking *c, const berthi_plan_source *source, uint32_t w,
         const berthi_plan_tensor *stored, const berthi_berth *berth)
{
    const berthi_recipe_weight *const weight = &source->recipe.weights[w];
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const int32_t dtype = berthi_recipe_entry(&source->recipe, weight)->dtype;
    const berthi_storage storage = storage_of(c, berth);

    if (berth->encoding == stored->encoding && berth->dtype == stored->dtype)
        return true;
    if (record != NULL ? !berthi_decoder_is_there(record)
                       : !berthi_is_number(dtype)
                             && !berthi_checkpoint_has_small_numbers(source->checkpoint, dtype))
        return false;
    if (record != NULL && stored->slice.along != BERTH_SLICING_NONE
        && berth->encoding != stored->encoding)
        return false;
    return berthi_is_number(berth->dtype)
           && berthi_stored_refusal(&storage, weight->shape, weight->rank) == NULL;
}

/* What a berth has to have, and what has to be beside it while it is filled. */
typedef struct requirement {
    uint64_t bytes;
    uint64_t scratch;
    uint64_t turned; /* in host memory */
} requirement;

/* Of what `stored` is of weight `w`, as its berth says that it is stored. */
static requirement
requirement_of(const checking *c, const berthi_plan_source *source, uint32_t w,
               const berthi_plan_tensor *stored, const berthi_berth *berth)
{
    berthi_recipe_weight weight = source->recipe.weights[w];
    const bool is_stored_slice = stored->slice.along != BERTH_SLICING_NONE
                                 && berthi_recipe_record(&source->recipe, &weight) != NULL;
    const berthi_storage storage = storage_of(c, berth);
    const requirement as_stored = { stored->bytes, stored->scratch, stored->turned };
    requirement encoded = { 0, 0, 0 };
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    uint64_t turned[2];
    uint64_t sliced[BERTH_MAX_RANK];
    uint64_t elements = 1;
    uint32_t count;

    /* Slices of what is stored quantized have one form, whatever the plan is made for. */
    if (is_stored_slice
        || (berth->encoding == stored->encoding && berth->bytes == stored->bytes
            && (berth->encoding != BERTH_ENCODING_NATIVE || berth->dtype == stored->dtype)))
        return as_stored;
    weight.is_turned = berthi_recipe_is_turned(&source->recipe, w, berth->encoding);
    berthi_slice_shape(&stored->slice, berthi_recipe_stored_shape(&weight, turned),
                       weight.rank, sliced);
    if (!berthi_slab_can_list(&storage, sliced, weight.rank, parts, &count, &encoded.bytes))
        return as_stored;
    for (uint32_t i = 0; i < weight.rank; i++)
        elements *= sliced[i];
    encoded.scratch = berthi_slab_scratch(&storage, elements);
    if (weight.is_turned)
        encoded.turned = elements * berthi_format_element_bytes(berth->dtype);
    return encoded;
}

/*
 * A berth that was put on another tier may be the first there that is encoded. Values come to a
 * GPU through the scratch; the host needs it for second levels alone.
 */
static void
check_scratch(checking *c, const berthi_berth *berth, uint64_t scratch, berthi_about *about)
{
    const berth_plan_tier *const tier = &c->plan->tiers[berth->tier];
    const bool is_needed = tier->kind == BERTH_TIER_GPU
                           || (tier->kind == BERTH_TIER_CPU && scratch > BERTHI_SLAB_PIECE);
    berth_error details;

    if (!is_needed || scratch <= tier->scratch)
        return;
    about->has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    about->expected = scratch;
    about->actual = tier->scratch;
    (void)berthi_fail(&details, BERTH_REASON_PLAN_JSON, about,
                      "is encoded on %s, which has not so much scratch", tier->name);
    berthi_checking_tell_error(c, &details);
}

/* Weights of any tier are turned in host memory; without a budget of that nobody planned it. */
static void
check_turned(checking *c)
{
    const uint64_t due = berthi_slab_turned(c->turned_most, c->turned_all);
    berthi_about about = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                           .expected = due };
    berth_error details;

    for (uint32_t t = 0; t < c->plan->summary.tier_count; t++) {
        const berth_plan_tier *const tier = &c->plan->tiers[t];

        if (tier->kind != BERTH_TIER_CPU || due <= tier->turned)
            continue;
        about.actual = tier->turned;
        (void)berthi_fail(&details, BERTH_REASON_PLAN_JSON, &about,
                          "\"turned\" of %s is less than what weights take there that lie "
                          "turned in their encoding", tier->name);
        berthi_checking_tell_error(c, &details);
    }
}

/* The berth's tensor has the name of the weight. */
static bool
has_name_of(const checking *c, const berthi_recipe_weight *weight, uint64_t number,
            char *name, size_t capacity)
{
    const uint64_t length = berthi_plan_name(c->plan, number, name, capacity);

    return length == weight->name_length && length < capacity
           && memcmp(name, weight->name, length) == 0;
}

/* What of a weight a berth says that it holds. */
typedef struct part {
    uint32_t first;            /* of the weight's tensors */
    uint32_t count;            /* of them: one, or all of a stack that is whole */
    berthi_plan_tensor tensor; /* as it should be */
} part;

/* A stack may stay whole where others are taken apart. */
static part
find_part(const checking *c, const berthi_plan_source *source, uint32_t w, uint64_t number)
{
    const berthi_slice slice = berthi_plan_slice(c->plan, number);
    const uint32_t count = berthi_plan_tensor_count(source, w);
    part p = { .count = 1 };

    if (slice.first < count)
        p.first = (uint32_t)slice.first;
    p.tensor = source->tensors[berthi_plan_tensor_of(source, w, p.first)];
    if (count == 1 || slice.along != BERTH_SLICING_NONE)
        return p;
    p.count = count;
    p.tensor.slice = slice;
    berthi_plan_measure(source, w, &p.tensor);
    return p;
}

/* No other berth has any of it; now this one has. */
static bool
can_take(const berthi_plan_source *source, uint32_t w, const part *p, uint64_t number,
         uint32_t *berth_of)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t tensor = berthi_plan_tensor_of(source, w, p->first + i);

        if (berth_of[tensor] != BERTHI_NO_BERTH)
            return false;
        berth_of[tensor] = (uint32_t)number;
    }
    return true;
}

/* The plan's slice is the one that the model is cut into. */
static bool
is_slice_of(const checking *c, const berthi_plan_tensor *tensor, uint64_t number)
{
    const berthi_slice found = berthi_plan_slice(c->plan, number);

    return berthi_slice_is_same(&found, &tensor->slice);
}

static void
check_part(checking *c, const berthi_plan_source *source, uint32_t w, uint64_t number,
           const berthi_plan_tensor *tensor)
{
    const berthi_berth *const berth = &c->plan->berths[number];
    berthi_about about = about_weight(&source->recipe.weights[w]);
    requirement due;

    if (!is_slice_of(c, tensor, number)) {
        berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about,
                             c->plan->summary.ranks > 1
                                 ? "has a berth for another slice than its rank has"
                                 : "has a berth for another part of it than the model has");
        return;
    }
    if (berth->is_tied)
        return;
    if (!can_make(c, source, w, tensor, berth)) {
        berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about,
                             "has a berth for an encoding or a dtype that it cannot be loaded as");
        return;
    }
    due = requirement_of(c, source, w, tensor, berth);
    if (due.bytes == berth->bytes) {
        check_scratch(c, berth, due.scratch, &about);
        c->turned_most = berthi_max_u64(c->turned_most, due.turned);
        c->turned_all = berthi_add_capped(c->turned_all, due.turned);
        return;
    }
    about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    about.expected = due.bytes;
    about.actual = berth->bytes;
    berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about,
                         "has a berth of another size");
}

static void
check_berths(checking *c, const berthi_plan_source *source, const uint32_t *weight_of,
             uint32_t *berth_of)
{
    const berth_plan *const plan = c->plan;
    const uint64_t entries = source->checkpoint->table.entry_count;
    char name[4096];

    for (uint64_t i = 0; i < plan->summary.berth_count; i++) {
        const berthi_berth *const berth = &plan->berths[i];
        const uint32_t w = berth->number < entries ? weight_of[berth->number] : UINT32_MAX;
        part p;

        if (w != UINT32_MAX
            && has_name_of(c, &source->recipe.weights[w], i, name, sizeof name)) {
            p = find_part(c, source, w, i);
            if (can_take(source, w, &p, i, berth_of)) {
                check_part(c, source, w, i, &p.tensor);
                continue;
            }
        }
        (void)berthi_plan_name(plan, i, name, sizeof name);
        berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT,
                             &(berthi_about){ .tensor = name, .tensor_length = strlen(name) },
                             "is not the tensor that the plan gives a berth");
    }
}

/* The whole of the weight, or a matrix of the rank beside one of its dims. */
static bool
is_parameter_of(const checking *c, const berthi_plan_source *source, uint32_t w,
                const berthi_trained *trained)
{
    const berthi_recipe_weight *const weight = &source->recipe.weights[w];
    const bool has_inputs_first = berthi_recipe_has_inputs_first(&source->recipe, w);
    const uint64_t rank = c->plan->training->about.rank;
    const bool is_a = trained->part == BERTHI_TRAINED_LORA_A;
    const uint64_t inner = is_a ? trained->rows : trained->columns;
    const uint64_t outer = is_a ? trained->columns : trained->rows;

    if (trained->part == BERTHI_TRAINED_WHOLE)
        return trained->rows * trained->columns == weight->elements
               && trained->dtype == c->plan->berths[trained->berth].dtype;
    return weight->rank == 2 && inner == rank
           && outer == weight->shape[is_a != has_inputs_first ? 1 : 0];
}

/* Berths are of these weights. */
static void
check_parameters(checking *c, const berthi_plan_source *source, const uint32_t *weight_of)
{
    const berthi_plan_training *const training = c->plan->training;

    for (uint64_t i = 0; training != NULL && i < training->about.parameter_count; i++) {
        const berthi_trained *const trained = &training->trained[i];
        const uint32_t w = weight_of[c->plan->berths[trained->berth].number];
        const berthi_about about = about_weight(&source->recipe.weights[w]);

        if (!is_parameter_of(c, source, w, trained))
            berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about,
                                 "has a parameter of another shape or dtype");
    }
}

/* What is tied is not loaded: it has to be in the place of what it shares its bytes with. */
static bool
is_place_of(const checking *c, const berthi_plan_tensor *tensor, uint32_t berth,
            const uint32_t *berth_of)
{
    const uint32_t other = tensor->tie != BERTHI_NO_TIE ? berth_of[tensor->tie] : BERTHI_NO_BERTH;
    const berthi_berth *const berths = c->plan->berths;

    return !berths[berth].is_tied
           || (other != BERTHI_NO_BERTH && !berths[other].is_tied
               && berths[berth].tier == berths[other].tier
               && berths[berth].offset == berths[other].offset
               && berths[berth].bytes == berths[other].bytes);
}

/* Berths of other tensors than embeddings, beyond what their layer says that it brings. */
static uint64_t
count_left_out(const checking *c, const berthi_plan_source *source, uint32_t layer,
               uint64_t rows, const uint32_t *tensor_of)
{
    const berth_plan_layer *const about = &c->plan->layers[layer].out;
    uint64_t bytes = 0;

    for (uint64_t i = about->first_berth; i < about->first_berth + about->berth_count; i++) {
        const berthi_berth *const berth = &c->plan->berths[i];

        if (!berth->is_resident && !berth->is_expert && !berth->is_tied && berth->offset >= rows
            && source->tensors[tensor_of[i]].kind != BERTHI_PIECE_IDLE)
            bytes += berth->bytes;
    }
    return bytes;
}

/*
 * A layer of which berths were put elsewhere brings more than the plan was made for: more than
 * its link_bytes would be taken for rows, which nobody brings, and a slot has to have the room.
 */
static void
check_stream(checking *c, const berthi_plan_source *source, uint32_t layer,
             const uint32_t *tensor_of)
{
    const berth_plan_layer *const about = &c->plan->layers[layer].out;
    const berth_plan_tier *const home = &c->plan->tiers[about->home];
    const uint64_t room = home->slot_count > 0 ? home->slot_bytes : 0;
    uint64_t rows;
    const uint64_t brought = berthi_lease_unit_bytes(c->plan, layer, &rows);
    const uint64_t left_out = count_left_out(c, source, layer, rows, tensor_of);
    berthi_about where = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                           .expected = brought + left_out,
                           .actual = left_out > 0 ? about->link_bytes : room };
    char message[BERTH_MESSAGE_CAPACITY];

    if (left_out == 0 && brought <= room)
        return;
    /* Of the other errors of a plan the name is a tensor's. */
    snprintf(message, sizeof message,
             left_out > 0 ? "layer \"%s\" has other link_bytes than what of it lies elsewhere"
                          : "layer \"%s\" has no slot on its home for what is brought of it",
             about->name);
    berthi_checking_tell(c, BERTH_REASON_PLAN_JSON, &where, message);
}

static berth_status
check_streams(checking *c, const berthi_plan_source *source, berthi_arena *arena,
              const uint32_t *berth_of)
{
    uint32_t *const tensor_of = berthi_arena_alloc(
        arena, (c->plan->summary.berth_count + 1) * sizeof *tensor_of, 4);

    if (tensor_of == NULL)
        return berthi_fail_memory(c->error, "checking a plan");
    for (uint32_t i = 0; i < source->input.tensor_count; i++)
        tensor_of[berth_of[i]] = i;
    for (uint32_t l = 0; l < c->plan->summary.layer_count; l++)
        check_stream(c, source, l, tensor_of);
    return BERTH_OK;
}

/* Every tensor has one berth, and that is as large as the tensor in its encoding. */
static berth_status
check_tensors(checking *c, berthi_plan_source *source)
{
    const uint64_t entries = source->checkpoint->table.entry_count;
    const uint32_t count = source->recipe.weight_count;
    const uint32_t tensors = source->input.tensor_count;
    uint32_t *const weight_of =
        berthi_arena_alloc(&source->arena, (entries + 1) * sizeof *weight_of, 4);
    uint32_t *const berth_of = berthi_arena_alloc(
        &source->arena, (tensors + UINT64_C(1)) * sizeof *berth_of, 4);

    if (weight_of == NULL || berth_of == NULL)
        return berthi_fail_memory(c->error, "checking a plan");
    memset(weight_of, 0xFF, (entries + 1) * sizeof *weight_of);
    memset(berth_of, 0xFF, (tensors + UINT64_C(1)) * sizeof *berth_of);
    for (uint32_t i = 0; i < count; i++)
        weight_of[source->recipe.weights[i].tensor] = i;
    check_berths(c, source, weight_of, berth_of);
    check_turned(c);
    for (uint32_t i = 0; i < tensors; i++) {
        const berthi_plan_tensor *const tensor = &source->tensors[i];
        const berthi_about about = { .tensor = tensor->name,
                                     .tensor_length = tensor->name_length };

        if (berth_of[i] == BERTHI_NO_BERTH)
            berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about, "has no berth");
        else if (!is_place_of(c, tensor, berth_of[i], berth_of))
            berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT, &about,
                                 "shares a berth in the plan, and not so in the model");
    }
    if (c->status == BERTH_OK)
        check_parameters(c, source, weight_of);
    return c->status == BERTH_OK ? check_streams(c, source, &source->arena, berth_of) : BERTH_OK;
}

/*
 * Caches have to be as large as the checkpoint's shape says for the plan's context and batch: one
 * that was edited has no room in caches that were not. Plans for training keep something else
 * there.
 */
static void
check_caches(checking *c, const berthi_plan_source *source)
{
    uint64_t due = 0;
    uint64_t kept = 0;

    for (uint32_t l = 0; l < source->input.layer_count; l++)
        due = berthi_add_capped(due, source->layers[l].cache);
    for (uint32_t l = 0; l < c->plan->summary.layer_count; l++)
        kept = berthi_add_capped(kept, c->plan->layers[l].out.cache_bytes);
    if (c->plan->training != NULL || due == 0 || due == kept)
        return;
    berthi_checking_tell(c, BERTH_REASON_PLAN_CHECKPOINT,
                         &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                                 | BERTH_HAS_BYTES,
                                          .expected = due,
                                          .actual = kept },
                         "the KV caches of the plan are not those of its context and batch");
}

/* All but budgets, of a plan that has the checkpoint's digest. */
berth_status
berthi_checking_contents(checking *c, berthi_plan_source *source)
{
    const berth_status status = check_tensors(c, source);

    if (status == BERTH_OK)
        check_caches(c, source);
    return status;
}
