/* SPDX-License-Identifier: Apache-2.0 */
/* rules_skip.c - making and matching skip lists; see rules_skip.h. */
#include "quant/rules_skip.h"

#include <string.h>

#include "kernels/text.h"

typedef struct drafting {
    berthi_arena *arena;
    const berthi_architecture *architecture;
    berthi_skip_list *list;
    berth_error *error;
    berth_status status;
} drafting;

static void
lack_memory(drafting *d)
{
    if (d->status == BERTH_OK)
        d->status = berthi_fail_memory(d->error, "preparing the skip list");
}

/* -------------------------------------------------------------------- entries */

static void
add(drafting *d, const char *text, uint64_t length, berthi_skip_origin origin)
{
    const char *const copy = berthi_arena_text(d->arena, text, length);

    if (copy == NULL)
        lack_memory(d);
    else
        d->list->skips[d->list->count++] = (berthi_skip){ copy, origin };
}

/* Takes every ".weight" out, as 4.x does, in place. */
static void
cut_all(char *text, const char *part)
{
    const size_t length = strlen(part);
    char *at = text;

    while ((at = strstr(at, part)) != NULL)
        memmove(at, at + length, strlen(at + length) + 1);
}

/*
 * An automatic entry by the name of a parameter or module, among those sorted so
 * far. 5.x cuts a final ".weight"; 4.x every ".weight" and ".bias". Of two equal
 * ones the first stays.
 */
static void
add_sorted(drafting *d, const char *name, berthi_skip_origin origin)
{
    static const char suffix[] = ".weight";
    berthi_skip *const skips = d->list->skips;
    uint32_t at = d->list->count;
    size_t length = strlen(name);
    char *copy;

    if (length == 0 || d->status != BERTH_OK)
        return;
    if (d->list->era != BERTHI_ERA_HF4
        && berthi_text_ends((berthi_text){ name, length }, suffix))
        length -= strlen(suffix);
    copy = berthi_arena_text(d->arena, name, length);
    if (copy == NULL) {
        lack_memory(d);
        return;
    }
    if (d->list->era == BERTHI_ERA_HF4) {
        cut_all(copy, ".weight");
        cut_all(copy, ".bias");
    }
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(skips[i].text, copy) == 0)
            return;
    for (; at > 0 && strcmp(skips[at - 1].text, copy) > 0; at--)
        skips[at] = skips[at - 1];
    skips[at] = (berthi_skip){ copy, origin };
    d->list->count++;
}

static void
add_ties(drafting *d)
{
    const berthi_architecture *const a = d->architecture;

    for (uint32_t i = 0; i < a->tie_count; i++) {
        add_sorted(d, a->ties[i].target, BERTHI_SKIP_TIED);
        add_sorted(d, a->ties[i].source, BERTHI_SKIP_TIED);
    }
}

static void
add_automatic(drafting *d)
{
    const berthi_architecture *const a = d->architecture;
    const bool is_4x = d->list->era == BERTHI_ERA_HF4;

    /* 4.x: the head alone, unless something is tied or there is no head. */
    if (!is_4x || (a->tie_count == 0 && *a->head != '\0'))
        add_sorted(d, a->head, BERTHI_SKIP_HEAD);
    if (is_4x && a->tie_count == 0 && *a->head != '\0')
        return;
    add_ties(d);
    add_sorted(d, a->last_name, BERTHI_SKIP_LAST);
}

static uint32_t
count_words(berthi_words words)
{
    uint32_t count = 0;

    while (words != NULL && words[count] != NULL)
        count++;
    return count;
}

static void
add_words(drafting *d, berthi_words words)
{
    for (; words != NULL && *words != NULL && d->status == BERTH_OK; words++)
        add(d, *words, strlen(*words), BERTHI_SKIP_FP32);
}

/* Room for so many entries and their patterns. */
static void
reserve(drafting *d, uint64_t count)
{
    d->list->skips = berthi_arena_alloc(d->arena, count * sizeof *d->list->skips, 8);
    d->list->patterns = berthi_arena_alloc(d->arena, count * sizeof *d->list->patterns, 8);
    if (d->list->skips == NULL || d->list->patterns == NULL)
        lack_memory(d);
    else
        memset(d->list->patterns, 0, (size_t)count * sizeof *d->list->patterns);
}

/* ------------------------------------------------------------------- patterns */

/* The entry as a part of a parameter's name: "((^|\.)entry($|\.))". */
static char *
write_search(berthi_arena *arena, const char *entry)
{
    static const char before[] = "((^|\\.)(?:";
    static const char after[] = ")($|\\.))";
    const size_t length = strlen(entry);
    char *const text = berthi_arena_alloc(arena, length + sizeof before + sizeof after, 1);

    if (text != NULL) {
        memcpy(text, before, strlen(before));
        memcpy(text + strlen(before), entry, length);
        memcpy(text + strlen(before) + length, after, sizeof after);
    }
    return text;
}

static void
compile(drafting *d)
{
    berthi_skip_list *const list = d->list;

    for (uint32_t i = 0; i < list->count && d->status == BERTH_OK; i++) {
        const char *text = list->skips[i].text;

        if (list->is_search)
            text = write_search(d->arena, text);
        if (text == NULL)
            lack_memory(d);
        else
            d->status = berthi_pattern_create(d->arena->context, text, &list->patterns[i],
                                              d->error);
    }
}

berth_status
berthi_skip_list_create(berthi_arena *arena, const berthi_rules_options *options,
                        const berthi_architecture *architecture, berthi_skip_list *out,
                        berth_error *error)
{
    drafting d = { arena, architecture, out, error, BERTH_OK };
    uint64_t count = count_words(architecture->fp32);

    memset(out, 0, sizeof *out);
    out->era = options->era;
    /* Both sides of each tie, the head, the last parameter. */
    count += options->has_skips ? options->skip_count
                                : 2 * (uint64_t)architecture->tie_count + 2;
    reserve(&d, count);
    if (d.status == BERTH_OK && !options->has_skips)
        add_automatic(&d);
    for (uint32_t i = 0; options->has_skips && i < options->skip_count; i++)
        if (d.status == BERTH_OK)
            add(&d, options->skips[i], strlen(options->skips[i]), BERTHI_SKIP_USER);
    add_words(&d, architecture->fp32);
    if (out->era != BERTHI_ERA_HF4)
        compile(&d);
    return d.status;
}

/*
 * "Strict" ones for both 16-bit dtypes, the others for float16 alone; 4.x keeps
 * these too whenever it quantizes.
 */
berth_status
berthi_skip_list_float32(berthi_arena *arena, const berthi_rules_options *options,
                         const berthi_architecture *architecture, berthi_skip_list *out,
                         berth_error *error)
{
    drafting d = { arena, architecture, out, error, BERTH_OK };

    memset(out, 0, sizeof *out);
    out->era = options->era;
    out->is_search = true;
    reserve(&d, (uint64_t)count_words(architecture->fp32)
                    + count_words(architecture->fp32_strict));
    if (options->dtype == BERTH_F16 || options->era == BERTHI_ERA_HF4)
        add_words(&d, architecture->fp32);
    if (options->dtype == BERTH_F16 || options->dtype == BERTH_BF16)
        add_words(&d, architecture->fp32_strict);
    compile(&d);
    return d.status;
}

void
berthi_skip_list_fini(berthi_skip_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        berthi_pattern_destroy(list->patterns[i]);
    list->count = 0;
}

/* ------------------------------------------------------------------- matching */

/* 4.x: the last component, the whole name, or a part that a dot follows. */
bool
berthi_skip_is_match_4x(const char *name, uint64_t length, const char *entry, uint64_t own)
{
    if (own == length && memcmp(name, entry, (size_t)own) == 0)
        return true;
    if (own < length && name[length - own - 1] == '.'
        && memcmp(name + (length - own), entry, (size_t)own) == 0
        && memchr(entry, '.', (size_t)own) == NULL)
        return true;
    for (uint64_t i = 0; i + own < length; i++)
        if (name[i + own] == '.' && memcmp(name + i, entry, (size_t)own) == 0)
            return true;
    return false;
}

/* 5.x: the pattern at the beginning, or the text at the end. */
static bool
is_match_5x(const berthi_skip_list *list, uint32_t entry, const char *name, uint64_t length)
{
    const berthi_pattern_mode mode =
        list->era == BERTHI_ERA_HF5 ? BERTHI_PATTERN_WHOLE : BERTHI_PATTERN_BEGIN;

    return berthi_text_ends((berthi_text){ name, length }, list->skips[entry].text)
           || berthi_pattern_is_match(list->patterns[entry], name, length, mode);
}

bool
berthi_skip_list_is_match(const berthi_skip_list *list, uint32_t entry, const char *name,
                          uint64_t length)
{
    const char *const text = list->skips[entry].text;

    if (list->is_search)
        return berthi_pattern_is_match(list->patterns[entry], name, length,
                                       BERTHI_PATTERN_SEARCH);
    if (list->era == BERTHI_ERA_HF4)
        return berthi_skip_is_match_4x(name, length, text, strlen(text));
    return is_match_5x(list, entry, name, length);
}

/* Modules are matched, and a weight's module is its name without its end. */
static uint64_t
length_to_match(const berthi_skip_list *list, const char *name, uint64_t length)
{
    return !list->is_search && berthi_text_ends((berthi_text){ name, length }, ".weight")
               ? length - strlen(".weight")
               : length;
}

static bool
is_name_match(const berthi_skip_list *list, uint32_t entry, const char *name, uint64_t length)
{
    return berthi_skip_list_is_match(list, entry, name, length_to_match(list, name, length));
}

/* A head that is tied may have no tensor, and is a module all the same. */
bool
berthi_skip_list_has_match(const berthi_skip_list *list, uint32_t entry,
                           const berthi_architecture *a)
{
    if (is_name_match(list, entry, a->head, strlen(a->head)))
        return true;
    for (uint32_t i = 0; i < a->tie_count; i++)
        if (is_name_match(list, entry, a->ties[i].target, strlen(a->ties[i].target)))
            return true;
    for (uint32_t i = 0; i < a->parameter_count; i++)
        if (is_name_match(list, entry, a->parameters[i]->name, a->parameters[i]->name_length))
            return true;
    return false;
}

uint32_t
berthi_skip_list_find(const berthi_skip_list *list, const berthi_parameter *parameter)
{
    const char *const name = parameter->name;
    const uint64_t length = length_to_match(list, name, parameter->name_length);

    for (uint32_t i = 0; i < list->count; i++)
        if (berthi_skip_list_is_match(list, i, name, length))
            return i;
    return BERTHI_NO_SKIP;
}
