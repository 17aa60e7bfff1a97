/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_pins.c - "lm_head=cuda:0", "model.layers.0-9=cpu": tensors that have to lie
 * where the caller says.
 *
 * What stands before the last '=' is matched against a tensor's name or the begin of
 * it, part by part: "a-b" is any number from a to b, "*" any part. The first pin that
 * matches counts.
 */
#include <string.h>

#include "kernels/digits.h"
#include "loader/plan_input.h"

#define NUMBER_MOST 999999999u

typedef struct pin {
    const char *text;   /* as given, for messages */
    uint64_t length;    /* of the pattern */
    uint32_t tier;
    bool is_used;
} pin;

/* The end of the part that begins at `at`. */
static uint64_t
part_end(const char *text, uint64_t length, uint64_t at)
{
    while (at < length && text[at] != '.')
        at++;
    return at;
}

/* "3-7" as a part of a pattern. */
static bool
is_in_range(const char *range, uint64_t size, const char *part, uint64_t length)
{
    const char *const end = range + size;
    uint64_t first;
    uint64_t last;
    uint64_t number;

    return berthi_digits_can_take(&range, end, NUMBER_MOST, &first) && range < end
           && *range == '-'
           && berthi_digits_can_parse(range + 1, (uint64_t)(end - range) - 1, NUMBER_MOST, &last)
           && berthi_digits_can_parse(part, length, NUMBER_MOST, &number) && number >= first
           && number <= last;
}

static bool
is_part_match(const char *pattern, uint64_t size, const char *part, uint64_t length)
{
    if (size == 1 && pattern[0] == '*')
        return true;
    if (size == length && memcmp(pattern, part, size) == 0)
        return true;
    return is_in_range(pattern, size, part, length);
}

/* True when the pattern's parts are the first parts of the name. */
static bool
is_match(const pin *p, const char *name, uint64_t length)
{
    uint64_t i = 0;
    uint64_t k = 0;

    while (i < p->length) {
        const uint64_t i_end = part_end(p->text, p->length, i);
        const uint64_t k_end = part_end(name, length, k);

        if (k >= length || !is_part_match(p->text + i, i_end - i, name + k, k_end - k))
            return false;
        i = i_end + 1;
        k = k_end + 1;
    }
    return true;
}

static berth_status
fail_pin(const char *text, const char *problem, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_ARGUMENT,
                       &(berthi_about){ .tensor = text, .tensor_length = strlen(text) },
                       "%s", problem);
}

/* True for "", "a.", "a..b". */
static bool
has_empty_part(const char *text, uint64_t length)
{
    uint64_t end = UINT64_MAX; /* of the part before */

    do {
        const uint64_t begin = end + 1;

        end = part_end(text, length, begin);
        if (end == begin)
            return true;
    } while (end < length);
    return false;
}

static berth_status
parse(const berthi_plan_source *source, const char *text, pin *out, berth_error *error)
{
    const char *const equals = strrchr(text, '=');
    berthi_tier tier;

    if (text[0] == '\0') /* which no message can name */
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "\"\" is no pin: write NAME=TIER");
    if (equals == NULL || has_empty_part(text, (uint64_t)(equals - text)))
        return fail_pin(text, "is no pin: write NAME=TIER", error);
    if (!berthi_tier_can_parse(equals + 1, strlen(equals + 1), &tier))
        return fail_pin(text, "names no tier: 0, cuda:0, cpu or disk", error);
    *out = (pin){ .text = text, .length = (uint64_t)(equals - text) };
    out->tier = berthi_plan_find_tier(source, &tier);
    if (out->tier == BERTHI_NO_TIER)
        return fail_pin(text, "names a tier that has no budget", error);
    if (source->options->no_offload != 0 && !berthi_plan_is_device(&source->input, out->tier))
        return fail_pin(text, "names a tier that does not compute, and no_offload is asked for",
                        error);
    return BERTH_OK;
}

/* By the name in the checkpoint, or by the layer's name in the model. */
static bool
is_pinned(const berthi_plan_source *source, const pin *p,
          const berthi_plan_tensor *tensor)
{
    const berthi_plan_layer_input *const layer = &source->layers[tensor->layer];

    return is_match(p, tensor->name, tensor->name_length)
           || is_match(p, layer->name, layer->name_length);
}

/* Where one lies that is tied, the other does. */
static berthi_plan_tensor *
pinned_with(const berthi_plan_source *source, uint32_t i)
{
    const uint32_t tie = source->tensors[i].tie;

    return &source->tensors[tie != BERTHI_NO_TIE ? tie : i];
}

/* No tensor is left for it: there is none that it matches, or pins before it have them all. */
static berth_status
refuse_unused(const berthi_plan_source *source, const pin *p, berth_error *error)
{
    for (uint32_t i = 0; i < source->input.tensor_count; i++)
        if (is_pinned(source, p, &source->tensors[i]))
            return fail_pin(p->text, "pins nothing: all of it is pinned already, by a pin "
                                     "before this one", error);
    return fail_pin(p->text, "pins nothing: no layer or tensor is called so", error);
}

/* By the first of the pins that has it. */
static void
pin_tensor(berthi_plan_source *source, pin *pins, uint32_t count, uint32_t tensor)
{
    for (uint32_t k = 0; k < count; k++)
        if (is_pinned(source, &pins[k], &source->tensors[tensor])) {
            if (pinned_with(source, tensor)->tier == BERTHI_NO_TIER)
                pinned_with(source, tensor)->tier = pins[k].tier;
            pins[k].is_used = true;
            return;
        }
}

berth_status
berthi_plan_pin(berthi_plan_source *source, berth_error *error)
{
    const uint32_t count = source->options->pin_count;
    pin *const pins =
        berthi_arena_alloc(&source->arena, (count + UINT64_C(1)) * sizeof *pins, 8);
    berth_status status = BERTH_OK;

    if (pins == NULL)
        return berthi_fail_memory(error, "reading pins");
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = parse(source, source->options->pins[i], &pins[i], error);
    for (uint32_t i = 0; i < source->input.tensor_count && count > 0
                         && status == BERTH_OK; i++)
        pin_tensor(source, pins, count, i);
    for (uint32_t k = 0; k < count && status == BERTH_OK; k++)
        if (!pins[k].is_used)
            status = refuse_unused(source, &pins[k], error);
    return status;
}
