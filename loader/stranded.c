/* SPDX-License-Identifier: Apache-2.0 */
/* stranded.c - reads and copies that hang, until they come back; see stranded.h. */
#include "loader/stranded.h"

#include "kernels/spare.h"
#include "kernels/sys.h"
#include "loader/stage.h"

struct berthi_stranded {
    berthi_kept kept; /* first: what the context has is this */
    berth_context *context;
    berthi_reader *reader;
    uint32_t in_flight;
    void *reads;
    uint64_t reads_bytes;
    uint64_t buffer_bytes;
    uint32_t buffer_capacity;
    uint32_t buffer_count;
    uint8_t *buffers[];
};

#define DEFAULT_WAIT_MS UINT64_C(60000)
#define MS_NS           UINT64_C(1000000)

uint64_t
berthi_wait_ns(uint64_t wait_ms)
{
    const uint64_t ms = wait_ms > 0 ? wait_ms : DEFAULT_WAIT_MS;
    uint64_t ns;

    return berthi_can_mul(ms, MS_NS, &ns) ? ns : UINT64_MAX;
}

berthi_watch
berthi_watch_begin(uint64_t wait_ns, uint64_t pause_ns)
{
    const uint64_t now_ns = berthi_sys_now_ns();

    return (berthi_watch){ .wait_ns = wait_ns,
                           .pause_ns = pause_ns,
                           .deadline_ns = berthi_add_capped(now_ns, wait_ns),
                           .back_ns = now_ns };
}

bool
berthi_watch_is_over(berthi_watch *watch)
{
    const uint64_t now_ns = berthi_sys_now_ns();

    if (berthi_was_away(watch->back_ns, now_ns))
        watch->deadline_ns = berthi_add_capped(now_ns, watch->wait_ns);
    watch->back_ns = now_ns + watch->pause_ns;
    return now_ns >= watch->deadline_ns;
}

static uint64_t
size_of(uint32_t capacity)
{
    return sizeof(berthi_stranded) + capacity * sizeof(uint8_t *);
}

berthi_stranded *
berthi_stranded_prepare(berth_context *context, uint32_t capacity, uint64_t buffer_bytes)
{
    berthi_stranded *const s =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_CHUNKS, size_of(capacity));

    if (s == NULL)
        return NULL;
    s->context = context;
    s->buffer_bytes = buffer_bytes;
    s->buffer_capacity = capacity;
    return s;
}

void
berthi_stranded_free(berthi_stranded *stranded)
{
    if (stranded != NULL)
        berthi_memory_free(stranded->context, BERTHI_PURPOSE_CHUNKS, stranded,
                           size_of(stranded->buffer_capacity));
}

void
berthi_stranded_add(berthi_stranded *stranded, uint8_t *buffer)
{
    stranded->buffers[stranded->buffer_count++] = buffer;
}

static bool
try_end(berthi_kept *kept)
{
    berthi_stranded *const s = (berthi_stranded *)kept;
    const berthi_reader_table *const table = s->reader->table;

    while (s->in_flight > 0 && table->complete(s->reader, 0) != NULL)
        s->in_flight--;
    if (s->in_flight > 0)
        return false;
    table->close(s->reader);
    for (uint32_t i = 0; i < s->buffer_count; i++)
        berthi_memory_free_aligned(s->context, BERTHI_PURPOSE_RING, s->buffers[i],
                                   s->buffer_bytes, BERTHI_STAGE_ALIGNMENT);
    berthi_memory_free(s->context, BERTHI_PURPOSE_CHUNKS, s->reads, s->reads_bytes);
    berthi_stranded_free(s);
    return true;
}

void
berthi_stranded_leave(berthi_stranded *stranded, berthi_reader *reader,
                      uint32_t in_flight, void *reads, uint64_t reads_bytes)
{
    stranded->reader = reader;
    stranded->in_flight = in_flight;
    stranded->reads = reads;
    stranded->reads_bytes = reads_bytes;
    stranded->kept.try_end = try_end;
    berthi_context_keep(stranded->context, &stranded->kept);
}

/* ------------------------------------------------------------------------- copies */

berth_status
berthi_await_event(const berth_job *job, berthi_device *device, berthi_event *event,
                   uint64_t deadline_ns, berth_error *error)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    berthi_watch watch = berthi_watch_begin(
        deadline_ns > now_ns ? deadline_ns - now_ns : 0, BERTHI_CANCEL_NS);
    berth_status status;
    bool is_over;

    if (job == NULL)
        return device->table->await(device, event, deadline_ns, error);
    do {
        is_over = berthi_watch_is_over(&watch);
        status = device->table->await(
            device, event, berthi_min_u64(watch.deadline_ns, watch.back_ns), error);
        if (status == BERTH_PENDING && berthi_job_is_cancelled(job))
            return berthi_job_fail_cancelled(error);
    } while (status == BERTH_PENDING && !is_over);
    return status;
}

static berth_status
record(berthi_stream_end *end, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (!end->is_recorded)
        status = end->device->table->record(end->device, end->event, end->stream, error);
    end->is_recorded = status == BERTH_OK;
    return status;
}

bool
berthi_stream_hangs(berthi_stream_end *end, uint64_t deadline_ns)
{
    berth_error error;

    return record(end, &error) == BERTH_OK
           && end->device->table->await(end->device, end->event, deadline_ns, &error)
                  == BERTH_PENDING;
}

bool
berthi_stream_is_over(berthi_stream_end *end)
{
    bool is_past = false;
    berth_error error;
    berth_status status = record(end, &error);

    if (status == BERTH_OK)
        status = end->device->table->query(end->device, end->event, &is_past, &error);
    return status == BERTH_OK ? is_past : error.reason == BERTH_REASON_DEVICE_LOST;
}

/* ------------------------------------------------------------------------ buffers */

void
berthi_lefts_add(berthi_lefts *lefts, uint8_t *memory, uint64_t bytes, bool is_pinned)
{
    lefts->at[lefts->count++] = (berthi_left){ memory, bytes, is_pinned };
}

void
berthi_left_free(const berthi_left *left, berth_context *context)
{
    berthi_spare_free(context, left->memory, left->bytes, BERTHI_STAGE_ALIGNMENT);
}

void
berthi_lefts_free(berthi_lefts *lefts, const berth_model *model)
{
    for (uint32_t i = 0; i < lefts->count; i++) {
        const berthi_left *const left = &lefts->at[i];

        if (left->is_pinned)
            berthi_model_unpin(model, left->memory, left->bytes);
        berthi_left_free(left, model->context);
    }
    lefts->count = 0;
}
