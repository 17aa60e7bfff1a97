/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_lane.c - the streams of a load on a device, and values on their way to what encodes them.
 *
 *   values    copy to a ──────▶ copy to b ──────▶ copy to a ...      a, b: places in the scratch
 *                 │ filled          │ filled          ▲ emptied
 *   stream        └▶ encode a       └▶ encode b ──────┘ ...          and all other copies
 *
 * A copy waits for nothing but the operation that reads the values before the last: the link is
 * busy while a device encodes. The stream waits for each copy, so that whoever waits for the
 * stream has waited for both.
 */
#include "loader/load_job.h"

#define PLACE_BYTES (BERTHI_SLAB_PIECE / BERTHI_LOAD_PLACES)

static berth_status
open_values(berthi_device *device, berthi_load_values *values, berth_error *error)
{
    const berthi_device_table *const table = device->table;
    berth_status status = table->stream_create(device, &values->stream, error);

    for (uint32_t i = 0; i < BERTHI_LOAD_PLACES && status == BERTH_OK; i++) {
        status = table->event_create(device, &values->filled[i], error);
        if (status == BERTH_OK)
            status = table->event_create(device, &values->emptied[i], error);
    }
    return status;
}

berth_status
berthi_load_lane_open(berthi_load *load, uint32_t tier, berth_error *error)
{
    const berthi_model_tier *const about = &load->model->tiers[tier];
    berthi_device *const device = about->device;
    berthi_load_tier *const lane = &load->tiers[tier];
    const berth_status status = device->table->stream_create(device, &lane->stream, error);

    return status == BERTH_OK && about->scratch_bytes > 0
               ? open_values(device, &lane->values, error)
               : status;
}

void
berthi_load_lane_close(berthi_load *load, uint32_t tier)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berthi_load_values *const values = &lane->values;

    if (values->stream != NULL)
        device->table->stream_destroy(device, values->stream);
    if (lane->stream != NULL)
        device->table->stream_destroy(device, lane->stream);
    for (uint32_t i = 0; i < BERTHI_LOAD_PLACES; i++) {
        if (values->filled[i] != NULL)
            device->table->event_destroy(device, values->filled[i]);
        if (values->emptied[i] != NULL)
            device->table->event_destroy(device, values->emptied[i]);
    }
    if (lane->end.event != NULL)
        device->table->event_destroy(device, lane->end.event);
    if (lane->values_end.event != NULL)
        device->table->event_destroy(device, lane->values_end.event);
}

/* ------------------------------------------------------------------------ values */

/* Whether values of so many bytes take this place: all of them where they do not fit in one. */
static bool
takes(const berthi_load_values *values, uint64_t bytes, uint32_t place)
{
    return place == values->next || bytes > PLACE_BYTES;
}

uint8_t *
berthi_load_values_place(const berthi_load *load, uint32_t tier, uint64_t bytes)
{
    const berthi_model_tier *const about = &load->model->tiers[tier];
    const uint64_t place = bytes > PLACE_BYTES ? 0 : load->tiers[tier].values.next;

    return about->slab + about->scratch + place * PLACE_BYTES;
}

/* Values are there before the stream goes on. */
static berth_status
hand_over(berthi_load *load, uint32_t tier, berth_error *error)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berthi_event *const filled = lane->values.filled[lane->values.next];
    berth_status status =
        device->table->record(device, filled, lane->values.stream, error);

    if (status == BERTH_OK)
        status = device->table->wait(device, lane->stream, filled, error);
    /* Nobody who waits for the stream waits for this copy. */
    if (status != BERTH_OK)
        atomic_store(&load->is_unsettled, true);
    return status;
}

/* Values of so many bytes, or with UINT64_MAX whatever lies in the scratch, were read. */
static berth_status
give_back(berthi_load *load, uint32_t tier, uint64_t bytes, berth_error *error)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berthi_load_values *const values = &lane->values;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < BERTHI_LOAD_PLACES && status == BERTH_OK; i++) {
        if (!takes(values, bytes, i))
            continue;
        status = device->table->record(device, values->emptied[i], lane->stream, error);
        values->was_used[i] = true;
    }
    return status;
}

berth_status
berthi_load_values_encode(berthi_load *load, uint32_t tier, const berthi_copy *copy,
                          const berthi_request *request, berth_error *error)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berthi_load_values *const values = &lane->values;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < BERTHI_LOAD_PLACES && status == BERTH_OK; i++)
        if (takes(values, copy->bytes, i) && values->was_used[i])
            status = device->table->wait(device, values->stream, values->emptied[i], error);
    if (status == BERTH_OK)
        status = device->table->copy(device, copy, values->stream, error);
    if (status == BERTH_OK)
        status = hand_over(load, tier, error);
    if (status == BERTH_OK)
        status = device->table->launch(device, request, lane->stream, error);
    if (status == BERTH_OK)
        status = give_back(load, tier, copy->bytes, error);
    values->next = (values->next + 1) % BERTHI_LOAD_PLACES;
    return status;
}

berth_status
berthi_load_values_clear(berthi_load *load, uint32_t tier, berth_error *error)
{
    return give_back(load, tier, UINT64_MAX, error);
}

/* -------------------------------------------------------------------------- ends */

/*
 * Does it hang? `event`, which nobody else uses any more, goes with the end. The load has
 * failed: nobody is to be as patient as before.
 */
static bool
hangs(berthi_load *load, uint32_t tier, berthi_stream *stream, uint64_t now_ns,
      berthi_event **event, berthi_stream_end *end)
{
    const uint64_t wait_ns =
        load->tiers[tier].is_late ? 0
                                  : berthi_patience(load->context, load->model->wait_ns);

    *end = (berthi_stream_end){ .device = load->model->tiers[tier].device,
                                .stream = stream,
                                .event = *event };
    *event = NULL;
    return berthi_stream_hangs(end, berthi_add_capped(now_ns, wait_ns));
}

bool
berthi_load_lane_hangs(berthi_load *load, uint32_t tier, uint64_t now_ns,
                       berthi_event **event)
{
    berthi_load_tier *const lane = &load->tiers[tier];
    bool is_hung = false;

    if (lane->stream == NULL)
        return false;
    if (lane->values.stream != NULL)
        is_hung = hangs(load, tier, lane->values.stream, now_ns, &lane->values.filled[0],
                        &lane->values_end);
    return hangs(load, tier, lane->stream, now_ns, event, &lane->end) || is_hung;
}

bool
berthi_load_lane_is_over(berthi_load *load, uint32_t tier)
{
    berthi_load_tier *const lane = &load->tiers[tier];

    return (lane->stream == NULL || berthi_stream_is_over(&lane->end))
           && (lane->values.stream == NULL || berthi_stream_is_over(&lane->values_end));
}
