/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_nested.c - weights whose statistics mean something else than those of the same
 * names that berth makes: a second level with the table of old CPU versions, which has -1
 * first, or of another dtype, and absmax that were transposed. A load decodes them by what
 * their file says, and encodes anew, as a conversion does.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/tables.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/sliced.h"
#include "tests/t.h"

/* What a file says otherwise: all places of `from` in it become `to`, of the same length. */
typedef struct form {
    const char *from;
    const char *to;
    size_t length;
} form;

static const form forms[] = {
    { "\x33\x33\x7e\xbf", "\x00\x00\x80\xbf", 4 }, /* -0.99296874 */
    { "\"nested_dtype\": \"float32\"", "\"nested_dtype\": \"float16\"", 25 },
};

#define FORMS (sizeof forms / sizeof forms[0])

/* A folder's only file; returns how many places there were. */
static uint32_t
change(const char *folder, const form *f)
{
    const char *const path = fixture_format("%s/model.safetensors", folder);
    uint32_t count = 0;
    size_t length;
    char *const bytes = fixture_read(path, &length);

    for (size_t i = 0; i + f->length <= length; i++)
        if (memcmp(bytes + i, f->from, f->length) == 0) {
            memcpy(bytes + i, f->to, f->length);
            count++;
        }
    fixture_write(path, bytes, length);
    fixture_remove(fixture_format("%s/berth.manifest.json", folder));
    free(bytes);
    return count;
}

static berth_plan_options
options_of(int32_t encoding)
{
    berth_plan_options options = loaded_options("cpu=1GiB");

    options.type = encoding;
    options.double_quant = 1;
    return options;
}

/* A model that was quantized doubly, with the statistics of this form. */
static const char *
make(const char *plain, int32_t encoding, const form *f)
{
    const berth_plan_options options = options_of(encoding);
    const char *const folder = loaded_quantized(plain, &options);

    CHECK_GE(change(folder, f), 7); /* each of the matrices of a layer */
    return folder;
}

/* Loads `source` as it is stored: each berth has what a conversion of `source` writes. */
static void
check_load(const char *source, const char *converted, const char *memory, const char *words)
{
    berth_plan_options options = loaded_options(memory);
    berth_check_report report;
    loaded l;

    loaded_begin(&l, source, &options, words);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK) {
        loaded_check(&l, converted);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
    }
    loaded_end(&l);
}

static void
test_encoded_anew(void)
{
    static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4 };
    const char *const plain = loaded_llama(1, "BF16", 1);

    for (size_t i = 0; i < 2 * FORMS; i++) {
        const berth_plan_options options = options_of(encodings[i % 2]);
        const char *const source = make(plain, encodings[i % 2], &forms[i / 2]);
        const char *const converted = loaded_quantized(source, &options);

        check_load(source, converted, "cpu=1GiB", NULL);
        check_load(source, converted, "0=64MiB,cpu=64MiB", "sim:64MiB");
    }
}

/* Saved after inference on a CPU: absmax of [4, 128] in blocks of 64 as BF16 [2, 4]. */
static const char *
make_transposed(void)
{
    static const char *const name = "model.layers.0.a.weight";
    static const char *const state = "{\"quant_type\": \"nf4\", \"blocksize\": 64, "
                                     "\"dtype\": \"bfloat16\", \"shape\": [4, 128]}";
    static const uint64_t packed[2] = { 256, 1 };
    static const uint64_t blocks[2] = { 2, 4 };
    static const uint16_t absmax[8] = { 0x3f80, 0x4000, 0x4040, 0x4080,
                                        0x40a0, 0x40c0, 0x40e0, 0x4100 }; /* 1 to 8 */
    const char *const folder = fixture_folder();
    const uint64_t codes = 16;
    const uint64_t length = strlen(state);
    fixture_builder *const b = fixture_begin();

    fixture_add(b, name, "U8", 2, packed, NULL);
    fixture_add(b, fixture_format("%s.absmax", name), "BF16", 2, blocks, absmax);
    fixture_add(b, fixture_format("%s.quant_map", name), "F32", 1, &codes, berthi_nf4_values);
    fixture_add(b, fixture_format("%s.quant_state.bitsandbytes__nf4", name), "U8", 1, &length,
                state);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

static void
test_transposed(void)
{
    const char *const folder = make_transposed();
    berth_plan_options options = options_of(BERTH_ENCODING_NF4);
    const char *converted;

    options.double_quant = 0;
    converted = loaded_quantized(folder, &options);
    check_load(folder, converted, "cpu=1GiB", NULL);
    check_load(folder, converted, "0=64MiB,cpu=64MiB", "sim:64MiB");
}

/* As published, nothing is decoded: a load has the bytes of the file. */
static void
test_kept(void)
{
    const berth_plan_options options = options_of(BERTH_ENCODING_NF4);
    const char *const folder = loaded_quantized(loaded_llama(1, "BF16", 1), &options);

    check_load(folder, folder, "0=64MiB,cpu=64MiB", "sim:64MiB");
}

/* From the disk nothing but bytes is streamed; of an offload folder, what was encoded. */
static void
test_disk(void)
{
    static const char *const pins[] = { "model.layers.0.mlp.down_proj=disk" };
    const char *const folder = make(loaded_llama(1, "BF16", 1), BERTH_ENCODING_NF4, &forms[0]);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");
    loaded l;

    options.pins = pins;
    options.pin_count = 1;
    for (int has_folder = 0; has_folder < 2; has_folder++) {
        loaded_begin(&l, folder, &options, "sim:64MiB");
        l.options.offload_dir = has_folder ? fixture_folder() : NULL;
        loaded_load(&l);
        CHECK_EQ(l.status, has_folder ? BERTH_OK : BERTH_EUNSUPPORTED);
        if (!has_folder) {
            CHECK_CONTAINS(l.error.message, "in another encoding, or with other statistics");
            CHECK_STR(l.error.tensor, "model.layers.0.mlp.down_proj.weight");
        }
        loaded_end(&l);
    }
}

/* Nothing of it is encoded anew in parts: a plan for ranks that would cut it is refused. */
static void
test_slices(void)
{
    const berth_plan_options quantized = options_of(BERTH_ENCODING_NF4);
    const char *const folder = loaded_quantized(sliced_make(&sliced_blocks), &quantized);
    const berth_plan_options options = sliced_options("cpu=1GiB", 0, 2);

    CHECK_GT(change(folder, &forms[0]), 0);
    sliced_refuse(folder, options, BERTH_EUNSUPPORTED, "in an encoding that is not cut", NULL);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_encoded_anew);
    T_RUN(test_transposed);
    T_RUN(test_kept);
    T_RUN(test_disk);
    T_RUN(test_slices);
    return t_end();
}
