/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_values.c - weights in the caller's memory: against the reference loops,
 * and against the files that a conversion writes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/values_case.h"
#include "tests/weights.h"

static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8 };
static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* -------------------------------------------------------------------- queries */

static void
check_part(const values_weight *w, uint32_t i, int32_t role, int32_t dtype, uint64_t bytes,
           uint64_t cut, const char *suffix)
{
    const berth_values_part *const part = &w->parts[i];

    CHECK_EQ(part->role, role);
    CHECK_EQ(part->dtype, dtype);
    CHECK_EQ(part->bytes, bytes);
    CHECK_EQ(part->cut, cut);
    CHECK_STR(part->suffix, suffix);
}

static void
test_list(void)
{
    values_weight w;
    berth_error error;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_BF16, 3, 85);
    CHECK_EQ(berth_values_list(&w.options, w.parts, &w.part_count, &error), BERTH_OK);
    CHECK_EQ(w.part_count, 4);
    check_part(&w, 0, BERTH_ROLE_CODES, BERTH_U8, 128, 0, "");
    CHECK_EQ(w.parts[0].rank, 2);
    CHECK_EQ(w.parts[0].shape[0], 128);
    CHECK_EQ(w.parts[0].shape[1], 1);
    check_part(&w, 1, BERTH_ROLE_ABSMAX, BERTH_F32, 16, 0, ".absmax");
    CHECK_EQ(w.parts[1].rank, 1);
    CHECK_EQ(w.parts[1].shape[0], 4);
    check_part(&w, 2, BERTH_ROLE_MAP, BERTH_F32, 64, 0, ".quant_map");
    CHECK_STR(w.parts[3].suffix, ".quant_state.bitsandbytes__nf4");
    CHECK_EQ(w.parts[3].role, BERTH_ROLE_STATE);
    CHECK_EQ(w.parts[3].is_late, 0);
    w.options.double_quant = 1;
    w.options.block_size = 32;
    w.options.encoding = BERTH_ENCODING_FP4;
    CHECK_EQ(berth_values_list(&w.options, w.parts, &w.part_count, &error), BERTH_OK);
    CHECK_EQ(w.part_count, 6);
    check_part(&w, 1, BERTH_ROLE_ABSMAX, BERTH_U8, 8, 0, ".absmax");
    check_part(&w, 2, BERTH_ROLE_ABSMAX2, BERTH_F32, 4, 0, ".nested_absmax");
    check_part(&w, 3, BERTH_ROLE_MAP2, BERTH_F32, 1024, 0, ".nested_quant_map");
    CHECK_STR(w.parts[5].suffix, ".quant_state.bitsandbytes__fp4");
    CHECK_EQ(w.parts[5].is_late, 1);
    /* Blocks are of no concern to INT8, a second level is refused: test_refused_options. */
    w.options.encoding = BERTH_ENCODING_INT8;
    w.options.double_quant = 0;
    CHECK_EQ(berth_values_list(&w.options, w.parts, &w.part_count, &error), BERTH_OK);
    CHECK_EQ(w.part_count, 3);
    check_part(&w, 0, BERTH_ROLE_CODES, BERTH_I8, 255, 0, "");
    check_part(&w, 1, BERTH_ROLE_ROW_MAXIMUM, BERTH_F32, 12, 6, "SCB");
    check_part(&w, 2, BERTH_ROLE_ROW_FORMAT, BERTH_U8, 1, 6, "weight_format");
    CHECK_EQ(w.parts[2].rank, 0);
    berth_context_destroy(w.context);
}

static void
test_constants(void)
{
    const float thirds[] = { -1.0f, -0.6961928009986877f };
    uint8_t bytes[1024];
    size_t length;
    char text[512];
    values_weight w;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_BF16, 3, 85);
    memset(bytes, VALUES_GUARD, sizeof bytes);
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_MAP, bytes, 64, &w.error),
             BERTH_OK);
    CHECK_MEM(bytes, thirds, sizeof thirds);
    CHECK_EQ(bytes[64], VALUES_GUARD);
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_MAP, bytes, 63, &w.error),
             BERTH_EINVAL);
    CHECK_EQ(w.error.expected, 64);
    CHECK_EQ(w.error.actual, 63);
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_MAP, NULL, 64, &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_MAP2, bytes, 1024, &w.error),
             BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "none of such a weight's parts");
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_CODES, bytes, 128, &w.error),
             BERTH_EINVAL);
    w.options.double_quant = 1;
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_MAP2, bytes, 1024, &w.error),
             BERTH_OK);
    CHECK_MEM(bytes, berthi_signed_map, 1024);
    CHECK_EQ(berth_values_state(&w.options, 0.5f, NULL, 0, &length, &w.error), BERTH_OK);
    memset(text, 'x', sizeof text);
    CHECK_EQ(berth_values_state(&w.options, 0.5f, text, sizeof text, &length, &w.error),
             BERTH_OK);
    CHECK_EQ(text[length], 'x');
    text[length] = '\0';
    CHECK_CONTAINS(text, "\"nested_offset\": 0.5");
    CHECK_CONTAINS(text, "\"shape\": [3, 85]");
    CHECK_EQ(text[length - 1], '}');
    memset(text, 'x', sizeof text);
    CHECK_EQ(berth_values_state(&w.options, 0.5f, text, 7, &length, &w.error), BERTH_OK);
    CHECK_EQ(text[6] != 'x', true);
    CHECK_EQ(text[7], 'x');
    CHECK_EQ(berth_values_state(&w.options, 0.5f, NULL, 1, &length, &w.error), BERTH_EINVAL);
    CHECK_EQ(berth_values_state(&w.options, 0.5f, text, 7, NULL, &w.error), BERTH_EINVAL);
    w.options.encoding = BERTH_ENCODING_INT8;
    w.options.double_quant = 0;
    CHECK_EQ(berth_values_state(&w.options, 0, text, sizeof text, &length, &w.error),
             BERTH_EINVAL);
    CHECK_EQ(length, 0);
    CHECK_EQ(berth_values_constant(&w.options, BERTH_ROLE_ROW_FORMAT, bytes, 1, &w.error),
             BERTH_OK);
    CHECK_EQ(bytes[0], 0);
    berth_context_destroy(w.context);
}

/* ------------------------------------------------------ quantize, dequantize */

/* The whole weight by the reference loops: codes, first-level absmax. */
static void
encode_plainly(const values_weight *w, uint8_t *codes, float *absmax)
{
    const berthi_operations *const scalar = &berthi_scalar_operations;
    const uint32_t block = w->options.block_size > 0 ? w->options.block_size : 64;
    const berthi_encode_arguments a = { w->values, w->options.dtype, block, w->elements,
                                        NULL,      codes,            absmax };

    if (w->options.encoding == BERTH_ENCODING_NF4)
        scalar->encode_nf4(&a);
    else if (w->options.encoding == BERTH_ENCODING_FP4)
        scalar->encode_fp4(&a);
    else
        scalar->encode_rows(&(berthi_rows_arguments){ w->values, w->options.dtype,
                                                      w->shape[0], w->shape[1],
                                                      (int8_t *)codes, absmax });
}

static void
decode_plainly(const values_weight *w, const float *absmax, void *values)
{
    const berthi_operations *const scalar = &berthi_scalar_operations;
    const uint32_t block = w->options.block_size > 0 ? w->options.block_size : 64;
    const berthi_decode_arguments a = { w->buffers.codes, absmax, w->elements, block,
                                        w->options.dtype, NULL,   values };

    if (w->options.encoding == BERTH_ENCODING_NF4)
        scalar->decode_nf4(&a);
    else if (w->options.encoding == BERTH_ENCODING_FP4)
        scalar->decode_fp4(&a);
    else
        scalar->decode_rows(&(berthi_rows_decode_arguments){
            w->buffers.codes, absmax, w->shape[0], w->shape[1], w->options.dtype, values });
}

/* Both levels, by the reference; returns the first. */
static float *
check_double(const values_weight *w, const float *absmax, uint64_t blocks)
{
    float *const partial = weights_alloc(berthi_mean_scratch(blocks, 0, 0) * sizeof(float));
    float *const scratch = weights_alloc(BERTHI_DOUBLE_SCRATCH * sizeof(float));
    uint8_t *const codes = weights_alloc(blocks);
    float *const absmax2 = weights_alloc((blocks + 255) / 256 * sizeof(float));
    float *const first = weights_alloc(blocks * sizeof(float));
    const float offset = berthi_mean(
        &(berthi_mean_arguments){ .values = absmax, .count = blocks, .partial = partial });
    const berthi_double_arguments a = { .absmax = absmax, .count = blocks, .codes = codes,
                                        .absmax2 = absmax2, .offset = offset,
                                        .scratch = scratch, .map = berthi_signed_map };

    berthi_scalar_operations.encode_double(&a);
    CHECK_MEM(w->buffers.absmax, codes, blocks);
    CHECK_MEM(w->buffers.absmax2, absmax2, (blocks + 255) / 256 * sizeof(float));
    CHECK_MEM(&w->buffers.offset, &offset, sizeof offset);
    berthi_scalar_operations.decode_double(&a, first);
    free(partial);
    free(scratch);
    free(codes);
    free(absmax2);
    return first;
}

static void
check_weight(int32_t encoding, int32_t dtype, uint64_t rows, uint64_t columns,
             uint32_t block, bool is_double, uint32_t threads)
{
    const uint64_t blocks = encoding == BERTH_ENCODING_INT8
                                ? rows
                                : (rows * columns + block - 1) / block;
    float *absmax = weights_alloc(blocks * sizeof(float));
    float *recovered;
    uint8_t *codes;
    uint8_t *values;
    values_weight w;

    values_begin(&w, encoding, dtype, rows, columns);
    w.options.block_size = block;
    w.options.double_quant = is_double;
    w.options.threads = threads;
    values_allocate(&w, rows + columns + threads, !is_double && threads % 2 == 1);
    codes = weights_alloc(w.buffers.codes_bytes);
    values = weights_alloc(w.values_bytes);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    encode_plainly(&w, codes, absmax);
    CHECK_MEM(w.buffers.codes, codes, w.buffers.codes_bytes);
    if (is_double) {
        float *const first = check_double(&w, absmax, blocks);

        free(absmax);
        absmax = first;
        recovered = (float *)(void *)values_guarded(blocks * sizeof(float));
        CHECK_EQ(berth_values_recover(w.context, &w.options, &w.buffers, recovered,
                                      blocks * sizeof(float), &w.error),
                 BERTH_OK);
        CHECK_MEM(recovered, absmax, blocks * sizeof(float));
        values_release((uint8_t *)recovered, blocks * sizeof(float));
    } else {
        CHECK_MEM(w.buffers.absmax, absmax, blocks * sizeof(float));
    }
    decode_plainly(&w, absmax, values);
    memset(w.values, VALUES_GUARD, w.values_bytes);
    CHECK_EQ(berth_values_dequantize(w.context, &w.options, &w.buffers, w.values,
                                     w.values_bytes, &w.error),
             BERTH_OK);
    for (uint64_t i = 0; i < w.elements; i++) {
        const float expected = berthi_core_load(values, dtype, i);
        const float got = berthi_core_load(w.values, dtype, i);

        if ((isnan(expected) && isnan(got))
            || berthi_core_bits(expected) == berthi_core_bits(got))
            continue;
        CHECK_EQ(i, w.elements);
        break;
    }
    free(absmax);
    free(codes);
    free(values);
    values_end(&w);
}

static void
test_round_trip(void)
{
    static const uint32_t threads[] = { 1, 2, 3, 16, 0 };
    static const uint64_t shapes[][2] = { { 1, 1 },  { 1, 63 },   { 3, 85 },
                                          { 64, 1 }, { 17, 129 }, { 5, 1 } };

    for (size_t e = 0; e < 3; e++)
        for (size_t d = 0; d < 3; d++) {
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                for (int is_double = 0; is_double < 2; is_double++)
                    check_weight(encodings[e], numbers[d], shapes[s][0], shapes[s][1],
                                 s % 2 == 0 ? 64 : 32,
                                 is_double && encodings[e] != BERTH_ENCODING_INT8, 1);
        }
    /* Several parts, the last one short; odd counts. */
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++)
        for (size_t e = 0; e < 3; e++)
            check_weight(encodings[e], numbers[t % 3], 701, 1011, 64,
                         t % 2 == 0 && encodings[e] != BERTH_ENCODING_INT8, threads[t]);
    check_weight(BERTH_ENCODING_NF4, BERTH_BF16, 700, 1024, 4096, true, 2);
}

/* ------------------------------------------------------------- files as oracle */

/* What a conversion writes is what these calls say, part by part. */
static void
check_file(int32_t encoding, bool is_double)
{
    const char *const source = fixture_format("%s/in", fixture_folder());
    const char *const output = fixture_format("%s/out", fixture_folder());
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    berth_checkpoint *checkpoint = NULL;
    converted c;
    values_weight w;

    fixture_model(source, "[model.safetensors]\n"
                          "BF16 96x67 model.layers.0.mlp.up_proj.weight\n"
                          "BF16 67 model.norm.weight\n");
    converted_begin(&c, output, encoding);
    c.options.double_quant = is_double;
    if (!CHECK_EQ(converted_run(&c, source), BERTH_OK))
        T_NOTE("%s: %s", c.error.file, c.error.message);
    values_begin(&w, encoding, BERTH_BF16, 96, 67);
    w.options.double_quant = is_double;
    values_allocate(&w, 1, false);
    fixture_payload(name, 0, w.values, w.values_bytes);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    T_REQUIRE(berth_checkpoint_open(w.context, output, NULL, &checkpoint, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < w.part_count; i++) {
        const berth_values_part *const part = &w.parts[i];
        const char *const stored = fixture_format(
            "%.*s%s", (int)(sizeof name - 1 - part->cut), name, part->suffix);
        const uint64_t index = berth_checkpoint_find(checkpoint, stored, strlen(stored));
        uint8_t expected[8192];
        uint8_t got[8192];
        size_t length = part->bytes;
        berth_tensor tensor;

        if (!CHECK_EQ(berth_checkpoint_tensor(checkpoint, index, &tensor), BERTH_OK)) {
            T_NOTE("%s", stored);
            continue;
        }
        switch (part->role) {
        case BERTH_ROLE_CODES: memcpy(got, w.buffers.codes, length); break;
        case BERTH_ROLE_ABSMAX:
        case BERTH_ROLE_ROW_MAXIMUM: memcpy(got, w.buffers.absmax, length); break;
        case BERTH_ROLE_ABSMAX2: memcpy(got, w.buffers.absmax2, length); break;
        case BERTH_ROLE_STATE:
            CHECK_EQ(berth_values_state(&w.options, w.buffers.offset, (char *)got,
                                        sizeof got, &length, NULL),
                     BERTH_OK);
            break;
        default:
            CHECK_EQ(berth_values_constant(&w.options, part->role, got, length, NULL),
                     BERTH_OK);
            break;
        }
        CHECK_EQ(tensor.bytes, length);
        CHECK_EQ(tensor.dtype, part->dtype);
        CHECK_EQ(tensor.rank, part->rank);
        if (part->rank > 0 && part->is_late == 0)
            CHECK_MEM(tensor.shape, part->shape, part->rank * sizeof(uint64_t));
        CHECK_EQ(berth_checkpoint_read(checkpoint, index, 0, UINT64_MAX, expected,
                                       tensor.bytes, NULL),
                 BERTH_OK);
        CHECK_MEM(got, expected, length);
    }
    berth_checkpoint_close(checkpoint);
    values_end(&w);
}

static void
test_files(void)
{
    check_file(BERTH_ENCODING_NF4, false);
    check_file(BERTH_ENCODING_NF4, true);
    check_file(BERTH_ENCODING_FP4, true);
    check_file(BERTH_ENCODING_INT8, false);
}

/* --------------------------------------------------------------------- errors */

static void
refuse_options(const values_weight *w, const char *words)
{
    berth_values_part parts[BERTH_VALUES_PARTS];
    uint32_t count = 9;
    berth_error error;

    CHECK_EQ(berth_values_list(&w->options, parts, &count, &error), BERTH_EINVAL);
    CHECK_EQ(count, 0);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(error.message, "`options`");
    CHECK_CONTAINS(error.message, words);
}

static void
test_refused_options(void)
{
    uint64_t many[BERTH_MAX_RANK + 1];
    uint32_t count;
    values_weight w;
    values_weight good;

    values_begin(&good, BERTH_ENCODING_NF4, BERTH_BF16, 4, 64);
    w = good;
    w.options.shape = w.shape;
    w.options.encoding = BERTH_ENCODING_NATIVE;
    refuse_options(&w, "none of nf4, fp4 and int8");
    w.options.encoding = BERTH_ENCODING_INT8;
    w.options.double_quant = 1;
    refuse_options(&w, "double_quant, which is for nf4 and fp4");
    w.options.double_quant = 0;
    w.options.encoding = BERTH_ENCODING_MXFP4;
    refuse_options(&w, "none of nf4, fp4 and int8");
    w.options.encoding = -1;
    refuse_options(&w, "none of nf4, fp4 and int8");
    w.options = good.options;
    w.options.dtype = BERTH_F64;
    refuse_options(&w, "BF16, F16 and F32");
    w.options.dtype = -7;
    refuse_options(&w, "BF16, F16 and F32");
    w.options = good.options;
    w.options.shape = NULL;
    refuse_options(&w, "no shape");
    w.options = good.options;
    w.options.rank = BERTH_MAX_RANK + 1;
    w.options.shape = many;
    refuse_options(&w, "more dims");
    w.options = good.options;
    w.options.rank = 0;
    refuse_options(&w, "cannot be stored");
    w.options = good.options;
    w.options.block_size = 48;
    refuse_options(&w, "cannot be stored");
    w.options.block_size = 8192;
    refuse_options(&w, "cannot be stored");
    w.options = good.options;
    w.options.storage = BERTH_C64;
    refuse_options(&w, "cannot be stored");
    w.options = good.options;
    w.options.shape = w.shape;
    w.shape[0] = 0;
    refuse_options(&w, "without values");
    w.shape[0] = UINT64_MAX;
    refuse_options(&w, "cannot be stored");
    w.shape[0] = UINT64_C(1) << 50;
    refuse_options(&w, "more values than memory holds");
    w.options.encoding = BERTH_ENCODING_INT8;
    w.options.rank = 1;
    refuse_options(&w, "only matrices");
    w.options = good.options;
    w.options.struct_size = 0;
    refuse_options(&w, "struct_size");
    CHECK_EQ(berth_values_list(NULL, w.parts, &count, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_values_list(&good.options, NULL, &count, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_values_list(&good.options, w.parts, NULL, NULL), BERTH_EINVAL);
    berth_context_destroy(good.context);
}

/* Of each call that takes buffers: refused, and nothing written. */
static void
refuse_buffers(values_weight *w, const char *name, const char *words)
{
    uint8_t *const codes = weights_alloc(w->elements);
    const uint8_t *const real =
        values_part(w, BERTH_ROLE_CODES) != NULL ? w->buffers.codes : NULL;

    memcpy(codes, w->values, w->elements);
    CHECK_EQ(values_quantize(w), BERTH_EINVAL);
    CHECK_EQ(w->error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(w->error.message, fixture_format("`%s`", name));
    CHECK_CONTAINS(w->error.message, words);
    CHECK_MEM(w->values, codes, w->elements);
    if (real != NULL && w->buffers.codes_bytes > 0)
        CHECK_EQ(real[0], VALUES_GUARD);
    CHECK_EQ(berth_values_dequantize(w->context, &w->options, &w->buffers, w->values,
                                     w->values_bytes, &w->error),
             BERTH_EINVAL);
    CHECK_CONTAINS(w->error.message, fixture_format("`%s`", name));
    CHECK_MEM(w->values, codes, w->elements);
    free(codes);
}

static void
test_refused_buffers(void)
{
    berth_values_buffers good;
    uint8_t *values;
    values_weight w;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_F32, 8, 64);
    w.options.double_quant = 1;
    values_allocate(&w, 3, false);
    good = w.buffers;
    values = w.values;
    w.buffers.codes_bytes--;
    refuse_buffers(&w, "codes", "another size");
    CHECK_EQ(w.error.expected, 256);
    CHECK_EQ(w.error.actual, 255);
    w.buffers.codes_bytes = UINT64_MAX;
    refuse_buffers(&w, "codes", "another size");
    w.buffers = good;
    w.buffers.absmax = NULL;
    refuse_buffers(&w, "absmax", "NULL");
    w.buffers = good;
    w.buffers.absmax2_bytes = 0;
    refuse_buffers(&w, "absmax2", "another size");
    w.buffers = good;
    w.buffers.absmax2 = (float *)((uintptr_t)good.absmax2 + 1);
    refuse_buffers(&w, "absmax2", "aligned");
    w.buffers = good;
    w.buffers.absmax = (uint8_t *)good.codes + good.codes_bytes - good.absmax_bytes;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "overlaps `codes`");
    w.buffers = good;
    w.buffers.codes = w.values;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "`values`");
    CHECK_CONTAINS(w.error.message, "overlaps `codes`");
    w.buffers = good;
    w.buffers.codes = (void *)(UINTPTR_MAX - 10);
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "end of memory");
    w.buffers = good;
    w.buffers.struct_size = offsetof(berth_values_buffers, offset);
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "offset");
    w.buffers.struct_size = 0;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    w.buffers = good;
    w.values = values + 1;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "aligned");
    w.values = NULL;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    w.values = values;
    w.values_bytes--;
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "`values`");
    w.values_bytes++;
    w.options.double_quant = 0; /* with absmax of two levels */
    CHECK_EQ(values_quantize(&w), BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "`absmax`");
    CHECK_EQ(berth_values_recover(w.context, &w.options, &w.buffers, (float *)(void *)w.values,
                                  32, &w.error),
             BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "double_quant");
    w.options.double_quant = 1;
    CHECK_EQ(berth_values_recover(w.context, &w.options, &w.buffers, (float *)(void *)w.values,
                                  28, &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_recover(w.context, &w.options, NULL, (float *)(void *)w.values, 32,
                                  &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_recover(NULL, &w.options, &w.buffers, (float *)(void *)w.values, 32,
                                  &w.error),
             BERTH_EINVAL);
    CHECK_CONTAINS(w.error.message, "`context`");
    CHECK_EQ(berth_values_quantize(NULL, &w.options, w.values, w.values_bytes, &w.buffers,
                                   &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_quantize(w.context, NULL, w.values, w.values_bytes, &w.buffers,
                                   &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_quantize(w.context, &w.options, w.values, w.values_bytes, NULL,
                                   &w.error),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_dequantize(NULL, &w.options, &w.buffers, w.values,
                                     w.values_bytes, NULL),
             BERTH_EINVAL);
    CHECK_EQ(values_quantize(&w), BERTH_OK); /* all of it was right but for what was changed */
    values_end(&w);
}

/* --------------------------------------------------------------------- faults */

static berth_status
fail_calls(void *user, berth_context *context, berth_error *error)
{
    values_weight *const w = user;
    values_factors f;
    berth_status status;

    values_begin_product(&f, w, 2, BERTH_BF16);
    status = berth_values_quantize(context, &w->options, w->values, w->values_bytes,
                                   &w->buffers, error);
    if (status == BERTH_OK)
        status = berth_values_multiply(context, &w->options, &w->buffers, &f.product, error);
    if (status == BERTH_OK)
        status = berth_values_dequantize(context, &w->options, &w->buffers, w->values,
                                         w->values_bytes, error);
    values_end_product(&f);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts;
    values_weight w;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_BF16, 1100, 512); /* more than one part */
    w.options.double_quant = 1;
    w.options.threads = 3;
    values_allocate(&w, 3, false);
    counts = fault_loop("values", fail_calls, &w);
    CHECK_GE(counts.memory, 4);
    /* Threads that cannot be started are done without. */
    CHECK_GE(counts.system, 3);
    CHECK_EQ(counts.survived, counts.system);
    values_end(&w);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_list);
    T_RUN(test_constants);
    T_RUN(test_round_trip);
    T_RUN(test_files);
    T_RUN(test_refused_options);
    T_RUN(test_refused_buffers);
    T_RUN(test_faults);
    T_MAIN_END;
}
