/* SPDX-License-Identifier: Apache-2.0 */
/* rig.c - devices for a test; see rig.h. */
#include "tests/rig.h"

#include <string.h>

#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/t.h"
#include "tests/vacant.h"

bool
rig_open(rig *r, const char *words)
{
    berth_error error;

    memset(r, 0, sizeof *r);
    if (!CHECK_EQ(berth_context_create(NULL, &r->context, NULL), BERTH_OK))
        return false;
    berthi_error_clear(&error);
    if (!CHECK_EQ(berthi_devices_open(r->context, words, &r->devices, &error), BERTH_OK)) {
        CHECK_STR(error.message, "");
        return false;
    }
    r->device = berthi_devices_at(r->devices, 0);
    return true;
}

bool
rig_open_cuda(rig *r, const berthi_cuda_calls *calls, const char *words)
{
    berth_error error;

    memset(r, 0, sizeof *r);
    if (!CHECK_EQ(berth_context_create(NULL, &r->context, NULL), BERTH_OK))
        return false;
    berthi_error_clear(&error);
    if (!CHECK_EQ(berthi_devices_open_cuda(r->context, calls, words, &r->devices, &error),
                  BERTH_OK)) {
        CHECK_STR(error.message, "");
        return false;
    }
    r->device = berthi_devices_at(r->devices, 0);
    return true;
}

void
rig_close(rig *r)
{
    berthi_devices_close(r->devices);
    vacant_check_memory(r->context);
    berth_context_destroy(r->context);
}

berthi_device *
rig_at(const rig *r, uint32_t number)
{
    return berthi_devices_at(r->devices, number);
}

void *
rig_alloc(berthi_device *device, uint64_t bytes)
{
    void *memory = NULL;

    CHECK_EQ(device->table->alloc(device, bytes, &memory, NULL), BERTH_OK);
    CHECK_EQ((uintptr_t)memory % 256, 0);
    return memory;
}

uint8_t *
rig_pinned(const rig *r, uint64_t bytes, uint8_t byte)
{
    uint8_t *const memory = berthi_memory_aligned(r->context, BERTHI_PURPOSE_RING, bytes,
                                                  berthi_sys_page_bytes());

    memset(memory, byte, (size_t)bytes);
    for (uint32_t i = 0; i < berthi_devices_count(r->devices); i++) {
        berthi_device *const device = rig_at(r, i);

        CHECK_EQ(device->table->pin(device, memory, bytes, NULL), BERTH_OK);
    }
    return memory;
}

void
rig_unpinned(const rig *r, uint8_t *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < berthi_devices_count(r->devices); i++) {
        berthi_device *const device = rig_at(r, i);

        device->table->unpin(device, memory, bytes);
    }
    berthi_memory_free_aligned(r->context, BERTHI_PURPOSE_RING, memory, bytes,
                               berthi_sys_page_bytes());
}

berthi_stream *
rig_stream(berthi_device *device)
{
    berthi_stream *stream = NULL;

    CHECK_EQ(device->table->stream_create(device, &stream, NULL), BERTH_OK);
    return stream;
}

berthi_event *
rig_event(berthi_device *device)
{
    berthi_event *event = NULL;

    CHECK_EQ(device->table->event_create(device, &event, NULL), BERTH_OK);
    return event;
}

static void
copy(berthi_device *device, const berthi_copy *c, berthi_stream *stream)
{
    berth_error error;

    berthi_error_clear(&error);
    CHECK_EQ(device->table->copy(device, c, stream, &error), BERTH_OK);
    CHECK_STR(error.message, "");
}

void
rig_to_device(berthi_device *device, void *to, const void *from, uint64_t bytes,
              berthi_stream *stream)
{
    copy(device,
         &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true, .to = to,
                         .from = from, .bytes = bytes },
         stream);
}

void
rig_to_host(berthi_device *device, void *to, const void *from, uint64_t bytes,
            berthi_stream *stream)
{
    copy(device,
         &(berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = true, .to = to,
                         .from = from, .bytes = bytes },
         stream);
}

static void
do_nothing(void *user)
{
    (void)user;
}

void
rig_call(berthi_device *device, void (*call)(void *user), void *user, uint64_t ns,
         berthi_stream *stream)
{
    const berthi_request request = { .operation = BERTHI_OPERATION_CALL,
                                    .arguments.call = { .call = call,
                                                        .user = user,
                                                        .seconds = (double)ns * 1e-9 } };

    CHECK_EQ(device->table->launch(device, &request, stream, NULL), BERTH_OK);
}

void
rig_compute(berthi_device *device, uint64_t ns, berthi_stream *stream)
{
    rig_call(device, do_nothing, NULL, ns, stream);
}

void
rig_record(berthi_device *device, berthi_event *event, berthi_stream *stream)
{
    CHECK_EQ(device->table->record(device, event, stream, NULL), BERTH_OK);
}

void
rig_wait(berthi_device *device, berthi_stream *stream, berthi_event *event)
{
    CHECK_EQ(device->table->wait(device, stream, event, NULL), BERTH_OK);
}

void
rig_await(berthi_device *device, berthi_event *event)
{
    CHECK_EQ(device->table->await(device, event, UINT64_MAX, NULL), BERTH_OK);
}

void
rig_sync(berthi_device *device, berthi_stream *stream)
{
    berthi_event *const event = rig_event(device);

    rig_record(device, event, stream);
    rig_await(device, event);
    device->table->event_destroy(device, event);
}

uint64_t
rig_now(const rig *r)
{
    return r->device->table->now_ns(r->device);
}

void
rig_refuse(const rig *r, const berthi_request *request, berth_error *error)
{
    berthi_error_clear(error);
    CHECK_EQ(r->device->table->launch(r->device, request, NULL, error), BERTH_EUNSUPPORTED);
    CHECK_EQ(error->reason, BERTH_REASON_UNSUPPORTED);
}

void
rig_check_refused(const rig *r, const berthi_request *request, const char *why)
{
    berth_error error;

    rig_refuse(r, request, &error);
    CHECK_CONTAINS(error.message, why);
}

void
rig_refused_by_each(void (*check)(const rig *r, const void *user), const void *user)
{
    static const char *const words[] = { "cpu", "sim:64MiB" };
    static const fake_cuda_machine gpu = { .count = 1, .driver = 13000, .architecture = 90,
                                           .memory_bytes = UINT64_C(64) << 20,
                                           .is_late = true };
    rig r;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        T_REQUIRE(rig_open(&r, words[i]));
        check(&r, user);
        rig_close(&r);
    }
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    check(&r, user);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    CHECK_EQ(fake_cuda_read().launches, 0);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* With one of the arguments behind where it lies; RIG_PARTS: with none. */
static void
check_shifted(const rig *r, const rig_exact *e, uint8_t *const *parts, uint32_t odd)
{
    const bool is_refused = odd < e->count && (e->used >> odd & 1) != 0;
    const uint64_t before = rig_now(r);
    uint64_t bytes = 0;
    berthi_request request;
    uint8_t *at[RIG_PARTS];

    for (uint32_t i = 0; i < e->count; i++) {
        at[i] = parts[i] + (i == odd ? 4 : 0);
        bytes += (e->counted >> i & 1) != 0 ? e->sizes[i] : 0;
    }
    request = e->request(e->user, at);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL),
             is_refused ? BERTH_EINTERNAL : BERTH_OK);
    rig_sync(r->device, NULL);
    CHECK_EQ(rig_now(r) - before, is_refused ? 0 : (bytes + 1) / 2);
}

void
rig_check_exact(const rig *r, const rig_exact *e)
{
    uint8_t *parts[RIG_PARTS];

    for (uint32_t i = 0; i < e->count; i++) {
        parts[i] = rig_alloc(r->device, e->sizes[i]);
        memset(parts[i], 0, e->sizes[i]);
    }
    check_shifted(r, e, parts, RIG_PARTS);
    for (uint32_t odd = 0; odd < e->count; odd++)
        check_shifted(r, e, parts, odd);
    for (uint32_t i = 0; i < e->count; i++)
        r->device->table->free(r->device, parts[i], e->sizes[i]);
}
