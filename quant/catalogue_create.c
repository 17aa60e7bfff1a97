/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_create.c - another architectures.json, read at run time. */
#include <string.h>

#include "quant/catalogue.h"

/* The catalogue and its arrays in one allocation; the public part comes first. */
typedef struct loaded {
    berthi_catalogue catalogue;
    uint64_t total; /* bytes allocated */
} loaded;

static berth_status
refuse(const char *file, const berthi_catalogue_draft *draft, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_ARCHITECTURES_JSON,
                       &(berthi_about){ .file = file,
                                        .has = BERTH_HAS_POSITION,
                                        .position = draft->problem_at },
                       "no description of model classes: %s", draft->problem);
}

/* At most 16 MiB of text and as many entries as it has bytes: no sum overflows. */
static loaded *
alloc_loaded(berth_context *context, uint64_t bytes, berthi_catalogue_draft *draft)
{
    const uint64_t entries = ((uint64_t)draft->class_count + draft->tower_count)
                             * sizeof *draft->entries;
    const uint64_t types = (uint64_t)draft->type_count * sizeof *draft->types;
    const uint64_t total = sizeof(loaded) + entries + types + bytes;
    loaded *const made = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, total);

    if (made == NULL)
        return NULL;
    draft->entries = (berthi_catalogue_entry *)(made + 1);
    draft->types = (berthi_catalogue_type *)((char *)draft->entries + entries);
    made->catalogue.text = (char *)draft->types + types;
    made->total = total;
    return made;
}

berth_status
berthi_catalogue_create(berth_context *context, const char *text, uint64_t bytes,
                        const char *file, berthi_catalogue **out, berth_error *error)
{
    berthi_catalogue_draft draft = { .entries = NULL };
    loaded *made = NULL;
    char *copy;

    *out = NULL;
    if (bytes > BERTHI_CATALOGUE_LIMIT)
        return berthi_fail(error, BERTH_REASON_ARCHITECTURES_JSON,
                           &(berthi_about){ .file = file,
                                            .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
                                            .expected = BERTHI_CATALOGUE_LIMIT,
                                            .actual = bytes },
                           "larger than a description of model classes may be");
    /* The scanner wants a text that it may write to, though it will not. */
    copy = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (copy == NULL)
        return berthi_fail_memory(error, "reading the description of model classes");
    memcpy(copy, text, (size_t)bytes);
    berthi_catalogue_index(copy, bytes, &draft);
    if (draft.problem == NULL) {
        made = alloc_loaded(context, bytes, &draft);
        if (made != NULL)
            berthi_catalogue_index(copy, bytes, &draft);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, copy, bytes);
    if (draft.problem != NULL)
        return refuse(file, &draft, error);
    if (made == NULL)
        return berthi_fail_memory(error, "reading the description of model classes");
    memcpy((char *)draft.types + draft.type_count * sizeof *draft.types, text,
           (size_t)bytes);
    made->catalogue.bytes = bytes;
    made->catalogue.entries = draft.entries;
    made->catalogue.types = draft.types;
    made->catalogue.class_count = draft.class_count;
    made->catalogue.tower_count = draft.tower_count;
    made->catalogue.type_count = draft.type_count;
    *out = &made->catalogue;
    return BERTH_OK;
}

void
berthi_catalogue_destroy(berth_context *context, berthi_catalogue *catalogue)
{
    loaded *const made = (loaded *)catalogue;

    if (made != NULL)
        berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, made, made->total);
}
