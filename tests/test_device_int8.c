/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LLM.int8() makes of sums, asked for of each kind of device: processors, simulations
 * and GPUs (run on the host) have the bits of berthi_int8_output(). Every one refuses the
 * same, and touches no more than its arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/random.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };
static uint64_t state = 0xE7037ED1A0B428DBu;

typedef struct shape {
    uint64_t count;
    uint64_t rows;
    uint64_t columns; /* 0: no outliers are asked for */
    uint32_t one_in;  /* outliers: one of so many columns; 0: none is one */
    uint32_t capacity;
    int32_t dtype;
    bool has_bias;
} shape;

/* Words of the mask that are all 0, outliers at both ends, more than the list holds. */
static const shape shapes[] = {
    { 5, 70, 0, 0, 0, BERTH_BF16, true },   { 9, 33, 0, 0, 0, BERTH_F16, false },
    { 3, 40, 0, 0, 0, BERTH_F32, true },    { 4, 36, 200, 40, 64, BERTH_BF16, true },
    { 2, 17, 129, 3, 5, BERTH_F16, false }, { 6, 20, 96, 0, 8, BERTH_F32, true },
    { 3, 8, 65, 1, 80, BERTH_BF16, false }, { 0, 8, 0, 0, 0, BERTH_BF16, false },
    { 3, 0, 64, 4, 8, BERTH_F32, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

enum { SUMS, INPUT_MAXIMUM, WEIGHT_MAXIMUM, BIAS, MASK, LIST, FOUND, WEIGHTS, INPUTS, OUTPUTS,
       PARTS };

/* All arguments, one behind the other in memory of any kind; outputs come last. */
typedef struct problem {
    shape s;
    uint64_t sizes[PARTS];
    uint64_t at[PARTS];
    uint64_t bytes;
    uint8_t *memory;     /* the host's copy */
    int64_t *sums;       /* as the reference takes them */
    uint8_t *is_outlier;
} problem;

static berthi_request
request_at(const problem *p, uint8_t *const at[PARTS])
{
    const shape *const s = &p->s;
    const bool has_outliers = s->columns > 0;

    return (berthi_request){
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = {
            .sums = (const int32_t *)(void *)at[SUMS],
            .input_maximum = (const float *)(void *)at[INPUT_MAXIMUM],
            .weight_maximum = (const float *)(void *)at[WEIGHT_MAXIMUM],
            .bias = s->has_bias ? (const uint16_t *)(void *)at[BIAS] : NULL,
            .outputs = at[OUTPUTS],
            .dtype = s->dtype,
            .count = s->count,
            .rows = s->rows,
            .outliers = { has_outliers ? (uint32_t *)(void *)at[MASK] : NULL,
                          (uint32_t *)(void *)at[LIST], (uint32_t *)(void *)at[FOUND],
                          s->capacity },
            .weights = (const int8_t *)at[WEIGHTS],
            .inputs = at[INPUTS],
            .columns = s->columns,
        },
    };
}

static void
point(const problem *p, uint8_t *memory, uint8_t *out[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        out[i] = memory + p->at[i];
}

static void
draw_outliers(problem *p, uint8_t *const at[PARTS])
{
    uint32_t *const mask = (uint32_t *)(void *)at[MASK];
    uint32_t *const list = (uint32_t *)(void *)at[LIST];
    uint32_t found = 0;

    for (uint32_t k = 0; k < p->s.columns; k++) {
        p->is_outlier[k] = p->s.one_in != 0 && random_next(&state) % p->s.one_in == 0;
        if (p->is_outlier[k] == 0)
            continue;
        mask[k / 32] |= 1u << k % 32;
        if (found < p->s.capacity)
            list[found] = k;
        found++;
    }
    memcpy(at[FOUND], &found, sizeof found);
}

static void
draw(problem *p)
{
    uint8_t *at[PARTS];

    point(p, p->memory, at);
    for (uint64_t i = 0; i < p->s.count * p->s.rows; i++) {
        const int32_t sum = (int32_t)(random_next(&state) >> 44) - (1 << 19);

        memcpy(at[SUMS] + 4 * i, &sum, sizeof sum);
        p->sums[i] = sum;
    }
    for (uint64_t i = 0; i < p->s.count; i++)
        ((float *)(void *)at[INPUT_MAXIMUM])[i] = 4.0f + 3.0f * random_signed(&state);
    for (uint64_t i = 0; i < p->s.rows; i++) {
        ((float *)(void *)at[WEIGHT_MAXIMUM])[i] = 0.1f + 0.09f * random_signed(&state);
        ((uint16_t *)(void *)at[BIAS])[i] = berthi_core_to_fp16(random_signed(&state));
    }
    for (uint64_t i = 0; i < p->sizes[WEIGHTS]; i++)
        at[WEIGHTS][i] = (uint8_t)(random_next(&state) % 255 - 127);
    for (uint64_t i = 0; i < p->s.count * p->s.columns; i++)
        berthi_core_store(at[INPUTS], p->s.dtype, i, 8.0f * random_signed(&state));
    draw_outliers(p, at);
}

static problem
make_problem(const shape *s)
{
    const uint64_t width = s->dtype == BERTH_F32 ? 4 : 2;
    problem p = { .s = *s,
                  .sizes = { s->count * s->rows * 4, s->count * 4, s->rows * 4, s->rows * 2,
                             (s->columns + 31) / 32 * 4, s->capacity * UINT64_C(4), 4,
                             s->rows * s->columns, s->count * s->columns * width,
                             s->count * s->rows * width } };

    for (int i = 0; i < PARTS; i++) {
        p.at[i] = p.bytes;
        p.bytes += (p.sizes[i] + 255) / 256 * 256;
    }
    p.memory = calloc(1, p.bytes + 256);
    p.sums = calloc(s->count * s->rows + 1, sizeof *p.sums);
    p.is_outlier = calloc(1, s->columns + 1);
    if (p.memory == NULL || p.sums == NULL || p.is_outlier == NULL)
        abort();
    draw(&p);
    return p;
}

static void
free_problem(problem *p)
{
    free(p->memory);
    free(p->sums);
    free(p->is_outlier);
}

/* To be freed. */
static uint8_t *
make_expected(const problem *p)
{
    const shape *const s = &p->s;
    const berthi_dot_arguments dot = { .weights = (const int8_t *)p->memory + p->at[WEIGHTS],
                                       .rows = s->rows, .columns = s->columns,
                                       .end_row = s->rows, .count = (uint32_t)s->count,
                                       .sums = p->sums };
    uint8_t *const outputs = calloc(1, p->sizes[OUTPUTS] + 1);
    uint8_t *at[PARTS];

    if (outputs == NULL)
        abort();
    point(p, p->memory, at);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = (const float *)(void *)at[WEIGHT_MAXIMUM],
        .input_maximum = (const float *)(void *)at[INPUT_MAXIMUM],
        .bias = s->has_bias ? (const uint16_t *)(void *)at[BIAS] : NULL,
        .inputs = at[INPUTS], .is_outlier = s->columns > 0 ? p->is_outlier : NULL,
        .dtype = s->dtype, .outputs = outputs });
    return outputs;
}

/* --------------------------------------------------------------------------- devices */

/* What the device makes of it, in the order of a stream; nothing but outputs changes. */
static void
check_on(rig *r, const problem *p, const char *words)
{
    const berthi_device_table *const t = r->device->table;
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = rig_alloc(r->device, p->bytes + 256);
    uint8_t *const outputs = malloc(p->bytes + 256);
    uint8_t *const expected = make_expected(p);
    const berthi_copy there = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                                .from = p->memory, .bytes = p->bytes + 256 };
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .to = outputs, .from = memory,
                               .bytes = p->bytes + 256 };
    berthi_request request;
    uint8_t *at[PARTS];

    point(p, memory, at);
    request = request_at(p, at);
    CHECK(t->has_operation(r->device, request.operation));
    CHECK_EQ(t->copy(r->device, &there, stream, NULL), BERTH_OK);
    CHECK_EQ(t->launch(r->device, &request, stream, NULL), BERTH_OK);
    CHECK_EQ(t->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream);
    if (!CHECK_MEM(outputs + p->at[OUTPUTS], expected, p->sizes[OUTPUTS]))
        T_NOTE("shape %d on %s", (int)(p->s.count * 1000 + p->s.rows), words);
    CHECK_MEM(outputs, p->memory, p->at[OUTPUTS]);
    CHECK_MEM(outputs + p->at[OUTPUTS] + p->sizes[OUTPUTS],
              p->memory + p->at[OUTPUTS] + p->sizes[OUTPUTS],
              p->bytes + 256 - p->at[OUTPUTS] - p->sizes[OUTPUTS]);
    free(outputs);
    free(expected);
    t->stream_destroy(r->device, stream);
    t->free(r->device, memory, p->bytes + 256);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", "sim:64MiB,h2d=1GB/s,memory=2GB/s" };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < SHAPES; i++) {
            problem p = make_problem(&shapes[i]);
            rig r;

            T_REQUIRE(rig_open(&r, words[k]));
            check_on(&r, &p, words[k]);
            rig_close(&r);
            free_problem(&p);
        }
}

static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < SHAPES; i++) {
        problem p = make_problem(&shapes[i]);
        rig r;

        fake_cuda_begin(&late);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        check_on(&r, &p, "cuda");
        CHECK_EQ(fake_cuda_read().launches, p.sizes[OUTPUTS] > 0);
        rig_close(&r);
        fake_cuda_check_empty();
        fake_cuda_end();
        free_problem(&p);
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
    bad.arguments.int8_output.dtype = BERTH_I8;
    rig_check_refused(r, &bad, "no sums become outputs of dtype ");
    bad = good;
    bad.arguments.int8_output.count = UINT64_C(1) << 32;
    rig_check_refused(r, &bad, "no sums are those of 4294967296 inputs and a weight of 36 x 200");
    bad = good;
    bad.arguments.int8_output.rows = UINT64_MAX / 4;
    rig_check_refused(r, &bad, "no sums are those of ");
    bad = good;
    bad.arguments.int8_output.columns = UINT64_C(1) << 32;
    rig_check_refused(r, &bad, "no sums are those of ");
    r->device->table->free(r->device, memory, p->bytes);
}

static void
test_refused_by_each(void)
{
    problem p = make_problem(&shapes[3]);

    rig_refused_by_each(check_refusals, &p);
    free_problem(&p);
}

/* What ends a GPU for the whole process. */
static void
test_odd_addresses(void)
{
    static const struct {
        int part;
        uint64_t by;
        const char *why;
    } cases[] = { { SUMS, 2, "sums at an address that is no multiple of 4" },
                  { INPUT_MAXIMUM, 1, "maxima at an address that is no multiple of 4" },
                  { WEIGHT_MAXIMUM, 2, "maxima at an address that is no multiple of 4" },
                  { BIAS, 1, "bias at an address that is no multiple of 2" },
                  { OUTPUTS, 1, "outputs at an address that is no multiple of 2" },
                  { MASK, 2, "outliers at an address that is no multiple of 4" },
                  { LIST, 1, "outliers at an address that is no multiple of 4" },
                  { FOUND, 3, "outliers at an address that is no multiple of 4" },
                  { INPUTS, 1, "inputs at an address that is no multiple of 2" } };
    problem p = make_problem(&shapes[3]);
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
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
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free_problem(&p);
}

static berthi_request
request_of(const void *user, uint8_t *const *at)
{
    return request_at(user, at);
}

/* Of weights and inputs few columns are read, and none is counted. */
static void
test_simulated_to_the_byte(void)
{
    problem p = make_problem(&shapes[3]);
    const uint32_t all = (1u << PARTS) - 1;
    const rig_exact exact = { p.sizes, PARTS, all, all & ~(1u << WEIGHTS | 1u << INPUTS),
                              request_of, &p };
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    rig_check_exact(&r, &exact);
    rig_close(&r);
    free_problem(&p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_simulated_to_the_byte);
    T_MAIN_END;
}
