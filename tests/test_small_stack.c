/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_small_stack.c - how much stack calls take of a thread of the caller's: no more than berth.h
 * says, with some to spare for what is below berth.
 */
#define _GNU_SOURCE

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/berth.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/stacked.h"
#include "tests/t.h"
#include "tests/verified.h"

#define KIB 1024u
#define PROMISED (192u * KIB) /* berth.h: Threads */
#define SPARE    (64u * KIB)  /* of it: libraries, signals, a compiler's other choices */
#define ROOM     (1024u * KIB)
#define FILL     0xA5

#define PARAMETERS 2u
#define ELEMENTS   UINT64_C(5000)

/* What calls are made with. Made beforehand, with all the stack there is. */
typedef struct given {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_devices *devices;
    berth_plan *plan;
    const char *model;
    const char *deep;    /* the same, with a config.json as deep as there may be */
    const char *experts; /* stacked */
    const char *many;    /* layers */
    const char *scratch; /* a folder */
} given;

static given g;

/* --------------------------------------------------------------------------- calls */

static void
ignore_finding(void *user, const berth_finding *finding)
{
    (void)user;
    (void)finding;
}

static void
ignore_line(void *user, int32_t level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static void
make_context(void)
{
    berth_context_options options;
    berth_context *context;
    berth_devices *devices;
    static berth_host host;

    berth_context_options_init(&options);
    options.log = ignore_line;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_host_get(context, &host, NULL), BERTH_OK);
    CHECK_EQ(berth_devices_open(context, "sim:64MiB*2", &devices, NULL), BERTH_OK);
    berth_devices_close(devices);
    berth_context_destroy(context);
}

static void
open_checkpoint(void)
{
    berth_open_options options;
    berth_checkpoint *checkpoint;

    berth_open_options_init(&options);
    options.finding = ignore_finding;
    options.keep_going = 1;
    options.strict = 1;
    CHECK_EQ(berth_checkpoint_open(g.context, g.model, &options, &checkpoint, NULL),
             BERTH_OK);
    berth_checkpoint_close(checkpoint);
    CHECK_EQ(berth_checkpoint_open(g.context, g.scratch, &options, &checkpoint, NULL),
             BERTH_ENOENT);
}

static void
verify_and_manifest(void)
{
    berth_verify_options options;
    berth_job *job;

    berth_verify_options_init(&options);
    options.finding = ignore_finding;
    for (int32_t mode = BERTH_MANIFEST_WRITE; mode >= BERTH_MANIFEST_CHECK; mode--) {
        options.manifest_mode = mode;
        options.overwrite = mode == BERTH_MANIFEST_WRITE;
        CHECK_EQ(berth_verify_start(g.context, g.checkpoint, &options, &job, NULL), BERTH_OK);
        CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    }
}

static void
make_plans(void)
{
    static const char *const pins[] = { "lm_head=cuda:0" };
    static const char *const memories[] = { "0=8MiB,1=8MiB,cpu=1GiB,disk=1GiB",
                                            "0=1MiB,1=1MiB,cpu=1MiB", "0=64KiB,cpu=64KiB" };
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_INT8 };

    for (uint32_t i = 0; i < 9; i++) {
        berth_plan_options options = loaded_options(memories[i / 3]);
        berth_plan *plan;

        options.type = types[i % 3];
        options.finding = ignore_finding;
        options.links = "0=gen4x16,disk=7GB/s,0.memory=900GB/s";
        options.pins = pins;
        options.pin_count = 1;
        (void)berth_plan_create(g.context, g.checkpoint, &options, &plan, NULL);
        berth_plan_destroy(plan);
    }
}

/* Searches are as long as there are layers and devices. */
static void
plan_many_layers(void)
{
    static const char *const memories[] = {
        "0=300MiB,1=300MiB,2=300MiB,3=300MiB,cpu=8GiB,disk=8GiB",
        "0=20MiB,1=20MiB,2=20MiB,3=20MiB,cpu=64MiB",
    };
    berth_checkpoint *checkpoint;

    CHECK_EQ(berth_checkpoint_open(g.context, g.many, NULL, &checkpoint, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options(memories[i]);
        berth_plan *plan;

        CHECK_EQ(berth_plan_create(g.context, checkpoint, &options, &plan, NULL),
                 i == 0 ? BERTH_OK : BERTH_ENOFIT);
        berth_plan_destroy(plan);
    }
    berth_checkpoint_close(checkpoint);
}

static void
make_plans_of_maps(void)
{
    static const char *const modes[] = { "auto", "balanced", "balanced_low_0", "sequential" };

    for (uint32_t i = 0; i < 4; i++) {
        berth_plan_options options = loaded_options("0=8MiB,1=8MiB,cpu=1GiB");
        berth_plan *plan;

        options.mode = modes[i];
        options.reserve_share = 0;
        options.finding = ignore_finding;
        CHECK_EQ(berth_plan_create(g.context, g.checkpoint, &options, &plan, NULL), BERTH_OK);
        berth_plan_destroy(plan);
    }
}

static void
make_plans_of_training(void)
{
    static const char *const memories[] = { "0=256MiB,cpu=1GiB", "0=1MiB,cpu=1MiB" };

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options(memories[i]);
        berth_train_options train;
        berth_plan *plan;

        berth_train_options_init(&train);
        train.method = BERTH_TRAIN_LORA;
        train.optimizer = "paged_adamw_8bit";
        options.context = 64;
        options.type = BERTH_ENCODING_NF4;
        options.train = &train;
        options.finding = ignore_finding;
        CHECK_EQ(berth_plan_create(g.context, g.checkpoint, &options, &plan, NULL),
                 i == 0 ? BERTH_OK : BERTH_ENOFIT);
        berth_plan_destroy(plan);
    }
}

static int
put_text(void *user, const char *text, size_t length)
{
    return fwrite(text, 1, length, user) == length ? 0 : 1;
}

static void
print_and_read_plan(void)
{
    const char *const path = fixture_format("%s/plan.json", g.scratch);
    FILE *const file = fopen(path, "wb");
    berth_plan *plan;

    CHECK_EQ(berth_plan_print(g.plan, put_text, file, NULL), BERTH_OK);
    fclose(file);
    CHECK_EQ(berth_plan_open(g.context, path, &plan, NULL), BERTH_OK);
    CHECK_EQ(berth_plan_check(plan, g.context, g.checkpoint, "0=1GiB,cpu=1GiB",
                              ignore_finding, NULL, NULL),
             BERTH_OK);
    berth_plan_destroy(plan);
}

static void
follow_files(void)
{
    const char *const map = fixture_format("%s/map.json", g.scratch);
    const char *const links = fixture_format("%s/links.json", g.scratch);
    berth_plan_options options = loaded_options("0=32MiB,cpu=1GiB");
    berth_plan *plan;

    fixture_text(map, "{\"\": 0, \"model.layers.2\": \"cpu\"}");
    fixture_text(links, "{\"links\": []}");
    options.device_map = map;
    options.finding = ignore_finding;
    CHECK_EQ(berth_plan_create(g.context, g.checkpoint, &options, &plan, NULL), BERTH_OK);
    berth_plan_destroy(plan);
    options.link_file = links;
    CHECK_EQ(berth_plan_create(g.context, g.checkpoint, &options, &plan, NULL),
             BERTH_EFORMAT);
}

static void
load_and_lease(void)
{
    berth_load_options options;
    berth_check_options check;
    berth_model *model;
    berth_job *job;

    berth_load_options_init(&options);
    options.devices = g.devices;
    CHECK_EQ(berth_load_start(g.context, g.checkpoint, g.plan, &options, &job, NULL),
             BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &model, NULL), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(model, 1, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_layer_release(model, 1, NULL, NULL), BERTH_OK);
    berth_check_options_init(&check);
    CHECK_EQ(berth_check_start(model, &check, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_model_destroy(model);
}

static void
convert_both_ways(void)
{
    const char *const output = fixture_format("%s/nf4", g.scratch);
    berth_convert_options options;
    berth_checkpoint *quantized;
    berth_job *job;

    berth_convert_options_init(&options);
    options.output = output;
    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    options.overwrite = 1;
    options.finding = ignore_finding;
    for (int32_t is_dry = 1; is_dry >= 0; is_dry--) {
        options.dry_run = is_dry;
        CHECK_EQ(berth_convert_start(g.context, g.checkpoint, &options, &job, NULL), BERTH_OK);
        CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    }
    options.resume = 1;
    options.overwrite = 0;
    CHECK_EQ(berth_convert_start(g.context, g.checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(g.context, output, NULL, &quantized, NULL), BERTH_OK);
    options.output = fixture_format("%s/plain", g.scratch);
    options.type = BERTH_ENCODING_NATIVE;
    options.double_quant = 0;
    options.resume = 0;
    CHECK_EQ(berth_convert_start(g.context, quantized, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_checkpoint_close(quantized);
}

static void
compare(void)
{
    static berth_diff_report report;
    berth_diff_options options;
    berth_job *job;

    berth_diff_options_init(&options);
    options.report = &report;
    CHECK_EQ(berth_diff_start(g.context, g.checkpoint, g.checkpoint, &options, &job, NULL),
             BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
}

/* As deep as JSON may be: what reads it calls itself. */
static void
read_deep_config(void)
{
    berth_convert_options options;
    berth_checkpoint *checkpoint;
    berth_job *job;

    CHECK_EQ(berth_checkpoint_open(g.context, g.deep, NULL, &checkpoint, NULL), BERTH_OK);
    berth_convert_options_init(&options);
    options.output = fixture_format("%s/deep", g.scratch);
    options.type = BERTH_ENCODING_INT8;
    CHECK_EQ(berth_convert_start(g.context, checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_checkpoint_close(checkpoint);
}

static void
plan_experts(void)
{
    static const char *const memories[] = { "0=70MiB,cpu=inf", "0=8KiB,cpu=64KiB" };
    berth_checkpoint *checkpoint;

    CHECK_EQ(berth_checkpoint_open(g.context, g.experts, NULL, &checkpoint, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options(memories[i]);
        berth_plan *plan;

        options.finding = ignore_finding;
        CHECK_EQ(berth_plan_create(g.context, checkpoint, &options, &plan, NULL),
                 i == 0 ? BERTH_OK : BERTH_ENOFIT);
        berth_plan_destroy(plan);
    }
    berth_checkpoint_close(checkpoint);
}

static void
make_estimate(void)
{
    static const uint64_t budgets[] = { UINT64_C(1) << 20 };
    static const uint64_t contexts[] = { 64, 4096 };
    berth_estimate_options options;
    berth_train_options train;
    berth_estimate *estimate;
    berth_shape *shape;

    CHECK_EQ(berth_shape_open(g.context, g.model, NULL, &shape, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        berth_estimate_options_init(&options);
        berth_train_options_init(&train);
        options.budgets = budgets;
        options.budget_count = 1;
        options.train = i == 0 ? NULL : &train;
        options.contexts = i == 0 ? contexts : NULL;
        options.context_count = i == 0 ? 2 : 0;
        options.tokens = "10\n500\n20\n";
        options.tokens_bytes = 10;
        CHECK_EQ(berth_estimate_create(g.context, shape, &options, &estimate, NULL), BERTH_OK);
        berth_estimate_destroy(estimate);
    }
    berth_shape_close(shape);
}

static void
update_by(const berth_optimizer_group *group, const berth_parameter *parameters,
          const berth_gradient *gradients, const char *path)
{
    berth_optimizer_options options;
    berth_step_options step;
    berth_step_report report;
    berth_optimizer *optimizer;

    berth_optimizer_options_init(&options);
    options.states_dir = g.scratch;
    CHECK_EQ(berth_optimizer_create(g.context, group, 1, parameters, PARAMETERS, &options,
                                    &optimizer, NULL),
             BERTH_OK);
    berth_step_options_init(&step);
    step.has_norm = 1;
    step.report = &report;
    CHECK_EQ(berth_optimizer_step(optimizer, gradients, &step, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_save(optimizer, path, 1, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_load(optimizer, path, NULL), BERTH_OK);
    berth_optimizer_destroy(optimizer);
}

static void
update_parameters(void)
{
    static float values[PARAMETERS][ELEMENTS];
    static float gradient[ELEMENTS];
    static const uint64_t shape = ELEMENTS;
    static const int32_t places[] = { BERTH_STATES_DEVICE, BERTH_STATES_DISK };
    const berth_parameter parameters[PARAMETERS] = {
        { .name = "a", .shape = &shape, .rank = 1, .dtype = BERTH_F32, .values = values[0] },
        { .name = "b", .shape = &shape, .rank = 1, .dtype = BERTH_F32, .values = values[1] },
    };
    const berth_gradient gradients[PARAMETERS] = { { .values = gradient, .dtype = BERTH_F32 },
                                                   { .values = gradient, .dtype = BERTH_F32 } };
    const char *const path = fixture_format("%s/states", g.scratch);

    for (uint32_t i = 0; i < 2; i++) {
        berth_optimizer_group group;

        CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
        group.place = places[i];
        update_by(&group, parameters, gradients, path);
    }
}

static void
measure_links(void)
{
    berth_bench_options options;
    berth_bench *bench;
    berth_job *job;

    berth_bench_options_init(&options);
    options.devices = g.devices;
    options.seconds = 1e-6;
    options.memory_bytes = UINT64_C(1) << 20;
    options.ring_bytes = UINT64_C(1) << 20;
    CHECK_EQ(berth_bench_start(g.context, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_bench_finish(job, &bench, NULL), BERTH_OK);
    berth_bench_destroy(bench);
}

/* ----------------------------------------------------------------------- measuring */

static void *
run_on_thread(void *user)
{
    void (*const *const call)(void) = user;

    (*call)();
    return NULL;
}

/* Runs the call on a stack that is known, and looks how far down it was written. */
static size_t
stack_of(void (*call)(void))
{
    unsigned char *const stack = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    size_t untouched = 0;

    if (!CHECK(stack != MAP_FAILED))
        return ROOM;
    memset(stack, FILL, ROOM);
    pthread_attr_init(&attributes);
    CHECK_EQ(pthread_attr_setstack(&attributes, stack, ROOM), 0);
    if (CHECK_EQ(pthread_create(&thread, &attributes, run_on_thread, &call), 0))
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (untouched < ROOM && stack[untouched] == FILL)
        untouched++;
    munmap(stack, ROOM);
    return ROOM - untouched;
}

typedef struct named_call {
    const char *name;
    void (*make)(void);
} named_call;

static const named_call calls[] = {
    { "context, devices", make_context },
    { "open", open_checkpoint },
    { "verify", verify_and_manifest },
    { "plan", make_plans },
    { "plan, many layers", plan_many_layers },
    { "plan, maps", make_plans_of_maps },
    { "plan, training", make_plans_of_training },
    { "plan, files", follow_files },
    { "plan, experts", plan_experts },
    { "plan, JSON", print_and_read_plan },
    { "load, lease, check", load_and_lease },
    { "convert", convert_both_ways },
    { "convert, deep JSON", read_deep_config },
    { "diff", compare },
    { "estimate", make_estimate },
    { "optimizer", update_parameters },
    { "bench", measure_links },
};

#define DEPTH 125 /* and two around it: BERTHI_SCAN_DEPTH */

static const char *
make_deep(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    char text[2 * DEPTH + 200];
    char *end;

    memset(text, 0, sizeof text);
    strcpy(text, "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
                 "\"num_hidden_layers\": 2, \"deep\": {\"a\": ");
    end = text + strlen(text);
    memset(end, '[', DEPTH);
    memset(end + DEPTH, ']', DEPTH);
    strcpy(end + 2 * DEPTH, "}}");
    fixture_text(fixture_format("%s/config.json", folder), text);
    return folder;
}

static void
begin(void)
{
    berth_plan_options options = loaded_options("0=8MiB,cpu=1GiB");

    memset(&g, 0, sizeof g);
    g.model = loaded_llama(3, "BF16", 2);
    g.deep = make_deep();
    g.experts = stacked_make(&stacked_large);
    g.many = planned_llama(64, false);
    g.scratch = fixture_folder();
    CHECK_EQ(berth_context_create(NULL, &g.context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(g.context, g.model, NULL, &g.checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berth_devices_open(g.context, "sim:64MiB", &g.devices, NULL), BERTH_OK);
    CHECK_EQ(berth_plan_create(g.context, g.checkpoint, &options, &g.plan, NULL), BERTH_OK);
}

static void
end(void)
{
    berth_plan_destroy(g.plan);
    berth_devices_close(g.devices);
    berth_checkpoint_close(g.checkpoint);
    berth_context_destroy(g.context);
}

static void
test_calls_need_no_more_than_is_said(void)
{
    const char *most = "";
    size_t most_bytes = 0;

    if (T_IS_SANITIZED)
        T_SKIP("sanitizers put more on the stack");
    begin();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const size_t bytes = stack_of(calls[i].make);

        if (!CHECK_LE(bytes, PROMISED - SPARE))
            T_NOTE("%s: %zu KiB of stack", calls[i].name, bytes / KIB);
        if (bytes > most_bytes) {
            most = calls[i].name;
            most_bytes = bytes;
        }
    }
    T_NOTE("most is taken by %s: %zu KiB of stack", most, most_bytes / KIB);
    end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_calls_need_no_more_than_is_said);
    T_MAIN_END;
}
