/* SPDX-License-Identifier: Apache-2.0 */
/* stepped.c - see stepped.h. */
#include "tests/stepped.h"

#include <math.h>

#include "kernels/core.h"

const trained_parameter stepped_two[] = {
    { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
    { 500, BERTH_F32, BERTH_F32, 0, 0 },
};

berth_context *stepped_context;

bool
stepped_open_sums(trained *t, const char *machine, const berth_optimizer_options *options,
                  bool has_sums)
{
    const berth_optimizer_group g = trained_adamw();

    return trained_open(t, stepped_context,
                        &(trained_options){ .devices = machine,
                                            .groups = &g,
                                            .group_count = 1,
                                            .parameters = stepped_two,
                                            .count = 2,
                                            .optimizer = options,
                                            .has_sums = has_sums });
}

bool
stepped_open(trained *t, const char *machine, const berth_optimizer_options *options)
{
    return stepped_open_sums(t, machine, options, false);
}

double
stepped_norm(const trained *t, double scale)
{
    double sum = 0;

    for (uint32_t i = 0; i < t->count; i++)
        for (uint64_t k = 0; k < t->parameters[i].count; k++) {
            const double g = (double)berthi_core_load(t->twins[i].host_gradient,
                                                      t->parameters[i].gradient_dtype, k);

            sum += isfinite(g) ? g * g : 0;
        }
    return sqrt(sum) * scale;
}
