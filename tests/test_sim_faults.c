/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_faults.c - simulated devices that fail: lost, stuck, refusing. */
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/rig.h"
#include "tests/t.h"

#define PLAIN "sim:64MiB,h2d=1GB/s,memory=1GB/s,latency=0ns"
#define MS UINT64_C(1000000)

static uint64_t
soon(void)
{
    return berthi_sys_now_ns() + 20 * MS;
}

/* ------------------------------------------------------------------------------ lost */

/* Every call says that the device is lost. */
static void
check_lost(const rig *r, void *memory, uint8_t *host, berthi_event *event)
{
    const berthi_device_table *const t = r->device->table;
    const berthi_copy c = { .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true,
                            .to = memory, .from = host, .bytes = 4096 };
    const berthi_request request = { .operation = BERTHI_OPERATION_CALL };
    berthi_stream *stream = (berthi_stream *)(void *)memory;
    berthi_event *other = event;
    void *more = memory;
    bool past = true;
    uint32_t crc = 1;
    berth_error e;

    berthi_error_clear(&e);
    CHECK_EQ(t->alloc(r->device, 1, &more, &e), BERTH_ENODEV);
    CHECK(more == NULL);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, "sim:0: the device is lost");
    CHECK_EQ(t->pin(r->device, host, 4096, NULL), BERTH_ENODEV);
    CHECK_EQ(t->keep(r->device, memory, 1, NULL), BERTH_ENODEV);
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
    CHECK_EQ(t->digest(r->device, memory, 1, &crc, NULL), BERTH_ENODEV);
    CHECK_EQ(crc, 0);
}

static void
test_lost_for_ever(void)
{
    berthi_event *event;
    berthi_stream *stream;
    uint8_t *memory;
    uint8_t *host;
    rig r;

    /* The 6th call: alloc, pin, event, stream, copy, record. */
    T_REQUIRE(rig_open(&r, PLAIN ",lose=6"));
    memory = rig_alloc(r.device, 4096);
    host = rig_pinned(&r, 4096, 1);
    event = rig_event(r.device);
    stream = rig_stream(r.device);
    rig_to_device(r.device, memory, host, 4096, stream);
    for (int i = 0; i < 2; i++)
        check_lost(&r, memory, host, event);
    CHECK_EQ(memory[0], 0xA5); /* nothing was done any more */
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->event_destroy(r.device, event);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 4096);
    CHECK_EQ(((berthi_sim_device *)r.device)->misuses, 0);
    rig_close(&r);
}

/* With a copy half done, and a neighbour on the same root that goes on. */
static void
test_lost_under_way(void)
{
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory[2];
    uint8_t *host;
    berth_error e;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN ",root=1,touch=end,lose=7;" PLAIN ",root=1"));
    for (uint32_t i = 0; i < 2; i++)
        memory[i] = rig_alloc(rig_at(&r, i), 4096); /* 1 */
    host = rig_pinned(&r, 4096, 1);                 /* 2 */
    event = rig_event(r.device);                    /* 3 */
    rig_to_device(r.device, memory[0], host, 1000, NULL); /* 4 */
    rig_record(r.device, event, NULL);                    /* 5 */
    rig_to_device(r.device, memory[0], host, 1000, NULL); /* 6: given up */
    rig_compute(rig_at(&r, 1), 500, NULL);
    rig_sync(rig_at(&r, 1), NULL);
    CHECK_EQ(r.device->table->await(r.device, event, UINT64_MAX, NULL), BERTH_ENODEV);
    rig_to_device(rig_at(&r, 1), memory[1], host, 1000, NULL);
    rig_sync(rig_at(&r, 1), NULL);
    CHECK_EQ(rig_now(&r), 2000); /* the link was busy all the same */
    CHECK_EQ(memory[0][0], 0xA5);
    CHECK_EQ(memory[1][0], 1);
    /* An event of the lost device never passes for others, and says why. */
    CHECK_EQ(rig_at(&r, 1)->table->await(rig_at(&r, 1), event, UINT64_MAX, &e),
             BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    stream = rig_stream(rig_at(&r, 1));
    rig_wait(rig_at(&r, 1), stream, event);
    rig_compute(rig_at(&r, 1), 100, stream);
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), stream);
    CHECK_EQ(rig_now(&r), 2000);
    r.device->table->event_destroy(r.device, event);
    for (uint32_t i = 0; i < 2; i++)
        rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 4096);
    rig_unpinned(&r, host, 4096);
    rig_close(&r);
}

/* ----------------------------------------------------------------------------- stuck */

static void
check_stall(const char *words)
{
    berthi_event *events[2];
    berthi_stream *streams[2];
    rig r;

    T_REQUIRE(rig_open(&r, words));
    for (int i = 0; i < 2; i++) {
        events[i] = rig_event(r.device);
        streams[i] = rig_stream(r.device);
    }
    rig_record(r.device, events[0], streams[0]);
    rig_await(r.device, events[0]);
    rig_compute(r.device, 10, streams[0]);
    rig_record(r.device, events[0], streams[0]); /* the second one never passes */
    rig_wait(r.device, streams[1], events[0]);
    rig_compute(r.device, 10, streams[1]);
    rig_record(r.device, events[1], streams[1]);
    for (int i = 0; i < 2; i++) {
        uint64_t end_ns = UINT64_MAX;
        uint64_t deadline = 0;
        bool past = true;

        /* A busy machine may be later once, and gets more tries. */
        for (int tries = 0; tries < T_CANCEL_TRIES && end_ns >= deadline + 2000 * MS; tries++) {
            deadline = soon();
            CHECK_EQ(r.device->table->await(r.device, events[i], deadline, NULL),
                     BERTH_PENDING);
            end_ns = berthi_sys_now_ns();
            CHECK_GE(end_ns, deadline);
        }
        CHECK_LT(end_ns, deadline + 2000 * MS);
        CHECK_EQ(r.device->table->query(r.device, events[i], &past, NULL), BERTH_OK);
        CHECK(!past);
    }
    CHECK_EQ(r.device->table->await(r.device, events[0], 0, NULL), BERTH_PENDING);
    rig_compute(r.device, 10, NULL); /* other streams go on */
    rig_sync(r.device, NULL);
    for (int i = 0; i < 2; i++) {
        r.device->table->stream_destroy(r.device, streams[i]); /* not for ever */
        r.device->table->event_destroy(r.device, events[i]);
    }
    streams[0] = rig_stream(r.device); /* one that nobody was stuck in */
    rig_compute(r.device, 10, streams[0]);
    rig_sync(r.device, streams[0]);
    r.device->table->stream_destroy(r.device, streams[0]);
    rig_close(&r);
}

static void
test_event_that_never_passes(void)
{
    check_stall(PLAIN ",stall=2");
    check_stall(PLAIN ",stall=2,clock=real");
}

/* ------------------------------------------------------------------------- hanging */

/* The second copy hangs; what is behind it on its link waits, computing goes on. */
static void
check_hang(const char *words, bool is_released)
{
    berthi_event *events[2];
    berthi_stream *streams[2];
    uint8_t *memory;
    uint8_t *host;
    bool past = true;
    rig r;

    T_REQUIRE(rig_open(&r, words));
    memory = rig_alloc(r.device, 12288);
    host = rig_pinned(&r, 4096, 7);
    for (int i = 0; i < 2; i++) {
        events[i] = rig_event(r.device);
        streams[i] = rig_stream(r.device);
    }
    rig_to_device(r.device, memory, host, 4096, streams[0]);
    rig_sync(r.device, streams[0]);
    rig_to_device(r.device, memory + 4096, host, 4096, streams[0]);
    rig_record(r.device, events[0], streams[0]);
    rig_to_device(r.device, memory + 8192, host, 4096, streams[1]);
    rig_record(r.device, events[1], streams[1]);
    rig_compute(r.device, 10, NULL);
    rig_sync(r.device, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(r.device->table->await(r.device, events[i], soon(), NULL),
                 BERTH_PENDING);
        CHECK_EQ(r.device->table->query(r.device, events[i], &past, NULL), BERTH_OK);
        CHECK(!past);
    }
    CHECK_EQ(memory[0], 7);
    CHECK_EQ(memory[4096], 0xA5);
    CHECK_EQ(memory[8192], 0xA5);
    memset(host, 9, 4096); /* the bytes are read when it goes on */
    if (is_released)
        berthi_sim_release(r.device);
    else
        berthi_devices_stop(r.devices);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(r.device->table->await(r.device, events[i], UINT64_MAX, NULL),
                 is_released ? BERTH_OK : BERTH_ENODEV);
    CHECK_EQ(memory[4096], is_released ? 9 : 0xA5);
    CHECK_EQ(memory[8192], is_released ? 9 : 0xA5);
    for (int i = 0; i < 2; i++) {
        r.device->table->stream_destroy(r.device, streams[i]);
        r.device->table->event_destroy(r.device, events[i]);
    }
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 12288);
    CHECK_EQ(((berthi_sim_device *)r.device)->misuses, 0);
    rig_close(&r);
}

static void
test_copy_that_hangs(void)
{
    for (int i = 0; i < 2; i++) {
        check_hang(PLAIN ",hang=2", i == 0);
        check_hang(PLAIN ",hang=2,touch=begin", i == 0);
        check_hang(PLAIN ",hang=2,clock=real", i == 0);
    }
}

/* Closed with a copy that hangs: it never touches anything. */
static void
test_close_while_it_hangs(void)
{
    static const char *const words[] = { PLAIN ",hang=1", PLAIN ",hang=1,clock=real" };

    for (int i = 0; i < 2; i++) {
        uint8_t *memory;
        uint8_t *host;
        rig r;

        T_REQUIRE(rig_open(&r, words[i]));
        memory = rig_alloc(r.device, 4096);
        host = rig_pinned(&r, 4096, 7);
        rig_to_device(r.device, memory, host, 4096, NULL);
        berthi_devices_stop(r.devices);
        CHECK_EQ(memory[0], 0xA5);
        rig_unpinned(&r, host, 4096);
        r.device->table->free(r.device, memory, 4096);
        rig_close(&r);
    }
}

/* Work that touches memory until it is told to end, and a call that finds the loss. */
typedef struct last_work {
    rig *r;
    berthi_event *event;
    _Atomic bool has_begun;
    _Atomic bool may_end;
    _Atomic bool is_told;
    berth_status status;
} last_work;

static void
go_on(void *user)
{
    last_work *const w = user;

    atomic_store(&w->has_begun, true);
    while (!atomic_load(&w->may_end))
        berthi_sys_sleep(MS);
}

static void *
find_loss(void *user)
{
    last_work *const w = user;
    berthi_device *const device = w->r->device;

    w->status = device->table->record(device, w->event, NULL, NULL);
    atomic_store(&w->is_told, true);
    return NULL;
}

/* Whoever is told that a device is lost can give memory back: nothing touches it. */
static void
test_loss_is_told_when_work_has_ended(void)
{
    last_work w;
    pthread_t thread;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN ",clock=real,lose=3"));
    memset(&w, 0, sizeof w);
    w.r = &r;
    w.event = rig_event(r.device);
    rig_call(r.device, go_on, &w, 10, NULL);
    while (!atomic_load(&w.has_begun))
        berthi_sys_sleep(MS);
    T_REQUIRE(pthread_create(&thread, NULL, find_loss, &w) == 0);
    berthi_sys_sleep(30 * MS);
    CHECK(!atomic_load(&w.is_told));
    atomic_store(&w.may_end, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(w.status, BERTH_ENODEV);
    r.device->table->event_destroy(r.device, w.event);
    rig_close(&r);
}

/* What is called must not wait for what calls it. */
typedef struct caller {
    rig *r;
    berthi_event *event;
    berth_status status;
} caller;

static void
wait_for_own(void *user)
{
    caller *const c = user;
    berthi_device *const device = c->r->device;

    c->status = device->table->await(device, c->event, UINT64_MAX, NULL);
}

static void
test_callback_that_waits(void)
{
    caller c;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    c = (caller){ &r, rig_event(r.device), BERTH_OK };
    rig_call(r.device, wait_for_own, &c, 10, NULL);
    rig_record(r.device, c.event, NULL);
    rig_await(r.device, c.event);
    CHECK_EQ(c.status, BERTH_EINTERNAL);
    r.device->table->event_destroy(r.device, c.event);
    rig_close(&r);
}

/* ------------------------------------------------------------------- all in their turn */

typedef struct state {
    berthi_devices *devices;
    berthi_device *device;
    void *memory;
    uint8_t *host;
    bool is_pinned;
    berthi_stream *stream;
    berthi_event *event;
} state;

#define DIGESTED (UINT64_C(64) << 20)

static berth_status
use_device(state *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_copy c = { .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true,
                            .to = s->memory, .from = s->host, .bytes = 4096 };
    const berthi_request request = {
        .operation = BERTHI_OPERATION_ENCODE_NF4,
        .arguments.encode = { .values = s->memory, .dtype = BERTH_F32, .block_size = 64,
                              .count = 64, .codes = (uint8_t *)s->memory + 8192,
                              .absmax = (float *)(void *)((uint8_t *)s->memory + 12288) },
    };
    uint32_t crc;
    berth_status status = t->keep(s->device, s->memory, 4096, error);

    if (status == BERTH_OK)
        status = t->copy(s->device, &c, s->stream, error);
    if (status == BERTH_OK)
        status = t->record(s->device, s->event, s->stream, error);
    if (status == BERTH_OK)
        status = t->wait(s->device, NULL, s->event, error);
    if (status == BERTH_OK)
        status = t->launch(s->device, &request, NULL, error);
    if (status == BERTH_OK)
        status = t->clear(s->device, (uint8_t *)s->memory + 20480, 64, NULL, error);
    if (status == BERTH_OK)
        status = t->await(s->device, s->event, UINT64_MAX, error);
    if (status == BERTH_OK)
        status = t->digest(s->device, (uint8_t *)s->memory + 8192, 32, &crc, error);
    return status;
}

static berth_status
run(void *user, berth_context *context, berth_error *error)
{
    state s = { 0 };
    berth_status status =
        berthi_devices_open(context, user, &s.devices, error);

    CHECK_EQ(s.devices == NULL, status != BERTH_OK);
    if (status != BERTH_OK)
        return status;
    s.device = berthi_devices_at(s.devices, 0);
    s.host = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, 4096, 4096);
    if (s.host == NULL)
        status = berthi_fail_memory(error, "testing");
    else
        memset(s.host, 0, 4096);
    if (status == BERTH_OK)
        status = s.device->table->alloc(s.device, DIGESTED, &s.memory, error);
    if (status == BERTH_OK) {
        status = s.device->table->pin(s.device, s.host, 4096, error);
        s.is_pinned = status == BERTH_OK;
    }
    if (status == BERTH_OK)
        status = s.device->table->stream_create(s.device, &s.stream, error);
    if (status == BERTH_OK)
        status = s.device->table->event_create(s.device, &s.event, error);
    if (status == BERTH_OK)
        status = use_device(&s, error);
    s.device->table->event_destroy(s.device, s.event);
    s.device->table->stream_destroy(s.device, s.stream);
    if (s.is_pinned)
        s.device->table->unpin(s.device, s.host, 4096);
    s.device->table->free(s.device, s.memory, DIGESTED);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, s.host, 4096, 4096);
    CHECK_EQ(((berthi_sim_device *)s.device)->misuses, 0);
    berthi_devices_close(s.devices);
    return status;
}

static void
test_fault_loops(void)
{
    static char virtual_words[] = "sim:64MiB,backing=digest,latency=0ns";
    static char real_words[] = "sim:64MiB,backing=digest,latency=0ns,clock=real";
    fault_counts counts = fault_loop("a simulated device", run, virtual_words);

    CHECK_EQ(counts.survived, 0);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 2);
    counts = fault_loop("the same in real time", run, real_words);
    CHECK_EQ(counts.survived, 0);
    CHECK_GT(counts.system, 6);
}

/* Every call of a device, refused once and from then on. */
static void
check_device_faults(char *words, uint64_t calls, bool is_persistent)
{
    for (uint64_t nth = 0; nth <= calls; nth++) {
        berth_context *context;
        berth_memory_summary memory;
        berth_error error;
        berth_status status;

        T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
        berthi_error_clear(&error);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, is_persistent);
        status = run(words, context, &error);
        CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0, nth < calls);
        berthi_fault_disarm();
        CHECK_EQ(status, nth < calls ? BERTH_ENODEV : BERTH_OK);
        if (nth < calls) {
            CHECK_EQ(error.reason, BERTH_REASON_DEVICE);
            CHECK_CONTAINS(error.message, "sim:0: ");
            CHECK_CONTAINS(error.message, " failed");
        }
        berth_context_memory(context, &memory);
        CHECK_EQ(memory.current_bytes, 0);
        berth_context_destroy(context);
    }
}

static void
test_device_faults(void)
{
    static char words[] = "sim:64MiB,backing=digest,latency=0ns";

    check_device_faults(words, 12, false);
    check_device_faults(words, 12, true);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lost_for_ever);
    T_RUN(test_lost_under_way);
    T_RUN(test_event_that_never_passes);
    T_RUN(test_copy_that_hangs);
    T_RUN(test_close_while_it_hangs);
    T_RUN(test_loss_is_told_when_work_has_ended);
    T_RUN(test_callback_that_waits);
    T_RUN(test_fault_loops);
    T_RUN(test_device_faults);
    T_MAIN_END;
}
