/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_keep.c - the statistics of a weight that is stored already as it is to
 * be stored (recipe_keep.c): absmax and row maxima are copied, and what is
 * written anew from the encoding alone is only read for the source's digests.
 *
 * Nothing is decoded, so non-finite values are not counted one by one: the
 * statistics without which no value can be NaN or infinite are.
 */
#include <math.h>

#include "kernels/digest.h"
#include "loader/convert_batch.h"

/* What the companion is copied to; COUNT: to nothing. */
static berthi_role
role_of(const berthi_run *run, uint32_t number)
{
    if (run->record->encoding == BERTH_ENCODING_INT8)
        return number == 0 ? BERTHI_ROLE_ROW_MAXIMUM : BERTHI_ROLE_COUNT;
    if (number == 0)
        return BERTHI_ROLE_ABSMAX;
    return number == 1 && run->record->is_double ? BERTHI_ROLE_ABSMAX2
                                                 : BERTHI_ROLE_COUNT;
}

static void
count_nonfinite(berthi_run *run, const void *values, uint64_t bytes)
{
    const berthi_nonfinite found =
        berthi_quantize_nonfinite(values, BERTH_F32, bytes / sizeof(float));

    atomic_fetch_add(&run->nan, found.nan);
    atomic_fetch_add(&run->infinite, found.infinite);
}

static berth_status
copy_companion(berthi_batch *batch, berthi_run *run, uint32_t number, berth_error *error)
{
    const berthi_entry *const entry = berthi_run_companion(batch, run, number);
    const uint64_t bytes = entry->end - entry->begin;
    const berthi_role role = role_of(run, number);
    uint32_t crc = 0;

    for (uint64_t at = 0; at < bytes; at += run->plan.memory) {
        const uint64_t part = berthi_min_u64(bytes - at, run->plan.memory);
        berth_status status =
            berthi_companion_read(batch, entry, at, run->memory, part, error);

        if (status == BERTH_OK && role != BERTHI_ROLE_COUNT)
            status = berthi_batch_put(batch, run, role, at, run->memory, part, error);
        if (status != BERTH_OK)
            return status;
        if (role != BERTHI_ROLE_COUNT && entry->dtype == BERTH_F32)
            count_nonfinite(run, run->memory, part);
        crc = berthi_digest_crc32(crc, run->memory, part);
    }
    berthi_companion_digest(batch, entry, crc);
    return BERTH_OK;
}

berth_status
berthi_run_keep(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    const double offset = run->record->is_double ? run->record->offset : 0;
    berth_status status = BERTH_OK;

    atomic_fetch_add(&run->nan, isnan(offset) != 0);
    atomic_fetch_add(&run->infinite, isinf(offset) != 0);
    for (uint32_t i = 0; i < run->record->companion_count && status == BERTH_OK; i++)
        status = copy_companion(batch, run, i, error);
    return status;
}
