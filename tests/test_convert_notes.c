/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_notes.c - notes of finished shards word by word: what is taken from them
 * is what is made of it again, and what cannot be a note is refused.
 */
#include <string.h>

#include "loader/part.h"
#include "tests/t.h"

#define COUNT 4u /* weights of one tensor each, two of them in a shard */
#define BYTES 100u
#define LOW(value) ((uint32_t)(value))
#define HIGH(value) ((uint32_t)((value) >> 32))

static berth_context *context;
static berth_error error;

/* What a conversion knows of them, and nothing else. */
static struct scene {
    berthi_layout_tensor tensors[COUNT + 1]; /* and what could be taken for one */
    berthi_recipe_output outputs[COUNT + 1];
    berthi_recipe_weight weights[COUNT];
    berthi_entry entries[COUNT];
    berthi_shard shards[1];
    berth_checkpoint checkpoint;
    _Atomic uint32_t crcs[COUNT];
    _Atomic uint32_t source_crcs[COUNT];
    bool is_nonfinite[COUNT];
    uint32_t part_of[COUNT];
    uint32_t guesses[COUNT];
    uint32_t lengths[COUNT];
    berthi_convert convert;
} scene;

static void
begin(void)
{
    static const char *const names[COUNT] = { "a", "b", "c", "d" };
    const berthi_layout_options options = { .max_shard_bytes = COUNT / 2 * BYTES };
    berthi_convert *const c = &scene.convert;

    memset(&scene, 0, sizeof scene);
    for (uint32_t i = 0; i < COUNT; i++) {
        scene.tensors[i] = (berthi_layout_tensor){ .name = names[i],
                                                   .name_length = 1,
                                                   .dtype = BERTH_U8,
                                                   .bytes = BYTES };
        scene.outputs[i].weight = i;
        scene.weights[i] = (berthi_recipe_weight){ .tensor = i,
                                                   .name = names[i],
                                                   .name_length = 1,
                                                   .record = BERTHI_NO_RECORD,
                                                   .first_output = i,
                                                   .output_count = 1 };
        scene.part_of[i] = i % 2 + 1;
    }
    scene.outputs[COUNT].role = BERTHI_ROLE_STATE;
    scene.shards[0].file.path = "source";
    scene.checkpoint.table.entries = scene.entries;
    scene.checkpoint.shards = scene.shards;
    c->context = context;
    c->checkpoint = &scene.checkpoint;
    c->recipe.checkpoint = &scene.checkpoint;
    c->recipe.tensors = scene.tensors;
    c->recipe.outputs = scene.outputs;
    c->recipe.weights = scene.weights;
    c->recipe.output_count = COUNT;
    c->recipe.weight_count = COUNT;
    c->crcs = scene.crcs;
    c->sources.crcs.tensors = scene.source_crcs;
    c->is_nonfinite = scene.is_nonfinite;
    CHECK_EQ(berthi_layout_create(context, scene.tensors, COUNT, &options, &c->layout, &error),
             BERTH_OK);
    CHECK_EQ(berthi_layout_shard_count(c->layout), 2);
}

/* As part 1, which has the first weight of each shard. */
static void
begin_part(void)
{
    begin();
    scene.convert.part_of = scene.part_of;
    scene.convert.guesses = scene.guesses;
    scene.convert.lengths = scene.lengths;
    scene.convert.options.part = 1;
    scene.convert.options.part_count = 2;
}

static void
end(void)
{
    berthi_convert *const c = &scene.convert;

    while (c->nonfinite != NULL) {
        berthi_convert_nonfinite *const first = c->nonfinite;

        c->nonfinite = first->next;
        berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, first, sizeof *first);
    }
    berthi_layout_destroy(c->layout);
}

static berth_status
take(uint32_t shard, const uint32_t *words, uint64_t count)
{
    const berthi_writer_file file = { .name = "m", .notes = words, .note_count = count };

    return berthi_convert_take_notes(&scene.convert, shard, &file, &error);
}

static berth_status
take_part(uint32_t shard, const uint32_t *words, uint64_t count)
{
    const berthi_journal_file file = { .name = "m", .notes = words, .note_count = count };

    return berthi_part_take_notes(&scene.convert, 1, shard, &file, &error);
}

/* Counts that 32 bits do not hold, either. */
#define NAN_COUNT UINT64_C(0x0000000300000005)
#define INFINITE_COUNT UINT64_C(0x0000000700000002)

static const uint32_t whole[] = {
    0,                                                                 /* lates */
    1, 3, LOW(NAN_COUNT), HIGH(NAN_COUNT), LOW(INFINITE_COUNT), HIGH(INFINITE_COUNT),
    0xC2, 0xC3,                                                        /* sources */
    0xD2, 0xD3                                                         /* crcs */
};
static const uint32_t of_part[] = {
    1, 2, 0, 0xD2, /* outputs */
    1, 2, LOW(NAN_COUNT), HIGH(NAN_COUNT), LOW(INFINITE_COUNT), HIGH(INFINITE_COUNT),
    0xC2           /* sources */
};
enum { WHOLE = sizeof whole / sizeof *whole, OF_PART = sizeof of_part / sizeof *of_part };

static void
check_nonfinite(uint32_t weight)
{
    const berthi_convert *const c = &scene.convert;

    T_REQUIRE(c->nonfinite != NULL);
    CHECK_EQ(c->nonfinite->weight, weight);
    CHECK_EQ(c->nonfinite->nan, NAN_COUNT);
    CHECK_EQ(c->nonfinite->infinite, INFINITE_COUNT);
    CHECK(c->nonfinite->next == NULL);
    CHECK_EQ(c->report.nonfinite_values, NAN_COUNT + INFINITE_COUNT);
}

static void
test_of_all(void)
{
    berthi_convert_notes notes;

    begin();
    CHECK_EQ(take(1, whole, WHOLE), BERTH_OK);
    check_nonfinite(3);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_EQ(scene.crcs[i], i < 2 ? 0 : 0xD0 + i);
        CHECK_EQ(scene.source_crcs[i], i < 2 ? 0 : 0xC0 + i);
    }
    CHECK_EQ(berthi_convert_make_notes(&scene.convert, 1, &notes, &error), BERTH_OK);
    CHECK_EQ(notes.count, WHOLE);
    CHECK_MEM(notes.words, whole, sizeof whole);
    berthi_convert_free_notes(&scene.convert, &notes);
    CHECK(notes.words == NULL);
    end();
}

static void
test_of_a_part(void)
{
    berthi_convert_notes notes;

    begin_part();
    CHECK_EQ(take_part(1, of_part, OF_PART), BERTH_OK);
    check_nonfinite(2);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_EQ(scene.crcs[i], i == 2 ? 0xD2 : 0);
        CHECK_EQ(scene.source_crcs[i], i == 2 ? 0xC2 : 0);
    }
    CHECK_EQ(berthi_part_make_notes(&scene.convert, 1, &notes, &error), BERTH_OK);
    CHECK_EQ(notes.count, OF_PART);
    CHECK_MEM(notes.words, of_part, sizeof of_part);
    berthi_convert_free_notes(&scene.convert, &notes);
    end();
}

/* Each prefix, and a word too many. */
static void
test_other_lengths(void)
{
    uint32_t more[WHOLE + 1] = { 0 };

    memcpy(more, whole, sizeof whole);
    for (uint64_t i = 0; i <= WHOLE + 1; i++) {
        begin();
        if (!CHECK_EQ(take(1, more, i), i == WHOLE ? BERTH_OK : BERTH_EFORMAT))
            T_NOTE("%d of %d words", (int)i, (int)WHOLE);
        end();
    }
    memcpy(more, of_part, sizeof of_part);
    more[OF_PART] = 0;
    for (uint64_t i = 0; i <= OF_PART + 1; i++) {
        begin_part();
        if (!CHECK_EQ(take_part(1, more, i), i == OF_PART ? BERTH_OK : BERTH_EFORMAT))
            T_NOTE("%d of %d words of a part", (int)i, (int)OF_PART);
        end();
    }
}

/* One word that is another. */
static void
test_wrong_words(void)
{
    static const struct {
        uint32_t place;
        uint32_t word;
        bool is_of_part;
    } cases[] = {
        { 0, 5, false },          /* more lates than there are words */
        { 0, UINT32_MAX, false },
        { 1, 2, false },          /* more weights with NaN */
        { 2, COUNT, false },      /* which is no weight */
        { 0, 4, true },
        { 1, COUNT, true },       /* no output */
        { 1, 1, true },           /* another part's */
        { 2, 1, true },           /* a length of one that is not late */
        { 4, 2, true },
        { 5, COUNT, true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool is_of_part = cases[i].is_of_part;
        uint32_t words[WHOLE];

        memcpy(words, is_of_part ? of_part : whole, is_of_part ? sizeof of_part : sizeof whole);
        words[cases[i].place] = cases[i].word;
        (is_of_part ? begin_part : begin)();
        if (!CHECK_EQ(is_of_part ? take_part(1, words, OF_PART) : take(1, words, WHOLE),
                      BERTH_EFORMAT))
            T_NOTE("case %d", (int)i);
        CHECK_EQ(error.reason, BERTH_REASON_JOURNAL);
        CHECK_STR(error.file, "m");
        end();
    }
}

/* Lengths of states alone are lates, and there are shards that are none. */
static void
test_wrong_lates(void)
{
    static const uint32_t outputs[] = { 2, COUNT, UINT32_MAX };

    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const uint32_t words[] = { 1, outputs[i], BYTES, 0, 1, 2, 3, 4 };

        begin();
        CHECK_EQ(take(1, words, 8), BERTH_EFORMAT);
        end();
    }
    for (uint64_t count = 2; count <= WHOLE; count += WHOLE - 2) {
        begin();
        CHECK_EQ(take(2, count == 2 ? (const uint32_t[]){ 0, 0 } : whole, count),
                 BERTH_EFORMAT);
        end();
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_of_all);
    T_RUN(test_of_a_part);
    T_RUN(test_other_lengths);
    T_RUN(test_wrong_words);
    T_RUN(test_wrong_lates);
    berth_context_destroy(context);
    T_MAIN_END;
}
