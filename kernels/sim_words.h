/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_words.h - the words that describe simulated devices: berth-devices(5).
 * Pure: no devices, no memory of its own.
 */
#ifndef BERTH_KERNELS_SIM_WORDS_H
#define BERTH_KERNELS_SIM_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device_words.h"

#define BERTHI_SIM_RATE_LIMIT (UINT64_C(1) << 62)
#define BERTHI_SIM_TIME_LIMIT UINT64_C(3600000000000) /* an hour, in nanoseconds */
#define BERTHI_SIM_JITTER_LIMIT 1000u

/* One device. */
typedef struct berthi_sim_device_words {
    uint64_t memory_bytes;
    uint64_t rate_to_device; /* bytes a second */
    uint64_t rate_to_host;
    uint64_t rate_memory;
    uint64_t rate_to_peer; /* to devices that have one, too: the lower counts; 0: to none */
    uint64_t latency_ns; /* of a copy over a link, before its first byte */
    uint64_t operation_ns; /* of an operation, beyond its bytes */
    uint64_t pin_bytes;  /* that may be pinned at once; UINT64_MAX: no limit */
    uint32_t jitter;     /* per cent that work takes longer, at most */
    int32_t numa_node;   /* that it says it is at; -1: it does not */
    uint32_t root;       /* devices of one root share its link; 0: its own */
    bool keeps_digests;  /* of large allocations, instead of their bytes */
    bool is_sealed;      /* only its own work touches memory */
#ifdef BERTH_TESTING
    uint64_t lose;        /* the call that loses the device, from 1; 0: none */
    uint64_t stall;       /* the record that never passes */
    uint64_t hang;        /* the copy that does not end before berthi_sim_release() */
    uint64_t steal_bytes; /* that somebody else has taken */
#endif
} berthi_sim_device_words;

typedef enum berthi_sim_pick {
    BERTHI_SIM_PICK_FIRST, /* what was asked for first */
    BERTHI_SIM_PICK_LAST,
    BERTHI_SIM_PICK_RANDOM
} berthi_sim_pick;

/* When, between its beginning and its end, work reads and writes memory. */
typedef enum berthi_sim_touch {
    BERTHI_SIM_TOUCH_RANDOM,
    BERTHI_SIM_TOUCH_BEGIN,
    BERTHI_SIM_TOUCH_END
} berthi_sim_touch;

/* What the devices of a machine share. */
typedef struct berthi_sim_machine_words {
    bool is_real;  /* its clock */
    int32_t pick;  /* berthi_sim_pick: among work that is ready */
    int32_t touch; /* berthi_sim_touch */
    uint64_t seed;
} berthi_sim_machine_words;

typedef struct berthi_sim_words {
    berthi_sim_machine_words machine;
    uint32_t count;
    berthi_sim_device_words devices[BERTHI_DEVICES_LIMIT];
} berthi_sim_words;

/* Fails with ARGUMENT, naming the item. */
berth_status berthi_sim_words_parse(const char *text, berthi_sim_words *out,
                                    berth_error *error);

#endif
