/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compute_dequantize.c - values of tensors of a model where they lie: in host memory, on
 * simulated devices and on GPUs of a fake runtime, resident and leased, with the bits of
 * berth_values_dequantize().
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/fake_cuda.h"
#include "tests/loaded.h"
#include "tests/simt.h"
#include "tests/t.h"

#define DOWN "model.layers.0.mlp.down_proj.weight"
#define NORM "model.layers.0.input_layernorm.weight"
#define ROWS UINT64_C(256)
#define COLUMNS UINT64_C(704)
#define ELEMENTS (ROWS * COLUMNS)
#define ROOM_BYTES (ELEMENTS * 4 + 256)
#define UNTOUCHED 0xA5

#define HERE "0=64MiB,cpu=1GiB"
#define MIB (UINT64_C(1) << 20)

/* What a model is on. */
typedef enum ground { ON_HOST, ON_SIMULATION, ON_GPU, GROUNDS } ground;

static const fake_cuda_machine machine = { .count = 1, .driver = 13000, .architecture = 90,
                                           .memory_bytes = 64 * MIB, .is_late = true };

/* A model, and room for values in memory of its device. */
typedef struct room {
    loaded l;
    berth_devices *devices; /* the model's; for host memory others */
    ground on;
    uint64_t berth;
    berth_model_tensor tensor;
    char *memory;
} room;

static void
open_devices(room *r)
{
    r->devices = r->l.devices;
    if (r->on == ON_HOST)
        CHECK_EQ(berth_devices_open(r->l.p.context, "cpu", &r->devices, NULL), BERTH_OK);
}

/* False: nothing was loaded. */
static bool
begin(room *r, ground on, int32_t type, bool is_double, const char *pin)
{
    berth_plan_options options = loaded_options(on == ON_HOST ? "cpu=64MiB" : HERE);

    memset(r, 0, sizeof *r);
    r->on = on;
    options.type = type;
    options.double_quant = is_double;
    options.pins = &pin;
    options.pin_count = pin != NULL;
    if (on == ON_GPU)
        fake_cuda_begin(&machine);
    /* The host cannot touch the simulated device's memory. */
    loaded_begin(&r->l, loaded_llama(1, "BF16", 1), &options,
                 on == ON_SIMULATION ? "sim:64MiB,backing=sealed" : NULL);
    if (on == ON_GPU)
        CHECK_EQ(berthi_devices_open_cuda(r->l.p.context, fake_cuda_calls(), "cuda",
                                          &r->l.devices, NULL),
                 BERTH_OK);
    r->l.options.devices = r->l.devices;
    loaded_load(&r->l);
    if (!CHECK_EQ(r->l.status, BERTH_OK))
        return false;
    open_devices(r);
    r->berth = berth_model_find(r->l.model, DOWN, strlen(DOWN));
    CHECK_EQ(berth_model_get_tensor(r->l.model, r->berth, &r->tensor), BERTH_OK);
    CHECK_EQ(berth_device_alloc(r->devices, 0, ROOM_BYTES, (void **)&r->memory, NULL),
             BERTH_OK);
    return true;
}

static void
end(room *r)
{
    berth_device_free(r->devices, 0, r->memory, ROOM_BYTES);
    if (r->devices != r->l.devices)
        berth_devices_close(r->devices);
    loaded_end(&r->l);
    if (r->on != ON_GPU)
        return;
    fake_cuda_check_empty();
    fake_cuda_end();
}

static uint64_t
width_of(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

/* -------------------------------------------------------------------------- expected */

/* The part as it lies now; to be freed. NULL: there is none. */
static void *
read_part(const room *r, int32_t role, uint64_t *out_bytes)
{
    void *bytes;

    *out_bytes = 0;
    for (uint32_t i = 0; i < r->tensor.part_count; i++)
        if (r->tensor.parts[i].role == role) {
            *out_bytes = r->tensor.parts[i].bytes;
            bytes = malloc(*out_bytes);
            CHECK_EQ(berth_device_read(r->devices, 0, bytes, r->tensor.parts[i].memory,
                                       *out_bytes, NULL, NULL),
                     BERTH_OK);
            return bytes;
        }
    return NULL;
}

/* All values, by berth_values_dequantize() of what lies there; to be freed. */
static uint8_t *
expect(const room *r, int32_t dtype)
{
    const bool is_int8 = r->tensor.encoding == BERTH_ENCODING_INT8;
    const uint64_t bytes = ELEMENTS * width_of(dtype);
    uint8_t *const values = malloc(bytes);
    berth_values_buffers buffers;
    berth_values_options options;

    berth_values_options_init(&options);
    options.encoding = r->tensor.encoding;
    options.dtype = dtype;
    options.block_size = r->tensor.block_size;
    options.double_quant = r->tensor.is_double;
    options.shape = r->tensor.shape;
    options.rank = r->tensor.rank;
    berth_values_buffers_init(&buffers);
    buffers.codes = read_part(r, BERTH_ROLE_CODES, &buffers.codes_bytes);
    buffers.absmax = read_part(r, is_int8 ? BERTH_ROLE_ROW_MAXIMUM : BERTH_ROLE_ABSMAX,
                               &buffers.absmax_bytes);
    buffers.absmax2 = read_part(r, BERTH_ROLE_ABSMAX2, &buffers.absmax2_bytes);
    buffers.offset = r->tensor.offset;
    CHECK_EQ(berth_values_dequantize(r->l.p.context, &options, &buffers, values, bytes, NULL),
             BERTH_OK);
    free(buffers.codes);
    free(buffers.absmax);
    free(buffers.absmax2);
    return values;
}

/* The values as they lie there. */
static uint8_t *
expect_plain(const room *r)
{
    uint64_t bytes;

    return read_part(r, BERTH_ROLE_VALUES, &bytes);
}

/* -------------------------------------------------------------------------- stretches */

static berth_dequantize
step_of(const room *r, uint64_t first, uint64_t count, int32_t dtype)
{
    return (berth_dequantize){ .values = r->memory, .first = first, .count = count,
                               .dtype = dtype };
}

/* These values, and not a byte behind them. */
static void
check_stretch(const room *r, const uint8_t *expected, uint64_t first, uint64_t count,
              int32_t dtype)
{
    const uint64_t width = width_of(dtype);
    const berth_dequantize step = step_of(r, first, count, dtype);
    uint8_t *const untouched = malloc(ROOM_BYTES);
    uint8_t *const got = malloc(ROOM_BYTES);

    memset(untouched, UNTOUCHED, ROOM_BYTES);
    CHECK_EQ(berth_device_write(r->devices, 0, r->memory, untouched, ROOM_BYTES, NULL, NULL),
             BERTH_OK);
    CHECK_EQ(berth_model_dequantize(r->l.model, r->berth, &step, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_device_read(r->devices, 0, got, r->memory, ROOM_BYTES, NULL, NULL),
             BERTH_OK);
    if (!CHECK_MEM(got, expected + first * width, count * width))
        T_NOTE("%d of %llu values from %llu on, on %d", r->tensor.encoding,
               (unsigned long long)count, (unsigned long long)first, (int)r->on);
    CHECK_MEM(got + count * width, untouched, ROOM_BYTES - count * width);
    free(untouched);
    free(got);
}

/* All; rows; what begins and ends within blocks and rows, and across blocks of absmax. */
static void
check_stretches(const room *r, const uint8_t *expected, int32_t dtype)
{
    static const uint64_t stretches[][2] = {
        { 0, ELEMENTS }, { 17 * COLUMNS, 5 * COLUMNS }, { 16384, 16384 }, { 1234, 1 },
        { 16300, 20001 }, { COLUMNS - 2, 2 * COLUMNS + 5 }, { ELEMENTS - 2, 2 },
    };

    for (size_t i = 0; i < sizeof stretches / sizeof *stretches; i++)
        check_stretch(r, expected, stretches[i][0], stretches[i][1], dtype);
    if (r->tensor.encoding == BERTH_ENCODING_INT8
        || r->tensor.encoding == BERTH_ENCODING_NATIVE)
        check_stretch(r, expected, 3 * COLUMNS - 1, 2 * COLUMNS + 3, dtype);
}

static void
check_values(ground on, int32_t type, bool is_double)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
    room r;

    if (!begin(&r, on, type, is_double, NULL))
        return;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint8_t *const expected = expect(&r, dtypes[i]);

        CHECK_NE(expected[0] | expected[1] | expected[2] | expected[3], 0);
        check_stretches(&r, expected, dtypes[i]);
        free(expected);
    }
    end(&r);
}

static void
test_values(void)
{
    for (uint32_t on = 0; on < GROUNDS; on++) {
        if (on == ON_GPU && !simt_has_fibers())
            T_SKIP("no fibers on this machine");
        check_values((ground)on, BERTH_ENCODING_NF4, false);
        check_values((ground)on, BERTH_ENCODING_NF4, true);
        check_values((ground)on, BERTH_ENCODING_FP4, true);
        check_values((ground)on, BERTH_ENCODING_INT8, false);
    }
}

static void
test_plain_values(void)
{
    for (uint32_t on = 0; on < GROUNDS; on++) {
        uint8_t *expected;
        room r;

        if (!begin(&r, (ground)on, BERTH_ENCODING_NATIVE, false, NULL))
            return;
        expected = expect_plain(&r);
        check_stretches(&r, expected, BERTH_BF16);
        free(expected);
        end(&r);
    }
}

/* A tensor of any rank. */
static void
test_norm(void)
{
    uint8_t *expected;
    room r;

    T_REQUIRE(begin(&r, ON_SIMULATION, BERTH_ENCODING_NF4, true, NULL));
    r.berth = berth_model_find(r.l.model, NORM, strlen(NORM));
    CHECK_EQ(berth_model_get_tensor(r.l.model, r.berth, &r.tensor), BERTH_OK);
    CHECK_EQ(r.tensor.rank, 1);
    expected = expect_plain(&r);
    check_stretch(&r, expected, 0, r.tensor.elements, BERTH_BF16);
    check_stretch(&r, expected, 5, 7, BERTH_BF16);
    free(expected);
    end(&r);
}

/* In a slot, while its layer is leased and no longer. */
static void
test_lease(void)
{
    for (uint32_t on = ON_SIMULATION; on < GROUNDS; on++) {
        berth_dequantize step;
        uint8_t *expected;
        berth_error error;
        room r;

        if (on == ON_GPU && !simt_has_fibers())
            T_SKIP("no fibers on this machine");
        T_REQUIRE(begin(&r, (ground)on, BERTH_ENCODING_NF4, true, "model.layers=cpu"));
        CHECK_EQ(r.tensor.is_resident, 0);
        step = step_of(&r, 0, 2, BERTH_BF16);
        CHECK_EQ(berth_model_dequantize(r.l.model, r.berth, &step, NULL, &error),
                 BERTH_EINVAL);
        CHECK_CONTAINS(error.message, "not leased");
        CHECK_EQ(berth_layer_acquire(r.l.model, r.tensor.layer, NULL, NULL), BERTH_OK);
        CHECK_EQ(berth_model_get_tensor(r.l.model, r.berth, &r.tensor), BERTH_OK);
        expected = expect(&r, BERTH_F16);
        check_stretches(&r, expected, BERTH_F16);
        free(expected);
        CHECK_EQ(berth_layer_release(r.l.model, r.tensor.layer, NULL, NULL), BERTH_OK);
        CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
        end(&r);
    }
}

/* -------------------------------------------------------------------------- refusals */

static void
refuse(const room *r, uint64_t berth, const berth_dequantize *step, berth_status status,
       const char *words)
{
    berth_error error;

    CHECK_EQ(berth_model_dequantize(r->l.model, berth, step, NULL, &error), status);
    CHECK_CONTAINS(error.message, words);
}

static void
test_arguments(void)
{
    berth_dequantize step;
    berth_error error;
    uint64_t norm;
    room r;

    T_REQUIRE(begin(&r, ON_SIMULATION, BERTH_ENCODING_NF4, true, NULL));
    step = step_of(&r, 0, 2, BERTH_BF16);
    CHECK_EQ(berth_model_dequantize(NULL, r.berth, &step, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "model");
    refuse(&r, r.berth, NULL, BERTH_EINVAL, "step");
    refuse(&r, UINT64_MAX, &step, BERTH_EINVAL, "is not that of a tensor");
    step.values = NULL;
    refuse(&r, r.berth, &step, BERTH_EINVAL, "has no values");
    step = step_of(&r, 0, 0, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "has a count of 0");
    step = step_of(&r, 0, 2, BERTH_I8);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "none of BF16, F16 and F32");
    step = step_of(&r, 3, 2, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "odd `first`");
    step = step_of(&r, 2, ELEMENTS - 1, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "values 2 to 180224 of a tensor of 180224");
    step = step_of(&r, ELEMENTS, 1, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "values 180224 to 180224 of ");
    step = step_of(&r, 4, UINT64_MAX, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "values 4 to 18446744073709551615 of ");
    norm = berth_model_find(r.l.model, NORM, strlen(NORM));
    step = step_of(&r, 0, 2, BERTH_F32);
    refuse(&r, norm, &step, BERTH_EUNSUPPORTED, "has plain numbers of BF16");
    end(&r);
}

/* Memory that is the host's, or nobody's. */
static void
test_memory_of_another(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8,
                                     BERTH_ENCODING_NATIVE };

    for (size_t i = 0; i < 3; i++) {
        float *const outside = calloc(64, sizeof *outside);
        berth_dequantize step;
        room r;

        T_REQUIRE(begin(&r, ON_SIMULATION, types[i], false, NULL));
        step = step_of(&r, 0, 64, BERTH_BF16);
        step.values = outside;
        refuse(&r, r.berth, &step, BERTH_EINTERNAL, "outside");
        step.values = r.memory + ROOM_BYTES - 64;
        refuse(&r, r.berth, &step, BERTH_EINTERNAL, "outside");
        end(&r);
        free(outside);
    }
}

static void
test_odd_address(void)
{
    berth_dequantize step;
    room r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    T_REQUIRE(begin(&r, ON_GPU, BERTH_ENCODING_FP4, false, NULL));
    step = step_of(&r, 0, 64, BERTH_F32);
    step.values = r.memory + 2;
    refuse(&r, r.berth, &step, BERTH_EUNSUPPORTED,
           "values at an address that is no multiple of 4");
    end(&r);
}

static void
test_asleep(void)
{
    berth_dequantize step;
    berth_job *job;
    room r;

    T_REQUIRE(begin(&r, ON_SIMULATION, BERTH_ENCODING_NF4, false, NULL));
    CHECK_EQ(berth_model_sleep_start(r.l.model, NULL, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    step = step_of(&r, 0, 2, BERTH_BF16);
    refuse(&r, r.berth, &step, BERTH_EINVAL, "");
    end(&r);
}

static void
test_lost(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_NATIVE };

    for (size_t i = 0; i < 2; i++) {
        berth_dequantize step;
        berth_error error;
        room r;

        T_REQUIRE(begin(&r, ON_SIMULATION, types[i], false, NULL));
        berthi_devices_stop(r.devices);
        step = step_of(&r, 0, 2, BERTH_BF16);
        CHECK_EQ(berth_model_dequantize(r.l.model, r.berth, &step, NULL, &error),
                 BERTH_ENODEV);
        CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        end(&r);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_values);
    T_RUN(test_plain_values);
    T_RUN(test_norm);
    T_RUN(test_lease);
    T_RUN(test_arguments);
    T_RUN(test_memory_of_another);
    T_RUN(test_odd_address);
    T_RUN(test_asleep);
    T_RUN(test_lost);
    T_MAIN_END;
}
