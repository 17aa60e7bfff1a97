/* SPDX-License-Identifier: Apache-2.0 */
/* launch_write.c - few words of the host, see launch.h */
#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/launch_grid.h"

berth_status
berthi_launch_write(void *to, const void *from, uint64_t bytes, berthi_launch *out,
                    berth_error *error)
{
    berthi_write_kernel *const k = &out->argument.write;

    out->kernel = KERNEL_NONE;
    if (bytes > sizeof k->words || bytes % sizeof *k->words != 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no kernel brings %" PRIu64 " bytes along: words, and %zu at most",
                           bytes, sizeof k->words);
    if (!berthi_is_aligned(to, sizeof *k->words))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "words at an address that is no multiple of %zu", sizeof *k->words);
    k->to = to;
    k->count = (uint32_t)(bytes / sizeof *k->words);
    memcpy(k->words, from, bytes);
    return berthi_launch_set_grid(out, KERNEL_write_words, WRITE_THREADS, k->count != 0, error);
}
