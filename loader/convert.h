/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - berth_convert_start() with the sizes that it else chooses itself:
 * how small pieces may be, and how much of them there is at a time.
 */
#ifndef BERTH_LOADER_CONVERT_H
#define BERTH_LOADER_CONVERT_H

#include <stdint.h>

#include "loader/berth.h"

typedef struct berthi_convert_sizes {
    uint64_t unit_bytes;      /* what a unit reads ...                                */
    uint64_t unit_values;     /* ... and what it makes of that both stay below        */
    uint64_t unit_values_max; /* of one that has to be larger: rows of INT8, experts  */
    uint64_t strip;           /* bytes of a turned weight that are put together at a
                                 time                                                 */
    uint64_t pool;            /* memory of weights under way; a larger one comes alone */
    uint64_t workers;         /* scratch of all of them: fewer work on large units    */
    uint64_t ring;            /* staging ring, when the options leave it open         */
    uint64_t parcels;         /* bytes that wait for lengths of other parts           */
    uint64_t patience_ns;     /* how long such a length is waited for                 */
} berthi_convert_sizes;

/* With these a conversion stays within 256 MiB and what one weight needs. */
extern const berthi_convert_sizes berthi_convert_default_sizes;

/* `sizes` is copied. The files do not depend on it. */
berth_status berthi_convert_start(berth_context *context, berth_checkpoint *checkpoint,
                                  const berth_convert_options *options,
                                  const berthi_convert_sizes *sizes, berth_job **out_job,
                                  berth_error *error);

#endif
