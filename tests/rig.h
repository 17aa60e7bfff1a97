/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig.h - devices for a test, with the calls it makes shortened: each checks that the
 * call succeeds.
 */
#ifndef BERTH_TESTS_RIG_H
#define BERTH_TESTS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"

typedef struct rig {
    berth_context *context;
    berthi_devices *devices;
    berthi_device *device; /* the first one */
} rig;

/* False after a failed check. Ends with rig_close() in any case. */
bool rig_open(rig *r, const char *words);
/* GPUs by these calls. */
bool rig_open_cuda(rig *r, const berthi_cuda_calls *calls, const char *words);
/* Checks that everything has been given back. */
void rig_close(rig *r);
berthi_device *rig_at(const rig *r, uint32_t number);

void *rig_alloc(berthi_device *device, uint64_t bytes);
/* Host memory, whole pages, pinned for every device of the rig; filled with `byte`. */
uint8_t *rig_pinned(const rig *r, uint64_t bytes, uint8_t byte);
void rig_unpinned(const rig *r, uint8_t *memory, uint64_t bytes);
berthi_stream *rig_stream(berthi_device *device);
berthi_event *rig_event(berthi_device *device);

void rig_to_device(berthi_device *device, void *to, const void *from, uint64_t bytes,
                   berthi_stream *stream);
void rig_to_host(berthi_device *device, void *to, const void *from, uint64_t bytes,
                 berthi_stream *stream);
/* Nothing but time. */
void rig_compute(berthi_device *device, uint64_t ns, berthi_stream *stream);
void rig_call(berthi_device *device, void (*call)(void *user), void *user, uint64_t ns,
              berthi_stream *stream);
void rig_record(berthi_device *device, berthi_event *event, berthi_stream *stream);
void rig_wait(berthi_device *device, berthi_stream *stream, berthi_event *event);
void rig_await(berthi_device *device, berthi_event *event);
/* Until the stream has done what it was asked for. */
void rig_sync(berthi_device *device, berthi_stream *stream);
uint64_t rig_now(const rig *r);
/* The device does not take such a request: what it says is `error`'s message. */
void rig_refuse(const rig *r, const berthi_request *request, berth_error *error);
/* The same; `why` is among its words. */
void rig_check_refused(const rig *r, const berthi_request *request, const char *why);
/*
 * `check` has requests refused by the host, by a simulated device and by a GPU of fake_cuda.h,
 * which is asked for nothing meanwhile.
 */
void rig_refused_by_each(void (*check)(const rig *r, const void *user), const void *user);

#define RIG_PARTS 16u

/* A request's arguments: bit by bit those that it has, and those whose bytes take time. */
typedef struct rig_exact {
    const uint64_t *sizes;
    uint32_t count; /* RIG_PARTS at most */
    uint32_t used;
    uint32_t counted;
    berthi_request (*request)(const void *user, uint8_t *const *at);
    const void *user;
} rig_exact;

/*
 * On a simulated device of 2 bytes a nanosecond: arguments lie in memory that is exactly as
 * large, and one that begins 4 bytes behind is refused, and takes no time.
 */
void rig_check_exact(const rig *r, const rig_exact *e);

#endif
