/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_lost.c - GPUs that are lost, what they say then, and which of two is blamed. */
#include <stdlib.h>

#include "kernels/cuda_device.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/t.h"

/* ------------------------------------------------------------------------------ lost */

static const char died[] =
    "cuda:0: waiting for an event: an illegal memory access was encountered";

/* Every call says so, and none asks the runtime. */
static void
check_lost(const rig *r, void *memory, uint8_t *host, berthi_event *event)
{
    const berthi_device_table *const t = r->device->table;
    const berthi_copy c = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory, .from = host,
                            .bytes = 256 };
    const berthi_request request = { .operation = BERTHI_OPERATION_CALL };
    const uint64_t called = fake_cuda_called();
    berthi_device_properties p;
    berthi_stream *stream = (berthi_stream *)memory;
    berthi_event *other = event;
    void *more = memory;
    bool past = true;
    uint32_t crc = 1;
    berth_error e;

    berthi_error_clear(&e);
    CHECK_EQ(t->alloc(r->device, 1, &more, &e), BERTH_ENODEV);
    CHECK(more == NULL);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    CHECK_EQ(t->pin(r->device, host, 4096, NULL), BERTH_ENODEV);
    CHECK_EQ(t->stream_create(r->device, &stream, NULL), BERTH_ENODEV);
    CHECK(stream == NULL);
    CHECK_EQ(t->event_create(r->device, &other, NULL), BERTH_ENODEV);
    CHECK(other == NULL);
    CHECK_EQ(t->record(r->device, event, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->wait(r->device, NULL, event, NULL), BERTH_ENODEV);
    CHECK_EQ(t->query(r->device, event, &past, NULL), BERTH_ENODEV);
    CHECK(!past);
    CHECK_EQ(t->await(r->device, event, UINT64_MAX, NULL), BERTH_ENODEV);
    CHECK_EQ(t->copy(r->device, &c, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->clear(r->device, memory, 1, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->launch(r->device, &request, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->digest(r->device, memory, 1, &crc, &e), BERTH_ENODEV);
    CHECK_EQ(crc, 0);
    CHECK_STR(e.message, died);
    t->describe(r->device, &p);
    CHECK_STR(p.name, "cuda:0");
    CHECK_EQ(p.free_bytes, UINT64_MAX);
    CHECK_EQ(fake_cuda_called(), called);
}

/* By a kernel, which is told by who waits for it. */
static void
kill_device(const rig *r, void *memory)
{
    const berthi_request request = {
        .operation = BERTHI_OPERATION_ENCODE_NF4,
        .arguments.encode = { .values = memory, .dtype = BERTH_F32, .block_size = 64,
                              .count = 64, .codes = (uint8_t *)memory + 1024,
                              .absmax = (float *)(void *)((uint8_t *)memory + 2048) },
    };

    fake_cuda_fail_kernel(BERTHI_CUDA_ILLEGAL_ADDRESS);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
}

static void
test_lost_for_ever(void)
{
    berthi_device *other;
    berthi_event *event;
    berthi_event *of_other;
    berthi_stream *stream;
    uint8_t *memory[2];
    uint8_t *host;
    berth_error e;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory[0] = rig_alloc(r.device, 4096);
    memory[1] = rig_alloc(other, 4096);
    host = rig_pinned(&r, 4096, 1);
    event = rig_event(r.device);
    of_other = rig_event(other);
    stream = rig_stream(r.device);
    kill_device(&r, memory[0]);
    rig_to_device(r.device, memory[0], host, 100, stream);
    rig_record(r.device, event, NULL);
    CHECK_EQ(r.device->table->await(r.device, event, UINT64_MAX, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    for (int i = 0; i < 2; i++)
        check_lost(&r, memory[0], host, event);
    /* Its event is of no use to the other one, which goes on. */
    CHECK_EQ(other->table->wait(other, NULL, event, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    CHECK_EQ(other->table->await(other, event, UINT64_MAX, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    rig_to_device(other, memory[1], host, 100, NULL);
    rig_record(other, of_other, NULL);
    rig_await(other, of_other);
    CHECK_EQ(memory[1][99], 1);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->event_destroy(r.device, event);
    other->table->event_destroy(other, of_other);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory[0], 4096);
    other->table->free(other, memory[1], 4096);
    rig_close(&r);
    late_check_books();
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

/* Until nothing is under way on the first GPU, which berth is not told. */
static void
finish_first(void)
{
    while (fake_cuda_read().under_way > 0)
        (void)fake_cuda_calls()->stream_query(NULL);
    fake_cuda_leave_error(0);
}

/* The other device is the first to hear of it, and does not take it for its own end. */
static void
test_blamed_on_the_owner(void)
{
    berthi_device *other;
    berthi_event *event;
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory = rig_alloc(r.device, 4096);
    event = rig_event(r.device);
    kill_device(&r, memory);
    rig_record(r.device, event, NULL);
    finish_first();
    CHECK_EQ(other->table->wait(other, NULL, event, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    rig_sync(other, NULL);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    r.device->table->event_destroy(r.device, event);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    late_check_books();
    fake_cuda_end();
}

/* One that waits has ended, and has not heard of it: whose event it is goes on. */
static void
test_not_blamed_on_the_owner(void)
{
    berthi_device *other;
    berthi_event *event;
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory = rig_alloc(r.device, 4096);
    event = rig_event(other);
    rig_record(other, event, NULL);
    rig_await(other, event);
    kill_device(&r, memory);
    finish_first();
    CHECK_EQ(r.device->table->wait(r.device, NULL, event, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    rig_sync(other, NULL);
    other->table->event_destroy(other, event);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    late_check_books();
    fake_cuda_end();
}

/* What a thread hears of its own GPU when it is asked which that is says nothing of another one. */
static void
test_not_blamed_for_the_callers(void)
{
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:0"));
    memory = rig_alloc(r.device, 4096);
    fake_cuda_make_current(1);
    fake_cuda_fail(0, BERTHI_CUDA_ILLEGAL_ADDRESS, false);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE);
    CHECK_STR(e.message, "cuda:0: zeroing memory: an illegal memory access was encountered");
    fake_cuda_disarm();
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, NULL), BERTH_OK);
    fake_cuda_make_current(0);
    rig_sync(r.device, NULL);
    CHECK_EQ(memory[0], 0);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    late_check_books();
    fake_cuda_end();
}

/* So it is with copies from one to the other: the one is lost that has ended. */
static void
test_blamed_on_the_peer(void)
{
    for (uint32_t from = 0; from < 2; from++) {
        uint8_t *memory[2];
        berthi_device *source;
        berth_error e;
        rig r;

        fake_cuda_begin(&late_small_machine);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        source = rig_at(&r, from);
        for (uint32_t i = 0; i < 2; i++)
            memory[i] = rig_alloc(rig_at(&r, i), 4096);
        CHECK(source->table->reaches(source, rig_at(&r, 1 - from)));
        kill_device(&r, memory[0]);
        finish_first();
        CHECK_EQ(source->table->copy(source,
                                     &(berthi_copy){ .kind = BERTHI_COPY_TO_PEER,
                                                     .to = memory[1 - from],
                                                     .from = memory[from], .bytes = 256,
                                                     .peer = rig_at(&r, 1 - from) },
                                     NULL, &e),
                 BERTH_ENODEV);
        CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
        CHECK_STR(e.message, "cuda:0: a copy: an illegal memory access was encountered");
        rig_sync(rig_at(&r, 1), NULL);
        for (uint32_t i = 0; i < 2; i++)
            rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 4096);
        rig_close(&r);
        late_check_books();
        fake_cuda_end();
    }
}

/* Whatever ends a GPU, whichever call it is that hears of it. */
static void
test_ends(void)
{
    static const int codes[] = { BERTHI_CUDA_UNLOADING,     BERTHI_CUDA_ECC,
                                 BERTHI_CUDA_NVLINK,        BERTHI_CUDA_CONTAINED,
                                 BERTHI_CUDA_TIMEOUT,       BERTHI_CUDA_DESTROYED,
                                 BERTHI_CUDA_ASSERT,        BERTHI_CUDA_STACK,
                                 BERTHI_CUDA_INSTRUCTION,   BERTHI_CUDA_MISALIGNED,
                                 BERTHI_CUDA_ADDRESS_SPACE, BERTHI_CUDA_COUNTER,
                                 BERTHI_CUDA_LAUNCH,        BERTHI_CUDA_TENSOR_LEAK,
                                 BERTHI_CUDA_MPS_CLIENT,    BERTHI_CUDA_EXTERNAL_DEVICE };
    rig r;

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        berthi_event *event;
        berth_error e;

        fake_cuda_begin(&late_small_machine);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:1"));
        fake_cuda_fail(2, codes[i], false); /* behind get_device() and set_device() */
        for (int turn = 0; turn < 2; turn++) {
            CHECK_EQ(r.device->table->event_create(r.device, &event, &e), BERTH_ENODEV);
            CHECK(event == NULL);
            CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
            CHECK_STR(e.message, "cuda:1: making an event: an error of the fake runtime");
        }
        rig_close(&r);
        late_check_books();
        CHECK_EQ(fake_cuda_current(), 0);
        fake_cuda_end();
    }
}

/* A copy is refused, and what was asked for before it ends the GPU while that is waited for. */
static void
test_first_failure_is_told(void)
{
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .bytes = 8 };
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, 4096);
    kill_device(&r, memory);
    fake_cuda_fail_within(0, 1);
    CHECK_EQ(r.device->table->copy(r.device, &copy, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE);
    CHECK_STR(e.message, "cuda:0: a copy: an error of the fake runtime");
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, "cuda:0: a copy: an illegal memory access was encountered");
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    late_check_books();
    fake_cuda_end();
}

/* Failures that end nothing are told once; the next call goes on. */
static void
test_other_failures(void)
{
    static const struct {
        int code;
        berth_reason reason;
    } failures[] = { { 1, BERTH_REASON_DEVICE },
                     { BERTHI_CUDA_NO_MEMORY, BERTH_REASON_NO_MEMORY },
                     { BERTHI_CUDA_NO_IMAGE, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_FUNCTION, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_INVALID_PTX, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_COMPILER, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_OLD_PTX_COMPILER, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_COMPILING, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_UNSUPPORTED, BERTH_REASON_UNSUPPORTED },
                     { 999, BERTH_REASON_DEVICE } };
    berthi_event *event;
    rig r;

    fake_cuda_begin(&late_small_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        berth_error e;

        berthi_error_clear(&e);
        fake_cuda_fail_within(0, failures[i].code);
        CHECK_EQ(r.device->table->event_create(r.device, &event, &e),
                 berthi_reason_status((int32_t)failures[i].reason));
        CHECK(event == NULL);
        CHECK_EQ(e.reason, failures[i].reason);
        CHECK_CONTAINS(e.message, "cuda:0: making an event: ");
        rig_sync(r.device, NULL);
    }
    rig_close(&r);
    late_check_books();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lost_for_ever);
    T_RUN(test_blamed_on_the_owner);
    T_RUN(test_not_blamed_on_the_owner);
    T_RUN(test_not_blamed_for_the_callers);
    T_RUN(test_blamed_on_the_peer);
    T_RUN(test_ends);
    T_RUN(test_first_failure_is_told);
    T_RUN(test_other_failures);
    T_MAIN_END;
}
