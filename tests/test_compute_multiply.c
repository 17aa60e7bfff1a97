/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compute_multiply.c - products with tensors of a model where they lie. What their
 * numbers are is held against the reference library by test_llama_device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/device.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/trap.h"

#define DOWN "model.layers.0.mlp.down_proj.weight"
#define GATE "model.layers.0.mlp.gate_proj.weight"
#define UP "model.layers.0.mlp.up_proj.weight"
#define NORM "model.layers.0.input_layernorm.weight"
#define ROWS 256u
#define COLUMNS 704u
#define MOST 40u /* inputs: more than one operation of 4 bits takes */

#define HERE "0=64MiB,cpu=1GiB"
#define GPU "sim:64MiB,backing=sealed" /* the host cannot touch its memory */

/* What a product is made in: memory of one device. */
typedef struct room {
    loaded l;
    berth_devices *devices; /* the model's; for host memory others */
    uint64_t berth;
    uint64_t scratch_bytes;
    char *memory;
    float *inputs;
    float *outputs;
    void *bias;
    char *scratch;
} room;

#define INPUTS_BYTES (UINT64_C(4) * MOST * COLUMNS)
#define OUTPUTS_BYTES (UINT64_C(4) * MOST * ROWS)
#define BIAS_BYTES UINT64_C(1024)
#define SCRATCH_BYTES (UINT64_C(1) << 20)
#define ROOM_BYTES (INPUTS_BYTES + OUTPUTS_BYTES + BIAS_BYTES + SCRATCH_BYTES)

static float
input_of(uint32_t input, uint32_t column)
{
    return (float)((int)((input * 31 + column * 7) % 29) - 14) / 16.0f;
}

/* On a device, or (words NULL) in host memory. False: nothing was loaded. */
static bool
begin(room *r, int32_t type, bool is_double, const char *max_memory, const char *words,
      const char *pin)
{
    berth_plan_options options = loaded_options(max_memory);
    float *const inputs = malloc(INPUTS_BYTES);

    memset(r, 0, sizeof *r);
    options.type = type;
    options.double_quant = is_double && type != BERTH_ENCODING_INT8;
    options.pins = &pin;
    options.pin_count = pin != NULL;
    loaded_begin(&r->l, loaded_llama(1, "BF16", 1), &options, words);
    loaded_load(&r->l);
    if (!CHECK_EQ(r->l.status, BERTH_OK)) {
        free(inputs);
        return false;
    }
    r->devices = r->l.devices;
    if (words == NULL)
        CHECK_EQ(berth_devices_open(r->l.p.context, "cpu", &r->devices, NULL), BERTH_OK);
    r->berth = berth_model_find(r->l.model, DOWN, strlen(DOWN));
    CHECK_EQ(berth_device_alloc(r->devices, 0, ROOM_BYTES, (void **)&r->memory, NULL),
             BERTH_OK);
    r->inputs = (float *)(void *)r->memory;
    r->outputs = (float *)(void *)(r->memory + INPUTS_BYTES);
    r->bias = r->memory + INPUTS_BYTES + OUTPUTS_BYTES;
    r->scratch = r->memory + INPUTS_BYTES + OUTPUTS_BYTES + BIAS_BYTES;
    for (uint32_t i = 0; i < MOST * COLUMNS; i++)
        inputs[i] = input_of(i / COLUMNS, i % COLUMNS);
    CHECK_EQ(berth_device_write(r->devices, 0, r->inputs, inputs, INPUTS_BYTES, NULL, NULL),
             BERTH_OK);
    r->scratch_bytes = berth_model_multiply_scratch(r->l.model, r->berth, BERTH_F32, MOST);
    CHECK(r->scratch_bytes <= SCRATCH_BYTES);
    free(inputs);
    return true;
}

static void
end(room *r)
{
    berth_device_free(r->devices, 0, r->memory, ROOM_BYTES);
    if (r->devices != r->l.devices)
        berth_devices_close(r->devices);
    loaded_unload(&r->l);
    loaded_end(&r->l);
}

static berth_multiply
step_of(const room *r, uint32_t first, uint32_t count)
{
    return (berth_multiply){ .inputs = r->inputs + (size_t)first * COLUMNS,
                             .outputs = r->outputs + (size_t)first * ROWS,
                             .scratch = r->scratch,
                             .scratch_bytes = r->scratch_bytes,
                             .dtype = BERTH_F32,
                             .count = count };
}

static void
read_outputs(const room *r, float *out)
{
    CHECK_EQ(berth_device_read(r->devices, 0, out, r->outputs, OUTPUTS_BYTES, NULL, NULL),
             BERTH_OK);
}

/* ------------------------------------------------------------------------- numbers */

/* All at once, and one after the other; with a bias and without. */
static void
check_numbers(int32_t type, bool is_double, const char *max_memory, const char *words)
{
    float *const together = malloc(OUTPUTS_BYTES);
    float *const alone = malloc(OUTPUTS_BYTES);
    const bool is_int8 = type == BERTH_ENCODING_INT8;
    const float one = 1.5f;
    const uint16_t half = 0x3E00; /* 1.5 */
    berth_multiply step;
    room r;

    if (!begin(&r, type, is_double, max_memory, words, NULL)) {
        free(together);
        free(alone);
        return;
    }
    step = step_of(&r, 0, MOST);
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    read_outputs(&r, together);
    for (uint32_t i = 0; i < MOST; i++) {
        step = step_of(&r, i, 1);
        CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    }
    read_outputs(&r, alone);
    CHECK_MEM(together, alone, OUTPUTS_BYTES);
    for (uint32_t i = 0; i < ROWS; i++)
        CHECK_EQ(berth_device_write(r.devices, 0,
                                    (char *)r.bias + i * (is_int8 ? 2u : 4u),
                                    is_int8 ? (const void *)&half : &one,
                                    is_int8 ? 2 : 4, NULL, NULL),
                 BERTH_OK);
    step = step_of(&r, 0, MOST);
    step.bias = r.bias;
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    read_outputs(&r, alone);
    for (uint32_t i = 0; i < MOST * ROWS; i++)
        if (!CHECK(fabsf(alone[i] - together[i] - one)
                   <= 2e-3f * fmaxf(1, fabsf(together[i]))))
            break;
    CHECK(fabsf(together[0]) > 0);
    end(&r);
    free(together);
    free(alone);
}

static void
test_numbers(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8 };

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        check_numbers(types[i], i == 2, HERE, GPU);
        check_numbers(types[i], i == 2, "cpu=64MiB", NULL);
    }
}

/* ------------------------------------------------------------------------- outliers */

/* In one of 50 columns; in so many that no list has room for them; in none. */
typedef enum outliers { FEW, MANY, NONE, NOT_FINITE, KINDS } outliers;

static float
value_of(outliers kind, uint32_t input, uint32_t column)
{
    const bool is_apart = kind == FEW    ? column % 50 == 3 && input % 3 == 0
                          : kind == MANY ? column % 5 != 1
                                         : false;

    if (kind == NOT_FINITE && column % 100 == 7 && input % 4 == 1)
        return column % 3 == 0 ? INFINITY : column % 3 == 1 ? NAN : -1e6f;
    return input_of(input, column) * (is_apart ? 16.0f : 1.0f);
}

/* The weight as the model has it, its maxima behind its codes; to be freed. */
static int8_t *
read_weight(const room *r, float **out_maxima)
{
    int8_t *const codes = malloc(ROWS * COLUMNS + ROWS * sizeof(float));
    berth_model_tensor tensor;

    *out_maxima = (float *)(void *)(codes + ROWS * COLUMNS);
    CHECK_EQ(berth_model_get_tensor(r->l.model, r->berth, &tensor), BERTH_OK);
    for (uint32_t i = 0; i < tensor.part_count; i++) {
        const berth_model_part *const part = &tensor.parts[i];

        CHECK_EQ(berth_device_read(r->devices, 0,
                                   part->role == BERTH_ROLE_CODES ? (void *)codes : *out_maxima,
                                   part->memory, part->bytes, NULL, NULL),
                 BERTH_OK);
    }
    return codes;
}

/* As the host multiplies: any number of inputs by what berth_values_multiply() is made of. */
static void
multiply_on_host(const room *r, const void *inputs, int32_t dtype, uint32_t count,
                 float threshold, const uint16_t *bias, void *outputs)
{
    static uint8_t is_outlier[COLUMNS];
    static int8_t codes[MOST * COLUMNS];
    static int64_t sums[MOST * ROWS];
    float maxima[MOST];
    float *weight_maxima;
    int8_t *const weight = read_weight(r, &weight_maxima);
    const berthi_dot_arguments dot = { .weights = weight, .inputs = codes, .rows = ROWS,
                                       .columns = COLUMNS, .end_row = ROWS, .count = count,
                                       .sums = sums };

    berthi_encode_activations(&(berthi_activation_arguments){
        .values = inputs, .dtype = dtype, .rows = count, .columns = COLUMNS,
        .threshold = threshold, .codes = codes, .row_maximum = maxima,
        .is_outlier = is_outlier });
    berthi_scalar_operations.dot_int8(&dot);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = weight_maxima, .input_maximum = maxima, .bias = bias,
        .inputs = inputs, .is_outlier = threshold > 0 ? is_outlier : NULL, .dtype = dtype,
        .outputs = outputs });
    free(weight);
}

/* Where two NaN are added either may be the sum. */
static uint64_t
count_different(const void *a, const void *b, int32_t dtype, uint32_t count)
{
    uint64_t different = 0;

    for (uint64_t i = 0; i < (uint64_t)count * ROWS; i++) {
        const float x = berthi_core_load(a, dtype, i);
        const float y = berthi_core_load(b, dtype, i);

        different += berthi_core_bits(x) != berthi_core_bits(y) && !(isnan(x) && isnan(y));
    }
    return different;
}

static void
check_outliers(room *r, outliers kind, int32_t dtype, uint32_t count, float threshold,
               bool has_bias)
{
    uint8_t *const inputs = malloc(INPUTS_BYTES);
    uint8_t *const outputs = malloc(OUTPUTS_BYTES);
    uint8_t *const expected = malloc(OUTPUTS_BYTES);
    berth_multiply step = step_of(r, 0, count);
    uint16_t bias[ROWS];

    for (uint32_t i = 0; i < count * COLUMNS; i++)
        berthi_core_store(inputs, dtype, i, value_of(kind, i / COLUMNS, i % COLUMNS));
    for (uint32_t i = 0; i < ROWS; i++)
        bias[i] = berthi_core_to_fp16((float)i * 0.125f - 7.0f);
    CHECK_EQ(berth_device_write(r->devices, 0, r->inputs, inputs, INPUTS_BYTES, NULL, NULL),
             BERTH_OK);
    CHECK_EQ(berth_device_write(r->devices, 0, r->bias, bias, sizeof bias, NULL, NULL),
             BERTH_OK);
    step.dtype = dtype;
    step.threshold = threshold;
    step.bias = has_bias ? r->bias : NULL;
    step.scratch_bytes = berth_model_multiply_scratch(r->l.model, r->berth, dtype, count);
    CHECK_EQ(berth_model_multiply(r->l.model, r->berth, &step, NULL, NULL), BERTH_OK);
    read_outputs(r, (float *)(void *)outputs);
    multiply_on_host(r, inputs, dtype, count, threshold, has_bias ? bias : NULL, expected);
    if (!CHECK_EQ(count_different(outputs, expected, dtype, count), 0))
        T_NOTE("outliers %d, dtype %d, %u inputs, threshold %g", (int)kind, dtype, count,
               (double)threshold);
    free(inputs);
    free(outputs);
    free(expected);
}

/* What each has left in the scratch the next one meets. */
static void
test_outliers(void)
{
    static const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16 };
    static const uint32_t counts[] = { 1, 2, 9, MOST };
    static const float thresholds[] = { 6.0f, 6.0f, 0.5f, 6.0f, INFINITY, 6.0f, 0.0f };

    for (uint32_t place = 0; place < 2; place++) {
        room r;

        T_REQUIRE(begin(&r, BERTH_ENCODING_INT8, false, place == 0 ? HERE : "cpu=64MiB",
                        place == 0 ? GPU : NULL, NULL));
        for (uint32_t i = 0; i < KINDS * 3 * 4; i += T_HAS_THREADS_WATCHED ? 3 : 1)
            check_outliers(&r, (outliers)(i % KINDS), dtypes[i / KINDS % 3],
                           counts[i / KINDS / 3], thresholds[i % 7], i % 5 < 2);
        end(&r);
    }
}

/* ------------------------------------------------------------------------ refusals */

static void
refuse(const room *r, uint64_t berth, const berth_multiply *step, berth_status status,
       const char *words)
{
    berth_error error;
    berth_status refusal;
    fenv_t mode;

    trap_begin(&mode);
    refusal = berth_model_multiply(r->l.model, berth, step, NULL, &error);
    trap_end(&mode);
    CHECK_EQ(refusal, status);
    CHECK_CONTAINS(error.message, words);
}

static void
test_arguments(void)
{
    berth_multiply step;
    berth_error error;
    uint64_t norm;
    room r;

    T_REQUIRE(begin(&r, BERTH_ENCODING_NF4, true, HERE, GPU, NULL));
    step = step_of(&r, 0, 3);
    CHECK_EQ(berth_model_multiply(NULL, r.berth, &step, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "model");
    refuse(&r, r.berth, NULL, BERTH_EINVAL, "step");
    refuse(&r, UINT64_MAX, &step, BERTH_EINVAL, "is not that of a tensor");
    step.inputs = NULL;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "inputs");
    step = step_of(&r, 0, 3);
    step.outputs = NULL;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "outputs");
    step = step_of(&r, 0, 0);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "count");
    step = step_of(&r, 0, 3);
    step.dtype = BERTH_I8;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "dtype");
    step = step_of(&r, 0, 3);
    step.threshold = 6.0f;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "which only INT8 has");
    step.threshold = -1.0f;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "threshold that is below 0");
    step.threshold = NAN;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "threshold that is below 0, or no number");
    norm = berth_model_find(r.l.model, NORM, strlen(NORM));
    step = step_of(&r, 0, 3);
    refuse(&r, norm, &step, BERTH_EUNSUPPORTED, "matrix");
    CHECK_EQ(berth_model_multiply_scratch(r.l.model, norm, BERTH_F32, 3), 0);
    CHECK_EQ(berth_model_multiply_scratch(NULL, r.berth, BERTH_F32, 3), 0);
    CHECK_EQ(berth_model_multiply_scratch(r.l.model, UINT64_MAX, BERTH_F32, 3), 0);
    CHECK_EQ(berth_model_multiply_scratch(r.l.model, r.berth, BERTH_I8, 3), 0);
    CHECK_EQ(berth_model_multiply_scratch(r.l.model, r.berth, BERTH_F32, 0), 0);
    end(&r);
}

/* Codes, maxima, sums; the mask, a list of an eighth of the columns, and their number. */
static uint64_t
int8_scratch(uint32_t count)
{
    const uint64_t parts[] = { count * COLUMNS, count * 4, count * ROWS * 4, COLUMNS / 32 * 4,
                               COLUMNS / 8 * 4, 4 };
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        bytes += (parts[i] + 255) / 256 * 256;
    return bytes;
}

static void
clear_outputs(const room *r, const float *nothing)
{
    CHECK_EQ(berth_device_write(r->devices, 0, r->outputs, nothing, OUTPUTS_BYTES, NULL, NULL),
             BERTH_OK);
}

/* By two tensors with the same inputs and scratch: each has the bits of its own. */
static void
test_together(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8,
                                     BERTH_ENCODING_NATIVE };
    float *const nothing = calloc(1, OUTPUTS_BYTES);
    float *const alone = malloc(OUTPUTS_BYTES);
    float *const together = malloc(OUTPUTS_BYTES);

    for (uint32_t i = 0; i < 6; i++) {
        uint64_t berths[2];
        berth_multiply steps[2];
        room r;

        T_REQUIRE(begin(&r, types[i % 3], i % 3 == 0, i < 3 ? HERE : "cpu=64MiB",
                        i < 3 ? GPU : NULL, NULL));
        berths[0] = berth_model_find(r.l.model, GATE, strlen(GATE));
        berths[1] = berth_model_find(r.l.model, UP, strlen(UP));
        clear_outputs(&r, nothing);
        for (uint32_t k = 0; k < 2; k++) {
            steps[k] = step_of(&r, 0, 2);
            steps[k].outputs = (char *)steps[k].outputs + k * OUTPUTS_BYTES / 2;
            steps[k].scratch_bytes = SCRATCH_BYTES;
            CHECK_EQ(berth_model_multiply(r.l.model, berths[k], &steps[k], NULL, NULL),
                     BERTH_OK);
        }
        read_outputs(&r, alone);
        clear_outputs(&r, nothing);
        CHECK_EQ(berth_model_multiply_together(r.l.model, berths, steps, 2, NULL, NULL),
                 BERTH_OK);
        read_outputs(&r, together);
        CHECK_MEM(together, alone, OUTPUTS_BYTES);
        CHECK(memcmp(together, nothing, OUTPUTS_BYTES) != 0);
        end(&r);
    }
    free(nothing);
    free(together);
    free(alone);
}

static void
test_together_refused(void)
{
    uint64_t berths[2];
    berth_multiply steps[2];
    berth_error error;
    room r;

    T_REQUIRE(begin(&r, BERTH_ENCODING_NF4, true, HERE, GPU, NULL));
    berths[0] = berths[1] = r.berth;
    steps[0] = steps[1] = step_of(&r, 0, 1);
#define REFUSE(model, numbers, asked, count, words)                                       \
    CHECK_EQ(berth_model_multiply_together(model, numbers, asked, count, NULL, &error),   \
             BERTH_EINVAL);                                                               \
    CHECK_CONTAINS(error.message, words)
    REFUSE(NULL, berths, steps, 2, "model");
    REFUSE(r.l.model, NULL, steps, 2, "berths");
    REFUSE(r.l.model, berths, NULL, 2, "steps");
    REFUSE(r.l.model, berths, steps, 0, "count");
    REFUSE(r.l.model, berths, steps, BERTH_MULTIPLY_TOGETHER + 1, "count");
    steps[1].inputs = NULL;
    REFUSE(r.l.model, berths, steps, 2, "inputs");
    steps[1] = steps[0];
    steps[1].scratch = NULL;
    REFUSE(r.l.model, berths, steps, 2, "scratch_bytes, and no scratch");
    steps[1] = steps[0];
    berths[1] = UINT64_MAX;
    REFUSE(r.l.model, berths, steps, 2, "is not that of a tensor");
#undef REFUSE
    end(&r);
}

/* A byte less is too little, and so many are enough: the device would say if not. */
static void
test_scratch(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8 };

    for (size_t i = 0; i < 2; i++)
        for (uint32_t count = 1; count <= MOST; count += 13) {
            berth_multiply step;
            room r;

            T_REQUIRE(begin(&r, types[i], true, HERE, GPU, NULL));
            r.scratch_bytes = berth_model_multiply_scratch(r.l.model, r.berth, BERTH_F32,
                                                           count);
            CHECK_GT(r.scratch_bytes, 0);
            if (types[i] == BERTH_ENCODING_INT8)
                CHECK_EQ(r.scratch_bytes, int8_scratch(count));
            r.scratch += (SCRATCH_BYTES - r.scratch_bytes) / 256 * 256;
            step = step_of(&r, 0, count);
            step.threshold = types[i] == BERTH_ENCODING_INT8 ? 0.5f : 0.0f;
            CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
            CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
            step.scratch_bytes--;
            refuse(&r, r.berth, &step, BERTH_EINVAL, "too little scratch");
            step.scratch_bytes = SCRATCH_BYTES;
            step.scratch = r.memory + 4;
            refuse(&r, r.berth, &step, BERTH_EINVAL, "scratch at no multiple of 256");
            step.scratch = NULL;
            refuse(&r, r.berth, &step, BERTH_EINVAL, "scratch_bytes, and no scratch");
            end(&r);
        }
}

/* Memory that is the host's, or nobody's. */
static void
test_memory_of_another(void)
{
    float *const outside = calloc(MOST, COLUMNS * sizeof *outside);
    berth_multiply step;
    room r;

    T_REQUIRE(begin(&r, BERTH_ENCODING_NATIVE, false, HERE, GPU, NULL));
    CHECK_EQ(r.scratch_bytes, 0); /* plain numbers need none */
    step = step_of(&r, 0, 3);
    step.scratch = r.memory + 4;
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    step.scratch = NULL;
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    step.inputs = outside;
    refuse(&r, r.berth, &step, BERTH_EINTERNAL, "outside");
    end(&r);
    free(outside);
}

static void
test_lease(void)
{
    berth_model_tensor tensor;
    berth_multiply step;
    room r;

    T_REQUIRE(begin(&r, BERTH_ENCODING_NF4, true, HERE, GPU, "model.layers=cpu"));
    CHECK_EQ(berth_model_get_tensor(r.l.model, r.berth, &tensor), BERTH_OK);
    CHECK_EQ(tensor.is_resident, 0);
    step = step_of(&r, 0, MOST);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "not leased");
    CHECK_EQ(berth_layer_acquire(r.l.model, tensor.layer, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_model_multiply_scratch(r.l.model, r.berth, BERTH_F32, MOST),
             r.scratch_bytes); /* leased or not */
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_layer_release(r.l.model, tensor.layer, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
    end(&r);
}

static void
test_lost(void)
{
    berth_multiply step;
    berth_error error;
    room r;

    T_REQUIRE(begin(&r, BERTH_ENCODING_INT8, false, HERE, GPU, NULL));
    berthi_devices_stop(r.devices);
    step = step_of(&r, 0, 3);
    CHECK_EQ(berth_model_multiply(r.l.model, r.berth, &step, NULL, &error), BERTH_ENODEV);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
    end(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_numbers);
    T_RUN(test_outliers);
    T_RUN(test_arguments);
    T_RUN(test_together);
    T_RUN(test_together_refused);
    T_RUN(test_scratch);
    T_RUN(test_memory_of_another);
    T_RUN(test_lease);
    T_RUN(test_lost);
    T_MAIN_END;
}
