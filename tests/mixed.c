/* SPDX-License-Identifier: Apache-2.0 */
/* mixed.c - see mixed.h. */
#define _DEFAULT_SOURCE
#include "tests/mixed.h"

#include "loader/lease.h"
#include "loader/reader.h"
#include "tests/t.h"

leased_options
mixed_options(mixed kind, uint32_t slots, const char *devices)
{
    leased_options options = { .memory = "0=64MiB,cpu=64MiB,disk=inf",
                               .slots = slots,
                               .devices = devices };

    switch (kind) {
    case MIXED_DISK: options.pins[0] = "model.layers=disk"; break;
    case MIXED_PARTS:
        options.pins[0] = "model.layers.*.mlp=disk";
        options.pins[1] = "model.layers=cpu";
        break;
    case MIXED_BOTH:
        options.pins[0] = "model.layers.1-2=disk";
        options.pins[1] = "model.layers.4=cpu";
        options.pins[2] = "model.layers.5=disk";
        options.pins[3] = "model.layers.7=cpu";
        break;
    case MIXED_HOST:
        options.memory = "cpu=64MiB,disk=inf";
        options.pins[0] = "model.layers=disk";
        options.devices = NULL;
        break;
    }
    return options;
}

berth_lease_summary
mixed_summary(const leased *l)
{
    berth_lease_summary out;

    berthi_leases_summary(l->leases, &out);
    return out;
}

bool
mixed_start(leased *l, uint64_t ring_bytes)
{
    berth_error error;

    l->options.ring_bytes = ring_bytes;
    if (CHECK_EQ(leased_start(l, &error), BERTH_OK))
        return true;
    T_NOTE("%s", error.message);
    return false;
}

void
mixed_passes(leased *l, uint32_t count)
{
    berth_error error;

    for (uint32_t i = 0; i < count; i++) {
        if (!CHECK_EQ(leased_pass(l, NULL, &error), BERTH_OK)) {
            T_NOTE("pass %u: %s: %s", i, error.tensor, error.message);
            break;
        }
        CHECK(leased_settle(l));
    }
}
