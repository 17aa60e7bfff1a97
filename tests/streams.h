/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - in tests: layers and experts of several simulated devices come through one ring,
 * copies to some of them hang, and somebody uses each.
 */
#ifndef BERTH_TESTS_STREAMS_H
#define BERTH_TESTS_STREAMS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/loaded.h"

#define STREAMS_DEVICES 3u
#define STREAMS_LAYERS  3u /* of each device; one does not fit into the ring */
#define STREAMS_EXPERTS 16u
#define STREAMS_RING_BYTES     (UINT64_C(256) << 10)
/* Its chunks are large enough to be waited for where they are not pinned. */
#define STREAMS_BIG_RING_BYTES (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------- a model */

typedef struct streams {
    loaded l;
    uint32_t devices;
    uint32_t unpinned; /* a bit for each that pins nothing */
    bool no_uring;
    uint32_t first; /* layer; a device's lie together */
    _Atomic uint64_t *read; /* bytes; NULL: nobody counts them */
} streams;

/* Layers of each device, which have been there once. `ring_bytes`: 0: as large as a load's. */
void streams_begin_layers(streams *h, uint32_t devices, uint64_t ring_bytes);
/* A layer of each device, and its experts. */
void streams_begin_both(streams *h, uint32_t devices);
/* The next copy to the device hangs, and whatever it is asked for behind that. */
void streams_hang(streams *h, uint32_t device);
void streams_recover(streams *h, uint32_t device);

/* ------------------------------------------------------------------ who uses a device */

/* Layers of a device, in their order, or experts of one layer, or that. */
typedef struct streams_user streams_user;
struct streams_user {
    streams *h;
    uint32_t device;
    berth_status (*use)(streams_user *u, uint32_t number, berth_error *error);
    uint32_t count;
    bool rests; /* between uses, when he has gone on for long */
    _Atomic bool is_stopped;
    _Atomic uint32_t uses;
    _Atomic uint32_t refused;
    berth_error error; /* of the last one that was */
    pthread_t thread;
};

streams_user streams_layer_user(streams *h, uint32_t device);
streams_user streams_expert_user(streams *h, uint32_t device);
streams_user streams_only_layer_user(streams *h, uint32_t device);
/* The next one; false: it was refused. */
bool streams_use(streams_user *u);
/* He goes on until he is stopped. */
void streams_start(streams_user *u);
void streams_stop(streams_user *u);
/* His device hangs: until he is told so. */
void streams_use_until_told(streams_user *u);
/* Who goes on gets so many, however slow the machine; then he is stopped. */
void streams_end_uses(streams_user *u, uint32_t least);

/* -------------------------------------------------------------------- what is seen */

/*
 * Whoever uses the device that hangs asks for more until he is told, and meanwhile somebody
 * uses each of the others. Then it comes back.
 */
void streams_see_one_hang(uint64_t ring_bytes, uint32_t devices, uint32_t unpinned,
                          uint32_t hung);
/* The last one goes on. */
void streams_see_two_of_three_hang(uint64_t ring_bytes, uint32_t unpinned);
/* Layers come again when it does, whatever others ask for. */
void streams_see_one_come_back(uint64_t ring_bytes, uint32_t unpinned);
/* The first of two devices hangs, and experts of the second one come. */
void streams_see_experts(uint32_t unpinned);
/*
 * The ring is full of the layer of a device that nobody uses, and experts of both devices are
 * used without a pause. A layer of the first one comes all the same, and so do experts of the
 * second.
 */
void streams_see_both(bool has_hung, uint32_t unpinned);

#endif
