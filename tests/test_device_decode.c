/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of stored weights, asked for of each kind of device (what GPUs make of them is run on
 * the host): of all of a weight and of any stretch the bits that the scalar operations make of
 * the whole one, and not a byte beside them. Every one refuses the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/digest.h"
#include "tests/fake_cuda.h"
#include "tests/random.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define OFFSET 0.05f
#define UNTOUCHED 0xA5

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };

/* ------------------------------------------------------------------------- weights */

typedef struct shape {
    int32_t operation;
    bool is_double;
    uint32_t block_size;
    uint64_t rows;
    uint64_t columns;
    int32_t dtype;
} shape;

/* Whole CTAs and less, blocks across rows, several double blocks, odd lengths, nothing. */
static const shape shapes[] = {
    { BERTHI_OPERATION_DECODE_NF4, false, 64, 40, 517, BERTH_BF16 },
    { BERTHI_OPERATION_DECODE_NF4, true, 64, 70, 517, BERTH_BF16 },
    { BERTHI_OPERATION_DECODE_NF4, true, 32, 33, 640, BERTH_F16 },
    { BERTHI_OPERATION_DECODE_NF4, true, 128, 3, 45, BERTH_F32 },
    { BERTHI_OPERATION_DECODE_FP4, false, 4096, 9, 1000, BERTH_F32 },
    { BERTHI_OPERATION_DECODE_FP4, true, 64, 17, 1024, BERTH_F16 },
    { BERTHI_OPERATION_DECODE_FP4, false, 32, 1, 1, BERTH_BF16 },
    { BERTHI_OPERATION_DECODE_FP4, true, 64, 0, 64, BERTH_BF16 },
    { BERTHI_OPERATION_DECODE_ROWS, false, 0, 12, 4099, BERTH_BF16 },
    { BERTHI_OPERATION_DECODE_ROWS, false, 0, 20, 512, BERTH_F16 },
    { BERTHI_OPERATION_DECODE_ROWS, false, 0, 31, 3, BERTH_F32 },
    { BERTHI_OPERATION_DECODE_ROWS, false, 0, 5, 0, BERTH_F32 },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* A weight and room for its values, one behind the other in memory of any kind. */
typedef struct weight {
    shape s;
    uint64_t count;
    uint64_t absmax;       /* or row maxima */
    uint64_t absmax_codes;
    uint64_t values;
    uint64_t bytes;        /* of all */
    uint8_t *memory;       /* the host's copy; codes come first */
    uint8_t *expected;     /* values of all of it */
} weight;

static uint64_t state = 0x9E3779B97F4A7C15u;

static uint64_t
width_of(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

static bool
is_rows(const shape *s)
{
    return s->operation == BERTHI_OPERATION_DECODE_ROWS;
}

/* Room for so many bytes, from an even address on. */
static uint64_t
place(weight *w, uint64_t bytes)
{
    const uint64_t at = w->bytes;

    w->bytes += (bytes + 255) / 256 * 256;
    return at;
}

/* The scalar operations, of the whole weight at once. */
static void
decode_whole(weight *w)
{
    const shape *const s = &w->s;
    const berthi_operations *const o = &berthi_scalar_operations;
    const uint64_t blocks = is_rows(s) ? 0 : (w->count + s->block_size - 1) / s->block_size;
    float *const stored = (float *)(void *)(w->memory + w->absmax);
    float *const absmax = malloc((blocks + 1) * sizeof *absmax);
    const berthi_decode_arguments a = { .codes = w->memory,
                                        .absmax = s->is_double ? absmax : stored,
                                        .count = w->count, .block_size = s->block_size,
                                        .dtype = s->dtype, .values = w->expected };

    if (absmax == NULL)
        abort();
    if (s->is_double && blocks > 0)
        o->decode_double(&(berthi_double_arguments){ .codes = w->memory + w->absmax_codes,
                                                     .absmax2 = stored, .count = blocks,
                                                     .offset = OFFSET,
                                                     .map = berthi_signed_map },
                         absmax);
    if (is_rows(s))
        o->decode_rows(&(berthi_rows_decode_arguments){
            .codes = (const int8_t *)w->memory, .row_maximum = stored, .rows = s->rows,
            .columns = s->columns, .dtype = s->dtype, .values = w->expected });
    else
        (s->operation == BERTHI_OPERATION_DECODE_NF4 ? o->decode_nf4 : o->decode_fp4)(&a);
    free(absmax);
}

static weight
make_weight(const shape *s)
{
    weight w = { .s = *s, .count = s->rows * s->columns };
    const uint64_t blocks =
        is_rows(s) ? s->rows : (w.count + s->block_size - 1) / s->block_size;
    float *absmax;

    (void)place(&w, is_rows(s) ? w.count : (w.count + 1) / 2);
    w.absmax = place(&w, (blocks + 1) * sizeof *absmax);
    w.absmax_codes = place(&w, blocks);
    w.values = place(&w, w.count * width_of(s->dtype) + 8);
    w.memory = malloc(w.bytes);
    w.expected = malloc(w.count * width_of(s->dtype) + 1);
    if (w.memory == NULL || w.expected == NULL)
        abort();
    for (uint64_t i = 0; i < w.bytes; i++)
        w.memory[i] = i < w.values ? (uint8_t)random_next(&state) : UNTOUCHED;
    absmax = (float *)(void *)(w.memory + w.absmax);
    for (uint64_t i = 0; i <= blocks; i++)
        absmax[i] = 0.02f + 0.05f * random_share(&state);
    decode_whole(&w);
    return w;
}

static void
free_weight(weight *w)
{
    free(w->memory);
    free(w->expected);
}

/* ------------------------------------------------------------------------- stretches */

typedef struct stretch {
    uint64_t first;
    uint64_t count;
    uint64_t shift; /* values that the first one is written behind the beginning */
} stretch;

static berthi_request
ask_rows(const weight *w, const stretch *x, uint8_t *memory)
{
    const uint64_t row = w->s.columns > 0 ? x->first / w->s.columns : 0;

    return (berthi_request){
        .operation = BERTHI_OPERATION_DECODE_ROWS,
        .arguments.decode_rows = {
            .codes = (const int8_t *)memory + x->first,
            .row_maximum = (const float *)(void *)(memory + w->absmax) + row,
            .columns = w->s.columns, .first = x->first, .count = x->count,
            .values = memory + w->values + x->shift * width_of(w->s.dtype),
            .dtype = w->s.dtype },
    };
}

static berthi_request
request_of(const weight *w, const stretch *x, uint8_t *memory)
{
    const shape *const s = &w->s;
    const uint64_t block = is_rows(s) ? 0 : x->first / s->block_size;

    if (is_rows(s))
        return ask_rows(w, x, memory);
    return (berthi_request){
        .operation = s->operation,
        .arguments.decode = {
            .codes = memory + x->first / 2,
            .absmax = (const float *)(void *)(memory + w->absmax)
                      + (s->is_double ? block / 256 : block),
            .absmax_codes = s->is_double ? memory + w->absmax_codes + block : NULL,
            .map = berthi_signed_map, .offset = OFFSET, .block_size = s->block_size,
            .first = x->first, .count = x->count,
            .values = memory + w->values + x->shift * width_of(s->dtype), .dtype = s->dtype },
    };
}

/* The rest of a block, or of a row; of what has several of them, the rest; and what remains. */
static uint32_t
count_parts(const weight *w, const stretch *x)
{
    const uint64_t unit = is_rows(&w->s) ? w->s.columns : w->s.block_size;
    const uint64_t units[] = { unit, w->s.is_double ? 256 * unit : 1 };
    uint64_t left = x->count;
    uint32_t parts = 0;

    for (uint64_t i = 0, at = x->first; i < 2 && left > 0; i++) {
        const uint64_t rest = (units[i] - at % units[i]) % units[i];
        const uint64_t now = rest < left ? rest : left;

        parts += now > 0;
        left -= now;
        at += now;
    }
    if (is_rows(&w->s) && left > 0)
        return parts + (left >= unit) + (left % unit > 0);
    return parts + (left > 0);
}

/* All of it comes first; then what begins and ends somewhere, at odd addresses, too. */
static stretch
draw_stretch(const weight *w, uint32_t number)
{
    stretch x = { 0, w->count, 0 };
    const uint64_t unit = is_rows(&w->s) ? w->s.columns : w->s.block_size * UINT64_C(256);

    if (number == 0 || w->count == 0)
        return x;
    x.first = random_next(&state) % w->count;
    if (number == 1)
        x.first = w->count / 2 / unit * unit;
    if (!is_rows(&w->s))
        x.first -= x.first % 2;
    x.count = w->count - x.first;
    if (number > 2)
        x.count = random_next(&state) % (x.count + 1);
    x.shift = number % 3;
    return x;
}

/* --------------------------------------------------------------------------- devices */

static void
decode_on(const rig *r, const weight *w, const stretch *x)
{
    const uint64_t width = width_of(w->s.dtype);
    berthi_stream *const stream = rig_stream(r->device);
    uint8_t *const memory = rig_alloc(r->device, w->bytes);
    uint8_t *const got = malloc(w->bytes);
    uint8_t *const wanted = malloc(w->bytes);
    const berthi_request request = request_of(w, x, memory);
    const berthi_copy there = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory,
                                .from = w->memory, .bytes = w->bytes };
    const berthi_copy back = { .kind = BERTHI_COPY_TO_HOST, .to = got, .from = memory,
                               .bytes = w->bytes };

    if (got == NULL || wanted == NULL)
        abort();
    memcpy(wanted, w->memory, w->bytes);
    memcpy(wanted + w->values + x->shift * width, w->expected + x->first * width,
           x->count * width);
    CHECK(r->device->table->has_operation(r->device, request.operation));
    CHECK_EQ(r->device->table->copy(r->device, &there, stream, NULL), BERTH_OK);
    CHECK_EQ(r->device->table->launch(r->device, &request, stream, NULL), BERTH_OK);
    CHECK_EQ(r->device->table->copy(r->device, &back, stream, NULL), BERTH_OK);
    rig_sync(r->device, stream);
    if (!CHECK_MEM(got, wanted, w->bytes))
        T_NOTE("%llu values from %llu on of %llu x %llu, %llu behind the beginning",
               (unsigned long long)x->count, (unsigned long long)x->first,
               (unsigned long long)w->s.rows, (unsigned long long)w->s.columns,
               (unsigned long long)x->shift);
    r->device->table->stream_destroy(r->device, stream);
    r->device->table->free(r->device, memory, w->bytes);
    free(got);
    free(wanted);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", "sim:64MiB,h2d=1GB/s,memory=2GB/s" };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < SHAPES; i++) {
            weight w = make_weight(&shapes[i]);
            rig r;

            T_REQUIRE(rig_open(&r, words[k]));
            for (uint32_t number = 0; number < 40; number++) {
                const stretch x = draw_stretch(&w, number);

                decode_on(&r, &w, &x);
            }
            rig_close(&r);
            free_weight(&w);
        }
}

static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < SHAPES; i++) {
        weight w = make_weight(&shapes[i]);

        for (uint32_t number = 0; number < 8; number++) {
            const stretch x = draw_stretch(&w, number);
            rig r;

            fake_cuda_begin(&late);
            T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
            decode_on(&r, &w, &x);
            CHECK_EQ(fake_cuda_read().launches, count_parts(&w, &x));
            CHECK_EQ(fake_cuda_read().overlapping, fake_cuda_read().launches);
            rig_close(&r);
            fake_cuda_check_empty();
            fake_cuda_end();
        }
        free_weight(&w);
    }
}

/* The kernels for blocks of 64 are others than those for any. */
static void
test_kernels_of_gpus(void)
{
    static const struct {
        size_t shape;
        berthi_kernel_id kernel;
    } cases[] = { { 0, KERNEL_decode_4bit_bf16_64 }, { 1, KERNEL_decode_4bit_bf16_64_double },
                  { 2, KERNEL_decode_4bit_f16_double }, { 4, KERNEL_decode_4bit_f32 },
                  { 8, KERNEL_int8_decode_bf16 } };

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weight w = make_weight(&shapes[cases[i].shape]);
        const stretch all = { 0, w.count, 0 };
        rig r;

        fake_cuda_begin(&late);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        decode_on(&r, &w, &all);
        CHECK_EQ(fake_cuda_read().launched[cases[i].kernel], 1);
        rig_close(&r);
        fake_cuda_check_empty();
        fake_cuda_end();
        free_weight(&w);
    }
}

/* -------------------------------------------------------------------------- refusals */

static void
check_refused_rows(const rig *r, const void *user)
{
    weight w = make_weight(&shapes[9]);
    const stretch all = { 0, w.count, 0 };
    uint8_t *const memory = rig_alloc(r->device, w.bytes);
    const berthi_request good = request_of(&w, &all, memory);
    berthi_request bad = good;

    (void)user;
    bad.arguments.decode_rows.dtype = BERTH_F64;
    rig_check_refused(r, &bad, "no weight is decoded to values of dtype ");
    bad = good;
    bad.arguments.decode_rows.columns = 0;
    bad.arguments.decode_rows.count = 1;
    rig_check_refused(r, &bad, "no weight is decoded in rows of 0 columns");
    bad.arguments.decode_rows.count = 0;
    CHECK_EQ(berthi_decode_rows_check(&bad.arguments.decode_rows, NULL), BERTH_OK);
    bad = good;
    bad.arguments.decode_rows.columns = (UINT64_C(1) << 31) - 1;
    CHECK_EQ(berthi_decode_rows_check(&bad.arguments.decode_rows, NULL), BERTH_OK);
    bad.arguments.decode_rows.columns = UINT64_C(1) << 31;
    rig_check_refused(r, &bad, "no weight is decoded in rows of 2147483648 columns");
    bad = good;
    bad.arguments.decode_rows.first = UINT64_MAX / 4;
    rig_check_refused(r, &bad, "no weight has 10240 values from number ");
    r->device->table->free(r->device, memory, w.bytes);
    free_weight(&w);
}

static void
check_refusals(const rig *r, const void *user)
{
    static const uint32_t sizes[] = { 0, 16, 48, 8192 };
    weight w = make_weight(&shapes[0]);
    const stretch all = { 0, w.count, 0 };
    uint8_t *const memory = rig_alloc(r->device, w.bytes);
    const berthi_request good = request_of(&w, &all, memory);
    berthi_request bad = good;

    (void)user;
    bad.arguments.decode.dtype = BERTH_U8;
    rig_check_refused(r, &bad, "no weight is decoded to values of dtype ");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bad = good;
        bad.arguments.decode.block_size = sizes[i];
        rig_check_refused(r, &bad, ": they are 32 to 4096, a power of two");
    }
    bad = good;
    bad.arguments.decode.first = 3;
    rig_check_refused(r, &bad, "begins with value 3: two share a byte");
    bad = good;
    bad.arguments.decode.count = UINT64_MAX;
    rig_check_refused(r, &bad, "no weight has 18446744073709551615 values from number 0 on");
    bad.arguments.decode.first = 2;
    rig_check_refused(r, &bad, " values from number 2 on");
    bad = good;
    bad.operation = BERTHI_OPERATION_DECODE_FP4;
    bad.arguments.decode.count = 0; /* of nothing there is nothing to do */
    CHECK_EQ(r->device->table->launch(r->device, &bad, NULL, NULL), BERTH_OK);
    r->device->table->free(r->device, memory, w.bytes);
    free_weight(&w);
}

static void
test_refused_by_each(void)
{
    rig_refused_by_each(check_refusals, NULL);
    rig_refused_by_each(check_refused_rows, NULL);
}

/* Moves a pointer of the request and has it refused. */
#define CHECK_ODD(member, by, why)                                                    \
    do {                                                                              \
        berthi_request odd = good;                                                    \
                                                                                      \
        odd.arguments.member = (void *)((uintptr_t)odd.arguments.member + (by));      \
        rig_check_refused(&r, &odd, why);                                             \
    } while (0)

/* What ends a GPU for the whole process. */
static void
test_odd_addresses(void)
{
    weight w = make_weight(&shapes[1]);
    const stretch all = { 0, w.count, 0 };
    berthi_request good;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, w.bytes);
    good = request_of(&w, &all, memory);
    CHECK_ODD(decode.absmax, 2, "maxima at an address that is no multiple of 4");
    CHECK_ODD(decode.values, 1, "values at an address that is no multiple of 2");
    good.arguments.decode.dtype = BERTH_F32;
    CHECK_ODD(decode.values, 2, "values at an address that is no multiple of 4");
    w.s = shapes[10];
    good = request_of(&w, &(stretch){ 0, 93, 0 }, memory);
    CHECK_ODD(decode_rows.row_maximum, 1, "maxima at an address that is no multiple of 4");
    CHECK_ODD(decode_rows.values, 2, "values at an address that is no multiple of 4");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, w.bytes);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free_weight(&w);
}

/* A grid holds no more CTAs than 2^31 - 1. */
static void
test_more_than_a_grid(void)
{
    weight w = make_weight(&shapes[0]);
    berthi_request huge;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, w.bytes);
    huge = request_of(&w, &(stretch){ 0, UINT64_C(1) << 50, 0 }, memory);
    rig_check_refused(&r, &huge, "of which a GPU holds 2147483647");
    w.s = shapes[9];
    huge = request_of(&w, &(stretch){ 0, UINT64_C(1) << 50, 0 }, memory);
    rig_check_refused(&r, &huge, "of which a GPU holds 2147483647");
    CHECK_EQ(fake_cuda_read().launches, 0);
    r.device->table->free(r.device, memory, w.bytes);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
    free_weight(&w);
}

/* ------------------------------------------------------------------------ simulations */

/* A request, and where in it its arguments stand. */
typedef struct slotted {
    const berthi_request *whole;
    const size_t *slots;
    uint32_t count;
} slotted;

static berthi_request
put_arguments(const void *user, uint8_t *const *at)
{
    const slotted *const s = user;
    berthi_request request = *s->whole;

    for (uint32_t i = 0; i < s->count; i++)
        memcpy((char *)&request + s->slots[i], &at[i], sizeof at[i]);
    return request;
}

static void
check_to_the_byte(const berthi_request *whole, const size_t *slots, const uint64_t *sizes,
                  uint32_t count)
{
    const slotted s = { whole, slots, count };
    const uint32_t all = (1u << count) - 1;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    rig_check_exact(&r, &(rig_exact){ sizes, count, all, all, put_arguments, &s });
    rig_close(&r);
}

#define SLOT(member) offsetof(berthi_request, arguments.member)

static void
test_simulated_to_the_byte(void)
{
    static const size_t slots[] = { SLOT(decode.codes), SLOT(decode.values),
                                    SLOT(decode.absmax), SLOT(decode.absmax_codes) };
    static const size_t slots_of_rows[] = { SLOT(decode_rows.codes), SLOT(decode_rows.values),
                                            SLOT(decode_rows.row_maximum) };
    weight plain = make_weight(&shapes[0]);
    weight twice = make_weight(&shapes[1]);
    weight rows = make_weight(&shapes[9]);
    berthi_request request = request_of(&plain, &(stretch){ 62, 67, 0 }, plain.memory);

    check_to_the_byte(&request, slots, (const uint64_t[]){ 34, 134, 12 }, 3);
    /* Blocks 255 and 256 are in two blocks of absmax. */
    request = request_of(&twice, &(stretch){ 16382, 4, 0 }, twice.memory);
    check_to_the_byte(&request, slots, (const uint64_t[]){ 2, 8, 8, 2 }, 4);
    request = request_of(&rows, &(stretch){ 511, 514, 0 }, rows.memory);
    check_to_the_byte(&request, slots_of_rows, (const uint64_t[]){ 514, 1028, 12 }, 3);
    free_weight(&plain);
    free_weight(&twice);
    free_weight(&rows);
}

/* What is kept of the values where bytes are not. */
static void
test_digests(void)
{
    weight w = make_weight(&shapes[1]);
    const stretch all = { 0, w.count, 0 };
    const uint64_t bytes = w.count * width_of(w.s.dtype);
    berthi_request request;
    uint8_t *values;
    uint8_t *stored;
    uint32_t crc;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:256MiB,backing=digest"));
    values = rig_alloc(r.device, 64 * MIB);
    stored = rig_alloc(r.device, 64 * MIB);
    request = request_of(&w, &all, stored);
    request.arguments.decode.values = values;
    rig_check_refused(&r, &request, "reads memory of which digests are kept, not bytes");
    CHECK_EQ(r.device->table->keep(r.device, stored, w.values, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->copy(r.device,
                                   &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .to = stored,
                                                   .from = w.memory, .bytes = w.values },
                                   NULL, NULL),
             BERTH_OK);
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->digest(r.device, values, bytes, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, w.expected, bytes));
    r.device->table->free(r.device, values, 64 * MIB);
    r.device->table->free(r.device, stored, 64 * MIB);
    rig_close(&r);
    free_weight(&w);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_kernels_of_gpus);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_more_than_a_grid);
    T_RUN(test_simulated_to_the_byte);
    T_RUN(test_digests);
    T_MAIN_END;
}
