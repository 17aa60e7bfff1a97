/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_json.c - a plan as text: what is read, what is refused, and where. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/link.h"
#include "placement/plan_json.h"
#include "placement/plan_words.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define TIER(name, budget)                                                                \
    "{\"name\": \"" name "\", \"budget\": " budget ", \"reserve\": 256, "                   \
    "\"reserve_needed\": 1, \"weights\": 9, \"cache\": 9, \"activations\": 512, "            \
    "\"slot_count\": 2, \"slot_bytes\": 1024, \"expert_slots\": 768, \"scratch\": 256, "     \
    "\"staging\": 0, \"free\": 9, \"link_bytes\": 5, \"link_rate\": 25, "                   \
    "\"link_source\": \"given\", \"memory_rate\": 7, \"memory_source\": \"measured\"}"
#define EXPERT_SLOTS(slots, away, hits, routing)                                           \
    "\"expert_slots\": 768, \"expert_slot_count\": " slots ", \"experts_away\": " away      \
    ", \"expert_hits\": " hits ", \"routing\": \"" routing "\""
#define TURNED(bytes) "\"scratch\": 256, \"turned\": " bytes
#define MEASURED "\"memory_source\": \"measured\""
#define OPERATION(ns) MEASURED ", \"operation_ns\": " ns
#define PROVED "\"proved\": false}"
#define PARALLEL(rank, ranks)                                                              \
    ", \"parallel\": {\"rank\": " rank ", \"ranks\": " ranks "}"
#define BERTH(name, tier, offset, bytes)                                                   \
    "{\"tensor\": \"" name "\", \"tier\": \"" tier "\", " offset "\"bytes\": " bytes       \
    ", \"encoding\": \"nf4\", \"dtype\": \"BF16\", \"number\": 3"
#define LAYER(name, home, cause)                                                           \
    "{\"name\": \"" name "\", \"prefix\": \"" name ".\", \"home\": \"" home                \
    "\", \"cause\": \"" cause "\", \"cache\": 256, \"link_bytes\": 6, \"missing\": 4, "     \
    "\"reason\": \"x\", \"berths\": ["

static const char good[] =
    "{\"schema_version\": 1, \"writer\": \"w\", \"checkpoint\": {\"digest\": 77, "
    "\"tensors\": 4}, \"weights\": {\"type\": \"nf4\", \"dtype\": \"F16\", "
    "\"double_quant\": true, \"block_size\": 128}, \"use\": {\"context\": 10, \"batch\": "
    "3, \"cache_dtype\": \"F32\"}, \"planner\": {\"imitated\": true, \"proved\": false}, "
    "\"tiers\": [" TIER("cuda:1", "65536") ", " TIER("cpu", "4096") ", " TIER(
        "disk", "null") "], "
    "\"layers\": [" LAYER("a", "cuda:1", "short") BERTH("p.weight", "cuda:1",
                                                        "\"offset\": 512, ", "256")
    "}, " BERTH("q.weight", "cpu", "", "1024") ", \"expert\": true}]}, " LAYER(
        "b", "cpu", "tied") BERTH("p.weight", "cpu", "\"offset\": 256, ", "512") "}, "
    BERTH("r", "cpu", "\"offset\": 256, ", "512") ", \"tied\": true}]}], "
    "\"map\": [{\"path\": \"a\", \"tier\": \"cuda:1\"}, {\"path\": \"b\", \"tier\": "
    "\"cpu\"}], \"predicted\": {\"nanoseconds\": 1000000000, \"first\": 2000000000, "
    "\"compute\": 3, \"link\": 4, \"disk\": 5, \"load\": 6, \"host\": 7, \"bound\": "
    "\"disk\", \"bound_tier\": \"cuda:1\", \"link_bytes\": 8, \"disk_bytes\": 9, "
    "\"advice\": \"more\"}}";

static berth_status
parse(berth_context *context, const char *text, berth_plan **out, berth_error *error)
{
    const size_t length = strlen(text);
    char *const copy = malloc(length + 1);
    berth_status status;

    if (copy == NULL)
        abort();
    memcpy(copy, text, length + 1);
    status = berthi_plan_parse(context, copy, length, "plan.json", out, error);
    free(copy);
    return status;
}

/* ------------------------------------------------------------------------- read */

static void
check_summary(const berth_plan_summary *s)
{
    CHECK_EQ(s->digest, 77);
    CHECK_EQ(s->berth_count, 4);
    CHECK_EQ(s->layer_count, 2);
    CHECK_EQ(s->tier_count, 3);
    CHECK_EQ(s->map_count, 2);
    CHECK_EQ(s->type, BERTH_ENCODING_NF4);
    CHECK_EQ(s->dtype, BERTH_F16);
    CHECK_EQ(s->cache_dtype, BERTH_F32);
    CHECK_EQ(s->double_quant, 1);
    CHECK_EQ(s->block_size, 128);
    CHECK_EQ(s->context, 10);
    CHECK_EQ(s->batch, 3);
    CHECK_EQ(s->is_imitated, 1);
    CHECK_EQ(s->is_proved, 0);
    CHECK_EQ(s->cuts, 1);
    CHECK_EQ(s->bytes, 256 + 1024 + 512);
    CHECK_EQ(s->resident_bytes, 256 + 512);
    CHECK_EQ(s->streamed_bytes, 1024);
    CHECK(s->seconds == 1.0);
    CHECK(s->first_seconds == 2.0);
    CHECK(s->compute_seconds == 3e-9);
    CHECK(s->link_seconds == 4e-9);
    CHECK(s->disk_seconds == 5e-9);
    CHECK(s->load_seconds == 6e-9);
    CHECK(s->host_seconds == 7e-9);
    CHECK(s->tokens_per_second == 3.0);
    CHECK_EQ(s->bound, 2);
    CHECK_EQ(s->bound_tier, 0);
    CHECK_EQ(s->link_bytes, 8);
    CHECK_EQ(s->disk_bytes, 9);
    CHECK_STR(s->advice, "more");
}

static void
check_tiers(const berth_plan *plan)
{
    const berth_plan_tier *const gpu = &plan->tiers[0];
    const berth_plan_tier *const cpu = &plan->tiers[1];

    CHECK_STR(gpu->name, "cuda:1");
    CHECK_EQ(gpu->kind, BERTH_TIER_GPU);
    CHECK_EQ(gpu->budget, 65536);
    CHECK_EQ(gpu->reserve, 256);
    CHECK_EQ(gpu->reserve_needed, 1);
    CHECK_EQ(gpu->weights, 768); /* to the end of what lies there */
    CHECK_EQ(gpu->cache, 256);   /* its layer's, not what the text says */
    CHECK_EQ(gpu->activations, 512);
    CHECK_EQ(gpu->slots, 2048);
    CHECK_EQ(gpu->expert_slots, 768);
    CHECK_EQ(gpu->scratch, 256);
    CHECK_EQ(gpu->layers, 1);
    CHECK_EQ(gpu->berths, 1);
    CHECK_EQ(gpu->free, 65536 - 256 - 768 - 256 - 512 - 2048 - 768 - 256);
    CHECK_EQ(gpu->link_bytes, 5);
    CHECK_EQ(gpu->link_rate, 25);
    CHECK_EQ(gpu->link_source, BERTH_RATE_GIVEN);
    CHECK_EQ(gpu->memory_rate, 7);
    CHECK_EQ(gpu->memory_source, BERTH_RATE_MEASURED);
    CHECK_EQ(gpu->operation_ns, 0);
    CHECK_EQ(cpu->weights, 768 + 1024);
    CHECK_EQ(cpu->berths, 2);
    CHECK_EQ(cpu->free, 0);
    CHECK_EQ(plan->tiers[2].budget, UINT64_MAX);
    CHECK_EQ(plan->tiers[2].free, UINT64_MAX);
}

/* What later versions may use is zero, whatever lay in the memory before. */
static void
check_reserved(const berth_plan *plan)
{
    static const uint64_t zeros[6] = { 0 };

    for (uint32_t i = 0; i < plan->summary.tier_count; i++)
        CHECK_MEM(plan->tiers[i].reserved, zeros, sizeof plan->tiers[i].reserved);
    for (uint32_t i = 0; i < plan->summary.layer_count; i++)
        CHECK_MEM(plan->layers[i].out.reserved, zeros,
                  sizeof plan->layers[i].out.reserved);
    for (uint32_t i = 0; i < plan->summary.map_count; i++)
        CHECK_EQ(plan->map[i].reserved32, 0);
}

/* Memory that the next allocations of these sizes are likely to get. */
static void
dirty_memory(void)
{
    for (size_t bytes = 256; bytes <= 65536; bytes *= 2) {
        unsigned char *const dirt = malloc(bytes);

        if (dirt == NULL)
            abort();
        for (size_t i = 0; i < bytes; i++)
            ((volatile unsigned char *)dirt)[i] = 0xa5;
        free(dirt);
    }
}

static void
test_read(void)
{
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;
    char name[32];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    dirty_memory();
    T_REQUIRE(CHECK_EQ(parse(context, good, &plan, &error), BERTH_OK));
    check_reserved(plan);
    check_summary(&plan->summary);
    check_tiers(plan);
    /* Without an offset: behind the others of its tier. */
    CHECK_EQ(plan->berths[1].offset, 768);
    CHECK_EQ(plan->berths[1].is_expert, true);
    CHECK_EQ(plan->berths[1].is_resident, false);
    CHECK_EQ(plan->berths[0].offset, 512);
    CHECK_EQ(plan->berths[0].number, 3);
    CHECK_EQ(plan->berths[0].is_resident, true);
    CHECK_EQ(plan->berths[3].is_tied, true);
    CHECK_EQ(plan->berths[0].name, plan->berths[2].name); /* kept once */
    memset(name, 'x', sizeof name);
    CHECK_EQ(berthi_plan_name(plan, 1, name, sizeof name), 10);
    CHECK_STR(name, "a.q.weight");
    CHECK_EQ(name[11], 'x');
    CHECK_EQ(berthi_plan_name(plan, 2, name, 4), 10);
    CHECK_STR(name, "b.p");
    CHECK_EQ(berthi_plan_name(plan, 2, name, 0), 10);
    CHECK_STR(plan->map[1].path, "b");
    CHECK_EQ(plan->map[1].tier, 1);
    CHECK_EQ(plan->layers[1].out.cause, BERTH_PLAN_TIED);
    CHECK_EQ(plan->layers[0].out.missing, 4);
    CHECK_EQ(plan->layers[0].out.link_bytes, 6);
    CHECK_EQ(plan->layers[1].out.first_berth, 2);
    berthi_plan_free(plan);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------ printed */

typedef struct printed {
    char bytes[8192];
    size_t length;
} printed;

static berth_status
put(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    printed *const out = user;

    (void)error;
    CHECK_EQ(offset, out->length);
    if (CHECK_LT(out->length + size, sizeof out->bytes)) {
        memcpy(out->bytes + out->length, bytes, (size_t)size);
        out->length += (size_t)size;
        out->bytes[out->length] = '\0';
    }
    return BERTH_OK;
}

/* Parses and prints. */
static void
print_again(const char *text, printed *out)
{
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;

    out->length = 0;
    out->bytes[0] = '\0';
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    if (CHECK_EQ(parse(context, text, &plan, &error), BERTH_OK))
        CHECK_EQ(berthi_plan_print(plan, put, out, &error), BERTH_OK);
    else
        T_NOTE("%s", error.message);
    berthi_plan_free(plan);
    berth_context_destroy(context);
}

/* With sums made anew and the words of this version: tests/data/plan_printed.json. */
static void
test_print(void)
{
    static printed first;
    static printed second;
    char *const text = fixture_read("tests/data/plan_printed.json", NULL);
    char *const expected = malloc(strlen(text) + 32);
    const char *const writer = strstr(text, "VERSION");

    T_REQUIRE(CHECK(expected != NULL && writer != NULL));
    (void)sprintf(expected, "%.*s%s%s", (int)(writer - text), text, berth_version(),
                  writer + strlen("VERSION"));
    print_again(good, &first);
    CHECK_STR(first.bytes, expected);
    print_again(first.bytes, &second);
    CHECK_STR(second.bytes, expected);
    free(text);
    free(expected);
}

/* ----------------------------------------------------------------------- refused */

/* The good text with `find` (the n-th of them) replaced. */
static char *
changed(const char *find, unsigned nth, const char *with)
{
    const char *at = strstr(good, find);
    char *text = malloc(sizeof good + strlen(with) + 1);

    for (; at != NULL && nth > 0; nth--)
        at = strstr(at + 1, find);
    if (text == NULL || at == NULL) {
        CHECK_STR(find, "a part of the text");
        abort();
    }
    memcpy(text, good, (size_t)(at - good));
    (void)sprintf(text + (at - good), "%s%s", with, at + strlen(find));
    return text;
}

static const struct refusal {
    const char *find;
    unsigned nth;
    const char *with;
    const char *message;
} refusals[] = {
    { "\"schema_version\": 1", 0, "\"schema_version\": 0", "no schema version 0" },
    { "\"writer\"", 0, "\"author\"", "should be \"writer\"" },
    { "\"digest\": 77", 0, "\"digest\": 4294967296", "too large" },
    { "\"digest\": 77", 0, "\"digest\": -1", "" },
    { "\"tensors\": 4", 0, "\"tensors\": 5", "fewer berths than tensors" },
    { "\"tensors\": 4", 0, "\"tensors\": 3", "more berths than tensors" },
    { "\"tensors\": 4", 0, "\"tensors\": 4000", "more tensors than there is text for" },
    { "\"tensors\": 4}", 0, "\"tensors\": 4, \"x\": 1}", "has no meaning" },
    { "\"type\": \"nf4\"", 0, "\"type\": \"nf5\"", "unknown encoding" },
    { "\"type\": \"nf4\"", 0, "\"type\": \"statistics\"", "unknown encoding" },
    { "\"dtype\": \"F16\"", 0, "\"dtype\": \"f16\"", "unknown dtype" },
    { "cuda:1\", \"budget\"", 0, "1\", \"budget\"", "tiers are called" },
    { "cuda:1\", \"budget\"", 0, "gpu\", \"budget\"", "not the name of a tier" },
    { "cpu\", \"budget\"", 0, "cuda:1\", \"budget\"", "out of order" },
    { "\"slot_count\": 2", 0, "\"slot_count\": 9", "too large" },
    { "\"reserve\": 256", 0, "\"reserve\": 18446744073709551616", "beyond 64 bits" },
    { "\"activations\": 512", 0, "\"activations\": 72057594037927936", "too large" },
    { "\"expert_slots\": 768", 0, EXPERT_SLOTS("4", "3", "5", "uniform"),
      "more slots than experts" },
    { "\"expert_slots\": 768", 0, EXPERT_SLOTS("-1", "3", "5", "uniform"), "" },
    { "\"expert_slots\": 768", 0, EXPERT_SLOTS("2", "4294967296", "5", "uniform"),
      "too large" },
    { "\"expert_slots\": 768", 0, EXPERT_SLOTS("2", "3", "1000000001", "uniform"),
      "too large" },
    { "\"expert_slots\": 768", 0, EXPERT_SLOTS("2", "3", "5", "zipf"), "unknown word" },
    { "\"expert_slots\": 768", 0, "\"expert_slots\": 768, \"expert_slot_count\": 1",
      "experts_away" },
    { "\"expert_slots\": 768", 0,
      "\"expert_slots\": 768, \"expert_slot_count\": 1, \"experts_away\": 2, "
      "\"expert_hits\": 3",
      "routing" },
    { "\"scratch\": 256", 0, TURNED("256"), "staging" },
    { "\"scratch\": 256", 2, TURNED("256"), "staging" },
    { "\"scratch\": 256", 1, TURNED("72057594037927936"), "too large" },
    { "\"scratch\": 256", 1, TURNED("-1"), "" },
    { MEASURED, 0, OPERATION("1000000001"), "too large" },
    { MEASURED, 0, OPERATION("-1"), "" },
    { MEASURED, 0, OPERATION("1, \"x\": 1"), "has no meaning" },
    { PROVED, 0, PROVED PARALLEL("0", "1"), "2 to 1024 ranks" },
    { PROVED, 0, PROVED PARALLEL("0", "1025"), "2 to 1024 ranks" },
    { PROVED, 0, PROVED PARALLEL("2", "2"), "2 to 1024 ranks" },
    { PROVED, 0, PROVED ", \"parallel\": {\"rank\": 1}", "ranks" },
    { "\"number\": 3", 0, "\"number\": 3, \"slice\": {}", "a slice without ranks" },
    { "\"link_source\": \"given\"", 0, "\"link_source\": \"taken\"", "unknown word" },
    { "\"home\": \"cuda:1\"", 0, "\"home\": \"cuda:0\"", "not in the list of tiers" },
    { "\"home\": \"cuda:1\"", 0, "\"home\": \"\"", "not in the list of tiers" },
    { "\"home\": \"cuda:1\"", 0, "\"home\": \"disk\"", "a disk computes no layer" },
    { "{\"name\": \"a\"", 0, "{\"name\": \"\\u001b[31m\"", "not escaped" },
    { "{\"name\": \"a\"", 0, "{\"name\": \"\\u202ea\\\\\"", "not escaped" },
    { "\"cause\": \"short\"", 0, "\"cause\": \"shirt\"", "unknown word" },
    { "\"offset\": 512", 0, "\"offset\": 513", "multiple of 256" },
    { "\"offset\": 512", 0, "\"offset\": 72057594037927936", "multiple of 256" },
    { "\"offset\": 256", 0, "\"offset\": 18446744073709551615", "multiple of 256" },
    { "\"bytes\": 256", 0, "\"bytes\": 255", "multiple of 256" },
    { "\"bytes\": 256", 0, "\"bytes\": 72057594037927936", "the number is too large" },
    { "\"tier\": \"cpu\", \"bytes\": 1024", 0,
      "\"tier\": \"cpu\", \"bytes\": 72057594037927680", "the sum is too large" },
    { "\"cache\": 256, \"link_bytes\"", 1, "\"cache\": 72057594037927680, \"link_bytes\"",
      "the sum is too large" },
    { "\"tier\": \"cpu\", \"bytes\": 1024", 0,
      "\"tier\": \"cpu\", \"offset\": 512, \"bytes\": 1024", "two berths overlap" },
    { "\"number\": 3", 0, "\"number\": 4294967296", "too large" },
    { "\"expert\": true", 0, "\"expert\": 1", "" },
    { "\"tied\": true", 0, "\"tied\": true, \"expert\": true", "has no meaning" },
    { "p.weight", 0, "p\\u0000weight", "U+0000" },
    { "\"bound\": \"disk\"", 0, "\"bound\": \"tape\"", "unknown word" },
    { "\"nanoseconds\": 1000000000", 0, "\"nanoseconds\": 9007199254740992", "too large" },
    { "\"more\"}", 0, "\"more\", \"y\": 0}", "has no meaning" },
    { "\"more\"}}", 0, "\"more\"}, \"y\": 0}", "has no meaning" },
    { "\"more\"}}", 0, "\"more\"}} x", "" },
    { "\"map\": [", 0, "\"map\": [1, ", "" },
    { "\"w\"", 0, "\"\xff\"", "not UTF-8" },
};

static void
test_refused(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *const r = &refusals[i];
        char *const text = changed(r->find, r->nth, r->with);
        berth_error error = { .status = BERTH_OK };
        berth_plan *plan = NULL;

        if (!CHECK_EQ(parse(context, text, &plan, &error), BERTH_EFORMAT)) {
            T_NOTE("%s -> %s", r->find, r->with);
            berthi_plan_free(plan);
        }
        CHECK_EQ(error.reason, BERTH_REASON_PLAN_JSON);
        CHECK(plan == NULL);
        CHECK_STR(error.file, "plan.json");
        CHECK_CONTAINS(error.message, r->message);
        CHECK(error.message[0] != '\0');
        CHECK_LE(error.position, strlen(text));
        CHECK_EQ(error.has, BERTH_HAS_POSITION);
        free(text);
    }
    berth_context_destroy(context);
}

static void
test_later_version(void)
{
    char *const text = changed("\"schema_version\": 1", 0, "\"schema_version\": 2");
    berth_context *context = NULL;
    berth_plan *plan;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(parse(context, text, &plan, &error), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "needs a newer berth");
    free(text);
    berth_context_destroy(context);
}

/* Both ways to know how often slots of experts are hit, read and printed again. */
static void
test_routings(void)
{
    static const char *const words[] = { "uniform", "given" };
    static printed out;

    for (uint32_t i = 0; i < 2; i++) {
        char with[256];
        char *text;

        (void)snprintf(with, sizeof with, EXPERT_SLOTS("2", "3", "600000000", "%s"),
                       words[i]);
        text = changed("\"expert_slots\": 768", 0, with);
        print_again(text, &out);
        (void)snprintf(with, sizeof with, "\"expert_hits\": 600000000, \"routing\": \"%s\"",
                       words[i]);
        CHECK_CONTAINS(out.bytes, with);
        CHECK_CONTAINS(out.bytes, i == 0 ? "60 % hits if all are as likely"
                                         : "60 % hits as given");
        free(text);
    }
}

/* Host memory for what is turned, read and printed again. */
static void
test_turned(void)
{
    static printed out;
    char *const text = changed("\"scratch\": 256", 1, TURNED("72057594037927935"));

    print_again(text, &out);
    CHECK_CONTAINS(out.bytes, TURNED("72057594037927935") ", \"staging\": 0");
    free(text);
}

/* The largest stack of experts that anybody has is no limit; that of all berths is. */
static void
test_large_berths(void)
{
    static printed out;
    char *const text =
        changed("\"tier\": \"cpu\", \"bytes\": 1024", 0,
                "\"tier\": \"cpu\", \"bytes\": 72057594037926400");

    print_again(text, &out);
    CHECK_CONTAINS(out.bytes, "\"bytes\": 72057594037926400");
    free(text);
}

static void
test_operations(void)
{
    static printed out;
    char *text = changed(MEASURED, 0, OPERATION("1000000000"));

    print_again(text, &out);
    CHECK_CONTAINS(out.bytes, OPERATION("1000000000") "}");
    free(text);
    text = changed(MEASURED, 0, OPERATION("0"));
    print_again(text, &out);
    CHECK(strstr(out.bytes, "operation_ns") == NULL);
    free(text);
}

/* The caller's text stays as it is. */
static void
test_public(void)
{
    char copy[sizeof good];
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_plan *const untouched = (berth_plan *)copy;
    berth_plan_summary summary;
    berth_error error;

    memcpy(copy, good, sizeof good);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_REQUIRE(CHECK_EQ(berth_plan_parse(context, copy, sizeof good - 1, "f", &plan, &error),
                       BERTH_OK));
    CHECK_MEM(copy, good, sizeof good);
    berth_plan_get(plan, &summary);
    check_summary(&summary);
    berth_plan_destroy(plan);
    plan = untouched;
    CHECK_EQ(berth_plan_parse(context, copy, 9, "f", &plan, &error), BERTH_EFORMAT);
    CHECK(plan == NULL);
    CHECK_STR(error.file, "f");
    CHECK_EQ(berth_plan_parse(context, copy, strlen(copy), "f", &plan, &error), BERTH_OK);
    CHECK_STR(error.message, ""); /* of the call before, no more */
    berth_plan_destroy(plan);
    plan = untouched;
    CHECK_EQ(berth_plan_parse(context, copy, 0, "f", &plan, &error), BERTH_EFORMAT);
    CHECK_STR(error.message, "not an object");
    CHECK_EQ(berth_plan_parse(NULL, copy, 1, "f", &plan, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`context` is NULL");
    CHECK_EQ(berth_plan_parse(context, NULL, 1, "f", &plan, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`text` is NULL");
    CHECK_EQ(berth_plan_parse(context, copy, 1, NULL, &plan, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`file` is NULL");
    CHECK_EQ(berth_plan_parse(context, copy, 1, "f", NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`out_plan` is NULL");
    plan = untouched;
    CHECK_EQ(berth_plan_parse(context, copy, 1000000001, "f", &plan, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "argument `bytes` are more than a plan has");
    CHECK(plan == NULL);
    berth_context_destroy(context);
}

/* Every beginning of the text is refused, at its end or before. */
static void
test_cut(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (size_t length = 0; length + 1 < sizeof good; length++) {
        char *const text = malloc(length + 1);
        berth_error error;
        berth_plan *plan;

        if (text == NULL)
            abort();
        memcpy(text, good, length);
        CHECK_EQ(berthi_plan_parse(context, text, length, "f", &plan, &error),
                 BERTH_EFORMAT);
        CHECK_LE(error.position, length);
        free(text);
    }
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------ texts of a kind */

typedef struct text {
    char *bytes;
    size_t length;
    size_t capacity;
} text;

__attribute__((format(printf, 2, 3))) static void
add(text *t, const char *format, ...)
{
    va_list arguments;

    for (;;) {
        const size_t room = t->capacity - t->length;
        int needed;

        va_start(arguments, format);
        needed = vsnprintf(room > 0 ? t->bytes + t->length : NULL, room, format, arguments);
        va_end(arguments);
        if (needed >= 0 && (size_t)needed < room) {
            t->length += (size_t)needed;
            return;
        }
        t->capacity = 2 * t->capacity + 4096;
        t->bytes = realloc(t->bytes, t->capacity);
        if (t->bytes == NULL)
            abort();
    }
}

/* What a plan is made of: as many of each, and the layers and lines as they come. */
typedef struct amounts {
    uint32_t tensors;
    uint32_t layers;
    uint32_t lines;
    void (*add_layer)(text *t, const struct amounts *of, uint32_t number);
    uint32_t grown; /* the berth that is twice as large; UINT32_MAX: none */
} amounts;

/* All on cuda:0 and the disk; the text is given back by the caller. */
static char *
spelled(const amounts *of)
{
    text t = { .bytes = NULL };

    add(&t,
        "{\"schema_version\": 1, \"writer\": \"w\", \"checkpoint\": {\"digest\": 0, "
        "\"tensors\": %u}, \"weights\": {\"type\": \"native\", \"dtype\": \"BF16\", "
        "\"double_quant\": false, \"block_size\": 64}, \"use\": {\"context\": 0, "
        "\"batch\": 0, \"cache_dtype\": \"F8_E4M3\"}, \"planner\": {\"imitated\": false, "
        "\"proved\": true}, \"tiers\": [%s, %s], \"layers\": [",
        of->tensors, TIER("cuda:0", "9999"), TIER("disk", "null"));
    for (uint32_t i = 0; i < of->layers; i++) {
        add(&t, "%s", i == 0 ? "" : ", ");
        of->add_layer(&t, of, i);
    }
    add(&t, "], \"map\": [");
    for (uint32_t i = 0; i < of->lines; i++)
        add(&t, "%s{\"path\": \"m.%u\", \"tier\": \"disk\"}", i == 0 ? "" : ", ", i);
    add(&t, "], \"predicted\": {\"nanoseconds\": 0, \"first\": 0, \"compute\": 0, "
            "\"link\": 0, \"disk\": 0, \"load\": 0, \"host\": 0, \"bound\": \"compute\", "
            "\"bound_tier\": \"disk\", \"link_bytes\": 0, \"disk_bytes\": 0, \"advice\": "
            "\"\"}}");
    return t.bytes;
}

/* One berth of a long name in each. */
static void
add_long(text *t, const amounts *of, uint32_t number)
{
    (void)of;
    add(t, LAYER("l%u", "cuda:0", "resident"), number, number);
    add(t, BERTH("%01000u", "disk", "", "256") "}]}", number);
}

/* All berths, in turn on both tiers, by no order of their offsets; 1000 names. */
static void
add_shuffled(text *t, const amounts *of, uint32_t number)
{
    (void)number;
    add(t, LAYER("l", "cuda:0", "resident"));
    for (uint32_t i = 0; i < of->tensors; i++) {
        const uint32_t place = i * 7919 % of->tensors;

        add(t, "%s{\"tensor\": \"%06u\", \"tier\": \"%s\", \"offset\": %u, \"bytes\": %u, "
               "\"encoding\": \"native\", \"dtype\": \"BF16\", \"number\": %u}",
            i == 0 ? "" : ", ", i % 1000, place % 2 == 0 ? "cuda:0" : "disk", place / 2 * 256,
            i == of->grown ? 512 : 256, i);
    }
    add(t, "]}");
}

/* Nothing: no layer is one. */
static void
add_number(text *t, const amounts *of, uint32_t number)
{
    (void)of;
    add(t, "%u", number % 10);
}

static berth_status
parse_amounts(berth_context *context, const amounts *of, berth_plan **out,
              berth_error *error)
{
    char *const bytes = spelled(of);
    const berth_status status =
        berthi_plan_parse(context, bytes, strlen(bytes), "plan.json", out, error);

    free(bytes);
    return status;
}

/* A token that takes no time has no rate; without a batch there is one sequence. */
static void
test_no_time(void)
{
    const amounts of = { .tensors = 1, .layers = 1, .add_layer = add_long };
    char *const unbatched = changed("\"batch\": 3", 0, "\"batch\": 0");
    berth_context *context = NULL;
    berth_plan *plan;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_REQUIRE(CHECK_EQ(parse_amounts(context, &of, &plan, &error), BERTH_OK));
    CHECK(plan->summary.seconds == 0.0);
    CHECK(plan->summary.tokens_per_second == 0.0);
    CHECK_EQ(plan->summary.batch, 0);
    CHECK_EQ(plan->summary.map_count, 0);
    CHECK_EQ(plan->summary.bound_tier, 1);
    berthi_plan_free(plan);
    T_REQUIRE(CHECK_EQ(parse(context, unbatched, &plan, &error), BERTH_OK));
    CHECK(plan->summary.tokens_per_second == 1.0);
    berthi_plan_free(plan);
    free(unbatched);
    berth_context_destroy(context);
}

/* A text of a plan that holds `count` layers that are none. */
static void
check_layers(berth_context *context, uint32_t count, const char *message)
{
    const amounts of = { .layers = count, .add_layer = add_number };
    berth_plan *plan;
    berth_error error;

    CHECK_EQ(parse_amounts(context, &of, &plan, &error), BERTH_EFORMAT);
    CHECK_STR(error.message, message);
}

/* The good text with `count` tiers that are none. */
static void
check_tiers_of(berth_context *context, uint32_t count, const char *message)
{
    const char *const begin = strstr(good, "{\"name\": \"cuda:1\"");
    text t = { .bytes = NULL };
    berth_plan *plan;
    berth_error error;

    add(&t, "%.*s", (int)(begin - good), good);
    for (uint32_t i = 0; i < count; i++)
        add(&t, "%s%u", i == 0 ? "" : ", ", i);
    add(&t, "%s", strstr(begin, "], \"layers\""));
    for (size_t i = strlen(t.bytes); i < 64 * 4; i++)
        add(&t, " ");
    CHECK_EQ(berthi_plan_parse(context, t.bytes, t.length, "f", &plan, &error),
             BERTH_EFORMAT);
    CHECK_STR(error.message, message);
    free(t.bytes);
}

static void
test_amounts(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    check_layers(context, 0, "there are 1 to 65535 layers");
    check_layers(context, 1, "not an object");
    check_layers(context, 65535, "not an object");
    check_layers(context, 65536, "there are 1 to 65535 layers");
    check_tiers_of(context, 0, "there are 1 to 66 tiers");
    check_tiers_of(context, 1, "not an object");
    check_tiers_of(context, 66, "not an object");
    check_tiers_of(context, 67, "there are 1 to 66 tiers");
    berth_context_destroy(context);
}

/* Each berth in turn as long as two: in the way, unless it is the last of its tier. */
static void
test_overlaps(void)
{
    static const uint32_t counts[] = { 2, 3, 12, 13, 37 };
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t i = 0; i <= counts[c]; i++) {
            const amounts of = { .tensors = counts[c],
                                 .layers = 1,
                                 .add_layer = add_shuffled,
                                 .grown = i };
            const bool is_last = i == counts[c] || i * 7919 % counts[c] >= counts[c] - 2;
            berth_error error = { .status = BERTH_OK };
            berth_plan *plan;

            CHECK_EQ(parse_amounts(context, &of, &plan, &error),
                     is_last ? BERTH_OK : BERTH_EFORMAT);
            CHECK_STR(error.message, is_last ? "" : "two berths overlap");
            berthi_plan_free(plan);
        }
    berth_context_destroy(context);
}

/* So many names that their table and their text grow; each is kept once, and found. */
static void
test_names(void)
{
    const amounts of = { .tensors = 1500, .layers = 1, .add_layer = add_shuffled,
                         .grown = UINT32_MAX };
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;
    char expected[16];
    char name[16];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_REQUIRE(CHECK_EQ(parse_amounts(context, &of, &plan, &error), BERTH_OK));
    for (uint32_t i = 0; i < of.tensors; i++) {
        (void)snprintf(expected, sizeof expected, "l.%06u", i % 1000);
        CHECK_EQ(berthi_plan_name(plan, i, name, sizeof name), strlen(expected));
        if (!CHECK_STR(name, expected))
            break;
        if (i >= 1000)
            CHECK_EQ(plan->berths[i].name, plan->berths[i - 1000].name);
    }
    CHECK_EQ(plan->layers[0].out.berth_count, 1500);
    berthi_plan_free(plan);
    berth_context_destroy(context);
}

/* What holds no bytes is in nobody's way. */
static void
test_empty_berth(void)
{
    char *const bytes = changed("\"offset\": 256, \"bytes\": 512", 1,
                                "\"offset\": 512, \"bytes\": 0");
    char *const untied = strstr(bytes, ", \"tied\": true");
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;

    memset(untied, ' ', strlen(", \"tied\": true"));
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_REQUIRE(CHECK_EQ(parse(context, bytes, &plan, &error), BERTH_OK));
    CHECK_EQ(plan->berths[3].offset, 512);
    CHECK_EQ(plan->berths[3].bytes, 0);
    CHECK_EQ(plan->summary.bytes, 256 + 1024 + 512);
    berthi_plan_free(plan);
    free(bytes);
    berth_context_destroy(context);
}

/* The first one goes behind the others of its tier, too: here there are none. */
static void
test_first_without_offset(void)
{
    char *const bytes = changed("\"offset\": 512, ", 0, "");
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_REQUIRE(CHECK_EQ(parse(context, bytes, &plan, &error), BERTH_OK));
    CHECK_EQ(plan->berths[0].offset, 0);
    CHECK_EQ(plan->tiers[0].weights, 256);
    CHECK_EQ(plan->berths[1].offset, 768);
    berthi_plan_free(plan);
    free(bytes);
    berth_context_destroy(context);
}

static void
check_advice(int length, berth_status expected)
{
    char with[300];
    char *bytes;
    berth_context *context = NULL;
    berth_plan *plan = NULL;
    berth_error error;

    (void)snprintf(with, sizeof with, "\"%0*d\"}", length, 7);
    bytes = changed("\"more\"}", 0, with);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(parse(context, bytes, &plan, &error), expected);
    if (expected == BERTH_OK)
        CHECK_EQ(strlen(plan->summary.advice), length);
    else
        CHECK_STR(error.message, "the advice is too long");
    berthi_plan_free(plan);
    free(bytes);
    berth_context_destroy(context);
}

static void
test_advice(void)
{
    check_advice(255, BERTH_OK);
    check_advice(256, BERTH_EFORMAT);
}

/* ------------------------------------------------------------------------- words */

static void
check_words(berthi_plan_words words, int32_t count)
{
    int32_t found;

    for (int32_t i = 0; i < count; i++) {
        CHECK(berthi_plan_can_find_word(words, words(i), &found));
        CHECK_EQ(found, i);
    }
    CHECK(words(count) == NULL);
    CHECK(words(-1) == NULL);
    CHECK(!berthi_plan_can_find_word(words, "", &found));
}

static void
test_words(void)
{
    check_words(berthi_plan_cause_word, 6);
    check_words(berthi_rate_source_name, 3);
    check_words(berthi_plan_bound_word, 3);
    check_words(berthi_plan_slicing_word, 4);
    check_words(berthi_plan_routing_word, 2);
    CHECK_STR(berthi_plan_cause_word(BERTH_PLAN_ROWS), "rows");
    CHECK_STR(berthi_rate_source_name(BERTH_RATE_MEASURED), "measured");
}

/* ------------------------------------------------------------------------- faults */

static berth_status
parse_all(void *user, berth_context *context, berth_error *error)
{
    berth_plan *plan = NULL;
    const berth_status status = parse(context, user, &plan, error);

    CHECK((status == BERTH_OK) == (plan != NULL));
    berthi_plan_free(plan);
    return status;
}

static berth_status
parse_public(void *user, berth_context *context, berth_error *error)
{
    berth_plan *plan = NULL;
    const berth_status status =
        berth_plan_parse(context, user, strlen(user), "f", &plan, error);

    CHECK((status == BERTH_OK) == (plan != NULL));
    berth_plan_destroy(plan);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts = fault_loop("plan text", parse_all, (void *)(uintptr_t)good);
    const uint64_t inner = counts.memory;

    CHECK_GT(inner, 5);
    CHECK_EQ(counts.survived, 0);
    counts = fault_loop("copied plan text", parse_public, (void *)(uintptr_t)good);
    CHECK_GT(counts.memory, inner);
    CHECK_EQ(counts.survived, 0);
}

/* To be freed. */
static char *
of_a_rank(const char *whole)
{
    const char *const at = strstr(whole, "\"tiers\"");
    char *const out = malloc(strlen(whole) + 64);

    if (!CHECK(at != NULL) || out == NULL)
        abort();
    (void)sprintf(out, "%.*s\"parallel\": {\"rank\": 1023, \"ranks\": 1024}, %s",
                  (int)(at - whole), whole, at);
    return out;
}

/* Each of the lists so large that it needs a block of memory of its own, slices too. */
static void
test_faults_large(void)
{
    const amounts named = { .tensors = 200, .layers = 200, .add_layer = add_long,
                            .lines = 600 };
    const amounts many = { .tensors = 8200, .layers = 1, .add_layer = add_shuffled,
                           .grown = UINT32_MAX };
    char *const long_names = spelled(&named);
    char *const berths = spelled(&many);
    char *const rank = of_a_rank(berths);
    const fault_counts of_names = fault_loop("long names", parse_all, long_names);
    const fault_counts of_berths = fault_loop("many berths", parse_all, berths);
    const fault_counts of_rank = fault_loop("many berths of a rank", parse_all, rank);

    CHECK_GT(of_names.memory, 20);
    CHECK_EQ(of_names.survived, 0);
    CHECK_GT(of_berths.memory, 10);
    CHECK_EQ(of_berths.survived, 0);
    CHECK_GT(of_rank.memory, of_berths.memory);
    CHECK_EQ(of_rank.survived, 0);
    free(long_names);
    free(berths);
    free(rank);
}

static void
test_rank(void)
{
    char *const rank = of_a_rank(good);
    berth_context *context = NULL;
    berth_plan *plan = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    if (CHECK_EQ(parse(context, rank, &plan, NULL), BERTH_OK)) {
        CHECK_EQ(plan->summary.rank, 1023);
        CHECK_EQ(plan->summary.ranks, 1024);
    }
    berthi_plan_free(plan);
    berth_context_destroy(context);
    free(rank);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_read);
    T_RUN(test_print);
    T_RUN(test_refused);
    T_RUN(test_later_version);
    T_RUN(test_routings);
    T_RUN(test_turned);
    T_RUN(test_large_berths);
    T_RUN(test_operations);
    T_RUN(test_public);
    T_RUN(test_cut);
    T_RUN(test_no_time);
    T_RUN(test_amounts);
    T_RUN(test_overlaps);
    T_RUN(test_names);
    T_RUN(test_empty_berth);
    T_RUN(test_first_without_offset);
    T_RUN(test_advice);
    T_RUN(test_words);
    T_RUN(test_faults);
    T_RUN(test_faults_large);
    T_RUN(test_rank);
    T_MAIN_END;
}
