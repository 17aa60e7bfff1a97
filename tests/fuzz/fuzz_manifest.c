/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - any bytes as a manifest
 *
 * What is accepted is printed, and the print must parse to the same shards and
 * tensors and print to the same bytes; names ascend strictly.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/manifest.h"
#include "loader/safetensors.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

typedef struct pass {
    berthi_manifest_writer writer;
    char *shard; /* copies of the names before */
    uint64_t shard_length;
    char *tensor;
    uint64_t tensor_length;
    bool has_source;
    bool has_file;
} pass;

static void
check_order(char **before, uint64_t *before_length, const char *name, uint64_t length)
{
    char *const copy = malloc((size_t)length + 1);

    REQUIRE(copy != NULL);
    memcpy(copy, name, (size_t)length);
    REQUIRE(berthi_utf8_check((const unsigned char *)copy, (size_t)length) == length);
    REQUIRE(*before == NULL
            || berthi_name_compare(*before, *before_length, copy, length) < 0);
    free(*before);
    *before = copy;
    *before_length = length;
}

static berth_status
see_shard(void *user, const berthi_manifest_shard *shard, berth_error *error)
{
    pass *const p = user;

    (void)error;
    check_order(&p->shard, &p->shard_length, shard->file, shard->file_length);
    free(p->tensor);
    p->tensor = NULL;
    berthi_manifest_add_shard(&p->writer, shard);
    return BERTH_OK;
}

static berth_status
see_source(void *user, const berthi_manifest_source *source, berth_error *error)
{
    pass *const p = user;

    (void)error;
    if (!p->has_source) { /* an order of their own */
        free(p->shard);
        p->shard = NULL;
        p->has_source = true;
    }
    check_order(&p->shard, &p->shard_length, source->file, source->file_length);
    free(p->tensor);
    p->tensor = NULL;
    berthi_manifest_add_source(&p->writer, source);
    return BERTH_OK;
}

static berth_status
see_file(void *user, const berthi_manifest_file *file, berth_error *error)
{
    pass *const p = user;

    (void)error;
    if (!p->has_file) { /* another order of their own */
        free(p->shard);
        p->shard = NULL;
        p->has_file = true;
    }
    check_order(&p->shard, &p->shard_length, file->file, file->file_length);
    berthi_manifest_add_file(&p->writer, file);
    return BERTH_OK;
}

static berth_status
see_job(void *user, const char *text_of_job, uint64_t length, berth_error *error)
{
    pass *const p = user;

    (void)error;
    REQUIRE(p->shard == NULL);
    berthi_manifest_add_job(&p->writer, text_of_job, length);
    return BERTH_OK;
}

static berth_status
see_tensor(void *user, const berthi_manifest_tensor *tensor, berth_error *error)
{
    pass *const p = user;

    (void)error;
    REQUIRE(p->shard != NULL);
    check_order(&p->tensor, &p->tensor_length, tensor->name, tensor->name_length);
    berthi_manifest_add_tensor(&p->writer, tensor);
    return BERTH_OK;
}

/* Parses a copy of the bytes and prints what was seen into `out`. */
static berth_status
parse_and_print(const uint8_t *data, size_t size, json_text *out)
{
    pass p = { .shard = NULL };
    const berthi_manifest_visitor visitor = { &p, see_shard, see_tensor, see_job,
                                              see_source, see_tensor, see_file };
    char *const copy = malloc(size + 1);
    berth_error error = { .status = BERTH_OK };
    berth_status status;

    REQUIRE(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    berthi_manifest_begin(&p.writer, json_put_piece, out, NULL);
    status = berthi_manifest_parse(copy, size, "fuzz", &visitor, &error);
    REQUIRE(berthi_manifest_end(&p.writer, NULL) == BERTH_OK);
    REQUIRE(status == error.status);
    if (status != BERTH_OK) {
        REQUIRE(status == BERTH_EFORMAT || status == BERTH_EUNSUPPORTED);
        REQUIRE(error.message[0] != '\0');
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
    }
    free(copy);
    free(p.shard);
    free(p.tensor);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_text first = { .length = 0 };
    json_text second = { .length = 0 };

    if (parse_and_print(data, size, &first) == BERTH_OK) {
        REQUIRE(parse_and_print((const uint8_t *)first.bytes, first.length, &second)
                == BERTH_OK);
        REQUIRE(first.length == second.length);
        REQUIRE(memcmp(first.bytes, second.bytes, first.length) == 0);
    }
    free(first.bytes);
    free(second.bytes);
    return 0;
}
