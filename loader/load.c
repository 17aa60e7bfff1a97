/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - berth_load_start(): a model that is filled in the background, or not at all. */
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/lease.h"
#include "loader/load_job.h"
#include "loader/offload.h"
#include "loader/plan_input.h"

#define RING_BYTES_MIN (UINT64_C(16) << 20)
#define RING_SHARE     20u /* of what this process may have: a twentieth, at most */
#define RING_CHUNKS    3u  /* are in any ring */
#define GAP_BYTES      (UINT64_C(1) << 20)
#define PHASE          "load"

/* -------------------------------------------------------------------------- begin */

static berth_status
list_files(berthi_load *load, berth_error *error)
{
    const berth_checkpoint *const c = load->checkpoint;

    load->files = berthi_memory_array(load->context, BERTHI_PURPOSE_CHUNKS,
                                      c->shard_count, sizeof *load->files);
    if (load->files == NULL)
        return berthi_fail_memory(error, "starting a load");
    berthi_checkpoint_copy_files(c, load->files);
    return BERTH_OK;
}

static uint32_t
choose_workers(const berthi_load *load)
{
    return load->options.workers > 0 ? load->options.workers
                                     : berthi_conveyor_workers(load->model->devices != NULL);
}

static berth_status
open_streams(berthi_load *load, berth_error *error)
{
    const berth_model *const model = load->model;
    berth_status status = BERTH_OK;

    load->tiers = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_OBJECT,
                                       model->tier_count * sizeof *load->tiers);
    if (load->tiers == NULL)
        return berthi_fail_memory(error, "starting a load");
    for (uint32_t t = 0; t < model->tier_count; t++)
        load->tiers[t].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (uint32_t t = 0; t < model->tier_count && status == BERTH_OK; t++) {
        if (model->tiers[t].kind == BERTH_TIER_GPU)
            status = berthi_load_lane_open(load, t, error);
        else
            berthi_pages_init(&load->tiers[t].pages, load->context, model->tiers[t].slab,
                              model->tiers[t].bytes, berthi_sys_page_bytes(),
                              choose_workers(load));
    }
    return status;
}

/* ---------------------------------------------------------------------------- run */

static bool
pin_buffer(void *user, void *memory, uint64_t bytes)
{
    berthi_load *const load = user;

    if (berthi_model_pin_stage(load->model, memory, bytes))
        return true;
    atomic_store(&load->has_unpinned, true);
    return false;
}

static void
unpin_buffer(void *user, void *memory, uint64_t bytes)
{
    const berthi_load *const load = user;

    berthi_model_unpin(load->model, memory, bytes);
}

static berth_status
convey(berthi_load *load, berth_error *error)
{
    const berthi_ring_pins pins = {load, pin_buffer, unpin_buffer, berthi_load_keep};
    const berthi_conveyor_options options = {
        .io = load->options.io,
        .no_uring = load->options.no_uring != 0,
        .readers = load->options.readers,
        .workers = choose_workers(load),
        .ring_bytes = load->ring_bytes,
        .stages = load->options.stages,
        .is_tuned = true,
        .pins = load->model->devices != NULL ? &pins : NULL,
        .wait_ns = load->model->wait_ns,
    };
    const berthi_consumer consumer = { .user = load,
                                      .consume = berthi_load_consume,
                                      .stop = berthi_load_stop,
                                      .is_in_turn = true };
    berthi_chunks chunks;
    berth_status status =
        berthi_chunks_pack(load->context, load->pieces, load->unit_count,
                           load->chunk_bytes, GAP_BYTES, &chunks, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_conveyor_run(
        &(berthi_freight){ .context = load->context,
                           .job = load->job,
                           .files = load->files,
                           .file_count = load->checkpoint->shard_count,
                           .chunks = &chunks },
        &options, &consumer, &load->stats, error);
    berthi_chunks_fini(&chunks);
    if (status == BERTH_OK || load->failure == BERTH_OK)
        return status;
    *error = load->error; /* others may have waited for less */
    return load->failure;
}

/* What took the workers longest, where it was they who were waited for. */
static void
report_bottleneck(berthi_load *load)
{
    berth_load_report *const r = &load->report;
    uint64_t most_ns = atomic_load(&load->encode_ns);

    r->encode_seconds = 1e-9 * (double)most_ns;
    r->bottleneck = BERTH_LOAD_BY_READS;
    r->bottleneck_tier = BERTH_NO_INDEX;
    if (r->wait_seconds <= r->seconds / 2)
        return;
    r->bottleneck = BERTH_LOAD_BY_ENCODING;
    for (uint32_t t = 0; load->tiers != NULL && t < load->plan->summary.tier_count; t++) {
        const uint64_t copy_ns = atomic_load(&load->tiers[t].copy_ns);

        if (copy_ns <= most_ns)
            continue;
        most_ns = copy_ns;
        r->bottleneck = BERTH_LOAD_BY_COPIES;
        r->bottleneck_tier = t;
    }
}

static void
report(berthi_load *load)
{
    berth_load_report *const r = &load->report;
    const double seconds = 1e-9 * (double)(berthi_sys_now_ns() - load->start_ns);
    const double work = 1e-9 * (double)load->stats.work_ns;

    if (load->model != NULL) {
        r->allocated_bytes = atomic_load(&load->model->bytes);
        r->is_pinned = load->model->devices != NULL && !atomic_load(&load->has_unpinned);
    }
    r->placed_bytes = atomic_load(&load->stored);
    r->bytes_read = load->stats.bytes_read;
    r->quantized_bytes = atomic_load(&load->quantized);
    /* Pieces that are converted as a whole may be larger than its chunks should be. */
    r->ring_bytes = berthi_max_u64(load->ring_bytes, RING_CHUNKS * load->chunk_bytes);
    r->turned_bytes = berthi_load_turned_room(load);
    r->stages = load->stats.stages;
    r->stage_bytes = load->stats.stage_bytes;
    r->verified_tensors = atomic_load(&load->verify.promises.tensors);
    r->verified_bytes = atomic_load(&load->verify.promises.bytes);
    r->mismatches = atomic_load(&load->verify.promises.mismatches);
    r->unverified_tensors = load->verify.promises.unverified;
    r->seconds = seconds;
    r->first_seconds = 1e-9 * (double)atomic_load(&load->first_ns);
    r->wait_seconds = 1e-9 * (double)load->stats.wait_ns;
    r->place_seconds = work;
    r->read_seconds = seconds > r->wait_seconds ? seconds - r->wait_seconds : 0;
    report_bottleneck(load);
    memcpy(r->io_path, load->stats.path, sizeof r->io_path);
    if (load->options.report != NULL)
        *load->options.report = *r;
}

/* Every byte once. */
static berth_status
check_sum(const berthi_load *load, berth_error *error)
{
    const uint64_t placed = atomic_load(&load->placed);

    if (placed == load->total)
        return BERTH_OK;
    return berthi_fail(
        error, BERTH_REASON_INTERNAL,
        &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                        .expected = load->total,
                        .actual = placed },
        "not every byte was placed once");
}

/* What is streamed is on its way before the first layer is asked for. */
static berth_status
begin_leases(berthi_load *load, berth_error *error)
{
    const berthi_lease_options options = { .io = load->options.io,
                                          .no_uring = load->options.no_uring != 0,
                                          .readers = load->options.readers,
                                          .ring_bytes = load->ring_bytes };

    load->model->lease_options = options;
    return berthi_leases_create(load->model, &options, &load->model->leases, error);
}

/* ------------------------------------------------------------------------ pinning */

static berth_status
note_pinned(void *user, uint64_t bytes, berth_error *error)
{
    berthi_load *const load = user;

    load->pinned += bytes;
    berthi_job_advance(load->job, bytes);
    return berthi_job_is_cancelled(load->job) ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

/* Slabs in host memory: a part of the job's bytes, for that takes as long as filling them. */
static berth_status
pin_slabs(berthi_load *load, berth_error *error)
{
    const uint64_t bytes = berthi_model_pin_bytes(load->model);
    const berthi_pin_watch watch = { load, note_pinned };
    berth_status status = BERTH_OK;

    berthi_job_set_total(load->job, load->total + bytes);
    if (bytes > 0) /* what the caller has pinned is only noted */
        berthi_job_set_phase(load->job, "pin");
    for (uint32_t t = 0; t < load->model->tier_count && status == BERTH_OK; t++)
        status = berthi_model_pin_slab(load->model, &load->model->tiers[t], &watch, error);
    if (status == BERTH_OK) /* what was refused is over, too */
        berthi_job_advance(load->job, bytes - load->pinned);
    berthi_job_set_phase(load->job, PHASE);
    return status;
}

/* What devices and hooks were asked for is what the plan has, to the byte. */
static berth_status
check_allocated(const berthi_load *load, berth_error *error)
{
    const uint64_t allocated = atomic_load(&load->model->bytes);

    if (allocated == load->report.planned_bytes)
        return BERTH_OK;
    return berthi_fail(
        error, BERTH_REASON_INTERNAL,
        &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                        .expected = load->report.planned_bytes,
                        .actual = allocated },
        "slabs are not as large as they were planned");
}

/* Memory, and what goes where: on the job's thread, slabs are slow to come. */
static berth_status
prepare(berthi_load *load, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (load->plan->is_read)
        status = berthi_plan_hold(load->plan, load->context, load->checkpoint, error);
    if (status == BERTH_OK)
        status = berthi_load_verify_init(load, error);
    load->operations = berthi_level_operations(load->context->level);
    if (status == BERTH_OK)
        status = berthi_model_create(load->context, load->checkpoint, load->plan,
                                     &load->options, &load->model, error);
    if (status == BERTH_OK)
        status = check_allocated(load, error);
    if (status == BERTH_OK)
        status = list_files(load, error);
    if (status == BERTH_OK)
        status = open_streams(load, error);
    if (status == BERTH_OK)
        status = berthi_load_list(load, error);
    if (status == BERTH_OK)
        status = pin_slabs(load, error);
    if (status == BERTH_OK)
        status = berthi_load_clear_padding(load, error);
    return status;
}

/* The file is gone with the model, which writes others beside it when it is moved. */
static void
give_offload(berthi_load *load)
{
    load->model->offload = load->offload;
    load->model->offload_dir = load->offload_dir;
    load->model->offload_dir_bytes = load->offload_dir_bytes;
    load->offload = NULL;
    load->offload_dir = NULL;
}

static berth_status
run_load(berth_job *job, void *user, berth_error *error)
{
    berthi_load *const load = user;
    berth_status status;

    load->job = job;
    status = prepare(load, error);
    if (status == BERTH_OK) {
        status = convey(load, error);
        if (status == BERTH_OK)
            status = check_sum(load, error);
        if (status == BERTH_OK && load->offload != NULL)
            status = berthi_offload_end(load->offload, job, error);
    }
    report(load);
    berthi_load_end(load);
    if (load->model != NULL)
        give_offload(load);
    if (status == BERTH_OK)
        status = begin_leases(load, error);
    if (status == BERTH_OK && !berthi_job_commit(job))
        status = berthi_job_fail_cancelled(error);
    /* Here: giving back can take long, and finish must not. Whoever gives up is less patient. */
    if (status != BERTH_OK && !load->is_hung) {
        if (load->model != NULL)
            load->model->wait_ns = berthi_patience(load->context, load->model->wait_ns);
        berthi_model_free(load->model);
        load->model = NULL;
    }
    return status;
}

/* -------------------------------------------------------------------------- start */

/* At most a part of what this process may have now, whatever the plan counted on. */
static uint64_t
choose_ring(const berthi_load *load)
{
    uint64_t room = berthi_host_memory_limit(load->context->root);
    uint64_t planned = 0;
    uint64_t budget = UINT64_MAX;

    for (uint32_t t = 0; t < load->plan->summary.tier_count; t++) {
        const berth_plan_tier *const tier = &load->plan->tiers[t];

        planned += tier->staging;
        if (tier->kind == BERTH_TIER_CPU)
            budget = tier->budget;
    }
    if (planned > 0)
        return berthi_min_u64(planned, room / RING_SHARE);
    /* A plan for host memory alone has no ring: it comes out of the reserve. */
    room = berthi_min_u64(room, budget);
    return berthi_min_u64(BERTHI_RING_BYTES, room / RING_SHARE);
}

static void
choose_sizes(berthi_load *load)
{
    const uint64_t asked = load->options.ring_bytes;
    const uint64_t ring = asked > 0 ? asked : choose_ring(load);

    load->ring_bytes = berthi_max_u64(ring, RING_BYTES_MIN);
    load->chunk_bytes = BERTHI_CHUNK_BYTES;
    while (load->chunk_bytes > load->ring_bytes / 4)
        load->chunk_bytes /= 2;
}

static berth_status
check_options(const berth_load_options *options, berth_error *error)
{
    if (options->verify < BERTH_LOAD_VERIFY_AUTO
        || options->verify > BERTH_LOAD_VERIFY_NONE)
        return berthi_fail_argument(error, "options", "has an unknown verify");
    if (options->slab_memory != NULL
        && (options->slab_memory->alloc == NULL || options->slab_memory->free == NULL))
        return berthi_fail_argument(error, "options", "has slab_memory without hooks");
    if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        return berthi_fail_argument(error, "options", "has an unknown io");
    return BERTH_OK;
}

static berth_status
check_arguments(berth_context *context, const berth_checkpoint *checkpoint,
                const berth_plan *plan, berth_job **out_job, berth_error *error)
{
    const berth_status status = berthi_job_check_start(context, "context", out_job, error);

    if (status != BERTH_OK)
        return status;
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    return plan != NULL ? BERTH_OK : berthi_fail_argument(error, "plan", "is NULL");
}

/* What the plan says that slabs are. */
static uint64_t
planned_bytes(const berth_plan *plan)
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        const berth_plan_tier *const tier = &plan->tiers[t];

        if (tier->kind != BERTH_TIER_DISK)
            bytes += tier->weights + tier->slots + tier->expert_slots + tier->scratch;
    }
    return bytes;
}

static berth_status
copy_offload_dir(berthi_load *load, const char *folder, berth_error *error)
{
    load->offload_dir_bytes = strlen(folder) + 1;
    load->offload_dir = berthi_memory_alloc(load->context, BERTHI_PURPOSE_OBJECT,
                                            load->offload_dir_bytes);
    if (load->offload_dir == NULL)
        return berthi_fail_memory(error, "starting a load");
    memcpy(load->offload_dir, folder, load->offload_dir_bytes);
    return BERTH_OK;
}

berth_status
berth_load_start(berth_context *context, const berth_checkpoint *checkpoint,
                 const berth_plan *plan, const berth_load_options *options,
                 berth_job **out_job, berth_error *error)
{
    berth_load_options taken;
    berthi_load *load;
    berth_status status;

    status = check_arguments(context, checkpoint, plan, out_job, error);
    if (status == BERTH_OK)
        status = berthi_options_take(&taken, sizeof taken,
                                     offsetof(berth_load_options, reserved32), options,
                                     "options", error);
    if (status == BERTH_OK)
        status = check_options(&taken, error);
    if (status == BERTH_OK)
        status = berthi_plan_check_digest(plan, checkpoint, berthi_plan_digest(checkpoint),
                                          error);
    if (status != BERTH_OK)
        return status;
    load = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *load);
    if (load == NULL)
        return berthi_fail_memory(error, "starting a load");
    load->context = context;
    load->checkpoint = checkpoint;
    load->plan = plan;
    load->options = taken;
    if (taken.slab_memory != NULL) {
        load->slab_memory = *taken.slab_memory;
        load->options.slab_memory = &load->slab_memory;
    }
    load->options.offload_dir = NULL;
    load->start_ns = berthi_sys_now_ns();
    load->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    load->has_changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    choose_sizes(load);
    load->report.planned_bytes = planned_bytes(plan);
    status = berthi_load_verify_choose(load, error);
    if (status == BERTH_OK && taken.offload_dir != NULL)
        status = copy_offload_dir(load, taken.offload_dir, error);
    if (status != BERTH_OK) {
        berthi_load_free(load);
        return status;
    }
    return berthi_job_start(context,
                            &(berthi_job_work){ .run = run_load,
                                               .fini = berthi_load_free,
                                               .user = load,
                                               .phase = PHASE,
                                               .progress = taken.progress,
                                               .progress_user = taken.progress_user },
                            out_job, error);
}

berth_status
berth_load_finish(berth_job *job, berth_model **out_model, berth_error *error)
{
    berth_model *model = NULL;
    berthi_load *load;
    berth_status status;

    berthi_error_clear(error);
    if (out_model == NULL)
        return berthi_fail_argument(error, "out_model", "is NULL");
    *out_model = NULL;
    load = job != NULL ? berthi_job_user(job, run_load) : NULL;
    if (load == NULL)
        return berthi_fail_argument(error, "job", "is not a load");
    if (berth_job_wait(job, -1) == BERTH_OK) {
        model = load->model;
        load->model = NULL;
    }
    status = berth_job_finish(job, error);
    *out_model = model;
    return status;
}
