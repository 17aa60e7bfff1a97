/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a checkpoint is found before anything else happens. */
#define _XOPEN_SOURCE 700

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define INDEX "model.safetensors.index.json"
#define SHARD_1 "model-00001-of-00003.safetensors"
#define SHARD_2 "model-00002-of-00003.safetensors"
#define SHARD_3 "model-00003-of-00003.safetensors"

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static berth_open_options
defaults(void)
{
    berth_open_options options;

    berth_open_options_init(&options);
    return options;
}

static const char *
make_three_shards(void)
{
    const char *folder = fixture_folder();

    fixture_model(folder, "[" SHARD_1 "]\nF32 2 a\nF32 2 d\n"
                          "[" SHARD_2 "]\nF32 2 b\nF32 2 e\n"
                          "[" SHARD_3 "]\nF32 2 c\nF32 2 f\n");
    return folder;
}

static void
put_index(const char *folder, uint64_t total, const char *lines)
{
    fixture_index(in(folder, INDEX), total, lines);
}

/* ---------------------------------------- deleted, cut, grown, renamed, doubled */

static void
test_deleted(void)
{
    const char *folder = make_three_shards();

    fixture_remove(in(folder, SHARD_2));
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD,
                  fixture_format("%s: the index names this shard, but it is not there [",
                                 in(folder, SHARD_2)));
}

static void
test_cut(void)
{
    const char *folder = make_three_shards();
    const uint64_t bytes = fixture_size(in(folder, SHARD_3));

    fixture_truncate(in(folder, SHARD_3), 1);
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE,
                  fixture_format("%s: the last 1 bytes of the file are missing "
                                 "(expected %llu, found %llu bytes) [",
                                 in(folder, SHARD_3), (unsigned long long)bytes,
                                 (unsigned long long)bytes - 1));
    fixture_truncate(in(folder, SHARD_3), 15);
    opened_refuse(folder, NULL, BERTH_REASON_INCOMPLETE, "the last 16 bytes");
    fixture_truncate(in(folder, SHARD_3), 1);
    opened_refuse(folder, NULL, BERTH_REASON_HEADER_LENGTH, "ends inside its header");
    fixture_truncate(in(folder, SHARD_3), fixture_size(in(folder, SHARD_3)) - 7);
    opened_refuse(folder, NULL, BERTH_REASON_HEADER_TOO_SMALL, "expected 8, found 7");
    fixture_write(in(folder, SHARD_3), "", 0);
    opened_refuse(folder, NULL, BERTH_REASON_HEADER_TOO_SMALL, "expected 8, found 0");
}

static void
test_grown(void)
{
    const char *folder = make_three_shards();

    fixture_extend(in(folder, SHARD_1), 1);
    opened_refuse(folder, NULL, BERTH_REASON_COVERAGE,
                  fixture_format("%s: the data section is 1 bytes too long",
                                 in(folder, SHARD_1)));
}

static void
test_renamed(void)
{
    const char *folder = make_three_shards();
    berth_open_options options = defaults();
    opened o;

    fixture_copy(in(folder, SHARD_2), in(folder, "other.safetensors"));
    fixture_remove(in(folder, SHARD_2));
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(o.error.reason, BERTH_REASON_INDEX_SHARD);
    T_REQUIRE(o.finding_count == 2);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_INDEX_SHARD);
    CHECK_EQ(o.findings[1].details.reason, BERTH_REASON_STRAY_SHARD);
    CHECK_STR(o.findings[1].details.file, in(folder, "other.safetensors"));
    opened_end(&o);
}

static void
test_renamed_tensor(void)
{
    const char *folder = make_three_shards();

    fixture_file(in(folder, SHARD_2), "F32 2 b\nF32 2 z\n");
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_TENSOR,
                  fixture_format("%s: tensor \"e\": the index names it, but it is not in "
                                 "this shard [",
                                 in(folder, SHARD_2)));
}

static void
test_doubled(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();

    fixture_file(in(folder, "x.safetensors"), "F32 2 a\nF32 2 b\n");
    fixture_file(in(folder, "y.safetensors"), "F32 2 b\n");
    options.all_files = 1;
    opened_refuse(folder, &options, BERTH_REASON_DUPLICATE,
                  fixture_format("%s: tensor \"b\": also in x.safetensors, and no index",
                                 in(folder, "y.safetensors")));
}

/* --------------------------------------------------------------- wrong files */

typedef struct wrong_file {
    const char *bytes;
    size_t length;
    berth_reason reason;
    const char *words;
} wrong_file;

#define WRONG(bytes, reason, words)                                                      \
    {                                                                                    \
        bytes, sizeof bytes - 1, BERTH_REASON_##reason, words                            \
    }

static const wrong_file wrong_files[] = {
    WRONG("version https://git-lfs.github.com/spec/v1\noid sha256:"
          "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
          "size 4976698672\n",
          LFS_POINTER,
          "stands for 4976698672 bytes with sha256 0123456789abcdef0123456789abcdef"
          "0123456789abcdef0123456789abcdef (expected 4976698672, found 135 bytes)"),
    WRONG("<!DOCTYPE html>\n<html></html>", HTML, "a web page"),
    WRONG("{\"error\":\"Repository not found\"}", JSON_BODY, "a JSON text"),
    WRONG("Entry not found", TEXT_BODY, "plain text"),
    WRONG("PK\x03\x04\0\0\0\0\0\0\0\0", ZIP,
          "a zip archive, as PyTorch's .bin and .pt instead of a safetensors file "
          "(header_length) (expected 67324760, found 12 bytes)"),
    WRONG("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", PICKLE, "a Python pickle"),
    WRONG("GGUF\x03\0\0\0\0\0\0\0", GGUF, "a GGUF file"),
    WRONG("\x93NUMPY\x01\0v\0", OTHER_FORMAT, "a NumPy array"),
    WRONG("\0\0\0\0\0\0\0\0\0\0\0\0", ZERO_FILLED, "zeros"),
    WRONG("\x40\0\0", HEADER_TOO_SMALL, "expected 8, found 3"),
    WRONG("\x40\0\0\0\0\0\0\0{\"a\":", HEADER_LENGTH, "expected 64, found 5"),
    WRONG("\x02\0\0\0\0\0\0\0{}\x01", COVERAGE, "1 bytes too long"),
    WRONG("\x04\0\0\0\0\0\0\0{\x7d,}", HEADER_JSON, "[header_json]"),
};

/* Each its own reason, with the file and two sizes in the message. */
static void
test_wrong_files(void)
{
    const char *folder = fixture_folder();
    const char *path = in(folder, "model.safetensors");
    const size_t count = sizeof wrong_files / sizeof wrong_files[0];

    for (size_t i = 0; i < count; i++) {
        const wrong_file *const w = &wrong_files[i];

        fixture_write(path, w->bytes, w->length);
        opened_refuse(path, NULL, w->reason, w->words);
        opened_refuse(folder, NULL, w->reason, fixture_format("%s: ", path));
        for (size_t j = 0; j < i; j++)
            CHECK_NE(wrong_files[j].reason, w->reason);
    }
    fixture_file(path, "F32 4 a\n");
    fixture_truncate(path, 9);
    opened_refuse(path, NULL, BERTH_REASON_INCOMPLETE, "the last 9 bytes");
}

static void
test_wrong_texts(void)
{
    const char *folder = make_three_shards();

    fixture_text(in(folder, INDEX), "<html>");
    opened_refuse(folder, NULL, BERTH_REASON_HTML, INDEX);
    fixture_text(in(folder, INDEX), "{\"weight_map\": 5}");
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_JSON, INDEX);
    fixture_text(in(folder, INDEX), "{\"weight_map\": {\"a\": \"../x.safetensors\"}}");
    opened_refuse(folder, NULL, BERTH_REASON_PATH, INDEX);
    fixture_text(in(folder, INDEX), "not JSON");
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_JSON, INDEX);
    fixture_write(in(folder, INDEX), "", 0);
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_JSON, INDEX);
    T_REQUIRE(truncate(in(folder, INDEX), 100000001) == 0);
    opened_refuse(
        folder, NULL, BERTH_REASON_INDEX_JSON,
        "larger than any file of its kind (expected 100000000, found 100000001");
    fixture_text(in(folder, "config.json"), "{\"model_type\": 5}");
    opened_refuse(folder, NULL, BERTH_REASON_CONFIG_JSON, "config.json");
    fixture_text(in(folder, "config.json"),
                 "version https://git-lfs.github.com/spec/v1\n");
    opened_refuse(folder, NULL, BERTH_REASON_LFS_POINTER, "config.json");
    T_REQUIRE(truncate(in(folder, "config.json"), 16777217) == 0);
    opened_refuse(folder, NULL, BERTH_REASON_CONFIG_JSON, "found 16777217");
}

/* A file that was named may lie beside a configuration of something else. */
static void
test_config_beside_file(void)
{
    const char *folder = fixture_folder();
    opened o;

    fixture_file(in(folder, "x.safetensors"), "F32 4 a\n");
    fixture_text(in(folder, "config.json"), "{");
    opened_refuse(folder, NULL, BERTH_REASON_CONFIG_JSON, "config.json");
    opened_begin(&o, in(folder, "x.safetensors"), NULL);
    CHECK_EQ(o.status, BERTH_OK);
    T_REQUIRE(o.finding_count == 1);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_CONFIG_JSON);
    opened_end(&o);
}

/* ------------------------------------------------------------ several at once */

static void
test_all_missing_are_named(void)
{
    const char *folder = make_three_shards();

    fixture_remove(in(folder, SHARD_1));
    fixture_remove(in(folder, SHARD_3));
    opened_refuse(
        folder, NULL, BERTH_REASON_INDEX_SHARD,
        fixture_format("%s: the index names this shard, but it is not there; 2 of "
                       "3 shards are missing, also " SHARD_3 " [",
                       in(folder, SHARD_1)));
    fixture_remove(in(folder, SHARD_2));
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_SHARD,
                  "3 of 3 shards are missing, also " SHARD_2 ", " SHARD_3 " [");
}

static void
test_many_missing(void)
{
    const char *folder = fixture_folder();
    const char *lines = "";
    berth_open_options options = defaults();
    opened o;

    for (int i = 10; i < 40; i++)
        lines = fixture_format("%st%d model-000%d-of-00099.safetensors\n", lines, i, i);
    put_index(folder, 0, lines);
    opened_refuse(
        folder, NULL, BERTH_REASON_INDEX_SHARD,
        "30 of 30 shards are missing, also model-00011-of-00099.safetensors, "
        "model-00012-of-00099.safetensors, model-00013-of-00099.safetensors, "
        "model-00014-of-00099.safetensors, model-00015-of-00099.safetensors, ... [");
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(o.finding_count, 30);
    CHECK_STR(o.findings[29].details.file,
              in(folder, "model-00039-of-00099.safetensors"));
    CHECK_CONTAINS(o.error.message, "30 of 30 shards are missing");
    CHECK_STR(o.error.file, in(folder, "model-00010-of-00099.safetensors"));
    opened_end(&o);
}

/* Every kind of damage in one model, each reported once, in a fixed order. */
static void
test_keep_going(void)
{
    const char *folder = make_three_shards();
    berth_open_options options = defaults();
    opened o;

    fixture_remove(in(folder, SHARD_1));
    fixture_truncate(in(folder, SHARD_2), 1);
    fixture_file(in(folder, SHARD_3), "F32 2 f\nF32 2 g\n");
    fixture_text(in(folder, "config.json"), "[]");
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    T_REQUIRE(o.finding_count == 5);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_EQ(o.findings[1].details.reason, BERTH_REASON_INDEX_SHARD);
    CHECK_EQ(o.findings[2].details.reason, BERTH_REASON_INCOMPLETE);
    CHECK_EQ(o.findings[3].details.reason, BERTH_REASON_INDEX_TENSOR);
    CHECK_STR(o.findings[3].details.tensor, "c");
    CHECK_EQ(o.findings[4].details.reason, BERTH_REASON_INDEX_EXTRA);
    CHECK_STR(o.findings[4].details.tensor, "g");
    for (int i = 0; i < 4; i++)
        CHECK_EQ(o.findings[i].severity, BERTH_SEVERITY_ERROR);
    CHECK_EQ(o.findings[4].severity, BERTH_SEVERITY_WARNING);
    CHECK_EQ(o.error.reason, BERTH_REASON_CONFIG_JSON);
    opened_end(&o);
    opened_refuse(folder, NULL, BERTH_REASON_CONFIG_JSON, "config.json");
}

/* --------------------------------------------------------- index against shards */

static void
test_misplaced(void)
{
    const char *folder = make_three_shards();
    opened o;

    put_index(folder, 48, "a " SHARD_1 "\nb " SHARD_2 "\nc " SHARD_3 "\n"
                          "d " SHARD_3 "\ne " SHARD_2 "\nf " SHARD_3 "\n");
    opened_refuse(folder, NULL, BERTH_REASON_INDEX_TENSOR,
                  fixture_format("%s: tensor \"d\": the index names it, but it is not in "
                                 "this shard: it is in " SHARD_1 " [",
                                 in(folder, SHARD_3)));
    /* the first error ends it: nothing is told after that */
    fixture_file(in(folder, "stray.safetensors"), "F32 1 z\n");
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.error.reason, BERTH_REASON_INDEX_TENSOR);
    CHECK_EQ(o.finding_count, 0);
    opened_end(&o);
}

/* The index with these members, in this order; every tensor must be found in its place. */
static void
check_order(const char *folder, const char *members)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
    static const uint64_t numbers[] = { 1, 3, 5, 0, 2, 4 };
    const char *const text = fixture_format("{\"weight_map\":{%s}}", members);
    opened o;

    fixture_write(in(folder, INDEX), text, strlen(text));
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.status == BERTH_OK);
    CHECK_EQ(o.finding_count, 0);
    for (size_t i = 0; i < 6; i++)
        CHECK_EQ(berth_checkpoint_find(o.checkpoint, names[i], 1), numbers[i]);
    opened_end(&o);
}

#define IN_1(name) "\"" name "\":\"" SHARD_1 "\""
#define IN_2(name) "\"" name "\":\"" SHARD_2 "\""
#define IN_3(name) "\"" name "\":\"" SHARD_3 "\""

/* Shards in the index's order, in another, and some of both. */
static void
test_order_of_index(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();
    const char *text;
    opened o;

    fixture_model(folder, "[" SHARD_1 "]\nF32 2 d\nU8 8 a\n"
                          "[" SHARD_2 "]\nF32 2 e\nU8 8 b\n"
                          "[" SHARD_3 "]\nF32 2 f\nU8 8 c\n");
    check_order(folder, IN_1("d") "," IN_1("a") "," IN_2("e") "," IN_2("b") "," IN_3("f")
                        "," IN_3("c"));
    check_order(folder, IN_3("f") "," IN_1("d") "," IN_2("e") "," IN_3("c") "," IN_1("a")
                        "," IN_2("b"));
    check_order(folder, IN_1("a") "," IN_1("d") "," IN_2("b") "," IN_2("e") "," IN_3("c")
                        "," IN_3("f"));
    check_order(folder, IN_1("a") "," IN_1("d") "," IN_2("e") "," IN_2("b") "," IN_3("c")
                        "," IN_3("f"));
    /* What is missing in one and unnamed in another is told all the same. */
    text = "{\"weight_map\":{" IN_1("d") "," IN_1("a") "," IN_2("b") "," IN_3("f") ","
           IN_3("c") "," IN_3("g") "}}";
    fixture_write(in(folder, INDEX), text, strlen(text));
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_TENSOR), 1);
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 0)->details.tensor, "g");
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_EXTRA), 1);
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_EXTRA, 0)->details.tensor, "e");
    opened_end(&o);
}

static void
test_several_missing_tensors(void)
{
    const char *folder = make_three_shards();
    berth_open_options options = defaults();
    opened o;

    put_index(folder, 48, "0 " SHARD_1 "\na " SHARD_1 "\nb " SHARD_2 "\nbb " SHARD_2 "\n"
                          "c " SHARD_3 "\nd " SHARD_2 "\ne " SHARD_2 "\nf " SHARD_3 "\n"
                          "g " SHARD_3 "\n");
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_TENSOR), 4);
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 0)->details.tensor, "0");
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 1)->details.tensor, "bb");
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 2)->details.tensor, "d");
    CHECK_CONTAINS(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 2)->details.message,
                   "it is in " SHARD_1);
    CHECK_STR(opened_find(&o, BERTH_REASON_INDEX_TENSOR, 3)->details.tensor, "g");
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_EXTRA), 1);
    CHECK_STR(o.error.tensor, "0");
    opened_end(&o);
}

static void
test_extra(void)
{
    const char *folder = make_three_shards();
    berth_open_options options = defaults();
    opened o;

    /* first, last and in between, in several shards */
    put_index(folder, 48, "b " SHARD_2 "\nc " SHARD_3 "\ne " SHARD_2 "\n");
    fixture_file(in(folder, SHARD_1), "F32 2 a\nF32 2 d\n");
    put_index(folder, 48, "b " SHARD_2 "\nc " SHARD_3 "\nd " SHARD_1 "\ne " SHARD_2 "\n");
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 6);
    T_REQUIRE(o.finding_count == 2);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_INDEX_EXTRA);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_STR(o.findings[0].details.tensor, "a");
    CHECK_STR(o.findings[0].details.file, in(folder, SHARD_1));
    CHECK_STR(o.findings[1].details.tensor, "f");
    for (int i = 0; i < 6; i++) {
        const char name = (char)('a' + i);
        const uint64_t index = berth_checkpoint_find(o.checkpoint, &name, 1);
        berth_tensor tensor;

        CHECK_EQ(index, i % 3 * 2 + i / 3);
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, index, &tensor), BERTH_OK);
        CHECK_EQ(tensor.name[0], name);
    }
    opened_end(&o);
    options.strict = 1;
    opened_refuse(folder, &options, BERTH_REASON_INDEX_EXTRA, "tensor \"a\"");
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_EXTRA), 2);
    CHECK_EQ(o.findings[1].severity, BERTH_SEVERITY_ERROR);
    opened_end(&o);
}

/* Two shards have it, the index names one: the other copy is left out. */
static void
test_dropped(void)
{
    const char *folder = fixture_folder();
    uint8_t got[8];
    uint8_t expected[8];
    berth_shard shard;
    berth_tensor tensor;
    opened o;

    fixture_file(in(folder, SHARD_1), "F32 2 a\nF32 2 b\nF32 2 q = 1\n");
    fixture_file(in(folder, SHARD_2), "F32 2 b = 7\nF32 2 c\nF32 2 q\n");
    fixture_file(in(folder, SHARD_3), "F32 2 a = 3\nF32 2 d\nF32 2 x\n");
    put_index(folder, 40, "a " SHARD_1 "\nb " SHARD_1 "\nc " SHARD_2 "\n"
                          "d " SHARD_3 "\nq " SHARD_2 "\n");
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 6);
    CHECK_EQ(o.summary.tensor_bytes, 48);
    CHECK_EQ(o.finding_count, 5);
    T_REQUIRE(opened_count(&o, BERTH_REASON_DUPLICATE) == 3);
    CHECK_STR(o.findings[0].details.tensor, "a");
    CHECK_STR(o.findings[0].details.file, in(folder, SHARD_3));
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_CONTAINS(o.findings[0].details.message, "the index takes it from " SHARD_1);
    CHECK_STR(o.findings[1].details.tensor, "b");
    CHECK_STR(o.findings[2].details.tensor, "q");
    CHECK_STR(o.findings[2].details.file, in(folder, SHARD_1));
    CHECK_EQ(o.findings[3].details.reason, BERTH_REASON_INDEX_EXTRA);
    CHECK_STR(o.findings[3].details.tensor, "x");
    CHECK_EQ(o.findings[4].details.reason, BERTH_REASON_INDEX_TOTAL);
    CHECK_EQ(o.findings[4].details.actual, 48);

    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 0, &shard), BERTH_OK);
    CHECK_EQ(shard.tensor_count, 2);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 1, &shard), BERTH_OK);
    CHECK_EQ(shard.first_tensor, 2);
    CHECK_EQ(shard.tensor_count, 2);
    CHECK_EQ(berth_checkpoint_shard(o.checkpoint, 2, &shard), BERTH_OK);
    CHECK_EQ(shard.first_tensor, 4);
    CHECK_EQ(shard.tensor_count, 2);
    for (const char *name = "abcdqx"; *name != '\0'; name++) {
        const char text[2] = { *name, '\0' };
        const uint64_t index = berth_checkpoint_find(o.checkpoint, name, 1);

        CHECK_EQ(index, (uint64_t)(strchr("abcqdx", *name) - "abcqdx"));
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, index, &tensor), BERTH_OK);
        CHECK_STR(tensor.name, text);
        CHECK_EQ(tensor.encoding, BERTH_ENCODING_NATIVE);
        CHECK_EQ(tensor.shard, index / 2);
        fixture_payload(text, 0, expected, 8);
        CHECK_EQ(berth_checkpoint_read(o.checkpoint, index, 0, 2, got, 8, NULL),
                 BERTH_OK);
        CHECK_MEM(got, expected, 8);
    }
    opened_end(&o);
}

/* The copy that is left out lies before everything else: all others get new numbers. */
static void
test_dropped_first(void)
{
    static const char by_name[] = "amz";
    static const uint64_t numbers[] = { 1, 2, 0 };
    const char *folder = fixture_folder();
    opened o;

    fixture_file(in(folder, SHARD_1), "F32 2 m = 5\nF32 2 z\n");
    fixture_file(in(folder, SHARD_2), "F32 2 a\nF32 2 m\n");
    put_index(folder, 24, "a " SHARD_2 "\nm " SHARD_2 "\nz " SHARD_1 "\n");
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.finding_count, 1);
    T_REQUIRE(o.summary.tensor_count == 3);
    for (int i = 0; i < 3; i++) {
        const uint64_t number = berth_checkpoint_find(o.checkpoint, &by_name[i], 1);
        berth_tensor tensor;

        CHECK_EQ(number, numbers[i]);
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, number, &tensor), BERTH_OK);
        CHECK_EQ(tensor.name[0], by_name[i]);
        CHECK_EQ(tensor.shard, i < 2 ? 1 : 0);
    }
    opened_end(&o);
}

static void
test_doubled_and_unnamed(void)
{
    const char *folder = fixture_folder();
    berth_open_options options = defaults();
    opened o;

    fixture_file(in(folder, SHARD_1), "F32 2 a\nF32 2 z\n");
    fixture_file(in(folder, SHARD_2), "F32 2 b\nF32 2 z\n");
    put_index(folder, 32, "a " SHARD_1 "\nb " SHARD_2 "\n");
    opened_refuse(folder, NULL, BERTH_REASON_DUPLICATE,
                  "tensor \"z\": also in " SHARD_1
                  ", and no index says which one counts");
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_EXTRA), 1);
    CHECK_EQ(opened_count(&o, BERTH_REASON_DUPLICATE), 1);
    CHECK_EQ(opened_find(&o, BERTH_REASON_DUPLICATE, 0)->severity, BERTH_SEVERITY_ERROR);
    opened_end(&o);
}

static void
test_total(void)
{
    const char *folder = make_three_shards();
    berth_open_options options = defaults();
    const char *lines = "a " SHARD_1 "\nb " SHARD_2 "\nc " SHARD_3 "\n"
                        "d " SHARD_1 "\ne " SHARD_2 "\nf " SHARD_3 "\n";
    opened o;

    options.strict = 1;
    CHECK_EQ(opened_accept(folder, &options), 6);
    put_index(folder, 47, lines);
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.finding_count == 1);
    CHECK_EQ(o.status, BERTH_OK);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_INDEX_TOTAL);
    CHECK_STR(o.findings[0].details.file, in(folder, INDEX));
    CHECK_EQ(o.findings[0].details.expected, 47);
    CHECK_EQ(o.findings[0].details.actual, 48);
    CHECK_EQ(o.findings[0].details.has,
             BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    opened_end(&o);
    opened_refuse(folder, &options, BERTH_REASON_INDEX_TOTAL, "expected 47, found 48");
    fixture_text(in(folder, INDEX), "{\"weight_map\": {\"a\": \"" SHARD_1 "\"}}");
    opened_begin(&o, folder, NULL);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_TOTAL), 0);
    CHECK_EQ(opened_count(&o, BERTH_REASON_INDEX_EXTRA), 1);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRAY_SHARD), 2);
    opened_end(&o);
}

static void
test_strays(void)
{
    const char *folder = make_three_shards();
    opened o;

    fixture_file(in(folder, "model-00004-of-00003.safetensors"), "F32 2 z\n");
    fixture_file(in(folder, "a.safetensors"), "F32 2 z\n");
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.summary.tensor_count, 6);
    T_REQUIRE(o.finding_count == 2);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_NOTE);
    CHECK_EQ(o.findings[0].details.reason, BERTH_REASON_STRAY_SHARD);
    CHECK_STR(o.findings[0].details.file, in(folder, "a.safetensors"));
    CHECK_CONTAINS(o.findings[0].details.message, "no index names it");
    CHECK_STR(o.findings[1].details.file, in(folder, "model-00004-of-00003.safetensors"));
    opened_end(&o);
}

/* --------------------------------------------------------------- strict mode */

typedef struct strict_case {
    const char *header;
    uint64_t data_bytes;
    const char *words; /* NULL: passes */
} strict_case;

static const strict_case strict_cases[] = {
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ", 8, NULL },
    { " {\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ", 8,
      "white space before the header" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}\n\n", 8,
      "white space other than blanks after the header" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":[1,2,3]}}  ",
      8, "members that the format does not know" },
    { "{\"__metadata__\":null,\"a\":{\"dtype\":\"U8\",\"shape\":[8],"
      "\"data_offsets\":[0,8]}}",
      8, "metadata that is null" },
    { "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
      8, "not listed in the order of their bytes" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[1,7]}}",
      7, "do not begin at a multiple of their element's size" },
    { "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[2,5]},"
      "\"c\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[5,6]}}",
      6, NULL },
};

static void
test_strict(void)
{
    const char *path = in(fixture_folder(), "model.safetensors");
    berth_open_options options = defaults();

    options.strict = 1;
    for (size_t i = 0; i < sizeof strict_cases / sizeof strict_cases[0]; i++) {
        const strict_case *const c = &strict_cases[i];
        char header[512];
        size_t length = strlen(c->header);

        strcpy(header, c->header);
        while (length % 8 != 0) /* behind the last byte, so that the cases stay apart */
            header[length++] = ' ';
        fixture_raw(path, length, header, length, c->data_bytes);
        opened_accept(path, NULL);
        if (c->words == NULL)
            opened_accept(path, &options);
        else
            opened_refuse(path, &options, BERTH_REASON_STRICT, c->words);
    }
}

static void
test_strict_several(void)
{
    static const char header[] = " {\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
                                 "\"data_offsets\":[0,8],\"x\":{}}}\n";
    const char *path = in(fixture_folder(), "model.safetensors");
    berth_open_options options = defaults();
    opened o;

    fixture_raw(path, sizeof header - 1, header, sizeof header - 1, 8);
    options.strict = 1;
    options.keep_going = 1;
    opened_begin(&o, path, &options);
    CHECK_EQ(o.status, BERTH_EPOLICY);
    CHECK_EQ(o.finding_count, 5);
    CHECK_EQ(opened_count(&o, BERTH_REASON_STRICT), 5);
    CHECK_CONTAINS(o.findings[2].details.message, "no multiple of 8");
    CHECK_CONTAINS(o.findings[4].details.message, "element's size");
    CHECK_STR(o.findings[4].details.file, path);
    opened_end(&o);
}

/* ------------------------------------------------------------------- remarks */

static void
test_foreign_frameworks(void)
{
    static const char *const formats[] = { "tf", "flax", "pt", "mlx", "np" };
    const char *folder = fixture_folder();

    for (size_t i = 0; i < 5; i++) {
        opened o;

        fixture_model(folder,
                      fixture_format("[" SHARD_1 "]\n@format %s\nF32 1 a\n"
                                     "[" SHARD_2 "]\n@format %s\nF32 1 b\n",
                                     formats[i], formats[i]));
        opened_begin(&o, folder, NULL);
        CHECK_EQ(o.status, BERTH_OK);
        CHECK_EQ(o.finding_count, i < 2 ? 1 : 0);
        if (i < 2) {
            CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
            CHECK_CONTAINS(o.findings[0].details.message,
                           fixture_format("written for %s:", formats[i]));
        }
        opened_end(&o);
    }
}

/* Bytes of a file never reach a message as they are. */
static void
test_escaped_names(void)
{
    const char *folder = fixture_folder();
    const uint64_t shape = 1;
    char line[2048];
    opened o;

    for (int i = 1; i <= 2; i++) {
        fixture_builder *builder = fixture_begin();

        fixture_add(builder, "evil\x1b[2J\n", "U8", 1, &shape, NULL);
        fixture_finish(builder, fixture_format("%s/e\x1b[31m%d.safetensors", folder, i));
    }
    opened_begin(&o, folder, NULL);
    CHECK_EQ(o.error.reason, BERTH_REASON_AMBIGUOUS);
    berth_error_format(&o.error, line, sizeof line);
    CHECK(strchr(line, '\x1b') == NULL);
    CHECK_CONTAINS(line, "e\\x1b[31m1.safetensors");
    opened_end(&o);
    {
        berth_open_options options = defaults();

        options.all_files = 1;
        opened_begin(&o, folder, &options);
    }
    CHECK_EQ(o.error.reason, BERTH_REASON_DUPLICATE);
    berth_error_format(&o.error, line, sizeof line);
    CHECK(strchr(line, '\x1b') == NULL && strchr(line, '\n') == NULL);
    CHECK_CONTAINS(line, "tensor \"evil\\x1b[2J\\x0a\": also in e\\x1b[31m1.safetensors");
    opened_end(&o);
}

/* ------------------------------------------------------- quantized checkpoints */

static const char *
make_quantized(const char *left_out)
{
    static const char *const parts[] = {
        "w.weight", "w.weight.absmax", "w.weight.quant_map", "w.weight.nested_absmax",
        "w.weight.nested_quant_map", "w.weight.quant_state.bitsandbytes__nf4",
    };
    static const char *const lines[] = {
        "U8 32x1 w.weight\n", "U8 1 w.weight.absmax\n",
        "F32 16 w.weight.quant_map = -1 -0.6961928009986877 -0.5250730514526367 "
        "-0.39491748809814453 -0.28444138169288635 -0.18477343022823334 "
        "-0.09105003625154495 0 0.07958029955625534 0.16093020141124725 "
        "0.24611230194568634 0.33791524171829224 0.44070982933044434 "
        "0.5626170039176941 0.7229568362236023 1\n",
        "F32 1 w.weight.nested_absmax\n", "F32 256 w.weight.nested_quant_map = -1 1\n",
        "U8 * w.weight.quant_state.bitsandbytes__nf4 = {\"quant_type\": \"nf4\", "
        "\"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [1, 64], "
        "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
        "\"nested_offset\": 0.5}\n",
    };
    const char *folder = fixture_folder();
    const char *all = "[model-00001-of-00002.safetensors]\nBF16 2 norm\n";

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (i == 3)
            all = fixture_format("%s[model-00002-of-00002.safetensors]\nBF16 2 norm2\n",
                                 all);
        if (left_out == NULL || strcmp(left_out, parts[i]) != 0)
            all = fixture_format("%s%s", all, lines[i]);
    }
    fixture_model(folder, all);
    return folder;
}

static void
test_companions(void)
{
    CHECK_EQ(opened_accept(make_quantized(NULL), NULL), 8);
    opened_refuse(make_quantized("w.weight.absmax"), NULL, BERTH_REASON_COMPANION_MISSING,
                  "w.weight");
    opened_refuse(make_quantized("w.weight.quant_map"), NULL,
                  BERTH_REASON_COMPANION_MISSING, "w.weight");
    opened_refuse(make_quantized("w.weight.nested_absmax"), NULL,
                  BERTH_REASON_COMPANION_MISSING, "w.weight");
    opened_refuse(make_quantized("w.weight.nested_quant_map"), NULL,
                  BERTH_REASON_COMPANION_MISSING, "w.weight");
    opened_refuse(make_quantized("w.weight.quant_state.bitsandbytes__nf4"), NULL,
                  BERTH_REASON_COMPANION_MISSING, "quant_state");
    opened_refuse(make_quantized("w.weight"), NULL, BERTH_REASON_COMPANION_UNKNOWN,
                  "w.weight");
}

/* Missing shards must not look like missing statistics. */
static void
test_companions_of_missing_shards(void)
{
    const char *folder = make_quantized(NULL);
    berth_open_options options = defaults();
    opened o;

    fixture_remove(in(folder, "model-00002-of-00002.safetensors"));
    options.keep_going = 1;
    opened_begin(&o, folder, &options);
    CHECK_EQ(o.finding_count, 1);
    CHECK_EQ(o.error.reason, BERTH_REASON_INDEX_SHARD);
    opened_end(&o);
}

static void
test_companions_keep_going(void)
{
    berth_open_options options = defaults();
    opened o;

    options.keep_going = 1;
    opened_begin(&o, make_quantized("w.weight.absmax"), &options);
    CHECK_EQ(o.error.reason, BERTH_REASON_COMPANION_MISSING);
    CHECK_GE(o.finding_count, 1);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_ERROR);
    CHECK_STR(o.findings[0].details.message, o.error.message);
    opened_end(&o);
}

/* One shard by itself can be looked at, though its weights are in pieces. */
static void
test_lone_shard(void)
{
    const char *folder = make_quantized(NULL);
    const char *path = in(folder, "model-00001-of-00002.safetensors");
    berth_open_options options = defaults();
    berth_tensor tensor;
    opened o;

    options.keep_going = 1;
    opened_begin(&o, path, &options);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 4);
    CHECK_EQ(o.summary.quantized_count, 0);
    CHECK_EQ(o.summary.parameter_count, 2 + 32 + 1 + 16);
    CHECK_STR(o.summary.quant_method, "");
    T_REQUIRE(o.finding_count == 1);
    CHECK_EQ(o.findings[0].severity, BERTH_SEVERITY_WARNING);
    CHECK_EQ(o.findings[0].details.status, BERTH_EFORMAT);
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, i, &tensor), BERTH_OK);
        CHECK_EQ(tensor.encoding, BERTH_ENCODING_NATIVE);
        CHECK_EQ(tensor.owner, BERTH_NO_TENSOR);
    }
    opened_end(&o);
    /* under any other name the file is a model, and not whole */
    fixture_copy(path, in(folder, "model-00001-of-00001.safetensors"));
    opened_refuse(in(folder, "model-00001-of-00001.safetensors"), NULL,
                  BERTH_REASON_COMPANION_MISSING, "w.weight");
}

/* Nothing stays marked of a classification that was given up. */
static void
test_lone_shard_is_plain(void)
{
    const char *path = in(fixture_folder(), "model-00001-of-00002.safetensors");
    fixture_builder *builder = fixture_begin();
    berth_tensor tensor;
    opened o;

    fixture_add_int8(builder, "a", 4, 8);
    fixture_add_lines(builder, "U8 32x1 w.weight\nF32 1 w.weight.absmax\n");
    fixture_finish(builder, path);
    opened_begin(&o, path, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.summary.tensor_count, 5);
    for (uint64_t i = 0; i < 5; i++) {
        CHECK_EQ(berth_checkpoint_tensor(o.checkpoint, i, &tensor), BERTH_OK);
        CHECK_EQ(tensor.encoding, BERTH_ENCODING_NATIVE);
    }
    opened_end(&o);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_deleted);
    T_RUN(test_cut);
    T_RUN(test_grown);
    T_RUN(test_renamed);
    T_RUN(test_renamed_tensor);
    T_RUN(test_doubled);
    T_RUN(test_wrong_files);
    T_RUN(test_wrong_texts);
    T_RUN(test_config_beside_file);
    T_RUN(test_all_missing_are_named);
    T_RUN(test_many_missing);
    T_RUN(test_keep_going);
    T_RUN(test_misplaced);
    T_RUN(test_order_of_index);
    T_RUN(test_several_missing_tensors);
    T_RUN(test_extra);
    T_RUN(test_dropped);
    T_RUN(test_dropped_first);
    T_RUN(test_doubled_and_unnamed);
    T_RUN(test_total);
    T_RUN(test_strays);
    T_RUN(test_strict);
    T_RUN(test_strict_several);
    T_RUN(test_foreign_frameworks);
    T_RUN(test_escaped_names);
    T_RUN(test_companions);
    T_RUN(test_companions_of_missing_shards);
    T_RUN(test_companions_keep_going);
    T_RUN(test_lone_shard);
    T_RUN(test_lone_shard_is_plain);
    T_MAIN_END;
}
