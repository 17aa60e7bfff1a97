/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_end.c - a load gives back what filling needed.
 *
 * Copies that nobody could wait for may still be under way when a load has failed: they
 * read staging buffers and memory of hands, and write into slabs. Their streams are waited
 * for here, as long as the load waits for anything; of a device that hangs even then,
 * streams, buffers, hands and the model stay as they are. The context looks for them
 * (stranded.h).
 */
#include "kernels/sys.h"
#include "loader/load_job.h"
#include "loader/offload.h"

/* ----------------------------------------------------------------------- what hangs */

bool
berthi_load_keep(void *user, uint8_t *memory, uint64_t bytes, bool is_pinned)
{
    berthi_load *const load = user;

    if (!atomic_load(&load->is_unsettled))
        return false;
    berthi_lefts_add(&load->left, memory, bytes, is_pinned);
    return true;
}

/*
 * Events of a hand, which nobody uses any more, tell of the ends of streams. True: a stream
 * hangs.
 */
static bool
await_streams(berthi_load *load)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    bool hangs = false;

    for (uint32_t t = 0; t < load->model->tier_count; t++)
        hangs |= berthi_load_lane_hangs(load, t, now_ns, &load->hands->events[t]);
    return hangs;
}

/* Devices of the model's own are given up instead: nobody else uses them. */
static void
find_hung(berthi_load *load)
{
    if (load->is_hung || !atomic_exchange(&load->is_unsettled, false) || !await_streams(load))
        return;
    berthi_log(load->context, BERTH_LOG_WARNING,
               "copies have not ended: slabs and %u buffers stay with them",
               (unsigned)load->left.count);
    if (load->model->owns_devices)
        berthi_devices_stop(load->model->devices);
    else
        load->is_hung = true;
}

/* ------------------------------------------------------------------------ give back */

static void
close_streams(berthi_load *load)
{
    for (uint32_t t = 0; load->tiers != NULL && t < load->model->tier_count; t++) {
        berthi_load_lane_close(load, t);
        berthi_pages_fini(&load->tiers[t].pages);
        pthread_mutex_destroy(&load->tiers[t].lock);
    }
    if (load->model != NULL)
        berthi_memory_free(load->context, BERTHI_PURPOSE_OBJECT, load->tiers,
                           load->model->tier_count * sizeof *load->tiers);
    load->tiers = NULL;
}

static void
free_tables(berthi_load *load)
{
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, load->runs,
                       load->run_count * sizeof *load->runs);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, load->units,
                       load->unit_count * sizeof *load->units);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, load->pieces,
                       load->unit_count * sizeof *load->pieces);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, load->columns,
                       load->columns_count * sizeof *load->columns);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, load->files,
                       load->checkpoint->shard_count * sizeof *load->files);
    load->runs = NULL;
    load->columns = NULL;
    load->units = NULL;
    load->pieces = NULL;
    load->files = NULL;
}

void
berthi_load_end(berthi_load *load)
{
    find_hung(load);
    for (uint32_t i = 0; i < load->run_count && load->runs != NULL; i++)
        berthi_load_run_fini(load, &load->runs[i]);
    berthi_load_verify_fini(load);
    if (!load->is_hung) {
        close_streams(load);
        berthi_lefts_free(&load->left, load->model);
    }
    berthi_load_free_hands(load);
    free_tables(load);
}

static void
free_load(berthi_load *load)
{
    close_streams(load);
    berthi_lefts_free(&load->left, load->model);
    berthi_load_free_hands(load);
    berthi_model_free(load->model);
    berthi_offload_destroy(load->offload);
    berthi_memory_free(load->context, BERTHI_PURPOSE_OBJECT, load->offload_dir,
                       load->offload_dir_bytes);
    pthread_cond_destroy(&load->has_changed);
    pthread_mutex_destroy(&load->lock);
    berthi_memory_free(load->context, BERTHI_PURPOSE_OBJECT, load, sizeof *load);
}

static bool
try_end(berthi_kept *kept)
{
    berthi_load *const load = (berthi_load *)kept;

    for (uint32_t t = 0; t < load->model->tier_count; t++)
        if (!berthi_load_lane_is_over(load, t))
            return false;
    load->is_hung = false;
    free_load(load);
    return true;
}

void
berthi_load_free(void *user)
{
    berthi_load *const load = user;

    berthi_load_end(load);
    if (load->is_hung) {
        load->kept.try_end = try_end;
        berthi_context_keep(load->context, &load->kept);
    } else {
        free_load(load);
    }
}
