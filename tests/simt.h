/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt.h - a machine that runs the kernels of kernels/simt.h on the host.
 *
 * Every lane of a CTA is a fiber. A lane runs until it waits at a barrier or a
 * shuffle, or ends; then the next one of its warp does, and a warp goes on as far
 * as barriers let it before the next one. Lanes, warps and CTAs come in the order
 * that the launch asks for; in a random order a warp, and the turn of its lanes,
 * often ends earlier. Whatever a body computes must be the same in every order:
 * where it is not, a barrier is missing.
 *
 * What hardware forbids or leaves open is a complaint: a barrier or a shuffle
 * that some lanes do not reach, lanes of a warp that meet for different things, a
 * wide access at an odd address, a write beyond shared memory (which starts as
 * 0xCD, with a fence behind every array), a lane that ends while its copies to
 * shared memory are on their way. In ascending order these come when they have
 * been waited for and not before, in descending order at once, in a random order
 * now the one and now the other. So do tiles (kernels/simt_wide.h), late ones when no
 * lane goes on any more, and wide products, which are computed of what is there then.
 *
 * Of earlier work in the stream a launch may name the memory. In its first CTAs every bit
 * there is turned until that work has ended: in ascending order when no lane goes on
 * without it, in descending order when the first one waits for it, in a random order now
 * so and now so. What was read before that is wrong; what was written is a complaint, and
 * so is a CTA of which no lane waits.
 *
 * Built with the thread sanitizer, every lane is one of its threads: what two lanes of a CTA
 * touch, and one of them writes, without a barrier or a gate between them is a race. It tells
 * where, whatever came of it, and the launch ends with that complaint. (Shuffles order no memory,
 * as on a device.)
 */
#ifndef BERTH_TESTS_SIMT_H
#define BERTH_TESTS_SIMT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum simt_order {
    SIMT_ASCENDING,
    SIMT_DESCENDING,
    SIMT_RANDOM, /* another order each time that all had their turn */
    SIMT_ORDER_COUNT
} simt_order;

/* Neither constant nor part of another one. */
typedef struct simt_memory {
    void *begin;
    uint64_t bytes;
} simt_memory;

typedef struct simt_launch {
    uint32_t threads;   /* of a CTA: whole warps, at most SIMT_MOST_THREADS */
    uint64_t ctas;      /* of the grid */
    uint64_t first_cta; /* only those from here on are run */
    uint32_t room_bytes; /* of shared memory beside what the kernel declares */
    simt_order order;
    uint64_t seed;      /* of SIMT_RANDOM */
    bool is_racy;       /* known to be: the sanitizer is silent, and there is the complaint */
    bool is_ascending;  /* CTAs are, whatever the order is of lanes: where they wait for others */
    const simt_memory *earlier; /* may be written by earlier work until it is waited for */
    uint32_t earlier_count;
} simt_launch;

#define SIMT_MOST_THREADS 1024u
#define SIMT_SHARED_BYTES 49152u /* what a kernel may declare */
#define SIMT_MOST_ROOM 232448u   /* what a launch may give it */

/* False: this machine cannot switch fibers here, say so and skip. */
bool simt_has_fibers(void);
/* Whether races are seen here, whatever comes of them; and what is said then. */
bool simt_sees_races(void);
#define SIMT_RACE "memory that lanes touch without having met"
/* NULL, or what a lane did that hardware would not stand. */
const char *simt_run(const simt_launch *launch, void (*kernel)(const void *argument),
                     const void *argument);

#endif
