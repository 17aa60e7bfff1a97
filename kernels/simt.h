/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt.h - what the body of a kernel may use beside core.h: its place in the
 * grid, shared memory, barriers, shuffles, wide loads and stores.
 *
 * Under nvcc each is one CUDA word (simt_cuda.cuh). Everywhere else it is a call
 * into a machine that runs the lanes of a CTA one after the other (simt_lanes.h,
 * tests/simt.c), so that a body is proved on any computer: in every order of
 * lanes, with its shared memory fenced and its accesses checked. The library
 * itself links no body.
 *
 *   SIMT_KERNEL(name, threads, type, call)   a kernel of `threads` lanes a CTA
 *       whose argument is one `type`; `call` is made with `a`, a pointer to it
 *   SIMT_KERNEL_OF(name, threads, resident, type, call)   the same with so many
 *       lanes on a processor, which share its registers
 *   SIMT_KERNEL_AHEAD(name, threads, resident, type, call)   the same, which waits for
 *       earlier work itself
 *   SIMT_SHARED(type, name, count)           `name` points to `count` of them in
 *       the CTA's memory; every lane declares the same ones in the same order
 *   SIMT_ROOM(name, bytes)                   `name` points to bytes of it of which the
 *       launch says how many there are: more than 48 KiB; at most one a kernel
 *   simt_barrier()                           all lanes of the CTA
 *   simt_warp_barrier()                      all 32 lanes of a warp
 *   simt_shuffle*(value, ...)                all 32 lanes of a warp
 *   simt_ballot(is), simt_all(is)            the same
 *   simt_largest(word)                       the same: the largest of the warp's words
 *   simt_multiply_*(sums, rows, columns)     all 32 lanes, each with its fragments
 *   simt_load*, simt_read*, simt_store*      aligned to what they move
 *   simt_copy16(to, from)                    16 bytes to shared memory, while the lane
 *       goes on; simt_copy8(), simt_copy4() as many. simt_end_copies() makes one group of
 *       those since the last one, and simt_wait_copies(count) is there when all but the lane's
 *       last groups are: for other lanes when they have met it behind that
 *   simt_wait_for_earlier()                  what kernels begin with: before it they write
 *       nothing, and read nothing that earlier work of the stream may be writing (a kernel
 *       has it already, but for those of SIMT_KERNEL_AHEAD)
 *   simt_let_later_come()                    of a lane that waits late: nothing of the stream's
 *       later work is held up by it
 *   simt_atomic_or(word, bits)               a word of global memory
 *   simt_atomic_add(count, more)             eight bytes of it
 *
 * Bodies keep to what C11 and CUDA C++ have in common. Variants are made by
 * constants given to SIMT_INLINE functions.
 */
#ifndef BERTH_KERNELS_SIMT_H
#define BERTH_KERNELS_SIMT_H

#ifdef __CUDACC__
#include "kernels/simt_cuda.cuh"
#else
#include "kernels/simt_lanes.h"
#endif

/* Lanes that a processor holds, each with 64 registers; the oldest holds no more. */
#define SIMT_RESIDENT 1024
/* So many each have 128. */
#define SIMT_RESIDENT_WIDE 512
#define SIMT_KERNEL_OF(name, threads, resident, type, call)                           \
    SIMT_KERNEL_AHEAD(name, threads, resident, type, simt_wait_for_earlier(); call)
#define SIMT_KERNEL(name, threads, type, call)                                        \
    SIMT_KERNEL_OF(name, threads, SIMT_RESIDENT, type, call)

#endif
