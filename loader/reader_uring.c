/* SPDX-License-Identifier: Apache-2.0 */
/* reader_uring.c - reads through io_uring; the only file that includes liburing.h. */
#include "loader/reader.h"

static berth_status
open_ring(berth_context *context, const berthi_reader_options *options,
          berthi_reader **out_reader, berth_error *error)
{
    (void)context;
    (void)options;
    *out_reader = NULL;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "this build has no io_uring");
}

const berthi_reader_table berthi_reader_uring = {
    .name = "io_uring",
    .open = open_ring,
};
