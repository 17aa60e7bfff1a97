/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs times weights that are not of 4 bits, asked for of each kind of device: numbers
 * within a bound of sums in double, with the same bits on all of them (GPUs run on the host),
 * and codes to the last bit. Every one refuses the same.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/digest.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/random.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };
static uint64_t state = 0x8EBC6AF09C88C6E3u;

typedef struct shape {
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    int32_t weight_dtype; /* BERTH_I8: codes, and sums of 32 bits */
    int32_t dtype;
    bool has_bias;
} shape;

/* Whole tiles and odd ones, more inputs than any kernel takes at once, nothing at all. */
static const shape shapes[] = {
    { 8, 256, 4, BERTH_BF16, BERTH_BF16, true }, { 13, 1000, 1, BERTH_BF16, BERTH_BF16, false },
    { 5, 129, 7, BERTH_F16, BERTH_F16, true },   { 21, 512, 3, BERTH_F32, BERTH_F32, false },
    { 4, 300, 5, BERTH_F32, BERTH_BF16, true },  { 3, 64, 70, BERTH_BF16, BERTH_F32, true },
    { 6, 40, 33, BERTH_BF16, BERTH_F16, false }, { 5, 0, 3, BERTH_BF16, BERTH_F16, true },
    { 0, 64, 3, BERTH_F16, BERTH_F16, true },    { 9, 64, 0, BERTH_F16, BERTH_BF16, false },
    { 70, 512, 9, BERTH_I8, BERTH_I8, false },   { 64, 33, 8, BERTH_I8, BERTH_I8, false },
    { 130, 16, 41, BERTH_I8, BERTH_I8, false },  { 3, 0, 2, BERTH_I8, BERTH_I8, false },
    { 0, 16, 2, BERTH_I8, BERTH_I8, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

enum { WEIGHT, INPUTS, BIAS, OUTPUTS, PARTS };

/* All arguments, one behind the other in memory of any kind; outputs come last. */
typedef struct problem {
    shape s;
    uint64_t sizes[PARTS];
    uint64_t at[PARTS];
    uint64_t bytes;
    uint8_t *memory; /* the host's copy */
} problem;

static uint64_t
width_of(int32_t dtype)
{
    return berth_dtype_bits(dtype) / 8;
}

static berthi_request
request_at(const problem *p, uint8_t *const at[PARTS])
{
    const shape *const s = &p->s;

    if (s->dtype == BERTH_I8)
        return (berthi_request){
            .operation = BERTHI_OPERATION_MULTIPLY_INT8,
            .arguments.int8 = { .weights = (const int8_t *)at[WEIGHT],
                                .inputs = (const int8_t *)at[INPUTS],
                                .sums = (int32_t *)(void *)at[OUTPUTS], .count = s->count,
                                .rows = s->rows, .columns = s->columns },
        };
    return (berthi_request){
        .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
        .arguments.plain = { .weight = at[WEIGHT], .inputs = at[INPUTS],
                             .bias = s->has_bias ? at[BIAS] : NULL, .outputs = at[OUTPUTS],
                             .weight_dtype = s->weight_dtype, .dtype = s->dtype,
                             .count = s->count, .rows = s->rows, .columns = s->columns },
    };
}

static void
point(const problem *p, uint8_t *memory, uint8_t *out[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        out[i] = memory + p->at[i];
}

static void
draw(uint8_t *values, int32_t dtype, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (dtype == BERTH_I8)
            values[i] = (uint8_t)random_next(&state);
        else
            berthi_core_store(values, dtype, i, random_signed(&state));
}

static problem
make_problem(const shape *s)
{
    const uint64_t width = width_of(s->dtype);
    problem p = { .s = *s,
                  .sizes = { s->rows * s->columns * width_of(s->weight_dtype),
                             s->count * s->columns * width, s->rows * width,
                             s->count * s->rows * (s->dtype == BERTH_I8 ? 4 : width) } };

    for (int i = 0; i < PARTS; i++) {
        p.at[i] = p.bytes;
        p.bytes += (p.sizes[i] + 255) / 256 * 256;
    }
    p.memory = calloc(1, p.bytes + 256);
    if (p.memory == NULL)
        abort();
    draw(p.memory + p.at[WEIGHT], s->weight_dtype, s->rows * s->columns);
    draw(p.memory + p.at[INPUTS], s->dtype, s->count * s->columns);
    draw(p.memory + p.at[BIAS], s->dtype, s->rows);
    return p;
}

/* ------------------------------------------------------------------------- expected */

static bool
is_right(const problem *p, const uint8_t *outputs, uint64_t input, uint64_t row)
{
    const shape *const s = &p->s;
    const int8_t *const weights = (const int8_t *)p->memory + p->at[WEIGHT];
    const int8_t *const inputs = (const int8_t *)p->memory + p->at[INPUTS];
    const uint64_t at = input * s->rows + row;
    const double unit = s->dtype == BERTH_BF16 ? 0x1p-8 : s->dtype == BERTH_F16 ? 0x1p-11
                                                                                : 0x1p-23;
    double sum = s->has_bias ? (double)berthi_core_load(p->memory + p->at[BIAS], s->dtype, row)
                             : 0.0;
    double size = fabs(sum);

    for (uint64_t k = 0; k < s->columns; k++) {
        const uint64_t i = row * s->columns + k;
        const uint64_t j = input * s->columns + k;
        const double term =
            s->dtype == BERTH_I8
                ? (double)(weights[i] * inputs[j])
                : (double)berthi_core_load(weights, s->weight_dtype, i)
                      * (double)berthi_core_load(inputs, s->dtype, j);

        sum += term;
        size += fabs(term);
    }
    if (s->dtype == BERTH_I8)
        return (double)((const int32_t *)(const void *)outputs)[at] == sum;
    /* 1000 columns are 4 of a sum, and 8 more in the tree, the product's own and the bias. */
    return fabs((double)berthi_core_load(outputs, s->dtype, at) - sum)
           <= unit * fabs(sum) + 14 * 0x1p-24 * size;
}

static void
check_right(const problem *p, const uint8_t *outputs)
{
    for (uint64_t i = 0; i < p->s.count; i++)
        for (uint64_t row = 0; row < p->s.rows; row++)
            CHECK(is_right(p, outputs, i, row));
}

/* --------------------------------------------------------------------------- devices */

/* In the order of a stream; nothing but outputs changes. *out is to be freed. */
static void
multiply_on(const rig *r, const problem *p, uint8_t **out)
{
    const berthi_device_table *const t = r->device->table;
    berthi_stream *const stream = rig_stream(r->device);
    const uint64_t bytes = p->bytes + 256;
    uint8_t *const memory = rig_alloc(r->device, bytes);
    uint8_t *const all = malloc(bytes);
    const berthi_copy there = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                                .from = p->memory, .bytes = bytes };
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .to = all, .from = memory,
                               .bytes = bytes };
    berthi_request request;
    uint8_t *at[PARTS];

    if (all == NULL || (*out = malloc(p->sizes[OUTPUTS] + 1)) == NULL)
        abort();
    point(p, memory, at);
    request = request_at(p, at);
    CHECK(t->has_operation(r->device, request.operation));
    CHECK_EQ(t->copy(r->device, &there, stream, NULL), BERTH_OK);
    CHECK_EQ(t->launch(r->device, &request, stream, NULL), BERTH_OK);
    CHECK_EQ(t->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream);
    memcpy(*out, all + p->at[OUTPUTS], p->sizes[OUTPUTS]);
    memset(all + p->at[OUTPUTS], 0, p->sizes[OUTPUTS]);
    CHECK_MEM(all, p->memory, bytes);
    free(all);
    t->stream_destroy(r->device, stream);
    t->free(r->device, memory, bytes);
}

static void
check_on(const char *words, const problem *p, const uint8_t *expected)
{
    uint8_t *outputs;
    rig r;

    T_REQUIRE(rig_open(&r, words));
    multiply_on(&r, p, &outputs);
    CHECK_MEM(outputs, expected, p->sizes[OUTPUTS]);
    free(outputs);
    rig_close(&r);
}

/* What berth's own kernels do of it. */
static void
check_on_gpu(const problem *p, const uint8_t *expected)
{
    uint8_t *outputs;
    rig r;

    fake_gemm_begin();
    fake_gemm_hide(true);
    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    multiply_on(&r, p, &outputs);
    CHECK_EQ(fake_cuda_read().launches, p->sizes[OUTPUTS] > 0);
    CHECK_MEM(outputs, expected, p->sizes[OUTPUTS]);
    free(outputs);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    fake_gemm_begin();
}

static void
test_each_kind(void)
{
    for (size_t i = 0; i < SHAPES; i++) {
        problem p = make_problem(&shapes[i]);
        uint8_t *outputs;
        rig r;

        T_REQUIRE(rig_open(&r, "cpu"));
        multiply_on(&r, &p, &outputs);
        rig_close(&r);
        check_right(&p, outputs);
        check_on("sim:64MiB,h2d=1GB/s,memory=2GB/s", &p, outputs);
        if (simt_has_fibers())
            check_on_gpu(&p, outputs);
        free(outputs);
        free(p.memory);
    }
}

/* Bits of an input alone are those it has in a batch, of any size and place in it. */
static void
test_alone_and_in_a_batch(void)
{
    const shape s = { 9, 520, 11, BERTH_BF16, BERTH_F32, true };
    const problem all = make_problem(&s);
    problem one = all;
    uint8_t *outputs;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    multiply_on(&r, &all, &outputs);
    one.s.count = 1;
    one.sizes[OUTPUTS] = 9 * 4;
    for (uint64_t i = 0; i < 11; i++) {
        uint8_t *its;

        one.memory = malloc(all.bytes + 256);
        if (one.memory == NULL)
            abort();
        memcpy(one.memory, all.memory, all.bytes + 256);
        memcpy(one.memory + one.at[INPUTS],
               all.memory + all.at[INPUTS] + i * 520 * 4, 520 * 4);
        multiply_on(&r, &one, &its);
        CHECK_MEM(its, outputs + i * 9 * 4, 9 * 4);
        free(its);
        free(one.memory);
    }
    free(outputs);
    free(all.memory);
    rig_close(&r);
}

/* -------------------------------------------------------------------------- refusals */

static void
check_numbers_refused(const rig *r, uint8_t *const at[PARTS])
{
    const problem p = { .s = shapes[0] };
    const berthi_request good = request_at(&p, at);
    berthi_request bad = good;

    bad.arguments.plain.dtype = BERTH_I8;
    rig_check_refused(r, &bad, "no product has inputs of dtype ");
    bad = good;
    bad.arguments.plain.weight_dtype = BERTH_U8;
    rig_check_refused(r, &bad, "no product has a weight of dtype ");
    bad = good;
    bad.arguments.plain.columns = UINT64_C(1) << 31;
    rig_check_refused(r, &bad, "no product has a weight of 8 x 2147483648 and 4 inputs");
    bad = good;
    bad.arguments.plain.rows = UINT64_MAX / 4 / 256 + 1;
    rig_check_refused(r, &bad, "no product has a weight of ");
    bad = good;
    bad.arguments.plain.rows = UINT64_MAX / 4 / UINT32_MAX + 1;
    bad.arguments.plain.columns = 0;
    bad.arguments.plain.count = UINT32_MAX;
    rig_check_refused(r, &bad, "no product has a weight of ");
}

static void
check_codes_refused(const rig *r, uint8_t *const at[PARTS])
{
    const problem p = { .s = shapes[10] };
    berthi_request bad = request_at(&p, at);

    bad.arguments.int8.columns = UINT64_C(1) << 17;
    rig_check_refused(r, &bad,
                  "no sum of 32 bits is that of 131072 columns of codes: 131071 at most");
    bad.arguments.int8.columns = 16;
    bad.arguments.int8.rows = UINT64_MAX / 64 + 1;
    rig_check_refused(r, &bad, "no product has a weight of ");
}

static void
check_refusals(const rig *r, const void *user)
{
    uint8_t *const memory = rig_alloc(r->device, 4096);
    uint8_t *const at[PARTS] = { memory, memory, memory, memory };

    (void)user;
    check_numbers_refused(r, at);
    check_codes_refused(r, at);
    r->device->table->free(r->device, memory, 4096);
}

static void
test_refused_by_each(void)
{
    rig_refused_by_each(check_refusals, NULL);
}

/* What ends a GPU for the whole process. */
static void
test_odd_addresses(void)
{
    static const struct {
        uint32_t shape;
        int part;
        uint64_t by;
        const char *why;
    } cases[] = { { 3, WEIGHT, 2, "weight at an address that is no multiple of 4" },
                  { 0, WEIGHT, 1, "weight at an address that is no multiple of 2" },
                  { 0, INPUTS, 1, "inputs at an address that is no multiple of 2" },
                  { 5, INPUTS, 2, "inputs at an address that is no multiple of 4" },
                  { 0, BIAS, 1, "bias at an address that is no multiple of 2" },
                  { 5, OUTPUTS, 2, "outputs at an address that is no multiple of 4" },
                  { 10, OUTPUTS, 2, "sums at an address that is no multiple of 4" } };
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const problem p = { .s = shapes[cases[i].shape] };
        uint8_t *at[PARTS] = { memory, memory, memory, memory };
        berthi_request request;

        at[cases[i].part] += cases[i].by;
        request = request_at(&p, at);
        rig_check_refused(&r, &request, cases[i].why);
    }
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
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
    const uint32_t used = ((1u << PARTS) - 1) & ~(s->has_bias ? 0 : 1u << BIAS);

    rig_check_exact(r, &(rig_exact){ p.sizes, PARTS, used, used, request_of, &p });
    free(p.memory);
}

static void
test_simulated_to_the_byte(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    check_to_the_byte(&r, &shapes[0]);
    check_to_the_byte(&r, &shapes[4]);
    check_to_the_byte(&r, &shapes[10]);
    rig_close(&r);
}

/*
 * Where digests stand in for bytes: outputs have one, all else must have its bytes. `left` is
 * the part that has none.
 */
static void
check_with_digests(const rig *r, const problem *p, int left, const uint8_t *expected)
{
    const berthi_device_table *const t = r->device->table;
    const uint64_t bytes = 64 * MIB; /* of less all bytes are kept */
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
        if (i != OUTPUTS)
            CHECK_EQ(t->copy(r->device, &copy, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(t->launch(r->device, &request, NULL, NULL),
             left == OUTPUTS ? BERTH_OK : BERTH_EUNSUPPORTED);
    rig_sync(r->device, NULL);
    if (left == OUTPUTS) {
        CHECK_EQ(t->digest(r->device, at[OUTPUTS], p->sizes[OUTPUTS], &crc, NULL), BERTH_OK);
        CHECK_EQ(crc, berthi_digest_crc32(0, expected, p->sizes[OUTPUTS]));
    }
    t->free(r->device, memory, bytes);
}

static void
test_simulated_with_digests(void)
{
    static const size_t numbers[] = { 0, 10 };

    for (size_t i = 0; i < 2; i++) {
        problem p = make_problem(&shapes[numbers[i]]);
        uint8_t *expected;
        rig r;

        T_REQUIRE(rig_open(&r, "cpu"));
        multiply_on(&r, &p, &expected);
        rig_close(&r);
        T_REQUIRE(rig_open(&r, "sim:1GiB,backing=digest,latency=0ns"));
        for (int left = 0; left < PARTS; left++)
            if (left != BIAS || p.s.has_bias)
                check_with_digests(&r, &p, left, expected);
        rig_close(&r);
        free(expected);
        free(p.memory);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each_kind);
    T_RUN(test_alone_and_in_a_batch);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_simulated_to_the_byte);
    T_RUN(test_simulated_with_digests);
    T_MAIN_END;
}
