/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hung.c - a disk that hangs: jobs and leases end with a status in time, and what the
 * reads still use is given back when they return.
 */
#define _DEFAULT_SOURCE

#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/moved.h"
#include "tests/t.h"

#define WAIT_MS 200u
/*
 * 100 ms are asked for; a loaded machine gets ten times that. One that is later still, or
 * late with something else before a read is said to hang, gets more tries, each with twice
 * the patience, up to the most.
 */
#define SLACK_NS UINT64_C(1000000000)
#define WAIT_MS_MOST 6400u
#define MS_NS UINT64_C(1000000)
#define KIB UINT64_C(1024)

/* All that is read from now on goes through haul_reader; `first` and later hang. */
static void
hang(uint64_t first)
{
    haul_set((haul_tricks){.hangs = true, .hang_first = first});
    atomic_store(&haul_reads, 0);
    atomic_store(&haul_is_hung, true);
    atomic_store(&berthi_reader_instead, &haul_reader);
}

/* The reads come back, and whoever keeps what they used looks. */
static void
recover(berth_context *context)
{
    atomic_store(&haul_is_hung, false);
    berthi_context_sweep(context);
}

static void
stop_tricks(void)
{
    haul_set((haul_tricks){.hangs = false});
    atomic_store(&berthi_reader_instead, NULL);
}

/* What a hung read is said to be: its file, and where in it. */
static void
check_error(const berth_error *error, const char *folder, uint64_t wait_ms)
{
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error->file, folder);
    CHECK_CONTAINS(error->file, ".safetensors");
    CHECK_EQ(error->has, BERTH_HAS_POSITION);
    CHECK_LT(error->position, UINT64_C(40) << 20);
    CHECK_CONTAINS(error->message,
                   fixture_format("a read has not come back for %llu milliseconds",
                                  (unsigned long long)wait_ms));
}

static bool
is_in_time(uint64_t taken_ns, uint64_t wait_ms)
{
    return taken_ns < wait_ms * MS_NS + SLACK_NS;
}

/* To be tried again: something else is said to have hung first, or it was said late. */
static bool
is_late(const berth_error *error, uint64_t taken_ns, uint64_t wait_ms)
{
    return wait_ms < WAIT_MS_MOST
           && (strstr(error->message, "a read has not come back") == NULL
               || !is_in_time(taken_ns, wait_ms));
}

/* -------------------------------------------------------------------------- loads */

typedef struct hung_load {
    const char *memory;
    const char *words;
    int32_t type;
} hung_load;

static const hung_load loads[] = {
    {"cpu=64MiB", NULL, BERTH_ENCODING_NATIVE},
    {"cpu=64MiB", NULL, BERTH_ENCODING_NF4},
    {"0=64MiB,cpu=64MiB", "sim:64MiB,clock=real", BERTH_ENCODING_NATIVE},
    {"0=64MiB,cpu=64MiB", "sim:64MiB,clock=real", BERTH_ENCODING_NF4},
};

static uint64_t
free_bytes(const loaded *l)
{
    berth_device device = {.free_bytes = 0};

    if (l->devices != NULL)
        CHECK_EQ(berth_devices_get(l->devices, 0, &device), BERTH_OK);
    return device.free_bytes;
}

/* Loads until read number `first` is said, in time, to hang. */
static void
fail_to_load(loaded *l, const char *folder, uint64_t first)
{
    const uint64_t before = loaded_bytes(l->p.context);
    uint64_t taken_ns = 0;

    for (l->options.wait_ms = WAIT_MS;; l->options.wait_ms *= 2) {
        const uint64_t begin_ns = berthi_sys_now_ns();

        hang(first);
        loaded_load(l);
        taken_ns = berthi_sys_now_ns() - begin_ns;
        CHECK_EQ(l->status, BERTH_EIO);
        CHECK_GE(taken_ns, l->options.wait_ms * MS_NS);
        if (!is_late(&l->error, taken_ns, l->options.wait_ms))
            break;
        recover(l->p.context);
        for (int i = 0; i < 1000 && loaded_bytes(l->p.context) > before; i++) {
            (void)usleep(5000); /* a copy that was late */
            berthi_context_sweep(l->p.context);
        }
    }
    check_error(&l->error, folder, l->options.wait_ms);
    CHECK_LT(taken_ns, l->options.wait_ms * MS_NS + SLACK_NS);
}

/* Read number `first` hangs: the load fails in time, a later one succeeds. */
static void
check_load(const hung_load *kind, const char *folder, uint64_t first)
{
    berth_plan_options options = loaded_options(kind->memory);
    uint64_t before;
    uint64_t device_before;
    loaded l;

    options.type = kind->type;
    loaded_begin(&l, folder, &options, kind->words);
    before = loaded_bytes(l.p.context);
    device_before = free_bytes(&l);
    fail_to_load(&l, folder, first);
    /* Only the ring is still there, and no more of it than is in use. */
    CHECK_GT(loaded_bytes(l.p.context), before);
    CHECK_LE(loaded_bytes(l.p.context), before + l.report.ring_bytes + 64 * KIB);
    CHECK_EQ(free_bytes(&l), device_before);
    berthi_context_sweep(l.p.context);
    CHECK_GT(loaded_bytes(l.p.context), before); /* too early */
    recover(l.p.context);
    /* A simulated machine keeps lists of its own. */
    CHECK_LE(loaded_bytes(l.p.context), before + (kind->words != NULL ? 4 * KIB : 0));

    l.options.wait_ms = 0; /* a slow read is no hung one */
    loaded_load(&l);
    if (CHECK_EQ(l.status, BERTH_OK) && kind->type == BERTH_ENCODING_NATIVE)
        loaded_check(&l, folder);
    stop_tricks();
    loaded_end(&l);
}

static void
test_loads(void)
{
    const char *const folder = loaded_llama(2, "BF16", 2);

    for (uint32_t i = 0; i < sizeof loads / sizeof *loads; i++)
        for (uint64_t first = 0; first < 2; first++)
            check_load(&loads[i], folder, first);
}

/*
 * Headers that a manifest has something to say of are read before there is a model: the first
 * reads are theirs.
 */
static void
test_headers(void)
{
    const char *const folder = loaded_llama(2, "BF16", 2);
    berth_plan_options options = loaded_options("cpu=64MiB");
    loaded l;

    (void)loaded_manifest(folder);
    loaded_begin(&l, folder, &options, NULL);
    for (uint64_t first = 0; first < 2; first++) {
        fail_to_load(&l, folder, first);
        CHECK_EQ(l.report.allocated_bytes, 0);
        recover(l.p.context);
        l.options.wait_ms = 0;
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_GT(l.report.verified_tensors, 0);
        loaded_unload(&l);
    }
    stop_tricks();
    loaded_end(&l);
}

/* A model that was there before is as it was, and can be used meanwhile. */
static void
test_other_models(void)
{
    const char *const folder = loaded_llama(2, "BF16", 2);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_check_report report;
    loaded first;
    loaded second;

    loaded_begin(&first, folder, &options, NULL);
    loaded_load(&first);
    T_REQUIRE(first.status == BERTH_OK);
    loaded_begin(&second, folder, &options, NULL);
    second.options.wait_ms = WAIT_MS;
    hang(0);
    loaded_load(&second);
    CHECK_EQ(second.status, BERTH_EIO);
    CHECK_EQ(loaded_see_checked(&first, &report), BERTH_OK);
    recover(second.p.context);
    stop_tricks();
    CHECK_EQ(loaded_see_checked(&first, &report), BERTH_OK);
    loaded_end(&second);
    loaded_end(&first);
}

/* How long a load with a read that hangs takes when it is cancelled; or it failed before. */
static uint64_t
cancel_load(const char *folder, uint64_t wait_ms)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    uint64_t taken_ns = UINT64_MAX;
    uint64_t begin_ns;
    berth_job *job;
    bool is_pending;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    l.options.wait_ms = wait_ms;
    hang(0);
    begin_ns = berthi_sys_now_ns();
    if (CHECK_EQ(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job,
                                  NULL),
                 BERTH_OK)) {
        is_pending = berth_job_wait(job, 20) == BERTH_PENDING;
        berth_job_cancel(job);
        if (berth_load_finish(job, &l.model, &l.error) == BERTH_ECANCELLED && is_pending)
            taken_ns = berthi_sys_now_ns() - begin_ns;
    }
    recover(l.p.context);
    stop_tricks();
    loaded_end(&l);
    return taken_ns;
}

/* Whoever cancels waits no longer than for the time-out. */
static void
check_cancel(bool has_manifest)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    uint64_t wait_ms = 2 * WAIT_MS;
    uint64_t taken_ns;

    if (has_manifest)
        (void)loaded_manifest(folder);
    taken_ns = cancel_load(folder, wait_ms);
    while (!is_in_time(taken_ns, wait_ms) && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        taken_ns = cancel_load(folder, wait_ms);
    }
    CHECK_LT(taken_ns, wait_ms * MS_NS + SLACK_NS);
}

static void
test_cancel(void)
{
    check_cancel(false);
    check_cancel(true);
}

/* Threads that read are left behind asleep, and end when their reads do. */
static void
test_next_job_gives_back(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_check_report report;
    uint64_t before;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    l.options.wait_ms = WAIT_MS;
    hang(0);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EIO);
    atomic_store(&haul_is_hung, false);
    stop_tricks();
    before = loaded_bytes(l.p.context);
    l.options.wait_ms = 0;
    loaded_load(&l); /* sweeps at its start */
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
    loaded_unload(&l);
    CHECK_LT(loaded_bytes(l.p.context), before);
    loaded_end(&l);
}

/* ------------------------------------------------------------------------- leases */

static leased_options
streamed_options(void)
{
    return (leased_options){.memory = "0=64MiB,cpu=64MiB,disk=inf",
                            .pins = {"model.layers=disk"},
                            .slots = 2,
                            .devices = "sim:64MiB,clock=real"};
}

/* Uses layers in order until one fails. */
static berth_status
use_layers(leased *l, uint32_t count, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = leased_use(l, i % leased_layers(l), NULL, 0, error);
    return status;
}

/* Reads that have come back fail then, and are asked for once more. */
static void
check_goes_on(leased *l)
{
    berth_error error;
    berth_status status = use_layers(l, 12, &error);

    for (uint32_t i = 0; i < 4000 && status != BERTH_OK; i++) {
        (void)usleep(5000);
        status = use_layers(l, 12, &error);
    }
    if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s: %s", error.file, error.message);
}

/* Layers of a folder come through a ring of a few buffers. */
static void
begin_streamed(leased *l, const char *folder, uint64_t wait_ms)
{
    const leased_options options = streamed_options();

    leased_begin(l, folder, &options);
    l->options = (berthi_lease_options){.ring_bytes = 64 * KIB};
    l->model.wait_ns = wait_ms * MS_NS;
}

/* All that was streamed had its bytes, and its ends come. */
static void
end_streamed(leased *l)
{
    CHECK(leased_settle(l));
    CHECK_EQ(l->wrong, 0);
    leased_stop(l);
    stop_tricks();
    leased_end(l);
}

/* Layers are used until a read is said to hang; false: that came late. */
static bool
has_hung(leased *l, const char *folder, uint64_t wait_ms)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_error error;
    uint64_t taken_ns;

    CHECK_EQ(use_layers(l, 64, &error), BERTH_EIO);
    taken_ns = berthi_sys_now_ns() - begin_ns;
    if (is_late(&error, taken_ns, wait_ms))
        return false;
    check_error(&error, folder, wait_ms);
    CHECK_LT(taken_ns, wait_ms * MS_NS + SLACK_NS);
    return true;
}

static bool
check_streamed(uint64_t first, uint64_t wait_ms)
{
    const char *const folder = leased_llama(4, 2);
    bool is_told;
    leased l;

    begin_streamed(&l, folder, wait_ms);
    hang(first);
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    /* And until they come back. */
    is_told = has_hung(&l, folder, wait_ms) && has_hung(&l, folder, wait_ms);
    atomic_store(&haul_is_hung, false);
    check_goes_on(&l);
    end_streamed(&l);
    return is_told;
}

static void
test_streamed_layers(void)
{
    for (uint64_t first = 0; first < 24; first += 6) {
        uint64_t wait_ms = WAIT_MS;

        while (!check_streamed(first, wait_ms))
            wait_ms *= 2;
    }
}

/* Reads hang and come back, and the feeder, which looks from time to time, has seen it. */
static berth_status
use_what_hung(uint64_t wait_ms, berth_error *error)
{
    berth_status status;
    leased l;

    begin_streamed(&l, leased_llama(4, 2), wait_ms);
    hang(3);
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    CHECK_EQ(use_layers(&l, 64, error), BERTH_EIO);
    atomic_store(&haul_is_hung, false);
    berthi_sys_sleep(wait_ms * 5 / 2 * MS_NS);
    status = use_layers(&l, 12, error);
    end_streamed(&l);
    return status;
}

/* What came of reads that have hung is no reason to refuse what is asked for afterwards. */
static void
test_reads_come_back(void)
{
    uint64_t wait_ms = WAIT_MS;
    berth_error error;
    berth_status status = use_what_hung(wait_ms, &error);

    while (status != BERTH_OK && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        status = use_what_hung(wait_ms, &error);
    }
    if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s: %s", error.file, error.message);
}

/* Each read takes a third of the patience, and a layer more than three times it. */
static berth_status
use_slowly(uint64_t wait_ms, berth_error *error)
{
    uint64_t begin_ns;
    berth_status status;
    leased l;

    begin_streamed(&l, leased_llama(2, 1), wait_ms);
    haul_set((haul_tricks){.delay_ns = wait_ms * 3 / 10 * MS_NS});
    atomic_store(&berthi_reader_instead, &haul_reader);
    begin_ns = berthi_sys_now_ns();
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    status = use_layers(&l, 2, error);
    if (status == BERTH_OK)
        CHECK_GT(berthi_sys_now_ns() - begin_ns, 3 * wait_ms * MS_NS);
    haul_set((haul_tricks){.hangs = false});
    end_streamed(&l);
    return status;
}

/* A disk that is slow does not hang: no read takes as long as a layer of many does. */
static void
test_slow_layers(void)
{
    uint64_t wait_ms = WAIT_MS;
    berth_error error;
    berth_status status = use_slowly(wait_ms, &error);

    while (status != BERTH_OK && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        status = use_slowly(wait_ms, &error);
    }
    if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s: %s", error.file, error.message);
}

/* How long a model takes to go whose reads hang. */
static uint64_t
end_hung(uint64_t wait_ms)
{
    uint64_t begin_ns;
    uint64_t taken_ns;
    leased l;

    begin_streamed(&l, leased_llama(4, 2), wait_ms);
    hang(3);
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    CHECK_EQ(use_layers(&l, 64, NULL), BERTH_EIO);
    CHECK(leased_settle(&l));
    begin_ns = berthi_sys_now_ns();
    leased_stop(&l);
    taken_ns = berthi_sys_now_ns() - begin_ns;
    recover(l.planned.context);
    stop_tricks();
    leased_end(&l);
    return taken_ns;
}

/* A model is given back although its reads hang. */
static void
test_models_end(void)
{
    uint64_t wait_ms = WAIT_MS;
    uint64_t taken_ns = end_hung(wait_ms);

    while (!is_in_time(taken_ns, wait_ms) && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        taken_ns = end_hung(wait_ms);
    }
    CHECK_LT(taken_ns, wait_ms * MS_NS + SLACK_NS);
}

/* Whoever has to have slots for himself does not wait for reads, nor for their copies. */
static void
test_settled(void)
{
    const leased_options options = streamed_options();
    berth_error error;
    leased l;

    leased_begin(&l, leased_llama(4, 2), &options);
    l.options = (berthi_lease_options){.ring_bytes = 64 * KIB};
    l.model.wait_ns = 60000 * MS_NS;
    hang(0);
    T_REQUIRE(leased_start(&l, &error) == BERTH_OK);
    CHECK(l.leases->lines[0].feeding != NULL);
    CHECK_EQ(berthi_leases_settle(l.leases, NULL, &error), BERTH_OK);
    CHECK(l.leases->lines[0].feeding == NULL);
    recover(l.planned.context);
    check_goes_on(&l);
    end_streamed(&l);
}

/* ------------------------------------------------------------------- verification */

/* It waits for as long as it takes: until somebody cancels it. */
static void
test_cancelled_verification(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_verify_options verify;
    uint64_t before;
    uint64_t begin_ns;
    berth_job *job;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    l.p.context->hung_ns = WAIT_MS * MS_NS;
    before = loaded_bytes(l.p.context);
    berth_verify_options_init(&verify);
    hang(0);
    T_REQUIRE(berth_verify_start(l.p.context, l.p.checkpoint, &verify, &job, &l.error)
              == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, WAIT_MS), BERTH_PENDING);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    CHECK_EQ(berth_job_finish(job, &l.error), BERTH_ECANCELLED);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, WAIT_MS * MS_NS + 10 * SLACK_NS);
    recover(l.p.context);
    stop_tricks();
    CHECK_EQ(loaded_bytes(l.p.context), before);
    loaded_end(&l);
}

/* -------------------------------------------------------------------------- moves */

/* The model does not wake, because a read hangs; false: that was said late. */
static bool
has_slept_on(moved *m, const char *folder, uint64_t wait_ms)
{
    uint64_t begin_ns;

    m->l.model->wait_ns = wait_ms * MS_NS;
    hang(1);
    begin_ns = berthi_sys_now_ns();
    CHECK_EQ(moved_wake(m), BERTH_EIO);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, 2 * wait_ms * MS_NS + 10 * SLACK_NS);
    CHECK_EQ(berth_model_get_state(m->l.model), BERTH_MODEL_ASLEEP);
    if (is_late(&m->error, 0, wait_ms))
        return false;
    check_error(&m->error, folder, wait_ms);
    return true;
}

/* What was left in the files is read when the model wakes: it sleeps on, and wakes later. */
static void
test_wakes(void)
{
    const char *const folder = loaded_llama(2, "BF16", 2);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    uint64_t wait_ms = WAIT_MS;
    uint64_t before;
    moved m;

    moved_begin(&m, folder, &options, "sim:64MiB,clock=real");
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    before = loaded_bytes(m.l.p.context);
    while (!has_slept_on(&m, folder, wait_ms)) {
        recover(m.l.p.context);
        wait_ms *= 2;
    }
    CHECK_GT(loaded_bytes(m.l.p.context), before);
    recover(m.l.p.context);
    CHECK_LE(loaded_bytes(m.l.p.context), before + 4 * KIB);
    m.l.model->wait_ns = 60000 * MS_NS;
    (void)moved_is_ok(&m, moved_wake(&m));
    stop_tricks();
    moved_check(&m);
    moved_end(&m);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_loads);
    T_RUN(test_headers);
    T_RUN(test_other_models);
    T_RUN(test_cancel);
    T_RUN(test_next_job_gives_back);
    T_RUN(test_streamed_layers);
    T_RUN(test_reads_come_back);
    T_RUN(test_slow_layers);
    T_RUN(test_models_end);
    T_RUN(test_settled);
    T_RUN(test_cancelled_verification);
    T_RUN(test_wakes);
    return t_end();
}
