/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_clock.c - simulated time.
 *
 * A virtual clock stands still while the host works. It moves when the host waits or
 * asks, from one moment at which something happens to the next, by the hands of the
 * thread that waits; what it is to see has then happened exactly when it should.
 *
 * A real clock is that of the system: each engine has a thread, which sleeps as long
 * as its work takes.
 */
#include "kernels/sim.h"
#include "kernels/sys.h"

/* What the library's own operations and calls of the host need of a stack. */
#define STACK_BYTES ((size_t)1 << 20)

uint64_t
berthi_sim_now(const berthi_sim *sim)
{
    return sim->words.machine.is_real ? berthi_sys_now_ns() : sim->now_ns;
}

/* ------------------------------------------------------------------------- virtual */

static uint64_t
next_ns(const berthi_sim_engine *engine)
{
    return engine->is_touched ? engine->end_ns : engine->touch_ns;
}

/* What of the running work touches memory; nothing on a device that has failed. */
static void
touch(berthi_sim_engine *engine)
{
    berthi_stream *const stream = engine->stream;

    if (stream->device->reason == BERTH_REASON_NONE)
        berthi_sim_work_do(stream->device, stream->head);
}

/* The engine at which something happens next; at the same moment memory comes first. */
static berthi_sim_engine *
find_next(berthi_sim *sim)
{
    berthi_sim_engine *next = NULL;

    for (uint32_t i = 0; i < sim->engine_count; i++) {
        berthi_sim_engine *const engine = &sim->engines[i];

        if (engine->stream != NULL && !engine->is_hung
            && (next == NULL || next_ns(engine) < next_ns(next)
                || (next_ns(engine) == next_ns(next) && next->is_touched
                    && !engine->is_touched)))
            next = engine;
    }
    return next;
}

/* What ends at the same moment ends together, before anything else begins. */
static void
complete_all(berthi_sim *sim)
{
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        berthi_sim_engine *const engine = &sim->engines[i];

        if (engine->stream != NULL && !engine->is_hung && engine->end_ns == sim->now_ns)
            berthi_sim_complete(engine);
    }
}

bool
berthi_sim_step(berthi_sim *sim)
{
    berthi_sim_engine *const next = find_next(sim);

    if (next == NULL)
        return false;
    sim->now_ns = next_ns(next);
    if (next->is_touched) {
        complete_all(sim);
    } else {
        next->is_touched = true;
        sim->is_stepping = true;
        sim->stepper = pthread_self();
        touch(next);
        sim->is_stepping = false;
    }
    pthread_cond_broadcast(&sim->changed);
    return true;
}

/* ---------------------------------------------------------------------------- real */

/* Until a moment of the engine's work, or the end of the machine. */
static void
sleep_until(berthi_sim_engine *engine, const uint64_t *moment_ns)
{
    while (!engine->sim->is_closing
           && (engine->is_hung || berthi_sys_now_ns() < *moment_ns)) {
        if (engine->is_hung)
            pthread_cond_wait(&engine->wake, &engine->sim->lock);
        else
            (void)berthi_sys_condition_wait_until(&engine->wake, &engine->sim->lock,
                                                  *moment_ns);
    }
}

static void *
run_engine(void *user)
{
    berthi_sim_engine *const engine = user;
    berthi_sim *const sim = engine->sim;

    pthread_mutex_lock(&sim->lock);
    while (!sim->is_closing) {
        if (engine->stream == NULL) {
            pthread_cond_wait(&engine->wake, &sim->lock);
            continue;
        }
        sleep_until(engine, &engine->touch_ns);
        if (!sim->is_closing)
            touch(engine);
        sleep_until(engine, &engine->end_ns);
        if (!sim->is_closing) {
            berthi_sim_complete(engine);
            berthi_sim_settle(sim);
            pthread_cond_broadcast(&sim->changed);
        }
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

berth_status
berthi_sim_clock_start(berthi_sim *sim, berth_error *error)
{
    for (uint32_t i = 0; sim->words.machine.is_real && i < sim->engine_count; i++) {
        berthi_sim_engine *const engine = &sim->engines[i];
        int failure = berthi_sys_condition_init(&engine->wake);

        engine->has_wake = failure == 0;
        if (failure == 0)
            failure = berthi_sys_thread_create(&engine->thread, STACK_BYTES, run_engine,
                                               engine);
        engine->has_thread = failure == 0;
        if (failure != 0)
            return berthi_fail_system(error, failure, NULL,
                                      "starting a thread of a simulated device");
    }
    return BERTH_OK;
}

void
berthi_sim_clock_stop(berthi_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    sim->is_closing = true;
    for (uint32_t i = 0; i < sim->engine_count; i++)
        if (sim->engines[i].has_wake)
            pthread_cond_signal(&sim->engines[i].wake);
    pthread_mutex_unlock(&sim->lock);
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        if (sim->engines[i].has_thread)
            pthread_join(sim->engines[i].thread, NULL);
        if (sim->engines[i].has_wake)
            pthread_cond_destroy(&sim->engines[i].wake);
    }
}

/* --------------------------------------------------------------------------- waits */

/* Whether this thread is in a function that the simulation calls. */
static bool
is_called_back(const berthi_sim *sim)
{
    if (sim->is_stepping && pthread_equal(sim->stepper, pthread_self()) != 0)
        return true;
    for (uint32_t i = 0; i < sim->engine_count; i++)
        if (sim->engines[i].has_thread
            && pthread_equal(sim->engines[i].thread, pthread_self()) != 0)
            return true;
    return false;
}

/* Lets something happen: moves the clock, or sleeps; false when the deadline passed. */
static bool
go_on(berthi_sim *sim, uint64_t deadline_ns)
{
    if (deadline_ns != UINT64_MAX && berthi_sys_now_ns() >= deadline_ns)
        return false;
    if (!sim->words.machine.is_real && !sim->is_stepping && berthi_sim_step(sim))
        return true;
    if (deadline_ns == UINT64_MAX)
        pthread_cond_wait(&sim->changed, &sim->lock);
    else
        (void)berthi_sys_condition_wait_until(&sim->changed, &sim->lock, deadline_ns);
    return true;
}

berth_status
berthi_sim_await(berthi_sim_device *device, const berthi_sim_place *place,
                 uint64_t deadline_ns, berth_error *error)
{
    berthi_sim *const sim = device->sim;
    berth_status status;

    for (;;) {
        berthi_sim_settle(sim);
        status = berthi_sim_check(device, error);
        if (status == BERTH_OK && place->stream != NULL)
            status = berthi_sim_check(place->stream->device, error);
        if (status != BERTH_OK || berthi_sim_is_past(place))
            return status;
        if (is_called_back(sim))
            return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                               "%s: a function that it calls waits for it", device->name);
        if (!go_on(sim, deadline_ns))
            return BERTH_PENDING;
    }
}

/* Whether anything is under way, now or after this. */
static bool
is_idle(berthi_sim *sim)
{
    berthi_sim_settle(sim);
    for (uint32_t i = 0; i < sim->engine_count; i++)
        if (sim->engines[i].stream != NULL)
            return false;
    return true;
}

void
berthi_sim_drain(berthi_stream *stream)
{
    berthi_sim *const sim = stream->device->sim;

    while (!is_idle(sim) && stream->head != NULL && !is_called_back(sim))
        (void)go_on(sim, UINT64_MAX);
}

void
berthi_sim_pause(berthi_sim *sim)
{
    while (sim->touching > 0 && !is_called_back(sim))
        pthread_cond_wait(&sim->changed, &sim->lock);
}

void
berthi_sim_leave_memory(berthi_sim_device *device)
{
    while (device->touching > 0 && !is_called_back(device->sim))
        pthread_cond_wait(&device->sim->changed, &device->sim->lock);
}
