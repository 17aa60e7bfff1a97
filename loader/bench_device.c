/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_device.c - copies to, from and within devices, and products, timed by their own clock.
 *
 * The largest copy is 64 MiB: what a copy takes beyond its bytes hardly counts there with a link of
 * the host. A GPU's memory is through with it in 30 us, and beginning one takes half as long: of
 * those so many are asked for at once that they are worth while. A slow link gets smaller copies,
 * so that nobody waits long for an end.
 *
 * What an operation takes beyond its bytes is told by products with weights that a GPU's memory
 * is through with in 2 us, one after the other as tokens ask for them. Each has a weight of its
 * own, so that caches help no more than they do there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/bench.h"

#define PIECE_MAX    (UINT64_C(64) << 20)
#define PIECE_MIN    (UINT64_C(64) << 10)
#define GRANULE      (UINT64_C(2) << 20)
#define FIRST_BYTES  (UINT64_C(1) << 20)
#define ENOUGH_NS    UINT64_C(10000000) /* for a copy: longer ones tell no more */
#define AT_ONCE_NS   UINT64_C(2000000)  /* for copies within a device, by the caller's clock */
#define LOOK_NS      UINT64_C(20000000) /* between looks for a cancel */
#define SHARED_BYTES (UINT64_C(64) << 20) /* of all devices */
#define SHARED_COUNT 2u
#define COLUMNS_MAX  UINT64_C(4096) /* of weights, and their rows */
#define BLOCK        64u

/* -------------------------------------------------------------------------- a side */

static void
close_side(berthi_bench_side *side, uint8_t *memory)
{
    berthi_device *const device = side->device;

    if (device == NULL)
        return;
    /* Waits for copies that are under way. */
    if (side->stream != NULL)
        device->table->stream_destroy(device, side->stream);
    if (side->event != NULL)
        device->table->event_destroy(device, side->event);
    if (side->is_pinned)
        device->table->unpin(device, memory, side->piece);
    if (side->memory != NULL)
        device->table->free(device, side->memory, 2 * side->piece);
    memset(side, 0, sizeof *side);
}

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
    piece = berthi_round_down(piece, PIECE_MIN);
    return piece;
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

/* `piece` is 0 where there is no room; nothing is open then. */
static berth_status
open_side(berthi_bench *b, uint32_t number, uint64_t limit, berthi_bench_side *side,
          berth_error *error)
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
        close_side(side, b->memory);
    return status;
}

void
berthi_bench_close_device(berthi_bench *b)
{
    close_side(&b->side, b->memory);
}

/* ------------------------------------------------------------------------- copying */

static berth_status
ask_copy(berthi_bench *b, const berthi_bench_side *side, const berth_bench_line *line,
         uint64_t bytes, berth_error *error)
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

/* Until the stream has done what it was asked for; looks for a cancel meanwhile. */
static berth_status
await_side(berthi_bench *b, const berthi_bench_side *side, berth_error *error)
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

/* ------------------------------------------------------------------------ products */

/* What a product reads and writes of its device's memory: parts of one piece of it. */
typedef struct product {
    berthi_request request;
    uint64_t bytes;
} product;

/* With a weight of so many columns, and rows; `memory` may be nowhere. */
static product
describe_product(uint64_t columns, uint8_t *memory)
{
    const uint64_t codes = columns * columns / 2;
    const uint64_t absmax = columns * columns / BLOCK * sizeof(float);
    const uint64_t vector = columns * sizeof(uint16_t);
    product p = { .request = { .operation = BERTHI_OPERATION_MULTIPLY_NF4 } };
    berthi_multiply_arguments *const a = &p.request.arguments.multiply;

    *a = (berthi_multiply_arguments){ .codes = memory,
                                      .absmax = (float *)(void *)(memory + codes),
                                      .block_size = BLOCK,
                                      .count = 1,
                                      .rows = columns,
                                      .columns = columns,
                                      .inputs = memory + codes + absmax,
                                      .outputs = memory + codes + absmax + vector,
                                      .dtype = BERTH_BF16,
                                      .is_settled = true };
    p.bytes = codes + absmax + 2 * vector;
    a->scratch = (float *)(void *)(memory + p.bytes);
    p.bytes += berthi_multiply_scratch(a) * sizeof *a->scratch;
    return p;
}

/* Columns of the largest weight that there is room for. */
static uint64_t
choose_columns(const berthi_bench_side *side)
{
    uint64_t columns = COLUMNS_MAX;

    while (describe_product(columns, side->memory).bytes > 2 * side->piece)
        columns /= 2;
    return columns;
}

/* The one after `number` others, which has a weight of its own as far as there is room. */
static berth_status
ask_product(const berthi_bench_side *side, uint64_t columns, uint64_t number,
            berth_error *error)
{
    const uint64_t bytes = describe_product(columns, side->memory).bytes;
    const uint64_t at = number % (2 * side->piece / bytes) * bytes;
    const product p = describe_product(columns, side->memory + at);

    return side->device->table->launch(side->device, &p.request, side->stream, error);
}

/* So many, one after the other: copies of `size` bytes, of OPERATION products of such columns. */
static berth_status
time_line(berthi_bench *b, const berth_bench_line *line, uint64_t size, uint64_t count,
          uint64_t *out_ns, berth_error *error)
{
    const berthi_bench_side *const side = &b->side;
    const bool is_product = line->kind == BERTH_BENCH_OPERATION;
    const uint64_t begin_ns = side->device->table->now_ns(side->device);
    berth_status status = berthi_bench_check(b, error);

    for (uint64_t i = 0; i < count && status == BERTH_OK; i++)
        status = is_product ? ask_product(side, size, i, error)
                            : ask_copy(b, side, line, size, error);
    if (status == BERTH_OK)
        status = await_side(b, side, error);
    *out_ns = side->device->table->now_ns(side->device) - begin_ns;
    return status;
}

/* Bytes a second of the device's memory, measured before; 0: they are not known. */
static uint64_t
find_memory_rate(const berthi_bench *b, uint32_t device)
{
    for (uint32_t i = 0; i < b->result->line_count; i++)
        if (b->result->lines[i].kind == BERTH_BENCH_DEVICE_MEMORY
            && b->result->lines[i].device == device)
            return b->result->lines[i].own_rate;
    return 0;
}

static berth_status
repeat_products(berthi_bench *b, berth_bench_line *line, uint64_t memory_rate,
                berth_error *error)
{
    const uint64_t columns = choose_columns(&b->side);
    const double bytes_ns = 1e9 * (double)describe_product(columns, b->side.memory).bytes
                            / (double)memory_rate;
    const uint64_t begin_ns = berthi_sys_now_ns();
    berthi_bench_samples samples = { .count = 0 };
    bool has_room = true;
    uint64_t count;
    uint64_t ns;
    berth_status status = time_line(b, line, columns, 1, &ns, error);

    count = 1 + AT_ONCE_NS / (berthi_sys_now_ns() - begin_ns + 1);
    while (status == BERTH_OK && has_room) {
        status = time_line(b, line, columns, count, &ns, error);
        if (status != BERTH_OK || (double)ns < (double)count * (bytes_ns + 1))
            break;
        ns -= (uint64_t)((double)count * bytes_ns);
        has_room = berthi_bench_sample(b, line, &samples, count, ns)
                   && !berthi_bench_is_late(b);
    }
    if (samples.count > 0)
        berthi_bench_settle(line, &samples);
    else
        berthi_bench_skip(line, "no time beyond their bytes");
    return status;
}

static berth_status
measure_products(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    const berthi_device_table *const table = b->side.device->table;
    const uint64_t memory_rate = find_memory_rate(b, line->device);

    if (strcmp(table->kind, "cpu") == 0)
        berthi_bench_skip(line, "the host computes there");
    else if (!table->has_operation(b->side.device, BERTHI_OPERATION_MULTIPLY_NF4))
        berthi_bench_skip(line, "no kernels for this device");
    else if (memory_rate == 0)
        berthi_bench_skip(line, "its memory was not measured");
    else
        return repeat_products(b, line, memory_rate, error);
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- copies */

/* The size of copies that this link is measured with, and how many at once. */
static berth_status
grow(berthi_bench *b, const berth_bench_line *line, uint64_t *out_bytes, uint64_t *out_count,
     berth_error *error)
{
    uint64_t bytes = berthi_min_u64(FIRST_BYTES, b->side.piece);
    uint64_t begin_ns;
    uint64_t ns;
    berth_status status;

    for (;;) {
        begin_ns = berthi_sys_now_ns();
        status = time_line(b, line, bytes, 1, &ns, error);
        if (status != BERTH_OK || ns >= ENOUGH_NS || bytes == b->side.piece)
            break;
        bytes = berthi_min_u64(2 * bytes, b->side.piece);
    }
    *out_bytes = bytes;
    *out_count = 1;
    if (line->kind == BERTH_BENCH_DEVICE_MEMORY)
        *out_count += AT_ONCE_NS / (berthi_sys_now_ns() - begin_ns + 1);
    return status;
}

static berth_status
repeat(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    /* Of copies within a device bytes are read and written. */
    const uint64_t times = line->kind == BERTH_BENCH_DEVICE_MEMORY ? 2 : 1;
    berthi_bench_samples samples = { .count = 0 };
    uint64_t bytes;
    uint64_t count;
    uint64_t ns;
    bool has_room = true;
    berth_status status = grow(b, line, &bytes, &count, error);

    while (status == BERTH_OK && has_room) {
        status = time_line(b, line, bytes, count, &ns, error);
        if (status == BERTH_OK)
            has_room = berthi_bench_sample(b, line, &samples, times * count * bytes, ns)
                       && !berthi_bench_is_late(b);
    }
    berthi_bench_settle(line, &samples);
    return status;
}

berth_status
berthi_bench_device(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (b->side.device == NULL || b->side.number != line->device) {
        berthi_bench_close_device(b);
        status = open_side(b, line->device, PIECE_MAX, &b->side, error);
    }
    if (status != BERTH_OK)
        return status;
    if (b->side.piece == 0)
        berthi_bench_skip(line, "no room on the device");
    else if (line->is_pinned && !b->side.is_pinned)
        berthi_bench_skip(line, b->side.refusal);
    else if (line->kind == BERTH_BENCH_OPERATION)
        status = measure_products(b, line, error);
    else
        status = repeat(b, line, error);
    return status;
}

/* ------------------------------------------------------------------------- at once */

/* Copies to all sides that are asked, and how long until the last is over. */
static berth_status
time_asked(berthi_bench *b, const berthi_bench_side *sides, uint32_t count,
           uint64_t *out_ns, berth_error *error)
{
    static const berth_bench_line line = { .kind = BERTH_BENCH_TO_DEVICE_SHARED,
                                           .is_pinned = 1 };
    const uint64_t begin_ns = sides[0].device->table->now_ns(sides[0].device);
    berth_status status = berthi_bench_check(b, error);

    for (uint32_t k = 0; k < SHARED_COUNT; k++)
        for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
            if (sides[i].is_asked)
                status = ask_copy(b, &sides[i], &line, sides[i].piece, error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        if (sides[i].is_asked)
            status = await_side(b, &sides[i], error);
    *out_ns = sides[0].device->table->now_ns(sides[0].device) - begin_ns;
    return status;
}

/* Those of one group, or one and another. */
static berth_status
time_pair(berthi_bench *b, berthi_bench_side *sides, uint32_t count, uint32_t one,
          uint32_t other, uint64_t *out_ns, berth_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        sides[i].is_asked = i == one || i == other;
    return time_asked(b, sides, count, out_ns, error);
}

static berth_status
time_group(berthi_bench *b, berthi_bench_side *sides, uint32_t count, uint32_t group,
           uint64_t *out_ns, berth_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        sides[i].is_asked = sides[i].group == group;
    return time_asked(b, sides, count, out_ns, error);
}

/* Is the one held up by the other? */
static bool
is_sharing(uint64_t together_ns, uint64_t one_ns, uint64_t other_ns)
{
    const uint64_t alone_ns = berthi_max_u64(one_ns, other_ns);

    return together_ns > alone_ns + alone_ns / 5;
}

/*
 * Groups are named after their first device. Each device is compared with the first of
 * every group before it.
 */
static berth_status
find_groups(berthi_bench *b, berthi_bench_side *sides, uint32_t count, berth_error *error)
{
    uint64_t ns;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = time_pair(b, sides, count, i, i, &sides[i].alone_ns, error);
    for (uint32_t i = 0; i < count; i++) {
        sides[i].group = i;
        for (uint32_t k = 0; k < i && sides[i].group == i && status == BERTH_OK; k++) {
            if (sides[k].group != k)
                continue;
            status = time_pair(b, sides, count, k, i, &ns, error);
            if (is_sharing(ns, sides[k].alone_ns, sides[i].alone_ns))
                sides[i].group = k;
        }
    }
    return status;
}

static berth_status
time_groups(berthi_bench *b, berthi_bench_side *sides, berth_bench_line *lines,
            uint32_t count, berth_error *error)
{
    uint64_t ns;
    berth_status status = find_groups(b, sides, count, error);

    for (uint32_t group = 0; group < count && status == BERTH_OK; group++) {
        if (sides[group].group != group)
            continue;
        status = time_group(b, sides, count, group, &ns, error);
        for (uint32_t i = group; i < count && status == BERTH_OK; i++) {
            berthi_bench_samples samples = { .count = 0 };

            if (sides[i].group != group)
                continue;
            (void)berthi_bench_sample(b, &lines[i], &samples,
                                      SHARED_COUNT * sides[i].piece, ns);
            berthi_bench_settle(&lines[i], &samples);
        }
    }
    return status;
}

static berth_status
open_sides(berthi_bench *b, berthi_bench_side *sides, uint32_t count, const char **out_why,
           berth_error *error)
{
    /* Many devices make many pairs. */
    const uint64_t limit = berthi_max_u64(SHARED_BYTES / count, FIRST_BYTES);
    berth_status status = BERTH_OK;

    *out_why = NULL;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        status = open_side(b, i, limit, &sides[i], error);
        if (status == BERTH_OK && sides[i].piece == 0)
            *out_why = "no room on one of the devices";
        else if (status == BERTH_OK && !sides[i].is_pinned)
            *out_why = "a device refuses pinned memory";
    }
    return status;
}

berth_status
berthi_bench_shared(berthi_bench *b, berth_bench_line *lines, berth_error *error)
{
    const uint32_t count = berthi_devices_count(b->options.devices);
    berthi_bench_side *const sides = berthi_memory_zalloc(
        b->context, BERTHI_PURPOSE_OBJECT, count * sizeof *sides);
    const char *why;
    berth_status status;

    if (sides == NULL)
        return berthi_fail_memory(error, "measuring devices");
    status = open_sides(b, sides, count, &why, error);
    if (status == BERTH_OK && why == NULL)
        status = time_groups(b, sides, lines, count, error);
    for (uint32_t i = 0; i < count && why != NULL; i++)
        berthi_bench_skip(&lines[i], why);
    for (uint32_t i = 0; i < count; i++)
        close_side(&sides[i], b->memory);
    berthi_memory_free(b->context, BERTHI_PURPOSE_OBJECT, sides, count * sizeof *sides);
    return status;
}
