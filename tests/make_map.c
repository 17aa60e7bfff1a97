/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_map.c - berth's device maps for many small trees, for the comparison
 * with transformers and accelerate
 *
 *     make_map <trees >maps
 *
 * A tree is a record as tests/placed.h describes them, with the lines "era",
 * "mode", "memory" and, where it is wanted, "with fallback offload_buffers". Its
 * map is a line: what upstream raises or "ok", the balanced budgets, the lines
 * of the map as DEVICE:PATH, bytes of the buffer warning, and minimums of
 * devices, in fields with a tab between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/placed.h"

static char *
read_all(FILE *file)
{
    size_t capacity = 1 << 16;
    size_t length = 0;
    char *text = malloc(capacity);

    while (text != NULL) {
        const size_t got = fread(text + length, 1, capacity - length - 1, file);

        length += got;
        if (got == 0) {
            text[length] = '\0';
            return text;
        }
        if (length + 1 == capacity)
            text = realloc(text, capacity *= 2);
    }
    exit(99);
}

static void
print_budgets(const berthi_budgets *budgets, const double *bytes)
{
    char name[BERTHI_BUDGET_NAME];

    putchar('\t');
    for (uint32_t i = 0; i < budgets->count; i++)
        if (bytes == NULL || bytes[i] != 0)
            printf(" %s=%.17g", berthi_budget_name(&budgets->items[i], name),
                   bytes == NULL ? budgets->items[i].bytes : bytes[i]);
}

static void
print(const berthi_imitation *made)
{
    char name[BERTHI_BUDGET_NAME];

    printf("%s", made->refusal == BERTHI_REFUSAL_NONE ? "ok"
                                                      : placed_raised(made->refusal));
    print_budgets(&made->balanced, NULL);
    putchar('\t');
    for (uint32_t i = 0; i < made->placed_count; i++)
        printf(" %s:%.*s",
               berthi_budget_name(&made->budgets.items[made->placed[i].device], name),
               (int)made->placed[i].path_length, made->placed[i].path);
    printf("\t%.17g", made->buffer_bytes);
    print_budgets(&made->budgets, made->minimum);
    putchar('\n');
}

static void
mark_escaping(berthi_arena *arena, const placed_record *record, berthi_tree *tree)
{
    const char **names = placed_list(arena, placed_words(record, "escaping"));

    tree->is_escaping = placed_line(record, "escaping", 0) != NULL;
    for (; *names != NULL; names++)
        for (uint32_t i = 0; i < tree->count; i++)
            if (strcmp(tree->nodes[i].name, *names) == 0)
                tree->nodes[i].is_escaping = true;
}

static void
plan(berth_context *context, berthi_arena *arena, const placed_record *record)
{
    const char *const with = placed_words(record, "with");
    berthi_imitate_options options = {
        .has_fallback = strstr(with, "fallback") != NULL,
        .has_buffer_offload = strstr(with, "offload_buffers") != NULL,
    };
    berthi_imitation made;
    berthi_budgets budgets;
    berthi_tree tree;

    if (!berthi_era_can_parse(placed_words(record, "era"), &options.era)
        || !berthi_plan_mode_can_parse(placed_words(record, "mode"), &options.mode)
        || berthi_budgets_parse(placed_words(record, "memory"), &budgets, NULL) != BERTH_OK)
        exit(98);
    options.budgets = &budgets;
    placed_small(context, arena, record, options.era != BERTHI_ERA_HF4, &tree);
    mark_escaping(arena, record, &tree);
    if (berthi_imitate(context, &tree, &options, &made, NULL) != BERTH_OK)
        exit(97);
    print(&made);
    berthi_imitation_fini(&made);
    berthi_tree_fini(&tree);
}

int
main(void)
{
    char *const text = read_all(stdin);
    berth_context *context;
    placed_record record;
    char *at = text;

    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 96;
    for (bool is_read = true; is_read;) {
        berthi_arena arena;

        berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 1 << 18);
        is_read = placed_read(&arena, &at, &record);
        if (is_read)
            plan(context, &arena, &record);
        berthi_arena_fini(&arena);
    }
    berth_context_destroy(context);
    free(text);
    return 0;
}
