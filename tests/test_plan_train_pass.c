/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_train_pass.c - what plans for training predict of forward and backward, against
 * numbers worked out by hand from the shapes of the model.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan_train.h"
#include "tests/fixture.h"
#include "tests/given.h"
#include "tests/planned_train.h"
#include "tests/t.h"

/* Of planned_llama(): q, k, v, o; gate, up, down; two norms. BF16. */
#define LAYER (UINT64_C(2) * (4 * 1024 * 1024 + 3 * 2816 * 1024 + 2 * 1024))
#define NORM  (UINT64_C(2) * 1024)
#define HEAD  (UINT64_C(2) * 8192 * 1024)
#define RANK  8u
/* A and B of q_proj. */
#define ADAPTER (UINT64_C(2) * 2 * RANK * 1024)

/* Rates of the tiers that have a budget. */
static const char *
rates_of(const char *max_memory)
{
    return fixture_format("disk=500MB/s%s%s%s",
                          strstr(max_memory, "0=") ? ",0=1GB/s,0.memory=100GB/s" : "",
                          strstr(max_memory, "1=") ? ",1=2GB/s,1.memory=50GB/s" : "",
                          strstr(max_memory, "cpu=") ? ",cpu.memory=10GB/s" : "");
}

/* What is expected, at these rates. */
typedef struct expected {
    double forward;
    double backward;
    uint64_t link_bytes;
    uint64_t disk_bytes;
    int32_t bound;
    const char *tier;
} expected;

typedef struct run {
    planned p;
    berth_train_options train;
    berth_plan_options options;
} run;

static void
begin(run *r, int32_t method, const char *max_memory)
{
    r->train = planned_train(method, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    if (method == BERTH_TRAIN_LORA)
        r->train.lora_targets = "q_proj";
    r->options = planned_train_options(&r->train, max_memory);
    r->options.links = rates_of(max_memory);
}

static bool
plan(run *r, const char *folder, const char *map)
{
    if (map != NULL) {
        r->options.device_map = fixture_format("%s/map.json", fixture_folder());
        fixture_text(r->options.device_map, map);
    }
    planned_begin(&r->p, folder, &r->options);
    if (!CHECK_EQ(r->p.status, BERTH_OK)) {
        T_NOTE("%s", r->p.error.message);
        return false;
    }
    planned_check(&r->p); /* the text reads back, too */
    return true;
}

/* What a layer keeps for its backward pass: test_plan_train.c holds it against estimates. */
static uint64_t
kept(const run *r, const char *layer)
{
    berth_plan_layer out;

    CHECK_EQ(berth_plan_get_layer(r->p.plan, planned_layer(&r->p, layer), &out), BERTH_OK);
    return out.cache_bytes;
}

static bool
is_close(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void
check(const run *r, const expected *e)
{
    berth_plan_training t;

    CHECK_EQ(berth_plan_get_training(r->p.plan, &t), BERTH_OK);
    if (!CHECK(is_close(t.forward_seconds, e->forward)))
        T_NOTE("forward %.9g, expected %.9g", t.forward_seconds, e->forward);
    if (!CHECK(is_close(t.backward_seconds, e->backward)))
        T_NOTE("backward %.9g, expected %.9g", t.backward_seconds, e->backward);
    CHECK_EQ(t.pass_link_bytes, e->link_bytes);
    CHECK_EQ(t.pass_disk_bytes, e->disk_bytes);
    CHECK_EQ(t.pass_bound, e->bound);
    CHECK_EQ(t.pass_bound_tier, planned_tier(&r->p, e->tier));
}

/* ------------------------------------------------------------------------ in place */

/* Rows of the embedding are fetched one by one; all else is read, and more than once where
 * it is computed again. */
static void
test_resident(void)
{
    const char *const folder = planned_llama(3, false);

    for (uint64_t every = 0; every < 4; every++) {
        const uint64_t weights = 3 * LAYER + NORM + HEAD;
        uint64_t caches = 0;
        uint64_t forward;
        run r;

        begin(&r, BERTH_TRAIN_LORA, "0=4GiB,cpu=1GiB");
        r.train.checkpoint_every = every;
        if (plan(&r, folder, NULL)) {
            for (uint32_t l = 0; l < 3; l++)
                caches += kept(&r, fixture_format("model.layers.%u", l));
            forward = weights + caches + 3 * ADAPTER;
            check(&r, &(expected){ .forward = (double)forward / 100e9,
                                   .backward = (double)(forward + 3 * ADAPTER /* gradients */
                                                        + (every > 0 ? 3 * LAYER : 0))
                                               / 100e9,
                                   .bound = 0,
                                   .tier = "cuda:0" });
        }
        planned_end(&r.p);
    }
}

/* All weights: each has a gradient that is written, the embedding's, too. */
static void
test_full(void)
{
    const uint64_t weights = 2 * LAYER + NORM + HEAD;
    uint64_t caches;
    run r;

    begin(&r, BERTH_TRAIN_FULL, "0=4GiB,cpu=1GiB");
    if (plan(&r, planned_llama(2, false), NULL)) {
        caches = kept(&r, "model.layers.0") + kept(&r, "model.layers.1");
        check(&r, &(expected){ .forward = (double)(weights + caches) / 100e9,
                               .backward = (double)(weights + caches + weights + HEAD) / 100e9,
                               .bound = 0,
                               .tier = "cuda:0" });
    }
    planned_end(&r.p);
}

/* One device computes at a time. */
static void
test_two_devices(void)
{
    uint64_t first;
    uint64_t second;
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,1=4GiB,cpu=1GiB");
    if (plan(&r, planned_llama(3, false), "{\"\": 1, \"model.layers.0\": 0}")) {
        first = LAYER + kept(&r, "model.layers.0") + ADAPTER;
        second = 2 * LAYER + NORM + HEAD + 2 * (kept(&r, "model.layers.1") + ADAPTER);
        check(&r, &(expected){ .forward = (double)first / 100e9 + (double)second / 50e9,
                               .backward = (double)(first + ADAPTER) / 100e9
                                           + (double)(second + 2 * ADAPTER) / 50e9,
                               .bound = 0,
                               .tier = "cuda:1" });
    }
    planned_end(&r.p);
}

/* -------------------------------------------------------------------------- streamed */

#define AWAY "{\"\": 0, \"model.layers.1\": \"cpu\", \"model.layers.2\": \"disk\"}"

/* Twice over the link; what no checkpoint has is brought once more. */
static void
test_streamed(void)
{
    const char *const folder = planned_llama(4, false);

    for (uint64_t every = 0; every < 3; every++) {
        const uint64_t turns = every > 1 ? 2 : 1;
        run r;

        begin(&r, BERTH_TRAIN_LORA, "0=4GiB,cpu=1GiB,disk=inf");
        r.train.checkpoint_every = every;
        if (plan(&r, folder, AWAY)) /* two over the link, one of them from the disk */
            check(&r, &(expected){ .forward = (double)(2 * LAYER) / 1e9,
                                   .backward = (double)(turns * 2 * LAYER) / 1e9,
                                   .link_bytes = (1 + turns) * 2 * LAYER,
                                   .disk_bytes = (1 + turns) * LAYER,
                                   .bound = 1,
                                   .tier = "cuda:0" });
        planned_end(&r.p);
    }
}

/* What is brought is read where it arrives, as all else is. */
static void
test_slow_memory(void)
{
    uint64_t caches = 0;
    uint64_t forward;
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,cpu=1GiB,disk=inf");
    r.options.links = "0=1000GB/s,disk=1000GB/s,0.memory=1GB/s";
    if (plan(&r, planned_llama(4, false), AWAY)) {
        for (uint32_t l = 0; l < 4; l++)
            caches += kept(&r, fixture_format("model.layers.%u", l));
        forward = 4 * LAYER + NORM + HEAD + caches + 4 * ADAPTER;
        check(&r, &(expected){ .forward = (double)forward / 1e9,
                               .backward = (double)(forward + 4 * ADAPTER) / 1e9,
                               .link_bytes = 4 * LAYER,
                               .disk_bytes = 2 * LAYER,
                               .bound = 0,
                               .tier = "cuda:0" });
    }
    planned_end(&r.p);
}

static void
test_the_disk(void)
{
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,cpu=1GiB,disk=inf");
    if (plan(&r, planned_llama(4, false),
             "{\"\": 0, \"model.layers.1\": \"disk\", \"model.layers.2\": \"disk\"}"))
        check(&r, &(expected){ .forward = (double)(2 * LAYER) / 500e6,
                               .backward = (double)(2 * LAYER) / 500e6,
                               .link_bytes = 4 * LAYER,
                               .disk_bytes = 4 * LAYER,
                               .bound = 2,
                               .tier = "disk" });
    planned_end(&r.p);
}

/* Links work beside each other, the busiest counts; rows of an embedding do not. */
static void
test_two_links(void)
{
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,1=4GiB,cpu=1GiB");
    if (plan(&r, planned_llama(6, false),
             "{\"\": 0, \"model.embed_tokens\": \"cpu\", \"model.layers.4\": 1, "
             "\"model.layers.5\": 1, \"model.layers.0.mlp\": \"cpu\", "
             "\"model.layers.1.mlp\": \"cpu\", \"model.layers.2.mlp\": \"cpu\", "
             "\"model.layers.4.mlp\": \"cpu\", \"model.layers.5.mlp\": \"cpu\", "
             "\"lm_head\": 1}")) {
        const uint64_t mlp = UINT64_C(2) * 3 * 2816 * 1024;

        check(&r, &(expected){ .forward = (double)(3 * mlp) / 1e9,
                               .backward = (double)(3 * mlp) / 1e9,
                               .link_bytes = 10 * mlp,
                               .bound = 1,
                               .tier = "cuda:0" });
    }
    planned_end(&r.p);
}

/* The faster one is the busiest where so much more is brought over it. */
static void
test_the_second_link(void)
{
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,1=4GiB,cpu=1GiB");
    if (plan(&r, planned_llama(4, false),
             "{\"\": 0, \"model.layers.1\": 1, \"model.layers.2\": 1, \"model.layers.3\": 1, "
             "\"model.layers.0.mlp\": \"cpu\", \"model.layers.1.mlp\": \"cpu\", "
             "\"model.layers.2.mlp\": \"cpu\", \"model.layers.3.mlp\": \"cpu\"}")) {
        const uint64_t mlp = UINT64_C(2) * 3 * 2816 * 1024;

        check(&r, &(expected){ .forward = (double)(3 * mlp) / 2e9,
                               .backward = (double)(3 * mlp) / 2e9,
                               .link_bytes = 8 * mlp,
                               .bound = 1,
                               .tier = "cuda:1" });
    }
    planned_end(&r.p);
}

/* The processor reads what lies on the disk into its memory: there is no link. */
static void
test_the_processor(void)
{
    run r;

    begin(&r, BERTH_TRAIN_LORA, "cpu=4GiB,disk=inf");
    if (plan(&r, planned_llama(2, false), "{\"\": \"cpu\", \"model.layers.1\": \"disk\"}"))
        check(&r, &(expected){ .forward = (double)LAYER / 500e6,
                               .backward = (double)LAYER / 500e6,
                               .disk_bytes = 2 * LAYER,
                               .bound = 2,
                               .tier = "disk" });
    planned_end(&r.p);
}

/* ----------------------------------------------------------------------- where it ends */

/* Adapters of the only tensor of this layer, in units and milliseconds of given.h. */
static void
check_given(const char *model, uint32_t layer, bool is_again, double forward,
            double backward)
{
    const berthi_trained trained[] = {
        { .rows = 8, .columns = 16, .berth = layer, .part = BERTHI_TRAINED_LORA_A,
          .dtype = BERTH_BF16 },
        { .rows = 16, .columns = 8, .berth = layer, .part = BERTHI_TRAINED_LORA_B,
          .dtype = BERTH_BF16 },
    };
    const berthi_train_input train = {
        .about = { .method = BERTH_TRAIN_LORA,
                   .optimizer = "adamw_32bit",
                   .targets = "w",
                   .rank = 8,
                   .kind = BERTH_UPDATE_ADAMW,
                   .bits = 32,
                   .page_bytes = 4096 },
        .trained = trained,
        .count = 2,
    };
    berth_plan *plan = NULL;
    given g;

    given_begin(&g, model);
    given_tier(&g, BERTHI_TIER_GPU, GIVEN_NONE, 0, 1, 10);
    g.input.train = &train;
    g.layers[layer].is_again = is_again;
    CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK);
    CHECK(is_close(plan->training->about.forward_seconds, forward / 10e3));
    CHECK(is_close(plan->training->about.backward_seconds, backward / 10e3));
    berthi_plan_free(plan);
}

/* Below the first layer in which something learns there is no backward. */
static void
test_where_it_ends(void)
{
    static const char model[] = "layer t 0\nt.w 60 i\nlayer a 2\na.w 40 d\n"
                                "layer b 3\nb.w 40 d\nlayer h 0\nh.w 60 d\n";
    /* A and B are one each, and so are their gradients. */
    const double forward = 40 + 2 + 40 + 3 + 60 + 2;

    check_given(model, 2, false, forward, 40 + 3 + 60 + 2 + 2);
    check_given(model, 2, true, forward, 40 + 3 + 60 + 2 + 2 + 40);
}

/* Nothing but the embedding's rows makes the first layer another than those behind it. */
static void
test_the_first_layer(void)
{
    check_given("layer a 2\na.w 40 d\nlayer h 0\nh.w 60 d\n", 0, false, 40 + 2 + 60 + 2,
                40 + 2 + 60 + 2 + 2);
}

/* ------------------------------------------------------------------------------ kept */

/* A file of the plan has them as they were, rounded to nanoseconds; or they are refused. */
static void
test_kept_in_a_file(void)
{
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        { "\"passes\"", "\"passed\"" },
        { "\"bound_tier\": \"cuda:0\"", "\"bound_tier\": \"cuda:1\"" },
        { "\"bound\": \"link\"", "\"bound\": \"links\"" },
        { "\"forward\": ", "\"forward\": -" },
        { "\"backward\": ", "\"backward\": 9999999999" },
        { "\"link_bytes\": ", "\"link_bytes\": x" },
    };
    berth_plan_training before;
    berth_plan_training after;
    berth_plan *read = NULL;
    berth_error error;
    char *text;
    run r;

    begin(&r, BERTH_TRAIN_LORA, "0=4GiB,cpu=1GiB,disk=inf");
    if (!plan(&r, planned_llama(4, false), AWAY))
        return;
    text = planned_text(r.p.plan, NULL);
    CHECK_EQ(berth_plan_parse(r.p.context, text, strlen(text), "t", &read, NULL), BERTH_OK);
    CHECK_EQ(berth_plan_get_training(r.p.plan, &before), BERTH_OK);
    CHECK_EQ(berth_plan_get_training(read, &after), BERTH_OK);
    CHECK(fabs(after.forward_seconds - before.forward_seconds) <= 0.5000001e-9);
    CHECK(fabs(after.backward_seconds - before.backward_seconds) <= 0.5000001e-9);
    CHECK_EQ(after.pass_link_bytes, before.pass_link_bytes);
    CHECK_EQ(after.pass_disk_bytes, before.pass_disk_bytes);
    CHECK_EQ(after.pass_bound, before.pass_bound);
    CHECK_EQ(after.pass_bound_tier, before.pass_bound_tier);
    berth_plan_destroy(read);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const passes = strstr(text, "\"passes\"");
        const char *const at = strstr(passes, cases[i].from);
        const char *edited;

        if (!CHECK(at != NULL))
            continue;
        edited = fixture_format("%.*s%s%s", (int)(at - text), text, cases[i].to,
                                at + strlen(cases[i].from));
        CHECK_EQ(berth_plan_parse(r.p.context, edited, strlen(edited), "t", &read, &error),
                 BERTH_EFORMAT);
        CHECK_EQ(error.reason, BERTH_REASON_PLAN_JSON);
    }
    free(text);
    planned_end(&r.p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_resident);
    T_RUN(test_full);
    T_RUN(test_two_devices);
    T_RUN(test_streamed);
    T_RUN(test_slow_memory);
    T_RUN(test_the_disk);
    T_RUN(test_two_links);
    T_RUN(test_the_second_link);
    T_RUN(test_the_processor);
    given_start();
    T_RUN(test_where_it_ends);
    T_RUN(test_the_first_layer);
    given_end();
    T_RUN(test_kept_in_a_file);
    T_MAIN_END;
}
