/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_move_carry.c - what moves carry bytes with: transfers that lie together, lanes
 * with few copies under way, and who may use a model meanwhile.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/move.h"
#include "tests/fake_cuda.h"
#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)

/* -------------------------------------------------------------------------- transfers */

static berthi_spot
spot(uint8_t *memory, uint32_t device, bool is_pinned)
{
    return (berthi_spot){ .memory = memory, .device = device, .is_pinned = is_pinned };
}

/* How many transfers two of 8 and 4 bytes are. */
static uint64_t
count_of(berth_context *context, berthi_spot from, berthi_spot to, berthi_spot next_from,
         berthi_spot next_to)
{
    berthi_transfers transfers;
    uint64_t count;

    CHECK_EQ(berthi_transfers_init(&transfers, context, 2, NULL), BERTH_OK);
    CHECK_EQ(transfers.count, 0);
    berthi_transfers_add(&transfers, &from, &to, 8);
    CHECK_EQ(transfers.count, 1);
    berthi_transfers_add(&transfers, &next_from, &next_to, 4);
    count = transfers.count;
    CHECK_EQ(transfers.at[0].bytes, count == 1 ? 12 : 8);
    CHECK(transfers.at[0].from.memory == from.memory);
    CHECK(transfers.at[0].to.memory == to.memory);
    if (count == 2) {
        CHECK_EQ(transfers.at[1].bytes, 4);
        CHECK(transfers.at[1].to.memory == next_to.memory);
    }
    berthi_transfers_fini(&transfers);
    berthi_transfers_fini(&transfers); /* twice is once */
    return count;
}

static void
test_what_lies_together_is_one_transfer(void)
{
    static uint8_t a[32];
    static uint8_t b[32];
    const berthi_spot from = spot(a, BERTHI_NO_DEVICE, true);
    const berthi_spot to = spot(b, 0, false);
    berth_context *context;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(count_of(context, from, to, spot(a + 8, BERTHI_NO_DEVICE, true),
                      spot(b + 8, 0, false)),
             1);
    CHECK_EQ(count_of(context, from, to, spot(a + 9, BERTHI_NO_DEVICE, true),
                      spot(b + 8, 0, false)),
             2);
    CHECK_EQ(count_of(context, from, to, spot(a + 8, BERTHI_NO_DEVICE, true),
                      spot(b + 9, 0, false)),
             2);
    CHECK_EQ(count_of(context, from, to, spot(a + 8, BERTHI_NO_DEVICE, false),
                      spot(b + 8, 0, false)),
             2);
    CHECK_EQ(count_of(context, from, to, spot(a + 8, 0, true), spot(b + 8, 0, false)), 2);
    CHECK_EQ(count_of(context, from, to, spot(a + 8, BERTHI_NO_DEVICE, true),
                      spot(b + 8, 1, false)),
             2);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------------ lanes */

static void
wait_for_flag(void *user)
{
    const _Atomic bool *const is_open = user;

    for (uint32_t i = 0; i < 60000 && !atomic_load(is_open); i++)
        berthi_sys_sleep(MS);
}

/* A lane that stands still takes so many copies and no more. */
static void
test_few_copies_are_under_way(void)
{
    static _Alignas(4096) uint8_t host[8192];
    berth_plan_options options = loaded_options("0=16MiB,cpu=16MiB");
    const berthi_spot from = spot(host, BERTHI_NO_DEVICE, true);
    _Atomic bool is_open = false;
    berthi_request request = { .operation = BERTHI_OPERATION_CALL };
    berthi_carrier carrier;
    berthi_device *device;
    berthi_lane *lane;
    berthi_spot to;
    void *memory;
    moved m;

    moved_begin(&m, loaded_llama(1, "BF16", 1), &options, "sim:16MiB,clock=real");
    CHECK_EQ(berthi_carrier_init(&carrier, m.l.model, NULL, &m.error), BERTH_OK);
    carrier.is_undoing = true; /* of no job */
    T_REQUIRE(carrier.lane_count == 1);
    lane = &carrier.lanes[0];
    device = lane->device;
    CHECK_EQ(device->table->alloc(device, sizeof host, &memory, &m.error), BERTH_OK);
    /* What is not pinned would be waited for at once. */
    CHECK_EQ(device->table->pin(device, host, sizeof host, &m.error), BERTH_OK);
    to = spot(memory, 0, false);
    request.arguments.call.call = wait_for_flag;
    request.arguments.call.user = (void *)(uintptr_t)&is_open;
    CHECK_EQ(device->table->launch(device, &request, lane->stream, &m.error), BERTH_OK);
    m.l.model->wait_ns = 20 * MS;
    for (uint32_t i = 0; i < 2; i++) { /* how fast it is is not known yet */
        CHECK_EQ(berthi_carrier_ask(&carrier, &from, &to, sizeof host, &m.error),
                 BERTH_OK);
        CHECK_EQ(lane->asked, i + 1);
    }
    CHECK_EQ(berthi_carrier_ask(&carrier, &from, &to, sizeof host, &m.error), BERTH_EIO);
    CHECK_EQ(m.error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(m.error.message, "cuda:0 has not finished its copies for 20 milliseconds");
    CHECK_EQ(lane->asked, 2);
    CHECK(lane->is_unsettled);
    atomic_store(&is_open, true);
    m.l.model->wait_ns = 20000 * MS;
    /* The end of the stream tells what no event does; the lane goes on with another. */
    CHECK_EQ(berthi_carrier_settle(&carrier, BERTH_OK, &m.error), BERTH_OK);
    CHECK(!lane->is_unsettled && lane->stream == NULL);
    CHECK_EQ(lane->done, lane->asked);
    for (uint32_t i = 0; i < 3 * BERTHI_CARRY_DEPTH; i++) {
        CHECK_EQ(berthi_carrier_ask(&carrier, &from, &to, sizeof host, &m.error),
                 BERTH_OK);
        CHECK_LE(lane->asked - lane->done, BERTHI_CARRY_DEPTH);
    }
    for (uint32_t i = 0; i < 1000 && lane->depth < BERTHI_CARRY_DEPTH; i++)
        CHECK_EQ(berthi_carrier_ask(&carrier, &from, &to, sizeof host, &m.error),
                 BERTH_OK);
    CHECK_EQ(lane->depth, BERTHI_CARRY_DEPTH); /* it is fast */
    CHECK_EQ(berthi_carrier_settle(&carrier, BERTH_OK, &m.error), BERTH_OK);
    CHECK_EQ(lane->done, lane->asked);
    device->table->unpin(device, host, sizeof host);
    device->table->free(device, memory, sizeof host);
    berthi_carrier_fini(&carrier);
    moved_end(&m);
}

/* ------------------------------------------------------------------------------- gate */

/* A call about a layer that does not end: whoever wants the model waits, not for ever. */
static void
test_calls_are_waited_for(void)
{
    berth_plan_options options = loaded_options("cpu=16MiB");
    uint64_t begin_ns;
    moved m;

    moved_begin(&m, loaded_llama(1, "BF16", 1), &options, NULL);
    CHECK_EQ(berthi_model_enter(m.l.model, &m.error), BERTH_OK);
    CHECK_EQ(berthi_model_enter(m.l.model, &m.error), BERTH_OK);
    m.l.model->wait_ns = 30 * MS;
    begin_ns = berthi_sys_now_ns();
    CHECK_EQ(moved_sleep(&m), BERTH_EIO);
    CHECK_GE(berthi_sys_now_ns() - begin_ns, 30 * MS);
    CHECK_EQ(m.error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(m.error.message, "calls that use the model's layers do not end");
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_AWAKE);
    m.l.model->wait_ns = 20000 * MS;
    berthi_model_leave(m.l.model);
    berthi_model_leave(m.l.model);
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_ASLEEP);
    CHECK_EQ(berthi_model_enter(m.l.model, &m.error), BERTH_EINVAL);
    CHECK_EQ(m.error.reason, BERTH_REASON_ASLEEP);
    CHECK_CONTAINS(m.error.message, "the model is asleep");
    CHECK_EQ(moved_wake(&m), BERTH_OK); /* that one was not counted */
    moved_check(&m);
    moved_end(&m);
}

/* Straight, or, where one does not reach the other, by host memory: the same bytes. */
static void
carry_between_gpus(bool is_apart)
{
    const fake_cuda_machine machine = { .count = 2, .driver = 13000, .architecture = 90,
                                        .memory_bytes = UINT64_C(64) << 20,
                                        .is_late = true, .is_apart = is_apart };
    const uint64_t bytes = (UINT64_C(9) << 20) + 5; /* three pieces */
    berth_model model = { .wait_ns = 60000 * MS };
    berthi_transfers transfers;
    berthi_carrier carrier;
    uint64_t same = 0;
    berthi_spot from;
    berthi_spot to;
    rig r;

    fake_cuda_begin(&machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    model.context = r.context;
    model.devices = r.devices;
    from = spot(rig_alloc(r.device, bytes), 0, false);
    to = spot(rig_alloc(rig_at(&r, 1), bytes), 1, false);
    for (uint64_t i = 0; i < bytes; i++)
        from.memory[i] = (uint8_t)(i * 7 + i / 251);
    CHECK_EQ(berthi_carrier_init(&carrier, &model, NULL, NULL), BERTH_OK);
    carrier.is_undoing = true; /* of no job */
    CHECK_EQ(berthi_transfers_init(&transfers, r.context, 1, NULL), BERTH_OK);
    berthi_transfers_add(&transfers, &from, &to, bytes);
    CHECK_EQ(berthi_carrier_carry(&carrier, &transfers, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    CHECK_EQ(fake_cuda_read().peer_copies, is_apart ? 0 : 3);
    for (uint64_t i = 0; i < bytes; i++)
        same += to.memory[i] == (uint8_t)(i * 7 + i / 251);
    CHECK_EQ(same, bytes);
    CHECK_EQ(carrier.carried_bytes, bytes);
    CHECK_EQ(carrier.bounce == NULL, !is_apart);
    berthi_transfers_fini(&transfers);
    berthi_carrier_fini(&carrier);
    r.device->table->free(r.device, from.memory, bytes);
    rig_at(&r, 1)->table->free(rig_at(&r, 1), to.memory, bytes);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

static void
test_between_gpus(void)
{
    carry_between_gpus(false);
    carry_between_gpus(true);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_what_lies_together_is_one_transfer);
    T_RUN(test_few_copies_are_under_way);
    T_RUN(test_calls_are_waited_for);
    T_RUN(test_between_gpus);
    T_MAIN_END;
}
