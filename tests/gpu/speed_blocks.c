/* SPDX-License-Identifier: Apache-2.0 */
/* speed_blocks.c - encoding and decoding; see speed.h */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/gpu/speed.h"

#define BLOCK 64u
#define WINDOW 65536u /* values of which the codes are checked, at both ends */

/* One weight of the GPU's, encoded and decoded, several times over. */
typedef struct blocks {
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    uint64_t absmax_count;
    uint32_t turns;
    void *values[GPU_TURNS];
    uint8_t *codes[GPU_TURNS];
    float *absmax[GPU_TURNS];
    uint8_t *absmax_codes[GPU_TURNS];
    float *absmax2[GPU_TURNS];
    float *offset;
    float *scratch;
    bool is_fp4;
} blocks;

static uint64_t
bytes_of(uint64_t count)
{
    return count * 2 + count / 2 + count / BLOCK * 5 + count / BLOCK / 64 + 4096;
}

static void
begin(gpu_speed *s, blocks *b, uint64_t rows, uint64_t columns)
{
    *b = (blocks){ .rows = rows, .columns = columns, .count = rows * columns,
                   .absmax_count = rows * columns / BLOCK,
                   .turns = gpu_turns(s, bytes_of(rows * columns)) };
    for (uint32_t i = 0; i < b->turns; i++) {
        b->values[i] = gpu_alloc(s, b->count * 2);
        b->codes[i] = gpu_alloc(s, b->count / 2);
        b->absmax[i] = gpu_alloc(s, b->absmax_count * sizeof(float));
        b->absmax_codes[i] = gpu_alloc(s, b->absmax_count);
        b->absmax2[i] = gpu_alloc(s, (b->absmax_count / 256 + 1) * sizeof(float));
        gpu_fill_normal(s, b->values[i], b->count, i);
    }
    b->offset = gpu_alloc(s, sizeof(float));
    b->scratch = gpu_alloc(s, berthi_mean_scratch(b->absmax_count, 0, 0) * sizeof(float) + 4);
}

static void
end(gpu_speed *s, blocks *b)
{
    for (uint32_t i = 0; i < b->turns; i++) {
        gpu_free(s, b->values[i]);
        gpu_free(s, b->codes[i]);
        gpu_free(s, b->absmax[i]);
        gpu_free(s, b->absmax_codes[i]);
        gpu_free(s, b->absmax2[i]);
    }
    gpu_free(s, b->offset);
    gpu_free(s, b->scratch);
}

/* -------------------------------------------------------------------------- encoding */

static void
ask_encode(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint32_t i = turn % b->turns;
    const berthi_encode_arguments e = { .values = b->values[i], .dtype = BERTH_BF16,
                                        .block_size = BLOCK, .count = b->count,
                                        .codes = b->codes[i], .absmax = b->absmax[i] };
    berthi_launch l;

    (void)(b->is_fp4 ? berthi_launch_encode_fp4(&e, &l, NULL)
                     : berthi_launch_encode_nf4(&e, &l, NULL));
    gpu_launch(s, &l, 1);
}

static void
ask_encode_double(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint32_t i = turn % b->turns;
    const berthi_mean_arguments mean = { .values = b->absmax[i], .count = b->absmax_count,
                                         .partial = b->scratch };
    const berthi_double_arguments codes = { .absmax = b->absmax[i], .count = b->absmax_count,
                                            .codes = b->absmax_codes[i],
                                            .absmax2 = b->absmax2[i] };
    berthi_launch l[3];

    ask_encode(s, user, turn);
    (void)berthi_launch_mean(&mean, b->offset, l, NULL);
    (void)berthi_launch_encode_double(&codes, b->offset, &l[2], NULL);
    berthi_launch_join_mean(&l[1], &l[2]);
    gpu_launch(s, l, 3);
}

/* The codes of some values from `first` on are the reference's. */
static bool
is_window_right(gpu_speed *s, const blocks *b, uint64_t first, uint64_t count)
{
    uint16_t *const values = malloc(count * 2);
    uint8_t *const codes = malloc(count);
    float *const absmax = malloc(2 * (count / BLOCK + 1) * sizeof *absmax);
    float *const expected = absmax + count / BLOCK + 1;
    bool is_right = false;

    if (values != NULL && codes != NULL && absmax != NULL) {
        const berthi_encode_arguments e = { .values = values, .dtype = BERTH_BF16,
                                            .block_size = BLOCK, .count = count,
                                            .codes = codes + count / 2, .absmax = expected };

        gpu_fetch(s, values, (uint16_t *)b->values[0] + first, count * 2);
        gpu_fetch(s, codes, b->codes[0] + first / 2, count / 2);
        gpu_fetch(s, absmax, b->absmax[0] + first / BLOCK, count / BLOCK * sizeof *absmax);
        if (b->is_fp4)
            berthi_scalar_operations.encode_fp4(&e);
        else
            berthi_scalar_operations.encode_nf4(&e);
        is_right = memcmp(codes, codes + count / 2, count / 2) == 0
                   && memcmp(absmax, expected, count / BLOCK * sizeof *absmax) == 0;
    }
    free(values);
    free(codes);
    free(absmax);
    return is_right;
}

static bool
are_codes_right(gpu_speed *s, const char *name, const blocks *b)
{
    const uint64_t window = b->count < WINDOW ? b->count : WINDOW;

    return gpu_is_right(s, name,
                        is_window_right(s, b, 0, window)
                            && is_window_right(s, b, b->count - window, window));
}

/* -------------------------------------------------------------------------- decoding */

static void
ask_decode(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint32_t i = turn % b->turns;
    const berthi_decode_arguments d = { .codes = b->codes[i], .absmax = b->absmax[i],
                                        .count = b->count, .block_size = BLOCK,
                                        .dtype = BERTH_BF16, .values = b->values[i] };
    berthi_launch l;

    (void)berthi_launch_decode_4bit(&d, berthi_nf4_values, NULL, &l, NULL);
    gpu_launch(s, &l, 1);
}

static void
ask_decode_double(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint32_t i = turn % b->turns;
    const berthi_double_absmax absmax = { .codes = b->absmax_codes[i], .absmax2 = b->absmax2[i],
                                          .map = berthi_signed_map, .offset = b->offset };
    const berthi_decode_arguments d = { .codes = b->codes[i], .count = b->count,
                                        .block_size = BLOCK, .dtype = BERTH_BF16,
                                        .values = b->values[i] };
    berthi_launch l;

    (void)berthi_launch_decode_4bit(&d, berthi_nf4_values, &absmax, &l, NULL);
    gpu_launch(s, &l, 1);
}

/* As the reference decodes the codes and absmax that are there. */
static bool
are_values_right(gpu_speed *s, const char *name, const blocks *b)
{
    const uint64_t count = b->count < WINDOW ? b->count : WINDOW;
    const uint64_t first = b->count - count;
    uint16_t *const values = malloc(count * 4);
    uint8_t *const codes = malloc(count / 2);
    float *const absmax = malloc(count / BLOCK * sizeof *absmax);
    bool is_right = false;

    if (values != NULL && codes != NULL && absmax != NULL) {
        ask_decode(s, (void *)(uintptr_t)b, 0);
        gpu_sync(s);
        gpu_fetch(s, values, (uint16_t *)b->values[0] + first, count * 2);
        gpu_fetch(s, codes, b->codes[0] + first / 2, count / 2);
        gpu_fetch(s, absmax, b->absmax[0] + first / BLOCK, count / BLOCK * sizeof *absmax);
        berthi_scalar_operations.decode_nf4(&(berthi_decode_arguments){
            .codes = codes, .absmax = absmax, .count = count, .block_size = BLOCK,
            .dtype = BERTH_BF16, .values = values + count });
        is_right = memcmp(values, values + count, count * 2) == 0;
    }
    free(values);
    free(codes);
    free(absmax);
    return gpu_is_right(s, name, is_right);
}

/* ------------------------------------------------------------------------------ rows */

static void
describe(const blocks *b, const char *what, char name[80])
{
    snprintf(name, 80, "%s, %" PRIu64 " x %" PRIu64 ", block %u", what, b->rows, b->columns,
             BLOCK);
}

static void
measure_encoding(gpu_speed *s, blocks *b, double bytes)
{
    const gpu_work works[2] = { { ask_encode, b }, { ask_encode_double, b } };
    gpu_timing t[2];
    char name[80];
    gpu_row row = { .group = "blocks", .name = name,
                    .relation = ">=", .target = 0.85, .timing = &t[0] };

    describe(b, "quantize NF4", name);
    gpu_time(s, works, 2, t);
    if (are_codes_right(s, name, b))
        gpu_tell(s, &row, bytes, s->copy_gbps, "of copy");
    row = (gpu_row){ .group = "blocks", .name = "quantize NF4 with double quantization",
                     .value = t[1].us / t[0].us, .unit = "x without it", .relation = "<=",
                     .target = 1.05, .timing = &t[1] };
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
    b->is_fp4 = true;
    gpu_time(s, works, 1, t);
    describe(b, "quantize FP4", name);
    row = (gpu_row){ .group = "blocks", .name = name, .timing = &t[0] };
    if (are_codes_right(s, name, b))
        gpu_tell(s, &row, bytes, s->copy_gbps, "of copy");
    b->is_fp4 = false;
}

static void
measure_decoding(gpu_speed *s, blocks *b, double target)
{
    char name[80];
    const gpu_work works[2] = { { ask_decode, b }, { ask_decode_double, b } };
    const double plain = (double)b->count * (2.5 + 4.0 / BLOCK);
    const double twice = (double)b->count * (2.5 + 1.0 / BLOCK + 4.0 / BLOCK / 256);
    gpu_timing t[2];
    gpu_row row = { .group = "blocks", .name = name, .relation = ">=", .target = target,
                    .timing = &t[0] };

    describe(b, "dequantize NF4 to BF16", name);
    for (uint32_t i = 0; i < b->turns; i++)
        ask_encode_double(s, b, i);
    gpu_time(s, works, 2, t);
    if (are_values_right(s, name, b))
        gpu_tell(s, &row, plain, s->copy_gbps, "of copy");
    row = (gpu_row){ .group = "blocks", .name = "the same with double quantization",
                     .timing = &t[1] };
    gpu_tell(s, &row, twice, s->copy_gbps, "of copy");
}

static void
measure_weight(gpu_speed *s, uint64_t rows, uint64_t columns, bool is_main)
{
    const uint64_t bytes = bytes_of(rows * columns);
    blocks b;

    if (!gpu_can_begin(s, is_main ? "quantize and dequantize, a large weight"
                                  : "dequantize, a smaller weight",
                       bytes * gpu_turns(s, bytes)))
        return;
    begin(s, &b, rows, columns);
    if (is_main)
        measure_encoding(s, &b, (double)b.count * (2.5 + 4.0 / BLOCK));
    measure_decoding(s, &b, is_main ? 0.90 : 0.85);
    end(s, &b);
}

void
gpu_speed_blocks(gpu_speed *s)
{
    if (s->copy_gbps <= 0.0)
        return;
    measure_weight(s, s->is_tiny ? 64 : 8192, s->is_tiny ? 256 : 28672, true);
    measure_weight(s, s->is_tiny ? 64 : 8192, s->is_tiny ? 128 : 8192, false);
}
