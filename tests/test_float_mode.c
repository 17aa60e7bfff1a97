/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_float_mode.c - callers whose threads round upwards, flush what is subnormal, or are ended
 * by NaN: bits are those of anybody else, and nobody's mode changes.
 */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#include "kernels/sys.h"
#include "loader/berth.h"
#include "quant/state.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define ROWS 8u
#define COLUMNS 512u
#define VALUES (ROWS * COLUMNS)
#define INPUTS 2u
#define FLUSHES 0x8040u /* of MXCSR: subnormal inputs and results are 0 */
#define TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW)

typedef enum mode { DEFAULT, UPWARD, FLUSHING, TRAPPING, MODE_COUNT } mode;

static berth_context *context;

/* What all computing makes of the same numbers. */
typedef struct results {
    float updated[VALUES]; /* by AdamW, states of 32 and of 8 bits */
    float state[VALUES];
    uint8_t codes[VALUES / 2];
    uint8_t absmax[VALUES / 64];
    float absmax2[1];
    float recovered[VALUES / 64];
    float back[VALUES];
    float products[INPUTS * ROWS];
    float normed[VALUES];
} results;

static results expected;

/* False: this machine has no such mode. */
static bool
set_mode(mode which)
{
    fesetenv(FE_DFL_ENV);
    if (which == UPWARD)
        return fesetround(FE_UPWARD) == 0;
#if defined __x86_64__
    if (which == FLUSHING)
        _mm_setcsr(_mm_getcsr() | FLUSHES);
    if (which == TRAPPING)
        feenableexcept(TRAPS);
    return true;
#else
    return which == DEFAULT;
#endif
}

static bool
has_mode(mode which)
{
#if defined __x86_64__
    const int exceptions = which == TRAPPING ? TRAPS : 0;

    if ((_mm_getcsr() & FLUSHES) != (which == FLUSHING ? FLUSHES : 0)
        || fegetexcept() != exceptions)
        return false;
#endif
    return fegetround() == (which == UPWARD ? FE_UPWARD : FE_TONEAREST);
}

/* Some of them subnormal, or become so when they are squared. */
static void
fill(float *values, uint32_t seed)
{
    for (uint32_t i = 0; i < VALUES; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = ldexpf((float)(int32_t)seed, i % 5 == 0 ? -150 : i % 3 == 0 ? -95 : -31);
    }
}

static void
update(int32_t bits, const float *gradients, float *values, float *state)
{
    const uint64_t shape[1] = { VALUES };
    berth_gradient gradient = { .values = gradients, .dtype = BERTH_F32 };
    berth_parameter parameter = { .name = "w", .shape = shape, .rank = 1,
                                  .dtype = BERTH_F32, .values = values };
    berth_optimizer_options options;
    berth_optimizer_group group;
    berth_step_options step;
    berth_optimizer *optimizer;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    group.bits = bits;
    berth_optimizer_options_init(&options);
    options.accumulates = 1;
    berth_step_options_init(&step);
    step.max_norm = 0.25f;
    T_REQUIRE(berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                                     NULL)
              == BERTH_OK);
    CHECK_EQ(berth_optimizer_step(optimizer, &gradient, &step, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_accumulate(optimizer, &gradient, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_accumulate(optimizer, &gradient, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_step(optimizer, NULL, &step, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_read(optimizer, 0, 0, 0, VALUES, state, NULL), BERTH_OK);
    berth_optimizer_destroy(optimizer);
}

static void
convert(const float *values, results *r)
{
    const uint64_t shape[2] = { ROWS, COLUMNS };
    berth_values_options options;
    berth_values_buffers buffers;
    berth_values_product product;

    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_NF4;
    options.dtype = BERTH_F32;
    options.shape = shape;
    options.rank = 2;
    options.double_quant = 1;
    berth_values_buffers_init(&buffers);
    buffers.codes = r->codes;
    buffers.codes_bytes = sizeof r->codes;
    buffers.absmax = r->absmax;
    buffers.absmax_bytes = sizeof r->absmax;
    buffers.absmax2 = r->absmax2;
    buffers.absmax2_bytes = sizeof r->absmax2;
    CHECK_EQ(berth_values_quantize(context, &options, values, sizeof r->back, &buffers, NULL),
             BERTH_OK);
    CHECK_EQ(berth_values_recover(context, &options, &buffers, r->recovered,
                                  sizeof r->recovered, NULL),
             BERTH_OK);
    CHECK_EQ(berth_values_dequantize(context, &options, &buffers, r->back, sizeof r->back, NULL),
             BERTH_OK);
    berth_values_product_init(&product);
    product.inputs = values;
    product.inputs_bytes = INPUTS * COLUMNS * sizeof(float);
    product.outputs = r->products;
    product.outputs_bytes = sizeof r->products;
    product.count = INPUTS;
    product.dtype = BERTH_F32;
    CHECK_EQ(berth_values_multiply(context, &options, &buffers, &product, NULL), BERTH_OK);
}

static void
norm(const char *words, const float *values, float *out)
{
    const uint64_t bytes = VALUES * sizeof(float);
    berth_norm step = { .count = ROWS, .columns = COLUMNS, .epsilon = 1e-6f,
                        .inputs_dtype = BERTH_F32, .weight_dtype = BERTH_F32,
                        .dtype = BERTH_F32 };
    berth_devices *devices;
    void *inputs;
    void *outputs;

    T_REQUIRE(berth_devices_open(context, words, &devices, NULL) == BERTH_OK);
    CHECK_EQ(berth_device_alloc(devices, 0, bytes, &inputs, NULL), BERTH_OK);
    CHECK_EQ(berth_device_alloc(devices, 0, bytes, &outputs, NULL), BERTH_OK);
    CHECK_EQ(berth_device_write(devices, 0, inputs, values, bytes, NULL, NULL), BERTH_OK);
    step.inputs = inputs;
    step.weight = inputs;
    step.outputs = outputs;
    CHECK_EQ(berth_device_norm(devices, 0, &step, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_device_read(devices, 0, out, outputs, bytes, NULL, NULL), BERTH_OK);
    berth_device_free(devices, 0, outputs, bytes);
    berth_device_free(devices, 0, inputs, bytes);
    berth_devices_close(devices);
}

/* Everything, with the caller's thread in this mode. */
static void
compute(mode which, const char *words, results *r)
{
    static float values[VALUES];
    static float gradients[VALUES];

    memset(r, 0, sizeof *r);
    fill(values, 1);
    fill(gradients, 2);
    memcpy(r->updated, values, sizeof values);
    set_mode(which);
    update(32, gradients, r->updated, r->state);
    update(8, gradients, r->updated, r->state);
    convert(values, r);
    norm(words, values, r->normed);
    CHECK(has_mode(which));
    set_mode(DEFAULT);
}

static void
test_bits_are_those_of_the_default_mode(void)
{
    static const char *const devices[] = { "cpu", "sim:64MiB", "sim:64MiB,clock=real" };
    static results actual;

    for (int which = DEFAULT; which < MODE_COUNT; which++) {
        const bool is_known = set_mode((mode)which);

        set_mode(DEFAULT);
        for (uint32_t i = 0; is_known && i < sizeof devices / sizeof devices[0]; i++) {
            compute((mode)which, devices[i], &actual);
            CHECK_MEM(actual.updated, expected.updated, sizeof expected.updated);
            CHECK_MEM(actual.state, expected.state, sizeof expected.state);
            CHECK_MEM(actual.codes, expected.codes, sizeof expected.codes);
            CHECK_MEM(actual.absmax, expected.absmax, sizeof expected.absmax);
            CHECK_MEM(actual.absmax2, expected.absmax2, sizeof expected.absmax2);
            CHECK_MEM(actual.recovered, expected.recovered, sizeof expected.recovered);
            CHECK_MEM(actual.back, expected.back, sizeof expected.back);
            CHECK_MEM(actual.products, expected.products, sizeof expected.products);
            CHECK_MEM(actual.normed, expected.normed, sizeof expected.normed);
        }
    }
}

/* What a file of a doubly quantized weight says; the offset is part of each value. */
static float
read_offset(const char *number)
{
    static const berthi_about about = { .file = "f", .tensor = "t", .tensor_length = 1 };
    char text[512];
    berthi_state state;
    const int length =
        snprintf(text, sizeof text,
                 "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
                 "\"shape\": [8, 512], \"nested_blocksize\": 256, "
                 "\"nested_dtype\": \"float32\", \"nested_offset\": %s}",
                 number);

    CHECK_EQ(berthi_state_parse(text, (uint64_t)length, &about, &state, NULL), BERTH_OK);
    return state.offset;
}

/* Between two floats, and beyond them. */
static void
test_numbers_of_files(void)
{
    static const char *const numbers[] = { "0.044628698378801346", "0.04910087600000000123",
                                           "-0.1", "3.4e38", "1e300", "1e-300" };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const float its = read_offset(numbers[i]);

        for (int which = DEFAULT; which < MODE_COUNT; which++) {
            const bool is_known = set_mode((mode)which);
            const float read = is_known ? read_offset(numbers[i]) : its;

            CHECK(has_mode(is_known ? (mode)which : DEFAULT));
            set_mode(DEFAULT);
            CHECK_MEM(&read, &its, sizeof its);
        }
    }
}

static void *
look(void *user)
{
    *(bool *)user = has_mode(DEFAULT);
    return NULL;
}

static void
test_threads_begin_in_the_default_mode(void)
{
    for (int which = DEFAULT; which < MODE_COUNT; which++) {
        bool is_default = false;
        pthread_t thread;

        if (set_mode((mode)which)) {
            T_REQUIRE(berthi_sys_thread_create(&thread, 256 * 1024, look, &is_default) == 0);
            CHECK(has_mode((mode)which));
            pthread_join(thread, NULL);
            CHECK(is_default);
        }
        set_mode(DEFAULT);
    }
}

/* In the mode in which NaN ends the process. */
static void
in_a_child(void (*check)(void *user), void *user)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        set_mode(TRAPPING);
        check(user);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* Steps with a NaN, and all other computing. */
static void
compute_with_nans(void *user)
{
    static float gradients[VALUES];
    static float values[VALUES];
    static float state[VALUES];
    static results r;

    fill(values, 1);
    fill(gradients, 2);
    gradients[7] = NAN;
    gradients[8] = INFINITY;
    (void)read_offset("1e300");
    update(32, gradients, values, state);
    update(8, gradients, values, state);
    convert(gradients, &r);
    norm("cpu", gradients, r.normed);
    (void)user;
}

static void
test_no_exception_ends_the_process(void)
{
    in_a_child(compute_with_nans, NULL);
}

/* ------------------------------------------------------------------ numbers that are none */

static const uint64_t some[1] = { 300 };
static float trained[300];
static const berth_parameter one = { .name = "p", .shape = some, .rank = 1,
                                     .dtype = BERTH_F32, .values = trained };

/* A child has no other way to tell. */
static void
require(bool is_so)
{
    if (!is_so)
        _exit(1);
}

static void
refuse_groups(void *user)
{
    static const size_t numbers[] = {
        offsetof(berth_optimizer_group, rate),    offsetof(berth_optimizer_group, beta1),
        offsetof(berth_optimizer_group, beta2),   offsetof(berth_optimizer_group, epsilon),
        offsetof(berth_optimizer_group, decay),   offsetof(berth_optimizer_group, beta3),
        offsetof(berth_optimizer_group, alpha),
    };
    const float nan = NAN;
    berth_optimizer_memory memory;
    berth_optimizer *optimizer;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        berth_optimizer_group group;

        require(berth_optimizer_group_init(&group, BERTH_UPDATE_ADEMAMIX) == BERTH_OK);
        require(berth_optimizer_create(context, &group, 1, &one, 1, NULL, &optimizer, NULL)
                == BERTH_OK);
        memcpy((uint8_t *)&group + numbers[i], &nan, sizeof nan);
        require(berth_optimizer_plan(context, &group, 1, &one, 1, NULL, 0, &memory, NULL)
                == BERTH_EINVAL);
        require(berth_optimizer_set_group(optimizer, 0, &group, NULL) == BERTH_EINVAL);
        berth_optimizer_destroy(optimizer);
    }
    (void)user;
}

static void
refuse_steps(void *user)
{
    const berth_gradient gradient = { .values = trained, .dtype = BERTH_F32 };
    berth_optimizer_group group;
    berth_optimizer *optimizer;
    berth_step_options step;

    require(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW) == BERTH_OK);
    require(berth_optimizer_create(context, &group, 1, &one, 1, NULL, &optimizer, NULL)
            == BERTH_OK);
    berth_step_options_init(&step);
    step.max_norm = NAN;
    require(berth_optimizer_step(optimizer, &gradient, &step, NULL) == BERTH_EINVAL);
    berth_step_options_init(&step);
    step.scale = NAN;
    require(berth_optimizer_step(optimizer, &gradient, &step, NULL) == BERTH_EINVAL);
    berth_optimizer_destroy(optimizer);
    (void)user;
}

static void
refuse_thresholds(void *user)
{
    static const uint64_t shape[2] = { 1, 4 };
    static const float inputs[4] = { 1, 2, 3, 4 };
    static float outputs[1];
    static uint8_t codes[4];
    static float scales[1];
    berth_values_options options;
    berth_values_buffers buffers;
    berth_values_product product;

    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_INT8;
    options.dtype = BERTH_F32;
    options.shape = shape;
    options.rank = 2;
    berth_values_buffers_init(&buffers);
    buffers.codes = codes;
    buffers.codes_bytes = sizeof codes;
    buffers.absmax = scales;
    buffers.absmax_bytes = sizeof scales;
    berth_values_product_init(&product);
    product.inputs = inputs;
    product.inputs_bytes = sizeof inputs;
    product.outputs = outputs;
    product.outputs_bytes = sizeof outputs;
    product.count = 1;
    product.dtype = BERTH_F32;
    require(berth_values_multiply(context, &options, &buffers, &product, NULL) == BERTH_OK);
    product.threshold = NAN;
    require(berth_values_multiply(context, &options, &buffers, &product, NULL)
            == BERTH_EINVAL);
    (void)user;
}

static void
refuse_differences(void *file)
{
    berth_checkpoint *checkpoint;
    berth_diff_options options;
    berth_job *job;

    require(berth_checkpoint_open(context, file, NULL, &checkpoint, NULL) == BERTH_OK);
    berth_diff_options_init(&options);
    options.has_max_relative = 1;
    options.max_relative = NAN;
    require(berth_diff_start(context, checkpoint, checkpoint, &options, &job, NULL)
            == BERTH_EINVAL);
    berth_checkpoint_close(checkpoint);
}

static void
test_options_that_are_no_numbers(void)
{
    const char *const file = fixture_format("%s/one.safetensors", fixture_folder());
    fixture_builder *const b = fixture_begin();

    fixture_add_lines(b, "F32 2 t\n");
    fixture_finish(b, file);
    in_a_child(refuse_thresholds, NULL);
    in_a_child(refuse_differences, (void *)(uintptr_t)file);
    in_a_child(refuse_groups, NULL);
    in_a_child(refuse_steps, NULL);
}

/* AdamW's states of `one`, with these bits for a step and for each number of a map. */
static void
make_states(const char *path, uint32_t step, uint32_t number)
{
    fixture_builder *const b = fixture_begin();
    const uint64_t length = 256;
    uint32_t map[256];

    for (uint32_t i = 0; i < 256; i++)
        map[i] = number;
    fixture_add(b, "p.step", "F32", 0, NULL, &step);
    fixture_add_lines(b, "U8 300 p.state1\nU8 300 p.state2\nF32 2 p.absmax1\n"
                         "F32 2 p.absmax2\n");
    fixture_add(b, "p.qmap1", "F32", 1, &length, map);
    fixture_add(b, "p.qmap2", "F32", 1, &length, map);
    fixture_finish(b, path);
}

static void
refuse_states(void *path)
{
    berth_optimizer_group group;
    berth_optimizer *optimizer;

    require(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW) == BERTH_OK);
    require(berth_optimizer_create(context, &group, 1, &one, 1, NULL, &optimizer, NULL)
            == BERTH_OK);
    require(berth_optimizer_load(optimizer, path, NULL) == BERTH_EFORMAT);
    berth_optimizer_destroy(optimizer);
}

#define ONE        UINT32_C(0x3F800000)
#define QUIET      UINT32_C(0x7FC00000)
#define SIGNALLING UINT32_C(0x7FA00000)

static void
test_states_that_are_no_numbers(void)
{
    static const uint32_t files[][2] = {
        { QUIET, ONE }, { SIGNALLING, ONE }, { ONE, QUIET }, { ONE, SIGNALLING }
    };
    const char *const path = fixture_format("%s/states.safetensors", fixture_folder());

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        make_states(path, files[i][0], files[i][1]);
        in_a_child(refuse_states, (void *)(uintptr_t)path);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    compute(DEFAULT, "cpu", &expected);
    T_RUN(test_bits_are_those_of_the_default_mode);
    T_RUN(test_no_exception_ends_the_process);
    T_RUN(test_numbers_of_files);
    T_RUN(test_threads_begin_in_the_default_mode);
    T_RUN(test_options_that_are_no_numbers);
    T_RUN(test_states_that_are_no_numbers);
    berth_context_destroy(context);
    T_MAIN_END;
}
