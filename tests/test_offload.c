/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_offload.c - layers of the disk that are written once, as a slot wants them: every
 * byte of them, and nothing left of their file.
 */
#define _GNU_SOURCE

#include "loader/offload.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/moved.h"
#include "tests/passed.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define LAYERS 2u

static const char *const all_layers[] = { "model.layers=disk", "transformer.h=disk" };

/* Where layers lie on the disk, and who computes them. */
typedef struct place {
    const char *memory;
    const char *words;
} place;

static const place on_device =
    { "0=64MiB,cpu=64MiB,disk=inf", "sim:64MiB,jitter=50%,backing=sealed" };
static const place on_host = { "cpu=64MiB,disk=inf", NULL };

static berth_plan_options
options_of(const place *where, int32_t type, bool is_double, int32_t dtype,
           const char *const *pin)
{
    berth_plan_options options = loaded_options(where->memory);

    options.type = type;
    options.double_quant = is_double;
    options.dtype = dtype;
    options.pins = pin;
    options.pin_count = 1;
    return options;
}

/* Bytes of the plan's disk that are not in the checkpoint as they are wanted. */
static uint64_t
offloaded_bytes(const loaded *l)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < l->p.summary.berth_count; i++)
        if (berthi_offload_find(l->model->offload, i) != NULL)
            bytes += l->p.plan->berths[i].bytes;
    return bytes;
}

static bool
load(loaded *l, const char *folder)
{
    l->options.offload_dir = folder;
    loaded_load(l);
    if (CHECK_EQ(l->status, BERTH_OK))
        return true;
    t_note("%s: %s", l->error.file, l->error.message);
    return false;
}

/* ------------------------------------------------------------------------- bytes */

/* Read, streamed and compared: with what `berth quantize` makes, and with the values. */
static void
check_bytes(const char *model, const place *where, int32_t type, bool is_double,
            int32_t dtype, const char *const *pin)
{
    const char *const folder = fixture_folder();
    berth_plan_options options = options_of(where, type, is_double, dtype, pin);
    berth_check_report report;
    loaded l;

    loaded_begin(&l, model, &options, where->words);
    l.options.workers = 3;
    if (load(&l, folder)) {
        CHECK_GT(l.report.offloaded_bytes, 0);
        CHECK_EQ(l.report.offloaded_bytes, offloaded_bytes(&l));
        CHECK_EQ(fixture_count(folder), 0);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        CHECK_GT(passed(&l, 3), 0);
        if (type != BERTH_ENCODING_NATIVE)
            loaded_check(&l, loaded_quantized(model, &options));
    }
    loaded_end(&l);
    CHECK_EQ(fixture_count(folder), 0);
}

static void
test_every_encoding(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8 };
    const char *const model = loaded_llama(LAYERS, "BF16", 2);

    for (uint32_t p = 0; p < 2; p++) {
        const place *const where = p == 0 ? &on_device : &on_host;

        for (uint32_t t = 0; t < 3; t++)
            check_bytes(model, where, types[t], false, -1, all_layers);
        check_bytes(model, where, BERTH_ENCODING_NF4, true, -1, all_layers);
        check_bytes(model, where, BERTH_ENCODING_NATIVE, false, BERTH_F16, all_layers);
        check_bytes(model, where, BERTH_ENCODING_NATIVE, false, BERTH_F32, all_layers);
    }
}

static uint64_t
scratch_of(const loaded *l)
{
    berth_memory m;

    CHECK_EQ(berth_memory_get(l->p.context, 0, BERTH_MEMORY_SCRATCH, &m), BERTH_OK);
    return m.allocated_bytes;
}

/* From the model's own files and from the one that was written: a buffer of the same size. */
static void
test_digests_take_what_tensors_have(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4 };

    for (uint32_t t = 0; t < 2; t++) {
        berth_plan_options options = options_of(&on_host, types[t], false, -1, all_layers);
        uint64_t most = 0;
        loaded l;

        loaded_begin(&l, loaded_wide(1), &options, NULL);
        if (load(&l, fixture_folder()))
            for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
                const uint64_t before = scratch_of(&l);
                uint32_t crc;

                CHECK_EQ(berth_model_digest(l.model, i, &crc, NULL), BERTH_OK);
                CHECK_LE(scratch_of(&l) - before, l.p.plan->berths[i].bytes);
                CHECK_LE(scratch_of(&l) - before, UINT64_C(512) << 10);
                most = berthi_max_u64(most, scratch_of(&l) - before);
            }
        CHECK_EQ(most, UINT64_C(512) << 10);
        loaded_end(&l);
    }
}

/* Stored in one encoding, written in another: codes and statistics are read for it. */
static void
test_stored_in_another_encoding(void)
{
    berth_plan_options options = loaded_options(NULL);
    const char *folder;

    options.type = BERTH_ENCODING_NF4;
    folder = loaded_quantized(loaded_llama(LAYERS, "BF16", 1), &options);
    check_bytes(folder, &on_device, BERTH_ENCODING_INT8, false, -1, all_layers);
    check_bytes(folder, &on_host, BERTH_ENCODING_FP4, true, -1, all_layers);
}

/* Values in another dtype, weights in several pieces, and those that lie turned. */
static void
test_other_sources(void)
{
    check_bytes(loaded_llama(LAYERS, "F32", 1), &on_device, BERTH_ENCODING_NF4, true,
                BERTH_BF16, all_layers);
    check_bytes(loaded_wide(2), &on_device, BERTH_ENCODING_NF4, true, -1, all_layers);
    check_bytes(loaded_wide(1), &on_host, BERTH_ENCODING_INT8, false, -1, all_layers);
    check_bytes(loaded_gpt2("BF16", 256, 1), &on_host, BERTH_ENCODING_NF4, true, -1,
                &all_layers[1]);
    check_bytes(loaded_gpt2("BF16", 256, 1), &on_device, BERTH_ENCODING_INT8, false, -1,
                &all_layers[1]);
}

/* Some of a layer on the disk, some in host memory, some of the model resident. */
static void
test_parts_of_layers(void)
{
    static const char *const pins[] = { "model.layers.0.mlp=disk",
                                        "model.layers.1.self_attn=disk",
                                        "model.layers.1=cpu" };
    const char *const folder = fixture_folder();
    berth_plan_options options =
        options_of(&on_device, BERTH_ENCODING_NF4, true, -1, pins);
    loaded l;

    options.pin_count = 3;
    loaded_begin(&l, loaded_llama(3, "BF16", 1), &options,
                 "sim:64MiB,h2d=500MB/s,jitter=50%,clock=real");
    if (load(&l, folder)) {
        berth_lease_summary leases;

        CHECK_GT(passed(&l, 4), 0);
        berth_model_leases(l.model, &leases);
        CHECK_GT(leases.disk_bytes, 0);
        CHECK_GT(leases.copied_bytes, leases.disk_bytes);
    }
    loaded_end(&l);
}

/* All that the expert has is there, with the digests of its berths. */
static bool
is_right(loaded *l, uint32_t layer, uint32_t expert)
{
    const char *const mark = fixture_format("experts.%u.", expert);
    uint32_t looked = 0;

    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_model_tensor t;
        uint32_t expected;
        uint32_t crc = 0;

        CHECK_EQ(berth_model_get_tensor(l->model, i, &t), BERTH_OK);
        if (t.layer != layer || !t.is_expert || strstr(t.name, mark) == NULL)
            continue;
        CHECK_EQ(berth_model_digest(l->model, i, &expected, NULL), BERTH_OK);
        for (uint32_t p = 0; p < t.part_count; p++)
            crc = berthi_digest_crc32(crc, t.parts[p].memory, (size_t)t.parts[p].bytes);
        if (!CHECK_EQ(crc, expected))
            t_note("%s", t.name);
        looked++;
    }
    return looked == 3;
}

/* Experts come out of it, too: what does not fit, the plan leaves on the disk. */
static void
test_experts(void)
{
    static const place tight = { "0=460KiB,disk=inf", "cpu" };
    berth_plan_options options =
        options_of(&tight, BERTH_ENCODING_NATIVE, false, BERTH_F32, NULL);
    loaded l;

    options.pin_count = 0;
    loaded_begin(&l, leased_moe(4, 16, false), &options, tight.words);
    if (load(&l, fixture_folder())) {
        uint32_t used = 0;

        CHECK_GT(l.report.offloaded_bytes, 0);
        for (uint32_t i = 0; i < l.p.summary.layer_count; i++)
            for (uint32_t e = 0; e < 16; e++) {
                berth_error error;

                if (berth_experts_acquire(l.model, i, &e, 1, NULL, &error) != BERTH_OK)
                    continue;
                used += is_right(&l, i, e);
                CHECK_EQ(berth_experts_release(l.model, i, &e, 1, NULL, &error), BERTH_OK);
            }
        CHECK_EQ(used, 4 * 16);
    }
    loaded_end(&l);
}

/* What the checkpoint has as it is wanted stays there: no file, no folder. */
static void
test_nothing_to_write(void)
{
    const char *const folder = fixture_format("%s/none", fixture_folder());
    berth_plan_options options =
        options_of(&on_device, BERTH_ENCODING_NF4, true, -1, all_layers);
    const char *const quantized =
        loaded_quantized(loaded_llama(LAYERS, "BF16", 1), &options);
    loaded l;

    loaded_begin(&l, quantized, &options, on_device.words);
    if (load(&l, folder)) {
        CHECK(l.model->offload == NULL);
        CHECK_EQ(l.report.offloaded_bytes, 0);
        CHECK_EQ(fixture_count(folder), -1);
        CHECK_GT(passed(&l, 2), 0);
    }
    loaded_end(&l);
}

/* -------------------------------------------------------------------------- moves */

/* Bytes that were written come from the file wherever they go, and can go back. */
static void
test_moves(void)
{
    static const char *const to_host[] = { "model.layers=cpu" };
    berth_plan_options options =
        options_of(&on_device, BERTH_ENCODING_NF4, true, -1, all_layers);
    berth_plan_options other = options;
    berth_plan *host;
    moved m;

    moved_begin_with(&m, loaded_llama(LAYERS, "BF16", 2), &options, on_device.words,
                     fixture_folder());
    other.pins = to_host;
    other.finding = NULL;
    host = moved_plan(&m, &other);
    for (uint32_t round = 0; round < 2; round++) {
        CHECK(moved_is_ok(&m, moved_move(&m, host)));
        CHECK_GE(m.report.read_bytes, m.l.report.offloaded_bytes);
        moved_check(&m);
        m.options.discards = round == 1;
        CHECK(moved_is_ok(&m, moved_sleep(&m)));
        CHECK(moved_is_ok(&m, moved_wake(&m)));
        moved_check(&m);
        CHECK(moved_is_ok(&m, moved_move(&m, m.l.p.plan)));
        moved_check(&m);
        CHECK_EQ(passed(&m.l, 1), m.looked);
    }
    moved_free_plans();
    moved_end(&m);
}

/* ------------------------------------------------------------------------ refusals */

/*
 * The load fails so, and names the folder; all is given back. `file_bytes`: what this
 * process may write, 0: anything.
 */
static void
check_refused(const char *folder, uint64_t file_bytes, berth_reason reason,
              const char *words)
{
    const int fds = fixture_open_fds();
    struct rlimit before;
    struct rlimit limit;
    berth_plan_options options =
        options_of(&on_host, BERTH_ENCODING_NF4, false, -1, all_layers);
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    l.options.offload_dir = folder;
    T_REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    if (file_bytes > 0)
        limit.rlim_cur = file_bytes;
    T_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    loaded_load(&l);
    T_REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_NE(l.status, BERTH_OK);
    CHECK_EQ(l.error.reason, reason);
    CHECK_CONTAINS(l.error.message, words);
    if (folder != NULL)
        CHECK_STR(l.error.file, folder);
    if (file_bytes > 0) { /* said with both numbers, before anything was written */
        CHECK_EQ(l.error.actual, file_bytes);
        CHECK_GT(l.error.expected, 256 * UINT64_C(1024));
    }
    loaded_end(&l);
    CHECK_EQ(fixture_open_fds(), fds);
}

static void
test_refusals(void)
{
    const char *const folder = fixture_folder();
    const char *const file = fixture_format("%s/file", folder);

    fixture_text(file, "none");
    check_refused(NULL, 0, BERTH_REASON_UNSUPPORTED, "--offload-dir");
    check_refused(fixture_format("%s/no/such", folder), 0, BERTH_REASON_NOT_FOUND,
                  "creating the folder");
    check_refused(file, 0, BERTH_REASON_NOT_FOUND, "opening the folder");
    check_refused(folder, 4096, BERTH_REASON_DISK_FULL,
                  "larger than this process may write");
    CHECK_EQ(fixture_count(folder), 1);
}

/* --------------------------------------------------------------------- the folder */

static void
test_folder_is_made_and_removed(void)
{
    const char *const folder = fixture_format("%s/new", fixture_folder());
    berth_plan_options options =
        options_of(&on_host, BERTH_ENCODING_INT8, false, -1, all_layers);
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    if (load(&l, folder)) {
        struct stat state;

        CHECK_EQ(fixture_count(folder), -1);
        CHECK_EQ(fstat(l.model->offload->file.fd, &state), 0);
        CHECK_EQ(state.st_nlink, 0);
        CHECK_EQ(state.st_mode & 07777, 0600);
        CHECK_GT(passed(&l, 2), 0);
    }
    loaded_end(&l);
    CHECK_EQ(fixture_count(folder), -1);
}

/* Where files without a name are refused: an instant later there is none, either. */
static void
test_named_for_a_moment(void)
{
    const char *const folder = fixture_folder();
    berth_plan_options options =
        options_of(&on_host, BERTH_ENCODING_NF4, false, -1, all_layers);
    berth_model model = { .tier_count = 0 };
    uint64_t before = 0;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    model.context = l.p.context;
    model.checkpoint = l.p.checkpoint;
    model.plan = l.p.plan;
    for (uint64_t nth = 0; nth < 8 && before == 0; nth++) {
        berthi_offload *offload;
        struct stat state;
        berth_error error;

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        if (berthi_offload_create(&model, l.p.plan, folder, &offload, &error) == BERTH_OK
            && berthi_fault_calls(BERTHI_FAULT_SYSTEM) > 9)
            before = nth;
        berthi_fault_disarm();
        if (before != 0) {
            CHECK_EQ(fstat(offload->file.fd, &state), 0);
            CHECK_EQ(state.st_nlink, 0);
            CHECK_EQ(state.st_mode & 07777, 0600);
            CHECK_EQ((uint64_t)state.st_size, offload->bytes);
        }
        CHECK_EQ(fixture_count(folder), 0);
        berthi_offload_destroy(offload);
    }
    CHECK_GT(before, 0);
    loaded_end(&l);
}

/* A process that is killed leaves nothing. */
static void
test_killed(void)
{
    const char *const folder = fixture_folder();
    const char *const model = loaded_llama(1, "BF16", 1);
    int status;
    const pid_t child = fork();

    T_REQUIRE(child >= 0);
    if (child == 0) {
        berth_plan_options options =
            options_of(&on_host, BERTH_ENCODING_NF4, false, -1, all_layers);
        loaded l;

        loaded_begin(&l, model, &options, NULL);
        (void)kill(load(&l, folder) ? getpid() : 0, SIGKILL);
        _exit(1);
    }
    T_REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
    CHECK_EQ(fixture_count(folder), 0);
}

/* -------------------------------------------------------------------------- damage */

/* A byte that is lost on the disk: a check finds it, and names the tensor. */
static void
test_damage(void)
{
    berth_plan_options options =
        options_of(&on_host, BERTH_ENCODING_NF4, false, -1, all_layers);
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    if (load(&l, fixture_folder())) {
        const berthi_file *const file = &l.model->offload->file;
        berth_check_report report;
        unsigned char byte;

        CHECK_EQ(pread(file->fd, &byte, 1, 0), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(file->fd, &byte, 1, 0), 1);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_EINTEGRITY);
        CHECK_EQ(report.mismatches, 1);
        CHECK_EQ(l.error.reason, BERTH_REASON_DIGEST);
        CHECK_CONTAINS(l.error.message, "lies on disk with other bytes");
        byte ^= 1;
        CHECK_EQ(pwrite(file->fd, &byte, 1, 0), 1);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        /* Right by now, but not what had been written. */
        for (uint64_t i = 0; i < l.p.summary.berth_count; i++)
            if (l.model->offload->offsets[i] == 0)
                atomic_fetch_xor(&l.model->offload->crcs[i], 1);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_EINTEGRITY);
        CHECK_EQ(report.mismatches, 1);
    }
    loaded_end(&l);
}

/* -------------------------------------------------------------------------- faults */

typedef struct attempt {
    const char *model;
    const char *folder;
    const place *where;
} attempt;

static berth_status
load_and_lease(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    berth_plan_options options =
        options_of(a->where, BERTH_ENCODING_NF4, true, -1, all_layers);
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_model *model = NULL;
    berth_load_options load_options;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    berth_load_options_init(&load_options);
    load_options.no_uring = 1;
    load_options.workers = 1;
    load_options.readers = 1;
    load_options.offload_dir = a->folder;
    status = berth_checkpoint_open(context, a->model, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    if (status == BERTH_OK && a->where->words != NULL)
        status = berth_devices_open(context, a->where->words, &devices, error);
    load_options.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load_options, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    for (uint32_t i = 0; status == BERTH_OK && i < 2; i++) {
        status = berth_layer_acquire(model, i, NULL, error);
        if (status == BERTH_OK)
            status = berth_layer_release(model, i, NULL, error);
    }
    berth_model_destroy(model);
    vacant_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_every_call_can_fail(void)
{
    attempt a = { .model = loaded_llama(1, "BF16", 1),
                  .folder = fixture_format("%s/new", fixture_folder()),
                  .where = &on_host };
    const fault_counts counts = fault_loop("layers that are written", load_and_lease, &a);

    CHECK_GT(counts.memory, 50);
    CHECK_GT(counts.system, 50);
    CHECK_EQ(fixture_count(a.folder), -1);
}

static int
cancel_at_once(void *user, const berth_progress *progress)
{
    (void)user;
    (void)progress;
    return 1;
}

/* At once, and after some ms: then the load may have ended before. */
static void
test_cancel(void)
{
    const char *const folder = fixture_folder();
    const char *const model = loaded_llama(LAYERS, "BF16", 1);
    berth_plan_options options =
        options_of(&on_host, BERTH_ENCODING_NF4, false, -1, all_layers);

    for (uint32_t ms = 0; ms < 12; ms += 2) {
        const int fds = fixture_open_fds();
        berth_job *job = NULL;
        loaded l;

        loaded_begin(&l, model, &options, NULL);
        l.options.offload_dir = folder;
        l.options.progress = ms == 0 ? cancel_at_once : NULL;
        T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job,
                                   &l.error)
                  == BERTH_OK);
        (void)berth_job_wait(job, ms);
        if (ms > 0)
            berth_job_cancel(job);
        l.status = berth_load_finish(job, &l.model, &l.error);
        CHECK(l.status == BERTH_ECANCELLED || (ms > 0 && l.status == BERTH_OK));
        CHECK((l.model != NULL) == (l.status == BERTH_OK));
        CHECK_EQ(fixture_count(folder), 0);
        loaded_end(&l);
        CHECK_EQ(fixture_open_fds(), fds);
    }
}

/* ------------------------------------------------------------------------- stalls */

#define STALL_NS UINT64_C(300000000)

typedef struct flush {
    berthi_offload offload;
    bool was_soon; /* or a disk that is busy took as long as a stall */
} flush;

/* Nothing moves for long; then what was written goes to the disk. */
static berth_status
run_end(berth_job *job, void *user, berth_error *error)
{
    flush *const f = user;
    berth_progress progress;
    berth_status status;
    uint64_t begin_ns;

    berthi_sys_sleep(STALL_NS + STALL_NS / 2);
    berth_job_poll(job, &progress);
    CHECK_EQ(progress.is_stalled, 1);
    begin_ns = berthi_sys_now_ns();
    status = berthi_offload_end(&f->offload, job, error);
    berth_job_poll(job, &progress);
    f->was_soon = berthi_sys_now_ns() - begin_ns < STALL_NS;
    if (f->was_soon)
        CHECK_EQ(progress.is_stalled, 0);
    return status;
}

/* Whoever watches a job is not told that it stalls while its file goes to the disk. */
static void
test_what_goes_to_the_disk_moves(void)
{
    const char *const path = fixture_format("%s/file", fixture_folder());
    berth_context *context;
    flush f = { .offload = { .bytes = 1, .path = (char *)(uintptr_t)path } };
    const berthi_job_work work = { .run = run_end,
                                   .user = &f,
                                   .phase = "test",
                                   .stall_ns = STALL_NS };
    berth_error error;
    berth_job *job;

    fixture_text(path, "1");
    f.offload.file.fd = open(path, O_RDWR | O_CLOEXEC);
    T_REQUIRE(f.offload.file.fd >= 0);
    T_REQUIRE(berth_context_create(NULL, &context, &error) == BERTH_OK);
    for (int tries = 0; tries < T_CANCEL_TRIES && !f.was_soon; tries++) {
        T_REQUIRE(berthi_job_start(context, &work, &job, &error) == BERTH_OK);
        CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    }
    CHECK(f.was_soon);
    berth_context_destroy(context);
    (void)close(f.offload.file.fd);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_every_encoding);
    T_RUN(test_digests_take_what_tensors_have);
    T_RUN(test_stored_in_another_encoding);
    T_RUN(test_other_sources);
    T_RUN(test_parts_of_layers);
    T_RUN(test_experts);
    T_RUN(test_nothing_to_write);
    T_RUN(test_moves);
    T_RUN(test_refusals);
    T_RUN(test_folder_is_made_and_removed);
    T_RUN(test_named_for_a_moment);
    T_RUN(test_killed);
    T_RUN(test_damage);
    T_RUN(test_cancel);
    T_RUN(test_what_goes_to_the_disk_moves);
    T_RUN(test_every_call_can_fail);
    return t_end();
}
