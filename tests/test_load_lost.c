/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_lost.c - a device is lost while a model is loaded onto it or passed over:
 * other models of the process, on another device and in host memory, are not touched.
 */
#include <pthread.h>

#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define LAYERS 2u
#define STEP   3u /* of the device's calls, between those at which it is lost */

/* ----------------------------------------------------------------------- bystanders */

/* Two models that have nothing to do with the device that is lost. */
typedef struct bystanders {
    const char *folder;
    loaded device; /* parts of layers in host memory and on the disk */
    loaded host;   /* parts of layers on the disk */
    pthread_t thread;
} bystanders;

static const char *const device_pins[] = {"model.layers.*.mlp.up_proj=cpu",
                                          "model.layers.*.mlp.down_proj=disk"};
static const char *const host_pins[] = {"model.layers.*.mlp.down_proj=disk"};

static void
begin_one(loaded *l, const char *folder, berth_plan_options *options, const char *words)
{
    loaded_begin(l, folder, options, words);
    loaded_load(l);
    CHECK_EQ(l->status, BERTH_OK);
}

static bool
have_begun(bystanders *b)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    b->folder = loaded_llama(LAYERS, "BF16", 1);
    options.pins = device_pins;
    options.pin_count = 2;
    begin_one(&b->device, b->folder, &options, "sim:64MiB,backing=sealed");
    options = loaded_options("cpu=64MiB,disk=inf");
    options.pins = host_pins;
    options.pin_count = 1;
    begin_one(&b->host, b->folder, &options, NULL);
    return b->device.status == BERTH_OK && b->host.status == BERTH_OK;
}

static void
end(bystanders *b)
{
    loaded_end(&b->device);
    loaded_end(&b->host);
}

/* A pass sees every tensor where it should be. */
static void
pass(bystanders *b)
{
    CHECK_EQ(passed(&b->device, 1), LAYERS * 10 + 3);
    CHECK_EQ(passed(&b->host, 1), LAYERS * 10 + 3);
}

static void *
pass_meanwhile(void *user)
{
    pass(user);
    return NULL;
}

static void
check_untouched(bystanders *b)
{
    berth_device device;

    loaded_check(&b->device, b->folder);
    loaded_check(&b->host, b->folder);
    CHECK_EQ(berth_devices_get(b->device.devices, 0, &device), BERTH_OK);
    CHECK_LT(device.free_bytes, device.memory_bytes);
    pass(b);
}

/* ----------------------------------------------------------------------------- lost */

/* How often a device was lost, */
typedef struct losses {
    uint32_t in_load;
    uint32_t in_pass; /* and in the one behind it */
} losses;

/*
 * The device of a third model is lost, each time some of its calls later, while the
 * others are passed over; it is of the context of one of them.
 */
static losses
lose_each(bystanders *b, loaded_attempt *attempt)
{
    losses lost = {.in_load = 0};
    berth_status status = BERTH_ENODEV;

    for (uint32_t call = 1; status != BERTH_OK; call += STEP) {
        loaded *const other = call % 2 > 0 ? &b->device : &b->host;
        berth_error error = {.status = BERTH_OK};

        attempt->words = fixture_format("sim:64MiB,lose=%u", call);
        if (!CHECK_EQ(berthi_sys_thread_create(&b->thread, 256 * 1024, pass_meanwhile, b),
                      0))
            break;
        status = loaded_once(attempt, other->p.context, &error);
        pthread_join(b->thread, NULL);
        check_untouched(b);
        CHECK(status == BERTH_OK || error.reason == BERTH_REASON_DEVICE_LOST);
        lost.in_load += status != BERTH_OK && !attempt->has_loaded;
        lost.in_pass += status != BERTH_OK && attempt->has_loaded;
    }
    return lost;
}

static losses
check_lost(loaded_attempt *attempt)
{
    losses lost = {.in_load = 0};
    bystanders b;

    attempt->has_passes = true;
    attempt->has_company = true;
    if (have_begun(&b)) {
        attempt->folder = b.folder;
        lost = lose_each(&b, attempt);
    }
    end(&b);
    CHECK_GT(lost.in_load, 0);
    T_NOTE("a device was lost %u times in a load, %u times in a pass", lost.in_load,
           lost.in_pass);
    return lost;
}

static void
test_lost_while_streaming(void)
{
    loaded_attempt attempt = {
        .max_memory = "0=64MiB,cpu=64MiB,disk=inf", .pins = device_pins, .pin_count = 2};

    CHECK_GT(check_lost(&attempt).in_pass, 0);
}

static void
test_lost_while_encoding(void)
{
    loaded_attempt attempt = {.max_memory = "0=64MiB,cpu=64MiB",
                              .type = BERTH_ENCODING_NF4,
                              .is_double = true,
                              .pins = device_pins,
                              .pin_count = 1};

    (void)check_lost(&attempt);
}

/* -------------------------------------------------------------------- one machine */

#define SHARED "0=64MiB,1=64MiB,cpu=64MiB,disk=inf"

static const char *const first_pins[] = {"model.layers.*.mlp.up_proj=cpu", "model=cuda:0",
                                         "lm_head=cuda:0"};
static const char *const second_pins[] = {"model.layers.*.mlp.up_proj=cpu",
                                          "model.layers.*.mlp.down_proj=disk",
                                          "model=cuda:1", "lm_head=cuda:1"};

static berth_status
lease_each(berth_model *model, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < LAYERS && status == BERTH_OK; i++) {
        status = berth_layer_acquire(model, i, NULL, error);
        if (status == BERTH_OK)
            status = berth_layer_release(model, i, NULL, error);
    }
    return status;
}

/* Loaded onto the first device of a machine, where `other` lies on the second; leased. */
static berth_status
use_first(const loaded *other, berth_error *error)
{
    berth_plan_options options = loaded_options(SHARED);
    berth_load_options load;
    berth_model *model = NULL;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    options.pins = first_pins;
    options.pin_count = 3;
    berth_load_options_init(&load);
    load.devices = other->devices;
    status =
        berth_plan_create(other->p.context, other->p.checkpoint, &options, &plan, error);
    if (status == BERTH_OK)
        status = berth_load_start(other->p.context, other->p.checkpoint, plan, &load,
                                  &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    if (status == BERTH_OK)
        status = lease_each(model, error);
    berth_model_destroy(model);
    berth_plan_destroy(plan);
    return status;
}

/* What is on the second device, whose plan names the first one, too. */
static void
check_second(loaded *l, const char *folder)
{
    berth_lease_summary leases;

    loaded_check(l, folder);
    CHECK_EQ(passed(l, 2), LAYERS * 10 + 3);
    berth_model_leases(l->model, &leases);
    CHECK_EQ(leases.acquired, 2 * LAYERS);
    CHECK_GT(leases.disk_bytes, 0);
}

/* From the first call of its own on that the loss does not hit the load before. */
static void
test_lost_beside(void)
{
    const char *const folder = loaded_llama(LAYERS, "BF16", 1);
    berth_status status = BERTH_ENODEV;
    uint32_t lost = 0;

    for (uint32_t call = 1; status != BERTH_OK; call++) {
        berth_plan_options options = loaded_options(SHARED);
        berth_error error = {.status = BERTH_OK};
        loaded l;

        options.pins = second_pins;
        options.pin_count = 4;
        loaded_begin(&l, folder, &options,
                     fixture_format("sim:64MiB,lose=%u;sim:64MiB,backing=sealed", call));
        loaded_load(&l);
        if (l.status == BERTH_OK) {
            status = use_first(&l, &error);
            lost += status != BERTH_OK;
            CHECK(status == BERTH_OK || error.reason == BERTH_REASON_DEVICE_LOST);
            check_second(&l, folder);
        } else {
            CHECK_EQ(l.error.reason, BERTH_REASON_DEVICE_LOST);
        }
        loaded_end(&l);
    }
    CHECK_GT(lost, 0);
    T_NOTE("a device was lost %u times beside another", lost);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lost_while_streaming);
    T_RUN(test_lost_while_encoding);
    T_RUN(test_lost_beside);
    T_MAIN_END;
}
