/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_feed.c - the feeder's buffers: how large, whose, and when more would help. */
#include "loader/lease_feed.h"

#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define CHUNKS 32u

static void
test_chunks_of_a_ring(void)
{
    CHECK_EQ(berthi_feeder_chunk_bytes(UINT64_MAX / 8), 4 * MIB);
    CHECK_EQ(berthi_feeder_chunk_bytes(32 * MIB), 4 * MIB);
    CHECK_EQ(berthi_feeder_chunk_bytes(32 * MIB - 1), 2 * MIB);
    CHECK_EQ(berthi_feeder_chunk_bytes(32 * KIB), 4 * KIB);
    CHECK_EQ(berthi_feeder_chunk_bytes(0), 4 * KIB);
}

/* A feeder without a thread: chunks from `layers` on are of experts. */
typedef struct rig {
    berthi_chunk list[CHUNKS];
    berthi_chunks chunks;
    berthi_leases leases;
    berthi_stage_buffer buffers[CHUNKS];
    berthi_feeder feeder;
} rig;

static void
begin(rig *r, uint64_t layers, uint32_t capacity)
{
    *r = (rig){ .chunks = { .chunk_count = CHUNKS } };
    r->chunks.chunks = r->list;
    r->leases.layer_chunks = layers;
    r->feeder.leases = &r->leases;
    r->feeder.chunks = &r->chunks;
    r->feeder.stage.buffers = r->buffers;
    r->feeder.stage.capacity = r->feeder.stage.limit = capacity;
    pthread_mutex_init(&r->feeder.stage.lock, NULL);
    berthi_feeder_begin_tuning(&r->feeder);
}

/* The next buffer has a chunk, and is in this state. */
static void
add(rig *r, uint64_t chunk, berthi_stage_state state)
{
    r->buffers[r->feeder.stage.allocated++] =
        (berthi_stage_buffer){ .chunk = &r->list[chunk], .state = state };
    r->feeder.held[chunk >= r->leases.layer_chunks]++;
}

static void
test_shares(void)
{
    static const struct {
        uint64_t layers;
        uint32_t capacity;
        uint32_t room[2];
    } cases[] = {
        { 16, 64, { 6, 2 } }, { 16, 8, { 6, 2 } }, { 16, 7, { 6, 1 } }, { 16, 3, { 2, 1 } },
        { 16, 2, { 1, 1 } },  { 16, 1, { 1, 1 } }, { 0, 64, { 0, 8 } }, { CHUNKS, 64, { 8, 0 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;

        begin(&r, cases[i].layers, cases[i].capacity);
        CHECK_EQ(r.feeder.room[0], cases[i].room[0]);
        CHECK_EQ(r.feeder.room[1], cases[i].room[1]);
    }
}

/* Whoever hangs keeps a buffer: there is one for each device, first of all for layers. */
static void
test_shares_of_devices(void)
{
    static const struct {
        uint32_t devices; /* each has layers and experts */
        uint32_t capacity;
        uint32_t room[2];
    } cases[] = {
        { 1, 7, { 6, 1 } }, { 2, 8, { 6, 2 } },   { 2, 7, { 5, 2 } }, { 3, 8, { 5, 3 } },
        { 2, 4, { 2, 2 } }, { 2, 3, { 2, 1 } },   { 2, 2, { 1, 1 } }, { 4, 8, { 4, 4 } },
        { 4, 6, { 4, 2 } }, { 4, 64, { 4, 4 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_lease_line layers = { .has_disk = true };
        const berthi_lease_line experts = { .has_disk = true, .is_cache = true };
        berthi_lease_line lines[9] = { { .has_disk = false } };
        rig r;

        begin(&r, 16, cases[i].capacity);
        for (uint32_t d = 0; d < cases[i].devices; d++) {
            lines[1 + 2 * d] = layers;
            lines[2 + 2 * d] = experts;
        }
        r.leases.lines = lines;
        r.leases.line_count = 1 + 2 * cases[i].devices;
        berthi_feeder_begin_tuning(&r.feeder);
        CHECK_EQ(r.feeder.room[0], cases[i].room[0]);
        CHECK_EQ(r.feeder.room[1], cases[i].room[1]);
    }
}

/* Six buffers of layers and two of experts: idle where all of either are being filled. */
static void
test_idle(void)
{
    rig r;

    begin(&r, 16, 64);
    CHECK(!berthi_feeder_is_idle(&r.feeder));
    for (uint64_t i = 0; i < 6; i++) {
        CHECK(!berthi_feeder_is_idle(&r.feeder)); /* there is room */
        add(&r, i, BERTHI_STAGE_FILLING);
    }
    CHECK(berthi_feeder_is_idle(&r.feeder));
    r.buffers[2].state = BERTHI_STAGE_FULL; /* nobody has taken it yet */
    CHECK(!berthi_feeder_is_idle(&r.feeder));
    add(&r, 20, BERTHI_STAGE_FILLING);
    CHECK(!berthi_feeder_is_idle(&r.feeder));
    add(&r, 21, BERTHI_STAGE_FILLING);
    CHECK(berthi_feeder_is_idle(&r.feeder)); /* experts are waited for */
    r.buffers[7].state = BERTHI_STAGE_BUSY;
    CHECK(!berthi_feeder_is_idle(&r.feeder));
    add(&r, 6, BERTHI_STAGE_FILLING); /* more than there may be now, and one is full */
    CHECK(!berthi_feeder_is_idle(&r.feeder));
    begin(&r, 0, 64); /* no layers: nothing of them is no reason */
    CHECK(!berthi_feeder_is_idle(&r.feeder));
}

/* Copies are late that were asked for from more buffers than are in use by now. */
static void
test_room_beside_late_copies(void)
{
    rig r;

    begin(&r, CHUNKS, 64);
    r.feeder.held[0] = r.feeder.copying = 7;
    CHECK(berthi_feeder_make_room(&r.feeder, 0));
    CHECK_EQ(r.feeder.room[0], 8);
    r.feeder.held[0] = r.feeder.copying = 8;
    CHECK(berthi_feeder_make_room(&r.feeder, 0));
    CHECK_EQ(r.feeder.room[0], 64);
    r.feeder.held[0] = r.feeder.copying = 64;
    CHECK(!berthi_feeder_make_room(&r.feeder, 0));
}

/* What is written to stays at its place: who writes ends that first. */
static void
test_what_is_written_to_does_not_fail(void)
{
    const berth_error error = { .status = BERTH_EIO };
    berthi_lease_slot slots[3] = { { .fill = BERTHI_LEASE_FILLING },
                                   { .fill = BERTHI_LEASE_FILLING, .is_written = true },
                                   { .fill = BERTHI_LEASE_FILLING, .waiters = 1 } };
    berthi_lease_line line = { .slots = slots, .slot_count = 3, .feeding = &slots[0] };

    pthread_cond_init(&line.changed, NULL);
    slots[0].next_feed = &slots[1];
    slots[1].next_feed = &slots[2];
    CHECK(berthi_lease_fail_feeding(&line, BERTH_EIO, &error));
    CHECK_EQ(slots[0].fill, BERTHI_LEASE_EMPTY);
    CHECK_EQ(slots[1].fill, BERTHI_LEASE_FILLING);
    CHECK_EQ(slots[2].fill, BERTHI_LEASE_FAILED);
    CHECK(line.feeding == &slots[1] && slots[1].next_feed == NULL);
    CHECK(!berthi_lease_fail_feeding(&line, BERTH_EIO, &error));
    slots[1].is_written = false;
    CHECK(berthi_lease_fail_feeding(&line, BERTH_EIO, &error));
    CHECK(line.feeding == NULL);
    pthread_cond_destroy(&line.changed);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_chunks_of_a_ring);
    T_RUN(test_shares);
    T_RUN(test_shares_of_devices);
    T_RUN(test_idle);
    T_RUN(test_room_beside_late_copies);
    T_RUN(test_what_is_written_to_does_not_fail);
    T_MAIN_END;
}
