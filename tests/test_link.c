/* SPDX-License-Identifier: Apache-2.0 */
/* test_link.c - rates of links: guessed, as words, and as a file. */
#include "placement/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/t.h"

#define GIGA UINT64_C(1000000000)

static const berthi_tier cpu = { BERTHI_TIER_CPU, 0 };
static const berthi_tier disk = { BERTHI_TIER_DISK, 0 };
static const berthi_links none;

static berthi_tier
gpu(uint32_t number)
{
    return (berthi_tier){ BERTHI_TIER_GPU, number };
}

static void
check_rate(const berthi_rate *rate, uint64_t bytes, berthi_rate_source source,
           const char *words)
{
    CHECK_EQ(rate->bytes, bytes);
    CHECK_EQ(rate->source, source);
    CHECK_STR(rate->words, words);
}

static void
test_guesses(void)
{
    const berthi_tier third = gpu(3);
    berthi_link link = berthi_link_guess(&third, 7);

    CHECK_EQ(berthi_tier_compare(&link.tier, &third), 0);
    check_rate(&link.feed, 25 * GIGA, BERTHI_RATE_GUESSED, "PCIe 4.0 x16");
    check_rate(&link.memory, 900 * GIGA, BERTHI_RATE_GUESSED, "");
    link = berthi_link_guess(&cpu, 6);
    check_rate(&link.feed, 48 * GIGA, BERTHI_RATE_GUESSED, "");
    check_rate(&link.memory, 20 * GIGA, BERTHI_RATE_GUESSED, "");
    link = berthi_link_guess(&cpu, 0);
    CHECK_EQ(link.feed.bytes, 8 * GIGA);
    link = berthi_link_guess(&cpu, UINT32_MAX);
    CHECK_LE(link.feed.bytes, BERTHI_RATE_LIMIT);
    CHECK_GT(link.feed.bytes, BERTHI_RATE_LIMIT - 8 * GIGA);
    link = berthi_link_guess(&disk, 6);
    check_rate(&link.feed, 3 * GIGA, BERTHI_RATE_GUESSED, "");
    check_rate(&link.memory, 3 * GIGA, BERTHI_RATE_GUESSED, "");
    CHECK_STR(berthi_rate_source_name(BERTHI_RATE_GUESSED), "guessed");
    CHECK_STR(berthi_rate_source_name(BERTHI_RATE_GIVEN), "given");
    CHECK_STR(berthi_rate_source_name(BERTHI_RATE_MEASURED), "measured");
    CHECK(berthi_rate_source_name(-1) == NULL);
    CHECK(berthi_rate_source_name(BERTHI_RATE_SOURCE_COUNT) == NULL);
}

/* ---------------------------------------------------------------------- words */

static berthi_links
parsed(const char *text)
{
    berthi_links links;
    berth_error error;

    memset(&links, 0, sizeof links);
    if (!CHECK_EQ(berthi_links_parse_words(text, &links, &error), BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return links;
}

static void
test_words(void)
{
    const berthi_links links = parsed(
        "disk = 7GB/s , 2.memory=1.5TB/s,cuda:2=gen5x8, cpu=40GiB,cpu.memory=1,"
        "cuda=0.5 GB/s");
    const berthi_tier first = gpu(0);
    const berthi_tier second = gpu(2);
    berthi_link link;

    CHECK_EQ(links.count, 4);
    for (uint32_t i = 1; i < links.count; i++)
        CHECK_LT(berthi_tier_compare(&links.items[i - 1].tier, &links.items[i].tier), 0);
    link = berthi_links_find(&links, &first, 4);
    check_rate(&link.feed, GIGA / 2, BERTHI_RATE_GIVEN, "");
    check_rate(&link.memory, 900 * GIGA, BERTHI_RATE_GUESSED, "");
    link = berthi_links_find(&links, &second, 4);
    check_rate(&link.feed, 55 * GIGA / 2, BERTHI_RATE_GIVEN, "PCIe 5.0 x8");
    check_rate(&link.memory, 1500 * GIGA, BERTHI_RATE_GIVEN, "");
    link = berthi_links_find(&links, &cpu, 4);
    check_rate(&link.feed, UINT64_C(40) << 30, BERTHI_RATE_GIVEN, "");
    check_rate(&link.memory, 1, BERTHI_RATE_GIVEN, "");
    link = berthi_links_find(&links, &disk, 4);
    check_rate(&link.feed, 7 * GIGA, BERTHI_RATE_GIVEN, "");
    check_rate(&link.memory, 7 * GIGA, BERTHI_RATE_GIVEN, "");
    link = berthi_links_find(&none, &cpu, 4);
    check_rate(&link.feed, 32 * GIGA, BERTHI_RATE_GUESSED, "");
}

/* What was there stays, rate by rate. */
static void
test_words_added(void)
{
    berthi_links links = parsed("0=gen3x16,cpu=30GB/s");
    const berthi_tier first = gpu(0);
    const berthi_tier other = gpu(1);
    const berthi_tier seventh = gpu(7);
    berthi_link link;

    strcpy(links.fingerprint, "x");
    CHECK_EQ(berthi_links_parse_words("0.memory=2TB/s,1=gen6x1", &links, NULL), BERTH_OK);
    CHECK_EQ(links.count, 3);
    CHECK_STR(links.fingerprint, "x");
    link = berthi_links_find(&links, &first, 1);
    check_rate(&link.feed, 12 * GIGA, BERTHI_RATE_GIVEN, "PCIe 3.0 x16");
    check_rate(&link.memory, 2000 * GIGA, BERTHI_RATE_GIVEN, "");
    link = berthi_links_find(&links, &other, 1);
    check_rate(&link.feed, UINT64_C(6875000000), BERTHI_RATE_GIVEN, "PCIe 6.0 x1");
    CHECK_EQ(berthi_links_parse_words("0=1GB", &links, NULL), BERTH_OK);
    CHECK_EQ(links.count, 3);
    link = berthi_links_find(&links, &first, 1);
    check_rate(&link.feed, GIGA, BERTHI_RATE_GIVEN, "");
    CHECK_EQ(link.memory.bytes, 2000 * GIGA);
    CHECK_EQ(link.operation.ns, 0); /* not guessed */
    CHECK_EQ(berthi_links_parse_words("cuda:0.operation = 4us,7.operation=1s", &links, NULL),
             BERTH_OK);
    CHECK_EQ(berthi_links_parse_words("0=2GB", &links, NULL), BERTH_OK);
    link = berthi_links_find(&links, &first, 1);
    check_rate(&link.feed, 2 * GIGA, BERTHI_RATE_GIVEN, "");
    CHECK_EQ(link.operation.ns, 4000);
    CHECK_EQ(link.operation.source, BERTHI_RATE_GIVEN);
    CHECK_EQ(berthi_links_find(&links, &seventh, 1).operation.ns, 1000000000);
    CHECK_EQ(berthi_links_find(&links, &seventh, 1).memory.bytes, 900 * GIGA);
}

static void
test_lanes(void)
{
    static const struct {
        const char *word;
        uint64_t bytes;
        const char *words;
    } rows[] = {
        { "0=gen3x1", 750000000, "PCIe 3.0 x1" },
        { "0=gen4x2", 3125000000, "PCIe 4.0 x2" },
        { "0=gen4x4", 6250000000, "PCIe 4.0 x4" },
        { "0=gen5x16", 55 * GIGA, "PCIe 5.0 x16" },
        { "0=gen6x16", 110 * GIGA, "PCIe 6.0 x16" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const berthi_links links = parsed(rows[i].word);

        check_rate(&links.items[0].feed, rows[i].bytes, BERTHI_RATE_GIVEN, rows[i].words);
        CHECK_EQ(links.items[0].memory.bytes, 0);
    }
}

static void
check_refused(const char *text, const char *why)
{
    berthi_links links;
    berthi_links before;
    berth_error error;

    memset(&links, 0, sizeof links);
    CHECK_EQ(berthi_links_parse_words("3=1GB,cpu=2GB", &links, NULL), BERTH_OK);
    before = links;
    CHECK_EQ(berthi_links_parse_words(text, &links, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.message, why);
    CHECK_MEM(&links, &before, sizeof links);
}

static void
test_words_refused(void)
{
    static const char lanes[] = "\"0=%s\" has none of gen3, gen4, gen5, gen6 with x1, x2, x4, "
                                "x8 or x16 behind it";
    static const char *const wrong[] = { "gen", "gen4", "gen2x16", "gen7x16", "gen4x3",
                                         "gen4x32", "gen44x16", "gen4/s" };
    char text[128];
    char why[256];
    berthi_links slow;
    berthi_link slowest;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "0=%s", wrong[i]);
        snprintf(why, sizeof why, lanes, wrong[i]);
        check_refused(text, why);
    }
    check_refused("", "\"\" is not written as device=rate");
    check_refused("0=1GB,", "\"\" is not written as device=rate");
    check_refused("0", "\"0\" is not written as device=rate");
    check_refused("gpu=1GB",
                  "\"gpu=1GB\" has no device before its rate: 0, cuda:0, cpu, disk");
    check_refused(".memory=1GB",
                  "\".memory=1GB\" has no device before its rate: 0, cuda:0, cpu, disk");
    check_refused("disk.memory=1GB",
                  "\"disk.memory=1GB\" is the memory of a disk: give disk=");
    check_refused("disk=gen4x4", "\"disk=gen4x4\" has a PCIe generation, which is for GPUs");
    check_refused("0.memory=gen4x4",
                  "\"0.memory=gen4x4\" has a PCIe generation, which is for GPUs");
    check_refused("0=1GB,cuda:0=2GB",
                  "\"cuda:0=2GB\" names a rate that was named before");
    check_refused("cpu.operation=4us",
                  "\"cpu.operation=4us\" has operations, which are for GPUs");
    check_refused("0.operation=4us,0.operation=5us",
                  "\"0.operation=5us\" names a time that was named before");
    check_refused("0.operation=4", "\"0.operation=4\" is not a time as 4us, up to 1s");
    check_refused("0.operation=0us", "\"0.operation=0us\" is not a time as 4us, up to 1s");
    check_refused("0.operation=1001ms",
                  "\"0.operation=1001ms\" is not a time as 4us, up to 1s");
    check_refused("0.operation=0000000000000000000000000000000000000000000000000000000000000004us",
                  "\"0.operation=000000000000000000000000000000000000000000000000000000000000000"
                  "4us\" is not a time as 4us, up to 1s");
    check_refused("0.operation.memory=4us", "\"0.operation.memory=4us\" has no device before its "
                                            "rate: 0, cuda:0, cpu, disk");
    check_refused("0=0", "\"0=0\" is not between 1 B/s and 4 EiB/s");
    check_refused("0=4611686018427387905",
                  "\"0=4611686018427387905\" is not between 1 B/s and 4 EiB/s");
    check_refused("0=", "\"0=\" \"\" is not a size");
    check_refused("0=/s", "\"0=/s\" \"\" is not a size");
    check_refused("0=s", "\"0=s\" \"s\" is not a size");
    check_refused("0=fast", "\"0=fast\" \"fast\" is not a size");
    check_refused("0=1GB/h",
                  "\"0=1GB/h\" \"1GB/h\" has none of the units B KB MB GB TB PB EB KiB "
                  "MiB GiB TiB PiB EiB");
    check_refused("0=0.0000000000000000000000000000000000000000000000000000000000001GB",
                  "\"0=0.0000000000000000000000000000000000000000000000000000000000001GB\" "
                  "has a rate of too many characters");
    check_refused("0=0.0000000000000000000000000000000000000000000000000000000001GB/s",
                  "\"0=0.0000000000000000000000000000000000000000000000000000000001GB/s\" "
                  "is not between 1 B/s and 4 EiB/s");
    CHECK_EQ(parsed("0=4611686018427387904/s").items[0].feed.bytes, BERTHI_RATE_LIMIT);
    slow = parsed("0=1,0.memory=1");
    slowest = berthi_links_find(&slow, &slow.items[0].tier, 1);
    CHECK_EQ(slowest.feed.bytes, 1);
    CHECK_EQ(slowest.memory.bytes, 1);
}

static void
test_many_gpus(void)
{
    berthi_links links = parsed("cpu=1GB,disk=1GB");
    berthi_links more;
    berth_error error;
    char text[32];
    berthi_tier tier = gpu(64);

    for (uint32_t i = 64; i > 0; i--) {
        snprintf(text, sizeof text, "%" PRIu32 "=1GB", i - 1);
        CHECK_EQ(berthi_links_parse_words(text, &links, NULL), BERTH_OK);
    }
    CHECK_EQ(links.count, BERTHI_LINK_LIMIT);
    more = links;
    CHECK_EQ(berthi_links_parse_words("63=2GB,64=1GB", &more, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "\"63=2GB,64=1GB\" has a GPU too many: there is room for 64");
    CHECK_MEM(&more, &links, sizeof more);
    CHECK(berthi_links_place(&links, &tier) == NULL);
    tier.number = 63;
    CHECK(berthi_links_place(&links, &tier) == &links.items[63]);
    memset(&links, 0, sizeof links);
    for (uint32_t i = 0; i < 64; i++) {
        tier.number = i;
        CHECK(berthi_links_place(&links, &tier) != NULL);
    }
    CHECK(berthi_links_place(&links, &disk) == &links.items[64]);
    CHECK(berthi_links_place(&links, &cpu) == &links.items[64]);
    CHECK(berthi_links_place(&links, &disk) == &links.items[65]);
}

/* ----------------------------------------------------------------------- file */

typedef struct text {
    char bytes[16384];
    uint64_t length;
} text;

static berth_status
put(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    text *const t = user;

    (void)error;
    CHECK_EQ(offset, t->length);
    memcpy(t->bytes + t->length, bytes, (size_t)size);
    t->length += size;
    return BERTH_OK;
}

static berth_status
refuse_put(void *user, const char *bytes, uint64_t size, uint64_t offset,
           berth_error *error)
{
    (void)user;
    (void)bytes;
    (void)size;
    (void)offset;
    return berthi_fail(error, BERTH_REASON_DISK_FULL, NULL, "full");
}

#define HEAD "{\n\"schema_version\": 1,\n\"writer\": \"berth 0.1.0\",\n\"fingerprint\": "

#define RATE(bytes) "{\"bytes_per_second\": " bytes ", \"source\": \"given\", \"words\": \"\"}"
#define DELAY(ns) "{\"nanoseconds\": " ns ", \"source\": \"guessed\"}"
#define LINKS(links) HEAD "\"\", \"links\": [" links "]}"

static const char example[] =
    HEAD "\"H100 gen5x16\",\n\"links\": [\n"
    "{\"tier\": \"cuda:0\", \"feed\": {\"bytes_per_second\": 53100000000, \"source\": "
    "\"measured\", \"words\": \"PCIe 5.0 x16\"}, \"memory\": {\"bytes_per_second\": "
    "4611686018427387904, \"source\": \"given\", \"words\": \"\"}, \"operation\": "
    "{\"nanoseconds\": 3600, \"source\": \"measured\"}},\n"
    "{\"tier\": \"cuda:4294967295\", \"memory\": {\"bytes_per_second\": 1, \"source\": "
    "\"guessed\", \"words\": \"1234567890123456789012345678901\"}},\n"
    "{\"tier\": \"disk\", \"feed\": {\"bytes_per_second\": 7, \"source\": \"measured\", "
    "\"words\": \"\xc3\xbc\\\"\\\\\"}}\n]\n}\n";

static berth_status
parse(const char *from, berthi_links *out, berth_error *error)
{
    char copy[4096];
    const size_t length = strlen(from);

    memcpy(copy, from, length);
    return berthi_links_parse(copy, length, "l.json", out, error);
}

static void
test_file(void)
{
    berthi_links links;
    text printed = { .length = 0 };
    berth_error error;
    char expected[sizeof example + 16];

    CHECK_EQ(parse(example, &links, &error), BERTH_OK);
    CHECK_EQ(links.count, 3);
    CHECK_STR(links.fingerprint, "H100 gen5x16");
    check_rate(&links.items[0].feed, 53100000000, BERTHI_RATE_MEASURED, "PCIe 5.0 x16");
    check_rate(&links.items[0].memory, BERTHI_RATE_LIMIT, BERTHI_RATE_GIVEN, "");
    CHECK_EQ(links.items[0].operation.ns, 3600);
    CHECK_EQ(links.items[0].operation.source, BERTHI_RATE_MEASURED);
    CHECK_EQ(links.items[1].operation.ns, 0);
    CHECK_EQ(links.items[1].tier.number, UINT32_MAX);
    CHECK_EQ(links.items[1].feed.bytes, 0);
    check_rate(&links.items[1].memory, 1, BERTHI_RATE_GUESSED,
               "1234567890123456789012345678901");
    CHECK_EQ(berthi_tier_compare(&links.items[2].tier, &disk), 0);
    check_rate(&links.items[2].feed, 7, BERTHI_RATE_MEASURED, "\xc3\xbc\"\\");
    CHECK_EQ(berthi_links_print(&links, put, &printed, NULL, &error), BERTH_OK);
    snprintf(expected, sizeof expected, "{\n\"schema_version\": 1,\n\"writer\": \"berth %s%s",
             berth_version(), strstr(example, "\",\n\"fingerprint"));
    printed.bytes[printed.length] = '\0';
    CHECK_STR(printed.bytes, expected);
    CHECK_EQ(berthi_links_print(&links, refuse_put, NULL, NULL, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(parse(LINKS("{\"tier\": \"cuda:1\", \"operation\": " DELAY("1000000000") "}"), &links,
                   &error),
             BERTH_OK);
    CHECK_EQ(links.items[0].operation.ns, 1000000000);
    CHECK_EQ(links.items[0].operation.source, BERTHI_RATE_GUESSED);
    CHECK_EQ(parse(HEAD "\"\", \"links\": []}", &links, &error), BERTH_OK);
    CHECK_EQ(links.count, 0);
    CHECK_STR(links.fingerprint, "");
    printed.length = 0;
    CHECK_EQ(berthi_links_print(&links, put, &printed, NULL, &error), BERTH_OK);
    printed.bytes[printed.length] = '\0';
    CHECK_CONTAINS(printed.bytes, "\"links\": [\n]\n}\n");
}

/* `where`: what stands at the position of the problem. */
static void
check_file_refused(const char *from, const char *why, const char *where)
{
    berthi_links links;
    berth_error error;

    memset(&links, 0xAA, sizeof links);
    CHECK_EQ(parse(from, &links, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_LINKS_JSON);
    CHECK_STR(error.message, why);
    CHECK_STR(error.file, "l.json");
    CHECK_EQ(error.has, BERTH_HAS_POSITION);
    if (CHECK_LE(error.position, strlen(from))
        && !CHECK(strncmp(from + error.position, where, strlen(where)) == 0))
        T_NOTE("%s at: %s", why, from + error.position);
    CHECK_EQ(links.count, 0);
    CHECK_STR(links.fingerprint, "");
}

static void
test_file_refused(void)
{
    check_file_refused("", "not an object", "");
    check_file_refused("\xff", "not UTF-8", "\xff");
    check_file_refused(HEAD "\"\xff", "not UTF-8", "\xff");
    check_file_refused("{\"schema_version\": \"1\"}", "not an unsigned integer", "\"1\"");
    check_file_refused("{\"schema_version\": 1, \"writer\": 5}", "not a string", "5}");
    check_file_refused(HEAD "\"\", \"links\": {}}", "not an array", "{}}");
    check_file_refused(LINKS("5"), "not an object", "5]");
    check_file_refused(LINKS("{\"tier\": 0}"), "not a string", "0}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": 5}"), "not an object", "5}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": -1"),
                       "not an unsigned integer", "-1");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": 1"),
                       "not a string", "1]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": \"given\", \"words\": 1"),
                       "not a string", "1]}");
    check_file_refused("{}", "the next member should be \"schema_version\"", "");
    check_file_refused("{\"writer\": \"\"}", "the next member should be \"schema_version\"",
                       "\"writer\"");
    check_file_refused("{\"schema_version\": 0}", "there is no schema version 0", "}");
    check_file_refused("{\"schema_version\": 1}", "the next member should be \"writer\"", "");
    check_file_refused(LINKS("") " 1", "something stands behind the end", "1");
    check_file_refused("{\"schema_version\": 1, \"writer\": \"\\n\"",
                       "a control character in a string", "");
    check_file_refused("{\"schema_version\": 1, \"writer\": \"\\n\"",
                       "a control character in a string", "");
    check_file_refused(HEAD "\"a\\u0000\"", "a control character in a string", "");
    check_file_refused(HEAD "\"a\\u001f\"", "a control character in a string", "");
    check_file_refused(HEAD "\"\\u007f\"", "a control character in a string", "");
    check_file_refused(HEAD "\"1234567890123456789012345678901234567890123456789012345678901"
                            "234\"",
                       "a string with too many bytes", "");
    check_file_refused(HEAD "\"\", \"links\": [], \"more\": 1}",
                       "the next member has no meaning", ", \"more\"");
    check_file_refused(LINKS("{\"tier\": \"gpu\", \"feed\": " RATE("1") "}"),
                       "a tier that is none of cuda:0 and so on, cpu, disk", ", \"feed");
    check_file_refused(LINKS("{\"tier\": \"cpu\"}"), "a tier without rates", "]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"memory\": " RATE(
                           "1") ", \"feed\": " RATE("1") "}"),
                       "the next member has no meaning", ", \"feed\"");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE("1") ", \"feed\": " RATE(
                           "1") "}"),
                       "the next member has no meaning", ", \"feed\": {\"bytes_per_second\": 1, "
                       "\"source\": \"given\", \"words\": \"\"}}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"memory\": " RATE(
                           "1") ", \"memory\": " RATE("1") "}"),
                       "the next member has no meaning", ", \"memory\": {\"bytes_per_second\": "
                       "1, \"source\": \"given\", \"words\": \"\"}}]}");
    check_file_refused(LINKS("{\"tier\": \"disk\", \"memory\": " RATE("1") "}"),
                       "the next member has no meaning", ", \"memory\"");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"other\": " RATE("1") "}"),
                       "the next member has no meaning", ", \"other\"");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE("0") "}"),
                       "a rate that is not 1 to 2^62", ", \"source");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE("4611686018427387905") "}"),
                       "a rate that is not 1 to 2^62", ", \"source");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": " DELAY("0") "}"),
                       "a time that is not 1 to 1000000000", ", \"source");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": " DELAY("1000000001") "}"),
                       "a time that is not 1 to 1000000000", ", \"source");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": 5}"), "not an object", "5}");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": {\"nanoseconds\": 1, "
                             "\"source\": \"known\"}}"),
                       "a source that is none of guessed, given, measured", "}}");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": {\"nanoseconds\": 1.5"),
                       "not an unsigned integer", "1.5");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": {\"nanoseconds\": 1, "
                             "\"source\": \"given\", \"words\": \"\"}}"),
                       "the next member has no meaning", ", \"words\"");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE(
                           "1") ", \"operation\": " DELAY("1") "}"),
                       "the next member has no meaning", ", \"operation\"");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\"}"), "a tier without rates", "]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": \"known\"}}"),
                       "a source that is none of guessed, given, measured", "}}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": \"given\", \"words\": "
                             "\"12345678901234567890123456789012\"}}"),
                       "a string with too many bytes", "}}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": \"given\", \"words\": \"\", \"x\": 1}}"),
                       "the next member has no meaning", ", \"x\"");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE(
                           "1") "}, {\"tier\": \"cuda:0\", \"feed\": " RATE("1") "}"),
                       "a tier twice, or not in the order of tiers", ", \"feed\": "
                       "{\"bytes_per_second\": 1, \"source\": \"given\", \"words\": \"\"}}]}");
    check_file_refused(LINKS("{\"tier\": \"0\", \"feed\": " RATE(
                           "1") "}, {\"tier\": \"cuda:0\", \"feed\": " RATE("1") "}"),
                       "a tier twice, or not in the order of tiers", ", \"feed\": "
                       "{\"bytes_per_second\": 1, \"source\": \"given\", \"words\": \"\"}}]}");
}

/* Each of the members is missed where it should be, and the reading ends there. */
static void
test_file_missing(void)
{
    check_file_refused("{\"schema_version\": 1, \"writer\": \"\"}",
                       "the next member should be \"fingerprint\"", "");
    check_file_refused(HEAD "\"\"}", "the next member should be \"links\"", "");
    check_file_refused(LINKS("{}"), "the next member should be \"tier\"", "}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", 5}"), "a key is missing", "5}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": " RATE("1") ", 5}"),
                       "a key is missing", "5}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"memory\": 5}"), "not an object", "5}]}");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": {}}"),
                       "the next member should be \"nanoseconds\"", "}}]}");
    check_file_refused(LINKS("{\"tier\": \"cuda:0\", \"operation\": {\"nanoseconds\": 1}}"),
                       "the next member should be \"source\"", "}}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {}}"),
                       "the next member should be \"bytes_per_second\"", "}}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1}}"),
                       "the next member should be \"source\"", "}}]}");
    check_file_refused(LINKS("{\"tier\": \"cpu\", \"feed\": {\"bytes_per_second\": 1, "
                             "\"source\": \"given\"}}"),
                       "the next member should be \"words\"", "}}]}");
}

static void
test_file_versions(void)
{
    berthi_links links;
    berth_error error;

    CHECK_EQ(parse("{\"schema_version\": 2, \"x\": [", &links, &error),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_STR(error.message, "schema_version 2 needs a newer berth");
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.expected, 1);
    CHECK_EQ(error.actual, 2);
    CHECK_STR(error.file, "l.json");
    CHECK_EQ(links.count, 0);
}

static void
test_file_many(void)
{
    static char from[16384];
    berthi_links links;
    berth_error error;

    for (uint32_t count = 64; count <= 65; count++) {
        size_t length = (size_t)snprintf(from, sizeof from, "%s\"\", \"links\": [", HEAD);

        for (uint32_t i = 0; i < count; i++)
            length += (size_t)snprintf(from + length, sizeof from - length,
                                       "%s{\"tier\": \"%" PRIu32 "\", \"feed\": %s}",
                                       i == 0 ? "" : ", ", i, RATE("5"));
        length += (size_t)snprintf(from + length, sizeof from - length, "]}");
        CHECK_EQ(berthi_links_parse(from, length, "f", &links, &error),
                 count == 64 ? BERTH_OK : BERTH_EFORMAT);
        CHECK_EQ(links.count, count == 64 ? 64 : 0);
    }
    CHECK_STR(error.message, "more than 64 GPUs");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_guesses);
    T_RUN(test_words);
    T_RUN(test_words_added);
    T_RUN(test_lanes);
    T_RUN(test_words_refused);
    T_RUN(test_many_gpus);
    T_RUN(test_file);
    T_RUN(test_file_refused);
    T_RUN(test_file_missing);
    T_RUN(test_file_versions);
    T_RUN(test_file_many);
    T_MAIN_END;
}
