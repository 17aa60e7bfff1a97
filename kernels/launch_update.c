/* SPDX-License-Identifier: Apache-2.0 */
/* launch_update.c - updates and what they need of gradients, see launch.h */
#include "kernels/launch_grid.h"
#include "kernels/number.h"

#include <math.h>
#include <string.h>

/* Bytes of so many elements. */
static uintptr_t
share_bytes(int32_t dtype, uint32_t elements)
{
    return (uintptr_t)berthi_number_bytes(dtype) * elements;
}

/* What a lane reads at once has 16 bytes at most. */
static bool
is_share_aligned(const void *values, int32_t dtype, uint32_t elements)
{
    const uintptr_t bytes = share_bytes(dtype, elements);

    return berthi_is_aligned(values, bytes < 16 ? bytes : 16);
}

/* ------------------------------------------------------------------- updates */

static bool
is_update_aligned(const berthi_update_arguments *a, uint32_t states)
{
    bool is_aligned = is_share_aligned(a->parameter, a->dtype, UPDATE_LANE)
                      && is_share_aligned(a->gradient, a->gradient_dtype, UPDATE_LANE)
                      && is_share_aligned(a->master, BERTH_F32, UPDATE_LANE);

    for (uint32_t k = 0; k < states; k++)
        is_aligned = is_aligned
                     && (a->state[k].values != NULL
                             ? is_share_aligned(a->state[k].values, BERTH_F32, UPDATE_LANE)
                             : berthi_is_aligned(a->state[k].codes, UPDATE_LANE));
    return is_aligned;
}

/* Adam as it is used most: the kernel for it has none of the others' choices. */
static bool
is_plain_adam(const berthi_update_arguments *a, const berthi_update_constants *c)
{
    return (c->kind == BERTHI_UPDATE_ADAM || c->kind == BERTHI_UPDATE_ADAMW)
           && a->dtype == a->gradient_dtype && a->master == NULL && !c->is_coupled
           && a->state[0].values == NULL && a->state[1].values == NULL;
}

static bool
is_within(float value, float least, float most)
{
    return value >= least && value <= most; /* NaN is not */
}

/* What keeps divisors and means within the range that adam8.cuh divides in. */
static bool
has_usual_constants(const berthi_update_constants *c)
{
    const float correction = c->correction * 0x1p32f;

    return is_within(c->correction, 0x1p-30f, 1.0f) && is_within(c->epsilon, 0x1p-30f, 1.0f)
           && is_within(c->rest1, 0x1p-30f, 1.0f)
           && (c->beta1 == 0.0f || is_within(c->beta1, 0x1p-10f, 1.0f))
           && fmaf(correction, c->epsilon, ADAM8_NOTHING_ROOT)
                  == fmaf(correction, c->epsilon, 0.0f);
}

berth_status
berthi_launch_update(const berthi_update_request *r, berthi_launch *out, berth_error *error)
{
    static const berthi_kernel_id kernels[2][3] =
        { OF_DTYPES(update, ), OF_DTYPES(update, _adam8) };
    berthi_update_kernel *const k = &out->argument.update;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(r->arguments.dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    k->arguments = r->arguments;
    k->constants = r->constants;
    k->not_finite = r->not_finite;
    k->states = berthi_update_states((berthi_update_kind)r->constants.kind);
    k->turns = berthi_update_turns(r->arguments.count);
    k->is_aligned = is_update_aligned(&r->arguments, k->states);
    k->is_usual = k->is_aligned && has_usual_constants(&r->constants);
    memcpy(k->maps[0], berthi_signed_map, sizeof k->maps[0]);
    memcpy(k->maps[1], berthi_unsigned_map, sizeof k->maps[1]);
    return berthi_launch_set_grid(out,
                                  kernels[is_plain_adam(&r->arguments, &r->constants)][dtype],
                                  UPDATE_THREADS, berthi_update_ctas(r->arguments.count),
                                  error);
}

/* ----------------------------------------------------------------- gradients */

berth_status
berthi_launch_measure(const berthi_measure_arguments *a, berthi_launch *out,
                      berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(measure, );
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    out->argument.measure = *a;
    return berthi_launch_set_grid(out, kernels[dtype], GRADIENT_THREADS,
                                  berthi_measure_ctas(a->count), error);
}

berth_status
berthi_launch_accumulate(const berthi_accumulate_arguments *a, berthi_launch *out,
                         berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(accumulate, );
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_launch_find_dtype(a->sum_dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    out->argument.accumulate = (berthi_accumulate_kernel){
        .arguments = *a,
        .is_aligned = is_share_aligned(a->sum, a->sum_dtype, GRADIENT_LANE)
                      && is_share_aligned(a->gradient, a->dtype, GRADIENT_LANE),
    };
    return berthi_launch_set_grid(out, kernels[dtype], GRADIENT_THREADS,
                                  berthi_accumulate_ctas(a->count), error);
}
