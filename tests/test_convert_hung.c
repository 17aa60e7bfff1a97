/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_hung.c - conversions whose device hangs, or whose disk does before there is a
 * job: they end with a status in time, what the copies and reads still use is given back when
 * they end, and nothing is left of the output.
 */
#include <string.h>
#include <unistd.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/reader.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/hung.h"
#include "tests/t.h"

#define WAIT_MS 100u
#define WAIT_MS_MOST 12800u
#define PATIENT_MS 60000u /* that is berth's own */
#define PLACES 64u /* no test has so many copies */
#define NAME "model.layers.0.a.weight"

typedef struct kind {
    const char *words;
    int32_t type;
    const char *dtype;
    bool is_turned;
} kind;

typedef struct hanging {
    berth_context *context;
    berth_devices *devices;
    const char *model;
    const char *expected; /* by the processor */
    uint64_t bytes;       /* of the context, before */
    uint64_t device_bytes;
    converted c;
} hanging;

static void
begin_conversion(converted *c, int32_t type)
{
    converted_begin(c, fixture_format("%s/out", fixture_folder()), type);
    converted_shrink(c, 2048);
    c->options.block_size = 64;
    c->options.double_quant = type == BERTH_ENCODING_NF4;
    c->options.workers = 2;
}

static uint64_t
device_bytes(const hanging *h)
{
    berth_device device = { .free_bytes = 0 };

    CHECK_EQ(berth_devices_get(h->devices, 0, &device), BERTH_OK);
    return device.free_bytes;
}

static const char *
make(const char *dtype)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s 64x64 " NAME
                                         "\n%s 100x64 model.layers.1.b.weight\n"
                                         "F32 9 model.norm.weight\n",
                                         dtype, dtype));
    return folder;
}

static void
begin(hanging *h, const kind *k)
{
    converted here;

    memset(h, 0, sizeof *h);
    h->model = k->is_turned ? loaded_gpt2(k->dtype, 32, 1) : make(k->dtype);
    begin_conversion(&here, k->type);
    CHECK_EQ(converted_run(&here, h->model), BERTH_OK);
    h->expected = here.options.output;
    CHECK_EQ(berth_context_create(NULL, &h->context, NULL), BERTH_OK);
    CHECK_EQ(berth_devices_open(h->context, k->words, &h->devices, NULL), BERTH_OK);
    begin_conversion(&h->c, k->type);
    h->c.options.devices = h->devices;
    h->bytes = loaded_bytes(h->context);
    h->device_bytes = device_bytes(h);
}

/* With a device that hangs, or that has come back: nothing is left. */
static void
end(hanging *h)
{
    berth_devices_close(h->devices);
    CHECK_EQ(loaded_bytes(h->context), 0);
    berth_context_destroy(h->context);
}

/* The device comes back; whoever keeps what it used looks, until nothing is left. */
static void
recover(hanging *h)
{
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

    berthi_sim_release(berthi_devices_at(h->devices, 0));
    do {
        berthi_context_sweep(h->context);
    } while ((loaded_bytes(h->context) > h->bytes + HUNG_LISTS
              || device_bytes(h) != h->device_bytes)
             && berthi_sys_now_ns() < end_ns);
    CHECK_LE(loaded_bytes(h->context), h->bytes + HUNG_LISTS);
    CHECK_EQ(device_bytes(h), h->device_bytes);
}

/* What still hangs has what it uses; and no more than the conversion had. */
static void
check_kept(hanging *h)
{
    const converted *const c = &h->c;
    const uint64_t most = c->report.planned_memory + HUNG_LISTS;

    CHECK_LT(device_bytes(h), h->device_bytes);
    CHECK_GT(loaded_bytes(h->context), h->bytes);
    CHECK_LE(loaded_bytes(h->context), h->bytes + most);
    berthi_context_sweep(h->context);
    CHECK_LT(device_bytes(h), h->device_bytes); /* too early */
}

static void
check_error(const hanging *h)
{
    const berth_error *const error = &h->c.error;

    CHECK_EQ(error->status, BERTH_EIO);
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error->tensor, ".weight");
    CHECK_CONTAINS(error->file, "model.safetensors");
    CHECK_CONTAINS(error->message,
                   fixture_format("sim:0 has not finished a piece for %llu milliseconds",
                                  (unsigned long long)h->c.options.wait_ms));
    CHECK_NE(access(h->c.options.output, F_OK), 0);
}

/*
 * Converts, and the copy after `before` others hangs; false: there are not so many. A machine
 * on which another copy takes that long gets more patience.
 */
static bool
has_hung(hanging *h, uint64_t before)
{
    for (h->c.options.wait_ms = HUNG_FIRST_MS;; h->c.options.wait_ms *= 2) {
        const uint64_t wait_ms = h->c.options.wait_ms;
        const uint64_t begin_ns = berthi_sys_now_ns();
        uint64_t taken_ns;

        hung_copy(h->devices, before);
        if (converted_run_in(&h->c, h->context, h->model) == BERTH_OK)
            return false;
        taken_ns = berthi_sys_now_ns() - begin_ns;
        if (hung_has(h->devices) || !CHECK_LT(wait_ms, WAIT_MS_MOST)) {
            CHECK_GE(taken_ns, wait_ms * HUNG_MS_NS);
            CHECK_LT(taken_ns, wait_ms * HUNG_MS_NS + HUNG_SLACK_NS);
            check_error(h);
            check_kept(h);
            return true;
        }
        recover(h);
    }
}

static bool
check_place(const kind *k, uint64_t before, bool comes_back)
{
    hanging h;
    bool hung;

    begin(&h, k);
    hung = has_hung(&h, before);
    if (hung && comes_back) {
        recover(&h);
        h.c.options.wait_ms = 0;
        CHECK_EQ(converted_run_in(&h.c, h.context, h.model), BERTH_OK);
        CHECK(converted_is_same(h.c.options.output, h.expected));
    }
    end(&h);
    return hung;
}

/* From the ring, which stays, and from a worker's own memory. */
static void
test_every_copy(void)
{
    static const kind kinds[] = {
        { "sim:64MiB,clock=real", BERTH_ENCODING_NF4, "BF16", false },
        { "sim:64MiB", BERTH_ENCODING_INT8, "F32", false },
        { "sim:64MiB,clock=real", BERTH_ENCODING_NF4, "F16", true },
    };

    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t place = 0;

        while (place < PLACES && check_place(&kinds[i], place, true))
            place++;
        CHECK_GE(place, 6);
        CHECK_LT(place, PLACES);
        CHECK(check_place(&kinds[i], 0, false));
        CHECK(check_place(&kinds[i], place - 1, false));
    }
}

/* A conversion whose first copy hangs is cancelled: its status, which is in time. */
static berth_status
cancel_hung(uint64_t wait_ms)
{
    berth_checkpoint *checkpoint;
    berth_status status;
    berth_job *job;
    uint64_t begin_ns;
    hanging h;

    begin(&h, &(kind){ "sim:64MiB,clock=real", BERTH_ENCODING_NF4, "BF16", false });
    hung_copy(h.devices, 0);
    h.c.options.wait_ms = wait_ms;
    h.context->hung_ns = HUNG_PATIENCE_NS;
    CHECK_EQ(berth_checkpoint_open(h.context, h.model, NULL, &checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berthi_convert_start(h.context, checkpoint, &h.c.options, &h.c.sizes, &job,
                                  &h.c.error),
             BERTH_OK);
    while (!hung_has(h.devices))
        berthi_sys_sleep(HUNG_MS_NS);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    status = berth_job_finish(job, &h.c.error);
    CHECK_LT(berthi_sys_now_ns() - begin_ns,
             berthi_min_u64(wait_ms * HUNG_MS_NS, HUNG_PATIENCE_NS) + HUNG_SLACK_NS);
    CHECK_LT(device_bytes(&h), h.device_bytes);
    berth_checkpoint_close(checkpoint);
    recover(&h);
    end(&h);
    return status;
}

/*
 * Whoever cancels waits no longer than for the time-out, the copy's unless he was late, and for
 * a few seconds at most.
 */
static void
test_cancel(void)
{
    uint64_t wait_ms = 3 * WAIT_MS;
    berth_status status = cancel_hung(wait_ms);

    while (status == BERTH_EIO && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        status = cancel_hung(wait_ms);
    }
    CHECK_EQ(status, BERTH_ECANCELLED);
    CHECK_EQ(cancel_hung(PATIENT_MS), BERTH_ECANCELLED);
}

/* ---------------------------------------------------------------------- headers */

/* Read number `first` and later hang; a busy machine gets more patience. */
static void
fail_to_start(converted *c, berth_context *context, const char *model, uint64_t first)
{
    uint64_t taken_ns;

    for (c->options.wait_ms = WAIT_MS;; c->options.wait_ms *= 2) {
        const uint64_t begin_ns = berthi_sys_now_ns();

        haul_set((haul_tricks){ .hangs = true, .hang_first = first });
        atomic_store(&haul_reads, 0);
        atomic_store(&haul_is_hung, true);
        atomic_store(&berthi_reader_instead, &haul_reader);
        CHECK_EQ(converted_run_in(c, context, model), BERTH_EIO);
        taken_ns = berthi_sys_now_ns() - begin_ns;
        CHECK_GE(taken_ns, c->options.wait_ms * HUNG_MS_NS);
        if (c->options.wait_ms >= WAIT_MS_MOST
            || strstr(c->error.message, "a read has not come back") != NULL)
            break;
        atomic_store(&haul_is_hung, false);
        berthi_context_sweep(context);
    }
    CHECK_LT(taken_ns, c->options.wait_ms * HUNG_MS_NS + HUNG_SLACK_NS);
}

/* A source has a manifest: its headers are held against that before there is a job. */
static void
test_headers(void)
{
    const char *const model = loaded_llama(2, "BF16", 2);
    const char *const manifest = loaded_manifest(model);
    berth_context *context;
    uint64_t before;
    converted c;

    CHECK(manifest != NULL);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    begin_conversion(&c, BERTH_ENCODING_NF4);
    before = loaded_bytes(context);
    for (uint64_t first = 0; first < 2; first++) {
        fail_to_start(&c, context, model, first);
        CHECK_EQ(c.error.reason, BERTH_REASON_TIMEOUT);
        CHECK_CONTAINS(c.error.file, ".safetensors");
        CHECK_CONTAINS(c.error.message,
                       fixture_format("a read has not come back for %llu milliseconds",
                                      (unsigned long long)c.options.wait_ms));
        CHECK_NE(access(c.options.output, F_OK), 0);
        CHECK_GT(loaded_bytes(context), before); /* what the read uses */
        atomic_store(&haul_is_hung, false);
        berthi_context_sweep(context);
        CHECK_EQ(loaded_bytes(context), before);
    }
    atomic_store(&berthi_reader_instead, NULL);
    haul_set((haul_tricks){ .hangs = false });
    c.options.wait_ms = 0;
    CHECK_EQ(converted_run_in(&c, context, model), BERTH_OK);
    CHECK_GT(c.report.verified_tensors, 0);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_copy);
    T_RUN(test_cancel);
    T_RUN(test_headers);
    T_MAIN_END;
}
