/* SPDX-License-Identifier: Apache-2.0 */
/* imitate.c - the order of things, refusals and remarks; see imitate.h. */
#include "placement/imitate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/imitate_walk.h"

/* ----------------------------------------------------------------------- words */

const char *
berthi_plan_mode_name(berthi_plan_mode mode)
{
    switch (mode) {
#define MODE_NAME(identifier, word)                                                        \
    case BERTHI_PLAN_MODE_##identifier: return word;
        BERTHI_PLAN_MODES(MODE_NAME)
#undef MODE_NAME
    case BERTHI_PLAN_MODE_COUNT: break;
    }
    return "";
}

bool
berthi_plan_mode_can_parse(const char *word, berthi_plan_mode *out)
{
    for (int mode = 0; mode < BERTHI_PLAN_MODE_COUNT; mode++)
        if (strcmp(berthi_plan_mode_name((berthi_plan_mode)mode), word) == 0) {
            *out = (berthi_plan_mode)mode;
            return true;
        }
    return false;
}

/* --------------------------------------------------------------------- planning */

/* The disk takes what nothing else does; a budget for it is not asked. */
static void
add_disk(berthi_budgets *budgets)
{
    const berthi_budget disk = { BERTHI_BUDGET_DISK, 0, 0 };

    berthi_budgets_can_add(budgets, &disk); /* false: it is there */
}

static bool
can_alloc_walk(berthi_imitate_walk *walk, berthi_arena *arena)
{
    const uint64_t count = walk->tree->count;
    const uint64_t members = walk->tree->member_count;

    walk->states = berthi_arena_alloc(arena, (count + 1) * sizeof *walk->states, 8);
    walk->partners = berthi_arena_alloc(arena, members * sizeof *walk->partners, 4);
    walk->entries = berthi_arena_alloc(arena, members * sizeof *walk->entries, 4);
    if (walk->options->has_fallback)
        walk->stack = berthi_arena_alloc(arena, count * sizeof *walk->stack, 4);
    if (walk->states == NULL || walk->partners == NULL || walk->entries == NULL
        || (walk->options->has_fallback && walk->stack == NULL))
        return false;
    memset(walk->states, 0, (size_t)(count + 1) * sizeof *walk->states);
    for (uint64_t i = 0; i < count; i++)
        walk->states[i].device = BERTHI_NO_PLACE;
    return true;
}

/*
 * bitsandbytes wants no weight on cpu or disk, unless all are on cpu. 4.x
 * makes an exception for modules that it does not quantize. BERTHI_NO_NODE:
 * nothing is refused.
 */
static uint32_t
find_offloaded(const berthi_tree *tree, const berthi_imitation *result)
{
    bool is_all_cpu = true;

    for (uint32_t i = 0; i < result->placed_count; i++)
        if (result->budgets.items[result->placed[i].device].kind != BERTHI_BUDGET_CPU)
            is_all_cpu = false;
    for (uint32_t i = 0; i < result->placed_count && !is_all_cpu; i++) {
        const berthi_placed *const line = &result->placed[i];

        if (result->budgets.items[line->device].kind >= BERTHI_BUDGET_CPU
            && !berthi_tree_is_exempt(tree, line->path, line->path_length))
            return i;
    }
    return BERTHI_NO_NODE;
}

static berth_status
assign(berthi_imitate_walk *walk, berth_error *error)
{
    berthi_imitation *const result = walk->result;
    berth_status status;

    result->refusal = berthi_imitate_assign(walk);
    if (result->refusal != BERTHI_REFUSAL_NONE)
        return BERTH_OK;
    status = berthi_imitate_write(walk, error);
    if (status != BERTH_OK)
        return status;
    berthi_imitate_look_back(walk);
    if (walk->options->is_quantized && !walk->options->has_cpu_offload) {
        result->refused = find_offloaded(walk->tree, result);
        if (result->refused != BERTHI_NO_NODE)
            result->refusal = BERTHI_REFUSAL_OFFLOAD;
    }
    return BERTH_OK;
}

berth_status
berthi_imitate(berth_context *context, const berthi_tree *tree,
               const berthi_imitate_options *options, berthi_imitation *out,
               berth_error *error)
{
    berthi_imitate_walk walk = { .tree = tree, .options = options, .result = out };
    berth_status status = BERTH_OK;
    berthi_arena arena;

    memset(out, 0, sizeof *out);
    out->context = context;
    out->lost_buffer = BERTHI_NO_NODE;
    out->total_bytes = tree->nodes[0].bytes;
    out->balanced = *options->budgets;
    if (options->mode != BERTHI_PLAN_MODE_SEQUENTIAL)
        out->refusal = berthi_imitate_balance(tree, options, &out->balanced, &out->refused);
    out->budgets = out->balanced;
    if (options->is_quantized)
        berthi_budgets_cut(&out->budgets);
    add_disk(&out->budgets);
    if (out->refusal != BERTHI_REFUSAL_NONE)
        return BERTH_OK;
    walk.has_distinct_entries = options->era == BERTHI_ERA_HF5
                                || options->era == BERTHI_ERA_HF5_14;
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 0);
    if (can_alloc_walk(&walk, &arena))
        status = assign(&walk, error);
    else
        status = berthi_fail_memory(error, "assigning devices");
    berthi_arena_fini(&arena);
    if (status != BERTH_OK)
        berthi_imitation_fini(out);
    return status;
}

void
berthi_imitation_fini(berthi_imitation *imitation)
{
    berthi_memory_free(imitation->context, BERTHI_PURPOSE_OBJECT, imitation->placed,
                       imitation->placed_count * sizeof *imitation->placed);
    imitation->placed = NULL;
    imitation->placed_count = 0;
}

/* --------------------------------------------------------------------- refusals */

/* Bytes of the lines on cpu and disk. */
static double
offloaded_bytes(const berthi_imitation *imitation)
{
    double bytes = 0;

    for (uint32_t i = 0; i < imitation->placed_count; i++)
        if (imitation->budgets.items[imitation->placed[i].device].kind >= BERTHI_BUDGET_CPU)
            bytes += imitation->placed[i].bytes;
    return bytes;
}

static berth_status
refuse_offload(const berthi_imitation *imitation, berth_error *error)
{
    const berthi_placed *const line = &imitation->placed[imitation->refused];
    const bool is_all = line->path_length == 0;
    char device[BERTHI_BUDGET_NAME];

    return berthi_fail(error, BERTH_REASON_NO_FIT,
                       &(berthi_about){ .tensor = is_all ? NULL : line->path,
                                        .tensor_length = (size_t)line->path_length },
                       "%swould lie on %s, and bitsandbytes refuses quantized weights on cpu "
                       "and disk: %.0f bytes more are needed on GPUs, or --cpu-offload",
                       is_all ? "all of the model " : "",
                       berthi_budget_name(&imitation->budgets.items[line->device], device),
                       offloaded_bytes(imitation));
}

berth_status
berthi_imitation_check(const berthi_imitation *imitation, berth_error *error)
{
    switch (imitation->refusal) {
    case BERTHI_REFUSAL_CLASS:
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "transformers cannot balance this model: it has no module of "
                           "the classes that are never split; take sequential");
    case BERTHI_REFUSAL_NUMBER:
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "balanced_low_0 of transformers needs GPUs numbered without a "
                           "gap from 0 on: there is no %" PRIu32, imitation->refused);
    case BERTHI_REFUSAL_DISK:
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "accelerate balances no budget for disk: leave it out (disk is "
                           "always the last resort), or take sequential");
    case BERTHI_REFUSAL_TIE:
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "transformers fails on this model and these budgets: a tied "
                           "weight's other module has been placed or split before");
    case BERTHI_REFUSAL_OFFLOAD: return refuse_offload(imitation, error);
    case BERTHI_REFUSAL_NONE: break;
    }
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- remarks */

/* True for the remark that is asked for: counts down to it. */
static bool
is_turn(uint32_t *number)
{
    return (*number)-- == 0;
}

static void
escape_name(const berthi_tree *tree, uint32_t node, char *text, size_t capacity)
{
    berth_text_escape(tree->nodes[node].name, tree->nodes[node].name_length, text,
                      capacity);
}

bool
berthi_imitation_has_remark(const berthi_imitation *imitation, const berthi_tree *tree,
                            uint32_t number, char *text, size_t capacity)
{
    char name[BERTH_NAME_CAPACITY];

    for (uint32_t i = 0; i < imitation->budgets.count; i++)
        if (imitation->minimum[i] > 0 && is_turn(&number)) {
            snprintf(text, capacity, "nothing fits on %s: it needs %.0f bytes",
                     berthi_budget_name(&imitation->budgets.items[i], name),
                     imitation->minimum[i]);
            return true;
        }
    if (imitation->buffer_bytes > 0 && is_turn(&number)) {
        snprintf(text, capacity, "%.0f bytes of buffers of offloaded modules stay on a GPU, "
                 "and none has room for them", imitation->buffer_bytes);
        return true;
    }
    if (imitation->lost_buffer != BERTHI_NO_NODE && is_turn(&number)) {
        escape_name(tree, imitation->lost_buffer, name, sizeof name);
        snprintf(text, capacity, "%s is in no line of the map: its module was split", name);
        return true;
    }
    return false;
}
