/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cuda_operations.c - what kernels of a GPU do, and which requests none does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ---------------------------------------------------------------------------- copies */

static void
test_digests(void)
{
    const uint64_t bytes = 2 * MIB + 12345;
    uint8_t *const from = malloc(bytes);
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .from = from, .bytes = bytes };
    berthi_stream *stream;
    uint32_t crc = 1;
    uint8_t *memory;
    rig r;

    T_REQUIRE(from != NULL);
    T_REQUIRE(late_open(&r));
    for (uint64_t i = 0; i < bytes; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 13);
    stream = rig_stream(rig_at(&r, 1));
    memory = rig_alloc(rig_at(&r, 1), bytes);
    copy.to = memory;
    CHECK_EQ(rig_at(&r, 1)->table->copy(rig_at(&r, 1), &copy, stream, NULL), BERTH_OK);
    memset(from, 0, 100);
    /* Also what is under way in any stream. */
    CHECK_EQ(rig_at(&r, 1)->table->clear(rig_at(&r, 1), memory, 100, stream, NULL), BERTH_OK);
    CHECK_EQ(rig_at(&r, 1)->table->digest(rig_at(&r, 1), memory, bytes, &crc, NULL),
             BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, from, bytes));
    CHECK_EQ(rig_at(&r, 1)->table->digest(rig_at(&r, 1), memory, 0, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, 0);
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), stream);
    rig_at(&r, 1)->table->free(rig_at(&r, 1), memory, bytes);
    late_close(&r);
    free(from);
}

/* ---------------------------------------------------------------- streams and events */

static void
add_letter(void *user)
{
    char *const text = user;

    text[strlen(text) + 1] = '\0';
    text[strlen(text)] = (char)('a' + strlen(text));
}

static void
test_calls(void)
{
    static char text[8];
    berthi_stream *stream;
    uint64_t before;
    rig r;

    T_REQUIRE(late_open(&r));
    CHECK(r.device->table->has_operation(r.device, BERTHI_OPERATION_CALL));
    stream = rig_stream(r.device);
    text[0] = '\0';
    rig_call(r.device, add_letter, text, 0, stream);
    rig_call(r.device, add_letter, text, 0, stream);
    CHECK_STR(text, "");
    r.device->table->stream_destroy(r.device, stream);
    CHECK_STR(text, "ab");
    before = berthi_sys_now_ns();
    CHECK_GE(rig_now(&r), before); /* its clock is the host's */
    late_close(&r);
}

static int
count_two(int *out)
{
    *out = 2;
    return BERTHI_CUDA_OK;
}

/* Graphs capture such launches where both the runtime and the driver are of CUDA 12.3 or later. */
static void
test_overlapping(void)
{
    static const struct {
        int driver;
        int32_t runtime;
        bool does;
    } cases[] = { { 12020, 12080, false }, { 12030, 12080, true }, { 13000, 12020, false } };

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t word = 7;
        fake_cuda_machine machine = late_machine;
        berthi_cuda_calls calls = *fake_cuda_calls();
        uint8_t *memory;
        rig r;

        machine.driver = cases[i].driver;
        calls.runtime_version = cases[i].runtime;
        calls.device_count = count_two;
        fake_cuda_begin(&machine);
        T_REQUIRE(rig_open_cuda(&r, &calls, "cuda:0"));
        memory = rig_alloc(r.device, 256);
        CHECK_EQ(r.device->table->write(r.device, memory, &word, sizeof word, NULL, NULL),
                 BERTH_OK);
        rig_sync(r.device, NULL);
        CHECK_EQ(memory[0], 7);
        CHECK_EQ(fake_cuda_read().overlapping, cases[i].does);
        r.device->table->free(r.device, memory, 256);
        late_close(&r);
    }
}

/* ------------------------------------------------------------------------ operations */

#define ROWS 37u
#define COLUMNS 129u
#define COUNT (ROWS * COLUMNS)
#define BLOCKS ((COUNT + 63) / 64)

/* Where everything lies: in the GPU's memory, and in the host's. */
typedef struct place {
    _Alignas(256) float values[COUNT];
    _Alignas(256) uint8_t codes[COUNT];
    _Alignas(256) float maxima[BLOCKS > ROWS ? BLOCKS : ROWS];
    _Alignas(256) uint8_t second[BLOCKS];
    _Alignas(256) float absmax2[BLOCKS / 256 + 1];
    _Alignas(256) float offset;
    _Alignas(256) float scratch[8192];
} place;

static berthi_request
request_of(place *p, int32_t operation)
{
    berthi_request what = { .operation = operation };

    if (operation == BERTHI_OPERATION_ENCODE_ROWS)
        what.arguments.rows = (berthi_rows_arguments){
            .values = p->values, .dtype = BERTH_F32, .rows = ROWS, .columns = COLUMNS,
            .codes = (int8_t *)p->codes, .row_maximum = p->maxima };
    else if (operation == BERTHI_OPERATION_ENCODE_DOUBLE)
        what.arguments.offset = (berthi_offset_arguments){
            .absmax = p->maxima, .count = BLOCKS, .codes = p->second,
            .absmax2 = p->absmax2, .offset = &p->offset, .scratch = p->scratch };
    else
        what.arguments.encode = (berthi_encode_arguments){
            .values = p->values, .dtype = BERTH_F32, .block_size = 64, .count = COUNT,
            .codes = p->codes, .absmax = p->maxima };
    return what;
}

/* The same bytes as the reference loops on the host. */
static void
test_operations(void)
{
    static const int32_t firsts[] = { BERTHI_OPERATION_ENCODE_NF4,
                                      BERTHI_OPERATION_ENCODE_FP4,
                                      BERTHI_OPERATION_ENCODE_ROWS };
    static place host;
    uint32_t state = 1;
    place *memory;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    CHECK_LE(berthi_offset_scratch(BLOCKS), sizeof host.scratch / sizeof *host.scratch);
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        T_REQUIRE(late_open(&r));
        memory = rig_alloc(r.device, sizeof *memory);
        memset(&host, 0, sizeof host);
        for (uint32_t i = 0; i < COUNT; i++) {
            state = state * 1664525u + 1013904223u;
            host.values[i] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 4.0f;
        }
        *memory = host;
        for (int step = 0; step < (f < 2 ? 2 : 1); step++) {
            const int32_t operation = step == 0 ? firsts[f] : BERTHI_OPERATION_ENCODE_DOUBLE;
            const berthi_request there = request_of(memory, operation);
            const berthi_request here = request_of(&host, operation);

            CHECK(r.device->table->has_operation(r.device, operation));
            CHECK_EQ(r.device->table->launch(r.device, &there, NULL, NULL), BERTH_OK);
            berthi_operation_run(&berthi_scalar_operations, &here);
        }
        CHECK_EQ(memory->codes[0], 0); /* nothing was waited for */
        rig_sync(r.device, NULL);
        CHECK_GT(fake_cuda_read().launches, 0);
        CHECK_EQ(fake_cuda_read().overlapping, fake_cuda_read().launches);
        CHECK_MEM(memory->codes, host.codes, sizeof host.codes);
        CHECK_MEM(memory->maxima, host.maxima, sizeof host.maxima);
        CHECK_MEM(memory->second, host.second, sizeof host.second);
        CHECK_MEM(memory->absmax2, host.absmax2, sizeof host.absmax2);
        CHECK_MEM(&memory->offset, &host.offset, sizeof host.offset);
        CHECK_NE(host.codes[0], host.codes[1]);
        r.device->table->free(r.device, memory, sizeof *memory);
        late_close(&r);
    }
}

static void
check_refused(const rig *r, const berthi_request *what, const char *why)
{
    berth_error error;

    rig_refuse(r, what, &error);
    CHECK_STR(error.message, why);
}

/* Moves a pointer of the request, and has it refused. */
#define CHECK_ODD(operation_, member, by, why)                                        \
    do {                                                                              \
        what = request_of(memory, operation_);                                        \
        what.arguments.member = (void *)((uintptr_t)what.arguments.member + (by));    \
        check_refused(&r, &what, why);                                                \
    } while (0)

static void
test_odd_addresses(void)
{
    berthi_request what;
    place *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = rig_alloc(r.device, sizeof *memory);
    CHECK_ODD(BERTHI_OPERATION_ENCODE_NF4, encode.values, 2,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_FP4, encode.absmax, 1,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_ROWS, rows.values, 1,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_ROWS, rows.row_maximum, 2,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.absmax, 2,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.absmax2, 2,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.scratch, 1,
              "scratch at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.offset, 3,
              "offset at an address that is no multiple of 4");
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.dtype = BERTH_F16;
    what.arguments.encode.values = (uint8_t *)memory->values + 1;
    check_refused(&r, &what, "values at an address that is no multiple of 2");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, sizeof *memory);
    late_close(&r);
}

static void
test_what_no_kernel_does(void)
{
    char why[64];
    berthi_request what;
    place *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = rig_alloc(r.device, sizeof *memory);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.block_size = 48;
    check_refused(&r, &what, "no kernel has blocks of 48: they are 32 to 4096, a power of two");
    what = request_of(memory, BERTHI_OPERATION_ENCODE_FP4);
    what.arguments.encode.dtype = BERTH_U8;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.count = UINT64_MAX;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_ROWS);
    what.arguments.rows.rows = UINT64_MAX / 8;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_DOUBLE);
    what.arguments.offset.count = 0;
    check_refused(&r, &what, "double quantization of no absmax: they have no mean");
    what.operation = BERTHI_OPERATION_COUNT;
    snprintf(why, sizeof why, "cuda:0: has no operation %d", (int)BERTHI_OPERATION_COUNT);
    check_refused(&r, &what, why);
    what.operation = -1;
    check_refused(&r, &what, "cuda:0: has no operation -1");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    /* Of nothing there is nothing to do, and that is said by success alone. */
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.count = 0;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    CHECK_EQ(fake_cuda_read().launches, 0);
    r.device->table->free(r.device, memory, sizeof *memory);
    late_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_digests);
    T_RUN(test_calls);
    T_RUN(test_overlapping);
    T_RUN(test_operations);
    T_RUN(test_odd_addresses);
    T_RUN(test_what_no_kernel_does);
    T_MAIN_END;
}
