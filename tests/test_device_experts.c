/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs times the weights of several experts, asked for of each kind of device: for every
 * expert the bits of its own product on that device, and nothing for inputs that are
 * nobody's or more than was said. Every one refuses the same.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/product_arguments.h"
#include "tests/fake_cuda.h"
#include "tests/random.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

enum { EXPERTS = 4, INPUTS = 60 };

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };
/* Few, none, more than a product has at once, and some that are nobody's. */
static const uint32_t ranges[EXPERTS + 1] = { 2, 5, 5, 47, 58 };
static uint64_t state = 0x8EBC6AF09C88C6E3u;

typedef struct shape {
    uint64_t rows;
    uint64_t columns;
    uint32_t block_size;
    int32_t dtype;
    uint32_t most_inputs;
    bool is_fp4;
    bool is_double;
} shape;

static const shape shapes[] = {
    { 40, 128, 64, BERTH_BF16, 42, false, false }, { 33, 256, 128, BERTH_F16, 42, true, true },
    { 20, 48, 32, BERTH_F32, 42, false, true },    { 17, 64, 64, BERTH_BF16, 9, false, true },
    { 24, 45, 64, BERTH_F16, 42, true, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* Where everything lies in memory of any kind. */
typedef struct layout {
    shape s;
    uint64_t width;
    uint64_t blocks;
    uint64_t codes[EXPERTS];
    uint64_t absmax[EXPERTS];
    uint64_t absmax_codes[EXPERTS];
    uint64_t bias[EXPERTS];
    uint64_t experts;
    uint64_t ranges;
    uint64_t inputs;
    uint64_t outputs;
    uint64_t outputs_bytes;
    uint64_t scratch;
    uint64_t scratch_bytes;
    uint64_t bytes;
} layout;

static uint64_t
place(layout *l, uint64_t bytes)
{
    const uint64_t at = l->bytes;

    l->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static berthi_request
request_at(const layout *l, uint8_t *memory)
{
    const shape *const s = &l->s;

    return (berthi_request){
        .operation = s->is_fp4 ? BERTHI_OPERATION_EXPERTS_FP4 : BERTHI_OPERATION_EXPERTS_NF4,
        .arguments.experts = {
            .experts = (const berthi_product_expert *)(void *)(memory + l->experts),
            .ranges = (const uint32_t *)(void *)(memory + l->ranges),
            .expert_count = EXPERTS,
            .most_inputs = s->most_inputs,
            .codes_alignment = 256,
            .block_size = s->block_size,
            .is_double = s->is_double,
            .map = berthi_signed_map,
            .rows = s->rows,
            .columns = s->columns,
            .count = INPUTS,
            .inputs = memory + l->inputs,
            .outputs = memory + l->outputs,
            .dtype = s->dtype,
            .scratch = (float *)(void *)(memory + l->scratch),
        },
    };
}

static layout
make_layout(const shape *s)
{
    const uint64_t weights = s->rows * s->columns;
    layout l = { .s = *s, .width = s->dtype == BERTH_F32 ? 4 : 2,
                 .blocks = (weights + s->block_size - 1) / s->block_size };
    berthi_request request;

    for (uint32_t e = 0; e < EXPERTS; e++) {
        l.codes[e] = place(&l, (weights + 1) / 2);
        l.absmax[e] = place(&l, l.blocks * 4);
        l.absmax_codes[e] = place(&l, l.blocks);
        l.bias[e] = place(&l, s->rows * l.width);
    }
    l.experts = place(&l, EXPERTS * sizeof(berthi_product_expert));
    l.ranges = place(&l, sizeof ranges);
    l.inputs = place(&l, INPUTS * s->columns * l.width);
    l.outputs_bytes = INPUTS * s->rows * l.width;
    l.outputs = place(&l, l.outputs_bytes);
    request = request_at(&l, NULL);
    l.scratch_bytes = berthi_experts_scratch(&request.arguments.experts) * sizeof(float);
    l.scratch = place(&l, l.scratch_bytes);
    return l;
}

/* The host's copy; pointers in it are those of `there`. To be freed. */
static uint8_t *
draw(const layout *l, uint8_t *there)
{
    const shape *const s = &l->s;
    uint8_t *const memory = calloc(1, l->bytes);
    berthi_product_expert *const experts =
        memory != NULL ? (berthi_product_expert *)(void *)(memory + l->experts) : NULL;

    if (memory == NULL)
        abort();
    for (uint32_t e = 0; e < EXPERTS; e++) {
        for (uint64_t i = 0; i < (s->rows * s->columns + 1) / 2; i++)
            memory[l->codes[e] + i] = (uint8_t)(random_share(&state) * 256.0f);
        for (uint64_t i = 0; i < l->blocks; i++) {
            ((float *)(void *)(memory + l->absmax[e]))[i] =
                0.02f + 0.05f * random_share(&state);
            memory[l->absmax_codes[e] + i] = (uint8_t)(random_share(&state) * 256.0f);
        }
        for (uint64_t i = 0; i < s->rows; i++)
            berthi_core_store(memory + l->bias[e], s->dtype, i,
                              random_share(&state) - 0.5f);
        experts[e] = (berthi_product_expert){
            .codes = there + l->codes[e],
            .absmax = (const float *)(void *)(there + l->absmax[e]),
            .absmax_codes = there + l->absmax_codes[e],
            .bias = e % 2 == 0 ? there + l->bias[e] : NULL,
            .offset = 0.04f + 0.01f * (float)e
        };
    }
    memcpy(memory + l->ranges, ranges, sizeof ranges);
    for (uint64_t i = 0; i < INPUTS * s->columns; i++)
        berthi_core_store(memory + l->inputs, s->dtype, i, random_signed(&state));
    memset(memory + l->outputs, 0x5A, l->outputs_bytes);
    return memory;
}

/* --------------------------------------------------------------------------- devices */

/* Inputs `first` to `first + count - 1` of one expert, by its own product. */
static void
multiply_one(const rig *r, const layout *l, const berthi_product_expert *its, uint8_t *memory,
             uint64_t first, uint32_t count)
{
    const shape *const s = &l->s;
    const berthi_request request = {
        .operation = s->is_fp4 ? BERTHI_OPERATION_MULTIPLY_FP4 : BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = {
            .codes = its->codes,
            .absmax = its->absmax,
            .absmax_codes = s->is_double ? its->absmax_codes : NULL,
            .map = berthi_signed_map,
            .offset = its->offset,
            .block_size = s->block_size,
            .count = count,
            .rows = s->rows,
            .columns = s->columns,
            .inputs = memory + l->inputs + first * s->columns * l->width,
            .bias = its->bias,
            .outputs = memory + l->outputs + first * s->rows * l->width,
            .dtype = s->dtype,
            .scratch = (float *)(void *)(memory + l->scratch),
        },
    };

    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
}

/* The outputs by one product after the other, in eights of what an expert has at most. */
static void
multiply_each(const rig *r, const layout *l, const uint8_t *host, uint8_t *memory)
{
    const berthi_product_expert *const experts =
        (const berthi_product_expert *)(const void *)(host + l->experts);
    const uint32_t most = (l->s.most_inputs + 7) / 8 * 8;

    for (uint32_t e = 0; e < EXPERTS; e++)
        for (uint32_t i = ranges[e]; i < ranges[e + 1] && i < ranges[e] + most; i++)
            multiply_one(r, l, &experts[e], memory, i, 1);
}

static void
carry(const rig *r, void *to, const void *from, uint64_t bytes, int32_t kind)
{
    const berthi_copy copy = { .kind = kind, .to = to, .from = from, .bytes = bytes };

    CHECK_EQ(r->device->table->copy(r->device, &copy, NULL, NULL), BERTH_OK);
    rig_sync(r->device, NULL);
}

static void
check_on(rig *r, const shape *s, const char *words)
{
    const layout l = make_layout(s);
    uint8_t *const memory = rig_alloc(r->device, l.bytes);
    uint8_t *const host = draw(&l, memory);
    uint8_t *const outputs = malloc(2 * l.bytes);
    const berthi_request request = request_at(&l, memory);

    if (outputs == NULL)
        abort();
    CHECK(r->device->table->has_operation(r->device, request.operation));
    for (int turn = 0; turn < 2; turn++) {
        carry(r, memory, host, l.bytes, BERTHI_COPY_TO_DEVICE);
        if (turn == 0)
            multiply_each(r, &l, host, memory);
        else
            CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
        carry(r, outputs + (uint64_t)turn * l.bytes, memory, l.bytes, BERTHI_COPY_TO_HOST);
    }
    /* Nobody's, and behind an expert that has none. */
    CHECK_MEM(outputs + l.bytes + l.outputs, host + l.outputs, 2 * s->rows * l.width);
    if (!CHECK_MEM(outputs + l.bytes + l.outputs, outputs + l.outputs, l.outputs_bytes))
        T_NOTE("%d rows on %s", (int)s->rows, words);
    CHECK_NE(memcmp(outputs + l.outputs, host + l.outputs, l.outputs_bytes), 0);
    CHECK_MEM(outputs + l.bytes, host, l.outputs);
    free(outputs);
    free(host);
    r->device->table->free(r->device, memory, l.bytes);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", "sim:64MiB,h2d=1GB/s,memory=2GB/s" };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < SHAPES; i++) {
            rig r;

            T_REQUIRE(rig_open(&r, words[k]));
            check_on(&r, &shapes[i], words[k]);
            rig_close(&r);
        }
}

static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < SHAPES; i++) {
        rig r;

        fake_cuda_begin(&late);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        check_on(&r, &shapes[i], "cuda");
        rig_close(&r);
        fake_cuda_check_empty();
        fake_cuda_end();
    }
}

/* -------------------------------------------------------------------------- refusals */

static void
check_refusals(const rig *r, const void *user)
{
    const layout l = make_layout(&shapes[0]);
    uint8_t *const memory = rig_alloc(r->device, l.bytes);
    const berthi_request good = request_at(&l, memory);
    berthi_request bad = good;

    (void)user;
    bad.arguments.experts.dtype = BERTH_U8;
    rig_check_refused(r, &bad, "no product has inputs of dtype ");
    bad = good;
    bad.arguments.experts.block_size = 48;
    rig_check_refused(r, &bad, "no product has blocks of 48");
    bad = good;
    bad.arguments.experts.codes_alignment = 24;
    rig_check_refused(r, &bad, "codes of experts at multiples of 24: it has to be a power of two");
    bad.arguments.experts.codes_alignment = 0;
    rig_check_refused(r, &bad, "codes of experts at multiples of 0");
    bad = good;
    bad.arguments.experts.columns = UINT64_C(1) << 31;
    rig_check_refused(r, &bad, "no product has a weight of 40 x 2147483648");
    r->device->table->free(r->device, memory, l.bytes);
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
    const layout l = make_layout(&shapes[0]);
    berthi_request odd;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, l.bytes);
    odd = request_at(&l, memory);
    odd.arguments.experts.experts = (const void *)(memory + l.experts + 4);
    rig_check_refused(&r, &odd, "experts at an address that is no multiple of 8");
    odd = request_at(&l, memory);
    odd.arguments.experts.ranges = (const void *)(memory + l.ranges + 2);
    rig_check_refused(&r, &odd, "ranges at an address that is no multiple of 4");
    odd = request_at(&l, memory);
    odd.arguments.experts.inputs = memory + l.inputs + 1;
    rig_check_refused(&r, &odd, "inputs at an address that is no multiple of 2");
    odd = request_at(&l, memory);
    odd.arguments.experts.outputs = memory + l.outputs + 1;
    rig_check_refused(&r, &odd, "outputs at an address that is no multiple of 2");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, l.bytes);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* Weights are read wherever they lie: not on a device that keeps digests of memory. */
static void
test_digests_are_no_weights(void)
{
    const layout l = make_layout(&shapes[0]);
    berthi_request request;
    uint8_t *memory;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,backing=digest"));
    memory = rig_alloc(r.device, l.bytes);
    request = request_at(&l, memory);
    rig_check_refused(&r, &request, "reads weights wherever they lie");
    r.device->table->free(r.device, memory, l.bytes);
    rig_close(&r);
}

static void
test_bytes_of_a_weight(void)
{
    const layout plain = make_layout(&shapes[0]);
    const layout twice = make_layout(&shapes[1]);
    const berthi_request of_plain = request_at(&plain, NULL);
    const berthi_request of_twice = request_at(&twice, NULL);

    CHECK_EQ(berthi_experts_weight_bytes(&of_plain.arguments.experts), 40 * 128 / 2 + 80 * 4);
    CHECK_EQ(berthi_experts_weight_bytes(&of_twice.arguments.experts),
             33 * 256 / 2 + 66 + 1 * 4);
}

/* Arguments lie in memory that is exactly as large; weights count by how many there may be. */
static void
test_simulated_to_the_byte(void)
{
    enum { PARTS = 5 };
    const layout l = make_layout(&shapes[0]);
    const uint64_t sizes[PARTS] = { EXPERTS * sizeof(berthi_product_expert), sizeof ranges,
                                    INPUTS * 128 * 2, INPUTS * 40 * 2, l.scratch_bytes };
    const uint64_t weights = EXPERTS * UINT64_C(40) * 128 / 2 + EXPERTS * 80 * 4;
    uint8_t *parts[PARTS];
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s"));
    for (int i = 0; i < PARTS; i++) {
        parts[i] = rig_alloc(r.device, sizes[i]);
        memset(parts[i], 0, sizes[i]); /* no expert has an input */
    }
    for (int odd = -1; odd < PARTS; odd++) {
        const uint64_t before = rig_now(&r);
        berthi_request request = request_at(&l, NULL);
        berthi_experts_arguments *const a = &request.arguments.experts;
        uint64_t bytes = weights;
        uint8_t *at[PARTS];

        for (int i = 0; i < PARTS; i++) {
            at[i] = parts[i] + (i == odd ? 8 : 0);
            bytes += sizes[i];
        }
        a->experts = (const void *)at[0];
        a->ranges = (const void *)at[1];
        a->inputs = at[2];
        a->outputs = at[3];
        a->scratch = (void *)at[4];
        CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL),
                 odd < 0 ? BERTH_OK : BERTH_EINTERNAL);
        rig_sync(r.device, NULL);
        CHECK_EQ(rig_now(&r) - before, odd < 0 ? (bytes + 1) / 2 : 0);
    }
    for (int i = 0; i < PARTS; i++)
        r.device->table->free(r.device, parts[i], sizes[i]);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_refused_by_each);
    T_RUN(test_odd_addresses);
    T_RUN(test_digests_are_no_weights);
    T_RUN(test_bytes_of_a_weight);
    T_RUN(test_simulated_to_the_byte);
    T_MAIN_END;
}
