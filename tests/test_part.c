/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part.c - one output by several conversions, one after the other or at once:
 * the files of a single one, and what stands in the way of that.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

static uint64_t
below(uint64_t *state, uint64_t end)
{
    return weights_random(state) % end;
}

/* ----------------------------------------------------------------- one by one */

static berth_status
run_part(converted *c, const char *model, uint32_t part, uint32_t count)
{
    c->options.part = part;
    c->options.part_count = count;
    c->options.join = part == 0;
    c->is_bare = true;
    return converted_run(c, model);
}

static void
shuffle(uint32_t *parts, uint32_t count, uint64_t *state)
{
    for (uint32_t i = 0; i < count; i++)
        parts[i] = i + 1;
    for (uint32_t i = count - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)below(state, i + 1);
        const uint32_t kept = parts[i];

        parts[i] = parts[j];
        parts[j] = kept;
    }
}

/* All parts in some order; the last one joins. Its report is in `c`. */
static bool
is_made_by_parts(converted *c, const char *model, uint32_t count, uint64_t *state)
{
    uint32_t parts[80];
    bool is_good = true;

    shuffle(parts, count, state);
    for (uint32_t i = 0; i < count && is_good; i++) {
        is_good = CHECK_EQ(run_part(c, model, parts[i], count), BERTH_OK)
                  && CHECK_EQ(c->report.parts_missing, count - 1 - i)
                  && CHECK_EQ(c->report.parts_finished, i + 1)
                  && CHECK_EQ(c->report.is_joined, i + 1 == count);
        if (!is_good)
            T_NOTE("part %u of %u: %s %s", parts[i], count, c->error.tensor,
                   c->error.message);
    }
    return is_good;
}

static void
choose_options(converted *c, uint64_t *state)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8, BERTH_ENCODING_NF4 };

    converted_begin(c, fixture_format("%s/out", fixture_folder()),
                    types[below(state, 4)]);
    c->options.double_quant = below(state, 4) > 0 && c->options.type != BERTH_ENCODING_INT8;
    c->options.max_shard_bytes = 4096 + below(state, 3) * below(state, 20000);
    if (below(state, 4) == 0)
        c->options.max_shard_bytes = 0;
    c->options.workers = 1 + (uint32_t)below(state, 3);
    converted_shrink(c, 64u << below(state, 6));
}

/* A conversion as one, then the same by parts. Both are removed. */
static bool
is_same_by_parts(converted *c, const char *model, uint32_t count, uint64_t *state)
{
    const char *const whole = c->options.output;
    const char *const parted = fixture_format("%s/parted", fixture_folder());
    bool is_good = CHECK_EQ(converted_run(c, model), BERTH_OK);

    c->options.output = parted;
    is_good = is_good && is_made_by_parts(c, model, count, state)
              && CHECK(converted_is_same(whole, parted));
    if (!is_good)
        T_NOTE("%s double %d shards of %d by %u parts: %s",
               berth_encoding_name(c->options.type), c->options.double_quant,
               (int)c->options.max_shard_bytes, count, model);
    fixture_remove(whole);
    fixture_remove(parted);
    return is_good;
}

static void
check_random(uint64_t seed, int rounds, bool has_strange_names)
{
    uint64_t state = seed;
    bool is_good = true;
    uint32_t shards = 0;

    for (int round = 0; round < rounds && is_good; round++) {
        const char *const model =
            converted_make_model(weights_random(&state), 1 + (int)below(&state, 6), false,
                                 has_strange_names);
        converted c;

        choose_options(&c, &state);
        if (has_strange_names && c.options.type != BERTH_ENCODING_INT8)
            c.options.double_quant = 1;
        is_good = is_same_by_parts(&c, model, 1 + (uint32_t)below(&state, 7), &state);
        shards += c.report.shards;
        fixture_remove(model);
    }
    T_NOTE("%d conversions, %u shards", rounds, shards);
}

static void
test_random_checkpoints(void)
{
    check_random(11, 60, false);
}

static void
test_strange_names(void)
{
    check_random(12, 60, true);
}

/* More parts than weights: most of them have nothing to do. */
static void
test_more_parts_than_weights(void)
{
    const char *const model = fixture_folder();
    uint64_t state = 13;
    converted c;

    fixture_model(model, "[model.safetensors]\n"
                         "BF16 64x64 model.layers.0.fc1.weight\nF32 4 model.norm.weight\n");
    for (uint32_t count = 9; count <= 80; count += 71) { /* 160 files to be removed */
        converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                        BERTH_ENCODING_NF4);
        is_same_by_parts(&c, model, count, &state);
    }
}

/* Nobody has anything to write, but the file must be there. */
static void
test_no_tensors(void)
{
    const char *const model = fixture_folder();
    uint64_t state = 5;
    converted c;

    fixture_model(model, "[model.safetensors]\n@format pt\n");
    for (uint32_t count = 1; count <= 3; count++) {
        converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                        BERTH_ENCODING_NF4);
        is_same_by_parts(&c, model, count, &state);
    }
}

/* Weights that are stored so already: their states have their lengths from the start. */
static void
test_kept_weights(void)
{
    uint64_t state = 14;
    bool is_good = true;

    for (int round = 0; round < 20 && is_good; round++) {
        const char *const model = converted_make_model(weights_random(&state), 4, false,
                                                       below(&state, 2) > 0);
        const char *const quantized = fixture_format("%s/quantized", fixture_folder());
        converted c;

        converted_begin(&c, quantized, BERTH_ENCODING_NF4);
        c.options.double_quant = 1;
        is_good = CHECK_EQ(converted_run(&c, model), BERTH_OK);
        choose_options(&c, &state);
        c.options.type = BERTH_ENCODING_NF4;
        is_good = is_good && is_same_by_parts(&c, quantized, 4, &state)
                  && CHECK_EQ(c.report.kept > 0, c.options.double_quant);
        fixture_remove(model);
        fixture_remove(quantized);
    }
}

/*
 * Weights that are larger than a shard, and a shard of nothing but their statistics:
 * those of the weight that is converted first stand behind those of the second.
 */
static void
test_statistics_alone(void)
{
    const char *const model = fixture_folder();
    uint64_t state = 15;
    converted c;

    fixture_model(model, "[model.safetensors]\n"
                         "BF16 64x160 model.layers.2.fc1.weight\n"
                         "BF16 64x160 model.layers.10.fc1.weight\n");
    for (uint32_t count = 1; count <= 3; count++) {
        converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                        BERTH_ENCODING_NF4);
        c.options.double_quant = 1;
        c.options.max_shard_bytes = 4096;
        CHECK(is_same_by_parts(&c, model, count, &state));
        CHECK_EQ(c.report.shards, 3);
    }
}

/* ---------------------------------------------------------------------- at once */

/* In a process of its own; only whether it succeeded comes back. */
static pid_t
begin_process(const converted *c, const char *model, uint32_t part, uint32_t count)
{
    const pid_t child = fork();

    if (child == 0) {
        converted mine = *c;
        const berth_status status = run_part(&mine, model, part, count);

        if (status != BERTH_OK)
            fprintf(stderr, "part %u of %u: %s %s\n", part, count, mine.error.file,
                    mine.error.message);
        _exit(status == BERTH_OK ? 0 : 1);
    }
    return child;
}

/* Whoever is last joins; two may think so, and one of them gets the folder. */
static void
test_all_at_once(void)
{
    uint64_t state = 21;

    for (int round = 0; round < 25; round++) {
        const char *const model = converted_make_model(weights_random(&state), 5, false,
                                                       round % 2 > 0);
        const uint32_t count = 2 + (uint32_t)below(&state, 4);
        pid_t children[8];
        bool is_good = true;
        converted c;

        choose_options(&c, &state);
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
            break;
        converted parted = c;
        parted.options.output = fixture_format("%s/parted", fixture_folder());
        for (uint32_t i = 0; i < count; i++)
            children[i] = begin_process(&parted, model, i + 1, count);
        for (uint32_t i = 0; i < count; i++) {
            int status = -1;

            waitpid(children[i], &status, 0);
            is_good = CHECK_EQ(status, 0) && is_good;
        }
        is_good = is_good
                  && CHECK(converted_is_same(c.options.output, parted.options.output));
        fixture_remove(model);
        fixture_remove(c.options.output);
        fixture_remove(parted.options.output);
        if (!is_good)
            break;
    }
}

/* -------------------------------------------------------------- what goes wrong */

/* A model of four weights, and a conversion of it with so many shards. */
static const char *
begin(converted *c, uint64_t shard_bytes)
{
    const char *const model = fixture_folder();
    const char *const lines = "BF16 64x64 model.layers.0.a.weight\n"
                              "BF16 64x64 model.layers.0.b.weight\n"
                              "BF16 64x64 model.layers.0.c.weight\n"
                              "BF16 64x64 model.layers.0.d.weight\n"
                              "F32 4 model.norm.weight\n";

    fixture_model(model, fixture_format("[model.safetensors]\n%s", lines));
    fixture_text(fixture_format("%s/config.json", model), FIXTURE_CONFIG);
    converted_begin(c, fixture_format("%s/out", fixture_folder()), BERTH_ENCODING_NF4);
    c->options.double_quant = 1;
    c->options.max_shard_bytes = shard_bytes;
    return model;
}

static void
test_missing_parts_are_named(void)
{
    converted c;
    const char *const model = begin(&c, 0);

    CHECK_EQ(run_part(&c, model, 0, 4), BERTH_ENOENT);
    CHECK_EQ(c.error.reason, BERTH_REASON_PARTS);
    CHECK_STR(c.error.message, "parts 1, 2, 3 and 4 of 4 are not finished");
    CHECK_EQ(run_part(&c, model, 2, 4), BERTH_OK);
    CHECK_EQ(run_part(&c, model, 4, 4), BERTH_OK);
    CHECK_EQ(c.report.parts_missing, 2);
    CHECK_EQ(c.report.is_joined, 0);
    CHECK_EQ(run_part(&c, model, 0, 4), BERTH_ENOENT);
    CHECK_STR(c.error.message, "parts 1 and 3 of 4 are not finished");
    CHECK_EQ(run_part(&c, model, 3, 4), BERTH_OK);
    CHECK_EQ(run_part(&c, model, 0, 0), BERTH_ENOENT); /* by what lies there */
    CHECK_STR(c.error.message, "part 1 of 4 is not finished");
    CHECK_EQ(run_part(&c, model, 1, 4), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
}

static void
test_long_lists_are_cut(void)
{
    converted c;
    const char *const model = begin(&c, 0);

    CHECK_EQ(run_part(&c, model, 0, 1000), BERTH_ENOENT);
    CHECK(strstr(c.error.message, " and ") != NULL
               || strstr(c.error.message, "parts ") != NULL);
    CHECK_EQ(run_part(&c, model, 0, 0), BERTH_ENOENT);
    CHECK_STR(c.error.message, "no part of this command has finished anything there");
}

static void
check_joined(converted *c, const char *model)
{
    const char *const parted = c->options.output;

    c->copied = 0;
    CHECK_EQ(run_part(c, model, 0, 0), BERTH_OK);
    CHECK_EQ(c->report.is_joined, 1);
    CHECK_EQ(c->copied, 1u << 2); /* the second one, which is mixed */
    c->options.output = fixture_format("%s/whole", fixture_folder());
    c->options.part_count = 0;
    c->options.join = 0;
    CHECK_EQ(converted_run(c, model), BERTH_OK);
    CHECK(converted_is_same(c->options.output, parted));
}

/* A part once more: refused, gone on with, or begun anew. */
static void
test_repeated_part(void)
{
    converted c;
    const char *const model = begin(&c, 4096);
    uint64_t written;

    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    written = c.report.bytes_written;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_EXISTS);
    c.options.resume = 1;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_EQ(c.report.bytes_written, 0);
    CHECK_GE(c.report.bytes_resumed, written); /* states with the room they have */
    CHECK_LT(c.report.bytes_resumed, written + 256);
    c.options.resume = 0;
    c.options.overwrite = 1;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_GT(c.report.bytes_written, 0);
    c.options.overwrite = 0;
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
    c.options.resume = 1;
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK); /* all is there */
    CHECK_EQ(c.report.bytes_written, 0);
    c.options.resume = 0;
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_EINVAL);
    /* Whoever joins what has been joined finds it done; another command finds nothing. */
    CHECK_EQ(run_part(&c, model, 0, 0), BERTH_OK);
    CHECK_EQ(c.report.bytes_written, 0);
    CHECK_EQ(run_part(&c, model, 0, 2), BERTH_OK);
    c.options.block_size = 128;
    CHECK_EQ(run_part(&c, model, 0, 0), BERTH_ENOENT);
    CHECK_EQ(c.error.reason, BERTH_REASON_PARTS);
}

/* What another command, or another number of parts, has left is not mixed in. */
static void
test_other_commands(void)
{
    converted c;
    const char *const model = begin(&c, 0);

    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_EQ(run_part(&c, model, 1, 3), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_EXISTS);
    c.options.block_size = 128;
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(run_part(&c, model, 0, 0), BERTH_ENOENT);
    c.options.part_count = 0;
    c.options.join = 0;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK(strstr(c.error.message, "--join") != NULL);
    c.options.overwrite = 1;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
    /* Nothing is left of the first command. */
    CHECK_EQ(fixture_count(c.options.output), 3);
}

/* One that replaces a model: it stands until the join. */
static void
test_over_an_old_model(void)
{
    converted c;
    const char *const model = begin(&c, 4096);
    const char *const out = c.options.output;

    fixture_model(out, "[model.safetensors]\nF32 4 old\n");
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_EINVAL);
    c.options.overwrite = 1;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_GT(fixture_size(fixture_format("%s/model.safetensors", out)), 0);
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
    c.options.part_count = 0;
    c.options.part = 0;
    c.options.output = fixture_format("%s/whole", fixture_folder());
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK(converted_is_same(c.options.output, out));
}

/* Finished, and then damaged by somebody: never joined. */
static void
test_damaged_parts(void)
{
    converted c;
    const char *const model = begin(&c, 5500); /* a weight lies in two shards */
    const char *const out = c.options.output;
    const char *shared;

    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    shared = fixture_find(out, "-model-00002.safetensors$"); /* a mixed one */
    fixture_flip(shared, fixture_size(shared) / 2, 1);
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_EFORMAT);
    CHECK_EQ(c.error.reason, BERTH_REASON_JOURNAL);
    CHECK(strstr(c.error.message, "is not what part ") != NULL);
    fixture_flip(shared, fixture_size(shared) / 2, 1);
    fixture_truncate(shared, 1);
    CHECK_EQ(run_part(&c, model, 0, 2), BERTH_EFORMAT);
    CHECK_EQ(c.error.reason, BERTH_REASON_JOURNAL);
    fixture_extend(shared, 1);
    check_joined(&c, model);
}

static void
test_damaged_journals(void)
{
    static const char *const notes[] = { "[]", "[0]", "[1]", "[4294967295, 0, 0]",
                                         "[1, 0, 0, 0, 0]" };
    converted c;
    const char *const model = begin(&c, 0);
    const char *journal;
    char *text;

    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    journal = fixture_find(c.options.output, "00001-of-00002.json$");
    text = fixture_read(journal, NULL);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        char *const begin_notes = strstr(text, "\"notes\": ");

        CHECK(begin_notes != NULL);
        fixture_text(journal, fixture_format("%.*s\"notes\": %s}]}\n",
                                             (int)(begin_notes - text), text, notes[i]));
        CHECK_EQ(run_part(&c, model, 2, 2), BERTH_EFORMAT);
        CHECK_EQ(c.error.reason, BERTH_REASON_JOURNAL);
        CHECK_STR(c.error.message, "is not what the journal of the interrupted run says");
        c.options.resume = 1;
    }
    /* Of a file of another length it is not this command's. */
    fixture_text(journal, fixture_format("%.*s\"bytes\": 1, \"notes\": []}]}\n",
                                         (int)(strstr(text, "\"bytes\": ") - text), text));
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_EFORMAT);
    CHECK_STR(c.error.message, "the journal of part 1 is not what this command makes");
    CHECK_EQ(c.report.is_joined, 0);
    fixture_text(journal, text);
    free(text);
    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
}

static void
test_mistakes(void)
{
    converted c;
    const char *const model = begin(&c, 0);

    c.options.part = 3;
    c.options.part_count = 2;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    c.options.part = 0;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    c.options.part = 1;
    c.options.join = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    c.options.join = 0;
    c.options.part_count = 10001;
    CHECK_EQ(converted_run(&c, model), BERTH_EINVAL);
    CHECK(access(c.options.output, F_OK) != 0);
}

/* NaN in weights of several parts: told by each, and by the manifest of all. */
static void
test_nonfinite(void)
{
    const char *const model = converted_make_model(31, 4, true, false);
    uint64_t state = 31;
    converted c;

    converted_begin(&c, fixture_format("%s/out", fixture_folder()), BERTH_ENCODING_NF4);
    c.options.max_shard_bytes = 5000;
    CHECK(is_same_by_parts(&c, model, 3, &state));
    CHECK_GT(c.report.nonfinite_tensors, 0);
}

/* Every part plans the whole output. */
static void
test_dry_run(void)
{
    converted c;
    const char *const model = begin(&c, 4096);
    uint64_t planned;

    c.options.dry_run = 1;
    CHECK_EQ(run_part(&c, model, 2, 3), BERTH_OK);
    planned = c.report.planned_bytes;
    c.options.part = 0;
    c.options.part_count = 0;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(planned, c.report.planned_bytes);
}

/* The last part was killed while it joined: the same command goes on with that. */
static void
test_resumed_join(void)
{
    converted c;
    const char *const model = begin(&c, 5500);
    const char *shared;
    const char *whole;

    CHECK_EQ(run_part(&c, model, 2, 2), BERTH_OK);
    shared = fixture_find(c.options.output, "-model-00002.safetensors$");
    fixture_flip(shared, fixture_size(shared) / 2, 1);
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_EFORMAT);
    fixture_flip(shared, fixture_size(shared) / 2, 1);
    /* The journal of the join, as it stands before it has finished anything. */
    whole = fixture_format("%s/.berth-journal.json", c.options.output);
    fixture_copy(fixture_find(c.options.output, "00001-of-00002.json$"), whole);
    CHECK_EQ(system(fixture_format("sed -i -e 's/part 1 of 2/joined from 2 parts/' "
                                   "-e '/\"files\"/,$d' %s && echo '  \"files\": []}' >> %s",
                                   whole, whole)),
             0);
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_EINVAL);
    c.options.resume = 1;
    CHECK_EQ(run_part(&c, model, 1, 2), BERTH_OK);
    CHECK_EQ(c.report.is_joined, 1);
}

int
main(int argc, char **argv)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_random_checkpoints);
    T_RUN(test_strange_names);
    T_RUN(test_more_parts_than_weights);
    T_RUN(test_no_tensors);
    T_RUN(test_kept_weights);
    T_RUN(test_statistics_alone);
    T_RUN(test_all_at_once);
    T_RUN(test_missing_parts_are_named);
    T_RUN(test_long_lists_are_cut);
    T_RUN(test_repeated_part);
    T_RUN(test_other_commands);
    T_RUN(test_over_an_old_model);
    T_RUN(test_damaged_parts);
    T_RUN(test_damaged_journals);
    T_RUN(test_mistakes);
    T_RUN(test_nonfinite);
    T_RUN(test_dry_run);
    T_RUN(test_resumed_join);
    T_MAIN_END;
}
