/* SPDX-License-Identifier: Apache-2.0 */
/* test_index_write.c - the index as Python's json.dumps writes it, read back by berth. */
#include "loader/index_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/index.h"
#include "tests/laid.h"
#include "tests/t.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static berth_context *context;

static berthi_layout *
create(berthi_layout_tensor *tensors, uint64_t count, uint64_t limit)
{
    const berthi_layout_options options = { .max_shard_bytes = limit };
    berthi_layout *layout = NULL;

    CHECK_EQ(berthi_layout_create(context, tensors, count, &options, &layout, NULL),
             BERTH_OK);
    return layout;
}

static berthi_layout_tensor
tensor_of(const char *name, const char *suffix, uint64_t bytes)
{
    return (berthi_layout_tensor){ .name = name, .name_length = (uint32_t)strlen(name),
                                   .suffix = suffix, .dtype = BERTH_U8, .bytes = bytes };
}

/* json.dumps(index, indent=2, sort_keys=True) + "\n" of Python 3.11 */
static void
test_text(void)
{
    static const char expected[] =
        "{\n"
        "  \"metadata\": {\n"
        "    \"total_parameters\": 18446744073709551615,\n"
        "    \"total_size\": 19\n"
        "  },\n"
        "  \"weight_map\": {\n"
        "    \"\": \"model-00001-of-00003.safetensors\",\n"
        "    \"a.10.SCB\": \"model-00002-of-00003.safetensors\",\n"
        "    \"a.2.weight\": \"model-00001-of-00003.safetensors\",\n"
        "    \"q\\\"\\\\/\\n\\u0001\\u007f\": \"model-00002-of-00003.safetensors\",\n"
        "    \"\\u00e9\": \"model-00002-of-00003.safetensors\",\n"
        "    \"\\ud83d\\ude00\": \"model-00003-of-00003.safetensors\"\n"
        "  }\n"
        "}\n";
    berthi_layout_tensor tensors[] = {
        tensor_of("\xf0\x9f\x98\x80", NULL, 1), tensor_of("a.10.", "SCB", 6),
        tensor_of("\xc3\xa9", "", 1),           tensor_of("", NULL, 4),
        tensor_of("a.2", ".weight", 5),         tensor_of("q\"\\/\n\001\x7f", NULL, 2),
    };
    berthi_layout *const layout = create(tensors, COUNT(tensors), 9);
    laid_text text = { 0 };
    uint64_t bytes;

    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_index_write(layout, UINT64_MAX, laid_put, &text, &bytes, NULL),
             BERTH_OK);
    CHECK_EQ(bytes, sizeof expected - 1);
    CHECK_STR(text.bytes, expected);
    CHECK_EQ(berthi_index_write(layout, UINT64_MAX, NULL, NULL, &bytes, NULL), BERTH_OK);
    CHECK_EQ(bytes, sizeof expected - 1);
    free(text.bytes);
    berthi_layout_destroy(layout);
}

static void
test_empty(void)
{
    berthi_layout *const layout = create(NULL, 0, 0);
    laid_text text = { 0 };

    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_index_write(layout, 0, laid_put, &text, NULL, NULL), BERTH_OK);
    CHECK_STR(text.bytes, "{\n  \"metadata\": {\n    \"total_parameters\": 0,\n"
                          "    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
    free(text.bytes);
    berthi_layout_destroy(layout);
}

/* Large enough for many pieces: berth's own parser gives back every name and shard. */
static void
test_round_trip(void)
{
    const uint32_t count = 20000;
    berthi_layout_tensor *const tensors = calloc(count, sizeof *tensors);
    char(*const names)[40] = calloc(count, sizeof *names);
    laid_text text = { 0 };
    berthi_layout *layout;
    berthi_index index;

    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "m.%u.\xc3\xa9.%u", i * 7 % 100, i);
        tensors[i] = tensor_of(names[i], i % 2 > 0 ? ".weight" : NULL, i % 50);
    }
    layout = create(tensors, count, 5000);
    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_index_write(layout, 1, laid_put, &text, NULL, NULL), BERTH_OK);
    T_REQUIRE(berthi_index_parse(context, text.bytes, text.length, "i", &index, NULL)
              == BERTH_OK);
    CHECK_EQ(index.entry_count, count);
    CHECK_EQ(index.shard_count, berthi_layout_shard_count(layout));
    CHECK_EQ(index.total_size, berthi_layout_total_bytes(layout));
    for (uint32_t i = 0; i < count; i++) {
        const berthi_layout_tensor *const tensor =
            &tensors[berthi_layout_name_order(layout)[i]];
        char file[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(tensor->shard, index.shard_count, file);
        if (!CHECK_STR(index.text + index.entries[i].name, laid_name(tensor))
            || !CHECK_STR(index.text + index.shards[index.entries[i].shard], file))
            break;
    }
    berthi_index_fini(&index);
    berthi_layout_destroy(layout);
    free(text.bytes);
    free(tensors);
    free(names);
}

static void
test_failure(void)
{
    berthi_layout_tensor tensor = tensor_of("a", NULL, 1);
    berthi_layout *const layout = create(&tensor, 1, 0);
    laid_text text = { .fails_at = 1 };
    berth_error error;

    T_REQUIRE(layout != NULL);
    CHECK_EQ(berthi_index_write(layout, 1, laid_put, &text, NULL, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    berthi_layout_destroy(layout);
}

int
main(int argc, char **argv)
{
    int result;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_text);
    T_RUN(test_empty);
    T_RUN(test_round_trip);
    T_RUN(test_failure);
    result = t_end();
    berth_context_destroy(context);
    return result;
}
