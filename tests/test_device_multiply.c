/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs times a weight of 4-bit codes, asked for of each kind of device: processors and
 * simulations have the bits of the level's product on the whole weight, and what GPUs make
 * of it (run on the host) is within its bounds. Every one refuses the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/random.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };

/* ------------------------------------------------------------------------- weights */

typedef struct shape {
    uint64_t rows;
    uint64_t columns;
    uint32_t block_size;
    uint32_t count;
    int32_t dtype;
    bool is_fp4;
    bool is_double;
    bool has_bias;
} shape;

/* Parts of several kinds, blocks across rows, odd lengths, all dtypes, nothing at all. */
static const shape shapes[] = {
    { 40, 128, 64, 1, BERTH_BF16, false, false, false },
    { 33, 512, 64, 8, BERTH_F16, false, true, true },
    { 130, 192, 128, 5, BERTH_BF16, true, true, false },
    { 70, 96, 64, 3, BERTH_F32, false, true, true },
    { 150, 45, 64, 2, BERTH_F32, true, false, true },
    { 129, 33, 32, 4, BERTH_BF16, false, true, false },
    { 65, 64, 4096, 9, BERTH_F16, true, false, false },
    { 20, 256, 256, 32, BERTH_BF16, false, true, true },
    { 70, 128, 64, 33, BERTH_BF16, false, true, true },
    { 9, 45, 32, 67, BERTH_F32, true, false, true },
    { 18, 64, 64, 96, BERTH_F16, false, false, false },
    { 150, 320, 64, 2, BERTH_BF16, false, true, false }, /* parts begin within 256 blocks */
    { 300, 33, 256, 3, BERTH_F32, true, true, true },    /* 256 rows until a block begins  */
    { 17, 1, 32, 2, BERTH_F16, false, true, false },
    { 5, 0, 64, 3, BERTH_BF16, false, false, true },
    { 5, 0, 64, 3, BERTH_F32, false, true, false },
    { 0, 64, 64, 3, BERTH_BF16, false, false, false },
    { 5, 64, 64, 0, BERTH_BF16, false, true, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* A weight, inputs and room for outputs, one behind the other in memory of any kind. */
typedef struct weight {
    shape s;
    uint64_t absmax;
    uint64_t absmax_codes;
    uint64_t inputs;
    uint64_t bias;
    uint64_t outputs;
    uint64_t outputs_bytes;
    uint64_t scratch;
    uint64_t bytes;  /* of all */
    uint8_t *memory; /* the host's copy; codes come first */
    float *plain;    /* absmax as the product meets them */
} weight;

static uint64_t state = 0x9E3779B97F4A7C15u;

static uint64_t
width_of(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

static berthi_request
request_at(const weight *w, uint8_t *memory)
{
    const shape *const s = &w->s;

    return (berthi_request){
        .operation = s->is_fp4 ? BERTHI_OPERATION_MULTIPLY_FP4 : BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = {
            .codes = memory,
            .absmax = (const float *)(void *)(memory + w->absmax),
            .absmax_codes = s->is_double ? memory + w->absmax_codes : NULL,
            .map = berthi_signed_map,
            .offset = 0.05f,
            .block_size = s->block_size,
            .count = s->count,
            .rows = s->rows,
            .columns = s->columns,
            .inputs = memory + w->inputs,
            .bias = s->has_bias ? memory + w->bias : NULL,
            .outputs = memory + w->outputs,
            .dtype = s->dtype,
            .scratch = (float *)(void *)(memory + w->scratch),
        },
    };
}

/* Room for so many bytes, from an even address on. */
static uint64_t
place(weight *w, uint64_t bytes)
{
    const uint64_t at = w->bytes;

    w->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static void
draw_absmax(weight *w, uint64_t blocks)
{
    float *const absmax = (float *)(void *)(w->memory + w->absmax);

    for (uint64_t i = 0; i < (w->s.is_double ? (blocks + 255) / 256 : blocks); i++)
        absmax[i] = 0.02f + 0.05f * random_share(&state);
    for (uint64_t i = 0; i < blocks; i++) {
        w->memory[w->absmax_codes + i] = (uint8_t)(random_share(&state) * 256.0f);
        w->plain[i] = w->s.is_double
                          ? berthi_core_absmax_recover(berthi_signed_map,
                                                       w->memory[w->absmax_codes + i],
                                                       absmax[i / 256], 0.05f)
                          : absmax[i];
    }
}

static weight
make_weight(const shape *s)
{
    const uint64_t weights = s->rows * s->columns;
    const uint64_t blocks = (weights + s->block_size - 1) / s->block_size;
    const uint64_t width = width_of(s->dtype);
    weight w = { .s = *s, .outputs_bytes = s->count * s->rows * width };
    berthi_request request;

    (void)place(&w, (weights + 1) / 2);
    w.absmax = place(&w, blocks * sizeof(float));
    w.absmax_codes = place(&w, blocks);
    w.inputs = place(&w, s->count * s->columns * width);
    w.bias = place(&w, s->rows * width);
    w.outputs = place(&w, w.outputs_bytes);
    request = request_at(&w, NULL);
    request.arguments.multiply.absmax_codes = s->is_double ? &(const uint8_t){ 0 } : NULL;
    w.scratch =
        place(&w, berthi_multiply_scratch(&request.arguments.multiply) * sizeof(float));
    w.memory = calloc(1, w.bytes + 256);
    w.plain = malloc((blocks + 1) * sizeof *w.plain);
    if (w.memory == NULL || w.plain == NULL)
        abort();
    for (uint64_t i = 0; i < (weights + 1) / 2; i++)
        w.memory[i] = (uint8_t)(random_share(&state) * 256.0f);
    draw_absmax(&w, blocks);
    for (uint64_t i = 0; i < s->count * s->columns; i++)
        berthi_core_store(w.memory + w.inputs, s->dtype, i, random_signed(&state));
    for (uint64_t i = 0; i < s->rows; i++)
        berthi_core_store(w.memory + w.bias, s->dtype, i, random_signed(&state));
    return w;
}

static void
free_weight(weight *w)
{
    free(w->memory);
    free(w->plain);
}

/* ------------------------------------------------------------------------- expected */

/* The level's product on the whole weight, bias and rounding behind it. */
static uint8_t *
multiply_at_once(const weight *w, const berthi_operations *level)
{
    const shape *const s = &w->s;
    float *const sums = calloc(s->count * s->rows + 1, sizeof *sums);
    float *const scratch =
        malloc(berthi_product_scratch(s->columns, s->count) * sizeof *scratch);
    uint8_t *const outputs = malloc(w->outputs_bytes + 1);

    if (sums == NULL || scratch == NULL || outputs == NULL)
        abort();
    /* Of more than 32 inputs each has the bits that it has alone. */
    for (uint32_t i = 0; s->columns > 0 && i < s->count; i += s->count <= 32 ? s->count : 1)
        (s->is_fp4 ? level->multiply_fp4 : level->multiply_nf4)(&(berthi_product_arguments){
            .codes = w->memory, .absmax = w->plain, .block_size = s->block_size,
            .count = s->count <= 32 ? s->count : 1, .rows = s->rows, .columns = s->columns,
            .end_row = s->rows,
            .inputs = w->memory + w->inputs + i * s->columns * width_of(s->dtype),
            .dtype = s->dtype, .outputs = sums + i * s->rows, .scratch = scratch });
    for (uint64_t i = 0; i < s->count * s->rows; i++)
        berthi_core_store(outputs, s->dtype, i,
                          s->has_bias ? sums[i]
                                            + berthi_core_load(w->memory + w->bias, s->dtype,
                                                               i % s->rows)
                                      : sums[i]);
    free(sums);
    free(scratch);
    return outputs;
}

/* As a GPU's inputs meet it. */
static double
value_of(const shape *s, uint32_t code)
{
    const float value =
        berthi_core_float((s->is_fp4 ? berthi_fp4_values : berthi_nf4_values)[code]);

    return (double)(s->dtype == BERTH_BF16 ? berthi_core_from_bf16(berthi_core_to_bf16(value))
                    : s->dtype == BERTH_F16
                        ? berthi_core_from_fp16(berthi_core_to_fp16(value))
                        : value);
}

static bool
is_near(const weight *w, uint32_t input, uint64_t row, double got)
{
    const shape *const s = &w->s;
    const double unit = s->dtype == BERTH_BF16 ? 0x1p-8 : s->dtype == BERTH_F16 ? 0x1p-11
                                                                                : 0x1p-22;
    double sum =
        s->has_bias ? (double)berthi_core_load(w->memory + w->bias, s->dtype, row) : 0.0;
    double size = fabs(sum);

    for (uint64_t k = 0; k < s->columns; k++) {
        const uint64_t at = row * s->columns + k;
        const uint32_t code = w->memory[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15;
        const double term = value_of(s, code) * (double)w->plain[at / s->block_size]
                            * (double)berthi_core_load(w->memory + w->inputs, s->dtype,
                                                       input * s->columns + k);

        sum += term;
        size += fabs(term);
    }
    return fabs(got - sum) <= unit * fabs(sum) + 0x1p-18 * size;
}

static void
check_near(const weight *w, const uint8_t *outputs)
{
    const shape *const s = &w->s;

    for (uint32_t i = 0; i < s->count; i++)
        for (uint64_t row = 0; row < s->rows; row++)
            CHECK(is_near(w, i, row,
                          (double)berthi_core_load(outputs, s->dtype, i * s->rows + row)));
}

/* --------------------------------------------------------------------------- devices */

/* Brings it there, by copies of a stream that the product follows. */
static uint8_t *
bring(const rig *r, const weight *w, berthi_stream *stream)
{
    uint8_t *const memory = rig_alloc(r->device, w->bytes + 256);
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                               .from = w->memory, .bytes = w->outputs };

    CHECK_EQ(r->device->table->copy(r->device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(r->device->table->clear(r->device, memory + w->outputs,
                                     w->bytes + 256 - w->outputs, stream, NULL),
             BERTH_OK);
    return memory;
}

/* What a device of these words makes of the weight; *out is to be freed. */
static void
multiply_on(rig *r, const weight *w, uint8_t **out)
{
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = bring(r, w, stream);
    const berthi_request request = request_at(w, memory);
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .bytes = w->outputs_bytes,
                               .from = memory + w->outputs,
                               .to = *out = malloc(w->outputs_bytes + 1) };

    CHECK(r->device->table->has_operation(r->device, request.operation));
    CHECK_EQ(r->device->table->launch(r->device, &request, stream, NULL), BERTH_OK);
    CHECK_EQ(r->device->table->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream); /* also where there was nothing to be copied */
    /* Nothing beside the outputs. */
    CHECK_MEM(memory, w->memory, w->outputs);
    for (uint64_t i = w->bytes; i < w->bytes + 256; i++)
        CHECK_EQ(memory[i], 0);
    r->device->table->stream_destroy(r->device, stream);
    r->device->table->free(r->device, memory, w->bytes + 256);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", "sim:64MiB,h2d=1GB/s,memory=2GB/s" };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < SHAPES; i++) {
            weight w = make_weight(&shapes[i]);
            berthi_operations level;
            uint8_t *expected;
            uint8_t *outputs;
            rig r;

            T_REQUIRE(rig_open(&r, words[k]));
            level = berthi_level_operations(r.context->level);
            expected = multiply_at_once(&w, &level);
            multiply_on(&r, &w, &outputs);
            if (!CHECK_MEM(outputs, expected, w.outputs_bytes))
                T_NOTE("shape %zu on %s", i, words[k]);
            free(expected);
            free(outputs);
            free_weight(&w);
            rig_close(&r);
        }
}

static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (int architecture = 86; architecture <= 90; architecture += 4)
        for (size_t i = 0; i < SHAPES; i++) {
            fake_cuda_machine machine = late;
            weight w = make_weight(&shapes[i]);
            uint8_t *outputs;
            rig r;

            machine.architecture = architecture;
            fake_gemm_begin();
            fake_gemm_hide(true); /* what berth's own kernels make of it */
            fake_cuda_begin(&machine);
            T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
            multiply_on(&r, &w, &outputs);
            CHECK_EQ(fake_cuda_read().launches,
                     w.outputs_bytes > 0 ? (shapes[i].count + 31) / 32 : 0);
            check_near(&w, outputs);
            free(outputs);
            free_weight(&w);
            rig_close(&r);
            fake_cuda_check_empty();
            fake_cuda_end();
            fake_gemm_begin();
        }
}

/* Kernels made for sm_75 have no tensor cores, whatever the GPU has: the PTX' ones, too. */
static void
test_old_kernels_on_a_new_gpu(void)
{
    const shape s = { 20, 128, 64, 3, BERTH_BF16, false, false, false };
    const int32_t architectures[] = { 75 };
    berthi_cuda_calls calls = *fake_cuda_calls();
    weight w = make_weight(&s);
    uint8_t *outputs;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    fake_cuda_begin(&late);
    calls.architectures = architectures;
    calls.architecture_count = 1;
    calls.ptx = architectures;
    calls.ptx_count = 1;
    T_REQUIRE(rig_open_cuda(&r, &calls, "cuda"));
    multiply_on(&r, &w, &outputs);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_product_lanes_bf16], 1);
    check_near(&w, outputs);
    free(outputs);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    multiply_on(&r, &w, &outputs);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_product_64_bf16], 1);
    free(outputs);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free_weight(&w);
}

/* -------------------------------------------------------------------------- refusals */

static void
check_refusals(const rig *r, const void *user)
{
    const weight *const w = user;
    uint8_t *const memory = rig_alloc(r->device, w->bytes);
    const berthi_request good = request_at(w, memory);
    berthi_request bad = good;
    char why[64];

    bad.arguments.multiply.dtype = BERTH_U8;
    rig_check_refused(r, &bad, "no product has inputs of dtype ");
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t sizes[] = { 0, 16, 48, 8192 };

        bad = good;
        bad.arguments.multiply.block_size = sizes[i];
        rig_check_refused(r, &bad, ": they are 32 to 4096, a power of two");
    }
    bad = good;
    bad.arguments.multiply.columns = UINT64_C(1) << 31;
    rig_check_refused(r, &bad, "no product has a weight of 40 x 2147483648");
    bad = good;
    bad.arguments.multiply.rows = UINT64_MAX / 4 / 128 + 1;
    rig_check_refused(r, &bad, "no product has a weight of ");
    bad.arguments.multiply.rows = UINT64_MAX / 4 / 32 + 1;
    bad.arguments.multiply.columns = 0;
    rig_check_refused(r, &bad, "no product has a weight of ");
    bad.arguments.multiply.rows = UINT64_MAX / 4 / UINT32_MAX + 1;
    bad.arguments.multiply.count = UINT32_MAX;
    rig_check_refused(r, &bad, "no product has a weight of ");
    bad.arguments.multiply.rows = 1;
    bad.arguments.multiply.columns = UINT32_MAX / 2;
    rig_check_refused(r, &bad, " and 4294967295 inputs");
    bad.operation = BERTHI_OPERATION_COUNT;
    snprintf(why, sizeof why, "has no operation %d", (int)BERTHI_OPERATION_COUNT);
    rig_check_refused(r, &bad, why);
    r->device->table->free(r->device, memory, w->bytes);
}

static void
check_sizes(uint64_t rows, uint64_t columns, uint64_t count, berth_status status)
{
    CHECK_EQ(berthi_multiply_check_sizes(rows, columns, count, NULL), status);
}

/* Bytes of what takes most, at four a value, are counted in 64 bits. */
static void
test_largest_sizes(void)
{
    const uint64_t most = UINT64_MAX / 4;
    const uint64_t columns = UINT32_MAX / 2;

    check_sizes(most / 128, 128, 1, BERTH_OK);
    check_sizes(most / 128 + 1, 128, 1, BERTH_EUNSUPPORTED);
    check_sizes(most / 128, 128, 0, BERTH_OK);
    check_sizes(1, columns, most / columns, BERTH_OK);
    check_sizes(1, columns, most / columns + 1, BERTH_EUNSUPPORTED);
    check_sizes(1, columns + 1, 1, BERTH_EUNSUPPORTED);
    check_sizes(most / 7, 0, 7, BERTH_OK);
    check_sizes(most / 7 + 1, 0, 7, BERTH_EUNSUPPORTED);
}

static void
test_refused_by_each(void)
{
    weight w = make_weight(&shapes[0]);

    rig_refused_by_each(check_refusals, &w);
    free_weight(&w);
}

/* Moves a pointer of the request and has it refused. */
#define CHECK_ODD(member, by, why)                                                    \
    do {                                                                              \
        berthi_request odd = good;                                                    \
                                                                                      \
        odd.arguments.multiply.member =                                               \
            (void *)((uintptr_t)odd.arguments.multiply.member + (by));                \
        rig_check_refused(&r, &odd, why);                                                 \
    } while (0)

/* What ends a GPU for the whole process. */
static void
test_odd_addresses(void)
{
    const shape s = { 20, 128, 64, 3, BERTH_F32, false, false, true };
    weight w = make_weight(&s);
    berthi_request good;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, w.bytes);
    good = request_at(&w, memory);
    CHECK_ODD(absmax, 2, "absmax at an address that is no multiple of 4");
    CHECK_ODD(inputs, 2, "inputs at an address that is no multiple of 4");
    CHECK_ODD(bias, 1, "bias at an address that is no multiple of 4");
    CHECK_ODD(outputs, 3, "outputs at an address that is no multiple of 4");
    good.arguments.multiply.dtype = BERTH_BF16;
    CHECK_ODD(inputs, 1, "inputs at an address that is no multiple of 2");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, w.bytes);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free_weight(&w);
}

static berthi_request
request_of(const void *user, uint8_t *const *at)
{
    berthi_request request = *(const berthi_request *)user;
    berthi_multiply_arguments *const a = &request.arguments.multiply;

    a->codes = at[0];
    a->absmax = (const float *)(void *)at[1];
    a->absmax_codes = at[2];
    a->inputs = at[3];
    a->bias = at[4];
    a->outputs = at[5];
    a->scratch = (float *)(void *)at[6];
    return request;
}

/* Calls of one product: all of them, and those whose scratch has the inputs already. */
static struct {
    uint32_t calls;
    uint32_t arranged;
    const float *scratch;
} counted;

static void
count_and_multiply(const berthi_product_arguments *a)
{
    CHECK(counted.scratch == NULL || counted.scratch == a->scratch);
    counted.scratch = a->scratch;
    counted.arranged += a->is_arranged;
    counted.calls++;
    berthi_scalar_operations.multiply_nf4(a);
}

static uint32_t
count_arranged(uint32_t inputs)
{
    const shape s = { 200, 128, 64, inputs, BERTH_BF16, false, true, true };
    weight w = make_weight(&s);
    const berthi_request request = request_at(&w, w.memory);
    uint8_t *const expected = multiply_at_once(&w, &berthi_scalar_operations);

    memset(&counted, 0, sizeof counted);
    berthi_multiply_run(&request.arguments.multiply, &berthi_scalar_operations,
                        count_and_multiply);
    CHECK_MEM(w.memory + w.outputs, expected, w.outputs_bytes);
    free(expected);
    free_weight(&w);
    return counted.calls - counted.arranged;
}

/* Inputs that meet a weight together are arranged for its first rows, and once. */
static void
test_inputs_are_arranged_once(void)
{
    CHECK_EQ(count_arranged(1), 1);
    CHECK_EQ(count_arranged(32), 1);
    CHECK_EQ(counted.calls, 4);
    CHECK_EQ(count_arranged(33), 8); /* two groups have one scratch in turns */
    CHECK_EQ(counted.calls, 8);
}

static void
test_simulated_to_the_byte(void)
{
    weight w = make_weight(&shapes[1]);
    const berthi_request whole = request_at(&w, w.memory);
    const uint64_t scratch = berthi_multiply_scratch(&whole.arguments.multiply);
    const uint64_t sizes[] = { 33 * 512 / 2, 2 * 4, 264, 8 * 512 * 2, 33 * 2, 33 * 8 * 2,
                               scratch * 4 };
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    rig_check_exact(&r, &(rig_exact){ sizes, 7, 0x7f, 0x7f, request_of, &whole });
    rig_close(&r);
    free_weight(&w);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_old_kernels_on_a_new_gpu);
    T_RUN(test_largest_sizes);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_inputs_are_arranged_once);
    T_RUN(test_simulated_to_the_byte);
    T_MAIN_END;
}
