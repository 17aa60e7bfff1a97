/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_visits.c - devices that are closed while what hung on them is kept: by their own
 * context, by another one, while somebody looks after it, or goes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/sys.h"
#include "kernels/visits.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define WAIT_MS  200u
#define SLOW_NS  (UINT64_C(200) * HUNG_MS_NS)
#define ROUNDS   (T_TAKES_FEWER ? 200u : 2000u)

/* ------------------------------------------------------------------------- things */

/* What a context keeps, as if it hung on devices. */
typedef struct thing {
    berthi_kept kept; /* first */
    _Atomic bool *are_closed; /* the devices */
    uint64_t takes_ns;
    _Atomic bool is_asked;
    _Atomic bool is_over; /* it can be given back */
    _Atomic uint32_t ended;
    _Atomic uint32_t late; /* asked when the devices were closed */
} thing;

static bool
try_end(berthi_kept *kept)
{
    thing *const t = (thing *)kept;

    atomic_store(&t->is_asked, true);
    berthi_sys_sleep(t->takes_ns);
    if (t->are_closed != NULL)
        atomic_fetch_add(&t->late, atomic_load(t->are_closed));
    if (!atomic_load(&t->is_over))
        return false;
    atomic_fetch_add(&t->ended, 1);
    return true;
}

static void
keep(berth_context *context, thing *t, _Atomic bool *are_closed)
{
    t->kept.try_end = try_end;
    t->are_closed = are_closed;
    berthi_context_keep(context, &t->kept);
}

static berth_context *
create(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    return context;
}

static berth_devices *
open_devices(berth_context *context)
{
    berth_devices *devices = NULL;

    CHECK_EQ(berth_devices_open(context, "cpu", &devices, NULL), BERTH_OK);
    return devices;
}

static void
visit(berth_devices *devices, berth_context *context)
{
    CHECK_EQ(berthi_devices_visit(devices, context, NULL), BERTH_OK);
}

static void
destroy(berth_context *context)
{
    vacant_check_memory(context);
    berth_context_destroy(context);
}

/* ---------------------------------------------------------------- one after another */

static void
test_devices_go_first(void)
{
    berth_context *const home = create();
    berth_context *const visitors[2] = { create(), create() };
    berth_devices *const devices = open_devices(home);
    thing things[3] = { { .is_over = false } };

    for (uint32_t i = 0; i < 2; i++) {
        visit(devices, visitors[i]);
        visit(devices, visitors[i]); /* another model of it */
        keep(visitors[i], &things[i], NULL);
    }
    visit(devices, home);
    keep(home, &things[2], NULL);
    for (uint32_t i = 0; i < 3; i++)
        atomic_store(&things[i].is_over, true);
    berth_devices_close(devices);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ(atomic_load(&things[i].ended), 1);
    destroy(home);
    for (uint32_t i = 0; i < 2; i++)
        destroy(visitors[i]);
}

/* What it keeps stays where it is; others come and go in its place. */
static void
test_visitors_go_first(void)
{
    berth_context *const home = create();
    berth_devices *const devices = open_devices(home);
    thing things[4] = { { .is_over = false } };
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < 4; i++) {
        berth_context *const visitor = create();

        visit(devices, visitor);
        keep(visitor, &things[i], NULL);
        if (i == 0)
            bytes = loaded_bytes(home);
        CHECK_EQ(loaded_bytes(home), bytes);
        destroy(visitor);
        atomic_store(&things[i].is_over, true);
    }
    berth_devices_close(devices);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(atomic_load(&things[i].ended), 0);
    destroy(home);
}

static void
test_a_visitor_of_two(void)
{
    berth_context *const home = create();
    berth_context *const visitor = create();
    berth_devices *const first = open_devices(home);
    berth_devices *const second = open_devices(home);
    thing t = { .is_over = false };

    visit(first, visitor);
    visit(second, visitor);
    keep(visitor, &t, NULL);
    berth_devices_close(first);
    CHECK(atomic_load(&t.is_asked));
    CHECK_EQ(atomic_load(&t.ended), 0);
    atomic_store(&t.is_over, true);
    berth_devices_close(second);
    CHECK_EQ(atomic_load(&t.ended), 1);
    destroy(visitor);
    destroy(home);
}

static void
test_no_memory(void)
{
    berth_context_options options;
    berth_context *const visitor = create();
    berth_context *home = NULL;
    berth_devices *devices;
    berth_error error;
    uint64_t bytes;

    berth_context_options_init(&options);
    options.memory_limit = 1 << 20;
    T_REQUIRE(berth_context_create(&options, &home, NULL) == BERTH_OK);
    devices = open_devices(home);
    bytes = (1 << 20) - loaded_bytes(home);
    void *const all = berthi_memory_alloc(home, BERTHI_PURPOSE_OBJECT, bytes);
    CHECK(all != NULL);
    CHECK_EQ(berthi_devices_visit(devices, visitor, &error), BERTH_ENOMEM);
    CHECK_EQ(berthi_devices_visit(devices, home, &error), BERTH_OK);
    CHECK_EQ(berthi_devices_visit(NULL, visitor, &error), BERTH_OK);
    berthi_memory_free(home, BERTHI_PURPOSE_OBJECT, all, bytes);
    berth_devices_close(devices);
    destroy(home);
    destroy(visitor);
}

/* ------------------------------------------------------------------------- at once */

static void *
sweep(void *context)
{
    berthi_context_sweep(context);
    return NULL;
}

/* Somebody looks after what `keeper` keeps, and is not done with it when devices are closed. */
static void
check_looks(berth_context *home, berth_context *keeper)
{
    berth_devices *const devices = open_devices(home);
    thing slow = { .takes_ns = SLOW_NS };
    thing t = { .is_over = false };
    _Atomic bool are_closed = false;
    pthread_t thread;

    visit(devices, keeper);
    keep(keeper, &slow, NULL);
    keep(keeper, &t, &are_closed);
    T_REQUIRE(pthread_create(&thread, NULL, sweep, keeper) == 0);
    while (!atomic_load(&slow.is_asked))
        berthi_sys_sleep(HUNG_MS_NS);
    atomic_store(&slow.is_over, true);
    atomic_store(&t.is_over, true);
    berth_devices_close(devices);
    atomic_store(&are_closed, true);
    pthread_join(thread, NULL);
    CHECK_EQ(atomic_load(&t.late), 0);
    CHECK_EQ(atomic_load(&t.ended), 1);
    CHECK_EQ(atomic_load(&slow.ended), 1);
}

static void
test_while_somebody_looks(void)
{
    berth_context *const home = create();
    berth_context *const visitor = create();

    check_looks(home, home);
    check_looks(home, visitor);
    destroy(visitor);
    destroy(home);
}

static void *
destroy_context(void *context)
{
    berth_context_destroy(context);
    return NULL;
}

static void *
look_often(void *context)
{
    for (uint32_t i = 0; i < 20; i++)
        (void)berth_context_trim(context);
    return NULL;
}

/* Devices and a visitor go, while a second visitor looks after what it keeps. */
static void
test_all_at_once(void)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        berth_context *const home = create();
        berth_context *const visitor = create();
        berth_context *const other = create();
        berth_devices *const devices = open_devices(home);
        thing things[2] = { { .is_over = false } };
        pthread_t threads[2];

        visit(devices, visitor);
        visit(devices, other);
        keep(visitor, &things[0], NULL);
        keep(other, &things[1], NULL);
        T_REQUIRE(pthread_create(&threads[0], NULL, destroy_context, visitor) == 0);
        T_REQUIRE(pthread_create(&threads[1], NULL, look_often, other) == 0);
        atomic_store(&things[0].is_over, true);
        atomic_store(&things[1].is_over, true);
        berth_devices_close(devices);
        CHECK_EQ(atomic_load(&things[1].ended), 1);
        destroy(home);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        CHECK_LE(atomic_load(&things[0].ended), 1);
        ended += atomic_load(&things[0].ended);
        destroy(other);
    }
    T_NOTE("%u of %u visitors were asked before they had gone", ended, ROUNDS);
}

/* --------------------------------------------------------------------------- loads */

/* A load whose copies hang on devices of another context, which are closed before its own. */
static void
test_a_load_that_hangs(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berth_context *const home = create();
    berth_devices *devices = NULL;
    uint64_t bytes;
    loaded l;

    T_REQUIRE(berth_devices_open(home, "sim:64MiB,clock=real", &devices, NULL) == BERTH_OK);
    loaded_begin(&l, loaded_llama(2, "BF16", 2), &options, NULL);
    l.options.devices = devices;
    bytes = loaded_bytes(l.p.context);
    for (l.options.wait_ms = WAIT_MS; l.options.wait_ms < 20000; l.options.wait_ms *= 2) {
        hung_copy(devices, 0);
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_EIO);
        if (hung_has(devices)) /* or else a read took that long */
            break;
    }
    CHECK_EQ(l.error.reason, BERTH_REASON_TIMEOUT);
    CHECK_GT(loaded_bytes(l.p.context), bytes);
    berth_devices_close(devices);
    destroy(home);
    CHECK_EQ(loaded_bytes(l.p.context), bytes);
    l.devices = NULL;
    loaded_end(&l);
}

/* ------------------------------------------------------------------ all that may hang */

static void
bench(berth_context *context, berth_devices *devices)
{
    berth_bench_options options;
    berth_job *job = NULL;

    berth_bench_options_init(&options);
    options.devices = devices;
    CHECK_EQ(berth_bench_start(context, &options, &job, NULL), BERTH_OK);
    berth_job_cancel(job);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_ECANCELLED);
}

static void
convert(berth_context *context, berth_devices *devices)
{
    berth_convert_options options;
    berth_checkpoint *checkpoint;
    berth_job *job = NULL;

    T_REQUIRE(berth_checkpoint_open(context, loaded_llama(1, "BF16", 1), NULL, &checkpoint, NULL)
              == BERTH_OK);
    berth_convert_options_init(&options);
    options.output = fixture_format("%s/converted", fixture_folder());
    options.type = BERTH_ENCODING_NF4;
    options.devices = devices;
    CHECK_EQ(berth_convert_start(context, checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_checkpoint_close(checkpoint);
}

static void
optimize(berth_context *context, berth_devices *devices)
{
    static const uint64_t shape[1] = { 64 };
    berth_parameter parameter = { .name = "p", .shape = shape, .rank = 1, .dtype = BERTH_F32 };
    berth_optimizer *optimizer = NULL;
    berth_optimizer_options options;
    berth_optimizer_group group;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAM), BERTH_OK);
    berth_optimizer_options_init(&options);
    options.devices = devices;
    CHECK_EQ(berth_device_alloc(devices, 0, 256, &parameter.values, NULL), BERTH_OK);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                                    NULL),
             BERTH_OK);
    berth_optimizer_destroy(optimizer);
    berth_device_free(devices, 0, parameter.values, 256);
}

/* Each tells the devices of its context, which then look after what that keeps. */
static void
test_whatever_may_hang_has_visited(void)
{
    static void (*const all[])(berth_context *, berth_devices *) = { bench, convert, optimize };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        berth_context *const home = create();
        berth_context *const visitor = create();
        berth_devices *devices = NULL;
        thing t = { .is_over = true };

        T_REQUIRE(berth_devices_open(home, "sim:64MiB", &devices, NULL) == BERTH_OK);
        all[i](visitor, devices);
        keep(visitor, &t, NULL);
        berth_devices_close(devices);
        CHECK_EQ(atomic_load(&t.ended), 1);
        destroy(home);
        destroy(visitor);
    }
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_devices_go_first);
    T_RUN(test_visitors_go_first);
    T_RUN(test_a_visitor_of_two);
    T_RUN(test_no_memory);
    T_RUN(test_while_somebody_looks);
    T_RUN(test_all_at_once);
    T_RUN(test_a_load_that_hangs);
    T_RUN(test_whatever_may_hang_has_visited);
    return t_end();
}
