/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_release.c - a slot is filled again behind every stream that has released it. */
#include <string.h>

#include "loader/lease_state.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = MIB, .is_late = true };

typedef struct stage {
    rig rig;
    berthi_lease_line line;
    berthi_lease_slot slot;
} stage;

static bool
open_stage(stage *s)
{
    memset(s, 0, sizeof *s);
    fake_cuda_begin(&late);
    if (!rig_open_cuda(&s->rig, fake_cuda_calls(), "cuda"))
        return false;
    s->line.device = s->rig.device;
    s->line.stream = rig_stream(s->rig.device);
    s->line.spare = rig_event(s->rig.device);
    for (size_t i = 0; i < BERTHI_LEASE_STREAMS; i++)
        s->slot.released[i] = rig_event(s->rig.device);
    return true;
}

static void
close_stage(stage *s)
{
    berthi_device *const device = s->rig.device;

    for (size_t i = 0; i < BERTHI_LEASE_STREAMS; i++)
        device->table->event_destroy(device, s->slot.released[i]);
    device->table->event_destroy(device, s->line.spare);
    device->table->stream_destroy(device, s->line.stream);
    rig_close(&s->rig);
    fake_cuda_check_empty();
    fake_cuda_end();
}

static void
count(void *user)
{
    ++*(uint32_t *)user;
}

/* Uses the slot for a while, and is destroyed by then. */
static void *
use_slot(stage *s, uint32_t *done)
{
    const berthi_cuda_calls *const calls = fake_cuda_calls();
    void *stream;

    CHECK_EQ(calls->stream_create(&stream), BERTHI_CUDA_OK);
    for (int i = 0; i < 32; i++)
        CHECK_EQ(calls->call(count, done, stream), BERTHI_CUDA_OK);
    CHECK_EQ(berthi_lease_record_release(&s->line, &s->slot, stream, NULL), BERTH_OK);
    CHECK_EQ(calls->stream_destroy(stream), BERTHI_CUDA_OK);
    return stream;
}

/* As copies into the slot do. */
static void
wait_for_users(const stage *s)
{
    for (uint32_t i = 0; i < s->slot.released_count; i++)
        rig_wait(s->rig.device, s->line.stream, s->slot.released[i]);
    rig_sync(s->rig.device, s->line.stream);
}

/* The later stream has the handle of the one that is gone, and less to do. */
static void
test_handle_of_another(void)
{
    const berthi_cuda_calls *const calls = fake_cuda_calls();
    uint32_t done = 0;
    const void *first;
    void *stream;
    stage s;

    T_REQUIRE(open_stage(&s));
    fake_cuda_reuse_handles(true);
    first = use_slot(&s, &done);
    CHECK_EQ(calls->stream_create(&stream), BERTHI_CUDA_OK);
    CHECK(stream == first);
    CHECK_EQ(berthi_lease_record_release(&s.line, &s.slot, stream, NULL), BERTH_OK);
    CHECK_EQ(s.slot.released_count, 1);
    CHECK_LT(done, 32);
    wait_for_users(&s);
    CHECK_EQ(done, 32);
    CHECK_EQ(calls->stream_destroy(stream), BERTHI_CUDA_OK);
    close_stage(&s);
}

/* More streams than a slot has events for. */
static void
test_many_streams(void)
{
    uint32_t done = 0;
    stage s;

    T_REQUIRE(open_stage(&s));
    for (uint32_t i = 0; i < BERTHI_LEASE_STREAMS + 2; i++)
        (void)use_slot(&s, &done);
    CHECK_EQ(s.slot.released_count, BERTHI_LEASE_STREAMS);
    wait_for_users(&s);
    CHECK_EQ(done, 32 * (BERTHI_LEASE_STREAMS + 2));
    close_stage(&s);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_handle_of_another);
    T_RUN(test_many_streams);
    T_MAIN_END;
}
