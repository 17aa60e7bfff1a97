/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_text.c - both styles of escaping, pieces, and what `put` is told. */
#include "quant/json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "quant/scan.h"
#include "tests/t.h"

/* What was handed on. */
typedef struct sink {
    char bytes[65536];
    uint64_t length;
    uint64_t calls;
    uint64_t fails_at; /* the call that fails; 0: none */
} sink;

static berth_status
put_bytes(void *user, const char *bytes, uint64_t size, uint64_t offset,
          berth_error *error)
{
    sink *const s = user;

    if (++s->calls == s->fails_at)
        return berthi_fail(error, BERTH_REASON_DISK_FULL, NULL, "full");
    CHECK_EQ(offset, s->length);
    CHECK_GT(size, 0);
    CHECK_LE(size, BERTHI_JSON_TEXT_BUFFER);
    if (!CHECK_LE(s->length + size, sizeof s->bytes - 1))
        return BERTH_EINTERNAL;
    memcpy(s->bytes + s->length, bytes, (size_t)size);
    s->length += size;
    s->bytes[s->length] = '\0';
    return BERTH_OK;
}

static const char *
escaped(const char *bytes, uint64_t length, berthi_json_style style)
{
    static sink s;
    berthi_json_text text;
    uint64_t size;

    s.length = 0;
    s.bytes[0] = '\0';
    s.calls = 0;
    berthi_json_text_begin(&text, put_bytes, &s, NULL);
    berthi_json_text_add_string(&text, bytes, length, style);
    CHECK_EQ(berthi_json_text_end(&text, &size), BERTH_OK);
    CHECK_EQ(size, s.length);
    return s.bytes;
}

#define RAW(text) escaped(text, sizeof text - 1, BERTHI_JSON_RAW)
#define ASCII(text) escaped(text, sizeof text - 1, BERTHI_JSON_ASCII)

static void
test_raw(void)
{
    CHECK_STR(RAW(""), "\"\"");
    CHECK_STR(RAW("a.b/c ~"), "\"a.b/c ~\"");
    /* As safetensors writes it: \u00XX only for control characters without a letter. */
    CHECK_STR(RAW("q\"\\/\b\f\n\r\t\001\177\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8"),
              "\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\177"
              "\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8\"");
    CHECK_STR(RAW("\0\037\v"), "\"\\u0000\\u001f\\u000b\"");
    CHECK_STR(RAW("\377"), "\"\377\"");
}

/* json.dumps of Python 3.11 */
static void
test_ascii(void)
{
    CHECK_STR(ASCII(""), "\"\"");
    CHECK_STR(ASCII("a.b/c ~"), "\"a.b/c ~\"");
    CHECK_STR(ASCII("q\"\\/\b\f\n\r\t\001\177\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8"),
              "\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\\u00e9\\ud83d\\ude00\\u2028\"");
    CHECK_STR(ASCII("\0\037\v"), "\"\\u0000\\u001f\\u000b\"");
    CHECK_STR(ASCII("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xef\xbf\xbf"),
              "\"\\u0080 \\u07ff \\u0800 \\uffff\"");
    CHECK_STR(ASCII("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"),
              "\"\\ud800\\udc00 \\udbff\\udfff\"");
    CHECK_STR(ASCII("\xf0\x90\x8f\xbf\xf0\x90\x90\x80"),
              "\"\\ud800\\udfff\\ud801\\udc00\"");
    /* what is no UTF-8 */
    CHECK_STR(ASCII("a\377b\xe2\x82"), "\"a\\ufffdb\\ufffd\\ufffd\"");
}

/* Every character comes back from berth's own scanner, in both styles. */
static void
test_round_trip(void)
{
    for (uint32_t point = 0; point <= 0x10FFFF; point += point < 0x3000 ? 1 : 37) {
        unsigned char bytes[8];
        char copy[64];
        size_t length;

        if (point >= 0xD800 && point <= 0xDFFF)
            continue;
        length = berthi_utf8_encode(point, bytes);
        for (int style = BERTHI_JSON_RAW; style <= BERTHI_JSON_ASCII; style++) {
            const char *text =
                escaped((const char *)bytes, length, (berthi_json_style)style);
            berthi_scan_text read;
            berthi_scan scan;

            if (style == BERTHI_JSON_ASCII)
                for (const char *at = text; *at != '\0'; at++)
                    CHECK(*at >= 0x20 && *at < 0x7F);
            snprintf(copy, sizeof copy, "%s", text);
            berthi_scan_init(&scan, copy, strlen(copy), 0);
            if (!CHECK(berthi_scan_can_read_string(&scan, &read))
                || !CHECK_EQ(read.length, length)
                || !CHECK_MEM(read.bytes, bytes, length)) {
                T_NOTE("U+%04" PRIX32, point);
                return;
            }
        }
    }
}

static void
test_numbers(void)
{
    static const struct {
        uint64_t number;
        const char *text;
    } cases[] = {
        { 0, "0" }, { 9, "9" }, { 10, "10" }, { 99, "99" }, { 100, "100" },
        { UINT64_C(9999999999), "9999999999" }, { UINT64_MAX, "18446744073709551615" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sink s = { .length = 0 };
        berthi_json_text text;

        berthi_json_text_begin(&text, put_bytes, &s, NULL);
        berthi_json_text_add_number(&text, cases[i].number);
        CHECK_EQ(berthi_json_text_end(&text, NULL), BERTH_OK);
        CHECK_STR(s.bytes, cases[i].text);
        CHECK_EQ(berthi_json_text_digits(cases[i].number), strlen(cases[i].text));
    }
}

/* Around every power of ten and of two. */
static void
test_digits(void)
{
    char text[24];

    for (uint64_t ten = 1; ten <= UINT64_MAX / 10; ten *= 10)
        for (uint64_t number = ten * 10 - 2; number < ten * 10 + 2; number++)
            CHECK_EQ(berthi_json_text_digits(number),
                     sprintf(text, "%" PRIu64, number));
    for (unsigned i = 0; i < 64; i++)
        for (uint64_t less = 0; less < 2; less++)
            CHECK_EQ(berthi_json_text_digits((UINT64_C(1) << i) - less),
                     sprintf(text, "%" PRIu64, (UINT64_C(1) << i) - less));
}

/* Pieces of every size around the buffer's: all arrives, in full buffers. */
static void
test_pieces(void)
{
    static sink s;
    static char source[3 * BERTHI_JSON_TEXT_BUFFER];
    static const uint64_t sizes[] = { 1, 2, 3, 100, BERTHI_JSON_TEXT_BUFFER - 1,
                                      BERTHI_JSON_TEXT_BUFFER,
                                      BERTHI_JSON_TEXT_BUFFER + 1, sizeof source };

    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (char)('a' + i % 23);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        berthi_json_text text;
        uint64_t size;

        s.length = 0;
        s.calls = 0;
        berthi_json_text_begin(&text, put_bytes, &s, NULL);
        for (uint64_t at = 0; at < sizeof source; at += sizes[i])
            berthi_json_text_add(&text, source + at,
                                 berthi_min_u64(sizes[i], sizeof source - at));
        CHECK_EQ(s.calls, 3); /* full ones go at once */
        CHECK_EQ(berthi_json_text_end(&text, &size), BERTH_OK);
        CHECK_EQ(s.calls, 3);
        CHECK_EQ(size, sizeof source);
        CHECK_EQ(s.length, sizeof source);
        CHECK_MEM(s.bytes, source, sizeof source);
    }
}

static void
test_count_only(void)
{
    berthi_json_text text;
    uint64_t size = 0;

    berthi_json_text_begin(&text, NULL, NULL, NULL);
    for (int i = 0; i < 10000; i++)
        berthi_json_text_add_words(&text, "ten bytes.");
    CHECK_EQ(berthi_json_text_end(&text, &size), BERTH_OK);
    CHECK_EQ(size, 100000);
}

/* The first failure ends it: nothing more is handed on, and it is reported. */
static void
test_failure(void)
{
    static sink s;
    static char source[3 * BERTHI_JSON_TEXT_BUFFER + 5];

    memset(source, 'x', sizeof source);
    for (uint64_t fails_at = 1; fails_at <= 4; fails_at++) {
        berthi_json_text text;
        berth_error error;

        s.length = 0;
        s.calls = 0;
        s.fails_at = fails_at;
        berthi_json_text_begin(&text, put_bytes, &s, &error);
        berthi_json_text_add(&text, source, sizeof source);
        CHECK_EQ(berthi_json_text_end(&text, NULL), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
        CHECK_EQ(s.calls, fails_at);
        CHECK_EQ(s.length, (fails_at - 1) * BERTHI_JSON_TEXT_BUFFER);
    }
    s.fails_at = 0;
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_raw);
    T_RUN(test_ascii);
    T_RUN(test_round_trip);
    T_RUN(test_numbers);
    T_RUN(test_digits);
    T_RUN(test_pieces);
    T_RUN(test_count_only);
    T_RUN(test_failure);
    T_MAIN_END;
}
