/* SPDX-License-Identifier: Apache-2.0 */
/* sim_open.c - a machine of simulated devices is opened and closed; see sim.h. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/cpu.h"
#include "kernels/sim.h"
#include "kernels/sys.h"

static berthi_sim_engine *
add_engine(berthi_sim *sim, uint32_t kind, uint32_t device)
{
    berthi_sim_engine *const engine = &sim->engines[sim->engine_count++];

    engine->sim = sim;
    engine->kind = kind;
    engine->device = device;
    return engine;
}

/* The device of the same root that was opened before; NULL: none. */
static const berthi_sim_device *
find_root(const berthi_sim *sim, const berthi_sim_device *device)
{
    for (uint32_t i = 0; i < device->base.number && device->words.root != 0; i++)
        if (sim->devices[i]->words.root == device->words.root)
            return sim->devices[i];
    return NULL;
}

static berth_status
add_device(berthi_sim *sim, uint32_t number, berth_error *error)
{
    berthi_sim_device *const device =
        berthi_memory_zalloc(sim->context, BERTHI_PURPOSE_OBJECT, sizeof *device);
    const berthi_sim_device *root;

    if (device == NULL)
        return berthi_fail_memory(error, "opening simulated devices");
    sim->devices[number] = device;
    device->base = (berthi_device){
        .table = &berthi_sim_table, .context = sim->context, .number = number
    };
    device->sim = sim;
    device->words = sim->words.devices[number];
    snprintf(device->name, sizeof device->name, "sim:%" PRIu32, number);
    berthi_sim_memory_init(&device->memory, sim->context, &device->words);
    berthi_sim_add_stream(device, &device->first);
    root = find_root(sim, device);
    for (int kind = BERTHI_SIM_TO_DEVICE; kind <= BERTHI_SIM_TO_HOST; kind++)
        device->engines[kind] = root != NULL ? root->engines[kind]
                                             : add_engine(sim, (uint32_t)kind, number);
    if (device->words.rate_to_peer > 0)
        device->engines[BERTHI_SIM_TO_PEER] = add_engine(sim, BERTHI_SIM_TO_PEER, number);
    device->engines[BERTHI_SIM_COMPUTE] = add_engine(sim, BERTHI_SIM_COMPUTE, number);
    return BERTH_OK;
}

berth_status
berthi_sim_open(berth_context *context, const char *words, berthi_sim **out,
                berth_error *error)
{
    berthi_sim *const sim =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *sim);
    berth_status status;

    *out = NULL;
    if (sim == NULL)
        return berthi_fail_memory(error, "opening simulated devices");
    sim->context = context;
    status = berthi_sim_words_parse(words, &sim->words, error);
    if (status != BERTH_OK)
        goto fail;
    sim->random = sim->words.machine.seed;
    sim->operations = berthi_level_operations(context->level);
    sim->has_lock = pthread_mutex_init(&sim->lock, NULL) == 0;
    sim->has_changed = sim->has_lock && berthi_sys_condition_init(&sim->changed) == 0;
    if (!sim->has_changed)
        status = berthi_fail_memory(error, "opening simulated devices");
    for (uint32_t i = 0; i < sim->words.count && status == BERTH_OK; i++)
        status = add_device(sim, i, error);
    if (status == BERTH_OK)
        status = berthi_sim_clock_start(sim, error);
    if (status != BERTH_OK)
        goto fail;
    *out = sim;
    return BERTH_OK;

fail:
    berthi_sim_close(sim);
    return status;
}

/* Nobody works on them any more. */
static void
free_streams(berthi_sim *sim)
{
    while (sim->streams != NULL) {
        berthi_stream *const stream = sim->streams;

        sim->streams = stream->next;
        if (stream->head != NULL)
            stream->head->is_running = false;
        berthi_sim_purge(stream);
        if (stream != &stream->device->first)
            berthi_memory_free(sim->context, BERTHI_PURPOSE_OBJECT, stream,
                               sizeof *stream);
    }
    while (sim->spare != NULL) {
        berthi_sim_item *const item = sim->spare;

        sim->spare = item->next;
        berthi_memory_free(sim->context, BERTHI_PURPOSE_OBJECT, item, sizeof *item);
    }
}

void
berthi_sim_close(berthi_sim *sim)
{
    if (sim == NULL)
        return;
    if (sim->has_changed)
        berthi_sim_clock_stop(sim);
    free_streams(sim);
    for (uint32_t i = 0; i < BERTHI_DEVICES_LIMIT; i++)
        if (sim->devices[i] != NULL) {
            berthi_sim_memory_fini(&sim->devices[i]->memory);
            berthi_memory_free(sim->context, BERTHI_PURPOSE_OBJECT, sim->devices[i],
                               sizeof *sim->devices[i]);
        }
    if (sim->has_changed)
        pthread_cond_destroy(&sim->changed);
    if (sim->has_lock)
        pthread_mutex_destroy(&sim->lock);
    berthi_memory_free(sim->context, BERTHI_PURPOSE_OBJECT, sim, sizeof *sim);
}

uint32_t
berthi_sim_count(const berthi_sim *sim)
{
    return sim->words.count;
}

berthi_device *
berthi_sim_at(berthi_sim *sim, uint32_t number)
{
    return &sim->devices[number]->base;
}
