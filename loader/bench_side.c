/* SPDX-License-Identifier: Apache-2.0 */
/* bench_side.c - a device that is being measured: memory, stream and event; copies with it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/bench.h"
#include "loader/stranded.h"

#define PIECE_MIN (UINT64_C(64) << 10)
#define GRANULE   (UINT64_C(2) << 20)
#define LOOK_NS   UINT64_C(20000000) /* between looks for a cancel */

/* ------------------------------------------------------------------------- closing */

/* A side that hangs. The first of them has what they share. */
struct berthi_bench_left {
    berthi_kept kept; /* first: what the context has is this */
    berthi_bench_left *next;
    berthi_bench_side side;
    berthi_stream_end end;
    berth_context *context;
    uint8_t *memory; /* of the host */
    uint64_t bytes;
};

/* `memory`: of the host, of which some is pinned. */
static void
give_back(const berthi_bench_side *side, uint8_t *memory)
{
    berthi_device *const device = side->device;

    /* Waits for copies that are under way. */
    if (side->stream != NULL)
        device->table->stream_destroy(device, side->stream);
    if (side->event != NULL)
        device->table->event_destroy(device, side->event);
    if (side->is_pinned)
        device->table->unpin(device, memory, side->piece);
    if (side->memory != NULL)
        device->table->free(device, side->memory, 2 * side->piece);
}

/* Has something hung already, nobody waits once more. */
static uint64_t
find_deadline(const berthi_bench *b)
{
    const uint64_t wait_ns = berthi_patience(b->context, berthi_wait_ns(b->options.wait_ms));

    return berthi_sys_now_ns() + (b->left == NULL ? wait_ns : 0);
}

/* False: it is over, or there is no memory to keep it, and it is waited for. */
static bool
is_left(berthi_bench *b, const berthi_bench_side *side)
{
    berthi_stream_end end = { .device = side->device,
                              .stream = side->stream,
                              .event = side->event };
    berthi_bench_left *left;

    if (side->stream == NULL || side->event == NULL
        || !berthi_stream_hangs(&end, find_deadline(b)))
        return false;
    left = berthi_memory_zalloc(b->context, BERTHI_PURPOSE_OBJECT, sizeof *left);
    if (left == NULL)
        return false;
    left->next = b->left;
    left->side = *side;
    left->end = end;
    b->left = left;
    return true;
}

void
berthi_bench_close_side(berthi_bench *b, berthi_bench_side *side)
{
    if (side->device != NULL && !is_left(b, side))
        give_back(side, b->memory);
    memset(side, 0, sizeof *side);
}

static bool
try_end(berthi_kept *kept)
{
    berthi_bench_left *const first = (berthi_bench_left *)kept;
    berth_context *const context = first->context;
    uint8_t *const memory = first->memory;
    const uint64_t bytes = first->bytes;

    for (berthi_bench_left *left = first; left != NULL; left = left->next)
        if (!berthi_stream_is_over(&left->end))
            return false;
    for (berthi_bench_left *left = first, *next; left != NULL; left = next) {
        next = left->next;
        give_back(&left->side, memory);
        berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, left, sizeof *left);
    }
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, memory, bytes,
                               berthi_sys_page_bytes());
    return true;
}

void
berthi_bench_leave(berthi_bench *b)
{
    berthi_bench_left *const first = b->left;

    if (first == NULL)
        return;
    first->kept.try_end = try_end;
    first->context = b->context;
    first->memory = b->memory;
    first->bytes = 2 * b->half;
    b->left = NULL;
    b->memory = NULL;
    berthi_context_keep(b->context, &first->kept);
}

/* ------------------------------------------------------------------------- opening */

/* Bytes of the largest copy; two of them and more are left free on the device. */
static uint64_t
choose_piece(const berthi_bench *b, berthi_device *device, uint64_t limit)
{
    berthi_device_properties properties;
    uint64_t piece = berthi_min_u64(limit, b->half / 2);

    device->table->describe(device, &properties);
    if (properties.free_bytes != UINT64_MAX)
        piece = berthi_min_u64(piece, properties.free_bytes / 4);
    if (piece > GRANULE)
        return berthi_round_down(piece, GRANULE);
    return berthi_round_down(piece, PIECE_MIN);
}

static void
pin_memory(berthi_bench_side *side, uint8_t *memory)
{
    berth_error error;

    side->is_pinned =
        side->device->table->pin(side->device, memory, side->piece, &error) == BERTH_OK;
    if (!side->is_pinned)
        snprintf(side->refusal, sizeof side->refusal, "not pinned: %.40s", error.message);
}

berth_status
berthi_bench_open_side(berthi_bench *b, uint32_t number, uint64_t limit,
                       berthi_bench_side *side, berth_error *error)
{
    berthi_device *const device = berthi_devices_at(b->options.devices, number);
    const berthi_device_table *const table = device->table;
    void *memory = NULL;
    berth_status status;

    memset(side, 0, sizeof *side);
    side->number = number;
    side->piece = choose_piece(b, device, limit);
    if (side->piece == 0)
        return BERTH_OK;
    status = table->alloc(device, 2 * side->piece, &memory, error);
    if (status == BERTH_ENOFIT) {
        side->piece = 0;
        berthi_error_clear(error);
        return BERTH_OK;
    }
    side->device = device;
    side->memory = memory;
    if (status == BERTH_OK && table->keep != NULL)
        status = table->keep(device, memory, 2 * side->piece, error);
    if (status == BERTH_OK)
        status = table->stream_create(device, &side->stream, error);
    if (status == BERTH_OK)
        status = table->event_create(device, &side->event, error);
    if (status == BERTH_OK)
        pin_memory(side, b->memory);
    if (status != BERTH_OK)
        berthi_bench_close_side(b, side);
    return status;
}

/* ------------------------------------------------------------------------- copying */

berth_status
berthi_bench_ask_copy(berthi_bench *b, const berthi_bench_side *side,
                      const berth_bench_line *line, uint64_t bytes, berth_error *error)
{
    /* What is read by the next copy is not what this one writes. */
    uint8_t *const back = b->memory + b->half;
    berthi_copy copy = { .is_pinned = line->is_pinned != 0, .bytes = bytes };

    if (line->kind == BERTH_BENCH_DEVICE_MEMORY) {
        copy.kind = BERTHI_COPY_WITHIN;
        copy.to = side->memory + side->piece;
        copy.from = side->memory;
    } else if (line->kind == BERTH_BENCH_TO_HOST) {
        copy.kind = BERTHI_COPY_TO_HOST;
        copy.to = line->is_pinned ? b->memory : back;
        copy.from = side->memory;
    } else {
        copy.kind = BERTHI_COPY_TO_DEVICE;
        copy.to = side->memory;
        copy.from = line->is_pinned ? b->memory : back;
    }
    return side->device->table->copy(side->device, &copy, side->stream, error);
}

static berth_status
fail_wait(const berthi_bench *b, const berthi_bench_side *side, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                       "device %" PRIu32 " has not finished a copy for %" PRIu64
                       " milliseconds",
                       side->number, b->options.wait_ms);
}

berth_status
berthi_bench_await_side(berthi_bench *b, const berthi_bench_side *side, berth_error *error)
{
    const uint64_t limit_ns =
        berthi_sys_now_ns() + b->options.wait_ms * UINT64_C(1000000);
    berth_status status =
        side->device->table->record(side->device, side->event, side->stream, error);

    if (status != BERTH_OK)
        return status;
    for (;;) {
        const uint64_t now_ns = berthi_sys_now_ns();

        status = side->device->table->await(side->device, side->event,
                                            berthi_min_u64(now_ns + LOOK_NS, limit_ns),
                                            error);
        if (status != BERTH_PENDING)
            return status;
        status = berthi_bench_check(b, error);
        if (status != BERTH_OK)
            return status;
        if (now_ns >= limit_ns)
            return fail_wait(b, side, error);
    }
}
