/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_peers.c - copies between simulated devices: who reaches whom, when, what is refused. */
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sim.h"
#include "tests/rig.h"
#include "tests/t.h"

/* A byte a nanosecond to the host and back, two to others. */
#define PEER "sim:64MiB,h2d=1GB/s,memory=1GB/s,latency=0ns,peers=2GB/s"

static berth_status
copy_to(berthi_device *device, berthi_device *peer, void *to, const void *from,
        uint64_t bytes, berth_error *error)
{
    const berthi_copy copy = {
        .kind = BERTHI_COPY_TO_PEER, .to = to, .from = from, .bytes = bytes, .peer = peer
    };

    return device->table->copy(device, &copy, NULL, error);
}

/* Two devices with 4096 bytes each, those of the first being `byte`. */
typedef struct pair {
    rig r;
    berthi_device *devices[2];
    uint8_t *memory[2];
    uint8_t *host;
    berth_error error;
} pair;

static void
pair_begin(pair *p, const char *words, uint8_t byte)
{
    T_REQUIRE(rig_open(&p->r, words));
    p->host = rig_pinned(&p->r, 4096, byte);
    for (uint32_t i = 0; i < 2; i++) {
        p->devices[i] = rig_at(&p->r, i);
        p->memory[i] = rig_alloc(p->devices[i], 4096);
    }
    rig_to_device(p->devices[0], p->memory[0], p->host, 4096, NULL);
    rig_sync(p->devices[0], NULL);
}

static void
pair_end(pair *p)
{
    for (uint32_t i = 0; i < 2; i++)
        p->devices[i]->table->free(p->devices[i], p->memory[i], 4096);
    rig_unpinned(&p->r, p->host, 4096);
    rig_close(&p->r);
}

static void
test_who_reaches_whom(void)
{
    static const struct {
        const char *words;
        bool reaches;
    } cases[] = {
        { PEER "*2", true },
        { PEER ",root=1;" PEER ",root=1", true }, /* another link than that to the host */
        { "sim*2", false },
        { PEER ";sim", false },
        { "sim;" PEER, false },
    };
    rig r;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        T_REQUIRE(rig_open(&r, cases[i].words));
        CHECK_EQ(r.device->table->reaches(r.device, rig_at(&r, 1)), cases[i].reaches);
        CHECK_EQ(r.device->table->reaches(rig_at(&r, 1), r.device), cases[i].reaches);
        CHECK(!r.device->table->reaches(r.device, r.device));
        rig_close(&r);
    }
}

/* By the slower link of the two, late, and beside copies to the host. */
static void
test_time(void)
{
    berthi_stream *stream;
    uint64_t begin;
    pair p;

    pair_begin(&p, PEER ",touch=end;sim:64MiB,peers=500MB/s", 7);
    stream = rig_stream(p.devices[0]);
    begin = rig_now(&p.r);
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[1], p.memory[0], 1000, NULL),
             BERTH_OK);
    rig_to_host(p.devices[0], p.host + 1000, p.memory[0], 1500, stream);
    CHECK_EQ(rig_now(&p.r), begin); /* asking takes no time, and nothing is there yet */
    CHECK_EQ(p.memory[1][0], 0xA5);
    rig_sync(p.devices[0], stream);
    CHECK_EQ(rig_now(&p.r), begin + 1500);
    CHECK_EQ(p.memory[1][999], 0xA5);
    rig_sync(p.devices[0], NULL);
    CHECK_EQ(rig_now(&p.r), begin + 2000);
    CHECK_EQ(p.memory[1][0], 7);
    CHECK_EQ(p.memory[1][999], 7);
    CHECK_EQ(p.memory[1][1000], 0xA5);
    /* The other way round: its own latency, the same rate. */
    begin = rig_now(&p.r);
    memset(p.memory[1], 9, 500);
    CHECK_EQ(copy_to(p.devices[1], p.devices[0], p.memory[0], p.memory[1], 500, NULL),
             BERTH_OK);
    rig_sync(p.devices[1], NULL);
    CHECK_EQ(rig_now(&p.r), begin + 10000 + 1000);
    CHECK_EQ(p.memory[0][499], 9);
    CHECK_EQ(p.memory[0][500], 7);
    p.devices[0]->table->stream_destroy(p.devices[0], stream);
    pair_end(&p);
}

/* What another device's stream waits for. */
static void
test_events_order_two_devices(void)
{
    static const char *const words[] = { PEER ",backing=sealed,clock=real*2",
                                         PEER ",backing=sealed,touch=end*2" };
    uint8_t *back;
    pair p;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        berthi_event *sent;

        pair_begin(&p, words[i], 5);
        sent = rig_event(p.devices[0]);
        back = rig_pinned(&p.r, 4096, 0);
        rig_compute(p.devices[0], 1000000, NULL);
        CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[1], p.memory[0], 4096, NULL),
                 BERTH_OK);
        rig_record(p.devices[0], sent, NULL);
        rig_wait(p.devices[1], NULL, sent);
        rig_to_host(p.devices[1], back, p.memory[1], 4096, NULL);
        rig_sync(p.devices[1], NULL);
        CHECK(memcmp(back, p.host, 4096) == 0);
        p.devices[0]->table->event_destroy(p.devices[0], sent);
        rig_unpinned(&p.r, back, 4096);
        pair_end(&p);
    }
}

/* Where digests are kept instead of bytes. */
static void
test_digests(void)
{
    const uint64_t bytes = UINT64_C(64) << 20;
    uint8_t *large;
    uint32_t crc;
    pair p;

    pair_begin(&p, PEER ";sim:128MiB,peers=1GB/s,backing=digest", 3);
    large = rig_alloc(p.devices[1], bytes);
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], large + 256, p.memory[0], 4096, NULL),
             BERTH_OK);
    rig_sync(p.devices[0], NULL);
    CHECK_EQ(p.devices[1]->table->digest(p.devices[1], large + 256, 4096, &crc, NULL),
             BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, p.host, 4096));
    CHECK_EQ(copy_to(p.devices[1], p.devices[0], p.memory[0], large + 256, 4096, &p.error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(p.error.message, "reads memory of which digests are kept");
    p.devices[1]->table->free(p.devices[1], large, bytes);
    pair_end(&p);
}

static void
test_refused(void)
{
    uint8_t *freed;
    pair p;

    pair_begin(&p, PEER "*2;sim:64MiB", 1);
    CHECK_EQ(copy_to(p.devices[0], rig_at(&p.r, 2), p.memory[1], p.memory[0], 1, &p.error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(p.error.message, "is for a device that this one does not reach");
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[0], p.memory[0], 1, &p.error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(p.error.message, "lies outside of memory that is allocated");
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[1], p.memory[1], 1, &p.error),
             BERTH_EINTERNAL);
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[1], p.memory[0], 4097, &p.error),
             BERTH_EINTERNAL);
    /* Given back too early: who copies is to blame. */
    freed = rig_alloc(p.devices[1], 4096);
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], freed, p.memory[0], 4096, NULL), BERTH_OK);
    p.devices[1]->table->free(p.devices[1], freed, 4096);
    CHECK_EQ(p.devices[0]->table->digest(p.devices[0], p.memory[0], 1, &(uint32_t){ 0 },
                                         &p.error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(p.error.message, "work that was under way lies outside of memory");
    rig_sync(p.devices[1], NULL);
    pair_end(&p);
}

/* A device that is lost gets nothing; who copies to it goes on. */
static void
test_lost(void)
{
    uint32_t crc;
    pair p;

    pair_begin(&p, PEER ",touch=end*2", 1);
    CHECK_EQ(copy_to(p.devices[0], p.devices[1], p.memory[1], p.memory[0], 4096, NULL),
             BERTH_OK);
    p.devices[1]->table->stop(p.devices[1]);
    rig_sync(p.devices[0], NULL);
    CHECK_EQ(p.memory[1][0], 0xA5);
    CHECK_EQ(copy_to(p.devices[1], p.devices[0], p.memory[0], p.memory[1], 1, NULL),
             BERTH_ENODEV);
    CHECK_EQ(p.devices[0]->table->digest(p.devices[0], p.memory[0], 4096, &crc, NULL),
             BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, p.host, 4096));
    pair_end(&p);
}

/* ----------------------------------------------------------------------------- random */

#define DEVICES 4u
#define ROOM UINT64_C(65536)

/* Hand a page round and round: each device adds its own to it. */
typedef struct ring {
    uint8_t *memory[DEVICES];
    uint32_t at;
} ring;

static void
add_own(void *user)
{
    ring *const g = user;

    for (uint64_t i = 0; i < ROOM; i++)
        g->memory[g->at % DEVICES][i] += (uint8_t)(g->at % DEVICES + i);
    g->at++;
}

static void
go_round(const char *words, uint32_t turns)
{
    berthi_event *sent[DEVICES];
    ring g = { .at = 0 };
    uint64_t wrong = 0;
    uint8_t *host;
    rig r;

    T_REQUIRE(rig_open(&r, words));
    host = rig_pinned(&r, ROOM, 0);
    for (uint32_t i = 0; i < DEVICES; i++) {
        g.memory[i] = rig_alloc(rig_at(&r, i), ROOM);
        sent[i] = rig_event(rig_at(&r, i));
    }
    rig_to_device(r.device, g.memory[0], host, ROOM, NULL);
    for (uint32_t i = 0; i < turns; i++) {
        berthi_device *const from = rig_at(&r, i % DEVICES);
        berthi_device *const to = rig_at(&r, (i + 1) % DEVICES);

        rig_call(from, add_own, &g, 100, NULL);
        CHECK_EQ(copy_to(from, to, g.memory[(i + 1) % DEVICES], g.memory[i % DEVICES], ROOM,
                         NULL),
                 BERTH_OK);
        rig_record(from, sent[i % DEVICES], NULL);
        rig_wait(to, NULL, sent[i % DEVICES]);
    }
    rig_to_host(rig_at(&r, turns % DEVICES), host, g.memory[turns % DEVICES], ROOM, NULL);
    rig_sync(rig_at(&r, turns % DEVICES), NULL);
    for (uint64_t i = 0; i < ROOM; i++) {
        uint8_t expected = 0;

        for (uint32_t k = 0; k < turns; k++)
            expected = (uint8_t)(expected + k % DEVICES + i);
        wrong += host[i] != expected;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(g.at, turns);
    for (uint32_t i = 0; i < DEVICES; i++) {
        rig_at(&r, i)->table->event_destroy(rig_at(&r, i), sent[i]);
        rig_at(&r, i)->table->free(rig_at(&r, i), g.memory[i], ROOM);
    }
    rig_unpinned(&r, host, ROOM);
    rig_close(&r);
}

static void
test_round_and_round(void)
{
    go_round("sim:64MiB,h2d=25GB/s,peers=100GB/s,latency=1us,jitter=100%,pick=random,seed=1,"
             "backing=sealed*4",
             37);
    go_round("sim:64MiB,h2d=25GB/s,peers=100GB/s,latency=1us,jitter=100%,pick=last,"
             "clock=real,backing=sealed*4",
             37);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_who_reaches_whom);
    T_RUN(test_time);
    T_RUN(test_events_order_two_devices);
    T_RUN(test_digests);
    T_RUN(test_refused);
    T_RUN(test_lost);
    T_RUN(test_round_and_round);
    T_MAIN_END;
}
