/* SPDX-License-Identifier: Apache-2.0 */
/* hung.c - simulated copies that hang; see hung.h. */
#include "tests/hung.h"

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/t.h"

static berthi_sim_device *
simulated(berth_devices *devices, uint32_t device)
{
    return (berthi_sim_device *)berthi_devices_at(devices, device);
}

void
hung_copy(berth_devices *devices, uint64_t before)
{
    hung_copy_of(devices, 0, before);
}

void
hung_copy_of(berth_devices *devices, uint32_t device, uint64_t before)
{
    berthi_sim_device *const d = simulated(devices, device);

    pthread_mutex_lock(&d->sim->lock);
    d->words.hang = d->copies + before + 1;
    pthread_mutex_unlock(&d->sim->lock);
}

bool
hung_has(berth_devices *devices)
{
    berthi_sim_device *const d = simulated(devices, 0);
    bool has;

    pthread_mutex_lock(&d->sim->lock);
    has = d->words.hang > 0 && d->copies >= d->words.hang;
    pthread_mutex_unlock(&d->sim->lock);
    return has;
}

void
hung_lose(berth_devices *devices, uint32_t device, uint64_t before)
{
    berthi_sim_device *const d = simulated(devices, device);

    pthread_mutex_lock(&d->sim->lock);
    d->words.lose = d->calls + before + 1;
    pthread_mutex_unlock(&d->sim->lock);
}

uint64_t
hung_copies(berth_devices *devices)
{
    berthi_sim_device *const d = simulated(devices, 0);
    uint64_t copies;

    pthread_mutex_lock(&d->sim->lock);
    copies = d->copies;
    pthread_mutex_unlock(&d->sim->lock);
    return copies;
}

hung_account
hung_account_of(const loaded *l)
{
    berth_device device = { .free_bytes = 0 };

    CHECK_EQ(berth_devices_get(l->devices, 0, &device), BERTH_OK);
    return (hung_account){ loaded_bytes(l->p.context), device.free_bytes };
}

bool
hung_is_as_before(const loaded *l, const hung_account *before)
{
    const hung_account now = hung_account_of(l);

    return now.bytes <= before->bytes + HUNG_LISTS
           && now.device_bytes == before->device_bytes;
}

void
hung_recover(const loaded *l, const hung_account *before)
{
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

    berthi_sim_release(berthi_devices_at(l->devices, 0));
    do {
        berthi_context_sweep(l->p.context);
    } while (!hung_is_as_before(l, before) && berthi_sys_now_ns() < end_ns);
    CHECK_LE(hung_account_of(l).bytes, before->bytes + HUNG_LISTS);
    CHECK_EQ(hung_account_of(l).device_bytes, before->device_bytes);
}
