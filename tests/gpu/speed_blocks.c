/* SPDX-License-Identifier: Apache-2.0 */
/* speed_blocks.c - encoding and decoding; see speed.h */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/gpu/speed.h"

#define WINDOW 65536u  /* values of which the codes are checked, at both ends */
#define LEAST_BLOCK 64u
#define MAP_BLOCK 256u /* of 8-bit codes: that of absmax and of optimizer states */

typedef enum format { OF_NF4, OF_FP4, OF_MAP, OF_ROWS } format;

/* Codes that are the same, with whatever their absmax are stored. */
typedef struct encoding {
    const char *name;
    format format;
    uint32_t block_size; /* 0: rows */
    bool has_double;
} encoding;

static const encoding encodings[] =
    { { "NF4", OF_NF4, 64, true },  { "NF4", OF_NF4, 128, true },
      { "FP4", OF_FP4, 64, false }, { "FP4", OF_FP4, 128, false },
      { "8 bits", OF_MAP, MAP_BLOCK, false }, { "LLM.int8()", OF_ROWS, 0, false } };

/* One weight of the GPU's, encoded and decoded, several times over. */
typedef struct blocks {
    gpu_shape shape;
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    uint32_t turns;
    uint16_t *values;
    uint8_t *codes;        /* a byte each, or half of that */
    float *absmax;         /* of the smallest blocks, or rows */
    uint8_t *absmax_codes;
    float *absmax2;
    uint64_t most_absmax;  /* of a turn */
    uint64_t most_absmax2;
    float *offset;
    float *scratch;
    int32_t dtype;         /* what is measured now */
    const encoding *its;
} blocks;

static uint64_t
bytes_of(uint64_t count)
{
    return count * 2 + count + count / LEAST_BLOCK * 5 + count / LEAST_BLOCK / 64 + 4096;
}

/* Of the means of absmax, however large their blocks. */
static uint64_t
scratch_bytes(uint64_t count)
{
    uint64_t most = 1;

    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (encodings[i].has_double) {
            const uint64_t its =
                berthi_mean_scratch(count / encodings[i].block_size, 0, 0);

            most = its > most ? its : most;
        }
    return most * sizeof(float);
}

static void
begin(gpu_speed *s, blocks *b)
{
    b->values = gpu_alloc(s, b->turns * b->count * 2);
    b->codes = gpu_alloc(s, b->turns * b->count);
    b->absmax = gpu_alloc(s, b->turns * b->most_absmax * sizeof(float));
    b->absmax_codes = gpu_alloc(s, b->turns * b->most_absmax);
    b->absmax2 = gpu_alloc(s, b->turns * b->most_absmax2 * sizeof(float));
    b->offset = gpu_alloc(s, sizeof(float));
    b->scratch = gpu_alloc(s, scratch_bytes(b->count));
}

static void
end(gpu_speed *s, blocks *b)
{
    gpu_free(s, b->values);
    gpu_free(s, b->codes);
    gpu_free(s, b->absmax);
    gpu_free(s, b->absmax_codes);
    gpu_free(s, b->absmax2);
    gpu_free(s, b->offset);
    gpu_free(s, b->scratch);
}

static uint64_t
absmax_count(const blocks *b)
{
    return b->its->format == OF_ROWS ? b->rows : b->count / b->its->block_size;
}

/* -------------------------------------------------------------------------- encoding */

static berthi_encode_arguments
encode_arguments(const blocks *b, uint32_t turn)
{
    const uint64_t i = turn % b->turns;

    return (berthi_encode_arguments){ .values = b->values + i * b->count, .dtype = b->dtype,
                                      .block_size = b->its->block_size, .count = b->count,
                                      .map = b->its->format == OF_MAP ? berthi_signed_map
                                                                      : NULL,
                                      .codes = b->codes + i * b->count,
                                      .absmax = b->absmax + i * b->most_absmax };
}

static berthi_rows_arguments
rows_arguments(const blocks *b, uint32_t turn)
{
    const berthi_encode_arguments e = encode_arguments(b, turn);

    return (berthi_rows_arguments){ .values = e.values, .dtype = e.dtype, .rows = b->rows,
                                    .columns = b->columns, .codes = (int8_t *)e.codes,
                                    .row_maximum = e.absmax };
}

static void
ask_encode(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const berthi_encode_arguments e = encode_arguments(b, turn);
    const berthi_rows_arguments rows = rows_arguments(b, turn);
    berth_status status = BERTH_OK;
    berthi_launch l;

    switch (b->its->format) {
    case OF_NF4: status = berthi_launch_encode_nf4(&e, &l, NULL); break;
    case OF_FP4: status = berthi_launch_encode_fp4(&e, &l, NULL); break;
    case OF_MAP: status = berthi_launch_encode_map(&e, &l, NULL); break;
    case OF_ROWS: status = berthi_launch_encode_rows(&rows, &l, NULL); break;
    }
    gpu_require_ok(status, NULL);
    gpu_launch(s, &l, 1);
}

static void
ask_encode_double(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint64_t i = turn % b->turns;
    const berthi_mean_arguments mean = { .values = b->absmax + i * b->most_absmax,
                                         .count = absmax_count(b), .partial = b->scratch };
    const berthi_double_arguments codes = { .absmax = mean.values, .count = mean.count,
                                            .codes = b->absmax_codes + i * b->most_absmax,
                                            .absmax2 = b->absmax2 + i * b->most_absmax2 };
    berthi_launch l[3];

    ask_encode(s, user, turn);
    gpu_require_ok(berthi_launch_mean(&mean, b->offset, l, NULL), NULL);
    gpu_require_ok(berthi_launch_encode_double(&codes, b->offset, &l[2], NULL), NULL);
    berthi_launch_join_mean(&l[1], &l[2]);
    gpu_launch(s, l, 3);
}

/* -------------------------------------------------------------------------- decoding */

static berthi_decode_arguments
decode_arguments(const blocks *b, uint32_t turn)
{
    const berthi_encode_arguments e = encode_arguments(b, turn);

    return (berthi_decode_arguments){ .codes = e.codes, .absmax = e.absmax, .count = e.count,
                                      .block_size = e.block_size, .dtype = e.dtype,
                                      .map = e.map,
                                      .values = b->values + turn % b->turns * b->count };
}

static void
ask_decode(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const berthi_decode_arguments d = decode_arguments(b, turn);
    const berthi_rows_decode_arguments rows = { .codes = (const int8_t *)d.codes,
                                                .row_maximum = d.absmax, .rows = b->rows,
                                                .columns = b->columns, .dtype = d.dtype,
                                                .values = d.values };
    berth_status status = BERTH_OK;
    berthi_launch l;

    switch (b->its->format) {
    case OF_NF4:
        status = berthi_launch_decode_4bit(&d, berthi_nf4_values, NULL, &l, NULL);
        break;
    case OF_FP4:
        status = berthi_launch_decode_4bit(&d, berthi_fp4_values, NULL, &l, NULL);
        break;
    case OF_MAP: status = berthi_launch_decode_map(&d, &l, NULL); break;
    case OF_ROWS: status = berthi_launch_decode_rows(&rows, &l, NULL); break;
    }
    gpu_require_ok(status, NULL);
    gpu_launch(s, &l, 1);
}

static void
ask_decode_double(gpu_speed *s, void *user, uint32_t turn)
{
    const blocks *const b = user;
    const uint64_t i = turn % b->turns;
    const berthi_double_absmax absmax = { .codes = b->absmax_codes + i * b->most_absmax,
                                          .absmax2 = b->absmax2 + i * b->most_absmax2,
                                          .map = berthi_signed_map, .offset = b->offset };
    const berthi_decode_arguments d = decode_arguments(b, turn);
    berthi_launch l;

    gpu_require_ok(berthi_launch_decode_4bit(&d, berthi_nf4_values, &absmax, &l, NULL), NULL);
    gpu_launch(s, &l, 1);
}

/* ------------------------------------------------------------------------- what is right */

/* Some values of the first turn, whole rows where these have a scale: as they are there. */
typedef struct window {
    uint64_t first;
    uint64_t count;
    uint64_t blocks; /* or rows */
    uint16_t *values;
    uint16_t *found; /* the same, decoded */
    uint8_t *codes;
    uint8_t *expected_codes;
    float *absmax;
    float *expected_absmax;
    uint8_t *absmax_codes;
    float *absmax2;
} window;

static window
open_window(const blocks *b, bool is_last)
{
    const uint64_t unit = b->its->format == OF_ROWS ? b->columns : WINDOW;
    window w = { .count = b->count < unit ? b->count : unit };

    w.first = is_last ? b->count - w.count : 0;
    w.blocks = b->its->format == OF_ROWS ? 1 : w.count / b->its->block_size;
    w.values = gpu_host_alloc(w.count * 2);
    w.found = gpu_host_alloc(w.count * 2);
    w.codes = gpu_host_alloc(w.count);
    w.expected_codes = gpu_host_alloc(w.count);
    w.absmax = gpu_host_alloc(w.blocks * sizeof(float));
    w.expected_absmax = gpu_host_alloc(w.blocks * sizeof(float));
    w.absmax_codes = gpu_host_alloc(w.blocks);
    w.absmax2 = gpu_host_alloc((w.blocks / BERTHI_DOUBLE_BLOCK + 1) * sizeof(float));
    return w;
}

static void
close_window(window *w)
{
    free(w->values);
    free(w->found);
    free(w->codes);
    free(w->expected_codes);
    free(w->absmax);
    free(w->expected_absmax);
    free(w->absmax_codes);
    free(w->absmax2);
}

static uint64_t
code_bytes(const blocks *b, uint64_t count)
{
    return b->its->format == OF_NF4 || b->its->format == OF_FP4 ? count / 2 : count;
}

static uint64_t
absmax_at(const blocks *b, uint64_t value)
{
    return b->its->format == OF_ROWS ? value / b->columns : value / b->its->block_size;
}

static void
fetch_codes(gpu_speed *s, const blocks *b, window *w)
{
    gpu_fetch(s, w->codes, b->codes + code_bytes(b, w->first), code_bytes(b, w->count));
    gpu_fetch(s, w->absmax, b->absmax + absmax_at(b, w->first), w->blocks * sizeof(float));
}

/* Blocks of the second level begin where windows do. */
static void
fetch_double(gpu_speed *s, const blocks *b, window *w)
{
    const uint64_t first = absmax_at(b, w->first);
    const uint64_t blocks2 =
        (w->blocks + BERTHI_DOUBLE_BLOCK - 1) / BERTHI_DOUBLE_BLOCK;

    gpu_fetch(s, w->absmax_codes, b->absmax_codes + first, w->blocks);
    gpu_fetch(s, w->absmax2, b->absmax2 + first / BERTHI_DOUBLE_BLOCK,
              blocks2 * sizeof(float));
}

static void
encode_here(const blocks *b, const window *w)
{
    const berthi_encode_arguments e = {
        .values = w->values, .dtype = b->dtype, .block_size = b->its->block_size,
        .count = w->count, .map = b->its->format == OF_MAP ? berthi_signed_map : NULL,
        .codes = w->expected_codes, .absmax = w->expected_absmax
    };
    const berthi_rows_arguments rows = { .values = e.values, .dtype = e.dtype, .rows = 1,
                                         .columns = w->count, .codes = (int8_t *)e.codes,
                                         .row_maximum = e.absmax };

    switch (b->its->format) {
    case OF_NF4: berthi_scalar_operations.encode_nf4(&e); break;
    case OF_FP4: berthi_scalar_operations.encode_fp4(&e); break;
    case OF_MAP: berthi_scalar_operations.encode_map(&e); break;
    case OF_ROWS: berthi_scalar_operations.encode_rows(&rows); break;
    }
}

static void
decode_here(const blocks *b, const window *w, const float *absmax)
{
    const berthi_decode_arguments d = {
        .codes = w->codes, .absmax = absmax, .count = w->count,
        .block_size = b->its->block_size, .dtype = b->dtype,
        .map = b->its->format == OF_MAP ? berthi_signed_map : NULL, .values = w->values
    };
    const berthi_rows_decode_arguments rows = { .codes = (const int8_t *)d.codes,
                                                .row_maximum = absmax, .rows = 1,
                                                .columns = w->count, .dtype = d.dtype,
                                                .values = d.values };

    switch (b->its->format) {
    case OF_NF4: berthi_scalar_operations.decode_nf4(&d); break;
    case OF_FP4: berthi_scalar_operations.decode_fp4(&d); break;
    case OF_MAP: berthi_scalar_operations.decode_map(&d); break;
    case OF_ROWS: berthi_scalar_operations.decode_rows(&rows); break;
    }
}

/* Codes, and absmax or their codes, at one end: those of the reference. */
static bool
is_end_encoded(gpu_speed *s, const blocks *b, bool is_double, bool is_last)
{
    window w = open_window(b, is_last);
    berthi_double_arguments twice = { .count = w.blocks, .map = berthi_signed_map };
    float *const scratch = gpu_host_alloc(BERTHI_DOUBLE_SCRATCH * sizeof(float));
    float *const absmax2 =
        gpu_host_alloc((w.blocks / BERTHI_DOUBLE_BLOCK + 1) * sizeof(float));
    uint8_t *const codes = gpu_host_alloc(w.blocks);
    bool is_right;

    gpu_fetch(s, w.values, b->values + w.first, w.count * 2);
    fetch_codes(s, b, &w);
    encode_here(b, &w);
    is_right = memcmp(w.codes, w.expected_codes, code_bytes(b, w.count)) == 0
               && memcmp(w.absmax, w.expected_absmax, w.blocks * sizeof(float)) == 0;
    if (is_right && is_double) {
        fetch_double(s, b, &w);
        gpu_fetch(s, &twice.offset, b->offset, sizeof twice.offset);
        twice.absmax = w.absmax;
        twice.codes = codes;
        twice.absmax2 = absmax2;
        twice.scratch = scratch;
        berthi_scalar_operations.encode_double(&twice);
        is_right = memcmp(w.absmax_codes, codes, w.blocks) == 0;
    }
    free(scratch);
    free(absmax2);
    free(codes);
    close_window(&w);
    return is_right;
}

static bool
are_codes_right(gpu_speed *s, const char *name, blocks *b, bool is_double)
{
    (is_double ? ask_encode_double : ask_encode)(s, b, 0);
    gpu_sync(s);
    return gpu_is_right(s, name, is_end_encoded(s, b, is_double, false)
                                     && is_end_encoded(s, b, is_double, true));
}

/* As the reference decodes the codes and absmax that are there. */
static bool
are_values_right(gpu_speed *s, const char *name, blocks *b, bool is_double)
{
    window w = open_window(b, true);
    berthi_double_arguments twice = { .count = w.blocks, .map = berthi_signed_map };
    bool is_right;

    (is_double ? ask_decode_double : ask_decode)(s, b, 0);
    gpu_sync(s);
    gpu_fetch(s, w.found, b->values + w.first, w.count * 2);
    fetch_codes(s, b, &w);
    if (is_double) {
        fetch_double(s, b, &w);
        gpu_fetch(s, &twice.offset, b->offset, sizeof twice.offset);
        twice.codes = w.absmax_codes;
        twice.absmax2 = w.absmax2;
        berthi_scalar_operations.decode_double(&twice, w.expected_absmax);
    }
    decode_here(b, &w, is_double ? w.expected_absmax : w.absmax);
    is_right = memcmp(w.found, w.values, w.count * 2) == 0;
    close_window(&w);
    return gpu_is_right(s, name, is_right);
}

/* ------------------------------------------------------------------------------ rows */

/* What is done to the codes of an encoding. */
typedef struct work {
    bool is_decoding;
    bool is_double;
} work;

static const work works[] = { { false, false }, { false, true }, { true, false },
                              { true, true } };

#define WORKS (sizeof works / sizeof *works)

static void
describe(const blocks *b, const work *w, char name[GPU_NAME])
{
    const bool is_f16 = b->dtype == BERTH_F16;
    char what[40];
    char block[20] = "";

    if (w->is_decoding)
        snprintf(what, sizeof what, "dequantize %s to %s", b->its->name,
                 is_f16 ? "F16" : "BF16");
    else
        snprintf(what, sizeof what, "quantize %s", b->its->name);
    if (b->its->block_size > 0)
        snprintf(block, sizeof block, ", block %u", b->its->block_size);
    snprintf(name, GPU_NAME, "%s, %" PRIu64 " x %" PRIu64 "%s%s%s", what, b->shape.rows,
             b->shape.columns, block, is_f16 && !w->is_decoding ? ", f16" : "",
             w->is_double ? ", double" : "");
}

/*
 * The least share of copying; 0: nothing is to be reached. Of NF4 in blocks of 64 and bf16, and of
 * weights that keep the memory busy: the largest, and to decode also the smaller one.
 */
static double
target_of(const blocks *b, const work *w)
{
    const bool is_main = b->shape.rows == 8192 && b->shape.columns == 28672;
    const bool is_smaller = b->shape.rows == 8192 && b->shape.columns == 8192;

    if (b->dtype != BERTH_BF16 || b->its->format != OF_NF4 || b->its->block_size != 64
        || w->is_double)
        return 0.0;
    if (w->is_decoding)
        return is_main ? 0.90 : is_smaller ? 0.85 : 0.0;
    return is_main ? 0.85 : 0.0;
}

/* Double quantization is judged by what it adds to that. */
static bool
is_judged(const blocks *b, const work *w)
{
    const work plain = { .is_decoding = w->is_decoding };

    return target_of(b, w->is_decoding ? w : &plain) > 0.0;
}

static double
counted_bytes(const blocks *b, bool is_double)
{
    const double absmax = (double)absmax_count(b);

    return (double)b->count * 2.0 + (double)code_bytes(b, b->count)
           + absmax * (is_double ? 1.0 + 4.0 / BERTHI_DOUBLE_BLOCK : 4.0);
}

static void
tell(gpu_speed *s, const blocks *b, const work *w, const char *name, const gpu_timing *t)
{
    const double target = target_of(b, w);
    const gpu_row row = { .group = target > 0.0 ? "blocks" : "blocks of all kinds", .name = name,
                          .relation = target > 0.0 ? ">=" : NULL, .target = target,
                          .timing = t };

    gpu_tell(s, &row, counted_bytes(b, w->is_double), s->copy_gbps, "of copy");
}

static void
tell_ratio(gpu_speed *s, const gpu_timing *plain, const gpu_timing *twice)
{
    const gpu_row row = { .group = "blocks", .name = "quantize NF4 with double quantization",
                          .value = twice->us / plain->us, .unit = "x without it",
                          .relation = "<=", .target = 1.05, .timing = twice };

    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

/* Codes and values have to be there before they are decoded, values before they are encoded. */
static void
prepare(gpu_speed *s, blocks *b, bool is_decoding)
{
    for (uint32_t i = 0; i < b->turns; i++)
        if (!is_decoding)
            gpu_fill_normal(s, b->values + i * b->count, b->dtype, b->count, i);
        else if (b->its->has_double)
            ask_encode_double(s, b, i);
        else
            ask_encode(s, b, i);
    gpu_sync(s);
}

static void
measure_chosen(gpu_speed *s, blocks *b, const work *const *chosen, uint32_t count)
{
    gpu_work asked[WORKS];
    gpu_timing t[WORKS];
    char name[GPU_NAME];
    bool is_right = true;

    prepare(s, b, chosen[0]->is_decoding);
    for (uint32_t i = 0; i < count; i++)
        asked[i] = (gpu_work){ chosen[i]->is_decoding
                                   ? chosen[i]->is_double ? ask_decode_double : ask_decode
                               : chosen[i]->is_double ? ask_encode_double : ask_encode, b };
    gpu_time(s, asked, count, t);
    for (uint32_t i = 0; i < count && is_right; i++) {
        describe(b, chosen[i], name);
        is_right = (chosen[i]->is_decoding ? are_values_right : are_codes_right)(
            s, name, b, chosen[i]->is_double);
        if (is_right)
            tell(s, b, chosen[i], name, &t[i]);
    }
    if (is_right && s->pass == GPU_JUDGED && !chosen[0]->is_decoding && count == 2)
        tell_ratio(s, &t[0], &t[1]);
}

/* With and without double quantization in turns, as far as the pass has them. */
static void
measure_works(gpu_speed *s, blocks *b, bool is_decoding, const char *why)
{
    const work *chosen[WORKS];
    uint32_t count = 0;
    char name[GPU_NAME];

    for (size_t i = 0; i < WORKS; i++)
        if (works[i].is_decoding == is_decoding
            && (!works[i].is_double || b->its->has_double)
            && is_judged(b, &works[i]) == (s->pass == GPU_JUDGED))
            chosen[count++] = &works[i];
    if (why == NULL)
        why = gpu_refusal(s, 0);
    if (count > 0 && why == NULL)
        measure_chosen(s, b, chosen, count);
    for (uint32_t i = 0; i < count && why != NULL; i++) {
        describe(b, chosen[i], name);
        gpu_rows_skip(s->rows, name, why);
    }
}

static bool
has_judged(const blocks *b)
{
    blocks usual = *b;
    bool is_any = false;

    usual.dtype = BERTH_BF16;
    usual.its = &encodings[0];
    for (size_t i = 0; i < WORKS; i++)
        is_any = is_any || is_judged(&usual, &works[i]);
    return is_any;
}

static void
measure_shape(gpu_speed *s, gpu_shape shape)
{
    const gpu_shape made = gpu_made(s, shape);
    const uint64_t count = made.rows * made.columns;
    blocks b = { .shape = shape, .rows = made.rows, .columns = made.columns, .count = count,
                 .turns = gpu_turns(s, bytes_of(count)), .most_absmax = count / LEAST_BLOCK,
                 .most_absmax2 = (count / LEAST_BLOCK / BERTHI_DOUBLE_BLOCK / 64 + 1) * 64 };
    const char *why;

    if (s->pass == GPU_JUDGED && !has_judged(&b))
        return;
    why = gpu_shape_refusal(s, shape, bytes_of(count) * b.turns);
    if (why == NULL)
        begin(s, &b);
    for (uint32_t d = 0; d < GPU_DTYPES; d++)
        for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
            b.dtype = d == 0 ? BERTH_BF16 : BERTH_F16;
            b.its = &encodings[i];
            measure_works(s, &b, false, why);
            measure_works(s, &b, true, why);
        }
    if (b.values != NULL)
        end(s, &b);
}

void
gpu_speed_blocks(gpu_speed *s)
{
    for (size_t i = 0; i < GPU_SHAPES; i++)
        measure_shape(s, gpu_shapes[i]);
}
