/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hung_copies.c - a device whose copies hang: loads and leases end with a status in
 * time, models go, and what the copies still use is given back when they end.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/sliced.h"
#include "tests/t.h"

#define WAIT_MS 100u
#define PLACES 64u /* no test has so many copies */

static void
check_error(const berth_error *error, uint64_t wait_ms)
{
    CHECK_EQ(error->status, BERTH_EIO);
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK(error->tensor[0] != '\0');
    CHECK_CONTAINS(error->message,
                   fixture_format("cuda:0 has not finished its copies for %llu milliseconds",
                                  (unsigned long long)wait_ms));
}

/* -------------------------------------------------------------------------- loads */

typedef struct kind {
    const char *words;
    const char *stored; /* as what; NULL: BF16 */
    int32_t type;
    bool is_double;
    uint32_t ranks;     /* 0: all of it is loaded; else the second one of so many */
    bool is_turned;     /* a GPT-2; else a Llama */
} kind;

/* What is cast, columns and what is turned are copied from where workers put them together. */
static const kind kinds[] = {
    { "sim:64MiB,clock=real", NULL, BERTH_ENCODING_NATIVE, false, 0, false },
    { "sim:64MiB,clock=real", NULL, BERTH_ENCODING_NF4, true, 0, false },
    { "sim:64MiB,h2d=1GB/s", NULL, BERTH_ENCODING_NATIVE, false, 0, false },
    { "sim:64MiB,clock=real", "F32", BERTH_ENCODING_NATIVE, false, 0, false },
    { "sim:64MiB,clock=real", "F32", BERTH_ENCODING_NF4, true, 0, false },
    { "sim:64MiB,clock=real", NULL, BERTH_ENCODING_NATIVE, false, 2, false },
    { "sim:64MiB,clock=real", NULL, BERTH_ENCODING_NF4, false, 0, true },
};

/* The bytes of a file, all of them. */
static bool
is_as_stored(const kind *k)
{
    return k->type == BERTH_ENCODING_NATIVE && k->stored == NULL && k->ranks == 0;
}

/* Rows and columns of its matrices are large enough for more than a driver's buffer. */
static const sliced_sizes cut = {
    .type = "llama",
    .hidden = 256,
    .heads = 8,
    .kv_heads = 8,
    .head_dim = 32,
    .inner = 512,
    .words = 512,
};

static const char *
folder_of(const kind *k, uint32_t shards)
{
    if (k->ranks > 0)
        return sliced_make(&cut);
    if (k->is_turned)
        return loaded_gpt2("BF16", 256, shards);
    return loaded_llama(2, k->stored != NULL ? k->stored : "BF16", shards);
}

static void
begin(loaded *l, const char *folder, const kind *k)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");

    options.type = k->type;
    options.double_quant = k->is_double;
    options.dtype = k->stored != NULL ? BERTH_BF16 : options.dtype;
    options.ranks = k->ranks;
    options.rank = k->ranks > 0 ? 1 : 0;
    loaded_begin(l, folder, &options, k->words);
}

/*
 * Loads, and the copy after `before` others hangs; false: there are not so many. A machine
 * on which a read takes that long gets more patience.
 */
static bool
has_load_hung(loaded *l, const hung_account *first, uint64_t before)
{
    for (l->options.wait_ms = HUNG_FIRST_MS; l->options.wait_ms < 20000;
         l->options.wait_ms *= 2) {
        const uint64_t begin_ns = berthi_sys_now_ns();
        uint64_t end_ns;

        hung_copy(l->devices, before);
        loaded_load(l);
        end_ns = berthi_sys_now_ns();
        if (l->status == BERTH_OK)
            return hung_has(l->devices);
        if (hung_has(l->devices) && l->error.tensor[0] != '\0') {
            CHECK_GE(end_ns - begin_ns, l->options.wait_ms * HUNG_MS_NS);
            CHECK_LT(end_ns - begin_ns, l->options.wait_ms * HUNG_MS_NS + HUNG_SLACK_NS);
            check_error(&l->error, l->options.wait_ms);
            return true;
        }
        hung_recover(l, first);
    }
    CHECK_EQ(l->status, BERTH_OK);
    return false;
}

/* True where the copy after `before` others is one of the load's. */
static bool
check_load(const kind *k, const char *folder, uint64_t before, bool comes_back)
{
    hung_account first;
    loaded l;
    bool hung;

    begin(&l, folder, k);
    first = hung_account_of(&l);
    hung = has_load_hung(&l, &first, before);
    if (hung) {
        /* Slab and buffers are still there, and no more than the load had. */
        CHECK_LT(hung_account_of(&l).device_bytes, first.device_bytes);
        CHECK_GT(loaded_bytes(l.p.context), first.bytes);
        CHECK_LE(loaded_bytes(l.p.context),
                 first.bytes + l.report.ring_bytes + l.report.allocated_bytes + HUNG_LISTS);
        berthi_context_sweep(l.p.context);
        CHECK_LT(hung_account_of(&l).device_bytes, first.device_bytes); /* too early */
    }
    if (hung && comes_back) {
        hung_recover(&l, &first);
        l.options.wait_ms = 0;
        loaded_load(&l);
        if (CHECK_EQ(l.status, BERTH_OK) && is_as_stored(k))
            loaded_check(&l, folder);
    }
    loaded_end(&l); /* with a device that hangs, or that has come back */
    return hung;
}

static void
test_loads(void)
{
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *const folder = folder_of(&kinds[i], 2);
        uint64_t place = 0;

        while (place < PLACES && check_load(&kinds[i], folder, place, true))
            place++;
        CHECK_GE(place, 2);
        CHECK_LT(place, PLACES);
        CHECK(check_load(&kinds[i], folder, 0, false));
        CHECK(check_load(&kinds[i], folder, place - 1, false));
    }
}

/* Whoever cancels waits no longer than for the time-out. */
static void
check_cancel(const kind *k)
{
    hung_account first;
    uint64_t begin_ns;
    berth_job *job;
    loaded l;

    begin(&l, folder_of(k, 1), k);
    l.options.wait_ms = 60000; /* no patience that ends before the cancel is heard */
    l.p.context->hung_ns = HUNG_PATIENCE_NS;
    first = hung_account_of(&l);
    hung_copy(l.devices, 0);
    T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job,
                               NULL) == BERTH_OK);
    while (!hung_has(l.devices) && berth_job_wait(job, 0) == BERTH_PENDING)
        berthi_sys_sleep(HUNG_MS_NS);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    CHECK_EQ(berth_load_finish(job, &l.model, &l.error), BERTH_ECANCELLED);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_PATIENCE_NS + HUNG_SLACK_NS);
    hung_recover(&l, &first);
    loaded_end(&l);
}

static void
test_cancel(void)
{
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_cancel(&kinds[i]);
}

/* ------------------------------------------------------------------------- leases */

/* A model with its layers in host memory or on the disk. */
static void
begin_streamed(loaded *l, const char *pin)
{
    const char *const pins[] = { pin };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    options.pins = pins;
    options.pin_count = 1;
    options.slots = 2;
    loaded_begin(l, leased_llama(6, 2), &options, "sim:64MiB,clock=real");
}

/* It is loaded, and its copy after `place` others is going to hang. */
static bool
has_begun_streamed(loaded *l, const char *pin, uint64_t place, hung_account *before)
{
    begin_streamed(l, pin);
    *before = hung_account_of(l);
    loaded_load(l);
    if (!CHECK_EQ(l->status, BERTH_OK))
        return false;
    l->model->wait_ns = WAIT_MS * HUNG_MS_NS;
    hung_copy(l->devices, place);
    return true;
}

/* What computes a layer: it reads bytes of the slot, when its stream comes to that. */
static void
read_layer(void *user)
{
    const volatile uint8_t *const memory = user;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < 64; i++)
        sum += memory[i];
    (void)sum;
}

static berth_status
use_layer(loaded *l, uint32_t layer, berth_error *error)
{
    const berth_plan_layer *const about = &l->p.plan->layers[layer].out;
    berth_model_tensor tensor;
    berth_status status = berth_layer_acquire(l->model, layer, NULL, error);

    if (status != BERTH_OK)
        return status;
    CHECK_EQ(berth_model_get_tensor(l->model, about->first_berth, &tensor), BERTH_OK);
    /* Only of slots it is known until when they are used. */
    if (CHECK(tensor.parts[0].memory != NULL)
        && strncmp(about->name, "model.layers.", strlen("model.layers.")) == 0)
        CHECK_EQ(berth_stream_call(l->devices, 0, NULL, read_layer,
                                   (void *)(uintptr_t)tensor.parts[0].memory, 1e-6, error),
                 BERTH_OK);
    CHECK_EQ(berth_layer_release(l->model, layer, NULL, error), BERTH_OK);
    return BERTH_OK;
}

/* Passes over all layers until one cannot be had. */
static berth_status
use_layers(loaded *l, uint32_t passes, berth_error *error)
{
    const uint32_t layers = l->p.summary.layer_count;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < passes * layers && status == BERTH_OK; i++)
        status = use_layer(l, i % layers, error);
    return status;
}

/* The model goes although its copies hang; so do they, some time or other. */
static void
check_end(loaded *l, const hung_account *before, bool comes_back)
{
    uint64_t begin_ns = berthi_sys_now_ns();

    loaded_unload(l);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
    CHECK_LT(hung_account_of(l).device_bytes, before->device_bytes);
    berthi_context_sweep(l->p.context);
    CHECK_LT(hung_account_of(l).device_bytes, before->device_bytes); /* too early */
    if (comes_back)
        hung_recover(l, before);
    begin_ns = berthi_sys_now_ns();
    loaded_end(l);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
}

/* Nobody waits for what comes from host memory but the stream that uses it. */
static void
check_from_host(uint64_t place, bool comes_back)
{
    hung_account before;
    uint64_t begin_ns;
    berth_error error;
    loaded l;

    T_REQUIRE(has_begun_streamed(&l, "model.layers=cpu", place, &before));
    begin_ns = berthi_sys_now_ns();
    CHECK_EQ(use_layers(&l, 4, &error), BERTH_OK);
    CHECK(hung_has(l.devices));
    CHECK_EQ(berth_stream_wait(l.devices, 0, NULL, 10, &error), BERTH_PENDING);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
    check_end(&l, &before, comes_back);
}

static void
test_leases_from_host(void)
{
    for (uint64_t place = 0; place < 12; place++)
        for (int comes_back = 0; comes_back < 2; comes_back++)
            check_from_host(place, comes_back != 0);
}

/* Whoever waits for the disk is told that it is the device, as soon as that is clear. */
static void
check_from_disk(uint64_t place, bool comes_back)
{
    hung_account before;
    uint64_t end_ns;
    bool is_slow; /* the disk, for once: no device that hangs */
    berth_status status;
    berth_error error;
    loaded l;

    T_REQUIRE(has_begun_streamed(&l, "model.layers=disk", place, &before));
    end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;
    do {
        status = use_layers(&l, 4, &error);
        is_slow = status != BERTH_OK && strstr(error.message, "from the disk") != NULL;
    } while ((status == BERTH_OK || is_slow) && berthi_sys_now_ns() < end_ns);
    CHECK_LT(berthi_sys_now_ns(), end_ns);
    CHECK(hung_has(l.devices));
    if (CHECK_EQ(status, BERTH_EIO))
        check_error(&error, WAIT_MS);
    check_end(&l, &before, comes_back);
}

static void
test_leases_from_disk(void)
{
    for (uint64_t place = 0; place < 12; place += 2)
        for (int comes_back = 0; comes_back < 2; comes_back++)
            check_from_disk(place, comes_back != 0);
}

/* The same model goes on when the device has come back, and has the right bytes. */
static void
check_goes_on(const char *pin, uint64_t place)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB,disk=inf",
                                     .pins = { pin },
                                     .slots = 2,
                                     .devices = "sim:64MiB,clock=real" };
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;
    berth_status status;
    berth_error error;
    leased l;

    leased_begin(&l, leased_llama(4, 2), &options);
    l.options = (berthi_lease_options){ .ring_bytes = UINT64_C(64) << 10 };
    l.model.wait_ns = UINT64_C(60000) * HUNG_MS_NS;
    hung_copy(l.devices, place);
    T_REQUIRE(leased_start(&l, &error) == BERTH_OK);
    l.model.wait_ns = WAIT_MS * HUNG_MS_NS; /* of calls */
    for (uint32_t i = 0; !hung_has(l.devices) && berthi_sys_now_ns() < end_ns; i++)
        (void)leased_use(&l, i % leased_layers(&l), NULL, 0, &error);
    CHECK(hung_has(l.devices));
    berthi_sim_release(berthi_devices_at(l.devices, 0));
    do { /* slots that could not be brought are asked for once more */
        status = BERTH_OK;
        for (uint32_t i = 0; i < 12 && status == BERTH_OK; i++)
            status = leased_use(&l, i % leased_layers(&l), NULL, 0, &error);
    } while (status != BERTH_OK && berthi_sys_now_ns() < end_ns);
    if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s", error.message);
    CHECK(leased_settle(&l));
    CHECK_EQ(l.wrong, 0);
    leased_stop(&l);
    leased_end(&l);
}

static void
test_leases_go_on(void)
{
    for (uint64_t place = 0; place < 8; place += 3) {
        check_goes_on("model.layers=cpu", place);
        check_goes_on("model.layers=disk", place);
    }
}

/* A copy that hangs before there are leases: of slots, whose clearing comes behind it. */
static void
block(leased *l)
{
    berthi_device *const device = berthi_devices_at(l->devices, 0);
    uint8_t *const slab = l->model.tiers[0].slab;

    CHECK(leased_settle(l)); /* it begins at once: nothing overtakes it */
    hung_copy(l->devices, 0);
    CHECK_EQ(device->table->copy(device,
                                 &(berthi_copy){ .kind = BERTHI_COPY_WITHIN,
                                                 .to = slab,
                                                 .from = slab + 256,
                                                 .bytes = 256 },
                                 NULL, NULL),
             BERTH_OK);
}

/*
 * A call fails while the first copies are asked for, and one of these hangs, or one before
 * them: there is nothing to lease, and what the copy uses stays.
 */
static bool
has_begun(leased *l, uint64_t call, bool is_blocked, bool *is_due)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    const uint64_t end_ns = begin_ns + HUNG_SLACK_NS;
    berth_status status;
    berth_error error;

    if (is_blocked)
        block(l);
    else
        hung_copy(l->devices, 0);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, call, false);
    status = leased_start(l, &error);
    *is_due = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
    berthi_fault_disarm();
    CHECK_LT(berthi_sys_now_ns(), end_ns);
    if (status == BERTH_OK)
        return true;
    CHECK(is_blocked || (l->leases != NULL) == hung_has(l->devices));
    if (l->leases != NULL)
        CHECK(!berthi_leases_are_over(l->leases));
    berthi_sim_release(berthi_devices_at(l->devices, 0));
    while (l->leases != NULL && !berthi_leases_are_over(l->leases)
           && berthi_sys_now_ns() < end_ns)
        continue;
    return false;
}

static void
check_first_copies(const leased_options *options, bool is_blocked)
{
    uint32_t hung = 0;
    uint64_t call = 0;
    bool is_due = true;

    for (; is_due && call < 4 * PLACES; call++) {
        leased l;

        leased_begin(&l, leased_llama(4, 2), options);
        l.model.wait_ns = WAIT_MS * HUNG_MS_NS;
        if (has_begun(&l, call, is_blocked, &is_due))
            berthi_sim_release(berthi_devices_at(l.devices, 0));
        else
            hung += l.leases != NULL;
        leased_stop(&l);
        leased_end(&l);
    }
    CHECK(!is_due);
    CHECK_GE(hung, 2);
}

static void
test_first_copies(void)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB,disk=inf",
                                     .pins = { "model.layers=cpu" },
                                     .slots = 2,
                                     .devices = "sim:64MiB,clock=real" };

    check_first_copies(&options, false);
}

/* Slots of one device are not cleared yet when another one has nothing at all. */
static void
test_first_copies_of_two(void)
{
    const leased_options options = {
        .memory = "0=64MiB,1=64MiB,cpu=64MiB,disk=inf",
        .pins = { "model.layers.0.input_layernorm=cuda:0",
                  "model.layers.1.input_layernorm=cuda:1", "model.layers=cpu" },
        .slots = 2,
        .devices = "sim:64MiB,clock=real*2",
    };

    check_first_copies(&options, true);
}

/* ------------------------------------------------------------------------- streams */

/* A stream of the caller, which waits for a layer that does not come. */
static void
check_stream(bool comes_back)
{
    void *stream = NULL;
    hung_account before;
    uint64_t begin_ns;
    berth_error error;
    loaded l;

    T_REQUIRE(has_begun_streamed(&l, "model.layers=cpu", 0, &before));
    l.p.context->hung_ns = HUNG_PATIENCE_NS;
    CHECK_EQ(berth_stream_create(l.devices, 0, &stream, &error), BERTH_OK);
    for (uint32_t i = 0; i < 2 * l.p.summary.layer_count; i++) {
        const uint32_t layer = i % l.p.summary.layer_count;

        CHECK_EQ(berth_layer_acquire(l.model, layer, stream, &error), BERTH_OK);
        CHECK_EQ(berth_layer_release(l.model, layer, stream, &error), BERTH_OK);
    }
    CHECK(hung_has(l.devices));
    CHECK_EQ(berth_stream_wait(l.devices, 0, stream, 10, &error), BERTH_PENDING);
    begin_ns = berthi_sys_now_ns();
    berth_stream_destroy(l.devices, 0, stream);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_PATIENCE_NS + HUNG_SLACK_NS);
    check_end(&l, &before, comes_back);
}

static void
test_streams(void)
{
    check_stream(true);
    check_stream(false);
}

/* -------------------------------------------------------------- devices of its own */

/* A plan's tier is called as the device that a model opens for itself. */
static void
begin_own(loaded *l, const char *pin, const char *stored, uint64_t hang)
{
    const char *const pins[] = { pin };
    berth_plan_options options = loaded_options("0=8MiB,cpu=64MiB");

    options.pins = pins;
    options.pin_count = pin != NULL;
    options.slots = 2;
    options.dtype = BERTH_BF16;
    loaded_begin(l, pin != NULL ? leased_llama(6, 2) : loaded_llama(2, stored, 2), &options,
                 NULL);
    (void)snprintf(l->p.plan->tiers[0].name, sizeof l->p.plan->tiers[0].name,
                   "sim:8MiB,hang=%u", (unsigned)hang);
    l->options.wait_ms = HUNG_FIRST_MS;
}

/* False: the load has not so many copies. */
static bool
check_own_load(const char *stored, uint64_t hang)
{
    uint64_t before;
    bool is_over;
    loaded l;

    begin_own(&l, NULL, stored, hang);
    before = loaded_bytes(l.p.context);
    do {
        loaded_load(&l);
        is_over = l.status == BERTH_OK || l.error.tensor[0] != '\0';
        l.options.wait_ms *= 2; /* a read took that long */
    } while (!is_over && l.options.wait_ms < 20000);
    CHECK(is_over);
    if (l.status != BERTH_OK) {
        CHECK_EQ(l.error.reason, BERTH_REASON_TIMEOUT);
        CHECK_CONTAINS(l.error.message, "has not finished its copies");
        CHECK_EQ(loaded_bytes(l.p.context), before); /* its device is given up */
    }
    is_over = l.status == BERTH_OK;
    loaded_unload(&l);
    CHECK_EQ(loaded_bytes(l.p.context), before);
    loaded_end(&l);
    return !is_over;
}

/* Copies into slots: the model goes, its device with it. True: one of them hung. */
static bool
check_own_leases(uint64_t hang)
{
    uint64_t before;
    uint64_t begin_ns;
    berth_error error;
    bool hung;
    loaded l;

    begin_own(&l, "model.layers=cpu", NULL, hang);
    before = loaded_bytes(l.p.context);
    l.options.wait_ms = 20000; /* for the load */
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK)) {
        loaded_end(&l);
        return false;
    }
    l.model->wait_ns = WAIT_MS * HUNG_MS_NS;
    for (uint32_t i = 0; i < 3 * l.p.summary.layer_count; i++) {
        const uint32_t layer = i % l.p.summary.layer_count;

        CHECK_EQ(berth_layer_acquire(l.model, layer, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_layer_release(l.model, layer, NULL, &error), BERTH_OK);
    }
    hung = hung_has(l.model->devices);
    begin_ns = berthi_sys_now_ns();
    loaded_unload(&l);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
    CHECK_EQ(loaded_bytes(l.p.context), before);
    loaded_end(&l);
    return hung;
}

static void
check_own_loads(const char *stored)
{
    uint64_t hang = 1;

    while (hang < PLACES && check_own_load(stored, hang))
        hang++;
    CHECK_GE(hang, 3);
    CHECK_LT(hang, PLACES);
}

static void
test_own_devices(void)
{
    check_own_loads("BF16");
    check_own_loads("F32");
    CHECK(check_own_leases(10)); /* the load has 5 copies, the passes 18 */
    CHECK(check_own_leases(20));
}

/* ------------------------------------------------------------------- other models */

/* One on devices of its own is loaded and used, in the same context, meanwhile. */
static void
test_other_models(void)
{
    const char *const folder = loaded_llama(2, "BF16", 2);
    berth_check_report report;
    berth_devices *hung_devices;
    hung_account before;
    hung_account own;
    loaded hung;
    loaded other;
    berth_error error;

    begin_streamed(&other, "model.layers=disk");
    loaded_load(&other);
    T_REQUIRE(other.status == BERTH_OK);
    begin(&hung, folder, &kinds[0]);
    before = hung_account_of(&hung);
    CHECK(has_load_hung(&hung, &before, 1));
    hung.options.wait_ms = 0;

    CHECK_EQ(use_layers(&other, 3, &error), BERTH_OK);
    CHECK_EQ(berth_stream_wait(other.devices, 0, NULL, 60000, &error), BERTH_OK);
    CHECK_EQ(loaded_see_checked(&other, &report), BERTH_OK);
    loaded_end(&other);
    /* In the context of what hangs, on a device that does not. */
    hung_devices = hung.devices;
    T_REQUIRE(berth_devices_open(hung.p.context, kinds[0].words, &hung.devices, &error)
              == BERTH_OK);
    hung.options.devices = hung.devices;
    own = hung_account_of(&hung);
    loaded_load(&hung);
    if (CHECK_EQ(hung.status, BERTH_OK))
        loaded_check(&hung, folder);
    loaded_unload(&hung);
    CHECK(hung_is_as_before(&hung, &own));
    berth_devices_close(hung.devices);
    hung.devices = hung_devices;
    hung_recover(&hung, &before);
    loaded_end(&hung);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_loads);
    T_RUN(test_cancel);
    T_RUN(test_leases_from_host);
    T_RUN(test_leases_from_disk);
    T_RUN(test_leases_go_on);
    T_RUN(test_first_copies);
    T_RUN(test_first_copies_of_two);
    T_RUN(test_streams);
    T_RUN(test_own_devices);
    T_RUN(test_other_models);
    return t_end();
}
