/* SPDX-License-Identifier: Apache-2.0 */
/* draw_text.c - the words of a picture, the same in all of its forms. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw_map.h"
#include "tools/plan_print.h"

/* printf behind what stands in `text` already. */
__attribute__((format(printf, 2, 3))) static void
append(char text[DRAW_TEXT_CAPACITY], const char *format, ...)
{
    const size_t length = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, DRAW_TEXT_CAPACITY - length, format, arguments);
    va_end(arguments);
}

const char *
draw_kind_name(draw_kind kind)
{
    static const char *const names[DRAW_KINDS] = {
        [DRAW_RESIDENT] = "resident",
        [DRAW_LENT] = "streamed from here",
        [DRAW_SLOTS] = "slots for streamed layers",
        [DRAW_CACHE] = "KV cache",
        [DRAW_KEPT] = "kept for the backward pass",
        [DRAW_TRAINING] = "gradients and states",
        [DRAW_ACTIVATIONS] = "activations",
        [DRAW_SCRATCH] = "scratch while loading",
        [DRAW_STAGING] = "staging, pinned",
        [DRAW_RESERVE] = "reserve",
        [DRAW_FREE] = "free",
        [DRAW_ABSENT] = "streamed to here",
    };

    return names[kind];
}

const char *
draw_slice_text(const berth_berth *berth, char text[DRAW_TEXT_CAPACITY])
{
    static const char *const words[] = { "", "rows", "columns", "depths" };
    char parts[64] = "";

    text[0] = '\0';
    if (berth->along == BERTH_SLICING_NONE)
        return text;
    if (berth->parts > 1)
        (void)snprintf(parts, sizeof parts, " of each of %" PRIu64 " parts", berth->parts);
    (void)snprintf(text, DRAW_TEXT_CAPACITY, "%s %" PRIu64 " to %" PRIu64 "%s",
                   words[berth->along], berth->first, berth->first + berth->count, parts);
    return text;
}

const char *
draw_type_name(int32_t encoding, int32_t dtype)
{
    return form_is_plain(encoding) ? berth_dtype_name(dtype) : berth_encoding_name(encoding);
}

/* A type of this name stands before: the dtype of what nf4 stands for is not shown. */
static bool
is_named(const char *text, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
        if ((at == text || at[-1] == ' ') && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

/* The type of this class with most bytes that `text` does not name yet; the first of equal ones. */
static const draw_type *
next_type(const draw_map *map, form_class class, const char *text)
{
    const draw_type *next = NULL;

    for (size_t i = 0; i < map->type_count; i++) {
        const draw_type *const t = &map->types[i];

        if (form_class_of_type(t->encoding, t->dtype) == class
            && !is_named(text, draw_type_name(t->encoding, t->dtype))
            && (next == NULL || t->bytes > next->bytes))
            next = t;
    }
    return next;
}

const char *
draw_types_text(const draw_map *map, form_class class, char text[DRAW_TEXT_CAPACITY])
{
    text[0] = '\0';
    for (const draw_type *next; (next = next_type(map, class, text)) != NULL;)
        append(text, "%s%s", text[0] != '\0' ? ", " : "",
               draw_type_name(next->encoding, next->dtype));
    return text;
}

const char *
draw_where_text(const draw_map *map, uint32_t layer, char text[DRAW_TEXT_CAPACITY])
{
    const draw_layer *const l = &map->layers[layer];

    text[0] = '\0';
    for (size_t i = 0; i < l->piece_count; i++)
        append(text, "%s%s", i == 0 ? "" : "+",
               map->tiers[map->pieces[l->first_piece + i].tier].facts.name);
    return text;
}

/* What weights are quantized to; where they stay as stored, what most of them are. */
static const char *
main_type(const draw_map *map)
{
    const draw_type *most = NULL;

    for (size_t i = 0; i < map->type_count; i++)
        if (most == NULL || map->types[i].bytes > most->bytes)
            most = &map->types[i];
    return map->summary.type == BERTH_ENCODING_NATIVE && most != NULL
               ? draw_type_name(most->encoding, most->dtype)
               : draw_type_name(map->summary.type, map->summary.dtype);
}

const char *
draw_title_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY])
{
    const berth_plan_summary *const s = &map->summary;
    char size[BERTH_SIZE_CAPACITY];

    snprintf(text, DRAW_TEXT_CAPACITY, "%" PRIu32 " layer%s, %s", s->layer_count,
             text_plural(s->layer_count), berth_size_format(s->bytes, size));
    append(text, ", %s%s", main_type(map),
           s->double_quant ? " with double quantization" : "");
    if (s->context > 0)
        append(text, ", %" PRIu64 " x %" PRIu64 " tokens of context", s->batch, s->context);
    return text;
}

/* What the updates of a training step cost. */
static const char *
step_text(const berth_plan_training *t, char text[DRAW_TEXT_CAPACITY])
{
    char size[BERTH_SIZE_CAPACITY];
    char time[PLAN_CELL];

    append(text, "%s for the updates of a step predicted", plan_time_text(t->seconds, time));
    if (t->link_bytes > 0)
        append(text, "; %s of states brought to devices",
               berth_size_format(t->link_bytes, size));
    if (t->disk_bytes > 0)
        append(text, ", %s read from the disk and written",
               berth_size_format(t->disk_bytes, size));
    return text;
}

const char *
draw_speed_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY])
{
    const berth_plan_summary *const s = &map->summary;
    char size[BERTH_SIZE_CAPACITY];

    text[0] = '\0';
    if (map->is_training)
        return step_text(&map->training, text);
    if (!(s->tokens_per_second > 0))
        return text;
    append(text, "%.*f tokens per second predicted", s->tokens_per_second < 100 ? 1 : 0,
           s->tokens_per_second);
    if (s->link_bytes > 0)
        append(text, "; %s brought to devices for each token",
               berth_size_format(s->link_bytes, size));
    if (s->disk_bytes > 0)
        append(text, ", %s of it from the disk", berth_size_format(s->disk_bytes, size));
    return text;
}

const char *
draw_advice_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY])
{
    const char *const advice = map->summary.advice;

    snprintf(text, DRAW_TEXT_CAPACITY, "%s%s", advice[0] != '\0' ? "would help: " : "", advice);
    return text;
}

const char *
draw_verdict_text(const draw_tier *tier, char text[DRAW_TEXT_CAPACITY])
{
    char size[BERTH_SIZE_CAPACITY];

    if (tier->absent > 0)
        snprintf(text, DRAW_TEXT_CAPACITY, "short of %s",
                 berth_size_format(tier->absent, size));
    else if (tier->facts.budget == UINT64_MAX)
        snprintf(text, DRAW_TEXT_CAPACITY, "no limit");
    else
        snprintf(text, DRAW_TEXT_CAPACITY, "%s free",
                 berth_size_format(tier->facts.free, size));
    return text;
}

const char *
draw_use_text(const draw_tier *tier, char text[DRAW_TEXT_CAPACITY])
{
    char used[BERTH_SIZE_CAPACITY];
    char budget[BERTH_SIZE_CAPACITY];

    berth_size_format(tier->used, used);
    if (tier->facts.budget == UINT64_MAX)
        snprintf(text, DRAW_TEXT_CAPACITY, "%s used", used);
    else
        snprintf(text, DRAW_TEXT_CAPACITY, "%s of %s", used,
                 berth_size_format(tier->facts.budget, budget));
    return text;
}
