/* SPDX-License-Identifier: Apache-2.0 */
/* ruled.c - rules over models of tests; see ruled.h. */
#include "tests/ruled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"

ruled
ruled_read(berth_context *context, const char *text)
{
    ruled s;

    memset(&s, 0, sizeof s);
    s.context = context;
    CHECK(model_read(context, &text, &s.m));
    return s;
}

ruled
ruled_load(berth_context *context, const char *name)
{
    char *const text = model_file(name);
    const ruled s = ruled_read(context, text);

    free(text);
    return s;
}

static void
end_rules(ruled *s)
{
    berthi_rules_destroy(s->rules);
    berthi_architecture_destroy(s->architecture);
    berthi_rules_file_fini(&s->file);
    s->rules = NULL;
    s->architecture = NULL;
    memset(&s->file, 0, sizeof s->file);
}

void
ruled_end(ruled *s)
{
    end_rules(s);
    model_fini(&s->m);
}

berth_status
ruled_try(ruled *s, berthi_rules_options options, const char *file,
          berth_error *error)
{
    end_rules(s);
    if (file != NULL) {
        CHECK_EQ(berthi_rules_file_parse(s->context, file, strlen(file), "my.rules", &s->file,
                                         error), BERTH_OK);
        options.file = &s->file;
    }
    if (options.type == BERTH_ENCODING_NATIVE)
        options.type = BERTH_ENCODING_NF4;
    options.dtype = s->m.dtype;
    s->architecture = model_architecture(s->context, &s->m, options.era);
    return berthi_rules_create(s->context, &options, s->architecture, &s->m.source, &s->rules,
                               error);
}

void
ruled_set(ruled *s, berthi_rules_options options, const char *file)
{
    berth_error error;

    if (!CHECK_EQ(ruled_try(s, options, file, &error), BERTH_OK))
        T_NOTE("%s: %s", error.tensor, error.message);
}

berthi_rules_options
ruled_skips(ruled *s, berthi_era era, const char *list)
{
    berthi_rules_options options = { .era = era };

    snprintf(s->words, sizeof s->words, "%s", list);
    options.has_skips = strcmp(list, "auto") != 0;
    options.skips = s->skips;
    if (options.has_skips && strcmp(list, "[]") != 0)
        for (char *at = strtok(s->words, ","); at != NULL; at = strtok(NULL, ","))
            s->skips[options.skip_count++] = at;
    return options;
}

berthi_decision
ruled_decide(const ruled *s, const char *name)
{
    return berthi_rules_decide(s->rules, model_position(&s->m, name));
}

bool
ruled_is_quantized(const ruled *s, const char *name)
{
    return ruled_decide(s, name).encoding != BERTH_ENCODING_NATIVE;
}

uint32_t
ruled_count(const ruled *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->m.tensor_count; i++)
        count += berthi_rules_decide(s->rules, i).encoding != BERTH_ENCODING_NATIVE;
    return count;
}

void
ruled_check(const ruled *s, const char *name, const char *expected)
{
    const berthi_decision decision = ruled_decide(s, name);
    char text[256];

    berthi_rules_explain(s->rules, &decision, text, sizeof text);
    CHECK_STR(text, expected);
}
