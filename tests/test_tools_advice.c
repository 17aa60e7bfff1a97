/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_advice.c - what is said to help a load that did not fit. */
#define _DEFAULT_SOURCE

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/printed.h"
#include "tests/t.h"
#include "tools/load_refuse.h"
#include "tools/load_tier.h"

#define MIB  (UINT64_C(1) << 20)
#define RING (16 * MIB)

/* A load with a plan for these memories. */
typedef struct refused {
    planned model;
    berth_plan_options options;
    berth_error error;
    load_failure failure;
    load_advice advice;
} refused;

static void
refuse_of(refused *r, const char *folder, const char *max_memory, int32_t type,
          berth_status status)
{
    memset(r, 0, sizeof *r);
    berth_plan_options_init(&r->options);
    r->options.max_memory = max_memory;
    r->options.type = type;
    r->options.context = 0;
    planned_begin(&r->model, folder, &r->options);
    CHECK_EQ(r->model.status, BERTH_OK);
    r->error = (berth_error){ .status = status };
    r->failure = (load_failure){ .context = r->model.context,
                                 .checkpoint = r->model.checkpoint,
                                 .plan = r->model.plan,
                                 .asked = &r->options,
                                 .ring_bytes = RING,
                                 .error = &r->error };
}

/* Of 2 layers, 81 MiB. */
static void
refuse(refused *r, const char *max_memory, int32_t type, berth_status status)
{
    refuse_of(r, planned_llama(2, false), max_memory, type, status);
}

static uint64_t
slab_of(const refused *r, uint32_t number)
{
    berth_plan_tier tier;

    CHECK_EQ(berth_plan_get_tier(r->model.plan, number, &tier), BERTH_OK);
    return load_slab_bytes(&tier);
}

static const char *
written(const refused *r)
{
    output out;
    const char *const path = printed_begin(&out);

    load_refuse_json(&out, r->error.status, &r->failure, &r->advice);
    return printed_end(&out, path, NULL);
}

/*
 * There seems to be enough, and yet it was refused: the plan that failed is not offered, and
 * a disk that it would not use is no help.
 */
static void
test_limit_that_nobody_sees(void)
{
    refused r;

    refuse(&r, "cpu=256MiB", BERTH_ENCODING_NATIVE, BERTH_ENOMEM);
    load_advise(&r.failure, &r.advice);
    CHECK(!r.advice.has_shortage);
    CHECK_EQ(r.advice.plan_count, 1);
    CHECK_STR(r.advice.plans[0].options, "--max-memory cpu=256MiB --type nf4");
    CHECK(r.advice.plans[0].is_encoded);
    planned_end(&r.model);
}

/* The words are of the plan that was tried: with another dtype it may not fit. */
static void
test_dtype(void)
{
    refused r;

    refuse(&r, "cpu=256MiB", BERTH_ENCODING_NATIVE, BERTH_ENOMEM);
    r.options.dtype = BERTH_F16;
    load_advise(&r.failure, &r.advice);
    CHECK_EQ(r.advice.plan_count, 1);
    CHECK_STR(r.advice.plans[0].options, "--max-memory cpu=256MiB --type nf4 --dtype f16");
    planned_end(&r.model);
}

/* Of a file there is what it was asked for, as far as `berth plan` would not do so by itself. */
static void
test_file(void)
{
    refused r;

    refuse(&r, "cpu=256MiB", BERTH_ENCODING_NATIVE, BERTH_ENOMEM);
    r.failure.asked = NULL;
    load_advise(&r.failure, &r.advice);
    CHECK_EQ(r.advice.plan_count, 1);
    CHECK_STR(r.advice.plans[0].options, "--max-memory cpu=256MiB --type nf4 --context 0");
    planned_end(&r.model);
    berth_plan_options_init(&r.options);
    r.options.max_memory = "cpu=512MiB";
    r.options.type = BERTH_ENCODING_NATIVE;
    r.options.dtype = BERTH_F32;
    r.options.cache_dtype = BERTH_F16;
    r.options.context = 64;
    r.options.batch = 3;
    planned_begin(&r.model, planned_llama(2, false), &r.options);
    r.failure.context = r.model.context;
    r.failure.checkpoint = r.model.checkpoint;
    r.failure.plan = r.model.plan;
    load_advise(&r.failure, &r.advice);
    CHECK_STR(r.advice.plans[0].options,
              "--max-memory cpu=512MiB --type nf4 --dtype f32 --context 64 --batch 3"
              " --cache-dtype f16");
    planned_end(&r.model);
}

/* What is quantized already is not offered to be. */
static void
test_quantized(void)
{
    refused r;

    refuse(&r, "cpu=256MiB", BERTH_ENCODING_INT8, BERTH_ENOMEM);
    load_advise(&r.failure, &r.advice);
    CHECK_EQ(r.advice.plan_count, 0);
    CHECK(!r.advice.is_refused);
    planned_end(&r.model);
}

/* GPUs that only the plan knows: of the one that refused its slab there is what it said. */
static void
test_own_devices(void)
{
    berth_plan_tier tier;
    refused r;

    refuse(&r, "0=64MiB,1=48MiB,cpu=1GiB", BERTH_ENCODING_NATIVE, BERTH_ENOFIT);
    r.error.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    r.error.expected = slab_of(&r, 0);
    r.error.actual = r.error.expected - MIB;
    CHECK_NE(slab_of(&r, 0), slab_of(&r, 1));
    load_advise(&r.failure, &r.advice);
    CHECK(r.advice.has_shortage);
    (void)berth_plan_get_tier(r.model.plan, 0, &tier);
    CHECK_EQ(load_room(&r.failure, &r.advice, 0, &tier), r.error.actual);
    (void)berth_plan_get_tier(r.model.plan, 1, &tier);
    CHECK_EQ(load_room(&r.failure, &r.advice, 1, &tier), 48 * MIB);
    CHECK_CONTAINS(written(&r), "\"more\": [\n"
                                "        {\n"
                                "          \"tier\": \"cuda:0\",\n"
                                "          \"bytes\": 1048576\n"
                                "        }\n"
                                "      ]\n");
    planned_end(&r.model);
}

/* Each is short: neither alone would help. */
static void
test_two_devices(void)
{
    const char *text;
    refused r;

    refuse(&r, "0=64MiB,1=64MiB,cpu=1GiB", BERTH_ENCODING_NATIVE, BERTH_ENOFIT);
    CHECK_EQ(berth_devices_open(r.model.context, "sim:4MiB;sim:4MiB",
                                (berth_devices **)&r.failure.devices, NULL),
             BERTH_OK);
    load_advise(&r.failure, &r.advice);
    text = written(&r);
    CHECK_CONTAINS(text, fixture_format("{\n"
                                        "      \"more\": [\n"
                                        "        {\n"
                                        "          \"tier\": \"cuda:0\",\n"
                                        "          \"bytes\": %llu\n"
                                        "        },\n"
                                        "        {\n"
                                        "          \"tier\": \"cuda:1\",\n"
                                        "          \"bytes\": %llu\n"
                                        "        }\n"
                                        "      ]\n"
                                        "    }",
                                        (unsigned long long)(slab_of(&r, 0) - 4 * MIB),
                                        (unsigned long long)(slab_of(&r, 1) - 4 * MIB)));
    berth_devices_close((berth_devices *)r.failure.devices);
    planned_end(&r.model);
}

/* What planning for the advice allocates is in no account of what failed. */
static void
test_accounts_stay(void)
{
    berth_memory before;
    berth_memory after;
    refused r;

    refuse(&r, "cpu=256MiB", BERTH_ENCODING_NATIVE, BERTH_ENOMEM);
    CHECK_EQ(berth_memory_get(r.model.context, 0, BERTH_MEMORY_ALL, &before), BERTH_OK);
    load_advise(&r.failure, &r.advice);
    CHECK_EQ(berth_memory_get(r.model.context, 0, BERTH_MEMORY_ALL, &after), BERTH_OK);
    CHECK_EQ(after.allocated_bytes, before.allocated_bytes);
    CHECK_EQ(after.peak_bytes, before.peak_bytes);
    planned_end(&r.model);
}

/* Weights that are turned take host memory, which no slab holds. */
static void
test_turned(void)
{
    const int others = dup(STDERR_FILENO);
    const char *const path = fixture_format("%s/refusal", fixture_folder());
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char text[4096] = "";
    berth_plan_tier tier;
    refused r;

    refuse_of(&r, loaded_gpt2("BF16", 768, 1), "0=64MiB,cpu=64MiB", BERTH_ENCODING_NF4,
              BERTH_ENOMEM);
    for (uint32_t i = 0; berth_plan_get_tier(r.model.plan, i, &tier) == BERTH_OK; i++) {
        const bool is_host = tier.kind == BERTH_TIER_CPU;

        CHECK_EQ(tier.turned, is_host ? 2 * 2 * 768 * 3072 : 0);
        CHECK_EQ(load_need(&r.failure, &tier),
                 load_slab_bytes(&tier) + (is_host ? tier.turned + RING : 0));
    }
    load_advise(&r.failure, &r.advice);
    dup2(file, STDERR_FILENO);
    load_refuse(&r.failure, &r.advice);
    dup2(others, STDERR_FILENO);
    close(others);
    CHECK_GT(pread(file, text, sizeof text - 1, 0), 0);
    close(file);
    CHECK_CONTAINS(text, "  cpu takes 0 B, and 16.00 MiB of staging, and 9.00 MiB while "
                         "weights are turned");
    planned_end(&r.model);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_limit_that_nobody_sees);
    T_RUN(test_dtype);
    T_RUN(test_file);
    T_RUN(test_quantized);
    T_RUN(test_own_devices);
    T_RUN(test_two_devices);
    T_RUN(test_accounts_stay);
    T_RUN(test_turned);
    T_MAIN_END;
}
