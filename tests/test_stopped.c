/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stopped.c - a process that is stopped for longer than it waits for anything, and goes
 * on: what ends soon after that is not too late.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/model.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define WORDS    "sim:128MiB,clock=real"
#define UNPINNED WORDS ",pin=0"

#define WAIT_NS    (UINT64_C(1000) * HUNG_MS_NS)
#define STOPPED_NS (UINT64_C(2000) * HUNG_MS_NS)
/* The copy that hangs ends then: after the process has gone on, and before it waits again. */
#define END_NS     (STOPPED_NS + UINT64_C(300) * HUNG_MS_NS)

/* ------------------------------------------------------------------------ children */

/* Writes a byte when it is to be stopped, and says whether all was well. */
typedef void (*scene)(int ready, bool *out_is_well);

static void
check_stopped(scene play)
{
    int pipes[2];
    bool is_well = false;
    int status;
    pid_t child;
    char byte;

    T_REQUIRE(pipe(pipes) == 0);
    child = fork();
    T_REQUIRE(child >= 0);
    if (child == 0) {
        play(pipes[1], &is_well);
        _exit(is_well ? 0 : 1);
    }
    close(pipes[1]);
    CHECK_EQ(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    CHECK_EQ(kill(child, SIGSTOP), 0);
    berthi_sys_sleep(STOPPED_NS);
    CHECK_EQ(kill(child, SIGCONT), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------------ the model */

/* Streamed layers of a device; a copy of one hangs, for a while. */
typedef struct streamed {
    loaded l;
    uint32_t first;
    uint64_t end_ns; /* of that copy */
    pthread_t ender;
    pthread_t caller;
} streamed;

static void
begin(streamed *s, const char *words, const char *pin)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");
    berth_error error;

    options.pins = &pin;
    options.pin_count = 1;
    options.slots = 2;
    loaded_begin(&s->l, loaded_llama(4, "BF16", 1), &options, words);
    loaded_load(&s->l);
    T_REQUIRE(CHECK_EQ(s->l.status, BERTH_OK));
    s->first = planned_layer(&s->l.p, "model.layers.0");
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_acquire(s->l.model, s->first + i, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(s->l.model, s->first + 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(s->l.model, s->first + 1, NULL, &error), BERTH_OK);
}

static void *
end_copy(void *user)
{
    streamed *const s = user;

    while (berthi_sys_now_ns() < s->end_ns)
        berthi_sys_sleep(HUNG_MS_NS);
    berthi_sim_release(berthi_devices_at(s->l.devices, 0));
    return NULL;
}

static void *
release(void *user)
{
    streamed *const s = user;
    berth_error error;

    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(s->l.model, s->first + i, NULL, &error), BERTH_OK);
    return NULL;
}

/* A move that begins while a copy hangs, and is stopped. */
static void
fall_asleep(const char *words, const char *pin, int ready, bool *out_is_well)
{
    berth_status status;
    berth_error error;
    berth_job *job;
    streamed s;

    begin(&s, words, pin);
    hung_copy(s.l.devices, 0);
    s.l.model->wait_ns = WAIT_NS;
    T_REQUIRE(pthread_create(&s.caller, NULL, release, &s) == 0);
    while (!hung_has(s.l.devices))
        berthi_sys_sleep(HUNG_MS_NS);
    s.end_ns = berthi_sys_now_ns() + END_NS;
    T_REQUIRE(pthread_create(&s.ender, NULL, end_copy, &s) == 0);
    T_REQUIRE(berth_model_sleep_start(s.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, 50), BERTH_PENDING); /* it waits */
    T_REQUIRE(write(ready, "", 1) == 1);
    status = berth_job_finish(job, &error);
    if (status != BERTH_OK)
        T_NOTE("%s", error.message);
    pthread_join(s.ender, NULL);
    pthread_join(s.caller, NULL);
    loaded_end(&s.l);
    *out_is_well = status == BERTH_OK;
}

/* A call has it copied. */
static void
sleep_behind_a_call(int ready, bool *out_is_well)
{
    fall_asleep(UNPINNED, "model.layers=cpu", ready, out_is_well);
}

/* The thread that brings layers from the disk does. */
static void
sleep_behind_the_feeder(int ready, bool *out_is_well)
{
    fall_asleep(UNPINNED, "model.layers=disk", ready, out_is_well);
}

/* Nobody does: the device is waited for. */
static void
sleep_behind_the_device(int ready, bool *out_is_well)
{
    fall_asleep(WORDS, "model.layers=cpu", ready, out_is_well);
}

static void
test_calls(void)
{
    check_stopped(sleep_behind_a_call);
}

static void
test_feeder(void)
{
    check_stopped(sleep_behind_the_feeder);
}

static void
test_device(void)
{
    check_stopped(sleep_behind_the_device);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_calls);
    T_RUN(test_feeder);
    T_RUN(test_device);
    T_MAIN_END;
}
