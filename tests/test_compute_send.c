/* SPDX-License-Identifier: Apache-2.0 */
/* test_compute_send.c - bytes from device to device, in the order of both streams. */
#include <stdbool.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define BYTES ((UINT64_C(5) << 19) + 300) /* more than two buffers */
#define PEERS "sim:32MiB,h2d=10GB/s,d2h=10GB/s,latency=1us,peers=50GB/s,backing=sealed"

static berth_context *context;

/* Two devices with room of their own and a stream of their own. */
typedef struct two {
    berth_devices *devices;
    void *memory[2];
    void *streams[2];
    uint64_t bytes;
    berth_error error;
} two;

/*
 * The second one is the device after the first, or the first itself. Without streams of
 * their own there is nothing that could fail and be done in another way.
 */
static berth_status
two_begin(two *t, berth_context *of, const char *words, uint64_t bytes, bool has_streams)
{
    berth_status status;

    *t = (two){ .bytes = (bytes + 255) / 256 * 256 };
    status = berth_devices_open(of, words, &t->devices, &t->error);
    for (uint32_t i = 0; i < 2 && status == BERTH_OK; i++) {
        const uint32_t number = i % berth_devices_count(t->devices);

        status = berth_device_alloc(t->devices, number, t->bytes, &t->memory[i], &t->error);
        if (status == BERTH_OK && has_streams)
            status = berth_stream_create(t->devices, number, &t->streams[i], &t->error);
    }
    return status;
}

static void
two_end(two *t)
{
    for (uint32_t i = 0; i < 2 && t->devices != NULL; i++) {
        const uint32_t number = i % berth_devices_count(t->devices);

        berth_stream_destroy(t->devices, number, t->streams[i]);
        berth_device_free(t->devices, number, t->memory[i], t->bytes);
    }
    vacant_close(t->devices);
}

/* From the first to the second, or back. */
static berth_status
send(two *t, uint32_t from, uint64_t bytes)
{
    const uint32_t count = berth_devices_count(t->devices);
    const berth_send s = { .from = t->memory[from],
                           .to = t->memory[1 - from],
                           .bytes = bytes,
                           .stream = t->streams[from],
                           .other_stream = t->streams[1 - from],
                           .other = (1 - from) % count };

    return berth_device_send(t->devices, from % count, &s, &t->error);
}

static void
fill(uint8_t *bytes, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)((i + seed) * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

static const char *const machines[] = {
    "cpu", "cpu*2", "sim:32MiB", "sim:32MiB,backing=sealed*2", PEERS "*2", PEERS,
    PEERS ",pick=last,touch=end,jitter=50%*2", PEERS ",pick=random,clock=real*2",
    PEERS ";sim:32MiB", /* one of them has no such link */
};

/* Nobody waits in between: what is read in the end has been there and back twice. */
static void
test_there_and_back(void)
{
    static uint8_t sent[BYTES];
    static uint8_t got[BYTES];
    two t;

    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        T_REQUIRE(two_begin(&t, context, machines[m], BYTES, true) == BERTH_OK);
        for (uint64_t round = 0; round < 2; round++) {
            const uint32_t count = berth_devices_count(t.devices);

            fill(sent, BYTES, m + round);
            CHECK_EQ(berth_device_write(t.devices, 0, t.memory[0], sent, BYTES, t.streams[0],
                                        NULL),
                     BERTH_OK);
            CHECK_EQ(send(&t, 0, BYTES), BERTH_OK);
            /* Behind what is sent: the first half becomes that of the second device. */
            CHECK_EQ(berth_device_write(t.devices, 0, t.memory[0], got, BYTES, t.streams[0],
                                        NULL),
                     BERTH_OK);
            CHECK_EQ(send(&t, 1, BYTES / 2), BERTH_OK);
            CHECK_EQ(berth_device_read(t.devices, 0, got, t.memory[0], BYTES / 2,
                                       t.streams[0], NULL),
                     BERTH_OK);
            CHECK_MEM(sent, got, BYTES / 2);
            CHECK_EQ(berth_device_read(t.devices, 1 % count, got, t.memory[1], BYTES,
                                       t.streams[1], NULL),
                     BERTH_OK);
            CHECK_MEM(sent, got, BYTES);
        }
        two_end(&t);
    }
}

static void
take_time(void *user)
{
    (void)user;
}

/* The host goes on where devices reach each other, and both streams are in order. */
static void
test_order(void)
{
    uint8_t sent[256];
    uint8_t got[256];
    two t;

    fill(sent, sizeof sent, 1);
    T_REQUIRE(two_begin(&t, context, PEERS "*2", 256, true) == BERTH_OK);
    CHECK_EQ(berth_device_write(t.devices, 0, t.memory[0], sent, 256, t.streams[0], NULL),
             BERTH_OK);
    CHECK_EQ(berth_stream_wait(t.devices, 0, t.streams[0], -1, NULL), BERTH_OK);
    /* The second device has something to do first, and the first one may not disturb it. */
    CHECK_EQ(berth_stream_call(t.devices, 1, t.streams[1], take_time, NULL, 5, NULL),
             BERTH_OK);
    CHECK_EQ(send(&t, 0, 256), BERTH_OK);
    CHECK_EQ(berth_stream_call(t.devices, 0, t.streams[0], take_time, NULL, 2, NULL),
             BERTH_OK);
    CHECK(berth_devices_seconds(t.devices) < 1);
    CHECK_EQ(berth_stream_wait(t.devices, 0, t.streams[0], -1, NULL), BERTH_OK);
    CHECK(berth_devices_seconds(t.devices) > 7); /* the copy has waited */
    /* The first one has something to do before it is sent. */
    CHECK_EQ(berth_stream_call(t.devices, 0, t.streams[0], take_time, NULL, 5, NULL),
             BERTH_OK);
    CHECK_EQ(send(&t, 0, 256), BERTH_OK);
    CHECK_EQ(berth_device_read(t.devices, 1, got, t.memory[1], 256, t.streams[1], NULL),
             BERTH_OK);
    CHECK(berth_devices_seconds(t.devices) > 12);
    CHECK_MEM(sent, got, 256);
    two_end(&t);
}

static void
test_arguments(void)
{
    berth_send s = { .other = 1 };
    two t;

    T_REQUIRE(two_begin(&t, context, PEERS "*2", 256, true) == BERTH_OK);
    CHECK_EQ(berth_device_send(NULL, 0, &s, &t.error), BERTH_EINVAL);
    CHECK_EQ(berth_device_send(t.devices, 2, &s, &t.error), BERTH_EINVAL);
    CHECK_EQ(berth_device_send(t.devices, 0, NULL, &t.error), BERTH_EINVAL);
    CHECK_CONTAINS(t.error.message, "send");
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_OK); /* nothing at all */
    CHECK_EQ(berth_device_send(t.devices, 0, &(berth_send){ .other = 0 }, NULL), BERTH_OK);
    s.bytes = 1;
    s.from = t.memory[0];
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_EINVAL);
    CHECK_CONTAINS(t.error.message, "to");
    s.to = t.memory[1];
    s.from = NULL;
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_EINVAL);
    CHECK_CONTAINS(t.error.message, "from");
    s.from = t.memory[0];
    s.other = 2;
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_EINVAL);
    CHECK_CONTAINS(t.error.message, "number");
    s.other = 0; /* its memory is not there */
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_EINTERNAL);
    s.other = 1;
    CHECK_EQ(berth_device_send(t.devices, 0, &s, &t.error), BERTH_OK);
    two_end(&t);
}

/* A lost device sends nothing, and gets nothing. */
static void
test_lost(void)
{
    static const char *const words[] = { "sim:8MiB,lose=4*2", PEERS ",lose=4*2" };
    two t;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        T_REQUIRE(two_begin(&t, context, words[i], 256, true) == BERTH_OK);
        CHECK_EQ(send(&t, 0, 256), BERTH_ENODEV);
        CHECK_EQ(send(&t, 1, 256), BERTH_ENODEV);
        CHECK_CONTAINS(t.error.message, "lost");
        two_end(&t);
    }
}

/* --------------------------------------------------------------------------- failures */

static berth_status
send_once(void *user, berth_context *of, berth_error *error)
{
    berth_status status;
    two t;

    status = two_begin(&t, of, user, 4096, false);
    if (status == BERTH_OK)
        status = send(&t, 0, 4096);
    *error = t.error;
    two_end(&t);
    return status;
}

static void
test_faults(void)
{
    static char apart[] = "sim:8MiB*2";
    static char peers[] = PEERS "*2";
    const fault_counts a = fault_loop("sending by the host", send_once, apart);
    const fault_counts b = fault_loop("sending to a peer", send_once, peers);

    CHECK_GT(a.memory, 8);
    CHECK_EQ(a.survived, 0);
    CHECK_GT(b.memory, 8);
    CHECK_EQ(b.survived, 0);
    CHECK_GT(fault_loop_devices("sending by the host", send_once, apart).device, 6);
    CHECK_GT(fault_loop_devices("sending to a peer", send_once, peers).device, 10);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_there_and_back);
    T_RUN(test_order);
    T_RUN(test_arguments);
    T_RUN(test_lost);
    T_RUN(test_faults);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
