/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_device.c - copies to, from and within a device, and products, timed by its own clock.
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
#include <string.h>

#include "kernels/sys.h"
#include "loader/bench.h"

#define PIECE_MAX   (UINT64_C(64) << 20)
#define ENOUGH_NS   UINT64_C(10000000) /* for a copy: longer ones tell no more */
#define AT_ONCE_NS  UINT64_C(2000000)  /* for copies within a device, by the caller's clock */
#define COLUMNS_MAX UINT64_C(4096)     /* of weights, and their rows */
#define BLOCK       64u

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

/* `count` of them, one after the other: copies of `size` bytes, or products of `size` columns. */
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
                            : berthi_bench_ask_copy(b, side, line, size, error);
    if (status == BERTH_OK)
        status = berthi_bench_await_side(b, side, error);
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
    uint64_t bytes = berthi_min_u64(BERTHI_BENCH_FIRST_BYTES, b->side.piece);
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
    /* A copy within a device reads its bytes and writes them, both through one memory. */
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
        status = berthi_bench_open_side(b, line->device, PIECE_MAX, &b->side, error);
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

void
berthi_bench_close_device(berthi_bench *b)
{
    berthi_bench_close_side(b, &b->side);
}
