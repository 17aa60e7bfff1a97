/* SPDX-License-Identifier: Apache-2.0 */
/* bench_host.c - what host memory gives: copies, reads, weights that are quantized. */
#include <string.h>

#include "kernels/sys.h"
#include "loader/bench.h"
#include "loader/values.h"

#define PARTS         64u /* of memory that threads share */
#define QUANTIZE_STEP (UINT64_C(16) << 20)

/* Two copies of the sign and the fraction of four BF16, with exponents of about 0. */
#define BF16_KEPT     UINT64_C(0x807F807F807F807F)
#define BF16_EXPONENT UINT64_C(0x3F003F003F003F00)

/* -------------------------------------------------------------------------- memory */

static void
fill_values(uint8_t *memory, uint64_t bytes)
{
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);

    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t four;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        four = (state & BF16_KEPT) | BF16_EXPONENT;
        memcpy(memory + i, &four, 8);
    }
}

berth_status
berthi_bench_open_memory(berthi_bench *b, berth_error *error)
{
    const uint64_t page = berthi_sys_page_bytes();

    b->half = berthi_round_down(b->options.memory_bytes / 2, page);
    b->memory = berthi_memory_aligned(b->context, BERTHI_PURPOSE_RING, 2 * b->half, page);
    if (b->memory == NULL)
        return berthi_fail_memory(error, "taking memory for a bench");
    fill_values(b->memory, b->half);
    memset(b->memory + b->half, 0, (size_t)b->half); /* pages that are there */
    return BERTH_OK;
}

void
berthi_bench_close_memory(berthi_bench *b)
{
    berthi_bench_leave(b);
    berthi_memory_free_aligned(b->context, BERTHI_PURPOSE_RING, b->memory, 2 * b->half,
                               berthi_sys_page_bytes());
    b->memory = NULL;
}

/* ---------------------------------------------------------------- copies and reads */

/* Part `number` of the first half. */
static void
find_part(const berthi_bench *b, uint64_t number, uint64_t *begin, uint64_t *bytes)
{
    const uint64_t step = berthi_round_down(b->half / PARTS, 64);

    *begin = number * step;
    *bytes = number + 1 == PARTS ? b->half - *begin : step;
}

static void
copy_part(void *user, uint32_t worker, uint64_t number)
{
    const berthi_bench *const b = user;
    uint64_t begin;
    uint64_t bytes;

    (void)worker;
    find_part(b, number, &begin, &bytes);
    memcpy(b->memory + b->half + begin, b->memory + begin, (size_t)bytes);
}

static void
read_part(void *user, uint32_t worker, uint64_t number)
{
    berthi_bench *const b = user;
    uint64_t sums[8] = { 0 };
    uint64_t words[8];
    uint64_t begin;
    uint64_t bytes;

    (void)worker;
    find_part(b, number, &begin, &bytes);
    for (uint64_t i = 0; i + sizeof words <= bytes; i += sizeof words) {
        memcpy(words, b->memory + begin + i, sizeof words);
        for (int k = 0; k < 8; k++)
            sums[k] ^= words[k];
    }
    for (int k = 1; k < 8; k++)
        sums[0] ^= sums[k];
    atomic_fetch_xor(&b->sink, sums[0]);
}

static berth_status
share_work(berthi_bench *b, berth_bench_line *line, berthi_values_work work,
           berth_error *error)
{
    berthi_bench_samples samples = { .count = 0 };
    berth_status status = BERTH_OK;
    uint64_t begin_ns;

    do {
        begin_ns = berthi_sys_now_ns();
        berthi_values_run(line->threads, PARTS, work, b);
        status = berthi_bench_check(b, error);
    } while (berthi_bench_sample(b, line, &samples, b->half,
                                 berthi_sys_now_ns() - begin_ns)
             && status == BERTH_OK && !berthi_bench_is_late(b));
    berthi_bench_settle(line, &samples);
    return status;
}

/* ---------------------------------------------------------------------- quantizing */

/* The buffers that a weight of these options needs, one behind the other in `memory`. */
static berth_status
lay_buffers(const berth_values_options *options, uint8_t *memory,
            berth_values_buffers *out, berth_error *error)
{
    berth_values_part parts[BERTH_VALUES_PARTS];
    uint64_t at = 0;
    uint32_t count;
    berth_status status = berth_values_list(options, parts, &count, error);

    berth_values_buffers_init(out);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        if (parts[i].role == BERTH_ROLE_CODES) {
            out->codes = memory + at;
            out->codes_bytes = parts[i].bytes;
        } else if (parts[i].role == BERTH_ROLE_ABSMAX) {
            out->absmax = memory + at;
            out->absmax_bytes = parts[i].bytes;
        } else if (parts[i].role == BERTH_ROLE_ABSMAX2) {
            out->absmax2 = (float *)(void *)(memory + at);
            out->absmax2_bytes = parts[i].bytes;
        } else {
            continue;
        }
        (void)berthi_can_round_up(at + parts[i].bytes, 256, &at);
    }
    return status;
}

/* Pieces of the first half, one after the other: none is still in the cache. */
static berth_status
quantize(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    const uint64_t step = berthi_min_u64(b->half, QUANTIZE_STEP);
    const uint64_t shape = step / 2;
    berthi_bench_samples samples = { .count = 0 };
    berth_values_buffers buffers;
    berth_values_options options;
    uint64_t at = 0;
    bool has_room = true;
    berth_status status;

    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_NF4;
    options.shape = &shape;
    options.rank = 1;
    options.double_quant = line->kind == BERTH_BENCH_NF4_DOUBLE;
    options.threads = line->threads;
    status = lay_buffers(&options, b->memory + b->half, &buffers, error);
    while (status == BERTH_OK && has_room) {
        const uint64_t begin_ns = berthi_sys_now_ns();

        status = berth_values_quantize(b->context, &options, b->memory + at, step,
                                       &buffers, error);
        has_room = berthi_bench_sample(b, line, &samples, step,
                                       berthi_sys_now_ns() - begin_ns)
                   && !berthi_bench_is_late(b);
        at = at + 2 * step <= b->half ? at + step : 0;
        if (status == BERTH_OK)
            status = berthi_bench_check(b, error);
    }
    berthi_bench_settle(line, &samples);
    return status;
}

berth_status
berthi_bench_host(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    if (line->kind == BERTH_BENCH_COPY)
        return share_work(b, line, copy_part, error);
    if (line->kind == BERTH_BENCH_HOST_MEMORY)
        return share_work(b, line, read_part, error);
    return quantize(b, line, error);
}
