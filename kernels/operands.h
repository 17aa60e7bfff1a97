/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operands.h - what of a device's memory an operation reads and writes: said here, once for each.
 *
 *   operands.c          of weights, products and optimizers
 *   operands_decoder.c  of a decoder's steps
 *   operands_add.h      what these two list them by
 *
 * A CUDA device refuses addresses by it, for kernels that access an odd one end a GPU for the whole
 * process. A simulated device knows by it what lies outside of memory, how long an operation takes
 * and what has to stand in for memory of which it keeps digests.
 */
#ifndef BERTH_KERNELS_OPERANDS_H
#define BERTH_KERNELS_OPERANDS_H

#include "kernels/device.h"

#define BERTHI_OPERANDS 10u

typedef struct berthi_operand {
    const char *name; /* for a refusal */
    void *memory;
    size_t slot;      /* where the pointer stands in the request */
    uint64_t bytes;   /* never 0 */
    uint32_t unit;    /* its address is a multiple of */
    bool is_read;
    bool is_written;  /* and not read: each byte of it */
} berthi_operand;

typedef struct berthi_operands {
    const berthi_request *request;
    berthi_operand items[BERTHI_OPERANDS];
    uint32_t count;
    bool are_impossible; /* sizes that no memory has */
} berthi_operands;

/* Of a request that berthi_operation_check() takes. False: sizes that no memory has. */
bool berthi_operands_can_list(const berthi_request *request, berthi_operands *out);
/* BERTH_OK, or UNSUPPORTED: an address that no kernel takes. */
berth_status berthi_operands_check_addresses(const berthi_operands *operands,
                                             berth_error *error);
/* Bytes that it moves: of some operands only a part, of experts also weights, which are none. */
double berthi_operands_moved(const berthi_operands *operands);

/* Of a decoder's step; nothing of other operations. */
void berthi_operands_add_step(berthi_operands *out);
double berthi_operands_unread_of_step(const berthi_request *request);

#endif
