/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.cuh - few words of the host, which come along as the kernel's argument: nobody waits
 * until they are there, and a graph has them as part of itself.
 *
 *   launch    one CTA of WRITE_THREADS
 *   traffic   4 B a word
 */
#ifndef BERTH_KERNELS_WRITE_CUH
#define BERTH_KERNELS_WRITE_CUH

#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

SIMT_INLINE void
write_words(const berthi_write_kernel *a)
{
    SIMT_NO_UNROLL
    for (uint32_t i = simt_thread(); i < a->count; i += WRITE_THREADS)
        a->to[i] = a->words[i];
}

SIMT_KERNEL(berthi_write_words, WRITE_THREADS, berthi_write_kernel, write_words(a))

#endif
