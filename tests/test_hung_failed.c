/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hung_failed.c - loads that have failed, or are given up, while copies hang: nobody waits
 * for those as long as if nothing had gone wrong, and what went wrong first is what is told.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define WAIT_MS UINT64_C(60000) /* nobody waits so long here */
#define SHORT_MS 100u
#define WORDS   "sim:64MiB,clock=real"
#define CALLS   400u

/* From then on it takes no longer than for whoever gives up. */
static void
check_time(uint64_t begin_ns)
{
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_PATIENCE_NS + HUNG_SLACK_NS);
}

/* ------------------------------------------------------------------ other failures */

/* Something else is wrong with what a worker has, which has asked for a copy that hangs. */
static void
test_another_failure(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    const char *const file = fixture_format("%s/model.safetensors", folder);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    hung_account first;
    uint64_t begin_ns;
    loaded l;

    (void)loaded_manifest(folder);
    fixture_flip(file, fixture_size(file) - 1, 1);
    loaded_begin(&l, folder, &options, WORDS);
    l.options.wait_ms = WAIT_MS;
    l.p.context->hung_ns = HUNG_PATIENCE_NS;
    l.options.workers = 1;
    first = hung_account_of(&l);
    hung_copy(l.devices, 0);
    begin_ns = berthi_sys_now_ns();
    loaded_load(&l);
    check_time(begin_ns);
    CHECK(hung_has(l.devices));
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_DIGEST);
    CHECK_STR(l.error.tensor, "model.norm.weight"); /* the last one in the file */
    hung_recover(&l, &first);
    loaded_end(&l);
}

static berth_devices *refusing;

/* The first one behind a copy that hangs. */
static berth_status
refuse_record(berthi_device *device, berthi_event *event, berthi_stream *stream,
              berth_error *error)
{
    if (refusing == NULL || !hung_has(refusing))
        return berthi_sim_table.record(device, event, stream, error);
    refusing = NULL;
    return berthi_fail(error, BERTH_REASON_DEVICE, NULL, "recording an event is refused");
}

/* Nobody who waits for other work of the device waits for that copy. */
static void
test_a_call_that_is_refused(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berthi_device_table table = berthi_sim_table;
    hung_account first;
    uint64_t begin_ns;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = true;
    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, WORDS);
    l.options.wait_ms = WAIT_MS;
    l.p.context->hung_ns = HUNG_PATIENCE_NS;
    l.options.workers = 1;
    first = hung_account_of(&l);
    refusing = l.devices;
    table.record = refuse_record;
    berthi_devices_at(l.devices, 0)->table = &table;
    hung_copy(l.devices, 0);
    begin_ns = berthi_sys_now_ns();
    loaded_load(&l);
    check_time(begin_ns);
    CHECK(refusing == NULL);
    CHECK_EQ(l.error.reason, BERTH_REASON_DEVICE);
    hung_recover(&l, &first);
    berthi_devices_at(l.devices, 0)->table = &berthi_sim_table;
    loaded_end(&l);
}

/* -------------------------------------------------------------------------- leases */

/* As above, of the copies that fill the first slots. */
static bool
has_not_begun(const char *folder, uint64_t call, uint64_t wait_ms, bool *is_due)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB,disk=inf",
                                     .pins = { "model.layers=cpu" },
                                     .slots = 2,
                                     .devices = WORDS };
    uint64_t begin_ns;
    bool has_both;
    berth_error error;
    leased l;

    leased_begin(&l, folder, &options);
    l.model.wait_ns = wait_ms * HUNG_MS_NS;
    l.planned.context->hung_ns = HUNG_PATIENCE_NS;
    hung_copy(l.devices, 0);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, call, false);
    begin_ns = berthi_sys_now_ns();
    has_both = leased_start(&l, &error) != BERTH_OK && l.leases != NULL;
    check_time(begin_ns);
    *is_due = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
    berthi_fault_disarm();
    berthi_sim_release(berthi_devices_at(l.devices, 0));
    while (has_both && !berthi_leases_are_over(l.leases)
           && berthi_sys_now_ns() - begin_ns < 2 * HUNG_SLACK_NS)
        continue;
    leased_stop(&l);
    leased_end(&l);
    return has_both;
}

static void
test_leases_that_do_not_begin(void)
{
    const char *const folder = leased_llama(4, 2);
    uint32_t found = 0;
    uint64_t call = 0;
    bool is_due = true;

    for (; is_due && found < 1 && call < CALLS; call++)
        if (has_not_begun(folder, call, SHORT_MS, &is_due))
            found += has_not_begun(folder, call, WAIT_MS, &is_due);
    CHECK_EQ(found, 1);
}

/* A load that is about to end, and its job: the first slots are being filled. */
typedef struct ending {
    berth_devices *devices;
    berth_job *_Atomic job;
    _Atomic bool is_cancelled;
} ending;

/* Cancels while layers begin to be streamed, whose next copy hangs. */
static void
cancel(void *user, const berth_trace_event *event)
{
    ending *const e = user;

    if (event->kind != BERTH_TRACE_FILL || atomic_exchange(&e->is_cancelled, true))
        return;
    while (atomic_load(&e->job) == NULL)
        berthi_sys_sleep(HUNG_MS_NS);
    hung_copy(e->devices, 0);
    berth_job_cancel(atomic_load(&e->job));
}

static void
test_cancel_at_the_end(void)
{
    const char *const pins[] = { "model.layers=cpu" };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");
    ending e = { .job = NULL };
    berth_job *job = NULL;
    hung_account first;
    uint64_t begin_ns;
    loaded l;

    options.pins = pins;
    options.pin_count = 1;
    options.slots = 2;
    loaded_begin(&l, leased_llama(6, 2), &options, WORDS);
    l.options.wait_ms = WAIT_MS;
    l.p.context->hung_ns = HUNG_PATIENCE_NS;
    first = hung_account_of(&l);
    e.devices = l.devices;
    l.p.context->trace_user = &e;
    l.p.context->trace = cancel;
    begin_ns = berthi_sys_now_ns();
    T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job, NULL)
              == BERTH_OK);
    atomic_store(&e.job, job);
    CHECK_EQ(berth_load_finish(job, &l.model, &l.error), BERTH_ECANCELLED);
    check_time(begin_ns);
    CHECK(hung_has(l.devices));
    l.p.context->trace = NULL;
    hung_recover(&l, &first);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_another_failure);
    T_RUN(test_a_call_that_is_refused);
    T_RUN(test_leases_that_do_not_begin);
    T_RUN(test_cancel_at_the_end);
    return t_end();
}
