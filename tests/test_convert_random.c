/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_random.c - random checkpoints converted in small pieces, against
 * whole tensors converted the slow way; and the same files whatever the pieces,
 * the threads, the ring and the way of reading.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

static uint64_t
below(uint64_t *state, uint64_t end)
{
    return weights_random(state) % end;
}

typedef struct totals {
    uint32_t runs;
    uint32_t weights;
    uint32_t shards;
    uint32_t moves;
    uint32_t redos;
    uint32_t kept;
} totals;

static const char *
describe(const converted *c)
{
    return fixture_format("%s bs %u double %d storage %d dtype %d shards of %d, units of %d",
                          berth_encoding_name(c->options.type), c->options.block_size,
                          c->options.double_quant, c->options.storage, c->options.dtype,
                          (int)c->options.max_shard_bytes, (int)c->sizes.unit_values);
}

static void
choose_options(converted *c, uint64_t *state)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8, BERTH_ENCODING_NF4 };
    static const int32_t dtypes[] = { -1, BERTH_BF16, BERTH_F16, BERTH_F32 };

    converted_begin(c, fixture_format("%s/out", fixture_folder()),
                    types[below(state, 4)]);
    c->options.block_size = 32u << below(state, 8);
    c->options.double_quant = below(state, 4) > 0 && c->options.type != BERTH_ENCODING_INT8;
    c->options.dtype = dtypes[below(state, 4)];
    c->options.max_shard_bytes = 4096 + below(state, 3) * below(state, 20000);
    if (below(state, 8) == 0)
        c->options.max_shard_bytes = 0;
    c->options.workers = 1 + (uint32_t)below(state, 4);
    c->options.io = (int32_t)below(state, 3);
    c->options.no_uring = below(state, 2) > 0;
    converted_shrink(c, 64u << below(state, 6));
    c->options.ring_bytes = 1 + below(state, 100000);
}

/* Several encodings in one model. */
static void
add_rules(converted *c)
{
    const char *const path = fixture_format("%s/rules", fixture_folder());

    fixture_text(path, "int8 *.fc1.weight optional\nfp4 *.fc2.weight optional\n"
                       "keep *.up.weight optional\nnf4 *.out.weight optional\n");
    c->options.rules = path;
}

/* One conversion, with everything there is to say about it. */
static bool
is_right(converted *c, const char *model, totals *t)
{
    int32_t weights;
    bool is_good = CHECK_EQ(converted_run(c, model), BERTH_OK);

    weights = is_good ? converted_matches_oracle(c, model) : -1;
    is_good = is_good && CHECK_GT(weights, 0) && CHECK_GT(c->report.quantized, 0)
              && converted_is_verified(c->options.output)
              && CHECK_LE(c->peak, c->report.planned_memory);
    if (!is_good)
        T_NOTE("%s: %s %s", describe(c), c->error.tensor, c->error.message);
    t->runs++;
    t->weights += weights > 0 ? (uint32_t)weights : 0;
    t->shards += c->report.shards;
    t->moves += c->moves;
    t->redos += c->redos;
    t->kept += c->kept;
    return is_good;
}

static void
tell(const totals *t)
{
    T_NOTE("%u conversions, %u weights, %u shards, %u moved, %u once more, %u with bytes "
           "kept",
           t->runs, t->weights, t->shards, t->moves, t->redos, t->kept);
}

static void
check_random(uint64_t seed, int rounds, bool is_odd, bool has_strange_names)
{
    totals t = { 0 };
    uint64_t state = seed;

    for (int round = 0; round < rounds; round++) {
        const char *const model = converted_make_model(weights_random(&state),
                                             1 + (int)below(&state, 6), is_odd,
                                             has_strange_names);
        converted c;

        choose_options(&c, &state);
        if (has_strange_names && c.options.type != BERTH_ENCODING_INT8)
            c.options.double_quant = 1;
        if (round % 4 == 3)
            add_rules(&c);
        if (!is_right(&c, model, &t)) {
            T_NOTE("round %d, model %s", round, model);
            break;
        }
        fixture_remove(c.options.output);
        fixture_remove(model);
    }
    CHECK_GT(t.kept, 0);
    CHECK_GT(t.redos, 0);
    tell(&t);
}

static void
test_random_checkpoints(void)
{
    check_random(1, 90, false, false);
}

static void
test_odd_values(void)
{
    check_random(2, 50, true, false);
}

/* Lengths that are known only after a later weight. */
static void
test_strange_names(void)
{
    check_random(3, 90, false, true);
}

/*
 * Ten weights whose states are shorter or longer than guessed, then bytes, then
 * many small tensors, whose numbers have four digits or five.
 */
static const char *
make_border_model(float value, uint64_t filler)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    const uint64_t shape[2] = { 2, 3 };
    const float values[6] = { value, value, value, value, value, value };

    for (int i = 0; i < 10; i++)
        fixture_add(b, fixture_format("model.layers.%d.fc1.weight", i), "F32", 2, shape,
                    values);
    fixture_add(b, "model.x", "U8", 1, &filler, NULL);
    for (int i = 0; i < 20; i++)
        fixture_add_lines(b, fixture_format("U8 1 model.y.%02d\n", i));
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

/* Headers of another length than guessed: payloads move, both ways. */
static void
test_moved_shards(void)
{
    static const float values[] = { 0.5f, 1.17e-25f };

    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        totals t = { 0 };

        for (uint64_t filler = 87100; filler < 87900; filler += v > 0 ? 5 : 40) {
            const char *const model = make_border_model(values[v], filler);
            converted c;

            converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                            BERTH_ENCODING_NF4);
            c.options.double_quant = 1;
            if (!is_right(&c, model, &t))
                break;
            fixture_remove(c.options.output);
            fixture_remove(model);
        }
        CHECK_GE(t.moves, 3);
        tell(&t);
    }
}

/* ---------------------------------------------------------------- determinism */

typedef struct way {
    uint64_t unit_values;
    uint64_t ring_bytes;
    uint32_t workers;
    int32_t io;
    int32_t no_uring;
} way;

static const way ways[] = {
    { 2 << 20, 0, 1, BERTH_IO_AUTO, 0 },      { 64, 1, 1, BERTH_IO_BUFFERED, 1 },
    { 64, 1, 2, BERTH_IO_DIRECT, 0 },         { 64, 1, 16, BERTH_IO_AUTO, 1 },
    { 97, 40000, 1, BERTH_IO_DIRECT, 1 },     { 97, 40000, 2, BERTH_IO_BUFFERED, 0 },
    { 97, 40000, 16, BERTH_IO_AUTO, 0 },      { 512, 1 << 20, 1, BERTH_IO_AUTO, 1 },
    { 512, 1 << 20, 2, BERTH_IO_DIRECT, 1 },  { 512, 1 << 20, 16, BERTH_IO_BUFFERED, 0 },
    { 3000, 128 << 20, 2, BERTH_IO_AUTO, 0 }, { 3000, 5 << 20, 16, BERTH_IO_DIRECT, 0 },
    { 1, 0, 16, BERTH_IO_BUFFERED, 1 },       { 1, 0, 1, BERTH_IO_AUTO, 0 },
};

static void
check_ways(int32_t type, int32_t double_quant, uint64_t max_shard_bytes)
{
    const char *const model = converted_make_model(31, 5, true, true);
    const char *first = NULL;
    uint32_t seen[3] = { 0 };

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        converted c;

        converted_begin(&c, fixture_format("%s/out", fixture_folder()), type);
        c.options.double_quant = double_quant;
        c.options.max_shard_bytes = max_shard_bytes;
        c.options.workers = ways[i].workers;
        c.options.ring_bytes = ways[i].ring_bytes;
        c.options.io = ways[i].io;
        c.options.no_uring = ways[i].no_uring;
        converted_shrink(&c, ways[i].unit_values);
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK)
            || !CHECK(first == NULL || converted_is_same(first, c.options.output))) {
            T_NOTE("way %d: %s", (int)i, c.error.message);
            return;
        }
        seen[0] += c.kept;
        seen[1] += c.redos;
        seen[2] += c.moves;
        if (first == NULL)
            first = c.options.output;
        else
            fixture_remove(c.options.output);
    }
    T_NOTE("%d ways give the same %d files; bytes kept %u, once more %u, moved %u",
           (int)(sizeof ways / sizeof ways[0]), fixture_count(first), seen[0],
           seen[1], seen[2]);
}

static void
test_same_files_whatever_the_way(void)
{
    check_ways(BERTH_ENCODING_NF4, 1, 9000);
    check_ways(BERTH_ENCODING_NF4, 0, 5000);
    check_ways(BERTH_ENCODING_INT8, 0, 9000);
    check_ways(BERTH_ENCODING_FP4, 1, 0);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_random_checkpoints);
    T_RUN(test_odd_values);
    T_RUN(test_strange_names);
    T_RUN(test_moved_shards);
    T_RUN(test_same_files_whatever_the_way);
    T_MAIN_END;
}
