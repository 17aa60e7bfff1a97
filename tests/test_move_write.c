/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_move_write.c - moves that take to the disk what was made while a model was loaded:
 * every byte afterwards, in its file and in its slot, and nothing left of files when a
 * move fails, a model ends or its process is killed.
 */
#define _GNU_SOURCE

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "loader/offload.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/moved.h"
#include "tests/passed.h"
#include "tests/sliced.h"
#include "tests/t.h"

#define LAYERS 3u

static const char *const in_memory[] = {"model.layers=cpu"};
static const char *const on_disk[] = {"model.layers=disk"};

/* Where the model is, and who computes it. */
typedef struct place {
    const char *memory;
    const char *words;
    const char *const *pin; /* in memory */
} place;

static const char *const on_device[] = {"model.layers=cuda:0"};

static const place places[] = {
    {"0=64MiB,cpu=64MiB,disk=inf", "sim:160MiB,jitter=50%", on_device},
    {"0=64MiB,cpu=64MiB,disk=inf", "sim:64MiB,jitter=50%", in_memory},
    {"cpu=64MiB,disk=inf", NULL, in_memory},
};

#define PLACES  (sizeof places / sizeof places[0])
#define ON_HOST (&places[2])

static berth_plan_options
options_of(const place *where, int32_t type, bool is_double)
{
    berth_plan_options options = loaded_options(where->memory);

    options.type = type;
    options.double_quant = is_double;
    options.pins = where->pin;
    options.pin_count = 1;
    return options;
}

/* The same plan with these pins. */
static berth_plan *
plan_with(moved *m, const berth_plan_options *options, const char *const *pins,
          uint32_t count)
{
    berth_plan_options other = *options;

    other.pins = pins;
    other.pin_count = count;
    other.finding = NULL;
    return moved_plan(m, &other);
}

/* Passes read the plan that the model has. */
static uint64_t
pass_with(moved *m, berth_plan *plan)
{
    berth_plan *const first = m->l.p.plan;
    uint64_t looked;

    m->l.p.plan = plan;
    looked = passed(&m->l, 2);
    m->l.p.plan = first;
    return looked;
}

/* Files that the model has written. */
static uint32_t
count_files(const moved *m)
{
    const berthi_offload *const newest = m->l.model->offload;

    return newest != NULL ? newest->number + 1 : 0;
}

/* Parts of the berths that the newest file has, without what fills them up. */
static uint64_t
newest_bytes(const moved *m)
{
    const berthi_offload *const newest = m->l.model->offload;
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < newest->berth_count; i++) {
        berth_model_tensor t;

        if (newest->offsets[i] == BERTHI_NOT_OFFLOADED)
            continue;
        CHECK_EQ(berth_model_get_tensor(m->l.model, i, &t), BERTH_OK);
        for (uint32_t p = 0; p < t.part_count; p++)
            bytes += t.parts[p].bytes;
    }
    return bytes;
}

/* On the disk by now: the bytes that were loaded, each where it says, checked anew. */
static void
check_all(moved *m, berth_plan *plan)
{
    berth_check_report report;

    moved_check(m);
    CHECK_EQ(pass_with(m, plan), m->looked);
    if (!CHECK_EQ(loaded_see_checked(&m->l, &report), BERTH_OK))
        t_note("%s: %s", m->l.error.tensor, m->l.error.message);
    CHECK_EQ(report.mismatches, 0);
}

/* ------------------------------------------------------------------------------ bytes */

/* To the disk, back, to the disk again, asleep between: written once, and the same. */
static void
there_and_back(const char *model, const berth_plan_options *high, const char *words,
               const char *const *pins)
{
    const char *const folder = fixture_folder();
    berth_plan_options options = *high;
    berth_plan *low;
    moved m;

    moved_begin_with(&m, model, &options, words, folder);
    CHECK_EQ(count_files(&m), 0);
    low = plan_with(&m, &options, pins, 1);
    for (uint32_t round = 0; round < 2; round++) {
        if (!moved_is_ok(&m, moved_move(&m, low)))
            break;
        CHECK_EQ(count_files(&m), 1);
        CHECK_EQ(m.report.written_bytes, round == 0 ? newest_bytes(&m) : 0);
        CHECK_GT(newest_bytes(&m), 0);
        CHECK_EQ(m.report.read_bytes, 0);
        check_all(&m, low);
        m.options.discards = round == 1;
        CHECK(moved_is_ok(&m, moved_sleep(&m)));
        CHECK_EQ(m.report.written_bytes, 0);
        CHECK(moved_is_ok(&m, moved_wake(&m)));
        check_all(&m, low);
        CHECK(moved_is_ok(&m, moved_move(&m, m.l.p.plan)));
        CHECK_GE(m.report.read_bytes, newest_bytes(&m));
        CHECK_EQ(m.report.written_bytes, 0);
        check_all(&m, m.l.p.plan);
        CHECK_EQ(moved_used(&m), m.memory);
        CHECK_EQ(fixture_count(folder), 0);
    }
    moved_free_plans();
    moved_end(&m);
    CHECK_EQ(fixture_count(folder), 0);
}

static void
test_every_encoding(void)
{
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                    BERTH_ENCODING_INT8, BERTH_ENCODING_NF4,
                                    BERTH_ENCODING_FP4};
    const char *const model = loaded_llama(2, "BF16", 2);

    for (uint32_t p = 0; p < PLACES; p++)
        for (uint32_t t = 0; t < 5; t++) {
            const berth_plan_options options = options_of(&places[p], types[t], t > 2);

            there_and_back(model, &options, places[p].words, on_disk);
        }
}

/* In another dtype, and of several pieces: 12 MB in fp32. */
static void
test_other_dtypes(void)
{
    static const place large[] = {
        {"0=128MiB,cpu=128MiB,disk=inf", "sim:320MiB,jitter=50%", on_device},
        {"0=128MiB,cpu=128MiB,disk=inf", "sim:128MiB", in_memory},
        {"cpu=128MiB,disk=inf", NULL, in_memory},
    };
    const char *const wide = loaded_wide(1);

    for (uint32_t p = 0; p < PLACES; p++) {
        berth_plan_options options = options_of(&large[p], BERTH_ENCODING_NATIVE, false);

        options.dtype = BERTH_F32;
        there_and_back(wide, &options, large[p].words, on_disk);
    }
}

/* Weights that lie the other way round in their encoding. */
static void
test_turned(void)
{
    static const char *const memory[] = {"transformer.h=cpu"};
    static const char *const disk[] = {"transformer.h=disk"};
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_INT8};

    for (uint32_t t = 0; t < 2; t++) {
        berth_plan_options options = options_of(ON_HOST, types[t], t == 0);

        options.pins = memory;
        there_and_back(loaded_gpt2("BF16", 256, 1), &options, NULL, disk);
    }
}

/* Columns of a rank: also those that are stored quantized lie together then. */
static void
test_slices(void)
{
    const char *const model = sliced_make(&sliced_blocks);
    berth_plan_options options = loaded_options(NULL);
    const char *quantized;

    options.type = BERTH_ENCODING_INT8;
    quantized = loaded_quantized(model, &options);
    for (uint32_t i = 0; i < 3; i++) {
        options = sliced_options("cpu=64MiB,disk=inf", i, 4);
        options.type = i == 0 ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NATIVE;
        options.pins = in_memory;
        options.pin_count = 1;
        there_and_back(i == 1 ? quantized : model, &options, NULL, on_disk);
    }
}

/* All that the expert has is there, with the digests of its berths. */
static bool
is_right(moved *m, uint32_t layer, uint32_t expert)
{
    const char *const mark = fixture_format("experts.%u.", expert);
    uint32_t looked = 0;

    for (uint64_t i = 0; i < m->l.p.summary.berth_count; i++) {
        berth_model_tensor t;
        uint32_t crc = 0;

        CHECK_EQ(berth_model_get_tensor(m->l.model, i, &t), BERTH_OK);
        if (t.layer != layer || !t.is_expert || strstr(t.name, mark) == NULL)
            continue;
        for (uint32_t p = 0; p < t.part_count; p++)
            crc = berthi_digest_crc32(crc, t.parts[p].memory, (size_t)t.parts[p].bytes);
        if (!CHECK_EQ(crc, m->digests[i]))
            t_note("%s", t.name);
        looked++;
    }
    return looked == 3;
}

/* Experts come out of it one by one. */
static void
test_experts(void)
{
    berth_plan_options options = loaded_options("0=64MiB,disk=inf");
    uint32_t used = 0;
    berth_plan *low;
    moved m;

    options.dtype = BERTH_F32;
    moved_begin_with(&m, leased_moe(4, 16, false), &options, "cpu", fixture_folder());
    options.max_memory = "0=460KiB,disk=inf";
    low = plan_with(&m, &options, NULL, 0);
    CHECK(moved_is_ok(&m, moved_move(&m, low)));
    CHECK_EQ(count_files(&m), 1);
    moved_check(&m);
    for (uint32_t i = 0; i < m.l.p.summary.layer_count; i++)
        for (uint32_t e = 0; e < 16; e++) {
            berth_error error;

            if (berth_experts_acquire(m.l.model, i, &e, 1, NULL, &error) != BERTH_OK)
                continue;
            used += is_right(&m, i, e);
            CHECK_EQ(berth_experts_release(m.l.model, i, &e, 1, NULL, &error), BERTH_OK);
        }
    CHECK_EQ(used, 4 * 16);
    moved_free_plans();
    moved_end(&m);
}

/* ---------------------------------------------------------------------- several files */

/* One of the load, one of each move that has more to write: all are read, at once, too.
 */
static void
several_files(const place *where)
{
    static const char *const layers[] = {"model.layers.2=disk", "model.layers.0=disk",
                                         "model.layers.1=disk"};
    const char *const folder = fixture_folder();
    berth_plan_options options = options_of(where, BERTH_ENCODING_NF4, true);
    const char *first[] = {layers[0], where->pin[0]};
    const char *one[] = {layers[1], layers[2], where->pin[0]};
    berth_plan *steps[4];
    moved m;

    options.pins = first;
    options.pin_count = 2;
    moved_begin_with(&m, loaded_llama(LAYERS, "BF16", 2), &options, where->words, folder);
    steps[0] = plan_with(&m, &options, layers, 2); /* 2 and 0 */
    CHECK_EQ(count_files(&m), 1);
    steps[1] = plan_with(&m, &options, one, 2); /* 0 and 1; 2 is promoted */
    steps[2] = plan_with(&m, &options, layers, 3);
    steps[3] = plan_with(&m, &options, where->pin, 1);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t files = i == 0 ? 2 : 3;

        if (!moved_is_ok(&m, moved_move(&m, steps[i])))
            break;
        CHECK_EQ(count_files(&m), files);
        CHECK_EQ(m.report.written_bytes, i < 2 ? newest_bytes(&m) : 0);
        check_all(&m, steps[i]);
        m.options.discards = 1; /* whatever any of the files has is read again */
        CHECK(moved_is_ok(&m, moved_sleep(&m)));
        CHECK(moved_is_ok(&m, moved_wake(&m)));
        check_all(&m, steps[i]);
    }
    CHECK_EQ(fixture_count(folder), 0);
    moved_free_plans();
    moved_end(&m);
}

static void
test_several_files(void)
{
    for (uint32_t p = 0; p < PLACES; p++)
        several_files(&places[p]);
}

/* Each berth is in one of them, with the digest of what was written there. */
static void
test_damage(void)
{
    static const char *const pins[] = {"model.layers.0=disk", "model.layers.1=disk"};
    berth_plan_options options = options_of(ON_HOST, BERTH_ENCODING_NF4, false);
    berth_plan *steps[2];
    moved m;

    moved_begin_with(&m, loaded_llama(2, "BF16", 1), &options, NULL, fixture_folder());
    for (uint32_t i = 0; i < 2; i++) {
        steps[i] = plan_with(&m, &options, pins, i + 1);
        CHECK(moved_is_ok(&m, moved_move(&m, steps[i])));
    }
    T_REQUIRE(count_files(&m) == 2);
    for (berthi_offload *o = m.l.model->offload; o != NULL; o = o->before) {
        berth_check_report report;
        unsigned char byte;

        CHECK_EQ(pread(o->file.fd, &byte, 1, 0), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(o->file.fd, &byte, 1, 0), 1);
        CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_EINTEGRITY);
        CHECK_EQ(report.mismatches, 1);
        byte ^= 1;
        CHECK_EQ(pwrite(o->file.fd, &byte, 1, 0), 1);
        CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_OK);
        for (uint64_t i = 0; i < o->berth_count; i++)
            if (o->offsets[i] == 0)
                atomic_fetch_xor(&o->crcs[i], 1);
        CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_EINTEGRITY);
        CHECK_EQ(report.mismatches, 1);
        for (uint64_t i = 0; i < o->berth_count; i++)
            if (o->offsets[i] == 0)
                atomic_fetch_xor(&o->crcs[i], 1);
    }
    moved_free_plans();
    moved_end(&m);
}

/* ------------------------------------------------------------------------- the folder */

/* The caller's words are copied; the folder is made where it is not there, and goes. */
static void
test_folder(void)
{
    const char *const folder = fixture_format("%s/new", fixture_folder());
    berth_plan_options options = options_of(ON_HOST, BERTH_ENCODING_NF4, false);
    char *const words = strdup(folder);
    struct stat state;
    berth_plan *low;
    moved m;

    T_REQUIRE(words != NULL);
    moved_begin_with(&m, loaded_llama(1, "BF16", 1), &options, NULL, words);
    memset(words, '/', strlen(words));
    free(words);
    m.l.options.offload_dir = NULL;
    CHECK_EQ(fixture_count(folder), -1);
    low = plan_with(&m, &options, on_disk, 1);
    CHECK(moved_is_ok(&m, moved_move(&m, low)));
    CHECK_EQ(fixture_count(folder), -1);
    T_REQUIRE(m.l.model->offload != NULL);
    CHECK_EQ(fstat(m.l.model->offload->file.fd, &state), 0);
    CHECK_EQ(state.st_nlink, 0);
    CHECK_EQ(state.st_mode & 07777, 0600);
    check_all(&m, low);
    moved_free_plans();
    moved_end(&m);
}

/*
 * The move fails so, and names the folder; the model is what it was, and goes there when
 * it can. `file_bytes`: what this process may write, 0: anything.
 */
static void
check_refused(moved *m, berth_plan *low, const char *folder, uint64_t file_bytes,
              berth_reason reason, const char *words)
{
    const berthi_offload *const newest = m->l.model->offload;
    const int fds = fixture_open_fds();
    struct rlimit before;
    struct rlimit limit;
    berth_status status;

    T_REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    if (file_bytes > 0)
        limit.rlim_cur = file_bytes;
    T_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    status = moved_move(m, low);
    T_REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_NE(status, BERTH_OK);
    CHECK_EQ(m->error.reason, reason);
    CHECK_CONTAINS(m->error.message, words);
    CHECK_STR(m->error.file, folder);
    if (file_bytes > 0) { /* said with both numbers, before anything was written */
        CHECK_EQ(m->error.actual, file_bytes);
        CHECK_GT(m->error.expected, 256 * UINT64_C(1024));
    }
    CHECK_EQ(m->report.written_bytes, 0);
    CHECK(m->l.model->offload == newest);
    CHECK_EQ(fixture_open_fds(), fds);
    moved_check(m);
    CHECK_EQ(passed(&m->l, 1), m->looked);
    CHECK_EQ(moved_used(m), m->memory);
}

static void
test_refusals(void)
{
    const char *const parent = fixture_folder();
    const char *const folder = fixture_format("%s/no/such", parent);
    berth_plan_options options = options_of(ON_HOST, BERTH_ENCODING_NF4, false);
    berth_plan *low;
    moved m;

    moved_begin_with(&m, loaded_llama(1, "BF16", 1), &options, NULL, folder);
    low = plan_with(&m, &options, on_disk, 1);
    check_refused(&m, low, folder, 0, BERTH_REASON_NOT_FOUND, "creating the folder");
    T_REQUIRE(mkdir(fixture_format("%s/no", parent), 0700) == 0);
    check_refused(&m, low, folder, 4096, BERTH_REASON_DISK_FULL,
                  "larger than this process may write");
    fixture_text(folder, "none");
    check_refused(&m, low, folder, 0, BERTH_REASON_NOT_FOUND, "opening the folder");
    T_REQUIRE(unlink(folder) == 0);
    CHECK(moved_is_ok(&m, moved_move(&m, low)));
    check_all(&m, low);
    CHECK_EQ(fixture_count(fixture_format("%s/no", parent)), 0);
    moved_free_plans();
    moved_end(&m);
}

/* ---------------------------------------------------------------------------- failures
 */

/* What fails: a model with one file, which is to write another one. */
typedef struct attempt {
    const place *where;
    const char *model;
    const char *folder;
    uint64_t half_way; /* runs that failed when some of it had been written */
} attempt;

static berth_plan *
attempt_begin(const attempt *a, moved *m)
{
    static const char *const both[] = {"model.layers.0=disk", "model.layers.1=disk"};
    berth_plan_options options = options_of(a->where, BERTH_ENCODING_NF4, true);
    const char *first[] = {both[0], a->where->pin[0]};

    options.pins = first;
    options.pin_count = 2;
    moved_begin_with(m, a->model, &options, a->where->words, a->folder);
    CHECK_EQ(count_files(m), 1);
    return plan_with(m, &options, both, 2);
}

/*
 * Whatever has happened: all bytes are there, and it can be done now. Leases begin anew:
 * those that began while calls failed may have read ahead, and say what failed then.
 */
static void
attempt_end(const attempt *a, moved *m, berth_plan *low, berth_status status)
{
    CHECK_EQ(count_files(m), status == BERTH_OK ? 2 : 1);
    CHECK_EQ(fixture_count(a->folder), 0);
    if (berth_model_get_state(m->l.model) == BERTH_MODEL_AWAKE)
        (void)moved_is_ok(m, moved_sleep(m));
    (void)moved_is_ok(m, moved_wake(m));
    moved_check(m);
    if (status != BERTH_OK) {
        CHECK_EQ(passed(&m->l, 1), m->looked);
        CHECK_EQ(moved_used(m), m->memory);
        (void)moved_is_ok(m, moved_move(m, low));
    }
    moved_check(m);
    CHECK_EQ(pass_with(m, low), m->looked);
    moved_free_plans();
    moved_end(m);
}

/* From start to finish with the n-th call failing. */
static berth_status
move_and_fail(attempt *a, moved *m, const berth_plan *plan, berthi_fault_kind kind,
              uint64_t nth, bool persistent, bool *is_due)
{
    berth_progress progress = { .done = 0 };
    berth_job *job = NULL;
    berth_status status;
    uint64_t sum;

    berthi_fault_arm(kind, nth, persistent);
    status = berth_model_move_start(m->l.model, plan, &m->options, &job, &m->error);
    if (status == BERTH_OK) {
        (void)berth_job_wait(job, -1);
        berth_job_poll(job, &progress);
    }
    *is_due = berthi_fault_failures(kind) > 0;
    berthi_fault_disarm();
    status = moved_finish(m, status, job);
    sum = m->report.carried_bytes + m->report.written_bytes;
    CHECK_LE(sum, progress.total);
    if (status == BERTH_OK) { /* all but what fills parts up */
        CHECK_EQ(progress.done, progress.total);
        CHECK_LT(progress.total - sum,
                 m->l.p.summary.berth_count * BERTH_MODEL_PARTS * 256);
    } else {
        CHECK_EQ(progress.done, sum);
        a->half_way += m->report.written_bytes > 0;
    }
    return status;
}

/* Returns how many moves failed. */
static uint64_t
fail_each(attempt *a, berthi_fault_kind kind, bool persistent)
{
    /*
     * Sanitizers take their time: who fails more often is the plain build. Of a device's calls
     * most that fail once are done in another way; which are not depends on the order of
     * threads, so each of them has its turn, or a third where threads are watched.
     */
    const bool is_thorough = getenv("T_THOROUGH") != NULL;
    const bool is_each = kind == BERTHI_FAULT_DEVICE && !persistent;
    const uint64_t step = is_thorough ? 1
                          : is_each   ? (T_HAS_THREADS_WATCHED ? 3 : 1)
                                      : (T_IS_SANITIZED ? 9 : 3);
    uint64_t failed = 0;
    bool is_due = true;

    for (uint64_t nth = 0; is_due; nth += step) {
        const int fds = fixture_open_fds();
        berth_status status;
        berth_plan *low;
        moved m;

        low = attempt_begin(a, &m);
        status = move_and_fail(a, &m, low, kind, nth, persistent, &is_due);
        if (status != BERTH_OK && kind == BERTHI_FAULT_MEMORY)
            CHECK_EQ(status, BERTH_ENOMEM);
        failed += status != BERTH_OK;
        attempt_end(a, &m, low, status);
        CHECK_EQ(fixture_open_fds(), fds);
    }
    return failed;
}

static void
test_every_call_can_fail(void)
{
    for (uint32_t p = 0; p < PLACES; p++) {
        attempt a = { .where = &places[p],
                     .model = loaded_llama(2, "BF16", 1),
                     .folder = fixture_folder() };

        for (uint32_t persistent = 0; persistent < 2; persistent++) {
            const uint64_t memory = fail_each(&a, BERTHI_FAULT_MEMORY, persistent);
            const uint64_t system = fail_each(&a, BERTHI_FAULT_SYSTEM, persistent);
            const uint64_t device = fail_each(&a, BERTHI_FAULT_DEVICE, persistent);

            CHECK_GT(memory, 2);
            CHECK_GT(system, 2);
            CHECK_GT(a.half_way, 0);
            if (a.where->words != NULL)
                CHECK_GT(device, 2);
            T_NOTE("%llu, %llu, %llu failures", (unsigned long long)memory,
                   (unsigned long long)system, (unsigned long long)device);
        }
    }
}

/* Before the first piece, and whenever it is. */
static void
test_cancel(void)
{
    const attempt a = { .where = &places[1],
                       .model = loaded_llama(2, "BF16", 1),
                       .folder = fixture_folder() };

    for (uint32_t ms = 0; ms < 8; ms += 2) {
        berth_job *job = NULL;
        berth_status status;
        berth_plan *low;
        moved m;

        low = attempt_begin(&a, &m);
        /* At 0 the job waits for a call that does not end before it is cancelled. */
        if (ms == 0)
            CHECK_EQ(berthi_model_enter(m.l.model, &m.error), BERTH_OK);
        status = berth_model_move_start(m.l.model, low, &m.options, &job, &m.error);
        T_REQUIRE(status == BERTH_OK);
        (void)berth_job_wait(job, ms);
        berth_job_cancel(job);
        if (ms == 0)
            berthi_model_leave(m.l.model);
        status = moved_finish(&m, status, job);
        CHECK(status == BERTH_ECANCELLED || (status == BERTH_OK && ms > 0));
        if (ms == 0)
            CHECK_EQ(m.report.written_bytes, 0);
        attempt_end(&a, &m, low, status);
    }
}

/* ---------------------------------------------------------------------------- killed */

/*
 * True when this process has a file of some size that has no name. It is asked for by the folder's
 * entry: the descriptor itself belongs to a thread that may be closing it.
 */
static bool
has_nameless(void)
{
    DIR *const folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    bool has = false;

    while (folder != NULL && !has && (entry = readdir(folder)) != NULL) {
        struct stat state;

        has = fstatat(dirfd(folder), entry->d_name, &state, 0) == 0
              && S_ISREG(state.st_mode) && state.st_nlink == 0 && state.st_size > 0;
    }
    if (folder != NULL)
        closedir(folder);
    return has;
}

/* Half way, its file being written: nothing is left. */
static void
test_killed(void)
{
    static const place slow = {"0=64MiB,cpu=64MiB,disk=inf",
                               "sim:160MiB,clock=real,d2h=1MB/s", on_device};
    const char *const folder = fixture_folder();
    const char *const model = loaded_llama(2, "BF16", 1);
    int status;
    const pid_t child = fork();

    T_REQUIRE(child >= 0);
    if (child == 0) {
        berth_plan_options options = options_of(&slow, BERTH_ENCODING_INT8, false);
        berth_job *job = NULL;
        moved m;

        moved_begin_with(&m, model, &options, slow.words, folder);
        if (berth_model_move_start(m.l.model, plan_with(&m, &options, on_disk, 1), NULL,
                                   &job, &m.error) != BERTH_OK)
            _exit(1);
        while (!has_nameless() && berth_model_get_state(m.l.model) == BERTH_MODEL_MOVING)
            continue;
        if (has_nameless())
            (void)raise(SIGKILL);
        _exit(1);
    }
    T_REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
    CHECK_EQ(fixture_count(folder), 0);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_killed); /* before there are threads */
    T_RUN(test_every_encoding);
    T_RUN(test_other_dtypes);
    T_RUN(test_turned);
    T_RUN(test_slices);
    T_RUN(test_experts);
    T_RUN(test_several_files);
    T_RUN(test_damage);
    T_RUN(test_folder);
    T_RUN(test_refusals);
    T_RUN(test_cancel);
    T_RUN(test_every_call_can_fail);
    return t_end();
}
