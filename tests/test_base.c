/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c - names, filling and formatting of errors; options; checked sizes. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "tests/t.h"

/* -------------------------------------------------------------------- names */

/*
 * What other programs rely on, written out a second time: a number or a status
 * that changes here breaks them.
 */
static const struct {
    int32_t reason;
    berth_status status;
    const char *name;
    const char *advice;
} pinned[] = {
    { 0, 0, "none",
      "" },
    { 1, -1, "internal",
      "report this to the authors of berth" },
    { 2, -2, "argument",
      "correct the call" },
    { 10, -4, "header_too_small",
      "download the file again" },
    { 11, -4, "header_too_large",
      "this is not a safetensors file, or it is damaged: download it again" },
    { 12, -4, "header_length",
      "download the file again" },
    { 13, -4, "header_utf8",
      "the header is damaged: download the file again or rewrite it" },
    { 14, -4, "header_json",
      "the header is damaged: download the file again or rewrite it" },
    { 15, -4, "offset",
      "the writer left a hole or an overlap: rewrite the file" },
    { 16, -4, "overflow",
      "the shape is impossible: do not trust this file" },
    { 17, -4, "subbyte",
      "the tensor does not end on a byte: rewrite the file" },
    { 18, -4, "size_mismatch",
      "shape and bytes disagree: rewrite the file" },
    { 19, -4, "coverage",
      "download the file again" },
    { 20, -4, "duplicate",
      "rewrite the file with unique names" },
    { 21, -4, "name",
      "rename the tensor" },
    { 22, -4, "rank",
      "no framework goes beyond 64 dimensions: do not trust this file" },
    { 23, -11, "strict",
      "rewrite the file, or verify without --strict" },
    { 30, -9, "io",
      "check the disk and the mount" },
    { 31, -3, "not_found",
      "check the path" },
    { 32, -3, "not_regular",
      "name a regular file" },
    { 33, -9, "changed",
      "let the writer finish, then try again" },
    { 34, -9, "truncated",
      "let the writer finish, then try again" },
    { 35, -4, "path",
      "do not trust this model: its files must lie in its directory, under plain names" },
    { 36, -3, "permission",
      "check the permissions of the file and of the directories above it" },
    { 37, -9, "disk_full",
      "free space, then run the command again" },
    { 38, -2, "exists",
      "choose another output or pass --force" },
    { 39, -3, "link_loop",
      "repair the symbolic links" },
    { 40, -4, "lfs_pointer",
      "the weights were not fetched: run `git lfs pull` in the repository" },
    { 41, -4, "html",
      "the download saved a web page: check access and log in, then download "
      "again" },
    { 42, -4, "json_body",
      "the download saved an error message: check access, then download again" },
    { 43, -10, "zip",
      "this is a PyTorch archive: convert it to safetensors" },
    { 44, -10, "pickle",
      "pickles are never opened: convert to safetensors" },
    { 45, -10, "gguf",
      "use the original safetensors weights" },
    { 46, -10, "other_format",
      "convert it to safetensors" },
    { 47, -4, "zero_filled",
      "the file was allocated but never filled: download it again" },
    { 48, -4, "incomplete",
      "it was not made completely: run the download or command again" },
    { 49, -4, "text_body",
      "if it was downloaded, the text says why not: check access, download again" },
    { 50, -9, "busy",
      "wait for the other process or choose another output" },
    { 51, -4, "journal",
      "pass --force to begin anew" },
    { 52, -3, "parts",
      "run the parts that are missing" },
    { 60, -4, "index_json",
      "download the index again" },
    { 61, -4, "index_shard",
      "download the missing shard" },
    { 62, -4, "index_tensor",
      "index and shards come from different versions: download all of them again" },
    { 63, -11, "index_extra",
      "index and shards come from different versions: download all of them again" },
    { 64, -11, "index_total",
      "the index is stale: write it again" },
    { 65, -11, "stray_shard",
      "remove the file if it is stale" },
    { 66, -11, "both_forms",
      "remove the one that is stale" },
    { 67, -2, "ambiguous",
      "name one file, or pass --all" },
    { 69, -11, "stray_file",
      "remove the file if it is stale" },
    { 68, -11, "partial",
      "name the model's folder to take all of it" },
    { 80, -4, "missing_blob",
      "the blob was pruned or is still being fetched: download the model again" },
    { 81, -3, "no_snapshot",
      "download this revision" },
    { 82, -4, "bad_ref",
      "the cache is damaged: download again" },
    { 90, -4, "companion_missing",
      "the checkpoint was saved without its quantization state: save it again" },
    { 91, -4, "companion_unknown",
      "statistics without their weight: download or save the checkpoint again" },
    { 92, -4, "companion_mismatch",
      "statistics and weight disagree: save the checkpoint again" },
    { 93, -4, "state_json",
      "save the checkpoint again" },
    { 94, -10, "quant_method",
      "start from the original weights" },
    { 95, -4, "quant_plain",
      "find the scales, the original weights, or the config.json that belongs to them" },
    { 100, -4, "config_json",
      "download config.json again" },
    { 101, -4, "architecture",
      "config.json and tensors describe no model that can be laid out: download both again" },
    { 102, -4, "architectures_json",
      "give a description of model classes as it comes with berth" },
    { 103, -2, "rules",
      "correct the rule: see berth-rules(5)" },
    { 104, -2, "rule_unused",
      "correct the pattern; a rule of a file may be marked optional" },
    { 105, -11, "min_coverage",
      "the coverage report says which rule left out what" },
    { 106, -11, "nonfinite",
      "repair the weights, or take a dtype that holds them; without --reject-nonfinite they "
      "are converted as they are" },
    { 107, -11, "difference",
      "`berth diff --tensors` says which weights, and how far apart they are" },
    { 110, -5, "digest",
      "quarantine the file and download it again" },
    { 111, -5, "blob_digest",
      "quarantine the blob and download it again" },
    { 112, -4, "manifest_json",
      "write the manifest again" },
    { 113, -5, "manifest_entry",
      "manifest and checkpoint do not belong together" },
    { 114, -4, "plan_json",
      "plan again, or correct the file: see berth-plan(5)" },
    { 115, -5, "plan_checkpoint",
      "this plan is not one of this checkpoint: plan again" },
    { 116, -2, "device_map",
      "correct the device map" },
    { 117, -4, "links_json",
      "measure the links again, or correct the file: see berth-links(5)" },
    { 118, -6, "no_tier",
      "check it with the memories of the machine that it is for (--max-memory), or plan for "
      "this one" },
    { 119, -6, "no_fit",
      "give more memory, or choose a smaller encoding" },
    { 120, -7, "no_memory",
      "free memory or raise the limit" },
    { 121, -8, "no_device",
      "see `berth devices`" },
    { 122, -10, "unsupported",
      "" },
    { 123, -9, "open_files",
      "raise the limit of open files, see `ulimit -n`" },
    { 124, -8, "device",
      "see the driver's log" },
    { 125, -8, "device_lost",
      "end what uses this device, and start again" },
    { 126, -2, "lease",
      "acquire a layer before its release, once for each" },
    { 127, -6, "slots",
      "release a layer first, or plan with more slots" },
    { 128, -9, "timeout",
      "check the disk and the device" },
    { 129, -2, "asleep",
      "wake the model first" },
    { 131, -2, "leased",
      "release the model's layers first" },
    { 132, -2, "moving",
      "wait for the end of the job that moves it" },
    { 133, -2, "exported",
      "delete the exported tensors first" },
    { 134, -4, "states_file",
      "load what such an optimizer has saved, see berth-optimizer(5)" },
    { 130, -130, "cancelled",
      "" },
};
#define PINNED_COUNT (sizeof pinned / sizeof pinned[0])

static void
test_reasons(void)
{
    size_t count = 0;

    for (size_t i = 0; i < PINNED_COUNT; i++) {
        CHECK_STR(berth_reason_name(pinned[i].reason), pinned[i].name);
        CHECK_STR(berth_reason_advice(pinned[i].reason), pinned[i].advice);
        CHECK_EQ(berthi_reason_status(pinned[i].reason), pinned[i].status);
    }
    /* Every number that is not in the table is none. */
    for (int32_t reason = -5; reason < 1000; reason++)
        if (strcmp(berth_reason_name(reason), "unknown") != 0) {
            count++;
        } else {
            CHECK_STR(berth_reason_advice(reason), "");
            CHECK_EQ(berthi_reason_status(reason), BERTH_EINTERNAL);
        }
    CHECK_EQ(count, PINNED_COUNT);
    CHECK_STR(berth_reason_name(INT32_MAX), "unknown");
    CHECK_STR(berth_reason_name(INT32_MIN), "unknown");
}

static void
test_statuses(void)
{
    static const struct {
        int status;
        const char *name;
    } statuses[] = {
        { 0, "ok" },           { 1, "pending" },   { -1, "internal" },
        { -2, "invalid" },     { -3, "not_found" }, { -4, "format" },
        { -5, "integrity" },   { -6, "no_fit" },   { -7, "no_memory" },
        { -8, "no_device" },   { -9, "io" },       { -10, "unsupported" },
        { -11, "policy" },     { -130, "cancelled" },
    };
    const size_t count = sizeof statuses / sizeof statuses[0];
    size_t known = 0;

    for (size_t i = 0; i < count; i++)
        CHECK_STR(berth_status_name(statuses[i].status), statuses[i].name);
    for (int status = -300; status <= 300; status++)
        known += strcmp(berth_status_name(status), "unknown") != 0;
    CHECK_EQ(known, count);
}

static void
test_version(void)
{
    char expected[32];

    snprintf(expected, sizeof expected, "%d.%d.%d", BERTH_VERSION_MAJOR,
             BERTH_VERSION_MINOR, BERTH_VERSION_PATCH);
    CHECK_STR(berth_version(), expected);
}

/* ------------------------------------------------------------------ filling */

static bool
is_zero(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)memory)[i] != 0)
            return false;
    return true;
}

static void
test_fail_fills_everything(void)
{
    const berthi_about about = {
        .file = "dir/model.safetensors",
        .tensor = "a\nb",
        .tensor_length = 3,
        .system_error = EIO,
        .has = BERTH_HAS_POSITION | BERTH_HAS_ACTUAL,
        .position = UINT64_MAX,
        .expected = 5,
        .actual = 6,
    };
    berth_error error;

    memset(&error, 0xAA, sizeof error);
    errno = 99;
    CHECK_EQ(berthi_fail(&error, BERTH_REASON_OFFSET, &about, "%d of %s", 3, "them"),
             BERTH_EFORMAT);
    CHECK_EQ(errno, 99);
    CHECK_EQ(error.status, BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_OFFSET);
    CHECK_EQ(error.system_error, EIO);
    CHECK_EQ(error.has, BERTH_HAS_POSITION | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.position, UINT64_MAX);
    CHECK_EQ(error.expected, 5);
    CHECK_EQ(error.actual, 6);
    CHECK_STR(error.file, "dir/model.safetensors");
    CHECK_STR(error.tensor, "a\\x0ab");
    CHECK_STR(error.message, "3 of them");
    CHECK(is_zero(error.reserved, sizeof error.reserved));
}

static void
test_fail_without_details(void)
{
    berth_error error;

    CHECK_EQ(berthi_fail(NULL, BERTH_REASON_CHANGED, NULL, "x"), BERTH_EIO);
    memset(&error, 0xAA, sizeof error);
    CHECK_EQ(berthi_fail(&error, BERTH_REASON_NONE, NULL, "%s", ""), BERTH_OK);
    CHECK(is_zero(&error, sizeof error));
    memset(&error, 0xAA, sizeof error);
    CHECK_EQ(berthi_fail(&error, (berth_reason)9999, NULL, "x"), BERTH_EINTERNAL);
    CHECK_EQ(error.reason, 9999);
    memset(&error, 0xAA, sizeof error);
    berthi_error_clear(&error);
    CHECK(is_zero(&error, sizeof error));
    berthi_error_clear(NULL);
}

static void
test_long_messages(void)
{
    char *const words = malloc(2000);
    berth_error error;

    T_REQUIRE(words != NULL);
    memset(words, 'w', 1999);
    words[1999] = '\0';
    berthi_fail(&error, BERTH_REASON_IO, NULL, "%s", words);
    CHECK_EQ(strlen(error.message), BERTH_MESSAGE_CAPACITY - 1);
    CHECK(is_zero(error.reserved, sizeof error.reserved));
    free(words);
}

/* The name: 128 characters, whole pieces, and a mark when something is missing. */
static void
test_names_are_cut(void)
{
    char name[600];
    char expected[600];
    berth_error error;

    for (size_t length = 126; length <= 131; length++) {
        memset(name, 'n', sizeof name);
        berthi_fail(&error, BERTH_REASON_NAME,
                    &(berthi_about){ .tensor = name, .tensor_length = length }, "x");
        CHECK_EQ(strlen(error.tensor), length <= 128 ? length : 131);
        CHECK_EQ(strcmp(error.tensor + strlen(error.tensor) - 3, "...") == 0, length > 128);
    }
    memset(name, '\x01', sizeof name);
    berthi_fail(&error, BERTH_REASON_NAME,
                &(berthi_about){ .tensor = name, .tensor_length = 600 }, "x");
    expected[0] = '\0';
    for (int i = 0; i < 32; i++)
        strcat(expected, "\\x01");
    strcat(expected, "...");
    CHECK_STR(error.tensor, expected);
    /* A piece that would pass 128 is left out whole. */
    memset(name, 'n', sizeof name);
    name[126] = '\x01';
    berthi_fail(&error, BERTH_REASON_NAME,
                &(berthi_about){ .tensor = name, .tensor_length = 130 }, "x");
    CHECK_EQ(strlen(error.tensor), 126 + 3);
    berthi_fail(&error, BERTH_REASON_NAME,
                &(berthi_about){ .tensor = "abc", .tensor_length = 0 }, "x");
    CHECK_STR(error.tensor, "");
}

/* What is escaped already is not so once more, and is cut between characters. */
static void
test_names_that_are_escaped(void)
{
    char name[200];
    berth_error error;

    berthi_fail(&error, BERTH_REASON_LEASE,
                &(berthi_about){ .tensor = "a\\\\b\\x0a\xC3\xA9 more", .tensor_length = 11,
                                 .is_escaped = true },
                "x");
    CHECK_STR(error.tensor, "a\\\\b\\x0a\xC3\xA9 ");
    for (size_t length = 126; length <= 131; length++) {
        memset(name, 'n', sizeof name);
        memcpy(name + 127, "\xC3\xA9", 2);
        berthi_fail(&error, BERTH_REASON_LEASE,
                    &(berthi_about){ .tensor = name, .tensor_length = length,
                                     .is_escaped = true },
                    "x");
        CHECK_EQ(strlen(error.tensor), length <= 128 ? length : 127 + 3);
        CHECK_EQ(strcmp(error.tensor + strlen(error.tensor) - 3, "...") == 0, length > 128);
    }
}

/* A path too long keeps its tail, where the file is. */
static void
test_paths_are_cut(void)
{
    const size_t kept = BERTH_FILE_CAPACITY / 4 - 1;
    char path[3 * BERTH_FILE_CAPACITY];
    berth_error error;

    for (size_t length = BERTH_FILE_CAPACITY - 3; length <= BERTH_FILE_CAPACITY + 2;
         length++) {
        memset(path, 'd', sizeof path);
        memcpy(path + length - 5, "/leaf", 6);
        berthi_fail(&error, BERTH_REASON_PATH, &(berthi_about){ .file = path }, "x");
        if (length < BERTH_FILE_CAPACITY) {
            CHECK_STR(error.file, path);
        } else {
            CHECK_EQ(strlen(error.file), 3 + kept);
            CHECK_MEM(error.file, "...ddd", 6);
            CHECK_STR(error.file + 3 + kept - 5, "/leaf");
        }
    }
    memset(path, '\x01', sizeof path);
    path[sizeof path - 1] = '\0';
    berthi_fail(&error, BERTH_REASON_PATH, &(berthi_about){ .file = path }, "x");
    CHECK_EQ(strlen(error.file), 3 + 4 * kept);
    CHECK_MEM(error.file, "...\\x01", 7);
    CHECK_STR(error.file + strlen(error.file) - 8, "\\x01\\x01");
    CHECK_STR(error.message, "x");
}

static void
test_fail_system(void)
{
    static const struct {
        int system_error;
        berth_status status;
        berth_reason reason;
    } cases[] = {
        { ENOENT, BERTH_ENOENT, BERTH_REASON_NOT_FOUND },
        { ENOTDIR, BERTH_ENOENT, BERTH_REASON_NOT_FOUND },
        { EACCES, BERTH_ENOENT, BERTH_REASON_PERMISSION },
        { EPERM, BERTH_ENOENT, BERTH_REASON_PERMISSION },
        { ELOOP, BERTH_ENOENT, BERTH_REASON_LINK_LOOP },
        { ENOSPC, BERTH_EIO, BERTH_REASON_DISK_FULL },
        { EDQUOT, BERTH_EIO, BERTH_REASON_DISK_FULL },
        { EFBIG, BERTH_EIO, BERTH_REASON_DISK_FULL },
        { ENOMEM, BERTH_ENOMEM, BERTH_REASON_NO_MEMORY },
        { EIO, BERTH_EIO, BERTH_REASON_IO },
        { EROFS, BERTH_EIO, BERTH_REASON_IO },
        { EMFILE, BERTH_EIO, BERTH_REASON_OPEN_FILES },
        { ENFILE, BERTH_EIO, BERTH_REASON_OPEN_FILES },
        { ENAMETOOLONG, BERTH_ENOENT, BERTH_REASON_NOT_FOUND },
        { 0, BERTH_EIO, BERTH_REASON_IO },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berth_error error;

        memset(&error, 0xAA, sizeof error);
        CHECK_EQ(berthi_fail_system(&error, cases[i].system_error, "a/b", "opening"),
                 cases[i].status);
        CHECK_EQ(error.status, cases[i].status);
        CHECK_EQ(error.reason, cases[i].reason);
        CHECK_EQ(error.system_error, cases[i].system_error);
        CHECK_EQ(error.has, 0);
        CHECK_STR(error.file, "a/b");
        CHECK_STR(error.message, "opening failed");
        CHECK_EQ(berthi_fail_system(NULL, cases[i].system_error, NULL, "x"),
                 cases[i].status);
    }
}

/* Whoever gives an option that is "" reads which mistake it is. */
static void
test_an_empty_path_is_told(void)
{
    berth_error error;

    CHECK_EQ(berthi_fail_system(&error, ENOENT, "", "opening"), BERTH_ENOENT);
    CHECK_STR(error.message, "opening failed, the path is empty");
    (void)berthi_fail_system(&error, EIO, "", "reading");
    CHECK_STR(error.message, "reading failed");
}

static void
test_fail_memory_and_argument(void)
{
    berth_error error;

    CHECK_EQ(berthi_fail_memory(&error, "reading it"), BERTH_ENOMEM);
    CHECK_EQ(error.reason, BERTH_REASON_NO_MEMORY);
    CHECK_STR(error.message, "out of memory: reading it");
    CHECK_EQ(berthi_fail_argument(&error, "path", "is NULL"), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.message, "argument `path` is NULL");
    CHECK_EQ(berthi_fail_memory(NULL, "x"), BERTH_ENOMEM);
    CHECK_EQ(berthi_fail_argument(NULL, "x", "y"), BERTH_EINVAL);
}

/* --------------------------------------------------------------- formatting */

static const char *
format(const berth_error *error)
{
    static char text[8192];
    size_t needed;

    memset(text, '#', sizeof text);
    needed = berth_error_format(error, text, sizeof text);
    CHECK_EQ(needed, strlen(text));
    return text;
}

/* Every combination of what an error may hold, against the parts put together. */
static void
test_format_all_combinations(void)
{
    static const char *const numbers[] = { "", " (expected 8",
                                           " (found 18446744073709551615",
                                           " (expected 8, found 18446744073709551615" };

    for (unsigned bits = 0; bits < 256; bits++) {
        char expected[512];
        berth_error error;

        memset(&error, 0, sizeof error);
        error.reason = bits & 64 ? BERTH_REASON_CHANGED : BERTH_REASON_CANCELLED;
        error.position = 7;
        error.expected = 8;
        error.actual = UINT64_MAX;
        error.has = (bits & 7u) | (bits & 128u ? BERTH_HAS_BYTES : 0);
        error.system_error = bits & 8 ? ENOENT : 0;
        if (bits & 16)
            strcpy(error.file, "a/b.safetensors");
        if (bits & 32)
            strcpy(error.tensor, "lm_head");
        strcpy(error.message, "it moved");
        snprintf(expected, sizeof expected, "%s%sit moved%s%s%s%s [%s]%s",
                 bits & 16 ? "a/b.safetensors: " : "",
                 bits & 32 ? "tensor \"lm_head\": " : "", bits & 1 ? " at byte 7" : "",
                 numbers[bits >> 1 & 3],
                 bits & 128 && bits & 6 ? " bytes)" : bits & 6 ? ")" : "",
                 bits & 8 ? ": No such file or directory" : "",
                 bits & 64 ? "changed" : "cancelled",
                 bits & 64 ? "; let the writer finish, then try again" : "");
        CHECK_STR(format(&error), expected);
    }
}

static void
test_format_checksums_in_hexadecimal(void)
{
    berth_error error;

    berthi_fail(&error, BERTH_REASON_DIGEST,
                &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                        | BERTH_HAS_CRC32,
                                 .expected = 0x1A,
                                 .actual = 0xFFFFFFFF },
                "m");
    CHECK_CONTAINS(format(&error), "m (expected 0000001a, found ffffffff) [digest]");
}

static void
test_format_says_what_a_name_is_of(void)
{
    static const struct {
        berth_reason reason;
        const char *begin;
    } cases[] = { { BERTH_REASON_DIGEST, "tensor \"t\": m" },
                  { BERTH_REASON_SLOTS, "layer \"t\": m" },
                  { BERTH_REASON_LEASE, "layer \"t\": m" },
                  { BERTH_REASON_LEASED, "layer \"t\": m" },
                  { BERTH_REASON_NOT_FOUND, "\"t\": m" },
                  { BERTH_REASON_RULES, "\"t\": m" },
                  { BERTH_REASON_RULE_UNUSED, "\"t\": m" },
                  { BERTH_REASON_NO_FIT, "\"t\": m" } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_error error;

        berthi_fail(&error, cases[i].reason,
                    &(berthi_about){ .tensor = "t", .tensor_length = 1 }, "m");
        CHECK(strncmp(format(&error), cases[i].begin, strlen(cases[i].begin)) == 0);
    }
}

static void
test_format_cut_at_every_capacity(void)
{
    berth_error error;
    char whole[256];
    size_t length;

    berthi_fail(&error, BERTH_REASON_SIZE_MISMATCH,
                &(berthi_about){ .file = "f",
                                 .tensor = "t",
                                 .tensor_length = 1,
                                 .system_error = EIO,
                                 .has = 7,
                                 .position = 1,
                                 .expected = 2,
                                 .actual = 3 },
                "m");
    length = berth_error_format(&error, whole, sizeof whole);
    CHECK_STR(whole, "f: tensor \"t\": m at byte 1 (expected 2, found 3): "
                     "Input/output error [size_mismatch]; "
                     "shape and bytes disagree: rewrite the file");
    CHECK_EQ(length, strlen(whole));
    for (size_t capacity = 0; capacity <= length + 2; capacity++) {
        const size_t kept = capacity == 0 ? 0 : capacity <= length ? capacity - 1 : length;
        char cut[256];

        memset(cut, '#', sizeof cut);
        CHECK_EQ(berth_error_format(&error, cut, capacity), length);
        CHECK_EQ(cut[capacity], '#');
        CHECK_MEM(cut, whole, kept);
        if (capacity > 0)
            CHECK_EQ(cut[kept], '\0');
    }
    CHECK_EQ(berth_error_format(&error, NULL, 0), length);
}

static void
test_format_odd_errors(void)
{
    berth_error error;

    memset(&error, 0, sizeof error);
    CHECK_STR(format(&error), " [none]");
    error.reason = 4711;
    error.system_error = 100000;
    strcpy(error.message, "m");
    CHECK_STR(format(&error), "m: unknown error [unknown]");
    error.system_error = -1;
    CHECK_STR(format(&error), "m: unknown error [unknown]");
    /* What the largest possible error needs besides its own size. */
    memset(error.file, 'f', sizeof error.file - 1);
    memset(error.tensor, 't', sizeof error.tensor - 1);
    memset(error.message, 'm', sizeof error.message - 1);
    error.has = 7;
    error.position = error.expected = error.actual = UINT64_MAX;
    CHECK_LT(strlen(format(&error)), sizeof error + 512);
}

/* Words must not follow the program's locale. */
static void
test_format_in_another_locale(void)
{
    static const char *const locales[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8" };
    berth_error error;

    berthi_fail_system(&error, EACCES, "f", "opening");
    for (size_t i = 0; i < sizeof locales / sizeof locales[0]; i++) {
        setlocale(LC_ALL, locales[i]);
        CHECK_STR(format(&error),
                  "f: opening failed: Permission denied [permission]; check the "
                  "permissions of the file and of the directories above it");
    }
    setlocale(LC_ALL, "C");
}

/* ------------------------------------------------------------------ options */

typedef struct small_options {
    size_t struct_size;
    uint64_t one;
} small_options;

typedef struct large_options {
    size_t struct_size;
    uint64_t one;
    uint64_t two;
    unsigned char tail[9];
} large_options;

/* A struct without reserved words. */
#define TAKE(mine, given, error)                                                           \
    berthi_options_take(&(mine), sizeof(mine), sizeof(mine), given, "options", error)

static void
test_options_of_the_same_size(void)
{
    small_options given = { sizeof given, 5 };
    small_options mine = { 1, 1 };
    berth_error error;

    CHECK_EQ(TAKE(mine, &given, &error), BERTH_OK);
    CHECK_EQ(mine.one, 5);
    CHECK_EQ(mine.struct_size, sizeof given);
    CHECK_EQ(TAKE(mine, NULL, &error), BERTH_OK);
    CHECK_EQ(mine.one, 0);
    CHECK_EQ(mine.struct_size, 0);
}

/* A caller with an older header: what it does not have is default. */
static void
test_options_from_an_older_header(void)
{
    const small_options given = { sizeof given, 5 };
    large_options mine;

    memset(&mine, 0xAA, sizeof mine);
    CHECK_EQ(TAKE(mine, &given, NULL), BERTH_OK);
    CHECK_EQ(mine.one, 5);
    CHECK_EQ(mine.two, 0);
    CHECK(is_zero(mine.tail, sizeof mine.tail));
}

/* A caller with a newer header: fine as long as it sets nothing that is new. */
static void
test_options_from_a_newer_header(void)
{
    large_options given;
    small_options mine;
    berth_error error;

    memset(&given, 0, sizeof given);
    given.struct_size = sizeof given;
    given.one = 5;
    CHECK_EQ(TAKE(mine, &given, &error), BERTH_OK);
    CHECK_EQ(mine.one, 5);
    for (size_t at = sizeof mine; at < sizeof given; at++) {
        ((unsigned char *)&given)[at] = 1;
        mine.one = 77;
        CHECK_EQ(TAKE(mine, &given, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_STR(error.message, "argument `options` sets a field that this library "
                                 "does not know");
        CHECK_EQ(mine.one, 0);
        ((unsigned char *)&given)[at] = 0;
    }
}

/* Reserved words are as what lies behind the struct: a newer header may have given them. */
static void
test_options_with_reserved_words(void)
{
    large_options given;
    large_options mine;
    berth_error error;

    memset(&given, 0, sizeof given);
    given.struct_size = sizeof given;
    given.one = 5;
    for (size_t at = offsetof(large_options, two); at < sizeof given; at++) {
        ((unsigned char *)&given)[at] = 1;
        CHECK_EQ(berthi_options_take(&mine, sizeof mine, offsetof(large_options, two), &given,
                                     "options", &error),
                 BERTH_EINVAL);
        CHECK_CONTAINS(error.message, "`options` sets a field that this library does not");
        ((unsigned char *)&given)[at] = 0;
    }
    memset(&mine, 0xAA, sizeof mine);
    CHECK_EQ(berthi_options_take(&mine, sizeof mine, offsetof(large_options, two), &given,
                                 "options", &error),
             BERTH_OK);
    CHECK_EQ(mine.one, 5);
    CHECK_EQ(mine.two, 0);
    CHECK_EQ(berthi_options_check(0, "options", &error), BERTH_OK);
    CHECK_EQ(berthi_options_check(1u << 31, "options", &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`options` sets a field that this library does not know");
}

/* What lies behind the given size is the caller's own business. */
static void
test_options_end_with_their_size(void)
{
    large_options given;
    small_options mine;

    memset(&given, 0xAA, sizeof given);
    given.struct_size = offsetof(large_options, two) + 1;
    given.two = 0;
    memset((unsigned char *)&given + given.struct_size, 0xAA, 4);
    CHECK_EQ(TAKE(mine, &given, NULL), BERTH_OK);
    given.struct_size++;
    CHECK_EQ(TAKE(mine, &given, NULL), BERTH_EINVAL);
}

static void
test_options_without_size(void)
{
    small_options given = { 0, 5 };
    small_options mine;
    berth_error error;

    for (given.struct_size = 0; given.struct_size < sizeof(size_t); given.struct_size++) {
        CHECK_EQ(TAKE(mine, &given, &error), BERTH_EINVAL);
        CHECK_STR(error.message, "argument `options` has no struct_size: call its _init");
    }
    given.struct_size = sizeof(size_t);
    CHECK_EQ(TAKE(mine, &given, &error), BERTH_OK);
    CHECK_EQ(mine.one, 0);
}

/* A struct that the library fills has the size that its caller knows. */
static void
test_options_are_given_in_their_size(void)
{
    large_options mine;
    unsigned char room[sizeof mine + 16];
    small_options given;
    size_t size;

    memset(&mine, 0, sizeof mine); /* what pads it, too: structs of the interface have none */
    mine.one = 5;
    for (size = sizeof(size_t); size <= sizeof mine + 8; size++) {
        memset(room, 0xAA, sizeof room);
        CHECK_EQ(berthi_options_give(room, size, &mine, sizeof mine),
                 size == sizeof(size_t) ? BERTH_EINVAL : BERTH_OK); /* 5 is in one byte */
        CHECK_EQ(room[size], 0xAA);
        memset(&given, 0, sizeof given);
        memcpy(&given, room, size < sizeof given ? size : sizeof given);
        CHECK_EQ(given.struct_size, size);
        CHECK_EQ(given.one, size == sizeof(size_t) ? 0 : 5);
        if (size > sizeof given)
            CHECK(is_zero(room + sizeof given, size - sizeof given));
    }
    memset(room, 0xAA, sizeof room);
    CHECK_EQ(berthi_options_give(room, 7, &mine, sizeof mine), BERTH_EINVAL);
    CHECK_EQ(room[7], 0xAA);
    mine.tail[8] = 1; /* what the caller has no field for is told */
    CHECK_EQ(berthi_options_give(room, sizeof given, &mine, sizeof mine), BERTH_EINVAL);
    memcpy(&given, room, sizeof given);
    CHECK_EQ(given.struct_size, sizeof given);
    CHECK_EQ(given.one, 0);
    CHECK_EQ(berthi_options_give(room, sizeof mine, &mine, sizeof mine), BERTH_OK);
}

/* -------------------------------------------------------------------- sizes */

static void
test_checked_sizes(void)
{
    const uint64_t top = UINT64_MAX;
    const uint64_t half = UINT64_C(1) << 32;
    uint64_t out = 0;

    CHECK(berthi_can_mul(half - 1, half + 1, &out) && out == top);
    CHECK(!berthi_can_mul(half, half, &out));
    CHECK(berthi_can_mul(top, 1, &out) && out == top);
    CHECK(berthi_can_mul(0, top, &out) && out == 0);
    CHECK(!berthi_can_mul(top, 2, &out));
    CHECK(berthi_can_mul(top / 3, 3, &out) && out == top);
    CHECK(!berthi_can_mul(top / 3 + 1, 3, &out));
    CHECK(berthi_can_add(top, 0, &out) && out == top);
    CHECK(!berthi_can_add(top, 1, &out));
    CHECK(berthi_can_add(top - 5, 5, &out) && out == top);
    CHECK(!berthi_can_add(top - 5, 6, &out));
    CHECK_EQ(berthi_min_u64(1, top), 1);
    CHECK_EQ(berthi_min_u64(top, 1), 1);
    CHECK_EQ(berthi_max_u64(1, top), top);
    CHECK_EQ(berthi_max_u64(top, 1), top);
}

static void
test_rounding(void)
{
    uint64_t out;

    for (unsigned shift = 0; shift < 64; shift++) {
        const uint64_t alignment = UINT64_C(1) << shift;
        const uint64_t last = UINT64_MAX - (alignment - 1); /* the largest multiple */

        CHECK(berthi_can_round_up(0, alignment, &out) && out == 0);
        CHECK(berthi_can_round_up(1, alignment, &out) && out == alignment);
        CHECK(berthi_can_round_up(alignment, alignment, &out) && out == alignment);
        CHECK(berthi_can_round_up(last, alignment, &out) && out == last);
        CHECK_EQ(berthi_can_round_up(last + 1, alignment, &out), shift == 0);
        CHECK_EQ(berthi_can_round_up(UINT64_MAX, alignment, &out), shift == 0);
        if (shift > 0 && shift < 63)
            CHECK(berthi_can_round_up(alignment + 1, alignment, &out)
                  && out == 2 * alignment);
        CHECK_EQ(berthi_round_down(alignment, alignment), alignment);
        CHECK_EQ(berthi_round_down(alignment - 1, alignment), 0);
        CHECK_EQ(berthi_round_down(UINT64_MAX, alignment), last);
    }
}

static void
test_divides_up(void)
{
    CHECK_EQ(berthi_divide_up(0, 7), 0);
    CHECK_EQ(berthi_divide_up(1, 7), 1);
    CHECK_EQ(berthi_divide_up(7, 7), 1);
    CHECK_EQ(berthi_divide_up(8, 7), 2);
    CHECK_EQ(berthi_divide_up(UINT64_MAX, 1), UINT64_MAX);
    CHECK_EQ(berthi_divide_up(UINT64_MAX, 2), UINT64_C(1) << 63);
    CHECK_EQ(berthi_divide_up(UINT64_MAX, UINT64_MAX), 1);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_reasons);
    T_RUN(test_statuses);
    T_RUN(test_version);
    T_RUN(test_fail_fills_everything);
    T_RUN(test_fail_without_details);
    T_RUN(test_long_messages);
    T_RUN(test_names_are_cut);
    T_RUN(test_names_that_are_escaped);
    T_RUN(test_paths_are_cut);
    T_RUN(test_fail_system);
    T_RUN(test_an_empty_path_is_told);
    T_RUN(test_fail_memory_and_argument);
    T_RUN(test_format_all_combinations);
    T_RUN(test_format_checksums_in_hexadecimal);
    T_RUN(test_format_says_what_a_name_is_of);
    T_RUN(test_format_cut_at_every_capacity);
    T_RUN(test_format_odd_errors);
    T_RUN(test_format_in_another_locale);
    T_RUN(test_options_of_the_same_size);
    T_RUN(test_options_from_an_older_header);
    T_RUN(test_options_from_a_newer_header);
    T_RUN(test_options_with_reserved_words);
    T_RUN(test_options_end_with_their_size);
    T_RUN(test_options_without_size);
    T_RUN(test_options_are_given_in_their_size);
    T_RUN(test_checked_sizes);
    T_RUN(test_rounding);
    T_RUN(test_divides_up);
    T_MAIN_END;
}
