/* SPDX-License-Identifier: Apache-2.0 */
/* launch_decoder.c - a decoder's steps, see launch.h */
#include <inttypes.h>

#include "kernels/base.h"
#include "kernels/launch_grid.h"

static berth_status
set_grid(berthi_launch *out, berthi_kernel_id kernel, uint64_t ctas, berth_error *error)
{
    return berthi_launch_set_grid(out, kernel, STEP_THREADS, ctas, error);
}

/* Checked: no products of sizes overflow. */
static uint32_t
share_of(uint32_t share)
{
    return share != 0 ? share : 1;
}

berth_status
berthi_launch_take(const berth_take *s, berthi_launch *out, berth_error *error)
{
    out->argument.take = *s;
    out->argument.take.share = share_of(s->share);
    return set_grid(out, KERNEL_take, s->count * berthi_take_ctas_of_row(s->columns), error);
}

berth_status
berthi_launch_norm(const berth_norm *s, berthi_launch *out, berth_error *error)
{
    out->argument.norm = *s;
    return berthi_launch_set_grid(out, KERNEL_norm, NORM_THREADS,
                                  s->columns != 0 ? s->count : 0, error);
}

berth_status
berthi_launch_rotate(const berth_rotate *s, berthi_launch *out, berth_error *error)
{
    const uint64_t heads = (uint64_t)s->heads + s->kv_heads;

    out->argument.rotate = *s;
    return set_grid(out, KERNEL_rotate, berthi_step_ctas(s->count * heads), error);
}

berth_status
berthi_launch_attend(const berth_attend *s, berthi_launch *out, berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(attend, );
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(s->cache_dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    out->argument.attend = *s;
    return set_grid(out, kernels[dtype], (uint64_t)s->count * s->heads, error);
}

berth_status
berthi_launch_gate(const berth_gate *s, berthi_launch *out, berth_error *error)
{
    out->argument.gate = *s;
    return set_grid(out, KERNEL_gate, berthi_take_ctas_of_row(s->elements), error);
}

berth_status
berthi_launch_add(const berth_add *s, berthi_launch *out, berth_error *error)
{
    const uint64_t parts = s->sum_rows * berthi_add_parts_of_row(s->columns);

    out->argument.add = *s;
    out->argument.add.share = share_of(s->share);
    return set_grid(out, KERNEL_add, s->count != 0 ? berthi_step_ctas(parts) : 0, error);
}

berth_status
berthi_launch_choose(const berth_choose *s, berthi_launch *out, berth_error *error)
{
    out->argument.choose = *s;
    return set_grid(out, KERNEL_choose, berthi_step_ctas(s->count), error);
}

berth_status
berthi_launch_largest(const berth_largest *s, berthi_launch *out, berth_error *error)
{
    out->kernel = KERNEL_NONE;
    if (s->columns > UINT32_MAX / 2) /* a lane counts on, beyond the last one */
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "rows of %" PRIu32 " columns",
                           s->columns);
    out->argument.largest = *s;
    return berthi_launch_set_grid(out, KERNEL_largest, LARGEST_THREADS, s->count, error);
}
