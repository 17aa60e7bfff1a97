/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that an optimizer does not take: each is refused by the name of what is wrong
 * with it, and nothing is changed; files of random damage; and saves and loads in which
 * an allocation, a system call or a device fails.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/core.h"
#include "kernels/tables.h"
#include "loader/optimizer.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define N            UINT64_C(1300) /* elements of "p": 6 blocks */
#define RANDOM_FILES (T_IS_SANITIZED ? 1000u : 4000u)

static const char *folder;
static berth_context *context;

/* ------------------------------------------------------------------- one optimizer */

typedef struct small {
    float values[N];
    float more[10];
    float gradient[N];
    berth_devices *devices;
    berth_optimizer *optimizer;
} small;

static const uint64_t shape[] = {13, 100};
static const uint64_t ten[] = {10};

/* "p" of 13 x 100, and where `count` is 2 also "q" of 10. */
static berth_status
create(small *s, berth_context *with, int32_t kind, int32_t bits, uint32_t count,
       berth_error *error)
{
    const berth_parameter p[] = {
        {.name = "p", .shape = shape, .rank = 2, .dtype = BERTH_F32, .values = s->values},
        {.name = "q", .shape = ten, .rank = 1, .dtype = BERTH_F32, .values = s->more},
    };
    berth_optimizer_group group;

    CHECK_EQ(berth_optimizer_group_init(&group, kind), BERTH_OK);
    group.bits = bits;
    group.least_8bit = 1000;
    return berth_optimizer_create(with, &group, 1, p, count, NULL, &s->optimizer, error);
}

static void
step(small *s)
{
    const berth_gradient gradients[] = {{.values = s->gradient, .dtype = BERTH_F32},
                                        {.values = s->gradient, .dtype = BERTH_F32}};

    for (uint64_t i = 0; i < N; i++)
        s->gradient[i] = (float)(i % 17) - 8.0f;
    CHECK_EQ(berth_optimizer_step(s->optimizer, gradients, NULL, NULL), BERTH_OK);
}

static void
destroy(small *s)
{
    berth_optimizer_destroy(s->optimizer);
    s->optimizer = NULL;
}

/* Of the first parameter: its states as they lie in host memory. */
static uint8_t *
states_of(const small *s)
{
    const berthi_trained_tensor *const p = &s->optimizer->parameters[0];
    const uint64_t bytes = berthi_states_bytes(&p->states);
    uint8_t *const copy = malloc(bytes);

    memcpy(copy, p->memory, bytes);
    return copy;
}

/* They are still these, and the step too. */
static bool
is_unchanged(const small *s, const uint8_t *before, uint64_t steps)
{
    const berthi_trained_tensor *const p = &s->optimizer->parameters[0];

    return memcmp(p->memory, before, berthi_states_bytes(&p->states)) == 0
           && p->step == steps && s->optimizer->step == steps;
}

/* -------------------------------------------------------------------- wrong files */

static void
check_refused(const char *path, int32_t kind, berth_status status, const char *tensor,
              const char *words)
{
    static small s;
    berth_error error;
    uint8_t *before;

    if (!CHECK_EQ(create(&s, context, kind, 8, 1, NULL), BERTH_OK))
        return;
    step(&s);
    before = states_of(&s);
    if (!CHECK_EQ(berth_optimizer_load(s.optimizer, path, &error), status)
        || !CHECK_STR(error.tensor, tensor) || !CHECK_CONTAINS(error.message, words))
        T_NOTE("%s: %s (%s)", error.tensor, error.message, words);
    /* What is said to do is about states, not about a checkpoint's statistics. */
    CHECK(strcmp(tensor, "p") != 0 || error.reason == BERTH_REASON_STATES_FILE);
    CHECK(is_unchanged(&s, before, 1));
    CHECK(!s.optimizer->is_torn);
    step(&s);
    free(before);
    destroy(&s);
}

/* A file of AdamW for "p", in lines; `lines` replace those of the same key. */
static const char *
make(const char *lines)
{
    static const char *const keys[] = {"step",    "state1", "state2", "absmax1",
                                       "absmax2", "qmap1",  "qmap2"};
    static const char *const rest[] = {"I64 -", "U8 13x100", "U8 13x100", "F32 6",
                                       "F32 6", "F32 256",   "F32 256"};
    const char *const path = fixture_format("%s/wrong.safetensors", folder);
    fixture_builder *const b = fixture_begin();
    const uint64_t length = 256;
    const int64_t one = 1;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *const name = fixture_format(" p.%s", keys[i]);
        const char *const found = strstr(lines, name);
        const size_t size = strlen(name);

        if (found != NULL
            && (found[size] == '\n' || found[size] == ' ' || found[size] == 0))
            continue;
        if (i == 0)
            fixture_add(b, "p.step", "I64", 0, NULL, &one);
        else if (i >= 5)
            fixture_add(b, name + 1, "F32", 1, &length,
                        i == 5 ? berthi_signed_map : berthi_unsigned_map);
        else
            fixture_add_lines(b, fixture_format("%s%s\n", rest[i], name));
    }
    /* "- p.key": without it. */
    if (lines[0] != '-')
        fixture_add_lines(b, lines);
    fixture_finish(b, path);
    return path;
}

typedef struct wrong {
    const char *lines;
    const char *words;
} wrong;

/* Without what berth writes but the step. */
#define FOREIGN "@x p.state1 p.state2 p.absmax1 p.absmax2 p.qmap1 p.qmap2 \n"

static const wrong wrongs[] = {
    {"- p.step\n", "step is not in the file"},
    {"- p.state1\n", "state1 is not in the file"},
    {"- p.state2\n", "state2 is not in the file"},
    {"- p.absmax1\n", "absmax1 is not in the file"},
    {"- p.absmax2\n", "absmax2 is not in the file"},
    {"- p.qmap1\n", "qmap1 is not in the file"},
    {"- p.qmap2\n", "qmap2 is not in the file"},
    {"- p.absmax1 p.qmap1 ", "absmax2 is there"},
    {"U8 1300 p.state1\n", "state1 has another shape"},
    {"U8 100x13 p.state1\n", "state1 has another shape"},
    {"U8 13x101 p.state2\n", "state2 has another shape"},
    {"U8 1x13x100 p.state2\n", "state2 has another shape"},
    {"I8 13x100 p.state1\n", "state1 is not of 8 bits"},
    {"F32 13x100 p.state2\n", "state2 is not of 8 bits"},
    {"F16 6 p.absmax1\n", "absmax1 is not f32"},
    {"F32 5 p.absmax1\n", "absmax1 has another shape"},
    {"F32 7 p.absmax2\n", "absmax2 has another shape"},
    {"F32 1x6 p.absmax2\n", "absmax2 has another shape"},
    {"F32 - p.absmax1 = 1\n", "absmax1 has another shape"},
    {"F32 1 p.absmax2\n", "absmax2 has another shape"},
    {"F32 1 p.absmax1\n", "absmax2 has another shape"},
    {"F32 255 p.qmap1 = 0\n", "qmap1 is not 256"},
    {"F32 16x16 p.qmap1 = 0\n", "qmap1 is not 256"},
    {"F16 256 p.qmap2\n", "qmap2 is not 256"},
    {"F32 256 p.qmap2 = 1.5\n", "qmap2 has a number"},
    {"F32 256 p.qmap1 = nan\n", "qmap1 has a number"},
    {"I64 2 p.step\n", "step is not one number"},
    {"I64 1x1 p.step\n", "step is not one number"},
    {"F16 - p.step\n", "step is not one number"},
    {"U64 - p.step\n", "step is not one number"},
    {"F64 - p.step\n", "step is not one number"},
    {"U8 8 p.step = 0\n", "step is not one number"},
    {"I64 0 p.step\n", "step is not one number"},
    {"F32 - p.step = 1.5\n", "step is no number of updates: it is not whole"},
    {"F32 - p.step = -0.5\n", "step is no number of updates: it is not whole"},
    {"F32 - p.step = nan\n", "step is no number of updates: it is not whole"},
    {"F32 - p.step = -1\n", "step is no number of updates: it is negative"},
    {"F32 - p.step = -inf\n", "step is no number of updates: it is negative"},
    {"I32 - p.step = -1\n", "step is no number of updates: it is negative"},
    {"I32 - p.step = -2147483648\n", "step is no number of updates: it is negative"},
    {"I64 - p.step = -1\n", "step is no number of updates: it is negative"},
    {"I64 - p.step = -9223372036854775808\n",
     "step is no number of updates: it is negative"},
    {"F32 - p.step = inf\n", "step is no number of updates: it is more than 2^53"},
    {"F32 - p.step = 1e30\n", "step is no number of updates: it is more than 2^53"},
    {"F32 - p.step = 9007200328482816\n",
     "step is no number of updates: it is more than 2^53"},
    {"I64 - p.step = 9007199254740993\n",
     "step is no number of updates: it is more than 2^53"},
    {"I64 - p.step = 9223372036854775807\n",
     "step is no number of updates: it is more than 2^53"},
    {"U8 * p.x = y\nF32 13x100 p.max_exp_avg_sq\n", "amsgrad"},
    {"@x p.absmax1 p.absmax2 p.qmap1 p.qmap2 \nF64 13x100 p.state1\nF32 13x100 "
     "p.state2\n",
     "state1 is no f32, bf16 or f16"},
    /* By the names that the file has. */
    {FOREIGN "F32 13x101 p.exp_avg\nF32 13x100 p.exp_avg_sq\n",
     "exp_avg has another shape"},
    {FOREIGN "F32 13x100 p.exp_avg\nF64 13x100 p.exp_avg_sq\n",
     "exp_avg_sq is no f32, bf16 or f16"},
    {FOREIGN "F32 13x100 p.exp_avg\n", "state2 is not in the file"},
    {FOREIGN "F32 13x100 p.exp_avg\nF32 13x100 p.exp_avg_sq\nF32 - p.mu_product = 1\n",
     "mu_product is there, and belongs to another optimizer"},
    {"F32 13x100 p.momentum_buffer\n",
     "momentum_buffer is there, and belongs to another optimizer"},
    {"@x p.state1 \nU8 13x101 p.__bnb_optimizer_quant_state__.state1\n",
     "__bnb_optimizer_quant_state__.state1 has another shape"},
    {"@x p.absmax2 \nF32 7 p.__bnb_optimizer_quant_state__.absmax2\n",
     "__bnb_optimizer_quant_state__.absmax2 has another shape"},
    {"@x p.qmap1 \nF32 256 p.__bnb_optimizer_quant_state__.qmap1 = 1.5\n",
     "__bnb_optimizer_quant_state__.qmap1 has a number"},
    {"@berth.optimizer.p lion\n", "state1 is of another optimizer: lion, not adamw"},
    {"@berth.optimizer.p sgd\n", "state1 is of another optimizer: unknown, not adamw"},
};

static void
test_what_is_wrong_is_named(void)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        check_refused(make(wrongs[i].lines), BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "p",
                      wrongs[i].words);
    check_refused(make(""), BERTH_UPDATE_LION, BERTH_EFORMAT, "p", "state2 is there");
    check_refused(make(""), BERTH_UPDATE_ADEMAMIX, BERTH_EFORMAT, "p",
                  "state1 has not twice the parameter's shape");
    check_refused(make("@berth.step 12x\n"), BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "",
                  "berth.step of its metadata");
    check_refused(make("@berth.step -1\n"), BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "",
                  "berth.step of its metadata is no number");
    check_refused(make("@berth.step \n"), BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "",
                  "berth.step of its metadata is no number");
    check_refused(make("@berth.step 99999999999999999999\n"), BERTH_UPDATE_ADAMW,
                  BERTH_EFORMAT, "", "berth.step of its metadata is no number");
    check_refused(make("@berth.step 9007199254740993\n"), BERTH_UPDATE_ADAMW, BERTH_EFORMAT,
                  "", "berth.step of its metadata is no number up to 2^53");
    check_refused(make("@berth.step 18446744073709551615\n"), BERTH_UPDATE_ADAMW,
                  BERTH_EFORMAT, "", "berth.step of its metadata is no number up to 2^53");
    check_refused(make("@berth.crc32 0123\n"), BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "",
                  "those of other tensors");
    check_refused(make("@berth.crc32 "
                       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"),
                  BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "p.step", "is no crc32");
}

/* States of torch's: of another kind, or of one that keeps more than the kind does here. */
static void
test_states_of_other_optimizers(void)
{
    static const struct {
        int32_t kind;
        const char *lines;
        const char *more;
    } others[] = {
        { BERTH_UPDATE_LION, FOREIGN "F32 13x100 p.exp_avg\n", "exp_avg_sq" },
        { BERTH_UPDATE_LION, FOREIGN "F32 13x100 p.exp_avg\n", "exp_inf" },
        { BERTH_UPDATE_RMSPROP, FOREIGN "F32 13x100 p.square_avg\n", "momentum_buffer" },
        { BERTH_UPDATE_RMSPROP, FOREIGN "F32 13x100 p.square_avg\n", "grad_avg" },
        { BERTH_UPDATE_RMSPROP, FOREIGN "F32 13x100 p.square_avg\n", "acc_delta" },
        { BERTH_UPDATE_MOMENTUM, FOREIGN "F32 13x100 p.momentum_buffer\n", "square_avg" },
        { BERTH_UPDATE_ADAGRAD, FOREIGN "F32 13x100 p.sum\n", "exp_avg" },
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_refused(make(fixture_format("%sF32 13x100 p.%s\n", others[i].lines,
                                          others[i].more)),
                      others[i].kind, BERTH_EFORMAT, "p",
                      fixture_format("%s is there, and belongs to another optimizer",
                                     others[i].more));
}

/* Adam's file is AdamW's, and a file without a word about it is anybody's; the optimizer's
 * step is that of its parameters at least. */
static void
test_what_is_right_is_taken(void)
{
    static const struct {
        const char *lines;
        uint64_t step;
        uint64_t all;
    } rights[] = {
        { "", 1, 1 },
        { "@berth.optimizer.p adam\n", 1, 1 },
        { "@berth.optimizer.q lion\n", 1, 1 },
        { "F32 1 p.step = 3\n", 3, 3 },
        { "F32 - p.step = -0.0\n", 0, 0 },
        { "I32 1 p.step = 2147483647\n", 2147483647, 2147483647 },
        { "F32 - p.step = 9007199254740992\n", UINT64_C(1) << 53, UINT64_C(1) << 53 },
        { "I64 1 p.step = 9007199254740992\n", UINT64_C(1) << 53, UINT64_C(1) << 53 },
        { "@berth.step 9007199254740992\n", 1, UINT64_C(1) << 53 },
    };
    static small s;
    berth_error error;

    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 1, NULL), BERTH_OK))
            return;
        s.optimizer->is_torn = true;
        if (!CHECK_EQ(berth_optimizer_load(s.optimizer, make(rights[i].lines), &error),
                      BERTH_OK))
            T_NOTE("%s: %s", error.tensor, error.message);
        CHECK(!s.optimizer->is_torn);
        CHECK_EQ(s.optimizer->parameters[0].step, rights[i].step);
        CHECK_EQ(s.optimizer->step, rights[i].all);
        step(&s); /* and on it goes */
        CHECK_EQ(s.optimizer->parameters[0].step, rights[i].step + 1);
        destroy(&s);
    }
}

/* Loads what these lines make of AdamW's file, and tells the first words of what is said.
 */
static void
check_load(small *s, const char *lines, const char *words)
{
    berth_error error;

    error.message[0] = '\0';
    CHECK_EQ(berth_optimizer_load(s->optimizer, make(lines), &error),
             words[0] == '\0' ? BERTH_OK : BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, words);
    CHECK(!s->optimizer->is_torn);
}

/* More than is counted is not told, and what was saved then is taken again. */
static void
test_counts_have_an_end(void)
{
    static const char *const lines[] = { "I64 - p.step = 9007199254740992\n",
                                         "@berth.step 9007199254740992\n" };
    static const uint64_t steps[] = { UINT64_C(1) << 53, 2 };
    const char *const path = fixture_format("%s/long.safetensors", folder);
    static small s;
    berth_parameter_state state;
    berth_error error;

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 1, NULL), BERTH_OK))
            return;
        CHECK_EQ(berth_optimizer_load(s.optimizer, make(lines[i]), NULL), BERTH_OK);
        step(&s);
        CHECK_EQ(berth_optimizer_save(s.optimizer, path, 1, NULL), BERTH_OK);
        if (!CHECK_EQ(berth_optimizer_load(s.optimizer, path, &error), BERTH_OK))
            T_NOTE("%s: %s", error.tensor, error.message);
        CHECK_EQ(berth_optimizer_get(s.optimizer, 0, &state), BERTH_OK);
        CHECK_EQ(state.step, steps[i]);
        CHECK_EQ(s.optimizer->step, UINT64_C(1) << 53);
        destroy(&s);
    }
}

static void
test_wrong_f32_copies(void)
{
    static small s;
    const berth_parameter p = {
        .name = "p", .shape = shape, .rank = 2, .dtype = BERTH_BF16, .values = s.values};
    berth_optimizer_group group;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    group.least_8bit = 1000;
    group.has_master = 1;
    if (!CHECK_EQ(
            berth_optimizer_create(context, &group, 1, &p, 1, NULL, &s.optimizer, NULL),
            BERTH_OK))
        return;
    check_load(&s, "F32 1300 p.master\n", "master is not f32 in the parameter's shape");
    check_load(&s, "BF16 13x100 p.master\n",
               "master is not f32 in the parameter's shape");
    check_load(&s, "F32 13x100 p.master\n", "");
    check_load(&s, "", "");
    destroy(&s);
    if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 1, NULL), BERTH_OK))
        return;
    check_load(&s, "F32 1300 p.master\n", "");
    check_load(&s, "F32 - p.step = 0\n", "");
    CHECK_EQ(s.optimizer->parameters[0].step, 0);
    destroy(&s);
}

static void
test_two_means_have_a_dimension_of_two(void)
{
    static small s;

    if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_ADEMAMIX, 8, 1, NULL), BERTH_OK))
        return;
    check_load(&s, "U8 3x13x100 p.state1\n", "state1 has not twice");
    check_load(&s, "U8 13x2x100 p.state1\n", "state1 has not twice");
    check_load(&s, "U8 2x13x100 p.state1\n", "absmax1 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 3x6 p.absmax1\n",
               "absmax1 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 2x5 p.absmax1\n",
               "absmax1 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 12 p.absmax1\n",
               "absmax1 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 2x6 p.absmax1\nF32 2x6 p.absmax2\n",
               "absmax2 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 2x6 p.absmax1\nU8 2x13x100 p.state2\n",
               "state2 has another shape");
    check_load(&s, "U8 2x13x100 p.state1\nF32 2x6 p.absmax1\n", "");
    check_load(&s, "U8 2x13x100 p.state1\nF32 2x1 p.absmax1\nF32 1 p.absmax2\n", "");
    destroy(&s);
}

static void
test_other_kinds_of_files(void)
{
    static const char zip[] =
        "PK\003\004archive/data.pkl, and so on, and so on, and so on";
    static const char pickle[] = "\200\002}q\000(X\005\000\000\000stateq\001}q\002X";
    const char *const path = fixture_format("%s/optimizer.pt", folder);

    fixture_write(path, zip, sizeof zip);
    check_refused(path, BERTH_UPDATE_ADAMW, BERTH_EUNSUPPORTED, "", "PyTorch");
    fixture_write(path, pickle, sizeof pickle);
    check_refused(path, BERTH_UPDATE_ADAMW, BERTH_EUNSUPPORTED, "", "pickle");
    check_refused(fixture_format("%s/nothing", folder), BERTH_UPDATE_ADAMW, BERTH_ENOENT,
                  "", "");
}

static void
test_arguments(void)
{
    static small s;

    CHECK_EQ(berth_optimizer_save(NULL, "a", 0, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_load(NULL, "a", NULL), BERTH_EINVAL);
    if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_LION, 8, 1, NULL), BERTH_OK))
        return;
    CHECK_EQ(berth_optimizer_save(s.optimizer, NULL, 0, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_optimizer_load(s.optimizer, NULL, NULL), BERTH_EINVAL);
    s.optimizer->is_torn = true;
    CHECK_EQ(
        berth_optimizer_save(s.optimizer, fixture_format("%s/torn", folder), 0, NULL),
        BERTH_EINVAL);
    destroy(&s);
}

static void
refuse_to_save(const char *path, berth_status status, int32_t reason)
{
    static small s;
    berth_error error;

    if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_LION, 8, 1, NULL), BERTH_OK))
        return;
    if (!CHECK_EQ(berth_optimizer_save(s.optimizer, path, 1, &error), status))
        T_NOTE("%s", error.message);
    CHECK_EQ(error.reason, reason);
    destroy(&s);
}

static void
test_places_that_no_file_can_have(void)
{
    refuse_to_save(fixture_format("%s/missing/states", folder), BERTH_ENOENT,
                   BERTH_REASON_NOT_FOUND);
    refuse_to_save(fixture_folder(), BERTH_ENOENT, BERTH_REASON_NOT_REGULAR);
    refuse_to_save(fixture_format("%s/", folder), BERTH_EINVAL, BERTH_REASON_ARGUMENT);
}

/* ---------------------------------------------------------------------------- names */

#define LONG 100000u

/* Two parameters in this order, saved and loaded. */
static void
check_names(const char *first, const char *second)
{
    const char *const path = fixture_format("%s/names.safetensors", folder);
    const char *const names[] = { first, second };
    static float values[2][10];
    const berth_gradient gradients[] = { { .values = values[0], .dtype = BERTH_F32 },
                                         { .values = values[1], .dtype = BERTH_F32 } };
    berth_optimizer *optimizer = NULL;
    berth_optimizer_group group;
    berth_parameter p[2];
    berth_error error;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++)
        p[i] = (berth_parameter){ .name = names[i], .shape = ten, .rank = 1,
                                  .dtype = BERTH_F32, .values = values[i] };
    if (CHECK_EQ(berth_optimizer_create(context, &group, 1, p, 2, NULL, &optimizer, NULL),
                 BERTH_OK)) {
        CHECK_EQ(berth_optimizer_step(optimizer, gradients, NULL, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_save(optimizer, path, 1, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_step(optimizer, gradients, NULL, NULL), BERTH_OK);
        if (!CHECK_EQ(berth_optimizer_load(optimizer, path, &error), BERTH_OK))
            T_NOTE("%s: %s", error.tensor, error.message);
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(optimizer->parameters[i].step, 1);
    }
    berth_optimizer_destroy(optimizer);
}

/* Whatever its length and its characters, a name that is taken is found again. */
static void
test_names_of_any_kind(void)
{
    char *const name = malloc(LONG + 1);

    memset(name, 'x', LONG);
    name[LONG] = '\0';
    check_names(name, "a");
    check_names("a", name);
    check_names("couche.\xc3\xa9", "\"a\\b\"\t\x01");
    free(name);
}

#define HUGE_NAME (UINT64_C(36) << 20)

/* Readers take no header of more than 100 MB: that is said of names, and nothing is written. */
static void
test_names_of_one_file_have_a_limit(void)
{
    const char *const path = fixture_format("%s/huge.safetensors", folder);
    char *const name = malloc(HUGE_NAME + 1);
    const berth_parameter p = { .name = name, .shape = ten, .rank = 1, .dtype = BERTH_F32,
                                .values = (float[10]){ 0 } };
    berth_optimizer *optimizer = NULL;
    berth_optimizer_group group;
    berth_error error;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    memset(name, 'x', HUGE_NAME);
    name[HUGE_NAME] = '\0';
    if (CHECK_EQ(berth_optimizer_create(context, &group, 1, &p, 1, NULL, &optimizer, NULL),
                 BERTH_OK)) {
        CHECK_EQ(berth_optimizer_save(optimizer, path, 0, NULL), BERTH_EUNSUPPORTED);
        CHECK_EQ(berth_optimizer_save(optimizer, path, 0, &error), BERTH_EUNSUPPORTED);
        CHECK_STR(error.message,
                  "the names of 3 tensors are too many, or too long, for the header of one file");
        CHECK_EQ(error.has & (BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL),
                 BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
        CHECK(error.actual > 3 * HUGE_NAME && error.expected == 100000000);
        CHECK(access(path, F_OK) != 0);
    }
    berth_optimizer_destroy(optimizer);
    free(name);
}

/* As many dimensions as a tensor can have, and one less where two means are one tensor. */
static void
test_dimensions_of_any_number(void)
{
    const char *const path = fixture_format("%s/dimensions.safetensors", folder);
    static float value[1];
    const berth_gradient gradient = { .values = value, .dtype = BERTH_F32 };
    uint64_t ones[BERTH_MAX_RANK];

    for (uint32_t i = 0; i < BERTH_MAX_RANK; i++)
        ones[i] = 1;
    for (int32_t kind = 0; berth_update_name(kind) != NULL; kind++) {
        const berth_parameter p = { .name = "p",
                                    .shape = ones,
                                    .rank = BERTH_MAX_RANK - (kind == BERTH_UPDATE_ADEMAMIX),
                                    .dtype = BERTH_F32,
                                    .values = value };
        berth_optimizer *optimizer = NULL;
        berth_optimizer_group group;

        CHECK_EQ(berth_optimizer_group_init(&group, kind), BERTH_OK);
        group.least_8bit = 0;
        if (CHECK_EQ(berth_optimizer_create(context, &group, 1, &p, 1, NULL, &optimizer, NULL),
                     BERTH_OK)) {
            CHECK_EQ(berth_optimizer_step(optimizer, &gradient, NULL, NULL), BERTH_OK);
            CHECK_EQ(berth_optimizer_save(optimizer, path, 1, NULL), BERTH_OK);
            CHECK_EQ(berth_optimizer_load(optimizer, path, NULL), BERTH_OK);
            CHECK_EQ(optimizer->parameters[0].step, 1);
        }
        berth_optimizer_destroy(optimizer);
    }
}

/* ------------------------------------------------------------------- damaged files */

static const char *
save_one(const char *name, uint32_t count)
{
    const char *const path = fixture_format("%s/%s", folder, name);
    static small s;

    CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, count, NULL), BERTH_OK);
    step(&s);
    CHECK_EQ(berth_optimizer_save(s.optimizer, path, 1, NULL), BERTH_OK);
    destroy(&s);
    return path;
}

static void
test_damage_is_found(void)
{
    const char *const path = save_one("damaged.safetensors", 2);
    const uint64_t size = fixture_size(path);
    berth_checkpoint *file;
    berth_tensor t;

    if (!CHECK_EQ(berth_checkpoint_open(context, path, NULL, &file, NULL), BERTH_OK))
        return;
    for (uint64_t i = 0; berth_checkpoint_tensor(file, i, &t) == BERTH_OK; i++) {
        /* Also what a step or a map could not be. */
        for (unsigned mask = 1; mask < 256; mask <<= 1) {
            fixture_flip(path, t.file_offset + t.bytes - 1, mask);
            check_refused(path, BERTH_UPDATE_ADAMW, BERTH_EINTEGRITY, t.name, "crc32");
            fixture_flip(path, t.file_offset + t.bytes - 1, mask);
        }
    }
    berth_checkpoint_close(file);
    CHECK_EQ(fixture_size(path), size);
}

/* Wherever a file ends early: the first tensor that is not there whole is named. */
static void
test_files_cut_short(void)
{
    const char *const path = save_one("cut.safetensors", 2);
    berth_checkpoint *file;
    uint64_t end = 0;
    berth_tensor t;

    if (!CHECK_EQ(berth_checkpoint_open(context, path, NULL, &file, NULL), BERTH_OK))
        return;
    while (berth_checkpoint_tensor(file, end, &t) == BERTH_OK)
        end++;
    CHECK_GT(end, 8);
    for (uint64_t i = end; i-- > 0;) {
        (void)berth_checkpoint_tensor(file, i, &t);
        for (uint64_t kept = t.bytes; kept > 0; kept = kept == 1 ? 0 : 1) {
            const uint64_t size = t.file_offset + kept - 1;

            fixture_truncate(path, fixture_size(path) - size);
            check_refused(path, BERTH_UPDATE_ADAMW, BERTH_EFORMAT, t.name, "are missing");
        }
    }
    berth_checkpoint_close(file);
    fixture_truncate(path, 1); /* in the header: nothing can be told */
    check_refused(path, BERTH_UPDATE_ADAMW, BERTH_EFORMAT, "", "");
}

/* A parameter that the file does not have. */
static void
test_a_missing_parameter(void)
{
    const char *const path = save_one("one.safetensors", 1);
    static small s;
    berth_error error;
    uint8_t *before;

    if (!CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 2, NULL), BERTH_OK))
        return;
    step(&s);
    step(&s);
    before = states_of(&s);
    CHECK_EQ(berth_optimizer_load(s.optimizer, path, &error), BERTH_EFORMAT);
    CHECK_STR(error.tensor, "q");
    CHECK_STR(error.message, "step is not in the file");
    CHECK(is_unchanged(&s, before, 2));
    free(before);
    destroy(&s);
}

/* Whatever is in a file: it is taken, or nothing is changed. */
static void
test_random_damage(void)
{
    const char *const path = make("");
    static small s;
    size_t size;
    uint8_t *const whole = fixture_read(path, &size);
    uint32_t random = 1;
    uint32_t taken = 0;

    for (uint32_t i = 0; i < RANDOM_FILES; i++) {
        const uint64_t reach = i % 2 == 0 ? 900 : size;
        uint8_t *const bytes = malloc(size);
        uint8_t *before;

        memcpy(bytes, whole, size);
        for (uint32_t k = 0; k <= i % 3; k++) {
            random = random * 1664525u + 1013904223u;
            bytes[random % reach] ^= (uint8_t)(1u << (random >> 29));
        }
        fixture_write(path, bytes, size);
        free(bytes);
        if (!CHECK_EQ(
                create(&s, context, BERTH_UPDATE_ADAMW, i % 5 == 0 ? 32 : 8, 1, NULL),
                BERTH_OK))
            break;
        before = states_of(&s);
        if (berth_optimizer_load(s.optimizer, path, NULL) == BERTH_OK)
            taken++;
        else
            CHECK(is_unchanged(&s, before, 0));
        CHECK(!s.optimizer->is_torn);
        free(before);
        destroy(&s);
    }
    T_NOTE("%u of %u files were taken", taken, RANDOM_FILES);
    free(whole);
}

/* They are these, after so many updates. */
static bool
has_states(const small *s, const uint8_t *states, uint64_t steps)
{
    const berthi_trained_tensor *const p = &s->optimizer->parameters[0];

    return memcmp(p->memory, states, berthi_states_bytes(&p->states)) == 0
           && p->step == steps;
}

/* Whichever byte is another one: what is taken all the same is what was saved. */
static void
test_no_byte_changes_states_unseen(void)
{
    const char *const path = save_one("byte.safetensors", 1);
    static small s;
    uint32_t taken = 0;
    size_t size;
    uint8_t *const bytes = fixture_read(path, &size);
    uint8_t *zero;
    uint8_t *saved;

    CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 1, NULL), BERTH_OK);
    zero = states_of(&s);
    CHECK_EQ(berth_optimizer_load(s.optimizer, path, NULL), BERTH_OK);
    saved = states_of(&s);
    CHECK(!has_states(&s, zero, 0));
    for (size_t i = 0; i < size; i++) {
        berth_status status;

        destroy(&s);
        CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 1, NULL), BERTH_OK);
        bytes[i] ^= (uint8_t)(1u << i % 8);
        fixture_write(path, bytes, size);
        bytes[i] ^= (uint8_t)(1u << i % 8);
        status = berth_optimizer_load(s.optimizer, path, NULL);
        taken += status == BERTH_OK;
        if (!CHECK(status == BERTH_OK ? has_states(&s, saved, 1) : has_states(&s, zero, 0)))
            T_NOTE("byte %zu", i);
    }
    T_NOTE("%u of %zu files were taken", taken, size);
    destroy(&s);
    free(bytes);
    free(zero);
    free(saved);
}

/* ---------------------------------------------------------------------- full disks */

static void
check_same(const char *path, const void *bytes, size_t size)
{
    size_t actual_size;
    void *const actual = fixture_read(path, &actual_size);

    if (CHECK_EQ(actual_size, size))
        CHECK_MEM(actual, bytes, size);
    free(actual);
}

static void
test_a_full_disk_leaves_the_old_file(void)
{
    const char *const path = save_one("full.safetensors", 2);
    const struct rlimit little = {1000, RLIM_INFINITY};
    struct rlimit limit;
    static small s;
    berth_error error;
    size_t size;
    void *const old = fixture_read(path, &size);

    CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 2, NULL), BERTH_OK);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){little.rlim_cur, limit.rlim_max}),
             0);
    CHECK_EQ(berth_optimizer_save(s.optimizer, path, 1, &error), BERTH_EIO);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(error.expected, size);
    check_same(path, old, size);
    free(old);
    destroy(&s);
}

/* -------------------------------------------------------------------------- faults */

static uint32_t
count_entries(const char *path)
{
    DIR *const listing = opendir(path);
    uint32_t count = 0;

    while (readdir(listing) != NULL)
        count++;
    closedir(listing);
    return count - 2;
}

typedef struct files {
    const char *folder;
    const char *path;
    void *old;
    void *new;
    size_t old_size;
    size_t new_size;
} files;

static berth_status
save_again(void *user, berth_context *with, berth_error *error)
{
    const files *const f = user;
    static small s;
    berth_status status;

    fixture_write(f->path, f->old, f->old_size);
    status = create(&s, with, BERTH_UPDATE_ADAMW, 8, 2, error);
    if (status != BERTH_OK)
        return status;
    status = berth_optimizer_save(s.optimizer, f->path, 1, error);
    CHECK_EQ(count_entries(f->folder), 1);
    if (status == BERTH_OK || strcmp(error->message, "flushing the folder failed") == 0)
        check_same(f->path, f->new, f->new_size);
    else
        check_same(f->path, f->old, f->old_size);
    destroy(&s);
    return status;
}

static berth_status
load_again(void *user, berth_context *with, berth_error *error)
{
    const files *const f = user;
    static small s;
    berth_status status = create(&s, with, BERTH_UPDATE_ADAMW, 8, 2, error);
    uint8_t *before;

    if (status != BERTH_OK)
        return status;
    before = states_of(&s);
    status = berth_optimizer_load(s.optimizer, f->path, error);
    if (status == BERTH_OK)
        CHECK(!s.optimizer->is_torn && s.optimizer->step == 1);
    else
        CHECK((s.optimizer->is_torn && status != BERTH_ENOMEM)
              || is_unchanged(&s, before, 0));
    free(before);
    destroy(&s);
    return status;
}

/* What comes before a save or a load. */
static berth_status
only_create(void *user, berth_context *with, berth_error *error)
{
    static small s;
    const berth_status status = create(&s, with, BERTH_UPDATE_ADAMW, 8, 2, error);

    (void)user;
    destroy(&s);
    return status;
}

/* And what a load does first. */
static berth_status
only_open(void *user, berth_context *with, berth_error *error)
{
    const files *const f = user;
    static small s;
    berth_checkpoint *file = NULL;
    berth_status status = create(&s, with, BERTH_UPDATE_ADAMW, 8, 2, error);

    if (status == BERTH_OK)
        status = berth_checkpoint_open(with, f->path, NULL, &file, error);
    berth_checkpoint_close(file);
    destroy(&s);
    return status;
}

static void
test_faults(void)
{
    files f = { .folder = fixture_folder() };
    fault_counts counts;
    static small s;
    uint64_t before;
    uint64_t harmless;

    f.path = fixture_format("%s/states.safetensors", f.folder);
    f.old = fixture_read(save_one("old.safetensors", 2), &f.old_size);
    CHECK_EQ(create(&s, context, BERTH_UPDATE_ADAMW, 8, 2, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_save(s.optimizer, f.path, 1, NULL), BERTH_OK);
    destroy(&s);
    f.new = fixture_read(f.path, &f.new_size);
    /* All of it is survived, alone and with all that follows: there is no save then. */
    before = fault_loop("create", only_create, &f).survived / 2;
    counts = fault_loop("save", save_again, &f);
    /* What test_output.c counts for an existing file. */
    harmless = counts.survived - before - fixture_depth(f.folder);
    CHECK(T_HAS_THREADS_WATCHED || (harmless >= 9 && harmless <= 13));
    fixture_write(f.path, f.old, f.old_size);
    before = fault_loop("open", only_open, &f).survived;
    counts = fault_loop("load", load_again, &f);
    CHECK(T_HAS_THREADS_WATCHED || counts.survived == before);
    free(f.old);
    free(f.new);
}

/* ---------------------------------------------------------------- devices that fail */

/* After a load that has failed, which is what is said where it had begun to change states. */
static void
check_torn(berth_optimizer *optimizer)
{
    berth_gradient gradients[1] = { { .values = NULL } };
    berth_error error;

    if (!optimizer->is_torn)
        return;
    CHECK_EQ(berth_optimizer_save(optimizer, fixture_format("%s/torn", folder), 1, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "an earlier step or load failed half way");
    CHECK_EQ(berth_optimizer_step(optimizer, gradients, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "an earlier step or load failed half way");
}

static berth_status
use_device(void *user, berth_context *with, berth_error *error)
{
    const char *const path = user;
    static uint8_t no_values[1];
    berth_optimizer_options options;
    berth_optimizer_group group;
    berth_parameter p = { .name = "p", .shape = shape, .rank = 2, .dtype = BERTH_F32 };
    berth_devices *devices = NULL;
    berth_optimizer *o = NULL;
    void *values = no_values;
    berthi_device *device;
    berth_status status;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    group.least_8bit = 1000;
    berth_optimizer_options_init(&options);
    status = berth_devices_open(with, "sim:16MiB,h2d=1GB/s,d2h=1GB/s", &devices, error);
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(devices, 0);
    status = device->table->alloc(device, N * sizeof(float), &values, error);
    if (status == BERTH_OK) {
        options.devices = devices;
        p.values = values;
        status = berth_optimizer_create(with, &group, 1, &p, 1, &options, &o, error);
        if (status == BERTH_OK)
            status = berth_optimizer_load(o, path, error);
        if (o != NULL)
            check_torn(o);
        if (status == BERTH_OK)
            status =
                berth_optimizer_save(o, fixture_format("%s/again", folder), 1, error);
        berth_optimizer_destroy(o);
        device->table->free(device, values, N * sizeof(float));
    }
    vacant_close(devices);
    return status;
}

static void
test_devices_that_fail(void)
{
    const char *const path = save_one("device.safetensors", 1);
    size_t size;
    void *bytes;

    fault_loop_devices("load and save", use_device, (void *)(uintptr_t)path);
    bytes = fixture_read(path, &size);
    check_same(fixture_format("%s/again", folder), bytes, size);
    free(bytes);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_what_is_wrong_is_named);
    T_RUN(test_states_of_other_optimizers);
    T_RUN(test_what_is_right_is_taken);
    T_RUN(test_counts_have_an_end);
    T_RUN(test_wrong_f32_copies);
    T_RUN(test_two_means_have_a_dimension_of_two);
    T_RUN(test_other_kinds_of_files);
    T_RUN(test_arguments);
    T_RUN(test_places_that_no_file_can_have);
    T_RUN(test_names_of_any_kind);
    T_RUN(test_names_of_one_file_have_a_limit);
    T_RUN(test_dimensions_of_any_number);
    T_RUN(test_damage_is_found);
    T_RUN(test_files_cut_short);
    T_RUN(test_a_missing_parameter);
    T_RUN(test_random_damage);
    T_RUN(test_no_byte_changes_states_unseen);
    T_RUN(test_a_full_disk_leaves_the_old_file);
    T_RUN(test_faults);
    T_RUN(test_devices_that_fail);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
