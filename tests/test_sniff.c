/* SPDX-License-Identifier: Apache-2.0 */
/* test_sniff.c - what files that are no weights are told by, and what is said of them. */
#include <stdlib.h>
#include <string.h>

#include "loader/sniff.h"
#include "tests/t.h"

#define OID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

typedef struct sample {
    const char *bytes;
    size_t length;
    berth_reason reason;
    const char *what; /* part of the name */
} sample;

#define SAMPLE(bytes, reason, what)                                                      \
    {                                                                                    \
        bytes, sizeof bytes - 1, BERTH_REASON_##reason, what                             \
    }

static const sample samples[] = {
    SAMPLE("version https://git-lfs.github.com/spec/v1\n", LFS_POINTER, "git-lfs"),
    SAMPLE("VERSION HTTPS://git-lfs", LFS_POINTER, "git-lfs"),
    SAMPLE("version https://git-lf", TEXT_BODY, "plain text"),
    SAMPLE("<!DOCTYPE html><html>", HTML, "web page"),
    SAMPLE("<!doctype html>", HTML, "web page"),
    SAMPLE("\xef\xbb\xbf <html>", HTML, "web page"),
    SAMPLE("\xef\xbb<html>", NONE, NULL),
    SAMPLE(" \t\r\n<HTML>", HTML, "web page"),
    SAMPLE("<head>", HTML, "web page"),
    SAMPLE("<?xml version=\"1.0\"?><Error>", HTML, "web page"),
    SAMPLE("<htm", TEXT_BODY, "plain text"),
    SAMPLE("{\"error\":\"Repository not found\"}", JSON_BODY, "JSON"),
    SAMPLE(" \n{ \"message\": 1}", JSON_BODY, "JSON"),
    SAMPLE("{}", JSON_BODY, "JSON"),
    SAMPLE("{\n}", JSON_BODY, "JSON"),
    SAMPLE("{a}", TEXT_BODY, "plain text"),
    SAMPLE("{", TEXT_BODY, "plain text"),
    SAMPLE("   ", TEXT_BODY, "plain text"),
    SAMPLE("Invalid username or password.\r\n\t", TEXT_BODY, "plain text"),
    SAMPLE("~", TEXT_BODY, "plain text"),
    SAMPLE("text\x7f", NONE, NULL),
    SAMPLE("text\x1f", NONE, NULL),
    SAMPLE("PK\x03\x04rest", ZIP, "zip"),
    SAMPLE("PK\x03\x04", ZIP, "zip"),
    SAMPLE("PK\x03", NONE, NULL),
    SAMPLE("\x80\x02}q", PICKLE, "pickle"),
    SAMPLE("\x80\x05", PICKLE, "pickle"),
    SAMPLE("\x80\x06", NONE, NULL),
    SAMPLE("\x80\x01", NONE, NULL),
    SAMPLE("\x80", NONE, NULL),
    SAMPLE("GGUF\x03\x00\x00\x00", GGUF, "GGUF"),
    SAMPLE("\x93NUMPY\x01\x00", OTHER_FORMAT, "NumPy"),
    SAMPLE("\x89HDF\r\n\x1a\n", OTHER_FORMAT, "HDF5"),
    SAMPLE("\x1f\x8b\x08\x00", OTHER_FORMAT, "gzip"),
    SAMPLE("\x28\xb5\x2f\xfd\x00", OTHER_FORMAT, "zstd"),
    SAMPLE("\xfd" "7zXZ\x00", OTHER_FORMAT, "xz"),
    SAMPLE("\x81\xa6params", OTHER_FORMAT, "msgpack"),
    SAMPLE("\x8f\xbfx", OTHER_FORMAT, "msgpack"),
    SAMPLE("\x81\xa0", OTHER_FORMAT, "msgpack"),
    SAMPLE("\x81\x9f", NONE, NULL),
    SAMPLE("\x81\xc0", NONE, NULL),
    SAMPLE("\x81\xd9\x20x", OTHER_FORMAT, "msgpack"),
    SAMPLE("\x81", NONE, NULL),
    SAMPLE("\x90\xa6params", NONE, NULL),
    SAMPLE("\xde\x00\x10\xa3lm_", OTHER_FORMAT, "msgpack"),
    SAMPLE("\xde\x00\x10", NONE, NULL),
    SAMPLE("\xdf\x00\x00\x00\x10\xa3lm_", OTHER_FORMAT, "msgpack"),
    SAMPLE("\x00\x00\x00\x00\x00\x00\x00\x00", ZERO_FILLED, "zeros"),
    SAMPLE("\x00\x00\x00\x00\x00\x00\x00\x00{", ZERO_FILLED, "zeros"),
    SAMPLE("\x00\x00\x00\x00\x00\x00\x00\x01", NONE, NULL),
    SAMPLE("\x00\x00\x00\x00\x00\x00\x00", NONE, NULL),
    SAMPLE("\x36\x00\x00\x00\x00\x00\x00\x00{\"a\"", NONE, NULL),
    SAMPLE("", NONE, NULL),
};

/* In memory that ends with the bytes. */
static void
look_at_exactly(const char *bytes, size_t length, berthi_sniff *out)
{
    char *memory = malloc(length + 1);

    memcpy(memory + 1, bytes, length);
    berthi_sniff_look((const uint8_t *)memory + 1, length, out);
    free(memory);
}

static void
test_kinds(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const sample *const s = &samples[i];
        berthi_sniff sniff;

        look_at_exactly(s->bytes, s->length, &sniff);
        if (!CHECK_EQ(sniff.reason, s->reason))
            T_NOTE("sample %zu: %s", i, s->bytes);
        if (s->what != NULL)
            CHECK_CONTAINS(sniff.what, s->what);
        CHECK(!sniff.has_promised_bytes);
        CHECK_STR(sniff.promised_sha256, "");
    }
}

/* -------------------------------------------------------------------- git-lfs */

static berthi_sniff
look_at_pointer(const char *lines)
{
    char text[400] = "version https://git-lfs.github.com/spec/v1\n";
    berthi_sniff sniff;

    strcat(text, lines);
    look_at_exactly(text, strlen(text), &sniff);
    CHECK_EQ(sniff.reason, BERTH_REASON_LFS_POINTER);
    return sniff;
}

static void
test_pointer(void)
{
    berthi_sniff sniff = look_at_pointer("oid sha256:" OID "\nsize 4976698672\n");

    CHECK_STR(sniff.promised_sha256, OID);
    CHECK(sniff.has_promised_bytes);
    CHECK_EQ(sniff.promised_bytes, UINT64_C(4976698672));

    sniff = look_at_pointer("size 0\noid sha256:" OID);
    CHECK_STR(sniff.promised_sha256, OID);
    CHECK(sniff.has_promised_bytes);
    CHECK_EQ(sniff.promised_bytes, 0);

    sniff = look_at_pointer("size 18446744073709551615");
    CHECK(sniff.has_promised_bytes);
    CHECK_EQ(sniff.promised_bytes, UINT64_MAX);
    CHECK_STR(sniff.promised_sha256, "");
}

static void
test_broken_pointer(void)
{
    /* 63 digits; a capital; 65 digits; nothing; a number without digits; one too large */
    CHECK_STR(look_at_pointer("oid sha256:" "123456789abcdef0123456789abcdef"
                              "0123456789abcdef0123456789abcdef\n").promised_sha256, "");
    CHECK_STR(look_at_pointer("oid sha256:A123456789abcdef0123456789abcdef"
                              "0123456789abcdef0123456789abcdef\n").promised_sha256, "");
    CHECK_STR(look_at_pointer("oid sha256:" OID "0\n").promised_sha256, "");
    CHECK_STR(look_at_pointer("").promised_sha256, "");
    CHECK(!look_at_pointer("size x\n").has_promised_bytes);
    CHECK(!look_at_pointer("x size 5\n").has_promised_bytes);
    CHECK(!look_at_pointer("size 18446744073709551616\n").has_promised_bytes);
    CHECK(!look_at_pointer("size 184467440737095516150\n").has_promised_bytes);
}

/* -------------------------------------------------------------------- verdicts */

static berth_error
explain(const char *bytes, size_t length, uint64_t file_bytes, berth_reason reason,
        uint64_t expected, uint64_t actual)
{
    berth_error error;
    berth_status status;

    berthi_fail(&error, reason,
                &(berthi_about){ .file = "m.safetensors", .has = 6, .expected = expected,
                                 .actual = actual },
                "as it was");
    status = berthi_sniff_explain((const uint8_t *)bytes, length, file_bytes,
                                  "m.safetensors", &error);
    CHECK_EQ(status, error.status);
    return error;
}

static void
test_explained_pointer(void)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:" OID "\nsize 4976698672\n";
    const berth_error error = explain(pointer, sizeof pointer - 1, sizeof pointer - 1,
                                      BERTH_REASON_HEADER_TOO_LARGE, 1, 2);

    CHECK_EQ(error.reason, BERTH_REASON_LFS_POINTER);
    CHECK_EQ(error.status, BERTH_EFORMAT);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, UINT64_C(4976698672));
    CHECK_EQ(error.actual, sizeof pointer - 1);
    CHECK_STR(error.file, "m.safetensors");
    CHECK_STR(error.message,
              "a git-lfs pointer instead of a safetensors file (header_too_large): it "
              "stands for 4976698672 bytes with sha256 " OID "");
}

static void
test_explained_prefix(void)
{
    berth_error error = explain("PK\x03\x04\0\0\0\0\0", 9, 64, BERTH_REASON_HEADER_LENGTH,
                                1, 2);

    CHECK_EQ(error.reason, BERTH_REASON_ZIP);
    CHECK_EQ(error.expected, 0x04034b50 + 8);
    CHECK_EQ(error.actual, 64);
    CHECK_CONTAINS(error.message, "instead of a safetensors file (header_length)");

    /* as long as a number can say, and too short for a number */
    error = explain("\x80\x02\xff\xff\xff\xff\xff\xff", 8, 8,
                    BERTH_REASON_HEADER_TOO_LARGE, 1, 2);
    CHECK_EQ(error.expected, UINT64_C(0xffffffffffff0280) + 8);
    error = explain("\x28\xb5\x2f\xfd\xff\xff\xff\xff", 8, 8,
                    BERTH_REASON_HEADER_TOO_LARGE, 1, 2);
    CHECK_EQ(error.expected, UINT64_C(0xfffffffffd2fb528) + 8);
    error = explain("GGUF", 4, 4, BERTH_REASON_HEADER_TOO_SMALL, 8, 4);
    CHECK_EQ(error.reason, BERTH_REASON_GGUF);
    CHECK_EQ(error.expected, 8);
    CHECK_EQ(error.actual, 4);
}

static void
test_left_alone(void)
{
    static const char g[] = "\x36\0\0\0\0\0\0\0{\"a\":";
    berth_error error = explain(g, 12, 70, BERTH_REASON_HEADER_JSON, 1, 2);

    CHECK_EQ(error.reason, BERTH_REASON_HEADER_JSON);
    CHECK_STR(error.message, "as it was");

    /* too long stays what it was; too short becomes a download to finish */
    error = explain(g, 12, 100, BERTH_REASON_COVERAGE, 8, 9);
    CHECK_EQ(error.reason, BERTH_REASON_COVERAGE);
    CHECK_STR(error.message, "as it was");
    error = explain(g, 12, 69, BERTH_REASON_COVERAGE, 8, 7);
    CHECK_EQ(error.reason, BERTH_REASON_INCOMPLETE);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 8 + 54 + 8);
    CHECK_EQ(error.actual, 69);
    CHECK_STR(error.message, "the last 1 bytes of the file are missing");
}

/* Named in place of the weights, which lie in its folder; a body under their name is damage. */
static void
test_json_that_is_named(void)
{
    static const struct {
        const char *file;
        berth_reason reason;
    } cases[] = { { "config.json", BERTH_REASON_ARGUMENT },
                  { "model.safetensors", BERTH_REASON_JSON_BODY },
                  { "a.jsonl", BERTH_REASON_JSON_BODY },
                  { ".json", BERTH_REASON_JSON_BODY } };
    static const char body[] = "{\"a\": 1}";
    berth_error error;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(&error, 0, sizeof error);
        error.status = BERTH_EFORMAT;
        error.reason = BERTH_REASON_HEADER_LENGTH;
        CHECK(berthi_sniff_explain((const uint8_t *)body, sizeof body - 1, sizeof body - 1,
                                   cases[i].file, &error)
              != BERTH_OK);
        CHECK_EQ(error.reason, cases[i].reason);
    }
}

/* ----------------------------------------------------------------------- texts */

static bool
has_refused(const char *text, size_t length, berth_error *error)
{
    memset(error, 0, sizeof *error);
    return berthi_sniff_has_refused_text(text, length, "config.json", error);
}

static void
test_texts(void)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\nsize 12\n";
    berth_error error;

    CHECK(!has_refused("{\"a\": 1}", 8, &error));
    CHECK(!has_refused("[1]", 3, &error)); /* its parser says what is wrong */
    CHECK(!has_refused("", 0, &error));
    CHECK(!has_refused("\x01", 1, &error));
    CHECK_EQ(error.status, BERTH_OK);

    CHECK(has_refused("<html>", 6, &error));
    CHECK_EQ(error.reason, BERTH_REASON_HTML);
    CHECK_EQ(error.has, BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.actual, 6);
    CHECK_STR(error.file, "config.json");
    CHECK_STR(error.message, "a web page instead of a JSON document");

    CHECK(has_refused(pointer, sizeof pointer - 1, &error));
    CHECK_EQ(error.reason, BERTH_REASON_LFS_POINTER);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 12);
    CHECK_EQ(error.actual, sizeof pointer - 1);
    CHECK(berthi_sniff_has_refused_text("<html>", 6, "config.json", NULL));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_kinds);
    T_RUN(test_pointer);
    T_RUN(test_broken_pointer);
    T_RUN(test_explained_pointer);
    T_RUN(test_explained_prefix);
    T_RUN(test_left_alone);
    T_RUN(test_json_that_is_named);
    T_RUN(test_texts);
    T_MAIN_END;
}
