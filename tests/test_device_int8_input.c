/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LLM.int8() makes of inputs, asked for of each kind of device: processors, simulations
 * and GPUs (run on the host) have the bits of berthi_encode_activations(), the same mask and
 * the same list. With products and outputs behind them they have those of the host's product.
 * Every one refuses the same, and touches no more than its arguments.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/digest.h"
#include "kernels/number.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/random.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define SIMULATED "sim:64MiB,h2d=1GB/s,memory=2GB/s"

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 86,
                                        .memory_bytes = 64 * MIB, .is_late = true };
static uint64_t state = 0xC2B2AE3D27D4EB4Fu;

typedef enum filling { ORDINARY, SOME_LARGE, ALL_LARGE, NOT_FINITE } filling;

typedef struct shape {
    uint64_t count;
    uint64_t columns;
    uint32_t capacity;
    float threshold;
    int32_t dtype;
    filling filling;
} shape;

/* Words of the mask that are all 0, a part of one at the end, more than the list holds. */
static const shape shapes[] = {
    { 5, 200, 32, 6, BERTH_BF16, SOME_LARGE },   { 1, 200, 32, 6, BERTH_F16, SOME_LARGE },
    { 3, 65, 9, 6, BERTH_F32, ORDINARY },        { 4, 96, 96, 6, BERTH_BF16, ALL_LARGE },
    { 2, 129, 5, 6, BERTH_F16, ALL_LARGE },      { 40, 72, 9, 6, BERTH_F32, NOT_FINITE },
    { 7, 33, 0, 6, BERTH_BF16, SOME_LARGE },     { 1, 264, 1, 6, BERTH_F32, ALL_LARGE },
    { 3, 2056, 257, 5.5f, BERTH_BF16, SOME_LARGE }, { 2, 64, 8, 6.001f, BERTH_F32, SOME_LARGE },
    { 6, 100, 16, 0, BERTH_BF16, NOT_FINITE },   { 4, 40, 5, INFINITY, BERTH_F32, NOT_FINITE },
    { 0, 64, 8, 6, BERTH_BF16, ORDINARY },       { 3, 0, 0, 6, BERTH_F16, ORDINARY },
    { 9, 16392, 2049, 6, BERTH_F16, SOME_LARGE },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

enum { INPUTS, CODES, MAXIMA, MASK, LIST, FOUND, PARTS };

/* All arguments, one behind the other in memory of any kind. */
typedef struct problem {
    shape s;
    uint64_t sizes[PARTS];
    uint64_t at[PARTS];
    uint64_t bytes;
    uint8_t *memory; /* the host's copy */
} problem;

/* As f32 finite beyond f16, too. */
static float
draw_value(const shape *s, uint64_t column)
{
    static const float extremes[] = { NAN, INFINITY, -INFINITY, 1e6f };
    const float sign = random_next(&state) % 2 == 0 ? 1.0f : -1.0f;

    if (s->filling == NOT_FINITE && random_next(&state) % 8 == 0)
        return extremes[random_next(&state) % 4];
    if (s->filling == ALL_LARGE
        || (s->filling == SOME_LARGE && column % 37 == 5 && random_next(&state) % 4 == 0))
        return sign * (5.9f + (s->filling == ALL_LARGE ? 0.2f : 0.0f)
                       + (float)(random_next(&state) % 64) * 0x1p-8f);
    return 5.0f * random_signed(&state);
}

static void
draw_inputs(uint8_t *inputs, const shape *s)
{
    for (uint64_t i = 0; i < s->count * s->columns; i++)
        berthi_core_store(inputs, s->dtype, i, draw_value(s, i % s->columns));
}

static problem
make_problem(const shape *s)
{
    problem p = { .s = *s,
                  .sizes = { s->count * s->columns * berthi_number_bytes(s->dtype),
                             s->count * s->columns, s->count * 4,
                             berthi_outlier_words(s->columns) * 4,
                             s->capacity * UINT64_C(4), 4 } };

    for (int i = 0; i < PARTS; i++) {
        p.at[i] = p.bytes;
        p.bytes += (p.sizes[i] + 255) / 256 * 256;
    }
    p.bytes += 256;
    p.memory = malloc(p.bytes);
    if (p.memory == NULL)
        abort();
    memset(p.memory, 0x5A, p.bytes);
    memset(p.memory + p.at[MASK], 0, p.sizes[MASK]);
    draw_inputs(p.memory + p.at[INPUTS], s);
    return p;
}

static void
point(const problem *p, uint8_t *memory, uint8_t *out[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        out[i] = memory + p->at[i];
}

static berthi_request
request_at(const problem *p, uint8_t *const at[PARTS])
{
    const shape *const s = &p->s;

    return (berthi_request){
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = {
            .inputs = at[INPUTS], .dtype = s->dtype, .threshold = s->threshold,
            .count = s->count, .columns = s->columns, .codes = (int8_t *)at[CODES],
            .input_maximum = (float *)(void *)at[MAXIMA],
            .outliers = { (uint32_t *)(void *)at[MASK], (uint32_t *)(void *)at[LIST],
                          (uint32_t *)(void *)at[FOUND], s->capacity },
        },
    };
}

/* ------------------------------------------------------------------------- expected */

static void
note_expected(const problem *p, const uint8_t *is_outlier, uint8_t *const at[PARTS])
{
    uint32_t *const mask = (uint32_t *)(void *)at[MASK];
    uint32_t *const list = (uint32_t *)(void *)at[LIST];
    uint32_t found = 0;

    for (uint32_t k = 0; k < p->s.columns; k++) {
        if (is_outlier[k] == 0)
            continue;
        mask[k / 32] |= 1u << k % 32;
        if (found < p->s.capacity)
            list[found] = k;
        found++;
    }
    memcpy(at[FOUND], &found, sizeof found);
}

/* All memory as it is to be. To be freed. */
static uint8_t *
make_expected(const problem *p)
{
    const shape *const s = &p->s;
    uint8_t *const memory = malloc(p->bytes);
    uint8_t *const is_outlier = calloc(1, s->columns + 1);
    uint8_t *at[PARTS];

    if (memory == NULL || is_outlier == NULL)
        abort();
    memcpy(memory, p->memory, p->bytes);
    point(p, memory, at);
    berthi_encode_activations(&(berthi_activation_arguments){
        .values = at[INPUTS], .dtype = s->dtype, .rows = s->count, .columns = s->columns,
        .threshold = s->threshold, .codes = (int8_t *)at[CODES],
        .row_maximum = (float *)(void *)at[MAXIMA], .is_outlier = is_outlier });
    if (s->threshold > 0 && s->count > 0)
        note_expected(p, is_outlier, at);
    free(is_outlier);
    return memory;
}

/* --------------------------------------------------------------------------- devices */

/* What the device makes of it, in the order of a stream. */
static void
check_on(const rig *r, const problem *p, const char *words)
{
    const berthi_device_table *const t = r->device->table;
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = rig_alloc(r->device, p->bytes);
    uint8_t *const outputs = malloc(p->bytes);
    uint8_t *const expected = make_expected(p);
    const berthi_copy there = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                                .from = p->memory, .bytes = p->bytes };
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .to = outputs, .from = memory,
                               .bytes = p->bytes };
    berthi_request request;
    uint8_t *at[PARTS];

    point(p, memory, at);
    request = request_at(p, at);
    CHECK(t->has_operation(r->device, request.operation));
    CHECK_EQ(t->copy(r->device, &there, stream, NULL), BERTH_OK);
    CHECK_EQ(t->launch(r->device, &request, stream, NULL), BERTH_OK);
    CHECK_EQ(t->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream);
    if (!CHECK_MEM(outputs, expected, p->bytes))
        T_NOTE("%d inputs of %d columns on %s", (int)p->s.count, (int)p->s.columns, words);
    free(outputs);
    free(expected);
    t->stream_destroy(r->device, stream);
    t->free(r->device, memory, p->bytes);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", SIMULATED };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < SHAPES; i++) {
            problem p = make_problem(&shapes[i]);
            rig r;

            T_REQUIRE(rig_open(&r, words[k]));
            check_on(&r, &p, words[k]);
            rig_close(&r);
            free(p.memory);
        }
}

/* A GPU, by berth's own kernels or (with the library) by cuBLASLt where it can. */
static bool
open_gpu(rig *r, bool has_library)
{
    fake_gemm_begin();
    fake_gemm_hide(!has_library);
    fake_cuda_begin(&late);
    return rig_open_cuda(r, fake_cuda_calls(), "cuda");
}

static void
close_gpu(rig *r)
{
    rig_close(r);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    fake_cuda_end();
    fake_gemm_begin();
}

/* Rows, the list, their codes; of one input no others' codes are 0, too. */
static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *const s = &shapes[i];
        problem p = make_problem(s);
        rig r;

        T_REQUIRE(open_gpu(&r, false));
        check_on(&r, &p, "cuda");
        CHECK_EQ(fake_cuda_read().launches, s->count == 0       ? 0
                                            : !(s->threshold > 0) ? 1
                                            : s->count == 1       ? 2
                                                                  : 3);
        close_gpu(&r);
        free(p.memory);
    }
}

/* ------------------------------------------------------------------- whole products */

typedef struct product {
    shape s;
    uint64_t rows;
    bool has_bias;
    uint64_t sizes[8]; /* of the parts below */
    uint64_t at[8];
    uint64_t bytes;
    uint8_t *memory;   /* the host's copy; the mask is not 0 there */
} product;

enum { P_INPUTS, P_WEIGHTS, P_MAXIMA, P_BIAS, P_OUTPUTS, P_CODES, P_SUMS, P_ROOM };

static product
make_product(const shape *s, uint64_t rows, bool has_bias)
{
    const uint64_t width = berthi_number_bytes(s->dtype);
    product p = { .s = *s, .rows = rows, .has_bias = has_bias,
                  .sizes = { s->count * s->columns * width, rows * s->columns, rows * 4,
                             rows * 2, s->count * rows * width, s->count * s->columns,
                             s->count * rows * 4,
                             4 * (s->count + berthi_outlier_words(s->columns) + s->capacity
                                  + 1) } };

    for (int i = 0; i < 8; i++) {
        p.at[i] = p.bytes;
        p.bytes += (p.sizes[i] + 255) / 256 * 256;
    }
    p.memory = malloc(p.bytes);
    if (p.memory == NULL)
        abort();
    memset(p.memory, 0xA7, p.bytes);
    draw_inputs(p.memory + p.at[P_INPUTS], s);
    for (uint64_t i = 0; i < rows * s->columns; i++)
        p.memory[p.at[P_WEIGHTS] + i] = (uint8_t)(random_next(&state) % 255 - 127);
    for (uint64_t i = 0; i < rows; i++) {
        ((float *)(void *)(p.memory + p.at[P_MAXIMA]))[i] =
            0.1f + 0.09f * random_signed(&state);
        ((uint16_t *)(void *)(p.memory + p.at[P_BIAS]))[i] =
            berthi_core_to_fp16(random_signed(&state));
    }
    return p;
}

/* In memory of any kind; the room begins with the inputs' maxima. */
static void
ask_product(const product *p, uint8_t *memory, berthi_request out[3])
{
    const shape *const s = &p->s;
    float *const maxima = (float *)(void *)(memory + p->at[P_ROOM]);
    uint32_t *const mask = (uint32_t *)(void *)(maxima + s->count);
    uint32_t *const list = mask + berthi_outlier_words(s->columns);
    const berthi_outlier_room room = { mask, list, list + s->capacity, s->capacity };
    int8_t *const codes = (int8_t *)memory + p->at[P_CODES];
    int32_t *const sums = (int32_t *)(void *)(memory + p->at[P_SUMS]);
    const int8_t *const weights = (const int8_t *)memory + p->at[P_WEIGHTS];

    out[0] = (berthi_request){
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = { .inputs = memory + p->at[P_INPUTS], .dtype = s->dtype,
                                  .threshold = s->threshold, .count = s->count,
                                  .columns = s->columns, .codes = codes,
                                  .input_maximum = maxima, .outliers = room } };
    out[1] = (berthi_request){
        .operation = BERTHI_OPERATION_MULTIPLY_INT8,
        .arguments.int8 = { .weights = weights, .inputs = codes, .sums = sums,
                            .count = (uint32_t)s->count, .rows = p->rows,
                            .columns = s->columns } };
    out[2] = (berthi_request){
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = {
            .sums = sums, .input_maximum = maxima,
            .weight_maximum = (const float *)(void *)(memory + p->at[P_MAXIMA]),
            .bias = p->has_bias ? (const uint16_t *)(void *)(memory + p->at[P_BIAS]) : NULL,
            .outputs = memory + p->at[P_OUTPUTS], .dtype = s->dtype, .count = s->count,
            .rows = p->rows, .outliers = room, .weights = weights,
            .inputs = memory + p->at[P_INPUTS], .columns = s->columns } };
}

/* As the host multiplies; to be freed. */
static uint8_t *
multiply_on_host(const product *p)
{
    const shape *const s = &p->s;
    int8_t *const codes = calloc(1, s->count * s->columns);
    float *const maxima = calloc(s->count, sizeof *maxima);
    int64_t *const sums = calloc(s->count * p->rows, sizeof *sums);
    uint8_t *const is_outlier = calloc(1, s->columns);
    uint8_t *const outputs = calloc(1, p->sizes[P_OUTPUTS]);
    const berthi_dot_arguments dot = { .weights = (const int8_t *)p->memory + p->at[P_WEIGHTS],
                                       .inputs = codes, .rows = p->rows,
                                       .columns = s->columns, .end_row = p->rows,
                                       .count = (uint32_t)s->count, .sums = sums };

    if (codes == NULL || maxima == NULL || sums == NULL || is_outlier == NULL
        || outputs == NULL)
        abort();
    berthi_encode_activations(&(berthi_activation_arguments){
        .values = p->memory + p->at[P_INPUTS], .dtype = s->dtype, .rows = s->count,
        .columns = s->columns, .threshold = s->threshold, .codes = codes,
        .row_maximum = maxima, .is_outlier = is_outlier });
    berthi_scalar_operations.dot_int8(&dot);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = (const float *)(void *)(p->memory + p->at[P_MAXIMA]),
        .input_maximum = maxima,
        .bias = p->has_bias ? (const uint16_t *)(void *)(p->memory + p->at[P_BIAS]) : NULL,
        .inputs = p->memory + p->at[P_INPUTS], .is_outlier = is_outlier, .dtype = s->dtype,
        .outputs = outputs });
    free(codes);
    free(maxima);
    free(sums);
    free(is_outlier);
    return outputs;
}

/* Where two NaN are added either may be the sum. */
static uint64_t
count_different(const product *p, const uint8_t *a, const uint8_t *b)
{
    const uint64_t width = berthi_number_bytes(p->s.dtype);
    uint64_t different = 0;

    for (uint64_t i = 0; i < p->s.count * p->rows; i++)
        different += memcmp(a + i * width, b + i * width, width) != 0
                     && !(isnan(berthi_core_load(a, p->s.dtype, i))
                          && isnan(berthi_core_load(b, p->s.dtype, i)));
    return different;
}

static void
check_product_on(const rig *r, const product *p, const uint8_t *expected)
{
    const berthi_device_table *const t = r->device->table;
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = rig_alloc(r->device, p->bytes);
    uint8_t *const outputs = malloc(p->sizes[P_OUTPUTS]);
    const berthi_copy there = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                                .from = p->memory, .bytes = p->bytes };
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .to = outputs,
                               .from = memory + p->at[P_OUTPUTS],
                               .bytes = p->sizes[P_OUTPUTS] };
    berthi_request requests[3];

    ask_product(p, memory, requests);
    CHECK_EQ(t->copy(r->device, &there, stream, NULL), BERTH_OK);
    CHECK_EQ(t->clear(r->device, requests[0].arguments.int8_input.outliers.mask,
                      berthi_outlier_words(p->s.columns) * 4, stream, NULL),
             BERTH_OK);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(t->launch(r->device, &requests[i], stream, NULL), BERTH_OK);
    CHECK_EQ(t->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream);
    if (!CHECK_EQ(count_different(p, outputs, expected), 0))
        T_NOTE("%d inputs of %d columns, dtype %d, filling %d", (int)p->s.count,
               (int)p->s.columns, p->s.dtype, (int)p->s.filling);
    free(outputs);
    t->stream_destroy(r->device, stream);
    t->free(r->device, memory, p->bytes);
}

/* On each kind; GPUs with and without the library that multiplies many inputs at once. */
static void
check_product(const shape *s, uint64_t rows, bool has_bias)
{
    product p = make_product(s, rows, has_bias);
    uint8_t *const expected = multiply_on_host(&p);
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    check_product_on(&r, &p, expected);
    rig_close(&r);
    T_REQUIRE(rig_open(&r, SIMULATED));
    check_product_on(&r, &p, expected);
    rig_close(&r);
    for (int has_library = 0; has_library < 2 && simt_has_fibers(); has_library++) {
        T_REQUIRE(open_gpu(&r, has_library != 0));
        check_product_on(&r, &p, expected);
        CHECK_EQ(fake_gemm_read().products,
                 has_library != 0 && s->count > 1 && s->columns % 4 == 0 && rows % 4 == 0);
        close_gpu(&r);
    }
    free(expected);
    free(p.memory);
}

static void
test_products(void)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

    for (uint32_t count = 1; count <= 40; count += count < 4 ? 1 : 6)
        for (uint32_t i = 0; i < 12; i++) {
            const uint32_t columns =
                32 + (uint32_t)(random_next(&state) % 40) * (i % 2 == 0 ? 4 : 3);
            const shape s = { .count = count, .columns = columns, .threshold = 6,
                              .capacity = (uint32_t)berthi_outlier_capacity(columns),
                              .dtype = dtypes[i % 3], .filling = (filling)(i / 3) };

            check_product(&s,
                          i % 2 == 0 ? 4 + random_next(&state) % 9 * 4
                                     : 1 + random_next(&state) % 40,
                          i % 4 < 2);
        }
}

/* -------------------------------------------------------------------------- refusals */

static void
check_refusals(const rig *r, const void *user)
{
    const problem *const p = user;
    uint8_t *const memory = rig_alloc(r->device, p->bytes);
    berthi_request good;
    berthi_request bad;
    uint8_t *at[PARTS];

    point(p, memory, at);
    good = request_at(p, at);
    bad = good;
    bad.arguments.int8_input.dtype = BERTH_I8;
    rig_check_refused(r, &bad, "no inputs of dtype ");
    bad = good;
    bad.arguments.int8_input.threshold = -1;
    rig_check_refused(r, &bad, "a threshold that is below 0, or no number");
    bad.arguments.int8_input.threshold = NAN;
    rig_check_refused(r, &bad, "a threshold that is below 0, or no number");
    bad = good;
    bad.arguments.int8_input.columns = UINT64_C(1) << 31;
    rig_check_refused(r, &bad, "no codes are those of 5 inputs of 2147483648 columns");
    bad = good;
    bad.arguments.int8_input.count = UINT64_MAX / 4 / 200 + 1;
    rig_check_refused(r, &bad, "no codes are those of ");
    bad.arguments.int8_input.columns = 0;
    bad.arguments.int8_input.count = UINT64_MAX / 4 + 1;
    rig_check_refused(r, &bad, "no codes are those of ");
    r->device->table->free(r->device, memory, p->bytes);
}

static void
test_refused_by_each(void)
{
    problem p = make_problem(&shapes[0]);

    rig_refused_by_each(check_refusals, &p);
    free(p.memory);
}

/* What ends a GPU for the whole process. */
static void
test_odd_addresses(void)
{
    static const struct {
        int part;
        uint64_t by;
        const char *why;
    } cases[] = { { INPUTS, 1, "values at an address that is no multiple of 2" },
                  { MAXIMA, 2, "maxima at an address that is no multiple of 4" },
                  { MASK, 1, "outliers at an address that is no multiple of 4" },
                  { LIST, 2, "outliers at an address that is no multiple of 4" },
                  { FOUND, 3, "outliers at an address that is no multiple of 4" } };
    problem p = make_problem(&shapes[0]);
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_gpu(&r, false));
    memory = rig_alloc(r.device, p.bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_request request;
        uint8_t *at[PARTS];

        point(&p, memory, at);
        at[cases[i].part] += cases[i].by;
        request = request_at(&p, at);
        rig_check_refused(&r, &request, cases[i].why);
    }
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, p.bytes);
    close_gpu(&r);
    free(p.memory);
}

static berthi_request
request_of(const void *user, uint8_t *const *at)
{
    return request_at(user, at);
}

static void
check_to_the_byte(const rig *r, const shape *s)
{
    const problem p = make_problem(s);
    const uint32_t used = s->threshold > 0 ? (1u << PARTS) - 1 : (1u << MASK) - 1;

    rig_check_exact(r, &(rig_exact){ p.sizes, PARTS, used, used, request_of, &p });
    free(p.memory);
}

static void
test_simulated_to_the_byte(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    check_to_the_byte(&r, &shapes[0]);
    check_to_the_byte(&r, &shapes[10]);
    rig_close(&r);
}

/*
 * Where digests stand in for bytes: codes and maxima have one, all else must have its bytes,
 * the list of which a part may stay as it is among it.
 */
static void
check_with_digests(const rig *r, const problem *p, int left, const uint8_t *expected)
{
    const berthi_device_table *const t = r->device->table;
    const uint64_t bytes = 64 * MIB; /* of less all bytes are kept */
    const bool may_be = left == CODES || left == MAXIMA;
    uint8_t *const memory = rig_alloc(r->device, bytes);
    berthi_request request;
    uint8_t *at[PARTS];
    uint32_t crc = 0;

    point(p, memory, at);
    request = request_at(p, at);
    for (int i = 0; i < PARTS; i++) {
        const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .to = at[i],
                                   .from = p->memory + p->at[i], .bytes = p->sizes[i] };

        if (i != left)
            CHECK_EQ(t->keep(r->device, at[i], p->sizes[i], NULL), BERTH_OK);
        CHECK_EQ(t->copy(r->device, &copy, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(t->launch(r->device, &request, NULL, NULL),
             may_be ? BERTH_OK : BERTH_EUNSUPPORTED);
    rig_sync(r->device, NULL);
    if (may_be) {
        CHECK_EQ(t->digest(r->device, at[left], p->sizes[left], &crc, NULL), BERTH_OK);
        CHECK_EQ(crc, berthi_digest_crc32(0, expected + p->at[left], p->sizes[left]));
    }
    t->free(r->device, memory, bytes);
}

static void
test_simulated_with_digests(void)
{
    problem p = make_problem(&shapes[0]);
    uint8_t *const expected = make_expected(&p);
    rig r;

    T_REQUIRE(rig_open(&r, "sim:1GiB,backing=digest,latency=0ns"));
    for (int left = 0; left < PARTS; left++)
        check_with_digests(&r, &p, left, expected);
    rig_close(&r);
    free(expected);
    free(p.memory);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_products);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_simulated_to_the_byte);
    T_RUN(test_simulated_with_digests);
    T_MAIN_END;
}
