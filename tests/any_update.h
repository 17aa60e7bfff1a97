/* SPDX-License-Identifier: Apache-2.0 */
/* any_update.h - constants of an update at and beyond the ends of what anybody chooses. */
#ifndef BERTH_TESTS_ANY_UPDATE_H
#define BERTH_TESTS_ANY_UPDATE_H

#include <stdint.h>

#include "kernels/optimizer.h"
#include "tests/random.h"

#define ANY_OF(list, state) \
    ((list)[random_next(state) % (sizeof(list) / sizeof(list)[0])])

/* Whatever a group of this kind may have, and a step. */
static inline berthi_update_constants
any_update_constants(int kind, uint64_t *state)
{
    static const float betas[] = { 0.0f, 0x1p-30f, 0x1p-11f, 0.5f, 0.9f, 0.999f, 0x1.fffffep-1f };
    static const float epsilons[] = { 0.0f, 0x1p-149f, 1e-38f, 1e-30f, 0x1p-30f, 1e-8f,
                                      1.0f, 1e10f,     3e38f };
    static const float rates[] = { 0.0f, -0.0f, 1e-3f, -1e-3f, 1e-45f, 1.0f, 1e20f, 3e38f };
    static const float decays[] = { 0.0f, 0.01f, 1.0f, 1e3f, 1e38f, 1e-40f };
    /* 0: of a gradient so long that what clips it is none any more. */
    static const float scales[] = { 1.0f, -1.0f, 0.0f, 1e-45f, 1e-30f, 1e10f, 3e38f };
    static const float alphas[] = { 0.0f, 5.0f, -1.0f, 3e38f };
    static const uint64_t steps[] = { 1, 2, 1000, UINT64_C(1) << 31, UINT64_C(1) << 53 };
    berthi_update_settings s = berthi_update_defaults((berthi_update_kind)kind);
    const uint64_t changed = random_next(state);

    if (changed & 1)
        s.beta1 = ANY_OF(betas, state);
    if (changed & 2)
        s.beta2 = ANY_OF(betas, state);
    if (changed & 4)
        s.epsilon = ANY_OF(epsilons, state);
    if (changed & 8)
        s.rate = ANY_OF(rates, state);
    if (changed & 16)
        s.decay = ANY_OF(decays, state);
    if (changed & 32)
        s.scale = ANY_OF(scales, state);
    if (changed & 64)
        s.beta3 = ANY_OF(betas, state);
    if (changed & 128)
        s.alpha = ANY_OF(alphas, state);
    if (changed & 256)
        s.beta3_steps = ANY_OF(steps, state);
    if (changed & 512)
        s.alpha_steps = ANY_OF(steps, state);
    s.is_coupled = (changed & 3072) == 0;
    return berthi_update_constants_of(&s, ANY_OF(steps, state));
}

#endif
