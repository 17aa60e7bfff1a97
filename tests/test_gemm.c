/* SPDX-License-Identifier: Apache-2.0 */
/* test_gemm.c - products of many inputs by a stand-in for cuBLASLt: values, plans, rooms. */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine late = { .count = 2, .driver = 13000, .architecture = 86,
                                        .memory_bytes = 64 * MIB, .is_late = true };

static bool
open_late(rig *r)
{
    fake_gemm_begin();
    fake_cuda_begin(&late);
    return rig_open_cuda(r, fake_cuda_calls(), "cuda");
}

static void
close_late(rig *r)
{
    rig_close(r);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_current(), 0);
    fake_gemm_begin();
    fake_cuda_end();
}

/* --------------------------------------------------------------------------- whole values */

/* A product on the fake's memory, which is the host's. */
typedef struct sample {
    berthi_device *device;
    berthi_gemm_task task;
    int type;
    int out_type;
    uint64_t bytes[4]; /* of weight, inputs, bias, outputs */
    void *memory[4];
} sample;

static int
type_of(int32_t dtype)
{
    return dtype == BERTH_BF16  ? BERTHI_GEMM_BF16
           : dtype == BERTH_F16 ? BERTHI_GEMM_F16
           : dtype == BERTH_I8  ? BERTHI_GEMM_I8
                                : BERTHI_GEMM_F32;
}

static void
fill(void *values, int type, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        fake_gemm_set(values, type, i,
                      type == BERTHI_GEMM_I8 ? (double)(int8_t)(seed >> 24)
                                             : (double)((int32_t)seed >> 16) / 65536.0);
    }
}

static sample
make_sample(berthi_device *device, int32_t dtype, uint64_t rows, uint64_t columns,
            uint64_t count)
{
    const bool is_i8 = dtype == BERTH_I8;
    const uint64_t unit = berth_dtype_bits(dtype) / 8;
    sample s = { .device = device, .type = type_of(dtype),
                 .out_type = is_i8 ? BERTHI_GEMM_I32 : type_of(dtype),
                 .bytes = { rows * columns * unit, count * columns * unit, rows * unit,
                            count * rows * (is_i8 ? 4 : unit) } };

    for (size_t i = 0; i < 4; i++)
        s.memory[i] = rig_alloc(device, s.bytes[i]);
    fill(s.memory[0], s.type, rows * columns, 1);
    fill(s.memory[1], s.type, count * columns, 2);
    fill(s.memory[2], s.type, rows, 3);
    s.task = (berthi_gemm_task){ .weight = s.memory[0], .inputs = s.memory[1],
                                 .bias = is_i8 ? NULL : s.memory[2], .outputs = s.memory[3],
                                 .dtype = dtype, .rows = rows, .columns = columns,
                                 .count = count, .stride = rows };
    return s;
}

static void
free_sample(const sample *s)
{
    for (size_t i = 0; i < 4; i++)
        s->device->table->free(s->device, s->memory[i], s->bytes[i]);
}

/* Every output is the exact sum, rounded once. */
static void
check_sample(const sample *s)
{
    const berthi_gemm_task *const t = &s->task;
    uint8_t expected[8];
    uint64_t same = 0;

    for (uint64_t i = 0; i < t->count; i++)
        for (uint64_t row = 0; row < t->rows; row++) {
            double sum = t->bias != NULL ? fake_gemm_value(t->bias, s->type, row) : 0;

            for (uint64_t k = 0; k < t->columns; k++)
                sum += fake_gemm_value(t->weight, s->type, row * t->columns + k)
                       * fake_gemm_value(t->inputs, s->type, i * t->columns + k);
            fake_gemm_set(expected, s->out_type, 0, sum);
            same += fake_gemm_value(t->outputs, s->out_type, i * t->stride + row)
                    == fake_gemm_value(expected, s->out_type, 0);
        }
    CHECK_EQ(same, t->rows * t->count);
}

static void
test_products(void)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32, BERTH_I8 };
    static const uint64_t counts[] = { 1, 3, 65 };
    rig r;

    T_REQUIRE(open_late(&r));
    for (size_t d = 0; d < 4; d++)
        for (size_t i = 0; i < 3; i++) {
            sample s = make_sample(rig_at(&r, 1), dtypes[d], 20, 24, counts[i]);

            CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
            rig_sync(s.device, NULL);
            check_sample(&s);
            free_sample(&s);
        }
    CHECK_EQ(fake_gemm_read().products, 12);
    CHECK_EQ(fake_gemm_read().opened, 1); /* by the one that multiplied */
    close_late(&r);
}

/* Nothing is asked of the library for nothing. */
static void
test_nothing(void)
{
    berthi_gemm_task task = { .dtype = BERTH_BF16, .columns = 8, .count = 4 };
    berthi_gemm_4bit packed = { .dtype = BERTH_BF16, .columns = 8, .rows = 4 };
    rig r;

    T_REQUIRE(open_late(&r));
    CHECK_EQ(fake_gemm_multiply(r.device, &task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &packed, NULL, NULL), BERTH_OK);
    task.rows = 4;
    task.count = 0;
    packed.rows = 0;
    packed.count = 4;
    CHECK_EQ(fake_gemm_multiply(r.device, &task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &packed, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().opened, 0);
    CHECK_EQ(fake_cuda_read().allocations, 0);
    close_late(&r);
}

static void
check_refused(const sample *s, const berthi_gemm_task *task)
{
    berth_error error;

    berthi_error_clear(&error);
    CHECK_EQ(fake_gemm_multiply(s->device, task, NULL, &error), BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "cuda:0: libcublasLt multiplies no ");
}

static void
test_refused(void)
{
    berthi_gemm_task task;
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_I8, 8, 8, 4);
#define REFUSED(change) (task = s.task, task.change, check_refused(&s, &task))
    REFUSED(rows = 6);
    REFUSED(columns = 6);
    REFUSED(stride = 10);
    REFUSED(stride = 4);
    REFUSED(bias = s.memory[2]);
    REFUSED(weight = (uint8_t *)s.memory[0] + 2);
    REFUSED(inputs = (uint8_t *)s.memory[1] + 1);
    REFUSED(outputs = (uint8_t *)s.memory[3] + 2);
    REFUSED(dtype = BERTH_U8);
    task = s.task;
    task.dtype = BERTH_BF16;
    task.bias = (uint8_t *)s.memory[2] + 1;
    check_refused(&s, &task);
    task.bias = NULL;
    task.columns = 0;
    check_refused(&s, &task);
    task.columns = UINT64_C(1) << 31;
    check_refused(&s, &task);
    task.columns = 8;
    task.rows = UINT64_C(1) << 31;
    task.stride = task.rows;
    check_refused(&s, &task);
    task.rows = 8;
    check_refused(&s, &task);
    task.stride = 8;
    task.count = UINT64_C(1) << 31;
    check_refused(&s, &task);
#undef REFUSED
    CHECK_EQ(fake_gemm_read().searches, 0);
    free_sample(&s);
    close_late(&r);
}

/* ------------------------------------------------------------------------------- weights */

typedef struct packed {
    sample whole; /* what it is when it is decoded */
    berthi_gemm_4bit task;
    berthi_double_absmax absmax2;
    uint8_t *memory;
    uint64_t bytes;
} packed;

/* NF4 of normal weights, plain or twice quantized, as the processor does it. */
static packed
make_packed(berthi_device *device, int32_t dtype, uint64_t rows, uint64_t columns,
            uint32_t block, bool is_double)
{
    const berthi_operations *const cpu = &berthi_scalar_operations;
    const uint64_t count = rows * columns;
    const uint64_t blocks = (count + block - 1) / block;
    packed p = { .whole = make_sample(device, dtype, rows, columns, 5),
                 .bytes = count + blocks * 16 + 4096 };
    float *absmax;
    float *absmax2;
    float *scratch = malloc(BERTHI_DOUBLE_SCRATCH * sizeof *scratch);
    uint8_t *codes;

    if (scratch == NULL)
        abort();
    p.memory = rig_alloc(device, p.bytes);
    codes = p.memory;
    absmax = (float *)(void *)(p.memory + (count + 255) / 256 * 256);
    cpu->encode_nf4(&(berthi_encode_arguments){ .values = p.whole.memory[0], .dtype = dtype,
                                                .block_size = block, .count = count,
                                                .codes = codes, .absmax = absmax });
    if (is_double) {
        const berthi_double_arguments twice = {
            .absmax = absmax, .count = blocks, .codes = (uint8_t *)(absmax + blocks),
            .absmax2 = absmax + 2 * blocks, .offset = 0.25f, .scratch = scratch,
            .map = berthi_signed_map
        };

        absmax2 = absmax + 3 * blocks;
        *absmax2 = twice.offset;
        cpu->encode_double(&twice);
        cpu->decode_double(&twice, absmax);
        p.absmax2 = (berthi_double_absmax){ .codes = twice.codes, .absmax2 = twice.absmax2,
                                            .map = berthi_signed_map, .offset = absmax2 };
    }
    cpu->decode_nf4(&(berthi_decode_arguments){ .codes = codes, .absmax = absmax,
                                                .count = count, .block_size = block,
                                                .dtype = dtype,
                                                .values = p.whole.memory[0] });
    p.task = (berthi_gemm_4bit){
        .codes = codes, .absmax = is_double ? NULL : absmax, .values = berthi_nf4_values,
        .block_size = block, .count = 5, .rows = rows, .columns = columns,
        .inputs = p.whole.memory[1], .bias = p.whole.memory[2],
        .outputs = p.whole.memory[3], .dtype = dtype
    };
    free(scratch);
    return p;
}

static void
free_packed(const packed *p)
{
    p->whole.device->table->free(p->whole.device, p->memory, p->bytes);
    free_sample(&p->whole);
}

/*
 * Slabs of 64 KiB: one, several with a short one at the end, rows that share blocks. What is
 * done beside the stream of a product is done when that one is.
 */
static void
test_packed_weights(void)
{
    static const struct {
        int32_t dtype;
        uint64_t rows;
        uint64_t columns;
        uint32_t block;
        bool is_double;
        uint64_t slabs;
    } cases[] = {
        { BERTH_BF16, 16, 128, 64, false, 1 },  { BERTH_BF16, 200, 256, 64, false, 2 },
        { BERTH_F16, 70, 512, 128, true, 2 },   { BERTH_F32, 70, 320, 64, false, 2 },
        { BERTH_BF16, 260, 160, 64, false, 3 }, { BERTH_BF16, 230, 192, 32, true, 2 },
        { BERTH_F16, 7, 33, 32, false, 1 },
    };
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_late(&r));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t before = fake_gemm_read().products;
        packed p = make_packed(r.device, cases[i].dtype, cases[i].rows, cases[i].columns,
                               cases[i].block, cases[i].is_double);

        if (cases[i].is_double)
            p.task.double_absmax = &p.absmax2;
        CHECK_EQ(fake_gemm_multiply_4bit(r.device, &p.task, NULL, NULL), BERTH_OK);
        rig_sync(r.device, NULL);
        CHECK_EQ(fake_cuda_read().under_way, 0);
        check_sample(&p.whole);
        CHECK_EQ(fake_gemm_read().products - before, cases[i].slabs);
        free_packed(&p);
    }
    close_late(&r);
}

/* Of a GPU of 132 processors and slabs of 112 MiB: few rows that have a tile for most. */
static void
test_rows_of_slabs(void)
{
    static const struct {
        uint64_t rows;
        uint64_t columns;
        uint64_t count;
        uint64_t slab;
    } cases[] = {
        { 8192, 28672, 8192, 512 },  { 8192, 28672, 2048, 2048 }, { 8192, 28672, 512, 2048 },
        { 28672, 8192, 8192, 1536 }, { 28672, 8192, 2048, 2048 }, { 28672, 8192, 512, 7168 },
        { 8192, 8192, 8192, 1536 },  { 8192, 8192, 512, 4096 },   { 1024, 8192, 512, 1024 },
        { 9000, 14336, 512, 3072 },  { 40, 28672, 512, 40 },
    };
    berthi_gemm_4bit t = { .block_size = 64, .dtype = BERTH_BF16 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.rows = cases[i].rows;
        t.columns = cases[i].columns;
        t.count = cases[i].count;
        CHECK_EQ(berthi_gemm_slab_rows(&t, 112 * MIB, 132), cases[i].slab);
    }
    /* Of so few bytes no whole tile, then no whole block of 2 rows, then no row. */
    t.columns = 160;
    CHECK_EQ(berthi_gemm_slab_rows(&t, 40000, 132), 40);
    CHECK_EQ(berthi_gemm_slab_rows(&t, 63 * 320, 0), 12);
    t.rows = 100;
    CHECK_EQ(berthi_gemm_slab_rows(&t, 63 * 320, 132), 50);
    CHECK_EQ(berthi_gemm_slab_rows(&t, 320, 132), 0);
    CHECK_EQ(berthi_gemm_slab_rows(&t, 319, 132), 0);
    t.rows = 1;
    CHECK_EQ(berthi_gemm_slab_rows(&t, 320, 132), 1);
}

/* A GPU that has no room for whole slabs has smaller ones; of the least there may be none. */
static void
test_little_room(void)
{
    static const struct {
        uint64_t left; /* for slabs */
        uint64_t slabs;
        berth_status status;
    } cases[] = {
        { 2 * BERTHI_GEMM_SLAB_BYTES, 2, BERTH_OK },
        { 2 * BERTHI_GEMM_SLAB_BYTES - 1, 4, BERTH_OK },
        { 2 * BERTHI_GEMM_LEAST_SLAB_BYTES, 7, BERTH_OK },
        { 2 * BERTHI_GEMM_LEAST_SLAB_BYTES - 1, 0, BERTH_ENOMEM },
    };

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t before = BERTHI_GEMM_SMALL_WORKSPACE_BYTES + cases[i].left;
        berth_error error;
        uint64_t least;
        uint64_t most;
        void *taken;
        packed p;
        rig r;

        T_REQUIRE(open_late(&r));
        p = make_packed(r.device, BERTH_BF16, 200, 256, 64, false);
        CHECK_EQ(fake_cuda_calls()->memory_info(&least, &most), BERTHI_CUDA_OK);
        taken = rig_alloc(r.device, least - before);
        berthi_error_clear(&error);
        CHECK_EQ(fake_gemm_multiply_4bit(r.device, &p.task, NULL, &error), cases[i].status);
        CHECK_EQ(error.status, cases[i].status);
        rig_sync(r.device, NULL);
        CHECK_EQ(fake_gemm_read().products, cases[i].slabs);
        if (cases[i].status == BERTH_OK)
            check_sample(&p.whole);
        free_packed(&p);
        r.device->table->free(r.device, taken, least - before);
        close_late(&r);
    }
}

static void
test_packed_refused(void)
{
    berthi_gemm_4bit task = { .dtype = BERTH_BF16, .block_size = 4096, .rows = 4096,
                                 .columns = 33, .count = 1 };
    berth_error error;
    rig r;

    T_REQUIRE(open_late(&r));
    /* 4096 rows are the least that begin with a block, and are too many. */
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &task, NULL, &error), BERTH_EUNSUPPORTED);
    CHECK_STR(error.message, "cuda:0: weights of 33 columns cannot be decoded in slabs");
    task.columns = 0;
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &task, NULL, NULL), BERTH_EUNSUPPORTED);
    task.columns = 64;
    task.block_size = 0;
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &task, NULL, NULL), BERTH_EUNSUPPORTED);
    task.block_size = 64;
    task.dtype = BERTH_I8;
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &task, NULL, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(fake_gemm_read().opened, 0);
    close_late(&r);
}

static void
test_crossover(void)
{
    static const struct {
        berthi_gemm_weight weight;
        int32_t dtype;
        uint32_t capability;
        uint32_t least;
    } cases[] = {
        { BERTHI_GEMM_OF_4BIT, BERTH_BF16, 90, 193 },
        { BERTHI_GEMM_OF_4BIT, BERTH_F16, 80, 193 },
        { BERTHI_GEMM_OF_4BIT, BERTH_F32, 120, 33 },
        { BERTHI_GEMM_OF_4BIT, BERTH_BF16, 75, UINT32_MAX },
        { BERTHI_GEMM_OF_4BIT, BERTH_F16, 75, 33 },
        { BERTHI_GEMM_OF_4BIT, BERTH_F16, 70, UINT32_MAX },
        { BERTHI_GEMM_OF_4BIT, BERTH_U8, 90, UINT32_MAX },
        { BERTHI_GEMM_OF_4BIT, BERTH_I8, 90, UINT32_MAX },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_BF16, 90, 2 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_F16, 80, 2 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_BF16, 75, UINT32_MAX },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_F16, 75, 5 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_F32, 80, 5 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_I8, 90, 2 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_I8, 75, 9 },
        { BERTHI_GEMM_OF_NUMBERS, BERTH_I8, 70, UINT32_MAX },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ(berthi_gemm_least_inputs(cases[i].weight, cases[i].dtype,
                                          cases[i].capability),
                 cases[i].least);
    /* Below it one launch of berth's serves. */
    CHECK_GT(berthi_gemm_least_inputs(BERTHI_GEMM_OF_4BIT, BERTH_F32, 90),
             BERTHI_MULTIPLY_INPUTS);
}

/* ----------------------------------------------------------------------------- the library */

typedef struct lines {
    char text[256];
    uint32_t count;
} lines;

static void
keep_line(void *user, int32_t level, const char *line)
{
    lines *const l = user;

    CHECK_EQ(level, BERTH_LOG_WARNING);
    strcpy(l->text, line);
    l->count++;
}

static void
open_logged(rig *r, lines *l)
{
    berth_context_options options;

    fake_gemm_begin();
    fake_cuda_begin(&late);
    berth_context_options_init(&options);
    options.log = keep_line;
    options.log_user = l;
    *l = (lines){ .count = 0 };
    *r = (rig){ .device = NULL };
    CHECK_EQ(berth_context_create(&options, &r->context, NULL), BERTH_OK);
    CHECK_EQ(berthi_devices_open_cuda(r->context, fake_cuda_calls(), "cuda", &r->devices,
                                      NULL),
             BERTH_OK);
    r->device = rig_at(r, 0);
}

/* Said once, and not looked for again. */
static void
test_no_library(void)
{
    static const char why[] = "cuda:0: libcublasLt.so.13 is not on this machine";
    berth_error error;
    sample s;
    lines l;
    rig r;

    open_logged(&r, &l);
    fake_gemm_hide(true);
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    for (int i = 0; i < 2; i++) {
        berthi_error_clear(&error);
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_EUNSUPPORTED);
        CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
        CHECK_STR(error.message, why);
    }
    CHECK_EQ(l.count, 1);
    CHECK_STR(l.text, "cuda:0: libcublasLt.so.13 is not on this machine: products of many "
                      "inputs take longer");
    CHECK_EQ(fake_gemm_read().opened, 1);
    free_sample(&s);
    close_late(&r);
}

/* For good, but for a lack of memory, which may pass. */
static void
test_does_not_begin(void)
{
    berth_error error;
    sample s;
    lines l;
    rig r;

    open_logged(&r, &l);
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    fake_gemm_fail(0, BERTHI_GEMM_NO_MEMORY, false);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_ENOMEM);
    CHECK_STR(error.message, "cuda:0: libcublasLt: a product: no memory");
    CHECK_EQ(l.count, 0);
    fake_gemm_fail(0, 1, false);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_EUNSUPPORTED);
        CHECK_STR(error.message,
                  "cuda:0: libcublasLt does not begin: a status of the fake library");
    }
    CHECK_EQ(fake_gemm_failures(), 1);
    CHECK_EQ(l.count, 1);
    free_sample(&s);
    close_late(&r);
}

/* What the real one says of our descriptors, where it is: a device is needed from there on. */
static void
test_real_library(void)
{
    const int32_t turned = BERTHI_GEMM_TURNED;
    const uint32_t epilogue = BERTHI_GEMM_ADD_BIAS;
    const uint32_t alignment = 16;
    const uint64_t number = 1 << 20;
    const void *const bias = &number;
    char why[BERTHI_GEMM_WHY_CAPACITY];
    berthi_gemm_calls c;
    void *thing;

    if (!berthi_gemm_open(13, &c, why)) {
        CHECK_CONTAINS(why, "libcublasLt.so.13 ");
        T_SKIP("no libcublasLt on this machine");
    }
    CHECK_STR(why, "");
    CHECK(berthi_gemm_open(11, &c, why)); /* another one serves */
    CHECK_STR(why, "");
    CHECK_NE(c.status_words(BERTHI_GEMM_UNSUPPORTED)[0], '\0');
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(c.operation_create(&thing, i == 0 ? BERTHI_GEMM_SUM_F32 : BERTHI_GEMM_SUM_I32,
                                    i == 0 ? BERTHI_GEMM_F32 : BERTHI_GEMM_I32),
                 BERTHI_GEMM_OK);
        CHECK_EQ(c.operation_set(thing, BERTHI_GEMM_TURN_A, &turned, sizeof turned), 0);
        CHECK_EQ(c.operation_set(thing, BERTHI_GEMM_TURN_A, &turned, 8), BERTHI_GEMM_INVALID);
        CHECK_EQ(c.operation_set(thing, BERTHI_GEMM_EPILOGUE, &epilogue, sizeof epilogue), 0);
        CHECK_EQ(c.operation_set(thing, BERTHI_GEMM_BIAS_POINTER, &bias, sizeof bias), 0);
        CHECK_EQ(c.operation_destroy(thing), 0);
    }
    CHECK_EQ(c.layout_create(&thing, BERTHI_GEMM_BF16, 64, 32, 64), 0);
    CHECK_EQ(c.layout_set(thing, BERTHI_GEMM_COLUMNS, &number, sizeof number), 0);
    CHECK_EQ(c.layout_destroy(thing), 0);
    CHECK_EQ(c.preference_create(&thing), 0);
    CHECK_EQ(c.preference_set(thing, BERTHI_GEMM_WORKSPACE, &number, sizeof number), 0);
    for (int i = BERTHI_GEMM_ALIGNMENT_A; i <= BERTHI_GEMM_ALIGNMENT_D; i++)
        CHECK_EQ(c.preference_set(thing, i, &alignment, sizeof alignment), 0);
    CHECK_EQ(c.preference_destroy(thing), 0);
}

/* ---------------------------------------------------------------------------------- plans */

static void
test_plans_are_kept(void)
{
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_BF16, 8, 16, 128);
    for (uint64_t count = 128; count > 64; count -= 9) { /* one for all of them */
        s.task.count = count;
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(fake_gemm_read().searches, 1);
    CHECK_EQ(fake_gemm_read().checks, 7);
    for (int i = 0; i < 2; i++) { /* one for each */
        s.task.count = 64;
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
        s.task.count = 63;
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(fake_gemm_read().searches, 3);
    CHECK_EQ(fake_gemm_read().checks, 7);
    s.task.bias = NULL;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 4);
    s.task.count = 60;
    s.task.inputs = (uint8_t *)s.memory[1] + 32; /* less aligned */
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    s.task.inputs = (uint8_t *)s.memory[1] + 96;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 5);
    rig_sync(s.device, NULL);
    check_sample(&s);
    free_sample(&s);
    close_late(&r);
}

/* What does not serve the new number of inputs is looked for again; all outputs are right. */
static void
test_checks_fail(void)
{
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_F16, 8, 16, 100);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    fake_gemm_refuse_checks(true);
    s.task.count = 70;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 2);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 2);
    rig_sync(s.device, NULL);
    check_sample(&s);
    free_sample(&s);
    close_late(&r);
}

/* As many as there is room for; beyond that the one that was used longest ago goes. */
static void
test_plans_are_bounded(void)
{
    uint64_t descriptors;
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_F32, 8, 8, 1 + BERTHI_GEMM_PLANS);
    for (s.task.count = 1; s.task.count <= BERTHI_GEMM_PLANS; s.task.count++)
        CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, BERTHI_GEMM_PLANS);
    descriptors = fake_gemm_read().descriptors;
    CHECK_EQ(descriptors, 4 * BERTHI_GEMM_PLANS);
    s.task.count = 1; /* used again: the second is now the one */
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    s.task.count = 1 + BERTHI_GEMM_PLANS;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().descriptors, descriptors);
    CHECK_EQ(fake_gemm_read().searches, 1 + BERTHI_GEMM_PLANS);
    s.task.count = 1;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 1 + BERTHI_GEMM_PLANS);
    s.task.count = 2;
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_read().searches, 2 + BERTHI_GEMM_PLANS);
    rig_sync(s.device, NULL);
    check_sample(&s);
    free_sample(&s);
    close_late(&r);
}

static void
test_nothing_found(void)
{
    berth_error error;
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    fake_gemm_find_nothing(true);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_EUNSUPPORTED);
    CHECK_STR(error.message,
              "cuda:0: libcublasLt: a product: a status of the fake library");
    CHECK_EQ(fake_gemm_read().descriptors, 0);
    fake_gemm_find_nothing(false);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_OK);
    rig_sync(s.device, NULL);
    check_sample(&s);
    free_sample(&s);
    close_late(&r);
}

/* ---------------------------------------------------------------------------------- rooms */

/* More streams than rooms: whoever takes another's waits, and nobody's slab is written over. */
static void
test_rooms(void)
{
    enum { STREAMS = BERTHI_GEMM_ROOMS + 2 };
    berthi_stream *streams[STREAMS];
    packed p[STREAMS];
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_late(&r));
    for (size_t i = 0; i < STREAMS; i++) {
        streams[i] = i == 0 ? NULL : rig_stream(r.device);
        p[i] = make_packed(r.device, BERTH_BF16, 150 + i, 256, 64, false);
    }
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < STREAMS; i++)
            CHECK_EQ(fake_gemm_multiply_4bit(r.device, &p[i].task, streams[i], NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().events, BERTHI_GEMM_ROOMS * (1 + 2 * BERTHI_GEMM_SLABS));
    CHECK_EQ(fake_cuda_read().streams, STREAMS - 1 + BERTHI_GEMM_ROOMS);
    for (size_t i = 0; i < STREAMS; i++)
        rig_sync(r.device, streams[i]);
    for (size_t i = 0; i < STREAMS; i++) {
        check_sample(&p[i].whole);
        free_packed(&p[i]);
        r.device->table->stream_destroy(r.device, streams[i]);
    }
    close_late(&r);
}

/* A product that fails half way writes over nobody's slab: what it has asked for comes first. */
static void
test_half_a_product(void)
{
    uint64_t nth = 0;
    bool has_failed = true;
    berthi_stream *stream;
    packed p;
    packed half;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_late(&r));
    stream = rig_stream(r.device);
    p = make_packed(r.device, BERTH_BF16, 500, 256, 64, false); /* four slabs */
    half = make_packed(r.device, BERTH_BF16, 520, 252, 64, false); /* others */
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &p.task, stream, NULL), BERTH_OK);
    CHECK_EQ(fake_gemm_multiply_4bit(r.device, &half.task, stream, NULL), BERTH_OK);
    for (; has_failed; nth++) {
        fake_cuda_fail(nth, 1, false);
        (void)fake_gemm_multiply_4bit(r.device, &half.task, stream, NULL);
        has_failed = fake_cuda_failures() > 0;
        fake_cuda_disarm();
        rig_sync(r.device, stream);
        CHECK_EQ(fake_cuda_read().under_way, 0);
        memset(p.whole.memory[3], 0x55, p.whole.bytes[3]);
        CHECK_EQ(fake_gemm_multiply_4bit(r.device, &p.task, stream, NULL), BERTH_OK);
        rig_sync(r.device, stream);
        check_sample(&p.whole);
    }
    CHECK_GT(nth, 15);
    free_packed(&half);
    free_packed(&p);
    r.device->table->stream_destroy(r.device, stream);
    close_late(&r);
}

/* There is none: nothing is kept of the attempt, and it is made again. */
static void
test_no_room(void)
{
    const uint64_t left = 3 * MIB;
    void *most;
    berth_error error;
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    most = rig_alloc(r.device, 64 * MIB - left);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_ENOMEM);
    CHECK_EQ(error.reason, BERTH_REASON_NO_MEMORY);
    CHECK_STR(error.message, "cuda:0: a product: out of memory");
    r.device->table->free(r.device, most, 64 * MIB - left);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_OK);
    rig_sync(s.device, NULL);
    check_sample(&s);
    free_sample(&s);
    close_late(&r);
}

/* What the library calls a failed execution may be the end of the GPU, and may be none. */
static void
test_lost(void)
{
    berth_error error;
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    fake_gemm_fail(1, BERTHI_GEMM_EXECUTION, false); /* behind the bias */
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_ENODEV);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE);
    CHECK_STR(error.message,
              "cuda:0: libcublasLt: a product: a status of the fake library");
    fake_gemm_disarm();
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, NULL), BERTH_OK);
    fake_gemm_fail(1, BERTHI_GEMM_EXECUTION, false);
    fake_cuda_fail_within(0, BERTHI_CUDA_LAUNCH); /* the question */
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, NULL, &error), BERTH_ENODEV);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(error.message, "cuda:0: a product: an error of the fake runtime");
    fake_cuda_disarm();
    free_sample(&s);
    close_late(&r);
}

/* What hangs is left alone for good, and nothing waits for it. */
static void
test_hung(void)
{
    sample s;
    rig r;

    T_REQUIRE(open_late(&r));
    s = make_sample(r.device, BERTH_BF16, 8, 8, 4);
    fake_cuda_hang(true);
    CHECK_EQ(fake_gemm_multiply(s.device, &s.task, rig_stream(r.device), NULL), BERTH_OK);
    berthi_devices_stop(r.devices);
    rig_close(&r);
    CHECK_EQ(fake_cuda_read().allocations, 5);
    CHECK_EQ(fake_cuda_read().events, 0);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    CHECK_EQ(fake_gemm_read().handles, 1);
    CHECK_EQ(fake_gemm_read().descriptors, 0);
    CHECK_EQ(fake_gemm_read().misuses, 0);
    fake_gemm_begin();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_products);
    T_RUN(test_nothing);
    T_RUN(test_refused);
    T_RUN(test_packed_weights);
    T_RUN(test_rows_of_slabs);
    T_RUN(test_little_room);
    T_RUN(test_packed_refused);
    T_RUN(test_crossover);
    T_RUN(test_no_library);
    T_RUN(test_does_not_begin);
    T_RUN(test_real_library);
    T_RUN(test_plans_are_kept);
    T_RUN(test_checks_fail);
    T_RUN(test_plans_are_bounded);
    T_RUN(test_nothing_found);
    T_RUN(test_rooms);
    T_RUN(test_half_a_product);
    T_RUN(test_no_room);
    T_RUN(test_lost);
    T_RUN(test_hung);
    T_MAIN_END;
}
