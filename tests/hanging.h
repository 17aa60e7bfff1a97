/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hanging.h - models of which a copy hangs on a device that has pinned nothing, in tests:
 * who waits for it, and for how long.
 */
#ifndef BERTH_TESTS_HANGING_H
#define BERTH_TESTS_HANGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/hung.h"
#include "tests/loaded.h"

#define HANGING_WORDS  "sim:128MiB,pin=0,clock=real"
#define HANGING_PINNED "sim:128MiB,clock=real"
/* The second one pins what it likes. */
#define HANGING_BOTH HANGING_WORDS ";" HANGING_PINNED

#define HANGING_WAIT_NS    (UINT64_C(200) * HUNG_MS_NS)
#define HANGING_PATIENT_NS (UINT64_C(60000) * HUNG_MS_NS)
/* So long hangs a copy that nobody waits for, however much the machine has to do. */
#define HANGING_OTHERS_NS  (UINT64_C(20000) * HUNG_MS_NS)
/* Others are not as late as that on a machine that has much to do. */
#define HANGING_DISK_NS    (UINT64_C(2000) * HUNG_MS_NS)

typedef struct hanging {
    loaded l;
    uint64_t for_ns; /* at most */
    _Atomic bool is_told; /* to let the copy go */
    bool was_told;
    pthread_t thread;
} hanging;

/* The next copy hangs, for so long at most; whoever gives up would wait for longer. */
void hanging_begin(hanging *h, uint64_t for_ns);
void hanging_await(hanging *h);
void hanging_await_copy(hanging *h);

/*
 * Nothing so far has waited for the copy that hangs: it would have been for that long. Who
 * made it goes on as soon as it is let go, and looks at how long he may wait.
 */
void hanging_end(hanging *h);
void hanging_layers_on(hanging *h, const char *words, const char *place, uint32_t slots);
void hanging_layers(hanging *h, const char *place, uint32_t slots);

/* Who is in the call that waits for the copy. */
typedef struct caller caller;

struct caller {
    hanging *h;
    berth_status (*ask)(caller *c);
    uint32_t layer;
    const uint32_t *experts;
    uint32_t count;
    berth_status status;
    berth_error error;
    pthread_t thread;
};

berth_status caller_release_layer(caller *c);
void caller_start(caller *c);

/* The first copy that it asks for hangs. */
void caller_begin(caller *c);
void caller_end(caller *c);
void hanging_use_layer(hanging *h, uint32_t layer);

/* Three layers of the first device in host memory, three of the second one on the disk. */
void hanging_both(hanging *h, uint32_t slots);

#endif
