/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fault_count.c - every allocation, system call and device call of a load and of the
 * passes behind it fails in turn, for models in every place, encoding and way of reading:
 * 20,000 times in all. What fails is said, and nothing is kept: tests/fault.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/vacant.h"

/* Sanitizers make it ten times slower, and see more in a tenth of it. */
#define WANTED (T_IS_SANITIZED ? 2000u : 20000u)

/* Where a model is, how it is encoded, how it is read. */
typedef struct shape {
    const char *memory;
    const char *words; /* devices; NULL: host memory alone */
    const char *pins[3];
} shape;

static const shape shapes[] = {
    {"0=8MiB,cpu=64MiB,disk=inf", "sim:8MiB", {"model.layers=disk"}},
    {"cpu=64MiB", NULL, {NULL}},
    {"0=8MiB,cpu=64MiB", "sim:8MiB", {"model.layers=cpu"}},
    {"0=64MiB,1=64MiB,cpu=64MiB,disk=inf",
     "sim:64MiB*2",
     {"model.layers.0.input_layernorm=cuda:0", "model.layers.1.input_layernorm=cuda:1",
      "model.layers=disk"}},
    {"0=8MiB,cpu=64MiB", "sim:8MiB", {NULL}},
    {"cpu=64MiB,disk=inf", NULL, {"model.layers=disk"}},
    {"0=8MiB,cpu=64MiB,disk=inf",
     "sim:8MiB,pin=0B",
     {"model.layers.*.mlp=disk", "model.layers=cpu"}},
    {"0=8MiB,1=8MiB,cpu=64MiB", "sim:8MiB*2", {NULL}},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

typedef struct attempt {
    const shape *where;
    const char *folder;
    int32_t type; /* berth_encoding */
    int32_t io;   /* berth_io */
    bool no_uring;
    uint32_t slots;
} attempt;

static berth_plan_options
options_of(const attempt *a)
{
    berth_plan_options options = loaded_options(a->where->memory);

    options.type = a->type;
    options.double_quant = a->type == BERTH_ENCODING_NF4;
    options.slots = a->slots;
    options.pins = a->where->pins;
    while (options.pin_count < 3 && a->where->pins[options.pin_count] != NULL)
        options.pin_count++;
    return options;
}

static berth_status
lease_all(berth_model *model, const berth_plan *plan, berth_error *error)
{
    berth_status status = BERTH_OK;
    berth_plan_summary summary;

    berth_plan_get(plan, &summary);
    for (uint32_t i = 0; i < summary.layer_count && status == BERTH_OK; i++) {
        status = berth_layer_acquire(model, i, NULL, error);
        if (status == BERTH_OK)
            status = berth_layer_release(model, i, NULL, error);
    }
    return status;
}

/* A fault_function: opens, plans, loads, leases, gives everything back. */
static berth_status
attempt_once(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    const berth_plan_options options = options_of(a);
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    berth_load_options_init(&load);
    load.io = a->io;
    load.no_uring = a->no_uring;
    load.workers = 1;
    load.readers = 1;
    status = berth_checkpoint_open(context, a->folder, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    if (status == BERTH_OK && a->where->words != NULL)
        status = berth_devices_open(context, a->where->words, &devices, error);
    load.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    if (status == BERTH_OK)
        status = lease_all(model, plan, error);
    berth_model_destroy(model);
    vacant_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

/* Number `number` of all combinations. */
static attempt
attempt_of(uint32_t number, const char *folder)
{
    static const int32_t types[] = {BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                    BERTH_ENCODING_INT8, BERTH_ENCODING_FP4};
    static const int32_t ways[] = {BERTH_IO_AUTO, BERTH_IO_DIRECT, BERTH_IO_BUFFERED};
    const uint32_t round = number / SHAPES;
    const shape *const where = &shapes[number % SHAPES];
    /* What is streamed from the disk is streamed as it is stored. */
    const bool is_stored = strstr(where->memory, "disk") != NULL;

    return (attempt){.where = where,
                     .folder = folder,
                     .type = is_stored ? BERTH_ENCODING_NATIVE : types[(round + number) % 4],
                     .io = ways[round % 3],
                     .no_uring = (round + number / 2) % 2 == 0,
                     .slots = 1 + round % 3};
}

/* Nothing fails: else failures would prove nothing. */
static bool
is_sound(attempt *a)
{
    berth_context *context;
    berth_error error;
    berth_status status;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    status = attempt_once(a, context, &error);
    berth_context_destroy(context);
    if (status != BERTH_OK)
        T_NOTE("%s: %s", a->where->memory, error.message);
    return CHECK_EQ(status, BERTH_OK);
}

static void
test_twenty_thousand(void)
{
    const char *const folder = leased_llama(2, 2);
    const uint64_t begin_ns = berthi_sys_now_ns();
    uint64_t memory = 0;
    uint64_t system = 0;
    uint64_t device = 0;
    uint32_t number = 0;

    for (; memory + system + device < WANTED; number++) {
        attempt a = attempt_of(number, folder);
        fault_counts counts;

        T_REQUIRE(is_sound(&a));
        counts = fault_loop("load and leases", attempt_once, &a);
        memory += counts.memory;
        system += counts.system;
        if (a.where->words != NULL)
            device += fault_loop_devices("load and leases", attempt_once, &a).device;
        CHECK_GT(counts.memory, 50);
        CHECK_GT(counts.system, 50);
    }
    T_NOTE("%" PRIu64 " injections into %u ways to load and lease: %" PRIu64
           " allocations, %" PRIu64 " system calls, %" PRIu64 " device calls; %.1f s",
           memory + system + device, number, memory, system, device,
           1e-9 * (double)(berthi_sys_now_ns() - begin_ns));
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_twenty_thousand);
    return t_end();
}
