/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_spell.c - the skip list that config.json has to hold, so that loaders
 * make quantized layers of what is quantized and of nothing else.
 *
 * The list in force says that by itself, unless globs or rules of the user have
 * decided otherwise: then it is written out, without entries that stand for
 * something quantized, and with those layers that are left plain. These are
 * called by the last part of their names, which stands for all that end so, where
 * nothing quantized does; else by the whole name.
 */
#include <string.h>

#include "quant/rules_skip.h"

typedef struct spelling {
    const berthi_skip_list *list;
    berthi_arena *arena;
    berthi_skip_layer *layers;
    uint32_t count;
    berthi_skip_words *out;
    const char **texts;
} spelling;

static bool
ends_with(const berthi_skip_layer *layer, const char *text, uint64_t length)
{
    return length <= layer->length
           && memcmp(layer->name + (layer->length - length), text, length) == 0;
}

/* As a pattern a dot stands for any byte. */
static bool
begins_with(const berthi_skip_layer *layer, const char *text, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        if (i >= layer->length || (text[i] != '.' && text[i] != layer->name[i]))
            return false;
    return true;
}

/* Whether an entry that is a name, or the end of one, stands for the layer. */
static bool
is_named(const spelling *s, const berthi_skip_layer *layer, const char *text,
         uint64_t length)
{
    if (s->list->era == BERTHI_ERA_HF4)
        return berthi_skip_is_match_4x(layer->name, layer->length, text, length);
    if (ends_with(layer, text, length))
        return true;
    return begins_with(layer, text, length)
           && (s->list->era != BERTHI_ERA_HF5 || layer->length == length
               || layer->name[length] == '.');
}

static bool
is_among_quantized(const spelling *s, const char *text, uint64_t length)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->layers[i].is_quantized && is_named(s, &s->layers[i], text, length))
            return true;
    return false;
}

/* What loaders add by themselves cannot be left out. */
static bool
is_kept_entry(const spelling *s, uint32_t entry)
{
    const bool is_loaders = s->list->skips[entry].origin == BERTHI_SKIP_FP32;

    for (uint32_t i = 0; i < s->count && !is_loaders; i++)
        if (s->layers[i].is_quantized
            && berthi_skip_list_is_match(s->list, entry, s->layers[i].name,
                                         s->layers[i].length))
            return false;
    return true;
}

/* Takes over the entries that stay; true when that are all. */
static bool
keep_entries(spelling *s)
{
    bool is_complete = true;

    for (uint32_t entry = 0; entry < s->list->count; entry++) {
        if (!is_kept_entry(s, entry)) {
            is_complete = false;
            continue;
        }
        for (uint32_t i = 0; i < s->count; i++)
            if (berthi_skip_list_is_match(s->list, entry, s->layers[i].name,
                                          s->layers[i].length))
                s->layers[i].is_listed = true;
        if (s->list->skips[entry].origin != BERTHI_SKIP_FP32)
            s->texts[s->out->count++] = s->list->skips[entry].text;
    }
    return is_complete;
}

static bool
has_words(const char *text, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return true;
    return false;
}

/* Adds an entry for the layer, which stands for others too, perhaps. */
static bool
can_add(spelling *s, const berthi_skip_layer *layer)
{
    const char *text = layer->name;
    uint64_t length = layer->length;
    uint64_t leaf = length;
    char *copy;

    while (leaf > 0 && layer->name[leaf - 1] != '.')
        leaf--;
    if (has_words(text + leaf, length - leaf)
        && !is_among_quantized(s, text + leaf, length - leaf)) {
        text += leaf;
        length -= leaf;
    }
    for (uint32_t i = 0; i < s->count; i++)
        if (is_named(s, &s->layers[i], text, length))
            s->layers[i].is_listed = true;
    copy = berthi_arena_alloc(s->arena, length + 2, 1);
    if (copy == NULL)
        return false;
    memcpy(copy, text, length);
    /* Another layer's name begins or ends so: a pattern that is this one alone. */
    if (s->list->era != BERTHI_ERA_HF4 && is_among_quantized(s, text, length))
        copy[length++] = '$';
    copy[length] = '\0';
    s->texts[s->out->count++] = copy;
    return true;
}

static uint32_t
count_unlisted(const spelling *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->count; i++)
        count += !s->layers[i].is_quantized && !s->layers[i].is_listed;
    return count;
}

berth_status
berthi_skip_list_spell(const berthi_skip_list *list, berthi_arena *arena,
                       berthi_skip_layer *layers, uint32_t count, berthi_skip_words *out,
                       berth_error *error)
{
    spelling s = { .list = list, .arena = arena, .layers = layers, .count = count,
                   .out = out };
    const uint64_t capacity = (uint64_t)list->count + count;
    bool is_complete;

    s.texts = berthi_arena_alloc(arena, capacity * sizeof *s.texts, sizeof *s.texts);
    if (s.texts == NULL)
        return berthi_fail_memory(error, "the list of modules to skip");
    out->texts = s.texts;
    is_complete = keep_entries(&s);
    if (is_complete && count_unlisted(&s) == 0)
        return BERTH_OK;
    out->is_other = true;
    for (uint32_t i = 0; i < count; i++)
        if (!layers[i].is_quantized && !layers[i].is_listed && !can_add(&s, &layers[i]))
            return berthi_fail_memory(error, "the list of modules to skip");
    return BERTH_OK;
}
