/* SPDX-License-Identifier: Apache-2.0 */
/* sim_call.c - what begins and ends a call of a simulated device; failures. See sim.h. */
#include <stdarg.h>
#include <stdio.h>

#include "kernels/fault.h"
#include "kernels/sim.h"

berth_status
berthi_sim_enter(berthi_sim_device *device, const char *what, berth_error *error)
{
    berth_status status;

    pthread_mutex_lock(&device->sim->lock);
    device->calls++;
#ifdef BERTH_TESTING
    if (device->calls == device->words.lose)
        berthi_sim_fail_device(device, BERTH_REASON_DEVICE_LOST, "the device is lost");
#endif
    status = berthi_sim_check(device, error);
    if (status == BERTH_OK && berthi_fault_is_due(BERTHI_FAULT_DEVICE))
        status = berthi_fail(error, BERTH_REASON_DEVICE, NULL, "%s: %s failed",
                             device->name, what);
    (void)what;
    return status;
}

berth_status
berthi_sim_leave(berthi_sim_device *device, berth_status status)
{
    pthread_mutex_unlock(&device->sim->lock);
    return status;
}

void
berthi_sim_fail_device(berthi_sim_device *device, berth_reason reason, const char *format,
                       ...)
{
    va_list arguments;

    if (device->reason != BERTH_REASON_NONE)
        return;
    device->reason = (int32_t)reason;
    va_start(arguments, format);
    vsnprintf(device->failure, sizeof device->failure, format, arguments);
    va_end(arguments);
    for (berthi_stream *s = device->sim->streams; s != NULL; s = s->next)
        if (s->device == device)
            berthi_sim_purge(s);
    berthi_sim_end_hang(device); /* it does nothing any more */
    pthread_cond_broadcast(&device->sim->changed);
}

berth_status
berthi_sim_check(berthi_sim_device *device, berth_error *error)
{
    if (device->reason == BERTH_REASON_NONE)
        return BERTH_OK;
    berthi_sim_leave_memory(device);
    return berthi_fail(error, (berth_reason)device->reason, NULL, "%s: %s", device->name,
                       device->failure);
}
