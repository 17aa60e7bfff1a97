/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of an optimizer in files: what was saved goes on as if nothing had happened,
 * wherever it lies; the published layout, byte by byte; files of others; and whatever is
 * wrong with a file is named before anything is changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core_optimizer.h"
#include "kernels/digest.h"
#include "kernels/tables.h"
#include "loader/optimizer.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"
#include "tests/vacant.h"

#define ALL UINT32_MAX

static const char *folder;
static berth_context *context;
static char log_lines[4096];

static void
keep_log(void *user, int32_t level, const char *line)
{
    const size_t used = strlen(log_lines);

    (void)user;
    (void)level;
    snprintf(log_lines + used, sizeof log_lines - used, "%s\n", line);
}

static berth_optimizer_options
small_pages(void)
{
    berth_optimizer_options options;

    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 4096;
    return options;
}

/* Another optimizer over the same values, in groups of the same number. */
static bool
replace(trained *t, const berth_optimizer_group *groups, uint32_t group_count)
{
    berth_parameter parameters[TRAINED_MAX];
    berth_optimizer_options options = small_pages();

    berth_optimizer_destroy(t->optimizer);
    t->optimizer = NULL;
    memcpy(t->groups, groups, group_count * sizeof *groups);
    options.devices = t->devices;
    trained_list(t, parameters);
    return CHECK_EQ(berth_optimizer_create(context, groups, group_count, parameters,
                                           t->count, &options, &t->optimizer, NULL),
                    BERTH_OK);
}

static bool
save(const trained *t, const char *path)
{
    berth_error error;
    const bool is_saved =
        CHECK_EQ(berth_optimizer_save(t->optimizer, path, 1, &error), BERTH_OK);

    if (!is_saved)
        T_NOTE("%s", error.message);
    return is_saved;
}

static bool
load(const trained *t, const char *path)
{
    berth_error error;
    const bool is_loaded =
        CHECK_EQ(berth_optimizer_load(t->optimizer, path, &error), BERTH_OK);

    if (!is_loaded)
        T_NOTE("%s: %s", error.tensor, error.message);
    return is_loaded;
}

/* --------------------------------------------------------------------- going on */

static const trained_parameter mixed[] = {
    {4096, BERTH_F32, BERTH_F32, 0, 0},   {4097, BERTH_BF16, BERTH_BF16, 0, 0},
    {999, BERTH_BF16, BERTH_F32, 0, 0},   {9000, BERTH_F16, BERTH_F16, 1, 0},
    {4095, BERTH_BF16, BERTH_BF16, 1, 0}, {8193, BERTH_BF16, BERTH_BF16, 2, 0},
    {8192, BERTH_F32, BERTH_BF16, 2, 0},  {1, BERTH_F32, BERTH_F32, 2, 0},
    {5000, BERTH_F32, BERTH_F32, 3, 0},   {700, BERTH_F16, BERTH_F16, 3, 0},
};
#define MIXED ((uint32_t)(sizeof mixed / sizeof *mixed))

static void
make_groups(berth_optimizer_group groups[4], int32_t place)
{
    groups[0] = trained_group(BERTH_UPDATE_ADAMW, 8, place);
    groups[1] = trained_group(BERTH_UPDATE_LION, 8, place);
    groups[1].has_master = 1;
    groups[2] = trained_group(BERTH_UPDATE_ADEMAMIX, 8, place);
    groups[3] = trained_group(BERTH_UPDATE_ADAM, 32, place);
    groups[3].has_master = 1;
}

static void
check_resume(const char *words, int32_t from, int32_t to)
{
    const char *const path = fixture_format("%s/states.safetensors", folder);
    berth_optimizer_options options = small_pages();
    berth_step_report report;
    berth_step_options step_options;
    berth_optimizer_group groups[4];
    berth_gradient gradients[TRAINED_MAX];
    trained t;

    make_groups(groups, from);
    if (!trained_open(&t, context,
                      &(trained_options){ .devices = words,
                                         .groups = groups,
                                         .group_count = 4,
                                         .parameters = mixed,
                                         .count = MIXED,
                                         .optimizer = &options,
                                         .seed = (uint64_t)(from + 3 * to) }))
        goto end;
    trained_step(&t, ALL, true);
    /* No parameter has as many updates as there are steps. */
    trained_step(&t, 0x155, false);
    trained_step(&t, 0x2AA, true);
    make_groups(groups, to);
    if (!save(&t, path) || !replace(&t, groups, 4) || !load(&t, path))
        goto end;
    trained_check(&t);
    trained_step(&t, 0x155, false);
    trained_step(&t, ALL, true);
    trained_check(&t);
    berth_step_options_init(&step_options);
    step_options.report = &report;
    trained_draw(&t, 1, false);
    trained_gradients(&t, 1, gradients);
    CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &step_options, NULL), BERTH_OK);
    CHECK_EQ(report.step, 6);
end:
    trained_close(&t);
    vacant_check_memory(context);
}

static void
test_goes_on_wherever_it_lies(void)
{
    static const char *const words[] = { NULL, "cpu",
                                         "sim:256MiB,h2d=1GB/s,d2h=1GB/s,backing=sealed" };

    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
            check_resume(words[w], place, place);
            check_resume(words[w], place, (place + 1) % BERTH_STATES_PLACE_COUNT);
        }
}

/* --------------------------------------------------------------------- the layout */

static void
check_tensor(berth_checkpoint *file, const char *name, int32_t dtype, uint32_t rank,
             uint64_t first, uint64_t second, uint64_t offset, const void *bytes,
             uint64_t size)
{
    const uint64_t number = berth_checkpoint_find(file, name, strlen(name));
    uint8_t *const actual = malloc(size);
    berth_tensor t;
    FILE *stream;

    if (!CHECK_NE(number, BERTH_NO_TENSOR)) {
        T_NOTE("%s", name);
        free(actual);
        return;
    }
    CHECK_EQ(berth_checkpoint_tensor(file, number, &t), BERTH_OK);
    CHECK_EQ(t.dtype, dtype);
    CHECK_EQ(t.rank, rank);
    CHECK(rank < 1 || t.shape[0] == first);
    CHECK(rank < 2 || t.shape[1] == second);
    CHECK_LE(offset + size, t.bytes);
    stream = fopen(fixture_format("%s/layout.safetensors", folder), "rb");
    CHECK_EQ(fseek(stream, (long)(t.file_offset + offset), SEEK_SET), 0);
    CHECK_EQ(fread(actual, 1, size, stream), size);
    fclose(stream);
    CHECK_MEM(actual, bytes, size);
    free(actual);
}

static void
check_pair(berth_checkpoint *file, const char *key, const char *value)
{
    for (uint64_t i = 0;; i++) {
        const char *k;
        const char *v;
        size_t k_length;
        size_t v_length;

        if (!CHECK_EQ(berth_checkpoint_metadata(file, 0, i, &k, &k_length, &v, &v_length),
                      BERTH_OK))
            return;
        if (k_length == strlen(key) && memcmp(k, key, k_length) == 0) {
            CHECK_EQ(v_length, strlen(value));
            CHECK_MEM(v, value, v_length);
            return;
        }
    }
}

static void
check_layout(const trained *t, berth_checkpoint *file)
{
    const trained_twin *const w = t->twins;
    const int64_t step = 2;

    /* Lion of 4500 elements with a master, AdEMAMix of 4097, Adam of 300 in 32 bits. */
    check_tensor(file, "layer.0.weight.step", BERTH_I64, 0, 0, 0, 0, &step, 8);
    check_tensor(file, "layer.0.weight.state1", BERTH_U8, 1, 4500, 0, 0,
                 w[0].state[0].codes, 4500);
    check_tensor(file, "layer.0.weight.absmax1", BERTH_F32, 1, 18, 0, 0,
                 w[0].state[0].absmax, 72);
    check_tensor(file, "layer.0.weight.qmap1", BERTH_F32, 1, 256, 0, 0, berthi_signed_map,
                 1024);
    check_tensor(file, "layer.0.weight.master", BERTH_F32, 1, 4500, 0, 0, w[0].master,
                 18000);
    check_tensor(file, "layer.1.weight.state1", BERTH_U8, 2, 2, 4097, 0,
                 w[1].state[0].codes, 4097);
    check_tensor(file, "layer.1.weight.state1", BERTH_U8, 2, 2, 4097, 4097,
                 w[1].state[2].codes, 4097);
    check_tensor(file, "layer.1.weight.absmax1", BERTH_F32, 2, 2, 17, 0,
                 w[1].state[0].absmax, 68);
    check_tensor(file, "layer.1.weight.absmax1", BERTH_F32, 2, 2, 17, 68,
                 w[1].state[2].absmax, 68);
    check_tensor(file, "layer.1.weight.state2", BERTH_U8, 1, 4097, 0, 0,
                 w[1].state[1].codes, 4097);
    check_tensor(file, "layer.1.weight.absmax2", BERTH_F32, 1, 17, 0, 0,
                 w[1].state[1].absmax, 68);
    check_tensor(file, "layer.1.weight.qmap2", BERTH_F32, 1, 256, 0, 0,
                 berthi_unsigned_map, 1024);
    check_tensor(file, "layer.2.weight.state1", BERTH_F32, 1, 300, 0, 0,
                 w[2].state[0].values, 1200);
    check_tensor(file, "layer.2.weight.state2", BERTH_F32, 1, 300, 0, 0,
                 w[2].state[1].values, 1200);
    check_pair(file, "berth.optimizer.layer.0.weight", "lion");
    check_pair(file, "berth.optimizer.layer.1.weight", "ademamix");
    check_pair(file, "berth.optimizer.layer.2.weight", "adam");
    check_pair(file, "berth.step", "2");
    check_pair(file, "format", "pt");
}

static void
check_digests(const char *path, berth_checkpoint *file)
{
    char digits[8 * 32 + 1] = "";
    uint8_t *const bytes = fixture_read(path, NULL);
    berth_tensor t;
    uint64_t count = 0;

    while (berth_checkpoint_tensor(file, count, &t) == BERTH_OK && count < 32) {
        snprintf(digits + 8 * count++, 9, "%08x",
                 (unsigned)berthi_digest_crc32(0, bytes + t.file_offset, t.bytes));
    }
    CHECK_EQ(count, 15);
    check_pair(file, "berth.crc32", digits);
    free(bytes);
}

static const trained_parameter three[] = {
    {4500, BERTH_BF16, BERTH_F32, 0, 0},
    {4097, BERTH_F32, BERTH_F32, 1, 0},
    {300, BERTH_F32, BERTH_F32, 2, 0},
};

static void
test_the_layout_is_the_published_one(void)
{
    const char *const path = fixture_format("%s/layout.safetensors", folder);
    berth_optimizer_options options = small_pages();
    berth_optimizer_group groups[3] = {trained_group(BERTH_UPDATE_LION, 8, 0),
                                       trained_group(BERTH_UPDATE_ADEMAMIX, 8, 0),
                                       trained_group(BERTH_UPDATE_ADAM, 8, 0)};
    berth_open_options strict;
    berth_checkpoint *file = NULL;
    trained t;

    groups[0].has_master = 1;
    berth_open_options_init(&strict);
    strict.strict = 1;
    if (trained_open(&t, context,
                     &(trained_options){ .groups = groups,
                                        .group_count = 3,
                                        .parameters = three,
                                        .count = 3,
                                        .optimizer = &options })) {
        trained_step(&t, ALL, true);
        trained_step(&t, ALL, false);
        if (save(&t, path)
            && CHECK_EQ(berth_checkpoint_open(context, path, &strict, &file, NULL),
                     BERTH_OK)) {
            check_layout(&t, file);
            check_digests(path, file);
        }
        CHECK_EQ(berth_optimizer_save(t.optimizer, path, 0, NULL), BERTH_EINVAL);
    }
    berth_checkpoint_close(file);
    trained_close(&t);
    vacant_check_memory(context);
}

/* ------------------------------------------------------------------- 8 bits and 32 */

static void
check_converted(const trained *t, bool to_8)
{
    const uint32_t states = berthi_update_states((berthi_update_kind)t->groups[0].kind);

    for (uint32_t i = 0; i < t->count; i++)
        for (uint32_t k = 0; k < states; k++) {
            const uint64_t n = t->parameters[i].count;
            const berthi_update_state *const state = &t->twins[i].state[k];
            float *const actual = malloc(n * sizeof *actual);
            float *const expected = malloc(n * sizeof *expected);
            uint8_t *const codes = malloc(n);
            float *const absmax = malloc((n / 256 + 1) * sizeof *absmax);
            berthi_state_arguments a = { .count = n,
                                        .is_signed = k != 1,
                                        .values = expected,
                                        .codes = codes,
                                        .absmax = absmax };

            if (to_8) {
                memcpy(expected, state->values, n * sizeof *expected);
                berthi_encode_state_plainly(&a);
            } else {
                a.codes = state->codes;
                a.absmax = state->absmax;
            }
            berthi_decode_state_plainly(&a);
            CHECK_EQ(berth_optimizer_read(t->optimizer, i, k, 0, n, actual, NULL),
                     BERTH_OK);
            CHECK_MEM(actual, expected, n * sizeof *actual);
            free(actual);
            free(expected);
            free(codes);
            free(absmax);
        }
}

static void
check_conversion(int32_t kind, int32_t from, int32_t to)
{
    static const trained_parameter two[] = {{9001, BERTH_F32, BERTH_F32, 0, 0},
                                            {4096, BERTH_BF16, BERTH_F32, 0, 0}};
    const char *const path = fixture_format("%s/converted.safetensors", folder);
    berth_optimizer_options options = small_pages();
    berth_optimizer_group group = trained_group(kind, from, BERTH_STATES_DISK);
    berth_parameter_state state;
    trained t;

    if (trained_open(&t, context,
                     &(trained_options){ .groups = &group,
                                        .group_count = 1,
                                        .parameters = two,
                                        .count = 2,
                                        .optimizer = &options })) {
        trained_step(&t, ALL, true);
        trained_step(&t, ALL, true);
        group.bits = to;
        if (save(&t, path) && replace(&t, &group, 1) && load(&t, path)) {
            check_converted(&t, to == 8);
            CHECK_EQ(berth_optimizer_get(t.optimizer, 1, &state), BERTH_OK);
            CHECK_EQ(state.step, 2);
            CHECK_EQ(state.bits, to);
        }
    }
    trained_close(&t);
    vacant_check_memory(context);
}

static void
test_8_bits_become_32_and_back(void)
{
    for (int32_t kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++) {
        check_conversion(kind, 8, 32);
        check_conversion(kind, 32, 8);
    }
}

/* A file of an optimizer with f32 copies, and one of an optimizer without. */
static void
test_f32_copies_are_made_or_left(void)
{
    static const trained_parameter one[] = {{5000, BERTH_BF16, BERTH_F32, 0, 0}};
    const char *const path = fixture_format("%s/masters.safetensors", folder);
    berth_optimizer_options options = small_pages();
    berth_optimizer_group group = trained_group(BERTH_UPDATE_LION, 8, BERTH_STATES_HOST);
    trained t;

    if (trained_open(&t, context,
                     &(trained_options){ .groups = &group,
                                        .group_count = 1,
                                        .parameters = one,
                                        .count = 1,
                                        .optimizer = &options })) {
        trained_step(&t, ALL, false);
        group.has_master = 1;
        log_lines[0] = '\0';
        if (save(&t, path) && replace(&t, &group, 1) && load(&t, path)) {
            CHECK_STR(log_lines, "states of 1 parameters have no f32 copy: it is made of "
                                 "the values\n");
            t.twins[0].master = malloc(5000 * sizeof(float));
            for (uint64_t i = 0; i < 5000; i++)
                t.twins[0].master[i] =
                    berthi_core_load(t.twins[0].expected, BERTH_BF16, i);
            trained_step(&t, ALL, false);
            trained_check(&t);
            group.has_master = 0;
            log_lines[0] = '\0';
            if (save(&t, path) && replace(&t, &group, 1) && load(&t, path)) {
                free(t.twins[0].master);
                t.twins[0].master = NULL;
                trained_step(&t, ALL, false);
                trained_check(&t);
            }
        }
    }
    trained_close(&t);
    vacant_check_memory(context);
}

/* What was added up before is of values that are gone. */
static void
test_sums_begin_anew_after_a_load(void)
{
    static const trained_parameter one[] = {{5000, BERTH_F32, BERTH_F32, 0, 0}};
    const char *const path = fixture_format("%s/sums.safetensors", folder);
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8, 0);
    berth_gradient gradients[TRAINED_MAX];
    berth_optimizer_options options = small_pages();
    trained t;

    options.accumulates = 1;
    if (trained_open(&t, context,
                     &(trained_options){ .groups = &group,
                                        .group_count = 1,
                                        .parameters = one,
                                        .count = 1,
                                        .optimizer = &options })) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL), BERTH_OK);
        if (save(&t, path) && load(&t, path)) {
            trained_draw(&t, ALL, false);
            trained_gradients(&t, ALL, gradients);
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL),
                     BERTH_OK);
            CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, NULL, NULL), BERTH_OK);
            trained_expect(&t, ALL, 1.0f);
            trained_check(&t);
        }
    }
    trained_close(&t);
    vacant_check_memory(context);
}

/* ------------------------------------------------------------------ files of others */

#define N 4099u /* elements of the one parameter, "p": 17 blocks of 256, 3 of 2048 */

/* What a file of somebody else holds, and what it comes to. */
typedef struct other {
    uint8_t codes[2][N];
    float absmax[2][17];
    float map[2][256];
    float values[2][N];
} other;

static other *
make_other(uint32_t block, bool has_old_map)
{
    other *const o = calloc(1, sizeof *o);
    uint32_t random = 12345;

    memcpy(o->map[0], berthi_signed_map, sizeof o->map[0]);
    memcpy(o->map[1], berthi_unsigned_map, sizeof o->map[1]);
    if (has_old_map)
        o->map[0][0] = -1.0f;
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < 17; i++)
            o->absmax[k][i] = 0.5f + (float)i;
        for (uint32_t i = 0; i < N; i++) {
            random = random * 1664525u + 1013904223u;
            o->codes[k][i] = i % 256 == 7 ? 255 : (uint8_t)(random >> 24);
            o->values[k][i] = o->map[k][o->codes[k][i]] * o->absmax[k][i / block];
        }
    }
    return o;
}

/* What states of 8 bits become of these numbers, in the first so many tables. */
static void
round_values(other *o, uint32_t tables)
{
    static uint8_t codes[N];
    static float absmax[17];

    for (uint32_t k = 0; k < tables; k++) {
        const berthi_state_arguments a = { .count = N,
                                          .is_signed = k == 0,
                                          .values = o->values[k],
                                          .codes = codes,
                                          .absmax = absmax };

        berthi_encode_state_plainly(&a);
        berthi_decode_state_plainly(&a);
    }
}

static const uint64_t shape_n[] = {N};
static const uint64_t shape_256[] = {256};

static void
add(fixture_builder *b, const char *prefix, const char *key, const char *dtype,
    const uint64_t *shape, const void *data)
{
    fixture_add(b, fixture_format("p.%s%s", prefix, key), dtype, shape != NULL, shape,
                data);
}

static fixture_builder *
begin_coded(const other *o, const char *prefix, uint64_t blocks)
{
    fixture_builder *const b = fixture_begin();

    add(b, prefix, "state1", "U8", shape_n, o->codes[0]);
    add(b, prefix, "state2", "U8", shape_n, o->codes[1]);
    add(b, prefix, "absmax1", "F32", &blocks, o->absmax[0]);
    add(b, prefix, "absmax2", "F32", &blocks, o->absmax[1]);
    add(b, prefix, "qmap1", "F32", shape_256, o->map[0]);
    add(b, prefix, "qmap2", "F32", shape_256, o->map[1]);
    return b;
}

/* The one parameter of these tests. */
typedef struct lonely {
    float values[N];
    berth_optimizer *optimizer;
} lonely;

static berth_status
create_lonely(lonely *l, berth_context *with, int32_t kind, int32_t bits,
              berth_error *error)
{
    const berth_optimizer_group group = trained_group(kind, bits, BERTH_STATES_DEVICE);
    const berth_parameter p = { .name = "p",
                               .shape = shape_n,
                               .rank = 1,
                               .dtype = BERTH_F32,
                               .values = l->values };
    const berth_optimizer_options options = small_pages();

    return berth_optimizer_create(with, &group, 1, &p, 1, &options, &l->optimizer, error);
}

static void
check_numbers(const lonely *l, uint32_t state, const float *expected)
{
    float *const actual = malloc(N * sizeof *actual);

    CHECK_EQ(berth_optimizer_read(l->optimizer, 0, state, 0, N, actual, NULL), BERTH_OK);
    CHECK_MEM(actual, expected, N * sizeof *actual);
    free(actual);
}

static uint64_t
step_of(const lonely *l)
{
    berth_parameter_state state;

    CHECK_EQ(berth_optimizer_get(l->optimizer, 0, &state), BERTH_OK);
    return state.step;
}

static void
check_other(const char *path, int32_t kind, int32_t bits, const other *expected,
            uint64_t step)
{
    static lonely l;
    berth_error error;

    log_lines[0] = '\0';
    if (CHECK_EQ(create_lonely(&l, context, kind, bits, NULL), BERTH_OK)) {
        if (!CHECK_EQ(berth_optimizer_load(l.optimizer, path, &error), BERTH_OK))
            T_NOTE("%s: %s", error.tensor, error.message);
        check_numbers(&l, 0, expected->values[0]);
        if (kind == BERTH_UPDATE_ADAMW)
            check_numbers(&l, 1, expected->values[1]);
        CHECK_EQ(step_of(&l), step);
    }
    berth_optimizer_destroy(l.optimizer);
    l.optimizer = NULL;
}

static void
test_nested_keys_are_found(void)
{
    const char *const path = fixture_format("%s/nested.safetensors", folder);
    other *const o = make_other(256, false);
    fixture_builder *const b = begin_coded(o, "__bnb_optimizer_quant_state__.", 17);
    const int64_t step = 77;

    add(b, "", "step", "I64", NULL, &step);
    fixture_finish(b, path);
    check_other(path, BERTH_UPDATE_ADAMW, 8, o, 77);
    CHECK_STR(log_lines, "");
    check_other(path, BERTH_UPDATE_ADAM, 32, o, 77);
    free(o);
}

/* Two parameters, of which the second is called as what is nested of the first. */
static void
load_two(const char *path, const other *first, const other *second)
{
    static float values[2][N];
    static float read[N];
    const berth_optimizer_group group =
        trained_group(BERTH_UPDATE_ADAMW, 32, BERTH_STATES_DEVICE);
    const berth_optimizer_options options = small_pages();
    const other *const expected[] = {first, second};
    berth_optimizer *optimizer = NULL;
    berth_parameter p[2];
    berth_error error;

    for (uint32_t i = 0; i < 2; i++)
        p[i] = (berth_parameter){ .name = i == 0 ? "p" : "p.__bnb_optimizer_quant_state__",
                                  .shape = shape_n,
                                  .rank = 1,
                                  .dtype = BERTH_F32,
                                  .values = values[i] };
    T_REQUIRE(berth_optimizer_create(context, &group, 1, p, 2, &options, &optimizer, NULL)
              == BERTH_OK);
    log_lines[0] = '\0';
    if (!CHECK_EQ(berth_optimizer_load(optimizer, path, &error), BERTH_OK))
        T_NOTE("%s: %s", error.tensor, error.message);
    CHECK_STR(log_lines, "");
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(berth_optimizer_read(optimizer, i / 2, i % 2, 0, N, read, NULL), BERTH_OK);
        CHECK_MEM(read, expected[i / 2]->values[i % 2], sizeof read);
    }
    berth_optimizer_destroy(optimizer);
}

/* The keys are the second one's: the first has none that are nested. */
static void
test_a_name_that_is_nested_has_its_own_keys(void)
{
    const char *const path = fixture_format("%s/two.safetensors", folder);
    other *const o = make_other(256, false);
    other *const coded = make_other(256, false);
    fixture_builder *const b = begin_coded(coded, "__bnb_optimizer_quant_state__.", 17);
    const int64_t step = 77;

    for (uint32_t i = 0; i < N; i++)
        o->values[0][i] = o->values[1][i] = (float)i;
    add(b, "__bnb_optimizer_quant_state__.", "step", "I64", NULL, &step);
    add(b, "", "state1", "F32", shape_n, o->values[0]);
    add(b, "", "state2", "F32", shape_n, o->values[1]);
    add(b, "", "step", "I64", NULL, &step);
    fixture_finish(b, path);
    load_two(path, o, coded);
    free(coded);
    free(o);
}

static void
test_old_blocks_and_maps_are_encoded_anew(void)
{
    const char *const path = fixture_format("%s/old.safetensors", folder);
    const int32_t step = 5;
    other *o = make_other(2048, false);
    fixture_builder *b = begin_coded(o, "", 3);

    add(b, "", "step", "I32", NULL, &step);
    fixture_finish(b, path);
    check_other(path, BERTH_UPDATE_ADAMW, 32, o, 5);
    round_values(o, 2);
    check_other(path, BERTH_UPDATE_ADAMW, 8, o, 5);
    CHECK_CONTAINS(log_lines, "blocks of 2048");
    free(o);

    o = make_other(256, true);
    b = begin_coded(o, "", 17);
    add(b, "", "step", "I32", NULL, &step);
    fixture_finish(b, path);
    check_other(path, BERTH_UPDATE_ADAMW, 32, o, 5);
    /* The second map is berth's: its codes stay as they are. */
    round_values(o, 1);
    check_other(path, BERTH_UPDATE_ADAMW, 8, o, 5);
    CHECK_CONTAINS(log_lines, "states of 1 parameters have another map");
    free(o);
}

/* Of 1 step the file does not tell. */
static void
check_torch(int32_t kind, const char *first, const char *second, const char *dtype,
            uint32_t steps)
{
    const char *const path = fixture_format("%s/torch.safetensors", folder);
    static const uint64_t one[] = {1};
    other *const o = make_other(256, false);
    fixture_builder *const b = fixture_begin();
    const int32_t stored = strcmp(dtype, "F16") == 0 ? BERTH_F16 : BERTH_BF16;
    const bool is_half = strcmp(dtype, "F32") != 0;
    const float step = (float)steps;
    static uint16_t half[2][N];

    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; is_half && i < N; i++) {
            berthi_core_store(half[k], stored, i, o->values[k][i]);
            o->values[k][i] = berthi_core_load(half[k], stored, i);
        }
    add(b, "", first, dtype, shape_n, is_half ? (void *)half[0] : (void *)o->values[0]);
    if (second != NULL)
        add(b, "", second, dtype, shape_n,
            is_half ? (void *)half[1] : (void *)o->values[1]);
    if (steps != 1)
        add(b, "", "step", "F32", is_half ? one : NULL, &step);
    fixture_add(b, "q.exp_avg", "F32", 1, one, NULL);
    fixture_finish(b, path);
    check_other(path, kind, 32, o, steps);
    CHECK_CONTAINS(log_lines, "1 tensors of the states file belong to no parameter");
    round_values(o, 2);
    check_other(path, kind, 8, o, steps);
    free(o);
}

static void
test_torch_names_are_found(void)
{
    check_torch(BERTH_UPDATE_ADAMW, "exp_avg", "exp_avg_sq", "F32", 1234);
    check_torch(BERTH_UPDATE_ADAM, "exp_avg", "exp_avg_sq", "BF16", 1234);
    check_torch(BERTH_UPDATE_ADAMW, "exp_avg", "exp_avg_sq", "F16", 1234);
    check_torch(BERTH_UPDATE_ADAGRAD, "sum", NULL, "F16", 1234);
    check_torch(BERTH_UPDATE_LION, "exp_avg", NULL, "F32", 1234);
    check_torch(BERTH_UPDATE_MOMENTUM, "momentum_buffer", NULL, "F32", 1234);
    check_torch(BERTH_UPDATE_MOMENTUM, "momentum_buffer", NULL, "F32", 1);
    check_torch(BERTH_UPDATE_RMSPROP, "square_avg", NULL, "BF16", 1234);
    check_torch(BERTH_UPDATE_ADAGRAD, "sum", NULL, "F32", 1234);
}

int
main(int argc, char **argv)
{
    berth_context_options options;

    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    berth_context_options_init(&options);
    options.log = keep_log;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    T_RUN(test_goes_on_wherever_it_lies);
    T_RUN(test_the_layout_is_the_published_one);
    T_RUN(test_8_bits_become_32_and_back);
    T_RUN(test_f32_copies_are_made_or_left);
    T_RUN(test_sums_begin_anew_after_a_load);
    T_RUN(test_nested_keys_are_found);
    T_RUN(test_a_name_that_is_nested_has_its_own_keys);
    T_RUN(test_old_blocks_and_maps_are_encoded_anew);
    T_RUN(test_torch_names_are_found);
    berth_context_destroy(context);
    T_MAIN_END;
}
