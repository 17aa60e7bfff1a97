/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers and steps that are refused: each mistake in groups, parameters and options is
 * named, and nothing is changed; groups of callers with other headers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX

static berth_context *context;

/* ------------------------------------------------------------------------- refusals */

/* One thing wrong with an optimizer, and a word of what is said. */
typedef struct refusal {
    const char *word;
    void (*spoil)(berth_optimizer_group *group, berth_parameter *parameter,
                  berth_optimizer_options *options);
} refusal;

static const uint64_t ones[BERTH_MAX_RANK] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};

#define SPOIL(name, change)                                                                \
    static void spoil_##name(berth_optimizer_group *g, berth_parameter *p,                 \
                             berth_optimizer_options *o)                                   \
    {                                                                                      \
        (void)g;                                                                           \
        (void)p;                                                                           \
        (void)o;                                                                           \
        change;                                                                            \
    }

SPOIL(kind, g->kind = 7)
SPOIL(bits, g->bits = 16)
SPOIL(place, g->place = 3)
SPOIL(rate, g->rate = INFINITY)
SPOIL(beta, g->beta2 = 1.0f)
SPOIL(beta3, g->beta3 = -1.0f)
SPOIL(epsilon, g->epsilon = -1.0f)
SPOIL(decay, g->decay = NAN)
SPOIL(alpha, g->alpha = NAN)
SPOIL(name, p->name = "")
SPOIL(same_name, p->name = "second")
SPOIL(latin1, p->name = "couche\xe9.weight")
SPOIL(cut_name, p->name = "poids.\xe2\x82")
SPOIL(shape, p->shape = NULL)
SPOIL(rank, p->rank = BERTH_MAX_RANK + 1)
SPOIL(two_means, (g->kind = BERTH_UPDATE_ADEMAMIX, p->rank = BERTH_MAX_RANK, p->shape = ones))
SPOIL(dtype, p->dtype = BERTH_F64)
SPOIL(values, p->values = NULL)
SPOIL(alignment, p->values = (char *)p->values + 1)
SPOIL(sum, p->sum = (float *)(void *)((char *)p->values + 2))
SPOIL(group, p->group = 1)
SPOIL(device, p->device = 1)
SPOIL(slots, o->slots = 17)
SPOIL(page, o->page_elements = 4095)
SPOIL(large_page, o->page_elements = UINT64_C(1) << 29)
SPOIL(folder, g->place = BERTH_STATES_DISK)

static const refusal refusals[] = {
    { "kind", spoil_kind },         { "bits", spoil_bits },
    { "place", spoil_place },       { "rate", spoil_rate },
    { "beta", spoil_beta },         { "beta", spoil_beta3 },
    { "epsilon", spoil_epsilon },   { "decay", spoil_decay },
    { "alpha", spoil_alpha },       { "name", spoil_name },
    { "two", spoil_same_name },     { "UTF-8", spoil_latin1 },
    { "UTF-8", spoil_cut_name },    { "shape", spoil_shape },
    { "shape", spoil_rank },        { "63 at most", spoil_two_means },
    { "bf16", spoil_dtype },
    { "values", spoil_values },     { "aligned", spoil_alignment },
    { "aligned", spoil_sum },       { "group", spoil_group },
    { "device", spoil_device },     { "16", spoil_slots },
    { "4096", spoil_page },         { "2^28", spoil_large_page },
    { "states_dir", spoil_folder },
};

static void
check_refusal(const refusal *r)
{
    static float values[8192];
    const uint64_t shape[] = { 64, 128 };
    berth_optimizer_group group = trained_adamw();
    berth_parameter parameters[2] = {
        { .name = "first", .shape = shape, .rank = 2, .dtype = BERTH_F32, .values = values },
        { .name = "second", .shape = shape, .rank = 1, .dtype = BERTH_F32, .values = values },
    };
    berth_optimizer_options options;
    berth_optimizer *optimizer = (berth_optimizer *)&group;
    berth_error error;

    berth_optimizer_options_init(&options);
    r->spoil(&group, &parameters[0], &options);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, parameters, 2, &options, &optimizer,
                                    &error),
             BERTH_EINVAL);
    CHECK(optimizer == NULL);
    CHECK_CONTAINS(error.message, r->word);
}

/* Longer than any clock: without an end, as of loads. */
static void
test_waits_without_an_end_are_taken(void)
{
    static float values[8192];
    const uint64_t shape[] = { 64, 128 };
    const berth_optimizer_group group = trained_adamw();
    const berth_parameter parameter = {
        .name = "first", .shape = shape, .rank = 2, .dtype = BERTH_F32, .values = values
    };
    berth_optimizer_options options;
    berth_optimizer *optimizer = NULL;

    berth_optimizer_options_init(&options);
    options.wait_ms = UINT64_MAX;
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                                    NULL),
             BERTH_OK);
    berth_optimizer_destroy(optimizer);
}

/* A name that no file could have is told in characters that any terminal has. */
static void
test_names_are_utf8(void)
{
    static float values[1];
    const berth_optimizer_group group = trained_adamw();
    berth_parameter parameter = {
        .name = "couche\xe9.weight", .dtype = BERTH_F32, .values = values
    };
    berth_optimizer *optimizer = NULL;
    berth_error error;

    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, NULL, &optimizer,
                                    &error),
             BERTH_EINVAL);
    CHECK_STR(error.tensor, "couche\\xe9.weight");
    parameter.name = "couche\xc3\xa9.\"weight\"\t\\";
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, NULL, &optimizer,
                                    &error),
             BERTH_OK);
    berth_optimizer_destroy(optimizer);
}

/* ------------------------------------------------------------------------ other headers */

static const int32_t three_kinds[] = { BERTH_UPDATE_ADAMW, BERTH_UPDATE_LION,
                                       BERTH_UPDATE_ADEMAMIX };

/* Groups as a caller has them whose header makes them so long; the last one says `last`. */
static berth_optimizer_group *
make_groups_of(size_t size, size_t last)
{
    uint8_t *const groups = calloc(3, size); /* nothing behind them can be read unnoticed */

    for (uint32_t i = 0; i < 3; i++) {
        berth_optimizer_group g;

        CHECK_EQ(berth_optimizer_group_init(&g, three_kinds[i]), BERTH_OK);
        g.struct_size = i == 2 ? last : size;
        memcpy(groups + i * size, &g, size < sizeof g ? size : sizeof g);
    }
    return (berth_optimizer_group *)(void *)groups;
}

static berth_status
create_in_groups(const berth_optimizer_group *groups, berth_optimizer **out,
                 berth_error *error)
{
    static const char *const names[] = { "a", "b", "c" };
    static const uint64_t shape[] = { 5000 };
    static float values[3][5000];
    berth_parameter parameters[3];

    for (uint32_t i = 0; i < 3; i++)
        parameters[i] = (berth_parameter){ .name = names[i],
                                           .shape = shape,
                                           .rank = 1,
                                           .dtype = BERTH_F32,
                                           .values = values[i],
                                           .group = i };
    return berth_optimizer_create(context, groups, 3, parameters, 3, NULL, out, error);
}

static void
check_groups_of(size_t size)
{
    berth_optimizer_group *const groups = make_groups_of(size, size);
    berth_optimizer *optimizer = NULL;
    berth_parameter_state state;
    berth_error error;

    if (!CHECK_EQ(create_in_groups(groups, &optimizer, &error), BERTH_OK))
        T_NOTE("%zu: %s", size, error.message);
    for (uint32_t i = 0; i < 3 && optimizer != NULL; i++) {
        CHECK_EQ(berth_optimizer_get(optimizer, i, &state), BERTH_OK);
        CHECK_EQ(state.kind, three_kinds[i]);
        CHECK_EQ(state.bits, 8);
    }
    berth_optimizer_destroy(optimizer);
    free(groups);
}

static void
test_groups_of_other_headers(void)
{
    const size_t mine = sizeof(berth_optimizer_group);
    berth_optimizer *optimizer;
    berth_optimizer_group *groups;
    berth_error error;

    check_groups_of(mine);
    check_groups_of(mine + 16);
    check_groups_of(mine - 32);
    groups = make_groups_of(mine + 16, mine);
    CHECK_EQ(create_in_groups(groups, &optimizer, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "group 2 has another struct_size");
    free(groups);
    groups = make_groups_of(mine + 16, mine + 16);
    memset((uint8_t *)groups + 2 * mine + 16, 1, 16); /* what the second has beyond ours */
    CHECK_EQ(create_in_groups(groups, &optimizer, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "does not know");
    free(groups);
}

/* A header from before AdEMAMix, and one from after this. */
static void
test_groups_are_filled_for_other_headers(void)
{
    const size_t before = offsetof(berth_optimizer_group, beta3);
    const size_t mine = sizeof(berth_optimizer_group);
    berth_optimizer_group groups[2];
    uint8_t *const bytes = (uint8_t *)groups;

    memset(groups, 0xAA, sizeof groups);
    CHECK_EQ(berth_optimizer_group_init_sized(groups, before, BERTH_UPDATE_ADAMW), BERTH_OK);
    CHECK_EQ(groups[0].struct_size, before);
    CHECK_EQ(groups[0].kind, BERTH_UPDATE_ADAMW);
    CHECK(groups[0].beta2 > 0.9f);
    for (size_t i = before; i < mine; i++)
        CHECK_EQ(bytes[i], 0xAA);
    CHECK_EQ(berth_optimizer_group_init_sized(groups, before, BERTH_UPDATE_ADEMAMIX),
             BERTH_EINVAL); /* its slow mean is unknown there */
    CHECK_EQ(groups[0].struct_size, before);
    CHECK_EQ(groups[0].bits, 0);
    CHECK_EQ(berth_optimizer_group_init_sized(groups, mine + 8, BERTH_UPDATE_ADEMAMIX),
             BERTH_OK);
    CHECK_EQ(groups[0].struct_size, mine + 8);
    CHECK_EQ(bytes[mine + 7], 0);
    CHECK_EQ(bytes[mine + 8], 0xAA);
    CHECK_EQ(berth_optimizer_group_init(groups, 7), BERTH_EINVAL);
    CHECK_EQ(groups[0].struct_size, mine);
    CHECK_EQ(groups[0].bits, 0);
}

/* ------------------------------------------------------------------- other refusals */

static void
test_refusals_name_what_is_wrong(void)
{
    const berth_optimizer_group group = trained_adamw();
    berth_optimizer_memory memory;
    berth_optimizer *optimizer;
    berth_optimizer_group other;
    berth_parameter parameter = { .name = "a", .dtype = BERTH_F32 };

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        check_refusal(&refusals[i]);
    CHECK_EQ(berth_optimizer_create(context, NULL, 1, &parameter, 1, NULL, &optimizer, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, NULL, 1, NULL, &optimizer, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 0, NULL, &optimizer, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_create(NULL, &group, 1, &parameter, 1, NULL, &optimizer, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, NULL, NULL, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_plan(context, &group, 1, &parameter, 1, NULL, 1, &memory, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_plan(context, &group, 1, &parameter, 1, NULL, 0, NULL, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_group_init(&other, 7), BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_group_init(&other, -1), BERTH_EINVAL);
    CHECK_STR(berth_update_name(BERTH_UPDATE_LION), "lion");
    CHECK(berth_update_name(7) == NULL);
    CHECK(berth_update_name(-1) == NULL);
    CHECK_EQ(berth_optimizer_step(NULL, NULL, NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_accumulate(NULL, NULL, NULL, NULL), BERTH_EINVAL);
    berth_optimizer_destroy(NULL);
}

static void
refuse_step(trained *t, const berth_gradient *gradients, float scale, float max_norm)
{
    berth_step_options options;

    berth_step_options_init(&options);
    options.scale = scale;
    options.max_norm = max_norm;
    CHECK_EQ(berth_optimizer_step(t->optimizer, gradients, &options, NULL), BERTH_EINVAL);
}

static void
test_steps_are_refused(void)
{
    static const trained_parameter two[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 500, BERTH_F32, BERTH_F32, 0, 0 },
    };
    const berth_optimizer_group g = trained_adamw();
    berth_gradient gradients[TRAINED_MAX];
    berth_parameter_state state;
    berth_error error;
    uint64_t bytes;
    trained t;

    if (trained_open(&t, context, &(trained_options){ .groups = &g,
                                                      .group_count = 1,
                                                      .parameters = two,
                                                      .count = 2 })) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        refuse_step(&t, NULL, 1.0f, 0.0f); /* nothing is added up */
        refuse_step(&t, gradients, 0.0f, 0.0f);
        refuse_step(&t, gradients, NAN, 0.0f);
        refuse_step(&t, gradients, 1.0f, -1.0f);
        refuse_step(&t, gradients, 1.0f, INFINITY);
        gradients[1].dtype = BERTH_F64;
        refuse_step(&t, gradients, 1.0f, 0.0f);
        gradients[1].dtype = BERTH_F32;
        gradients[1].values = (const char *)gradients[1].values + 2;
        refuse_step(&t, gradients, 1.0f, 0.0f);
        CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL),
                 BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 2, 0, &error), BERTH_EINVAL);
        CHECK_STR(error.message, "argument `parameter` is 2, and there are 2");
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, 3, &error), BERTH_EINVAL);
        CHECK_STR(error.message, "argument `place` is none of device, host and disk");
        CHECK_EQ(berth_optimizer_move(NULL, 0, 0, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_DISK, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 2, &state), BERTH_EINVAL);
        trained_check(&t);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_names_are_utf8);
    T_RUN(test_groups_of_other_headers);
    T_RUN(test_groups_are_filled_for_other_headers);
    T_RUN(test_refusals_name_what_is_wrong);
    T_RUN(test_waits_without_an_end_are_taken);
    T_RUN(test_steps_are_refused);
    berth_context_destroy(context);
    T_MAIN_END;
}
