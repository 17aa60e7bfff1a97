/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products asked for of a GPU, by a stand-in for cuBLASLt or by berth's own kernels, of few
 * inputs and of many: which way is taken at which number of inputs, and that results are
 * right either way, also where the library is not there, has no room or no such product, and
 * with every call of it and of the runtime failed in turn.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/fault.h"
#include "tests/gpu_faults.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define LEAST_INJECTIONS 1000u
/* Where memory is watched, which is slow, each call fails with a fourth of all errors. */
#define STRIDE (T_IS_SANITIZED ? 4u : 1u)
#define BLOCK 64u
#define OFFSET 0.03f

/* Its workspaces are those before Hopper: 4 MiB. */
static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 86,
                                        .memory_bytes = 64 * MIB, .is_late = true };

/* That has kernels of many inputs. */
static const fake_cuda_machine hopper = { .count = 1, .driver = 13000, .architecture = 90,
                                          .memory_bytes = 64 * MIB, .is_late = true };

typedef enum kind { OF_4BIT, OF_4BIT_TWICE, OF_NUMBERS, OF_CODES } kind;

typedef struct sample {
    kind kind;
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    uint64_t at[5]; /* of weight, absmax, absmax' codes, inputs, outputs */
    uint64_t bytes;
    uint8_t *memory; /* the fake's, which is the host's */
} sample;

enum { WEIGHT, ABSMAX, CODES, INPUTS, OUTPUTS };

/* Eighths and small numbers, of which sums are exact in any order. */
static void
fill(uint8_t *values, int32_t dtype, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (dtype == BERTH_I8)
            values[i] = (uint8_t)(seed >> 24);
        else
            berthi_core_store(values, dtype, i, (float)((int32_t)(seed >> 28) - 8) / 8.0f);
    }
}

static uint64_t
blocks_of(const sample *s)
{
    return (s->rows * s->columns + BLOCK - 1) / BLOCK;
}

static void
fill_weight(const sample *s)
{
    uint8_t *const weight = s->memory + s->at[WEIGHT];
    float *const absmax = (float *)(void *)(s->memory + s->at[ABSMAX]);

    if (s->kind == OF_NUMBERS || s->kind == OF_CODES) {
        fill(weight, s->dtype, s->rows * s->columns, 1);
        return;
    }
    fill(weight, BERTH_I8, s->rows * s->columns / 2, 2);
    fill(s->memory + s->at[CODES], BERTH_I8, blocks_of(s), 3);
    for (uint64_t i = 0; i < blocks_of(s); i++)
        absmax[i] = 0.25f + (float)(i % 5) / 16.0f;
}

/* NULL: only how large it is. */
static sample
lay_out(uint8_t *memory, kind of, int32_t dtype, uint64_t rows, uint64_t columns,
        uint32_t count)
{
    sample s = { .kind = of, .dtype = dtype, .rows = rows, .columns = columns,
                 .count = count, .memory = memory };
    const uint64_t sizes[5] = { rows * columns * 4, blocks_of(&s) * 4, blocks_of(&s),
                                count * columns * 4, count * rows * 4 };

    for (int i = 0; i < 5; i++) {
        s.at[i] = s.bytes;
        s.bytes += (sizes[i] + 255) / 256 * 256;
    }
    if (memory == NULL)
        return s;
    memset(memory, 0x55, s.bytes);
    fill_weight(&s);
    fill(memory + s.at[INPUTS], dtype, count * columns, 5);
    return s;
}

static sample
make_sample(berthi_device *device, kind of, int32_t dtype, uint64_t rows, uint64_t columns,
            uint32_t count)
{
    const uint64_t bytes = lay_out(NULL, of, dtype, rows, columns, count).bytes;

    return lay_out(rig_alloc(device, bytes), of, dtype, rows, columns, count);
}

static berthi_request
request_of(const sample *s)
{
    uint8_t *const weight = s->memory + s->at[WEIGHT];
    uint8_t *const inputs = s->memory + s->at[INPUTS];
    uint8_t *const outputs = s->memory + s->at[OUTPUTS];

    switch (s->kind) {
    case OF_NUMBERS:
        return (berthi_request){
            .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
            .arguments.plain = { .weight = weight, .inputs = inputs, .outputs = outputs,
                                 .weight_dtype = s->dtype, .dtype = s->dtype,
                                 .count = s->count, .rows = s->rows, .columns = s->columns } };
    case OF_CODES:
        return (berthi_request){
            .operation = BERTHI_OPERATION_MULTIPLY_INT8,
            .arguments.int8 = { .weights = (const int8_t *)weight,
                                .inputs = (const int8_t *)inputs,
                                .sums = (int32_t *)(void *)outputs, .count = s->count,
                                .rows = s->rows, .columns = s->columns } };
    default:
        return (berthi_request){
            .operation = BERTHI_OPERATION_MULTIPLY_FP4,
            .arguments.multiply = {
                .codes = weight, .absmax = (const float *)(void *)(s->memory + s->at[ABSMAX]),
                .absmax_codes = s->kind == OF_4BIT_TWICE ? s->memory + s->at[CODES] : NULL,
                .map = berthi_signed_map, .offset = OFFSET, .block_size = BLOCK,
                .count = s->count, .rows = s->rows, .columns = s->columns, .inputs = inputs,
                .outputs = outputs, .dtype = s->dtype } };
    }
}

/* ------------------------------------------------------------------------- expected */

/* Not rounded to the inputs' dtype. */
static double
weight_at(const sample *s, uint64_t i)
{
    const uint8_t *const weight = s->memory + s->at[WEIGHT];
    const float *const absmax = (const float *)(void *)(s->memory + s->at[ABSMAX]);
    const uint64_t block = i / BLOCK;
    const uint32_t code = weight[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;

    if (s->kind == OF_CODES)
        return ((const int8_t *)weight)[i];
    if (s->kind == OF_NUMBERS)
        return (double)berthi_core_load(weight, s->dtype, i);
    return (double)berthi_core_float(berthi_fp4_values[code])
           * (double)(s->kind == OF_4BIT_TWICE
                          ? berthi_core_absmax_recover(berthi_signed_map,
                                                       s->memory[s->at[CODES] + block],
                                                       absmax[block / 256], OFFSET)
                          : absmax[block]);
}

static bool
is_right(const sample *s, uint64_t input, uint64_t row)
{
    const uint8_t *const inputs = s->memory + s->at[INPUTS];
    const uint8_t *const outputs = s->memory + s->at[OUTPUTS];
    const uint64_t at = input * s->rows + row;
    const double unit = s->dtype == BERTH_BF16 ? 0x1p-8 : s->dtype == BERTH_F16 ? 0x1p-11
                                                                                : 0x1p-20;
    double sum = 0.0;
    double size = 0.0;

    for (uint64_t k = 0; k < s->columns; k++) {
        const uint64_t i = input * s->columns + k;
        const double x = s->kind == OF_CODES
                             ? ((const int8_t *)inputs)[i]
                             : (double)berthi_core_load(inputs, s->dtype, i);

        sum += weight_at(s, row * s->columns + k) * x;
        size += fabs(weight_at(s, row * s->columns + k) * x);
    }
    if (s->kind == OF_CODES)
        return ((const int32_t *)(const void *)outputs)[at] == sum;
    /* Weights of codes may be rounded, and outputs are. */
    return fabs((double)berthi_core_load(outputs, s->dtype, at) - sum)
           <= unit * fabs(sum) + (s->kind == OF_NUMBERS ? 0.0 : unit * size);
}

static uint64_t
count_right(const sample *s)
{
    uint64_t right = 0;

    for (uint64_t i = 0; i < s->count; i++)
        for (uint64_t row = 0; row < s->rows; row++)
            right += is_right(s, i, row);
    return right;
}

/* ---------------------------------------------------------------------------- paths */

static bool
open_with_calls(rig *r, const fake_cuda_machine *machine, const berthi_cuda_calls *calls)
{
    fake_gemm_begin();
    fake_cuda_begin(machine);
    return rig_open_cuda(r, calls, "cuda");
}

static bool
open_machine(rig *r, const fake_cuda_machine *machine)
{
    return open_with_calls(r, machine, fake_cuda_calls());
}

static void
close_machine(rig *r)
{
    rig_close(r);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_current(), 0);
    fake_gemm_begin();
    fake_cuda_end();
}

/* Multiplies, and checks how: by so many products of the library, or so many launches. */
static void
check_way(const rig *r, const sample *s, uint64_t products, uint64_t launches)
{
    const fake_gemm_books gemm = fake_gemm_read();
    const fake_cuda_books cuda = fake_cuda_read();
    const berthi_request request = request_of(s);
    berth_error error;

    berthi_error_clear(&error);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK); /* a way that was not taken is no failure */
    rig_sync(r->device, NULL);
    CHECK_EQ(fake_gemm_read().products - gemm.products, products);
    CHECK_EQ(fake_cuda_read().launches - cuda.launches, launches);
    if (!CHECK_EQ(count_right(s), s->count * s->rows))
        T_NOTE("kind %d, dtype %d, %u inputs", (int)s->kind, s->dtype, s->count);
}

static void
check_ways(const rig *r, kind of, int32_t dtype, uint32_t count, uint64_t products,
           uint64_t launches)
{
    sample s = make_sample(r->device, of, dtype, 20, 64, count);

    check_way(r, &s, products, launches);
    r->device->table->free(r->device, s.memory, s.bytes);
}

/* One launch decodes the weight; of berth's own there is one for every 32 inputs. */
static void
test_crossover(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &late));
    check_ways(&r, OF_4BIT, BERTH_BF16, 192, 0, 6);
    check_ways(&r, OF_4BIT, BERTH_BF16, 193, 1, 1);
    check_ways(&r, OF_4BIT_TWICE, BERTH_F16, 33, 0, 2);
    check_ways(&r, OF_4BIT_TWICE, BERTH_F16, 200, 1, 1);
    check_ways(&r, OF_4BIT, BERTH_F32, 32, 0, 1);
    check_ways(&r, OF_4BIT_TWICE, BERTH_F32, 33, 1, 1);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 1, 0, 1);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 2, 1, 0);
    check_ways(&r, OF_NUMBERS, BERTH_F16, 1, 0, 1);
    check_ways(&r, OF_NUMBERS, BERTH_F16, 2, 1, 0);
    check_ways(&r, OF_NUMBERS, BERTH_F32, 4, 0, 1);
    check_ways(&r, OF_NUMBERS, BERTH_F32, 70, 1, 0);
    check_ways(&r, OF_CODES, BERTH_I8, 1, 0, 1);
    check_ways(&r, OF_CODES, BERTH_I8, 2, 1, 0);
    CHECK_EQ(fake_gemm_read().opened, 1);
    close_machine(&r);
}

/* No bf16 in the library, no tensor cores of ours. */
static void
test_old_gpu(void)
{
    const int32_t architectures[] = { 75 };
    fake_cuda_machine machine = late;
    berthi_cuda_calls calls = *fake_cuda_calls();
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    machine.architecture = 75;
    calls.architectures = architectures;
    calls.architecture_count = 1;
    calls.ptx = architectures;
    calls.ptx_count = 1;
    T_REQUIRE(open_with_calls(&r, &machine, &calls));
    check_ways(&r, OF_4BIT, BERTH_BF16, 200, 0, 7);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 9, 0, 1);
    CHECK_EQ(fake_gemm_read().opened, 0);
    check_ways(&r, OF_4BIT, BERTH_F16, 33, 1, 1);
    check_ways(&r, OF_CODES, BERTH_I8, 9, 1, 0);
    close_machine(&r);
}

/* What the library has no product for is no failure, and nothing of it is left to be told. */
static void
test_not_by_the_library(void)
{
    berthi_request mixed;
    sample s;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &late));
    s = make_sample(r.device, OF_CODES, BERTH_I8, 6, 33, 12);
    check_way(&r, &s, 0, 1);
    r.device->table->free(r.device, s.memory, s.bytes);
    /* A row is too long for a slab. */
    s = make_sample(r.device, OF_4BIT, BERTH_F32, 2, 16448, 40);
    check_way(&r, &s, 0, 2);
    r.device->table->free(r.device, s.memory, s.bytes);
    fake_gemm_find_nothing(true);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 6, 0, 1);
    check_ways(&r, OF_CODES, BERTH_I8, 12, 0, 1);
    fake_gemm_find_nothing(false);
    /* A weight of another dtype than the inputs'. */
    s = make_sample(r.device, OF_NUMBERS, BERTH_BF16, 8, 64, 9);
    mixed = request_of(&s);
    mixed.arguments.plain.weight_dtype = BERTH_F32;
    CHECK_EQ(r.device->table->launch(r.device, &mixed, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(fake_gemm_read().products, 0);
    r.device->table->free(r.device, s.memory, s.bytes);
    close_machine(&r);
}

static void
test_no_library(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &late));
    fake_gemm_hide(true);
    check_ways(&r, OF_NUMBERS, BERTH_F16, 9, 0, 1);
    check_ways(&r, OF_CODES, BERTH_I8, 17, 0, 1);
    check_ways(&r, OF_4BIT, BERTH_F32, 70, 0, 3);
    check_ways(&r, OF_4BIT_TWICE, BERTH_BF16, 193, 0, 7);
    CHECK_EQ(fake_gemm_read().opened, 1); /* and not asked for again */
    close_machine(&r);
}

/* A workspace is refused, or the least slabs; later there is room. */
static void
test_no_room(void)
{
    fake_cuda_machine machine = late;
    uint8_t *rest;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    machine.memory_bytes = 6 * MIB;
    T_REQUIRE(open_machine(&r, &machine));
    rest = rig_alloc(r.device, 3 * MIB);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 9, 0, 1);
    check_ways(&r, OF_4BIT, BERTH_F32, 40, 0, 2);
    r.device->table->free(r.device, rest, 3 * MIB);
    check_ways(&r, OF_NUMBERS, BERTH_BF16, 9, 1, 0);
    rest = rig_alloc(r.device, 2 * MIB - (40 << 10));
    check_ways(&r, OF_CODES, BERTH_I8, 9, 1, 0);
    check_ways(&r, OF_4BIT, BERTH_F32, 40, 0, 2);
    r.device->table->free(r.device, rest, 2 * MIB - (40 << 10));
    check_ways(&r, OF_4BIT, BERTH_F32, 40, 1, 1);
    close_machine(&r);
}

/* A graph can hold what was done once: nothing is allocated, made or searched for again. */
static void
test_second_time(void)
{
    static const struct {
        kind kind;
        int32_t dtype;
        uint32_t count;
    } products[] = { { OF_NUMBERS, BERTH_BF16, 6 },
                     { OF_CODES, BERTH_I8, 9 },
                     { OF_4BIT_TWICE, BERTH_F32, 40 } };
    sample s[3];
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &late));
    for (size_t i = 0; i < 3; i++) {
        s[i] = make_sample(r.device, products[i].kind, products[i].dtype, 20, 64,
                           products[i].count);
        check_way(&r, &s[i], 1, products[i].kind == OF_4BIT_TWICE);
    }
    for (size_t i = 0; i < 3; i++) {
        const fake_gemm_books gemm = fake_gemm_read();
        const fake_cuda_books cuda = fake_cuda_read();

        check_way(&r, &s[i], 1, products[i].kind == OF_4BIT_TWICE);
        CHECK_EQ(fake_gemm_read().searches, gemm.searches);
        CHECK_EQ(fake_gemm_read().descriptors, gemm.descriptors);
        CHECK_EQ(fake_cuda_read().allocations, cuda.allocations);
        CHECK_EQ(fake_cuda_read().events, cuda.events);
    }
    for (size_t i = 0; i < 3; i++)
        r.device->table->free(r.device, s[i].memory, s[i].bytes);
    close_machine(&r);
}

/* They are told before the library sees them: a weight is decoded by a kernel of ours. */
static void
test_odd_addresses(void)
{
    sample s;
    berthi_request odd;
    berth_error error;
    rig r;

    T_REQUIRE(open_machine(&r, &late));
    s = make_sample(r.device, OF_4BIT, BERTH_F32, 8, 64, 40);
    odd = request_of(&s);
    odd.arguments.multiply.absmax =
        (const float *)(void *)(s.memory + s.at[ABSMAX] + 2);
    CHECK_EQ(r.device->table->launch(r.device, &odd, NULL, &error), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "absmax at an address that is no multiple of 4");
    CHECK_EQ(fake_gemm_read().opened, 0);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, s.memory, s.bytes);
    close_machine(&r);
}

/* ----------------------------------------------------------------- many inputs at once */

/* By one launch of this kernel, or, where it is none, so many products and launches. */
static void
check_wide(const rig *r, const sample *s, berthi_kernel_id kernel, uint64_t products,
           uint64_t launches)
{
    const uint64_t before = fake_cuda_read().launched[kernel];

    check_way(r, s, products, launches);
    if (kernel != KERNEL_NONE)
        CHECK_EQ(fake_cuda_read().launched[kernel] - before, 1);
}

static void
check_wide_ways(const rig *r, kind of, int32_t dtype, uint32_t count, berthi_kernel_id kernel,
                uint64_t products, uint64_t launches)
{
    sample s = make_sample(r->device, of, dtype, 20, 256, count);

    check_wide(r, &s, kernel, products, launches);
    r->device->table->free(r->device, s.memory, s.bytes);
}

static void
test_wide(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 16, KERNEL_NONE, 0, 1);
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 17, KERNEL_wide32_bf16, 0, 1);
    check_wide_ways(&r, OF_4BIT_TWICE, BERTH_F16, 32, KERNEL_wide32_f16, 0, 1);
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 33, KERNEL_wide64_bf16, 0, 1);
    check_wide_ways(&r, OF_4BIT_TWICE, BERTH_F16, 64, KERNEL_wide64_f16, 0, 1);
    check_wide_ways(&r, OF_4BIT_TWICE, BERTH_BF16, 65, KERNEL_wide128_bf16, 0, 1);
    check_wide_ways(&r, OF_4BIT, BERTH_F16, 129, KERNEL_wide256_f16, 0, 1);
    CHECK_EQ(fake_gemm_read().opened, 0); /* no need to */
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 193, KERNEL_NONE, 1, 1); /* of a small weight */
    check_wide_ways(&r, OF_4BIT, BERTH_F32, 40, KERNEL_NONE, 1, 1);
    check_ways(&r, OF_4BIT, BERTH_BF16, 40, 0, 2); /* of 64 columns */
    close_machine(&r);
}

/* More inputs than the library would be asked for. */
static void
test_wide_without_the_library(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    fake_gemm_hide(true);
    check_wide_ways(&r, OF_4BIT_TWICE, BERTH_BF16, 193, KERNEL_wide256_bf16, 0, 1);
    close_machine(&r);
}

/* Weights that are too large to be multiplied here. */
static void
test_wide_first(void)
{
    static const struct {
        uint64_t rows, columns;
        uint32_t count;
        bool is_first;
    } cases[] = {
        { 1024, 8192, 256, false },   { 3072, 4095, 256, false }, { 3072, 4096, 256, true },
        { 4096, 4096, 1024, true },   { 4096, 4096, 1025, true }, { 4096, 4096, 2048, true },
        { 4096, 4096, 2049, false },  { 1024, 16384, 1024, true }, { 1024, 16384, 2048, false },
        { 3328, 8192, 1280, false },  { 3329, 8192, 1280, true }, { 3328, 8192, 1281, true },
        { 28672, 8192, 2048, true },  { 28672, 8192, 4096, false },
    };
    berthi_cuda_call call;
    rig r;

    T_REQUIRE(open_machine(&r, &hopper)); /* 132 processors */
    T_REQUIRE(berthi_cuda_enter(&call, r.device, "asking", NULL) == BERTH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_multiply_arguments a = { .rows = cases[i].rows,
                                              .columns = cases[i].columns,
                                              .count = cases[i].count };

        if (!CHECK_EQ(berthi_gemm_is_wide_first(&call, &a), cases[i].is_first))
            T_NOTE("case %d", (int)i);
    }
    (void)berthi_cuda_leave(&call, BERTH_OK);
    close_machine(&r);
}

/* They were not built, or for another GPU. */
static void
test_not_wide(void)
{
    berthi_cuda_calls calls = *fake_cuda_calls();
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    for (int i = 0; i < 2; i++) {
        calls.wide = i == 0 ? 0 : 100;
        T_REQUIRE(open_with_calls(&r, &hopper, &calls));
        check_wide_ways(&r, OF_4BIT, BERTH_BF16, 40, KERNEL_NONE, 0, 2);
        close_machine(&r);
    }
}

/* ------------------------------------------------------ code of one GPU run by another */

/* What the build file has, or the first of them: later GPUs run the last one's PTX, or 100's. */
static const int32_t usual[] = { 75, 80, 90, 100, 120 };
static const int32_t usual_ptx[] = { 100, 120 };

/* By which kernels 1 and 20 inputs are multiplied. */
static const struct {
    uint32_t built;
    int architecture;
    berthi_kernel_id one;
    berthi_kernel_id many;
} choices[] = {
    { 5, 70, KERNEL_NONE, KERNEL_NONE },
    { 5, 75, KERNEL_product_lanes_bf16, KERNEL_product_lanes_bf16 },
    { 5, 80, KERNEL_ring_bf16, KERNEL_ring32_bf16 },
    { 5, 86, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 5, 87, KERNEL_NONE, KERNEL_NONE },
    { 5, 89, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 5, 90, KERNEL_few_bf16, KERNEL_wide32_bf16 },
    { 5, 100, KERNEL_ring_bf16, KERNEL_ring32_bf16 },
    { 5, 103, KERNEL_ring_bf16, KERNEL_ring32_bf16 },
    { 5, 110, KERNEL_ring_bf16, KERNEL_ring32_bf16 },
    { 5, 120, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 5, 121, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 3, 103, KERNEL_few_bf16, KERNEL_ring32_bf16 },
    { 3, 110, KERNEL_few_bf16, KERNEL_ring32_bf16 },
    { 3, 120, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 2, 90, KERNEL_ring_bf16, KERNEL_ring32_bf16 },
    { 2, 121, KERNEL_product_64_bf16, KERNEL_product32_64_bf16 },
    { 1, 80, KERNEL_product_lanes_bf16, KERNEL_product_lanes_bf16 },
};

static bool
is_choice(const rig *r, uint32_t count, berthi_kernel_id kernel)
{
    const uint64_t before = fake_cuda_read().launched[kernel];
    sample s = make_sample(r->device, OF_4BIT, BERTH_BF16, 20, 4096, count);
    const berthi_request request = request_of(&s);
    bool is_it = true;

    if (kernel != KERNEL_NONE) {
        check_way(r, &s, 0, 1);
        is_it = CHECK_EQ(fake_cuda_read().launched[kernel] - before, 1);
    } else {
        is_it = CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL),
                         BERTH_EUNSUPPORTED);
    }
    r->device->table->free(r->device, s.memory, s.bytes);
    return is_it;
}

/* The room of a kernel is the GPU's, whatever the code was made for; the fake has no more. */
static void
test_code_of_another_gpu(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        berthi_cuda_calls calls = *fake_cuda_calls();
        fake_cuda_machine machine = late;
        rig r;

        calls.architectures = usual;
        calls.architecture_count = choices[i].built;
        calls.ptx = choices[i].built == 5 ? usual_ptx : &usual[choices[i].built - 1];
        calls.ptx_count = choices[i].built == 5 ? 2 : 1;
        calls.wide = choices[i].built >= 3 ? 90 : 0;
        machine.architecture = choices[i].architecture;
        T_REQUIRE(open_with_calls(&r, &machine, &calls));
        if (!is_choice(&r, 1, choices[i].one) || !is_choice(&r, 20, choices[i].many))
            T_NOTE("%u architectures, on sm_%d", choices[i].built, machine.architecture);
        close_machine(&r);
    }
}

static bool
find_no_tiles(berthi_cuda_tiles **out)
{
    *out = NULL;
    return false;
}

/* A driver without them: rings, and tiles that lanes copy. */
static void
test_no_tiles(void)
{
    berthi_cuda_calls calls = *fake_cuda_calls();
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    calls.find_tiles = find_no_tiles;
    T_REQUIRE(open_with_calls(&r, &hopper, &calls));
    CHECK(is_choice(&r, 1, KERNEL_ring_bf16));
    CHECK(is_choice(&r, 20, KERNEL_ring32_bf16));
    close_machine(&r);
}

/* The driver describes tiles, and unlike the runtime begins no context for it. */
static void
test_tiles_without_a_context(void)
{
    sample s;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    CHECK(is_choice(&r, 1, KERNEL_few_bf16)); /* its room is allowed by now */
    s = make_sample(r.device, OF_4BIT, BERTH_BF16, 20, 4096, 1);
    fake_cuda_make_none_current();
    check_way(&r, &s, 0, 1);
    r.device->table->free(r.device, s.memory, s.bytes);
    close_machine(&r);
}

/* No room for parts: as if there were no such kernels; later there is. */
static void
test_no_room_for_parts(void)
{
    uint8_t *rest;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    rest = rig_alloc(r.device, 40 * MIB);
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 40, KERNEL_NONE, 0, 2);
    r.device->table->free(r.device, rest, 40 * MIB);
    check_wide_ways(&r, OF_4BIT, BERTH_BF16, 40, KERNEL_wide64_bf16, 0, 1);
    close_machine(&r);
}

/* Nothing is allocated again, and flags are down without being let down again. */
static void
test_wide_again(void)
{
    fake_cuda_books books;
    sample s;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    s = make_sample(r.device, OF_4BIT, BERTH_BF16, 20, 2304, 40);
    check_wide(&r, &s, KERNEL_wide64_bf16, 0, 1);
    books = fake_cuda_read();
    check_wide(&r, &s, KERNEL_wide64_bf16, 0, 1);
    CHECK_EQ(fake_cuda_read().allocations, books.allocations);
    CHECK_EQ(fake_cuda_read().events, books.events);
    r.device->table->free(r.device, s.memory, s.bytes);
    close_machine(&r);
}

/* ----------------------------------------------------------------- several together */

#define TOGETHER 3u

/* So many launches; an input of each is the first one's. */
static void
check_together(const rig *r, kind of, int32_t dtype, uint64_t columns, uint32_t count,
               uint64_t launches)
{
    const uint64_t before = fake_cuda_read().launches;
    berthi_request requests[TOGETHER];
    sample samples[TOGETHER];
    berth_error error;

    for (uint32_t i = 0; i < TOGETHER; i++) {
        samples[i] = make_sample(r->device, of, dtype, 20 + 30 * i, columns, count);
        requests[i] = request_of(&samples[i]);
        if (of == OF_NUMBERS)
            requests[i].arguments.plain.inputs = samples[0].memory + samples[0].at[INPUTS];
        else
            requests[i].arguments.multiply.inputs = samples[0].memory + samples[0].at[INPUTS];
    }
    CHECK_EQ(r->device->table->launch_together(r->device, requests, TOGETHER, NULL, &error),
             BERTH_OK);
    rig_sync(r->device, NULL);
    CHECK_EQ(fake_cuda_read().launches - before, launches);
    for (uint32_t i = 0; i < TOGETHER; i++) {
        CHECK_EQ(count_right(&samples[i]), count * samples[i].rows);
        r->device->table->free(r->device, samples[i].memory, samples[i].bytes);
    }
}

/* In one grid by tensor cores, of up to 8 inputs; else as each alone. */
static void
test_together(void)
{
    rig r;

    T_REQUIRE(open_machine(&r, &late));
    check_together(&r, OF_4BIT, BERTH_BF16, 128, 1, 1);
    check_together(&r, OF_4BIT_TWICE, BERTH_F16, 128, 8, 1);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_together_64_bf16], 1);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_together_64_f16_double], 1);
    check_together(&r, OF_4BIT, BERTH_BF16, 128, 9, TOGETHER);
    check_together(&r, OF_4BIT, BERTH_F32, 128, 1, TOGETHER);
    check_together(&r, OF_NUMBERS, BERTH_BF16, 128, 1, TOGETHER);
    CHECK_EQ(fake_cuda_read().overlapping, 0); /* before Hopper kernels do not wait themselves */
    close_machine(&r);
}

/* Rings have them in one grid, of as many inputs as are not better off with kernels of many. */
static void
test_together_on_hopper(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_machine(&r, &hopper));
    check_together(&r, OF_4BIT, BERTH_BF16, RING_LEAST_COLUMNS, 16, 1);
    check_together(&r, OF_4BIT, BERTH_BF16, RING_LEAST_COLUMNS, 17, TOGETHER);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_ring16_bf16], 1);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_wide32_bf16], TOGETHER);
    close_machine(&r);
}

/* What is refused is refused before anything is asked for. */
static void
test_together_refused(void)
{
    berthi_request requests[2];
    sample s;
    berth_error error;
    rig r;

    T_REQUIRE(open_machine(&r, &late));
    s = make_sample(r.device, OF_4BIT, BERTH_BF16, 20, 64, 1);
    requests[0] = requests[1] = request_of(&s);
    requests[1].arguments.multiply.block_size = 48;
    CHECK_EQ(r.device->table->launch_together(r.device, requests, 2, NULL, &error),
             BERTH_EUNSUPPORTED);
    requests[1].arguments.multiply.block_size = BLOCK;
    requests[1].arguments.multiply.absmax =
        (const float *)(void *)(s.memory + s.at[ABSMAX] + 2);
    CHECK_EQ(r.device->table->launch_together(r.device, requests, 2, NULL, &error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "absmax at an address that is no multiple of 4");
    requests[1] = (berthi_request){ .operation = BERTHI_OPERATION_GATE };
    CHECK_EQ(r.device->table->launch_together(r.device, requests, 2, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    CHECK_EQ(fake_cuda_read().launches, 0);
    r.device->table->free(r.device, s.memory, s.bytes);
    close_machine(&r);
}

/* ---------------------------------------------------------------- every call in turn */

#define SCENE_BYTES (UINT64_C(96) << 10)

typedef struct scene_product {
    kind kind;
    int32_t dtype;
    uint64_t columns;
    uint32_t count;
} scene_product;

typedef struct scene {
    const scene_product *products;
    size_t count;
} scene;

/* One after the other in the same memory; each that is told to be done is right. */
static berth_status
multiply_each(const scene *its, berthi_device *device, uint8_t *memory, berthi_stream *stream,
              berthi_event *event, berth_error *error)
{
    const berthi_device_table *const t = device->table;
    const uint64_t never = berthi_sys_now_ns() + UINT64_C(600000000000);
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < its->count && status == BERTH_OK; i++) {
        const scene_product *const p = &its->products[i];
        const sample s = lay_out(memory, p->kind, p->dtype, 20, p->columns, p->count);
        const berthi_request request = request_of(&s);

        status = t->launch(device, &request, stream, error);
        if (status == BERTH_OK)
            status = t->record(device, event, stream, error);
        if (status == BERTH_OK)
            status = t->await(device, event, never, error);
        if (status == BERTH_OK)
            CHECK_EQ(count_right(&s), s.count * s.rows);
    }
    return status;
}

/* From opening to closing. */
static berth_status
run_products(const scene *its, berth_context *context, berth_error *error)
{
    berthi_devices *devices = NULL;
    berthi_stream *stream = NULL;
    berthi_event *event = NULL;
    void *memory = NULL;
    berth_status status =
        berthi_devices_open_cuda(context, fake_cuda_calls(), "cuda", &devices, error);
    berthi_device *device;

    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(devices, 0);
    status = device->table->alloc(device, SCENE_BYTES, &memory, error);
    if (status == BERTH_OK)
        status = device->table->stream_create(device, &stream, error);
    if (status == BERTH_OK)
        status = device->table->event_create(device, &event, error);
    if (status == BERTH_OK)
        status = multiply_each(its, device, memory, stream, event, error);
    device->table->stream_destroy(device, stream);
    device->table->event_destroy(device, event);
    device->table->free(device, memory, SCENE_BYTES);
    berthi_devices_close(devices);
    return status;
}

static berth_status
run_scene(void *user, berth_context *context, berth_error *error)
{
    static const scene_product products[] = { { OF_NUMBERS, BERTH_BF16, 64, 6 },
                                              { OF_CODES, BERTH_I8, 64, 9 },
                                              { OF_4BIT_TWICE, BERTH_F32, 64, 40 },
                                              { OF_4BIT, BERTH_BF16, 64, 40 },
                                              { OF_NUMBERS, BERTH_BF16, 64, 2 } };

    (void)user;
    return run_products(&(scene){ products, sizeof products / sizeof *products }, context, error);
}

/* By kernels of many inputs, twice, so that flags are found down. */
static berth_status
run_wide_scene(void *user, berth_context *context, berth_error *error)
{
    static const scene_product products[] = { { OF_4BIT, BERTH_BF16, 256, 40 },
                                              { OF_4BIT, BERTH_BF16, 256, 40 } };

    (void)user;
    return run_products(&(scene){ products, sizeof products / sizeof *products }, context, error);
}

/* What is no failure of the GPU sends a product the other way. */
static void
test_every_call_fails(void)
{
    static const int refusals[] = { BERTHI_GEMM_NO_MEMORY, BERTHI_GEMM_MISMATCH,
                                    BERTHI_GEMM_UNSUPPORTED };
    static const int failures[] = { 1, BERTHI_GEMM_INVALID, BERTHI_GEMM_EXECUTION, 14 };
    static const int codes[] = { 1, BERTHI_CUDA_NO_MEMORY, BERTHI_CUDA_ILLEGAL_ADDRESS, 999 };
    gpu_faults faults = { run_scene, &late, true, STRIDE, 20 };
    gpu_tally refused = { 0 };
    gpu_tally failed = { 0 };
    gpu_tally of_cuda = { 0 };

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    gpu_fail_all(&faults, refusals, sizeof refusals / sizeof *refusals, &refused);
    gpu_fail_all(&faults, failures, sizeof failures / sizeof *failures, &failed);
    faults.is_of_gemm = false;
    faults.least = 30;
    gpu_fail_all(&faults, codes, sizeof codes / sizeof *codes, &of_cuda);
    T_NOTE("%" PRIu64 " refusals by the library, %" PRIu64 " of its calls failed, %" PRIu64
           " of the runtime's, %" PRIu64 " and %" PRIu64 " survived",
           refused.injections, failed.injections, of_cuda.injections, failed.survived,
           of_cuda.survived);
    CHECK_EQ(refused.survived, refused.injections);
    CHECK_LT(failed.survived, failed.injections);
    CHECK_GT(of_cuda.survived, 0);
    CHECK_LT(of_cuda.survived, of_cuda.injections / 2);
    CHECK_GE(STRIDE * (refused.injections + failed.injections + of_cuda.injections),
             LEAST_INJECTIONS);
}

static void
test_every_call_of_wide_products_fails(void)
{
    static const int codes[] = { BERTHI_CUDA_NO_MEMORY, BERTHI_CUDA_ILLEGAL_ADDRESS };
    const gpu_faults faults = { run_wide_scene, &hopper, false, STRIDE, 20 };
    gpu_tally failed = { 0 };

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    gpu_fail_all(&faults, codes, sizeof codes / sizeof *codes, &failed);
    T_NOTE("%" PRIu64 " calls failed, %" PRIu64 " survived", failed.injections,
           failed.survived);
    CHECK_GT(failed.survived, 0);
    CHECK_LT(failed.survived, failed.injections / 2);
}

/* Host memory that is refused. */
static void
test_memory_fails(void)
{
    fault_counts counts;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    fake_gemm_begin();
    fake_cuda_begin(&late);
    counts = fault_loop("products", run_scene, NULL);
    CHECK_GT(counts.memory, 3);
    CHECK_GT(counts.survived, 0); /* what the library needs of it, it can do without */
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_crossover);
    T_RUN(test_old_gpu);
    T_RUN(test_not_by_the_library);
    T_RUN(test_no_library);
    T_RUN(test_no_room);
    T_RUN(test_second_time);
    T_RUN(test_odd_addresses);
    T_RUN(test_wide);
    T_RUN(test_wide_without_the_library);
    T_RUN(test_wide_first);
    T_RUN(test_not_wide);
    T_RUN(test_code_of_another_gpu);
    T_RUN(test_no_tiles);
    T_RUN(test_tiles_without_a_context);
    T_RUN(test_no_room_for_parts);
    T_RUN(test_wide_again);
    T_RUN(test_together);
    T_RUN(test_together_on_hopper);
    T_RUN(test_together_refused);
    T_RUN(test_every_call_fails);
    T_RUN(test_every_call_of_wide_products_fails);
    T_RUN(test_memory_fails);
    T_MAIN_END;
}
