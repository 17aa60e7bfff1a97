/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_check.c - budgets that are shares of what is free, and plans held against it. */
#include <stdlib.h>

#include "loader/plan_input.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------ shares */

static void
check_unknown(const char *max_memory, const char *tier)
{
    berth_plan_options options = loaded_options(max_memory);
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_STR(p.error.tensor, tier);
    CHECK_CONTAINS(p.error.message, "which is not known here: give bytes");
    planned_end(&p);
}

/* Of what is free on devices that are open, one for each GPU. */
static void
test_shares(void)
{
    berth_plan_options options = loaded_options("0=50%,3=12.5%,cpu=1GiB");
    berth_context *context = NULL;
    berth_devices *devices = NULL;
    void *taken = NULL;
    planned p;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(berth_devices_open(context, "sim:256MiB;sim:512MiB", &devices, NULL) == BERTH_OK);
    options.devices = devices;
    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").budget, 128 * MIB);
    CHECK_EQ(planned_get_tier(&p, "cuda:3").budget, 64 * MIB);
    planned_end(&p);
    T_REQUIRE(berth_device_alloc(devices, 0, 128 * MIB, &taken, NULL) == BERTH_OK);
    options.max_memory = "0=50%,cpu=1GiB";
    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").budget, 64 * MIB);
    planned_end(&p);
    berth_device_free(devices, 0, taken, 128 * MIB);
    berth_devices_close(devices);
    berth_context_destroy(context);
    check_unknown("4294967295=90%,cpu=1GiB", "cuda:4294967295");
    check_unknown("cpu=1GiB,disk=50%", "disk");
}

static uint64_t
budget_of_host(const char *max_memory)
{
    berth_plan_options options = loaded_options(max_memory);
    uint64_t budget = 0;
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    if (CHECK_EQ(p.status, BERTH_OK))
        budget = planned_get_tier(&p, "cpu").budget;
    planned_end(&p);
    return budget;
}

/* Of what this process can have; where the machine does not tell that, of nothing. */
static void
test_shares_of_the_host(void)
{
    if (berthi_plan_free_host() == UINT64_MAX) {
        check_unknown("0=1GiB,cpu=50%", "cpu");
        return;
    }
    /* Others take some meanwhile. */
    CHECK_GT(budget_of_host("0=1GiB,cpu=100%"), budget_of_host("0=1GiB,cpu=50%"));
    CHECK_GT(budget_of_host("0=1GiB,cpu=50%"), berthi_plan_free_host() / 4);
}

/* A device more than there are of those that are open. */
static void
test_shares_of_no_device(void)
{
    berth_plan_options options = loaded_options("0=50%,1=50%");
    berth_context *context = NULL;
    berth_devices *devices = NULL;
    planned p;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(berth_devices_open(context, "sim:256MiB", &devices, NULL) == BERTH_OK);
    options.devices = devices;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_STR(p.error.tensor, "cuda:1");
    planned_end(&p);
    berth_devices_close(devices);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------- check */

static berth_status
check_against(const char *folder, const char *plan_file, const char *max_memory,
              berth_error *error)
{
    berth_context *context = NULL;
    berth_checkpoint *checkpoint = NULL;
    berth_plan *plan = NULL;
    berth_status status;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, error), BERTH_OK);
    status = berth_plan_open(context, plan_file, &plan, error);
    if (status == BERTH_OK)
        status = berth_plan_check(plan, context, checkpoint, max_memory, NULL, NULL, error);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return status;
}

/* Writes a plan with `find` (NULL: nothing) replaced. */
static const char *
write_plan_for(uint64_t context, const char *folder, const char *find, const char *with)
{
    berth_plan_options options =
        loaded_options(context > 0 ? "0=1GiB,cpu=300MiB" : "0=80MiB,cpu=300MiB");
    const char *const path = fixture_format("%s/plan.json", fixture_folder());
    planned p;
    char *text;
    char *at;

    options.staging_bytes = MIB;
    options.context = context;
    planned_begin(&p, folder, &options);
    text = planned_text(p.plan, NULL);
    at = find != NULL ? strstr(text, find) : NULL;
    if (at == NULL) {
        CHECK(find == NULL);
        fixture_text(path, text);
    } else {
        fixture_text(path, fixture_format("%.*s%s%s", (int)(at - text), text, with,
                                          at + strlen(find)));
    }
    free(text);
    planned_end(&p);
    return path;
}

static const char *
write_plan(const char *folder, const char *find, const char *with)
{
    return write_plan_for(0, folder, find, with);
}

static void
test_check(void)
{
    const char *const folder = planned_llama(4, false);
    const char *const other = planned_llama(3, false);
    const char *const plan = write_plan(folder, NULL, NULL);
    const bool tells = berthi_plan_free_host() != UINT64_MAX;
    berth_error error;

    CHECK_EQ(check_against(folder, plan, "", &error), BERTH_OK);
    CHECK_EQ(check_against(folder, plan, "0=80MiB,cpu=300MiB", &error), BERTH_OK);
    CHECK_EQ(check_against(folder, plan, "0=79MiB,cpu=300MiB", &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, "cuda:0");
    CHECK_EQ(check_against(folder, plan, "cpu=300MiB", &error), BERTH_ENOFIT);
    CHECK_EQ(error.reason, BERTH_REASON_NO_TIER);
    CHECK_CONTAINS(error.message, "is not here");
    CHECK_EQ(check_against(folder, plan, "0=80MiB,cpu=100%", &error),
             tells ? BERTH_OK : BERTH_EINVAL);
    CHECK_EQ(check_against(folder, plan, "0=80MiB,cpu=0.000001%", &error),
             tells ? BERTH_ENOFIT : BERTH_EINVAL);
    CHECK_EQ(check_against(folder, plan, "4294967295=50%,cpu=300MiB", &error), BERTH_EINVAL);
    CHECK_EQ(check_against(other, plan, "", &error), BERTH_EINTEGRITY);
    CHECK_EQ(error.reason, BERTH_REASON_PLAN_CHECKPOINT);
}

static void
test_check_changed(void)
{
    const char *const folder = planned_llama(4, false);
    berth_error error;

    /* A berth of another size, of another name, of another tensor. */
    CHECK_EQ(check_against(folder, write_plan(folder, "\"bytes\": 2048,", "\"bytes\": 2304,"),
                           "", &error),
             BERTH_EFORMAT); /* over the next one */
    CHECK_EQ(check_against(folder, write_plan(folder, "\"tensor\": \"input_layernorm",
                                              "\"tensor\": \"output_layernorm"),
                           "", &error),
             BERTH_EINTEGRITY);
    CHECK_EQ(check_against(folder, write_plan(folder, "\"tensor\": \"input_layernorm",
                                              "\"tensor\": \"inner_layernorm"),
                           "", &error),
             BERTH_EINTEGRITY); /* as long as its own */
    CHECK_EQ(check_against(folder, write_plan(folder, "\"number\": 1}", "\"number\": 2}"), "",
                           &error),
             BERTH_EINTEGRITY);
    CHECK_EQ(check_against(folder, write_plan(folder, "\"number\": 1}", "\"number\": 9999}"),
                           "", &error),
             BERTH_EINTEGRITY);
    /* Another budget than what is asked of the tier. */
    CHECK_EQ(check_against(folder, write_plan(folder, "\"budget\": 83886080",
                                              "\"budget\": 80000000"),
                           "", &error),
             BERTH_ENOFIT);
}

/* Of a tier that nothing lies on no memory is asked. */
static void
test_check_unused(void)
{
    const char *const folder = planned_llama(2, false);
    const char *const path = fixture_format("%s/plan.json", fixture_folder());
    berth_plan_options options = loaded_options("0=1GiB,1=1GiB,cpu=300MiB");
    berth_error error;
    planned p;
    char *text;

    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:1").weights, 0);
    text = planned_text(p.plan, NULL);
    fixture_text(path, text);
    free(text);
    planned_end(&p);
    CHECK_EQ(check_against(folder, path, "0=1GiB,cpu=300MiB", &error), BERTH_OK);
    CHECK_EQ(check_against(folder, path, "1=1GiB,cpu=300MiB", &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, "cuda:0");
}

/* What was told so far, and which first. */
typedef struct heard {
    uint32_t count;
    berth_error first;
} heard;

static void
hear(void *user, const berth_finding *finding)
{
    heard *const h = user;

    if (h->count++ == 0)
        h->first = *finding->details;
}

/* All that is wrong is told, and the first of it returned; nobody has to listen. */
static void
test_check_tells_all(void)
{
    berth_plan_options options = loaded_options("0=1GiB,cpu=300MiB");
    heard h = { .count = 0 };
    berth_error error;
    planned p;

    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(berth_plan_check(p.plan, p.context, p.checkpoint, "0=1MiB,cpu=1MiB", hear, &h,
                              &error),
             BERTH_ENOFIT);
    CHECK_EQ(h.count, 2);
    CHECK_STR(error.tensor, "cuda:0");
    CHECK_STR(h.first.tensor, error.tensor);
    CHECK_EQ(h.first.expected, error.expected);
    CHECK_EQ(error.actual, MIB);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(berth_plan_check(p.plan, p.context, p.checkpoint, "0=1MiB,cpu=1MiB", NULL, NULL,
                              NULL),
             BERTH_ENOFIT);
    CHECK_EQ(berth_plan_check(NULL, p.context, p.checkpoint, "", NULL, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_plan_check(p.plan, NULL, p.checkpoint, "", NULL, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_plan_check(p.plan, p.context, NULL, "", NULL, NULL, &error), BERTH_EINVAL);
    planned_end(&p);
}

/* A larger context, other sequences, a wider dtype: caches in the file have no room for it. */
static void
test_check_use(void)
{
    static const char *const uses[][2] = {
        { "\"context\": 1024", "\"context\": 100000" },
        { "\"context\": 1024", "\"context\": 512" },
        { "\"batch\": 1", "\"batch\": 2" },
        { "\"cache_dtype\": \"BF16\"", "\"cache_dtype\": \"F32\"" },
    };
    const char *const folder = planned_llama(4, false);
    berth_error error;

    CHECK_EQ(check_against(folder, write_plan_for(1024, folder, NULL, NULL), "", &error),
             BERTH_OK);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const char *const plan = write_plan_for(1024, folder, uses[i][0], uses[i][1]);

        CHECK_EQ(check_against(folder, plan, "", &error), BERTH_EINTEGRITY);
        CHECK_EQ(error.reason, BERTH_REASON_PLAN_CHECKPOINT);
        CHECK_CONTAINS(error.message, "KV caches");
        CHECK_GT(error.actual, 0);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_shares);
    T_RUN(test_shares_of_the_host);
    T_RUN(test_shares_of_no_device);
    T_RUN(test_check);
    T_RUN(test_check_changed);
    T_RUN(test_check_unused);
    T_RUN(test_check_tells_all);
    T_RUN(test_check_use);
    T_MAIN_END;
}
