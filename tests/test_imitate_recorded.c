/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_imitate_recorded.c - every device map that the real libraries made
 * (tests/data/placement/): maps, totals, budgets, refusals and remarks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/imitate.h"
#include "quant/format.h"
#include "tests/placed.h"
#include "tests/t.h"

static berth_context *context;

#define MODEL_LIMIT 128

typedef struct models {
    char *text;
    placed_record records[MODEL_LIMIT];
    uint32_t count;
} models;

static void
read_models(berthi_arena *arena, const char *file, models *m)
{
    char *at;

    m->text = placed_file(file);
    m->count = 0;
    for (at = m->text; m->count < MODEL_LIMIT
                       && placed_read(arena, &at, &m->records[m->count]);)
        m->count++;
}

/* Of that era; or of any, which is "-" in the file. */
static const placed_record *
find_model(berthi_arena *arena, const models *m, const char *era, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const char **const words =
            placed_list(arena, placed_words(&m->records[i], "model"));

        if ((*words[0] == '\0' || strcmp(words[0], era) == 0) && strcmp(words[1], name) == 0)
            return &m->records[i];
    }
    CHECK_STR(name, "a model");
    exit(99);
}

/* ---------------------------------------------------------------------- records */

/* What a record says of how the model was loaded. */
typedef struct request {
    const char *name;
    const char *era_word;
    const char *model;
    berthi_era era;
    int32_t dtype;
    int32_t encoding;
    berthi_plan_mode mode;
    bool has_cpu_offload;
    const char *skips[8]; /* the user's */
    uint32_t skip_count;
} request;

static request
read_request(berthi_arena *arena, const placed_record *record)
{
    const char **words = placed_list(arena, placed_words(record, "map"));
    request r = { .name = words[0], .era_word = words[1], .model = words[2] };

    CHECK(berthi_era_can_parse(words[1], &r.era));
    words = placed_list(arena, placed_words(record, "load"));
    r.dtype = berthi_format_dtype_word(words[0]);
    CHECK(berthi_plan_mode_can_parse(words[1], &r.mode));
    r.encoding = strcmp(words[2], "nf4") == 0    ? BERTH_ENCODING_NF4
                 : strcmp(words[2], "int8") == 0 ? BERTH_ENCODING_INT8
                                                 : BERTH_ENCODING_NATIVE;
    for (words += 3; *words != NULL; words++) {
        r.has_cpu_offload = r.has_cpu_offload || strcmp(*words, "cpu-offload") == 0;
        if (strncmp(*words, "skip=", 5) == 0)
            r.skips[r.skip_count++] = *words + 5;
    }
    return r;
}

static bool
is_number(const placed_record *record, const char *word, double value)
{
    const char *const line = placed_line(record, word, 0);

    return line == NULL ? value == 0 : strtod(line, NULL) == value;
}

/* The budgets say what the line says, device by device. */
static void
check_budgets(const char *name, const berthi_budgets *budgets, const char *line)
{
    char device[BERTHI_BUDGET_NAME];
    double expected;

    for (uint32_t i = 0; i < budgets->count; i++)
        if (placed_has_number(line, berthi_budget_name(&budgets->items[i], device),
                              &expected)
            && budgets->items[i].bytes != expected) {
            T_NOTE("%s: %s is %.2f, not %.2f", name, device, budgets->items[i].bytes,
                   expected);
            CHECK(false);
        }
}

static void
check_devices(const char *name, const berthi_imitation *made, const placed_record *record)
{
    const char *const sums = placed_words(record, "bytes");
    const char *const minimum = placed_words(record, "minimum");

    for (uint32_t device = 0; device < made->budgets.count; device++) {
        char word[BERTHI_BUDGET_NAME];
        double expected = 0;
        double bytes = 0;

        berthi_budget_name(&made->budgets.items[device], word);
        for (uint32_t i = 0; i < made->placed_count; i++)
            if (made->placed[i].device == device)
                bytes += made->placed[i].bytes;
        placed_has_number(sums, word, &expected);
        if (bytes != expected)
            T_NOTE("%s: %.2f bytes on %s, not %.2f", name, bytes, word, expected);
        CHECK(bytes == expected);
        expected = 0;
        placed_has_number(minimum, word, &expected);
        CHECK(made->minimum[device] == expected);
    }
}

/* What was refused: in the words of upstream's classes. */
static bool
is_refusal(const berthi_imitation *made, const char *line)
{
    static const char *const dispatched = "ValueError Some modules";

    if (line == NULL)
        return made->refusal == BERTHI_REFUSAL_NONE;
    if (strncmp(line, dispatched, strlen(dispatched)) == 0)
        return made->refusal == BERTHI_REFUSAL_OFFLOAD;
    return strncmp(line, placed_raised(made->refusal), strcspn(line, " ")) == 0
           && made->refusal != BERTHI_REFUSAL_OFFLOAD;
}

/* True when all of the record came out. */
static bool
compare(berthi_arena *arena, const placed_record *record, const request *r,
        const berthi_imitation *made)
{
    const char *const balanced = placed_line(record, "balanced", 0);
    const char *const budget = placed_line(record, "budget", 0);
    const char *difference;
    bool is_same = CHECK(is_refusal(made, placed_line(record, "error", 0)));

    is_same = CHECK(is_number(record, "total", made->total_bytes)) && is_same;
    if (made->refusal == BERTHI_REFUSAL_NUMBER || made->refusal == BERTHI_REFUSAL_DISK)
        return is_same;
    check_budgets(r->name, &made->balanced, balanced);
    check_budgets(r->name, &made->budgets, budget != NULL ? budget : balanced);
    if (placed_line(record, "bytes", 0) != NULL) { /* vectors have neither */
        check_devices(r->name, made, record);
        is_same = CHECK(is_number(record, "buffers", made->buffer_bytes)) && is_same;
    }
    difference = placed_difference(arena, made, record, "on");
    if (difference != NULL)
        T_NOTE("%s: %s", r->name, difference);
    return CHECK(difference == NULL) && is_same;
}

static bool
imitate(berthi_arena *arena, const placed_record *record, const request *r,
        const berthi_count_options *count, const berthi_architecture *model)
{
    berthi_imitate_options options = { .era = r->era, .mode = r->mode };
    berthi_budgets budgets;
    berthi_imitation made;
    berth_error error;
    berthi_tree tree;
    bool is_same;

    if (berthi_budgets_parse(placed_words(record, "memory"), &budgets, &error) != BERTH_OK)
        return CHECK(placed_line(record, "error", 0) != NULL);
    options.budgets = &budgets;
    options.is_quantized = r->encoding != BERTH_ENCODING_NATIVE;
    options.has_cpu_offload = r->has_cpu_offload;
    CHECK_EQ(berthi_tree_count(context, model, count, &tree, &error), BERTH_OK);
    CHECK_EQ(berthi_imitate(context, &tree, &options, &made, &error), BERTH_OK);
    is_same = compare(arena, record, r, &made);
    if (!is_same)
        T_NOTE("%s: total %.2f, refusal %s", r->name, made.total_bytes,
               placed_refusal(made.refusal));
    berthi_imitation_fini(&made);
    berthi_tree_fini(&tree);
    return is_same;
}

/* ------------------------------------------------------------------------ tests */

/* The recorded trees and skip lists: planning alone. */
static bool
plan_tree(berthi_arena *arena, const models *m, const placed_record *record)
{
    const request r = read_request(arena, record);
    const char **const skips = placed_list(arena, placed_words(record, "skips"));
    berthi_count_options count = { .era = r.era, .dtype = r.dtype, .encoding = r.encoding };

    count.has_skips = true;
    count.skips = skips;
    while (skips[count.skip_count] != NULL)
        count.skip_count++;
    return imitate(arena, record, &r, &count,
                   placed_model(arena, find_model(arena, m, r.era_word, r.model), r.era,
                                r.dtype));
}

/* Names and config.json alone: the whole way. */
static bool
plan_checkpoint_as(berthi_arena *arena, const models *m, const placed_record *record,
                   bool has_cpu_offload)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "config.json" };
    request r = read_request(arena, record);
    const placed_record *const model = find_model(arena, m, r.era_word, r.model);
    const char *const config = placed_words(model, "config");
    const berthi_count_options count = {
        .era = r.era,
        .dtype = r.dtype,
        .encoding = r.encoding,
        .has_skips = r.skip_count > 0,
        .skips = r.skips,
        .skip_count = r.skip_count,
    };
    berthi_architecture_options options = {
        .class_name = placed_words(model, "class"),
        .model_type = "",
        .config_file = "config.json",
        .era = r.era,
        .dtype = r.dtype,
    };
    const placed_checkpoint *const held = placed_tensors(arena, model, r.dtype);
    berthi_architecture *made;
    berthi_json *document;
    berth_error error;
    bool is_same;

    r.has_cpu_offload = r.has_cpu_offload || has_cpu_offload;
    CHECK_EQ(berthi_json_parse(context, config, strlen(config), 0, &origin, &document,
                               &error),
             BERTH_OK);
    options.config = berthi_json_root(document);
    CHECK_EQ(berthi_architecture_create(context, &options, &held->source, &made, &error),
             BERTH_OK);
    is_same = imitate(arena, record, &r, &count, made);
    berthi_architecture_destroy(made);
    berthi_json_destroy(document);
    return is_same;
}

static bool
plan_checkpoint(berthi_arena *arena, const models *m, const placed_record *record)
{
    return plan_checkpoint_as(arena, m, record, false);
}

static void
plan_all(bool (*plan)(berthi_arena *, const models *, const placed_record *),
         const char *map_file, const char *model_file, uint32_t expected)
{
    char *const text = placed_file(map_file);
    berthi_arena model_arena;
    placed_record record;
    uint32_t count = 0;
    uint32_t same = 0;
    berthi_arena arena;
    char *at = text;
    models m;

    berthi_arena_init(&model_arena, context, BERTHI_PURPOSE_OBJECT, 65536);
    read_models(&model_arena, model_file, &m);
    for (bool is_read = true; is_read;) {
        berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 1 << 20);
        is_read = placed_read(&arena, &at, &record);
        if (is_read) {
            count++;
            same += plan(&arena, &m, &record);
        }
        berthi_arena_fini(&arena);
    }
    T_NOTE("%u of %u maps are the same", same, count);
    CHECK_EQ(count, expected);
    CHECK_EQ(same, count);
    berthi_arena_fini(&model_arena);
    free(m.text);
    free(text);
}

static void
test_recorded_trees(void)
{
    plan_all(plan_tree, "maps.txt", "models.txt", 180);
}

static void
test_names_and_config(void)
{
    plan_all(plan_checkpoint, "maps.txt", "models.txt", 180);
}

/* Vectors are maps that were planned; what bitsandbytes refuses is among them. */
static bool
plan_vector(berthi_arena *arena, const models *m, const placed_record *record)
{
    return plan_checkpoint_as(arena, m, record, true);
}

static void
test_vectors(void)
{
    plan_all(plan_vector, "vectors.txt", "vector_models.txt", 83);
}

/* ------------------------------------------------------------------ small trees */

/* The line "word DEVICE names", or "word !Error". */
static bool
is_small_map(berthi_arena *arena, const berthi_tree *tree, const placed_record *record,
             const berthi_imitate_options *options, const char *word)
{
    const char *const line = placed_words(record, word);
    const char *difference = NULL;
    berthi_imitation made;
    bool is_same;

    CHECK_EQ(berthi_imitate(context, tree, options, &made, NULL), BERTH_OK);
    is_same = made.refusal == BERTHI_REFUSAL_NONE && *line != '!';
    if (is_same)
        difference = placed_difference(arena, &made, record, word);
    else
        is_same = *line == '!'
                  && strcmp(line + 1, placed_raised(made.refusal)) == 0;
    if (difference != NULL || !is_same)
        T_NOTE("small %s, %s: %s", placed_words(record, "small"), word,
               difference != NULL ? difference : placed_refusal(made.refusal));
    berthi_imitation_fini(&made);
    return CHECK(difference == NULL && is_same);
}

static bool
is_small_balance(const berthi_tree *tree, const placed_record *record,
                 const berthi_imitate_options *options, const char *word)
{
    const char *line = placed_words(record, word);
    berthi_imitate_options balancing = *options;
    berthi_imitation made;
    bool is_same;

    balancing.mode = BERTHI_PLAN_MODE_BALANCED;
    CHECK_EQ(berthi_imitate(context, tree, &balancing, &made, NULL), BERTH_OK);
    if (*line == '!') {
        is_same = made.refusal == BERTHI_REFUSAL_CLASS
                  && strcmp(line + 1, placed_raised(made.refusal)) == 0;
    } else {
        is_same = made.refusal == BERTHI_REFUSAL_NONE
                  || made.refusal == BERTHI_REFUSAL_TIE;
        check_budgets(placed_words(record, "small"), &made.balanced,
                      *line != '\0' ? line : placed_words(record, "memory"));
    }
    if (!is_same)
        T_NOTE("small %s, %s: %s", placed_words(record, "small"), word,
               placed_refusal(made.refusal));
    berthi_imitation_fini(&made);
    return CHECK(is_same);
}

static bool
plan_small(berthi_arena *arena, const placed_record *record, bool is_5x)
{
    const char *word = is_5x ? "map_tf5" : "map_accelerate";
    berthi_imitate_options options = { .era = is_5x ? BERTHI_ERA_HF5_14 : BERTHI_ERA_HF4,
                                       .mode = BERTHI_PLAN_MODE_SEQUENTIAL };
    berthi_budgets budgets;
    berthi_tree tree;
    bool is_same;

    CHECK_EQ(berthi_budgets_parse(placed_words(record, "memory"), &budgets, NULL), BERTH_OK);
    options.budgets = &budgets;
    placed_small(context, arena, record, is_5x, &tree);
    is_same = CHECK(is_number(record, "total", tree.nodes[0].bytes));
    is_same = is_small_balance(&tree, record, &options,
                               is_5x ? "balanced_tf5" : "balanced_accelerate")
              && is_same;
    if (strcmp(placed_words(record, word), "=") == 0)
        word = "map_accelerate";
    is_same = is_small_map(arena, &tree, record, &options, word) && is_same;
    options.has_fallback = true;
    if (!is_5x && placed_line(record, "map_accelerate_fallback", 0) != NULL)
        is_same = is_small_map(arena, &tree, record, &options, "map_accelerate_fallback")
                  && is_same;
    berthi_tree_fini(&tree);
    return is_same;
}

static void
test_small_trees(void)
{
    char *const text = placed_file("small.txt");
    placed_record record;
    uint32_t count = 0;
    uint32_t same = 0;
    berthi_arena arena;
    char *at = text;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 1 << 20);
    for (; placed_read(&arena, &at, &record); count++) {
        const bool is_same = plan_small(&arena, &record, false);

        same += plan_small(&arena, &record, true) && is_same;
    }
    T_NOTE("%u of %u trees are the same", same, count);
    CHECK_EQ(count, 240);
    CHECK_EQ(same, count);
    berthi_arena_fini(&arena);
    free(text);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 99;
    T_RUN(test_small_trees);
    T_RUN(test_recorded_trees);
    T_RUN(test_names_and_config);
    T_RUN(test_vectors);
    berth_context_destroy(context);
    T_MAIN_END;
}
