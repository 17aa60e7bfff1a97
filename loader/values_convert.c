/* SPDX-License-Identifier: Apache-2.0 */
/* values_convert.c - values to codes and back, in the caller's memory. */
#include <string.h>

#include "kernels/base.h"
#include "kernels/float_mode.h"
#include "loader/values.h"
#include "quant/dequantize.h"
#include "quant/format.h"
#include "quant/quantize.h"

#define ALIGNMENT 64u

/* One call under way. */
typedef struct conversion {
    berthi_values values;
    berth_values_buffers buffers;
    berthi_operations operations;
    berthi_quantizer quantizer;
    berthi_decoder decoder;
    uint64_t piece; /* values of a part; the last one is shorter */
    const uint8_t *from;
    uint8_t *to;
    float *absmax;  /* first level, as floats */
} conversion;

static uint32_t
width_of(const conversion *c)
{
    return berthi_format_element_bytes(c->values.storage.dtype);
}

/* Takes options, buffers and values; nothing is read or written. */
static berth_status
take(conversion *c, const berth_context *context,
     const berth_values_options *options, const berth_values_buffers *buffers,
     bool is_quantized, const void *values, uint64_t size, berth_error *error)
{
    berthi_values_range ranges[BERTHI_VALUES_RANGES];
    uint32_t count;
    berth_status status;

    memset(c, 0, sizeof *c);
    status = berthi_values_take(options, &c->values, error);
    if (status == BERTH_OK)
        status = berthi_values_take_buffers(&c->values, buffers, is_quantized,
                                            &c->buffers, ranges, &count, error);
    if (status != BERTH_OK)
        return status;
    ranges[count] = (berthi_values_range){ "values", values, size, c->values.value_bytes,
                                           width_of(c), !is_quantized };
    c->operations = berthi_level_operations(context->level);
    (void)berthi_quantizer_can_init(&c->quantizer, &c->operations, &c->values.storage,
                                    c->values.shape, c->values.rank);
    return berthi_values_check(ranges, count + 1, error);
}

static void
run_parts(conversion *c, berthi_values_work work)
{
    const uint64_t step = berthi_quantizer_step(&c->quantizer);
    uint64_t parts;

    c->piece = berthi_max_u64(BERTHI_VALUES_PIECE / step, 1) * step;
    parts = berthi_divide_up(c->values.elements, c->piece);
    berthi_values_run(berthi_values_threads(c->values.threads, parts), parts, work, c);
}

static float *
take_absmax(berth_context *context, const conversion *c, berth_error *error)
{
    float *const absmax =
        berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH,
                              c->values.blocks * sizeof(float), ALIGNMENT);

    if (absmax == NULL)
        (void)berthi_fail_memory(error, "the statistics of a weight");
    return absmax;
}

static void
give_absmax(berth_context *context, const conversion *c, float *absmax)
{
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, absmax,
                               c->values.blocks * sizeof(float), ALIGNMENT);
}

/* ------------------------------------------------------------------ quantize */

static void
encode_part(void *user, uint32_t worker, uint64_t part)
{
    const conversion *const c = user;
    const uint64_t first = part * c->piece;
    const uint64_t count = berthi_min_u64(c->piece, c->values.elements - first);
    const berthi_quantized_part place =
        berthi_quantizer_part(&c->quantizer, first, count);

    (void)worker;
    berthi_quantizer_encode(&c->quantizer, c->from + first * width_of(c), count,
                            c->to + place.begin, c->absmax + place.first_maximum);
}

static berth_status
quantize_doubly(berth_context *context, conversion *c, float *out_offset,
                berth_error *error)
{
    const uint64_t bytes = berthi_quantizer_scratch(&c->quantizer) * sizeof(float);
    float *const scratch =
        berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH, bytes, ALIGNMENT);
    berth_status status = BERTH_ENOMEM;

    c->absmax = take_absmax(context, c, error);
    if (scratch == NULL)
        (void)berthi_fail_memory(error, "the statistics of a weight");
    if (scratch != NULL && c->absmax != NULL) {
        run_parts(c, encode_part);
        *out_offset = berthi_quantizer_finish(&c->quantizer, c->absmax, c->buffers.absmax,
                                              c->buffers.absmax2, scratch);
        status = BERTH_OK;
    }
    give_absmax(context, c, c->absmax);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch, bytes, ALIGNMENT);
    return status;
}

berth_status
berth_values_quantize(berth_context *context, const berth_values_options *options,
                      const void *values, uint64_t size, berth_values_buffers *buffers,
                      berth_error *error)
{
    conversion c;
    fenv_t mode;
    float offset = 0;
    berth_status status = BERTH_OK;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    status = take(&c, context, options, buffers, true, values, size, error);
    if (status != BERTH_OK)
        return status;
    if (buffers->struct_size < offsetof(berth_values_buffers, offset) + sizeof offset)
        return berthi_fail_argument(error, "buffers", "has no offset");
    c.from = values;
    c.to = c.buffers.codes;
    c.absmax = c.buffers.absmax;
    berthi_float_mode_begin(&mode);
    if (c.values.storage.is_double)
        status = quantize_doubly(context, &c, &offset, error);
    else
        run_parts(&c, encode_part);
    berthi_float_mode_end(&mode);
    if (status == BERTH_OK)
        buffers->offset = offset;
    return status;
}

/* ---------------------------------------------------------------- dequantize */

/* As classify would describe the stored weight. */
static berthi_quantized
describe(const conversion *c)
{
    const berthi_storage *const storage = &c->values.storage;

    return (berthi_quantized){
        .shape = c->values.shape,
        .elements = c->values.elements,
        .offset = (double)c->buffers.offset,
        .block_size = storage->block_size,
        .encoding = (int16_t)storage->encoding,
        .dtype = (int16_t)storage->dtype,
        .nested_dtype = BERTH_F32,
        .rank = (uint8_t)c->values.rank,
        .is_double = storage->is_double,
    };
}

/* `absmax`: room for the first level where there are two. */
static berth_status
prepare(conversion *c, float *absmax, berth_error *error)
{
    float map2[BERTHI_STORED_CONSTANT_MAX / sizeof(float)];
    const berthi_quantized record = describe(c);
    const berthi_companion companions[3] = {
        { c->buffers.absmax, c->buffers.absmax_bytes,
          c->values.storage.is_double ? BERTH_U8 : BERTH_F32 },
        { c->buffers.absmax2, c->buffers.absmax2_bytes, BERTH_F32 },
        { map2, sizeof map2, BERTH_F32 },
    };

    (void)berthi_stored_constant(BERTHI_ROLE_MAP2, c->values.storage.encoding,
                                 (uint8_t *)map2);
    if (berthi_decoder_can_init(&c->decoder, &c->operations, &record)
        && berthi_decoder_can_prepare(&c->decoder, companions, absmax))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                       "a weight that was listed cannot be decoded");
}

static void
decode_part(void *user, uint32_t worker, uint64_t part)
{
    const conversion *const c = user;
    const uint64_t first = part * c->piece;
    const uint64_t count = berthi_min_u64(c->piece, c->values.elements - first);
    const berthi_decoder_span span = berthi_decoder_extent(&c->decoder, first, count);

    (void)worker;
    berthi_decoder_decode(&c->decoder, first, count, c->from + span.begin,
                          c->values.storage.dtype, c->to + first * width_of(c));
}

berth_status
berth_values_dequantize(berth_context *context, const berth_values_options *options,
                        const berth_values_buffers *buffers, void *values, uint64_t size,
                        berth_error *error)
{
    conversion c;
    fenv_t mode;
    float *absmax = NULL;
    berth_status status = BERTH_OK;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    status = take(&c, context, options, buffers, false, values, size, error);
    if (status != BERTH_OK)
        return status;
    if (c.values.storage.is_double) {
        absmax = take_absmax(context, &c, error);
        if (absmax == NULL)
            return BERTH_ENOMEM;
    }
    c.from = c.buffers.codes;
    c.to = values;
    berthi_float_mode_begin(&mode);
    status = prepare(&c, absmax, error);
    if (status == BERTH_OK)
        run_parts(&c, decode_part);
    berthi_float_mode_end(&mode);
    give_absmax(context, &c, absmax);
    return status;
}

berth_status
berth_values_recover(berth_context *context, const berth_values_options *options,
                     const berth_values_buffers *buffers, float *absmax, uint64_t size,
                     berth_error *error)
{
    berthi_values_range ranges[BERTHI_VALUES_RANGES];
    conversion c;
    fenv_t mode;
    uint32_t count;
    berth_status status;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    memset(&c, 0, sizeof c);
    c.operations = berthi_level_operations(context->level);
    status = berthi_values_take(options, &c.values, error);
    if (status == BERTH_OK && !c.values.storage.is_double)
        status = berthi_fail_argument(error, "options", "has no double_quant");
    if (status == BERTH_OK)
        status = berthi_values_take_buffers(&c.values, buffers, false, &c.buffers, ranges,
                                            &count, error);
    if (status != BERTH_OK)
        return status;
    ranges[0] = (berthi_values_range){ "absmax out", absmax, size,
                                       c.values.blocks * sizeof(float), sizeof(float),
                                       true };
    status = berthi_values_check(ranges, count, error);
    berthi_float_mode_begin(&mode);
    if (status == BERTH_OK)
        status = prepare(&c, absmax, error);
    berthi_float_mode_end(&mode);
    return status;
}
