/* SPDX-License-Identifier: Apache-2.0 */
/* What an open checkpoint answers, and reading from it. */
#define _XOPEN_SOURCE 700

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/checkpoint.h"
#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static const char *
make_two_shards(void)
{
    const char *folder = fixture_folder();

    fixture_model(folder, "[" SHARD_1 "]\n@format pt\n@zeta last\n"
                          "F32 2x3 b\nBF16 4x5x6 d\nU8 3 e\n"
                          "[" SHARD_2 "]\n@format pt\n"
                          "I64 - a\nF4 3x4 c\nF16 0x7 f\n");
    fixture_text(in(folder, "config.json"),
                 "{\"architectures\": [\"LlamaForCausalLM\", \"X\"], "
                 "\"model_type\": \"llama\", \"dtype\": \"bfloat16\", "
                 "\"tie_word_embeddings\": true}");
    return folder;
}

/* ------------------------------------------------------------------- answers */

static void
test_summary(void)
{
    const char *folder = make_two_shards();
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_STR(o.summary.path, folder);
    CHECK_STR(o.summary.architecture, "LlamaForCausalLM");
    CHECK_STR(o.summary.model_type, "llama");
    CHECK_STR(o.summary.dtype, "bfloat16");
    CHECK_STR(o.summary.quant_method, "");
    CHECK_STR(o.summary.revision, "");
    CHECK_EQ(o.summary.shard_count, 2);
    CHECK_EQ(o.summary.is_sharded, 1);
    CHECK_EQ(o.summary.ties_embeddings, 1);
    CHECK_EQ(o.summary.is_adapter, 0);
    CHECK_EQ(o.summary.tensor_count, 6);
    CHECK_EQ(o.summary.tensor_bytes, 24 + 240 + 3 + 8 + 6 + 0);
    CHECK_EQ(o.summary.file_bytes,
             fixture_size(in(folder, SHARD_1)) + fixture_size(in(folder, SHARD_2)));
    CHECK_EQ(o.summary.parameter_count, 6 + 120 + 3 + 1 + 12);
    CHECK_EQ(o.summary.quantized_count, 0);
    CHECK_EQ(o.finding_count, 0);
    for (size_t i = 0; i < sizeof o.summary.reserved / sizeof o.summary.reserved[0]; i++)
        CHECK_EQ(o.summary.reserved[i], 0);
    opened_end(&o);
}

static void
test_summary_without_config(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_file(in(folder, "model.safetensors"), "F32 2 a\n");
    opened_begin(&o, folder, NULL);
    CHECK_STR(o.summary.architecture, "");
    CHECK_STR(o.summary.model_type, "");
    CHECK_STR(o.summary.dtype, "");
    CHECK_STR(o.summary.quant_method, "");
    CHECK_EQ(o.summary.ties_embeddings, -1);
    opened_end(&o);
}

static void
test_shards(void)
{
    const char *folder = make_two_shards();
    const berthi_file *file;
    berth_error error;
    berth_shard shard;
    uint64_t header_bytes;
    char *bytes = fixture_read(in(folder, SHARD_2), NULL);
    opened o;

    memcpy(&header_bytes, bytes, 8);
    free(bytes);
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 0, &shard), BERTH_OK);
    CHECK_STR(shard.file, SHARD_1);
    CHECK_EQ(shard.tensor_count, 3);
    CHECK_EQ(shard.first_tensor, 0);
    CHECK_EQ(shard.metadata_count, 2);
    CHECK_EQ(shard.file_bytes, fixture_size(in(folder, SHARD_1)));
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 1, &shard), BERTH_OK);
    CHECK_STR(shard.file, SHARD_2);
    CHECK_STR(shard.target, "");
    CHECK_STR(shard.blob_sha256, "");
    CHECK_EQ(shard.tensor_count, 3);
    CHECK_EQ(shard.first_tensor, 3);
    CHECK_EQ(shard.metadata_count, 1);
    CHECK_EQ(shard.header_bytes, header_bytes);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 2, &shard), BERTH_EINVAL);
    CHECK(shard.file == NULL);

    CHECK_EQ(berthi_checkpoint_file(o.checkpoint, 1, &file, &error), BERTH_OK);
    CHECK_STR(file->path, in(folder, SHARD_2));
    CHECK_GE(file->fd, 0);
    CHECK_EQ(berthi_checkpoint_file(o.checkpoint, 2, &file, &error), BERTH_EINVAL);
    CHECK(file == NULL);
    CHECK_CONTAINS(error.message, "`shard` is out of range");
    opened_end(&o);
}

static void
check_pair(const opened *o, uint32_t shard, uint64_t index, const char *key,
           const char *value)
{
    const char *got_key;
    const char *got_value;
    size_t key_length;
    size_t value_length;
    const berth_status status = berth_checkpoint_metadata(
        o->checkpoint, shard, index, &got_key, &key_length, &got_value, &value_length);

    CHECK_EQ(status, key == NULL ? BERTH_EINVAL : BERTH_OK);
    CHECK_STR(got_key, key);
    CHECK_STR(got_value, value);
    CHECK_EQ(key_length, key == NULL ? 0 : strlen(key));
    CHECK_EQ(value_length, value == NULL ? 0 : strlen(value));
}

static void
test_metadata(void)
{
    const char *folder = make_two_shards();
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    check_pair(&o, 0, 0, "format", "pt");
    check_pair(&o, 0, 1, "zeta", "last");
    check_pair(&o, 1, 0, "format", "pt");
    check_pair(&o, 0, 2, NULL, NULL);
    check_pair(&o, 1, 1, NULL, NULL);
    check_pair(&o, 2, 0, NULL, NULL);
    opened_end(&o);
}

static void
check_tensor(const opened *o, uint64_t index, const char *name, int32_t dtype,
             uint32_t rank, const uint64_t *shape, uint64_t bytes)
{
    uint64_t elements = 1;
    berth_tensor tensor;
    berth_shard shard;

    CHECK_EQ(berth_checkpoint_tensor(o->checkpoint, index, &tensor), BERTH_OK);
    CHECK_STR(tensor.name, name);
    CHECK_EQ(tensor.name_length, strlen(name));
    CHECK_EQ(tensor.dtype, dtype);
    CHECK_EQ(tensor.encoding, BERTH_ENCODING_NATIVE);
    CHECK_EQ(tensor.rank, rank);
    for (uint32_t i = 0; i < rank; i++) {
        CHECK_EQ(tensor.shape[i], shape[i]);
        elements *= shape[i];
    }
    CHECK_EQ(tensor.shape[rank], 0);
    CHECK_EQ(tensor.elements, elements);
    CHECK_EQ(tensor.bytes, bytes);
    CHECK_EQ(tensor.owner, BERTH_NO_TENSOR);
    CHECK_EQ(tensor.shard, index / 3);
    CHECK_EQ(berth_checkpoint_shard(o->checkpoint, tensor.shard, &shard), BERTH_OK);
    CHECK_GE(tensor.file_offset, 8 + shard.header_bytes);
    CHECK_LE(tensor.file_offset + tensor.bytes, shard.file_bytes);
    CHECK_EQ(berth_checkpoint_find(o->checkpoint, name, strlen(name)), index);
}

/* Numbers go shard by shard in the order of bytes: by dtype, in these files. */
static void
test_tensors(void)
{
    const char *folder = make_two_shards();
    berth_tensor tensor;
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    check_tensor(&o, 0, "b", BERTH_F32, 2, (uint64_t[]){ 2, 3 }, 24);
    check_tensor(&o, 1, "d", BERTH_BF16, 3, (uint64_t[]){ 4, 5, 6 }, 240);
    check_tensor(&o, 2, "e", BERTH_U8, 1, (uint64_t[]){ 3 }, 3);
    check_tensor(&o, 3, "a", BERTH_I64, 0, NULL, 8);
    check_tensor(&o, 4, "f", BERTH_F16, 2, (uint64_t[]){ 0, 7 }, 0);
    check_tensor(&o, 5, "c", BERTH_F4, 2, (uint64_t[]){ 3, 4 }, 6);
    CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, 6, &tensor), BERTH_EINVAL);
    CHECK(tensor.name == NULL);
    CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, UINT64_MAX, &tensor), BERTH_EINVAL);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "", 0), BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "aa", 2), BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "aa", 1), 3);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "bb", 2), BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "g", 1), BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "A", 1), BERTH_NO_TENSOR);
    opened_end(&o);
}

static void
test_empty_model(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_file(in(folder, "model.safetensors"), "");
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 0);
    CHECK_EQ(o.summary.parameter_count, 0);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "a", 1), BERTH_NO_TENSOR);
    opened_end(&o);
}

/* Shards that hold nothing, before, between and after those that do. */
/* What is to be said of its weights is said of a shard that is named by itself, too. */
static void
test_shard_by_itself(void)
{
    const char *const path = in(fixture_folder(), SHARD_1);
    const opened_finding *finding;
    opened o;

    fixture_file(path, "F8_E4M3 4x8 a.weight\n");
    opened_begin(&o, path, NULL);
    CHECK_EQ(o.status, BERTH_OK);
    finding = opened_find(&o, BERTH_REASON_QUANT_PLAIN, 0);
    if (CHECK(finding != NULL)) {
        CHECK_EQ(finding->severity, BERTH_SEVERITY_WARNING);
        CHECK_CONTAINS(finding->details.message, "taken as plain numbers");
    }
    opened_end(&o);
    fixture_file(path, "I32 4x8 a.qweight\nF16 1x8 a.scales\n");
    opened_begin(&o, path, NULL);
    CHECK_EQ(opened_count(&o, BERTH_REASON_QUANT_METHOD), 1);
    opened_end(&o);
    /* What it lacks is one warning, no error, and the weights are not looked at further. */
    fixture_file(path, "U8 16x1 a.weight\nF32 1 a.weight.absmax\nF8_E4M3 4x8 b.weight\n");
    opened_begin(&o, path, NULL);
    CHECK_EQ(o.status, BERTH_OK);
    CHECK_EQ(o.finding_count, 1);
    finding = opened_find(&o, BERTH_REASON_COMPANION_MISSING, 0);
    if (CHECK(finding != NULL))
        CHECK_EQ(finding->severity, BERTH_SEVERITY_WARNING);
    opened_end(&o);
}

static void
test_empty_shards(void)
{
    const char *folder = fixture_folder();
    berth_open_options options;
    berth_shard shard;
    opened o;

    berth_open_options_init(&options);
    options.all_files = 1;
    fixture_file(in(folder, "a.safetensors"), "");
    fixture_file(in(folder, "b.safetensors"), "");
    fixture_file(in(folder, "c.safetensors"), "@k v\nU8 2 y\n");
    fixture_file(in(folder, "d.safetensors"), "@only metadata\n");
    fixture_file(in(folder, "e.safetensors"), "U8 3 x\n");
    opened_begin(&o, folder, &options);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 2);
    CHECK_EQ(o.summary.tensor_bytes, 5);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "x", 1), 1);
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "y", 1), 0);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 3, &shard), BERTH_OK);
    CHECK_EQ(shard.tensor_count, 0);
    CHECK_EQ(shard.first_tensor, 1);
    check_pair(&o, 2, 0, "k", "v");
    check_pair(&o, 3, 0, "only", "metadata");
    opened_end(&o);
}

/* -------------------------------------------------------------------- reading */

static void
check_read(const opened *o, const char *name, uint64_t first, uint64_t count,
           uint64_t offset, uint64_t size)
{
    uint8_t expected[256];
    uint8_t got[256 + 1];
    berth_error error;
    const uint64_t index = berth_checkpoint_find(o->checkpoint, name, strlen(name));

    memset(got, 0x5a, sizeof got);
    fixture_payload(name, offset, expected, size);
    if (!CHECK_EQ(berth_checkpoint_read(o->checkpoint, index, first, count, got, size,
                                        &error),
                  BERTH_OK))
        T_NOTE("%s", error.message);
    CHECK_EQ(error.status, BERTH_OK);
    CHECK_MEM(got, expected, size);
    CHECK_EQ(got[size], 0x5a);
}

static void
test_read(void)
{
    opened o;

    opened_begin(&o, make_two_shards(), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    check_read(&o, "b", 0, 2, 0, 24);
    check_read(&o, "b", 0, UINT64_MAX, 0, 24);
    check_read(&o, "b", 1, 1, 12, 12);
    check_read(&o, "b", 1, UINT64_MAX, 12, 12);
    check_read(&o, "b", 2, UINT64_MAX, 24, 0);
    check_read(&o, "b", 1, 0, 12, 0);
    check_read(&o, "d", 1, 2, 60, 120);
    check_read(&o, "e", 2, 1, 2, 1);
    check_read(&o, "a", 0, 1, 0, 8);
    check_read(&o, "a", 0, UINT64_MAX, 0, 8);
    check_read(&o, "c", 1, 1, 2, 2);
    check_read(&o, "f", 0, UINT64_MAX, 0, 0);
    opened_end(&o);
}

static void
refuse_read(const opened *o, const char *name, uint64_t first, uint64_t count,
            void *buffer, uint64_t size, const char *words)
{
    berth_error error;
    const uint64_t index = berth_checkpoint_find(o->checkpoint, name, strlen(name));

    CHECK_EQ(berth_checkpoint_read(o->checkpoint, index, first, count, buffer, size,
                                   &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(error.message, words);
    if (index != BERTH_NO_TENSOR && buffer != NULL)
        CHECK_STR(error.tensor, name);
}

static void
test_refused_reads(void)
{
    const char *folder = make_two_shards();
    uint8_t buffer[64];
    berth_error error;
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    refuse_read(&o, "b", 0, 2, buffer, 23, "`size` is not the size of the rows");
    refuse_read(&o, "b", 0, 2, buffer, 25, "`size` is not the size of the rows");
    refuse_read(&o, "b", 0, 3, buffer, 36, "`row_count`");
    refuse_read(&o, "b", 3, 0, buffer, 0, "`first_row`");
    refuse_read(&o, "b", 3, UINT64_MAX, buffer, 0, "`first_row`");
    refuse_read(&o, "a", 0, 2, buffer, 16, "`row_count`");
    refuse_read(&o, "b", 0, 2, NULL, 24, "`buffer` is NULL");
    refuse_read(&o, "none", 0, 2, buffer, 24, "`index` is not that of a tensor");
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 0, 0, 2, buffer, 23, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.expected, 24);
    CHECK_EQ(error.actual, 23);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_STR(error.file, in(folder, SHARD_1));
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 6, 0, 1, buffer, 8, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_checkpoint_read(NULL, 0, 0, 1, buffer, 8, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`checkpoint` is NULL");
    opened_end(&o);
}

/* Rows of packed pairs must begin and end on a byte. */
static void
test_rows_inside_bytes(void)
{
    const char *folder = fixture_folder();
    uint8_t buffer[16];
    opened o;

    fixture_file(in(folder, "model.safetensors"), "F4 4x3 odd\n");
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    check_read(&o, "odd", 0, 4, 0, 6);
    check_read(&o, "odd", 2, 2, 3, 3);
    refuse_read(&o, "odd", 1, 2, buffer, 3, "byte");
    refuse_read(&o, "odd", 0, 1, buffer, 1, "byte");
    opened_end(&o);
}

static void
test_changed_file(void)
{
    const char *folder = make_two_shards();
    const char *path = in(folder, SHARD_1);
    uint8_t buffer[24];
    berth_error error;
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 0, 0, 2, buffer, 24, &error), BERTH_OK);
    fixture_extend(path, 1);
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 0, 0, 2, buffer, 24, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_CHANGED);
    CHECK_STR(error.file, path);
    fixture_truncate(path, 300);
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 0, 0, 2, buffer, 24, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TRUNCATED);
    /* the other shard is as it was */
    CHECK_EQ(berth_checkpoint_read(o.checkpoint, 3, 0, 1, buffer, 8, &error), BERTH_OK);
    opened_end(&o);
}

/* A file that was replaced is another file: what was opened is read. */
static void
test_replaced_file(void)
{
    const char *folder = make_two_shards();
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    T_REQUIRE(rename(in(folder, SHARD_2), in(folder, "old")) == 0);
    fixture_file(in(folder, SHARD_2), "U8 1 nothing\n");
    CHECK_EQ(berth_checkpoint_find(o.checkpoint, "nothing", 7), BERTH_NO_TENSOR);
    opened_end(&o);
}

/* -------------------------------------------------------------- quantized weights */

static const char *
make_quantized(void)
{
    const char *folder = fixture_folder();
    fixture_builder *builder = fixture_begin();

    fixture_add_nf4(builder, "x.weight", 16, 64, true);
    fixture_add_nf4(builder, "y.weight", 2, 64, false);
    fixture_add_int8(builder, "z", 4, 8);
    fixture_add_lines(builder, "BF16 4 norm.weight\n");
    fixture_finish(builder, in(folder, "model.safetensors"));
    return folder;
}

static uint64_t
find(const opened *o, const char *name)
{
    return berth_checkpoint_find(o->checkpoint, name, strlen(name));
}

static void
check_statistics(const opened *o, const char *name, const char *owner)
{
    berth_tensor tensor;

    CHECK_EQ(berth_checkpoint_tensor(o->checkpoint, find(o, name), &tensor), BERTH_OK);
    CHECK_EQ(tensor.encoding, BERTH_ENCODING_STATISTICS);
    CHECK_EQ(tensor.owner, find(o, owner));
}

static void
test_quantized(void)
{
    berth_quantized quantized;
    berth_tensor tensor;
    uint64_t total = 0;
    opened o;

    opened_begin(&o, make_quantized(), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_STR(o.summary.quant_method, "bitsandbytes");
    CHECK_EQ(o.summary.quantized_count, 3);
    CHECK_EQ(o.summary.parameter_count, 16 * 64 + 2 * 64 + 4 * 8 + 4);
    CHECK_EQ(o.summary.tensor_count, 6 + 4 + 3 + 1);

    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, find(&o, "x.weight"), &quantized),
             BERTH_OK);
    CHECK_EQ(quantized.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(quantized.dtype, BERTH_BF16);
    CHECK_EQ(quantized.block_size, 64);
    CHECK_EQ(quantized.block_columns, 0);
    CHECK_EQ(quantized.is_double, 1);
    CHECK_EQ(quantized.rank, 2);
    CHECK_EQ(quantized.shape[0], 16);
    CHECK_EQ(quantized.shape[1], 64);
    CHECK_EQ(quantized.shape[2], 0);
    CHECK_EQ(quantized.elements, 1024);
    CHECK(quantized.offset > 0.0446 && quantized.offset < 0.0447);
    CHECK_STR(quantized.method, "bitsandbytes nf4");
    CHECK_EQ(quantized.companion_count, 5);
    for (uint32_t i = 0; i < quantized.companion_count; i++) {
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, quantized.companions[i], &tensor),
                 BERTH_OK);
        CHECK_EQ(tensor.encoding, BERTH_ENCODING_STATISTICS);
        CHECK_EQ(tensor.owner, find(&o, "x.weight"));
        total += tensor.bytes;
    }
    CHECK_EQ(quantized.total_bytes, total + 512);
    CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, find(&o, "x.weight"), &tensor),
             BERTH_OK);
    CHECK_EQ(tensor.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(tensor.owner, BERTH_NO_TENSOR);
    opened_end(&o);
}

static void
test_quantized_others(void)
{
    berth_quantized quantized;
    opened o;

    opened_begin(&o, make_quantized(), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, find(&o, "y.weight"), &quantized),
             BERTH_OK);
    CHECK_EQ(quantized.is_double, 0);
    CHECK_EQ(quantized.companion_count, 3);
    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, find(&o, "z.weight"), &quantized),
             BERTH_OK);
    CHECK_EQ(quantized.encoding, BERTH_ENCODING_INT8);
    CHECK_EQ(quantized.companion_count, 2);
    check_statistics(&o, "y.weight.absmax", "y.weight");
    check_statistics(&o, "x.weight.nested_quant_map", "x.weight");
    check_statistics(&o, "z.SCB", "z.weight");
    check_statistics(&o, "z.weight_format", "z.weight");
    CHECK_EQ(
        berth_checkpoint_quantized(o.checkpoint, find(&o, "norm.weight"), &quantized),
        BERTH_EINVAL);
    CHECK_EQ(quantized.elements, 0);
    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, find(&o, "z.SCB"), &quantized),
             BERTH_EINVAL);
    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, 14, &quantized), BERTH_EINVAL);
    opened_end(&o);
}

/* -------------------------------------------------------------------- threads */

#define THREADS 4
#define ROUNDS 50

static void *
ask_and_read(void *user)
{
    berth_checkpoint *const checkpoint = user;
    uint64_t wrong = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < 6; i++) {
            uint8_t expected[256];
            uint8_t got[256];
            berth_tensor tensor;
            berth_error error;

            wrong += berth_checkpoint_tensor(checkpoint, i, &tensor) != BERTH_OK;
            wrong +=
                berth_checkpoint_find(checkpoint, tensor.name, tensor.name_length) != i;
            wrong += berth_checkpoint_read(checkpoint, i, 0, UINT64_MAX, got,
                                           tensor.bytes, &error)
                     != BERTH_OK;
            fixture_payload(tensor.name, 0, expected, tensor.bytes);
            wrong += memcmp(expected, got, tensor.bytes) != 0;
        }
    }
    return (void *)(uintptr_t)wrong;
}

static void
test_threads(void)
{
    pthread_t threads[THREADS];
    opened o;

    opened_begin(&o, make_two_shards(), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    for (int i = 0; i < THREADS; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, ask_and_read, o.checkpoint) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;

        CHECK_EQ(pthread_join(threads[i], &wrong), 0);
        CHECK(wrong == NULL);
    }
    opened_end(&o);
}

/* Many checkpoints at once, closed in another order. */
static void
test_several_checkpoints(void)
{
    const char *folder = make_two_shards();
    opened first;
    opened second;

    opened_begin(&first, folder, NULL);
    opened_begin(&second, folder, NULL);
    CHECK_EQ(first.summary.tensor_count, second.summary.tensor_count);
    check_read(&second, "b", 0, 2, 0, 24);
    first.fds += 3; /* those of the second: two shards, and the folder */
    opened_end(&first);
    check_read(&second, "d", 0, 4, 0, 240);
    second.fds -= 3;
    opened_end(&second);
    berth_checkpoint_close(NULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_summary);
    T_RUN(test_summary_without_config);
    T_RUN(test_shards);
    T_RUN(test_metadata);
    T_RUN(test_tensors);
    T_RUN(test_empty_model);
    T_RUN(test_shard_by_itself);
    T_RUN(test_empty_shards);
    T_RUN(test_read);
    T_RUN(test_refused_reads);
    T_RUN(test_rows_inside_bytes);
    T_RUN(test_changed_file);
    T_RUN(test_replaced_file);
    T_RUN(test_quantized);
    T_RUN(test_quantized_others);
    T_RUN(test_threads);
    T_RUN(test_several_checkpoints);
    T_MAIN_END;
}
