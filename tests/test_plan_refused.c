/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_refused.c - what is pinned, and what is asked for in vain, through berth.h. */
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------- pins */

static void
test_pins(void)
{
    static const char *const pins[] = { "model.layers.0-1=cpu", "lm_head=cuda:1",
                                        "model.layers.3.mlp.*.weight=0" };
    berth_plan_options options = loaded_options("0=120MiB,1=80MiB,cpu=200MiB");
    planned p;

    options.staging_bytes = MIB;
    options.pins = pins;
    options.pin_count = 3;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "lm_head").home, 1);
    CHECK_EQ(planned_get_layer(&p, "lm_head").cause, BERTH_PLAN_PINNED);
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").resident_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").resident_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "model.layers.2").resident_bytes,
             planned_get_layer(&p, "model.layers.2").bytes);
    CHECK_EQ(planned_get_layer(&p, "model.layers.3").home, 0);
    planned_end(&p);
}

/* A head that is stored, and is the embedding all the same: a pin of one is of both. */
static void
test_pin_of_what_is_tied(void)
{
    static const char *const pins[] = { "lm_head=cuda:1" };
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB");
    planned p;

    options.pins = pins;
    options.pin_count = 1;
    planned_begin(&p, loaded_tied_and_stored(2, 1), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").home, 1);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").cause, BERTH_PLAN_PINNED);
    planned_end(&p);
}

static void
refuse_pin(const char *pin, const char *words)
{
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    options.pins = &pin;
    options.pin_count = 1;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_STR(p.error.tensor, pin);
    CHECK_CONTAINS(p.error.message, words);
    planned_end(&p);
}

static void
refuse_pins_of_none(void)
{
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    options.pin_count = 1;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_CONTAINS(p.error.message, "`pins` is NULL, or has a NULL");
    planned_end(&p);
}

static void
check_text_refused(const berth_plan_options *options, const char *name)
{
    berth_plan_options mine = *options;
    planned p;

    planned_begin(&p, planned_llama(1, false), &mine);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_CONTAINS(p.error.message, fixture_format("`%s` is NULL, or has a NULL", name));
    planned_end(&p);
}

/* Lists of texts that are not there, or have one that is not. */
static void
refuse_texts_of_none(void)
{
    const char *const texts[] = { "model*", NULL };

    for (int i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("0=200MiB");
        const char *const *const list = i == 0 ? NULL : texts;

        options.pins = list;
        options.pin_count = 2;
        check_text_refused(&options, "pins");
        options = loaded_options("0=200MiB");
        options.keep = list;
        options.keep_count = 2;
        check_text_refused(&options, "keep");
        options = loaded_options("0=200MiB");
        options.only = list;
        options.only_count = 2;
        check_text_refused(&options, "only");
        options = loaded_options("0=200MiB");
        options.skip_modules = list;
        options.skip_count = 2;
        check_text_refused(&options, "skip_modules");
    }
}

/* A typo would quantize what was to be left alone. */
static void
test_skips_that_are_not_there(void)
{
    static const char *const skips[] = { "lm_head", "lm_haed" };
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    options.type = BERTH_ENCODING_NF4;
    options.has_skips = 1;
    options.skip_modules = skips;
    for (uint32_t count = 1; count <= 2; count++) {
        options.skip_count = count;
        planned_begin(&p, planned_llama(2, false), &options);
        CHECK_EQ(p.status, BERTH_OK);
        CHECK_EQ(p.finding_count, count - 1);
        if (count == 2)
            CHECK_CONTAINS(p.findings[0], "the model has no such module to skip");
        planned_end(&p);
    }
    options.reject_skips = 1;
    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_EQ(p.error.reason, BERTH_REASON_RULE_UNUSED);
    CHECK_STR(p.error.tensor, "lm_haed");
    planned_end(&p);
}

static void
check_values_refused(const char *path, berth_reason reason, const char *words)
{
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    for (int type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
        const bool is_native = type == BERTH_ENCODING_NATIVE;

        options.type = type;
        planned_begin(&p, path, &options);
        CHECK_EQ(p.status, is_native ? BERTH_OK : BERTH_EUNSUPPORTED);
        if (!is_native) {
            CHECK_EQ(p.error.reason, reason);
            CHECK_CONTAINS(p.error.message, words);
        }
        planned_end(&p);
    }
}

/* Weights whose numbers cannot be had are placed as they are, and made into no others. */
static void
test_values_that_nobody_has(void)
{
    const char *folder = fixture_folder();
    const char *const shard = fixture_format("%s/model-00001-of-00002.safetensors", folder);

    fixture_file(shard, "U8 32x1 w.weight\nF32 1 w.weight.absmax\nBF16 4x4 a.weight\n");
    check_values_refused(shard, BERTH_REASON_UNSUPPORTED, "is one of several shards");
    folder = fixture_folder();
    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "I64 64 model.layers.0.a.dense_weights\nBF16 64x64 model.layers.0.b.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"quantization_config\": {\"quant_method\": \"spqr\"}}");
    check_values_refused(folder, BERTH_REASON_QUANT_METHOD, "quantized by \"spqr\"");
}

static void
refuse_pin_beside(const char *mode, const char *device_map)
{
    const char *const pin = "lm_head=0";
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    options.pins = &pin;
    options.pin_count = 1;
    options.mode = mode;
    options.device_map = device_map;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_CONTAINS(p.error.message, "put them into the map");
    planned_end(&p);
}

/* To memory that no device computes in, where all is to lie on devices that do. */
static void
refuse_pin_away(const char *pin, const char *max_memory, bool is_refused)
{
    berth_plan_options options = loaded_options(max_memory);
    planned p;

    options.pins = &pin;
    options.pin_count = 1;
    options.no_offload = 1;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, is_refused ? BERTH_EINVAL : BERTH_OK);
    if (is_refused)
        CHECK_CONTAINS(p.error.message, "does not compute, and no_offload");
    planned_end(&p);
}

static void
test_pins_refused(void)
{
    refuse_pin("lm_head", "NAME=TIER");
    refuse_pin("=0", "NAME=TIER");
    refuse_pin("lm_head=gpu", "names no tier");
    refuse_pin("lm_head=1", "no budget");
    refuse_pins_of_none();
    refuse_texts_of_none();
    refuse_pin_away("lm_head=cpu", "0=200MiB,cpu=200MiB", true);
    refuse_pin_away("lm_head=disk", "cpu=200MiB,disk=inf", true);
    refuse_pin_away("lm_head=cpu", "cpu=200MiB,disk=inf", false);
    refuse_pin_away("lm_head=1", "0=200MiB,1=200MiB", false);
    refuse_pin_away("lm_head=disk", "disk=inf", true); /* though no tier stands before it */
    refuse_pin_beside("auto", NULL);
    refuse_pin_beside(NULL, "map.json");
    refuse_pin("lm_heads=0", "pins nothing");
    refuse_pin("model.layers.1-9=0", "pins nothing");
    refuse_pin("model.layers.0.=0", "NAME=TIER");
    refuse_pin("m.layers.0=0", "pins nothing");
    refuse_pin("*.l.0=0", "pins nothing");
    refuse_pin("model.layers.0-a=0", "pins nothing");
    refuse_pin("model.layers.-0=0", "pins nothing");
}

/* ---------------------------------------------------------------------- refusals */

static void
test_no_fit(void)
{
    berth_plan_options options = loaded_options("0=100MiB");
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    CHECK_EQ(p.status, BERTH_ENOFIT);
    CHECK_EQ(p.error.reason, BERTH_REASON_NO_FIT);
    CHECK_STR(p.error.tensor, "cuda:0");
    CHECK_CONTAINS(p.error.message, "is short of");
    CHECK_GT(p.error.expected, p.error.actual);
    CHECK_EQ(p.error.actual, 100 * MIB);
    planned_end(&p);
}

/* Each tier that is short, as findings tell it. */
typedef struct lacks {
    berth_error at[4];
    uint32_t count;
} lacks;

static void
keep_lack(void *user, const berth_finding *finding)
{
    lacks *const found = user;

    CHECK_EQ(finding->severity, BERTH_SEVERITY_ERROR);
    CHECK_EQ(finding->name_length, strlen(finding->details->tensor));
    CHECK_STR(finding->name, finding->details->tensor);
    if (found->count < 4)
        found->at[found->count] = *finding->details;
    found->count++;
}

/* Of a plan that lies as it has to; the tiers that are told to be short. */
static lacks
find_lacks(const char *memory, berth_error *error)
{
    static const char *const pins[] = { "model.layers.0=0", "model.layers.1=1", "lm_head=1",
                                        "model.norm=1", "model.embed_tokens=cpu" };
    berth_plan_options options = loaded_options(memory);
    lacks found = { .count = 0 };
    berth_plan *plan;
    planned p;

    options.pins = pins;
    options.pin_count = 5;
    planned_begin(&p, planned_llama(2, false), &options);
    options.finding = keep_lack;
    options.finding_user = &found;
    CHECK_EQ(berth_plan_create(p.context, p.checkpoint, &options, &plan, error),
             BERTH_ENOFIT);
    CHECK_EQ(berth_plan_create(p.context, p.checkpoint, &options, &plan, NULL), BERTH_ENOFIT);
    found.count /= 2;
    planned_end(&p);
    return found;
}

/* Each tier of several is a finding, too, with its numbers. */
static void
test_several_are_short(void)
{
    static const char *const names[] = { "cuda:0", "cuda:1", "cpu" };
    static const uint64_t budgets[] = { MIB, 2 * MIB, 3 * MIB };
    char memory[128];
    berth_error error;
    berth_plan_options options;
    planned p;
    lacks found = find_lacks("0=1MiB,1=2MiB,cpu=3MiB", &error);

    T_REQUIRE(found.count == 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STR(found.at[i].tensor, names[i]);
        CHECK_EQ(found.at[i].reason, BERTH_REASON_NO_FIT);
        CHECK_EQ(found.at[i].actual, budgets[i]);
        CHECK_GT(found.at[i].expected, budgets[i]);
        CHECK_CONTAINS(found.at[i].message, "is short of ");
    }
    CHECK_STR(error.tensor, names[0]);
    CHECK_EQ(error.expected, found.at[0].expected);
    CHECK_EQ(find_lacks("0=1MiB,1=1GiB,cpu=1GiB", &error).count, 0); /* one: the error */
    snprintf(memory, sizeof memory, "0=%llu,1=%llu,cpu=%llu",
             (unsigned long long)found.at[0].expected,
             (unsigned long long)found.at[1].expected,
             (unsigned long long)found.at[2].expected);
    options = loaded_options(memory);
    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_end(&p);
}

/* What the refusal asks for is enough, and one alignment less is not. */
static void
test_smallest_change(void)
{
    berth_plan_options options = loaded_options("0=100MiB");
    char budget[64];
    uint64_t wanted;
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    wanted = p.error.expected;
    CHECK_EQ(wanted, 4 * (49 * MIB / 2 + 2 * 2048) + 32 * MIB + 2048);
    planned_end(&p);
    (void)snprintf(budget, sizeof budget, "0=%llu", (unsigned long long)wanted);
    options = loaded_options(budget);
    planned_begin(&p, planned_llama(4, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_end(&p);
    (void)snprintf(budget, sizeof budget, "0=%llu", (unsigned long long)(wanted - 256));
    options = loaded_options(budget);
    planned_begin(&p, planned_llama(4, false), &options);
    CHECK_EQ(p.status, BERTH_ENOFIT);
    planned_end(&p);
}

static void
refuse(berth_plan_options options, berth_status status, const char *words)
{
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, status);
    CHECK_CONTAINS(p.error.message, words);
    planned_end(&p);
}

static void
test_numbers_that_are_none(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    berth_plan_tier tier;
    berth_plan_layer layer;
    berth_map_line line;
    berth_berth berth;
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    PLANNED_REFUSES(berth_plan_get_tier(p.plan, p.summary.tier_count, &tier), tier);
    PLANNED_REFUSES(berth_plan_get_layer(p.plan, p.summary.layer_count, &layer), layer);
    PLANNED_REFUSES(berth_plan_get_map(p.plan, p.summary.map_count, &line), line);
    PLANNED_REFUSES(berth_plan_get_berth(p.plan, p.summary.berth_count, &berth, NULL, 0), berth);
    planned_end(&p);
}

/* What went wrong before is not said of a plan that is made. */
static void
test_error_of_before(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    berth_plan *plan = NULL;
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    options.slots = 9;
    CHECK_EQ(berth_plan_create(p.context, p.checkpoint, &options, &plan, &p.error),
             BERTH_EINVAL);
    CHECK(p.error.message[0] != '\0');
    options.slots = 0;
    CHECK_EQ(berth_plan_create(p.context, p.checkpoint, &options, &plan, &p.error), BERTH_OK);
    CHECK_STR(p.error.message, "");
    berth_plan_destroy(plan);
    planned_end(&p);
}

/* What a map is not asked for. */
static void
check_of_maps(void)
{
    static const char *const pins[] = { "lm_head=cpu" };

    for (int i = 0; i < 2; i++) {
        const char *const mode = i == 0 ? "auto" : NULL;
        const char *const map = i == 1 ? "map.json" : NULL;
        berth_plan_options options = loaded_options("0=1GiB");

        options.mode = mode;
        options.device_map = map;
        options.reserve = "0=1MiB";
        refuse(options, BERTH_EINVAL, "followed to the brim");
        options.reserve = NULL;
        options.no_offload = 1;
        refuse(options, BERTH_EINVAL, "says what is offloaded");
        options.no_offload = 0;
        options.pins = pins;
        options.pin_count = 1;
        refuse(options, BERTH_EINVAL, "put them into the map");
    }
}

static void
test_options_refused(void)
{
    berth_plan_options options = loaded_options("disk=inf");

    refuse(options, BERTH_EINVAL, "no device that computes");
    options = loaded_options("0=1GiB");
    options.type = BERTH_ENCODING_MXFP4;
    refuse(options, BERTH_EINVAL, "none of native");
    options = loaded_options("0=1GiB");
    options.block_size = 65;
    refuse(options, BERTH_EINVAL, "power of two");
    options = loaded_options("0=1GiB");
    options.double_quant = 1;
    refuse(options, BERTH_EINVAL, "for nf4 and fp4");
    options = loaded_options("0=1GiB");
    options.slots = 9;
    refuse(options, BERTH_EINVAL, "1 to 8");
    options = loaded_options("0=1GiB");
    options.expert_hits = 1000000001;
    refuse(options, BERTH_EINVAL, "`expert_hits` is more than all");
    options = loaded_options("0=1GiB");
    options.reserve_share = 1000000001;
    refuse(options, BERTH_EINVAL, "more than all");
    options = loaded_options("0=1GiB");
    options.reserve = "1=1GiB";
    refuse(options, BERTH_EINVAL, "no budget");
    options = loaded_options("0=0");
    refuse(options, BERTH_ENOFIT, "short of");
    options = loaded_options("0=1TB");
    options.mode = "auto"; /* whose sizes know no TB */
    refuse(options, BERTH_EINVAL, "");
    options = loaded_options("0=1GiB");
    options.mode = "auto";
    options.device_map = "map.json";
    refuse(options, BERTH_EINVAL, "exclude each other");
    check_of_maps();
    options = loaded_options("0=1GiB");
    options.type = BERTH_ENCODING_NF4;
    options.storage = BERTH_U64; /* the first of all dtypes */
    refuse(options, BERTH_EUNSUPPORTED, "cannot be stored as nf4");
    for (int32_t dtype = 0; dtype <= BERTH_DTYPE_COUNT; dtype++) {
        options = loaded_options("0=1GiB");
        options.cache_dtype = dtype;
        if (dtype != BERTH_BF16 && dtype != BERTH_F16 && dtype != BERTH_F32
            && dtype != BERTH_F8_E4M3 && dtype != BERTH_F8_E5M2)
            refuse(options, BERTH_EINVAL, "`cache_dtype` is none of bf16, f16, f32");
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_pins);
    T_RUN(test_pin_of_what_is_tied);
    T_RUN(test_skips_that_are_not_there);
    T_RUN(test_values_that_nobody_has);
    T_RUN(test_pins_refused);
    T_RUN(test_no_fit);
    T_RUN(test_several_are_short);
    T_RUN(test_smallest_change);
    T_RUN(test_numbers_that_are_none);
    T_RUN(test_error_of_before);
    T_RUN(test_options_refused);
    T_MAIN_END;
}
