/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder's steps asked for of each kind of device: processors, simulations and GPUs (run
 * on the host) have the bits of the plain loops and refuse the same. What a simulated one
 * touches is checked to the byte.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/sim.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define PLAIN "sim:64MiB,h2d=1GB/s,d2h=1GB/s,memory=1GB/s,latency=0ns"
#define STEPS 9u
#define NUMBERS 4096u

/* ---------------------------------------------------------------------- requests */

/* One of each step, and what it moves. */
typedef struct steps {
    berthi_request request[STEPS];
    uint64_t moved[STEPS];
} steps;

/* Host memory of every member, full of numbers of no dtype in particular. */
static _Alignas(16) uint16_t room[10][NUMBERS];
static uint32_t numbers[5] = { 4, 1, 0, 9, 3 };

static steps
make_steps(void)
{
    return (steps){
        .request = {
            { .operation = BERTHI_OPERATION_TAKE,
              .arguments.take = { .table = room[0], .table_dtype = BERTH_BF16,
                                  .dtype = BERTH_F32, .numbers = numbers, .rows = 40,
                                  .columns = 24, .count = 5, .outputs = room[1] } },
            { .operation = BERTHI_OPERATION_NORM,
              .arguments.norm = { .inputs = room[0], .weight = room[1], .outputs = room[2],
                                  .inputs_dtype = BERTH_F16, .weight_dtype = BERTH_BF16,
                                  .dtype = BERTH_BF16, .epsilon = 1e-5f, .count = 3,
                                  .columns = 300 } },
            { .operation = BERTHI_OPERATION_ROTATE,
              .arguments.rotate = { .queries = room[0], .keys = room[1], .values = room[2],
                                    .query_norm = room[3], .key_norm = room[4],
                                    .angles = (float *)(void *)room[5],
                                    .key_cache = room[6], .value_cache = room[7],
                                    .dtype = BERTH_BF16, .norm_dtype = BERTH_F16,
                                    .cache_dtype = BERTH_F16, .epsilon = 1e-6f, .count = 3,
                                    .heads = 4, .kv_heads = 2, .width = 16, .position = 7,
                                    .capacity = 20 } },
            { .operation = BERTHI_OPERATION_ATTEND,
              .arguments.attend = { .queries = room[0], .key_cache = room[6],
                                    .value_cache = room[7], .outputs = room[1],
                                    .dtype = BERTH_BF16, .cache_dtype = BERTH_F16,
                                    .count = 3, .heads = 4, .kv_heads = 2, .width = 16,
                                    .position = 7, .capacity = 20, .window = 5 } },
            { .operation = BERTHI_OPERATION_GATE,
              .arguments.gate = { .gate = room[0], .up = room[1], .elements = 1000,
                                  .dtype = BERTH_F16 } },
            { .operation = BERTHI_OPERATION_ADD,
              .arguments.add = { .sums = (float *)(void *)room[0], .values = room[1],
                                 .rows = numbers, .weights = (float *)(void *)room[2],
                                 .dtype = BERTH_BF16, .share = 2, .count = 5,
                                 .sum_rows = 3, .columns = 100 } },
            { .operation = BERTHI_OPERATION_CHOOSE,
              .arguments.choose = { .logits = room[0],
                                    .numbers = (uint32_t *)(void *)room[1],
                                    .weights = (float *)(void *)room[2],
                                    .dtype = BERTH_F16, .is_renormalised = 1, .count = 6,
                                    .experts = 40, .used = 4 } },
            { .operation = BERTHI_OPERATION_LARGEST,
              .arguments.largest = { .values = room[0],
                                     .numbers = (uint32_t *)(void *)room[1],
                                     .dtype = BERTH_F16, .count = 2, .columns = 500 } },
            { .operation = BERTHI_OPERATION_NORM,
              .arguments.norm = { .weight = room[1], .outputs = room[2],
                                  .weight_dtype = BERTH_BF16, .dtype = BERTH_BF16,
                                  .epsilon = 1e-5f, .count = 3, .added_dtype = BERTH_F16,
                                  .columns = 300, .sums = (float *)(void *)room[3],
                                  .added = room[4] } },
        },
        .moved = {
            5 * 24 * (2 + 4) + 5 * 4,
            3 * 300 * (2 + 2) + 300 * 2,
            3 * (4 + 2 + 2) * 16 * 2 + 2 * 16 * 2 + 3 * 16 * 4 + 2 * 3 * 2 * 16 * 2,
            2 * 3 * 4 * 16 * 2 + 2 * 7 * 2 * 16 * 2, /* positions 3 to 9 */
            2 * 1000 * 2,
            3 * 100 * 4 + 5 * 100 * 2 + 5 * 4 + 6 * 4,
            6 * 40 * 2 + 6 * 4 * 8,
            2 * 500 * 2 + 2 * 4,
            3 * 300 * (4 + 2 + 2) + 300 * 2,
        },
    };
}

static void
fill_room(void)
{
    uint32_t random = 1;

    for (uint32_t p = 0; p < 10; p++)
        for (uint32_t i = 0; i < NUMBERS; i++) {
            random = random * 1664525u + 1013904223u;
            room[p][i] = (uint16_t)(random >> 16 & 0xBFFFu); /* below 2 in f16 and bf16 */
        }
}

/* ------------------------------------------------------------------------ placing */

/* A step with each region in memory of its own on a device. */
typedef struct placed {
    berthi_request request;
    berthi_operands here;
    void *there[BERTHI_OPERANDS];
} placed;

static placed
place_step(berthi_device *device, const berthi_request *request)
{
    placed p = { .request = *request };

    CHECK(berthi_operands_can_list(request, &p.here));
    CHECK_GT(p.here.count, 1);
    for (uint32_t i = 0; i < p.here.count; i++) {
        const berthi_operand *const r = &p.here.items[i];

        p.there[i] = rig_alloc(device, r->bytes);
        memcpy(p.there[i], r->memory, (size_t)r->bytes); /* of all kinds here it can be */
        memcpy((char *)&p.request + r->slot, &p.there[i], sizeof p.there[i]);
    }
    return p;
}

static void
free_step(berthi_device *device, placed *p)
{
    for (uint32_t i = 0; i < p->here.count; i++)
        device->table->free(device, p->there[i], p->here.items[i].bytes);
}

static berth_status
launch(const rig *r, const berthi_request *request, berth_error *error)
{
    return r->device->table->launch(r->device, request, NULL, error);
}

/* --------------------------------------------------------------------------- bits */

/* Against the plain loops, which write to the host's memory. */
static void
check_bits(const rig *r)
{
    const steps s = make_steps();

    for (uint32_t k = 0; k < STEPS; k++) {
        placed p;

        fill_room();
        p = place_step(r->device, &s.request[k]);
        CHECK(r->device->table->has_operation(r->device, p.request.operation));
        CHECK_EQ(launch(r, &p.request, NULL), BERTH_OK);
        rig_sync(r->device, NULL);
        berthi_operation_run(NULL, &s.request[k]);
        for (uint32_t i = 0; i < p.here.count; i++) {
            const berthi_operand *const its = &p.here.items[i];

            CHECK_MEM(p.there[i], its->memory, its->bytes);
        }
        free_step(r->device, &p);
    }
}

/* Nothing to do: no memory is looked at. */
static void
check_nothing(const rig *r)
{
    steps s = make_steps();
    berthi_request *const its = s.request;

    its[0].arguments.take = (berth_take){ .table_dtype = BERTH_F16, .dtype = BERTH_F16,
                                          .rows = 9, .columns = 3 };
    its[1].arguments.norm = (berth_norm){ .inputs_dtype = BERTH_F16, .weight_dtype = BERTH_F16,
                                          .dtype = BERTH_F16, .columns = 3 };
    its[2].arguments.rotate = (berth_rotate){ .dtype = BERTH_F16, .cache_dtype = BERTH_F16,
                                              .heads = 1, .kv_heads = 1, .width = 2,
                                              .capacity = 9 };
    its[3].arguments.attend = (berth_attend){ .dtype = BERTH_F16, .cache_dtype = BERTH_F16,
                                              .heads = 1, .kv_heads = 1, .width = 2,
                                              .capacity = 9 };
    its[4].arguments.gate = (berth_gate){ .dtype = BERTH_F16 };
    its[5].arguments.add = (berth_add){ .dtype = BERTH_F16, .sum_rows = 4, .columns = 3 };
    its[6].arguments.choose = (berth_choose){ .dtype = BERTH_F16, .experts = 2, .used = 1 };
    its[7].arguments.largest = (berth_largest){ .dtype = BERTH_F16, .columns = 2 };
    its[8].arguments.norm = its[1].arguments.norm;
    for (uint32_t k = 0; k < STEPS; k++)
        CHECK_EQ(launch(r, &its[k], NULL), BERTH_OK);
    rig_sync(r->device, NULL);
}

/* ------------------------------------------------------------------------ refusals */

static void
check_refused(const rig *r, const berthi_request *request, berth_status status,
              const char *why)
{
    berth_error error;

    berthi_error_clear(&error);
    CHECK_EQ(launch(r, request, &error), status);
    CHECK_STR(error.message, why);
}

#define DTYPE_WORDS "is none of BERTH_BF16, BERTH_F16, BERTH_F32"

/* A good step, a member that is none, what is said of it. */
#define REFUSED(number, step, member, value, why)                                     \
    do {                                                                              \
        berthi_request bad = s.request[number];                                       \
                                                                                      \
        bad.arguments.step.member = value;                                            \
        check_refused(r, &bad, BERTH_EINVAL, "argument `" #member "` " why);          \
    } while (0)

static void
check_refused_rows(const rig *r)
{
    const steps s = make_steps();

    REFUSED(0, take, table_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(0, take, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(0, take, table, NULL, "is NULL");
    REFUSED(0, take, numbers, NULL, "is NULL");
    REFUSED(0, take, outputs, NULL, "is NULL");
    REFUSED(1, norm, inputs_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(1, norm, weight_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(1, norm, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(1, norm, inputs, NULL, "is NULL");
    REFUSED(1, norm, weight, NULL, "is NULL");
    REFUSED(1, norm, outputs, NULL, "is NULL");
    REFUSED(8, norm, added_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(8, norm, added, NULL, "is NULL");
    REFUSED(4, gate, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(4, gate, gate, NULL, "is NULL");
    REFUSED(4, gate, up, NULL, "is NULL");
    REFUSED(5, add, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(5, add, values, NULL, "is NULL");
    REFUSED(5, add, sums, NULL, "is NULL");
}

static void
check_refused_heads(const rig *r)
{
    steps s = make_steps();

    REFUSED(2, rotate, dtype, BERTH_U8, DTYPE_WORDS);
    s.request[2].arguments.rotate.query_norm = NULL;
    REFUSED(2, rotate, norm_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(2, rotate, cache_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(2, rotate, heads, 0, "is 0");
    REFUSED(2, rotate, kv_heads, 0, "is 0");
    REFUSED(2, rotate, kv_heads, 3, "is no divisor of `heads`");
    REFUSED(2, rotate, width, 0, "is no even number from 2 to 256");
    REFUSED(2, rotate, width, 17, "is no even number from 2 to 256");
    REFUSED(2, rotate, width, 258, "is no even number from 2 to 256");
    REFUSED(2, rotate, capacity, 9, "is less than `position` + `count`");
    REFUSED(2, rotate, capacity, 6, "is less than `position` + `count`");
    REFUSED(2, rotate, queries, NULL, "is NULL");
    REFUSED(2, rotate, keys, NULL, "is NULL");
    REFUSED(2, rotate, values, NULL, "is NULL");
    REFUSED(2, rotate, angles, NULL, "is NULL");
    REFUSED(2, rotate, key_cache, NULL, "is NULL");
    REFUSED(2, rotate, value_cache, NULL, "is NULL");
    REFUSED(3, attend, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(3, attend, cache_dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(3, attend, kv_heads, 3, "is no divisor of `heads`");
    REFUSED(3, attend, width, 258, "is no even number from 2 to 256");
    REFUSED(3, attend, capacity, 9, "is less than `position` + `count`");
    REFUSED(3, attend, queries, NULL, "is NULL");
    REFUSED(3, attend, key_cache, NULL, "is NULL");
    REFUSED(3, attend, value_cache, NULL, "is NULL");
    REFUSED(3, attend, outputs, NULL, "is NULL");
    REFUSED(6, choose, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(6, choose, experts, 0, "is no number from 1 to 1024");
    REFUSED(6, choose, experts, 1025, "is no number from 1 to 1024");
    REFUSED(6, choose, used, 0, "is no number from 1 to 64, or more than `experts`");
    REFUSED(6, choose, used, 41, "is no number from 1 to 64, or more than `experts`");
    REFUSED(6, choose, used, 65, "is no number from 1 to 64, or more than `experts`");
    REFUSED(6, choose, logits, NULL, "is NULL");
    REFUSED(6, choose, numbers, NULL, "is NULL");
    REFUSED(6, choose, weights, NULL, "is NULL");
    REFUSED(7, largest, dtype, BERTH_U8, DTYPE_WORDS);
    REFUSED(7, largest, columns, 0, "is 0");
    REFUSED(7, largest, values, NULL, "is NULL");
    REFUSED(7, largest, numbers, NULL, "is NULL");
}

/* Sizes that no memory has. */
static void
check_refused_sizes(const rig *r)
{
    const char *const why = "argument `%s` is larger than any memory";
    const char *const of[STEPS] = { "table", "inputs", NULL, "key_cache", "gate", "values" };
    steps s = make_steps();
    char words[64];

    s.request[0].arguments.take.rows = UINT64_MAX / 64;
    s.request[1].arguments.norm.columns = UINT64_MAX / 4;
    s.request[3].arguments.attend.capacity = UINT64_MAX / 64;
    s.request[4].arguments.gate.elements = UINT64_MAX / 4 + 1;
    s.request[5].arguments.add.columns = UINT64_MAX / 8;
    for (uint32_t k = 0; k < STEPS; k++)
        if (of[k] != NULL) {
            snprintf(words, sizeof words, why, of[k]);
            check_refused(r, &s.request[k], BERTH_EINVAL, words);
        }
    s.request[2].arguments.rotate.capacity = UINT64_MAX;
    s.request[2].arguments.rotate.position = UINT64_MAX - 1;
    check_refused(r, &s.request[2], BERTH_EINVAL,
                  "argument `capacity` is less than `position` + `count`");
}

static void
check_device(const rig *r)
{
    check_bits(r);
    check_nothing(r);
    check_refused_rows(r);
    check_refused_heads(r);
    check_refused_sizes(r);
}

static void
test_each(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    check_device(&r);
    rig_close(&r);
    T_REQUIRE(rig_open(&r, PLAIN));
    check_device(&r);
    rig_close(&r);
}

/* ------------------------------------------------------------------ simulated ones */

static void
shift_pointer(berthi_request *request, size_t slot, uint64_t bytes)
{
    uint8_t *at;

    memcpy(&at, (const char *)request + slot, sizeof at);
    at += bytes;
    memcpy((char *)request + slot, &at, sizeof at);
}

/* To the byte: each region has memory of its own, and what begins later has too little. */
static void
check_what_is_touched(const steps *s)
{
    rig r;

    fill_room();
    T_REQUIRE(rig_open(&r, PLAIN));
    for (uint32_t k = 0; k < STEPS; k++) {
        placed p = place_step(r.device, &s->request[k]);
        const uint64_t begin = rig_now(&r);

        CHECK_EQ(launch(&r, &p.request, NULL), BERTH_OK);
        rig_sync(r.device, NULL);
        CHECK_EQ(rig_now(&r) - begin, s->moved[k]);
        for (uint32_t i = 0; i < p.here.count; i++) {
            berthi_request bad = p.request;

            shift_pointer(&bad, p.here.items[i].slot, 4);
            CHECK_EQ(launch(&r, &bad, NULL), BERTH_EINTERNAL);
        }
        free_step(r.device, &p);
    }
    rig_close(&r);
}

static void
test_what_is_touched(void)
{
    steps s = make_steps();

    check_what_is_touched(&s);
    /* Without what can be left out. */
    s.request[2].arguments.rotate.query_norm = NULL;
    s.request[2].arguments.rotate.key_norm = NULL;
    s.moved[2] -= 2 * 16 * 2;
    s.request[5].arguments.add.rows = NULL;
    s.request[5].arguments.add.share = 0;
    s.moved[5] -= 5 * 4 + 3 * 4;
    check_what_is_touched(&s);
    s.request[5].arguments.add.weights = NULL;
    s.moved[5] -= 3 * 4;
    check_what_is_touched(&s);
}

/* What a step changes a part of has to be there: digests of it are not enough. */
static void
test_digests_are_no_sums(void)
{
    const uint64_t bytes = BERTHI_SIM_DIGEST_LEAST;
    const struct {
        uint32_t step;
        size_t slot;
    } parts[] = { { 2, offsetof(berthi_request, arguments.rotate.key_cache) },
                  { 2, offsetof(berthi_request, arguments.rotate.value_cache) },
                  { 4, offsetof(berthi_request, arguments.gate.gate) },
                  { 5, offsetof(berthi_request, arguments.add.sums) } };
    const steps s = make_steps();
    void *unkept;
    rig r;

    fill_room();
    T_REQUIRE(rig_open(&r, "sim:256MiB,backing=digest"));
    unkept = rig_alloc(r.device, bytes);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        placed p = place_step(r.device, &s.request[parts[k].step]);

        memcpy((char *)&p.request + parts[k].slot, &unkept, sizeof unkept);
        check_refused(&r, &p.request, BERTH_EUNSUPPORTED,
                      "sim:0: an operation reads memory of which digests are kept, not bytes");
        free_step(r.device, &p);
    }
    r.device->table->free(r.device, unkept, bytes);
    rig_close(&r);
}

/* What attention costs is what it sees. */
static void
test_cost_of_attention(void)
{
    steps s = make_steps();
    berth_attend *const a = &s.request[3].arguments.attend;
    /* Position, window, positions seen. */
    static const uint64_t cases[][3] =
        { { 0, 0, 3 }, { 7, 0, 10 }, { 7, 1, 3 }, { 7, 7, 9 }, { 7, 8, 10 }, { 7, 100, 10 } };
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        placed p;
        uint64_t begin;

        a->position = cases[i][0];
        a->window = cases[i][1];
        p = place_step(r.device, &s.request[3]);
        begin = rig_now(&r);
        CHECK_EQ(launch(&r, &p.request, NULL), BERTH_OK);
        rig_sync(r.device, NULL);
        CHECK_EQ(rig_now(&r) - begin, 2 * 3 * 4 * 16 * 2 + 2 * cases[i][2] * 2 * 16 * 2);
        free_step(r.device, &p);
    }
    rig_close(&r);
}

/* ----------------------------------------------------------------------------- GPUs */

static const fake_cuda_machine gpu = { .count = 1, .driver = 13000, .architecture = 90,
                                       .memory_bytes = UINT64_C(64) << 20, .is_late = true };

/* Kernels by the lanes of simt.h. */
static void
test_gpus(void)
{
    static const berthi_kernel_id kernels[STEPS] =
        { KERNEL_take, KERNEL_norm, KERNEL_rotate, KERNEL_attend_f16,
          KERNEL_gate, KERNEL_add,  KERNEL_choose, KERNEL_largest, KERNEL_norm };
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this processor");
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    check_device(&r);
    for (uint32_t k = 0; k < STEPS; k++)
        CHECK_EQ(fake_cuda_read().launched[kernels[k]], kernels[k] == KERNEL_norm ? 2 : 1);
    rig_close(&r);
    fake_cuda_end();
}

/* What would end a GPU for good is refused. */
static void
test_odd_addresses(void)
{
    const steps s = make_steps();
    rig r;

    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (uint32_t k = 0; k < STEPS; k++) {
        berthi_operands operands;

        CHECK(berthi_operands_can_list(&s.request[k], &operands));
        for (uint32_t i = 0; i < operands.count; i++) {
            berthi_request bad = s.request[k];
            berth_error error;

            shift_pointer(&bad, operands.items[i].slot, 1);
            berthi_error_clear(&error);
            CHECK_EQ(launch(&r, &bad, &error), BERTH_EUNSUPPORTED);
            CHECK_CONTAINS(error.message, " at an address that is no multiple of ");
        }
    }
    rig_close(&r);
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each);
    T_RUN(test_what_is_touched);
    T_RUN(test_digests_are_no_sums);
    T_RUN(test_cost_of_attention);
    T_RUN(test_gpus);
    T_RUN(test_odd_addresses);
    T_MAIN_END;
}
