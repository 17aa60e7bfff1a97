/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_train_json.c - plans for training as text: what an edit changes, what is
 * refused, what is held against the model, and what fails on the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/planned.h"
#include "tests/t.h"

static berth_train_options train;

/* Two layers, adapters on two modules: some states in host memory, none on the disk. */
static void
begin(planned *p)
{
    berth_plan_options options;

    berth_train_options_init(&train);
    train.method = BERTH_TRAIN_LORA;
    train.optimizer = "paged_adamw_32bit";
    train.lora_rank = 512;
    train.lora_targets = "q_proj,v_proj";
    berth_plan_options_init(&options);
    options.max_memory = "0=132MiB,cpu=1GiB,disk=inf";
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 64;
    options.train = &train;
    planned_begin(p, planned_llama(2, false), &options);
    CHECK_EQ(p->status, BERTH_OK);
}

/* `text` with the first `from` behind `behind` as `to`; free() it. */
static char *
with(const char *text, const char *behind, const char *from, const char *to)
{
    const char *at = strstr(text, behind);
    char *out = malloc(strlen(text) + strlen(to) + 1);

    at = at != NULL ? strstr(at, from) : NULL;
    if (!CHECK(at != NULL && out != NULL)) {
        T_NOTE("%s: %s", behind, from);
        abort();
    }
    memcpy(out, text, (size_t)(at - text));
    (void)sprintf(out + (at - text), "%s%s", to, at + strlen(from));
    return out;
}

/* ------------------------------------------------------------------------- edited */

static uint64_t
count_places(const berth_plan *plan, int32_t place)
{
    berth_plan_parameter parameter;
    uint64_t count = 0;

    for (uint64_t i = 0; berth_plan_get_parameter(plan, i, &parameter, NULL, 0) == BERTH_OK;
         i++)
        count += parameter.place == place;
    return count;
}

/* A state that is moved by hand: sums, slots, buffers and times are what follows. */
static void
test_edited(void)
{
    berth_plan_training before;
    berth_plan_training after;
    berth_plan_training_tier tiers[3];
    berth_plan_training_tier moved[3];
    berth_plan_parameter first;
    berth_plan *plan = NULL;
    berth_error error;
    char *text;
    char *edited;
    planned p;

    begin(&p);
    text = planned_text(p.plan, NULL);
    CHECK_CONTAINS(text, "\"model.layers.1.self_attn.v_proj.lora_B.weight\", \"rows\"");
    CHECK_EQ(count_places(p.plan, BERTH_STATES_DEVICE), 8);
    CHECK_EQ(berth_plan_get_training(p.plan, &before), BERTH_OK);
    edited = with(text, "\"parameters\"", "\"states\": \"device\"", "\"states\": \"disk\"");
    CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
             BERTH_OK);
    CHECK_EQ(count_places(plan, BERTH_STATES_DISK), 1);
    CHECK_EQ(berth_plan_get_training(plan, &after), BERTH_OK);
    CHECK_EQ(berth_plan_get_parameter(plan, 0, &first, NULL, 0), BERTH_OK);
    for (uint32_t t = 0; t < 3; t++) {
        CHECK_EQ(berth_plan_get_training_tier(p.plan, t, &tiers[t]), BERTH_OK);
        CHECK_EQ(berth_plan_get_training_tier(plan, t, &moved[t]), BERTH_OK);
    }
    CHECK_EQ(tiers[0].states - moved[0].states, first.states);
    CHECK_EQ(moved[2].states, first.states);
    CHECK_EQ(tiers[0].slots, 0);
    CHECK_EQ(moved[0].slots, 4 * first.states); /* one page, a multiple of 256 */
    CHECK_EQ(moved[1].staging, 4 * first.states);
    CHECK_EQ(after.link_bytes, first.states);
    CHECK_EQ(after.disk_bytes, 2 * first.states);
    CHECK(after.disk_seconds > 0 && before.disk_seconds == 0);
    CHECK_EQ(after.elements, before.elements);
    berth_plan_destroy(plan);
    free(edited);
    edited = with(text, "\"training\"", "paged_adamw_32bit", "adam");
    CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
             BERTH_OK);
    CHECK_EQ(berth_plan_get_training(plan, &after), BERTH_OK);
    CHECK_EQ(after.kind, BERTH_UPDATE_ADAM);
    CHECK_EQ(after.bits, 32);
    berth_plan_destroy(plan);
    free(edited);
    free(text);
    planned_end(&p);
}

/* ------------------------------------------------------------------------ refused */

static void
test_refused(void)
{
    static const struct {
        const char *behind;
        const char *from;
        const char *to;
        const char *message;
    } cases[] = {
        { "training", "\"method\"", "\"methods\"", "should be \"method\"" },
        { "training", "\"lora\"", "\"lore\"", "an unknown word" },
        { "training", "\"lora\"", "\"full\"", "does not train" },
        { "training", "\"pure\"", "\"purr\"", "an unknown word" },
        { "training", "paged_adamw_32bit", "adafactor", "an optimizer that berth has not" },
        { "training", "paged_adamw_32bit", "nothing", "an optimizer that berth has not" },
        { "page_bytes", ": ", ": 1", "powers of two" },
        { "page_bytes\":", " ", " 256}, \"x\": ", "page" },
        { "training", "\"parameters\"", "\"parameter\"", "should be \"parameters\"" },
        { "\"parameters\"", "\"berth\": ", "\"berth\": 1000", "too large" },
        { "\"parameters\"", "lora_A", "lora_B", "an A and, behind it, a B" },
        { "\"lora_A\"", "lora_B", "lora_A", "out of order" },
        { "\"lora_A\"", "},", "}], \"x\": [", "an A and, behind it, a B" },
        { "\"parameters\"", "lora_A", "lora_C", "an unknown word" },
        { "\"parameters\"", "lora_A", "whole", "does not train" },
        { "\"parameters\"", "\"rows\"", "\"row\"", "should be \"rows\"" },
        { "\"parameters\"", "\"rows\": 512", "\"rows\": 0", "has elements" },
        { "\"parameters\"", "\"columns\": 1024", "\"columns\": 0", "has elements" },
        { "\"parameters\"", "\"rows\": 512", "\"rows\": 18446744073709551615",
          "more elements" },
        { "\"parameters\"", "\"rows\": 512", "\"rows\": 17179869184", "more elements" },
        { "\"parameters\"", "\"columns\": 1024", "\"columns\": 18446744073709551615",
          "more elements" },
        { "\"parameters\"", "\"BF16\"", "\"I64\"", "bf16, f16 or f32" },
        { "\"parameters\"", "\"BF16\"", "\"B16\"", "bf16, f16 or f32" },
        { "\"parameters\"", "\"states\": \"device\"", "\"states\": \"here\"", "an unknown word" },
        { "\"parameters\"", "\"rows\": 512, \"columns\": 1024, \"dtype\": \"BF16\", "
                            "\"states\": \"device\"",
          "\"rows\": 4, \"columns\": 1023, \"dtype\": \"BF16\", \"states\": \"host\"",
          "fewer than 4096" },
        { "\"parameters\": [", "{", "], \"x\": [{", "one or two parameters" },
    };
    char *text;
    planned p;

    begin(&p);
    text = planned_text(p.plan, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *const edited = with(text, cases[i].behind, cases[i].from, cases[i].to);
        berth_plan *plan = NULL;
        berth_error error;

        CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
                 BERTH_EFORMAT);
        CHECK_EQ(error.reason, BERTH_REASON_PLAN_JSON);
        if (!CHECK(plan == NULL && strstr(error.message, cases[i].message) != NULL))
            T_NOTE("%zu: %s", i, error.message);
        berth_plan_destroy(plan);
        free(edited);
    }
    free(text);
    planned_end(&p);
}

/* The B of another tensor is none of this A's. */
static void
test_pairs(void)
{
    berth_plan_parameter first;
    berth_plan *plan = NULL;
    char from[64];
    char to[64];
    berth_error error;
    char *edited;
    char *text;
    planned p;

    begin(&p);
    text = planned_text(p.plan, NULL);
    CHECK_EQ(berth_plan_get_parameter(p.plan, 1, &first, NULL, 0), BERTH_OK);
    (void)snprintf(from, sizeof from, "\"berth\": %u,", (unsigned)first.berth);
    (void)snprintf(to, sizeof to, "\"berth\": %u,", (unsigned)first.berth + 1);
    edited = with(text, "\"lora_A\"", from, to);
    CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
             BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, "an A and, behind it, a B");
    free(edited);
    free(text);
    planned_end(&p);
}

/* Places that there are not, and tensors that are not where they are computed. */
static void
test_nowhere(void)
{
    static const struct {
        const char *max_memory;
        const char *behind;
        const char *from;
        const char *to;
        const char *message;
    } cases[] = {
        { "0=1GiB", "\"parameters\"", "device", "host", "no host memory" },
        { "0=1GiB", "\"parameters\"", "device", "disk", "no disk" },
        { "cpu=1GiB", "\"parameters\"", "device", "host", "no host memory" },
        { "0=1GiB,cpu=1GiB", "lm_head.", "\"tier\": \"cuda:0\"", "\"tier\": \"cpu\"",
          "lies where it is computed" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_plan_options options;
        berth_plan *plan = NULL;
        berth_error error;
        char *edited;
        char *text;
        planned p;

        berth_train_options_init(&train);
        train.optimizer = "paged_adamw_8bit";
        berth_plan_options_init(&options);
        options.max_memory = cases[i].max_memory;
        options.context = 64;
        options.train = &train;
        planned_begin(&p, planned_llama(1, false), &options);
        CHECK_EQ(p.status, BERTH_OK);
        text = planned_text(p.plan, NULL);
        edited = with(text, cases[i].behind, cases[i].from, cases[i].to);
        CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
                 BERTH_EFORMAT);
        if (!CHECK(strstr(error.message, cases[i].message) != NULL))
            T_NOTE("%zu: %s", i, error.message);
        free(edited);
        free(text);
        planned_end(&p);
    }
}

/* ------------------------------------------------------------------------ checked */

static uint32_t told;

static void
tell(void *user, const berth_finding *finding)
{
    (void)user;
    (void)finding;
    told++;
}

/* Shapes are those of the model; what no longer fits is told. */
static void
test_checked(void)
{
    static const struct {
        const char *from;
        const char *to;
        berth_status status;
    } cases[] = {
        { "\"rows\": 512", "\"rows\": 512", BERTH_OK },
        { "\"rows\": 512", "\"rows\": 511", BERTH_EINTEGRITY },
        { "\"columns\": 1024", "\"columns\": 1025", BERTH_EINTEGRITY },
        { "\"rows\": 512, \"columns\": 1024", "\"rows\": 512, \"columns\": 33554432",
          BERTH_EINTEGRITY },
        /* Slots for it have no room. */
        { "\"states\": \"device\"", "\"states\": \"host\"", BERTH_ENOFIT },
    };
    char *text;
    planned p;

    begin(&p);
    text = planned_text(p.plan, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *const edited = with(text, "\"parameters\"", cases[i].from, cases[i].to);
        berth_plan *plan = NULL;
        berth_error error;

        CHECK_EQ(berth_plan_parse(p.context, edited, strlen(edited), "t", &plan, &error),
                 BERTH_OK);
        told = 0;
        CHECK_EQ(berth_plan_check(plan, p.context, p.checkpoint, "", tell, NULL, &error),
                 cases[i].status);
        CHECK((told > 0) == (cases[i].status != BERTH_OK));
        berth_plan_destroy(plan);
        free(edited);
    }
    free(text);
    planned_end(&p);
}

/* ------------------------------------------------------------------------- faults */

static berth_status
read_again(void *user, berth_context *context, berth_error *error)
{
    const char *const text = user;
    berth_plan *plan = NULL;
    const berth_status status =
        berth_plan_parse(context, text, strlen(text), "t", &plan, error);

    berth_plan_destroy(plan);
    return status;
}

static berth_status
plan_again(void *user, berth_context *context, berth_error *error)
{
    berth_checkpoint *checkpoint = NULL;
    berth_plan_options options;
    berth_plan *plan = NULL;
    berth_status status = berth_checkpoint_open(context, user, NULL, &checkpoint, error);

    berth_plan_options_init(&options);
    options.max_memory = "0=170MiB,cpu=70MiB,disk=inf";
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 64;
    options.train = &train;
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_faults(void)
{
    char *text;
    planned p;

    begin(&p);
    text = planned_text(p.plan, NULL);
    CHECK_EQ(fault_loop("read", read_again, text).survived, 0);
    free(text);
    planned_end(&p);
    berth_train_options_init(&train);
    train.optimizer = "paged_adamw_8bit";
    (void)fault_loop("planned", plan_again, (void *)(uintptr_t)planned_llama(1, false));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_edited);
    T_RUN(test_refused);
    T_RUN(test_pairs);
    T_RUN(test_nowhere);
    T_RUN(test_checked);
    T_RUN(test_faults);
    T_MAIN_END;
}
