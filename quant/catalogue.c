/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.c - indexing and looking up; nothing here allocates, so that the
 * program that runs during the build needs only this and the scanner.
 */
#include "quant/catalogue.h"

#include <string.h>

#include "kernels/utf8.h"
#include "quant/scan.h"

typedef struct indexing {
    berthi_scan scan;
    berthi_catalogue_draft *draft;
} indexing;

static uint32_t
offset_of(const indexing *x, const char *at)
{
    return (uint32_t)(at - x->scan.text);
}

/*
 * The string or key just read. Scanning unescapes in place, so one with an
 * escape has changed the text: its closing quote is not where it should be.
 */
static bool
has_plain_text(indexing *x, const berthi_scan_text *text)
{
    uint64_t quote = x->scan.position - 1;

    while (x->scan.text[quote] != '"')
        quote--;
    if (offset_of(x, text->bytes) + text->length != quote)
        return berthi_scan_refuse(&x->scan, "a name with an escape");
    return true;
}

/* The model types of the class with this number. */
static bool
can_index_types(indexing *x, uint32_t entry)
{
    berthi_catalogue_draft *const draft = x->draft;
    berthi_scan_text name;

    if (!berthi_scan_can_enter_array(&x->scan))
        return false;
    while (berthi_scan_has_next_element(&x->scan)) {
        if (!berthi_scan_can_read_string(&x->scan, &name) || !has_plain_text(x, &name))
            return false;
        if (draft->types != NULL)
            draft->types[draft->type_count] = (berthi_catalogue_type){
                .name = offset_of(x, name.bytes),
                .name_length = (uint32_t)name.length,
                .entry = entry,
            };
        draft->type_count++;
    }
    return x->scan.problem == NULL;
}

static bool
can_index_body(indexing *x, uint32_t entry)
{
    berthi_scan_text key;

    if (!berthi_scan_can_enter_object(&x->scan))
        return false;
    while (berthi_scan_has_next_member(&x->scan, &key)) {
        const bool holds_types = berthi_scan_text_is(&key, "model_types");

        if (!has_plain_text(x, &key)
            || !(holds_types ? can_index_types(x, entry) : berthi_scan_can_skip(&x->scan)))
            return false;
    }
    return x->scan.problem == NULL;
}

/* An object of classes or of sub-models; `count` is theirs. */
static bool
can_index_entries(indexing *x, uint32_t *count)
{
    berthi_catalogue_draft *const draft = x->draft;
    berthi_scan_text name;

    if (!berthi_scan_can_enter_object(&x->scan))
        return false;
    while (berthi_scan_has_next_member(&x->scan, &name)) {
        const uint32_t entry = draft->class_count + draft->tower_count;
        uint32_t body;

        if (!has_plain_text(x, &name))
            return false;
        (void)berthi_scan_peek(&x->scan); /* to where the value begins */
        body = (uint32_t)x->scan.position;
        if (!can_index_body(x, entry))
            return false;
        if (draft->entries != NULL)
            draft->entries[entry] = (berthi_catalogue_entry){
                .name = offset_of(x, name.bytes),
                .name_length = (uint32_t)name.length,
                .body = body,
                .body_length = (uint32_t)x->scan.position - body,
            };
        (*count)++;
    }
    return x->scan.problem == NULL;
}

static bool
can_index_all(indexing *x)
{
    berthi_catalogue_draft *const draft = x->draft;
    berthi_scan_text key;
    bool has_classes = false;

    if (!berthi_scan_can_enter_object(&x->scan))
        return false;
    while (berthi_scan_has_next_member(&x->scan, &key)) {
        if (!has_plain_text(x, &key))
            return false;
        if (berthi_scan_text_is(&key, "architectures")) {
            if (has_classes || draft->tower_count > 0)
                return berthi_scan_refuse(&x->scan, "\"architectures\" after \"towers\"");
            has_classes = true;
            if (!can_index_entries(x, &draft->class_count))
                return false;
        } else if (berthi_scan_text_is(&key, "towers")) {
            if (!can_index_entries(x, &draft->tower_count))
                return false;
        } else if (!berthi_scan_can_skip(&x->scan)) {
            return false;
        }
    }
    if (x->scan.problem != NULL || !berthi_scan_can_finish(&x->scan))
        return false;
    return has_classes || berthi_scan_refuse(&x->scan, "no \"architectures\"");
}

void
berthi_catalogue_index(char *text, uint64_t bytes, berthi_catalogue_draft *draft)
{
    const uint64_t good = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    indexing x = { .draft = draft };

    draft->class_count = 0;
    draft->tower_count = 0;
    draft->type_count = 0;
    draft->problem = NULL;
    if (good != bytes) {
        draft->problem = "not UTF-8";
        draft->problem_at = good;
        return;
    }
    berthi_scan_init(&x.scan, text, bytes, 0);
    if (!can_index_all(&x)) {
        draft->problem = x.scan.problem;
        draft->problem_at = x.scan.problem_at;
    }
}

/* ------------------------------------------------------------------- looking */

static bool
is_text(const berthi_catalogue *catalogue, uint32_t at, uint32_t length, const char *word)
{
    return strlen(word) == length && memcmp(catalogue->text + at, word, length) == 0;
}

static const berthi_catalogue_entry *
find_entry(const berthi_catalogue *catalogue, uint32_t first, uint32_t count,
           const char *name)
{
    for (uint32_t i = first; i < first + count; i++) {
        const berthi_catalogue_entry *const entry = &catalogue->entries[i];

        if (is_text(catalogue, entry->name, entry->name_length, name))
            return entry;
    }
    return NULL;
}

const berthi_catalogue_entry *
berthi_catalogue_class(const berthi_catalogue *catalogue, const char *name)
{
    return find_entry(catalogue, 0, catalogue->class_count, name);
}

const berthi_catalogue_entry *
berthi_catalogue_tower(const berthi_catalogue *catalogue, const char *model_type)
{
    return find_entry(catalogue, catalogue->class_count, catalogue->tower_count,
                      model_type);
}

const berthi_catalogue_entry *
berthi_catalogue_type_class(const berthi_catalogue *catalogue, const char *model_type,
                            const berthi_catalogue_entry *previous)
{
    for (uint32_t i = 0; i < catalogue->type_count; i++) {
        const berthi_catalogue_type *const type = &catalogue->types[i];
        const berthi_catalogue_entry *const entry = &catalogue->entries[type->entry];

        if ((previous == NULL || entry > previous)
            && is_text(catalogue, type->name, type->name_length, model_type))
            return entry;
    }
    return NULL;
}
