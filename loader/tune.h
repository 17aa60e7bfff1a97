/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.h - how many buffers of a ring are worth filling at once: a few at first, and more
 * as long as that makes reading faster.
 *
 * Every quarter of a second in which consumers had nothing to do for more than 2 % of the
 * time, because every buffer was being filled: there are twice as many; where the rate has not
 * gained 3 % by that, there are as many as before, and it ends. Bytes under way = rate times
 * latency, and nobody knows either beforehand. Buffers beyond that are memory that has to
 * come, and to be pinned, and what is read into them is in no cache when it is consumed.
 *
 * It decides, and does nothing else: time and all the rest are told.
 */
#ifndef BERTH_LOADER_TUNE_H
#define BERTH_LOADER_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#define BERTHI_TUNE_STAGES 8u /* that a ring begins with, or fewer */

/* Since the beginning of whatever is tuned. */
typedef struct berthi_tune_sample {
    uint64_t now_ns;
    uint64_t bytes;   /* read */
    uint64_t idle_ns; /* every buffer in use was being filled: consumers had nothing */
} berthi_tune_sample;

typedef struct berthi_tune {
    uint32_t stages;         /* in use */
    uint32_t before;         /* the last step */
    uint32_t most;           /* that the ring has room for */
    bool is_settled;         /* it stays at that */
    berthi_tune_sample from; /* where the period began */
    double rate;             /* before that; 0: there was none */
} berthi_tune;

/* With so many, `most` where that is less; settled where there can be no more. */
void berthi_tune_begin(berthi_tune *tune, uint32_t stages, uint32_t most, uint64_t now_ns);
/* A period is over, and it matters. */
bool berthi_tune_is_due(const berthi_tune *tune, uint64_t now_ns);
/* It is due. Returns how many are in use from now on. */
uint32_t berthi_tune_look(berthi_tune *tune, const berthi_tune_sample *sample);

#endif
