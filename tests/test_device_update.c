/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer updates, and what they need of gradients, asked for of each kind of device:
 * processors, simulations and GPUs (run on the host) have the bits of the plain loops,
 * count what is not finite where they are told, and refuse the same. What a simulated one
 * touches is checked to the byte.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define COUNT 600u
#define BLOCKS 3u
#define NOT_FINITE 86u /* one in seven */
#define PLAIN "sim:64MiB,h2d=1GB/s,d2h=1GB/s,memory=1GB/s,latency=0ns"

/* -------------------------------------------------------------------------- pieces */

typedef enum piece {
    PARAMETER,
    GRADIENT,
    MASTER,
    STATE1, /* values or codes */
    ABSMAX1,
    STATE2,
    ABSMAX2,
    STATE3,
    ABSMAX3,
    COUNTER,
    PIECES
} piece;

typedef struct shape {
    int32_t kind;
    int32_t dtype;
    int32_t gradient_dtype;
    bool has_master;
    bool is_8bit;
} shape;

static const shape shapes[] = {
    { BERTHI_UPDATE_ADAMW, BERTH_BF16, BERTH_BF16, false, true },
    { BERTHI_UPDATE_ADAM, BERTH_F16, BERTH_F32, true, true },
    { BERTHI_UPDATE_ADAMW, BERTH_F32, BERTH_F32, false, false },
    { BERTHI_UPDATE_LION, BERTH_BF16, BERTH_F16, false, true },
    { BERTHI_UPDATE_MOMENTUM, BERTH_F32, BERTH_BF16, true, false },
    { BERTHI_UPDATE_ADEMAMIX, BERTH_BF16, BERTH_BF16, true, true },
    { BERTHI_UPDATE_ADEMAMIX, BERTH_F16, BERTH_F16, false, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* What an update of this shape touches of it; 0: nothing. */
static uint64_t
bytes_of(const shape *s, piece p)
{
    const uint32_t states = berthi_update_states((berthi_update_kind)s->kind);

    switch (p) {
    case PARAMETER: return COUNT * (s->dtype == BERTH_F32 ? 4 : 2);
    case GRADIENT: return COUNT * (s->gradient_dtype == BERTH_F32 ? 4 : 2);
    case MASTER: return s->has_master ? COUNT * 4 : 0;
    case STATE1:
    case STATE2:
    case STATE3:
        if ((uint32_t)(p - STATE1) / 2 >= states)
            return 0;
        return COUNT * (s->is_8bit ? 1 : 4);
    case ABSMAX1:
    case ABSMAX2:
    case ABSMAX3:
        return (uint32_t)(p - ABSMAX1) / 2 < states && s->is_8bit ? BLOCKS * 4 : 0;
    default: return sizeof(uint64_t);
    }
}

/* Of the host's memory, or of a device's. */
typedef struct pieces {
    void *at[PIECES];
} pieces;

static berthi_update_state
state_at(const shape *s, void *codes, void *absmax)
{
    return s->is_8bit ? (berthi_update_state){ NULL, codes, absmax }
                      : (berthi_update_state){ codes, NULL, NULL };
}

static berthi_request
request_at(const shape *s, const pieces *p, uint64_t step)
{
    berthi_update_settings settings = berthi_update_defaults((berthi_update_kind)s->kind);

    settings.decay = 0.01f;
    return (berthi_request){
        .operation = BERTHI_OPERATION_UPDATE,
        .arguments.update = {
            .arguments = {
                .count = COUNT,
                .parameter = p->at[PARAMETER],
                .dtype = s->dtype,
                .gradient_dtype = s->gradient_dtype,
                .gradient = p->at[GRADIENT],
                .master = s->has_master ? p->at[MASTER] : NULL,
                .state = { state_at(s, p->at[STATE1], p->at[ABSMAX1]),
                           state_at(s, p->at[STATE2], p->at[ABSMAX2]),
                           state_at(s, p->at[STATE3], p->at[ABSMAX3]) },
            },
            .constants = berthi_update_constants_of(&settings, step),
            .not_finite = p->at[COUNTER],
        },
    };
}

/* What all begins with: numbers, one gradient in seven that is none, 100 counted so far. */
static void
fill(const shape *s, uint32_t memory[PIECES][COUNT])
{
    uint32_t random = 1;

    memset(memory, 0, sizeof(uint32_t[PIECES][COUNT]));
    for (uint32_t i = 0; i < COUNT; i++) {
        float value;

        random = random * 1664525u + 1013904223u;
        value = ((float)(random >> 8) / 16777216.0f - 0.5f) * 4.0f;
        berthi_core_store(memory[PARAMETER], s->dtype, i, value);
        berthi_core_store(memory[GRADIENT], s->gradient_dtype, i,
                          i % 7 == 3 ? NAN : value * value - 1.0f);
        ((float *)memory[MASTER])[i] = value;
    }
    memory[COUNTER][0] = 100;
}

/* ------------------------------------------------------------------------ equality */

static void
check_shape(rig *r, const shape *s)
{
    static uint32_t expected[PIECES][COUNT];
    pieces host;
    pieces there = { { NULL } };

    fill(s, expected);
    for (int p = 0; p < PIECES; p++) {
        const uint64_t bytes = bytes_of(s, (piece)p);

        host.at[p] = expected[p];
        if (bytes == 0)
            continue;
        there.at[p] = rig_alloc(r->device, bytes);
        memcpy(there.at[p], expected[p], bytes);
    }
    for (uint64_t step = 1; step <= 3; step++) {
        const berthi_request request = request_at(s, &there, step);
        const berthi_request same = request_at(s, &host, step);

        CHECK(r->device->table->has_operation(r->device, request.operation));
        CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
        CHECK_EQ(berthi_update_plainly(&same.arguments.update.arguments,
                                       &same.arguments.update.constants),
                 NOT_FINITE);
    }
    rig_sync(r->device, NULL);
    expected[COUNTER][0] += 3 * NOT_FINITE;
    for (int p = 0; p < PIECES; p++) {
        const uint64_t bytes = bytes_of(s, (piece)p);

        if (bytes == 0)
            continue;
        CHECK_MEM(there.at[p], expected[p], bytes);
        r->device->table->free(r->device, there.at[p], bytes);
    }
}

static void
test_bits_of_each(void)
{
    static const char *const words[] = { "cpu", PLAIN };

    for (int i = 0; i < 2; i++) {
        rig r;

        T_REQUIRE(rig_open(&r, words[i]));
        for (size_t k = 0; k < SHAPES; k++)
            check_shape(&r, &shapes[k]);
        rig_close(&r);
    }
}

/* ---------------------------------------------------------------------- simulations */

/* Memory for all pieces, each as large as it must be, and zero. */
static pieces
alloc_pieces(const rig *r, const shape *s)
{
    pieces p = { { NULL } };

    for (int i = 0; i < PIECES; i++) {
        const uint64_t bytes = bytes_of(s, (piece)i);

        if (bytes == 0)
            continue;
        p.at[i] = rig_alloc(r->device, bytes);
        memset(p.at[i], 0, bytes);
    }
    return p;
}

static void
free_pieces(const rig *r, const shape *s, const pieces *p)
{
    for (int i = 0; i < PIECES; i++)
        if (p->at[i] != NULL)
            r->device->table->free(r->device, p->at[i], bytes_of(s, (piece)i));
}

static void
check_too_small(const rig *r, const shape *s, const pieces *p)
{
    for (int i = 0; i < PIECES; i++) {
        pieces moved = *p;
        berthi_request request;

        if (p->at[i] == NULL)
            continue;
        moved.at[i] = (uint8_t *)p->at[i] + (i == COUNTER ? 8 : 4);
        request = request_at(s, &moved, 1);
        CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_EINTERNAL);
    }
}

/* Too many for memory, though not once they have wrapped around. */
static void
check_too_many(const rig *r, const shape *s, const pieces *p)
{
    berthi_request request = request_at(s, p, 1);

    for (int bits = 61; bits < 64; bits++) {
        request.arguments.update.arguments.count = (UINT64_C(1) << bits) + 4;
        CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_EINTERNAL);
    }
}

/* Of 1 GB/s: a nanosecond each. */
static void
check_duration(const rig *r, const shape *s, const pieces *p)
{
    const berthi_request request = request_at(s, p, 1);
    const uint64_t begin = rig_now(r);
    uint64_t bytes = 0;

    for (int i = 0; i < PIECES; i++)
        bytes += bytes_of(s, (piece)i);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
    rig_sync(r->device, NULL);
    CHECK_EQ(rig_now(r) - begin, bytes);
}

static void
test_what_is_touched(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    for (size_t k = 0; k < SHAPES; k++) {
        const pieces p = alloc_pieces(&r, &shapes[k]);

        check_duration(&r, &shapes[k], &p);
        check_too_small(&r, &shapes[k], &p);
        check_too_many(&r, &shapes[k], &p);
        free_pieces(&r, &shapes[k], &p);
    }
    rig_close(&r);
}

/* ------------------------------------------------------------------------ gradients */

#define LENGTH 5000u

/* A gradient, as f32 and as bf16, what it is added to, and its sums, in one piece. */
typedef struct gradients {
    float wide[LENGTH];
    uint16_t narrow[LENGTH];
    berthi_gradient_sum sums[2];
} gradients;

static berthi_request
measure_at(gradients *g)
{
    return (berthi_request){ .operation = BERTHI_OPERATION_MEASURE,
                             .arguments.measure = { LENGTH, g->narrow, BERTH_BF16, g->sums } };
}

static berthi_request
accumulate_at(gradients *g)
{
    return (berthi_request){ .operation = BERTHI_OPERATION_ACCUMULATE,
                             .arguments.accumulate =
                                 { LENGTH, g->wide, BERTH_F32, BERTH_BF16, g->narrow, 0.5f } };
}

static void
check_gradients(rig *r)
{
    static gradients expected;
    gradients *const there = rig_alloc(r->device, sizeof *there);
    const berthi_request requests[] = { measure_at(there), accumulate_at(there) };
    const berthi_request same[] = { measure_at(&expected), accumulate_at(&expected) };

    memset(&expected, 0, sizeof expected);
    for (uint32_t i = 0; i < LENGTH; i++) {
        expected.wide[i] = (float)i * 0.01f;
        expected.narrow[i] = berthi_core_to_bf16(i % 7 == 3 ? NAN : (float)i);
    }
    *there = expected;
    for (int i = 0; i < 2; i++) {
        CHECK(r->device->table->has_operation(r->device, requests[i].operation));
        CHECK_EQ(r->device->table->launch(r->device, &requests[i], NULL, NULL), BERTH_OK);
    }
    rig_sync(r->device, NULL);
    berthi_measure_plainly(&same[0].arguments.measure);
    berthi_accumulate_plainly(&same[1].arguments.accumulate);
    CHECK_MEM(there, &expected, sizeof expected);
    CHECK_EQ(expected.sums[0].not_finite + expected.sums[1].not_finite, (LENGTH - 3 + 6) / 7);
    r->device->table->free(r->device, there, sizeof *there);
}

static void
test_gradients_of_each(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    check_gradients(&r);
    rig_close(&r);
    T_REQUIRE(rig_open(&r, PLAIN));
    check_gradients(&r);
    rig_close(&r);
}

static void
check_not_in_memory(const rig *r, berthi_request request, size_t slot, uint64_t shift)
{
    uint8_t *at;

    memcpy(&at, (const char *)&request + slot, sizeof at);
    at += shift;
    memcpy((char *)&request + slot, &at, sizeof at);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_EINTERNAL);
}

/* To the byte: each piece has memory of its own, and what begins later has too little. */
static void
test_what_gradients_touch(void)
{
    float *wide;
    uint16_t *narrow;
    berthi_gradient_sum *sums;
    berthi_request measure;
    berthi_request accumulate;
    uint64_t begin;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    wide = rig_alloc(r.device, LENGTH * 4);
    narrow = rig_alloc(r.device, LENGTH * 2);
    sums = rig_alloc(r.device, 2 * sizeof *sums);
    memset(wide, 0, LENGTH * 4);
    memset(narrow, 0, LENGTH * 2);
    measure = (berthi_request){ .operation = BERTHI_OPERATION_MEASURE,
                                .arguments.measure = { LENGTH, narrow, BERTH_BF16, sums } };
    accumulate = (berthi_request){ .operation = BERTHI_OPERATION_ACCUMULATE,
                                   .arguments.accumulate =
                                       { LENGTH, wide, BERTH_F32, BERTH_BF16, narrow, 1.0f } };
    begin = rig_now(&r);
    CHECK_EQ(r.device->table->launch(r.device, &measure, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r) - begin, LENGTH * 2 + 2 * sizeof *sums);
    begin = rig_now(&r);
    CHECK_EQ(r.device->table->launch(r.device, &accumulate, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r) - begin, LENGTH * 6);
    check_not_in_memory(&r, measure, offsetof(berthi_request, arguments.measure.gradient), 2);
    check_not_in_memory(&r, measure, offsetof(berthi_request, arguments.measure.sums), 8);
    check_not_in_memory(&r, accumulate, offsetof(berthi_request, arguments.accumulate.sum),
                        4);
    check_not_in_memory(&r, accumulate,
                        offsetof(berthi_request, arguments.accumulate.gradient), 2);
    measure.arguments.measure.count = (UINT64_C(1) << 63) + 4;
    CHECK_EQ(r.device->table->launch(r.device, &measure, NULL, NULL), BERTH_EINTERNAL);
    accumulate.arguments.accumulate.count = (UINT64_C(1) << 62) + 4;
    CHECK_EQ(r.device->table->launch(r.device, &accumulate, NULL, NULL), BERTH_EINTERNAL);
    accumulate.arguments.accumulate.sum_dtype = BERTH_F16;
    accumulate.arguments.accumulate.dtype = BERTH_F32;
    CHECK_EQ(r.device->table->launch(r.device, &accumulate, NULL, NULL), BERTH_EINTERNAL);
    r.device->table->free(r.device, wide, LENGTH * 4);
    r.device->table->free(r.device, narrow, LENGTH * 2);
    r.device->table->free(r.device, sums, 2 * sizeof *sums);
    rig_close(&r);
}

/* ------------------------------------------------------------------------- refusals */

static void
check_refused(const rig *r, const berthi_request *request, const char *why)
{
    berth_error error;

    rig_refuse(r, request, &error);
    CHECK_STR(error.message, why);
}

static void
check_refusals(const rig *r)
{
    const shape *const s = &shapes[0];
    const pieces p = alloc_pieces(r, s);
    const berthi_request good = request_at(s, &p, 1);
    berthi_request bad = good;
    char no_gradient[64];
    char why[96];

    snprintf(no_gradient, sizeof no_gradient, "no gradient is of dtype %d", (int)BERTH_U8);
    bad.arguments.update.constants.kind = -1;
    check_refused(r, &bad, "an update has no kind -1");
    bad.arguments.update.constants.kind = BERTHI_UPDATE_KIND_COUNT;
    snprintf(why, sizeof why, "an update has no kind %d", (int)BERTHI_UPDATE_KIND_COUNT);
    check_refused(r, &bad, why);
    bad = good;
    bad.arguments.update.arguments.dtype = BERTH_U8;
    snprintf(why, sizeof why, "an update of dtype %d by gradients of dtype %d", (int)BERTH_U8,
             (int)BERTH_BF16);
    check_refused(r, &bad, why);
    bad = good;
    bad.arguments.update.arguments.gradient_dtype = BERTH_U8;
    snprintf(why, sizeof why, "an update of dtype %d by gradients of dtype %d",
             (int)BERTH_BF16, (int)BERTH_U8);
    check_refused(r, &bad, why);
    bad = good;
    bad.arguments.update.arguments.state[0].codes = NULL;
    check_refused(r, &bad, "an update without state 1");
    bad = good;
    bad = good;
    bad.arguments.update.arguments.state[1].absmax = NULL;
    check_refused(r, &bad, "an update without state 2");
    bad.arguments.update.constants.kind = BERTHI_UPDATE_ADEMAMIX;
    bad.arguments.update.arguments.state[1] = good.arguments.update.arguments.state[1];
    check_refused(r, &bad, "an update without state 3");
    bad.arguments.update.arguments.state[1].absmax = NULL;
    check_refused(r, &(berthi_request){ .operation = BERTHI_OPERATION_MEASURE,
                                        .arguments.measure.dtype = BERTH_U8 },
                  no_gradient);
    check_refused(r, &(berthi_request){ .operation = BERTHI_OPERATION_ACCUMULATE,
                                        .arguments.accumulate = { .sum_dtype = BERTH_F32,
                                                                  .dtype = BERTH_U8 } },
                  no_gradient);
    bad.arguments.update.constants.kind = BERTHI_UPDATE_LION; /* which has none */
    CHECK_EQ(r->device->table->launch(r->device, &bad, NULL, NULL), BERTH_OK);
    rig_sync(r->device, NULL);
    free_pieces(r, s, &p);
}

static void
test_refused_by_each(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    check_refusals(&r);
    rig_close(&r);
    T_REQUIRE(rig_open(&r, PLAIN));
    check_refusals(&r);
    rig_close(&r);
}

/* ----------------------------------------------------------------------------- GPUs */

static const fake_cuda_machine gpu = { .count = 1, .driver = 13000, .architecture = 90,
                                       .memory_bytes = UINT64_C(64) << 20, .is_late = true };

/* Kernels by the lanes of simt.h. */
static void
test_gpus(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this processor");
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (size_t k = 0; k < SHAPES; k++)
        check_shape(&r, &shapes[k]);
    check_gradients(&r);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_update_bf16_adam8], 3);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_measure_bf16], 1);
    CHECK_EQ(fake_cuda_read().launched[KERNEL_accumulate_f32], 1);
    check_refusals(&r);
    rig_close(&r);
    fake_cuda_end();
}

/* What would end a GPU for good is refused. */
static void
check_odd_address(const rig *r, berthi_request request, size_t slot, uint64_t shift,
                  const char *why)
{
    uint8_t *at;

    memcpy(&at, (const char *)&request + slot, sizeof at);
    at += shift;
    memcpy((char *)&request + slot, &at, sizeof at);
    check_refused(r, &request, why);
}

#define OF_UPDATE(member) offsetof(berthi_request, arguments.update.arguments.member)

static void
test_odd_addresses(void)
{
    const shape in32 = { BERTHI_UPDATE_LION, BERTH_F32, BERTH_BF16, true, false };
    static uint64_t room[2 * LENGTH];
    pieces p;
    berthi_request request;
    rig r;

    for (int i = 0; i < PIECES; i++)
        p.at[i] = room;
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    request = request_at(&in32, &p, 1);
    check_odd_address(&r, request, OF_UPDATE(parameter), 2,
                      "parameter at an address that is no multiple of 4");
    check_odd_address(&r, request, OF_UPDATE(gradient), 1,
                      "gradient at an address that is no multiple of 2");
    check_odd_address(&r, request, OF_UPDATE(master), 2,
                      "master at an address that is no multiple of 4");
    check_odd_address(&r, request, OF_UPDATE(state[0].values), 2,
                      "state at an address that is no multiple of 4");
    check_odd_address(&r, request, offsetof(berthi_request, arguments.update.not_finite), 4,
                      "count at an address that is no multiple of 8");
    request = request_at(&shapes[0], &p, 1);
    check_odd_address(&r, request, OF_UPDATE(state[1].absmax), 2,
                      "maxima at an address that is no multiple of 4");
    request = measure_at((gradients *)(void *)room);
    check_odd_address(&r, request, offsetof(berthi_request, arguments.measure.gradient), 1,
                      "gradient at an address that is no multiple of 2");
    check_odd_address(&r, request, offsetof(berthi_request, arguments.measure.sums), 4,
                      "sums at an address that is no multiple of 8");
    request = accumulate_at((gradients *)(void *)room);
    check_odd_address(&r, request, offsetof(berthi_request, arguments.accumulate.sum), 2,
                      "sum at an address that is no multiple of 4");
    check_odd_address(&r, request, offsetof(berthi_request, arguments.accumulate.gradient), 1,
                      "gradient at an address that is no multiple of 2");
    rig_close(&r);
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_bits_of_each);
    T_RUN(test_what_is_touched);
    T_RUN(test_gradients_of_each);
    T_RUN(test_what_gradients_touch);
    T_RUN(test_refused_by_each);
    T_RUN(test_gpus);
    T_RUN(test_odd_addresses);
    T_MAIN_END;
}
