/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - plans as berth.h has them: made, asked, given back. */
#include <stdio.h>
#include <string.h>

#include "kernels/number.h"
#include "loader/plan_input.h"
#include "quant/format.h"

/* ----------------------------------------------------------------------- options */

static berth_status
check_type(const berth_plan_options *options, berth_error *error)
{
    const int32_t type = options->type;

    if (type < BERTH_ENCODING_NATIVE || type > BERTH_ENCODING_INT8)
        return berthi_fail_argument(error, "type", "is none of native, nf4, fp4 and int8");
    if (options->block_size != 0 && !berthi_format_is_block_size(options->block_size))
        return berthi_fail_argument(error, "block_size",
                                    "is no power of two from 32 to 4096");
    if (options->double_quant != 0 && type != BERTH_ENCODING_NF4
        && type != BERTH_ENCODING_FP4)
        return berthi_fail_argument(error, "double_quant", "is for nf4 and fp4");
    if (options->dtype >= 0 && !berthi_is_number(options->dtype))
        return berthi_fail_argument(error, "dtype", "is none of bf16, f16 and f32");
    return BERTH_OK;
}

static bool
is_of_caches(int32_t dtype)
{
    return berthi_is_number(dtype) || dtype == BERTH_F8_E4M3
           || dtype == BERTH_F8_E5M2;
}

static berth_status
check_texts(const berth_plan_options *options, berth_error *error)
{
    if (!berthi_texts_are_there(options->pins, options->pin_count))
        return berthi_fail_argument(error, "pins", "is NULL, or has a NULL");
    if (!berthi_texts_are_there(options->keep, options->keep_count))
        return berthi_fail_argument(error, "keep", "is NULL, or has a NULL");
    if (!berthi_texts_are_there(options->only, options->only_count))
        return berthi_fail_argument(error, "only", "is NULL, or has a NULL");
    if (!berthi_texts_are_there(options->skip_modules, options->skip_count))
        return berthi_fail_argument(error, "skip_modules", "is NULL, or has a NULL");
    return BERTH_OK;
}

/* States of training are in no map. */
static berth_status
check_mapped(const berth_plan_options *options, berth_error *error)
{
    if (options->pin_count > 0)
        return berthi_fail_argument(error, "pins",
                                    "are for berth's own planner: put them into the map");
    if (options->reserve != NULL)
        return berthi_fail_argument(error, "reserve",
                                    "is for berth's own planner: a map is followed to the brim");
    if (options->no_offload != 0 && options->train == NULL)
        return berthi_fail_argument(error, "no_offload",
                                    "is for berth's own planner: a map says what is offloaded");
    return BERTH_OK;
}

static berth_status
check_use(const berth_plan_options *options, berth_error *error)
{
    if (options->slots > BERTHI_STREAM_SLOTS_MAX)
        return berthi_fail_argument(error, "slots", "is none of 1 to 8");
    if (options->cache_dtype >= 0 && !is_of_caches(options->cache_dtype))
        return berthi_fail_argument(error, "cache_dtype",
                                    "is none of bf16, f16, f32, f8_e4m3 and f8_e5m2");
    if (options->reserve_share != BERTH_RESERVE_NONE
        && options->reserve_share > BERTHI_WHOLE)
        return berthi_fail_argument(error, "reserve_share", "is more than all");
    if (options->expert_hits != BERTH_HITS_NONE
        && options->expert_hits > BERTHI_WHOLE)
        return berthi_fail_argument(error, "expert_hits", "is more than all");
    if (options->mode != NULL && options->device_map != NULL)
        return berthi_fail_argument(error, "mode", "and a device map exclude each other");
    if (options->mode != NULL || options->device_map != NULL) {
        const berth_status status = check_mapped(options, error);

        if (status != BERTH_OK)
            return status;
    }
    if (options->rank > 0 && options->rank >= options->ranks)
        return berthi_fail_argument(error, "rank", "is not below ranks");
    if (options->ranks > 1 && options->mode != NULL)
        return berthi_fail_argument(error, "mode", "is for whole models, not for a rank");
    if (options->stacks < BERTH_STACKS_AUTO || options->stacks > BERTH_STACKS_APART)
        return berthi_fail_argument(error, "stacks", "is none of auto, whole and apart");
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- map */

/* Where most of a layer lies, rows of embeddings included. */
static uint32_t
tier_of_layer(const berth_plan *plan, uint32_t layer)
{
    const berth_plan_layer *const out = &plan->layers[layer].out;
    uint64_t bytes[BERTHI_TIER_LIMIT] = { 0 };
    uint32_t most = out->home;

    for (uint64_t i = 0; i < out->berth_count; i++) {
        const berthi_berth *const berth = &plan->berths[out->first_berth + i];

        bytes[berth->tier] += berth->bytes;
        if (bytes[berth->tier] > bytes[most])
            most = berth->tier;
    }
    return most;
}

typedef struct placed {
    const berthi_plan_source *source;
    uint32_t *tiers; /* of layers */
} placed;

static berthi_tier
tier_of(void *user, const berthi_parameter *what)
{
    const placed *const p = user;
    uint32_t tier = 0;

    if (what->first_piece != BERTHI_NO_POSITION) {
        const uint32_t tensor = p->source->tensor_of[what->first_piece];

        tier = p->tiers[p->source->tensors[tensor].layer];
    } else if (what->tie != NULL && what->tie->first_piece != BERTHI_NO_POSITION) {
        return tier_of(user, what->tie);
    }
    return p->source->tiers[tier].tier;
}

static berth_status
copy_map(berth_plan *plan, const berthi_plan_source *source,
         const berthi_device_map *map, berth_error *error)
{
    plan->map = berthi_arena_alloc(&plan->arena, (map->count + UINT64_C(1)) * sizeof *plan->map,
                                   8);
    if (plan->map == NULL)
        return berthi_fail_memory(error, "the device map");
    for (uint32_t i = 0; i < map->count; i++) {
        const berthi_map_line *const line = &map->lines[i];
        const char *const path =
            berthi_arena_text(&plan->arena, line->path, line->path_length);

        if (path == NULL)
            return berthi_fail_memory(error, "the device map");
        plan->map[i] = (berth_map_line){ .path = path,
                                         .tier = berthi_plan_find_tier(source,
                                                                       &line->tier) };
    }
    plan->summary.map_count = map->count;
    return BERTH_OK;
}

static berth_status
make_map(berth_plan *plan, berthi_plan_source *source, berth_error *error)
{
    const uint32_t layers = plan->summary.layer_count;
    placed p = { .source = source };
    berthi_device_map map;
    berth_status status;

    if (source->has_map)
        return copy_map(plan, source, &source->map, error);
    p.tiers = berthi_arena_alloc(&source->arena, layers * sizeof *p.tiers, 4);
    if (p.tiers == NULL)
        return berthi_fail_memory(error, "the device map");
    for (uint32_t l = 0; l < layers; l++)
        p.tiers[l] = tier_of_layer(plan, l);
    status = berthi_device_map_clean(source->context, source->recipe.architecture, tier_of,
                                     &p, &map, error);
    if (status == BERTH_OK)
        status = copy_map(plan, source, &map, error);
    berthi_device_map_fini(&map);
    return status;
}

/* -------------------------------------------------------------------------- make */

/* A map that is followed may ask for more than there is: said, not refused. */
static void
tell_missing(const berth_plan_options *options, const berth_plan *plan)
{
    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        const berth_plan_tier *const tier = &plan->tiers[t];
        const uint64_t taken = berthi_plan_taken(tier);
        char size[32];

        if (tier->budget == UINT64_MAX || taken <= tier->budget)
            continue;
        (void)berth_size_format(taken - tier->budget, size);
        berthi_plan_warn(options, BERTH_REASON_NO_FIT,
                         "the map asks for %s more than %s has", size, tier->name);
    }
}

/* A stack of experts, whole, that is not on the device that computes it. */
static bool
has_stacks_away(const berthi_plan_source *source, const berth_plan *plan)
{
    for (uint64_t i = 0; i < plan->berth_count; i++)
        if (source->tensors[i].reads == BERTHI_READS_EXPERTS
            && !plan->berths[i].is_resident)
            return true;
    return false;
}

/* *out_is_away: there are stacks that might better be taken apart. */
static berth_status
make(berth_context *context, const berth_checkpoint *checkpoint,
     const berth_plan_options *options, berth_plan **out_plan, bool *out_is_away,
     berthi_plan_lacks *lacks, berth_error *error)
{
    berthi_plan_source source;
    berth_plan *plan = NULL;
    berth_status status;

    *out_plan = NULL;
    *out_is_away = false;
    lacks->count = 0;
    status = berthi_plan_source_init(&source, context, checkpoint, options, error);
    if (status != BERTH_OK)
        return status;
    source.input.lacks = lacks;
    status = berthi_plan_make(context, &source.input, &plan, error);
    if (status == BERTH_OK)
        status = make_map(plan, &source, error);
    if (source.input.stacked_count > 0 && options->ranks <= 1)
        *out_is_away = status == BERTH_ENOFIT
                       || (status == BERTH_OK && has_stacks_away(&source, plan));
    berthi_plan_source_fini(&source);
    if (status == BERTH_OK)
        *out_plan = plan;
    else
        berthi_plan_free(plan);
    return status;
}

/* Both are refusals for want of room: is `a` short of less than `b`? */
static bool
is_smaller_change(const berth_error *a, const berth_error *b)
{
    return (a->has & b->has & BERTH_HAS_EXPECTED) != 0
           && a->expected - a->actual < b->expected - b->actual;
}

/*
 * Whole stacks were planned, or did not fit: takes them apart where that is better. Which it is
 * does not depend on how much memory there is for planning.
 */
static berth_status
take_apart(berth_context *context, const berth_checkpoint *checkpoint,
           const berth_plan_options *options, berth_status status, berth_plan **plan,
           berthi_plan_lacks *lacks, berth_error *error)
{
    berth_plan_options mine = *options;
    berthi_plan_lacks others;
    berth_plan *apart;
    berth_error why;
    bool is_away;
    berth_status other;

    mine.stacks = BERTH_STACKS_APART;
    mine.finding = NULL; /* told already */
    other = make(context, checkpoint, &mine, &apart, &is_away, &others, &why);
    if (other == BERTH_ENOFIT && status == BERTH_OK)
        return BERTH_OK;
    if (other != BERTH_OK) {
        if (other != BERTH_ENOFIT || is_smaller_change(&why, error)) {
            *error = why;
            *lacks = others;
        }
        berthi_plan_free(*plan);
        *plan = NULL;
        return other;
    }
    if (status == BERTH_OK && (*plan)->summary.seconds <= apart->summary.seconds) {
        berthi_plan_free(apart);
        return BERTH_OK;
    }
    berthi_plan_free(*plan);
    *plan = apart;
    berthi_error_clear(error);
    return BERTH_OK;
}

/* The message of the error has them all, for people; programs get one finding each. */
static void
tell_lacks(const berth_plan_options *options, const berthi_plan_lacks *lacks)
{
    for (uint32_t i = 0; options->finding != NULL && i < lacks->count; i++) {
        const uint64_t budget = lacks->at[i].budget;
        char name[BERTHI_TIER_NAME];
        char size[32];
        berth_error details;
        berth_finding finding = { .severity = BERTH_SEVERITY_ERROR, .details = &details };

        finding.name = berthi_tier_name(&lacks->at[i].tier, name);
        finding.name_length = strlen(name);
        berthi_plan_raise_format(lacks->at[i].raise, size);
        (void)berthi_fail(&details, BERTH_REASON_NO_FIT,
                          &(berthi_about){ .tensor = name,
                                           .tensor_length = strlen(name),
                                           .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                                  | BERTH_HAS_BYTES,
                                           .expected = berthi_add_capped(
                                               budget, lacks->at[i].raise),
                                           .actual = budget },
                          "is short of %s, whatever the others get", size);
        options->finding(options->finding_user, &finding);
    }
}

berth_status
berth_plan_create(berth_context *context, const berth_checkpoint *checkpoint,
                  const berth_plan_options *options, berth_plan **out_plan,
                  berth_error *error)
{
    berth_plan_options defaults;
    berth_plan_options mine;
    berthi_plan_lacks lacks;
    berth_error ignored;
    berth_status status;
    bool is_away;

    if (error == NULL)
        error = &ignored; /* what is short decides which refusal is told */
    berthi_error_clear(error);
    if (out_plan == NULL)
        return berthi_fail_argument(error, "out_plan", "is NULL");
    *out_plan = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    berth_plan_options_init(&defaults);
    status = berthi_options_take(&mine, sizeof mine, offsetof(berth_plan_options, reserved),
                                 options != NULL ? options : &defaults, "options", error);
    if (mine.batch == 0)
        mine.batch = 1;
    if (status == BERTH_OK)
        status = check_type(&mine, error);
    if (status == BERTH_OK)
        status = check_texts(&mine, error);
    if (status == BERTH_OK)
        status = check_use(&mine, error);
    if (status == BERTH_OK && mine.train != NULL)
        status = berthi_plan_check_training(&mine, error);
    if (status != BERTH_OK)
        return status;
    status = make(context, checkpoint, &mine, out_plan, &is_away, &lacks, error);
    if (is_away && mine.stacks == BERTH_STACKS_AUTO)
        status = take_apart(context, checkpoint, &mine, status, out_plan, &lacks, error);
    if (status == BERTH_ENOFIT)
        tell_lacks(&mine, &lacks);
    if (status == BERTH_OK && (mine.mode != NULL || mine.device_map != NULL))
        tell_missing(&mine, *out_plan);
    return status;
}

void
berth_plan_destroy(berth_plan *plan)
{
    berthi_plan_free(plan);
}

/* ----------------------------------------------------------------------- answers */

void
berth_plan_get(const berth_plan *plan, berth_plan_summary *summary)
{
    *summary = plan->summary;
}

berth_status
berth_plan_get_tier(const berth_plan *plan, uint32_t tier, berth_plan_tier *out)
{
    memset(out, 0, sizeof *out);
    if (tier >= plan->summary.tier_count)
        return BERTH_EINVAL;
    *out = plan->tiers[tier];
    return BERTH_OK;
}

berth_status
berth_plan_get_layer(const berth_plan *plan, uint32_t layer, berth_plan_layer *out)
{
    memset(out, 0, sizeof *out);
    if (layer >= plan->summary.layer_count)
        return BERTH_EINVAL;
    *out = plan->layers[layer].out;
    return BERTH_OK;
}

berth_status
berth_plan_get_map(const berth_plan *plan, uint32_t line, berth_map_line *out)
{
    memset(out, 0, sizeof *out);
    if (line >= plan->summary.map_count)
        return BERTH_EINVAL;
    *out = plan->map[line];
    return BERTH_OK;
}

berth_status
berth_plan_get_berth(const berth_plan *plan, uint64_t berth, berth_berth *out, char *name,
                     size_t capacity)
{
    const berthi_berth *b;
    berthi_slice slice;

    memset(out, 0, sizeof *out);
    if (berth >= plan->summary.berth_count)
        return BERTH_EINVAL;
    b = &plan->berths[berth];
    slice = berthi_plan_slice(plan, berth);
    *out = (berth_berth){ .layer = b->layer,
                          .tier = b->tier,
                          .offset = b->offset,
                          .bytes = b->bytes,
                          .tensor = b->number,
                          .encoding = b->encoding,
                          .dtype = b->dtype,
                          .is_expert = b->is_expert,
                          .along = slice.along,
                          .first = slice.first,
                          .count = slice.count,
                          .parts = slice.parts };
    if (name != NULL)
        (void)berthi_plan_name(plan, berth, name, capacity);
    return BERTH_OK;
}

berth_status
berth_plan_explain(const berth_plan *plan, uint32_t layer, char *text, size_t capacity)
{
    if (layer >= plan->summary.layer_count)
        return BERTH_EINVAL;
    berthi_plan_explain(plan, layer, text, capacity);
    return BERTH_OK;
}
