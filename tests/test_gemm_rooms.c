/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gemm_rooms.c - who has the memory of products by cuBLASLt: graphs that capture them, and
 * streams that have the handle of another one.
 */
#include <string.h>

#include "kernels/gemm_lt.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define MEMORY_BYTES MIB
#define STREAMS (BERTHI_GEMM_ROOMS + 1)

static const fake_cuda_machine late = { .count = 2, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 256 * MIB, .is_late = true };

typedef struct stage {
    rig rig;
    berthi_device *device;
    uint8_t *memory;
    berthi_stream *streams[STREAMS];
} stage;

static bool
open_stage(stage *s)
{
    fake_gemm_begin();
    fake_cuda_begin(&late);
    if (!rig_open_cuda(&s->rig, fake_cuda_calls(), "cuda"))
        return false;
    s->device = s->rig.device;
    s->memory = rig_alloc(s->device, MEMORY_BYTES);
    memset(s->memory, 0, MEMORY_BYTES); /* the fake's memory is the host's */
    for (size_t i = 0; i < STREAMS; i++)
        s->streams[i] = rig_stream(s->device);
    return true;
}

static void
close_stage(stage *s)
{
    for (size_t i = 0; i < STREAMS; i++)
        s->device->table->stream_destroy(s->device, s->streams[i]);
    s->device->table->free(s->device, s->memory, MEMORY_BYTES);
    rig_close(&s->rig);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    fake_gemm_begin();
    fake_cuda_end();
}

static berth_status
multiply(const stage *s, berthi_stream *stream, berth_error *error)
{
    const berthi_gemm_task task = { .weight = s->memory, .inputs = s->memory + 4096,
                                    .outputs = s->memory + 8192, .dtype = BERTH_BF16,
                                    .rows = 8, .columns = 16, .count = 8, .stride = 8 };

    return fake_gemm_multiply(s->device, &task, stream, error);
}

/* Of several slabs, decoded beside. */
static berth_status
multiply_4bit(const stage *s, berthi_stream *stream, berth_error *error)
{
    const berthi_gemm_4bit task = {
        .codes = s->memory, .absmax = (float *)(void *)(s->memory + 65536),
        .values = berthi_nf4_values, .block_size = 64, .dtype = BERTH_BF16, .rows = 1030,
        .columns = 64, .count = 2, .inputs = s->memory + 131072, .outputs = s->memory + 262144
    };

    return fake_gemm_multiply_4bit(s->device, &task, stream, error);
}

/* The memory that it was done in. */
static const void *
workspace_of(const stage *s, berthi_stream *stream)
{
    CHECK_EQ(multiply(s, stream, NULL), BERTH_OK);
    return fake_gemm_read().workspace;
}

static const void *
captured_workspace_of(const stage *s, berthi_stream *stream)
{
    const void *workspace;

    fake_cuda_begin_capture(stream);
    workspace = workspace_of(s, stream);
    fake_cuda_end_capture(stream);
    return workspace;
}

typedef berth_status product(const stage *s, berthi_stream *stream, berth_error *error);

static void
check_refused(const stage *s, berthi_stream *stream, product *its)
{
    berth_error error;

    berthi_error_clear(&error);
    fake_cuda_begin_capture(stream);
    CHECK_EQ(its(s, stream, &error), BERTH_EUNSUPPORTED);
    fake_cuda_end_capture(stream);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_STR(error.message,
              "cuda:0: no memory is set apart for products that this graph captures");
}

static void
drain(const stage *s)
{
    for (size_t i = 0; i < STREAMS; i++)
        rig_sync(s->device, s->streams[i]);
}

/* ------------------------------------------------------------------------------- graphs */

/* A graph's memory is that of its stream for good: neither others nor the stream itself get it. */
static void
test_captured(void)
{
    const void *captured;
    stage s;

    T_REQUIRE(open_stage(&s));
    for (size_t i = 0; i < BERTHI_GEMM_ROOMS; i++)
        (void)workspace_of(&s, s.streams[i]);
    drain(&s);
    captured = captured_workspace_of(&s, s.streams[1]);
    /* The first stream's is the one that was used longest ago. */
    for (size_t i = BERTHI_GEMM_ROOMS - 1; i > 0; i--)
        CHECK(workspace_of(&s, s.streams[i]) != captured);
    CHECK(captured_workspace_of(&s, s.streams[1]) == captured);
    for (size_t i = 0; i < 3 * STREAMS; i++)
        CHECK(workspace_of(&s, s.streams[i % STREAMS]) != captured);
    CHECK(captured_workspace_of(&s, s.streams[1]) == captured);
    drain(&s);
    close_stage(&s);
}

/* It has been there, but others have its memory by now. */
static void
test_captured_too_late(void)
{
    stage s;

    T_REQUIRE(open_stage(&s));
    for (size_t i = 0; i < STREAMS; i++)
        (void)workspace_of(&s, s.streams[i]);
    check_refused(&s, s.streams[0], multiply);
    (void)workspace_of(&s, s.streams[0]);
    (void)captured_workspace_of(&s, s.streams[0]);
    drain(&s);
    close_stage(&s);
}

/* Nothing is opened or allocated for a graph. */
static void
test_captured_too_early(void)
{
    stage s;

    T_REQUIRE(open_stage(&s));
    check_refused(&s, s.streams[0], multiply);
    CHECK_EQ(fake_gemm_read().opened, 0);
    (void)workspace_of(&s, s.streams[1]);
    check_refused(&s, s.streams[0], multiply);
    close_stage(&s);
}

/* Also where the stream has some of it: products of weights of 4 bits need more. */
static void
test_captured_slabs(void)
{
    const void *whole;
    const void *slabs;
    stage s;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_stage(&s));
    whole = workspace_of(&s, s.streams[0]);
    check_refused(&s, s.streams[0], multiply_4bit);
    CHECK(captured_workspace_of(&s, s.streams[0]) == whole);
    check_refused(&s, s.streams[0], multiply_4bit);
    CHECK_EQ(multiply_4bit(&s, s.streams[0], NULL), BERTH_OK);
    slabs = fake_gemm_read().workspace;
    CHECK(slabs != whole);
    for (int i = 0; i < 2; i++) {
        fake_cuda_begin_capture(s.streams[0]);
        CHECK_EQ(multiply_4bit(&s, s.streams[0], NULL), BERTH_OK);
        CHECK(fake_gemm_read().workspace == slabs);
        fake_cuda_end_capture(s.streams[0]);
        CHECK_EQ(multiply_4bit(&s, s.streams[0], NULL), BERTH_OK);
        CHECK(fake_gemm_read().workspace != slabs);
    }
    drain(&s);
    close_stage(&s);
}

/* Graphs do not get all there is: eager products go on, in turns. */
static void
test_captured_by_many(void)
{
    const void *last;
    stage s;

    T_REQUIRE(open_stage(&s));
    for (size_t i = 0; i + 1 < BERTHI_GEMM_ROOMS; i++)
        CHECK(workspace_of(&s, s.streams[i]) == captured_workspace_of(&s, s.streams[i]));
    last = workspace_of(&s, s.streams[BERTHI_GEMM_ROOMS - 1]);
    check_refused(&s, s.streams[BERTHI_GEMM_ROOMS - 1], multiply);
    for (size_t i = 0; i < STREAMS; i++)
        CHECK(workspace_of(&s, s.streams[i]) == last);
    drain(&s);
    close_stage(&s);
}

/* A failed product, whose end nobody knows, is not behind anything that a graph could wait for. */
static void
test_captured_after_a_failure(void)
{
    stage s;

    T_REQUIRE(open_stage(&s));
    (void)workspace_of(&s, s.streams[0]);
    fake_cuda_fail_within(2, 1); /* two questions, then the event */
    CHECK_EQ(multiply(&s, s.streams[0], NULL), BERTH_ENODEV);
    CHECK_EQ(fake_cuda_failures(), 1);
    fake_cuda_disarm();
    check_refused(&s, s.streams[0], multiply);
    (void)workspace_of(&s, s.streams[0]);
    (void)captured_workspace_of(&s, s.streams[0]);
    drain(&s);
    close_stage(&s);
}

/* Kernels of few inputs do what those of many have no memory for: these need flags, too. */
static void
test_captured_by_kernels(void)
{
    const berthi_request wide = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .count = 20, .rows = 128, .columns = 256, .block_size = 64,
                                .dtype = BERTH_BF16 },
    };
    const berthi_device_table *t;
    uint64_t launched;
    berthi_request its = wide;
    stage s;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    T_REQUIRE(open_stage(&s));
    t = s.device->table;
    its.arguments.multiply.codes = s.memory;
    its.arguments.multiply.absmax = (float *)(void *)(s.memory + 65536);
    its.arguments.multiply.inputs = s.memory + 131072;
    its.arguments.multiply.outputs = s.memory + 262144;
    (void)workspace_of(&s, s.streams[0]);
    for (int turn = 0; turn < 2; turn++) {
        launched = fake_cuda_read().launched[KERNEL_wide32_bf16];
        fake_cuda_begin_capture(s.streams[0]);
        CHECK_EQ(t->launch(s.device, &its, s.streams[0], NULL), BERTH_OK);
        fake_cuda_end_capture(s.streams[0]);
        drain(&s);
        CHECK_EQ(fake_cuda_read().launched[KERNEL_wide32_bf16] - launched, turn);
        CHECK_EQ(t->launch(s.device, &its, s.streams[0], NULL), BERTH_OK);
        drain(&s);
    }
    close_stage(&s);
}

/* ------------------------------------------------------------------------------ handles */

static void
do_nothing(void *user)
{
    (void)user;
}

/* A stream is destroyed while it multiplies; the next one has its handle, not its place. */
static void
test_handle_of_another(void)
{
    const berthi_cuda_calls *const calls = fake_cuda_calls();
    void *streams[2];
    stage s;

    T_REQUIRE(open_stage(&s));
    fake_cuda_reuse_handles(true);
    CHECK_EQ(calls->stream_create(&streams[0]), BERTHI_CUDA_OK);
    for (int i = 0; i < 32; i++)
        CHECK_EQ(calls->call(do_nothing, NULL, streams[0]), BERTHI_CUDA_OK);
    (void)workspace_of(&s, streams[0]);
    CHECK_EQ(calls->stream_destroy(streams[0]), BERTHI_CUDA_OK);
    CHECK_EQ(calls->stream_create(&streams[1]), BERTHI_CUDA_OK);
    CHECK(streams[0] == streams[1]);
    (void)workspace_of(&s, streams[1]);
    rig_sync(s.device, streams[1]);
    CHECK_EQ(fake_gemm_read().products, 2); /* both are over */
    CHECK_EQ(calls->stream_destroy(streams[1]), BERTHI_CUDA_OK);
    fake_cuda_reuse_handles(false);
    close_stage(&s);
}

/* Its graphs may be launched after that: the next one's have other memory. */
static void
test_graphs_of_another(void)
{
    const berthi_cuda_calls *const calls = fake_cuda_calls();
    const void *workspaces[2];
    void *streams[2];
    stage s;

    T_REQUIRE(open_stage(&s));
    fake_cuda_reuse_handles(true);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(calls->stream_create(&streams[i]), BERTHI_CUDA_OK);
        (void)workspace_of(&s, streams[i]);
        workspaces[i] = captured_workspace_of(&s, streams[i]);
        (void)workspace_of(&s, streams[i]);
        CHECK(captured_workspace_of(&s, streams[i]) == workspaces[i]);
        rig_sync(s.device, streams[i]);
        CHECK_EQ(calls->stream_destroy(streams[i]), BERTHI_CUDA_OK);
    }
    CHECK(streams[0] == streams[1]);
    CHECK(workspaces[0] != workspaces[1]);
    fake_cuda_reuse_handles(false);
    close_stage(&s);
}

/* Nor have they, of one of berth's streams, what the next one has not multiplied in itself. */
static void
test_graphs_of_a_newcomer(void)
{
    berthi_stream *streams[2];
    stage s;

    T_REQUIRE(open_stage(&s));
    fake_cuda_reuse_handles(true);
    streams[0] = rig_stream(s.device);
    (void)workspace_of(&s, streams[0]);
    (void)captured_workspace_of(&s, streams[0]);
    (void)workspace_of(&s, streams[0]);
    s.device->table->stream_destroy(s.device, streams[0]);
    streams[1] = rig_stream(s.device);
    CHECK(streams[0] == streams[1]);
    check_refused(&s, streams[1], multiply);
    fake_cuda_reuse_handles(false);
    s.device->table->stream_destroy(s.device, streams[1]);
    close_stage(&s);
}

/* A handle that is another stream's in each thread says of no graph whose it is. */
static void
test_graphs_of_a_threads_own(void)
{
    const void *workspaces[2];
    stage s;

    T_REQUIRE(open_stage(&s));
    for (int i = 0; i < 2; i++) {
        void *const stream = fake_cuda_stream_of_thread();

        workspaces[i] = workspace_of(&s, stream);
        check_refused(&s, stream, multiply);
    }
    CHECK(workspaces[0] == workspaces[1]); /* in turn, the second behind the first */
    (void)workspace_of(&s, s.streams[0]);
    CHECK(captured_workspace_of(&s, s.streams[0]) != workspaces[0]);
    close_stage(&s);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_captured);
    T_RUN(test_captured_too_late);
    T_RUN(test_captured_too_early);
    T_RUN(test_captured_slabs);
    T_RUN(test_captured_by_many);
    T_RUN(test_captured_after_a_failure);
    T_RUN(test_captured_by_kernels);
    T_RUN(test_handle_of_another);
    T_RUN(test_graphs_of_another);
    T_RUN(test_graphs_of_a_newcomer);
    T_RUN(test_graphs_of_a_threads_own);
    T_MAIN_END;
}
